//! A registry that is slow, refuses, or reports another leader.

use super::*;
use crate::registry::RegistryError;

fn not_now() -> RegistryError {
    RegistryError::NotNow {
        reason: "busy".to_owned(),
    }
}

#[test]
fn nothing_is_published_before_the_record() {
    simulate_world(|world| async move {
        world.faults.delay(Duration::from_secs(3));
        let agent = world.member("agent-1", "agent", Role::Agent).await;
        let asked = agent
            .node
            .ask(&agent.master, registration(&agent, None, vec![]), PATIENCE);
        world.pass(2).await;
        assert_eq!(world.state().await.agents.iter().count(), 0);
        world.facts_are("begin");
        let twice = register(&agent, None, vec![]).await;
        assert!(
            matches!(twice, Err(RegistrationRefused::NotNow { .. })),
            "one admission at a time"
        );
        world.pass(1).await;
        let a = asked.await.unwrap().unwrap().agent_id;
        world.facts_are("agent S0 used []");

        let (scheduler, f) = world.framework("web", |_| ()).await;
        world.launch(&scheduler, &f, task("t", &a, "cpus:1")).await;
        scheduler.received();
        world.faults.delay(Duration::from_secs(20));
        agent.answers.store(false, Ordering::Relaxed);
        world.pass(15 + 75).await;
        // It is asked, and has not answered.
        scheduler.receives("");
        let back = register(&agent, Some(a.clone()), vec![]).await;
        assert!(matches!(back, Err(RegistrationRefused::NotNow { .. })));
        world.pass(20).await;
        scheduler.receives("t TASK_LOST REASON_SLAVE_REMOVED | lost S0");
    });
}

#[test]
fn repeated_subscription_creates_one_framework() {
    simulate_world(|world| async move {
        let scheduler = world.member("web", "scheduler", Role::Framework).await;
        world.faults.delay(Duration::from_secs(3));
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
        assert_eq!(world.state().await.frameworks.iter().count(), 1);
    });
}

#[test]
fn temporarily_refused_record_is_retried_before_publishing() {
    simulate_world(|world| async move {
        let agent = world.member("agent-1", "agent", Role::Agent).await;
        world.faults.refuse(not_now());
        let refused = register(&agent, None, vec![]).await;
        assert!(matches!(refused, Err(RegistrationRefused::NotNow { .. })));
        assert_eq!(world.state().await.agents.iter().count(), 0);
        let a = register(&agent, None, vec![]).await.unwrap().agent_id;

        let scheduler = world.member("web", "scheduler", Role::Framework).await;
        world.faults.refuse(not_now());
        let refused = subscribe(&scheduler, FrameworkInfo::new("nobody", "web")).await;
        assert!(matches!(refused, Err(SubscriptionRefused::NotNow { .. })));
        let f = subscribe(&scheduler, FrameworkInfo::new("nobody", "web"))
            .await
            .unwrap()
            .framework_id;

        world.faults.refuse(not_now());
        world.faults.refuse(not_now());
        agent.answers.store(false, Ordering::Relaxed);
        world.pass(75 + 15).await;
        scheduler.receives("");
        world.pass(2).await;
        assert_eq!(scheduler.received(), [format!("lost {}", short(&a))]);

        world.faults.refuse(not_now());
        scheduler.tell(TearDown {
            framework_id: f.clone(),
        });
        world.settle().await;
        assert_eq!(world.state().await.frameworks.completed().count(), 0);
        world.pass(1).await;
        assert_eq!(world.state().await.frameworks.completed().count(), 1);
    });
}

#[test]
fn master_that_lost_leadership_ends_visibly() {
    simulate_world(|world| async move {
        let (agent, _) = world.agent("agent-1").await;
        let ended = agent.node.ended(&agent.master);
        let scheduler = world.member("web", "scheduler", Role::Framework).await;
        world.faults.refuse(RegistryError::LostLeadership);
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
// Covers S131; 3.13 Master failover.
#[test]
fn new_master_awaits_the_registry_agents() {
    simulate_network(|network| async move {
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
        let world = World::on(network, node, Config::default(), first.faults.clone()).await;
        world.facts_are("begin | framework 0000 active false");

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
        scheduler.tell(reconcile(&f, asked.clone()));
        world.settle().await;
        let known = "t TASK_RUNNING REASON_RECONCILIATION".to_owned();
        assert_eq!(
            scheduler.received(),
            [known],
            "no answer while an agent may still know"
        );
        world.pass(600).await;
        // Ten minutes are over.
        scheduler.receives("lost S1");
        let counters = world.state().await.counters.clone();
        assert_eq!(counters.get("master/recovery_slave_removals"), 1);
        scheduler.tell(reconcile(&f, asked));
        world.settle().await;
        assert_eq!(scheduler.received().len(), 3);
    });
}

// Covers W14; 2.2 Failover.
#[test]
fn failover_timeout_continues_at_the_next_master() {
    simulate_network(|network| async move {
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
        let world = World::on(network, node, Config::default(), first.faults.clone()).await;
        world.pass(29).await;
        assert!(world.faults.state().frameworks.contains_key(&f), "59 s");
        world.pass(2).await;
        assert!(!world.faults.state().frameworks.contains_key(&f), "61 s");

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

// Covers S2 in part: estimator, controller and allocator, each replaced; S98.
#[test]
fn crashed_allocator_gets_the_whole_state_again() {
    simulate_pair(|world, (_agent, a), (scheduler, f)| async move {
        let offer = world.offer(&scheduler, &f, &a, "cpus:1").await;
        scheduler.tell(accept(&f, &[&offer], vec![task("t", &a, "cpus:1")]));
        world.offer(&scheduler, &f, &a, "cpus:1").await;
        scheduler.received();
        world.allocator();
        let hosts = Some(["foobar".to_owned()].into());
        let admit = crate::agents::whitelist::AdmitHosts(hosts);
        world.master.tell(admit).unwrap();
        world.settle().await;
        world.facts_are("hosts foobar");
        let allocator = world.node.whereis("allocator").unwrap();
        world.node.stop(&allocator);
        world.settle().await;
        scheduler.receives("rescind O1");
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

/// DESIGN 6: answers of an earlier allocator state are ignored. Their grants are free in the new
/// one.
// Covers S98.
#[test]
fn grant_from_an_earlier_allocator_state_is_no_offer() {
    simulate_pair(|world, (_agent, a), (scheduler, f)| async move {
        for falls in 1..3 {
            let mut late = grant(&f, &a, "cpus:4");
            let state = world.state().await;
            late.session = state
                .agents
                .allocator_session(state.agents.get(&a).unwrap());
            let fallen = world.node.whereis("allocator").unwrap();
            world.node.stop(&fallen);
            world.settle().await;
            let (_, raised, _) = recorder(&world.node, "allocator");
            world.pass(1).await;
            assert_eq!(raised.take().len(), 3, "begin, framework, agent: {falls}");
            scheduler.received();
            let granted = Granted { grants: vec![late] };
            world.node.tell(&world.master.pid(), granted).unwrap();
            world.settle().await;
            // No offer.
            scheduler.receives("");
            assert_eq!(raised.take(), [""; 0], "nor anything free");
            // Those that there are now grant the same.
            world.offer(&scheduler, &f, &a, "cpus:8").await;
        }
    });
}

/// A missed fact would be missing for ever; and a restarted allocator knows no offers.
// Covers S98.
#[test]
fn allocator_that_missed_a_fact_starts_over() {
    simulate_pair(|world, (_agent, a), (scheduler, f)| async move {
        world.offer(&scheduler, &f, &a, "cpus:1").await;
        scheduler.received();
        world.allocator();
        // Of this the master makes a fact, for which there is no room.
        let nobody = FrameworkId::new("nobody").unwrap();
        let grants = vec![Grant {
            session: world.state().await.agents.get(&a).unwrap().session,
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
        scheduler.receives("rescind O0");
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
        // Only once.
        world.facts_are("");
        world.offer(&scheduler, &f, &a, "cpus:8").await;
    });
}

/// S98: agents, frameworks and tasks continue without their allocator, which gets the state when it
/// returns.
// Covers S98.
#[test]
fn idle_allocator_delays_nothing() {
    simulate_pair(|world, (agent, a), (scheduler, f)| async move {
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
        let heard = agent.received();
        assert!(heard[0].starts_with("run t="), "{heard:?}");
        world.update(&agent, &f, &a, "t", TaskState::Running).await;
        assert!(scheduler.received().contains(&"t TASK_RUNNING".to_owned()));
        let state = world.state().await;
        assert!(state.agents.get(&b).is_some() && state.frameworks.get(&g).is_some());
        assert_eq!(world.node.clock().now(), started, "nothing has waited");
    });
}
