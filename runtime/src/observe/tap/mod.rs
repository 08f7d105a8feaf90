//! The tap: observes every message that a node sends or receives, and decides its fate.
//!
//! Made for tests and the simulator. It sees each message once per node, typed: between two actors
//! of the node, before an outgoing one is encoded, after an incoming one was decoded, and each
//! reply that crosses a link. Delayed messages wait in a bounded queue. A node without a tap has no
//! overhead: mailboxes are marked when a tap is set, and only a marked one takes the slow path. Not
//! visible are replies between actors of one node, errors (`Gone`, `Full` and the like) that cross
//! a link, and messages that an actor sends itself through its raw actix address. A message that a
//! full mailbox or link refuses afterwards has been seen.

use std::any::{Any, TypeId};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, RwLock};
use std::time::Duration;

use bytes::BytesMut;
use serde::Serialize;

use crate::actor::placement::Arbiter;
use crate::clock::{Clock, Instant};
use crate::identity::{NodeId, Pid};
use crate::node::Node;
use crate::wire::codec;
use crate::{read, write};

mod delay_queue;
pub(crate) mod local;
mod probe;
pub(crate) mod wire;

use delay_queue::{DelayQueue, SwapSlot};
pub use probe::{Collected, Probe, Seen};

/// The direction of a message, as its node sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Way {
    /// From this node to an actor of this node.
    Local,
    /// Over a link to another node.
    Outgoing,
    /// Over a link from another node.
    Incoming,
}

/// The kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A message without a reply.
    Tell,
    /// A message with a reply.
    Ask,
    /// The reply to an ask that crossed a link.
    Reply,
    /// A message of a [`ReliableSender`](crate::delivery::ReliableSender): outgoing when the
    /// reliable sender accepts it, even without a receiver, and incoming just before it is handled.
    /// It travels in envelopes, [`Sequenced`](crate::delivery::Sequenced), which the tap sees as
    /// well; the fate of the envelopes decides, and the fate returned here is ignored.
    Sequenced,
    /// The end of a linked actor, on its way into the mailbox of the actor that linked.
    Exited,
}

/// A message in transit.
#[non_exhaustive]
pub struct Passing<'a> {
    /// The time on the node's clock.
    pub at: Instant,
    /// The node of the tap.
    pub node: &'a NodeId,
    /// Its direction.
    pub way: Way,
    /// Its kind.
    pub kind: Kind,
    /// The actor that sent it; for `Exited` the one that ended. `None` if it was no actor.
    pub from: Option<&'a Pid>,
    /// The receiving actor. `None` for a reply to a caller that is no actor, and for a reliable
    /// sender without a receiver.
    pub to: Option<&'a Pid>,
    /// The node on the other end of the link, if it crosses one.
    pub peer: Option<&'a NodeId>,
    /// [`Remote::NAME`](crate::Remote::NAME) if the receiver accepts it from other nodes or through
    /// its pid, otherwise the name of the type. For a reply, the name of the ask.
    pub name: &'static str,
    /// The message itself, to be downcast to its type.
    pub body: &'a dyn Any,
    encode: Option<Encode>,
}

/// Appends the encoded message; `None` if it cannot be encoded.
pub(crate) type Encode = fn(&dyn Any, &mut BytesMut) -> Option<()>;

impl Passing<'_> {
    /// The message in its wire encoding, made now; `None` if it never crosses a wire.
    pub fn encoded(&self) -> Option<Vec<u8>> {
        let mut bytes = BytesMut::with_capacity(USUAL);
        self.encode_into(&mut bytes).then(|| bytes.into())
    }

    /// Appends the message in its wire encoding, to reuse a buffer. `false` if it never crosses a
    /// wire.
    pub fn encode_into(&self, buffer: &mut BytesMut) -> bool {
        let encoded = self.encode.and_then(|encode| encode(self.body, buffer));
        encoded.is_some()
    }

    /// The message, if it is of this type.
    pub fn is<M: 'static>(&self) -> Option<&M> {
        self.body.downcast_ref()
    }
}

impl std::fmt::Debug for Passing<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Passing")
            .field("at", &self.at)
            .field("node", self.node)
            .field("way", &self.way)
            .field("kind", &self.kind)
            .field("from", &self.from)
            .field("to", &self.to)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// Initial capacity of an encoding; most messages are shorter, so the buffer is not reallocated.
const USUAL: usize = 512;

pub(crate) fn encode_any<M: Serialize + 'static>(
    body: &dyn Any,
    buffer: &mut BytesMut,
) -> Option<()> {
    codec::encode_into(body.downcast_ref::<M>()?, buffer).ok()
}

/// The fate of a message.
#[derive(Debug, Default)]
pub enum Fate {
    /// It is delivered unchanged.
    #[default]
    Pass,
    /// It is lost, and its sender is not notified. A lost ask ends by its patience, or as
    /// [`Gone`](crate::AskError::Gone) one minute later, so that one that waits while linked ends
    /// as well.
    Drop,
    /// It is delivered this much later; others overtake it. If more than 65,536 wait already it is
    /// delivered at once.
    Delay(Duration),
    /// It is delivered, and a copy right after it. The copy is made from its encoded form, so a
    /// message that cannot be encoded is delivered once. Of an ask, only the first reply counts.
    Duplicate,
    /// It is delivered, and this copy of the same type right after it: for messages that cannot be
    /// encoded.
    DuplicateAs(Box<dyn Any + Send>),
    /// It waits for the next message of its type and kind in the same direction to the same actor,
    /// and is delivered right after that one; after a minute it is delivered alone. If one waits
    /// there already, it is delivered first and the waiting one after it.
    Swap,
}

/// Observes every message of a node. Any `Fn(&Passing) -> Fate` is one.
///
/// It runs on the sender's thread, sometimes under the lock of a link: it must be quick, and must
/// not send messages.
pub trait Tap: Send + Sync + 'static {
    /// The fate of this message.
    fn fate(&self, passing: &Passing<'_>) -> Fate;

    /// Whether it observes messages between actors of one node. If not, they bypass it at almost no
    /// cost. Called once, when the tap is set.
    fn sees_local(&self) -> bool {
        true
    }

    /// An actor of the node has panicked, with this message. It may be restarted.
    fn panicked(&self, _pid: &Pid, _words: &str) {}
}

impl<F> Tap for F
where
    F: Fn(&Passing<'_>) -> Fate + Send + Sync + 'static,
{
    fn fate(&self, passing: &Passing<'_>) -> Fate {
        self(passing)
    }
}

/// A node's tap, and its delayed messages.
pub(crate) struct Taps {
    is_set: AtomicBool,
    /// Whether the tap observes messages that stay on the node.
    sees_local: AtomicBool,
    tap: RwLock<Option<Arc<dyn Tap>>>,
    delay_queue: Arc<DelayQueue>,
}

impl Taps {
    pub(crate) fn new(clock: &Clock, home: &Arbiter) -> Self {
        Self {
            is_set: AtomicBool::new(false),
            sees_local: AtomicBool::new(false),
            tap: RwLock::default(),
            delay_queue: Arc::new(DelayQueue::new(clock, home)),
        }
    }

    fn set(&self, tap: Option<Arc<dyn Tap>>) {
        let mut current = write(&self.tap);
        self.is_set.store(tap.is_some(), Ordering::SeqCst);
        let sees_local = tap.as_ref().is_some_and(|tap| tap.sees_local());
        self.sees_local.store(sees_local, Ordering::SeqCst);
        *current = tap;
    }

    /// Whether it sees a message, which crosses a link or does not.
    fn sees(&self, crosses: bool) -> bool {
        crosses || self.sees_local.load(Ordering::Relaxed)
    }

    fn fate(&self, passing: &Passing<'_>) -> Fate {
        let tap = read(&self.tap).clone();
        tap.map_or(Fate::Pass, |tap| tap.fate(passing))
    }
}

impl Node {
    /// Shows every message of this node to the tap from now on, replacing any earlier tap.
    pub fn set_tap(&self, tap: impl Tap) {
        self.0.taps.set(Some(Arc::new(tap)));
        for entry in self.registry().living() {
            entry.meter.set_tapped(true);
        }
    }

    /// Removes the tap. Delayed messages are still delivered at their time.
    pub fn clear_tap(&self) {
        self.0.taps.set(None);
        for entry in self.registry().living() {
            entry.meter.set_tapped(false);
        }
    }

    /// Notifies the tap of a panic.
    pub(crate) fn show_panic(&self, pid: &Pid, words: &str) {
        if let Some(tap) = read(&self.0.taps.tap).clone() {
            tap.panicked(pid, words);
        }
    }

    #[inline]
    pub(crate) fn is_tapped(&self) -> bool {
        self.0.taps.is_set.load(Ordering::Relaxed)
    }

    fn delay_queue(&self) -> &Arc<DelayQueue> {
        &self.0.taps.delay_queue
    }
}

/// A message seen by a tap, which can be delivered, copied or lost.
trait Intercepted: Sized + Send + 'static {
    /// The result for the sender.
    type Output;

    /// Delivers it.
    fn deliver(self) -> Self::Output;

    /// A second message: the given one, or else a copy.
    fn copy(&self, given: Option<Box<dyn Any + Send>>) -> Option<Self>;

    /// It is never delivered; a waiting caller is released in the end.
    fn lose(self, delay_queue: &Arc<DelayQueue>);
}

/// Applies the fate. `None` if the message was not delivered now.
fn apply_fate<T: Intercepted>(
    delay_queue: &Arc<DelayQueue>,
    slot: SwapSlot,
    fate: Fate,
    message: T,
) -> Option<T::Output> {
    let copy = match fate {
        Fate::Pass => None,
        Fate::Drop => {
            message.lose(delay_queue);
            return None;
        }
        Fate::Delay(delay) => {
            delay_queue.later(delay, move || drop(message.deliver()));
            return None;
        }
        Fate::Swap => {
            if delay_queue.has_behind(&slot) {
                None
            } else {
                delay_queue.behind(slot, move || drop(message.deliver()));
                return None;
            }
        }
        Fate::Duplicate => message.copy(None),
        Fate::DuplicateAs(given) => message.copy(Some(given)),
    };
    let output = message.deliver();
    if let Some(copy) = copy {
        drop(copy.deliver());
    }
    delay_queue.release(&slot);
    Some(output)
}

/// The slot in which a message would wait to be swapped.
fn swap_slot_of(passing: &Passing<'_>) -> SwapSlot {
    SwapSlot {
        way: passing.way,
        kind: passing.kind,
        to: passing.to.cloned(),
        body: passing.body.type_id(),
    }
}

/// The properties of a message type in a handler table, besides its handler.
pub(crate) trait MessageOps: Any + Send + Sync {
    /// The message type.
    fn message(&self) -> Option<TypeId> {
        None
    }

    fn encode(&self) -> Option<Encode> {
        None
    }

    /// A copy, made from the encoded form.
    fn copy(&self, _: &dyn Any) -> Option<Box<dyn Any + Send>> {
        None
    }
}

impl MessageOps for () {}
