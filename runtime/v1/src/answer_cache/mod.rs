//! Caches the encoded bytes of values that have not changed since the last answer.
//!
//! A large answer that is requested repeatedly is nearly the same each time. [`AnswerCache`] has
//! the bytes of the last answer, and the position of each value with an [`Identity`]; a
//! [`AnswerWriter`] copies the bytes of known values into the next answer. So an answer costs a
//! copy plus its changes. The owner of a cache must keep the values alive too, or a new value could
//! get the identity of a freed one.
//!
//! Long lists of values are cached [in blocks](AnswerWriter::list), which are not even copied: both
//! answers share the part.
//!
//! All other text is written into the buffer of an older answer without readers. Otherwise a page
//! of some MiB that is built many times a second would cost thousands of page faults each time, and
//! the allocator returns such memory to the system from any thread, which can stop a master for a
//! quarter of a second.

mod lists;

use std::sync::Arc;

use bytes::Bytes;

use self::lists::{List, Writer};
use crate::body_parts::BodyParts;

/// The addresses of the memory from which a value's bytes are made. Values of one answer with the
/// same identity have the same bytes.
pub type Identity = [usize; 3];

/// Maximum older answers whose buffers are kept.
const OLDER_MAX: usize = 4;
/// A buffer more than this many times larger than the answer is freed, too.
const LARGER_MAX: usize = 2;
/// Number of spans that are searched linearly before all are.
const AHEAD: usize = 16;

/// The last answer, and the spans of its values.
#[derive(Clone, Debug, Default)]
pub struct AnswerCache {
    /// The text without its lists.
    text: Bytes,
    /// In the order of the text.
    spans: Vec<CachedSpan>,
    lists: Vec<Arc<List>>,
    /// Older texts, oldest first, kept only for their buffers; they may still have readers.
    older: Vec<Bytes>,
    /// An unused buffer for spans.
    spare: Vec<CachedSpan>,
}

#[derive(Clone, Copy, Debug)]
struct CachedSpan {
    identity: Identity,
    from: usize,
    to: usize,
}

/// Writes an answer with the help of the previous one.
#[derive(Debug, Default)]
pub struct AnswerWriter {
    old: AnswerCache,
    search: Search,
    spans: Vec<CachedSpan>,
    lists: Writer,
}

/// Finds entries of the previous answer.
#[derive(Debug, Default)]
struct Search {
    /// Index of the expected next entry, since the order seldom changes.
    next: usize,
    /// Indices of all entries, sorted by key; built when an entry was not found in order.
    sorted: Option<Vec<u32>>,
}

/// An entry with a key.
trait Keyed {
    type Key: Ord;

    fn key(&self) -> Self::Key;
}

impl Keyed for CachedSpan {
    type Key = Identity;

    fn key(&self) -> Identity {
        self.identity
    }
}

impl AnswerWriter {
    /// A writer that copies from `old`.
    pub fn of(mut old: AnswerCache) -> Self {
        let mut spans = std::mem::take(&mut old.spare);
        spans.reserve(old.spans.len() + 16);
        Self {
            lists: Writer::of(std::mem::take(&mut old.lists)),
            old,
            spans,
            search: Search::default(),
        }
    }

    /// An empty buffer with the expected capacity.
    pub fn room(&mut self) -> Vec<u8> {
        let expected = self.expected();
        let older = &mut self.old.older;
        let unread = older.iter().position(Bytes::is_unique);
        let unread = unread.and_then(|index| older.remove(index).try_into_mut().ok());
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

    /// Appends the bytes of this value, if they are cached.
    #[inline]
    pub fn copy(&mut self, identity: Identity, to: &mut Vec<u8>) -> bool {
        let Some(index) = self.search.find(&self.old.spans, identity) else {
            return false;
        };
        let (from, old) = (to.len(), self.old.spans[index]);
        to.extend_from_slice(&self.old.text[old.from..old.to]);
        self.note(identity, from, to.len());
        true
    }

    /// Records the span of this value.
    #[inline]
    pub fn note(&mut self, identity: Identity, from: usize, to: usize) {
        self.spans.push(CachedSpan { identity, from, to });
    }

    /// Appends a comma-separated list; `write` writes the values that are not cached. Long parts of
    /// it are not in the text but are added by [`done`](Self::done).
    ///
    /// A list replaces the previous one with the same key. `whole` identifies the whole list: if it
    /// is cached, no value is visited.
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

    /// Shifts the spans at or after `at` by `by` bytes. For answers without [lists](Self::list).
    pub fn moved(&mut self, at: usize, by: isize) {
        let moved = self.spans.iter_mut().rev();
        for piece in moved.take_while(|piece| piece.from >= at) {
            piece.from = piece.from.saturating_add_signed(by);
            piece.to = piece.to.saturating_add_signed(by);
        }
    }

    /// The answer with this text, and the cache for the next one.
    pub fn done(self, text: Vec<u8>) -> (BodyParts, AnswerCache) {
        let AnswerCache {
            text: before,
            spans: mut spare,
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
        let cache = AnswerCache {
            text,
            spans: self.spans,
            lists,
            older,
            spare,
        };
        (parts, cache)
    }
}

impl Search {
    /// The index of the entry with this key.
    #[inline]
    fn find<T: Keyed>(&mut self, all: &[T], key: T::Key) -> Option<usize> {
        let index = match all.get(self.next) {
            Some(one) if one.key() == key => self.next,
            _ => self.elsewhere(all, key)?,
        };
        self.next = index + 1;
        Some(index)
    }

    fn elsewhere<T: Keyed>(&mut self, all: &[T], key: T::Key) -> Option<usize> {
        let mut ahead = all.iter().skip(self.next).take(AHEAD);
        if let Some(further) = ahead.position(|one| one.key() == key) {
            return Some(self.next + further);
        }
        let of = |index: &u32| all[*index as usize].key();
        let sorted = self.sorted.get_or_insert_with(|| {
            let mut indices: Vec<u32> = (0..all.len() as u32).collect();
            indices.sort_unstable_by_key(of);
            indices
        });
        let found = sorted.binary_search_by_key(&key, of).ok()?;
        Some(sorted[found] as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes these values, each as its digits and a comma; returns how many were not cached.
    fn write_on(writer: &mut AnswerWriter, bytes: &mut Vec<u8>, values: &[usize]) -> usize {
        let mut unknown = 0;
        for value in values {
            if !writer.copy([*value, 0, 0], bytes) {
                let from = bytes.len();
                bytes.extend(value.to_string().bytes());
                writer.note([*value, 0, 0], from, bytes.len());
                unknown += 1;
            }
            bytes.push(b',');
        }
        unknown
    }

    /// An answer of these values alone.
    fn write(old: AnswerCache, values: &[usize]) -> (AnswerCache, usize) {
        let (mut writer, mut bytes) = (AnswerWriter::of(old), Vec::new());
        let unknown = write_on(&mut writer, &mut bytes, values);
        let text: Vec<String> = values.iter().map(|value| format!("{value},")).collect();
        assert_eq!(String::from_utf8(bytes.clone()).unwrap(), text.concat());
        (writer.done(bytes).1, unknown)
    }

    #[test]
    fn only_new_values_are_written() {
        let all: Vec<usize> = (100..200).collect();
        let (cache, unknown) = write(AnswerCache::default(), &all);
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
            assert_eq!(write(cache.clone(), &change).1, new, "{change:?}");
        }
        assert_eq!(write(write(cache, &[150, 3]).0, &all).1, 99);
    }

    // Covers W15 in part: that no page waits behind the mailbox, the snapshots, the batches and
    // what is kept.
    #[test]
    fn an_unread_answers_buffer_is_reused() {
        /// The next answer, its address, and its capacity.
        fn answer(cache: &mut AnswerCache, length: usize) -> (Bytes, usize, usize) {
            let mut writer = AnswerWriter::of(std::mem::take(cache));
            let mut room = writer.room();
            assert!(room.is_empty());
            room.resize(length, b'x');
            let (at, capacity) = (room.as_ptr() as usize, room.capacity());
            let (answer, next) = writer.done(room);
            *cache = next;
            (answer.whole(), at, capacity)
        }
        let cache = &mut AnswerCache::default();
        let first = answer(cache, 100_000);
        let indices: Vec<_> = (0..6).map(|_| answer(cache, 100_000).1).collect();
        // An answer with readers stays as it was.
        assert!(!indices.contains(&first.1));
        // The newest is copied from while the next is written, so the one before is reused; a new
        // buffer would be smaller.
        answer(cache, 70_000);
        let (_, _, capacity) = answer(cache, 70_000);
        assert!(capacity >= 100_000, "{capacity}");
        assert!(first.0.iter().all(|byte| *byte == b'x'));
        // However many have readers, few are kept.
        let read: Vec<_> = (0..20).map(|_| answer(cache, 100_000).0).collect();
        assert!(cache.older.len() <= OLDER_MAX);
        drop(read);
        // A small answer does not keep the buffer of a large one.
        for _ in 0..20 {
            answer(cache, 10);
        }
        assert!(answer(cache, 10).2 < 100);
    }

    #[test]
    fn shifted_spans_are_found() {
        let mut writer = AnswerWriter::default();
        writer.note([1, 0, 0], 2, 4);
        writer.note([2, 0, 0], 5, 7);
        writer.moved(5, 3);
        writer.moved(20, 3);
        let mut again = AnswerWriter::of(writer.done(b"..ab....cd".to_vec()).1);
        let mut copied = Vec::new();
        assert!(again.copy([2, 0, 0], &mut copied) && again.copy([1, 0, 0], &mut copied));
        assert_eq!(copied, b"cdab");
    }
}
