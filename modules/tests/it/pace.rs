//! How soon what was declined is offered to the next one: in virtual time, in which a run takes none and only the pauses between runs count.

use std::collections::BTreeMap;
use std::time::Duration;

use module_api::allocator::{Revived, Suppressed, WeightsChanged};
use modules::workload::{Shape, Workload};
use runtime::rehearsal::rehearse;

use crate::cluster::{Cluster, framework};

/// As any framework that does not want what it is offered.
const REFUSED: Option<Duration> = Some(Duration::from_secs(5));

/// S130: so the pauses allow it; how fast a machine is, `meros bench offers` measures.
#[test]
fn declined_at_once_tens_of_thousands_of_offers_are_made_in_a_second() {
    rehearse(|node| async move {
        let (agents, frameworks) = (100, 30);
        let cluster = Cluster::new(&node, &[]);
        for n in 0..frameworks {
            cluster.framework(&format!("f{n}"), "*", &[]);
        }
        for n in 0..agents {
            cluster.agent(&format!("a{n}"), "cpus:4;mem:1024");
        }
        let begun = node.clock().now();
        let mut offers = 0;
        while offers < agents * frameworks {
            let grants = cluster.granted_within(Duration::from_millis(1)).await;
            let took = node.clock().now() - begun;
            assert!(took.as_secs() < 1, "{offers} offers in {took:?}");
            for grant in &grants {
                cluster.give_back(grant, REFUSED);
            }
            offers += grants.len();
        }
        let took = node.clock().now() - begun;
        let rate = offers as f64 / took.as_secs_f64();
        assert!(rate > 20_000.0, "{rate} a second");
        assert_eq!(offers, agents * frameworks, "each agent to each framework");
    });
}

/// How many runs the allocator has made, a moment later.
async fn runs(cluster: &Cluster) -> f64 {
    cluster.wait(Duration::from_millis(50)).await;
    let measured = cluster.allocator.measure().await;
    measured.unwrap()["allocator/mesos/allocation_runs"]
}

/// W16: a change begins a run at once, and what comes with it is looked at in the same run.
#[test]
fn whatever_changes_at_one_moment_is_one_run_and_does_not_wait_for_the_next_batch() {
    rehearse(|node| async move {
        let cluster = Cluster::new(&node, &[]);
        cluster.framework("f", "*", &[]);
        for n in 0..20 {
            cluster.agent(&format!("a{n}"), "cpus:4;mem:1024");
        }
        let before = runs(&cluster).await;
        assert_eq!(runs(&cluster).await, before, "nothing has changed");
        let weights = BTreeMap::from([("a".to_owned(), 2.0)]);
        cluster.allocator.tell(WeightsChanged { weights }).unwrap();
        assert_eq!(runs(&cluster).await, before + 1.0, "a weight");
        for n in 20..40 {
            cluster.agent(&format!("a{n}"), "cpus:4;mem:1024");
            cluster.framework(&format!("f{n}"), "*", &[]);
        }
        assert_eq!(runs(&cluster).await, before + 2.0, "forty facts");
    });
}

fn revived(name: &str) -> Revived {
    let (framework_id, roles) = (framework(name), Default::default());
    Revived {
        framework_id,
        roles,
    }
}

fn suppressed(name: &str) -> Suppressed {
    let (framework_id, roles) = (framework(name), Default::default());
    Suppressed {
        framework_id,
        roles,
    }
}

/// What is free is nothing that the loud framework may have, so that there is always something to look at in vain.
#[test]
fn who_revives_without_end_begins_no_runs() {
    rehearse(|node| async move {
        let cluster = Cluster::new(&node, &[]);
        cluster.framework("loud", "*", &[]);
        for n in 0..20 {
            cluster.agent(&format!("a{n}"), "cpus:4;mem:1024;gpus:1");
        }
        let mut before = runs(&cluster).await;
        for suppresses in [false, true] {
            for _ in 0..60 {
                if suppresses {
                    cluster.allocator.tell(suppressed("loud")).unwrap();
                    cluster.wait(Duration::from_millis(3)).await;
                }
                cluster.allocator.tell(revived("loud")).unwrap();
                cluster.wait(Duration::from_millis(3)).await;
            }
            let after = runs(&cluster).await;
            // No more than the batch that may have been due.
            assert!(after <= before + 1.0, "{} runs", after - before);
            before = after;
        }
    });
}

/// The agents that the next run looks at.
fn looked_at(all: &mut Workload, batch: bool) -> usize {
    let looked_at = all.candidates(batch).len();
    all.books.run_ended();
    looked_at
}

#[test]
fn who_revives_is_asked_about_what_its_filters_hid_and_what_was_looked_at_without_it() {
    let mut all = Workload::of(&Shape::of(40, 2), 7);
    let grants = all.run(true);
    let (own, others): (Vec<_>, Vec<_>) = grants
        .into_iter()
        .partition(|grant| grant.framework_id == framework("framework-0"));
    assert_eq!((own.len(), others.len()), (20, 20));
    all.books.revived(&revived("framework-0"));
    assert_eq!(looked_at(&mut all, false), 0, "it was asked about all");

    // Declined, looked at for the other, held by it.
    all.decline(own[..5].to_vec());
    assert_eq!(all.run(false).len(), 5);
    all.books.revived(&revived("framework-0"));
    assert_eq!(looked_at(&mut all, false), 5, "what it refused");
    all.books.revived(&revived("framework-0"));
    assert_eq!(looked_at(&mut all, false), 0, "it refuses nothing");

    all.books.suppressed(&suppressed("framework-0"));
    all.decline(others[..3].to_vec());
    assert_eq!(all.run(false).len(), 0, "nobody else wants it");
    all.books.revived(&revived("framework-0"));
    assert_eq!(all.run(false).len(), 3, "what nobody was offered meanwhile");
    all.books.suppressed(&suppressed("framework-0"));
    all.books.revived(&revived("framework-0"));
    assert_eq!(looked_at(&mut all, true), 0);
}

/// It was asked about a part of the run and nobody knows which; if all were looked at again at once, it would do the same amid that run.
#[test]
fn who_leaves_amid_a_run_and_comes_back_waits_for_the_batch() {
    let mut all = Workload::of(&Shape::of(40, 2), 7);
    for _ in 0..5 {
        assert_eq!(all.candidates(true).len(), 40);
        all.books.suppressed(&suppressed("framework-0"));
        all.books.revived(&revived("framework-0"));
        assert_eq!(all.candidates(false).len(), 0);
    }
    all.books.run_ended();
    assert_eq!(looked_at(&mut all, true), 40);
    assert_eq!(looked_at(&mut all, true), 0);

    // Whoever comes back after a batch need not wait for another one.
    all.end(Workload::of(&Shape::of(40, 2), 7).run(true).swap_remove(0));
    assert_eq!(all.candidates(false).len(), 1);
    all.books.suppressed(&suppressed("framework-0"));
    all.books.run_ended();
    assert_eq!(looked_at(&mut all, true), 0);
    all.books.revived(&revived("framework-0"));
    assert_eq!(looked_at(&mut all, false), 1);
}
