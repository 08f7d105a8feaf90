//! The messages of the v1 API: names, fields, numbers and types are Mesos' own.
//!
//! One file an area. A message within another is called by both names (`Offer.Operation.Launch` is [`OfferOperationLaunch`]); those that all
//! APIs share are here, the others in the module of their API ([`scheduler::Call`], [`master::Call`]). Optional messages of more than 48
//! bytes are boxed. These are words: what is wrong with a value is said where it is converted.

pub mod agent;
pub mod allocator;
pub mod executor;
pub mod maintenance;
pub mod master;
pub mod quota;
pub mod scheduler;

mod common;
mod container;
mod framework;
mod ids;
mod nodes;
mod offer;
mod resource;
mod statistics;
mod status;
mod task;
mod volume;

pub use common::*;
pub use container::*;
pub use framework::*;
pub use ids::*;
pub use nodes::*;
pub use offer::*;
pub use resource::*;
pub use statistics::*;
pub use status::*;
pub use task::*;
pub use volume::*;
