//! Tasks, commands and executors.
//!
//! States, reasons and updates are in [`status`], checks in [`check`], settings of containers in
//! [`container`], its networks in [`network`], files to fetch in [`uri`].

pub mod check;
pub mod container;
pub mod network;
pub mod status;
pub mod uri;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use resources::Resources;
use serde::{Deserialize, Serialize};

use crate::framework::FrameworkInfo;
use crate::id::{AgentId, ExecutorId, TaskId};
pub use check::{CheckInfo, HealthCheck, NamedCheck};
pub use container::ContainerInfo;
pub use uri::Uri;

/// Labels: keys with values.
pub type Labels = BTreeMap<String, String>;

/// Estimated overhead of a label, variable or argument, in bytes, so that many empty ones still
/// count.
const ENTRY_BYTES: usize = 64;

/// Size of labels or variables, in bytes.
pub fn labels_bytes(labels: &Labels) -> usize {
    let bytes = |(key, value): (&String, &String)| key.len() + value.len() + ENTRY_BYTES;
    labels.iter().map(bytes).sum()
}

/// A task for one agent, with either a `command` or an `executor`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskInfo {
    /// Name for display.
    pub name: String,
    /// Unique among the framework's tasks.
    pub task_id: TaskId,
    /// Agent of the offers.
    pub agent_id: AgentId,
    /// Resources, taken from the offers.
    pub resources: Resources,
    /// Command, run by the agent itself.
    pub command: Option<CommandInfo>,
    /// The framework's own executor.
    pub executor: Option<ExecutorInfo>,
    /// Data for the executor.
    pub data: Vec<u8>,
    /// How to kill the task; `None` leaves it to the executor.
    pub kill_policy: Option<KillPolicy>,
    /// Decides whether it is killed.
    pub health_check: Option<Box<HealthCheck>>,
    /// Its result goes to the framework.
    pub check: Option<Box<CheckInfo>>,
    /// Further checks; their results go to the framework, too.
    pub checks: Vec<NamedCheck>,
    /// It is killed after this time; zero means no bound.
    pub max_completion_time: Option<Duration>,
    /// How much more than its resources it may use.
    pub limits: TaskLimits,
    /// Labels; may contain [reserved ones](crate::text::reserved_labels).
    pub labels: Labels,
    /// Settings of its container; `None` for an executor's task, and for a plain process.
    pub container: Option<Box<ContainerInfo>>,
    /// The first task of its group (LAUNCH_GROUP). All have both a command and the same executor,
    /// of kind [`ExecutorKind::Default`].
    pub group: Option<TaskId>,
}

impl TaskInfo {
    /// The same without the secrets of its containers.
    pub fn without_secrets(&self) -> Cow<'_, Self> {
        let own = self.container.iter();
        let executor = self.executor.iter();
        let mut all = own.chain(executor.filter_map(|executor| executor.container.as_ref()));
        if !all.any(|container| container.has_secrets()) {
            return Cow::Borrowed(self);
        }
        let mut info = self.clone();
        if let Some(container) = &mut info.container {
            container.remove_secrets();
        }
        info.executor = info.executor.map(|one| one.without_secrets().into_owned());
        Cow::Owned(info)
    }
}

/// A limit of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Limit {
    /// This much: cores of `cpus`, MiB of `mem`.
    Amount(f64),
    /// No limit.
    Infinite,
}

impl Limit {
    /// The limit as a number, which may be infinite.
    pub fn value(self) -> f64 {
        match self {
            Self::Amount(amount) => amount,
            Self::Infinite => f64::INFINITY,
        }
    }

    /// The sum of two limits.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        match (self, other) {
            (Self::Amount(own), Self::Amount(other)) => Self::Amount(own + other),
            _ => Self::Infinite,
        }
    }
}

/// Limits of a task, each at least its resource. Without one, its resource is the limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TaskLimits {
    /// Of `cpus`.
    pub cpus: Option<Limit>,
    /// Of `mem`.
    pub mem: Option<Limit>,
}

impl TaskLimits {
    /// The limits with the names of their resources.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, Limit)> {
        let all = [("cpus", self.cpus), ("mem", self.mem)];
        all.into_iter()
            .filter_map(|(name, limit)| Some((name, limit?)))
    }
}

impl TaskInfo {
    /// A task with its id as its name. It needs a command or an executor.
    pub fn new(task_id: TaskId, agent_id: AgentId, resources: Resources) -> Self {
        Self {
            name: task_id.to_string(),
            task_id,
            agent_id,
            resources,
            command: None,
            executor: None,
            data: Vec::new(),
            kill_policy: None,
            health_check: None,
            check: None,
            checks: Vec::new(),
            max_completion_time: None,
            limits: TaskLimits::default(),
            labels: Labels::default(),
            container: None,
            group: None,
        }
    }

    /// Its checks without health: the single one first, which has no name.
    pub fn all_checks(&self) -> impl Iterator<Item = (Option<&str>, &CheckInfo)> {
        let single = self.check.as_deref().map(|check| (None, check));
        let named = self.checks.iter();
        single
            .into_iter()
            .chain(named.map(|one| (Some(one.name.as_str()), &one.check)))
    }

    /// The task with this command.
    #[must_use]
    pub fn with_command(mut self, command: CommandInfo) -> Self {
        self.command = Some(command);
        self
    }

    /// The task with this executor.
    #[must_use]
    pub fn with_executor(mut self, executor: ExecutorInfo) -> Self {
        self.executor = Some(executor);
        self
    }

    /// The task's user: from its command or its executor's command, otherwise the framework's.
    pub fn user_in<'a>(&'a self, framework: &'a FrameworkInfo) -> &'a str {
        let own = self.command.as_ref();
        let own = own.or(self.executor.as_ref().map(|executor| &executor.command));
        let named = own.and_then(|command| command.user.as_deref());
        named.unwrap_or(&framework.user)
    }
}

/// A command and its environment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandInfo {
    /// With a shell, the line for `/bin/sh -c`; without, the file to execute.
    pub value: String,
    /// Whether to run it in a shell.
    pub shell: bool,
    /// `argv` with the program name; unused with a shell.
    pub arguments: Vec<String>,
    /// Environment variables, added to the agent's.
    pub environment: BTreeMap<String, String>,
    /// User; `None` means the framework's.
    pub user: Option<String>,
    /// Files to fetch into the sandbox first.
    pub uris: Vec<Uri>,
}

impl CommandInfo {
    /// A command line for `/bin/sh -c`.
    pub fn shell(line: impl Into<String>) -> Self {
        Self {
            value: line.into(),
            shell: true,
            arguments: Vec::new(),
            environment: BTreeMap::new(),
            user: None,
            uris: Vec::new(),
        }
    }

    /// A program with arguments. The program name is prepended to them.
    pub fn program(file: impl Into<String>, arguments: impl IntoIterator<Item = String>) -> Self {
        let value = file.into();
        let arguments = std::iter::once(value.clone()).chain(arguments).collect();
        Self {
            value,
            shell: false,
            arguments,
            environment: BTreeMap::new(),
            user: None,
            uris: Vec::new(),
        }
    }

    /// Size of all texts, in bytes.
    pub fn text_bytes(&self) -> usize {
        let arguments = self.arguments.iter();
        let arguments: usize = arguments.map(|text| text.len() + ENTRY_BYTES).sum();
        let user = self.user.as_ref().map_or(0, String::len);
        let uris: usize = self.uris.iter().map(Uri::text_bytes).sum();
        self.value.len() + arguments + labels_bytes(&self.environment) + user + uris
    }
}

/// Kind of an executor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExecutorKind {
    /// A program of the framework.
    #[default]
    Custom,
    /// The agent itself: it runs task groups, each task in a container nested in the executor's.
    Default,
}

/// An executor: what runs tasks of a framework on an agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExecutorInfo {
    /// Unique among the framework's executors on an agent. The same id must always have the same
    /// info.
    pub executor_id: ExecutorId,
    /// Who runs the tasks.
    pub kind: ExecutorKind,
    /// Name for display.
    pub name: String,
    /// Command that starts the executor; without a value for the default executor.
    pub command: CommandInfo,
    /// Resources of the executor itself, without its tasks.
    pub resources: Resources,
    /// Data, returned to the executor when it subscribes.
    pub data: Vec<u8>,
    /// Time to stop before it is killed; `None` uses the agent's default.
    pub shutdown_grace_period: Option<Duration>,
    /// Labels; may contain [reserved ones](crate::text::reserved_labels).
    pub labels: Labels,
    /// Settings of its container.
    pub container: Option<Box<ContainerInfo>>,
}

impl ExecutorInfo {
    /// The same without the secrets of its container.
    pub fn without_secrets(&self) -> Cow<'_, Self> {
        let container = self.container.as_ref();
        match container.is_some_and(|container| container.has_secrets()) {
            false => Cow::Borrowed(self),
            true => {
                let mut own = self.clone();
                if let Some(container) = &mut own.container {
                    container.remove_secrets();
                }
                Cow::Owned(own)
            }
        }
    }

    /// An executor without a name.
    pub fn new(executor_id: ExecutorId, command: CommandInfo, resources: Resources) -> Self {
        Self {
            executor_id,
            kind: ExecutorKind::Custom,
            name: String::new(),
            command,
            resources,
            data: Vec::new(),
            shutdown_grace_period: None,
            labels: Labels::default(),
            container: None,
        }
    }

    /// Whether it has a terminal.
    pub fn has_terminal(&self) -> bool {
        self.container.as_ref().is_some_and(|one| one.has_terminal)
    }

    /// The default executor.
    pub fn default_kind(executor_id: ExecutorId, resources: Resources) -> Self {
        let none = CommandInfo {
            shell: false,
            ..CommandInfo::shell("")
        };
        Self {
            kind: ExecutorKind::Default,
            ..Self::new(executor_id, none, resources)
        }
    }

    /// Size of all texts without `data`, in bytes.
    pub fn text_bytes(&self) -> usize {
        let container = self.container.as_ref();
        let container = container.map_or(0, |container| container.text_bytes());
        self.name.len() + self.command.text_bytes() + labels_bytes(&self.labels) + container
    }
}

/// How to kill a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KillPolicy {
    /// Time between SIGTERM and SIGKILL.
    pub grace_period: Duration,
}
