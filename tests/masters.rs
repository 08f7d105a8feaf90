//! A group of masters, in processes of their own: whoever leads is killed without a word, and the cluster goes on.

use std::net::TcpStream;

use protocol::TaskState;

use crate::puppet::{Heard, Puppet, framework, task};
use crate::support::{
    Cluster, Running, eventually, get, get_with, header, meros, sleepers, stderr, stdout,
};

/// Three masters; those that were killed are missing.
struct Group {
    cluster: Cluster,
    addresses: Vec<String>,
    /// The second and the third; the first is the cluster's process.
    others: Vec<Running>,
}

impl Group {
    fn start() -> Self {
        let (cluster, others) = Cluster::of_three_masters();
        let addresses = cluster.master.split(',').map(str::to_owned).collect();
        Self {
            cluster,
            addresses,
            others,
        }
    }

    fn process(&mut self, index: usize) -> &mut Running {
        match index {
            0 => &mut self.cluster.process,
            _ => &mut self.others[index - 1],
        }
    }

    fn port(&self, index: usize) -> u16 {
        let port = self.addresses[index].rsplit_once(':');
        port.and_then(|(_, port)| port.parse().ok())
            .expect("a port")
    }

    /// The head of a page of this master, for a reader that wants no mirror; `None` while it does not listen.
    fn own_page(&self, index: usize, path: &str) -> Option<String> {
        TcpStream::connect(("127.0.0.1", self.port(index))).ok()?;
        Some(get_with(self.port(index), path, "Cache-Control: no-cache").0)
    }

    /// The place of the one that leads: its pages answer who wants no mirror, the others' send there.
    fn leader(&self) -> usize {
        self.leader_among(&[0, 1, 2])
    }

    /// As [`leader`](Self::leader), of these alone: one that sleeps answers no page.
    fn leader_among(&self, places: &[usize]) -> usize {
        let leads = |index: &&usize| {
            let head = self.own_page(**index, "/flags");
            head.is_some_and(|head| head.starts_with("HTTP/1.1 200"))
        };
        eventually("a leader", || places.iter().find(leads).copied())
    }

    /// One of this master's figures.
    fn metric(&self, index: usize, name: &str) -> f64 {
        let (_, snapshot) = get(self.port(index), "/metrics/snapshot");
        let snapshot: serde_json::Value = serde_json::from_str(&snapshot).expect("JSON");
        snapshot[name].as_f64().unwrap_or(f64::NAN)
    }

    /// The others' pages show the agent and this task of their own, say whose books those are and how old, and send there whoever
    /// wants no mirror.
    fn followers_show(&self, task: &str, leader: usize) {
        for follower in (0..3).filter(|index| *index != leader) {
            let port = self.port(follower);
            let staleness = eventually("a follower to show the task", || {
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
            let head = self.own_page(follower, "/state?x=1").expect("it listens");
            let there = format!("http://{}/state?x=1", self.addresses[leader]);
            assert!(head.contains(" 307 "), "{head}");
            assert_eq!(header(&head, "location"), Some(there));
        }
    }

    /// Starts one again that was killed, in its directory.
    fn start_again(&mut self, index: usize) {
        let directory = self.cluster.directory();
        let mut command = Cluster::master_of_three(directory, &self.addresses, index);
        *self.process(index) = Running::start(&mut command);
    }
}

/// S131, W3: agent and scheduler are told of the next leader, the agent keeps its id and its task, and what comes next is launched.
#[test]
fn the_leader_of_three_is_killed_again_and_again_and_nothing_is_lost() {
    let mut group = Group::start();
    let _agent = group
        .cluster
        .agent("agent", "cpus:2;mem:256;disk:0;ports:[]");
    let ids = |group: &Group| {
        let agents = group.cluster.list("agents");
        let active = agents.iter().filter(|agent| agent["active"] == true);
        active
            .map(|agent| agent["id"].to_string())
            .collect::<Vec<_>>()
    };
    let agents = ids(&group);
    let mut info = framework("owner", "*");
    info.failover_timeout = std::time::Duration::from_secs(300);
    let mut puppet = Puppet::subscribe(&group.cluster, info);
    let offer = puppet.offer();
    let steady = task("steady", &offer, "cpus:1;mem:64", "sleep 98751");
    let launched = puppet.driver.launch(vec![offer.id.clone()], vec![steady]);
    launched.expect("the driver hears");
    puppet.state("steady", TaskState::Running);
    let process = eventually("the task's process", || sleepers(98751).first().copied());

    for round in 0..3 {
        let leader = group.leader();
        group.process(leader).signal("KILL");
        group.process(leader).wait();
        puppet.hear("its new subscription", |heard| match heard {
            Heard::Subscribed(_) => Some(()),
            _ => None,
        });
        eventually("the agent to be back under its id", || {
            (ids(&group) == agents).then_some(())
        });
        assert_eq!(sleepers(98751), [process], "the task has not noticed");
        let name = format!("after-{round}");
        let offer = puppet.offer();
        let next = task(&name, &offer, "cpus:0.5;mem:32", "true");
        let launched = puppet.driver.launch(vec![offer.id.clone()], vec![next]);
        launched.expect("the driver hears");
        puppet.state(&name, TaskState::Finished);
        group.start_again(leader);
    }

    let leader = group.leader();
    group.followers_show("steady", leader);
    let kill = puppet
        .driver
        .kill(protocol::TaskId::new("steady").expect("an id"), None);
    kill.expect("the driver hears");
    puppet.state("steady", TaskState::Killed);
}

/// S131: it believes that it leads until it is told; agent and scheduler know better.
#[test]
fn a_leader_that_slept_finds_another_one_leading_and_does_no_harm() {
    let mut group = Group::start();
    let _agent = group
        .cluster
        .agent("agent", "cpus:2;mem:256;disk:0;ports:[]");
    let mut info = framework("owner", "*");
    info.failover_timeout = std::time::Duration::from_secs(300);
    let mut puppet = Puppet::subscribe(&group.cluster, info);
    let offer = puppet.offer();
    let steady = task("steady", &offer, "cpus:1;mem:64", "sleep 98752");
    let launched = puppet.driver.launch(vec![offer.id.clone()], vec![steady]);
    launched.expect("the driver hears");
    puppet.state("steady", TaskState::Running);
    let process = eventually("the task's process", || sleepers(98752).first().copied());

    let old = group.leader();
    let term = group.metric(old, "master/term");
    group.process(old).signal("STOP");
    let others: Vec<usize> = (0..3).filter(|index| *index != old).collect();
    let next = group.leader_among(&others);
    assert!(group.metric(next, "master/term") > term);
    puppet.hear("its new subscription", |heard| match heard {
        Heard::Subscribed(_) => Some(()),
        _ => None,
    });
    let offer = puppet.offer();
    let second = task("second", &offer, "cpus:0.5;mem:32", "true");
    let launched = puppet.driver.launch(vec![offer.id.clone()], vec![second]);
    launched.expect("the driver hears");
    puppet.state("second", TaskState::Finished);

    group.process(old).signal("CONT");
    eventually("the one that slept to follow", || {
        let (elected, deposed) = ("master/elected", "master/deposed");
        let follows = group.metric(old, elected) == 0.0 && group.metric(old, deposed) >= 1.0;
        follows.then_some(())
    });
    assert!(group.metric(old, "master/term") > term);
    eventually("it to send to the one that leads", || {
        let head = group.own_page(old, "/state");
        head.filter(|head| head.contains(" 307 "))
    });
    assert_eq!(sleepers(98752), [process], "the task has not noticed");
    let leader = group.leader();
    assert_eq!(group.metric(leader, "master/slaves_active"), 1.0);
    let kill = puppet
        .driver
        .kill(protocol::TaskId::new("steady").expect("an id"), None);
    kill.expect("the driver hears");
    puppet.state("steady", TaskState::Killed);
    assert_eq!(
        puppet.states("second").last(),
        Some(&TaskState::Finished),
        "an end that was told stands"
    );
}

/// A majority decides: one master of three alone takes nothing in.
#[test]
fn one_master_of_three_alone_lets_nobody_in_until_another_is_back() {
    let mut group = Group::start();
    for index in [0, 1] {
        group.process(index).signal("KILL");
        group.process(index).wait();
    }
    let alone = group.addresses[2].clone();
    eventually("the third to say that nobody leads", || {
        let head = group.own_page(2, "/state");
        head.filter(|head| head.contains(" 503 "))
    });
    let mut asked = meros(["agents", "--master", &alone]);
    let asked = asked.env("MEROS_CERTS", group.cluster.certs()).output();
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

/// An operator of Mesos is told what takes the place of a flag.
#[test]
fn flags_that_named_a_quorum_or_zookeeper_say_what_to_use_now() {
    for (flag, value) in [("--quorum", "2"), ("--zk", "zk://localhost:2181/mesos")] {
        let output = meros(["master", "--work_dir", "unused", flag, value]).output();
        let output = output.expect("meros runs");
        assert!(!output.status.success());
        assert!(
            stderr(&output).contains("--initial_masters"),
            "{}",
            stderr(&output)
        );
    }
}
