//! Shared volumes in the tasks of one accept.

use super::*;

/// SPEC 3.5: many tasks of one accept.
#[test]
fn tasks_of_one_accept_share_a_volume() {
    simulate_network(|network| async move {
        let scenario = Scenario::with(network, |info| {
            advertiser(info);
            info.capabilities.insert(Capability::SharedResources);
        })
        .await;
        scenario.operate(reserve("disk:10")).await.unwrap();
        let volumes: Resources = shared("v", 10).into();
        let create = Conversion::Create {
            volumes: volumes.clone(),
        };
        scenario.operate(create).await.unwrap();
        scenario.world.allocator();
        scenario.agent.received();
        let offer = scenario.offer(resources("cpus:3") + volumes.clone()).await;
        let task = |id: &str, text: &str| {
            let mut task = task(id, &scenario.agent_id, text);
            task.resources = (task.resources + volumes.clone()).allocate(&ads());
            task
        };
        let tasks = vec![
            task("a", "cpus:1"),
            task("b", "cpus:9"),
            task("c", "cpus:1"),
        ];
        scenario
            .accept(&[&offer], vec![Operation::Launch { tasks }])
            .await;
        scenario
            .scheduler
            .receives("b TASK_ERROR REASON_TASK_INVALID");
        let copy = volumes.brief().to_string();
        assert_eq!(
            scenario.world.allocator(),
            [
                format!("converted 0000  to {copy}"),
                "recovered 0000 cpus:1 for 5s".to_owned(),
            ],
            "the copy for the refused task went to the next one"
        );
        let told = scenario.agent.received().remove(0);
        assert_eq!(told.matches("persistence").count(), 2, "{told}");
    });
}
