//! Tests of the local registry: answers are synced, and a refusal changes nothing.

use protocol::maintenance::Window;
use protocol::{
    AgentId, AgentInfo, Drain, FrameworkId, FrameworkInfo, MachineId, OperationId, Quota,
    Unavailability,
};
use resources::{Attributes, Conversion, Reservation, Resources};
use runtime::testing::simulate;
use runtime::{NodeId, Pid, Timestamp};
use testkit::disk::{Failure, SimulatedDisk};

use super::super::AcceptedOperation;
use super::*;

pub(in super::super) fn agent(id: &str) -> AgentInfo {
    AgentInfo {
        hostname: "host".to_owned(),
        port: 5051,
        resources: "cpus:4;mem(ads):64".parse::<Resources>().unwrap(),
        attributes: Attributes::default(),
        domain: None,
        id: Some(AgentId::new(id).unwrap()),
    }
}

pub(in super::super) fn framework(id: &str) -> FrameworkInfo {
    let mut info = FrameworkInfo::new("nobody", "web");
    info.id = Some(FrameworkId::new(id).unwrap());
    info
}

pub(in super::super) fn story() -> Vec<RegistryOperation> {
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
pub(in super::super) fn accept(agent: &str, serials: std::ops::Range<u64>) -> RegistryOperation {
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

pub(in super::super) fn quotas(limits: &[(&str, &str)]) -> RegistryOperation {
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

#[test]
fn answered_operations_survive_a_crash() {
    simulate(|node| async move {
        let disk = SimulatedDisk::new();
        let mut registry = LocalRegistry::open(&node, Box::new(disk.open().unwrap())).unwrap();
        for (n, operation) in story().into_iter().enumerate() {
            let applied = registry.apply(operation.clone()).await.unwrap();
            assert_eq!(applied.version, n as u64 + 1);
        }
        let known = registry.read().await.unwrap();
        assert_eq!((known.agents.len(), known.unreachable.len()), (1, 1));
        assert_eq!(
            (known.frameworks.len(), known.removed_frameworks.len()),
            (2, 1)
        );
        assert_eq!(
            (known.leading.len(), known.framework_states.iter().count()),
            (1, 1)
        );
        assert_eq!(known.quotas.keys().collect::<Vec<_>>(), ["eng"]);
        assert_eq!(known.weights, [("eng".to_owned(), 2.5)].into());
        let is_down = |name| known.machines.get(&machine(name)).map(|one| one.down);
        assert_eq!(is_down("host-1"), Some(true));
        let orders: Vec<_> = known.orders.iter().collect();
        assert!(orders.len() == 1 && orders[0].1.drain.is_some_and(|drain| drain.drained));
        assert_eq!(known.gone.len(), 1);
        assert_eq!((is_down("host-2"), is_down("host-3")), (None, Some(false)));
        let f3 = FrameworkId::new("f3").unwrap();
        let kept = registry.framework_state(&f3, "kept").await.unwrap();
        assert_eq!(
            kept.map(|kept| (kept.version, kept.value)),
            Some((12, b"value".to_vec()))
        );
        node.stop(&registry.registrar.pid());
        node.clock().settle().await;
        disk.crash();
        let mut again = LocalRegistry::open(&node, Box::new(disk.open().unwrap())).unwrap();
        assert_eq!(again.read().await.unwrap(), known);
        let twice = RegistryOperation::AdmitFramework {
            info: framework("f2"),
            deadline: None,
        };
        let refused = again.apply(twice).await.unwrap_err();
        assert!(
            refused.to_string().contains("has been removed"),
            "{refused}"
        );
    });
}

#[test]
fn operations_that_come_together_are_one_commit() {
    simulate(|node| async move {
        let disk = SimulatedDisk::new();
        let mut registry = LocalRegistry::open(&node, Box::new(disk.open().unwrap())).unwrap();
        let before = disk.syncs();
        let asked: Vec<_> = (0..100)
            .map(|n| {
                registry.apply(RegistryOperation::AdmitAgent {
                    info: agent(&format!("a{n}")),
                })
            })
            .collect();
        for (n, answer) in asked.into_iter().enumerate() {
            assert_eq!(
                answer.await,
                Ok(Applied {
                    version: n as u64 + 1
                })
            );
        }
        assert!(
            disk.syncs() - before <= 3,
            "{} syncs",
            disk.syncs() - before
        );
    });
}

#[test]
fn refused_commit_changes_nothing() {
    simulate(|node| async move {
        let disk = SimulatedDisk::new();
        let mut registry = LocalRegistry::open(&node, Box::new(disk.open().unwrap())).unwrap();
        disk.fail_next(Failure::Refuse("not now".to_owned()));
        let admit = RegistryOperation::AdmitAgent { info: agent("a") };
        let refused = registry.apply(admit.clone()).await;
        assert!(
            matches!(refused, Err(RegistryError::NotNow { .. })),
            "{refused:?}"
        );
        assert_eq!(registry.read().await.unwrap(), RegistryState::default());
        assert_eq!(registry.apply(admit).await, Ok(Applied { version: 1 }));
    });
}

#[test]
fn a_failed_sync_breaks_the_registry_for_good() {
    simulate(|node| async move {
        let disk = SimulatedDisk::new();
        let mut registry = LocalRegistry::open(&node, Box::new(disk.open().unwrap())).unwrap();
        disk.fail_next(Failure::Sync("i/o error".to_owned()));
        for _ in 0..2 {
            let broken = registry
                .apply(RegistryOperation::AdmitAgent { info: agent("a") })
                .await;
            assert!(
                matches!(broken, Err(RegistryError::Broken { .. })),
                "{broken:?}"
            );
        }
        assert!(matches!(
            registry.read().await,
            Err(RegistryError::Broken { .. })
        ));
    });
}

#[test]
fn oversized_record_is_refused_without_side_effects() {
    simulate(|node| async move {
        let disk = SimulatedDisk::new();
        let mut registry = LocalRegistry::open(&node, Box::new(disk.open().unwrap())).unwrap();
        let mut large = agent("large");
        large.hostname = "x".repeat(200_000);
        let refused = registry.apply(RegistryOperation::AdmitAgent { info: large });
        let taken = registry.apply(RegistryOperation::AdmitAgent {
            info: agent("small"),
        });
        let refused = refused.await.unwrap_err();
        assert!(
            matches!(&refused, RegistryError::Refused { reason } if reason.contains("bytes")),
            "{refused}"
        );
        assert_eq!(taken.await, Ok(Applied { version: 1 }));
    });
}

#[test]
fn unknown_record_form_is_an_error_with_its_key() {
    simulate(|node| async move {
        let disk = SimulatedDisk::new();
        let mut store = disk.open().unwrap();
        let mut changes = Changes::new();
        changes.put(b"registry/agent/a".to_vec(), b"garbage".to_vec());
        store.commit(changes).unwrap();
        drop(store);
        let error = LocalRegistry::open(&node, Box::new(disk.open().unwrap()))
            .err()
            .unwrap();
        assert!(error.to_string().contains("registry/agent/a"), "{error}");
    });
}
