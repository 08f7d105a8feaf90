//! A registry that takes its time, refuses, or says that another master leads.

use super::*;
use crate::registry::RegistryError;

fn not_now() -> RegistryError {
    RegistryError::NotNow {
        reason: "busy".to_owned(),
    }
}

#[test]
fn nobody_is_told_before_the_registry_has_answered() {
    rehearse_network(|network| async move {
        let world = World::new(network, Config::default()).await;
        world.whims.delay(Duration::from_secs(3));
        let agent = world.member("agent-1", "agent", Role::Agent).await;
        let asked = agent
            .node
            .ask(&agent.master, registration(&agent, None, vec![]), PATIENCE);
        world.pass(2).await;
        assert_eq!(world.books().await.agents.iter().count(), 0);
        assert_eq!(world.allocator(), ["begin"]);
        let twice = register(&agent, None, vec![]).await;
        assert!(
            matches!(twice, Err(RegistrationRefused::NotNow { .. })),
            "one admission at a time"
        );
        world.pass(1).await;
        let a = asked.await.unwrap().unwrap().agent_id;
        assert_eq!(world.allocator(), ["agent S0 used []"]);

        let (scheduler, f) = world.framework("web", |_| ()).await;
        let offer = world.offer(&scheduler, &f, &a, "cpus:1").await;
        scheduler.tell(accept(&f, &[&offer], vec![task("t", &a, "cpus:1")]));
        world.settle().await;
        scheduler.heard();
        world.whims.delay(Duration::from_secs(20));
        agent.answers.store(false, Ordering::Relaxed);
        world.pass(15 + 75).await;
        assert_eq!(
            scheduler.heard(),
            Vec::<String>::new(),
            "it is asked, and has not answered"
        );
        let back = register(&agent, Some(a.clone()), vec![]).await;
        assert!(matches!(back, Err(RegistrationRefused::NotNow { .. })));
        world.pass(20).await;
        assert_eq!(
            scheduler.heard(),
            ["t TASK_LOST REASON_SLAVE_REMOVED", "lost S0"]
        );
    });
}

#[test]
fn a_scheduler_that_asks_twice_while_the_registry_thinks_is_one_framework() {
    rehearse_network(|network| async move {
        let world = World::new(network, Config::default()).await;
        let scheduler = world.member("web", "scheduler", Role::Framework).await;
        world.whims.delay(Duration::from_secs(3));
        let message = Subscribe {
            framework: FrameworkInfo::new("nobody", "web"),
            scheduler: scheduler.pid.clone(),
            wants: Default::default(),
        };
        let asked = scheduler
            .node
            .ask(&scheduler.master, message.clone(), PATIENCE);
        world.settle().await;
        let twice = subscribe(&scheduler, message.framework.clone()).await;
        assert!(matches!(twice, Err(SubscriptionRefused::NotNow { .. })));
        let f = asked.await.unwrap().unwrap().framework_id;
        let again = subscribe(&scheduler, message.framework).await.unwrap();
        assert_eq!(again.framework_id, f);
        assert_eq!(world.books().await.frameworks.iter().count(), 1);
    });
}

#[test]
fn what_the_registry_refuses_for_now_is_not_done_and_asked_again() {
    rehearse_network(|network| async move {
        let world = World::new(network, Config::default()).await;
        let agent = world.member("agent-1", "agent", Role::Agent).await;
        world.whims.refuse(not_now());
        let refused = register(&agent, None, vec![]).await;
        assert!(matches!(refused, Err(RegistrationRefused::NotNow { .. })));
        assert_eq!(world.books().await.agents.iter().count(), 0);
        let a = register(&agent, None, vec![]).await.unwrap().agent_id;

        let scheduler = world.member("web", "scheduler", Role::Framework).await;
        world.whims.refuse(not_now());
        let refused = subscribe(&scheduler, FrameworkInfo::new("nobody", "web")).await;
        assert!(matches!(refused, Err(SubscriptionRefused::NotNow { .. })));
        let f = subscribe(&scheduler, FrameworkInfo::new("nobody", "web"))
            .await
            .unwrap()
            .framework_id;

        world.whims.refuse(not_now());
        world.whims.refuse(not_now());
        agent.answers.store(false, Ordering::Relaxed);
        world.pass(75 + 15).await;
        assert_eq!(scheduler.heard(), Vec::<String>::new());
        world.pass(2).await;
        assert_eq!(scheduler.heard(), [format!("lost {}", short(&a))]);

        world.whims.refuse(not_now());
        scheduler.tell(TearDown {
            framework_id: f.clone(),
        });
        world.settle().await;
        assert_eq!(world.books().await.frameworks.completed().count(), 0);
        world.pass(1).await;
        assert_eq!(world.books().await.frameworks.completed().count(), 1);
    });
}

#[test]
fn a_master_that_lost_its_leadership_ends_and_its_agents_hear_of_it() {
    rehearse_network(|network| async move {
        let world = World::new(network, Config::default()).await;
        let (agent, _) = world.agent("agent-1").await;
        let ended = agent.node.ended(&agent.master);
        let scheduler = world.member("web", "scheduler", Role::Framework).await;
        world.whims.refuse(RegistryError::LostLeadership);
        let message = Subscribe {
            framework: FrameworkInfo::new("nobody", "web"),
            scheduler: scheduler.pid.clone(),
            wants: Default::default(),
        };
        let answer = scheduler
            .node
            .ask(&scheduler.master, message, PATIENCE)
            .await;
        assert!(!matches!(answer, Ok(Ok(_))), "{answer:?}");
        assert_eq!(ended.await, Exit::Stopped);
    });
}

/// SPEC 3.2 and 3.13, Master failover.
#[test]
fn a_new_master_knows_from_the_registry_whom_to_wait_for() {
    rehearse_network(|network| async move {
        let first = World::new(network.clone(), Config::default()).await;
        let (agent, a) = first.agent("agent-1").await;
        let (_gone, b) = first.agent("agent-2").await;
        let (_old, f) = first
            .framework("web", |info| {
                info.failover_timeout = Duration::from_secs(3600)
            })
            .await;
        network.leave("master");
        let node = network.node("master", Role::Master, &[Role::Agent, Role::Framework]);
        let world = World::on(network, node, Config::default(), first.whims.clone()).await;
        assert_eq!(world.allocator(), ["begin", "framework 0000 active false"]);

        let mut agent = agent;
        agent.master = agent.node.find("master", "master", PATIENCE).await.unwrap();
        let tasks = vec![running(&f, task("t", &a, "cpus:1"), TaskState::Running)];
        assert_eq!(
            register(&agent, Some(a.clone()), tasks)
                .await
                .unwrap()
                .agent_id,
            a
        );
        assert_eq!(
            world.allocator().last().unwrap(),
            "agent S0 used [0000=cpus:1]"
        );

        let scheduler = world.member("web-2", "scheduler", Role::Framework).await;
        let mut info = FrameworkInfo::new("nobody", "web");
        info.id = Some(f.clone());
        assert_eq!(subscribe(&scheduler, info).await.unwrap().framework_id, f);
        let id = |text: &str| TaskId::new(text).unwrap();
        let asked = vec![(id("t"), None), (id("x"), None), (id("y"), Some(b.clone()))];
        scheduler.tell(ReconcileTasks {
            framework_id: f.clone(),
            tasks: asked.clone(),
        });
        world.settle().await;
        let known = "t TASK_RUNNING REASON_RECONCILIATION".to_owned();
        assert_eq!(
            scheduler.heard(),
            [known],
            "no answer while an agent may still know"
        );
        world.pass(600).await;
        assert_eq!(scheduler.heard(), ["lost S1"], "ten minutes are over");
        let counters = world.books().await.counters.clone();
        assert_eq!(counters.get("master/recovery_slave_removals"), 1);
        scheduler.tell(ReconcileTasks {
            framework_id: f.clone(),
            tasks: asked,
        });
        world.settle().await;
        assert_eq!(scheduler.heard().len(), 3);
    });
}

/// W14.
#[test]
fn a_failover_timeout_that_began_at_one_master_ends_at_the_next() {
    rehearse_network(|network| async move {
        let first = World::new(network.clone(), Config::default()).await;
        let (_old, f) = first
            .framework("web", |info| {
                info.failover_timeout = Duration::from_secs(60)
            })
            .await;
        network.leave("web");
        first.pass(30).await;
        network.leave("master");
        let node = network.node("master", Role::Master, &[Role::Agent, Role::Framework]);
        let world = World::on(network, node, Config::default(), first.whims.clone()).await;
        world.pass(29).await;
        assert!(world.whims.state().frameworks.contains_key(&f), "59 s");
        world.pass(2).await;
        assert!(!world.whims.state().frameworks.contains_key(&f), "61 s");

        let late = world.member("web-2", "scheduler", Role::Framework).await;
        let mut info = FrameworkInfo::new("nobody", "web");
        info.id = Some(f);
        let refused = subscribe(&late, info).await.unwrap_err();
        assert!(
            matches!(&refused, SubscriptionRefused::Never { reason } if reason == "Framework has been removed"),
            "{refused}"
        );
    });
}

#[test]
fn an_allocator_that_fell_is_told_everything_anew() {
    rehearse_network(|network| async move {
        let world = World::new(network, Config::default()).await;
        let (_agent, a) = world.agent("agent-1").await;
        let (scheduler, f) = world.framework("web", |_| ()).await;
        let offer = world.offer(&scheduler, &f, &a, "cpus:1").await;
        scheduler.tell(accept(&f, &[&offer], vec![task("t", &a, "cpus:1")]));
        world.offer(&scheduler, &f, &a, "cpus:1").await;
        scheduler.heard();
        world.allocator();
        let hosts = Some(["foobar".to_owned()].into());
        let admit = crate::whitelist::AdmitHosts(hosts);
        world.master.tell(admit).unwrap();
        world.settle().await;
        assert_eq!(world.allocator(), ["hosts foobar"]);
        let allocator = world.node.whereis("allocator").unwrap();
        world.node.stop(&allocator);
        world.settle().await;
        assert_eq!(scheduler.heard(), ["rescind O1"]);
        let (_, raised, _) = recorder(&world.node, "allocator");
        world.pass(1).await;
        let anew = [
            "begin",
            "hosts foobar",
            "framework 0000 active true",
            "agent S0 used [0000=cpus:1]",
        ];
        assert_eq!(raised.take(), anew);
    });
}

/// DESIGN 6: answers of the books before are ignored. What they granted, those that were told anew hold for free.
#[test]
fn a_grant_of_books_that_have_begun_anew_since_is_no_offer() {
    rehearse_network(|network| async move {
        let world = World::new(network, Config::default()).await;
        let (_agent, a) = world.agent("agent-1").await;
        let (scheduler, f) = world.framework("web", |_| ()).await;
        for falls in 1..3 {
            let mut late = grant(&f, &a, "cpus:4");
            let books = world.books().await;
            late.session = books.agents.session_told(books.agents.get(&a).unwrap());
            let fallen = world.node.whereis("allocator").unwrap();
            world.node.stop(&fallen);
            world.settle().await;
            let (_, raised, _) = recorder(&world.node, "allocator");
            world.pass(1).await;
            assert_eq!(raised.take().len(), 3, "begin, framework, agent: {falls}");
            scheduler.heard();
            let granted = Granted { grants: vec![late] };
            world.node.tell(&world.master.pid(), granted).unwrap();
            world.settle().await;
            assert_eq!(scheduler.heard(), Vec::<String>::new(), "no offer");
            assert_eq!(raised.take(), Vec::<String>::new(), "nor anything free");
            // Those that there are now grant the same.
            world.offer(&scheduler, &f, &a, "cpus:8").await;
        }
    });
}

/// A fact that it missed would be missing in its books for ever; and books that begin anew know nothing of what is offered.
#[test]
fn an_allocator_that_has_missed_a_fact_begins_anew_and_nothing_is_offered_twice() {
    rehearse_network(|network| async move {
        let world = World::new(network, Config::default()).await;
        let (_agent, a) = world.agent("agent-1").await;
        let (scheduler, f) = world.framework("web", |_| ()).await;
        world.offer(&scheduler, &f, &a, "cpus:1").await;
        scheduler.heard();
        world.allocator();
        // Of this the master makes a fact, for which there is no room.
        let nobody = FrameworkId::new("nobody").unwrap();
        let grants = vec![Grant {
            session: world.books().await.agents.get(&a).unwrap().session,
            ..grant(&nobody, &a, "cpus:1")
        }];
        let (node, master) = (&world.node, world.master.pid());
        node.tell(&master, Granted { grants }).unwrap();
        let allocator = node.whereis("allocator").unwrap();
        for _ in 0..<Recorder as Process>::MAILBOX {
            let (framework_id, roles) = (f.clone(), BTreeSet::new());
            let fact = Revived {
                framework_id,
                roles,
            };
            node.tell(&allocator, fact).unwrap();
        }
        world.pass(1).await;
        assert_eq!(scheduler.heard(), ["rescind O0"]);
        let mut heard = world.allocator();
        heard.retain(|line| *line != "revived 0000");
        let anew = [
            "recovered 0000 cpus:1",
            "begin",
            "framework 0000 active true",
            "agent S0 used []",
        ];
        assert_eq!(heard, anew);
        world.pass(1).await;
        assert_eq!(world.allocator(), Vec::<String>::new(), "and once");
        world.offer(&scheduler, &f, &a, "cpus:8").await;
    });
}

/// S98: agents, frameworks and tasks go on while their allocator hears nothing at all, and it is told once it is there again.
#[test]
fn nobody_waits_for_an_allocator_that_does_nothing() {
    rehearse_network(|network| async move {
        let world = World::new(network, Config::default()).await;
        let (agent, a) = world.agent("agent-1").await;
        let (scheduler, f) = world.framework("web", |_| ()).await;
        let offer = world.offer(&scheduler, &f, &a, "cpus:1").await;
        let started = world.node.clock().now();
        let gone = world.node.whereis("allocator").unwrap();
        let delayed = Duration::from_secs(3600);
        world.node.set_tap(move |passing: &Passing<'_>| {
            let is_for_it = passing.to.is_some_and(|to| *to == gone);
            match is_for_it {
                true => Fate::Delay(delayed),
                false => Fate::Pass,
            }
        });
        let (_late, b) = world.agent("agent-2").await;
        let (_other, g) = world.framework("batch", |_| ()).await;
        scheduler.tell(accept(&f, &[&offer], vec![task("t", &a, "cpus:1")]));
        world.settle().await;
        let heard = agent.heard();
        assert!(heard[0].starts_with("run t="), "{heard:?}");
        agent.tell(update(&agent.node, &f, &a, "t", TaskState::Running));
        world.settle().await;
        assert!(scheduler.heard().contains(&"t TASK_RUNNING".to_owned()));
        let books = world.books().await;
        assert!(books.agents.get(&b).is_some() && books.frameworks.get(&g).is_some());
        assert_eq!(world.node.clock().now(), started, "nothing has waited");
    });
}
