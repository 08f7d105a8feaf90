//! The reliable sender: accepts messages at once, and delivers them or reports their failure to the
//! sender.
//!
//! Its handle may be used from any thread. Behind it an actor, `courier(n)`, sends envelopes to the
//! receiver, handles the answers and runs the timers; all its state is in [`SendWindow`], so it
//! survives a restart of the actor. It never connects: without a link to the receiver it retries at
//! growing intervals, until `retarget` announces one.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{self, Poll};
use std::time::Duration;

use actix::{Actor, Handler, Message};
use rand::Rng;
use rand::rngs::SmallRng;
use tokio::sync::{Notify, oneshot};

use super::send_window::{Ends, Envelope, Mark, Repeat, SendWindow};
use super::{Bounds, DeliveryError, EncodedMessage, NotAcknowledged, SequenceAck, Sequenced};
use crate::actor::ask::AskError;
use crate::actor::context::Context;
use crate::actor::handle::Handle;
use crate::actor::pending::TimerHandle;
use crate::actor::process::Process;
use crate::actor::supervise::Supervision;
use crate::clock::Instant;
use crate::identity::Pid;
use crate::lock;
use crate::node::{Node, SpawnError};
use crate::wire::message::Remote;

/// How long the receiver may take to handle an envelope before it is resent.
const ANSWER_PATIENCE: Duration = Duration::from_secs(5);
/// A panic of the reliable sender's actor is a bug, but must not lose its messages.
const RESTART_POLICY: Supervision = Supervision::Restart {
    backoff: Duration::from_millis(100),
    backoff_max: Duration::from_secs(10),
    limit: u32::MAX,
};

/// There may be work.
#[derive(Message)]
#[rtype(result = "()")]
struct Look;

/// The message's name for the log, and the sender of its receipt.
struct ReceiptSender {
    name: &'static str,
    receipt: oneshot::Sender<Result<(), DeliveryError>>,
}

/// The state shared by the handle and the actor.
struct SenderShared {
    node: Node,
    /// The actor that it sends for; `None` is itself.
    on_behalf_of: Option<Pid>,
    stream: u64,
    state: Mutex<SenderState>,
    /// Whether a `Look` is in the actor's mailbox.
    notified: AtomicBool,
    /// Wakes the waiters of `settled`.
    passed: Notify,
}

struct SenderState {
    window: SendWindow<ReceiptSender>,
    receiver: Option<Pid>,
    ended: bool,
}

impl SenderShared {
    /// Changes the state, and updates the node's counts.
    fn write<R>(&self, act: impl FnOnce(&mut SenderState) -> R) -> R {
        let mut state = lock(&self.state);
        let (messages, bytes) = (state.window.len(), state.window.bytes());
        let done = act(&mut state);
        let counts = &self.node.counts().delivery;
        counts.waiting.add(state.window.len());
        counts.waiting.take(messages);
        counts.waiting_bytes.add(state.window.bytes());
        counts.waiting_bytes.take(bytes);
        done
    }

    /// Resolves the receipts of these messages, and logs failures.
    fn tell(&self, ends: Ends<ReceiptSender>) {
        if !ends.is_empty() {
            self.passed.notify_waiters();
        }
        let counts = &self.node.counts().delivery;
        let mut failures: Vec<(&'static str, DeliveryError)> = Vec::new();
        for (claim, how) in ends {
            match &how {
                Ok(()) => counts.delivered.add(1),
                Err(error) => {
                    counts.failed.add(1);
                    failures.push((claim.name, error.clone()));
                }
            }
            let _ = claim.receipt.send(how); // The receipt may have been dropped.
        }
        if let Some((name, error)) = failures.first() {
            let count = failures.len();
            tracing::warn!(message = name, count, %error, "messages not delivered");
        }
    }
}

/// Delivers messages to one receiver at a time, in the order in which they were sent.
///
/// Clones are the same reliable sender. When the last is dropped it ends, and waiting messages fail
/// with [`DeliveryError::Ended`]: wait for [`settled`](Self::settled) first if that matters.
#[derive(Clone)]
pub struct ReliableSender(Arc<Owned>);

struct Owned {
    shared: Arc<SenderShared>,
    actor: Handle<SenderActor>,
}

impl Drop for Owned {
    fn drop(&mut self) {
        self.actor.stop();
    }
}

impl ReliableSender {
    fn begin(node: &Node, on_behalf_of: Option<Pid>, bounds: Bounds) -> Result<Self, SpawnError> {
        let shared = Arc::new(SenderShared {
            node: node.clone(),
            on_behalf_of,
            stream: node.next_correlation(),
            state: Mutex::new(SenderState {
                window: SendWindow::new(bounds),
                receiver: None,
                ended: false,
            }),
            notified: AtomicBool::new(false),
            passed: Notify::new(),
        });
        let name = node.registry().next_name("courier");
        let (for_actor, rng) = (shared.clone(), node.rng());
        let actor = node.supervise(&name, RESTART_POLICY, move || SenderActor {
            shared: for_actor.clone(),
            rng: rng.clone(),
            timer: None,
        })?;
        Ok(Self(Arc::new(Owned { shared, actor })))
    }

    /// Accepts a message, to be delivered after all earlier ones. The receipt resolves to the
    /// outcome; a failure is also logged. Fails at once, without accepting the message, when the
    /// bound is reached, when it cannot be encoded, or when the reliable sender has ended.
    pub fn send<M: Remote<Result = ()>>(&self, message: M) -> Result<Receipt, DeliveryError> {
        self.accept(message, Repeat::Always)
    }

    /// As [`send`](Self::send), but sends the message at most once, in order with all others. The
    /// receipt resolves to [`DeliveryError::Lost`] when a resend would have been necessary.
    pub fn send_once<M: Remote<Result = ()>>(&self, message: M) -> Result<Receipt, DeliveryError> {
        self.accept(message, Repeat::Never)
    }

    fn accept<M: Remote>(&self, message: M, repeat: Repeat) -> Result<Receipt, DeliveryError> {
        let shared = &*self.0.shared;
        let packed = EncodedMessage::new(&message).map_err(|garbled| DeliveryError::Refused {
            reason: format!("{} {}", M::NAME, garbled.reason),
        })?;
        let (resolve, receipt) = oneshot::channel();
        let claim = ReceiptSender {
            name: M::NAME,
            receipt: resolve,
        };
        let now = shared.node.clock().now();
        let accepted = shared.write(|state| match state.ended {
            true => Err(DeliveryError::Ended),
            false => state.window.accept(packed, repeat, claim, now),
        });
        let counts = &shared.node.counts().delivery;
        match accepted {
            Ok(()) => counts.accepted.add(1),
            Err(error) => {
                counts.full.add(1);
                tracing::warn!(message = M::NAME, %error, "message refused for delivery");
                return Err(error);
            }
        }
        if shared.node.is_tapped() {
            let receiver = lock(&shared.state).receiver.clone();
            shared
                .node
                .show_sequenced(shared.on_behalf_of.as_ref(), receiver.as_ref(), &message);
        }
        self.look();
        Ok(Receipt(receipt))
    }

    /// Sets the receiver, to which there is a link now: all unacknowledged messages are sent to it,
    /// in order and at once. Call it after each reconnect too, with the same pid if it is the same
    /// receiver.
    pub fn retarget(&self, receiver: &Pid) {
        self.0.shared.write(|state| {
            // A name without an incarnation may have another owner by now.
            let same = state.receiver.as_ref() == Some(receiver) && receiver.incarnation() != 0;
            state.receiver = Some(receiver.clone());
            state.window.retarget(!same);
        });
        self.look();
    }

    /// There is no receiver for now: messages are accepted and wait, within the bounds.
    pub fn pause(&self) {
        self.0.shared.write(|state| state.window.close());
    }

    /// The number of unacknowledged messages.
    pub fn waiting(&self) -> usize {
        lock(&self.0.shared.state).window.len()
    }

    /// Resolves when all messages accepted before this call are delivered or failed.
    pub fn settled(&self) -> impl Future<Output = ()> + Send + use<> {
        let shared = self.0.shared.clone();
        let mark = lock(&shared.state).window.mark();
        async move {
            loop {
                let passed = shared.passed.notified();
                if lock(&shared.state).window.passed(mark) {
                    return;
                }
                passed.await;
            }
        }
    }

    fn look(&self) {
        let notified = &self.0.shared.notified;
        if !notified.swap(true, Ordering::AcqRel) && self.0.actor.tell(Look).is_err() {
            // The actor is being restarted: the next incarnation looks by itself.
            notified.store(false, Ordering::Release);
        }
    }
}

impl std::fmt::Debug for ReliableSender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ReliableSender({} waiting)", self.waiting())
    }
}

impl Node {
    /// A reliable sender for callers that are no actors. Its receiver sees the reliable sender as
    /// the sender.
    pub fn reliable_sender(&self, bounds: Bounds) -> Result<ReliableSender, SpawnError> {
        ReliableSender::begin(self, None, bounds)
    }
}

impl<A: Actor<Context = Self>> Context<A> {
    /// A reliable sender of this actor: its receiver sees this actor as the sender. Keep it in the
    /// actor, so that it ends with it.
    pub fn reliable_sender(&self, bounds: Bounds) -> Result<ReliableSender, SpawnError> {
        ReliableSender::begin(self.node(), Some(self.pid().clone()), bounds)
    }
}

/// The outcome of one message: `Ok` once the receiver has handled it. Dropping it does not take the
/// message back.
#[derive(Debug)]
pub struct Receipt(oneshot::Receiver<Result<(), DeliveryError>>);

impl Future for Receipt {
    type Output = Result<(), DeliveryError>;

    fn poll(self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.get_mut().0)
            .poll(cx)
            .map(|notified| notified.unwrap_or(Err(DeliveryError::Ended)))
    }
}

/// The actor behind a reliable sender.
struct SenderActor {
    shared: Arc<SenderShared>,
    rng: SmallRng,
    timer: Option<(Instant, TimerHandle)>,
}

impl Actor for SenderActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        // Replies to an earlier incarnation of this actor are lost.
        self.shared.write(|state| {
            if state.receiver.is_some() {
                state.window.retarget(false);
            }
        });
        self.look(ctx);
    }

    fn stopped(&mut self, _: &mut Context<Self>) {
        let ends = self.shared.write(|state| {
            state.ended = true;
            state.window.end_all()
        });
        self.shared.tell(ends);
    }
}

impl Process for SenderActor {}

impl Handler<Look> for SenderActor {
    type Result = ();
    fn handle(&mut self, _: Look, ctx: &mut Context<Self>) {
        self.look(ctx);
    }
}

impl SenderActor {
    /// Gives up expired messages, sends envelopes as far as allowed, and sets the timer for the
    /// next event.
    fn look(&mut self, ctx: &mut Context<Self>) {
        self.shared.notified.store(false, Ordering::Release);
        let now = ctx.clock().now();
        let expired = self.shared.write(|state| state.window.expire(now));
        self.shared.tell(expired);
        loop {
            let next = self.shared.write(|state| {
                let receiver = state.receiver.clone()?;
                Some((receiver, state.window.envelope(now)?))
            });
            let Some((receiver, envelope)) = next else {
                break;
            };
            self.send(&receiver, envelope, ctx);
        }
        self.set_alarm(ctx);
    }

    fn send(&self, receiver: &Pid, envelope: Envelope, ctx: &mut Context<Self>) {
        let Envelope {
            floor,
            messages,
            mark,
            resent,
        } = envelope;
        self.shared.node.counts().delivery.resent.add(resent);
        let in_version = |message: EncodedMessage| message.to(receiver.node(), ctx.node());
        let messages = messages
            .into_iter()
            .map(|one| one.map(in_version))
            .collect();
        let on_behalf_of = self.shared.on_behalf_of.as_ref().unwrap_or(ctx.pid());
        let numbered = Sequenced {
            from: on_behalf_of.clone(),
            stream: self.shared.stream,
            floor,
            first: mark.first,
            messages,
        };
        let asking = ctx.node().ask(receiver, numbered, ANSWER_PATIENCE);
        ctx.then(asking, move |actor: &mut Self, answer, ctx| {
            actor.answered(mark, answer, ctx);
        });
    }

    fn answered(
        &mut self,
        mark: Mark,
        answer: Result<Result<SequenceAck, NotAcknowledged>, AskError>,
        ctx: &mut Context<Self>,
    ) {
        let (now, chance) = (ctx.clock().now(), self.rng.random());
        let ends = self.shared.write(|state| {
            let window = &mut state.window;
            match answer {
                Ok(Ok(taken)) => window.answered(mark, &taken, now, chance),
                Ok(Err(NotAcknowledged::Never { reason })) | Err(AskError::Refused { reason }) => {
                    window.refused(mark, &reason)
                }
                Ok(Err(NotAcknowledged::NotNow { .. }))
                | Err(
                    AskError::Gone
                    | AskError::Late { .. }
                    | AskError::Full
                    | AskError::Garbled { .. },
                ) => {
                    tracing::debug!(?answer, "resending envelope");
                    window.failed(mark, now, chance);
                    Vec::new()
                }
            }
        });
        self.shared.tell(ends);
        self.look(ctx);
    }

    fn set_alarm(&mut self, ctx: &mut Context<Self>) {
        let Some(wake) = lock(&self.shared.state).window.wake() else {
            return;
        };
        match self.timer {
            // A timer that fires early only looks once more.
            Some((set, _)) if set <= wake => return,
            Some((_, timer)) => ctx.cancel(timer),
            None => {}
        }
        let wait = wake - ctx.clock().now();
        let timer = ctx.after(wait, |actor: &mut Self, ctx| {
            actor.timer = None;
            actor.look(ctx);
        });
        self.timer = Some((wake, timer));
    }
}
