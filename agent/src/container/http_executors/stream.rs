//! The event stream of an HTTP executor: takes the place of a native executor's driver.
//!
//! Handles tasks, kills, messages and acknowledgements from the containerizer and the status
//! updates, and writes them as events. Ends with its stream; the containerizer sees this as an
//! executor's exit. Calls of the executor do not pass through here.

use std::time::Duration;

use http::api::EventWriter;
use protocol::message::executor::{
    EndTask, ExecutorSubscribed, LaunchTask, ShutDownExecutor, UpdateStored,
};
use protocol::message::scheduler::FrameworkMessage;
use protocol::{ContainerId, FrameworkId};
use runtime::prelude::*;
use v1::schema::executor::Event;

/// Interval of HEARTBEAT events.
pub const HEARTBEAT: Duration = Duration::from_secs(30 * 60);

/// Subscribes the executor. The first event.
#[derive(Message, Clone, Debug)]
#[rtype(result = "()")]
pub struct StreamOpened {
    /// Description of executor, framework and agent.
    pub subscribed: ExecutorSubscribed,
    /// The container.
    pub container_id: ContainerId,
}

/// Sends SHUTDOWN and ends the stream.
#[derive(Message, Clone, Copy, Debug)]
#[rtype(result = "()")]
pub struct StreamClosing;

/// The stream actor.
#[derive(Debug)]
pub struct ExecutorStream {
    events: EventWriter,
    /// Its framework, once subscribed.
    framework: Option<FrameworkId>,
    /// Whether a lag check is scheduled.
    check_scheduled: bool,
}

impl ExecutorStream {
    /// A stream that writes to `events`.
    pub fn new(events: EventWriter) -> Self {
        Self {
            events,
            framework: None,
            check_scheduled: false,
        }
    }

    fn write(&mut self, event: &Event, ctx: &mut Context<Self>) {
        if self.events.write(event).is_err() {
            return; // The stream has ended, and this actor ends with it.
        }
        self.check_lag(ctx);
    }

    /// Checks the lag whenever the process's streams have too much unread, even without an event to
    /// write.
    fn watch_alarms(&self, ctx: &mut Context<Self>) {
        ctx.then(self.events.next_alarm(), |this, (), ctx| {
            this.check_lag(ctx);
            this.watch_alarms(ctx);
        });
    }

    /// Disconnects a reader that is too slow, or schedules the next check.
    fn check_lag(&mut self, ctx: &mut Context<Self>) {
        if let Some(reason) = self.events.lag() {
            tracing::warn!(reason, "disconnecting a slow executor stream");
            self.events.cut(Some(&Event::error(reason)));
        } else if !self.check_scheduled
            && let Some(wait) = self.events.time_until_lag()
        {
            self.check_scheduled = true;
            ctx.after(wait, |this, ctx| {
                this.check_scheduled = false;
                this.check_lag(ctx);
            });
        }
    }
}

impl Actor for ExecutorStream {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.then(self.events.closed(), |_, (), ctx| ctx.stop());
        self.watch_alarms(ctx);
        ctx.every(HEARTBEAT, |this, ctx| this.write(&Event::heartbeat(), ctx));
    }
}

impl Process for ExecutorStream {
    fn accepts(handlers: &mut RemoteHandlers<Self>) {
        handlers.accept_local::<LaunchTask>();
        handlers.accept_local::<EndTask>();
        handlers.accept_local::<ShutDownExecutor>();
        handlers.accept_local::<UpdateStored>();
        handlers.accept_local::<FrameworkMessage>();
    }
}

impl Handler<StreamOpened> for ExecutorStream {
    type Result = ();
    fn handle(&mut self, welcome: StreamOpened, ctx: &mut Context<Self>) {
        let event = Event::subscribed(&welcome.subscribed, &welcome.container_id);
        self.framework = welcome.subscribed.framework.id;
        self.write(&event, ctx);
    }
}

impl Handler<StreamClosing> for ExecutorStream {
    type Result = ();
    fn handle(&mut self, _: StreamClosing, ctx: &mut Context<Self>) {
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
