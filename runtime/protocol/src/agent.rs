//! Who an agent and a master are (SPEC 2.8).

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use resources::{Attributes, Invalid, Resources};
use runtime::Timestamp;
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

/// Where an agent's pages are found over HTTP, beside its host name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Served {
    /// The address that it came from, where it is known.
    pub address: Option<IpAddr>,
    /// Its HTTP port.
    pub port: u16,
}

/// What operators have ordered about an agent (SPEC 3.2). The default: nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentOrders {
    /// Nothing of it is offered.
    pub deactivated: bool,
    /// Its tasks are to end, or have ended; it is deactivated then.
    pub drain: Option<Drain>,
}

/// How an agent is drained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drain {
    /// The longest time that a task has to end; `None` is each task's own.
    pub max_grace_period: Option<Duration>,
    /// Whether the agent is declared gone once it is drained.
    pub mark_gone: bool,
    /// Since when.
    pub since: Timestamp,
    /// Whether nothing is left on it.
    pub drained: bool,
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
    /// Where its HTTP port is, for clients that read addresses. No link tells it, and who hears the master on another node knows how it is reached.
    #[serde(skip)]
    pub address: Option<Ipv4Addr>,
    /// Where it lies, as its own HTTP clients are told. No link tells it.
    #[serde(skip)]
    pub domain: Option<Box<Domain>>,
}
