//! Tasks from a command line to a finished process, and each way a process can end.

use testkit::assert_contains;

use crate::support::{Cluster, Running, eventually, sleepers, stderr, stdout};

#[test]
fn command_runs_and_its_output_is_printed() {
    let cluster = Cluster::start(1, "cpus:2;mem:256");
    let output = cluster.output(["run", "--", "echo", "hello world"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_contains!(stdout(&output), "hello world");
}

#[test]
fn instances_share_three_agents_and_finish() {
    let cluster = Cluster::start(3, "cpus:2;mem:256");
    let output = cluster.output([
        "run",
        "--instances",
        "20",
        "--resources",
        "cpus:0.5;mem:16",
        "--",
        "sh",
        "-c",
        "echo task $MESOS_EXECUTOR_ID ran",
    ]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(
        stdout(&output).matches(" ran").count(),
        20,
        "{}",
        stdout(&output)
    );
}

#[test]
fn each_task_has_its_own_environment_and_sandbox() {
    let cluster = Cluster::start(1, "cpus:2;mem:256");
    let output = cluster.run_shell(
        &["--env", "GREETING=good day"],
        "echo \"$GREETING\"; echo word > note; ls; [ \"$PWD\" = \"$MESOS_SANDBOX\" ]",
    );
    assert!(output.status.success(), "{}", stderr(&output));
    let text = stdout(&output);
    assert_contains!(text, "good day", "note", "stdout");
}

#[test]
fn exit_code_is_the_first_failing_tasks() {
    let cluster = Cluster::start(1, "cpus:2;mem:256");
    let output = cluster.run_shell(&[], "echo before; echo trouble >&2; exit 3");
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    assert!(stdout(&output).contains("before"), "{}", stdout(&output));
    assert!(stderr(&output).contains("trouble"), "{}", stderr(&output));
    assert_contains!(stderr(&output), "exited with status 3");
}

#[test]
fn task_killed_by_a_signal_gets_the_shells_code() {
    let cluster = Cluster::start(1, "cpus:2;mem:256");
    let output = cluster.run_shell(&[], "kill -SEGV $$");
    assert_eq!(output.status.code(), Some(128 + 11), "{}", stderr(&output));
    assert!(stderr(&output).contains("signal"), "{}", stderr(&output));
}

#[test]
fn missing_command_fails_and_is_named() {
    let cluster = Cluster::start(1, "cpus:2;mem:256");
    let output = cluster.output(["run", "--", "/no/such/program"]);
    assert!(!output.status.success());
    assert_contains!(stderr(&output), "/no/such/program");
    assert!(
        cluster.output(["run", "--", "true"]).status.success(),
        "the cluster stays usable"
    );
}

#[test]
fn hundred_megabytes_of_output_disturb_no_other_task() {
    let cluster = Cluster::start(1, "cpus:2;mem:256");
    let output = cluster.run_shell(
        &[],
        "head -c 100000000 /dev/zero | tr '\\0' 'x'; echo; echo done >&2",
    );
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(
        output.stdout.len() >= 100_000_000,
        "{} bytes came back",
        output.stdout.len()
    );
}

#[test]
fn grandchild_processes_end_with_their_task() {
    let cluster = Cluster::start(1, "cpus:2;mem:256");
    let output = cluster.run_shell(&[], "setsid sleep 98701 & sleep 98701 & exit 0");
    assert!(output.status.success(), "{}", stderr(&output));
    eventually("the grandchildren to be gone", || {
        sleepers(98701).is_empty().then_some(())
    });
}

#[test]
fn task_ignoring_sigterm_is_killed_after_its_grace_period() {
    let cluster = Cluster::start(1, "cpus:2;mem:256");
    let mut run = Running::start(&mut cluster.verb([
        "run",
        "--name",
        "stubborn",
        "--",
        "sh",
        "-c",
        "trap '' TERM; while :; do sleep 98702; done",
    ]));
    eventually("the task to run", || {
        (!sleepers(98702).is_empty()).then_some(())
    });
    let tasks = stdout(&cluster.output(["tasks", "--json"]));
    let tasks: serde_json::Value = serde_json::from_str(&tasks).expect("tasks --json is JSON");
    let id = tasks[0]["id"]
        .as_str()
        .expect("the task has an id")
        .to_owned();
    let killed = cluster.output(["kill", &id]);
    assert!(killed.status.success(), "{}", stderr(&killed));
    assert!(!run.wait().success());
    eventually("its processes to be gone", || {
        sleepers(98702).is_empty().then_some(())
    });
}

#[test]
fn logs_show_what_a_task_printed() {
    let cluster = Cluster::start(1, "cpus:2;mem:256");
    let mut run = Running::start(&mut cluster.verb([
        "run",
        "--",
        "sh",
        "-c",
        "echo first words; sleep 98703",
    ]));
    let id = eventually("the task to be listed as running", || {
        let tasks: serde_json::Value =
            serde_json::from_str(&stdout(&cluster.output(["tasks", "--json"]))).ok()?;
        let task = tasks
            .as_array()?
            .iter()
            .find(|task| task["state"] == "TASK_RUNNING")?;
        Some(task["id"].as_str()?.to_owned())
    });
    eventually("its words in the log", || {
        stdout(&cluster.output(["logs", &id]))
            .contains("first words")
            .then_some(())
    });
    assert!(run.is_running());
    run.signal("TERM");
    run.wait();
    eventually("the task to be torn down with its framework", || {
        sleepers(98703).is_empty().then_some(())
    });
}

#[test]
fn stopped_cluster_exits_cleanly_and_ends_its_tasks() {
    let cluster = Cluster::start(1, "cpus:2;mem:256");
    let run = Running::start(&mut cluster.verb(["run", "--", "sleep", "98704"]));
    eventually("the task to run", || sleepers(98704).first().copied());
    assert!(cluster.stop().success());
    eventually("its process to be gone", || {
        sleepers(98704).is_empty().then_some(())
    });
    drop(run);
}
