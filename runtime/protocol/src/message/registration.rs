//! Messages by which agents register with a master and stay connected, and by which clients find
//! the leader.

use std::collections::BTreeSet;
use std::time::Duration;

use resources::Resources;
use runtime::{Pid, remote};
use serde::{Deserialize, Serialize};

use crate::agent::{AgentInfo, MasterInfo};
use crate::digest::{DigestKey, DigestSummary};
use crate::framework::FrameworkInfo;
use crate::id::AgentId;
use crate::operation::AgentResources;
use crate::task::status::TaskState;
use crate::task::{ExecutorInfo, TaskInfo};
use crate::{FrameworkId, TaskId};

/// Registers an agent, or registers it again with all its contents.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RegisterAgent {
    /// The agent's description, with an id if it was admitted before.
    pub agent: AgentInfo,
    /// Actor that receives the master's messages.
    pub pid: Pid,
    /// Software version, for display only.
    pub version: String,
    /// The agent's contents; empty on the first registration.
    pub held: AgentInventory,
    /// Key of its digests.
    pub digest_key: DigestKey,
    /// Estimated revocable resources, allocated and available together.
    pub oversubscribed: Resources,
    /// Resources after all operations; `None` from an agent without operations, whose resources are
    /// in its description.
    pub resources: Option<AgentResources>,
    /// Newest known term. A master of an older term first confirms its leadership with its
    /// majority.
    pub term_seen: u64,
}

/// Registers an agent that was admitted before. Contains a summary of its contents, and the
/// contents themselves only where the master has found differences.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReregisterAgent {
    /// The agent's description, with its id.
    pub agent: AgentInfo,
    /// Actor that receives the master's messages.
    pub pid: Pid,
    /// Software version, for display only.
    pub version: String,
    /// Summary of the agent's contents.
    pub summary: DigestSummary,
    /// The differing contents, once the master has sent its sums.
    pub report: Option<InventoryReport>,
    /// Estimated revocable resources, allocated and available together.
    pub oversubscribed: Resources,
    /// Resources after all operations; `None` from an agent without operations, whose resources are
    /// in its description.
    pub resources: Option<AgentResources>,
    /// Newest known term. A master of an older term first confirms its leadership with its
    /// majority.
    pub term_seen: u64,
}

/// An agent's contents in some buckets of its digest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InventoryReport {
    /// Total number of buckets: the number of sums that the master has sent.
    pub buckets: u32,
    /// The differing buckets, in increasing order.
    pub differing: Vec<u32>,
    /// The agent's contents in these buckets.
    pub held: AgentInventory,
}

/// Tasks and executors of an agent, or a part of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AgentInventory {
    /// Tasks without an acknowledged end.
    pub tasks: Vec<RunningTask>,
    /// Running executors of frameworks.
    pub executors: Vec<RunningExecutor>,
    /// The frameworks of these tasks and executors, without duplicates.
    pub frameworks: Vec<FrameworkInfo>,
}

impl AgentInventory {
    /// Removes frameworks without a task or an executor here.
    pub fn drop_unused_frameworks(&mut self) {
        let tasks = self.tasks.iter().map(|task| &task.framework_id);
        let executors = self.executors.iter().map(|executor| &executor.framework_id);
        let used: BTreeSet<&FrameworkId> = tasks.chain(executors).collect();
        let is_used = |info: &FrameworkInfo| info.id.as_ref().is_some_and(|id| used.contains(id));
        self.frameworks.retain(is_used);
    }
}

/// A framework's own executor on an agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunningExecutor {
    /// The framework.
    pub framework_id: FrameworkId,
    /// The executor.
    pub info: ExecutorInfo,
}

/// A task on an agent, without an acknowledged end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunningTask {
    /// The framework.
    pub framework_id: FrameworkId,
    /// The task.
    pub info: TaskInfo,
    /// Its newest state.
    pub state: TaskState,
}

/// The agent is registered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AgentRegistered {
    /// The agent's id; unchanged if it had one.
    pub agent_id: AgentId,
    /// The master.
    pub master: MasterInfo,
    /// Without a ping for this time (75 s by default), the agent looks for a master again.
    pub total_ping_timeout: Duration,
}

/// Answer to [`ReregisterAgent`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Reregistered {
    /// The contents agree: the agent is registered.
    Registered(AgentRegistered),
    /// The contents differ. The agent must register again with the contents of all buckets that
    /// differ from these sums.
    Differs {
        /// Sums by bucket. The agent uses the same number of buckets.
        buckets: Vec<u64>,
    },
    /// The master does not know the agent's contents, or uses another digest form: the agent must
    /// register with [`RegisterAgent`].
    Unknown,
}

/// The agent is not registered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum RegistrationRefused {
    /// The registry cannot answer now: retry later.
    #[error("not now: {reason}")]
    NotNow {
        /// For the log.
        reason: String,
    },
    /// The agent cannot be admitted as it is: it should exit and report this to its operator.
    #[error("{reason}")]
    Never {
        /// For the operator: field, value and expectation.
        reason: String,
    },
}

/// Health check from the master.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PingAgent {
    /// Whether the master considers the agent connected; if not, a running agent registers again.
    pub connected: bool,
}

/// Answer to [`PingAgent`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pong;

/// The agent leaves for good; its tasks are over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnregisterAgent {
    /// The agent.
    pub agent_id: AgentId,
}

/// The agent must kill all its tasks and exit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShutDownAgent {
    /// For its log.
    pub reason: String,
}

/// Kills tasks that the master does not know or considers ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DisownTasks {
    /// The tasks, each with its framework.
    pub tasks: Vec<(FrameworkId, TaskId)>,
}

/// The agent cannot run tasks now, and must not be offered until it resumes or registers again. Its
/// tasks keep running.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentSuspended {
    /// The agent.
    pub agent_id: AgentId,
    /// Cause, for the log.
    pub reason: String,
}

/// A suspended agent can run tasks again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentResumed {
    /// The agent.
    pub agent_id: AgentId,
}

/// Another master leads now. A client that learns of a later term leaves its master and registers
/// with this one; waiting for a timeout of a killed master would take much longer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaderAnnounced {
    /// Address, as `host:port`.
    pub address: String,
    /// Its term.
    pub term: u64,
}

/// Asks for the leader. Answered when there is one under a later term than the known one. Every
/// member of a group answers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AwaitLeader {
    /// Newest term known to the caller.
    pub term: u64,
}

/// A message of the receiver was rejected, because the sender knows a later term. A master of an
/// older term then confirms its leadership with its majority, or exits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TermSeen {
    /// The newest known term.
    pub term: u64,
}

remote! { AwaitLeader = "registration/await_leader" v1 -> LeaderAnnounced }
remote! { LeaderAnnounced = "registration/leader_announced" v1 }
remote! { TermSeen = "registration/term_seen" v1 }
remote! { RegisterAgent = "registration/register_agent" v1 -> Result<AgentRegistered, RegistrationRefused> }
remote! { ReregisterAgent = "registration/reregister_agent" v1 -> Result<Reregistered, RegistrationRefused> }
remote! { PingAgent = "registration/ping_agent" v1 lane Ping -> Pong }
remote! { UnregisterAgent = "registration/unregister_agent" v1 }
remote! { AgentSuspended = "registration/agent_suspended" v1 }
remote! { AgentResumed = "registration/agent_resumed" v1 }
remote! { ShutDownAgent = "registration/shut_down_agent" v1 }
remote! { DisownTasks = "registration/disown_tasks" v1 }
