//! Descriptions of agents and masters, and operators' orders about an agent.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use resources::{Attributes, Invalid, Resources};
use runtime::Timestamp;
use serde::{Deserialize, Serialize};

use crate::id::{AgentId, MasterId};

/// An agent's description of itself, sent when it registers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AgentInfo {
    /// Host name.
    pub hostname: String,
    /// Port for both HTTP and QUIC.
    pub port: u16,
    /// All resources, reserved ones included. Neither revocable nor allocated.
    pub resources: Resources,
    /// Attributes, which frameworks see in offers.
    pub attributes: Attributes,
    /// Region and zone.
    pub domain: Option<Domain>,
    /// Set once a master has admitted the agent.
    pub id: Option<AgentId>,
}

impl AgentInfo {
    /// An agent on the default port, without attributes, that is not admitted yet.
    pub fn new(hostname: impl Into<String>, resources: Resources) -> Self {
        Self {
            hostname: hostname.into(),
            port: 5051,
            resources,
            attributes: Attributes::default(),
            domain: None,
            id: None,
        }
    }
}

/// Location of a machine. A region has several zones with independent failures.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Domain {
    /// Name of the region. Agents outside the master's region are offered only to `REGION_AWARE`
    /// frameworks.
    pub region: String,
    /// Name of the zone within the region.
    pub zone: String,
}

impl std::str::FromStr for Domain {
    type Err = Invalid;

    /// Parses `REGION/ZONE`.
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

/// Address of an agent's HTTP pages. The host name is stored elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HttpEndpoint {
    /// Address from which the agent connected, if known.
    pub address: Option<IpAddr>,
    /// HTTP port.
    pub port: u16,
}

/// Operators' orders about an agent. The default is no order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentOrders {
    /// No resources of this agent are offered.
    pub deactivated: bool,
    /// Set while the agent is being drained and afterwards; `deactivated` is set then too.
    pub drain: Option<Drain>,
}

/// Parameters and progress of a drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drain {
    /// Longest grace period of a task; `None` uses the task's own.
    pub max_grace_period: Option<Duration>,
    /// Mark the agent gone when the drain completes.
    pub mark_gone: bool,
    /// Start of the drain.
    pub since: Timestamp,
    /// Whether the drain is complete: no tasks are left.
    pub drained: bool,
}

/// Description of the leading master.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MasterInfo {
    /// Id of this leadership.
    pub id: MasterId,
    /// Host name.
    pub hostname: String,
    /// Port for both HTTP and QUIC.
    pub port: u16,
    /// Software version, for display only.
    pub version: String,
    /// Term of this leadership, at least 1 and never reused; 0 only in tests.
    pub term: u64,
    /// IPv4 address of the HTTP port, for HTTP clients. Not sent on links, whose peers already know
    /// how to reach the master.
    #[serde(skip)]
    pub address: Option<Ipv4Addr>,
    /// Location, for the master's own HTTP clients. Not sent on links.
    #[serde(skip)]
    pub domain: Option<Box<Domain>>,
}
