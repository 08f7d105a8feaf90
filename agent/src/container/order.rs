//! What a task asks of its agent: which executor, started how and as whom. Pure.

use protocol::{ExecutorId, ExecutorInfo, FrameworkInfo, TaskInfo};

/// The executor a task needs.
#[derive(Clone, Debug, PartialEq)]
pub struct Order {
    /// The framework's own, or our command executor under the task's id.
    pub executor: ExecutorInfo,
    /// Whether it is our command executor.
    pub is_command: bool,
    /// The user asked for, if any.
    pub user: Option<String>,
}

impl Order {
    /// The order of this task, or what is wrong with it.
    pub fn of(task: &TaskInfo, framework: &FrameworkInfo) -> Result<Self, String> {
        let (executor, is_command) = match (&task.command, &task.executor) {
            (Some(command), None) => {
                let executor = ExecutorInfo {
                    executor_id: ExecutorId::from(&task.task_id),
                    name: format!("Command executor of task `{}`", task.task_id),
                    command: command.clone(),
                    resources: Default::default(),
                    data: Vec::new(),
                    shutdown_grace_period: None,
                    labels: Default::default(),
                };
                (executor, true)
            }
            (None, Some(executor)) => (executor.clone(), false),
            _ => return Err("task: expected exactly one of `command` and `executor`".into()),
        };
        let user = Some(task.user_in(framework)).filter(|user| !user.is_empty());
        Ok(Self {
            executor,
            is_command,
            user: user.map(str::to_owned),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::{AgentId, CommandInfo, TaskId};

    fn task() -> TaskInfo {
        TaskInfo {
            name: "t".into(),
            task_id: TaskId::new("t").unwrap(),
            agent_id: AgentId::new("s").unwrap(),
            resources: Default::default(),
            command: Some(CommandInfo::shell("true")),
            executor: None,
            data: Vec::new(),
            kill_policy: None,
            labels: Default::default(),
        }
    }

    #[test]
    fn a_command_task_has_an_executor_of_its_own_and_the_commands_user_wins() {
        let mut task = task();
        let framework = FrameworkInfo::new("alice", "f");
        let order = Order::of(&task, &framework).unwrap();
        assert!(order.is_command && order.executor.executor_id.as_str() == "t");
        assert_eq!(order.user.as_deref(), Some("alice"));
        task.command.as_mut().unwrap().user = Some("bob".into());
        assert_eq!(
            Order::of(&task, &framework).unwrap().user.as_deref(),
            Some("bob")
        );
    }

    #[test]
    fn a_task_with_both_or_neither_is_refused() {
        let neither = TaskInfo {
            command: None,
            ..task()
        };
        assert!(Order::of(&neither, &FrameworkInfo::new("", "f")).is_err());
        let executor = Order::of(&task(), &FrameworkInfo::new("", "f"))
            .unwrap()
            .executor;
        let both = TaskInfo {
            executor: Some(executor.clone()),
            ..task()
        };
        assert!(Order::of(&both, &FrameworkInfo::new("", "f")).is_err());
        let mut own = TaskInfo {
            command: None,
            executor: Some(executor),
            ..task()
        };
        let user = |task: &TaskInfo| {
            Order::of(task, &FrameworkInfo::new("alice", "f")).map(|order| order.user)
        };
        assert_eq!(user(&own), Ok(Some("alice".to_owned())));
        own.executor.as_mut().unwrap().command.user = Some("carol".into());
        assert_eq!(user(&own), Ok(Some("carol".to_owned())));
    }
}
