//! An agent's routes in virtual time: which list of the ACLs decides each of them, that all are there under `/slave(1)` too, and that whatever
//! is sent to them is refused in words (SPEC 2.1, 2.5, 2.7, 3.7, 3.9).
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test's helpers may fall like the test"
)]

mod calls;
mod common;
mod figures;
mod sandboxes;
mod stage;

use std::time::Duration;

use authority::{Acls, Action};
use axum::Router;
use http::api::Streams;
use http::rehearsal::{hostile_calls, request, said, takes};
use meros_agent::LauncherEvent;
use protocol::Termination;
use protocol::message::task::DrainTasks;
use runtime::prelude::*;
use serde_json::{Value, json};
use stage::*;

const JSON: &str = "application/json";

/// What shows that an action is asked about.
enum Shown {
    /// These requests.
    By(Vec<Case>),
    /// A test of this name in this source, as plain functions.
    Elsewhere(&'static str, &'static str),
    /// Masters ask about it, and agents never.
    AtMasters,
    /// Nothing that it is about is served: these calls are refused by their names.
    NotServed(&'static [&'static str]),
}

/// A request that is about an action. `DIR` in it is the sandbox of the only executor.
struct Case {
    method: &'static str,
    path: &'static str,
    body: String,
    /// What it is answered where it is allowed.
    status: u16,
    /// What it shows where it is allowed. If nothing, it is answered 403 where it is not.
    shows: &'static str,
    /// What must be allowed beside.
    beside: &'static [Action],
}

fn send(method: &'static str, path: &'static str, body: &Value, status: u16) -> Case {
    Case {
        method,
        path,
        body: body.to_string(),
        status,
        shows: "",
        beside: &[],
    }
}

fn get(path: &'static str) -> Case {
    send("GET", path, &Value::Null, 200)
}

fn call(said: Value) -> Case {
    send("POST", "/api/v1", &said, 200)
}

fn question(kind: &str) -> Case {
    call(json!({ "type": kind }))
}

const TESTS: &str = include_str!("../src/http/tests.rs");

/// Whoever adds an action says here where it is asked about.
fn shown(action: Action) -> Shown {
    use Action::*;
    use Shown::*;
    let seen = |cases: Vec<Case>, beside: &'static [Action]| {
        let cases = cases.into_iter().map(|case| Case {
            shows: "the-task",
            beside,
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
            let said = json!({ "level": 1, "duration": { "nanoseconds": 1 } });
            let said = json!({ "type": "SET_LOGGING_LEVEL", "set_logging_level": said });
            // A rehearsal has no log that could be changed.
            let toggle = "/logging/toggle?level=1&duration=1mins";
            By(vec![
                Case {
                    status: 501,
                    ..call(said)
                },
                Case {
                    beside: &[GetEndpoints],
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
        ViewRoles => Elsewhere(
            TESTS,
            "what_is_reserved_for_roles_that_are_not_seen_is_not_shown_but_the_sums_stay_whole",
        ),
        AccessSandboxes => By(vec![
            get("/files/browse?path=DIR"),
            get("/files/download?path=DIR/stdout"),
            get("/files/read?path=DIR/stdout"),
            Case {
                shows: "the-task",
                beside: &[GetEndpoints],
                ..get("/files/debug")
            },
            call(json!({ "type": "LIST_FILES", "list_files": { "path": "DIR" } })),
            call(
                json!({ "type": "READ_FILE", "read_file": { "path": "DIR/stdout", "offset": 0 } }),
            ),
        ]),
        LaunchNestedContainersAsUser | LaunchNestedContainersUnderParentWithUser => {
            NotServed(&["LAUNCH_NESTED_CONTAINER"])
        }
        LaunchNestedContainerSessionsAsUser | LaunchNestedContainerSessionsUnderParentWithUser => {
            NotServed(&["LAUNCH_NESTED_CONTAINER_SESSION"])
        }
        KillNestedContainers => NotServed(&["KILL_NESTED_CONTAINER"]),
        WaitNestedContainers => NotServed(&["WAIT_NESTED_CONTAINER"]),
        RemoveNestedContainers => NotServed(&["REMOVE_NESTED_CONTAINER"]),
        AttachContainersInput => NotServed(&["ATTACH_CONTAINER_INPUT"]),
        AttachContainersOutput => NotServed(&["ATTACH_CONTAINER_OUTPUT"]),
        LaunchStandaloneContainers => NotServed(&["LAUNCH_CONTAINER"]),
        KillStandaloneContainers => NotServed(&["KILL_CONTAINER"]),
        WaitStandaloneContainers => NotServed(&["WAIT_CONTAINER"]),
        RemoveStandaloneContainers => NotServed(&["REMOVE_CONTAINER"]),
        ModifyResourceProviderConfigs => NotServed(&[
            "ADD_RESOURCE_PROVIDER_CONFIG",
            "UPDATE_RESOURCE_PROVIDER_CONFIG",
            "REMOVE_RESOURCE_PROVIDER_CONFIG",
        ]),
        MarkResourceProvidersGone => NotServed(&["MARK_RESOURCE_PROVIDER_GONE"]),
        PruneImages => By(vec![question("PRUNE_IMAGES")]),
        // There are no standalone containers, no resource providers and no disks of theirs, and no log is shown.
        ViewStandaloneContainers
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

/// All routes of the agent, guarded as they are when it is served.
fn routes(world: &World) -> Router {
    let (agent, node) = (&world.agent, &world.node);
    let counters = meros_agent::counters(agent);
    let about = http::About {
        help: meros_agent::HELP,
        node: node.clone(),
        service: "agent",
        version: "1",
        counters: counters.clone(),
    };
    let routes = meros_agent::routes(agent, node, counters, &Streams::new(node));
    let routes = routes.merge(http::common_routes(about));
    let acls = world.acls.clone();
    let guard = http::Guard::new("agent", node);
    guard.asking(Default::default(), acls).before(routes)
}

/// An agent that runs one task, with its routes and the sandbox of its executor.
async fn running(world: &World) -> (Router, String, Node) {
    world.master.run(vec![shell("the-task")]);
    world.settle().await;
    let (executor, _) = world.executor(0).await;
    let routes = routes(world);
    let (status, state) = said(&routes, request("GET", "/state", JSON, "")).await;
    assert_eq!(status, 200, "{state}");
    let state: Value = serde_json::from_str(&state).unwrap();
    let directory = &state["frameworks"][0]["executors"][0]["directory"];
    (routes, directory.as_str().unwrap().to_owned(), executor)
}

async fn ask(routes: &Router, case: &Case, directory: &str) -> (u16, String) {
    ask_below("", routes, case, directory).await
}

/// The same of a path that begins with the name of the agent's process.
async fn ask_below(prefix: &str, routes: &Router, case: &Case, directory: &str) -> (u16, String) {
    let path = format!("{prefix}{}", case.path.replace("DIR", directory));
    let body = case.body.replace("DIR", directory);
    said(routes, request(case.method, &path, JSON, body)).await
}

/// Lists of these actions that say this of everything, to everybody.
fn lists(permissive: bool, actions: &[Action], objects: &str) -> Acls {
    let mut acls = json!({ "permissive": permissive });
    for action in actions {
        let rule = json!({ "principals": { "type": "ANY" }, action.object(): { "type": objects } });
        acls[action.name()] = json!([rule]);
    }
    Acls::parse(&acls.to_string()).unwrap()
}

/// SPEC 3.7.
#[test]
fn each_thing_that_is_asked_of_an_agent_is_decided_by_the_list_of_its_own_name() {
    world(Cast::default(), |world| async move {
        let (routes, directory, _executor) = running(&world).await;
        let acls = world.acls.clone();
        let mut found = Vec::new();
        for action in Action::ALL {
            let name = action.name();
            let cases = match shown(*action) {
                Shown::By(cases) => cases,
                Shown::Elsewhere(source, test) => {
                    assert!(source.contains(&format!("fn {test}()")), "{test}");
                    assert!(source.contains(name), "{name}");
                    continue;
                }
                Shown::NotServed(calls) => {
                    acls.renew(Acls::default());
                    for call in calls {
                        let (status, text) = ask(&routes, &question(call), "").await;
                        if status != 501 || !text.contains(call) {
                            found.push(format!("{call}: {status} {text}"));
                        }
                    }
                    continue;
                }
                Shown::AtMasters => continue,
            };
            let below = |prefix| cases.iter().map(move |case| (prefix, case));
            for (prefix, case) in below("").chain(below("/slave(1)")) {
                let what = format!("{name}: {prefix}{} {}", case.path, case.body);
                acls.renew(lists(true, &[*action], "NONE"));
                let (status, text) = ask_below(prefix, &routes, case, &directory).await;
                let words = format!("one that may {name}");
                let is_denied = match case.shows {
                    "" => status == 403 && text.contains(&words),
                    shows => !text.contains(shows),
                };
                if !is_denied {
                    found.push(format!("{what}, denied: {status} {text}"));
                }
                let may: Vec<Action> = case.beside.iter().copied().chain([*action]).collect();
                acls.renew(lists(false, &may, "ANY"));
                let (status, text) = ask_below(prefix, &routes, case, &directory).await;
                if status != case.status || !text.contains(case.shows) {
                    found.push(format!("{what}, allowed: {status} {text}"));
                }
            }
        }
        assert!(found.is_empty(), "{}", found.join("\n"));
    });
}

/// SPEC 3.7: `view_containers` is about containers, and what is measured is for whoever may have its page.
#[test]
fn each_page_asks_the_lists_that_mesos_asks_for_it_and_no_other() {
    world(Cast::default(), |world| async move {
        use Action::*;
        let (routes, _, _executor) = running(&world).await;
        let told = async |acls: Acls, case: &Case| {
            world.acls.renew(acls);
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
        // What is measured must be there: here it is this test's own process.
        world.stage.happens(LauncherEvent::Started {
            container_id: world.stage.container(0),
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

/// SPEC 3.9: Mesos serves all of it below the name of its process.
#[test]
fn every_page_is_served_under_the_agents_name_too_and_says_the_same() {
    world(Cast::default(), |world| async move {
        let (routes, directory, _executor) = running(&world).await;
        let get = async |path: String| said(&routes, request("GET", &path, JSON, "")).await;
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
#[test]
fn what_the_help_of_an_agent_names_is_there_and_the_machine_has_figures() {
    world(Cast::default(), |world| async move {
        let routes = routes(&world);
        let get = async |path: &str| said(&routes, request("GET", path, JSON, "")).await;
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
        // Any other format is that for people, as in Mesos.
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
fn the_state_says_that_the_agent_is_drained_until_nothing_is_left() {
    world(Cast::default(), |world| async move {
        let (routes, _, _executor) = running(&world).await;
        let drain = async || {
            let (_, state) = said(&routes, request("GET", "/state", JSON, "")).await;
            let state: Value = serde_json::from_str(&state).unwrap();
            (
                state.get("drain_config").cloned(),
                state.get("estimated_drain_start_time_seconds").cloned(),
            )
        };
        assert_eq!(drain().await, (None, None));
        let (_, state) = said(&routes, request("GET", "/state", JSON, "")).await;
        let state: Value = serde_json::from_str(&state).unwrap();
        let task = &state["frameworks"][0]["executors"][0]["tasks"][0];
        assert_eq!(task["statuses"][0]["state"], "TASK_RUNNING", "{task}");
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
        // Told again by the next master: it is the same drain.
        world.advance(3).await;
        // A grace period that Mesos' form has no number for is as long as one has.
        for (seconds, nanos) in [(5, 5_000_000_000), (u64::MAX, i64::MAX as u64)] {
            world.master.tell(order(seconds));
            world.settle().await;
            let again = (Some(config(nanos)), Some(json!(begun)));
            assert_eq!(drain().await, again);
        }
        world.stage.happens(LauncherEvent::Exited {
            container_id: world.stage.container(0),
            termination: Termination::Exited(0),
        });
        world.settle().await;
        assert_eq!(drain().await, (None, None));
    });
}

/// SPEC 2.7, 3.12: an executor that is over and acknowledged, and its framework, are still shown, and so is its sandbox, to its owner.
#[test]
fn what_is_over_is_still_shown_with_its_framework_and_its_sandbox() {
    world(Cast::default(), |world| async move {
        let (routes, directory, _executor) = running(&world).await;
        let get = async |path: &str| {
            let (status, text) = said(&routes, request("GET", path, JSON, "")).await;
            (
                status,
                serde_json::from_str::<Value>(&text).unwrap_or_default(),
            )
        };
        assert_eq!(get("/state").await.1["completed_frameworks"], json!([]));
        world.stage.happens(LauncherEvent::Exited {
            container_id: world.stage.container(0),
            termination: Termination::Exited(1),
        });
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
        assert_eq!(statuses, Some(2), "{task}");
        let alices = r#"{"permissive": false,
            "access_sandboxes": [{"principals": {"type": "ANY"}, "users": {"values": ["USER"]}}]}"#;
        let user = framework["user"].as_str().unwrap();
        for (allowed, status) in [(user, 200), ("somebody-else", 403)] {
            let acls = alices.replace("USER", allowed);
            world.acls.renew(Acls::parse(&acls).unwrap());
            let (found, _) = get(&format!("/files/browse?path={directory}")).await;
            assert_eq!(found, status, "{allowed}");
        }
        world.acls.renew(Acls::default());

        // The framework is here again, with what it had.
        world.master.run(vec![shell("next-task")]);
        world.settle().await;
        let (_, state) = get("/state").await;
        assert_eq!(state["completed_frameworks"], json!([]));
        let framework = &state["frameworks"][0];
        assert_eq!(framework["executors"][0]["id"], "next-task");
        assert_eq!(framework["completed_executors"][0]["id"], "the-task");
    });
}
