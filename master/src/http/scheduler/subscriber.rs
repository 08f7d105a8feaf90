//! Subscriber: the scheduler of one framework that subscribed over HTTP, as the master knows it.
//!
//! Hears what any scheduler hears, and writes it into its stream in the words of the v1 API. It lives as long as the stream, its reader and
//! its master do, whichever ends first: then the master hears that it has ended, as of a driver. Makes no calls: those come over other
//! connections. Keeps nothing back: a reader that is too slow is cut off with a reason.

use std::time::Duration;

use ::http::api::{Bounds, Events, Refusal, Streams};
use axum::http::HeaderValue;
use axum::response::Response;
use protocol::message::scheduler::{
    FrameworkFailed, FrameworkMessage, InverseOfferRescinded, InverseOffersMade, Lost,
    OfferRescinded, OffersMade, OperationChanged, StatusChanged, Subscribe, Subscribed,
    SubscriptionRefused, TasksRevoked,
};
use protocol::{FrameworkInfo, Uuid, Wants};
use runtime::prelude::*;
use v1::convert::master_info;
use v1::convert::older::{offer_for, operation_status_for};
use v1::convert::scheduler::Subject;
use v1::schema::scheduler::Event;
use v1::{Content, media};

use super::SUBSCRIBE_PATIENCE;
use super::decide::{Turned, turned};
use super::desk::{Desk, Line, Opened, Place};
use crate::master::{HeartbeatWritten, Master};

/// How often a stream says that it lives (SPEC 2.3).
pub(super) const HEARTBEAT: Duration = Duration::from_secs(15);
/// How much one stream may hold back: what a framework of many tasks is told when it asks how all of them are, may well be more than its reader takes at once. What all
/// hold back together has its own bound.
const BYTES_MAX: usize = 64 << 20;
/// While more than so much waits to be read, who asks about many tasks is told of no more: the answers to one part of what it asks take far less than what is left.
const ROOM: usize = BYTES_MAX / 2;
/// Events that overtake the answer to the subscription; more are dropped (updates are sent again, offers time out).
const HELD_MAX: usize = 10_000;

/// Subscribe this framework, and give the answer with its stream.
pub(super) struct Begin {
    /// Who it is.
    pub framework: FrameworkInfo,
    /// Which offers it would like.
    pub wants: Wants,
    /// In which form it reads.
    pub content: Content,
}

impl Message for Begin {
    type Result = Result<Response, Refusal>;
}

/// The framework is this from now on, and is told what it understands.
pub(super) struct Become(pub FrameworkInfo);

impl Message for Become {
    type Result = ();
}

/// Write the answers to these entries of a call.
pub(super) struct Answer(pub Vec<Subject>);

impl Message for Answer {
    type Result = ();
}

/// Answered when all that was heard before stands in the stream.
pub(super) struct Written;

impl Message for Written {
    type Result = ();
}

/// Answered when the stream has room for the answers to one more part of a question, or has ended.
pub(super) struct Room;

impl Message for Room {
    type Result = ();
}

/// A new stream, with its id.
fn open(node: &Node, streams: &Streams, content: Content) -> (String, Events, Response) {
    let stream_id = Uuid(node.secret()).to_string();
    let (events, mut response) = streams.open(content, bounds());
    if let Ok(id) = HeaderValue::from_str(&stream_id) {
        response.headers_mut().insert(media::STREAM_ID, id);
    }
    (stream_id, events, response)
}

/// A stream whose only event is the error with this message.
pub(super) fn refused_stream(
    node: &Node,
    streams: &Streams,
    content: Content,
    message: String,
) -> Response {
    let (_, events, response) = open(node, streams, content);
    events.cut(Some(&Event::error(message)));
    response
}

/// What a scheduler's stream may hold back.
fn bounds() -> Bounds {
    Bounds {
        bytes_max: BYTES_MAX,
        ..Bounds::default()
    }
}

/// How far it is.
enum Phase {
    /// The master is asked; what it tells meanwhile waits here.
    Subscribing(Vec<Heard>),
    /// The framework reads.
    Open { events: Events, opened: Opened },
}

/// What a scheduler hears.
enum Heard {
    Offers(OffersMade),
    Rescinded(OfferRescinded),
    Inverse(InverseOffersMade),
    InverseRescinded(InverseOfferRescinded),
    Status(Box<StatusChanged>),
    Operation(Box<OperationChanged>),
    Message(FrameworkMessage),
    Lost(Lost),
    Failed(FrameworkFailed),
}

/// The actor.
pub(super) struct Subscriber {
    master: Handle<Master>,
    streams: Streams,
    desk: Desk,
    framework: Option<FrameworkInfo>,
    phase: Phase,
    /// A timer runs after which the reader is looked at again.
    looks: bool,
    _place: Place,
}

impl Subscriber {
    /// Of this master; it takes this place while it lives.
    pub fn new(master: Handle<Master>, streams: Streams, desk: Desk, place: Place) -> Self {
        Self {
            master,
            streams,
            desk,
            framework: None,
            phase: Phase::Subscribing(Vec::new()),
            looks: false,
            _place: place,
        }
    }
}

impl Actor for Subscriber {
    type Context = Context<Self>;
}

impl Process for Subscriber {
    fn hears(ears: &mut Ears<Self>) {
        ears.hear_local::<OffersMade>();
        ears.hear_local::<OfferRescinded>();
        ears.hear_local::<InverseOffersMade>();
        ears.hear_local::<InverseOfferRescinded>();
        ears.hear_local::<StatusChanged>();
        ears.hear_local::<TasksRevoked>();
        ears.hear_local::<OperationChanged>();
        ears.hear_local::<FrameworkMessage>();
        ears.hear_local::<Lost>();
        ears.hear_local::<FrameworkFailed>();
    }
}

impl Handler<Begin> for Subscriber {
    type Result = Reply<Result<Response, Refusal>>;

    fn handle(&mut self, begin: Begin, ctx: &mut Context<Self>) -> Self::Result {
        let Begin {
            framework,
            wants,
            content,
        } = begin;
        let (promise, reply) = promise();
        ctx.link(&self.master.pid());
        self.framework = Some(framework.clone());
        let subscribe = Subscribe {
            framework,
            scheduler: ctx.pid().clone(),
            wants,
        };
        let asked = self.master.ask(subscribe, SUBSCRIBE_PATIENCE);
        ctx.then(asked, move |this: &mut Self, answer, ctx| {
            if !promise.is_awaited() {
                return ctx.stop();
            }
            promise.answer(match answer {
                Ok(answer) => this.answered(answer, content, ctx),
                Err(error) => {
                    ctx.stop();
                    Err(Refusal::not_now(error))
                }
            });
        });
        reply
    }
}

impl Subscriber {
    fn answered(
        &mut self,
        answer: Result<Subscribed, SubscriptionRefused>,
        content: Content,
        ctx: &mut Context<Self>,
    ) -> Result<Response, Refusal> {
        match answer.map_err(turned) {
            Ok(subscribed) => {
                let (stream_id, events, response) = open(ctx.node(), &self.streams, content);
                self.begin(subscribed, stream_id, events, ctx);
                Ok(response)
            }
            Err(Turned::Down(reason)) => {
                ctx.stop();
                Ok(refused_stream(ctx.node(), &self.streams, content, reason))
            }
            Err(Turned::Away(refusal)) => {
                ctx.stop();
                Err(refusal)
            }
        }
    }

    fn begin(
        &mut self,
        subscribed: Subscribed,
        stream_id: String,
        events: Events,
        ctx: &mut Context<Self>,
    ) {
        let id = subscribed.framework_id;
        let master = master_info(&subscribed.master);
        let framework = self.framework.as_ref();
        let line = Line {
            stream_id,
            scheduler: ctx.pid().clone(),
            subscriber: ctx.handle(),
            master: self.master.clone(),
            principal: framework.and_then(|framework| framework.principal.clone()),
            is_over: Default::default(),
        };
        // However it ends, so does the actor.
        ctx.then(events.closed(), |_, (), ctx| ctx.stop());
        Self::heed(&events, ctx);
        let first = Event::subscribed(&id, HEARTBEAT.as_secs_f64(), master);
        let opened = self.desk.open(id, line);
        let open = Phase::Open { events, opened };
        let Phase::Subscribing(held) = std::mem::replace(&mut self.phase, open) else {
            return;
        };
        self.write(&first, ctx);
        self.beat(ctx);
        for heard in held {
            self.hear(heard, ctx);
        }
        ctx.every(HEARTBEAT, Self::beat);
    }

    /// Writes a heartbeat, which the framework's metrics count.
    fn beat(&mut self, ctx: &mut Context<Self>) {
        self.write(&Event::heartbeat(), ctx);
        let scheduler = ctx.pid().clone();
        // A count that a busy master cannot take is lost, and nothing else.
        let _ = self.master.tell(HeartbeatWritten { scheduler });
    }

    fn hear(&mut self, heard: Heard, ctx: &mut Context<Self>) {
        if let Phase::Subscribing(held) = &mut self.phase {
            if held.len() < HELD_MAX {
                held.push(heard);
            }
            return;
        }
        if let Heard::Failed(failed) = heard {
            self.write(&Event::from(&failed), ctx);
            return self.end();
        }
        if let Some(event) = self.event(&heard) {
            self.write(&event, ctx);
        }
    }

    /// What is heard in the words that this framework understands.
    fn event(&self, heard: &Heard) -> Option<Event> {
        let mut event = match heard {
            Heard::Offers(message) => Event::from(message),
            Heard::Rescinded(message) => Event::from(message),
            Heard::Inverse(message) => Event::from(message),
            Heard::InverseRescinded(message) => Event::from(message),
            Heard::Status(message) => Event::from(&**message),
            Heard::Operation(message) => Event::from(&**message),
            Heard::Message(message) => Event::from(message),
            Heard::Lost(message) => Event::from(message),
            Heard::Failed(message) => Event::from(message),
        };
        let framework = self.framework.as_ref()?;
        if let Some(offers) = &mut event.offers {
            for offer in &mut offers.offers {
                offer_for(framework, offer);
            }
        }
        if let Some(changed) = &mut event.update_operation_status {
            operation_status_for(framework, &mut changed.status);
        }
        Some(event)
    }

    fn write(&mut self, event: &Event, ctx: &mut Context<Self>) {
        let Phase::Open { events, opened } = &self.phase else {
            return;
        };
        if opened.is_over() {
            return;
        }
        // Of a stream that has ended this actor hears by itself.
        let _ = events.write(event);
        self.look(ctx);
    }

    /// Cuts the reader off if it is too slow, now or, while all leave too much unread, soon.
    fn look(&mut self, ctx: &mut Context<Self>) {
        let Phase::Open { events, .. } = &self.phase else {
            return;
        };
        if let Some(lag) = events.lag() {
            tracing::warn!(%lag, "a scheduler that reads its events too slowly is cut off");
            events.cut(Some(&Event::error(format!("Disconnected: {lag}"))));
        } else if !self.looks
            && let Some(wait) = events.lags_in()
        {
            self.looks = true;
            ctx.after(wait, |this, ctx| {
                this.looks = false;
                this.look(ctx);
            });
        }
    }

    /// Looks at the reader each time that all leave too much unread, though there may be nothing to write to this one.
    fn heed(events: &Events, ctx: &mut Context<Self>) {
        ctx.then(events.crowded(), |this, (), ctx| {
            this.look(ctx);
            if let Phase::Open { events, .. } = &this.phase {
                Self::heed(events, ctx);
            }
        });
    }

    /// Ends the stream when what was written is read.
    fn end(&self) {
        if let Phase::Open { events, .. } = &self.phase {
            events.end();
        }
    }
}

impl Handler<Become> for Subscriber {
    type Result = ();
    fn handle(&mut self, Become(framework): Become, _: &mut Context<Self>) {
        self.framework = Some(framework);
    }
}

impl Handler<Answer> for Subscriber {
    type Result = ();
    fn handle(&mut self, Answer(subjects): Answer, ctx: &mut Context<Self>) {
        let now = ctx.clock().wall();
        for subject in subjects {
            self.write(&subject.event(now), ctx);
        }
    }
}

impl Handler<Written> for Subscriber {
    type Result = ();
    fn handle(&mut self, _: Written, _: &mut Context<Self>) {}
}

impl Handler<Room> for Subscriber {
    type Result = Reply<()>;

    fn handle(&mut self, _: Room, ctx: &mut Context<Self>) -> Self::Result {
        let (promise, reply) = promise();
        match &self.phase {
            Phase::Open { events, .. } => {
                let drained = events.drained(ROOM);
                ctx.then(drained, |_, (), _| promise.answer(()));
            }
            // Nothing was asked on it yet.
            Phase::Subscribing(_) => promise.answer(()),
        }
        reply
    }
}

impl Handler<Exited> for Subscriber {
    type Result = ();
    fn handle(&mut self, exited: Exited, ctx: &mut Context<Self>) {
        tracing::debug!(master = %exited.pid, reason = %exited.reason, "a stream ends with its master");
        ctx.stop();
    }
}

impl Handler<TasksRevoked> for Subscriber {
    type Result = ();

    /// The v1 API has no word for a task that must go, so that is told as the task's state, unchanged, with a reason.
    fn handle(&mut self, revoked: TasksRevoked, ctx: &mut Context<Self>) {
        for status in revoked.tasks {
            self.hear(Heard::Status(Box::new(StatusChanged { status })), ctx);
        }
    }
}

macro_rules! hears {
    ($($message:ty => $heard:expr),*) => {$(
        impl Handler<$message> for Subscriber {
            type Result = ();
            fn handle(&mut self, message: $message, ctx: &mut Context<Self>) {
                self.hear($heard(message), ctx);
            }
        }
    )*};
}
hears! {
    OffersMade => Heard::Offers,
    OfferRescinded => Heard::Rescinded,
    InverseOffersMade => Heard::Inverse,
    InverseOfferRescinded => Heard::InverseRescinded,
    StatusChanged => |changed| Heard::Status(Box::new(changed)),
    OperationChanged => |changed| Heard::Operation(Box::new(changed)),
    FrameworkMessage => Heard::Message,
    Lost => Heard::Lost,
    FrameworkFailed => Heard::Failed
}
