//! The codec of message bodies: bincode with its standard settings, and the only file that names it.
//!
//! Decoding never trusts a length it reads: whatever the bytes claim, no more is allocated than a small
//! multiple of the bytes that are there, and bytes that are left over are an error.

use bytes::BytesMut;
use serde::Serialize;
use serde::de::DeserializeOwned;

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

/// The value's bytes.
pub fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>, Garbled> {
    let mut buffer = BytesMut::new();
    encode_into(value, &mut buffer)?;
    Ok(buffer.into())
}

/// The value that exactly these bytes stand for.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Garbled> {
    match bytes.len() {
        0..=0x400 => within::<T, 0x400>(bytes),
        0x401..=0x4000 => within::<T, 0x4000>(bytes),
        0x4001..=0x4_0000 => within::<T, 0x4_0000>(bytes),
        0x4_0001..=0x40_0000 => within::<T, 0x40_0000>(bytes),
        0x40_0001..=BODY_MAX => within::<T, BODY_MAX>(bytes),
        length => Err(Garbled::new(format!(
            "body of {length} bytes, expected at most {BODY_MAX}"
        ))),
    }
}

/// Decodes with bincode's limit, which can only be a constant, at the next step above the length.
fn within<T: DeserializeOwned, const LIMIT: usize>(bytes: &[u8]) -> Result<T, Garbled> {
    let config = bincode::config::standard().with_limit::<LIMIT>();
    let (value, used) = bincode::serde::decode_from_slice(bytes, config)
        .map_err(|error| Garbled::new(format!("cannot be decoded: {error}")))?;
    match bytes.len() - used {
        0 => Ok(value),
        left => Err(Garbled::new(format!(
            "{left} bytes left over of {}",
            bytes.len()
        ))),
    }
}

struct Appender<'a>(&'a mut BytesMut);

impl bincode::enc::write::Writer for Appender<'_> {
    fn write(&mut self, bytes: &[u8]) -> Result<(), bincode::error::EncodeError> {
        self.0.extend_from_slice(bytes);
        Ok(())
    }
}
