//! Who an agent and a master are (SPEC 2.8).

use resources::{Attributes, Resources};
use serde::{Deserialize, Serialize};

use crate::id::{AgentId, MasterId};

/// What an agent says about itself when it registers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AgentInfo {
    /// The host it runs on.
    pub hostname: String,
    /// Its HTTP and QUIC port.
    pub port: u16,
    /// All it has, reserved or not; never revocable, never allocated.
    pub resources: Resources,
    /// What frameworks may want to know of it (S94).
    pub attributes: Attributes,
    /// Set once a master has admitted it.
    pub id: Option<AgentId>,
}

/// Who the leading master is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MasterInfo {
    /// This leadership's id.
    pub id: MasterId,
    /// The host it runs on.
    pub hostname: String,
    /// Its HTTP and QUIC port.
    pub port: u16,
    /// Its version, for people and tools.
    pub version: String,
    /// The term under which it leads its group, from 1 and never the same twice; 0 for a master that is alone.
    pub term: u64,
}
