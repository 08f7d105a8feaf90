//! Quotas and weights: set by pages and verbs, and persistent.

use serde_json::{Value, json};
use testkit::{assert_contains, assert_starts};

use crate::group::Group;
use crate::support::{Cluster, Running, eventually, get_with, page, send};

#[track_caller]
fn answered(port: u16, method: &str, path: &str, body: &str, code: &str) -> String {
    let (status, text) = send(port, method, path, body);
    assert!(
        status.contains(code),
        "{method} {path} {body}: {status} {text}"
    );
    text
}

// Covers 2.1 409.
#[test]
fn pages_and_verbs_set_and_show_quotas_and_weights() {
    let cluster = Cluster::start(1, "cpus:4;mem:512");
    let port = cluster.port;

    let body = r#"[{"role":"dev","weight":2.5},{"role":"qa","weight":3}]"#;
    answered(port, "PUT", "/weights", body, "200");
    let weights = json!([{ "role": "dev", "weight": 2.5 }, { "role": "qa", "weight": 3.0 }]);
    assert_eq!(page(port, "/master/weights"), weights);
    assert_eq!(cluster.done(&["weights", "set", "qa=1"]), "weights: qa=1\n");
    assert_eq!(
        cluster.done(&["weights", "show"]),
        "ROLE  WEIGHT\ndev   2.5\n"
    );
    let problem = answered(
        port,
        "PUT",
        "/weights",
        r#"[{"role":"dev","weight":0}]"#,
        "400",
    );
    let words = "for role 'dev': Invalid weight '0': Weights must be positive";
    assert!(problem.contains(words), "{problem}");

    // The form of Mesos before 1.9, as its documentation sends it with curl.
    let old =
        r#"{"role":"eng","guarantee":[{"name":"cpus","type":"SCALAR","scalar":{"value":2}}]}"#;
    answered(port, "POST", "/master/quota", old, "200");
    let again = answered(port, "POST", "/quota", old, "400");
    assert!(again.contains("already has quota"), "{again}");
    let config = &page(port, "/quota")["configs"][0];
    assert_eq!(config["limits"]["cpus"]["value"], 2.0);
    let problem = answered(port, "POST", "/quota", r#"{"role":"eng","#, "400");
    assert!(
        problem.contains("quota_configs"),
        "a right one is shown: {problem}"
    );
    answered(port, "DELETE", "/quota/eng", "", "200");
    answered(port, "DELETE", "/quota/eng", "", "400");

    let set = [
        "quota",
        "set",
        "eng/web",
        "--guarantee",
        "cpus:3",
        "--limit",
        "cpus:4;mem:256",
    ];
    let printed = cluster.done(&set);
    assert_eq!(printed, "eng/web: guarantee cpus:3, limit cpus:4;mem:256\n");
    let more = r#"{"quota_configs":[{"role":"ops","guarantees":{"cpus":{"value":2}}}]}"#;
    let problem = answered(port, "PUT", "/quota", more, "400");
    let words = "Invalid QuotaConfig: total quota guarantees 'cpus:5' exceed cluster capacity 'cpus:4; mem:512; ";
    assert!(problem.starts_with(words), "{problem}");
    let old = r#"{"role":"qa","guarantee":[{"name":"cpus","type":"SCALAR","scalar":{"value":2}}]}"#;
    let problem = answered(port, "POST", "/quota", old, "409");
    assert_starts!(problem, "Quota guarantees overcommit the cluster");
    let failed = cluster.refused(&["quota", "set", "ops", "--guarantee", "cpus:2"]);
    assert_contains!(failed, "nothing was changed", "force");
    cluster.done(&["quota", "set", "--json", more, "--force"]);
    let roles: Value = serde_json::from_str(&cluster.done(&["roles", "--json"])).expect("JSON");
    let ops = roles
        .as_array()
        .and_then(|roles| roles.iter().find(|role| role["name"] == "ops"));
    assert_eq!(
        ops.map(|ops| ops["quota"]["guarantee"]["cpus"].clone()),
        Some(json!(2.0))
    );
    assert_eq!(page(port, "/roles")["roles"], roles);
    let reset = cluster.done(&["quota", "reset", "ops", "eng/web"]);
    assert_eq!(reset, "no quota any more: ops, eng/web\n");
    assert_eq!(cluster.done(&["quota", "show"]), "no role has a quota\n");
}

#[test]
fn stored_quotas_and_weights_override_the_masters_flag() {
    let mut cluster = Cluster::master_alone(|command, _| {
        command.args(["--weights", "dev=2"]);
    });
    cluster.done(&["quota", "set", "eng", "--limit", "cpus:4"]);
    cluster.done(&["weights", "set", "dev=5,qa=3"]);
    // This time it has no flag at all.
    cluster.kill_and_restart_master();
    let weights = json!([{ "role": "dev", "weight": 5.0 }, { "role": "qa", "weight": 3.0 }]);
    assert_eq!(page(cluster.port, "/weights"), weights);
    let show = cluster.done(&["quota", "show"]);
    assert_eq!(
        show,
        "ROLE  GUARANTEE  LIMIT   CONSUMED\neng   nothing    cpus:4  nothing\n"
    );
}

/// Acknowledged changes are on the disks of a majority, and the next leader loads them.
#[test]
fn next_leader_has_quotas_weights_and_reservations() {
    let mut group = Group::start();
    let _agent = group
        .cluster
        .agent("agent", "cpus:4;mem:512;disk:0;ports:[]");
    let id = group.cluster.list("agents")[0]["id"].clone();
    let id = id.as_str().expect("an id").to_owned();
    let set = ["quota", "set", "eng", "--guarantee", "cpus:1"];
    group
        .cluster
        .done(&[&set[..], &["--limit", "cpus:2"]].concat());
    group.cluster.done(&["weights", "set", "dev=2.5"]);
    let reserve = ["reserve", &id, "cpus:1;mem:64", "--role", "ads"];
    group.cluster.done(&reserve);

    let old = group.leader();
    group.process(old).signal("KILL");
    group.process(old).wait();
    let next = group.leader_of(&group.others(old));
    let (_, port) = group.addresses[next].rsplit_once(':').expect("a port");
    let port: u16 = port.parse().expect("a port");
    // Of its own books: a mirror of the leader that was killed would know it as well.
    let own = |path: &str| {
        let (head, text) = get_with(port, path, "Cache-Control: no-cache");
        assert!(head.contains(" 200 "), "{path}: {head} {text}");
        serde_json::from_str::<Value>(&text).expect("JSON")
    };
    let config = &own("/quota")["configs"][0];
    assert_eq!(config["role"], "eng");
    assert_eq!(config["guarantees"]["cpus"]["value"], 1.0);
    assert_eq!(config["limits"]["cpus"]["value"], 2.0);
    assert_eq!(own("/weights"), json!([{ "role": "dev", "weight": 2.5 }]));
    let agent = eventually("the agent to be back", || {
        let agent = own("/slaves")["slaves"][0].clone();
        (agent["active"] == true).then_some(agent)
    });
    assert_eq!(agent["id"], id.as_str());
    let reserved = &agent["reserved_resources"]["ads"];
    assert_eq!(
        (&reserved["cpus"], &reserved["mem"]),
        (&json!(1.0), &json!(64.0))
    );
    assert_eq!(agent["unreserved_resources"]["cpus"], 3.0);
}

#[test]
fn follower_redirects_changes_to_the_leader() {
    let (cluster, _others) = Cluster::of_three_masters();
    cluster.done(&["weights", "set", "dev=2"]);
    let ports = cluster.master.split(',').map(|address| {
        let (_, port) = address.rsplit_once(':').expect("a port");
        port.parse::<u16>().expect("a port")
    });
    let body = r#"[{"role":"dev","weight":4}]"#;
    let mut sent = 0;
    for port in ports {
        let (head, _) = eventually("an answer that is not 503", || {
            let answer = crate::support::send_whole(port, "PUT", "/master/weights", body);
            (!answer.0.contains(" 503 ")).then_some(answer)
        });
        if head.contains(" 307 ") {
            assert_contains!(head.to_ascii_lowercase(), "/master/weights");
            sent += 1;
        } else {
            assert!(head.contains(" 200 "), "{head}");
            let (head, weights) = get_with(port, "/weights", "Cache-Control: no-cache");
            assert!(
                head.contains(" 200 ") && weights.contains("4.0"),
                "{weights}"
            );
        }
    }
    assert_eq!(sent, 2);
}

/// Offers to a role stop at its limit and continue when the limit is raised.
#[test]
fn quota_limit_caps_the_next_offers() {
    let cluster = Cluster::start(1, "cpus:4;mem:512");
    cluster.done(&["quota", "set", "eng", "--limit", "cpus:1"]);
    let flags = ["--role", "eng", "--instances", "3"];
    let each = ["--resources", "cpus:0.5;mem:32", "--", "sleep", "600"];
    let run = ["run"].into_iter().chain(flags).chain(each);
    let framework = Running::start(&mut cluster.verb(run));
    let running = || {
        let tasks = cluster.list("tasks");
        let running = tasks.iter().filter(|task| task["state"] == "TASK_RUNNING");
        running.count()
    };
    eventually("two of three tasks to run", || {
        (running() == 2).then_some(())
    });
    let roles = cluster.done(&["roles"]);
    let eng = roles.lines().find(|line| line.starts_with("eng"));
    let eng = eng.unwrap_or_default();
    assert!(eng.contains("cpus:1;mem:64"), "{roles}");
    // SPEC 3.10.
    let metrics = page(cluster.port, "/metrics/snapshot");
    for (name, value) in [
        ("quota/roles/eng/resources/cpus/limit", 1.0),
        ("quota/roles/eng/resources/cpus/consumed", 1.0),
        ("quota/roles/eng/resources/cpus/offered_or_allocated", 1.0),
        ("resources/cpus/total", 4.0),
        ("resources/cpus/offered_or_allocated", 1.0),
    ] {
        assert_eq!(
            metrics[format!("allocator/mesos/{name}")],
            value,
            "{name}: {metrics}"
        );
    }
    for name in [
        "allocation_runs",
        "roles/eng/shares/dominant",
        "offer_filters/roles/eng/active",
        "allocation_run_ms/count",
        "allocation_run_latency_ms/p50",
    ] {
        assert!(
            metrics[format!("allocator/mesos/{name}")].is_f64(),
            "{name}"
        );
    }
    cluster.done(&["quota", "set", "eng", "--limit", "cpus:2"]);
    eventually("the third to run", || (running() == 3).then_some(()));
    drop(framework);
}
