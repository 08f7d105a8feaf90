//! How an agent joins a master and stays with it (SPEC 3.2, 5.2).

use std::collections::BTreeSet;
use std::time::Duration;

use resources::Resources;
use runtime::{Pid, remote};
use serde::{Deserialize, Serialize};

use crate::agent::{AgentInfo, MasterInfo};
use crate::digest::{DigestKey, Summary};
use crate::framework::FrameworkInfo;
use crate::id::AgentId;
use crate::operation::{AgentResources, AgentResourcesV1};
use crate::status::TaskState;
use crate::task::{ExecutorInfo, TaskInfo};
use crate::{FrameworkId, TaskId};

/// This agent would like to be admitted; or it comes back, and tells all that it has.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RegisterAgent {
    /// Who it is; with an id when it was admitted before.
    pub agent: AgentInfo,
    /// Where it hears.
    pub pid: Pid,
    /// Its version, for people and tools.
    pub version: String,
    /// What it has; nothing the first time.
    pub held: Held,
    /// The key of its digests.
    pub digest_key: DigestKey,
    /// The revocable resources it estimates, allocated and available together.
    pub oversubscribed: Resources,
    /// What operations have made of its resources; `None` from one that keeps none, and has what it says of itself.
    pub resources: Option<AgentResources>,
    /// The newest term of a master that it has seen: a master of an older one asks its majority before it takes the agent in.
    pub term_seen: u64,
}

/// This agent was admitted before and comes back. What it has is told in short, and in full only where the master has said that
/// the two differ.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReregisterAgent {
    /// Who it is; its id is set.
    pub agent: AgentInfo,
    /// Where it hears.
    pub pid: Pid,
    /// Its version, for people and tools.
    pub version: String,
    /// What it has, in short.
    pub summary: Summary,
    /// The part that differs, once the master has said what it believes.
    pub report: Option<Report>,
    /// The revocable resources it estimates, allocated and available together.
    pub oversubscribed: Resources,
    /// What operations have made of its resources; `None` from one that keeps none, and has what it says of itself.
    pub resources: Option<AgentResources>,
    /// The newest term of a master that it has seen: a master of an older one asks its majority before it takes the agent in.
    pub term_seen: u64,
}

/// All that an agent has in some of its buckets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// How many buckets there are: as many as the master has named sums.
    pub buckets: u32,
    /// Those that differ, in rising order.
    pub differing: Vec<u32>,
    /// What the agent has in these.
    pub held: Held,
}

/// What an agent has, or a part of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Held {
    /// Tasks that have not been acknowledged to their end.
    pub tasks: Vec<RunningTask>,
    /// Frameworks' own executors that run.
    pub executors: Vec<RunningExecutor>,
    /// The frameworks that those belong to, each once.
    pub frameworks: Vec<FrameworkInfo>,
}

impl Held {
    /// Leaves out the frameworks that nothing here belongs to.
    pub fn drop_unused_frameworks(&mut self) {
        let tasks = self.tasks.iter().map(|task| &task.framework_id);
        let executors = self.executors.iter().map(|executor| &executor.framework_id);
        let used: BTreeSet<&FrameworkId> = tasks.chain(executors).collect();
        let is_used = |info: &FrameworkInfo| info.id.as_ref().is_some_and(|id| used.contains(id));
        self.frameworks.retain(is_used);
    }
}

/// A framework's own executor that an agent runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunningExecutor {
    /// Whose.
    pub framework_id: FrameworkId,
    /// What.
    pub info: ExecutorInfo,
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

/// How an agent that comes back goes on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Reregistered {
    /// The master has what the agent has: it is registered.
    Registered(AgentRegistered),
    /// The master believes that the agent has something else: here are its sums. The agent comes again with what it has in the
    /// buckets where its own are others.
    Differs {
        /// One sum a bucket; the agent counts in as many.
        buckets: Vec<u64>,
    },
    /// The master knows nothing of what the agent has, or counts differently: the agent comes again with [`RegisterAgent`].
    Unknown,
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

/// The agent cannot run tasks at present, and is not to be offered until it resumes or registers again. Its tasks go on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentSuspended {
    /// Which.
    pub agent_id: AgentId,
    /// For the log: what prevents it.
    pub reason: String,
}

/// The agent, which was suspended, can run tasks again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentResumed {
    /// Which.
    pub agent_id: AgentId,
}

/// Another master leads from now on. Whoever hears of a later term leaves the master that it is registered with, and registers there: the
/// silence of a master that was killed would be noticed much later.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaderAnnounced {
    /// Where, as `host:port`.
    pub address: String,
    /// Under which term.
    pub term: u64,
}

/// Who leads? Answered as soon as somebody does under a later term than the known one. Every master of a group hears it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AwaitLeader {
    /// The newest term that the asker has seen.
    pub term: u64,
}

/// A message of yours was refused: I know of a leader of this term. A master that acts under an older one asks its majority whether it
/// still leads, and ends if not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TermSeen {
    /// The newest term that was seen.
    pub term: u64,
}

/// [`RegisterAgent`] as it was said before operations had serials.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RegisterAgentV4 {
    /// Who it is; with an id when it was admitted before.
    pub agent: AgentInfo,
    /// Where it hears.
    pub pid: Pid,
    /// Its version, for people and tools.
    pub version: String,
    /// What it has; nothing the first time.
    pub held: Held,
    /// The key of its digests.
    pub digest_key: DigestKey,
    /// The revocable resources it estimates, allocated and available together.
    pub oversubscribed: Resources,
    /// What operations have made of its resources; `None` from one that keeps none, and has what it says of itself.
    pub resources: Option<AgentResourcesV1>,
    /// The newest term of a master that it has seen: a master of an older one asks its majority before it takes the agent in.
    pub term_seen: u64,
}

impl From<RegisterAgentV4> for RegisterAgent {
    fn from(older: RegisterAgentV4) -> Self {
        Self {
            agent: older.agent,
            pid: older.pid,
            version: older.version,
            held: older.held,
            digest_key: older.digest_key,
            oversubscribed: older.oversubscribed,
            resources: older.resources.map(AgentResources::from),
            term_seen: older.term_seen,
        }
    }
}

impl From<&RegisterAgent> for RegisterAgentV4 {
    fn from(newer: &RegisterAgent) -> Self {
        Self {
            agent: newer.agent.clone(),
            pid: newer.pid.clone(),
            version: newer.version.clone(),
            held: newer.held.clone(),
            digest_key: newer.digest_key,
            oversubscribed: newer.oversubscribed.clone(),
            resources: newer.resources.as_ref().map(AgentResourcesV1::from),
            term_seen: newer.term_seen,
        }
    }
}

/// [`ReregisterAgent`] as it was said before operations had serials.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReregisterAgentV3 {
    /// Who it is; its id is set.
    pub agent: AgentInfo,
    /// Where it hears.
    pub pid: Pid,
    /// Its version, for people and tools.
    pub version: String,
    /// What it has, in short.
    pub summary: Summary,
    /// The part that differs, once the master has said what it believes.
    pub report: Option<Report>,
    /// The revocable resources it estimates, allocated and available together.
    pub oversubscribed: Resources,
    /// What operations have made of its resources; `None` from one that keeps none, and has what it says of itself.
    pub resources: Option<AgentResourcesV1>,
    /// The newest term of a master that it has seen: a master of an older one asks its majority before it takes the agent in.
    pub term_seen: u64,
}

impl From<ReregisterAgentV3> for ReregisterAgent {
    fn from(older: ReregisterAgentV3) -> Self {
        Self {
            agent: older.agent,
            pid: older.pid,
            version: older.version,
            summary: older.summary,
            report: older.report,
            oversubscribed: older.oversubscribed,
            resources: older.resources.map(AgentResources::from),
            term_seen: older.term_seen,
        }
    }
}

impl From<&ReregisterAgent> for ReregisterAgentV3 {
    fn from(newer: &ReregisterAgent) -> Self {
        Self {
            agent: newer.agent.clone(),
            pid: newer.pid.clone(),
            version: newer.version.clone(),
            summary: newer.summary,
            report: newer.report.clone(),
            oversubscribed: newer.oversubscribed.clone(),
            resources: newer.resources.as_ref().map(AgentResourcesV1::from),
            term_seen: newer.term_seen,
        }
    }
}

remote! { AwaitLeader = "registration/await_leader" v2 -> LeaderAnnounced }
remote! { LeaderAnnounced = "registration/leader_announced" v2 }
remote! { TermSeen = "registration/term_seen" v1 }
remote! { RegisterAgentV4 = "registration/register_agent" v4 -> Result<AgentRegistered, RegistrationRefused> }
remote! { RegisterAgent = "registration/register_agent" v5 older RegisterAgentV4 -> Result<AgentRegistered, RegistrationRefused> }
remote! { ReregisterAgentV3 = "registration/reregister_agent" v3 -> Result<Reregistered, RegistrationRefused> }
remote! { ReregisterAgent = "registration/reregister_agent" v4 older ReregisterAgentV3 -> Result<Reregistered, RegistrationRefused> }
remote! { PingAgent = "registration/ping_agent" v1 lane Ping -> Pong }
remote! { UnregisterAgent = "registration/unregister_agent" v1 }
remote! { AgentSuspended = "registration/agent_suspended" v1 }
remote! { AgentResumed = "registration/agent_resumed" v1 }
remote! { ShutDownAgent = "registration/shut_down_agent" v1 }
remote! { DisownTasks = "registration/disown_tasks" v1 }
