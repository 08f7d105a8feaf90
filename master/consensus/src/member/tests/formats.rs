//! Groups of two versions: operations are written in the newest format that all members read.

use super::*;

/// The format in which this member proposes, in its own view.
async fn format(cluster: &Cluster, name: &str) -> u16 {
    cluster.status(name).await.format
}

/// Restarts a member as the version that reads formats up to this one.
async fn change(cluster: &mut Cluster, name: &str, newest_format: u16) {
    cluster.fall(name).await;
    start(cluster, name, newest_format);
}

/// Starts a member as that version.
fn start(cluster: &mut Cluster, name: &str, newest_format: u16) {
    cluster.versions.insert(name.to_owned(), newest_format);
    cluster.start(name);
}

#[test]
fn rolling_upgrade_switches_the_format_last() {
    simulate_three(|mut cluster, _| async move {
        let mut values = Vec::new();
        for (nth, name) in (1..).zip(["a", "b", "c"]) {
            change(&mut cluster, name, 3).await;
            let leader = cluster.leader().await;
            cluster.wait(3_000).await;
            let expected = if nth < 3 { FIRST_FORMAT } else { 3 };
            for member in ["a", "b", "c"] {
                assert_eq!(
                    format(&cluster, member).await,
                    expected,
                    "{member} after {nth}"
                );
            }
            cluster.propose(&leader, nth).await.unwrap();
            values.push(nth);
            assert_eq!(cluster.values(&leader).await, values);
        }
        // Entries of both formats are read from the log again, and by a new member.
        for name in ["a", "b", "c"] {
            change(&mut cluster, name, 3).await;
        }
        let leader = cluster.leader().await;
        cluster.members[&leader].add("d").await.unwrap();
        start(&mut cluster, "d", 3);
        cluster.wait(3_000).await;
        for name in ["a", "b", "c", "d"] {
            assert_eq!(cluster.applied(name).await, values, "{name}");
        }
    });
}

#[test]
fn absent_member_blocks_the_new_format() {
    simulate_network(|network| async move {
        let mut cluster = Cluster::of(network, &["a", "b", "c"]);
        for name in ["a", "b", "c"] {
            cluster.versions.insert(name.to_owned(), 2);
        }
        for name in ["a", "b"] {
            cluster.start(name);
        }
        cluster.wait(3_000).await;
        cluster.start("c");
        let leader = cluster.leader().await;
        let away = cluster.others(&leader)[0].clone();
        cluster.wait(3_000).await;
        assert_eq!(format(&cluster, &leader).await, 2);
        for name in ["a", "b", "c"] {
            if name != away {
                change(&mut cluster, name, 3).await;
            }
        }
        cluster.fall(&away).await;
        let leader = cluster.leader().await;
        cluster.wait(10_000).await;
        assert_eq!(
            format(&cluster, &leader).await,
            2,
            "who is away may still be of the old version"
        );
        start(&mut cluster, &away, 3);
        cluster.wait(3_000).await;
        let leader = cluster.leader().await;
        assert_eq!(format(&cluster, &leader).await, 3);
        cluster.propose(&leader, 1).await.unwrap();
        let other = cluster.others(&leader)[0].clone();
        change(&mut cluster, &other, 2).await;
        cluster.wait(3_000).await;
        let reason = cluster.members[&other].ended().unwrap();
        assert_contains!(reason, "format 3, and this version reads formats up to 2");
        assert!(
            cluster.propose(&leader, 2).await.is_ok(),
            "the others go on"
        );
    });
}
