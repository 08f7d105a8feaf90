//! The codec of message bodies: the bytes of bincode 2 with its standard settings, and the only file that names it.
//!
//! They are read and written here (`codec/read.rs`, `codec/write.rs`) and not by bincode: it costs every message three
//! times as much, and the care below would have to be wrapped around it. The tests hold both to its bytes.
//! Decoding never trusts a length it reads: whatever the bytes claim, no more is allocated than a small multiple of
//! the bytes that are there, and bytes that are left over are an error.

mod form;
mod read;
mod write;

use bytes::BytesMut;
use serde::Serialize;
use serde::de::DeserializeOwned;

use read::Reader;
use write::Writer;

/// The largest body that can be decoded, in bytes.
pub const BODY_MAX: usize = 64 << 20;

/// The bytes are not what they should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("garbled: {reason}")]
pub struct Garbled {
    /// What was found and what was expected.
    pub reason: String,
}

impl Garbled {
    /// Garbled for this reason.
    pub fn new(reason: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
        }
    }
}

/// Appends the value's bytes. On an error the buffer holds what it held before.
#[inline]
pub fn encode_into<T: Serialize>(value: &T, buffer: &mut BytesMut) -> Result<(), Garbled> {
    let start = buffer.len();
    match value.serialize(Writer(&mut *buffer)) {
        Ok(()) => Ok(()),
        Err(error) => {
            buffer.truncate(start);
            Err(Garbled::new(format!("cannot be encoded: {error}")))
        }
    }
}

/// The value's bytes.
pub fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>, Garbled> {
    let mut buffer = BytesMut::new();
    encode_into(value, &mut buffer)?;
    Ok(buffer.into())
}

/// The value that exactly these bytes stand for.
#[inline]
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Garbled> {
    if bytes.len() > BODY_MAX {
        return Err(too_long(bytes));
    }
    let mut reader = Reader::of(bytes);
    match T::deserialize(&mut reader) {
        Ok(value) if reader.left() == 0 => Ok(value),
        Ok(_) => Err(left_over(reader.left(), bytes)),
        Err(error) => Err(undecodable(&error)),
    }
}

/// Appends the value that exactly these bytes stand for.
///
/// The same as pushing what [`decode`] gives, but the value is moved once only: of a message of some size, moving it is
/// most of the cost.
#[inline]
pub(crate) fn decode_onto<T: DeserializeOwned>(
    bytes: &[u8],
    values: &mut Vec<T>,
) -> Result<(), Garbled> {
    if bytes.len() > BODY_MAX {
        return Err(too_long(bytes));
    }
    let mut reader = Reader::of(bytes);
    match T::deserialize(&mut reader) {
        Ok(value) => values.push(value),
        Err(error) => return Err(undecodable(&error)),
    }
    if reader.left() > 0 {
        values.pop();
        return Err(left_over(reader.left(), bytes));
    }
    Ok(())
}

#[cold]
fn undecodable(error: &read::Unreadable) -> Garbled {
    Garbled::new(format!("cannot be decoded: {error}"))
}

#[cold]
fn too_long(bytes: &[u8]) -> Garbled {
    let length = bytes.len();
    Garbled::new(format!(
        "body of {length} bytes, expected at most {BODY_MAX}"
    ))
}

#[cold]
fn left_over(left: usize, bytes: &[u8]) -> Garbled {
    Garbled::new(format!("{left} bytes left over of {}", bytes.len()))
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
        Numbers(Numbers),
    }

    #[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
    struct Numbers {
        unsigned: (u8, u16, u32, u64, u128),
        signed: (i8, i16, i32, i64, i128),
        rest: (usize, f32, [u64; 3], ()),
    }

    /// Numbers of every size, and not only large ones.
    fn numbers() -> impl Strategy<Value = Numbers> {
        let sized = (any::<u128>(), 0..128_u32).prop_map(|(number, shift)| number >> shift);
        [sized.clone(), sized.clone(), sized.clone(), sized].prop_map(|[a, b, c, d]| Numbers {
            unsigned: (a as u8, b as u16, c as u32, d as u64, a),
            signed: (b as i8, c as i16, d as i32, a as i64, b as i128),
            rest: (
                c as usize,
                d as u32 as f32,
                [a as u64, b as u64, c as u64],
                (),
            ),
        })
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
            numbers().prop_map(Shape::Numbers),
        ];
        leaf.prop_recursive(8, 16, 1, |inner| {
            inner.prop_map(|shape| Shape::Nested(Box::new(shape)))
        })
    }

    /// What bincode makes of these bytes, if it uses all of them.
    fn by_bincode<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
        let config = bincode::config::standard().with_limit::<{ 1 << 20 }>();
        bincode::serde::decode_from_slice(bytes, config)
            .ok()
            .filter(|(_, used)| *used == bytes.len())
            .map(|(value, _)| value)
    }

    proptest! {
        #[test]
        fn what_was_encoded_decodes_to_the_same_and_one_more_byte_is_an_error(shape in shapes()) {
            let mut bytes = encode(&shape).unwrap();
            prop_assert_eq!(decode::<Shape>(&bytes), Ok(shape));
            bytes.push(0);
            prop_assert!(decode::<Shape>(&bytes).is_err());
        }

        #[test]
        fn the_bytes_are_those_of_bincode(shape in shapes()) {
            let theirs = bincode::serde::encode_to_vec(&shape, bincode::config::standard()).unwrap();
            prop_assert_eq!(encode(&shape).unwrap(), theirs);
        }

        #[test]
        fn damaged_bytes_are_to_us_what_they_are_to_bincode(
            shape in shapes(),
            at: prop::sample::Index,
            damage: u8,
            cut in 0..3_usize,
        ) {
            let mut bytes = encode(&shape).unwrap();
            let at = at.index(bytes.len());
            bytes[at] = damage;
            bytes.truncate(bytes.len() - cut.min(bytes.len()));
            let (ours, theirs) = (decode::<Shape>(&bytes).ok(), by_bincode::<Shape>(&bytes));
            // Compared as bytes: what is not a number does not equal itself.
            prop_assert_eq!(ours.map(|shape| encode(&shape)), theirs.map(|shape| encode(&shape)));
        }

        #[test]
        fn arbitrary_bytes_are_a_value_or_an_error_as_they_are_to_bincode(bytes: Vec<u8>) {
            prop_assert_eq!(decode::<Vec<(u16, char)>>(&bytes).ok(), by_bincode(&bytes));
            prop_assert_eq!(decode::<(i64, Option<u32>, i16)>(&bytes).ok(), by_bincode(&bytes));
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
        assert!(reason::<String>(&HUGE).contains("more bytes claimed"));
        assert!(reason::<Vec<()>>(&HUGE).contains("elements claimed"));
        assert!(reason::<BTreeMap<(), ()>>(&HUGE).contains("elements claimed"));
        let within_the_limit = [252, 0, 0, 0, 1]; // 16 MiB of text, of which nothing is there
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
    fn a_value_nested_without_end_does_not_overflow_the_stack() {
        let bytes = vec![4; 200_000]; // Nested(Nested(...
        assert!(reason::<Shape>(&bytes).contains("nested deeper"));
    }

    #[test]
    fn a_frozen_message_keeps_its_bytes() {
        let shape = Shape::Two(-1, "ab".into());
        assert_eq!(encode(&shape).unwrap(), [2, 1, 2, b'a', b'b']);
    }
}
