//! How a command of the wire becomes a program to start: its argv, its environment and its user.
//!
//! Looks at this process's environment and at the host's users; remembers nothing.

use std::collections::BTreeMap;
use std::os::fd::RawFd;
use std::path::PathBuf;

use protocol::CommandInfo;

use crate::sys::{self, Program};

/// A command as a program to start: its argv, its environment, and the user it becomes.
///
/// The environment is this process's own without what belongs to an agent or an outer executor, then what the agent sets,
/// then the command's.
pub fn program(
    command: &CommandInfo,
    variables: &BTreeMap<String, String>,
    user: Option<&str>,
    directory: Option<PathBuf>,
    output: Option<(RawFd, RawFd)>,
    leads: sys::Leads,
) -> Result<Program, String> {
    let own = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let environment = environment_of(own, variables, &command.environment);
    let (file, arguments) = match command.shell {
        true => (
            "/bin/sh".to_owned(),
            vec!["sh".to_owned(), "-c".to_owned(), command.value.clone()],
        ),
        false if command.arguments.is_empty() => {
            (command.value.clone(), vec![command.value.clone()])
        }
        false => (command.value.clone(), command.arguments.clone()),
    };
    Ok(Program {
        file,
        arguments,
        environment,
        directory,
        output,
        leads,
        credentials: switch_to(user)?,
    })
}

/// Whom to become: nobody else unless we are root and another user is asked for.
fn switch_to(user: Option<&str>) -> Result<Option<sys::Credentials>, String> {
    let Some(user) = user.filter(|user| !user.is_empty() && *user != "root") else {
        return Ok(None);
    };
    if !nix::unistd::geteuid().is_root() {
        return Ok(None);
    }
    match sys::credentials(user) {
        Ok(Some(credentials)) => Ok(Some(credentials)),
        Ok(None) => Err(format!("user `{user}` is not known on this host")),
        Err(error) => Err(format!("user `{user}` cannot be looked up: {error}")),
    }
}

fn environment_of(
    own: impl Iterator<Item = (String, String)>,
    agents: &BTreeMap<String, String>,
    commands: &BTreeMap<String, String>,
) -> Vec<(String, String)> {
    let foreign = |name: &str| {
        ["MESOS_", "MEROS_", "LIBPROCESS_"]
            .iter()
            .any(|prefix| name.starts_with(prefix))
    };
    let mut all: BTreeMap<String, String> = own.filter(|(name, _)| !foreign(name)).collect();
    all.extend(agents.clone());
    all.extend(commands.clone());
    all.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_command_and_a_program_become_their_argv() {
        let check = |command: CommandInfo, file: &str, arguments: &[&str]| {
            let program = program(
                &command,
                &BTreeMap::new(),
                None,
                None,
                None,
                sys::Leads::Group,
            )
            .unwrap();
            assert_eq!(
                (program.file.as_str(), program.arguments),
                (file, arguments.iter().map(|&a| a.into()).collect())
            );
        };
        check(
            CommandInfo::shell("exit 3"),
            "/bin/sh",
            &["sh", "-c", "exit 3"],
        );
        check(
            CommandInfo::program("echo", ["a b".to_owned()]),
            "echo",
            &["echo", "a b"],
        );
        let bare = CommandInfo {
            arguments: Vec::new(),
            ..CommandInfo::program("true", [])
        };
        check(bare, "true", &["true"]);
    }

    #[test]
    fn the_commands_variables_win_and_those_of_an_outer_agent_are_left_out() {
        let pairs = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            pairs
                .iter()
                .map(|&(name, value)| (name.to_owned(), value.to_owned()))
                .collect()
        };
        let own = pairs(&[
            ("PATH", "/bin"),
            ("MESOS_WORK_DIR", "/outer"),
            ("HOME", "/root"),
        ]);
        let agents = pairs(&[("MESOS_SANDBOX", "/s")]);
        let commands = pairs(&[("HOME", "/home/x")]);
        let expected = pairs(&[
            ("HOME", "/home/x"),
            ("MESOS_SANDBOX", "/s"),
            ("PATH", "/bin"),
        ]);
        assert_eq!(
            environment_of(own.into_iter(), &agents, &commands),
            Vec::from_iter(expected)
        );
    }
}
