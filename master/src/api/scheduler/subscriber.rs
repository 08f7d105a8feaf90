//! Subscriber: the scheduler of a framework that subscribed over HTTP, as the master knows it.
//!
//! Receives a scheduler's messages, and writes them into its stream as v1 events. Lives as long as
//! the stream, its reader and its master, whichever ends first; the master sees its end like a
//! driver's. Sends no calls: those arrive over other connections. A reader that is too slow is cut
//! off with a reason.

use std::time::Duration;

use ::http::api::{Bounds, EventStreams, EventWriter, Refusal};
use axum::http::HeaderValue;
use axum::response::Response;
use protocol::message::scheduler::{
    FrameworkFailed, FrameworkMessage, InverseOfferRescinded, InverseOffersMade, Lost,
    OfferRescinded, OffersMade, OperationChanged, StatusChanged, Subscribe, Subscribed,
    SubscriptionRefused, TasksRevoked,
};
use protocol::{FrameworkInfo, Uuid, Wants};
use runtime::prelude::*;
use v1::convert::legacy::{offer_for, operation_status_for};
use v1::convert::master_info;
use v1::convert::scheduler::RejectedEntry;
use v1::schema::scheduler::Event;
use v1::{Content, form};

use super::SUBSCRIBE_PATIENCE;
use super::decide::{SubscribeRefused, refused_subscription};
use super::subscriptions::{FrameworkStream, SubscriberSlot, Subscription, SubscriptionTable};
use crate::master::{HeartbeatWritten, Master};

/// Interval of heartbeats.
pub(super) const HEARTBEAT: Duration = Duration::from_secs(15);
/// Maximum unread bytes of one stream: the answers to a reconciliation of many tasks may be more
/// than its reader takes at once. All streams together have their own bound.
const BYTES_MAX: usize = 64 << 20;
/// While more than this is unread, questions about many tasks are paused: the answers to one part
/// need far less than the rest of the buffer.
const ROOM: usize = BYTES_MAX / 2;
/// Maximum events that arrive before the answer to the subscription; further ones are dropped
/// (updates are sent again, offers time out).
const HELD_MAX: usize = 10_000;

/// Subscribes this framework; answered with the response that contains its stream.
pub(super) struct BeginSubscription {
    /// Its description.
    pub framework: FrameworkInfo,
    /// The offers that it wants.
    pub wants: Wants,
    /// The content type of its stream.
    pub content: Content,
}

impl Message for BeginSubscription {
    type Result = Result<Response, Refusal>;
}

/// The framework has this description now, which selects the form of its events.
pub(super) struct DescriptionChanged(pub FrameworkInfo);

impl Message for DescriptionChanged {
    type Result = ();
}

/// Writes the answers to these entries of a call.
pub(super) struct WriteAnswers(pub Vec<RejectedEntry>);

impl Message for WriteAnswers {
    type Result = ();
}

/// Answered when all earlier messages are written to the stream.
pub(super) struct Flushed;

impl Message for Flushed {
    type Result = ();
}

/// Answered when the stream has room for the answers to one more part, or has ended.
pub(super) struct StreamRoom;

impl Message for StreamRoom {
    type Result = ();
}

/// A new stream, with its id.
fn open(node: &Node, streams: &EventStreams, content: Content) -> (String, EventWriter, Response) {
    let stream_id = Uuid(node.secret()).to_string();
    let (events, mut response) = streams.open(content, bounds());
    if let Ok(id) = HeaderValue::from_str(&stream_id) {
        response.headers_mut().insert(form::STREAM_ID, id);
    }
    (stream_id, events, response)
}

/// A stream of one event: an error with this message.
pub(super) fn refused_stream(
    node: &Node,
    streams: &EventStreams,
    content: Content,
    message: String,
) -> Response {
    let (_, events, response) = open(node, streams, content);
    events.cut(Some(&Event::error(message)));
    response
}

/// The bounds of a scheduler's stream.
fn bounds() -> Bounds {
    Bounds {
        bytes_max: BYTES_MAX,
        ..Bounds::default()
    }
}

/// Progress of the subscription.
enum Phase {
    /// The master has been asked; messages that arrive meanwhile wait here.
    Subscribing(Vec<Received>),
    /// The stream is open.
    Open {
        events: EventWriter,
        subscription: Subscription,
    },
}

/// A message to a scheduler.
enum Received {
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
    streams: EventStreams,
    subscriptions: SubscriptionTable,
    framework: Option<FrameworkInfo>,
    phase: Phase,
    /// A timer to check the reader again is running.
    looks: bool,
    _slot: SubscriberSlot,
}

impl Subscriber {
    /// A subscriber of this master, which keeps the slot while it lives.
    pub fn new(
        master: Handle<Master>,
        streams: EventStreams,
        subscriptions: SubscriptionTable,
        slot: SubscriberSlot,
    ) -> Self {
        Self {
            master,
            streams,
            subscriptions,
            framework: None,
            phase: Phase::Subscribing(Vec::new()),
            looks: false,
            _slot: slot,
        }
    }
}

impl Actor for Subscriber {
    type Context = Context<Self>;
}

impl Process for Subscriber {
    fn accepts(handlers: &mut RemoteHandlers<Self>) {
        handlers.accept_local::<OffersMade>();
        handlers.accept_local::<OfferRescinded>();
        handlers.accept_local::<InverseOffersMade>();
        handlers.accept_local::<InverseOfferRescinded>();
        handlers.accept_local::<StatusChanged>();
        handlers.accept_local::<TasksRevoked>();
        handlers.accept_local::<OperationChanged>();
        handlers.accept_local::<FrameworkMessage>();
        handlers.accept_local::<Lost>();
        handlers.accept_local::<FrameworkFailed>();
    }
}

impl Handler<BeginSubscription> for Subscriber {
    type Result = Reply<Result<Response, Refusal>>;

    fn handle(&mut self, begin: BeginSubscription, ctx: &mut Context<Self>) -> Self::Result {
        let BeginSubscription {
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
        match answer.map_err(refused_subscription) {
            Ok(subscribed) => {
                let (stream_id, events, response) = open(ctx.node(), &self.streams, content);
                self.begin(subscribed, stream_id, events, ctx);
                Ok(response)
            }
            Err(SubscribeRefused::ErrorEvent(reason)) => {
                ctx.stop();
                Ok(refused_stream(ctx.node(), &self.streams, content, reason))
            }
            Err(SubscribeRefused::HttpError(refusal)) => {
                ctx.stop();
                Err(refusal)
            }
        }
    }

    fn begin(
        &mut self,
        subscribed: Subscribed,
        stream_id: String,
        events: EventWriter,
        ctx: &mut Context<Self>,
    ) {
        let id = subscribed.framework_id;
        let master = master_info(&subscribed.master);
        let framework = self.framework.as_ref();
        let stream = FrameworkStream {
            stream_id,
            scheduler: ctx.pid().clone(),
            subscriber: ctx.handle(),
            master: self.master.clone(),
            principal: framework.and_then(|framework| framework.principal.clone()),
            is_over: Default::default(),
        };
        // The actor ends with the stream, however that ends.
        ctx.then(events.closed(), |_, (), ctx| ctx.stop());
        Self::watch_alarms(&events, ctx);
        let first = Event::subscribed(&id, HEARTBEAT.as_secs_f64(), master);
        let subscription = self.subscriptions.open(id, stream);
        let open = Phase::Open {
            events,
            subscription,
        };
        let Phase::Subscribing(held) = std::mem::replace(&mut self.phase, open) else {
            return;
        };
        self.write(&first, ctx);
        self.beat(ctx);
        for message in held {
            self.receive(message, ctx);
        }
        ctx.every(HEARTBEAT, Self::beat);
    }

    /// Writes a heartbeat, which the framework's metrics count.
    fn beat(&mut self, ctx: &mut Context<Self>) {
        self.write(&Event::heartbeat(), ctx);
        let scheduler = ctx.pid().clone();
        // If the master's mailbox is full, only the count is lost.
        let _ = self.master.tell(HeartbeatWritten { scheduler });
    }

    fn receive(&mut self, message: Received, ctx: &mut Context<Self>) {
        if let Phase::Subscribing(held) = &mut self.phase {
            if held.len() < HELD_MAX {
                held.push(message);
            }
            return;
        }
        if let Received::Failed(failed) = message {
            self.write(&Event::from(&failed), ctx);
            return self.end();
        }
        if let Some(event) = self.event(&message) {
            self.write(&event, ctx);
        }
    }

    /// The event in the form that this framework understands.
    fn event(&self, message: &Received) -> Option<Event> {
        let mut event = match message {
            Received::Offers(message) => Event::from(message),
            Received::Rescinded(message) => Event::from(message),
            Received::Inverse(message) => Event::from(message),
            Received::InverseRescinded(message) => Event::from(message),
            Received::Status(message) => Event::from(&**message),
            Received::Operation(message) => Event::from(&**message),
            Received::Message(message) => Event::from(message),
            Received::Lost(message) => Event::from(message),
            Received::Failed(message) => Event::from(message),
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
        let Phase::Open {
            events,
            subscription,
        } = &self.phase
        else {
            return;
        };
        if subscription.is_over() {
            return;
        }
        // The actor learns of an ended stream elsewhere.
        let _ = events.write(event);
        self.look(ctx);
    }

    /// Cuts the reader off if it is too slow, now or, while all streams have too many unread bytes,
    /// soon.
    fn look(&mut self, ctx: &mut Context<Self>) {
        let Phase::Open { events, .. } = &self.phase else {
            return;
        };
        if let Some(lag) = events.lag() {
            tracing::warn!(%lag, "cutting off a scheduler that reads its events too slowly");
            events.cut(Some(&Event::error(format!("Disconnected: {lag}"))));
        } else if !self.looks
            && let Some(wait) = events.time_until_lag()
        {
            self.looks = true;
            ctx.after(wait, |this, ctx| {
                this.looks = false;
                this.look(ctx);
            });
        }
    }

    /// Checks the reader whenever all streams have too many unread bytes, even if nothing is
    /// written to this one.
    fn watch_alarms(events: &EventWriter, ctx: &mut Context<Self>) {
        ctx.then(events.next_alarm(), |this, (), ctx| {
            this.look(ctx);
            if let Phase::Open { events, .. } = &this.phase {
                Self::watch_alarms(events, ctx);
            }
        });
    }

    /// Ends the stream after its unread events.
    fn end(&self) {
        if let Phase::Open { events, .. } = &self.phase {
            events.end();
        }
    }
}

impl Handler<DescriptionChanged> for Subscriber {
    type Result = ();
    fn handle(&mut self, DescriptionChanged(framework): DescriptionChanged, _: &mut Context<Self>) {
        self.framework = Some(framework);
    }
}

impl Handler<WriteAnswers> for Subscriber {
    type Result = ();
    fn handle(&mut self, WriteAnswers(subjects): WriteAnswers, ctx: &mut Context<Self>) {
        let now = ctx.clock().wall();
        for subject in subjects {
            self.write(&subject.event(now), ctx);
        }
    }
}

impl Handler<Flushed> for Subscriber {
    type Result = ();
    fn handle(&mut self, _: Flushed, _: &mut Context<Self>) {}
}

impl Handler<StreamRoom> for Subscriber {
    type Result = Reply<()>;

    fn handle(&mut self, _: StreamRoom, ctx: &mut Context<Self>) -> Self::Result {
        let (promise, reply) = promise();
        match &self.phase {
            Phase::Open { events, .. } => {
                let drained = events.drained_to(ROOM);
                ctx.then(drained, |_, (), _| promise.answer(()));
            }
            // No call was made on it yet.
            Phase::Subscribing(_) => promise.answer(()),
        }
        reply
    }
}

impl Handler<Exited> for Subscriber {
    type Result = ();
    fn handle(&mut self, exited: Exited, ctx: &mut Context<Self>) {
        tracing::debug!(master = %exited.pid, reason = %exited.reason, "scheduler stream ends with its master");
        ctx.stop();
    }
}

impl Handler<TasksRevoked> for Subscriber {
    type Result = ();

    /// The v1 API has no event for a revocation, so the task's unchanged state is sent with a
    /// reason.
    fn handle(&mut self, revoked: TasksRevoked, ctx: &mut Context<Self>) {
        for status in revoked.tasks {
            self.receive(Received::Status(Box::new(StatusChanged { status })), ctx);
        }
    }
}

macro_rules! receives {
    ($($message:ty => $wrap:expr),*) => {$(
        impl Handler<$message> for Subscriber {
            type Result = ();
            fn handle(&mut self, message: $message, ctx: &mut Context<Self>) {
                self.receive($wrap(message), ctx);
            }
        }
    )*};
}
receives! {
    OffersMade => Received::Offers,
    OfferRescinded => Received::Rescinded,
    InverseOffersMade => Received::Inverse,
    InverseOfferRescinded => Received::InverseRescinded,
    StatusChanged => |changed| Received::Status(Box::new(changed)),
    OperationChanged => |changed| Received::Operation(Box::new(changed)),
    FrameworkMessage => Received::Message,
    Lost => Received::Lost,
    FrameworkFailed => Received::Failed
}
