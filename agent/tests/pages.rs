//! The agent's routes in virtual time: the ACL action of each, their copies under `/slave(1)`, and
//! rejection of invalid requests (SPEC 2.1, 2.5, 2.7, 3.7, 3.9).
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test's helpers may fall like the test"
)]

mod calls;
mod common;
mod fixture;
mod metrics;
mod sandboxes;

use std::time::Duration;

use authority::{Acls, Action};
use axum::Router;
use fixture::*;
use http::api::EventStreams;
use http::testing::{fetch, hostile_calls, request, wrong_answers};
use meros_agent::LauncherEvent;
use protocol::Termination;
use protocol::message::task::DrainTasks;
use serde_json::{Value, json};

const JSON: &str = "application/json";

/// Where an action is tested.
enum Coverage {
    /// By these requests.
    By(Vec<Case>),
    /// By a test of this name in this source, as plain functions.
    Elsewhere(&'static str, &'static str),
    /// Used by masters, never by agents.
    AtMasters,
    /// Its calls are not served: they are rejected by name.
    NotServed(&'static [&'static str]),
}

/// A request that an action authorizes. `DIR` in it is the sandbox of the only executor.
struct Case {
    method: &'static str,
    path: &'static str,
    body: String,
    /// The status if allowed.
    status: u16,
    /// The text shown only if allowed. If empty, the request is rejected with 403 otherwise.
    shows: &'static str,
    /// Further actions to allow.
    also_allowed: &'static [Action],
}

fn send(method: &'static str, path: &'static str, body: &Value, status: u16) -> Case {
    Case {
        method,
        path,
        body: body.to_string(),
        status,
        shows: "",
        also_allowed: &[],
    }
}

fn get(path: &'static str) -> Case {
    send("GET", path, &Value::Null, 200)
}

fn call(message: Value) -> Case {
    send("POST", "/api/v1", &message, 200)
}

/// A container that is not there.
fn container() -> Value {
    json!({ "value": "x", "parent": { "value": "p" } })
}

/// A call about it, with a command if it is a launch.
fn nested(call: &str, status: u16) -> Case {
    let mut about = json!({ "container_id": container() });
    if call.starts_with("launch") {
        about["command"] = json!({ "value": "true" });
    }
    let body = json!({ "type": call.to_uppercase(), call: about });
    send("POST", "/api/v1", &body, status)
}

fn question(kind: &str) -> Case {
    call(json!({ "type": kind }))
}

const TESTS: &str = include_str!("../src/api/tests/mod.rs");

/// Each action is listed here with its tests.
fn coverage(action: Action) -> Coverage {
    use Action::*;
    use Coverage::*;
    let seen = |cases: Vec<Case>, also_allowed: &'static [Action]| {
        let cases = cases.into_iter().map(|case| Case {
            shows: "the-task",
            also_allowed,
            ..case
        });
        By(cases.collect())
    };
    match action {
        ViewFlags => By(vec![
            Case {
                shows: "\"work_dir\"",
                ..get("/state")
            },
            get("/flags"),
            question("GET_FLAGS"),
        ]),
        SetLogLevel => {
            let message = json!({ "level": 1, "duration": { "nanoseconds": 1 } });
            let message = json!({ "type": "SET_LOGGING_LEVEL", "set_logging_level": message });
            // A simulation has no log level to change.
            let toggle = "/logging/toggle?level=1&duration=1mins";
            By(vec![
                Case {
                    status: 501,
                    ..call(message)
                },
                Case {
                    also_allowed: &[GetEndpoints],
                    ..send("POST", toggle, &Value::Null, 501)
                },
            ])
        }
        GetEndpoints => By(vec![
            get("/metrics"),
            get("/metrics/snapshot"),
            get("/system/stats.json"),
            get("/help"),
            get("/__processes__"),
            get("/containers"),
            get("/monitor/statistics"),
            get("/oversubscription"),
            get("/files/debug"),
            get("/containerizer/debug"),
            question("GET_METRICS"),
        ]),
        ViewFrameworks => seen(
            vec![get("/state"), question("GET_STATE")],
            &[ViewExecutors, ViewTasks],
        ),
        ViewExecutors => seen(
            vec![
                get("/state"),
                get("/state.json"),
                question("GET_STATE"),
                question("GET_EXECUTORS"),
            ],
            &[ViewFrameworks, ViewTasks],
        ),
        ViewContainers => seen(
            vec![get("/containers"), question("GET_CONTAINERS")],
            &[GetEndpoints],
        ),
        ViewTasks => seen(
            vec![question("GET_TASKS")],
            &[ViewFrameworks, ViewExecutors],
        ),
        ViewRoles => Elsewhere(TESTS, "invisible_roles_are_hidden_but_totals_stay"),
        AccessSandboxes => By(vec![
            get("/files/browse?path=DIR"),
            get("/files/download?path=DIR/stdout"),
            get("/files/read?path=DIR/stdout"),
            Case {
                shows: "the-task",
                also_allowed: &[GetEndpoints],
                ..get("/files/debug")
            },
            call(json!({ "type": "LIST_FILES", "list_files": { "path": "DIR" } })),
            call(
                json!({ "type": "READ_FILE", "read_file": { "path": "DIR/stdout", "offset": 0 } }),
            ),
        ]),
        LaunchNestedContainersAsUser => By(vec![Case {
            also_allowed: &[LaunchNestedContainersUnderParentWithUser],
            ..nested("launch_nested_container", 400)
        }]),
        LaunchNestedContainersUnderParentWithUser => By(vec![Case {
            also_allowed: &[LaunchNestedContainersAsUser],
            ..nested("launch_nested_container", 400)
        }]),
        LaunchNestedContainerSessionsAsUser => By(vec![Case {
            also_allowed: &[LaunchNestedContainerSessionsUnderParentWithUser],
            ..nested("launch_nested_container_session", 400)
        }]),
        LaunchNestedContainerSessionsUnderParentWithUser => By(vec![Case {
            also_allowed: &[LaunchNestedContainerSessionsAsUser],
            ..nested("launch_nested_container_session", 400)
        }]),
        KillNestedContainers => By(vec![nested("kill_nested_container", 404)]),
        WaitNestedContainers => By(vec![nested("wait_nested_container", 404)]),
        RemoveNestedContainers => By(vec![nested("remove_nested_container", 500)]),
        AttachContainersInput => By(vec![send(
            "POST",
            "/api/v1",
            &json!({ "type": "ATTACH_CONTAINER_INPUT", "attach_container_input": {
                "type": "CONTAINER_ID", "container_id": container(),
            } }),
            415,
        )]),
        AttachContainersOutput => By(vec![nested("attach_container_output", 404)]),
        ModifyResourceProviderConfigs => NotServed(&[
            "ADD_RESOURCE_PROVIDER_CONFIG",
            "UPDATE_RESOURCE_PROVIDER_CONFIG",
            "REMOVE_RESOURCE_PROVIDER_CONFIG",
        ]),
        MarkResourceProvidersGone => NotServed(&["MARK_RESOURCE_PROVIDER_GONE"]),
        PruneImages => By(vec![question("PRUNE_IMAGES")]),
        // There are no standalone containers, no resource providers with disks, and no log is
        // shown.
        LaunchStandaloneContainers
        | KillStandaloneContainers
        | WaitStandaloneContainers
        | RemoveStandaloneContainers
        | ViewStandaloneContainers
        | ViewResourceProviders
        | AccessMesosLogs
        | CreateBlockDisks
        | DestroyBlockDisks
        | CreateMountDisks
        | DestroyMountDisks
        | DestroyRawDisks => NotServed(&[]),
        RegisterFrameworks
        | RunTasks
        | TeardownFrameworks
        | ReserveResources
        | UnreserveResources
        | CreateVolumes
        | DestroyVolumes
        | ResizeVolumes
        | GetQuotas
        | UpdateQuotas
        | UpdateWeights
        | RegisterAgents
        | MarkAgentsGone
        | DrainAgents
        | DeactivateAgents
        | ReactivateAgents
        | GetMaintenanceSchedules
        | UpdateMaintenanceSchedules
        | StartMaintenances
        | StopMaintenances
        | GetMaintenanceStatuses => AtMasters,
    }
}

/// All routes of the agent, with the guards of the real server.
fn routes(world: &World) -> Router {
    let (agent, node) = (&world.agent, &world.node);
    let counters = meros_agent::counters(agent);
    let about = http::ServiceInfo {
        help: meros_agent::HELP,
        node: node.clone(),
        service: "agent",
        version: "1",
        counters: counters.clone(),
    };
    let routes = meros_agent::routes(agent, node, counters, &EventStreams::new(node));
    let routes = routes.merge(http::common_routes(about));
    let acls = world.acls.clone();
    let guard = http::Guard::new("agent", node);
    guard.with_access(Default::default(), acls).protect(routes)
}

/// An agent that runs one task, with its routes and the task's sandbox.
async fn running(world: &World) -> (Router, String) {
    world.master.run(vec![shell("the-task")]);
    world.settle().await;
    let routes = routes(world);
    let (status, state) = fetch(&routes, request("GET", "/state", JSON, "")).await;
    assert_eq!(status, 200, "{state}");
    let state: Value = serde_json::from_str(&state).unwrap();
    let directory = &state["frameworks"][0]["executors"][0]["directory"];
    (routes, directory.as_str().unwrap().to_owned())
}

async fn ask(routes: &Router, case: &Case, directory: &str) -> (u16, String) {
    ask_below("", routes, case, directory).await
}

/// Likewise, with a path prefix.
async fn ask_below(prefix: &str, routes: &Router, case: &Case, directory: &str) -> (u16, String) {
    let path = format!("{prefix}{}", case.path.replace("DIR", directory));
    let body = case.body.replace("DIR", directory);
    fetch(routes, request(case.method, &path, JSON, body)).await
}

/// ACLs that allow or deny these actions on everything to everyone.
fn lists(permissive: bool, actions: &[Action], objects: &str) -> Acls {
    let mut acls = json!({ "permissive": permissive });
    for action in actions {
        let rule = json!({ "principals": { "type": "ANY" }, action.object(): { "type": objects } });
        acls[action.name()] = json!([rule]);
    }
    Acls::parse(&acls.to_string()).unwrap()
}

/// SPEC 3.7.
// Covers 3.9 `/files/*` of agents.
#[test]
fn each_call_checks_its_own_acl() {
    world(FixtureOptions::default(), |world| async move {
        let (routes, directory) = running(&world).await;
        let acls = world.acls.clone();
        let mut found = Vec::new();
        for action in Action::ALL {
            let name = action.name();
            let cases = match coverage(*action) {
                Coverage::By(cases) => cases,
                Coverage::Elsewhere(source, test) => {
                    assert!(source.contains(&format!("fn {test}()")), "{test}");
                    assert!(source.contains(name), "{name}");
                    continue;
                }
                Coverage::NotServed(calls) => {
                    acls.replace(Acls::default());
                    for call in calls {
                        let (status, text) = ask(&routes, &question(call), "").await;
                        if status != 501 || !text.contains(call) {
                            found.push(format!("{call}: {status} {text}"));
                        }
                    }
                    continue;
                }
                Coverage::AtMasters => continue,
            };
            let below = |prefix| cases.iter().map(move |case| (prefix, case));
            for (prefix, case) in below("").chain(below("/slave(1)")) {
                let what = format!("{name}: {prefix}{} {}", case.path, case.body);
                acls.replace(lists(true, &[*action], "NONE"));
                let (status, text) = ask_below(prefix, &routes, case, &directory).await;
                let is_denied = match case.shows {
                    "" => status == 403 && text == "403 Forbidden.",
                    shows => !text.contains(shows),
                };
                if !is_denied {
                    found.push(format!("{what}, denied: {status} {text}"));
                }
                let may: Vec<Action> = case.also_allowed.iter().copied().chain([*action]).collect();
                acls.replace(lists(false, &may, "ANY"));
                let (status, text) = ask_below(prefix, &routes, case, &directory).await;
                if status != case.status || !text.contains(case.shows) {
                    found.push(format!("{what}, allowed: {status} {text}"));
                }
            }
        }
        assert!(found.is_empty(), "{}", found.join("\n"));
    });
}

/// SPEC 3.7: `view_containers` filters containers; statistics are authorized as a page.
#[test]
fn each_page_checks_the_acls_of_mesos() {
    world(FixtureOptions::default(), |world| async move {
        use Action::*;
        let (routes, _) = running(&world).await;
        let told = async |acls: Acls, case: &Case| {
            world.acls.replace(acls);
            ask(&routes, case, "").await
        };
        for case in [get("/state"), question("GET_STATE"), question("GET_TASKS")] {
            let unasked = lists(true, &[ViewContainers], "NONE");
            let (_, text) = told(unasked, &case).await;
            assert!(text.contains("the-task"), "{}: {text}", case.path);
        }
        let unasked = [ViewFrameworks, ViewExecutors, ViewTasks];
        for case in [get("/containers"), question("GET_CONTAINERS")] {
            let (_, text) = told(lists(true, &unasked, "NONE"), &case).await;
            assert!(text.contains("the-task"), "{}: {text}", case.path);
        }
        // Statistics need a process: this test's own.
        world.launcher.emit(LauncherEvent::Started {
            container_id: world.launcher.container(0),
            pid: std::process::id().try_into().unwrap(),
        });
        world.settle().await;
        let statistics = get("/monitor/statistics");
        let (status, text) = told(lists(false, &[GetEndpoints], "ANY"), &statistics).await;
        assert!(status == 200 && text.contains("the-task"), "{text}");
        let (status, text) = told(lists(true, &[GetEndpoints], "NONE"), &statistics).await;
        assert!(status == 403 && !text.contains("the-task"), "{text}");
    });
}

#[test]
fn corrections_show_no_hidden_tasks() {
    let kill = protocol::usage::QosCorrection::Kill {
        framework_id: framework_id(),
        executor_id: protocol::ExecutorId::new("the-task").unwrap(),
        container_id: None,
        reason: "load".to_owned(),
    };
    let options = FixtureOptions {
        // The first round precedes the task.
        controller: FakeModule::new([], [Ok(vec![]), Ok(vec![kill])]),
        ..FixtureOptions::default()
    };
    world(options, |world| async move {
        let mut lent = shell("the-task");
        lent.resources += &revocable("cpus:1");
        world.master.run(vec![lent]);
        for _ in 0..3 {
            world.advance(10).await;
        }
        let routes = routes(&world);
        for (hidden, tasks) in [(&[][..], 1), (&[Action::ViewTasks], 0)] {
            world.acls.replace(lists(true, hidden, "NONE"));
            let (_, text) = ask(&routes, &get("/oversubscription"), "").await;
            let page: Value = serde_json::from_str(&text).unwrap();
            let correction = &page["corrections"][0];
            assert_eq!(correction["reason"], "load", "{page}");
            assert_eq!(correction["tasks"].as_array().map(Vec::len), Some(tasks));
        }
    });
}

/// SPEC 3.9: Mesos serves every page below the name of its process.
// Covers 5.11 Endpoints of agents.
#[test]
fn pages_are_also_served_under_slave_1() {
    world(FixtureOptions::default(), |world| async move {
        let (routes, directory) = running(&world).await;
        let get = async |path: String| fetch(&routes, request("GET", &path, JSON, "")).await;
        for path in [
            "/health",
            "/version",
            "/state",
            "/state.json",
            "/flags",
            "/containers",
            "/monitor/statistics",
            "/files/browse?path=DIR",
            "/files/read?path=DIR/stdout&offset=0",
            "/files/download?path=DIR/stdout",
            "/files/debug",
            "/metrics",
            "/metrics/snapshot",
            "/__processes__",
        ] {
            let path = path.replace("DIR", &directory);
            let (status, plain) = get(path.clone()).await;
            assert_eq!(status, 200, "{path}: {plain}");
            let (status, prefixed) = get(format!("/slave(1){path}")).await;
            assert_eq!(status, 200, "/slave(1){path}: {prefixed}");
            // The runtime counts the requests themselves.
            let counts = path.starts_with("/metrics") || path == "/__processes__";
            assert!(counts || prefixed == plain, "{path}: {plain}\n{prefixed}");
        }
        let (_, metrics) = get("/slave(1)/metrics/snapshot".to_owned()).await;
        let metrics: Value = serde_json::from_str(&metrics).unwrap();
        assert_eq!(metrics["slave/tasks_running"], 1.0, "{metrics}");
        let (status, text) = get("/slave(2)/state".to_owned()).await;
        assert_eq!(status, 404, "{text}");
    });
}

/// SPEC 3.9.
// Covers 3.9 `/__processes__`, `/system/stats.json`, `/help`, `/logging/toggle`.
#[test]
fn help_lists_existing_pages() {
    world(FixtureOptions::default(), |world| async move {
        let routes = routes(&world);
        let get = async |path: &str| fetch(&routes, request("GET", path, JSON, "")).await;
        let (status, help) = get("/help?format=json").await;
        assert_eq!(status, 200, "{help}");
        let help: Value = serde_json::from_str(&help).unwrap();
        let process = &help["processes"][0];
        assert_eq!(process["id"], "slave(1)");
        let endpoints = process["endpoints"].as_array().unwrap();
        assert!(endpoints.len() > meros_agent::HELP.len());
        let (_, text) = get("/slave(1)/help").await;
        for endpoint in endpoints {
            let path = endpoint["name"].as_str().unwrap();
            let (status, answer) = get(path).await;
            assert_ne!(status, 404, "{path}: {answer}");
            assert!(text.contains(path) && text.contains(endpoint["text"].as_str().unwrap()));
        }
        // Any other format is the text for people, as in Mesos.
        let (_, plain) = get("/help").await;
        assert_eq!(get("/help?format=xml").await, (200, plain));
        let (status, stats) = get("/slave(1)/system/stats.json").await;
        let stats: Value = serde_json::from_str(&stats).unwrap();
        assert!(
            status == 200 && stats["mem_total_bytes"].is_number(),
            "{stats}"
        );
    });
}

/// SPEC 3.12, 3.2.
#[test]
fn state_shows_the_drain_until_empty() {
    world(FixtureOptions::default(), |world| async move {
        let (routes, _) = running(&world).await;
        let drain = async || {
            let (_, state) = fetch(&routes, request("GET", "/state", JSON, "")).await;
            let state: Value = serde_json::from_str(&state).unwrap();
            (
                state.get("drain_config").cloned(),
                state.get("estimated_drain_start_time_seconds").cloned(),
            )
        };
        assert_eq!(drain().await, (None, None));
        let (_, state) = fetch(&routes, request("GET", "/state", JSON, "")).await;
        let state: Value = serde_json::from_str(&state).unwrap();
        let task = &state["frameworks"][0]["executors"][0]["tasks"][0];
        assert_eq!(task["statuses"][1]["state"], "TASK_RUNNING", "{task}");
        assert!(task["statuses"][0]["timestamp"].is_number(), "{task}");
        let begun = world.node.clock().wall().as_secs_f64();
        let order = |seconds| DrainTasks {
            max_grace_period: Some(Duration::from_secs(seconds)),
        };
        world.master.tell(order(7));
        world.settle().await;
        let config = |nanos: u64| json!({ "max_grace_period": { "nanoseconds": nanos } });
        assert_eq!(
            drain().await,
            (Some(config(7_000_000_000)), Some(json!(begun)))
        );
        // Repeated by the next master: still the same drain.
        world.advance(3).await;
        // A grace period beyond the range of Mesos' format is clamped.
        for (seconds, nanos) in [(5, 5_000_000_000), (u64::MAX, i64::MAX as u64)] {
            world.master.tell(order(seconds));
            world.settle().await;
            let again = (Some(config(nanos)), Some(json!(begun)));
            assert_eq!(drain().await, again);
        }
        world
            .launcher
            .exit(world.launcher.container(0), Termination::Exited(0));
        world.settle().await;
        assert_eq!(drain().await, (None, None));
    });
}

/// SPEC 2.7, 3.12: an acknowledged executor, its framework and its sandbox remain visible to their
/// owner.
// Covers 3.12 `/state` of agents.
#[test]
fn completed_runs_are_shown_with_sandboxes() {
    world(FixtureOptions::default(), |world| async move {
        let (routes, directory) = running(&world).await;
        let get = async |path: &str| {
            let (status, text) = fetch(&routes, request("GET", path, JSON, "")).await;
            (
                status,
                serde_json::from_str::<Value>(&text).unwrap_or_default(),
            )
        };
        assert_eq!(get("/state").await.1["completed_frameworks"], json!([]));
        world
            .launcher
            .exit(world.launcher.container(0), Termination::Exited(1));
        world.settle().await;
        let (_, state) = get("/state").await;
        assert_eq!(state["frameworks"], json!([]), "nothing of it is left");
        let framework = &state["completed_frameworks"][0];
        assert_eq!(framework["executors"], json!([]));
        let executor = &framework["completed_executors"][0];
        assert_eq!(executor["directory"], directory.as_str());
        let task = &executor["completed_tasks"][0];
        assert_eq!(task["id"], "the-task", "{executor}");
        assert_eq!(task["state"], "TASK_FAILED");
        let statuses = task["statuses"].as_array().map(Vec::len);
        assert_eq!(statuses, Some(3), "{task}");
        let alices = r#"{"permissive": false,
            "access_sandboxes": [{"principals": {"type": "ANY"}, "users": {"values": ["USER"]}}]}"#;
        let user = framework["user"].as_str().unwrap();
        for (allowed, status) in [(user, 200), ("somebody-else", 403)] {
            let acls = alices.replace("USER", allowed);
            world.acls.replace(Acls::parse(&acls).unwrap());
            let (found, _) = get(&format!("/files/browse?path={directory}")).await;
            assert_eq!(found, status, "{allowed}");
        }
        world.acls.replace(Acls::default());

        // The framework is back, with its history.
        world.master.run(vec![shell("next-task")]);
        world.settle().await;
        let (_, state) = get("/state").await;
        assert_eq!(state["completed_frameworks"], json!([]));
        let framework = &state["frameworks"][0];
        assert_eq!(framework["executors"][0]["id"], "next-task");
        assert_eq!(framework["completed_executors"][0]["id"], "the-task");
    });
}
