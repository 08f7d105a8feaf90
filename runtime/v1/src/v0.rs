//! Parts of the v0 pages that masters and agents share, with Mesos' JSON keys. Pure.

use protocol::TaskStatus;
use protocol::agent::Domain;
use protocol::task::{Limit, TaskLimits};
use resources::Resources;
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Value, json};

use crate::convert::{OrderedLabels, check_status, check_statuses, other_labels_of_status};
use crate::json::Json;

/// Labels.
pub struct LabelList<'a>(pub OrderedLabels<'a>);

impl Serialize for LabelList<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(|(key, value)| Pair { key, value }))
    }
}

#[derive(serde::Serialize)]
struct Pair<'a> {
    key: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<&'a str>,
}

/// A task's limits by name, `"Infinity"` for none.
pub struct LimitsObject<'a>(pub &'a TaskLimits);

impl Serialize for LimitsObject<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_map(None)?;
        for (name, limit) in self.0.iter() {
            match limit {
                Limit::Amount(amount) => object.serialize_entry(name, &amount)?,
                Limit::Infinite => object.serialize_entry(name, "Infinity")?,
            }
        }
        object.end()
    }
}

/// A status of a task.
pub struct StatusEntry<'a, C> {
    /// The status.
    pub status: &'a TaskStatus,
    /// Its container, if known.
    pub container: Option<C>,
}

impl<C: Serialize> Serialize for StatusEntry<'_, C> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { status, container } = self;
        let mut object = serializer.serialize_map(None)?;
        object.serialize_entry("state", status.state.name())?;
        object.serialize_entry("timestamp", &status.timestamp.as_secs_f64())?;
        object.serialize_entry("labels", &LabelList(other_labels_of_status(&status.labels)))?;
        object.serialize_entry("source", status.source.name())?;
        object.serialize_entry("message", &status.message)?;
        if let Some(reason) = status.reason {
            object.serialize_entry("reason", reason.name())?;
        }
        if let Some(healthy) = status.healthy {
            object.serialize_entry("healthy", &healthy)?;
        }
        if let Some(container) = container {
            object.serialize_entry("container_status", container)?;
        }
        if let Some(check) = check_status(&status.labels) {
            object.serialize_entry("check_status", &Json(&check))?;
        }
        let named = check_statuses(&status.labels);
        if !named.is_empty() {
            let named: Vec<_> = named.iter().map(|one| Json(one)).collect();
            object.serialize_entry("check_statuses", &named)?;
        }
        object.end()
    }
}

/// The role to which resources are allocated.
pub fn role(resources: &Resources) -> &str {
    let role = resources.iter().find_map(|one| one.allocation_role());
    role.map_or("*", |role| role.as_str())
}

/// A domain.
pub fn domain(Domain { region, zone }: &Domain) -> Value {
    json!({ "fault_domain": { "region": { "name": region }, "zone": { "name": zone } } })
}
