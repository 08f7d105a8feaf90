//! A log store in memory that loses unsynced data in a crash.

use crate::log::{Identity, Loaded, LogError, LogStore, Snapshot, Write};

/// The synced content, and a write in progress.
#[derive(Default)]
pub struct MemoryLog {
    disk: Loaded,
    cache: Option<Write>,
    pub writes: u64,
}

impl MemoryLog {
    /// Starts a write. A crash before `sync` loses it.
    pub fn buffer(&mut self, write: Write) {
        assert!(self.cache.is_none(), "one write at a time");
        self.cache = Some(write);
    }

    /// The write in progress is synced.
    pub fn sync(&mut self) {
        if let Some(write) = self.cache.take() {
            self.put(&write);
        }
    }

    /// A power failure.
    pub fn crash(&mut self) {
        self.cache = None;
    }

    /// The index of the last synced entry.
    pub fn last(&self) -> u64 {
        let last = self.disk.entries.last();
        last.map_or(self.disk.snapshot.index, |entry| entry.index)
    }

    pub fn disk(&self) -> &Loaded {
        &self.disk
    }

    fn put(&mut self, write: &Write) {
        self.writes += 1;
        if let Some(snapshot) = &write.snapshot {
            self.disk.snapshot = snapshot.clone();
            self.disk.entries.clear();
        }
        if let Some(first) = write.entries.first() {
            self.disk.entries.retain(|entry| entry.index < first.index);
            let last = self.last();
            assert!(
                first.index <= last + 1,
                "a gap between {last} and {}",
                first.index
            );
            self.disk.entries.extend(write.entries.iter().cloned());
        }
        if let Some(hard) = write.hard {
            assert!(
                hard.term >= self.disk.hard.term && hard.commit >= self.disk.hard.commit,
                "a promise is taken back"
            );
            self.disk.hard = hard;
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
        self.put(write);
        Ok(())
    }

    fn compact(&mut self, snapshot: &Snapshot, keep_from: u64) -> Result<(), LogError> {
        if snapshot.index > self.disk.snapshot.index {
            self.disk.snapshot = snapshot.clone();
            self.disk.entries.retain(|entry| entry.index >= keep_from);
        }
        Ok(())
    }

    fn disk_bytes(&self) -> u64 {
        self.disk
            .entries
            .iter()
            .map(|entry| entry.data.len() as u64)
            .sum()
    }
}
