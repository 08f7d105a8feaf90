//! Frameworks and their filters.

use std::collections::BTreeSet;
use std::time::Duration;

use protocol::Capability;
use resources::Invalid;

use super::labels::{labels, read_labels};
use super::{SECONDS_MAX, some};
use crate::message::Enum;
use crate::schema::{Filters, FrameworkInfo, FrameworkInfoCapability, FrameworkInfoCapabilityType};

impl TryFrom<&FrameworkInfo> for protocol::FrameworkInfo {
    type Error = Invalid;

    /// Its `offer_filters` are converted by [`super::demands`].
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
pub(super) const SECONDS_END: f64 = 9_223_372_036.0;

/// A negative timeout is zero, as in Mesos.
fn read_timeout(seconds: Option<f64>) -> Result<Duration, Invalid> {
    let seconds = seconds.unwrap_or_default();
    if !(-SECONDS_END..SECONDS_END).contains(&seconds) {
        let expected = format!("a number of seconds below {SECONDS_END}");
        return Err(Invalid::new("failover_timeout", seconds, expected));
    }
    let seconds = seconds.max(0.0);
    Ok(match seconds < SECONDS_MAX {
        true => Duration::from_micros((seconds * 1e6).round() as u64),
        // A double does not represent single microseconds there.
        false => Duration::from_millis((seconds * 1e3).round() as u64),
    })
}

/// Whether the framework may have several roles.
pub(super) fn is_multi_role(info: &FrameworkInfo) -> bool {
    let multi_role = Some(FrameworkInfoCapabilityType::MultiRole);
    let mut capabilities = info.capabilities.iter();
    capabilities.any(|capability| capability.r#type == multi_role)
}

/// The roles; `role` alone if the framework does not support several.
fn read_roles(info: &FrameworkInfo) -> Result<BTreeSet<String>, Invalid> {
    let multi_role = is_multi_role(info);
    match &info.role {
        Some(role) if multi_role => {
            let expected =
                "nothing beside `roles`, since the framework has the capability MULTI_ROLE";
            Err(Invalid::new("role", role, expected))
        }
        Some(role) if !info.roles.is_empty() => {
            Err(Invalid::new("role", role, "nothing beside `roles`"))
        }
        Some(role) => Ok(BTreeSet::from([role.clone()])),
        None if info.roles.is_empty() && !multi_role => Ok(BTreeSet::from(["*".to_owned()])),
        None => all_different("roles", &info.roles),
    }
}

/// These names, each at most once.
fn all_different(field: &str, names: &[String]) -> Result<BTreeSet<String>, Invalid> {
    let mut different = BTreeSet::new();
    match names.iter().find(|name| !different.insert((*name).clone())) {
        Some(twice) => Err(Invalid::new(field, twice, "each role once")),
        None => Ok(different),
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
