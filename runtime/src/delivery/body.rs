//! The encoded bytes of a waiting message, shared by the sender's state and its envelopes.
//!
//! A plain value, encoded as bytes and not as a list of numbers.

use std::fmt;

use bytes::Bytes;
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The bytes of one message. Cloning shares them.
#[derive(Clone, PartialEq)]
pub(crate) struct Body(pub(crate) Bytes);

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

impl Serialize for Body {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for Body {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl Visitor<'_> for Reader {
            type Value = Body;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the bytes of a message")
            }

            fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Body, E> {
                Ok(Body(Bytes::copy_from_slice(bytes)))
            }
        }
        deserializer.deserialize_bytes(Reader)
    }
}
