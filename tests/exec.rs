//! `meros exec`: a command in a running task, through the real master, agent and container init.

use std::io::Write;
use std::process::{Output, Stdio};

use protocol::TaskState;
use protocol::task::TaskLimits;
use protocol::task::container::ContainerInfo;

use crate::isolation::{Isolated, container};
use crate::scripted_framework::{ScriptedFramework, framework, task};
use crate::support::{Cluster, Running, eventually, sleepers, stderr, stdout};

/// A cluster with one running task `t`, which has a variable.
fn with_task(line: &str) -> (Cluster, ScriptedFramework) {
    let cluster = Cluster::start(1, "cpus:2;mem:256");
    let mut framework = ScriptedFramework::subscribe(&cluster, framework("exec", "ads"));
    let offer = framework.standing_offer();
    let mut info = task("t", &offer, "cpus:0.1;mem:32", line);
    let command = info.command.as_mut().expect("it has one");
    command
        .environment
        .insert("COLOUR".to_owned(), "blue".to_owned());
    framework.launch(&offer, vec![info]);
    framework.state("t", TaskState::Running);
    (cluster, framework)
}

fn exec(cluster: &Cluster, flags: &[&str], line: &str) -> Output {
    let arguments = ["exec"].into_iter().chain(flags.iter().copied());
    let arguments = arguments.chain(["t", "--", "sh", "-c", line]);
    cluster.output(arguments)
}

// Covers 5.6 in part: LAUNCH_NESTED_CONTAINER_SESSION, ATTACH_CONTAINER_INPUT.
#[test]
fn command_runs_beside_the_task_with_its_environment() {
    let (cluster, _framework) = with_task("echo made > here; exec sleep 98741");
    eventually("the task's file", || {
        exec(&cluster, &[], "cat here")
            .status
            .success()
            .then_some(())
    });
    let output = exec(
        &cluster,
        &[],
        "cat here; echo $COLOUR $MESOS_TASK_ID; echo bad >&2; exit 7",
    );
    assert_eq!(stdout(&output), "made\nblue t\n", "{}", stderr(&output));
    assert_eq!(stderr(&output), "bad\n");
    assert_eq!(output.status.code(), Some(7));
    let output = exec(&cluster, &[], "kill -9 $$");
    assert_eq!(output.status.code(), Some(128 + 9), "{}", stderr(&output));
    let output = cluster.output(["exec", "t", "--", "/no/such/program"]);
    assert!(!output.status.success());
    // More than a pipe holds.
    let output = exec(&cluster, &[], "head -c 3000000 /dev/zero");
    assert_eq!(output.stdout.len(), 3_000_000, "{}", stderr(&output));
    // What it leaves is killed.
    let output = exec(&cluster, &[], "sleep 98742 & echo on");
    assert!(output.status.success(), "{}", stderr(&output));
    eventually("its child to be gone", || {
        sleepers(98_742).is_empty().then_some(())
    });
}

#[test]
fn input_and_terminal_reach_the_command() {
    let (cluster, _framework) = with_task("exec sleep 98743");
    let with_input = |flags: &[&str], line: &str, input: &[u8]| {
        let arguments = ["exec"].into_iter().chain(flags.iter().copied());
        let mut verb = cluster.verb(arguments.chain(["t", "--", "sh", "-c", line]));
        verb.stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = verb.spawn().expect("meros runs");
        let mut stdin = child.stdin.take().expect("it is piped");
        let input = input.to_vec();
        let writer = std::thread::spawn(move || {
            let _ = stdin.write_all(&input);
        });
        let output = child.wait_with_output().expect("it ends");
        writer.join().expect("it writes");
        output
    };
    let large = vec![b'x'; 1 << 20];
    let output = with_input(&["-i"], "wc -c", &large);
    assert_eq!(
        stdout(&output).trim(),
        (1 << 20).to_string(),
        "{}",
        stderr(&output)
    );
    let output = exec(
        &cluster,
        &["-t"],
        "test -t 0 && test -t 1 && stty size && echo terminal",
    );
    assert!(stdout(&output).contains("terminal\r\n"), "{output:?}");
    let output = with_input(&["-i", "-t"], "read line; echo got $line", b"hello\n");
    assert!(stdout(&output).contains("got hello\r\n"), "{output:?}");
    // A shell has job control.
    let line = "set -m; sleep 0.1 & wait $!; echo done $?";
    let output = exec(&cluster, &["-t"], line);
    assert!(stdout(&output).contains("done 0"), "{output:?}");
}

#[test]
fn session_ends_with_its_client_and_with_its_task() {
    let (cluster, mut framework) = with_task("exec sleep 98744");
    for ends_with_client in [true, false] {
        let mut verb = cluster.verb(["exec", "t", "--", "sleep", "98745"]);
        verb.stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = verb.spawn().expect("meros runs");
        eventually("the session", || {
            (!sleepers(98_745).is_empty()).then_some(())
        });
        if ends_with_client {
            child.kill().expect("it runs");
        } else {
            let id = protocol::TaskId::new("t").expect("an id");
            framework.driver.kill(id, None).expect("the driver hears");
            framework.state("t", TaskState::Killed);
        }
        eventually("the session to be gone", || {
            sleepers(98_745).is_empty().then_some(())
        });
        eventually("the client's end", || {
            child.try_wait().expect("it was started")
        });
    }
}

#[test]
fn session_is_in_the_containers_namespaces_and_groups() {
    let Some(mut isolated) = Isolated::begin("exec", "", &[]) else {
        return;
    };
    let none = TaskLimits::default();
    let status = isolated.run("t", "cpus:0.5;mem:64", none, "exec sleep 98746");
    let look = "ls /proc | grep -c '^[0-9]'; cat /proc/self/cgroup; ls /proc/1/exe";
    let output = exec(&isolated.cluster, &[], look);
    let seen = stdout(&output);
    let count: u32 = seen
        .lines()
        .next()
        .expect("a line")
        .parse()
        .expect("a number");
    assert!(count <= 7, "inits, sleep, sh, ls and grep: {seen}");
    let group = container(&status);
    assert!(seen.contains(group.as_str()), "{seen}");
    isolated.kill("t");
    isolated.leaves_nothing();
}

/// The next agent process finds the terminal at the container's init.
#[test]
fn attached_terminal_outlives_the_agent() {
    let cluster = Cluster::with(0, &[]);
    let mut command = cluster.agent_command("agent", "cpus:2;mem:256");
    let mut agent = cluster.agent_of(&mut command);
    let mut info = framework("attach", "ads");
    info.checkpoint = true;
    let mut framework = ScriptedFramework::subscribe(&cluster, info);
    let offer = framework.standing_offer();
    let line = "while read line; do echo got $line; done";
    let mut info = task("t", &offer, "cpus:0.1;mem:32", line);
    info.container = Some(Box::new(ContainerInfo {
        has_terminal: true,
        ..ContainerInfo::default()
    }));
    let launched = framework.driver.launch(vec![offer.id], vec![info]);
    launched.expect("the driver hears");
    framework.state("t", TaskState::Running);
    let keys = cluster.directory().join("keys");
    let attach = |typed: &str| {
        std::fs::write(&keys, format!("{typed}\n")).expect("a file");
        let input = std::fs::File::open(&keys).expect("a file");
        let mut verb = cluster.verb(["attach", "-i", "t"]);
        let mut attached = Running::start(verb.stdin(input).stdout(Stdio::piped()));
        let wanted = format!("got {typed}");
        attached.line(&wanted, |line| line.contains(&wanted));
        attached
    };
    drop(attach("first"));
    agent.signal("KILL");
    agent.wait();
    let _agent = Running::start(&mut command);
    eventually("the agent to be back", || {
        let output = cluster.output(["exec", "t", "--", "true"]);
        output.status.success().then_some(())
    });
    let mut attached = attach("second");
    let id = protocol::TaskId::new("t").expect("an id");
    framework.driver.kill(id, None).expect("the driver hears");
    framework.state("t", TaskState::Killed);
    assert!(attached.wait().success());
}
