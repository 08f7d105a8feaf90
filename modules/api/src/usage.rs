//! The interface to the agent's usage data.
//!
//! The agent's `monitor` actor answers. Every estimator and QoS controller gets its pid at
//! initialization.

use protocol::ResourceUsage;
use runtime::remote;
use serde::{Deserialize, Serialize};

/// Requests the current usage of every executor on this agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CurrentUsage;

/// No usage data is available at present.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{reason}")]
pub struct UsageUnavailable {
    /// The reason, for the log.
    pub reason: String,
}

remote! { CurrentUsage = "module/current_usage" v1 -> Result<ResourceUsage, UsageUnavailable> }
