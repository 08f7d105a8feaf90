//! Round trips through the v1 API; untrusted messages are converted or refused with a reason.

#![allow(clippy::unwrap_used, clippy::panic, reason = "all of it is tests")]

mod chance;
mod checks;
// Not all of them are converted here.
#[allow(dead_code, reason = "shared with what operators hear")]
mod values;

use std::fmt::Debug;

use chance::{Chance, fill};
use checks::{check, check_type};
use meros_v1::message::{Enum, Message};
use meros_v1::schema::allocator::quota::QuotaConfig;
use meros_v1::schema::scheduler::OfferConstraints;
use meros_v1::schema::{self, scheduler};
use meros_v1::{Invalid, Limits, convert, json};
use protocol::task::container::{MemoryVolume, Volume, VolumeSource};
use testkit::rows;

#[test]
fn resources_and_attributes_survive_a_round_trip() {
    check_type::<_, schema::Resource>(Chance::resource);
    // Lists of them are parts of larger messages.
    check_type::<_, schema::AgentInfo>(Chance::agent);
}

#[test]
fn tasks_and_executors_survive_a_round_trip() {
    check_type::<_, schema::CommandInfo>(Chance::command);
    check_type::<_, schema::ExecutorInfo>(Chance::executor);
    check_type::<_, schema::TaskInfo>(Chance::task);
}

#[test]
fn statuses_survive_a_round_trip() {
    // The address is not converted: the networks are kept as sent.
    check_type::<_, schema::TaskStatus>(|chance| protocol::TaskStatus {
        address: None,
        ..chance.status()
    });
    check_type::<_, schema::OperationStatus>(Chance::operation_status);
}

#[test]
fn frameworks_survive_a_round_trip() {
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
fn offers_and_operations_survive_a_round_trip() {
    check_type::<_, schema::Offer>(Chance::offer);
    check_type::<_, schema::OfferOperation>(Chance::operation);
}

#[test]
fn every_enum_value_has_its_counterpart() {
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

/// A randomly filled message is refused with a reason, or converted to a value that survives a
/// round trip.
fn check_strangers<Ours, Theirs>() -> usize
where
    Ours: Debug + PartialEq + for<'a> TryFrom<&'a Theirs, Error = Invalid>,
    Theirs: Message + Default + PartialEq + for<'a> From<&'a Ours>,
{
    let mut taken = 0;
    for seed in 0..4000 {
        let mut theirs = Theirs::default();
        fill(&mut theirs, &mut Chance(seed), (seed % 4) as u32 + 1);
        match Ours::try_from(&theirs) {
            Ok(ours) => {
                let again = Ours::try_from(&Theirs::from(&ours));
                assert_eq!(again, Ok(ours), "seed {seed}");
                taken += 1;
            }
            // A message of Mesos has no field.
            Err(bad) => assert!(!bad.expected.is_empty(), "seed {seed}: {bad:?}"),
        }
    }
    taken
}

#[test]
fn untrusted_bytes_are_decoded_or_refused() {
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

/// SPEC 5.4: the words of Mesos 1.11.
#[test]
fn incomplete_checks_are_refused_in_mesos_words() {
    let refused_task = |more: &str, words: &str| {
        let task = format!(
            r#"{{"name": "t", "task_id": {{"value": "t"}}, "agent_id": {{"value": "a"}}, {more}}}"#
        );
        refused::<schema::TaskInfo, protocol::TaskInfo>(&task, words);
    };
    for [check, words] in rows(
        r#"
        {} | HealthCheck must specify 'type'
        {"type": "UNKNOWN"} | 'UNKNOWN' is not a valid health check type
        {"type": "COMMAND"} | Expecting 'command' to be set for COMMAND health check
        {"type": "COMMAND", "command": {"shell": true}} | Command health check must contain 'shell command'
        {"type": "HTTP"} | Expecting 'http' to be set for HTTP health check
        {"type": "TCP", "tcp": {"port": 1}, "grace_period_seconds": -1} | Expecting 'grace_period_seconds' to be non-negative
    "#,
    ) {
        let words = format!("Task uses invalid health check: {words}");
        refused_task(&format!(r#""health_check": {check}"#), &words);
    }
    for [check, words] in rows(
        r#"
        {} | CheckInfo must specify 'type'
        {"type": "TCP"} | Expecting 'tcp' to be set for TCP check
        {"type": "COMMAND", "command": {"command": {"shell": false}}} | Command check must contain 'executable path'
        {"type": "TCP", "tcp": {"port": 1}, "delay_seconds": -0.5} | Expecting 'delay_seconds' to be non-negative
    "#,
    ) {
        let words = format!("Task uses invalid check: {words}");
        refused_task(&format!(r#""check": {check}"#), &words);
    }
    refused_task(
        r#""max_completion_time": {"nanoseconds": -1}"#,
        "Task's `max_completion_time` must be non-negative",
    );
}

#[test]
fn unsupported_fields_are_refused_by_name() {
    let task = |more: &str| {
        format!(
            r#"{{"name": "t", "task_id": {{"value": "t"}}, "agent_id": {{"value": "a"}}, {more}}}"#
        )
    };
    let refused_task = |more: &str, words| {
        refused::<schema::TaskInfo, protocol::TaskInfo>(&task(more), words);
    };
    for [container, words] in rows(
        r#"
        "type": "DOCKER", "docker": {"image": "busybox", "port_mappings": [{"host_port": 80, "container_port": 65536}]} | container.docker.port_mappings[0].container_port is `65536`: expected at most 65535
        "type": "DOCKER", "docker": {"image": "busybox", "parameters": [{"key": "name", "value": "n"}]} | Parameter in DockerInfo must not be 'name'
        "type": "DOCKER" | DockerInfo 'docker' is not set for DOCKER typed ContainerInfo
        "type": "MESOS", "mesos": {"image": {"type": "APPC"}} | container.mesos.image.type is `APPC`: expected DOCKER
        "type": "DOCKER", "docker": {"image": "busybox"}, "network_infos": [{"name": "net"}] | container.network_infos[0].name is `net`: expected none, since `docker.network` is not USER
        "type": "MESOS", "network_infos": [{"port_mappings": [{"host_port": 80, "container_port": 80}]}] | container.network_infos[0].port_mappings is `set`: expected none without `name`, in the network of the host
        "type": "MESOS", "volumes": [{"container_path": "a", "mode": "RW"}] | Invalid volume: Only one of them should be set: 'host_path', 'image' and 'source'
        "type": "MESOS", "volumes": [{"container_path": "a", "mode": "RW", "source": {"type": "SECRET"}}] | Invalid volume: 'source.secret' is not set for SECRET volume
        "type": "MESOS", "volumes": [{"container_path": "a", "mode": "RW", "source": {"type": "SANDBOX_PATH", "sandbox_path": {"type": "PARENT", "path": "b"}}}] | container.volumes[0].source.sandbox_path.type is `PARENT`: expected SELF
        "type": "DOCKER", "docker": {"image": "busybox", "parameters": [{"key": "memory", "value": "1g"}]} | container.docker.parameters[0].key is `memory`: expected tmpfs, since no Docker command is run
        "type": "DOCKER", "docker": {"image": "busybox", "parameters": [{"key": "tmpfs", "value": "/run:exec"}]} | container.docker.parameters[0].value is `/run:exec`: expected an absolute path, and after `:` options of `size=64m`, `mode=1777`, `rw`, `ro`, `noexec`, `nosuid`, `nodev`
        "type": "MESOS", "volumes": [{"container_path": "a", "mode": "RW", "source": {"type": "TMPFS", "tmpfs": {"mode": "4755"}}}] | container.volumes[0].source.tmpfs.mode is `4755`: expected octal digits, at most 1777
        "type": "MESOS", "linux_info": {"seccomp": {}} | container.linux_info.seccomp is `both or neither`: expected either `profile_name` or `unconfined` as true
        "type": "MESOS", "rlimit_info": {"rlimits": [{"type": "RLMT_NOFILE", "soft": 2, "hard": 1}]} | container.rlimit_info.rlimits[0].soft is `2`: expected at most 1, as `hard`
        "type": "MESOS", "rlimit_info": {"rlimits": [{"type": "RLMT_NOFILE", "soft": 2}]} | container.rlimit_info.rlimits[0].hard is `only one of two`: expected both or neither of `soft` and `hard`
    "#,
    ) {
        refused_task(&format!(r#""container": {{{container}}}"#), words);
    }
    refused_task(
        r#""command": {"value": "x", "uris": {"value": "hdfs://h/f"}}"#,
        "command.uris[0].value is `hdfs://h/f`: expected a URI of a scheme among http, https, file",
    );
    refused_task(
        r#""command": {"value": "x", "uris": {"value": "/f", "output_file": "../f"}}"#,
        "command.uris[0].output_file is `../f`: expected a relative path of a file, without empty parts, `.` and `..`",
    );
    refused_task(
        r#""command": {"value": "x", "uris": {"value": "/f", "digest": "md5:0"}}"#,
        "command.uris[0].digest is `md5:0`: expected `sha256:` and 64 lower-case hexadecimal digits",
    );
    refused_task(
        r#""executor": {"executor_id": {"value": "e"}, "type": "DEFAULT", "command": {"value": "x"}}"#,
        "'ExecutorInfo.command' must not be set for 'DEFAULT' executor",
    );
    refused_task(
        r#""executor": {"executor_id": {"value": "e"}, "type": "CUSTOM"}"#,
        "'ExecutorInfo.command' must be set for 'CUSTOM' executor",
    );
    refused_task(
        r#""resources": [{"name": "cpus", "type": "SCALAR", "scalar": {"value": 1}}, {"name": "cpus", "type": "SCALAR", "scalar": {"value": -1}}]"#,
        "resources[1].scalar.value is `-1`: expected a number from 0 to 1000000000000",
    );
    refused::<schema::OfferOperation, protocol::Operation>(
        r#"{"type": "RESERVE", "reserve": {"source": [{"name": "cpus", "type": "SCALAR", "scalar": {"value": 1}}]}}"#,
        "reserve.source is `set`: expected none: only operators may set a source",
    );
    refused::<schema::OfferOperation, protocol::Operation>(
        r#"{"type": "LAUNCH", "id": {"value": "op"}, "launch": {}}"#,
        "id is `op`: expected none, since a launch has no status",
    );
    refused::<schema::OfferOperation, protocol::Operation>(
        r#"{"type": "LAUNCH"}"#,
        "launch is `absent`: expected the field named by `type`",
    );
}

#[test]
fn dockers_parameter_tmpfs_is_a_volume() {
    let volume = |value: &str| {
        let text = format!(
            r#"{{"type": "DOCKER", "docker": {{"image": "busybox", "parameters": [{{"key": "tmpfs", "value": "{value}"}}]}}}}"#
        );
        let theirs: schema::ContainerInfo = json::read(text.as_bytes(), Limits::default()).unwrap();
        let ours = protocol::task::ContainerInfo::try_from(&theirs).unwrap();
        let written = schema::ContainerInfo::from(&ours);
        assert!(written.volumes.is_empty(), "clients do not know this type");
        let again = protocol::task::ContainerInfo::try_from(&written);
        assert_eq!(again.as_ref(), Ok(&ours));
        ours.volumes.into_iter().next().unwrap()
    };
    let made = |is_read_only, bytes, mode| Volume {
        container_path: "/run".into(),
        is_read_only,
        source: VolumeSource::Memory(MemoryVolume { bytes, mode }),
    };
    assert_eq!(volume("/run"), made(false, None, 0o1777));
    let all = volume("/run:rw,noexec,size=64M,mode=755");
    assert_eq!(all, made(false, Some(64 << 20), 0o755));
    assert_eq!(volume("/run:ro,size=4096"), made(true, Some(4096), 0o1777));
}

#[test]
fn an_empty_container_info_means_no_container() {
    let text = r#"{"name": "t", "task_id": {"value": "t"}, "agent_id": {"value": "a"}, "container": {"type": "MESOS", "mesos": {}}}"#;
    let task: schema::TaskInfo = json::read(text.as_bytes(), Limits::default()).unwrap();
    assert!(protocol::TaskInfo::try_from(&task).is_ok());
}

/// SPEC 2.4: empty groups and constraints are invalid.
// Covers 2.4 Offer constraints.
#[test]
fn empty_constraints_are_refused() {
    for [text, words] in rows(
        r#"
        {"role_constraints": {"ads": {}}} | offer_constraints.role_constraints[ads].groups is `empty`: expected one group or more
        {"role_constraints": {"ads": {"groups": {}}}} | offer_constraints.role_constraints[ads].groups[0].attribute_constraints is `empty`: expected one constraint or more
    "#,
    ) {
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
fn reservations_in_the_old_form_are_converted() {
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
fn a_framework_without_roles_gets_the_default_role() {
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
    let words = "'FrameworkInfo.roles' contains duplicate items: { a }";
    assert_eq!(refused(&twice), words);
    assert!(roles(r#", "role": "ads", "capabilities": {"type": "MULTI_ROLE"}"#).is_err());
    assert!(roles(r#", "role": "ads", "roles": ["ads"]"#).is_err());
}

#[test]
fn every_scheduler_call_is_encoded() {
    // The call types and their fields have the same names.
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

/// SPEC 3.12, `*_full`: the older form beside the stack agrees with it.
#[test]
fn reservations_have_both_forms() {
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
        convert::legacy::in_both_forms(&mut told);
        let [told] = told;
        assert_eq!(told.reservations, one.reservations, "{text}");
        assert_eq!(told.role.as_deref(), role, "{text}");
        let reservation = told.reservation.as_ref();
        let by = reservation.and_then(|one| one.principal.as_deref());
        assert_eq!(by, principal, "{text}");
    }
}

/// SPEC 2.8: a framework without support for stacks finds role and reservation in the older fields.
// Covers 2.3 OFFERS, RESCIND.
#[test]
fn older_frameworks_get_the_older_form() {
    let old = protocol::FrameworkInfo::new("u", "n");
    for seed in 0..300 {
        let resource = Chance(seed).resource();
        // The older form of a static reservation has only its role.
        if let [only] = resource.reservations()
            && only.kind == resources::ReservationKind::Static
            && *only != resources::Reservation::fixed(only.role.clone())
        {
            continue;
        }
        let mut told = [schema::Resource::from(&resource)];
        convert::legacy::resources_for(&old, &mut told);
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
// Covers 2.3 SUBSCRIBED, HEARTBEAT.
#[test]
fn master_info_has_all_address_forms_and_capabilities() {
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
        r#"{"id":"m","ip":16777343,"port":5050,"pid":"master@127.0.0.1:5050","hostname":"h","version":"1.11.0","address":{"hostname":"h","ip":"127.0.0.1","port":5050},"domain":{"fault_domain":{"region":{"name":"eu"},"zone":{"name":"a"}}},"capabilities":[{"type":"AGENT_UPDATE"},{"type":"AGENT_DRAINING"},{}]}"#
    );
}
