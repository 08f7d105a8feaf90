//! Messages between components, one module per pair of components. Facts have names in the past
//! tense, requests are named by their purpose.
//!
//! | module | contents |
//! |---|---|
//! | `executor` | messages between an executor and its agent, over a Unix socket |
//! | `operation` | messages about operations between a master and an agent |
//! | `operator` | requests of operators' commands to masters and agents |
//! | `oversubscription` | messages about oversubscribed resources |
//! | `registration` | messages by which agents register with a master and stay connected |
//! | `scheduler` | messages between a framework's scheduler and the master |
//! | `standby` | messages of several schedulers of one framework |
//! | `state` | messages about the framework's state in the registry |
//! | `task` | messages about tasks between a master and an agent |

pub mod executor;
pub mod operation;
pub mod operator;
pub mod oversubscription;
pub mod registration;
pub mod scheduler;
pub mod standby;
pub mod state;
pub mod task;
