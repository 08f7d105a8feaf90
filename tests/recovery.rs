//! Agents that are killed, stopped and started again under running tasks of frameworks with `checkpoint` (SPEC 5.3): the tasks run on, the
//! agent is the same to its master, and nothing is said twice.

use std::path::Path;
use std::process::Command;

use protocol::{CommandInfo, FrameworkInfo, Reason, TaskId, TaskState};
use serde_json::{Value, json};
use v1::Form;
use v1::schema::executor::EventType;

use crate::http_executor::{SLEEPER, Speaker, acknowledged, executor, for_executor};
use crate::in_time::InTime;
use crate::puppet::{Heard, Puppet, framework, task};
use crate::support::{Cluster, Running, eventually, get_over, signal, sleepers, stderr, stdout};

const RESOURCES: &str = "cpus:2;mem:256;disk:0;ports:[]";

/// A master, and an agent that can be started again, with a framework whose tasks outlive it.
struct Story {
    cluster: Cluster,
    command: Command,
    agent: Running,
    puppet: Puppet,
}

impl Story {
    fn begin(checkpoint: bool) -> Self {
        let cluster = Cluster::master_alone(|_, _| ());
        let mut command = cluster.agent_command("agent", RESOURCES);
        command.args(["--executor_reregistration_timeout", "15secs"]);
        let agent = cluster.agent_of(&mut command);
        let info = FrameworkInfo {
            checkpoint,
            ..framework("patron", "*")
        };
        let puppet = Puppet::subscribe(&cluster, info);
        Self {
            cluster,
            command,
            agent,
            puppet,
        }
    }

    /// Runs this shell line as a task, and waits until it runs.
    fn run(&mut self, name: &str, line: &str) {
        loop {
            let offer = self.puppet.standing_offer();
            let task = task(name, &offer, "cpus:0.5;mem:32", line);
            let launched = self.puppet.driver.launch(vec![offer.id], vec![task]);
            launched.expect("the driver hears");
            let heard = self.puppet.hear("how it begins", |heard| match heard {
                Heard::Status(status) if status.task_id.as_str() == name => {
                    (status.state != TaskState::Starting).then(|| (**status).clone())
                }
                _ => None,
            });
            match heard.state {
                TaskState::Running => return,
                // An offer that was made before its agent went, and was taken back meanwhile.
                TaskState::Lost if heard.reason == Some(Reason::InvalidOffers) => {}
                _ => panic!("{name} does not run: {heard:?}"),
            }
        }
    }

    /// Ends the agent's process by this signal, and nothing else.
    fn end_agent(&mut self, by: &str) {
        self.agent.signal(by);
        self.agent.wait();
    }

    fn start_agent(&mut self) {
        self.agent = Running::start(&mut self.command);
        self.until_registered();
    }

    /// Waits until the agent's process says that a master has it; the master itself may not have noticed that it was gone.
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
        let killed = self.puppet.driver.kill(id, None);
        killed.expect("the driver hears");
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

/// SPEC 5.3.
#[test]
fn a_task_runs_on_while_its_agent_is_killed_and_stopped_and_is_told_of_once() {
    let mut story = Story::begin(true);
    let id = story.agent_id();
    story.run("long", "exec sleep 98791");
    let signal_file = story.cluster.directory().join("go");
    story.run("short", &until_there(&signal_file));
    let process = sleeper(98791);

    story.end_agent("KILL");
    assert_eq!(sleepers(98791), [process], "it has not noticed");
    std::fs::write(&signal_file, "").expect("a file");
    story.start_agent();
    // It ended while there was no agent, and said so when there was one.
    let finished = story.puppet.state("short", TaskState::Finished);
    assert_eq!(finished.reason, None, "{finished:?}");
    assert_eq!(
        (story.agent_id(), sleepers(98791)),
        (id.clone(), vec![process])
    );

    // What is stopped politely is no other case.
    story.end_agent("TERM");
    assert_eq!(sleepers(98791), [process], "it has not noticed");
    story.start_agent();
    assert_eq!((story.agent_id(), sleepers(98791)), (id, vec![process]));
    let tasks = story.cluster.list("tasks");
    let running = tasks.iter().find(|task| task["name"] == "long");
    assert_eq!(
        running.expect("it is listed")["state"],
        "TASK_RUNNING",
        "{tasks:?}"
    );

    // It hears again, and new tasks run beside it.
    story.run("next", "exec sleep 98792");
    story.kill("long");
    story.puppet.state("long", TaskState::Killed);
    let started = [TaskState::Starting, TaskState::Running];
    let with = |end| [started[0], started[1], end];
    assert_eq!(story.puppet.states("long"), with(TaskState::Killed));
    assert_eq!(story.puppet.states("short"), with(TaskState::Finished));
    gone(98791);

    // Told to leave, it takes everything with it.
    story.agent.signal("USR1");
    assert!(story.agent.wait().success());
    gone(98792);
    story.puppet.hear("the end of its task", |heard| {
        matches!(heard, Heard::Status(status) if status.task_id.as_str() == "next" && status.state.is_terminal())
            .then_some(())
    });
}

/// SPEC 5.3: only frameworks that want it.
#[test]
fn without_checkpoint_a_task_ends_with_its_agent() {
    let mut story = Story::begin(false);
    let id = story.agent_id();
    story.run("t", "exec sleep 98793");
    story.end_agent("KILL");
    gone(98793);
    story.start_agent();
    let status = story
        .puppet
        .hear("the end of the task", |heard| match heard {
            Heard::Status(status) if status.state.is_terminal() => Some(status.clone()),
            _ => None,
        });
    assert_eq!(status.state, TaskState::Lost, "{status:?}");
    eventually("the agent to be another", || {
        let agents = story.cluster.list("agents");
        let active = agents.iter().find(|agent| agent["active"] == true)?;
        (active["id"] != id).then_some(())
    });
}

/// SPEC 2.5, 5.3.
// Covers 2.5 SUBSCRIBE.
#[test]
fn an_executor_over_http_subscribes_at_the_next_process_of_its_agent_and_nothing_is_doubled() {
    let mut story = Story::begin(true);
    let id = story.agent_id();
    let offer = story.puppet.offer();
    let executor = executor("e", &offer, CommandInfo::shell(SLEEPER));
    let tasks = ["first", "second"].map(|name| for_executor(name, &offer, &executor));
    let launched = story.puppet.driver.launch(vec![offer.id], tasks.into());
    launched.expect("the driver hears");
    let speaker = Speaker::of(&story.cluster, "e", Form::Json);
    let mut events = speaker.subscribe(json!({}));
    let mut told = Vec::new();
    for _ in 0..2 {
        let launch = events.next().and_then(|event| event.launch);
        told.push(launch.expect("a task").task);
    }
    let running = speaker.update("first", "TASK_RUNNING", 1);
    speaker.says(&running);
    assert_eq!(acknowledged(&mut events), vec![1; 16]);
    story.puppet.state("first", TaskState::Running);

    story.end_agent("KILL");
    drop(events);
    let agent = Running::start(&mut story.command);
    story.agent = agent;
    eventually("the agent's port to answer", || {
        std::net::TcpStream::connect(("127.0.0.1", speaker.port)).ok()
    });
    // It has the first task, but nobody confirmed its status as far as it knows; of the second it has never heard.
    let known: Value = serde_json::from_slice(&v1::json::write(&told[0])).expect("JSON");
    let second = speaker.update("first", "TASK_RUNNING", 2);
    let mut events = speaker.subscribe(json!({
        "unacknowledged_tasks": [known],
        "unacknowledged_updates": [running["update"], second["update"]],
    }));
    let next = events.next().expect("the second task");
    assert_eq!(next.r#type, Some(EventType::Launch), "{next:?}");
    let launch = next.launch.as_ref().expect("the second task");
    assert_eq!(launch.task.task_id.value, "second");
    assert_eq!(acknowledged(&mut events), vec![1; 16]);
    assert_eq!(acknowledged(&mut events), vec![2; 16]);
    story.until_registered();
    assert_eq!(story.agent_id(), id);
    speaker.says(&speaker.update("first", "TASK_FINISHED", 3));
    speaker.says(&speaker.update("second", "TASK_FINISHED", 4));
    story.puppet.state("first", TaskState::Finished);
    story.puppet.state("second", TaskState::Finished);
    let expected = [TaskState::Running, TaskState::Running, TaskState::Finished];
    assert_eq!(story.puppet.states("first"), expected);
    assert_eq!(story.puppet.states("second"), [TaskState::Finished]);
    drop(story.puppet);
    events.wait("the order to stop", |event| {
        (event.r#type == Some(EventType::Shutdown)).then_some(())
    });
}

/// SPEC 5.3.
#[test]
fn an_executor_that_does_not_subscribe_again_is_killed_and_one_that_died_is_told_as_it_did() {
    let mut story = Story::begin(true);
    let offer = story.puppet.offer();
    let silent = executor("silent", &offer, CommandInfo::shell("exec sleep 98794"));
    let dying = executor("dying", &offer, CommandInfo::shell("exec sleep 98795"));
    let tasks = [
        for_executor("of-silent", &offer, &silent),
        for_executor("of-dying", &offer, &dying),
    ];
    let launched = story.puppet.driver.launch(vec![offer.id], tasks.into());
    launched.expect("the driver hears");
    let (_, dying) = (sleeper(98794), sleeper(98795));
    story.end_agent("KILL");
    signal(dying, "SEGV");
    gone(98795);
    let short = ["--executor_reregistration_timeout", "100ms"];
    let args: Vec<String> = story
        .command
        .get_args()
        .map(|arg| arg.to_string_lossy().into_owned())
        .collect();
    let kept = args
        .iter()
        .position(|arg| arg == short[0])
        .expect("the flag");
    let mut command = crate::support::meros(args[..kept].iter().map(String::as_str).chain(short));
    command.env("MEROS_CERTS", story.cluster.certs());
    story.command = command;
    story.start_agent();
    let silent = story.puppet.state("of-silent", TaskState::Lost);
    assert_eq!(silent.reason, Some(Reason::ExecutorReregistrationTimeout));
    let dying = story.puppet.state("of-dying", TaskState::Failed);
    assert_eq!(dying.reason, Some(Reason::ExecutorTerminated));
    assert!(dying.message.contains("signal"), "{}", dying.message);
    gone(98794);
}

/// SPEC 5.3, 5.10.
#[test]
fn cleaning_up_ends_what_runs_and_the_agent_begins_anew() {
    let mut story = Story::begin(true);
    let id = story.agent_id();
    story.run("t", "exec sleep 98796");
    let process = sleeper(98796);
    story.end_agent("KILL");
    // Described otherwise it does not take over what runs, and says what to do.
    let mut args: Vec<String> = story
        .command
        .get_args()
        .map(|arg| arg.to_string_lossy().into_owned())
        .collect();
    let at = args
        .iter()
        .position(|arg| arg == RESOURCES)
        .expect("its resources");
    args[at] = "cpus:1;mem:256;disk:0;ports:[]".to_owned();
    let run = |args: &[String]| {
        let mut command = crate::support::meros(args.iter().map(String::as_str));
        command.env("MEROS_CERTS", story.cluster.certs());
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
    assert!(
        stdout(&cleaned).contains("killed 1 executors"),
        "{}",
        stdout(&cleaned)
    );
    gone(98796);
    story.start_agent();
    eventually("the agent to be another", || {
        let agents = story.cluster.list("agents");
        let active = agents.iter().find(|agent| agent["active"] == true)?;
        (active["id"] != id).then_some(())
    });
}

#[test]
fn damaged_ledger_stops_the_start_and_kills_nothing() {
    let mut story = Story::begin(true);
    story.run("t", "exec sleep 98797");
    let process = sleeper(98797);
    story.end_agent("KILL");
    let work_dir = argument_after(&story.command, "--work_dir");
    let directory = Path::new(&work_dir).join("meta").join("executors");
    let log = directory.join("db");
    let backup = tempfile::tempdir().expect("a directory");
    crate::damage::copy(&directory, backup.path());
    let mut damaged = std::fs::read(&log).expect("it can be read");
    let at = damaged.windows(11).position(|some| some == b"sleep 98797");
    damaged[at.expect("the task")] ^= 1;
    std::fs::write(&log, damaged).expect("it can be written");
    for _ in 0..2 {
        let refused = story.command.output_in_time().expect("meros runs");
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
    story.start_agent();
    assert_eq!(sleepers(98797), [process]);
    story.kill("t");
    gone(98797);
}
