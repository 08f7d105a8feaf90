//! The pages of master and agent, as a monitoring system reads them.

use crate::support::{Cluster, get};

#[test]
fn master_and_agent_serve_health_version_metrics_and_processes() {
    let cluster = Cluster::start(1, "cpus:2;mem:256");
    for (port, service) in [(cluster.port, "master"), (cluster.port + 1, "agent")] {
        let (status, _) = get(port, "/health");
        assert!(status.contains("200"), "{service}: {status}");
        let (_, version) = get(port, "/version");
        let version: serde_json::Value = serde_json::from_str(&version).expect("JSON");
        assert_eq!(version["version"], "1.11.0", "{version}");
        assert_eq!(version["meros_version"], env!("CARGO_PKG_VERSION"));
        let (_, processes) = get(port, "/__processes__");
        assert!(
            processes.contains(&format!("\"id\":\"{service}\"")),
            "{processes}"
        );
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

#[test]
fn the_snapshot_bears_mesos_names_with_true_values() {
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

/// SPEC 3.12.
#[test]
fn the_state_has_the_keys_that_tools_rely_on() {
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
