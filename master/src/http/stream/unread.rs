//! First events that somebody has still to read: how much memory they hold.
//!
//! Plain data. Holds none of them itself, and what is kept for who comes next does not count: only what was given to be read, until all
//! who were given it have read it or are gone.

use std::sync::{Arc, Weak};

use bytes::Bytes;

/// All of them.
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
}
