//! The end of frameworks: a lost scheduler, the failover timeout, and the removal.
//!
//! Pure decisions on [`MasterState`].

use module_api::allocator::{FrameworkActivity, FrameworkRemoved};
use protocol::message::scheduler::FrameworkFailed;
use protocol::message::task::ShutDownFramework;
use protocol::{FrameworkId, Reason, TaskState};
use runtime::{Pid, Timestamp};

use super::Framework;
use crate::registry::RegistryOperation;
use crate::state::effects::{Due, Effect, Effects, SendEffects, ToAgent, ToAllocator, ToScheduler};
use crate::state::{MasterState, master_status};
use crate::tasks::Task;

/// The error for the scheduler of a removed framework.
pub(crate) const REMOVED: &str = "Framework has been removed";

impl MasterState {
    /// The link to a scheduler broke: the framework gets no offers until it returns within its
    /// failover timeout. A standby replaces the scheduler at once.
    pub fn framework_disconnected(&mut self, scheduler: &Pid, out: &mut Effects) {
        let Some(framework) = self.frameworks.at(scheduler) else {
            return;
        };
        let (id, timeout) = (framework.id.clone(), framework.info.failover_timeout);
        let Some(session) = self.frameworks.disconnect(&id) else {
            return;
        };
        out.allocator(ToAllocator::FrameworkActivity(FrameworkActivity {
            framework_id: id.clone(),
            active: false,
        }));
        self.rescind_of_framework(&id, out);
        let chosen = self.standbys.has(&id);
        if chosen {
            out.push(Effect::Choose(id.clone()));
        }
        if timeout.is_zero() && !chosen {
            out.push(Effect::RemoveFramework(id));
        } else if !timeout.is_zero() {
            if !chosen {
                out.push(Effect::RecordDeadline(id.clone()));
            }
            out.push(Effect::Later(timeout, Due::FailoverExpired(id, session)));
        }
    }

    /// The framework's failover deadline, to be recorded; none while it is connected.
    pub fn deadline(&self, id: &FrameworkId, now: Timestamp) -> Option<RegistryOperation> {
        let framework = self.frameworks.get(id)?;
        let deadline = now + framework.info.failover_timeout;
        Some(RegistryOperation::AdmitFramework {
            info: framework.info.clone(),
            deadline: (!framework.is_connected()).then_some(deadline),
        })
    }

    /// The failover timeout of that session is over: removes the framework if no scheduler has
    /// connected since.
    pub fn failover_expired(&mut self, id: FrameworkId, session: u64, out: &mut Effects) {
        let late =
            |framework: &Framework| framework.session == session && !framework.is_connected();
        if self.frameworks.get(&id).is_some_and(late) {
            out.push(Effect::RemoveFramework(id));
        }
    }

    /// The framework is removed from the registry: its agents end its tasks. Its scheduler gets an
    /// error and nothing else, as in Mesos.
    pub fn remove_framework(&mut self, id: &FrameworkId, now: Timestamp, out: &mut Effects) {
        let Some(framework) = self.frameworks.get(id).cloned() else {
            return;
        };
        self.frameworks.disconnect(id);
        self.rescind_of_framework(id, out);
        let status = |task: &Task| {
            let (state, reason) = (TaskState::Killed, Reason::FrameworkRemoved);
            let message = format!("Framework {id} removed");
            master_status(Some(&framework), &task.id, state, reason, message, now)
                .on(&task.agent_id)
        };
        let mut killed = Vec::new();
        self.operations.remove_framework(id);
        let (tasks, freed, agents) = self.tasks.remove_framework(id, |task| {
            let status = status(task);
            task.observe(&status, status.state);
            killed.push(status);
        });
        for status in killed {
            self.task_ended(id, &status);
            self.tell_status(id, status, out);
        }
        for freed in freed {
            self.recovered(freed, None, out);
        }
        for agent in agents {
            if let Some(agent) = self.agents.connected(&agent) {
                let framework_id = id.clone();
                let gone = ToAgent::ShutDownFramework(ShutDownFramework { framework_id });
                out.agent(&agent.pid, gone);
            }
        }
        self.forget_answers_by(id);
        self.early_kills.retain(|(framework, _), _| framework != id);
        self.revocations.retain(|(framework, _), _| framework != id);
        self.dismiss_standbys(id, out);
        out.allocator(ToAllocator::FrameworkRemoved(FrameworkRemoved {
            framework_id: id.clone(),
        }));
        if let Some(scheduler) = framework.scheduler {
            let message = REMOVED.to_owned();
            let failed = ToScheduler::Failed(FrameworkFailed { message });
            out.scheduler(Some(&scheduler), failed);
            out.push(Effect::Unlink(scheduler));
        }
        self.frameworks.complete(id, tasks, now);
        self.offers.forget(id);
    }
}
