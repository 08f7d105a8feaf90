//! The event stream of the operator API: sends changes to all subscribers.
//!
//! One actor follows the local master's state while there are subscribers. After a change it takes
//! a snapshot, at most every 100 ms, computes the events since the previous one (`changes`), and
//! writes them once per form (`encoding`) to all subscribers with the same visibility
//! (`views`). A subscriber first gets a whole snapshot, and then the changes. So the master pays
//! for one follower regardless of the number of subscribers, and for nothing while nothing changes.
//! Keeps the last snapshot, and the first event as long as it is current. Streams end with their
//! master, and when changed ACLs alter their visibility.
//!
//! | module | contents |
//! |---|---|
//! | `changes` | the difference of two snapshots as events of the operator API |
//! | `cuts` | reasons for which streams of operator events are cut off |
//! | `encoding` | each event encoded once per form for all readers |
//! | `unread` | memory held by unread first events and unread changes |
//! | `viewer` | a subscriber's identity and visibility |
//! | `views` | the subscribers of the stream |

mod changes;
mod cuts;
mod encoding;
mod unread;
mod viewer;
mod views;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use authority::{Acls, Reloadable};
use axum::response::Response;
use http::api::{Bounds, EventStreams, EventWriter};
use runtime::prelude::*;
use runtime::{Instant, Patience, SpawnError, TimerHandle, Timestamp};
use v1::Content;

use self::cuts::Cuts;
use self::encoding::{ByForm, heartbeat, records};
pub(super) use self::viewer::Viewer;
use self::views::{ViewRequest, ViewResult, Views};
use super::PATIENCE;
use crate::api::RECOVERING;
use crate::api::visibility::Visibility;
use crate::config::Config;
use crate::leadership::LocalLeader;
use crate::master::{Follow, Followed, Unfollow, Watch};
use crate::state::MasterState;

/// The actor's name; pages run on the same thread.
const NAME: &str = "http-events";
/// Minimum time between two snapshots. Shorter: fresher events, and more copies of the state's
/// skeleton in a busy master.
const INTERVAL: Duration = Duration::from_millis(100);
/// Interval of heartbeats.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// Maximum unread bytes of first events, beyond which subscriptions are refused, and of changes,
/// beyond which the slowest subscriber is cut off.
const UNREAD_MAX: usize = 256 << 20;
/// Bounds of one subscriber. Subscribers with the same visibility share the same bytes per form, so
/// this bounds all of them together, with room for a busy master's bursts. The total over different
/// visibilities is bounded by the views.
pub const BOUNDS: Bounds = Bounds {
    bytes_max: 64 << 20,
    wait_max: Duration::from_secs(75),
    common_max: None,
};
/// Time limit for a subscriber's first event.
const SUBSCRIBE_PATIENCE: Duration = Duration::from_secs(30);

/// Why a subscription is not possible now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NotNow {
    /// No local master.
    #[error("no master acts here now; try again")]
    NoMaster,
    /// It has not read its registry yet.
    #[error("{RECOVERING}")]
    Recovering,
    /// It did not answer.
    #[error("the master did not answer in time; try again")]
    Late,
    /// Too many unread bytes.
    #[error("subscribers have {0} unread bytes, more than {UNREAD_MAX}; try again")]
    Unread(usize),
}

/// Entrance for subscribers.
#[derive(Clone)]
pub struct EventStream {
    broadcaster: Handle<Broadcaster>,
    streams: EventStreams,
    open: Arc<AtomicUsize>,
    cuts: Cuts,
}

/// Starts the actor on `node`, for the local master.
pub fn open(
    node: &Node,
    local: &LocalLeader,
    config: &Config,
    streams: &EventStreams,
) -> Result<EventStream, SpawnError> {
    let (local, acls) = (local.clone(), config.acls.clone());
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
        local: local.clone(),
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
    /// Number of subscribers.
    pub fn subscribers(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Numbers of cut-off subscribers by reason, under the names of their metrics.
    pub fn cut_off(&self) -> impl Iterator<Item = (String, f64)> + use<> {
        self.cuts.metrics()
    }

    /// Adds a subscriber; returns the response with its stream once the first event is written. It
    /// gets what it may see, and is cut off when that changes.
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

/// A subscription. Answered when the first event is written.
struct Subscribe {
    events: EventWriter,
    viewer: Viewer,
}

type Subscribed = Result<(), NotNow>;

impl Message for Subscribe {
    type Result = Subscribed;
}

/// The actor.
pub struct Broadcaster {
    local: LocalLeader,
    /// For authorization.
    acls: Reloadable<Acls>,
    views: Views,
    following: Option<Following>,
    is_looking: bool,
    /// The pending request for a change of the state.
    watched: Option<TimerHandle>,
    /// The timer of the next beat.
    next: Option<TimerHandle>,
    heartbeat_due: Instant,
    open: Arc<AtomicUsize>,
}

/// The followed master, and the last snapshot.
struct Following {
    master: Pid,
    state: Arc<MasterState>,
}

impl Actor for Broadcaster {
    type Context = Context<Self>;
}

impl Process for Broadcaster {
    fn accepts(_: &mut RemoteHandlers<Self>) {}
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
            // The ACLs may have changed since the request.
            viewer.reevaluate(&self.acls.current());
            self.views.join(viewer, events, promise);
            self.take_snapshot(ctx);
        }
        reply
    }
}

impl Broadcaster {
    /// Regular work: forgets closed streams, and takes a snapshot if it changed.
    fn beat(&mut self, ctx: &mut Context<Self>) {
        self.maintain(ctx);
        self.views.forget_closed();
        self.count();
        match self.watched.is_none() || self.views.is_empty() {
            true => self.take_snapshot(ctx),
            false => self.schedule_beat(ctx),
        }
    }

    /// Work that is due in any case: cuts off subscribers whose visibility has changed, and sends
    /// heartbeats. Runs at each beat and after each snapshot, because frequent subscriptions
    /// replace the beats.
    fn maintain(&mut self, ctx: &Context<Self>) {
        self.views.reevaluate(&self.acls.current());
        let now = ctx.clock().now();
        if now >= self.heartbeat_due {
            self.heartbeat_due = now + HEARTBEAT;
            let heartbeat = ByForm::make(|form| records(form, &[heartbeat()]));
            self.views.publish(&heartbeat);
        }
    }

    /// Schedules the next beat.
    fn schedule_beat(&mut self, ctx: &mut Context<Self>) {
        self.next = Some(ctx.after(INTERVAL, |this, ctx| {
            this.next = None;
            this.beat(ctx);
        }));
    }

    /// Takes a snapshot, unless one is under way.
    fn take_snapshot(&mut self, ctx: &mut Context<Self>) {
        if self.is_looking {
            return;
        }
        for errand in [self.next.take(), self.watched.take()] {
            errand.into_iter().for_each(|errand| ctx.cancel(errand));
        }
        let master = self.local.master();
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
            // If the master has ended, nothing is left to stop.
            let _ = master.tell(Unfollow);
            return;
        }
        self.is_looking = true;
        let wanted = self.views.begin();
        let before = self.following.as_ref().map(|one| one.state.clone());
        let (node, at) = (ctx.node().clone(), ctx.clock().wall());
        let asked = master.clone();
        let seen = async move {
            let followed = asked
                .ask(Follow, PATIENCE)
                .await
                .map_err(|_| NotNow::Late)?;
            if !followed.state.has_begun() {
                return Err(NotNow::Recovering);
            }
            let seen =
                node.blocking(move || events_for_views(before.as_ref(), &followed, wanted, at));
            seen.await.map_err(|_| NotNow::Late)
        };
        ctx.then(seen, move |this, seen, ctx| {
            this.is_looking = false;
            match seen {
                Ok((state, got)) => this.publish(&master, state, got, ctx),
                Err(not_now) => {
                    // A late answer has consumed the task notes, and the subscribers would miss
                    // them: they subscribe again and get the whole state.
                    this.end();
                    this.views.refuse(&not_now);
                }
            }
            match this.views.is_joined() {
                true => this.take_snapshot(ctx),
                false => this.schedule_beat(ctx),
            }
        });
    }

    /// Writes the events, which forgets closed streams, and waits for a change.
    fn publish(
        &mut self,
        master: &Handle<crate::master::Master>,
        state: Arc<MasterState>,
        got: Vec<ViewResult>,
        ctx: &mut Context<Self>,
    ) {
        self.maintain(ctx);
        self.views.end(got);
        let changed = master.ask(Watch(state.clone()), Patience::WhileLinked);
        // Changed, or the master has ended: the next beat finds out.
        self.watched = Some(ctx.then(changed, |this: &mut Self, _, _| this.watched = None));
        if self.following.is_none() {
            self.heartbeat_due = ctx.clock().now() + HEARTBEAT;
        }
        let master = master.pid();
        self.following = Some(Following { master, state });
        self.count();
    }

    /// Ends all streams.
    fn end(&mut self) {
        self.views.cut();
        self.following = None;
        self.count();
    }

    fn count(&self) {
        self.open.store(self.views.len(), Ordering::Relaxed);
    }
}

/// The events for each view between `before` and now.
fn events_for_views(
    before: Option<&Arc<MasterState>>,
    followed: &Followed,
    wanted: Vec<ViewRequest>,
    at: Timestamp,
) -> (Arc<MasterState>, Vec<ViewResult>) {
    let Followed { state, noted } = followed;
    let is_same = before.is_some_and(|before| Arc::ptr_eq(before, state));
    let got = wanted.into_iter().map(|wanted| {
        let changes =
            |visibility: &Visibility, old: &MasterState, new: &MasterState, told: &ByForm<bool>| {
                let (before, noted) = (before?, noted.as_ref()?);
                let events = match is_same {
                    true => Vec::new(),
                    false => {
                        let seen = noted.iter().filter(|one| {
                            let of = [before, state];
                            of.iter().any(|state| visibility.sees(&one.task, state))
                        });
                        changes::changes(old, new, &seen.collect::<Vec<_>>(), at)
                    }
                };
                Some(ByForm::make(|form| match told.of(form) {
                    true => records(form, &events),
                    false => Vec::new(),
                }))
            };
        wanted.of(state, changes, is_same)
    });
    let got = got.collect();
    (state.clone(), got)
}

#[cfg(test)]
mod tests;
