//! Scenarios with the real allocator and sorter in virtual time.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use module_api::allocator::{
    AgentActivity, AgentOversubscribed, AgentRemoved, FrameworkActivity, Grant, Revived,
    Suppressed, WeightsChanged,
};
use protocol::Capability;
use resources::{Resources, Role};
use runtime::testing::{run_simulated, simulate};

use crate::cluster::{
    Cluster, MOMENT, added, agent, counts, framework, lent, lines, simulate_cluster,
};

const SECOND: Duration = Duration::from_secs(1);

/// S77, S88: of 60 equal slots, dev (weight 2), qa (1) and prod (3) get exactly 20, 10 and 30.
// Covers S77; S87; S88 in part: all but weights that are not whole; S113.
#[test]
fn sixty_equal_slots_go_by_weight() {
    simulate(|node| async move {
        let cluster = Cluster::new(&node, &[("dev", 2.0), ("qa", 1.0), ("prod", 3.0)]);
        for role in ["dev", "qa", "prod"] {
            cluster.framework(role, role, &[]);
        }
        for slot in 0..60 {
            cluster.agent(&format!("slot-{slot}"), "cpus:1;mem:128");
        }
        let expected =
            [("dev", 20), ("prod", 30), ("qa", 10)].map(|(role, count)| (role.to_owned(), count));
        assert_eq!(counts(&cluster.granted().await), BTreeMap::from(expected));
        cluster.wait(10 * SECOND).await;
        assert_eq!(cluster.granted().await, [], "all slots are held");
    });
}

/// S88: a changed weight applies to the next grant and starts a run at once; a weight of 1 removes
/// the entry.
#[test]
fn changed_weight_applies_at_once() {
    simulate(|node| async move {
        let cluster = Cluster::new(&node, &[("a", 3.0)]);
        let weigh = |weight: f64| {
            let weights = BTreeMap::from([("a".to_owned(), weight)]);
            cluster.allocator.tell(WeightsChanged { weights }).unwrap();
        };
        cluster.framework("a", "a", &[]);
        cluster.framework("b", "b", &[]);
        let mut arrived = 0;
        let mut arrive = |count: usize| {
            for _ in 0..count {
                cluster.agent(&format!("slot-{arrived}"), "cpus:1;mem:128");
                arrived += 1;
            }
        };
        arrive(8);
        let given = |a: usize, b: usize| BTreeMap::from([("a".into(), a), ("b".into(), b)]);
        assert_eq!(counts(&cluster.granted().await), given(6, 2));
        weigh(1.0);
        arrive(8);
        assert_eq!(counts(&cluster.granted().await), given(2, 6));
        weigh(0.0);
        arrive(4);
        assert_eq!(
            counts(&cluster.granted().await),
            given(2, 2),
            "0 is no weight"
        );
    });
}

/// SPEC 4.10, UnreservedDRF, each agent offered as soon as it is added.
// Covers S86.
#[test]
fn agents_go_to_the_smallest_share() {
    simulate_cluster(|cluster| async move {
        let mut given = Vec::new();
        let arrivals = [
            (Some(("f1", "role1")), "a1", "cpus:2;mem:1024"),
            (Some(("f2", "role2")), "a2", "cpus:1;mem:512"),
            (None, "a3", "cpus:3;mem:2048"),
            (Some(("f3", "role1")), "a4", "cpus:4;mem:4096"),
            (None, "a5", "cpus:1;mem:512"),
        ];
        for (newcomer, name, total) in arrivals {
            if let Some((name, role)) = newcomer {
                cluster.framework(name, role, &[]);
            }
            cluster.agent(name, total);
            given.extend(lines(&cluster.granted().await));
        }
        assert_eq!(
            given,
            [
                "f1 a1 cpus:2;mem:1024",
                "f2 a2 cpus:1;mem:512",
                "f2 a3 cpus:3;mem:2048",
                "f3 a4 cpus:4;mem:4096",
                "f2 a5 cpus:1;mem:512",
            ]
        );
    });
}

/// SPEC 4.10, ReservedDRF and OfferAncestorReservationsToDescendantChild; S89.
// Covers S40 in part: statically and over HTTP; S89.
#[test]
fn reserved_resources_go_to_their_role_or_below() {
    simulate_cluster(|cluster| async move {
        cluster.framework("other", "other", &[]);
        cluster.agent("a1", "cpus:1;mem:100;cpus(ads):2;ports(ads):[1-9]");
        assert_eq!(lines(&cluster.granted().await), ["other a1 cpus:1;mem:100"]);
        cluster.framework("ads", "ads/video", &[]);
        let grants = cluster.granted().await;
        assert_eq!(lines(&grants), ["ads a1 cpus:2"]);
        assert_eq!(grants[0].resources.ports().to_string(), "[1-9]");
        let bears_its_role = |grant: &Grant| {
            let role = Role::new(&grant.role).unwrap();
            grant
                .resources
                .iter()
                .all(|resource| resource.allocation_role() == Some(&role))
        };
        assert!(grants.iter().all(bears_its_role), "{grants:?}");
    });
}

/// S128: outstanding offers count, so holding offers back gives no advantage.
// Covers S128.
#[test]
fn outstanding_offers_count_for_the_share() {
    simulate_cluster(|cluster| async move {
        cluster.framework("hoarder", "a", &[]);
        cluster.agent("a1", "cpus:4;mem:100");
        cluster.granted().await;
        cluster.framework("other", "b", &[]);
        for name in ["a2", "a3"] {
            cluster.agent(name, "cpus:2;mem:50");
            assert_eq!(
                lines(&cluster.granted().await),
                [format!("other {name} cpus:2;mem:50")]
            );
        }
    });
}

/// S8, S11, S17, S46, S61: revocable resources go only to frameworks with the capability, in
/// separate grants, by separate shares.
// Covers S8; S11; S17; S46; S52; S61 in part: regular apart from revocable.
#[test]
fn revocable_resources_require_the_capability() {
    simulate_cluster(|cluster| async move {
        cluster.framework("plain", "a", &[]);
        let mut first = added("a1", "cpus:4;mem:100", vec![]);
        first.oversubscribed = lent("cpus:2");
        cluster.allocator.tell(first).unwrap();
        assert_eq!(lines(&cluster.granted().await), ["plain a1 cpus:4;mem:100"]);
        cluster.wait(5 * SECOND).await;
        assert_eq!(
            cluster.granted().await,
            [],
            "nobody may have the revocable ones"
        );
        cluster.framework("brave", "b", &[Capability::RevocableResources]);
        cluster.framework("daring", "c", &[Capability::RevocableResources]);
        let grants = cluster.granted().await;
        assert_eq!(lines(&grants), ["brave a1 cpus:2"]);
        assert_eq!(grants[0].resources.unallocate(), lent("cpus:2"));
        // Brave holds all revocable cpus and nothing regular: the largest share in one pool and the
        // smallest in the other.
        let mut second = added("a2", "cpus:1;mem:50", vec![]);
        second.oversubscribed = lent("cpus:1");
        cluster.allocator.tell(second).unwrap();
        let grants = cluster.granted().await;
        assert_eq!(
            lines(&grants),
            ["brave a2 cpus:1;mem:50", "daring a2 cpus:1"]
        );
        assert!(grants[0].resources.revocable().is_empty());
        assert!(grants[1].resources.non_revocable().is_empty());
    });
}

/// SPEC 4.10, UpdateSlave oversubscription: 10, then 2 more, then none until less is allocated than
/// oversubscribed.
// Covers S51 in part: the oversubscribed ones; S52.
// Covers S56 in part: for usage slack, and without lowering its books; S57.
#[test]
fn reduced_oversubscription_is_withdrawn() {
    simulate_cluster(|cluster| async move {
        cluster.framework("brave", "*", &[Capability::RevocableResources]);
        cluster.agent("a1", "cpus:1;mem:100");
        cluster.granted().await;
        let lend = |text: &str| {
            let agent_id = agent("a1");
            let total = lent(text);
            cluster
                .allocator
                .tell(AgentOversubscribed { agent_id, total })
                .unwrap();
        };
        lend("cpus:10");
        let ten = cluster.granted().await;
        assert_eq!(lines(&ten), ["brave a1 cpus:10"]);
        lend("cpus:12");
        let two = cluster.granted().await;
        assert_eq!(lines(&two), ["brave a1 cpus:2"]);
        lend("cpus:5");
        let (grants, withdrawn) = cluster.told().await;
        assert_eq!(grants, []);
        let wanted: Vec<_> = withdrawn
            .iter()
            .map(|one| (one.agent_id.as_str(), &one.resources))
            .collect();
        assert_eq!(wanted, [("a1", &lent("cpus:7"))]);
        cluster.give_back(&two[0], None);
        assert_eq!(cluster.granted().await, [], "10 are held and 5 are lent");
        cluster.give_back(&ten[0], None);
        assert_eq!(lines(&cluster.granted().await), ["brave a1 cpus:5"]);
        lend("cpus:5");
        assert_eq!(cluster.told().await, (vec![], vec![]));
    });
}

/// Freed resources are offered at once and not after the interval (better than SPEC 4.4).
// Covers W16.
#[test]
fn freed_resources_do_not_wait_for_the_batch() {
    simulate_cluster(|cluster| async move {
        cluster.framework("f", "*", &[]);
        cluster.agent("a1", "cpus:4;mem:100");
        let offer = cluster.granted().await.remove(0);
        for _ in 0..20 {
            let part = Resources::parse("cpus:1").unwrap().allocate(&Role::STAR);
            cluster.give_back_part(&offer, part, None);
            assert_eq!(lines(&cluster.granted().await), ["f a1 cpus:1"]);
        }
    });
}

/// SPEC 4.6, S127: a filter hides offers for its duration, at least an interval, and larger offers
/// pass.
// Covers S127.
#[test]
fn filter_lasts_as_requested() {
    for (refuse, hidden) in [(5_000, 5_000), (1_000, 1_000), (100, 1_000), (2_500, 2_500)] {
        simulate(|node| async move {
            let cluster = Cluster::new(&node, &[]);
            cluster.framework("f", "*", &[]);
            cluster.agent("a1", "cpus:4;mem:100");
            let offer = cluster.granted().await.remove(0);
            let clock = node.clock();
            cluster.give_back(&offer, Some(Duration::from_millis(refuse)));
            let refused = clock.now();
            while (clock.now() - refused) + MOMENT < Duration::from_millis(hidden) {
                assert_eq!(
                    cluster.granted().await,
                    [],
                    "after {:?}",
                    clock.now() - refused
                );
            }
            cluster.wait(SECOND).await;
            assert_eq!(
                cluster.granted().await.len(),
                1,
                "by the next batch after its end"
            );
        });
    }
}

// Covers 2.2 Filters.
#[test]
fn larger_offer_passes_a_filter() {
    simulate_cluster(|cluster| async move {
        cluster.framework("f", "*", &[]);
        cluster.agent("a1", "cpus:4;mem:100");
        let offer = cluster.granted().await.remove(0);
        let part = |text: &str| Resources::parse(text).unwrap().allocate(&Role::STAR);
        cluster.give_back_part(&offer, part("cpus:2;mem:50"), Some(60 * SECOND));
        assert_eq!(cluster.granted().await, []);
        cluster.give_back_part(&offer, part("cpus:1"), None);
        assert_eq!(lines(&cluster.granted().await), ["f a1 cpus:3;mem:50"]);
    });
}

/// Declined resources are offered to the next framework at once, and to the first one only after
/// its filter.
// Covers S112; W16.
#[test]
fn declined_offer_goes_to_the_next_framework() {
    simulate_cluster(|cluster| async move {
        for name in ["f1", "f2", "f3"] {
            cluster.framework(name, "*", &[]);
        }
        cluster.agent("a1", "cpus:4;mem:100");
        let mut asked = Vec::new();
        for _ in 0..3 {
            let grants = cluster.granted().await;
            asked.push(grants[0].framework_id.to_string());
            cluster.give_back(&grants[0], Some(5 * SECOND));
        }
        assert_eq!(asked, ["f1", "f2", "f3"]);
        assert_eq!(cluster.granted().await, []);
        cluster.wait(6 * SECOND).await;
        assert_eq!(
            counts(&cluster.granted().await),
            BTreeMap::from([("f1".to_owned(), 1)])
        );
    });
}

/// A refusal without a duration is not a filter, but does not cause a busy loop.
#[test]
fn zero_filter_reoffers_once_per_batch() {
    simulate(|node| async move {
        let cluster = Cluster::new(&node, &[]);
        cluster.framework("f", "*", &[]);
        cluster.agent("a1", "cpus:4;mem:100");
        let mut asked = 0;
        let begun = node.clock().now();
        while node.clock().now() - begun < 10 * SECOND {
            for grant in cluster.granted().await {
                asked += 1;
                cluster.give_back(&grant, Some(Duration::ZERO));
            }
        }
        assert!(
            (9..=11).contains(&asked),
            "asked {asked} times in ten seconds"
        );
    });
}

/// SPEC 4.4, 4.6, S124: suppress, revive, deactivate.
// Covers S124; W8; 2.2 REVIVE, SUPPRESS.
#[test]
fn suppressed_framework_gets_no_offers_until_revive() {
    simulate_cluster(|cluster| async move {
        cluster.framework("f", "a,b", &[]);
        let (framework_id, roles) = (framework("f"), BTreeSet::new());
        let suppressed = Suppressed {
            framework_id: framework_id.clone(),
            roles: roles.clone(),
        };
        cluster.allocator.tell(suppressed).unwrap();
        cluster.agent("a1", "cpus:4;mem:100");
        cluster.wait(3 * SECOND).await;
        assert_eq!(cluster.granted().await, []);
        let revive = |roles: &[&str]| Revived {
            framework_id: framework_id.clone(),
            roles: roles.iter().map(|role| (*role).to_owned()).collect(),
        };
        cluster.allocator.tell(revive(&["b"])).unwrap();
        let grants = cluster.granted().await;
        assert_eq!((grants.len(), grants[0].role.as_str()), (1, "b"));
        cluster.give_back(&grants[0], Some(100 * SECOND));
        assert_eq!(cluster.granted().await, []);
        cluster.allocator.tell(revive(&[])).unwrap();
        // Its filter is dropped; after a refusal in one role it gets the offer in the other.
        for role in ["a", "b"] {
            let grants = cluster.granted().await;
            assert_eq!((grants.len(), grants[0].role.as_str()), (1, role));
            cluster.give_back(&grants[0], Some(100 * SECOND));
        }
        for active in [false, true] {
            assert_eq!(cluster.granted().await.len(), 0);
            let framework_id = framework_id.clone();
            cluster
                .allocator
                .tell(FrameworkActivity {
                    framework_id,
                    active,
                })
                .unwrap();
        }
        assert_eq!(
            cluster.granted().await.len(),
            1,
            "inactive, it lost its filters"
        );
    });
}

/// SPEC 4.10, DeactivateAgent, RemoveAgent with outstanding offers.
#[test]
fn removed_or_inactive_agent_is_not_offered() {
    simulate_cluster(|cluster| async move {
        cluster.agent("a1", "cpus:4;mem:100");
        cluster.agent("a2", "cpus:1;mem:100");
        let agent_id = agent("a1");
        let active = false;
        cluster
            .allocator
            .tell(AgentActivity { agent_id, active })
            .unwrap();
        cluster.framework("f", "*", &[]);
        let grants = cluster.granted().await;
        assert_eq!(lines(&grants), ["f a2 cpus:1;mem:100"]);
        cluster
            .allocator
            .tell(AgentRemoved {
                agent_id: agent("a2"),
            })
            .unwrap();
        cluster.give_back(&grants[0], None); // Too late, and not an error.
        let agent_id = agent("a1");
        let active = true;
        cluster
            .allocator
            .tell(AgentActivity { agent_id, active })
            .unwrap();
        assert_eq!(lines(&cluster.granted().await), ["f a1 cpus:4;mem:100"]);
    });
}

/// SPEC 4.5: agents with GPUs go only to frameworks that can use them.
#[test]
fn agents_with_gpus_require_the_capability() {
    simulate_cluster(|cluster| async move {
        cluster.framework("blind", "a", &[]);
        cluster.agent("a1", "cpus:4;mem:100;gpus:1");
        assert_eq!(cluster.granted().await, []);
        cluster.framework("seeing", "b", &[Capability::GpuResources]);
        assert_eq!(
            lines(&cluster.granted().await),
            ["seeing a1 cpus:4;mem:100;gpus:1"]
        );
    });
}

/// Existing allocations of a registered agent count, also for frameworks that subscribe later; a
/// new `Begin` resets everything.
#[test]
fn existing_allocations_count_until_a_new_begin() {
    simulate_cluster(|cluster| async move {
        let held = Resources::parse("cpus:3;mem:60")
            .unwrap()
            .allocate(&Role::new("a").unwrap());
        cluster.agent_with(
            "a1",
            "cpus:4;mem:100",
            vec![(framework("old"), held.clone())],
        );
        cluster.framework("new", "b", &[]);
        assert_eq!(lines(&cluster.granted().await), ["new a1 cpus:1;mem:40"]);
        cluster.framework("old", "a", &[]);
        cluster.agent("a2", "cpus:1;mem:10");
        assert_eq!(
            lines(&cluster.granted().await),
            ["new a2 cpus:1;mem:10"],
            "old holds more"
        );
        cluster.begin(&[]);
        cluster.agent("a1", "cpus:4;mem:100");
        cluster.framework("old", "a", &[]);
        assert_eq!(lines(&cluster.granted().await), ["old a1 cpus:4;mem:100"]);
    });
}

/// One seed produces one run.
#[test]
fn grants_are_reproducible_by_seed() {
    let play = |seed: u64| {
        run_simulated(async move {
            let node = runtime::testing::node("node").seed(seed).build();
            let cluster = Cluster::new(&node, &[("r1", 1.5)]);
            for name in 0..5 {
                cluster.framework(&format!("f{name}"), &format!("r{}", name % 2), &[]);
            }
            for name in 0..40 {
                cluster.agent(
                    &format!("a{name}"),
                    &format!("cpus:{};mem:200", name % 7 + 1),
                );
            }
            let mut all = Vec::new();
            for round in 0..6 {
                let grants = cluster.granted().await;
                all.extend(lines(&grants));
                for grant in &grants {
                    cluster.give_back(grant, (round % 2 == 0).then_some(SECOND));
                }
            }
            all
        })
    };
    assert_eq!(play(1), play(1));
    assert_ne!(play(1), play(2));
}
