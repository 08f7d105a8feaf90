//! How an agent joins a master and stays with it (SPEC 3.2, 5.2).

use std::time::Duration;

use resources::Resources;
use runtime::{Pid, remote};
use serde::{Deserialize, Serialize};

use crate::agent::{AgentInfo, MasterInfo};
use crate::framework::FrameworkInfo;
use crate::id::AgentId;
use crate::status::TaskState;
use crate::task::TaskInfo;
use crate::{FrameworkId, TaskId};

/// This agent would like to be admitted, or to come back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RegisterAgent {
    /// Who it is; with an id when it was admitted before.
    pub agent: AgentInfo,
    /// Where it hears.
    pub pid: Pid,
    /// Its version, for people and tools.
    pub version: String,
    /// What it runs; empty the first time.
    pub tasks: Vec<RunningTask>,
    /// The frameworks those tasks belong to.
    pub frameworks: Vec<FrameworkInfo>,
    /// The revocable resources it estimates, allocated and available together.
    pub oversubscribed: Resources,
}

/// A task that an agent has and that has not been acknowledged to its end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunningTask {
    /// Whose.
    pub framework_id: FrameworkId,
    /// What.
    pub info: TaskInfo,
    /// Its newest state.
    pub state: TaskState,
}

/// The agent has been admitted, or welcomed back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AgentRegistered {
    /// The agent's id, the old one if it had one.
    pub agent_id: AgentId,
    /// By whom.
    pub master: MasterInfo,
    /// Without a ping for so long the agent looks for a master again (75 s by default).
    pub total_ping_timeout: Duration,
}

/// The agent has not been admitted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum RegistrationRefused {
    /// The registry cannot answer just now: try again after a while.
    #[error("not now: {reason}")]
    NotNow {
        /// For the log.
        reason: String,
    },
    /// This agent will never be admitted as it is: it should stop and tell its operator.
    #[error("{reason}")]
    Never {
        /// For the operator: names the field, the value and what was expected.
        reason: String,
    },
}

/// Are you there?
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PingAgent {
    /// Whether the master holds the agent for connected; if not, a running agent registers again.
    pub connected: bool,
}

/// I am.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pong;

/// The agent leaves for good: its tasks are over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnregisterAgent {
    /// Which.
    pub agent_id: AgentId,
}

/// The agent must stop, and kill what it runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShutDownAgent {
    /// For its log.
    pub reason: String,
}

/// The master does not know these tasks, or holds them for over: kill them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DisownTasks {
    /// Which, each with its framework.
    pub tasks: Vec<(FrameworkId, TaskId)>,
}

remote! { RegisterAgent = "registration/register_agent" v1 -> Result<AgentRegistered, RegistrationRefused> }
remote! { PingAgent = "registration/ping_agent" v1 lane Ping -> Pong }
remote! { UnregisterAgent = "registration/unregister_agent" v1 }
remote! { ShutDownAgent = "registration/shut_down_agent" v1 }
remote! { DisownTasks = "registration/disown_tasks" v1 }
