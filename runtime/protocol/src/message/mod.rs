//! Messages between components, one module per pair of components. Facts have names in the past
//! tense, requests are named by their purpose.

pub mod executor;
pub mod operation;
pub mod operator;
pub mod oversubscription;
pub mod registration;
pub mod scheduler;
pub mod standby;
pub mod state;
pub mod task;
