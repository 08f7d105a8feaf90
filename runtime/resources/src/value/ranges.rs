//! Ranges of whole numbers, such as ports: sorted, disjoint and coalesced.
//!
//! A few ranges taken from many (a task's ports from an agent's) cost a binary search each. Two
//! long lists are walked once, side by side.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};
use smallvec::SmallVec;

use crate::error::Invalid;

/// At this ratio of lengths or more, the short list is searched in the long one.
const SEARCH_RATIO: usize = 8;

/// All whole numbers from `begin` to `end`, inclusive.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
pub struct Range {
    begin: u64,
    end: u64,
}

impl Range {
    /// The numbers from `begin` to `end`, inclusive; `begin` must not be larger.
    pub fn new(begin: u64, end: u64) -> Result<Self, Invalid> {
        if begin > end {
            let value = format!("{begin}-{end}");
            return Err(Invalid::new(
                "range",
                value,
                "a begin that is not larger than its end",
            ));
        }
        Ok(Self { begin, end })
    }

    /// The first number.
    pub const fn begin(self) -> u64 {
        self.begin
    }

    /// The last number.
    pub const fn end(self) -> u64 {
        self.end
    }
}

impl<'de> Deserialize<'de> for Range {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(rename = "Range")]
        struct Raw {
            begin: u64,
            end: u64,
        }
        let Raw { begin, end } = Raw::deserialize(deserializer)?;
        Self::new(begin, end).map_err(serde::de::Error::custom)
    }
}

type List = SmallVec<[Range; 2]>;

/// A set of whole numbers as ranges, e.g. `[21000-29000]`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Ranges(List);

impl Ranges {
    /// The numbers of these ranges, which may be unsorted and overlap.
    pub fn new(ranges: impl IntoIterator<Item = Range>) -> Self {
        let mut all: List = ranges.into_iter().collect();
        if !all.is_sorted_by(|a, b| a.end < b.begin && b.begin - a.end > 1) {
            all.sort_unstable();
            let mut joined = List::new();
            all.into_iter().for_each(|range| append(&mut joined, range));
            all = joined;
        }
        Self(all)
    }

    /// The ranges in order.
    pub fn as_slice(&self) -> &[Range] {
        &self.0
    }

    /// The ranges in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Range> {
        self.0.iter().copied()
    }

    /// Whether there are no numbers.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The number of numbers.
    pub fn count(&self) -> u128 {
        self.0
            .iter()
            .map(|range| u128::from(range.end - range.begin) + 1)
            .sum()
    }

    /// Whether it contains `number`.
    pub fn contains_number(&self, number: u64) -> bool {
        let at = self.0.partition_point(|range| range.end < number);
        self.0.get(at).is_some_and(|range| range.begin <= number)
    }

    /// Whether it contains every number of `other`.
    pub fn contains(&self, other: &Self) -> bool {
        let (own, search) = (&self.0, self.searches(other));
        let mut at = 0;
        other.0.iter().all(|range| {
            at += first_reaching(&own[at..], range.begin, search);
            own.get(at)
                .is_some_and(|held| held.begin <= range.begin && range.end <= held.end)
        })
    }

    /// Whether the two have no number in common.
    pub fn is_disjoint(&self, other: &Self) -> bool {
        let (long, short) = if self.0.len() < other.0.len() {
            (other, self)
        } else {
            (self, other)
        };
        let search = long.searches(short);
        let mut at = 0;
        short.0.iter().all(|range| {
            at += first_reaching(&long.0[at..], range.begin, search);
            long.0.get(at).is_none_or(|held| held.begin > range.end)
        })
    }

    /// Adds the numbers of `other`.
    pub fn add(&mut self, other: &Self) {
        if self.searches(other) {
            return other.0.iter().for_each(|range| self.insert(*range));
        }
        let mut joined = List::with_capacity(self.0.len() + other.0.len());
        let (mut own, mut new) = (self.0.iter().peekable(), other.0.iter().peekable());
        while let (Some(a), Some(b)) = (own.peek(), new.peek()) {
            let next = if a.begin <= b.begin {
                own.next()
            } else {
                new.next()
            };
            next.into_iter()
                .for_each(|range| append(&mut joined, *range));
        }
        own.chain(new).for_each(|range| append(&mut joined, *range));
        self.0 = joined;
    }

    /// Removes the numbers of `other`; missing ones are ignored.
    pub fn subtract(&mut self, other: &Self) {
        if self.searches(other) {
            return other.0.iter().for_each(|range| self.remove(*range));
        }
        let mut left = List::with_capacity(self.0.len());
        let mut at = 0;
        for held in &self.0 {
            let mut begin = Some(held.begin);
            while at < other.0.len() && other.0[at].end < held.begin {
                at += 1;
            }
            let mut cut = at;
            while let (Some(from), Some(range)) = (begin, other.0.get(cut)) {
                if range.begin > held.end {
                    break;
                }
                if range.begin > from {
                    left.push(Range {
                        begin: from,
                        end: range.begin - 1,
                    });
                }
                begin = if range.end < held.end {
                    Some(range.end + 1)
                } else {
                    None
                };
                cut += 1;
            }
            at = cut.saturating_sub(1).max(at);
            left.extend(begin.map(|begin| Range {
                begin,
                end: held.end,
            }));
        }
        self.0 = left;
    }

    /// The numbers in both.
    pub fn intersection(&self, other: &Self) -> Self {
        let mut rest = self.clone();
        rest.subtract(other);
        let mut both = self.clone();
        both.subtract(&rest);
        both
    }

    /// The `count` lowest numbers, if there are enough.
    pub fn lowest(&self, count: u64) -> Option<Self> {
        let mut wanted = count;
        let mut taken = List::new();
        for range in &self.0 {
            if wanted == 0 {
                break;
            }
            let end = range.end.min(range.begin.saturating_add(wanted - 1));
            wanted -= (end - range.begin).saturating_add(1).min(wanted);
            taken.push(Range {
                begin: range.begin,
                end,
            });
        }
        (wanted == 0).then_some(Self(taken))
    }

    fn searches(&self, other: &Self) -> bool {
        other.0.len() * SEARCH_RATIO <= self.0.len()
    }

    fn insert(&mut self, new: Range) {
        let from = self
            .0
            .partition_point(|held| held.end < new.begin && new.begin - held.end > 1);
        let to = self
            .0
            .partition_point(|held| held.begin <= new.end.saturating_add(1));
        if from == to {
            return self.0.insert(from, new);
        }
        let begin = self.0[from].begin.min(new.begin);
        let end = self.0[to - 1].end.max(new.end);
        self.0[from] = Range { begin, end };
        self.0.drain(from + 1..to);
    }

    fn remove(&mut self, cut: Range) {
        let from = self.0.partition_point(|held| held.end < cut.begin);
        let to = self.0.partition_point(|held| held.begin <= cut.end);
        if from >= to {
            return;
        }
        let (first, last) = (self.0[from], self.0[to - 1]);
        let before = (first.begin < cut.begin).then(|| Range {
            begin: first.begin,
            end: cut.begin - 1,
        });
        let after = (last.end > cut.end).then(|| Range {
            begin: cut.end + 1,
            end: last.end,
        });
        match (before, after) {
            (Some(before), Some(after)) => {
                self.0[from] = before;
                if to - from == 1 {
                    self.0.insert(to, after);
                } else {
                    self.0[from + 1] = after;
                    self.0.drain(from + 2..to);
                }
            }
            (Some(stays), None) | (None, Some(stays)) => {
                self.0[from] = stays;
                self.0.drain(from + 1..to);
            }
            (None, None) => drop(self.0.drain(from..to)),
        }
    }
}

/// The number of ranges that end before `number`.
fn first_reaching(ranges: &[Range], number: u64, search: bool) -> usize {
    if search {
        ranges.partition_point(|held| held.end < number)
    } else {
        ranges.iter().take_while(|held| held.end < number).count()
    }
}

/// Appends a range that begins no earlier than the last one, and joins the two if they touch.
fn append(joined: &mut List, range: Range) {
    match joined.last_mut() {
        Some(last) if range.begin <= last.end.saturating_add(1) => {
            last.end = last.end.max(range.end)
        }
        _ => joined.push(range),
    }
}

impl FromIterator<Range> for Ranges {
    fn from_iter<I: IntoIterator<Item = Range>>(ranges: I) -> Self {
        Self::new(ranges)
    }
}

impl fmt::Display for Ranges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (n, range) in self.0.iter().enumerate() {
            let comma = if n == 0 { "" } else { "," };
            write!(f, "{comma}{}-{}", range.begin, range.end)?;
        }
        f.write_str("]")
    }
}

impl fmt::Debug for Ranges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Ranges {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(&self.0)
    }
}

impl<'de> Deserialize<'de> for Ranges {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self::new(Vec::<Range>::deserialize(deserializer)?))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn ranges(pairs: &[(u64, u64)]) -> Ranges {
        pairs
            .iter()
            .map(|(begin, end)| Range::new(*begin, *end).unwrap())
            .collect()
    }

    fn numbers(ranges: &Ranges) -> BTreeSet<u64> {
        ranges
            .iter()
            .flat_map(|range| range.begin..=range.end)
            .collect()
    }

    #[test]
    fn touching_ranges_are_one() {
        assert_eq!(ranges(&[(5, 7), (1, 2), (3, 4)]).to_string(), "[1-7]");
        assert_eq!(ranges(&[(0, u64::MAX), (3, 4)]).count(), 1 << 64);
        assert!(Range::new(2, 1).is_err());
    }

    #[test]
    fn the_lowest_numbers_are_taken_across_gaps() {
        let ports = ranges(&[(1, 2), (5, 9)]);
        assert_eq!(ports.lowest(4), Some(ranges(&[(1, 2), (5, 6)])));
        assert_eq!(
            (ports.lowest(0), ports.lowest(8)),
            (Some(Ranges::default()), None)
        );
        assert_eq!(
            ranges(&[(0, u64::MAX)]).lowest(u64::MAX).unwrap().count(),
            (1 << 64) - 1
        );
    }

    fn any_ranges(most: usize) -> impl Strategy<Value = Ranges> {
        proptest::collection::vec((0u64..400, 0u64..6), 0..most).prop_map(|pairs| {
            pairs
                .into_iter()
                .map(|(at, long)| Range {
                    begin: at,
                    end: at + long,
                })
                .collect()
        })
    }

    proptest! {
        /// Short with long and long with long are different code paths; both must be set algebra.
        // Covers S76 in part: the ranges and the default.
        #[test]
        fn ranges_are_sets_of_numbers(a in any_ranges(80), b in any_ranges(40), c in any_ranges(3)) {
            for (a, b) in [(&a, &b), (&b, &a), (&a, &c), (&c, &a)] {
                let (x, y) = (numbers(a), numbers(b));
                let (mut sum, mut rest) = (a.clone(), a.clone());
                sum.add(b);
                rest.subtract(b);
                prop_assert_eq!(&sum, &sum.iter().collect::<Ranges>());
                prop_assert_eq!(numbers(&sum), x.union(&y).copied().collect::<BTreeSet<_>>());
                prop_assert_eq!(numbers(&rest), x.difference(&y).copied().collect::<BTreeSet<_>>());
                prop_assert_eq!(numbers(&a.intersection(b)), x.intersection(&y).copied().collect::<BTreeSet<_>>());
                prop_assert_eq!(a.contains(b), x.is_superset(&y));
                prop_assert_eq!(a.is_disjoint(b), x.is_disjoint(&y));
                prop_assert!(sum.contains(a) && sum.contains(b));
            }
        }
    }
}
