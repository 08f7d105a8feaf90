//! `meros-lab simulate` as a user runs it: a cluster in virtual time, faults, checks, and a hash
//! that one seed always gives.

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a test may end by a panic"
)]

use std::process::{Command, Output, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

/// The bound of one run, far above its need.
const TIMEOUT: Duration = Duration::from_secs(600);

/// The `meros-lab` binary with these arguments, run to its end; killed after [`TIMEOUT`].
fn lab<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Output {
    let child = Command::new(env!("CARGO_BIN_EXE_meros-lab"))
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .env_remove("RUST_BACKTRACE")
        .spawn()
        .expect("meros-lab starts");
    let pid = Pid::from_raw(child.id() as i32);
    let (ended, output) = channel();
    std::thread::spawn(move || ended.send(child.wait_with_output()));
    let Ok(output) = output.recv_timeout(TIMEOUT) else {
        let _ = kill(pid, Signal::SIGKILL);
        panic!("meros-lab does not end within {TIMEOUT:?}");
    };
    output.expect("the output of meros-lab")
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A small cluster, quick to simulate, with these further flags.
fn simulate(flags: &[&str]) -> Output {
    let small = [
        "simulate",
        "--agents",
        "2",
        "--frameworks",
        "2",
        "--for",
        "5mins",
    ];
    lab(small.iter().chain(flags).copied())
}

fn hash(output: &Output) -> String {
    let text = stdout(output);
    let last = text.lines().last().unwrap_or_default();
    let hash = last.strip_prefix("hash").unwrap_or_default().trim();
    assert_eq!(hash.len(), 16, "{text}{}", stderr(output));
    hash.to_owned()
}

#[test]
fn seed_determines_the_run() {
    let one = simulate(&["--seed", "7", "--faults", "machines"]);
    assert!(one.status.success(), "{}", stderr(&one));
    let text = stdout(&one);
    for named in ["launches", "ends", "failovers", "drops", "checks", "offers"] {
        assert!(text.contains(named), "{named} is missing in {text}");
    }
    let again = simulate(&["--seed", "7", "--faults", "machines"]);
    assert_eq!(
        text,
        stdout(&again),
        "every number, and the hash over every event"
    );
    let other = simulate(&["--seed", "8", "--faults", "machines"]);
    assert_ne!(hash(&one), hash(&other));
}

#[test]
fn sums_of_several_seeds_are_printed() {
    let output = simulate(&["--seeds", "2", "--faults", "none", "--json"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let sums: Value = serde_json::from_str(&stdout(&output)).expect("one line of JSON");
    assert_eq!(sums["seeds"], 2);
    for counted in ["launches", "processes", "offers", "registrations"] {
        assert!(sums[counted].as_u64() > Some(0), "{counted}: {sums}");
    }
    assert_eq!(sums["hash"].as_str().map(str::len), Some(16));
}

#[test]
fn cluster_recovers_from_a_given_fault() {
    let crash = "30secs+10secs crash master";
    let output = simulate(&["--fault", crash, "--transport", "memory"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let text = stdout(&output);
    assert!(text.contains("1 of the master; 1 nodes crashed"), "{text}");
}

#[test]
fn group_survives_a_crash_of_its_leader() {
    let crash = "30secs+10secs crash leader";
    let flags = ["--masters", "3", "--fault", crash, "--transport", "memory"];
    let output = simulate(&flags);
    assert!(output.status.success(), "{}", stderr(&output));
    let text = stdout(&output);
    assert!(text.starts_with("3 masters, 2 agents"), "{text}");
    assert!(text.contains("1 nodes crashed"), "{text}");
    for judged in ["of the registry", " group", " registry"] {
        assert!(text.contains(judged), "{judged}: {text}");
    }
}

#[test]
fn run_that_proves_too_little_fails() {
    let output = lab([
        "simulate",
        "--agents",
        "0",
        "--frameworks",
        "1",
        "--faults",
        "network",
        "--for",
        "1secs",
    ]);
    assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
    let text = stderr(&output);
    assert!(text.contains("proves too little: 0 "), "{text}");
}

#[test]
fn wrong_flag_names_value_and_expectation() {
    for (flags, named) in [
        (["--faults", "some"], "none, network, machines or all"),
        (["--transport", "tcp"], "quic or memory"),
        (["--seed", "x"], "`x`"),
        (["--for_real", "soon"], "`soon`"),
        (["--fault", "1secs+1secs melt master"], "melt"),
        (["--fault", "1secs+1secs crash agent-3"], "agent-3"),
        (["--fault", "6mins+1secs crash agent-1"], "--for 5mins"),
    ] {
        let output = simulate(&flags);
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{flags:?}: {text}");
        let text = text.replace('\'', "`");
        assert!(text.contains(named), "{flags:?}: {text}");
    }
}
