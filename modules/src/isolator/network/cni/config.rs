//! Configurations of networks, in the form of the CNI specification.

use std::fs;
use std::path::Path;

use protocol::task::check::IpProtocol;
use protocol::task::network::{NetworkAddress, NetworkInfo, PortMapping};
use serde_json::{Map, Value, json};

/// A JSON object.
pub(super) type Object = Map<String, Value>;

/// The key of `args` with the framework's wishes; reserved, as in Mesos.
const MESOS: &str = "org.apache.mesos";
/// The capability of plugins that map ports.
const PORT_MAPPINGS: &str = "portMappings";
/// A plugin of Mesos that reads port mappings from `args`.
const MESOS_PORT_MAPPER: &str = "mesos-cni-port-mapper";

/// A network.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct NetworkConfig {
    /// Its name.
    pub(super) name: String,
    /// The configurations of its plugins in their order, at least one.
    pub(super) plugins: Vec<Object>,
}

impl NetworkConfig {
    /// Reads the text of a file: of one plugin, or of a list of plugins.
    fn parse(text: &str) -> Result<Self, String> {
        let whole: Object = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let name = whole.get("name").and_then(Value::as_str);
        let name = name.filter(|name| !name.is_empty());
        let name = name.ok_or("`name` is missing: expected the name of the network")?;
        let list = match whole.get("plugins") {
            None => vec![Value::Object(whole.clone())],
            Some(Value::Array(list)) if !list.is_empty() => list.clone(),
            Some(_) => return Err("`plugins` is no list: expected at least one plugin".to_owned()),
        };
        let plugin = |one: Value| {
            let Value::Object(mut plugin) = one else {
                return Err("`plugins` has an entry that is no object".to_owned());
            };
            // A path would lead out of the operator's directories.
            let is_name = |name: &&str| !name.is_empty() && !name.contains('/');
            let program = plugin.get("type").and_then(Value::as_str).filter(is_name);
            program.ok_or("`type` is missing or a path: expected the name of a plugin")?;
            for key in ["name", "cniVersion"] {
                plugin.extend(whole.get(key).map(|value| (key.to_owned(), value.clone())));
            }
            Ok(plugin)
        };
        Ok(Self {
            name: name.to_owned(),
            plugins: list
                .into_iter()
                .map(plugin)
                .collect::<Result<_, String>>()?,
        })
    }

    /// The plugins' configurations for one container.
    pub(super) fn for_container(&self, network: &NetworkInfo) -> Result<Vec<Object>, String> {
        let maps =
            |plugin: &Object| takes_port_mappings(plugin) || program(plugin) == MESOS_PORT_MAPPER;
        if !network.port_mappings.is_empty() && !self.plugins.iter().any(maps) {
            return Err(format!(
                "CNI network '{}' maps no ports: expected a plugin with `capabilities.{PORT_MAPPINGS}`, such as `portmap`",
                self.name
            ));
        }
        let one = |plugin: &Object| {
            let mut plugin = plugin.clone();
            let args = plugin.entry("args").or_insert_with(|| json!({}));
            let args = args.as_object_mut();
            let args = args.ok_or("Invalid 'args' found in CNI network configuration file")?;
            if args.contains_key(MESOS) {
                return Err("'org.apache.mesos' in 'args' should not be set in CNI network configuration file. It is reserved by Mesos".to_owned());
            }
            let wishes = json!({ "network_info": network_json(network) });
            args.insert(MESOS.to_owned(), wishes);
            if takes_port_mappings(&plugin) && !network.port_mappings.is_empty() {
                let ports: Vec<Value> = network.port_mappings.iter().map(runtime_port).collect();
                let config = json!({ PORT_MAPPINGS: ports });
                plugin.insert("runtimeConfig".to_owned(), config);
            }
            Ok(plugin)
        };
        self.plugins.iter().map(one).collect()
    }
}

/// The name of a plugin's program.
pub(super) fn program(plugin: &Object) -> &str {
    let program = plugin.get("type").and_then(Value::as_str);
    program.unwrap_or_default()
}

/// Whether the runtime passes the result of the addition to a deletion, too.
pub(super) fn keeps_result(plugin: &Object) -> bool {
    let version = plugin.get("cniVersion").and_then(Value::as_str);
    let mut parts = version.unwrap_or_default().split('.');
    let mut number = || parts.next().and_then(|part| part.parse::<u32>().ok());
    (number(), number()) >= (Some(0), Some(4))
}

fn takes_port_mappings(plugin: &Object) -> bool {
    let capability = plugin.get("capabilities");
    let capability = capability.and_then(|all| all.get(PORT_MAPPINGS));
    capability.and_then(Value::as_bool) == Some(true)
}

fn protocol_of(port: &PortMapping) -> String {
    let protocol = port.protocol.as_deref().unwrap_or("tcp");
    protocol.to_ascii_lowercase()
}

fn runtime_port(port: &PortMapping) -> Value {
    json!({ "hostPort": port.host_port, "containerPort": port.container_port, "protocol": protocol_of(port) })
}

/// As Mesos writes its `NetworkInfo`.
fn network_json(network: &NetworkInfo) -> Value {
    let mut object = json!({ "name": network.name });
    let mut set = |key: &str, values: Vec<Value>| {
        if !values.is_empty() {
            object[key] = Value::Array(values);
        }
    };
    let address = |one: &NetworkAddress| {
        let protocol = match one.protocol {
            IpProtocol::V4 => "IPv4",
            IpProtocol::V6 => "IPv6",
        };
        let mut address = json!({ "protocol": protocol });
        if let Some(ip) = &one.address {
            address["ip_address"] = json!(ip);
        }
        address
    };
    let port = |one: &PortMapping| json!({ "host_port": one.host_port, "container_port": one.container_port, "protocol": protocol_of(one) });
    set(
        "ip_addresses",
        network.addresses.iter().map(address).collect(),
    );
    set(
        "groups",
        network.groups.iter().map(|group| json!(group)).collect(),
    );
    set(
        "port_mappings",
        network.port_mappings.iter().map(port).collect(),
    );
    if !network.labels.is_empty() {
        let labels = network.labels.iter();
        let labels: Vec<Value> = labels
            .map(|(key, value)| json!({ "key": key, "value": value }))
            .collect();
        object["labels"] = json!({ "labels": labels });
    }
    object
}

/// Blocking. The configuration of a network, read anew from the operator's directory. Of two with
/// one name the first counts, in the order of the files' names.
pub(super) fn find(directory: Option<&Path>, name: &str) -> Result<NetworkConfig, String> {
    let found = match directory {
        Some(directory) => all(directory)?,
        None => Vec::new(),
    };
    let found = found.into_iter().find(|config| config.name == name);
    found.ok_or_else(|| format!("Unknown CNI network '{name}'"))
}

/// Blocking. All configurations, read anew from the operator's directory.
pub(super) fn all(directory: &Path) -> Result<Vec<NetworkConfig>, String> {
    let listed = fs::read_dir(directory).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let listed = listed.map_err(|error| {
        let directory = directory.display();
        format!("Unable to list the CNI network configuration directory '{directory}': {error}")
    })?;
    let mut paths: Vec<_> = listed.iter().map(fs::DirEntry::path).collect();
    paths.sort();
    let mut found = Vec::new();
    for path in paths.iter().filter(|path| path.is_file()) {
        let read = fs::read_to_string(path).map_err(|error| error.to_string());
        match read.and_then(|text| NetworkConfig::parse(&text)) {
            Ok(config) => found.push(config),
            Err(problem) => {
                let path = path.display();
                tracing::warn!(%path, problem, "skipping a network configuration");
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = r#"{"cniVersion": "0.4.0", "name": "web", "plugins": [
        {"type": "bridge", "args": {"a": 1}},
        {"type": "portmap", "capabilities": {"portMappings": true}}]}"#;

    fn web(port_mappings: Vec<PortMapping>) -> NetworkInfo {
        NetworkInfo {
            name: "web".into(),
            groups: vec!["g".into()],
            port_mappings,
            ..NetworkInfo::default()
        }
    }

    fn port() -> PortMapping {
        PortMapping {
            host_port: 31000,
            container_port: 80,
            protocol: Some("TCP".into()),
        }
    }

    #[test]
    fn plugins_get_the_network_and_its_ports() {
        let config = NetworkConfig::parse(LIST).unwrap();
        let plugins = config.for_container(&web(vec![port()])).unwrap();
        let wishes = json!({ "network_info": { "name": "web", "groups": ["g"], "port_mappings":
            [{ "host_port": 31000, "container_port": 80, "protocol": "tcp" }] } });
        assert_eq!(
            Value::Object(plugins[0].clone()),
            json!({ "cniVersion": "0.4.0", "name": "web", "type": "bridge",
                "args": { "a": 1, "org.apache.mesos": wishes } })
        );
        assert_eq!(
            plugins[1]["runtimeConfig"],
            json!({ "portMappings": [{ "hostPort": 31000, "containerPort": 80, "protocol": "tcp" }] })
        );
        assert!(keeps_result(&plugins[0]));
        let plain = config.for_container(&web(Vec::new())).unwrap();
        assert!(!plain[1].contains_key("runtimeConfig"));
    }

    #[test]
    fn one_plugin_is_a_network_and_maps_no_ports() {
        let text = r#"{"cniVersion": "0.3.1", "name": "web", "type": "bridge"}"#;
        let config = NetworkConfig::parse(text).unwrap();
        assert_eq!(config.plugins.len(), 1);
        assert!(!keeps_result(&config.plugins[0]));
        let refused = config.for_container(&web(vec![port()])).unwrap_err();
        assert!(refused.contains("maps no ports"), "{refused}");
        for (text, problem) in [
            (r#"{"type": "bridge"}"#, "`name` is missing"),
            (r#"{"name": "n", "plugins": []}"#, "`plugins` is no list"),
            (r#"{"name": "n", "type": "../bridge"}"#, "or a path"),
        ] {
            let refused = NetworkConfig::parse(text).unwrap_err();
            assert!(refused.contains(problem), "{refused}");
        }
    }

    #[test]
    fn first_configuration_of_a_name_counts() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
        write("1-broken.conf", "{");
        write("2.conf", r#"{"name": "web", "type": "first"}"#);
        write("3.conf", r#"{"name": "web", "type": "second"}"#);
        let found = find(Some(directory.path()), "web").unwrap();
        assert_eq!(program(&found.plugins[0]), "first");
        let unknown = Err("Unknown CNI network 'lan'".to_owned());
        assert_eq!(find(Some(directory.path()), "lan"), unknown);
        assert_eq!(find(None, "lan"), unknown);
    }
}
