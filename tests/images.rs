//! Containers with images, on a real agent with a local registry. Needs root; skipped elsewhere.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use protocol::task::ContainerInfo;
use protocol::task::container::{DockerNetwork, DockerOptions, Image};
use protocol::task::network::PortMapping;
use protocol::{CommandInfo, Reason, TaskId, TaskInfo, TaskState};
use resources::Resources;
use serde_json::{Value, json};
use testkit::http::Endpoint;

use crate::in_time::InTime;
use crate::machine::skip;
use crate::networks::Network;
use crate::scripted_framework::{ScriptedFramework, framework, task};
use crate::support::{Cluster, Running, eventually, meros};

const ISOLATORS: &str = "filesystem/linux,namespaces/pid";

/// Runs a program of the host and returns its output.
pub fn host(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output_in_time();
    let output = output.expect("it runs");
    assert!(output.status.success(), "{program}: {output:?}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// Makes an image of a shell and a few programs of the host, as `docker save` would: `NAME.tar`.
pub fn save_image(registry: &Path, name: &str) {
    let work = tempfile::tempdir().expect("a directory");
    let root = work.path().join("root");
    for folder in ["bin", "etc"] {
        std::fs::create_dir_all(root.join(folder)).expect("a folder");
    }
    std::fs::write(
        root.join("etc/passwd"),
        "app:x:1234:1234::/home/app:/bin/sh\n",
    )
    .expect("a file");
    std::fs::write(root.join("marker"), "image\n").expect("a file");
    for program in ["sh", "cat", "id", "echo", "ls", "sleep"] {
        let found = Path::new("/bin")
            .join(program)
            .canonicalize()
            .expect("it is there");
        std::fs::copy(&found, root.join("bin").join(program)).expect("a copy");
        let libraries = host("ldd", &[found.to_str().expect("UTF-8")]);
        for library in libraries
            .split_whitespace()
            .filter(|word| word.starts_with('/'))
        {
            let copy = root.join(library.trim_start_matches('/'));
            std::fs::create_dir_all(copy.parent().expect("a folder")).expect("a folder");
            std::fs::copy(library, copy).expect("a copy");
        }
    }
    let path = |name: &str| work.path().join(name).display().to_string();
    host(
        "tar",
        &["-C", &path("root"), "-cf", &path("layer.tar"), "."],
    );
    let sum = host("sha256sum", &[&path("layer.tar")]);
    let digest = sum.split(' ').next().expect("a digest");
    let config = format!(
        r#"{{"architecture": "any", "os": "linux", "config": {{"Entrypoint": ["/bin/echo", "entry"], "Cmd": ["default"],
            "Env": ["FROM=image"], "User": "app", "WorkingDir": "/work"}},
            "rootfs": {{"type": "layers", "diff_ids": ["sha256:{digest}"]}}}}"#
    );
    std::fs::write(path("config.json"), config).expect("a file");
    let manifest = format!(
        r#"[{{"Config": "config.json", "RepoTags": ["{name}:latest"], "Layers": ["layer.tar"]}}]"#
    );
    std::fs::write(path("manifest.json"), manifest).expect("a file");
    let archive = registry.join(format!("{name}.tar")).display().to_string();
    let parts = ["manifest.json", "config.json", "layer.tar"];
    host(
        "tar",
        &[&["-C", &path(""), "-cf", &archive][..], &parts].concat(),
    );
}

struct Images {
    cluster: Cluster,
    command: Command,
    agent: Running,
    framework: ScriptedFramework,
    _registry: tempfile::TempDir,
}

impl Images {
    /// With a local registry, which has the image `own`.
    fn begin() -> Option<Self> {
        Self::with(None, &[])
    }

    fn with(url: Option<&str>, flags: &[String]) -> Option<Self> {
        let report = meros(["agent", "--check"])
            .output_in_time()
            .expect("meros runs");
        let report = String::from_utf8(report.stdout).expect("UTF-8");
        let mut lines = report.lines();
        let line = lines.find_map(|line| line.strip_prefix("filesystem/linux"));
        if line.is_none_or(|line| line.trim() != "yes") {
            skip(&format!("this host has no mounts for containers: {report}"));
            return None;
        }
        let registry = tempfile::tempdir().expect("a directory");
        // The puller is another user.
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(registry.path(), open).expect("a mode");
        save_image(registry.path(), "own");
        let cluster = Cluster::master_alone(|_, _| ());
        let mut command = cluster.agent_command("agent", "cpus:4;mem:1024;disk:1024");
        command.args(["--isolation", ISOLATORS, "--image_providers", "DOCKER"]);
        let source = url.map_or_else(|| registry.path().into(), PathBuf::from);
        command.arg("--docker_registry").arg(source).args(flags);
        let agent = cluster.agent_of(&mut command);
        let mut info = framework("images", "ads");
        info.checkpoint = true;
        let framework = ScriptedFramework::subscribe(&cluster, info);
        Some(Self {
            cluster,
            command,
            agent,
            framework,
            _registry: registry,
        })
    }

    fn run(&mut self, name: &str, change: impl FnOnce(&mut TaskInfo)) {
        let offer = self.framework.standing_offer();
        let mut info = task(name, &offer, "cpus:0.1;mem:32", "true");
        change(&mut info);
        self.framework.launch(&offer, vec![info]);
    }

    fn output(&self, task: &str) -> String {
        let output = self.cluster.output(["logs", task]);
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn port(&self) -> u16 {
        let port = self.value_of("--port").to_str();
        port.and_then(|port| port.parse().ok()).expect("a port")
    }

    fn work_dir(&self) -> PathBuf {
        PathBuf::from(self.value_of("--work_dir"))
    }

    /// The value of a flag of the agent.
    fn value_of(&self, flag: &str) -> &OsStr {
        let mut arguments = self.command.get_args();
        let named = arguments.find(|argument| *argument == flag);
        named.and(arguments.next()).expect("a value")
    }
}

fn container(docker: Option<DockerOptions>, image: &str) -> Option<Box<ContainerInfo>> {
    Some(Box::new(ContainerInfo {
        docker,
        image: Some(Image {
            name: image.into(),
            is_cached: true,
        }),
        ..ContainerInfo::default()
    }))
}

// Covers 5.5 in part: filesystem/linux; 5.6 in part: images; 5.12 Images.
#[test]
fn tasks_run_in_images_of_both_types_and_leave_nothing() {
    let Some(mut images) = Images::begin() else {
        return;
    };
    let show = "cat /marker && pwd && echo $FROM $MESOS_SANDBOX && id -u && ls $MESOS_SANDBOX";
    images.run("shell", |info| {
        info.command = Some(CommandInfo::shell(show));
        info.container = container(None, "own");
    });
    images.framework.state("shell", TaskState::Finished);
    let expected = "image\n/work\nimage /mnt/mesos/sandbox\n0\nstderr\nstdout\n";
    assert_eq!(images.output("shell"), expected);

    images.run("docker", |info| {
        info.command = Some(CommandInfo {
            value: "value".into(),
            shell: false,
            arguments: vec!["more".into()],
            ..CommandInfo::shell("")
        });
        info.container = container(Some(DockerOptions::default()), "own");
    });
    images.framework.state("docker", TaskState::Finished);
    assert_eq!(images.output("docker"), "entry value more\n");

    images.run("user", |info| {
        info.command = Some(CommandInfo::shell("id -u; echo $HOME"));
        info.container = container(Some(DockerOptions::default()), "own");
    });
    images.framework.state("user", TaskState::Finished);
    assert_eq!(images.output("user"), "1234\n/home/app\n");

    images.run("missing", |info| info.container = container(None, "none"));
    let status = images.framework.state("missing", TaskState::Failed);
    assert_eq!(status.reason, Some(Reason::ContainerLaunchFailed));
    let expected = "Failed to launch container: Failed to pull image 'none'";
    assert!(status.message.starts_with(expected), "{}", status.message);

    let work_dir = images.work_dir();
    let count = |directory: &str| {
        let entries = std::fs::read_dir(work_dir.join(directory));
        entries.expect("a directory").count()
    };
    eventually("the root file systems to be gone", || {
        (count("provisioner") == 0).then_some(())
    });
    assert_eq!(count("images/images"), 1);
    let agent = Endpoint::new(images.port(), "/api/v1");
    let excluded = json!([{"type": "DOCKER", "docker": {"name": "own"}}]);
    for (excluded, left) in [(excluded, 1), (json!([]), 0)] {
        let call = json!({"type": "PRUNE_IMAGES", "prune_images": {"excluded_images": excluded}});
        let answer = agent.post("application/json", call.to_string().as_bytes());
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(count("images/images"), left);
    }
}

// Covers 5.5 in part: network/cni; 5.12 Images.
#[test]
fn docker_containers_have_their_networks() {
    let Some(network) = Network::make(79) else {
        return;
    };
    let mut flags = network.flags();
    flags.push(format!("--docker_bridge_network={}", network.name));
    let Some(mut images) = Images::with(None, &flags) else {
        return;
    };
    let show = "cat /etc/hosts && cat /proc/net/dev";
    let docker = |network, ports| DockerOptions {
        network,
        port_mappings: ports,
        ..DockerOptions::default()
    };
    images.run("none", |info| {
        info.command = Some(CommandInfo::shell(show));
        info.container = container(Some(docker(DockerNetwork::None, Vec::new())), "own");
    });
    images.framework.state("none", TaskState::Finished);
    let output = images.output("none");
    let is_interface = |line: &&str| line.contains(':');
    let interfaces: Vec<&str> = output.lines().filter(is_interface).collect();
    assert!(output.starts_with("127.0.0.1 localhost\n"), "{output}");
    assert!(
        interfaces.len() == 1 && interfaces[0].contains("lo:"),
        "{output}"
    );

    let port = PortMapping {
        host_port: 31559,
        container_port: 80,
        protocol: None,
    };
    let bridged = |ports| container(Some(docker(DockerNetwork::Bridge, ports)), "own");
    images.run("bridge", |info| {
        let more = "cpus:0.1;mem:32;ports:[31559-31559]";
        let role = info
            .resources
            .iter()
            .find_map(|one| one.allocation_role().cloned());
        let more: Resources = more.parse().expect("resources");
        info.resources = more.allocate(&role.expect("a role"));
        info.command = Some(CommandInfo::shell("cat /etc/hosts && exec sleep 98739"));
        info.container = bridged(vec![port.clone()]);
    });
    let status = images.framework.state("bridge", TaskState::Running);
    let id = status.container_id.expect("it runs in one");
    let rules = host("iptables-save", &["-t", "nat"]);
    let mut mapped = rules.lines().filter(|line| line.contains("--dport 31559"));
    let mapped = mapped.find(|line| line.contains("-j DNAT"));
    let mapped = mapped.unwrap_or_else(|| panic!("{rules}"));
    assert!(mapped.contains("--to-destination 10.213.79."), "{mapped}");
    images.framework.kill(TaskId::new("bridge").expect("an id"));
    images.framework.state("bridge", TaskState::Killed);
    let output = images.output("bridge");
    assert!(output.contains(&format!(" {id}\n")), "{output}");

    images.run("other", |info| info.container = bridged(vec![port.clone()]));
    let status = images.framework.state("other", TaskState::Failed);
    let message = "Port [31559] not included in resources";
    assert!(status.message.contains(message), "{}", status.message);
    let host = container(Some(docker(DockerNetwork::Host, vec![port])), "own");
    images.run("host", |info| info.container = host);
    let status = images.framework.state("host", TaskState::Failed);
    let message = "Port mappings are only supported for bridge and user-defined networks";
    assert!(status.message.contains(message), "{}", status.message);
    let work_dir = images.work_dir();
    eventually("the networks to be gone", || {
        network
            .left(&work_dir, std::slice::from_ref(&id))
            .is_empty()
            .then_some(())
    });
}

#[test]
fn privileged_container_needs_the_operators_consent() {
    let docker = || DockerOptions {
        is_privileged: true,
        ..DockerOptions::default()
    };
    let status = std::fs::read_to_string("/proc/self/status").expect("it is there");
    let mut lines = status.lines();
    let all = lines.find(|line| line.starts_with("CapBnd:"));
    let all = all.expect("Linux has it");
    for consent in [false, true] {
        let flag = format!("--allow_privileged={consent}");
        let Some(mut images) = Images::with(None, &[flag]) else {
            return;
        };
        images.run("all", |info| {
            let script = "cat /proc/self/status";
            info.command = Some(CommandInfo {
                user: Some("root".into()),
                ..CommandInfo::shell(script)
            });
            info.container = container(Some(docker()), "own");
        });
        if consent {
            images.framework.state("all", TaskState::Finished);
            let output = images.output("all");
            assert!(output.lines().any(|line| line == all), "{output}");
        } else {
            let status = images.framework.state("all", TaskState::Failed);
            let expected = "container.docker.privileged is set: expected false, or an agent with";
            assert!(status.message.contains(expected), "{}", status.message);
        }
    }
}

// Found by a reviewer: the container waited for ever.
#[test]
fn task_that_is_killed_during_the_pull_is_over() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", silent.local_addr().expect("an address"));
    let Some(mut images) = Images::with(Some(&url), &[]) else {
        return;
    };
    images.run("waits", |info| info.container = container(None, "own"));
    let asked = silent.accept().expect("the puller asks");
    let id = TaskId::new("waits").expect("an id");
    images.framework.kill(id);
    images.framework.state("waits", TaskState::Killed);
    let agent = Endpoint::new(images.port(), "/state");
    eventually("its executor to be gone", || {
        let state: Value = serde_json::from_str(&agent.get().text()).ok()?;
        let frameworks = state["frameworks"].as_array()?;
        let executors = frameworks.iter().map(|one| &one["executors"]);
        let is_none = |executors: &Value| executors.as_array().is_none_or(Vec::is_empty);
        executors.into_iter().all(is_none).then_some(())
    });
    drop(asked);
}

// Covers 5.3; 5.6 in part: images.
#[test]
fn task_in_an_image_outlives_its_agent() {
    let Some(mut images) = Images::begin() else {
        return;
    };
    images.run("long", |info| {
        let script = "cat /marker; while [ ! -e go ]; do sleep 0.05; done; cat /marker";
        info.command = Some(CommandInfo::shell(format!("cd $MESOS_SANDBOX; {script}")));
        info.container = container(None, "own");
    });
    let running = images.framework.state("long", TaskState::Running);
    images.agent.signal("KILL");
    images.agent.wait();
    let provisioner = images.work_dir().join("provisioner");
    let unknown = provisioner.join("00000000-0000-4000-8000-000000000001");
    std::fs::create_dir(&unknown).expect("a directory");
    images.agent = Running::start(&mut images.command);
    eventually("what nobody uses to be gone", || {
        (!unknown.exists()).then_some(())
    });
    let container = running.container_id.expect("a container");
    let root = provisioner.join(container.as_str());
    assert!(root.join("upper").is_dir());
    let sandbox = host(
        "find",
        &[
            images.work_dir().to_str().expect("UTF-8"),
            "-name",
            "stdout",
        ],
    );
    let sandbox = Path::new(sandbox.trim()).parent().expect("a sandbox");
    std::fs::write(sandbox.join("go"), "").expect("a file");
    images.framework.state("long", TaskState::Finished);
    assert_eq!(images.output("long"), "image\nimage\n");
    eventually("its root file system to be gone", || {
        (!root.exists()).then_some(())
    });
}
