//! Shared volumes: one copy per run, any number of users, and sizes that count once (SPEC 3.5, 4.5,
//! 4.10).

use std::collections::BTreeMap;
use std::time::Duration;

use module_api::allocator::{AgentAdded, Converted, Grant, QuotasChanged};
use module_api::sorter::Pool;
use modules::allocator::AllocatorState;
use protocol::{Capability, Quota};
use resources::{Resources, Role};

use crate::cluster::{added, agent, framework, simulate_cluster, subscribed};

const VOLUME: &str = r#"[{"name":"disk","type":"SCALAR","scalar":{"value":16},"role":"r","shared":{},
    "disk":{"persistence":{"id":"data"},"volume":{"mode":"RW","container_path":"data"}}}]"#;

fn volume() -> Resources {
    resources::json::parse_resources(VOLUME).unwrap()
}

fn with_volume(name: &str, total: &str) -> AgentAdded {
    let mut added = added(name, total, vec![]);
    added.info.resources += &volume();
    added
}

/// The frameworks with a copy, and their other resources, as `framework amounts`.
fn users(grants: &[Grant]) -> Vec<String> {
    let shared = grants
        .iter()
        .filter(|grant| !grant.resources.shared().is_empty());
    shared
        .map(|grant| format!("{} {}", grant.framework_id, grant.resources.quantities()))
        .collect()
}

/// SPEC 4.10, SharedResources.
#[test]
fn shared_volume_is_offered_once_per_run() {
    simulate_cluster(|cluster| async move {
        let can = [Capability::SharedResources];
        cluster.framework("f", "r/a", &can);
        cluster.framework("g", "r/b", &can);
        let apart = "cpus(r/a):1;mem(r/a):64;cpus(r/b):1;mem(r/b):64";
        cluster.allocator.tell(with_volume("a1", apart)).unwrap();
        let grants = cluster.granted().await;
        assert_eq!(grants.len(), 2);
        let first = users(&grants);
        assert_eq!(first.len(), 1, "one copy in one run: {first:?}");
        cluster.wait(Duration::from_secs(3)).await;
        assert_eq!(cluster.granted().await, [], "a volume alone is no offer");

        // A framework without the volume returns its grant; it gets the volume next, although the
        // other one still uses it.
        let other = grants
            .iter()
            .find(|grant| grant.resources.shared().is_empty());
        let other = other.unwrap();
        cluster.give_back(other, None);
        let grants = cluster.granted().await;
        let id = &other.framework_id;
        assert_eq!(users(&grants), [format!("{id} cpus:1;mem:64;disk:16")]);
        for round in 0..3 {
            let part = grants[0].resources.non_shared();
            cluster.give_back_part(&grants[0], part, None);
            let again = users(&cluster.granted().await);
            let expected = format!("{id} cpus:1;mem:64;disk:16");
            assert_eq!(
                again,
                [expected],
                "round {round}: to one who has it already"
            );
        }
    });
}

#[test]
fn shared_volumes_require_the_capability() {
    simulate_cluster(|cluster| async move {
        cluster.framework("f", "r", &[]);
        let agent = with_volume("a1", "cpus:1;mem:64");
        cluster.allocator.tell(agent).unwrap();
        let grants = cluster.granted().await;
        assert_eq!((grants.len(), users(&grants).len()), (1, 0));
    });
}

/// A filter without the volume, which its framework was never offered, still applies; otherwise the
/// framework would block the next ones.
#[test]
fn refusal_without_shared_volumes_still_applies() {
    simulate_cluster(|cluster| async move {
        cluster.framework("rich", "r", &[]);
        cluster.agent("a2", "cpus:8;mem:512");
        assert_eq!(cluster.granted().await.len(), 1);
        (0..6).for_each(|n| cluster.framework(&format!("poor-{n}"), "r", &[]));
        let agent = with_volume("a1", "cpus:1;mem:64");
        cluster.allocator.tell(agent).unwrap();
        let mut asked = Vec::new();
        for _ in 0..7 {
            let grants = cluster.granted().await;
            assert_eq!(grants.len(), 1, "after {asked:?}");
            asked.push(grants[0].framework_id.to_string());
            cluster.give_back(&grants[0], Some(Duration::from_secs(3600)));
        }
        assert_eq!(asked.pop().as_deref(), Some("rich"));
        asked.sort();
        asked.dedup();
        assert_eq!(asked.len(), 6);
    });
}

/// SPEC 4.8: counted once for any number of copies, for each holder and for the quota of its role.
#[test]
fn copies_count_once_and_go_one_by_one() {
    let mut state = AllocatorState::default();
    let quota = Quota {
        limits: "disk:100".parse().unwrap(),
        ..Quota::default()
    };
    let quotas = BTreeMap::from([("r/x".to_owned(), quota)]);
    state.quotas_changed(&QuotasChanged { quotas });
    for name in ["f", "g"] {
        let can = [Capability::SharedResources];
        state.framework_added(subscribed(name, "r/x", &can));
    }
    state.agent_added(with_volume("a1", "cpus:4;mem:64"));
    let role = Role::new("r/x").unwrap();
    let copy = |name: &str, one_more: bool| {
        let (none, volume) = (Resources::new(), volume().allocate(&role));
        let (consumed, converted) = match one_more {
            true => (none, volume),
            false => (volume, none),
        };
        Converted {
            framework_id: framework(name),
            agent_id: agent("a1"),
            consumed,
            converted,
        }
    };
    let mut check = |fact: Option<Converted>, f: &str, g: &str, left: &str| {
        match fact {
            Some(fact) if fact.consumed.is_empty() => state.converted(&fact),
            Some(fact) => state.recovered(
                &module_api::allocator::Recovered {
                    framework_id: fact.framework_id,
                    agent_id: fact.agent_id,
                    resources: fact.consumed,
                    refuse: None,
                    beside_offer: false,
                },
                Default::default(),
            ),
            None => {}
        }
        for (name, expected) in [("f", f), ("g", g)] {
            let client = state.clients.find(&framework(name), &role).unwrap();
            let held = state.clients.get(client).unwrap().held(Pool::Regular);
            assert_eq!(held.to_string(), expected, "{name}");
        }
        let place = state.budgets().find(&role);
        let budget = place.and_then(|place| state.budgets().get(place));
        assert_eq!(budget.unwrap().left.to_string(), left);
        let total = state.total(Pool::Regular);
        assert_eq!(total.to_string(), "cpus:4;mem:64;disk:16");
    };
    check(None, "", "", "disk:100");
    check(Some(copy("f", true)), "disk:16", "", "disk:84");
    check(Some(copy("f", true)), "disk:16", "", "disk:84");
    check(Some(copy("g", true)), "disk:16", "disk:16", "disk:84");
    check(Some(copy("f", false)), "disk:16", "disk:16", "disk:84");
    check(Some(copy("f", false)), "", "disk:16", "disk:84");
    check(Some(copy("g", false)), "", "", "disk:100");
}
