//! How operations are counted, under Mesos' names (SPEC 3.10).

use super::*;

impl Scenario {
    /// Metrics of operations, without zeros and without earlier ones.
    async fn counted(&self) -> Vec<String> {
        let state = self.world.state().await;
        let now = self.world.node.clock().wall();
        let metrics = crate::api::metrics(&state, now);
        let told = metrics.into_iter().filter_map(|(name, value)| {
            let name = name.strip_prefix("master/operations/")?;
            (value > 0.0).then(|| format!("{name} {value}"))
        });
        told.collect()
    }
}

/// SPEC 3.10: known operations are gauges, and repeated ends count once.
#[test]
fn operations_are_counted_by_kind_and_state() {
    simulate_scenario(|scenario| async move {
        assert_eq!(scenario.counted().await, [""; 0]);
        let offer = scenario.offer(resources("cpus:4;disk:100")).await;
        let steps = vec![
            named("r", reserve("disk:50")),
            named(
                "c",
                Conversion::Create {
                    volumes: volume("v", 10).into(),
                },
            ),
            Operation::convert(reserve("disk:500")),
        ];
        scenario.accept(&[&offer], steps).await;
        let under_way = [
            "create/pending 1",
            "create/total 1",
            "error 1",
            "pending 2",
            "reserve/error 1",
            "reserve/pending 1",
            "reserve/total 1",
            "total 2",
        ];
        assert_eq!(scenario.counted().await, under_way);
        for _ in 0..2 {
            scenario
                .agent
                .tell(scenario.updated("r", OperationState::Finished));
            scenario
                .agent
                .tell(scenario.updated("c", OperationState::Failed));
            scenario.world.settle().await;
        }
        let ended = [
            "create/failed 1",
            "create/total 1",
            "error 1",
            "failed 1",
            "finished 1",
            "reserve/error 1",
            "reserve/finished 1",
            "reserve/total 1",
            "total 2",
        ];
        assert_eq!(scenario.counted().await, ended);
        let acknowledged = AcknowledgeOperation {
            framework_id: scenario.id.clone(),
            agent_id: scenario.agent_id.clone(),
            operation_id: OperationId::new("r").unwrap(),
            uuid: version(9),
        };
        scenario.scheduler.say(acknowledged);
        scenario.world.settle().await;
        assert!(!scenario.counted().await.contains(&"total 2".to_owned()));
        // Its agent has not received the acknowledgement, and resends it, twice, and when it
        // returns.
        let again = scenario.updated("r", OperationState::Finished);
        scenario.agent.tell(again.clone());
        scenario.agent.tell(again.clone());
        scenario.world.settle().await;
        let told_again = [
            "create/failed 1",
            "create/total 1",
            "error 1",
            "failed 1",
            "finished 1",
            "reserve/error 1",
            "reserve/finished 1",
            "total 2",
        ];
        assert_eq!(scenario.counted().await, told_again);
        scenario.scheduler.say(AcknowledgeOperation {
            framework_id: scenario.id.clone(),
            agent_id: scenario.agent_id.clone(),
            operation_id: OperationId::new("r").unwrap(),
            uuid: version(9),
        });
        scenario.world.settle().await;
        let counted = scenario.counted().await;
        assert!(counted.contains(&"total 1".to_owned()), "{counted:?}");
        assert!(
            counted.contains(&"reserve/finished 1".to_owned()),
            "{counted:?}"
        );
    });
}

/// SPEC 3.10: an earlier master's counts are lost with it.
#[test]
fn earlier_masters_ended_operations_are_counted_at_registration() {
    simulate_scenario(|scenario| async move {
        let agent = scenario.world.member("other", "agent", Role::Agent).await;
        let id = AgentId::new("earlier-S1").unwrap();
        for number in 1..3 {
            let total = resources("cpus:8;mem:8192;disk:100");
            let mut comes_back = keeping(&agent, Some(id.clone()), total, number);
            let ended = scenario.updated("early", OperationState::Finished).update;
            let has = comes_back.resources.as_mut().unwrap();
            has.operations.push(ended);
            comes(&agent, comes_back).await;
            scenario.world.settle().await;
            assert_eq!(scenario.counted().await, ["finished 1", "total 1"]);
            let acknowledged = AcknowledgeOperation {
                framework_id: scenario.id.clone(),
                agent_id: id.clone(),
                operation_id: OperationId::new("early").unwrap(),
                uuid: version(9),
            };
            scenario.scheduler.say(acknowledged);
            scenario.world.settle().await;
            assert_eq!(scenario.counted().await, ["finished 1"]);
        }
    });
}

/// SPEC 3.10: all reported errors count, also with missing offers.
#[test]
fn operations_of_a_rejected_accept_are_counted_as_errors() {
    simulate_scenario(|scenario| async move {
        let offer = scenario.offer(resources("cpus:4")).await;
        let bogus = Offer {
            id: OfferId::new("bogus").unwrap(),
            ..offer.clone()
        };
        let steps = vec![named("op", reserve("cpus:1"))];
        scenario.accept(&[&offer, &bogus], steps).await;
        scenario.scheduler.receives("op OPERATION_ERROR");
        assert_eq!(scenario.counted().await, ["error 1", "reserve/error 1"]);
    });
}
