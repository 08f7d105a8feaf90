//! Agents are killed, stopped and restarted under running tasks of frameworks with `checkpoint`
//! (SPEC 5.3): tasks continue, the agent keeps its id, and no update is duplicated.

use std::path::Path;
use std::process::Command;

use protocol::{CommandInfo, FrameworkInfo, Reason, TaskId, TaskState};
use serde_json::{Value, json};
use testkit::assert_contains;
use v1::Form;
use v1::schema::executor::EventType;

use crate::http_executor::{HttpExecutor, SLEEPER, acknowledged, executor, for_executor};
use crate::in_time::InTime;
use crate::scripted_framework::{Callback, ScriptedFramework, framework, task};
use crate::support::{Cluster, Running, eventually, get_over, signal, sleepers, stderr, stdout};

const RESOURCES: &str = "cpus:2;mem:256;disk:0;ports:[]";

/// A master, a restartable agent, and a framework whose tasks outlive the agent.
struct Fixture {
    cluster: Cluster,
    command: Command,
    agent: Running,
    scripted: ScriptedFramework,
}

impl Fixture {
    fn begin(checkpoint: bool) -> Self {
        let cluster = Cluster::master_alone(|_, _| ());
        let mut command = cluster.agent_command("agent", RESOURCES);
        command.args(["--executor_reregistration_timeout", "15secs"]);
        let agent = cluster.agent_of(&mut command);
        let info = FrameworkInfo {
            checkpoint,
            ..framework("patron", "*")
        };
        let scripted = ScriptedFramework::subscribe(&cluster, info);
        Self {
            cluster,
            command,
            agent,
            scripted,
        }
    }

    /// Runs this shell line as a task, and waits until it runs.
    fn run(&mut self, name: &str, line: &str) {
        loop {
            let offer = self.scripted.standing_offer();
            let task = task(name, &offer, "cpus:0.5;mem:32", line);
            self.scripted.launch(&offer, vec![task]);
            let status = self
                .scripted
                .wait_for("how it begins", |callback| match callback {
                    Callback::Status(status) if status.task_id.as_str() == name => {
                        (status.state != TaskState::Starting).then(|| (**status).clone())
                    }
                    _ => None,
                });
            match status.state {
                TaskState::Running => return,
                // An offer that was made before its agent went, and was taken back meanwhile.
                TaskState::Lost if status.reason == Some(Reason::InvalidOffers) => {}
                _ => panic!("{name} does not run: {status:?}"),
            }
        }
    }

    /// Ends only the agent's process by this signal.
    fn end_agent(&mut self, by: &str) {
        self.agent.signal(by);
        self.agent.wait();
    }

    fn start_agent(&mut self) {
        self.agent = Running::start(&mut self.command);
        self.until_registered();
    }

    /// Waits until the agent logs its registration; the master may not have noticed its absence.
    fn until_registered(&self) {
        let port = argument_after(&self.command, "--port");
        let port: u16 = port.parse().expect("a port");
        eventually("the agent to be registered", || {
            let stream = std::net::TcpStream::connect(("127.0.0.1", port)).ok()?;
            let page = get_over(stream, "/metrics/snapshot", "Accept: application/json").ok()?;
            let figures: Value = serde_json::from_str(&page.1).ok()?;
            (figures["slave/registered"] == 1.0).then_some(())
        });
    }

    /// The id of the only agent.
    fn agent_id(&self) -> Value {
        let mut agents = self.cluster.list("agents");
        assert_eq!(agents.len(), 1, "{agents:?}");
        agents.remove(0)["id"].take()
    }

    fn kill(&self, name: &str) {
        let id = TaskId::new(name).expect("an id");
        self.scripted.kill(id);
    }
}

/// The value of a flag.
fn argument_after(command: &Command, flag: &str) -> String {
    let mut arguments = command.get_args().skip_while(|argument| *argument != flag);
    let value = arguments.nth(1).expect("the flag has a value");
    value.to_string_lossy().into_owned()
}

fn sleeper(seconds: u32) -> u32 {
    eventually("the task's process", || sleepers(seconds).first().copied())
}

fn gone(seconds: u32) {
    eventually("the task's process to be gone", || {
        sleepers(seconds).is_empty().then_some(())
    });
}

/// Waits until there is such a file.
fn until_there(path: &Path) -> String {
    format!("while [ ! -e {} ]; do sleep 0.05; done", path.display())
}

#[test]
fn task_survives_agent_restarts_and_is_reported_once() {
    let mut fixture = Fixture::begin(true);
    let id = fixture.agent_id();
    fixture.run("long", "exec sleep 98791");
    let signal_file = fixture.cluster.directory().join("go");
    fixture.run("short", &until_there(&signal_file));
    let process = sleeper(98791);

    fixture.end_agent("KILL");
    assert_eq!(sleepers(98791), [process], "it has not noticed");
    std::fs::write(&signal_file, "").expect("a file");
    fixture.start_agent();
    // The task ended without an agent; the next one reported it.
    let finished = fixture.scripted.state("short", TaskState::Finished);
    assert_eq!(finished.reason, None, "{finished:?}");
    assert_eq!(
        (fixture.agent_id(), sleepers(98791)),
        (id.clone(), vec![process])
    );

    // SIGTERM has the same effect.
    fixture.end_agent("TERM");
    assert_eq!(sleepers(98791), [process], "it has not noticed");
    fixture.start_agent();
    assert_eq!((fixture.agent_id(), sleepers(98791)), (id, vec![process]));
    let tasks = fixture.cluster.list("tasks");
    let running = tasks.iter().find(|task| task["name"] == "long");
    assert_eq!(
        running.expect("it is listed")["state"],
        "TASK_RUNNING",
        "{tasks:?}"
    );

    // It receives messages again, and new tasks run beside it.
    fixture.run("next", "exec sleep 98792");
    fixture.kill("long");
    fixture.scripted.state("long", TaskState::Killed);
    let started = [TaskState::Starting, TaskState::Running];
    let with = |end| [started[0], started[1], end];
    assert_eq!(fixture.scripted.states("long"), with(TaskState::Killed));
    assert_eq!(fixture.scripted.states("short"), with(TaskState::Finished));
    gone(98791);

    // SIGUSR1 removes the agent and ends all its tasks.
    fixture.agent.signal("USR1");
    assert!(fixture.agent.wait().success());
    gone(98792);
    fixture.scripted.wait_for("the end of its task", |callback| {
        matches!(callback, Callback::Status(status) if status.task_id.as_str() == "next" && status.state.is_terminal())
            .then_some(())
    });
}

/// SPEC 5.3: only frameworks that want it.
#[test]
fn task_without_checkpoint_ends_with_its_agent() {
    let mut fixture = Fixture::begin(false);
    let id = fixture.agent_id();
    fixture.run("t", "exec sleep 98793");
    fixture.end_agent("KILL");
    gone(98793);
    fixture.start_agent();
    let status = fixture
        .scripted
        .wait_for("the end of the task", |callback| match callback {
            Callback::Status(status) if status.state.is_terminal() => Some(status.clone()),
            _ => None,
        });
    assert_eq!(status.state, TaskState::Lost, "{status:?}");
    assert_eq!(fixture.agent_id(), id);
}

// Covers 2.5 SUBSCRIBE.
#[test]
fn http_executor_resubscribes_at_the_restarted_agent() {
    let mut fixture = Fixture::begin(true);
    let id = fixture.agent_id();
    let offer = fixture.scripted.offer();
    let executor = executor("e", &offer, CommandInfo::shell(SLEEPER));
    let tasks = ["first", "second"].map(|name| for_executor(name, &offer, &executor));
    fixture.scripted.launch(&offer, tasks.into());
    let client = HttpExecutor::of(&fixture.cluster, "e", Form::Json);
    let mut events = client.subscribe(json!({}));
    let mut launched = Vec::new();
    for _ in 0..2 {
        let launch = events.next().and_then(|event| event.launch);
        launched.push(launch.expect("a task").task);
    }
    let running = client.update("first", "TASK_RUNNING", 1);
    client.send(&running);
    assert_eq!(acknowledged(&mut events), vec![1; 16]);
    fixture.scripted.state("first", TaskState::Running);

    fixture.end_agent("KILL");
    drop(events);
    let agent = Running::start(&mut fixture.command);
    fixture.agent = agent;
    eventually("the agent's port to answer", || {
        std::net::TcpStream::connect(("127.0.0.1", client.port)).ok()
    });
    // It has the first task with an unacknowledged status, and has never received the second.
    let known: Value = serde_json::from_slice(&v1::json::write(&launched[0])).expect("JSON");
    let second = client.update("first", "TASK_RUNNING", 2);
    let mut events = client.subscribe(json!({
        "unacknowledged_tasks": [known],
        "unacknowledged_updates": [running["update"], second["update"]],
    }));
    let next = events.next().expect("the second task");
    assert_eq!(next.r#type, Some(EventType::Launch), "{next:?}");
    let launch = next.launch.as_ref().expect("the second task");
    assert_eq!(launch.task.task_id.value, "second");
    assert_eq!(acknowledged(&mut events), vec![1; 16]);
    assert_eq!(acknowledged(&mut events), vec![2; 16]);
    fixture.until_registered();
    assert_eq!(fixture.agent_id(), id);
    client.send(&client.update("first", "TASK_FINISHED", 3));
    client.send(&client.update("second", "TASK_FINISHED", 4));
    fixture.scripted.state("first", TaskState::Finished);
    fixture.scripted.state("second", TaskState::Finished);
    let expected = [TaskState::Running, TaskState::Running, TaskState::Finished];
    assert_eq!(fixture.scripted.states("first"), expected);
    assert_eq!(fixture.scripted.states("second"), [TaskState::Finished]);
    drop(fixture.scripted);
    events.wait("the order to stop", |event| {
        (event.r#type == Some(EventType::Shutdown)).then_some(())
    });
}

#[test]
fn unrecovered_executors_are_killed_and_dead_ones_reported() {
    let mut fixture = Fixture::begin(true);
    let offer = fixture.scripted.offer();
    let silent = executor("silent", &offer, CommandInfo::shell("exec sleep 98794"));
    let dying = executor("dying", &offer, CommandInfo::shell("exec sleep 98795"));
    let tasks = [
        for_executor("of-silent", &offer, &silent),
        for_executor("of-dying", &offer, &dying),
    ];
    fixture.scripted.launch(&offer, tasks.into());
    let (_, dying) = (sleeper(98794), sleeper(98795));
    fixture.end_agent("KILL");
    signal(dying, "SEGV");
    gone(98795);
    let short = ["--executor_reregistration_timeout", "100ms"];
    let args: Vec<String> = fixture
        .command
        .get_args()
        .map(|arg| arg.to_string_lossy().into_owned())
        .collect();
    let kept = args
        .iter()
        .position(|arg| arg == short[0])
        .expect("the flag");
    let mut command = crate::support::meros(args[..kept].iter().map(String::as_str).chain(short));
    command.env("MEROS_CERTS", fixture.cluster.certs());
    fixture.command = command;
    fixture.start_agent();
    let silent = fixture.scripted.state("of-silent", TaskState::Lost);
    assert_eq!(silent.reason, Some(Reason::ExecutorReregistrationTimeout));
    let dying = fixture.scripted.state("of-dying", TaskState::Failed);
    assert_eq!(dying.reason, Some(Reason::ExecutorTerminated));
    assert_eq!(dying.message, "Executor terminated");
    gone(98794);
}

#[test]
fn cleanup_ends_containers_and_resets_the_agent() {
    let mut fixture = Fixture::begin(true);
    let id = fixture.agent_id();
    fixture.run("t", "exec sleep 98796");
    let process = sleeper(98796);
    fixture.end_agent("KILL");
    // By this policy it refuses to recover with other resources; its error names the next step.
    let mut args: Vec<String> = fixture
        .command
        .get_args()
        .map(|arg| arg.to_string_lossy().into_owned())
        .collect();
    let at = args
        .iter()
        .position(|arg| arg == RESOURCES)
        .expect("its resources");
    args[at] = "cpus:1;mem:256;disk:0;ports:[]".to_owned();
    args.push("--reconfiguration_policy=equal".to_owned());
    let run = |args: &[String]| {
        let mut command = crate::support::meros(args.iter().map(String::as_str));
        command.env("MEROS_CERTS", fixture.cluster.certs());
        command.output_in_time().expect("meros runs")
    };
    let refused = run(&args);
    let words = stderr(&refused);
    assert!(
        !refused.status.success() && words.contains("--recover=cleanup"),
        "{words}"
    );
    assert_eq!(sleepers(98796), [process], "it is not harmed");

    args.push("--recover=cleanup".to_owned());
    let cleaned = run(&args);
    assert!(cleaned.status.success(), "{}", stderr(&cleaned));
    assert_contains!(stdout(&cleaned), "killed 1 executors");
    gone(98796);
    fixture.start_agent();
    eventually("the agent to be another", || {
        let agents = fixture.cluster.list("agents");
        let active = agents.iter().find(|agent| agent["active"] == true)?;
        (active["id"] != id).then_some(())
    });
}

/// SPEC W18. A deactivation stays, too: the agent is the same.
#[test]
fn changed_agent_keeps_its_id_tasks_and_deactivation() {
    let mut fixture = Fixture::begin(true);
    let id = fixture.agent_id();
    fixture.run("t", "exec sleep 98798");
    let process = sleeper(98798);
    let of = id.as_str().expect("an id").to_owned();
    let deactivated = fixture.cluster.output(["maintenance", "deactivate", &of]);
    assert!(deactivated.status.success(), "{}", stderr(&deactivated));
    fixture.end_agent("KILL");
    let smaller = "cpus:0.25;mem:16;disk:0;ports:[]";
    let args = fixture.command.get_args().map(|arg| {
        let arg = arg.to_string_lossy();
        match &*arg {
            RESOURCES => smaller.to_owned(),
            _ => arg.into_owned(),
        }
    });
    let args: Vec<String> = args.chain(["--attributes=rack:b".to_owned()]).collect();
    let mut command = crate::support::meros(args.iter().map(String::as_str));
    command.env("MEROS_CERTS", fixture.cluster.certs());
    fixture.command = command;
    fixture.start_agent();
    assert_eq!(sleepers(98798), [process], "it has not noticed");
    let agents = fixture.cluster.list("agents");
    assert_eq!((agents.len(), &agents[0]["id"]), (1, &id), "{agents:?}");
    assert_eq!(agents[0]["resources"]["cpus"], 0.25, "{agents:?}");
    assert_eq!(agents[0]["deactivated"], true, "{agents:?}");
    fixture.kill("t");
    gone(98798);
    fixture.scripted.state("t", TaskState::Killed);

    // Nothing waits for it, and it stays the same.
    fixture.end_agent("TERM");
    fixture.start_agent();
    let agents = fixture.cluster.list("agents");
    assert_eq!((agents.len(), &agents[0]["id"]), (1, &id), "{agents:?}");
    assert_eq!(agents[0]["deactivated"], true, "{agents:?}");
}

#[test]
fn damaged_ledger_stops_the_start_and_kills_nothing() {
    let mut fixture = Fixture::begin(true);
    fixture.run("t", "exec sleep 98797");
    let process = sleeper(98797);
    fixture.end_agent("KILL");
    let work_dir = argument_after(&fixture.command, "--work_dir");
    let directory = Path::new(&work_dir).join("meta").join("executors");
    let log = directory.join("db");
    let backup = tempfile::tempdir().expect("a directory");
    crate::damage::copy(&directory, backup.path());
    let mut damaged = std::fs::read(&log).expect("it can be read");
    let at = damaged.windows(11).position(|some| some == b"sleep 98797");
    damaged[at.expect("the task")] ^= 1;
    std::fs::write(&log, damaged).expect("it can be written");
    for _ in 0..2 {
        let refused = fixture.command.output_in_time().expect("meros runs");
        assert_eq!(refused.status.code(), Some(1));
        let words = stderr(&refused);
        let last = words.lines().last().unwrap_or_default();
        let directory = directory.display().to_string();
        for wanted in [&*directory, "has lost records", "--strict=false"] {
            assert!(last.contains(wanted), "no `{wanted}` in: {last}");
        }
        assert_eq!(sleepers(98797), [process], "it is not harmed");
    }
    std::fs::remove_dir_all(&directory).expect("it is removed");
    crate::damage::copy(backup.path(), &directory);
    fixture.start_agent();
    assert_eq!(sleepers(98797), [process]);
    fixture.kill("t");
    gone(98797);
}
