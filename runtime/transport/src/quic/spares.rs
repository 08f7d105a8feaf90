//! Spares: memory of bulks that were handled, for those that come next.
//!
//! Fresh memory for a megabyte costs about as much as receiving a tenth of it, and a peer that sends one large message seldom
//! sends only one. Hears what a session has handed to its link, and remembers a few of them for the whole endpoint, never for a
//! connection. Never takes memory that somebody still reads: the link may keep a bulk for as long as it likes.

use std::sync::{Mutex, PoisonError};

use bytes::{Bytes, BytesMut};

/// The largest that is kept, in bytes.
pub(super) const SPARE_MAX: usize = 2 << 20;
/// How many are kept.
const SPARES_MAX: usize = 2;

#[derive(Default)]
pub(super) struct Spares(Mutex<Vec<Bytes>>);

impl Spares {
    /// Empty memory for about so many bytes.
    pub(super) fn take(&self, length: usize) -> BytesMut {
        let mut spares = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let unread = spares.iter().position(Bytes::is_unique);
        let spare = unread.and_then(|at| spares.swap_remove(at).try_into_mut().ok());
        drop(spares);
        let mut memory = spare.unwrap_or_default();
        memory.clear();
        memory.reserve(length.min(SPARE_MAX));
        memory
    }

    /// Keeps this for later, unless it is very large or enough is kept.
    pub(super) fn give(&self, spent: Bytes) {
        if spent.len() > SPARE_MAX {
            return;
        }
        let mut spares = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if spares.len() < SPARES_MAX {
            spares.push(spent);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(memory: &mut BytesMut, length: usize) -> Bytes {
        memory.resize(length, 7);
        std::mem::take(memory).freeze()
    }

    #[test]
    fn memory_is_written_over_once_nobody_reads_it() {
        let spares = Spares::default();
        let read = bulk(&mut spares.take(100_000), 100_000);
        let place = read.as_ptr();
        spares.give(read.clone());
        assert_ne!(spares.take(100_000).as_ptr(), place, "still read");
        drop(read);
        let memory = spares.take(100_000);
        assert_eq!((memory.as_ptr(), memory.len()), (place, 0));
    }

    #[test]
    fn few_are_kept_and_none_that_is_very_large() {
        let spares = Spares::default();
        (0..=SPARES_MAX).for_each(|_| spares.give(Bytes::from(vec![0; 1000])));
        spares.give(Bytes::from(vec![0; SPARE_MAX + 1]));
        assert_eq!(spares.0.lock().unwrap().len(), SPARES_MAX);
    }
}
