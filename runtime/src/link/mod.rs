//! Links: one connection to one other node, as the node sees it.
//!
//! A transport dials or accepts, calls [`Node::attach`], and then moves bytes: it takes them with
//! [`Link::outgoing`] and passes received bytes to [`Link::deliver`]. The link keeps the asks that
//! wait for a reply, and counts those it is answering. It opens no socket and knows no certificate:
//! the transport has authenticated the peer.
//!
//! | module | contents |
//! |---|---|
//! | `answer` | the right to answer one ask of a peer |
//! | `discovery` | finds an actor by name at one of several addresses |
//! | `ending` | the end of a link, and the notification of its watchers |
//! | `inbox` | the incoming half of a link: from bytes to mailboxes |
//! | `links` | sending to remote pids, connecting, finding actors and watching them |
//! | `outbox` | the outgoing half of a link |
//! | `question` | asks to actors of the peer, each waiting for its reply |
//! | `send_buffer` | the tells of one thread, before they go to their links |
//! | `sums` | sums over links by the role of the peer, for metrics |

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

use crate::actor::ask::{AskError, TellError};
use crate::actor::supervise;
use crate::clock::{self, Instant};
use crate::identity::{NodeId, Peer, Pid, Role};
use crate::link::inbox::Inbox;
use crate::link::outbox::{Need, Outbox, Outgoing, Unwritten};
use crate::lock;
use crate::node::{Node, WeakNode};
use crate::wire::codec::{self, Garbled};
use crate::wire::frame::{self, Frame, Head, MessageFrame, Target};
use crate::wire::frame_reader::Reading;
use crate::wire::message::{Lane, Remote};

mod answer;
pub(crate) mod discovery;
mod ending;
pub(crate) mod inbox;
pub(crate) mod links;
pub(crate) mod outbox;
mod question;
pub(crate) mod send_buffer;
mod sums;

pub(crate) use answer::Answer;
use answer::Answerer;
pub(crate) use ending::Decoding;
use question::PendingAsk;
pub(crate) use question::{AskRegistration, Decode, OnReply, ReplyOutcome};
pub(crate) use sums::{ClosedLinks, put as put_sums};

/// Maximum number of open asks in each direction of a link.
const ASKS_MAX: usize = 65_536;

/// Opens connections for a node.
pub trait Dialer: Send + Sync + 'static {
    /// Connects to this address, and resolves after [`Node::attach`].
    fn dial(&self, address: String) -> BoxFuture<'static, Result<Peer, ConnectError>>;
}

/// Why there is no connection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// The node has no transport.
    #[error("no transport to dial {address} with")]
    NoDialer {
        /// The requested address.
        address: String,
    },
    /// No answer from there. Try again later.
    #[error("{address} cannot be reached: {reason}")]
    Unreachable {
        /// The requested address.
        address: String,
        /// The transport's error.
        reason: String,
    },
    /// One of the two sides rejects the other.
    #[error("{address} refused: {reason}")]
    Refused {
        /// The requested address.
        address: String,
        /// The reason of the other side, or of this node.
        reason: String,
    },
    /// This node is shutting down.
    #[error("the node is shutting down")]
    ShuttingDown,
}

/// The side that dialled a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialled {
    /// This node.
    ByUs,
    /// The peer.
    ByThem,
}

/// A node's introduction before its first frame.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The version of its frame format.
    pub frames: u16,
    /// Its id.
    pub node: NodeId,
    /// Its role.
    pub role: Role,
    /// The messages that its actors accepted when the hello was written: ids and their highest
    /// versions.
    pub accepts: BTreeMap<u32, u16>,
}

impl Hello {
    /// The version of the frame format that this crate writes.
    pub const FRAMES: u16 = 1;
    /// Maximum length of a hello, in bytes.
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

/// Why a connection did not become a link. The transport closes it with this reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AttachError {
    /// This node accepts no links with that role.
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
    /// The hello and the peer's authenticated identity differ.
    #[error("hello says {hello}, proven is {proven}")]
    Mismatch {
        /// The identity in the hello.
        hello: String,
        /// The authenticated identity.
        proven: String,
    },
    /// The peer is this node.
    #[error("a node does not link to itself")]
    Myself,
    /// This node is shutting down.
    #[error("the node is shutting down")]
    ShuttingDown,
}

/// The sender of a message from another node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sender {
    /// The sending node.
    pub peer: Peer,
    /// The sending actor; `None` if it was no actor.
    pub pid: Option<Pid>,
}

/// A connection, for its transport. When the last clone is dropped the link is closed.
#[derive(Clone)]
pub struct Link(Arc<Ownership>);

struct Ownership(Arc<Connection>);

impl Drop for Ownership {
    fn drop(&mut self) {
        self.0.close("dropped by the transport");
    }
}

impl Link {
    pub(crate) fn new(connection: Arc<Connection>) -> Self {
        Self(Arc::new(Ownership(connection)))
    }

    fn connection(&self) -> &Arc<Connection> {
        &self.0.0
    }

    /// The other end.
    pub fn peer(&self) -> &Peer {
        &self.connection().peer
    }

    /// Waits for bytes to send in this lane, and puts at most `max` of them into the buffer. One
    /// task per lane may wait.
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

    /// Handles every complete frame at the front of one lane's bytes, and leaves the rest. Needs a
    /// tokio runtime, for replies. After an error the stream cannot be continued. Before it reads
    /// more of a lane, a transport waits for [`room`](Self::room).
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

    /// Handles a bulk that has arrived completely. It is decoded on another thread: until
    /// [`decoded`](Self::decoded) resolves its bytes are in use, and a transport with memory bounds
    /// should count them.
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

    /// Resolves once more of this lane may be read, or the link is closed. Pends while many
    /// messages of it wait for full mailboxes: then the transport stops reading, the peer's outbox
    /// fills, and its senders are refused. Frames delivered in spite of that are kept, up to a
    /// bound at which the link is closed.
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

    /// Resolves once no bulk is being decoded and no message waits for room in a mailbox, or the
    /// link is closed. A transport that has lost its connection waits for it before it closes the
    /// link, so that received messages are delivered.
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

    /// Closes the link: everything that waits for the peer is notified, once. A bulk that is being
    /// decoded is lost.
    pub fn close(&self, reason: &str) {
        self.connection().close(reason);
    }

    /// Resolves to the reason once either side has closed the link.
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
    pub(crate) outbox: Outbox,
    pub(crate) inbox: Mutex<Inbox>,
    pub(crate) delivered: AtomicU64,
    /// Messages sent in an older version.
    pub(crate) said_older: AtomicU64,
    pub(crate) born: Instant,
    questions: Mutex<FxHashMap<u64, PendingAsk>>,
    answering: AtomicUsize,
    answerer: Arc<Answerer>,
    /// Bulks being decoded, plus full mailboxes that messages of this link wait for.
    decoding: AtomicUsize,
    /// Lanes that the transport should not read now.
    crowded: [AtomicBool; 2],
    closed: AtomicBool,
    reason: Mutex<Option<String>>,
    /// The link has ended, with whether it was lost, and the watchers of the peer are not notified
    /// yet.
    end_pending: Mutex<Option<bool>>,
    /// Notified when the link closes, when nothing is being decoded or waits for room any more, and
    /// when a lane may be read again.
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
        Self {
            node: node.downgrade(),
            inbox: Mutex::new(Inbox::new(&peer)),
            peer,
            hello,
            dialled,
            reading: Reading { frame_max },
            outbox: Outbox::new(outgoing_max),
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
            end_pending: Mutex::default(),
            changed: Notify::new(),
        }
    }

    /// Sends a message to an actor of the peer.
    #[inline]
    pub(crate) fn tell<M: Remote>(&self, to: &Pid, message: &M) -> Result<(), TellError> {
        self.write_message(to, message, None)
    }

    /// The version in which this message is sent to the peer: the newest that the peer accepts.
    #[inline]
    pub(crate) fn version_of<M: Remote>(&self) -> u16 {
        match M::OLDEST == M::VERSION {
            true => M::VERSION,
            false => self.version_between(M::ID, M::OLDEST, M::VERSION),
        }
    }

    pub(crate) fn version_between(&self, id: u32, oldest: u16, newest: u16) -> u16 {
        let version = match self.hello.accepts.get(&id) {
            Some(highest) => (*highest).clamp(oldest, newest),
            None => newest,
        };
        if version < newest {
            self.said_older.fetch_add(1, Ordering::Relaxed);
        }
        version
    }

    /// The header of a tell.
    #[inline]
    pub(crate) fn header<'a, M: Remote>(
        &self,
        to: &'a Pid,
        from: Option<&'a Pid>,
    ) -> MessageFrame<'a> {
        MessageFrame {
            lane: M::LANE,
            id: M::ID,
            version: self.version_of::<M>(),
            to: Target::of(to),
            from: from.map(|pid| frame::Origin {
                epoch: pid.node().epoch(),
                actor: Target::of(pid),
            }),
            correlation: None,
            body: &[],
        }
    }

    #[inline]
    pub(crate) fn write_message<M: Remote>(
        &self,
        to: &Pid,
        message: &M,
        correlation: Option<u64>,
    ) -> Result<(), TellError> {
        let written = supervise::with_current(|current| {
            let header = MessageFrame {
                correlation,
                ..self.header::<M>(to, current)
            };
            let version = header.version;
            let encode = |buffer: &mut BytesMut| message.encode_as(version, buffer);
            self.outbox
                .write(M::LANE, Need::Refusable, Head::Message(&header), encode)
        });
        written.map_err(|unwritten| tell_error(unwritten, M::NAME))
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
                tracing::warn!(peer = %self.peer.node, reason, "failed to write a frame");
            }
        }
    }

    /// Answers an ask of the peer.
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

    /// Answers an ask of the peer with an error.
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

pub(crate) fn tell_error(unwritten: Unwritten, name: &str) -> TellError {
    match unwritten {
        Unwritten::Full | Unwritten::Overrun => TellError::Full,
        Unwritten::Closed => TellError::Gone,
        Unwritten::Refused(reason) => TellError::Refused {
            reason: format!("{name} {reason}"),
        },
    }
}
