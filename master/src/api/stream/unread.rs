//! Memory held by unread first events and unread changes.
//!
//! Plain data. Counts only bytes that were given to readers, until all of them have read the bytes
//! or are gone; cached events are not counted.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use bytes::Bytes;
use http::api::Batch;

/// Changes, shared by all readers with the same visibility. Clones share the count.
#[derive(Clone, Debug, Default)]
pub(super) struct Changes(Arc<AtomicUsize>);

/// A piece, counted until its last reader has read it.
struct UnreadPiece {
    piece: Bytes,
    of: Changes,
}

impl AsRef<[u8]> for UnreadPiece {
    fn as_ref(&self) -> &[u8] {
        &self.piece
    }
}

impl Drop for UnreadPiece {
    fn drop(&mut self) {
        self.of.0.fetch_sub(self.piece.len(), Ordering::Relaxed);
    }
}

impl Changes {
    /// Counts a batch; returns the same memory for its readers.
    pub fn note(&self, batch: &Batch) -> Batch {
        let note = |piece: &Bytes| {
            self.0.fetch_add(piece.len(), Ordering::Relaxed);
            let (piece, of) = (piece.clone(), self.clone());
            Bytes::from_owner(UnreadPiece { piece, of })
        };
        let pieces: Vec<Bytes> = batch.pieces().iter().map(note).collect();
        pieces.into()
    }

    /// The bytes, each counted once for all its readers.
    pub fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// All first events.
#[derive(Default)]
pub(super) struct Unread(Vec<Weak<Bytes>>);

/// A record held by a reader.
struct UnreadRecord(Arc<Bytes>);

impl AsRef<[u8]> for UnreadRecord {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Unread {
    /// Counts a record; returns the same memory for a reader.
    pub fn give(&mut self, record: &Bytes) -> Bytes {
        self.0.retain(|one| one.strong_count() > 0);
        let mut given = self.0.iter().filter_map(Weak::upgrade);
        // A held record has a unique address.
        let given = given.find(|one| one.as_ptr() == record.as_ptr());
        let given = given.unwrap_or_else(|| {
            let given = Arc::new(record.clone());
            self.0.push(Arc::downgrade(&given));
            given
        });
        Bytes::from_owner(UnreadRecord(given))
    }

    /// The bytes, each counted once for all its readers.
    pub fn bytes(&self) -> usize {
        let held = self.0.iter().filter_map(Weak::upgrade);
        held.map(|record| record.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_record_counts_once_until_its_last_reader() {
        let (mut unread, kept) = (Unread::default(), Bytes::from(vec![7; 100]));
        let other = Bytes::from(vec![8; 10]);
        let given = [unread.give(&kept), unread.give(&kept), unread.give(&other)];
        assert_eq!((unread.bytes(), given[0].as_ptr()), (110, kept.as_ptr()));
        let [one, another, small] = given;
        drop((one, small));
        assert_eq!(unread.bytes(), 100);
        drop(another);
        assert_eq!((unread.bytes(), kept.is_unique()), (0, true));
    }

    #[test]
    fn changes_count_once_until_their_last_reader() {
        let changes = Changes::default();
        let piece = Bytes::from(vec![7; 100]);
        let noted = changes.note(&vec![piece.clone(), piece.clone()].into());
        let (mine, yours) = (noted.clone(), noted);
        assert_eq!(changes.bytes(), 200);
        let read = mine.pieces()[0].clone();
        assert_eq!(read.as_ptr(), piece.as_ptr(), "the same memory");
        drop((mine, yours));
        assert_eq!(changes.bytes(), 100, "a connection holds it");
        drop(read);
        assert_eq!(changes.bytes(), 0);
    }
}
