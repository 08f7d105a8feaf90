//! The ledger of launched tasks and their reported states; checks that they are consistent.
//!
//! Schedulers record their events in it. Reads no clock: the caller passes the time.

use std::collections::BTreeMap;

use protocol::{Reason, TaskId, TaskState, TaskStatus};
use runtime::Instant;

/// Number of problems in a verdict.
const PROBLEMS_MAX: usize = 10;

/// One task, as its framework saw it.
#[derive(Clone, Debug)]
struct Seen {
    accepted: Instant,
    running: Option<Instant>,
    /// Terminal states from status updates.
    ends: Vec<TaskState>,
    /// The terminal state from reconciliation, which may be repeated.
    answered: Option<TaskState>,
    message: String,
}

impl Seen {
    fn has_ended(&self) -> bool {
        !self.ends.is_empty() || self.answered.is_some()
    }

    /// Its terminal states, each as often as it was reported by an update, and at least once.
    fn all_ends(&self) -> Vec<TaskState> {
        let mut ends = self.ends.clone();
        ends.extend(self.answered.filter(|end| !self.ends.contains(end)));
        ends
    }
}

/// All events of the frameworks.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    subscribed: Vec<Option<Instant>>,
    tasks: BTreeMap<TaskId, Seen>,
    living: usize,
    closed: bool,
    over: Option<String>,
}

/// Result over all tasks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Launched tasks.
    pub launched: usize,
    /// Finished tasks.
    pub finished: usize,
    /// Tasks that reached no agent, reported as such to their framework.
    pub refused: usize,
    /// Descriptions of the first lost or duplicated tasks.
    pub problems: Vec<String>,
}

impl Ledger {
    /// For this number of frameworks, none of them subscribed.
    pub fn new(frameworks: usize) -> Self {
        Self {
            subscribed: vec![None; frameworks],
            ..Self::default()
        }
    }

    /// Records the subscription of a framework, by its number.
    pub fn subscribed(&mut self, framework: usize, now: Instant) {
        if let Some(subscribed) = self.subscribed.get_mut(framework) {
            *subscribed = Some(now);
        }
    }

    /// Records that a framework cannot continue.
    pub fn over(&mut self, reason: &str) {
        self.over.get_or_insert_with(|| reason.to_owned());
    }

    /// Why the load cannot continue; `None` if it can.
    pub fn is_over(&self) -> Option<&str> {
        self.over.as_deref()
    }

    /// Stops further launches.
    pub fn close(&mut self) {
        self.closed = true;
    }

    /// Whether to launch tasks.
    pub fn is_open(&self) -> bool {
        !self.closed
    }

    /// Records that an offer was accepted for this task.
    pub fn accepted(&mut self, task: TaskId, now: Instant) {
        let seen = Seen {
            accepted: now,
            running: None,
            ends: Vec::new(),
            answered: None,
            message: String::new(),
        };
        self.living += usize::from(self.tasks.insert(task, seen).is_none());
    }

    /// Records a status. Returns whether it is the first terminal state of its task.
    pub fn status(&mut self, status: &TaskStatus, now: Instant) -> bool {
        let Some(seen) = self.tasks.get_mut(&status.task_id) else {
            return false; // An unknown task.
        };
        if status.state == TaskState::Running {
            seen.running.get_or_insert(now);
        }
        if !status.state.is_terminal() {
            return false;
        }
        let first = !seen.has_ended();
        match status.reason {
            Some(Reason::Reconciliation) => seen.answered = Some(status.state),
            _ => seen.ends.push(status.state),
        }
        seen.message.clone_from(&status.message);
        self.living -= usize::from(first);
        first
    }

    /// Number of tasks without a terminal state.
    pub fn living(&self) -> usize {
        self.living
    }

    /// Time of the last subscription, if all frameworks have subscribed after `since`.
    pub fn all_subscribed(&self, since: Instant) -> Option<Instant> {
        let each = self.subscribed.iter().map(|at| at.filter(|at| *at > since));
        each.collect::<Option<Vec<_>>>()?.into_iter().max()
    }

    /// Time of the first running state of the tasks accepted after `since`.
    pub fn first_running(&self, since: Instant) -> Option<Instant> {
        let later = self.tasks.values().filter(|task| task.accepted > since);
        later.filter_map(|task| task.running).min()
    }

    /// The result over all tasks, given how often each was started on any agent.
    pub fn verdict(&self, starts: &BTreeMap<String, u32>) -> Verdict {
        let mut verdict = Verdict {
            launched: self.tasks.len(),
            ..Verdict::default()
        };
        let mut problems = Vec::new();
        for (id, task) in &self.tasks {
            let started = starts.get(id.as_str()).copied().unwrap_or(0);
            match (started, task.all_ends().as_slice()) {
                (1, [TaskState::Finished]) => verdict.finished += 1,
                (0, [TaskState::Lost | TaskState::Dropped | TaskState::Error]) => {
                    verdict.refused += 1;
                }
                (_, ends) => problems.push(format!(
                    "{id} was started {started} times, expected once; its ends are {ends:?}: {}",
                    task.message
                )),
            }
        }
        let strange = starts.keys().filter(|id| {
            let known = TaskId::new(id.as_str()).ok();
            !known.is_some_and(|id| self.tasks.contains_key(&id))
        });
        problems.extend(strange.map(|id| format!("{id} was started and never launched")));
        let more = problems.len().saturating_sub(PROBLEMS_MAX);
        problems.truncate(PROBLEMS_MAX);
        if more > 0 {
            problems.push(format!("and {more} more"));
        }
        verdict.problems = problems;
        verdict
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use protocol::Source;
    use runtime::Timestamp;

    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::default() + Duration::from_secs(seconds)
    }

    fn id(name: &str) -> TaskId {
        TaskId::new(name).unwrap()
    }

    fn said(name: &str, state: TaskState) -> TaskStatus {
        TaskStatus::new(id(name), state, Source::Executor, Timestamp::default())
    }

    fn starts(of: &[(&str, u32)]) -> BTreeMap<String, u32> {
        of.iter()
            .map(|(name, count)| ((*name).to_owned(), *count))
            .collect()
    }

    #[test]
    fn next_launch_is_accepted_after_the_kill() {
        let mut ledger = Ledger::new(0);
        ledger.accepted(id("before"), at(9));
        ledger.accepted(id("after"), at(12));
        ledger.status(&said("before", TaskState::Running), at(11));
        assert_eq!(ledger.first_running(at(10)), None);
        ledger.status(&said("after", TaskState::Running), at(13));
        ledger.status(&said("after", TaskState::Running), at(14));
        assert_eq!(ledger.first_running(at(10)), Some(at(13)));
    }

    #[test]
    fn frameworks_are_back_when_the_last_of_them_is() {
        let mut ledger = Ledger::new(2);
        ledger.subscribed(0, at(1));
        ledger.subscribed(1, at(2));
        assert_eq!(ledger.all_subscribed(at(0)), Some(at(2)));
        ledger.subscribed(0, at(11));
        assert_eq!(ledger.all_subscribed(at(10)), None);
        ledger.subscribed(1, at(12));
        assert_eq!(ledger.all_subscribed(at(10)), Some(at(12)));
    }

    #[test]
    fn tasks_finish_or_were_refused() {
        let mut ledger = Ledger::new(0);
        for name in ["well", "refused"] {
            ledger.accepted(id(name), at(0));
        }
        assert_eq!(ledger.living(), 2);
        assert!(ledger.status(&said("well", TaskState::Finished), at(1)));
        assert!(ledger.status(&said("refused", TaskState::Lost), at(1)));
        assert_eq!(ledger.living(), 0);
        let verdict = ledger.verdict(&starts(&[("well", 1)]));
        assert_eq!((verdict.launched, verdict.finished), (2, 1));
        assert_eq!((verdict.refused, verdict.problems.len()), (1, 0));
    }

    #[test]
    fn reconciled_end_may_repeat() {
        let mut ledger = Ledger::new(0);
        ledger.accepted(id("t"), at(0));
        let answer = |state| said("t", state).with_reason(Reason::Reconciliation, "latest state");
        assert!(ledger.status(&answer(TaskState::Finished), at(1)));
        assert!(!ledger.status(&said("t", TaskState::Finished), at(2)));
        assert!(!ledger.status(&answer(TaskState::Finished), at(3)));
        let starts = starts(&[("t", 1)]);
        assert_eq!(ledger.verdict(&starts).finished, 1);
        ledger.status(&answer(TaskState::Lost), at(4));
        let problems = ledger.verdict(&starts).problems;
        assert!(problems[0].contains("[Finished, Lost]"), "{problems:?}");
    }

    #[test]
    fn lost_and_duplicated_tasks_are_named() {
        let cases: [(u32, &[TaskState]); 6] = [
            (0, &[]),
            (1, &[]),
            (1, &[TaskState::Lost]),
            (2, &[TaskState::Finished]),
            (0, &[TaskState::Finished]),
            (1, &[TaskState::Finished, TaskState::Finished]),
        ];
        for (started, ends) in cases {
            let mut ledger = Ledger::new(0);
            ledger.accepted(id("t"), at(0));
            for end in ends {
                ledger.status(&said("t", *end), at(1));
            }
            let starts = starts(&[("t", started)]);
            let problems = ledger.verdict(&starts).problems;
            assert_eq!(problems.len(), 1, "{started} {ends:?}");
            assert!(problems[0].starts_with("t was started"), "{problems:?}");
        }
        let strange = Ledger::new(0).verdict(&starts(&[("x", 1)])).problems;
        assert_eq!(strange, ["x was started and never launched"]);
    }
}
