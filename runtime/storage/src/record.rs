//! The stored form of a value: a format, the number of its write (its epoch), a CRC32C, then the
//! value.
//!
//! Pure functions. The checksum covers the key too, so a value found under another key is detected
//! as damage. Any mismatch is an error that names the key.

use crate::error::{StoreError, key_text};

/// The format that is written, and the newest one that is read.
const FORMAT: u8 = 1;
const HEADER_BYTES: usize = 1 + 8 + 4;

/// A decoded record.
#[derive(Debug, PartialEq, Eq)]
pub struct Opened<'a> {
    /// The number of the write that put this value (in stores of earlier versions: of the
    /// journalled commit before it).
    pub epoch: u64,
    /// The value.
    pub value: &'a [u8],
}

/// The stored form of this value under this key.
pub fn seal(key: &[u8], epoch: u64, value: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER_BYTES + value.len());
    bytes.push(FORMAT);
    bytes.extend_from_slice(&epoch.to_be_bytes());
    bytes.extend_from_slice(&checksum(FORMAT, epoch, key, value).to_be_bytes());
    bytes.extend_from_slice(value);
    bytes
}

/// Decodes the stored form, if it belongs to this key and is intact.
pub fn open<'a>(key: &[u8], bytes: &'a [u8]) -> Result<Opened<'a>, StoreError> {
    let short = || {
        damaged(
            key,
            format!("{} bytes are too few for a record", bytes.len()),
        )
    };
    let (&format, rest) = bytes.split_first().ok_or_else(short)?;
    if format != FORMAT {
        // A flipped bit in the first byte looks the same as a newer format: both are refused.
        return Err(StoreError::Format {
            key: key_text(key),
            found: format,
            known: FORMAT,
        });
    }
    let (epoch, rest) = rest.split_first_chunk::<8>().ok_or_else(short)?;
    let (stored, value) = rest.split_first_chunk::<4>().ok_or_else(short)?;
    let (epoch, stored) = (u64::from_be_bytes(*epoch), u32::from_be_bytes(*stored));
    let found = checksum(format, epoch, key, value);
    if stored != found {
        return Err(damaged(
            key,
            format!("its checksum is {found:08x} and {stored:08x} was stored"),
        ));
    }
    Ok(Opened { epoch, value })
}

/// The checksum in the header of these stored bytes, verified or not; 0 if the header is
/// incomplete.
pub(crate) fn stored_checksum(bytes: &[u8]) -> u32 {
    let header = bytes.first_chunk::<HEADER_BYTES>();
    let stored = header.and_then(|header| header.last_chunk::<4>());
    stored.map_or(0, |stored| u32::from_be_bytes(*stored))
}

/// The error for this key.
pub(crate) fn damaged(key: &[u8], reason: impl Into<String>) -> StoreError {
    StoreError::Damaged {
        key: key_text(key),
        reason: reason.into(),
    }
}

fn checksum(format: u8, epoch: u64, key: &[u8], value: &[u8]) -> u32 {
    let mut sum = crc32c::crc32c(&[format]);
    sum = crc32c::crc32c_append(sum, &epoch.to_be_bytes());
    sum = crc32c::crc32c_append(sum, &(key.len() as u64).to_be_bytes());
    sum = crc32c::crc32c_append(sum, key);
    crc32c::crc32c_append(sum, value)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A released format never changes: these bytes must be readable for ever.
    #[test]
    fn the_golden_bytes_of_format_1() {
        let golden = [1, 0, 0, 0, 0, 0, 0, 0, 7, 0x8a, 0xd0, 0xd4, 0x04, b'v'];
        assert_eq!(seal(b"key", 7, b"v"), golden);
        assert_eq!(
            open(b"key", &golden).unwrap(),
            Opened {
                epoch: 7,
                value: b"v"
            }
        );
    }

    #[test]
    fn a_newer_format_is_refused_by_name() {
        let mut sealed = seal(b"key", 7, b"v");
        sealed[0] = 2;
        let error = open(b"key", &sealed).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the record \"key\" has format 2, and this version knows only 1"
        );
    }

    proptest! {
        #[test]
        fn sealed_records_open(key: Vec<u8>, epoch: u64, value: Vec<u8>) {
            let sealed = seal(&key, epoch, &value);
            prop_assert_eq!(open(&key, &sealed).unwrap(), Opened { epoch, value: &value });
            prop_assert_eq!(stored_checksum(&sealed), checksum(FORMAT, epoch, &key, &value));
        }

        #[test]
        fn one_flipped_bit_is_always_found(value: Vec<u8>, at: prop::sample::Index, bit in 0..8u8) {
            let mut sealed = seal(b"key", 7, &value);
            let at = at.index(sealed.len());
            sealed[at] ^= 1 << bit;
            prop_assert!(open(b"key", &sealed).is_err());
        }

        #[test]
        fn a_value_under_another_key_is_damage(value: Vec<u8>) {
            prop_assert!(open(b"other", &seal(b"key", 7, &value)).is_err());
        }

        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>) {
            let _ = open(b"key", &bytes);
        }
    }
}
