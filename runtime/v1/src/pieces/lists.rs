//! Lists: those of an answer, each in blocks of values that follow each other. A block of which no value has changed is the same
//! [`Part`] in the next answer.
//!
//! Where a block ends is decided by the identity of its last value, so that one which comes or goes changes its own block and none behind it.
//! A block with a value that has no identity is made anew each time, of what is known of the others.

use std::sync::Arc;

use super::{Identity, Known, Search};
use crate::parts::{Part, Parts};

/// One in so many values ends a block: with these a page's blocks have some tens of KiB, which is little to write again and enough to be
/// compressed well.
const BLOCK: u32 = 64;
/// No block has more values.
const BLOCK_MAX: usize = 4 * BLOCK as usize;
/// A block that is not longer stands in the text among what else is small, with which it is compressed better than alone.
const SMALL: usize = 4 << 10;

/// A list, as it was written.
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
    /// In which block it stands, and where.
    block: usize,
    from: usize,
    to: usize,
}

#[derive(Clone, Debug)]
struct Block {
    /// How many values it has.
    values: usize,
    part: Part,
}

impl Known for Arc<List> {
    type Key = (&'static str, Option<Identity>);

    fn key(&self) -> Self::Key {
        (self.key, self.whole)
    }
}

impl Known for Value {
    type Key = Option<Identity>;

    fn key(&self) -> Self::Key {
        self.identity
    }
}

/// Writes the lists of an answer.
#[derive(Debug, Default)]
pub(super) struct Writer {
    old: Vec<Arc<List>>,
    of_old: Search,
    lists: Vec<Arc<List>>,
    /// What does not stand in the text itself, and where it belongs.
    parts: Vec<(usize, Part)>,
}

impl Writer {
    /// What is in these is not written again.
    pub fn of(old: Vec<Arc<List>>) -> Self {
        Self {
            lists: Vec::with_capacity(old.len()),
            old,
            ..Self::default()
        }
    }

    /// Appends the values of a list, with commas between them.
    pub fn list<V, E>(
        &mut self,
        (key, whole): (&'static str, Option<Identity>),
        values: impl Iterator<Item = (Option<Identity>, V)>,
        text: &mut Vec<u8>,
        mut write: impl FnMut(&mut Vec<u8>, &V) -> Result<(), E>,
    ) -> Result<(), E> {
        if whole.is_some()
            && let Some(place) = self.of_old.find(&self.old, (key, whole))
        {
            let list = self.old[place].clone();
            let parts = list.blocks.iter().map(|block| &block.part);
            parts.for_each(|part| self.put(part, text));
            self.lists.push(list);
            return Ok(());
        }
        // It has most likely come from the one that stood here.
        let old = self.old.get(self.of_old.next).cloned();
        let old = old.filter(|old| old.key == key);
        self.of_old.next += usize::from(old.is_some());
        let mut growing = Growing {
            of_old: Search::default(),
            values: Vec::new(),
            blocks: Vec::new(),
            old,
        };
        let (mut values, mut block) = (values, Vec::new());
        while take_block(&mut values, &mut block) {
            let part = match growing.again(&block) {
                Some(part) => part,
                None => growing.write(&block, text, &mut write)?,
            };
            self.put(&part, text);
        }
        let Growing { values, blocks, .. } = growing;
        self.lists.push(Arc::new(List {
            key,
            whole,
            values,
            blocks,
        }));
        Ok(())
    }

    /// The part stands here.
    fn put(&mut self, part: &Part, text: &mut Vec<u8>) {
        match part.bytes().len() > SMALL {
            true => self.parts.push((text.len(), part.clone())),
            false => text.extend_from_slice(part.bytes()),
        }
    }

    /// The whole answer, with this text, and what is to be kept of it.
    pub fn done(self, text: &bytes::Bytes) -> (Parts, Vec<Arc<List>>) {
        let mut parts = Vec::with_capacity(2 * self.parts.len() + 1);
        let mut from = 0;
        let end = (text.len(), Part::default());
        for (to, part) in self.parts.into_iter().chain([end]) {
            let both = [Part::new(text.slice(from..to)), part];
            parts.extend(both.into_iter().filter(|part| !part.bytes().is_empty()));
            from = to;
        }
        (parts.into_iter().collect(), self.lists)
    }
}

/// Takes the values of the next block, if there are any.
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

/// Whether a block ends behind the value that is known by this.
fn ends_block(identity: Identity) -> bool {
    // Places in memory are multiples of a power of two: multiplied by the golden ratio they are spread.
    let spread = (identity[0] as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    (spread as u32).is_multiple_of(BLOCK)
}

/// A list that is not known as a whole.
struct Growing {
    values: Vec<Value>,
    blocks: Vec<Block>,
    old: Option<Arc<List>>,
    of_old: Search,
}

impl Growing {
    /// The block of these values, if it is known.
    fn again<V>(&mut self, block: &[(Option<Identity>, V)]) -> Option<Part> {
        let old = self.old.as_ref()?;
        let (first, _) = block.first()?;
        first.as_ref()?;
        let place = self.of_old.find(&old.values, *first)?;
        // Until it is known, its first value is still the next that is looked for.
        self.of_old.next = place;
        let number = old.values[place].block;
        let (before, known) = (old.values[..place].last(), &old.blocks[number]);
        // Only the first block of a list has no comma before it.
        let begins = before.is_none_or(|value| value.block != number)
            && before.is_none() == self.blocks.is_empty();
        let values = old.values[place..].get(..block.len())?;
        let is_same = begins
            && known.values == block.len()
            && values
                .iter()
                .zip(block)
                .all(|(value, (identity, _))| identity.is_some() && value.identity == *identity);
        if !is_same {
            return None;
        }
        self.of_old.next = place + block.len();
        let number = self.blocks.len();
        self.values.extend(values.iter().map(|value| Value {
            block: number,
            ..*value
        }));
        self.blocks.push(known.clone());
        Some(known.part.clone())
    }

    /// Makes the block of these values. The text is used for it, and left as it was.
    fn write<V, E>(
        &mut self,
        block: &[(Option<Identity>, V)],
        text: &mut Vec<u8>,
        write: &mut impl FnMut(&mut Vec<u8>, &V) -> Result<(), E>,
    ) -> Result<Part, E> {
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
        let part = Part::new(text[begin..].to_vec());
        text.truncate(begin);
        self.blocks.push(Block {
            values: block.len(),
            part: part.clone(),
        });
        Ok(part)
    }

    /// Appends the bytes of this value, if they are known.
    fn copy(&mut self, identity: Option<Identity>, text: &mut Vec<u8>) -> bool {
        let known = self.old.as_ref().filter(|_| identity.is_some());
        let Some(old) = known else {
            return false;
        };
        let Some(place) = self.of_old.find(&old.values, identity) else {
            return false;
        };
        let value = &old.values[place];
        let bytes = old.blocks[value.block].part.bytes();
        text.extend_from_slice(&bytes[value.from..value.to]);
        true
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use proptest::prelude::*;

    use super::super::{Keeper, Kept};
    use super::*;

    /// Of some values nothing is known.
    fn is_known(value: usize) -> bool {
        !value.is_multiple_of(7)
    }

    /// A list of these values, each so many bytes long; the whole is known by the first number, if that is not 0.
    type Asked = (usize, Vec<usize>);

    fn value(value: usize) -> String {
        format!("{value:0100}")
    }

    /// Writes these lists one after the other; says how many values were not known.
    fn write(old: Kept, lists: &[Asked]) -> (Parts, Kept, usize) {
        let (mut keeper, mut text, mut unknown) = (Keeper::of(old), Vec::new(), 0);
        for (whole, values) in lists {
            text.push(b'[');
            let known = (*whole > 0).then_some([*whole, 0, 0]);
            let identity = |one: &usize| is_known(*one).then_some([one * 16, 0, 0]);
            let values = values.iter().map(|one| (identity(one), *one));
            let written = keeper.list("values", known, values, &mut text, |text, one| {
                text.extend(value(*one).bytes());
                unknown += usize::from(is_known(*one));
                Ok::<_, Infallible>(())
            });
            let Ok(()) = written;
            text.push(b']');
        }
        let (parts, kept) = keeper.done(text);
        let text: Vec<String> = lists
            .iter()
            .map(|(_, values)| {
                let values: Vec<String> = values.iter().copied().map(value).collect();
                format!("[{}]", values.join(","))
            })
            .collect();
        assert_eq!(&parts.whole()[..], text.concat().as_bytes());
        (parts, kept, unknown)
    }

    #[test]
    fn a_list_that_is_known_is_not_looked_at_and_one_that_has_changed_is_written_value_by_value() {
        let first: &[Asked] = &[(1, vec![10, 11, 12]), (2, vec![]), (3, vec![30, 31])];
        let (_, kept, unknown) = write(Kept::default(), first);
        assert_eq!(unknown, 5);
        for (lists, new) in [
            (first.to_vec(), 0),
            // One value came, and one went.
            (
                vec![(4, vec![11, 12, 13]), (2, vec![]), (3, vec![30, 31])],
                1,
            ),
            // What nothing is known of as a whole has its place, too.
            (vec![(0, vec![11, 12, 13]), (0, vec![]), (0, vec![31])], 1),
            // Lists come, go and change their places.
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
            let (_, next, unknown) = write(kept.clone(), &lists);
            assert_eq!(unknown, new, "{lists:?}");
            // What was copied can be copied again, and in part.
            assert_eq!(write(next.clone(), &lists).2, 0, "{lists:?}");
            let other = lists
                .iter()
                .map(|(name, values)| (name + 100, values.clone()));
            assert_eq!(write(next, &other.collect::<Vec<_>>()).2, 0);
        }
    }

    /// W15: the next page of a large cluster has a few new parts.
    #[test]
    fn whatever_comes_or_goes_changes_its_own_block_and_no_other() {
        let all: Vec<usize> = (1000..5666).filter(|one| is_known(*one)).collect();
        let (parts, kept, _) = write(Kept::default(), &[(0, all.clone())]);
        let long = |parts: &Parts| {
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
                let next = long(&write(kept.clone(), &[(0, values)]).0);
                let new = next.iter().filter(|part| !old.contains(part)).count();
                assert!(new <= 3, "{change}: {new} of {}", next.len());
            }
        }
    }

    #[test]
    fn what_is_small_stands_in_the_text() {
        let lists: Vec<Asked> = (1..50).map(|list| (list, vec![list, list + 1])).collect();
        let (parts, kept, _) = write(Kept::default(), &lists);
        assert_eq!(parts.bytes().count(), 1);
        assert_eq!(write(kept, &lists).0.bytes().count(), 1);
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
        fn whatever_was_written_before_an_answer_is_what_it_is(rounds in proptest::collection::vec(lists(), 1..5)) {
            let mut kept = Kept::default();
            for round in rounds {
                kept = write(kept, &round).1;
                kept = write(kept, &round).1;
            }
        }
    }
}
