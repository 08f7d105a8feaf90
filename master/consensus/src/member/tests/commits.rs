//! Normal operation: elections, group commit, reads, handover.

use std::sync::{Arc, Mutex};

use futures_util::future::join_all;

use super::*;

#[test]
fn commits_keep_the_order_of_proposals() {
    simulate_three(|cluster, leader| async move {
        let proposals = (1..=20).map(|value| cluster.propose(&leader, value));
        let answers = join_all(proposals).await;
        let expected: Vec<_> = (1..=20).map(Ok).collect();
        assert_eq!(answers, expected);
        for name in ["a", "b", "c"] {
            assert_eq!(cluster.values(name).await, (1..=20).collect::<Vec<_>>());
        }
    });
}

#[test]
fn only_voter_leads_without_a_pause() {
    simulate_network(|network| async move {
        for initial in [&[][..], &["a"]] {
            let mut cluster = Cluster::of(network.clone(), initial);
            for value in 1..=3 {
                let started = cluster.clock.now();
                cluster.start("a");
                cluster.clock.settle().await;
                let syncs = cluster.disks["a"].syncs();
                assert_eq!(cluster.propose("a", value).await, Ok(value as usize));
                assert_eq!(cluster.disks["a"].syncs(), syncs + 1);
                assert_eq!(cluster.values("a").await, (1..=value).collect::<Vec<_>>());
                assert_eq!(cluster.clock.now(), started);
                cluster.fall("a").await;
            }
        }
    });
}

#[test]
fn only_voter_publishes_no_unsynced_term() {
    simulate_network(|network| async move {
        let mut cluster = Cluster::of(network, &[]);
        let mut newest = 0;
        for _ in 0..3 {
            cluster.start("a");
            cluster.nodes["a"].slow_blocking(Duration::from_millis(40));
            let published: Arc<Mutex<Vec<(u64, u64)>>> = Arc::default();
            let (notes, disk) = (published.clone(), cluster.disks["a"].clone());
            cluster.members["a"].watch(move |leadership| {
                let mut log = StoredLog::new(disk.synced().open().unwrap());
                let synced = log.load().unwrap().hard.term;
                notes.lock().unwrap().push((leadership.term, synced));
                true
            });
            cluster.wait(1_000).await;
            let terms = published.lock().unwrap().clone();
            assert!(terms.len() == 1 && terms[0].0 == terms[0].1, "{terms:?}");
            assert!(terms[0].0 > newest, "{terms:?} after {newest}");
            newest = terms[0].0;
            cluster.fall("a").await;
        }
    });
}

#[test]
fn proposals_during_a_write_share_the_next() {
    simulate_three(|cluster, leader| async move {
        cluster.wait(2_000).await;
        cluster.nodes[&leader].slow_blocking(Duration::from_millis(4));
        let (before, syncs) = (
            cluster.status(&leader).await.counts,
            cluster.disks[&leader].syncs(),
        );
        let proposals: Vec<_> = (0..1_000)
            .map(|value| cluster.propose(&leader, value))
            .collect();
        let answers = join_all(proposals).await;
        assert!(answers.iter().all(Result::is_ok));
        let after = cluster.status(&leader).await.counts;
        assert_eq!(after.proposals - before.proposals, 1_000);
        let shared = after.writes - before.writes;
        assert!(shared <= 4, "{shared} writes for 1,000 proposals");
        assert!(cluster.disks[&leader].syncs() - syncs <= 4);
    });
}

#[test]
fn answers_wait_for_a_synced_majority() {
    simulate_three(|cluster, leader| async move {
        for node in cluster.nodes.values() {
            node.slow_blocking(Duration::from_millis(40));
        }
        let started = cluster.clock.now();
        assert!(cluster.propose(&leader, 1).await.is_ok());
        // The writes of leader and follower may overlap; neither is shorter than this.
        assert!(cluster.clock.now() - started >= Duration::from_millis(40));
        let with = |disk: &&SimulatedDisk| {
            disk.crash();
            let mut log = StoredLog::new(disk.open().unwrap());
            let entries = log.load().unwrap().entries;
            entries.iter().any(|entry| !entry.data.is_empty())
        };
        let holding = cluster.disks.values().filter(with).count();
        assert!(holding >= 2, "only {holding} disks have what was answered");
    });
}

#[test]
fn leader_counts_itself_only_after_its_sync() {
    simulate_three(|mut cluster, leader| async move {
        cluster.wait(1_000).await;
        let away = cluster.others(&leader)[0].clone();
        cluster.fall(&away).await;
        // The remaining follower has it at once.
        cluster.nodes[&leader].slow_blocking(Duration::from_millis(200));
        let started = cluster.clock.now();
        assert_eq!(cluster.propose(&leader, 1).await, Ok(1));
        assert!(cluster.clock.now() - started >= Duration::from_millis(200));
    });
}

#[test]
fn watchers_learn_leader_and_address() {
    simulate_three(|mut cluster, leader| async move {
        let watching = cluster.others(&leader)[0].clone();
        let published: Arc<Mutex<Vec<Leadership>>> = Arc::default();
        let notes = published.clone();
        cluster.members[&watching].watch(move |leadership| {
            notes.lock().unwrap().push(leadership.clone());
            true
        });
        cluster.wait(1_000).await;
        let last =
            |published: &Mutex<Vec<Leadership>>| published.lock().unwrap().last().unwrap().clone();
        let known = last(&published).leader.unwrap();
        assert_eq!(known.address.as_deref(), Some(leader.as_str()));
        assert_eq!(known.node.as_ref(), Some(cluster.nodes[&leader].id()));
        let first = last(&published).term;
        cluster.fall(&leader).await;
        let next = cluster.leader().await;
        cluster.wait(1_000).await;
        let known = last(&published);
        assert!(known.term > first);
        assert_eq!(known.leader.unwrap().address, Some(next));
        cluster.members[&watching].retire().await;
        assert_eq!(last(&published).ended.as_deref(), Some("it was stopped"));
    });
}

#[test]
fn retiring_leader_hands_over_quickly() {
    simulate_three(|mut cluster, leader| async move {
        cluster.wait(1_000).await;
        let under_way = cluster.propose(&leader, 1);
        let member = cluster.members.remove(&leader).unwrap();
        let started = cluster.clock.now();
        member.retire().await;
        assert_eq!(under_way.await, Ok(1));
        cluster.clock.settle().await;
        let (next, took) = (cluster.leader().await, cluster.clock.now() - started);
        assert_ne!(next, leader);
        assert!(took < Duration::from_millis(250), "{took:?}");
        assert_matches!(
            member.propose((2, Vec::new())).await,
            Err(ProposeError::Broken { .. })
        );
    });
}

#[test]
fn retiring_leader_picks_a_live_successor() {
    simulate_network(|network| async move {
        let names = ["a", "b", "c", "d", "e"];
        let mut cluster = Cluster::of(network, &names);
        names.iter().for_each(|name| cluster.start(name));
        let leader = cluster.leader().await;
        assert_eq!(cluster.propose(&leader, 1).await, Ok(1));
        cluster.wait(1_000).await;
        // The last candidate has the whole log, and is unreachable.
        let dead = cluster.others(&leader).pop().unwrap();
        cluster.isolate(&dead);
        cluster.wait(1_000).await;
        let member = cluster.members.remove(&leader).unwrap();
        let started = cluster.clock.now();
        member.retire().await;
        cluster.clock.settle().await;
        let next = cluster.leader().await;
        let took = cluster.clock.now() - started;
        assert_ne!(next, dead);
        assert!(took < Duration::from_millis(250), "{took:?}");
    });
}

#[test]
fn follower_names_the_leader() {
    simulate_three(|cluster, leader| async move {
        let follower = cluster.others(&leader)[0].clone();
        let error = cluster.propose(&follower, 1).await.unwrap_err();
        let ProposeError::NotLeader {
            leader: Some(known),
        } = &error
        else {
            panic!("{error}");
        };
        assert_eq!(known.address.as_deref(), Some(leader.as_str()));
    });
}

#[test]
fn snapshots_are_kept_while_proposals_go_on() {
    simulate_network(|network| async move {
        let mut cluster = Cluster::of(network, &["a", "b", "c"]);
        for name in ["a", "b", "c"] {
            let mut settings = cluster.settings(name);
            settings.policy.snapshot_entries = 20;
            settings.policy.keep_entries = 5;
            cluster.start_with(settings);
        }
        let leader = cluster.leader().await;
        for value in 0..200 {
            cluster.propose(&leader, value).await.unwrap();
        }
        let status = cluster.status(&leader).await;
        assert!(status.counts.snapshots >= 8, "{:?}", status.counts);
        cluster.fall(&leader).await;
        let mut settings = cluster.settings(&leader);
        settings.policy.snapshot_entries = 20;
        cluster.start_with(settings);
        cluster.wait(3_000).await;
        assert_eq!(cluster.values(&leader).await, (0..200).collect::<Vec<_>>());
    });
}
