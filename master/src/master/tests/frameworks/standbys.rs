//! Standby schedulers, and their framework's stored state (S134).

use testkit::assert_matches;

use crate::frameworks::standby::{LEADER_PREFERRED, STANDBYS_MAX};
use crate::master::tests::*;
use crate::registry::RegistryError;

fn web() -> FrameworkInfo {
    FrameworkInfo::new("nobody", "web")
}

pub(in crate::master::tests) async fn stand_by(
    scheduler: &Member,
    framework: FrameworkInfo,
) -> Result<StandbyReply, SubscriptionRefused> {
    let message = StandBy {
        framework,
        scheduler: scheduler.pid.clone(),
        wants: Default::default(),
    };
    let asked = scheduler.node.ask(&scheduler.master, message, PATIENCE);
    asked.await.unwrap()
}

/// One that leads.
async fn leader(world: &World, name: &str, framework: FrameworkInfo) -> (Member, FrameworkId) {
    let scheduler = world.member(name, "scheduler", Role::Framework).await;
    match stand_by(&scheduler, framework).await {
        Ok(StandbyReply::Leads(subscribed)) => (scheduler, subscribed.framework_id),
        other => panic!("{name} does not lead: {other:?}"),
    }
}

/// One that waits.
async fn standby(world: &World, name: &str, framework: FrameworkInfo) -> Member {
    let scheduler = world.member(name, "scheduler", Role::Framework).await;
    let standing = stand_by(&scheduler, framework).await;
    assert_matches!(standing, Ok(StandbyReply::StandsBy(_)));
    scheduler
}

/// A new master with the registry's content.
async fn next_master(world: World, name: &str) -> World {
    let World {
        network,
        node,
        master,
        faults,
        ..
    } = world;
    node.stop_now(&master.pid());
    network.leave("master");
    node.clock().settle().await;
    let heard = [Role::Agent, Role::Framework, Role::Operator];
    let node = network.node(name, Role::Master, &heard);
    World::on(network, node, Config::default(), faults).await
}

async fn at(world: &World, mut member: Member) -> Member {
    let name = world.node.id().name().to_owned();
    member.master = member.node.find(&name, "master", PATIENCE).await.unwrap();
    member
}

async fn get(by: &Member, id: &FrameworkId, key: &str) -> Result<Option<StateValue>, StateRefused> {
    let question = GetState {
        framework_id: id.clone(),
        scheduler: by.pid.clone(),
        key: key.to_owned(),
    };
    by.node.ask(&by.master, question, PATIENCE).await.unwrap()
}

async fn change(
    by: &Member,
    id: &FrameworkId,
    key: &str,
    expected: Option<u64>,
    value: Option<Vec<u8>>,
) -> Result<u64, StateRefused> {
    let change = ChangeState {
        framework_id: id.clone(),
        scheduler: by.pid.clone(),
        key: key.to_owned(),
        expected,
        value,
    };
    by.node.ask(&by.master, change, PATIENCE).await.unwrap()
}

// Covers S134.
#[test]
fn one_standby_leads_after_the_leader_is_gone() {
    simulate_world(|world| async move {
        let (agent, a) = world.agent("agent-1").await;
        let (first, f) = leader(&world, "web-1", web()).await;
        let second = standby(&world, "web-2", web()).await;
        let third = standby(&world, "web-3", web()).await;
        world.launch(&first, &f, task("t", &a, "cpus:1")).await;
        agent.received();
        world.allocator();

        world.network.leave("web-1");
        world.settle().await;
        second.receives("you lead 0000");
        third.receives("");
        // No failover timeout, and yet the task goes on.
        agent.receives("framework web");
        world.facts_are("framework 0000 active false | framework 0000 active true");
        assert_eq!(world.faults.state().leading[&f], second.pid);

        let ended = update(&agent.node, &f, &a, "t", TaskState::Finished);
        world.tell(&agent, ended.clone()).await;
        second.receives("t TASK_FINISHED");
        world.tell(&second, acknowledgement(&f, &ended)).await;
        agent.receives("acknowledge t");

        world.network.leave("web-2");
        world.settle().await;
        third.receives("you lead 0000");
        world.network.leave("web-3");
        world.settle().await;
        assert_eq!(world.state().await.frameworks.iter().count(), 0);
        assert!(world.faults.state().leading.is_empty());
    });
}

/// S134: the returning old leader is a standby, and its calls are ignored.
// Covers S134.
#[test]
fn replaced_leader_stands_by_and_is_refused() {
    simulate_world(|world| async move {
        let (first, f) = leader(&world, "web-1", web()).await;
        let second = standby(&world, "web-2", web()).await;
        change(&first, &f, "k", Some(0), Some(b"1".to_vec()))
            .await
            .unwrap();
        world.network.sever("master", "web-1");
        world.settle().await;
        world.network.heal("master", "web-1");
        second.receives("you lead 0000");

        let first = at(&world, first).await;
        let late = change(&first, &f, "k", None, Some(b"late".to_vec())).await;
        assert!(
            matches!(&late, Err(StateRefused::NotLeading { reason }) if reason.contains("expected the one that leads")),
            "{late:?}"
        );
        assert_matches!(
            get(&first, &f, "k").await,
            Err(StateRefused::NotLeading { .. })
        );
        first.say(TearDown {
            framework_id: f.clone(),
        });
        world.settle().await;
        assert_eq!(world.state().await.frameworks.iter().count(), 1);

        let standing = stand_by(&first, web()).await;
        assert!(matches!(standing, Ok(StandbyReply::StandsBy(_))));
        let kept = get(&first, &f, "k").await.unwrap();
        assert_eq!(kept.unwrap().value, b"1", "a standby may read");
        let written = change(&first, &f, "k", None, Some(b"late".to_vec())).await;
        assert!(matches!(written, Err(StateRefused::NotLeading { .. })));
        world.network.leave("web-2");
        world.settle().await;
        first.receives("you lead 0000");
    });
}

#[test]
fn simultaneous_schedulers_are_one_framework_with_one_leader() {
    simulate_world(|world| async move {
        let one = world.member("web-1", "scheduler", Role::Framework).await;
        let two = world.member("web-2", "scheduler", Role::Framework).await;
        world.faults.delay(Duration::from_secs(1));
        let (first, second) =
            futures_util::future::join(stand_by(&one, web()), stand_by(&two, web())).await;
        assert!(matches!(first, Ok(StandbyReply::Leads(_))), "{first:?}");
        assert_matches!(second, Err(SubscriptionRefused::NotNow { .. }));
        let again = stand_by(&two, web()).await;
        assert!(matches!(again, Ok(StandbyReply::StandsBy(_))), "{again:?}");
        assert_eq!(world.state().await.frameworks.iter().count(), 1);

        let mut other = web();
        other.principal = Some("somebody else".to_owned());
        let three = world.member("web-3", "scheduler", Role::Framework).await;
        let three = stand_by(&three, other).await.unwrap();
        world.settle().await;
        assert!(
            matches!(three, StandbyReply::Leads(_)),
            "another principal's is another framework"
        );
        assert_eq!(world.state().await.frameworks.iter().count(), 2);
    });
}

#[test]
fn standby_that_dies_during_its_appointment_is_skipped() {
    simulate_world(|world| async move {
        let (_first, f) = leader(&world, "web-1", web()).await;
        let second = standby(&world, "web-2", web()).await;
        let third = standby(&world, "web-3", web()).await;
        world.faults.delay(Duration::from_secs(2));
        world.faults.refuse(RegistryError::NotNow {
            reason: "busy".to_owned(),
        });
        world.network.leave("web-1");
        world.pass(1).await;
        let late = standby(&world, "web-4", web()).await;
        world.pass(1).await;
        world.network.leave("web-2");
        world.settle().await;
        second.receives("");
        world.pass(5).await;
        third.receives("you lead 0000");
        late.receives("");
        assert_eq!(world.faults.state().leading[&f], third.pid);
    });
}

/// S134: after a failover of the master the previous leader leads again, in any order of arrival.
// Covers S134.
#[test]
fn next_master_prefers_the_previous_leading_scheduler() {
    simulate_world(|world| async move {
        let (first, f) = leader(&world, "web-1", web()).await;
        let second = standby(&world, "web-2", web()).await;
        change(&first, &f, "k", Some(0), Some(b"1".to_vec()))
            .await
            .unwrap();

        let world = next_master(world, "master-2").await;
        let (first, second) = (at(&world, first).await, at(&world, second).await);
        let standing = stand_by(&second, web()).await;
        assert_matches!(standing, Ok(StandbyReply::StandsBy(_)));
        world.pass(LEADER_PREFERRED.as_secs() - 1).await;
        let standing = stand_by(&first, web()).await;
        assert_matches!(standing, Ok(StandbyReply::Leads(_)));
        world.pass(60).await;
        second.receives("");
        assert_eq!(get(&first, &f, "k").await.unwrap().unwrap().value, b"1");

        let world = next_master(world, "master-3").await;
        let second = at(&world, second).await;
        let standing = stand_by(&second, web()).await;
        assert_matches!(standing, Ok(StandbyReply::StandsBy(_)));
        world.pass(LEADER_PREFERRED.as_secs()).await;
        // Its wait is over.
        second.receives("you lead 0000");
        let first = at(&world, first).await;
        let standing = stand_by(&first, web()).await;
        assert!(
            matches!(standing, Ok(StandbyReply::StandsBy(_))),
            "and now it is too late: {standing:?}"
        );
    });
}

#[test]
fn framework_state_and_standbys_end_with_the_framework() {
    simulate_world(|world| async move {
        let (first, f) = leader(&world, "web-1", web()).await;
        let second = standby(&world, "web-2", web()).await;
        let version = change(&first, &f, "k", Some(0), Some(b"1".to_vec())).await;
        let version = version.unwrap();
        let stale = change(&first, &f, "k", Some(0), Some(b"2".to_vec())).await;
        assert_eq!(stale, Err(StateRefused::Conflict { found: version }));
        let newer = change(&first, &f, "k", Some(version), Some(b"2".to_vec()));
        assert!(newer.await.unwrap() > version);
        assert_eq!(get(&second, &f, "k").await.unwrap().unwrap().value, b"2");
        assert_eq!(change(&first, &f, "k", None, None).await, Ok(0));
        assert_eq!(get(&first, &f, "k").await, Ok(None));
        change(&first, &f, "left", None, Some(b"x".to_vec()))
            .await
            .unwrap();
        first.say(TearDown {
            framework_id: f.clone(),
        });
        world.settle().await;
        second.receives("failed the framework is over");
        assert_eq!(world.faults.state().framework_states.iter().count(), 0);
        assert_matches!(
            get(&second, &f, "left").await,
            Err(StateRefused::NotLeading { .. })
        );
    });
}

#[test]
fn excessive_or_foreign_state_is_refused_by_name() {
    simulate_world(|world| async move {
        let (first, f) = leader(&world, "web-1", web()).await;
        let stranger = world.member("other", "scheduler", Role::Framework).await;
        let never = |refused: Result<u64, StateRefused>, field: &str| match refused {
            Err(StateRefused::Never { reason }) => assert!(reason.contains(field), "{reason}"),
            other => panic!("{other:?}"),
        };
        let big = vec![0; STATE_VALUE_BYTES_MAX + 1];
        never(change(&first, &f, "k", None, Some(big)).await, "value");
        let long = "k".repeat(STATE_KEY_BYTES_MAX + 1);
        never(change(&first, &f, &long, None, Some(vec![])).await, "key");
        let longest = change(&first, &f, "k", None, Some(vec![0; STATE_VALUE_BYTES_MAX])).await;
        longest.unwrap();
        for id in [&f, &FrameworkId::new("nobody").unwrap()] {
            let refused = change(&stranger, id, "k", None, Some(vec![])).await;
            assert_matches!(refused, Err(StateRefused::NotLeading { .. }));
        }
        // A scheduler that claims to be the leading one of another node.
        let forged = GetState {
            framework_id: f.clone(),
            scheduler: first.pid.clone(),
            key: "k".to_owned(),
        };
        let forged = stranger.node.ask(&stranger.master, forged, PATIENCE).await;
        assert_matches!(forged, Ok(Err(StateRefused::Never { .. })));
        let forged = StandBy {
            framework: web(),
            scheduler: first.pid.clone(),
            wants: Default::default(),
        };
        let forged = stranger.node.ask(&stranger.master, forged, PATIENCE).await;
        assert_matches!(forged, Ok(Err(SubscriptionRefused::Never { .. })));

        for nth in 0..STANDBYS_MAX {
            standby(&world, &format!("standby-{nth}"), web()).await;
        }
        let refused = stand_by(&stranger, web()).await;
        assert!(
            matches!(&refused, Err(SubscriptionRefused::NotNow { reason }) if reason.contains("at most 8")),
            "{refused:?}"
        );
        world.network.leave("standby-0");
        world.settle().await;
        let admitted = stand_by(&stranger, web()).await;
        assert_matches!(admitted, Ok(StandbyReply::StandsBy(_)));
    });
}
