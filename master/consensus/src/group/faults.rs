//! Single faults: a crash of the leader at every step of an operation, one-way links, a flapping
//! follower.

use super::*;
use crate::wire::{Message, MessageKind};

/// Crashes the leader after this many small actions: a turn, a sync, a packet. Returns whether it
/// crashed during the operation.
fn falls_after(actions: u64, disk: u64) -> bool {
    let mut group = Group::new(100 + actions, 3);
    group.faults.disk = disk;
    group.commit(3);
    group.ticks(20);
    let leader = group.leader().unwrap();
    group.crash_countdown = Some((leader, actions));
    let (ticket, value) = group.propose(leader).unwrap();
    group.pump(leader);
    group.until("its fall, or the end of the operation", 60, |group| {
        !group.is_up(leader) || group.ends.contains_key(&ticket)
    });
    let fell = !group.is_up(leader);
    group.crash_countdown = None;
    group.ticks(60);
    // The proposer repeats it at the new leader under the same ticket: it is applied exactly once.
    let next = group.elect();
    if group
        .replica(next)
        .propose_as(ticket, &(value, Vec::new()))
        .is_ok()
    {
        group.ends.remove(&ticket);
        group.pump(next);
        group.until("the second answer", 60, |group| {
            group.ends.contains_key(&ticket)
        });
        assert!(group.ends[&ticket].is_ok());
    }
    group.settle();
    assert_eq!(
        group.truth.iter().filter(|known| **known == value).count(),
        1
    );
    fell
}

#[test]
fn leader_crash_at_any_step_applies_once() {
    for disk in [0, 3] {
        let fell = (1..15)
            .filter(|actions| falls_after(*actions, disk))
            .count();
        assert!(
            fell >= 8,
            "with a disk of {disk} it fell only at {fell} steps"
        );
    }
}

#[test]
fn unsynced_votes_are_never_sent() {
    for seed in 0..20 {
        let mut group = Group::new(200 + seed, 3);
        group.faults.disk = 4;
        for round in 0..12 {
            group.ticks(7 + round % 5);
            let one = 1 + (seed + round) % 3;
            // It forgets unsynced data and restarts at once.
            group.restart(one);
        }
        group.settle();
    }
}

#[test]
fn leader_without_incoming_packets_steps_down() {
    let (mut group, leader, _) = led(21, 1);
    for other in [1, 2, 3].into_iter().filter(|id| *id != leader) {
        group.cut.insert((other, leader));
    }
    group.until("another leader", 100, |group| {
        group.leader().is_some_and(|now| now != leader)
    });
    group.settle();
}

#[test]
fn follower_with_broken_uplink_starts_no_election() {
    for seed in 90..95 {
        let (mut group, leader, follower) = led(seed, 1);
        let term = group.status(leader).now.term;
        group.cut.insert((follower, leader));
        for _ in 0..20 {
            group.ticks(30);
            group.commit(1);
        }
        assert_eq!(
            (group.leader(), group.status(leader).now.term),
            (Some(leader), term)
        );
        group.settle();
    }
}

#[test]
fn flapping_follower_does_not_unseat_the_leader() {
    let (mut group, leader, follower) = led(22, 1);
    let term = group.status(leader).now.term;
    for _ in 0..10 {
        group.isolate(&[follower]);
        group.ticks(60);
        group.cut.clear();
        group.commit(1);
        group.ticks(10);
    }
    assert_eq!(
        (group.leader(), group.status(leader).now.term),
        (Some(leader), term),
        "pre-vote keeps the term"
    );
    group.settle();
}

#[test]
fn late_rejection_does_not_set_the_leader_back() {
    // raft 0.7.0 moves `next` to or below the matched index on a late rejection.
    let (mut group, leader, follower) = led(23, 30);
    let term = group.status(leader).now.term;
    let matched = group.status(leader).peers[&follower].matched;
    group.replica(leader).unreachable(follower);
    let rejection = Message {
        log_term: 1,
        index: matched,
        reject: true,
        reject_hint: 2,
        ..Message::plain(MessageKind::Appended, follower, leader, term)
    };
    let refused = group
        .replica(leader)
        .step(follower, Packet::Raft(rejection))
        .unwrap_err();
    assert_matches!(refused, crate::wire::Refused::Useless { .. });
    group.commit(1);
    group.settle();
}

#[test]
fn restart_with_an_old_snapshot_catches_up() {
    let (mut group, _, follower) = led(24, 50);
    group.power_off(follower);
    let snapshot = group.members[&follower].memory_log.disk.snapshot.index;
    group.commit(150);
    group.start(follower);
    group.ticks(60);
    assert!(group.status(follower).snapshot > snapshot + 50);
    group.settle();
}
