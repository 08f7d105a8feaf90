//! Links: one connection to one other node, as the node sees it.
//!
//! A transport dials or accepts, calls [`Node::attach`], and then moves bytes: it takes them with
//! [`Link::outgoing`] and hands what arrives to [`Link::deliver`]. The link remembers the questions that
//! wait for a reply, and how many it is answering. It opens no socket and knows no certificate: the
//! transport says who the peer is and must be right about it.

use std::collections::BTreeMap;
use std::fmt;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::{Bytes, BytesMut};
use futures_util::future::BoxFuture;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use crate::again::{READS_SHORT_ID, Reading};
use crate::ask::{AskError, TellError};
use crate::clock::{self, Instant};
use crate::codec::{self, Garbled};
use crate::frame::{self, Frame, Head, Letter, Target};
use crate::identity::{NodeId, Peer, Pid, Role};
use crate::inbox::Inbox;
use crate::message::{Lane, Remote};
use crate::node::{Node, WeakNode};
use crate::outbox::{Need, Outbox, Outgoing, Unwritten};
use crate::{lock, supervise};

mod answer;
mod ending;
mod question;
mod sums;

pub(crate) use answer::Answer;
use answer::Answerer;
pub(crate) use ending::Decoding;
use question::Question;
pub(crate) use question::{Answered, Asked, Decode, OnReply};
pub(crate) use sums::{Ended, put as put_sums};

/// Questions that may be open in each direction of a link.
const QUESTIONS_MAX: usize = 65_536;

/// Opens connections for a node.
pub trait Dialer: Send + Sync + 'static {
    /// Connects to this address, and is ready once [`Node::attach`] has been done.
    fn dial(&self, address: String) -> BoxFuture<'static, Result<Peer, ConnectError>>;
}

/// Why there is no connection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// The node has no transport.
    #[error("no transport to dial {address} with")]
    NoDialer {
        /// The address asked for.
        address: String,
    },
    /// Nobody answered there. Try again later.
    #[error("{address} cannot be reached: {reason}")]
    Unreachable {
        /// The address asked for.
        address: String,
        /// What the transport met.
        reason: String,
    },
    /// Somebody answered who does not want us, or whom we do not want.
    #[error("{address} refused: {reason}")]
    Refused {
        /// The address asked for.
        address: String,
        /// What the other side, or our own rules, said.
        reason: String,
    },
    /// This node is going down.
    #[error("the node is shutting down")]
    ShuttingDown,
}

/// Who dialled a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialled {
    /// This node did.
    ByUs,
    /// The peer did.
    ByThem,
}

/// What a node says of itself before its first frame.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The form of frames it speaks.
    pub frames: u16,
    /// Who it is.
    pub node: NodeId,
    /// What it is.
    pub role: Role,
    /// What its actors heard when the hello was written: message ids and their highest versions. Beside them stands, as if it were one,
    /// the id of `frames/short` where the node reads tells without a header whose length, below 4 KiB, has two bytes.
    pub hears: BTreeMap<u32, u16>,
}

impl Hello {
    /// The form of frames that this crate writes.
    pub const FRAMES: u16 = 2;
    /// The longest hello, in bytes.
    pub const LENGTH_MAX: usize = 256 << 10;

    /// Reads a peer's hello.
    pub fn decode(bytes: &[u8]) -> Result<Hello, Garbled> {
        if bytes.len() > Self::LENGTH_MAX {
            let reason = format!(
                "hello of {} bytes, expected at most {}",
                bytes.len(),
                Self::LENGTH_MAX
            );
            return Err(Garbled { reason });
        }
        let hello: Hello = codec::decode(bytes)?;
        if hello.frames != Self::FRAMES {
            let reason = format!(
                "hello speaks frames {}, expected {}",
                hello.frames,
                Self::FRAMES
            );
            return Err(Garbled { reason });
        }
        Ok(hello)
    }
}

/// Why a connection did not become a link. The transport closes it with this as the reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AttachError {
    /// This node takes no links with that role.
    #[error("role {role} is not accepted here")]
    WrongRole {
        /// The peer's role.
        role: Role,
    },
    /// There is a link to that node already, which stays.
    #[error("already linked to {node}")]
    Duplicate {
        /// The peer.
        node: NodeId,
    },
    /// The hello and the proof of who the peer is disagree.
    #[error("hello says {hello}, proven is {proven}")]
    Mismatch {
        /// Who the hello says it is.
        hello: String,
        /// Who it was proven to be.
        proven: String,
    },
    /// It is this very node.
    #[error("a node does not link to itself")]
    Myself,
    /// This node is going down.
    #[error("the node is shutting down")]
    ShuttingDown,
}

/// Who sent a message that came from another node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sender {
    /// The node it came from.
    pub peer: Peer,
    /// The actor there; `None` if it was no actor.
    pub pid: Option<Pid>,
}

/// A connection, for its transport. When the last clone is dropped the link is closed.
#[derive(Clone)]
pub struct Link(Arc<Ownership>);

struct Ownership(Arc<Connection>);

impl Drop for Ownership {
    fn drop(&mut self) {
        self.0.close("the transport let go of it");
    }
}

impl Link {
    pub(crate) fn new(connection: Arc<Connection>) -> Self {
        Self(Arc::new(Ownership(connection)))
    }

    fn connection(&self) -> &Arc<Connection> {
        &self.0.0
    }

    /// Who is on the other end.
    pub fn peer(&self) -> &Peer {
        &self.connection().peer
    }

    /// Waits for something to send in this lane, and puts at most `max` bytes of it into the buffer.
    /// One task per lane may wait.
    pub async fn outgoing(&self, lane: Lane, buffer: &mut BytesMut, max: usize) -> Outgoing {
        let outgoing = poll_fn(|cx| {
            self.connection()
                .outbox
                .poll_take(lane, &mut *buffer, max, cx)
        })
        .await;
        clock::moved();
        outgoing
    }

    /// Takes every whole frame from the front of what arrived in one lane, and leaves the rest.
    /// Needs a tokio runtime, where replies are waited for. Once garbled, the stream cannot be read on. After what it has read of a lane a transport waits
    /// for [`room`](Self::room).
    pub fn deliver(&self, bytes: &mut BytesMut) -> Result<(), Garbled> {
        clock::moved();
        let connection = self.connection();
        if connection.is_closed() {
            bytes.clear();
            return Ok(());
        }
        let result = Inbox::deliver(connection, bytes);
        if let Err(garbled) = &result {
            connection.note_garbled(garbled);
        }
        result
    }

    /// Takes a bulk that has arrived whole. It is decoded away from this thread: until [`decoded`](Self::decoded) is ready its bytes
    /// are in use, and a transport that has bounds should count them.
    pub fn deliver_bulk(&self, token: u64, bytes: Bytes) -> Result<(), Garbled> {
        clock::moved();
        let connection = self.connection();
        if connection.is_closed() {
            return Ok(());
        }
        let result = Inbox::deliver_bulk(connection, token, bytes);
        if let Err(garbled) = &result {
            connection.note_garbled(garbled);
        }
        result
    }

    /// Ready once more of this lane may be read, or the link has been closed. Not while much of it waits for actors whose mailboxes
    /// are full: then the transport leaves the rest to the peer, whose senders are refused when its outbox is full. What a transport
    /// delivers all the same is kept, up to a bound beyond which the link is garbled.
    pub async fn room(&self, lane: Lane) {
        let connection = self.connection();
        loop {
            let changed = connection.changed.notified();
            if connection.is_closed() || !connection.is_crowded(lane) {
                return;
            }
            changed.await;
        }
    }

    /// Ready once no bulk is being decoded and no message waits for room in a mailbox, or the link has been closed. A transport that has
    /// lost its connection waits for it before it closes the link, so that what came is heard.
    pub async fn decoded(&self) {
        let connection = self.connection();
        loop {
            let changed = connection.changed.notified();
            if connection.is_closed() || !connection.is_decoding() {
                return;
            }
            changed.await;
        }
    }

    /// Ends the link: everything that waits for the peer learns of it, once. A bulk that is being decoded is lost.
    pub fn close(&self, reason: &str) {
        self.connection().close(reason);
    }

    /// Ready, with the reason, once the link has been closed by whichever side.
    pub async fn closed(&self) -> String {
        let connection = self.connection();
        loop {
            let changed = connection.changed.notified();
            if let Some(reason) = connection.reason() {
                return reason;
            }
            changed.await;
        }
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Link({})", self.peer().node)
    }
}

/// The node's side of a link.
pub(crate) struct Connection {
    pub(crate) node: WeakNode,
    pub(crate) peer: Peer,
    pub(crate) hello: Hello,
    pub(crate) dialled: Dialled,
    pub(crate) reading: Reading,
    speaks_previous: bool,
    pub(crate) outbox: Outbox,
    pub(crate) inbox: Mutex<Inbox>,
    pub(crate) delivered: AtomicU64,
    /// Messages said in a shape before the newest.
    pub(crate) said_older: AtomicU64,
    pub(crate) born: Instant,
    questions: Mutex<FxHashMap<u64, Question>>,
    answering: AtomicUsize,
    answerer: Arc<Answerer>,
    /// Bulks that are being decoded, and actors whose mailboxes have no room for messages that came.
    decoding: AtomicUsize,
    /// The transport should read no more of these lanes.
    crowded: [AtomicBool; 2],
    closed: AtomicBool,
    reason: Mutex<Option<String>>,
    /// That the link has ended, and whether it was lost, until all who watch the peer are told.
    untold: Mutex<Option<bool>>,
    /// It was closed, or nothing is being decoded or waits for room any more, or it is no longer crowded.
    changed: Notify,
}

impl Connection {
    pub(crate) fn new(
        node: &Node,
        peer: Peer,
        hello: Hello,
        dialled: Dialled,
        outgoing_max: usize,
        frame_max: usize,
    ) -> Self {
        let short = !node.speaks_previous();
        let peer_reads_short = hello.hears.contains_key(&READS_SHORT_ID);
        Self {
            node: node.downgrade(),
            inbox: Mutex::new(Inbox::new(&peer)),
            peer,
            hello,
            dialled,
            reading: Reading { frame_max, short },
            speaks_previous: node.speaks_previous(),
            outbox: Outbox::new(outgoing_max, short && peer_reads_short),
            delivered: AtomicU64::new(0),
            said_older: AtomicU64::new(0),
            born: node.clock().now(),
            questions: Mutex::default(),
            answering: AtomicUsize::new(0),
            answerer: Arc::default(),
            decoding: AtomicUsize::new(0),
            crowded: Default::default(),
            closed: AtomicBool::new(false),
            reason: Mutex::default(),
            untold: Mutex::default(),
            changed: Notify::new(),
        }
    }

    /// Sends a message to an actor of the peer.
    #[inline]
    pub(crate) fn tell<M: Remote>(&self, to: &Pid, message: &M) -> Result<(), TellError> {
        self.write_letter(to, message, None)
    }

    /// The shape in which this message is said to the peer: the newest, unless the peer hears only an older one.
    #[inline]
    pub(crate) fn version_of<M: Remote>(&self) -> u16 {
        match M::OLDEST == M::VERSION {
            true => M::VERSION,
            false => self.version_between(M::ID, M::OLDEST, M::VERSION),
        }
    }

    pub(crate) fn version_between(&self, id: u32, oldest: u16, newest: u16) -> u16 {
        let ours = match self.speaks_previous {
            true => oldest.max(newest.saturating_sub(1)),
            false => newest,
        };
        let version = match self.hello.hears.get(&id) {
            Some(heard) => (*heard).clamp(oldest, ours),
            None => ours,
        };
        if version < newest {
            self.said_older.fetch_add(1, Ordering::Relaxed);
        }
        version
    }

    /// All but the body of a tell.
    #[inline]
    pub(crate) fn letter<'a, M: Remote>(&self, to: &'a Pid, from: Option<&'a Pid>) -> Letter<'a> {
        Letter {
            lane: M::LANE,
            id: M::ID,
            version: self.version_of::<M>(),
            to: Target::of(to),
            from: from.map(|pid| frame::From {
                epoch: pid.node().epoch(),
                actor: Target::of(pid),
            }),
            correlation: None,
            body: &[],
        }
    }

    #[inline]
    pub(crate) fn write_letter<M: Remote>(
        &self,
        to: &Pid,
        message: &M,
        correlation: Option<u64>,
    ) -> Result<(), TellError> {
        let written = supervise::with_current(|current| {
            let letter = Letter {
                correlation,
                ..self.letter::<M>(to, current)
            };
            let version = letter.version;
            let encode = |buffer: &mut BytesMut| message.encode_as(version, buffer);
            self.outbox
                .write(M::LANE, Need::Refusable, Head::Letter(&letter), encode)
        });
        written.map_err(|unwritten| untold(unwritten, M::NAME))
    }

    /// Writes a frame that must not be lost.
    pub(crate) fn write_plain(self: &Arc<Self>, frame: &Frame<'_>) {
        let written = self.outbox.write(
            Lane::Ordinary,
            Need::MustNotBeLost,
            Head::Plain(frame),
            |_| Ok(()),
        );
        self.must_be(written);
    }

    fn must_be(self: &Arc<Self>, written: Result<(), Unwritten>) {
        match written {
            Ok(()) | Err(Unwritten::Closed | Unwritten::Full) => {}
            Err(Unwritten::Overrun) => self.close("the outgoing queue is full"),
            Err(Unwritten::Refused(reason)) => {
                tracing::warn!(peer = %self.peer.node, reason, "a frame could not be written");
            }
        }
    }

    /// Answers a question of the peer.
    pub(crate) fn answer<R: Serialize>(self: &Arc<Self>, lane: Lane, correlation: u64, value: &R) {
        self.answer_with(lane, correlation, |buffer| {
            codec::encode_into(value, buffer)
        });
    }

    pub(crate) fn answer_with(
        self: &Arc<Self>,
        lane: Lane,
        correlation: u64,
        body: impl FnOnce(&mut BytesMut) -> Result<(), Garbled>,
    ) {
        let written = self.outbox.write(
            lane,
            Need::MustNotBeLost,
            Head::Answer { correlation },
            body,
        );
        match written {
            Err(Unwritten::Refused(reason)) => self.fail(correlation, AskError::Garbled { reason }),
            written => self.must_be(written),
        }
    }

    /// Tells the peer that its question has no reply.
    pub(crate) fn fail(self: &Arc<Self>, correlation: u64, error: AskError) {
        self.write_plain(&Frame::Reply {
            correlation,
            outcome: Err(error),
        });
    }

    fn reason(&self) -> Option<String> {
        lock(&self.reason).clone()
    }

    pub(crate) fn note_garbled(&self, garbled: &Garbled) {
        tracing::warn!(peer = %self.peer.node, reason = garbled.reason, "garbled bytes from a peer");
        if let Some(node) = self.node.upgrade() {
            node.counts().garbled();
        }
    }
}

pub(crate) fn untold(unwritten: Unwritten, name: &str) -> TellError {
    match unwritten {
        Unwritten::Full | Unwritten::Overrun => TellError::Full,
        Unwritten::Closed => TellError::Gone,
        Unwritten::Refused(reason) => TellError::Refused {
            reason: format!("{name} {reason}"),
        },
    }
}
