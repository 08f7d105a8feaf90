//! What a master adds to the statuses that it hears.

use std::net::IpAddr;

use protocol::marks::{CHECK_STATUS, CONTAINER_STATUS, LIMITATION};
use protocol::message::scheduler::ReconcileTasks;
use protocol::{Source, StatusUpdate, Uuid};
use runtime::Timestamp;

use super::*;
use crate::comparison::Scope;
use crate::effects::Effect;
use crate::mirror::change::{Change, Whose};
use crate::mirror::tests::laws::{books, happen};
use crate::tasks::Place;

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

/// SPEC 3.12, `container_status.network_infos`: containers have the network of their agent's host, and no link tells its address.
#[test]
fn a_status_of_a_container_has_its_agents_address_wherever_it_is_told() {
    let mut books = books();
    for event in [(0, 0, 0, 1), (6, 0, 0, 1), (10, 0, 0, 1)] {
        happen(&mut books, event, 1);
    }
    let (agent, framework): (AgentId, FrameworkId) = ("a0".parse().unwrap(), "f0".parse().unwrap());
    let address: IpAddr = [10, 0, 0, 7].into();
    books
        .agents
        .update(&agent, |agent| agent.ip = Some("10.0.0.7".to_owned()));
    let mut say = |state: TaskState, container: Option<&str>, out: &mut Effects| {
        let at = Timestamp::from_nanos(7);
        let mut status = TaskStatus::new("t1".parse().unwrap(), state, Source::Executor, at);
        status.uuid = Some(Uuid([7; 16]));
        status.container_id = container.map(|id| id.parse().unwrap());
        let update = StatusUpdate {
            framework_id: framework.clone(),
            status,
            latest_state: state,
        };
        let agent_id = agent.clone();
        books.task_updated(TaskUpdated { agent_id, update }, out);
        books.clone()
    };
    let mut out = Effects::default();
    say(TaskState::Starting, None, &mut out);
    let mut books = say(TaskState::Running, Some("c"), &mut out);
    assert_eq!(addresses(&out), [None, Some(address)]);

    let mut out = Effects::default();
    let asked = ReconcileTasks {
        framework_id: framework.clone(),
        tasks: Vec::new(),
    };
    books.reconcile(asked, Timestamp::from_nanos(8), &mut out);
    assert_eq!(addresses(&out), [Some(address)]);

    // A mirror hears of the task over a link.
    let of = books.tasks.of_framework(&framework).unwrap();
    let mut task = of.active().next().unwrap().clone();
    for status in &mut std::sync::Arc::make_mut(&mut task).statuses {
        status.address = None;
    }
    Change::Task(Whose::Known, Place::Active, task).apply(&mut books);
    let of = books.tasks.of_framework(&framework).unwrap();
    let statuses = &of.active().next().unwrap().statuses;
    let seen: Vec<_> = statuses.iter().map(|status| status.address).collect();
    assert_eq!(seen, [None, Some(address)]);
}

/// SPEC 2.2 RECONCILE, 2.8 TaskStatus: who asks hears of the container and of checks as it was last said; labels and limits belong to the status that had them.
#[test]
fn who_asks_hears_of_container_and_checks_as_the_executor_has_said_them() {
    let mut books = books();
    for event in [(0, 0, 0, 1), (6, 0, 0, 1), (10, 0, 0, 1)] {
        happen(&mut books, event, 1);
    }
    let (agent_id, framework): (AgentId, FrameworkId) =
        ("a0".parse().unwrap(), "f0".parse().unwrap());
    let (state, at) = (TaskState::Running, Timestamp::from_nanos(7));
    let mut status = TaskStatus::new("t1".parse().unwrap(), state, Source::Executor, at);
    let labels = [CONTAINER_STATUS, CHECK_STATUS, LIMITATION, "tier"];
    status.labels = labels.map(|key| (key.to_owned(), "{}".to_owned())).into();
    let update = StatusUpdate {
        framework_id: framework.clone(),
        status,
        latest_state: state,
    };
    books.task_updated(TaskUpdated { agent_id, update }, &mut Effects::default());
    let mut out = Effects::default();
    let asked = ReconcileTasks {
        framework_id: framework,
        tasks: Vec::new(),
    };
    books.reconcile(asked, Timestamp::from_nanos(8), &mut out);
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

/// SPEC 2.5, what an executor must do: exactly one end. What a master has said of a task that its agent came back without stands; the same end may come again.
#[test]
fn an_end_that_a_master_has_told_stands_whatever_the_agent_says_later() {
    for (state, passes) in [
        (TaskState::Running, false),
        (TaskState::Failed, false),
        (TaskState::Finished, false),
        // `TASK_LOST` to who is not partition-aware, as what the master has said.
        (TaskState::Dropped, true),
    ] {
        let mut books = books();
        for event in [(0, 0, 0, 1), (6, 0, 0, 1), (10, 0, 0, 1), (14, 0, 0, 1)] {
            happen(&mut books, event, 1);
        }
        let agent: AgentId = "a0".parse().unwrap();
        let pid = books.agents.get(&agent).unwrap().pid.clone();
        let (held, now) = (Default::default(), Timestamp::from_nanos(7));
        let mut out = Effects::default();
        books.bring_together(&agent, &pid, Scope::All, held, now, &mut out);
        assert_eq!(told(&out), [TaskState::Lost]);

        let mut status = TaskStatus::new("t1".parse().unwrap(), state, Source::Agent, now);
        status.uuid = Some(Uuid([7; 16]));
        let update = StatusUpdate {
            framework_id: "f0".parse().unwrap(),
            status,
            latest_state: state,
        };
        let agent_id = agent.clone();
        let mut out = Effects::default();
        books.task_updated(TaskUpdated { agent_id, update }, &mut out);
        let expected: &[TaskState] = if passes { &[TaskState::Lost] } else { &[] };
        assert_eq!(told(&out), expected, "{state}");
        let acknowledged = out.iter().any(|effect| {
            matches!(effect, Effect::ToAgent(_, ToAgent::Acknowledge(call)) if call.uuid == Uuid([7; 16]))
        });
        assert_eq!(
            acknowledged, !passes,
            "{state}: or the agent says it for ever"
        );
    }
}
