//! Agents that operators set aside: deactivated, drained, gone for good (SPEC 3.2).

use protocol::message::operator::{
    CancelDrain, DeactivateAgent, DrainAgent, MarkAgentGone, ReactivateAgent, UpdateRefused,
};
use testkit::assert_contains;

use crate::master::tests::*;
use crate::registry::{RegistryError, RegistryOperation};

impl World {
    async fn order<M>(&self, order: M) -> Result<(), UpdateRefused>
    where
        M: Message<Result = Result<(), UpdateRefused>> + Send + 'static,
        Master: Handler<M>,
    {
        let answer = self.master.ask(order, PATIENCE).await.unwrap();
        self.settle().await;
        answer
    }

    async fn drain(&self, agent: &AgentId, mark_gone: bool) -> Result<(), UpdateRefused> {
        let drain = DrainAgent {
            agent_id: agent.clone(),
            max_grace_period: Some(Duration::from_secs(7)),
            mark_gone,
        };
        self.order(drain).await
    }

    async fn gone(&self, agent: &AgentId) -> Result<(), UpdateRefused> {
        let agent_id = agent.clone();
        self.order(MarkAgentGone { agent_id }).await
    }

    async fn reactivate(&self, agent: &AgentId) -> Result<(), UpdateRefused> {
        let agent_id = agent.clone();
        self.order(ReactivateAgent { agent_id }).await
    }

    async fn orders(&self, agent: &AgentId) -> AgentOrders {
        let state = self.state().await;
        state.agents.get(agent).unwrap().orders
    }
}

#[test]
fn deactivated_agent_is_not_offered_until_reactivated() {
    simulate_task(aware, |world, (agent, a), (scheduler, f)| async move {
        world.offer(&scheduler, &f, &a, "cpus:1").await;
        scheduler.received();
        let agent_id = a.clone();
        world.order(DeactivateAgent { agent_id }).await.unwrap();
        scheduler.receives("rescind O1");
        world.facts_are("recovered 0000 cpus:1 | agent S0 active false");
        // Running tasks continue.
        agent.receives("");
        world.grant(vec![grant(&f, &a, "cpus:1")]).await;
        // It was granted before the master knew.
        world.facts_are("recovered 0000 cpus:1");
        let running = running(&f, task("t", &a, "cpus:1"), TaskState::Running);
        register(&agent, Some(a.clone()), vec![running])
            .await
            .unwrap();
        let told = world.allocator();
        assert_eq!(told.last().unwrap(), "agent S0 active false", "{told:?}");
        world.reactivate(&a).await.unwrap();
        world.facts_are("agent S0 active true");
        assert!(world.faults.state().orders.is_empty());
        world.reactivate(&a).await.unwrap();
        world.facts_are("");
    });
}

#[test]
fn suspended_agent_is_not_offered_until_it_resumes() {
    simulate_task(aware, |world, (agent, a), (scheduler, f)| async move {
        world.offer(&scheduler, &f, &a, "cpus:1").await;
        scheduler.received();
        let suspend = || AgentSuspended {
            agent_id: a.clone(),
            reason: "the disk is full".to_owned(),
        };
        let resume = || AgentResumed {
            agent_id: a.clone(),
        };
        world.tell(&agent, suspend()).await;
        scheduler.receives("rescind O1");
        let inactive = ["recovered 0000 cpus:1", "agent S0 active false"];
        assert_eq!(world.allocator(), inactive);
        let shown = world.state().await;
        assert!(shown.agents.get(&a).unwrap().orders.deactivated);
        // Its tasks go on, and it stays connected.
        world.update(&agent, &f, &a, "t", TaskState::Finished).await;
        assert_eq!(scheduler.received().len(), 1);
        agent.receives("");
        world.allocator();
        // Operators' orders are apart from it.
        world.reactivate(&a).await.unwrap();
        world.facts_are("");
        let agent_id = a.clone();
        world.order(DeactivateAgent { agent_id }).await.unwrap();
        world.tell(&agent, resume()).await;
        // An operator has it deactivated.
        world.facts_are("");
        world.tell(&agent, suspend()).await;
        world.reactivate(&a).await.unwrap();
        // It is suspended.
        world.facts_are("");
        world.tell(&agent, resume()).await;
        world.facts_are("agent S0 active true");
        // An agent that registers again reports again.
        world.tell(&agent, suspend()).await;
        world.allocator();
        register(&agent, Some(a.clone()), Vec::new()).await.unwrap();
        let told = world.allocator();
        assert!(
            !told.contains(&"agent S0 active false".to_owned()),
            "{told:?}"
        );
    });
}

#[test]
fn agent_is_drained_after_its_last_acknowledgement() {
    simulate_task(aware, |world, (agent, a), (scheduler, f)| async move {
        world.drain(&a, false).await.unwrap();
        agent.receives("drain within Some(7s)");
        world.facts_are("agent S0 active false");
        let refused = world.reactivate(&a).await.unwrap_err();
        assert_contains!(refused.to_string(), "still in the DRAINING state");
        let running = running(&f, task("t", &a, "cpus:1"), TaskState::Running);
        register(&agent, Some(a.clone()), vec![running])
            .await
            .unwrap();
        world.settle().await;
        // The drain is repeated.
        agent.receives("drain within Some(7s)");

        let killed = update(&agent.node, &f, &a, "t", TaskState::Killed);
        agent.tell(killed.clone());
        world.pass(5).await;
        let drained = |orders: AgentOrders| orders.drain.unwrap().drained;
        assert!(
            !drained(world.orders(&a).await),
            "its end is not acknowledged"
        );
        scheduler.receives("t TASK_KILLED REASON_SLAVE_DRAINING");
        scheduler.tell(acknowledgement(&f, &killed));
        world.pass(1).await;
        assert!(drained(world.orders(&a).await));
        let recorded = world.faults.state().orders[&a];
        assert!(recorded.deactivated && drained(recorded));
        world.allocator();
        world.reactivate(&a).await.unwrap();
        world.facts_are("agent S0 active true");
        assert_eq!(world.orders(&a).await, AgentOrders::default());
    });
}

// Covers W30 in part: without automatic windows.
#[test]
fn drain_can_be_cancelled_until_it_is_complete() {
    simulate_task(aware, |world, (agent, a), (scheduler, f)| async move {
        let cancel = || CancelDrain {
            agent_id: a.clone(),
        };
        let refused = world.order(cancel()).await.unwrap_err();
        let words = "expected an agent that is being drained";
        assert!(refused.to_string().contains(words), "{refused}");
        // It is away when it is to be drained, and gone for good after that.
        world.network.sever("agent-1", "master");
        world.settle().await;
        world.drain(&a, true).await.unwrap();
        world.order(cancel()).await.unwrap();
        assert_eq!(world.orders(&a).await, AgentOrders::default());
        assert!(world.faults.state().orders.is_empty());
        world.network.heal("agent-1", "master");
        agent.node.connect("master").await.unwrap();
        world.allocator();
        agent.received();
        scheduler.received();
        let running = running(&f, task("t", &a, "cpus:1"), TaskState::Running);
        register(&agent, Some(a.clone()), vec![running])
            .await
            .unwrap();
        world.pass(5).await;
        let told = agent.received();
        assert!(!told.iter().any(|line| line.contains("drain")), "{told:?}");
        let told = world.allocator();
        let inactive = "agent S0 active false".to_owned();
        assert!(!told.contains(&inactive), "{told:?}");
        let state = world.state().await;
        assert!(state.agents.get(&a).is_some_and(|agent| agent.is_active()));
        assert_eq!(state.tasks.on_agent(&a).unwrap().tasks().count(), 1);

        // A task that was ordered to end does, and the agent stays.
        world.drain(&a, true).await.unwrap();
        world.order(cancel()).await.unwrap();
        agent.receives("drain within Some(7s)");
        let told = ["agent S0 active false", "agent S0 active true"];
        assert_eq!(world.allocator(), told);
        let killed = update(&agent.node, &f, &a, "t", TaskState::Killed);
        world.tell(&agent, killed.clone()).await;
        scheduler.tell(acknowledgement(&f, &killed));
        world.pass(5).await;
        assert!(world.faults.state().gone.is_empty());
        assert_eq!(world.orders(&a).await, AgentOrders::default());
    });
}

/// As in Mesos; a framework that is not partition-aware goes on hearing `TASK_KILLED`.
#[test]
fn task_killed_by_a_drain_that_marks_gone_is_gone_by_operator() {
    simulate_task(aware, |world, (agent, a), (scheduler, f)| async move {
        world.drain(&a, true).await.unwrap();
        let killed = update(&agent.node, &f, &a, "t", TaskState::Killed);
        agent.tell(killed.clone());
        // Sent again until acknowledged.
        world.tell(&agent, killed.clone()).await;
        let gone = "t TASK_GONE_BY_OPERATOR REASON_SLAVE_DRAINING";
        assert_eq!(scheduler.received(), [gone, gone]);
        scheduler.tell(acknowledgement(&f, &killed));
        world.pass(2).await;
        assert!(world.faults.state().gone.contains_key(&a));
    });
}

#[test]
fn drained_agent_is_marked_gone_if_ordered() {
    simulate_world(|world| async move {
        let (agent, a) = world.agent("host-1").await;
        world.drain(&a, true).await.unwrap();
        world.pass(1).await;
        let heard = agent.received();
        let last = "shut down: an operator has declared the agent gone";
        assert_eq!(heard.last().unwrap(), last);
        let state = world.faults.state();
        assert!(state.gone.contains_key(&a) && state.orders.is_empty() && state.agents.is_empty());
        let refused = register(&agent, Some(a.clone()), vec![]).await.unwrap_err();
        assert!(refused.to_string().contains("marked as gone"), "{refused}");
        assert_eq!(world.gone(&a).await, Ok(()), "it is, once more");
        let refused = world.drain(&a, false).await.unwrap_err();
        assert!(refused.to_string().contains("Unknown agent"), "{refused}");
    });
}

#[test]
fn tasks_of_a_gone_agent_end_including_unreachable_ones() {
    simulate_task(aware, |world, (agent, a), (scheduler, f)| async move {
        world.gone(&a).await.unwrap();
        let gone = "t TASK_GONE_BY_OPERATOR REASON_SLAVE_REMOVED_BY_OPERATOR";
        assert_eq!(scheduler.received(), [gone, "lost S0"]);
        assert_eq!(agent.received().len(), 1, "it is told to stop");
        let asked = reconcile(&f, vec![(TaskId::new("never").unwrap(), Some(a))]);
        world.tell(&scheduler, asked).await;
        let answer = "never TASK_GONE_BY_OPERATOR REASON_RECONCILIATION";
        assert_eq!(scheduler.received(), [answer]);

        let (other, b) = world.agent("host-2").await;
        let offer = world.offer(&scheduler, &f, &b, "cpus:1").await;
        scheduler.tell(accept(&f, &[&offer], vec![task("u", &b, "cpus:1")]));
        other.answers.store(false, Ordering::Relaxed);
        world.pass(100).await;
        let heard = scheduler.received();
        assert!(
            heard.iter().any(|line| line.contains("UNREACHABLE")),
            "{heard:?}"
        );
        world.gone(&b).await.unwrap();
        let gone = "u TASK_GONE_BY_OPERATOR REASON_SLAVE_REMOVED_BY_OPERATOR";
        assert_eq!(
            scheduler.received(),
            [gone],
            "and nobody hears twice that it is lost"
        );
        let unknown = AgentId::new("nobody").unwrap();
        let refused = world.gone(&unknown).await.unwrap_err();
        assert!(refused.to_string().contains("Unknown agent"), "{refused}");
    });
}

/// Of too many that are gone both forget the one that is gone for longest.
#[test]
fn state_and_registry_agree_on_the_time_of_gone() {
    simulate_world(|world| async move {
        let (_agent, a) = world.agent("host-1").await;
        let reason = "no majority".to_owned();
        world.faults.refuse(RegistryError::NotNow { reason });
        world.faults.delay(Duration::from_secs(1));
        let (asked, begun) = (world.faults.asked().len(), world.node.clock().wall());
        world.gone(&a).await.unwrap();
        assert!(world.node.clock().wall() > begun);
        let since = world.state().await.agents.gone_since(&a);
        assert_eq!(since, Some(begun));
        assert_eq!(world.faults.state().gone.get(&a).copied(), since);
        let gone = RegistryOperation::MarkAgentGone {
            agent_id: a,
            since: begun,
        };
        assert_eq!(world.faults.asked()[asked..], [gone.clone(), gone]);
    });
}

/// Both orders may have been valid before the first was recorded.
#[test]
fn early_reactivation_does_not_apply_to_a_pending_drain() {
    simulate_task(aware, |world, (agent, a), _| async move {
        world.faults.delay(Duration::from_secs(1));
        let drain = DrainAgent {
            agent_id: a.clone(),
            max_grace_period: Some(Duration::from_secs(7)),
            mark_gone: false,
        };
        let drain = world.master.ask(drain, PATIENCE);
        let agent_id = a.clone();
        let reactivate = world.master.ask(ReactivateAgent { agent_id }, PATIENCE);
        let (drained, reactivated) = futures_util::join!(drain, reactivate);
        drained.unwrap().unwrap();
        world.settle().await;
        let refused = reactivated.unwrap().unwrap_err();
        let words = "still in the DRAINING state";
        assert!(refused.to_string().contains(words), "{refused}");
        agent.receives("drain within Some(7s)");
        world.facts_are("agent S0 active false");
        let orders = world.orders(&a).await;
        assert!(orders.drain.is_some_and(|drain| !drain.drained));
        assert_eq!(world.faults.state().orders, [(a, orders)].into());
    });
}

#[test]
fn drain_of_a_leaving_agent_is_refused() {
    simulate_task(aware, |world, (agent, a), _| async move {
        world.faults.delay(Duration::from_secs(1));
        agent.tell(UnregisterAgent {
            agent_id: a.clone(),
        });
        world.settle().await;
        let refused = world.drain(&a, false).await.unwrap_err();
        let words = "expected one that is part of the cluster";
        assert!(refused.to_string().contains(words), "{refused}");
        let state = world.state().await;
        assert_eq!(state.agents.standing(&a), crate::agents::Standing::Unknown);
        assert_eq!(state.agents.orders(&a), None);
        assert_eq!(state.agents.draining().count(), 0);
        assert!(world.faults.state().orders.is_empty());
    });
}

#[test]
fn repeated_mark_gone_is_recorded_once() {
    simulate_task(aware, |world, (_agent, a), (scheduler, _)| async move {
        let mark = || MarkAgentGone {
            agent_id: a.clone(),
        };
        world.faults.delay(Duration::from_secs(10));
        let first = world.master.ask(mark(), Duration::from_secs(1)).await;
        assert!(first.is_err(), "nobody waits any more");
        let again = world.master.ask(mark(), Duration::from_secs(60));
        assert_eq!(again.await, Ok(Ok(())));
        world.pass(60).await;
        let asked = world.faults.asked();
        let marks = asked
            .iter()
            .filter(|one| matches!(one, RegistryOperation::MarkAgentGone { .. }));
        assert_eq!(marks.count(), 1);
        assert_eq!(
            scheduler.received().len(),
            2,
            "its task has ended, and it is lost"
        );
        assert!(world.state().await.agents.is_gone(&a));
    });
}
