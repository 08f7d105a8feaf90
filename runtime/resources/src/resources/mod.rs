//! The canonical collection of resources: sorted by slot, without empty entries, each slot once.
//!
//! Addition walks both collections side by side, and gallops where one is much longer. Indivisible
//! resources are never split or merged, and a subtraction is all or nothing. `find` selects from a
//! collection, `views` has parts of it, `conversion` the effect of operations, and `quantities`
//! amounts without annotations.

pub(crate) mod conversion;
pub(crate) mod find;
pub(crate) mod quantities;
pub(crate) mod views;

use std::cmp::Ordering;
use std::fmt;
use std::ops::{Add, AddAssign};

use smallvec::SmallVec;

use crate::error::{Invalid, Shortage};
use crate::resource::Resource;
use crate::value::name::{Kind, Name};
use crate::value::ranges::Ranges;
use crate::value::scalar::Scalar;
use crate::value::set::Set;

/// Up to this number of runs of new slots are inserted one by one; more are merged by sorting.
const INSERTS_MAX: usize = 16;

/// The stride at which a search changes from galloping to bisection.
const NEAR: usize = 4;

pub(crate) type Items = SmallVec<[Resource; 5]>;

/// The resources of an agent, an offer or a task. Equal content is an equal value.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct Resources {
    items: Items,
}

impl Resources {
    /// No resources.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether there are no resources.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The number of entries (a counted resource is one entry).
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// The entries in canonical order.
    pub fn iter(&self) -> std::slice::Iter<'_, Resource> {
        self.items.iter()
    }

    /// The entries in canonical order.
    pub fn as_slice(&self) -> &[Resource] {
        &self.items
    }

    /// Whether `other` is contained.
    pub fn contains(&self, other: &Self) -> bool {
        self.lacking(other).is_none()
    }

    /// Whether this resource is contained.
    pub fn contains_resource(&self, wanted: &Resource) -> bool {
        wanted.is_empty_value()
            || search(&self.items, 0, wanted).is_ok_and(|at| self.items[at].slot_contains(wanted))
    }

    /// The first entry of `other` that is not contained.
    pub fn lacking<'a>(&self, other: &'a Self) -> Option<&'a Resource> {
        let own = self.items.as_slice();
        let mut at = 0;
        for wanted in other.items.as_slice() {
            match search(own, at, wanted) {
                Ok(found) if own[found].slot_contains(wanted) => at = found + 1,
                _ => return Some(wanted),
            }
        }
        None
    }

    /// Adds `other`. Fails and changes nothing if an amount would overflow, or if a number or item
    /// of a range or set is already here.
    pub fn checked_add(&mut self, other: &Self) -> Result<(), Invalid> {
        let mut at = 0;
        for new in &other.items {
            match search(&self.items, at, new) {
                Ok(found) if !self.items[found].slot_adds_exactly(new) => {
                    let expected = format!("a resource that can be added to {}", self.items[found]);
                    return Err(Invalid::new(new.name_str(), new, expected));
                }
                Ok(found) => at = found + 1,
                Err(gap) => at = gap,
            }
        }
        self.merge(&other.items);
        Ok(())
    }

    /// Subtracts `other`. Fails and changes nothing if it is not contained.
    pub fn subtract(&mut self, other: &Self) -> Result<(), Shortage> {
        if let Some(lacking) = self.lacking(other) {
            return Err(Shortage {
                lacking: Box::new(lacking.clone()),
            });
        }
        self.saturating_sub_assign(other);
        Ok(())
    }

    /// The difference, if `other` is contained.
    pub fn checked_sub(&self, other: &Self) -> Result<Self, Shortage> {
        let mut rest = self.clone();
        rest.subtract(other)?;
        Ok(rest)
    }

    /// Subtracts `other` as far as possible. An indivisible resource is removed as a whole or kept.
    pub fn saturating_sub_assign(&mut self, other: &Self) {
        let items = self.items.as_mut_slice();
        let (mut at, mut gone) = (0, EmptiedEntries::default());
        for less in other.items.as_slice() {
            match search(items, at, less) {
                Ok(found) => {
                    let own = &mut items[found];
                    own.slot_subtract(less);
                    if own.is_empty_value() {
                        gone.note(found);
                    }
                    at = found + 1;
                }
                Err(gap) => at = gap,
            }
        }
        gone.sweep(&mut self.items);
    }

    /// The difference, as far as possible.
    pub fn saturating_sub(&self, other: &Self) -> Self {
        let mut rest = self.clone();
        rest.saturating_sub_assign(other);
        rest
    }

    /// Adds one resource.
    pub fn push(&mut self, new: Resource) {
        if !new.is_empty_value() {
            self.merge(std::slice::from_ref(&new));
        }
    }

    /// The entries for which `keep` is true.
    pub fn filter(&self, mut keep: impl FnMut(&Resource) -> bool) -> Self {
        let all = self.items.as_slice();
        // Often all of them: the first ones are copied at once.
        let head = all.iter().take_while(|own| keep(own)).count();
        let mut items: Items = all[..head].iter().cloned().collect();
        for own in all.iter().skip(head + 1) {
            if keep(own) {
                items.push(own.clone());
            }
        }
        Self { items }
    }

    /// The sum of all amounts called `name`; a shared resource counts once.
    pub fn scalar(&self, name: &Name) -> Scalar {
        self.items
            .iter()
            .filter(|own| own.is(name))
            .filter_map(Resource::amount)
            .sum()
    }

    /// The union of all ranges called `name`.
    pub fn ranges(&self, name: &Name) -> Ranges {
        let mut all = Ranges::default();
        let found = self.items.iter().filter(|own| own.is(name));
        found
            .filter_map(|own| own.value().as_ranges())
            .for_each(|ranges| all.add(ranges));
        all
    }

    /// The union of all sets called `name`.
    pub fn set(&self, name: &Name) -> Set {
        let mut all = Set::default();
        let found = self.items.iter().filter(|own| own.is(name));
        found
            .filter_map(|own| own.value().as_set())
            .for_each(|set| all.add(set));
        all
    }

    /// All cpus.
    pub fn cpus(&self) -> Scalar {
        self.total(Kind::Cpus)
    }

    /// All memory, in megabytes.
    pub fn mem(&self) -> Scalar {
        self.total(Kind::Mem)
    }

    /// All disk space, in megabytes.
    pub fn disk(&self) -> Scalar {
        self.total(Kind::Disk)
    }

    /// All graphics processors.
    pub fn gpus(&self) -> Scalar {
        self.total(Kind::Gpus)
    }

    /// All ports.
    pub fn ports(&self) -> Ranges {
        self.ranges(&Name::Ports)
    }

    fn total(&self, kind: Kind) -> Scalar {
        self.items
            .iter()
            .filter(|own| own.kind() == kind)
            .filter_map(Resource::amount)
            .sum()
    }

    /// A collection of entries that are sorted and not empty.
    pub(crate) fn ordered(items: Items) -> Self {
        Self { items }
    }

    /// A canonical collection of any entries.
    pub(crate) fn canonical(mut items: Items) -> Self {
        items.retain(|own| !own.is_empty_value());
        if !items.is_sorted_by(|a, b| a.cmp_slot(b) == Ordering::Less) {
            items.sort_by(Resource::cmp_slot);
            items.dedup_by(|next, kept| {
                let same = kept.cmp_slot(next) == Ordering::Equal;
                if same {
                    kept.slot_add(next);
                }
                same
            });
        }
        Self { items }
    }

    /// Adds sorted entries.
    fn merge(&mut self, new: &[Resource]) {
        let (mut at, mut next, mut runs) = (0, 0, 0);
        while let Some(entry) = new.get(next) {
            match search(&self.items, at, entry) {
                Ok(found) => {
                    self.items[found].slot_add(entry);
                    (at, next) = (found + 1, next + 1);
                }
                Err(gap) if runs == INSERTS_MAX && gap < self.items.len() => {
                    let mut all = std::mem::take(&mut self.items);
                    all.extend(new[next..].iter().cloned());
                    *self = Self::canonical(all);
                    return;
                }
                Err(gap) => {
                    // All new slots that belong here, at once.
                    let fits = |entry: &Resource| {
                        self.items
                            .get(gap)
                            .is_none_or(|own| entry.cmp_slot(own) == Ordering::Less)
                    };
                    let run = new[next..].iter().take_while(|entry| fits(entry)).count();
                    self.items
                        .insert_many(gap, new[next..next + run].iter().cloned());
                    (at, next, runs) = (gap + run, next + run, runs + 1);
                }
            }
        }
    }

    /// Shares one note between neighbours with equal annotations. For resources from outside.
    pub(crate) fn share_notes(mut self) -> Self {
        for at in 1..self.items.len() {
            let (before, rest) = self.items.split_at_mut(at);
            if let (Some(like), Some(own)) = (before.last(), rest.first_mut()) {
                own.reuse_note_of(like);
            }
        }
        self
    }
}

/// The entries that a subtraction has emptied.
#[derive(Default)]
struct EmptiedEntries {
    count: usize,
    first: usize,
    last: usize,
}

impl EmptiedEntries {
    fn note(&mut self, at: usize) {
        self.first = if self.count == 0 { at } else { self.first };
        self.last = at;
        self.count += 1;
    }

    fn sweep(self, items: &mut Items) {
        if self.count == 0 {
            return;
        }
        if self.last - self.first + 1 == self.count {
            items.drain(self.first..=self.last);
        } else {
            items.retain(|own| !own.is_empty_value());
        }
    }
}

/// The index in `items`, from `from` on, of the slot of `wanted`, or its insertion point. Near
/// slots are found at once, others by binary search.
#[inline]
fn search(items: &[Resource], from: usize, wanted: &Resource) -> Result<usize, usize> {
    let (mut low, mut step) = (from, 1);
    let high = loop {
        let Some(own) = items.get(low + step - 1) else {
            break items.len();
        };
        match own.cmp_slot(wanted) {
            Ordering::Equal => return Ok(low + step - 1),
            Ordering::Greater => break low + step - 1,
            Ordering::Less if step == NEAR => break items.len(),
            Ordering::Less => (low, step) = (low + step, step * 2),
        }
    };
    if low == high {
        return Err(low);
    }
    let found = items[low..high].binary_search_by(|own| own.cmp_slot(wanted));
    found.map(|at| low + at).map_err(|gap| low + gap)
}

impl AddAssign<&Resources> for Resources {
    /// Adds. An amount saturates; a number or item that is already here counts once.
    fn add_assign(&mut self, other: &Resources) {
        if self.is_empty() {
            self.clone_from(other);
        } else {
            self.merge(&other.items);
        }
    }
}

impl AddAssign for Resources {
    fn add_assign(&mut self, other: Resources) {
        if self.is_empty() {
            *self = other
        } else {
            self.merge(&other.items)
        }
    }
}

impl AddAssign<Resource> for Resources {
    fn add_assign(&mut self, new: Resource) {
        self.push(new);
    }
}

impl Add<&Resources> for Resources {
    type Output = Resources;

    fn add(mut self, other: &Resources) -> Resources {
        self += other;
        self
    }
}

impl Add for Resources {
    type Output = Resources;

    fn add(mut self, other: Resources) -> Resources {
        self += other;
        self
    }
}

impl Add for &Resources {
    type Output = Resources;

    fn add(self, other: &Resources) -> Resources {
        self.clone() + other
    }
}

impl std::iter::Sum for Resources {
    fn sum<I: Iterator<Item = Resources>>(all: I) -> Self {
        all.fold(Self::new(), Add::add)
    }
}

impl<'a> std::iter::Sum<&'a Resources> for Resources {
    fn sum<I: Iterator<Item = &'a Resources>>(all: I) -> Self {
        all.fold(Self::new(), Add::add)
    }
}

impl From<Resource> for Resources {
    fn from(resource: Resource) -> Self {
        Self::from_iter([resource])
    }
}

impl FromIterator<Resource> for Resources {
    fn from_iter<I: IntoIterator<Item = Resource>>(all: I) -> Self {
        Self::canonical(all.into_iter().collect())
    }
}

impl Extend<Resource> for Resources {
    fn extend<I: IntoIterator<Item = Resource>>(&mut self, new: I) {
        *self += new.into_iter().collect::<Resources>();
    }
}

impl IntoIterator for Resources {
    type Item = Resource;
    type IntoIter = smallvec::IntoIter<[Resource; 5]>;

    fn into_iter(self) -> Self::IntoIter {
        self.items.into_iter()
    }
}

impl<'a> IntoIterator for &'a Resources {
    type Item = &'a Resource;
    type IntoIter = std::slice::Iter<'a, Resource>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl fmt::Debug for Resources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.brief(), f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Resources {
        Resources::parse(text).unwrap()
    }

    #[test]
    fn five_entries_lie_in_place() {
        assert_eq!(size_of::<Resources>(), 168);
        assert!(
            !parse("cpus:1;mem:1;disk:1;gpus:1;ports:[1-2]")
                .items
                .spilled()
        );
    }

    #[test]
    fn empty_entries_are_removed() {
        let mut pool = parse("cpus:4;mem:100;cpus(ads):2;ports:[1-10]");
        pool.subtract(&parse("mem:100;cpus(ads):2;ports:[3-4]"))
            .unwrap();
        assert_eq!(pool, parse("cpus:4;ports:[1-2,5-10]"));
    }

    #[test]
    fn nothing_is_taken_when_something_lacks() {
        let mut pool = parse("cpus:4;mem:100");
        for (wanted, lacking) in [
            ("cpus:1;mem:101", "mem:101"),
            ("cpus(ads):1", "cpus(ads):1"),
        ] {
            let shortage = pool.subtract(&parse(wanted)).unwrap_err();
            assert_eq!(shortage.to_string(), format!("{lacking} is not contained"));
        }
        assert_eq!(pool, parse("cpus:4;mem:100"));
    }

    #[test]
    fn checked_sum_rejects_duplicates() {
        let mut pool = parse("cpus:1;ports:[1-10]");
        assert!(pool.checked_add(&parse("cpus:1;ports:[10-12]")).is_err());
        assert_eq!(pool, parse("cpus:1;ports:[1-10]"));
        pool.checked_add(&parse("cpus:1;ports:[11-12];mem:3"))
            .unwrap();
        assert_eq!(pool, parse("cpus:2;mem:3;ports:[1-12]"));
    }

    #[test]
    fn many_new_slots_are_merged_like_few() {
        let slots = |from: usize, by: usize| -> Resources {
            (from..2_000)
                .step_by(by)
                .flat_map(|n| parse(&format!("cpus(r{n:05}):1")))
                .collect()
        };
        let mut sum = slots(0, 2);
        sum += &slots(1, 2);
        assert_eq!(sum, slots(0, 1));
        sum.subtract(&slots(0, 2)).unwrap();
        assert_eq!(sum, slots(1, 2));
    }
}
