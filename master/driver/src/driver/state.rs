//! Requests for the framework's state, sent now or when there is a master.
//!
//! Owns the requests that wait for a master, bounded in number and time. After a lost connection a
//! read is repeated. A change is not, because it may have been applied: its caller gets
//! [`StateError::Unknown`].

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use protocol::message::state::GetState;
use runtime::{Instant, Promise, Reply, promise};

use super::*;
use crate::state::{
    Attempt, STATE_PATIENCE, StateAnswer, StateCall, StateError, StateOutcome, change_of, interpret,
};

/// Pause before a request is repeated.
const RETRY_PAUSE: Duration = Duration::from_millis(500);
/// Maximum number of requests that wait for a master; more are refused.
const REQUESTS_MAX: usize = 1_024;

/// A request from outside a callback.
pub(super) struct AskState(pub StateCall);

impl Message for AskState {
    type Result = StateOutcome;
}

/// A pending request.
pub(super) struct StateRequest {
    call: StateCall,
    /// Time limit.
    deadline: Instant,
    /// Reply to the caller; `None` means the scheduler.
    reply: Option<Promise<StateOutcome>>,
}

impl<S: Scheduler> Handler<AskState> for Driver<S> {
    type Result = Reply<StateOutcome>;
    fn handle(&mut self, AskState(call): AskState, ctx: &mut Context<Self>) -> Self::Result {
        let (promise, reply) = promise();
        self.state(call, Some(promise), ctx);
        reply
    }
}

/// Sends a request to the driver. If the driver ends, a change is unknown.
pub(super) fn ask<S: Scheduler>(
    driver: &Handle<Driver<S>>,
    call: StateCall,
) -> BoxFuture<'static, StateOutcome> {
    let reads = call.reads();
    // The driver has its own time limit.
    let asked = driver.ask(AskState(call), Patience::WhileLinked);
    async move {
        asked.await.unwrap_or_else(|error| {
            let reason = format!("the driver: {error}");
            Err(match error {
                AskError::Gone if !reads => StateError::Unknown { reason },
                _ => StateError::Unavailable { reason },
            })
        })
    }
    .boxed()
}

impl<S: Scheduler> Driver<S> {
    pub(super) fn state(
        &mut self,
        call: StateCall,
        reply: Option<Promise<StateOutcome>>,
        ctx: &mut Context<Self>,
    ) {
        let checked = call.check();
        let request = StateRequest {
            call,
            deadline: ctx.clock().now() + STATE_PATIENCE,
            reply,
        };
        match checked {
            Ok(()) => self.send_request(request, ctx),
            Err(invalid) => {
                let reason = invalid.to_string();
                self.answered(request, Err(StateError::Refused { reason }), ctx);
            }
        }
    }

    fn send_request(&mut self, request: StateRequest, ctx: &mut Context<Self>) {
        if !request.call.reads() && self.is_standby() {
            let reason = "this scheduler is a standby".to_owned();
            return self.answered(request, Err(StateError::NotLeading { reason }), ctx);
        }
        let left = request.deadline - ctx.clock().now();
        if left.is_zero() {
            let reason = format!("none answered within {STATE_PATIENCE:?}");
            return self.answered(request, Err(StateError::Unavailable { reason }), ctx);
        }
        let master = match &self.phase {
            Phase::Subscribed { master } | Phase::StandingBy { master } => master.clone(),
            Phase::Searching | Phase::Subscribing { .. } | Phase::Ending => {
                return self.wait_for_master(request, left, ctx);
            }
        };
        let Some(framework_id) = self.plan.framework.id.clone() else {
            return self.wait_for_master(request, left, ctx);
        };
        let (node, scheduler) = (ctx.node().clone(), ctx.pid().clone());
        let answer = match change_of(&request.call, framework_id.clone(), scheduler.clone()) {
            Some(change) => {
                let asked = node.ask(&master, change, left);
                let written = |version| StateAnswer::Written { version };
                async move { asked.await.map(|answer| answer.map(written)) }.boxed_local()
            }
            None => {
                let asked = node.ask(
                    &master,
                    GetState {
                        framework_id,
                        scheduler,
                        key: request.call.key().to_owned(),
                    },
                    left,
                );
                async move { asked.await.map(|answer| answer.map(StateAnswer::Found)) }
                    .boxed_local()
            }
        };
        ctx.then(answer, move |driver: &mut Self, answer, ctx| {
            match interpret(request.call.reads(), answer) {
                Attempt::Done(outcome) => driver.answered(request, outcome, ctx),
                Attempt::Retry { reason } => {
                    debug!(key = request.call.key(), %reason, "retrying a request for the framework's state");
                    ctx.after(RETRY_PAUSE, move |driver, ctx| driver.send_request(request, ctx));
                }
            }
        });
    }

    /// Queues a request until there is a master or its time is over.
    fn wait_for_master(&mut self, request: StateRequest, left: Duration, ctx: &mut Context<Self>) {
        if self.requests.len() >= REQUESTS_MAX {
            let reason = format!("{REQUESTS_MAX} calls wait for one already");
            return self.answered(request, Err(StateError::Unavailable { reason }), ctx);
        }
        self.requests.push_back(request);
        ctx.after(left, |driver, ctx| driver.resume_requests(ctx));
    }

    /// Sends all waiting requests if there is a master, and fails the expired ones.
    pub(super) fn resume_requests(&mut self, ctx: &mut Context<Self>) {
        let now = ctx.clock().now();
        let has_master = matches!(
            self.phase,
            Phase::Subscribed { .. } | Phase::StandingBy { .. }
        );
        let waiting = std::mem::take(&mut self.requests);
        for request in waiting {
            if has_master || request.deadline <= now {
                self.send_request(request, ctx);
            } else {
                self.requests.push_back(request);
            }
        }
    }

    fn answered(&mut self, request: StateRequest, outcome: StateOutcome, ctx: &mut Context<Self>) {
        match request.reply {
            Some(promise) => promise.answer(outcome),
            // Through the mailbox, because the scheduler may make the next request at once.
            None => ctx.notify(Answered(request.call, outcome)),
        }
    }
}

/// Result of a request, for the scheduler.
#[derive(Message)]
#[rtype(result = "()")]
struct Answered(StateCall, StateOutcome);

impl<S: Scheduler> Handler<Answered> for Driver<S> {
    type Result = ();
    fn handle(&mut self, Answered(call, outcome): Answered, ctx: &mut Context<Self>) {
        self.call_back(ctx, |scheduler, calls| {
            scheduler.state(calls, &call, &outcome)
        });
    }
}
