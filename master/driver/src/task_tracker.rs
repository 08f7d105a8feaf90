//! The framework's active tasks as known to this driver, with pending launches, kills and
//! questions.
//!
//! It finds lost launches and lost kills: after each reconnection and every 15 minutes the driver
//! reconciles these tasks, and repeats unanswered questions with increasing intervals. Pure: no
//! clock and no mailbox.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use protocol::{AgentId, KillPolicy, Reason, TaskId, TaskState, TaskStatus};

/// Maximum number of tracked tasks. Further ones are reconciled only by the master's own list.
pub const TASKS_REMEMBERED: usize = 500_000;
/// Number of ended tasks to remember, so that a master that has forgotten them cannot change their
/// final state.
pub const ENDS_REMEMBERED: usize = 10_000;
/// Number of tasks per reconciliation message.
pub const RECONCILE_CHUNK: usize = 5_000;
/// Interval between reconciliations of all tasks.
pub const RECONCILE_EVERY: Duration = Duration::from_secs(15 * 60);
/// First wait for an answer to a reconciliation; doubled up to [`RECONCILE_EVERY`].
pub const RECONCILE_RETRY: Duration = Duration::from_secs(10);

/// An active task.
#[derive(Debug, Default)]
struct Entry {
    agent: Option<AgentId>,
    /// A launch is in flight: no master has confirmed it.
    launch_in_flight: bool,
    /// Newest state delivered to the scheduler.
    state: Option<TaskState>,
    /// Kill requested by the scheduler, with its policy.
    kill: Option<Option<KillPolicy>>,
    /// Number of kills in flight, unconfirmed by a master.
    kills_in_flight: u32,
    /// A reconciliation is unanswered.
    unanswered: bool,
    /// The next reconciliation answer is delivered only if it is news.
    quiet: bool,
}

/// Active tasks and the newest ended ones.
#[derive(Debug, Default)]
pub struct TaskTracker {
    tasks: BTreeMap<TaskId, Entry>,
    ends: EndedTasks,
}

/// The newest ended tasks with their final states.
#[derive(Debug, Default)]
struct EndedTasks {
    by_task: BTreeMap<TaskId, TaskState>,
    order: VecDeque<TaskId>,
}

impl EndedTasks {
    /// Records the final state, if none is known.
    fn note(&mut self, task: &TaskId, state: TaskState) {
        if self.by_task.contains_key(task) {
            return;
        }
        self.by_task.insert(task.clone(), state);
        self.order.push_back(task.clone());
        while self.order.len() > ENDS_REMEMBERED {
            if let Some(oldest) = self.order.pop_front() {
                self.by_task.remove(&oldest);
            }
        }
    }

    fn forget(&mut self, task: &TaskId) {
        if self.by_task.remove(task).is_some() {
            self.order.retain(|other| other != task);
        }
    }
}

impl TaskTracker {
    /// Records a launch in flight.
    pub fn launched(&mut self, task: &TaskId, agent: &AgentId) {
        self.ends.forget(task);
        if self.tasks.len() < TASKS_REMEMBERED {
            let entry = self.tasks.entry(task.clone()).or_default();
            entry.agent = Some(agent.clone());
            entry.launch_in_flight = true;
        }
    }

    /// Records that a launch was confirmed or has failed.
    pub fn launch_settled(&mut self, task: &TaskId) {
        if let Some(entry) = self.tasks.get_mut(task) {
            entry.launch_in_flight = false;
        }
    }

    /// Agent of an active task, if known.
    pub fn agent_of(&self, task: &TaskId) -> Option<&AgentId> {
        self.tasks.get(task)?.agent.as_ref()
    }

    /// Records a requested kill.
    pub fn kill(&mut self, task: &TaskId, policy: Option<KillPolicy>) {
        if self.tasks.len() < TASKS_REMEMBERED || self.tasks.contains_key(task) {
            self.tasks.entry(task.clone()).or_default().kill = Some(policy);
        }
    }

    /// Records a kill in flight.
    pub fn kill_sent(&mut self, task: &TaskId) {
        if let Some(entry) = self.tasks.get_mut(task) {
            entry.kills_in_flight += 1;
        }
    }

    /// Records that a kill was confirmed or has failed.
    pub fn kill_settled(&mut self, task: &TaskId) {
        if let Some(entry) = self.tasks.get_mut(task) {
            entry.kills_in_flight = entry.kills_in_flight.saturating_sub(1);
        }
    }

    /// Records a status. Returns whether to deliver it to the scheduler: answers to the driver's
    /// own reconciliation only if they are news, and never a different final state from a master
    /// that has forgotten the task.
    pub fn record_status(&mut self, status: &TaskStatus) -> bool {
        let end = self.ends.by_task.get(&status.task_id);
        // Includes tasks that their agent no longer has. Their source is the agent, as in Mesos,
        // but there is no uuid.
        let by_master = status.uuid.is_none();
        if by_master && end.is_some_and(|end| *end != status.state) {
            return false;
        }
        let known = self.tasks.get_mut(&status.task_id);
        let echo = known.is_some_and(|entry| {
            let answer = status.reason == Some(Reason::Reconciliation) && status.uuid.is_none();
            let echo = answer && entry.quiet && entry.state == Some(status.state);
            entry.quiet &= !answer;
            entry.unanswered = false;
            echo
        });
        if status.state.is_terminal() || status.state == TaskState::Unknown {
            self.tasks.remove(&status.task_id);
            if status.state.is_terminal() && status.unreachable_since.is_none() {
                self.ends.note(&status.task_id, status.state);
            }
        } else if self.tasks.contains_key(&status.task_id) || self.tasks.len() < TASKS_REMEMBERED {
            let entry = self.tasks.entry(status.task_id.clone()).or_default();
            entry.state = Some(status.state);
            if status.agent_id.is_some() {
                entry.agent.clone_from(&status.agent_id);
            }
        }
        !echo
    }

    /// The scheduler asks for these tasks, or for all if empty: their answers are delivered. Named
    /// tasks are asked about until answered, also if an earlier driver launched them.
    pub fn requested_by_scheduler(&mut self, tasks: &[(TaskId, Option<AgentId>)]) {
        if tasks.is_empty() {
            self.tasks
                .values_mut()
                .for_each(|entry| entry.quiet = false);
        }
        for (task, agent) in tasks {
            if self.tasks.len() >= TASKS_REMEMBERED && !self.tasks.contains_key(task) {
                continue;
            }
            let entry = self.tasks.entry(task.clone()).or_default();
            (entry.quiet, entry.unanswered) = (false, true);
            if entry.agent.is_none() {
                entry.agent.clone_from(agent);
            }
        }
    }

    /// Marks all tasks as unanswered and returns those to ask about. Launches in flight are
    /// skipped: their tasks will have a status, and are asked about only if it does not arrive.
    pub fn start_reconciliation(&mut self) -> Vec<(TaskId, Option<AgentId>)> {
        let mut asked = Vec::new();
        for (task, entry) in &mut self.tasks {
            (entry.unanswered, entry.quiet) = (true, true);
            if !entry.launch_in_flight {
                asked.push((task.clone(), entry.agent.clone()));
            }
        }
        asked
    }

    /// Tasks with an unanswered reconciliation.
    pub fn unanswered(&self) -> Vec<(TaskId, Option<AgentId>)> {
        let unanswered = self.tasks.iter().filter(|(_, entry)| entry.unanswered);
        unanswered
            .map(|(task, entry)| (task.clone(), entry.agent.clone()))
            .collect()
    }

    /// Kills of active tasks, except those in flight.
    pub fn kills_to_resend(&self) -> Vec<(TaskId, Option<KillPolicy>)> {
        let tasks = self.tasks.iter();
        tasks
            .filter(|(_, entry)| entry.kills_in_flight == 0)
            .filter_map(|(task, entry)| entry.kill.map(|policy| (task.clone(), policy)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::Source;
    use runtime::Timestamp;

    fn status(task: &TaskId, state: TaskState) -> TaskStatus {
        TaskStatus::new(task.clone(), state, Source::Master, Timestamp::default())
    }

    #[test]
    fn lost_launch_is_asked_about_until_answered() {
        let (mut tasks, task) = (TaskTracker::default(), TaskId::new("t").unwrap());
        tasks.launched(&task, &AgentId::new("a").unwrap());
        assert!(
            tasks.start_reconciliation().is_empty(),
            "the launch is on its way"
        );
        assert_eq!(tasks.unanswered().len(), 1, "for later");
        tasks.launch_settled(&task);
        assert_eq!(tasks.start_reconciliation().len(), 1);
        assert_eq!(tasks.unanswered().len(), 1);
        let answer = status(&task, TaskState::Lost).with_reason(Reason::Reconciliation, "");
        assert!(tasks.record_status(&answer), "news is delivered");
        assert!(tasks.unanswered().is_empty() && tasks.start_reconciliation().is_empty());
    }

    #[test]
    fn own_reconciliation_reports_only_news() {
        let (mut tasks, task) = (TaskTracker::default(), TaskId::new("t").unwrap());
        assert!(tasks.record_status(&status(&task, TaskState::Running)));
        let same = status(&task, TaskState::Running).with_reason(Reason::Reconciliation, "");
        assert!(
            tasks.record_status(&same),
            "only the scheduler can have asked"
        );
        tasks.start_reconciliation();
        assert!(!tasks.record_status(&same));
        tasks.start_reconciliation();
        tasks.requested_by_scheduler(&[]);
        assert!(tasks.record_status(&same));
    }

    #[test]
    fn scheduler_reconciliation_repeats_until_answered() {
        let (mut tasks, task) = (TaskTracker::default(), TaskId::new("t").unwrap());
        let asked = [(task.clone(), Some(AgentId::new("a").unwrap()))];
        tasks.requested_by_scheduler(&asked);
        assert_eq!(tasks.unanswered(), asked);
        assert!(
            tasks.record_status(&status(&task, TaskState::Running)),
            "delivered"
        );
        assert_eq!(tasks.unanswered(), []);
    }

    #[test]
    fn forgotten_task_does_not_end_twice() {
        let (mut tasks, task) = (TaskTracker::default(), TaskId::new("t").unwrap());
        let mut finished = status(&task, TaskState::Finished);
        finished.source = Source::Executor;
        assert!(tasks.record_status(&finished));
        for state in [TaskState::Lost, TaskState::Unknown, TaskState::Running] {
            let answer = status(&task, state).with_reason(Reason::Reconciliation, "");
            assert!(!tasks.record_status(&answer), "{state}");
            assert!(tasks.start_reconciliation().is_empty());
        }
        let mut missed = status(&task, TaskState::Dropped).with_reason(Reason::Reconciliation, "");
        missed.source = Source::Agent;
        assert!(
            !tasks.record_status(&missed),
            "its agent came back without it"
        );
        assert!(
            tasks.record_status(&finished),
            "the same state is an answer"
        );
        tasks.launched(&task, &AgentId::new("a").unwrap());
        assert!(
            tasks.record_status(&status(&task, TaskState::Lost)),
            "a new task of that id"
        );
        for n in 0..ENDS_REMEMBERED {
            let other = TaskId::new(format!("t{n}")).unwrap();
            tasks.record_status(&status(&other, TaskState::Gone));
        }
        assert_eq!(tasks.ends.by_task.len(), ENDS_REMEMBERED);
        assert!(
            tasks.record_status(&status(&task, TaskState::Gone)),
            "the oldest is forgotten"
        );
    }

    #[test]
    fn kill_repeats_until_the_task_ends() {
        let (mut tasks, task) = (TaskTracker::default(), TaskId::new("t").unwrap());
        tasks.kill(&task, None);
        tasks.record_status(&status(&task, TaskState::Killing));
        assert_eq!(tasks.kills_to_resend(), [(task.clone(), None)]);
        tasks.kill_sent(&task);
        assert!(tasks.kills_to_resend().is_empty(), "the courier repeats it");
        tasks.kill_settled(&task);
        assert_eq!(tasks.kills_to_resend(), [(task.clone(), None)]);
        tasks.record_status(&status(&task, TaskState::Killed));
        assert!(tasks.kills_to_resend().is_empty());
    }
}
