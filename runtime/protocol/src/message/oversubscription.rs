//! Messages about oversubscribed resources, from an agent to its master.

use resources::Resources;
use runtime::remote;
use serde::{Deserialize, Serialize};

use crate::id::AgentId;

/// The agent's total of revocable resources has changed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OversubscribedChanged {
    /// The agent.
    pub agent_id: AgentId,
    /// All its revocable resources, allocated and available together.
    pub total: Resources,
}

remote! { OversubscribedChanged = "oversubscription/oversubscribed_changed" v1 }
