//! Recorded operations, and crashes.

use super::*;
use crate::registry::RegistryError;

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn launch(id: &str, agent: &AgentId) -> Operation {
    let tasks = vec![task(id, agent, "cpus:1")];
    Operation::Launch { tasks }
}

impl Scenario {
    /// The recorded serials.
    fn recorded(&self) -> Vec<u64> {
        let state = self.world.faults.state();
        state.accepted.iter().map(|(_, serial, _)| serial).collect()
    }

    fn settled(&self, serial: u64) -> OperationsSettled {
        OperationsSettled {
            agent_id: self.agent_id.clone(),
            serial,
        }
    }

    /// A registration of an agent that comes back with this, all up to that serial being over.
    fn back(&self, total: Resources, number: u8, settled: u64) -> RegisterAgent {
        let mut back = keeping(&self.agent, Some(self.agent_id.clone()), total, number);
        back.resources.as_mut().unwrap().settled = Some(settled);
        back
    }

    /// The agent comes back as one of an earlier Meros, which knows no serials. Gives an offer of
    /// it.
    async fn offer_of_older_agent(&self) -> Offer {
        let total = resources("cpus:8;mem:8192;disk:100");
        let mut older = self.back(total, 2, 0);
        older.resources.as_mut().unwrap().settled = None;
        comes(&self.agent, older).await;
        self.offer(resources("cpus:4")).await
    }

    async fn reconcile(&self) -> Vec<String> {
        self.scheduler.say(ReconcileOperations {
            framework_id: self.id.clone(),
            operations: vec![],
        });
        self.world.settle().await;
        self.scheduler.received()
    }

    /// The master's machine crashes, and the next one has the registry. The framework is subscribed
    /// there; the agent has not returned.
    async fn next(mut self) -> Self {
        self.world = self.world.next().await;
        let find = |node: Node| async move { node.find("master", "master", PATIENCE).await };
        self.agent.master = find(self.agent.node.clone()).await.unwrap();
        self.scheduler.master = find(self.scheduler.node.clone()).await.unwrap();
        let mut info = FrameworkInfo::new("nobody", "ads");
        advertiser(&mut info);
        info.failover_timeout = seconds(3600);
        info.id = Some(self.id.clone());
        subscribe(&self.scheduler, info).await.unwrap();
        self.scheduler.received();
        self.agent.received();
        self
    }
}

/// A framework that outlives a master.
fn lasting(info: &mut FrameworkInfo) {
    advertiser(info);
    info.failover_timeout = seconds(3600);
}

#[test]
fn operation_is_sent_after_its_record_and_before_later_messages() {
    simulate_scenario(|scenario| async move {
        let offer = scenario.offer(resources("cpus:4")).await;
        let before = scenario.world.faults.asked().len();
        scenario.world.faults.delay(seconds(1));
        let steps = vec![
            launch("t0", &scenario.agent_id),
            named("a", reserve("cpus:1")),
            named("b", reserve("cpus:1")),
            launch("t1", &scenario.agent_id),
        ];
        scenario.accept(&[&offer], steps).await;
        let heard = scenario.agent.received();
        assert!(heard.len() == 1 && heard[0].starts_with("run t0="));
        assert_eq!(scenario.recorded(), [0_u64; 0]);
        let pending = ["a OPERATION_PENDING", "b OPERATION_PENDING"];
        assert_eq!(scenario.reconcile().await, pending);
        scenario.scheduler.say(kill_task(&scenario.id, "t1"));
        scenario.world.pass(1).await;
        let heard = scenario.agent.received();
        assert_eq!(heard[..2], ["apply reserve to 1", "apply reserve to 1"]);
        assert!(heard[2].starts_with("run t1="), "{heard:?}");
        assert_eq!(heard[3..], ["kill t1"]);
        assert_eq!(scenario.recorded(), [1, 2]);
        let asked = scenario.world.faults.asked().len() - before;
        assert_eq!(asked, 1, "those of one accept are one change");
        // Without an operation nothing waits.
        let offer = scenario.offer(resources("cpus:1")).await;
        let tasks = vec![launch("t2", &scenario.agent_id)];
        scenario.accept(&[&offer], tasks).await;
        assert_eq!(scenario.agent.received().len(), 1);
    });
}

#[test]
fn finished_operation_is_forgotten_by_the_registry() {
    simulate_scenario(|scenario| async move {
        let offer = scenario.offer(resources("cpus:4")).await;
        let steps = vec![
            Operation::convert(reserve("cpus:1")),
            named("named", reserve("cpus:1")),
        ];
        scenario.accept(&[&offer], steps).await;
        assert_eq!(scenario.recorded(), [1, 2]);
        scenario.agent.tell(scenario.settled(1));
        scenario.world.settle().await;
        assert_eq!(scenario.recorded(), [2]);
        scenario
            .agent
            .tell(scenario.updated("named", OperationState::Finished));
        scenario.agent.tell(scenario.settled(2));
        scenario.world.settle().await;
        scenario.scheduler.receives("named OPERATION_FINISHED");
        assert_eq!(scenario.recorded(), [0_u64; 0]);
    });
}

/// A later master must not send an operation that was reported as failed.
#[test]
fn failed_operation_is_reported_once_after_the_registry() {
    simulate_scenario(|scenario| async move {
        let offer = scenario.offer(resources("cpus:4")).await;
        let steps = vec![named("op", reserve("cpus:1"))];
        scenario.accept(&[&offer], steps).await;
        scenario.world.faults.delay(seconds(1));
        let failed = || scenario.updated("op", OperationState::Failed);
        scenario.agent.tell(failed());
        scenario.agent.tell(failed());
        scenario.world.settle().await;
        scenario.scheduler.receives("");
        assert_eq!(scenario.reconcile().await, ["op OPERATION_PENDING"]);
        scenario.world.pass(1).await;
        scenario.scheduler.receives("op OPERATION_FAILED");
        assert_eq!(scenario.recorded(), [0_u64; 0]);
        // Until it is acknowledged its agent sends it, and it is passed on.
        scenario.agent.tell(failed());
        scenario.world.settle().await;
        scenario.scheduler.receives("op OPERATION_FAILED");
    });
}

#[test]
fn unrecorded_operation_and_its_dependents_are_never_sent() {
    simulate_scenario(|scenario| async move {
        let offer = scenario.offer(resources("cpus:4")).await;
        let reason = "busy".to_owned();
        scenario
            .world
            .faults
            .refuse(RegistryError::NotNow { reason });
        let steps = vec![
            named("op", reserve("cpus:1")),
            launch("t", &scenario.agent_id),
        ];
        scenario.accept(&[&offer], steps).await;
        let heard = scenario.scheduler.received();
        let expected = [
            "op OPERATION_DROPPED",
            "t TASK_LOST REASON_SLAVE_DISCONNECTED",
        ];
        assert_eq!(heard, expected);
        scenario.agent.receives("register again");
        assert_eq!(scenario.recorded(), [0_u64; 0]);
        let total = resources("cpus:8;mem:8192;disk:100");
        comes(&scenario.agent, scenario.back(total.clone(), 2, 0)).await;
        assert_eq!(scenario.total().await, total);

        let reason = "too large".to_owned();
        scenario
            .world
            .faults
            .refuse(RegistryError::Refused { reason });
        let refused = scenario.operate(reserve("cpus:1")).await.unwrap_err();
        assert!(refused.to_string().contains("too large"), "{refused}");
    });
}

#[test]
fn deposed_master_reports_no_recorded_operation() {
    simulate_scenario(|scenario| async move {
        let offer = scenario.offer(resources("cpus:4")).await;
        scenario.world.faults.refuse(RegistryError::LostLeadership);
        let steps = vec![
            named("op", reserve("cpus:1")),
            launch("t", &scenario.agent_id),
        ];
        scenario.accept(&[&offer], steps).await;
        assert_eq!(
            (scenario.agent.received(), scenario.scheduler.received()),
            Default::default()
        );
    });
}

// Covers S91.
#[test]
fn operator_is_answered_after_the_record() {
    simulate_scenario(|scenario| async move {
        scenario.world.faults.delay(seconds(3));
        let clock = scenario.world.node.clock();
        let asked = clock.now();
        scenario.operate(reserve("cpus:1")).await.unwrap();
        assert!(clock.now() - asked >= seconds(3));
        assert_eq!(scenario.recorded(), [1]);
        scenario.world.settle().await;
        scenario.agent.receives("apply reserve to 1");
    });
}

/// DESIGN 5: on re-registration the agent applies accepted ones that it has not seen, in order.
// Covers S132.
#[test]
fn next_master_resends_unseen_operations() {
    simulate_network(|network| async move {
        let scenario = Scenario::with(network, lasting).await;
        let offer = scenario.offer(resources("cpus:4")).await;
        let steps = vec![
            named("seen", reserve("cpus:1")),
            named("lost", reserve("cpus:2")),
            named("next", reserve("cpus:1")),
        ];
        scenario.accept(&[&offer], steps).await;
        // The first master crashes before the agent has received the others.
        let scenario = scenario.next().await;
        let pending = ["lost", "next", "seen"].map(|id| format!("{id} OPERATION_PENDING"));
        assert_eq!(scenario.reconcile().await, pending);
        let has = resources("cpus:7;mem:8192;disk:100") + reserved("cpus:1");
        let mut back = scenario.back(has, 2, 1);
        let seen = scenario.updated("seen", OperationState::Finished);
        let told = &mut back.resources.as_mut().unwrap().operations;
        told.push(seen.update.clone());
        comes(&scenario.agent, back).await;
        scenario.world.settle().await;
        let again = ["apply reserve to 2", "apply reserve to 2"];
        assert_eq!(scenario.agent.received(), again);
        let total = resources("cpus:4;mem:8192;disk:100") + reserved("cpus:4");
        assert_eq!(scenario.total().await, total);
        scenario.scheduler.receives("");
        scenario.agent.tell(seen);
        for (id, serial) in [("lost", 2), ("next", 3)] {
            scenario
                .agent
                .tell(scenario.updated(id, OperationState::Finished));
            scenario.agent.tell(scenario.settled(serial));
        }
        scenario.world.settle().await;
        let finished = ["seen", "lost", "next"].map(|id| format!("{id} OPERATION_FINISHED"));
        assert_eq!(scenario.scheduler.received(), finished);
        assert_eq!(scenario.recorded(), [0_u64; 0]);
    });
}

#[test]
fn impossible_operations_are_dropped_and_acknowledged_ones_finished() {
    simulate_network(|network| async move {
        let scenario = Scenario::with(network, lasting).await;
        let offer = scenario.offer(resources("cpus:8")).await;
        let steps = vec![
            named("done", reserve("cpus:1")),
            named("lost", reserve("cpus:7")),
        ];
        scenario.accept(&[&offer], steps).await;
        let scenario = scenario.next().await;
        // It has reported the first, which was acknowledged; something else was taken.
        let other = Reservation::dynamic(ResourceRole::new("web").unwrap(), None);
        let others = resources("cpus:2").push_reservation(&other).unwrap();
        let has = resources("cpus:5;mem:8192;disk:100") + reserved("cpus:1") + others;
        comes(&scenario.agent, scenario.back(has.clone(), 2, 1)).await;
        scenario.world.settle().await;
        let expected = ["done OPERATION_FINISHED", "lost OPERATION_DROPPED"];
        assert_eq!(scenario.scheduler.received(), expected);
        scenario.agent.receives("");
        assert_eq!((scenario.total().await, scenario.recorded()), (has, vec![]));
    });
}

/// S132: the driver repeats calls that an earlier master may not have received.
// Covers S132.
#[test]
fn repeated_accept_keeps_recorded_operations() {
    simulate_network(|network| async move {
        let scenario = Scenario::with(network, lasting).await;
        let offer = scenario.offer(resources("cpus:4")).await;
        let steps = || {
            vec![
                named("op", reserve("cpus:1")),
                launch("t", &scenario.agent_id),
            ]
        };
        scenario.accept(&[&offer], steps()).await;
        let steps = steps();
        let scenario = scenario.next().await;
        scenario.accept(&[&offer], steps).await;
        let heard = scenario.scheduler.received();
        assert_eq!(heard, ["op OPERATION_PENDING"]);
    });
}

/// Found by a group simulation (seed 16779): the operation was done and forgotten; its framework
/// got ERROR, and FINISHED after the agent's return.
#[test]
fn repeated_accept_keeps_operations_of_absent_agents() {
    simulate_network(|network| async move {
        let scenario = Scenario::with(network, lasting).await;
        let offer = scenario.offer(resources("cpus:4")).await;
        let scenario = scenario.next().await;
        let op = || named("op", reserve("cpus:1"));
        scenario.accept(&[&offer], vec![op()]).await;
        scenario.scheduler.receives("op OPERATION_RECOVERING");
        let steps = vec![op(), launch("t", &scenario.agent_id)];
        scenario.accept(&[&offer], steps).await;
        scenario.scheduler.receives("op OPERATION_RECOVERING");
        let elsewhere = AgentId::new("elsewhere").unwrap();
        let steps = vec![op(), launch("u", &elsewhere)];
        scenario.accept(&[&offer], steps).await;
        let heard = scenario.scheduler.received();
        assert_eq!(heard[0], "op OPERATION_ERROR", "there is no such agent");
        let total = resources("cpus:8;mem:8192;disk:100");
        comes(&scenario.agent, scenario.back(total, 2, 0)).await;
        scenario.accept(&[&offer], vec![op()]).await;
        scenario.scheduler.receives("op OPERATION_ERROR");
    });
}

#[test]
fn agent_registering_during_the_record_gets_the_operation_later() {
    simulate_scenario(|scenario| async move {
        let offer = scenario.offer(resources("cpus:4")).await;
        scenario.world.faults.delay(seconds(1));
        let steps = vec![
            named("op", reserve("cpus:1")),
            launch("t", &scenario.agent_id),
        ];
        scenario.accept(&[&offer], steps).await;
        let total = resources("cpus:8;mem:8192;disk:100");
        comes(&scenario.agent, scenario.back(total, 2, 0)).await;
        scenario.world.settle().await;
        // The task was lost with the link.
        scenario.agent.receives("disown t");
        let heard = scenario.scheduler.received();
        assert!(
            heard.len() == 1 && heard[0].starts_with("t TASK_LOST"),
            "{heard:?}"
        );
        scenario.world.pass(1).await;
        scenario.agent.receives("apply reserve to 2");
        let expected = resources("cpus:7;mem:8192;disk:100") + reserved("cpus:1");
        assert_eq!(scenario.total().await, expected);
        let facts = scenario.world.allocator();
        assert_eq!(facts.last().unwrap(), "agent S0 used []");
    });
}

#[test]
fn dependents_of_a_rejected_operation_are_dropped() {
    simulate_scenario(|scenario| async move {
        let offer = scenario.offer(resources("cpus:4;disk:100")).await;
        let steps = vec![
            named("first", reserve("disk:10")),
            named(
                "second",
                Conversion::Create {
                    volumes: volume("v", 10).into(),
                },
            ),
        ];
        scenario.accept(&[&offer], steps).await;
        scenario.agent.tell(ResourcesReported {
            agent_id: scenario.agent_id.clone(),
            resources: AgentResources {
                version: version(2),
                total: resources("cpus:8;mem:8192;disk:100"),
                operations: vec![],
                settled: Some(1),
            },
        });
        scenario
            .agent
            .tell(scenario.updated("first", OperationState::Failed));
        scenario.agent.tell(scenario.settled(1));
        scenario.world.settle().await;
        let heard: BTreeSet<String> = scenario.scheduler.received().into_iter().collect();
        let expected = ["first OPERATION_FAILED", "second OPERATION_DROPPED"];
        assert_eq!(heard, expected.map(str::to_owned).into());
        assert_eq!(scenario.recorded(), [0_u64; 0]);
    });
}

#[test]
fn gone_agent_takes_its_operations_with_it() {
    simulate_scenario(|scenario| async move {
        let offer = scenario.offer(resources("cpus:4")).await;
        let steps = vec![named("op", reserve("cpus:1"))];
        scenario.accept(&[&offer], steps).await;
        assert_eq!(scenario.recorded(), [1]);
        let agent_id = scenario.agent_id.clone();
        let gone = protocol::message::operator::MarkAgentGone { agent_id };
        let marked = scenario.world.master.ask(gone, PATIENCE).await.unwrap();
        marked.unwrap();
        scenario.world.settle().await;
        let heard = scenario.scheduler.received();
        let told = "op OPERATION_GONE_BY_OPERATOR".to_owned();
        assert!(heard.contains(&told), "{heard:?}");
        assert_eq!(scenario.recorded(), [0_u64; 0]);
    });
}

/// An agent of an earlier version would never report its end.
#[test]
fn agent_without_serials_gets_an_operation_once() {
    simulate_scenario(|scenario| async move {
        let offer = scenario.offer_of_older_agent().await;
        let steps = vec![named("op", reserve("cpus:1"))];
        scenario.accept(&[&offer], steps).await;
        scenario.agent.receives("apply reserve to 2");
        assert_eq!(scenario.recorded(), [0_u64; 0]);
        scenario
            .agent
            .tell(scenario.updated("op", OperationState::Failed));
        scenario.world.settle().await;
        scenario.scheduler.receives("op OPERATION_FAILED");
    });
}

/// Nor is it resent because its agent was faster than the registry.
#[test]
fn failure_without_serials_is_reported_after_the_registry() {
    simulate_scenario(|scenario| async move {
        let offer = scenario.offer_of_older_agent().await;
        scenario.world.faults.delay(seconds(1));
        let steps = vec![named("op", reserve("cpus:1"))];
        scenario.accept(&[&offer], steps).await;
        scenario.world.pass(1).await;
        scenario.agent.receives("apply reserve to 2");
        let failed = scenario.updated("op", OperationState::Failed);
        scenario.agent.tell(failed);
        scenario.world.settle().await;
        // The registry still has it.
        scenario.scheduler.receives("");
        scenario.world.pass(1).await;
        scenario.scheduler.receives("op OPERATION_FAILED");
    });
}

/// DESIGN 10.7: found by a group simulation (seed 209): a framework was told that its operation was
/// done, its leader crashed before the registry had forgotten it, and the next one reported it as
/// gone with its agent.
#[test]
fn finished_operation_is_reported_when_it_is_final() {
    simulate_scenario(|scenario| async move {
        let offer = scenario.offer(resources("cpus:4")).await;
        let steps = vec![named("op", reserve("cpus:1"))];
        scenario.accept(&[&offer], steps).await;
        scenario.world.faults.delay(seconds(1));
        let finished = || scenario.updated("op", OperationState::Finished);
        scenario.agent.tell(finished());
        scenario.agent.tell(scenario.settled(1));
        scenario.agent.tell(finished());
        scenario.world.settle().await;
        scenario.scheduler.receives("");
        scenario.world.pass(1).await;
        scenario.scheduler.receives("op OPERATION_FINISHED");
        scenario.agent.tell(finished());
        scenario.world.settle().await;
        // The agent repeats it until it is acknowledged.
        scenario.scheduler.receives("op OPERATION_FINISHED");
    });
}

/// A framework may ask for one after the other of an agent that is stuck, or for ever lets one
/// wait.
#[test]
fn operation_waiting_on_one_agent_does_not_delay_others() {
    simulate_scenario(|mut scenario| async move {
        let share = crate::registry::ACCEPTED_MAX / 10;
        for _ in 0..share {
            scenario.operate(reserve("cpus:0.001")).await.unwrap();
        }
        let refused = scenario.operate(reserve("cpus:0.001")).await.unwrap_err();
        let expected = format!("fewer than {share} operations under way on the agent");
        assert!(refused.to_string().contains(&expected), "{refused}");

        let other = scenario.world.member("other", "agent", Role::Agent).await;
        let total = resources("cpus:8;mem:8192;disk:100");
        let stuck = scenario.agent_id.clone();
        scenario.agent_id = comes(&other, keeping(&other, None, total, 1)).await;
        scenario.operate(reserve("cpus:0.001")).await.unwrap();

        // And as soon as one is over, there is room for one.
        scenario.agent_id = stuck;
        scenario.agent.say(scenario.settled(1));
        scenario.world.settle().await;
        scenario.operate(reserve("cpus:0.001")).await.unwrap();
        scenario.operate(reserve("cpus:0.001")).await.unwrap_err();
    });
}
