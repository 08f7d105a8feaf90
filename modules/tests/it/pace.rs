//! How soon what was declined is offered to the next one: in virtual time, in which a run takes none and only the pauses between runs count.

use std::collections::BTreeMap;
use std::time::Duration;

use module_api::allocator::WeightsChanged;
use runtime::rehearsal::rehearse;

use crate::cluster::Cluster;

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
