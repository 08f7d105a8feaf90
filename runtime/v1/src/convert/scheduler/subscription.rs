//! Validates frameworks of SUBSCRIBE and UPDATE_FRAMEWORK in the order and with the messages of
//! Mesos, which clients compare.
//!
//! What Mesos accepts but Meros cannot use is refused with field, value and expected value.

use std::collections::{BTreeMap, BTreeSet};

use protocol::{FrameworkInfo, Wants};
use resources::{Role, excerpt};

use crate::convert::demands;
use crate::convert::framework::{SECONDS_END, is_multi_role};
use crate::convert::ids::id_problem;
use crate::schema;
use crate::schema::OfferFilters;
use crate::schema::scheduler::OfferConstraints;

/// Maximum roles in a refusal.
const SHOWN_MAX: usize = 5;

/// Why a framework is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum InvalidFramework {
    /// Because of its info.
    Info(String),
    /// Because of its suppressed roles or offer constraints.
    Options(String),
}

impl InvalidFramework {
    /// The message of the ERROR event that refuses the subscription.
    pub fn into_message(self) -> String {
        match self {
            Self::Info(message) | Self::Options(message) => message,
        }
    }
}

/// Decodes and validates a framework.
pub(super) fn framework(
    info: &schema::FrameworkInfo,
    suppressed_roles: &[String],
    constraints: Option<&OfferConstraints>,
) -> Result<(FrameworkInfo, Wants), InvalidFramework> {
    let described = read_info(info).map_err(InvalidFramework::Info)?;
    let suppressed_roles = suppressed_roles.iter().cloned().collect();
    let wants = read_wants(
        &described,
        suppressed_roles,
        constraints,
        &info.offer_filters,
    );
    Ok((described, wants.map_err(InvalidFramework::Options)?))
}

fn read_info(info: &schema::FrameworkInfo) -> Result<FrameworkInfo, String> {
    check_roles(info)?;
    let id = info.id.as_ref().map_or("", |id| &id.value);
    if let Some(problem) = id_problem(id).filter(|_| !id.is_empty()) {
        return Err(problem);
    }
    info.offer_filters.values().try_for_each(check_filters)?;
    let timeout = info.failover_timeout.unwrap_or_default();
    if !(-SECONDS_END..SECONDS_END).contains(&timeout) {
        let timeout = general(timeout);
        return Err(format!(
            "The framework failover_timeout ({timeout}) is invalid"
        ));
    }
    info.try_into()
        .map_err(|bad: resources::Invalid| bad.to_string())
}

fn check_roles(info: &schema::FrameworkInfo) -> Result<(), String> {
    if !is_multi_role(info) {
        if !info.roles.is_empty() {
            return Err("'FrameworkInfo.roles' must not be set when the framework is not MULTI_ROLE capable".to_owned());
        }
        let role = info.role.as_deref().unwrap_or("*");
        return match Role::problem(role) {
            None => Ok(()),
            Some(problem) => Err(format!(
                "'FrameworkInfo.role' is not a valid role: {problem}"
            )),
        };
    }
    if info.role.is_some() {
        let problem =
            "'FrameworkInfo.role' must not be set when the framework is MULTI_ROLE capable";
        return Err(problem.to_owned());
    }
    let mut all = BTreeSet::new();
    let twice: BTreeSet<&String> = info
        .roles
        .iter()
        .filter(|role| !all.insert(*role))
        .collect();
    if !twice.is_empty() {
        let twice = listed(twice);
        return Err(format!(
            "'FrameworkInfo.roles' contains duplicate items: {twice}"
        ));
    }
    match info.roles.iter().find_map(|role| Role::problem(role)) {
        None => Ok(()),
        Some(problem) => Err(format!(
            "'FrameworkInfo.roles' contains invalid role: {problem}"
        )),
    }
}

fn check_filters(filters: &OfferFilters) -> Result<(), String> {
    let least = filters.min_allocatable_resources.iter();
    for amounts in least.flat_map(|least| &least.quantities) {
        if amounts.quantities.is_empty() {
            return Err("Resource quantities must contain at least one quantity".to_owned());
        }
        for (name, amount) in &amounts.quantities {
            let kind = match amount.value {
                value if value.is_infinite() => "Infinite",
                value if value.is_nan() => "NaN",
                value if value.is_subnormal() => "Subnormal",
                value if value < 0.0 => "Negative",
                _ => continue,
            };
            let values = if kind == "NaN" { "" } else { " values" };
            let name = excerpt(name);
            return Err(format!(
                "Invalid resource quantity for '{name}': {kind}{values} not supported"
            ));
        }
    }
    Ok(())
}

fn read_wants(
    info: &FrameworkInfo,
    suppressed_roles: BTreeSet<String>,
    constraints: Option<&OfferConstraints>,
    filters: &BTreeMap<String, OfferFilters>,
) -> Result<Wants, String> {
    let foreign: BTreeSet<&String> = suppressed_roles.difference(&info.roles).collect();
    if !foreign.is_empty() {
        return Err(foreign_suppressed(foreign));
    }
    let constrained = constraints.map(|constraints| &constraints.role_constraints);
    let mut constrained = constrained.into_iter().flatten().map(|(role, _)| role);
    if let Some(role) = constrained.find(|role| !info.roles.contains(*role)) {
        return Err(foreign_constraint(role));
    }
    let mut demands = demands(constraints, filters)
        .map_err(|bad| format!("Offer constraints are not valid: {bad}"))?;
    // Mesos accepts filters of any role, but only those of the framework's own have an effect.
    demands.retain(|role, _| info.roles.contains(role));
    Ok(Wants {
        suppressed_roles,
        demands,
    })
}

/// The refusal of suppressed roles that the framework does not have.
pub fn foreign_suppressed<'a>(roles: impl IntoIterator<Item = &'a String>) -> String {
    let roles = listed(roles);
    format!("Suppressed roles {roles} are not contained in the set of roles")
}

/// The refusal of offer constraints for a role that the framework does not have. The missing blank
/// is missing in Mesos, too.
pub fn foreign_constraint(role: &str) -> String {
    let role = excerpt(role);
    format!(
        "Offer constraints specify `role_constraints` for a role '{role}'not contained in the set of roles"
    )
}

/// A set as Mesos prints it, shortened.
pub fn listed<'a>(texts: impl IntoIterator<Item = &'a String>) -> String {
    let mut texts = texts.into_iter();
    let mut shown: Vec<String> = texts
        .by_ref()
        .take(SHOWN_MAX)
        .map(|text| excerpt(text))
        .collect();
    if texts.next().is_some() {
        shown.push("...".to_owned());
    }
    format!("{{ {} }}", shown.join(", "))
}

/// Prints a number of at least a million, or a non-finite one, like `%g`.
fn general(number: f64) -> String {
    if number.is_nan() {
        return "nan".to_owned();
    }
    let text = format!("{number:.5e}");
    let Some((digits, exponent)) = text.split_once('e') else {
        return text;
    };
    let digits = digits.trim_end_matches('0').trim_end_matches('.');
    format!("{digits}e+{exponent:0>2}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn huge_numbers_are_printed_as_by_mesos() {
        for (number, text) in [
            (1e12, "1e+12"),
            (-1.5e10, "-1.5e+10"),
            (1.234_567_8e300, "1.23457e+300"),
            (f64::INFINITY, "inf"),
            (f64::NAN, "nan"),
        ] {
            assert_eq!(general(number), text);
        }
    }
}
