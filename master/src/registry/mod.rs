//! Registry: the durable state of a master, behind an interface that may be slow, refuse, or lose
//! leadership.
//!
//! The order is: registry, then the master's state, then messages. Only operations are applied to
//! the state first (`operations::recording`). [`RegistryState`] is the whole content as plain data
//! with one pure transition, `change`; implementations decide where it is stored:
//! [`ReplicatedRegistry`] (synced to the disks of a majority of masters, as a [`RegistryMachine`])
//! and, for tests and simulations, [`MemoryRegistry`] and [`FaultyRegistry`], which delays and
//! refuses. Soft state (tasks, offers, usage) is never stored.
//!
//! | module | contents |
//! |---|---|
//! | `accepted` | accepted operations that have not ended |
//! | `faulty` | a registry with injected faults for simulations |
//! | `framework_state` | state of frameworks in the registry |
//! | `machine` | the registry as a state machine that a group of masters replicates |
//! | `machines` | the maintenance schedule and its bound |
//! | `memory` | a registry in memory, lost with its master |
//! | `metered` | measurements, under the names of Mesos' registrar metrics |
//! | `record` | the bounds of the registry's records |
//! | `replicated` | the registry of a group of masters, as its leader uses it |
//! | `roles` | quota and weights |
//! | `samples` | values for the tests |
//! | `state` | the content, as plain data with one pure transition |

mod accepted;
mod faulty;
mod framework_state;
mod machine;
mod machines;
mod memory;
mod metered;
mod record;
mod replicated;
mod roles;
#[cfg(test)]
mod samples;
mod state;

pub use accepted::{ACCEPTED_MAX, AcceptedOperation, AcceptedOperations, AcceptedRecord};
pub use faulty::{FaultPlan, FaultyRegistry};
pub use framework_state::{FrameworkStates, STATE_BYTES_MAX};
pub use machine::{RegistryMachine, SnapshotRecord};
pub use machines::{MACHINES_MAX, Machine, Machines};
pub use memory::MemoryRegistry;
pub(crate) use metered::Metered;
pub use metered::RegistryMeter;
pub use record::StateRecord;
pub(crate) use record::check_accepted;
pub use replicated::ReplicatedRegistry;
pub use roles::ROLES_MAX;
pub use state::{FrameworkEntry, RegistryState};

use std::collections::BTreeMap;

use futures_util::FutureExt;
use futures_util::future::{self, BoxFuture};
use protocol::maintenance::Window;
use protocol::message::state::StateValue;
use protocol::{AgentId, AgentInfo, Drain, FrameworkId, FrameworkInfo, MachineId, Quota};
use runtime::{Pid, Timestamp};
use serde::{Deserialize, Serialize};

/// A change of the registry. Applying one twice is harmless. New variants go at the end: their
/// indexes are in every log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum RegistryOperation {
    /// Admits an agent, or changes its description.
    AdmitAgent {
        /// Its description, with the id set.
        info: AgentInfo,
    },
    /// Marks an admitted agent as unreachable.
    MarkAgentUnreachable {
        /// The agent.
        agent_id: AgentId,
        /// Since when.
        since: Timestamp,
    },
    /// Marks an unreachable agent as reachable again. An unknown one is admitted.
    MarkAgentReachable {
        /// Its description, with the id set.
        info: AgentInfo,
    },
    /// Removes an agent that has left.
    RemoveAgent {
        /// The agent.
        agent_id: AgentId,
    },
    /// Admits a framework, or changes its description or deadline.
    AdmitFramework {
        /// Its description, with the id set.
        info: FrameworkInfo,
        /// When it is removed unless a scheduler subscribes; `None` while one is connected.
        deadline: Option<Timestamp>,
    },
    /// Removes a framework; its id is never admitted again.
    RemoveFramework {
        /// The framework.
        framework_id: FrameworkId,
    },
    /// Records the leading scheduler of a framework with standbys. The framework is admitted
    /// without a deadline.
    AppointScheduler {
        /// Its description, with the id set.
        info: FrameworkInfo,
        /// The new leading scheduler.
        scheduler: Pid,
    },
    /// Sets or deletes a key of a framework's state.
    ChangeFrameworkState {
        /// The framework.
        framework_id: FrameworkId,
        /// The key.
        key: String,
        /// Required current version; 0 for a missing key.
        expected: Option<u64>,
        /// The value, whose version is the registry's after this operation. `None` deletes the key.
        value: Option<Vec<u8>>,
    },
    /// Sets quotas, all of them or none. The caller has validated them against the cluster.
    UpdateQuotas {
        /// By role; the default removes the quota.
        quotas: BTreeMap<String, Quota>,
    },
    /// Sets weights, all of them or none.
    UpdateWeights {
        /// By role; `None` restores the value of the flags.
        weights: BTreeMap<String, Option<f64>>,
    },
    /// Sets the maintenance schedule. Down machines stay down.
    UpdateMaintenanceSchedule {
        /// Each machine once.
        windows: Vec<Window>,
    },
    /// Marks scheduled machines as down.
    StartMaintenance {
        /// The machines.
        machines: Vec<MachineId>,
    },
    /// Marks machines as up, and removes them from the schedule.
    StopMaintenance {
        /// The machines.
        machines: Vec<MachineId>,
    },
    /// Marks an agent as gone; its id is never admitted again.
    MarkAgentGone {
        /// The agent.
        agent_id: AgentId,
        /// Since when.
        since: Timestamp,
    },
    /// Deactivates an agent and ends its tasks.
    DrainAgent {
        /// The agent.
        agent_id: AgentId,
        /// The drain's parameters.
        drain: Drain,
    },
    /// Records that a draining agent is empty.
    MarkAgentDrained {
        /// The agent.
        agent_id: AgentId,
    },
    /// Stops offers of an agent.
    DeactivateAgent {
        /// The agent.
        agent_id: AgentId,
    },
    /// Resumes offers of an agent.
    ReactivateAgent {
        /// The agent.
        agent_id: AgentId,
    },
    /// Cancels an agent's drain and resumes its offers.
    CancelDrain {
        /// The agent.
        agent_id: AgentId,
    },
    /// Records operations for an agent, all of them or none.
    AcceptOperations {
        /// The agent.
        agent_id: AgentId,
        /// Operations with their serials, ascending.
        operations: Vec<(u64, AcceptedOperation)>,
    },
    /// Forgets operations that are on their agents' disks or will never be applied.
    ForgetOperations {
        /// Each with its agent and its serial there.
        operations: Vec<(AgentId, u64)>,
    },
}

/// The operation is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Applied {
    /// Number of operations applied so far, including this one.
    pub version: u64,
}

/// Why an operation was not applied, or the content not read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegistryError {
    /// Not now; retry later.
    #[error("the registry cannot answer now: {reason}")]
    NotNow {
        /// For the log.
        reason: String,
    },
    /// Another master leads: this one must stop.
    #[error("another master leads")]
    LostLeadership,
    /// Refused permanently. Nothing was changed.
    #[error("{reason}")]
    Refused {
        /// Has the field, the value and the expected value.
        reason: String,
    },
    /// A key of a framework's state has another version than required. Nothing was changed.
    #[error("the key has version {found}")]
    Conflict {
        /// The current version; 0 if the key is missing.
        found: u64,
    },
    /// No longer reliable: the master must end and be restarted.
    #[error("the registry is broken: {reason}")]
    Broken {
        /// The failure.
        reason: String,
    },
}

/// Durable storage of a master.
pub trait Registry: Send + 'static {
    /// Applies one operation; operations take effect in call order. The future completes when the
    /// operation is durable. Dropping it does not undo the operation.
    fn apply(
        &mut self,
        operation: RegistryOperation,
    ) -> BoxFuture<'static, Result<Applied, RegistryError>>;

    /// Reads the result of all operations so far.
    fn read(&mut self) -> BoxFuture<'static, Result<RegistryState, RegistryError>>;

    /// Checks that this master may still act, as of a time after this call. Without other masters
    /// it always may.
    fn still_leads(&mut self) -> BoxFuture<'static, Result<(), RegistryError>> {
        future::ready(Ok(())).boxed()
    }

    /// Reads a key of a framework's state, after all operations so far.
    fn framework_state(
        &mut self,
        framework_id: &FrameworkId,
        key: &str,
    ) -> BoxFuture<'static, Result<Option<StateValue>, RegistryError>>;
}
