//! Access control on a real cluster: realms, access control lists and rate limits (SPEC 3.7, 3.3).

use serde_json::Value;
use testkit::assert_contains;

use crate::in_time::InTime;
use crate::support::{Cluster, Running, eventually, get, header, request, stderr, stdout};

/// The accepted credentials.
const CREDENTIALS: &str = r#"{"credentials":[{"principal":"ops","secret":"open sesame"},{"principal":"guest","secret":"please"}]}"#;
/// `ops:open sesame` and `guest:please` as HTTP Basic.
const OPS: &str = "Authorization: Basic b3BzOm9wZW4gc2VzYW1l";
const GUEST: &str = "Authorization: Basic Z3Vlc3Q6cGxlYXNl";

/// A cluster that requires credentials, with these flags.
fn cluster(agents: u16, flags: &[&str]) -> (Cluster, tempfile::NamedTempFile) {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::write(file.path(), CREDENTIALS).expect("it is written");
    let path = file.path().display().to_string();
    let mut all = vec!["--credentials", &path];
    all.extend(flags);
    (Cluster::with(agents, &all), file)
}

#[track_caller]
fn status(head: &str, code: &str) {
    let line = head.lines().next().unwrap_or_default();
    assert!(line.contains(code), "expected {code}: {head}");
}

fn page(port: u16, path: &str, header: &str) -> Value {
    let (head, text) = request(port, "GET", path, header, "");
    status(&head, "200");
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{path}: {error}: {text}"))
}

// Covers 2.1 401, 403.
#[test]
fn realms_require_credentials_but_health_does_not() {
    let flags = [
        "--authenticate_http_readonly",
        "--authenticate_http_readwrite=true",
        "--authenticate_http_frameworks",
        "--resources",
        "cpus:1;mem:64",
    ];
    let (cluster, _file) = cluster(1, &flags);
    let (master, agent) = (cluster.port, cluster.port + 1);
    let wrong = "Authorization: Basic b3BzOndyb25n";
    for (port, service, path) in [
        (master, "master", "/state"),
        (master, "master", "/metrics/snapshot"),
        (agent, "agent", "/state"),
        (agent, "agent", "/monitor/statistics"),
    ] {
        for given in ["", wrong] {
            let (head, _) = request(port, "GET", path, given, "");
            status(&head, "401");
            let challenge = format!("Basic realm=\"mesos-{service}-readonly\"");
            assert_eq!(header(&head, "www-authenticate"), Some(challenge));
        }
        let (head, _) = request(port, "GET", path, OPS, "");
        status(&head, "200");
    }
    let weights = r#"[{"role":"dev","weight":2}]"#;
    let (head, _) = request(master, "PUT", "/weights", "", weights);
    status(&head, "401");
    let challenge = header(&head, "www-authenticate");
    assert_eq!(
        challenge.as_deref(),
        Some("Basic realm=\"mesos-master-readwrite\"")
    );
    let (head, _) = request(master, "PUT", "/weights", OPS, weights);
    status(&head, "200");
    let (head, _) = request(master, "POST", "/api/v1/scheduler", "", "{}");
    status(&head, "401");
    let challenge = header(&head, "www-authenticate");
    assert_eq!(
        challenge.as_deref(),
        Some("Basic realm=\"mesos-master-scheduler\"")
    );
    for port in [master, agent] {
        for path in ["/health", "/version"] {
            status(&get(port, path).0, "200");
        }
    }
    let flags = page(master, "/flags", OPS).to_string();
    assert!(
        flags.contains("authenticate_http_readonly") && !flags.contains("sesame"),
        "{flags}"
    );
    // Native commands authenticate with a certificate.
    assert!(cluster.output(["run", "--", "true"]).status.success());
}

// Covers 2.1 401, 403.
#[test]
fn acls_restrict_changes_views_and_task_users() {
    let acls = r#"{
        "update_weights":[{"principals":{"values":["ops"]},"roles":{"values":["eng/%"]}},
            {"principals":{"type":"NONE"},"roles":{"type":"ANY"}}],
        "reserve_resources":[{"principals":{"type":"NONE"},"roles":{"values":["eng"]}}],
        "view_frameworks":[{"principals":{"values":["ops"]},"users":{"type":"ANY"}},
            {"principals":{"values":["guest"]},"users":{"type":"NONE"}}],
        "get_endpoints":[{"principals":{"values":["guest"]},"paths":{"type":"NONE"}}],
        "view_flags":[{"principals":{"values":["guest"]},"flags":{"type":"NONE"}}],
        "run_tasks":[{"principals":{"type":"NONE"},"users":{"values":["alien"]}}],
        "register_frameworks":[{"principals":{"type":"NONE"},"roles":{"values":["secret"]}}]}"#;
    let flags = [
        "--authenticate_http_readonly",
        "--authenticate_http_readwrite",
        "--acls",
        acls,
        "--resources",
        "cpus:1;mem:64",
    ];
    let (cluster, _file) = cluster(1, &flags);
    let port = cluster.port;
    for (given, role, code) in [
        (OPS, "eng/dev", "200"),
        (OPS, "ads", "403"),
        (GUEST, "eng/dev", "403"),
    ] {
        let body = format!(r#"[{{"role":"{role}","weight":2}}]"#);
        let (head, text) = request(port, "PUT", "/master/weights", given, &body);
        status(&head, code);
        assert_eq!(code == "403", text == "403 Forbidden.", "{text}");
    }
    let agent = page(port, "/slaves", OPS)["slaves"][0]["id"].clone();
    let body = format!(
        r#"slaveId={}&resources=[{{"name":"cpus","type":"SCALAR","scalar":{{"value":1}},"role":"eng","reservation":{{"principal":"ops"}}}}]"#,
        agent.as_str().unwrap_or_default()
    );
    let (head, text) = request(port, "POST", "/reserve", OPS, &body);
    status(&head, "403");
    assert_eq!(text, "403 Forbidden.");
    // The principal of a certificate is its name.
    let verb = [
        "reserve",
        agent.as_str().unwrap_or_default(),
        "cpus:1",
        "--role",
        "eng",
    ];
    let native = cluster.output(verb);
    assert!(!native.status.success(), "{}", stdout(&native));

    let run = [
        "run",
        "--resources",
        "cpus:0.5;mem:32",
        "--",
        "sleep",
        "600",
    ];
    let _framework = Running::start(&mut cluster.verb(run));
    eventually("the task to run", || {
        let tasks = page(port, "/tasks", OPS);
        (tasks["tasks"][0]["state"] == "TASK_RUNNING").then_some(())
    });
    let (seen, hidden) = (page(port, "/state", OPS), page(port, "/state", GUEST));
    assert_eq!(seen["frameworks"].as_array().map(Vec::len), Some(1));
    assert!(seen["flags"]["port"].is_string());
    assert_eq!(hidden["frameworks"].as_array().map(Vec::len), Some(0));
    assert_eq!(hidden["flags"], serde_json::json!({}));
    assert_eq!(
        hidden["slaves"][0]["used_resources"],
        seen["slaves"][0]["used_resources"]
    );
    assert_eq!(
        page(port, "/tasks", GUEST)["tasks"]
            .as_array()
            .map(Vec::len),
        Some(0)
    );
    assert_eq!(
        page(port, "/frameworks", GUEST)["frameworks"]
            .as_array()
            .map(Vec::len),
        Some(0)
    );
    for path in "/flags /metrics/snapshot /__processes__ /no/such/page".split(' ') {
        let (head, _) = request(port, "GET", path, GUEST, "");
        status(&head, "403");
    }
    let (head, _) = request(cluster.port + 1, "GET", "/monitor/statistics", GUEST, "");
    status(&head, "403");

    let refused = cluster.output(["run", "--role", "secret", "--", "true"]);
    assert!(!refused.status.success(), "{}", stdout(&refused));
    assert_contains!(
        stderr(&refused),
        "Not authorized to register framework  with roles { secret }"
    );
}

/// `permissive` in the file has no effect.
// Covers W32; 2.1 401, 403.
#[test]
fn default_deny_permits_only_listed_actions() {
    let acls = r#"{
        "permissive":true,
        "register_agents":[{"principals":{"type":"ANY"},"agents":{"type":"ANY"}}],
        "get_endpoints":[{"principals":{"values":["ops"]},"paths":{"type":"ANY"}}],
        "view_frameworks":[{"principals":{"values":["ops"]},"users":{"type":"ANY"}}],
        "register_frameworks":[{"principals":{"type":"ANY"},"roles":{"values":["dev"]}}],
        "update_weights":[{"principals":{"values":["ops"]},"roles":{"values":["dev"]}}]}"#;
    let flags = [
        "--authenticate_http_readonly",
        "--authenticate_http_readwrite",
        "--acls",
        acls,
        "--acls_deny_by_default",
        "--resources",
        "cpus:1;mem:64",
    ];
    // The agent may register.
    let (cluster, _file) = cluster(1, &flags);
    let (master, agent) = (cluster.port, cluster.port + 1);
    for (given, role, code) in [
        (OPS, "dev", "200"),
        (OPS, "ads", "403"),
        (GUEST, "dev", "403"),
    ] {
        let body = format!(r#"[{{"role":"{role}","weight":2}}]"#);
        let (head, text) = request(master, "PUT", "/weights", given, &body);
        status(&head, code);
        assert_eq!(code == "403", text == "403 Forbidden.", "{text}");
    }
    for (port, path) in [
        (master, "/metrics/snapshot"),
        (agent, "/metrics/snapshot"),
        (agent, "/monitor/statistics"),
    ] {
        status(&request(port, "GET", path, OPS, "").0, "200");
        status(&request(port, "GET", path, GUEST, "").0, "403");
    }
    let quota = r#"{"quota_configs":[{"role":"dev","limits":{"cpus":{"value":1}}}]}"#;
    let changes = [
        ("POST", "/quota", quota),
        ("POST", "/maintenance/schedule", r#"{"windows":[]}"#),
    ];
    for (method, path, body) in changes {
        let (head, text) = request(master, method, path, OPS, body);
        status(&head, "403");
        assert_eq!(text, "403 Forbidden.");
    }
    // No rule permits viewing flags or running tasks.
    for (port, shown) in [(master, serde_json::json!({})), (agent, Value::Null)] {
        assert_eq!(page(port, "/state", OPS)["flags"], shown);
        status(&get(port, "/health").0, "200");
    }
    for (role, words) in [
        ("dev", "Principal '' no authorized to launch task "),
        (
            "ads",
            "Not authorized to register framework  with roles { ads }",
        ),
    ] {
        let refused = cluster.output(["run", "--role", role, "--", "true"]);
        assert!(!refused.status.success(), "{}", stdout(&refused));
        let text = stderr(&refused);
        assert!(text.contains(words), "{role}: {text}");
    }
}

// Covers W29; 2.3 ERROR.
#[test]
fn rate_limits_apply_to_each_principal_separately() {
    let limits = r#"{"limits":[{"principal":"guest","qps":0.001,"capacity":0}]}"#;
    let flags = ["--authenticate_http_readwrite", "--rate_limits", limits];
    let (cluster, _file) = cluster(0, &flags);
    let set = |given: &str| {
        let body = r#"[{"role":"dev","weight":2}]"#;
        request(cluster.port, "PUT", "/weights", given, body)
    };
    status(&set(GUEST).0, "200");
    let (head, text) = set(GUEST);
    status(&head, "503");
    assert!(
        header(&head, "retry-after").is_some() && text.contains("`guest`"),
        "{head} {text}"
    );
    for _ in 0..5 {
        status(&set(OPS).0, "200");
    }
    let metrics = page(cluster.port, "/metrics/snapshot", "");
    for (name, value) in [
        ("guest/messages_received", 2.0),
        ("guest/messages_processed", 1.0),
        ("guest/messages_dropped", 1.0),
        ("ops/messages_received", 5.0),
        ("ops/messages_dropped", 0.0),
    ] {
        assert_eq!(
            metrics[format!("frameworks/{name}")],
            value,
            "{name}: {metrics}"
        );
    }
}

#[test]
fn invalid_access_flags_stop_the_start_without_leaking_secrets() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("credentials");
    std::fs::write(
        &path,
        r#"{"credentials":[{"principal":"ops","secret":["sesame"]}]}"#,
    )
    .expect("it is written");
    let path = path.display().to_string();
    for (flags, words) in [
        (
            vec!["--credentials", path.as_str()],
            "credentials[0].secret",
        ),
        (vec!["--credentials", "/no/such/file"], "/no/such/file"),
        (vec!["--authenticate_http_readonly"], "--credentials"),
        (vec!["--acls", r#"{"run_task":[]}"#], "`run_tasks`"),
        (
            vec!["--rate_limits", r#"{"limits":[{"principal":"a","qps":0}]}"#],
            "limits[0].qps",
        ),
    ] {
        let mut command = crate::support::meros(["local", "--agents", "0", "--port", "1"]);
        command.arg("--work_dir").arg(directory.path()).args(&flags);
        let output = command.output_in_time().expect("meros runs");
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{flags:?}: {text}");
        assert!(
            text.contains(words) && !text.contains("sesame"),
            "{flags:?}: {text}"
        );
    }
}
