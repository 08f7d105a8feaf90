//! The event stream of the operator API: all that changes, told to whoever has subscribed (SPEC 2.6, W4).
//!
//! One actor follows the books of the master that acts here, for as long as somebody has subscribed: each tenth of a second it takes a
//! snapshot, finds what has changed since the one before (`changes`), and writes it once for each form (`encoding`) to all
//! (`subscribers`). A subscriber is told the whole of one snapshot first, and then what changes from that on. So the master pays for
//! one follower, however many have subscribed. Remembers the last snapshot, and the pages that it began streams with while somebody has
//! still to read them. Streams end with the master whose books they tell of. Decides nothing.

mod changes;
mod encoding;
mod subscribers;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::response::Response;
use bytes::Bytes;
use http::api::{Bounds, Events, Streams};
use runtime::prelude::*;
use runtime::{Errand, Instant, SpawnError, Timestamp};
use v1::Content;

use self::encoding::{ByForm, heartbeat, records, subscribed};
use self::subscribers::Subscribers;
use super::PATIENCE;
use crate::books::Books;
use crate::config::Config;
use crate::master::{Follow, Followed, Unfollow};
use crate::office::Front;

/// The name of the actor; pages run on the same thread.
const NAME: &str = "http-events";
/// Time between two snapshots. Shorter: fresher events, and more copies of the books' skeletons in a busy master.
const INTERVAL: Duration = Duration::from_millis(100);
/// Time between two heartbeats.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// The most bytes of first events that wait to be read, before one more.
const UNREAD_MAX: usize = 256 << 20;
/// How much one subscriber may leave unread. All share the same bytes, so this is what all of them hold, in each form; it has room for what a
/// busy master has to say at once.
const BOUNDS: Bounds = Bounds {
    bytes_max: 64 << 20,
    wait_max: Duration::from_secs(75),
};
/// How long it may take until a subscriber is told how all is.
const SUBSCRIBE_PATIENCE: Duration = Duration::from_secs(30);

/// Why nobody can subscribe just now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NotNow {
    /// No master acts here.
    #[error("no master acts here just now; try again")]
    NoMaster,
    /// It is about to.
    #[error("the master is reading its registry; try again")]
    Recovering,
    /// It did not answer.
    #[error("the master gave no answer in time; try again")]
    Late,
    /// Too much waits to be read.
    #[error(
        "{0} bytes wait to be read by those who have subscribed, which are more than {UNREAD_MAX}; try again"
    )]
    Unread(usize),
}

/// Where subscribers are taken in.
#[derive(Clone)]
pub struct EventStream {
    broadcaster: Handle<Broadcaster>,
    streams: Streams,
    open: Arc<AtomicUsize>,
}

/// Starts the actor on `node`, for the master that acts there.
pub fn open(
    node: &Node,
    front: &Front,
    config: &Config,
    streams: &Streams,
) -> Result<EventStream, SpawnError> {
    let (front, max) = (front.clone(), config.max_operator_event_stream_subscribers);
    let open = Arc::new(AtomicUsize::new(0));
    let count = open.clone();
    let again = Supervision::Restart {
        backoff: Duration::from_secs(1),
        backoff_max: Duration::from_secs(60),
        limit: u32::MAX,
    };
    let broadcaster = node.supervise(NAME, again, move || Broadcaster {
        front: front.clone(),
        subscribers: Subscribers::new(max),
        joining: Vec::new(),
        following: None,
        unread: Vec::new(),
        is_looking: false,
        next: None,
        heartbeat_due: Instant::default(),
        open: count.clone(),
    })?;
    Ok(EventStream {
        broadcaster,
        streams: streams.clone(),
        open,
    })
}

impl EventStream {
    /// How many have subscribed.
    pub fn subscribers(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// One more subscriber: the response that is its stream, once it can be told how all is.
    pub(super) async fn subscribe(&self, content: Content) -> Result<Response, NotNow> {
        let (events, response) = self.streams.open(content, BOUNDS);
        let subscribed = self.broadcaster.ask(Subscribe(events), SUBSCRIBE_PATIENCE);
        subscribed.await.unwrap_or(Err(NotNow::Late))?;
        Ok(response)
    }
}

/// Somebody subscribes. Answered when the first event is written.
struct Subscribe(Events);

type Subscribed = Result<(), NotNow>;

impl Message for Subscribe {
    type Result = Subscribed;
}

/// The actor.
pub struct Broadcaster {
    front: Front,
    subscribers: Subscribers,
    joining: Vec<(Events, Promise<Subscribed>)>,
    following: Option<Following>,
    /// First events that somebody may still have to read.
    unread: Vec<Bytes>,
    is_looking: bool,
    /// The next look.
    next: Option<Errand>,
    heartbeat_due: Instant,
    open: Arc<AtomicUsize>,
}

/// A master that is followed.
struct Following {
    master: Pid,
    books: Arc<Books>,
    /// The first event of who subscribes while the books are so.
    whole: ByForm<Option<Bytes>>,
}

impl Actor for Broadcaster {
    type Context = Context<Self>;
}

impl Process for Broadcaster {
    fn hears(_: &mut Ears<Self>) {}
}

impl Handler<Subscribe> for Broadcaster {
    type Result = Reply<Subscribed>;

    fn handle(&mut self, Subscribe(events): Subscribe, ctx: &mut Context<Self>) -> Self::Result {
        let (promise, reply) = promise();
        self.unread.retain(|record| !record.is_unique());
        let unread: usize = self.unread.iter().map(Bytes::len).sum();
        if unread > UNREAD_MAX {
            promise.answer(Err(NotNow::Unread(unread)));
        } else {
            self.joining.push((events, promise));
            self.look(ctx);
        }
        reply
    }
}

/// What a look at the books has found, ready to be written.
struct Seen {
    books: Arc<Books>,
    /// What has changed since the last look; none if that cannot be known.
    changed: Option<ByForm<Vec<Bytes>>>,
    whole: ByForm<Option<Bytes>>,
}

impl Broadcaster {
    /// Looks at the books, unless it does already; again after a while as long as somebody has subscribed.
    fn look(&mut self, ctx: &mut Context<Self>) {
        if self.is_looking {
            return;
        }
        if let Some(next) = self.next.take() {
            ctx.cancel(next);
        }
        let master = self.front.master();
        let is_same = |following: &Following| {
            let master = master.as_ref().map(Handle::pid);
            master.is_some_and(|master| master == following.master)
        };
        if !self.following.as_ref().is_some_and(is_same) {
            self.end();
        }
        let Some(master) = master else {
            return self.refuse(&NotNow::NoMaster);
        };
        self.count();
        if self.subscribers.len() == 0 && self.joining.is_empty() {
            self.following = None;
            self.unread.clear();
            // One that is gone follows nobody's orders.
            let _ = master.tell(Unfollow);
            return;
        }
        self.is_looking = true;
        let joining = std::mem::take(&mut self.joining);
        let before = self.following.as_ref();
        let before = before.map(|one| (one.books.clone(), one.whole.clone()));
        let told = ByForm::make(|form| self.subscribers.reads(form));
        let begun = ByForm::make(|form| joining.iter().any(|(events, _)| events.form() == form));
        let (node, at) = (ctx.node().clone(), ctx.clock().wall());
        let pid = master.pid();
        let seen = async move {
            let followed = master
                .ask(Follow, PATIENCE)
                .await
                .map_err(|_| NotNow::Late)?;
            if !followed.books.has_begun() {
                return Err(NotNow::Recovering);
            }
            let seen = node.blocking(move || see(before, followed, &told, &begun, at));
            seen.await.map_err(|_| NotNow::Late)
        };
        ctx.then(seen, move |this, seen, ctx| {
            this.is_looking = false;
            match seen {
                Ok(seen) => this.tell(pid, seen, joining, ctx),
                Err(not_now) => {
                    this.joining.extend(joining);
                    // A late answer takes along which tasks were over, and nobody hears it. Whoever has subscribed would miss them:
                    // they subscribe again, and know all.
                    this.end();
                    this.refuse(&not_now);
                }
            }
            match this.joining.is_empty() {
                true => this.next = Some(ctx.after(INTERVAL, Self::look)),
                false => this.look(ctx),
            }
        });
    }

    /// Writes what was seen: what has changed to those who know the rest, and all of it to those who are new.
    fn tell(
        &mut self,
        master: Pid,
        seen: Seen,
        joining: Vec<(Events, Promise<Subscribed>)>,
        ctx: &mut Context<Self>,
    ) {
        match &seen.changed {
            Some(changed) => self.subscribers.tell(changed),
            // They would miss something: they subscribe again, and know all.
            None => self.subscribers.end(),
        }
        let now = ctx.clock().now();
        if now >= self.heartbeat_due {
            self.heartbeat_due = now + HEARTBEAT;
            let heartbeat = ByForm::make(|form| records(form, &[heartbeat()]));
            self.subscribers.tell(&heartbeat);
        }
        self.unread.retain(|record| !record.is_unique());
        for whole in seen.whole.both().into_iter().flatten() {
            if !self.unread.iter().any(|one| one.as_ptr() == whole.as_ptr()) {
                self.unread.push(whole.clone());
            }
        }
        for (events, promise) in joining {
            let whole = seen.whole.of(events.form());
            // Whoever has gone meanwhile needs no answer.
            if let Some(whole) = whole
                && events.write_record(whole.clone()).is_ok()
            {
                self.subscribers.add(events);
                promise.answer(Ok(()));
            }
        }
        self.following = Some(Following {
            master,
            books: seen.books,
            whole: seen.whole,
        });
        self.count();
    }

    /// All streams end.
    fn end(&mut self) {
        self.subscribers.end();
        self.following = None;
        self.unread.clear();
        self.count();
    }

    /// Nobody can subscribe.
    fn refuse(&mut self, why: &NotNow) {
        for (_, promise) in self.joining.drain(..) {
            promise.answer(Err(why.clone()));
        }
    }

    fn count(&self) {
        self.open.store(self.subscribers.len(), Ordering::Relaxed);
    }
}

/// What has changed between what was known and what is, and all of it, in the forms in which somebody reads it.
fn see(
    before: Option<(Arc<Books>, ByForm<Option<Bytes>>)>,
    followed: Followed,
    told: &ByForm<bool>,
    begun: &ByForm<bool>,
    at: Timestamp,
) -> Seen {
    let Followed { books, over } = followed;
    let is_same = |(before, _): &(Arc<Books>, _)| Arc::ptr_eq(before, &books);
    let known = before.as_ref().filter(|before| is_same(before));
    let known = known.map(|(_, whole)| whole.clone()).unwrap_or_default();
    let changed = match (&before, over) {
        (Some((before, _)), Some(over)) => {
            let events = match Arc::ptr_eq(before, &books) {
                true => Vec::new(),
                false => changes::changes(before, &books, &over, at),
            };
            Some(ByForm::make(|form| match told.of(form) {
                true => records(form, &events),
                false => Vec::new(),
            }))
        }
        _ => None,
    };
    let whole = ByForm::make(|form| match (known.of(form), begun.of(form)) {
        (Some(whole), _) => Some(whole.clone()),
        (None, true) => Some(subscribed(form, &books)),
        (None, false) => None,
    });
    Seen {
        books,
        changed,
        whole,
    }
}

#[cfg(test)]
mod tests;
