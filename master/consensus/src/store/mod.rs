//! The log on a disk: a [`LogStore`] over a [`Store`] of crate `storage`.
//!
//! Called by the consensus thread only. Keeps the positions of the records in memory, never the
//! content of an entry.
//!
//! - A turn is one record, key `e` and its first index: the entries, and the hard state. So it is
//!   one put, which needs no journal and one sync. Without entries, the record has the key of the
//!   next entry.
//! - Entries that replace others need no deletion: a chunk with a higher number supersedes all
//!   chunks with lower numbers from its first index on. Those are swept later.
//! - The metadata record, key `a`, holds the identity, the hard state, the pointer to the snapshot,
//!   and the lowest valid chunk number. One put of it installs a snapshot, clears the log and
//!   updates the hard state, atomically.
//! - Content too long for one value is split into parts, key `b` and a number of its own. They are
//!   written before the record that refers to them; without it they are leftovers, and swept after
//!   the next opening.
//!
//! Never decides what to write, never reads an entry back while it runs, and never continues after
//! an error.
//!
//! | module | contents |
//! |---|---|
//! | `keys` | the keys of the log's records, and their names in errors |
//! | `memory_log` | only in tests: a log in memory, the reference for this one |
//! | `reading` | which chunks of a stored log are valid, gaps, and leftovers |
//! | `record` | the encoding of the log's records |
//! | `rules` | the valid transitions of a log |

mod keys;
#[cfg(test)]
pub(crate) mod memory_log;
mod reading;
pub mod record;
mod rules;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use storage::sled_store::SledStore;
use storage::{Changes, Store};

use crate::log::{Entry, HardState, Identity, Loaded, LogError, LogStore, Snapshot, Write};
use reading::{Found, Held, fault};
use record::{Chunk, Meta, Parts, Pointer, RecordType};
use rules::{LogBounds, refused};

/// Records removed in one commit.
const SWEEP_BATCH: usize = 512;
/// The number of stale records from which on they are swept without waiting for a compaction.
const STALE_MAX: usize = 1024;

/// A member's log in a store.
#[derive(Debug)]
pub struct StoredLog<S> {
    store: S,
    /// `None` until the log was read.
    state: Option<State>,
}

/// The positions of the log's records.
#[derive(Debug)]
struct State {
    /// The metadata record, as stored.
    meta: Meta,
    bounds: LogBounds,
    /// The highest number ever used.
    number: u64,
    /// The valid chunks, by their first index.
    chunks: BTreeMap<u64, Held>,
    /// Keys of stale records.
    stale: BTreeSet<Vec<u8>>,
    /// Whether leftovers from before the opening still exist.
    leftovers: bool,
}

impl StoredLog<SledStore> {
    /// Opens the log in this directory, which holds nothing else. Creates it if it does not exist.
    pub fn open(dir: impl AsRef<Path>) -> Result<Self, LogError> {
        SledStore::open(dir).map(Self::new).map_err(fault)
    }
}

impl<S: Store> StoredLog<S> {
    /// The log in this store, which holds nothing else.
    pub fn new(store: S) -> Self {
        StoredLog { store, state: None }
    }

    fn read(&mut self) -> Result<Loaded, LogError> {
        self.state = None;
        let found = reading::read(&self.store)?;
        let leftovers = !found.stale.is_empty();
        if leftovers {
            tracing::warn!(
                records = found.stale.len(),
                "removing stale or unfinished records from the log"
            );
        }
        let Found {
            meta,
            bounds,
            number,
            chunks,
            stale,
            loaded,
        } = found;
        self.state = Some(State {
            meta,
            bounds,
            number,
            chunks,
            stale,
            leftovers,
        });
        Ok(loaded)
    }

    /// The store and the state, read first if necessary.
    fn known(&mut self) -> Result<(&mut S, &mut State), LogError> {
        if self.state.is_none() {
            self.read()?;
        }
        match &mut self.state {
            Some(state) => Ok((&mut self.store, state)),
            None => Err(refused("it was never read".to_owned())),
        }
    }
}

impl<S: Store> LogStore for StoredLog<S> {
    fn load(&mut self) -> Result<Loaded, LogError> {
        self.read()
    }

    fn claim(&mut self, identity: Identity) -> Result<(), LogError> {
        let (store, state) = self.known()?;
        match state.meta.identity {
            Some(found) if found == identity => return Ok(()),
            Some(found) => return Err(LogError::NotOwner { found }),
            None if identity.id == 0 => {
                return Err(refused(
                    "a member's raft id is at least 1, and 0 was given".to_owned(),
                ));
            }
            None => {}
        }
        let meta = Meta {
            number: state.next(),
            identity: Some(identity),
            hard: state.bounds.hard,
            ..state.meta.clone()
        };
        let mut changes = Changes::new();
        put_meta(&mut changes, &meta);
        store.commit(changes).map_err(fault)?;
        state.meta = meta;
        Ok(())
    }

    fn begin(&mut self, identity: Identity, write: &Write) -> Result<(), LogError> {
        let (_, state) = self.known()?;
        if write.snapshot.is_some() && state.meta.identity.is_none() {
            state.meta.identity = Some(identity);
            let written = self.write(write);
            if written.is_err()
                && let Ok((_, state)) = self.known()
            {
                state.meta.identity = None;
            }
            return written;
        }
        self.write(write)?;
        self.claim(identity)
    }

    fn write(&mut self, write: &Write) -> Result<(), LogError> {
        let (store, state) = self.known()?;
        let next = rules::after(state.bounds, write)?;
        if write.snapshot.is_none() && write.entries.is_empty() && next == state.bounds {
            return Ok(());
        }
        let mut changes = Changes::new();
        let installed = match &write.snapshot {
            Some(snapshot) => Some(state.install(store, &mut changes, snapshot, next.hard)?),
            None => None,
        };
        let base = if installed.is_some() {
            &BTreeMap::new()
        } else {
            &state.chunks
        };
        let appended = if write.entries.is_empty() && installed.is_some() {
            None
        } else {
            let first = write
                .entries
                .first()
                .map_or(state.bounds.last + 1, |entry| entry.index);
            let previous = base
                .range(..first)
                .next_back()
                .map_or(0, |(_, held)| held.number);
            Some(state.append(
                store,
                &mut changes,
                &write.entries,
                first,
                previous,
                next.hard,
            )?)
        };
        store.commit(changes).map_err(fault)?;
        state.bounds = next;
        if let Some(meta) = installed {
            state.replace_meta(meta);
        }
        if let Some(chunk) = appended {
            state.replace_from(&chunk);
        }
        state.sweep_if_due(store)
    }

    fn compact(&mut self, snapshot: &Snapshot, keep_from: u64) -> Result<(), LogError> {
        let (store, state) = self.known()?;
        let next = rules::compacted(state.bounds, snapshot)?;
        let keep_from = keep_from.min(snapshot.index.saturating_add(1));
        let pointer = match &state.meta.snapshot {
            Some(pointer) if pointer.index == snapshot.index => pointer.clone(),
            _ => state.put_snapshot(store, snapshot)?,
        };
        let number = state.next();
        let oldest = state.chunks.values().find(|held| held.end > keep_from);
        let meta = Meta {
            number,
            identity: state.meta.identity,
            hard: next.hard,
            floor: oldest.map_or(number, |held| held.number),
            snapshot: Some(pointer),
        };
        let mut changes = Changes::new();
        put_meta(&mut changes, &meta);
        store.commit(changes).map_err(fault)?;
        state.bounds = next;
        state.replace_meta(meta);
        state.sweep(store)
    }

    fn disk_bytes(&self) -> u64 {
        self.store.disk_bytes()
    }
}

impl State {
    /// A number that was never used.
    fn next(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    /// Writes the parts of this snapshot, and adds the metadata record that points at it and clears
    /// the log.
    fn install(
        &mut self,
        store: &mut impl Store,
        changes: &mut Changes,
        snapshot: &Snapshot,
        hard: HardState,
    ) -> Result<Meta, LogError> {
        let pointer = self.put_snapshot(store, snapshot)?;
        let number = self.next();
        let meta = Meta {
            number,
            identity: self.meta.identity,
            hard,
            floor: number,
            snapshot: Some(pointer),
        };
        put_meta(changes, &meta);
        Ok(meta)
    }

    fn put_snapshot(
        &mut self,
        store: &mut impl Store,
        snapshot: &Snapshot,
    ) -> Result<Pointer, LogError> {
        let number = self.next();
        Ok(Pointer {
            number,
            index: snapshot.index,
            term: snapshot.term,
            parts: put_parts(store, number, &snapshot.data)?,
            members: snapshot.members.clone(),
        })
    }

    /// Adds the record of this turn.
    fn append(
        &mut self,
        store: &mut impl Store,
        changes: &mut Changes,
        entries: &[Entry],
        first: u64,
        previous: u64,
        hard: HardState,
    ) -> Result<Chunk, LogError> {
        let number = self.next();
        let count = u32::try_from(entries.len())
            .map_err(|_| refused(format!("{} entries are too many at once", entries.len())))?;
        let mut inline = record::encode_entries(entries)?;
        let mut parts = Parts::default();
        if !record::fits(inline.len()) {
            parts = put_parts(store, number, &inline)?;
            inline.clear();
        }
        let chunk = Chunk {
            number,
            previous,
            hard,
            first,
            count,
            parts,
        };
        let key = keys::chunk(first);
        let value = record::seal(&key, RecordType::Chunk, &chunk.encode(&inline));
        changes.put(key, value);
        Ok(chunk)
    }

    /// The metadata record was replaced: records that it does not refer to are stale.
    fn replace_meta(&mut self, meta: Meta) {
        if let Some(old) = &self.meta.snapshot
            && meta.snapshot.as_ref().map(|pointer| pointer.number) != Some(old.number)
        {
            let parts = (0..old.parts.count).map(|part| keys::part(old.number, part));
            self.stale.extend(parts);
        }
        let floor = meta.floor;
        self.meta = meta;
        let (chunks, stale) = (&mut self.chunks, &mut self.stale);
        chunks.retain(|&first, held| {
            let counts = held.number >= floor;
            if !counts {
                stale.extend(reading::keys_of(first, held.number, held.parts));
            }
            counts
        });
    }

    /// This chunk was added: chunks from its first index on are stale, and the one before it ends
    /// there.
    fn replace_from(&mut self, chunk: &Chunk) {
        for (first, held) in self.chunks.split_off(&chunk.first) {
            self.stale
                .extend(reading::keys_of(first, held.number, held.parts));
        }
        self.stale.remove(&keys::chunk(chunk.first));
        if let Some(mut before) = self.chunks.last_entry() {
            before.get_mut().end = before.get().end.min(chunk.first);
        }
        let held = Held {
            number: chunk.number,
            end: chunk.end(),
            parts: chunk.parts.count,
        };
        self.chunks.insert(chunk.first, held);
    }

    fn sweep_if_due(&mut self, store: &mut impl Store) -> Result<(), LogError> {
        match self.leftovers || self.stale.len() > STALE_MAX {
            true => self.sweep(store),
            false => Ok(()),
        }
    }

    /// Removes stale records. After a crash the next sweep removes the rest.
    fn sweep(&mut self, store: &mut impl Store) -> Result<(), LogError> {
        self.leftovers = false;
        // Ends, because each iteration removes some.
        while !self.stale.is_empty() {
            let mut changes = Changes::new();
            for _ in 0..SWEEP_BATCH {
                let Some(key) = self.stale.pop_first() else {
                    break;
                };
                changes.remove(key);
            }
            store.commit(changes).map_err(fault)?;
        }
        Ok(())
    }
}

fn put_meta(changes: &mut Changes, meta: &Meta) {
    changes.put(
        keys::META,
        record::seal(keys::META, RecordType::Meta, &meta.encode()),
    );
}

/// Prepares this content in parts. They become valid when a record that refers to them is
/// committed.
fn put_parts(store: &mut impl Store, number: u64, content: &[u8]) -> Result<Parts, LogError> {
    let pieces = content.chunks(record::PART_BYTES_MAX);
    let count = u32::try_from(pieces.len())
        .map_err(|_| refused(format!("{} bytes are too many at once", content.len())))?;
    for (part, piece) in (0..count).zip(pieces) {
        let key = keys::part(number, part);
        let value = record::seal(&key, RecordType::Part, piece);
        store.prepare(&key, &value).map_err(fault)?;
    }
    Ok(Parts {
        count,
        length: content.len() as u64,
        crc: crc32c::crc32c(content),
    })
}

#[cfg(test)]
mod tests;
