//! Choosing from a pool: a plain target out of mixed resources, and cutting to quantities.

use crate::annotation::{Annotations, Reservation};
use crate::quantities::Quantities;
use crate::resource::Resource;
use crate::resources::Resources;

impl Resources {
    /// Picks `target` out of this pool, whatever reservations, allocation and lender the pool's
    /// entries have; all other annotations must be the target's. What has the target's own
    /// reservations is taken first, then what is reserved for others (in an offer, that can only
    /// be the framework's role or one above it), then the unreserved. The answer keeps the
    /// pool's annotations and is contained in it; none if the pool does not suffice.
    pub fn find(&self, target: &Resources) -> Option<Resources> {
        let mut pool = self.clone();
        let mut found = Resources::new();
        for wanted in target {
            let taken = pool.take(wanted)?;
            pool.subtract_what_is_there(&taken);
            found += taken;
        }
        Some(found)
    }

    fn take(&self, wanted: &Resource) -> Option<Resources> {
        let (shape, asked) = split(wanted.annotations());
        let name = wanted.name();
        let mut candidates: Vec<&Resource> = self
            .iter()
            .filter(|own| own.is(&name) && split(own.annotations()).0 == shape)
            .collect();
        candidates.sort_by_key(|own| match own.reservations() {
            own if !asked.is_empty() && own == asked => 0,
            [] => 2,
            _ => 1,
        });
        let mut taken = Resources::new();
        let mut rest = wanted.clone();
        for own in candidates {
            let Some(part) = common(own, &rest) else {
                continue;
            };
            rest.slot_subtract(&part);
            taken.push(part);
            if rest.is_gone() {
                return Some(taken);
            }
        }
        None
    }

    /// Of each amount, at most what `most` says, and nothing that it does not name. What cannot
    /// be cut is taken whole if it fits, else left. Ranges and sets are left out.
    pub fn chop_to(&self, most: &Quantities) -> Resources {
        self.chop(most, false)
    }

    /// Of each amount that `most` names, at most so much; all else whole.
    pub fn cap_to(&self, most: &Quantities) -> Resources {
        self.chop(most, true)
    }

    fn chop(&self, most: &Quantities, keep_unnamed: bool) -> Resources {
        let mut left = most.clone();
        let cut = self.iter().filter_map(|own| {
            let name = own.name();
            if keep_unnamed && !most.names(&name) {
                return Some(own.clone());
            }
            let mut own = own.clone();
            let amount = own.amount()?;
            let room = left.get(&name);
            if amount > room && (own.copies() > 1 || !own.shrink(room)) {
                return None;
            }
            left.take(&name, own.amount()?);
            Some(own)
        });
        cut.collect()
    }
}

/// What of `own` serves `wanted`, with the annotations of `own`. Of what is indivisible, as many
/// copies as are here: others may be held under other annotations.
fn common(own: &Resource, wanted: &Resource) -> Option<Resource> {
    if own.is_indivisible() {
        if own.value() != wanted.value() {
            return None;
        }
        let copies = own.copies().min(wanted.copies());
        return own.clone().counted(copies).ok();
    }
    Some(own.of(own.value().intersection(wanted.value())?))
}

/// The annotations that must agree, and the reservations, which need not.
fn split(notes: &Annotations) -> (Shape<'_>, &[Reservation]) {
    let shape = (&notes.revocable, &notes.disk, notes.shared, &notes.provider);
    (shape, &notes.reservations)
}

type Shape<'a> = (
    &'a Option<crate::annotation::Revocable>,
    &'a Option<Box<crate::disk::DiskInfo>>,
    bool,
    &'a Option<Box<str>>,
);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::annotation::Revocable;
    use crate::role::Role;

    fn parse(text: &str) -> Resources {
        Resources::parse(text).unwrap()
    }

    #[test]
    fn reserved_resources_are_taken_before_the_unreserved() {
        let ads = Role::new("ads").unwrap();
        let pool = parse("cpus:4;mem:100;cpus(ads):1;ports:[1-5];ports(ads):[9-10]").allocate(&ads);
        let found = pool
            .find(&parse("cpus:3;mem:50;ports:[2-2,10-10]"))
            .unwrap();
        assert_eq!(
            found.unallocate(),
            parse("cpus:2;cpus(ads):1;mem:50;ports:[2-2];ports(ads):[10-10]")
        );
        assert!(pool.contains(&found));
        assert_eq!(pool.find(&parse("cpus:5.001")), None);
        assert_eq!(pool.find(&parse("ports:[6-6]")), None);
    }

    #[test]
    fn copies_of_one_volume_are_found_wherever_they_are_held() {
        let ads = Role::new("ads").unwrap();
        let volume = parse(
            r#"[{"name":"disk","type":"SCALAR","scalar":{"value":1},"role":"ads","shared":{},
                "reservations":[{"type":"STATIC","role":"ads"}],
                "disk":{"persistence":{"id":"v1"},"volume":{"container_path":"data","mode":"RW"}}}]"#,
        );
        let pool = &(&volume + &volume) + &volume.allocate(&ads);
        let three = pool.flatten();
        let found = pool.find(&three).unwrap();
        assert_eq!(found, pool);
        assert_eq!(pool.find(&(&three + &volume.flatten())), None);
    }

    #[test]
    fn a_regular_target_is_never_served_with_revocable_resources() {
        let slack = parse("cpus:4")
            .to_revocable(Revocable::Throttleable)
            .unwrap();
        assert_eq!(slack.find(&parse("cpus:1")), None);
        assert!(
            slack
                .find(
                    &parse("cpus:1")
                        .to_revocable(Revocable::Throttleable)
                        .unwrap()
                )
                .is_some()
        );
    }

    #[test]
    fn a_chop_cuts_amounts_and_leaves_what_is_not_named() {
        let pool = parse("cpus:4;mem:100;gpus:3;cpus(ads):4;ports:[1-2]");
        let most: Quantities = "cpus:6;gpus:2.5".parse().unwrap();
        assert_eq!(pool.chop_to(&most), parse("cpus:4;gpus:2;cpus(ads):2"));
        assert_eq!(
            pool.cap_to(&most),
            parse("cpus:4;gpus:2;cpus(ads):2;mem:100;ports:[1-2]")
        );
        assert_eq!(pool.chop_to(&Quantities::new()), Resources::new());
    }
}
