//! Demand: which instances of a command still want a place, and which of them an offer can take.
//!
//! Pure: offers and statuses in, task infos and verdicts out. Remembers each instance once; knows no driver, clock or network.

use std::collections::{BTreeMap, VecDeque};

use protocol::{
    AgentId, CommandInfo, Labels, Offer, Reason, TaskId, TaskInfo, TaskState, TaskStatus,
};
use resources::Resources;

/// How often an instance is launched anew after a launch that never reached its agent.
const LAUNCHES_MAX: u32 = 5;

/// What is to be run, and how often.
#[derive(Clone, Debug)]
pub struct Job {
    /// Names the tasks: `name.0`, `name.1`, ...
    pub name: String,
    /// What runs.
    pub command: CommandInfo,
    /// What one instance needs.
    pub needs: Resources,
    /// How many instances.
    pub instances: u32,
}

/// What an instance has come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It goes on.
    Lives,
    /// It never began, and will be launched again.
    Again,
    /// It has finished.
    Finished,
    /// It has ended badly: the code that the whole command should end with.
    Failed(i32),
}

/// The job and how far it is.
#[derive(Debug)]
pub struct Demand {
    job: Job,
    waiting: VecDeque<Instance>,
    living: BTreeMap<TaskId, Instance>,
}

#[derive(Clone, Copy, Debug)]
struct Instance {
    index: u32,
    launches: u32,
}

impl Demand {
    /// Every instance waits.
    pub fn new(job: Job) -> Self {
        let waiting = (0..job.instances)
            .map(|index| Instance { index, launches: 0 })
            .collect();
        Self {
            job,
            waiting,
            living: BTreeMap::new(),
        }
    }

    /// How many instances want a place.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// As many tasks as this offer has room for; empty if none fits or none waits.
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
            self.living.insert(task_id, instance);
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
            task_id,
            agent_id,
            resources,
            command: Some(command),
            executor: None,
            data: Vec::new(),
            kill_policy: None,
            labels: Labels::default(),
        }
    }

    /// What a status says of its instance; `None` if it is not one of ours, or has ended before.
    pub fn judge(&mut self, status: &TaskStatus) -> Option<Verdict> {
        let instance = *self.living.get(&status.task_id)?;
        if !status.state.is_terminal() {
            return Some(Verdict::Lives);
        }
        self.living.remove(&status.task_id);
        if status.state == TaskState::Finished {
            return Some(Verdict::Finished);
        }
        if never_began(status) && instance.launches < LAUNCHES_MAX {
            self.waiting.push_back(instance);
            return Some(Verdict::Again);
        }
        let code = status
            .termination
            .map_or(1, |termination| termination.shell_code());
        Some(Verdict::Failed(code.clamp(1, 255)))
    }
}

/// Whether the launch was lost on the way, through no fault of the task.
fn never_began(status: &TaskStatus) -> bool {
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

    fn demand(instances: u32) -> Demand {
        let needs = "cpus:0.5;mem:32".parse().unwrap();
        Demand::new(Job {
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
            served: None,
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
    fn an_offer_takes_as_many_as_it_has_room_for_and_the_rest_waits() {
        let mut demand = demand(5);
        let tasks = demand.place(&offer("cpus:2;mem:100;ports:[1-2]"));
        let ids: Vec<_> = tasks.iter().map(|task| task.task_id.as_str()).collect();
        assert_eq!(ids, ["job.0", "job.1", "job.2"], "memory is scarce");
        assert_eq!((demand.waiting(), demand.living.len()), (2, 3));
        assert!(demand.place(&offer("cpus:0.4;mem:1000")).is_empty());
        assert_eq!(demand.waiting(), 2);
    }

    #[test]
    fn a_task_takes_resources_that_are_in_the_offer() {
        let offer = offer("cpus:1;mem:100");
        let tasks = demand(1).place(&offer);
        assert!(offer.resources.contains(&tasks[0].resources));
    }

    #[test]
    fn a_launch_lost_on_the_way_is_made_again_under_another_id_and_not_for_ever() {
        let mut demand = demand(1);
        for launch in 1..=LAUNCHES_MAX {
            let task = demand.place(&offer("cpus:1;mem:100")).remove(0);
            assert_eq!(task.task_id.as_str() == "job.0", launch == 1);
            let lost =
                status(task.task_id.as_str(), TaskState::Lost).because(Reason::InvalidOffers, "");
            let expected = if launch < LAUNCHES_MAX {
                Verdict::Again
            } else {
                Verdict::Failed(1)
            };
            assert_eq!(demand.judge(&lost), Some(expected));
        }
    }

    #[test]
    fn a_failed_task_gives_its_own_code_and_a_killed_one_its_signals() {
        for (termination, code) in [
            (Some(Termination::Exited(3)), 3),
            (Some(Termination::Signaled(9)), 137),
            (None, 1),
        ] {
            let mut demand = demand(1);
            demand.place(&offer("cpus:1;mem:100"));
            let mut failed = status("job.0", TaskState::Failed);
            failed.termination = termination;
            assert_eq!(demand.judge(&failed), Some(Verdict::Failed(code)));
            assert_eq!(demand.judge(&failed), None, "it is over");
        }
    }
}
