//! How operations are counted, under Mesos' names (SPEC 3.10).

use super::*;

impl Story {
    /// What the metrics say of operations, without zeros and without what was said before.
    async fn counted(&self) -> Vec<String> {
        let books = self.world.books().await;
        let now = self.world.node.clock().wall();
        let metrics = crate::http::metrics(&books, now);
        let told = metrics.into_iter().filter_map(|(name, value)| {
            let name = name.strip_prefix("master/operations/")?;
            (value > 0.0).then(|| format!("{name} {value}"))
        });
        told.collect()
    }
}

/// SPEC 3.10: those that are known are gauges, and ends are counted once, however often they are told.
#[test]
fn operations_are_counted_by_kind_and_state() {
    rehearse_network(|network| async move {
        let story = Story::begin(network).await;
        assert_eq!(story.counted().await, [""; 0]);
        let offer = story.offer(resources("cpus:4;disk:100")).await;
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
        story.accept(&[&offer], steps).await;
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
        assert_eq!(story.counted().await, under_way);
        for _ in 0..2 {
            story
                .agent
                .tell(story.updated("r", OperationState::Finished));
            story.agent.tell(story.updated("c", OperationState::Failed));
            story.world.settle().await;
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
        assert_eq!(story.counted().await, ended);
        let acknowledged = AcknowledgeOperation {
            framework_id: story.id.clone(),
            agent_id: story.agent_id.clone(),
            operation_id: OperationId::new("r").unwrap(),
            uuid: version(9),
        };
        story.scheduler.say(acknowledged);
        story.world.settle().await;
        assert!(!story.counted().await.contains(&"total 2".to_owned()));
        // Its agent has not heard of the acknowledgement, and says it again, twice, and when it comes back.
        let again = story.updated("r", OperationState::Finished);
        story.agent.tell(again.clone());
        story.agent.tell(again.clone());
        story.world.settle().await;
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
        assert_eq!(story.counted().await, told_again);
        story.scheduler.say(AcknowledgeOperation {
            framework_id: story.id.clone(),
            agent_id: story.agent_id.clone(),
            operation_id: OperationId::new("r").unwrap(),
            uuid: version(9),
        });
        story.world.settle().await;
        let counted = story.counted().await;
        assert!(counted.contains(&"total 1".to_owned()), "{counted:?}");
        assert!(
            counted.contains(&"reserve/finished 1".to_owned()),
            "{counted:?}"
        );
    });
}

/// SPEC 3.10: whoever has counted them under an earlier master is not here any more.
#[test]
fn operations_of_an_earlier_master_that_have_ended_are_counted_when_their_agent_first_comes() {
    rehearse_network(|network| async move {
        let story = Story::begin(network).await;
        let agent = story.world.member("other", "agent", Role::Agent).await;
        let id = AgentId::new("earlier-S1").unwrap();
        for number in 1..3 {
            let total = resources("cpus:8;mem:8192;disk:100");
            let mut comes_back = keeping(&agent, Some(id.clone()), total, number);
            let ended = story.updated("early", OperationState::Finished).update;
            let has = comes_back.resources.as_mut().unwrap();
            has.operations.push(ended);
            comes(&agent, comes_back).await;
            story.world.settle().await;
            assert_eq!(story.counted().await, ["finished 1", "total 1"]);
            let acknowledged = AcknowledgeOperation {
                framework_id: story.id.clone(),
                agent_id: id.clone(),
                operation_id: OperationId::new("early").unwrap(),
                uuid: version(9),
            };
            story.scheduler.say(acknowledged);
            story.world.settle().await;
            assert_eq!(story.counted().await, ["finished 1"]);
        }
    });
}

/// SPEC 3.10: whatever is told to have ended in error is counted so, where no offer is there as well.
#[test]
fn operations_of_a_void_accept_are_counted_as_errors() {
    rehearse_network(|network| async move {
        let story = Story::begin(network).await;
        let offer = story.offer(resources("cpus:4")).await;
        let bogus = Offer {
            id: OfferId::new("bogus").unwrap(),
            ..offer.clone()
        };
        let steps = vec![named("op", reserve("cpus:1"))];
        story.accept(&[&offer, &bogus], steps).await;
        assert_eq!(story.scheduler.heard(), ["op OPERATION_ERROR"]);
        assert_eq!(story.counted().await, ["error 1", "reserve/error 1"]);
    });
}
