//! Reservations and volumes as containers use them: a task may use what the agent has, and finds its volumes in its sandbox (SPEC 3.5).

use protocol::{ContainerId, TaskInfo};
use resources::Resources;

use super::Containerizer;
use super::machine::Phase;
use crate::operations::volumes::{self, Mount};

impl Containerizer {
    /// Whether the agent has the reservations and volumes that a task is to use.
    pub(super) fn has(&self, task: &TaskInfo) -> Result<(), String> {
        let executor = task.executor.as_ref();
        let all = executor.map(|executor| &executor.resources);
        for resources in all.into_iter().chain([&task.resources]) {
            let made = resources.checkpointed();
            if made.is_empty() {
                continue;
            }
            if let Some(lacking) = self.checkpointed.lacking(&made.unallocate()) {
                return Err(format!(
                    "task.resources is `{lacking}`: expected reservations and volumes that the agent has"
                ));
            }
        }
        Ok(())
    }

    /// Lets the sandbox of a new container lead to the volumes of its executor and of all its tasks so far.
    pub(super) fn link_all_volumes(&self, id: &ContainerId) -> Result<(), String> {
        match self.containers.get(id) {
            Some(container) => self.link(id, &container.allocated()),
            None => Ok(()),
        }
    }

    /// Lets the sandbox of a container lead to the volumes of a further task. One that has no sandbox yet gets them with it.
    pub(super) fn link_volumes(
        &self,
        id: &ContainerId,
        resources: &Resources,
    ) -> Result<(), String> {
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
