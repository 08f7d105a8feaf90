//! Who sits where: founding, joining, and directories that were wiped.

use super::*;
use crate::core::MembershipChange;

#[test]
fn a_group_is_founded_once_however_late_its_members_come() {
    rehearse_network(|network| async move {
        let mut cluster = Cluster::of(network, &["a", "b", "c"]);
        cluster.start("b");
        cluster.wait(5_000).await;
        let waits = cluster.status("b").await.waiting.unwrap();
        assert_eq!(
            waits,
            "founding a group needs 2 others, 0 are there: waiting for a, c"
        );
        cluster.start("a");
        cluster.wait(5_000).await;
        assert!(cluster.status("a").await.identity.is_none());
        cluster.start("c");
        let leader = cluster.leader().await;
        cluster.wait(2_000).await;
        let roster = cluster.status(&leader).await.roster;
        let seats: Vec<(u64, &str)> = (roster.seats.iter())
            .map(|(id, seat)| (*id, seat.address.as_str()))
            .collect();
        assert_eq!(seats, [(1, "a"), (2, "b"), (3, "c")]);
        assert!(roster.seats.values().all(|seat| seat.mark != 0));
    });
}

#[test]
fn the_order_of_the_list_does_not_matter_and_another_list_is_another_group() {
    rehearse_network(|network| async move {
        let mut cluster = Cluster::of(network, &["a", "b"]);
        cluster.start("a");
        cluster.start_with(Settings::new("b", &["b", "a"]));
        let leader = cluster.leader().await;
        assert!(cluster.propose(&leader, 1).await.is_ok());
    });
    rehearse_network(|network| async move {
        let mut cluster = Cluster::of(network, &["a", "b"]);
        cluster.start("a");
        cluster.start_with(Settings::new("b", &["a", "b", "c"]));
        cluster.wait(2_000).await;
        let waits = cluster.status("a").await.waiting.unwrap();
        assert_eq!(waits, "b was started with another --initial_masters");
    });
}

#[test]
fn a_founder_that_comes_after_the_first_election_still_gets_its_seat() {
    rehearse_network(|network| async move {
        let mut cluster = Cluster::of(network, &["a", "b", "c", "d", "e"]);
        for name in ["a", "b", "c", "d"] {
            cluster.start(name);
        }
        let leader = cluster.leader().await;
        cluster.propose(&leader, 7).await.unwrap();
        cluster.start("e");
        cluster.wait(3_000).await;
        assert_eq!(cluster.values("e").await, [7]);
        let status = cluster.status("e").await;
        assert_eq!(status.identity.unwrap().id, 5);
        assert!(status.roster.seats[&5].mark > roster::FOUNDER);
    });
}

#[test]
fn a_founder_that_is_wiped_before_its_seat_was_noted_is_refused_by_whoever_heard_it() {
    rehearse_network(|network| async move {
        let (mut cluster, leader) = Cluster::three(network).await;
        let wiped = cluster.others(&leader)[0].clone();
        cluster.fall(&wiped).await;
        cluster.wipe(&wiped);
        cluster.start(&wiped);
        cluster.wait(2_000).await;
        let reason = cluster.members[&wiped].ended().unwrap();
        assert!(reason.contains("meros masters remove"), "{reason}");
    });
}

#[test]
fn a_wiped_member_is_refused_and_told_what_to_do() {
    rehearse_network(|network| async move {
        let (mut cluster, leader) = Cluster::three(network).await;
        cluster.propose(&leader, 1).await.unwrap();
        cluster.wait(2_000).await;
        let wiped = cluster.others(&leader)[0].clone();
        let id = cluster.status(&wiped).await.identity.unwrap().id;
        cluster.fall(&wiped).await;
        cluster.wipe(&wiped);
        cluster.start(&wiped);
        cluster.wait(3_000).await;
        let reason = cluster.members[&wiped].ended().unwrap();
        let advice = format!("`meros masters remove {id}`, and then `meros masters add {wiped}`");
        assert!(reason.contains(&advice), "{reason}");
        // And that is what helps.
        let member = &cluster.members[&leader];
        member.remove(id).await.unwrap();
        cluster.members.remove(&wiped);
        let added = cluster.members[&leader].add(&wiped).await.unwrap();
        assert_eq!(added, 4);
        let node = cluster.nodes.remove(&wiped).unwrap();
        node.shutdown().await;
        cluster.start(&wiped);
        cluster.wait(3_000).await;
        let promoted = cluster.members[&leader].change(MembershipChange::Promote(added));
        let mut voters = promoted.await.unwrap().voters;
        voters.sort_unstable();
        assert_eq!(voters.len(), 3);
        assert_eq!(cluster.values(&wiped).await, [1]);
    });
}

#[test]
fn a_member_whose_directory_is_an_old_copy_ends_as_soon_as_its_leader_speaks_to_it() {
    rehearse_network(|network| async move {
        let (mut cluster, leader) = Cluster::three(network).await;
        cluster.propose(&leader, 1).await.unwrap();
        cluster.wait(2_000).await;
        let restored = cluster.others(&leader)[0].clone();
        let copy = cluster.disks[&restored].copy();
        cluster.propose(&leader, 2).await.unwrap();
        cluster.wait(2_000).await;
        cluster.fall(&restored).await;
        cluster.disks.insert(restored.clone(), copy);
        cluster.start(&restored);
        cluster.wait(3_000).await;
        let reason = cluster.members[&restored].ended().unwrap();
        assert!(reason.contains("an old copy was put back"), "{reason}");
        assert_eq!(cluster.values(&leader).await, [1, 2]);
    });
}

#[test]
fn a_member_that_was_away_for_long_is_no_old_copy() {
    rehearse_network(|network| async move {
        let (mut cluster, leader) = Cluster::three(network).await;
        let away = cluster.others(&leader)[0].clone();
        cluster.fall(&away).await;
        for value in 1..=20 {
            cluster.propose(&leader, value).await.unwrap();
        }
        cluster.start(&away);
        cluster.wait(3_000).await;
        assert_eq!(cluster.values(&away).await.len(), 20);
    });
}

#[test]
fn a_wiped_member_waits_while_no_leader_can_tell_whether_it_voted() {
    rehearse_network(|network| async move {
        let (mut cluster, _) = Cluster::three(network).await;
        cluster.wait(2_000).await;
        for name in ["a", "b"] {
            cluster.fall(name).await;
            cluster.wipe(name);
            cluster.start(name);
        }
        cluster.wait(20_000).await;
        for name in ["a", "b"] {
            let waits = cluster.status(name).await.waiting.unwrap();
            assert_eq!(waits, "the group at c lives: waiting for its leader");
        }
    });
}

#[test]
fn a_new_master_waits_for_its_seat_gets_it_and_leads_in_the_end() {
    rehearse_network(|network| async move {
        let (mut cluster, leader) = Cluster::three(network).await;
        for value in 0..10 {
            cluster.propose(&leader, value).await.unwrap();
        }
        cluster.start("d");
        cluster.wait(2_000).await;
        let waits = cluster.status("d").await.waiting.unwrap();
        assert!(
            waits.ends_with("has no seat for d: run `meros masters add d`"),
            "{waits}"
        );
        let id = cluster.members[&leader].add("d").await.unwrap();
        assert_eq!(
            cluster.members[&leader].add("d").await,
            Ok(id),
            "said again"
        );
        cluster.wait(3_000).await;
        let promote = cluster.members[&leader].change(MembershipChange::Promote(id));
        assert!(promote.await.unwrap().voters.contains(&id));
        cluster.members[&leader].transfer(id).await.unwrap();
        cluster.wait(1_000).await;
        assert_eq!(cluster.leader().await, "d");
        assert_eq!(cluster.values("d").await, (0..10).collect::<Vec<_>>());
        // It goes on from its own directory, whatever its list says.
        cluster.fall("d").await;
        cluster.start_with(Settings::new("d", &["nobody"]));
        cluster.wait(3_000).await;
        assert_eq!(cluster.values("d").await, (0..10).collect::<Vec<_>>());
    });
}

#[test]
fn a_directory_whose_founding_was_cut_short_still_counts_as_empty() {
    rehearse_network(|network| async move {
        for kept in 0..=2 {
            let mut cluster = Cluster::of(network.clone(), &["a"]);
            let disk = ForgetfulLogDisk::new();
            disk.pretend_to_sync(true);
            cluster.disks.insert("a".to_owned(), disk.clone());
            cluster.start("a");
            cluster.clock.settle().await;
            cluster.nodes["a"].stop_now(&cluster.members["a"].pid());
            disk.pretend_to_sync(false);
            disk.crash_keeping(kept);
            cluster.start("a");
            let leader = cluster.leader().await;
            assert_eq!(cluster.propose(&leader, 1).await, Ok(1), "{kept} writes");
            cluster.fall("a").await;
        }
    });
}

#[test]
fn a_master_that_was_removed_ends_whether_it_was_there_or_is_told_when_it_comes_back() {
    for there in [true, false] {
        rehearse_network(|network| async move {
            let (cluster, leader) = Cluster::three(network).await;
            cluster.wait(2_000).await;
            let removed = cluster.others(&leader)[0].clone();
            let id = cluster.status(&removed).await.identity.unwrap().id;
            if !there {
                cluster.isolate(&removed);
            }
            cluster.members[&leader].remove(id).await.unwrap();
            cluster.wait(2_000).await;
            assert_eq!(cluster.members[&removed].ended().is_some(), there);
            cluster.reunite(&removed);
            cluster.wait(3_000).await;
            let reason = cluster.members[&removed].ended().unwrap();
            assert!(reason.starts_with("this master was removed"), "{reason}");
            for name in cluster.others(&removed) {
                assert_eq!(cluster.members[&name].ended(), None);
            }
        });
    }
}

#[test]
fn it_works_on_the_real_form_of_the_log_too() {
    rehearse_network(|network| async move {
        let disk = storage::forgetful::ForgetfulDisk::new();
        for expected in 1..=3 {
            let node = network.node("a", Role::Master, &[Role::Master]);
            let log = StoredLog::over(disk.open().unwrap());
            let settings = Settings::new("a", &["a"]);
            let member = start(&node, settings, Box::new(log), Ledger::default()).unwrap();
            node.clock().advance(Duration::from_secs(2)).await;
            let answer = member.propose((1, vec![1; 100])).await;
            assert_eq!(answer, Ok(expected), "{:?}", member.ended());
            member.retire().await;
            node.clock().settle().await;
            disk.crash();
        }
    });
}

#[test]
fn an_empty_directory_without_a_list_is_told_what_is_missing() {
    rehearse_network(|network| async move {
        let mut cluster = Cluster::of(network, &[]);
        cluster.start("a");
        cluster.clock.settle().await;
        let reason = cluster.members["a"].ended().unwrap();
        assert!(
            reason.contains("--initial_masters names nobody"),
            "{reason}"
        );
    });
}

#[test]
fn packets_of_another_group_are_not_believed() {
    rehearse_network(|network| async move {
        let (cluster, leader) = Cluster::three(network).await;
        let stranger = cluster.network.node("x", Role::Master, &[Role::Master]);
        let patience = Duration::from_secs(1);
        let pid = stranger.find(&leader, NAME, patience).await.unwrap();
        let before = cluster.status(&leader).await;
        let packet = Packet::Raft(crate::wire::Message {
            kind: crate::wire::MessageKind::Append,
            to: before.identity.unwrap().id,
            from: 9,
            term: 1 << 40,
            log_term: 0,
            index: 0,
            entries: Vec::new(),
            commit: 0,
            commit_term: 0,
            reject: false,
            reject_hint: 0,
            context: Vec::new(),
        });
        let said = PacketSent {
            group: 1,
            from: 9,
            address: "x".to_owned(),
            reads: FIRST_FORM,
            packet,
        };
        stranger.tell(&pid, said).unwrap();
        cluster.clock.settle().await;
        let after = cluster.status(&leader).await;
        assert_eq!(after.counts.unbelieved, before.counts.unbelieved + 1);
        assert_eq!(after.now(), before.now());
    });
}
