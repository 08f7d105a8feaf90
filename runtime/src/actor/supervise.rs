//! Supervision: the incarnations of an actor, through panics to its end.
//!
//! One task per actor: it makes the actor, runs it inside `catch_unwind` so that a panic anywhere
//! in it (handler, timer, future, response) is visible to others only as [`Exited`](crate::Exited),
//! and then applies the policy. A restarted actor has a new incarnation and an empty mailbox. After
//! a panic neither `stopping` nor `stopped` is called: the actor's state is only dropped.

use std::any::Any;
use std::cell::RefCell;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{self, Poll};
use std::time::Duration;

use actix::dev::channel::{AddressReceiver, channel};
use actix::dev::{ContextFut, ContextParts, Mailbox};
use actix::{Actor, ActorContext, AsyncContext};
use futures_util::future::{Either, select};

use crate::actor::context::Context;
use crate::actor::exit::Exit;
use crate::actor::handle::{ActorSlot, Handle, Incarnation, StopRequest};
use crate::actor::mailbox::Meter;
use crate::actor::mailbox::priority::{PollPriority, PriorityQueues};
use crate::actor::process::{HandlerTable, Process, RemoteHandlers};
use crate::actor::registry::{Collision, Entry, RestartingActor};
use crate::clock;
use crate::identity::Pid;
use crate::link::send_buffer;
use crate::node::{Node, SpawnError};
use crate::observe::watchdog::ThreadSlot;

/// The consequence of an actor's panic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Supervision {
    /// It is not restarted.
    Stop,
    /// It is restarted after a delay.
    Restart {
        /// The delay before the first restart; it doubles with each consecutive one.
        backoff: Duration,
        /// The maximum delay. An incarnation that lived longer than this counts as healthy, and the
        /// next panic as the first.
        backoff_max: Duration,
        /// Maximum number of consecutive restarts.
        limit: u32,
    },
    /// The process ends: for actors whose broken invariants must not be survived.
    EndProcess,
}

/// The policy's decision after one panic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Decision {
    Stop,
    RestartAfter(Duration),
    EndProcess,
}

impl Supervision {
    /// Decides on a panic after this many consecutive restarts.
    fn decide(self, in_a_row: u32) -> Decision {
        match self {
            Supervision::Stop => Decision::Stop,
            Supervision::EndProcess => Decision::EndProcess,
            Supervision::Restart { limit, .. } if in_a_row >= limit => Decision::Stop,
            Supervision::Restart {
                backoff,
                backoff_max,
                ..
            } => {
                let doubled = backoff.saturating_mul(2_u32.saturating_pow(in_a_row));
                Decision::RestartAfter(doubled.min(backoff_max))
            }
        }
    }

    fn is_healthy(self, lived: Duration) -> bool {
        matches!(self, Supervision::Restart { backoff_max, .. } if lived > backoff_max)
    }
}

/// Makes the next incarnation's actor; `None` if it can be made only once and has been.
pub(crate) type Maker<A> = Box<dyn FnMut() -> Option<A> + Send>;

/// An incarnation that is registered and accepts messages, but has not started.
struct NewIncarnation<A: Actor> {
    incarnation: Arc<Incarnation<A>>,
    receiver: AddressReceiver<A>,
}

impl<A: Process> NewIncarnation<A> {
    /// The first incarnation, or the next one, which continues the counts of the last.
    fn prepare(node: &Node, name: &str, handlers: &HandlerTable, last: Option<&Meter>) -> Self {
        let (address, receiver) = channel(0);
        let pid = Pid::new(name, node.id().clone(), node.registry().next_incarnation());
        let mut meter = Meter::new(A::MAILBOX, A::MAILBOX_BYTES, node.clock());
        if let Some(last) = last {
            meter.carry_over_from(last);
        }
        let meter = Arc::new(meter);
        let priority = PriorityQueues::of(handlers);
        Self {
            incarnation: Arc::new(Incarnation::new(
                pid,
                meter,
                node.downgrade(),
                priority,
                address,
            )),
            receiver,
        }
    }

    /// Call it after the registration: setting a tap marks all registered actors.
    fn mark_if_tapped(&self, node: &Node) {
        if node.is_tapped() {
            self.incarnation.meter.set_tapped(true);
        }
    }

    fn entry(
        &self,
        handlers: &Arc<HandlerTable>,
        halt: &Arc<StopRequest>,
        thread: &Arc<str>,
        restarts: u32,
    ) -> Arc<Entry> {
        Arc::new(Entry {
            thread: thread.clone(),
            pid: self.incarnation.pid.clone(),
            meter: self.incarnation.meter.clone(),
            handlers: handlers.clone(),
            halt: halt.clone(),
            body: self.incarnation.clone(),
            restarts,
        })
    }
}

/// Registers the actor and starts it on the thread of its name.
pub(crate) fn start<A: Process>(
    node: &Node,
    name: &str,
    policy: Supervision,
    make: Maker<A>,
) -> Result<Handle<A>, SpawnError> {
    let arbiter = node.arbiter(name)?;
    let handlers = RemoteHandlers::<A>::table();
    node.registry()
        .register_messages(&handlers)
        .map_err(|Collision { id, one, other }| SpawnError::MessageIdTaken { id, one, other })?;
    let next = NewIncarnation::prepare(node, name, &handlers, None);
    let slot = Arc::new(ActorSlot::new(node, next.incarnation.clone()));
    let thread = arbiter.name().clone();
    let entry = next.entry(&handlers, &slot.halt, &thread, 0);
    if !node.registry().enter(entry) {
        return Err(SpawnError::NameTaken {
            name: name.to_owned(),
        });
    }
    next.mark_if_tapped(node);
    let handle = Handle::new(slot.clone());
    let actor = Supervisor {
        node: node.clone(),
        slot,
        handlers,
        thread,
        policy,
        make,
    };
    let pid = next.incarnation.pid.clone();
    let started = arbiter.run(Box::new(move || {
        drop(tokio::task::spawn_local(actor.run(next)))
    }));
    if let Err(error) = started {
        node.registry().leave(&pid, None);
        return Err(error.of(name));
    }
    Ok(handle)
}

struct Supervisor<A: Process> {
    node: Node,
    slot: Arc<ActorSlot<A>>,
    handlers: Arc<HandlerTable>,
    thread: Arc<str>,
    policy: Supervision,
    make: Maker<A>,
}

impl<A: Process> Supervisor<A> {
    async fn run(mut self, mut next: NewIncarnation<A>) {
        let (mut restarts, mut in_a_row) = (0_u32, 0_u32);
        let name: Arc<str> = next.incarnation.pid.name().into();
        loop {
            let born = self.node.clock().now();
            let mut life = IncarnationGuard::new(&self.node, &next.incarnation);
            let reason = self.live(next).await;
            if self.policy.is_healthy(self.node.clock().now() - born) {
                in_a_row = 0;
            }
            let decision = match &reason {
                Exit::Panicked(_) if !self.slot.halt.is_requested() => self.policy.decide(in_a_row),
                _ => Decision::Stop,
            };
            let restarting =
                matches!(decision, Decision::RestartAfter(_)) && !self.node.is_shutting_down();
            log_end(&life.pid, &reason, decision);
            if let Exit::Panicked(words) = &reason {
                self.node.show_panic(&life.pid, words);
            }
            if decision == Decision::EndProcess {
                self.node.end_process(&format!("{} {reason}", life.pid));
            }
            life.reason = Some(reason);
            let (Decision::RestartAfter(pause), true) = (decision, restarting) else {
                return;
            };
            let last = life.incarnation.meter.clone();
            life.kept = Some(Arc::new(RestartingActor {
                pid: life.pid.clone(),
                meter: last.clone(),
                thread: self.thread.clone(),
                halt: self.slot.halt.clone(),
                restarts,
                until: self.node.clock().now() + pause,
            }));
            drop(life);
            let halted = std::pin::pin!(self.slot.halt.requested());
            if let Either::Right(_) = select(self.node.clock().sleep(pause), halted).await {
                self.node.registry().forget(&name);
                return;
            }
            restarts += 1;
            in_a_row += 1;
            next = NewIncarnation::prepare(&self.node, &name, &self.handlers, Some(&last));
            self.slot.take(next.incarnation.clone());
            let entry = next.entry(&self.handlers, &self.slot.halt, &self.thread, restarts);
            self.node.registry().reenter(entry);
            // A stop request after the delay went to the previous incarnation.
            if self.slot.halt.is_requested() {
                next.incarnation.meter.drain();
            }
            next.mark_if_tapped(&self.node);
        }
    }

    /// One incarnation, from making the actor to dropping it.
    async fn live(&mut self, next: NewIncarnation<A>) -> Exit {
        let made = catch_unwind(AssertUnwindSafe(|| (self.make)()));
        let actor = match made {
            Ok(Some(actor)) => actor,
            Ok(None) => return Exit::Stopped,
            Err(panic) => return Exit::Panicked(panic_message(panic)),
        };
        let incarnation = next.incarnation;
        let mailbox = Mailbox::new(next.receiver);
        let parts = ContextParts::new(mailbox.sender_producer());
        let mut ctx = Context::new(
            parts,
            self.node.clone(),
            self.slot.clone(),
            incarnation.clone(),
        );
        ctx.pending.limit = A::PENDING_MAX as usize;
        if incarnation.priority.is_some() {
            ctx.spawn(PollPriority);
        }
        let watched_as = self.node.0.watched_as;
        let running = Running {
            life: Some(ContextFut::new(ctx, actor, mailbox)),
            pid: Arc::new(incarnation.pid.clone()),
            meter: incarnation.meter.clone(),
            thread_slot: (watched_as > 0).then(ThreadSlot::here),
            watched_as,
            stop_asked: false,
            stop_now_asked: false,
        };
        running.await
    }
}

fn log_end(pid: &Pid, reason: &Exit, decision: Decision) {
    match reason {
        Exit::Panicked(words) => tracing::error!(%pid, words, ?decision, "actor panicked"),
        _ => tracing::debug!(%pid, %reason, "actor ended"),
    }
}

/// Publishes the end of one incarnation when dropped, so that it happens even if the whole thread
/// ends.
struct IncarnationGuard<A: Process> {
    node: Node,
    pid: Pid,
    incarnation: Arc<Incarnation<A>>,
    reason: Option<Exit>,
    /// Set if the name is kept for the next incarnation.
    kept: Option<Arc<RestartingActor>>,
}

impl<A: Process> IncarnationGuard<A> {
    fn new(node: &Node, incarnation: &Arc<Incarnation<A>>) -> Self {
        Self {
            node: node.clone(),
            pid: incarnation.pid.clone(),
            incarnation: incarnation.clone(),
            reason: None,
            kept: None,
        }
    }
}

impl<A: Process> Drop for IncarnationGuard<A> {
    fn drop(&mut self) {
        let meter = &self.incarnation.meter;
        meter.close();
        if let Some(priority) = &self.incarnation.priority {
            priority.close(meter);
        }
        self.node.registry().leave(&self.pid, self.kept.take());
        self.node
            .publish_end(&self.pid, &self.reason.take().unwrap_or(Exit::Stopped));
    }
}

thread_local! {
    static CURRENT: RefCell<Option<Arc<Pid>>> = const { RefCell::new(None) };
}

/// The actor that runs on this thread right now.
pub(crate) fn with_current<T>(look: impl FnOnce(Option<&Pid>) -> T) -> T {
    CURRENT.with_borrow(|current| look(current.as_deref()))
}

/// Runs `act` in the name of the actor, while it lives.
pub(crate) fn as_current<T>(pid: &Arc<Pid>, meter: &Meter, act: impl FnOnce() -> T) -> T {
    let before = CURRENT.replace((!meter.is_closed()).then(|| pid.clone()));
    let done = act();
    CURRENT.replace(before);
    done
}

/// Polls one incarnation; resolves to its exit.
struct Running<A: Process> {
    life: Option<ContextFut<A, Context<A>>>,
    pid: Arc<Pid>,
    meter: Arc<Meter>,
    /// The thread's slot for the watchdog, and the node's number there.
    thread_slot: Option<Arc<ThreadSlot>>,
    watched_as: u64,
    /// Whether a stop after the queue, and a stop at once, were started.
    stop_asked: bool,
    stop_now_asked: bool,
}

impl<A: Process> Unpin for Running<A> {}

impl<A: Process> Drop for Running<A> {
    /// The whole thread ends: waiting messages are not handled any more.
    fn drop(&mut self) {
        if let Some(life) = &mut self.life {
            life.ctx().terminate();
        }
    }
}

impl<A: Process> Future for Running<A> {
    type Output = Exit;

    fn poll(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<Exit> {
        clock::moved();
        self.meter.task.register(cx.waker());
        if self.meter.has_crashed() {
            return Poll::Ready(self.finish_crashed());
        }
        let before = CURRENT.replace(Some(self.pid.clone()));
        if let Some(thread_slot) = &self.thread_slot {
            thread_slot.enter(self.watched_as, self.pid.incarnation());
        }
        let turn = catch_unwind(AssertUnwindSafe(|| self.turn(cx)));
        let turn = match turn {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(())) => Poll::Ready(self.finish(None)),
            Err(panic) => Poll::Ready(self.finish(Some(panic_message(panic)))),
        };
        send_buffer::flush();
        self.meter.end_turn();
        if let Some(thread_slot) = &self.thread_slot {
            thread_slot.leave();
        }
        CURRENT.replace(before);
        turn
    }
}

impl<A: Process> Running<A> {
    fn turn(&mut self, cx: &mut task::Context<'_>) -> Poll<()> {
        let Some(life) = self.life.as_mut() else {
            return Poll::Ready(());
        };
        life.ctx().begin_turn();
        loop {
            if Pin::new(&mut *life).poll(cx).is_ready() {
                return Poll::Ready(());
            }
            if self.meter.is_stopping_now() {
                // Not by actix's `terminate`, which called from outside would start it once more.
                if std::mem::replace(&mut self.stop_now_asked, true) {
                    return Poll::Ready(()); // It refused, and is dropped all the same.
                }
                life.ctx().stop();
                continue;
            }
            if life.ctx().turn_is_over() {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            let drained =
                self.meter.is_draining() && self.meter.depth() == 0 && !life.ctx().is_held_up();
            if !drained || self.stop_asked {
                return Poll::Pending;
            }
            self.stop_asked = true;
            life.ctx().stop();
        }
    }

    /// Code of the actor that ran outside its task has panicked.
    fn finish_crashed(&mut self) -> Exit {
        let incarnation = self.pid.incarnation();
        let life = self.life.as_mut();
        let words = life.and_then(|life| life.ctx().node().registry().crash_message(incarnation));
        self.finish(Some(words.unwrap_or_default()))
    }

    /// Drops the actor; a panic in its drop is a panic of the actor.
    fn finish(&mut self, panicked: Option<String>) -> Exit {
        let mut life = self.life.take();
        let dropped = catch_unwind(AssertUnwindSafe(|| {
            if let Some(life) = &mut life {
                life.ctx().terminate();
            }
            drop(life.take());
        }));
        match (panicked, dropped) {
            (Some(words), _) => Exit::Panicked(words),
            (None, Err(panic)) => Exit::Panicked(panic_message(panic)),
            (None, Ok(())) => Exit::Stopped,
        }
    }
}

/// The message of a panic.
pub(crate) fn panic_message(panic: Box<dyn Any + Send>) -> String {
    match panic.downcast::<String>() {
        Ok(words) => *words,
        Err(panic) => panic
            .downcast_ref::<&str>()
            .map_or("no words", |words| *words)
            .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restart_delay_doubles_up_to_the_limit() {
        let second = Duration::from_secs(1);
        let policy = Supervision::Restart {
            backoff: second,
            backoff_max: 5 * second,
            limit: 4,
        };
        let verdicts: Vec<_> = (0..5).map(|in_a_row| policy.decide(in_a_row)).collect();
        let pauses = [1, 2, 4, 5].map(|seconds| Decision::RestartAfter(seconds * second));
        assert_eq!(verdicts[..4], pauses);
        assert_eq!(verdicts[4], Decision::Stop);
    }

    #[test]
    fn pauses_never_overflow() {
        let policy = Supervision::Restart {
            backoff: Duration::MAX,
            backoff_max: Duration::MAX,
            limit: u32::MAX,
        };
        assert_eq!(
            policy.decide(u32::MAX - 1),
            Decision::RestartAfter(Duration::MAX)
        );
    }
}
