//! Checks and health checks of a task, with Mesos' messages. Pure.
//!
//! Missing parts and negative times cannot be expressed here: the v1 conversion refuses them.

use protocol::task::check::CheckKind;

use super::*;

impl TaskRules<'_> {
    pub(super) fn check_checks(&self, task: &TaskInfo) -> Result<(), TaskInvalid> {
        if let Some(check) = &task.check {
            let rule = "Task uses invalid check";
            let fault = self.check_kind("task.check", &check.kind, "check", "Check's");
            fault.map_err(by_rule(rule))?;
        }
        if let Some(check) = &task.health_check {
            let rule = "Task uses invalid health check";
            let (title, owner) = ("health check", "Health check's");
            let fault = self.check_kind("task.health_check", &check.kind, title, owner);
            fault.map_err(by_rule(rule))?;
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
