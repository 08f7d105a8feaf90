//! The pages of master and agent, as a monitoring system reads them.

use testkit::assert_contains;

use crate::support::{Cluster, get, page, send};

#[test]
fn master_and_agent_serve_health_version_metrics_and_processes() {
    let cluster = Cluster::start(1, "cpus:2;mem:256");
    for (port, service) in [(cluster.port, "master"), (cluster.port + 1, "agent")] {
        let (status, _) = get(port, "/health");
        assert!(status.contains("200"), "{service}: {status}");
        let version = page(port, "/version");
        assert_eq!(version["version"], "1.11.0", "{version}");
        assert_eq!(version["meros_version"], env!("CARGO_PKG_VERSION"));
        let (_, processes) = get(port, "/__processes__");
        assert_contains!(processes, format!("\"id\":\"{service}\""));
        let (status, text) = get(port, "/metrics");
        assert!(
            status.contains("200") && text.starts_with("meros_"),
            "{text}"
        );
        let (status, text) = get(port, "/no/such/page");
        assert!(
            status.contains("404") && text.contains("/health"),
            "{status} {text}"
        );
    }
}

/// What tools written for Mesos index, whatever the method and the query.
#[test]
fn pages_answer_as_mesos_tools_expect() {
    let cluster = Cluster::start(1, "cpus:2;mem:256");
    let json = |port: u16, method: &str, path: &str| {
        let (status, text) = send(port, method, path, "");
        assert!(status.contains("200"), "{method} {path}: {status} {text}");
        serde_json::from_str::<serde_json::Value>(&text).expect("JSON")
    };
    let (master, agent) = (cluster.port, cluster.port + 1);
    for (port, flags) in [
        (
            master,
            "allocator authenticate_agents authorizers framework_sorter help http_authenticators ip logging_level \
             max_completed_frameworks max_completed_tasks_per_framework quiet registry role_sorter version work_dir",
        ),
        (
            agent,
            "authorizer containerizers help http_command_executor ip isolation launcher logging_level quiet recover \
             switch_user version work_dir",
        ),
    ] {
        let found = json(port, "GET", "/flags");
        for flag in flags.split_whitespace() {
            assert!(found["flags"][flag].is_string(), "{flag} in {found}");
        }
        for method in ["GET", "POST", "OPTIONS"] {
            assert_eq!(json(port, method, "/logging/toggle"), 0);
            assert!(json(port, method, "/metrics/snapshot?timeout=2mins").is_object());
            assert_eq!(json(port, method, "/state?order=up")["version"], "1.11.0");
        }
    }
    for query in ["order=desc", "limit=-1", "limit=abc", "offset=-1"] {
        assert_eq!(
            json(master, "GET", &format!("/tasks?{query}"))["tasks"],
            serde_json::json!([])
        );
    }
    assert_eq!(json(master, "GET", "/files/debug"), serde_json::json!({}));
    let pending = serde_json::json!({ "pending": [] });
    assert_eq!(json(agent, "GET", "/containerizer/debug"), pending);
}

#[test]
fn metrics_snapshot_has_mesos_names_and_true_values() {
    let cluster = Cluster::start(2, "cpus:2;mem:256");
    let (_, text) = get(cluster.port, "/metrics/snapshot?timeout=5secs");
    let snapshot: serde_json::Value = serde_json::from_str(&text).expect("flat JSON");
    for (name, value) in [
        ("master/elected", 1.0),
        ("master/slaves_active", 2.0),
        ("master/cpus_total", 4.0),
        ("master/mem_total", 512.0),
    ] {
        assert_eq!(snapshot[name].as_f64(), Some(value), "{name} in {text}");
    }
    let (status, problem) = get(cluster.port, "/metrics/snapshot?timeout=soon");
    assert!(
        status.contains("400") && problem.contains("soon"),
        "{status} {problem}"
    );
    let (_, text) = get(cluster.port + 1, "/metrics/snapshot");
    let snapshot: serde_json::Value = serde_json::from_str(&text).expect("flat JSON");
    assert_eq!(snapshot["slave/registered"].as_f64(), Some(1.0), "{text}");
}

// Covers 3.12 Pages of masters.
#[test]
fn state_has_the_keys_for_mesos_tools() {
    let cluster = Cluster::start(2, "cpus:2;mem:256;ports:[31000-31009]");
    assert!(cluster.output(["run", "--", "true"]).status.success());
    let (status, text) = get(cluster.port, "/state");
    assert!(status.contains("200"), "{status}");
    let state: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    for key in [
        "version",
        "start_time",
        "elected_time",
        "id",
        "pid",
        "hostname",
        "activated_slaves",
        "slaves",
        "frameworks",
        "completed_frameworks",
    ] {
        assert!(state.get(key).is_some(), "{key} is missing in {text}");
    }
    assert_eq!(state["activated_slaves"].as_f64(), Some(2.0));
    assert_eq!(state["slaves"][0]["resources"]["cpus"].as_f64(), Some(2.0));
    assert_eq!(
        state["slaves"][0]["resources"]["ports"].as_str(),
        Some("[31000-31009]")
    );
    let completed = &state["completed_frameworks"][0]["completed_tasks"][0];
    assert_eq!(completed["state"].as_str(), Some("TASK_FINISHED"), "{text}");
}
