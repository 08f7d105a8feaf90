//! Status updates: delivers each update to the master until its framework acknowledges it.
//!
//! Handles updates from the containerizer, acknowledgements and master changes from the agent. Owns
//! one stream per task ([`stream::Streams`]). Confirms an update to its executor once it is
//! accepted; for a checkpointed task it is first written to the ledger, and only then sent and
//! confirmed. If the write fails the update is sent, but not confirmed. Does not validate states.
//! `unwritten` and `numbers` track the updates in the ledger.

mod numbers;
pub mod stream;
#[cfg(test)]
mod tests;
mod unwritten;

use std::collections::BTreeMap;

use protocol::message::executor::UpdateStored;
use protocol::message::task::TaskUpdated;
use protocol::{AgentId, ContainerId, FrameworkId, StatusUpdate, TaskId, Uuid};
use runtime::Instant;
use runtime::prelude::*;

use self::numbers::UpdateNumbers;
use self::stream::{Accepted, Acknowledged, Key, Streams};
use self::unwritten::{OnRepeat, UnwrittenUpdates};
use crate::ledger::record::{self, Entry, StateRecord};
use crate::ledger::{self, Ledger, LedgerError, OnWritten, WriteEntries};

/// Delivers an update to its framework. The executor, if given, gets a confirmation once the update
/// is accepted.
#[derive(Message, Clone, Debug)]
#[rtype(result = "()")]
pub struct Forward {
    /// The update, with its uuid set.
    pub update: StatusUpdate,
    /// Receives the confirmation.
    pub executor: Option<Pid>,
    /// The task's state with this update, to checkpoint if its container is checkpointed.
    pub record: Option<(ContainerId, StateRecord)>,
}

/// A repeated or late update: confirmed as soon as its executor need not keep it.
#[derive(Message, Clone, Debug)]
#[rtype(result = "()")]
pub struct RepeatedUpdate(pub Forward);

/// The ledger has written an update, or failed to.
#[derive(Message)]
#[rtype(result = "()")]
struct UpdateWritten {
    update: StatusUpdate,
    number: u64,
    /// Whether the update was sent before, when an earlier write had failed.
    is_retry: bool,
    outcome: Result<(), LedgerError>,
}

/// Whether the ledger's failed entries are on disk by now.
#[derive(Message)]
#[rtype(result = "()")]
struct RetriesWritten(Result<(), LedgerError>);

/// The framework has acknowledged an update.
#[derive(Message, Clone, Debug)]
#[rtype(result = "()")]
pub struct Acknowledge {
    /// Framework and task.
    pub key: Key,
    /// The update.
    pub uuid: Uuid,
}

/// The agent's master has changed; `None` without one.
#[derive(Message, Clone, Debug)]
#[rtype(result = "()")]
pub struct MasterChanged(pub Option<(AgentId, Pid)>);

/// Resends a framework's updates: it may have a new scheduler that has not received them.
#[derive(Message, Clone, Debug)]
#[rtype(result = "()")]
pub struct ResendUpdates(pub FrameworkId);

/// Drops the updates of a removed framework.
#[derive(Message, Clone, Debug)]
#[rtype(result = "()")]
pub struct ForgetFramework(pub FrameworkId);

/// Drops the updates of a disowned task.
#[derive(Message, Clone, Debug)]
#[rtype(result = "()")]
pub struct ForgetTask(pub Key);

/// Sets the callback for acknowledged terminal updates.
#[derive(Message)]
#[rtype(result = "()")]
pub struct OnTaskClosed(pub Box<dyn Fn(Key) + Send>);

/// Sets the callback for updates refused because too many of their task are waiting. They are new
/// when repeated.
#[derive(Message)]
#[rtype(result = "()")]
pub struct OnUpdateRefused(pub Box<dyn Fn(Key, Uuid) + Send>);

/// Requests the number of unacknowledged updates.
#[derive(Message, Clone, Copy, Debug)]
#[rtype(result = "usize")]
pub struct CountUnacknowledged;

/// The status updates actor.
#[derive(Default)]
pub struct StatusUpdates {
    streams: Streams,
    master: Option<(AgentId, Pid)>,
    on_task_closed: Option<Box<dyn Fn(Key) + Send>>,
    on_update_refused: Option<Box<dyn Fn(Key, Uuid) + Send>>,
    timer: Option<(Instant, TimerHandle)>,
    ledger: Option<Handle<Ledger>>,
    /// The next update's number in the ledger.
    next: u64,
    numbers: UpdateNumbers,
    unwritten: UnwrittenUpdates,
    /// Confirmations due once the ledger has written updates that it failed to write at first.
    late_confirmations: Vec<(Pid, TaskId, Uuid)>,
    /// Whether a check of that is scheduled.
    check_scheduled: bool,
}

fn key_of(update: &StatusUpdate) -> Key {
    (update.framework_id.clone(), update.status.task_id.clone())
}

impl StatusUpdates {
    /// Checkpoints updates in this ledger and continues with those of an earlier agent process.
    pub fn with_ledger(
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
            // There is no master yet; the first one receives them.
            let _ = own.streams.accept(update, now);
        }
        own
    }

    /// Accepts an update into its stream. `false` if too many of its task are waiting.
    fn accept(&mut self, update: StatusUpdate, ctx: &mut Context<Self>) -> bool {
        let (key, uuid) = (key_of(&update), update.status.uuid);
        match self.streams.accept(update, ctx.clock().now()) {
            Accepted::Send(update) => {
                self.send(update, ctx);
                self.set_timer(ctx);
            }
            Accepted::Queued | Accepted::Duplicate | Accepted::AfterEnd => {}
            // Not confirmed, so the executor keeps it.
            Accepted::Full => {
                if let (Some(tell), Some(uuid)) = (&self.on_update_refused, uuid) {
                    tell(key, uuid);
                }
                return false;
            }
        }
        true
    }

    /// Confirms an update to its executor.
    fn confirm(&self, executor: Option<Pid>, task_id: TaskId, uuid: Uuid, ctx: &Context<Self>) {
        if let Some(executor) = executor {
            // Fails only if the executor has ended.
            let _ = ctx.node().tell(&executor, UpdateStored { task_id, uuid });
        }
    }

    /// Writes an update to the ledger, `retry` under an earlier number. [`UpdateWritten`] follows.
    fn write(&mut self, forward: Forward, retry: Option<u64>, ctx: &mut Context<Self>) {
        let Forward {
            update,
            executor,
            record,
        } = forward;
        let (key, uuid) = (key_of(&update), update.status.uuid);
        let (Some(ledger), Some((container, mut state)), Some(uuid)) = (&self.ledger, record, uuid)
        else {
            if let (true, Some(uuid)) = (self.accept(update, ctx), uuid) {
                self.confirm(executor, key.1, uuid, ctx);
            }
            return;
        };
        // The next agent process must not treat an unwritten update as a duplicate.
        let unwritten = &self.unwritten;
        let is_known = |given: &Uuid| *given == uuid || !unwritten.has_failed(&key, *given);
        state.given.retain(is_known);
        let number = retry.unwrap_or(self.next);
        self.next = self.next.max(number + 1);
        let entries = [
            Entry::update(number, &update),
            Entry::state(&container, &key.1, &state),
        ];
        let entries: Result<Vec<Entry>, _> = entries.into_iter().collect();
        self.unwritten.write(key, uuid, executor);
        let mut written = UpdateWritten {
            update,
            number,
            is_retry: retry.is_some(),
            outcome: Ok(()),
        };
        let own = ctx.handle();
        let tell = move |written: UpdateWritten| own.tell_always(written);
        match entries {
            Ok(entries) => {
                let on_written = OnWritten::new(move |outcome| {
                    written.outcome = outcome;
                    tell(written);
                });
                let write = WriteEntries {
                    entries,
                    on_written: Some(on_written),
                };
                // On failure the callback reports the error.
                if let Err(error) = ledger.tell(write) {
                    tracing::error!(%error, "cannot reach the ledger");
                }
            }
            Err(garbled) => {
                written.outcome = Err(LedgerError::NotAccepted(garbled.to_string()));
                tell(written);
            }
        }
    }

    /// The pending late confirmation of an update.
    fn late_confirmation(&mut self, task: &TaskId, uuid: Uuid) -> Option<&mut Pid> {
        let mut late_confirmations = self.late_confirmations.iter_mut();
        let found = late_confirmations.find(|(_, of, own)| *own == uuid && of == task)?;
        Some(&mut found.0)
    }

    /// Schedules a check whether the ledger has written its failed entries.
    fn check_retries(&mut self, ctx: &mut Context<Self>) {
        if self.late_confirmations.is_empty() || std::mem::replace(&mut self.check_scheduled, true)
        {
            return;
        }
        ctx.after(ledger::RETRY_AFTER, |this, ctx| {
            let Some(ledger) = &this.ledger else { return };
            let own = ctx.handle();
            let write = WriteEntries {
                entries: Vec::new(),
                on_written: Some(OnWritten::new(move |outcome| {
                    // The executor repeats the update if this is lost.
                    let _ = own.tell(RetriesWritten(outcome));
                })),
            };
            let _ = ledger.tell(write); // The ledger ends only with the agent.
        });
    }

    /// Removes updates from the ledger.
    fn forget(&self, numbers: impl IntoIterator<Item = u64>) {
        let keys = numbers.into_iter().map(record::Key::Update);
        let entries: Vec<Entry> = keys.map(Entry::Remove).collect();
        if let (Some(ledger), false) = (&self.ledger, entries.is_empty()) {
            let write = WriteEntries {
                entries,
                on_written: None,
            };
            let _ = ledger.tell(write); // The ledger ends only with the agent.
        }
    }

    fn send(&self, update: StatusUpdate, ctx: &Context<Self>) {
        // Without a master it stays in flight; the next master receives it at once.
        let Some((agent_id, master)) = &self.master else {
            return;
        };
        let updated = TaskUpdated {
            agent_id: agent_id.clone(),
            update,
        };
        if let Err(error) = ctx.node().tell(master, updated) {
            tracing::debug!(%error, "status update not sent; it will be resent");
        }
    }

    fn resend(&mut self, updates: Vec<StatusUpdate>, ctx: &mut Context<Self>) {
        for update in updates {
            self.send(update, ctx);
        }
        self.set_timer(ctx);
    }

    /// Keeps one timer set while updates are in flight. A new update is due after the shortest
    /// wait, so a timer set for a longer one is replaced.
    fn set_timer(&mut self, ctx: &mut Context<Self>) {
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
                tracing::debug!(task = %update.status.task_id, state = %update.status.state, "status update resent");
                this.send(update, ctx);
            }
            this.set_timer(ctx);
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
        self.write(forward, None, ctx);
    }
}

impl Handler<RepeatedUpdate> for StatusUpdates {
    type Result = ();
    fn handle(&mut self, RepeatedUpdate(forward): RepeatedUpdate, ctx: &mut Context<Self>) {
        let key = key_of(&forward.update);
        let Some(uuid) = forward.update.status.uuid else {
            return;
        };
        match self
            .unwritten
            .on_repeat(&key, uuid, forward.executor.as_ref())
        {
            OnRepeat::Wait => {}
            OnRepeat::Write(number) => self.write(forward, Some(number), ctx),
            OnRepeat::Confirm => match (self.late_confirmation(&key.1, uuid), forward.executor) {
                // Acknowledged, but not yet on disk: the next agent process would not know it.
                (Some(waiting), Some(executor)) => *waiting = executor,
                (_, executor) => self.confirm(executor, key.1, uuid, ctx),
            },
        }
    }
}

impl Handler<UpdateWritten> for StatusUpdates {
    type Result = ();
    fn handle(&mut self, written: UpdateWritten, ctx: &mut Context<Self>) {
        let (update, number) = (written.update, written.number);
        let key = key_of(&update);
        let Some(uuid) = update.status.uuid else {
            return;
        };
        let executor = self.unwritten.take(&key, uuid);
        // A repeated update has been accepted before.
        let is_accepted = written.is_retry || self.accept(update, ctx);
        let is_pending = self.streams.has(&key, uuid);
        // A failed entry may be written later, so it is removed like a written one.
        if !is_pending || !self.numbers.add(key.clone(), uuid, number) {
            self.forget([number]);
        }
        if let Err(problem) = written.outcome {
            // Delivery comes before durability; the executor repeats the update if the agent
            // restarts.
            tracing::error!(task = %key.1, %problem, "sending a status update without a checkpoint");
            let is_refused = matches!(problem, LedgerError::WriteFailed(_));
            if let (true, Some(executor)) = (is_refused, executor.clone()) {
                match self.late_confirmation(&key.1, uuid) {
                    Some(waiting) => *waiting = executor,
                    None => self
                        .late_confirmations
                        .push((executor, key.1.clone(), uuid)),
                }
                self.check_retries(ctx);
            }
            if is_pending {
                return self.unwritten.fail(key, uuid, number);
            }
            if is_refused {
                return;
            }
        }
        if is_accepted {
            self.confirm(executor, key.1, uuid, ctx);
        }
    }
}

impl Handler<RetriesWritten> for StatusUpdates {
    type Result = ();
    fn handle(&mut self, RetriesWritten(outcome): RetriesWritten, ctx: &mut Context<Self>) {
        self.check_scheduled = false;
        match outcome {
            // Entries that failed later report later.
            Ok(()) => {
                for (executor, task, uuid) in std::mem::take(&mut self.late_confirmations) {
                    self.confirm(Some(executor), task, uuid, ctx);
                }
            }
            Err(_) => self.check_retries(ctx),
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
            self.unwritten.acknowledged(&key, uuid);
        }
        match acknowledged {
            Acknowledged::Next(update) => {
                self.send(update, ctx);
                self.set_timer(ctx);
            }
            Acknowledged::Closed => {
                if let Some(tell) = &self.on_task_closed {
                    tell(key);
                }
            }
            Acknowledged::Quiet => {}
            Acknowledged::Stale => {
                tracing::debug!(task = %key.1, %uuid, "ignoring a stale acknowledgement")
            }
        }
    }
}

impl Handler<MasterChanged> for StatusUpdates {
    type Result = ();
    fn handle(&mut self, MasterChanged(master): MasterChanged, ctx: &mut Context<Self>) {
        self.master = master;
        if self.master.is_some() {
            let all = self.streams.all_in_flight(ctx.clock().now());
            self.resend(all, ctx);
        }
    }
}

impl Handler<ResendUpdates> for StatusUpdates {
    type Result = ();
    fn handle(&mut self, ResendUpdates(framework): ResendUpdates, ctx: &mut Context<Self>) {
        let own = self.streams.in_flight_of(&framework, ctx.clock().now());
        self.resend(own, ctx);
    }
}

impl Handler<ForgetFramework> for StatusUpdates {
    type Result = ();
    fn handle(&mut self, ForgetFramework(framework): ForgetFramework, _: &mut Context<Self>) {
        self.streams.forget_framework(&framework);
        self.unwritten.forget_framework(&framework);
        let numbers = self.numbers.take_framework(&framework);
        self.forget(numbers);
    }
}

impl Handler<ForgetTask> for StatusUpdates {
    type Result = ();
    fn handle(&mut self, ForgetTask(key): ForgetTask, _: &mut Context<Self>) {
        self.streams.forget(&key);
        self.unwritten.forget(&key);
        let numbers = self.numbers.take_task(&key);
        self.forget(numbers);
    }
}

impl Handler<OnTaskClosed> for StatusUpdates {
    type Result = ();
    fn handle(&mut self, OnTaskClosed(tell): OnTaskClosed, _: &mut Context<Self>) {
        self.on_task_closed = Some(tell);
    }
}

impl Handler<OnUpdateRefused> for StatusUpdates {
    type Result = ();
    fn handle(&mut self, OnUpdateRefused(tell): OnUpdateRefused, _: &mut Context<Self>) {
        self.on_update_refused = Some(tell);
    }
}

impl Handler<CountUnacknowledged> for StatusUpdates {
    type Result = usize;
    fn handle(&mut self, _: CountUnacknowledged, _: &mut Context<Self>) -> usize {
        self.streams.waiting()
    }
}
