//! Which offers are taken back for guarantees that were raised (SPEC 3.4): plain functions of what is known.
//!
//! Best effort: the allocator keeps a guarantee free by itself, but of what it has already granted it gets nothing back before it is answered. What
//! is offered to others is taken back until all that a role lacks is covered, the newest first, whose frameworks have thought about it least. No more than that:
//! whatever turns out not to be needed stays out. What a role or those above it are sure of themselves is left to them.

use std::collections::{BTreeMap, BTreeSet};

use protocol::{OfferId, Quota};
use resources::Quantities;

use super::{ByRole, charge, with_ancestors};

/// What of an offer quotas are about: neither reserved nor revocable.
pub struct Offered<'a> {
    /// Which one it is.
    pub id: &'a OfferId,
    /// Whose.
    pub role: &'a str,
    /// How much.
    pub amounts: Quantities,
}

/// What is known when offers are chosen.
pub struct Known<'a> {
    /// The quotas there are now.
    pub quotas: &'a BTreeMap<String, Quota>,
    /// What each role consumes, with those below it.
    pub consumed: ByRole,
    /// What nobody holds and nobody is offered.
    pub free: Quantities,
    /// The offers that are out, the oldest first.
    pub offers: Vec<Offered<'a>>,
}

/// The roles whose guarantees these quotas raise.
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

/// The offers of others to take back, so that nothing of what these roles are sure of is lacking any more.
pub fn in_the_way(raised: &BTreeSet<&str>, known: &Known<'_>) -> BTreeSet<OfferId> {
    let mut had = known.consumed.clone();
    for offer in &known.offers {
        charge(&mut had, offer.role, &offer.amounts);
    }
    let lacking = lacking(known.quotas, &had);
    // What is free is kept for those that lacked something before, too.
    let claimed_by_others = lacking.iter().filter(|(role, _)| {
        let is_top = guaranteed_above(known.quotas, role).is_none();
        is_top && !raised.iter().any(|one| is_within(one, role))
    });
    let mut free = known.free.clone();
    for (_, amounts) in claimed_by_others {
        free = free.saturating_sub(amounts);
    }
    let mut chosen = BTreeSet::new();
    // What is covered for a role is covered for those above it.
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

/// Takes back what is not offered to this role until `unmet` is covered.
fn choose(
    role: &str,
    unmet: Quantities,
    known: &Known<'_>,
    had: &mut ByRole,
    chosen: &mut BTreeSet<OfferId>,
) {
    let mut left = unmet.clone();
    let mut freed = Quantities::new();
    let mut taken: Vec<&Offered<'_>> = Vec::new();
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
        // It covers nothing that the others do not: if all is covered, it may stay; if not, it is as good as they are.
        match left.is_empty() && without.contains(&unmet) {
            true => freed = without,
            false => drop(chosen.insert(offer.id.clone())),
        }
    }
}

/// What each role lacks of what it is sure of: itself, or the roles below it together if that is more.
fn lacking(quotas: &BTreeMap<String, Quota>, had: &ByRole) -> ByRole {
    let mut below = ByRole::new();
    let mut all = ByRole::new();
    let nothing = Quantities::new();
    // A role comes after those above it.
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

/// The next role above that has a quota.
fn guaranteed_above<'a>(quotas: &BTreeMap<String, Quota>, role: &'a str) -> Option<&'a str> {
    with_ancestors(role)
        .skip(1)
        .find(|above| quotas.contains_key(*above))
}

/// Whether a role is that one or one below it.
fn is_within(role: &str, above: &str) -> bool {
    with_ancestors(role).any(|one| one == above)
}

/// Whether there is something of both.
fn meet(amounts: &Quantities, wanted: &Quantities) -> bool {
    !amounts.lesser(wanted).is_empty()
}

/// Whether a role would lack something of its own if it had so much less.
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

    /// `roles` as `eng=cpus:4`, offers as `web=cpus:1` in the order in which they were made, amounts that are held likewise. Gives the
    /// numbers of the offers that are taken back for the first of the roles.
    fn check(roles: &[&str], held: &[&str], free: &str, offers: &[&str], expected: &[usize]) {
        let said = |text: &str| {
            let (role, amounts) = text.split_once('=').unwrap();
            (role.to_owned(), Quantities::parse(amounts).unwrap())
        };
        let quota = |text: &&str| {
            let (role, guarantees) = said(text);
            let limits = Quantities::new();
            (role, Quota { guarantees, limits })
        };
        let quotas: BTreeMap<String, Quota> = roles.iter().map(quota).collect();
        let mut consumed = ByRole::new();
        for text in held {
            let (role, amounts) = said(text);
            charge(&mut consumed, &role, &amounts);
        }
        let offers: Vec<_> = offers.iter().map(|text| said(text)).collect();
        let id = |n: usize| OfferId::new(format!("O{n}")).unwrap();
        let ids: Vec<OfferId> = (0..offers.len()).map(id).collect();
        let known = Known {
            quotas: &quotas,
            consumed,
            free: Quantities::parse(free).unwrap(),
            offers: offers
                .iter()
                .zip(&ids)
                .map(|((role, amounts), id)| Offered {
                    id,
                    role,
                    amounts: amounts.clone(),
                })
                .collect(),
        };
        let (first, _) = said(roles[0]);
        let chosen = in_the_way(&BTreeSet::from([first.as_str()]), &known);
        let expected: BTreeSet<OfferId> = expected.iter().map(|n| ids[*n].clone()).collect();
        assert_eq!(chosen, expected, "{roles:?} {held:?} {free} {offers:?}");
    }

    #[test]
    fn others_give_back_what_is_lacking_and_no_more() {
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
    fn what_is_offered_to_the_role_or_below_it_is_its_own() {
        let offers = ["eng=cpus:1", "eng/web=cpus:1", "ops=cpus:1"];
        check(&["eng=cpus:2"], &[], "", &offers, &[]);
        check(&["eng=cpus:3"], &[], "", &offers, &[2]);
        check(&["eng/web=cpus:2", "eng=cpus:2"], &[], "", &offers, &[2]);
        let offers = ["eng=cpus:1", "eng/web=cpus:1"];
        check(&["eng/web=cpus:2", "eng=cpus:2"], &[], "", &offers, &[0]);
    }

    #[test]
    fn what_others_are_sure_of_is_left_to_them_and_so_is_what_is_free_for_them() {
        let offers = ["ops=cpus:1", "ops=cpus:1"];
        check(&["eng=cpus:2", "ops=cpus:2"], &[], "", &offers, &[]);
        check(&["eng=cpus:2", "ops=cpus:1"], &[], "", &offers, &[1]);
        check(&["eng=cpus:1", "qa=cpus:2"], &[], "cpus:2", &offers, &[1]);
        check(&["eng=cpus:1", "qa=cpus:2"], &[], "cpus:3", &offers, &[]);
    }

    #[test]
    fn a_guarantee_is_raised_where_any_of_it_is() {
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
