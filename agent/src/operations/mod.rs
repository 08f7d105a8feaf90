//! Operations: keeps what they have made of the agent's resources, on the disk before anybody is told (SPEC 3.5, 5.3).
//!
//! Hears operations, masters and acknowledgements from the agent. Remembers [`held::Held`]; what must outlive the process is in a
//! [`checkpoint::Keeper`]. The agent waits for each operation, so that a task never comes before the volume it uses; hence there is one at a
//! time. It never decides whether an operation is allowed to its asker: the master did.

pub mod checkpoint;
pub mod held;
pub mod volumes;

use std::time::Duration;

use protocol::message::operation::{ApplyOperation, OperationUpdated, ResourcesReported};
use protocol::message::scheduler::AcknowledgeOperation;
use protocol::{AgentId, AgentResources, OperationState, OperationUpdate, Uuid};
use resources::Resources;
use runtime::Instant;
use runtime::prelude::*;

use self::checkpoint::Keeper;
use self::held::{Held, Prepared, Refused};
use crate::container::Containerizer;
use crate::container::events::Checkpointed;
use crate::status::MasterIs;

/// How long an operation may take.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Do this; answered with what the agent has then, whether it was done or not.
#[derive(Message, Clone, Debug)]
#[rtype(result = "Resources")]
pub struct Apply(pub ApplyOperation);

/// What is a master to be told when the agent registers? Whatever masters have sent before is stale then.
#[derive(Message, Clone, Copy, Debug)]
#[rtype(result = "AgentResources")]
pub struct Report;

/// A framework has this status.
#[derive(Message, Clone, Debug)]
#[rtype(result = "()")]
pub struct Acknowledged(pub AcknowledgeOperation);

/// The actor.
pub struct Operations {
    held: Held,
    /// Away while it writes.
    keeper: Option<Keeper>,
    containerizer: Handle<Containerizer>,
    master: Option<(AgentId, Pid)>,
    timer: Option<(Instant, Errand)>,
}

impl Operations {
    /// Goes on from what was kept.
    pub fn new(held: Held, keeper: Keeper, containerizer: Handle<Containerizer>) -> Self {
        Self {
            held,
            keeper: Some(keeper),
            containerizer,
            master: None,
            timer: None,
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
        self.held.settle(prepared);
        self.tell_containerizer();
        if !self.held.is_current(apply) {
            // It took so long that a master was told meanwhile what there was before it.
            self.report(ctx);
        }
        if let Some(update) = update {
            self.give(update, ctx);
        }
    }

    /// The master believes something else than there is: it is told.
    fn refused(&mut self, apply: &ApplyOperation, refused: Refused, ctx: &mut Context<Self>) {
        let Refused { state, message } = refused;
        tracing::warn!(operation = apply.conversion.name(), %state, message, "an operation is not applied");
        // Whoever sent a stale one has been told what there is, or is about to be.
        if state != OperationState::Dropped {
            self.report(ctx);
        }
        if let Some(key) = apply.feedback.clone() {
            let uuid = Uuid(ctx.node().fresh_uuid());
            let update = held::update(key, state, message, Resources::new(), uuid);
            self.give(update, ctx);
        }
    }

    /// Tells the master what there is, under a new version.
    fn report(&mut self, ctx: &mut Context<Self>) {
        let resources = self.held.report(Uuid(ctx.node().fresh_uuid()));
        let Some((agent_id, master)) = &self.master else {
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

    fn tell_containerizer(&self) {
        let made = self.held.total().checkpointed();
        let _ = self.containerizer.tell(Checkpointed(made));
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
        let prepared = self.held.prepare(&apply);
        let (prepared, mut keeper) = match (prepared, self.keeper.take()) {
            (Ok(prepared), Some(keeper)) => (prepared, keeper),
            (Ok(_), None) => {
                let refused = Refused {
                    state: OperationState::Failed,
                    message: "the agent's storage has failed".to_owned(),
                };
                self.refused(&apply, refused, ctx);
                promise.answer(self.held.total().clone());
                return reply;
            }
            (Err(refused), keeper) => {
                self.keeper = keeper;
                self.refused(&apply, refused, ctx);
                promise.answer(self.held.total().clone());
                return reply;
            }
        };
        let update = apply.feedback.clone().map(|key| {
            let uuid = Uuid(ctx.node().fresh_uuid());
            let converted = prepared.step.converted.clone();
            held::update(
                key,
                OperationState::Finished,
                String::new(),
                converted,
                uuid,
            )
        });
        let checkpoint = self.held.checkpoint(&prepared, update.as_ref());
        let before = self.held.checkpoint_before();
        let conversion = apply.conversion.clone();
        let kept = ctx.node().blocking(move || {
            let kept = keeper
                .before(&conversion)
                .and_then(|()| keeper.replace(&before, &checkpoint));
            if kept.is_ok() {
                keeper.after(&conversion);
            }
            (keeper, kept)
        });
        ctx.then(kept, move |this, kept, ctx| {
            let kept = match kept {
                Ok((keeper, kept)) => {
                    this.keeper = Some(keeper);
                    kept
                }
                Err(interrupted) => Err(interrupted.to_string()),
            };
            match kept {
                Ok(()) => this.done(&apply, update, prepared, ctx),
                Err(message) => {
                    let state = OperationState::Failed;
                    this.refused(&apply, Refused { state, message }, ctx);
                }
            }
            promise.answer(this.held.total().clone());
        });
        reply
    }
}

impl Handler<Report> for Operations {
    type Result = MessageResult<Report>;

    fn handle(&mut self, _: Report, ctx: &mut Context<Self>) -> Self::Result {
        MessageResult(self.held.report(Uuid(ctx.node().fresh_uuid())))
    }
}

impl Handler<Acknowledged> for Operations {
    type Result = ();

    fn handle(&mut self, Acknowledged(call): Acknowledged, ctx: &mut Context<Self>) {
        let key = (call.framework_id, call.operation_id);
        self.held.acknowledge(&key, call.uuid);
        self.keep_time(ctx);
    }
}

impl Handler<MasterIs> for Operations {
    type Result = ();

    fn handle(&mut self, MasterIs(master): MasterIs, ctx: &mut Context<Self>) {
        self.master = master;
        if self.master.is_some() {
            for update in self.held.all(ctx.clock().now()) {
                self.send(update, ctx);
            }
            self.keep_time(ctx);
        }
    }
}
