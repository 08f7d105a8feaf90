//! Pieces: what was written of values that have not changed since is written again as it was.
//!
//! A large answer that is asked for again and again is nearly the same each time. [`Kept`] has its bytes as they were written last, and where
//! in them each value stands that has an [`Identity`]; a [`Keeper`] goes along while it is written anew, and copies what it finds. So an
//! answer costs a copy and what has changed. Whoever keeps them holds on to the values too, or another one could come to have the identity
//! of one that is gone.
//!
//! Long lists of values are kept [in blocks](Keeper::list), which are not even copied: they are the same part of both answers.
//!
//! What is not in such blocks is written where an older answer was that nobody reads any more. A page of some MiB that is made many times a second would else cost
//! thousands of page faults each time, and whichever thread then asks the allocator for memory gives all of it back to the system: that
//! may be a master's, which stands still for a quarter of a second meanwhile.

mod lists;

use std::sync::Arc;

use bytes::Bytes;

use self::lists::{List, Writer};
use crate::parts::Parts;

/// What a value is known by: where all that its bytes are made of lies in memory. Values of one answer with the same identity have the same bytes.
pub type Identity = [usize; 3];

/// So many older answers may be read while the next ones are written: the room of more is given back.
const OLDER_MAX: usize = 4;
/// Room that is so many times larger than an answer is given back, too.
const LARGER_MAX: usize = 2;
/// How far ahead a piece is looked for before all are.
const AHEAD: usize = 16;

/// An answer, and where its pieces are.
#[derive(Clone, Debug, Default)]
pub struct Kept {
    /// All of it but what is in its lists.
    text: Bytes,
    /// As they stand in it.
    pieces: Vec<Piece>,
    lists: Vec<Arc<List>>,
    /// Those before it, oldest first, for their room alone: they may still be read.
    older: Vec<Bytes>,
    /// Room of pieces that are known no more.
    spare: Vec<Piece>,
}

#[derive(Clone, Copy, Debug)]
struct Piece {
    identity: Identity,
    from: usize,
    to: usize,
}

/// Goes along while an answer is written.
#[derive(Debug, Default)]
pub struct Keeper {
    old: Kept,
    of_old: Search,
    pieces: Vec<Piece>,
    lists: Writer,
}

/// How one of those of an older answer is found.
#[derive(Debug, Default)]
struct Search {
    /// The place of the one that is expected next, since they seldom change their order.
    next: usize,
    /// Places of all, by what they are known by; once one was not where it was expected.
    sorted: Option<Vec<u32>>,
}

/// What is known by something.
trait Known {
    type Key: Ord;

    fn key(&self) -> Self::Key;
}

impl Known for Piece {
    type Key = Identity;

    fn key(&self) -> Identity {
        self.identity
    }
}

impl Keeper {
    /// Copies from this.
    pub fn of(mut old: Kept) -> Self {
        let mut pieces = std::mem::take(&mut old.spare);
        pieces.reserve(old.pieces.len() + 16);
        Self {
            lists: Writer::of(std::mem::take(&mut old.lists)),
            old,
            pieces,
            of_old: Search::default(),
        }
    }

    /// Room for as many bytes as the answer may have, with nothing in it.
    pub fn room(&mut self) -> Vec<u8> {
        let expected = self.expected();
        let older = &mut self.old.older;
        let unread = older.iter().position(Bytes::is_unique);
        let unread = unread.and_then(|place| older.remove(place).try_into_mut().ok());
        let mut room = match unread {
            Some(mut room) => {
                room.clear();
                Vec::from(room)
            }
            None => Vec::new(),
        };
        if room.capacity() / LARGER_MAX > expected {
            room = Vec::new();
        }
        room.reserve(expected);
        room
    }

    fn expected(&self) -> usize {
        let old = self.old.text.len();
        old + old / 16
    }

    /// Appends the bytes of this value, if they are known.
    #[inline]
    pub fn copy(&mut self, identity: Identity, to: &mut Vec<u8>) -> bool {
        let Some(place) = self.of_old.find(&self.old.pieces, identity) else {
            return false;
        };
        let (from, old) = (to.len(), self.old.pieces[place]);
        to.extend_from_slice(&self.old.text[old.from..old.to]);
        self.note(identity, from, to.len());
        true
    }

    /// The bytes of this value are those.
    #[inline]
    pub fn note(&mut self, identity: Identity, from: usize, to: usize) {
        self.pieces.push(Piece { identity, from, to });
    }

    /// Appends a list of values, with commas between them; each is written by `write`, if it is not known. What is long of it does
    /// not stand in the text but is added when the answer is [done](Self::done).
    ///
    /// Lists with the same key take each other's place. What is `whole` stands for all values: where it is known none of them is looked at.
    pub fn list<V, E>(
        &mut self,
        key: &'static str,
        whole: Option<Identity>,
        values: impl Iterator<Item = (Option<Identity>, V)>,
        text: &mut Vec<u8>,
        write: impl FnMut(&mut Vec<u8>, &V) -> Result<(), E>,
    ) -> Result<(), E> {
        self.lists.list((key, whole), values, text, write)
    }

    /// What begins at `at` or later begins so many bytes further on, or further back. That is for answers without [lists](Self::list).
    pub fn moved(&mut self, at: usize, by: isize) {
        let moved = self.pieces.iter_mut().rev();
        for piece in moved.take_while(|piece| piece.from >= at) {
            piece.from = piece.from.saturating_add_signed(by);
            piece.to = piece.to.saturating_add_signed(by);
        }
    }

    /// The answer whose text this is, and what is to be kept of it.
    pub fn done(self, text: Vec<u8>) -> (Parts, Kept) {
        let Kept {
            text: before,
            pieces: mut spare,
            mut older,
            ..
        } = self.old;
        spare.clear();
        if !before.is_empty() {
            older.push(before);
        }
        if older.len() > OLDER_MAX {
            older.remove(0);
        }
        let text = Bytes::from(text);
        let (parts, lists) = self.lists.done(&text);
        let kept = Kept {
            text,
            pieces: self.pieces,
            lists,
            older,
            spare,
        };
        (parts, kept)
    }
}

impl Search {
    /// The place of this one among all.
    #[inline]
    fn find<T: Known>(&mut self, all: &[T], key: T::Key) -> Option<usize> {
        let place = match all.get(self.next) {
            Some(one) if one.key() == key => self.next,
            _ => self.elsewhere(all, key)?,
        };
        self.next = place + 1;
        Some(place)
    }

    fn elsewhere<T: Known>(&mut self, all: &[T], key: T::Key) -> Option<usize> {
        let mut ahead = all.iter().skip(self.next).take(AHEAD);
        if let Some(further) = ahead.position(|one| one.key() == key) {
            return Some(self.next + further);
        }
        let of = |place: &u32| all[*place as usize].key();
        let sorted = self.sorted.get_or_insert_with(|| {
            let mut places: Vec<u32> = (0..all.len() as u32).collect();
            places.sort_unstable_by_key(of);
            places
        });
        let found = sorted.binary_search_by_key(&key, of).ok()?;
        Some(sorted[found] as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes these values, each as its own digits, with a comma behind each; says how many were not known.
    fn write_on(keeper: &mut Keeper, bytes: &mut Vec<u8>, values: &[usize]) -> usize {
        let mut unknown = 0;
        for value in values {
            if !keeper.copy([*value, 0, 0], bytes) {
                let from = bytes.len();
                bytes.extend(value.to_string().bytes());
                keeper.note([*value, 0, 0], from, bytes.len());
                unknown += 1;
            }
            bytes.push(b',');
        }
        unknown
    }

    /// An answer of these values alone.
    fn write(old: Kept, values: &[usize]) -> (Kept, usize) {
        let (mut keeper, mut bytes) = (Keeper::of(old), Vec::new());
        let unknown = write_on(&mut keeper, &mut bytes, values);
        let text: Vec<String> = values.iter().map(|value| format!("{value},")).collect();
        assert_eq!(String::from_utf8(bytes.clone()).unwrap(), text.concat());
        (keeper.done(bytes).1, unknown)
    }

    #[test]
    fn whatever_comes_and_goes_only_what_is_new_is_written() {
        let all: Vec<usize> = (100..200).collect();
        let (kept, unknown) = write(Kept::default(), &all);
        assert_eq!(unknown, 100);
        for (change, new) in [
            (vec![], 0),
            (all.clone(), 0),
            (all.iter().rev().copied().collect(), 0),
            (
                all.iter().copied().filter(|value| value % 3 > 0).collect(),
                0,
            ),
            (
                all.iter().copied().filter(|value| *value > 170).collect(),
                0,
            ),
            (all.iter().copied().chain([7, 8]).collect(), 2),
            ([7].into_iter().chain(all.iter().copied()).collect(), 1),
            (
                all.iter()
                    .flat_map(|value| [*value, value + 1000])
                    .collect(),
                100,
            ),
        ] {
            assert_eq!(write(kept.clone(), &change).1, new, "{change:?}");
        }
        assert_eq!(write(write(kept, &[150, 3]).0, &all).1, 99);
    }

    #[test]
    fn an_answer_is_written_where_an_older_one_was_that_nobody_reads() {
        /// The next one, where it lies, and how much room it has.
        fn answer(kept: &mut Kept, length: usize) -> (Bytes, usize, usize) {
            let mut keeper = Keeper::of(std::mem::take(kept));
            let mut room = keeper.room();
            assert!(room.is_empty());
            room.resize(length, b'x');
            let (at, capacity) = (room.as_ptr() as usize, room.capacity());
            let (answer, next) = keeper.done(room);
            *kept = next;
            (answer.whole(), at, capacity)
        }
        let kept = &mut Kept::default();
        let first = answer(kept, 100_000);
        let places: Vec<_> = (0..6).map(|_| answer(kept, 100_000).1).collect();
        // One that is read stays as it was.
        assert!(!places.contains(&first.1));
        // The newest is copied from while the next is written, so the one before it is where that stands; new room would be less.
        answer(kept, 70_000);
        let (_, _, capacity) = answer(kept, 70_000);
        assert!(capacity >= 100_000, "{capacity}");
        assert!(first.0.iter().all(|byte| *byte == b'x'));
        // However many are read, few are held on to.
        let read: Vec<_> = (0..20).map(|_| answer(kept, 100_000).0).collect();
        assert!(kept.older.len() <= OLDER_MAX);
        drop(read);
        // What is small since does not keep the room of what was large.
        for _ in 0..20 {
            answer(kept, 10);
        }
        assert!(answer(kept, 10).2 < 100);
    }

    #[test]
    fn pieces_that_were_moved_are_found_where_they_are() {
        let mut keeper = Keeper::default();
        keeper.note([1, 0, 0], 2, 4);
        keeper.note([2, 0, 0], 5, 7);
        keeper.moved(5, 3);
        keeper.moved(20, 3);
        let mut again = Keeper::of(keeper.done(b"..ab....cd".to_vec()).1);
        let mut copied = Vec::new();
        assert!(again.copy([2, 0, 0], &mut copied) && again.copy([1, 0, 0], &mut copied));
        assert_eq!(copied, b"cdab");
    }
}
