//! Killed processes, full disks and invalid input: each ends in a clear state and message, the
//! cluster stays usable, and no process is left.

use std::io::Write;
use std::net::{TcpStream, UdpSocket};
use std::process::Stdio;

use protocol::{
    AgentId, Capability, CommandInfo, Filters, OfferId, Operation, Reason, TaskInfo, TaskState,
};
use testkit::assert_contains;

use crate::in_time::InTime;
use crate::machine::{SmallDisk, skip};
use crate::scripted_framework::{Callback, ScriptedFramework, framework, task};
use crate::support::{Cluster, Running, eventually, get, meros, signal, sleepers, stderr};

#[test]
fn killing_an_executor_fails_its_task_and_leaves_no_process() {
    let cluster = Cluster::start(1, "cpus:2;mem:256");
    let mut run = Running::start(&mut cluster.verb([
        "run",
        "--",
        "sh",
        "-c",
        "setsid sleep 98711 & sleep 98711",
    ]));
    let task = eventually("the task to run", || sleepers(98711).first().copied());
    signal(executor_of(task), "KILL");
    assert!(!run.wait().success());
    eventually("its processes to be gone", || {
        sleepers(98711).is_empty().then_some(())
    });
    assert!(
        cluster.output(["run", "--", "true"]).status.success(),
        "the cluster stays usable"
    );
}

/// The session of a task's process is its executor's; a process that left it is looked up through
/// its parents.
fn executor_of(pid: u32) -> u32 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("the process is there");
    let after_name = stat
        .rsplit_once(')')
        .map(|(_, rest)| rest)
        .expect("a stat line");
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    let (parent, session): (u32, u32) = (
        fields[1].parse().expect("a pid"),
        fields[3].parse().expect("a session"),
    );
    if session == pid {
        executor_of(parent)
    } else {
        session
    }
}

#[test]
fn killing_an_agent_leaves_no_task_process() {
    let (mut cluster, agent) = separate_agent("cpus:2;mem:256");
    let mut run = Running::start(&mut cluster.verb([
        "run",
        "--",
        "sh",
        "-c",
        "setsid sleep 98712 & sleep 98712",
    ]));
    eventually("the task to run", || {
        (sleepers(98712).len() >= 2).then_some(())
    });
    agent.signal("KILL");
    eventually("the task's processes to be gone", || {
        sleepers(98712).is_empty().then_some(())
    });
    assert!(
        cluster.is_running() && run.is_running(),
        "the master waits for the ping timeout before it tells"
    );
    run.signal("KILL");
    run.wait();
}

/// A master with timeouts too long to matter, of links and of pings.
fn patient_master() -> Cluster {
    Cluster::master_alone(|command, _| {
        command.args([
            "--link_keep_alive",
            "10mins",
            "--agent_ping_timeout",
            "15mins",
        ]);
    })
}

/// Its port is closed, as its machine says.
#[test]
fn killed_agent_is_detected_without_a_timeout() {
    let cluster = patient_master();
    let mut info = framework("owner", "*");
    info.capabilities.insert(Capability::PartitionAware);
    let mut scripted = ScriptedFramework::subscribe(&cluster, info);

    let mut idle = cluster.agent("idle", "cpus:1;mem:64;disk:0;ports:[]");
    let offer = scripted.offer();
    idle.signal("KILL");
    idle.wait();
    scripted.wait_for("that the offer is rescinded", |callback| match callback {
        Callback::Rescinded(id) => (*id == offer.id).then_some(()),
        _ => None,
    });
    let agents = cluster.list("agents");
    assert_eq!(agents[0]["active"], false, "{agents:?}");

    let mut used = cluster.agent("used", "cpus:1;mem:64;disk:0;ports:[]");
    let offer = scripted.offer();
    used.signal("KILL");
    used.wait();
    let task = task("late", &offer, "cpus:1;mem:64", "true");
    launch(&scripted, offer.id, task);
    let status = scripted.status("late");
    let (state, reason) = (status.state, status.reason);
    assert_eq!(
        (state, reason),
        (TaskState::Dropped, Some(Reason::AgentDisconnected))
    );
}

/// The framework of a killed scheduler is removed with its tasks.
#[test]
fn killed_scheduler_is_detected_without_a_timeout() {
    let cluster = patient_master();
    let _agent = cluster.agent("agent", "cpus:1;mem:64;disk:0;ports:[]");
    let mut run = Running::start(&mut cluster.verb(["run", "--", "sleep", "98714"]));
    eventually("the task to run", || sleepers(98714).first().copied());
    run.signal("KILL");
    run.wait();
    eventually("its task to be killed", || {
        sleepers(98714).is_empty().then_some(())
    });
}

#[test]
fn two_agents_cannot_share_a_work_directory() {
    let (cluster, _agent) = separate_agent("cpus:1;mem:64");
    let mut second = cluster.agent_command("separate", "cpus:1;mem:64");
    let output = second
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .output_in_time()
        .expect("meros runs");
    assert!(!output.status.success());
    assert!(stderr(&output).contains("in use"), "{}", stderr(&output));
}

#[test]
fn full_sandbox_disk_fails_only_its_task() {
    // Writes to /dev/full fail with ENOSPC; a full sandbox file system would need a mount.
    let Some(small) = SmallDisk::mount(2) else {
        return skip("this machine does not let us mount a tmpfs");
    };
    // Too small for the task, which must go where there is no room on disk.
    let cluster = Cluster::start(1, "cpus:0.5;mem:256");
    let directory = small.path().join("agent");
    let directory = directory.to_str().expect("a plain path");
    let _agent = cluster.agent(directory, "cpus(full):1;mem(full):64");
    small.fill();
    let output = cluster.output([
        "run",
        "--role",
        "full",
        "--resources",
        "cpus:1;mem:64",
        "--",
        "true",
    ]);
    assert!(!output.status.success());
    assert_contains!(stderr(&output), "No space left");
    assert!(
        cluster.output(["run", "--", "true"]).status.success(),
        "the cluster stays usable"
    );
}

#[test]
fn garbage_on_the_masters_ports_disturbs_no_task() {
    let cluster = Cluster::start(1, "cpus:2;mem:256");
    let mut run = Running::start(&mut cluster.verb(["run", "--", "sleep", "98713"]));
    let task = eventually("the task to run", || sleepers(98713).first().copied());
    let noise: Vec<u8> = (0..64_000_u32).map(|i| (i * 31 % 251) as u8).collect();

    let udp = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    for length in [0, 1, 20, 1200, 9000] {
        // First as raw bytes, then with the header of a QUIC initial packet.
        for first in [noise[0], 0xc3] {
            let mut packet = noise[..length].to_vec();
            packet
                .first_mut()
                .into_iter()
                .for_each(|byte| *byte = first);
            udp.send_to(&packet, &cluster.master).expect("it is sent");
        }
    }
    for noise in [
        &noise[..],
        b"GET / HTTP/9.9\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01",
    ] {
        let mut tcp = TcpStream::connect(&cluster.master).expect("the port answers");
        let _ = tcp.write_all(noise); // It may hang up in the middle.
    }

    let (status, _) = get(cluster.port, "/health");
    assert!(status.contains("200"), "{status}");
    assert_eq!(sleepers(98713), [task], "the task runs on");
    assert!(run.is_running());
    let other = cluster.output(["run", "--", "true"]);
    assert!(other.status.success(), "{}", stderr(&other));
    run.signal("TERM");
    run.wait();
}

#[test]
fn peers_without_a_valid_certificate_are_refused() {
    let cluster = Cluster::start(1, "cpus:2;mem:256");
    let strange = tempfile::tempdir().expect("a temporary directory");
    let made = meros(["certs", "--dir"])
        .arg(strange.path())
        .output_in_time();
    assert!(made.expect("meros runs").status.success());
    let mut of_another_cluster = cluster.verb(["agents"]);
    of_another_cluster.env("MEROS_CERTS", strange.path());
    let mut without = cluster.verb(["agents"]);
    without.env("MEROS_CERTS", cluster.directory());
    for (command, named) in [
        (&mut of_another_cluster, "certificate"),
        (&mut without, "meros certs"),
    ] {
        let output = command.output_in_time().expect("meros runs");
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
        let text = stderr(&output);
        assert!(text.contains(named), "no `{named}` in: {text}");
        assert_eq!(text.lines().count(), 1, "{text}");
    }
    // A framework's certificate is not an agent's.
    let framework = strange.path().join("framework-only");
    std::fs::create_dir(&framework).expect("a directory");
    for file in ["ca.pem", "framework.pem", "framework.key"] {
        std::fs::copy(cluster.certs().join(file), framework.join(file)).expect("it is copied");
    }
    for (role, suffixes) in [("agent", ["pem", "key"])] {
        for suffix in suffixes {
            let (from, to) = (format!("framework.{suffix}"), format!("{role}.{suffix}"));
            std::fs::copy(framework.join(from), framework.join(to)).expect("it is copied");
        }
    }
    let mut agent = cluster.agent_command("pretender", "cpus:8;mem:64");
    let output = agent
        .env("MEROS_CERTS", &framework)
        .output_in_time()
        .expect("meros runs");
    assert!(!output.status.success());
    let text = stderr(&output);
    assert!(text.contains("role framework, expected agent"), "{text}");
    assert_eq!(cluster.list("agents").len(), 1);
    let other = cluster.output(["run", "--", "true"]);
    assert!(other.status.success(), "{}", stderr(&other));
}

#[test]
fn agent_with_malformed_flags_names_them_and_exits() {
    let cluster = Cluster::with(0, &[]);
    let cases: [(&str, &[&str], &str); 6] = [
        ("cpus:", &[], "cpus"),
        ("cpus:1;mem:-5", &[], "mem"),
        ("ports:[31000-30000]", &[], "31000-30000"),
        ("cpus(a b):1", &[], "a b"),
        ("cpus:1", &["--attributes", "rack"], "rack"),
        ("cpus:1", &["--qos_controller", "nobody"], "nobody"),
    ];
    for (resources, flags, named) in cases {
        let mut agent = cluster.agent_command("malformed", resources);
        let output = agent.args(flags).output_in_time().expect("meros runs");
        let text = stderr(&output);
        assert!(!output.status.success(), "{resources} {flags:?}: {text}");
        assert!(text.contains(named), "no `{named}` in: {text}");
        assert!(!text.contains("panicked"), "{text}");
    }
    assert!(cluster.list("agents").is_empty());
}

/// Each invalid launch gets a terminal state, a reason and a message that names the fault; the
/// framework continues.
#[test]
fn invalid_tasks_are_named_and_valid_ones_run() {
    let cluster = Cluster::start(1, "cpus:2;mem:256;disk:0;ports:[]");
    let mut scripted = ScriptedFramework::subscribe(&cluster, framework("careless", "*"));
    type Spoil = fn(&mut TaskInfo);
    let cases: [(&str, Spoil, TaskState, Reason, &str); 4] = [
        (
            "empty",
            |task| task.command = Some(CommandInfo::shell("")),
            TaskState::Error,
            Reason::TaskInvalid,
            "command",
        ),
        (
            "greedy",
            |task| task.resources = task.resources.clone() + &task.resources,
            TaskState::Error,
            Reason::TaskInvalid,
            "resources",
        ),
        (
            "nobodys",
            |task| (task.command, task.executor) = (None, None),
            TaskState::Error,
            Reason::TaskInvalid,
            "CommandInfo",
        ),
        (
            "elsewhere",
            |task| task.agent_id = AgentId::new("no-such-agent").expect("an id"),
            TaskState::Error,
            Reason::TaskInvalid,
            "agent",
        ),
    ];
    for (name, spoil, state, reason, named) in cases {
        let offer = scripted.offer();
        let mut bad = task(name, &offer, "cpus:2;mem:256", "true");
        spoil(&mut bad);
        launch(&scripted, offer.id, bad);
        let status = scripted.status(name);
        assert_eq!(
            (status.state, status.reason),
            (state, Some(reason)),
            "{status:?}"
        );
        assert!(status.message.contains(named), "{status:?}");
    }
    let offer = scripted.offer();
    launch(
        &scripted,
        offer.id.clone(),
        task("good", &offer, "cpus:1;mem:64", "true"),
    );
    scripted.state("good", TaskState::Finished);
    // The same offer a second time: it is no longer valid.
    launch(
        &scripted,
        offer.id.clone(),
        task("late", &offer, "cpus:1;mem:64", "true"),
    );
    let late = scripted.status("late");
    assert_eq!(
        (late.state, late.reason),
        (TaskState::Lost, Some(Reason::InvalidOffers)),
        "{late:?}"
    );
    assert!(late.message.contains(offer.id.as_str()), "{late:?}");
}

fn launch(scripted: &ScriptedFramework, offer: OfferId, task: TaskInfo) {
    let operation = Operation::Launch { tasks: vec![task] };
    let no_filter = Filters {
        refuse_seconds: 0.0,
    };
    scripted.accept(vec![offer], vec![operation], no_filter);
}

/// A cluster with one agent in its own process.
fn separate_agent(resources: &str) -> (Cluster, Running) {
    let cluster = Cluster::with(0, &[]);
    let agent = cluster.agent("separate", resources);
    (cluster, agent)
}
