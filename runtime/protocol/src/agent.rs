//! Who an agent and a master are (SPEC 2.8).

use resources::{Attributes, Invalid, Resources};
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
    /// Where it lies.
    pub domain: Option<Domain>,
    /// Set once a master has admitted it.
    pub id: Option<AgentId>,
}

/// Where a machine lies: a region has zones, and zones fail apart.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Domain {
    /// The region's name. Agents of another region than the master's are offered only to frameworks that are `REGION_AWARE`.
    pub region: String,
    /// The zone's name within it.
    pub zone: String,
}

impl std::str::FromStr for Domain {
    type Err = Invalid;

    /// Reads `REGION/ZONE`.
    fn from_str(text: &str) -> Result<Self, Invalid> {
        let invalid = || Invalid::new("domain", text, "REGION/ZONE, as in `europe/europe-1`");
        let (region, zone) = text.split_once('/').ok_or_else(invalid)?;
        let named = |name: &str| {
            !name.is_empty() && !name.contains(|c: char| c == '/' || c.is_whitespace())
        };
        if !named(region) || !named(zone) {
            return Err(invalid());
        }
        Ok(Self {
            region: region.to_owned(),
            zone: zone.to_owned(),
        })
    }
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
