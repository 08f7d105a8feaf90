//! Labels as they were said: in their order, each as often as it was said, with a value or without.
//!
//! In our words labels are a map. Where that says less than was said, the list is kept among them too, as JSON under a mark of its own, and shown again; the map has the last of
//! several values of a key then, and an empty one for none. A mark that does not say what the other labels say is a label like any other. So nothing is lost in either direction.

use std::collections::BTreeMap;

use protocol::marks::LABELS;

use super::marked::{Marks, keep, kept};
use crate::schema::{Label, Labels};

/// Labels as they were said, without what is shown in a place of its own.
#[derive(Clone, Debug)]
pub struct LabelsSaid<'a> {
    /// As they were said, if that is more than the map says.
    list: Option<Labels>,
    map: &'a BTreeMap<String, String>,
    marks: Marks,
}

impl<'a> LabelsSaid<'a> {
    /// What is said by these labels beside these marks.
    pub(super) fn of(map: &'a BTreeMap<String, String>, marks: Marks) -> Self {
        let list = list(map, &marks);
        Self { list, map, marks }
    }

    /// Each with its value, if it has one.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Option<&str>)> {
        let list = self.list.iter().flat_map(|list| &list.labels);
        let list = list.map(|label| (label.key.as_str(), label.value.as_deref()));
        let map = self.list.is_none().then_some(self.map);
        let map = map.into_iter().flatten();
        let map = map.filter(|(key, _)| !self.marks.contains(&Some(key.as_str())));
        list.chain(map.map(|(key, value)| (key.as_str(), Some(value.as_str()))))
    }

    /// The same as a message; none if there are none.
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

/// The list that is kept in this map, if it says what the map says beside these marks.
fn list(map: &BTreeMap<String, String>, marks: &Marks) -> Option<Labels> {
    let list: Labels = kept(map, LABELS)?;
    let mut others = map.clone();
    others.retain(|key, _| !marks.contains(&Some(key.as_str())));
    // In a list that is kept another may be, which is shorter: this ends.
    (read_list(&list) == others).then_some(list)
}

/// The labels of a framework.
pub fn labels(map: &BTreeMap<String, String>) -> LabelsSaid<'_> {
    LabelsSaid::of(map, Marks::default())
}

/// The map of a list.
pub(super) fn read_labels(list: Option<&Labels>) -> BTreeMap<String, String> {
    list.map(read_list).unwrap_or_default()
}

fn read_list(list: &Labels) -> BTreeMap<String, String> {
    let mut map = by_key(list);
    let said = list.labels.iter();
    let said = said.map(|label| (label.key.as_str(), label.value.as_deref()));
    if !labels(&map).iter().eq(said) {
        keep(&mut map, LABELS, Some(list));
    }
    map
}

/// By key; of several with one key the last counts, and one without a value has an empty one.
fn by_key(list: &Labels) -> BTreeMap<String, String> {
    let pair = |label: &Label| (label.key.clone(), label.value.clone().unwrap_or_default());
    list.labels.iter().map(pair).collect()
}

/// The map of a list, and these messages under their marks. What the list itself says under a mark, so that it is `said`, is none of the labels either.
pub(super) fn read_with(
    list: Option<&Labels>,
    keep_all: impl FnOnce(&mut BTreeMap<String, String>),
    said: impl Fn(&BTreeMap<String, String>) -> Marks,
) -> BTreeMap<String, String> {
    let mut all = list.map(by_key).unwrap_or_default();
    keep_all(&mut all);
    let marks = said(&all);
    if marks == Marks::default() {
        return read_labels(list);
    }
    let is_mark = |key: &str| marks.contains(&Some(key));
    let mut others = list.cloned().unwrap_or_default();
    others.labels.retain(|label| !is_mark(&label.key));
    let mut map = read_list(&others);
    map.extend(all.into_iter().filter(|(key, _)| is_mark(key)));
    map
}
