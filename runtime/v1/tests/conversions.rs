//! What is converted into the v1 API and back is the same; what comes from strangers converts, or is refused with words that say why.

#![allow(clippy::unwrap_used, clippy::panic, reason = "all of it is tests")]

mod chance;
mod words;

use std::fmt::Debug;

use chance::{Chance, fill};
use meros_v1::message::{Enum, Message};
use meros_v1::schema::quota::QuotaConfig;
use meros_v1::schema::scheduler::OfferConstraints;
use meros_v1::schema::{self, scheduler};
use meros_v1::{Invalid, Limits, convert, json, protobuf};

/// From ours to theirs, over the wire in both forms, and back.
fn check<Ours, Theirs>(
    make: impl Fn(&mut Chance) -> Ours,
    write: impl Fn(&Ours) -> Theirs,
    read: impl Fn(&Theirs) -> Result<Ours, Invalid>,
) where
    Ours: Debug + PartialEq,
    Theirs: Message + Default + PartialEq,
{
    for seed in 0..300 {
        let ours = make(&mut Chance(seed));
        let written = write(&ours);
        let bytes = protobuf::write(&written);
        let from_bytes: Theirs = protobuf::read(&bytes, Limits::default())
            .unwrap_or_else(|bad| panic!("seed {seed}: {bad}\n{ours:?}"));
        assert_eq!(from_bytes, written, "seed {seed}");
        let text = json::write(&written);
        let from_text: Theirs = json::read(&text, Limits::default())
            .unwrap_or_else(|bad| panic!("seed {seed}: {bad}\n{ours:?}"));
        for theirs in [from_bytes, from_text] {
            let again = read(&theirs).unwrap_or_else(|bad| panic!("seed {seed}: {bad}\n{ours:?}"));
            assert_eq!(again, ours, "seed {seed}");
        }
    }
}

/// The same, by `From` and `TryFrom`.
fn check_type<Ours, Theirs>(make: impl Fn(&mut Chance) -> Ours)
where
    Ours: Debug + PartialEq + for<'a> TryFrom<&'a Theirs, Error = Invalid>,
    Theirs: Message + Default + PartialEq + for<'a> From<&'a Ours>,
{
    check(
        make,
        |ours| Theirs::from(ours),
        |theirs: &Theirs| Ours::try_from(theirs),
    );
}

#[test]
fn resources_and_attributes_come_back_as_they_were() {
    check_type::<_, schema::Resource>(Chance::resource);
    // Lists of them travel in what has them.
    check_type::<_, schema::AgentInfo>(Chance::agent);
}

#[test]
fn tasks_commands_and_executors_come_back_as_they_were() {
    check_type::<_, schema::CommandInfo>(Chance::command);
    check_type::<_, schema::ExecutorInfo>(Chance::executor);
    check_type::<_, schema::TaskInfo>(Chance::task);
}

#[test]
fn statuses_come_back_as_they_were() {
    // The address is no part of what is said: what stands in its place is kept as it was said.
    check_type::<_, schema::TaskStatus>(|chance| protocol::TaskStatus {
        address: None,
        ..chance.status()
    });
    check_type::<_, schema::OperationStatus>(Chance::operation_status);
}

#[test]
fn frameworks_come_back_as_they_were() {
    check_type::<_, schema::FrameworkInfo>(Chance::framework);
    check(
        Chance::filters,
        |ours| ours.into(),
        |theirs: &schema::Filters| Ok(theirs.into()),
    );
    check(
        Chance::demands,
        |ours| scheduler::CallSubscribe {
            framework_info: schema::FrameworkInfo {
                offer_filters: convert::offer_filters(ours),
                ..Default::default()
            },
            offer_constraints: Some(convert::constraints(ours)),
            ..Default::default()
        },
        |theirs| {
            let constraints = theirs.offer_constraints.as_ref();
            convert::demands(constraints, &theirs.framework_info.offer_filters)
        },
    );
    check(
        Chance::quota,
        |ours| QuotaConfig::from(("ads", ours)),
        |theirs| theirs.try_into(),
    );
}

#[test]
fn offers_and_operations_come_back_as_they_were() {
    check_type::<_, schema::Offer>(Chance::offer);
    check_type::<_, schema::OfferOperation>(Chance::operation);
}

#[test]
fn every_word_has_its_counterpart() {
    for state in protocol::TaskState::ALL {
        assert_eq!(schema::TaskState::from(*state).name(), state.name());
    }
    assert_eq!(
        schema::TaskState::VALUES.len(),
        protocol::TaskState::ALL.len()
    );
    for source in protocol::Source::ALL {
        assert_eq!(
            schema::TaskStatusSource::from(*source).name(),
            source.name()
        );
    }
    assert_eq!(
        schema::TaskStatusSource::VALUES.len(),
        protocol::Source::ALL.len()
    );
    for reason in protocol::Reason::ALL {
        let theirs = schema::TaskStatusReason::from(*reason);
        assert_eq!(theirs.name(), reason.name().replace("SLAVE", "AGENT"));
        assert_eq!(protocol::Reason::from(theirs), *reason);
    }
    assert_eq!(
        schema::TaskStatusReason::VALUES.len(),
        protocol::Reason::ALL.len()
    );
    for (_, name) in protocol::Capability::NAMES {
        assert!(
            schema::FrameworkInfoCapabilityType::by_name(name).is_some(),
            "{name}"
        );
    }
}

/// Whatever is filled in: it is refused with words, or it means something that can be written and read again as the same.
fn check_strangers<Ours, Theirs>() -> usize
where
    Ours: Debug + PartialEq + for<'a> TryFrom<&'a Theirs, Error = Invalid>,
    Theirs: Message + Default + PartialEq + for<'a> From<&'a Ours>,
{
    let mut taken = 0;
    for seed in 0..2000 {
        let mut theirs = Theirs::default();
        fill(&mut theirs, &mut Chance(seed), (seed % 4) as u32 + 1);
        match Ours::try_from(&theirs) {
            Ok(ours) => {
                let again = Ours::try_from(&Theirs::from(&ours));
                assert_eq!(again, Ok(ours), "seed {seed}");
                taken += 1;
            }
            Err(bad) => assert!(
                !bad.field.is_empty() && !bad.expected.is_empty(),
                "seed {seed}: {bad:?}"
            ),
        }
    }
    taken
}

#[test]
fn what_strangers_say_is_understood_or_refused_with_words() {
    let taken = [
        check_strangers::<resources::Resource, schema::Resource>(),
        check_strangers::<resources::Attribute, schema::Attribute>(),
        check_strangers::<protocol::CommandInfo, schema::CommandInfo>(),
        check_strangers::<protocol::ExecutorInfo, schema::ExecutorInfo>(),
        check_strangers::<protocol::TaskInfo, schema::TaskInfo>(),
        check_strangers::<protocol::FrameworkInfo, schema::FrameworkInfo>(),
        check_strangers::<protocol::AgentInfo, schema::AgentInfo>(),
        check_strangers::<protocol::Offer, schema::Offer>(),
        check_strangers::<protocol::Operation, schema::OfferOperation>(),
        check_strangers::<protocol::OperationStatus, schema::OperationStatus>(),
        check_strangers::<protocol::TaskStatus, schema::TaskStatus>(),
    ];
    assert!(taken.iter().all(|taken| *taken > 3), "{taken:?}");
}

#[track_caller]
fn refused<Theirs, Ours>(text: &str, words: &str)
where
    Theirs: Message + Default,
    Ours: Debug + for<'a> TryFrom<&'a Theirs, Error = Invalid>,
{
    let theirs: Theirs = json::read(text.as_bytes(), Limits::default()).unwrap();
    assert_eq!(Ours::try_from(&theirs).unwrap_err().to_string(), words);
}

#[test]
fn what_has_no_words_here_is_refused_by_name() {
    let task = |more: &str| {
        format!(
            r#"{{"name": "t", "task_id": {{"value": "t"}}, "agent_id": {{"value": "a"}}, {more}}}"#
        )
    };
    let refused_task = |more: &str, words| {
        refused::<schema::TaskInfo, protocol::TaskInfo>(&task(more), words);
    };
    refused_task(
        r#""container": {"type": "DOCKER", "docker": {"image": "busybox"}}"#,
        "container is `of type DOCKER`: expected a container of type MESOS of which nothing more is said, or none",
    );
    refused_task(
        r#""health_check": {"type": "TCP"}"#,
        "health_check is `set`: expected nothing, since tasks are not checked yet",
    );
    refused_task(
        r#""command": {"value": "x", "uris": {"value": "http://h/f"}}"#,
        "command.uris[0].value is `http://h/f`: expected none, since nothing is fetched for a command yet",
    );
    refused_task(
        r#""executor": {"executor_id": {"value": "e"}, "type": "DEFAULT"}"#,
        "executor.type is `DEFAULT`: expected CUSTOM with a command, since there is no default executor yet",
    );
    refused_task(
        r#""resources": [{"name": "cpus", "type": "SCALAR", "scalar": {"value": 1}}, {"name": "cpus", "type": "SCALAR", "scalar": {"value": -1}}]"#,
        "resources[1].scalar.value is `-1`: expected a number from 0 to 1000000000000",
    );
    refused::<schema::OfferOperation, protocol::Operation>(
        r#"{"type": "RESERVE", "reserve": {"source": [{"name": "cpus", "type": "SCALAR", "scalar": {"value": 1}}]}}"#,
        "reserve.source is `set`: expected nothing: what becomes of which reservations is for operators to say",
    );
    refused::<schema::OfferOperation, protocol::Operation>(
        r#"{"type": "LAUNCH", "id": {"value": "op"}, "launch": {}}"#,
        "id is `op`: expected none, since a launch has no status",
    );
    refused::<schema::OfferOperation, protocol::Operation>(
        r#"{"type": "LAUNCH"}"#,
        "launch is `absent`: expected what is to be done, as `type` says",
    );
}

/// SPEC 2.8, DiscoveryInfo: what informs people and tools is kept among the labels, and shown where it was said.
#[test]
fn how_a_task_is_found_is_kept_and_is_no_label() {
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

/// SPEC 3.12, `container_status`: as Mesos has it where nothing isolates networks.
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

/// SPEC 2.8, TaskStatus: what an executor says of its container, of checks and of limits is told as it was said, in both forms.
#[test]
fn what_an_executor_says_in_a_status_is_told_as_it_was_said() {
    let container = r#""container_status":{"network_infos":[{"ip_addresses":[{"protocol":"IPv4","ip_address":"172.17.0.2"}],"name":"bridge","labels":{"labels":[{"key":"k"}]}}],"cgroup_info":{"net_cls":{"classid":7}},"executor_pid":42,"container_id":{"value":"c","parent":{"value":"p"}}}"#;
    let check = r#""check_status":{"type":"HTTP","http":{"status_code":503}}"#;
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
            r#","labels":{{"labels":[{{"key":"a","value":"b"}}]}},{container},{check},{limitation}"#
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
        assert_eq!(told.labels, said.labels, "{more}");
    }
}

/// SPEC 3.12, `container_status`: where the executor has said less, the rest is as it is for each container.
#[test]
fn what_an_executor_does_not_say_of_its_container_is_filled_in() {
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

#[test]
fn a_container_in_which_nothing_is_asked_for_is_none() {
    let text = r#"{"name": "t", "task_id": {"value": "t"}, "agent_id": {"value": "a"}, "container": {"type": "MESOS", "mesos": {}}}"#;
    let task: schema::TaskInfo = json::read(text.as_bytes(), Limits::default()).unwrap();
    assert!(protocol::TaskInfo::try_from(&task).is_ok());
}

/// SPEC 2.4: empty groups and constraints are invalid.
#[test]
fn constraints_that_say_nothing_are_refused() {
    for (text, words) in [
        (
            r#"{"role_constraints": {"ads": {}}}"#,
            "offer_constraints.role_constraints[ads].groups is `empty`: expected one group or more",
        ),
        (
            r#"{"role_constraints": {"ads": {"groups": {}}}}"#,
            "offer_constraints.role_constraints[ads].groups[0].attribute_constraints is `empty`: expected one constraint or more",
        ),
    ] {
        let constraints: OfferConstraints = json::read(text.as_bytes(), Limits::default()).unwrap();
        assert_eq!(
            convert::demands(Some(&constraints), &Default::default())
                .unwrap_err()
                .to_string(),
            words
        );
    }
    assert_eq!(
        convert::demands(Some(&OfferConstraints::default()), &Default::default()),
        Ok(Default::default())
    );
}

/// SPEC 2.8: the old form of a reservation.
#[test]
fn reservations_in_the_old_form_are_understood() {
    let read = |more: &str| {
        let text =
            format!(r#"{{"name": "cpus", "type": "SCALAR", "scalar": {{"value": 1}}, {more}}}"#);
        let resource: schema::Resource = json::read(text.as_bytes(), Limits::default()).unwrap();
        resources::Resource::try_from(&resource)
            .map(|resource| format!("{:?}", resource.reservations()))
    };
    let of = |more: &str| read(more).unwrap();
    assert_eq!(of(r#""role": "*""#), "[]");
    assert!(of(r#""role": "ads""#).contains("Static"));
    assert!(of(r#""role": "ads", "reservation": {"principal": "ops"}"#).contains("Dynamic"));
    let both = r#""role": "ads", "reservations": [{"type": "DYNAMIC", "role": "ads"}]"#;
    assert!(of(both).contains("Dynamic"));
    assert_eq!(
        read(r#""role": "eng", "reservations": [{"type": "DYNAMIC", "role": "ads"}]"#)
            .unwrap_err()
            .to_string(),
        "role is `eng`: expected the role of the last of `reservations`, or none"
    );
}

/// SPEC 3.3.
#[test]
fn a_framework_without_roles_has_the_one_for_everybody_unless_it_may_have_several() {
    let roles = |more: &str| {
        let text = format!(r#"{{"user": "u", "name": "n"{more}}}"#);
        let info: schema::FrameworkInfo = json::read(text.as_bytes(), Limits::default()).unwrap();
        protocol::FrameworkInfo::try_from(&info)
            .map(|info| info.roles.into_iter().collect::<Vec<_>>())
    };
    assert_eq!(roles("").unwrap(), ["*"]);
    assert_eq!(roles(r#", "role": "ads""#).unwrap(), ["ads"]);
    assert_eq!(
        roles(r#", "roles": ["a", "b"], "capabilities": {"type": "MULTI_ROLE"}"#).unwrap(),
        ["a", "b"]
    );
    let multi_role = r#""capabilities": {"type": "MULTI_ROLE"}"#;
    assert!(roles(&format!(", {multi_role}")).unwrap().is_empty());
    let refused = |more: &str| roles(more).unwrap_err().to_string();
    let twice = format!(r#", "roles": ["a", "b", "a"], {multi_role}"#);
    assert_eq!(refused(&twice), "roles is `a`: expected each role once");
    assert!(roles(r#", "role": "ads", "capabilities": {"type": "MULTI_ROLE"}"#).is_err());
    assert!(roles(r#", "role": "ads", "roles": ["ads"]"#).is_err());
}

#[test]
fn every_call_of_the_scheduler_can_be_said() {
    // The names here and on the wire are of one kind: what `type` says is the field that counts.
    let call = scheduler::Call::default();
    let fields: Vec<&str> = call.table().iter().map(|entry| entry.name).collect();
    for (_, number, name) in scheduler::CallType::VALUES {
        let without_fields = *number == 0 || *name == "TEARDOWN";
        assert!(
            without_fields || fields.contains(&name.to_lowercase().as_str()),
            "{name}"
        );
    }
}

/// SPEC 3.12, `*_full`: the older form stands beside the stack, and says the same.
#[test]
fn in_both_forms_a_reservation_is_found_wherever_one_looks_for_it() {
    for (text, role, principal) in [
        ("cpus:1", Some("*"), None),
        ("cpus(ads):1", Some("ads"), None),
        ("dynamic", Some("ads"), Some("ops")),
        ("refined", None, None),
    ] {
        let by = |role: &str, r#type| schema::ResourceReservationInfo {
            role: Some(role.to_owned()),
            r#type: Some(r#type),
            principal: Some("ops".to_owned()),
            ..schema::ResourceReservationInfo::default()
        };
        let dynamic = schema::ResourceReservationInfoType::Dynamic;
        let mut one = schema::Resource::default();
        match text {
            "dynamic" => one.reservations = vec![by("ads", dynamic)],
            "refined" => one.reservations = vec![by("ads", dynamic), by("ads/web", dynamic)],
            text => {
                let plain: resources::Resources = text.parse().unwrap();
                one = convert::write_resources(&plain).remove(0);
            }
        }
        let mut told = [one.clone()];
        convert::older::in_both_forms(&mut told);
        let [told] = told;
        assert_eq!(told.reservations, one.reservations, "{text}");
        assert_eq!(told.role.as_deref(), role, "{text}");
        let reservation = told.reservation.as_ref();
        let by = reservation.and_then(|one| one.principal.as_deref());
        assert_eq!(by, principal, "{text}");
    }
}

/// SPEC 2.8: a framework that does not know of stacks finds role and reservation where they were before.
#[test]
fn a_framework_that_knows_less_is_told_the_same_in_the_older_form() {
    let old = protocol::FrameworkInfo::new("u", "n");
    for seed in 0..300 {
        let resource = Chance(seed).resource();
        // The older form of a static one has room for its role alone; nothing else is ever said of it.
        if let [only] = resource.reservations()
            && only.kind == resources::ReservationKind::Static
            && *only != resources::Reservation::fixed(only.role.clone())
        {
            continue;
        }
        let mut told = [schema::Resource::from(&resource)];
        convert::older::resources_for(&old, &mut told);
        let [told] = told;
        assert_eq!(told.allocation_info, None);
        let refined = resource.reservations().len() > 1;
        assert_eq!(told.reservations.is_empty(), !refined, "seed {seed}");
        assert_eq!(told.role.is_some(), !refined, "seed {seed}");
        let expected = resources::Resources::from(resource).unallocate();
        let answered = resources::Resource::try_from(&told).unwrap();
        assert_eq!(
            resources::Resources::from(answered),
            expected,
            "seed {seed}"
        );
    }
}

/// SPEC 2.8.
#[test]
fn a_master_says_its_address_in_all_the_ways_that_readers_look_for_it_and_what_it_can_do() {
    let master = protocol::MasterInfo {
        id: "m".parse().unwrap(),
        hostname: "h".to_owned(),
        port: 5050,
        version: "0.1.0".to_owned(),
        term: 1,
        address: Some([127, 0, 0, 1].into()),
        domain: Some(Box::new(protocol::agent::Domain {
            region: "eu".to_owned(),
            zone: "a".to_owned(),
        })),
    };
    let master = convert::master_info(&master);
    let text = String::from_utf8(json::write(&master)).unwrap();
    assert_eq!(
        text,
        r#"{"id":"m","ip":16777343,"port":5050,"pid":"master@127.0.0.1:5050","hostname":"h","version":"0.1.0","address":{"hostname":"h","ip":"127.0.0.1","port":5050},"domain":{"fault_domain":{"region":{"name":"eu"},"zone":{"name":"a"}}},"capabilities":[{"type":"AGENT_UPDATE"},{"type":"AGENT_DRAINING"},{"type":"QUOTA_V2"}]}"#
    );
}
