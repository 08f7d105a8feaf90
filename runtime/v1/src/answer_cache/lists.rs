//! Lists of an answer in blocks of consecutive values. A block without changed values is the same
//! [`BodyPart`] in the next answer.
//!
//! The identity of a value decides whether a block ends after it, so an insertion or removal
//! changes only its own block. A block with a value without identity is always rebuilt, from the
//! cached bytes of the other values.

use std::sync::Arc;

use super::{Identity, Keyed, Search};
use crate::body_parts::{BodyPart, BodyParts};

/// One in this many values ends a block. A block of a page then has some tens of KiB: cheap to
/// rewrite, and large enough to compress well.
const BLOCK: u32 = 64;
/// Maximum values of a block.
const BLOCK_MAX: usize = 4 * BLOCK as usize;
/// Blocks up to this size stay in the text, where they compress better than alone.
const SMALL: usize = 4 << 10;

/// A list as it was written.
#[derive(Debug)]
pub(super) struct List {
    key: &'static str,
    whole: Option<Identity>,
    values: Vec<Value>,
    blocks: Vec<Block>,
}

/// One of its values.
#[derive(Debug)]
struct Value {
    identity: Option<Identity>,
    /// Its block, and its span in the block.
    block: usize,
    from: usize,
    to: usize,
}

#[derive(Clone, Debug)]
struct Block {
    /// Number of values.
    values: usize,
    part: BodyPart,
}

impl Keyed for Arc<List> {
    type Key = (&'static str, Option<Identity>);

    fn key(&self) -> Self::Key {
        (self.key, self.whole)
    }
}

impl Keyed for Value {
    type Key = Option<Identity>;

    fn key(&self) -> Self::Key {
        self.identity
    }
}

/// Writes the lists of an answer.
#[derive(Debug, Default)]
pub(super) struct Writer {
    old: Vec<Arc<List>>,
    search: Search,
    lists: Vec<Arc<List>>,
    /// The parts outside of the text, and their positions in it.
    parts: Vec<(usize, BodyPart)>,
}

impl Writer {
    /// A writer that reuses blocks of these lists.
    pub fn of(old: Vec<Arc<List>>) -> Self {
        Self {
            lists: Vec::with_capacity(old.len()),
            old,
            ..Self::default()
        }
    }

    /// Appends the values of a list, separated by commas.
    pub fn list<V, E>(
        &mut self,
        (key, whole): (&'static str, Option<Identity>),
        values: impl Iterator<Item = (Option<Identity>, V)>,
        text: &mut Vec<u8>,
        mut write: impl FnMut(&mut Vec<u8>, &V) -> Result<(), E>,
    ) -> Result<(), E> {
        if whole.is_some()
            && let Some(index) = self.search.find(&self.old, (key, whole))
        {
            let list = self.old[index].clone();
            let parts = list.blocks.iter().map(|block| &block.part);
            parts.for_each(|part| self.put(part, text));
            self.lists.push(list);
            return Ok(());
        }
        // Probably the successor of the list at this index.
        let old = self.old.get(self.search.next).cloned();
        let old = old.filter(|old| old.key == key);
        self.search.next += usize::from(old.is_some());
        let mut builder = ListBuilder {
            search: Search::default(),
            values: Vec::new(),
            blocks: Vec::new(),
            old,
        };
        let (mut values, mut block) = (values, Vec::new());
        while take_block(&mut values, &mut block) {
            let part = match builder.again(&block) {
                Some(part) => part,
                None => builder.write(&block, text, &mut write)?,
            };
            self.put(&part, text);
        }
        let ListBuilder { values, blocks, .. } = builder;
        self.lists.push(Arc::new(List {
            key,
            whole,
            values,
            blocks,
        }));
        Ok(())
    }

    /// Puts a part at the current position.
    fn put(&mut self, part: &BodyPart, text: &mut Vec<u8>) {
        match part.bytes().len() > SMALL {
            true => self.parts.push((text.len(), part.clone())),
            false => text.extend_from_slice(part.bytes()),
        }
    }

    /// The whole answer with this text, and its lists for the next one.
    pub fn done(self, text: &bytes::Bytes) -> (BodyParts, Vec<Arc<List>>) {
        let mut parts = Vec::with_capacity(2 * self.parts.len() + 1);
        let mut from = 0;
        let end = (text.len(), BodyPart::default());
        for (to, part) in self.parts.into_iter().chain([end]) {
            let both = [BodyPart::new(text.slice(from..to)), part];
            parts.extend(both.into_iter().filter(|part| !part.bytes().is_empty()));
            from = to;
        }
        (parts.into_iter().collect(), self.lists)
    }
}

/// Takes the values of the next block, if any.
fn take_block<V>(
    values: &mut impl Iterator<Item = (Option<Identity>, V)>,
    block: &mut Vec<(Option<Identity>, V)>,
) -> bool {
    block.clear();
    for (identity, value) in values {
        block.push((identity, value));
        if block.len() >= BLOCK_MAX || identity.is_some_and(ends_block) {
            break;
        }
    }
    !block.is_empty()
}

/// Whether a block ends after the value with this identity.
fn ends_block(identity: Identity) -> bool {
    // Addresses are multiples of powers of two: multiplying by the golden ratio spreads them.
    let spread = (identity[0] as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    (spread as u32).is_multiple_of(BLOCK)
}

/// A list that is not cached as a whole.
struct ListBuilder {
    values: Vec<Value>,
    blocks: Vec<Block>,
    old: Option<Arc<List>>,
    search: Search,
}

impl ListBuilder {
    /// The block of these values, if it is cached.
    fn again<V>(&mut self, block: &[(Option<Identity>, V)]) -> Option<BodyPart> {
        let old = self.old.as_ref()?;
        let (first, _) = block.first()?;
        first.as_ref()?;
        let index = self.search.find(&old.values, *first)?;
        // On a miss the first value is still the expected next one.
        self.search.next = index;
        let number = old.values[index].block;
        let (before, known) = (old.values[..index].last(), &old.blocks[number]);
        // Only the first block of a list has no leading comma.
        let begins = before.is_none_or(|value| value.block != number)
            && before.is_none() == self.blocks.is_empty();
        let values = old.values[index..].get(..block.len())?;
        let is_same = begins
            && known.values == block.len()
            && values
                .iter()
                .zip(block)
                .all(|(value, (identity, _))| identity.is_some() && value.identity == *identity);
        if !is_same {
            return None;
        }
        self.search.next = index + block.len();
        let number = self.blocks.len();
        self.values.extend(values.iter().map(|value| Value {
            block: number,
            ..*value
        }));
        self.blocks.push(known.clone());
        Some(known.part.clone())
    }

    /// Builds the block of these values. Uses the text as a buffer, and restores it.
    fn write<V, E>(
        &mut self,
        block: &[(Option<Identity>, V)],
        text: &mut Vec<u8>,
        write: &mut impl FnMut(&mut Vec<u8>, &V) -> Result<(), E>,
    ) -> Result<BodyPart, E> {
        let begin = text.len();
        for (identity, value) in block {
            if text.len() > begin || !self.blocks.is_empty() {
                text.push(b',');
            }
            let from = text.len();
            if !self.copy(*identity, text) {
                write(text, value)?;
            }
            self.values.push(Value {
                identity: *identity,
                block: self.blocks.len(),
                from: from - begin,
                to: text.len() - begin,
            });
        }
        let part = BodyPart::new(text[begin..].to_vec());
        text.truncate(begin);
        self.blocks.push(Block {
            values: block.len(),
            part: part.clone(),
        });
        Ok(part)
    }

    /// Appends the bytes of this value, if they are cached.
    fn copy(&mut self, identity: Option<Identity>, text: &mut Vec<u8>) -> bool {
        let known = self.old.as_ref().filter(|_| identity.is_some());
        let Some(old) = known else {
            return false;
        };
        let Some(index) = self.search.find(&old.values, identity) else {
            return false;
        };
        let value = &old.values[index];
        let bytes = old.blocks[value.block].part.bytes();
        text.extend_from_slice(&bytes[value.from..value.to]);
        true
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use proptest::prelude::*;

    use super::super::{AnswerCache, AnswerWriter};
    use super::*;

    /// Some values have no identity.
    fn is_known(value: usize) -> bool {
        !value.is_multiple_of(7)
    }

    /// A value with this number of bytes. A list is identified by its first number, unless that is
    /// 0.
    type Asked = (usize, Vec<usize>);

    fn value(value: usize) -> String {
        format!("{value:0100}")
    }

    /// Writes these lists in order; returns how many values were not cached.
    fn write(old: AnswerCache, lists: &[Asked]) -> (BodyParts, AnswerCache, usize) {
        let (mut writer, mut text, mut unknown) = (AnswerWriter::of(old), Vec::new(), 0);
        for (whole, values) in lists {
            text.push(b'[');
            let known = (*whole > 0).then_some([*whole, 0, 0]);
            let identity = |one: &usize| is_known(*one).then_some([one * 16, 0, 0]);
            let values = values.iter().map(|one| (identity(one), *one));
            let written = writer.list("values", known, values, &mut text, |text, one| {
                text.extend(value(*one).bytes());
                unknown += usize::from(is_known(*one));
                Ok::<_, Infallible>(())
            });
            let Ok(()) = written;
            text.push(b']');
        }
        let (parts, cache) = writer.done(text);
        let text: Vec<String> = lists
            .iter()
            .map(|(_, values)| {
                let values: Vec<String> = values.iter().copied().map(value).collect();
                format!("[{}]", values.join(","))
            })
            .collect();
        assert_eq!(&parts.whole()[..], text.concat().as_bytes());
        (parts, cache, unknown)
    }

    #[test]
    fn a_known_list_is_reused_and_a_changed_one_rewritten() {
        let first: &[Asked] = &[(1, vec![10, 11, 12]), (2, vec![]), (3, vec![30, 31])];
        let (_, cache, unknown) = write(AnswerCache::default(), first);
        assert_eq!(unknown, 5);
        for (lists, new) in [
            (first.to_vec(), 0),
            // One value was added, and one removed.
            (
                vec![(4, vec![11, 12, 13]), (2, vec![]), (3, vec![30, 31])],
                1,
            ),
            // A list without identity keeps its position, too.
            (vec![(0, vec![11, 12, 13]), (0, vec![]), (0, vec![31])], 1),
            // Lists are added, removed and reordered.
            (
                vec![(3, vec![30, 31]), (2, vec![]), (1, vec![10, 11, 12])],
                0,
            ),
            (
                vec![(9, vec![90]), (1, vec![10, 11, 12]), (3, vec![30, 31])],
                1,
            ),
            (vec![(3, vec![30, 31])], 0),
            (vec![], 0),
        ] {
            let (_, next, unknown) = write(cache.clone(), &lists);
            assert_eq!(unknown, new, "{lists:?}");
            // Copied values can be copied again, and in part.
            assert_eq!(write(next.clone(), &lists).2, 0, "{lists:?}");
            let other = lists
                .iter()
                .map(|(name, values)| (name + 100, values.clone()));
            assert_eq!(write(next, &other.collect::<Vec<_>>()).2, 0);
        }
    }

    /// W15: the next page of a large cluster has a few new parts.
    // Covers W15 in part: that no page waits behind the mailbox, the snapshots, the batches and
    // what is kept.
    #[test]
    fn a_change_rewrites_only_its_block() {
        let all: Vec<usize> = (1000..5666).filter(|one| is_known(*one)).collect();
        let (parts, cache, _) = write(AnswerCache::default(), &[(0, all.clone())]);
        let long = |parts: &BodyParts| {
            let long = parts.bytes().filter(|part| part.len() > SMALL);
            long.map(|part| part.as_ptr()).collect::<Vec<_>>()
        };
        let old = long(&parts);
        assert!(old.len() > 20, "{}", old.len());
        let largest = parts.bytes().map(bytes::Bytes::len).max().unwrap();
        assert!(largest <= BLOCK_MAX * 101, "{largest}");
        for change in [0, 1, 2000, all.len() - 1] {
            let (mut fewer, mut more) = (all.clone(), all.clone());
            fewer.remove(change);
            more.insert(change, 6001);
            for values in [fewer, more] {
                let next = long(&write(cache.clone(), &[(0, values)]).0);
                let new = next.iter().filter(|part| !old.contains(part)).count();
                assert!(new <= 3, "{change}: {new} of {}", next.len());
            }
        }
    }

    #[test]
    fn small_blocks_stay_in_the_text() {
        let lists: Vec<Asked> = (1..50).map(|list| (list, vec![list, list + 1])).collect();
        let (parts, cache, _) = write(AnswerCache::default(), &lists);
        assert_eq!(parts.bytes().count(), 1);
        assert_eq!(write(cache, &lists).0.bytes().count(), 1);
    }

    /// Some lists of some values, in any order, many of which are also in other lists.
    fn lists() -> impl Strategy<Value = Vec<Asked>> {
        let order = prop_oneof![Just(1), Just(3), Just(497)];
        let values = (0..300_usize, 0..200_usize, order).prop_map(|(from, many, step)| {
            (0..many).map(|number| from + number * step % 499).collect()
        });
        proptest::collection::vec((Just(0), values), 0..4)
    }

    proptest! {
        #[test]
        fn earlier_writes_do_not_affect_an_answer(rounds in proptest::collection::vec(lists(), 1..5)) {
            let mut cache = AnswerCache::default();
            for round in rounds {
                cache = write(cache, &round).1;
                cache = write(cache, &round).1;
            }
        }
    }
}
