//! Reads from a lease: a leader that nobody hears any more answers none once another may lead. What a read must see is checked where it is
//! answered.

use super::*;

/// Three members that read from leases, and the leader has one; then so many ticks pass, with reads that keep it.
fn leased(seed: u64, ticks: u64) -> (Group, u64) {
    let settings = Settings {
        lease_reads: true,
        ..Settings::default()
    };
    let mut group = Group::with(seed, 3, settings, Policy::default());
    group.commit(1);
    group.ticks(20);
    let leader = group.elect();
    for _ in 0..ticks {
        group.read(leader);
        group.tick();
    }
    (group, leader)
}

/// The old leader is asked all the time, while any other commits what it can. How many reads the old one answered, and how many
/// commits there were before it led no more.
fn ask_the_old_one(group: &mut Group, old: u64) -> (usize, usize) {
    let (mut reads, mut commits) = (0, 0);
    for _ in 0..40 {
        let others: Vec<u64> = group.up().into_iter().filter(|id| *id != old).collect();
        for other in others {
            if group.status(other).now.role == Role::Leader {
                let _ = group.propose(other);
                group.pump(other);
            }
        }
        group.read(old);
        group.pump(old);
        let answered = group.reads.drain(..).filter(Result::is_ok).count();
        if group.status(old).now.role == Role::Leader {
            reads += answered;
            commits = group.acknowledged.len();
        }
        group.tick();
    }
    (reads, commits)
}

#[test]
fn whenever_a_leader_is_cut_off_its_lease_is_over_before_another_leads() {
    let (mut reads, mut raced) = (0, 0);
    for seed in 0..60 {
        let (mut group, old) = leased(300 + seed, seed % 20);
        let before = group.acknowledged.len();
        group.isolate(&[old]);
        let (answered, commits) = ask_the_old_one(&mut group, old);
        reads += answered;
        raced += usize::from(commits > before);
        group.settle();
    }
    assert!(reads > 60, "{reads} reads from leases");
    assert!(
        raced > 5,
        "another committed in only {raced} runs while the old one led"
    );
}

/// What it had promised the leader was in its memory only.
#[test]
fn a_member_that_starts_again_does_not_elect_another_before_the_lease_is_over() {
    let mut reads = 0;
    for seed in 0..60 {
        let (mut group, old) = leased(400 + seed, 3);
        let others: Vec<u64> = [1, 2, 3].into_iter().filter(|id| *id != old).collect();
        // One hears the leader no more, wants to lead, and gets no vote of the other.
        group.cut.insert((old, others[0]));
        group.cut.insert((others[0], old));
        for _ in 0..15 + seed % 15 {
            group.read(old);
            group.tick();
        }
        assert_eq!(group.leader(), Some(old));
        group.isolate(&[old]);
        group.restart(others[1]);
        reads += ask_the_old_one(&mut group, old).0;
        group.settle();
    }
    assert!(reads > 60, "{reads} reads from leases");
}

#[test]
fn a_leader_that_hands_over_answers_nothing_from_a_lease() {
    for seed in 0..20 {
        let (mut group, old) = leased(500 + seed, 3);
        let to = if old == 1 { 2 } else { 1 };
        group.ticks(1);
        group.reads.clear();
        group.read(old);
        group.pump(old);
        assert_eq!(
            group.reads.drain(..).filter(Result::is_ok).count(),
            1,
            "it had one"
        );
        group.replica(old).transfer(to).unwrap();
        group.read(old);
        group.pump(old);
        assert!(group.reads.is_empty());
        group.until("the new leader", 5, |group| group.leader() == Some(to));
        group.settle();
    }
}
