//! Unsynced output of raft: several of its readies become one write.
//!
//! One write is in progress at a time. Later readies gather here and form the next one. A crash in
//! between is equivalent to a crash before all of them, because no output that depends on them was
//! sent. Never sends or applies.

use raft::eraftpb::Entry as RaftEntry;

use super::convert;
use crate::log::{HardState, Snapshot, Write};
use crate::wire::Packet;

/// A write that waits or is in progress, and the output that waits for it.
#[derive(Default)]
pub(crate) struct Unsynced {
    /// The number of the last ready that it contains.
    pub ready: u64,
    /// Replaces the log.
    pub snapshot: Option<Snapshot>,
    entries: Vec<RaftEntry>,
    bytes: usize,
    /// The term, vote and commit index to write.
    pub hard: HardState,
    /// Packets to send after the sync.
    pub packets: Vec<(u64, Packet)>,
    /// Committed entries to apply only after the commit index is synced: a member that forgot a
    /// change of members could count votes by the old ones.
    pub deferred: Vec<RaftEntry>,
    /// Whether it changes the log. Remains set after the entries were handed out.
    pub changes_log: bool,
}

impl Unsynced {
    /// Adds a ready. Its entries replace those from the first one's index on; its snapshot replaces
    /// everything.
    pub fn add(&mut self, ready: u64, snapshot: Option<Snapshot>, entries: Vec<RaftEntry>) {
        self.ready = ready;
        if snapshot.is_some() {
            self.entries.clear();
            self.bytes = 0;
            // The snapshot contains them.
            self.deferred.clear();
            self.snapshot = snapshot;
            self.changes_log = true;
        }
        let Some(first) = entries.first() else {
            return;
        };
        let from = first.index;
        while self.entries.last().is_some_and(|last| last.index >= from) {
            self.bytes -= self.entries.pop().as_ref().map_or(0, size);
        }
        self.bytes += entries.iter().map(size).sum::<usize>();
        self.entries.extend(entries);
        self.changes_log = true;
    }

    /// The number and bytes of the waiting entries.
    pub fn waiting(&self) -> (usize, usize) {
        (self.entries.len(), self.bytes)
    }

    /// The write, with the hard state if it has changed.
    pub fn write(&mut self, hard: HardState, hard_changed: bool) -> Write {
        self.hard = hard;
        self.bytes = 0;
        let entries = std::mem::take(&mut self.entries);
        Write {
            snapshot: self.snapshot.clone(),
            entries: entries.iter().map(convert::entry_from_raft).collect(),
            hard: hard_changed.then_some(hard),
        }
    }
}

fn size(entry: &RaftEntry) -> usize {
    entry.data.len() + entry.context.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(term: u64, indexes: std::ops::RangeInclusive<u64>) -> Vec<RaftEntry> {
        let entry = |index| RaftEntry {
            term,
            index,
            data: vec![1; 10].into(),
            ..RaftEntry::default()
        };
        indexes.map(entry).collect()
    }

    fn places(write: &Write) -> Vec<(u64, u64)> {
        let place = |entry: &crate::log::Entry| (entry.index, entry.term);
        write.entries.iter().map(place).collect()
    }

    #[test]
    fn later_entries_replace_gathered_ones() {
        let mut unsynced = Unsynced::default();
        unsynced.add(1, None, entries(1, 5..=8));
        unsynced.add(2, None, Vec::new());
        unsynced.add(3, None, entries(2, 7..=7));
        assert_eq!((unsynced.ready, unsynced.waiting()), (3, (3, 30)));
        let write = unsynced.write(HardState::default(), false);
        assert_eq!(places(&write), [(5, 1), (6, 1), (7, 2)]);
        assert_eq!((unsynced.waiting(), unsynced.changes_log), ((0, 0), true));
        // They begin before all that was gathered.
        unsynced.add(4, None, entries(2, 8..=9));
        unsynced.add(5, None, entries(3, 6..=6));
        let write = unsynced.write(HardState::default(), true);
        assert_eq!(places(&write), [(6, 3)]);
        assert_eq!(write.hard, Some(HardState::default()));
    }

    #[test]
    fn snapshot_replaces_gathered_entries() {
        let mut unsynced = Unsynced::default();
        unsynced.add(1, None, entries(1, 5..=8));
        unsynced.deferred = entries(1, 4..=4);
        let snapshot = Snapshot {
            index: 20,
            ..Snapshot::default()
        };
        unsynced.add(2, Some(snapshot.clone()), Vec::new());
        unsynced.add(3, None, entries(2, 21..=21));
        assert!(unsynced.deferred.is_empty());
        let write = unsynced.write(HardState::default(), false);
        assert_eq!(places(&write), [(21, 2)]);
        assert_eq!(write.snapshot, Some(snapshot));
    }
}
