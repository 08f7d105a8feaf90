//! Registry: what a master must not forget, behind an interface that may take its time, refuse, or lose leadership.
//!
//! The order is always: the registry first, then the master's own books, then anyone is told. [`RegistryState`] is the
//! whole content as plain data with one pure transition, `apply`; the implementations decide where it
//! lives: [`MemoryRegistry`], [`LocalRegistry`] (synced to this machine's disk before it answers), [`ReplicatedRegistry`] (synced to the
//! disks of a majority of masters, as a [`RegistryMachine`]) and, for rehearsals, [`FickleRegistry`], which delays and refuses. It never holds soft state: tasks, offers and usage are not in it.

mod fickle;
mod local;
mod machine;
mod memory;
mod record;
mod replicated;
mod state;

pub use fickle::{FickleRegistry, Whims};
pub use local::{LocalRegistry, OpenError};
pub use machine::{RegistryMachine, SnapshotRecord};
pub use memory::MemoryRegistry;
pub use replicated::ReplicatedRegistry;
pub use state::{FrameworkEntry, RegistryState};

use futures_util::FutureExt;
use futures_util::future::{self, BoxFuture};
use protocol::{AgentId, AgentInfo, FrameworkId, FrameworkInfo};
use runtime::Timestamp;
use serde::{Deserialize, Serialize};

/// One change of the registry. Each may be applied twice without harm.
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
}
