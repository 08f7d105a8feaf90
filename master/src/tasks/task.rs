//! One task as the master remembers it.
//!
//! Plain data. What a status changes is decided in [`Task::observe`]; a task that has ended never lives again.

use protocol::digest::TaskSketch;
use protocol::task::{Labels, labels_bytes};
use protocol::{
    AgentId, ExecutorId, FrameworkId, KillPolicy, TaskId, TaskInfo, TaskState, TaskStatus, Uuid,
};
use resources::{Resources, excerpt};
use runtime::Timestamp;
use serde::{Deserialize, Serialize};

use crate::validation::size::TASK_BYTES_MAX;

/// How many statuses of one task are remembered: its first one and the newest.
const STATUSES_MAX: usize = 12;

/// The most bytes of a status's message that are remembered.
const MESSAGE_BYTES_MAX: usize = 16 << 10;
/// The most bytes of a status's labels that are remembered; of more none are.
const STATUS_LABELS_BYTES_MAX: usize = 64 << 10;
/// About as much as a task takes whatever is said of it.
const PLAIN_BYTES: usize = 512;

/// One task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Task {
    /// Its id, unique in its framework.
    pub id: TaskId,
    /// Its name.
    pub name: String,
    /// Whose it is.
    pub framework_id: FrameworkId,
    /// Who runs it.
    pub executor_id: ExecutorId,
    /// Where.
    pub agent_id: AgentId,
    /// What it uses; each resource bears the role it is allocated to.
    pub resources: Resources,
    /// Its notes.
    pub labels: Labels,
    /// The user it runs as, where it says so.
    pub user: Option<String>,
    /// How it is to be killed, where it says so.
    pub kill_policy: Option<KillPolicy>,
    /// The newest state its agent knows.
    pub state: TaskState,
    /// The newest state its framework was told.
    pub told: TaskState,
    /// The states its framework was told, oldest first.
    pub statuses: Vec<TaskStatus>,
    /// Which status is its last, once that has come.
    pub last: Option<Uuid>,
    /// Its framework wants it killed: its agent is told so again whenever it registers.
    pub kill: Option<Option<KillPolicy>>,
    /// Whether its resources count as held.
    pub(super) holds: bool,
}

impl Task {
    /// A task that is placed on an agent, with these resources, in this state.
    pub fn placed(
        framework_id: FrameworkId,
        info: &TaskInfo,
        resources: Resources,
        state: TaskState,
    ) -> Self {
        let executor_id = match &info.executor {
            Some(executor) => executor.executor_id.clone(),
            None => ExecutorId::from(&info.task_id),
        };
        let command = info
            .command
            .as_ref()
            .or(info.executor.as_ref().map(|e| &e.command));
        Self {
            id: info.task_id.clone(),
            name: info.name.clone(),
            framework_id,
            executor_id,
            agent_id: info.agent_id.clone(),
            resources,
            labels: info.labels.clone(),
            user: command.and_then(|command| command.user.clone()),
            kill_policy: info.kill_policy,
            state,
            told: state,
            statuses: Vec::new(),
            last: None,
            kill: None,
            holds: false,
        }
    }

    /// The framework's own executor that runs it, if one does. A command's executor is its agent's, has the id of the task, and stands
    /// in none of Mesos' pages and answers about tasks.
    pub fn own_executor_id(&self) -> Option<&ExecutorId> {
        Some(&self.executor_id).filter(|own| own.as_str() != self.id.as_str())
    }

    /// About how many bytes it takes.
    pub fn bytes(&self) -> usize {
        let parts = 1 + self.resources.iter().count() + self.statuses.len();
        parts * PLAIN_BYTES + self.text_bytes()
    }

    /// Bytes of its texts, with those of its statuses.
    pub fn text_bytes(&self) -> usize {
        let text = |status: &TaskStatus| status.message.len() + labels_bytes(&status.labels);
        let statuses: usize = self.statuses.iter().map(text).sum();
        self.name.len() + labels_bytes(&self.labels) + statuses
    }

    /// Forgets the texts of the newest status.
    pub(super) fn shorten_newest_status(&mut self) {
        if let Some(newest) = self.statuses.last_mut() {
            newest.message = String::new();
            newest.labels.clear();
        }
    }

    /// Forgets its texts if they are larger than those of any valid task.
    pub fn shorten(&mut self) {
        if self.bytes() > 2 * TASK_BYTES_MAX {
            self.labels.clear();
            self.name = excerpt(&self.name);
        }
    }

    /// What a digest sees of it.
    pub fn sketch(&self) -> TaskSketch<'_> {
        TaskSketch {
            name: &self.name,
            executor_id: self.executor_id.as_str(),
            resources: &self.resources,
            labels: &self.labels,
            user: self.user.as_deref(),
            state: self.state,
        }
    }

    /// Since when it runs, as far as is known; `None` if it never did.
    pub fn since(&self) -> Option<Timestamp> {
        let mut told = self.statuses.iter();
        let ran = told.any(|status| status.state == TaskState::Running);
        // The first one is remembered, whatever comes after it.
        let first = self.statuses.first().filter(|_| ran);
        first.map(|status| status.timestamp)
    }

    /// What its framework is told when its agent will not be heard any more: the end that the agent has reported if it has
    /// ended, even if its framework was not told yet; else `otherwise`.
    pub fn end_or(&self, otherwise: TaskState) -> TaskState {
        match self.state.is_terminal() {
            true => self.state,
            false => otherwise,
        }
    }

    /// Its framework is told `status`, while its agent knows it to be in state `latest`.
    pub fn observe(&mut self, status: &TaskStatus, latest: TaskState) {
        if !self.state.is_terminal() {
            self.state = latest;
        }
        if self.told.is_terminal() {
            // An end that the master told first is acknowledged by the uuid that its agent gives it.
            if self.last.is_none() && status.state.is_terminal() {
                self.last = status.uuid;
            }
            return;
        }
        self.told = status.state;
        if status.state.is_terminal() {
            self.last = status.uuid;
        }
        let mut status = status.clone();
        status.data = Vec::new();
        if status.message.len() > MESSAGE_BYTES_MAX {
            let fits = |end: &usize| status.message.is_char_boundary(*end);
            let end = (0..=MESSAGE_BYTES_MAX).rev().find(fits).unwrap_or(0);
            status.message.truncate(end);
            status.message.shrink_to_fit();
        }
        if labels_bytes(&status.labels) > STATUS_LABELS_BYTES_MAX {
            status.labels.clear();
        }
        match self.statuses.last_mut() {
            Some(newest) if newest.state == status.state => *newest = status,
            _ => self.statuses.push(status),
        }
        if self.statuses.len() > STATUSES_MAX {
            self.statuses.remove(1);
        }
    }
}
