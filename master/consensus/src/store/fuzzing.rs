//! Access to the log's encodings for [`crate::fuzzing`].

use super::keys;
use super::record::{self, Chunk, Meta, RecordType};

/// The stored form of this body under this key; `None` if the key is not a log's.
pub(crate) fn seal(key: &[u8], body: &[u8]) -> Option<Vec<u8>> {
    let record_type = if key == keys::META {
        RecordType::Meta
    } else if keys::chunk_first(key).is_some() {
        RecordType::Chunk
    } else {
        keys::part_of(key).map(|_| RecordType::Part)?
    };
    (body.len() <= record::PART_BYTES_MAX).then(|| record::seal(key, record_type, body))
}

/// Decodes a turn's record with its entries and encodes it again; `None` if it is invalid.
pub fn reread_chunk(body: &[u8]) -> Option<Vec<u8>> {
    let (chunk, inline) = Chunk::decode(body)?;
    if chunk.parts.count > 0 {
        return Some(chunk.encode(&[]));
    }
    let mut entries = Vec::new();
    record::decode_entries(chunk.first, chunk.count, inline, &mut entries)?;
    let inline = record::encode_entries(&entries).ok()?;
    Some(chunk.encode(&inline))
}

/// Decodes the metadata record and encodes it again; `None` if it is invalid.
pub fn reread_meta(body: &[u8]) -> Option<Vec<u8>> {
    Meta::decode(body).map(|meta| meta.encode())
}
