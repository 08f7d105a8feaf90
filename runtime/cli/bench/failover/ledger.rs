//! The ledger: what the frameworks of the load have launched and heard, and whether all of it adds up.
//!
//! Hears from schedulers what they do. Remembers every task. Pure: whoever tells it something tells the time too.

use std::collections::BTreeMap;

use protocol::{Reason, TaskId, TaskState, TaskStatus};
use runtime::Instant;

/// How many words of a verdict are told.
const PROBLEMS_MAX: usize = 10;

/// One task, as its framework saw it.
#[derive(Clone, Debug)]
struct Seen {
    accepted: Instant,
    running: Option<Instant>,
    /// The ends that were told as news.
    ends: Vec<TaskState>,
    /// The end that a master named when it was asked how the task is, which may be told again and again.
    answered: Option<TaskState>,
    message: String,
}

impl Seen {
    fn has_ended(&self) -> bool {
        !self.ends.is_empty() || self.answered.is_some()
    }

    /// Its ends, each as often as it was news, and at least once.
    fn all_ends(&self) -> Vec<TaskState> {
        let mut ends = self.ends.clone();
        ends.extend(self.answered.filter(|end| !self.ends.contains(end)));
        ends
    }
}

/// All that the frameworks saw.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    subscribed: Vec<Option<Instant>>,
    tasks: BTreeMap<TaskId, Seen>,
    living: usize,
    closed: bool,
    over: Option<String>,
}

/// What became of all tasks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Tasks that were launched.
    pub launched: usize,
    /// Those that ended well.
    pub finished: usize,
    /// Those that no agent was told of, and whose framework was told so.
    pub refused: usize,
    /// Each task that was lost or doubled, in words; the first few.
    pub problems: Vec<String>,
}

impl Ledger {
    /// Of so many frameworks, none of which is subscribed.
    pub fn new(frameworks: usize) -> Self {
        Self {
            subscribed: vec![None; frameworks],
            ..Self::default()
        }
    }

    /// A framework, by its number, is subscribed now.
    pub fn subscribed(&mut self, framework: usize, now: Instant) {
        if let Some(subscribed) = self.subscribed.get_mut(framework) {
            *subscribed = Some(now);
        }
    }

    /// A framework cannot go on.
    pub fn over(&mut self, reason: &str) {
        self.over.get_or_insert_with(|| reason.to_owned());
    }

    /// Why the load cannot go on, if it cannot.
    pub fn is_over(&self) -> Option<&str> {
        self.over.as_deref()
    }

    /// Nothing more is to be launched.
    pub fn close(&mut self) {
        self.closed = true;
    }

    /// Whether tasks are to be launched.
    pub fn is_open(&self) -> bool {
        !self.closed
    }

    /// A framework has accepted an offer for this task.
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

    /// A framework has heard this. Gives whether it is a task's first end.
    pub fn status(&mut self, status: &TaskStatus, now: Instant) -> bool {
        let Some(seen) = self.tasks.get_mut(&status.task_id) else {
            return false; // Its launch was accepted before it was launched.
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

    /// How many tasks have no end yet.
    pub fn living(&self) -> usize {
        self.living
    }

    /// When the last framework subscribed, if all have since `since`.
    pub fn all_subscribed(&self, since: Instant) -> Option<Instant> {
        let each = self.subscribed.iter().map(|at| at.filter(|at| *at > since));
        each.collect::<Option<Vec<_>>>()?.into_iter().max()
    }

    /// When the first of the tasks that were accepted after `since` was said to run.
    pub fn first_running(&self, since: Instant) -> Option<Instant> {
        let later = self.tasks.values().filter(|task| task.accepted > since);
        later.filter_map(|task| task.running).min()
    }

    /// What became of all tasks, given how often each was started on whatever agent.
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
    fn only_what_was_accepted_after_the_kill_is_the_next_launch() {
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
    fn a_task_that_ran_ends_well_and_one_that_did_not_was_refused() {
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
    fn an_end_may_be_answered_as_often_as_it_is_asked_for_and_is_news_once() {
        let mut ledger = Ledger::new(0);
        ledger.accepted(id("t"), at(0));
        let answer = |state| said("t", state).because(Reason::Reconciliation, "latest state");
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
    fn whatever_is_lost_or_doubled_is_named() {
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
