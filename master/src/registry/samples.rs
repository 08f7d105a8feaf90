//! Values for the registry's tests: an agent, a framework, and every kind of operation.

use std::time::Duration;

use protocol::maintenance::Window;
use protocol::{
    AgentId, AgentInfo, Drain, FrameworkId, FrameworkInfo, MachineId, OperationId, Quota,
    Unavailability,
};
use resources::{Attributes, Conversion, Reservation, Resources};
use runtime::{NodeId, Pid, Timestamp};

use super::{AcceptedOperation, RegistryOperation};

pub(super) fn agent(id: &str) -> AgentInfo {
    AgentInfo {
        hostname: "host".to_owned(),
        port: 5051,
        resources: "cpus:4;mem(ads):64".parse::<Resources>().unwrap(),
        attributes: Attributes::default(),
        domain: None,
        id: Some(AgentId::new(id).unwrap()),
    }
}

pub(super) fn framework(id: &str) -> FrameworkInfo {
    let mut info = FrameworkInfo::new("nobody", "web");
    info.id = Some(FrameworkId::new(id).unwrap());
    info
}

pub(super) fn story() -> Vec<RegistryOperation> {
    let since = Timestamp::from_nanos(7);
    let agent_id = |id: &str| AgentId::new(id).unwrap();
    let framework_id = FrameworkId::new("f2").unwrap();
    vec![
        RegistryOperation::AdmitAgent { info: agent("a1") },
        RegistryOperation::AdmitAgent { info: agent("a2") },
        RegistryOperation::AdmitAgent { info: agent("a3") },
        RegistryOperation::MarkAgentUnreachable {
            agent_id: agent_id("a1"),
            since,
        },
        RegistryOperation::MarkAgentUnreachable {
            agent_id: agent_id("a2"),
            since,
        },
        RegistryOperation::MarkAgentReachable { info: agent("a2") },
        RegistryOperation::RemoveAgent {
            agent_id: agent_id("a3"),
        },
        RegistryOperation::AdmitFramework {
            info: framework("f1"),
            deadline: Some(since),
        },
        RegistryOperation::AdmitFramework {
            info: framework("f2"),
            deadline: None,
        },
        RegistryOperation::RemoveFramework { framework_id },
        RegistryOperation::AppointScheduler {
            info: framework("f3"),
            scheduler: Pid::new("scheduler", NodeId::new("web", 5), 1),
        },
        keep("f3", "kept", Some(b"value")),
        keep("f3", "gone", Some(b"value")),
        keep("f3", "gone", None),
        quotas(&[("eng", "cpus:4"), ("ops", "mem:1")]),
        quotas(&[("ops", "")]),
        weights(&[("eng", Some(2.5)), ("ops", Some(3.0))]),
        weights(&[("ops", None)]),
        schedule("host-1 host-2 host-3"),
        RegistryOperation::StartMaintenance {
            machines: vec![machine("host-1"), machine("host-2")],
        },
        RegistryOperation::StopMaintenance {
            machines: vec![machine("host-2")],
        },
        RegistryOperation::DrainAgent {
            agent_id: agent_id("a1"),
            drain: Drain {
                max_grace_period: Some(Duration::from_secs(5)),
                mark_gone: true,
                since,
                drained: false,
            },
        },
        RegistryOperation::MarkAgentDrained {
            agent_id: agent_id("a1"),
        },
        RegistryOperation::DeactivateAgent {
            agent_id: agent_id("a2"),
        },
        RegistryOperation::ReactivateAgent {
            agent_id: agent_id("a2"),
        },
        RegistryOperation::MarkAgentGone {
            agent_id: agent_id("a3"),
            since,
        },
        accept("a1", 1..4),
        accept("a2", 9..10),
        RegistryOperation::ForgetOperations {
            operations: vec![
                (agent_id("a1"), 2),
                (agent_id("a2"), 9),
                (agent_id("a4"), 1),
            ],
        },
    ]
}

/// An agent is to do these.
pub(super) fn accept(agent: &str, serials: std::ops::Range<u64>) -> RegistryOperation {
    let ads = Reservation::dynamic("ads".parse().unwrap(), Some("ops"));
    let resources = "cpus:1".parse::<Resources>().unwrap();
    let resources = resources.push_reservation(&ads).unwrap();
    let operation = AcceptedOperation {
        framework_id: FrameworkId::new("f1").ok(),
        operation_id: OperationId::new("op").ok(),
        conversion: Conversion::Reserve { resources },
    };
    RegistryOperation::AcceptOperations {
        agent_id: AgentId::new(agent).unwrap(),
        operations: serials.map(|serial| (serial, operation.clone())).collect(),
    }
}

pub(super) fn quotas(limits: &[(&str, &str)]) -> RegistryOperation {
    let quota = |(role, limits): &(&str, &str)| {
        let limits = limits.parse().unwrap();
        let quota = Quota {
            limits,
            ..Quota::default()
        };
        ((*role).to_owned(), quota)
    };
    RegistryOperation::UpdateQuotas {
        quotas: limits.iter().map(quota).collect(),
    }
}

fn weights(weights: &[(&str, Option<f64>)]) -> RegistryOperation {
    let weight = |(role, weight): &(&str, Option<f64>)| ((*role).to_owned(), *weight);
    RegistryOperation::UpdateWeights {
        weights: weights.iter().map(weight).collect(),
    }
}

fn machine(hostname: &str) -> MachineId {
    MachineId::new(hostname, "").unwrap()
}

fn schedule(hostnames: &str) -> RegistryOperation {
    let window = Window {
        machines: hostnames.split(' ').map(machine).collect(),
        unavailability: Unavailability {
            start: Timestamp::from_nanos(9),
            duration: None,
        },
    };
    RegistryOperation::UpdateMaintenanceSchedule {
        windows: vec![window],
    }
}

fn keep(id: &str, key: &str, value: Option<&[u8]>) -> RegistryOperation {
    RegistryOperation::ChangeFrameworkState {
        framework_id: FrameworkId::new(id).unwrap(),
        key: key.to_owned(),
        expected: None,
        value: value.map(<[u8]>::to_vec),
    }
}
