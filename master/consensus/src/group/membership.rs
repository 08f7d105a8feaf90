//! Membership changes: one at a time, and never an unsafe one.

use super::*;
use crate::core::Unsafe;

impl Group {
    /// Adds a new member with an empty directory and promotes it.
    fn grow(&mut self, id: u64) {
        self.put(id);
        self.start(id);
        self.change(MembershipChange::AddLearner(id));
        self.change(MembershipChange::Promote(id));
    }

    fn shrink(&mut self, id: u64) {
        if self.elect() == id {
            let to = self
                .running()
                .into_iter()
                .find(|other| *other != id && self.status(id).members.voters.contains(other))
                .unwrap();
            // The message to the next leader may be lost, so repeat the transfer.
            self.until("another leader", 100, |group| {
                if group.leader() == Some(id) {
                    let _ = group.replica(id).transfer(to);
                    group.pump(id);
                }
                group.leader().is_some_and(|leader| leader != id)
            });
        }
        self.change(MembershipChange::Remove(id));
        self.ticks(5);
        self.members.remove(&id);
    }

    fn voters(&self) -> Vec<u64> {
        self.status(self.leader().unwrap()).members.voters
    }

    fn refusal(&mut self, change: MembershipChange) -> Unsafe {
        let leader = self.elect();
        match self.replica(leader).change(&change) {
            Err(Rejected::Unsafe(reason)) => reason,
            other => panic!("{change:?}: {other:?}"),
        }
    }
}

#[test]
fn group_grows_and_shrinks_under_load() {
    for seed in 50..54 {
        let mut group = Group::new(seed, 1);
        if seed > 51 {
            group.faults = Faults {
                loss: 10,
                twice: 5,
                delay: 2,
                disk: 2,
            };
        }
        for id in 2..=5 {
            group.commit(30);
            group.grow(id);
        }
        assert_eq!(group.voters(), [1, 2, 3, 4, 5]);
        for id in [1, 4] {
            group.commit(10);
            group.shrink(id);
        }
        group.commit(10);
        assert_eq!(group.voters(), [2, 3, 5]);
        // Membership survives a restart of all.
        for id in [2, 3, 5] {
            group.power_off(id);
        }
        group.settle();
        assert_eq!(group.voters(), [2, 3, 5]);
    }
}

#[test]
fn one_change_swaps_two_members() {
    let mut group = Group::new(55, 3);
    group.commit(60);
    let leader = group.elect();
    for id in [4, 5] {
        group.put(id);
        group.start(id);
        group.change(MembershipChange::AddLearner(id));
    }
    group.ticks(30);
    let leaving: Vec<u64> = [1, 2, 3].into_iter().filter(|id| *id != leader).collect();
    group.change(MembershipChange::Swap {
        promote: vec![4, 5],
        remove: leaving.clone(),
    });
    group.until("the end of the joint change", 60, |group| {
        let members = group.status(leader).members;
        members.voters_outgoing.is_empty() && members.voters.contains(&5)
    });
    for id in leaving {
        group.members.remove(&id);
    }
    let mut expected = vec![leader, 4, 5];
    expected.sort_unstable();
    assert_eq!(group.voters(), expected);
    group.settle();
}

#[test]
fn change_that_loses_the_quorum_is_refused() {
    let mut group = Group::new(56, 1);
    group.commit(1);
    assert_eq!(group.refusal(MembershipChange::Remove(1)), Unsafe::Leads(1));
    assert_eq!(
        group.refusal(MembershipChange::Remove(2)),
        Unsafe::NotMember(2)
    );
    assert_eq!(
        group.refusal(MembershipChange::AddLearner(0)),
        Unsafe::Id(0)
    );
    assert_eq!(
        group.refusal(MembershipChange::AddLearner(1)),
        Unsafe::Member(1)
    );
    assert_eq!(
        group.refusal(MembershipChange::Promote(2)),
        Unsafe::NotLearner(2)
    );

    let mut group = Group::new(57, 3);
    group.commit(1);
    group.ticks(5);
    let leader = group.elect();
    let others: Vec<u64> = [1, 2, 3].into_iter().filter(|id| *id != leader).collect();
    group.power_off(others[0]);
    group.ticks(30);
    let reason = group.refusal(MembershipChange::Remove(others[1]));
    assert_eq!(
        reason,
        Unsafe::NoQuorum {
            voters: 2,
            alive: 1,
            needed: 2
        }
    );
    // The stopped one may be removed.
    group.change(MembershipChange::Remove(others[0]));
    group.members.remove(&others[0]);
    group.settle();
}

#[test]
fn lagging_or_silent_learner_is_not_promoted() {
    let settings = Settings {
        promote_lag_max: 5,
        ..Settings::default()
    };
    let mut group = Group::with(58, 3, settings, Policy::default());
    group.commit(20);
    group.change(MembershipChange::AddLearner(4));
    assert_eq!(
        group.refusal(MembershipChange::Promote(4)),
        Unsafe::Silent(4)
    );
    group.put(4);
    group.start(4);
    group.commit(3);
    group.ticks(20);
    group.isolate(&[4]);
    group.commit(1);
    let leader = group.elect();
    for _ in 0..20 {
        group.propose(leader).unwrap();
    }
    group.pump(leader);
    let reason = group.refusal(MembershipChange::Promote(4));
    assert_matches!(reason, Unsafe::Lags { id: 4, max: 5, .. });
    group.ticks(30);
    assert_eq!(
        group.refusal(MembershipChange::Promote(4)),
        Unsafe::Silent(4)
    );
    group.cut.clear();
    group.change(MembershipChange::Promote(4));
    group.settle();
}

#[test]
fn a_second_change_waits_for_the_first() {
    let mut group = Group::new(59, 3);
    group.commit(1);
    let leader = group.elect();
    group
        .replica(leader)
        .change(&MembershipChange::AddLearner(4))
        .unwrap();
    assert_eq!(
        group.refusal(MembershipChange::AddLearner(5)),
        Unsafe::Pending
    );
    group.pump(leader);
    group.ticks(10);
    group.change(MembershipChange::AddLearner(5));
    group.settle();
}

#[test]
fn wiped_member_returns_under_a_new_id() {
    let (mut group, _, wiped) = led(60, 30);
    group.members.remove(&wiped);
    // Its directory is empty and it has a new id: it is no candidate before it is added.
    group.put(9);
    group.start(9);
    group.ticks(100);
    assert_eq!(group.status(9).now.role, Role::Follower);
    assert_eq!(group.status(9).now.term, 0, "it started no election");
    group.change(MembershipChange::AddLearner(9));
    group.change(MembershipChange::Remove(wiped));
    group.change(MembershipChange::Promote(9));
    group.settle();
    let mut expected: Vec<u64> = [1, 2, 3, 9].into_iter().filter(|id| *id != wiped).collect();
    expected.sort_unstable();
    assert_eq!(group.voters(), expected);
}

#[test]
fn member_removed_while_down_disturbs_no_one() {
    let (mut group, leader, gone) = led(61, 5);
    group.power_off(gone);
    group.ticks(30);
    group.change(MembershipChange::Remove(gone));
    let term = group.status(leader).now.term;
    group.start(gone);
    group.ticks(200);
    assert_eq!(
        (group.leader(), group.status(leader).now.term),
        (Some(leader), term)
    );
    group.commit(1);
    group.members.remove(&gone);
    group.settle();
}

#[test]
fn applied_members_survive_a_lost_commit_index() {
    // A crash loses an unwritten commit index, but never a change of members.
    for seed in 70..90 {
        let mut group = Group::new(seed, 3);
        group.commit(5);
        group.change(MembershipChange::AddLearner(4));
        group.put(4);
        group.start(4);
        group.change(MembershipChange::Promote(4));
        group.ticks(seed % 4);
        let knew: Vec<(u64, Members)> = group
            .running()
            .into_iter()
            .map(|id| (id, group.status(id).members))
            .collect();
        for id in group.running() {
            group.restart(id);
            group.pump(id);
        }
        for (id, members) in knew {
            assert_eq!(group.status(id).members, members, "member {id}");
        }
        group.settle();
    }
}
