//! A group of master processes whose leader is killed with SIGKILL.

use std::net::TcpStream;

use protocol::TaskState;

use crate::group::Group;
use crate::in_time::InTime;
use crate::scripted_framework::{Callback, ScriptedFramework, framework, task};
use crate::support::{eventually, get_with, header, meros, page, sleepers, stderr, stdout};

impl Group {
    fn port(&self, index: usize) -> u16 {
        let port = self.addresses[index].rsplit_once(':');
        port.and_then(|(_, port)| port.parse().ok())
            .expect("a port")
    }

    /// A metric of this master.
    fn metric(&self, index: usize, name: &str) -> f64 {
        let snapshot = page(self.port(index), "/metrics/snapshot");
        snapshot[name].as_f64().unwrap_or(f64::NAN)
    }

    /// The followers' pages show the agent and this task from their mirror, with the leader and the
    /// age, and redirect requests that refuse a mirror.
    fn followers_show(&self, task: &str, leader: usize) {
        for follower in self.others(leader) {
            // A restarted follower shows its mirror before its own group has named the leader.
            self.wait_until_follower(follower);
            let port = self.port(follower);
            let staleness = eventually("a follower to show the task", || {
                TcpStream::connect(("127.0.0.1", port)).ok()?;
                let (head, body) = get_with(port, "/state", "Cache-Control: max-age=5");
                let state: serde_json::Value = serde_json::from_str(&body).ok()?;
                let agent = state["slaves"][0]["hostname"].is_string();
                let tasks = state["frameworks"][0]["tasks"].as_array()?;
                let shown = agent && tasks.iter().any(|one| one["id"] == task);
                let new = header(&head, "meros-leader")? == self.addresses[leader];
                header(&head, "meros-staleness").filter(|_| shown && new)
            });
            let staleness: f64 = staleness.parse().expect("seconds");
            assert!((0.0..=5.0).contains(&staleness), "{staleness}");
            let (head, _) = get_with(port, "/metrics/snapshot", "Accept: */*");
            assert!(header(&head, "meros-staleness").is_some(), "{head}");
            let head = self.page(follower, "/state?x=1").expect("it listens");
            let there = format!("//{}/state?x=1", self.addresses[leader]);
            assert!(head.contains(" 307 "), "{head}");
            assert_eq!(header(&head, "location"), Some(there));
        }
    }
}

/// Agent and scheduler find the next leader, the agent keeps its id and task, and launches
/// continue.
// Covers P7; W6; 3.13 Master failover.
#[test]
fn repeated_leader_kills_lose_nothing() {
    let mut group = Group::start();
    let _agent = group
        .cluster
        .agent("agent", "cpus:2;mem:256;disk:0;ports:[]");
    let agents = group.agents();
    let mut info = framework("owner", "*");
    info.failover_timeout = std::time::Duration::from_secs(300);
    let mut scripted = ScriptedFramework::subscribe(&group.cluster, info);
    let offer = scripted.offer();
    let steady = task("steady", &offer, "cpus:1;mem:64", "sleep 98751");
    scripted.launch(&offer, vec![steady]);
    scripted.state("steady", TaskState::Running);
    let process = eventually("the task's process", || sleepers(98751).first().copied());

    for round in 0..3 {
        let leader = group.leader();
        group.process(leader).signal("KILL");
        group.process(leader).wait();
        scripted.wait_for("its new subscription", |heard| match heard {
            Callback::Subscribed(_) => Some(()),
            _ => None,
        });
        eventually("the agent to be back under its id", || {
            (group.agents() == agents).then_some(())
        });
        assert_eq!(sleepers(98751), [process], "the task has not noticed");
        let name = format!("after-{round}");
        let offer = scripted.offer();
        let next = task(&name, &offer, "cpus:0.5;mem:32", "true");
        scripted.launch(&offer, vec![next]);
        scripted.state(&name, TaskState::Finished);
        group.start_again(leader);
    }

    let leader = group.leader();
    group.followers_show("steady", leader);
    scripted.kill(protocol::TaskId::new("steady").expect("an id"));
    scripted.state("steady", TaskState::Killed);
}

/// The resumed master still believes that it leads; agent and scheduler follow the new leader.
// Covers S131.
#[test]
fn resumed_old_leader_steps_down() {
    let mut group = Group::start();
    let _agent = group
        .cluster
        .agent("agent", "cpus:2;mem:256;disk:0;ports:[]");
    let mut info = framework("owner", "*");
    info.failover_timeout = std::time::Duration::from_secs(300);
    let mut scripted = ScriptedFramework::subscribe(&group.cluster, info);
    let offer = scripted.offer();
    let steady = task("steady", &offer, "cpus:1;mem:64", "sleep 98752");
    scripted.launch(&offer, vec![steady]);
    scripted.state("steady", TaskState::Running);
    let process = eventually("the task's process", || sleepers(98752).first().copied());

    let old = group.leader();
    let term = group.metric(old, "master/term");
    group.process(old).signal("STOP");
    let others: Vec<usize> = (0..3).filter(|index| *index != old).collect();
    let next = group.leader_of(&others);
    assert!(group.metric(next, "master/term") > term);
    scripted.wait_for("its new subscription", |heard| match heard {
        Callback::Subscribed(_) => Some(()),
        _ => None,
    });
    let offer = scripted.offer();
    let second = task("second", &offer, "cpus:0.5;mem:32", "true");
    scripted.launch(&offer, vec![second]);
    scripted.state("second", TaskState::Finished);

    group.process(old).signal("CONT");
    eventually("the one that slept to follow", || {
        let (elected, deposed) = ("master/elected", "master/deposed");
        let follows = group.metric(old, elected) == 0.0 && group.metric(old, deposed) >= 1.0;
        follows.then_some(())
    });
    assert!(group.metric(old, "master/term") > term);
    eventually("it to send to the one that leads", || {
        let head = group.page(old, "/state");
        head.filter(|head| head.contains(" 307 "))
    });
    assert_eq!(sleepers(98752), [process], "the task has not noticed");
    let leader = group.leader();
    assert_eq!(group.metric(leader, "master/slaves_active"), 1.0);
    scripted.kill(protocol::TaskId::new("steady").expect("an id"));
    scripted.state("steady", TaskState::Killed);
    assert_eq!(
        scripted.states("second").last(),
        Some(&TaskState::Finished),
        "an end that was told stands"
    );
}

/// One of three masters alone commits nothing.
// Covers 2.1 307, 503.
#[test]
fn master_without_a_majority_admits_no_agent() {
    let mut group = Group::start();
    for index in [0, 1] {
        group.process(index).signal("KILL");
        group.process(index).wait();
    }
    let alone = group.addresses[2].clone();
    eventually("the third to say that nobody leads", || {
        let head = group.page(2, "/state");
        head.filter(|head| head.contains(" 503 "))
    });
    let mut asked = meros(["agents", "--master", &alone]);
    let asked = asked
        .env("MEROS_CERTS", group.cluster.certs())
        .output_in_time();
    let asked = asked.expect("meros runs");
    assert!(!asked.status.success(), "{}", stdout(&asked));
    group.start_again(0);
    eventually("two to be enough", || {
        let agents = group.cluster.output(["agents"]);
        agents.status.success().then_some(()).or_else(|| {
            eprintln!("{}", stderr(&agents));
            None
        })
    });
}

/// Flags of Mesos get an error that names the replacement, also in the environment.
// Covers W6.
#[test]
fn zookeeper_and_quorum_flags_name_their_replacements() {
    let initial = "--initial_masters";
    let of_master = [
        ("quorum", "2", initial),
        ("zk", "zk://localhost:2181/mesos", initial),
        ("zk_session_timeout", "10secs", "--election_ticks"),
        ("master_contender", "org_apache_mesos_Any", initial),
        ("master_detector", "org_apache_mesos_Any", initial),
        ("log_auto_initialize", "false", initial),
    ];
    let of_agent = [
        (
            "master_detector",
            "org_apache_mesos_Any",
            "--master HOST:PORT,...",
        ),
        ("zk_session_timeout", "10secs", "--master HOST:PORT,..."),
    ];
    let given = |verb, rest: &[&'static str]| {
        let all = [verb, "--work_dir", "unused"].into_iter();
        meros(all.chain(rest.iter().copied()))
    };
    let refused = |mut command: std::process::Command, flag: &str, instead: &str| {
        let output = command.output_in_time().expect("meros runs");
        let printed = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{printed}");
        assert!(printed.contains(&format!("--{flag}")), "{printed}");
        assert!(printed.contains(instead), "{printed}");
    };
    let masters = of_master.map(|row| ("master", row));
    let agents = of_agent.map(|row| ("agent", row));
    for (verb, (flag, value, instead)) in masters.into_iter().chain(agents) {
        let rest: &[&str] = match verb {
            "agent" => &["--master", "localhost:5050"],
            _ => &[],
        };
        let mut by_flag = given(verb, rest);
        by_flag.arg(format!("--{flag}={value}"));
        refused(by_flag, flag, instead);
        let mut by_environment = given(verb, rest);
        by_environment.env(format!("MESOS_{}", flag.to_uppercase()), value);
        refused(by_environment, flag, instead);
    }
    let bare = given("master", &["--no-log_auto_initialize"]);
    refused(bare, "log_auto_initialize", initial);
}
