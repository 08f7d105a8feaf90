//! The event stream of the operator API: all that changes, told to whoever has subscribed (SPEC 2.6, W4).
//!
//! One actor follows the books of the master that acts here, for as long as somebody has subscribed. When they have changed it takes a
//! snapshot, at most each tenth of a second, finds what has changed since the one before (`changes`), and writes it once for each form
//! (`encoding`) to all who see the same (`views`). A subscriber is told the whole of one snapshot first, and then what changes from that on. So
//! the master pays for one follower, however many have subscribed, and for nothing while nothing changes. Remembers the last snapshot, and
//! the page that streams begin with while nothing has changed since. Streams end with the master whose books they tell of, and
//! when other ACLs hold by which their reader sees something else. Decides nothing.

mod changes;
mod cuts;
mod encoding;
mod unread;
mod viewer;
mod views;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use authority::{Acls, Shared};
use axum::response::Response;
use http::api::{Bounds, Events, Streams};
use runtime::prelude::*;
use runtime::{Errand, Instant, Patience, SpawnError, Timestamp};
use v1::Content;

use self::cuts::Cuts;
use self::encoding::{ByForm, heartbeat, records};
pub(super) use self::viewer::Viewer;
use self::views::{Got, Views, Wanted};
use super::PATIENCE;
use crate::books::Books;
use crate::config::Config;
use crate::master::{Follow, Followed, Unfollow, Watch};
use crate::office::Front;
use crate::sight::Sight;

/// The name of the actor; pages run on the same thread.
const NAME: &str = "http-events";
/// Time between two snapshots, while books change. Shorter: fresher events, and more copies of the books' skeletons in a busy master.
const INTERVAL: Duration = Duration::from_millis(100);
/// Time between two heartbeats.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// The most bytes of first events that wait to be read, before one more, and of changes, before the slowest of all is cut off.
const UNREAD_MAX: usize = 256 << 20;
/// How much one subscriber may leave unread. All who see the same share the same bytes, so this is what all of them hold, in each form; it has room for
/// what a busy master has to say at once. What those hold together who see different things is bounded by the views.
pub const BOUNDS: Bounds = Bounds {
    bytes_max: 64 << 20,
    wait_max: Duration::from_secs(75),
    together_max: None,
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
    cuts: Cuts,
}

/// Starts the actor on `node`, for the master that acts there.
pub fn open(
    node: &Node,
    front: &Front,
    config: &Config,
    streams: &Streams,
) -> Result<EventStream, SpawnError> {
    let (front, acls) = (front.clone(), config.acls.clone());
    let max = config.max_operator_event_stream_subscribers;
    let open = Arc::new(AtomicUsize::new(0));
    let (count, cuts) = (open.clone(), Cuts::default());
    let noted = cuts.clone();
    let again = Supervision::Restart {
        backoff: Duration::from_secs(1),
        backoff_max: Duration::from_secs(60),
        limit: u32::MAX,
    };
    let broadcaster = node.supervise(NAME, again, move || Broadcaster {
        front: front.clone(),
        acls: acls.clone(),
        views: Views::new(max, noted.clone()),
        following: None,
        is_looking: false,
        watched: None,
        next: None,
        heartbeat_due: Instant::default(),
        open: count.clone(),
    })?;
    Ok(EventStream {
        broadcaster,
        streams: streams.clone(),
        open,
        cuts,
    })
}

impl EventStream {
    /// How many have subscribed.
    pub fn subscribers(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// How many have been cut off, by reason, under the names of their metrics.
    pub fn cut_off(&self) -> impl Iterator<Item = (String, f64)> + use<> {
        self.cuts.metrics()
    }

    /// One more subscriber: the response that is its stream, once it can be told how all is. It is told what it sees, and cut off when it
    /// sees something else.
    pub(super) async fn subscribe(
        &self,
        content: Content,
        viewer: impl Into<Viewer>,
    ) -> Result<Response, NotNow> {
        let (events, response) = self.streams.open(content, BOUNDS);
        let viewer = viewer.into();
        let subscribe = Subscribe { events, viewer };
        let subscribed = self.broadcaster.ask(subscribe, SUBSCRIBE_PATIENCE);
        subscribed.await.unwrap_or(Err(NotNow::Late))?;
        Ok(response)
    }
}

/// Somebody subscribes. Answered when the first event is written.
struct Subscribe {
    events: Events,
    viewer: Viewer,
}

type Subscribed = Result<(), NotNow>;

impl Message for Subscribe {
    type Result = Subscribed;
}

/// The actor.
pub struct Broadcaster {
    front: Front,
    /// Who may see what.
    acls: Shared<Acls>,
    views: Views,
    following: Option<Following>,
    is_looking: bool,
    /// The question whether the books have changed, while it is not answered.
    watched: Option<Errand>,
    /// The next beat.
    next: Option<Errand>,
    heartbeat_due: Instant,
    open: Arc<AtomicUsize>,
}

/// A master that is followed, and what it knew.
struct Following {
    master: Pid,
    books: Arc<Books>,
}

impl Actor for Broadcaster {
    type Context = Context<Self>;
}

impl Process for Broadcaster {
    fn hears(_: &mut Ears<Self>) {}
}

impl Handler<Subscribe> for Broadcaster {
    type Result = Reply<Subscribed>;

    fn handle(&mut self, subscribe: Subscribe, ctx: &mut Context<Self>) -> Self::Result {
        let Subscribe { events, mut viewer } = subscribe;
        let (promise, reply) = promise();
        let unread = self.views.unread();
        if unread > UNREAD_MAX {
            promise.answer(Err(NotNow::Unread(unread)));
        } else {
            // Other ACLs may hold than when it asked.
            viewer.judge(&self.acls.now());
            self.views.join(viewer, events, promise);
            self.look(ctx);
        }
        reply
    }
}

impl Broadcaster {
    /// Between two looks: forgets who has gone, and looks if there is something to see.
    fn beat(&mut self, ctx: &mut Context<Self>) {
        self.tend(ctx);
        self.views.forget_gone();
        self.count();
        match self.watched.is_none() || self.views.is_empty() {
            true => self.look(ctx),
            false => self.rest(ctx),
        }
    }

    /// What is due whether or not anything has changed: cuts off who sees something else by now, and says that the master lives. At each
    /// beat, and after each look: while somebody joins at every moment there is no beat.
    fn tend(&mut self, ctx: &Context<Self>) {
        self.views.judge(&self.acls.now());
        let now = ctx.clock().now();
        if now >= self.heartbeat_due {
            self.heartbeat_due = now + HEARTBEAT;
            let heartbeat = ByForm::make(|form| records(form, &[heartbeat()]));
            self.views.tell(&heartbeat);
        }
    }

    /// Until the next beat.
    fn rest(&mut self, ctx: &mut Context<Self>) {
        self.next = Some(ctx.after(INTERVAL, |this, ctx| {
            this.next = None;
            this.beat(ctx);
        }));
    }

    /// Looks at the books, unless it does already.
    fn look(&mut self, ctx: &mut Context<Self>) {
        if self.is_looking {
            return;
        }
        for errand in [self.next.take(), self.watched.take()] {
            errand.into_iter().for_each(|errand| ctx.cancel(errand));
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
            return self.views.refuse(&NotNow::NoMaster);
        };
        self.count();
        if self.views.is_empty() {
            self.following = None;
            // One that is gone follows nobody's orders.
            let _ = master.tell(Unfollow);
            return;
        }
        self.is_looking = true;
        let wanted = self.views.begin();
        let before = self.following.as_ref().map(|one| one.books.clone());
        let (node, at) = (ctx.node().clone(), ctx.clock().wall());
        let asked = master.clone();
        let seen = async move {
            let followed = asked
                .ask(Follow, PATIENCE)
                .await
                .map_err(|_| NotNow::Late)?;
            if !followed.books.has_begun() {
                return Err(NotNow::Recovering);
            }
            let seen = node.blocking(move || see(before.as_ref(), &followed, wanted, at));
            seen.await.map_err(|_| NotNow::Late)
        };
        ctx.then(seen, move |this, seen, ctx| {
            this.is_looking = false;
            match seen {
                Ok((books, got)) => this.tell(&master, books, got, ctx),
                Err(not_now) => {
                    // A late answer takes along what was noted, and nobody hears it. Whoever has subscribed would miss that: they
                    // subscribe again, and know all.
                    this.end();
                    this.views.refuse(&not_now);
                }
            }
            match this.views.is_joined() {
                true => this.look(ctx),
                false => this.rest(ctx),
            }
        });
    }

    /// Writes what was seen, which forgets who has gone, and waits for a change.
    fn tell(
        &mut self,
        master: &Handle<crate::master::Master>,
        books: Arc<Books>,
        got: Vec<Got>,
        ctx: &mut Context<Self>,
    ) {
        self.tend(ctx);
        self.views.end(got);
        let changed = master.ask(Watch(books.clone()), Patience::WhileLinked);
        // It has changed, or there is nothing to wait for: the next beat finds out.
        self.watched = Some(ctx.then(changed, |this: &mut Self, _, _| this.watched = None));
        if self.following.is_none() {
            self.heartbeat_due = ctx.clock().now() + HEARTBEAT;
        }
        let master = master.pid();
        self.following = Some(Following { master, books });
        self.count();
    }

    /// All streams end.
    fn end(&mut self) {
        self.views.cut();
        self.following = None;
        self.count();
    }

    fn count(&self) {
        self.open.store(self.views.len(), Ordering::Relaxed);
    }
}

/// What each view gets of what is known now, where `before` was known before.
fn see(
    before: Option<&Arc<Books>>,
    followed: &Followed,
    wanted: Vec<Wanted>,
    at: Timestamp,
) -> (Arc<Books>, Vec<Got>) {
    let Followed { books, noted } = followed;
    let is_same = before.is_some_and(|before| Arc::ptr_eq(before, books));
    let got = wanted.into_iter().map(|wanted| {
        let changes = |sight: &Sight, old: &Books, new: &Books, told: &ByForm<bool>| {
            let (before, noted) = (before?, noted.as_ref()?);
            let events = match is_same {
                true => Vec::new(),
                false => {
                    let seen = noted.iter().filter(|one| {
                        let of = [before, books];
                        of.iter().any(|books| sight.sees(&one.task, books))
                    });
                    changes::changes(old, new, &seen.collect::<Vec<_>>(), at)
                }
            };
            Some(ByForm::make(|form| match told.of(form) {
                true => records(form, &events),
                false => Vec::new(),
            }))
        };
        wanted.of(books, changes, is_same)
    });
    let got = got.collect();
    (books.clone(), got)
}

#[cfg(test)]
mod tests;
