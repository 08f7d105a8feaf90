//! Groups of two versions: operations are written in the newest form that all members read.

use super::*;

/// The form in which this member proposes, as it knows it.
async fn form(cluster: &Cluster, name: &str) -> u16 {
    cluster.status(name).await.form
}

/// Stopped, and started again as the version that reads forms up to this one.
async fn change(cluster: &mut Cluster, name: &str, newest_form: u16) {
    cluster.fall(name).await;
    start(cluster, name, newest_form);
}

/// Started, as that version.
fn start(cluster: &mut Cluster, name: &str, newest_form: u16) {
    cluster.versions.insert(name.to_owned(), newest_form);
    cluster.start(name);
}

#[test]
fn a_group_is_upgraded_one_by_one_and_writes_the_new_form_when_the_last_one_reads_it() {
    rehearse_network(|network| async move {
        let (mut cluster, _) = Cluster::three(network).await;
        let mut values = Vec::new();
        for (nth, name) in (1..).zip(["a", "b", "c"]) {
            change(&mut cluster, name, 3).await;
            let leader = cluster.leader().await;
            cluster.wait(3_000).await;
            let expected = if nth < 3 { FIRST_FORM } else { 3 };
            for member in ["a", "b", "c"] {
                assert_eq!(
                    form(&cluster, member).await,
                    expected,
                    "{member} after {nth}"
                );
            }
            cluster.propose(&leader, nth).await.unwrap();
            values.push(nth);
            assert_eq!(cluster.values(&leader).await, values);
        }
        // What was written in either form is read from the log again, and by whoever comes from nothing.
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
fn nobody_goes_over_while_one_is_away_and_whoever_comes_back_too_old_ends_and_says_so() {
    rehearse_network(|network| async move {
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
        assert_eq!(form(&cluster, &leader).await, 2);
        for name in ["a", "b", "c"] {
            if name != away {
                change(&mut cluster, name, 3).await;
            }
        }
        cluster.fall(&away).await;
        let leader = cluster.leader().await;
        cluster.wait(10_000).await;
        assert_eq!(
            form(&cluster, &leader).await,
            2,
            "who is away may still be of the old version"
        );
        start(&mut cluster, &away, 3);
        cluster.wait(3_000).await;
        let leader = cluster.leader().await;
        assert_eq!(form(&cluster, &leader).await, 3);
        cluster.propose(&leader, 1).await.unwrap();
        let other = cluster.others(&leader)[0].clone();
        change(&mut cluster, &other, 2).await;
        cluster.wait(3_000).await;
        let reason = cluster.members[&other].ended().unwrap();
        assert!(
            reason.contains("form 3, and this version reads forms up to 2"),
            "{reason}"
        );
        assert!(
            cluster.propose(&leader, 2).await.is_ok(),
            "the others go on"
        );
    });
}
