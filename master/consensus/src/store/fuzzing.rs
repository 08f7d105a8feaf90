//! What [`crate::fuzzing`] needs of the forms in which the log is kept.

use super::form::{self, Chunk, Form, Meta};
use super::keys;

/// The body as it is stored under this key; `None` if no record of a log stands under such a key.
pub(crate) fn seal(key: &[u8], body: &[u8]) -> Option<Vec<u8>> {
    let form = if key == keys::META {
        Form::Meta
    } else if keys::chunk_first(key).is_some() {
        Form::Chunk
    } else {
        keys::part_of(key).map(|_| Form::Part)?
    };
    (body.len() <= form::PART_BYTES_MAX).then(|| form::seal(key, form, body))
}

/// Reads the record of a turn, entries and all, and gives the bytes of what was read; `None` if it is none.
pub fn reread_chunk(body: &[u8]) -> Option<Vec<u8>> {
    let (chunk, inline) = Chunk::decode(body)?;
    if chunk.parts.count > 0 {
        return Some(chunk.encode(&[]));
    }
    let mut entries = Vec::new();
    form::decode_entries(chunk.first, chunk.count, inline, &mut entries)?;
    let inline = form::encode_entries(&entries).ok()?;
    Some(chunk.encode(&inline))
}

/// Reads the member's own record, and gives the bytes of what was read; `None` if it is none.
pub fn reread_meta(body: &[u8]) -> Option<Vec<u8>> {
    Meta::decode(body).map(|meta| meta.encode())
}
