//! Kill: how a wish that a task end reaches its agent (SPEC 2.2 KILL, 3.13).
//!
//! Pure decisions on [`Books`]. A kill is remembered with its task until that has ended, and passed on again whenever the agent
//! registers again: on its way to an agent whose link breaks it would be lost (W17). A kill of a task that nobody knows is answered as reconciliation would, but not by a new master while agents have still
//! to come back: the task may be with one of them, so the kill waits for it (S132). It never ends a task in the books: only
//! its agent says that it has ended.

use std::collections::BTreeMap;

use protocol::message::operator::{KillByOperator, OperatorError};
use protocol::message::scheduler::KillTask;
use protocol::{AgentId, FrameworkId, KillPolicy, TaskId};
use runtime::Timestamp;

use crate::books::Books;
use crate::effects::{Effects, Tell, ToAgent};
use crate::permission::Asker;
use crate::tasks::Task;

/// Kills of tasks that no agent has reported yet, while some have still to come back; with the agent, where it is known.
pub(crate) type EarlyKills = BTreeMap<(FrameworkId, TaskId), (Option<AgentId>, Option<KillPolicy>)>;

/// How many of them are remembered; more are dropped, and said again by the driver when it next subscribes.
const EARLY_KILLS_MAX: usize = 100_000;

/// Whether the kill is of a task of this id on another agent: a name may be given again, and whoever says where means that one alone.
fn is_elsewhere(task: &Task, named: Option<&AgentId>) -> bool {
    named.is_some_and(|agent| *agent != task.agent_id)
}

impl Books {
    /// A task should end.
    pub fn kill(&mut self, call: KillTask, now: Timestamp, out: &mut Effects) {
        self.counters.count("master/messages_kill_task");
        self.pass_on_kill(call, now, out);
    }

    pub(crate) fn pass_on_kill(&mut self, call: KillTask, now: Timestamp, out: &mut Effects) {
        let (framework, id) = (&call.framework_id, &call.task_id);
        match self.tasks.get(framework, id) {
            Some(task) if is_elsewhere(task, call.agent_id.as_ref()) => {
                let agent = &task.agent_id;
                tracing::warn!(%framework, task = %id, %agent, named = ?call.agent_id, "a kill that names another agent than its task's is dropped");
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
            _ => match self.how_is(framework, id, call.agent_id.as_ref(), now) {
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

    /// The kill that waited for this task, if it is meant: how it should end.
    pub(crate) fn take_early_kill(
        &mut self,
        agent_id: &AgentId,
        framework: &FrameworkId,
        task: &TaskId,
    ) -> Option<Option<KillPolicy>> {
        if self.early_kills.is_empty() {
            return None;
        }
        let whose = (framework.clone(), task.clone());
        let (named, policy) = self.early_kills.remove(&whose)?;
        if named.is_none_or(|named| named == *agent_id) {
            return Some(policy);
        }
        self.counters.count("master/dropped_messages");
        None
    }

    /// No agent is awaited any more: the kills of tasks that none of them has reported are answered.
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

    /// An operator wants a task killed; gives whose it was.
    pub fn kill_by_operator(
        &mut self,
        call: KillByOperator,
        asker: Option<&Asker>,
        now: Timestamp,
        out: &mut Effects,
    ) -> Result<FrameworkId, OperatorError> {
        let framework_id = self.whose(&call, asker)?;
        if let (Some(asker), Some(framework)) = (asker, self.frameworks.get(&framework_id)) {
            let may = asker.tear_down(&framework.info);
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

    /// Whose task is meant, of the frameworks that the asker sees, or names and may end.
    fn whose(
        &self,
        call: &KillByOperator,
        asker: Option<&Asker>,
    ) -> Result<FrameworkId, OperatorError> {
        let sight = asker.map(|asker| (asker, asker.sight()));
        let is_known = |id: &FrameworkId| {
            let Some((asker, sight)) = sight.as_ref().filter(|(_, sight)| !sight.is_whole()) else {
                return true;
            };
            let framework = self.frameworks.get(id).map(|one| &one.info);
            framework.is_some_and(|info| {
                let may = || call.framework_id.is_some() && asker.tear_down(info).is_ok();
                sight.framework(info) || may()
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
