//! What a task asks of its agent: which executor, started how and as whom. Pure.

use protocol::{CommandInfo, ExecutorId, ExecutorInfo, FrameworkInfo, TaskId, TaskInfo};

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
                    name: executor_name(&task.task_id, command),
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

/// So many characters of a command are shown whole in the name of its executor; of a longer one [`COMMAND_CUT`].
const COMMAND_SHOWN: usize = 15;
/// So many characters are shown of a longer one.
const COMMAND_CUT: usize = 12;

/// The name of a command's executor, as in Mesos: monitoring shows it.
fn executor_name(task: &TaskId, command: &CommandInfo) -> String {
    let whole = match command.shell {
        true => command.value.clone(),
        false => {
            let arguments = command.arguments.join(", ");
            format!("{}, {arguments}", command.value)
        }
    };
    let shown = match whole.chars().count() > COMMAND_SHOWN {
        true => whole
            .chars()
            .take(COMMAND_CUT)
            .chain("...".chars())
            .collect(),
        false => whole,
    };
    let command = match command.shell {
        true => format!("sh -c '{shown}'"),
        false => format!("[{shown}]"),
    };
    format!("Command Executor (Task: {task}) (Command: {command})")
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::AgentId;

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

    /// As in Mesos.
    #[test]
    fn a_command_executor_is_named_after_its_task_and_command() {
        let exec = |value: &str, arguments: &[&str]| CommandInfo {
            shell: false,
            arguments: arguments.iter().map(|&one| one.to_owned()).collect(),
            ..CommandInfo::shell(value)
        };
        for (command, shown) in [
            (CommandInfo::shell("sleep 1000"), "sh -c 'sleep 1000'"),
            (
                CommandInfo::shell("123456789012345"),
                "sh -c '123456789012345'",
            ),
            (
                CommandInfo::shell("sleep 1000; true"),
                "sh -c 'sleep 1000; ...'",
            ),
            (exec("/bin/ls", &["ls", "-la"]), "[/bin/ls, ls,...]"),
            (exec("ls", &["ls"]), "[ls, ls]"),
            (exec("ls", &[]), "[ls, ]"),
        ] {
            let task = TaskInfo {
                command: Some(command),
                ..task()
            };
            let order = Order::of(&task, &FrameworkInfo::new("alice", "f")).unwrap();
            let expected = format!("Command Executor (Task: t) (Command: {shown})");
            assert_eq!(order.executor.name, expected);
        }
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
