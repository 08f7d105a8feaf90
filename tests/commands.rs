//! The command line for people: help, mistakes, and errors with a next step.

use testkit::assert_contains;

use crate::in_time::InTime;
use crate::support::{Cluster, meros, stderr, stdout};

#[test]
fn help_and_version_describe_the_verbs() {
    let version = meros(["--version"]).output_in_time().expect("meros runs");
    assert_eq!(
        stdout(&version).trim(),
        format!("meros {}", env!("CARGO_PKG_VERSION"))
    );
    let help = stdout(&meros(["--help"]).output_in_time().expect("meros runs"));
    for verb in [
        "master",
        "agent",
        "local",
        "run",
        "agents",
        "tasks",
        "frameworks",
        "state",
        "roles",
        "quota",
        "weights",
        "reserve",
        "unreserve",
        "volume",
        "maintenance",
        "kill",
        "logs",
        "exec",
        "attach",
        "masters",
        "registry",
        "certs",
    ] {
        assert!(help.contains(verb), "{verb} is missing in {help}");
    }
    assert!(
        !help.contains("executor-zygote"),
        "hidden verbs stay hidden"
    );
}

#[test]
fn both_flag_spellings_are_accepted() {
    for flag in ["--work_dir", "--work-dir"] {
        let output = meros(["agent", flag, "/nowhere"])
            .output_in_time()
            .expect("meros runs");
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        assert!(
            stderr(&output).contains("--master"),
            "it asks for what is missing: {}",
            stderr(&output)
        );
    }
}

#[test]
fn errors_are_one_line_naming_the_mistake() {
    let cases: [(&[&str], &str); 5] = [
        (
            &["local", "--agents", "1", "--resources", "cpus:1;mem:lots"],
            "mem",
        ),
        (&["local", "--agents", "1", "--weights", "dev=0"], "dev"),
        (
            &["local", "--agents", "0", "--sorter", "fair"],
            "there is no sorter called `fair`: expected one of drf, lottery",
        ),
        (&["run", "--resources", "cpus:-1", "--", "true"], "cpus"),
        (&["agents", "--master", "127.0.0.1:1"], "127.0.0.1:1"),
    ];
    let work_dir = tempfile::tempdir().expect("a directory");
    let made = meros(["certs", "--dir"]).arg(work_dir.path()).output();
    assert!(made.expect("meros runs").status.success());
    for (arguments, named) in cases {
        let output = meros(arguments.iter().copied())
            .env("MESOS_WORK_DIR", work_dir.path())
            .env("MEROS_CERTS", work_dir.path())
            .output_in_time()
            .expect("meros runs");
        let text = stderr(&output);
        assert!(!output.status.success(), "{arguments:?}");
        assert!(text.contains(named), "{arguments:?}: {text}");
        assert!(
            !text.contains("panicked") && !text.contains("backtrace"),
            "{text}"
        );
    }
}

#[test]
fn verbs_list_the_clusters_contents() {
    let cluster = Cluster::start(2, "cpus:2;mem:256");
    let agents = stdout(&cluster.output(["agents"]));
    assert_eq!(
        agents
            .lines()
            .filter(|line| line.contains("cpus:2"))
            .count(),
        2,
        "{agents}"
    );
    let agents: serde_json::Value =
        serde_json::from_str(&stdout(&cluster.output(["agents", "--json"]))).expect("JSON");
    assert_eq!(agents.as_array().map(Vec::len), Some(2));
    for verb in ["tasks", "frameworks", "state"] {
        let output = cluster.output([verb, "--json"]);
        assert!(output.status.success(), "{verb}: {}", stderr(&output));
        serde_json::from_str::<serde_json::Value>(&stdout(&output))
            .unwrap_or_else(|error| panic!("{verb}: {error}"));
    }
    let unknown = cluster.output(["kill", "no-such-task"]);
    assert_eq!(unknown.status.code(), Some(1));
    assert_contains!(stderr(&unknown), "no-such-task");
}

#[test]
fn embedded_cluster_runs_a_command_and_cleans_up() {
    let output = meros([
        "run",
        "--instances",
        "3",
        "--",
        "sh",
        "-c",
        "echo from $MESOS_EXECUTOR_ID",
    ])
    .output_in_time()
    .expect("meros runs");
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(
        stdout(&output).matches("from ").count(),
        3,
        "{}",
        stdout(&output)
    );
}
