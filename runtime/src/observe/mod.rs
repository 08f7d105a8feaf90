//! Observation of a node: counters, histories, blocked threads, and the messages themselves.
//!
//! Only the [`tap`] may change the fate of a message; it is for tests and the simulator.
//!
//! | module | contents |
//! |---|---|
//! | `host` | the memory and the load of the host |
//! | `info` | the state of a node's actors and links, for metrics and `/__processes__` |
//! | `series` | values by time, recent ones in full and older ones thinned out |
//! | `tally` | the number, rate and duration of handled messages, by type |
//! | `tap` | sees each message that a node sends or receives, and decides its fate |
//! | `watchdog` | finds handlers that block their thread |

pub mod host;
pub(crate) mod info;
pub(crate) mod series;
pub(crate) mod tally;
pub mod tap;
pub(crate) mod watchdog;
