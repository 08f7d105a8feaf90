//! Linearizability: whether a history of concurrent operations could have come from a single copy
//! with one operation at a time.
//!
//! | module | contents |
//! |---|---|
//! | `check` | the verdict, and the shortest prefix that no order explains |
//! | `history` | requests and answers of clients, in the observed order |
//! | `model` | the behaviour of a single copy, as a pure step |
//! | `register` | registers with compare-and-set, a model for tests |
//! | `registry` | the model of the master's registry |
//! | `search` | the search for an order that explains every answer |
//!
//! A call takes effect at one moment between its invocation and its answer. A call with an unknown
//! outcome may take effect at any moment after its invocation, or never. Replicas, terms and disks
//! are unknown here: only the clients' observations count.

mod check;
mod history;
mod model;
mod register;
mod registry;
mod search;

#[cfg(test)]
mod tests;

pub use check::{CallText, STATES_MAX, Verdict, Violation, check, check_within};
pub use history::{Call, History, Misuse, Outcome};
pub use model::Model;
pub use register::{RegisterAnswer, RegisterOperation, Registers};
pub use registry::{Content, RegistryAnswer, RegistryModel, RegistryRequest};
