//! The ledger: which of the framework's tasks have not ended, as far as this driver has seen, and what is still owed to each (W17).
//!
//! It makes lost launches and lost kills come out: after a loss of the master and every 15 minutes the driver asks how these tasks are,
//! and asks again, ever less often, while there is no answer. Pure: no clock and no mailbox.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use protocol::{AgentId, KillPolicy, Reason, TaskId, TaskState, TaskStatus};

/// How many tasks are remembered. A framework with more has the rest reconciled by the master's own list only.
pub const TASKS_REMEMBERED: usize = 500_000;
/// How many tasks that have ended are remembered, so that nobody who has forgotten them says otherwise.
pub const ENDS_REMEMBERED: usize = 10_000;
/// How many tasks are asked about in one message.
pub const RECONCILE_CHUNK: usize = 5_000;
/// Every so often all tasks are asked about.
pub const RECONCILE_EVERY: Duration = Duration::from_secs(15 * 60);
/// The first wait for an answer to that question; doubled until it reaches [`RECONCILE_EVERY`].
pub const RECONCILE_RETRY: Duration = Duration::from_secs(10);

/// One task that has not ended.
#[derive(Debug, Default)]
struct Entry {
    agent: Option<AgentId>,
    /// It was sent off to be launched, and no master has heard it yet.
    launch_unheard: bool,
    /// The newest state delivered to the scheduler.
    state: Option<TaskState>,
    /// The kill the scheduler asked for.
    kill: Option<Option<KillPolicy>>,
    /// How many times it has been said without any master having heard it yet.
    kills_unheard: u32,
    /// The driver has asked, and nobody has answered.
    unanswered: bool,
    /// The next answer is the driver's own business, unless it is news.
    quiet: bool,
}

/// The framework's tasks that have not ended, and the newest of those that have.
#[derive(Debug, Default)]
pub struct Ledger {
    tasks: BTreeMap<TaskId, Entry>,
    ends: Ends,
}

/// The newest tasks that have ended, each with its end.
#[derive(Debug, Default)]
struct Ends {
    by_task: BTreeMap<TaskId, TaskState>,
    order: VecDeque<TaskId>,
}

impl Ends {
    /// Notes an end, unless one is known already.
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

impl Ledger {
    /// Notes that a task was sent off to be launched.
    pub fn launched(&mut self, task: &TaskId, agent: &AgentId) {
        self.ends.forget(task);
        if self.tasks.len() < TASKS_REMEMBERED {
            let entry = self.tasks.entry(task.clone()).or_default();
            entry.agent = Some(agent.clone());
            entry.launch_unheard = true;
        }
    }

    /// Notes that a launch is not on its way any more: it was heard, or has failed.
    pub fn launch_settled(&mut self, task: &TaskId) {
        if let Some(entry) = self.tasks.get_mut(task) {
            entry.launch_unheard = false;
        }
    }

    /// Where a task is that has not ended, as far as is known.
    pub fn agent_of(&self, task: &TaskId) -> Option<&AgentId> {
        self.tasks.get(task)?.agent.as_ref()
    }

    /// Notes that a task shall be killed.
    pub fn kill(&mut self, task: &TaskId, policy: Option<KillPolicy>) {
        if self.tasks.len() < TASKS_REMEMBERED || self.tasks.contains_key(task) {
            self.tasks.entry(task.clone()).or_default().kill = Some(policy);
        }
    }

    /// Notes that a kill is on its way.
    pub fn kill_sent(&mut self, task: &TaskId) {
        if let Some(entry) = self.tasks.get_mut(task) {
            entry.kills_unheard += 1;
        }
    }

    /// Notes that a kill is not on its way any more: it was heard, or has failed.
    pub fn kill_settled(&mut self, task: &TaskId) {
        if let Some(entry) = self.tasks.get_mut(task) {
            entry.kills_unheard = entry.kills_unheard.saturating_sub(1);
        }
    }

    /// Notes a status. Whether the scheduler should be told: an answer to the driver's own question is told only if it is news,
    /// and a master that does not know, or not any more, how a task has ended is not believed against what was told before.
    pub fn heard(&mut self, status: &TaskStatus) -> bool {
        let end = self.ends.by_task.get(&status.task_id);
        // Also of a task that its agent came back without, whose source is the agent as in Mesos.
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

    /// The scheduler itself wants to know how these are, or (empty) how all are: answers go to it. Those named are asked about again
    /// until there is an answer, also when an earlier driver launched them.
    pub fn asked_by_scheduler(&mut self, tasks: &[(TaskId, Option<AgentId>)]) {
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

    /// All tasks that want an answer, to be asked about anew. Of those whose launch is still on its way there will be one to
    /// that; they are asked about only if it does not come.
    pub fn ask_all(&mut self) -> Vec<(TaskId, Option<AgentId>)> {
        let mut asked = Vec::new();
        for (task, entry) in &mut self.tasks {
            (entry.unanswered, entry.quiet) = (true, true);
            if !entry.launch_unheard {
                asked.push((task.clone(), entry.agent.clone()));
            }
        }
        asked
    }

    /// The tasks that were asked about and of which nothing was heard since.
    pub fn unanswered(&self) -> Vec<(TaskId, Option<AgentId>)> {
        let unanswered = self.tasks.iter().filter(|(_, entry)| entry.unanswered);
        unanswered
            .map(|(task, entry)| (task.clone(), entry.agent.clone()))
            .collect()
    }

    /// The kills that have not been followed by the task's end, without those that are still on their way.
    pub fn kills_heard(&self) -> Vec<(TaskId, Option<KillPolicy>)> {
        let tasks = self.tasks.iter();
        tasks
            .filter(|(_, entry)| entry.kills_unheard == 0)
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
    fn a_lost_launch_stays_unanswered_until_something_is_heard_of_it() {
        let (mut ledger, task) = (Ledger::default(), TaskId::new("t").unwrap());
        ledger.launched(&task, &AgentId::new("a").unwrap());
        assert!(ledger.ask_all().is_empty(), "the launch is on its way");
        assert_eq!(ledger.unanswered().len(), 1, "for later");
        ledger.launch_settled(&task);
        assert_eq!(ledger.ask_all().len(), 1);
        assert_eq!(ledger.unanswered().len(), 1);
        let answer = status(&task, TaskState::Lost).because(Reason::Reconciliation, "");
        assert!(ledger.heard(&answer), "news is told");
        assert!(ledger.unanswered().is_empty() && ledger.ask_all().is_empty());
    }

    #[test]
    fn an_answer_to_the_drivers_own_question_is_told_only_if_it_is_news() {
        let (mut ledger, task) = (Ledger::default(), TaskId::new("t").unwrap());
        assert!(ledger.heard(&status(&task, TaskState::Running)));
        let same = status(&task, TaskState::Running).because(Reason::Reconciliation, "");
        assert!(
            ledger.heard(&same),
            "nobody but the scheduler can have asked"
        );
        ledger.ask_all();
        assert!(!ledger.heard(&same));
        ledger.ask_all();
        ledger.asked_by_scheduler(&[]);
        assert!(ledger.heard(&same));
    }

    #[test]
    fn what_the_scheduler_asks_about_is_asked_again_until_there_is_an_answer() {
        let (mut ledger, task) = (Ledger::default(), TaskId::new("t").unwrap());
        let asked = [(task.clone(), Some(AgentId::new("a").unwrap()))];
        ledger.asked_by_scheduler(&asked);
        assert_eq!(ledger.unanswered(), asked);
        assert!(
            ledger.heard(&status(&task, TaskState::Running)),
            "it is told"
        );
        assert_eq!(ledger.unanswered(), []);
    }

    #[test]
    fn a_master_that_has_forgotten_a_task_does_not_end_it_a_second_time() {
        let (mut ledger, task) = (Ledger::default(), TaskId::new("t").unwrap());
        let mut finished = status(&task, TaskState::Finished);
        finished.source = Source::Executor;
        assert!(ledger.heard(&finished));
        for state in [TaskState::Lost, TaskState::Unknown, TaskState::Running] {
            let answer = status(&task, state).because(Reason::Reconciliation, "");
            assert!(!ledger.heard(&answer), "{state}");
            assert!(ledger.ask_all().is_empty());
        }
        let mut missed = status(&task, TaskState::Dropped).because(Reason::Reconciliation, "");
        missed.source = Source::Agent;
        assert!(!ledger.heard(&missed), "its agent came back without it");
        assert!(ledger.heard(&finished), "the same is told to who asks");
        ledger.launched(&task, &AgentId::new("a").unwrap());
        assert!(
            ledger.heard(&status(&task, TaskState::Lost)),
            "a new task of that id"
        );
        for n in 0..ENDS_REMEMBERED {
            let other = TaskId::new(format!("t{n}")).unwrap();
            ledger.heard(&status(&other, TaskState::Gone));
        }
        assert_eq!(ledger.ends.by_task.len(), ENDS_REMEMBERED);
        assert!(
            ledger.heard(&status(&task, TaskState::Gone)),
            "the oldest is forgotten"
        );
    }

    #[test]
    fn a_kill_is_owed_until_the_task_has_ended() {
        let (mut ledger, task) = (Ledger::default(), TaskId::new("t").unwrap());
        ledger.kill(&task, None);
        ledger.heard(&status(&task, TaskState::Killing));
        assert_eq!(ledger.kills_heard(), [(task.clone(), None)]);
        ledger.kill_sent(&task);
        assert!(ledger.kills_heard().is_empty(), "the courier says it again");
        ledger.kill_settled(&task);
        assert_eq!(ledger.kills_heard(), [(task.clone(), None)]);
        ledger.heard(&status(&task, TaskState::Killed));
        assert!(ledger.kills_heard().is_empty());
    }
}
