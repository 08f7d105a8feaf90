//! Validation of quota updates: plain functions.
//!
//! Some errors are final: a guarantee above its own limit, or a role that does not fit into its
//! ancestors. Others yield to `force`: the guarantees exceed the cluster, or a limit is below the
//! consumption. Nested roles may have quotas: a role's guarantee is shared by its descendants, and
//! no role may exceed the limit of an ancestor.

use std::collections::BTreeMap;

use protocol::Quota;
use protocol::message::operator::{UpdateQuotas, UpdateRefused};
use resources::{Name, Quantities, Role, Scalar};

use super::{ByRole, with_ancestors};

/// The context of a validation.
pub struct QuotaContext<'a> {
    /// The current quotas.
    pub quotas: &'a BTreeMap<String, Quota>,
    /// The cluster's resources.
    pub capacity: Quantities,
    /// The consumption of each role, with its descendants.
    pub consumed: ByRole,
}

/// Refuses the first error of the update.
pub fn check(update: &UpdateQuotas, known: &QuotaContext<'_>) -> Result<(), UpdateRefused> {
    let invalid = |reason| UpdateRefused::Invalid { reason };
    let conflict = |reason| UpdateRefused::Conflict {
        reason: format!("{reason}; set `force` to apply it anyway"),
    };
    if update.quotas.is_empty() {
        return Err(invalid(
            "quotas is empty: expected at least one role".to_owned(),
        ));
    }
    for (role, quota) in &update.quotas {
        sound(role, quota).map_err(invalid)?;
    }
    let mut after = known.quotas.clone();
    after.extend(update.quotas.clone());
    let guaranteed = nested(&after).map_err(invalid)?;
    if update.force {
        return Ok(());
    }
    let before = nested(known.quotas).unwrap_or_default();
    fits(&guaranteed, &before, &known.capacity).map_err(conflict)?;
    above_consumption(update, &known.consumed).map_err(conflict)
}

/// Refuses the first role that has a quota already.
pub fn none_yet(
    update: &UpdateQuotas,
    quotas: &BTreeMap<String, Quota>,
) -> Result<(), UpdateRefused> {
    let mut roles = update.quotas.keys();
    match roles.find(|role| quotas.contains_key(*role)) {
        None => Ok(()),
        Some(role) => Err(UpdateRefused::Invalid {
            reason: format!(
                "role `{role}` has a quota already: PUT replaces it, and so does a body with `quota_configs`"
            ),
        }),
    }
}

/// Refuses the first role that has no quota.
pub fn set_already(
    update: &UpdateQuotas,
    quotas: &BTreeMap<String, Quota>,
) -> Result<(), UpdateRefused> {
    let mut roles = update.quotas.keys();
    match roles.find(|role| !quotas.contains_key(*role)) {
        None => Ok(()),
        Some(role) => Err(UpdateRefused::Invalid {
            reason: format!("role is `{role}`: expected one that has a quota"),
        }),
    }
}

/// Checks one quota by itself.
fn sound(role: &str, quota: &Quota) -> Result<(), String> {
    let valid = Role::new(role).map_err(|invalid| invalid.to_string())?;
    if valid.is_star() {
        return Err(
            "role is `*`: expected one that frameworks are given, as `eng` or `eng/web`".to_owned(),
        );
    }
    let parts = [("guarantee", &quota.guarantees), ("limit", &quota.limits)];
    for (what, amounts) in parts {
        for (name, amount) in amounts.iter() {
            let problem = match name {
                Name::Ports => "an amount: ports are ranges",
                Name::Gpus if !amount.is_whole() => "a whole number",
                _ => continue,
            };
            return Err(format!(
                "{what} of role `{role}` for {name} is `{amount}`: expected {problem}"
            ));
        }
    }
    match quota.contradiction() {
        None => Ok(()),
        Some((name, guarantee, limit)) => Err(format!(
            "guarantee of role `{role}` for {name} is `{guarantee}`: expected at most its limit, {limit}"
        )),
    }
}

/// Checks that every role fits into its ancestors. Returns the guarantees at the top: for a role
/// without its own guarantee of a resource, the sum of its descendants'.
fn nested(quotas: &BTreeMap<String, Quota>) -> Result<Quantities, String> {
    let mut deepest_first: Vec<(&String, &Quota)> = quotas.iter().collect();
    deepest_first.sort_by_key(|(role, _)| std::cmp::Reverse(role.split('/').count()));
    let mut top = Quantities::new();
    let mut below: BTreeMap<&str, Quantities> = BTreeMap::new();
    for (role, quota) in deepest_first {
        let mut guaranteed = quota.guarantees.clone();
        for (name, together) in below.remove(role.as_str()).unwrap_or_default().iter() {
            let own = guaranteed.get(name);
            if !own.is_zero() && together > own {
                return Err(format!(
                    "guarantees of the roles below `{role}` for {name} are `{together}` together: expected at most its own, {own}"
                ));
            }
            guaranteed.set(name.clone(), own.max(together));
        }
        for (name, amount) in guaranteed.iter() {
            within(quota, name, amount).map_err(|limit| {
                format!(
                    "guarantees of role `{role}` and those below it for {name} are `{amount}`: expected at most its limit, {limit}"
                )
            })?;
        }
        let mut parent = None;
        for above in with_ancestors(role).skip(1) {
            let Some((above, outer)) = quotas.get_key_value(above) else {
                continue;
            };
            parent.get_or_insert(above);
            for (name, limit) in quota.limits.iter() {
                within(outer, name, limit).map_err(|outer| {
                    format!("limit of role `{role}` for {name} is `{limit}`: expected at most that of `{above}`, {outer}")
                })?;
            }
        }
        match parent {
            Some(above) => *below.entry(above).or_default() += &guaranteed,
            None => top += &guaranteed,
        }
    }
    Ok(top)
}

/// Fails with the limit if the amount exceeds it.
fn within(quota: &Quota, name: &Name, amount: Scalar) -> Result<(), Scalar> {
    match quota.limit(name) {
        Some(limit) if amount > limit => Err(limit),
        _ => Ok(()),
    }
}

/// Checks the guarantees against the cluster. A guarantee that the update does not raise passes.
fn fits(after: &Quantities, before: &Quantities, capacity: &Quantities) -> Result<(), String> {
    for (name, amount) in after.iter() {
        let there = capacity.get(name);
        if amount > there && amount > before.get(name) {
            return Err(format!(
                "guarantees of all roles for {name} would be `{amount}`: expected at most the cluster's total, {there}"
            ));
        }
    }
    Ok(())
}

fn above_consumption(update: &UpdateQuotas, consumed: &ByRole) -> Result<(), String> {
    for (role, quota) in &update.quotas {
        let nothing = Quantities::new();
        let consumed = consumed.get(role).unwrap_or(&nothing);
        for (name, limit) in quota.limits.iter() {
            let has = consumed.get(name);
            if limit < has {
                return Err(format!(
                    "limit of role `{role}` for {name} is `{limit}`: expected at least its consumption, {has}"
                ));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Quotas as `role: guarantees | limits`.
    fn quotas(texts: &[&str]) -> BTreeMap<String, Quota> {
        let quota = |text: &&str| {
            let (role, amounts) = text.split_once(": ").unwrap();
            let (guarantees, limits) = amounts.split_once('|').unwrap();
            let quota = Quota {
                guarantees: guarantees.trim().parse().unwrap(),
                limits: limits.trim().parse().unwrap(),
            };
            (role.to_owned(), quota)
        };
        texts.iter().map(quota).collect()
    }

    fn judged(held: &[&str], update: &[&str], force: bool) -> Result<(), UpdateRefused> {
        let held = quotas(held);
        let consumed = |text: &str| text.parse::<Quantities>().unwrap();
        let known = QuotaContext {
            quotas: &held,
            capacity: "cpus:10;mem:1000;gpus:2".parse().unwrap(),
            consumed: ByRole::from([
                ("eng".to_owned(), consumed("cpus:3")),
                ("eng/web".to_owned(), consumed("cpus:2")),
            ]),
        };
        let quotas = quotas(update);
        check(&UpdateQuotas { quotas, force }, &known)
    }

    #[track_caller]
    fn granted(held: &[&str], update: &[&str]) {
        assert_eq!(judged(held, update, false), Ok(()), "{update:?}");
    }

    /// Refused with or without force.
    #[track_caller]
    fn invalid(held: &[&str], update: &[&str], words: &str) {
        for force in [false, true] {
            match judged(held, update, force) {
                Err(UpdateRefused::Invalid { reason }) => assert_eq!(reason, words),
                other => panic!("{other:?}"),
            }
        }
    }

    /// Refused unless forced.
    #[track_caller]
    fn conflict(held: &[&str], update: &[&str], words: &str) {
        match judged(held, update, false) {
            Err(UpdateRefused::Conflict { reason }) => {
                assert!(reason.starts_with(words), "{reason}")
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(judged(held, update, true), Ok(()), "{update:?}");
    }

    #[test]
    fn unsound_quota_is_refused_by_role_and_name() {
        granted(&[], &["eng: cpus:2;mem:100 | cpus:4", "ops: gpus:1 |"]);
        invalid(&[], &[], "quotas is empty: expected at least one role");
        invalid(
            &[],
            &["ok: cpus:1 |", "eng: cpus:5 | cpus:4"],
            "guarantee of role `eng` for cpus is `5`: expected at most its limit, 4",
        );
        invalid(
            &[],
            &["*: | cpus:4"],
            "role is `*`: expected one that frameworks are given, as `eng` or `eng/web`",
        );
        invalid(
            &[],
            &["eng: gpus:0.5 |"],
            "guarantee of role `eng` for gpus is `0.5`: expected a whole number",
        );
        invalid(
            &[],
            &["eng: | ports:7"],
            "limit of role `eng` for ports is `7`: expected an amount: ports are ranges",
        );
        assert!(judged(&[], &["a//b: | cpus:1"], true).is_err());
    }

    #[test]
    fn excessive_guarantees_and_low_limits_need_force() {
        granted(&["eng: cpus:6 |"], &["ops: cpus:4 |"]);
        conflict(
            &["eng: cpus:6 |"],
            &["ops: cpus:4.5 |"],
            "guarantees of all roles for cpus would be `10.5`: expected at most the cluster's total, 10",
        );
        conflict(
            &[],
            &["eng: | cpus:2.5"],
            "limit of role `eng` for cpus is `2.5`: expected at least its consumption, 3",
        );
        granted(&[], &["eng: | cpus:3;mem:0"]);
    }

    #[test]
    fn forced_quota_can_be_lowered_and_reset() {
        let forced = ["eng: cpus:20 |", "ops: cpus:2 |"];
        granted(&forced, &["eng: cpus:15 |"]);
        granted(&forced, &["eng: |"]);
        granted(&forced, &["qa: mem:10 |"]);
        conflict(
            &forced,
            &["ops: cpus:3 |"],
            "guarantees of all roles for cpus would be `23`",
        );
    }

    #[test]
    fn roles_share_their_parents_guarantee() {
        let held = ["eng: cpus:6 |", "eng/web: cpus:4 |"];
        granted(&held, &["eng/db/hot: cpus:2 |"]);
        invalid(
            &held,
            &["eng/db/hot: cpus:2.5 |"],
            "guarantees of the roles below `eng` for cpus are `6.5` together: expected at most its own, 6",
        );
        // A role without its own guarantee passes on those of its descendants.
        granted(
            &["a: cpus:6 |"],
            &["b: | cpus:9", "b/c: cpus:2 |", "b/d: cpus:2 |"],
        );
        conflict(
            &["a: cpus:6 |"],
            &["b: | cpus:9", "b/c: cpus:2 |", "b/d: cpus:3 |"],
            "guarantees of all roles for cpus would be `11`",
        );
        // Together they count once: a descendant's guarantee is part of its ancestor's.
        granted(&["eng: cpus:10 |"], &["eng/web: cpus:10 |"]);
    }

    // Covers W11.
    #[test]
    fn no_role_exceeds_an_ancestors_limit() {
        granted(&["eng: | cpus:6"], &["eng/x/web: | cpus:6;mem:9"]);
        invalid(
            &["eng: | cpus:6"],
            &["eng/x/web: | cpus:7"],
            "limit of role `eng/x/web` for cpus is `7`: expected at most that of `eng`, 6",
        );
        invalid(
            &["eng/web: cpus:4 |", "eng/db: cpus:4 |"],
            &["eng: | cpus:6"],
            "guarantees of role `eng` and those below it for cpus are `8`: expected at most its limit, 6",
        );
        // `eng-x` is not below `eng`.
        granted(&["eng: | cpus:6"], &["eng-x: | cpus:7"]);
    }
}
