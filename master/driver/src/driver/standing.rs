//! Standing by: a scheduler that waits for its turn to lead its framework (S134).
//!
//! The master decides whose turn it is, and says so once. One that led and comes back to a framework which another leads begins anew:
//! what it knew of tasks is out of date, and what it had said and nobody had heard fails. Remembers nothing of its own.

use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use protocol::message::standby::{StandBy, Standing, StandingBy, YouLead};
use runtime::AskError;
use runtime::delivery::DeliveryError;

use super::calls::Failed;
use super::*;
use crate::scheduler::Undelivered;

const STANDS_BY: &str = "this scheduler stands by: only the one that leads may do that";

type Answer = Result<Result<Standing, SubscriptionRefused>, AskError>;

impl<S: Scheduler> Driver<S> {
    /// Asks a master to have us: as the framework's only scheduler, or as one that leads or stands by.
    pub(super) fn ask_to_be_had(
        &self,
        master: &Pid,
        ctx: &Context<Self>,
    ) -> LocalBoxFuture<'static, Answer> {
        let framework = self.plan.framework.clone();
        let scheduler = ctx.pid().clone();
        let wants = self.plan.wants.clone();
        if self.plan.stands_by {
            let question = StandBy {
                framework,
                scheduler,
                wants,
            };
            let asked = ctx.node().ask(master, question, SUBSCRIBE_PATIENCE);
            return asked.boxed_local();
        }
        let question = Subscribe {
            framework,
            scheduler,
            wants,
        };
        let asked = ctx.node().ask(master, question, SUBSCRIBE_PATIENCE);
        async move { asked.await.map(|answer| answer.map(Standing::Leads)) }.boxed_local()
    }

    /// Whether it stands by, or does not know yet whether it does.
    pub(super) fn waits_for_its_turn(&self) -> bool {
        self.plan.stands_by && !self.leads
    }

    /// The master has another scheduler lead.
    pub(super) fn stand_by(&mut self, master: Pid, standing: StandingBy, ctx: &mut Context<Self>) {
        info!(framework = %standing.framework_id, master = %standing.master.id, "standing by");
        if std::mem::take(&mut self.leads) {
            self.begin_anew(ctx);
        }
        self.plan.framework.id = Some(standing.framework_id.clone());
        (self.rounds, self.tries) = (0, 0);
        ctx.link(&master);
        let held = match std::mem::replace(&mut self.phase, Phase::StandingBy { master }) {
            Phase::Subscribing { held, .. } => held,
            _ => VecDeque::new(),
        };
        self.call(ctx, |scheduler, verbs| {
            scheduler.standing_by(verbs, &standing)
        });
        self.put_questions(ctx);
        for event in held {
            self.deliver(event, ctx);
        }
    }

    /// What this scheduler knew and had still to say was its former leadership's, or its former framework's.
    pub(super) fn begin_anew(&mut self, ctx: &mut Context<Self>) {
        self.ledger = Ledger::default();
        self.updates = SeenUpdates::new(UPDATES_REMEMBERED);
        // The old courier ends with this, and whatever waits in it fails.
        self.courier = match ctx.courier(self.plan.calls) {
            Ok(courier) => Some(courier),
            Err(error) => {
                warn!(%error, "no calls can be made");
                None
            }
        };
    }

    /// Begins to lead, unless it does already.
    pub(super) fn begin_to_lead(&mut self, subscribed: &Subscribed, ctx: &mut Context<Self>) {
        if self.plan.stands_by && !std::mem::replace(&mut self.leads, true) {
            info!(framework = %subscribed.framework_id, "leading");
            self.plan.framework.id = Some(subscribed.framework_id.clone());
            self.want_as_at_first(ctx);
            self.call(ctx, |scheduler, verbs| {
                scheduler.you_lead(verbs, subscribed)
            });
        }
    }

    /// For which roles it wants no offers is what it was when it began: all that was said since was for its former leadership, and the
    /// master was told of it when it asked to be had, not knowing that another leads.
    fn want_as_at_first(&mut self, ctx: &mut Context<Self>) {
        let (first, now) = (&self.suppressed_at_first, &self.plan.wants.suppressed_roles);
        let revived: BTreeSet<_> = now.difference(first).cloned().collect();
        let suppressed: BTreeSet<_> = first.difference(now).cloned().collect();
        if !revived.is_empty() {
            self.perform(Verb::Revive { roles: revived }, ctx);
        }
        if !suppressed.is_empty() {
            self.perform(Verb::Suppress { roles: suppressed }, ctx);
        }
    }

    /// What a master tells one that stands by.
    pub(super) fn deliver_standing_by(&mut self, event: Event, ctx: &mut Context<Self>) {
        match (event, &self.phase) {
            (Event::Lead(YouLead { subscribed }), Phase::StandingBy { master }) => {
                let master = master.clone();
                self.subscribed(master, subscribed, ctx);
            }
            (Event::Failed(FrameworkFailed { message }), _) => {
                info!(message, "the framework is over");
                self.end(Ended::TornDown { confirmed: true }, ctx);
            }
            _ => debug!("an event for the scheduler that leads is dropped"),
        }
    }

    /// Does what one that stands by can do: read the state, and leave.
    pub(super) fn perform_standing_by(&mut self, verb: Verb, ctx: &mut Context<Self>) {
        let reason = STANDS_BY.to_owned();
        match verb {
            Verb::State(call) => self.state(call, None, ctx),
            Verb::TearDown | Verb::Stop { .. } => {
                self.leaving = true;
                self.end(Ended::LeftForFailover, ctx);
            }
            Verb::Accept { operations, .. } => {
                let named = operations::named(&operations);
                let launched = operations.into_iter().flat_map(Operation::into_tasks);
                let tasks = launched.map(|task| (task.task_id, task.agent_id)).collect();
                ctx.notify(Failed::Launch {
                    tasks,
                    operations: named,
                    reason,
                });
            }
            Verb::Kill { task, .. } => ctx.notify(Failed::Call(Undelivered {
                call: "kill",
                tasks: vec![task],
                error: DeliveryError::Refused { reason },
            })),
            _ => debug!("{STANDS_BY}"),
        }
    }
}
