//! The master: frameworks, agents, offers and tasks.
//!
//! [`start`] runs one [`Master`] actor on a node. Its decisions are plain methods of
//! [`state::MasterState`], one family per file; durable facts are in a [`registry::Registry`].
//! Pages and metrics are rendered from snapshots, in [`api`].
//!
//! | module | contents |
//! |---|---|
//! | `agents` | registered agents: admission, comparison, health, the whitelist |
//! | `api` | pages, metrics, the operator and scheduler APIs |
//! | `config` | the configuration, checked once at startup |
//! | `frameworks` | frameworks: subscription, update, standby schedulers, HTTP |
//! | `leadership` | runs the actor while this node's member leads; the mirror |
//! | `maintenance` | machines that are or will be down, and draining |
//! | `master` | the actor: receives messages and carries out effects, decides nothing |
//! | `offers` | open offers, their accept, expiry and explanation |
//! | `operations` | reservations and volumes: validated, recorded, sent to agents |
//! | `permission` | maps actions in the cluster to the rules of the ACLs |
//! | `registry` | the durable state, replicated |
//! | `roles` | quota and weights |
//! | `state` | [`state::MasterState`], [`state::effects::Effects`], ids and counters |
//! | `tasks` | tasks and executors, their states, kills and reconciliation |
//! | `validation` | the rules for frameworks, agents, tasks and operations |

pub mod agents;
pub mod api;
pub mod config;
pub mod frameworks;
pub mod leadership;
pub mod maintenance;
mod master;
pub mod offers;
pub mod operations;
pub mod permission;
pub mod registry;
pub mod roles;
pub mod state;
pub mod tasks;
pub mod validation;

pub use api::{counters as counters_source, routes};
pub use config::{Config, InvalidConfig};
pub use master::{Master, StartError, Started, TakeSnapshot, start, start_after};
pub use registry::{MemoryRegistry, Registry};
