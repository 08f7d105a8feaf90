//! What an executor hears over HTTP: this actor stands where the driver of a native executor would, and writes events into a stream.
//!
//! Hears tasks, kills, messages and acknowledgements from the containerizer and the status updates. Remembers only its stream, and ends with
//! it, which the containerizer is told as the end of any executor's actor. What executors say does not pass through here.

use std::time::Duration;

use http::api::Events;
use protocol::ContainerId;
use protocol::message::executor::{
    EndTask, ExecutorSubscribed, LaunchTask, ShutDownExecutor, UpdateStored,
};
use protocol::message::scheduler::FrameworkMessage;
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

/// The actor.
#[derive(Debug)]
pub struct ExecutorStream {
    events: Events,
}

impl ExecutorStream {
    /// Writes into this stream.
    pub fn new(events: Events) -> Self {
        Self { events }
    }

    fn write(&self, event: &Event) {
        if self.events.write(event).is_err() {
            return; // It has ended, and so will this actor.
        }
        if let Some(reason) = self.events.lag() {
            tracing::warn!(reason, "the stream of an executor is cut off");
            self.events.cut(Some(&Event::error(reason)));
        }
    }
}

impl Actor for ExecutorStream {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.then(self.events.closed(), |_, (), ctx| ctx.stop());
        ctx.every(HEARTBEAT, |this, _| this.write(&Event::heartbeat()));
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
    fn handle(&mut self, welcome: Welcome, _: &mut Context<Self>) {
        self.write(&Event::subscribed(
            &welcome.subscribed,
            &welcome.container_id,
        ));
    }
}

impl Handler<LaunchTask> for ExecutorStream {
    type Result = ();
    fn handle(&mut self, launch: LaunchTask, _: &mut Context<Self>) {
        self.write(&Event::from(&launch));
    }
}

impl Handler<EndTask> for ExecutorStream {
    type Result = ();
    fn handle(&mut self, end: EndTask, _: &mut Context<Self>) {
        self.write(&Event::from(&end));
    }
}

impl Handler<ShutDownExecutor> for ExecutorStream {
    type Result = ();
    fn handle(&mut self, _: ShutDownExecutor, _: &mut Context<Self>) {
        self.write(&Event::shutdown());
    }
}

impl Handler<UpdateStored> for ExecutorStream {
    type Result = ();
    fn handle(&mut self, stored: UpdateStored, _: &mut Context<Self>) {
        self.write(&Event::from(&stored));
    }
}

impl Handler<FrameworkMessage> for ExecutorStream {
    type Result = ();
    fn handle(&mut self, message: FrameworkMessage, _: &mut Context<Self>) {
        self.write(&Event::message(message.data));
    }
}
