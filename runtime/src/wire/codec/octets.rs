//! Byte strings in one piece, for serde (`#[serde(with = "runtime::wire::codec::octets")]`): a
//! plain `Vec<u8>` would go through the codec byte by byte. The encoding is the same.

use serde::de::{Deserializer, Error, SeqAccess, Visitor};
use serde::ser::Serializer;

/// Writes them in one piece.
pub fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_bytes(bytes)
}

/// Reads them in one piece.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    deserializer.deserialize_byte_buf(Octets)
}

struct Octets;

impl<'de> Visitor<'de> for Octets {
    type Value = Vec<u8>;

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("bytes")
    }

    fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Vec<u8>, E> {
        Ok(bytes.to_vec())
    }

    fn visit_byte_buf<E: Error>(self, bytes: Vec<u8>) -> Result<Vec<u8>, E> {
        Ok(bytes)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Vec<u8>, A::Error> {
        let mut bytes = Vec::new();
        while let Some(byte) = elements.next_element()? {
            bytes.push(byte);
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use serde::{Deserialize, Serialize};

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Whole(#[serde(with = "super::super::octets")] Vec<u8>);

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Apart(Vec<u8>);

    #[test]
    fn the_encoding_is_that_of_a_plain_vector() {
        for length in [0, 1, 250, 251, 70_000] {
            let bytes: Vec<u8> = (0..length).map(|nth| nth as u8).collect();
            let whole = crate::wire::codec::encode(&Whole(bytes.clone())).unwrap();
            assert_eq!(
                whole,
                crate::wire::codec::encode(&Apart(bytes.clone())).unwrap()
            );
            assert_eq!(
                crate::wire::codec::decode::<Whole>(&whole).unwrap().0,
                bytes
            );
        }
    }
}
