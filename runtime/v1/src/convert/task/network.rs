//! Networks of containers.

use protocol::task::network as to;
use resources::Invalid;

use crate::convert::labels::{labels, read_labels};
use crate::convert::task::check::{read_protocol, write_protocol};
use crate::convert::{each, refuse};
use crate::schema::{
    ContainerInfoDockerInfoPortMapping, NetworkInfo, NetworkInfoIPAddress, NetworkInfoPortMapping,
};

/// `None` for one without a name, which stands for the network of the host.
pub(super) fn read_network(network: &NetworkInfo) -> Result<Option<to::NetworkInfo>, Invalid> {
    let Some(name) = &network.name else {
        let ports = !network.port_mappings.is_empty();
        let expected = "none without `name`, in the network of the host";
        refuse("port_mappings", ports, "set", expected)?;
        return Ok(None);
    };
    let port = |one: &NetworkInfoPortMapping| {
        read_ports(one.host_port, one.container_port, one.protocol.as_deref())
    };
    let addresses = network.ip_addresses.iter().map(|one| to::NetworkAddress {
        protocol: read_protocol(one.protocol),
        address: one.ip_address.clone(),
    });
    Ok(Some(to::NetworkInfo {
        name: name.clone(),
        addresses: addresses.collect(),
        groups: network.groups.clone(),
        labels: read_labels(network.labels.as_ref()),
        port_mappings: each("port_mappings", &network.port_mappings, port)?,
    }))
}

pub(super) fn read_docker_port(
    one: &ContainerInfoDockerInfoPortMapping,
) -> Result<to::PortMapping, Invalid> {
    read_ports(one.host_port, one.container_port, one.protocol.as_deref())
}

fn read_ports(
    host: u32,
    container: u32,
    protocol: Option<&str>,
) -> Result<to::PortMapping, Invalid> {
    let port = |field, port: u32| {
        u16::try_from(port).map_err(|_| Invalid::new(field, port, "at most 65535"))
    };
    Ok(to::PortMapping {
        host_port: port("host_port", host)?,
        container_port: port("container_port", container)?,
        protocol: protocol.map(str::to_owned),
    })
}

impl From<&to::NetworkInfo> for NetworkInfo {
    fn from(network: &to::NetworkInfo) -> Self {
        let address = |one: &to::NetworkAddress| NetworkInfoIPAddress {
            protocol: Some(write_protocol(one.protocol)),
            ip_address: one.address.clone(),
        };
        let port = |one: &to::PortMapping| NetworkInfoPortMapping {
            host_port: one.host_port.into(),
            container_port: one.container_port.into(),
            protocol: one.protocol.clone(),
        };
        Self {
            groups: network.groups.clone(),
            labels: labels(&network.labels).message(),
            ip_addresses: network.addresses.iter().map(address).collect(),
            name: Some(network.name.clone()),
            port_mappings: network.port_mappings.iter().map(port).collect(),
        }
    }
}

pub(super) fn write_docker_port(one: &to::PortMapping) -> ContainerInfoDockerInfoPortMapping {
    ContainerInfoDockerInfoPortMapping {
        host_port: one.host_port.into(),
        container_port: one.container_port.into(),
        protocol: one.protocol.clone(),
    }
}
