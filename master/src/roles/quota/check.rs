//! Validation of quota updates: plain functions.
//!
//! Rules of Mesos have its messages, which clients compare; they begin differently for SET_QUOTA.
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
    let invalid = |problem| UpdateRefused::Invalid {
        reason: format!("Invalid QuotaConfig: {problem}"),
    };
    let guaranteed = sound_together(update, known).map_err(invalid)?;
    if update.force {
        return Ok(());
    }
    let forcible = |problem| invalid(format!("{problem} (use 'force' flag to bypass this check)"));
    above_consumption(update, &known.consumed).map_err(forcible)?;
    fits(&guaranteed, known).map_err(|excess| forcible(format!("total {excess}")))
}

/// The same for SET_QUOTA: each role has no quota yet, and may consume more than its limit.
pub fn check_new(update: &UpdateQuotas, known: &QuotaContext<'_>) -> Result<(), UpdateRefused> {
    let invalid = |problem| UpdateRefused::Invalid {
        reason: format!("Failed to validate set quota request: {problem}"),
    };
    let mut roles = update.quotas.keys();
    if let Some(role) = roles.find(|role| known.quotas.contains_key(*role)) {
        let problem = format!("Cannot set quota for role '{role}' which already has quota");
        return Err(invalid(problem));
    }
    let guaranteed = sound_together(update, known).map_err(invalid)?;
    if update.force {
        return Ok(());
    }
    fits(&guaranteed, known).map_err(|excess| UpdateRefused::Conflict {
        reason: format!(
            "Quota guarantees overcommit the cluster (use 'force' to bypass this check): Total {excess}"
        ),
    })
}

/// Checks the quotas without the cluster's resources. Returns the guarantees at the top.
fn sound_together(update: &UpdateQuotas, known: &QuotaContext<'_>) -> Result<Quantities, String> {
    if update.quotas.is_empty() {
        return Err("quotas is empty: expected at least one role".to_owned());
    }
    for (role, quota) in &update.quotas {
        sound(role, quota)?;
    }
    let mut after = known.quotas.clone();
    after.extend(update.quotas.clone());
    nested(&after)
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
            reason: format!("Role '{role}' has no quota set"),
        }),
    }
}

/// Checks one quota by itself.
fn sound(role: &str, quota: &Quota) -> Result<(), String> {
    if let Some(problem) = Role::problem(role) {
        return Err(format!("Invalid 'QuotaConfig.role': {problem}"));
    }
    if role == "*" {
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
fn fits(after: &Quantities, known: &QuotaContext<'_>) -> Result<(), String> {
    let before = nested(known.quotas).unwrap_or_default();
    let capacity = &known.capacity;
    let exceeds =
        |(name, amount): (_, Scalar)| amount > capacity.get(name) && amount > before.get(name);
    match after.iter().any(exceeds) {
        false => Ok(()),
        true => Err(format!(
            "quota guarantees '{}' exceed cluster capacity '{}'",
            text(after),
            text(capacity)
        )),
    }
}

/// Amounts in the format of Mesos.
fn text(amounts: &Quantities) -> String {
    let each: Vec<String> = amounts
        .iter()
        .map(|(name, amount)| format!("{name}:{amount}"))
        .collect();
    match each.is_empty() {
        true => "{}".to_owned(),
        false => each.join("; "),
    }
}

fn above_consumption(update: &UpdateQuotas, consumed: &ByRole) -> Result<(), String> {
    for (role, quota) in &update.quotas {
        let nothing = Quantities::new();
        let consumed = consumed.get(role).unwrap_or(&nothing);
        let mut limits = quota.limits.iter();
        if limits.any(|(name, limit)| limit < consumed.get(name)) {
            return Err(format!(
                "Role '{role}' is already consuming '{}'; this is more than the requested limits '{}'",
                text(consumed),
                text(&quota.limits)
            ));
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
        judged_by(check, held, update, force)
    }

    type Check = fn(&UpdateQuotas, &QuotaContext<'_>) -> Result<(), UpdateRefused>;

    fn judged_by(
        check: Check,
        held: &[&str],
        update: &[&str],
        force: bool,
    ) -> Result<(), UpdateRefused> {
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
                Err(UpdateRefused::Invalid { reason }) => {
                    assert_eq!(reason, format!("Invalid QuotaConfig: {words}"));
                }
                other => panic!("{other:?}"),
            }
        }
    }

    /// Refused unless forced.
    #[track_caller]
    fn forcible(held: &[&str], update: &[&str], words: &str) {
        let reason =
            format!("Invalid QuotaConfig: {words} (use 'force' flag to bypass this check)");
        assert_eq!(
            judged(held, update, false),
            Err(UpdateRefused::Invalid { reason })
        );
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
        forcible(
            &["eng: cpus:6 |"],
            &["ops: cpus:4.5 |"],
            "total quota guarantees 'cpus:10.5' exceed cluster capacity 'cpus:10; mem:1000; gpus:2'",
        );
        forcible(
            &[],
            &["eng: | cpus:2.5"],
            "Role 'eng' is already consuming 'cpus:3'; this is more than the requested limits 'cpus:2.5'",
        );
        granted(&[], &["eng: | cpus:3;mem:0"]);
    }

    /// As in Mesos: another status and other words, and no look at the consumption.
    #[test]
    fn set_quota_conflicts_with_the_cluster_only() {
        let held = ["ops: cpus:6 |"];
        let judged = |update| judged_by(check_new, &held, &[update], false);
        assert_eq!(judged("eng: cpus:2 | cpus:2"), Ok(()));
        let reason = "Quota guarantees overcommit the cluster (use 'force' to bypass this check): Total quota guarantees 'cpus:11' exceed cluster capacity 'cpus:10; mem:1000; gpus:2'";
        assert_eq!(
            judged("eng: cpus:5 | cpus:5"),
            Err(UpdateRefused::Conflict {
                reason: reason.to_owned()
            })
        );
        for (update, words) in [
            (
                "ops: cpus:1 |",
                "Cannot set quota for role 'ops' which already has quota",
            ),
            (
                "a//b: cpus:1 |",
                "Invalid 'QuotaConfig.role': Role 'a//b' cannot contain two adjacent slashes",
            ),
        ] {
            let reason = format!("Failed to validate set quota request: {words}");
            assert_eq!(judged(update), Err(UpdateRefused::Invalid { reason }));
        }
    }

    #[test]
    fn forced_quota_can_be_lowered_and_reset() {
        let forced = ["eng: cpus:20 |", "ops: cpus:2 |"];
        granted(&forced, &["eng: cpus:15 |"]);
        granted(&forced, &["eng: |"]);
        granted(&forced, &["qa: mem:10 |"]);
        forcible(
            &forced,
            &["ops: cpus:3 |"],
            "total quota guarantees 'cpus:23' exceed cluster capacity 'cpus:10; mem:1000; gpus:2'",
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
        forcible(
            &["a: cpus:6 |"],
            &["b: | cpus:9", "b/c: cpus:2 |", "b/d: cpus:3 |"],
            "total quota guarantees 'cpus:11' exceed cluster capacity 'cpus:10; mem:1000; gpus:2'",
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
