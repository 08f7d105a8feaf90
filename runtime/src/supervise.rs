//! Supervision: an actor's lives, from birth through panics to its end.
//!
//! One task per actor: it makes the actor, runs it inside `catch_unwind` so that a panic anywhere in it
//! (handler, timer, future, response) is felt by others only as [`Exited`](crate::Exited), and then does what the
//! policy says. A new life has a new incarnation and an empty mailbox. After a panic neither `stopping`
//! nor `stopped` is called: what the actor holds is only dropped.

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

use crate::beside::{Attendant, Beside};
use crate::clock;
use crate::context::Context;
use crate::desk;
use crate::exit::Exit;
use crate::handle::{Halt, Handle, Incarnation, Seat};
use crate::identity::Pid;
use crate::mailbox::Meter;
use crate::node::{Node, SpawnError};
use crate::process::{EarTable, Ears, Process};
use crate::registry::{Collision, Entry, Resting};
use crate::watchdog::Post;

/// What happens when an actor panics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Supervision {
    /// It is gone.
    Stop,
    /// It is made anew after a pause.
    Restart {
        /// The pause before the first restart; it doubles with each that follows at once.
        backoff: Duration,
        /// The longest pause. A life longer than this counts as healthy, and the next panic as the first.
        backoff_max: Duration,
        /// Restarts in a row after which it is given up.
        limit: u32,
    },
    /// The process ends: for actors whose broken invariants must not be survived.
    EndProcess,
}

/// What the policy says after one panic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Stop,
    RestartAfter(Duration),
    EndProcess,
}

impl Supervision {
    /// Judges a panic that was preceded by this many restarts in a row.
    fn judge(self, in_a_row: u32) -> Verdict {
        match self {
            Supervision::Stop => Verdict::Stop,
            Supervision::EndProcess => Verdict::EndProcess,
            Supervision::Restart { limit, .. } if in_a_row >= limit => Verdict::Stop,
            Supervision::Restart {
                backoff,
                backoff_max,
                ..
            } => {
                let doubled = backoff.saturating_mul(2_u32.saturating_pow(in_a_row));
                Verdict::RestartAfter(doubled.min(backoff_max))
            }
        }
    }

    fn is_healthy(self, lived: Duration) -> bool {
        matches!(self, Supervision::Restart { backoff_max, .. } if lived > backoff_max)
    }
}

/// Makes the next life; `None` if there is only one and it is over.
pub(crate) type Maker<A> = Box<dyn FnMut() -> Option<A> + Send>;

/// A life that is registered and can be sent to, but has not begun.
struct Birth<A: Actor> {
    incarnation: Arc<Incarnation<A>>,
    receiver: AddressReceiver<A>,
}

impl<A: Process> Birth<A> {
    /// The first life, or the next one, whose counts go on where those of the last one ended.
    fn prepare(node: &Node, name: &str, ears: &EarTable, last: Option<&Meter>) -> Self {
        let (address, receiver) = channel(0);
        let pid = Pid::new(name, node.id().clone(), node.registry().next_incarnation());
        let mut meter = Meter::new(A::MAILBOX, A::MAILBOX_BYTES, node.clock());
        if let Some(last) = last {
            meter.go_on_from(last);
        }
        let meter = Arc::new(meter);
        let beside = Beside::of(ears);
        Self {
            incarnation: Arc::new(Incarnation::new(
                pid,
                meter,
                node.downgrade(),
                beside,
                address,
            )),
            receiver,
        }
    }

    /// To be done once it is registered: who sets a tap marks whom it finds there.
    fn mark_if_tapped(&self, node: &Node) {
        if node.is_tapped() {
            self.incarnation.meter.set_tapped(true);
        }
    }

    fn entry(
        &self,
        ears: &Arc<EarTable>,
        halt: &Arc<Halt>,
        thread: &Arc<str>,
        restarts: u32,
    ) -> Arc<Entry> {
        Arc::new(Entry {
            thread: thread.clone(),
            pid: self.incarnation.pid.clone(),
            meter: self.incarnation.meter.clone(),
            ears: ears.clone(),
            halt: halt.clone(),
            body: self.incarnation.clone(),
            restarts,
        })
    }
}

/// Registers the actor and starts it on the thread its name belongs to.
pub(crate) fn begin<A: Process>(
    node: &Node,
    name: &str,
    policy: Supervision,
    make: Maker<A>,
) -> Result<Handle<A>, SpawnError> {
    let arbiter = node.arbiter(name)?;
    let ears = Ears::<A>::table(node.speaks_previous());
    node.registry()
        .learn(&ears)
        .map_err(|Collision { id, one, other }| SpawnError::MessageIdTaken { id, one, other })?;
    let birth = Birth::prepare(node, name, &ears, None);
    let seat = Arc::new(Seat::new(node, birth.incarnation.clone()));
    let thread = arbiter.name().clone();
    let entry = birth.entry(&ears, &seat.halt, &thread, 0);
    if !node.registry().enter(entry) {
        return Err(SpawnError::NameTaken {
            name: name.to_owned(),
        });
    }
    birth.mark_if_tapped(node);
    let handle = Handle::new(seat.clone());
    let actor = Lives {
        node: node.clone(),
        seat,
        ears,
        thread,
        policy,
        make,
    };
    let pid = birth.incarnation.pid.clone();
    let started = arbiter.run(Box::new(move || {
        drop(tokio::task::spawn_local(actor.run(birth)))
    }));
    if let Err(unrun) = started {
        node.registry().leave(&pid, None);
        return Err(unrun.of(name));
    }
    Ok(handle)
}

struct Lives<A: Process> {
    node: Node,
    seat: Arc<Seat<A>>,
    ears: Arc<EarTable>,
    thread: Arc<str>,
    policy: Supervision,
    make: Maker<A>,
}

impl<A: Process> Lives<A> {
    async fn run(mut self, mut birth: Birth<A>) {
        let (mut restarts, mut in_a_row) = (0_u32, 0_u32);
        let name: Arc<str> = birth.incarnation.pid.name().into();
        loop {
            let born = self.node.clock().now();
            let mut life = Life::new(&self.node, &birth.incarnation);
            let reason = self.live(birth).await;
            if self.policy.is_healthy(self.node.clock().now() - born) {
                in_a_row = 0;
            }
            let verdict = match &reason {
                Exit::Panicked(_) if !self.seat.halt.is_wished() => self.policy.judge(in_a_row),
                _ => Verdict::Stop,
            };
            let restarting =
                matches!(verdict, Verdict::RestartAfter(_)) && !self.node.is_shutting_down();
            log_end(&life.pid, &reason, verdict);
            if let Exit::Panicked(words) = &reason {
                self.node.show_fall(&life.pid, words);
            }
            if verdict == Verdict::EndProcess {
                self.node.end_process(&format!("{} {reason}", life.pid));
            }
            life.reason = Some(reason);
            let (Verdict::RestartAfter(pause), true) = (verdict, restarting) else {
                return;
            };
            let last = life.incarnation.meter.clone();
            life.kept = Some(Arc::new(Resting {
                pid: life.pid.clone(),
                meter: last.clone(),
                thread: self.thread.clone(),
                halt: self.seat.halt.clone(),
                restarts,
                until: self.node.clock().now() + pause,
            }));
            drop(life);
            let halted = std::pin::pin!(self.seat.halt.wished());
            if let Either::Right(_) = select(self.node.clock().sleep(pause), halted).await {
                self.node.registry().forget(&name);
                return;
            }
            restarts += 1;
            in_a_row += 1;
            birth = Birth::prepare(&self.node, &name, &self.ears, Some(&last));
            self.seat.take(birth.incarnation.clone());
            let entry = birth.entry(&self.ears, &self.seat.halt, &self.thread, restarts);
            self.node.registry().reenter(entry);
            // Whoever stopped it since the pause was over has stopped the life before.
            if self.seat.halt.is_wished() {
                birth.incarnation.meter.drain();
            }
            birth.mark_if_tapped(&self.node);
        }
    }

    /// One life, from making the actor to dropping it.
    async fn live(&mut self, birth: Birth<A>) -> Exit {
        let made = catch_unwind(AssertUnwindSafe(|| (self.make)()));
        let actor = match made {
            Ok(Some(actor)) => actor,
            Ok(None) => return Exit::Stopped,
            Err(panic) => return Exit::Panicked(words_of(panic)),
        };
        let incarnation = birth.incarnation;
        let mailbox = Mailbox::new(birth.receiver);
        let parts = ContextParts::new(mailbox.sender_producer());
        let mut ctx = Context::new(
            parts,
            self.node.clone(),
            self.seat.clone(),
            incarnation.clone(),
        );
        ctx.agenda.limit = A::ERRANDS as usize;
        if incarnation.beside.is_some() {
            ctx.spawn(Attendant);
        }
        let watched_as = self.node.0.watched_as;
        let running = Running {
            life: Some(ContextFut::new(ctx, actor, mailbox)),
            pid: Arc::new(incarnation.pid.clone()),
            meter: incarnation.meter.clone(),
            post: (watched_as > 0).then(Post::here),
            watched_as,
            stop_asked: false,
            stop_now_asked: false,
        };
        running.await
    }
}

fn log_end(pid: &Pid, reason: &Exit, verdict: Verdict) {
    match reason {
        Exit::Panicked(words) => tracing::error!(%pid, words, ?verdict, "actor panicked"),
        _ => tracing::debug!(%pid, %reason, "actor ended"),
    }
}

/// Tells of the end of one incarnation when dropped, so that it is told even if the whole thread goes.
struct Life<A: Process> {
    node: Node,
    pid: Pid,
    incarnation: Arc<Incarnation<A>>,
    reason: Option<Exit>,
    /// The name is kept for the next incarnation.
    kept: Option<Arc<Resting>>,
}

impl<A: Process> Life<A> {
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

impl<A: Process> Drop for Life<A> {
    fn drop(&mut self) {
        let meter = &self.incarnation.meter;
        meter.close();
        if let Some(beside) = &self.incarnation.beside {
            beside.close(meter);
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

/// Does this as if the actor did it, while it lives.
pub(crate) fn as_current<T>(pid: &Arc<Pid>, meter: &Meter, act: impl FnOnce() -> T) -> T {
    let before = CURRENT.replace((!meter.is_closed()).then(|| pid.clone()));
    let done = act();
    CURRENT.replace(before);
    done
}

/// Polls one life, and ends with how it ended.
struct Running<A: Process> {
    life: Option<ContextFut<A, Context<A>>>,
    pid: Arc<Pid>,
    meter: Arc<Meter>,
    /// Where the watchdog looks, and the node's number there.
    post: Option<Arc<Post>>,
    watched_as: u64,
    /// Stopping after the queue was begun, and stopping at once was.
    stop_asked: bool,
    stop_now_asked: bool,
}

impl<A: Process> Unpin for Running<A> {}

impl<A: Process> Drop for Running<A> {
    /// The whole thread goes: whatever still waits is not handled on the way.
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
        if self.meter.has_fallen() {
            return Poll::Ready(self.finish_fallen());
        }
        let before = CURRENT.replace(Some(self.pid.clone()));
        if let Some(post) = &self.post {
            post.enter(self.watched_as, self.pid.incarnation());
        }
        let turn = catch_unwind(AssertUnwindSafe(|| self.turn(cx)));
        let turn = match turn {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(())) => Poll::Ready(self.finish(None)),
            Err(panic) => Poll::Ready(self.finish(Some(words_of(panic)))),
        };
        desk::hand_in();
        self.meter.end_turn();
        if let Some(post) = &self.post {
            post.leave();
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
                // Not by actix's `terminate`, which from outside would have it started once more.
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

    /// Something of the actor's that ran outside its task has panicked.
    fn finish_fallen(&mut self) -> Exit {
        let incarnation = self.pid.incarnation();
        let life = self.life.as_mut();
        let words = life.and_then(|life| life.ctx().node().registry().words_of_fall(incarnation));
        self.finish(Some(words.unwrap_or_default()))
    }

    /// Drops the actor; a panic while dropping it is a panic of it.
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
            (None, Err(panic)) => Exit::Panicked(words_of(panic)),
            (None, Ok(())) => Exit::Stopped,
        }
    }
}

/// The words of a panic.
pub(crate) fn words_of(panic: Box<dyn Any + Send>) -> String {
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
    fn pauses_double_up_to_the_longest_and_end_at_the_limit() {
        let second = Duration::from_secs(1);
        let policy = Supervision::Restart {
            backoff: second,
            backoff_max: 5 * second,
            limit: 4,
        };
        let verdicts: Vec<_> = (0..5).map(|in_a_row| policy.judge(in_a_row)).collect();
        let pauses = [1, 2, 4, 5].map(|seconds| Verdict::RestartAfter(seconds * second));
        assert_eq!(verdicts[..4], pauses);
        assert_eq!(verdicts[4], Verdict::Stop);
    }

    #[test]
    fn pauses_never_overflow() {
        let policy = Supervision::Restart {
            backoff: Duration::MAX,
            backoff_max: Duration::MAX,
            limit: u32::MAX,
        };
        assert_eq!(
            policy.judge(u32::MAX - 1),
            Verdict::RestartAfter(Duration::MAX)
        );
    }
}
