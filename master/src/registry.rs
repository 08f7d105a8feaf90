//! Registry: what a master must not forget, behind an interface that may take its time, refuse, or lose leadership.
//!
//! The order is always: the registry first, then the master's own books, then anyone is told. [`RegistryState`] is the
//! whole content as plain data with one pure transition, `apply`; the implementations decide where it
//! lives: [`MemoryRegistry`], [`LocalRegistry`] (synced to this machine's disk before it answers), [`ReplicatedRegistry`] (synced to the
//! disks of a majority of masters, as a [`RegistryMachine`]) and, for rehearsals, [`FickleRegistry`], which delays and refuses. It never holds soft state: tasks, offers and usage are not in it.

mod accepted;
mod fickle;
mod framework_state;
mod local;
mod machine;
mod machines;
mod memory;
mod metered;
mod record;
mod replicated;
mod roles;
mod state;

pub use accepted::{ACCEPTED_MAX, AcceptedOperation, AcceptedOperations, AcceptedRecord};
pub use fickle::{FickleRegistry, Whims};
pub use framework_state::{FrameworkStates, STATE_BYTES_MAX};
pub use local::{LocalRegistry, OpenError};
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

/// One change of the registry. Each may be applied twice without harm. New ones come at the end: their places are in every log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum RegistryOperation {
    /// An agent may be part of the cluster; said again when its info has changed.
    AdmitAgent {
        /// Which; its id is set.
        info: AgentInfo,
    },
    /// An admitted agent has not answered for too long.
    MarkAgentUnreachable {
        /// Which.
        agent_id: AgentId,
        /// Since when.
        since: Timestamp,
    },
    /// An unreachable agent is back. One that the registry does not know is admitted.
    MarkAgentReachable {
        /// Which; its id is set.
        info: AgentInfo,
    },
    /// An agent has left for good.
    RemoveAgent {
        /// Which.
        agent_id: AgentId,
    },
    /// A framework may be part of the cluster; said again when its info or its deadline has changed.
    AdmitFramework {
        /// Which; its id is set.
        info: FrameworkInfo,
        /// When it is removed unless a scheduler of it subscribes; `None` while one is connected.
        deadline: Option<Timestamp>,
    },
    /// A framework is no more; its id is never admitted again.
    RemoveFramework {
        /// Which.
        framework_id: FrameworkId,
    },
    /// This scheduler leads a framework that has standbys (S134). The framework is admitted, and has no deadline.
    AppointScheduler {
        /// Which framework; its id is set.
        info: FrameworkInfo,
        /// Who leads it from now on.
        scheduler: Pid,
    },
    /// A framework keeps this under this key, or no longer anything.
    ChangeFrameworkState {
        /// Which framework.
        framework_id: FrameworkId,
        /// Which key.
        key: String,
        /// Only if this is its version, 0 for a key that is not there.
        expected: Option<u64>,
        /// The value; its version is the registry's after this operation. `None` deletes the key.
        value: Option<Vec<u8>>,
    },
    /// These roles have these quotas from now on, all of them or none. Whether the cluster has so much was judged before.
    UpdateQuotas {
        /// By role; the default takes the quota away.
        quotas: BTreeMap<String, Quota>,
    },
    /// These roles have these weights from now on, all of them or none.
    UpdateWeights {
        /// By role; `None` is whatever the master's flags say.
        weights: BTreeMap<String, Option<f64>>,
    },
    /// This is the schedule of maintenance from now on. Machines that are away stay so.
    UpdateMaintenanceSchedule {
        /// Each machine once.
        windows: Vec<Window>,
    },
    /// These machines of the schedule are away.
    StartMaintenance {
        /// Which.
        machines: Vec<MachineId>,
    },
    /// These machines are back, and not scheduled any more.
    StopMaintenance {
        /// Which.
        machines: Vec<MachineId>,
    },
    /// An agent is gone for good; its id is never admitted again.
    MarkAgentGone {
        /// Which.
        agent_id: AgentId,
        /// Since when.
        since: Timestamp,
    },
    /// An agent is deactivated, and its tasks are to end.
    DrainAgent {
        /// Which.
        agent_id: AgentId,
        /// How.
        drain: Drain,
    },
    /// Nothing is left on an agent that was being drained.
    MarkAgentDrained {
        /// Which.
        agent_id: AgentId,
    },
    /// Nothing of an agent is offered.
    DeactivateAgent {
        /// Which.
        agent_id: AgentId,
    },
    /// An agent is offered again.
    ReactivateAgent {
        /// Which.
        agent_id: AgentId,
    },
    /// An agent that is being drained is so no more, and is offered again.
    CancelDrain {
        /// Which.
        agent_id: AgentId,
    },
    /// An agent is to do these, all of them or none.
    AcceptOperations {
        /// Which.
        agent_id: AgentId,
        /// Each with its serial, in rising order.
        operations: Vec<(u64, AcceptedOperation)>,
    },
    /// These are over: done, which is on their agents' disks, or never to be done.
    ForgetOperations {
        /// Each with its agent and its serial there.
        operations: Vec<(AgentId, u64)>,
    },
}

/// The operation is where it cannot be lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Applied {
    /// How many operations the registry has taken, this one included.
    pub version: u64,
}

/// Why an operation was not applied, or the content not read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegistryError {
    /// Not just now: try again after a while.
    #[error("the registry cannot answer now: {reason}")]
    NotNow {
        /// For the log.
        reason: String,
    },
    /// Another master leads: this one must not act any more.
    #[error("another master leads")]
    LostLeadership,
    /// This operation will never be applied as it is. Nothing was changed.
    #[error("{reason}")]
    Refused {
        /// Names the field, the value and what was expected.
        reason: String,
    },
    /// A key of a framework's state has another version than was expected. Nothing was changed.
    #[error("the key has version {found}")]
    Conflict {
        /// The version it has; 0 when it is not there.
        found: u64,
    },
    /// The registry cannot be relied upon any more: the master must end, and be started again.
    #[error("the registry is broken: {reason}")]
    Broken {
        /// What happened to it.
        reason: String,
    },
}

/// Where a master keeps what it must not forget.
pub trait Registry: Send + 'static {
    /// Applies one operation; operations take effect in the order of these calls. The future answers when the
    /// operation cannot be lost any more. Dropping it does not take the operation back.
    fn apply(
        &mut self,
        operation: RegistryOperation,
    ) -> BoxFuture<'static, Result<Applied, RegistryError>>;

    /// All that was applied so far.
    fn read(&mut self) -> BoxFuture<'static, Result<RegistryState, RegistryError>>;

    /// Whether this master may still act, as of a time after this call. One that is alone always may.
    fn still_leads(&mut self) -> BoxFuture<'static, Result<(), RegistryError>> {
        future::ready(Ok(())).boxed()
    }

    /// What a framework keeps under a key, with all that was applied so far.
    fn framework_state(
        &mut self,
        framework_id: &FrameworkId,
        key: &str,
    ) -> BoxFuture<'static, Result<Option<StateValue>, RegistryError>>;

    /// Bytes that it takes on this machine's disk, as measured a while ago; `None` if it does not know.
    fn disk_bytes(&self) -> Option<u64> {
        None
    }
}
