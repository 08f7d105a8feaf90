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
async fn with_a_volume(network: Network, volumes: Resource) -> Scenario {
    let scenario = Scenario::begin(network).await;
    scenario.operate(reserve("disk:60")).await.unwrap();
    let volumes = Resources::from(volumes);
    scenario
        .operate(Conversion::Create { volumes })
        .await
        .unwrap();
    scenario.agent.received();
    scenario.world.allocator();
    scenario
}

fn with(rest: u32, size: u32) -> Resources {
    let rest = resources("cpus:8;mem:8192;disk:40") + reserved(&format!("disk:{rest}"));
    rest + Resources::from(volume("v", size))
}

/// SPEC 2.2, 3.5.
#[test]
fn resized_volume_is_usable_in_the_same_accept() {
    simulate_network(|network| async move {
        let scenario = with_a_volume(network, volume("v", 10)).await;
        let offered = resources("cpus:1") + reserved("disk:50") + Resources::from(volume("v", 10));
        let offer = scenario.offer(offered).await;
        let mut writer = task("t", &scenario.agent_id, "cpus:1");
        writer.resources += Resources::from(volume("v", 35));
        let steps = vec![
            named("larger", grow(volume("v", 10), 30)),
            named("smaller", shrink(volume("v", 40), 5)),
            named("stale", shrink(volume("v", 40), 5)),
            Operation::Launch {
                tasks: vec![writer],
            },
        ];
        scenario.accept(&[&offer], steps).await;
        let heard = scenario.agent.received();
        let applied = ["apply grow_volume to 1", "apply shrink_volume to 1"];
        assert_eq!(heard[..2], applied, "{heard:?}");
        assert!(heard[2].starts_with("run t="), "{heard:?}");
        scenario.scheduler.receives("stale OPERATION_ERROR");
        assert_eq!(scenario.total().await, with(25, 35));
        let facts = scenario.world.allocator();
        assert!(facts[0].starts_with("converted 0000 disk"), "{facts:?}");
        assert!(facts[1].starts_with("converted 0000 disk"), "{facts:?}");
        for id in ["larger", "smaller"] {
            let done = scenario.updated(id, OperationState::Finished);
            scenario.agent.tell(done);
        }
        scenario.world.settle().await;
        let finished = ["larger OPERATION_FINISHED", "smaller OPERATION_FINISHED"];
        assert_eq!(scenario.scheduler.received(), finished);
    });
}

#[test]
fn resizing_is_limited_to_offered_unshared_resources() {
    simulate_network(|network| async move {
        let scenario = with_a_volume(network, shared("s", 10)).await;
        let only = volume("v", 10);
        let volumes = Resources::from(only.clone());
        scenario
            .operate(Conversion::Create { volumes })
            .await
            .unwrap();
        scenario.world.allocator();
        scenario.agent.received();
        let before = scenario.total().await;
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
            let offer = scenario
                .offer(reserved("disk:30") + Resources::from(only.clone()))
                .await;
            let step = named(&number.to_string(), conversion);
            scenario.accept(&[&offer], vec![step]).await;
            let heard = scenario.scheduler.received();
            assert_eq!(heard, [format!("{number} OPERATION_ERROR")]);
            scenario.agent.receives("");
        }
        assert_eq!(scenario.total().await, before);
    });
}

/// SPEC 2.6, 3.5.
#[test]
fn operator_resizes_offered_but_not_used_volumes() {
    simulate_network(|network| async move {
        let scenario = with_a_volume(network, volume("v", 10)).await;
        let out = scenario.offer(Resources::from(volume("v", 10))).await;
        scenario.offer(resources("cpus:1")).await;
        scenario.operate(grow(volume("v", 10), 30)).await.unwrap();
        let taken_back = format!("rescind {}", short(&out.id));
        assert_eq!(scenario.scheduler.received(), [taken_back]);
        scenario.operate(shrink(volume("v", 40), 5)).await.unwrap();
        scenario.scheduler.receives("");
        assert_eq!(
            scenario.world.state().await.offers.len(),
            1,
            "the other stays"
        );
        let applied = ["apply grow_volume to 1", "apply shrink_volume to 1"];
        assert_eq!(scenario.agent.received(), applied);
        assert_eq!(scenario.total().await, with(25, 35));
        let refused = scenario.operate(grow(volume("v", 35), 26)).await;
        let refused = refused.unwrap_err();
        assert_matches!(refused, OperationRefused::NotFree { .. });
        let refused = scenario.operate(shrink(volume("v", 35), 35)).await;
        let refused = refused.unwrap_err().to_string();
        assert_contains!(
            refused,
            "must be smaller than the size of 'ShrinkVolume.volume'"
        );

        let offer = scenario
            .offer(resources("cpus:1") + Resources::from(volume("v", 35)))
            .await;
        let mut writer = task("t", &scenario.agent_id, "cpus:1");
        writer.resources += Resources::from(volume("v", 35));
        let launch = Operation::Launch {
            tasks: vec![writer],
        };
        scenario.accept(&[&offer], vec![launch]).await;
        let used = [grow(volume("v", 35), 5), shrink(volume("v", 35), 5)];
        for conversion in used {
            let refused = scenario.operate(conversion).await.unwrap_err();
            assert_matches!(refused, OperationRefused::NotFree { .. });
        }
        assert_eq!(scenario.total().await, with(25, 35));
    });
}
