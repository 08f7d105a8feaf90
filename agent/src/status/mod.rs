//! Status updates: takes each update into the agent's care and sends it to the master until its framework has it.
//!
//! Hears updates from the containerizer, acknowledgements and masters from the agent. Remembers one stream a task
//! ([`stream::Streams`]). Confirms an update to its executor once it is in care; where the task outlives the agent, that is when it is in
//! the ledger, and not before is it sent. Never judges a state.

mod numbers;
pub mod stream;

use std::collections::BTreeMap;

use protocol::message::executor::UpdateStored;
use protocol::message::task::TaskUpdated;
use protocol::{AgentId, ContainerId, FrameworkId, StatusUpdate, Uuid};
use runtime::Instant;
use runtime::prelude::*;

use self::numbers::Numbers;
use self::stream::{Accepted, Acknowledged, Key, Streams};
use crate::ledger::record::{self, Entry, StateRecord};
use crate::ledger::{Keep, Ledger, Then};

/// This update should reach its framework. With an executor, it is told once the update is in care.
#[derive(Message, Clone, Debug)]
#[rtype(result = "()")]
pub struct Forward {
    /// The update; its uuid is set.
    pub update: StatusUpdate,
    /// Who waits for a confirmation.
    pub executor: Option<Pid>,
    /// How the task is with it, for the ledger, if its container outlives the agent.
    pub record: Option<(ContainerId, StateRecord)>,
}

/// This update is in the ledger, or cannot be.
#[derive(Message)]
#[rtype(result = "()")]
struct Kept {
    update: StatusUpdate,
    executor: Option<Pid>,
    number: u64,
    outcome: Result<(), String>,
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
    ledger: Option<Handle<Ledger>>,
    /// The number that the next update has in the ledger.
    next: u64,
    numbers: Numbers,
}

impl StatusUpdates {
    /// Keeps in this ledger what outlives the agent, and goes on with the updates that an earlier process of it has left.
    pub fn keeping(
        ledger: Handle<Ledger>,
        left: BTreeMap<u64, StatusUpdate>,
        now: Instant,
    ) -> Self {
        let mut own = Self {
            ledger: Some(ledger),
            next: left.last_key_value().map_or(0, |(number, _)| number + 1),
            ..Self::default()
        };
        for (number, update) in left {
            let key = (update.framework_id.clone(), update.status.task_id.clone());
            if let Some(uuid) = update.status.uuid {
                own.numbers.add(key, uuid, number);
            }
            // There is no master yet: what is in flight is sent to the first.
            let _ = own.streams.accept(update, now);
        }
        own
    }

    /// Takes an update into care.
    fn take(
        &mut self,
        update: StatusUpdate,
        executor: Option<Pid>,
        ctx: &mut Context<Self>,
    ) -> bool {
        let stored = update.status.uuid.map(|uuid| UpdateStored {
            task_id: update.status.task_id.clone(),
            uuid,
        });
        let accepted = self.streams.accept(update, ctx.clock().now());
        let is_new = matches!(accepted, Accepted::Send(_) | Accepted::Queued);
        match accepted {
            Accepted::Send(update) => {
                self.send(update, ctx);
                self.keep_time(ctx);
            }
            Accepted::Queued | Accepted::Duplicate | Accepted::AfterEnd => {}
            // Unconfirmed, so that the executor keeps it.
            Accepted::Full => return false,
        }
        if let (Some(executor), Some(stored)) = (executor, stored) {
            // An executor that has gone needs no confirmation.
            let _ = ctx.node().tell(&executor, stored);
        }
        is_new
    }

    /// Puts an update into the ledger; it comes back as [`Kept`].
    fn keep(&mut self, forward: Forward, ctx: &mut Context<Self>) {
        let Forward {
            update,
            executor,
            record,
        } = forward;
        let (Some(ledger), Some((container, state))) = (&self.ledger, record) else {
            self.take(update, executor, ctx);
            return;
        };
        let number = self.next;
        self.next += 1;
        let task = &update.status.task_id;
        let entries = [
            Entry::update(number, &update),
            Entry::state(&container, task, &state),
        ];
        let entries: Result<Vec<Entry>, _> = entries.into_iter().collect();
        let mut kept = Kept {
            update,
            executor,
            number,
            outcome: Ok(()),
        };
        let own = ctx.handle();
        let tell = move |kept: Kept| {
            if let Err(error) = own.tell(kept) {
                tracing::error!(%error, "a status update is lost: nobody takes care of it");
            }
        };
        match entries {
            Ok(entries) => {
                let then: Then = Box::new(move |outcome| {
                    kept.outcome = outcome;
                    tell(kept);
                });
                let keep = Keep {
                    entries,
                    then: Some(then),
                };
                if let Err(error) = ledger.tell(keep) {
                    tracing::error!(%error, "the agent's ledger does not hear");
                }
            }
            Err(garbled) => {
                kept.outcome = Err(garbled.to_string());
                tell(kept);
            }
        }
    }

    /// Nobody will acknowledge the updates of these numbers any more.
    fn forget(&self, numbers: impl IntoIterator<Item = u64>) {
        let keys = numbers.into_iter().map(record::Key::Update);
        let entries: Vec<Entry> = keys.map(Entry::Remove).collect();
        if let (Some(ledger), false) = (&self.ledger, entries.is_empty()) {
            let keep = Keep {
                entries,
                then: None,
            };
            let _ = ledger.tell(keep); // It ends with the agent.
        }
    }

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
    fn handle(&mut self, forward: Forward, ctx: &mut Context<Self>) {
        self.keep(forward, ctx);
    }
}

impl Handler<Kept> for StatusUpdates {
    type Result = ();
    fn handle(&mut self, kept: Kept, ctx: &mut Context<Self>) {
        let (update, number) = (kept.update, kept.number);
        if let Err(problem) = kept.outcome {
            // Better heard now than never; should the agent be started again, it may say so once more.
            tracing::error!(task = %update.status.task_id, problem, "a status update is sent that is not kept");
            self.take(update, kept.executor, ctx);
            return;
        }
        let key = (update.framework_id.clone(), update.status.task_id.clone());
        let uuid = update.status.uuid;
        match (self.take(update, kept.executor, ctx), uuid) {
            (true, Some(uuid)) => self.numbers.add(key, uuid, number),
            _ => self.forget([number]),
        }
    }
}

impl Handler<Acknowledge> for StatusUpdates {
    type Result = ();
    fn handle(&mut self, Acknowledge { key, uuid }: Acknowledge, ctx: &mut Context<Self>) {
        let acknowledged = self.streams.acknowledge(&key, uuid, ctx.clock().now());
        if acknowledged != Acknowledged::Stale {
            let number = self.numbers.take(&key, uuid);
            self.forget(number);
        }
        match acknowledged {
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
        let numbers = self.numbers.take_framework(&framework);
        self.forget(numbers);
    }
}

impl Handler<ForgetTask> for StatusUpdates {
    type Result = ();
    fn handle(&mut self, ForgetTask(key): ForgetTask, _: &mut Context<Self>) {
        self.streams.forget(&key);
        let numbers = self.numbers.take_task(&key);
        self.forget(numbers);
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
