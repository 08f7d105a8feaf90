//! Requests of every kind, from a seed, for a registry under test.

use std::collections::{BTreeMap, BTreeSet};

use master::registry::{AcceptedOperation, RegistryOperation, RegistryState};
use protocol::maintenance::Window;
use protocol::{
    AgentId, AgentInfo, Drain, FrameworkId, FrameworkInfo, MachineId, Quota, Unavailability,
};
use rand::Rng;
use rand::rngs::SmallRng;
use resources::{Conversion, Name, Resources, Scalar};
use runtime::{NodeId, Pid, Timestamp};
use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::Error;

use super::registry::{plan, run};
use super::*;

fn agent(id: &str, port: u16) -> AgentInfo {
    AgentInfo {
        id: Some(AgentId::new(id).unwrap()),
        port,
        ..AgentInfo::new(
            format!("host-of-{id}"),
            "cpus:4;mem:1024;disk:4096;ports:[31000-32000]"
                .parse::<Resources>()
                .unwrap(),
        )
    }
}

pub fn admit(id: &str, port: u16) -> RegistryRequest {
    let info = agent(id, port);
    RegistryOperation::AdmitAgent { info }.into()
}

pub fn framework(id: &FrameworkId) -> FrameworkInfo {
    let mut info = FrameworkInfo::new("nobody", "web");
    info.id = Some(id.clone());
    info
}

/// An operation on one of many agents, frameworks, roles and machines; or a read.
pub fn any_request(rng: &mut SmallRng, state: &RegistryState) -> RegistryRequest {
    match rng.random_range(0..6) {
        0 => RegistryRequest::Read,
        1..=3 => any_of_masters(rng).into(),
        _ => any_of_others(rng, state).into(),
    }
}

/// Requests of masters while agents and frameworks come and go.
fn any_of_masters(rng: &mut SmallRng) -> RegistryOperation {
    let id = format!("a{}", rng.random_range(0..40));
    let agent_id = AgentId::new(&id).unwrap();
    let framework_id = FrameworkId::new(format!("f{}", rng.random_range(0..12))).unwrap();
    let since = Timestamp::from_nanos(rng.random_range(0..1000));
    let info = agent(&id, rng.random_range(1..9));
    match rng.random_range(0..12) {
        0..=2 => RegistryOperation::AdmitAgent { info },
        3 => RegistryOperation::MarkAgentUnreachable { agent_id, since },
        4 => RegistryOperation::MarkAgentReachable { info },
        5 => RegistryOperation::RemoveAgent { agent_id },
        6 | 7 => {
            let deadline = rng.random_bool(0.5).then_some(since);
            let info = framework(&framework_id);
            RegistryOperation::AdmitFramework { info, deadline }
        }
        8 => RegistryOperation::AppointScheduler {
            info: framework(&framework_id),
            scheduler: Pid::new("scheduler", NodeId::new("web", rng.random_range(1..3)), 1),
        },
        9 => {
            let serial = rng.random_range(1..9);
            let operation = AcceptedOperation {
                framework_id: Some(framework_id),
                operation_id: None,
                conversion: Conversion::Unreserve {
                    resources: info.resources,
                },
            };
            let operations = vec![(serial, operation)];
            RegistryOperation::AcceptOperations {
                agent_id,
                operations,
            }
        }
        10 => RegistryOperation::ForgetOperations {
            operations: vec![(agent_id, rng.random_range(1..9))],
        },
        _ => RegistryOperation::RemoveFramework { framework_id },
    }
}

/// Requests of operators and schedulers.
fn any_of_others(rng: &mut SmallRng, state: &RegistryState) -> RegistryOperation {
    let agent_id = AgentId::new(format!("a{}", rng.random_range(0..40))).unwrap();
    let since = Timestamp::from_nanos(rng.random_range(0..1000));
    let role = format!("r{}", rng.random_range(0..4));
    let machine = |number: u32| MachineId::new(&format!("m{number}"), "").unwrap();
    let machines = vec![machine(rng.random_range(0..4))];
    match rng.random_range(0..16) {
        0..=4 => any_change(rng, state),
        5 => {
            let cpus = Scalar::whole(rng.random_range(1..9));
            let mut quota = Quota::default();
            if rng.random_bool(0.7) {
                quota.limits.set(Name::Cpus, cpus);
            }
            let quotas = BTreeMap::from([(role, quota)]);
            RegistryOperation::UpdateQuotas { quotas }
        }
        6 => {
            let weight = rng.random_bool(0.7).then_some(rng.random_range(-1.0..9.0));
            let weights = BTreeMap::from([(role, weight)]);
            RegistryOperation::UpdateWeights { weights }
        }
        7 => {
            let window = Window {
                machines: (0..rng.random_range(1..4)).map(machine).collect(),
                unavailability: Unavailability {
                    start: since,
                    duration: None,
                },
            };
            let windows = vec![window];
            RegistryOperation::UpdateMaintenanceSchedule { windows }
        }
        8 => RegistryOperation::StartMaintenance { machines },
        9 => RegistryOperation::StopMaintenance { machines },
        10 => RegistryOperation::MarkAgentGone { agent_id, since },
        11 => RegistryOperation::DrainAgent {
            agent_id,
            drain: Drain {
                max_grace_period: None,
                mark_gone: false,
                since,
                drained: false,
            },
        },
        12 => RegistryOperation::MarkAgentDrained { agent_id },
        13 => RegistryOperation::DeactivateAgent { agent_id },
        14 => RegistryOperation::ReactivateAgent { agent_id },
        _ => RegistryOperation::CancelDrain {
            agent_id: (state.orders.keys().next().cloned()).unwrap_or(agent_id),
        },
    }
}

/// A compare-and-set of a key that others change as well, usually with its present version.
fn any_change(rng: &mut SmallRng, state: &RegistryState) -> RegistryOperation {
    let known: Vec<&FrameworkId> = state.frameworks.keys().take(2).collect();
    let framework_id = match known.is_empty() {
        true => FrameworkId::new("f0").unwrap(),
        false => known[rng.random_range(0..known.len())].clone(),
    };
    let key = format!("k{}", rng.random_range(0..2));
    let now = state.framework_states.get(&framework_id, &key);
    let now = now.map_or(0, |value| value.version);
    RegistryOperation::ChangeFrameworkState {
        framework_id,
        key,
        expected: match rng.random_range(0..8) {
            0 => None,
            1 => Some(rng.random_range(0..=now)),
            _ => Some(now),
        },
        value: rng.random_bool(0.8).then(|| vec![rng.random()]),
    }
}

/// An operation's name in the source.
fn kind_of(operation: &RegistryOperation) -> String {
    let text = format!("{operation:?}");
    let end = text.find(|c: char| !c.is_alphanumeric());
    text[..end.unwrap_or(text.len())].to_owned()
}

/// All kinds.
fn all_kinds() -> BTreeSet<String> {
    let nobody = IntoDeserializer::<Error>::into_deserializer("Nonsense");
    let refused = RegistryOperation::deserialize(nobody).unwrap_err();
    let refused = refused.to_string();
    let names = refused.split('`').skip(3).step_by(2);
    names.map(str::to_owned).collect()
}

#[test]
fn every_operation_kind_is_judged() {
    let (mut applied, mut conflicts) = (BTreeSet::new(), 0);
    for seed in 1..9 {
        let service = run(&plan(seed, 5, None));
        for call in service.history.calls() {
            let RegistryRequest::Apply(operation) = &call.operation else {
                continue;
            };
            match call.answer() {
                Some(RegistryAnswer::Applied(_)) => drop(applied.insert(kind_of(operation))),
                Some(RegistryAnswer::Conflict(_)) => conflicts += 1,
                _ => {}
            }
        }
    }
    let all = all_kinds();
    assert_eq!(
        applied, all,
        "a kind of operation is missing, or never taken"
    );
    assert!(conflicts > 10, "{conflicts}");
}
