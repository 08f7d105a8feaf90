//! Maintenance with real processes: a machine is scheduled, frameworks are asked to leave it, it
//! goes down and comes back (SPEC 3.6, 4.7).

use serde_json::{Value, json};
use testkit::http::{Answer, Endpoint};
use v1::{Form, Limits};

use crate::http_scheduler::{Scheduler, framework, value};
use crate::in_time::InTime;
use crate::support::{Cluster, Running, eventually, page, send_whole, stderr, stdout};

/// When the machine will be away, in nanoseconds.
const START: i64 = 1_900_000_000_000_000_000;

fn ask(port: u16, json: &Value) -> Answer {
    let call = Form::Json.read(json.to_string().as_bytes(), Limits::default());
    let call: v1::schema::master::Call =
        call.unwrap_or_else(|bad: v1::Invalid| panic!("{bad}: {json}"));
    Endpoint::new(port, "/api/v1").call(&call)
}

fn post(port: u16, path: &str, body: &Value) {
    let (head, text) = send_whole(port, "POST", path, &body.to_string());
    assert!(head.contains(" 200 "), "{path}: {head} {text}");
}

/// The task gets the shorter grace period, and the agent is gone when it is empty.
#[test]
fn drained_agent_is_marked_gone() {
    let cluster = Cluster::master_alone(|_, _| ());
    let mut agent = cluster.agent("agent", "cpus:2;mem:256");
    let mut scheduler = Scheduler::subscribe(cluster.port, Form::Json, framework("web"));
    let offer = scheduler.offer();
    let stubborn = "trap '' TERM; while :; do sleep 1; done";
    let mut task = offer.task("t", stubborn);
    task["kill_policy"] = json!({"grace_period": {"nanoseconds": 3_600_000_000_000_i64}});
    scheduler.send(offer.launch(&[task]));
    scheduler.until("TASK_RUNNING");
    let drain = json!({"type": "DRAIN_AGENT", "drain_agent": {
        "agent_id": offer.0["agent_id"], "max_grace_period": {"seconds": 1}, "mark_gone": true,
    }});
    let answer = ask(cluster.port, &drain);
    assert_eq!(answer.status, 200, "{}", answer.text());
    scheduler.until("TASK_KILLED");
    assert!(!agent.wait().success(), "it was told to stop");
    eventually("the agent to be forgotten", || {
        let slaves = page(cluster.port, "/slaves");
        (slaves["slaves"] == json!([])).then_some(())
    });
}

// Covers W30 in part: without automatic windows.
#[test]
fn agent_is_drained_task_by_task_on_request() {
    let cluster = Cluster::master_alone(|_, _| ());
    let _agent = cluster.agent("agent", "cpus:2;mem:256");
    let mut scheduler = Scheduler::subscribe(cluster.port, Form::Json, framework("web"));
    let offer = scheduler.offer();
    let tasks = ["t1", "t2"].map(|id| offer.task(id, "exec sleep 1000"));
    scheduler.send(offer.launch(&tasks));
    scheduler.until("TASK_RUNNING");
    scheduler.until("TASK_RUNNING");
    let agent_id = offer.0["agent_id"]["value"].as_str().expect("an id");
    let drain = ["maintenance", "drain", agent_id, "--at_a_time", "1"];
    let mut draining = Running::start(&mut cluster.verb(drain));
    scheduler.until("TASK_KILLED");
    scheduler.until("TASK_KILLED");
    assert!(draining.wait().success());
    eventually("the agent to be drained", || {
        let slave = &page(cluster.port, "/slaves")["slaves"][0];
        (slave["drain_info"]["state"] == "DRAINED").then_some(())
    });
    let undrained = cluster.output(["maintenance", "undrain", agent_id]);
    assert!(stderr(&undrained).contains("not drained yet"));
    let reactivated = cluster.output(["maintenance", "reactivate", agent_id]);
    assert!(reactivated.status.success(), "{}", stderr(&reactivated));
}

/// Of two tasks the first gets a kill and delays its exit; cancelling the drain meanwhile keeps the
/// second.
// Covers W30 in part: without automatic windows.
#[test]
fn drain_is_cancelled_in_both_modes() {
    let cluster = Cluster::master_alone(|_, _| ());
    let _agent = cluster.agent("agent", "cpus:2;mem:256");
    let file = |name: &str| cluster.directory().join(name);
    let is_there = |name: &str| eventually(name, || file(name).exists().then_some(()));
    let mut scheduler = Scheduler::subscribe(cluster.port, Form::Json, framework("web"));
    let offer = scheduler.offer();
    let slow = format!(
        "trap 'touch {}' TERM; touch {}; while [ ! -e {} ]; do sleep 0.1; done",
        file("told").display(),
        file("listens").display(),
        file("may-end").display()
    );
    let mut first = offer.task("t1", &slow);
    first["kill_policy"] = json!({"grace_period": {"nanoseconds": 3_600_000_000_000_i64}});
    let mut launch = offer.launch(&[first, offer.task("t2", "exec sleep 1000")]);
    launch["accept"]["filters"] = json!({"refuse_seconds": 0.0});
    scheduler.send(launch);
    scheduler.until("TASK_RUNNING");
    scheduler.until("TASK_RUNNING");
    is_there("listens");
    let agent_id = offer.0["agent_id"]["value"].as_str().expect("an id");
    let verb = |verb: &str| {
        let output = cluster.output(["maintenance", verb, agent_id]);
        assert!(output.status.success(), "{verb}: {}", stderr(&output));
    };
    let shows = |deactivated: bool, drain: Value| {
        eventually("the agent as it was ordered", || {
            let slave = &page(cluster.port, "/slaves")["slaves"][0];
            let is_shown =
                slave["deactivated"] == deactivated && slave["drain_info"]["state"] == drain;
            is_shown.then_some(())
        });
    };
    let running = || {
        let tasks = cluster.list("tasks");
        let state = |task: &Value| (task["id"].clone(), task["state"].clone());
        tasks.iter().map(state).collect::<Vec<_>>()
    };

    let drain = ["maintenance", "drain", agent_id, "--at_a_time", "1"];
    let mut draining = Running::start(&mut cluster.verb(drain));
    is_there("told");
    shows(true, json!(null));
    verb("reactivate");
    assert!(!draining.wait().success(), "it was given up");
    shows(false, json!(null));
    let both = ["t1", "t2"].map(|id| (json!(id), json!("TASK_RUNNING")));
    assert_eq!(running(), both);

    verb("drain");
    scheduler.until("TASK_KILLED");
    shows(true, json!("DRAINING"));
    verb("undrain");
    shows(false, json!(null));
    std::fs::write(file("may-end"), "").expect("it is written");
    scheduler.until("TASK_KILLED");
    // Their resources are offered again.
    scheduler.offer();
}

#[test]
fn machine_goes_through_planned_maintenance_and_returns() {
    let mut cluster = Cluster::master_alone(|_, _| ());
    let mut agent = cluster.agent("agent", "cpus:2;mem:256");
    let machine = json!({"hostname": page(cluster.port, "/slaves")["slaves"][0]["hostname"]});
    let mut scheduler = Scheduler::subscribe(cluster.port, Form::Json, framework("web"));
    let offer = scheduler.offer();
    assert_eq!(offer.0.get("unavailability"), None);
    scheduler.send(offer.launch(&[offer.task("t", "exec sleep 1000")]));
    scheduler.until("TASK_RUNNING");

    let away = json!({"start": {"nanoseconds": START}, "duration": {"nanoseconds": 5}});
    let schedule = json!({"windows": [{"machine_ids": [machine], "unavailability": away}]});
    post(cluster.port, "/maintenance/schedule", &schedule);
    let (mut asked, mut offered) = (None, false);
    let inverse = scheduler
        .events
        .wait("an inverse offer and an offer", |event| {
            let made = event.inverse_offers.as_ref();
            asked = made
                .map(|made| value(&made.inverse_offers[0]))
                .or(asked.take());
            let offers = event.offers.as_ref().and_then(|made| made.offers.first());
            offered |= offers.is_some_and(|offer| value(offer)["unavailability"] == away);
            asked.clone().filter(|_| offered)
        });
    assert_eq!(inverse["unavailability"], away);
    assert_eq!(inverse["agent_id"], offer.0["agent_id"]);
    // SPEC 2.8: where the agent's pages are.
    let url = &inverse["url"];
    assert_eq!(url, &offer.0["url"]);
    assert_eq!(
        (&url["scheme"], &url["path"]),
        (&json!("http"), &json!("/slave(1)"))
    );
    assert_eq!(url["address"]["hostname"], machine["hostname"]);
    let port = url["address"]["port"].as_u64().expect("a port");
    let served = crate::support::get(port.try_into().expect("a port"), "/slave(1)/state").1;
    assert!(served.contains(offer.0["agent_id"]["value"].as_str().expect("an id")));
    scheduler.send(
        json!({"type": "ACCEPT_INVERSE_OFFERS", "accept_inverse_offers": {
            "inverse_offer_ids": [inverse["id"]], "filters": {"refuse_seconds": 3600.0},
        }}),
    );
    let status = || {
        let answer = ask(cluster.port, &json!({"type": "GET_MAINTENANCE_STATUS"}));
        let status: Value = serde_json::from_slice(&answer.body).expect("JSON");
        status["get_maintenance_status"]["status"].clone()
    };
    eventually("the answer to be shown", || {
        let draining = &status()["draining_machines"][0];
        (draining["statuses"][0]["status"] == "ACCEPT").then_some(())
    });
    let shown = cluster.output(["maintenance", "show"]);
    assert!(
        stdout(&shown).contains("1 will leave"),
        "{}",
        stderr(&shown)
    );

    let machines = json!([machine]);
    post(cluster.port, "/master/machine/down", &machines);
    scheduler.until("TASK_LOST");
    assert!(!agent.wait().success(), "it was told to stop");
    assert_eq!(status()["down_machines"], machines);

    // The schedule is in the registry.
    cluster.kill_and_restart_master();
    assert_eq!(
        page(cluster.port, "/maintenance/status")["down_machines"],
        machines
    );
    assert_eq!(page(cluster.port, "/maintenance/schedule"), schedule);
    let refused = cluster
        .agent_command("agent", "cpus:2;mem:256")
        .output_in_time();
    let refused = stderr(&refused.expect("meros runs"));
    assert!(refused.contains("is down for maintenance"), "{refused}");
    let up = json!({"type": "STOP_MAINTENANCE", "stop_maintenance": {"machines": machines}});
    let answer = ask(cluster.port, &up);
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(page(cluster.port, "/maintenance/schedule"), json!({}));
    let _agent = cluster.agent("agent", "cpus:2;mem:256");
}
