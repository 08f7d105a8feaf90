//! Status updates: takes each update into the agent's care and sends it to the master until its framework has it.
//!
//! Hears updates from the containerizer, acknowledgements and masters from the agent. Remembers one stream a task
//! ([`stream::Streams`]). Confirms an update to its executor once it is in care. Never judges a state.

pub mod stream;

use protocol::message::executor::UpdateStored;
use protocol::message::task::TaskUpdated;
use protocol::{AgentId, FrameworkId, StatusUpdate, Uuid};
use runtime::Instant;
use runtime::prelude::*;

use self::stream::{Accepted, Acknowledged, Key, Streams};

/// This update should reach its framework. With an executor, it is told once the update is in care.
#[derive(Message, Clone, Debug)]
#[rtype(result = "()")]
pub struct Forward {
    /// The update; its uuid is set.
    pub update: StatusUpdate,
    /// Who waits for a confirmation.
    pub executor: Option<Pid>,
}

/// The framework has this update.
#[derive(Message, Clone, Debug)]
#[rtype(result = "()")]
pub struct Acknowledge {
    /// Whose.
    pub key: Key,
    /// Which.
    pub uuid: Uuid,
}

/// The agent is registered with this master, or with none.
#[derive(Message, Clone, Debug)]
#[rtype(result = "()")]
pub struct MasterIs(pub Option<(AgentId, Pid)>);

/// Nobody will acknowledge for this framework any more.
#[derive(Message, Clone, Debug)]
#[rtype(result = "()")]
pub struct ForgetFramework(pub FrameworkId);

/// Nobody wants to hear of this task any more.
#[derive(Message, Clone, Debug)]
#[rtype(result = "()")]
pub struct ForgetTask(pub Key);

/// Ends of tasks that are acknowledged are told there.
#[derive(Message)]
#[rtype(result = "()")]
pub struct TellClosed(pub Box<dyn Fn(Key) + Send>);

/// How many updates wait for an acknowledgement?
#[derive(Message, Clone, Copy, Debug)]
#[rtype(result = "usize")]
pub struct Waiting;

/// The actor.
#[derive(Default)]
pub struct StatusUpdates {
    streams: Streams,
    master: Option<(AgentId, Pid)>,
    tell_closed: Option<Box<dyn Fn(Key) + Send>>,
    timer: Option<(Instant, Errand)>,
}

impl StatusUpdates {
    fn send(&self, update: StatusUpdate, ctx: &Context<Self>) {
        // Without a master it stays in flight: the next master gets it at once.
        let Some((agent_id, master)) = &self.master else {
            return;
        };
        let updated = TaskUpdated {
            agent_id: agent_id.clone(),
            update,
        };
        if let Err(error) = ctx.node().tell(master, updated) {
            tracing::debug!(%error, "status update not sent; it will be again");
        }
    }

    /// Keeps one timer running while anything is in flight. What has just been put in flight is due after the shortest wait:
    /// a timer that was set for something that waits longer would be late for it.
    fn keep_time(&mut self, ctx: &mut Context<Self>) {
        let now = ctx.clock().now();
        match self.timer.take() {
            Some((due, timer)) if due <= now + stream::RESEND_MIN => {
                self.timer = Some((due, timer));
                return;
            }
            Some((_, later)) => ctx.cancel(later),
            None => {}
        }
        let Some(due) = self.streams.next_due() else {
            return;
        };
        let timer = ctx.after(due - now, |this, ctx| {
            this.timer = None;
            for update in this.streams.overdue(ctx.clock().now()) {
                tracing::debug!(task = %update.status.task_id, state = %update.status.state, "status update sent again");
                this.send(update, ctx);
            }
            this.keep_time(ctx);
        });
        self.timer = Some((due, timer));
    }
}

impl Actor for StatusUpdates {
    type Context = Context<Self>;
}

impl Process for StatusUpdates {}

impl Handler<Forward> for StatusUpdates {
    type Result = ();
    fn handle(&mut self, Forward { update, executor }: Forward, ctx: &mut Context<Self>) {
        let stored = update.status.uuid.map(|uuid| UpdateStored {
            task_id: update.status.task_id.clone(),
            uuid,
        });
        match self.streams.accept(update, ctx.clock().now()) {
            Accepted::Send(update) => {
                self.send(update, ctx);
                self.keep_time(ctx);
            }
            Accepted::Queued | Accepted::Duplicate | Accepted::AfterEnd => {}
            // Unconfirmed, so that the executor keeps it.
            Accepted::Full => return,
        }
        if let (Some(executor), Some(stored)) = (executor, stored) {
            // An executor that has gone needs no confirmation.
            let _ = ctx.node().tell(&executor, stored);
        }
    }
}

impl Handler<Acknowledge> for StatusUpdates {
    type Result = ();
    fn handle(&mut self, Acknowledge { key, uuid }: Acknowledge, ctx: &mut Context<Self>) {
        match self.streams.acknowledge(&key, uuid, ctx.clock().now()) {
            Acknowledged::Next(update) => {
                self.send(update, ctx);
                self.keep_time(ctx);
            }
            Acknowledged::Closed => {
                if let Some(tell) = &self.tell_closed {
                    tell(key);
                }
            }
            Acknowledged::Quiet => {}
            Acknowledged::Stale => {
                tracing::debug!(task = %key.1, %uuid, "an acknowledgement that nothing waits for")
            }
        }
    }
}

impl Handler<MasterIs> for StatusUpdates {
    type Result = ();
    fn handle(&mut self, MasterIs(master): MasterIs, ctx: &mut Context<Self>) {
        self.master = master;
        if self.master.is_some() {
            for update in self.streams.all_in_flight(ctx.clock().now()) {
                self.send(update, ctx);
            }
            self.keep_time(ctx);
        }
    }
}

impl Handler<ForgetFramework> for StatusUpdates {
    type Result = ();
    fn handle(&mut self, ForgetFramework(framework): ForgetFramework, _: &mut Context<Self>) {
        self.streams.forget_framework(&framework);
    }
}

impl Handler<ForgetTask> for StatusUpdates {
    type Result = ();
    fn handle(&mut self, ForgetTask(key): ForgetTask, _: &mut Context<Self>) {
        self.streams.forget(&key);
    }
}

impl Handler<TellClosed> for StatusUpdates {
    type Result = ();
    fn handle(&mut self, TellClosed(tell): TellClosed, _: &mut Context<Self>) {
        self.tell_closed = Some(tell);
    }
}

impl Handler<Waiting> for StatusUpdates {
    type Result = usize;
    fn handle(&mut self, _: Waiting, _: &mut Context<Self>) -> usize {
        self.streams.waiting()
    }
}
