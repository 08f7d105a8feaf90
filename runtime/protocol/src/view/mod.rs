//! Snapshot of the cluster for operators' commands and pages.
//!
//! [`explain`] has the reasons why a framework gets no offers, [`oversubscription`] an agent's lent
//! resources and corrections.

pub mod explain;
pub mod oversubscription;

use std::collections::BTreeMap;

use resources::{Quantities, Resources};
use runtime::Timestamp;
use serde::{Deserialize, Serialize};

use crate::agent::{AgentInfo, AgentOrders, MasterInfo};
use crate::framework::FrameworkInfo;
use crate::id::{AgentId, ExecutorId, FrameworkId, TaskId};
use crate::offers::offer::Offer;
use crate::quota::Quota;
use crate::task::status::{TaskState, TaskStatus};

/// The whole cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClusterView {
    /// The master that made this snapshot.
    pub master: MasterInfo,
    /// Start of its leadership.
    pub elected: Timestamp,
    /// Start of its process.
    pub started: Timestamp,
    /// Registered agents.
    pub agents: Vec<AgentView>,
    /// Registered frameworks, connected or not.
    pub frameworks: Vec<FrameworkView>,
    /// Completed frameworks, newest last.
    pub completed_frameworks: Vec<FrameworkView>,
}

/// An agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AgentView {
    /// Id.
    pub id: AgentId,
    /// Its own description.
    pub info: AgentInfo,
    /// Address of its node, for display.
    pub address: String,
    /// Whether it is connected and may get tasks.
    pub active: bool,
    /// Operators' orders.
    pub orders: AgentOrders,
    /// Time of its registration.
    pub registered: Timestamp,
    /// Software version.
    pub version: String,
    /// Revocable resources, allocated and available together.
    pub oversubscribed: Resources,
    /// Resources in use by tasks and executors.
    pub used: Resources,
    /// Resources in outstanding offers.
    pub offered: Resources,
}

/// A framework with its tasks and offers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FrameworkView {
    /// Id.
    pub id: FrameworkId,
    /// Its own description.
    pub info: FrameworkInfo,
    /// Whether a scheduler is connected.
    pub connected: bool,
    /// Whether it receives offers.
    pub active: bool,
    /// Time of its registration.
    pub registered: Timestamp,
    /// Time of its end.
    pub unregistered: Option<Timestamp>,
    /// Active tasks.
    pub tasks: Vec<TaskView>,
    /// The newest completed tasks.
    pub completed_tasks: Vec<TaskView>,
    /// Tasks on unreachable agents.
    pub unreachable_tasks: Vec<TaskView>,
    /// Outstanding offers.
    pub offers: Vec<Offer>,
    /// Resources in use.
    pub used: Resources,
}

/// A task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskView {
    /// Id.
    pub id: TaskId,
    /// Name.
    pub name: String,
    /// Framework of the task.
    pub framework_id: FrameworkId,
    /// Executor that runs it.
    pub executor_id: ExecutorId,
    /// Agent that it runs on.
    pub agent_id: AgentId,
    /// Newest state.
    pub state: TaskState,
    /// Resources in use.
    pub resources: Resources,
    /// Status history, oldest first.
    pub statuses: Vec<TaskStatus>,
    /// Labels; may contain [reserved ones](crate::text::reserved_labels).
    pub labels: BTreeMap<String, String>,
}

/// A role: its configuration and its resources.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RoleView {
    /// Name, a path such as `eng/web`.
    pub name: String,
    /// Weight; 1 by default.
    pub weight: f64,
    /// Quota; the default is none.
    pub quota: Quota,
    /// Consumption against the limits, with all descendants: unreserved resources in use, and all
    /// reserved resources, used or not.
    pub consumed: Quantities,
    /// Frameworks that are subscribed to the role, or have resources or offers in it.
    pub frameworks: Vec<FrameworkId>,
    /// Allocated resources in the role and its descendants.
    pub allocated: Resources,
    /// Offered resources in these roles.
    pub offered: Resources,
    /// Reserved resources of these roles.
    pub reserved: Resources,
}
