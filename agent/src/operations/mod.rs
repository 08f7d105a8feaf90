//! Operations: applies reservations and volumes to the agent's resources, on disk before they are
//! reported.
//!
//! Handles operations, master changes and acknowledgements from the agent. State is in
//! [`resource_state::ResourceState`], its checkpoint in a [`checkpoint::OperationStore`].
//! Operations are applied one at a time, since a task may need the volume created before it. An
//! operation is reported as failed only when the next process cannot find it on disk; while the
//! disk leaves that open, the old checkpoint is rewritten until it succeeds. Does not authorize:
//! the master did.

pub mod checkpoint;
pub mod resource_state;
#[cfg(test)]
mod tests;
pub mod volumes;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use protocol::message::operation::{
    ApplyOperation, OperationUpdated, OperationsSettled, ResourcesReported,
};
use protocol::message::scheduler::AcknowledgeOperation;
use protocol::{AgentId, AgentResources, OperationState, OperationStatus, OperationUpdate, Uuid};
use resources::{Conversion, Resources};
use runtime::prelude::*;
use runtime::{Instant, Interrupted};

use self::checkpoint::{Checkpoint, OperationStore, ReplaceOutcome};
use self::resource_state::{Key, Prepared, Refused, ResourceState};
use crate::container::Containerizer;
use crate::container::events::ResourcesCheckpointed;
use crate::status::MasterChanged;

/// How long an operation may take.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Operations that may wait while the disk's state is unknown. The agent waits [`PATIENCE`] for
/// each.
const WAITING_MAX: usize = 1_000;

/// Interval of attempts to restore the old checkpoint.
const RESTORE_INTERVAL: Duration = Duration::from_secs(1);

/// Applies an operation. Answered with the agent's resources afterwards, whether it was applied or
/// not.
#[derive(Message, Clone, Debug)]
#[rtype(result = "Resources")]
pub struct Apply(pub ApplyOperation);

/// The report for a registration. Operations sent before are stale afterwards.
#[derive(Message, Clone, Debug)]
#[rtype(result = "AgentResources")]
pub struct ReportResources {
    /// The id under which the agent registers; `None` as a new agent. Statuses of another id are
    /// dropped: its frameworks were told that it is gone.
    pub agent_id: Option<AgentId>,
}

/// Lists the named operations that are being applied or have unacknowledged statuses.
#[derive(Message, Clone, Copy, Debug)]
#[rtype(result = "Vec<KnownOperation>")]
pub struct ListOperations;

/// An operation named by a framework.
#[derive(Clone, Debug, PartialEq)]
pub struct KnownOperation {
    /// Its framework and status.
    pub update: OperationUpdate,
    /// Its conversion; `None` if an earlier agent process applied it.
    pub conversion: Option<Conversion>,
}

/// Requests the agent's resources with all its reservations and volumes.
#[derive(Message, Clone, Copy, Debug)]
#[rtype(result = "Resources")]
pub struct CurrentTotal;

/// A framework has acknowledged this status.
#[derive(Message, Clone, Debug)]
#[rtype(result = "()")]
pub struct OperationAcknowledged(pub AcknowledgeOperation);

/// An operation with a failed checkpoint write, which may be on disk.
struct UncertainOperation {
    apply: ApplyOperation,
    /// The error.
    problem: String,
    /// The checkpoint to restore.
    before: Checkpoint,
    promise: Promise<Resources>,
}

/// The operations actor.
pub struct Operations {
    resource_state: ResourceState,
    /// Taken during a write, and while the disk's state is unknown.
    store: Option<OperationStore>,
    /// Queued operations.
    waiting: VecDeque<(ApplyOperation, Promise<Resources>)>,
    containerizer: Handle<Containerizer>,
    master: Option<(AgentId, Pid)>,
    /// The agent's id, once registered.
    agent_id: Option<AgentId>,
    /// Resources changed since the last report, and no master was connected to receive it.
    unreported: bool,
    timer: Option<(Instant, TimerHandle)>,
    /// Conversions of named operations started by this process, until acknowledged.
    conversions: BTreeMap<Key, Conversion>,
}

impl Operations {
    /// Continues from a checkpoint.
    pub fn new(
        resource_state: ResourceState,
        store: OperationStore,
        containerizer: Handle<Containerizer>,
    ) -> Self {
        Self {
            resource_state,
            store: Some(store),
            waiting: VecDeque::new(),
            containerizer,
            master: None,
            agent_id: None,
            unreported: false,
            timer: None,
            conversions: BTreeMap::new(),
        }
    }

    fn done(
        &mut self,
        apply: &ApplyOperation,
        update: Option<OperationUpdate>,
        prepared: Prepared,
        ctx: &mut Context<Self>,
    ) {
        tracing::info!(operation = apply.conversion.name(), converted = %prepared.step.converted.brief(), "operation applied");
        self.resource_state.settle(apply, prepared);
        self.update_containerizer();
        if !self.resource_state.is_current(apply) {
            // A report made during the write did not include this operation.
            self.report(ctx);
        }
        if let Some(update) = update {
            self.deliver(update, ctx);
        }
        self.report_settled(apply, ctx);
    }

    /// Reports the present resources, since the master assumed others.
    fn refused(&mut self, apply: &ApplyOperation, refused: Refused, ctx: &mut Context<Self>) {
        let Refused { state, message } = refused;
        tracing::warn!(operation = apply.conversion.name(), %state, message, "operation not applied");
        self.resource_state.finish_failed(apply);
        // The sender of a stale operation has a newer report, or gets one with its registration.
        if state != OperationState::Dropped {
            self.report(ctx);
        }
        if let Some(key) = apply.feedback.clone() {
            self.store_conversion(apply);
            let uuid = Uuid(ctx.node().fresh_uuid());
            let mut update = resource_state::update(key, state, message, Resources::new(), uuid);
            update.status.agent_id = self.agent_id.clone();
            self.deliver(update, ctx);
        }
        self.report_settled(apply, ctx);
    }

    /// Reports the newest finished serial, after the status.
    fn report_settled(&self, apply: &ApplyOperation, ctx: &Context<Self>) {
        let (Some((agent_id, master)), Some(_)) = (&self.master, apply.serial) else {
            return;
        };
        let settled = OperationsSettled {
            agent_id: agent_id.clone(),
            serial: self.resource_state.settled(),
        };
        if let Err(error) = ctx.node().tell(master, settled) {
            tracing::debug!(%error, "finished operations not reported until the next registration");
        }
    }

    /// Restores the old checkpoint, then reports the operation as failed.
    fn restore(
        &mut self,
        mut store: OperationStore,
        uncertain: UncertainOperation,
        ctx: &mut Context<Self>,
    ) {
        let before = uncertain.before.clone();
        let written = ctx.node().blocking(move || {
            let written = store.write(&before);
            (store, written)
        });
        ctx.then(written, |this, written, ctx| match written {
            Ok((store, Ok(()))) => {
                this.store = Some(store);
                this.fail(&uncertain.apply, uncertain.problem, ctx);
                uncertain
                    .promise
                    .answer(this.resource_state.total().clone());
                this.apply_next(ctx);
            }
            Ok((store, Err(error))) => {
                tracing::warn!(%error, "checkpoint of operations still in doubt");
                this.restore_later(store, uncertain, ctx);
            }
            Err(interrupted) => Self::end(&interrupted, ctx),
        });
    }

    fn restore_later(
        &mut self,
        store: OperationStore,
        uncertain: UncertainOperation,
        ctx: &mut Context<Self>,
    ) {
        ctx.after(RESTORE_INTERVAL, move |this, ctx| {
            this.restore(store, uncertain, ctx)
        });
    }

    /// Fails an operation that the next process will not find.
    fn fail(&mut self, apply: &ApplyOperation, message: String, ctx: &mut Context<Self>) {
        let state = OperationState::Failed;
        self.refused(apply, Refused { state, message }, ctx);
    }

    /// The store is lost with its interrupted job. Ends this actor and so the agent; the next
    /// process reads the disk.
    fn end(interrupted: &Interrupted, ctx: &mut Context<Self>) {
        tracing::error!(%interrupted, "checkpoint store of operations lost");
        ctx.stop();
    }

    /// Sends the resources to the master under a new version.
    fn report(&mut self, ctx: &mut Context<Self>) {
        let resources = self.resource_state.report(Uuid(ctx.node().fresh_uuid()));
        let Some((agent_id, master)) = &self.master else {
            self.unreported = true;
            return;
        };
        let report = ResourcesReported {
            agent_id: agent_id.clone(),
            resources,
        };
        if let Err(error) = ctx.node().tell(master, report) {
            tracing::debug!(%error, "resources not reported until the next registration");
        }
    }

    /// Stores a named operation's conversion until its status is acknowledged.
    fn store_conversion(&mut self, apply: &ApplyOperation) {
        if let Some(key) = &apply.feedback {
            let conversion = apply.conversion.allocated(None);
            self.conversions.insert(key.clone(), conversion);
        }
    }

    fn update_containerizer(&self) {
        let made = self.resource_state.total().checkpointed();
        self.containerizer.tell_always(ResourcesCheckpointed(made));
    }

    fn deliver(&mut self, update: OperationUpdate, ctx: &mut Context<Self>) {
        self.resource_state
            .await_acknowledgement(update.clone(), ctx.clock().now());
        self.send(update, ctx);
        self.set_timer(ctx);
    }

    fn send(&self, mut update: OperationUpdate, ctx: &Context<Self>) {
        let Some((agent_id, master)) = &self.master else {
            return;
        };
        update.status.agent_id = Some(agent_id.clone());
        let agent_id = agent_id.clone();
        let updated = OperationUpdated { agent_id, update };
        if let Err(error) = ctx.node().tell(master, updated) {
            tracing::debug!(%error, "operation status not sent; it will be resent");
        }
    }

    /// Keeps one timer set to the earliest resend.
    fn set_timer(&mut self, ctx: &mut Context<Self>) {
        let due = self.resource_state.next_due();
        match self.timer.take() {
            Some((at, timer)) if Some(at) == due => {
                self.timer = Some((at, timer));
                return;
            }
            Some((_, other)) => ctx.cancel(other),
            None => {}
        }
        let Some(due) = due else { return };
        let timer = ctx.after(due - ctx.clock().now(), |this, ctx| {
            this.timer = None;
            for update in this.resource_state.overdue(ctx.clock().now()) {
                this.send(update, ctx);
            }
            this.set_timer(ctx);
        });
        self.timer = Some((due, timer));
    }
}

impl Actor for Operations {
    type Context = Context<Self>;

    fn started(&mut self, _: &mut Self::Context) {
        self.update_containerizer();
    }
}

impl Process for Operations {}

impl Handler<Apply> for Operations {
    type Result = Reply<Resources>;

    fn handle(&mut self, Apply(apply): Apply, ctx: &mut Context<Self>) -> Reply<Resources> {
        let (promise, reply) = promise();
        if self.waiting.len() >= WAITING_MAX {
            let message = format!("{WAITING_MAX} operations wait for the agent's storage already");
            match apply.serial {
                None => self.fail(&apply, message, ctx),
                // Queued operations precede this one, so it is not finished: the report makes the
                // master resend it.
                Some(serial) => {
                    tracing::warn!(serial, message, "operation queue full");
                    self.report(ctx);
                }
            }
            promise.answer(self.resource_state.total().clone());
        } else {
            self.waiting.push_back((apply, promise));
            self.apply_next(ctx);
        }
        reply
    }
}

impl Handler<CurrentTotal> for Operations {
    type Result = MessageResult<CurrentTotal>;

    fn handle(&mut self, _: CurrentTotal, _: &mut Context<Self>) -> Self::Result {
        MessageResult(self.resource_state.total().clone())
    }
}

impl Operations {
    /// Applies queued operations unless one is under way, which calls this again when it ends.
    fn apply_next(&mut self, ctx: &mut Context<Self>) {
        while let Some(store) = self.store.take() {
            let Some((apply, promise)) = self.waiting.pop_front() else {
                self.store = Some(store);
                return;
            };
            if self.resource_state.is_obsolete(&apply) {
                let (serial, version) = (apply.serial, apply.version);
                tracing::debug!(?serial, %version, "ignoring an obsolete operation");
                self.store = Some(store);
                if apply.serial <= Some(self.resource_state.settled()) {
                    self.report_settled(&apply, ctx);
                }
                promise.answer(self.resource_state.total().clone());
                continue;
            }
            match self.resource_state.prepare(&apply) {
                Ok(prepared) => self.apply(apply, prepared, store, promise, ctx),
                Err(refused) => {
                    self.store = Some(store);
                    self.refused(&apply, refused, ctx);
                    promise.answer(self.resource_state.total().clone());
                }
            }
        }
    }

    fn apply(
        &mut self,
        apply: ApplyOperation,
        prepared: Prepared,
        mut store: OperationStore,
        promise: Promise<Resources>,
        ctx: &mut Context<Self>,
    ) {
        self.store_conversion(&apply);
        let update = apply.feedback.clone().map(|key| {
            let uuid = Uuid(ctx.node().fresh_uuid());
            let converted = prepared.step.converted.clone();
            let finished = OperationState::Finished;
            let mut update = resource_state::update(key, finished, String::new(), converted, uuid);
            update.status.agent_id = self.agent_id.clone();
            update
        });
        let checkpoint = self
            .resource_state
            .checkpoint(&apply, &prepared, update.as_ref());
        let before = self.resource_state.checkpoint_before();
        let conversion = apply.conversion.clone();
        let on_disk = before.clone();
        let kept = ctx.node().blocking(move || {
            let kept = match store.before(&conversion) {
                Ok(()) => store.replace(&before, &checkpoint),
                Err(problem) => ReplaceOutcome::Unchanged(problem),
            };
            if kept == ReplaceOutcome::Replaced {
                store.after(&conversion);
            }
            (store, kept)
        });
        ctx.then(kept, move |this, kept, ctx| {
            let (store, replaced) = match kept {
                Ok(kept) => kept,
                Err(interrupted) => return Self::end(&interrupted, ctx),
            };
            let problem = match replaced {
                ReplaceOutcome::Replaced => {
                    this.store = Some(store);
                    this.done(&apply, update, prepared, ctx);
                    promise.answer(this.resource_state.total().clone());
                    return this.apply_next(ctx);
                }
                ReplaceOutcome::Unchanged(problem) => {
                    this.store = Some(store);
                    this.fail(&apply, problem, ctx);
                    promise.answer(this.resource_state.total().clone());
                    return this.apply_next(ctx);
                }
                ReplaceOutcome::InDoubt(problem) => problem,
            };
            let uncertain = UncertainOperation {
                apply,
                problem,
                before: on_disk,
                promise,
            };
            this.restore_later(store, uncertain, ctx);
        });
    }
}

impl Handler<ReportResources> for Operations {
    type Result = MessageResult<ReportResources>;

    fn handle(
        &mut self,
        ReportResources { agent_id }: ReportResources,
        ctx: &mut Context<Self>,
    ) -> Self::Result {
        self.unreported = false;
        for key in self.resource_state.remove_others(agent_id.as_ref()) {
            self.conversions.remove(&key);
        }
        self.agent_id = agent_id;
        MessageResult(self.resource_state.report(Uuid(ctx.node().fresh_uuid())))
    }
}

impl Handler<ListOperations> for Operations {
    type Result = Vec<KnownOperation>;

    fn handle(&mut self, _: ListOperations, _: &mut Context<Self>) -> Self::Result {
        let begun = self
            .conversions
            .keys()
            .filter(|key| !self.resource_state.is_unacknowledged(key));
        let begun = begun.map(|key| {
            let (framework_id, id) = key.clone();
            let status = OperationStatus::new(id, OperationState::Pending, "");
            let update = OperationUpdate {
                framework_id,
                status,
            };
            (key, update)
        });
        let over = self.resource_state.unacknowledged();
        let all = begun.chain(over.map(|(key, update)| (key, update.clone())));
        let agent = self.master.as_ref().map(|(agent, _)| agent);
        let known = all.map(|(key, mut update)| {
            update.status.agent_id = agent.cloned();
            KnownOperation {
                update,
                conversion: self.conversions.get(key).cloned(),
            }
        });
        known.collect()
    }
}

impl Handler<OperationAcknowledged> for Operations {
    type Result = ();

    fn handle(
        &mut self,
        OperationAcknowledged(call): OperationAcknowledged,
        ctx: &mut Context<Self>,
    ) {
        let key = (call.framework_id, call.operation_id);
        self.resource_state.acknowledge(&key, call.uuid);
        if !self.resource_state.is_unacknowledged(&key) {
            self.conversions.remove(&key);
        }
        self.set_timer(ctx);
    }
}

impl Handler<MasterChanged> for Operations {
    type Result = ();

    fn handle(&mut self, MasterChanged(master): MasterChanged, ctx: &mut Context<Self>) {
        self.master = master;
        if let Some((agent_id, _)) = &self.master {
            self.agent_id = Some(agent_id.clone());
            if std::mem::take(&mut self.unreported) {
                self.report(ctx);
            }
            for update in self.resource_state.all(ctx.clock().now()) {
                self.send(update, ctx);
            }
            self.set_timer(ctx);
        }
    }
}
