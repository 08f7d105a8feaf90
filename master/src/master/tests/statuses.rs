//! Statuses that the master makes: state, source, reason and message are Mesos', since clients
//! compare them.

use protocol::message::operator::MarkAgentGone;

use super::*;

/// The words of the newest status that this framework was sent.
fn newest(scheduler: &Member) -> (TaskState, Option<Reason>, String) {
    let status = scheduler.statuses().pop().unwrap();
    assert_eq!((status.source, status.uuid), (Source::Master, None));
    (status.state, status.reason, status.message)
}

/// A framework that is partition-aware, or not.
fn made(is_aware: bool) -> fn(&mut FrameworkInfo) {
    match is_aware {
        true => aware,
        false => |_| {},
    }
}

#[test]
fn a_lost_agents_tasks_end_in_mesos_words() {
    for is_aware in [false, true] {
        simulate_task(
            made(is_aware),
            |world, (agent, agent_id), (scheduler, _)| async move {
                agent.tell(UnregisterAgent { agent_id });
                world.settle().await;
                let message = "Agent agent-1 removed: the agent unregistered".to_owned();
                let left = (TaskState::Lost, Some(Reason::AgentRemoved), message);
                assert_eq!(newest(&scheduler), left);
            },
        );
    }
    for (is_aware, state, reason) in [
        (false, TaskState::Lost, Reason::AgentRemoved),
        (
            true,
            TaskState::GoneByOperator,
            Reason::AgentRemovedByOperator,
        ),
    ] {
        simulate_task(
            made(is_aware),
            |world, (_agent, agent_id), (scheduler, _)| async move {
                let gone = world.master.ask(MarkAgentGone { agent_id }, PATIENCE);
                gone.await.unwrap().unwrap();
                world.settle().await;
                let message = "Agent has been marked gone".to_owned();
                assert_eq!(newest(&scheduler), (state, Some(reason), message));
            },
        );
    }
    for (is_aware, state) in [(false, TaskState::Lost), (true, TaskState::Unreachable)] {
        simulate_task(
            made(is_aware),
            |world, (agent, _), (scheduler, _)| async move {
                agent.answers.store(false, Ordering::Relaxed);
                world.pass(100).await;
                world.settle().await;
                let message = "health check timed out".to_owned();
                let silent = (state, Some(Reason::AgentRemoved), message);
                assert_eq!(newest(&scheduler), silent);
            },
        );
    }
}

/// As in Mesos, where the agent answers that it does not know the task.
#[test]
fn task_missing_at_its_agent_is_dropped() {
    for (is_aware, state) in [(false, TaskState::Lost), (true, TaskState::Dropped)] {
        simulate_task(
            made(is_aware),
            |world, (agent, a), (scheduler, _)| async move {
                register(&agent, Some(a), Vec::new()).await.unwrap();
                world.settle().await;
                let status = scheduler.statuses().pop().unwrap();
                assert_eq!(
                    (status.state, status.source, status.reason),
                    (state, Source::Agent, Some(Reason::Reconciliation))
                );
                assert_eq!(status.message, "Reconciliation: task unknown to the agent");
            },
        );
    }
}

#[test]
fn reconciliation_and_refusals_are_answered_in_mesos_words() {
    simulate_world(|world| async move {
        let (_agent, a) = world.agent("agent-1").await;
        let (scheduler, f) = world.framework("web", aware).await;
        let reconciled = async |id: &str, agent: Option<AgentId>| {
            scheduler.tell(reconcile(&f, vec![(id.parse().unwrap(), agent)]));
            world.settle().await;
            newest(&scheduler)
        };
        let reason = Some(Reason::Reconciliation);
        for (agent, state, words) in [
            (
                Some(a.clone()),
                TaskState::Gone,
                "Task is unknown to the agent",
            ),
            (None, TaskState::Unknown, "Task is unknown"),
        ] {
            let message = format!("Reconciliation: {words}");
            assert_eq!(reconciled("t", agent).await, (state, reason, message));
        }
        let offer = world.offer(&scheduler, &f, &a, "cpus:1").await;
        scheduler.tell(accept(&f, &[&offer], vec![task("t", &a, "cpus:1")]));
        world.settle().await;
        let message = "Reconciliation: Latest task state".to_owned();
        let latest = (TaskState::Staging, reason, message);
        assert_eq!(reconciled("t", None).await, latest);
        scheduler.tell(accept(&f, &[&offer], vec![task("u", &a, "cpus:1")]));
        world.settle().await;
        let (state, reason, message) = newest(&scheduler);
        assert_eq!(
            (state, reason),
            (TaskState::Dropped, Some(Reason::InvalidOffers))
        );
        let words = "Task launched with invalid offers: ";
        assert!(message.starts_with(words), "{message}");
    });
}
