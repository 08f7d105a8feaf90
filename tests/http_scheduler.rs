//! Frameworks that speak the v1 scheduler API over HTTP, as Mesos' documentation has them (SPEC 2.1-2.3, 3.3, 3.13).

use serde_json::{Value, json};
use v1::schema::scheduler::{Call, Event, EventType};
use v1::{Form, Limits, Message};

use crate::api::{Answer, Endpoint, Events};
use crate::support::{Cluster, eventually, get};

const PATH: &str = "/api/v1/scheduler";

/// A call as JSON says it.
fn call(said: &Value) -> Call {
    let read = Form::Json.read(said.to_string().as_bytes(), Limits::default());
    read.unwrap_or_else(|bad: v1::Invalid| panic!("{bad}: {said}"))
}

/// A framework that is subscribed.
struct Scheduler {
    id: String,
    events: Events<Event>,
    calls: Endpoint,
}

impl Scheduler {
    fn subscribe(port: u16, form: Form, framework: Value) -> Self {
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

    /// What this call is answered.
    fn asks(&self, mut said: Value) -> Answer {
        said["framework_id"] = json!({"value": self.id});
        self.calls.call(&call(&said))
    }

    /// Says a call that must be taken.
    fn says(&self, said: Value) {
        let answer = self.asks(said.clone());
        assert_eq!(answer.status, 202, "{said}: {}", answer.text());
        assert_eq!(answer.text(), "");
    }

    /// The next offer: its id, its agent's, and itself.
    fn offer(&mut self) -> Offered {
        self.events.wait("an offer", |event| {
            let offer = event.offers.as_ref()?.offers.first()?;
            Some(Offered(value(offer)))
        })
    }

    /// The next status of a task, acknowledged if it asks for that: its state, its reason and its message.
    fn status(&mut self) -> (String, String, String) {
        let status = self.events.wait("a status", |event| {
            let update = event.update.as_ref()?;
            Some(value(&update.status))
        });
        self.acknowledge(&status);
        let text = |key: &str| status[key].as_str().unwrap_or_default().to_owned();
        (text("state"), text("reason"), text("message"))
    }

    fn acknowledge(&self, status: &Value) {
        if let Some(uuid) = status.get("uuid") {
            self.says(json!({"type": "ACKNOWLEDGE", "acknowledge": {
                "agent_id": status["agent_id"], "task_id": status["task_id"], "uuid": uuid,
            }}));
        }
    }

    /// The states of a task until one of them is this.
    fn until(&mut self, state: &str) -> Vec<String> {
        let mut states = Vec::new();
        while states.last().is_none_or(|last| last != state) {
            let (state, reason, message) = self.status();
            assert!(states.len() < 10, "{states:?} {state} {reason} {message}");
            states.push(state);
        }
        states
    }
}

/// A message as JSON says it.
fn value(message: &dyn Message) -> Value {
    serde_json::from_slice(&v1::json::write(message)).expect("JSON")
}

/// An offer as JSON.
struct Offered(Value);

impl Offered {
    fn accept(&self, operations: Value) -> Value {
        json!({"type": "ACCEPT", "accept": {"offer_ids": [self.0["id"]], "operations": operations}})
    }

    fn launch(&self, tasks: &[Value]) -> Value {
        self.accept(json!([{"type": "LAUNCH", "launch": {"task_infos": tasks}}]))
    }

    /// A task of this shell line.
    fn task(&self, id: &str, line: &str) -> Value {
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

/// A framework of whoever runs the tests.
fn framework(name: &str) -> Value {
    json!({"user": user(), "name": name})
}

fn user() -> String {
    let output = std::process::Command::new("id").arg("-un").output();
    String::from_utf8(output.expect("id runs").stdout)
        .expect("a name")
        .trim()
        .to_owned()
}

/// SPEC 2.2, 2.3 and 3.13: the flow of a launch, in either form.
#[test]
fn a_task_is_launched_and_runs_to_its_end_in_json_and_in_protobuf() {
    let cluster = Cluster::start(1, "cpus:2;mem:256");
    for form in [Form::Json, Form::Protobuf] {
        let mut scheduler = Scheduler::subscribe(cluster.port, form, framework("web"));
        let kind = scheduler.events.header("content-type");
        assert_eq!(kind.as_deref(), Some(form.media_type()));
        let offer = scheduler.offer();
        // A framework with one role reads resources as Mesos had them first.
        assert_eq!(offer.0.get("allocation_info"), None, "{}", offer.0);
        scheduler.says(offer.launch(&[offer.task("t", "exit 0")]));
        let states = scheduler.until("TASK_FINISHED");
        assert_eq!(states, ["TASK_STARTING", "TASK_RUNNING", "TASK_FINISHED"]);
        scheduler.says(json!({"type": "TEARDOWN"}));
        // It is over, and that is no error.
        while let Some(event) = scheduler.events.next() {
            assert_ne!(event.r#type, Some(EventType::Error), "{event:?}");
        }
    }
    eventually("both are over", || {
        let (_, page) = get(cluster.port, "/frameworks");
        let page: Value = serde_json::from_str(&page).expect("JSON");
        (page["completed_frameworks"].as_array()?.len() == 2).then_some(())
    });
}
