//! JSON objects that several pages share: tasks, statuses, offers, executors, reservations (keys as
//! in Mesos).
//!
//! Pure. Written directly into the page by serde, so that a page of many tasks needs no more memory
//! than its text.

use std::collections::BTreeMap;
use std::net::IpAddr;

use protocol::{CommandInfo, ContainerId, ExecutorKind, Offer, TaskStatus, Uri};
use resources::json::ResourcesObject;
use resources::{Name, Quantities, Resources, Scalar};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Map, Value, json};
use v1::convert::{ContainerDescription, container_status, discovery, other_labels};
use v1::json::Json;
use v1::v0::{LabelList, LimitsObject, StatusEntry, role};

use super::visible::{VisibleExecutor, VisibleState};
use crate::tasks::Task;

/// Serializes the items of an iterator as a list.
pub(in crate::api) struct List<F>(pub F);

impl<F, I> Serialize for List<F>
where
    F: Fn() -> I,
    I: Iterator<Item: Serialize>,
{
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq((self.0)())
    }
}

/// Amounts by name.
pub(in crate::api) fn amounts(amounts: &Quantities) -> Map<String, Value> {
    let one = |(name, amount): (&Name, Scalar)| (name.to_string(), json!(amount.as_f64()));
    amounts.iter().map(one).collect()
}

/// Visible reservations by role.
pub(in crate::api) struct Reserved<'a>(pub &'a Resources, pub VisibleState<'a>);

impl Serialize for Reserved<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_map(None)?;
        for (role, reserved) in self.1.reservations(self.0) {
            object.serialize_entry(role.as_str(), &ResourcesObject(&reserved))?;
        }
        object.end()
    }
}

/// A task.
pub(in crate::api) struct TaskEntry<'a>(pub &'a Task);

impl Serialize for TaskEntry<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let task = self.0;
        let mut object = serializer.serialize_map(None)?;
        object.serialize_entry("id", &task.id)?;
        object.serialize_entry("name", &task.name)?;
        object.serialize_entry("framework_id", &task.framework_id)?;
        object.serialize_entry(
            "executor_id",
            task.own_executor_id().map_or("", |id| id.as_str()),
        )?;
        object.serialize_entry("slave_id", &task.agent_id)?;
        object.serialize_entry("state", task.state.name())?;
        object.serialize_entry("resources", &ResourcesObject(&task.resources))?;
        object.serialize_entry("limits", &LimitsObject(&task.limits))?;
        object.serialize_entry("role", role(&task.resources))?;
        object.serialize_entry("statuses", &List(|| task.statuses.iter().map(status)))?;
        if let Some(user) = &task.user {
            object.serialize_entry("user", user)?;
        }
        object.serialize_entry("labels", &LabelList(other_labels(&task.labels)))?;
        if let Some(discovery) = discovery(&task.labels) {
            object.serialize_entry("discovery", &Json(&discovery))?;
        }
        if let Some(check) = &task.health_check {
            let check = v1::schema::HealthCheck::from(check.as_ref());
            object.serialize_entry("health_check", &Json(&check))?;
        }
        object.end()
    }
}

fn status(status: &TaskStatus) -> StatusEntry<'_, ContainerEntry<'_>> {
    StatusEntry {
        status,
        container: container_status(status).map(ContainerEntry),
    }
}

struct ContainerEntry<'a>(ContainerDescription<'a>);

impl Serialize for ContainerEntry<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let own = match &self.0 {
            ContainerDescription::Default(own) => own,
            ContainerDescription::Reported(reported) => {
                return Json(reported.as_ref()).serialize(serializer);
            }
        };
        let mut object = serializer.serialize_map(None)?;
        if let Some(value) = own.id {
            object.serialize_entry("container_id", &Id::from(value))?;
        }
        // It uses its agent's host network.
        if let Some(ip_address) = own.address {
            let protocol = if ip_address.is_ipv4() { "IPv4" } else { "IPv6" };
            let ip_addresses = [Address {
                protocol,
                ip_address,
            }];
            object.serialize_entry("network_infos", &[Network { ip_addresses }])?;
        }
        object.end()
    }
}

#[derive(serde::Serialize)]
struct Id {
    value: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent: Option<Box<Self>>,
}

impl From<&ContainerId> for Id {
    fn from(id: &ContainerId) -> Self {
        Self {
            value: id.name().to_owned(),
            parent: id.parent().map(|parent| Box::new((&parent).into())),
        }
    }
}

#[derive(serde::Serialize)]
struct Network {
    ip_addresses: [Address; 1],
}

#[derive(serde::Serialize)]
struct Address {
    protocol: &'static str,
    ip_address: IpAddr,
}

/// An offer.
pub(in crate::api) struct OfferEntry<'a>(pub &'a Offer);

impl Serialize for OfferEntry<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let offer = self.0;
        let mut object = serializer.serialize_map(None)?;
        object.serialize_entry("id", &offer.id)?;
        object.serialize_entry("framework_id", &offer.framework_id)?;
        object.serialize_entry("allocation_info", &BTreeMap::from([("role", &offer.role)]))?;
        object.serialize_entry("slave_id", &offer.agent_id)?;
        object.serialize_entry("resources", &ResourcesObject(&offer.resources))?;
        object.end()
    }
}

/// As in Mesos' pages, without `cache`.
fn uri(uri: &Uri) -> serde_json::Value {
    let mut object =
        json!({ "value": uri.value, "executable": uri.executable, "extract": uri.extract });
    if let Some(file) = &uri.output_file {
        object["output_file"] = json!(file);
    }
    object
}

/// As in Mesos' pages.
fn command(command: &CommandInfo) -> serde_json::Value {
    let uris: Vec<_> = command.uris.iter().map(uri).collect();
    json!({ "value": command.value, "shell": command.shell, "argv": command.arguments, "uris": uris })
}

/// A framework's own executor on an agent.
pub(in crate::api) struct ExecutorEntry<'a>(pub VisibleExecutor<'a>);

impl Serialize for ExecutorEntry<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (executor, info) = (self.0, self.0.info);
        let mut object = serializer.serialize_map(None)?;
        object.serialize_entry("executor_id", &info.executor_id)?;
        object.serialize_entry("name", &info.name)?;
        object.serialize_entry("framework_id", executor.framework)?;
        object.serialize_entry("slave_id", executor.agent)?;
        object.serialize_entry("resources", &ResourcesObject(&info.resources))?;
        let (kind, command) = match info.kind {
            ExecutorKind::Custom => ("CUSTOM", command(&info.command)),
            // As in Mesos, although it has none.
            ExecutorKind::Default => ("DEFAULT", json!({ "argv": [], "uris": [] })),
        };
        object.serialize_entry("command", &command)?;
        if !info.resources.is_empty() {
            object.serialize_entry("role", role(&info.resources))?;
        }
        object.serialize_entry("type", kind)?;
        object.serialize_entry("labels", &LabelList(other_labels(&info.labels)))?;
        if let Some(discovery) = discovery(&info.labels) {
            object.serialize_entry("discovery", &Json(&discovery))?;
        }
        object.end()
    }
}

#[cfg(test)]
mod tests {
    use protocol::text::reserved_labels::{CHECK_STATUS, CONTAINER_STATUS, LABELS};
    use protocol::{Source, TaskState};
    use runtime::Timestamp;

    use super::*;

    /// SPEC 3.12, task entry: the executor's container status is a field, not a label.
    #[test]
    fn status_entry_shows_the_reported_container() {
        let at = Timestamp::from_nanos(5);
        let task = "t".parse().unwrap();
        let mut told = TaskStatus::new(task, TaskState::Running, Source::Executor, at);
        told.container_id = Some("p.c".parse().unwrap());
        told.address = Some([10, 0, 0, 7].into());
        let labels = [
            ("tier", "web"),
            ("early", ""),
            (
                LABELS,
                r#"{"labels":[{"key":"tier","value":"web"},{"key":"early"}]}"#,
            ),
            (CONTAINER_STATUS, r#"{"network_infos":[{"name":"bridge"}]}"#),
            (
                CHECK_STATUS,
                r#"{"type":"COMMAND","command":{"exit_code":1}}"#,
            ),
        ];
        told.labels = labels.map(|(key, value)| (key.into(), value.into())).into();
        let visible = serde_json::to_value(status(&told)).unwrap();
        assert_eq!(
            visible["container_status"],
            json!({ "network_infos": [{ "name": "bridge" }], "container_id": { "value": "c", "parent": { "value": "p" } } })
        );
        assert_eq!(
            visible["check_status"],
            json!({ "type": "COMMAND", "command": { "exit_code": 1 } })
        );
        assert_eq!(
            visible["labels"],
            json!([{ "key": "tier", "value": "web" }, { "key": "early" }]),
            "in the order in which they were said"
        );
    }
}
