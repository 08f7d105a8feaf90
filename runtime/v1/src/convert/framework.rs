//! Frameworks and their filters.

use std::collections::BTreeSet;
use std::time::Duration;

use protocol::Capability;
use resources::Invalid;

use super::labels::{labels, read_labels};
use super::scheduler::listed;
use super::{SECONDS_MAX, some};
use crate::message::Enum;
use crate::schema::{Filters, FrameworkInfo, FrameworkInfoCapability, FrameworkInfoCapabilityType};

impl TryFrom<&FrameworkInfo> for protocol::FrameworkInfo {
    type Error = Invalid;

    /// Its `offer_filters` are converted by [`super::demands`]. The messages of refusals are those
    /// of Mesos.
    fn try_from(info: &FrameworkInfo) -> Result<Self, Invalid> {
        let capability = |info: &FrameworkInfoCapability| {
            let name = info.r#type?.name();
            let found = Capability::NAMES.iter().find(|(_, own)| *own == name);
            found.map(|(capability, _)| *capability)
        };
        Ok(Self {
            user: info.user.clone(),
            name: info.name.clone(),
            // An empty id means none, as in Mesos.
            id: some("id", info.id.as_ref().filter(|id| !id.value.is_empty()))?,
            failover_timeout: read_timeout(info.failover_timeout)?,
            checkpoint: info.checkpoint.unwrap_or(false),
            roles: read_roles(info)?,
            hostname: info.hostname.clone().unwrap_or_default(),
            principal: info.principal.clone(),
            webui_url: info.webui_url.clone(),
            capabilities: info.capabilities.iter().filter_map(capability).collect(),
            labels: read_labels(info.labels.as_ref()),
        })
    }
}

/// Mesos stores timeouts as 64-bit nanoseconds, so they end at this number of seconds.
const SECONDS_END: f64 = 9_223_372_036.0;

/// A negative timeout is zero, as in Mesos.
fn read_timeout(seconds: Option<f64>) -> Result<Duration, Invalid> {
    let seconds = seconds.unwrap_or_default();
    if !(-SECONDS_END..SECONDS_END).contains(&seconds) {
        let seconds = general(seconds);
        return Err(Invalid::message(format!(
            "The framework failover_timeout ({seconds}) is invalid"
        )));
    }
    let seconds = seconds.max(0.0);
    Ok(match seconds < SECONDS_MAX {
        true => Duration::from_micros((seconds * 1e6).round() as u64),
        // A double does not represent single microseconds there.
        false => Duration::from_millis((seconds * 1e3).round() as u64),
    })
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

/// The roles: `roles` if the framework supports several, otherwise `role`.
fn read_roles(info: &FrameworkInfo) -> Result<BTreeSet<String>, Invalid> {
    let refused = |problem: String| Err(Invalid::message(problem));
    let multi_role = Some(FrameworkInfoCapabilityType::MultiRole);
    let mut capabilities = info.capabilities.iter();
    if !capabilities.any(|capability| capability.r#type == multi_role) {
        return match info.roles.is_empty() {
            true => Ok([info.role.clone().unwrap_or_else(|| "*".to_owned())].into()),
            false => refused("'FrameworkInfo.roles' must not be set when the framework is not MULTI_ROLE capable".to_owned()),
        };
    }
    if info.role.is_some() {
        return refused(
            "'FrameworkInfo.role' must not be set when the framework is MULTI_ROLE capable"
                .to_owned(),
        );
    }
    let mut all = BTreeSet::new();
    let twice: BTreeSet<&String> = info
        .roles
        .iter()
        .filter(|role| !all.insert((*role).clone()))
        .collect();
    match twice.is_empty() {
        true => Ok(all),
        false => refused(format!(
            "'FrameworkInfo.roles' contains duplicate items: {}",
            listed(twice)
        )),
    }
}

impl From<&protocol::FrameworkInfo> for FrameworkInfo {
    fn from(info: &protocol::FrameworkInfo) -> Self {
        let capability = |capability: &Capability| FrameworkInfoCapability {
            r#type: FrameworkInfoCapabilityType::by_name(capability.name()),
        };
        let only_role = match info.roles.first() {
            Some(role) if info.roles.len() == 1 && !info.can(Capability::MultiRole) => Some(role),
            _ => None,
        };
        Self {
            user: info.user.clone(),
            name: info.name.clone(),
            id: info.id.as_ref().map(Into::into),
            failover_timeout: Some(info.failover_timeout.as_secs_f64()),
            checkpoint: Some(info.checkpoint),
            role: only_role.cloned(),
            hostname: Some(info.hostname.clone()),
            principal: info.principal.clone(),
            webui_url: info.webui_url.clone(),
            capabilities: info.capabilities.iter().map(capability).collect(),
            labels: labels(&info.labels).message(),
            roles: match only_role {
                Some(_) => Vec::new(),
                None => info.roles.iter().cloned().collect(),
            },
            ..Self::default()
        }
    }
}

impl From<&Filters> for protocol::Filters {
    fn from(filters: &Filters) -> Self {
        Self {
            refuse_seconds: filters.refuse_seconds.unwrap_or(Self::REFUSE_SECONDS),
        }
    }
}

impl From<&protocol::Filters> for Filters {
    fn from(filters: &protocol::Filters) -> Self {
        Self {
            refuse_seconds: Some(filters.refuse_seconds),
        }
    }
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
