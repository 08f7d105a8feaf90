//! Shared volumes: what tasks of one accept make of them.

use super::*;

/// SPEC 3.5: many tasks of one accept.
#[test]
fn tasks_of_one_accept_share_a_volume_and_each_gives_its_copy_back() {
    rehearse_network(|network| async move {
        let story = Story::with(network, |info| {
            advertiser(info);
            info.capabilities.insert(Capability::SharedResources);
        })
        .await;
        story.operate(reserve("disk:10")).await.unwrap();
        let volumes: Resources = shared("v", 10).into();
        let create = Conversion::Create {
            volumes: volumes.clone(),
        };
        story.operate(create).await.unwrap();
        story.world.allocator();
        story.agent.heard();
        let offer = story.offer(resources("cpus:3") + volumes.clone()).await;
        let task = |id: &str, text: &str| {
            let mut task = task(id, &story.agent_id, text);
            task.resources = (task.resources + volumes.clone()).allocate(&ads());
            task
        };
        let tasks = vec![
            task("a", "cpus:1"),
            task("b", "cpus:9"),
            task("c", "cpus:1"),
        ];
        story
            .accept(&[&offer], vec![Operation::Launch { tasks }])
            .await;
        assert_eq!(
            story.scheduler.heard(),
            ["b TASK_ERROR REASON_TASK_INVALID"]
        );
        let copy = volumes.brief().to_string();
        assert_eq!(
            story.world.allocator(),
            [
                format!("converted 0000  to {copy}"),
                "recovered 0000 cpus:1 for 5s".to_owned(),
            ],
            "the copy for the refused task went to the next one"
        );
        let told = story.agent.heard().remove(0);
        assert_eq!(told.matches("persistence").count(), 2, "{told}");
    });
}
