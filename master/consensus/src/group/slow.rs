//! Disks slower than an election: they delay answers but do not end the leadership, unless they
//! hang.

use super::*;

/// Ticks of one write: more than three election timeouts.
const SLOW: u64 = 70;

/// A group with an established leader, and its followers.
fn calm(seed: u64) -> (Group, u64, Vec<u64>) {
    let (mut group, leader, _) = led(seed, 3);
    group.ticks(15);
    let followers = (1..=3).filter(|id| *id != leader).collect();
    (group, leader, followers)
}

/// Proposes every tick, and checks that the leader exchanges messages with all others.
fn nobody_is_silent(group: &mut Group, leader: u64, ticks: u64) {
    let term = group.status(leader).now.term;
    for _ in 0..ticks {
        let _ = group.propose(leader);
        group.pump(leader);
        group.tick();
        for id in 1..=3 {
            let now = group.status(id).now;
            assert_eq!((now.leader, now.term), (Some(leader), term));
        }
        let silent = |peer: &crate::core::Peer| peer.silent.unwrap() > 4;
        assert!(!group.status(leader).peers.values().any(silent));
    }
}

#[test]
fn leader_with_a_slow_disk_keeps_leading() {
    for seed in 50..55 {
        let (mut group, leader, followers) = calm(seed);
        group.slow.insert(leader, SLOW);
        nobody_is_silent(&mut group, leader, 10 * SLOW);
        let done = group.ends.values().filter(|end| end.is_ok()).count() as u64;
        assert!(done > 7 * SLOW, "{done} of {} were answered", 10 * SLOW);
        // Entries reach the followers before the leader's own disk.
        let last = group.status(leader).last;
        let of_its_own = group.members[&leader].memory_log.last();
        assert!(of_its_own + 10 < last);
        for follower in followers {
            assert!(group.members[&follower].memory_log.last() + 3 > last);
        }
        group.settle();
    }
}

#[test]
fn follower_with_a_slow_disk_delays_no_commit() {
    for seed in 60..65 {
        let (mut group, leader, followers) = calm(seed);
        group.slow.insert(followers[0], SLOW);
        let before = group.acknowledged.len();
        nobody_is_silent(&mut group, leader, 10 * SLOW);
        let done = (group.acknowledged.len() - before) as u64;
        assert!(done > 9 * SLOW, "{done} of {} were answered", 10 * SLOW);
        group.settle();
    }
}

#[test]
fn slow_disks_batch_more_per_write() {
    let (mut group, leader, _) = calm(70);
    for id in 1..=3 {
        group.slow.insert(id, SLOW);
    }
    let writes = group.members[&leader].memory_log.writes;
    nobody_is_silent(&mut group, leader, 10 * SLOW);
    assert!(group.members[&leader].memory_log.writes - writes <= 11);
    let done = group.ends.values().filter(|end| end.is_ok()).count() as u64;
    assert!(done > 6 * SLOW, "{done} of {} were answered", 10 * SLOW);
    group.settle();
}

#[test]
fn crashes_with_slow_disks_lose_nothing() {
    for seed in 80..110 {
        let (mut group, leader, followers) = calm(seed);
        for id in 1..=3 {
            let ticks = group.rng.random_range(0..SLOW);
            group.slow.insert(id, ticks);
        }
        for round in 0..6 {
            for _ in 0..group.rng.random_range(1..50) {
                if let Some(leader) = group.leader() {
                    let _ = group.propose(leader);
                    group.pump(leader);
                }
                group.tick();
            }
            match round % 3 {
                0 => group.restart(leader),
                1 => group.restart(followers[0]),
                _ => group.isolate(&[followers[1]]),
            }
            if round % 3 == 1 {
                group.cut.clear();
            }
        }
        group.settle();
    }
}

/// Longer than a test.
const HANGS: u64 = 100_000;

/// Proposes at the present leader for this many ticks. Returns the leader afterwards.
fn go_on(group: &mut Group, ticks: u64) -> Option<u64> {
    for _ in 0..ticks {
        if let Some(leader) = group.leader() {
            let _ = group.propose(leader);
            group.pump(leader);
        }
        group.tick();
    }
    group.leader()
}

#[test]
fn leader_with_a_hung_disk_hands_over() {
    for seed in 130..140 {
        let (mut group, old, _) = calm(seed);
        let hangs = 10 * group.settings.election_ticks as u64;
        group.slow.insert(old, HANGS);
        let term = group.status(old).now.term;
        assert_eq!(go_on(&mut group, hangs - 5), Some(old), "it may come back");
        let before = group.acknowledged.len();
        let next = go_on(&mut group, 15).unwrap();
        assert_ne!(next, old);
        assert_eq!(group.status(next).now.term, term + 1, "no other candidate");
        go_on(&mut group, 50);
        assert!(group.acknowledged.len() >= before + 40);
        // It neither acknowledges nor campaigns while isolated.
        group.isolate(&[old]);
        go_on(&mut group, 100);
        group.cut.clear();
        assert_eq!(go_on(&mut group, 50), Some(next));
        assert_eq!(group.status(next).now.term, term + 1);
        let hangs = group.status(old).disk_hangs;
        assert!(hangs.is_some_and(|ticks| ticks > 200), "{hangs:?}");
        group.until_disk_answers(old);
        assert_eq!(group.status(old).disk_hangs, None);
        group.settle();
    }
}

#[test]
fn reads_report_a_hung_disk() {
    let (mut group, old, _) = calm(141);
    group.slow.insert(old, HANGS);
    let _ = group.propose(old);
    group.pump(old);
    group.ticks(3);
    group.read(old);
    group.pump(old);
    group.ticks(group.settings.read_ticks_max + 5);
    let refused = group.reads.last();
    assert_matches!(refused, Some(Err(Rejected::DiskHangs { ticks })) if *ticks >= 100);
    group.until_disk_answers(old);
    group.settle();
}

#[test]
fn no_handover_without_a_majority_ahead() {
    let (mut group, old, followers) = calm(150);
    let term = group.status(old).now.term;
    group.slow.insert(old, HANGS);
    group.slow.insert(followers[0], HANGS);
    assert_eq!(go_on(&mut group, 400), Some(old));
    assert_eq!(group.status(old).now.term, term);
    group.until_disk_answers(followers[0]);
    let next = go_on(&mut group, 50).unwrap();
    assert_ne!(next, old);
    group.until_disk_answers(old);
    group.settle();
}

/// Five members whose leader's disk has hung for almost the limit. The others have the whole log.
/// Returns the leader and its first successor.
fn about_to_hand_over(seed: u64) -> (Group, u64, u64) {
    let mut group = Group::new(seed, 5);
    group.commit(3);
    group.ticks(20);
    let old = group.leader().unwrap();
    group.slow.insert(old, HANGS);
    go_on(&mut group, 3);
    group.ticks(10 * group.settings.election_ticks as u64 - 10);
    (group, old, if old == 1 { 2 } else { 1 })
}

#[test]
fn successor_with_a_hung_disk_is_skipped() {
    for seed in 160..170 {
        let (mut group, old, first) = about_to_hand_over(seed);
        // It cannot sync the vote for itself.
        group.slow.insert(first, HANGS);
        group.ticks(60);
        let next = group.leader().unwrap();
        assert!(next != old && next != first, "{next} leads");
        group.commit(1);
        for id in [old, first] {
            group.until_disk_answers(id);
        }
        group.settle();
    }
}

#[test]
fn unreachable_successor_is_skipped() {
    for seed in 170..180 {
        let (mut group, old, first) = about_to_hand_over(seed);
        // Only its uplink works.
        group.cut.insert((old, first));
        group.ticks(60);
        let next = group.leader().unwrap();
        assert!(next != old, "seed {seed}: {next} leads");
        group.until_disk_answers(old);
        group.settle();
    }
}

/// The unacknowledged messages to a follower are bounded: it gets no more, and the others are not
/// delayed.
#[test]
fn unacknowledged_messages_are_bounded() {
    let settings = Settings {
        inflight_max: 4,
        ..Settings::default()
    };
    let mut group = Group::with(120, 3, settings, Policy::default());
    group.commit(3);
    group.ticks(20);
    let leader = group.leader().unwrap();
    let slow = if leader == 1 { 2 } else { 1 };
    let before = group.members[&slow].memory_log.last();
    group.cut.insert((slow, leader));
    for _ in 0..20 {
        group.commit(1);
    }
    group.ticks(20);
    assert_eq!(group.leader(), Some(leader));
    assert!(group.status(leader).last >= before + 20);
    assert_eq!(group.members[&slow].memory_log.last(), before + 4);
    group.settle();
}
