//! Tests of the replicated registry: answers survive any one master, and a deposed leader is
//! refused.

use std::time::Duration;

use consensus::core::Role as RaftRole;
use consensus::member::{self, Settings};
use consensus::store::StoredLog;
use runtime::prelude::*;
use runtime::testing::memory::Network;
use runtime::testing::simulate_network;
use testkit::disk::{Failure, SimulatedDisk};

use super::super::samples::story;
use super::*;

mod steps;

const ADDRESSES: [&str; 3] = ["a", "b", "c"];

struct Master {
    address: &'static str,
    disk: SimulatedDisk,
    node: Node,
    member: MemberHandle<RegistryMachine>,
}

impl Master {
    fn registry(&self) -> ReplicatedRegistry {
        ReplicatedRegistry::over(self.member.clone())
    }

    fn start(network: &Network, address: &'static str, disk: SimulatedDisk) -> Self {
        let node = network.node(address, Role::Master, &[Role::Master]);
        let log = Box::new(StoredLog::new(disk.open().unwrap()));
        let settings = Settings::new(address, &ADDRESSES);
        let member = member::start(&node, settings, log, RegistryMachine::new()).unwrap();
        Self {
            address,
            disk,
            node,
            member,
        }
    }

    /// The machine loses power.
    async fn fall(&self, network: &Network) {
        network.leave(self.address);
        self.node.stop_now(&self.member.pid());
        self.disk.crash();
        self.node.clock().settle().await;
    }

    /// The machine loses power, and is started again.
    async fn again(self, network: &Network) -> Self {
        self.fall(network).await;
        Self::start(network, self.address, self.disk)
    }

    async fn leads(&self) -> bool {
        let status = self.member.status().await;
        let now = status.ok().and_then(|status| status.role_now());
        now.is_some_and(|now| now.role == RaftRole::Leader)
    }
}

fn three(network: &Network) -> Vec<Master> {
    let start = |&address| Master::start(network, address, SimulatedDisk::new());
    ADDRESSES.iter().map(start).collect()
}

/// The place of the one that leads and can read.
async fn leader(masters: &[Master]) -> usize {
    for _ in 0..100 {
        for (place, master) in masters.iter().enumerate() {
            if master.leads().await && master.registry().read().await.is_ok() {
                return place;
            }
        }
        masters[0]
            .node
            .clock()
            .advance(Duration::from_millis(50))
            .await;
    }
    panic!("nobody leads");
}

#[test]
fn answered_operations_survive_leaders_and_power_loss() {
    simulate_network(|network| async move {
        let mut masters = three(&network);
        let first = leader(&masters).await;
        let mut registry = masters[first].registry();
        for (n, operation) in story().into_iter().enumerate() {
            let applied = registry.apply(operation).await.unwrap();
            assert_eq!(applied.version, n as u64 + 1);
        }
        let known = registry.read().await.unwrap();
        assert_eq!((known.agents.len(), known.frameworks.len()), (1, 2));
        let fallen = masters.remove(first);
        network.leave(fallen.address);
        fallen.node.stop_now(&fallen.member.pid());
        let next = leader(&masters).await;
        assert_eq!(masters[next].registry().read().await.unwrap(), known);
        masters.push(fallen);
        let mut again = Vec::new();
        for master in masters {
            again.push(master.again(&network).await);
        }
        let last = leader(&again).await;
        assert_eq!(again[last].registry().read().await.unwrap(), known);
    });
}

#[test]
fn master_that_does_not_lead_changes_nothing() {
    simulate_network(|network| async move {
        let masters = three(&network);
        let leading = leader(&masters).await;
        let follower = &masters[(leading + 1) % 3];
        let told = follower.registry().apply(story().remove(0)).await;
        assert_eq!(told, Err(RegistryError::LostLeadership));
        let content = masters[leading].registry().read().await.unwrap();
        assert_eq!(content, RegistryState::default());
    });
}

#[test]
fn isolated_leader_acknowledges_nothing_and_is_replaced() {
    simulate_network(|network| async move {
        let mut masters = three(&network);
        let leading = leader(&masters).await;
        let old = masters.remove(leading);
        for other in &masters {
            network.sever(old.address, other.address);
        }
        let under_way = old.registry().apply(story().remove(0));
        let next = leader(&masters).await;
        let applied = masters[next].registry().apply(story().remove(7)).await;
        assert_eq!(applied, Ok(Applied { version: 1 }));
        assert_eq!(under_way.await, Err(RegistryError::LostLeadership));
        assert!(old.registry().read().await.is_err());
        let content = masters[next].registry().read().await.unwrap();
        assert!(
            content.agents.is_empty(),
            "what was not answered is not there"
        );
    });
}

#[test]
fn group_refuses_with_the_registry_message() {
    simulate_network(|network| async move {
        let masters = three(&network);
        let mut registry = masters[leader(&masters).await].registry();
        for operation in story() {
            registry.apply(operation).await.unwrap();
        }
        let again = story().remove(8);
        let Err(RegistryError::Refused { reason }) = registry.apply(again).await else {
            panic!("a removed framework was admitted again");
        };
        assert!(reason.contains("Framework has been removed"), "{reason}");
    });
}

#[test]
fn failing_disk_breaks_its_masters_registry() {
    simulate_network(|network| async move {
        let masters = three(&network);
        let leading = leader(&masters).await;
        let failure = Failure::Sync("the disk is gone".to_owned());
        masters[leading].disk.fail_next(failure);
        let mut registry = masters[leading].registry();
        let unknown = registry.apply(story().remove(0)).await;
        assert_eq!(unknown, Err(RegistryError::LostLeadership));
        let Err(RegistryError::Broken { reason }) = registry.apply(story().remove(1)).await else {
            panic!("it goes on with a broken disk");
        };
        assert!(reason.contains("the disk is gone"), "{reason}");
    });
}
