//! Failures of leaders, links and disks: acknowledged writes survive, and waiting callers are
//! notified.

use bytes::BytesMut;
use runtime::wire::codec::Garbled;
use testkit::disk::{Failure, SimulatedStore};

use super::*;
use crate::machine::CannotRestore;

#[test]
fn new_leader_has_all_acknowledged_writes() {
    simulate_three(|mut cluster, mut leader| async move {
        let mut acknowledged = Vec::new();
        for value in 0..5 {
            cluster.propose(&leader, value).await.unwrap();
            acknowledged.push(value);
            cluster.fall(&leader).await;
            let died = cluster.clock.now();
            let dead = std::mem::take(&mut leader);
            leader = cluster.leader().await;
            let gap = cluster.clock.now() - died;
            assert!(gap < Duration::from_secs(1), "{gap:?} without a leader");
            assert_eq!(cluster.values(&leader).await, acknowledged);
            cluster.start(&dead);
        }
        cluster.wait(2_000).await;
        for name in ["a", "b", "c"] {
            assert_eq!(cluster.values(name).await, acknowledged);
        }
    });
}

#[test]
fn crash_ends_a_proposal_as_unknown() {
    simulate_three(|mut cluster, leader| async move {
        cluster.isolate(&leader);
        let under_way = cluster.propose(&leader, 1);
        cluster.clock.settle().await;
        cluster.fall(&leader).await;
        assert_eq!(under_way.await, Err(ProposeError::Unknown));
    });
}

#[test]
fn isolated_leader_acknowledges_nothing() {
    simulate_three(|mut cluster, old| async move {
        cluster.propose(&old, 1).await.unwrap();
        cluster.isolate(&old);
        let under_way = cluster.propose(&old, 2);
        let cut_off = cluster.members.remove(&old).unwrap();
        let next = cluster.leader().await;
        cluster.propose(&next, 3).await.unwrap();
        cluster.wait(1_000).await;
        let status = cut_off.status().await.unwrap();
        assert_ne!(status.role_now().unwrap().role, RaftRole::Leader);
        let refused = cut_off.propose((4, Vec::new())).await;
        assert!(matches!(refused, Err(ProposeError::NotLeader { .. })));
        assert!(cut_off.read(|_| ()).await.is_err());
        cluster.members.insert(old.clone(), cut_off);
        cluster.reunite(&old);
        assert_eq!(under_way.await, Err(ProposeError::Lost));
        cluster.wait(2_000).await;
        assert_eq!(cluster.values(&old).await, [1, 3]);
    });
}

#[test]
fn undecided_proposal_times_out_as_unknown() {
    simulate_three(|cluster, old| async move {
        cluster.isolate(&old);
        let started = cluster.clock.now();
        assert_eq!(cluster.propose(&old, 2).await, Err(ProposeError::Unknown));
        let took = cluster.clock.now() - started;
        assert!(took <= Duration::from_millis(6_100), "{took:?}");
    });
}

#[test]
fn absent_member_catches_up() {
    simulate_three(|mut cluster, leader| async move {
        let away = cluster.others(&leader)[0].clone();
        cluster.fall(&away).await;
        for value in 0..50 {
            cluster.propose(&leader, value).await.unwrap();
        }
        cluster.start(&away);
        cluster.wait(3_000).await;
        let (_, values) = cluster.members[&away]
            .read_local(|ledger| ledger.values.clone())
            .await
            .unwrap();
        assert_eq!(values, (0..50).collect::<Vec<_>>());
    });
}

#[test]
fn broken_links_are_restored() {
    simulate_three(|cluster, leader| async move {
        let follower = cluster.others(&leader)[0].clone();
        for value in 0..5 {
            cluster.network.sever(&leader, &follower);
            cluster.wait(200).await;
            cluster.network.heal(&leader, &follower);
            cluster.wait(2_000).await;
            let now = cluster.leader().await;
            cluster.propose(&now, value).await.unwrap();
            cluster.wait(200).await;
            for name in ["a", "b", "c"] {
                let read = cluster.members[name].read_local(|ledger| ledger.values.len());
                assert_eq!(read.await.unwrap().1 as u64, value + 1, "{name}");
            }
        }
    });
}

#[test]
fn disk_failure_ends_only_its_member() {
    simulate_three(|mut cluster, leader| async move {
        cluster.propose(&leader, 1).await.unwrap();
        cluster.disks[&leader].fail_next(Failure::Sync("the disk is gone".to_owned()));
        let member = cluster.members.remove(&leader).unwrap();
        let failed = member.propose((2, Vec::new())).await;
        assert_eq!(failed, Err(ProposeError::Unknown));
        let reason = member.ended().unwrap();
        assert!(reason.contains("the disk is gone"), "{reason}");
        let broken = member.propose((3, Vec::new())).await.unwrap_err();
        assert_eq!(broken, ProposeError::Broken { reason });
        let next = cluster.leader().await;
        let length = cluster.propose(&next, 4).await.unwrap();
        let values = cluster.values(&next).await;
        assert_eq!((values[0], values[length - 1]), (1, 4));
        assert!(!values.contains(&3));
    });
}

#[test]
fn hung_disk_is_reported_and_another_leads() {
    simulate_three(|cluster, old| async move {
        cluster.propose(&old, 1).await.unwrap();
        cluster.nodes[&old].slow_blocking(Duration::from_secs(40));
        let under_way = cluster.propose(&old, 2);
        cluster.wait(3_500).await;
        let next = cluster.leader().await;
        assert_ne!(next, old);
        let asked = cluster.clock.now();
        cluster.propose(&next, 3).await.unwrap();
        assert!(cluster.clock.now() - asked < Duration::from_secs(1));
        let waiting = cluster.status(&old).await.waiting.unwrap_or_default();
        let expected = "this master's disk has not answered for 3.";
        assert!(waiting.starts_with(expected), "{waiting}");
        assert_eq!(under_way.await, Err(ProposeError::Unknown));
        // The hung write returns, and nothing was lost.
        cluster.nodes[&old].slow_blocking(Duration::ZERO);
        cluster.wait(60_000).await;
        assert_eq!(cluster.status(&old).await.waiting, None);
        assert_eq!(cluster.leader().await, next);
        for name in ["a", "b", "c"] {
            let read = cluster.members[name].read_local(|ledger| ledger.values.clone());
            assert_eq!(read.await.unwrap().1, [1, 2, 3], "{name}");
        }
    });
}

#[test]
fn excess_proposals_are_refused() {
    simulate_network(|network| async move {
        let mut cluster = Cluster::of(network, &["a"]);
        let mut settings = cluster.settings("a");
        settings.raft.waiting_entries_max = 10;
        cluster.start_with(settings);
        let leader = cluster.leader().await;
        let proposals: Vec<_> = (0..30)
            .map(|value| cluster.propose(&leader, value))
            .collect();
        let answers = futures_util::future::join_all(proposals).await;
        let refused = answers
            .iter()
            .filter(|answer| matches!(answer, Err(ProposeError::Busy { .. })))
            .count();
        assert_eq!(refused, 20);
        assert_eq!(cluster.values("a").await.len(), 10);
    });
}

/// A machine that panics at its second operation.
struct Brittle(u64);

impl StateMachine for Brittle {
    type Operation = u64;
    type Answer = u64;

    fn apply(&mut self, _: u64, operation: u64) -> u64 {
        self.0 += operation;
        assert!(self.0 < 2, "too much");
        self.0
    }

    fn snapshot_into(&self, into: &mut BytesMut) -> Result<(), Garbled> {
        into.extend_from_slice(&self.0.to_be_bytes());
        Ok(())
    }

    fn restore(&mut self, _: &[u8]) -> Result<(), CannotRestore> {
        Ok(())
    }
}

/// A machine that cannot be encoded between its start and 30.
struct Shy(u64);

impl StateMachine for Shy {
    type Operation = u64;
    type Answer = u64;

    fn apply(&mut self, _: u64, operation: u64) -> u64 {
        self.0 += operation;
        self.0
    }

    fn snapshot_into(&self, into: &mut BytesMut) -> Result<(), Garbled> {
        into.extend_from_slice(&self.0.to_be_bytes());
        match self.0 {
            1..30 => Err(Garbled::new("too shy")),
            _ => Ok(()),
        }
    }

    fn restore(&mut self, bytes: &[u8]) -> Result<(), CannotRestore> {
        let number = bytes.try_into().map_err(|_| CannotRestore {
            reason: "it is no number".to_owned(),
        })?;
        self.0 = u64::from_be_bytes(number);
        Ok(())
    }
}

#[test]
fn failed_snapshot_leaves_the_log_intact() {
    simulate_network(|network| async move {
        let disk = SimulatedDisk::new();
        let begin = || {
            let node = network.node("a", Role::Master, &[Role::Master]);
            let mut settings = Settings::new("a", &["a"]);
            settings.policy.snapshot_entries = 8;
            let log = Box::new(StoredLog::new(disk.open().unwrap()));
            let member = start(&node, settings, log, Shy(0)).unwrap();
            (node, member)
        };
        let (node, member) = begin();
        node.clock().advance(Duration::from_secs(1)).await;
        for value in 1..=29 {
            assert_eq!(member.propose(1).await, Ok(value));
        }
        assert_eq!(member.status().await.unwrap().counts.snapshots, 0);
        for value in 30..=60 {
            assert_eq!(member.propose(1).await, Ok(value));
        }
        node.clock().advance(Duration::from_secs(1)).await;
        let snapshots = member.status().await.unwrap().counts.snapshots;
        assert!((2..=5).contains(&snapshots), "{snapshots}");

        network.leave("a");
        node.stop_now(&member.pid());
        disk.crash();
        node.clock().settle().await;
        let (node, member) = begin();
        node.clock().advance(Duration::from_secs(1)).await;
        assert_eq!(member.propose(1).await, Ok(61));
    });
}

#[test]
fn panicked_member_notifies_callers_and_watchers() {
    simulate_network(|network| async move {
        let node = network.node("a", Role::Master, &[Role::Master]);
        let log = Box::new(StoredLog::new(SimulatedStore::default()));
        let member = start(&node, Settings::new("a", &["a"]), log, Brittle(0)).unwrap();
        node.clock().advance(Duration::from_secs(1)).await;
        let (told, last) = std::sync::mpsc::channel();
        member.watch(move |leadership| told.send(leadership.ended.clone()).is_ok());
        assert_eq!(member.propose(1).await, Ok(1));
        assert_eq!(member.propose(1).await, Err(ProposeError::Unknown));
        let reason = "its actor panicked".to_owned();
        assert_eq!(last.try_iter().last(), Some(Some(reason.clone())));
        assert_eq!(
            member.propose(1).await,
            Err(ProposeError::Broken { reason })
        );
    });
}
