//! Allocator: tracks all allocations and grants free resources by its sorter's advice.
//!
//! Handles the facts that the master sends and the sorter's advice. Keeps [`AllocatorState`] since
//! the last `Begin`; after a restart it ignores facts until the master sends the next `Begin` and
//! its full state.
//!
//! Runs follow events as well as the clock: freed resources are offered at once; resources refused
//! with a filter of zero wait for the batch, once in each allocation interval. If configured, it
//! has tasks revoked for unmet guarantees ([`Revocation`]). It never waits for the master, and
//! never grants more than is free, whatever the sorter advises.
//!
//! An explanation ([`Survey`]) is computed in parts, with other messages handled in between.
//!
//! | module | contents |
//! |---|---|
//! | `bits` | bit sets of small numbers |
//! | `by_client` | a small map by client, as a sorted list |
//! | `charges` | idle reservations that count for the share of their role |
//! | `choice` | the agents that a client accepts, with cached verdicts |
//! | `clients` | each framework in each of its roles, by a small number |
//! | `cutting` | cuts an agent's resources to the maximum of a client's offers |
//! | `explain` | counts of the reasons why a framework gets no offers |
//! | `metrics` | metrics of the allocator under Mesos' names |
//! | `revoking` | revocation of tasks for unmet guarantees |
//! | `state` | allocations and free resources of each agent |

mod agent_verdicts;
mod bits;
mod by_client;
mod charges;
mod clients;
mod explain;
mod metrics;
mod offer_maximum;
mod revoking;
mod state;

pub use by_client::ByClient;
pub use clients::{ClientRecord, Clients};
pub use explain::{Shares, Survey};
pub use revoking::revoker::Revocation;
pub use state::filters::agent_filters::AgentFilters;
pub use state::filters::refusals::Filters;
pub use state::{Agent, AllocatorState, BookingResult, Case, PendingSlate, PoolBalance, Refusal};

use std::collections::BTreeSet;
use std::time::Duration;

use module_api::allocator::{
    AgentActivity, AgentAdded, AgentOversubscribed, AgentRemoved, Begin, Converted, Explain,
    FrameworkActivity, FrameworkAdded, FrameworkRemoved, Granted, InverseAnswered, InverseGranted,
    LongTasksBounded, Measure, OfferBudgetSpent, QuotasChanged, Recovered, RecoveryPause, Revived,
    Suppressed, TasksListed, UnavailabilityChanged, WeightsChanged, WhitelistChanged, Withdrawn,
};
use module_api::sorter::{Advice, Client, Pool, Stage};
use module_api::{Fault, ModuleError, SorterRef};
use protocol::view::explain::Explanation;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use resources::Quantities;
use runtime::Instant;
use runtime::prelude::*;

use metrics::Runs;
use revoking::revoker::Revoker;

/// Shortest time between two runs outside of batches; events within it share one run.
const RUN_GAP: Duration = Duration::from_millis(2);
/// Slates in one stage of a run. After them, agents with rejected advice wait for the next batch.
pub const ROUNDS_MAX: u8 = 4;

/// The order in which a run considers agents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AgentOrder {
    /// Random, shuffled again for each stage.
    #[default]
    Random,
    /// Agents with the fewest free resources first, so that each client gets the tightest fit and
    /// whole agents stay free as long as possible.
    TightestFirst,
}

/// Agents explained before other messages are handled.
const EXPLAINED_AT_ONCE: u32 = 1_000;
/// Concurrent explanations, each with a copy of the allocator's state if it needs several parts.
/// Further requests are rejected.
const EXPLAINING_MAX: usize = 4;

/// The current run.
struct Run {
    /// All its agents, in the order of the run.
    slots: Vec<u32>,
    batch: bool,
    walk: Walk,
    /// Remaining stages, the next one last.
    stages: Vec<Stage>,
}

/// One stage of a run, in one or more rounds.
struct Walk {
    stage: Stage,
    round: u8,
    slots: Vec<u32>,
    barred: BTreeSet<(u32, Client)>,
}

impl Walk {
    fn new(stage: Stage, slots: Vec<u32>) -> Self {
        Self {
            stage,
            round: 0,
            slots,
            barred: BTreeSet::new(),
        }
    }
}

/// The actor around the allocator's state.
pub struct Allocator {
    state: AllocatorState,
    sorter: SorterRef,
    rng: SmallRng,
    order: AgentOrder,
    /// Set by `Begin`; without it, facts are ignored.
    master: Option<ActorRef>,
    run: Option<Run>,
    /// A run is scheduled.
    run_scheduled: bool,
    /// The next run outside of batches begins no earlier.
    rest_until: Instant,
    /// Timer of the next batch, and whether one became due during a run.
    batch: Option<TimerHandle>,
    batch_due: bool,
    /// Timer for the end of the pause after a `Begin`.
    pause: Option<TimerHandle>,
    pause_until: Instant,
    pause_max: Duration,
    /// Number of running explanations.
    explaining: usize,
    runs: Runs,
    /// Set if tasks are revoked for unmet guarantees.
    revoker: Option<Revoker>,
    /// The bound on long tasks, if there is one.
    long_tasks: Option<LongTasksBounded>,
}

impl Allocator {
    /// An allocator that uses `sorter`, offers nothing smaller than each of `sets_min`, and
    /// shuffles with `rng`.
    pub fn new(sorter: SorterRef, sets_min: Option<Vec<Quantities>>, rng: SmallRng) -> Self {
        let mut state = AllocatorState::default();
        if let Some(sets_min) = sets_min {
            state.sets_min = sets_min;
        }
        Self {
            state,
            sorter,
            rng,
            order: AgentOrder::default(),
            master: None,
            run: None,
            run_scheduled: false,
            rest_until: Instant::default(),
            batch: None,
            batch_due: false,
            pause: None,
            pause_until: Instant::default(),
            pause_max: RecoveryPause::default().timeout,
            explaining: 0,
            runs: Runs::default(),
            revoker: None,
            long_tasks: None,
        }
    }

    /// Sets the order of agents.
    pub fn with_order(mut self, order: AgentOrder) -> Self {
        self.order = order;
        self
    }

    /// Sets the pause in allocation after a `Begin` with quotas.
    pub fn with_pause(mut self, pause: RecoveryPause) -> Self {
        self.pause_max = pause.timeout;
        self.state.set_recovery_factor(pause.factor);
        self
    }

    /// Offers agents with GPUs to all frameworks, not only to those with the `GPU_RESOURCES`
    /// capability.
    pub fn with_gpus_for_all(mut self) -> Self {
        self.state.offer_gpus_to_all();
        self
    }

    /// Counts reservations towards the share of their role even while they are idle.
    pub fn with_charged_reservations(mut self) -> Self {
        self.state.charge_reservations();
        self
    }

    /// Enables revocation of tasks for guarantees that are unmet and wanted. Guarantees that no
    /// framework wants are then lent to other roles.
    pub fn with_revocation(mut self, revocation: Revocation) -> Self {
        self.revoker = Some(Revoker::new(revocation));
        self.state.lend_guarantees();
        self
    }

    /// Sets the largest share of each agent that long tasks may use.
    pub fn with_long_task_bound(mut self, bound: LongTasksBounded) -> Self {
        self.long_tasks = Some(bound);
        self
    }

    /// Schedules a run if an event requires one.
    fn schedule_run(&mut self, ctx: &mut Context<Self>) {
        if self.run_scheduled || self.run.is_some() || !self.state.wants_run() {
            return;
        }
        self.run_scheduled = true;
        self.runs.plan(ctx.clock().now());
        let begin = |this: &mut Self, ctx: &mut Context<Self>| {
            this.run_scheduled = false;
            this.begin_run(false, ctx);
        };
        let rest = self.rest_until - ctx.clock().now();
        if rest.is_zero() {
            // After all messages that are already in the mailbox, so that one run covers them.
            ctx.then(std::future::ready(()), move |this, (), ctx| {
                begin(this, ctx)
            });
        } else {
            ctx.after(rest, begin);
        }
    }

    fn plan_batch(&mut self, ctx: &mut Context<Self>) {
        let interval = self.state.interval;
        let batch = ctx.after(interval, |this, ctx| this.begin_run(true, ctx));
        if let Some(earlier) = self.batch.replace(batch) {
            ctx.cancel(earlier);
        }
    }

    fn begin_run(&mut self, batch: bool, ctx: &mut Context<Self>) {
        if self.run.is_some() {
            self.batch_due |= batch;
            return;
        }
        if self.state.is_paused() {
            if batch {
                self.plan_batch(ctx);
            }
            return;
        }
        let now = ctx.clock().now();
        self.rest_until = now + RUN_GAP;
        self.runs.begin(now);
        let mut slots = self.state.candidates(now, batch);
        slots.shuffle(&mut self.rng);
        if self.order == AgentOrder::TightestFirst {
            self.state.tightest_first(Pool::Regular, &mut slots);
        }
        self.run = Some(Run {
            batch,
            walk: Walk::new(Stage::Guarantees, slots.clone()),
            stages: vec![Stage::Revocable, Stage::Fair],
            slots,
        });
        self.send_next_slate(ctx);
    }

    /// Sends the sorter the next slate, or ends the run if there is none.
    fn send_next_slate(&mut self, ctx: &mut Context<Self>) {
        while let Some(run) = &mut self.run {
            let now = ctx.clock().now();
            let Walk {
                stage,
                slots,
                barred,
                ..
            } = &run.walk;
            if let Some((slate, pending)) = self.state.slate(*stage, slots, barred, now) {
                let sorter = self.sorter.clone();
                let advice = async move { sorter.advice(slate).await };
                ctx.then(advice, move |this, advice, ctx| {
                    this.apply_advice(pending, advice, ctx)
                });
                return;
            }
            self.next_stage(ctx);
        }
    }

    fn next_stage(&mut self, ctx: &mut Context<Self>) {
        let Some(run) = &mut self.run else {
            return;
        };
        let Some(stage) = run.stages.pop() else {
            return self.end_run(ctx);
        };
        if run.walk.round > 0 {
            run.slots.shuffle(&mut self.rng); // Each stage has an order of its own.
        }
        if self.order == AgentOrder::TightestFirst {
            self.state.tightest_first(stage.pool(), &mut run.slots);
        }
        run.walk = Walk::new(stage, run.slots.clone());
    }

    fn end_run(&mut self, ctx: &mut Context<Self>) {
        let Some(run) = self.run.take() else {
            return;
        };
        self.runs.end(ctx.clock().now());
        self.state.run_ended();
        self.send_inverse_grants(&run, ctx);
        if std::mem::take(&mut self.batch_due) {
            self.begin_run(true, ctx);
            return;
        }
        if run.batch {
            self.check_guarantees(ctx);
            self.plan_batch(ctx);
        }
        self.schedule_run(ctx);
    }

    fn apply_advice(
        &mut self,
        pending: PendingSlate,
        advice: Result<Vec<Advice>, ModuleError>,
        ctx: &mut Context<Self>,
    ) {
        if !self.state.is_current(&pending) {
            return; // A `Begin` has replaced the state meanwhile.
        }
        let Some(run) = &mut self.run else {
            return;
        };
        let advice = match advice {
            Ok(advice) => advice,
            Err(error) => {
                tracing::warn!(%error, "no advice from the sorter, postponing all agents to the next batch");
                self.state.begin_epoch();
                self.state.postpone_all();
                return self.end_run(ctx);
            }
        };
        let booked = self.state.book(pending, &advice, ctx.clock().now());
        for (refusal, count) in &booked.refusals {
            if refusal.is_fault() {
                tracing::warn!(%refusal, count, "rejecting advice of the sorter");
            } else {
                tracing::debug!(%refusal, count, "rejecting advice of the sorter");
            }
        }
        let walk = &mut run.walk;
        walk.round += 1;
        let over = booked.again.is_empty() || walk.round == ROUNDS_MAX;
        if over {
            self.state.postpone(&booked.again);
        } else {
            walk.slots = booked.again.clone();
            walk.barred.extend(booked.barred.iter().copied());
        }
        self.send_grants(booked);
        if over {
            self.next_stage(ctx);
        }
        self.send_next_slate(ctx);
    }

    /// Sends grants to the master. If that fails, they are taken back; otherwise they would stay
    /// allocated for ever.
    fn send_grants(&mut self, booked: BookingResult) {
        if booked.grants.is_empty() {
            return;
        }
        let grants = booked
            .grants
            .iter()
            .map(|(_, grant)| grant.clone())
            .collect();
        let sent = self
            .master
            .as_ref()
            .map(|master| master.tell(Granted { grants }));
        if let Some(Err(error)) = sent {
            tracing::warn!(%error, "cannot send grants to the master, taking them back");
            for (client, grant) in &booked.grants {
                self.state
                    .take_back(&grant.agent_id, *client, &grant.resources);
            }
        }
    }

    /// Computes the next part of an explanation, and schedules the rest behind the pending
    /// messages.
    fn explain(
        &mut self,
        mut survey: Survey,
        promise: Promise<Result<Explanation, Fault>>,
        ctx: &mut Context<Self>,
    ) {
        let done = survey.advance(&mut self.state, EXPLAINED_AT_ONCE);
        if matches!(done, Ok(false)) && promise.is_awaited() {
            ctx.then(std::future::ready(()), |this, (), ctx| {
                this.explain(survey, promise, ctx);
            });
            return;
        }
        self.explaining -= 1;
        promise.answer(done.map(|_| survey.finish()));
    }

    /// Sends requests for inverse offers. A batch covers all agents with planned downtime, any
    /// other run only its own.
    fn send_inverse_grants(&mut self, run: &Run, ctx: &Context<Self>) {
        let slots = (!run.batch).then_some(&run.slots[..]);
        let grants = self.state.inverse_grants(slots, ctx.clock().now());
        if grants.is_empty() {
            return;
        }
        let sent = self.master.as_ref().map(|master| {
            let grants = grants.clone();
            master.tell(InverseGranted { grants })
        });
        if let Some(Err(error)) = sent {
            tracing::warn!(%error, "cannot send inverse grants to the master");
            let now = ctx.clock().now();
            for grant in grants {
                let cancelled = InverseAnswered {
                    framework_id: grant.framework_id,
                    agent_id: grant.agent_id,
                    refuse: None,
                };
                self.state.inverse_answered(&cancelled, now);
            }
        }
    }

    fn send_withdrawn(&self, withdrawn: Withdrawn) {
        let sent = self.master.as_ref().map(|master| master.tell(withdrawn));
        if let Some(Err(error)) = sent {
            tracing::warn!(%error, "cannot send a withdrawal to the master");
        }
    }
}

impl Actor for Allocator {
    type Context = Context<Self>;
}

impl Process for Allocator {
    // Holds several facts for each agent of the largest cluster, which the master sends at once
    // after a `Begin`.
    const MAILBOX: u32 = 262_144;

    fn accepts(handlers: &mut RemoteHandlers<Self>) {
        let roles = &[Role::Master];
        handlers.accept::<Begin>(roles);
        handlers.accept::<AgentAdded>(roles);
        handlers.accept::<AgentRemoved>(roles);
        handlers.accept::<AgentActivity>(roles);
        handlers.accept::<UnavailabilityChanged>(roles);
        handlers.accept::<InverseAnswered>(roles);
        handlers.accept::<AgentOversubscribed>(roles);
        handlers.accept::<FrameworkAdded>(roles);
        handlers.accept::<FrameworkRemoved>(roles);
        handlers.accept::<FrameworkActivity>(roles);
        handlers.accept::<OfferBudgetSpent>(roles);
        handlers.accept::<Recovered>(roles);
        handlers.accept::<Converted>(roles);
        handlers.accept::<Suppressed>(roles);
        handlers.accept::<Revived>(roles);
        handlers.accept::<QuotasChanged>(roles);
        handlers.accept::<WeightsChanged>(roles);
        handlers.accept::<WhitelistChanged>(roles);
        handlers.accept::<TasksListed>(roles);
        handlers.accept::<Explain>(roles);
        handlers.accept::<Measure>(roles);
    }
}

impl Handler<Begin> for Allocator {
    type Result = ();

    fn handle(&mut self, begin: Begin, ctx: &mut Context<Self>) {
        self.state.begin(&begin);
        if let Some(revoker) = &mut self.revoker {
            revoker.begin();
        }
        self.master = Some(ctx.node().refer(begin.master));
        self.send_long_task_bound();
        self.run = None;
        self.batch_due = false;
        self.plan_batch(ctx);
        self.pause_until = ctx.clock().now() + self.pause_max;
        let pause = ctx.after(self.pause_max, |this, ctx| {
            this.state.resume();
            this.schedule_run(ctx);
        });
        if let Some(earlier) = self.pause.replace(pause) {
            ctx.cancel(earlier);
        }
    }
}

impl Handler<Measure> for Allocator {
    type Result = MessageResult<Measure>;

    fn handle(&mut self, _: Measure, _: &mut Context<Self>) -> Self::Result {
        MessageResult(metrics::metrics(&self.state, &self.runs))
    }
}

impl Handler<Explain> for Allocator {
    type Result = Reply<Result<Explanation, Fault>>;

    fn handle(&mut self, question: Explain, ctx: &mut Context<Self>) -> Self::Result {
        let (promise, reply) = promise();
        if self.explaining == EXPLAINING_MAX {
            let reason = format!("{EXPLAINING_MAX} explanations are in progress: try again");
            promise.answer(Err(Fault::Failed { reason }));
            return reply;
        }
        let now = ctx.clock().now();
        match Survey::begin(&self.state, &question, self.pause_until - now, now) {
            Ok(survey) => {
                self.explaining += 1;
                self.explain(survey, promise, ctx);
            }
            Err(fault) => promise.answer(Err(fault)),
        }
        reply
    }
}

/// Facts that only change the state; a run for all of them is scheduled afterwards.
macro_rules! handle_facts {
    ($($fact:ty => |$state:ident, $message:ident, $now:ident| $act:expr;)*) => {$(
        impl Handler<$fact> for Allocator {
            type Result = ();

            fn handle(&mut self, $message: $fact, ctx: &mut Context<Self>) {
                if self.master.is_none() {
                    return; // No `Begin` yet: the master will send its full state.
                }
                let ($state, $now) = (&mut self.state, ctx.clock().now());
                let withdrawn: Option<Withdrawn> = $act;
                if let Some(withdrawn) = withdrawn {
                    self.send_withdrawn(withdrawn);
                }
                self.schedule_run(ctx);
            }
        }
    )*};
}

handle_facts! {
    AgentAdded => |state, added, _now| { state.agent_added(added); None };
    AgentRemoved => |state, removed, _now| { state.agent_removed(&removed); None };
    AgentActivity => |state, activity, _now| { state.agent_activity(&activity); None };
    UnavailabilityChanged => |state, changed, _now| { state.unavailability_changed(&changed); None };
    InverseAnswered => |state, answered, now| { state.inverse_answered(&answered, now); None };
    AgentOversubscribed => |state, lent, _now| state.agent_oversubscribed(lent);
    FrameworkAdded => |state, added, _now| { state.framework_added(added); None };
    FrameworkRemoved => |state, removed, _now| { state.framework_removed(&removed); None };
    FrameworkActivity => |state, activity, _now| { state.framework_activity(&activity); None };
    OfferBudgetSpent => |state, spent, _now| { state.offer_budget_spent(&spent); None };
    Recovered => |state, recovered, now| { state.recovered(&recovered, now); None };
    Converted => |state, converted, _now| { state.converted(&converted); None };
    Suppressed => |state, suppressed, _now| { state.suppressed(&suppressed); None };
    Revived => |state, revived, _now| { state.revived(&revived); None };
    QuotasChanged => |state, changed, _now| { state.quotas_changed(&changed); None };
    WeightsChanged => |state, changed, _now| { state.weights_changed(&changed); None };
    WhitelistChanged => |state, changed, _now| { state.whitelist_changed(&changed); None };
}
