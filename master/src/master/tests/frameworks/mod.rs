//! Frameworks that lose their schedulers, come back and end.

pub(in crate::master::tests) mod over_http;
pub(in crate::master::tests) mod permissions;
pub(in crate::master::tests) mod refusals;
pub(in crate::master::tests) mod standbys;

use super::*;

/// Task `t` of a framework with this failover timeout, and an offer that is out.
async fn story(
    network: Network,
    seconds: u64,
) -> (World, (Member, AgentId), (Member, FrameworkId)) {
    let world = World::new(network, Config::default()).await;
    let (agent, a) = world.agent("agent-1").await;
    let (scheduler, f) = world
        .framework("web", |info| {
            info.failover_timeout = Duration::from_secs(seconds)
        })
        .await;
    let offer = world.offer(&scheduler, &f, &a, "cpus:1").await;
    scheduler.tell(accept(&f, &[&offer], vec![task("t", &a, "cpus:1")]));
    world.settle().await;
    world.offer(&scheduler, &f, &a, "cpus:2").await;
    world.allocator();
    agent.received();
    scheduler.received();
    (world, (agent, a), (scheduler, f))
}

/// SPEC 2.2, Failover.
// Covers 2.2 Failover.
#[test]
fn framework_back_before_failover_timeout_keeps_its_tasks() {
    simulate_network(|network| async move {
        let (world, (agent, _), (_, f)) = story(network, 60).await;
        world.network.leave("web");
        world.settle().await;
        world.facts_are("framework 0000 active false | recovered 0000 cpus:2");
        assert!(
            world.faults.state().frameworks[&f].deadline.is_some(),
            "the deadline is recorded"
        );
        world.pass(59).await;
        let again = world.member("web-2", "scheduler", Role::Framework).await;
        let mut info = FrameworkInfo::new("nobody", "web");
        info.id = Some(f.clone());
        info.failover_timeout = Duration::from_secs(60);
        assert_eq!(subscribe(&again, info).await.unwrap().framework_id, f);
        assert_eq!(world.faults.state().frameworks[&f].deadline, None);
        world.pass(3600).await;
        // The task was left alone.
        agent.receives("framework web");
        again.tell(reconcile(&f, vec![]));
        world.settle().await;
        again.receives("t TASK_STAGING REASON_RECONCILIATION");
    });
}

// Covers 2.2 Failover.
#[test]
fn a_framework_that_stays_away_longer_is_over() {
    simulate_network(|network| async move {
        let (world, (agent, _), (_, f)) = story(network, 60).await;
        world.network.leave("web");
        world.pass(59).await;
        agent.receives("");
        world.allocator();
        world.pass(1).await;
        agent.receives("shut down 0000");
        world.facts_are("recovered 0000 cpus:1 | no framework 0000");
        let state = world.state().await;
        let completed = state.frameworks.completed().next().unwrap();
        let killed = completed.tasks.completed().next().unwrap();
        let last = killed.statuses.last().unwrap();
        assert_eq!(
            (last.state, last.reason),
            (TaskState::Killed, Some(Reason::FrameworkRemoved))
        );

        let late = world.member("web-2", "scheduler", Role::Framework).await;
        let mut info = FrameworkInfo::new("nobody", "web");
        info.id = Some(f.clone());
        let refused = subscribe(&late, info).await.unwrap_err();
        assert!(
            matches!(&refused, SubscriptionRefused::Never { reason } if reason == "Framework has been removed"),
            "{refused}"
        );
    });
}

// Covers 2.2 Failover.
#[test]
fn framework_without_failover_timeout_ends_with_its_scheduler() {
    simulate_network(|network| async move {
        let (world, (agent, a), (_, f)) = story(network, 0).await;
        world.network.leave("web");
        world.settle().await;
        agent.receives("shut down 0000");
        let ended = update(&agent.node, &f, &a, "t", TaskState::Killed);
        world.tell(&agent, ended).await;
        // The master acknowledges in its stead.
        agent.receives("acknowledge t");
    });
}

/// SPEC 3.13, Scheduler failover: newest wins.
// Covers 2.2 SUBSCRIBE; 3.13 Scheduler failover.
#[test]
fn new_scheduler_replaces_the_old_one() {
    simulate_network(|network| async move {
        let (world, (agent, a), (old, f)) = story(network, 0).await;
        let new = world.member("web-2", "scheduler", Role::Framework).await;
        let mut info = FrameworkInfo::new("nobody", "web");
        info.id = Some(f.clone());
        subscribe(&new, info.clone()).await.unwrap();
        world.settle().await;
        old.receives("failed Framework failed over");
        old.tell(kill_task(&f, "t"));
        old.tell(TearDown {
            framework_id: f.clone(),
        });
        world.network.leave("web");
        world.settle().await;
        // The end of the old scheduler has no effect.
        agent.receives("framework web");
        world.update(&agent, &f, &a, "t", TaskState::Running).await;
        new.receives("t TASK_RUNNING");
        info.principal = Some("somebody else".to_owned());
        let refused = subscribe(&new, info).await.unwrap_err();
        assert!(
            refused.to_string() == "Changing framework's principal is not allowed.",
            "{refused}"
        );
    });
}

// Covers 2.2 SUBSCRIBE; 2.2 TEARDOWN.
#[test]
fn torn_down_framework_is_refused_for_ever() {
    simulate_network(|network| async move {
        let (world, (agent, _), (scheduler, f)) = story(network, 3600).await;
        scheduler.tell(TearDown {
            framework_id: f.clone(),
        });
        world.settle().await;
        scheduler.receives("failed Framework has been removed");
        agent.receives("shut down 0000");
        assert!(world.faults.state().removed_frameworks.contains(&f));
        world.network.leave("web");
        world.pass(4000).await;
        assert_eq!(world.state().await.frameworks.completed().count(), 1);
    });
}

/// SPEC 2.2, RECONCILE.
// Covers 2.2 RECONCILE.
#[test]
fn tasks_are_reconciled_by_task_and_agent_knowledge() {
    simulate_world(|world| async move {
        let (agent, a) = world.agent("agent-1").await;
        let (silent, b) = world.agent("agent-2").await;
        silent.answers.store(false, Ordering::Relaxed);
        world.pass(100).await;
        let (scheduler, f) = world.framework("aware", aware).await;
        let (plain, g) = world.framework("plain", |_| ()).await;
        world
            .launch(&scheduler, &f, task("known", &a, "cpus:1"))
            .await;
        agent.tell(update(&agent.node, &f, &a, "known", TaskState::Running));
        world.settle().await;
        scheduler.received();
        plain.received();
        scheduler.statuses();

        let unknown = AgentId::new("nobody").unwrap();
        let id = |text: &str| TaskId::new(text).unwrap();
        let asked = vec![
            (id("known"), None),
            (id("on-registered"), Some(a.clone())),
            (id("on-unreachable"), Some(b.clone())),
            (id("on-unknown"), Some(unknown)),
            (id("nowhere"), None),
        ];
        scheduler.tell(reconcile(&f, asked.clone()));
        plain.tell(reconcile(&g, asked));
        scheduler.tell(reconcile(&f, vec![]));
        world.settle().await;
        let states = |heard: Vec<String>| -> Vec<String> {
            heard
                .iter()
                .map(|line| line.replace(" REASON_RECONCILIATION", ""))
                .collect()
        };
        assert_eq!(
            states(scheduler.received()),
            [
                "known TASK_RUNNING",
                "on-registered TASK_GONE",
                "on-unreachable TASK_UNREACHABLE",
                "on-unknown TASK_UNKNOWN",
                "nowhere TASK_UNKNOWN",
                "known TASK_RUNNING",
            ]
        );
        assert!(
            states(plain.received())
                .iter()
                .all(|line| line.ends_with("TASK_LOST"))
        );
        assert!(
            scheduler
                .statuses()
                .iter()
                .all(|status| status.uuid.is_none())
        );
    });
}

/// S77 and SPEC 3.8, `--roles`.
#[test]
fn unserved_role_is_refused_by_name() {
    simulate_network(|network| async move {
        let roles = Some(Config::parse_roles("dev,qa").unwrap());
        let world = World::new(
            network,
            Config {
                roles,
                root_submissions: false,
                ..Config::default()
            },
        )
        .await;
        let scheduler = world.member("web", "scheduler", Role::Framework).await;
        let refusal = async |change: fn(&mut FrameworkInfo)| {
            let mut info = FrameworkInfo::new("nobody", "web");
            change(&mut info);
            subscribe(&scheduler, info)
                .await
                .map(|_| ())
                .map_err(|refused| refused.to_string())
        };
        let error = refusal(|info| info.roles = BTreeSet::from(["prod".to_owned()]))
            .await
            .unwrap_err();
        assert_eq!(
            error,
            "Roles { prod } are not present in the master's --roles"
        );
        let error = refusal(|info| info.roles.clear()).await.unwrap_err();
        assert!(error.starts_with("framework.roles is"), "{error}");
        let error = refusal(|info| info.user = "root".into()).await.unwrap_err();
        assert!(error.starts_with("User 'root' is not allowed"), "{error}");
        assert_eq!(
            refusal(|info| info.roles = BTreeSet::from(["dev".to_owned()])).await,
            Ok(())
        );
    });
}

// Covers S124; 2.2 REVIVE, SUPPRESS.
#[test]
fn suppress_and_revive_apply_to_own_roles() {
    simulate_world(|world| async move {
        let (scheduler, f) = world.framework("web", |_| ()).await;
        world.allocator();
        // One that it does not have is passed over.
        for roles in [&[][..], &["*"], &["other"], &["*", "other"]] {
            let roles: BTreeSet<String> = roles.iter().map(|&role| role.to_owned()).collect();
            scheduler.tell(SuppressOffers {
                framework_id: f.clone(),
                roles: roles.clone(),
            });
            scheduler.tell(ReviveOffers {
                framework_id: f.clone(),
                roles,
            });
        }
        world.settle().await;
        let both = ["suppressed 0000", "revived 0000"];
        assert_eq!(world.allocator(), [both, both, both].concat());
        let state = world.state().await;
        assert_eq!(state.counters.get("master/dropped_messages"), 4);
    });
}

/// SPEC 2.2, UPDATE_FRAMEWORK: all but user, principal and checkpoint; offers of roles that were
/// left are rescinded, others stay.
// Covers 2.2 UPDATE_FRAMEWORK.
#[test]
fn framework_changes_without_a_new_subscription() {
    simulate_world(|world| async move {
        let (_, a) = world.agent("agent-1").await;
        let multi = |info: &mut FrameworkInfo| {
            info.capabilities.insert(protocol::Capability::MultiRole);
            info.roles = BTreeSet::from(["dev".to_owned(), "qa".to_owned()]);
        };
        let (scheduler, f) = world.framework("web", multi).await;
        let grants = [("dev", "cpus:1"), ("qa", "cpus:2")].map(|(role, text)| Grant {
            role: role.to_owned(),
            resources: resources(text).allocate(&ResourceRole::new(role).unwrap()),
            ..grant(&f, &a, text)
        });
        world.grant(grants.to_vec()).await;
        scheduler.received();
        world.allocator();
        let update = |change: &dyn Fn(&mut UpdateFramework)| {
            let mut framework = FrameworkInfo::new("nobody", "web");
            multi(&mut framework);
            let mut message = UpdateFramework {
                framework_id: f.clone(),
                framework,
                wants: Default::default(),
            };
            change(&mut message);
            scheduler.node.ask(&scheduler.master, message, PATIENCE)
        };
        let refused = async |change: &dyn Fn(&mut UpdateFramework)| {
            update(change).await.unwrap().unwrap_err().to_string()
        };
        let reason = refused(&|message| message.framework.user = "else".to_owned()).await;
        assert_eq!(
            reason,
            "FrameworkInfo update is not valid: Updating 'FrameworkInfo.user' is unsupported; attempted to update from 'nobody' to 'else'"
        );
        let reason = refused(&|message| message.framework.checkpoint = true).await;
        assert_contains!(reason, "'FrameworkInfo.checkpoint' is unsupported");
        let reason = refused(&|message| {
            let demand = protocol::Demand::on_hosts(["a"]);
            message.wants.demands.insert("other".to_owned(), demand);
        });
        let reason = reason.await;
        let expected = "'UpdateFramework.offer_constraints' are not valid: demands is `other`";
        assert!(reason.starts_with(expected), "{reason}");
        world.facts_are("");
        let left = update(&|message| {
            message.framework.name = "net".to_owned();
            message.framework.roles.remove("dev");
        });
        assert_eq!(left.await.unwrap(), Ok(()));
        world.settle().await;
        world.facts_are("recovered 0000 cpus:1 | framework 0000 active true");
        assert_eq!(scheduler.received().len(), 1, "one offer was rescinded");
        let recorded = world.faults.state().frameworks[&f].info.clone();
        assert_eq!((recorded.name.as_str(), recorded.roles.len()), ("net", 1));
    });
}

/// SPEC 3.2: agents use a framework's current description, not the one of its last launch.
// Covers 3.2 Framework info updates.
#[test]
fn agents_are_sent_changed_framework_descriptions() {
    simulate_network(|network| async move {
        let (world, (agent, a), (scheduler, f)) = story(network, 60).await;
        let (idle, _) = world.agent("agent-2").await;
        let named = |name: &str| FrameworkInfo {
            id: Some(f.clone()),
            failover_timeout: Duration::from_secs(60),
            ..FrameworkInfo::new("nobody", name)
        };
        let becomes = async |name: &str| {
            let update = UpdateFramework {
                framework_id: f.clone(),
                framework: named(name),
                wants: Default::default(),
            };
            let (node, master) = (&scheduler.node, &scheduler.master);
            node.ask(master, update, PATIENCE).await.unwrap().unwrap();
            world.settle().await;
        };
        let nothing = Vec::<String>::new();
        becomes("web").await;
        assert_eq!(agent.received(), nothing, "it is that already");
        becomes("new").await;
        agent.receives("framework new");
        assert_eq!(idle.received(), nothing, "it has nothing of it");
        // A disconnected agent gets it when it returns, whether or not it reports its own version.
        world.network.leave("agent-1");
        world.settle().await;
        becomes("newer").await;
        let agent = world.member("agent-1", "agent", Role::Agent).await;
        let tasks = || vec![running(&f, task("t", &a, "cpus:1"), TaskState::Running)];
        register(&agent, Some(a.clone()), tasks()).await.unwrap();
        world.settle().await;
        agent.receives("framework newer");

        // Also when a scheduler returns, changed or not: unacknowledged updates are sent again.
        let again = world.member("web-2", "scheduler", Role::Framework).await;
        for _ in 0..2 {
            subscribe(&again, named("newest")).await.unwrap();
            world.settle().await;
            agent.receives("framework newest");
        }
        assert_eq!(idle.received(), nothing);
    });
}

/// The same for a change missed under an earlier master, if the agent reports its version.
// Covers 3.2 Framework info updates.
#[test]
fn agent_with_outdated_framework_description_is_updated() {
    simulate_network(|network| async move {
        let (first, (mut agent, a), (_, f)) = story(network.clone(), 3600).await;
        let known = first.faults.state().frameworks[&f].info.clone();
        network.leave("master");
        let node = network.node("master", Role::Master, &[Role::Agent, Role::Framework]);
        let world = World::on(network, node, Config::default(), first.faults.clone()).await;
        agent.master = agent.node.find("master", "master", PATIENCE).await.unwrap();
        let mut other = known.clone();
        other.name = "what it was".to_owned();
        for (said, heard) in [(known, &[][..]), (other, &["framework web"])] {
            let tasks = vec![running(&f, task("t", &a, "cpus:1"), TaskState::Running)];
            let mut message = registration(&agent, Some(a.clone()), tasks);
            message.held.frameworks = vec![said];
            let registered = agent.node.ask(&agent.master, message, PATIENCE).await;
            registered.unwrap().unwrap();
            world.settle().await;
            assert_eq!(agent.received(), heard);
        }
    });
}
