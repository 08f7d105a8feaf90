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
use testkit::{assert_contains, rows};
use v1::convert::maintenance::windows;
use v1::schema::maintenance::Schedule;

use super::*;
use crate::api::v0::role_json;

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

/// Actions that no request is about, with the test in `PERMISSIONS` of each.
const ELSEWHERE: [(Action, &str); 3] = [
    (
        Action::RegisterFrameworks,
        "framework_roles_must_be_authorized",
    ),
    (
        Action::RunTasks,
        "task_of_a_forbidden_user_is_an_error_alone",
    ),
    (
        Action::RegisterAgents,
        "agents_and_operators_are_named_by_certificates",
    ),
];

/// Only agents ask about the first two; the objects of the others are not served.
pub(crate) const NOT_ASKED: &str = "access_sandboxes view_containers \
    access_mesos_logs create_block_disks destroy_block_disks create_mount_disks \
    destroy_mount_disks destroy_raw_disks launch_nested_containers_as_user \
    launch_nested_containers_under_parent_with_user launch_nested_container_sessions_as_user \
    launch_nested_container_sessions_under_parent_with_user kill_nested_containers \
    wait_nested_containers remove_nested_containers attach_containers_input \
    attach_containers_output launch_standalone_containers kill_standalone_containers \
    wait_standalone_containers remove_standalone_containers view_standalone_containers \
    modify_resource_provider_configs mark_resource_providers_gone view_resource_providers \
    prune_images";

/// The requests about each other action. Cells: the action, and after `+` another that is also
/// required; the status if allowed, and the text that is then visible (without one, the answer is
/// 403 if denied); a method, a path and a body, or a call of the operator API with its content.
///
/// On `/slaves`, `"ops"` is a role's reservation. No framework is named `nobody`; only authorized
/// callers are told so. The level of the log cannot be changed in a test: 501.
const REQUESTS: &str = r#"
    teardown_frameworks | 200 | POST /teardown frameworkId=<framework>
    teardown_frameworks | 200 | TEARDOWN {"framework_id":{"value":"<framework>"}}
    reserve_resources | 202 | POST /reserve slaveId=<agent>&resources=[<cpus 1>]
    reserve_resources | 202 | RESERVE_RESOURCES {<of agent>,"resources":[<cpus 1>]}
    unreserve_resources | 202 | POST /unreserve slaveId=<agent>&resources=[<cpus 2>]
    unreserve_resources | 202 | UNRESERVE_RESOURCES {<of agent>,"resources":[<cpus 2>]}
    create_volumes | 202 | POST /create-volumes slaveId=<agent>&volumes=[<new>]
    create_volumes | 202 | CREATE_VOLUMES {<of agent>,"volumes":[<new>]}
    destroy_volumes | 202 | POST /destroy-volumes slaveId=<agent>&volumes=[<old>]
    destroy_volumes | 202 | DESTROY_VOLUMES {<of agent>,"volumes":[<old>]}
    resize_volumes | 202 | GROW_VOLUME {<of agent>,"volume":<old>,"addition":<disk 10>}
    resize_volumes | 202 | SHRINK_VOLUME {<of agent>,"volume":<old>,"subtract":{"value":10}}
    get_quotas | 200 dev | GET /quota
    get_quotas | 200 dev | GET_QUOTA
    update_quotas | 200 | POST /quota <quota>
    update_quotas | 200 | PUT /quota <quota>
    update_quotas | 200 | DELETE /quota/dev
    update_quotas | 200 | UPDATE_QUOTA {"quota_configs":[{"role":"new","guarantees":{"cpus":{"value":1}}}]}
    update_quotas | 200 | SET_QUOTA {"quota_request":<quota>}
    update_quotas | 200 | REMOVE_QUOTA {"role":"dev"}
    view_roles | 200 dev | GET /roles
    view_roles | 200 dev | GET /weights
    view_roles | 200 "ops" | GET /slaves
    view_roles | 200 "ops" | GET /state
    view_roles | 200 "ops" | GET_AGENTS
    view_roles | 200 dev | GET_ROLES
    view_roles | 200 dev | GET_WEIGHTS
    update_weights | 200 | PUT /weights [{"role":"dev","weight":3}]
    update_weights | 200 | UPDATE_WEIGHTS {"weight_infos":[{"role":"dev","weight":3}]}
    get_endpoints | 200 | GET /metrics
    get_endpoints | 200 | GET /metrics/snapshot
    get_endpoints | 200 | GET /system/stats.json
    get_endpoints | 200 | GET /help
    get_endpoints | 200 | GET /__processes__
    get_endpoints | 400 | GET /explain?framework=nobody
    get_endpoints + set_log_level | 501 | POST /logging/toggle?level=1&duration=1mins
    get_endpoints | 200 | GET_METRICS
    view_frameworks | 200 the-framework | GET /state
    view_frameworks | 200 the-framework | GET /state.json
    view_frameworks | 200 the-framework | GET /state-summary
    view_frameworks | 200 the-framework | GET /frameworks
    view_frameworks | 200 the-framework-id | GET /allocator/offer_constraints_debug
    view_frameworks | 200 the-framework | GET_STATE
    view_frameworks | 200 the-framework | GET_FRAMEWORKS
    view_tasks + view_frameworks | 200 the-task | GET /state
    view_tasks + view_frameworks | 200 the-task | GET /state.json
    view_tasks + view_frameworks | 200 the-task | GET /frameworks
    view_tasks + view_frameworks | 200 the-task | GET /tasks
    view_tasks + view_frameworks | 200 the-task | GET /tasks.json
    view_tasks + view_frameworks | 200 the-task | GET_STATE
    view_tasks + view_frameworks | 200 the-task | GET_TASKS
    view_executors + view_frameworks | 200 own-executor | GET /state
    view_executors + view_frameworks | 200 own-executor | GET /frameworks
    view_executors + view_frameworks | 200 own-executor | GET_STATE
    view_executors + view_frameworks | 200 own-executor | GET_EXECUTORS
    view_flags | 200 the-flag | GET /state
    view_flags | 200 | GET /flags
    view_flags | 200 | GET_FLAGS
    set_log_level | 501 | SET_LOGGING_LEVEL {"level":1,"duration":{"nanoseconds":1}}
    set_log_level + get_endpoints | 501 | POST /logging/toggle?level=1&duration=1mins
    mark_agents_gone | 200 | MARK_AGENT_GONE {<of agent>}
    drain_agents | 200 | DRAIN_AGENT {<of agent>}
    deactivate_agents | 200 | DEACTIVATE_AGENT {<of agent>}
    reactivate_agents | 200 | REACTIVATE_AGENT {<of agent>}
    get_maintenance_schedules | 200 host-9 | GET /maintenance/schedule
    get_maintenance_schedules | 200 host-9 | GET_MAINTENANCE_SCHEDULE
    update_maintenance_schedules | 200 | POST /maintenance/schedule <windows>
    update_maintenance_schedules | 200 | UPDATE_MAINTENANCE_SCHEDULE {"schedule":<windows>}
    start_maintenances | 200 | POST /machine/down [{"hostname":"host-9"}]
    start_maintenances | 200 | START_MAINTENANCE {"machines":[{"hostname":"host-9"}]}
    stop_maintenances | 200 | POST /machine/up [{"hostname":"host-8"}]
    stop_maintenances | 200 | STOP_MAINTENANCE {"machines":[{"hostname":"host-8"}]}
    get_maintenance_statuses | 200 host-9 | GET /maintenance/status
    get_maintenance_statuses | 200 host-9 | GET_MAINTENANCE_STATUS
"#;

/// A request that is about an action. `<agent>` and `<framework>` in it stand for their ids.
struct Case {
    method: &'static str,
    path: &'static str,
    body: String,
    /// The status if allowed.
    status: u16,
    /// The visible text if allowed. If empty, the answer is 403 otherwise.
    shows: &'static str,
    /// The action and others that are required.
    required: Vec<Action>,
}

impl Case {
    fn of([required, answer, request]: [&'static str; 3]) -> Self {
        let required = required
            .split(" + ")
            .map(|name| Action::named(name).unwrap());
        let (status, shows) = answer.split_once(' ').unwrap_or((answer, ""));
        let (first, rest) = request.split_once(' ').unwrap_or((request, ""));
        let ((method, path), body) = match rest.split_once(' ').unwrap_or((rest, "")) {
            (path, body) if path.starts_with('/') => ((first, path), expanded(body)),
            _ => (("POST", "/api/v1"), call(first, &expanded(rest))),
        };
        Self {
            method,
            path,
            body,
            status: status.parse().unwrap(),
            shows,
            required: required.collect(),
        }
    }
}

/// A call of the operator API with its content.
fn call(kind: &str, content: &str) -> String {
    let mut call = json!({ "type": kind });
    if !content.is_empty() {
        call[kind.to_lowercase()] = serde_json::from_str(content).unwrap();
    }
    call.to_string()
}

/// The text with its resources and other long parts.
fn expanded(text: &str) -> String {
    let text = text.replace("<of agent>", r#""agent_id":{"value":"<agent>"}"#);
    let text = text.replace("<windows>", WINDOWS);
    let text = text.replace("<quota>", &QUOTA.replace("dev", "new"));
    let resources = [
        ("<cpus 1>", reserved("cpus", 1.0)),
        ("<cpus 2>", reserved("cpus", 2.0)),
        ("<disk 10>", reserved("disk", 10.0)),
        ("<new>", volume("new", 10.0)),
        ("<old>", volume("old", 50.0)),
    ];
    let put = |text: String, (name, value): &(&str, Value)| text.replace(name, &value.to_string());
    resources.iter().fold(text, put)
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
    let allowed = lists(false, &case.required, "ANY");
    let (status, text) = fixture.ask(prefix, case, &allowed).await;
    let is_done = status == case.status && text.contains(case.shows);
    (!is_done).then(|| format!("though it is allowed: {status} {text}"))
}

/// SPEC 3.7.
#[test]
fn each_request_is_authorized_by_its_own_acl() {
    let mut found = Vec::new();
    for action in Action::ALL {
        let cases = rows(REQUESTS).into_iter().map(Case::of);
        let cases: Vec<Case> = cases.filter(|case| case.required[0] == *action).collect();
        let elsewhere = ELSEWHERE.iter().find(|(other, _)| other == action);
        if let Some((_, test)) = elsewhere {
            assert_contains!(PERMISSIONS, format!("fn {test}()"), action.name());
        }
        let is_asked = !NOT_ASKED.split(' ').any(|name| name == action.name());
        let by_requests = is_asked && elsewhere.is_none();
        assert_eq!(by_requests, !cases.is_empty(), "{}", action.name());
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
