//! Status updates: takes each update into the agent's care and sends it to the master until its framework has it.
//!
//! Hears updates from the containerizer, acknowledgements and masters from the agent. Remembers one stream a task
//! ([`stream::Streams`]). Confirms an update to its executor once it is in care; where the task outlives the agent, that is when it is in
//! the ledger, and not before is it sent. What the ledger cannot take is sent, but not confirmed. Never judges a state.

mod numbers;
pub mod stream;
#[cfg(test)]
mod tests;
mod unkept;

use std::collections::BTreeMap;

use protocol::message::executor::UpdateStored;
use protocol::message::task::TaskUpdated;
use protocol::{AgentId, ContainerId, FrameworkId, StatusUpdate, TaskId, Uuid};
use runtime::Instant;
use runtime::prelude::*;

use self::numbers::Numbers;
use self::stream::{Accepted, Acknowledged, Key, Streams};
use self::unkept::{Again, Unkept};
use crate::ledger::record::{self, Entry, StateRecord};
use crate::ledger::{self, Keep, Ledger, Then, Unwritten};

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

/// The executor has said this before, or its task has ended: it is confirmed as soon as it need not be said once more.
#[derive(Message, Clone, Debug)]
#[rtype(result = "()")]
pub struct Repeated(pub Forward);

/// This update is in the ledger, or cannot be.
#[derive(Message)]
#[rtype(result = "()")]
struct Kept {
    update: StatusUpdate,
    number: u64,
    /// Whether it was on its way to its framework before, since it could not be kept then.
    is_again: bool,
    outcome: Result<(), Unwritten>,
}

/// All that was to be kept when this was asked is on the disk, or is not yet.
#[derive(Message)]
#[rtype(result = "()")]
struct CaughtUp(Result<(), Unwritten>);

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

/// This framework may have another scheduler, which may not have heard what it has not acknowledged.
#[derive(Message, Clone, Debug)]
#[rtype(result = "()")]
pub struct TellAgain(pub FrameworkId);

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

/// Updates that are refused since too many of their task wait are told there: they must be taken when they come again.
#[derive(Message)]
#[rtype(result = "()")]
pub struct TellRefused(pub Box<dyn Fn(Key, Uuid) + Send>);

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
    tell_refused: Option<Box<dyn Fn(Key, Uuid) + Send>>,
    timer: Option<(Instant, Errand)>,
    ledger: Option<Handle<Ledger>>,
    /// The number that the next update has in the ledger.
    next: u64,
    numbers: Numbers,
    unkept: Unkept,
    /// Executors to be told that the disk has taken an update which it had refused.
    late: Vec<(Pid, TaskId, Uuid)>,
    /// Whether it is being found out when it has.
    catching_up: bool,
}

fn key_of(update: &StatusUpdate) -> Key {
    (update.framework_id.clone(), update.status.task_id.clone())
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
            if let Some(uuid) = update.status.uuid {
                own.numbers.add(key_of(&update), uuid, number);
            }
            // There is no master yet: what is in flight is sent to the first.
            let _ = own.streams.accept(update, now);
        }
        own
    }

    /// Takes an update into care. `false` if too many of its task wait.
    fn take(&mut self, update: StatusUpdate, ctx: &mut Context<Self>) -> bool {
        let (key, uuid) = (key_of(&update), update.status.uuid);
        match self.streams.accept(update, ctx.clock().now()) {
            Accepted::Send(update) => {
                self.send(update, ctx);
                self.keep_time(ctx);
            }
            Accepted::Queued | Accepted::Duplicate | Accepted::AfterEnd => {}
            // Unconfirmed, so that the executor keeps it.
            Accepted::Full => {
                if let (Some(tell), Some(uuid)) = (&self.tell_refused, uuid) {
                    tell(key, uuid);
                }
                return false;
            }
        }
        true
    }

    /// The executor need not say this again.
    fn confirm(&self, executor: Option<Pid>, task_id: TaskId, uuid: Uuid, ctx: &Context<Self>) {
        if let Some(executor) = executor {
            // One that has gone needs no confirmation.
            let _ = ctx.node().tell(&executor, UpdateStored { task_id, uuid });
        }
    }

    /// Puts an update into the ledger, `again` under a number that it was to have; it comes back as [`Kept`].
    fn keep(&mut self, forward: Forward, again: Option<u64>, ctx: &mut Context<Self>) {
        let Forward {
            update,
            executor,
            record,
        } = forward;
        let (key, uuid) = (key_of(&update), update.status.uuid);
        let (Some(ledger), Some((container, mut state)), Some(uuid)) = (&self.ledger, record, uuid)
        else {
            if let (true, Some(uuid)) = (self.take(update, ctx), uuid) {
                self.confirm(executor, key.1, uuid, ctx);
            }
            return;
        };
        // What was not kept is not known to the next process of the agent.
        let unkept = &self.unkept;
        let is_known = |given: &Uuid| *given == uuid || !unkept.has_failed(&key, *given);
        state.given.retain(is_known);
        let number = again.unwrap_or(self.next);
        self.next = self.next.max(number + 1);
        let entries = [
            Entry::update(number, &update),
            Entry::state(&container, &key.1, &state),
        ];
        let entries: Result<Vec<Entry>, _> = entries.into_iter().collect();
        self.unkept.write(key, uuid, executor);
        let mut kept = Kept {
            update,
            number,
            is_again: again.is_some(),
            outcome: Ok(()),
        };
        let own = ctx.handle();
        let tell = move |kept: Kept| own.tell_always(kept);
        match entries {
            Ok(entries) => {
                let then = Then::new(move |outcome| {
                    kept.outcome = outcome;
                    tell(kept);
                });
                let keep = Keep {
                    entries,
                    then: Some(then),
                };
                // What is not heard comes back as what cannot be kept.
                if let Err(error) = ledger.tell(keep) {
                    tracing::error!(%error, "the agent's ledger does not hear");
                }
            }
            Err(garbled) => {
                kept.outcome = Err(Unwritten::NotTaken(garbled.to_string()));
                tell(kept);
            }
        }
    }

    /// Who waits until the disk has taken this update, which it had refused.
    fn late_of(&mut self, task: &TaskId, uuid: Uuid) -> Option<&mut Pid> {
        let mut late = self.late.iter_mut();
        let found = late.find(|(_, of, own)| *own == uuid && of == task)?;
        Some(&mut found.0)
    }

    /// Asks the ledger before long whether the disk has taken what it had refused.
    fn catch_up(&mut self, ctx: &mut Context<Self>) {
        if self.late.is_empty() || std::mem::replace(&mut self.catching_up, true) {
            return;
        }
        ctx.after(ledger::AGAIN_AFTER, |this, ctx| {
            let Some(ledger) = &this.ledger else { return };
            let own = ctx.handle();
            let keep = Keep {
                entries: Vec::new(),
                then: Some(Then::new(move |outcome| {
                    let _ = own.tell(CaughtUp(outcome)); // Or the executor says it again.
                })),
            };
            let _ = ledger.tell(keep); // It ends with the agent.
        });
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

    fn send_again(&mut self, updates: Vec<StatusUpdate>, ctx: &mut Context<Self>) {
        for update in updates {
            self.send(update, ctx);
        }
        self.keep_time(ctx);
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
        self.keep(forward, None, ctx);
    }
}

impl Handler<Repeated> for StatusUpdates {
    type Result = ();
    fn handle(&mut self, Repeated(forward): Repeated, ctx: &mut Context<Self>) {
        let key = key_of(&forward.update);
        let Some(uuid) = forward.update.status.uuid else {
            return;
        };
        match self.unkept.again(&key, uuid, forward.executor.as_ref()) {
            Again::Wait => {}
            Again::Keep(number) => self.keep(forward, Some(number), ctx),
            Again::Confirm => match (self.late_of(&key.1, uuid), forward.executor) {
                // Its framework has it, and the next process of the agent would not know.
                (Some(waiting), Some(executor)) => *waiting = executor,
                (_, executor) => self.confirm(executor, key.1, uuid, ctx),
            },
        }
    }
}

impl Handler<Kept> for StatusUpdates {
    type Result = ();
    fn handle(&mut self, kept: Kept, ctx: &mut Context<Self>) {
        let (update, number) = (kept.update, kept.number);
        let key = key_of(&update);
        let Some(uuid) = update.status.uuid else {
            return;
        };
        let executor = self.unkept.take(&key, uuid);
        // One that is said again is in care already, or has been.
        let is_taken = kept.is_again || self.take(update, ctx);
        let in_care = self.streams.has(&key, uuid);
        // What the disk has refused may come there later: it is to be forgotten like what is there.
        if !in_care || !self.numbers.add(key.clone(), uuid, number) {
            self.forget([number]);
        }
        if let Err(problem) = kept.outcome {
            // Better heard now than never; its executor says it once more should the agent be started again.
            tracing::error!(task = %key.1, %problem, "a status update is sent that is not kept");
            let is_refused = matches!(problem, Unwritten::Refused(_));
            if let (true, Some(executor)) = (is_refused, executor.clone()) {
                match self.late_of(&key.1, uuid) {
                    Some(waiting) => *waiting = executor,
                    None => self.late.push((executor, key.1.clone(), uuid)),
                }
                self.catch_up(ctx);
            }
            if in_care {
                return self.unkept.fail(key, uuid, number);
            }
            if is_refused {
                return;
            }
        }
        if is_taken {
            self.confirm(executor, key.1, uuid, ctx);
        }
    }
}

impl Handler<CaughtUp> for StatusUpdates {
    type Result = ();
    fn handle(&mut self, CaughtUp(outcome): CaughtUp, ctx: &mut Context<Self>) {
        self.catching_up = false;
        match outcome {
            // What was refused later is heard of later.
            Ok(()) => {
                for (executor, task, uuid) in std::mem::take(&mut self.late) {
                    self.confirm(Some(executor), task, uuid, ctx);
                }
            }
            Err(_) => self.catch_up(ctx),
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
            self.unkept.acknowledged(&key, uuid);
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
            let all = self.streams.all_in_flight(ctx.clock().now());
            self.send_again(all, ctx);
        }
    }
}

impl Handler<TellAgain> for StatusUpdates {
    type Result = ();
    fn handle(&mut self, TellAgain(framework): TellAgain, ctx: &mut Context<Self>) {
        let own = self.streams.in_flight_of(&framework, ctx.clock().now());
        self.send_again(own, ctx);
    }
}

impl Handler<ForgetFramework> for StatusUpdates {
    type Result = ();
    fn handle(&mut self, ForgetFramework(framework): ForgetFramework, _: &mut Context<Self>) {
        self.streams.forget_framework(&framework);
        self.unkept.forget_framework(&framework);
        let numbers = self.numbers.take_framework(&framework);
        self.forget(numbers);
    }
}

impl Handler<ForgetTask> for StatusUpdates {
    type Result = ();
    fn handle(&mut self, ForgetTask(key): ForgetTask, _: &mut Context<Self>) {
        self.streams.forget(&key);
        self.unkept.forget(&key);
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

impl Handler<TellRefused> for StatusUpdates {
    type Result = ();
    fn handle(&mut self, TellRefused(tell): TellRefused, _: &mut Context<Self>) {
        self.tell_refused = Some(tell);
    }
}

impl Handler<Waiting> for StatusUpdates {
    type Result = usize;
    fn handle(&mut self, _: Waiting, _: &mut Context<Self>) -> usize {
        self.streams.waiting()
    }
}
