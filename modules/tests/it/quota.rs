//! Scenarios of quota with the real allocator and sorter in virtual time: guarantees, limits and
//! kept resources.

use std::collections::BTreeMap;
use std::time::Duration;

use module_api::Parameters;
use module_api::allocator::QuotasChanged;
use protocol::Quota;
use resources::Quantities;
use runtime::testing::simulate;

use crate::cluster::{Cluster, lines, simulate_cluster};

pub fn set(cluster: &Cluster, role: &str, guarantees: &str, limits: &str) {
    let quota = Quota {
        guarantees: Quantities::parse(guarantees).unwrap(),
        limits: Quantities::parse(limits).unwrap(),
    };
    let quotas = BTreeMap::from([(role.to_owned(), quota)]);
    cluster.allocator.tell(QuotasChanged { quotas }).unwrap();
}

/// SPEC 4.10, QuotaProvidesLimit: the limit is raised; resources beyond it go to another role.
#[test]
fn resources_beyond_a_limit_go_to_others() {
    simulate_cluster(|cluster| async move {
        set(&cluster, "a", "", "cpus:0;mem:0;disk:0");
        cluster.framework("a", "a", &[]);
        cluster.agent("a1", "cpus:2;mem:1024;disk:1024");
        assert_eq!(cluster.granted().await, []);
        set(&cluster, "a", "", "cpus:1;mem:512;disk:512");
        assert_eq!(
            lines(&cluster.granted().await),
            ["a a1 cpus:1;mem:512;disk:512"]
        );
        cluster.framework("b", "b", &[]);
        assert_eq!(
            lines(&cluster.granted().await),
            ["b a1 cpus:1;mem:512;disk:512"]
        );
    });
}

/// SPEC 4.10, NestedRoleQuota: a child role is bounded by the limit above it.
// Covers W11.
#[test]
fn role_is_bounded_by_its_parents_limit() {
    simulate_cluster(|cluster| async move {
        set(&cluster, "eng", "", "cpus:3");
        cluster.framework("dev", "eng/dev", &[]);
        cluster.framework("qa", "eng/qa", &[]);
        cluster.agent("a1", "cpus:2;mem:64");
        cluster.agent("a2", "cpus:2;mem:64");
        let grants = cluster.granted().await;
        let cpus: f64 = grants
            .iter()
            .map(|grant| grant.resources.cpus().as_f64())
            .sum();
        assert_eq!(cpus, 3.0, "{:?}", lines(&grants));
    });
}

/// SPEC 4.10, QuotaAbsentFramework, QuotaAgainstStarvation.
#[test]
fn guarantee_stays_free_without_a_framework() {
    simulate_cluster(|cluster| async move {
        set(&cluster, "a", "cpus:2;mem:512", "");
        cluster.framework("b", "b", &[]);
        cluster.agent("a1", "cpus:3;mem:1024");
        assert_eq!(lines(&cluster.granted().await), ["b a1 cpus:1;mem:512"]);
        cluster.framework("a", "a", &[]);
        assert_eq!(lines(&cluster.granted().await), ["a a1 cpus:2;mem:512"]);
    });
}

/// SPEC 4.4, 4.10, Recoverable pause: with ten expected agents, nothing is granted before the
/// eighth or ten minutes, or before the values of `allocator_agent_recovery_factor` and
/// `allocator_recovery_timeout` (SPEC 3.8).
#[test]
fn recovery_pause_ends_by_agents_or_timeout() {
    let usual = || Parameters::none("hierarchical");
    let other = || {
        usual()
            .with("allocator_agent_recovery_factor", "0.35")
            .with("allocator_recovery_timeout", "2mins")
    };
    for (given, agents, seconds) in [
        (usual(), 8, None),
        (usual(), 7, Some(600)),
        (other(), 3, None),
        (other(), 2, Some(120)),
    ] {
        simulate(|node| async move {
            let cluster = Cluster::of(&node, &Parameters::none("drf"), &given, &[]);
            let limits = Quantities::parse("cpus:1").unwrap();
            let quota = Quota {
                limits,
                ..Quota::default()
            };
            cluster.begin_with(BTreeMap::from([("a".to_owned(), quota)]), 10);
            cluster.framework("b", "b", &[]);
            for n in 1..=agents {
                assert_eq!(cluster.granted().await, []);
                cluster.agent(&format!("a{n}"), "cpus:1;mem:64");
            }
            if let Some(seconds) = seconds {
                cluster.wait(Duration::from_secs(seconds - 1)).await;
                assert_eq!(cluster.granted().await, []);
                cluster.wait(Duration::from_secs(2)).await;
            }
            assert_eq!(cluster.granted().await.len(), agents);
        });
    }
}
