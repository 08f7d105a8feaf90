//! Siblings: what lies right below one node of the tree, in the order of their places.
//!
//! Knows nothing of shares and roles: a rank is whatever the tree's order makes of them.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Where a node stands among its siblings: by rank, then by how often it was chosen, then by name.
#[derive(Clone, Debug)]
pub(super) struct Place<R> {
    pub(super) rank: R,
    pub(super) chosen: u64,
    pub(super) name: Label,
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

/// A name whose beginning stands beside the pointer to it, so that two that are compared are seldom looked up.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Label {
    beginning: u128,
    text: Arc<str>,
}

impl Label {
    pub(super) fn new(text: Arc<str>) -> Self {
        let mut beginning = [0; 16];
        beginning
            .iter_mut()
            .zip(text.bytes())
            .for_each(|(own, byte)| *own = byte);
        Self {
            beginning: u128::from_be_bytes(beginning),
            text,
        }
    }

    pub(super) fn as_str(&self) -> &str {
        &self.text
    }
}

/// Nodes by their places. One, which most nodes have below them, needs no tree.
#[derive(Clone, Debug)]
pub(super) enum Siblings<R> {
    One(Option<Place<R>>),
    Many(BTreeSet<Place<R>>),
}

impl<R> Default for Siblings<R> {
    fn default() -> Self {
        Self::One(None)
    }
}

impl<R: Ord + Clone> Siblings<R> {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::One(one) => usize::from(one.is_some()),
            Self::Many(many) => many.len(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// In order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Place<R>> {
        let (one, many) = match self {
            Self::One(one) => (one.as_ref(), None),
            Self::Many(many) => (None, Some(many)),
        };
        one.into_iter().chain(many.into_iter().flatten())
    }

    pub(super) fn insert(&mut self, place: Place<R>) {
        match self {
            Self::One(one) => match one.take() {
                None => *one = Some(place),
                Some(other) => *self = Self::Many([other, place].into()),
            },
            Self::Many(many) => drop(many.insert(place)),
        }
    }

    /// Takes out the one at this place, if it is there.
    pub(super) fn take(&mut self, place: &Place<R>) -> Option<Place<R>> {
        match self {
            Self::One(one) => one.take_if(|own| own.node == place.node),
            Self::Many(many) => many.take(place),
        }
    }
}

impl<R: Ord + Clone> FromIterator<Place<R>> for Siblings<R> {
    fn from_iter<I: IntoIterator<Item = Place<R>>>(all: I) -> Self {
        let mut siblings = Self::default();
        all.into_iter().for_each(|place| siblings.insert(place));
        siblings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(rank: u32, chosen: u64, name: &str, node: usize) -> Place<u32> {
        Place {
            rank,
            chosen,
            name: Label::new(Arc::from(name)),
            node,
        }
    }

    #[test]
    fn names_are_in_order_whatever_their_length() {
        let mut names = vec![
            "",
            "a",
            "a\0",
            "a\0b",
            "a-rather-long-name-1",
            "a-rather-long-name-12",
            "a-rather-long-name-2",
            "b",
            "\u{e9}",
        ];
        names.sort_unstable();
        let labels: Vec<Label> = names
            .iter()
            .map(|name| Label::new(Arc::from(*name)))
            .collect();
        assert!(labels.is_sorted());
    }

    #[test]
    fn siblings_are_in_order_of_rank_then_choice_then_name() {
        let all = [
            place(2, 0, "a", 1),
            place(1, 1, "a", 2),
            place(1, 0, "b", 3),
            place(1, 0, "a", 4),
        ];
        let mut siblings: Siblings<u32> = all.iter().cloned().collect();
        let order =
            |siblings: &Siblings<u32>| siblings.iter().map(|one| one.node).collect::<Vec<_>>();
        assert_eq!(order(&siblings), [4, 3, 2, 1]);
        for (place, left) in all.iter().zip([3, 2, 1, 0]) {
            assert_eq!(siblings.take(place).as_ref(), Some(place));
            assert_eq!((siblings.take(place), siblings.len()), (None, left));
        }
        siblings.insert(all[2].clone());
        let mut one = Siblings::from_iter([all[2].clone()]);
        assert_eq!(one.take(&all[0]), None);
        assert_eq!((order(&siblings), order(&one)), (vec![3], vec![3]));
        assert!(!siblings.is_empty());
    }
}
