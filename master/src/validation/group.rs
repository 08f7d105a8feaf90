//! Task groups: whether the offers suffice for tasks that run together in one executor
//! (LAUNCH_GROUP).
//!
//! Pure. Only amounts are checked: no executor runs groups yet.

use super::*;

impl TaskRules<'_> {
    /// The resources that a group takes from the offers: its tasks', and its executor's, unless it
    /// runs on the agent already. Fails if they do not suffice. Shared volumes are not consumed, so
    /// they do not count.
    pub fn group_needs(
        &self,
        executor: &ExecutorInfo,
        tasks: &[TaskInfo],
    ) -> Result<Resources, TaskInvalid> {
        let id = &executor.executor_id;
        let known = self
            .tasks
            .executor(self.agent_id, &self.framework.id, id)
            .is_some();
        let of_executor = (!known).then_some(("executor.resources", &executor.resources));
        let of_tasks = tasks
            .iter()
            .map(|task| ("task_group.tasks.resources", &task.resources));
        let mut total = Resources::new();
        for (field, resources) in of_executor.into_iter().chain(of_tasks) {
            let own = allocated(field, resources, self.role)?.non_shared();
            total
                .checked_add(&own)
                .map_err(|invalid| Invalid::new(field, invalid.value, invalid.expected))?;
        }
        self.check_left("task_group.resources", &total)?;
        Ok(total)
    }
}
