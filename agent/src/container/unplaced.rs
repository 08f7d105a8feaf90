//! Unplaced: the tasks that were told to this agent and never came into a container, until their ends are acknowledged.
//!
//! Remembers what a master is told of them: like a task that has ended in its container, each is held until its framework has the end in hand. A new master
//! that knew nothing of it would call it gone to whoever asks, and pass on another end after that. It is not on the disk: nor is the update that tells the end.

use std::collections::BTreeMap;

use protocol::message::registration::RunningTask;
use protocol::message::scheduler::KillTask;
use protocol::{
    AgentId, CommandInfo, FrameworkId, Reason, Source, StatusUpdate, TaskId, TaskInfo, TaskState,
    TaskStatus, Uuid,
};
use resources::Resources;
use runtime::prelude::*;

use super::Containerizer;
use crate::status::Forward;

/// Those tasks, each with how it ended.
#[derive(Debug, Default)]
pub(super) struct Unplaced {
    tasks: BTreeMap<(FrameworkId, TaskId), (TaskInfo, TaskState)>,
}

impl Unplaced {
    /// This one has ended so on this agent. What was said first of its id stands until it is acknowledged.
    fn note(&mut self, framework: &FrameworkId, agent: &AgentId, task: TaskInfo, state: TaskState) {
        let mut task = TaskInfo {
            agent_id: agent.clone(),
            ..task
        };
        // Masters refuse agents that say what they have of tasks which cannot be.
        if task.command.is_some() == task.executor.is_some() {
            (task.command, task.executor) = (Some(CommandInfo::shell("")), None);
        }
        let key = (framework.clone(), task.task_id.clone());
        self.tasks.entry(key).or_insert((task, state));
    }

    /// Its framework has the end in hand, or nobody wants to hear of it.
    pub(super) fn forget(&mut self, framework: &FrameworkId, task: &TaskId) {
        self.tasks.remove(&(framework.clone(), task.clone()));
    }

    /// The framework is no more.
    pub(super) fn forget_framework(&mut self, framework: &FrameworkId) {
        self.tasks.retain(|(owner, _), _| owner != framework);
    }

    /// As a master is told of them.
    pub(super) fn held(&self) -> impl Iterator<Item = RunningTask> {
        let held = self.tasks.iter();
        held.map(|((framework_id, _), (info, state))| RunningTask {
            framework_id: framework_id.clone(),
            info: info.clone(),
            state: *state,
        })
    }
}

/// All that is known of a task that should end and was never here.
pub(super) fn only_named(kill: &KillTask, agent: AgentId) -> TaskInfo {
    TaskInfo {
        name: kill.task_id.to_string(),
        task_id: kill.task_id.clone(),
        agent_id: agent,
        resources: Resources::new(),
        command: None,
        executor: None,
        data: Vec::new(),
        kill_policy: None,
        labels: Default::default(),
    }
}

impl Containerizer {
    /// A status of a task that never came into a container.
    pub(super) fn report_unplaced(
        &mut self,
        framework_id: &FrameworkId,
        task: TaskInfo,
        state: TaskState,
        reason: Reason,
        problem: String,
        ctx: &Context<Self>,
    ) {
        let at = ctx.clock().wall();
        let mut status = TaskStatus::new(task.task_id.clone(), state, Source::Agent, at)
            .because(reason, problem);
        status.agent_id = self.agent.id.clone();
        status.uuid = Some(Uuid(ctx.node().fresh_uuid()));
        self.counts.note(state);
        if let Some(agent) = &self.agent.id {
            self.unplaced.note(framework_id, agent, task, state);
        }
        let update = StatusUpdate {
            framework_id: framework_id.clone(),
            latest_state: state,
            status,
        };
        self.give(Forward {
            update,
            executor: None,
            record: None,
        });
    }
}
