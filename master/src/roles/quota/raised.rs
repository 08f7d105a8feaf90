//! The choice of offers to rescind when guarantees are raised: plain functions.
//!
//! Best effort: the allocator keeps a guarantee free by itself, but it gets nothing back from
//! granted offers before they are answered. Other roles' offers are rescinded until the missing
//! resources are covered, newest first, since their frameworks have had the least time to use them.
//! Unneeded offers stay. The guarantees of other roles and their ancestors are respected.

use std::collections::{BTreeMap, BTreeSet};

use protocol::{OfferId, Quota};
use resources::Quantities;

use super::{ByRole, charge, with_ancestors};

/// The part of an offer that quotas cover: neither reserved nor revocable.
pub struct OfferedAmounts<'a> {
    /// The offer's id.
    pub id: &'a OfferId,
    /// Its role.
    pub role: &'a str,
    /// The amounts.
    pub amounts: Quantities,
}

/// The context of the choice.
pub struct OfferContext<'a> {
    /// The new quotas.
    pub quotas: &'a BTreeMap<String, Quota>,
    /// The consumption of each role, with its descendants.
    pub consumed: ByRole,
    /// Resources neither held nor offered.
    pub free: Quantities,
    /// Open offers, oldest first.
    pub offers: Vec<OfferedAmounts<'a>>,
}

/// The roles with guarantees that these quotas raise.
pub fn raised<'a>(
    quotas: &'a BTreeMap<String, Quota>,
    before: &BTreeMap<String, Quota>,
) -> BTreeSet<&'a str> {
    let none = Quota::default();
    let is_raised = |(role, quota): &(&String, &Quota)| {
        let before = before.get(*role).unwrap_or(&none);
        !before.guarantees.contains(&quota.guarantees)
    };
    let raised = quotas.iter().filter(is_raised);
    raised.map(|(role, _)| role.as_str()).collect()
}

/// The offers of other roles to rescind so that these roles' guarantees are met.
pub fn offers_to_rescind(raised: &BTreeSet<&str>, known: &OfferContext<'_>) -> BTreeSet<OfferId> {
    let mut had = known.consumed.clone();
    for offer in &known.offers {
        charge(&mut had, offer.role, &offer.amounts);
    }
    let lacking = lacking(known.quotas, &had);
    // Free resources are also kept for roles that were below guarantee before.
    let claimed_by_others = lacking.iter().filter(|(role, _)| {
        let is_top = guaranteed_above(known.quotas, role).is_none();
        is_top && !raised.iter().any(|one| is_within(one, role))
    });
    let mut free = known.free.clone();
    for (_, amounts) in claimed_by_others {
        free = free.saturating_sub(amounts);
    }
    let mut chosen = BTreeSet::new();
    // Resources for a role also count for its ancestors.
    let mut covered = ByRole::new();
    for role in raised.iter().rev() {
        let (nothing, all) = (Quantities::new(), Quantities::new());
        let covered_below = covered.get(*role).unwrap_or(&nothing);
        let needed = lacking
            .get(*role)
            .unwrap_or(&all)
            .saturating_sub(covered_below);
        let unmet = needed.saturating_sub(&free);
        free = free.saturating_sub(&needed);
        charge(&mut covered, role, &needed);
        choose(role, unmet, known, &mut had, &mut chosen);
    }
    chosen
}

/// Chooses other roles' offers until `unmet` is covered.
fn choose(
    role: &str,
    unmet: Quantities,
    known: &OfferContext<'_>,
    had: &mut ByRole,
    chosen: &mut BTreeSet<OfferId>,
) {
    let mut left = unmet.clone();
    let mut freed = Quantities::new();
    let mut taken: Vec<&OfferedAmounts<'_>> = Vec::new();
    for offer in known.offers.iter().rev() {
        if left.is_empty() {
            break;
        }
        let is_own = is_within(offer.role, role);
        if is_own || chosen.contains(offer.id) || !meet(&offer.amounts, &left) {
            continue;
        }
        let losing = || with_ancestors(offer.role).filter(|one| !is_within(role, one));
        let is_sure = losing().any(|one| is_sure_of(known.quotas, had, one, &offer.amounts));
        if is_sure {
            continue;
        }
        for one in losing() {
            if let Some(had) = had.get_mut(one) {
                *had = had.saturating_sub(&offer.amounts);
            }
        }
        left = left.saturating_sub(&offer.amounts);
        freed += &offer.amounts;
        taken.push(offer);
    }
    for offer in taken {
        let without = freed.saturating_sub(&offer.amounts);
        // The offer adds nothing to the others: if all is covered it stays; if not, it is as good
        // as they are.
        match left.is_empty() && without.contains(&unmet) {
            true => freed = without,
            false => drop(chosen.insert(offer.id.clone())),
        }
    }
}

/// The missing resources of each role: of its own guarantee, or of its descendants' together if
/// that is more.
fn lacking(quotas: &BTreeMap<String, Quota>, had: &ByRole) -> ByRole {
    let mut below = ByRole::new();
    let mut all = ByRole::new();
    let nothing = Quantities::new();
    // Descendants come first.
    for (role, quota) in quotas.iter().rev() {
        let own = quota
            .guarantees
            .saturating_sub(had.get(role).unwrap_or(&nothing));
        let mut most = below.remove(role).unwrap_or_default();
        let more = own.saturating_sub(&most);
        most += &more;
        if let Some(above) = guaranteed_above(quotas, role) {
            *below.entry(above.to_owned()).or_default() += &most;
        }
        all.insert(role.clone(), most);
    }
    all
}

/// The nearest ancestor with a quota.
fn guaranteed_above<'a>(quotas: &BTreeMap<String, Quota>, role: &'a str) -> Option<&'a str> {
    with_ancestors(role)
        .skip(1)
        .find(|above| quotas.contains_key(*above))
}

/// Whether a role is `above` or one of its descendants.
fn is_within(role: &str, above: &str) -> bool {
    with_ancestors(role).any(|one| one == above)
}

/// Whether they have a resource in common.
fn meet(amounts: &Quantities, wanted: &Quantities) -> bool {
    !amounts.lesser(wanted).is_empty()
}

/// Whether the role would be below its guarantee with this much less.
fn is_sure_of(
    quotas: &BTreeMap<String, Quota>,
    had: &ByRole,
    role: &str,
    amounts: &Quantities,
) -> bool {
    let Some(quota) = quotas.get(role) else {
        return false;
    };
    let after = had
        .get(role)
        .map(|had| had.saturating_sub(amounts))
        .unwrap_or_default();
    let mut touched = amounts.iter().filter(|(_, amount)| !amount.is_zero());
    touched.any(|(name, _)| after.get(name) < quota.guarantees.get(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `roles` as `eng=cpus:4`; offers as `web=cpus:1`, oldest first; held amounts likewise.
    /// Expects the indexes of the offers that are rescinded for the first role.
    fn check(roles: &[&str], held: &[&str], free: &str, offers: &[&str], expected: &[usize]) {
        let split = |text: &str| {
            let (role, amounts) = text.split_once('=').unwrap();
            (role.to_owned(), Quantities::parse(amounts).unwrap())
        };
        let quota = |text: &&str| {
            let (role, guarantees) = split(text);
            let limits = Quantities::new();
            (role, Quota { guarantees, limits })
        };
        let quotas: BTreeMap<String, Quota> = roles.iter().map(quota).collect();
        let mut consumed = ByRole::new();
        for text in held {
            let (role, amounts) = split(text);
            charge(&mut consumed, &role, &amounts);
        }
        let offers: Vec<_> = offers.iter().map(|text| split(text)).collect();
        let id = |n: usize| OfferId::new(format!("O{n}")).unwrap();
        let ids: Vec<OfferId> = (0..offers.len()).map(id).collect();
        let known = OfferContext {
            quotas: &quotas,
            consumed,
            free: Quantities::parse(free).unwrap(),
            offers: offers
                .iter()
                .zip(&ids)
                .map(|((role, amounts), id)| OfferedAmounts {
                    id,
                    role,
                    amounts: amounts.clone(),
                })
                .collect(),
        };
        let (first, _) = split(roles[0]);
        let chosen = offers_to_rescind(&BTreeSet::from([first.as_str()]), &known);
        let expected: BTreeSet<OfferId> = expected.iter().map(|n| ids[*n].clone()).collect();
        assert_eq!(chosen, expected, "{roles:?} {held:?} {free} {offers:?}");
    }

    #[test]
    fn only_missing_resources_are_rescinded_from_others() {
        let offers = ["web=cpus:1", "web=cpus:2", "web=mem:64", "web=cpus:1"];
        check(&["eng=cpus:4"], &[], "cpus:4", &offers, &[]);
        check(&["eng=cpus:4"], &[], "cpus:3", &offers, &[3]);
        check(&["eng=cpus:4"], &[], "cpus:2", &offers, &[1]);
        check(&["eng=cpus:4"], &[], "", &offers, &[0, 1, 3]);
        check(&["eng=cpus:9"], &[], "", &offers, &[0, 1, 3]);
        check(&["eng=cpus:1;mem:64"], &[], "", &offers, &[2, 3]);
        check(&["eng=cpus:4"], &["eng=cpus:3"], "cpus:1", &offers, &[]);
    }

    #[test]
    fn roles_own_and_descendants_offers_are_kept() {
        let offers = ["eng=cpus:1", "eng/web=cpus:1", "ops=cpus:1"];
        check(&["eng=cpus:2"], &[], "", &offers, &[]);
        check(&["eng=cpus:3"], &[], "", &offers, &[2]);
        check(&["eng/web=cpus:2", "eng=cpus:2"], &[], "", &offers, &[2]);
        let offers = ["eng=cpus:1", "eng/web=cpus:1"];
        check(&["eng/web=cpus:2", "eng=cpus:2"], &[], "", &offers, &[0]);
    }

    #[test]
    fn other_roles_guarantees_and_free_resources_are_kept() {
        let offers = ["ops=cpus:1", "ops=cpus:1"];
        check(&["eng=cpus:2", "ops=cpus:2"], &[], "", &offers, &[]);
        check(&["eng=cpus:2", "ops=cpus:1"], &[], "", &offers, &[1]);
        check(&["eng=cpus:1", "qa=cpus:2"], &[], "cpus:2", &offers, &[1]);
        check(&["eng=cpus:1", "qa=cpus:2"], &[], "cpus:3", &offers, &[]);
    }

    #[test]
    fn guarantee_is_raised_if_any_amount_is() {
        let quotas = |text: &str| {
            let guarantees = Quantities::parse(text).unwrap();
            let limits = Quantities::new();
            BTreeMap::from([("eng".to_owned(), Quota { guarantees, limits })])
        };
        for (before, after, is_raised) in [
            ("cpus:2", "cpus:2", false),
            ("cpus:2", "cpus:1", false),
            ("cpus:2", "cpus:1;mem:1", true),
            ("", "cpus:1", true),
        ] {
            let found = !raised(&quotas(after), &quotas(before)).is_empty();
            assert_eq!(found, is_raised, "{before} to {after}");
        }
    }
}
