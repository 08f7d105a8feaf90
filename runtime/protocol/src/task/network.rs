//! Networks that containers join.

use serde::{Deserialize, Serialize};

use crate::task::check::IpProtocol;
use crate::task::{Labels, labels_bytes};

/// A network that a container joins, or in a status, has joined.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkInfo {
    /// Its name.
    pub name: String,
    /// Requested addresses; in a status, those that the container has.
    pub addresses: Vec<NetworkAddress>,
    /// For the network's plugins.
    pub groups: Vec<String>,
    /// For the network's plugins.
    pub labels: Labels,
    /// Ports of the host at which ports of the container are reached.
    pub port_mappings: Vec<PortMapping>,
}

/// An address in a network.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkAddress {
    /// The protocol.
    pub protocol: IpProtocol,
    /// The address, if it matters.
    pub address: Option<String>,
}

/// A port of the host that leads to one of a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortMapping {
    /// The port of the host.
    pub host_port: u16,
    /// The port of the container.
    pub container_port: u16,
    /// `tcp` if not set.
    pub protocol: Option<String>,
}

impl NetworkInfo {
    pub(super) fn text_bytes(&self) -> usize {
        let addresses = self.addresses.iter();
        let addresses: usize = addresses
            .map(|one| one.address.as_ref().map_or(0, String::len) + size_of::<NetworkAddress>())
            .sum();
        let groups: usize = self.groups.iter().map(String::len).sum();
        let ports: usize = self.port_mappings.iter().map(PortMapping::text_bytes).sum();
        self.name.len()
            + addresses
            + groups
            + labels_bytes(&self.labels)
            + ports
            + size_of::<Self>()
    }
}

impl PortMapping {
    pub(super) fn text_bytes(&self) -> usize {
        self.protocol.as_ref().map_or(0, String::len) + size_of::<Self>()
    }
}
