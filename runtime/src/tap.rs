//! The tap: sees every message that a node sends or takes in, and says what becomes of it.
//!
//! Made for tests and the simulator. Hears each message once per node, typed: between two actors of the node,
//! on its way out before it is encoded, on its way in after it was decoded, and each reply that crosses a link. Remembers
//! nothing itself; what its [`Fate`]s hold back waits in the post, which is bounded. A node without a tap pays
//! nothing for it: mailboxes are marked when a tap is set, and only a marked one takes the slow way.
//! It never sees replies between actors of one node, failures (`Gone`, `Full` and the like) that cross a link, or what an
//! actor sends itself through its raw actix address. What a full mailbox or link refuses afterwards has been seen.

use std::any::{Any, TypeId};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, RwLock};
use std::time::Duration;

use bytes::BytesMut;
use serde::Serialize;

use crate::clock::{Clock, Instant};
use crate::codec;
use crate::identity::{NodeId, Pid};
use crate::node::Node;
use crate::placement::Arbiter;
use crate::{read, write};

pub(crate) mod local;
mod post;
mod probe;
pub(crate) mod wire;

use post::{Post, Slot};
pub use probe::{Collected, Probe, Seen};

/// Which way a message goes, as its node sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Way {
    /// From this node to an actor of this node.
    Local,
    /// Over a link to another node.
    Outgoing,
    /// Over a link from another node.
    Incoming,
}

/// What a message is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Nothing comes back.
    Tell,
    /// A reply is waited for.
    Ask,
    /// The reply to an ask that crossed a link; its body is the answer.
    Reply,
    /// A message that a [`Courier`](crate::delivery::Courier) carries: going out when the courier took it, whether or not there is
    /// anybody to send it to, and coming in just before it is handled. It travels in envelopes of its own,
    /// [`Numbered`](crate::delivery::Numbered), which pass as well; its fate is theirs, whatever the tap says here.
    Numbered,
    /// The end of a linked actor, on its way into the mailbox of the one who linked.
    Exited,
}

/// A message that is passing.
#[non_exhaustive]
pub struct Passing<'a> {
    /// The time on the node's clock.
    pub at: Instant,
    /// The node whose tap this is.
    pub node: &'a NodeId,
    /// Which way it goes.
    pub way: Way,
    /// What it is for.
    pub kind: Kind,
    /// The actor that sent it; for `Exited` the one that ended. `None` if it was no actor.
    pub from: Option<&'a Pid>,
    /// The actor it is for. `None` for a reply to who is no actor, and while a courier has nobody to send to.
    pub to: Option<&'a Pid>,
    /// The node on the other end of the link, if it crosses one.
    pub peer: Option<&'a NodeId>,
    /// [`Remote::NAME`](crate::Remote::NAME), if the receiver hears it from other nodes or through its pid, and the name
    /// of the type if not. Of a reply: the name of the question.
    pub name: &'static str,
    /// The message itself, to be downcast to its type.
    pub body: &'a dyn Any,
    encode: Option<Encode>,
}

/// Appends the bytes; `None` of what cannot be encoded.
pub(crate) type Encode = fn(&dyn Any, &mut BytesMut) -> Option<()>;

impl Passing<'_> {
    /// The bytes that the message has on a wire, made now; `None` of one that never crosses a wire.
    pub fn encoded(&self) -> Option<Vec<u8>> {
        let mut bytes = BytesMut::with_capacity(USUAL);
        self.encode_into(&mut bytes).then(|| bytes.into())
    }

    /// Appends the bytes that the message has on a wire, for who looks at many and keeps the buffer. `false` of one that never
    /// crosses a wire.
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

/// Most messages are not longer than this, so that their bytes are not moved again and again while they become more.
const USUAL: usize = 512;

pub(crate) fn encode_any<M: Serialize + 'static>(
    body: &dyn Any,
    buffer: &mut BytesMut,
) -> Option<()> {
    codec::encode_into(body.downcast_ref::<M>()?, buffer).ok()
}

/// What becomes of a message.
#[derive(Debug, Default)]
pub enum Fate {
    /// It goes on as if nobody had looked.
    #[default]
    Pass,
    /// It is lost. The one who told it is not told. A question that is lost ends by its patience, or in
    /// [`Gone`](crate::AskError::Gone) one minute later: so one that waits while linked ends as well.
    Drop,
    /// It goes on so much later; others overtake it. If more than 65,536 wait already it goes on at once.
    Delay(Duration),
    /// It goes on, and a copy right after it. The copy comes of its encoded form, so what never crosses a wire
    /// and is not heard through a pid goes on alone. Of a question, only the first reply counts.
    Duplicate,
    /// It goes on, and this copy of the same type right after it: for what cannot be encoded.
    DuplicateAs(Box<dyn Any + Send>),
    /// It waits for the next message of its type and kind that goes the same way to the same actor, and goes on right after
    /// that one; after a minute it goes on alone. If one waits there already it goes on, and that one after it.
    Swap,
}

/// Sees every message of a node. Any `Fn(&Passing) -> Fate` is one.
///
/// It is called by whoever sends, on that one's thread and sometimes while a link is locked: it must be quick, and must not
/// send anything itself.
pub trait Tap: Send + Sync + 'static {
    /// What becomes of this message.
    fn fate(&self, passing: &Passing<'_>) -> Fate;

    /// Whether it wants to see what passes between actors of one node. If not, that goes on unseen and costs hardly more than without a
    /// tap. Asked once, when the tap is set.
    fn sees_local(&self) -> bool {
        true
    }

    /// An actor of the node has panicked, with these words. It may be made anew.
    fn fell(&self, _pid: &Pid, _words: &str) {}
}

impl<F> Tap for F
where
    F: Fn(&Passing<'_>) -> Fate + Send + Sync + 'static,
{
    fn fate(&self, passing: &Passing<'_>) -> Fate {
        self(passing)
    }
}

/// A node's tap, and what it holds back.
pub(crate) struct Taps {
    is_set: AtomicBool,
    /// Whether there is one that wants to see what stays on the node.
    sees_local: AtomicBool,
    tap: RwLock<Option<Arc<dyn Tap>>>,
    post: Arc<Post>,
}

impl Taps {
    pub(crate) fn new(clock: &Clock, home: &Arbiter) -> Self {
        Self {
            is_set: AtomicBool::new(false),
            sees_local: AtomicBool::new(false),
            tap: RwLock::default(),
            post: Arc::new(Post::new(clock, home)),
        }
    }

    fn set(&self, tap: Option<Arc<dyn Tap>>) {
        let mut current = write(&self.tap);
        self.is_set.store(tap.is_some(), Ordering::SeqCst);
        let sees_local = tap.as_ref().is_some_and(|tap| tap.sees_local());
        self.sees_local.store(sees_local, Ordering::SeqCst);
        *current = tap;
    }

    /// Whether it is shown this, which crosses a link or does not.
    fn sees(&self, crosses: bool) -> bool {
        crosses || self.sees_local.load(Ordering::Relaxed)
    }

    fn fate(&self, passing: &Passing<'_>) -> Fate {
        let tap = read(&self.tap).clone();
        tap.map_or(Fate::Pass, |tap| tap.fate(passing))
    }
}

impl Node {
    /// Shows every message of this node to the tap from now on, in place of any tap before.
    pub fn set_tap(&self, tap: impl Tap) {
        self.0.taps.set(Some(Arc::new(tap)));
        for entry in self.registry().living() {
            entry.meter.set_tapped(true);
        }
    }

    /// Ends the tap. What it held back still goes on in its time.
    pub fn clear_tap(&self) {
        self.0.taps.set(None);
        for entry in self.registry().living() {
            entry.meter.set_tapped(false);
        }
    }

    /// Shows the tap that an actor has panicked.
    pub(crate) fn show_fall(&self, pid: &Pid, words: &str) {
        if let Some(tap) = read(&self.0.taps.tap).clone() {
            tap.fell(pid, words);
        }
    }

    #[inline]
    pub(crate) fn is_tapped(&self) -> bool {
        self.0.taps.is_set.load(Ordering::Relaxed)
    }

    fn post(&self) -> &Arc<Post> {
        &self.0.taps.post
    }
}

/// Something that a tap has seen, and that can still be delivered, copied or lost.
trait Freight: Sized + Send + 'static {
    /// What the sender learns.
    type Told;

    /// Lets it go on.
    fn deliver(self) -> Self::Told;

    /// Another of it: this one, which the tap gave, or a copy if it gave none.
    fn copy(&self, given: Option<Box<dyn Any + Send>>) -> Option<Self>;

    /// It will never arrive; whoever waits for a reply must learn it in the end.
    fn lose(self, post: &Arc<Post>);
}

/// Does what the fate says. `None` if the freight did not go on now.
fn conduct<T: Freight>(post: &Arc<Post>, slot: Slot, fate: Fate, freight: T) -> Option<T::Told> {
    let copy = match fate {
        Fate::Pass => None,
        Fate::Drop => {
            freight.lose(post);
            return None;
        }
        Fate::Delay(delay) => {
            post.later(delay, move || drop(freight.deliver()));
            return None;
        }
        Fate::Swap => {
            if post.has_behind(&slot) {
                None
            } else {
                post.behind(slot, move || drop(freight.deliver()));
                return None;
            }
        }
        Fate::Duplicate => freight.copy(None),
        Fate::DuplicateAs(given) => freight.copy(Some(given)),
    };
    let told = freight.deliver();
    if let Some(copy) = copy {
        drop(copy.deliver());
    }
    post.release(&slot);
    Some(told)
}

/// The place where a passing message would wait to be swapped.
fn slot_of(passing: &Passing<'_>) -> Slot {
    Slot {
        way: passing.way,
        kind: passing.kind,
        to: passing.to.cloned(),
        body: passing.body.type_id(),
    }
}

/// What a table of ears knows of a message type besides how to hear it.
pub(crate) trait Words: Any + Send + Sync {
    /// The type it is about.
    fn message(&self) -> Option<TypeId> {
        None
    }

    fn encode(&self) -> Option<Encode> {
        None
    }

    /// A copy made by way of the encoded form.
    fn copy(&self, _: &dyn Any) -> Option<Box<dyn Any + Send>> {
        None
    }
}

impl Words for () {}
