//! Operations: keeps what they have made of the agent's resources, on the disk before anybody is told (SPEC 3.5, 5.3).
//!
//! Hears operations, masters and acknowledgements from the agent. Remembers [`held::Held`]; what must outlive the process is in a
//! [`checkpoint::Keeper`]. The agent waits for each operation, so that a task never comes before the volume it uses; hence there is one at a
//! time. One that failed is said to have failed once it is certain that the next process of the agent will not find it on the disk: while the disk
//! leaves that open, what was there before is written again and again. It never decides whether an operation is allowed to its asker: the
//! master did.

pub mod checkpoint;
pub mod held;
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

use self::checkpoint::{Checkpoint, Keeper, Replaced};
use self::held::{Held, Key, Prepared, Refused};
use crate::container::Containerizer;
use crate::container::events::Checkpointed;
use crate::status::MasterIs;

/// How long an operation may take.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// How many operations may wait while it is not known what is on the disk. Their agent waits [`PATIENCE`] for each.
const WAITING_MAX: usize = 1_000;

/// How long after a failed attempt it is tried again to put back what was on the disk before an operation.
const PUT_BACK_EVERY: Duration = Duration::from_secs(1);

/// Do this; answered with what the agent has then, whether it was done or not.
#[derive(Message, Clone, Debug)]
#[rtype(result = "Resources")]
pub struct Apply(pub ApplyOperation);

/// What is a master to be told when the agent registers? Whatever masters have sent before is stale then.
#[derive(Message, Clone, Debug)]
#[rtype(result = "AgentResources")]
pub struct Report {
    /// As whom it comes: the statuses of any other agent that it was are forgotten, since their frameworks have been told what became of that
    /// one. `None` if it comes as a new one.
    pub agent_id: Option<AgentId>,
}

/// Which named operations does the agent know? The one that it is at, and those whose statuses are not acknowledged.
#[derive(Message, Clone, Copy, Debug)]
#[rtype(result = "Vec<KnownOperation>")]
pub struct ListOperations;

/// An operation that a framework has named.
#[derive(Clone, Debug, PartialEq)]
pub struct KnownOperation {
    /// Whose it is, and how it is.
    pub update: OperationUpdate,
    /// What was to become of what; `None` of one that an earlier process of the agent has done.
    pub conversion: Option<Conversion>,
}

/// A framework has this status.
#[derive(Message, Clone, Debug)]
#[rtype(result = "()")]
pub struct Acknowledged(pub AcknowledgeOperation);

/// An operation that could not be kept, or may have been.
struct Doubt {
    apply: ApplyOperation,
    /// What went wrong.
    problem: String,
    /// What is to be on the disk.
    before: Checkpoint,
    promise: Promise<Resources>,
}

/// The actor.
pub struct Operations {
    held: Held,
    /// Away while it writes, and while nobody knows what is on the disk.
    keeper: Option<Keeper>,
    /// What comes meanwhile.
    waiting: VecDeque<(ApplyOperation, Promise<Resources>)>,
    containerizer: Handle<Containerizer>,
    master: Option<(AgentId, Pid)>,
    /// Who the agent is, if it was registered.
    agent_id: Option<AgentId>,
    /// Whether there is something else than a master was told last, which no master could be told.
    unreported: bool,
    timer: Option<(Instant, Errand)>,
    /// What the named operations are that this process has begun and whose statuses are not acknowledged.
    conversions: BTreeMap<Key, Conversion>,
}

impl Operations {
    /// Goes on from what was kept.
    pub fn new(held: Held, keeper: Keeper, containerizer: Handle<Containerizer>) -> Self {
        Self {
            held,
            keeper: Some(keeper),
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
        tracing::info!(operation = apply.conversion.name(), converted = %prepared.step.converted.brief(), "an operation is applied");
        self.held.settle(apply, prepared);
        self.tell_containerizer();
        if !self.held.is_current(apply) {
            // It took so long that a master was told meanwhile what there was before it.
            self.report(ctx);
        }
        if let Some(update) = update {
            self.give(update, ctx);
        }
        self.tell_settled(apply, ctx);
    }

    /// The master believes something else than there is: it is told.
    fn refused(&mut self, apply: &ApplyOperation, refused: Refused, ctx: &mut Context<Self>) {
        let Refused { state, message } = refused;
        tracing::warn!(operation = apply.conversion.name(), %state, message, "an operation is not applied");
        self.held.give_up(apply);
        // Whoever sent a stale one has been told what there is, or is about to be.
        if state != OperationState::Dropped {
            self.report(ctx);
        }
        if let Some(key) = apply.feedback.clone() {
            self.remember(apply);
            let uuid = Uuid(ctx.node().fresh_uuid());
            let mut update = held::update(key, state, message, Resources::new(), uuid);
            update.status.agent_id = self.agent_id.clone();
            self.give(update, ctx);
        }
        self.tell_settled(apply, ctx);
    }

    /// Tells the master what is over, after how it went.
    fn tell_settled(&self, apply: &ApplyOperation, ctx: &Context<Self>) {
        let (Some((agent_id, master)), Some(_)) = (&self.master, apply.serial) else {
            return;
        };
        let settled = OperationsSettled {
            agent_id: agent_id.clone(),
            serial: self.held.settled(),
        };
        if let Err(error) = ctx.node().tell(master, settled) {
            tracing::debug!(%error, "not told what is over; it is when the agent registers again");
        }
    }

    /// Puts back what was on the disk, and then says that the operation has failed.
    fn put_back(&mut self, mut keeper: Keeper, doubt: Doubt, ctx: &mut Context<Self>) {
        let before = doubt.before.clone();
        let written = ctx.node().blocking(move || {
            let written = keeper.write(&before);
            (keeper, written)
        });
        ctx.then(written, |this, written, ctx| match written {
            Ok((keeper, Ok(()))) => {
                this.keeper = Some(keeper);
                this.fail(&doubt.apply, doubt.problem, ctx);
                doubt.promise.answer(this.held.total().clone());
                this.go_on(ctx);
            }
            Ok((keeper, Err(error))) => {
                tracing::warn!(%error, "it is still not known what is kept of operations");
                this.put_back_later(keeper, doubt, ctx);
            }
            Err(interrupted) => Self::end(&interrupted, ctx),
        });
    }

    fn put_back_later(&mut self, keeper: Keeper, doubt: Doubt, ctx: &mut Context<Self>) {
        ctx.after(PUT_BACK_EVERY, move |this, ctx| {
            this.put_back(keeper, doubt, ctx)
        });
    }

    /// The next process of the agent will not find it.
    fn fail(&mut self, apply: &ApplyOperation, message: String, ctx: &mut Context<Self>) {
        let state = OperationState::Failed;
        self.refused(apply, Refused { state, message }, ctx);
    }

    /// What is on the disk is known to nobody, nor can it be written any more: with this actor ends its agent, and the next finds out.
    fn end(interrupted: &Interrupted, ctx: &mut Context<Self>) {
        tracing::error!(%interrupted, "what is kept of operations is lost to this process");
        ctx.stop();
    }

    /// Tells the master what there is, under a new version.
    fn report(&mut self, ctx: &mut Context<Self>) {
        let resources = self.held.report(Uuid(ctx.node().fresh_uuid()));
        let Some((agent_id, master)) = &self.master else {
            self.unreported = true;
            return;
        };
        let report = ResourcesReported {
            agent_id: agent_id.clone(),
            resources,
        };
        if let Err(error) = ctx.node().tell(master, report) {
            tracing::debug!(%error, "resources not reported; they are when the agent registers again");
        }
    }

    /// Remembers what a named operation is until its status is acknowledged.
    fn remember(&mut self, apply: &ApplyOperation) {
        if let Some(key) = &apply.feedback {
            let conversion = apply.conversion.allocated(None);
            self.conversions.insert(key.clone(), conversion);
        }
    }

    fn tell_containerizer(&self) {
        let made = self.held.total().checkpointed();
        self.containerizer.tell_always(Checkpointed(made));
    }

    fn give(&mut self, update: OperationUpdate, ctx: &mut Context<Self>) {
        self.held
            .await_acknowledgement(update.clone(), ctx.clock().now());
        self.send(update, ctx);
        self.keep_time(ctx);
    }

    fn send(&self, mut update: OperationUpdate, ctx: &Context<Self>) {
        let Some((agent_id, master)) = &self.master else {
            return;
        };
        update.status.agent_id = Some(agent_id.clone());
        let agent_id = agent_id.clone();
        let updated = OperationUpdated { agent_id, update };
        if let Err(error) = ctx.node().tell(master, updated) {
            tracing::debug!(%error, "an operation's status is not sent; it will be again");
        }
    }

    /// Keeps one timer running while anything waits.
    fn keep_time(&mut self, ctx: &mut Context<Self>) {
        let due = self.held.next_due();
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
            for update in this.held.overdue(ctx.clock().now()) {
                this.send(update, ctx);
            }
            this.keep_time(ctx);
        });
        self.timer = Some((due, timer));
    }
}

impl Actor for Operations {
    type Context = Context<Self>;

    fn started(&mut self, _: &mut Self::Context) {
        self.tell_containerizer();
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
                // Those that wait come before it, so it cannot be over: its master, which hears what there is, asks once more.
                Some(serial) => {
                    tracing::warn!(serial, message, "an operation is not taken");
                    self.report(ctx);
                }
            }
            promise.answer(self.held.total().clone());
        } else {
            self.waiting.push_back((apply, promise));
            self.go_on(ctx);
        }
        reply
    }
}

impl Operations {
    /// Begins what waits, unless one is under way: then it is called again at its end.
    fn go_on(&mut self, ctx: &mut Context<Self>) {
        while let Some(keeper) = self.keeper.take() {
            let Some((apply, promise)) = self.waiting.pop_front() else {
                self.keeper = Some(keeper);
                return;
            };
            if self.held.is_in_vain(&apply) {
                let (serial, version) = (apply.serial, apply.version);
                tracing::debug!(?serial, %version, "an operation is said in vain");
                self.keeper = Some(keeper);
                if apply.serial <= Some(self.held.settled()) {
                    self.tell_settled(&apply, ctx);
                }
                promise.answer(self.held.total().clone());
                continue;
            }
            match self.held.prepare(&apply) {
                Ok(prepared) => self.apply(apply, prepared, keeper, promise, ctx),
                Err(refused) => {
                    self.keeper = Some(keeper);
                    self.refused(&apply, refused, ctx);
                    promise.answer(self.held.total().clone());
                }
            }
        }
    }

    fn apply(
        &mut self,
        apply: ApplyOperation,
        prepared: Prepared,
        mut keeper: Keeper,
        promise: Promise<Resources>,
        ctx: &mut Context<Self>,
    ) {
        self.remember(&apply);
        let update = apply.feedback.clone().map(|key| {
            let uuid = Uuid(ctx.node().fresh_uuid());
            let converted = prepared.step.converted.clone();
            let finished = OperationState::Finished;
            let mut update = held::update(key, finished, String::new(), converted, uuid);
            update.status.agent_id = self.agent_id.clone();
            update
        });
        let checkpoint = self.held.checkpoint(&apply, &prepared, update.as_ref());
        let before = self.held.checkpoint_before();
        let conversion = apply.conversion.clone();
        let on_disk = before.clone();
        let kept = ctx.node().blocking(move || {
            let kept = match keeper.before(&conversion) {
                Ok(()) => keeper.replace(&before, &checkpoint),
                Err(problem) => Replaced::Not(problem),
            };
            if kept == Replaced::Done {
                keeper.after(&conversion);
            }
            (keeper, kept)
        });
        ctx.then(kept, move |this, kept, ctx| {
            let (keeper, replaced) = match kept {
                Ok(kept) => kept,
                Err(interrupted) => return Self::end(&interrupted, ctx),
            };
            let problem = match replaced {
                Replaced::Done => {
                    this.keeper = Some(keeper);
                    this.done(&apply, update, prepared, ctx);
                    promise.answer(this.held.total().clone());
                    return this.go_on(ctx);
                }
                Replaced::Not(problem) => {
                    this.keeper = Some(keeper);
                    this.fail(&apply, problem, ctx);
                    promise.answer(this.held.total().clone());
                    return this.go_on(ctx);
                }
                Replaced::InDoubt(problem) => problem,
            };
            let doubt = Doubt {
                apply,
                problem,
                before: on_disk,
                promise,
            };
            this.put_back_later(keeper, doubt, ctx);
        });
    }
}

impl Handler<Report> for Operations {
    type Result = MessageResult<Report>;

    fn handle(&mut self, Report { agent_id }: Report, ctx: &mut Context<Self>) -> Self::Result {
        self.unreported = false;
        for key in self.held.forget_others(agent_id.as_ref()) {
            self.conversions.remove(&key);
        }
        self.agent_id = agent_id;
        MessageResult(self.held.report(Uuid(ctx.node().fresh_uuid())))
    }
}

impl Handler<ListOperations> for Operations {
    type Result = Vec<KnownOperation>;

    fn handle(&mut self, _: ListOperations, _: &mut Context<Self>) -> Self::Result {
        let begun = self.conversions.keys().filter(|key| !self.held.awaits(key));
        let begun = begun.map(|key| {
            let (framework_id, id) = key.clone();
            let status = OperationStatus::new(id, OperationState::Pending, "");
            let update = OperationUpdate {
                framework_id,
                status,
            };
            (key, update)
        });
        let over = self.held.unacknowledged();
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

impl Handler<Acknowledged> for Operations {
    type Result = ();

    fn handle(&mut self, Acknowledged(call): Acknowledged, ctx: &mut Context<Self>) {
        let key = (call.framework_id, call.operation_id);
        self.held.acknowledge(&key, call.uuid);
        if !self.held.awaits(&key) {
            self.conversions.remove(&key);
        }
        self.keep_time(ctx);
    }
}

impl Handler<MasterIs> for Operations {
    type Result = ();

    fn handle(&mut self, MasterIs(master): MasterIs, ctx: &mut Context<Self>) {
        self.master = master;
        if let Some((agent_id, _)) = &self.master {
            self.agent_id = Some(agent_id.clone());
            if std::mem::take(&mut self.unreported) {
                self.report(ctx);
            }
            for update in self.held.all(ctx.clock().now()) {
                self.send(update, ctx);
            }
            self.keep_time(ctx);
        }
    }
}
