//! Linearizability: whether a history of concurrent operations could have come from one copy that takes them one at a time.
//!
//! | file | what it is |
//! |---|---|
//! | `history` | who asked what and heard which answer, in the order in which it was seen |
//! | `model` | what one copy would do, as a pure step |
//! | `check`, `search` | the search for an order that explains every answer, and the shortest prefix that has none |
//! | `register` | registers with compare-and-set, a model for tests and for small services |
//! | `registry` | the registry of the master |
//!
//! A call takes effect at one moment between its invocation and its answer. One whose outcome nobody learnt may take effect at any moment
//! after its invocation, or never. Deliberately absent: any knowledge of replicas, terms or disks; only what clients saw counts.

mod check;
mod history;
mod model;
mod register;
mod registry;
mod search;

#[cfg(test)]
mod tests;

pub use check::{STATES_MAX, Verdict, Violation, Witness, check, check_within};
pub use history::{Call, History, Misuse, Outcome};
pub use model::Model;
pub use register::{RegisterAnswer, RegisterOperation, Registers};
pub use registry::{Content, RegistryAnswer, RegistryModel, RegistryRequest};
