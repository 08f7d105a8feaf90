//! A follower that is too far behind gets the state itself.

use super::*;
use crate::core::PeerState;

/// A follower that slept through what was compacted, and a state of about a megabyte.
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
    group.fall(follower);
    for _ in 0..100 {
        let (ticket, _) = group.propose_large(leader, 10 << 10).unwrap();
        group.pump(leader);
        group.until("one more", 20, |group| group.ends.contains_key(&ticket));
    }
    assert!(group.status(leader).first > 50, "the log was compacted");
    (group, leader, follower)
}

/// The same when so many ticks have at most passed and the follower has more than so many bytes of it.
fn under_way(seed: u64, bytes: u64, ticks: u64) -> (Group, u64, u64) {
    let (mut group, leader, follower) = far_behind(seed);
    group.start(follower);
    group.weather.delay = 2;
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
fn a_follower_far_behind_gets_a_snapshot_in_pieces() {
    let (mut group, _, follower) = under_way(31, 100_000, 60);
    group.until("all of it", 400, |group| {
        group.status(follower).applied >= 100
    });
    group.settle();
    assert!(group.members[&follower].twin.disk().snapshot.index > 50);
}

#[test]
fn a_lost_connection_in_the_middle_of_a_snapshot_costs_only_what_was_on_its_way() {
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

/// Found by a rehearsal of a group (seed 263): a leader that had no way to the follower took its next turn at once, and never another.
#[test]
fn a_follower_that_cannot_be_reached_is_sent_to_once_a_tick() {
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
fn a_snapshot_that_stands_still_is_given_up_and_goes_on_where_it_was() {
    let (mut group, leader, follower) = under_way(33, 500_000, 400);
    // Longer than the transfer's patience: raft is told that it failed, and does not wait for ever.
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
fn a_new_leader_goes_on_with_the_same_snapshot_or_sends_its_own() {
    for seed in 34..44 {
        let (mut group, leader, _) = under_way(seed, 300_000, 400);
        group.fall(leader);
        group.ticks(100);
        group.settle();
    }
}

#[test]
fn a_follower_that_falls_while_it_takes_a_snapshot_begins_again() {
    let (mut group, leader, follower) = far_behind(45);
    group.start(follower);
    group.weather.delay = 2;
    for bytes in [100_000, 300_000, 600_000] {
        group.until("a part of it", 600, |group| {
            sent(group, leader, follower).is_some_and(|sent| sent > bytes)
        });
        group.restart(follower);
    }
    group.settle();
}

#[test]
fn a_lossy_network_delivers_a_snapshot_all_the_same() {
    let (mut group, leader, follower) = far_behind(46);
    group.weather = Weather {
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
