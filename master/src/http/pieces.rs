//! Pieces of JSON that several pages share: tasks, statuses, offers, reservations (SPEC 3.12, keys verbatim).
//!
//! Pure.

use std::collections::BTreeMap;

use protocol::task::Labels;
use protocol::{ExecutorInfo, FrameworkId, Offer, TaskStatus};
use resources::json::resources_object;
use resources::{Name, Quantities, Resources, Scalar};
use serde_json::{Value, json};

use crate::tasks::Task;

/// A resource object: always cpus, gpus, mem and disk.
pub(super) fn resources(resources: &Resources) -> Value {
    Value::Object(resources_object(resources))
}

/// Amounts by name, those only that are listed.
pub(super) fn amounts(amounts: &Quantities) -> Value {
    let one = |(name, amount): (&Name, Scalar)| (name.to_string(), json!(amount.as_f64()));
    Value::Object(amounts.iter().map(one).collect())
}

/// What is reserved, by role.
pub(super) fn reserved(resources: &Resources) -> Value {
    let by_role: BTreeMap<String, Value> = resources
        .reservations()
        .into_iter()
        .map(|(role, reserved)| (role.to_string(), self::resources(&reserved)))
        .collect();
    json!(by_role)
}

/// Notes as Mesos shows them.
pub(super) fn labels(labels: &Labels) -> Value {
    let label = |(key, value): (&String, &String)| json!({ "key": key, "value": value });
    labels.iter().map(label).collect()
}

/// A task.
pub(super) fn task(task: &Task) -> Value {
    json!({
        "id": task.id,
        "name": task.name,
        "framework_id": task.framework_id,
        "executor_id": task.executor_id,
        "slave_id": task.agent_id,
        "state": task.state.name(),
        "resources": resources(&task.resources),
        "role": role(&task.resources),
        "statuses": task.statuses.iter().map(status).collect::<Value>(),
        "user": task.user,
        "labels": labels(&task.labels),
    })
}

fn status(status: &TaskStatus) -> Value {
    let mut json = json!({
        "state": status.state.name(),
        "timestamp": status.timestamp.as_secs_f64(),
        "labels": labels(&status.labels),
        "source": status.source.name(),
        "message": status.message,
    });
    if let Some(reason) = status.reason {
        json["reason"] = json!(reason.name());
    }
    if let Some(healthy) = status.healthy {
        json["healthy"] = json!(healthy);
    }
    if let Some(container) = &status.container_id {
        json["container_status"] = json!({ "container_id": { "value": container } });
    }
    json
}

/// The role that resources are allocated to.
fn role(resources: &Resources) -> String {
    let role = resources.iter().find_map(|one| one.allocation_role());
    role.map_or_else(|| "*".to_owned(), ToString::to_string)
}

/// An offer.
pub(super) fn offer(offer: &Offer) -> Value {
    json!({
        "id": offer.id,
        "framework_id": offer.framework_id,
        "allocation_info": { "role": offer.role },
        "slave_id": offer.agent_id,
        "resources": resources(&offer.resources),
    })
}

/// A framework's own executor on an agent.
pub(super) fn executor(
    framework: &FrameworkId,
    agent: &protocol::AgentId,
    info: &ExecutorInfo,
) -> Value {
    json!({
        "executor_id": info.executor_id,
        "name": info.name,
        "framework_id": framework,
        "slave_id": agent,
        "resources": resources(&info.resources),
        "command": { "value": info.command.value, "shell": info.command.shell, "argv": info.command.arguments },
        "labels": labels(&info.labels),
    })
}
