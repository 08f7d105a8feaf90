//! What an agent tells its master about resources it could lend (SPEC 1.1, S7).

use resources::Resources;
use runtime::remote;
use serde::{Deserialize, Serialize};

use crate::id::AgentId;

/// The agent's revocable total has changed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OversubscribedChanged {
    /// Which agent.
    pub agent_id: AgentId,
    /// All that is revocable there, allocated and available together.
    pub total: Resources,
}

remote! { OversubscribedChanged = "oversubscription/oversubscribed_changed" v1 }
