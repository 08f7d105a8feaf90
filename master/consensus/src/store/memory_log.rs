//! A log in memory for tests: the logs of a group in one thread, and the reference for the log on a
//! disk. Obeys the same rules, without chunks, keys or encodings.

use super::rules::{self, LogBounds};
use crate::log::{Identity, Loaded, LogError, LogStore, Snapshot, Write};

/// The content, which survives crashes.
#[derive(Default)]
pub(crate) struct MemoryLog {
    pub(crate) disk: Loaded,
    pub(crate) writes: u64,
}

impl MemoryLog {
    /// The index of the last entry.
    pub(crate) fn last(&self) -> u64 {
        let last = self.disk.entries.last();
        last.map_or(self.disk.snapshot.index, |entry| entry.index)
    }

    fn bounds(&self) -> LogBounds {
        LogBounds {
            snapshot: self.disk.snapshot.index,
            last: self.last(),
            hard: self.disk.hard,
        }
    }
}

impl LogStore for MemoryLog {
    fn load(&mut self) -> Result<Loaded, LogError> {
        Ok(self.disk.clone())
    }

    fn claim(&mut self, identity: Identity) -> Result<(), LogError> {
        self.disk.identity = Some(identity);
        Ok(())
    }

    fn write(&mut self, write: &Write) -> Result<(), LogError> {
        self.disk.hard = rules::after(self.bounds(), write)?.hard;
        self.writes += 1;
        if let Some(snapshot) = &write.snapshot {
            self.disk.snapshot = snapshot.clone();
            self.disk.entries.clear();
        }
        if let Some(first) = write.entries.first() {
            self.disk.entries.retain(|entry| entry.index < first.index);
            self.disk.entries.extend(write.entries.iter().cloned());
        }
        Ok(())
    }

    fn compact(&mut self, snapshot: &Snapshot, keep_from: u64) -> Result<(), LogError> {
        self.disk.hard = rules::compacted(self.bounds(), snapshot)?.hard;
        let keep_from = keep_from.min(snapshot.index.saturating_add(1));
        if snapshot.index != self.disk.snapshot.index {
            self.disk.snapshot = snapshot.clone();
        }
        self.disk.entries.retain(|entry| entry.index >= keep_from);
        Ok(())
    }

    fn disk_bytes(&self) -> u64 {
        let entries = self.disk.entries.iter();
        entries.map(|entry| entry.data.len() as u64).sum()
    }
}
