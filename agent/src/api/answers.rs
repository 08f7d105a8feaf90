//! Answers of the agent's operator API.
//!
//! Pure: functions of the agent's state, its containers, their usage and its operations.
//! Acknowledged ends are in the lists of completed items.

use std::collections::BTreeMap;

use authority::Approver;
use protocol::task::Limit;
use protocol::usage::{ResourceStatistics, ResourceUsage};
use protocol::{CommandInfo, OperationUpdate, TaskInfo, TaskState};
use v1::convert::{
    HostContainer, discovery, known_operation, other_labels, write_container, write_limits,
    write_resources,
};
use v1::schema::agent::{
    ResponseGetAgent, ResponseGetContainers, ResponseGetContainersContainer, ResponseGetExecutors,
    ResponseGetExecutorsExecutor, ResponseGetFrameworks, ResponseGetFrameworksFramework,
    ResponseGetOperations, ResponseGetState, ResponseGetTasks,
};
use v1::schema::{self, ContainerID, ContainerStatus, DrainConfig, Task, TaskStatus};

use crate::agent::AgentState;
use crate::api::visibility;
use crate::container::events::{ContainerView, ContainersView, Draining, NestedView};
use crate::container::machine::Phase;
use crate::operations::KnownOperation;

/// The agent's description, with the resources of visible `roles`, and its drain.
pub(super) fn agent(
    state: &AgentState,
    drain: Option<Draining>,
    roles: &Approver,
) -> ResponseGetAgent {
    let mut info = state.info.clone();
    info.resources = visibility::visible_resources(&info.resources, roles);
    ResponseGetAgent {
        agent_info: Some(Box::new((&info).into())),
        // Only the master knows whether it is marked gone afterwards.
        drain_config: drain.map(|drain| DrainConfig {
            max_grace_period: drain.max_grace_period.map(Into::into),
            mark_gone: None,
        }),
        estimated_drain_start_time: drain.map(|drain| drain.since.into()),
    }
}

/// Tasks, executors and frameworks.
pub(super) fn state(survey: &ContainersView) -> ResponseGetState {
    ResponseGetState {
        get_tasks: Some(Box::new(tasks(survey))),
        get_executors: Some(all_executors(survey)),
        get_frameworks: Some(frameworks(survey)),
    }
}

/// Present and completed frameworks.
pub(super) fn frameworks(survey: &ContainersView) -> ResponseGetFrameworks {
    let one = |info| ResponseGetFrameworksFramework {
        framework_info: schema::FrameworkInfo::from(info),
    };
    ResponseGetFrameworks {
        frameworks: survey.frameworks.iter().map(one).collect(),
        completed_frameworks: survey.completed_frameworks.iter().map(one).collect(),
    }
}

/// Live and ended executors: completed ones first, then those with unacknowledged tasks.
pub(super) fn executors(survey: &ContainersView) -> (Vec<&ContainerView>, Vec<&ContainerView>) {
    let all = survey.containers.iter();
    let (over, living): (Vec<_>, Vec<_>) = all.partition(|container| is_over(container));
    let remembered = survey.completed.iter().map(AsRef::as_ref);
    (living, remembered.chain(over).collect())
}

/// Likewise, as a v1 message.
pub(super) fn all_executors(survey: &ContainersView) -> ResponseGetExecutors {
    let (living, completed) = executors(survey);
    ResponseGetExecutors {
        executors: living.into_iter().map(executor).collect(),
        completed_executors: completed.into_iter().map(executor).collect(),
    }
}

fn executor(container: &ContainerView) -> ResponseGetExecutorsExecutor {
    let mut executor_info = schema::ExecutorInfo::from(&*container.executor.without_secrets());
    executor_info.framework_id = Some((&container.framework_id).into());
    if container.is_command {
        // The agent's own command executor has no declared type. The other fields come from its
        // task, or are the fixed overhead.
        executor_info.r#type = None;
        executor_info.command = Some(Box::new(command_executor(&container.executor.command)));
        executor_info.resources = write_resources(&container.executor_resources());
        executor_info.source = Some(container.executor.executor_id.to_string());
        executor_info.labels = other_labels(executor_labels(container)).message();
        executor_info.discovery = discovery(executor_labels(container)).map(Box::new);
    }
    ResponseGetExecutorsExecutor { executor_info }
}

/// A command executor's command as Mesos shows it: the program, with the environment and user of
/// the task's command.
fn command_executor(command: &CommandInfo) -> schema::CommandInfo {
    let name = "mesos-executor".to_owned();
    schema::CommandInfo {
        shell: Some(false),
        value: Some(name.clone()),
        arguments: vec![name],
        ..schema::CommandInfo::from(command)
    }
}

/// The tasks. None is pending: each is in a container as soon as it arrives.
pub(super) fn tasks(survey: &ContainersView) -> ResponseGetTasks {
    let mut all = ResponseGetTasks::default();
    for container in &survey.containers {
        for (info, state) in &container.tasks {
            let list = match state {
                state if state.is_terminal() => &mut all.terminated_tasks,
                TaskState::Staging if !has_subscribed(container) => &mut all.queued_tasks,
                _ => &mut all.launched_tasks,
            };
            list.push(task(container, info, *state));
        }
    }
    let remembered = survey.completed.iter().map(AsRef::as_ref);
    for container in remembered.chain(&survey.containers) {
        let completed = container.completed.iter();
        let completed = completed.map(|(info, state)| task(container, info, *state));
        all.completed_tasks.extend(completed);
    }
    all
}

fn task(container: &ContainerView, info: &TaskInfo, state: TaskState) -> Task {
    let statuses = container.statuses.get(&info.task_id).into_iter().flatten();
    let newest = statuses.clone().next_back();
    Task {
        name: info.name.clone(),
        task_id: (&info.task_id).into(),
        framework_id: (&container.framework_id).into(),
        // A command executor's tasks have no executor id, as in Mesos.
        executor_id: (!container.is_command).then(|| (&container.executor.executor_id).into()),
        agent_id: (&info.agent_id).into(),
        state: state.into(),
        resources: write_resources(&info.resources),
        statuses: statuses
            .map(|statuses| status(container, info, statuses))
            .collect(),
        status_update_state: newest.map(|newest| newest.state.into()),
        status_update_uuid: newest
            .and_then(|newest| newest.uuid)
            .map(|uuid| uuid.0.to_vec().into()),
        labels: other_labels(&info.labels).message(),
        discovery: discovery(&info.labels).map(Box::new),
        container: write_container(info.container.as_deref()).map(Box::new),
        user: user_of(info).cloned(),
        health_check: info
            .health_check
            .as_deref()
            .map(|check| Box::new(check.into())),
        kill_policy: info.kill_policy.as_ref().map(Into::into),
        limits: write_limits(&info.limits),
    }
}

/// A status, with missing fields filled in from its container.
pub(super) fn status(
    container: &ContainerView,
    info: &TaskInfo,
    statuses: &protocol::TaskStatus,
) -> TaskStatus {
    let mut status = TaskStatus::from(statuses);
    status.agent_id = Some((&info.agent_id).into());
    status.executor_id = Some((&container.executor.executor_id).into());
    let own = container_status(container);
    let shown = status.container_status.get_or_insert_default();
    shown.container_id = shown.container_id.take().or(own.container_id);
    if shown.network_infos.is_empty() {
        shown.network_infos = own.network_infos;
    }
    shown.executor_pid = shown.executor_pid.or(own.executor_pid);
    status
}

/// The user that a task names, if any.
pub(super) fn user_of(info: &TaskInfo) -> Option<&String> {
    let own = info.executor.as_ref().map(|executor| &executor.command);
    let command = info.command.as_ref().or(own);
    command.and_then(|command| command.user.as_ref())
}

/// A container's status. Without cgroup information: no network class is set.
pub(super) fn container_status(container: &ContainerView) -> ContainerStatus {
    let contained = HostContainer {
        id: Some(&container.id),
        address: container.address,
    };
    let mut status = ContainerStatus {
        executor_pid: container.leader.and_then(|leader| leader.try_into().ok()),
        ..contained.into()
    };
    if !container.networks.is_empty() {
        status.network_infos = container.networks.iter().map(Into::into).collect();
    }
    status
}

/// The operations.
pub(super) fn operations(known: &[KnownOperation]) -> ResponseGetOperations {
    let one = |one: &KnownOperation| {
        let OperationUpdate {
            framework_id,
            status,
        } = &one.update;
        known_operation(framework_id, one.conversion.as_ref(), status)
    };
    ResponseGetOperations {
        operations: known.iter().map(one).collect(),
    }
}

/// The live containers with their latest statistics, and those `nested` in them if wanted. As in
/// Mesos, a nested one has its own id only; its status has those of its parents.
pub(super) fn containers(
    survey: &ContainersView,
    usage: &ResourceUsage,
    show_nested: bool,
) -> ResponseGetContainers {
    let living = survey.containers.iter();
    let living = living.filter(|container| !is_over(container));
    let mut shown = ResponseGetContainers::default();
    let mut outermost = BTreeMap::new();
    let all_measured = measured(usage);
    for container in living {
        let measured = all_measured.get(&container.id).copied();
        outermost.insert(&container.id, (container, measured));
        shown.containers.push(ResponseGetContainersContainer {
            framework_id: Some((&container.framework_id).into()),
            executor_id: Some((&container.executor.executor_id).into()),
            executor_name: Some(container.executor.name.clone()),
            container_id: (&container.id).into(),
            container_status: Some(Box::new(container_status(container))),
            resource_statistics: measured.map(|one| Box::new(one.into())),
        });
    }
    for one in survey.nested.iter().filter(|_| show_nested) {
        // It is as visible as the one around it.
        let Some((around, measured)) = outermost.get(&one.id.outermost()) else {
            continue;
        };
        shown.containers.push(ResponseGetContainersContainer {
            container_id: ContainerID {
                value: one.id.name().to_owned(),
                parent: None,
            },
            container_status: Some(Box::new(nested_status(one, around))),
            resource_statistics: measured.map(|around| Box::new(nested_statistics(one, around))),
            ..ResponseGetContainersContainer::default()
        });
    }
    shown
}

fn nested_status(nested: &NestedView, around: &ContainerView) -> ContainerStatus {
    let mut status = ContainerStatus {
        container_id: Some((&nested.id).into()),
        executor_pid: nested.leader.and_then(|leader| leader.try_into().ok()),
        ..container_status(around)
    };
    if !nested.networks.is_empty() {
        status.network_infos = nested.networks.iter().map(Into::into).collect();
    }
    status
}

/// The limits of a nested container. Its use counts in the one around it.
fn nested_statistics(
    nested: &NestedView,
    around: &ResourceStatistics,
) -> schema::ResourceStatistics {
    let mut shown = schema::ResourceStatistics {
        timestamp: around.timestamp.as_secs_f64(),
        ..schema::ResourceStatistics::default()
    };
    if let Some((requests, limits)) = &nested.resources {
        let (cpus, mem) = (requests.cpus().as_f64(), requests.mem().as_f64());
        let bytes = |mebibytes: f64| (mebibytes * 1024.0 * 1024.0) as u64;
        let limit = |own: Option<Limit>, request| {
            let limit = own.map_or(request, Limit::value);
            Some(limit).filter(|limit| limit.is_finite())
        };
        shown.cpus_soft_limit = Some(cpus);
        shown.cpus_limit = limit(limits.cpus, cpus);
        shown.mem_soft_limit_bytes = Some(bytes(mem));
        shown.mem_limit_bytes = limit(limits.mem, mem).map(bytes);
    }
    shown
}

/// The statistics of containers.
pub(super) fn measured(
    usage: &ResourceUsage,
) -> BTreeMap<&protocol::ContainerId, &ResourceStatistics> {
    let executors = usage.executors.iter();
    executors
        .filter_map(|executor| Some((&executor.container_id, executor.statistics.as_ref()?)))
        .collect()
}

/// An executor's labels; for a command executor those of its task.
pub(super) fn executor_labels(container: &ContainerView) -> &protocol::task::Labels {
    let task = container.command_task();
    task.map_or(&container.executor.labels, |task| &task.labels)
}

/// Whether a container's processes are gone.
pub(super) fn is_over(container: &ContainerView) -> bool {
    container.phase == Phase::Terminated
}

/// Whether a container's executor has subscribed.
pub(super) fn has_subscribed(container: &ContainerView) -> bool {
    !matches!(
        container.phase,
        Phase::Preparing | Phase::Launching | Phase::Registering
    )
}
