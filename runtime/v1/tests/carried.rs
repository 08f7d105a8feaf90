//! Information for people and tools survives: labels, discovery, details of executors' statuses.

#![allow(clippy::unwrap_used, clippy::panic, reason = "all of it is tests")]

// No messages are filled here.
#[allow(dead_code, reason = "shared with the conversions")]
mod chance;

use chance::Chance;
use meros_v1::{Limits, convert, json, protobuf, schema};
use testkit::rows;

/// SPEC 2.8, Labels: a list of keys, possibly repeated or without a value.
#[test]
fn labels_keep_order_and_duplicates() {
    let label = |chance: &mut Chance| schema::Label {
        key: ["a", "b", "meros.labels", "meros.priority"][chance.below(4) as usize].to_owned(),
        value: match chance.below(6) {
            0 => None,
            1 => Some(r#"{"labels":[{"key":"b"},{"key":"a"}]}"#.to_owned()),
            2 => Some(r#"{"labels":[{"key":"a","value":"b"}]}"#.to_owned()),
            _ => Some(chance.text()),
        },
    };
    for seed in 0..3000 {
        let chance = &mut Chance(seed);
        let count = 1 + chance.below(4);
        let said = Some(schema::Labels {
            labels: (0..count).map(|_| label(chance)).collect(),
        });
        let (task_id, agent_id) = ("t".to_owned(), "a".to_owned());
        let discovery = (chance.below(2) == 0).then(Box::default);
        let task = schema::TaskInfo {
            name: "t".to_owned(),
            task_id: schema::TaskID { value: task_id },
            agent_id: schema::AgentID { value: agent_id },
            labels: said.clone(),
            discovery,
            ..Default::default()
        };
        let ours = protocol::TaskInfo::try_from(&task).unwrap();
        let told = schema::TaskInfo::from(&ours);
        assert_eq!(
            (&told.labels, &told.discovery),
            (&said, &task.discovery),
            "seed {seed}"
        );
        // Of several values the cluster uses the last.
        let labels = said.iter().flat_map(|said| &said.labels);
        let last = labels.rev().find(|label| label.key == "meros.priority");
        assert_eq!(
            ours.labels.get("meros.priority"),
            last.map(|label| label.value.clone().unwrap_or_default())
                .as_ref()
        );
        let status = schema::TaskStatus {
            task_id: task.task_id.clone(),
            labels: said.clone(),
            check_status: (chance.below(2) == 0).then(Default::default),
            ..Default::default()
        };
        let ours = protocol::TaskStatus::try_from(&status).unwrap();
        let told = schema::TaskStatus::from(&ours);
        assert_eq!(
            (&told.labels, &told.check_status),
            (&said, &status.check_status),
            "seed {seed}"
        );
        let framework = schema::FrameworkInfo {
            labels: said.clone(),
            ..Default::default()
        };
        let ours = protocol::FrameworkInfo::try_from(&framework).unwrap();
        assert_eq!(
            schema::FrameworkInfo::from(&ours).labels,
            said,
            "seed {seed}"
        );
    }
}

/// SPEC 2.8, DiscoveryInfo: kept among the labels, and restored.
// Covers 3.12 Pages of masters.
#[test]
fn discovery_info_survives_and_is_not_a_label() {
    let found = r#"{"visibility":"EXTERNAL","name":"web","environment":"prod","ports":{"ports":[{"number":80,"protocol":"tcp","labels":{"labels":[{"key":"k","value":"v"}]}}]}}"#;
    let labels = r#"{"labels":[{"key":"a","value":"b"}]}"#;
    for more in [
        format!(r#""discovery":{found}"#),
        format!(r#""discovery":{found},"labels":{labels}"#),
        format!(r#""labels":{labels}"#),
    ] {
        let text = format!(
            r#"{{"name":"t","task_id":{{"value":"t"}},"agent_id":{{"value":"a"}},{more}}}"#
        );
        let task: schema::TaskInfo = json::read(text.as_bytes(), Limits::default()).unwrap();
        let ours = protocol::TaskInfo::try_from(&task).unwrap();
        let said = convert::discovery(&ours.labels);
        assert_eq!(said.is_some(), more.contains("discovery"), "{more}");
        let again = schema::TaskInfo::from(&ours);
        assert_eq!(
            (&again.discovery, &again.labels),
            (&task.discovery, &task.labels)
        );
    }
}

/// SPEC 3.12, `container_status`: as in Mesos without network isolation.
// Covers 3.12 Pages of masters.
#[test]
fn a_container_has_the_address_of_its_agent() {
    let of = |address: &str| {
        let mut status = protocol::TaskStatus::new(
            "t".parse().unwrap(),
            protocol::TaskState::Running,
            protocol::Source::Executor,
            runtime::Timestamp::from_nanos(0),
        );
        status.container_id = Some("c".parse().unwrap());
        status.address = address.parse().ok();
        let said = schema::TaskStatus::from(&status).container_status.unwrap();
        String::from_utf8(json::write(&*said)).unwrap()
    };
    assert_eq!(
        of("10.0.0.7"),
        r#"{"network_infos":[{"ip_addresses":[{"protocol":"IPv4","ip_address":"10.0.0.7"}]}],"container_id":{"value":"c"}}"#
    );
    assert!(of("::1").contains(r#"{"protocol":"IPv6","ip_address":"::1"}"#));
    assert_eq!(of("nowhere"), r#"{"container_id":{"value":"c"}}"#);
}

fn status(more: &str) -> schema::TaskStatus {
    let text = format!(r#"{{"task_id":{{"value":"t"}},"state":"TASK_RUNNING"{more}}}"#);
    json::read(text.as_bytes(), Limits::default()).unwrap()
}

/// SPEC 2.8, TaskStatus: an executor's container status, check status and limitation survive in
/// both encodings.
#[test]
fn status_fields_of_executors_are_preserved() {
    let container = r#""container_status":{"network_infos":[{"ip_addresses":[{"protocol":"IPv4","ip_address":"172.17.0.2"}],"name":"bridge","labels":{"labels":[{"key":"k"}]}}],"cgroup_info":{"net_cls":{"classid":7}},"executor_pid":42,"container_id":{"value":"c","parent":{"value":"p"}}}"#;
    let check = r#""check_status":{"type":"HTTP","http":{"status_code":503}}"#;
    let named = r#""check_statuses":[{"name":"db","status":{"type":"TCP","tcp":{"succeeded":true}}},{"name":"web","status":{"type":"HTTP","http":{}}}]"#;
    let limitation =
        r#""limitation":{"resources":[{"name":"mem","type":"SCALAR","scalar":{"value":64.5}}]}"#;
    for more in [
        "",
        r#","check_status":{}"#,
        r#","check_status":{"type":"TCP","tcp":{}}"#,
        r#","limitation":{}"#,
        r#","container_status":{"container_id":{"value":"c"}}"#,
        r#","container_status":{"container_id":{"value":"a/b"}}"#,
        r#","container_status":{"executor_pid":1}"#,
        &format!(
            r#","labels":{{"labels":[{{"key":"a","value":"b"}}]}},{container},{check},{named},{limitation}"#
        ),
    ] {
        let said = status(more);
        let said: schema::TaskStatus =
            protobuf::read(&protobuf::write(&said), Limits::default()).unwrap();
        let ours = protocol::TaskStatus::try_from(&said).unwrap();
        let told = schema::TaskStatus::from(&ours);
        assert_eq!(
            (&told.container_status, &told.check_status, &told.limitation),
            (&said.container_status, &said.check_status, &said.limitation),
            "{more}"
        );
        assert_eq!(told.check_statuses, said.check_statuses, "{more}");
        assert_eq!(told.labels, said.labels, "{more}");
    }
}

/// SPEC 3.12, `container_status`: fields that the executor omits have the defaults of our
/// containers.
#[test]
fn absent_container_status_is_filled_in() {
    let told = |more: &str| {
        let mut ours = protocol::TaskStatus::try_from(&status(more)).unwrap();
        ours.container_id.get_or_insert("own".parse().unwrap());
        ours.address = Some([10, 0, 0, 7].into());
        let told = schema::TaskStatus::from(&ours).container_status.unwrap();
        String::from_utf8(json::write(&*told)).unwrap()
    };
    let (network, id) = (
        r#""network_infos":[{"ip_addresses":[{"protocol":"IPv4","ip_address":"10.0.0.7"}]}]"#,
        r#""container_id":{"value":"own"}"#,
    );
    let usual = format!("{{{network},{id}}}");
    assert_eq!(told(""), usual);
    assert_eq!(told(r#","container_status":{}"#), usual);
    let theirs = r#""container_id":{"value":"c"}"#;
    assert_eq!(
        told(&format!(r#","container_status":{{{theirs}}}"#)),
        format!("{{{network},{theirs}}}")
    );
    assert_eq!(
        told(r#","container_status":{"executor_pid":42}"#),
        format!(r#"{{{network},"executor_pid":42,{id}}}"#)
    );
    let bridge = r#""network_infos":[{"name":"bridge"}]"#;
    assert_eq!(
        told(&format!(r#","container_status":{{{bridge}}}"#)),
        format!("{{{bridge},{id}}}")
    );
}

// Covers 2.8 in part: limits of a task.
#[test]
fn limits_of_tasks_are_carried_and_others_refused() {
    let read = |limits: &str| {
        let text = format!(
            r#"{{"name":"t","task_id":{{"value":"t"}},"agent_id":{{"value":"a"}},"limits":{limits}}}"#
        );
        let task: schema::TaskInfo = json::read(text.as_bytes(), Limits::default()).unwrap();
        protocol::TaskInfo::try_from(&task)
    };
    let task = read(r#"{"cpus":{"value":1.5},"mem":{"value":"Infinity"}}"#).unwrap();
    let told = schema::TaskInfo::from(&task);
    assert_eq!(told.limits["cpus"].value, 1.5);
    assert_eq!(told.limits["mem"].value, f64::INFINITY);
    for [limits, problem] in rows(
        r#"
        {"disk":{"value":1}} | Only cpus and mem may be included
        {"cpus":{"value":-1}} | limits[cpus]
        {"mem":{"value":"NaN"}} | limits[mem]
    "#,
    ) {
        let error = read(limits).unwrap_err().to_string();
        assert!(error.contains(problem), "{error}");
    }
}
