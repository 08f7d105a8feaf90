//! One task as the master remembers it.
//!
//! Plain data. [`Task::observe`] decides the effect of a status; a terminal state is final.

use protocol::digest::TaskContent;
use protocol::task::{ContainerInfo, Labels, TaskLimits, labels_bytes};
use protocol::{
    AgentId, ExecutorId, FrameworkId, HealthCheck, KillPolicy, TaskId, TaskInfo, TaskState,
    TaskStatus, Uuid,
};
use resources::{Resources, excerpt};
use runtime::Timestamp;
use serde::{Deserialize, Serialize};

use crate::validation::size::TASK_BYTES_MAX;

/// Maximum statuses remembered per task: the first and the newest ones.
const STATUSES_MAX: usize = 12;

/// Maximum bytes remembered of a status message.
const MESSAGE_BYTES_MAX: usize = 16 << 10;
/// Maximum bytes remembered of a status's labels; larger labels are dropped.
const STATUS_LABELS_BYTES_MAX: usize = 64 << 10;
/// Approximate bytes of a task without its texts.
const PLAIN_BYTES: usize = 512;

/// One task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Task {
    /// Its id, unique in its framework.
    pub id: TaskId,
    /// Its name.
    pub name: String,
    /// Its framework.
    pub framework_id: FrameworkId,
    /// Its executor.
    pub executor_id: ExecutorId,
    /// Its agent.
    pub agent_id: AgentId,
    /// Its resources, each with its allocation role.
    pub resources: Resources,
    /// Its labels.
    pub labels: Labels,
    /// Settings of its container.
    pub container: Option<Box<ContainerInfo>>,
    /// The user that it runs as, if specified.
    pub user: Option<String>,
    /// Its kill policy, if specified.
    pub kill_policy: Option<KillPolicy>,
    /// Its health check, if specified.
    pub health_check: Option<Box<HealthCheck>>,
    /// How much more than its resources it may use.
    pub limits: TaskLimits,
    /// The newest state that its agent has reported.
    pub state: TaskState,
    /// The newest state that its framework was sent.
    pub told: TaskState,
    /// The statuses that its framework was sent, oldest first.
    pub statuses: Vec<TaskStatus>,
    /// The uuid of its terminal status, once received.
    pub last: Option<Uuid>,
    /// A kill requested by its framework, with its policy. Sent again whenever the agent registers.
    pub kill: Option<Option<KillPolicy>>,
    /// Whether its resources count as held.
    pub(super) holds: bool,
}

impl Task {
    /// A task launched or reported with these resources, in this state.
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
            container: info.container.clone(),
            user: command.and_then(|command| command.user.clone()),
            kill_policy: info.kill_policy,
            health_check: info.health_check.clone(),
            limits: info.limits,
            state,
            told: state,
            statuses: Vec::new(),
            last: None,
            kill: None,
            holds: false,
        }
    }

    /// The framework's own executor that runs it, if any. That of a command has the id of the task
    /// and does not appear in Mesos' pages and answers about tasks.
    pub fn own_executor_id(&self) -> Option<&ExecutorId> {
        Some(&self.executor_id).filter(|own| own.as_str() != self.id.as_str())
    }

    /// Its approximate bytes.
    pub fn bytes(&self) -> usize {
        let parts = 1 + self.resources.iter().count() + self.statuses.len();
        parts * PLAIN_BYTES + self.text_bytes()
    }

    /// Bytes of its texts, including its statuses.
    pub fn text_bytes(&self) -> usize {
        let text = |status: &TaskStatus| status.message.len() + labels_bytes(&status.labels);
        let statuses: usize = self.statuses.iter().map(text).sum();
        let container = self.container.as_ref();
        let container = container.map_or(0, |container| container.text_bytes());
        let health_check = self.health_check.as_ref();
        let health_check = health_check.map_or(0, |check| check.kind.text_bytes());
        let settings = container + health_check;
        self.name.len() + labels_bytes(&self.labels) + settings + statuses
    }

    /// Drops the texts of the newest status.
    pub(super) fn shorten_newest_status(&mut self) {
        if let Some(newest) = self.statuses.last_mut() {
            newest.message = String::new();
            newest.labels.clear();
        }
    }

    /// Drops its texts if they are larger than those of any valid task.
    pub fn shorten(&mut self) {
        if self.bytes() > 2 * TASK_BYTES_MAX {
            self.labels.clear();
            self.container = None;
            self.health_check = None;
            self.name = excerpt(&self.name);
        }
    }

    /// The fields that digests cover.
    pub fn sketch(&self) -> TaskContent<'_> {
        TaskContent {
            name: &self.name,
            executor_id: self.executor_id.as_str(),
            resources: &self.resources,
            labels: &self.labels,
            user: self.user.as_deref(),
            state: self.state,
        }
    }

    /// When it began to run, as far as known; `None` if it never did.
    pub fn since(&self) -> Option<Timestamp> {
        let mut told = self.statuses.iter();
        let ran = told.any(|status| status.state == TaskState::Running);
        // The first status is always remembered.
        let first = self.statuses.first().filter(|_| ran);
        first.map(|status| status.timestamp)
    }

    /// The state for its framework when the agent is lost: the end that the agent has reported,
    /// even if its framework was not sent it yet, or else `otherwise`.
    pub fn end_or(&self, otherwise: TaskState) -> TaskState {
        match self.state.is_terminal() {
            true => self.state,
            false => otherwise,
        }
    }

    /// Records that its framework is sent `status`, while its agent reports the state `latest`.
    pub fn observe(&mut self, status: &TaskStatus, latest: TaskState) {
        if !self.state.is_terminal() {
            self.state = latest;
        }
        if self.told.is_terminal() {
            // An end that the master reported first is acknowledged by the uuid that its agent
            // gives it.
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
