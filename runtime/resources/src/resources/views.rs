//! Views of a collection: parts of it by reservation, revocability and allocation, and the whole of
//! it with other annotations.

use std::collections::BTreeMap;

use crate::error::Invalid;
use crate::resource::Resource;
use crate::resource::annotation::{Annotations, Reservation, Revocable};
use crate::resources::quantities::Quantities;
use crate::resources::{Items, Resources};
use crate::role::Role;

impl Resources {
    /// The unreserved resources.
    pub fn unreserved(&self) -> Self {
        self.filter(|own| !own.is_reserved())
    }

    /// The resources open to every role: regular and unreserved.
    pub fn open(&self) -> Self {
        self.filter(Resource::is_open)
    }

    /// The resources reserved for exactly this role.
    pub fn reserved(&self, role: &Role) -> Self {
        self.filter(|own| own.is_reserved() && own.role() == role)
    }

    /// The resources reserved for this role or an ancestor.
    pub fn reserved_for(&self, role: &Role) -> Self {
        self.filter(|own| own.is_reserved() && role.is_within(own.role()))
    }

    /// All reserved resources.
    pub fn all_reserved(&self) -> Self {
        self.filter(Resource::is_reserved)
    }

    /// The reserved resources by role.
    pub fn reservations(&self) -> BTreeMap<Role, Self> {
        self.group(|own| own.is_reserved().then(|| own.role().clone()))
    }

    /// The resources that may be allocated to this role: unreserved, or reserved for it or an
    /// ancestor.
    pub fn allocatable_to(&self, role: &Role) -> Self {
        self.filter(|own| own.is_allocatable_to(role))
    }

    /// The resources that can be taken back at any time.
    pub fn revocable(&self) -> Self {
        self.filter(Resource::is_revocable)
    }

    /// The regular resources: not revocable.
    pub fn non_revocable(&self) -> Self {
        self.filter(|own| !own.is_revocable())
    }

    /// The revocable resources that may be throttled: usage slack.
    pub fn throttleable(&self) -> Self {
        self.filter(Resource::is_throttleable)
    }

    /// The revocable resources that may not be throttled: allocation slack.
    pub fn non_throttleable(&self) -> Self {
        self.filter(|own| own.annotations().revocable == Some(Revocable::NonThrottleable))
    }

    /// The shared resources.
    pub fn shared(&self) -> Self {
        self.filter(Resource::is_shared)
    }

    /// All resources except the shared ones.
    pub fn non_shared(&self) -> Self {
        self.filter(|own| !own.is_shared())
    }

    /// The persistent volumes.
    pub fn persistent_volumes(&self) -> Self {
        self.filter(Resource::is_persistent_volume)
    }

    /// The amounts by name, whatever the annotations; a shared resource counts once.
    pub fn quantities(&self) -> Quantities {
        self.iter()
            .filter_map(|own| Some((own.name(), own.amount()?)))
            .collect()
    }

    /// The allocated resources by role.
    pub fn allocations(&self) -> BTreeMap<Role, Self> {
        self.group(|own| own.allocation_role().cloned())
    }

    /// All of it, allocated to `role`.
    pub fn allocate(&self, role: &Role) -> Self {
        self.annotate(|notes| notes.allocation = Some(role.clone()))
    }

    /// All of it, without allocation.
    pub fn unallocate(&self) -> Self {
        self.annotate(|notes| notes.allocation = None)
    }

    /// All of it, without reservations.
    pub fn to_unreserved(&self) -> Self {
        self.annotate(|notes| notes.reservations.clear())
    }

    /// All of it, without reservations and allocation: the plain form for a tenant.
    pub fn flatten(&self) -> Self {
        self.annotate(|notes| {
            notes.reservations.clear();
            notes.allocation = None;
        })
    }

    /// All of it, without the lender, as a tenant may see it (SPEC 4.9).
    pub fn hide_lender(&self) -> Self {
        self.annotate(|notes| notes.lender = None)
    }

    /// All of it as revocable resources of this kind, e.g. an estimator's result.
    pub fn to_revocable(&self, revocable: Revocable) -> Result<Self, Invalid> {
        self.try_annotate(|notes| notes.revocable = Some(revocable))
    }

    /// All of it as revocable resources lent by `lender`: unreserved, not throttleable, with the
    /// lender recorded (SPEC 4.9).
    pub fn lend(&self, lender: &Role) -> Result<Self, Invalid> {
        self.try_annotate(|notes| {
            notes.reservations.clear();
            notes.allocation = None;
            notes.revocable = Some(Revocable::NonThrottleable);
            notes.lender = Some(lender.clone());
        })
    }

    /// The lent resources by lender.
    pub fn loans(&self) -> BTreeMap<Role, Self> {
        self.group(|own| own.annotations().lender.clone())
    }

    /// All of it with one more reservation on each stack (RESERVE, SPEC 3.5).
    pub fn push_reservation(&self, reservation: &Reservation) -> Result<Self, Invalid> {
        self.try_annotate(|notes| notes.reservations.push(reservation.clone()))
    }

    /// All of it without the newest reservations, which must be dynamic (UNRESERVE).
    pub fn pop_reservation(&self) -> Result<Self, Invalid> {
        self.iter().map(Resource::pop_reservation).collect()
    }

    /// All of it with its annotations changed by `change`, which keeps them valid.
    fn annotate(&self, change: impl Fn(&mut Annotations)) -> Self {
        let mut items = Items::with_capacity(self.len());
        let mut last: Option<&Resource> = None;
        let mut alike = true;
        for own in self {
            // Neighbours usually share one note: then their changed forms share one too.
            let changed = match (last, items.last()) {
                (Some(before), Some(like)) if own.shares_note(before) => own.with_note_of(like),
                _ => {
                    alike &= last.is_none();
                    let mut notes = own.annotations().clone();
                    change(&mut notes);
                    own.with(notes)
                }
            };
            items.push(changed);
            last = Some(own);
        }
        match alike {
            // All annotations are equal before and after: the order does not change.
            true => Self::ordered(items),
            false => Self::canonical(items),
        }
    }

    fn try_annotate(&self, change: impl Fn(&mut Annotations)) -> Result<Self, Invalid> {
        let mut last: Option<&Resource> = None;
        for own in self {
            if !last.is_some_and(|before| own.shares_note(before)) {
                let mut notes = own.annotations().clone();
                change(&mut notes);
                notes.check().map_err(|bad| bad.within(own.name_str()))?;
            }
            last = Some(own);
        }
        Ok(self.annotate(change))
    }

    fn group<K: Ord>(&self, key: impl Fn(&Resource) -> Option<K>) -> BTreeMap<K, Self> {
        let mut groups: BTreeMap<K, Items> = BTreeMap::new();
        for own in self {
            if let Some(key) = key(own) {
                groups.entry(key).or_default().push(own.clone());
            }
        }
        groups
            .into_iter()
            .map(|(key, items)| (key, Self::canonical(items)))
            .collect()
    }
}

impl FromIterator<Resources> for Resources {
    fn from_iter<I: IntoIterator<Item = Resources>>(all: I) -> Self {
        all.into_iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Resources {
        Resources::parse(text).unwrap()
    }

    fn role(text: &str) -> Role {
        Role::new(text).unwrap()
    }

    /// S89, SPEC 3.4: reservations for an ancestor are allocatable to descendants.
    #[test]
    fn reservations_of_ancestors_are_allocatable() {
        let pool = parse("cpus:1;cpus(eng):2;cpus(eng/web):4;cpus(ops):8");
        assert_eq!(pool.unreserved(), parse("cpus:1"));
        assert_eq!(pool.reserved(&role("eng")), parse("cpus(eng):2"));
        assert_eq!(
            pool.reserved_for(&role("eng/web")),
            parse("cpus(eng):2;cpus(eng/web):4")
        );
        assert_eq!(
            pool.allocatable_to(&role("eng")),
            parse("cpus:1;cpus(eng):2")
        );
        assert_eq!(pool.allocatable_to(&Role::STAR), parse("cpus:1"));
        assert_eq!(pool.reservations().len(), 3);
        assert_eq!(pool.quantities().to_string(), "cpus:15");
    }

    /// S92: of 32 cpus and 65536 MB, 8 and 4096 are reserved; the rest stays for all.
    #[test]
    fn reserve_changes_part_of_an_offer() {
        let mut offer = parse("cpus:32;mem:65536");
        let wanted = parse("cpus:8;mem:4096");
        let reserved = wanted
            .push_reservation(&Reservation::dynamic(role("ads"), Some("ops")))
            .unwrap();
        offer.subtract(&wanted).unwrap();
        offer += &reserved;
        assert_eq!(offer.unreserved(), parse("cpus:24;mem:61440"));
        assert_eq!(offer.reserved(&role("ads")), reserved);
        assert_eq!(reserved.pop_reservation().unwrap(), wanted);
    }

    /// S44, S45: the two kinds of revocable are told apart, and the lender is hidden from tenants.
    // Covers S45 in part: the two kinds; S41 in part: the arithmetic; S44 in part: told apart.
    #[test]
    fn revocable_kinds_are_separate() {
        let slack = parse("cpus:2")
            .to_revocable(Revocable::Throttleable)
            .unwrap();
        let lent = parse("cpus(ads):4").lend(&role("ads")).unwrap();
        let pool = parse("cpus:8") + &slack + &lent;
        assert_eq!((pool.len(), pool.cpus()), (3, crate::Scalar::whole(14)));
        assert_eq!(pool.non_revocable(), parse("cpus:8"));
        assert_eq!(
            (pool.throttleable(), pool.non_throttleable()),
            (slack.clone(), lent.clone())
        );
        assert_eq!(pool.loans().get(&role("ads")), Some(&lent));
        assert!(lent.hide_lender().loans().is_empty() && lent.hide_lender() != lent);
        assert!(
            lent.push_reservation(&Reservation::dynamic(role("x"), None))
                .is_err()
        );
    }

    #[test]
    fn allocation_can_be_undone() {
        let pool = parse("cpus:1;mem:2;cpus(a):4;bugs:{x}");
        let allocated = pool.allocate(&role("a"));
        assert!(!pool.contains(&allocated) && allocated != pool);
        assert_eq!(allocated.unallocate(), pool);
        let both = &allocated + &pool.allocate(&role("b"));
        let parts = both.allocations();
        assert_eq!(parts.get(&role("a")), Some(&allocated));
        assert_eq!(parts.len(), 2);
    }
}
