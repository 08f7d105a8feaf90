//! Invariants of offers in any order of events and with any delay between the master and its
//! allocator.
//!
//! - No resource of an agent is used twice: offers and tasks there never exceed its total.
//! - Each offer is made once and ends once: accepted, declined or rescinded. A connected scheduler
//!   is sent each rescind.
//! - Nothing is lost: once all messages have arrived, the allocator's holdings of each framework on
//!   each agent equal its offers and tasks there.
//! - Resources reported as free were held.

mod actions;
mod ledger;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use module_api::allocator::{Grant, Granted, Withdrawn};
use proptest::prelude::*;
use protocol::message::oversubscription::OversubscribedChanged;
use protocol::message::scheduler::DeclineOffers;
use protocol::{Filters, Offer};
use runtime::{NodeId, Pid};

use super::*;
use crate::agents::admission::Removal;
use crate::state::effects::Effect;
use crate::state::measure::empty_state;
use actions::lent;
use ledger::Ledger;

const AGENTS: usize = 3;
const FRAMEWORKS: usize = 3;
const TOTAL: &str = "cpus:8;mem:800";

/// An event. Numbers out of range wrap.
#[derive(Clone, Debug)]
enum Step {
    /// An agent registers, or returns with every task, with none, or with every other one.
    Register(usize, usize),
    Disconnect(usize),
    Unreachable(usize),
    Removed(usize, bool),
    Lends(usize, u32),
    /// A scheduler subscribes, again or in place of another.
    Subscribe(usize),
    SchedulerGone(usize),
    FrameworkGone(usize),
    /// The allocator grants this many cpus there, revocable or not.
    Grant(usize, usize, u32, bool),
    /// The master receives this many grants, or the allocator this many facts.
    HearGrants(usize),
    HearFacts(usize),
    /// Accepts all offers of an agent with this many tasks; an additional offer that has ended or
    /// belongs to another framework invalidates the call.
    Accept(usize, usize, usize, Option<usize>),
    /// Declines the nth offer ever made, whichever framework calls.
    Decline(usize, usize),
    Withdraw(usize, u32),
    NotOffered(usize),
    /// This many seconds pass, and expired offers are rescinded.
    Wait(u32),
    /// The nth task ends, acknowledged or not.
    End(usize, bool),
    /// The allocator crashes and gets the whole state again.
    Begin,
}

fn step() -> impl Strategy<Value = Step> {
    let (a, f) = (0..AGENTS, 0..FRAMEWORKS);
    let many = 0_usize..200;
    prop_oneof![
        4 => (a.clone(), 0_usize..3).prop_map(|(a, with)| Step::Register(a, with)),
        1 => a.clone().prop_map(Step::Disconnect),
        1 => a.clone().prop_map(Step::Unreachable),
        1 => (a.clone(), any::<bool>()).prop_map(|(a, gone)| Step::Removed(a, gone)),
        1 => (a.clone(), 0_u32..4).prop_map(|(a, n)| Step::Lends(a, n)),
        4 => f.clone().prop_map(Step::Subscribe),
        1 => f.clone().prop_map(Step::SchedulerGone),
        1 => f.clone().prop_map(Step::FrameworkGone),
        12 => (a.clone(), f.clone(), 1_u32..5, prop::bool::weighted(0.2))
            .prop_map(|(a, f, n, lent)| Step::Grant(a, f, n, lent)),
        8 => (1_usize..4).prop_map(Step::HearGrants),
        6 => (1_usize..9).prop_map(Step::HearFacts),
        8 => (a.clone(), f.clone(), 0_usize..4, proptest::option::weighted(0.2, many.clone()))
            .prop_map(|(a, f, tasks, other)| Step::Accept(a, f, tasks, other)),
        5 => (many.clone(), f).prop_map(|(n, f)| Step::Decline(n, f)),
        2 => (a, 1_u32..9).prop_map(|(a, n)| Step::Withdraw(a, n)),
        1 => many.clone().prop_map(Step::NotOffered),
        2 => (0_u32..200).prop_map(Step::Wait),
        4 => (many, any::<bool>()).prop_map(|(n, heard)| Step::End(n, heard)),
        1 => Just(Step::Begin),
    ]
}

/// How an offer may end in a step.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Accepted,
    Declined,
    Rescinded,
    /// It could not be sent to its scheduler.
    NotMade,
}

struct World {
    state: MasterState,
    seconds: u64,
    lives: u64,
    tasks: u32,
    agents: [Option<AgentId>; AGENTS],
    frameworks: [Option<FrameworkId>; FRAMEWORKS],
    allocator: Ledger,
    facts: VecDeque<ToAllocator>,
    grants: VecDeque<Grant>,
    /// Every offer ever made, and its end.
    made: BTreeMap<OfferId, Option<End>>,
}

impl World {
    fn new() -> Self {
        let master = empty_state().master;
        let config = Config {
            offer_timeout: Some(Duration::from_secs(100)),
            ..Config::default()
        };
        let mut world = Self {
            state: MasterState::new(master, &config, Timestamp::default()),
            seconds: 1,
            lives: 0,
            tasks: 0,
            agents: Default::default(),
            frameworks: Default::default(),
            allocator: Ledger::default(),
            facts: VecDeque::new(),
            grants: VecDeque::new(),
            made: BTreeMap::new(),
        };
        let mut out = Effects::new();
        world
            .state
            .recover(RegistryState::default(), world.now(), &mut out);
        world
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(self.seconds * 1_000_000_000)
    }

    fn pid(&mut self, name: &str, n: usize) -> Pid {
        self.lives += 1;
        Pid::new(name, NodeId::new(format!("{name}-{n}"), self.lives), 1)
    }

    /// Runs a decision, and checks its effects and the offers that are over afterwards. `ends` is
    /// the allowed kind of end.
    fn decide(
        &mut self,
        ends: End,
        decide: impl FnOnce(&mut MasterState, Timestamp, &mut Effects),
    ) {
        let (mut out, now) = (Effects::new(), self.now());
        let before: BTreeMap<OfferId, bool> = self.open();
        self.state.offers.set_time(now);
        decide(&mut self.state, now, &mut out);
        let after = self.open();
        let mut rescinded = BTreeSet::new();
        for effect in out {
            match effect {
                Effect::ToAllocator(fact) => self.facts.push_back(fact),
                Effect::ToScheduler(_, ToScheduler::Offers(offers)) => {
                    for offer in offers.offers {
                        let earlier = self.made.insert(offer.id.clone(), None);
                        assert_eq!(earlier, None, "{} is made twice", offer.id);
                    }
                }
                Effect::ToScheduler(_, ToScheduler::Rescind(it)) => {
                    let first = rescinded.insert(it.offer_id.clone());
                    assert!(first, "{} is rescinded twice", it.offer_id);
                }
                _ => {}
            }
        }
        for (id, had_scheduler) in &before {
            if after.contains_key(id) {
                assert!(!rescinded.contains(id), "{id} is rescinded and out");
                continue;
            }
            let end = match rescinded.remove(id) || (ends == End::Rescinded && !had_scheduler) {
                true => End::Rescinded,
                false => ends,
            };
            assert!(
                end != End::Rescinded || ends == End::Rescinded,
                "{id} is rescinded by {ends:?}"
            );
            let known = self.made.insert(id.clone(), Some(end));
            assert_eq!(known, Some(None), "{id} ends once");
        }
        assert_eq!(rescinded, BTreeSet::new(), "rescinded, and was not out");
        for id in after.keys() {
            assert_eq!(self.made.get(id), Some(&None), "{id} is out");
        }
        self.check_no_double_use();
    }

    /// Outstanding offers, and whether their framework is connected.
    fn open(&self) -> BTreeMap<OfferId, bool> {
        let offers = self.state.offers.iter();
        let known = |offer: &Arc<Offer>| {
            let scheduler = self.state.frameworks.scheduler(&offer.framework_id);
            (offer.id.clone(), scheduler.is_some())
        };
        offers.map(known).collect()
    }

    /// Offered and held resources on an agent, by framework.
    fn out_on(&self, agent: &AgentId) -> BTreeMap<FrameworkId, Resources> {
        let mut all: BTreeMap<FrameworkId, Resources> = BTreeMap::new();
        for offer in self.state.offers.of_agent(agent) {
            *all.entry(offer.framework_id.clone()).or_default() += &offer.resources;
        }
        let on = self.state.tasks.on_agent(agent);
        for (framework, held) in on.into_iter().flat_map(|on| on.held().iter()) {
            *all.entry(framework.clone()).or_default() += held;
        }
        all.retain(|_, held| !held.is_empty());
        all
    }

    fn check_no_double_use(&self) {
        for agent in self.state.agents.iter() {
            let all = sum(self.out_on(&agent.id).values()).unallocate();
            let total = &agent.info.resources;
            assert!(
                total.contains(&all.non_revocable()),
                "of {total} on {} are out {all}",
                agent.id
            );
        }
        for offer in self.state.offers.iter() {
            assert!(
                self.state.agents.connected(&offer.agent_id).is_some(),
                "{offer:?}"
            );
            let framework = self.state.frameworks.get(&offer.framework_id);
            assert!(framework.is_some_and(|one| one.is_connected()), "{offer:?}");
        }
    }

    /// Delivers all messages: both sides agree on every agent and framework.
    fn settle(&mut self) {
        for _ in 0..2 {
            self.deliver_facts(usize::MAX);
            self.deliver_grants(usize::MAX);
        }
        self.deliver_facts(usize::MAX);
        let agents: Vec<AgentId> = self
            .state
            .agents
            .iter()
            .map(|agent| agent.id.clone())
            .collect();
        let known: Vec<AgentId> = self.allocator.agents().cloned().collect();
        assert_eq!(known, agents);
        for id in agents {
            assert_eq!(self.allocator.held_on(&id), self.out_on(&id), "{id}");
        }
    }

    fn deliver_facts(&mut self, most: usize) {
        let most = most.min(self.facts.len());
        for fact in self.facts.drain(..most) {
            self.allocator.receive(fact);
        }
    }

    fn deliver_grants(&mut self, most: usize) {
        let most = most.min(self.grants.len());
        let grants = self.grants.drain(..most).collect();
        let granted = Granted { grants };
        self.decide(End::NotMade, |state, now, out| {
            state.granted(granted, now, out)
        });
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Register(a, with) => self.register(a, with),
            Step::Disconnect(a) => {
                let agent = self.agent(a);
                let pid = agent.and_then(|id| Some(self.state.agents.get(&id)?.pid.clone()));
                self.decide(End::Rescinded, |state, _, out| {
                    if let Some(pid) = pid {
                        state.agent_disconnected(&pid, out);
                    }
                });
            }
            Step::Unreachable(a) => {
                if let Some(id) = self.agent(a) {
                    self.decide(End::Rescinded, |state, now, out| {
                        state.agent_unreachable(&id, now, out);
                    });
                }
            }
            Step::Removed(a, gone) => {
                if let Some(id) = self.agents[a].take() {
                    let why = if gone { Removal::Gone } else { Removal::Left };
                    self.decide(End::Rescinded, |state, now, out| {
                        state.agent_removed(&id, why, now, now, out);
                    });
                }
            }
            Step::Lends(a, cpus) => {
                if let Some(agent_id) = self.agent(a) {
                    let total = lent(cpus);
                    let changed = OversubscribedChanged { agent_id, total };
                    self.decide(End::Rescinded, |state, _, out| {
                        state.oversubscribed(changed, out).unwrap();
                    });
                }
            }
            Step::Subscribe(f) => self.subscribe(f),
            Step::SchedulerGone(f) => {
                let id = self.frameworks[f].as_ref();
                let pid = id.and_then(|id| self.state.frameworks.scheduler(id).cloned());
                if let Some(pid) = pid {
                    self.decide(End::Rescinded, |state, _, out| {
                        state.framework_disconnected(&pid, out);
                    });
                }
            }
            Step::FrameworkGone(f) => {
                if let Some(id) = self.frameworks[f].take() {
                    self.decide(End::Rescinded, |state, now, out| {
                        state.remove_framework(&id, now, out);
                    });
                }
            }
            Step::Grant(a, f, cpus, is_lent) => {
                // As the allocator knows them, perhaps outdated.
                let (Some(a), Some(f)) = (self.agents[a].clone(), self.frameworks[f].clone())
                else {
                    return;
                };
                let wanted = match is_lent {
                    true => lent(cpus),
                    false => format!("cpus:{cpus};mem:{}", cpus * 100).parse().unwrap(),
                };
                self.grants.extend(self.allocator.grant(&a, &f, wanted));
            }
            Step::HearGrants(most) => self.deliver_grants(most),
            Step::HearFacts(most) => self.deliver_facts(most),
            Step::Accept(a, f, tasks, other) => self.accept(a, f, tasks, other),
            Step::Decline(n, f) => {
                let Some(framework_id) = self.frameworks[f].clone() else {
                    return;
                };
                let offer_ids = self.nth(n).into_iter().collect();
                let filters = Filters::default();
                let call = DeclineOffers {
                    framework_id,
                    offer_ids,
                    filters,
                };
                self.decide(End::Declined, |state, _, out| state.decline(call, out));
            }
            Step::Withdraw(a, cpus) => {
                if let Some(agent_id) = self.agents[a].clone() {
                    let resources = format!("cpus:{cpus}").parse().unwrap();
                    let withdrawn = Withdrawn {
                        agent_id,
                        resources,
                    };
                    self.decide(End::Rescinded, |state, _, out| {
                        state.withdrawn(&withdrawn, out);
                    });
                }
            }
            Step::NotOffered(n) => {
                let ids = self.nth(n).into_iter().collect();
                self.decide(End::NotMade, |state, _, out| state.not_offered(ids, out));
            }
            Step::Wait(seconds) => {
                self.seconds += u64::from(seconds);
                self.decide(End::Rescinded, |state, now, out| {
                    state.expire_offers(now, out);
                });
            }
            Step::End(n, heard) => self.end(n, heard),
            Step::Begin => {
                self.allocator = Ledger::default();
                self.facts.clear();
                self.decide(End::Rescinded, |state, _, out| state.rescind_all(out));
                self.facts.clear(); // Never delivered.
                self.decide(End::Rescinded, |state, _, out| {
                    state.agents.begin_epoch();
                    state.resend_to_allocator(out);
                });
            }
        }
    }

    /// The nth offer ever made.
    fn nth(&self, n: usize) -> Option<OfferId> {
        let n = n.checked_rem(self.made.len())?;
        self.made.keys().nth(n).cloned()
    }

    /// The agent with that number, if registered.
    fn agent(&self, a: usize) -> Option<AgentId> {
        let id = self.agents[a].clone()?;
        self.state.agents.get(&id).map(|agent| agent.id.clone())
    }
}

fn play(steps: Vec<Step>) -> World {
    let mut world = World::new();
    steps.into_iter().for_each(|step| world.take(step));
    world.settle();
    world
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    // Covers S128.
    #[test]
    fn offers_end_once_and_resources_are_never_shared_or_lost(
        steps in proptest::collection::vec(step(), 10..120),
    ) {
        play(steps);
    }
}

/// Checks that histories are meaningful: each kind of end occurs, with held, revocable and
/// late-granted resources.
#[test]
fn offers_of_a_history_end_in_every_way() {
    let world = play(vec![
        Step::Subscribe(0),
        Step::Subscribe(1),
        Step::Register(0, 0),
        Step::HearFacts(9),
        Step::Grant(0, 0, 2, false),
        Step::Grant(0, 1, 2, false),
        Step::HearGrants(9),
        Step::Accept(0, 0, 1, None),
        Step::Decline(1, 1),
        Step::HearFacts(9),
        Step::Grant(0, 0, 1, false),
        Step::Grant(0, 0, 2, false),
        Step::Grant(0, 1, 2, false),
        Step::HearGrants(1),
        Step::Begin,
        Step::HearGrants(9),
        Step::HearFacts(9),
        Step::Lends(0, 3),
        Step::HearFacts(9),
        Step::Grant(0, 1, 4, false),
        Step::Grant(0, 1, 2, true),
        Step::HearGrants(9),
        Step::NotOffered(4),
    ]);
    let ends: Vec<Option<End>> = world.made.values().copied().collect();
    let expected = [
        Some(End::Accepted),
        Some(End::Declined),
        Some(End::Rescinded),
        None,
        Some(End::NotMade),
    ];
    assert_eq!(ends, expected, "two of five grants came too late");
    let id = world.agents[0].clone().unwrap();
    let out = world.out_on(&id);
    assert_eq!(out.len(), 2, "a task and an offer: {out:?}");
}
