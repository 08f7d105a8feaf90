//! The instances of a job that wait for resources, and their placement on offers.
//!
//! Pure: offers and statuses in, task infos and results out. Knows no driver, clock or network.

use std::collections::{BTreeMap, VecDeque};

use protocol::{AgentId, CommandInfo, Offer, Reason, TaskId, TaskInfo, TaskState, TaskStatus};
use resources::Resources;

/// The maximum launches of an instance whose launches are lost before they reach the agent.
const LAUNCHES_MAX: u32 = 5;

/// The command, and the number of its instances.
#[derive(Clone, Debug)]
pub struct Job {
    /// The prefix of the task ids: `name.0`, `name.1`, ...
    pub name: String,
    /// The command.
    pub command: CommandInfo,
    /// The resources of one instance.
    pub needs: Resources,
    /// The number of instances.
    pub instances: u32,
}

/// The state of an instance after a status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskOutcome {
    /// It is still running.
    Running,
    /// It never started, and will be launched again.
    Relaunch,
    /// It has finished.
    Finished,
    /// It has failed; the exit code for the whole command.
    Failed(i32),
}

/// The job and its progress.
#[derive(Debug)]
pub struct Placement {
    job: Job,
    waiting: VecDeque<Instance>,
    launched: BTreeMap<TaskId, Instance>,
}

#[derive(Clone, Copy, Debug)]
struct Instance {
    index: u32,
    launches: u32,
}

impl Placement {
    /// All instances wait.
    pub fn new(job: Job) -> Self {
        let waiting = (0..job.instances)
            .map(|index| Instance { index, launches: 0 })
            .collect();
        Self {
            job,
            waiting,
            launched: BTreeMap::new(),
        }
    }

    /// The number of waiting instances.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// The tasks that fit into this offer; empty if none fits or waits.
    pub fn place(&mut self, offer: &Offer) -> Vec<TaskInfo> {
        let (mut room, mut tasks) = (offer.resources.clone(), Vec::new());
        while let Some(mut instance) = self.waiting.pop_front() {
            let taken = room
                .find(&self.job.needs)
                .filter(|taken| room.subtract(taken).is_ok());
            let named = self.task_id(instance);
            let (Some(resources), Some(task_id)) = (taken, named) else {
                self.waiting.push_front(instance);
                break;
            };
            instance.launches += 1;
            tasks.push(self.task(instance, task_id.clone(), offer.agent_id.clone(), resources));
            self.launched.insert(task_id, instance);
        }
        tasks
    }

    fn task_id(&self, instance: Instance) -> Option<TaskId> {
        let Job { name, .. } = &self.job;
        let id = match instance.launches {
            0 => format!("{name}.{}", instance.index),
            again => format!("{name}.{}-{again}", instance.index),
        };
        TaskId::new(id).ok()
    }

    fn task(
        &self,
        instance: Instance,
        task_id: TaskId,
        agent_id: AgentId,
        resources: Resources,
    ) -> TaskInfo {
        let mut command = self.job.command.clone();
        command
            .environment
            .insert("MEROS_INSTANCE".to_owned(), instance.index.to_string());
        TaskInfo {
            name: self.job.name.clone(),
            ..TaskInfo::new(task_id, agent_id, resources).with_command(command)
        }
    }

    /// Handles a status. `None` if its task is unknown or has ended before.
    pub fn update(&mut self, status: &TaskStatus) -> Option<TaskOutcome> {
        let instance = *self.launched.get(&status.task_id)?;
        if !status.state.is_terminal() {
            return Some(TaskOutcome::Running);
        }
        self.launched.remove(&status.task_id);
        if status.state == TaskState::Finished {
            return Some(TaskOutcome::Finished);
        }
        if lost_before_start(status) && instance.launches < LAUNCHES_MAX {
            self.waiting.push_back(instance);
            return Some(TaskOutcome::Relaunch);
        }
        let code = status
            .termination
            .map_or(1, |termination| termination.shell_code());
        Some(TaskOutcome::Failed(code.clamp(1, 255)))
    }
}

/// Whether the launch was lost before it reached the agent.
fn lost_before_start(status: &TaskStatus) -> bool {
    let lost = matches!(status.state, TaskState::Lost | TaskState::Dropped);
    let on_the_way = matches!(
        status.reason,
        Some(Reason::InvalidOffers | Reason::MasterDisconnected | Reason::AgentDisconnected)
    );
    lost && on_the_way
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::{FrameworkId, OfferId, Source, Termination};
    use runtime::Timestamp;

    fn placement(instances: u32) -> Placement {
        let needs = "cpus:0.5;mem:32".parse().unwrap();
        Placement::new(Job {
            name: "job".to_owned(),
            command: CommandInfo::shell("true"),
            needs,
            instances,
        })
    }

    fn offer(resources: &str) -> Offer {
        Offer {
            id: OfferId::new("o").unwrap(),
            framework_id: FrameworkId::new("f").unwrap(),
            agent_id: AgentId::new("a").unwrap(),
            hostname: "host".to_owned(),
            role: "*".to_owned(),
            resources: resources
                .parse::<Resources>()
                .unwrap()
                .allocate(&resources::Role::STAR),
            attributes: Default::default(),
            executor_ids: Vec::new(),
            unavailability: None,
            domain: None,
            endpoint: None,
        }
    }

    fn status(task: &str, state: TaskState) -> TaskStatus {
        TaskStatus::new(
            TaskId::new(task).unwrap(),
            state,
            Source::Executor,
            Timestamp::default(),
        )
    }

    #[test]
    fn offer_takes_as_many_instances_as_fit() {
        let mut placement = placement(5);
        let tasks = placement.place(&offer("cpus:2;mem:100;ports:[1-2]"));
        let ids: Vec<_> = tasks.iter().map(|task| task.task_id.as_str()).collect();
        assert_eq!(ids, ["job.0", "job.1", "job.2"], "memory is scarce");
        assert_eq!((placement.waiting(), placement.launched.len()), (2, 3));
        assert!(placement.place(&offer("cpus:0.4;mem:1000")).is_empty());
        assert_eq!(placement.waiting(), 2);
    }

    #[test]
    fn task_uses_offered_resources() {
        let offer = offer("cpus:1;mem:100");
        let tasks = placement(1).place(&offer);
        assert!(offer.resources.contains(&tasks[0].resources));
    }

    #[test]
    fn lost_launch_is_repeated_a_few_times() {
        let mut placement = placement(1);
        for launch in 1..=LAUNCHES_MAX {
            let task = placement.place(&offer("cpus:1;mem:100")).remove(0);
            assert_eq!(task.task_id.as_str() == "job.0", launch == 1);
            let lost = status(task.task_id.as_str(), TaskState::Lost)
                .with_reason(Reason::InvalidOffers, "");
            let expected = if launch < LAUNCHES_MAX {
                TaskOutcome::Relaunch
            } else {
                TaskOutcome::Failed(1)
            };
            assert_eq!(placement.update(&lost), Some(expected));
        }
    }

    #[test]
    fn failed_task_determines_the_exit_code() {
        for (termination, code) in [
            (Some(Termination::Exited(3)), 3),
            (Some(Termination::Signaled(9)), 137),
            (None, 1),
        ] {
            let mut placement = placement(1);
            placement.place(&offer("cpus:1;mem:100"));
            let mut failed = status("job.0", TaskState::Failed);
            failed.termination = termination;
            assert_eq!(placement.update(&failed), Some(TaskOutcome::Failed(code)));
            assert_eq!(placement.update(&failed), None, "it is over");
        }
    }
}
