//! The executor that a task needs, or that pages show for its command, and the user it runs as.
//! Pure.

use protocol::{
    CommandInfo, ExecutorId, ExecutorInfo, ExecutorKind, FrameworkInfo, TaskId, TaskInfo,
};
use resources::Resources;

/// The executor that a task needs.
#[derive(Clone, Debug, PartialEq)]
pub struct ExecutorSpec {
    /// The task's custom executor or, for a command, what pages show as its executor.
    pub executor: ExecutorInfo,
    /// Whether the task has a command and no executor.
    pub is_command: bool,
    /// The requested user, if any.
    pub user: Option<String>,
}

impl ExecutorSpec {
    /// Derives it from a task. An error names the invalid field.
    pub fn of(task: &TaskInfo, framework: &FrameworkInfo) -> Result<Self, String> {
        let (executor, is_command) = match (&task.command, &task.executor) {
            (Some(command), None) => {
                let id = ExecutorId::from(&task.task_id);
                let executor = ExecutorInfo {
                    name: executor_name(&task.task_id, command),
                    container: task.container.clone(),
                    ..ExecutorInfo::new(id, command.clone(), Resources::new())
                };
                (executor, true)
            }
            (None, Some(executor)) => (executor.clone(), false),
            (Some(command), Some(executor)) if executor.kind == ExecutorKind::Default => {
                (of_group(task, command, executor), true)
            }
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

/// What runs the command of a task in a group: it has the id of the group's executor.
fn of_group(task: &TaskInfo, command: &CommandInfo, executor: &ExecutorInfo) -> ExecutorInfo {
    let (id, command) = (executor.executor_id.clone(), command.clone());
    ExecutorInfo {
        container: task.container.clone(),
        ..ExecutorInfo::new(id, command, Resources::new())
    }
}

/// Commands up to this many characters are shown whole in the executor's name.
const COMMAND_LENGTH_MAX: usize = 15;
/// Characters shown of a longer command.
const COMMAND_LENGTH_CUT: usize = 12;

/// A command executor's name, in the format of Mesos.
fn executor_name(task: &TaskId, command: &CommandInfo) -> String {
    let whole = match command.shell {
        true => command.value.clone(),
        false => {
            let arguments = command.arguments.join(", ");
            format!("{}, {arguments}", command.value)
        }
    };
    let shown = match whole.chars().count() > COMMAND_LENGTH_MAX {
        true => whole
            .chars()
            .take(COMMAND_LENGTH_CUT)
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
        let (id, agent_id) = (TaskId::new("t").unwrap(), AgentId::new("s").unwrap());
        TaskInfo::new(id, agent_id, Default::default()).with_command(CommandInfo::shell("true"))
    }

    #[test]
    fn command_task_has_its_own_executor_and_user() {
        let mut task = task();
        let framework = FrameworkInfo::new("alice", "f");
        let spec = ExecutorSpec::of(&task, &framework).unwrap();
        assert!(spec.is_command && spec.executor.executor_id.as_str() == "t");
        assert_eq!(spec.user.as_deref(), Some("alice"));
        task.command.as_mut().unwrap().user = Some("bob".into());
        assert_eq!(
            ExecutorSpec::of(&task, &framework).unwrap().user.as_deref(),
            Some("bob")
        );
    }

    #[test]
    fn command_executor_is_named_after_its_task() {
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
            let spec = ExecutorSpec::of(&task, &FrameworkInfo::new("alice", "f")).unwrap();
            let expected = format!("Command Executor (Task: t) (Command: {shown})");
            assert_eq!(spec.executor.name, expected);
        }
    }

    #[test]
    fn a_task_with_both_or_neither_is_refused() {
        let neither = TaskInfo {
            command: None,
            ..task()
        };
        assert!(ExecutorSpec::of(&neither, &FrameworkInfo::new("", "f")).is_err());
        let executor = ExecutorSpec::of(&task(), &FrameworkInfo::new("", "f"))
            .unwrap()
            .executor;
        let both = TaskInfo {
            executor: Some(executor.clone()),
            ..task()
        };
        assert!(ExecutorSpec::of(&both, &FrameworkInfo::new("", "f")).is_err());
        let mut own = TaskInfo {
            command: None,
            executor: Some(executor),
            ..task()
        };
        let user = |task: &TaskInfo| {
            ExecutorSpec::of(task, &FrameworkInfo::new("alice", "f")).map(|spec| spec.user)
        };
        assert_eq!(user(&own), Ok(Some("alice".to_owned())));
        own.executor.as_mut().unwrap().command.user = Some("carol".into());
        assert_eq!(user(&own), Ok(Some("carol".to_owned())));
    }
}
