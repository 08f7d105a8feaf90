//! Modules by name: their policies and parameters.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use module_api::Parameters;
use module_api::allocator::{AgentRemoved, Grant, Revived, Suppressed};
use protocol::Capability;
use runtime::prelude::Node;
use runtime::testing::simulate;

use crate::cluster::{Cluster, agent, framework, lines};

const MINUTE: Duration = Duration::from_secs(60);

/// An unknown sorter or parameter is reported with the known ones.
#[test]
fn unknown_sorter_error_lists_known_ones() {
    simulate(|node| async move {
        let start = |given: Parameters| {
            let started = modules::registry().sorter(&node, given.module(), &given);
            started.err().map(|error| error.to_string())
        };
        assert_eq!(
            start(Parameters::none("fair")).as_deref(),
            Some(
                "there is no sorter called `fair`: expected one of drf, lottery, random, strict_priority"
            )
        );
        assert_eq!(
            start(Parameters::none("drf").with("seed", "7")).as_deref(),
            Some(
                "module `drf`, parameter `seed` is given: expected only fair_sharing_excluded_resource_names"
            )
        );
        let nonsense =
            Parameters::none("drf").with("fair_sharing_excluded_resource_names", "gpus,a b");
        assert_eq!(
            start(nonsense).as_deref(),
            Some(
                "module `drf`, parameter `fair_sharing_excluded_resource_names` is `gpus,a b`: expected names of resources such as `gpus,disk`"
            )
        );
    });
}

/// S97: the default allocator has two names; an additional one is started by its own.
// Covers S97.
#[test]
fn allocator_is_chosen_by_name() {
    let started = Arc::new(AtomicUsize::new(0));
    let counted = started.clone();
    let mut modules = modules::registry();
    modules.add_allocator(&["org_example_Own"], move |node, sorter, _| {
        counted.fetch_add(1, Ordering::Relaxed);
        let none = Parameters::none("hierarchical");
        modules::registry().allocator(node, "hierarchical", sorter, &none)
    });
    let start = |node: &Node, name: &str| {
        let sorter = modules.sorter(node, "drf", &Parameters::none("drf"));
        modules.allocator(node, name, sorter.unwrap(), &Parameters::none(name))
    };
    let names = ["hierarchical", "HierarchicalDRF", "org_example_Own"];
    for (name, own) in names.into_iter().zip([0, 0, 1]) {
        let start = &start;
        simulate(|node| async move {
            let cluster = Cluster::around(&node, start(&node, name).unwrap(), &[]);
            cluster.framework("f", "*", &[]);
            cluster.agent("a", "cpus:1;mem:100");
            let granted = lines(&cluster.granted().await);
            assert_eq!(granted, ["f a cpus:1;mem:100"], "{name}");
        });
        assert_eq!(started.load(Ordering::Relaxed), own, "{name}");
    }
    simulate(|node| async move {
        let unknown = start(&node, "mine").err().map(|error| error.to_string());
        assert_eq!(
            unknown.as_deref(),
            Some(
                "there is no allocator called `mine`: expected one of HierarchicalDRF, hierarchical, org_example_Own"
            )
        );
    });
}

/// SPEC 3.8, `--filter_gpu_resources`.
#[test]
fn gpu_filter_restricts_agents_with_gpus() {
    for (filtered, expected) in [
        (None, vec!["able gpus cpus:1;mem:64;gpus:1"]),
        (Some("true"), vec!["able gpus cpus:1;mem:64;gpus:1"]),
        (
            Some("false"),
            vec![
                "able gpus cpus:1;mem:64;gpus:1",
                "web more cpus:1;mem:64;gpus:1",
            ],
        ),
    ] {
        simulate(|node| async move {
            let mut given = Parameters::none("hierarchical");
            if let Some(filtered) = filtered {
                given = given.with("filter_gpu_resources", filtered);
            }
            let cluster = Cluster::of(&node, &Parameters::none("drf"), &given, &[]);
            cluster.framework("able", "a", &[Capability::GpuResources]);
            cluster.agent("gpus", "cpus:1;mem:64;gpus:1");
            let mut all = lines(&cluster.granted().await);
            let suppressed = Suppressed {
                framework_id: framework("able"),
                roles: Default::default(),
            };
            cluster.allocator.tell(suppressed).unwrap();
            cluster.framework("web", "b", &[]);
            cluster.agent("more", "cpus:1;mem:64;gpus:1");
            all.extend(lines(&cluster.granted().await));
            assert_eq!(all, expected, "{filtered:?}");
            // Agents without GPUs go to all frameworks in any case.
            cluster.agent("plain", "cpus:1;mem:64");
            let plain = lines(&cluster.granted().await);
            assert_eq!(plain, ["web plain cpus:1;mem:64"], "{filtered:?}");
        });
    }
}

/// SPEC 4.8, 4.9.4, W24: with charged reservations, a role's idle reservations count towards its
/// share; in use they count no more than that, and they vanish with their agent.
// Covers W24.
#[test]
fn charged_idle_reservations_count_for_the_share() {
    for (charged, expected) in [
        (None, ["b", "a", "b", "a"]),
        (Some("false"), ["b", "a", "b", "a"]),
        (Some("true"), ["b", "b", "b", "a"]),
    ] {
        simulate(|node| async move {
            let mut given = Parameters::none("hierarchical");
            if let Some(charged) = charged {
                given = given.with("charge_reservations", charged);
            }
            let cluster = Cluster::of(&node, &Parameters::none("drf"), &given, &[]);
            cluster.framework("a", "a/x", &[]);
            cluster.agent("reserved", "cpus(a):5;mem(a):500");
            let grants = cluster.granted().await;
            assert_eq!(lines(&grants), ["a reserved cpus:5;mem:500"]);
            cluster.give_back(&grants[0], Some(Duration::from_secs(3600)));
            cluster.framework("b", "b", &[]);
            let next = async |n: u32| {
                cluster.agent(&format!("a{n}"), "cpus:2;mem:200");
                let grants = cluster.granted().await;
                assert_eq!(grants.len(), 1, "{:?}", lines(&grants));
                grants[0].framework_id.to_string()
            };
            let given = [next(1).await, next(2).await, next(3).await, next(4).await];
            assert_eq!(given, expected, "{charged:?}");
            if charged != Some("true") {
                return;
            }
            // 5 reserved and 2 granted are less than the other role's 6; 10 and 2 would not be.
            let revived = Revived {
                framework_id: framework("a"),
                roles: Default::default(),
            };
            cluster.allocator.tell(revived).unwrap();
            let grants = cluster.granted().await;
            assert_eq!(lines(&grants), ["a reserved cpus:5;mem:500"]);
            assert_eq!([next(5).await, next(6).await], ["b", "a"]);
            let agent_id = agent("reserved");
            cluster.allocator.tell(AgentRemoved { agent_id }).unwrap();
            assert_eq!([next(7).await, next(8).await], ["a", "a"]);
        });
    }
}

/// SPEC 3.8.
#[test]
fn invalid_allocator_parameters_are_rejected() {
    simulate(|node| async move {
        let modules = modules::registry();
        let drf = Parameters::none("drf");
        let sorter = modules.sorter(&node, "drf", &drf).unwrap();
        for (name, value, expected) in [
            ("filter_gpu_resources", "maybe", "true or false"),
            ("charge_reservations", "some", "true or false"),
            ("allocator_agent_recovery_factor", "1.1", "from 0 to 1"),
            ("allocator_agent_recovery_factor", "-0.1", "from 0 to 1"),
            ("allocator_agent_recovery_factor", "NaN", "from 0 to 1"),
            (
                "allocator_recovery_timeout",
                "soon",
                "a duration such as `10mins`",
            ),
        ] {
            let given = Parameters::none("hierarchical").with(name, value);
            let started = modules.allocator(&node, given.module(), sorter.clone(), &given);
            let problem = started.err().unwrap().to_string();
            let field = format!("parameter `{name}` is `{value}`");
            assert!(
                problem.contains(&field) && problem.contains(expected),
                "{problem}"
            );
        }
    });
}

/// SPEC 4.10 (DRFWithFairnessExclusion): GPUs do not count for shares if they are excluded.
#[test]
fn excluded_resources_do_not_count_for_shares() {
    for (excluded, next) in [("", "poor"), ("gpus", "rich")] {
        simulate(|node| async move {
            let given =
                Parameters::none("drf").with("fair_sharing_excluded_resource_names", excluded);
            let cluster = Cluster::sorted_by(&node, &given, &[]);
            cluster.framework("rich", "a", &[Capability::GpuResources]);
            cluster.agent("a1", "cpus:1;mem:100;gpus:1");
            assert_eq!(lines(&cluster.granted().await).len(), 1);
            cluster.framework("poor", "b", &[]);
            cluster.agent("a2", "cpus:2;mem:200");
            assert_eq!(lines(&cluster.granted().await), ["poor a2 cpus:2;mem:200"]);
            cluster.agent("a3", "cpus:1;mem:100");
            let given = lines(&cluster.granted().await);
            assert_eq!(
                given,
                [format!("{next} a3 cpus:1;mem:100")],
                "excluded: {excluded}"
            );
        });
    }
}

/// S113: strict priorities; the higher role is offered everything that it does not refuse, and
/// equal ones share.
// Covers S113.
#[test]
fn strict_priority_leaves_the_rest_to_lower_roles() {
    simulate(|node| async move {
        let sorter = Parameters::none("strict_priority");
        let weights = [("low", 1.0), ("high", 5.0), ("even", 5.0)];
        let cluster = Cluster::sorted_by(&node, &sorter, &weights);
        for role in ["low", "high", "even"] {
            cluster.framework(role, role, &[]);
        }
        let mut grants = Vec::new();
        for n in 0..5 {
            cluster.agent(&format!("a{n}"), "cpus:1;mem:100");
            grants.extend(cluster.granted().await);
        }
        let whose = |grants: &[Grant]| {
            let names = grants.iter().map(|grant| grant.framework_id.to_string());
            names.collect::<Vec<_>>()
        };
        assert_eq!(whose(&grants), ["even", "high", "even", "high", "even"]);
        cluster.give_back(&grants[0], Some(MINUTE));
        let next = cluster.granted().await;
        assert_eq!(whose(&next), ["high"]);
        cluster.give_back(&next[0], Some(MINUTE));
        assert_eq!(whose(&cluster.granted().await), ["low"]);
    });
}

/// The frameworks that 300 agents were offered to, by a lottery between two roles of weights 3 and
/// 1.
fn winners(seed: &'static str) -> Vec<String> {
    simulate(|node| async move {
        let sorter = Parameters::none("lottery").with("seed", seed);
        let cluster = Cluster::sorted_by(&node, &sorter, &[("prod", 3.0)]);
        for role in ["dev", "prod"] {
            cluster.framework(role, role, &[]);
        }
        for n in 0..300 {
            cluster.agent(&format!("a{n}"), "cpus:1;mem:100");
        }
        let grants = cluster.granted().await;
        let names = grants.iter().map(|grant| grant.framework_id.to_string());
        names.collect()
    })
}

/// SPEC 4.8, the random sorter: by weight, within four standard deviations; reproducible by its
/// seed.
// Covers S87.
#[test]
fn lottery_follows_weights_and_seed() {
    let won = |winners: &[String]| winners.iter().filter(|one| *one == "prod").count();
    for seed in ["1", "2", "3"] {
        let winners = winners(seed);
        assert_eq!(winners.len(), 300);
        assert!((195..=255).contains(&won(&winners)), "{}", won(&winners));
    }
    assert_eq!(winners("1"), winners("1"));
    assert_ne!(winners("1"), winners("2"));
}
