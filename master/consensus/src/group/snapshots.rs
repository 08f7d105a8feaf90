//! Snapshots for followers that lag too far.

use super::*;
use crate::core::PeerState;

/// A follower that was down during a compaction, and a state of about a megabyte.
fn far_behind(seed: u64) -> (Group, u64, u64) {
    let settings = Settings {
        chunk_bytes: 8 << 10,
        chunk_window: 2,
        ..Settings::default()
    };
    let policy = Policy {
        snapshot_entries: 40,
        keep_entries: 5,
        ..Policy::default()
    };
    let mut group = Group::with(seed, 3, settings, policy);
    let leader = group.elect();
    group.ticks(5);
    let follower = if leader == 1 { 2 } else { 1 };
    group.power_off(follower);
    for _ in 0..100 {
        let (ticket, _) = group.propose_large(leader, 10 << 10).unwrap();
        group.pump(leader);
        group.until("one more", 20, |group| group.ends.contains_key(&ticket));
    }
    assert!(group.status(leader).first > 50, "the log was compacted");
    (group, leader, follower)
}

/// The same, once the follower has more than this many bytes of the snapshot, within `ticks`.
fn under_way(seed: u64, bytes: u64, ticks: u64) -> (Group, u64, u64) {
    let (mut group, leader, follower) = far_behind(seed);
    group.start(follower);
    group.faults.delay = 2;
    group.until("a part of it", ticks, |group| {
        sent(group, leader, follower).is_some_and(|sent| sent > bytes)
    });
    (group, leader, follower)
}

fn sent(group: &Group, leader: u64, follower: u64) -> Option<u64> {
    match group.status(leader).peers[&follower].state {
        PeerState::Snapshot { sent, .. } => Some(sent),
        _ => None,
    }
}

#[test]
fn lagging_follower_gets_a_snapshot_in_chunks() {
    let (mut group, _, follower) = under_way(31, 100_000, 60);
    group.until("all of it", 400, |group| {
        group.status(follower).applied >= 100
    });
    group.settle();
    assert!(group.members[&follower].memory_log.disk.snapshot.index > 50);
}

#[test]
fn lost_connection_resumes_the_snapshot() {
    let (mut group, leader, follower) = under_way(32, 500_000, 400);
    let before = sent(&group, leader, follower).unwrap();
    group.isolate(&[follower]);
    group.ticks(8);
    group.replica(leader).unreachable(follower);
    group.cut.clear();
    for _ in 0..100 {
        group.tick();
        match sent(&group, leader, follower) {
            Some(now) => assert!(now >= before, "it began again: {now} after {before}"),
            None => break,
        }
    }
    group.settle();
}

/// Regression (simulation seed 263): a leader without a link to the follower took turns in an
/// endless loop.
#[test]
fn unreachable_follower_gets_one_attempt_per_tick() {
    let (mut group, leader, _) = under_way(45, 100_000, 60);
    let replica = group.replica(leader);
    for _ in 0..3 {
        replica.tick();
        let mut turns = 0;
        while let Some(step) = replica.turn().unwrap() {
            turns += 1;
            assert!(turns < 10, "there is always something to send");
            for (to, _) in step.packets {
                replica.unreachable(to);
            }
        }
    }
}

#[test]
fn stalled_snapshot_resumes_where_it_was() {
    let (mut group, leader, follower) = under_way(33, 500_000, 400);
    // Longer than the transfer's time limit: raft learns of the failure and does not wait forever.
    group.isolate(&[follower]);
    group.ticks(group.settings.transfer_ticks_max + 10);
    assert_eq!(
        sent(&group, leader, follower),
        None,
        "the leader probes again"
    );
    group.cut.clear();
    group.until("it goes on", 100, |group| {
        sent(group, leader, follower).is_some_and(|sent| sent > 0)
    });
    assert!(
        sent(&group, leader, follower).unwrap() > 400_000,
        "what had arrived was kept"
    );
    group.settle();
}

#[test]
fn new_leader_continues_the_snapshot() {
    for seed in 34..44 {
        let (mut group, leader, _) = under_way(seed, 300_000, 400);
        group.power_off(leader);
        group.ticks(100);
        group.settle();
    }
}

#[test]
fn crashed_follower_restarts_the_snapshot() {
    let (mut group, leader, follower) = far_behind(45);
    group.start(follower);
    group.faults.delay = 2;
    for bytes in [100_000, 300_000, 600_000] {
        group.until("a part of it", 600, |group| {
            sent(group, leader, follower).is_some_and(|sent| sent > bytes)
        });
        group.restart(follower);
    }
    group.settle();
}

#[test]
fn snapshot_survives_a_lossy_network() {
    let (mut group, leader, follower) = far_behind(46);
    group.faults = Faults {
        loss: 20,
        twice: 20,
        delay: 4,
        disk: 3,
    };
    group.start(follower);
    group.until("all of it", 4_000, |group| {
        group.status(follower).applied >= 100
    });
    assert!(group.is_up(leader));
    group.settle();
}
