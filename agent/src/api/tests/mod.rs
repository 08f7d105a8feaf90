//! Tests of the agent's answers and pages, as pure functions of three containers.

mod containers;
mod history;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use authority::{Acls, Action, Approver, Subject};
use protocol::agent::Domain;
use protocol::usage::{
    BlockOperations, BlockStatistics, ExecutorUsage, NetworkStatistics, Pressure,
    ResourceStatistics, ResourceUsage, Throttle, Traffic,
};
use protocol::{
    AgentId, AgentInfo, CommandInfo, ContainerId, ExecutorId, ExecutorInfo, FrameworkId,
    FrameworkInfo, OperationId, OperationState, OperationStatus, OperationUpdate, Reason, Source,
    TaskId, TaskInfo, TaskState, TaskStatus, Uuid,
};
use resources::{Attributes, Conversion, Reservation, Resources, Role};
use runtime::Timestamp;
use serde_json::{Value, json};

use super::{answers, sandbox_paths, state};
use crate::agent::AgentState;
use crate::api::visibility;
use crate::container::events::{ContainerView, ContainersView, Draining};
use crate::container::machine::Phase;
use crate::metrics::AgentMetrics;
use crate::operations::KnownOperation;

mod operations;

fn resources(text: &str) -> Resources {
    text.parse().unwrap()
}

fn allocated(text: &str) -> Resources {
    resources(text).allocate(&Role::new("ads").unwrap())
}

fn agent() -> AgentState {
    AgentState {
        info: AgentInfo {
            attributes: Attributes::parse("rack:abc").unwrap(),
            domain: Some(Domain {
                region: "r".into(),
                zone: "z".into(),
            }),
            id: Some(AgentId::new("s").unwrap()),
            ..AgentInfo::new("h", resources("cpus:4;cpus(ads):2;mem:1024;ports:[1-9]"))
        },
        address: Some([10, 0, 0, 7].into()),
        master: Some("m:5050".into()),
        started: Timestamp::from_nanos(90_000_000_000),
        metrics: AgentMetrics {
            uptime_secs: 10.0,
            ..AgentMetrics::default()
        },
    }
}

fn container(name: &str, phase: Phase, is_command: bool, tasks: &[TaskState]) -> ContainerView {
    let labels = BTreeMap::from([
        ("tier".to_owned(), "web".to_owned()),
        (
            protocol::text::reserved_labels::DISCOVERY.to_owned(),
            r#"{"visibility":"CLUSTER"}"#.to_owned(),
        ),
    ]);
    let task = |(number, state): (usize, &TaskState)| {
        let info = TaskInfo {
            kill_policy: Some(protocol::KillPolicy {
                grace_period: Duration::from_nanos(5),
            }),
            labels: labels.clone(),
            ..TaskInfo::new(
                TaskId::new(format!("{name}-{number}")).unwrap(),
                AgentId::new("s").unwrap(),
                allocated("cpus:1"),
            )
        };
        (info, *state)
    };
    ContainerView {
        id: ContainerId::new(format!("c-{name}")).unwrap(),
        framework_id: FrameworkId::new("f").unwrap(),
        executor: ExecutorInfo {
            name: format!("executor {name}"),
            labels: labels.clone(),
            ..ExecutorInfo::new(
                ExecutorId::new(name).unwrap(),
                CommandInfo::shell("run"),
                allocated("cpus:0.1"),
            )
        },
        is_command,
        phase,
        leader: (phase == Phase::Running).then_some(42),
        address: Some([10, 0, 0, 7].into()),
        networks: Vec::new(),
        directory: format!("/w/{name}"),
        allocated: allocated("cpus:1.1"),
        tasks: tasks.iter().enumerate().map(task).collect(),
        completed: Vec::new(),
        statuses: BTreeMap::from([(
            TaskId::new("runs-0").unwrap(),
            vec![
                Arc::new(statuses(TaskState::Starting, 1)),
                Arc::new(running()),
            ],
        )]),
    }
}

fn statuses(state: TaskState, half_seconds: u64) -> TaskStatus {
    let (id, at) = (
        TaskId::new("runs-0").unwrap(),
        Timestamp::from_nanos(half_seconds * 500_000_000),
    );
    TaskStatus {
        container_id: Some(ContainerId::new("c-runs").unwrap()), // Set in every status.
        ..TaskStatus::new(id, state, Source::Executor, at)
    }
}

/// The newest check result, as executors send it.
const CHECK: &str = r#"{"type":"HTTP","http":{"status_code":200}}"#;

/// A status with all optional fields.
fn running() -> TaskStatus {
    TaskStatus {
        message: "as it should".into(),
        reason: Some(Reason::TaskHealthCheckStatusUpdated),
        healthy: Some(true),
        uuid: Some(Uuid([7; 16])),
        labels: BTreeMap::from([
            ("tier".to_owned(), "web".to_owned()),
            (
                protocol::text::reserved_labels::CHECK_STATUS.to_owned(),
                CHECK.to_owned(),
            ),
        ]),
        ..statuses(TaskState::Running, 3)
    }
}

fn survey() -> ContainersView {
    ContainersView {
        frameworks: vec![FrameworkInfo {
            id: Some(FrameworkId::new("f").unwrap()),
            failover_timeout: Duration::from_secs(60),
            ..FrameworkInfo::new("alice", "shop")
        }],
        containers: vec![
            container("early", Phase::Registering, false, &[TaskState::Staging]),
            container(
                "runs",
                Phase::Running,
                true,
                &[TaskState::Running, TaskState::Finished],
            ),
            container("over", Phase::Terminated, false, &[TaskState::Failed]),
        ],
        ..ContainersView::default()
    }
}

fn usage() -> ResourceUsage {
    let measured = ResourceStatistics {
        timestamp: Timestamp::from_nanos(1_500_000_000),
        processes: 2,
        mem_rss_bytes: 4096,
        cpus_limit: 2.0,
        cpus_soft_limit: Some(0.5),
        cpus_nr_throttled: Some(3),
        mem_cache_bytes: Some(8192),
        blkio: vec![BlockStatistics {
            device: (8, 16),
            bytes: BlockOperations {
                read: 4096,
                write: 512,
                discard: 0,
            },
            requests: BlockOperations::default(),
        }],
        net: Some(NetworkStatistics {
            received: Traffic {
                bytes: 70,
                ..Traffic::default()
            },
            sent: Traffic::default(),
        }),
        cpu_pressure: Some(Pressure {
            some_secs: 1.5,
            full_secs: 0.5,
        }),
        ..ResourceStatistics::default()
    };
    let of = |name: &str, statistics| ExecutorUsage {
        framework_id: FrameworkId::new("f").unwrap(),
        executor_id: ExecutorId::new(name).unwrap(),
        executor_name: format!("executor {name}"),
        is_command: false,
        container_id: ContainerId::new(format!("c-{name}")).unwrap(),
        allocated: Resources::new(),
        tasks: Vec::new(),
        statistics,
        throttle: Throttle::default(),
        objectives: Vec::new(),
    };
    ResourceUsage {
        total: Resources::new(),
        executors: vec![of("early", None), of("runs", Some(measured))],
    }
}

/// The roles that bob can see.
fn roles(acls: &str) -> Approver {
    let acls = Acls::parse(acls).unwrap();
    acls.approver(&Subject::named("bob"), Action::ViewRoles)
}

fn whole(roles: &Approver) -> Value {
    let allocated = state::allocated(&survey());
    state::whole(&agent(), &survey(), &allocated, roles)
}

fn json_of(message: &dyn v1::Message) -> Value {
    serde_json::from_slice(&v1::json::write(message)).unwrap()
}

/// SPEC 2.7.
#[test]
fn tasks_are_listed_by_their_phase() {
    let tasks = json_of(&answers::tasks(&survey()));
    let ids = |list: &str| -> Vec<String> {
        let list = tasks[list].as_array().into_iter().flatten();
        list.map(|task| task["task_id"]["value"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(ids("queued_tasks"), ["early-0"]);
    assert_eq!(ids("launched_tasks"), ["runs-0"]);
    assert_eq!(ids("terminated_tasks"), ["runs-1", "over-0"]);
    assert!(ids("pending_tasks").is_empty() && ids("completed_tasks").is_empty());
    let launched = &tasks["launched_tasks"][0];
    assert_eq!(launched["state"], "TASK_RUNNING");
    assert!(launched.get("executor_id").is_none(), "of a command");
    let queued = &tasks["queued_tasks"][0];
    assert_eq!(queued["executor_id"]["value"], "early");
    assert_eq!(launched["agent_id"]["value"], "s");
    assert_eq!(launched["labels"]["labels"][0]["key"], "tier");
    let statuses = &launched["statuses"];
    assert_eq!(statuses[0]["state"], "TASK_STARTING");
    assert_eq!(statuses[1]["timestamp"], 1.5);
}

/// SPEC 2.7: as in Mesos' JSON, where clients index them.
#[test]
fn empty_lists_of_state_are_present() {
    let state = json_of(&answers::state(&ContainersView::default()));
    for (field, lists) in [
        (
            "get_frameworks",
            &["frameworks", "completed_frameworks"][..],
        ),
        ("get_executors", &["executors", "completed_executors"]),
        (
            "get_tasks",
            &[
                "pending_tasks",
                "queued_tasks",
                "launched_tasks",
                "terminated_tasks",
                "completed_tasks",
            ],
        ),
    ] {
        for list in lists {
            assert_eq!(state[field][list], json!([]), "{list}");
        }
    }
}

/// SPEC 2.7.
#[test]
fn answers_follow_the_v1_schema() {
    let state = json_of(&answers::state(&survey()));
    let executors = &state["get_executors"];
    assert_eq!(executors["executors"].as_array().map(Vec::len), Some(2));
    let over = &executors["completed_executors"][0]["executor_info"];
    assert_eq!(over["executor_id"]["value"], "over");
    assert_eq!(over["framework_id"]["value"], "f");
    let kinds = [0, 1].map(|place| executors["executors"][place]["executor_info"].get("type"));
    let custom = serde_json::json!("CUSTOM");
    assert_eq!(
        kinds,
        [Some(&custom), None],
        "the other is the agent's own, for a command"
    );
    let command = &executors["executors"][1]["executor_info"];
    assert_eq!(command["source"], "runs");
    let how = json!({ "shell": false, "value": "mesos-executor", "arguments": ["mesos-executor"] });
    assert_eq!(command["command"], how);
    assert_eq!(command["labels"]["labels"][0]["key"], "tier");
    assert_eq!(command["discovery"]["visibility"], "CLUSTER");
    for (place, name, amount) in [(0, "cpus", 0.1), (1, "mem", 32.0)] {
        let resource = &command["resources"][place];
        let shown = (&resource["name"], &resource["scalar"]["value"]);
        assert_eq!(shown, (&json!(name), &json!(amount)));
        assert_eq!(resource["allocation_info"]["role"], "ads");
    }
    let framework = &state["get_frameworks"]["frameworks"][0]["framework_info"];
    assert_eq!(framework["name"], "shop");
    assert_eq!(
        state["get_tasks"]["launched_tasks"]
            .as_array()
            .map(Vec::len),
        Some(1)
    );

    let containers = json_of(&answers::containers(&survey(), &usage(), false));
    let containers = containers["containers"].as_array().unwrap().clone();
    assert_eq!(containers.len(), 2, "an ended container is not listed");
    assert!(containers[0].get("resource_statistics").is_none());
    let runs = &containers[1];
    assert_eq!(runs["container_id"]["value"], "c-runs");
    assert_eq!(runs["container_status"]["executor_pid"], 42);
    let networks = &runs["container_status"]["network_infos"];
    assert_eq!(
        networks[0]["ip_addresses"][0]["ip_address"], "10.0.0.7",
        "that of the host"
    );
    let launched = &state["get_tasks"]["launched_tasks"][0];
    assert_eq!(launched["discovery"]["visibility"], "CLUSTER");
    assert_eq!(launched["labels"]["labels"][0]["key"], "tier");
    assert!(launched["labels"]["labels"].get(1).is_none());
    assert_eq!(launched["kill_policy"]["grace_period"]["nanoseconds"], 5);
    assert_eq!(
        &launched["statuses"][1]["container_status"]["network_infos"],
        networks
    );
    let newest = &launched["statuses"][1];
    assert_eq!(newest["source"], "SOURCE_EXECUTOR");
    assert_eq!(newest["reason"], "REASON_TASK_HEALTH_CHECK_STATUS_UPDATED");
    assert_eq!(
        (&newest["message"], &newest["healthy"]),
        (&json!("as it should"), &json!(true))
    );
    assert_eq!(newest["labels"]["labels"][0]["value"], "web");
    assert_eq!(newest["check_status"]["http"]["status_code"], 200);
    assert_eq!(newest["executor_id"]["value"], "runs");
    assert_eq!(launched["status_update_state"], "TASK_RUNNING");
    assert_eq!(launched["status_update_uuid"], newest["uuid"]);
    assert_eq!(runs["resource_statistics"]["mem_rss_bytes"], 4096);
    assert_eq!(runs["resource_statistics"]["timestamp"], 1.5);

    let is_drained = Draining {
        max_grace_period: Some(Duration::from_secs(5)),
        since: Timestamp::from_nanos(7),
    };
    let agent = json_of(&answers::agent(&agent(), Some(is_drained), &roles("{}")));
    assert_eq!(agent["agent_info"]["id"]["value"], "s");
    assert_eq!(agent["agent_info"]["hostname"], "h");
    assert_eq!(agent["agent_info"]["checkpoint"], true);
    let grace = &agent["drain_config"]["max_grace_period"];
    assert_eq!(grace["nanoseconds"], 5_000_000_000_u64);
    assert_eq!(agent["estimated_drain_start_time"]["nanoseconds"], 7);
}

/// SPEC 3.12: the keys of an agent's state, verbatim.
// Covers 3.12 `/state` of agents.
#[test]
fn state_has_the_keys_of_mesos() {
    let json = whole(&roles("{}"));
    for key in [
        "meros_version",
        "git_sha",
        "git_branch",
        "git_tag",
        "build_date",
        "build_time",
        "build_user",
        "start_time",
        "id",
        "pid",
        "hostname",
        "domain",
        "resources",
        "reserved_resources",
        "reserved_resources_full",
        "reserved_resources_allocated",
        "unreserved_resources",
        "unreserved_resources_full",
        "unreserved_resources_allocated",
        "resource_providers",
        "attributes",
        "master_hostname",
        "frameworks",
        "completed_frameworks",
    ] {
        assert!(json.get(key).is_some(), "{key} in {json}");
    }
    assert_eq!(json["version"], "1.11.0");
    assert_eq!(json["start_time"], 90.0);
    assert_eq!(json["pid"], "slave(1)@10.0.0.7:5051");
    assert_eq!(json["master_hostname"], "m");
    assert_eq!(json["resources"]["cpus"], 6.0);
    assert_eq!(json["resources"]["ports"], "[1-9]");
    assert_eq!(json["reserved_resources"]["ads"]["cpus"], 2.0);
    let full = &json["reserved_resources_full"]["ads"][0];
    assert_eq!(full["reservations"][0]["role"], "ads");
    assert_eq!(full["role"], "ads", "in both forms");
    assert_eq!(json["unreserved_resources"]["cpus"], 4.0);
    // Includes 0.1 cpus of overhead for the command executor.
    assert_eq!(json["unreserved_resources_allocated"]["cpus"], 2.3);
    assert_eq!(json["attributes"], json!({ "rack": "abc" }));
    assert_eq!(json["domain"]["fault_domain"]["zone"]["name"], "z");

    let framework = &json["frameworks"][0];
    for key in [
        "id",
        "name",
        "user",
        "failover_timeout",
        "checkpoint",
        "hostname",
        "role",
        "executors",
        "completed_executors",
    ] {
        assert!(framework.get(key).is_some(), "{key} in {framework}");
    }
    let early = &framework["executors"][0];
    for key in [
        "id",
        "name",
        "source",
        "container",
        "directory",
        "resources",
        "role",
        "labels",
        "type",
        "tasks",
        "queued_tasks",
        "completed_tasks",
    ] {
        assert!(early.get(key).is_some(), "{key} in {early}");
    }
    for key in
        "id name framework_id executor_id slave_id state resources limits role statuses labels"
            .split(' ')
    {
        let task = &early["queued_tasks"][0];
        assert!(task.get(key).is_some(), "{key} in {task}");
    }
    assert_eq!(early["discovery"], json!({ "visibility": "CLUSTER" }));
    let tier = json!([{ "key": "tier", "value": "web" }]);
    assert_eq!(early["labels"], tier);
    assert_eq!(early["queued_tasks"][0]["id"], "early-0");
    assert_eq!(early["role"], "ads");
    let runs = &framework["executors"][1];
    assert!(runs.get("type").is_none(), "of a command executor");
    // Its task has 1.1 cpus; the overhead is 0.1 cpus and 32 MB, as in Mesos.
    let resources = &runs["resources"];
    assert_eq!(
        (&resources["cpus"], &resources["mem"]),
        (&json!(1.2), &json!(32.0))
    );
    assert_eq!(early["resources"]["cpus"], 1.1);
    assert_eq!(
        (
            &runs["tasks"][0]["executor_id"],
            &early["queued_tasks"][0]["executor_id"]
        ),
        (&json!(""), &json!("early"))
    );
    assert_eq!(runs["tasks"][0]["state"], "TASK_RUNNING");
    assert_eq!(
        runs["tasks"][0]["discovery"],
        json!({ "visibility": "CLUSTER" })
    );
    assert_eq!(
        runs["tasks"][0]["labels"],
        json!([{ "key": "tier", "value": "web" }])
    );
    assert_eq!(runs["completed_tasks"][0]["id"], "runs-1");
    assert_eq!(early["queued_tasks"][0]["statuses"], json!([]));
    let container = json!({
        "container_id": { "value": "c-runs" },
        "executor_pid": 42,
        "network_infos": [{ "ip_addresses": [{ "protocol": "IPv4", "ip_address": "10.0.0.7" }] }],
    });
    let mut starting = json!({
        "state": "TASK_STARTING", "timestamp": 0.5, "labels": [], "source": "SOURCE_EXECUTOR", "message": "",
        "container_status": container,
    });
    let statuses = &runs["tasks"][0]["statuses"];
    assert_eq!(statuses[0], starting);
    starting["state"] = json!("TASK_RUNNING");
    starting["timestamp"] = json!(1.5);
    starting["labels"] = json!([{ "key": "tier", "value": "web" }]);
    starting["message"] = json!("as it should");
    starting["reason"] = json!("REASON_TASK_HEALTH_CHECK_STATUS_UPDATED");
    starting["healthy"] = json!(true);
    starting["check_status"] = serde_json::from_str(CHECK).unwrap();
    assert_eq!(statuses[1], starting);
    assert_eq!(framework["completed_executors"][0]["id"], "over");
}

/// SPEC 3.12: unknown values have no key, as in Mesos.
// Covers 3.12 `/state` of agents.
#[test]
fn unknown_values_are_absent_not_null() {
    let shown = |agent: &AgentState, survey: &ContainersView| {
        let allocated = state::allocated(survey);
        state::whole(agent, survey, &allocated, &roles("{}"))
    };
    let mut alone = agent();
    alone.master = None;
    alone.info.id = None;
    alone.info.domain = None;
    let mut survey = survey();
    let json = shown(&alone, &survey);
    assert!(!json.to_string().contains("null"), "{json}");
    assert_eq!(json["id"], "", "it has none before it is registered");
    for key in ["master_hostname", "domain", "log_dir", "drain_config"] {
        assert_eq!(json.get(key), None, "{key}");
    }
    assert_eq!(json["frameworks"][0].get("principal"), None);
    survey.frameworks[0].principal = Some("alice".to_owned());
    assert_eq!(
        shown(&alone, &survey)["frameworks"][0]["principal"],
        "alice"
    );
}

/// SPEC 3.12: the drain, while there is one.
// Covers 3.12 `/state` of agents.
#[test]
fn draining_agent_shows_policy_and_start() {
    let shown = |drain| {
        let survey = ContainersView { drain, ..survey() };
        let allocated = state::allocated(&survey);
        let roles = roles("{}");
        let json = state::whole(&agent(), &survey, &allocated, &roles);
        ["drain_config", "estimated_drain_start_time_seconds"].map(|key| json.get(key).cloned())
    };
    let drain = |max_grace_period| {
        let since = Timestamp::from_nanos(1_500_000_000);
        Some(Draining {
            max_grace_period,
            since,
        })
    };
    assert_eq!(shown(None), [None, None]);
    let since = Some(json!(1.5));
    assert_eq!(shown(drain(None)), [Some(json!({})), since.clone()]);
    let config = json!({ "max_grace_period": { "nanoseconds": 7_000_000_005_u64 } });
    let seven = Duration::from_nanos(7_000_000_005);
    assert_eq!(shown(drain(Some(seven))), [Some(config), since]);
}

/// SPEC 5.7, 5.11.
// Covers 5.11 Endpoints of agents.
#[test]
fn containers_and_usage_have_mesos_names() {
    let has_keys = |object: &Value, keys: &str| {
        for key in keys.split_whitespace() {
            assert!(object.get(key).is_some(), "{key} in {object}");
        }
    };
    let of_executor = "executor_id executor_name framework_id source";
    let containers = state::containers(&survey(), &usage());
    assert_eq!(containers.as_array().map(Vec::len), Some(2));
    has_keys(&containers[0], of_executor);
    assert_eq!(containers[0]["executor_name"], "executor early");
    let nothing = containers[0].get("statistics");
    assert_eq!(nothing, None, "nothing was measured of it");
    has_keys(&containers[1], "container_id status statistics");
    assert_eq!(containers[1]["status"]["executor_pid"], 42);
    assert_eq!(containers[1]["statistics"]["processes"], 2);
    let monitored = json!(state::Monitored(usage()));
    assert_eq!(monitored.as_array().map(Vec::len), Some(1));
    has_keys(&monitored[0], of_executor);
    has_keys(
        &monitored[0]["statistics"],
        "timestamp processes threads cpus_user_time_secs cpus_system_time_secs cpus_limit cpus_soft_limit mem_rss_bytes mem_limit_bytes mem_soft_limit_bytes",
    );
    let measured = &monitored[0]["statistics"];
    assert_eq!(measured["cpus_limit"], 2.0);
    assert_eq!(measured["cpus_soft_limit"], 0.5);
    assert_eq!(measured["mem_soft_limit_bytes"], 0);
    assert_eq!(measured["cpus_nr_throttled"], 3);
    assert_eq!(measured["mem_file_bytes"], measured["mem_cache_bytes"]);
    assert_eq!(measured.get("mem_swap_bytes"), None);
    let devices = &measured["blkio_statistics"]["throttling"];
    let number = json!({"major_number": 8, "minor_number": 16});
    assert_eq!(devices[0]["device"], number);
    let bytes = [
        ("READ", 4096),
        ("WRITE", 512),
        ("DISCARD", 0),
        ("TOTAL", 4608),
    ];
    let bytes = bytes.map(|(op, value)| json!({"op": op, "value": value}));
    assert_eq!(devices[0]["io_service_bytes"], json!(bytes));
    let total = json!({"io_serviced": [{"op": "TOTAL", "value": 0}], "io_service_bytes": [{"op": "TOTAL", "value": 4608}]});
    assert_eq!(devices[1], total);
    assert_eq!(
        (&measured["net_rx_bytes"], &measured["net_tx_dropped"]),
        (&json!(70), &json!(0))
    );
    let pressure = json!({"some_secs": 1.5, "full_secs": 0.5});
    assert_eq!(measured["cpu_pressure"], pressure);
    assert_eq!(measured.get("io_pressure"), None);
    assert_eq!(monitored[0]["executor_name"], "executor runs");
}

/// SPEC 3.7: `view_frameworks`, `view_executors`, `view_containers`, `view_tasks`,
/// `access_sandboxes`.
// Covers 5.11 Endpoints of agents.
#[test]
fn acls_filter_every_answer() {
    let bob = Subject::named("bob");
    let seen = |acls: &str| {
        let survey = visibility::visible(survey(), &Acls::parse(acls).unwrap(), &bob);
        let tasks = survey.containers.iter().map(|one| one.tasks.len());
        let tasks: usize = tasks.sum();
        (survey.frameworks.len(), survey.containers.len(), tasks)
    };
    let only = |action: &str, user: &str| {
        let rule = json!([{"principals": {"values": ["bob"]}, "users": {"values": [user]}}]);
        json!({ action: rule, "permissive": true }).to_string()
    };
    let none = |action: &str| {
        let rule = json!([{"principals": {"type": "ANY"}, "users": {"type": "NONE"}}]);
        json!({ action: rule, "permissive": true }).to_string()
    };
    assert_eq!(seen("{}"), (1, 3, 4));
    assert_eq!(seen(&only("view_frameworks", "alice")), (1, 3, 4));
    assert_eq!(seen(&none("view_frameworks")), (0, 0, 0));
    assert_eq!(seen(&none("view_executors")), (1, 0, 0));
    assert_eq!(seen(&none("view_containers")), (1, 3, 4));
    assert_eq!(seen(&none("view_tasks")), (1, 3, 0));
    assert_eq!(seen(r#"{"permissive": false}"#), (0, 0, 0));

    let enters = |path: &str, acls: &str| {
        let sandbox = sandbox_paths::find(Path::new("/w"), path).unwrap();
        let (survey, acls) = (survey(), Acls::parse(acls).unwrap());
        let (framework, executor) = (&sandbox.framework, &sandbox.executor);
        let owner = visibility::owner(&survey, framework, executor, &sandbox.run);
        visibility::check_sandbox_access(owner, &acls, &bob).is_ok()
    };
    let runs = "/frameworks/f/executors/runs/runs/c-runs/stdout";
    let strict = |acls: String| acls.replace("\"permissive\":true", "\"permissive\":false");
    let alices = strict(only("access_sandboxes", "alice"));
    assert!(enters(runs, "{}") && enters(runs, &alices));
    assert!(!enters(runs, &strict(only("access_sandboxes", "carol"))));
    assert!(!enters(runs, &none("access_sandboxes")));
    // Their framework is unknown, even where the known ones are alice's.
    let not_carols = json!({ "permissive": true, "access_sandboxes": [
        {"principals": {"type": "NONE"}, "users": {"values": ["carol"]}},
    ]});
    let not_carols = not_carols.to_string();
    assert!(enters(runs, &not_carols));
    for unknown in [
        "/frameworks/f/executors/runs/runs/c-older/stdout",
        "/frameworks/f/executors/runs/runs/c-over/stdout",
        "/frameworks/f/executors/runs/runs/latest/stdout",
        "/frameworks/f/executors/gone/runs/c-gone/stdout",
        "/frameworks/g/executors/runs/runs/c-runs/stdout",
    ] {
        assert!(!enters(unknown, &alices), "{unknown}");
        assert!(!enters(unknown, &not_carols), "{unknown}");
        assert!(!enters(unknown, &none("access_sandboxes")), "{unknown}");
        assert!(enters(unknown, "{}"), "{unknown}");
    }
}

/// SPEC 3.7: `view_roles`.
#[test]
fn invisible_roles_are_hidden_but_totals_stay() {
    let acls = r#"{"view_roles":[{"principals":{"type":"ANY"},"roles":{"type":"NONE"}}]}"#;
    let roles = roles(acls);
    let json = whole(&roles);
    for key in [
        "reserved_resources",
        "reserved_resources_full",
        "reserved_resources_allocated",
    ] {
        assert_eq!(json[key], json!({}), "{key}");
    }
    assert_eq!(json["resources"]["cpus"], 6.0);
    assert_eq!(json["unreserved_resources"]["cpus"], 4.0);
    let info = json_of(&answers::agent(&agent(), None, &roles))["agent_info"].clone();
    assert_eq!(info["hostname"], "h");
    assert!(!info["resources"].to_string().contains("ads"), "{info}");
}
