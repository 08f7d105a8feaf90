//! `/state`, `/containers` and `/monitor/statistics` of an agent, with the JSON keys of Mesos.
//!
//! Pure. Of the build fields only version and time are set, the others are empty. Features that do
//! not exist (`log_dir`), an unknown master and an absent drain are left out, as in Mesos.

use std::collections::BTreeMap;
use std::time::Duration;

use authority::Approver;
use http::build;
use protocol::task::Labels;
use protocol::usage::{ExecutorUsage, ResourceUsage};
use protocol::{
    ContainerId, ExecutorId, FrameworkId, FrameworkInfo, TaskInfo, TaskState, TaskStatus,
};
use resources::Resources;
use resources::json::{attributes_object, resources_object};
use serde::{Serialize, Serializer};
use serde_json::{Value, json};
use v1::convert::legacy::in_both_forms;
use v1::convert::{AGENT_CAPABILITIES, discovery, other_labels, pid, write_resources};
use v1::json::Json;
use v1::schema::ResourceStatistics;
use v1::v0::{self, LabelList, LimitsObject, StatusEntry, role};

use super::answers::{
    self, container_status, executor_labels, executors, has_subscribed, is_over, measured, user_of,
};
use crate::agent::{AgentState, VERSION};
use crate::api::visibility;
use crate::container::events::{ContainerView, ContainersView};

/// The total allocation of live containers.
pub(super) fn allocated(survey: &ContainersView) -> Resources {
    let living = survey.containers.iter();
    let living = living.filter(|container| !is_over(container));
    let mut sum = Resources::new();
    for container in living {
        sum += &container.allocated_with_overhead().unallocate();
    }
    sum
}

/// `/state` without the flags. Reservations are filtered by `roles`; totals are not.
pub(super) fn whole(
    state: &AgentState,
    survey: &ContainersView,
    allocated: &Resources,
    roles: &Approver,
) -> Value {
    let info = &state.info;
    let visible = visibility::visible_resources(&info.resources, roles);
    let visible_allocated = visibility::visible_resources(allocated, roles);
    let frameworks = survey.frameworks.iter();
    let frameworks = frameworks.map(|framework| self::framework(framework, survey));
    let completed = survey.completed_frameworks.iter();
    let completed = completed.map(|framework| self::framework(framework, survey));
    let mut json = json!({
        "version": v1::MESOS_VERSION,
        "meros_version": VERSION,
        "git_sha": "",
        "git_branch": "",
        "git_tag": "",
        "build_date": build::date(),
        "build_time": build::time() as f64,
        "build_user": "",
        "start_time": state.started.as_secs_f64(),
        "id": info.id.as_ref().map_or("", |id| id.as_str()),
        "pid": pid("slave(1)", state.address, &info.hostname, info.port),
        "hostname": info.hostname,
        "port": info.port,
        "capabilities": AGENT_CAPABILITIES,
        "resources": resources(&info.resources),
        "reserved_resources": reserved(&visible),
        "reserved_resources_full": by_role(&visible, full),
        "reserved_resources_allocated": reserved(&visible_allocated),
        "unreserved_resources": resources(&info.resources.unreserved()),
        "unreserved_resources_full": full(&info.resources.unreserved()),
        "unreserved_resources_allocated": resources(&allocated.unreserved()),
        "oversubscribed_resources": resources(&state.metrics.oversubscribed),
        "resource_providers": [],
        "attributes": attributes_object(&info.attributes),
        "frameworks": frameworks.collect::<Vec<_>>(),
        "completed_frameworks": completed.collect::<Vec<_>>(),
    });
    if let Some(master) = &state.master {
        json["master_hostname"] = json!(host(master));
    }
    if let Some(domain) = &info.domain {
        json["domain"] = v0::domain(domain);
    }
    if let Some(drain) = survey.drain {
        // Only the master knows whether it is marked gone afterwards.
        let grace = drain.max_grace_period;
        let nanoseconds = |grace: Duration| i64::try_from(grace.as_nanos()).unwrap_or(i64::MAX);
        let grace = grace.map(|grace| json!({ "nanoseconds": nanoseconds(grace) }));
        let config = grace.map(|grace| ("max_grace_period".to_owned(), grace));
        json["drain_config"] = Value::Object(config.into_iter().collect());
        let since = drain.since.as_secs_f64();
        json["estimated_drain_start_time_seconds"] = json!(since);
    }
    json
}

/// The host of an address.
fn host(address: &str) -> &str {
    address.rsplit_once(':').map_or(address, |(host, _)| host)
}

fn resources(resources: &Resources) -> Value {
    Value::Object(resources_object(resources))
}

fn reserved(resources: &Resources) -> Value {
    by_role(resources, self::resources)
}

/// Reserved resources by role.
fn by_role(resources: &Resources, show: impl Fn(&Resources) -> Value) -> Value {
    let reservations = resources.reservations().into_iter();
    let shown = reservations.map(|(role, reserved)| (role.to_string(), show(&reserved)));
    json!(shown.collect::<BTreeMap<_, _>>())
}

/// Resource objects, in the old and new format.
fn full(resources: &Resources) -> Value {
    let mut all = write_resources(resources);
    in_both_forms(&mut all);
    let json = |one| serde_json::from_slice(&v1::json::write(one)).unwrap_or_default();
    all.iter()
        .map(|one| json(one))
        .collect::<Vec<Value>>()
        .into()
}

/// Labels, without those shown in fields of their own.
fn labels(labels: &Labels) -> Value {
    json!(LabelList(other_labels(labels)))
}

fn framework(info: &FrameworkInfo, survey: &ContainersView) -> Value {
    let (living, completed) = executors(survey);
    let own = |all: Vec<&ContainerView>| {
        let own = all.into_iter();
        let own = own.filter(|one| Some(&one.framework_id) == info.id.as_ref());
        own.map(executor).collect::<Vec<_>>()
    };
    let mut json = json!({
        "id": info.id,
        "name": info.name,
        "user": info.user,
        "failover_timeout": info.failover_timeout.as_secs_f64(),
        "checkpoint": info.checkpoint,
        "hostname": info.hostname,
        "roles": info.roles,
        "executors": own(living),
        "completed_executors": own(completed),
    });
    if let Some(principal) = &info.principal {
        json["principal"] = json!(principal);
    }
    if let (1, Some(role)) = (info.roles.len(), info.roles.first()) {
        json["role"] = json!(role);
    }
    json
}

fn executor(container: &ContainerView) -> Value {
    let tasks = |wanted: &dyn Fn(TaskState) -> bool| {
        let tasks = container.tasks.iter();
        let tasks = tasks.filter(|(_, state)| wanted(*state));
        tasks
            .map(|(info, state)| task(container, info, *state))
            .collect::<Vec<_>>()
    };
    let completed = container.completed.iter();
    let completed = completed.map(|(info, state)| task(container, info, *state));
    let is_queued = |state| state == TaskState::Staging && !has_subscribed(container);
    let mut json = json!({
        "id": container.executor.executor_id,
        "name": container.executor.name,
        "source": source(container.is_command, &container.executor.executor_id),
        "container": container.id,
        "directory": container.directory,
        "resources": resources(&container.allocated_with_overhead()),
        "role": role(&container.allocated),
        "labels": labels(executor_labels(container)),
        "tasks": tasks(&|state| !state.is_terminal() && !is_queued(state)),
        "queued_tasks": tasks(&is_queued),
        "completed_tasks": completed.chain(tasks(&TaskState::is_terminal)).collect::<Vec<_>>(),
    });
    if !container.is_command {
        json["type"] = json!("CUSTOM");
    }
    if let Some(discovery) = discovery(executor_labels(container)) {
        json["discovery"] = json!(Json(&discovery));
    }
    json
}

fn task(container: &ContainerView, info: &TaskInfo, state: TaskState) -> Value {
    let statuses = container.statuses.get(&info.task_id).into_iter().flatten();
    let mut json = json!({
        "id": info.task_id,
        "name": info.name,
        "framework_id": container.framework_id,
        // A command executor's tasks have no executor id, as in Mesos.
        "executor_id": if container.is_command { "" } else { container.executor.executor_id.as_str() },
        "slave_id": info.agent_id,
        "state": state.name(),
        "resources": resources(&info.resources),
        "limits": LimitsObject(&info.limits),
        "role": role(&info.resources),
        "statuses": statuses.map(|statuses| status(container, info, statuses)).collect::<Vec<_>>(),
        "labels": labels(&info.labels),
    });
    if let Some(user) = user_of(info) {
        json["user"] = json!(user);
    }
    if let Some(discovery) = discovery(&info.labels) {
        json["discovery"] = json!(Json(&discovery));
    }
    if let Some(check) = &info.health_check {
        json["health_check"] = json!(Json(&v1::schema::HealthCheck::from(check.as_ref())));
    }
    json
}

/// A status, with the same keys as on the master's pages.
fn status(container: &ContainerView, info: &TaskInfo, statuses: &TaskStatus) -> Value {
    let shown = answers::status(container, info, statuses);
    json!(StatusEntry {
        status: statuses,
        container: shown.container_status.as_deref().map(|own| Json(own)),
    })
}

/// The source of statistics: the task of a command executor, as in Mesos. Empty for custom
/// executors.
fn source(is_command: bool, executor_id: &ExecutorId) -> &str {
    match is_command {
        true => executor_id.as_str(),
        false => "",
    }
}

/// `/containers`.
pub(super) fn containers(survey: &ContainersView, usage: &ResourceUsage) -> Value {
    let living = survey.containers.iter();
    let living = living.filter(|container| !is_over(container));
    let measured = measured(usage);
    let one = |container: &ContainerView| {
        let mut json = json!({
            "framework_id": container.framework_id,
            "executor_id": container.executor.executor_id,
            "executor_name": container.executor.name,
            "source": source(container.is_command, &container.executor.executor_id),
            "container_id": container.id,
            "status": Json(&container_status(container)),
        });
        if let Some(measured) = measured.get(&container.id) {
            json["statistics"] = json!(Json(&ResourceStatistics::from(*measured)));
        }
        json
    };
    living.map(one).collect::<Vec<_>>().into()
}

/// `/monitor/statistics`: the latest statistics of each executor. Written without a tree of values,
/// since monitoring tools read it each second.
pub(super) struct Monitored(pub ResourceUsage);

impl Serialize for Monitored {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let executors = self.0.executors.iter();
        serializer.collect_seq(executors.filter_map(MonitoredExecutor::new))
    }
}

#[derive(Serialize)]
struct MonitoredExecutor<'a> {
    container_id: &'a ContainerId,
    executor_id: &'a ExecutorId,
    executor_name: &'a str,
    framework_id: &'a FrameworkId,
    source: &'a str,
    #[serde(serialize_with = "as_json")]
    statistics: ResourceStatistics,
}

impl<'a> MonitoredExecutor<'a> {
    fn new(usage: &'a ExecutorUsage) -> Option<Self> {
        Some(Self {
            container_id: &usage.container_id,
            executor_id: &usage.executor_id,
            executor_name: &usage.executor_name,
            framework_id: &usage.framework_id,
            source: source(usage.is_command, &usage.executor_id),
            statistics: usage.statistics.as_ref()?.into(),
        })
    }
}

fn as_json<S: Serializer>(
    statistics: &ResourceStatistics,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    Json(statistics).serialize(serializer)
}
