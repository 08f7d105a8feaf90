//! Answers of a master that does not lead, for each endpoint (SPEC 2.1: 307, 503), except questions
//! about itself.

use axum::http::header::{LOCATION, RETRY_AFTER};
use v1::schema::master::CallType;

use super::*;
use crate::registry::{FaultPlan, FaultyRegistry};

/// Each path with a supported method; questions about any master are answered by the process.
fn requests() -> Vec<(&'static str, String, String)> {
    let reads = [
        "/state",
        "/state.json",
        "/state-summary",
        "/slaves",
        "/frameworks",
        "/tasks",
        "/roles",
        "/weights",
        "/quota",
        "/flags",
        "/explain?framework=f",
        "/allocator/offer_constraints_debug",
        "/maintenance/schedule",
        "/maintenance/status",
    ];
    let writes = [
        ("PUT", "/weights"),
        ("POST", "/quota"),
        ("PUT", "/quota"),
        ("DELETE", "/quota/r"),
        ("POST", "/maintenance/schedule"),
        ("POST", "/machine/down"),
        ("POST", "/machine/up"),
        ("POST", "/reserve"),
        ("POST", "/unreserve"),
        ("POST", "/create-volumes"),
        ("POST", "/destroy-volumes"),
        ("POST", "/teardown"),
        ("POST", "/api/v1/scheduler"),
    ];
    let reads = reads.map(|path| ("GET", path));
    let nothing = reads.into_iter().chain(writes);
    let nothing = nothing.map(|(method, path)| (method, path.to_owned(), String::new()));
    let calls = [
        json!({ "type": "GET_STATE" }),
        json!({ "type": "GET_OPERATIONS" }),
        json!({ "type": "GET_MAINTENANCE_STATUS" }),
        json!({ "type": "SUBSCRIBE" }),
        json!({ "type": "UPDATE_WEIGHTS", "update_weights": { "weight_infos": [] } }),
        json!({ "type": "TEARDOWN", "teardown": { "framework_id": { "value": "f" } } }),
    ];
    let calls = calls.map(|call| ("POST", "/api/v1".to_owned(), call.to_string()));
    nothing.chain(calls).collect()
}

/// SPEC 2.1: in the header and in words.
// Covers 2.1 307, 503.
#[test]
fn endpoints_redirect_to_the_leader_or_report_none() {
    simulate(|node| async move {
        let own = pages(&node, &master(&node).await);
        for leader in [Some("leader:5050"), None] {
            let local = LocalLeader::elsewhere(leader);
            let elsewhere = Pages {
                local,
                ..own.clone()
            };
            let routes = all_routes(&node, elsewhere);
            for (method, path, body) in requests() {
                for path in [path.clone(), format!("/master{path}")] {
                    let asked = ::http::testing::request(method, &path, JSON, body.clone());
                    let answer = ::http::testing::send(&routes, asked).await;
                    let (status, head) = (answer.status().as_u16(), answer.headers());
                    let wanted = match leader {
                        Some(leader) => (307, Some(format!("//{leader}{path}")), None),
                        None => (503, None, Some("1".to_owned())),
                    };
                    let told = |name| {
                        head.get(name)
                            .map(|value| value.to_str().unwrap().to_owned())
                    };
                    let found = (status, told(LOCATION), told(RETRY_AFTER));
                    assert_eq!(found, wanted, "{method} {path} {body}");
                    let words = match leader {
                        Some(leader) => {
                            format!("the leading master is at {leader}\n")
                        }
                        None => "No leader elected".to_owned(),
                    };
                    let text = axum::body::to_bytes(answer.into_body(), 1 << 10).await;
                    assert_eq!(text.unwrap(), words, "{method} {path} {body}");
                }
            }
            for kind in [
                CallType::GetHealth,
                CallType::GetVersion,
                CallType::GetMetrics,
            ] {
                let call = json!({ "type": kind.name() }).to_string();
                let asked = ::http::testing::request("POST", "/api/v1", JSON, call);
                let (status, text) = ::http::testing::fetch(&routes, asked).await;
                assert_eq!(status, 200, "{kind}: {text}");
            }
        }
    });
}

/// A cluster of which nothing is known yet is not an empty one.
#[test]
fn master_without_its_registry_shows_no_state() {
    simulate(|node| async move {
        let idle = node.spawn("allocator", Idle).unwrap();
        let faults = FaultPlan::none();
        faults.delay(Duration::from_secs(3));
        let registry = FaultyRegistry::new(faults, node.clock().clone());
        let allocator = AllocatorRef::new(idle.refer());
        let started = crate::start(&node, config(), 0, allocator, Box::new(registry)).unwrap();
        let routes = all_routes(&node, pages(&node, &started.master));
        let paths = ["/state", "/slaves", "/quota", "/weights", "/roles"];
        for wanted in [503, 200] {
            for path in paths {
                let (status, text) = answered(&routes, Method::GET, path, "").await;
                assert_eq!(status, wanted, "{path}: {text}");
            }
            let (status, text) = answered(&routes, Method::DELETE, "/quota/eng", "").await;
            let wanted_then = if wanted == 503 { 503 } else { 400 };
            assert_eq!(status, wanted_then, "{text}");
            node.clock().sleep(Duration::from_secs(4)).await;
        }
    });
}
