//! RESERVE_RESOURCES with a `source`: changes the reservations of reserved resources.
//!
//! Pure. Each removed and each added reservation is a step with its own authorization: from the top
//! of the old stack down to the common part, then up to the top of the new one.

use resources::{Conversion, Invalid, Reservation, Resource, Resources};

/// Maximum steps of one call.
const STEPS_MAX: usize = 16;

/// The steps from `source` to `resources`, in order, at least one. An empty `source` means
/// `resources` without their last reservation.
pub(in crate::convert) fn steps(
    source: &Resources,
    resources: &Resources,
) -> Result<Vec<Conversion>, Invalid> {
    let reserve = |resources: &Resources| Conversion::Reserve {
        resources: resources.clone(),
    };
    // One step, whatever the stacks are.
    let is_one = |before: Resources| before == *source;
    if source.is_empty() || resources.pop_reservation().is_ok_and(is_one) {
        return Ok(vec![reserve(resources)]);
    }
    let (from, to) = (stack("source", source)?, stack("resources", resources)?);
    let common = from.iter().zip(&to).take_while(|(one, other)| one == other);
    let common = common.count();
    let count = from.len() + to.len() - 2 * common;
    if count == 0 || count > STEPS_MAX {
        let expected = format!("from 1 to {STEPS_MAX} reservations that `resources` do not have");
        return Err(Invalid::new("source", source, expected));
    }
    let (pops, below) = levels(source, from.len() - common)?;
    let (pushes, under) = levels(resources, to.len() - common)?;
    if below != under {
        let expected = "the same as `resources` but for their reservations";
        return Err(Invalid::new("source", source, expected));
    }
    let pops = pops.into_iter();
    let pops = pops.map(|resources| Conversion::Unreserve { resources });
    let pushes = pushes.iter().rev().map(reserve);
    Ok(pops.chain(pushes).collect())
}

/// The resources as they are, with one reservation less, and so on, `count` in all; and the
/// resources below these.
fn levels(resources: &Resources, count: usize) -> Result<(Vec<Resources>, Resources), Invalid> {
    let (mut levels, mut top) = (Vec::new(), resources.clone());
    for _ in 0..count {
        let below = top.pop_reservation()?;
        levels.push(std::mem::replace(&mut top, below));
    }
    Ok((levels, top))
}

/// The reservations of these resources, which must be the same for all.
fn stack(field: &str, resources: &Resources) -> Result<Vec<Reservation>, Invalid> {
    let mut stacks = resources.iter().map(Resource::reservations);
    let first = stacks.next().unwrap_or_default();
    match stacks.all(|stack| stack == first) {
        true => Ok(first.to_vec()),
        false => {
            let expected = "resources that all have the same reservations";
            Err(Invalid::new(field, resources, expected))
        }
    }
}

#[cfg(test)]
mod tests {
    use resources::Role;

    use super::*;

    /// Two kinds of resources with these reservations.
    fn reserved(stack: &[&str]) -> Resources {
        let mut all: Resources = "cpus:2;mem:64".parse().unwrap();
        for role in stack {
            let entry = Reservation::dynamic(Role::new(role).unwrap(), None);
            all = all.push_reservation(&entry).unwrap();
        }
        all
    }

    fn described(source: &[&str], resources: &[&str]) -> Vec<String> {
        let steps = steps(&reserved(source), &reserved(resources)).unwrap();
        let described = |step: &Conversion| {
            let named = step.named();
            assert_eq!(named.quantities().to_string(), "cpus:2;mem:64");
            let role = named.iter().next().unwrap().role().to_string();
            format!("{} {role}", step.name())
        };
        steps.iter().map(described).collect()
    }

    /// SPEC 2.6: pops, then pushes.
    #[test]
    fn reserving_pops_to_the_common_part_then_pushes() {
        assert_eq!(described(&[], &["a"]), ["reserve a"]);
        assert_eq!(described(&["a"], &["a", "a/b"]), ["reserve a/b"]);
        assert_eq!(described(&["a"], &["b"]), ["unreserve a", "reserve b"]);
        assert_eq!(described(&["a", "a/b"], &["a"]), ["unreserve a/b"]);
        assert_eq!(
            described(&["a", "a/b", "a/b/c"], &["a", "a/d", "a/d/e"]),
            [
                "unreserve a/b/c",
                "unreserve a/b",
                "reserve a/d",
                "reserve a/d/e"
            ]
        );
        assert_eq!(described(&[], &["a", "a/b"]), ["reserve a", "reserve a/b"]);
    }

    #[test]
    fn reserving_refuses_other_differences() {
        let wrong = |source: &Resources, resources: &Resources| {
            steps(source, resources).unwrap_err().to_string()
        };
        let mixed = reserved(&["a"]) + "disk:1".parse::<Resources>().unwrap();
        let problem = wrong(&mixed, &reserved(&["b"]));
        assert!(problem.contains("source is ") && problem.contains("same reservations"));
        let more: Resources = "cpus:3;mem:64".parse().unwrap();
        let problem = wrong(&more, &reserved(&["a", "a/b"]));
        assert!(problem.contains("but for their reservations"), "{problem}");
        let same = reserved(&["a"]);
        let problem = wrong(&same, &same);
        assert!(problem.contains("from 1 to 16 reservations"), "{problem}");
    }
}
