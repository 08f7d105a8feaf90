//! Reservations and volumes of containers: checks that the agent has them, and links volumes into
//! sandboxes.

use module_api::isolator::{self, MountSource};
use protocol::{ContainerId, ExecutorInfo, FrameworkId, TaskInfo};
use resources::Resources;
use runtime::prelude::*;

use super::Containerizer;
use super::machine::{Container, Phase};
use crate::operations::volumes::{self, Mount};

/// Requests the volumes of an executor run. Empty once it is forgotten.
#[derive(Message, Clone, Debug)]
#[rtype(result = "Vec<Mount>")]
pub struct VolumesOf {
    /// Framework id.
    pub framework: String,
    /// Executor id.
    pub executor: String,
    /// Container id.
    pub run: String,
}

impl VolumesOf {
    fn names(&self, framework: &FrameworkId, executor: &ExecutorInfo, run: &ContainerId) -> bool {
        run.as_str() == self.run
            && framework.as_str() == self.framework
            && executor.executor_id.as_str() == self.executor
    }
}

impl Handler<VolumesOf> for Containerizer {
    type Result = Vec<Mount>;
    fn handle(&mut self, asked: VolumesOf, _: &mut Context<Self>) -> Vec<Mount> {
        let mounts = |resources: &Resources| volumes::mounts(self.config.work_dir(), resources);
        let mut here = self.containers.iter();
        let here = here.find(|(framework, one)| asked.names(framework, &one.executor, &one.id));
        if let Some((_, container)) = here {
            let tasks = container.tasks().chain(container.completed());
            let tasks = tasks.map(|task| &task.info.resources);
            let all = tasks.chain([&container.executor.resources]);
            return all.flat_map(mounts).collect();
        }
        let mut over = self.history.runs();
        let over = over.find(|one| asked.names(&one.framework_id, &one.executor, &one.id));
        over.map_or_else(Vec::new, |run| {
            let tasks = run.tasks.iter().chain(&run.completed);
            let tasks = tasks.map(|(task, _)| &task.resources);
            let all = tasks.chain([&run.executor.resources]);
            all.flat_map(mounts).collect()
        })
    }
}

impl Containerizer {
    /// Checks that the agent has the reservations and volumes of a task. The message is that of
    /// Mesos; the log has the resources.
    pub(super) fn has(&self, task: &TaskInfo) -> Result<(), String> {
        let executor = task.executor.as_ref();
        let executor = executor.map(|executor| ("executor are", &executor.resources));
        for (user, resources) in [("task or task group are", &task.resources)]
            .into_iter()
            .chain(executor)
        {
            let made = resources.checkpointed();
            if made.is_empty() {
                continue;
            }
            if let Some(lacking) = self.checkpointed.lacking(&made.unallocate()) {
                tracing::warn!(task = %task.task_id, %lacking, "dropping a task with unknown resources");
                return Err(format!(
                    "The checkpointed resources being used by the {user} unknown to the agent"
                ));
            }
        }
        Ok(())
    }

    /// Links the volumes of the executor and its tasks into a new sandbox.
    pub(super) fn link_all_volumes(&self, id: &ContainerId) -> Result<(), String> {
        match self.containers.get(id) {
            // Those of nested ones are mounted.
            Some(container) if container.is_group() || container.parent().is_some() => Ok(()),
            Some(container) => self.link(id, &container.allocated()),
            None => Ok(()),
        }
    }

    /// Mounts that a container with an image needs for its links to volumes: each volume at its
    /// path on the host.
    pub(super) fn volume_mounts(
        &self,
        container: &Container,
    ) -> impl Iterator<Item = isolator::Mount> {
        let volumes = volumes::mounts(self.config.work_dir(), &container.allocated());
        volumes.into_iter().map(|mount| isolator::Mount {
            source: MountSource::Host(mount.volume.clone()),
            target: mount.volume,
            is_read_only: false,
        })
    }

    /// Mounts of the volumes of a nested container, in its sandbox.
    pub(super) fn volumes_in_sandbox(
        &self,
        container: &Container,
    ) -> impl Iterator<Item = isolator::Mount> {
        let volumes = volumes::mounts(self.config.work_dir(), &container.allocated());
        volumes.into_iter().map(|mount| isolator::Mount {
            source: MountSource::Host(mount.volume),
            target: mount.container_path.into(),
            is_read_only: false,
        })
    }

    /// Links the volumes of a further task. If the sandbox is not ready they follow with it.
    pub(super) fn link_volumes(
        &self,
        id: &ContainerId,
        resources: &Resources,
    ) -> Result<(), String> {
        let has_image = self.provisioning.of(id).is_some();
        if has_image && !resources.persistent_volumes().is_empty() {
            let problem =
                "volumes of a further task cannot be mounted in a container with an image";
            return Err(problem.to_owned());
        }
        match self.containers.get(id) {
            Some(container) if container.phase != Phase::Preparing => self.link(id, resources),
            _ => Ok(()),
        }
    }

    fn link(&self, id: &ContainerId, resources: &Resources) -> Result<(), String> {
        let mounts: Vec<Mount> = volumes::mounts(self.config.work_dir(), resources);
        let Some(container) = self.containers.get(id).filter(|_| !mounts.is_empty()) else {
            return Ok(());
        };
        let Some(framework) = &container.framework.id else {
            return Ok(());
        };
        let runs = self.runs(framework, &container.executor.executor_id);
        let user = container.executor.command.user.as_ref();
        let user = user.unwrap_or(&container.framework.user);
        let user = Some(user.as_str()).filter(|_| self.config.settings.switch_user);
        self.sandboxes.link(&runs, id, &mounts, user)
    }
}
