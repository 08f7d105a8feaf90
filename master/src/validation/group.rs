//! Groups: whether what was offered is enough for tasks that run together in one executor (SPEC 2.8, LAUNCH_GROUP).
//!
//! Pure. Only the amounts are looked at: nobody runs a group yet, and what else might be wrong with one is told when somebody does.

use super::*;

impl TaskRules<'_> {
    /// What a group takes of the offers: its tasks' resources, and its executor's, unless that is on the agent already. Refused if so much is not left.
    /// A shared volume is taken from nobody, so it does not count.
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
