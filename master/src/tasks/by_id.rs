//! A map from task ids to values, ordered by id, for very many tasks.
//!
//! Plain data. The first bytes of an id are stored in the key, so that most comparisons in the tree
//! need no access to the text elsewhere in memory. Behaves like a [`BTreeMap`] by id.

use std::collections::BTreeMap;
use std::ops::Bound;

use protocol::TaskId;

/// Bytes of an id in the key.
const HEAD: usize = size_of::<u128>();

/// An id with its first bytes as a number, which orders like the ids: no id contains the padding
/// byte 0.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    head: u128,
    id: TaskId,
}

impl Key {
    fn of(id: &TaskId) -> Self {
        let (text, mut head) = (id.as_str().as_bytes(), [0; HEAD]);
        let length = text.len().min(HEAD);
        head[..length].copy_from_slice(&text[..length]);
        Self {
            head: u128::from_be_bytes(head),
            id: id.clone(),
        }
    }
}

/// Values by task id.
#[derive(Clone, Debug)]
pub struct ById<V>(BTreeMap<Key, V>);

impl<V> Default for ById<V> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<V> ById<V> {
    /// The value of this id.
    pub fn get(&self, id: &TaskId) -> Option<&V> {
        self.0.get(&Key::of(id))
    }

    /// The value of this id.
    pub fn get_mut(&mut self, id: &TaskId) -> Option<&mut V> {
        self.0.get_mut(&Key::of(id))
    }

    /// Whether there is a value of this id.
    pub fn contains_key(&self, id: &TaskId) -> bool {
        self.0.contains_key(&Key::of(id))
    }

    /// Inserts a value; returns the previous one.
    pub fn insert(&mut self, id: &TaskId, value: V) -> Option<V> {
        self.0.insert(Key::of(id), value)
    }

    /// Removes a value.
    pub fn remove(&mut self, id: &TaskId) -> Option<V> {
        self.0.remove(&Key::of(id))
    }

    /// Keeps the values for which `keep` is true.
    pub fn retain(&mut self, keep: impl Fn(&V) -> bool) {
        self.0.retain(|_, value| keep(value));
    }

    /// The ids, in order.
    pub fn keys(&self) -> impl Iterator<Item = &TaskId> {
        self.0.keys().map(|key| &key.id)
    }

    /// The values, in the order of their ids.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.0.values()
    }

    /// The values of the ids after this one, in the order of their ids; all values for `None`.
    pub fn after(&self, id: Option<&TaskId>) -> impl Iterator<Item = &V> {
        let from = id.map_or(Bound::Unbounded, |id| Bound::Excluded(Key::of(id)));
        self.0
            .range((from, Bound::Unbounded))
            .map(|(_, value)| value)
    }

    /// All entries, in the order of their ids.
    pub fn iter(&self) -> impl Iterator<Item = (&TaskId, &V)> {
        self.0.iter().map(|(key, value)| (&key.id, value))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn map_behaves_like_a_tree_by_id(
            steps in prop::collection::vec(("[ab\u{e9}]{1,3}", 0..20_usize, any::<bool>()), 0..60),
        ) {
            let (mut ours, mut plain) = (ById::default(), BTreeMap::new());
            for (at, (text, times, put)) in steps.into_iter().enumerate() {
                let id = TaskId::new(format!("{}{text}", "c".repeat(times))).unwrap();
                prop_assert_eq!(ours.get(&id), plain.get(&id));
                if put {
                    prop_assert_eq!(ours.insert(&id, at), plain.insert(id.clone(), at));
                } else {
                    prop_assert_eq!(ours.remove(&id), plain.remove(&id));
                }
                prop_assert_eq!(ours.contains_key(&id), put);
            }
            prop_assert!(ours.iter().eq(plain.iter()));
            prop_assert!(ours.keys().eq(plain.keys()) && ours.values().eq(plain.values()));
            prop_assert!(ours.after(None).eq(plain.values()));
            for id in plain.keys() {
                let rest = (Bound::Excluded(id), Bound::Unbounded);
                prop_assert!(ours.after(Some(id)).eq(plain.range::<TaskId, _>(rest).map(|(_, at)| at)));
            }
        }
    }
}
