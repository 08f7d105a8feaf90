//! Frameworks that lose their schedulers, come back and end.

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
    agent.heard();
    scheduler.heard();
    (world, (agent, a), (scheduler, f))
}

/// SPEC 2.2, Failover.
#[test]
fn a_framework_that_comes_back_within_its_failover_timeout_keeps_its_tasks() {
    rehearse_network(|network| async move {
        let (world, (agent, _), (_, f)) = story(network, 60).await;
        world.network.leave("web");
        world.settle().await;
        assert_eq!(
            world.allocator(),
            ["framework 0000 active false", "recovered 0000 cpus:2"]
        );
        assert!(
            world.whims.state().frameworks[&f].deadline.is_some(),
            "the deadline is recorded"
        );
        world.pass(59).await;
        let again = world.member("web-2", "scheduler", Role::Framework).await;
        let mut info = FrameworkInfo::new("nobody", "web");
        info.id = Some(f.clone());
        info.failover_timeout = Duration::from_secs(60);
        assert_eq!(subscribe(&again, info).await.unwrap().framework_id, f);
        assert_eq!(world.whims.state().frameworks[&f].deadline, None);
        world.pass(3600).await;
        assert_eq!(agent.heard(), ["framework web"], "the task was left alone");
        again.tell(ReconcileTasks {
            framework_id: f.clone(),
            tasks: vec![],
        });
        world.settle().await;
        assert_eq!(again.heard(), ["t TASK_STAGING REASON_RECONCILIATION"]);
    });
}

#[test]
fn a_framework_that_stays_away_longer_is_over() {
    rehearse_network(|network| async move {
        let (world, (agent, _), (_, f)) = story(network, 60).await;
        world.network.leave("web");
        world.pass(59).await;
        assert_eq!(agent.heard(), Vec::<String>::new());
        world.allocator();
        world.pass(1).await;
        assert_eq!(agent.heard(), ["shut down 0000"]);
        assert_eq!(
            world.allocator(),
            ["recovered 0000 cpus:1", "no framework 0000"]
        );
        let books = world.books().await;
        let completed = books.frameworks.completed().next().unwrap();
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

#[test]
fn a_framework_without_a_failover_timeout_ends_with_its_scheduler() {
    rehearse_network(|network| async move {
        let (world, (agent, a), (_, f)) = story(network, 0).await;
        world.network.leave("web");
        world.settle().await;
        assert_eq!(agent.heard(), ["shut down 0000"]);
        let ended = update(&agent.node, &f, &a, "t", TaskState::Killed);
        agent.tell(ended);
        world.settle().await;
        assert_eq!(
            agent.heard(),
            ["acknowledge t"],
            "the master acknowledges in its stead"
        );
    });
}

/// SPEC 3.13, Scheduler failover: newest wins.
#[test]
fn a_new_scheduler_replaces_the_old_one_which_is_told_to_stop() {
    rehearse_network(|network| async move {
        let (world, (agent, a), (old, f)) = story(network, 0).await;
        let new = world.member("web-2", "scheduler", Role::Framework).await;
        let mut info = FrameworkInfo::new("nobody", "web");
        info.id = Some(f.clone());
        subscribe(&new, info.clone()).await.unwrap();
        world.settle().await;
        assert_eq!(old.heard(), ["failed Framework failed over"]);
        old.tell(KillTask {
            framework_id: f.clone(),
            task_id: TaskId::new("t").unwrap(),
            agent_id: None,
            kill_policy: None,
        });
        old.tell(TearDown {
            framework_id: f.clone(),
        });
        world.network.leave("web");
        world.settle().await;
        assert_eq!(
            agent.heard(),
            ["framework web"],
            "the old one speaks for nobody, and its end means nothing"
        );
        agent.tell(update(&agent.node, &f, &a, "t", TaskState::Running));
        world.settle().await;
        assert_eq!(new.heard(), ["t TASK_RUNNING"]);
        info.principal = Some("somebody else".to_owned());
        let refused = subscribe(&new, info).await.unwrap_err();
        assert!(
            refused.to_string() == "Changing framework's principal is not allowed.",
            "{refused}"
        );
    });
}

#[test]
fn a_torn_down_framework_gets_one_error_and_is_refused_ever_after() {
    rehearse_network(|network| async move {
        let (world, (agent, _), (scheduler, f)) = story(network, 3600).await;
        scheduler.tell(TearDown {
            framework_id: f.clone(),
        });
        world.settle().await;
        assert_eq!(scheduler.heard(), ["failed Framework has been removed"]);
        assert_eq!(agent.heard(), ["shut down 0000"]);
        assert!(world.whims.state().removed_frameworks.contains(&f));
        world.network.leave("web");
        world.pass(4000).await;
        assert_eq!(world.books().await.frameworks.completed().count(), 1);
    });
}

/// SPEC 2.2, RECONCILE.
#[test]
fn each_task_is_reconciled_by_what_is_known_of_it_and_of_its_agent() {
    rehearse_network(|network| async move {
        let world = World::new(network, Config::default()).await;
        let (agent, a) = world.agent("agent-1").await;
        let (silent, b) = world.agent("agent-2").await;
        silent.answers.store(false, Ordering::Relaxed);
        world.pass(100).await;
        let (scheduler, f) = world.framework("aware", aware).await;
        let (plain, g) = world.framework("plain", |_| ()).await;
        let offer = world.offer(&scheduler, &f, &a, "cpus:1").await;
        scheduler.tell(accept(&f, &[&offer], vec![task("known", &a, "cpus:1")]));
        world.settle().await;
        agent.tell(update(&agent.node, &f, &a, "known", TaskState::Running));
        world.settle().await;
        scheduler.heard();
        plain.heard();
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
        scheduler.tell(ReconcileTasks {
            framework_id: f.clone(),
            tasks: asked.clone(),
        });
        plain.tell(ReconcileTasks {
            framework_id: g.clone(),
            tasks: asked,
        });
        scheduler.tell(ReconcileTasks {
            framework_id: f.clone(),
            tasks: vec![],
        });
        world.settle().await;
        let states = |heard: Vec<String>| -> Vec<String> {
            heard
                .iter()
                .map(|line| line.replace(" REASON_RECONCILIATION", ""))
                .collect()
        };
        assert_eq!(
            states(scheduler.heard()),
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
            states(plain.heard())
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
fn a_framework_in_a_role_that_is_not_served_is_refused_by_name() {
    rehearse_network(|network| async move {
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

#[test]
fn suppress_and_revive_reach_the_allocator_for_roles_the_framework_has() {
    rehearse_network(|network| async move {
        let world = World::new(network, Config::default()).await;
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
        let books = world.books().await;
        assert_eq!(books.counters.get("master/dropped_messages"), 4);
    });
}

/// SPEC 2.2, UPDATE_FRAMEWORK: all but user, principal and checkpoint; offers of roles that were left are rescinded, others stay.
#[test]
fn a_framework_becomes_something_else_without_subscribing_anew() {
    rehearse_network(|network| async move {
        let world = World::new(network, Config::default()).await;
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
        scheduler.heard();
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
        assert!(
            reason.contains("'FrameworkInfo.checkpoint' is unsupported"),
            "{reason}"
        );
        let reason = refused(&|message| {
            let demand = protocol::Demand::on_hosts(["a"]);
            message.wants.demands.insert("other".to_owned(), demand);
        });
        let reason = reason.await;
        let expected = "'UpdateFramework' call is not valid: Offer constraints specify";
        assert!(reason.starts_with(expected), "{reason}");
        assert_eq!(world.allocator(), Vec::<String>::new());
        let left = update(&|message| {
            message.framework.name = "net".to_owned();
            message.framework.roles.remove("dev");
        });
        assert_eq!(left.await.unwrap(), Ok(()));
        world.settle().await;
        assert_eq!(
            world.allocator(),
            ["recovered 0000 cpus:1", "framework 0000 active true"]
        );
        assert_eq!(scheduler.heard().len(), 1, "one offer was rescinded");
        let recorded = world.whims.state().frameworks[&f].info.clone();
        assert_eq!((recorded.name.as_str(), recorded.roles.len()), ("net", 1));
    });
}

/// SPEC 3.2: agents go by what a framework is, not by what it was when it last launched something.
#[test]
fn agents_with_something_of_a_framework_are_told_what_it_has_become() {
    rehearse_network(|network| async move {
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
        assert_eq!(agent.heard(), nothing, "it is that already");
        becomes("new").await;
        assert_eq!(agent.heard(), ["framework new"]);
        assert_eq!(idle.heard(), nothing, "it has nothing of it");
        // One that is away hears it when it is back, whether or not it says itself what it knows.
        world.network.leave("agent-1");
        world.settle().await;
        becomes("newer").await;
        let agent = world.member("agent-1", "agent", Role::Agent).await;
        let tasks = || vec![running(&f, task("t", &a, "cpus:1"), TaskState::Running)];
        register(&agent, Some(a.clone()), tasks()).await.unwrap();
        world.settle().await;
        assert_eq!(agent.heard(), ["framework newer"]);

        // So it is where a scheduler comes back, as something else or not: it is told again what it has not acknowledged.
        let again = world.member("web-2", "scheduler", Role::Framework).await;
        for _ in 0..2 {
            subscribe(&again, named("newest")).await.unwrap();
            world.settle().await;
            assert_eq!(agent.heard(), ["framework newest"]);
        }
        assert_eq!(idle.heard(), nothing);
    });
}

/// The same of a change that an agent has missed under an earlier master, if it says what it knows.
#[test]
fn an_agent_that_knows_a_framework_otherwise_than_the_registry_is_told() {
    rehearse_network(|network| async move {
        let (first, (mut agent, a), (_, f)) = story(network.clone(), 3600).await;
        let known = first.whims.state().frameworks[&f].info.clone();
        network.leave("master");
        let node = network.node("master", Role::Master, &[Role::Agent, Role::Framework]);
        let world = World::on(network, node, Config::default(), first.whims.clone()).await;
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
            assert_eq!(agent.heard(), heard);
        }
    });
}
