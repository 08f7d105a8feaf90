//! Additions of the master to statuses.

use std::net::IpAddr;

use protocol::message::scheduler::ReconcileTasks;
use protocol::text::reserved_labels::{CHECK_STATUS, CONTAINER_STATUS, LIMITATION};
use protocol::{Source, StatusUpdate, Uuid};
use runtime::Timestamp;

use super::*;
use crate::agents::comparison::Scope;
use crate::leadership::mirror::change::{Change, TaskTable};
use crate::leadership::mirror::tests::properties::{happen, state};
use crate::state::effects::Effect;
use crate::tasks::TaskCondition;

fn addresses(out: &Effects) -> Vec<Option<IpAddr>> {
    let told = out.iter().filter_map(|effect| match effect {
        Effect::ToScheduler(_, ToScheduler::Status(changed)) => Some(changed.status.address),
        _ => None,
    });
    told.collect()
}

fn told(out: &Effects) -> Vec<TaskState> {
    let told = out.iter().filter_map(|effect| match effect {
        Effect::ToScheduler(_, ToScheduler::Status(changed)) => Some(changed.status.state),
        _ => None,
    });
    told.collect()
}

/// SPEC 3.12, `container_status.network_infos`: containers use their agent's host network, and no
/// link carries its address.
// Covers 3.12 Pages of masters.
#[test]
fn container_status_always_has_its_agents_address() {
    let mut state = state();
    for event in [(0, 0, 0, 1), (6, 0, 0, 1), (10, 0, 0, 1)] {
        happen(&mut state, event, 1);
    }
    let (agent, framework): (AgentId, FrameworkId) = ("a0".parse().unwrap(), "f0".parse().unwrap());
    let address: IpAddr = [10, 0, 0, 7].into();
    state
        .agents
        .update(&agent, |agent| agent.ip = Some("10.0.0.7".to_owned()));
    let mut say = |task_state: TaskState, container: Option<&str>, out: &mut Effects| {
        let at = Timestamp::from_nanos(7);
        let mut status = TaskStatus::new("t1".parse().unwrap(), task_state, Source::Executor, at);
        status.uuid = Some(Uuid([7; 16]));
        status.container_id = container.map(|id| id.parse().unwrap());
        let update = StatusUpdate {
            framework_id: framework.clone(),
            status,
            latest_state: task_state,
        };
        let agent_id = agent.clone();
        state.task_updated(TaskUpdated { agent_id, update }, out);
        state.clone()
    };
    let mut out = Effects::default();
    say(TaskState::Starting, None, &mut out);
    let mut state = say(TaskState::Running, Some("c"), &mut out);
    assert_eq!(addresses(&out), [None, Some(address)]);

    let mut out = Effects::default();
    let asked = ReconcileTasks {
        framework_id: framework.clone(),
        tasks: Vec::new(),
    };
    state.reconcile(asked, Timestamp::from_nanos(8), &mut out);
    assert_eq!(addresses(&out), [Some(address)]);

    // A mirror gets the task over a link.
    let of = state.tasks.of_framework(&framework).unwrap();
    let mut task = of.active().next().unwrap().clone();
    for status in &mut std::sync::Arc::make_mut(&mut task).statuses {
        status.address = None;
    }
    Change::Task(TaskTable::Known, TaskCondition::Active, task).apply(&mut state);
    let of = state.tasks.of_framework(&framework).unwrap();
    let statuses = &of.active().next().unwrap().statuses;
    let seen: Vec<_> = statuses.iter().map(|status| status.address).collect();
    assert_eq!(seen, [None, Some(address)]);
}

/// SPEC 2.2 RECONCILE, 2.8 TaskStatus: reconciliation includes the last container and check status;
/// limits and labels belong to their own status.
#[test]
fn reconciliation_includes_container_and_check_status() {
    let mut state = state();
    for event in [(0, 0, 0, 1), (6, 0, 0, 1), (10, 0, 0, 1)] {
        happen(&mut state, event, 1);
    }
    let (agent_id, framework): (AgentId, FrameworkId) =
        ("a0".parse().unwrap(), "f0".parse().unwrap());
    let (task_state, at) = (TaskState::Running, Timestamp::from_nanos(7));
    let mut status = TaskStatus::new("t1".parse().unwrap(), task_state, Source::Executor, at);
    let labels = [CONTAINER_STATUS, CHECK_STATUS, LIMITATION, "tier"];
    status.labels = labels.map(|key| (key.to_owned(), "{}".to_owned())).into();
    let update = StatusUpdate {
        framework_id: framework.clone(),
        status,
        latest_state: task_state,
    };
    state.task_updated(TaskUpdated { agent_id, update }, &mut Effects::default());
    let mut out = Effects::default();
    let asked = ReconcileTasks {
        framework_id: framework,
        tasks: Vec::new(),
    };
    state.reconcile(asked, Timestamp::from_nanos(8), &mut out);
    let told: Vec<Vec<&str>> = out
        .iter()
        .filter_map(|effect| match effect {
            Effect::ToScheduler(_, ToScheduler::Status(changed)) => {
                let keys = changed.status.labels.keys();
                Some(keys.map(String::as_str).collect())
            }
            _ => None,
        })
        .collect();
    assert_eq!(told, [[CHECK_STATUS, CONTAINER_STATUS]]);
}

/// SPEC 2.5, what an executor must do: exactly one end. The master's end of a task missing at its
/// agent is final; the same end may be repeated.
// Covers 2.5 What an executor must do, one end.
#[test]
fn end_sent_by_a_master_is_final() {
    for (task_state, passes) in [
        (TaskState::Running, false),
        (TaskState::Failed, false),
        (TaskState::Finished, false),
        // `TASK_LOST` for frameworks that are not partition-aware.
        (TaskState::Dropped, true),
    ] {
        let mut state = state();
        for event in [(0, 0, 0, 1), (6, 0, 0, 1), (10, 0, 0, 1), (14, 0, 0, 1)] {
            happen(&mut state, event, 1);
        }
        let agent: AgentId = "a0".parse().unwrap();
        let pid = state.agents.get(&agent).unwrap().pid.clone();
        let (held, now) = (Default::default(), Timestamp::from_nanos(7));
        let mut out = Effects::default();
        state.merge_report(&agent, &pid, Scope::All, held, now, &mut out);
        assert_eq!(told(&out), [TaskState::Lost]);

        let mut status = TaskStatus::new("t1".parse().unwrap(), task_state, Source::Agent, now);
        status.uuid = Some(Uuid([7; 16]));
        let update = StatusUpdate {
            framework_id: "f0".parse().unwrap(),
            status,
            latest_state: task_state,
        };
        let agent_id = agent.clone();
        let mut out = Effects::default();
        state.task_updated(TaskUpdated { agent_id, update }, &mut out);
        let expected: &[TaskState] = if passes { &[TaskState::Lost] } else { &[] };
        assert_eq!(told(&out), expected, "{task_state}");
        let acknowledged = out.iter().any(|effect| {
            matches!(effect, Effect::ToAgent(_, ToAgent::Acknowledge(call)) if call.uuid == Uuid([7; 16]))
        });
        assert_eq!(
            acknowledged, !passes,
            "{task_state}: or the agent says it for ever"
        );
    }
}
