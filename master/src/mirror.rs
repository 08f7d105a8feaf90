//! Mirror: what the leader knows of agents, frameworks, tasks and offers, kept warm on every master of a group.
//!
//! Where this node's member leads it takes the master's snapshot each second and tells the mirrors of the other masters what has changed
//! since the one they have ([`difference`]). Elsewhere it hears [`BooksChanged`] from the leader's mirror, and shows pages what it has
//! ([`Mirrored`], in [`Front`]). It hears nobody but masters, believes nothing of another term than its own member knows, and keeps what
//! the last leader said until the next has more to say: so a new leader can answer reads at once. Nothing is decided from a mirror, and
//! nothing of it is ever offered, launched or written down.
//!
//! A batch is the difference of two snapshots, cut in pieces. A follower has at most one under way, and each piece waits for the answer to
//! the one before. Whoever misses something, or is new, gets the whole.

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
use crate::books::Books;
use crate::config::Config;
use crate::http::Chosen;
use crate::master::TakeSnapshot;
use crate::office::Front;
use crate::registry::RegistryMachine;
use crate::size;

/// The name of the actor: where the leader's mirror finds it.
pub const NAME: &str = "mirror";

/// Time between two snapshots. Shorter: fresher followers, and more copies of the books' skeletons in a busy master.
const INTERVAL: Duration = Duration::from_secs(1);

/// A mirror that is older serves nobody.
pub const STALENESS_MAX: Duration = Duration::from_secs(30);

/// How long a new leader's own books may wait for agents before pages are made from them all the same.
pub(crate) const SETTLING_MAX: Duration = Duration::from_secs(10);

/// The most bytes of one piece: small, for what the members say to each other travels in the same stream.
const PIECE_BYTES_MAX: usize = 128 * 1024;

/// The most pieces of one batch, 2 GiB in all. Larger books are not mirrored.
pub(crate) const PIECES_MAX: u32 = 16 * 1024;

/// How long a follower may take to be found, or to take one piece.
const PATIENCE: Duration = Duration::from_secs(10);

/// The leader's books, as they were some time ago.
#[derive(Clone, Debug)]
pub struct Mirrored {
    /// As far as pages are made from them.
    pub books: Arc<Books>,
    /// What the leader's operator has chosen.
    pub(crate) chosen: Arc<Chosen>,
    /// When the leader had them so, by this node's clock.
    pub taken: Instant,
}

impl Mirrored {
    /// How old it is.
    pub fn staleness(&self, now: Instant) -> Duration {
        now - self.taken
    }

    /// Whose books they are, as `host:port`.
    pub fn leader(&self) -> String {
        let master = &self.books.master;
        format!("{}:{}", master.hostname, master.port)
    }
}

/// The books are not as they were: one piece of a batch of changes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BooksChanged {
    /// The term in which the sender leads.
    pub term: u64,
    /// The batch's number, which grows within the term.
    pub sequence: u64,
    /// What it changes.
    pub base: Base,
    /// Which piece this is, from 0 on.
    pub piece: u32,
    /// How many pieces the batch has.
    pub pieces: u32,
    /// How old the snapshot was when this was sent.
    pub age: Duration,
    /// The changes.
    pub changes: Vec<Change>,
}

/// What a batch changes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Base {
    /// Nothing: the batch is the whole.
    Nothing(Box<Words>),
    /// What was there after the batch of this number, in the same term.
    Batch(u64),
}

/// What a leader says of itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Words {
    /// Who it is.
    pub master: MasterInfo,
    /// Since when it leads.
    pub elected: Timestamp,
    /// Since when it runs.
    pub started: Timestamp,
    /// What its operator has chosen, as far as pages show it.
    pub(crate) chosen: Chosen,
}

/// What a follower says to a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Heard {
    /// It has it.
    Taken,
    /// It lacks what the piece builds on.
    WantsWhole,
    /// It does not follow this leader: its member is in another term, or leads itself.
    Refused {
        /// The term it knows.
        term: u64,
    },
}

remote! { BooksChanged = "mirror/books_changed" v6 -> Heard }

/// The member says who leads now.
struct Elected(Leadership);

impl Message for Elected {
    type Result = ();
}

/// The actor.
pub struct Mirror {
    member: MemberHandle<RegistryMachine>,
    chosen: Arc<Chosen>,
    front: Front,
    leads: bool,
    term: u64,
    receiver: Receiver,
    followers: Followers,
    /// A snapshot is being taken.
    is_looking: bool,
}

/// Starts the actor [`NAME`] on `node`. After a fall it begins empty, and asks for the whole.
pub fn open(
    node: &Node,
    config: &Config,
    member: &MemberHandle<RegistryMachine>,
    front: &Front,
) -> Result<Handle<Mirror>, SpawnError> {
    let (config, member, front) = (config.clone(), member.clone(), front.clone());
    let again = Supervision::Restart {
        backoff: Duration::from_secs(1),
        backoff_max: Duration::from_secs(60),
        limit: u32::MAX,
    };
    node.supervise(NAME, again, move || Mirror {
        member: member.clone(),
        chosen: Arc::new(Chosen::of(&config)),
        front: front.clone(),
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
            .watch(move |leadership| mirror.tell(Elected(leadership.clone())).is_ok());
        ctx.every(INTERVAL, |mirror, ctx| mirror.look(ctx));
    }
}

impl Process for Mirror {
    fn hears(ears: &mut Ears<Self>) {
        ears.hear::<BooksChanged>(&[Role::Master]);
    }
}

impl Handler<Elected> for Mirror {
    type Result = ();

    fn handle(&mut self, Elected(now): Elected, ctx: &mut Context<Self>) {
        if now.term != self.term {
            self.followers = Followers::default();
        }
        (self.leads, self.term) = (now.leads(), now.term);
        if now.ended.is_some() {
            ctx.stop();
        }
    }
}

impl Handler<BooksChanged> for Mirror {
    type Result = MessageResult<BooksChanged>;

    fn handle(&mut self, said: BooksChanged, ctx: &mut Context<Self>) -> Self::Result {
        if self.leads {
            return MessageResult(Heard::Refused { term: self.term });
        }
        let heard = self.receiver.hear(said, self.term, ctx.clock().now());
        if let (Heard::Taken, Some(latest)) = (heard, self.receiver.latest()) {
            self.front.show(latest.clone());
        }
        MessageResult(heard)
    }
}

impl Mirror {
    /// Takes the snapshot of the master that acts here, if there is anybody to tell.
    fn look(&mut self, ctx: &mut Context<Self>) {
        let master = self.front.master().filter(|_| self.leads);
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
            let is_settled = |books: &Books| books.is_settled(SETTLING_MAX, ctx.clock().wall());
            if let Some((others, books, taken)) = seen
                && (mirror.term, mirror.leads) == (term, true)
                // Until then what the last leader said is more than this one could say.
                && is_settled(&books)
            {
                mirror.stream(&others, books, taken, ctx);
            }
        });
    }

    /// Tells those who have taken the last batch what has changed since.
    fn stream(
        &mut self,
        others: &BTreeSet<String>,
        books: Arc<Books>,
        taken: Instant,
        ctx: &mut Context<Self>,
    ) {
        // Should another lead next, pages here begin with this.
        self.front.show(Arc::new(Mirrored {
            books: books.clone(),
            chosen: self.chosen.clone(),
            taken,
        }));
        for order in self.followers.next(others, &books) {
            let batch = Batch {
                term: self.term,
                books: books.clone(),
                chosen: self.chosen.clone(),
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
                        .told(&batch.order, batch.books, pid, answer);
                }
            });
        }
    }
}

/// A batch on its way to one follower.
struct Batch {
    term: u64,
    books: Arc<Books>,
    chosen: Arc<Chosen>,
    taken: Instant,
    order: Order,
}

impl Batch {
    /// Tells it piece by piece; gives the follower's mirror, if it is there, and its answer to the last piece it was told.
    async fn tell(&self, node: &Node) -> (Option<Pid>, Option<Heard>) {
        let order = &self.order;
        let pid = match &order.pid {
            Some(pid) => pid.clone(),
            None => match node.find(&order.address, NAME, PATIENCE).await {
                Ok(pid) => pid,
                Err(_) => return (None, None),
            },
        };
        let (pieces, books, base) = (
            order.pieces.clone(),
            self.books.clone(),
            order.base.as_ref().map(|(_, books)| books.clone()),
        );
        let cutting = node.blocking(move || {
            pieces.get_or_init(|| cut(base.as_deref(), &books));
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
                "too much for a mirror: followers send their readers here"
            );
            return (Some(pid), None);
        }
        let mut answer = None;
        for (piece, changes) in (0..).zip(all) {
            let said = BooksChanged {
                term: self.term,
                sequence: order.sequence,
                base: self.base(),
                piece,
                pieces: count,
                age: node.clock().now() - self.taken,
                changes: changes.clone(),
            };
            answer = match node.ask(&pid, said, PATIENCE).await {
                Ok(answer) => Some(answer),
                Err(error) => {
                    tracing::debug!(%pid, %error, "a follower's mirror was not told");
                    return (None, None);
                }
            };
            if answer != Some(Heard::Taken) {
                tracing::debug!(%pid, ?answer, "a follower's mirror does not take this");
                break;
            }
        }
        (Some(pid), answer)
    }

    fn base(&self) -> Base {
        match &self.order.base {
            Some((sequence, _)) => Base::Batch(*sequence),
            None => Base::Nothing(Box::new(Words {
                master: self.books.master.clone(),
                elected: self.books.elected,
                started: self.books.started,
                chosen: Chosen::clone(&self.chosen),
            })),
        }
    }
}

/// The changes since `base`, or the whole, in pieces; one without changes says that nothing has.
fn cut(base: Option<&Books>, books: &Books) -> Vec<Vec<Change>> {
    let pieces = match base {
        Some(base) if std::ptr::eq(base, books) => Vec::new(),
        Some(base) => size::in_pieces(difference::changes(base, books), PIECE_BYTES_MAX),
        None => {
            let nothing = Books::new(books.master.clone(), &Config::default(), books.started);
            size::in_pieces(difference::changes(&nothing, books), PIECE_BYTES_MAX)
        }
    };
    match pieces.is_empty() {
        true => vec![Vec::new()],
        false => pieces,
    }
}

#[cfg(test)]
pub(crate) mod tests;
