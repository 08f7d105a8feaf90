//! Checks and health checks of a task, with Mesos' messages. Pure.
//!
//! Missing parts and negative times cannot be expressed here: the v1 conversion refuses them.

use protocol::task::check::{CheckKind, NamedCheck};

use super::*;

/// Maximum number of named checks of a task: each is an activity of its agent.
const NAMED_CHECKS_MAX: usize = 16;
/// Maximum bytes of the name of a check: each status of the task repeats it.
const CHECK_NAME_BYTES_MAX: usize = 64;

impl TaskRules<'_> {
    pub(super) fn check_checks(&self, task: &TaskInfo) -> Result<(), TaskInvalid> {
        if let Some(check) = &task.check {
            let rule = "Task uses invalid check";
            let fault = self.check_kind("task.check", &check.kind, "check", "Check's");
            fault.map_err(by_rule(rule))?;
        }
        self.check_named(task)
            .map_err(by_rule("Task uses invalid check"))?;
        if let Some(check) = &task.health_check {
            let rule = "Task uses invalid health check";
            let (title, owner) = ("health check", "Health check's");
            let fault = self.check_kind("task.health_check", &check.kind, title, owner);
            fault.map_err(by_rule(rule))?;
        }
        Ok(())
    }

    /// The named checks, which Mesos does not have.
    fn check_named(&self, task: &TaskInfo) -> Result<(), Invalid> {
        if task.checks.len() > NAMED_CHECKS_MAX {
            let expected = format!("at most {NAMED_CHECKS_MAX} checks");
            return Err(Invalid::new("task.checks", task.checks.len(), expected));
        }
        let mut names = BTreeSet::new();
        for (index, NamedCheck { name, check }) in task.checks.iter().enumerate() {
            let field = format!("task.checks[{index}]");
            if name.is_empty() || name.len() > CHECK_NAME_BYTES_MAX || !names.insert(name) {
                let expected = format!(
                    "1 to {CHECK_NAME_BYTES_MAX} bytes that no other check of the task has"
                );
                return Err(Invalid::new(format!("{field}.name"), name, expected));
            }
            let fault = self.check_kind(&format!("{field}.check"), &check.kind, "check", "Check's");
            // Messages of Mesos have no field.
            fault.map_err(|bad| match bad.field.is_empty() {
                true => Invalid::message(format!("{field}: {bad}")),
                false => bad,
            })?;
        }
        Ok(())
    }

    fn check_kind(
        &self,
        field: &str,
        kind: &CheckKind,
        title: &str,
        owner: &str,
    ) -> Result<(), Invalid> {
        match kind {
            CheckKind::Command(command) => {
                let checked = self.check_command(&format!("{field}.command"), command);
                checked.map_err(|bad| {
                    Invalid::message(format!("{owner} `CommandInfo` is invalid: {bad}"))
                })
            }
            CheckKind::Http(http) => {
                let scheme = http.scheme.as_deref().unwrap_or("http");
                if scheme != "http" && scheme != "https" {
                    let scheme = excerpt(scheme);
                    let problem = format!("Unsupported HTTP {title} scheme: '{scheme}'");
                    return Err(Invalid::message(problem));
                }
                match http.path.as_deref() {
                    Some(path) if !path.starts_with('/') => {
                        let path = excerpt(path);
                        let problem =
                            format!("The path '{path}' of HTTP {title} must start with '/'");
                        Err(Invalid::message(problem))
                    }
                    _ => Ok(()),
                }
            }
            CheckKind::Tcp(_) => Ok(()),
        }
    }
}
