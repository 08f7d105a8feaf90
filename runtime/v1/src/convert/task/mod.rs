//! Tasks, commands and executors; their checks are in [`check`], settings of containers in
//! [`container`].

mod check;
mod container;
mod network;

pub use check::check_result;

use std::collections::BTreeMap;
use std::time::Duration;

use protocol::Uri;
use protocol::task::{Limit, TaskLimits};
use protocol::text::reserved_labels::DISCOVERY;
use resources::{Invalid, shortened};

use super::labels::read_with;
use super::resource::{read_resources, write_resources};
use super::{At, each, need, refuse, some};
use crate::convert::labels::messages::{discovery, keep_message, other_labels, reserved_keys};
use crate::schema::{
    CommandInfo, CommandInfoURI, ContainerInfo, DiscoveryInfo, DurationInfo, Environment,
    EnvironmentVariable, EnvironmentVariableType, ExecutorInfo, ExecutorInfoType, HealthCheckType,
    KillPolicy, Labels, OfferOperationLaunchGroup, TaskInfo, ValueScalar,
};

/// The longest id of a valid task.
const ID_MAX: usize = 255;

/// Default grace period of a kill policy.
const GRACE_PERIOD_NANOS: i64 = 3_000_000_000;

impl TryFrom<&TaskInfo> for protocol::TaskInfo {
    type Error = Invalid;

    fn try_from(task: &TaskInfo) -> Result<Self, Invalid> {
        check_file(task.command.as_deref(), task.container.as_deref())?;
        Ok(Self {
            name: task.name.clone(),
            task_id: (&task.task_id).try_into().at("task_id")?,
            agent_id: (&task.agent_id).try_into().at("agent_id")?,
            resources: read_resources("resources", &task.resources)?,
            command: some("command", task.command.as_deref())?,
            executor: some("executor", task.executor.as_deref())?,
            data: task
                .data
                .as_ref()
                .map(|data| data.to_vec())
                .unwrap_or_default(),
            kill_policy: some("kill_policy", task.kill_policy.as_ref())?,
            health_check: read_boxed(task.health_check.as_deref())?,
            check: read_boxed(task.check.as_deref())?,
            checks: check::read_named(&task.checks)?,
            max_completion_time: read_completion_time(task.max_completion_time.as_ref())?,
            limits: read_limits(&task.limits)?,
            labels: with_discovery(task.labels.as_ref(), task.discovery.as_deref()),
            container: some("container", task.container.as_deref())?.map(Box::new),
            group: None,
        })
    }
}

impl From<&protocol::TaskInfo> for TaskInfo {
    fn from(task: &protocol::TaskInfo) -> Self {
        Self {
            name: task.name.clone(),
            task_id: (&task.task_id).into(),
            agent_id: (&task.agent_id).into(),
            resources: write_resources(&task.resources),
            executor: task
                .executor
                .as_ref()
                .map(|executor| Box::new(executor.into())),
            data: (!task.data.is_empty()).then(|| task.data.clone().into()),
            command: task
                .command
                .as_ref()
                .map(|command| Box::new(command.into())),
            labels: other_labels(&task.labels).message(),
            discovery: discovery(&task.labels).map(Box::new),
            container: task.container.as_deref().map(|one| Box::new(one.into())),
            kill_policy: task.kill_policy.as_ref().map(Into::into),
            health_check: write_boxed(task.health_check.as_deref()),
            check: write_boxed(task.check.as_deref()),
            max_completion_time: task.max_completion_time.map(Into::into),
            limits: write_limits(&task.limits),
            checks: super::write(&task.checks),
        }
    }
}

fn read_boxed<'a, A, B: TryFrom<&'a A, Error = Invalid>>(
    value: Option<&'a A>,
) -> Result<Option<Box<B>>, Invalid> {
    let read = value.map(B::try_from).transpose()?;
    Ok(read.map(Box::new))
}

fn write_boxed<'a, A, B: From<&'a A>>(value: Option<&'a A>) -> Option<Box<B>> {
    value.map(|value| Box::new(value.into()))
}

/// Not negative, else with Mesos' message.
fn read_completion_time(given: Option<&DurationInfo>) -> Result<Option<Duration>, Invalid> {
    let negative = |_| Invalid::message("Task's `max_completion_time` must be non-negative");
    given.map(Duration::try_from).transpose().map_err(negative)
}

/// Only of `cpus` and `mem`, else with Mesos' message.
pub(super) fn read_limits(given: &BTreeMap<String, ValueScalar>) -> Result<TaskLimits, Invalid> {
    let mut limits = TaskLimits::default();
    for (name, scalar) in given {
        let place = format!("limits[{name}]");
        let limit = match scalar.value {
            value if value == f64::INFINITY => Limit::Infinite,
            _ => Limit::Amount(resources::Scalar::try_from(scalar).at(&place)?.as_f64()),
        };
        match name.as_str() {
            "cpus" => limits.cpus = Some(limit),
            "mem" => limits.mem = Some(limit),
            _ => {
                let problem = "Only cpus and mem may be included in a task's resource limits";
                return Err(Invalid::message(problem));
            }
        }
    }
    Ok(limits)
}

/// A task's limits by the names of their resources.
pub fn write_limits(limits: &TaskLimits) -> BTreeMap<String, ValueScalar> {
    let scalar = |limit: Limit| ValueScalar {
        value: limit.value(),
    };
    let limits = limits.iter();
    limits
        .map(|(name, limit)| (name.to_owned(), scalar(limit)))
        .collect()
}

/// These labels, with the discovery info as one of them.
fn with_discovery(
    labels: Option<&Labels>,
    discovery: Option<&DiscoveryInfo>,
) -> BTreeMap<String, String> {
    read_with(
        labels,
        |map| keep_message(map, DISCOVERY, discovery),
        reserved_keys,
    )
}

/// The settings of a container for pages: without its secrets.
pub fn write_container(container: Option<&protocol::task::ContainerInfo>) -> Option<ContainerInfo> {
    container.map(|container| {
        let mut container = container.clone();
        container.remove_secrets();
        (&container).into()
    })
}

impl TryFrom<&CommandInfo> for protocol::CommandInfo {
    type Error = Invalid;

    fn try_from(command: &CommandInfo) -> Result<Self, Invalid> {
        let shell = command.shell.unwrap_or(true);
        let expected = match shell {
            true => "a line for the shell",
            false => "the path of a program",
        };
        let variables = command.environment.as_ref();
        let variables = variables.map_or(&[][..], |environment| &environment.variables);
        let environment: Vec<(String, String)> =
            each("variables", variables, read_variable).at("environment")?;
        let value = match (&command.value, shell) {
            // With an image, its own words are executed; else the task is refused.
            (None, false) => String::new(),
            (value, _) => need("value", value.as_ref(), expected)?.clone(),
        };
        Ok(Self {
            value,
            shell,
            arguments: command.arguments.clone(),
            environment: environment.into_iter().collect::<BTreeMap<_, _>>(),
            user: command.user.clone(),
            uris: each("uris", &command.uris, read_uri)?,
        })
    }
}

fn read_uri(uri: &CommandInfoURI) -> Result<Uri, Invalid> {
    let uri = Uri {
        value: uri.value.clone(),
        executable: uri.executable.unwrap_or(false),
        extract: uri.extract.unwrap_or(true),
        cache: uri.cache.unwrap_or(false),
        output_file: uri.output_file.clone(),
        digest: uri.digest.clone(),
    };
    uri.check().map(|()| uri)
}

fn write_uri(uri: &Uri) -> CommandInfoURI {
    CommandInfoURI {
        value: uri.value.clone(),
        executable: Some(uri.executable),
        extract: Some(uri.extract),
        cache: Some(uri.cache),
        output_file: uri.output_file.clone(),
        digest: uri.digest.clone(),
    }
}

fn read_variable(variable: &EnvironmentVariable) -> Result<(String, String), Invalid> {
    let is_secret = variable.r#type == Some(EnvironmentVariableType::Secret);
    refuse(
        "type",
        is_secret || variable.secret.is_some(),
        "SECRET",
        "VALUE, since secrets are not resolved yet",
    )?;
    let value = need("value", variable.value.as_ref(), "the variable's value")?;
    Ok((variable.name.clone(), value.clone()))
}

impl From<&protocol::CommandInfo> for CommandInfo {
    fn from(command: &protocol::CommandInfo) -> Self {
        let variable = |(name, value): (&String, &String)| EnvironmentVariable {
            name: name.clone(),
            value: Some(value.clone()),
            r#type: Some(EnvironmentVariableType::Value),
            ..EnvironmentVariable::default()
        };
        let variables = &command.environment;
        Self {
            environment: (!variables.is_empty()).then(|| Environment {
                variables: variables.iter().map(variable).collect(),
            }),
            value: Some(command.value.clone()),
            user: command.user.clone(),
            shell: Some(command.shell),
            arguments: command.arguments.clone(),
            uris: command.uris.iter().map(write_uri).collect(),
        }
    }
}

/// Without an image a command names its file.
fn check_file(
    command: Option<&CommandInfo>,
    container: Option<&ContainerInfo>,
) -> Result<(), Invalid> {
    let is_absent = command.is_some_and(|command| command.value.is_none());
    let has_image = container.is_some_and(|one| has_image(one) || one.docker.is_some());
    let expected = "the path of a program";
    refuse("command.value", is_absent && !has_image, "absent", expected)
}

/// What Mesos demands of the executor of a group, and of each of its tasks, with its messages.
pub(super) fn check_group(
    group: &OfferOperationLaunchGroup,
    framework: &protocol::FrameworkId,
) -> Result<(), Invalid> {
    for task in &group.task_group.tasks {
        let networks = task.container.as_ref().map(|one| &one.network_infos);
        let own_network = networks.is_some_and(|networks| !networks.is_empty());
        let kind = task.health_check.as_ref().and_then(|check| check.r#type);
        if own_network && matches!(kind, Some(HealthCheckType::Http | HealthCheckType::Tcp)) {
            let problem = "HTTP and TCP health checks are not supported for nested containers not joining parent's network";
            return Err(of_task(task, Invalid::message(problem)));
        }
    }
    let executor = &group.executor;
    let problem = match (&executor.framework_id, executor.r#type) {
        (None, _) => "'ExecutorInfo.framework_id' must be set".to_owned(),
        (Some(id), _) if id.value != framework.as_str() => format!(
            "ExecutorInfo has an invalid FrameworkID (Actual: {} vs Expected: {framework})",
            id.value
        ),
        (_, None) => "'ExecutorInfo.type' must be set".to_owned(),
        (_, Some(ExecutorInfoType::Unknown)) => "Unknown executor type".to_owned(),
        _ => return Ok(()),
    };
    Err(Invalid::message(problem))
}

/// A message of Mesos about a task of a group names the task.
pub(super) fn of_task(task: &TaskInfo, bad: Invalid) -> Invalid {
    match bad.field.is_empty() {
        true => {
            let id = shortened(&task.task_id.value, ID_MAX);
            Invalid::message(format!("Task '{id}' is invalid: {bad}"))
        }
        false => bad,
    }
}

/// Refuses a task whose executor names another framework.
pub(super) fn check_executor(
    task: &TaskInfo,
    framework: &protocol::FrameworkId,
) -> Result<(), Invalid> {
    let executor = task.executor.as_deref();
    match executor.and_then(|executor| executor.framework_id.as_ref()) {
        Some(id) if id.value != framework.as_str() => {
            let field = "executor.framework_id.value";
            let expected = format!("`{framework}`, the calling framework, or none");
            Err(Invalid::new(field, &id.value, expected))
        }
        _ => Ok(()),
    }
}

impl TryFrom<&ExecutorInfo> for protocol::ExecutorInfo {
    type Error = Invalid;

    fn try_from(executor: &ExecutorInfo) -> Result<Self, Invalid> {
        let executor_id = (&executor.executor_id).try_into().at("executor_id")?;
        let resources = read_resources("resources", &executor.resources)?;
        let plain = match executor.r#type {
            Some(ExecutorInfoType::Default) => {
                if executor.command.is_some() {
                    let problem = "'ExecutorInfo.command' must not be set for 'DEFAULT' executor";
                    return Err(Invalid::message(problem));
                }
                Self::default_kind(executor_id, resources)
            }
            _ => {
                let command = executor.command.as_deref().ok_or_else(|| {
                    let missing = "'ExecutorInfo.command' must be set for 'CUSTOM' executor";
                    Invalid::message(missing)
                })?;
                check_file(Some(command), executor.container.as_deref())?;
                Self::new(executor_id, command.try_into().at("command")?, resources)
            }
        };
        let grace_period = executor.shutdown_grace_period.as_ref();
        Ok(Self {
            name: executor.name.clone().unwrap_or_default(),
            data: executor
                .data
                .as_ref()
                .map(|data| data.to_vec())
                .unwrap_or_default(),
            shutdown_grace_period: some("shutdown_grace_period", grace_period)?,
            labels: with_discovery(executor.labels.as_ref(), executor.discovery.as_deref()),
            container: some("container", executor.container.as_deref())?.map(Box::new),
            ..plain
        })
    }
}

fn has_image(container: &ContainerInfo) -> bool {
    let mesos = container.mesos.as_ref();
    mesos.is_some_and(|mesos| mesos.image.is_some())
}

impl From<&protocol::ExecutorInfo> for ExecutorInfo {
    fn from(executor: &protocol::ExecutorInfo) -> Self {
        let is_default = executor.kind == protocol::ExecutorKind::Default;
        Self {
            executor_id: (&executor.executor_id).into(),
            data: (!executor.data.is_empty()).then(|| executor.data.clone().into()),
            resources: write_resources(&executor.resources),
            command: (!is_default).then(|| Box::new((&executor.command).into())),
            name: Some(executor.name.clone()),
            shutdown_grace_period: executor.shutdown_grace_period.map(Into::into),
            labels: other_labels(&executor.labels).message(),
            discovery: discovery(&executor.labels).map(Box::new),
            container: executor
                .container
                .as_deref()
                .map(|one| Box::new(one.into())),
            r#type: Some(match is_default {
                true => ExecutorInfoType::Default,
                false => ExecutorInfoType::Custom,
            }),
            ..Self::default()
        }
    }
}

impl TryFrom<&KillPolicy> for protocol::KillPolicy {
    type Error = Invalid;

    fn try_from(policy: &KillPolicy) -> Result<Self, Invalid> {
        let default = DurationInfo {
            nanoseconds: GRACE_PERIOD_NANOS,
        };
        let grace_period = policy.grace_period.as_ref().unwrap_or(&default);
        Ok(Self {
            grace_period: grace_period.try_into().at("grace_period")?,
        })
    }
}

impl From<&protocol::KillPolicy> for KillPolicy {
    fn from(policy: &protocol::KillPolicy) -> Self {
        Self {
            grace_period: Some(policy.grace_period.into()),
        }
    }
}
