//! The messages of the v1 API, with the names, fields, numbers and types of Mesos.
//!
//! One file per area. A nested message has both names (`Offer.Operation.Launch` is
//! [`OfferOperationLaunch`]). Messages that all APIs share are here, the others in the module of
//! their API ([`scheduler::Call`], [`master::Call`]). Optional messages of more than 48 bytes are
//! boxed. Values are validated by `convert`.
//!
//! | module | contents |
//! |---|---|
//! | `agent` | the operator API of the agent (`/api/v1`) |
//! | `allocator` | frameworks' answers to inverse offers |
//! | `executor` | the executor API (`/api/v1/executor` of the agent) |
//! | `maintenance` | maintenance schedules and states |
//! | `master` | the operator API of the master (`/api/v1`) |
//! | `scheduler` | the scheduler API (`/api/v1/scheduler` of the master) |
//! | `common` | labels, machines, secrets, discovery, versions, rate limits |
//! | `container` | settings and states of containers |
//! | `framework` | frameworks and their requests |
//! | `ids` | ids, times and durations |
//! | `nodes` | agents, masters and resource providers |
//! | `offer` | offers, operations and their results |
//! | `resource` | values, attributes and resources |
//! | `statistics` | resource usage of containers |
//! | `task` | tasks, commands, executors and checks |

pub mod agent;
pub mod allocator;
pub mod executor;
pub mod maintenance;
pub mod master;
pub mod scheduler;

mod common;
mod container;
mod framework;
mod ids;
mod nodes;
mod offer;
mod resource;
mod statistics;
mod task;

pub use common::*;
pub use container::volume::*;
pub use container::*;
pub use framework::*;
pub use ids::*;
pub use nodes::*;
pub use offer::*;
pub use resource::*;
pub use statistics::*;
pub use task::status::*;
pub use task::*;
