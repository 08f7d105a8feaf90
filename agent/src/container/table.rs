//! Containers indexed by id, executor and task. Pure.

use std::collections::BTreeMap;

use protocol::{ContainerId, ExecutorId, FrameworkId, TaskId};

use super::machine::Container;

/// The containers and their indexes.
#[derive(Debug, Default)]
pub struct ContainerTable {
    containers: BTreeMap<ContainerId, (FrameworkId, Container)>,
    /// The current container of each executor.
    executors: BTreeMap<(FrameworkId, ExecutorId), ContainerId>,
    tasks: BTreeMap<(FrameworkId, TaskId), ContainerId>,
    revision: u64,
}

impl ContainerTable {
    /// Changes whenever a container may have changed.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Adds a container, as its executor's current one if it is not nested.
    pub fn insert(&mut self, framework: &FrameworkId, container: Container) {
        if container.parent().is_none() {
            let executor = (framework.clone(), container.executor.executor_id.clone());
            self.executors.insert(executor, container.id.clone());
        }
        self.revision += 1;
        self.containers
            .insert(container.id.clone(), (framework.clone(), container));
    }

    /// Assigns a task to a container.
    pub fn assign(&mut self, framework: &FrameworkId, task: &TaskId, container: &ContainerId) {
        self.tasks
            .insert((framework.clone(), task.clone()), container.clone());
    }

    /// Removes an acknowledged task.
    pub fn remove_task(&mut self, framework: &FrameworkId, task: &TaskId) -> Option<ContainerId> {
        self.tasks.remove(&(framework.clone(), task.clone()))
    }

    /// Looks up a container.
    pub fn get(&self, id: &ContainerId) -> Option<&Container> {
        self.containers.get(id).map(|(_, container)| container)
    }

    /// Looks up a container, mutably.
    pub fn get_mut(&mut self, id: &ContainerId) -> Option<&mut Container> {
        self.revision += 1;
        self.containers.get_mut(id).map(|(_, container)| container)
    }

    /// A container with its framework.
    pub fn entry(&self, id: &ContainerId) -> Option<(&FrameworkId, &Container)> {
        self.containers
            .get(id)
            .map(|(framework, container)| (framework, container))
    }

    /// The container of a task.
    pub fn of_task(&self, framework: &FrameworkId, task: &TaskId) -> Option<ContainerId> {
        self.tasks.get(&(framework.clone(), task.clone())).cloned()
    }

    /// The current container of an executor.
    pub fn current(&self, framework: &FrameworkId, executor: &ExecutorId) -> Option<ContainerId> {
        self.executors
            .get(&(framework.clone(), executor.clone()))
            .cloned()
    }

    /// Frees the executor's id. Returns its framework.
    pub fn executor_ended(&mut self, id: &ContainerId) -> Option<FrameworkId> {
        let (framework, container) = self.containers.get(id)?;
        let name = (framework.clone(), container.executor.executor_id.clone());
        if self.executors.get(&name) == Some(id) {
            self.executors.remove(&name);
        }
        Some(name.0)
    }

    /// Removes a container and its tasks.
    pub fn remove(&mut self, id: &ContainerId) {
        self.executor_ended(id);
        self.revision += 1;
        if let Some((framework, container)) = self.containers.remove(id) {
            for task in container.tasks() {
                self.tasks
                    .remove(&(framework.clone(), task.info.task_id.clone()));
            }
        }
    }

    /// The containers nested in this one, at any depth.
    pub fn inside(&self, id: &ContainerId) -> impl Iterator<Item = &Container> {
        // Their ids begin with its own, but those of others may lie between.
        let after = self.containers.range(id.clone()..);
        let alike = after.take_while(|(other, _)| other.as_str().starts_with(id.as_str()));
        let inside = alike.filter(|(nested, _)| nested.is_inside(id));
        inside.map(|(_, (_, container))| container)
    }

    /// Whether a framework has containers.
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
