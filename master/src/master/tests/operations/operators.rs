//! Operators: what they have done to the resources of agents, and whom it costs an offer.

use super::*;

/// SPEC 3.7.
#[test]
fn an_operator_signs_with_the_name_in_its_certificate_and_with_no_other() {
    rehearse_network(|network| async move {
        let story = Story::begin(network).await;
        let refused = story.operate_as("guest", reserve("cpus:1")).await;
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("in the name of ops"), "{refused}");
        story.operate_as("ops", reserve("cpus:1")).await.unwrap();
        // Giving back is for those whom the ACLs let.
        let resources = reserved("cpus:1");
        let back = Conversion::Unreserve { resources };
        story.operate_as("guest", back).await.unwrap();
    });
}

#[test] // S91
fn an_operator_gets_what_is_only_offered_and_no_more_offers_are_rescinded_than_it_takes() {
    rehearse_network(|network| async move {
        let story = Story::begin(network).await;
        let small = story.offer(resources("cpus:1")).await;
        let large = story.offer(resources("cpus:4")).await;
        let other = story.offer(resources("mem:100")).await;
        story.operate(reserve("cpus:3")).await.unwrap();
        assert_eq!(
            story.scheduler.heard(),
            [""; 0],
            "three cpus are free anyway"
        );
        story.operate(reserve("cpus:4")).await.unwrap();
        assert_eq!(
            story.scheduler.heard(),
            [format!("rescind {}", short(&large.id))]
        );
        let books = story.world.books().await;
        let mut left: Vec<_> = books.offers.iter().map(|offer| offer.id.clone()).collect();
        left.sort();
        let mut expected = vec![small.id.clone(), other.id];
        expected.sort();
        assert_eq!(left, expected);
        let facts = story.world.allocator();
        assert!(
            facts.last().unwrap().starts_with("agent S0 used [0000="),
            "{facts:?}"
        );
        assert_eq!(
            story.agent.heard(),
            ["apply reserve to 1", "apply reserve to 1"]
        );

        // What a task uses is not to be had.
        let tasks = vec![task("t", &story.agent_id, "cpus:1")];
        story
            .accept(&[&small], vec![Operation::Launch { tasks }])
            .await;
        let refused = story.operate(reserve("cpus:1")).await.unwrap_err();
        assert!(
            matches!(&refused, OperationRefused::NotFree { lacking, .. } if lacking == "cpus:1"),
            "{refused:?}"
        );
        let fixed = resources("cpus(ads):1");
        let invalid = story
            .operate(Conversion::Unreserve { resources: fixed })
            .await;
        assert!(
            matches!(invalid, Err(OperationRefused::Invalid(_))),
            "{invalid:?}"
        );
        assert_eq!(
            story.world.books().await.offers.len(),
            1,
            "nothing was rescinded for nothing"
        );
    });
}
