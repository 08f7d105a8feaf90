//! Stories of the real allocator and sorter in virtual time.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use module_api::allocator::{
    AgentActivity, AgentOversubscribed, AgentRemoved, FrameworkActivity, Grant, Revived,
    Suppressed, WeightsChanged,
};
use protocol::Capability;
use resources::{Resources, Role};
use runtime::rehearsal::{rehearse, stage};

use crate::cluster::{Cluster, MOMENT, added, agent, counts, framework, lent, lines};

const SECOND: Duration = Duration::from_secs(1);

/// S77, S88: of 60 equal slots, dev (weight 2), qa (1) and prod (3) get 20, 10 and 30, to the slot.
#[test]
fn sixty_equal_slots_go_by_weight() {
    rehearse(|node| async move {
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

/// S88: a weight that changes counts from the next grant on, and begins a run at once; a weight of 1 is none.
#[test]
fn a_changed_weight_counts_at_once_and_one_of_1_is_forgotten() {
    rehearse(|node| async move {
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

/// SPEC 4.10, UnreservedDRF, each agent offered as soon as it is there.
#[test]
fn agents_go_one_by_one_to_the_poorest() {
    rehearse(|node| async move {
        let cluster = Cluster::new(&node, &[]);
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
#[test]
fn reserved_resources_go_to_their_role_or_one_below_it_and_to_nobody_else() {
    rehearse(|node| async move {
        let cluster = Cluster::new(&node, &[]);
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

/// S128: what is offered counts, so who sits on offers gets no more than who uses them.
#[test]
fn what_is_only_offered_counts_towards_the_share() {
    rehearse(|node| async move {
        let cluster = Cluster::new(&node, &[]);
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

/// S8, S11, S17, S46, S61: revocable resources go to those who asked for them, in grants of their own, by shares of their own.
#[test]
fn revocable_resources_go_only_to_those_who_asked_and_never_with_regular_ones() {
    rehearse(|node| async move {
        let cluster = Cluster::new(&node, &[]);
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
        // Brave holds all revocable cpus and nothing regular: it is the richest of one pool and the poorest of the other.
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

/// SPEC 4.10, UpdateSlave oversubscription: 10, then 2 more, then none until less is held than is lent.
#[test]
fn what_an_agent_lends_no_more_is_wanted_back_and_not_offered_again() {
    rehearse(|node| async move {
        let cluster = Cluster::new(&node, &[]);
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

/// What is free again is offered at once and not after the interval (better than SPEC 4.4).
#[test]
fn freed_resources_do_not_wait_for_the_batch() {
    rehearse(|node| async move {
        let cluster = Cluster::new(&node, &[]);
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

/// SPEC 4.6, S127: a filter hides for as long as was said and not less than an interval, and what is bigger passes.
#[test]
fn a_filter_hides_exactly_as_long_as_it_should() {
    for (refuse, hidden) in [(5_000, 5_000), (1_000, 1_000), (100, 1_000), (2_500, 2_500)] {
        rehearse(|node| async move {
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

#[test]
fn a_bigger_offer_passes_a_filter_and_a_smaller_does_not() {
    rehearse(|node| async move {
        let cluster = Cluster::new(&node, &[]);
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

/// What one refuses is offered to the next at once, and comes back to the first only after its filter.
#[test]
fn what_one_refuses_the_next_is_offered() {
    rehearse(|node| async move {
        let cluster = Cluster::new(&node, &[]);
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

/// A refusal of no time is no filter, and yet nobody is asked in a hot loop.
#[test]
fn who_refuses_for_no_time_is_asked_once_a_batch() {
    rehearse(|node| async move {
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
#[test]
fn who_wants_nothing_is_asked_nothing_until_it_revives() {
    rehearse(|node| async move {
        let cluster = Cluster::new(&node, &[]);
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
        // Its filter is forgotten; refused in one role, it is asked in the other.
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
fn an_agent_that_is_gone_or_put_aside_is_not_offered() {
    rehearse(|node| async move {
        let cluster = Cluster::new(&node, &[]);
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
        cluster.give_back(&grants[0], None); // Too late, and no error.
        let agent_id = agent("a1");
        let active = true;
        cluster
            .allocator
            .tell(AgentActivity { agent_id, active })
            .unwrap();
        assert_eq!(lines(&cluster.granted().await), ["f a1 cpus:4;mem:100"]);
    });
}

/// SPEC 4.5: agents with graphics processors are for those who can use them.
#[test]
fn an_agent_with_gpus_is_kept_for_those_who_can_use_them() {
    rehearse(|node| async move {
        let cluster = Cluster::new(&node, &[]);
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

/// What frameworks hold when an agent comes back counts, also of those that come back later; a new `Begin` forgets everything.
#[test]
fn what_is_held_already_counts_and_a_new_beginning_forgets_it() {
    rehearse(|node| async move {
        let cluster = Cluster::new(&node, &[]);
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

/// One seed gives one run (DESIGN 10).
#[test]
fn one_seed_gives_one_sequence_of_grants_and_another_seed_another() {
    let play = |seed: u64| {
        stage(async move {
            let node = runtime::rehearsal::node("node").seed(seed).build();
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
