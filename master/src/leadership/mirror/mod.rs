//! Mirror: a copy of the leader's agents, frameworks, tasks and offers on every master of a group.
//!
//! On the leader's node it takes the master's snapshot every second and sends the mirrors of the
//! other masters the changes since their version ([`difference`]). On the other nodes it receives
//! [`MirrorUpdate`] from the leader's mirror, and publishes the copy for pages ([`Mirrored`], in
//! [`LocalLeader`]). Accepts messages only from masters in its own member's term, and keeps the
//! last leader's copy until the next one has more: so a new leader can answer reads at once.
//! Nothing is decided from a mirror, and nothing of it is offered, launched or stored.
//!
//! A batch is the difference of two snapshots, split into pieces. A follower has at most one batch
//! under way, and each piece waits for the answer to the previous one. A follower that is new, or
//! has missed something, gets the whole.

pub mod change;
pub mod difference;
pub mod followers;
pub mod receiver;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use consensus::member::{Leadership, MemberHandle};
use protocol::MasterInfo;
use runtime::prelude::*;
use runtime::{Instant, SpawnError, Timestamp, remote};
use serde::{Deserialize, Serialize};

use self::change::Change;
use self::followers::{Followers, Order};
use self::receiver::Receiver;
use crate::api::PublishedFlags;
use crate::config::Config;
use crate::leadership::LocalLeader;
use crate::master::TakeSnapshot;
use crate::registry::RegistryMachine;
use crate::state::MasterState;
use crate::state::size;

/// The actor's name, by which the leader's mirror finds it.
pub const NAME: &str = "mirror";

/// Time between two snapshots. Shorter: fresher followers, and more copies of the state's skeleton
/// in a busy master.
const INTERVAL: Duration = Duration::from_secs(1);

/// Maximum age of a mirror that is used for pages.
pub const STALENESS_MAX: Duration = Duration::from_secs(30);

/// How long a new leader's pages may be rendered from the mirror while it waits for agents.
pub(crate) const SETTLING_MAX: Duration = Duration::from_secs(10);

/// Maximum bytes of one piece: small, because it shares a stream with the group's own messages.
const PIECE_BYTES_MAX: usize = 128 * 1024;

/// Maximum pieces of one batch, 2 GiB in all. A larger state is not mirrored.
pub(crate) const PIECES_MAX: u32 = 16 * 1024;

/// Time limit for finding a follower, and for its answer to one piece.
const PATIENCE: Duration = Duration::from_secs(10);

/// The leader's state at some recent time.
#[derive(Clone, Debug)]
pub struct Mirrored {
    /// The state, without the parts that pages do not need.
    pub state: Arc<MasterState>,
    /// The flags of the leader's operator.
    pub(crate) published: Arc<PublishedFlags>,
    /// The time of the snapshot, by this node's clock.
    pub taken: Instant,
}

impl Mirrored {
    /// Its age.
    pub fn staleness(&self, now: Instant) -> Duration {
        now - self.taken
    }

    /// The leader, as `host:port`.
    pub fn leader(&self) -> String {
        let master = &self.state.master;
        format!("{}:{}", master.hostname, master.port)
    }
}

/// A piece of a batch of changes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MirrorUpdate {
    /// The sender's term.
    pub term: u64,
    /// The batch's number, which grows within the term.
    pub sequence: u64,
    /// The version that it changes.
    pub base: Base,
    /// The piece's index, from 0.
    pub piece: u32,
    /// Number of pieces of the batch.
    pub pieces: u32,
    /// Age of the snapshot when this was sent.
    pub age: Duration,
    /// The changes.
    pub changes: Vec<Change>,
}

/// The version that a batch changes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Base {
    /// None: the batch contains the whole state.
    Nothing(Box<LeaderInfo>),
    /// The result of the batch with this number, in the same term.
    Batch(u64),
}

/// A leader's description.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LeaderInfo {
    /// Its address and id.
    pub master: MasterInfo,
    /// When it was elected.
    pub elected: Timestamp,
    /// When it was started.
    pub started: Timestamp,
    /// The operator's flags, as far as pages show them.
    pub(crate) published: PublishedFlags,
}

/// A follower's answer to a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum UpdateReply {
    /// Received.
    Taken,
    /// The base of the piece is missing.
    WantsWhole,
    /// Not following this leader: its member is in another term, or leads itself.
    Refused {
        /// The term that it knows.
        term: u64,
    },
}

remote! { MirrorUpdate = "mirror/books_changed" v1 -> UpdateReply }

/// A leadership change of the member.
struct LeadershipChanged(Leadership);

impl Message for LeadershipChanged {
    type Result = ();
}

/// The actor.
pub struct Mirror {
    member: MemberHandle<RegistryMachine>,
    published: Arc<PublishedFlags>,
    local: LocalLeader,
    leads: bool,
    term: u64,
    receiver: Receiver,
    followers: Followers,
    /// A snapshot is being taken.
    is_looking: bool,
}

/// Starts the actor [`NAME`] on `node`. After a crash it starts empty, and asks for the whole.
pub fn open(
    node: &Node,
    config: &Config,
    member: &MemberHandle<RegistryMachine>,
    local: &LocalLeader,
) -> Result<Handle<Mirror>, SpawnError> {
    let (config, member, local) = (config.clone(), member.clone(), local.clone());
    let again = Supervision::Restart {
        backoff: Duration::from_secs(1),
        backoff_max: Duration::from_secs(60),
        limit: u32::MAX,
    };
    node.supervise(NAME, again, move || Mirror {
        member: member.clone(),
        published: Arc::new(PublishedFlags::of(&config)),
        local: local.clone(),
        leads: false,
        term: 0,
        receiver: Receiver::new(config.clone()),
        followers: Followers::default(),
        is_looking: false,
    })
}

impl Actor for Mirror {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        let mirror = ctx.handle();
        self.member
            .watch(move |leadership| mirror.tell(LeadershipChanged(leadership.clone())).is_ok());
        ctx.every(INTERVAL, |mirror, ctx| mirror.take_snapshot(ctx));
    }
}

impl Process for Mirror {
    fn accepts(handlers: &mut RemoteHandlers<Self>) {
        handlers.accept::<MirrorUpdate>(&[Role::Master]);
    }
}

impl Handler<LeadershipChanged> for Mirror {
    type Result = ();

    fn handle(&mut self, LeadershipChanged(now): LeadershipChanged, ctx: &mut Context<Self>) {
        if now.term != self.term {
            self.followers = Followers::default();
        }
        (self.leads, self.term) = (now.leads(), now.term);
        if now.ended.is_some() {
            ctx.stop();
        }
    }
}

impl Handler<MirrorUpdate> for Mirror {
    type Result = MessageResult<MirrorUpdate>;

    fn handle(&mut self, update: MirrorUpdate, ctx: &mut Context<Self>) -> Self::Result {
        if self.leads {
            return MessageResult(UpdateReply::Refused { term: self.term });
        }
        let reply = self.receiver.receive(update, self.term, ctx.clock().now());
        if let (UpdateReply::Taken, Some(latest)) = (reply, self.receiver.latest()) {
            self.local.show(latest.clone());
        }
        MessageResult(reply)
    }
}

impl Mirror {
    /// Takes a snapshot of the local master, if there are followers.
    fn take_snapshot(&mut self, ctx: &mut Context<Self>) {
        let master = self.local.master().filter(|_| self.leads);
        let Some(master) = master.filter(|_| !self.is_looking) else {
            return;
        };
        self.is_looking = true;
        let (status, clock, term) = (self.member.status(), ctx.clock().clone(), self.term);
        let looked = async move {
            let others = status.await.ok()?.others();
            let taken = clock.now();
            match others.is_empty() {
                true => None,
                false => Some((
                    others,
                    master.ask(TakeSnapshot, PATIENCE).await.ok()?,
                    taken,
                )),
            }
        };
        ctx.then(looked, move |mirror, seen, ctx| {
            mirror.is_looking = false;
            let is_settled =
                |state: &MasterState| state.is_settled(SETTLING_MAX, ctx.clock().wall());
            if let Some((others, state, taken)) = seen
                && (mirror.term, mirror.leads) == (term, true)
                // Until then the last leader's copy contains more.
                && is_settled(&state)
            {
                mirror.stream(&others, state, taken, ctx);
            }
        });
    }

    /// Sends the changes to the followers that have received their last batch.
    fn stream(
        &mut self,
        others: &BTreeSet<String>,
        state: Arc<MasterState>,
        taken: Instant,
        ctx: &mut Context<Self>,
    ) {
        // If another master leads next, pages here start with this copy.
        self.local.show(Arc::new(Mirrored {
            state: state.clone(),
            published: self.published.clone(),
            taken,
        }));
        for order in self.followers.next(others, &state) {
            let batch = Batch {
                term: self.term,
                state: state.clone(),
                published: self.published.clone(),
                taken,
                order,
            };
            let node = ctx.node().clone();
            let telling = async move {
                let (pid, answer) = batch.tell(&node).await;
                (batch, pid, answer)
            };
            ctx.then(telling, |mirror, (batch, pid, answer), _| {
                if batch.term == mirror.term {
                    mirror
                        .followers
                        .answered(&batch.order, batch.state, pid, answer);
                }
            });
        }
    }
}

/// A batch on its way to one follower.
struct Batch {
    term: u64,
    state: Arc<MasterState>,
    published: Arc<PublishedFlags>,
    taken: Instant,
    order: Order,
}

impl Batch {
    /// Sends the pieces; returns the follower's mirror, if it was found, and its last answer.
    async fn tell(&self, node: &Node) -> (Option<Pid>, Option<UpdateReply>) {
        let order = &self.order;
        let pid = match &order.pid {
            Some(pid) => pid.clone(),
            None => match node.find(&order.address, NAME, PATIENCE).await {
                Ok(pid) => pid,
                Err(_) => return (None, None),
            },
        };
        let (pieces, state, base) = (
            order.pieces.clone(),
            self.state.clone(),
            order.base.as_ref().map(|(_, state)| state.clone()),
        );
        let cutting = node.blocking(move || {
            pieces.get_or_init(|| cut(base.as_deref(), &state));
            pieces
        });
        let Ok(pieces) = cutting.await else {
            return (Some(pid), None);
        };
        let all = pieces.get().map_or(&[][..], Vec::as_slice);
        let count = u32::try_from(all.len()).unwrap_or(u32::MAX);
        if count > PIECES_MAX {
            tracing::warn!(
                pieces = count,
                "state too large for a mirror; followers redirect their readers"
            );
            return (Some(pid), None);
        }
        let mut answer = None;
        for (piece, changes) in (0..).zip(all) {
            let update = MirrorUpdate {
                term: self.term,
                sequence: order.sequence,
                base: self.base(),
                piece,
                pieces: count,
                age: node.clock().now() - self.taken,
                changes: changes.clone(),
            };
            answer = match node.ask(&pid, update, PATIENCE).await {
                Ok(answer) => Some(answer),
                Err(error) => {
                    tracing::debug!(%pid, %error, "cannot send to a follower's mirror");
                    return (None, None);
                }
            };
            if answer != Some(UpdateReply::Taken) {
                tracing::debug!(%pid, ?answer, "follower's mirror refuses the update");
                break;
            }
        }
        (Some(pid), answer)
    }

    fn base(&self) -> Base {
        match &self.order.base {
            Some((sequence, _)) => Base::Batch(*sequence),
            None => Base::Nothing(Box::new(LeaderInfo {
                master: self.state.master.clone(),
                elected: self.state.elected,
                started: self.state.started,
                published: PublishedFlags::clone(&self.published),
            })),
        }
    }
}

/// The changes since `base`, or the whole, in pieces; an empty piece means no change.
fn cut(base: Option<&MasterState>, state: &MasterState) -> Vec<Vec<Change>> {
    let pieces = match base {
        Some(base) if std::ptr::eq(base, state) => Vec::new(),
        Some(base) => size::in_pieces(difference::changes(base, state), PIECE_BYTES_MAX),
        None => {
            let nothing = MasterState::new(state.master.clone(), &Config::default(), state.started);
            size::in_pieces(difference::changes(&nothing, state), PIECE_BYTES_MAX)
        }
    };
    match pieces.is_empty() {
        true => vec![Vec::new()],
        false => pieces,
    }
}

#[cfg(test)]
pub(crate) mod tests;
