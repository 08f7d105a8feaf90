//! Tests of members on a network in memory, with crashing disks, in paused time.
//!
//! | module | contents |
//! |---|---|
//! | `commits` | normal operation: elections, group commit, reads, handover |
//! | `failures` | failures of leaders, links and disks |
//! | `formats` | groups of two versions |
//! | `joining` | bootstrap, admission, and wiped directories |
//! | `network_faults` | random faults, deterministic for a seed |
//! | `operator` | an operator's requests, from a node of its own |
//! | `real` | real time, disks and threads |

mod commits;
mod failures;
mod formats;
mod joining;
mod network_faults;
mod operator;
mod real;

use std::collections::BTreeMap;
use std::time::Duration;

use runtime::prelude::*;
use runtime::testing::memory::Network;
use runtime::testing::simulate_network;
use testkit::disk::SimulatedDisk;
use testkit::{assert_contains, assert_matches, assert_starts};

use super::*;
use crate::core::Role as RaftRole;
use crate::group::Ledger;
use crate::machine::FIRST_FORMAT;
use crate::store::StoredLog;

/// All masters of a test. Their disks outlive their nodes.
struct Cluster {
    network: Network,
    initial: Vec<String>,
    disks: BTreeMap<String, SimulatedDisk>,
    /// The newest operation format of members of another version.
    versions: BTreeMap<String, u16>,
    nodes: BTreeMap<String, Node>,
    members: BTreeMap<String, MemberHandle<Ledger>>,
    clock: Clock,
}

/// Runs a test with a group of three and the name of its leader.
fn simulate_three<F: Future>(test: impl FnOnce(Cluster, String) -> F) {
    simulate_network(|network| async move {
        let (cluster, leader) = Cluster::three(network).await;
        test(cluster, leader).await;
    });
}

impl Cluster {
    /// Founders, not started.
    fn of(network: Network, names: &[&str]) -> Self {
        let clock = network
            .node("spectator", Role::Operator, &[])
            .clock()
            .clone();
        Self {
            network,
            initial: names.iter().map(|&name| name.to_owned()).collect(),
            disks: BTreeMap::new(),
            versions: BTreeMap::new(),
            nodes: BTreeMap::new(),
            members: BTreeMap::new(),
            clock,
        }
    }

    /// A group of three with a leader.
    async fn three(network: Network) -> (Self, String) {
        let mut cluster = Self::of(network, &["a", "b", "c"]);
        for name in ["a", "b", "c"] {
            cluster.start(name);
        }
        let leader = cluster.leader().await;
        (cluster, leader)
    }

    fn settings(&self, name: &str) -> Settings {
        let initial: Vec<&str> = self.initial.iter().map(String::as_str).collect();
        Settings::new(name, &initial)
    }

    fn start(&mut self, name: &str) {
        self.start_with(self.settings(name));
    }

    fn start_with(&mut self, settings: Settings) {
        let name = settings.address.clone();
        let node = self
            .network
            .node(&name, Role::Master, &[Role::Master, Role::Operator]);
        let disk = self.disks.entry(name.clone()).or_default();
        let log = Box::new(StoredLog::new(disk.open().unwrap()));
        let format = self.versions.get(&name).copied().unwrap_or(FIRST_FORMAT);
        let member = start(&node, settings, log, Ledger::reading(format)).unwrap();
        self.nodes.insert(name.clone(), node);
        self.members.insert(name, member);
    }

    /// A power failure of the machine.
    async fn fall(&mut self, name: &str) {
        self.network.leave(name);
        let member = self.members.remove(name).unwrap();
        let node = self.nodes.remove(name).unwrap();
        node.stop_now(&member.pid());
        self.disks[name].crash();
        self.clock.settle().await;
    }

    fn wipe(&mut self, name: &str) {
        self.disks.remove(name);
    }

    async fn wait(&self, millis: u64) {
        self.clock.advance(Duration::from_millis(millis)).await;
    }

    async fn status(&self, name: &str) -> MemberStatus {
        self.members[name].status().await.unwrap()
    }

    /// The leader that most members know, once it has committed an entry in its term.
    async fn leader(&self) -> String {
        for _ in 0..100 {
            for name in self.members.keys() {
                let Ok(status) = self.members[name].status().await else {
                    continue;
                };
                let leads = status
                    .role_now()
                    .is_some_and(|now| now.role == RaftRole::Leader);
                if leads && self.members[name].read(|_| ()).await.is_ok() {
                    return name.clone();
                }
            }
            self.wait(100).await;
        }
        panic!("nobody leads");
    }

    fn propose(
        &self,
        name: &str,
        value: u64,
    ) -> impl Future<Output = Result<usize, ProposeError>> + use<> {
        self.members[name].propose((value, Vec::new()))
    }

    async fn values(&self, name: &str) -> Vec<u64> {
        let read = self.members[name].read(|ledger| ledger.values.clone());
        read.await.unwrap()
    }

    /// The locally applied values of this member.
    async fn applied(&self, name: &str) -> Vec<u64> {
        let read = self.members[name].read_local(|ledger| ledger.values.clone());
        read.await.unwrap().1
    }

    fn others(&self, name: &str) -> Vec<String> {
        let others = self.members.keys().filter(|other| *other != name);
        others.cloned().collect()
    }

    /// Disconnects this member from all others.
    fn isolate(&self, name: &str) {
        for other in self.others(name) {
            self.network.sever(name, &other);
        }
    }

    fn reunite(&self, name: &str) {
        for other in self.others(name) {
            self.network.heal(name, &other);
        }
    }
}
