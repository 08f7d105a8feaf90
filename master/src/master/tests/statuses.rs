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

/// Does something to the agent with task `t` of a framework, partition-aware or not; returns the
/// task's status.
async fn after<F>(
    network: Network,
    is_aware: bool,
    happens: impl FnOnce(World, Member, AgentId) -> F,
) -> (TaskState, Option<Reason>, String)
where
    F: Future<Output = World>,
{
    let world = World::new(network, Config::default()).await;
    let (agent, a) = world.agent("agent-1").await;
    let change = |info: &mut FrameworkInfo| {
        if is_aware {
            aware(info);
        }
    };
    let (scheduler, f) = world.framework("web", change).await;
    let offer = world.offer(&scheduler, &f, &a, "cpus:1").await;
    scheduler.tell(accept(&f, &[&offer], vec![task("t", &a, "cpus:1")]));
    world.settle().await;
    agent.tell(update(&agent.node, &f, &a, "t", TaskState::Running));
    world.settle().await;
    let world = happens(world, agent, a).await;
    world.settle().await;
    newest(&scheduler)
}

#[test]
fn a_lost_agents_tasks_end_in_mesos_words() {
    for is_aware in [false, true] {
        let left = simulate_network(|network| {
            after(network, is_aware, |world, agent, agent_id| async move {
                agent.tell(UnregisterAgent { agent_id });
                world
            })
        });
        let message = "Agent agent-1 removed: the agent unregistered".to_owned();
        assert_eq!(left, (TaskState::Lost, Some(Reason::AgentRemoved), message));
    }
    for (is_aware, state, reason) in [
        (false, TaskState::Lost, Reason::AgentRemoved),
        (
            true,
            TaskState::GoneByOperator,
            Reason::AgentRemovedByOperator,
        ),
    ] {
        let gone = simulate_network(|network| {
            after(network, is_aware, |world, _agent, agent_id| async move {
                let gone = world.master.ask(MarkAgentGone { agent_id }, PATIENCE);
                gone.await.unwrap().unwrap();
                world
            })
        });
        let message = "Agent has been marked gone".to_owned();
        assert_eq!(gone, (state, Some(reason), message));
    }
    for (is_aware, state) in [(false, TaskState::Lost), (true, TaskState::Unreachable)] {
        let silent = simulate_network(|network| {
            after(network, is_aware, |world, agent, _| async move {
                agent.answers.store(false, Ordering::Relaxed);
                world.pass(100).await;
                world
            })
        });
        let message = "health check timed out".to_owned();
        assert_eq!(silent, (state, Some(Reason::AgentRemoved), message));
    }
}

/// As in Mesos, where the agent answers that it does not know the task.
#[test]
fn task_missing_at_its_agent_is_dropped() {
    for (is_aware, state) in [(false, TaskState::Lost), (true, TaskState::Dropped)] {
        let change = if is_aware {
            aware
        } else {
            |_: &mut FrameworkInfo| {}
        };
        simulate_world(|world| async move {
            let (agent, a) = world.agent("agent-1").await;
            let (scheduler, f) = world.framework("web", change).await;
            let offer = world.offer(&scheduler, &f, &a, "cpus:1").await;
            scheduler.tell(accept(&f, &[&offer], vec![task("t", &a, "cpus:1")]));
            world.settle().await;
            agent.tell(update(&agent.node, &f, &a, "t", TaskState::Running));
            world.settle().await;
            register(&agent, Some(a.clone()), Vec::new()).await.unwrap();
            world.settle().await;
            let status = scheduler.statuses().pop().unwrap();
            assert_eq!(
                (status.state, status.source, status.reason),
                (state, Source::Agent, Some(Reason::Reconciliation))
            );
            assert_eq!(status.message, "Reconciliation: task unknown to the agent");
        });
    }
}

#[test]
fn reconciliation_and_refusals_are_answered_in_mesos_words() {
    simulate_world(|world| async move {
        let (_agent, a) = world.agent("agent-1").await;
        let (scheduler, f) = world.framework("web", aware).await;
        let reconciled = async |id: &str, agent: Option<AgentId>| {
            scheduler.tell(ReconcileTasks {
                framework_id: f.clone(),
                tasks: vec![(id.parse().unwrap(), agent)],
            });
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
