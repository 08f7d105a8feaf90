//! The pages of Mesos before its v1 API, with their JSON keys: tools and the web UI read them.
//!
//! | module | contents |
//! |---|---|
//! | `constraints` | `/allocator/offer_constraints_debug` |
//! | `explain` | `GET /explain`: why a framework gets no offers |
//! | `help` | a master's endpoints besides the common ones, for `/help` |
//! | `leader` | `/redirect` to the leader |
//! | `maintenance` | `/maintenance/schedule` |
//! | `registrar` | Mesos' `registrar/*`, and the group status of this master, `raft/*` |
//! | `role_json` | quotas, weights and roles in the JSON of Mesos |
//! | `state` | `/state` and its smaller variants |
//! | `tasks` | `/tasks`: the remembered tasks, newest first by default |

pub(crate) mod constraints;
pub mod explain;
pub(crate) mod help;
pub(crate) mod leader;
pub(crate) mod maintenance;
pub(crate) mod registrar;
pub mod role_json;
pub(crate) mod state;
pub(crate) mod tasks;
