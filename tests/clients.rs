//! Public client libraries, unchanged, against a real cluster (SPEC 2).
//!
//! `tests/clients/install target/clients` installs them, as `.ci/run` does; it needs Python, PyPI,
//! npm and its registry. Without them each test prints a line and skips.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use v1::Form;

use crate::http_scheduler::{Scheduler, framework};
use crate::in_time::InTime;
use crate::support::{Cluster, Running, eventually, get, stderr, stdout};

/// A Python that has pymesos.
fn python() -> Option<PathBuf> {
    installed("ready").map(|directory| directory.join("bin/python"))
}

/// The directory of the libraries, if this group is installed.
fn installed(marker: &str) -> Option<PathBuf> {
    let target = Path::new(env!("CARGO_BIN_EXE_meros")).ancestors().nth(2)?;
    let directory = target.join("clients");
    if directory.join(marker).exists() {
        return Some(directory);
    }
    eprintln!(
        "skipped: there are no client libraries in {}; `tests/clients/install {0}` makes them ready",
        directory.display()
    );
    None
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/clients")
        .join(name)
}

/// A script with these arguments, ready to run.
fn client(python: &Path, name: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(python);
    command
        .arg(script(name))
        .args(arguments)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    command
}

/// A script that runs on Node with the libraries of npm.
fn node(directory: &Path, name: &str, arguments: &[&str]) -> Command {
    let mut command = client(Path::new("node"), name, arguments);
    command.env("NODE_PATH", directory.join("npm/node_modules"));
    command
}

fn steps(printed: &str) -> Vec<&str> {
    printed
        .lines()
        .filter_map(|line| line.strip_prefix("ok "))
        .collect()
}

/// Subscribe, launch, reconcile, kill, decline, suppress and revive, a custom executor, teardown.
// Covers 2.2 TEARDOWN; 2.2 DECLINE; 2.2 REVIVE, SUPPRESS.
#[test]
fn pymesos_scheduler_and_executor_run_unchanged() {
    let Some(python) = python() else { return };
    let cluster = Cluster::start(1, "cpus:2;mem:512");
    let executor = script("pymesos_executor.py");
    let executor = executor.to_str().expect("a path in UTF-8");
    let output = client(
        &python,
        "pymesos_scheduler.py",
        &[&cluster.master, executor],
    )
    .output_in_time();
    let output = output.expect("Python runs");
    let printed = stdout(&output);
    assert!(output.status.success(), "{printed}");
    let expected = [
        "subscribe",
        "launch",
        "reconcile",
        "kill",
        "decline",
        "suppress",
        "revive",
        "custom executor",
        "teardown",
    ];
    assert_eq!(steps(&printed), expected);
    assert!(
        cluster
            .list("frameworks")
            .iter()
            .all(|framework| framework["active"] != true)
    );
}

#[test]
fn pymesos_operator_receives_events_and_answers() {
    let Some(python) = python() else { return };
    let cluster = Cluster::start(1, "cpus:2;mem:512");
    let mut operator = client(&python, "pymesos_operator.py", &[&cluster.master]);
    let mut operator = Running::start(&mut operator);
    operator.line("that it is subscribed", |line| line == "ok subscribed");
    assert!(cluster.output(["run", "--", "true"]).status.success());
    operator.line("the last of its steps", |line| line == "ok weights");
    assert!(operator.wait().success());
}

#[test]
fn mesoshttp_scheduler_runs_unchanged() {
    let Some(directory) = installed("ready-http") else {
        return;
    };
    let cluster = Cluster::start(1, "cpus:2;mem:512");
    let python = directory.join("bin/python");
    let output = client(&python, "mesoshttp_scheduler.py", &[&cluster.master]).output_in_time();
    let output = output.expect("Python runs");
    let printed = stdout(&output);
    assert!(output.status.success(), "{printed}");
    let expected = [
        "subscribe",
        "launch",
        "reconcile",
        "kill",
        "decline",
        "teardown",
    ];
    assert_eq!(steps(&printed), expected);
    eventually("the framework to be gone", || {
        let frameworks = cluster.list("frameworks");
        { frameworks.iter() }
            .all(|framework| framework["active"] != true)
            .then_some(())
    });
}

#[test]
fn npm_scheduler_runs_unchanged() {
    let Some(directory) = installed("ready-npm") else {
        return;
    };
    let cluster = Cluster::start(1, "cpus:2;mem:512;ports:[31000-31010]");
    let logs = cluster.directory().to_str().expect("a path in UTF-8");
    let port = cluster.port.to_string();
    let arguments = ["127.0.0.1", port.as_str(), logs];
    let output = node(&directory, "npm_scheduler.js", &arguments).output_in_time();
    let output = output.expect("Node runs");
    let printed = stdout(&output);
    assert!(output.status.success(), "{printed} {}", stderr(&output));
    assert_eq!(
        steps(&printed),
        ["subscribe", "offers", "launch", "kill", "teardown"]
    );
}

#[test]
fn npm_operator_client_receives_answers() {
    let Some(directory) = installed("ready-npm") else {
        return;
    };
    let cluster = Cluster::start(1, "cpus:2;mem:512");
    let mut operator = Running::start(&mut node(&directory, "npm_operator.js", &[&cluster.master]));
    operator.line("that it is subscribed", |line| line == "ok subscribed");
    assert!(cluster.output(["run", "--", "true"]).status.success());
    operator.line("the last of its steps", |line| {
        line == "ok framework_removed"
    });
    assert!(operator.wait().success());
}

/// A framework with a running task that has labels, a port and discovery.
fn discovered(cluster: &Cluster, program: &str) -> Scheduler {
    let mut scheduler = Scheduler::subscribe(cluster.port, Form::Json, framework("web"));
    let offer = scheduler.offer();
    let mut task = offer.task("api", program);
    let port = json!({"name": "ports", "type": "RANGES", "ranges": {"range": [{"begin": PORT, "end": PORT}]}});
    task["resources"].as_array_mut().expect("a list").push(port);
    task["labels"] = json!({"labels": [{"key": "prometheus.metrics.enabled", "value": "true"}]});
    task["discovery"] = json!({
        "visibility": "CLUSTER",
        "name": "api",
        "ports": {"ports": [{"number": PORT, "name": "http", "protocol": "tcp"}]},
    });
    scheduler.send(offer.launch(&[task]));
    scheduler.until("TASK_RUNNING");
    scheduler
}

/// The port of the discovered task: outside of those that tests take.
const PORT: u16 = 31_999;

/// SPEC 2.7. The exporter asks the agent below the path of its API.
#[test]
fn exporter_discovers_and_collects_task_metrics() {
    let Some(directory) = installed("ready-http") else {
        return;
    };
    let cluster = Cluster::start(1, &format!("cpus:2;mem:512;ports:[{PORT}-{PORT}]"));
    let python = directory.join("bin/python");
    let server = format!(
        "mkdir site && echo 'answered_total 42' > site/metrics && exec {} -m http.server --bind 127.0.0.1 --directory site {PORT}",
        python.display()
    );
    let _scheduler = discovered(&cluster, &server);
    let agent = (cluster.port + 1).to_string();
    let arguments = ["127.0.0.1", agent.as_str(), "answered_total 42"];
    let output = client(&python, "mae_exporter.py", &arguments).output_in_time();
    let output = output.expect("Python runs");
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(steps(&stdout(&output)), ["tasks", "endpoints", "metrics"]);
}

/// The form of a pid that mesos-dns splits: one `@`, and a host and port that need no lookup.
fn is_pid(value: &Value) -> bool {
    let parts: Vec<_> = value.as_str().unwrap_or_default().split('@').collect();
    let [_, address] = parts.as_slice() else {
        return false;
    };
    address.parse::<std::net::SocketAddr>().is_ok()
}

/// The fields that mesos-dns 0.9 reads from `/master/state` to make its records.
#[test]
fn state_has_all_fields_for_mesos_dns() {
    let cluster = Cluster::start(1, &format!("cpus:2;mem:512;ports:[{PORT}-{PORT}]"));
    let _scheduler = discovered(&cluster, "exec sleep 1000");
    for path in ["/master/state", "/master/state.json", "/state"] {
        let (_, body) = get(cluster.port, path);
        let state: Value = serde_json::from_str(&body).expect("JSON");
        // Its address names the leader; the port is that of the configuration.
        assert!(is_pid(&state["leader"]), "{}", state["leader"]);
        let agent = &state["slaves"][0];
        assert!(
            agent["id"].is_string() && agent["hostname"].is_string(),
            "{agent}"
        );
        assert!(is_pid(&agent["pid"]), "{agent}");
        let frameworks = state["frameworks"].as_array().expect("frameworks");
        let framework = frameworks
            .iter()
            .find(|framework| framework["name"] == "web");
        let framework = framework.expect("the framework");
        // mesos-dns rejects the whole page if any pid is not an address, even an empty one.
        assert!(framework.get("pid").is_none_or(is_pid), "{framework}");
        assert!(framework["hostname"].is_string(), "{framework}");
        let task = &framework["tasks"][0];
        assert_eq!(task["name"], "api");
        assert_eq!(task["id"], "api");
        assert_eq!(task["framework_id"], framework["id"]);
        assert_eq!(task["slave_id"], agent["id"]);
        assert_eq!(task["state"], "TASK_RUNNING");
        assert_eq!(task["resources"]["ports"], format!("[{PORT}-{PORT}]"));
        let discovery = &task["discovery"];
        assert_eq!(
            (&discovery["name"], &discovery["visibility"]),
            (&json!("api"), &json!("CLUSTER"))
        );
        let expected = json!([{"number": PORT, "name": "http", "protocol": "tcp"}]);
        assert_eq!(discovery["ports"]["ports"], expected);
        let statuses = task["statuses"].as_array().expect("statuses");
        let running = statuses
            .iter()
            .find(|status| status["state"] == "TASK_RUNNING");
        let running = running.expect("a status that says that it runs");
        assert!(running["timestamp"].is_f64(), "{running}");
        let network = &running["container_status"]["network_infos"][0];
        let address = network["ip_addresses"][0]["ip_address"].as_str();
        let address = address.unwrap_or_default().parse::<std::net::IpAddr>();
        assert!(address.is_ok(), "{running}");
    }
}

/// Some steps of the script change the directory.
#[test]
fn client_libraries_install_into_relative_and_absolute_directories() {
    let scratch = tempfile::tempdir().expect("a directory");
    let scratch = scratch.path();
    for directory in [
        PathBuf::from("relative/clients"),
        scratch.join("absolute/clients"),
    ] {
        let status = Command::new(script("install"))
            .arg(&directory)
            .current_dir(scratch)
            .env("MEROS_CLIENTS_PYTHON", script("pretend_python"))
            .env("MEROS_CLIENTS_NPM", "true")
            .status_in_time()
            .expect("the script runs");
        assert!(status.success(), "{}", directory.display());
        for group in ["ready", "ready-http", "ready-npm"] {
            let ready = scratch.join(&directory).join(group);
            assert!(ready.exists(), "{}", ready.display());
        }
    }
}
