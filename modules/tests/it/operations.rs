//! Operations in the allocator's state: allocations follow, and returned resources are offered in
//! their new form.

use module_api::allocator::{Converted, Recovered};
use resources::{Reservation, Resources};

use crate::cluster::{added, agent, framework, lines, simulate_cluster};

/// S92: returned reserved resources are offered only to their role, together with the rest.
#[test]
fn reserved_grant_is_offered_to_its_role_alone() {
    simulate_cluster(|cluster| async move {
        cluster.framework("ads", "ads", &[]);
        cluster.agent("a1", "cpus:32;mem:65536");
        let grant = cluster.granted().await.remove(0);
        let consumed: Resources = "cpus:8;mem:4096".parse().unwrap();
        let ads = "ads".parse().unwrap();
        let reservation = Reservation::dynamic("ads".parse().unwrap(), Some("ops"));
        let converted = consumed.push_reservation(&reservation).unwrap();
        let fact = Converted {
            framework_id: framework("ads"),
            agent_id: agent("a1"),
            consumed: consumed.allocate(&ads),
            converted: converted.allocate(&ads),
        };
        cluster.allocator.tell(fact).unwrap();
        assert_eq!(cluster.granted().await, [], "all of it is held as before");

        let rest = grant
            .resources
            .checked_sub(&consumed.allocate(&ads))
            .unwrap();
        let all = rest + converted.allocate(&ads);
        cluster.framework("web", "web", &[]);
        // The role of the reservation refuses everything for a while; the other one gets the
        // unreserved part.
        let hour = std::time::Duration::from_secs(3600);
        cluster.give_back_part(&grant, all, Some(hour));
        assert_eq!(
            lines(&cluster.granted().await),
            ["web a1 cpus:24;mem:61440"]
        );
        // Unknown agents and frameworks are ignored.
        let stray = Converted {
            framework_id: framework("nobody"),
            agent_id: agent("nowhere"),
            consumed: consumed.clone(),
            converted: consumed,
        };
        cluster.allocator.tell(stray).unwrap();
        assert_eq!(cluster.granted().await, []);
    });
}

/// SPEC 4.6: after an operator's operation the agent registers again, with other resources but
/// otherwise unchanged.
#[test]
fn filters_survive_reregistration_of_an_unchanged_agent() {
    simulate_cluster(|cluster| async move {
        cluster.framework("web", "web", &[]);
        cluster.agent("a1", "cpus:4;mem:64");
        let grant = cluster.granted().await.remove(0);
        let hour = std::time::Duration::from_secs(3600);
        cluster.give_back(&grant, Some(hour));
        assert_eq!(cluster.granted().await, []);
        let reserved = "cpus:3;cpus(ads):1;mem:64";
        cluster.agent("a1", reserved);
        cluster.wait(hour / 2).await;
        assert_eq!(cluster.granted().await, [], "it was refused");
        let mut other = added("a1", reserved, vec![]);
        other.info.attributes = "rack:r2".parse().unwrap();
        cluster.allocator.tell(other).unwrap();
        assert_eq!(lines(&cluster.granted().await), ["web a1 cpus:3;mem:64"]);
        // And no longer than before.
        let grant = "cpus:3;mem:64".parse::<Resources>().unwrap();
        let recovered = Recovered {
            framework_id: framework("web"),
            agent_id: agent("a1"),
            resources: grant.allocate(&"web".parse().unwrap()),
            refuse: Some(hour),
            beside_offer: false,
        };
        cluster.allocator.tell(recovered).unwrap();
        cluster.wait(hour / 2).await;
        let mut same = added("a1", "cpus:2;mem:64", vec![]);
        same.info.attributes = "rack:r2".parse().unwrap();
        cluster.allocator.tell(same).unwrap();
        assert_eq!(cluster.granted().await, []);
        let batch = std::time::Duration::from_secs(1);
        cluster.wait(hour / 2 + batch).await;
        assert_eq!(lines(&cluster.granted().await), ["web a1 cpus:2;mem:64"]);
    });
}
