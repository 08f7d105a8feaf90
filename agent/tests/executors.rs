//! Invalid calls of HTTP executors: each wrong field, and each failure of authentication (SPEC 2.1,
//! 2.5).
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test's helpers may fall like the test"
)]

mod common;
mod fixture;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, BodyDataStream};
use axum::extract::Request;
use fixture::*;
use futures_util::stream::poll_fn;
use futures_util::{FutureExt, StreamExt};
use http::api::EventStreams;
use http::testing::{REFUSAL_MAX, fetch, hostile_calls, long_list, send};
use protocol::message::scheduler::KillTask;
use protocol::{KillPolicy, TaskInfo};
use serde_json::{Value, json};
use v1::recordio::Decoder;

const PATH: &str = "/api/v1/executor";

/// The routes of an agent that runs a task of a custom executor, and the executor's token.
async fn running(world: &World) -> (Router, String) {
    running_of(world, custom("a")).await
}

async fn running_of(world: &World, task: TaskInfo) -> (Router, String) {
    world.master.run(vec![task]);
    world.settle().await;
    let request = world.launcher.launched.lock().unwrap()[0].clone();
    let token = request.environment["MESOS_EXECUTOR_AUTHENTICATION_TOKEN"].clone();
    let (agent, node) = (&world.agent, &world.node);
    let counters = meros_agent::counters(agent);
    let routes = meros_agent::routes(agent, node, counters, &EventStreams::new(node));
    (routes, token)
}

/// A call of the running executor.
fn call(kind: &str, more: Value) -> Value {
    let mut call = json!({
        "executor_id": { "value": "own" }, "framework_id": { "value": framework_id().as_str() }, "type": kind,
    });
    let fields = more.as_object().cloned().unwrap_or_default();
    call.as_object_mut().unwrap().extend(fields);
    call
}

/// An update with one field of its status changed or removed.
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

/// The events waiting in a stream.
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

/// SPEC 2.5, 2.8: all event fields that Mesos executors read.
// Covers 2.5 SUBSCRIBED, LAUNCH, KILL, ACKNOWLEDGED, MESSAGE, ERROR, SHUTDOWN, HEARTBEAT.
#[test]
fn events_contain_all_fields_of_the_schema() {
    world(FixtureOptions::default(), |world| async move {
        let mut task = custom("a");
        task.executor.as_mut().unwrap().data = b"hello".to_vec();
        let (routes, token) = running_of(&world, task).await;
        let subscribe = call("SUBSCRIBE", json!({ "subscribe": {} })).to_string();
        let begun = send(&routes, post(&token, &[], subscribe)).await;
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

/// SPEC 2.5: the executor must be able to drop it.
// Covers 2.5 UPDATE, MESSAGE, HEARTBEAT.
#[test]
fn status_of_an_unknown_task_is_acknowledged_and_dropped() {
    world(FixtureOptions::default(), |world| async move {
        let (routes, token) = running(&world).await;
        let subscribe = call("SUBSCRIBE", json!({ "subscribe": {} })).to_string();
        let begun = send(&routes, post(&token, &[], subscribe)).await;
        world.settle().await;
        let mut stream = begun.into_body().into_data_stream();
        assert_eq!(events(&mut stream).len(), 2);
        let unknown = update("task_id", json!({ "value": "nobodys" }));
        let unknown = call("UPDATE", json!({ "update": unknown })).to_string();
        let taken = send(&routes, post(&token, &[], unknown)).await;
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

/// SPEC 2.1, 2.5: each by its invalid field.
// Covers 2.5 UPDATE, MESSAGE, HEARTBEAT.
#[test]
fn invalid_fields_are_named_without_effect() {
    world(FixtureOptions::default(), |world| async move {
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
            (
                own("type", json!("BREW")),
                "Failed to validate Executor::Call: Expecting 'type' to be present",
            ),
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
            (
                call("UPDATE", json!({})),
                "Failed to validate Executor::Call: Expecting 'update' to be present",
            ),
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
                "Failed to validate Executor::Call: Received TASK_STAGING from executor own of framework m-0000 which is not allowed",
            ),
            (
                status("source", json!("SOURCE_MASTER")),
                "Failed to validate Executor::Call: Received Call from executor own of framework m-0000 with invalid source, expecting 'SOURCE_EXECUTOR'",
            ),
            (
                status("executor_id", json!({ "value": "other" })),
                "Failed to validate Executor::Call: ExecutorID in Call: own does not match ExecutorID in TaskStatus: other",
            ),
            (
                status("uuid", Value::Null),
                "Failed to validate Executor::Call: Expecting 'uuid' to be present",
            ),
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
            (
                call("MESSAGE", json!({})),
                "Failed to validate Executor::Call: Expecting 'message' to be present",
            ),
            (call("MESSAGE", json!({ "message": {} })), "message.data"),
            (
                call("MESSAGE", json!({ "message": { "data": "%" } })),
                "message.data",
            ),
            (
                call("SUBSCRIBE", json!({})),
                "Failed to validate Executor::Call: Expecting 'subscribe' to be present",
            ),
            (
                subscribe(json!({ "unacknowledged_tasks": [{ "name": "t" }] })),
                "subscribe.unacknowledged_tasks[0].",
            ),
            (
                updates("state", json!("TASK_STAGING")),
                "Received TASK_STAGING from executor own",
            ),
            (
                updates("uuid", Value::Null),
                "unacknowledged_updates[1].status.uuid is `absent`",
            ),
            (
                subscribe(json!({ "unacknowledged_updates": many })),
                "subscribe.unacknowledged_updates is `a list of 50001`: expected at most 50000",
            ),
        ];
        for (body, words) in cases {
            let (status, text) = fetch(&routes, post(&token, &[], body.to_string())).await;
            let coverage: String = body.to_string().chars().take(300).collect();
            assert!(
                status == 400 && text.contains(words),
                "{coverage}: {status} {text}"
            );
        }
        world.settle().await;
        assert!(world.master.last("a").is_none());
    });
}

/// SPEC 2.8, TaskStatus: container, check and limit fields of the executor are forwarded unchanged;
/// the agent adds missing ones.
#[test]
fn status_fields_are_forwarded_unchanged() {
    world(FixtureOptions::default(), |world| async move {
        let (routes, token) = running(&world).await;
        let subscribe = call("SUBSCRIBE", json!({ "subscribe": {} })).to_string();
        let events = send(&routes, post(&token, &[], subscribe)).await.status();
        assert_eq!(events, 200);
        let whole = json!({
            "container_status": {
                "network_infos": [{ "name": "bridge" }],
                "container_id": { "value": "c", "parent": { "value": "p" } },
            },
            "check_status": { "type": "TCP", "tcp": { "succeeded": true } },
            "limitation": { "resources": [{ "name": "mem", "type": "SCALAR", "scalar": { "value": 64.0 } }] },
        });
        for (uuid, message) in [
            ("AAAAAAAAAAAAAAAAAAAAAA==", json!({})),
            ("AQEBAQEBAQEBAQEBAQEBAQ==", whole),
        ] {
            let mut update = update("uuid", json!(uuid));
            let status = update["status"].as_object_mut().unwrap();
            status.extend(message.as_object().cloned().unwrap());
            let update = call("UPDATE", json!({ "update": update })).to_string();
            assert_eq!(send(&routes, post(&token, &[], update)).await.status(), 202);
            world.settle().await;
            let told = world.master.last("a").unwrap().status;
            let own = world.launcher.launched.lock().unwrap()[0]
                .container_id
                .clone();
            // An executor may name a container nested in its own.
            let nested = "p.c".parse().unwrap();
            let is_named = uuid.starts_with("AQ");
            assert_eq!(
                told.container_id,
                Some(if is_named { nested } else { own.clone() })
            );
            let told = v1::json::write(&v1::schema::TaskStatus::from(&told));
            let told: Value = serde_json::from_slice(&told).unwrap();
            for field in ["container_status", "check_status", "limitation"] {
                let usual = match field {
                    "container_status" => json!({ "container_id": { "value": own.as_str() } }),
                    _ => Value::Null,
                };
                assert_eq!(
                    told[field],
                    *message.get(field).unwrap_or(&usual),
                    "{field}"
                );
            }
            assert_eq!(told["labels"], Value::Null);
        }
    });
}

/// SPEC 2.1, 2.5: arbitrary bytes, also with a valid token, including lists of a million entries.
// Covers 2.5 UPDATE, MESSAGE, HEARTBEAT.
#[test]
fn garbage_is_rejected_even_with_a_token() {
    world(FixtureOptions::default(), |world| async move {
        let (routes, token) = running(&world).await;
        let whole = call(
            "UPDATE",
            json!({ "update": update("labels", json!({ "labels": ["HERE"] })) }),
        )
        .to_string();
        let (before, after) = whole.split_once("\"HERE\"").unwrap();
        for hostile in hostile_calls([before, after]) {
            let headers = [("Content-Type", hostile.content_type)];
            let (status, text) = fetch(&routes, post(&token, &headers, hostile.body)).await;
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

/// SPEC 2.1: a million valid entries, or as many as a call may have.
// Covers 2.1 400, 406, 413, 415.
#[test]
fn huge_calls_are_accepted_or_rejected_with_a_reason() {
    world(FixtureOptions::default(), |world| async move {
        let (routes, token) = running(&world).await;
        let plain = call("SUBSCRIBE", json!({ "subscribe": {} })).to_string();
        let stream = send(&routes, post(&token, &[], plain)).await;
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
            let body = long_list([before, after], entry);
            let asked = fetch(&routes, post(&token, &[], body));
            let other = fetch(&routes, Request::get("/state").body(Body::empty()).unwrap());
            let ((status, text), (other, _)) = futures_util::join!(asked, other);
            let coverage: String = text.chars().take(200).collect();
            assert!(
                status == 202
                    || (400..500).contains(&status) && text.contains(words) && text.len() > 10,
                "{}: {status} {coverage}",
                call["type"]
            );
            assert_eq!(other, 200);
        }
        let update = call("UPDATE", json!({ "update": update("labels", json!({})) })).to_string();
        assert_eq!(
            send(&routes, post(&token, &[], update)).await.status(),
            202,
            "its calls are accepted as before"
        );
        drop(stream);
    });
}

/// SPEC 2.1, 2.5: identity, headers and state.
// Covers 2.5 UPDATE, MESSAGE, HEARTBEAT; 2.1 400, 406, 413, 415.
#[test]
fn rejected_calls_state_the_expectation() {
    world(FixtureOptions::default(), |world| async move {
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
            (
                &*token,
                vec![],
                &heartbeat,
                403,
                "Executor is not subscribed",
            ),
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
            let (found, text) = fetch(&routes, post(token, &headers, body.clone())).await;
            assert!(
                found == status && text.contains(words),
                "{headers:?}: {found} {text}"
            );
        }
        let get = Request::get(PATH).body(Body::empty()).unwrap();
        let refused = send(&routes, get).await;
        assert_eq!(
            (refused.status().as_u16(), &refused.headers()["Allow"]),
            (405, &"POST".parse().unwrap())
        );
        // The executor is not disturbed by any of them.
        let begun = send(&routes, post(&token, &[], subscribe.clone())).await;
        assert_eq!(begun.status().as_u16(), 200);
        world.settle().await;
        let (status, text) = fetch(&routes, post(&token, &[], heartbeat)).await;
        assert_eq!((status, &*text), (202, ""));
    });
}

/// A body costs memory and time, so it is not read without authentication.
#[test]
fn token_is_checked_before_the_body() {
    for authenticates in [true, false] {
        let options = FixtureOptions {
            authenticates,
            ..FixtureOptions::default()
        };
        world(options, |world| async move {
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
                let response = send(&routes, asked).await;
                let expected = if is_refused { 401 } else { 400 };
                assert_eq!(response.status().as_u16(), expected, "{token}");
                assert_eq!(read.load(Ordering::Relaxed), !is_refused, "{token}");
                let challenge = response.headers().get("WWW-Authenticate");
                assert_eq!(challenge.is_some(), is_refused, "{token}");
            }
        });
    }
}
