//! The courier: takes messages at once and sees to it that they are delivered, or that their sender hears that they were not.
//!
//! Its handle may be used from any thread. Behind it an actor, `courier(n)`, asks the receiver to take envelopes, hears the answers
//! and keeps the times; all it knows is in the ledger ([`Outgoing`]), so that it may fall and be made anew. It never
//! connects to anybody: while there is no link to the receiver it tries again ever less often, until told that there is.

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

use super::outgoing::{Ends, Envelope, Mark, Outgoing, Repeat};
use super::{Bounds, DeliveryError, NotTaken, Numbered, Packed, Taken};
use crate::agenda::Errand;
use crate::ask::AskError;
use crate::clock::Instant;
use crate::context::Context;
use crate::handle::Handle;
use crate::identity::Pid;
use crate::lock;
use crate::message::Remote;
use crate::node::{Node, SpawnError};
use crate::process::Process;
use crate::supervise::Supervision;

/// How long the receiver may take to handle an envelope before it is sent again.
const ANSWER_PATIENCE: Duration = Duration::from_secs(5);
/// A courier's actor that falls has a bug, but its messages shall not pay for it.
const RAISED: Supervision = Supervision::Restart {
    backoff: Duration::from_millis(100),
    backoff_max: Duration::from_secs(10),
    limit: u32::MAX,
};

/// There may be something to do.
#[derive(Message)]
#[rtype(result = "()")]
struct Look;

/// Whoever wants to know how a message ends, and what it is called in the log.
struct Claim {
    name: &'static str,
    told: oneshot::Sender<Result<(), DeliveryError>>,
}

/// What the handle and the actor share.
struct Desk {
    node: Node,
    /// For whom it speaks; `None` is itself.
    speaker: Option<Pid>,
    stream: u64,
    book: Mutex<Book>,
    /// Whether the actor has been told to look and has not yet.
    told: AtomicBool,
    /// Somebody waits for what is over.
    passed: Notify,
}

struct Book {
    ledger: Outgoing<Claim>,
    receiver: Option<Pid>,
    ended: bool,
}

impl Desk {
    /// Does something with the book, and keeps the node's counts right.
    fn write<R>(&self, act: impl FnOnce(&mut Book) -> R) -> R {
        let mut book = lock(&self.book);
        let (messages, bytes) = (book.ledger.len(), book.ledger.bytes());
        let done = act(&mut book);
        let counts = &self.node.counts().delivery;
        counts.waiting.add(book.ledger.len());
        counts.waiting.take(messages);
        counts.waiting_bytes.add(book.ledger.bytes());
        counts.waiting_bytes.take(bytes);
        done
    }

    /// Tells everybody concerned, and the log, how these messages ended.
    fn tell(&self, ends: Ends<Claim>) {
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
            let _ = claim.told.send(how); // Not everybody wants to know.
        }
        if let Some((name, error)) = failures.first() {
            let count = failures.len();
            tracing::warn!(message = name, count, %error, "messages are not delivered");
        }
    }
}

/// Has messages delivered to one receiver at a time, in the order in which they were given (S132).
///
/// Clones are the same courier. When the last is dropped it ends, and what still waits fails with
/// [`DeliveryError::Ended`]: wait for [`settled`](Self::settled) first if that matters.
#[derive(Clone)]
pub struct Courier(Arc<Owned>);

struct Owned {
    desk: Arc<Desk>,
    actor: Handle<Carrier>,
}

impl Drop for Owned {
    fn drop(&mut self) {
        self.actor.stop();
    }
}

impl Courier {
    fn begin(node: &Node, speaker: Option<Pid>, bounds: Bounds) -> Result<Self, SpawnError> {
        let desk = Arc::new(Desk {
            node: node.clone(),
            speaker,
            stream: node.next_correlation(),
            book: Mutex::new(Book {
                ledger: Outgoing::new(bounds),
                receiver: None,
                ended: false,
            }),
            told: AtomicBool::new(false),
            passed: Notify::new(),
        });
        let name = node.registry().next_name("courier");
        let (shared, chances) = (desk.clone(), node.rng());
        let actor = node.supervise(&name, RAISED, move || Carrier {
            desk: shared.clone(),
            chances: chances.clone(),
            alarm: None,
        })?;
        Ok(Self(Arc::new(Owned { desk, actor })))
    }

    /// Takes a message, to be delivered after all that were taken before. The receipt says how it ends; who drops it
    /// leaves that to the log. Fails at once when the bound is hit, when the message cannot be encoded, or when the
    /// courier has ended; then it was not taken.
    pub fn send<M: Remote<Result = ()>>(&self, message: M) -> Result<Receipt, DeliveryError> {
        self.accept(message, Repeat::Always)
    }

    /// As [`send`](Self::send), but the message is sent only once: at most once, yet in order with all others. The
    /// receipt says [`DeliveryError::Lost`] when it had to be sent again and was not.
    pub fn send_once<M: Remote<Result = ()>>(&self, message: M) -> Result<Receipt, DeliveryError> {
        self.accept(message, Repeat::Never)
    }

    fn accept<M: Remote>(&self, message: M, repeat: Repeat) -> Result<Receipt, DeliveryError> {
        let desk = &*self.0.desk;
        let packed = Packed::new(&message).map_err(|garbled| DeliveryError::Refused {
            reason: format!("{} {}", M::NAME, garbled.reason),
        })?;
        let (told, receipt) = oneshot::channel();
        let claim = Claim {
            name: M::NAME,
            told,
        };
        let now = desk.node.clock().now();
        let accepted = desk.write(|book| match book.ended {
            true => Err(DeliveryError::Ended),
            false => book.ledger.accept(packed, repeat, claim, now),
        });
        let counts = &desk.node.counts().delivery;
        match accepted {
            Ok(()) => counts.accepted.add(1),
            Err(error) => {
                counts.full.add(1);
                tracing::warn!(message = M::NAME, %error, "a message is not taken for delivery");
                return Err(error);
            }
        }
        if desk.node.is_tapped() {
            let receiver = lock(&desk.book).receiver.clone();
            desk.node
                .show_numbered(desk.speaker.as_ref(), receiver.as_ref(), &message);
        }
        self.look();
        Ok(Receipt(receipt))
    }

    /// This is the receiver from now on, and there is a link to it: everything that is not acknowledged is sent to it,
    /// in order and at once. To be called after each reconnect too, with the same pid if it is the same receiver.
    pub fn retarget(&self, receiver: &Pid) {
        self.0.desk.write(|book| {
            // A name without an incarnation may be somebody else by now.
            let same = book.receiver.as_ref() == Some(receiver) && receiver.incarnation() != 0;
            book.receiver = Some(receiver.clone());
            book.ledger.retarget(!same);
        });
        self.look();
    }

    /// There is nobody to send to for now: messages are taken and wait, as long as the bounds allow.
    pub fn pause(&self) {
        self.0.desk.write(|book| book.ledger.close());
    }

    /// How many messages wait for their acknowledgement.
    pub fn waiting(&self) -> usize {
        lock(&self.0.desk.book).ledger.len()
    }

    /// Ready when all that was taken before this call is over: delivered, or failed.
    pub fn settled(&self) -> impl Future<Output = ()> + Send + use<> {
        let desk = self.0.desk.clone();
        let mark = lock(&desk.book).ledger.mark();
        async move {
            loop {
                let passed = desk.passed.notified();
                if lock(&desk.book).ledger.passed(mark) {
                    return;
                }
                passed.await;
            }
        }
    }

    fn look(&self) {
        let told = &self.0.desk.told;
        if !told.swap(true, Ordering::AcqRel) && self.0.actor.tell(Look).is_err() {
            // Between two lives of the actor: the next looks by itself.
            told.store(false, Ordering::Release);
        }
    }
}

impl std::fmt::Debug for Courier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Courier({} waiting)", self.waiting())
    }
}

impl Node {
    /// A courier that speaks for itself, for callers that are no actors. Its receiver sees it as the sender.
    pub fn courier(&self, bounds: Bounds) -> Result<Courier, SpawnError> {
        Courier::begin(self, None, bounds)
    }
}

impl<A: Actor<Context = Self>> Context<A> {
    /// A courier that speaks for this actor: its receiver sees this actor as the sender. To be kept by the actor, so
    /// that it ends with it.
    pub fn courier(&self, bounds: Bounds) -> Result<Courier, SpawnError> {
        Courier::begin(self.node(), Some(self.pid().clone()), bounds)
    }
}

/// How one message ends: ready with `Ok` once the receiver has handled it. Dropping it takes nothing back.
#[derive(Debug)]
pub struct Receipt(oneshot::Receiver<Result<(), DeliveryError>>);

impl Future for Receipt {
    type Output = Result<(), DeliveryError>;

    fn poll(self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.get_mut().0)
            .poll(cx)
            .map(|told| told.unwrap_or(Err(DeliveryError::Ended)))
    }
}

/// The actor behind a courier.
struct Carrier {
    desk: Arc<Desk>,
    chances: SmallRng,
    alarm: Option<(Instant, Errand)>,
}

impl Actor for Carrier {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        // Nobody waits for the answers that an earlier life has asked for.
        self.desk.write(|book| {
            if book.receiver.is_some() {
                book.ledger.retarget(false);
            }
        });
        self.look(ctx);
    }

    fn stopped(&mut self, _: &mut Context<Self>) {
        let ends = self.desk.write(|book| {
            book.ended = true;
            book.ledger.end_all()
        });
        self.desk.tell(ends);
    }
}

impl Process for Carrier {}

impl Handler<Look> for Carrier {
    type Result = ();
    fn handle(&mut self, _: Look, ctx: &mut Context<Self>) {
        self.look(ctx);
    }
}

impl Carrier {
    /// Gives up what is too old, sends what may be sent, and sets the alarm for what comes next.
    fn look(&mut self, ctx: &mut Context<Self>) {
        self.desk.told.store(false, Ordering::Release);
        let now = ctx.clock().now();
        let expired = self.desk.write(|book| book.ledger.expire(now));
        self.desk.tell(expired);
        loop {
            let next = self.desk.write(|book| {
                let receiver = book.receiver.clone()?;
                Some((receiver, book.ledger.envelope(now)?))
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
        self.desk.node.counts().delivery.resent.add(resent);
        let said = |message: Packed| message.to(receiver.node(), ctx.node());
        let messages = messages.into_iter().map(|one| one.map(said)).collect();
        let speaker = self.desk.speaker.as_ref().unwrap_or(ctx.pid());
        let numbered = Numbered {
            from: speaker.clone(),
            stream: self.desk.stream,
            floor,
            first: mark.first,
            messages,
        };
        let asking = ctx.node().ask(receiver, numbered, ANSWER_PATIENCE);
        ctx.then(asking, move |carrier: &mut Self, answer, ctx| {
            carrier.answered(mark, answer, ctx);
        });
    }

    fn answered(
        &mut self,
        mark: Mark,
        answer: Result<Result<Taken, NotTaken>, AskError>,
        ctx: &mut Context<Self>,
    ) {
        let (now, chance) = (ctx.clock().now(), self.chances.random());
        let ends = self.desk.write(|book| {
            let ledger = &mut book.ledger;
            match answer {
                Ok(Ok(taken)) => ledger.answered(mark, &taken, now, chance),
                Ok(Err(NotTaken::Never { reason })) | Err(AskError::Refused { reason }) => {
                    ledger.refused(mark, &reason)
                }
                Ok(Err(NotTaken::NotNow { .. }))
                | Err(
                    AskError::Gone
                    | AskError::Late { .. }
                    | AskError::Full
                    | AskError::Garbled { .. },
                ) => {
                    tracing::debug!(?answer, "an envelope is to be sent again");
                    ledger.failed(mark, now, chance);
                    Vec::new()
                }
            }
        });
        self.desk.tell(ends);
        self.look(ctx);
    }

    fn set_alarm(&mut self, ctx: &mut Context<Self>) {
        let Some(wake) = lock(&self.desk.book).ledger.wake() else {
            return;
        };
        match self.alarm {
            // One that rings too early only looks once more.
            Some((set, _)) if set <= wake => return,
            Some((_, errand)) => ctx.cancel(errand),
            None => {}
        }
        let wait = wake - ctx.clock().now();
        let errand = ctx.after(wait, |carrier: &mut Self, ctx| {
            carrier.alarm = None;
            carrier.look(ctx);
        });
        self.alarm = Some((wake, errand));
    }
}
