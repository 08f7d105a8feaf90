//! Standby: a scheduler that waits to be elected as the leading one of its framework.
//!
//! The master decides and informs it once. A scheduler that led, reconnects and finds another
//! leading one starts anew: its knowledge of tasks is out of date, and its undelivered calls fail.
//! Has no state of its own.

use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use protocol::message::standby::{SchedulerElected, StandBy, StandbyReply, StandingBy};
use runtime::AskError;
use runtime::delivery::DeliveryError;

use super::calls::CallFailed;
use super::*;
use crate::scheduler::Undelivered;

const STANDBY_REFUSAL: &str = "this scheduler is a standby: only the leading one may do that";

type Answer = Result<Result<StandbyReply, SubscriptionRefused>, AskError>;

impl<S: Scheduler> Driver<S> {
    /// Subscribes with a master, as the only scheduler or as one of several.
    pub(super) fn request_subscription(
        &self,
        master: &Pid,
        ctx: &Context<Self>,
    ) -> LocalBoxFuture<'static, Answer> {
        let framework = self.plan.framework.clone();
        let scheduler = ctx.pid().clone();
        let wants = self.plan.wants.clone();
        if self.plan.stands_by {
            let request = StandBy {
                framework,
                scheduler,
                wants,
            };
            let asked = ctx.node().ask(master, request, SUBSCRIBE_PATIENCE);
            return asked.boxed_local();
        }
        let request = Subscribe {
            framework,
            scheduler,
            wants,
        };
        let asked = ctx.node().ask(master, request, SUBSCRIBE_PATIENCE);
        async move { asked.await.map(|answer| answer.map(StandbyReply::Leads)) }.boxed_local()
    }

    /// Whether it is a standby, or does not know yet.
    pub(super) fn is_standby(&self) -> bool {
        self.plan.stands_by && !self.leads
    }

    /// The master has another leading scheduler.
    pub(super) fn become_standby(
        &mut self,
        master: Pid,
        standing: StandingBy,
        ctx: &mut Context<Self>,
    ) {
        info!(framework = %standing.framework_id, master = %standing.master.id, "standing by");
        if std::mem::take(&mut self.leads) {
            self.start_anew(ctx);
        }
        self.plan.framework.id = Some(standing.framework_id.clone());
        (self.rounds, self.tries) = (0, 0);
        ctx.link(&master);
        let early = match std::mem::replace(&mut self.phase, Phase::StandingBy { master }) {
            Phase::Subscribing { early, .. } => early,
            _ => VecDeque::new(),
        };
        self.call_back(ctx, |scheduler, calls| {
            scheduler.standing_by(calls, &standing)
        });
        self.resume_requests(ctx);
        for event in early {
            self.deliver(event, ctx);
        }
    }

    /// Clears all state of the previous leadership or framework.
    pub(super) fn start_anew(&mut self, ctx: &mut Context<Self>) {
        self.tasks = TaskTracker::default();
        self.updates = SeenUpdates::new(UPDATES_REMEMBERED);
        // Calls in the previous courier fail.
        self.reliable_sender = match ctx.reliable_sender(self.plan.calls) {
            Ok(courier) => Some(courier),
            Err(error) => {
                warn!(%error, "cannot create the courier for calls");
                None
            }
        };
    }

    /// Starts to lead, unless it already does.
    pub(super) fn start_leading(&mut self, subscribed: &Subscribed, ctx: &mut Context<Self>) {
        if self.plan.stands_by && !std::mem::replace(&mut self.leads, true) {
            info!(framework = %subscribed.framework_id, "leading");
            self.plan.framework.id = Some(subscribed.framework_id.clone());
            self.restore_initial_suppression(ctx);
            self.call_back(ctx, |scheduler, calls| scheduler.elected(calls, subscribed));
        }
    }

    /// Restores the offer suppression of the start. Later changes belonged to the previous
    /// leadership, but the subscription already contained them.
    fn restore_initial_suppression(&mut self, ctx: &mut Context<Self>) {
        let (first, now) = (
            &self.suppressed_initially,
            &self.plan.wants.suppressed_roles,
        );
        let revived: BTreeSet<_> = now.difference(first).cloned().collect();
        let suppressed: BTreeSet<_> = first.difference(now).cloned().collect();
        if !revived.is_empty() {
            self.perform(Call::Revive { roles: revived }, ctx);
        }
        if !suppressed.is_empty() {
            self.perform(Call::Suppress { roles: suppressed }, ctx);
        }
    }

    /// Handles an event as a standby.
    pub(super) fn deliver_to_standby(&mut self, event: Event, ctx: &mut Context<Self>) {
        match (event, &self.phase) {
            (Event::Lead(SchedulerElected { subscribed }), Phase::StandingBy { master }) => {
                let master = master.clone();
                self.subscribed(master, subscribed, ctx);
            }
            (Event::Failed(FrameworkFailed { message }), _) => {
                info!(message, "framework ended");
                self.end(Ended::TornDown { confirmed: true }, ctx);
            }
            _ => debug!("dropping an event for the leading scheduler"),
        }
    }

    /// Performs a call as a standby: only reads of the state, and the end of the driver.
    pub(super) fn perform_as_standby(&mut self, call: Call, ctx: &mut Context<Self>) {
        let reason = STANDBY_REFUSAL.to_owned();
        match call {
            Call::State(call) => self.state(call, None, ctx),
            Call::TearDown | Call::Stop { .. } => {
                self.leaving = true;
                self.end(Ended::LeftForFailover, ctx);
            }
            Call::Accept { operations, .. } => {
                let named = operations::named(&operations);
                let launched = operations.into_iter().flat_map(Operation::into_tasks);
                let tasks = launched.map(|task| (task.task_id, task.agent_id)).collect();
                ctx.notify(CallFailed::Launch {
                    tasks,
                    operations: named,
                    reason,
                });
            }
            Call::Kill { task, .. } => ctx.notify(CallFailed::Call(Undelivered {
                call: "kill",
                tasks: vec![task],
                error: DeliveryError::Refused { reason },
            })),
            _ => debug!("{STANDBY_REFUSAL}"),
        }
    }
}
