//! The containers of an agent, found by id, by executor and by task. Pure.

use std::collections::BTreeMap;

use protocol::{ContainerId, ExecutorId, FrameworkId, TaskId};

use super::machine::Container;

/// The containers and the ways to find them.
#[derive(Debug, Default)]
pub struct Table {
    containers: BTreeMap<ContainerId, (FrameworkId, Container)>,
    /// The container that has an executor's name at present.
    executors: BTreeMap<(FrameworkId, ExecutorId), ContainerId>,
    tasks: BTreeMap<(FrameworkId, TaskId), ContainerId>,
}

impl Table {
    /// A new container, which has its executor's name from now on.
    pub fn insert(&mut self, framework: &FrameworkId, container: Container) {
        let executor = (framework.clone(), container.executor.executor_id.clone());
        self.executors.insert(executor, container.id.clone());
        self.containers
            .insert(container.id.clone(), (framework.clone(), container));
    }

    /// A task is in this container.
    pub fn place(&mut self, framework: &FrameworkId, task: &TaskId, container: &ContainerId) {
        self.tasks
            .insert((framework.clone(), task.clone()), container.clone());
    }

    /// A task has been acknowledged to its end.
    pub fn unplace(&mut self, framework: &FrameworkId, task: &TaskId) -> Option<ContainerId> {
        self.tasks.remove(&(framework.clone(), task.clone()))
    }

    /// The container itself.
    pub fn get(&self, id: &ContainerId) -> Option<&Container> {
        self.containers.get(id).map(|(_, container)| container)
    }

    /// The container itself, to be changed.
    pub fn get_mut(&mut self, id: &ContainerId) -> Option<&mut Container> {
        self.containers.get_mut(id).map(|(_, container)| container)
    }

    /// The container with its framework.
    pub fn entry(&self, id: &ContainerId) -> Option<(&FrameworkId, &Container)> {
        self.containers
            .get(id)
            .map(|(framework, container)| (framework, container))
    }

    /// Which container a task is in.
    pub fn of_task(&self, framework: &FrameworkId, task: &TaskId) -> Option<ContainerId> {
        self.tasks.get(&(framework.clone(), task.clone())).cloned()
    }

    /// Which container an executor runs in at present.
    pub fn current(&self, framework: &FrameworkId, executor: &ExecutorId) -> Option<ContainerId> {
        self.executors
            .get(&(framework.clone(), executor.clone()))
            .cloned()
    }

    /// The executor has ended: its name may be used again. Gives its framework.
    pub fn executor_ended(&mut self, id: &ContainerId) -> Option<FrameworkId> {
        let (framework, container) = self.containers.get(id)?;
        let name = (framework.clone(), container.executor.executor_id.clone());
        if self.executors.get(&name) == Some(id) {
            self.executors.remove(&name);
        }
        Some(name.0)
    }

    /// Forgets a container with all its tasks.
    pub fn remove(&mut self, id: &ContainerId) {
        self.executor_ended(id);
        if let Some((framework, container)) = self.containers.remove(id) {
            for task in container.tasks() {
                self.tasks
                    .remove(&(framework.clone(), task.info.task_id.clone()));
            }
        }
    }

    /// Whether some container belongs to this framework.
    pub fn has_framework(&self, framework: &FrameworkId) -> bool {
        self.containers
            .values()
            .any(|(owner, _)| owner == framework)
    }

    /// All containers with their frameworks.
    pub fn iter(&self) -> impl Iterator<Item = (&FrameworkId, &Container)> {
        self.containers
            .values()
            .map(|(framework, container)| (framework, container))
    }

    /// The containers of a framework.
    pub fn of_framework(&self, framework: &FrameworkId) -> Vec<ContainerId> {
        let own = self.iter().filter(|(owner, _)| *owner == framework);
        own.map(|(_, container)| container.id.clone()).collect()
    }
}
