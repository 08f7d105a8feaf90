//! Lease reads: an isolated leader answers none once another may lead. Reads are checked where they
//! are answered.

use super::*;

/// Three members with lease reads and a leader with a lease, after this many ticks of reads.
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

/// Reads at the old leader continuously while others commit. Returns the number of reads that it
/// answered, and the number of commits while it still led.
fn ask_the_old_one(group: &mut Group, old: u64) -> (usize, usize) {
    let (mut reads, mut commits) = (0, 0);
    for _ in 0..40 {
        let others: Vec<u64> = group
            .running()
            .into_iter()
            .filter(|id| *id != old)
            .collect();
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
fn isolated_leaders_lease_ends_before_another_leads() {
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

/// The member's promise to the leader was only in its memory.
#[test]
fn restarted_member_respects_the_lease() {
    let mut reads = 0;
    for seed in 0..60 {
        let (mut group, old) = leased(400 + seed, 3);
        let others: Vec<u64> = [1, 2, 3].into_iter().filter(|id| *id != old).collect();
        // One member is disconnected from the leader, starts elections, and does not get the
        // other's vote.
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
fn leader_in_handover_has_no_lease() {
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
