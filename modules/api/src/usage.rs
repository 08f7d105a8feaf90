//! The agent's usage, as modules ask for it (SPEC 5.7, S4, S22).
//!
//! Asked of the agent's `monitor` actor; every estimator and QoS controller is told its pid at `initialize`.

use protocol::ResourceUsage;
use runtime::remote;
use serde::{Deserialize, Serialize};

/// What does every executor on this agent use right now?
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CurrentUsage;

/// The usage cannot be had just now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{reason}")]
pub struct UsageUnavailable {
    /// Why not, for the log.
    pub reason: String,
}

remote! { CurrentUsage = "module/current_usage" v1 -> Result<ResourceUsage, UsageUnavailable> }
