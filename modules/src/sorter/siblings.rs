//! Siblings: the children of one node of the tree, in sorted order.
//!
//! Knows no shares, roles or names: ranks come from the tree's order, and names are replaced by
//! numbers. A client that gets resources moves from the front to a later position, thousands of
//! times in a run. Keys are therefore small and stored in short lists, and a move touches one
//! or two of them.

use std::cmp::Ordering;

/// Length at which a list is split.
const LIST_MAX: usize = 64;
/// Distance between adjacent numbers when all names are numbered at once.
const STRIDE: u64 = 1 << 32;

/// Sort key of a node among its siblings: rank, then number of times chosen, then name.
#[derive(Clone, Copy, Debug)]
pub(super) struct SiblingKey<R> {
    pub(super) rank: R,
    pub(super) chosen: u64,
    /// Number of its name, see [`number`].
    pub(super) name: u64,
    pub(super) node: usize,
}

impl<R: Ord> Ord for SiblingKey<R> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.rank
            .cmp(&other.rank)
            .then_with(|| self.chosen.cmp(&other.chosen))
            .then_with(|| self.name.cmp(&other.name))
            .then_with(|| self.node.cmp(&other.node))
    }
}

impl<R: Ord> PartialOrd for SiblingKey<R> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<R: Ord> PartialEq for SiblingKey<R> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<R: Ord> Eq for SiblingKey<R> {}

/// A number for a name between two others, or before the first or after the last. `None` if no
/// number is free: then all names are renumbered, see [`numbers`].
pub(super) fn number(before: Option<u64>, after: Option<u64>) -> Option<u64> {
    let low = before.unwrap_or(0);
    match after {
        None => low.checked_add(STRIDE),
        Some(high) => Some(low + high.checked_sub(low)? / 2).filter(|between| *between > low),
    }
}

/// Numbers for names in order, with gaps between them.
pub(super) fn numbers() -> impl Iterator<Item = u64> {
    (1..).map(|n: u64| n.saturating_mul(STRIDE))
}

/// Nodes in sorted order. Most nodes have only one child, which needs no list.
#[derive(Clone, Debug)]
pub(super) enum Siblings<R> {
    One(Option<SiblingKey<R>>),
    /// Sorted; no list is empty.
    Many(Vec<Vec<SiblingKey<R>>>),
}

impl<R> Default for Siblings<R> {
    fn default() -> Self {
        Self::One(None)
    }
}

impl<R: Ord + Copy> Siblings<R> {
    pub(super) fn is_empty(&self) -> bool {
        match self {
            Self::One(one) => one.is_none(),
            Self::Many(lists) => lists.is_empty(),
        }
    }

    /// In order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &SiblingKey<R>> {
        let (one, lists) = match self {
            Self::One(one) => (one.as_ref(), None),
            Self::Many(lists) => (None, Some(lists)),
        };
        one.into_iter().chain(lists.into_iter().flatten().flatten())
    }

    /// Inserts a key. Does nothing if it is already there.
    pub(super) fn insert(&mut self, key: SiblingKey<R>) {
        match self {
            Self::One(one) => match *one {
                None => *one = Some(key),
                Some(other) if other == key => {}
                Some(other) => *self = Self::Many(vec![vec![other.min(key), other.max(key)]]),
            },
            Self::Many(lists) => insert(lists, key),
        }
    }

    /// Removes and returns this key, if it is there.
    pub(super) fn take(&mut self, key: &SiblingKey<R>) -> Option<SiblingKey<R>> {
        match self {
            Self::One(one) => one.take_if(|own| own.node == key.node),
            Self::Many(lists) => {
                let list = list_of(lists, key);
                let at = lists.get(list)?.binary_search(key).ok()?;
                let taken = lists[list].remove(at);
                if lists[list].is_empty() {
                    lists.remove(list);
                }
                Some(taken)
            }
        }
    }

    /// Moves `from` to `to`; inserts `to` if `from` is missing.
    pub(super) fn shift(&mut self, from: &SiblingKey<R>, to: SiblingKey<R>) {
        if let Self::Many(lists) = self {
            let list = list_of(lists, from);
            let next = lists.get(list + 1).and_then(|next| next.first());
            let stays = next.is_none_or(|next| to < *next)
                && (list == 0 || lists[list].first().is_some_and(|first| *first <= to));
            if stays
                && let Some(own) = lists.get_mut(list)
                && let Ok(at) = own.binary_search(from)
            {
                return shift_within(own, at, to);
            }
        }
        self.take(from);
        self.insert(to);
    }

    /// Replaces all keys by `key(node)`. Sorts only if the order has changed.
    pub(super) fn reorder(&mut self, mut key: impl FnMut(usize) -> SiblingKey<R>) {
        let lists = match self {
            Self::One(one) => return one.iter_mut().for_each(|one| *one = key(one.node)),
            Self::Many(lists) => lists,
        };
        let own = lists.iter_mut().flatten();
        own.for_each(|own| *own = key(own.node));
        if !lists.iter().flatten().is_sorted() {
            let mut all: Vec<_> = lists.iter().flatten().copied().collect();
            all.sort_unstable();
            let own = lists.iter_mut().flatten();
            own.zip(all).for_each(|(own, key)| *own = key);
        }
    }

    /// Replaces the numbers of names, which keep their order, by `number(node)`.
    pub(super) fn renumber(&mut self, number: impl Fn(usize) -> u64) {
        let own: &mut dyn Iterator<Item = &mut SiblingKey<R>> = match self {
            Self::One(one) => &mut one.iter_mut(),
            Self::Many(lists) => &mut lists.iter_mut().flatten(),
        };
        own.for_each(|key| key.name = number(key.node));
    }
}

/// Index of the list for a key: the last list that does not begin after it.
fn list_of<R: Ord>(lists: &[Vec<SiblingKey<R>>], key: &SiblingKey<R>) -> usize {
    let begins_after = |list: &Vec<SiblingKey<R>>| list.first().is_some_and(|first| first > key);
    // Most moves are near the front.
    match lists.get(1).is_none_or(begins_after) {
        true => 0,
        false => lists.partition_point(|list| !begins_after(list)) - 1,
    }
}

fn insert<R: Ord + Copy>(lists: &mut Vec<Vec<SiblingKey<R>>>, key: SiblingKey<R>) {
    let at = list_of(lists, &key);
    let Some(list) = lists.get_mut(at) else {
        return lists.push(vec![key]);
    };
    let Err(gap) = list.binary_search(&key) else {
        return;
    };
    list.insert(gap, key);
    if list.len() > LIST_MAX {
        let rest = list.split_off(LIST_MAX / 2);
        lists.insert(at + 1, rest);
    }
}

/// Moves the key at that index within a list.
fn shift_within<R: Ord + Copy>(list: &mut [SiblingKey<R>], at: usize, to: SiblingKey<R>) {
    let (before, after) = (&list[..at], &list[at + 1..]);
    if after.first().is_some_and(|next| *next < to) {
        let passed = after.partition_point(|own| *own < to);
        list.copy_within(at + 1..at + 1 + passed, at);
        list[at + passed] = to;
    } else {
        let gap = before.partition_point(|own| *own < to);
        list.copy_within(gap..at, gap + 1);
        list[gap] = to;
    }
}

impl<R: Ord + Copy> FromIterator<SiblingKey<R>> for Siblings<R> {
    fn from_iter<I: IntoIterator<Item = SiblingKey<R>>>(all: I) -> Self {
        let mut all: Vec<_> = all.into_iter().collect();
        if all.len() < 2 {
            return Self::One(all.pop());
        }
        all.sort_unstable();
        all.dedup();
        Self::Many(all.chunks(LIST_MAX / 2).map(<[_]>::to_vec).collect())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn key(rank: u32, chosen: u64, name: u64, node: usize) -> SiblingKey<u32> {
        SiblingKey {
            rank,
            chosen,
            name,
            node,
        }
    }

    fn order(siblings: &Siblings<u32>) -> Vec<usize> {
        siblings.iter().map(|one| one.node).collect()
    }

    #[test]
    fn siblings_are_sorted_by_rank_choice_name() {
        let all = [
            key(2, 0, 10, 1),
            key(1, 1, 10, 2),
            key(1, 0, 20, 3),
            key(1, 0, 10, 4),
        ];
        let mut siblings: Siblings<u32> = all.into_iter().collect();
        assert_eq!(order(&siblings), [4, 3, 2, 1]);
        for (key, left) in all.iter().zip([3, 2, 1, 0]) {
            assert_eq!(siblings.take(key).as_ref(), Some(key));
            assert_eq!(siblings.take(key), None);
            assert_eq!(siblings.iter().count(), left);
        }
        siblings.insert(all[2]);
        let mut one = Siblings::from_iter([all[2]]);
        assert_eq!(one.take(&all[0]), None);
        one.insert(all[2]);
        assert_eq!((order(&siblings), order(&one)), (vec![3], vec![3]));
        assert!(!siblings.is_empty());
    }

    #[test]
    fn name_numbers_run_out_between_neighbours() {
        let first = number(None, None).unwrap();
        let last = number(Some(first), None).unwrap();
        let mut after = last;
        let mut between = Vec::new();
        while let Some(one) = number(Some(first), Some(after)) {
            assert!(first < one && one < after);
            between.push(one);
            after = one;
        }
        assert_eq!(between.len(), 32);
        assert!(number(None, Some(first)).unwrap() < first);
        assert_eq!(number(None, Some(1)), None);
        assert_eq!(number(Some(u64::MAX - 1), None), None);
        assert!(numbers().take(1_000).is_sorted_by(|one, other| one < other));
    }

    proptest! {
        /// After any inserts, moves and removals, each key is there once and in order.
        #[test]
        fn siblings_are_a_sorted_set(acts in proptest::collection::vec((0u8..40, 0usize..300, 0u32..40), 0..900)) {
            let mut siblings = Siblings::default();
            let mut set = BTreeSet::new();
            let mut keys: Vec<_> = (0..300).map(|node| key(0, 0, node as u64 / 2, node)).collect();
            for (act, node, rank) in acts {
                let before = keys[node];
                let to = key(rank, u64::from(rank % 3), before.name, node);
                match act % 10 {
                    0 | 1 => prop_assert_eq!(siblings.take(&before), set.take(&before)),
                    2 | 3 => {
                        siblings.insert(before);
                        set.insert(before);
                    }
                    // Even nodes get other keys.
                    4 if act < 20 => {
                        let elsewhere = |own: SiblingKey<u32>| match own.node % 2 {
                            0 => key((own.rank * 7 + rank) % 40, own.chosen, own.name, own.node),
                            _ => own,
                        };
                        keys.iter_mut().for_each(|own| *own = elsewhere(*own));
                        siblings.reorder(|node| keys[node]);
                        set = set.into_iter().map(elsewhere).collect();
                    }
                    _ => {
                        siblings.shift(&before, to);
                        set.remove(&before);
                        set.insert(to);
                        keys[node] = to;
                    }
                }
                prop_assert!(siblings.iter().eq(&set));
                prop_assert_eq!(siblings.is_empty(), set.is_empty());
            }
            let same: Siblings<u32> = set.iter().rev().copied().collect();
            prop_assert!(same.iter().eq(&set));
        }
    }
}
