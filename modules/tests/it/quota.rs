//! Stories of quota: guarantees, limits and what stays free, told to the real allocator and sorter in virtual time.

use std::collections::BTreeMap;
use std::time::Duration;

use module_api::Parameters;
use module_api::allocator::QuotasChanged;
use protocol::Quota;
use resources::Quantities;
use runtime::rehearsal::rehearse;

use crate::cluster::{Cluster, lines};

pub fn set(cluster: &Cluster, role: &str, guarantees: &str, limits: &str) {
    let quota = Quota {
        guarantees: Quantities::parse(guarantees).unwrap(),
        limits: Quantities::parse(limits).unwrap(),
    };
    let quotas = BTreeMap::from([(role.to_owned(), quota)]);
    cluster.allocator.tell(QuotasChanged { quotas }).unwrap();
}

/// SPEC 4.10, QuotaProvidesLimit: the limit is raised, and what is beyond it goes to another role.
#[test]
fn a_limit_holds_and_what_is_beyond_it_goes_to_others() {
    rehearse(|node| async move {
        let cluster = Cluster::new(&node, &[]);
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

/// SPEC 4.10, NestedRoleQuota: a role below is stopped by the limit above it.
#[test]
fn a_role_is_stopped_by_the_limit_of_the_role_above_it() {
    rehearse(|node| async move {
        let cluster = Cluster::new(&node, &[]);
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
fn what_is_guaranteed_stays_free_for_a_role_without_a_framework() {
    rehearse(|node| async move {
        let cluster = Cluster::new(&node, &[]);
        set(&cluster, "a", "cpus:2;mem:512", "");
        cluster.framework("b", "b", &[]);
        cluster.agent("a1", "cpus:3;mem:1024");
        assert_eq!(lines(&cluster.granted().await), ["b a1 cpus:1;mem:512"]);
        cluster.framework("a", "a", &[]);
        assert_eq!(lines(&cluster.granted().await), ["a a1 cpus:2;mem:512"]);
    });
}

/// SPEC 4.4, 4.10, Recoverable pause: with ten agents expected, nothing is granted before the eighth or ten minutes, or what
/// `allocator_agent_recovery_factor` and `allocator_recovery_timeout` say (SPEC 3.8).
#[test]
fn nothing_is_granted_before_enough_agents_are_back_or_the_pause_is_over() {
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
        rehearse(|node| async move {
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
