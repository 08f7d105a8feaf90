//! Random histories: facts of a master in any order, and the world in which they happen.
//!
//! Every fact goes to the allocator's state and to an independent [`Ledger`]; both are compared
//! after every step.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use module_api::allocator::WeightsChanged;
use module_api::sorter::{Advice, Client, Pool, Slate, Stage};
use modules::allocator::AllocatorState;
use modules::sorter::{Fair, Order, TreeSorter};
use proptest::prelude::*;
use resources::{Name, Quantities, Resources, Role};

use super::facts::{Fact, fact};
use super::ledger::{Ledger, scalar};
use super::tenants::returning;

/// Slates in one stage of a run, as in the allocator.
const ROUNDS_MAX: usize = 4;

#[derive(Clone, Debug)]
pub enum Step {
    Tell(Fact),
    /// A run with correct advice, and facts that arrive while the sorter computes it.
    Honest(bool, Vec<Fact>),
    /// A run with this advice, or with an error.
    Hostile(Option<Vec<(u32, Client)>>),
    Wait(u64),
    /// No facts until nothing changes any more.
    Settle,
}

/// A history in which frameworks sometimes leave and return as in [`returning`].
pub fn steps() -> impl Strategy<Value = Vec<Step>> {
    let act = prop_oneof![
        60 => step().prop_map(|step| vec![step]),
        1 => returning(),
    ];
    proptest::collection::vec(act, 1..80).prop_map(|acts| acts.concat())
}

fn step() -> impl Strategy<Value = Step> {
    let lies = proptest::collection::vec((0_u32..6, 0_u32..12), 0..10);
    prop_oneof![
        30 => fact().prop_map(Step::Tell),
        6 => any::<bool>().prop_map(|batch| Step::Honest(batch, Vec::new())),
        3 => proptest::collection::vec(fact(), 1..4).prop_map(|facts| Step::Honest(true, facts)),
        3 => proptest::option::weighted(0.8, lies).prop_map(Step::Hostile),
        2 => (0_u64..30).prop_map(Step::Wait),
        3 => Just(Step::Settle),
    ]
}

#[derive(Clone)]
pub struct World<O: Order = Fair> {
    pub state: AllocatorState,
    pub sorter: TreeSorter<O>,
    pub ledger: Ledger,
    /// Number of created volumes.
    pub volumes: u32,
    /// Whether idle reservations count.
    charges: bool,
    /// Whether the sorter is random, so that two runs may differ.
    dice: bool,
}

impl Default for World {
    fn default() -> Self {
        Self::ordered_by(|| Fair)
    }
}

impl<O: Order> World<O> {
    /// A world whose sorter uses this order.
    pub fn ordered_by(order: impl FnMut() -> O) -> Self {
        let mut world = Self {
            state: AllocatorState::default(),
            sorter: TreeSorter::ordered_by(order, Vec::new()),
            ledger: Ledger::default(),
            volumes: 0,
            charges: false,
            dice: false,
        };
        world.begun();
        world
    }

    /// Marks the order as random.
    pub fn by_dice(mut self) -> Self {
        self.dice = true;
        self
    }

    /// Enables charging of idle reservations.
    pub fn charge_reservations(&mut self) {
        self.state.charge_reservations();
        self.charges = true;
    }

    pub fn take(&mut self, step: Step) {
        match step {
            Step::Tell(fact) => self.tell(fact),
            Step::Honest(batch, meanwhile) => {
                self.run(batch, None, meanwhile);
            }
            Step::Hostile(advice) => {
                let lies = advice.map(|pairs| {
                    let advice = |(room, client)| Advice { room, client };
                    pairs.into_iter().map(advice).collect()
                });
                self.run(true, Some(lies), Vec::new());
                // Clients without advice wait: the sorter was replaced.
                self.state.begin_epoch();
                self.look_at_everybody();
            }
            Step::Wait(tenths) => {
                self.ledger.now = self.ledger.now + Duration::from_millis(tenths * 100)
            }
            Step::Settle => self.settle_both_ways(),
        }
        self.compare();
    }

    /// Marks all agents for the next run.
    fn look_at_everybody(&mut self) {
        let weights = BTreeMap::new();
        self.state.weights_changed(&WeightsChanged { weights });
    }

    /// Runs until there are no more grants; time stands still.
    fn settle(&mut self) {
        for _ in 0..40 {
            if self.run(true, None, Vec::new()) == 0 {
                return;
            }
        }
        panic!("grants without end");
    }

    /// At rest, the state after incremental runs equals that after full runs, and nothing is
    /// withheld without a reason.
    fn settle_both_ways(&mut self) {
        let mut full = self.clone();
        full.look_at_everybody();
        full.settle();
        self.settle();
        let held = |world: &Self| -> Vec<_> {
            let hosts = world.ledger.hosts.values();
            hosts.map(|host| host.held.clone()).collect()
        };
        if !self.dice {
            let (part, full) = (held(self), held(&full));
            assert_eq!(part, full, "in full and in part: {:#?}", self.ledger);
        }
        self.ledger.nothing_is_withheld();
        let mut again = self.clone();
        again.look_at_everybody();
        assert_eq!(again.run(true, None, Vec::new()), 0, "{:#?}", self.ledger);
    }

    /// One run, as in the allocator. Returns the number of grants.
    fn run(
        &mut self,
        batch: bool,
        lies: Option<Option<Vec<Advice>>>,
        meanwhile: Vec<Fact>,
    ) -> usize {
        let grants = self.run_stages(batch, lies, meanwhile);
        self.state.run_ended();
        // Independent of the grants, inverse offers are as expected.
        let asked = self.state.inverse_grants(None, self.ledger.now).into_iter();
        let asked: BTreeSet<_> = asked
            .map(|one| (one.agent_id, one.framework_id, one.unavailability))
            .collect();
        assert_eq!(asked, self.ledger.asked_to_leave());
        grants
    }

    fn run_stages(
        &mut self,
        batch: bool,
        lies: Option<Option<Vec<Advice>>>,
        meanwhile: Vec<Fact>,
    ) -> usize {
        let now = self.ledger.now;
        let all = self.state.candidates(now, batch);
        for (id, host) in &mut self.ledger.hosts {
            let slot = self.state.slot_of(id);
            if slot.is_some_and(|slot| all.contains(&slot)) {
                host.given = Resources::new();
            }
        }
        let mut meanwhile = Some(meanwhile);
        let mut grants = 0;
        for stage in Stage::ALL {
            let (mut slots, mut barred) = (all.clone(), BTreeSet::new());
            for round in 1..=ROUNDS_MAX {
                let Some((slate, asked)) = self.state.slate(stage, &slots, &barred, now) else {
                    break;
                };
                self.believes(&slate);
                let advice = match &lies {
                    None => Some(self.sorter.advise(slate).unwrap()),
                    Some(lie) => lie.clone(),
                };
                meanwhile
                    .take()
                    .into_iter()
                    .flatten()
                    .for_each(|fact| self.tell(fact));
                if !self.state.is_current(&asked) {
                    let late = self.state.book(asked, &advice.unwrap_or_default(), now);
                    assert!(late.grants.is_empty(), "an answer of an old epoch counts");
                    return grants;
                }
                let Some(advice) = advice else {
                    self.state.begin_epoch();
                    self.state.postpone_all();
                    return grants;
                };
                let booked = self.state.book(asked, &advice, now);
                if lies.is_none() {
                    let (sorter, state) = (self.sorter.budgets(), self.state.assumed_budgets());
                    assert_eq!(sorter.table(), state.table(), "what the sorter presumes");
                    assert_eq!(sorter.headroom(), state.headroom());
                    let fault = booked
                        .refusals
                        .iter()
                        .find(|(refusal, _)| refusal.is_fault());
                    assert_eq!(fault, None, "a wise sorter is at fault");
                } else {
                    self.state.begin_epoch(); // Its state differs from its advice.
                }
                grants += booked.grants.len();
                for (_, grant) in &booked.grants {
                    self.ledger.granted(grant);
                }
                if booked.again.is_empty() || round == ROUNDS_MAX {
                    self.state.postpone(&booked.again);
                    break;
                }
                slots = booked.again;
                barred.extend(booked.barred);
            }
        }
        grants
    }

    /// Checks that a slate makes the sorter's state equal to the allocator's.
    fn believes(&mut self, slate: &Slate) {
        let mut sorter = self.sorter.clone();
        let bare = Slate {
            rooms: Vec::new(),
            exclusions: Vec::new(),
            ..slate.clone()
        };
        sorter.advise(bare).unwrap();
        for pool in Pool::ALL {
            let tree = sorter.tree(pool);
            let mut active: Vec<Client> = tree.order();
            active.sort_unstable();
            let records = self.state.clients.iter();
            let expected = records.filter(|(_, record)| record.is_active(pool));
            let expected: Vec<Client> = expected.map(|(client, _)| client).collect();
            assert_eq!(active, expected, "who takes part in {pool:?}");
            for (client, record) in self.state.clients.iter() {
                assert!(
                    same(&tree.held_by(client), record.held(pool)),
                    "client {client}"
                );
            }
            for (client, role, idle) in self.state.clients.charges() {
                let told = tree.held_by(client);
                let charged = match pool {
                    Pool::Regular => idle.clone(),
                    Pool::Revocable => Quantities::new(),
                };
                assert!(same(&told, &charged), "charged to {role}");
            }
        }
        let (budgets, assumed) = (self.state.budgets().clone(), sorter.budgets());
        assert_eq!(budgets.table(), assumed.table());
        assert!(same(budgets.headroom(), assumed.headroom()));
        assert!(same(budgets.required(), assumed.required()));
    }

    /// Compares the allocator's state with the ledger for every agent, client and role.
    fn compare(&mut self) {
        let mut listed = 0;
        for agent in self.state.agents() {
            listed += 1;
            let host = &self.ledger.hosts[&agent.id];
            let mut held = BTreeMap::new();
            for (revocable, balance) in [false, true].into_iter().zip(&agent.pools) {
                for (client, part) in balance.holders.iter() {
                    assert!(part.iter().all(|own| own.is_revocable() == revocable));
                    let record = self.state.clients.get(client).unwrap();
                    let who = (record.framework.clone(), record.role.clone());
                    *held.entry(who).or_default() += part;
                }
            }
            assert_eq!(held, host.held, "{}", agent.id);
            let [mut regular, mut revocable] = agent.pools.clone();
            assert_eq!(&regular.total, &host.total, "{}", agent.id);
            assert_eq!(&revocable.total, &host.lent, "{}", agent.id);
            assert_eq!(regular.available(), &host.free(), "{}", agent.id);
            assert_eq!(revocable.available(), &host.free_lent(), "{}", agent.id);
            assert!(
                host.total.contains(&regular.held().non_shared()),
                "{} is over-committed",
                agent.id
            );
        }
        assert_eq!(listed, self.ledger.hosts.len());
        for (_, record) in self.state.clients.iter() {
            let who = (record.framework.clone(), record.role.clone());
            let all = self.ledger.hosts.values();
            let all: Resources = all
                .filter_map(|host| host.held.get(&who))
                .fold(Resources::new(), |sum, held| sum + held.clone());
            let parts = [all.non_revocable(), all.revocable()];
            for (pool, part) in Pool::ALL.into_iter().zip(parts) {
                assert!(same(record.held(pool), &part.quantities()), "{who:?}");
            }
        }
        let budgets = self.state.budgets();
        assert_eq!(budgets.table().len(), self.ledger.quotas.len());
        for budget in budgets.table() {
            let (left, unmet) = self.ledger.budget(&budget.role);
            assert_eq!(budget.left, left, "{}", budget.role);
            assert!(same(&budget.unmet, &unmet), "{}", budget.role);
        }
        for name in [Name::Cpus, Name::Mem] {
            let required = scalar(self.ledger.required(&name));
            assert_eq!(
                budgets.required().get(&name),
                required,
                "{:#?}",
                self.ledger
            );
            if !self.ledger.quotas.is_empty() {
                assert_eq!(
                    budgets.headroom().get(&name),
                    scalar(self.ledger.idle(&name))
                );
            }
        }
        let charges = self.state.clients.charges();
        let charged = charges.filter(|(.., idle)| !idle.is_empty());
        let charged: BTreeMap<Role, Quantities> = charged
            .map(|(_, role, idle)| (role.clone(), idle.clone()))
            .collect();
        match self.charges {
            true => assert_eq!(charged, self.ledger.idle_reservations()),
            false => assert_eq!(charged, BTreeMap::new()),
        }
    }
}

/// Equality that ignores names with amount zero.
fn same(one: &Quantities, other: &Quantities) -> bool {
    one.contains(other) && other.contains(one)
}
