//! Unplaced tasks: launched on this agent but never put into a container, until their ends are
//! acknowledged.
//!
//! They are part of the inventory. Otherwise a new master would answer a reconciliation with "gone"
//! and later forward another end. Not on disk, like their updates.

use std::collections::BTreeMap;

use protocol::message::registration::RunningTask;
use protocol::message::scheduler::KillTask;
use protocol::{
    AgentId, CommandInfo, FrameworkId, Reason, Source, StatusUpdate, TaskId, TaskInfo, TaskState,
    TaskStatus, Uuid,
};
use resources::Resources;
use runtime::prelude::*;

use crate::container::Containerizer;
use crate::status::Forward;

/// The tasks with their terminal states.
#[derive(Debug, Default)]
pub(in crate::container) struct UnplacedTasks {
    tasks: BTreeMap<(FrameworkId, TaskId), (TaskInfo, TaskState)>,
}

impl UnplacedTasks {
    /// Adds a task. The first state of an id stays until acknowledged.
    fn note(&mut self, framework: &FrameworkId, agent: &AgentId, task: TaskInfo, state: TaskState) {
        let mut task = TaskInfo {
            agent_id: agent.clone(),
            ..task
        };
        // Masters refuse an inventory with an invalid task.
        if task.command.is_some() == task.executor.is_some() {
            (task.command, task.executor) = (Some(CommandInfo::shell("")), None);
        }
        let key = (framework.clone(), task.task_id.clone());
        self.tasks.entry(key).or_insert((task, state));
    }

    /// The end is acknowledged, or the task is disowned.
    pub(in crate::container) fn forget(&mut self, framework: &FrameworkId, task: &TaskId) {
        self.tasks.remove(&(framework.clone(), task.clone()));
    }

    /// Removes a framework's tasks.
    pub(in crate::container) fn forget_framework(&mut self, framework: &FrameworkId) {
        self.tasks.retain(|(owner, _), _| owner != framework);
    }

    /// The tasks as part of the inventory.
    pub(in crate::container) fn held(&self) -> impl Iterator<Item = RunningTask> {
        let held = self.tasks.iter();
        held.map(|((framework_id, _), (info, state))| RunningTask {
            framework_id: framework_id.clone(),
            info: info.clone(),
            state: *state,
        })
    }
}

/// A placeholder for a task that a kill names and that was never here.
pub(in crate::container) fn placeholder(kill: &KillTask, agent: AgentId) -> TaskInfo {
    TaskInfo::new(kill.task_id.clone(), agent, Resources::new())
}

impl Containerizer {
    /// Reports the end of a task that was not put into a container.
    pub(in crate::container) fn report_unplaced(
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
            .with_reason(reason, problem);
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
