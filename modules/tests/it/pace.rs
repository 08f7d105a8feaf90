//! How soon what was declined is offered to the next one: in virtual time, in which a run takes none and only the pauses between runs count.

use std::time::Duration;

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
