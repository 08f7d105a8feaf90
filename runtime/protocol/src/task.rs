//! Tasks, the commands they run and the executors that run them (SPEC 2.8).

use std::collections::BTreeMap;
use std::time::Duration;

use resources::Resources;
use serde::{Deserialize, Serialize};

use crate::framework::FrameworkInfo;
use crate::id::{AgentId, ExecutorId, TaskId};

/// Notes for people and tools: keys with values.
pub type Labels = BTreeMap<String, String>;

/// About how many bytes a label, a variable or an argument takes beside its text: many empty ones are not for nothing.
const ENTRY_BYTES: usize = 64;

/// The bytes of labels, or of variables.
pub fn labels_bytes(labels: &Labels) -> usize {
    let bytes = |(key, value): (&String, &String)| key.len() + value.len() + ENTRY_BYTES;
    labels.iter().map(bytes).sum()
}

/// One task to run on one agent. It has exactly one of `command` and `executor`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskInfo {
    /// A name for people.
    pub name: String,
    /// Unique among the framework's tasks.
    pub task_id: TaskId,
    /// Where it runs: the offers' agent.
    pub agent_id: AgentId,
    /// What it uses, taken from the offers.
    pub resources: Resources,
    /// What to run, when the agent's own command executor shall run it.
    pub command: Option<CommandInfo>,
    /// Who runs it, when the framework brings its own executor.
    pub executor: Option<ExecutorInfo>,
    /// Bytes for the executor.
    pub data: Vec<u8>,
    /// How it is to be killed; `None` leaves it to the executor.
    pub kill_policy: Option<KillPolicy>,
    /// Notes for people and tools.
    pub labels: Labels,
}

impl TaskInfo {
    /// The user that it runs as: the one that its command names, or that of its executor, else the framework's.
    pub fn user_in<'a>(&'a self, framework: &'a FrameworkInfo) -> &'a str {
        let own = self.command.as_ref();
        let own = own.or(self.executor.as_ref().map(|executor| &executor.command));
        let named = own.and_then(|command| command.user.as_deref());
        named.unwrap_or(&framework.user)
    }
}

/// A command and where it finds its environment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandInfo {
    /// With a shell, the text given to `/bin/sh -c`; without, the file to execute.
    pub value: String,
    /// Whether a shell runs it.
    pub shell: bool,
    /// Without a shell: `argv`, beginning with the program's own name.
    pub arguments: Vec<String>,
    /// Variables set for it, beside those the agent sets.
    pub environment: BTreeMap<String, String>,
    /// The user it runs as; `None` is the framework's.
    pub user: Option<String>,
}

impl CommandInfo {
    /// A line for `/bin/sh -c`.
    pub fn shell(line: impl Into<String>) -> Self {
        Self {
            value: line.into(),
            shell: true,
            arguments: Vec::new(),
            environment: BTreeMap::new(),
            user: None,
        }
    }

    /// A program with its arguments (the program's own name is put in front of them).
    pub fn program(file: impl Into<String>, arguments: impl IntoIterator<Item = String>) -> Self {
        let value = file.into();
        let arguments = std::iter::once(value.clone()).chain(arguments).collect();
        Self {
            value,
            shell: false,
            arguments,
            environment: BTreeMap::new(),
            user: None,
        }
    }

    /// The bytes of its texts.
    pub fn text_bytes(&self) -> usize {
        let arguments = self.arguments.iter();
        let arguments: usize = arguments.map(|text| text.len() + ENTRY_BYTES).sum();
        let user = self.user.as_ref().map_or(0, String::len);
        self.value.len() + arguments + labels_bytes(&self.environment) + user
    }
}

/// A framework's own executor: a program that runs its tasks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExecutorInfo {
    /// Unique among the framework's executors on an agent; the same id always means the same info.
    pub executor_id: ExecutorId,
    /// A name for people.
    pub name: String,
    /// How it is started.
    pub command: CommandInfo,
    /// What it uses itself, beside its tasks.
    pub resources: Resources,
    /// Bytes it is given when it subscribes.
    pub data: Vec<u8>,
    /// How long it may take to stop when told to; `None` is the agent's default.
    pub shutdown_grace_period: Option<Duration>,
    /// Notes for people and tools.
    pub labels: Labels,
}

impl ExecutorInfo {
    /// The bytes of its texts, without its `data`.
    pub fn text_bytes(&self) -> usize {
        self.name.len() + self.command.text_bytes() + labels_bytes(&self.labels)
    }
}

/// How a task is to be killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KillPolicy {
    /// Time between the polite signal and the certain one.
    pub grace_period: Duration,
}
