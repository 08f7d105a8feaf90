//! The codec of message bodies: bincode with its standard settings, and the only user of it.
//!
//! Decoding trusts no length that it reads (see `codec/careful.rs`): it never allocates more than a
//! small multiple of the actual bytes, and left-over bytes are an error.

mod careful;
pub mod octets;

use bincode::error::DecodeError;
use bytes::BytesMut;
use serde::Serialize;
use serde::de::DeserializeOwned;

use careful::{Budget, Carefully};

/// The largest body that can be decoded, in bytes.
pub const BODY_MAX: usize = 64 << 20;
/// bincode's own limit, which counts a small number as if it took all its bytes.
const CLAIM_MAX: usize = 16 * BODY_MAX;

/// Bytes that cannot be decoded, or a value that cannot be encoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("garbled: {reason}")]
pub struct Garbled {
    /// The expected and the actual content.
    pub reason: String,
}

impl Garbled {
    /// An error with this reason.
    pub fn new(reason: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
        }
    }
}

/// Appends the encoded value. On an error the buffer is unchanged.
pub fn encode_into<T: Serialize>(value: &T, buffer: &mut BytesMut) -> Result<(), Garbled> {
    let start = buffer.len();
    let config = bincode::config::standard();
    match bincode::serde::encode_into_writer(value, Appender(&mut *buffer), config) {
        Ok(()) => Ok(()),
        Err(error) => {
            buffer.truncate(start);
            Err(Garbled::new(format!("cannot be encoded: {error}")))
        }
    }
}

/// The encoded value.
pub fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>, Garbled> {
    let mut buffer = BytesMut::new();
    encode_into(value, &mut buffer)?;
    Ok(buffer.into())
}

/// Decodes a value from exactly these bytes.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Garbled> {
    if bytes.len() > BODY_MAX {
        return Err(Garbled::new(format!(
            "body of {} bytes, expected at most {BODY_MAX}",
            bytes.len()
        )));
    }
    let budget = Budget::of(bytes);
    let config = bincode::config::standard().with_limit::<CLAIM_MAX>();
    let (value, used) =
        bincode::serde::seed_decode_from_slice(Carefully::<T>::new(&budget), bytes, config)
            .map_err(|error| garbled(&budget.place(), error))?;
    match bytes.len() - used {
        0 => Ok(value),
        left => Err(Garbled::new(format!(
            "{left} bytes left over of {}",
            bytes.len()
        ))),
    }
}

/// The error at this place of the value.
#[cold]
fn garbled(place: &str, error: DecodeError) -> Garbled {
    let why = match error {
        DecodeError::UnexpectedEnd { additional } => {
            format!("the bytes end where {additional} more were expected")
        }
        DecodeError::OtherString(words) => words,
        other => other.to_string(),
    };
    Garbled::new(match place {
        "" => format!("cannot be decoded: {why}"),
        place => format!("cannot be decoded at {place}: {why}"),
    })
}

struct Appender<'a>(&'a mut BytesMut);

impl bincode::enc::write::Writer for Appender<'_> {
    // Most writes are of one or eight bytes with a constant length: inlined, they are one store.
    #[inline(always)]
    fn write(&mut self, bytes: &[u8]) -> Result<(), bincode::error::EncodeError> {
        self.0.extend_from_slice(bytes);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    enum Shape {
        Nothing,
        One(u64),
        Two(i32, String),
        Named {
            list: Vec<Option<bool>>,
            map: BTreeMap<String, f64>,
            bytes: (u8, char),
        },
        Nested(Box<Shape>),
    }

    fn shapes() -> impl Strategy<Value = Shape> {
        let leaf = prop_oneof![
            Just(Shape::Nothing),
            any::<u64>().prop_map(Shape::One),
            (any::<i32>(), ".*").prop_map(|(number, text)| Shape::Two(number, text)),
            (
                any::<Vec<Option<bool>>>(),
                prop::collection::btree_map(".*", -1e9..1e9, 0..5),
                any::<(u8, char)>()
            )
                .prop_map(|(list, map, bytes)| Shape::Named { list, map, bytes }),
        ];
        leaf.prop_recursive(8, 16, 1, |inner| {
            inner.prop_map(|shape| Shape::Nested(Box::new(shape)))
        })
    }

    proptest! {
        #[test]
        fn round_trip_succeeds_and_an_extra_byte_fails(shape in shapes()) {
            let mut bytes = encode(&shape).unwrap();
            prop_assert_eq!(decode::<Shape>(&bytes), Ok(shape));
            bytes.push(0);
            prop_assert!(decode::<Shape>(&bytes).is_err());
        }

        #[test]
        fn arbitrary_bytes_are_a_value_or_an_error(bytes: Vec<u8>) {
            let _ = decode::<Vec<Shape>>(&bytes);
            let _ = decode::<(String, Vec<Vec<()>>, BTreeMap<u8, ()>)>(&bytes);
        }
    }

    /// A claim of 2^40 in the codec's own form.
    const HUGE: [u8; 9] = [253, 0, 0, 0, 0, 0, 1, 0, 0];

    fn reason<T: DeserializeOwned + std::fmt::Debug>(bytes: &[u8]) -> String {
        decode::<T>(bytes).unwrap_err().reason
    }

    #[test]
    fn a_claimed_length_allocates_and_costs_nothing() {
        assert!(reason::<String>(&HUGE).contains("Limit"));
        assert!(reason::<Vec<()>>(&HUGE).contains("elements claimed"));
        assert!(reason::<BTreeMap<(), ()>>(&HUGE).contains("elements claimed"));
        let within_the_limit = [252, 0, 0, 0, 1]; // 16 MiB of text, of which no byte is there
        assert!(decode::<String>(&within_the_limit).is_err());
    }

    #[test]
    fn many_small_claims_of_nothing_are_no_way_around() {
        let claims = vec![vec![(); 1000]; 1000];
        let bytes = encode(&claims).unwrap();
        assert!(reason::<Vec<Vec<()>>>(&bytes).contains("elements claimed"));
        assert_eq!(
            decode::<Vec<()>>(&encode(&[(); 1000].to_vec()).unwrap()),
            Ok(vec![(); 1000])
        );
    }

    #[test]
    fn errors_contain_the_path_of_the_field() {
        let named = Shape::Named {
            list: vec![Some(true), None, Some(false)],
            map: BTreeMap::new(),
            bytes: (1, 'a'),
        };
        let mut bytes = encode(&(named, 7)).unwrap();
        bytes[6] = 2; // neither false nor true
        assert_eq!(
            reason::<(Shape, u8)>(&bytes),
            "cannot be decoded at [0].list[2]: InvalidBooleanValue(2)"
        );
        bytes.truncate(5);
        assert_eq!(
            reason::<(Shape, u8)>(&bytes),
            "cannot be decoded at [0].list[2]: the bytes end where 1 more were expected"
        );
    }

    #[test]
    fn endless_nesting_does_not_overflow_the_stack() {
        let bytes = vec![4; 200_000]; // Nested(Nested(...
        assert!(reason::<Shape>(&bytes).contains("nested deeper"));
    }

    #[test]
    fn a_frozen_message_keeps_its_bytes() {
        let shape = Shape::Two(-1, "ab".into());
        assert_eq!(encode(&shape).unwrap(), [2, 1, 2, b'a', b'b']);
    }
}
