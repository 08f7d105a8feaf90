//! First events, and changes, that somebody has still to read: how much memory they hold.
//!
//! Plain data. Holds none of them itself, and what is kept for who comes next does not count: only what was given to be read, until all
//! who were given it have read it or are gone.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use bytes::Bytes;
use http::api::Batch;

/// Changes, which are made once for all who see the same. Clones count together.
#[derive(Clone, Debug, Default)]
pub(super) struct Changes(Arc<AtomicUsize>);

/// A piece of them, which counts until the last who is to read it has.
struct Noted {
    piece: Bytes,
    of: Changes,
}

impl AsRef<[u8]> for Noted {
    fn as_ref(&self) -> &[u8] {
        &self.piece
    }
}

impl Drop for Noted {
    fn drop(&mut self) {
        self.of.0.fetch_sub(self.piece.len(), Ordering::Relaxed);
    }
}

impl Changes {
    /// These, the same memory, for as many as see them to read.
    pub fn note(&self, batch: &Batch) -> Batch {
        let note = |piece: &Bytes| {
            self.0.fetch_add(piece.len(), Ordering::Relaxed);
            let (piece, of) = (piece.clone(), self.clone());
            Bytes::from_owner(Noted { piece, of })
        };
        let pieces: Vec<Bytes> = batch.pieces().iter().map(note).collect();
        pieces.into()
    }

    /// How many bytes, each once however many are to read it.
    pub fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// All first events.
#[derive(Default)]
pub(super) struct Unread(Vec<Weak<Bytes>>);

/// A record in the hands of who is to read it.
struct Given(Arc<Bytes>);

impl AsRef<[u8]> for Given {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Unread {
    /// This record, the same memory, for somebody to read.
    pub fn give(&mut self, record: &Bytes) -> Bytes {
        self.0.retain(|one| one.strong_count() > 0);
        let mut given = self.0.iter().filter_map(Weak::upgrade);
        // What is still held lies where nothing else does.
        let given = given.find(|one| one.as_ptr() == record.as_ptr());
        let given = given.unwrap_or_else(|| {
            let given = Arc::new(record.clone());
            self.0.push(Arc::downgrade(&given));
            given
        });
        Bytes::from_owner(Given(given))
    }

    /// How many bytes, each once however many are to read it.
    pub fn bytes(&self) -> usize {
        let held = self.0.iter().filter_map(Weak::upgrade);
        held.map(|record| record.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_several_are_to_read_counts_once_until_the_last_of_them_has() {
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
    fn changes_count_once_until_the_last_who_is_to_read_them_has() {
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
