//! Networks of containers with plugins of these tests and real namespaces. Need root; skipped
//! elsewhere.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::sync::Arc;

use module_api::isolator::ContainerResources;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use protocol::task::container::{ContainerInfo, DockerNetwork, DockerOptions};
use protocol::task::network::NetworkInfo;
use protocol::usage::NetworkStatistics;
use runtime::Timestamp;
use serde_json::Value;

use super::attachments::Networks;
use super::*;

/// A directory with plugins, the configuration of the network `web`, and networks of containers.
struct Fixture {
    directory: tempfile::TempDir,
    networks: Arc<Networks>,
}

impl Fixture {
    /// With these scripts as plugins, called in turn. Each call is noted before.
    fn make(plugins: &[(&str, &str)]) -> Option<Self> {
        Self::with_egress(plugins, None)
    }

    /// Likewise, with this `--egress_rate_limit_per_container`.
    fn with_egress(plugins: &[(&str, &str)], egress_rate: Option<u64>) -> Option<Self> {
        if !nix::unistd::geteuid().is_root() {
            _ = writeln!(std::io::stderr(), "skipped: namespaces need root");
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().to_owned();
        let config = path.join("config");
        fs::create_dir(&config).unwrap();
        for (name, script) in plugins {
            let (own, calls) = (path.join(name), path.join("calls"));
            let (calls, here) = (calls.display(), path.display());
            let note = format!("echo \"$CNI_COMMAND {name} $CNI_IFNAME $(cat)\" >> {calls}");
            fs::write(&own, format!("#!/bin/sh\ncd {here}\n{note}\n{script}\n")).unwrap();
            fs::set_permissions(own, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let list = plugins
            .iter()
            .map(|(name, _)| serde_json::json!({ "type": name }));
        let list: Vec<Value> = list.collect();
        let web = serde_json::json!({ "cniVersion": "0.4.0", "name": "web", "plugins": list });
        fs::write(config.join("web.conflist"), web.to_string()).unwrap();
        let networks = Networks::new(Options {
            root: path.join("networks"),
            plugins_dir: path.display().to_string(),
            config_dir: Some(config),
            bridge: Some("web".into()),
            egress_rate,
        });
        Some(Self {
            directory,
            networks: Arc::new(networks),
        })
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The calls of plugins, without their configurations.
    fn calls(&self) -> Vec<String> {
        let calls = fs::read_to_string(self.file("calls")).unwrap_or_default();
        let calls = calls
            .lines()
            .map(|line| line.split(" {").next().unwrap().to_owned());
        calls.collect()
    }

    fn is_empty(&self) -> bool {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        !self.file("networks").exists() && !mounts.contains(&*self.file("").to_string_lossy())
    }
}

fn id() -> ContainerId {
    ContainerId::new("00000000-0000-4000-8000-000000000001").unwrap()
}

fn config(container: ContainerInfo) -> ContainerConfig {
    ContainerConfig {
        container_id: id(),
        sandbox: "/s".into(),
        user: None,
        shares_limits: false,
        is_command: true,
        resources: ContainerResources::default(),
        container: Some(Box::new(container)),
        root: None,
    }
}

fn in_web() -> ContainerConfig {
    let web = NetworkInfo {
        name: "web".into(),
        ..NetworkInfo::default()
    };
    config(ContainerInfo {
        networks: vec![web],
        hostname: Some("box".into()),
        ..ContainerInfo::default()
    })
}

const FIRST: &str = r#"echo '{"ips": [{"address": "10.1.0.2/24"}]}'"#;
const SECOND: &str =
    r#"echo '{"ips": [{"address": "10.1.0.2/24"}], "dns": {"nameservers": ["10.1.0.1"]}}'"#;

// Covers 5.5 in part: network/cni.
#[test]
fn plugins_add_in_their_order_and_delete_in_the_opposite() {
    let Some(fixture) = Fixture::make(&[("first", FIRST), ("second", SECOND)]) else {
        return;
    };
    let network = fixture
        .networks
        .attach(&in_web(), || true)
        .unwrap()
        .unwrap();
    assert!(namespace::is_mounted(&network.namespace));
    let address = network.joined[0].addresses[0].address.as_deref();
    assert_eq!(
        (&*network.joined[0].name, address),
        ("web", Some("10.1.0.2"))
    );
    let files = network
        .files
        .iter()
        .map(|path| fs::read_to_string(path).unwrap());
    let expected = [
        "127.0.0.1 localhost\n10.1.0.2 box\n",
        "box",
        "nameserver 10.1.0.1\n",
    ];
    assert_eq!(files.collect::<Vec<_>>(), expected);
    assert_eq!(fixture.networks.list(), [(id(), Some(network))]);
    fixture.networks.detach(&id()).unwrap();
    let calls = [
        "ADD first eth0",
        "ADD second eth0",
        "DEL second eth0",
        "DEL first eth0",
    ];
    assert_eq!(fixture.calls(), calls);
    let lines = fs::read_to_string(fixture.file("calls")).unwrap();
    let results: Vec<bool> = lines
        .lines()
        .map(|line| line.contains("prevResult"))
        .collect();
    assert_eq!(results, [false, true, true, true]);
    assert!(fixture.is_empty());
    assert_eq!(fixture.networks.detach(&id()), Ok(()), "once more");
}

// Covers 5.5 in part: egress bandwidth.
#[test]
fn what_an_interface_sends_is_limited() {
    let has = |program: &str| Command::new(program).arg("-V").output().is_ok();
    if !["ip", "tc", "nsenter"].into_iter().all(has) {
        _ = writeln!(
            std::io::stderr(),
            "skipped: iproute2 and util-linux are missing"
        );
        return;
    }
    let mut trial = Command::new("unshare");
    let made = trial
        .args(["--net", "ip", "link", "add", "eth0", "type", "veth"])
        .output();
    if !made.is_ok_and(|made| made.status.success()) {
        _ = writeln!(std::io::stderr(), "skipped: this kernel has no veth");
        return;
    }
    let plugin = format!(
        "[ $CNI_COMMAND = DEL ] || nsenter --net=$CNI_NETNS ip link add eth0 type veth peer name out || exit 1; {FIRST}"
    );
    for (rate, expected) in [
        (1_000_000, "rate 8Mbit burst 64Kb"),
        (8 << 30, "rate 68719Mbit"),
    ] {
        let fixture = Fixture::with_egress(&[("first", &plugin)], Some(rate));
        let Some(fixture) = fixture else { return };
        let network = fixture.networks.attach(&in_web(), || true);
        let network = network.unwrap().unwrap();
        let mut show = Command::new("nsenter");
        show.arg(format!("--net={}", network.namespace.display()));
        let shown = show.args(["tc", "qdisc", "show", "dev", "eth0"]).output();
        let shown = String::from_utf8(shown.unwrap().stdout).unwrap();
        assert!(shown.starts_with("qdisc tbf"), "{shown}");
        assert!(shown.contains(expected), "{shown}");
        fixture.networks.detach(&id()).unwrap();
        assert!(fixture.is_empty());
    }
}

#[test]
fn failed_addition_leaves_nothing() {
    let second = r#"[ $CNI_COMMAND = DEL ] || { echo '{"code": 7, "msg": "full"}'; exit 1; }"#;
    let Some(fixture) = Fixture::make(&[("first", FIRST), ("second", second)]) else {
        return;
    };
    let problem = fixture.networks.attach(&in_web(), || true).unwrap_err();
    assert!(problem.contains(r#""msg": "full""#), "{problem}");
    let calls = [
        "ADD first eth0",
        "ADD second eth0",
        "DEL second eth0",
        "DEL first eth0",
    ];
    assert_eq!(fixture.calls(), calls);
    assert!(fixture.is_empty());
    let late = fixture.networks.attach(&in_web(), || false);
    assert_eq!(late, Err("the container has ended".to_owned()));
    assert!(fixture.is_empty());
}

#[test]
fn failed_deletion_is_tried_again() {
    let plugin = format!("[ $CNI_COMMAND = ADD ] || [ -e free ] || exit 1; {FIRST}");
    let Some(fixture) = Fixture::make(&[("first", &plugin)]) else {
        return;
    };
    fixture.networks.attach(&in_web(), || true).unwrap();
    let problem = fixture.networks.detach(&id()).unwrap_err();
    assert!(problem.contains("failed to detach container"), "{problem}");
    assert_eq!(fixture.networks.list().len(), 1);
    fs::write(fixture.file("free"), "").unwrap();
    // As after a reboot: no namespace is mounted.
    namespace::unmount(&fixture.file("networks").join(id().as_str()).join("ns")).unwrap();
    fixture.networks.detach(&id()).unwrap();
    assert!(fixture.is_empty());
}

/// At each place of the record: changed bytes, and an end.
#[test]
fn damaged_record_leaves_nothing() {
    let plugin = format!("[ $CNI_COMMAND = ADD ] || exit $(cat status); {FIRST}");
    let Some(fixture) = Fixture::make(&[("first", &plugin)]) else {
        return;
    };
    fs::write(fixture.file("status"), "0").unwrap();
    let path = fixture
        .file("networks")
        .join(id().as_str())
        .join("networks.json");
    let length = {
        fixture.networks.attach(&in_web(), || true).unwrap();
        let length = fs::read(&path).unwrap().len();
        fixture.networks.detach(&id()).unwrap();
        length
    };
    for at in (0..length).step_by(5) {
        for is_cut in [true, false] {
            fixture.networks.attach(&in_web(), || true).unwrap();
            let mut record = fs::read(&path).unwrap();
            match is_cut {
                true => record.truncate(at),
                false => record[at] ^= 1,
            }
            fs::write(&path, record).unwrap();
            // A plugin may not know the container, and fail.
            fs::write(fixture.file("status"), if is_cut { "1" } else { "0" }).unwrap();
            fs::remove_file(fixture.file("calls")).unwrap();
            assert_eq!(fixture.networks.list(), [(id(), None)], "byte {at}");
            assert_eq!(fixture.networks.detach(&id()), Ok(()), "byte {at}");
            assert_eq!(fixture.calls(), ["DEL first eth0"], "byte {at}");
            assert!(fixture.is_empty());
        }
    }
}

#[test]
fn docker_without_a_network_has_its_loopback() {
    let Some(fixture) = Fixture::make(&[]) else {
        return;
    };
    let none = config(ContainerInfo {
        docker: Some(DockerOptions {
            network: DockerNetwork::None,
            ..DockerOptions::default()
        }),
        ..ContainerInfo::default()
    });
    let network = fixture.networks.attach(&none, || true).unwrap().unwrap();
    let plan = plan(&none, network.clone());
    assert!(plan.namespaces.mount && plan.namespaces.uts);
    assert_eq!(plan.hostname.as_deref(), Some(id().as_str()));
    let mut counters = Counters::default();
    let own = vec![(id(), &network.namespace)];
    let measured = counters.measure(own, Timestamp::default());
    let none = NetworkStatistics::default();
    assert_eq!(measured[&id()].net, Some(none), "not the host's");
    let inside = std::thread::spawn(move || {
        let namespace = fs::File::open(network.namespace).unwrap();
        nix::sched::setns(namespace, nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
        let interfaces = fs::read_to_string("/proc/thread-self/net/dev").unwrap();
        // Fails if it is down.
        let reached = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let own = reached.local_addr().unwrap();
        reached.send_to(b"x", own).unwrap();
        interfaces.lines().filter(|line| line.contains(':')).count()
    });
    assert_eq!(inside.join().unwrap(), 1);
    fixture.networks.detach(&id()).unwrap();
    assert!(fixture.is_empty());
}

#[test]
fn deletion_waits_for_an_addition() {
    let plugin = format!("[ $CNI_COMMAND = DEL ] || {{ echo > started; read go < go; }}; {FIRST}");
    let Some(fixture) = Fixture::make(&[("first", &plugin)]) else {
        return;
    };
    for fifo in ["started", "go"] {
        mkfifo(&fixture.file(fifo), Mode::S_IRWXU).unwrap();
    }
    // The plugin has the lock, too: it may go on after the end of its agent.
    let adding = fixture.networks.clone();
    let adding = std::thread::spawn(move || adding.attach(&in_web(), || true).is_ok());
    let mut started = fs::File::open(fixture.file("started")).unwrap();
    started.read_to_end(&mut Vec::new()).unwrap();
    let deleting = fixture.networks.clone();
    let deleting = std::thread::spawn(move || deleting.detach(&id()));
    fs::write(fixture.file("go"), "\n").unwrap();
    assert!(adding.join().unwrap());
    assert_eq!(deleting.join().unwrap(), Ok(()));
    assert_eq!(fixture.calls(), ["ADD first eth0", "DEL first eth0"]);
    assert!(fixture.is_empty());
}

#[test]
fn flags_that_miss_their_other_are_refused() {
    let given = Parameters::none("isolation").with("work_dir", "/w");
    let options = Options::from_parameters(&given).unwrap();
    assert_eq!(options.root, PathBuf::from("/w/networks"));
    let one = given.with("network_cni_plugins_dir", "/p");
    let refused = Options::from_parameters(&one).unwrap_err();
    assert_eq!(refused, "Missing required '--network_cni_config_dir' flag");
    let both = one.with("network_cni_config_dir", "/nowhere");
    let refused = Options::from_parameters(&both).unwrap_err();
    assert!(refused.ends_with("'/nowhere' does not exist"), "{refused}");
}
