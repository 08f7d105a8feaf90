//! Reading of a stored log: which chunks are valid, checks for gaps, and leftovers.
//!
//! Changes nothing in the store. Chunks are read in the order of their indexes. A chunk is valid if
//! its number is higher than those of all before it; it replaces their entries from its first index
//! on. It names its predecessor, so a lost record is noticed. Stale records are returned for the
//! sweep.
//!
//! Only unacknowledged data can be incomplete: parts whose chunk or pointer was not written yet.
//! They are leftovers. Any other mismatch concerns acknowledged data, and is damage.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use storage::{Store, StoreError};

use super::keys;
use super::record::{self, Chunk, Meta, Parts, RecordType};
use super::rules::LogBounds;
use crate::log::{Loaded, LogError, Snapshot};

/// Records read at once: about 6 MiB at most.
const PAGE: usize = 64;

/// A valid chunk, as the store remembers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Held {
    pub number: u64,
    /// The index after its last valid entry.
    pub end: u64,
    /// The number of its parts.
    pub parts: u32,
}

/// A log as it was read.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub meta: Meta,
    pub bounds: LogBounds,
    /// The highest number of any record, valid or not.
    pub number: u64,
    /// The valid chunks, by their first index.
    pub chunks: BTreeMap<u64, Held>,
    /// Keys of stale records.
    pub stale: BTreeSet<Vec<u8>>,
    pub loaded: Loaded,
}

/// Reads the whole log.
pub(super) fn read(store: &impl Store) -> Result<Found, LogError> {
    let mut found = Found::default();
    if let Some(bytes) = store.get(keys::META).map_err(fault)? {
        let body = record::open(keys::META, RecordType::Meta, &bytes)?;
        found.meta = Meta::decode(body)
            .ok_or_else(|| record::damaged(keys::META, "its fields do not fit its length"))?;
    }
    found.number = found.meta.number;
    found.loaded.identity = found.meta.identity;
    found.loaded.snapshot = snapshot(store, &found.meta)?;
    let index = found.loaded.snapshot.index;
    found.bounds = LogBounds {
        snapshot: index,
        last: index,
        hard: found.meta.hard,
    };
    read_chunks(store, &mut found)?;
    if found.bounds.hard.commit > found.bounds.last {
        return Err(record::damaged(
            &keys::chunk(found.bounds.last.saturating_add(1)),
            format!(
                "it is missing, and the log was committed up to {}",
                found.bounds.hard.commit
            ),
        ));
    }
    found.loaded.hard = found.bounds.hard;
    find_leftovers(store, &mut found)?;
    Ok(found)
}

fn snapshot(store: &impl Store, meta: &Meta) -> Result<Snapshot, LogError> {
    let Some(pointer) = &meta.snapshot else {
        return Ok(Snapshot::default());
    };
    Ok(Snapshot {
        index: pointer.index,
        term: pointer.term,
        members: pointer.members.clone(),
        data: Bytes::from(whole(store, pointer.number, &pointer.parts)?),
    })
}

fn read_chunks(store: &impl Store, found: &mut Found) -> Result<(), LogError> {
    let mut after: Option<Vec<u8>> = None;
    let mut newest = 0;
    loop {
        let page = store
            .page(keys::CHUNKS, after.as_deref(), PAGE)
            .map_err(fault)?;
        for record in &page {
            let body = record::open(&record.key, RecordType::Chunk, &record.value)?;
            let (chunk, inline) = Chunk::decode(body)
                .ok_or_else(|| record::damaged(&record.key, "its fields do not fit its length"))?;
            if keys::chunk_first(&record.key) != Some(chunk.first) {
                return Err(record::damaged(
                    &record.key,
                    "it stands under another's key",
                ));
            }
            found.number = found.number.max(chunk.number);
            if chunk.number < found.meta.floor || chunk.number <= newest {
                // Its parts are found among the unreferenced ones.
                found.stale.insert(record.key.clone());
                continue;
            }
            check_chain(&chunk, newest, found)
                .map_err(|reason| record::damaged(&record.key, reason))?;
            newest = chunk.number;
            let bytes = match chunk.parts.count {
                0 => inline,
                _ => &whole(store, chunk.number, &chunk.parts)?,
            };
            take(chunk, bytes, found)
                .ok_or_else(|| record::damaged(&record.key, "its entries cannot be read"))?;
        }
        match page.last() {
            Some(last) if page.len() == PAGE => after = Some(last.key.clone()),
            _ => break,
        }
    }
    // Every record contains the hard state of its time; the newest record's is valid.
    if newest < found.meta.number {
        found.bounds.hard = found.meta.hard;
    }
    Ok(())
}

/// Checks that this chunk follows the previous one without a gap.
fn check_chain(chunk: &Chunk, newest: u64, found: &Found) -> Result<(), String> {
    let follows = match newest {
        0 => chunk.previous == 0 || chunk.previous < found.meta.floor,
        newest => chunk.previous == newest,
    };
    if !follows {
        return Err(format!(
            "it was written after write {}, which is missing before it",
            chunk.previous
        ));
    }
    let end = match found.chunks.last_key_value() {
        Some((_, held)) => held.end,
        None => found.bounds.snapshot.saturating_add(1),
    };
    if chunk.first > end {
        return Err(format!("the entries from {end} on are missing before it"));
    }
    Ok(())
}

/// Adds a chunk, which replaces the entries from its first index on.
fn take(chunk: Chunk, bytes: &[u8], found: &mut Found) -> Option<()> {
    let entries = &mut found.loaded.entries;
    let start = entries.first().map_or(chunk.first, |entry| entry.index);
    let kept = usize::try_from(chunk.first.checked_sub(start)?).ok()?;
    entries.truncate(kept);
    record::decode_entries(chunk.first, chunk.count, bytes, entries)?;
    if let Some(mut before) = found.chunks.last_entry() {
        before.get_mut().end = before.get().end.min(chunk.first);
    }
    let held = Held {
        number: chunk.number,
        end: chunk.end(),
        parts: chunk.parts.count,
    };
    found.chunks.insert(chunk.first, held);
    found.bounds.last = chunk.end() - 1;
    found.bounds.hard = chunk.hard;
    Some(())
}

/// Finds unreferenced parts: of an interrupted write, or of a replaced one.
fn find_leftovers(store: &impl Store, found: &mut Found) -> Result<(), LogError> {
    let mut spoken: BTreeSet<u64> = (found.chunks.values())
        .filter(|held| held.parts > 0)
        .map(|held| held.number)
        .collect();
    spoken.extend(found.meta.snapshot.as_ref().map(|pointer| pointer.number));
    let mut after: Option<Vec<u8>> = None;
    // Ends, because each iteration starts after the last key.
    while let Some(record) = store
        .page(keys::PARTS, after.as_deref(), 1)
        .map_err(fault)?
        .pop()
    {
        let Some((number, _)) = keys::part_of(&record.key) else {
            return Err(record::damaged(&record.key, "its key is not a part's"));
        };
        found.number = found.number.max(number);
        after = Some(match spoken.contains(&number) {
            true => keys::part(number, u32::MAX),
            false => {
                found.stale.insert(record.key.clone());
                record.key
            }
        });
    }
    Ok(())
}

/// The content of these parts.
fn whole(store: &impl Store, number: u64, parts: &Parts) -> Result<Vec<u8>, LogError> {
    let mut content = Vec::new();
    for part in 0..parts.count {
        let key = keys::part(number, part);
        let bytes = store
            .get(&key)
            .map_err(fault)?
            .ok_or_else(|| record::damaged(&key, "it is missing"))?;
        content.extend_from_slice(record::open(&key, RecordType::Part, &bytes)?);
    }
    let crc = crc32c::crc32c(&content);
    if content.len() as u64 != parts.length || crc != parts.crc {
        let reason = format!(
            "all its parts have {} bytes and the checksum {crc:08x}, and {} bytes and {:08x} were written",
            content.len(),
            parts.length,
            parts.crc
        );
        return Err(record::damaged(&keys::part(number, 0), reason));
    }
    Ok(content)
}

/// All keys of a chunk.
pub(super) fn keys_of(first: u64, number: u64, parts: u32) -> impl Iterator<Item = Vec<u8>> {
    let parts = (0..parts).map(move |part| keys::part(number, part));
    std::iter::once(keys::chunk(first)).chain(parts)
}

/// Converts an error of the store.
pub(super) fn fault(error: StoreError) -> LogError {
    match error {
        StoreError::Damaged { key, reason } => LogError::Damaged {
            place: keys::name_of_text(&key),
            reason,
        },
        StoreError::Format { .. } | StoreError::Unreadable { .. } | StoreError::Lost { .. } => {
            LogError::Damaged {
                place: "the store under it".to_owned(),
                reason: error.to_string(),
            }
        }
        other => LogError::Disk {
            reason: other.to_string(),
        },
    }
}
