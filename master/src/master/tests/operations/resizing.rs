//! GROW_VOLUME and SHRINK_VOLUME, of frameworks and of operators.

use super::*;

fn grow(volume: Resource, by: u32) -> Conversion {
    let mut left = reserved(&format!("disk:{by}")).into_iter();
    let addition = left.next().unwrap();
    Conversion::GrowVolume { volume, addition }
}

fn shrink(volume: Resource, by: u32) -> Conversion {
    let subtract = Scalar::whole(by);
    Conversion::ShrinkVolume { volume, subtract }
}

/// With 60 MB of disk that are reserved and 10 of them a volume.
async fn with_a_volume(network: Network, volumes: Resource) -> Story {
    let story = Story::begin(network).await;
    story.operate(reserve("disk:60")).await.unwrap();
    let volumes = Resources::from(volumes);
    story.operate(Conversion::Create { volumes }).await.unwrap();
    story.agent.heard();
    story.world.allocator();
    story
}

fn with(rest: u32, size: u32) -> Resources {
    let rest = resources("cpus:8;mem:8192;disk:40") + reserved(&format!("disk:{rest}"));
    rest + Resources::from(volume("v", size))
}

/// SPEC 2.2, 3.5.
#[test]
fn a_framework_resizes_a_volume_it_is_offered_and_uses_it_in_the_same_accept() {
    rehearse_network(|network| async move {
        let story = with_a_volume(network, volume("v", 10)).await;
        let offered = resources("cpus:1") + reserved("disk:50") + Resources::from(volume("v", 10));
        let offer = story.offer(offered).await;
        let mut writer = task("t", &story.agent_id, "cpus:1");
        writer.resources += Resources::from(volume("v", 35));
        let steps = vec![
            named("larger", grow(volume("v", 10), 30)),
            named("smaller", shrink(volume("v", 40), 5)),
            named("stale", shrink(volume("v", 40), 5)),
            Operation::Launch {
                tasks: vec![writer],
            },
        ];
        story.accept(&[&offer], steps).await;
        let heard = story.agent.heard();
        let applied = ["apply grow_volume to 1", "apply shrink_volume to 1"];
        assert_eq!(heard[..2], applied, "{heard:?}");
        assert!(heard[2].starts_with("run t="), "{heard:?}");
        assert_eq!(story.scheduler.heard(), ["stale OPERATION_ERROR"]);
        assert_eq!(story.total().await, with(25, 35));
        let facts = story.world.allocator();
        assert!(facts[0].starts_with("converted 0000 disk"), "{facts:?}");
        assert!(facts[1].starts_with("converted 0000 disk"), "{facts:?}");
        for id in ["larger", "smaller"] {
            let done = story.updated(id, OperationState::Finished);
            story.agent.tell(done);
        }
        story.world.settle().await;
        let finished = ["larger OPERATION_FINISHED", "smaller OPERATION_FINISHED"];
        assert_eq!(story.scheduler.heard(), finished);
    });
}

#[test]
fn a_framework_resizes_nothing_by_more_than_it_is_offered_nor_what_is_shared() {
    rehearse_network(|network| async move {
        let story = with_a_volume(network, shared("s", 10)).await;
        let only = volume("v", 10);
        let volumes = Resources::from(only.clone());
        story.operate(Conversion::Create { volumes }).await.unwrap();
        story.world.allocator();
        story.agent.heard();
        let before = story.total().await;
        let unowned = Conversion::GrowVolume {
            volume: only.clone(),
            addition: resources("disk:5").into_iter().next().unwrap(),
        };
        for (number, conversion) in [
            grow(only.clone(), 31),
            grow(volume("w", 10), 5),
            unowned,
            grow(shared("s", 10), 5),
            shrink(shared("s", 10), 5),
            shrink(only.clone(), 10),
            shrink(only.clone(), 0),
        ]
        .into_iter()
        .enumerate()
        {
            let offer = story
                .offer(reserved("disk:30") + Resources::from(only.clone()))
                .await;
            let step = named(&number.to_string(), conversion);
            story.accept(&[&offer], vec![step]).await;
            let heard = story.scheduler.heard();
            assert_eq!(heard, [format!("{number} OPERATION_ERROR")]);
            assert_eq!(story.agent.heard(), [""; 0]);
        }
        assert_eq!(story.total().await, before);
    });
}

/// SPEC 2.6, 3.5.
#[test]
fn an_operator_resizes_a_volume_that_is_only_offered_and_none_that_a_task_uses() {
    rehearse_network(|network| async move {
        let story = with_a_volume(network, volume("v", 10)).await;
        let out = story.offer(Resources::from(volume("v", 10))).await;
        story.offer(resources("cpus:1")).await;
        story.operate(grow(volume("v", 10), 30)).await.unwrap();
        let taken_back = format!("rescind {}", short(&out.id));
        assert_eq!(story.scheduler.heard(), [taken_back]);
        story.operate(shrink(volume("v", 40), 5)).await.unwrap();
        assert_eq!(story.scheduler.heard(), [""; 0]);
        assert_eq!(story.world.books().await.offers.len(), 1, "the other stays");
        let applied = ["apply grow_volume to 1", "apply shrink_volume to 1"];
        assert_eq!(story.agent.heard(), applied);
        assert_eq!(story.total().await, with(25, 35));
        let refused = story.operate(grow(volume("v", 35), 26)).await;
        let refused = refused.unwrap_err();
        assert!(
            matches!(refused, OperationRefused::NotFree { .. }),
            "{refused:?}"
        );
        let refused = story.operate(shrink(volume("v", 35), 35)).await;
        let refused = refused.unwrap_err().to_string();
        assert!(
            refused.contains("must be smaller than the size of 'ShrinkVolume.volume'"),
            "{refused}"
        );

        let offer = story
            .offer(resources("cpus:1") + Resources::from(volume("v", 35)))
            .await;
        let mut writer = task("t", &story.agent_id, "cpus:1");
        writer.resources += Resources::from(volume("v", 35));
        let launch = Operation::Launch {
            tasks: vec![writer],
        };
        story.accept(&[&offer], vec![launch]).await;
        let used = [grow(volume("v", 35), 5), shrink(volume("v", 35), 5)];
        for conversion in used {
            let refused = story.operate(conversion).await.unwrap_err();
            assert!(
                matches!(refused, OperationRefused::NotFree { .. }),
                "{refused:?}"
            );
        }
        assert_eq!(story.total().await, with(25, 35));
    });
}
