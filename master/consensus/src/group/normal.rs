//! Normal operation: elections, operations, reads, handover.

use super::*;

#[test]
fn three_members_elect_one_leader_and_agree() {
    let mut group = Group::new(1, 3);
    group.commit(100);
    group.settle();
    assert_eq!(group.leaders.len(), 1, "nothing disturbed the first leader");
}

#[test]
fn a_single_member_needs_nobody() {
    let mut group = Group::new(2, 1);
    group.commit(60);
    group.restart(1);
    group.settle();
    assert_eq!(group.truth.len(), 63);
}

#[test]
fn elections_depend_only_on_the_seed() {
    let run = |seed| {
        let mut group = Group::new(seed, 5);
        group.faults = Faults {
            loss: 20,
            delay: 3,
            ..Faults::default()
        };
        for _ in 0..8 {
            let leader = group.elect();
            group.ticks(3);
            group.restart(leader);
            group.ticks(40);
        }
        (group.leaders.clone(), group.delivered)
    };
    assert_eq!(run(7), run(7));
    let runs: BTreeSet<_> = (0..8).map(|seed| format!("{:?}", run(seed).0)).collect();
    assert!(runs.len() > 4, "eight seeds gave only {} runs", runs.len());
}

#[test]
fn many_proposals_between_two_turns_are_one_write() {
    let (mut group, leader, _) = led(3, 1);
    let writes = group.members[&leader].memory_log.writes;
    let tickets: Vec<Ticket> = (0..500).map(|_| group.propose(leader).unwrap().0).collect();
    group.pump(leader);
    group.until("all are applied", 50, |group| {
        tickets
            .iter()
            .all(|ticket| matches!(group.ends.get(ticket), Some(Ok(_))))
    });
    assert!(group.members[&leader].memory_log.writes - writes <= 2);
    group.settle();
}

#[test]
fn reads_on_all_members_see_acknowledged_writes() {
    let mut group = Group::new(4, 3);
    // Followers learn of commits with a delay.
    group.faults.delay = 3;
    for _ in 0..30 {
        group.commit(1);
        for id in [1, 2, 3] {
            group.read(id);
            group.read(id);
            group.pump(id);
        }
    }
    group.settle();
    assert_eq!(group.reads.len(), 180);
    assert!(group.reads.iter().all(Result::is_ok));
}

#[test]
fn early_read_waits_for_the_first_commit() {
    let mut group = Group::new(5, 3);
    group.until("a leader", 100, |group| group.leader().is_some());
    for id in [1, 2, 3] {
        group.read(id);
    }
    group.ticks(20);
    assert_eq!(group.reads.len(), 3);
    assert!(group.reads.iter().all(Result::is_ok));
}

#[test]
fn read_without_a_majority_times_out() {
    let mut group = Group::new(6, 3);
    let leader = group.elect();
    group.isolate(&[leader]);
    group.read(leader);
    group.ticks(group.settings.read_ticks_max + 1);
    assert_eq!(group.reads, [Err(Rejected::Late)]);
    group.settle();
}

#[test]
fn lease_reads_need_the_setting_and_a_valid_lease() {
    for lease_reads in [false, true] {
        let settings = Settings {
            lease_reads,
            ..Settings::default()
        };
        let mut group = Group::with(6, 3, settings, Policy::default());
        group.commit(1);
        group.ticks(5);
        let leader = group.elect();
        // There is no lease before a majority has answered.
        group.read(leader);
        group.ticks(2);
        assert_eq!(group.reads.len(), 1);
        group.reads.clear();
        group.isolate(&[leader]);
        group.read(leader);
        group.ticks(1);
        let at_once = group.reads.iter().filter(|read| read.is_ok()).count();
        assert_eq!(at_once, usize::from(lease_reads), "{lease_reads}");
        // An isolated leader steps down within two election timeouts; its lease ends before another
        // is elected.
        group.ticks(2 * group.settings.election_ticks as u64);
        assert_ne!(group.leader(), Some(leader));
        group.read(leader);
        group.ticks(group.settings.read_ticks_max + 1);
        assert_eq!(group.reads.last(), Some(&Err(Rejected::Late)));
        group.heal();
        group.settle();
    }
}

#[test]
fn proposals_are_refused_during_a_handover() {
    let (mut group, old, to) = led(8, 5);
    group.replica(old).transfer(to).unwrap();
    let refused = group.propose(old).unwrap_err();
    assert_matches!(refused, Rejected::Transferring { .. });
    group.pump(old);
    group.until("the new leader", 5, |group| group.leader() == Some(to));
    let refused = group.propose(old).unwrap_err();
    assert_eq!(refused, Rejected::NotLeader { leader: Some(to) });
    let refused = group.replica(to).transfer(9).unwrap_err();
    assert_matches!(refused, Rejected::CannotLead { to: 9, .. });
    group.settle();
}

#[test]
fn a_slow_disk_rejects_proposals_with_a_reason() {
    let settings = Settings {
        waiting_entries_max: 100,
        ..Settings::default()
    };
    let mut group = Group::with(9, 3, settings, Policy::default());
    let leader = group.elect();
    group.ticks(5);
    group.faults.disk = 8;
    let mut rejected = None;
    for _ in 0..400 {
        if let Err(error) = group.propose(leader) {
            rejected = Some(error);
            break;
        }
    }
    assert_matches!(rejected, Some(Rejected::DiskBehind { entries: 100, .. }));
    group.settle();
}

#[test]
fn uncommitted_proposals_are_bounded() {
    let settings = Settings {
        uncommitted_entries_max: 50,
        ..Settings::default()
    };
    let mut group = Group::with(10, 3, settings, Policy::default());
    let leader = group.elect();
    group.ticks(5);
    group.isolate(&[leader]);
    let taken = (0..200).filter(|_| {
        let taken = group.propose(leader).is_ok();
        group.pump(leader);
        taken
    });
    assert_eq!(taken.count(), 50);
    let large = group.propose_large(leader, 2 << 20).unwrap_err();
    assert!(matches!(large, Rejected::TooLarge { .. }), "{large}");
    group.settle();
}

#[test]
fn isolated_leader_steps_down_and_loses_its_proposals() {
    let (mut group, leader, _) = led(11, 1);
    group.isolate(&[leader]);
    let (ticket, value) = group.propose(leader).unwrap();
    group.ticks(40);
    assert_ne!(group.status(leader).now.role, Role::Leader);
    assert_ne!(group.leader(), None);
    group.cut.clear();
    group.ticks(40);
    assert_eq!(group.ends[&ticket], Err(Failed::Lost));
    group.settle();
    assert!(!group.truth.contains(&value));
}

#[test]
fn duplicate_proposal_is_applied_once() {
    let (mut group, leader, to) = led(12, 1);
    let (ticket, value) = group.propose(leader).unwrap();
    group
        .replica(leader)
        .propose_as(ticket, &(value, Vec::new()))
        .unwrap();
    group.ticks(10);
    assert!(matches!(group.ends[&ticket], Ok(Done::Applied { .. })));
    group.replica(leader).transfer(to).unwrap();
    group.ticks(10);
    group.ends.clear();
    group
        .replica(to)
        .propose_as(ticket, &(value, Vec::new()))
        .unwrap();
    group.ticks(10);
    assert!(matches!(group.ends[&ticket], Ok(Done::Before { .. })));
    group.settle();
    assert_eq!(
        group.truth.iter().filter(|known| **known == value).count(),
        1
    );
}

#[test]
fn followers_learn_commits_within_a_tick() {
    let (mut group, leader, follower) = led(13, 3);
    let propose = |group: &mut Group| {
        let (ticket, value) = group.propose(leader).unwrap();
        group.pump(leader);
        group.deliver();
        assert!(group.ends[&ticket].is_ok());
        value
    };
    let first = propose(&mut group);
    let of = |group: &mut Group, id| group.replica(id).machine().values.clone();
    assert!(!of(&mut group, follower).contains(&first));
    let second = propose(&mut group);
    assert_eq!(of(&mut group, follower).last(), Some(&first));
    group.tick();
    assert_eq!(of(&mut group, follower).last(), Some(&second));
}
