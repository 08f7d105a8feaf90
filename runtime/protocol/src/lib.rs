//! The words of the cluster: ids, infos, offers, operations, task states, and the messages that components say to each other.
//!
//! One file a word family (`id`, `framework`, `agent`, `offer`, `operation`, `quota`, `maintenance`, `task`, `status`, `usage`, `view`, `explain`, `wants`, `marks`), one file a message
//! family under [`message`]. Serde on a word is the wire's form and, once released, never changes: a change is a new version of that
//! message. [`digest`] says in a few numbers what an agent holds, [`fence`] which master may be obeyed, and [`seek`] finds the one that leads; nothing
//! else here decides, asks or remembers. Nothing does I/O.

pub mod agent;
pub mod digest;
pub mod duration;
pub mod explain;
pub mod fence;
pub mod framework;
pub mod id;
pub mod maintenance;
pub mod marks;
pub mod message;
pub mod offer;
pub mod operation;
pub mod quota;
pub mod seek;
pub mod status;
pub mod task;
pub mod usage;
pub mod view;
pub mod wants;

pub use agent::{AgentInfo, AgentOrders, Drain, MasterInfo};
pub use fence::Fence;
pub use framework::{Capability, FrameworkInfo};
pub use id::{
    AgentId, ContainerId, ExecutorId, FrameworkId, ID_LENGTH_MAX, InvalidId, MasterId, OfferId,
    OperationId, TaskId, Uuid,
};
pub use maintenance::{InverseOffer, MachineId, Unavailability};
pub use offer::{Filters, Offer};
pub use operation::{
    AgentResources, AgentResourcesV1, Operation, OperationState, OperationStatus, OperationUpdate,
};
pub use quota::Quota;
pub use status::{Reason, Source, StatusUpdate, TaskState, TaskStatus, Termination};
pub use task::{CommandInfo, ExecutorInfo, KillPolicy, Labels, TaskInfo};
pub use usage::{ExecutorUsage, QosCorrection, ResourceStatistics, ResourceUsage};
pub use wants::{Demand, Wants};
