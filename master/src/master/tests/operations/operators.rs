//! Operators' operations on agents, and the offers they rescind.

use super::*;

/// SPEC 3.7.
#[test]
fn operator_reserves_only_under_its_certificates_name() {
    simulate_scenario(|scenario| async move {
        let refused = scenario.operate_as("guest", reserve("cpus:1")).await;
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("in the name of ops"), "{refused}");
        scenario.operate_as("ops", reserve("cpus:1")).await.unwrap();
        // Unreserving requires authorization.
        let resources = reserved("cpus:1");
        let back = Conversion::Unreserve { resources };
        scenario.operate_as("guest", back).await.unwrap();
    });
}

// Covers S91.
#[test] // S91
fn operator_takes_offered_resources_with_few_rescinds() {
    simulate_scenario(|scenario| async move {
        let small = scenario.offer(resources("cpus:1")).await;
        let large = scenario.offer(resources("cpus:4")).await;
        let other = scenario.offer(resources("mem:100")).await;
        scenario.operate(reserve("cpus:3")).await.unwrap();
        // Three cpus are free anyway.
        scenario.scheduler.receives("");
        scenario.operate(reserve("cpus:4")).await.unwrap();
        assert_eq!(
            scenario.scheduler.received(),
            [format!("rescind {}", short(&large.id))]
        );
        let state = scenario.world.state().await;
        let mut left: Vec<_> = state.offers.iter().map(|offer| offer.id.clone()).collect();
        left.sort();
        let mut expected = vec![small.id.clone(), other.id];
        expected.sort();
        assert_eq!(left, expected);
        let facts = scenario.world.allocator();
        assert_starts!(facts.last().unwrap(), "agent S0 used [0000=");
        scenario
            .agent
            .receives("apply reserve to 1 | apply reserve to 1");

        // Used resources are not available.
        let tasks = vec![task("t", &scenario.agent_id, "cpus:1")];
        scenario
            .accept(&[&small], vec![Operation::Launch { tasks }])
            .await;
        let refused = scenario.operate(reserve("cpus:1")).await.unwrap_err();
        assert_matches!(&refused, OperationRefused::NotFree { lacking, .. } if lacking == "cpus:1");
        let fixed = resources("cpus(ads):1");
        let invalid = scenario
            .operate(Conversion::Unreserve { resources: fixed })
            .await;
        assert_matches!(invalid, Err(OperationRefused::Invalid(_)));
        assert_eq!(
            scenario.world.state().await.offers.len(),
            1,
            "nothing was rescinded for nothing"
        );
    });
}
