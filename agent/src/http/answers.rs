//! Answers to what tools ask of an agent over the operator API (SPEC 2.7).
//!
//! Pure: functions of the agent's state, of a survey of its containers, of what they use and of its operations. Of what has ended and is acknowledged
//! the newest is in the lists of what is completed.

use authority::Approver;
use protocol::usage::{ResourceStatistics, ResourceUsage};
use protocol::{CommandInfo, OperationUpdate, TaskInfo, TaskState};
use v1::convert::{Contained, discovery, known_operation, other_labels, write_resources};
use v1::schema::agent::{
    ResponseGetAgent, ResponseGetContainers, ResponseGetContainersContainer, ResponseGetExecutors,
    ResponseGetExecutorsExecutor, ResponseGetFrameworks, ResponseGetFrameworksFramework,
    ResponseGetOperations, ResponseGetState, ResponseGetTasks,
};
use v1::schema::{self, ContainerStatus, DrainConfig, Task, TaskStatus};

use crate::agent::AgentState;
use crate::container::events::{ContainerView, Draining, Survey};
use crate::container::machine::Phase;
use crate::operations::KnownOperation;
use crate::sight;

/// Who it is, with its resources as far as `roles` are seen, and whether it is being drained.
pub(super) fn agent(
    state: &AgentState,
    drain: Option<Draining>,
    roles: &Approver,
) -> ResponseGetAgent {
    let mut info = state.info.clone();
    info.resources = sight::resources(&info.resources, roles);
    ResponseGetAgent {
        agent_info: Some(Box::new((&info).into())),
        // Whether it is to be gone afterwards its master knows alone.
        drain_config: drain.map(|drain| DrainConfig {
            max_grace_period: drain.max_grace_period.map(Into::into),
            mark_gone: None,
        }),
        estimated_drain_start_time: drain.map(|drain| drain.since.into()),
    }
}

/// Tasks, executors and frameworks.
pub(super) fn state(survey: &Survey) -> ResponseGetState {
    ResponseGetState {
        get_tasks: Some(Box::new(tasks(survey))),
        get_executors: Some(all_executors(survey)),
        get_frameworks: Some(frameworks(survey)),
    }
}

/// The frameworks with something here, and those that had.
pub(super) fn frameworks(survey: &Survey) -> ResponseGetFrameworks {
    let one = |info| ResponseGetFrameworksFramework {
        framework_info: schema::FrameworkInfo::from(info),
    };
    ResponseGetFrameworks {
        frameworks: survey.frameworks.iter().map(one).collect(),
        completed_frameworks: survey.completed_frameworks.iter().map(one).collect(),
    }
}

/// The executors that live, and those that are over: remembered ones first, then those whose tasks' ends are not acknowledged yet.
pub(super) fn executors(survey: &Survey) -> (Vec<&ContainerView>, Vec<&ContainerView>) {
    let all = survey.containers.iter();
    let (over, living): (Vec<_>, Vec<_>) = all.partition(|container| is_over(container));
    let remembered = survey.completed.iter().map(AsRef::as_ref);
    (living, remembered.chain(over).collect())
}

/// The same in the schema's words.
pub(super) fn all_executors(survey: &Survey) -> ResponseGetExecutors {
    let (living, completed) = executors(survey);
    ResponseGetExecutors {
        executors: living.into_iter().map(executor).collect(),
        completed_executors: completed.into_iter().map(executor).collect(),
    }
}

fn executor(container: &ContainerView) -> ResponseGetExecutorsExecutor {
    let mut executor_info = schema::ExecutorInfo::from(&container.executor);
    executor_info.framework_id = Some((&container.framework_id).into());
    if container.is_command {
        // It is the agent's own, and nobody has said a type. The rest is the task's, or counted for every command.
        executor_info.r#type = None;
        executor_info.command = Some(Box::new(command_executor(&container.executor.command)));
        executor_info.resources = write_resources(&container.own_share());
        executor_info.source = Some(container.executor.executor_id.to_string());
        executor_info.labels = other_labels(executor_labels(container)).message();
        executor_info.discovery = discovery(executor_labels(container)).map(Box::new);
    }
    ResponseGetExecutorsExecutor { executor_info }
}

/// How a command's executor is started, as Mesos shows it: the program, with the environment and the user of the command.
fn command_executor(command: &CommandInfo) -> schema::CommandInfo {
    let name = "mesos-executor".to_owned();
    schema::CommandInfo {
        shell: Some(false),
        value: Some(name.clone()),
        arguments: vec![name],
        ..schema::CommandInfo::from(command)
    }
}

/// The tasks. None is pending: each is in a container as soon as the agent has heard of it.
pub(super) fn tasks(survey: &Survey) -> ResponseGetTasks {
    let mut all = ResponseGetTasks::default();
    for container in &survey.containers {
        for (info, state) in &container.tasks {
            let list = match state {
                state if state.is_terminal() => &mut all.terminated_tasks,
                TaskState::Staging if !is_heard(container) => &mut all.queued_tasks,
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
    let told = container.told.get(&info.task_id).into_iter().flatten();
    let newest = told.clone().next_back();
    Task {
        name: info.name.clone(),
        task_id: (&info.task_id).into(),
        framework_id: (&container.framework_id).into(),
        // A command's executor stands in no task, as in Mesos.
        executor_id: (!container.is_command).then(|| (&container.executor.executor_id).into()),
        agent_id: (&info.agent_id).into(),
        state: state.into(),
        resources: write_resources(&info.resources),
        statuses: told.map(|told| status(container, info, told)).collect(),
        status_update_state: newest.map(|newest| newest.state.into()),
        status_update_uuid: newest
            .and_then(|newest| newest.uuid)
            .map(|uuid| uuid.0.to_vec().into()),
        labels: other_labels(&info.labels).message(),
        discovery: discovery(&info.labels).map(Box::new),
        user: user_of(info).cloned(),
        kill_policy: info.kill_policy.as_ref().map(Into::into),
        ..Task::default()
    }
}

/// What was told of a task. What that does not say of its container is known here.
pub(super) fn status(
    container: &ContainerView,
    info: &TaskInfo,
    told: &protocol::TaskStatus,
) -> TaskStatus {
    let mut status = TaskStatus::from(told);
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

/// The user that a task runs as, where it says so.
pub(super) fn user_of(info: &TaskInfo) -> Option<&String> {
    let own = info.executor.as_ref().map(|executor| &executor.command);
    let command = info.command.as_ref().or(own);
    command.and_then(|command| command.user.as_ref())
}

/// How a container is. There is nothing to say of its cgroups: none has a network class.
pub(super) fn container_status(container: &ContainerView) -> ContainerStatus {
    let contained = Contained {
        id: Some(&container.id),
        address: container.address,
    };
    ContainerStatus {
        executor_pid: container.leader.and_then(|leader| leader.try_into().ok()),
        ..contained.into()
    }
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

/// The containers that run, with what was measured of them last.
pub(super) fn containers(survey: &Survey, usage: &ResourceUsage) -> ResponseGetContainers {
    let living = survey.containers.iter();
    let living = living.filter(|container| !is_over(container));
    let one = |container: &ContainerView| ResponseGetContainersContainer {
        framework_id: Some((&container.framework_id).into()),
        executor_id: Some((&container.executor.executor_id).into()),
        executor_name: Some(container.executor.name.clone()),
        container_id: (&container.id).into(),
        container_status: Some(Box::new(container_status(container))),
        resource_statistics: measured(container, usage)
            .map(|one| Box::new(statistics(container, one))),
    };
    ResponseGetContainers {
        containers: living.map(one).collect(),
    }
}

/// What was measured of a container.
pub(super) fn measured<'a>(
    container: &ContainerView,
    usage: &'a ResourceUsage,
) -> Option<&'a ResourceStatistics> {
    let mut executors = usage.executors.iter();
    let own = executors.find(|executor| executor.container_id == container.id)?;
    own.statistics.as_ref()
}

/// The notes of an executor: those of its task, if it is a command's.
pub(super) fn executor_labels(container: &ContainerView) -> &protocol::task::Labels {
    let task = container.command_task();
    task.map_or(&container.executor.labels, |task| &task.labels)
}

/// The limits that statistics show: what a container holds, with what is counted for its executor itself.
pub(super) struct Limits {
    pub cpus: f64,
    pub mem_bytes: u64,
}

impl Limits {
    pub fn of(container: &ContainerView, measured: &ResourceStatistics) -> Self {
        let own = container.own_share();
        let own_mem = (own.mem().as_f64() * 1024.0 * 1024.0) as u64;
        Self {
            cpus: measured.cpus_limit + own.cpus().as_f64(),
            mem_bytes: measured.mem_limit_bytes + own_mem,
        }
    }
}

fn statistics(
    container: &ContainerView,
    measured: &ResourceStatistics,
) -> schema::ResourceStatistics {
    let limits = Limits::of(container, measured);
    schema::ResourceStatistics {
        timestamp: measured.timestamp.as_secs_f64(),
        processes: Some(measured.processes),
        threads: Some(measured.threads),
        cpus_user_time_secs: Some(measured.cpus_user_time_secs),
        cpus_system_time_secs: Some(measured.cpus_system_time_secs),
        cpus_limit: Some(limits.cpus),
        cpus_soft_limit: Some(limits.cpus),
        mem_rss_bytes: Some(measured.mem_rss_bytes),
        mem_limit_bytes: Some(limits.mem_bytes),
        mem_soft_limit_bytes: Some(limits.mem_bytes),
        ..schema::ResourceStatistics::default()
    }
}

/// Whether nothing of a container runs any more.
pub(super) fn is_over(container: &ContainerView) -> bool {
    container.phase == Phase::Terminated
}

/// Whether a container's executor has subscribed.
pub(super) fn is_heard(container: &ContainerView) -> bool {
    !matches!(
        container.phase,
        Phase::Preparing | Phase::Launching | Phase::Registering
    )
}
