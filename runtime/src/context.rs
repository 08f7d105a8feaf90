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
use crate::clock::Clock;
use crate::exit::Exited;
use crate::handle::{Handle, Incarnation, Seat};
use crate::identity::Pid;
use crate::link::Sender;
use crate::mailbox::{Counts, Meter};
use crate::node::Node;
use crate::run::{Resume, Unfinished};

/// How many messages an actor handles before its neighbours get their turn.
const TURN: u32 = 128;

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

    /// Runs a future beside the mailbox, and comes back into the actor with its output.
    pub fn then<T, F>(&mut self, future: T, act: F) -> Errand
    where
        T: Future + 'static,
        F: FnOnce(&mut A, T::Output, &mut Self) + 'static,
    {
        let (errand, first) = self.agenda.begin(future, act);
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

    /// Keeps what is left of something for later, in front of the mailbox.
    #[cold]
    pub(crate) fn leave_unfinished(&mut self, rest: Box<dyn Unfinished<A>>) {
        self.unfinished.push_front(rest);
        if !self.resuming {
            self.resuming = true;
            AsyncContext::spawn(self, Resume);
        }
    }

    /// Handles what is unfinished, and then this.
    #[cold]
    pub(crate) fn handle_after_unfinished(&mut self, actor: &mut A, next: Box<dyn Unfinished<A>>) {
        self.unfinished.push_back(next);
        self.go_on(actor);
    }

    /// Goes on with what is unfinished, as far as the actor may hear.
    pub(crate) fn go_on(&mut self, actor: &mut A) {
        while self.may_hear() {
            let Some(mut next) = self.unfinished.pop_front() else {
                return;
            };
            if !next.go_on(actor, self) {
                self.unfinished.push_front(next);
            }
        }
    }

    pub(crate) fn has_resumed(&mut self) {
        self.resuming = false;
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
        self.turn == 0 || self.parts.waiting() || self.meter.is_stopping_now()
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
