//! The messages that components say to each other, one file a family. A fact is named in the past tense, a request by what is wanted.

pub mod executor;
pub mod operation;
pub mod operator;
pub mod oversubscription;
pub mod registration;
pub mod scheduler;
pub mod standby;
pub mod state;
pub mod task;
