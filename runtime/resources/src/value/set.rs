//! Sets of items: sorted, each item once.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};

use crate::error::Invalid;

/// A set of texts, e.g. `{a,b,c}`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize)]
pub struct Set(Vec<Box<str>>);

impl Set {
    /// The set of these items. A repeated item counts once, an empty one is rejected.
    pub fn new<I, T>(items: I) -> Result<Self, Invalid>
    where
        I: IntoIterator<Item = T>,
        T: Into<Box<str>>,
    {
        let mut all: Vec<Box<str>> = items.into_iter().map(Into::into).collect();
        if let Some(bad) = all
            .iter()
            .find(|item| item.is_empty() || item.contains(char::is_control))
        {
            return Err(Invalid::new(
                "set",
                bad,
                "items that are not empty, without control characters",
            ));
        }
        all.sort_unstable();
        all.dedup();
        Ok(Self(all))
    }

    /// The items in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &str> {
        self.0.iter().map(AsRef::as_ref)
    }

    /// The number of items.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no items.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether it contains `item`.
    pub fn contains_item(&self, item: &str) -> bool {
        self.0
            .binary_search_by(|own| own.as_ref().cmp(item))
            .is_ok()
    }

    /// Whether it contains every item of `other`.
    pub fn contains(&self, other: &Self) -> bool {
        other.len() <= self.len() && other.iter().all(|item| self.contains_item(item))
    }

    /// Whether the two have no item in common.
    pub fn is_disjoint(&self, other: &Self) -> bool {
        !other.iter().any(|item| self.contains_item(item))
    }

    /// Adds the items of `other`.
    pub fn add(&mut self, other: &Self) {
        self.0.extend(other.0.iter().cloned());
        self.0.sort(); // two sorted runs: linear
        self.0.dedup();
    }

    /// Removes the items of `other`; missing ones are ignored.
    pub fn subtract(&mut self, other: &Self) {
        self.0.retain(|item| !other.contains_item(item));
    }

    /// The items in both.
    pub fn intersection(&self, other: &Self) -> Self {
        Self(
            self.0
                .iter()
                .filter(|item| other.contains_item(item))
                .cloned()
                .collect(),
        )
    }
}

impl fmt::Display for Set {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{}}}", self.0.join(","))
    }
}

impl fmt::Debug for Set {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl<'de> Deserialize<'de> for Set {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let items = Vec::<Box<str>>::deserialize(deserializer)?;
        Self::new(items).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(text: &str) -> Set {
        Set::new(text.chars().map(|c| c.to_string())).unwrap()
    }

    #[test]
    fn a_set_holds_each_item_once_and_in_order() {
        assert_eq!(set("cabba").to_string(), "{a,b,c}");
        assert!(set("abc").contains(&set("ca")) && !set("ab").contains(&set("c")));
        let mut sum = set("ac");
        sum.add(&set("bd"));
        assert_eq!(sum, set("abcd"));
        sum.subtract(&set("bdz"));
        assert_eq!(sum, set("ac"));
        assert_eq!(set("abc").intersection(&set("bcd")), set("bc"));
        assert!(Set::new([""]).is_err());
    }
}
