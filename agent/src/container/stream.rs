//! What an executor hears over HTTP: this actor stands where the driver of a native executor would, and writes events into a stream.
//!
//! Hears tasks, kills, messages and acknowledgements from the containerizer and the status updates. Remembers only its stream and whose executor
//! it is, and ends with its stream, which the containerizer is told as the end of any executor's actor. What executors say does not pass through here.

use std::time::Duration;

use http::api::Events;
use protocol::message::executor::{
    EndTask, ExecutorSubscribed, LaunchTask, ShutDownExecutor, UpdateStored,
};
use protocol::message::scheduler::FrameworkMessage;
use protocol::{ContainerId, FrameworkId};
use runtime::prelude::*;
use v1::schema::executor::Event;

/// How often an executor hears that its stream lives (SPEC 2.5).
pub const HEARTBEAT: Duration = Duration::from_secs(30 * 60);

/// The executor is subscribed. Comes before everything else.
#[derive(Message, Clone, Debug)]
#[rtype(result = "()")]
pub struct Welcome {
    /// Who it is, and where.
    pub subscribed: ExecutorSubscribed,
    /// Which run of it.
    pub container_id: ContainerId,
}

/// The executor is to end: it hears that, and nothing else.
#[derive(Message, Clone, Copy, Debug)]
#[rtype(result = "()")]
pub struct Farewell;

/// The actor.
#[derive(Debug)]
pub struct ExecutorStream {
    events: Events,
    /// Whose executor it is, once that is subscribed.
    framework: Option<FrameworkId>,
    /// Whether a timer runs that looks at the reader again.
    looks: bool,
}

impl ExecutorStream {
    /// Writes into this stream.
    pub fn new(events: Events) -> Self {
        Self {
            events,
            framework: None,
            looks: false,
        }
    }

    fn write(&mut self, event: &Event, ctx: &mut Context<Self>) {
        if self.events.write(event).is_err() {
            return; // It has ended, and so will this actor.
        }
        self.look(ctx);
    }

    /// Looks at the reader each time that all leave too much unread, though there may be nothing to write to this one.
    fn heed(&self, ctx: &mut Context<Self>) {
        ctx.then(self.events.crowded(), |this, (), ctx| {
            this.look(ctx);
            this.heed(ctx);
        });
    }

    /// Cuts the reader off if it is too slow, now or, while all leave too much unread, soon.
    fn look(&mut self, ctx: &mut Context<Self>) {
        if let Some(reason) = self.events.lag() {
            tracing::warn!(reason, "the stream of an executor is cut off");
            self.events.cut(Some(&Event::error(reason)));
        } else if !self.looks
            && let Some(wait) = self.events.lags_in()
        {
            self.looks = true;
            ctx.after(wait, |this, ctx| {
                this.looks = false;
                this.look(ctx);
            });
        }
    }
}

impl Actor for ExecutorStream {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.then(self.events.closed(), |_, (), ctx| ctx.stop());
        self.heed(ctx);
        ctx.every(HEARTBEAT, |this, ctx| this.write(&Event::heartbeat(), ctx));
    }
}

impl Process for ExecutorStream {
    fn hears(ears: &mut Ears<Self>) {
        ears.hear_local::<LaunchTask>();
        ears.hear_local::<EndTask>();
        ears.hear_local::<ShutDownExecutor>();
        ears.hear_local::<UpdateStored>();
        ears.hear_local::<FrameworkMessage>();
    }
}

impl Handler<Welcome> for ExecutorStream {
    type Result = ();
    fn handle(&mut self, welcome: Welcome, ctx: &mut Context<Self>) {
        let event = Event::subscribed(&welcome.subscribed, &welcome.container_id);
        self.framework = welcome.subscribed.framework.id;
        self.write(&event, ctx);
    }
}

impl Handler<Farewell> for ExecutorStream {
    type Result = ();
    fn handle(&mut self, _: Farewell, ctx: &mut Context<Self>) {
        self.write(&Event::shutdown(), ctx);
        self.events.end();
    }
}

impl Handler<LaunchTask> for ExecutorStream {
    type Result = ();
    fn handle(&mut self, launch: LaunchTask, ctx: &mut Context<Self>) {
        let event = Event::launch(&launch, self.framework.as_ref());
        self.write(&event, ctx);
    }
}

impl Handler<EndTask> for ExecutorStream {
    type Result = ();
    fn handle(&mut self, end: EndTask, ctx: &mut Context<Self>) {
        self.write(&Event::from(&end), ctx);
    }
}

impl Handler<ShutDownExecutor> for ExecutorStream {
    type Result = ();
    fn handle(&mut self, _: ShutDownExecutor, ctx: &mut Context<Self>) {
        self.write(&Event::shutdown(), ctx);
    }
}

impl Handler<UpdateStored> for ExecutorStream {
    type Result = ();
    fn handle(&mut self, stored: UpdateStored, ctx: &mut Context<Self>) {
        self.write(&Event::from(&stored), ctx);
    }
}

impl Handler<FrameworkMessage> for ExecutorStream {
    type Result = ();
    fn handle(&mut self, message: FrameworkMessage, ctx: &mut Context<Self>) {
        self.write(&Event::message(message.data), ctx);
    }
}
