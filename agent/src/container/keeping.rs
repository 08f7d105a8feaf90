//! What the containerizer does so that containers outlive the agent: they are in the ledger before anything of them starts, and a later
//! process of the agent goes on with them (SPEC 5.3).
//!
//! Only containers of frameworks with `checkpoint` do. What is decided of each is in [`super::machine`], what is gone on with as a whole in
//! [`crate::ledger::plan`]. Never reads the disk.

use protocol::{AgentInfo, ContainerId, FrameworkId, TaskId, Uuid};
use runtime::codec::Garbled;
use runtime::prelude::*;

use super::machine::{Container, Phase};
use super::order::Order;
use super::{Containerizer, Framework};
use crate::ledger::plan::{Fate, Plan};
use crate::ledger::record::{AgentRecord, Entry, Key, StateRecord};
use crate::ledger::{Keep, Ledger, Then};

/// Who keeps what outlives the agent, and what is known there.
#[derive(Default)]
pub(super) struct Keeping {
    /// `None` if nothing does.
    ledger: Option<Handle<Ledger>>,
    /// The machine's boot id.
    boot: String,
    /// Who the agent is, as this process has told the ledger.
    agent: Option<AgentInfo>,
    /// What an earlier process of the agent has left, until the actor starts.
    plan: Plan,
    /// Who waits until all executors are back that come back.
    waiting: Vec<Promise<()>>,
    /// Set once the agent goes and leaves them behind.
    departing: bool,
    /// Set once it leaves for good, and they end with it.
    leaving: bool,
}

/// New containers and tasks are in the ledger, or cannot be.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct Recorded {
    framework_id: FrameworkId,
    /// Containers whose sandbox is to be made next.
    fresh: Vec<(ContainerId, Order)>,
    tasks: Vec<(ContainerId, TaskId)>,
    outcome: Result<(), String>,
}

/// Too many updates of this task wait: this one is not taken, and must be when the executor says it again.
#[derive(Message, Clone, Debug)]
#[rtype(result = "()")]
pub(super) struct UpdateRefused {
    pub(super) framework_id: FrameworkId,
    pub(super) task_id: TaskId,
    pub(super) uuid: Uuid,
}

/// Have all executors subscribed again that outlived an earlier process of the agent? Answered when they have, or are given up.
#[derive(Message, Clone, Copy, Debug)]
#[rtype(result = "()")]
pub struct WhenRecovered;

/// The agent goes, and comes back: what does not outlive it ends. Gives how many containers live on or have ended with something to say that
/// nobody has acknowledged.
#[derive(Message, Clone, Copy, Debug)]
#[rtype(result = "usize")]
pub struct Depart;

impl Containerizer {
    /// The same containerizer, which keeps in this ledger, if there is one, what outlives the agent, and goes on with what is in the plan.
    pub fn keeping(mut self, ledger: Option<Handle<Ledger>>, boot: String, plan: Plan) -> Self {
        self.keeping = Keeping {
            ledger,
            boot,
            plan,
            ..Keeping::default()
        };
        self
    }

    /// Whether containers of this framework outlive the agent.
    pub(super) fn keeps(&self, framework: &protocol::FrameworkInfo) -> bool {
        framework.checkpoint && self.keeping.ledger.is_some()
    }

    /// Whether it lets executors live on although it hears nothing of them any more.
    pub(super) fn is_departing(&self) -> bool {
        self.keeping.departing
    }

    /// Whether the agent leaves for good: what it began now nobody would end.
    pub(super) fn is_leaving(&self) -> bool {
        self.keeping.leaving
    }

    fn keep(&self, entries: Vec<Entry>, then: Option<Then>) {
        let Some(ledger) = &self.keeping.ledger else {
            return;
        };
        if let Err(error) = ledger.tell(Keep { entries, then }) {
            tracing::error!(%error, "the agent's ledger does not hear");
        }
    }

    /// Puts new containers and tasks into the ledger; what is to be done then is done when they are there.
    pub(super) fn record(
        &mut self,
        framework_id: &FrameworkId,
        fresh: Vec<(ContainerId, Order)>,
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
                let then = Then::new(move |outcome| {
                    recorded.outcome = outcome.map_err(|unwritten| unwritten.to_string());
                    own.tell_always(recorded);
                });
                self.keep(entries, Some(then));
            }
            Err(garbled) => {
                own.tell_always(recorded(Err(garbled.to_string())));
            }
        }
    }

    fn entries(
        &mut self,
        fresh: &[(ContainerId, Order)],
        tasks: &[(ContainerId, TaskId)],
    ) -> Result<Vec<Entry>, Garbled> {
        let mut entries = Vec::new();
        if self.keeping.agent.as_ref() != Some(&self.agent) {
            entries.push(Entry::agent(&AgentRecord {
                info: self.agent.clone(),
                boot: self.keeping.boot.clone(),
            })?);
            self.keeping.agent = Some(self.agent.clone());
        }
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

    /// Puts these containers into the ledger anew, as far as they are kept there: their framework has become something else.
    pub(super) fn record_again(&self, containers: &[ContainerId]) {
        let containers = containers.iter().filter_map(|id| self.containers.get(id));
        let kept = containers.filter(|container| container.is_kept());
        let entries = kept.map(|container| Entry::container(&container.id, &container.record()));
        match entries.collect::<Result<Vec<_>, Garbled>>() {
            Ok(entries) if entries.is_empty() => {}
            Ok(entries) => self.keep(entries, None),
            Err(garbled) => tracing::error!(%garbled, "what a framework is now cannot be kept"),
        }
    }

    /// How one of a container's tasks is, for the ledger, if it goes there.
    pub(super) fn state_record(
        &self,
        id: &ContainerId,
        task: &TaskId,
    ) -> Option<(ContainerId, StateRecord)> {
        let record = self.containers.get(id)?.state_record(task)?;
        Some((id.clone(), record))
    }

    /// The end of a task has been acknowledged, so nobody will ask for it.
    pub(super) fn forget_task(&self, id: &ContainerId, task: &TaskId) {
        if self.containers.get(id).is_some_and(Container::is_kept) {
            let keys = [
                Key::Task(id.clone(), task.clone()),
                Key::State(id.clone(), task.clone()),
            ];
            self.keep(keys.map(Entry::Remove).into(), None);
        }
    }

    /// Nothing of this container is left to do.
    pub(super) fn forget_container(&self, id: &ContainerId) {
        let Some(container) = self.containers.get(id).filter(|one| one.is_kept()) else {
            return;
        };
        let mut keys = vec![Key::Container(id.clone())];
        for task in container.tasks() {
            let task = &task.info.task_id;
            keys.push(Key::Task(id.clone(), task.clone()));
            keys.push(Key::State(id.clone(), task.clone()));
        }
        self.keep(keys.into_iter().map(Entry::Remove).collect(), None);
    }

    /// Goes on with what an earlier process of the agent has left.
    pub(super) fn recover(&mut self, ctx: &mut Context<Self>) {
        let plan = std::mem::take(&mut self.keeping.plan);
        if !plan.forget.is_empty() {
            self.keep(plan.forget, None);
        }
        for id in &plan.strangers {
            tracing::warn!(container = %id, "a container that nothing is known of is ended");
            self.launcher.kill(id);
        }
        let patience = self.config.settings.executor_reregistration_timeout;
        for (id, found, fate) in plan.containers {
            let info = found.record.framework.clone();
            let Some(framework) = info.id.clone() else {
                continue;
            };
            let known = self.frameworks.entry(framework.clone());
            known.or_insert(Framework {
                info,
                ending: false,
            });
            let (leader, lost) = match fate {
                Fate::Await(leader) => (leader, None),
                Fate::Lost(lost) => (None, Some(lost)),
            };
            let container = Container::recovered(id.clone(), found, leader);
            let tasks: Vec<TaskId> = container
                .tasks()
                .map(|task| task.info.task_id.clone())
                .collect();
            tracing::info!(container = %id, tasks = tasks.len(), ?fate, "a container of an earlier process of the agent");
            self.containers.insert(&framework, container);
            for task in &tasks {
                self.containers.place(&framework, task, &id);
            }
            match lost {
                Some(lost) => self.with(&id, ctx, |container| container.lost(lost)),
                None => self.later(&id, patience, Container::reregistration_overdue, ctx),
            }
        }
    }

    /// Tells whoever waits for it that all executors are back that come back.
    pub(super) fn tell_recovered(&mut self) {
        let is_awaited = |container: &Container| container.phase == Phase::Recovering;
        if self.keeping.waiting.is_empty() || self.containers.iter().any(|(_, one)| is_awaited(one))
        {
            return;
        }
        for waiting in self.keeping.waiting.drain(..) {
            waiting.answer(());
        }
    }

    /// Nothing outlives the agent: it will not come back as itself.
    pub(super) fn keep_nothing(&mut self) {
        self.keeping.leaving = true;
        self.launcher.keep_nothing();
        if let Some(ledger) = &self.keeping.ledger {
            let _ = ledger.tell(crate::ledger::ForgetEverything); // It ends with the agent.
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
                    self.with(&id, ctx, |container| container.recorded(&task));
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
                    self.with(&id, ctx, |container| {
                        container.not_recorded(&task, &problem)
                    });
                }
            }
        }
    }
}

impl Handler<UpdateRefused> for Containerizer {
    type Result = ();
    fn handle(&mut self, refused: UpdateRefused, _: &mut Context<Self>) {
        let (framework, task) = (&refused.framework_id, &refused.task_id);
        let Some(id) = self.containers.of_task(framework, task) else {
            return;
        };
        if let Some(container) = self.containers.get_mut(&id) {
            container.not_taken(task, refused.uuid);
        }
        let record = self.state_record(&id, task);
        let entry = record.map(|(id, state)| Entry::state(&id, task, &state));
        match entry {
            Some(Ok(entry)) => self.keep(vec![entry], None),
            Some(Err(garbled)) => tracing::error!(%garbled, "how a task is cannot be kept"),
            None => {}
        }
    }
}

impl Handler<WhenRecovered> for Containerizer {
    type Result = Reply<()>;
    fn handle(&mut self, _: WhenRecovered, _: &mut Context<Self>) -> Reply<()> {
        let (promise, reply) = promise();
        self.keeping.waiting.push(promise);
        self.tell_recovered();
        reply
    }
}

impl Handler<Depart> for Containerizer {
    type Result = usize;
    fn handle(&mut self, _: Depart, ctx: &mut Context<Self>) -> usize {
        let (mut waiting, mut ending) = (0, Vec::new());
        for (framework, container) in self.containers.iter() {
            // One that was not started yet, or is being ended, is none to come back to.
            let lives = matches!(
                container.phase,
                Phase::Launching | Phase::Registering | Phase::Recovering | Phase::Running
            );
            let lives_on = container.is_kept() && lives;
            if !lives_on {
                ending.push(container.id.clone());
            }
            let owes = container.is_kept() && container.owes_an_end();
            if lives_on || owes && !self.is_ending(framework) {
                waiting += 1;
            }
        }
        self.keeping.departing = waiting > 0;
        for id in ending {
            // The launcher takes it for one that outlives the agent, and would let it run on after its grace period.
            let is_terminating = |one: &Container| one.is_kept() && one.phase == Phase::Terminating;
            match self.containers.get(&id).is_some_and(is_terminating) {
                true => self.with(&id, ctx, Container::destroy),
                false => self.shut_down(&id, ctx),
            }
        }
        waiting
    }
}
