//! Networks of containers by CNI plugins, on a real agent. Needs root, control groups, iptables and
//! the plugins `bridge` and `portmap`; skipped elsewhere.

use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use protocol::task::check::{CheckKind, CheckTiming, TcpCheck};
use protocol::task::network::{NetworkInfo, PortMapping};
use protocol::task::{ContainerInfo, HealthCheck};
use protocol::{ContainerId, Reason, TaskInfo, TaskState, TaskStatus};
use runtime::Clock;
use serde_json::{Value, json};

use crate::in_time::InTime;
use crate::isolation::{Isolated, LISTEN, container};
use crate::machine::skip;
use crate::scripted_framework::{Callback, task};
use crate::support::{Running, eventually, signal, sleepers, stdout, within};

/// Where Debian has the plugins.
const PLUGINS: &str = "/usr/lib/cni";

/// A bridge network of a test.
pub struct Network {
    /// Its configuration, and the addresses in use.
    directory: tempfile::TempDir,
    bridge: String,
    /// Its name for containers.
    pub name: String,
}

impl Network {
    /// The third byte of the addresses makes it another network than those of other tests.
    pub fn make(third: u8) -> Option<Self> {
        let has_plugins = ["bridge", "portmap", "host-local"]
            .iter()
            .all(|plugin| Path::new(PLUGINS).join(plugin).exists());
        let tables = Command::new("iptables")
            .args(["-t", "nat", "-S"])
            .output_in_time();
        let has_tables = tables.is_ok_and(|output| output.status.success());
        if !has_plugins || !has_tables {
            skip("there are no CNI plugins, or no iptables");
            return None;
        }
        let network = Self {
            directory: tempfile::tempdir().expect("a directory"),
            bridge: format!("meros{third}"),
            name: format!("net{third}"),
        };
        let config = json!({ "cniVersion": "0.4.0", "name": network.name, "plugins": [
            { "type": "bridge", "bridge": network.bridge, "isGateway": true, "ipMasq": true,
              "ipam": { "type": "host-local", "dataDir": network.addresses(),
                "ranges": [[{ "subnet": format!("10.213.{third}.0/24") }]],
                "routes": [{ "dst": "0.0.0.0/0" }] } },
            { "type": "portmap", "capabilities": { "portMappings": true }, "snat": true }] });
        let path = network.config().join("net.conflist");
        std::fs::create_dir(network.config()).expect("a directory");
        std::fs::write(path, config.to_string()).expect("a file");
        Some(network)
    }

    fn config(&self) -> PathBuf {
        self.directory.path().join("config")
    }

    fn addresses(&self) -> PathBuf {
        self.directory.path().join("addresses")
    }

    pub fn flags(&self) -> Vec<String> {
        vec![
            format!("--network_cni_plugins_dir={PLUGINS}"),
            format!("--network_cni_config_dir={}", self.config().display()),
        ]
    }

    /// What is left of containers: interfaces, addresses, rules, mounts and files.
    pub fn left(&self, work_dir: &Path, containers: &[ContainerId]) -> Vec<String> {
        let names = |path: &Path| -> Vec<String> {
            let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
            entries
                .map(|entry| entry.path().display().to_string())
                .collect()
        };
        let mut left = names(&Path::new("/sys/class/net").join(&self.bridge).join("brif"));
        // It also keeps a lock, and the address that was last given.
        let addresses = names(&self.addresses().join(&self.name)).into_iter();
        left.extend(
            addresses.filter(|path| !path.ends_with("lock") && !path.contains("last_reserved")),
        );
        left.extend(names(&work_dir.join("networks")));
        let rules = Command::new("iptables-save").output_in_time();
        let rules = stdout(&rules.expect("it runs"));
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("it is there");
        let is_of = |line: &&str| {
            line.contains(&*work_dir.to_string_lossy())
                || containers.iter().any(|id| line.contains(id.as_str()))
        };
        let lines = rules.lines().chain(mounts.lines());
        left.extend(lines.filter(is_of).map(str::to_owned));
        left
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // Plugins leave the bridge to other containers.
        let _ = Command::new("ip")
            .args(["link", "del", &self.bridge])
            .output_in_time();
    }
}

fn container_in(network: &Network, host_port: Option<u16>) -> ContainerInfo {
    let port = |host_port| PortMapping {
        host_port,
        container_port: 8080,
        protocol: None,
    };
    ContainerInfo {
        networks: vec![NetworkInfo {
            name: network.name.clone(),
            port_mappings: host_port.map(port).into_iter().collect(),
            ..NetworkInfo::default()
        }],
        ..ContainerInfo::default()
    }
}

/// The address in the container status.
fn address(status: &TaskStatus) -> String {
    let reported = status.labels.get("meros.container_status");
    let reported = reported.expect("a network is reported");
    let reported: Value = serde_json::from_str(reported).expect("JSON");
    let address = &reported["network_infos"][0]["ip_addresses"][0]["ip_address"];
    address.as_str().expect("an address").to_owned()
}

fn launch(
    isolated: &mut Isolated,
    name: &str,
    resources: &str,
    container: ContainerInfo,
    line: &str,
) {
    launch_with(isolated, name, resources, line, |info| {
        info.container = Some(Box::new(container));
    });
}

fn launch_with(
    isolated: &mut Isolated,
    name: &str,
    resources: &str,
    line: &str,
    change: impl FnOnce(&mut TaskInfo),
) {
    let offer = isolated.framework.standing_offer();
    let mut info = task(name, &offer, resources, line);
    change(&mut info);
    isolated.framework.launch(&offer, vec![info]);
}

fn wait_until_healthy(isolated: &mut Isolated, name: &str) {
    let is_healthy = |callback: &Callback| match callback {
        Callback::Status(status) => {
            let is_own = status.task_id.as_str() == name;
            (is_own && status.healthy == Some(true)).then_some(())
        }
        _ => None,
    };
    isolated.framework.wait_for("a healthy task", is_healthy);
}

/// The answer of a server of [`LISTEN`] at this port of the host.
fn answer(port: u16) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    Some(text).filter(|text| !text.is_empty())
}

// Covers 5.5 in part: network/cni; 5.12 Isolation.
#[test]
fn tasks_of_a_network_reach_each_other_and_leave_nothing() {
    let Some(network) = Network::make(77) else {
        return;
    };
    let flags = network.flags();
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let Some(mut isolated) = Isolated::begin("networks", "network/cni", &flags) else {
        return;
    };
    let work_dir = isolated.cluster.directory().join("agent");
    let serve = format!("{LISTEN} 8080 & exec sleep 98737");
    let resources = "cpus:0.1;mem:32;ports:[31557-31557]";
    let served = container_in(&network, Some(31557));
    launch_with(&mut isolated, "server", resources, &serve, |info| {
        info.container = Some(Box::new(served));
        info.health_check = Some(Box::new(HealthCheck {
            kind: CheckKind::Tcp(TcpCheck {
                port: 8080,
                ..TcpCheck::default()
            }),
            timing: CheckTiming {
                delay: Duration::ZERO,
                interval: Duration::from_millis(100),
                timeout: Duration::from_secs(10),
            },
            grace_period: Duration::from_secs(600),
            consecutive_failures: 3,
        }));
    });
    let server = isolated.framework.state("server", TaskState::Running);
    let server_address = address(&server);
    assert!(server_address.starts_with("10.213.77."), "{server_address}");
    let reach = |port: u16| eventually("the server to answer", || answer(port));
    assert_eq!(reach(31557), "here\n");
    eventually("its traffic to be measured", || {
        let statistics = isolated.statistics("server")?;
        let of = |name: &str| statistics[name].as_u64();
        (of("net_rx_bytes")? > 0 && of("net_tx_packets")? > 0).then_some(())
    });
    // Port 8080 is only in the container's network.
    wait_until_healthy(&mut isolated, "server");
    let script = format!(
        "perl -MIO::Socket::INET -e 'print IO::Socket::INET->new(\"{server_address}:8080\")->getline';
        cat /proc/sys/kernel/hostname; tail -n 1 /etc/hosts; ls /sys/class/net | grep -c nothing; cat /proc/net/dev | grep -c :"
    );
    let small = "cpus:0.1;mem:32";
    let plain = container_in(&network, None);
    launch(&mut isolated, "client", small, plain.clone(), &script);
    let client = isolated.framework.state("client", TaskState::Finished);
    let id = container(&client);
    let output = isolated.cluster.output(["logs", "client"]);
    let expected = format!("here\n{id}\n{} {id}\n0\n2\n", address(&client));
    assert_eq!(stdout(&output), expected);
    // One ends while no agent is there, the other goes on.
    launch(&mut isolated, "gone", small, plain, "exec sleep 98738");
    let gone = container(&isolated.framework.state("gone", TaskState::Running));
    isolated.agent.signal("KILL");
    isolated.agent.wait();
    for pid in sleepers(98738) {
        signal(pid, "KILL");
    }
    assert_eq!(reach(31557), "here\n");
    isolated.agent = Running::start(&mut isolated.command);
    wait_until_healthy(&mut isolated, "server");
    isolated.framework.state("gone", TaskState::Failed);
    assert_eq!(reach(31557), "here\n");
    isolated.kill("server");
    let killed = isolated.framework.state("server", TaskState::Killed);
    assert_eq!(address(&killed), server_address);
    let containers = [container(&server), id, gone];
    let mut left = Vec::new();
    let gone = within(Duration::from_secs(20), || {
        left = network.left(&work_dir, &containers);
        left.is_empty().then_some(())
    });
    assert!(gone.is_some(), "left: {left:#?}");
    isolated.leaves_nothing();
}

// Covers 5.5 in part: egress bandwidth.
#[test]
fn task_sends_no_faster_than_its_limit() {
    let Some(network) = Network::make(75) else {
        return;
    };
    let mut flags = network.flags();
    flags.push("--egress_rate_limit_per_container=1MB".to_owned());
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let Some(mut isolated) = Isolated::begin("egress", "network/cni", &flags) else {
        return;
    };
    let work_dir = isolated.cluster.directory().join("agent");
    let listener = TcpListener::bind("0.0.0.0:0").expect("a port");
    listener.set_nonblocking(true).expect("it can");
    let port = listener.local_addr().expect("an address").port();
    // It waits for the end of the connection, since what it has not sent goes with its network.
    let script = format!(
        "perl -MIO::Socket::INET -e 'my $s = IO::Socket::INET->new(\"10.213.75.1:{port}\") or die $!;
        print $s \"x\" x 3000000; $s->shutdown(1); <$s>'"
    );
    let plain = container_in(&network, None);
    launch(&mut isolated, "sender", "cpus:0.1;mem:32", plain, &script);
    let (mut stream, _) = eventually("it connects", || listener.accept().ok());
    stream.set_nonblocking(false).expect("it can");
    let patience = Some(Duration::from_secs(60));
    stream.set_read_timeout(patience).expect("a timeout");
    let clock = Clock::real();
    let begin = clock.now();
    let received = std::io::copy(&mut stream, &mut std::io::sink()).expect("it sends");
    let taken = clock.now() - begin;
    drop(stream);
    assert_eq!(received, 3_000_000);
    assert!(taken > Duration::from_secs(2), "{taken:?}");
    let sender = container(&isolated.framework.state("sender", TaskState::Finished));
    eventually("the network to be gone", || {
        let left = network.left(&work_dir, std::slice::from_ref(&sender));
        left.is_empty().then_some(())
    });
    isolated.leaves_nothing();
}

// Covers 5.5 in part: network/cni.
#[test]
fn network_that_cannot_be_made_fails_the_task_in_words() {
    let Some(network) = Network::make(78) else {
        return;
    };
    let flags = network.flags();
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let Some(mut isolated) = Isolated::begin("no-network", "network/cni", &flags) else {
        return;
    };
    let small = "cpus:0.1;mem:32";
    let mut unknown = container_in(&network, None);
    unknown.networks[0].name = "elsewhere".into();
    launch(&mut isolated, "unknown", small, unknown, "true");
    let status = isolated.framework.state("unknown", TaskState::Failed);
    assert_eq!(status.reason, Some(Reason::ContainerLaunchFailed));
    let message = "Unknown CNI network 'elsewhere'";
    assert!(status.message.contains(message), "{}", status.message);
    let taken = container_in(&network, Some(31558));
    launch(&mut isolated, "taken", small, taken, "true");
    let status = isolated.framework.state("taken", TaskState::Failed);
    let message = "Port [31558] not included in resources";
    assert!(status.message.contains(message), "{}", status.message);
    // A plugin that fails after one that has done its part.
    let path = network.config().join("net.conflist");
    let text = std::fs::read_to_string(&path).expect("a file");
    let mut config: Value = serde_json::from_str(&text).expect("JSON");
    config["plugins"][1] = json!({ "type": "tuning", "sysctl": { "no.such.key": "1" } });
    std::fs::write(&path, config.to_string()).expect("a file");
    let broken = container_in(&network, None);
    launch(&mut isolated, "broken", small, broken, "true");
    let status = isolated.framework.state("broken", TaskState::Failed);
    let message = "failed to attach container";
    assert!(status.message.contains(message), "{}", status.message);
    let work_dir = isolated.cluster.directory().join("agent");
    let broken = [container(&status)];
    eventually("all to be gone", || {
        network.left(&work_dir, &broken).is_empty().then_some(())
    });
    isolated.leaves_nothing();
}

#[test]
fn agent_that_leaves_takes_its_networks_with_it() {
    let Some(network) = Network::make(76) else {
        return;
    };
    let flags = network.flags();
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let Some(mut isolated) = Isolated::begin("leaving", "", &flags) else {
        return;
    };
    let inside = container_in(&network, None);
    launch(
        &mut isolated,
        "left",
        "cpus:0.1;mem:32",
        inside,
        "exec sleep 98740",
    );
    let container = container(&isolated.framework.state("left", TaskState::Running));
    let work_dir = isolated.cluster.directory().join("agent");
    let left = |container: &ContainerId| network.left(&work_dir, std::slice::from_ref(container));
    assert!(!left(&container).is_empty());
    isolated.agent.signal("USR1");
    isolated.agent.wait();
    assert_eq!(left(&container), [""; 0]);
    // Its end needs one that runs.
    isolated.agent = Running::start(&mut isolated.command);
}
