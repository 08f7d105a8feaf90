//! Calls that are refused, each with its exact state and reason, while the cluster stays usable.

use testkit::assert_matches;

use crate::master::tests::*;

/// SPEC 3.13, Launch refused. Calls with tasks that must fail, and their statuses.
// Covers W3 in part: panics in the runtime and bad input at the master; 2.2 ACCEPT.
// Covers 3.13 Launch refused.
#[test]
fn invalid_accepts_have_specific_states_and_reasons() {
    simulate_world(|world| async move {
        let (agent, a) = world.agent("agent-1").await;
        let (_other_agent, b) = world.agent("agent-2").await;
        let (scheduler, f) = world.framework("web", |_| ()).await;
        let (rival, g) = world.framework("rival", |_| ()).await;
        let check = async |offers: &[&Offer], tasks: Vec<TaskInfo>, expected: &str, names: &str| {
            scheduler.received();
            scheduler.statuses();
            agent.received();
            world.tell(&scheduler, accept(&f, offers, tasks)).await;
            assert_eq!(scheduler.received(), [expected]);
            let message = scheduler.statuses().pop().unwrap().message;
            assert!(message.contains(names), "{message}");
            agent.receives("");
        };
        let (invalid_offers, invalid_task) = (
            "TASK_LOST REASON_INVALID_OFFERS",
            "TASK_ERROR REASON_TASK_INVALID",
        );

        let mut unknown = world.offer(&scheduler, &f, &a, "cpus:1").await;
        let good = unknown.clone();
        unknown.id = OfferId::new("no-such-offer").unwrap();
        world.allocator();
        check(
            &[&good, &unknown],
            vec![task("t", &a, "cpus:1")],
            &format!("t {invalid_offers}"),
            "no-such-offer",
        )
        .await;
        // The good offer is given back without a filter, but waits for the next batch.
        world.facts_are("recovered 0000 cpus:1 for 0ns");

        let (one, two) = (
            world.offer(&scheduler, &f, &a, "cpus:1").await,
            world.offer(&scheduler, &f, &b, "cpus:1").await,
        );
        check(
            &[&one, &two],
            vec![task("t", &a, "cpus:1")],
            &format!("t {invalid_offers}"),
            "Aggregated offers must belong to one single agent",
        )
        .await;

        let theirs = world.offer(&rival, &g, &a, "cpus:1").await;
        check(
            &[&theirs],
            vec![task("t", &a, "cpus:1")],
            &format!("t {invalid_offers}"),
            "is no longer valid",
        )
        .await;
        assert_eq!(
            world.state().await.offers.len(),
            1,
            "another framework's offer is left alone"
        );
        check(
            &[],
            vec![task("t", &a, "cpus:1")],
            &format!("t {invalid_offers}"),
            "No offers specified",
        )
        .await;

        let offer = async || world.offer(&scheduler, &f, &a, "cpus:1").await;
        check(
            &[&offer().await],
            vec![task("t", &a, "cpus:2")],
            &format!("t {invalid_task}"),
            "Total resources cpus:2 required by task",
        )
        .await;
        check(
            &[&offer().await],
            vec![task("t", &b, "cpus:1")],
            &format!("t {invalid_task}"),
            "Task uses invalid agent",
        )
        .await;
        let mut empty = task("t", &a, "cpus:1");
        empty.command = Some(CommandInfo::shell(""));
        check(
            &[&offer().await],
            vec![empty],
            &format!("t {invalid_task}"),
            "task.command.value",
        )
        .await;
        let mut nothing = task("t", &a, "cpus:1");
        nothing.command = None;
        check(
            &[&offer().await],
            vec![nothing],
            &format!("t {invalid_task}"),
            "Task should have at least one (but not both)",
        )
        .await;
        check(
            &[&offer().await],
            vec![task("t", &a, "")],
            &format!("t {invalid_task}"),
            "Task uses no resources",
        )
        .await;

        scheduler.received();
        let tasks = vec![
            task("good", &a, "cpus:0.5"),
            task("good", &a, "cpus:0.1"),
            task("also", &a, "cpus:0.5"),
        ];
        scheduler.tell(accept(&f, &[&offer().await], tasks));
        world.settle().await;
        assert!(
            scheduler
                .received()
                .contains(&format!("good {invalid_task}")),
            "a bad task stops no other"
        );
        assert!(agent.received().pop().unwrap().contains("also="));
    });
}

// Covers 2.2 ACCEPT; 3.13 Launch refused.
#[test]
fn partition_aware_framework_gets_dropped_instead_of_lost() {
    simulate_world(|world| async move {
        let (_agent, a) = world.agent("agent-1").await;
        let (scheduler, f) = world.framework("web", aware).await;
        scheduler.tell(accept(&f, &[], vec![task("t", &a, "cpus:1")]));
        world.settle().await;
        scheduler.receives("t TASK_DROPPED REASON_INVALID_OFFERS");
    });
}

// Covers 2.2 DECLINE; 3.13 Launch refused.
#[test]
fn an_accept_that_launches_nothing_is_a_decline() {
    simulate_pair(|world, (agent, a), (scheduler, f)| async move {
        let offer = world.offer(&scheduler, &f, &a, "cpus:1").await;
        world.allocator();
        world.tell(&scheduler, accept(&f, &[&offer], vec![])).await;
        world.facts_are("recovered 0000 cpus:1 for 5s");
        agent.receives("");
    });
}

#[test]
fn schedulers_act_only_for_their_framework_and_roles() {
    simulate_world(|world| async move {
        let (agent, a) = world.agent("agent-1").await;
        let (stranger, b) = world.agent("agent-2").await;
        let (scheduler, f) = world.framework("web", |_| ()).await;
        let (rival, _) = world.framework("rival", |_| ()).await;
        let offer = world.offer(&scheduler, &f, &a, "cpus:1").await;
        rival.tell(accept(&f, &[&offer], vec![task("t", &a, "cpus:1")]));
        rival.tell(TearDown {
            framework_id: f.clone(),
        });
        world.settle().await;
        assert_eq!(
            (
                world.state().await.offers.len(),
                world.state().await.frameworks.completed().count()
            ),
            (1, 0)
        );

        scheduler.tell(accept(&f, &[&offer], vec![task("t", &a, "cpus:1")]));
        world.settle().await;
        scheduler.received();
        let mut spoofed = update(&stranger.node, &f, &a, "t", TaskState::Finished);
        stranger.tell(spoofed.clone());
        spoofed.agent_id = b;
        stranger.tell(spoofed);
        stranger.tell(UnregisterAgent {
            agent_id: a.clone(),
        });
        world.settle().await;
        let state = world.state().await;
        assert_eq!(
            state
                .tasks
                .get(&f, &TaskId::new("t").unwrap())
                .unwrap()
                .state,
            TaskState::Staging
        );
        assert_eq!(state.agents.iter().count(), 2);
        assert_eq!(state.counters.get("master/invalid_status_updates"), 2);

        let refused = agent
            .node
            .ask(
                &agent.master,
                TearDown {
                    framework_id: f.clone(),
                },
                PATIENCE,
            )
            .await;
        assert_matches!(refused, Err(AskError::Refused { .. }));
        let refused = rival
            .node
            .ask(&rival.master, registration(&rival, None, vec![]), PATIENCE)
            .await;
        assert_matches!(refused, Err(AskError::Refused { .. }));
        let granted = Granted {
            grants: vec![grant(&f, &a, "cpus:100")],
        };
        let refused = rival.node.ask(&rival.master, granted, PATIENCE).await;
        assert_matches!(refused, Err(AskError::Refused { .. }));
        let mut posing = registration(&stranger, None, vec![]);
        posing.pid = agent.pid.clone();
        let refused = stranger
            .node
            .ask(&stranger.master, posing, PATIENCE)
            .await
            .unwrap();
        assert_matches!(refused, Err(RegistrationRefused::Never { .. }));
        let mut other = registration(&agent, None, vec![]);
        other.agent.id = Some(AgentId::new("another").unwrap());
        let refused = agent
            .node
            .ask(&agent.master, other, PATIENCE)
            .await
            .unwrap();
        assert_matches!(refused, Err(RegistrationRefused::Never { .. }));
        let mut other = FrameworkInfo::new("nobody", "web");
        other.id = Some(FrameworkId::new("another").unwrap());
        let refused = subscribe(&scheduler, other).await;
        assert_matches!(refused, Err(SubscriptionRefused::Never { .. }));
    });
}

/// Only the node is proved, but a node does not lie about its own actors to replace one by another.
#[test]
fn newer_scheduler_on_a_node_replaces_the_older() {
    simulate_pair(|world, (agent, a), (old, f)| async move {
        let mut new = world.member_on(old.node.clone(), "scheduler-2").await;
        new.master = old.master.clone();
        let mut info = FrameworkInfo::new("nobody", "web");
        info.id = Some(f.clone());
        subscribe(&new, info).await.unwrap();
        world.launch(&new, &f, task("t", &a, "cpus:1")).await;
        agent.received();
        let kill = kill_task(&f, "t");
        world.say(&old, kill.clone()).await;
        agent.receives("");
        world.say(&new, kill).await;
        agent.receives("kill t");
    });
}

#[test]
fn invalid_agent_description_is_refused_by_name() {
    simulate_world(|world| async move {
        let agent = world.member("agent-1", "agent", Role::Agent).await;
        let revocable = resources("cpus:1")
            .to_revocable(resources::Revocable::Throttleable)
            .unwrap();
        type Change = fn(&mut RegisterAgent, Resources);
        let changes: [(&str, Change); 3] = [
            ("agent.hostname", |m, _| m.agent.hostname.clear()),
            ("agent.resources", |m, revocable| {
                m.agent.resources = revocable
            }),
            ("oversubscribed", |m, _| {
                m.oversubscribed = resources("cpus:1")
            }),
        ];
        for (field, change) in changes {
            let mut message = registration(&agent, None, vec![]);
            change(&mut message, revocable.clone());
            let refused = agent
                .node
                .ask(&agent.master, message, PATIENCE)
                .await
                .unwrap()
                .unwrap_err();
            assert!(
                matches!(&refused, RegistrationRefused::Never { reason } if reason.starts_with(field)),
                "{refused}"
            );
        }
    });
}
