//! Tests of the actor contract, rule by rule (`runtime/docs/actor-contract.md`).
//!
//! | module | contents |
//! |---|---|
//! | `delivery` | order, at most once, bounds, and roles |
//! | `futures` | asks and blocking work always end |
//! | `life` | start, panic, supervision, stop, and exits |
//! | `link_laws` | links, watches and exits under random events |
//! | `links` | watches of other nodes' actors, and broken links |
//! | `time` | timers and the virtual clock |

pub(in crate::tests) mod delivery;
pub(in crate::tests) mod futures;
pub(in crate::tests) mod life;
pub(in crate::tests) mod link_laws;
pub(in crate::tests) mod links;
pub(in crate::tests) mod time;
