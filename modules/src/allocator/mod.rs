//! Allocator: keeps the books of who holds what, and grants what is free by its sorter's advice (DESIGN 6, SPEC 4).
//!
//! Hears the master's facts and the sorter's advice. Remembers the [`Books`] since the last `Begin`; restarted, it waits for the next one
//! and for the master to tell everything anew. Runs follow what happened, not only the clock: what becomes free is offered at once, what
//! was refused for no time at all waits for the batch that comes every allocation interval. Where it may, it has tasks make room
//! for what is guaranteed ([`Revocation`]). It never waits for the master, and never grants what the books do not have, whatever the sorter says.
//! Asked why it grants nothing, it answers in pieces ([`Survey`]).

mod bits;
mod books;
mod by_client;
mod charges;
mod choice;
mod clients;
mod cutting;
mod explain;
mod filter;
mod metrics;
mod refused;
mod revoker;
mod revoking;
mod victims;

pub use books::{Agent, Asked, Booked, Books, Case, Refusal, Side};
pub use by_client::ByClient;
pub use clients::{Clients, Member};
pub use explain::{Shares, Survey};
pub use filter::Filters;
pub use refused::Refused;
pub use revoker::Revocation;

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
use protocol::explain::Explanation;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use resources::Quantities;
use runtime::Instant;
use runtime::prelude::*;

use metrics::Runs;
use revoker::Revoker;

/// The shortest time between two runs that do not wait for the batch: what happens within it is served together.
const RUN_GAP: Duration = Duration::from_millis(2);
/// Slates in one stage of a run after which what is still refused waits for the next batch.
pub(crate) const ROUNDS_MAX: u8 = 4;

/// In which order a run goes through its agents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AgentOrder {
    /// By chance, in each stage anew (SPEC 4.5).
    #[default]
    Random,
    /// Those with the least left first, so that whoever is next is given the tightest that fits, and whole agents stay free for as long as
    /// may be (W9).
    TightestFirst,
}

/// Agents that are explained before other messages have their turn.
const EXPLAINED_AT_ONCE: u32 = 1_000;
/// Explanations at a time, each with a copy of the books if it needs one; whoever wants one more is to ask again.
const EXPLAINING_MAX: usize = 4;

/// The run under way.
struct Run {
    /// Every agent it looks at, in its order.
    slots: Vec<u32>,
    batch: bool,
    walk: Walk,
    /// Stages still to come, the next one last.
    stages: Vec<Stage>,
}

/// One stage of a run, in a few rounds.
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

/// The actor around the books.
pub struct Allocator {
    books: Books,
    sorter: SorterRef,
    rng: SmallRng,
    order: AgentOrder,
    /// Set by `Begin`; before it nothing is heard.
    master: Option<ActorRef>,
    run: Option<Run>,
    /// A run is to begin shortly.
    planned: bool,
    /// No run but a batch begins before this.
    rest_until: Instant,
    /// The next batch, or whether it came while a run was under way.
    batch: Option<Errand>,
    batch_due: bool,
    /// The end of the pause after a beginning.
    pause: Option<Errand>,
    pause_until: Instant,
    pause_max: Duration,
    /// Explanations under way.
    explaining: usize,
    runs: Runs,
    /// Whether and when tasks make room for what is guaranteed.
    revoker: Option<Revoker>,
    /// How much of each agent is for long tasks, if not all.
    long_tasks: Option<LongTasksBounded>,
}

impl Allocator {
    /// An allocator that takes advice of `sorter`, offers nothing below all of `sets_min`, and shuffles by `rng`.
    pub fn new(sorter: SorterRef, sets_min: Option<Vec<Quantities>>, rng: SmallRng) -> Self {
        let mut books = Books::default();
        if let Some(sets_min) = sets_min {
            books.sets_min = sets_min;
        }
        Self {
            books,
            sorter,
            rng,
            order: AgentOrder::default(),
            master: None,
            run: None,
            planned: false,
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

    /// Goes through agents in this order.
    pub fn going_through(mut self, order: AgentOrder) -> Self {
        self.order = order;
        self
    }

    /// Grants nothing for so long after a beginning with quotas.
    pub fn pausing(mut self, pause: RecoveryPause) -> Self {
        self.pause_max = pause.timeout;
        self.books.await_part(pause.factor);
        self
    }

    /// Offers agents with graphics processors to all, not only to frameworks with `GPU_RESOURCES`.
    pub fn giving_gpus_to_all(mut self) -> Self {
        self.books.give_gpus_to_all();
        self
    }

    /// Counts what is reserved towards the share of its role whether it is used or not.
    pub fn charging_reservations(mut self) -> Self {
        self.books.charge_reservations();
        self
    }

    /// Has tasks make room for what is guaranteed and wanted. What is guaranteed and not wanted is lent to others then.
    pub fn revoking(mut self, revocation: Revocation) -> Self {
        self.revoker = Some(Revoker::new(revocation));
        self.books.lend_guarantees();
        self
    }

    /// Has long tasks use so much of each agent at most.
    pub fn bounding_long_tasks(mut self, bound: LongTasksBounded) -> Self {
        self.long_tasks = Some(bound);
        self
    }

    /// Plans a run if something has happened that one should follow.
    fn heed(&mut self, ctx: &mut Context<Self>) {
        if self.planned || self.run.is_some() || !self.books.wants_run() {
            return;
        }
        self.planned = true;
        self.runs.plan(ctx.clock().now());
        let begin = |this: &mut Self, ctx: &mut Context<Self>| {
            this.planned = false;
            this.begin_run(false, ctx);
        };
        let rest = self.rest_until - ctx.clock().now();
        if rest.is_zero() {
            // After whatever is in the mailbox already, so that it is served together.
            ctx.then(std::future::ready(()), move |this, (), ctx| {
                begin(this, ctx)
            });
        } else {
            ctx.after(rest, begin);
        }
    }

    fn plan_batch(&mut self, ctx: &mut Context<Self>) {
        let interval = self.books.interval;
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
        if self.books.is_paused() {
            if batch {
                self.plan_batch(ctx);
            }
            return;
        }
        let now = ctx.clock().now();
        self.rest_until = now + RUN_GAP;
        self.runs.begin(now);
        let mut slots = self.books.candidates(now, batch);
        slots.shuffle(&mut self.rng);
        if self.order == AgentOrder::TightestFirst {
            self.books.tightest_first(Pool::Regular, &mut slots);
        }
        self.run = Some(Run {
            batch,
            walk: Walk::new(Stage::Guarantees, slots.clone()),
            stages: vec![Stage::Revocable, Stage::Fair],
            slots,
        });
        self.go_on(ctx);
    }

    /// Asks the sorter about the next slate, or ends the run if there is none.
    fn go_on(&mut self, ctx: &mut Context<Self>) {
        while let Some(run) = &mut self.run {
            let now = ctx.clock().now();
            let Walk {
                stage,
                slots,
                barred,
                ..
            } = &run.walk;
            if let Some((slate, asked)) = self.books.slate(*stage, slots, barred, now) {
                let sorter = self.sorter.clone();
                let advice = async move { sorter.advice(slate).await };
                ctx.then(advice, move |this, advice, ctx| {
                    this.hear(asked, advice, ctx)
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
            run.slots.shuffle(&mut self.rng); // SPEC 4.5: each stage has an order of its own.
        }
        if self.order == AgentOrder::TightestFirst {
            self.books.tightest_first(stage.pool(), &mut run.slots);
        }
        run.walk = Walk::new(stage, run.slots.clone());
    }

    fn end_run(&mut self, ctx: &mut Context<Self>) {
        let Some(run) = self.run.take() else {
            return;
        };
        self.runs.end(ctx.clock().now());
        self.books.run_ended();
        self.tell_inverse_grants(&run, ctx);
        if std::mem::take(&mut self.batch_due) {
            self.begin_run(true, ctx);
            return;
        }
        if run.batch {
            self.look_for_room(ctx);
            self.plan_batch(ctx);
        }
        self.heed(ctx);
    }

    fn hear(
        &mut self,
        asked: Asked,
        advice: Result<Vec<Advice>, ModuleError>,
        ctx: &mut Context<Self>,
    ) {
        if !self.books.is_current(&asked) {
            return; // The books were begun anew meanwhile.
        }
        let Some(run) = &mut self.run else {
            return;
        };
        let advice = match advice {
            Ok(advice) => advice,
            Err(error) => {
                tracing::warn!(%error, "no advice: all agents wait for the next batch");
                self.books.begin_epoch();
                self.books.postpone_everybody();
                return self.end_run(ctx);
            }
        };
        let booked = self.books.book(asked, &advice, ctx.clock().now());
        for (refusal, count) in &booked.refusals {
            if refusal.is_fault() {
                tracing::warn!(%refusal, count, "advice of the sorter was not followed");
            } else {
                tracing::debug!(%refusal, count, "advice of the sorter was not followed");
            }
        }
        let walk = &mut run.walk;
        walk.round += 1;
        let over = booked.again.is_empty() || walk.round == ROUNDS_MAX;
        if over {
            self.books.postpone(&booked.again);
        } else {
            walk.slots = booked.again.clone();
            walk.barred.extend(booked.barred.iter().copied());
        }
        self.tell_grants(booked);
        if over {
            self.next_stage(ctx);
        }
        self.go_on(ctx);
    }

    /// Tells the master. What cannot be told is taken back, or it would be held for ever.
    fn tell_grants(&mut self, booked: Booked) {
        if booked.grants.is_empty() {
            return;
        }
        let grants = booked
            .grants
            .iter()
            .map(|(_, grant)| grant.clone())
            .collect();
        let told = self
            .master
            .as_ref()
            .map(|master| master.tell(Granted { grants }));
        if let Some(Err(error)) = told {
            tracing::warn!(%error, "the master cannot be told of grants: they are taken back");
            for (client, grant) in &booked.grants {
                self.books
                    .take_back(&grant.agent_id, *client, &grant.resources);
            }
        }
    }

    /// Goes on with an explanation, and comes back to it after what has come meanwhile.
    fn explain(
        &mut self,
        mut survey: Survey,
        promise: Promise<Result<Explanation, Fault>>,
        ctx: &mut Context<Self>,
    ) {
        let done = survey.go_on(&mut self.books, EXPLAINED_AT_ONCE);
        if matches!(done, Ok(false)) && promise.is_awaited() {
            ctx.then(std::future::ready(()), |this, (), ctx| {
                this.explain(survey, promise, ctx);
            });
            return;
        }
        self.explaining -= 1;
        promise.answer(done.map(|_| survey.end()));
    }

    /// Tells the master who should leave agents that will be away. A batch looks at all of them, any other run at its own.
    fn tell_inverse_grants(&mut self, run: &Run, ctx: &Context<Self>) {
        let slots = (!run.batch).then_some(&run.slots[..]);
        let grants = self.books.inverse_grants(slots, ctx.clock().now());
        if grants.is_empty() {
            return;
        }
        let told = self.master.as_ref().map(|master| {
            let grants = grants.clone();
            master.tell(InverseGranted { grants })
        });
        if let Some(Err(error)) = told {
            tracing::warn!(%error, "the master cannot be told who should leave its agents");
            let now = ctx.clock().now();
            for grant in grants {
                let unasked = InverseAnswered {
                    framework_id: grant.framework_id,
                    agent_id: grant.agent_id,
                    refuse: None,
                };
                self.books.inverse_answered(&unasked, now);
            }
        }
    }

    fn tell_withdrawn(&self, withdrawn: Withdrawn) {
        let told = self.master.as_ref().map(|master| master.tell(withdrawn));
        if let Some(Err(error)) = told {
            tracing::warn!(%error, "the master cannot be told what is wanted back");
        }
    }
}

impl Actor for Allocator {
    type Context = Context<Self>;
}

impl Process for Allocator {
    // All agents of the largest clusters, each in a few facts: told anew, they come in one go.
    const MAILBOX: u32 = 262_144;

    fn hears(ears: &mut Ears<Self>) {
        let roles = &[Role::Master];
        ears.hear::<Begin>(roles);
        ears.hear::<AgentAdded>(roles);
        ears.hear::<AgentRemoved>(roles);
        ears.hear::<AgentActivity>(roles);
        ears.hear::<UnavailabilityChanged>(roles);
        ears.hear::<InverseAnswered>(roles);
        ears.hear::<AgentOversubscribed>(roles);
        ears.hear::<FrameworkAdded>(roles);
        ears.hear::<FrameworkRemoved>(roles);
        ears.hear::<FrameworkActivity>(roles);
        ears.hear::<OfferBudgetSpent>(roles);
        ears.hear::<Recovered>(roles);
        ears.hear::<Converted>(roles);
        ears.hear::<Suppressed>(roles);
        ears.hear::<Revived>(roles);
        ears.hear::<QuotasChanged>(roles);
        ears.hear::<WeightsChanged>(roles);
        ears.hear::<WhitelistChanged>(roles);
        ears.hear::<TasksListed>(roles);
        ears.hear::<Explain>(roles);
        ears.hear::<Measure>(roles);
    }
}

impl Handler<Begin> for Allocator {
    type Result = ();

    fn handle(&mut self, begin: Begin, ctx: &mut Context<Self>) {
        self.books.begin(&begin);
        if let Some(revoker) = &mut self.revoker {
            revoker.begin();
        }
        self.master = Some(ctx.node().refer(begin.master));
        self.tell_of_long_tasks();
        self.run = None;
        self.batch_due = false;
        self.plan_batch(ctx);
        self.pause_until = ctx.clock().now() + self.pause_max;
        let pause = ctx.after(self.pause_max, |this, ctx| {
            this.books.resume();
            this.heed(ctx);
        });
        if let Some(earlier) = self.pause.replace(pause) {
            ctx.cancel(earlier);
        }
    }
}

impl Handler<Measure> for Allocator {
    type Result = MessageResult<Measure>;

    fn handle(&mut self, _: Measure, _: &mut Context<Self>) -> Self::Result {
        MessageResult(metrics::metrics(&self.books, &self.runs))
    }
}

impl Handler<Explain> for Allocator {
    type Result = Reply<Result<Explanation, Fault>>;

    fn handle(&mut self, question: Explain, ctx: &mut Context<Self>) -> Self::Result {
        let (promise, reply) = promise();
        if self.explaining == EXPLAINING_MAX {
            let reason = format!("{EXPLAINING_MAX} explanations are under way: ask again");
            promise.answer(Err(Fault::Failed { reason }));
            return reply;
        }
        let now = ctx.clock().now();
        match Survey::begin(&self.books, &question, self.pause_until - now, now) {
            Ok(survey) => {
                self.explaining += 1;
                self.explain(survey, promise, ctx);
            }
            Err(fault) => promise.answer(Err(fault)),
        }
        reply
    }
}

/// Facts that change the books and nothing else; what follows from them is decided once for all.
macro_rules! hear {
    ($($fact:ty => |$books:ident, $heard:ident, $now:ident| $act:expr;)*) => {$(
        impl Handler<$fact> for Allocator {
            type Result = ();

            fn handle(&mut self, $heard: $fact, ctx: &mut Context<Self>) {
                if self.master.is_none() {
                    return; // Not begun: the master will tell it all again.
                }
                let ($books, $now) = (&mut self.books, ctx.clock().now());
                let withdrawn: Option<Withdrawn> = $act;
                if let Some(withdrawn) = withdrawn {
                    self.tell_withdrawn(withdrawn);
                }
                self.heed(ctx);
            }
        }
    )*};
}

hear! {
    AgentAdded => |books, added, _now| { books.agent_added(added); None };
    AgentRemoved => |books, removed, _now| { books.agent_removed(&removed); None };
    AgentActivity => |books, activity, _now| { books.agent_activity(&activity); None };
    UnavailabilityChanged => |books, changed, _now| { books.unavailability_changed(&changed); None };
    InverseAnswered => |books, answered, now| { books.inverse_answered(&answered, now); None };
    AgentOversubscribed => |books, lent, _now| books.agent_oversubscribed(lent);
    FrameworkAdded => |books, added, _now| { books.framework_added(added); None };
    FrameworkRemoved => |books, removed, _now| { books.framework_removed(&removed); None };
    FrameworkActivity => |books, activity, _now| { books.framework_activity(&activity); None };
    OfferBudgetSpent => |books, spent, _now| { books.offer_budget_spent(&spent); None };
    Recovered => |books, recovered, now| { books.recovered(&recovered, now); None };
    Converted => |books, converted, _now| { books.converted(&converted); None };
    Suppressed => |books, suppressed, _now| { books.suppressed(&suppressed); None };
    Revived => |books, revived, _now| { books.revived(&revived); None };
    QuotasChanged => |books, changed, _now| { books.quotas_changed(&changed); None };
    WeightsChanged => |books, changed, _now| { books.weights_changed(&changed); None };
    WhitelistChanged => |books, changed, _now| { books.whitelist_changed(&changed); None };
}
