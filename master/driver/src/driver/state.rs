//! Carrying out what is asked of the framework's state: now, or as soon as a master has this scheduler.
//!
//! Remembers what waits for a master, bounded in number and time. A question that was lost with its master is asked again; a change
//! is not, for it may have been made: whoever wanted it is told so.

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use protocol::message::state::GetState;
use runtime::{Instant, Promise, Reply, promise};

use super::*;
use crate::state::{
    Heard, STATE_PATIENCE, StateAnswer, StateCall, StateError, StateOutcome, change_of, heard,
};

/// The pause before a master that could not answer is asked again.
const AGAIN: Duration = Duration::from_millis(500);
/// How many calls may wait for a master; one more is refused.
const WAITING_MAX: usize = 1_024;

/// A call from outside a callback.
pub(super) struct AskState(pub StateCall);

impl Message for AskState {
    type Result = StateOutcome;
}

/// A call under way.
pub(super) struct Question {
    call: StateCall,
    /// When nobody waits any more.
    deadline: Instant,
    /// Who is told the outcome; `None` is the scheduler.
    asker: Option<Promise<StateOutcome>>,
}

impl<S: Scheduler> Handler<AskState> for Driver<S> {
    type Result = Reply<StateOutcome>;
    fn handle(&mut self, AskState(call): AskState, ctx: &mut Context<Self>) -> Self::Result {
        let (promise, reply) = promise();
        self.state(call, Some(promise), ctx);
        reply
    }
}

/// Asks a driver from outside; a driver that ended leaves a change unknown.
pub(super) fn ask<S: Scheduler>(
    driver: &Handle<Driver<S>>,
    call: StateCall,
) -> BoxFuture<'static, StateOutcome> {
    let reads = call.reads();
    // The driver itself has the patience.
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
        asker: Option<Promise<StateOutcome>>,
        ctx: &mut Context<Self>,
    ) {
        let checked = call.check();
        let question = Question {
            call,
            deadline: ctx.clock().now() + STATE_PATIENCE,
            asker,
        };
        match checked {
            Ok(()) => self.put_question(question, ctx),
            Err(invalid) => {
                let reason = invalid.to_string();
                self.answered(question, Err(StateError::Refused { reason }), ctx);
            }
        }
    }

    fn put_question(&mut self, question: Question, ctx: &mut Context<Self>) {
        if !question.call.reads() && self.waits_for_its_turn() {
            let reason = "this scheduler stands by".to_owned();
            return self.answered(question, Err(StateError::NotLeading { reason }), ctx);
        }
        let left = question.deadline - ctx.clock().now();
        if left.is_zero() {
            let reason = format!("none answered within {STATE_PATIENCE:?}");
            return self.answered(question, Err(StateError::Unavailable { reason }), ctx);
        }
        let master = match &self.phase {
            Phase::Subscribed { master } | Phase::StandingBy { master } => master.clone(),
            Phase::Seeking | Phase::Subscribing { .. } | Phase::Ending => {
                return self.wait_for_master(question, left, ctx);
            }
        };
        let Some(framework_id) = self.plan.framework.id.clone() else {
            return self.wait_for_master(question, left, ctx);
        };
        let (node, scheduler) = (ctx.node().clone(), ctx.pid().clone());
        let answer = match change_of(&question.call, framework_id.clone(), scheduler.clone()) {
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
                        key: question.call.key().to_owned(),
                    },
                    left,
                );
                async move { asked.await.map(|answer| answer.map(StateAnswer::Found)) }
                    .boxed_local()
            }
        };
        ctx.then(answer, move |driver: &mut Self, answer, ctx| {
            match heard(question.call.reads(), answer) {
                Heard::Over(outcome) => driver.answered(question, outcome, ctx),
                Heard::Again { reason } => {
                    debug!(key = question.call.key(), %reason, "the framework's state is asked for again");
                    ctx.after(AGAIN, move |driver, ctx| driver.put_question(question, ctx));
                }
            }
        });
    }

    /// Waits for a master, for as long as it has left.
    fn wait_for_master(&mut self, question: Question, left: Duration, ctx: &mut Context<Self>) {
        if self.questions.len() >= WAITING_MAX {
            let reason = format!("{WAITING_MAX} calls wait for one already");
            return self.answered(question, Err(StateError::Unavailable { reason }), ctx);
        }
        self.questions.push_back(question);
        ctx.after(left, |driver, ctx| driver.put_questions(ctx));
    }

    /// There is a master now, or some have waited for too long: all that wait are looked at again.
    pub(super) fn put_questions(&mut self, ctx: &mut Context<Self>) {
        let now = ctx.clock().now();
        let has_master = matches!(
            self.phase,
            Phase::Subscribed { .. } | Phase::StandingBy { .. }
        );
        let waiting = std::mem::take(&mut self.questions);
        for question in waiting {
            if has_master || question.deadline <= now {
                self.put_question(question, ctx);
            } else {
                self.questions.push_back(question);
            }
        }
    }

    fn answered(&mut self, question: Question, outcome: StateOutcome, ctx: &mut Context<Self>) {
        match question.asker {
            Some(promise) => promise.answer(outcome),
            // By way of the mailbox: a scheduler that asks again at once must not call itself.
            None => ctx.notify(Answered(question.call, outcome)),
        }
    }
}

/// The scheduler is to be told what has become of its call.
#[derive(Message)]
#[rtype(result = "()")]
struct Answered(StateCall, StateOutcome);

impl<S: Scheduler> Handler<Answered> for Driver<S> {
    type Result = ();
    fn handle(&mut self, Answered(call, outcome): Answered, ctx: &mut Context<Self>) {
        self.call(ctx, |scheduler, verbs| {
            scheduler.state(verbs, &call, &outcome)
        });
    }
}
