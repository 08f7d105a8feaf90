//! Public client libraries, unchanged, against a real cluster (SPEC 2): whatever they were written for, Meros answers.
//!
//! `tests/clients/install target/clients` makes them ready, as `.ci/run` does; it needs Python and PyPI. Where it has not run, each of these
//! tests says so and tries nothing.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::in_time::InTime;
use crate::support::{Cluster, Running, stdout};

/// A Python that has the libraries.
fn python() -> Option<PathBuf> {
    let target = Path::new(env!("CARGO_BIN_EXE_meros")).ancestors().nth(2)?;
    let directory = target.join("clients");
    if directory.join("ready").exists() {
        return Some(directory.join("bin/python"));
    }
    eprintln!(
        "skipped: there are no client libraries in {}; `tests/clients/install {0}` makes them ready",
        directory.display()
    );
    None
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/clients")
        .join(name)
}

/// A script with these arguments, ready to run.
fn client(python: &Path, name: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(python);
    command
        .arg(script(name))
        .args(arguments)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    command
}

fn steps(printed: &str) -> Vec<&str> {
    printed
        .lines()
        .filter_map(|line| line.strip_prefix("ok "))
        .collect()
}

/// SPEC 2.2, 2.3, 2.5: subscribe, launch, reconcile, kill, decline, suppress and revive, a custom executor, teardown.
#[test]
fn a_scheduler_and_an_executor_of_pymesos_run_unchanged() {
    let Some(python) = python() else { return };
    let cluster = Cluster::start(1, "cpus:2;mem:512");
    let executor = script("pymesos_executor.py");
    let executor = executor.to_str().expect("a path in UTF-8");
    let output = client(
        &python,
        "pymesos_scheduler.py",
        &[&cluster.master, executor],
    )
    .output_in_time();
    let output = output.expect("Python runs");
    let printed = stdout(&output);
    assert!(output.status.success(), "{printed}");
    let expected = [
        "subscribe",
        "launch",
        "reconcile",
        "kill",
        "decline",
        "suppress",
        "revive",
        "custom executor",
        "teardown",
    ];
    assert_eq!(steps(&printed), expected);
    assert!(
        cluster
            .list("frameworks")
            .iter()
            .all(|framework| framework["active"] != true)
    );
}

/// SPEC 2.6.
#[test]
fn an_operator_of_pymesos_hears_what_happens_and_is_answered() {
    let Some(python) = python() else { return };
    let cluster = Cluster::start(1, "cpus:2;mem:512");
    let mut operator = client(&python, "pymesos_operator.py", &[&cluster.master]);
    let mut operator = Running::start(&mut operator);
    operator.line("that it is subscribed", |line| line == "ok subscribed");
    assert!(cluster.output(["run", "--", "true"]).status.success());
    operator.line("the last of its steps", |line| line == "ok weights");
    assert!(operator.wait().success());
}

/// Some of the steps run in other directories than the one that was meant.
#[test]
fn the_libraries_are_installed_into_a_relative_and_into_an_absolute_directory() {
    let scratch = tempfile::tempdir().expect("a directory");
    let scratch = scratch.path();
    for directory in [
        PathBuf::from("relative/clients"),
        scratch.join("absolute/clients"),
    ] {
        let status = Command::new(script("install"))
            .arg(&directory)
            .current_dir(scratch)
            .env("MEROS_CLIENTS_PYTHON", script("pretend_python"))
            .status_in_time()
            .expect("the script runs");
        assert!(status.success(), "{}", directory.display());
        let ready = scratch.join(&directory).join("ready");
        assert!(ready.exists(), "{}", ready.display());
    }
}
