//! The context an actor runs in: actix's own, plus who it is, where it lives and whom it watches.
//!
//! Implements actix's [`ActorContext`] and [`AsyncContext`], so everything written for actix works. It
//! takes turns: after [`TURN`] messages the actor lets its neighbours on the thread run.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use actix::dev::{AsyncContextParts, ContextParts};
use actix::fut::{ActorFuture, ActorFutureExt};
use actix::{Actor, ActorContext, ActorState, Addr, AsyncContext, Handler, SpawnHandle};

use crate::agenda::{self, Agenda, Attend, Errand};
use crate::beside::Way;
use crate::clock::Clock;
use crate::exit::Exited;
use crate::handle::{Handle, Incarnation, Seat};
use crate::identity::Pid;
use crate::link::Sender;
use crate::mailbox::Meter;
use crate::node::Node;
use crate::process::EarTable;
use crate::run::{Resume, Unfinished};
use crate::tally::Counts;

/// How many messages an actor handles before its neighbours get their turn.
const TURN: u32 = 128;
/// How many messages are heard ahead of the mailbox before one from it is.
const AHEAD_AT_ONCE: usize = 32;

/// What an actor can do and know while it runs.
pub struct Context<A: Actor<Context = Context<A>>> {
    parts: ContextParts<A>,
    node: Node,
    pid: Pid,
    seat: Arc<Seat<A>>,
    incarnation: Arc<Incarnation<A>>,
    pub(crate) meter: Arc<Meter>,
    pub(crate) counts: Counts,
    pub(crate) sender: Option<Arc<Sender>>,
    pub(crate) agenda: Agenda<A>,
    /// Messages left in this turn.
    turn: u32,
    /// Futures that the mailbox waits for.
    waits: usize,
    /// What must be handled before the mailbox, in order.
    unfinished: VecDeque<Box<dyn Unfinished<A>>>,
    /// Whether a future is there to come back to it.
    resuming: bool,
}

impl<A: Actor<Context = Context<A>>> Context<A> {
    pub(crate) fn new(
        parts: ContextParts<A>,
        node: Node,
        seat: Arc<Seat<A>>,
        incarnation: Arc<Incarnation<A>>,
    ) -> Self {
        let (pid, meter) = (incarnation.pid.clone(), incarnation.meter.clone());
        let counts = Counts::default();
        Self {
            parts,
            node,
            pid,
            seat,
            incarnation,
            meter,
            counts,
            sender: None,
            agenda: Agenda::default(),
            turn: TURN,
            waits: 0,
            unfinished: VecDeque::new(),
            resuming: false,
        }
    }

    /// This incarnation's pid.
    pub fn pid(&self) -> &Pid {
        &self.pid
    }

    /// The node it lives on.
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// The node's clock.
    pub fn clock(&self) -> &Clock {
        self.node.clock()
    }

    /// A handle to this actor, which survives its restarts.
    pub fn handle(&self) -> Handle<A> {
        Handle::new(self.seat.clone())
    }

    /// Who sent the message being handled, if it came from another node; `None` for local ones, and in
    /// timers and futures.
    pub fn sender(&self) -> Option<&Sender> {
        self.sender.as_deref()
    }

    /// Hear exactly one [`Exited`] when that actor ends, its node is lost, or at once if there is no such
    /// actor. Linking twice is linking once.
    pub fn link(&mut self, pid: &Pid)
    where
        A: Handler<Exited>,
    {
        let me = self.incarnation.clone();
        let notify = Box::new(move |exited| match me.meter.is_tapped() {
            false => me.tell_always(exited),
            true => me.show_exited(exited),
        });
        self.node.watch(pid, self.pid.incarnation(), notify);
    }

    /// Hear no more of that actor. An [`Exited`] already in the mailbox still comes.
    pub fn unlink(&mut self, pid: &Pid) {
        self.node.unwatch(pid, self.pid.incarnation());
    }

    /// Does this once, so much later, unless cancelled.
    pub fn after<F>(&mut self, delay: Duration, act: F) -> Errand
    where
        F: FnOnce(&mut A, &mut Self) + 'static,
    {
        let sleep = self.clock().sleep(delay);
        self.then(sleep, move |actor, (), ctx| act(actor, ctx))
    }

    /// As [`after`](Self::after), and as said by whoever has sent the message that is being handled now: [`sender`](Self::sender) names him again.
    pub fn after_as_sender<F>(&mut self, delay: Duration, act: F) -> Errand
    where
        F: FnOnce(&mut A, &mut Self) + 'static,
    {
        let sender = self.sender.clone();
        self.after(delay, move |actor, ctx| {
            let before = std::mem::replace(&mut ctx.sender, sender);
            act(actor, ctx);
            ctx.sender = before;
        })
    }

    /// Does this again and again, first after one period, until cancelled. Periods missed while the actor
    /// was busy are skipped. A period below a millisecond counts as a millisecond.
    pub fn every<F>(&mut self, period: Duration, act: F) -> Errand
    where
        F: FnMut(&mut A, &mut Self) + 'static,
    {
        let period = period.max(Duration::from_millis(1));
        let due = self.clock().now() + period;
        agenda::again(self, None, due, period, act)
    }

    /// Cancels what [`after`](Self::after), [`every`](Self::every) or [`then`](Self::then) began.
    pub fn cancel(&mut self, errand: Errand) {
        self.agenda.cancel(errand);
    }

    /// Whether that may still come back into the actor: it is neither done nor cancelled.
    pub fn is_coming(&self, errand: Errand) -> bool {
        self.agenda.is_wanted(errand)
    }

    /// Runs a future beside the mailbox, and comes back into the actor with its output.
    pub fn then<T, F>(&mut self, future: T, act: F) -> Errand
    where
        T: Future + 'static,
        F: FnOnce(&mut A, T::Output, &mut Self) + 'static,
    {
        let (errand, first) = self.agenda.begin(future, act);
        let was_crowded = self.agenda.crowded;
        self.agenda.count(&self.meter);
        if self.agenda.crowded && !was_crowded {
            tracing::warn!(pid = %self.pid, errands = self.agenda.limit, "hears nothing until an errand comes back");
        }
        if first {
            AsyncContext::spawn(self, Attend);
        }
        errand
    }

    #[inline]
    pub(crate) fn spend(&mut self) {
        self.turn = self.turn.saturating_sub(1);
    }

    pub(crate) fn begin_turn(&mut self) {
        self.turn = TURN;
    }

    /// Whether the turn ended with messages perhaps still waiting.
    pub(crate) fn turn_is_over(&self) -> bool {
        self.turn == 0
    }

    /// Whether it may handle another message now.
    pub(crate) fn may_hear(&self) -> bool {
        !AsyncContext::waiting(self)
    }

    #[inline]
    pub(crate) fn has_unfinished(&self) -> bool {
        !self.unfinished.is_empty()
    }

    /// Whether something must be handled before a message from the mailbox.
    #[inline]
    pub(crate) fn has_something_before(&self) -> bool {
        self.has_unfinished() || self.meter.has_ahead()
    }

    /// Keeps what is left of something for later, in front of the mailbox.
    #[cold]
    pub(crate) fn leave_unfinished(&mut self, rest: Box<dyn Unfinished<A>>) {
        self.unfinished.push_front(rest);
        self.resume_later();
    }

    fn resume_later(&mut self) {
        if !self.resuming {
            self.resuming = true;
            AsyncContext::spawn(self, Resume);
        }
    }

    /// Handles what comes before the mailbox, and then this.
    #[cold]
    pub(crate) fn handle_after(&mut self, actor: &mut A, next: Box<dyn Unfinished<A>>) {
        self.unfinished.push_back(next);
        self.go_on(actor);
        if self.has_unfinished() {
            self.resume_later();
        }
    }

    /// Goes on with what is unfinished, as far as the actor may hear.
    pub(crate) fn go_on(&mut self, actor: &mut A) {
        while self.may_hear() {
            if self.meter.has_ahead() {
                self.hear_ahead(actor);
                if !self.may_hear() {
                    return;
                }
            }
            let Some(mut next) = self.unfinished.pop_front() else {
                return;
            };
            if !next.go_on(actor, self) {
                self.unfinished.push_front(next);
            }
        }
    }

    /// Hears what waits ahead of the mailbox, but not so much that the mailbox never gets its turn.
    #[cold]
    pub(crate) fn hear_ahead(&mut self, actor: &mut A) {
        let sender = self.sender.take();
        let incarnation = self.incarnation.clone();
        if let Some(beside) = &incarnation.beside {
            for _ in 0..AHEAD_AT_ONCE {
                if !self.may_hear() {
                    break;
                }
                let Some(mut next) = beside.take(&self.meter, Way::Ahead) else {
                    break;
                };
                next.go_on(actor, self);
            }
        }
        self.sender = sender;
    }

    /// Hears everything that waits beside the mailbox, as far as the actor may hear.
    pub(crate) fn hear_beside(&mut self, actor: &mut A) {
        let incarnation = self.incarnation.clone();
        let Some(beside) = &incarnation.beside else {
            return;
        };
        while self.may_hear() {
            if self.meter.has_ahead() {
                self.hear_ahead(actor);
            } else {
                let Some(mut next) = beside.take(&self.meter, Way::Newest) else {
                    return;
                };
                next.go_on(actor, self);
            }
        }
    }

    pub(crate) fn has_resumed(&mut self) {
        self.resuming = false;
    }

    /// What this actor hears; `None` if its end is known already.
    pub(crate) fn ears(&self) -> Option<Arc<EarTable>> {
        let entry = self.node.registry().find_pid(&self.pid)?;
        Some(entry.ears.clone())
    }

    /// Whether it may go on with messages that came in one: it neither ends nor waits for a future.
    pub(crate) fn may_go_on(&self) -> bool {
        !self.parts.waiting() && !self.meter.is_stopping_now()
    }

    /// Whether the mailbox waits for a future.
    pub(crate) fn is_held_up(&self) -> bool {
        self.waits > 0
    }
}

impl<A: Actor<Context = Self>> ActorContext for Context<A> {
    fn stop(&mut self) {
        self.parts.stop();
    }

    fn terminate(&mut self) {
        self.parts.terminate();
    }

    fn state(&self) -> ActorState {
        self.parts.state()
    }
}

impl<A: Actor<Context = Self>> AsyncContext<A> for Context<A> {
    fn address(&self) -> Addr<A> {
        self.parts.address()
    }

    fn spawn<F>(&mut self, future: F) -> SpawnHandle
    where
        F: ActorFuture<A, Output = ()> + 'static,
    {
        self.parts.spawn(future)
    }

    fn wait<F>(&mut self, future: F)
    where
        F: ActorFuture<A, Output = ()> + 'static,
    {
        self.waits += 1;
        self.parts
            .wait(future.map(|(), _, ctx: &mut Self| ctx.waits -= 1));
    }

    #[inline]
    fn waiting(&self) -> bool {
        self.turn == 0
            || self.agenda.crowded
            || self.parts.waiting()
            || self.meter.is_stopping_now()
    }

    fn cancel_future(&mut self, handle: SpawnHandle) -> bool {
        self.parts.cancel_future(handle)
    }
}

impl<A: Actor<Context = Self>> AsyncContextParts<A> for Context<A> {
    fn parts(&mut self) -> &mut ContextParts<A> {
        &mut self.parts
    }
}

impl<A: Actor<Context = Self>> fmt::Debug for Context<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("pid", &self.pid)
            .finish_non_exhaustive()
    }
}
