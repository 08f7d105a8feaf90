//! The log on a disk: a [`LogStore`] over a [`Store`] of crate `storage`.
//!
//! Called by the one thread that turns the consensus. Remembers where each turn's record stands, never an entry's content.
//!
//! * A turn is one record, `e` and its first index: the entries, and the promises of that moment. So it is one put of the
//!   store, which needs no journal and one sync. Without entries, the record stands where the next entry will.
//! * Entries that replace others need no more: a chunk with a higher number counts from its first index on, and those behind
//!   it with lower numbers count no more. They are swept later.
//! * The member's own record, `a`, holds its identity, the promises, the pointer to the snapshot, and the number from which
//!   on chunks count. One put of it installs a snapshot, clears the log and makes the promises, all or none.
//! * What is too long for one value stands in parts, `b`, under a number of its own. They are written first; until the record
//!   that speaks of them is there they are left over, and are swept after the next opening.
//!
//! It never decides what to write, never reads an entry back while it runs, and never goes on after an error.

#[doc(hidden)]
pub mod forgetful;
mod form;
pub(crate) mod fuzzing;
mod keys;
mod reading;
mod rules;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use storage::sled_store::SledStore;
use storage::{Changes, Store};

use crate::log::{Entry, HardState, Identity, Loaded, LogError, LogStore, Snapshot, Write};
use form::{Chunk, Form, Meta, Parts, Pointer};
use reading::{Found, Held, fault};
use rules::{Standing, refused};

/// Records removed in one commit.
const SWEEP: usize = 512;
/// More than so many records that count no more are swept without waiting for a compaction.
const STALE_MAX: usize = 1024;

/// A member's log in a store.
#[derive(Debug)]
pub struct StoredLog<S> {
    store: S,
    /// `None` until it was read.
    state: Option<State>,
}

/// What is remembered of the log.
#[derive(Debug)]
struct State {
    /// The member's own record, as it stands in the store.
    meta: Meta,
    standing: Standing,
    /// The highest number that was ever used.
    number: u64,
    /// The chunks that count, by their first index.
    chunks: BTreeMap<u64, Held>,
    /// Keys of records that count no more.
    stale: BTreeSet<Vec<u8>>,
    /// What was left over from before the opening is still there.
    leftovers: bool,
}

impl StoredLog<SledStore> {
    /// The log in this directory, which is the log's alone; an empty one is made if there is none.
    pub fn open(dir: impl AsRef<Path>) -> Result<Self, LogError> {
        SledStore::open(dir).map(Self::over).map_err(fault)
    }
}

impl<S: Store> StoredLog<S> {
    /// The log in this store, which is the log's alone.
    pub fn over(store: S) -> Self {
        StoredLog { store, state: None }
    }

    fn read(&mut self) -> Result<Loaded, LogError> {
        self.state = None;
        let found = reading::read(&self.store)?;
        let leftovers = !found.stale.is_empty();
        if leftovers {
            tracing::warn!(
                records = found.stale.len(),
                "cutting from the log what was never finished or counts no more"
            );
        }
        let Found {
            meta,
            standing,
            number,
            chunks,
            stale,
            loaded,
        } = found;
        self.state = Some(State {
            meta,
            standing,
            number,
            chunks,
            stale,
            leftovers,
        });
        Ok(loaded)
    }

    /// What is known of the log, read from the store if it was not yet.
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
            Some(found) => return Err(LogError::Stranger { found }),
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
            hard: state.standing.hard,
            ..state.meta.clone()
        };
        let mut changes = Changes::new();
        put_meta(&mut changes, &meta);
        store.commit(changes).map_err(fault)?;
        state.meta = meta;
        Ok(())
    }

    fn write(&mut self, write: &Write) -> Result<(), LogError> {
        let (store, state) = self.known()?;
        let next = rules::after(state.standing, write)?;
        if write.snapshot.is_none() && write.entries.is_empty() && next == state.standing {
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
                .map_or(state.standing.last + 1, |entry| entry.index);
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
        state.standing = next;
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
        let next = rules::compacted(state.standing, snapshot)?;
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
        state.standing = next;
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

    /// Prepares the content of this snapshot, and adds the member's record that points at it and clears the log.
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
        let mut inline = form::encode_entries(entries)?;
        let mut parts = Parts::default();
        if !form::fits(inline.len()) {
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
        let value = form::seal(&key, Form::Chunk, &chunk.encode(&inline));
        changes.put(key, value);
        Ok(chunk)
    }

    /// The member's record was put in the place of the former one: what it does not speak of counts no more.
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

    /// This chunk was put: those from its first index on count no more, and the one before it ends there.
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

    /// Removes what counts no more. A crash in its middle leaves the rest for the next one.
    fn sweep(&mut self, store: &mut impl Store) -> Result<(), LogError> {
        self.leftovers = false;
        // Ends: each turn takes some away.
        while !self.stale.is_empty() {
            let mut changes = Changes::new();
            for _ in 0..SWEEP {
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
        form::seal(keys::META, Form::Meta, &meta.encode()),
    );
}

/// Prepares this content in parts; they count once a record that speaks of them is committed.
fn put_parts(store: &mut impl Store, number: u64, content: &[u8]) -> Result<Parts, LogError> {
    let pieces = content.chunks(form::PART_BYTES_MAX);
    let count = u32::try_from(pieces.len())
        .map_err(|_| refused(format!("{} bytes are too many at once", content.len())))?;
    for (part, piece) in (0..count).zip(pieces) {
        let key = keys::part(number, part);
        let value = form::seal(&key, Form::Part, piece);
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
