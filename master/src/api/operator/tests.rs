//! Tests of the operator API: each call in both forms, and each kind of refusal.

use std::sync::Arc;

use authority::{Acls, Subject};
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::response::Response;
use proptest::prelude::*;
use runtime::testing::simulate;
use runtime::{Node, prelude::*};
use serde_json::{Value, json};
use testkit::rows;
use v1::describe::build;
use v1::message::Enum;
use v1::schema::master::{CallType, Response as Answer};
use v1::{Form, Limits};

use super::super::PublishedFlags;
use super::super::tests::{bare_master, master, pages};
use super::{Pages, answer, answers, serve};
use crate::api::pages::visible::VisibleState;
use crate::api::visibility::Visibility;
use crate::leadership::mirror::tests::properties::{events, happen, state};

fn request(body: impl Into<Body>, content_type: &str, accept: &str) -> Request {
    let request = Request::builder()
        .method("POST")
        .uri("/api/v1")
        .header(CONTENT_TYPE, content_type)
        .header(ACCEPT, accept);
    request.body(body.into()).unwrap()
}

async fn bytes(response: Response) -> Vec<u8> {
    let bytes = to_bytes(response.into_body(), 1 << 20).await.unwrap();
    bytes.to_vec()
}

const JSON: &str = "application/json";

/// The status and the text of the answer to this.
async fn post(pages: &Pages, body: Value) -> (StatusCode, String) {
    let response = serve(
        State(pages.clone()),
        request(body.to_string(), JSON, "application/json"),
    )
    .await;
    let status = response.status();
    (status, String::from_utf8(bytes(response).await).unwrap())
}

async fn asked(pages: &Pages, body: Value) -> Value {
    let (status, text) = post(pages, body).await;
    assert_eq!(status, StatusCode::OK, "{text}");
    serde_json::from_str(&text).unwrap()
}

async fn staged(node: &Node) -> (Handle<crate::Master>, Pages) {
    let master = master(node).await;
    let pages = pages(node, &master);
    (master, pages)
}

/// SPEC 2.6: as in Mesos' JSON, where clients index them.
#[test]
fn empty_lists_are_present_in_a_state() {
    simulate(|node| async move {
        let (master, _allocator) = bare_master(&node).await;
        let pages = pages(&node, &master);
        let state = asked(&pages, json!({ "type": "GET_STATE" })).await;
        for (kind, field, lists) in [
            (
                "GET_AGENTS",
                "get_agents",
                &["agents", "recovered_agents"][..],
            ),
            (
                "GET_FRAMEWORKS",
                "get_frameworks",
                &["frameworks", "completed_frameworks"],
            ),
            ("GET_EXECUTORS", "get_executors", &["executors"]),
            (
                "GET_TASKS",
                "get_tasks",
                &["tasks", "unreachable_tasks", "completed_tasks"],
            ),
        ] {
            let answer = asked(&pages, json!({ "type": kind })).await;
            for list in lists {
                assert_eq!(answer[field][list], json!([]), "{list} in {answer}");
                let same = &state["get_state"][field][list];
                assert_eq!(*same, json!([]), "{list} in {state}");
            }
        }
    });
}

/// SPEC 2.6.
#[test]
fn questions_have_the_same_answers_in_both_forms() {
    simulate(|node| async move {
        let (_master, pages) = staged(&node).await;
        for (kind, field) in [
            ("GET_HEALTH", "get_health"),
            ("GET_FLAGS", "get_flags"),
            ("GET_VERSION", "get_version"),
            ("GET_METRICS", "get_metrics"),
            ("GET_MASTER", "get_master"),
            ("GET_STATE", "get_state"),
            ("GET_AGENTS", "get_agents"),
            ("GET_FRAMEWORKS", "get_frameworks"),
            ("GET_EXECUTORS", "get_executors"),
            ("GET_TASKS", "get_tasks"),
            ("GET_ROLES", "get_roles"),
            ("GET_OPERATIONS", "get_operations"),
            ("GET_WEIGHTS", "get_weights"),
            ("GET_QUOTA", "get_quota"),
            ("GET_MAINTENANCE_STATUS", "get_maintenance_status"),
            ("GET_MAINTENANCE_SCHEDULE", "get_maintenance_schedule"),
        ] {
            let call = json!({ "type": kind });
            let answer = asked(&pages, call.clone()).await;
            assert_eq!(answer["type"], kind);
            if kind == "GET_VERSION" {
                assert_eq!(answer[field]["version_info"]["version"], "1.11.0");
            }
            assert!(answer[field].is_object(), "{answer}");
            let asked = request(call.to_string(), JSON, "application/x-protobuf");
            let response = serve(State(pages.clone()), asked).await;
            assert_eq!(response.headers()[CONTENT_TYPE], "application/x-protobuf");
            let same: Answer = Form::Protobuf
                .read(&bytes(response).await, Limits::default())
                .unwrap();
            // Metrics of the runtime go on meanwhile.
            if kind != "GET_METRICS" {
                let again: Value = serde_json::from_slice(&Form::Json.write(&same)).unwrap();
                assert_eq!(again, answer, "{kind}");
            }
        }
        let files = asked(
            &pages,
            json!({ "type": "LIST_FILES", "list_files": { "path": "/" } }),
        );
        assert_eq!(files.await["type"], "LIST_FILES");
    });
}

/// SPEC 2.6, 2.8.
#[test]
fn answer_describes_agents_and_frameworks_completely() {
    simulate(|node| async move {
        let (_master, pages) = staged(&node).await;
        let state = asked(&pages, json!({ "type": "GET_STATE" })).await;
        let agent = &state["get_state"]["get_agents"]["agents"][0];
        assert_eq!(agent["agent_info"]["hostname"], "host-1");
        assert_eq!(agent["active"], true);
        assert_eq!(agent["pid"], "slave(1)@host-1:5051");
        assert_eq!(agent["capabilities"][0]["type"], "MULTI_ROLE");
        assert!(agent["registered_time"]["nanoseconds"].is_number());
        let framework = &state["get_state"]["get_frameworks"]["frameworks"][0];
        assert_eq!(framework["framework_info"]["name"], "web");
        assert_eq!(framework["connected"], true);
        assert_eq!(framework["recovered"], false);
        let weights = asked(&pages, json!({ "type": "GET_WEIGHTS" })).await;
        let weight = json!([{ "weight": 2.0, "role": "dev" }]);
        assert_eq!(weights["get_weights"]["weight_infos"], weight);
        let health = asked(&pages, json!({ "type": "GET_HEALTH" })).await;
        assert_eq!(health["get_health"]["healthy"], true);
    });
}

/// SPEC 2.6, 3.4.
#[test]
fn operator_changes_have_the_pages_status_codes() {
    simulate(|node| async move {
        let (_master, pages) = staged(&node).await;
        let weights = json!({ "type": "UPDATE_WEIGHTS", "update_weights": { "weight_infos": [{ "role": "ops", "weight": 3.0 }] } });
        assert_eq!(post(&pages, weights).await.0, StatusCode::OK);
        let said = asked(&pages, json!({ "type": "GET_WEIGHTS" })).await;
        assert_eq!(
            said["get_weights"]["weight_infos"]
                .as_array()
                .unwrap()
                .len(),
            2
        );

        let quota = |cpus: f64, force: bool| json!({ "type": "UPDATE_QUOTA", "update_quota": { "force": force, "quota_configs": [{ "role": "ops", "guarantees": { "cpus": { "value": cpus } } }] } });
        let (status, text) = post(&pages, quota(1000.0, false)).await;
        let words = "Invalid QuotaConfig: total quota guarantees 'cpus:1000' exceed cluster capacity 'cpus:4; mem:512' (use 'force' flag to bypass this check)";
        assert_eq!((status, &*text), (StatusCode::BAD_REQUEST, words));
        assert_eq!(post(&pages, quota(2.0, false)).await.0, StatusCode::OK);
        let said = asked(&pages, json!({ "type": "GET_QUOTA" })).await;
        let status = &said["get_quota"]["status"];
        assert_eq!(status["configs"][0]["guarantees"]["cpus"]["value"], 2.0);
        assert_eq!(status["infos"][0]["guarantee"][0]["scalar"]["value"], 2.0);
        let oldest = |role: &str, cpus: f64| json!({ "type": "SET_QUOTA", "set_quota": { "quota_request": { "role": role, "guarantee": [{ "name": "cpus", "type": "SCALAR", "scalar": { "value": cpus } }] } } });
        let (status, text) = post(&pages, oldest("ops", 1.0)).await;
        let words = "Failed to validate set quota request: Cannot set quota for role 'ops' which already has quota";
        assert_eq!((status, &*text), (StatusCode::BAD_REQUEST, words));
        let (status, text) = post(&pages, oldest("dev", 100.0)).await;
        let words = "Quota guarantees overcommit the cluster (use 'force' to bypass this check): Total quota guarantees 'cpus:102' exceed cluster capacity 'cpus:4; mem:512'";
        assert_eq!((status, &*text), (StatusCode::CONFLICT, words));
        assert_eq!(post(&pages, oldest("dev", 1.0)).await.0, StatusCode::OK);
        let remove = json!({ "type": "REMOVE_QUOTA", "remove_quota": { "role": "dev" } });
        assert_eq!(post(&pages, remove.clone()).await.0, StatusCode::OK);
        let (status, text) = post(&pages, remove).await;
        let words = "Failed to remove quota: Role 'dev' has no quota set";
        assert_eq!((status, &*text), (StatusCode::BAD_REQUEST, words));

        let state = asked(&pages, json!({ "type": "GET_FRAMEWORKS" })).await;
        let id = state["get_frameworks"]["frameworks"][0]["framework_info"]["id"].clone();
        let down = json!({ "type": "TEARDOWN", "teardown": { "framework_id": id } });
        assert_eq!(post(&pages, down.clone()).await.0, StatusCode::OK);
        let state = asked(&pages, json!({ "type": "GET_FRAMEWORKS" })).await;
        assert_eq!(state["get_frameworks"]["frameworks"], json!([]));
        let ended = &state["get_frameworks"]["completed_frameworks"][0];
        assert_eq!(ended["framework_info"]["name"], "web");
        let (status, text) = post(&pages, down).await;
        let words = "No framework found with specified ID";
        assert_eq!((status, &*text), (StatusCode::BAD_REQUEST, words));

        let reserve = |agent: &str| json!({ "type": "RESERVE_RESOURCES", "reserve_resources": { "agent_id": { "value": agent }, "resources": [{ "name": "cpus", "type": "SCALAR", "scalar": { "value": 1.0 }, "reservations": [{ "type": "DYNAMIC", "role": "ops" }] }] } });
        let (status, text) = post(&pages, reserve("nobody")).await;
        assert_eq!(status, StatusCode::BAD_REQUEST);
        assert_eq!(text.trim_end(), "No agent found with specified ID");
    });
}

/// SPEC 3.6: the order of things is schedule, down, up.
#[test]
fn machine_maintenance_has_mesos_status_codes() {
    simulate(|node| async move {
        let (_master, pages) = staged(&node).await;
        let machines = |kind: &str, field: &str, hostname: &str| json!({ "type": kind, field: { "machines": [{ "hostname": hostname }] } });
        let down = |hostname| machines("START_MAINTENANCE", "start_maintenance", hostname);
        let up = |hostname| machines("STOP_MAINTENANCE", "stop_maintenance", hostname);
        let window = |hostname: &str| json!({ "machine_ids": [{ "hostname": hostname }], "unavailability": { "start": { "nanoseconds": 5 }, "duration": { "nanoseconds": 7 } } });
        let schedule = |windows: Value| json!({ "type": "UPDATE_MAINTENANCE_SCHEDULE", "update_maintenance_schedule": { "schedule": { "windows": windows } } });
        let nothing =
            json!({ "machine_ids": [], "unavailability": { "start": { "nanoseconds": 5 } } });
        let cases = r#"
            down host-2 | 400 | Machine '{"hostname":"host-2"}' is not part of a maintenance schedule
            schedule  | 400 | machine_id
            schedule a,A | 400 | Machine '{"hostname":"a"}' appears more than once in the schedule
            nothing | 400 | List of machines in the maintenance window is empty
            schedule host-2,host-3 | 200 |
            up host-2 | 400 | is not in DOWN mode and cannot be brought up
            down Host-2 | 200 |
            down host-2 | 400 | is not in DRAINING mode and cannot be brought down
            schedule host-3 | 400 | Machine '{"hostname":"host-2"}' is deactivated and cannot be removed from the schedule
        "#;
        for [step, status, words] in rows(cases) {
            let (kind, hosts) = step.split_once(' ').unwrap_or((step, ""));
            let body = match kind {
                "down" => down(hosts),
                "up" => up(hosts),
                "nothing" => schedule(json!([nothing])),
                _ => schedule(hosts.split(',').map(window).collect()),
            };
            let (found, text) = post(&pages, body).await;
            assert_eq!(found.as_str(), status, "{step}: {text}");
            assert!(text.contains(words), "{step}: {text}");
        }
        let said = asked(&pages, json!({ "type": "GET_MAINTENANCE_SCHEDULE" })).await;
        let said = &said["get_maintenance_schedule"]["schedule"]["windows"];
        assert_eq!(*said, json!([window("host-2"), window("host-3")]));
        let said = asked(&pages, json!({ "type": "GET_MAINTENANCE_STATUS" })).await;
        let said = &said["get_maintenance_status"]["status"];
        assert_eq!(said["down_machines"], json!([{ "hostname": "host-2" }]));
        assert_eq!(
            said["draining_machines"],
            json!([{ "id": { "hostname": "host-3" } }])
        );
        assert_eq!(post(&pages, up("host-2")).await.0, StatusCode::OK);
        let said = asked(&pages, json!({ "type": "GET_MAINTENANCE_SCHEDULE" })).await;
        let said = &said["get_maintenance_schedule"]["schedule"]["windows"];
        assert_eq!(*said, json!([window("host-3")]));
    });
}

/// SPEC 3.2, 3.12.
#[test]
fn agent_orders_have_mesos_status_codes() {
    simulate(|node| async move {
        let (_master, pages) = staged(&node).await;
        let agents =
            async || asked(&pages, json!({ "type": "GET_AGENTS" })).await["get_agents"].take();
        let id = agents().await["agents"][0]["agent_info"]["id"].take();
        let order = |kind: &str, id: &Value| {
            let mut call = json!({ "type": kind });
            call[kind.to_lowercase()] = json!({ "agent_id": id });
            call
        };
        assert_eq!(post(&pages, order("DEACTIVATE_AGENT", &id)).await.0, 200);
        let agent = agents().await["agents"][0].take();
        assert_eq!(
            (&agent["active"], &agent["deactivated"]),
            (&json!(false), &json!(true))
        );
        assert_eq!(agent["drain_info"], Value::Null);
        let mut drain = order("DRAIN_AGENT", &id);
        drain["drain_agent"]["max_grace_period"] = json!({ "seconds": -1 });
        let (status, text) = post(&pages, drain.clone()).await;
        assert!(
            status == 400 && text.contains("max_grace_period.seconds"),
            "{text}"
        );
        drain["drain_agent"]["max_grace_period"] = json!({ "seconds": 7, "nanos": 5 });
        assert_eq!(post(&pages, drain).await.0, 200);
        node.clock()
            .advance(std::time::Duration::from_secs(1))
            .await;
        let drained = agents().await["agents"][0]["drain_info"].take();
        let config =
            json!({ "max_grace_period": { "nanoseconds": 7_000_000_005_i64 }, "mark_gone": false });
        assert_eq!(drained, json!({ "state": "DRAINED", "config": config }));
        assert_eq!(post(&pages, order("REACTIVATE_AGENT", &id)).await.0, 200);
        assert_eq!(agents().await["agents"][0]["active"], true);
        assert_eq!(post(&pages, order("MARK_AGENT_GONE", &id)).await.0, 200);
        assert_eq!(agents().await["agents"], json!([]));
        assert_eq!(post(&pages, order("MARK_AGENT_GONE", &id)).await.0, 200);
        let unknown = json!({ "value": "nobody" });
        let (status, text) = post(&pages, order("MARK_AGENT_GONE", &unknown)).await;
        assert_eq!((status.as_u16(), &*text), (404, "Agent 'nobody' not found"));
        for kind in ["DEACTIVATE_AGENT", "REACTIVATE_AGENT", "DRAIN_AGENT"] {
            let (status, text) = post(&pages, order(kind, &id)).await;
            assert_eq!((status.as_u16(), &*text), (400, "Unknown agent"));
        }
    });
}

/// SPEC 2.1: each call that is not served, by its name.
// Covers 2.1 400, 406, 413, 415.
#[test]
fn unsupported_and_invalid_calls_are_refused_with_reasons() {
    simulate(|node| async move {
        let (_master, pages) = staged(&node).await;
        // A rehearsal has no log that could be changed.
        let louder = json!({ "type": "SET_LOGGING_LEVEL", "set_logging_level": { "level": 1, "duration": { "nanoseconds": 1 } } });
        let (status, text) = post(&pages, louder).await;
        assert_eq!(status, StatusCode::NOT_IMPLEMENTED);
        assert!(text.contains("SET_LOGGING_LEVEL"), "{text}");
        // As by Mesos: no negative timeout is waited for.
        let cases = r#"
            {} | 400 | master::Call: Expecting 'type' to be present
            {"type":"MAKE_COFFEE"} | 400 | master::Call: Expecting 'type' to be present
            {"type":"TEARDOWN"} | 400 | master::Call: Expecting 'teardown' to be present
            {"type":"LIST_FILES"} | 400 | master::Call: Expecting 'list_files' to be present
            {"type":"READ_FILE"} | 400 | master::Call: Expecting 'read_file' to be present
            {"type":"SET_LOGGING_LEVEL"} | 400 | master::Call: Expecting 'set_logging_level' to be present
            {"type":"GET_METRICS","get_metrics":{"timeout":{"nanoseconds":-1}}} | 200 | metrics
            {"type":"READ_FILE","read_file":{"path":"/master/log","offset":0}} | 404 | /master/log
            [1] | 400 | expected
        "#;
        for [body, status, words] in rows(cases) {
            let (found, text) = post(&pages, serde_json::from_str(body).unwrap()).await;
            assert_eq!(found.as_str(), status, "{body}: {text}");
            assert!(text.contains(words), "{body}: {text}");
        }
        let ask = r#"{"type":"GET_STATE"}"#;
        for (content_type, accept, status, words) in [
            (
                JSON,
                "text/html",
                406,
                "Expecting 'Accept' to allow 'application/x-protobuf' or 'application/json'",
            ),
            (
                "text/plain",
                JSON,
                415,
                "Expecting 'Content-Type' of application/json or application/x-protobuf",
            ),
        ] {
            let answer = serve(State(pages.clone()), request(ask, content_type, accept)).await;
            let found = answer.status();
            let text = String::from_utf8(bytes(answer).await).unwrap();
            assert!(found == status && text.starts_with(words), "{found} {text}");
        }
        // The answer to a change has no message whose form could be wanted.
        let change = r#"{"type":"UPDATE_WEIGHTS","update_weights":{"weight_infos":[{"role":"ops","weight":3.0}]}}"#;
        let answer = serve(State(pages.clone()), request(change, JSON, "text/html")).await;
        assert_eq!(answer.status(), 200);
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// For any state and any visibility.
    #[test]
    fn answers_are_encoded_as_their_messages(rounds in events(), seen in 0..3_usize) {
        let mut state = state();
        for (time, event) in rounds.into_iter().flatten().enumerate() {
            happen(&mut state, event, 10 + time as u64);
        }
        let acls = [
            "{}",
            r#"{"view_tasks":[{"principals":{"type":"ANY"},"users":{"type":"NONE"}}]}"#,
            r#"{"view_roles":[{"principals":{"type":"ANY"},"roles":{"type":"NONE"}}]}"#,
        ];
        let acls = Acls::parse(acls[seen]).unwrap();
        let state = Visibility::of(&acls, &Subject::named("p")).filter(&Arc::new(state));
        let (visible, published) = (VisibleState::of(&state), &PublishedFlags::default());
        for kind in [
            CallType::GetFlags,
            CallType::GetMaster,
            CallType::GetState,
            CallType::GetAgents,
            CallType::GetFrameworks,
            CallType::GetExecutors,
            CallType::GetTasks,
            CallType::GetRoles,
            CallType::GetOperations,
            CallType::GetWeights,
            CallType::GetQuota,
        ] {
            let message: Answer = build(&answers::Answer { kind, visible, published });
            for form in [Form::Json, Form::Protobuf] {
                let written = answer(form, kind, visible, published, None);
                prop_assert!(written == form.write(&message), "{} {:?}", kind, form);
            }
        }
    }
}

/// A new call in the schema must be classified here as served or not.
// Covers 2.6, 2.7 Calls that are not served.
#[test]
fn no_call_is_forgotten() {
    simulate(|node| async move {
        let (_master, pages) = staged(&node).await;
        let calls = CallType::VALUES.iter().skip(1);
        // A stream has no end; it is tested elsewhere.
        for (_, _, name) in calls.filter(|(kind, ..)| *kind != CallType::Subscribe) {
            let (status, text) = post(&pages, json!({ "type": name })).await;
            let right = match status.as_u16() {
                200 => true,
                501 => text.contains(name),
                400 => text.starts_with("Failed to validate master::Call: "),
                _ => false,
            };
            assert!(right, "{name}: {status} {text}");
        }
    });
}
