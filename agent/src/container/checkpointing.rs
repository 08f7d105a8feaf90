//! Checkpointing of containers: writes them to the ledger before they start, and recovers those of
//! an earlier agent process.
//!
//! Applies to frameworks with `checkpoint`. Decisions per container are in [`super::machine`],
//! decisions at recovery in [`crate::ledger::plan`]. Never reads the disk.

use protocol::{AgentInfo, ContainerId, FrameworkId, TaskId, Uuid};
use runtime::prelude::*;
use runtime::wire::codec::Garbled;

use super::executor_spec::ExecutorSpec;
use super::machine::{Container, Phase};
use super::{Containerizer, Framework};
use crate::ledger::plan::{Plan, RecoveryAction};
use crate::ledger::record::{AgentRecord, Entry, Key, StateRecord};
use crate::ledger::{Ledger, OnWritten, WriteEntries};

/// The ledger and the state of checkpointing.
#[derive(Default)]
pub(super) struct Checkpointing {
    /// `None` if checkpointing is off.
    ledger: Option<Handle<Ledger>>,
    /// The machine's boot id.
    boot: String,
    /// The agent's description as last written.
    agent: Option<AgentInfo>,
    /// The recovery plan, until the actor starts.
    plan: Plan,
    /// Answered when recovery is complete.
    waiting: Vec<Promise<()>>,
    /// Set once the agent stops and leaves containers running.
    stopping: bool,
    /// Set once the agent leaves for good.
    leaving: bool,
}

/// The ledger has written new containers and tasks, or failed to.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct Recorded {
    framework_id: FrameworkId,
    /// Containers that get their sandbox next.
    fresh: Vec<(ContainerId, ExecutorSpec)>,
    tasks: Vec<(ContainerId, TaskId)>,
    outcome: Result<(), String>,
}

/// An update was refused because too many of its task are waiting. It is new when the executor
/// repeats it.
#[derive(Message, Clone, Debug)]
#[rtype(result = "()")]
pub(super) struct UpdateNotAccepted {
    pub(super) framework_id: FrameworkId,
    pub(super) task_id: TaskId,
    pub(super) uuid: Uuid,
}

/// Answered when all executors of an earlier agent process have subscribed again or been given up.
#[derive(Message, Clone, Copy, Debug)]
#[rtype(result = "()")]
pub struct WhenRecovered;

/// Prepares for a restart: shuts down containers without a checkpoint. Returns the number of
/// containers that live on or have unacknowledged terminal updates.
#[derive(Message, Clone, Copy, Debug)]
#[rtype(result = "usize")]
pub struct PrepareToStop;

impl Containerizer {
    /// Sets the ledger and the recovery plan.
    pub fn with_ledger(mut self, ledger: Option<Handle<Ledger>>, boot: String, plan: Plan) -> Self {
        self.checkpointing = Checkpointing {
            ledger,
            boot,
            plan,
            ..Checkpointing::default()
        };
        self
    }

    /// Whether containers of this framework are checkpointed.
    pub(super) fn checkpoints(&self, framework: &protocol::FrameworkInfo) -> bool {
        framework.checkpoint && self.checkpointing.ledger.is_some()
    }

    /// Whether the agent is stopping for a restart, so that disconnected executors live on.
    pub(super) fn is_stopping(&self) -> bool {
        self.checkpointing.stopping
    }

    /// Whether the agent is leaving for good: new containers would never be cleaned up.
    pub(super) fn is_leaving(&self) -> bool {
        self.checkpointing.leaving
    }

    fn write_entries(&self, entries: Vec<Entry>, on_written: Option<OnWritten>) {
        let Some(ledger) = &self.checkpointing.ledger else {
            return;
        };
        if let Err(error) = ledger.tell(WriteEntries {
            entries,
            on_written,
        }) {
            tracing::error!(%error, "cannot reach the ledger");
        }
    }

    /// Checkpoints new containers and tasks, and continues with [`Recorded`].
    pub(super) fn record(
        &self,
        framework_id: &FrameworkId,
        fresh: Vec<(ContainerId, ExecutorSpec)>,
        tasks: Vec<(ContainerId, TaskId)>,
        ctx: &Context<Self>,
    ) {
        let entries = self.entries(&fresh, &tasks);
        let recorded = |outcome| Recorded {
            framework_id: framework_id.clone(),
            fresh,
            tasks,
            outcome,
        };
        let own = ctx.handle();
        match entries {
            Ok(entries) => {
                let mut recorded = recorded(Ok(()));
                let on_written = OnWritten::new(move |outcome| {
                    recorded.outcome = outcome.map_err(|unwritten| unwritten.to_string());
                    own.tell_always(recorded);
                });
                self.write_entries(entries, Some(on_written));
            }
            Err(garbled) => {
                own.tell_always(recorded(Err(garbled.to_string())));
            }
        }
    }

    /// Writes the agent's description once it has an id, and again after a change: later processes
    /// of this work directory keep the id. Precedes the records of its containers.
    pub(super) fn record_agent(&mut self) {
        if self.agent.id.is_none() || self.checkpointing.agent.as_ref() == Some(&self.agent) {
            return;
        }
        let record = AgentRecord {
            info: self.agent.clone(),
            boot: self.checkpointing.boot.clone(),
        };
        match Entry::agent(&record) {
            Ok(entry) => {
                self.write_entries(vec![entry], None);
                self.checkpointing.agent = Some(record.info);
            }
            Err(garbled) => tracing::error!(%garbled, "cannot checkpoint the agent's id"),
        }
    }

    fn entries(
        &self,
        fresh: &[(ContainerId, ExecutorSpec)],
        tasks: &[(ContainerId, TaskId)],
    ) -> Result<Vec<Entry>, Garbled> {
        let mut entries = Vec::new();
        for (id, _) in fresh {
            if let Some(container) = self.containers.get(id) {
                entries.push(Entry::container(id, &container.record())?);
            }
        }
        for (id, task) in tasks {
            let container = self.containers.get(id);
            if let Some(task) = container.and_then(|container| container.task(task)) {
                entries.push(Entry::task(id, &task.info)?);
            }
        }
        Ok(entries)
    }

    /// Rewrites the checkpointed ones of these containers after a change of their framework.
    pub(super) fn rewrite_records(&self, containers: &[ContainerId]) {
        let containers = containers.iter().filter_map(|id| self.containers.get(id));
        let checkpointed = containers.filter(|container| container.is_checkpointed());
        let entries =
            checkpointed.map(|container| Entry::container(&container.id, &container.record()));
        match entries.collect::<Result<Vec<_>, Garbled>>() {
            Ok(entries) if entries.is_empty() => {}
            Ok(entries) => self.write_entries(entries, None),
            Err(garbled) => tracing::error!(%garbled, "cannot checkpoint a changed framework"),
        }
    }

    /// The checkpoint of a task's state, if its container is checkpointed.
    pub(super) fn state_record(
        &self,
        id: &ContainerId,
        task: &TaskId,
    ) -> Option<(ContainerId, StateRecord)> {
        let record = self.containers.get(id)?.state_record(task)?;
        Some((id.clone(), record))
    }

    /// Removes the checkpoint of an acknowledged task.
    pub(super) fn forget_task(&self, id: &ContainerId, task: &TaskId) {
        if self
            .containers
            .get(id)
            .is_some_and(Container::is_checkpointed)
        {
            let keys = [
                Key::Task(id.clone(), task.clone()),
                Key::State(id.clone(), task.clone()),
            ];
            self.write_entries(keys.map(Entry::Remove).into(), None);
        }
    }

    /// Removes the checkpoints of a finished container.
    pub(super) fn forget_container(&mut self, id: &ContainerId) {
        let Some(container) = self.containers.get(id).filter(|one| one.is_checkpointed()) else {
            return;
        };
        let mut keys = vec![Key::Container(id.clone())];
        for task in container.tasks() {
            let task = &task.info.task_id;
            keys.push(Key::Task(id.clone(), task.clone()));
            keys.push(Key::State(id.clone(), task.clone()));
        }
        self.write_entries(keys.into_iter().map(Entry::Remove).collect(), None);
        self.launcher.forget(id);
    }

    /// Recovers the containers of an earlier agent process.
    pub(super) fn recover(&mut self, ctx: &mut Context<Self>) {
        let plan = std::mem::take(&mut self.checkpointing.plan);
        if !plan.forget.is_empty() {
            self.write_entries(plan.forget, None);
        }
        for id in &plan.unknown {
            tracing::warn!(container = %id, "killing an unknown container");
            self.launcher.kill(id);
            self.launcher.forget(id);
        }
        let patience = self.config.settings.executor_reregistration_timeout;
        let mut resumed = Vec::new();
        for (id, found, action) in plan.containers {
            let info = found.record.framework.clone();
            let Some(framework) = info.id.clone() else {
                continue;
            };
            let known = self.frameworks.entry(framework.clone());
            known.or_insert(Framework {
                info,
                ending: false,
            });
            let (leader, lost) = match action {
                RecoveryAction::Await(leader) => (leader, None),
                RecoveryAction::Ended(lost) => (None, Some(lost)),
            };
            let age = plan.ages.get(&id).copied().unwrap_or_default();
            let container = Container::recovered(id.clone(), found, leader).with_age(age);
            let tasks: Vec<TaskId> = container
                .tasks()
                .map(|task| task.info.task_id.clone())
                .collect();
            tracing::info!(container = %id, tasks = tasks.len(), ?action, "recovering a container");
            self.containers.insert(&framework, container);
            for task in &tasks {
                self.containers.assign(&framework, task, &id);
            }
            self.enclose(&id);
            resumed.push((id, lost));
        }
        // Once all are known, since one may decide about others of its group.
        for (id, lost) in resumed {
            match lost {
                Some(lost) => self.with(&id, ctx, |container| container.lost(lost)),
                None => {
                    self.with(&id, ctx, Container::resume);
                    self.later(&id, patience, Container::reregistration_overdue, ctx);
                }
            }
        }
        self.recover_isolation(ctx);
    }

    /// Answers [`WhenRecovered`] if no container is recovering any more.
    pub(super) fn tell_recovered(&mut self) {
        let is_awaited = |container: &Container| container.phase == Phase::Recovering;
        if self.checkpointing.waiting.is_empty()
            || !self.isolation.is_recovered()
            || self.containers.iter().any(|(_, one)| is_awaited(one))
        {
            return;
        }
        for waiting in self.checkpointing.waiting.drain(..) {
            waiting.answer(());
        }
    }

    /// Discards all checkpoints: the agent will not return under its id.
    pub(super) fn discard_checkpoints(&mut self) {
        self.checkpointing.leaving = true;
        self.launcher.discard_checkpoints();
        if let Some(ledger) = &self.checkpointing.ledger {
            // Fails only if the ledger has ended.
            let _ = ledger.tell(crate::ledger::DeleteCheckpoints);
        }
    }
}

impl Handler<Recorded> for Containerizer {
    type Result = ();
    fn handle(&mut self, recorded: Recorded, ctx: &mut Context<Self>) {
        let Recorded {
            framework_id,
            fresh,
            tasks,
            outcome,
        } = recorded;
        match outcome {
            Ok(()) => {
                for (id, task) in tasks {
                    self.with(&id, ctx, |container| container.release(&task));
                }
                self.make_sandboxes(&framework_id, fresh, ctx);
            }
            Err(problem) => {
                self.write_failed();
                for (id, _) in fresh {
                    self.counts.container_launch_errors += 1;
                    let outcome = Err(format!("the agent cannot keep it: {problem}"));
                    self.with(&id, ctx, |container| container.prepared(outcome));
                }
                for (id, task) in tasks {
                    let problem = format!("the agent cannot keep it: {problem}");
                    self.with(&id, ctx, |container| container.refuse(&task, problem));
                }
            }
        }
    }
}

impl Handler<UpdateNotAccepted> for Containerizer {
    type Result = ();
    fn handle(&mut self, refused: UpdateNotAccepted, _: &mut Context<Self>) {
        let (framework, task) = (&refused.framework_id, &refused.task_id);
        let Some(id) = self.containers.of_task(framework, task) else {
            return;
        };
        if let Some(container) = self.containers.get_mut(&id) {
            container.forget_update(task, refused.uuid);
        }
        let record = self.state_record(&id, task);
        let entry = record.map(|(id, state)| Entry::state(&id, task, &state));
        match entry {
            Some(Ok(entry)) => self.write_entries(vec![entry], None),
            Some(Err(garbled)) => tracing::error!(%garbled, "cannot checkpoint a task state"),
            None => {}
        }
    }
}

impl Handler<WhenRecovered> for Containerizer {
    type Result = Reply<()>;
    fn handle(&mut self, _: WhenRecovered, _: &mut Context<Self>) -> Reply<()> {
        let (promise, reply) = promise();
        self.checkpointing.waiting.push(promise);
        self.tell_recovered();
        reply
    }
}

impl Handler<PrepareToStop> for Containerizer {
    type Result = usize;
    fn handle(&mut self, _: PrepareToStop, ctx: &mut Context<Self>) -> usize {
        let (mut waiting, mut ending) = (0, Vec::new());
        for (framework, container) in self.containers.iter() {
            // Containers that have not started or are ending do not wait for a restart.
            let lives = matches!(
                container.phase,
                Phase::Launching | Phase::Registering | Phase::Recovering | Phase::Running
            );
            let lives_on = container.is_checkpointed() && lives;
            if !lives_on {
                ending.push(container.id.clone());
            }
            let owes = container.is_checkpointed() && container.has_unacknowledged_end();
            if lives_on || owes && !self.is_ending(framework) {
                waiting += 1;
            }
        }
        self.checkpointing.stopping = waiting > 0;
        for id in ending {
            // The launcher knows it as checkpointed and would not kill its executor after its grace
            // period.
            let is_terminating = |one: &Container| {
                one.is_checkpointed() && one.phase == Phase::Terminating && !one.is_command
            };
            match self.containers.get(&id).is_some_and(is_terminating) {
                true => self.with(&id, ctx, Container::destroy),
                false => self.shut_down(&id, ctx),
            }
        }
        waiting
    }
}
