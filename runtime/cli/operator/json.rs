//! A cluster's view as JSON, with the names of `/state`.
//!
//! Pure conversion; missing values are omitted.

use protocol::view::{AgentView, ClusterView, FrameworkView, TaskView};
use protocol::{TaskState, TaskStatus};
use resources::json::{attributes_object, resources_object};
use serde_json::{Value, json};

/// An agent.
pub fn agent(agent: &AgentView) -> Value {
    json!({
        "id": agent.id.as_str(),
        "hostname": agent.info.hostname,
        "port": agent.info.port,
        "pid": agent.address,
        "active": agent.active,
        "deactivated": agent.orders.deactivated,
        "registered_time": agent.registered.as_secs_f64(),
        "version": agent.version,
        "attributes": attributes_object(&agent.info.attributes),
        "resources": resources_object(&agent.info.resources),
        "used_resources": resources_object(&agent.used),
        "offered_resources": resources_object(&agent.offered),
        "oversubscribed_resources": resources_object(&agent.oversubscribed),
    })
}

/// A framework with its tasks.
pub fn framework(framework: &FrameworkView) -> Value {
    let tasks = |tasks: &[TaskView]| tasks.iter().map(task).collect::<Vec<_>>();
    json!({
        "id": framework.id.as_str(),
        "name": framework.info.name,
        "user": framework.info.user,
        "roles": framework.info.roles,
        "hostname": framework.info.hostname,
        "principal": framework.info.principal,
        "failover_timeout": framework.info.failover_timeout.as_secs_f64(),
        "checkpoint": framework.info.checkpoint,
        "capabilities": framework.info.capabilities.iter().map(|capability| capability.name()).collect::<Vec<_>>(),
        "active": framework.active,
        "connected": framework.connected,
        "registered_time": framework.registered.as_secs_f64(),
        "unregistered_time": framework.unregistered.map_or(0.0, |time| time.as_secs_f64()),
        "used_resources": resources_object(&framework.used),
        "tasks": tasks(&framework.tasks),
        "completed_tasks": tasks(&framework.completed_tasks),
        "unreachable_tasks": tasks(&framework.unreachable_tasks),
        "offers": framework.offers.iter().map(|offer| json!({
            "id": offer.id.as_str(),
            "framework_id": offer.framework_id.as_str(),
            "slave_id": offer.agent_id.as_str(),
            "allocation_info": { "role": offer.role },
            "resources": resources_object(&offer.resources),
        })).collect::<Vec<_>>(),
    })
}

/// A task.
pub fn task(task: &TaskView) -> Value {
    let labels = v1::convert::other_labels(&task.labels).message();
    let mut value = json!({
        "id": task.id.as_str(),
        "name": task.name,
        "framework_id": task.framework_id.as_str(),
        "executor_id": task.executor_id.as_str(),
        "slave_id": task.agent_id.as_str(),
        "state": task.state.name(),
        "resources": resources_object(&task.resources),
        "statuses": task.statuses.iter().map(status).collect::<Vec<_>>(),
        "labels": labels.iter().flat_map(|labels| &labels.labels).map(|label| json!(v1::json::Json(label))).collect::<Vec<_>>(),
    });
    if let Some(discovery) = v1::convert::discovery(&task.labels) {
        value["discovery"] = json!(v1::json::Json(&discovery));
    }
    value
}

fn status(status: &TaskStatus) -> Value {
    let mut value =
        json!({ "state": status.state.name(), "timestamp": status.timestamp.as_secs_f64() });
    if let Some(reason) = status.reason {
        value["reason"] = reason.name().into();
    }
    if !status.message.is_empty() {
        value["message"] = status.message.as_str().into();
    }
    value
}

/// The whole cluster.
pub fn cluster(view: &ClusterView) -> Value {
    let active = view.agents.iter().filter(|agent| agent.active).count();
    json!({
        "id": view.master.id.as_str(),
        "hostname": view.master.hostname,
        "version": view.master.version,
        "leader_info": {
            "id": view.master.id.as_str(),
            "hostname": view.master.hostname,
            "port": view.master.port,
        },
        "start_time": view.started.as_secs_f64(),
        "elected_time": view.elected.as_secs_f64(),
        "activated_slaves": active,
        "deactivated_slaves": view.agents.len() - active,
        "slaves": view.agents.iter().map(agent).collect::<Vec<_>>(),
        "frameworks": view.frameworks.iter().map(framework).collect::<Vec<_>>(),
        "completed_frameworks": view.completed_frameworks.iter().map(framework).collect::<Vec<_>>(),
    })
}

/// The number of tasks in each state, in wire order, without zeros.
pub fn counts<'a>(tasks: impl Iterator<Item = &'a TaskView>) -> Vec<(TaskState, usize)> {
    let mut counts = vec![0; TaskState::ALL.len()];
    for task in tasks {
        counts[task.state as usize] += 1;
    }
    TaskState::ALL
        .iter()
        .copied()
        .zip(counts)
        .filter(|(_, count)| *count > 0)
        .collect()
}

#[cfg(test)]
mod tests {
    use resources::Resources;

    use super::*;

    /// SPEC 3.12: the output is compatible with tools that read `/state`.
    #[test]
    fn discovery_is_not_a_label() {
        let labels = [
            ("tier", "web"),
            (
                protocol::text::reserved_labels::DISCOVERY,
                r#"{"visibility":"CLUSTER","name":"db"}"#,
            ),
        ];
        let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let view = TaskView {
            id: "t".parse().unwrap(),
            name: "t".to_owned(),
            framework_id: "f".parse().unwrap(),
            executor_id: "e".parse().unwrap(),
            agent_id: "a".parse().unwrap(),
            state: TaskState::Running,
            resources: Resources::new(),
            statuses: Vec::new(),
            labels: labels.into(),
        };
        let shown = task(&view);
        assert_eq!(shown["labels"], json!([{ "key": "tier", "value": "web" }]));
        let discovery = json!({ "visibility": "CLUSTER", "name": "db" });
        assert_eq!(shown["discovery"], discovery);
    }
}
