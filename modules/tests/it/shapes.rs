//! Offer shapes: minimum and maximum of frameworks' offers, in scenarios and as properties of
//! random histories.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use module_api::Parameters;
use module_api::allocator::{Grant, QuotasChanged, Recovered};
use module_api::sorter::{Advice, Client, Pool, Stage, is_allocatable};
use modules::allocator::AllocatorState;
use modules::sorter::Drf;
use proptest::prelude::*;
use protocol::{Capability, Demand, Quota};
use resources::{Name, Quantities, Scalar};
use runtime::Instant;
use runtime::testing::simulate;

use crate::cluster::{Cluster, added, agent, lent, lines, simulate_cluster, subscribed};

const SECOND: Duration = Duration::from_secs(1);

fn quantities(text: &str) -> Quantities {
    Quantities::parse(text).unwrap()
}

fn shaped(least: &str, most: &str) -> Demand {
    Demand::shaped(quantities(least), quantities(most))
}

// Covers W9 in part: without moving what runs.
#[test]
fn others_get_the_rest_of_a_shaped_offer() {
    simulate_cluster(|cluster| async move {
        let mut demand = shaped("cpus:1;mem:100", "cpus:2;mem:100");
        demand.most.set(Name::Ports, Scalar::whole(3));
        cluster.demanding("small", "a", demand);
        cluster.framework("coarse", "b", &[]);
        cluster.agent("a1", "cpus:8;mem:800;ports:[1-9]");
        let grants = cluster.granted().await;
        let given = ["small a1 cpus:2;mem:100", "coarse a1 cpus:6;mem:700"];
        assert_eq!(lines(&grants), given);
        let ports = grants
            .iter()
            .map(|grant| grant.resources.ports().to_string());
        assert_eq!(ports.collect::<Vec<_>>(), ["[1-3]", "[4-9]"]);
    });
}

/// W9: one offer of an agent in each run, and another one in the next batch, while it fits.
#[test]
fn small_shape_gets_one_offer_per_run() {
    simulate_cluster(|cluster| async move {
        cluster.demanding("small", "a", shaped("cpus:2", "cpus:3"));
        cluster.agent("a1", "cpus:8;mem:64");
        assert_eq!(lines(&cluster.granted().await), ["small a1 cpus:3;mem:64"]);
        cluster.wait(SECOND).await;
        assert_eq!(lines(&cluster.granted().await), ["small a1 cpus:3"]);
        cluster.wait(SECOND).await;
        assert_eq!(lines(&cluster.granted().await), ["small a1 cpus:2"]);
        cluster.demanding("small", "a", shaped("cpus:1", "cpus:1"));
        cluster.agent("a2", "cpus:1;mem:64");
        assert_eq!(lines(&cluster.granted().await), ["small a2 cpus:1;mem:64"]);
    });
}

/// SPEC 4.10 (MinAllocatable, per-framework min): a framework's minimum replaces the common one,
/// whether larger or smaller.
// Covers S126.
#[test]
fn own_minimum_replaces_the_common_one() {
    simulate_cluster(|cluster| async move {
        cluster.framework("plain", "a", &[]);
        cluster.demanding(
            "modest",
            "b",
            Demand {
                least: Some(vec![quantities("cpus:4"), quantities("disk:5")]),
                ..Demand::default()
            },
        );
        cluster.agent("a1", "mem:31;disk:4");
        assert_eq!(lines(&cluster.granted().await), [""; 0]);
        cluster.agent("a2", "mem:31;disk:5");
        assert_eq!(lines(&cluster.granted().await), ["modest a2 mem:31;disk:5"]);
        cluster.agent("a3", "cpus:3;mem:64");
        assert_eq!(lines(&cluster.granted().await), ["plain a3 cpus:3;mem:64"]);
        cluster.demanding(
            "modest",
            "b",
            Demand {
                least: Some(Vec::new()),
                ..Demand::default()
            },
        );
        assert_eq!(lines(&cluster.granted().await), ["modest a1 mem:31;disk:4"]);
    });
}

/// SPEC 4.6: a refused part is not offered again in another cut, and the agent is available to
/// others.
#[test]
fn refused_part_stays_hidden() {
    simulate_cluster(|cluster| async move {
        cluster.demanding("first", "a", shaped("cpus:1", "cpus:2;mem:64"));
        cluster.demanding("second", "b", shaped("cpus:1", "cpus:1;mem:32"));
        cluster.agent("a1", "cpus:8;mem:800");
        let grants = cluster.granted().await;
        let pieces = ["first a1 cpus:2;mem:64", "second a1 cpus:1;mem:32"];
        assert_eq!(lines(&grants), pieces);
        for grant in &grants {
            cluster.give_back(grant, Some(5 * SECOND));
        }
        cluster.framework("third", "c", &[]);
        assert_eq!(lines(&cluster.granted().await), ["third a1 cpus:8;mem:800"]);
    });
}

/// W9: the agents with the tightest fit come first, so that whole ones stay free.
// Covers W9 in part: without moving what runs.
#[test]
fn the_tightest_agents_that_fit_are_granted_first() {
    let order = |value: &'static str| {
        simulate(|node| async move {
            let allocator = Parameters::none("hierarchical").with("agent_order", value);
            let cluster = Cluster::of(&node, &Parameters::none("drf"), &allocator, &[]);
            for (name, total) in [
                ("big", 8),
                ("tiny", 2),
                ("snug", 3),
                ("middle", 4),
                ("vast", 9),
            ] {
                cluster.agent(name, &format!("cpus:{total};mem:64"));
            }
            cluster.demanding("f", "a", shaped("cpus:3", "cpus:3;mem:16"));
            let grants = cluster.granted().await;
            let agents = grants.iter().map(|grant| grant.agent_id.to_string());
            agents.collect::<Vec<_>>()
        })
    };
    assert_eq!(order("tightest_first"), ["snug", "middle", "big", "vast"]);
    let mut any = order("random");
    any.sort();
    assert_eq!(any, ["big", "middle", "snug", "vast"]);
}

const ROLES: [&str; 3] = ["a", "a/b", "c"];
/// Minimum and maximum of a framework's offers.
const SHAPES: [(Option<&[&str]>, &str); 6] = [
    (None, ""),
    (Some(&["cpus:1"]), "cpus:1;mem:40"),
    (Some(&["cpus:2;mem:40", "mem:90"]), "cpus:3"),
    (None, "mem:64;disk:0"),
    (Some(&[]), "cpus:0.5"),
    (Some(&["cpus:3"]), ""),
];

fn demand((least, most): (Option<&[&str]>, &str)) -> Demand {
    Demand {
        least: least.map(|sets| sets.iter().map(|set| quantities(set)).collect()),
        most: quantities(most),
        ..Demand::default()
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// An agent of this size, with oversubscribed resources.
    Agent(u32, u32, u32),
    /// A framework in this role, with this shape.
    Framework(u32, usize, usize),
    /// Guarantee and limit of a role in cpus; without both, no quota.
    Quota(usize, Option<(u32, u32)>),
    /// The nth grant is recovered, possibly with a filter of some tenths of a second.
    GiveBack(usize, Option<u64>),
    Run,
    /// A run of one stage with this advice.
    Hostile(usize, Vec<(u32, Client)>),
    Wait(u64),
}

fn step(quotas: bool) -> impl Strategy<Value = Step> {
    let quota = proptest::option::of((0_u32..4, 0_u32..9));
    prop_oneof![
        3 => (0_u32..4, 1_u32..9, 0_u32..4).prop_map(|(n, size, lent)| Step::Agent(n, size, lent)),
        4 => (0_u32..4, 0..ROLES.len(), 0..SHAPES.len()).prop_map(|(n, role, shape)| Step::Framework(n, role, shape)),
        u32::from(quotas) * 2 => (0..ROLES.len(), quota).prop_map(|(role, quota)| Step::Quota(role, quota)),
        4 => (any::<usize>(), proptest::option::of(0_u64..40)).prop_map(|(n, refuse)| Step::GiveBack(n, refuse)),
        6 => Just(Step::Run),
        1 => (0_usize..3, proptest::collection::vec((0_u32..4, 0_u32..8), 0..12))
            .prop_map(|(stage, advice)| Step::Hostile(stage, advice)),
        2 => (0_u64..30).prop_map(Step::Wait),
    ]
}

struct World {
    state: AllocatorState,
    sorter: Drf,
    shapes: BTreeMap<String, usize>,
    held: Vec<Grant>,
    now: Instant,
}

impl World {
    fn new() -> Self {
        Self {
            state: AllocatorState::default(),
            sorter: Drf::default(),
            shapes: BTreeMap::new(),
            held: Vec::new(),
            now: Instant::default(),
        }
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Agent(n, size, lends) => {
                let id = agent(&format!("a{n}"));
                self.held.retain(|grant| grant.agent_id != id);
                let total = format!(
                    "cpus:{size};mem:{};cpus(a):{};disk(a/b):{size};ports:[1-{size}]",
                    size * 40,
                    size % 3 + 1
                );
                let mut added = added(&format!("a{n}"), &total, vec![]);
                if lends > 0 {
                    added.oversubscribed = lent(&format!("cpus:{lends}"));
                }
                self.state.agent_added(added);
            }
            Step::Framework(n, role, shape) => {
                let name = format!("f{n}");
                let mut added = subscribed(&name, ROLES[role], &[Capability::RevocableResources]);
                let demands = &mut added.wants.demands;
                demands.insert(ROLES[role].to_owned(), demand(SHAPES[shape]));
                self.state.framework_added(added);
                self.shapes.insert(name, shape);
            }
            Step::Quota(role, quota) => {
                let quota = quota.map_or_else(Quota::default, |(guarantee, limit)| Quota {
                    guarantees: quantities(&format!("cpus:{guarantee}")),
                    limits: quantities(&format!("cpus:{}", guarantee + limit)),
                });
                let quotas = BTreeMap::from([(ROLES[role].to_owned(), quota)]);
                self.state.quotas_changed(&QuotasChanged { quotas });
            }
            Step::GiveBack(n, refuse) => self.give_back(n, refuse),
            Step::Run => self.run(),
            Step::Hostile(stage, advice) => self.obey(Stage::ALL[stage], &advice),
            Step::Wait(tenths) => self.now = self.now + Duration::from_millis(tenths * 100),
        }
    }

    fn give_back(&mut self, n: usize, refuse: Option<u64>) {
        if self.held.is_empty() {
            return;
        }
        let grant = self.held.remove(n % self.held.len());
        // The hog sets no filters.
        let refuse = refuse.filter(|_| grant.framework_id.as_str() != "hog");
        let recovered = Recovered {
            framework_id: grant.framework_id,
            agent_id: grant.agent_id,
            resources: grant.resources,
            refuse: refuse.map(|tenths| Duration::from_millis(tenths * 100)),
            beside_offer: false,
        };
        self.state.recovered(&recovered, self.now);
    }

    /// A batch, with as many rounds in each stage as in the allocator.
    fn run(&mut self) {
        let slots = self.state.candidates(self.now, true);
        for stage in Stage::ALL {
            let (mut again, mut barred) = (slots.clone(), BTreeSet::new());
            for _ in 0..4 {
                let slate = self.state.slate(stage, &again, &barred, self.now);
                let Some((slate, asked)) = slate else {
                    again.clear();
                    break;
                };
                let advice = self.sorter.advise(slate).unwrap();
                let booked = self.state.book(asked, &advice, self.now);
                let faults = booked
                    .refusals
                    .iter()
                    .filter(|(refusal, _)| refusal.is_fault());
                assert_eq!(faults.count(), 0, "{:?}", booked.refusals);
                for (_, grant) in &booked.grants {
                    self.check(grant);
                }
                self.held
                    .extend(booked.grants.into_iter().map(|(_, grant)| grant));
                self.agree(booked.refusals.is_empty() && booked.again.is_empty());
                again = booked.again;
                barred.extend(booked.barred);
                if again.is_empty() {
                    break;
                }
            }
            self.state.postpone(&again);
        }
    }

    /// Applies arbitrary advice, and begins a new epoch.
    fn obey(&mut self, stage: Stage, advice: &[(u32, Client)]) {
        let slots = self.state.candidates(self.now, true);
        let slate = self
            .state
            .slate(stage, &slots, &Default::default(), self.now);
        if let Some((_, asked)) = slate {
            let advice = advice.iter().map(|&(room, client)| Advice { room, client });
            let advice: Vec<Advice> = advice.collect();
            let booked = self.state.book(asked, &advice, self.now);
            booked
                .grants
                .iter()
                .for_each(|(_, grant)| self.check(grant));
            self.held
                .extend(booked.grants.into_iter().map(|(_, grant)| grant));
            self.state.begin_epoch();
        }
        self.state.postpone(&slots);
    }

    /// A grant is within the maximum of its client, and not below its minimum.
    fn check(&self, grant: &Grant) {
        let shape = self.shapes.get(grant.framework_id.as_str()).copied();
        let demand = demand(SHAPES[shape.unwrap_or(0)]);
        let amount = grant.resources.quantities();
        for (name, most) in demand.most.iter() {
            assert!(amount.get(name) <= most, "{amount} against {demand:?}");
        }
        let sets = demand.least.as_ref().unwrap_or(&self.state.sets_min);
        assert!(is_allocatable(&amount, sets), "{amount} against {demand:?}");
    }

    /// The sorter's state equals the allocator's view of it; if all advice was followed, both equal
    /// the actual state.
    fn agree(&mut self, followed: bool) {
        let assumed = self.state.assumed_budgets();
        assert_eq!(self.sorter.budgets().table(), assumed.table());
        assert_eq!(self.sorter.budgets().headroom(), assumed.headroom());
        if !followed {
            return;
        }
        for pool in Pool::ALL {
            let tree = self.sorter.tree(pool);
            for (client, record) in self.state.clients.iter() {
                if tree.knows(client) {
                    // An exhausted limit may leave a name with zero or remove it.
                    let (assumed, held) = (tree.held_by(client), record.held(pool));
                    let same = assumed.contains(held) && held.contains(&assumed);
                    assert!(same, "client {client}: {assumed} and {held}");
                }
            }
        }
    }

    /// No agent is over-committed.
    fn audit(&self) {
        for agent in self.state.agents() {
            let balance = &agent.pools[0];
            assert!(
                balance.total.contains(&balance.held()),
                "{}: {}",
                agent.id,
                balance.held()
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// W9, SPEC 4.1 and 4.5: under any facts and quotas.
    #[test]
    fn grants_fit_shapes_and_sorter_state_agrees(
        steps in proptest::collection::vec(step(true), 1..80),
    ) {
        let mut world = World::new();
        for step in steps {
            world.take(step);
            world.audit();
        }
    }

    /// W9: frameworks with shapes do not starve others: a framework without a shape gets all the
    /// rest in the same run.
    // Covers W9 in part: without moving what runs.
    #[test]
    fn rest_of_shaped_offers_goes_to_others(
        steps in proptest::collection::vec(step(false), 1..80),
    ) {
        let mut world = World::new();
        world.state.framework_added(subscribed("hog", "h", &[]));
        for step in steps {
            let ran = matches!(step, Step::Run);
            world.take(step);
            if ran {
                for agent in world.state.agents() {
                    let rest = agent.pools[0].total.saturating_sub(&agent.pools[0].held());
                    let rest = rest.filter(|own| !own.is_reserved()).quantities();
                    prop_assert!(!is_allocatable(&rest, &world.state.sets_min), "{}: {rest}", agent.id);
                }
            }
        }
    }
}
