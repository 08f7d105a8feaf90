//! What executors say over HTTP that cannot be heard: each field that may be wrong, and each way to be nobody (SPEC 2.1, 2.5).
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test's helpers may fall like the test"
)]

mod common;
mod stage;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, BodyDataStream};
use axum::extract::Request;
use futures_util::stream::poll_fn;
use futures_util::{FutureExt, StreamExt};
use http::api::Streams;
use http::rehearsal::{REFUSAL_MAX, answer, hostile_calls, said, very_many};
use protocol::message::scheduler::KillTask;
use protocol::{KillPolicy, TaskInfo};
use serde_json::{Value, json};
use stage::*;
use v1::recordio::Decoder;

const PATH: &str = "/api/v1/executor";

/// The routes of an agent that runs a task of the framework's own executor, and that one's token.
async fn running(world: &World) -> (Router, String) {
    running_of(world, custom("a")).await
}

async fn running_of(world: &World, task: TaskInfo) -> (Router, String) {
    world.master.run(vec![task]);
    world.settle().await;
    let request = world.stage.launched.lock().unwrap()[0].clone();
    let token = request.environment["MESOS_EXECUTOR_AUTHENTICATION_TOKEN"].clone();
    let (agent, node) = (&world.agent, &world.node);
    let counters = meros_agent::counters(agent);
    let routes = meros_agent::routes(agent, node, counters, &Streams::new(node));
    (routes, token)
}

/// A call of the executor that runs.
fn call(kind: &str, more: Value) -> Value {
    let mut call = json!({
        "executor_id": { "value": "own" }, "framework_id": { "value": framework_id().as_str() }, "type": kind,
    });
    let fields = more.as_object().cloned().unwrap_or_default();
    call.as_object_mut().unwrap().extend(fields);
    call
}

/// An update, of whose status a field is something else, or is not there.
fn update(field: &str, value: Value) -> Value {
    let mut status = json!({
        "task_id": { "value": "a" }, "state": "TASK_RUNNING", "uuid": "AAAAAAAAAAAAAAAAAAAAAA==",
    });
    match value {
        Value::Null => drop(status.as_object_mut().unwrap().remove(field)),
        value => status[field] = value,
    }
    json!({ "status": status })
}

fn post(token: &str, headers: &[(&str, &str)], body: impl Into<Body>) -> Request {
    let mut request = Request::post(PATH);
    if !headers.iter().any(|(name, _)| *name == "Content-Type") {
        request = request.header("Content-Type", "application/json");
    }
    if !token.is_empty() {
        request = request.header("Authorization", format!("Bearer {token}"));
    }
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(body.into()).unwrap()
}

/// The events that wait in a stream.
fn events(stream: &mut BodyDataStream) -> Vec<Value> {
    let (mut decoder, mut all) = (Decoder::new(1 << 20), Vec::new());
    while let Some(Some(piece)) = stream.next().now_or_never() {
        let piece = piece.unwrap();
        let mut rest = &piece[..];
        while let Some(record) = decoder.next(&mut rest).unwrap() {
            all.push(serde_json::from_slice(&record).unwrap());
        }
    }
    all
}

/// SPEC 2.5, 2.8: all that executors of Mesos read of what they are told.
#[test]
fn an_executor_hears_who_and_where_it_is_and_whose_what_it_is_to_run_and_how_long_a_kill_may_take()
{
    world(Cast::default(), |world| async move {
        let mut task = custom("a");
        task.executor.as_mut().unwrap().data = b"hello".to_vec();
        let (routes, token) = running_of(&world, task).await;
        let subscribe = call("SUBSCRIBE", json!({ "subscribe": {} })).to_string();
        let begun = answer(&routes, post(&token, &[], subscribe)).await;
        assert_eq!(begun.status(), 200);
        world.settle().await;
        let mut stream = begun.into_body().into_data_stream();
        let told = events(&mut stream);
        let [subscribed, launch] = &told[..] else {
            panic!("{told:?}")
        };
        assert_eq!(subscribed["type"], "SUBSCRIBED");
        let subscribed = &subscribed["subscribed"];
        let (container, _) = token.rsplit_once('.').unwrap();
        assert_eq!(subscribed["container_id"]["value"], container);
        let agent = &subscribed["agent_info"];
        assert_eq!(agent["id"]["value"], agent_id().as_str());
        assert_eq!(agent["port"], 5051);
        let info = world.agent.state().await.unwrap().info;
        assert_eq!(agent["hostname"], json!(info.hostname));
        assert!(agent["resources"].is_array(), "{agent}");
        let own = json!({ "value": framework_id().as_str() });
        assert_eq!(subscribed["framework_info"]["id"], own);
        let executor = &subscribed["executor_info"];
        assert_eq!(executor["executor_id"]["value"], "own");
        assert_eq!(executor["framework_id"], own);
        assert_eq!(executor["data"], "aGVsbG8=");

        assert_eq!(launch["type"], "LAUNCH");
        let task = &launch["launch"]["task"];
        assert_eq!(task["task_id"]["value"], "a");
        assert_eq!(task["executor"]["framework_id"], own);
        assert_eq!(task["executor"]["data"], "aGVsbG8=");

        let grace_period = Duration::from_secs(7);
        world.master.tell(KillTask {
            framework_id: framework_id(),
            task_id: task_id("a"),
            agent_id: None,
            kill_policy: Some(KillPolicy { grace_period }),
        });
        world.settle().await;
        let policy = json!({ "grace_period": { "nanoseconds": 7_000_000_000_u64 } });
        let kill = json!({ "task_id": { "value": "a" }, "kill_policy": policy });
        assert_eq!(
            events(&mut stream),
            [json!({ "type": "KILL", "kill": kill })]
        );
    });
}

/// SPEC 2.5: it need not keep for ever what nobody here can do anything with.
#[test]
fn a_status_of_a_task_that_is_not_here_is_taken_and_acknowledged_and_told_to_nobody() {
    world(Cast::default(), |world| async move {
        let (routes, token) = running(&world).await;
        let subscribe = call("SUBSCRIBE", json!({ "subscribe": {} })).to_string();
        let begun = answer(&routes, post(&token, &[], subscribe)).await;
        world.settle().await;
        let mut stream = begun.into_body().into_data_stream();
        assert_eq!(events(&mut stream).len(), 2);
        let unknown = update("task_id", json!({ "value": "nobodys" }));
        let unknown = call("UPDATE", json!({ "update": unknown })).to_string();
        let taken = answer(&routes, post(&token, &[], unknown)).await;
        assert_eq!(taken.status(), 202);
        world.settle().await;
        let uuid = "AAAAAAAAAAAAAAAAAAAAAA==";
        let acknowledged = json!({ "task_id": { "value": "nobodys" }, "uuid": uuid });
        assert_eq!(
            events(&mut stream),
            [json!({ "type": "ACKNOWLEDGED", "acknowledged": acknowledged })]
        );
        assert!(world.master.last("nobodys").is_none());
    });
}

/// SPEC 2.1, 2.5: each by the field that it has wrong.
#[test]
fn each_field_of_an_executors_call_that_is_wrong_is_named_and_nothing_follows() {
    world(Cast::default(), |world| async move {
        let (routes, token) = running(&world).await;
        let status =
            |field: &str, value: Value| call("UPDATE", json!({ "update": update(field, value) }));
        let subscribe = |what: Value| call("SUBSCRIBE", json!({ "subscribe": what }));
        let updates = |field: &str, value: Value| {
            let good = update("message", json!("good"));
            subscribe(json!({ "unacknowledged_updates": [good, update(field, value)] }))
        };
        let many = vec![update("message", json!("m")); 50_001];
        let own = |field: &str, value: Value| {
            let mut call = call("HEARTBEAT", json!({}));
            call[field] = value;
            call
        };
        let long = "x".repeat(300);
        let cases = [
            (own("type", json!("BREW")), "type is"),
            (own("type", json!(["HEARTBEAT", "HEARTBEAT"])), "type"),
            (
                own("executor_id", json!({ "value": "" })),
                "executor_id.value",
            ),
            (
                own("executor_id", json!({ "value": "a/b" })),
                "executor_id.value",
            ),
            (
                own("executor_id", json!({ "value": 7 })),
                "executor_id.value",
            ),
            (
                own("framework_id", json!({ "value": long })),
                "framework_id.value",
            ),
            (own("framework_id", json!("f")), "framework_id"),
            (call("UPDATE", json!({})), "update is `absent`"),
            (call("UPDATE", json!({ "update": {} })), "update.status is"),
            (status("task_id", Value::Null), "update.status.task_id is"),
            (
                status("task_id", json!({ "value": ".." })),
                "update.status.task_id.value",
            ),
            (status("state", Value::Null), "update.status.state is"),
            (
                status("state", json!("TASK_FLYING")),
                "update.status.state is",
            ),
            (
                status("state", json!("TASK_STAGING")),
                "update.status.state is",
            ),
            (
                status("source", json!("SOURCE_MASTER")),
                "update.status.source is",
            ),
            (
                status("executor_id", json!({ "value": "other" })),
                "update.status.executor_id is",
            ),
            (status("uuid", Value::Null), "update.status.uuid is"),
            (status("uuid", json!("AAAA")), "update.status.uuid is"),
            (status("uuid", json!("%%%")), "update.status.uuid"),
            (status("timestamp", json!(-1)), "update.status.timestamp is"),
            (
                status("timestamp", json!(1e300)),
                "update.status.timestamp is",
            ),
            (status("healthy", json!("yes")), "update.status.healthy"),
            (
                status("unreachable_time", json!({ "nanoseconds": -1 })),
                "unreachable_time",
            ),
            (
                status("labels", json!({ "labels": [{ "value": "v" }] })),
                "labels.labels[0].key",
            ),
            (
                status("check_status", json!({ "http": 200 })),
                "update.status.check_status.http",
            ),
            (
                status("limitation", json!("mem")),
                "update.status.limitation",
            ),
            (
                status("container_status", json!({ "container_id": {} })),
                "container_status.container_id.value",
            ),
            (call("MESSAGE", json!({})), "message is `absent`"),
            (call("MESSAGE", json!({ "message": {} })), "message.data"),
            (
                call("MESSAGE", json!({ "message": { "data": "%" } })),
                "message.data",
            ),
            (call("SUBSCRIBE", json!({})), "subscribe is `absent`"),
            (
                subscribe(json!({ "unacknowledged_tasks": [{ "name": "t" }] })),
                "subscribe.unacknowledged_tasks[0].",
            ),
            (
                updates("state", json!("TASK_STAGING")),
                "unacknowledged_updates[1].status.state",
            ),
            (
                updates("uuid", Value::Null),
                "unacknowledged_updates[1].status.uuid",
            ),
            (
                subscribe(json!({ "unacknowledged_updates": many })),
                "subscribe.unacknowledged_updates is `a list of 50001`: expected at most 50000",
            ),
        ];
        for (body, words) in cases {
            let (status, text) = said(&routes, post(&token, &[], body.to_string())).await;
            let shown: String = body.to_string().chars().take(300).collect();
            assert!(
                status == 400 && text.contains(words),
                "{shown}: {status} {text}"
            );
        }
        world.settle().await;
        assert!(world.master.last("a").is_none());
    });
}

/// SPEC 2.8, TaskStatus: what an executor says of its container, of checks and of limits goes on as it was said; the agent adds what was not said.
#[test]
fn what_an_executor_says_in_its_status_goes_on_as_it_was_said() {
    world(Cast::default(), |world| async move {
        let (routes, token) = running(&world).await;
        let subscribe = call("SUBSCRIBE", json!({ "subscribe": {} })).to_string();
        let events = answer(&routes, post(&token, &[], subscribe)).await.status();
        assert_eq!(events, 200);
        let whole = json!({
            "container_status": {
                "network_infos": [{ "name": "bridge" }],
                "container_id": { "value": "c", "parent": { "value": "p" } },
            },
            "check_status": { "type": "TCP", "tcp": { "succeeded": true } },
            "limitation": { "resources": [{ "name": "mem", "type": "SCALAR", "scalar": { "value": 64.0 } }] },
        });
        for (uuid, said) in [
            ("AAAAAAAAAAAAAAAAAAAAAA==", json!({})),
            ("AQEBAQEBAQEBAQEBAQEBAQ==", whole),
        ] {
            let mut update = update("uuid", json!(uuid));
            let status = update["status"].as_object_mut().unwrap();
            status.extend(said.as_object().cloned().unwrap());
            let update = call("UPDATE", json!({ "update": update })).to_string();
            assert_eq!(
                answer(&routes, post(&token, &[], update)).await.status(),
                202
            );
            world.settle().await;
            let told = world.master.last("a").unwrap().status;
            let own = world.stage.launched.lock().unwrap()[0].container_id.clone();
            assert_eq!(told.container_id, Some(own.clone()));
            let told = v1::json::write(&v1::schema::TaskStatus::from(&told));
            let told: Value = serde_json::from_slice(&told).unwrap();
            for field in ["container_status", "check_status", "limitation"] {
                let usual = match field {
                    "container_status" => json!({ "container_id": { "value": own.as_str() } }),
                    _ => Value::Null,
                };
                assert_eq!(told[field], *said.get(field).unwrap_or(&usual), "{field}");
            }
            assert_eq!(told["labels"], Value::Null);
        }
    });
}

/// SPEC 2.1, 2.5: bytes of any kind, also with the right token, whatever the list is in that has a million entries.
#[test]
fn bytes_that_are_no_call_of_an_executor_are_refused_with_its_token_too() {
    world(Cast::default(), |world| async move {
        let (routes, token) = running(&world).await;
        let whole = call(
            "UPDATE",
            json!({ "update": update("labels", json!({ "labels": ["HERE"] })) }),
        )
        .to_string();
        let (before, after) = whole.split_once("\"HERE\"").unwrap();
        for hostile in hostile_calls([before, after]) {
            let headers = [("Content-Type", hostile.content_type)];
            let (status, text) = said(&routes, post(&token, &headers, hostile.body)).await;
            let what = hostile.what;
            assert!(
                matches!(status, 400 | 413 | 415) && (10..=REFUSAL_MAX).contains(&text.len()),
                "{what}: {status} {text}"
            );
        }
        world.settle().await;
        assert!(world.master.last("a").is_none());
    });
}

/// SPEC 2.1: a million entries, or as many as a call may have, of which each could be meant.
#[test]
fn very_many_valid_entries_of_an_executors_call_are_refused_in_words_or_accepted() {
    world(Cast::default(), |world| async move {
        let (routes, token) = running(&world).await;
        let plain = call("SUBSCRIBE", json!({ "subscribe": {} })).to_string();
        let stream = answer(&routes, post(&token, &[], plain)).await;
        assert_eq!(stream.status(), 200);
        let label = |n| format!(r#"{{"key":"k{n}","value":"v"}}"#);
        let task = |n| {
            format!(
                r#"{{"name":"t","task_id":{{"value":"t{n}"}},"agent_id":{{"value":"S"}},"resources":[]}}"#
            )
        };
        let told = |n| {
            format!(
                r#"{{"status":{{"task_id":{{"value":"t{n}"}},"state":"TASK_RUNNING","source":"SOURCE_EXECUTOR","uuid":"AAAAAAAAAAAAAAAAAAAAAA=="}}}}"#
            )
        };
        let labelled = update("labels", json!({ "labels": ["HERE"] }));
        let subscribe = |field: &str| json!({ "subscribe": { field: ["HERE"] } });
        for (call, entry, words) in [
            (
                call("SUBSCRIBE", subscribe("unacknowledged_tasks")),
                &task as &dyn Fn(u32) -> String,
                "expected at most 50000",
            ),
            (
                call("SUBSCRIBE", subscribe("unacknowledged_updates")),
                &told,
                "expected at most 50000",
            ),
            (call("UPDATE", json!({ "update": labelled })), &label, ""),
        ] {
            let whole = call.to_string();
            let (before, after) = whole.split_once("\"HERE\"").unwrap();
            let body = very_many([before, after], entry);
            let asked = said(&routes, post(&token, &[], body));
            let other = said(&routes, Request::get("/state").body(Body::empty()).unwrap());
            let ((status, text), (other, _)) = futures_util::join!(asked, other);
            let shown: String = text.chars().take(200).collect();
            assert!(
                status == 202
                    || (400..500).contains(&status) && text.contains(words) && text.len() > 10,
                "{}: {status} {shown}",
                call["type"]
            );
            assert_eq!(other, 200);
        }
        let update = call("UPDATE", json!({ "update": update("labels", json!({})) })).to_string();
        assert_eq!(
            answer(&routes, post(&token, &[], update)).await.status(),
            202,
            "it is heard as before"
        );
        drop(stream);
    });
}

/// SPEC 2.1, 2.5: who it is, how it asks, and when.
#[test]
fn an_executor_that_is_nobody_or_asks_otherwise_is_told_what_is_expected() {
    world(Cast::default(), |world| async move {
        let (routes, token) = running(&world).await;
        let heartbeat = call("HEARTBEAT", json!({})).to_string();
        let subscribe = call("SUBSCRIBE", json!({ "subscribe": {} })).to_string();
        let (container, _) = token.rsplit_once('.').unwrap();
        let guess = format!("{container}.guess");
        for (token, headers, body, status, words) in [
            (
                &*guess,
                vec![],
                &heartbeat,
                401,
                "MESOS_EXECUTOR_AUTHENTICATION_TOKEN",
            ),
            (
                "nonsense",
                vec![],
                &heartbeat,
                401,
                "MESOS_EXECUTOR_AUTHENTICATION_TOKEN",
            ),
            (
                "",
                vec![("Authorization", "Basic YTpi")],
                &heartbeat,
                401,
                "Bearer",
            ),
            (&*token, vec![], &heartbeat, 403, "it has not subscribed"),
            (
                &*token,
                vec![("Accept", "text/html")],
                &subscribe,
                406,
                "Expecting 'Accept' to allow",
            ),
            (
                &*token,
                vec![("Content-Encoding", "gzip")],
                &subscribe,
                415,
                "Content-Encoding",
            ),
            (
                &*token,
                vec![("Content-Type", "text/plain")],
                &subscribe,
                415,
                "Content-Type",
            ),
        ] {
            let (found, text) = said(&routes, post(token, &headers, body.clone())).await;
            assert!(
                found == status && text.contains(words),
                "{headers:?}: {found} {text}"
            );
        }
        let get = Request::get(PATH).body(Body::empty()).unwrap();
        let refused = answer(&routes, get).await;
        assert_eq!(
            (refused.status().as_u16(), &refused.headers()["Allow"]),
            (405, &"POST".parse().unwrap())
        );
        // None of them has disturbed it.
        let begun = answer(&routes, post(&token, &[], subscribe.clone())).await;
        assert_eq!(begun.status().as_u16(), 200);
        world.settle().await;
        let (status, text) = said(&routes, post(&token, &[], heartbeat)).await;
        assert_eq!((status, &*text), (202, ""));
    });
}

/// A body costs memory and time, and nobody who is not known shall ask for them.
#[test]
fn a_token_is_looked_at_before_any_of_the_body_is_read() {
    for authenticates in [true, false] {
        let cast = Cast {
            authenticates,
            ..Cast::default()
        };
        world(cast, |world| async move {
            let (routes, token) = running(&world).await;
            let (container, _) = token.rsplit_once('.').unwrap();
            let guess = format!("{container}.guess");
            for (token, is_refused) in [("", authenticates), (&guess, true), (&token, false)] {
                let read = Arc::new(AtomicBool::new(false));
                let noted = read.clone();
                let body = poll_fn(move |_| {
                    noted.store(true, Ordering::Relaxed);
                    Poll::Ready(None::<std::io::Result<&str>>)
                });
                let asked = post(token, &[], Body::from_stream(body));
                let response = answer(&routes, asked).await;
                let expected = if is_refused { 401 } else { 400 };
                assert_eq!(response.status().as_u16(), expected, "{token}");
                assert_eq!(read.load(Ordering::Relaxed), !is_refused, "{token}");
                let challenge = response.headers().get("WWW-Authenticate");
                assert_eq!(challenge.is_some(), is_refused, "{token}");
            }
        });
    }
}
