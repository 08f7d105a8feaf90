//! Decoding of whole calls, and encoding of events.

#![allow(clippy::unwrap_used, clippy::panic, reason = "all of it is tests")]

mod chance;

use chance::{Chance, fill};
use meros_v1::convert::{executor, scheduler};
use meros_v1::schema;
use meros_v1::{Limits, json};
use protocol::message::executor::UpdateStored;
use protocol::message::scheduler::{FrameworkFailed, Lost, OfferRescinded};
use protocol::{Operation, Termination, Uuid};
use testkit::rows;

fn decoded(text: &str) -> Result<scheduler::Decoded, scheduler::Malformed> {
    let call: schema::scheduler::Call = json::read(text.as_bytes(), Limits::default()).unwrap();
    scheduler::to_protocol(&call)
}

fn said(text: &str) -> Result<scheduler::SchedulerCall, scheduler::Malformed> {
    decoded(text).map(|decoded| decoded.call)
}

/// The valid part of a call of framework `f`, and the answers to the other entries by type, id,
/// state, reason and message.
fn in_part(kind: &str, call: &str) -> (scheduler::SchedulerCall, Vec<String>) {
    let text = format!(r#"{{"framework_id": {{"value": "f"}}, "type": "{kind}", {call}}}"#);
    let scheduler::Decoded {
        call: said,
        rejected,
    } = decoded(&text).unwrap();
    let now = runtime::Timestamp::from_nanos(0);
    let events = rejected.answered.into_iter().map(|one| one.event(now));
    let answer = |event: schema::scheduler::Event| {
        let text = String::from_utf8(json::write(&event)).unwrap();
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        let task = &value["update"]["status"];
        let operation = &value["update_operation_status"]["status"];
        let (status, id) = match task.is_null() {
            true => (operation, &operation["operation_id"]["value"]),
            false => (task, &task["task_id"]["value"]),
        };
        let reason = status["reason"].as_str().unwrap_or_default();
        let text = |name: &str| status[name].as_str().unwrap().to_owned();
        let id = id.as_str().unwrap();
        format!("{id:?} {} {reason} {}", text("state"), text("message"))
    };
    (said, events.map(answer).collect())
}

#[track_caller]
fn refused(text: &str, words: &str) {
    assert_eq!(said(text).unwrap_err().to_string(), words);
}

/// The calls of the golden file: each is supported.
#[test]
fn every_scheduler_and_executor_call_is_converted() {
    let lines: Vec<&str> = include_str!("golden.txt").lines().collect();
    let mut count = 0;
    for case in lines.chunks(4) {
        match case[0].split_once(' ').unwrap() {
            ("scheduler::Call", _) => {
                // The golden update has roles without the capability that Mesos requires.
                let (roles, capable) = (
                    r#""roles":["ads"]"#,
                    r#""roles":["ads"],"capabilities":[{"type":"MULTI_ROLE"}]"#,
                );
                said(&case[2].replace(roles, capable))
                    .unwrap_or_else(|bad| panic!("{}: {bad}", case[0]));
            }
            ("executor::Call", "subscribe") => continue,
            ("executor::Call", _) => {
                let call = json::read(case[2].as_bytes(), Limits::default()).unwrap();
                executor::to_protocol(&call).unwrap_or_else(|bad| panic!("{}: {bad}", case[0]));
            }
            _ => continue,
        }
        count += 1;
    }
    assert_eq!(count, 20);
}

#[test]
fn executor_calls_have_ids_and_content() {
    let scheduler::SchedulerCall::Kill(kill) = said(
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
    for [text, words] in rows(
        r#"
        {"framework_id": {"value": "f"}} | Expecting 'type' to be present
        {"type": "TEARDOWN"} | Expecting 'framework_id' to be present
        {"type": "SUBSCRIBE"} | Expecting 'subscribe' to be present
        {"framework_id": {"value": "f"}, "type": "KILL"} | Expecting 'kill' to be present
        {"framework_id": {"value": "f"}, "type": "ACKNOWLEDGE", "acknowledge": {"agent_id": {"value": "a"}, "task_id": {"value": "t"}, "uuid": "AAAA"}} | Not a valid UUID
    "#,
    ) {
        refused(
            text,
            &format!("Failed to validate scheduler::Call: {words}"),
        );
    }
    let stranger = r#"{"framework_id": {"value": ""}, "type": "TEARDOWN"}"#;
    refused(stranger, "Framework cannot be found");
}

#[test]
fn one_invalid_id_stops_only_its_own_entry() {
    use scheduler::SchedulerCall;
    let ids = |list: &str| format!(r#"[{list}, {{"value": "a/b"}}, {{"value": ""}}]"#);
    let good = r#"{"value": "good"}"#;
    let lost = [
        r#""a/b" TASK_ERROR REASON_TASK_INVALID 'a/b' contains invalid characters"#,
        r#""" TASK_ERROR REASON_TASK_INVALID ID must not be empty"#,
    ];

    let tasks = |good: &str| {
        format!(
            r#""reconcile": {{"tasks": [{good}{{"task_id": {{"value": "a/b"}}}}, {{"task_id": {{"value": ""}}, "agent_id": {{"value": ""}}}}]}}"#
        )
    };
    let known = r#"{"task_id": {"value": "good"}, "agent_id": {"value": ""}}, "#;
    let (said, answers) = in_part("RECONCILE", &tasks(known));
    let SchedulerCall::Reconcile(call) = said else {
        panic!("{said:?}")
    };
    assert_eq!(call.tasks, [("good".parse().unwrap(), None)]);
    assert_eq!(answers, lost);
    // Without a valid task it must not become a query about all tasks.
    let (said, answers) = in_part("RECONCILE", &tasks(""));
    let nothing = |kind| SchedulerCall::Ignored(kind);
    assert_eq!(said, nothing(schema::scheduler::CallType::Reconcile));
    assert_eq!(answers, lost);

    let call = r#""reconcile_operations": {"operations": [{"operation_id": {"value": "good"}}, {"operation_id": {"value": ""}}, {"operation_id": {"value": "disk"}, "resource_provider_id": {"value": "p"}}]}"#;
    let (said, answers) = in_part("RECONCILE_OPERATIONS", call);
    let SchedulerCall::ReconcileOperations(call) = said else {
        panic!("{said:?}")
    };
    assert_eq!(call.operations, [("good".parse().unwrap(), None)]);
    assert_eq!(
        answers,
        [
            r#""" OPERATION_ERROR  ID must not be empty"#,
            r#""disk" OPERATION_ERROR  Agents have no resource providers"#
        ]
    );

    let offers = format!(r#""decline": {{"offer_ids": {}}}"#, ids(good));
    let (said, answers) = in_part("DECLINE", &offers);
    let SchedulerCall::Decline(call) = said else {
        panic!("{said:?}")
    };
    assert_eq!(call.offer_ids, ["good".parse().unwrap()]);
    assert!(answers.is_empty());
    let inverse = format!(r#"{{"inverse_offer_ids": {}}}"#, ids(good));
    let accept = format!(r#""accept_inverse_offers": {inverse}"#);
    let SchedulerCall::AcceptInverse(call) = in_part("ACCEPT_INVERSE_OFFERS", &accept).0 else {
        panic!("no answer")
    };
    assert_eq!(call.inverse_offer_ids, ["good".parse().unwrap()]);
    let decline = format!(r#""decline_inverse_offers": {inverse}"#);
    let SchedulerCall::DeclineInverse(call) = in_part("DECLINE_INVERSE_OFFERS", &decline).0 else {
        panic!("no answer")
    };
    assert_eq!(call.inverse_offer_ids, ["good".parse().unwrap()]);

    let (said, answers) = in_part("KILL", r#""kill": {"task_id": {"value": ""}}"#);
    assert_eq!(said, nothing(schema::scheduler::CallType::Kill));
    assert_eq!(answers, lost[1..]);
    let uuid = r#""uuid": "AAECAwQFBgcICQoLDA0ODw==""#;
    let bad = r#""agent_id": {"value": ""}, "task_id": {"value": "t"}"#;
    let call = format!(r#""acknowledge": {{{bad}, {uuid}}}"#);
    let (said, answers) = in_part("ACKNOWLEDGE", &call);
    assert_eq!(said, nothing(schema::scheduler::CallType::Acknowledge));
    assert!(answers.is_empty());
}

#[test]
fn an_accept_with_an_invalid_offer_id_keeps_it() {
    let call = r#""accept": {"offer_ids": [{"value": "o"}, {"value": ""}]}"#;
    let scheduler::SchedulerCall::Accept(accepted) = in_part("ACCEPT", call).0 else {
        panic!("no accept")
    };
    assert_eq!(accepted.offers.offer_ids, ["o".parse().unwrap()]);
    assert_eq!(accepted.invalid_offer.as_deref(), Some(""));
}

/// The ERROR event that refuses a SUBSCRIBE, with the message of Mesos.
#[test]
fn an_invalid_subscription_is_refused_as_by_mesos() {
    let info = |more: &str, framework: &str| {
        format!(
            r#"{{"type": "SUBSCRIBE", "subscribe": {{"framework_info": {{"user": "", "name": "n"{framework}}}{more}}}}}"#
        )
    };
    let multi = r#", "capabilities": {"type": "MULTI_ROLE"}"#;
    for [framework, more, words] in rows(
        r#"
        MULTI, "role": "a", "roles": ["a"] |  | 'FrameworkInfo.role' must not be set when the framework is MULTI_ROLE capable
        , "roles": ["a"] |  | 'FrameworkInfo.roles' must not be set when the framework is not MULTI_ROLE capable
        MULTI, "roles": ["b", "a", "b", "a"] |  | 'FrameworkInfo.roles' contains duplicate items: { a, b }
        , "failover_timeout": 1e12 |  | The framework failover_timeout (1e+12) is invalid
        MULTI, "roles": "a", "offer_filters": {"a": {"min_allocatable_resources": {"quantities": [{}]}}} |  | Resource quantities must contain at least one quantity
        MULTI, "roles": "a", "offer_filters": {"a": {"min_allocatable_resources": {"quantities": [{"quantities": {"cpus": {"value": -1}}}]}}} |  | Invalid resource quantity for 'cpus': Negative values not supported
        MULTI, "roles": "a" | , "offer_constraints": {"role_constraints": {"a": {}}} | offer_constraints.role_constraints[a].groups is `empty`: expected one group or more
    "#,
    ) {
        let framework = framework.replace("MULTI,", &format!("{multi},"));
        let said = said(&info(more, &framework)).unwrap();
        let words = words.to_owned();
        assert_eq!(
            said,
            scheduler::SchedulerCall::Refused(words),
            "{framework}{more}"
        );
    }
    let text = info("", r#", "id": {"value": "a/b"}"#);
    let text = text.replacen('{', r#"{"framework_id": {"value": "a/b"}, "#, 1);
    let words = "'a/b' contains invalid characters".to_owned();
    assert_eq!(said(&text), Ok(scheduler::SchedulerCall::Refused(words)));
    // Mesos accepts these.
    for (timeout, taken) in [("-1", 0), ("5e9", 5_000_000_000)] {
        let framework = format!(r#", "failover_timeout": {timeout}"#);
        let Ok(scheduler::SchedulerCall::Subscribe(framework, _)) = said(&info("", &framework))
        else {
            panic!("{timeout}")
        };
        assert_eq!(framework.failover_timeout.as_secs(), taken);
        assert_eq!(framework.user, "");
    }
}

#[test]
fn an_invalid_framework_update_is_refused_as_by_mesos() {
    let update = |framework: &str, more: &str| {
        format!(
            r#"{{"framework_id": {{"value": "f"}}, "type": "UPDATE_FRAMEWORK", "update_framework": {{"framework_info": {{"user": "u", "name": "n"{framework}}}{more}}}}}"#
        )
    };
    refused(
        &update(r#", "roles": "a""#, ""),
        "Supplied FrameworkInfo is not valid: 'FrameworkInfo.roles' must not be set when the framework is not MULTI_ROLE capable",
    );
    refused(
        &update(
            "",
            r#", "offer_constraints": {"role_constraints": {"*": {}}}"#,
        ),
        "'UpdateFramework.offer_constraints' are not valid: offer_constraints.role_constraints[*].groups is `empty`: expected one group or more",
    );
    refused(
        &update(r#", "id": {"value": "g"}"#, ""),
        "Failed to validate scheduler::Call: 'framework_id' differs from 'update_framework.framework_info.id'",
    );
}

/// SPEC 2.2, SUBSCRIBE.
// Covers 2.2 SUBSCRIBE.
#[test]
fn resubscribing_requires_the_framework_id_twice() {
    let subscribe = |outer: &str, inner: &str| {
        said(&format!(
            r#"{{"type": "SUBSCRIBE", {outer} "subscribe": {{"framework_info": {{"user": "u", "name": "n"{inner}}}, "suppressed_roles": "*"}}}}"#
        ))
    };
    let Ok(scheduler::SchedulerCall::Subscribe(framework, wants)) = subscribe("", "") else {
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
        let bad = subscribe(outer, inner).unwrap_err().to_string();
        assert!(bad.ends_with("'framework_id' differs from 'subscribe.framework_info.id'"));
    }
}

/// SPEC 2.2, ACCEPT: an invalid task is answered, the others proceed.
// Covers 2.2 ACCEPT.
#[test]
fn only_invalid_parts_of_an_accept_are_rejected() {
    let task = |id: &str, more: &str| {
        format!(
            r#"{{"name": "t", "task_id": {{"value": "{id}"}}, "agent_id": {{"value": "a"}}{more}}}"#
        )
    };
    let docker = r#", "container": {"type": "DOCKER", "docker": {"image": "busybox", "parameters": [{"key": "x", "value": ""}]}}"#;
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
    let Ok(scheduler::SchedulerCall::Accept(accepted)) =
        accept(&format!("{launch}, {group}, {disk}"))
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
        .map(|task| format!("{} {}: {}", task.task_id, task.reason.name(), task.message))
        .collect();
    assert_eq!(
        told,
        [
            "bad REASON_TASK_INVALID: operations[0].launch.task_infos[1].container.docker.parameters[0].key is `x`: expected tmpfs, since no Docker command is run",
            "g1 REASON_TASK_GROUP_INVALID: 'ExecutorInfo.framework_id' must be set",
            "g2 REASON_TASK_GROUP_INVALID: 'ExecutorInfo.framework_id' must be set",
        ]
    );
    let refused = |accepted: &scheduler::DecodedAccept| {
        let [(id, bad)] = &accepted.operations[..] else {
            panic!("{:?}", accepted.operations)
        };
        format!("{id}: {bad}")
    };
    assert_eq!(
        refused(&accepted),
        "op: operations[2].type is `CREATE_DISK`: expected another operation, since no resource provider makes disks here yet"
    );
    // A launch that requests a status is refused as an operation, together with its tasks.
    let launch = launch.replacen('{', r#"{"id": {"value": "op"}, "#, 1);
    let Ok(scheduler::SchedulerCall::Accept(accepted)) = accept(&launch) else {
        panic!("no accept")
    };
    let because = "operations[0].id is `op`: expected none, since a launch has no status";
    assert_eq!(refused(&accepted), format!("op: {because}"));
    let because = "The `id` field cannot be set on LAUNCH operations";
    let told = accepted.tasks.iter();
    let told = told.map(|task| format!("{}: {}", task.task_id, task.message));
    let told: Vec<String> = told.collect();
    let expected = ["good", "bad"].map(|id| format!("{id}: {because}"));
    assert_eq!(told, expected);
    assert!(accepted.offers.operations.is_empty());
    // Without an id there is no answer: the operation is left out, and the others proceed.
    let moved = r#"{"type": "RESERVE", "reserve": {"resources": [], "source": [{"name": "cpus", "type": "SCALAR", "scalar": {"value": 1}}]}}"#;
    let without_id = format!(r#"{{"type": "CREATE_DISK"}}, {moved}, {{"type": "SING"}}"#);
    let launch = format!(
        r#"{{"type": "LAUNCH", "launch": {{"task_infos": {}}}}}"#,
        task("good", "")
    );
    let Ok(scheduler::SchedulerCall::Accept(accepted)) = accept(&format!("{without_id}, {launch}"))
    else {
        panic!("no accept")
    };
    assert_eq!(accepted.offers.operations.len(), 1);
    let told = (accepted.tasks.len(), accepted.operations.len());
    assert_eq!(told, (0, 0));
    let without_id = accepted.without_id.unwrap();
    assert_eq!(without_id.count, 3);
    assert_eq!(without_id.first.field, "operations[0].type");
    // An invalid id is answered separately, and the others proceed.
    let disk = r#"{"type": "CREATE_DISK", "id": {"value": "a/b"}}"#;
    let launch = format!(
        r#"{{"type": "LAUNCH", "launch": {{"task_infos": [{}, {}]}}}}"#,
        task("a/b", ""),
        task("good", "")
    );
    let call =
        format!(r#""accept": {{"offer_ids": {{"value": "o"}}, "operations": [{disk}, {launch}]}}"#);
    let (said, answers) = in_part("ACCEPT", &call);
    let scheduler::SchedulerCall::Accept(accepted) = said else {
        panic!("{said:?}")
    };
    let [Operation::Launch { tasks }] = &accepted.offers.operations[..] else {
        panic!("{:?}", accepted.offers.operations)
    };
    assert_eq!((tasks.len(), tasks[0].task_id.as_str()), (1, "good"));
    assert_eq!(
        answers,
        [
            r#""a/b" OPERATION_ERROR  'a/b' contains invalid characters"#,
            r#""a/b" TASK_ERROR REASON_TASK_INVALID 'a/b' contains invalid characters"#
        ]
    );
}

/// SPEC 2.2, ACCEPT: an executor belongs to the framework that launches it.
#[test]
fn a_task_with_a_foreign_executor_is_rejected_alone() {
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
    let Ok(scheduler::SchedulerCall::Accept(accepted)) = said(&call) else {
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
    // Its valid fields are in its status.
    assert_eq!(task.name, "t");
    assert_eq!(task.agent_id, Some("a".parse().unwrap()));
    assert_eq!(
        format!("{}: {}", task.task_id, task.message),
        "other: operations[0].launch.task_infos[2].executor.framework_id.value is `g`: expected `f`, the calling framework, or none"
    );
}

#[test]
fn an_executors_update_has_a_uuid() {
    let update = |more: &str| {
        let text = format!(
            r#"{{"executor_id": {{"value": "e"}}, "framework_id": {{"value": "f"}}, "type": "UPDATE", "update": {{"status": {{"task_id": {{"value": "t"}}, "state": "TASK_RUNNING"{more}}}}}}}"#
        );
        executor::to_protocol(&json::read(text.as_bytes(), Limits::default()).unwrap())
    };
    assert!(update(r#", "uuid": "AAECAwQFBgcICQoLDA0ODw==""#).is_ok());
    assert_eq!(
        update("").unwrap_err().to_string(),
        "Failed to validate Executor::Call: Expecting 'uuid' to be present"
    );
}

#[test]
fn any_call_is_converted_or_refused() {
    let mut taken = 0;
    for seed in 0..3000 {
        let mut call = schema::scheduler::Call::default();
        fill(&mut call, &mut Chance(seed), (seed % 4) as u32 + 1);
        match scheduler::to_protocol(&call) {
            Ok(_) => taken += 1,
            Err(bad) => assert!(bad.to_string().len() > 10, "{bad:?}"),
        }
        let mut call = schema::executor::Call::default();
        fill(&mut call, &mut Chance(seed), (seed % 4) as u32 + 1);
        if let Err(bad) = executor::to_protocol(&call) {
            let words = "Failed to validate Executor::Call: ";
            assert!(bad.to_string().len() > words.len(), "{bad:?}");
        }
    }
    assert!(taken > 100, "{taken}");
}

#[test]
fn events_have_the_fields_of_mesos() {
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
fn operator_calls_are_converted() {
    use meros_v1::convert::operator::{OperatorCall, to_protocol};
    let said = |text: &str| to_protocol(&json::read(text.as_bytes(), Limits::default()).unwrap());
    let Ok(OperatorCall::UpdateQuotas(update)) = said(
        r#"{"type": "UPDATE_QUOTA", "update_quota": {"force": true, "quota_configs": {"role": "ads", "limits": {"cpus": {"value": 8}}}}}"#,
    ) else {
        panic!("no quota")
    };
    assert!(update.force);
    assert_eq!(update.quotas["ads"].limits.to_string(), "cpus:8");

    let Ok(OperatorCall::SetQuota(update)) = said(
        r#"{"type": "SET_QUOTA", "set_quota": {"quota_request": {"role": "ads", "guarantee": {"name": "cpus", "type": "SCALAR", "scalar": {"value": 2}}}}}"#,
    ) else {
        panic!("no quota")
    };
    let quota = &update.quotas["ads"];
    assert_eq!(quota.guarantees.to_string(), "cpus:2");
    assert_eq!((&quota.limits, update.force), (&quota.guarantees, false));
    let remove = said(r#"{"type": "REMOVE_QUOTA", "remove_quota": {"role": "ads"}}"#);
    assert_eq!(remove, Ok(OperatorCall::RemoveQuota("ads".to_owned())));

    let cpus = |reservations: &str| {
        format!(r#"{{"name": "cpus", "type": "SCALAR", "scalar": {{"value": 1}}{reservations}}}"#)
    };
    let reserved = cpus(r#", "reservations": {"type": "DYNAMIC", "role": "ads"}"#);
    let reserve = |more: &str| {
        said(&format!(
            r#"{{"type": "RESERVE_RESOURCES", "reserve_resources": {{"agent_id": {{"value": "a"}}, "resources": {reserved}{more}}}}}"#
        ))
    };
    assert!(matches!(reserve(""), Ok(OperatorCall::Operate(_))));
    assert_eq!(
        reserve(&format!(r#", "source": {}"#, cpus(""))),
        reserve("")
    );
    let source = |entry: &str| format!(r#", "source": {}"#, cpus(entry));
    let eng = source(r#", "reservations": {"type": "DYNAMIC", "role": "eng"}"#);
    let Ok(OperatorCall::OperateAll(agent, steps)) = reserve(&eng) else {
        panic!("no steps")
    };
    let names: Vec<_> = steps.iter().map(|step| step.name()).collect();
    assert_eq!((agent.as_str(), names), ("a", vec!["unreserve", "reserve"]));
    let more = source("").replace("\"value\": 1", "\"value\": 2");
    assert_eq!(
        reserve(&more).unwrap_err().to_string(),
        "Failed to validate master::Call: reserve_resources.source is `cpus:2`: expected the same as `resources` but for their reservations"
    );
    for [text, words] in rows(
        r#"
        {} | Expecting 'type' to be present
        {"type": "TEARDOWN"} | Expecting 'teardown' to be present
        {"type": "SET_QUOTA", "set_quota": {"quota_request": {"role": "a", "guarantee": {"name": "ports", "type": "RANGES", "ranges": {"range": {"begin": 1, "end": 2}}}}}} | set_quota.quota_request.guarantee
        {"type": "UPDATE_WEIGHTS", "update_weights": {"weight_infos": [{"weight": 1}]}} | update_weights.weight_infos[0].role
        {"type": "UPDATE_WEIGHTS", "update_weights": {"weight_infos": [{"weight": 1, "role": "a"}, {"weight": 2, "role": "a"}]}} | update_weights.weight_infos[1].role
    "#,
    ) {
        let refused = said(text).unwrap_err().to_string();
        let words = format!("Failed to validate master::Call: {words}");
        assert!(refused.starts_with(&words), "{refused}");
    }
    let state = said(r#"{"type": "GET_STATE"}"#);
    assert_eq!(
        state,
        Ok(OperatorCall::Other(schema::master::CallType::GetState))
    );
}
