//! Kills of tasks.
//!
//! Pure decisions on [`MasterState`]. A kill is stored with its task until the task has ended, and
//! is sent again at each registration of the agent: it may have been lost with a broken link. A
//! kill of an unknown task is answered as reconciliation would, except by a new master while agents
//! are awaited: one of them may have the task, so the kill waits. Only the agent reports the end of
//! a task.

use std::collections::BTreeMap;

use protocol::message::operator::{KillByOperator, OperatorError};
use protocol::message::scheduler::KillTask;
use protocol::{AgentId, FrameworkId, KillPolicy, TaskId};
use runtime::Timestamp;

use crate::permission::Caller;
use crate::state::MasterState;
use crate::state::effects::{Effects, SendEffects, ToAgent};
use crate::tasks::Task;

/// Kills of tasks that no agent has reported yet, while agents are awaited; with the agent, if
/// known.
pub(crate) type EarlyKills = BTreeMap<(FrameworkId, TaskId), (Option<AgentId>, Option<KillPolicy>)>;

/// Maximum early kills; further ones are dropped, and the driver repeats them at its next
/// subscription.
const EARLY_KILLS_MAX: usize = 100_000;

/// Whether the kill names another agent than the task's: ids may be reused, and a named agent means
/// only its task.
fn is_elsewhere(task: &Task, named: Option<&AgentId>) -> bool {
    named.is_some_and(|agent| *agent != task.agent_id)
}

impl MasterState {
    /// Handles a framework's kill.
    pub fn kill(&mut self, call: KillTask, now: Timestamp, out: &mut Effects) {
        self.counters.count("master/messages_kill_task");
        self.pass_on_kill(call, now, out);
    }

    pub(crate) fn pass_on_kill(&mut self, call: KillTask, now: Timestamp, out: &mut Effects) {
        let (framework, id) = (&call.framework_id, &call.task_id);
        match self.tasks.get(framework, id) {
            Some(task) if is_elsewhere(task, call.agent_id.as_ref()) => {
                let agent = &task.agent_id;
                tracing::warn!(%framework, task = %id, %agent, named = ?call.agent_id, "dropping a kill that names another agent than its task's");
                self.counters.count("master/dropped_messages");
            }
            Some(task) if !task.told.is_terminal() => {
                let agent = task.agent_id.clone();
                let policy = call.kill_policy;
                self.tasks
                    .update(framework, id, |task| task.kill = Some(policy));
                if let Some(agent) = self.agents.connected(&agent) {
                    out.agent(&agent.pid, ToAgent::Kill(call));
                }
            }
            _ => match self.reconciled_status(framework, id, call.agent_id.as_ref(), now) {
                Some(status) => self.tell_status(framework, status, out),
                None if self.early_kills.len() < EARLY_KILLS_MAX => {
                    let key = (call.framework_id, call.task_id);
                    self.early_kills
                        .insert(key, (call.agent_id, call.kill_policy));
                }
                None => self.counters.count("master/dropped_messages"),
            },
        }
    }

    /// Removes the early kill of this task, if it applies; returns the kill policy.
    pub(crate) fn take_early_kill(
        &mut self,
        agent_id: &AgentId,
        framework: &FrameworkId,
        task: &TaskId,
    ) -> Option<Option<KillPolicy>> {
        if self.early_kills.is_empty() {
            return None;
        }
        let find_owner = (framework.clone(), task.clone());
        let (named, policy) = self.early_kills.remove(&find_owner)?;
        if named.is_none_or(|named| named == *agent_id) {
            return Some(policy);
        }
        self.counters.count("master/dropped_messages");
        None
    }

    /// Answers the early kills of tasks that no agent has reported, once none is awaited.
    pub(crate) fn answer_early_kills(&mut self, now: Timestamp, out: &mut Effects) {
        if self.early_kills.is_empty() || self.agents.recovered().next().is_some() {
            return;
        }
        for ((framework_id, task_id), kill) in std::mem::take(&mut self.early_kills) {
            let (agent_id, kill_policy) = kill;
            let kill = KillTask {
                framework_id,
                task_id,
                agent_id,
                kill_policy,
            };
            self.pass_on_kill(kill, now, out);
        }
    }

    /// Handles an operator's kill; returns the task's framework.
    pub fn kill_by_operator(
        &mut self,
        call: KillByOperator,
        caller: Option<&Caller>,
        now: Timestamp,
        out: &mut Effects,
    ) -> Result<FrameworkId, OperatorError> {
        let framework_id = self.find_owner(&call, caller)?;
        if let (Some(caller), Some(framework)) = (caller, self.frameworks.get(&framework_id)) {
            let may = caller.tear_down(&framework.info);
            may.map_err(|forbidden| OperatorError::Failed {
                what: format!("task `{}`", call.task_id),
                reason: forbidden.to_string(),
            })?;
        }
        let kill = KillTask {
            framework_id: framework_id.clone(),
            task_id: call.task_id,
            agent_id: None,
            kill_policy: None,
        };
        self.kill(kill, now, out);
        Ok(framework_id)
    }

    /// The framework of the task, among those that the caller may see, or names and may end.
    fn find_owner(
        &self,
        call: &KillByOperator,
        caller: Option<&Caller>,
    ) -> Result<FrameworkId, OperatorError> {
        let visibility = caller.map(|caller| (caller, caller.visibility()));
        let is_known = |id: &FrameworkId| {
            let Some((caller, visibility)) = visibility
                .as_ref()
                .filter(|(_, visibility)| !visibility.is_whole())
            else {
                return true;
            };
            let framework = self.frameworks.get(id).map(|one| &one.info);
            framework.is_some_and(|info| {
                let may = || call.framework_id.is_some() && caller.tear_down(info).is_ok();
                visibility.framework(info) || may()
            })
        };
        let runs = |framework: &FrameworkId, task: &TaskId| {
            self.tasks
                .get(framework, task)
                .is_some_and(|task| !task.told.is_terminal())
        };
        let what = match &call.framework_id {
            Some(framework) => format!("task `{}` of framework `{framework}`", call.task_id),
            None => format!("task `{}`", call.task_id),
        };
        let mut owners: Vec<&FrameworkId> = self
            .tasks
            .frameworks()
            .map(|(framework, _)| framework)
            .filter(|framework| call.framework_id.as_ref().is_none_or(|id| id == *framework))
            .filter(|framework| runs(framework, &call.task_id))
            .filter(|framework| is_known(framework))
            .collect();
        match (owners.pop(), owners.is_empty()) {
            (Some(owner), true) => Ok(owner.clone()),
            (None, _) => Err(OperatorError::NotFound { what }),
            (Some(last), false) => {
                let mut candidates: Vec<_> =
                    owners.iter().take(8).map(ToString::to_string).collect();
                candidates.push(last.to_string());
                Err(OperatorError::Ambiguous {
                    what,
                    candidates: candidates.join(", "),
                })
            }
        }
    }
}
