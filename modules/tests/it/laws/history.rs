//! Random histories: what a master may tell in whatever order, and the world in which it happens.
//!
//! Every fact goes into the books and into a [`Ledger`] of our own; after every step the two are compared.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use module_api::allocator::WeightsChanged;
use module_api::sorter::{Advice, Client, Pool, Slate, Stage};
use modules::allocator::Books;
use modules::sorter::{Fair, Order, TreeSorter};
use proptest::prelude::*;
use resources::{Name, Quantities, Resources, Role};

use super::facts::{Fact, fact};
use super::ledger::{Ledger, scalar};
use super::tenants::returning;

/// Slates in one stage of a run, as the allocator has it.
const ROUNDS_MAX: usize = 4;

#[derive(Clone, Debug)]
pub enum Step {
    Tell(Fact),
    /// A run in which the sorter is wise, and what is told while it thinks.
    Honest(bool, Vec<Fact>),
    /// A run in which it says this, or nothing but an error.
    Hostile(Option<Vec<(u32, Client)>>),
    Wait(u64),
    /// Nothing is told until nothing happens any more.
    Settle,
}

/// A history, in which frameworks now and then come and go as they do in [`returning`].
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
    pub books: Books,
    pub sorter: TreeSorter<O>,
    pub ledger: Ledger,
    /// Volumes made so far.
    pub volumes: u32,
    /// Whether reservations are charged.
    charges: bool,
    /// Whether the sorter throws dice: two runs of the same then need not end alike.
    dice: bool,
}

impl Default for World {
    fn default() -> Self {
        Self::ordered_by(|| Fair)
    }
}

impl<O: Order> World<O> {
    /// One whose sorter goes by this order.
    pub fn ordered_by(order: impl FnMut() -> O) -> Self {
        let mut world = Self {
            books: Books::default(),
            sorter: TreeSorter::ordered_by(order, Vec::new()),
            ledger: Ledger::default(),
            volumes: 0,
            charges: false,
            dice: false,
        };
        world.begun();
        world
    }

    /// The order is one of chance.
    pub fn by_dice(mut self) -> Self {
        self.dice = true;
        self
    }

    /// What is reserved counts towards the share of its role from now on.
    pub fn charge_reservations(&mut self) {
        self.books.charge_reservations();
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
                // Whoever was not advised to be given anything waits: an operator has replaced the sorter.
                self.books.begin_epoch();
                self.look_at_everybody();
            }
            Step::Wait(tenths) => {
                self.ledger.now = self.ledger.now + Duration::from_millis(tenths * 100)
            }
            Step::Settle => self.settle_both_ways(),
        }
        self.compare();
    }

    /// Has the next run look at every agent.
    fn look_at_everybody(&mut self) {
        let weights = BTreeMap::new();
        self.books.weights_changed(&WeightsChanged { weights });
    }

    /// Runs until nothing is granted any more; time stands still.
    fn settle(&mut self) {
        for _ in 0..40 {
            if self.run(true, None, Vec::new()) == 0 {
                return;
            }
        }
        panic!("grants without end");
    }

    /// When all is quiet after runs that looked only at what has changed, the books are those of runs that looked at everybody, and
    /// nothing is kept from anybody without a reason.
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

    /// One run as the allocator makes it. Says how many grants came of it.
    fn run(
        &mut self,
        batch: bool,
        lies: Option<Option<Vec<Advice>>>,
        meanwhile: Vec<Fact>,
    ) -> usize {
        let grants = self.run_stages(batch, lies, meanwhile);
        self.books.run_ended();
        // Whatever came of it: so many are asked to leave as there is reason to.
        let asked = self.books.inverse_grants(None, self.ledger.now).into_iter();
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
        let all = self.books.candidates(now, batch);
        for (id, host) in &mut self.ledger.hosts {
            let slot = self.books.slot_of(id);
            if slot.is_some_and(|slot| all.contains(&slot)) {
                host.given = Resources::new();
            }
        }
        let mut meanwhile = Some(meanwhile);
        let mut grants = 0;
        for stage in Stage::ALL {
            let (mut slots, mut barred) = (all.clone(), BTreeSet::new());
            for round in 1..=ROUNDS_MAX {
                let Some((slate, asked)) = self.books.slate(stage, &slots, &barred, now) else {
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
                if !self.books.is_current(&asked) {
                    let late = self.books.book(asked, &advice.unwrap_or_default(), now);
                    assert!(late.grants.is_empty(), "an answer of an old epoch counts");
                    return grants;
                }
                let Some(advice) = advice else {
                    self.books.begin_epoch();
                    self.books.postpone_everybody();
                    return grants;
                };
                let booked = self.books.book(asked, &advice, now);
                if lies.is_none() {
                    let (sorter, books) = (self.sorter.budgets(), self.books.budgets_believed());
                    assert_eq!(sorter.table(), books.table(), "what the sorter presumes");
                    assert_eq!(sorter.headroom(), books.headroom());
                    let fault = booked
                        .refusals
                        .iter()
                        .find(|(refusal, _)| refusal.is_fault());
                    assert_eq!(fault, None, "a wise sorter is at fault");
                } else {
                    self.books.begin_epoch(); // What it believes is not what it said.
                }
                grants += booked.grants.len();
                for (_, grant) in &booked.grants {
                    self.ledger.granted(grant);
                }
                if booked.again.is_empty() || round == ROUNDS_MAX {
                    self.books.postpone(&booked.again);
                    break;
                }
                slots = booked.again;
                barred.extend(booked.barred);
            }
        }
        grants
    }

    /// What a slate tells makes the sorter believe what the books say, of everybody and everything.
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
            let members = self.books.clients.iter();
            let expected = members.filter(|(_, member)| member.is_active(pool));
            let expected: Vec<Client> = expected.map(|(client, _)| client).collect();
            assert_eq!(active, expected, "who takes part in {pool:?}");
            for (client, member) in self.books.clients.iter() {
                assert!(
                    same(&tree.held_by(client), member.held(pool)),
                    "client {client}"
                );
            }
            for (client, role, idle) in self.books.clients.charges() {
                let told = tree.held_by(client);
                let charged = match pool {
                    Pool::Regular => idle.clone(),
                    Pool::Revocable => Quantities::new(),
                };
                assert!(same(&told, &charged), "charged to {role}");
            }
        }
        let (budgets, believed) = (self.books.budgets().clone(), sorter.budgets());
        assert_eq!(budgets.table(), believed.table());
        assert!(same(budgets.headroom(), believed.headroom()));
        assert!(same(budgets.required(), believed.required()));
    }

    /// The books say of every agent, client and role what the ledger says.
    fn compare(&mut self) {
        let mut listed = 0;
        for agent in self.books.agents() {
            listed += 1;
            let host = &self.ledger.hosts[&agent.id];
            let mut held = BTreeMap::new();
            for (revocable, side) in [false, true].into_iter().zip(&agent.sides) {
                for (client, part) in side.holders.iter() {
                    assert!(part.iter().all(|own| own.is_revocable() == revocable));
                    let member = self.books.clients.get(client).unwrap();
                    let who = (member.framework.clone(), member.role.clone());
                    *held.entry(who).or_default() += part;
                }
            }
            assert_eq!(held, host.held, "{}", agent.id);
            let [mut regular, mut revocable] = agent.sides.clone();
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
        for (_, member) in self.books.clients.iter() {
            let who = (member.framework.clone(), member.role.clone());
            let all = self.ledger.hosts.values();
            let all: Resources = all
                .filter_map(|host| host.held.get(&who))
                .fold(Resources::new(), |sum, held| sum + held.clone());
            let parts = [all.non_revocable(), all.revocable()];
            for (pool, part) in Pool::ALL.into_iter().zip(parts) {
                assert!(same(member.held(pool), &part.quantities()), "{who:?}");
            }
        }
        let budgets = self.books.budgets();
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
        let charges = self.books.clients.charges();
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

/// Equal but for names that are listed with nothing.
fn same(one: &Quantities, other: &Quantities) -> bool {
    one.contains(other) && other.contains(one)
}
