//! How the cluster looks at one moment, for operators' commands and pages. A copy: changing it changes nothing.

use std::collections::BTreeMap;

use resources::{Quantities, Resources};
use runtime::Timestamp;
use serde::{Deserialize, Serialize};

use crate::agent::{AgentInfo, AgentOrders, MasterInfo};
use crate::framework::FrameworkInfo;
use crate::id::{AgentId, ExecutorId, FrameworkId, TaskId};
use crate::offer::Offer;
use crate::quota::Quota;
use crate::status::{TaskState, TaskStatus};

/// The whole cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClusterView {
    /// The master that says so.
    pub master: MasterInfo,
    /// Since when it leads.
    pub elected: Timestamp,
    /// Since when it runs.
    pub started: Timestamp,
    /// Its agents.
    pub agents: Vec<AgentView>,
    /// Its frameworks, connected or not.
    pub frameworks: Vec<FrameworkView>,
    /// Frameworks that have ended, newest last.
    pub completed_frameworks: Vec<FrameworkView>,
}

/// An agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AgentView {
    /// Its id.
    pub id: AgentId,
    /// What it says of itself.
    pub info: AgentInfo,
    /// Where its node answers, for people.
    pub address: String,
    /// Whether it is connected and gets work.
    pub active: bool,
    /// What operators have ordered about it.
    pub orders: AgentOrders,
    /// Since when it is registered.
    pub registered: Timestamp,
    /// Its version.
    pub version: String,
    /// What it lends at present, allocated and available together.
    pub oversubscribed: Resources,
    /// What tasks and executors use of it.
    pub used: Resources,
    /// What is offered of it.
    pub offered: Resources,
}

/// A framework with its tasks and offers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FrameworkView {
    /// Its id.
    pub id: FrameworkId,
    /// What it says of itself.
    pub info: FrameworkInfo,
    /// Whether a scheduler of it is connected.
    pub connected: bool,
    /// Whether it gets offers.
    pub active: bool,
    /// Since when it is registered.
    pub registered: Timestamp,
    /// When it ended.
    pub unregistered: Option<Timestamp>,
    /// Its tasks that have not ended.
    pub tasks: Vec<TaskView>,
    /// Its newest tasks that have.
    pub completed_tasks: Vec<TaskView>,
    /// Its tasks whose agents cannot be reached.
    pub unreachable_tasks: Vec<TaskView>,
    /// What it is being offered.
    pub offers: Vec<Offer>,
    /// What it uses.
    pub used: Resources,
}

/// A task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskView {
    /// Its id.
    pub id: TaskId,
    /// Its name.
    pub name: String,
    /// Whose.
    pub framework_id: FrameworkId,
    /// Who runs it.
    pub executor_id: ExecutorId,
    /// Where.
    pub agent_id: AgentId,
    /// Its newest state.
    pub state: TaskState,
    /// What it uses.
    pub resources: Resources,
    /// The states it has been in, oldest first.
    pub statuses: Vec<TaskStatus>,
    /// Notes for people and tools.
    pub labels: BTreeMap<String, String>,
}

/// A role: what operators have said of it, and what it has.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RoleView {
    /// Its name, a path.
    pub name: String,
    /// Its weight; 1 unless an operator has said another.
    pub weight: f64,
    /// Its quota; the default is none.
    pub quota: Quota,
    /// What counts against its limits: what its frameworks hold of what is not reserved, and all that is reserved for it, be it in use
    /// or not; the roles below it included (SPEC 3.4).
    pub consumed: Quantities,
    /// The frameworks that are subscribed to it, hold resources in it or are offered some.
    pub frameworks: Vec<FrameworkId>,
    /// What frameworks hold in it and in the roles below it.
    pub allocated: Resources,
    /// What they are being offered in these.
    pub offered: Resources,
    /// What is reserved for these.
    pub reserved: Resources,
}
