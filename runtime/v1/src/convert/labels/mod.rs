//! Lossless conversion of labels: order, duplicates and absent values survive.
//!
//! The types of `protocol` have a map: the last value of a key counts, and an absent value is
//! empty. If the map loses information, the original list is kept in the map too, as JSON under a
//! reserved key, and restored. A reserved key whose list contradicts the other labels is an
//! ordinary label. So nothing is lost in either direction.

pub(in crate::convert) mod messages;

use std::collections::BTreeMap;

use protocol::text::reserved_labels::LABELS;

use crate::convert::labels::messages::{ReservedKeys, keep_message, read_message};
use crate::schema::{Label, Labels};

/// Labels in their original order, without the reserved ones.
#[derive(Clone, Debug)]
pub struct OrderedLabels<'a> {
    /// The original list, if the map has lost information.
    list: Option<Labels>,
    map: &'a BTreeMap<String, String>,
    reserved_keys: ReservedKeys,
}

impl<'a> OrderedLabels<'a> {
    /// The labels of a map, without these reserved keys.
    pub(super) fn of(map: &'a BTreeMap<String, String>, reserved_keys: ReservedKeys) -> Self {
        let list = list(map, &reserved_keys);
        Self {
            list,
            map,
            reserved_keys,
        }
    }

    /// Each key with its value, if any.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Option<&str>)> {
        let list = self.list.iter().flat_map(|list| &list.labels);
        let list = list.map(|label| (label.key.as_str(), label.value.as_deref()));
        let map = self.list.is_none().then_some(self.map);
        let map = map.into_iter().flatten();
        let map = map.filter(|(key, _)| !self.reserved_keys.contains(&Some(key.as_str())));
        list.chain(map.map(|(key, value)| (key.as_str(), Some(value.as_str()))))
    }

    /// The labels as a message; none if there are none.
    pub fn message(&self) -> Option<Labels> {
        if let Some(list) = &self.list {
            return Some(list.clone());
        }
        let label = |(key, value): (&str, Option<&str>)| Label {
            key: key.to_owned(),
            value: value.map(str::to_owned),
        };
        let labels: Vec<Label> = self.iter().map(label).collect();
        (!labels.is_empty()).then_some(Labels { labels })
    }
}

/// The list that is kept in this map, if it agrees with the map without the reserved keys.
fn list(map: &BTreeMap<String, String>, reserved_keys: &ReservedKeys) -> Option<Labels> {
    let list: Labels = read_message(map, LABELS)?;
    let mut others = map.clone();
    others.retain(|key, _| !reserved_keys.contains(&Some(key.as_str())));
    // Ends: a kept list that contains another one is longer.
    (read_list(&list) == others).then_some(list)
}

/// The labels of a framework.
pub fn labels(map: &BTreeMap<String, String>) -> OrderedLabels<'_> {
    OrderedLabels::of(map, ReservedKeys::default())
}

/// Converts a list to a map.
pub(super) fn read_labels(list: Option<&Labels>) -> BTreeMap<String, String> {
    list.map(read_list).unwrap_or_default()
}

fn read_list(list: &Labels) -> BTreeMap<String, String> {
    let mut map = by_key(list);
    let original = list.labels.iter();
    let original = original.map(|label| (label.key.as_str(), label.value.as_deref()));
    if !labels(&map).iter().eq(original) {
        keep_message(&mut map, LABELS, Some(list));
    }
    map
}

/// By key; the last value of a key counts, and an absent value is empty.
fn by_key(list: &Labels) -> BTreeMap<String, String> {
    let pair = |label: &Label| (label.key.clone(), label.value.clone().unwrap_or_default());
    list.labels.iter().map(pair).collect()
}

/// Converts a list to a map and adds messages under reserved keys. Labels of the list that are
/// valid under a reserved key (`reserved`) are not ordinary labels either.
pub(super) fn read_with(
    list: Option<&Labels>,
    keep_all: impl FnOnce(&mut BTreeMap<String, String>),
    reserved: impl Fn(&BTreeMap<String, String>) -> ReservedKeys,
) -> BTreeMap<String, String> {
    let mut all = list.map(by_key).unwrap_or_default();
    keep_all(&mut all);
    let reserved_keys = reserved(&all);
    if reserved_keys == ReservedKeys::default() {
        return read_labels(list);
    }
    let is_reserved = |key: &str| reserved_keys.contains(&Some(key));
    let mut others = list.cloned().unwrap_or_default();
    others.labels.retain(|label| !is_reserved(&label.key));
    let mut map = read_list(&others);
    map.extend(all.into_iter().filter(|(key, _)| is_reserved(key)));
    map
}
