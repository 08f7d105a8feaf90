//! Converts a `CommandInfo` to a program: argv, environment and user.
//!
//! Looks up the host's users. The agent's environment is not inherited: it may contain secrets.

use std::collections::BTreeMap;

use executor_driver::environment as variable;
use module_api::isolator::LaunchPlan;
use nix::libc;
use protocol::CommandInfo;
use protocol::task::container::{RLimitKind, SoftHard};

use crate::host::accounts::{OwnUser, RunAs};
use crate::host::sys::{Capabilities, Program, Rights};

/// Default `PATH`, as in Mesos.
const PATH_DEFAULT: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The program of a command: its argv, environment and user. It starts in its parent's directory,
/// with its parent's output.
///
/// The environment is `PATH`, the user's `HOME` and `USER`, and the sandbox as `PWD`, then the
/// agent's variables, then the command's. Later ones win.
pub fn program(
    command: &CommandInfo,
    variables: &BTreeMap<String, String>,
    own: &OwnUser,
    run_as: RunAs,
) -> Program {
    let account = match &run_as {
        RunAs::Own => own.account(),
        RunAs::Other(account) => Some(account),
    };
    let mut environment = BTreeMap::from([("PATH".to_owned(), PATH_DEFAULT.to_owned())]);
    if let Some(account) = account {
        environment.insert("USER".to_owned(), account.name.clone());
        let home = account.home.to_string_lossy().into_owned();
        environment.insert("HOME".to_owned(), home);
    }
    if let Some(sandbox) = variables.get(variable::SANDBOX) {
        environment.insert("PWD".to_owned(), sandbox.clone());
    }
    environment.extend(variables.clone());
    environment.extend(command.environment.clone());
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
    Program {
        file,
        arguments,
        environment: environment.into_iter().collect(),
        credentials: match run_as {
            RunAs::Own => None,
            RunAs::Other(account) => Some(account.credentials),
        },
        cgroup: None,
        rights: Rights::default(),
        output_to_error: false,
        terminal: None,
    }
}

/// What a program may do by this plan. The pair is the soft and the hard limit of its open files,
/// unless the plan has others.
pub fn rights(plan: &LaunchPlan, (soft, hard): (u64, u64)) -> Rights {
    let capabilities = plan.capabilities.map(|sets| Capabilities {
        effective: sets.effective.map(|set| set.0),
        bounding: sets.bounding.0,
    });
    let unlimited = SoftHard {
        soft: libc::RLIM64_INFINITY,
        hard: libc::RLIM64_INFINITY,
    };
    let files = libc::rlimit64 {
        rlim_cur: soft,
        rlim_max: hard,
    };
    let rlimits = plan.rlimits.iter().map(|limit| {
        let SoftHard { soft, hard } = limit.limits.unwrap_or(unlimited);
        let limits = libc::rlimit64 {
            rlim_cur: soft,
            rlim_max: hard,
        };
        (resource(limit.kind), limits)
    });
    let instruction = |bytes: &[u8]| libc::sock_filter {
        code: u16::from_ne_bytes([bytes[0], bytes[1]]),
        jt: bytes[2],
        jf: bytes[3],
        k: u32::from_ne_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
    };
    let seccomp = plan.seccomp.iter();
    let seccomp = seccomp.map(|bytes| bytes.chunks_exact(8).map(instruction).collect());
    Rights {
        rlimits: std::iter::once((libc::RLIMIT_NOFILE, files))
            .chain(rlimits)
            .collect(),
        capabilities,
        seccomp: seccomp.collect(),
    }
}

fn resource(kind: RLimitKind) -> libc::__rlimit_resource_t {
    match kind {
        RLimitKind::As => libc::RLIMIT_AS,
        RLimitKind::Core => libc::RLIMIT_CORE,
        RLimitKind::Cpu => libc::RLIMIT_CPU,
        RLimitKind::Data => libc::RLIMIT_DATA,
        RLimitKind::Fsize => libc::RLIMIT_FSIZE,
        RLimitKind::Locks => libc::RLIMIT_LOCKS,
        RLimitKind::Memlock => libc::RLIMIT_MEMLOCK,
        RLimitKind::Msgqueue => libc::RLIMIT_MSGQUEUE,
        RLimitKind::Nice => libc::RLIMIT_NICE,
        RLimitKind::Nofile => libc::RLIMIT_NOFILE,
        RLimitKind::Nproc => libc::RLIMIT_NPROC,
        RLimitKind::Rss => libc::RLIMIT_RSS,
        RLimitKind::Rtprio => libc::RLIMIT_RTPRIO,
        RLimitKind::Rttime => libc::RLIMIT_RTTIME,
        RLimitKind::Sigpending => libc::RLIMIT_SIGPENDING,
        RLimitKind::Stack => libc::RLIMIT_STACK,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn started(command: &CommandInfo, variables: &BTreeMap<String, String>) -> Program {
        let own = OwnUser::look_up().unwrap();
        program(command, variables, &own, RunAs::Own)
    }

    #[test]
    fn a_shell_command_and_a_program_become_their_argv() {
        let check = |command: CommandInfo, file: &str, arguments: &[&str]| {
            let program = started(&command, &BTreeMap::new());
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

    fn pairs(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        let owned = |&(name, value): &(&str, &str)| (name.to_owned(), value.to_owned());
        pairs.iter().map(owned).collect()
    }

    #[test]
    fn program_gets_its_users_environment_not_the_agents() {
        let agents = pairs(&[("MESOS_SANDBOX", "/s")]);
        let program = started(&CommandInfo::shell("env"), &agents);
        let environment: BTreeMap<_, _> = program.environment.into_iter().collect();
        let own = OwnUser::look_up().unwrap();
        let mut expected = agents;
        expected.extend(pairs(&[("PATH", PATH_DEFAULT), ("PWD", "/s")]));
        if let Some(account) = own.account() {
            expected.insert("USER".to_owned(), account.name.clone());
            expected.insert("HOME".to_owned(), account.home.display().to_string());
        }
        assert_eq!(
            environment, expected,
            "cargo sets many more in this process"
        );
    }

    #[test]
    fn the_commands_variables_win_over_the_agents() {
        let agents = pairs(&[("MESOS_SANDBOX", "/s"), ("PATH", "/agent"), ("HOME", "/a")]);
        let command = CommandInfo {
            environment: pairs(&[("HOME", "/home/x"), ("MESOS_SANDBOX", "/t")]),
            ..CommandInfo::shell("env")
        };
        let program = started(&command, &agents);
        for (name, value) in [
            ("HOME", "/home/x"),
            ("MESOS_SANDBOX", "/t"),
            ("PATH", "/agent"),
            ("PWD", "/s"),
        ] {
            let found = program.environment.iter().find(|(known, _)| known == name);
            assert_eq!(
                found.map(|(_, value)| value.as_str()),
                Some(value),
                "{name}"
            );
        }
    }
}
