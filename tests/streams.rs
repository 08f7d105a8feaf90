//! Standard streams of the command line: full disks, closed pipes, input, hangups, and untrusted
//! names.

use std::fs::File;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};

use testkit::assert_contains;

use crate::support::{Cluster, Running, eventually, meros, stderr, stdout};

/// Runs a command that prints little; gives its status and standard error.
fn ended(command: &mut Command) -> (ExitStatus, String) {
    let mut child = command.stderr(Stdio::piped()).spawn().expect("meros runs");
    eventually("the command to end", || child.try_wait().ok().flatten());
    let output = child.wait_with_output().expect("its output");
    (output.status, stderr(&output))
}

fn full() -> Stdio {
    let full = File::options().write(true).open("/dev/full");
    full.expect("/dev/full").into()
}

/// The writing end of a pipe whose reader has gone.
fn closed() -> Stdio {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    writer.into()
}

#[test]
fn failed_write_is_an_error_but_closed_pipe_is_not() {
    let cluster = Cluster::start(1, "cpus:2;mem:256");
    let verbs: [&[&str]; 9] = [
        &["--help"],
        &["run", "--help"],
        &["--version"],
        &["agents"],
        &["tasks"],
        &["frameworks", "--json"],
        &["state"],
        &["roles"],
        &["run", "--", "echo", "hello"],
    ];
    for verb in verbs {
        let (status, printed) = ended(cluster.verb(verb.iter().copied()).stdout(full()));
        assert_eq!(status.code(), Some(1), "{verb:?}: {printed}");
        let expected = "meros: cannot write to standard output: ";
        let about: Vec<_> = printed
            .lines()
            .filter(|line| line.starts_with(expected))
            .collect();
        assert_eq!(about.len(), 1, "{verb:?}: {printed}");
        let (status, printed) = ended(cluster.verb(verb.iter().copied()).stdout(closed()));
        assert_eq!(status.code(), Some(0), "{verb:?}: {printed}");
        assert!(!printed.contains("write"), "{verb:?}: {printed}");
    }
    // The framework whose output could not be written is gone.
    let frameworks = cluster.list("frameworks");
    assert!(
        frameworks
            .iter()
            .all(|framework| framework["active"] != true),
        "{frameworks:?}"
    );
}

#[test]
fn unread_standard_input_is_refused() {
    let cluster = Cluster::start(1, "cpus:2;mem:256");
    let run = |input: Stdio| {
        let mut command = cluster.verb(["run", "--", "echo", "hello"]);
        ended(command.stdin(input).stdout(Stdio::null()))
    };
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    let opened = || File::open(file.path()).expect("the file").into();
    assert!(run(opened()).0.success(), "an empty file");
    let (status, printed) = {
        file.write_all(b"a\n").expect("written");
        run(File::open(file.path()).expect("the file").into())
    };
    assert_eq!(status.code(), Some(2), "{printed}");
    assert!(printed.contains("standard input"), "{printed}");
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    let silent = reader.try_clone().expect("a descriptor");
    assert!(run(silent.into()).0.success(), "a silent pipe");
    writer.write_all(b"a\n").expect("written");
    assert_eq!(run(reader.into()).0.code(), Some(2));
}

#[test]
fn hangup_of_run_ends_its_tasks() {
    let cluster = Cluster::start(1, "cpus:2;mem:256");
    let mut command = cluster.verb(["run", "--", "sh", "-c", "echo begun; exec sleep 1000"]);
    let mut run = Running::start(command.stdout(Stdio::piped()));
    run.line("that it runs", |line| line == "begun");
    run.signal("HUP");
    let status = run.wait();
    assert_eq!((status.code(), status.signal()), (Some(129), None));
    let tasks = cluster.list("tasks");
    assert!(
        tasks.iter().all(|task| task["state"] == "TASK_KILLED"),
        "{tasks:?}"
    );
}

#[test]
fn framework_names_are_escaped_in_tables_and_json() {
    let cluster = Cluster::start(1, "cpus:2;mem:256");
    let name = "evil\x1b[31m\nname\u{202e}";
    let run = cluster.output(["run", "--name", name, "--", "true"]);
    assert!(run.status.success(), "{}", stderr(&run));
    let is_unsafe = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
    let table = stdout(&cluster.output(["frameworks"]));
    assert_eq!(table.lines().count(), 2, "{table}");
    assert!(table.contains(r"evil\u{1b}[31m\nname\u{202e}"), "{table}");
    for arguments in [
        &["tasks"][..],
        &["explain", "nobody\x1b[2J"],
        &["frameworks", "--json"],
    ] {
        let output = cluster.output(arguments.iter().copied());
        let shown = stdout(&output) + &stderr(&output);
        assert!(!shown.contains(is_unsafe), "{arguments:?}: {shown}");
    }
    let frameworks = cluster.list("frameworks");
    assert_eq!(frameworks[0]["name"], name);
}

#[test]
fn mesos_boolean_in_the_environment_is_accepted() {
    let cluster = Cluster::master_alone(|command, _| {
        command.env("MESOS_ROOT_SUBMISSIONS", "false");
    });
    let refused = cluster.output(["run", "--", "true"]);
    let printed = stderr(&refused);
    assert!(
        !refused.status.success() && printed.contains("root"),
        "{printed}"
    );
    for (variable, value) in [
        ("MESOS_SWITCH_USER", "perhaps"),
        ("MESOS_CONTAINERIZERS", "docker"),
    ] {
        let mut agent = cluster.agent_command("agent", "cpus:1;mem:64");
        let (status, printed) = ended(agent.env(variable, value).stdout(Stdio::null()));
        assert_eq!(status.code(), Some(2), "{printed}");
        let flag = variable.trim_start_matches("MESOS_").to_lowercase();
        assert_contains!(printed, format!("--{flag}"), value);
    }
    let (status, printed) = ended(meros(["local", "--agents", "0"]).env("MESOS_PORT", "none"));
    assert_eq!(status.code(), Some(2), "{printed}");
}
