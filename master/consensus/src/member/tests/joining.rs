//! Founding, admission, and wiped directories.

use super::*;
use crate::core::MembershipChange;
use crate::wire::{Message, MessageKind};

#[test]
fn late_members_found_one_group() {
    simulate_network(|network| async move {
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
        let address_book = cluster.status(&leader).await.address_book;
        let entries: Vec<(u64, &str)> = (address_book.entries.iter())
            .map(|(id, member)| (*id, member.address.as_str()))
            .collect();
        assert_eq!(entries, [(1, "a"), (2, "b"), (3, "c")]);
        assert!(address_book.entries.values().all(|member| member.mark != 0));
    });
}

#[test]
fn founder_order_is_irrelevant_but_the_set_counts() {
    simulate_network(|network| async move {
        let mut cluster = Cluster::of(network, &["a", "b"]);
        cluster.start("a");
        cluster.start_with(Settings::new("b", &["b", "a"]));
        let leader = cluster.leader().await;
        assert!(cluster.propose(&leader, 1).await.is_ok());
    });
    simulate_network(|network| async move {
        let mut cluster = Cluster::of(network, &["a", "b"]);
        cluster.start("a");
        cluster.start_with(Settings::new("b", &["a", "b", "c"]));
        cluster.wait(2_000).await;
        let waits = cluster.status("a").await.waiting.unwrap();
        assert_eq!(waits, "b was started with another --initial_masters");
    });
}

#[test]
fn late_founder_is_admitted() {
    simulate_network(|network| async move {
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
        assert!(status.address_book.entries[&5].mark > address_book::FOUNDER);
    });
}

#[test]
fn early_wiped_founder_is_refused() {
    simulate_three(|mut cluster, leader| async move {
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
fn wiped_member_is_refused_with_advice() {
    simulate_three(|mut cluster, leader| async move {
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
        // The advice works.
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
fn old_copy_of_a_directory_ends_the_member() {
    simulate_three(|mut cluster, leader| async move {
        cluster.propose(&leader, 1).await.unwrap();
        cluster.wait(2_000).await;
        let restored = cluster.others(&leader)[0].clone();
        cluster.disks[&restored].copy();
        cluster.propose(&leader, 2).await.unwrap();
        cluster.wait(2_000).await;
        cluster.fall(&restored).await;
        assert!(cluster.disks[&restored].put_back());
        cluster.start(&restored);
        cluster.wait(3_000).await;
        let reason = cluster.members[&restored].ended().unwrap();
        assert!(reason.contains("an old copy was put back"), "{reason}");
        assert_eq!(cluster.values(&leader).await, [1, 2]);
    });
}

#[test]
fn long_absence_is_not_an_old_copy() {
    simulate_three(|mut cluster, leader| async move {
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
fn wiped_member_waits_for_a_leader() {
    simulate_three(|mut cluster, _| async move {
        cluster.wait(2_000).await;
        for name in ["a", "b"] {
            cluster.fall(name).await;
            cluster.wipe(name);
            cluster.start(name);
        }
        cluster.wait(20_000).await;
        for name in ["a", "b"] {
            let waits = cluster.status(name).await.waiting.unwrap();
            assert_eq!(waits, "the group at c is running: waiting for its leader");
        }
    });
}

#[test]
fn new_master_is_admitted_and_can_lead() {
    simulate_three(|mut cluster, leader| async move {
        for value in 0..10 {
            cluster.propose(&leader, value).await.unwrap();
        }
        cluster.start("d");
        cluster.wait(2_000).await;
        let waits = cluster.status("d").await.waiting.unwrap();
        assert_starts!(waits, "d is not a member of the group at ");
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
        // It continues from its own directory, whatever its list contains.
        cluster.fall("d").await;
        cluster.start_with(Settings::new("d", &["nobody"]));
        cluster.wait(3_000).await;
        assert_eq!(cluster.values("d").await, (0..10).collect::<Vec<_>>());
    });
}

#[test]
fn interrupted_founding_leaves_an_empty_directory() {
    simulate_network(|network| async move {
        for kept in 0..=3 {
            let mut cluster = Cluster::of(network.clone(), &["a"]);
            let disk = SimulatedDisk::new();
            disk.fake_syncs(true);
            cluster.disks.insert("a".to_owned(), disk.clone());
            cluster.start("a");
            cluster.clock.settle().await;
            cluster.nodes["a"].stop_now(&cluster.members["a"].pid());
            disk.crash_with(|_| kept);
            let mut log = StoredLog::new(disk.synced().open().unwrap());
            let left = log.load().unwrap();
            assert_eq!(left.identity.is_some(), left.snapshot.index > 0);
            cluster.start("a");
            let leader = cluster.leader().await;
            assert_eq!(cluster.propose(&leader, 1).await, Ok(1), "{kept} writes");
            cluster.fall("a").await;
        }
    });
}

#[test]
fn removed_master_ends_now_or_on_its_return() {
    for there in [true, false] {
        simulate_three(|cluster, leader| async move {
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
fn member_runs_on_the_stored_log() {
    simulate_network(|network| async move {
        let disk = SimulatedDisk::new();
        for expected in 1..=3 {
            let node = network.node("a", Role::Master, &[Role::Master]);
            let log = StoredLog::new(disk.open().unwrap());
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
fn packets_of_another_group_are_rejected() {
    simulate_three(|cluster, leader| async move {
        let outsider = cluster.network.node("x", Role::Master, &[Role::Master]);
        let timeout = Duration::from_secs(1);
        let pid = outsider.find(&leader, NAME, timeout).await.unwrap();
        let before = cluster.status(&leader).await;
        let to = before.identity.unwrap().id;
        let packet = PacketSent {
            group: 1,
            from: 9,
            address: "x".to_owned(),
            reads: FIRST_FORMAT,
            packet: Packet::Raft(Message::plain(MessageKind::Append, 9, to, 1 << 40)),
        };
        outsider.tell(&pid, packet).unwrap();
        cluster.clock.settle().await;
        let after = cluster.status(&leader).await;
        assert_eq!(
            after.counts.rejected_packets,
            before.counts.rejected_packets + 1
        );
        assert_eq!(after.role_now(), before.role_now());
    });
}
