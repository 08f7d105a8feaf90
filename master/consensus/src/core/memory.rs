//! The log in memory, as the raft crate reads it, from the last compaction on. An entry is here
//! before it is synced.
//!
//! Rejects loaded data that is inconsistent, on which the raft crate would panic.

use std::cell::Cell;
use std::collections::VecDeque;

use raft::eraftpb::{Entry as RaftEntry, Snapshot as RaftSnapshot};
use raft::{Error, GetEntriesContext, RaftState, Storage, StorageError};

use super::convert::{entry_to_raft, hard_to_raft, members_to_raft, raft_entry_size};
use crate::log::{HardState, Loaded, LogError, Members, Snapshot};
use crate::wire::{NUMBER_MAX, check_members};

/// The log, and the newest snapshot with its content.
pub(crate) struct Memory {
    hard: HardState,
    /// Index and term of the entry before the first one here.
    before: (u64, u64),
    entries: VecDeque<RaftEntry>,
    bytes: u64,
    snapshot: Snapshot,
    /// Set when raft needed a newer snapshot for a peer.
    wanted: Cell<bool>,
}

fn damaged(place: impl Into<String>, reason: impl Into<String>) -> LogError {
    LogError::Damaged {
        place: place.into(),
        reason: reason.into(),
    }
}

impl Memory {
    /// Builds the log from the loaded data.
    pub fn new(loaded: Loaded) -> Result<Self, LogError> {
        let Loaded {
            mut hard,
            snapshot,
            entries,
            ..
        } = loaded;
        if snapshot.index > 0 {
            check_members(&snapshot.members)
                .map_err(|error| damaged("the snapshot", error.to_string()))?;
        }
        let mut before = (snapshot.index, snapshot.term);
        let mut found: VecDeque<RaftEntry> = entries.into_iter().map(entry_to_raft).collect();
        match found.front() {
            // The term before entry 1 is known.
            Some(first) if first.index == 1 => before = (0, 0),
            Some(first) if first.index == snapshot.index + 1 => {}
            Some(first) if first.index <= snapshot.index => {
                before = (first.index, first.term);
                found.pop_front();
            }
            Some(first) => {
                let reason = format!(
                    "there is nothing between the snapshot at {} and it",
                    snapshot.index
                );
                return Err(damaged(format!("entry {}", first.index), reason));
            }
            None => {}
        }
        let (mut index, mut term) = before;
        for entry in &found {
            if entry.index != index + 1
                || entry.term < term
                || entry.term == 0
                || entry.index > NUMBER_MAX
            {
                let place = format!("entry {} of term {}", entry.index, entry.term);
                return Err(damaged(
                    place,
                    format!("it follows entry {index} of term {term}"),
                ));
            }
            if entry.index == snapshot.index && entry.term != snapshot.term {
                let reason = format!(
                    "its term is {}, the snapshot's {}",
                    entry.term, snapshot.term
                );
                return Err(damaged(format!("entry {index}"), reason));
            }
            (index, term) = (entry.index, entry.term);
        }
        if index < snapshot.index {
            // The stored entries end before the snapshot, which supersedes them.
            found.clear();
            (before, index, term) = (
                (snapshot.index, snapshot.term),
                snapshot.index,
                snapshot.term,
            );
        }
        if hard.term > NUMBER_MAX {
            return Err(damaged(
                "the hard state",
                format!("the term is {}", hard.term),
            ));
        }
        // A commit index is only written along with other data, so it may lag; it is never ahead of
        // the log.
        hard.commit = hard.commit.max(snapshot.index);
        if hard.commit > index {
            let reason = format!(
                "it says that {} is committed, and the log ends at {index}",
                hard.commit
            );
            return Err(damaged("the hard state", reason));
        }
        if hard.term < term {
            let reason = format!("its term is {}, the last entry's {term}", hard.term);
            return Err(damaged("the hard state", reason));
        }
        Ok(Self {
            hard,
            before,
            bytes: found.iter().map(raft_entry_size).sum(),
            entries: found,
            snapshot,
            wanted: Cell::new(false),
        })
    }

    pub fn first(&self) -> u64 {
        self.before.0 + 1
    }

    pub fn last(&self) -> u64 {
        self.before.0 + self.entries.len() as u64
    }

    /// The bytes of the entries here.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn latest(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Whether a peer waits for a newer snapshot. Resets the flag.
    pub fn take_wanted(&self) -> bool {
        self.wanted.take()
    }

    fn term_at(&self, index: u64) -> Option<u64> {
        match index.checked_sub(self.before.0)? {
            0 => Some(self.before.1),
            nth => Some(self.entries.get(nth as usize - 1)?.term),
        }
    }

    /// Appends entries without gaps. They replace all from the first one's index on.
    pub fn append(&mut self, entries: &[RaftEntry]) {
        let Some(first) = entries.first() else {
            return;
        };
        let keep = first.index.saturating_sub(self.first()) as usize;
        for dropped in self.entries.iter().skip(keep) {
            self.bytes -= raft_entry_size(dropped);
        }
        self.entries.truncate(keep);
        self.bytes += entries.iter().map(raft_entry_size).sum::<u64>();
        self.entries.extend(entries.iter().cloned());
    }

    /// Replaces the whole log.
    pub fn restore(&mut self, snapshot: Snapshot) {
        self.before = (snapshot.index, snapshot.term);
        self.entries.clear();
        self.bytes = 0;
        self.snapshot = snapshot;
    }

    /// Stores this snapshot, if it is newer and the log reaches it, and drops the entries before
    /// `keep_from`.
    pub fn compact(&mut self, snapshot: Snapshot, keep_from: u64) {
        if snapshot.index <= self.snapshot.index
            || self.term_at(snapshot.index) != Some(snapshot.term)
        {
            return;
        }
        let keep_from = keep_from.min(snapshot.index + 1);
        while self.first() < keep_from {
            let Some(entry) = self.entries.pop_front() else {
                break;
            };
            self.bytes -= raft_entry_size(&entry);
            self.before = (entry.index, entry.term);
        }
        self.snapshot = snapshot;
    }

    fn is_member(members: &Members, id: u64) -> bool {
        [&members.voters, &members.learners, &members.voters_outgoing]
            .iter()
            .any(|ids| ids.contains(&id))
    }
}

impl Storage for Memory {
    fn initial_state(&self) -> raft::Result<RaftState> {
        let members = members_to_raft(&self.snapshot.members);
        Ok(RaftState::new(hard_to_raft(&self.hard), members))
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        _: GetEntriesContext,
    ) -> raft::Result<Vec<RaftEntry>> {
        if low < self.first() {
            return Err(Error::Store(StorageError::Compacted));
        }
        if high > self.last() + 1 {
            return Err(Error::Store(StorageError::Unavailable));
        }
        let max = max_size.into().unwrap_or(u64::MAX);
        let from = (low - self.first()) as usize;
        let mut bytes = 0;
        let mut found = Vec::new();
        for entry in self
            .entries
            .range(from..from + high.saturating_sub(low) as usize)
        {
            bytes += raft_entry_size(entry);
            if bytes > max && !found.is_empty() {
                break;
            }
            found.push(entry.clone());
        }
        Ok(found)
    }

    fn term(&self, index: u64) -> raft::Result<u64> {
        match self.term_at(index) {
            Some(term) => Ok(term),
            None if index < self.before.0 => Err(Error::Store(StorageError::Compacted)),
            None => Err(Error::Store(StorageError::Unavailable)),
        }
    }

    fn first_index(&self) -> raft::Result<u64> {
        Ok(self.first())
    }

    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.last())
    }

    /// Only the metadata: the content is sent separately. A snapshot in which the peer is no member
    /// is useless to it.
    fn snapshot(&self, request_index: u64, to: u64) -> raft::Result<RaftSnapshot> {
        let Snapshot {
            index,
            term,
            members,
            ..
        } = &self.snapshot;
        if *index == 0
            || *index < request_index
            || !Self::is_member(members, to)
            || *index < self.before.0
        {
            self.wanted.set(true);
            return Err(Error::Store(StorageError::SnapshotTemporarilyUnavailable));
        }
        let mut snapshot = RaftSnapshot::default();
        let metadata = snapshot.mut_metadata();
        metadata.index = *index;
        metadata.term = *term;
        metadata.set_conf_state(members_to_raft(members));
        Ok(snapshot)
    }
}
