//! Tools that use the v1 operator API over HTTP or poll the pages of Mesos (SPEC 2.1, 2.6, 3.9,
//! 3.12).

use std::io::Write;
use std::net::TcpStream;

use serde_json::{Value, json};
use testkit::http::{Answer, Endpoint, Events};
use v1::schema::TaskState;
use v1::schema::master::{Call, Event, EventType, Response, ResponseGetState};
use v1::{Form, Limits};

use crate::support::{Cluster, eventually, get, get_with, header, page, send};

fn call(json: &Value) -> Call {
    let read = Form::Json.read(json.to_string().as_bytes(), Limits::default());
    read.unwrap_or_else(|bad: v1::Invalid| panic!("{bad}: {json}"))
}

fn endpoint(port: u16) -> Endpoint {
    Endpoint::new(port, "/api/v1")
}

/// The answer to a call that must succeed.
fn answered(port: u16, json: &Value) -> Value {
    let answer = endpoint(port).call(&call(json));
    assert_eq!(answer.status, 200, "{json}: {}", answer.text());
    serde_json::from_slice(&answer.body).expect("JSON")
}

fn subscribe(port: u16, form: Form) -> (Events<Event>, Box<ResponseGetState>) {
    let endpoint = endpoint(port).form(form);
    let begun = endpoint.stream(&call(&json!({"type": "SUBSCRIBE"})));
    let mut events: Events<Event> =
        begun.unwrap_or_else(|answer: Answer| panic!("{} {}", answer.status, answer.text()));
    let first = events.next().expect("a first event");
    assert_eq!(first.r#type, Some(EventType::Subscribed), "{first:?}");
    let subscribed = first.subscribed.expect("how all is");
    assert_eq!(subscribed.heartbeat_interval_seconds, Some(15.0));
    (events, subscribed.get_state.expect("how all is"))
}

/// SPEC 2.6: the whole first, and then each thing as it comes and goes.
#[test]
fn event_stream_starts_with_the_state_then_events() {
    let cluster = Cluster::start(1, "cpus:2;mem:256");
    let streams = [Form::Json, Form::Protobuf].map(|form| subscribe(cluster.port, form));
    assert!(cluster.output(["run", "--", "true"]).status.success());
    for (mut events, state) in streams {
        assert_eq!(state.get_agents.expect("agents").agents.len(), 1);
        assert!(
            state
                .get_frameworks
                .expect("frameworks")
                .frameworks
                .is_empty()
        );
        let framework = events.wait("a framework", |event| {
            let framework = &event.framework_added.as_ref()?.framework;
            framework.framework_info.id.clone()
        });
        let task = events.wait("a task", |event| {
            Some(event.task_added.as_ref()?.task.clone())
        });
        assert_eq!(task.framework_id, framework);
        let mut states = vec![task.state];
        while states.last() != Some(&TaskState::Finished) {
            states.push(events.wait("a state", |event| {
                let updated = event.task_updated.as_ref()?;
                (updated.status.task_id == task.task_id).then_some(updated.status.state)
            }));
        }
        assert!(states.contains(&TaskState::Running), "{states:?}");
        let gone = events.wait("the framework's end", |event| {
            event.framework_removed.as_ref()?.framework_info.id.clone()
        });
        assert_eq!(gone, framework);
    }
    let answer = endpoint(cluster.port)
        .form(Form::Protobuf)
        .call(&call(&json!({"type": "GET_TASKS"})));
    let answer: Response = answer.message(Form::Protobuf);
    let tasks = answer.get_tasks.expect("tasks");
    assert_eq!(tasks.completed_tasks[0].state, TaskState::Finished);
}

// Covers 2.1 409.
#[test]
fn operator_reserves_and_unreserves_with_mesos_statuses() {
    let cluster = Cluster::start(1, "cpus:2;mem:256");
    let agents = answered(cluster.port, &json!({"type": "GET_AGENTS"}));
    let id = agents["get_agents"]["agents"][0]["agent_info"]["id"].clone();
    let change = |kind: &str, field: &str, cpus: f64| {
        let resource = json!({
            "name": "cpus", "type": "SCALAR", "scalar": {"value": cpus},
            "reservations": [{"type": "DYNAMIC", "role": "ops", "principal": "ops"}],
        });
        let json = json!({"type": kind, field: {"agent_id": id, "resources": [resource]}});
        endpoint(cluster.port).call(&call(&json))
    };
    let answer = change("RESERVE_RESOURCES", "reserve_resources", 1.5);
    assert_eq!(answer.status, 202, "{}", answer.text());
    let reserved = || {
        let slaves = page(cluster.port, "/master/slaves");
        slaves["slaves"][0]["reserved_resources"]["ops"]["cpus"].as_f64()
    };
    assert_eq!(reserved(), Some(1.5));
    let answer = change("RESERVE_RESOURCES", "reserve_resources", 1.5);
    let text = answer.text();
    assert_eq!(answer.status, 409, "{text}");
    let is_told = text.starts_with("cpus:0.5; mem:256; ")
        && text.ends_with("cpus(reservations: [(DYNAMIC,ops,ops)]):1.5 does not contain cpus:1.5");
    assert!(is_told, "{text}");
    let answer = change("UNRESERVE_RESOURCES", "unreserve_resources", 1.5);
    assert_eq!(answer.status, 202, "{}", answer.text());
    assert_eq!(reserved(), None);
}

/// Any bytes get an answer, and other clients are not disturbed.
// Covers 2.1 405.
#[test]
fn invalid_operator_calls_get_errors_and_disturb_no_client() {
    let cluster = Cluster::start(1, "cpus:2;mem:256");
    let (mut events, _) = subscribe(cluster.port, Form::Json);
    let json = "application/json";
    let deep = "[".repeat(100_000);
    let list = |entry: &str, many: usize| {
        let entries = vec![entry; many].join(",");
        format!(r#"{{"type":"UPDATE_WEIGHTS","update_weights":{{"weight_infos":[{entries}]}}}}"#)
    };
    let (none, valid) = (
        list("1", 1_000_000),
        list(r#"{"role":"r","weight":1}"#, 650_000),
    );
    let bodies: [(&str, &[u8], u16); 10] = [
        (json, b"", 400),
        (json, b"{\"type\":", 400),
        (json, b"{\"type\":\"\xff\xfe\"}", 400),
        (json, deep.as_bytes(), 400),
        (json, none.as_bytes(), 400),
        // Each of them could be meant, and no two of them together.
        (json, valid.as_bytes(), 400),
        (json, br#"{"type":"BREW"}"#, 400),
        (
            json,
            br#"{"type":"SET_LOGGING_LEVEL","set_logging_level":{"level":"all","duration":{"nanoseconds":1}}}"#,
            400,
        ),
        (
            "application/x-protobuf",
            b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff",
            400,
        ),
        ("application/recordio", b"9223372036854775808\n", 415),
    ];
    for (content_type, body, status) in bodies {
        let answer = endpoint(cluster.port).post(content_type, body);
        assert_eq!(answer.status, status, "{}", answer.text());
        assert!(answer.text().len() > 10, "a reason in words");
    }
    // Others are answered while many such are read.
    std::thread::scope(|scope| {
        // Two large bodies per address are read at a time; others get an error to retry.
        let large = || {
            eventually("a turn", || {
                let status = endpoint(cluster.port).post(json, valid.as_bytes()).status;
                (status != 503).then_some(status)
            })
        };
        let all: Vec<_> = (0..6).map(|_| scope.spawn(large)).collect();
        while !all.iter().all(|one| one.is_finished()) {
            let (status, _) = get(cluster.port, "/state-summary");
            assert!(status.contains("200"), "{status}");
        }
        for one in all {
            assert_eq!(one.join().expect("an answer"), 400);
        }
    });
    let (status, text) = get(cluster.port, "/api/v1");
    assert!(
        status.contains("405") && text.contains("POST"),
        "{status} {text}"
    );
    assert!(cluster.output(["run", "--", "true"]).status.success());
    events.wait("a task", |event| event.task_added.as_ref().map(drop));
}

/// Subscribers that do not read delay no other client, and are counted.
// Covers W4.
#[test]
fn stalled_subscribers_delay_no_other_client() {
    const STALLED: usize = 200;
    let cluster = Cluster::start(1, "cpus:2;mem:256");
    let body = r#"{"type":"SUBSCRIBE"}"#;
    let request = format!(
        "POST /master/api/v1 HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let stalled: Vec<TcpStream> = (0..STALLED)
        .map(|_| {
            let connection = TcpStream::connect(("127.0.0.1", cluster.port));
            let mut connection = connection.expect("a connection");
            connection.write_all(request.as_bytes()).expect("written");
            connection
        })
        .collect();
    let (mut events, _) = subscribe(cluster.port, Form::Json);
    let subscribers = || {
        let metrics = answered(cluster.port, &json!({"type": "GET_METRICS"}));
        let metrics = metrics["get_metrics"]["metrics"].as_array().cloned();
        let all = metrics.expect("metrics").into_iter();
        let mut found = all.filter(|one| one["name"] == "master/operator_event_stream_subscribers");
        found.next().expect("the metric")["value"].as_f64()
    };
    eventually("all to be subscribed", || {
        (subscribers() == Some((STALLED + 1) as f64)).then_some(())
    });
    assert!(cluster.output(["run", "--", "true"]).status.success());
    events.wait("a task's end", |event| {
        let updated = event.task_updated.as_ref()?;
        (updated.status.state == TaskState::Finished).then_some(())
    });
    drop(stalled);
    eventually("those who have gone to be forgotten", || {
        (subscribers() == Some(1.0)).then_some(())
    });
}

/// Any master answers reads; other calls are redirected to the leader.
// Covers 2.1 307, 503.
#[test]
fn follower_answers_reads_and_redirects_writes() {
    let (cluster, _others) = Cluster::of_three_masters();
    let ports: Vec<u16> = cluster
        .master
        .split(',')
        .map(|address| address.rsplit_once(':').expect("a port").1)
        .map(|port| port.parse().expect("a port"))
        .collect();
    let subscribing = call(&json!({"type": "SUBSCRIBE"}));
    let follower = eventually("a follower that knows its leader", || {
        ports.iter().copied().find(|port| {
            let begun = endpoint(*port).stream::<Event>(&subscribing);
            begun.is_err_and(|answer| answer.status == 307)
        })
    });
    let Err(answer) = endpoint(follower).stream::<Event>(&subscribing) else {
        panic!("a follower has no stream");
    };
    let location = header(&answer.head, "location").expect("where the leader is");
    assert!(location.ends_with("/api/v1") && !location.contains(&follower.to_string()));
    let down = json!({"type": "TEARDOWN", "teardown": {"framework_id": {"value": "f"}}});
    assert_eq!(endpoint(follower).call(&call(&down)).status, 307);
    let answer = eventually("a mirror", || {
        let answer = endpoint(follower).call(&call(&json!({"type": "GET_STATE"})));
        (answer.status == 200).then_some(answer)
    });
    assert!(
        header(&answer.head, "meros-staleness").is_some(),
        "{}",
        answer.head
    );
    let (head, _) = get_with(follower, "/redirect", "Accept: */*");
    let leader = location
        .trim_end_matches("/api/v1")
        .trim_start_matches("http:");
    assert_eq!(header(&head, "location").as_deref(), Some(leader));
}

/// SPEC 3.9, 3.12: as tools poll them, with and without the prefix.
// Covers 3.9 Pages of masters.
#[test]
fn mesos_pages_are_served_with_and_without_prefix() {
    let cluster = Cluster::with(1, &["--resources", "cpus:2;mem:256", "--jsonp"]);
    let head_of = |path: &str| get_with(cluster.port, path, "Accept: */*");
    for page in [
        "/state",
        "/state-summary",
        "/slaves",
        "/frameworks",
        "/tasks",
        "/roles",
        "/flags",
        "/weights",
        "/quota",
        "/maintenance/schedule",
        "/maintenance/status",
    ] {
        for path in [page.to_owned(), format!("/master{page}")] {
            let (head, text) = get(cluster.port, &path);
            assert!(head.contains(" 200 "), "{path}: {head}");
            assert!(serde_json::from_str::<Value>(&text).is_ok(), "{text}");
            let (head, script) = head_of(&format!("{path}?jsonp=f"));
            assert!(head.contains("text/javascript"), "{head}");
            assert!(
                script.starts_with("f(") && script.ends_with(");"),
                "{script}"
            );
        }
    }
    let zipped = endpoint(cluster.port).header("Accept-Encoding", "gzip");
    let zipped = zipped.call(&call(&json!({"type": "GET_STATE"})));
    let encoding = header(&zipped.head, "content-encoding");
    assert_eq!(encoding.as_deref(), Some("gzip"), "{}", zipped.head);
    let (head, _) = head_of("/redirect");
    let own = format!("//127.0.0.1:{}", cluster.port);
    assert_eq!(header(&head, "location"), Some(own));
    let (head, text) = send(cluster.port, "POST", "/teardown", "frameworkId=nobody");
    let words = "No framework found with specified ID";
    assert!(
        head.contains(" 400 ") && text.contains(words),
        "{head} {text}"
    );
}
