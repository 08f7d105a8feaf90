//! Validates frameworks of SUBSCRIBE and UPDATE_FRAMEWORK with the messages of Mesos, which clients
//! compare.
//!
//! Checks what a message can say and a typed framework cannot. The names of roles and other rules
//! are the master's, for frameworks over HTTP and native ones alike. What Mesos accepts but Meros
//! cannot use is refused with field, value and expected value.

use std::collections::{BTreeMap, BTreeSet};

use protocol::{FrameworkInfo, Wants};
use resources::excerpt;

use crate::convert::demands;
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
    /// Because of its offer constraints.
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
    let id = info.id.as_ref().map_or("", |id| &id.value);
    if let Some(problem) = id_problem(id).filter(|_| !id.is_empty()) {
        return Err(problem);
    }
    info.offer_filters.values().try_for_each(check_filters)?;
    info.try_into()
        .map_err(|bad: resources::Invalid| bad.to_string())
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
    let mut demands = demands(constraints, filters).map_err(|bad| bad.to_string())?;
    // Mesos accepts constraints and filters of any role, but only those of the framework's own have
    // an effect.
    demands.retain(|role, _| info.roles.contains(role));
    Ok(Wants {
        suppressed_roles,
        demands,
    })
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
