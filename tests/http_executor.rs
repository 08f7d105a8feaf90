//! Executors that use the v1 executor API over HTTP (SPEC 2.5): the example executor, and others
//! whose process sleeps while the test makes their calls.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::Path;

use protocol::{CommandInfo, ExecutorId, ExecutorInfo, FrameworkInfo, Offer, TaskInfo, TaskState};
use serde_json::{Value, json};
use testkit::http::{Answer, Endpoint, Events};
use v1::schema::executor::{Call, Event, EventType};
use v1::{Form, Limits};

use crate::door::Company;
use crate::scripted_framework::{Callback, ScriptedFramework, framework, task};
use crate::support::{Cluster, PATIENCE, eventually, example, header};

const RESOURCES: &str = "cpus:2;mem:256;disk:0;ports:[]";
/// Writes its environment into the sandbox, in one step, and lives until it is killed.
pub const SLEEPER: &str = "env > unfinished; mv unfinished environment; exec sleep 86413";

// Covers 2.5 SUBSCRIBED, LAUNCH, KILL, ACKNOWLEDGED, MESSAGE, ERROR, SHUTDOWN, HEARTBEAT.
#[test]
fn example_http_executor_runs_two_tasks_and_answers() {
    let cluster = Cluster::start(1, RESOURCES);
    let mut scripted = ScriptedFramework::subscribe(&cluster, framework("patron", "*"));
    let offer = scripted.offer();
    let program = example("http_executor").to_string_lossy().into_owned();
    let executor = executor("poet", &offer, CommandInfo::program(program, []));
    let tasks = ["first", "second"].map(|name| for_executor(name, &offer, &executor));
    scripted.launch(&offer, tasks.into());
    for name in ["first", "second"] {
        scripted.state(name, TaskState::Finished);
        assert_eq!(
            scripted.states(name),
            [TaskState::Running, TaskState::Finished]
        );
    }
    let sent = scripted.driver.message(
        offer.agent_id.clone(),
        executor.executor_id.clone(),
        b"hello".to_vec(),
    );
    sent.expect("the driver hears");
    let greeting = scripted.wait_for("what it says", |callback| match callback {
        Callback::Message(_, data) => Some(data.clone()),
        _ => None,
    });
    assert_eq!(greeting, b"hello");
    drop(scripted);
    eventually("the executor to have ended with its framework", || {
        let agent = cluster.list("agents").remove(0);
        (agent["used_resources"]["cpus"].as_f64() == Some(0.0)).then_some(())
    });
}

/// SPEC 2.5, W32.
// Covers W32.
#[test]
fn executor_is_informed_of_an_https_only_agent() {
    let cluster = Cluster::master_alone(|_, _| ());
    Company::new("own").keep(cluster.directory());
    let agent = |name: &str, flags: &[&str]| {
        let mut command = cluster.agent_command(name, RESOURCES);
        for (flag, file) in [
            ("--http_certificate", "service.pem"),
            ("--http_key", "service.key"),
        ] {
            command.arg(flag).arg(cluster.directory().join(file));
        }
        cluster.agent_of(command.args(flags))
    };
    let _agents = [agent("private", &[]), agent("both", &["--http_plain"])];
    let mut scripted = ScriptedFramework::subscribe(&cluster, framework("patron", "*"));
    let mut reported = BTreeSet::new();
    while reported.len() < 2 {
        for offer in scripted.offers() {
            let name = offer.agent_id.as_str();
            let executor = executor(name, &offer, CommandInfo::shell(SLEEPER));
            let task = for_executor(name, &offer, &executor);
            scripted.launch(&offer, vec![task]);
            let environment = HttpExecutor::of(&cluster, name, Form::Json).environment;
            let of = |key: &str| environment.get(key).cloned().unwrap_or_default();
            let is_private = of("MESOS_DIRECTORY").contains("/private/");
            let scheme = (of("MEROS_AGENT_SCHEME"), of("LIBPROCESS_SSL_ENABLED"));
            let words = |scheme: &str, ssl: &str| (scheme.to_owned(), ssl.to_owned());
            match is_private {
                true => assert_eq!(scheme, words("https", "true")),
                false => assert_eq!(scheme, words("http", "")),
            }
            reported.insert(is_private);
        }
    }
}

/// SPEC 2.1, 2.5, 3.7.
// Covers 2.5 SUBSCRIBE; 2.1 401, 403.
#[test]
fn executor_calls_require_the_executors_own_token() {
    let flags = ["--resources", RESOURCES, "--authenticate_http_executors"];
    let cluster = Cluster::with(1, &flags);
    let mut scripted = ScriptedFramework::subscribe(&cluster, framework("patron", "*"));
    let offer = scripted.offer();
    let tasks = ["one", "other"].map(|name| {
        let executor = executor(name, &offer, CommandInfo::shell(SLEEPER));
        for_executor(&format!("task-{name}"), &offer, &executor)
    });
    scripted.launch(&offer, tasks.into());
    let one = HttpExecutor::of(&cluster, "one", Form::Protobuf);
    let other = HttpExecutor::of(&cluster, "other", Form::Json);

    let running = one.update("task-one", "TASK_RUNNING", 1);
    let check = |answer: Answer, status: u16, words: &str| {
        assert_eq!(answer.status, status, "{}: {words}", answer.text());
        assert!(answer.text().contains(words), "{}: {words}", answer.text());
    };
    check(one.answer(&running), 403, "Executor is not subscribed");
    let mut events = one.subscribe(json!({}));
    let launch = events.next().expect("a task");
    assert_eq!(launch.r#type, Some(EventType::Launch));

    let bare = Endpoint::new(one.port, PATH);
    let answer = bare.call(&call(&running));
    assert_eq!(
        header(&answer.head, "www-authenticate").as_deref(),
        Some("Bearer realm=\"mesos-agent-executor\"")
    );
    check(answer, 401, "MESOS_EXECUTOR_AUTHENTICATION_TOKEN");
    for wrong in ["Bearer nonsense", "Bearer a.b", "Basic b25lOm90aGVy", ""] {
        let answer = bare.clone().header("Authorization", wrong);
        check(
            answer.call(&call(&running)),
            401,
            "MESOS_EXECUTOR_AUTHENTICATION_TOKEN",
        );
    }
    check(other.endpoint().call(&call(&running)), 403, "another");
    let mut stolen = running.clone();
    stolen["framework_id"]["value"] = "nobody".into();
    check(one.answer(&stolen), 403, "framework_id `nobody`");

    let mut without_uuid = running.clone();
    without_uuid["update"]["status"]["uuid"].take();
    check(
        one.answer(&without_uuid),
        400,
        "Expecting 'uuid' to be present",
    );
    let staging = one.update("task-one", "TASK_STAGING", 2);
    check(
        one.answer(&staging),
        400,
        "Received TASK_STAGING from executor one",
    );
    for (kind, body, status) in [
        ("application/json", "{", 400),
        ("application/x-protobuf", "\u{7f}\u{7f}", 400),
        (
            "application/json",
            "{\"executor_id\":{\"value\":\"one\"}}",
            400,
        ),
        ("text/plain", "hello", 415),
    ] {
        let answer = one.endpoint().post(kind, body.as_bytes());
        assert_eq!(answer.status, status, "{kind} {body}: {}", answer.text());
    }
    assert_eq!(bare.get().status, 401);
    assert_eq!(one.endpoint().get().status, 405);
    let mut cut = std::net::TcpStream::connect(("127.0.0.1", one.port)).expect("a connection");
    let head = format!("POST {PATH} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{{");
    cut.write_all(head.as_bytes()).expect("it is taken");
    drop(cut);

    // None of these calls had an effect.
    assert_eq!(scripted.states("task-one"), []);
    one.send(&running);
    assert_eq!(acknowledged(&mut events), vec![1; 16]);
    let mut finished = one.update("task-one", "TASK_FINISHED", 2);
    let check = json!({ "type": "COMMAND", "command": { "exit_code": 3 } });
    let bridge = json!([{ "name": "bridge" }]);
    let json = &mut finished["update"]["status"];
    json["check_status"] = check.clone();
    json["container_status"] = json!({ "network_infos": bridge });
    one.send(&finished);
    let status = scripted.state("task-one", TaskState::Finished);
    let reported = v1::json::write(&v1::schema::TaskStatus::from(&status));
    let reported: Value = serde_json::from_slice(&reported).expect("JSON");
    assert_eq!(reported["check_status"], check);
    assert_eq!(reported["container_status"]["network_infos"], bridge);
    let id = status.container_id.map(|id| id.to_string());
    assert_eq!(
        reported["container_status"]["container_id"]["value"].as_str(),
        id.as_deref()
    );
    assert_eq!(
        scripted.states("task-one"),
        [TaskState::Running, TaskState::Finished]
    );
    assert_eq!(
        status.executor_id.map(|id| id.to_string()).as_deref(),
        Some("one")
    );
}

/// SPEC 2.5, 5.3, 5.4.
// Covers 2.5 SUBSCRIBE.
#[test]
fn executor_resubscribes_without_duplicate_updates() {
    let cluster = Cluster::start(1, RESOURCES);
    let info = FrameworkInfo {
        checkpoint: true,
        ..framework("patron", "*")
    };
    let mut scripted = ScriptedFramework::subscribe(&cluster, info);
    let offer = scripted.offer();
    let executor = executor("e", &offer, CommandInfo::shell(SLEEPER));
    let first = for_executor("first", &offer, &executor);
    scripted.launch(&offer, vec![first]);
    let client = HttpExecutor::of(&cluster, "e", Form::Json);
    assert_eq!(client.environment["MESOS_CHECKPOINT"], "1");
    assert_eq!(client.environment["MESOS_RECOVERY_TIMEOUT"], "15mins");
    let mut events = client.subscribe(json!({}));
    let launch = events.next().and_then(|event| event.launch);
    let reported = launch.expect("a task").task;
    let running = client.update("first", "TASK_RUNNING", 1);
    client.send(&running);
    assert_eq!(acknowledged(&mut events), vec![1; 16]);
    scripted.state("first", TaskState::Running);
    drop(events);

    // While it is away a task comes for it, and another is to end.
    let offer = scripted.offer();
    let second = for_executor("second", &offer, &executor);
    scripted.launch(&offer, vec![second]);
    scripted.kill(protocol::TaskId::new("first").expect("an id"));
    eventually("the agent to have the second task", || {
        let (_, state) = crate::support::get(client.port, "/state");
        state.contains("second").then_some(())
    });
    let known: Value = serde_json::from_slice(&v1::json::write(&reported)).expect("JSON");
    let again = json!({
        "unacknowledged_tasks": [known],
        "unacknowledged_updates": [running["update"]],
    });
    let mut events = client.subscribe(again.clone());
    let next = events.next().expect("a task");
    let launch = next.launch.as_ref().expect("the second task");
    assert_eq!(launch.task.task_id.value, "second", "{next:?}");
    let next = events.next().expect("a kill");
    let kill = next.kill.as_ref().expect("the first task's kill");
    assert_eq!(kill.task_id.value, "first", "{next:?}");
    assert_eq!(
        acknowledged(&mut events),
        vec![1; 16],
        "what is known is confirmed"
    );

    let mut newest = client.subscribe(again);
    assert_eq!(events.next(), None, "the newest stream wins");
    client.send(&client.update("first", "TASK_KILLED", 2));
    client.send(&client.update("second", "TASK_FINISHED", 3));
    scripted.state("first", TaskState::Killed);
    scripted.state("second", TaskState::Finished);
    assert_eq!(
        scripted.states("first"),
        [TaskState::Running, TaskState::Killed]
    );
    drop(scripted);
    newest.wait("the order to stop", |event| {
        (event.r#type == Some(EventType::Shutdown)).then_some(())
    });
}

/// Executors of Mesos without tokens are accepted unless the operator requires tokens.
#[test]
fn token_is_optional_without_authentication_but_checked() {
    let cluster = Cluster::start(1, RESOURCES);
    let mut scripted = ScriptedFramework::subscribe(&cluster, framework("patron", "*"));
    let offer = scripted.offer();
    let executor = executor("e", &offer, CommandInfo::shell(SLEEPER));
    let only = for_executor("only", &offer, &executor);
    scripted.launch(&offer, vec![only]);
    let client = HttpExecutor::of(&cluster, "e", Form::Json);
    let bare = Endpoint::new(client.port, PATH);
    let subscribe = client.message("SUBSCRIBE", json!({"subscribe": {}}));
    let refused = bare.clone().header("Authorization", "Bearer a.b");
    assert_eq!(refused.call(&call(&subscribe)).status, 401);
    let events = bare.stream::<Event>(&call(&subscribe));
    let Ok(mut events) = events else {
        panic!("it is not subscribed");
    };
    assert_eq!(
        events.next().and_then(|event| event.r#type),
        Some(EventType::Subscribed)
    );
    let finished = client.update("only", "TASK_FINISHED", 1);
    assert_eq!(bare.call(&call(&finished)).status, 202);
    scripted.state("only", TaskState::Finished);
}

/// Under the name that tools of Mesos use too.
const PATH: &str = "/slave(1)/api/v1/executor";

/// The mouth of an executor whose process sleeps.
pub struct HttpExecutor {
    pub port: u16,
    form: Form,
    pub environment: BTreeMap<String, String>,
}

impl HttpExecutor {
    /// Waits until the executor of this name runs, and reads its environment.
    pub fn of(cluster: &Cluster, executor: &str, form: Form) -> Self {
        let wanted = format!("executors/{executor}/runs");
        let text = eventually("the executor's environment", || {
            find(cluster.directory(), &wanted, "environment")
        });
        let pairs = text.lines().filter_map(|line| line.split_once('='));
        let environment: BTreeMap<String, String> = pairs
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        let (_, port) = environment["MESOS_AGENT_ENDPOINT"]
            .rsplit_once(':')
            .expect("a port");
        Self {
            port: port.parse().expect("a port"),
            form,
            environment,
        }
    }

    fn endpoint(&self) -> Endpoint {
        let token = &self.environment["MESOS_EXECUTOR_AUTHENTICATION_TOKEN"];
        Endpoint::new(self.port, PATH)
            .form(self.form)
            .header("Authorization", &format!("Bearer {token}"))
    }

    fn message(&self, kind: &str, mut json: Value) -> Value {
        json["type"] = kind.into();
        json["framework_id"] = json!({"value": self.environment["MESOS_FRAMEWORK_ID"]});
        json["executor_id"] = json!({"value": self.environment["MESOS_EXECUTOR_ID"]});
        json
    }

    /// A status of a task, named by this number sixteen times.
    pub fn update(&self, task: &str, state: &str, number: u8) -> Value {
        let bytes = bytes::Bytes::from(vec![number; 16]);
        let uuid = v1::json::write(&v1::schema::executor::CallMessage { data: bytes });
        let uuid: Value = serde_json::from_slice(&uuid).expect("JSON");
        let status = json!({
            "task_id": {"value": task},
            "state": state,
            "source": "SOURCE_EXECUTOR",
            "uuid": uuid["data"],
        });
        self.message("UPDATE", json!({"update": {"status": status}}))
    }

    pub fn answer(&self, json: &Value) -> Answer {
        self.endpoint().call(&call(json))
    }

    pub fn send(&self, json: &Value) {
        let answer = self.answer(json);
        assert_eq!((answer.status, answer.text().as_str()), (202, ""), "{json}");
    }

    /// Subscribes and waits for the answer.
    pub fn subscribe(&self, what: Value) -> Events<Event> {
        let json = self.message("SUBSCRIBE", json!({"subscribe": what}));
        let events = self.endpoint().stream::<Event>(&call(&json));
        let mut events = events.unwrap_or_else(|answer| panic!("{}", answer.text()));
        assert_eq!(
            events.header("content-type").as_deref(),
            Some(self.form.media_type())
        );
        let first = events.next().expect("an event");
        let subscribed = first.subscribed.expect("that it is subscribed");
        let executor = &self.environment["MESOS_EXECUTOR_ID"];
        assert_eq!(&subscribed.executor_info.executor_id.value, executor);
        let framework = subscribed.framework_info.id.expect("its framework's id");
        assert_eq!(framework.value, self.environment["MESOS_FRAMEWORK_ID"]);
        events
    }
}

/// The number of the status that is acknowledged next.
pub fn acknowledged(events: &mut Events<Event>) -> Vec<u8> {
    let event = events.next().expect("an event");
    let acknowledged = event.acknowledged.as_ref();
    let acknowledged = acknowledged.unwrap_or_else(|| panic!("{event:?}"));
    acknowledged.uuid.to_vec()
}

fn call(json: &Value) -> Call {
    let read = Form::Json.read(json.to_string().as_bytes(), Limits::default());
    read.unwrap_or_else(|bad| panic!("{bad}: {json}"))
}

/// What is in the first file of this name in a directory whose path contains `within`.
fn find(directory: &Path, within: &str, name: &str) -> Option<String> {
    let entries = std::fs::read_dir(directory).ok()?.flatten();
    entries.into_iter().find_map(|entry| {
        let path = entry.path();
        let is_there = path.to_string_lossy().contains(within);
        match entry.file_type().ok()?.is_dir() {
            true => find(&path, within, name),
            false if is_there && entry.file_name() == name => std::fs::read_to_string(path).ok(),
            false => None,
        }
    })
}

pub fn executor(name: &str, offer: &Offer, command: CommandInfo) -> ExecutorInfo {
    ExecutorInfo {
        name: name.to_owned(),
        shutdown_grace_period: Some(PATIENCE),
        ..ExecutorInfo::new(
            ExecutorId::new(name).expect("an id"),
            command,
            task("any", offer, "cpus:0.1;mem:16", "").resources,
        )
    }
}

pub fn for_executor(name: &str, offer: &Offer, executor: &ExecutorInfo) -> TaskInfo {
    TaskInfo {
        command: None,
        executor: Some(executor.clone()),
        ..task(name, offer, "cpus:0.5;mem:16", "")
    }
}
