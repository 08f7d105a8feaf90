//! The networks that a container wants. Pure.

use protocol::task::container::{ContainerInfo, DockerNetwork};
use protocol::task::network::NetworkInfo;
use resources::Ranges;

/// The networks that a container joins: none besides its loopback if empty, that of the host if
/// `None`. `bridge` is the network of containers of type DOCKER with network BRIDGE.
pub(super) fn wanted(
    container: Option<&ContainerInfo>,
    bridge: Option<&str>,
) -> Result<Option<Vec<NetworkInfo>>, String> {
    let Some(container) = container.filter(|container| container.has_own_network()) else {
        return Ok(None);
    };
    let networks = match &container.docker {
        None => container.networks.clone(),
        Some(docker) => match docker.network {
            DockerNetwork::Host => return Ok(None),
            DockerNetwork::None => Vec::new(),
            DockerNetwork::Bridge => {
                let name = bridge.ok_or("container.docker.network is BRIDGE: expected an agent with --docker_bridge_network")?;
                vec![NetworkInfo {
                    name: name.to_owned(),
                    port_mappings: docker.port_mappings.clone(),
                    ..NetworkInfo::default()
                }]
            }
            DockerNetwork::User => match &container.networks[..] {
                [network] => {
                    let mut network = network.clone();
                    network.port_mappings.extend(docker.port_mappings.clone());
                    vec![network]
                }
                [] => return Err("No network info found in container info".to_owned()),
                _ => return Err("Only a single network can be defined in Docker run".to_owned()),
            },
        },
    };
    let mut names: Vec<&str> = networks.iter().map(|one| one.name.as_str()).collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => {
            let name = pair[0];
            Err(format!(
                "Attempted to join CNI network '{name}' multiple times"
            ))
        }
        None => Ok(Some(networks)),
    }
}

/// Whether a container with these ports of the host may map the ports of its networks.
pub(super) fn check_ports(networks: &[NetworkInfo], own: &Ranges) -> Result<(), String> {
    let ports = networks.iter().flat_map(|network| &network.port_mappings);
    let mut ports = ports.map(|mapping| mapping.host_port);
    match ports.find(|&port| !own.contains_number(port.into())) {
        Some(port) => Err(format!("Port [{port}] not included in resources")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use protocol::task::container::DockerOptions;
    use protocol::task::network::PortMapping;
    use resources::Resources;

    use super::*;

    fn named(name: &str) -> NetworkInfo {
        NetworkInfo {
            name: name.to_owned(),
            ..NetworkInfo::default()
        }
    }

    fn docker(network: DockerNetwork, networks: Vec<NetworkInfo>) -> ContainerInfo {
        let port = PortMapping {
            host_port: 31000,
            container_port: 80,
            protocol: None,
        };
        ContainerInfo {
            docker: Some(DockerOptions {
                network,
                port_mappings: vec![port],
                ..DockerOptions::default()
            }),
            networks,
            ..ContainerInfo::default()
        }
    }

    // Covers 5.5 in part: network/cni.
    #[test]
    fn each_type_has_its_networks() {
        assert_eq!(wanted(None, None), Ok(None));
        let mut container = ContainerInfo::default();
        assert_eq!(wanted(Some(&container), None), Ok(None));
        container.networks = vec![named("b"), named("a")];
        let networks = container.networks.clone();
        assert_eq!(wanted(Some(&container), None), Ok(Some(networks)));
        container.networks.push(named("b"));
        let twice = wanted(Some(&container), None).unwrap_err();
        assert_eq!(twice, "Attempted to join CNI network 'b' multiple times");
        let of = |network, networks| wanted(Some(&docker(network, networks)), Some("bridge"));
        assert_eq!(of(DockerNetwork::Host, Vec::new()), Ok(None));
        assert_eq!(of(DockerNetwork::None, Vec::new()), Ok(Some(Vec::new())));
        let bridge = of(DockerNetwork::Bridge, Vec::new()).unwrap().unwrap();
        assert_eq!(bridge[0].name, "bridge");
        assert_eq!(bridge[0].port_mappings.len(), 1);
        let user = of(DockerNetwork::User, vec![named("u")]).unwrap().unwrap();
        assert_eq!(user[0].name, "u");
        assert_eq!(user[0].port_mappings.len(), 1);
        assert!(of(DockerNetwork::User, Vec::new()).is_err());
        let unset = wanted(Some(&docker(DockerNetwork::Bridge, Vec::new())), None).unwrap_err();
        assert!(unset.contains("--docker_bridge_network"), "{unset}");
    }

    #[test]
    fn mapped_ports_must_be_the_containers() {
        let bridge = wanted(Some(&docker(DockerNetwork::Bridge, Vec::new())), Some("b"));
        let bridge = bridge.unwrap().unwrap();
        let ports = |text: &str| Resources::parse(text).unwrap().ports();
        assert_eq!(check_ports(&bridge, &ports("ports:[31000-31005]")), Ok(()));
        let refused = check_ports(&bridge, &ports("cpus:1")).unwrap_err();
        assert_eq!(refused, "Port [31000] not included in resources");
    }
}
