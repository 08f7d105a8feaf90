//! Misfits: recovered tasks that exceed the agent's resources after its configuration has changed.
//! Pure. They keep running; their resources are not offered again when they end.

use std::fmt;

use protocol::{ContainerId, ExecutorId, TaskId};
use resources::Resources;

use super::plan::RecoveryAction;
use super::record::StoredContainer;

/// Resources in use that the agent no longer has.
#[derive(Clone, Debug, PartialEq)]
pub struct Misfit {
    /// Their user.
    pub user: User,
    /// All resources of this user.
    pub resources: Resources,
    /// The part that the agent lacks.
    pub missing: Resources,
}

/// A user of resources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum User {
    /// An executor without its tasks.
    Executor(ExecutorId),
    /// A task.
    Task(TaskId),
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Executor(id) => write!(f, "executor {id}"),
            Self::Task(id) => write!(f, "task {id}"),
        }
    }
}

/// The users that do not fit into `total`, counted in the order of the containers. Revocable
/// resources are not the agent's own and are skipped.
pub fn misfits(
    total: &Resources,
    containers: &[(ContainerId, StoredContainer, RecoveryAction)],
) -> Vec<Misfit> {
    let mut free = total.clone();
    let mut misfits = Vec::new();
    let mut take = |user: User, resources: &Resources| {
        let resources = resources.non_revocable().unallocate();
        let own = resources.non_shared();
        let mut missing = own.saturating_sub(&free);
        missing += &resources.shared().saturating_sub(total);
        free.saturating_sub_assign(&own);
        if !missing.is_empty() {
            misfits.push(Misfit {
                user,
                resources,
                missing,
            });
        }
    };
    for (id, container, action) in containers {
        if !matches!(action, RecoveryAction::Await(Some(_))) {
            continue;
        }
        // A nested container's record repeats the executor that it is nested in.
        if id.parent().is_none() {
            let executor = &container.record.executor;
            let user = User::Executor(executor.executor_id.clone());
            take(user, &executor.resources);
        }
        for (task, state) in &container.tasks {
            if !state.state.is_terminal() {
                take(User::Task(task.task_id.clone()), &task.resources);
            }
        }
    }
    misfits
}

#[cfg(test)]
mod tests {
    use protocol::TaskState;

    use super::super::plan::EndCause;
    use super::super::record::StateRecord;
    use super::super::record::tests::{container, id, task};
    use super::*;

    /// Each task has one cpu and 32 MB, each executor a tenth of a cpu.
    fn living(name: &str, tasks: &[(&str, TaskState)]) -> (ContainerId, StoredContainer) {
        let tasks = tasks.iter().map(|&(name, state)| {
            let given = Vec::new();
            (
                task(name),
                StateRecord {
                    state,
                    given,
                    is_throttled: false,
                },
            )
        });
        let stored = StoredContainer {
            record: container(),
            tasks: tasks.collect(),
        };
        (id(name), stored)
    }

    #[test]
    fn tasks_beyond_the_resources_are_named_with_amounts() {
        let running = TaskState::Running;
        let first = living("c1", &[("ended", TaskState::Finished), ("a", running)]);
        let second = living("c2", &[("b", running)]);
        let third = living("c3", &[("c", running)]);
        let actions = [
            RecoveryAction::Await(Some(1)),
            RecoveryAction::Await(Some(2)),
            RecoveryAction::Ended(EndCause::Ended),
        ];
        let all = [first, second, third].into_iter().zip(actions);
        let all: Vec<_> = all.map(|((id, one), action)| (id, one, action)).collect();
        let of = |total: &str| -> Vec<String> {
            let all = misfits(&Resources::parse(total).unwrap(), &all);
            let all = all.iter();
            all.map(|misfit| format!("{} lacks {}", misfit.user, misfit.missing.brief()))
                .collect()
        };
        assert_eq!(of("cpus:2.2;mem:64"), Vec::<String>::new());
        let lacking = ["executor e lacks cpus:0.1", "task b lacks cpus:1;mem:14"];
        assert_eq!(of("cpus:1.1;mem:50"), lacking);
        let lacking = [
            "executor e lacks cpus:0.1",
            "task a lacks cpus:1",
            "executor e lacks cpus:0.1",
            "task b lacks cpus:1",
        ];
        assert_eq!(of("cpus(ads):8;mem:64"), lacking, "of another role");
    }
}
