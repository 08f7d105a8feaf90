//! Agents and masters.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use protocol::agent::{Domain, Drain};
use resources::{Attributes, Invalid, Resources};

use super::resource::{describe_resources, read_resources};
use super::{all, some};
use crate::describe::{Describe, Each, Fields, Output, build};
use crate::message::Enum;
use crate::schema::{
    Address, AgentInfo, DomainInfo, DomainInfoFaultDomain, DomainInfoFaultDomainRegionInfo,
    DomainInfoFaultDomainZoneInfo, DrainConfig, DrainInfo, DrainState, MasterInfo,
    MasterInfoCapability, MasterInfoCapabilityType,
};

/// Default port of an agent.
const AGENT_PORT: i32 = 5051;

impl TryFrom<&AgentInfo> for protocol::AgentInfo {
    type Error = Invalid;

    fn try_from(info: &AgentInfo) -> Result<Self, Invalid> {
        let port = info.port.unwrap_or(AGENT_PORT);
        Ok(Self {
            hostname: info.hostname.clone(),
            port: u16::try_from(port)
                .map_err(|_| Invalid::new("port", port, "a number from 0 to 65535"))?,
            resources: read_resources("resources", &info.resources)?,
            attributes: Attributes::new(all("attributes", &info.attributes)?),
            domain: info.domain.as_ref().and_then(read_domain),
            id: some("id", info.id.as_ref())?,
        })
    }
}

/// The description of an agent.
#[derive(Clone, Copy, Debug)]
pub struct AgentDescription<'a> {
    /// The agent's info.
    pub info: &'a protocol::AgentInfo,
    /// The id to encode.
    pub id: Option<&'a protocol::AgentId>,
    /// The resources to encode.
    pub resources: &'a Resources,
}

impl Describe<AgentInfo> for AgentDescription<'_> {
    fn describe<O: Output>(&self, fields: &mut Fields<'_, AgentInfo, O>) {
        let info = self.info;
        fields
            .hostname(info.hostname.as_str())
            .resources(describe_resources(self.resources))
            .attributes(Each(&info.attributes))
            .id(self.id)
            .checkpoint(Some(true))
            .port(Some(i32::from(info.port)))
            .domain(info.domain.as_ref().map(DomainInfo::from));
    }
}

impl From<&protocol::AgentInfo> for AgentInfo {
    fn from(info: &protocol::AgentInfo) -> Self {
        let (id, resources) = (info.id.as_ref(), &info.resources);
        build(&AgentDescription {
            info,
            id,
            resources,
        })
    }
}

pub(super) fn read_domain(info: &DomainInfo) -> Option<Domain> {
    let domain = info.fault_domain.as_ref()?;
    Some(Domain {
        region: domain.region.name.clone(),
        zone: domain.zone.name.clone(),
    })
}

impl From<&Domain> for DomainInfo {
    fn from(domain: &Domain) -> Self {
        Self {
            fault_domain: Some(DomainInfoFaultDomain {
                region: DomainInfoFaultDomainRegionInfo {
                    name: domain.region.clone(),
                },
                zone: DomainInfoFaultDomainZoneInfo {
                    name: domain.zone.clone(),
                },
            }),
        }
    }
}

impl From<&Drain> for DrainInfo {
    fn from(drain: &Drain) -> Self {
        Self {
            state: match drain.drained {
                true => DrainState::Drained,
                false => DrainState::Draining,
            },
            config: DrainConfig {
                max_grace_period: drain.max_grace_period.map(Into::into),
                mark_gone: Some(drain.mark_gone),
            },
        }
    }
}

/// The capabilities of our agents, with Mesos' names.
pub const AGENT_CAPABILITIES: [&str; 6] = [
    "MULTI_ROLE",
    "HIERARCHICAL_ROLE",
    "RESERVATION_REFINEMENT",
    "RESIZE_VOLUME",
    "AGENT_OPERATION_FEEDBACK",
    "AGENT_DRAINING",
];

/// The capabilities of a master, with the names of the v0 pages.
pub const MASTER_CAPABILITIES: [&str; 3] = ["AGENT_UPDATE", "AGENT_DRAINING", "QUOTA_V2"];

/// A libprocess address, `NAME@IP:PORT`; with the host name if the IP is unknown.
pub fn pid(name: &str, address: Option<IpAddr>, hostname: &str, port: u16) -> String {
    match address {
        Some(address) => format!("{name}@{}", SocketAddr::new(address, port)),
        None => format!("{name}@{hostname}:{port}"),
    }
}

/// The master as frameworks know it. An unknown address is 0, and clients then use the host name.
pub fn master_info(info: &protocol::MasterInfo) -> MasterInfo {
    let address: Option<Ipv4Addr> = info.address.or_else(|| info.hostname.parse().ok());
    // Mesos stores the bytes in network order on any machine.
    let ip = address.map_or(0, |address| u32::from_le_bytes(address.octets()));
    let pid = |address: Ipv4Addr| pid("master", Some(address.into()), "", info.port);
    MasterInfo {
        id: info.id.to_string(),
        ip,
        port: info.port.into(),
        pid: address.map(pid),
        hostname: Some(info.hostname.clone()),
        version: Some(crate::MESOS_VERSION.to_owned()),
        address: Some(Box::new(Address {
            hostname: Some(info.hostname.clone()),
            ip: address.map(|address| address.to_string()),
            port: info.port.into(),
        })),
        // The v1 enum of 1.11 lacks `QUOTA_V2`: Mesos writes a capability without a type, and
        // clients that know only 1.11 would fail at the name.
        capabilities: MASTER_CAPABILITIES
            .map(|name| MasterInfoCapability {
                r#type: MasterInfoCapabilityType::by_name(name),
            })
            .into(),
        domain: info.domain.as_deref().map(DomainInfo::from),
    }
}
