//! Selection from a pool: resources for a plain target, and reduction to quantities.

use crate::resource::Resource;
use crate::resource::annotation::{Annotations, Reservation};
use crate::resources::Resources;

impl Resources {
    /// Selects `target` from this pool, with any reservations, allocation and lender; all other
    /// annotations must match. Resources with the target's own reservations come first, then other
    /// reserved ones (in an offer they can only be for the framework's role or its ancestors), then
    /// unreserved ones. The result keeps the pool's annotations and is contained in it; none if the
    /// pool does not suffice.
    pub fn find(&self, target: &Resources) -> Option<Resources> {
        let mut pool = self.clone();
        let mut found = Resources::new();
        for wanted in target {
            let taken = pool.take(wanted)?;
            pool.saturating_sub_assign(&taken);
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
            if rest.is_empty_value() {
                return Some(taken);
            }
        }
        None
    }
}

/// The part of `own` that serves `wanted`, with the annotations of `own`. For an indivisible
/// resource as many copies as are here: others may have other annotations.
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

/// The annotations that must match, and the reservations, which need not.
fn split(notes: &Annotations) -> (Shape<'_>, &[Reservation]) {
    let shape = (&notes.revocable, &notes.disk, notes.shared, &notes.provider);
    (shape, &notes.reservations)
}

type Shape<'a> = (
    &'a Option<crate::resource::annotation::Revocable>,
    &'a Option<Box<crate::resource::disk::DiskInfo>>,
    bool,
    &'a Option<Box<str>>,
);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::annotation::Revocable;
    use crate::role::Role;

    fn parse(text: &str) -> Resources {
        Resources::parse(text).unwrap()
    }

    #[test]
    fn reserved_resources_are_found_first() {
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
    fn volume_copies_are_found_under_any_annotations() {
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
    fn regular_target_never_gets_revocable_resources() {
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
}
