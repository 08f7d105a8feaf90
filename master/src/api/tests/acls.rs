//! The ACL that decides each request to a master over HTTP (SPEC 3.7).
//!
//! Each request is sent twice, to separate clusters. If only the list of its action denies and all
//! else is allowed, it is refused or its object is hidden; if only that list allows, it succeeds.
//! So a page that checks another action fails.

use authority::{Acls, Action};
use protocol::message::operator::{StartMaintenance, UpdateMaintenanceSchedule, UpdateQuotas};
use protocol::message::registration::{AgentInventory, RunningExecutor, RunningTask};
use protocol::{
    AgentResources, CommandInfo, ExecutorInfo, FrameworkId, MachineId, TaskInfo, TaskState, Uuid,
};
use v1::convert::maintenance::windows;
use v1::schema::maintenance::Schedule;

use super::*;
use crate::api::v0::role_json;

/// How an action's check is observed.
enum Shown {
    /// These requests.
    By(Vec<Case>),
    /// A test of this name in this source, since it is not asked about over HTTP.
    Elsewhere(&'static str, &'static str),
    /// Agents ask about it, and masters never.
    AtAgents,
    /// Nothing that it is about is served.
    NotServed,
}

/// A request that is about an action. `<agent>` and `<framework>` in it stand for their ids.
struct Case {
    method: &'static str,
    path: &'static str,
    body: String,
    /// The status if allowed.
    status: u16,
    /// The visible text if allowed. If empty, the answer is 403 otherwise.
    shows: &'static str,
    /// Other required actions.
    beside: &'static [Action],
}

impl Case {
    fn showing(mut self, shows: &'static str) -> Self {
        self.shows = shows;
        self
    }

    fn beside(mut self, beside: &'static [Action]) -> Self {
        self.beside = beside;
        self
    }
}

fn send(method: &'static str, path: &'static str, body: &str, status: u16) -> Case {
    Case {
        method,
        path,
        body: body.to_owned(),
        status,
        shows: "",
        beside: &[],
    }
}

fn get(path: &'static str) -> Case {
    send("GET", path, "", 200)
}

/// A call of the operator API with its content.
fn call(kind: &str, said: Value, status: u16) -> Case {
    let mut call = json!({ "type": kind });
    if !said.is_null() {
        call[kind.to_lowercase()] = said;
    }
    send("POST", "/api/v1", &call.to_string(), status)
}

fn question(kind: &str) -> Case {
    call(kind, Value::Null, 200)
}

/// One of the four pages that reserve and make volumes.
fn form(path: &'static str, field: &str, resource: &Value) -> Case {
    let body = format!("slaveId=<agent>&{field}=[{resource}]");
    send("POST", path, &body, 202)
}

/// The same as a call.
fn operation(kind: &str, field: &str, resource: Value) -> Case {
    let said = json!({ "agent_id": { "value": "<agent>" }, field: [resource] });
    call(kind, said, 202)
}

fn order(kind: &str) -> Case {
    call(kind, json!({ "agent_id": { "value": "<agent>" } }), 200)
}

fn machines(kind: &str, hostname: &str) -> Case {
    call(kind, json!({ "machines": [{ "hostname": hostname }] }), 200)
}

/// This much of it, reserved for `ops`.
fn reserved(name: &str, amount: f64) -> Value {
    let entry = json!({ "type": "DYNAMIC", "role": "ops", "principal": "ops" });
    json!({ "name": name, "type": "SCALAR", "scalar": { "value": amount }, "reservations": [entry] })
}

fn volume(id: &str, size: f64) -> Value {
    let mut volume = reserved("disk", size);
    let persistence = json!({ "id": id, "principal": "ops" });
    let path = json!({ "mode": "RW", "container_path": "data" });
    volume["disk"] = json!({ "persistence": persistence, "volume": path });
    volume
}

const WINDOWS: &str = r#"{"windows":[{"machine_ids":[{"hostname":"host-8"},{"hostname":"host-9"}],"unavailability":{"start":{"nanoseconds":5}}}]}"#;
const QUOTA: &str =
    r#"{"role":"dev","guarantee":[{"name":"cpus","type":"SCALAR","scalar":{"value":1}}]}"#;
const PERMISSIONS: &str = include_str!("../../master/tests/frameworks/permissions.rs");

/// A new action must be added here with its check.
fn visible(action: Action) -> Shown {
    use Action::*;
    use Shown::*;
    let value = |text: &str| serde_json::from_str::<Value>(text).unwrap();
    match action {
        RegisterFrameworks => Elsewhere(PERMISSIONS, "framework_roles_must_be_authorized"),
        RunTasks => Elsewhere(PERMISSIONS, "task_of_a_forbidden_user_is_an_error_alone"),
        RegisterAgents => Elsewhere(
            PERMISSIONS,
            "agents_and_operators_are_named_by_certificates",
        ),
        TeardownFrameworks => By(vec![
            send("POST", "/teardown", "frameworkId=<framework>", 200),
            call(
                "TEARDOWN",
                json!({ "framework_id": { "value": "<framework>" } }),
                200,
            ),
        ]),
        ReserveResources => By(vec![
            form("/reserve", "resources", &reserved("cpus", 1.0)),
            operation("RESERVE_RESOURCES", "resources", reserved("cpus", 1.0)),
        ]),
        UnreserveResources => By(vec![
            form("/unreserve", "resources", &reserved("cpus", 2.0)),
            operation("UNRESERVE_RESOURCES", "resources", reserved("cpus", 2.0)),
        ]),
        CreateVolumes => By(vec![
            form("/create-volumes", "volumes", &volume("new", 10.0)),
            operation("CREATE_VOLUMES", "volumes", volume("new", 10.0)),
        ]),
        DestroyVolumes => By(vec![
            form("/destroy-volumes", "volumes", &volume("old", 50.0)),
            operation("DESTROY_VOLUMES", "volumes", volume("old", 50.0)),
        ]),
        ResizeVolumes => {
            let said = |field: &str, value: Value| json!({ "agent_id": { "value": "<agent>" }, "volume": volume("old", 50.0), field: value });
            By(vec![
                call("GROW_VOLUME", said("addition", reserved("disk", 10.0)), 202),
                call(
                    "SHRINK_VOLUME",
                    said("subtract", json!({ "value": 10.0 })),
                    202,
                ),
            ])
        }
        GetQuotas => By(vec![
            get("/quota").showing("dev"),
            question("GET_QUOTA").showing("dev"),
        ]),
        UpdateQuotas => {
            let new = QUOTA.replace("dev", "new");
            let config = json!({ "role": "new", "guarantees": { "cpus": { "value": 1.0 } } });
            By(vec![
                send("POST", "/quota", &new, 200),
                send("PUT", "/quota", &new, 200),
                send("DELETE", "/quota/dev", "", 200),
                call("UPDATE_QUOTA", json!({ "quota_configs": [config] }), 200),
                call("SET_QUOTA", json!({ "quota_request": value(&new) }), 200),
                call("REMOVE_QUOTA", json!({ "role": "dev" }), 200),
            ])
        }
        ViewRoles => By(vec![
            get("/roles").showing("dev"),
            get("/weights").showing("dev"),
            // Reservations of a role on an agent.
            get("/slaves").showing("\"ops\""),
            get("/state").showing("\"ops\""),
            question("GET_AGENTS").showing("\"ops\""),
            question("GET_ROLES").showing("dev"),
            question("GET_WEIGHTS").showing("dev"),
        ]),
        UpdateWeights => {
            let said = json!([{ "role": "dev", "weight": 3.0 }]);
            By(vec![
                send("PUT", "/weights", &said.to_string(), 200),
                call("UPDATE_WEIGHTS", json!({ "weight_infos": said }), 200),
            ])
        }
        GetEndpoints => By(vec![
            get("/metrics"),
            get("/metrics/snapshot"),
            get("/system/stats.json"),
            get("/help"),
            get("/__processes__"),
            // There is no such framework; only authorized callers are told so.
            send("GET", "/explain?framework=nobody", "", 400),
            // A rehearsal has no log that could be changed.
            send("POST", "/logging/toggle?level=1&duration=1mins", "", 501).beside(&[SetLogLevel]),
            question("GET_METRICS"),
        ]),
        ViewFrameworks => By(vec![
            get("/state").showing("the-framework"),
            get("/state.json").showing("the-framework"),
            get("/state-summary").showing("the-framework"),
            get("/frameworks").showing("the-framework"),
            get("/allocator/offer_constraints_debug").showing("the-framework-id"),
            question("GET_STATE").showing("the-framework"),
            question("GET_FRAMEWORKS").showing("the-framework"),
        ]),
        ViewTasks => {
            let cases = [
                get("/state"),
                get("/state.json"),
                get("/frameworks"),
                get("/tasks"),
                get("/tasks.json"),
                question("GET_STATE"),
                question("GET_TASKS"),
            ];
            By(cases
                .map(|case| case.showing("the-task").beside(&[ViewFrameworks]))
                .into())
        }
        ViewExecutors => {
            let cases = [
                get("/state"),
                get("/frameworks"),
                question("GET_STATE"),
                question("GET_EXECUTORS"),
            ];
            By(cases
                .map(|case| case.showing("own-executor").beside(&[ViewFrameworks]))
                .into())
        }
        ViewFlags => By(vec![
            get("/state").showing("the-flag"),
            get("/flags"),
            question("GET_FLAGS"),
        ]),
        SetLogLevel => {
            let said = json!({ "level": 1, "duration": { "nanoseconds": 1 } });
            By(vec![
                call("SET_LOGGING_LEVEL", said, 501),
                send("POST", "/logging/toggle?level=1&duration=1mins", "", 501)
                    .beside(&[GetEndpoints]),
            ])
        }
        MarkAgentsGone => By(vec![order("MARK_AGENT_GONE")]),
        DrainAgents => By(vec![order("DRAIN_AGENT")]),
        DeactivateAgents => By(vec![order("DEACTIVATE_AGENT")]),
        ReactivateAgents => By(vec![order("REACTIVATE_AGENT")]),
        GetMaintenanceSchedules => By(vec![
            get("/maintenance/schedule").showing("host-9"),
            question("GET_MAINTENANCE_SCHEDULE").showing("host-9"),
        ]),
        UpdateMaintenanceSchedules => {
            let schedule = json!({ "schedule": value(WINDOWS) });
            By(vec![
                send("POST", "/maintenance/schedule", WINDOWS, 200),
                call("UPDATE_MAINTENANCE_SCHEDULE", schedule, 200),
            ])
        }
        StartMaintenances => By(vec![
            send("POST", "/machine/down", r#"[{"hostname":"host-9"}]"#, 200),
            machines("START_MAINTENANCE", "host-9"),
        ]),
        StopMaintenances => By(vec![
            send("POST", "/machine/up", r#"[{"hostname":"host-8"}]"#, 200),
            machines("STOP_MAINTENANCE", "host-8"),
        ]),
        GetMaintenanceStatuses => By(vec![
            get("/maintenance/status").showing("host-9"),
            question("GET_MAINTENANCE_STATUS").showing("host-9"),
        ]),
        AccessSandboxes | ViewContainers => AtAgents,
        AccessMesosLogs
        | CreateBlockDisks
        | DestroyBlockDisks
        | CreateMountDisks
        | DestroyMountDisks
        | DestroyRawDisks
        | LaunchNestedContainersAsUser
        | LaunchNestedContainersUnderParentWithUser
        | LaunchNestedContainerSessionsAsUser
        | LaunchNestedContainerSessionsUnderParentWithUser
        | KillNestedContainers
        | WaitNestedContainers
        | RemoveNestedContainers
        | AttachContainersInput
        | AttachContainersOutput
        | LaunchStandaloneContainers
        | KillStandaloneContainers
        | WaitStandaloneContainers
        | RemoveStandaloneContainers
        | ViewStandaloneContainers
        | ModifyResourceProviderConfigs
        | MarkResourceProvidersGone
        | ViewResourceProviders
        | PruneImages => NotServed,
    }
}

/// A cluster with something of everything that ACLs are about.
struct Fixture {
    node: Node,
    master: Handle<Master>,
    events: EventStream,
    agent: String,
    framework: String,
}

fn executor() -> ExecutorInfo {
    ExecutorInfo {
        name: "own-executor".to_owned(),
        ..ExecutorInfo::new(
            "the-executor".parse().unwrap(),
            CommandInfo::shell("run"),
            "cpus:0.1".parse().unwrap(),
        )
    }
}

/// An agent's report to a new master, with a framework's own executor and its task.
fn held(framework_id: &FrameworkId) -> AgentInventory {
    let mut framework = FrameworkInfo::new("alice", "the-framework");
    framework.id = Some(framework_id.clone());
    let task = TaskInfo::new(
        "the-task".parse().unwrap(),
        "of-all".parse().unwrap(),
        "cpus:0.1".parse().unwrap(),
    )
    .with_executor(executor());
    AgentInventory {
        tasks: vec![RunningTask {
            framework_id: framework_id.clone(),
            info: task,
            state: TaskState::Running,
        }],
        executors: vec![RunningExecutor {
            framework_id: framework_id.clone(),
            info: executor(),
        }],
        frameworks: vec![framework],
    }
}

impl Fixture {
    async fn new(node: &Node) -> Self {
        let master = master(node).await;
        let state = master.ask(TakeSnapshot, PATIENCE).await.unwrap();
        let total = json!([
            { "name": "cpus", "type": "SCALAR", "scalar": { "value": 8.0 } },
            reserved("cpus", 2.0),
            reserved("disk", 100.0),
            volume("old", 50.0),
        ]);
        let total = resources::json::parse_resources(&total.to_string()).unwrap();
        let framework_id = FrameworkId::new("the-framework-id").unwrap();
        let agent = RegisterAgent {
            held: held(&framework_id),
            resources: Some(AgentResources {
                total,
                version: Uuid([1; 16]),
                operations: Default::default(),
                settled: None,
            }),
            digest_key: DigestKey::new([8; 16]),
            ..testkit::values::registration(
                AgentInfo::new("host-2", "cpus:10;disk:150".parse().unwrap()),
                state.agents.iter().next().unwrap().pid.clone(),
            )
        };
        let registered = master.ask(agent, PATIENCE).await.unwrap().unwrap();
        let quotas: UpdateQuotas = role_json::quotas(QUOTA.as_bytes()).unwrap().update;
        master.ask(quotas, PATIENCE).await.unwrap().unwrap();
        let said = v1::json::read::<Schedule>(WINDOWS.as_bytes(), Default::default()).unwrap();
        let windows = windows(&said).unwrap();
        let update = UpdateMaintenanceSchedule { windows };
        master.ask(update, PATIENCE).await.unwrap().unwrap();
        let machines = vec![MachineId::new("host-8", "").unwrap()];
        let down = StartMaintenance { machines };
        master.ask(down, PATIENCE).await.unwrap().unwrap();
        Self {
            node: node.clone(),
            events: event_stream(node, &LocalLeader::of(&master)),
            agent: registered.agent_id.to_string(),
            framework: framework_id.to_string(),
            master,
        }
    }

    /// The answer with these ACLs, on a path with this prefix.
    async fn ask(&self, prefix: &str, case: &Case, acls: &str) -> (u16, String) {
        let acls = Reloadable::new(Acls::parse(acls).unwrap());
        let config = Config {
            flags: [("the-flag".to_owned(), "set".to_owned())].into(),
            acls: acls.clone(),
            ..config()
        };
        let (node, local) = (&self.node, LocalLeader::of(&self.master));
        let throttle = Throttle::default();
        let counters = counters(&local, node, &allocator(node), &self.events, &throttle);
        let about = ::http::ServiceInfo {
            help: crate::api::HELP,
            node: node.clone(),
            service: "master",
            version: "1",
            counters: counters.clone(),
        };
        let streams = EventStreams::new(node);
        let routes = routes(&local, node, &config, counters, &self.events, &streams)
            .merge(::http::common_routes(about));
        let guard = ::http::Guard::new("master", node).with_access(Default::default(), acls);
        let body = case.body.replace("<agent>", &self.agent);
        let body = body.replace("<framework>", &self.framework);
        let path = format!("{prefix}{}", case.path);
        let kind = match body.starts_with(['{', '[']) {
            true => JSON,
            false => "application/x-www-form-urlencoded",
        };
        let asked = ::http::testing::request(case.method, &path, kind, body);
        ::http::testing::fetch(&guard.protect(routes), asked).await
    }
}

/// ACLs that allow or deny these actions for everyone.
fn lists(permissive: bool, actions: &[Action], objects: &str) -> String {
    let mut acls = json!({ "permissive": permissive });
    for action in actions {
        let rule = json!({ "principals": { "type": "ANY" }, action.object(): { "type": objects } });
        acls[action.name()] = json!([rule]);
    }
    acls.to_string()
}

/// The deviation from the list of this action, if there is one.
async fn wrong(node: Node, action: Action, prefix: &str, case: &Case) -> Option<String> {
    let fixture = Fixture::new(&node).await;
    let (denied, text) = fixture
        .ask(prefix, case, &lists(true, &[action], "NONE"))
        .await;
    let is_denied = match case.shows {
        "" => denied == 403 && text == "403 Forbidden.",
        shows => !text.contains(shows),
    };
    if !is_denied {
        return Some(format!("though it is denied: {denied} {text}"));
    }
    let may: Vec<Action> = case.beside.iter().copied().chain([action]).collect();
    let (status, text) = fixture.ask(prefix, case, &lists(false, &may, "ANY")).await;
    let is_done = status == case.status && text.contains(case.shows);
    (!is_done).then(|| format!("though it is allowed: {status} {text}"))
}

/// SPEC 3.7.
#[test]
fn each_request_is_authorized_by_its_own_acl() {
    let mut found = Vec::new();
    for action in Action::ALL {
        let cases = match visible(*action) {
            Shown::By(cases) => cases,
            Shown::Elsewhere(source, test) => {
                assert!(source.contains(&format!("fn {test}()")), "{test}");
                assert!(source.contains(action.name()), "{}", action.name());
                continue;
            }
            Shown::AtAgents | Shown::NotServed => continue,
        };
        // Below the name of the master's process, too.
        let below = |prefix| cases.iter().map(move |case| (prefix, case));
        for (prefix, case) in below("").chain(below("/master")) {
            if let Some(wrong) = simulate(|node| wrong(node, *action, prefix, case)) {
                let wrong: String = wrong.chars().take(300).collect();
                let (name, path) = (action.name(), case.path);
                found.push(format!("{name}: {prefix}{path} {}: {wrong}", case.body));
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}
