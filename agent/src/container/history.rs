//! Completed executors and frameworks, for pages: the newest ones since this process started.
//!
//! Pure. Bounded per framework, by number of tasks, and by number of frameworks. No decision
//! depends on it.

use std::collections::VecDeque;
use std::sync::Arc;

use protocol::task::labels_bytes;
use protocol::{CommandInfo, ExecutorInfo, FrameworkId, FrameworkInfo, TaskInfo, TaskStatus};

use super::events::ContainerView;

/// Completed frameworks kept, as in Mesos.
const FRAMEWORKS_MAX: usize = 50;
/// Total tasks kept. A run without tasks counts as one, a task with long texts as several.
const TASKS_MAX: usize = 10_000;
/// Text bytes that count as one more task. Bounds all tasks to about 160 MB.
const BYTES_PER_TASK: usize = 8 << 10;

/// The history.
#[derive(Debug)]
pub struct History {
    runs_max: usize,
    /// Executor runs, oldest first.
    runs: VecDeque<Arc<ContainerView>>,
    /// Weight of all runs.
    tasks: usize,
    /// Frameworks without containers, oldest first.
    frameworks: VecDeque<FrameworkInfo>,
}

/// Removes the payloads for executors, which may be large and are not shown.
pub(super) fn without_data(task: &mut TaskInfo) {
    task.data = Vec::new();
    if let Some(executor) = &mut task.executor {
        executor.data = Vec::new();
    }
}

impl History {
    /// An empty history that keeps up to `runs_max` runs per framework.
    pub fn new(runs_max: usize) -> Self {
        Self {
            runs_max,
            runs: VecDeque::new(),
            tasks: 0,
            frameworks: VecDeque::new(),
        }
    }

    /// Adds a run whose tasks have all ended and are acknowledged.
    pub fn add_run(&mut self, mut run: ContainerView) {
        let tasks = std::mem::take(&mut run.tasks);
        run.completed.extend(tasks);
        run.executor.data = Vec::new();
        let completed = run.completed.iter_mut();
        completed.for_each(|(task, _)| without_data(task));
        let id = run.framework_id.clone();
        self.tasks += weight(&run);
        self.runs.push_back(Arc::new(run));
        let own = self.runs.iter().filter(|run| run.framework_id == id);
        if own.count() > self.runs_max {
            let oldest = self.runs.iter().position(|run| run.framework_id == id);
            self.forget(oldest);
        }
        while self.tasks > TASKS_MAX && self.runs.len() > 1 {
            self.forget(Some(0));
        }
    }

    /// Adds a framework without containers.
    pub fn add_framework(&mut self, info: FrameworkInfo) {
        self.frameworks.retain(|known| known.id != info.id);
        self.frameworks.push_back(info);
        if self.frameworks.len() > FRAMEWORKS_MAX
            && let Some(oldest) = self.frameworks.pop_front()
        {
            let is_its = |run: &Arc<ContainerView>| Some(&run.framework_id) == oldest.id.as_ref();
            while let Some(place) = self.runs.iter().position(is_its) {
                self.forget(Some(place));
            }
        }
    }

    /// Removes a framework that has containers again. Its runs stay.
    pub fn remove_framework(&mut self, id: &FrameworkId) {
        self.frameworks
            .retain(|known| known.id.as_ref() != Some(id));
    }

    /// The runs, oldest first.
    pub fn runs(&self) -> impl Iterator<Item = &Arc<ContainerView>> {
        self.runs.iter()
    }

    /// The completed frameworks, oldest first.
    pub fn frameworks(&self) -> impl Iterator<Item = &FrameworkInfo> {
        self.frameworks.iter()
    }

    fn forget(&mut self, place: Option<usize>) {
        let run = place.and_then(|place| self.runs.remove(place));
        self.tasks -= run.as_deref().map_or(0, weight);
    }
}

/// The number of tasks that a run counts as.
fn weight(run: &ContainerView) -> usize {
    let long = |bytes: usize| bytes / BYTES_PER_TASK;
    let of_task = |task: &TaskInfo| run.statuses.get(&task.task_id).into_iter().flatten();
    let statuses = |task| -> usize { of_task(task).map(|status| status_bytes(status)).sum() };
    let tasks = { run.completed.iter() }.map(|(task, _)| long(task_bytes(task) + statuses(task)));
    let executor = long(labels_bytes(&run.executor.labels));
    run.completed.len().max(1) + tasks.sum::<usize>() + executor
}

fn task_bytes(task: &TaskInfo) -> usize {
    let command = task.command.as_ref().map_or(0, CommandInfo::text_bytes);
    let executor = task.executor.as_ref().map_or(0, ExecutorInfo::text_bytes);
    task.name.len() + labels_bytes(&task.labels) + command + executor
}

fn status_bytes(status: &TaskStatus) -> usize {
    status.message.len() + labels_bytes(&status.labels)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use protocol::{AgentId, ContainerId, ExecutorId, Source, TaskId, TaskState};
    use resources::Resources;
    use runtime::Timestamp;

    use super::*;
    use crate::container::machine::Phase;

    fn framework(name: &str) -> FrameworkInfo {
        FrameworkInfo {
            id: Some(FrameworkId::new(name).unwrap()),
            ..FrameworkInfo::new("alice", name)
        }
    }

    fn executor() -> ExecutorInfo {
        ExecutorInfo {
            executor_id: ExecutorId::new("e").unwrap(),
            kind: protocol::ExecutorKind::Custom,
            name: String::new(),
            command: CommandInfo::shell("run"),
            resources: Resources::new(),
            data: vec![7; 100],
            shutdown_grace_period: None,
            labels: Default::default(),
            container: None,
        }
    }

    fn run(framework: &str, number: usize, tasks: usize) -> ContainerView {
        let task = |task: usize| TaskInfo {
            executor: Some(executor()),
            data: vec![7; 100],
            ..TaskInfo::new(
                TaskId::new(format!("{number}-{task}")).unwrap(),
                AgentId::new("s").unwrap(),
                Resources::new(),
            )
        };
        ContainerView {
            id: ContainerId::new(format!("{framework}-{number}")).unwrap(),
            framework_id: FrameworkId::new(framework).unwrap(),
            executor: executor(),
            is_command: false,
            phase: Phase::Terminated,
            leader: None,
            address: None,
            networks: Vec::new(),
            directory: String::new(),
            allocated: Resources::new(),
            tasks: (0..tasks)
                .map(|number| (task(number), TaskState::Finished))
                .collect(),
            completed: Vec::new(),
            statuses: BTreeMap::new(),
        }
    }

    fn ids(history: &History) -> Vec<&str> {
        history.runs().map(|run| run.id.as_str()).collect()
    }

    #[test]
    fn newest_runs_per_framework_are_kept_without_data() {
        let mut history = History::new(2);
        for (framework, number) in [("a", 0), ("b", 0), ("a", 1), ("a", 2)] {
            history.add_run(run(framework, number, 1));
        }
        assert_eq!(ids(&history), ["b-0", "a-1", "a-2"]);
        let newest = history.runs().last().unwrap();
        assert!(newest.tasks.is_empty() && newest.executor.data.is_empty());
        let (task, state) = &newest.completed[0];
        assert_eq!(
            (task.task_id.as_str(), *state),
            ("2-0", TaskState::Finished)
        );
        let executor = task.executor.as_ref().unwrap();
        assert!(task.data.is_empty() && executor.data.is_empty());
        let mut none = History::new(0);
        none.add_run(run("a", 0, 1));
        assert_eq!((ids(&none).len(), none.tasks), (0, 0));
    }

    #[test]
    fn total_number_of_tasks_is_bounded() {
        let mut history = History::new(1000);
        history.add_run(run("a", 0, TASKS_MAX / 2));
        history.add_run(run("b", 0, TASKS_MAX / 2));
        history.add_run(run("c", 0, 0));
        assert_eq!(ids(&history), ["b-0", "c-0"]);
        assert_eq!(history.tasks, TASKS_MAX / 2 + 1);
        history.add_run(run("d", 0, 2 * TASKS_MAX));
        assert_eq!(ids(&history), ["d-0"], "the newest is there in any case");
    }

    #[test]
    fn a_task_with_long_texts_counts_as_several() {
        let mut history = History::new(1000);
        for number in 0..100 {
            let mut long = run("a", number, 1);
            let labels = &mut long.tasks[0].0.labels;
            labels.insert("k".to_owned(), "x".repeat(1 << 20));
            history.add_run(long);
        }
        assert_eq!(ids(&history).len(), 77);
    }

    #[test]
    fn a_task_with_long_statuses_counts_as_several() {
        let mut long = run("a", 0, 1);
        let task_id = long.tasks[0].0.task_id.clone();
        let now = Timestamp::default();
        let mut status = TaskStatus::new(task_id.clone(), TaskState::Failed, Source::Executor, now);
        status.message = "x".repeat(BYTES_PER_TASK);
        let status = Arc::new(status);
        long.statuses.insert(task_id, vec![status; 10]);
        let mut history = History::new(1000);
        history.add_run(long);
        assert_eq!(history.tasks, 11);
    }

    #[test]
    fn oldest_framework_is_dropped_with_its_runs() {
        let mut history = History::new(10);
        for number in 0..=FRAMEWORKS_MAX {
            let name = number.to_string();
            history.add_run(run(&name, 0, 1));
            history.add_framework(framework(&name));
        }
        assert_eq!(history.frameworks().count(), FRAMEWORKS_MAX);
        assert_eq!((ids(&history)[0], history.tasks), ("1-0", FRAMEWORKS_MAX));
        history.remove_framework(&FrameworkId::new("1").unwrap());
        assert_eq!(history.frameworks().count(), FRAMEWORKS_MAX - 1);
        assert_eq!(ids(&history)[0], "1-0", "its runs stay");
        history.add_framework(framework("1"));
        history.add_framework(framework("1"));
        assert_eq!(history.frameworks().count(), FRAMEWORKS_MAX);
    }
}
