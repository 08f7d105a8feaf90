//! The operator API and the pages of a real agent with a running task (SPEC 2.7, 3.9, 3.12, 5.11).

use protocol::TaskState;
use serde_json::{Value, json};
use testkit::http::{Answer, Endpoint};
use v1::schema::agent::{Call, Response};
use v1::{Form, Limits};

use crate::scripted_framework::{ScriptedFramework, framework, task};
use crate::support::{Cluster, eventually, get};

/// Writes a file to read and a link out of the sandbox, and then sleeps.
const LINE: &str = "ln -s /etc out; mkdir inner; echo hello; exec sleep 86414";

fn call(json: &Value) -> Call {
    let read = Form::Json.read(json.to_string().as_bytes(), Limits::default());
    read.unwrap_or_else(|bad| panic!("{bad}: {json}"))
}

#[test]
fn agent_serves_its_state_and_only_sandbox_files() {
    let cluster = Cluster::start(1, "cpus:2;mem:256");
    let mut scripted = ScriptedFramework::subscribe(&cluster, framework("patron", "*"));
    let offer = scripted.offer();
    let only = task("only", &offer, "cpus:0.5;mem:16", LINE);
    scripted.launch(&offer, vec![only]);
    scripted.state("only", TaskState::Running);
    let port = cluster.port + 1;

    let page = |path: &str| -> Value {
        let (status, text) = get(port, path);
        assert!(status.contains("200"), "{path}: {status} {text}");
        let (status, prefixed) = get(port, &format!("/slave(1){path}"));
        assert!(
            status.contains("200"),
            "/slave(1){path}: {status} {prefixed}"
        );
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{path}: {error}: {text}"))
    };
    let executor = page("/state")["frameworks"][0]["executors"][0].clone();
    assert_eq!(executor["tasks"][0]["id"], "only");
    assert_eq!(page("/flags")["flags"]["port"], port.to_string());
    assert_eq!(page("/metrics/snapshot")["slave/registered"], 1.0);
    assert_eq!(page("/containers")[0]["executor_id"], "only");
    assert_eq!(page("/monitor/statistics")[0]["executor_id"], "only");
    let directory = executor["directory"].as_str().expect("its sandbox");
    eventually("the output to be written", || {
        let read = page(&format!("/files/read?path={directory}/stdout&offset=0"));
        (read["data"] == "hello\n").then_some(())
    });
    let listed = page(&format!("/files/browse?path={directory}"));
    let names: Vec<&str> = listed
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|entry| entry["path"].as_str()?.rsplit('/').next())
        .collect();
    assert_eq!(names, ["inner", "out", "stderr", "stdout"]);
    let (status, text) = get(port, &format!("/files/download?path={directory}/stdout"));
    assert!(status.contains("200") && text == "hello\n", "{text}");
    for (path, status) in [
        ("/etc/passwd".to_owned(), "404"),
        (format!("{directory}/out/passwd"), "403"),
        (format!("{directory}/../../../../stdout"), "40"),
        (format!("{directory}/missing"), "404"),
        (String::new(), "400"),
    ] {
        let (found, text) = get(port, &format!("/files/read?path={path}&offset=0"));
        assert!(found.contains(status), "{path}: {found} {text}");
    }

    let endpoint = Endpoint::new(port, "/api/v1");
    let answer = |json: Value| -> Response {
        let answer = endpoint.call(&call(&json));
        assert_eq!(answer.status, 200, "{json}: {}", answer.text());
        answer.message(Form::Json)
    };
    for kind in "GET_HEALTH GET_VERSION GET_LOGGING_LEVEL GET_FLAGS".split(' ') {
        let answer = answer(json!({"type": kind}));
        let kind_name = answer.r#type.map(|kind| kind.to_string());
        assert_eq!(kind_name.as_deref(), Some(kind));
    }
    let metrics = answer(
        json!({"type": "GET_METRICS", "get_metrics": {"timeout": {"nanoseconds": 5_000_000_000_i64}}}),
    );
    let metrics = metrics.get_metrics.expect("metrics").metrics;
    let registered = metrics.iter().find(|one| one.name == "slave/registered");
    assert_eq!(registered.and_then(|one| one.value), Some(1.0));
    let state = answer(json!({"type": "GET_STATE"})).get_state;
    let tasks = state.and_then(|state| state.get_tasks).expect("tasks");
    assert_eq!(tasks.launched_tasks[0].task_id.value, "only");
    let containers = answer(json!({"type": "GET_CONTAINERS"})).get_containers;
    let container = containers.expect("containers").containers.remove(0);
    assert!(
        container
            .container_status
            .is_some_and(|status| status.executor_pid.is_some())
    );
    let agent = answer(json!({"type": "GET_AGENT"})).get_agent;
    let info = agent.and_then(|agent| agent.agent_info).expect("who it is");
    assert_eq!(info.id.map(|id| id.value), Some(offer.agent_id.to_string()));
    let read = json!({"path": format!("{directory}/stdout"), "offset": 1, "length": 3});
    let read = answer(json!({"type": "READ_FILE", "read_file": read})).read_file;
    let read = read.expect("a piece");
    assert_eq!((read.size, &read.data[..]), (6, &b"ell"[..]));
    let list = json!({"type": "LIST_FILES", "list_files": {"path": directory}});
    let listed = answer(list).list_files.expect("a list").file_infos;
    assert_eq!(listed.len(), 4);

    let none = answer(json!({"type": "GET_RESOURCE_PROVIDERS"})).get_resource_providers;
    assert!(none.is_some_and(|none| none.resource_providers.is_empty()));

    let check = |answer: Answer, status: u16, words: &str| {
        assert_eq!(answer.status, status, "{}: {words}", answer.text());
        assert!(answer.text().contains(words), "{}: {words}", answer.text());
    };
    check(
        endpoint.call(&call(&json!({"type": "MARK_RESOURCE_PROVIDER_GONE"}))),
        501,
        "MARK_RESOURCE_PROVIDER_GONE",
    );
    check(
        endpoint.call(&call(&json!({"type": "PRUNE_IMAGES"}))),
        200,
        "",
    );
    for path in [
        "/api/v1/resource_provider",
        "/slave(1)/api/v1/resource_provider",
    ] {
        let providers = Endpoint::new(port, path);
        let answer = providers.post("application/json", b"{}");
        check(answer, 501, "resource providers");
        assert_eq!(providers.get().status, 405);
    }
    check(endpoint.post("application/json", b"{}"), 400, "type");
    check(endpoint.post("application/json", b"[1"), 400, "");
    let read = call(&json!({"type": "READ_FILE"}));
    check(endpoint.call(&read), 400, "read_file");
    let protobuf = Endpoint::new(port, "/slave(1)/api/v1").form(Form::Protobuf);
    let answer = protobuf.call(&call(&json!({"type": "GET_FRAMEWORKS"})));
    let frameworks = answer.message::<Response>(Form::Protobuf).get_frameworks;
    assert_eq!(frameworks.map(|known| known.frameworks.len()), Some(1));
}
