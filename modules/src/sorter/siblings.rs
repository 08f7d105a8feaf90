//! Siblings: what lies right below one node of the tree, in the order of their places.
//!
//! Knows nothing of shares, roles and names: a rank is whatever the tree's order makes of them, and for names there are numbers. Who is
//! given something moves from the front to a place further back, thousands of times in a run, so places are small and lie side by side in
//! short lists, of which a move touches one or two.

use std::cmp::Ordering;

/// How many places a list has before it becomes two.
const LIST_MAX: usize = 64;
/// What lies between the numbers of two names that were numbered together.
const STRIDE: u64 = 1 << 32;

/// Where a node stands among its siblings: by rank, then by how often it was chosen, then by name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place<R> {
    pub(super) rank: R,
    pub(super) chosen: u64,
    /// Its name's, see [`number`].
    pub(super) name: u64,
    pub(super) node: usize,
}

impl<R: Ord> Ord for Place<R> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.rank
            .cmp(&other.rank)
            .then_with(|| self.chosen.cmp(&other.chosen))
            .then_with(|| self.name.cmp(&other.name))
            .then_with(|| self.node.cmp(&other.node))
    }
}

impl<R: Ord> PartialOrd for Place<R> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<R: Ord> PartialEq for Place<R> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<R: Ord> Eq for Place<R> {}

/// A number for a name that stands between names of these numbers, or is the first or the last; none if there is none left between them:
/// then all are to be numbered anew, see [`numbers`].
pub(super) fn number(before: Option<u64>, after: Option<u64>) -> Option<u64> {
    let low = before.unwrap_or(0);
    match after {
        None => low.checked_add(STRIDE),
        Some(high) => Some(low + high.checked_sub(low)? / 2).filter(|between| *between > low),
    }
}

/// Numbers for names in their order, with room between them.
pub(super) fn numbers() -> impl Iterator<Item = u64> {
    (1..).map(|n: u64| n.saturating_mul(STRIDE))
}

/// Nodes by their places. One, which most nodes have below them, needs no list.
#[derive(Clone, Debug)]
pub(super) enum Siblings<R> {
    One(Option<Place<R>>),
    /// In order, none of them empty.
    Many(Vec<Vec<Place<R>>>),
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
    pub(super) fn iter(&self) -> impl Iterator<Item = &Place<R>> {
        let (one, lists) = match self {
            Self::One(one) => (one.as_ref(), None),
            Self::Many(lists) => (None, Some(lists)),
        };
        one.into_iter().chain(lists.into_iter().flatten().flatten())
    }

    /// Puts one in its place. One that is there already stays.
    pub(super) fn insert(&mut self, place: Place<R>) {
        match self {
            Self::One(one) => match *one {
                None => *one = Some(place),
                Some(other) if other == place => {}
                Some(other) => *self = Self::Many(vec![vec![other.min(place), other.max(place)]]),
            },
            Self::Many(lists) => insert(lists, place),
        }
    }

    /// Takes out the one at this place, if it is there.
    pub(super) fn take(&mut self, place: &Place<R>) -> Option<Place<R>> {
        match self {
            Self::One(one) => one.take_if(|own| own.node == place.node),
            Self::Many(lists) => {
                let list = list_of(lists, place);
                let at = lists.get(list)?.binary_search(place).ok()?;
                let taken = lists[list].remove(at);
                if lists[list].is_empty() {
                    lists.remove(list);
                }
                Some(taken)
            }
        }
    }

    /// Moves the one at `from`, or puts it in if it is not there.
    pub(super) fn shift(&mut self, from: &Place<R>, to: Place<R>) {
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

    /// All may stand elsewhere now; `place` says where by node. Those that are in order still are not sorted.
    pub(super) fn reorder(&mut self, mut place: impl FnMut(usize) -> Place<R>) {
        let lists = match self {
            Self::One(one) => return one.iter_mut().for_each(|one| *one = place(one.node)),
            Self::Many(lists) => lists,
        };
        let own = lists.iter_mut().flatten();
        own.for_each(|own| *own = place(own.node));
        if !lists.iter().flatten().is_sorted() {
            let mut all: Vec<_> = lists.iter().flatten().copied().collect();
            all.sort_unstable();
            let own = lists.iter_mut().flatten();
            own.zip(all).for_each(|(own, place)| *own = place);
        }
    }

    /// Names have other numbers now, in the same order; `number` says which by node.
    pub(super) fn renumber(&mut self, number: impl Fn(usize) -> u64) {
        let own: &mut dyn Iterator<Item = &mut Place<R>> = match self {
            Self::One(one) => &mut one.iter_mut(),
            Self::Many(lists) => &mut lists.iter_mut().flatten(),
        };
        own.for_each(|place| place.name = number(place.node));
    }
}

/// Which list a place belongs to: the last one that does not begin after it.
fn list_of<R: Ord>(lists: &[Vec<Place<R>>], place: &Place<R>) -> usize {
    let begins_after = |list: &Vec<Place<R>>| list.first().is_some_and(|first| first > place);
    // Most of what moves is among the first.
    match lists.get(1).is_none_or(begins_after) {
        true => 0,
        false => lists.partition_point(|list| !begins_after(list)) - 1,
    }
}

fn insert<R: Ord + Copy>(lists: &mut Vec<Vec<Place<R>>>, place: Place<R>) {
    let at = list_of(lists, &place);
    let Some(list) = lists.get_mut(at) else {
        return lists.push(vec![place]);
    };
    let Err(gap) = list.binary_search(&place) else {
        return;
    };
    list.insert(gap, place);
    if list.len() > LIST_MAX {
        let rest = list.split_off(LIST_MAX / 2);
        lists.insert(at + 1, rest);
    }
}

/// Moves the one at that index within a list.
fn shift_within<R: Ord + Copy>(list: &mut [Place<R>], at: usize, to: Place<R>) {
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

impl<R: Ord + Copy> FromIterator<Place<R>> for Siblings<R> {
    fn from_iter<I: IntoIterator<Item = Place<R>>>(all: I) -> Self {
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

    fn place(rank: u32, chosen: u64, name: u64, node: usize) -> Place<u32> {
        Place {
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
    fn siblings_are_in_order_of_rank_then_choice_then_name() {
        let all = [
            place(2, 0, 10, 1),
            place(1, 1, 10, 2),
            place(1, 0, 20, 3),
            place(1, 0, 10, 4),
        ];
        let mut siblings: Siblings<u32> = all.into_iter().collect();
        assert_eq!(order(&siblings), [4, 3, 2, 1]);
        for (place, left) in all.iter().zip([3, 2, 1, 0]) {
            assert_eq!(siblings.take(place).as_ref(), Some(place));
            assert_eq!(siblings.take(place), None);
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
    fn names_are_numbered_until_there_is_no_number_left_between_two() {
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
        /// Whatever is put in, moved and taken out, what is there is there once and in order.
        #[test]
        fn siblings_are_a_sorted_set(acts in proptest::collection::vec((0u8..40, 0usize..300, 0u32..40), 0..900)) {
            let mut siblings = Siblings::default();
            let mut set = BTreeSet::new();
            let mut places: Vec<_> = (0..300).map(|node| place(0, 0, node as u64 / 2, node)).collect();
            for (act, node, rank) in acts {
                let before = places[node];
                let to = place(rank, u64::from(rank % 3), before.name, node);
                match act % 10 {
                    0 | 1 => prop_assert_eq!(siblings.take(&before), set.take(&before)),
                    2 | 3 => {
                        siblings.insert(before);
                        set.insert(before);
                    }
                    // Whoever has an even node stands elsewhere, and in what order depends.
                    4 if act < 20 => {
                        let elsewhere = |own: Place<u32>| match own.node % 2 {
                            0 => place((own.rank * 7 + rank) % 40, own.chosen, own.name, own.node),
                            _ => own,
                        };
                        places.iter_mut().for_each(|own| *own = elsewhere(*own));
                        siblings.reorder(|node| places[node]);
                        set = set.into_iter().map(elsewhere).collect();
                    }
                    _ => {
                        siblings.shift(&before, to);
                        set.remove(&before);
                        set.insert(to);
                        places[node] = to;
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
