//! Frameworks that use the v1 scheduler API over HTTP (SPEC 2.1-2.3, 3.3, 3.13).

use std::io::Write;
use std::net::TcpStream;

use serde_json::{Value, json};
use testkit::http::{Answer, Endpoint, Events};
use testkit::{assert_starts, rows};
use v1::schema::scheduler::{Call, Event, EventType};
use v1::{Form, Limits, Message};

use crate::group::Group;
use crate::in_time::InTime;
use crate::support::{Cluster, eventually, get_with, header, page};

const PATH: &str = "/api/v1/scheduler";
const OTHER_TYPE: &str = "Expecting 'Content-Type' of application/json or application/x-protobuf";

/// A call from JSON.
fn call(json: &Value) -> Call {
    let read = Form::Json.read(json.to_string().as_bytes(), Limits::default());
    read.unwrap_or_else(|bad: v1::Invalid| panic!("{bad}: {json}"))
}

/// A subscribed framework.
pub struct Scheduler {
    pub id: String,
    pub events: Events<Event>,
    calls: Endpoint,
}

impl Scheduler {
    pub fn subscribe(port: u16, form: Form, framework: Value) -> Self {
        match Self::try_subscribe(port, form, framework) {
            Ok(scheduler) => scheduler,
            Err(answer) => panic!("{} {}", answer.status, answer.text()),
        }
    }

    fn try_subscribe(port: u16, form: Form, framework: Value) -> Result<Self, Answer> {
        let endpoint = Endpoint::new(port, PATH).form(form);
        let mut subscribe =
            json!({"type": "SUBSCRIBE", "subscribe": {"framework_info": framework}});
        if let Some(id) = framework.get("id") {
            subscribe["framework_id"] = id.clone();
        }
        let mut events: Events<Event> = endpoint.stream(&call(&subscribe))?;
        let stream_id = events.header("mesos-stream-id").expect("a stream id");
        let first = events.next().expect("a first event");
        assert_eq!(first.r#type, Some(EventType::Subscribed), "{first:?}");
        let subscribed = first.subscribed.expect("what it says");
        assert_eq!(subscribed.heartbeat_interval_seconds, Some(15.0));
        let master = subscribed.master_info.expect("who took it");
        assert_eq!(master.port, u32::from(port));
        Ok(Self {
            id: subscribed.framework_id.value,
            events,
            calls: endpoint.header("Mesos-Stream-Id", &stream_id),
        })
    }

    /// Sends a call and returns the answer.
    fn call(&self, mut json: Value) -> Answer {
        json["framework_id"] = json!({"value": self.id});
        self.calls.call(&call(&json))
    }

    /// Sends a call that must be accepted.
    pub fn send(&self, json: Value) {
        let answer = self.call(json.clone());
        assert_eq!(answer.status, 202, "{json}: {}", answer.text());
        assert_eq!(answer.text(), "");
    }

    /// The next offer.
    pub fn offer(&mut self) -> Offered {
        self.events.wait("an offer", |event| {
            let offer = event.offers.as_ref()?.offers.first()?;
            Some(Offered(value(offer)))
        })
    }

    /// The next status of a task, acknowledged if required: state, reason and message.
    fn status(&mut self) -> (String, String, String) {
        let status = self.events.wait("a status", |event| {
            let update = event.update.as_ref()?;
            Some(value(&update.status))
        });
        self.acknowledge(&status);
        let text = |key: &str| status[key].as_str().unwrap_or_default().to_owned();
        (text("state"), text("reason"), text("message"))
    }

    pub fn acknowledge(&self, status: &Value) {
        if let Some(uuid) = status.get("uuid") {
            self.send(json!({"type": "ACKNOWLEDGE", "acknowledge": {
                "agent_id": status["agent_id"], "task_id": status["task_id"], "uuid": uuid,
            }}));
        }
    }

    /// The states of a task up to this one.
    pub fn until(&mut self, state: &str) -> Vec<String> {
        let mut states = Vec::new();
        while states.last().is_none_or(|last| last != state) {
            let (state, reason, message) = self.status();
            assert!(states.len() < 10, "{states:?} {state} {reason} {message}");
            states.push(state);
        }
        states
    }
}

/// A message as JSON.
pub fn value(message: &dyn Message) -> Value {
    serde_json::from_slice(&v1::json::write(message)).expect("JSON")
}

/// An offer as JSON.
pub struct Offered(pub Value);

impl Offered {
    fn accept(&self, operations: Value) -> Value {
        json!({"type": "ACCEPT", "accept": {"offer_ids": [self.0["id"]], "operations": operations}})
    }

    pub fn launch(&self, tasks: &[Value]) -> Value {
        self.accept(json!([{"type": "LAUNCH", "launch": {"task_infos": tasks}}]))
    }

    /// A task of this shell line.
    pub fn task(&self, id: &str, line: &str) -> Value {
        json!({
            "name": id,
            "task_id": {"value": id},
            "agent_id": self.0["agent_id"],
            "resources": resources(0.5, 32.0),
            "command": {"value": line},
        })
    }
}

fn resources(cpus: f64, mem: f64) -> Value {
    json!([
        {"name": "cpus", "type": "SCALAR", "scalar": {"value": cpus}},
        {"name": "mem", "type": "SCALAR", "scalar": {"value": mem}},
    ])
}

/// A framework of the user that runs the tests.
pub fn framework(name: &str) -> Value {
    json!({"user": user(), "name": name})
}

fn user() -> String {
    let output = std::process::Command::new("id").arg("-un").output_in_time();
    String::from_utf8(output.expect("id runs").stdout)
        .expect("a name")
        .trim()
        .to_owned()
}

/// SPEC 2.2, 2.3 and 3.13: the flow of a launch, in either form.
// Covers 2.3 OFFERS, RESCIND; 2.3 UPDATE, UPDATE_OPERATION_STATUS; 3.13 Launch.
#[test]
fn task_runs_to_its_end_in_json_and_protobuf() {
    let cluster = Cluster::start(1, "cpus:2;mem:256");
    for form in [Form::Json, Form::Protobuf] {
        let mut scheduler = Scheduler::subscribe(cluster.port, form, framework("web"));
        let kind = scheduler.events.header("content-type");
        assert_eq!(kind.as_deref(), Some(form.media_type()));
        let offer = scheduler.offer();
        // A framework with one role reads resources as Mesos had them first.
        assert_eq!(offer.0.get("allocation_info"), None, "{}", offer.0);
        scheduler.send(offer.launch(&[offer.task("t", "exit 0")]));
        let states = scheduler.until("TASK_FINISHED");
        assert_eq!(states, ["TASK_STARTING", "TASK_RUNNING", "TASK_FINISHED"]);
        scheduler.send(json!({"type": "TEARDOWN"}));
        // The stream ends without an error.
        for event in scheduler.events.by_ref() {
            assert_ne!(event.r#type, Some(EventType::Error), "{event:?}");
        }
    }
    eventually("both are over", || {
        let page = page(cluster.port, "/frameworks");
        (page["completed_frameworks"].as_array()?.len() == 2).then_some(())
    });
}

/// Reconciliation by id, of all tasks, and of an unknown task; then a kill.
// Covers 2.2 KILL; 2.2 RECONCILE.
#[test]
fn task_is_reconciled_and_killed() {
    let cluster = Cluster::start(1, "cpus:2;mem:256");
    let mut scheduler = Scheduler::subscribe(cluster.port, Form::Json, framework("web"));
    let offer = scheduler.offer();
    scheduler.send(offer.launch(&[offer.task("t", "exec sleep 1000")]));
    scheduler.until("TASK_RUNNING");
    let asked = |tasks: Value| json!({"type": "RECONCILE", "reconcile": {"tasks": tasks}});
    let agent = &offer.0["agent_id"];
    for tasks in [json!([{"task_id": {"value": "t"}}]), json!([])] {
        scheduler.send(asked(tasks.clone()));
        let (state, reason, _) = scheduler.status();
        assert_eq!(
            (&*state, &*reason),
            ("TASK_RUNNING", "REASON_RECONCILIATION"),
            "{tasks}"
        );
    }
    scheduler.send(asked(
        json!([{"task_id": {"value": "never"}, "agent_id": agent}]),
    ));
    let (state, reason, _) = scheduler.status();
    assert_eq!((&*state, &*reason), ("TASK_LOST", "REASON_RECONCILIATION"));
    scheduler.send(json!({"type": "KILL", "kill": {"task_id": {"value": "t"}}}));
    scheduler.until("TASK_KILLED");
}

/// A task whose command is fetched, and one whose URI has a scheme that is not.
#[test]
fn command_is_fetched_before_it_starts() {
    let cluster = Cluster::start(1, "cpus:2;mem:256");
    let mut scheduler = Scheduler::subscribe(cluster.port, Form::Protobuf, framework("web"));
    let script = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(script.path(), "#!/bin/sh\nexit 0\n").expect("it is written");
    let offer = scheduler.offer();
    let task = |id: &str, uri: &str| {
        let mut task = offer.task(id, "./run");
        task["command"]["uris"] = json!([
            {"value": uri, "executable": true, "output_file": "run"},
        ]);
        task
    };
    let path = script.path().to_str().expect("UTF-8");
    scheduler.send(offer.launch(&[task("good", path), task("bad", "hdfs://files/run")]));
    let mut states = Vec::new();
    let ends = ["TASK_ERROR", "TASK_FINISHED"];
    while !ends
        .iter()
        .all(|end| states.iter().any(|state| state == end))
    {
        let (state, reason, message) = scheduler.status();
        assert_ne!(state, "TASK_FAILED", "{reason} {message}");
        states.push(state);
    }
}

/// SPEC 5.4, 5.12: results go to the framework and to pages; an incomplete check is refused.
// Covers 5.4 Health checks: results, in part: commands.
#[test]
fn checked_task_reports_its_health() {
    let cluster = Cluster::start(1, "cpus:2;mem:256");
    let mut scheduler = Scheduler::subscribe(cluster.port, Form::Json, framework("web"));
    let offer = scheduler.offer();
    let mut task = offer.task("t", "exec sleep 1000");
    task["health_check"] = json!({
        "type": "COMMAND", "command": {"value": "exit 0"}, "delay_seconds": 0,
    });
    task["check"] = json!({
        "type": "COMMAND", "command": {"command": {"value": "exit 3"}}, "delay_seconds": 0,
    });
    let mut bad = offer.task("bad", "true");
    bad["health_check"] = json!({"type": "TCP"});
    scheduler.send(offer.launch(&[task, bad]));
    let (state, _, message) = scheduler.status();
    let words = "Task uses invalid health check: Expecting 'tcp' to be set for TCP health check";
    assert_eq!((&*state, &*message), ("TASK_ERROR", words));
    let updates = (0..4).map(|_| scheduler.status());
    let updates: Vec<_> = updates
        .map(|(state, reason, _)| format!("{state} {reason}"))
        .collect();
    assert_eq!(updates[..2], ["TASK_STARTING ", "TASK_RUNNING "]);
    for reason in ["TASK_HEALTH_CHECK", "TASK_CHECK"] {
        let expected = format!("TASK_RUNNING REASON_{reason}_STATUS_UPDATED");
        assert!(updates.contains(&expected), "{updates:?}");
    }
    let page = page(cluster.port, "/tasks");
    let task = page["tasks"].as_array().expect("tasks");
    let task = task
        .iter()
        .find(|task| task["id"] == "t")
        .expect("the task");
    assert_eq!(task["health_check"]["type"], "COMMAND");
    let newest = task["statuses"].as_array().and_then(|all| all.last());
    let newest = newest.expect("a status");
    assert_eq!(newest["healthy"], true);
    assert_eq!(newest["check_status"]["command"]["exit_code"], 3);
    scheduler.send(json!({"type": "KILL", "kill": {"task_id": {"value": "t"}}}));
    scheduler.until("TASK_KILLED");
}

/// A filter of a year and a suppression end with the next REVIVE.
// Covers 2.2 DECLINE; 2.2 REVIVE, SUPPRESS.
#[test]
fn revive_ends_filters_and_suppression() {
    let cluster = Cluster::start(1, "cpus:2;mem:256");
    let mut scheduler = Scheduler::subscribe(cluster.port, Form::Protobuf, framework("web"));
    let mut seen = Vec::new();
    for suppress in [false, true, false] {
        let offer = scheduler.offer();
        assert!(!seen.contains(&offer.0["id"]), "{seen:?}");
        if suppress {
            scheduler.send(json!({"type": "SUPPRESS"}));
        }
        scheduler.send(json!({"type": "DECLINE", "decline": {
            "offer_ids": [offer.0["id"]], "filters": {"refuse_seconds": 31_536_000.0},
        }}));
        scheduler.send(json!({"type": "REVIVE"}));
        seen.push(offer.0["id"].clone());
    }
}

/// SPEC 2.2 SUBSCRIBE, 3.13: the newest subscription counts, and the tasks know nothing of it.
// Covers 2.2 SUBSCRIBE; 3.13 Scheduler failover.
#[test]
fn resubscription_keeps_tasks_and_closes_the_old_stream() {
    let cluster = Cluster::start(1, "cpus:2;mem:256");
    let mut lasting = framework("web");
    lasting["failover_timeout"] = json!(3600.0);
    let mut first = Scheduler::subscribe(cluster.port, Form::Json, lasting.clone());
    let offer = first.offer();
    first.send(offer.launch(&[offer.task("t", "exec sleep 1000")]));
    first.until("TASK_RUNNING");

    lasting["id"] = json!({"value": first.id});
    let second = Scheduler::subscribe(cluster.port, Form::Protobuf, lasting.clone());
    assert_eq!(second.id, first.id);
    let error = first.events.wait("an error", |event| event.error.clone());
    assert_eq!(error.message, "Framework failed over");
    assert!(first.events.next().is_none());
    let stale = first.call(json!({"type": "KILL", "kill": {"task_id": {"value": "t"}}}));
    assert_eq!(stale.status, 400);
    assert!(stale.text().contains("The stream ID"), "{}", stale.text());

    // After its connection breaks the framework is disconnected and may come back.
    drop(second);
    eventually("it to be disconnected", || {
        let page = page(cluster.port, "/frameworks");
        (page["frameworks"][0]["connected"] == false).then_some(())
    });
    let mut third = Scheduler::subscribe(cluster.port, Form::Json, lasting);
    third.send(json!({"type": "RECONCILE", "reconcile": {"tasks": []}}));
    assert_eq!(third.status().0, "TASK_RUNNING");
    third.send(json!({"type": "KILL", "kill": {"task_id": {"value": "t"}}}));
    third.until("TASK_KILLED");
}

/// Operations are applied in order, with feedback; invalid ones fail alone.
// Covers 2.2 ACCEPT; 2.3 UPDATE, UPDATE_OPERATION_STATUS.
#[test]
fn accept_applies_valid_operations_and_rejects_others() {
    let cluster = Cluster::start(1, "cpus:2;mem:256");
    let mut newest = framework("web");
    newest["roles"] = json!(["web"]);
    newest["capabilities"] = json!([{"type": "MULTI_ROLE"}, {"type": "RESERVATION_REFINEMENT"}]);
    let mut scheduler = Scheduler::subscribe(cluster.port, Form::Json, newest);
    let offer = scheduler.offer();
    assert_eq!(offer.0["allocation_info"]["role"], "web");
    let reservation = json!([{"type": "DYNAMIC", "role": "web"}]);
    let reserved = json!([{"name": "cpus", "type": "SCALAR", "scalar": {"value": 0.5}, "reservations": reservation}]);
    let mut bad = offer.task("bad", "true");
    bad["container"] = json!({"type": "DOCKER", "docker": {"image": "busybox", "parameters": [{"key": "a", "value": "b"}]}});
    let group = json!({
        "type": "LAUNCH_GROUP",
        "launch_group": {
            "executor": {"type": "DEFAULT", "executor_id": {"value": "e"}},
            "task_group": {"tasks": [offer.task("pod", "true")]},
        },
    });
    scheduler.send(offer.accept(json!([
        {"type": "RESERVE", "id": {"value": "op"}, "reserve": {"resources": reserved}},
        {"type": "LAUNCH", "launch": {"task_infos": [bad, offer.task("good", "exit 0")]}},
        group,
    ])));
    let (mut ends, mut operation) = (Vec::new(), None);
    while ends.len() < 3 || operation.is_none() {
        let event = scheduler.events.next().expect("an event");
        if let Some(changed) = &event.update_operation_status {
            let status = value(&changed.status);
            scheduler.send(json!({"type": "ACKNOWLEDGE_OPERATION_STATUS", "acknowledge_operation_status": {
                "agent_id": status["agent_id"], "uuid": status["uuid"]["value"], "operation_id": {"value": "op"},
            }}));
            operation = Some(status);
        }
        let Some(update) = &event.update else {
            continue;
        };
        let status = value(&update.status);
        scheduler.acknowledge(&status);
        let text = |key: &str| status[key].as_str().unwrap_or_default().to_owned();
        match &*text("state") {
            "TASK_STARTING" | "TASK_RUNNING" => {}
            state => ends.push(format!(
                "{} {state} {}",
                status["task_id"]["value"].as_str().expect("an id"),
                text("message")
            )),
        }
    }
    ends.sort();
    assert!(ends[0].starts_with("bad TASK_ERROR"), "{ends:?}");
    assert!(ends[1].starts_with("good TASK_FINISHED"), "{ends:?}");
    assert_starts!(
        ends[2],
        "pod TASK_ERROR 'ExecutorInfo.framework_id' must be set"
    );
    let operation = operation.expect("a status");
    assert_eq!(operation["state"], "OPERATION_FINISHED", "{operation}");
    // SPEC 2.2 UPDATE_FRAMEWORK.
    let mut other = framework("web");
    other["id"] = json!({"value": scheduler.id});
    other["roles"] = json!(["web", "ads"]);
    other["capabilities"] = json!([{"type": "MULTI_ROLE"}]);
    let update = |info: &Value| json!({"type": "UPDATE_FRAMEWORK", "update_framework": {"framework_info": info}});
    assert_eq!(scheduler.call(update(&other)).status, 200);
    // SPEC 3.3: it may have none for a while; with one again it is offered something.
    other["roles"] = json!([]);
    assert_eq!(scheduler.call(update(&other)).status, 200);
    other["roles"] = json!(["later"]);
    assert_eq!(scheduler.call(update(&other)).status, 200);
    let offered = |event: &Event| {
        let offers = event.offers.iter().flat_map(|offers| &offers.offers);
        let mut roles = offers.filter_map(|offer| offer.allocation_info.as_ref()?.role.clone());
        roles.any(|role| role == "later")
    };
    while !scheduler.events.next().is_some_and(|event| offered(&event)) {}
    other["checkpoint"] = json!(true);
    let refused = scheduler.call(update(&other));
    assert_eq!(refused.status, 400);
    assert!(refused.text().contains("checkpoint"), "{}", refused.text());
}

/// A custom executor echoes a message and ends at SHUTDOWN.
// Covers 2.2 SHUTDOWN; 2.2 MESSAGE; 2.3 MESSAGE, FAILURE.
#[test]
fn executor_receives_messages_and_is_shut_down() {
    let cluster = Cluster::start(1, "cpus:2;mem:256");
    let mut scheduler = Scheduler::subscribe(cluster.port, Form::Json, framework("web"));
    let offer = scheduler.offer();
    let mut task = offer.task("t", "");
    let executor = crate::support::example("executor");
    task.as_object_mut().expect("a task").remove("command");
    task["executor"] = json!({
        "type": "CUSTOM",
        "executor_id": {"value": "e"},
        "resources": resources(0.1, 32.0),
        "command": {"value": executor.display().to_string()},
    });
    task["data"] = json!("bGluZQ==");
    scheduler.send(offer.launch(&[task]));
    scheduler.until("TASK_FINISHED");
    scheduler.send(json!({"type": "MESSAGE", "message": {
        "executor_id": {"value": "e"}, "agent_id": offer.0["agent_id"], "data": "ZWNobw==",
    }}));
    scheduler.events.wait("the echo", |event| {
        event
            .message
            .as_ref()
            .filter(|message| message.data[..] == *b"echo")
            .map(|_| ())
    });
    scheduler.send(json!({"type": "SHUTDOWN", "shutdown": {
        "executor_id": {"value": "e"}, "agent_id": offer.0["agent_id"],
    }}));
    let lost = scheduler
        .events
        .wait("its end", |event| event.failure.clone());
    assert_eq!(value(&*lost)["executor_id"]["value"], "e");
}

/// Any bytes get an answer that names the fault, and other clients are not disturbed.
// Covers 2.1 400, 406, 413, 415.
#[test]
fn invalid_scheduler_calls_get_errors_and_disturb_no_client() {
    let cluster = Cluster::start(0, "cpus:1");
    let scheduler = Scheduler::subscribe(cluster.port, Form::Json, framework("web"));
    let endpoint = Endpoint::new(cluster.port, "/master/api/v1/scheduler");
    let (text, binary) = ("application/json", "application/x-protobuf");
    let deep = "[".repeat(1 << 20);
    let many = format!(
        r#"{{"type":"REVIVE","framework_id":{{"value":"f"}},"revive":{{"roles":[{}""]}}}}"#,
        r#""","#.repeat(1_000_000)
    );
    let cases: [(&str, &[u8], u16, &str); 9] = [
        (text, b"", 400, ""),
        (text, b"{", 400, ""),
        (text, b"\xff\xfe", 400, ""),
        (text, deep.as_bytes(), 400, ""),
        (text, many.as_bytes(), 400, ""),
        (binary, &[0xff; 11], 400, ""),
        (binary, b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f", 400, ""),
        ("text/plain", b"{}", 415, OTHER_TYPE),
        (
            "application/recordio",
            b"9223372036854775808\n{}",
            415,
            OTHER_TYPE,
        ),
    ];
    let named = rows(
        r#"
        {"type":"FLY","framework_id":{"value":"f"}} | Expecting 'type' to be present
        {"type":"KILL","framework_id":{"value":"f"}} | Expecting 'kill' to be present
        {"type":"REVIVE","framework_id":{"value":"f"}} | Framework cannot be found
    "#,
    );
    let named = named
        .iter()
        .map(|[body, words]| (text, body.as_bytes(), 400, *words));
    for (kind, body, status, words) in cases.into_iter().chain(named) {
        let answer = endpoint.post(kind, body);
        let json = answer.text();
        assert_eq!(answer.status, status, "{kind}: {json}");
        assert!(json.contains(words) && !json.is_empty(), "{kind}: {json}");
    }
    let unwanted = endpoint.clone().header("Accept", "text/html");
    let subscribe = json!({"type": "SUBSCRIBE", "subscribe": {"framework_info": framework("x")}});
    assert_eq!(unwanted.call(&call(&subscribe)).status, 406);
    let (head, _) = get_with(cluster.port, PATH, "Accept: */*");
    assert!(
        head.starts_with("HTTP/1.1 405") && header(&head, "allow").as_deref() == Some("POST"),
        "{head}"
    );
    // A truncated body of a closed connection gets no answer.
    for length in ["100", "18446744073709551615", "99999999999999999999"] {
        let mut connection = TcpStream::connect(("127.0.0.1", cluster.port)).expect("it answers");
        let head = format!(
            "POST {PATH} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {text}\r\nContent-Length: {length}\r\n\r\n{{"
        );
        connection.write_all(head.as_bytes()).expect("it is taken");
    }
    scheduler.send(json!({"type": "REVIVE"}));
}

/// A follower redirects to the leader, and tasks outlive a leader.
// Covers 3.13 Master failover.
#[test]
fn framework_finds_the_next_leader_and_its_tasks() {
    let mut group = Group::start();
    let leader = group.leader();
    let _agent = group.cluster.agent("agent", "cpus:2;mem:256");
    let mut lasting = framework("web");
    lasting["failover_timeout"] = json!(3600.0);
    let follower = group.others(leader)[0];
    group.wait_until_follower(follower);
    let port = |index: usize, group: &Group| -> u16 {
        let (_, port) = group.addresses[index].rsplit_once(':').expect("a port");
        port.parse().expect("a number")
    };
    let sent = Scheduler::try_subscribe(port(follower, &group), Form::Json, lasting.clone());
    let sent = sent.err().expect("a follower takes no subscription");
    let there = header(&sent.head, "location").expect("a location");
    let expected = format!("//{}{PATH}", group.addresses[leader]);
    assert_eq!((sent.status, &there), (307, &expected));

    // It follows the redirect.
    let there = there.split(['/', ':']).find_map(|part| part.parse().ok());
    let there = there.expect("a port");
    let mut scheduler = Scheduler::subscribe(there, Form::Json, lasting.clone());
    let offer = scheduler.offer();
    scheduler.send(offer.launch(&[offer.task("t", "exec sleep 1000")]));
    scheduler.until("TASK_RUNNING");
    lasting["id"] = json!({"value": scheduler.id});
    group.process(leader).signal("KILL");
    while scheduler.events.next().is_some() {}
    let next = group.leader_of(&group.others(leader));
    let mut again = eventually("the next one to take it", || {
        Scheduler::try_subscribe(port(next, &group), Form::Protobuf, lasting.clone()).ok()
    });
    assert_eq!(again.id, scheduler.id);
    // An offer shows that the agent is back; before, the task's state may be unknown.
    again.offer();
    again.send(json!({"type": "RECONCILE", "reconcile": {"tasks": [{"task_id": {"value": "t"}}]}}));
    assert_eq!(again.status().0, "TASK_RUNNING");
    again.send(json!({"type": "KILL", "kill": {"task_id": {"value": "t"}}}));
    again.until("TASK_KILLED");
}

/// A master restart ends streams but no framework, however short its failover timeout.
#[test]
fn stopping_a_master_ends_no_framework() {
    let mut cluster = Cluster::master_alone(|_, _| ());
    let _agent = cluster.agent("agent", "cpus:2;mem:256");
    let mut scheduler = Scheduler::subscribe(cluster.port, Form::Json, framework("web"));
    let offer = scheduler.offer();
    scheduler.send(offer.launch(&[offer.task("t", "exec sleep 1000")]));
    scheduler.until("TASK_RUNNING");
    cluster.process.signal("TERM");
    for event in scheduler.events.by_ref() {
        assert_ne!(event.r#type, Some(EventType::Error), "{event:?}");
    }
    cluster.process.wait();
    cluster.kill_and_restart_master();
    let mut known = framework("web");
    known["id"] = json!({"value": scheduler.id});
    let mut again = eventually("the next one to take it", || {
        Scheduler::try_subscribe(cluster.port, Form::Json, known.clone()).ok()
    });
    again.offer();
    again.send(json!({"type": "RECONCILE", "reconcile": {"tasks": []}}));
    assert_eq!(again.status().0, "TASK_RUNNING");
}
