//! Types and messages shared by masters, agents, schedulers and executors.
//!
//! Each module has one family of types: ids, infos, offers, operations, task states and so on.
//! Messages are in [`message`]. The Serde form of a type is its wire form: after a release it never
//! changes, and a change needs a new version of each message that contains it.
//!
//! [`digest`] compares an agent's contents with the master's view, [`fence`] rejects deposed
//! masters, and [`discovery`] finds the leading master. Everything else is plain data without I/O.
//!
//! | module | contents |
//! |---|---|
//! | `agent` | descriptions of agents and masters, and operators' orders about an agent |
//! | `digest` | a summary of an agent's tasks and executors, for comparison |
//! | `discovery` | finds the leading master through any masters of its group |
//! | `fence` | protects agents and drivers from deposed masters |
//! | `framework` | `FrameworkInfo` and framework capabilities |
//! | `id` | ids: short, validated texts |
//! | `maintenance` | maintenance schedules, inverse offers and their types |
//! | `message` | messages between components, one module per pair of components |
//! | `offers` | offers, filters and demands |
//! | `operation` | reservations, volumes and other operations on offered resources |
//! | `quota` | guarantees and limits of roles |
//! | `task` | tasks, commands and executors |
//! | `text` | durations and reserved labels |
//! | `usage` | resource usage of executors, and QoS corrections |
//! | `view` | snapshots of the cluster for operators' commands |

pub mod agent;
pub mod digest;
pub mod discovery;
pub mod fence;
pub mod framework;
pub mod id;
pub mod maintenance;
pub mod message;
pub mod offers;
pub mod operation;
pub mod quota;
pub mod task;
pub mod text;
pub mod usage;
pub mod view;

pub use agent::{AgentInfo, AgentOrders, Drain, MasterInfo};
pub use fence::Fence;
pub use framework::{Capability, FrameworkInfo};
pub use id::{
    AgentId, ContainerId, ExecutorId, FrameworkId, ID_LENGTH_MAX, InvalidId, MasterId, OfferId,
    OperationId, TaskId, Uuid,
};
pub use maintenance::{InverseOffer, MachineId, Unavailability};
pub use offers::offer::{Filters, Offer};
pub use offers::wants::{Demand, Wants};
pub use operation::{AgentResources, Operation, OperationState, OperationStatus, OperationUpdate};
pub use quota::Quota;
pub use task::status::{Reason, Source, StatusUpdate, TaskState, TaskStatus, Termination};
pub use task::{
    CheckInfo, CommandInfo, ExecutorInfo, ExecutorKind, HealthCheck, KillPolicy, Labels,
    NamedCheck, TaskInfo, Uri,
};
pub use usage::{ExecutorUsage, QosCorrection, ResourceStatistics, ResourceUsage};
