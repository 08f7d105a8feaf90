//! The encoding of the log's records: a record type, a version, a CRC32C of both, the key and the
//! body, then the body.
//!
//! Pure functions over bytes. Three record types: a turn's entries, a part of content too long for
//! one value, and the metadata. Numbers are big-endian with fixed width. Strict: any mismatch is
//! damage that names its record, and no decoded length allocates more than the bytes that are
//! present.

use crate::log::{Entry, EntryKind, HardState, Identity, LogError, Members};

/// The version written for every record type, and the newest one that is read.
pub(super) const VERSION: u8 = 1;
const HEADER_BYTES: usize = 1 + 1 + 4;
/// Bytes of a chunk's body before its entries.
const CHUNK_HEAD_BYTES: usize = 8 + 8 + 24 + 8 + 4 + 4 + 8 + 4;
/// Bytes of an entry without its data and context.
const ENTRY_HEAD_BYTES: usize = 8 + 1 + 4 + 4;
/// The largest part: 16 KiB. sled rewrites whole leaves of up to 17 records every few changes, so
/// parts near the maximum of a value cost many times their size.
pub(super) const PART_BYTES_MAX: usize = 16 << 10;
/// The largest chunk with its entries: 32 KiB, for the same reason.
const CHUNK_BYTES_MAX: usize = 32 << 10;
const _: () = assert!(
    HEADER_BYTES + PART_BYTES_MAX <= storage::VALUE_BYTES_MAX
        && HEADER_BYTES + CHUNK_BYTES_MAX <= storage::VALUE_BYTES_MAX
);

/// The type of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RecordType {
    /// The entries of a turn.
    Chunk = b'e',
    /// A part of content too long for one value.
    Part = b'p',
    /// The metadata.
    Meta = b'm',
}

/// A reference to content in parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parts {
    /// 0: the content is in the record itself.
    pub count: u32,
    /// Bytes of all parts together.
    pub length: u64,
    /// CRC32C of all parts together.
    pub crc: u32,
}

/// The entries of one turn, or only its hard state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Writes are numbered from 1; the latest chunk for an index is valid.
    pub number: u64,
    /// The number of the chunk before it in the log; 0 if there was none.
    pub previous: u64,
    /// The hard state of this write.
    pub hard: HardState,
    /// The first entry's index, or the next entry's if this chunk has none.
    pub first: u64,
    /// The number of entries.
    pub count: u32,
    /// The parts with the entries, if they are not in this record.
    pub parts: Parts,
}

/// A reference to the snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pointer {
    /// The number of its parts.
    pub number: u64,
    /// The last index that it contains.
    pub index: u64,
    /// The term of that entry.
    pub term: u64,
    /// Its content.
    pub parts: Parts,
    /// The members at that index.
    pub members: Members,
}

/// The metadata record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Meta {
    /// The number of the write that made it.
    pub number: u64,
    /// The member that owns the log.
    pub identity: Option<Identity>,
    /// The hard state of that write.
    pub hard: HardState,
    /// Chunks with a lower number are stale.
    pub floor: u64,
    /// The newest snapshot.
    pub snapshot: Option<Pointer>,
}

/// The stored form of this body under this key.
pub fn seal(key: &[u8], record_type: RecordType, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER_BYTES + body.len());
    bytes.extend_from_slice(&[record_type as u8, VERSION]);
    bytes.extend_from_slice(&checksum(record_type as u8, VERSION, key, body).to_be_bytes());
    bytes.extend_from_slice(body);
    bytes
}

/// The body of these stored bytes, if they match the key and the record type.
pub(super) fn open<'a>(
    key: &[u8],
    record_type: RecordType,
    bytes: &'a [u8],
) -> Result<&'a [u8], LogError> {
    let (header, body) = bytes
        .split_first_chunk::<HEADER_BYTES>()
        .ok_or_else(|| damaged(key, format!("{} bytes are too few", bytes.len())))?;
    let [id, version, crc @ ..] = *header;
    let (stored, found) = (u32::from_be_bytes(crc), checksum(id, version, key, body));
    if stored != found {
        let reason = format!("its checksum is {found:08x} and {stored:08x} was stored");
        return Err(damaged(key, reason));
    }
    if id != record_type as u8 {
        let reason = format!(
            "its record type is {id:#04x}, and {:#04x} was expected",
            record_type as u8
        );
        return Err(damaged(key, reason));
    }
    if version != VERSION {
        let reason = format!(
            "its record type has version {version}, and this program knows only {VERSION}: start the newer one"
        );
        return Err(damaged(key, reason));
    }
    Ok(body)
}

/// The encoded size of these entries.
pub(super) fn entries_bytes(entries: &[Entry]) -> usize {
    entries
        .iter()
        .map(|entry| ENTRY_HEAD_BYTES + entry.data.len() + entry.context.len())
        .sum()
}

/// Whether encoded entries of this size fit into the chunk's own record.
pub(super) fn fits(entries_bytes: usize) -> bool {
    CHUNK_HEAD_BYTES + entries_bytes <= CHUNK_BYTES_MAX
}

/// Encodes entries without their chunk. An error if a length exceeds its field.
pub fn encode_entries(entries: &[Entry]) -> Result<Vec<u8>, LogError> {
    let mut bytes = Vec::with_capacity(entries_bytes(entries));
    for entry in entries {
        let length = |field: &str, bytes: &[u8]| {
            u32::try_from(bytes.len()).map_err(|_| LogError::Disk {
                reason: format!(
                    "the {field} of entry {} has {} bytes, and at most {} are kept",
                    entry.index,
                    bytes.len(),
                    u32::MAX
                ),
            })
        };
        bytes.extend_from_slice(&entry.term.to_be_bytes());
        bytes.push(match entry.kind {
            EntryKind::Operation => 0,
            EntryKind::Membership => 1,
            EntryKind::JointMembership => 2,
        });
        bytes.extend_from_slice(&length("data", &entry.data)?.to_be_bytes());
        bytes.extend_from_slice(&length("context", &entry.context)?.to_be_bytes());
        bytes.extend_from_slice(&entry.data);
        bytes.extend_from_slice(&entry.context);
    }
    Ok(bytes)
}

/// Decodes entries, which must fill these bytes exactly, and appends them to `entries`.
pub fn decode_entries(
    first: u64,
    count: u32,
    bytes: &[u8],
    entries: &mut Vec<Entry>,
) -> Option<()> {
    let mut reader = Reader(bytes);
    for at in 0..u64::from(count) {
        let term = reader.u64()?;
        let kind = match reader.u8()? {
            0 => EntryKind::Operation,
            1 => EntryKind::Membership,
            2 => EntryKind::JointMembership,
            _ => return None,
        };
        let (data, context) = (reader.u32()?, reader.u32()?);
        entries.push(Entry {
            term,
            index: first.checked_add(at)?,
            kind,
            data: reader.take(data as usize)?.to_vec(),
            context: reader.take(context as usize)?.to_vec(),
        });
    }
    reader.end()
}

impl Chunk {
    /// The index after its last entry.
    pub(super) fn end(&self) -> u64 {
        self.first.saturating_add(u64::from(self.count))
    }

    /// Encodes the body, with the encoded entries unless they are in parts.
    pub fn encode(&self, inline: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(CHUNK_HEAD_BYTES + inline.len());
        bytes.extend_from_slice(&self.number.to_be_bytes());
        bytes.extend_from_slice(&self.previous.to_be_bytes());
        write_hard(&mut bytes, &self.hard);
        bytes.extend_from_slice(&self.first.to_be_bytes());
        bytes.extend_from_slice(&self.count.to_be_bytes());
        write_parts(&mut bytes, &self.parts);
        bytes.extend_from_slice(inline);
        bytes
    }

    /// Decodes a chunk. Returns the encoded entries with it, unless they are in parts.
    pub fn decode(body: &[u8]) -> Option<(Chunk, &[u8])> {
        let mut reader = Reader(body);
        let chunk = Chunk {
            number: reader.u64()?,
            previous: reader.u64()?,
            hard: reader.hard()?,
            first: reader.u64()?,
            count: reader.u32()?,
            parts: reader.parts()?,
        };
        let whole = chunk.first.checked_add(u64::from(chunk.count)).is_some();
        let sane = whole && chunk.previous < chunk.number && chunk.first > 0;
        (sane && (chunk.parts.count == 0 || reader.0.is_empty())).then_some((chunk, reader.0))
    }
}

impl Meta {
    /// Encodes the body.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend_from_slice(&self.number.to_be_bytes());
        bytes.push(u8::from(self.identity.is_some()));
        if let Some(identity) = self.identity {
            bytes.extend_from_slice(&identity.id.to_be_bytes());
            bytes.extend_from_slice(&identity.group.to_be_bytes());
        }
        write_hard(&mut bytes, &self.hard);
        bytes.extend_from_slice(&self.floor.to_be_bytes());
        bytes.push(u8::from(self.snapshot.is_some()));
        if let Some(pointer) = &self.snapshot {
            bytes.extend_from_slice(&pointer.number.to_be_bytes());
            bytes.extend_from_slice(&pointer.index.to_be_bytes());
            bytes.extend_from_slice(&pointer.term.to_be_bytes());
            write_parts(&mut bytes, &pointer.parts);
            write_members(&mut bytes, &pointer.members);
        }
        bytes
    }

    /// Decodes the body; `None` if it is invalid.
    pub fn decode(body: &[u8]) -> Option<Meta> {
        let mut reader = Reader(body);
        let number = reader.u64()?;
        let identity = match reader.bool()? {
            true => Some(Identity {
                id: reader.u64()?,
                group: reader.u64()?,
            }),
            false => None,
        };
        let (hard, floor) = (reader.hard()?, reader.u64()?);
        let snapshot = match reader.bool()? {
            true => Some(Pointer {
                number: reader.u64()?,
                index: reader.u64()?,
                term: reader.u64()?,
                parts: reader.parts()?,
                members: reader.members()?,
            }),
            false => None,
        };
        reader.end()?;
        Some(Meta {
            number,
            identity,
            hard,
            floor,
            snapshot,
        })
    }
}

fn write_hard(bytes: &mut Vec<u8>, hard: &HardState) {
    for field in [hard.term, hard.vote, hard.commit] {
        bytes.extend_from_slice(&field.to_be_bytes());
    }
}

fn write_parts(bytes: &mut Vec<u8>, parts: &Parts) {
    bytes.extend_from_slice(&parts.count.to_be_bytes());
    bytes.extend_from_slice(&parts.length.to_be_bytes());
    bytes.extend_from_slice(&parts.crc.to_be_bytes());
}

fn write_members(bytes: &mut Vec<u8>, members: &Members) {
    let lists = [
        &members.voters,
        &members.learners,
        &members.voters_outgoing,
        &members.learners_next,
    ];
    for list in lists {
        // Members are few; a list beyond u32 would not fit in memory.
        bytes.extend_from_slice(&(list.len() as u32).to_be_bytes());
        for id in list {
            bytes.extend_from_slice(&id.to_be_bytes());
        }
    }
    bytes.push(u8::from(members.auto_leave));
}

/// The unread rest of a body.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_be_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    fn bool(&mut self) -> Option<bool> {
        match self.u8()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    fn hard(&mut self) -> Option<HardState> {
        Some(HardState {
            term: self.u64()?,
            vote: self.u64()?,
            commit: self.u64()?,
        })
    }

    fn parts(&mut self) -> Option<Parts> {
        Some(Parts {
            count: self.u32()?,
            length: self.u64()?,
            crc: self.u32()?,
        })
    }

    fn ids(&mut self) -> Option<Vec<u64>> {
        let count = self.u32()? as usize;
        let bytes = self.take(count.checked_mul(8)?)?;
        let (ids, _) = bytes.as_chunks::<8>();
        Some(ids.iter().copied().map(u64::from_be_bytes).collect())
    }

    fn members(&mut self) -> Option<Members> {
        Some(Members {
            voters: self.ids()?,
            learners: self.ids()?,
            voters_outgoing: self.ids()?,
            learners_next: self.ids()?,
            auto_leave: self.bool()?,
        })
    }

    fn end(self) -> Option<()> {
        self.0.is_empty().then_some(())
    }
}

fn checksum(record_type: u8, version: u8, key: &[u8], body: &[u8]) -> u32 {
    let sum = crc32c::crc32c(&[record_type, version]);
    let sum = crc32c::crc32c_append(sum, &(key.len() as u64).to_be_bytes());
    crc32c::crc32c_append(crc32c::crc32c_append(sum, key), body)
}

/// The error for this record.
pub(super) fn damaged(key: &[u8], reason: impl Into<String>) -> LogError {
    LogError::Damaged {
        place: super::keys::name(key),
        reason: reason.into(),
    }
}

#[cfg(test)]
#[path = "record_tests.rs"]
mod tests;
