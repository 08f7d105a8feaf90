//! A map from agent ids to values, ordered by the number at the end of the id, for very many
//! agents.
//!
//! Plain data. All ids that one master assigns share their first forty bytes, and a tree of texts
//! compares a dozen of them per lookup, scattered over memory. The numbers are stored in the key,
//! and only one text is compared.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use protocol::AgentId;

/// An id with its number.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    number: u64,
    id: AgentId,
}

impl Key {
    fn of(id: &AgentId) -> Self {
        Self {
            number: number(id),
            id: id.clone(),
        }
    }
}

/// The number at the end of an id; 0 if there is none.
fn number(id: &AgentId) -> u64 {
    let text = id.as_str();
    let digits = text.bytes().rev().take_while(u8::is_ascii_digit).count();
    text[text.len() - digits..].parse().unwrap_or(0)
}

/// The order of [`ByAgent::iter`].
pub(crate) fn in_order(one: &AgentId, other: &AgentId) -> Ordering {
    (number(one), one).cmp(&(number(other), other))
}

/// Values by agent id.
#[derive(Clone, Debug)]
pub(crate) struct ByAgent<V>(BTreeMap<Key, V>);

impl<V> Default for ByAgent<V> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<V> FromIterator<(AgentId, V)> for ByAgent<V> {
    fn from_iter<I: IntoIterator<Item = (AgentId, V)>>(values: I) -> Self {
        let keyed = values.into_iter();
        Self(keyed.map(|(id, value)| (Key::of(&id), value)).collect())
    }
}

impl<V> ByAgent<V> {
    /// The value of this id.
    pub(crate) fn get(&self, id: &AgentId) -> Option<&V> {
        self.0.get(&Key::of(id))
    }

    /// The value of this id.
    pub(crate) fn get_mut(&mut self, id: &AgentId) -> Option<&mut V> {
        self.0.get_mut(&Key::of(id))
    }

    /// The value of this id, created if there is none.
    pub(crate) fn made(&mut self, id: &AgentId) -> &mut V
    where
        V: Default,
    {
        self.0.entry(Key::of(id)).or_default()
    }

    /// Inserts the value, or removes the entry for `None`.
    pub(crate) fn keep(&mut self, id: &AgentId, value: Option<V>) {
        match value {
            Some(value) => drop(self.0.insert(Key::of(id), value)),
            None => drop(self.remove(id)),
        }
    }

    /// Removes a value.
    pub(crate) fn remove(&mut self, id: &AgentId) -> Option<V> {
        // Usually already empty.
        match self.0.is_empty() {
            true => None,
            false => self.0.remove(&Key::of(id)),
        }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// All values.
    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.0.values_mut()
    }

    /// All entries, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&AgentId, &V)> {
        self.0.iter().map(|(key, value)| (&key.id, value))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn map_behaves_like_a_tree_with_numbers_in_order(
            steps in prop::collection::vec((0..3_usize, 0..300_u64, any::<bool>()), 0..60),
        ) {
            let stems = ["a-S", "b-S", "none"];
            let (mut ours, mut plain) = (ByAgent::default(), BTreeMap::new());
            for (at, (stem, number, put)) in steps.into_iter().enumerate() {
                let text = match stems[stem] {
                    "none" => "none".to_owned(),
                    stem => format!("{stem}{number}"),
                };
                let id = AgentId::new(text).unwrap();
                prop_assert_eq!(ours.get(&id), plain.get(&id));
                if put {
                    ours.keep(&id, Some(at));
                    plain.insert(id.clone(), at);
                } else {
                    prop_assert_eq!(ours.remove(&id), plain.remove(&id));
                }
                prop_assert_eq!(ours.get(&id).is_some(), put);
                prop_assert_eq!(ours.len(), plain.len());
            }
            prop_assert!(ours.iter().is_sorted_by(|(one, _), (other, _)| in_order(one, other).is_lt()));
            let numbers = ours.iter().map(|(id, _)| number(id));
            prop_assert!(numbers.is_sorted());
            prop_assert_eq!(ours.iter().collect::<BTreeMap<_, _>>(), plain.iter().collect());
        }
    }
}
