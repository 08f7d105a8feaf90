//! Whole calls in the words of the protocol, and events in the words of the v1 API.

#![allow(clippy::unwrap_used, clippy::panic, reason = "all of it is tests")]

mod chance;

use chance::{Chance, fill};
use meros_v1::convert::{executor, scheduler};
use meros_v1::schema;
use meros_v1::{Invalid, Limits, json};
use protocol::message::executor::UpdateStored;
use protocol::message::scheduler::{FrameworkFailed, Lost, OfferRescinded};
use protocol::{Operation, Termination, Uuid};

fn said(text: &str) -> Result<scheduler::Said, Invalid> {
    let call: schema::scheduler::Call = json::read(text.as_bytes(), Limits::default()).unwrap();
    scheduler::said(&call)
}

#[track_caller]
fn refused(text: &str, words: &str) {
    assert_eq!(said(text).unwrap_err().to_string(), words);
}

/// The calls of the golden file: each has a meaning.
#[test]
fn every_call_of_a_scheduler_or_an_executor_has_a_meaning() {
    let lines: Vec<&str> = include_str!("golden.txt").lines().collect();
    let mut count = 0;
    for case in lines.chunks(4) {
        match case[0].split_once(' ').unwrap() {
            ("scheduler::Call", _) => {
                said(case[2]).unwrap_or_else(|bad| panic!("{}: {bad}", case[0]));
            }
            ("executor::Call", "subscribe") => continue,
            ("executor::Call", _) => {
                let call = json::read(case[2].as_bytes(), Limits::default()).unwrap();
                executor::said(&call).unwrap_or_else(|bad| panic!("{}: {bad}", case[0]));
            }
            _ => continue,
        }
        count += 1;
    }
    assert_eq!(count, 20);
}

#[test]
fn a_call_says_who_and_what() {
    let scheduler::Said::Kill(kill) = said(
        r#"{"framework_id": {"value": "m-0000"}, "type": "KILL", "kill": {"task_id": {"value": "t"}, "agent_id": {"value": "a"}}}"#,
    )
    .unwrap() else {
        panic!("no kill")
    };
    assert_eq!(kill.framework_id.as_str(), "m-0000");
    assert_eq!(
        (kill.task_id.as_str(), kill.agent_id.unwrap().as_str()),
        ("t", "a")
    );
    refused(
        r#"{"framework_id": {"value": "f"}}"#,
        "type is `absent or not known`: expected the name of a call, as SUBSCRIBE",
    );
    refused(
        r#"{"type": "TEARDOWN"}"#,
        "framework_id is `absent`: expected the framework's id, as it must be in all calls but the first SUBSCRIBE",
    );
    refused(
        r#"{"framework_id": {"value": "f"}, "type": "KILL"}"#,
        "kill is `absent`: expected what is said, as `type` says",
    );
    refused(
        r#"{"framework_id": {"value": "f"}, "type": "ACKNOWLEDGE", "acknowledge": {"agent_id": {"value": "a"}, "task_id": {"value": "t"}, "uuid": "AAAA"}}"#,
        "acknowledge.uuid is `3 bytes`: expected 16 bytes",
    );
}

/// SPEC 2.2, SUBSCRIBE.
#[test]
fn a_framework_that_subscribes_again_says_its_id_twice() {
    let subscribe = |outer: &str, inner: &str| {
        said(&format!(
            r#"{{"type": "SUBSCRIBE", {outer} "subscribe": {{"framework_info": {{"user": "u", "name": "n"{inner}}}, "suppressed_roles": "*"}}}}"#
        ))
    };
    let Ok(scheduler::Said::Subscribe(framework, wants)) = subscribe("", "") else {
        panic!("no subscription")
    };
    assert_eq!(framework.id, None);
    assert_eq!(wants.suppressed_roles, ["*".to_owned()].into());
    let (outer, inner) = (
        r#""framework_id": {"value": "f"},"#,
        r#", "id": {"value": "f"}"#,
    );
    assert!(subscribe(outer, inner).is_ok());
    assert!(subscribe("", r#", "id": {"value": ""}"#).is_ok());
    for (outer, inner) in [
        (outer, ""),
        ("", inner),
        (outer, r#", "id": {"value": "g"}"#),
    ] {
        let bad = subscribe(outer, inner).unwrap_err();
        assert_eq!(bad.field, "framework_id.value");
    }
}

/// SPEC 2.2, ACCEPT: a bad task is told of, the others proceed.
#[test]
fn of_an_accept_only_what_has_no_meaning_is_left_out() {
    let task = |id: &str, more: &str| {
        format!(
            r#"{{"name": "t", "task_id": {{"value": "{id}"}}, "agent_id": {{"value": "a"}}{more}}}"#
        )
    };
    let docker = r#", "container": {"type": "DOCKER", "docker": {"image": "busybox"}}"#;
    let accept = |operations: &str| {
        said(&format!(
            r#"{{"framework_id": {{"value": "f"}}, "type": "ACCEPT", "accept": {{"offer_ids": {{"value": "o"}}, "operations": [{operations}]}}}}"#
        ))
    };
    let launch = format!(
        r#"{{"type": "LAUNCH", "launch": {{"task_infos": [{}, {}]}}}}"#,
        task("good", ""),
        task("bad", docker)
    );
    let group = format!(
        r#"{{"type": "LAUNCH_GROUP", "launch_group": {{"executor": {{"executor_id": {{"value": "e"}}, "type": "DEFAULT"}}, "task_group": {{"tasks": [{}, {}]}}}}}}"#,
        task("g1", ""),
        task("g2", "")
    );
    let disk = r#"{"type": "CREATE_DISK", "id": {"value": "op"}}"#;
    let Ok(scheduler::Said::Accept(accepted)) = accept(&format!("{launch}, {group}, {disk}"))
    else {
        panic!("no accept")
    };
    let [Operation::Launch { tasks }] = &accepted.offers.operations[..] else {
        panic!("{:?}", accepted.offers.operations)
    };
    assert_eq!(
        tasks
            .iter()
            .map(|task| task.task_id.as_str())
            .collect::<Vec<_>>(),
        ["good"]
    );
    let told: Vec<String> = accepted
        .tasks
        .iter()
        .map(|task| format!("{} {}: {}", task.task_id, task.reason.name(), task.invalid))
        .collect();
    assert_eq!(
        told,
        [
            "bad REASON_TASK_INVALID: operations[0].launch.task_infos[1].container is `of type DOCKER`: expected a container of type MESOS of which nothing more is said, or none",
            "g1 REASON_TASK_GROUP_INVALID: operations[1].type is `LAUNCH_GROUP`: expected LAUNCH, with the tasks one by one: there is no default executor yet to run them as a group",
            "g2 REASON_TASK_GROUP_INVALID: operations[1].type is `LAUNCH_GROUP`: expected LAUNCH, with the tasks one by one: there is no default executor yet to run them as a group",
        ]
    );
    let refused = |accepted: &scheduler::Accepted| {
        let [(id, bad)] = &accepted.operations[..] else {
            panic!("{:?}", accepted.operations)
        };
        format!("{id}: {bad}")
    };
    assert_eq!(
        refused(&accepted),
        "op: operations[2].type is `CREATE_DISK`: expected another operation, since no resource provider makes disks here yet"
    );
    // A launch that asks for a status is refused as an operation, and so are its tasks.
    let launch = launch.replacen('{', r#"{"id": {"value": "op"}, "#, 1);
    let Ok(scheduler::Said::Accept(accepted)) = accept(&launch) else {
        panic!("no accept")
    };
    let because = "operations[0].id is `op`: expected none, since a launch has no status";
    assert_eq!(refused(&accepted), format!("op: {because}"));
    let told = accepted.tasks.iter();
    let told = told.map(|task| format!("{}: {}", task.task_id, task.invalid));
    let told: Vec<String> = told.collect();
    let expected = ["good", "bad"].map(|id| format!("{id}: {because}"));
    assert_eq!(told, expected);
    assert!(accepted.offers.operations.is_empty());
    // Nobody can be told of one without an id: it is left out, and the others proceed.
    let moved = r#"{"type": "RESERVE", "reserve": {"resources": [], "source": [{"name": "cpus", "type": "SCALAR", "scalar": {"value": 1}}]}}"#;
    let nameless = format!(r#"{{"type": "CREATE_DISK"}}, {moved}, {{"type": "SING"}}"#);
    let launch = format!(
        r#"{{"type": "LAUNCH", "launch": {{"task_infos": {}}}}}"#,
        task("good", "")
    );
    let Ok(scheduler::Said::Accept(accepted)) = accept(&format!("{nameless}, {launch}")) else {
        panic!("no accept")
    };
    assert_eq!(accepted.offers.operations.len(), 1);
    let told = (accepted.tasks.len(), accepted.operations.len());
    assert_eq!(told, (0, 0));
    let nameless = accepted.nameless.unwrap();
    assert_eq!(nameless.count, 3);
    assert_eq!(nameless.first.field, "operations[0].type");
    // An id that is none names nobody either, and is worth a word to who wrote it.
    let bad = accept(r#"{"type": "CREATE_DISK", "id": {"value": "a/b"}}"#).unwrap_err();
    assert_eq!(bad.field, "accept.operations[0].id.value");
    let launch = launch.replace("good", "a/b");
    let bad = accept(&launch).unwrap_err();
    let field = "accept.operations[0].launch.task_infos[0].task_id.value";
    assert_eq!(bad.field, field);
}

/// SPEC 2.2, ACCEPT: an executor belongs to the framework that launches it.
#[test]
fn a_task_of_an_executor_of_another_framework_is_told_so_and_the_others_proceed() {
    let task = |id: &str, framework: &str| {
        format!(
            r#"{{"name": "t", "task_id": {{"value": "{id}"}}, "agent_id": {{"value": "a"}}, "executor": {{"executor_id": {{"value": "e"}}, "command": {{"value": "true"}}{framework}}}}}"#
        )
    };
    let of = |id: &str| format!(r#", "framework_id": {{"value": "{id}"}}"#);
    let tasks = [
        task("bare", ""),
        task("own", &of("f")),
        task("other", &of("g")),
    ]
    .join(", ");
    let call = format!(
        r#"{{"framework_id": {{"value": "f"}}, "type": "ACCEPT", "accept": {{"offer_ids": {{"value": "o"}}, "operations": {{"type": "LAUNCH", "launch": {{"task_infos": [{tasks}]}}}}}}}}"#
    );
    let Ok(scheduler::Said::Accept(accepted)) = said(&call) else {
        panic!("no accept")
    };
    let [Operation::Launch { tasks }] = &accepted.offers.operations[..] else {
        panic!("{:?}", accepted.offers.operations)
    };
    let proceed: Vec<&str> = tasks.iter().map(|task| task.task_id.as_str()).collect();
    assert_eq!(proceed, ["bare", "own"]);
    let [task] = &accepted.tasks[..] else {
        panic!("{:?}", accepted.tasks)
    };
    // What can be told of it is told.
    assert_eq!(task.name, "t");
    assert_eq!(task.agent_id, Some("a".parse().unwrap()));
    assert_eq!(
        format!("{}: {}", task.task_id, task.invalid),
        "other: operations[0].launch.task_infos[2].executor.framework_id.value is `g`: expected `f`, whose call it is, or none"
    );
}

#[test]
fn an_executors_update_has_a_uuid() {
    let update = |more: &str| {
        let text = format!(
            r#"{{"executor_id": {{"value": "e"}}, "framework_id": {{"value": "f"}}, "type": "UPDATE", "update": {{"status": {{"task_id": {{"value": "t"}}, "state": "TASK_RUNNING"{more}}}}}}}"#
        );
        executor::said(&json::read(text.as_bytes(), Limits::default()).unwrap())
    };
    assert!(update(r#", "uuid": "AAECAwQFBgcICQoLDA0ODw==""#).is_ok());
    assert_eq!(
        update("").unwrap_err().to_string(),
        "update.status.uuid is `absent`: expected 16 bytes that name this status"
    );
}

#[test]
fn whatever_a_call_says_it_is_understood_or_refused_with_words() {
    let mut taken = 0;
    for seed in 0..3000 {
        let mut call = schema::scheduler::Call::default();
        fill(&mut call, &mut Chance(seed), (seed % 4) as u32 + 1);
        match scheduler::said(&call) {
            Ok(_) => taken += 1,
            Err(bad) => assert!(!bad.field.is_empty() && !bad.expected.is_empty(), "{bad:?}"),
        }
        let mut call = schema::executor::Call::default();
        fill(&mut call, &mut Chance(seed), (seed % 4) as u32 + 1);
        if let Err(bad) = executor::said(&call) {
            assert!(!bad.field.is_empty() && !bad.expected.is_empty(), "{bad:?}");
        }
    }
    assert!(taken > 100, "{taken}");
}

#[test]
fn events_say_what_happened() {
    let text = |event: &dyn meros_v1::Message| String::from_utf8(json::write(event)).unwrap();
    let lost = |termination| Lost {
        agent_id: "a".parse().unwrap(),
        executor_id: Some("e".parse().unwrap()),
        termination,
    };
    for (event, words) in [
        (
            (&OfferRescinded {
                offer_id: "o".parse().unwrap(),
            })
                .into(),
            r#"{"type":"RESCIND","rescind":{"offer_id":{"value":"o"}}}"#,
        ),
        (
            (&FrameworkFailed {
                message: "failed over".into(),
            })
                .into(),
            r#"{"type":"ERROR","error":{"message":"failed over"}}"#,
        ),
        (
            (&lost(Some(Termination::Exited(3)))).into(),
            r#"{"type":"FAILURE","failure":{"agent_id":{"value":"a"},"executor_id":{"value":"e"},"status":768}}"#,
        ),
        (
            (&lost(Some(Termination::Signaled(9)))).into(),
            r#"{"type":"FAILURE","failure":{"agent_id":{"value":"a"},"executor_id":{"value":"e"},"status":9}}"#,
        ),
        (
            schema::scheduler::Event::heartbeat(),
            r#"{"type":"HEARTBEAT"}"#,
        ),
    ] {
        assert_eq!(text(&event), words);
    }
    let stored = UpdateStored {
        task_id: "t".parse().unwrap(),
        uuid: Uuid([0; 16]),
    };
    let event = schema::executor::Event::from(&stored);
    assert_eq!(
        text(&event),
        r#"{"type":"ACKNOWLEDGED","acknowledged":{"task_id":{"value":"t"},"uuid":"AAAAAAAAAAAAAAAAAAAAAA=="}}"#
    );
}

/// SPEC 2.6.
#[test]
fn what_an_operator_changes_has_a_meaning() {
    use meros_v1::convert::operator::{Said, said};
    let said = |text: &str| said(&json::read(text.as_bytes(), Limits::default()).unwrap());
    let Ok(Said::UpdateQuotas(update)) = said(
        r#"{"type": "UPDATE_QUOTA", "update_quota": {"force": true, "quota_configs": {"role": "ads", "limits": {"cpus": {"value": 8}}}}}"#,
    ) else {
        panic!("no quota")
    };
    assert!(update.force);
    assert_eq!(update.quotas["ads"].limits.to_string(), "cpus:8");

    let Ok(Said::SetQuota(update)) = said(
        r#"{"type": "SET_QUOTA", "set_quota": {"quota_request": {"role": "ads", "guarantee": {"name": "cpus", "type": "SCALAR", "scalar": {"value": 2}}}}}"#,
    ) else {
        panic!("no quota")
    };
    let quota = &update.quotas["ads"];
    assert_eq!(quota.guarantees.to_string(), "cpus:2");
    assert_eq!((&quota.limits, update.force), (&quota.guarantees, false));
    let remove = said(r#"{"type": "REMOVE_QUOTA", "remove_quota": {"role": "ads"}}"#);
    assert_eq!(remove, Ok(Said::RemoveQuota("ads".to_owned())));

    let cpus = |reservations: &str| {
        format!(r#"{{"name": "cpus", "type": "SCALAR", "scalar": {{"value": 1}}{reservations}}}"#)
    };
    let reserved = cpus(r#", "reservations": {"type": "DYNAMIC", "role": "ads"}"#);
    let reserve = |more: &str| {
        said(&format!(
            r#"{{"type": "RESERVE_RESOURCES", "reserve_resources": {{"agent_id": {{"value": "a"}}, "resources": {reserved}{more}}}}}"#
        ))
    };
    assert!(matches!(reserve(""), Ok(Said::Operate(_))));
    assert_eq!(
        reserve(&format!(r#", "source": {}"#, cpus(""))),
        reserve("")
    );
    let source = |entry: &str| format!(r#", "source": {}"#, cpus(entry));
    let eng = source(r#", "reservations": {"type": "DYNAMIC", "role": "eng"}"#);
    let Ok(Said::OperateAll(agent, steps)) = reserve(&eng) else {
        panic!("no steps")
    };
    let names: Vec<_> = steps.iter().map(|step| step.name()).collect();
    assert_eq!((agent.as_str(), names), ("a", vec!["unreserve", "reserve"]));
    let more = source("").replace("\"value\": 1", "\"value\": 2");
    assert_eq!(
        reserve(&more).unwrap_err().to_string(),
        "reserve_resources.source is `cpus:2`: expected the same as `resources` but for their reservations"
    );
    for (text, field) in [
        (r#"{}"#, "type"),
        (r#"{"type": "TEARDOWN"}"#, "teardown"),
        (
            r#"{"type": "SET_QUOTA", "set_quota": {"quota_request": {"role": "a", "guarantee": {"name": "ports", "type": "RANGES", "ranges": {"range": {"begin": 1, "end": 2}}}}}}"#,
            "set_quota.quota_request.guarantee",
        ),
        (
            r#"{"type": "UPDATE_WEIGHTS", "update_weights": {"weight_infos": [{"weight": 1}]}}"#,
            "update_weights.weight_infos[0].role",
        ),
        (
            r#"{"type": "UPDATE_WEIGHTS", "update_weights": {"weight_infos": [{"weight": 1, "role": "a"}, {"weight": 2, "role": "a"}]}}"#,
            "update_weights.weight_infos[1].role",
        ),
    ] {
        assert_eq!(said(text).unwrap_err().field, field);
    }
    let state = said(r#"{"type": "GET_STATE"}"#);
    assert_eq!(state, Ok(Said::Other(schema::master::CallType::GetState)));
}
