//! From an offer to a finished task.

use super::*;

/// SPEC 3.13, Launch.
// Covers 2.2 ACKNOWLEDGE; 3.13 Launch.
#[test]
fn task_runs_from_offer_to_acknowledged_end() {
    simulate_pair(|world, (agent, a), (scheduler, f)| async move {
        world.facts_are("begin | agent S0 used [] | framework 0000 active true");

        let offer = world.offer(&scheduler, &f, &a, "cpus:8;mem:8192").await;
        assert_eq!(
            (short(&offer.id).as_str(), offer.hostname.as_str()),
            ("O0", "agent-1")
        );
        scheduler.tell(accept(
            &f,
            &[&offer],
            vec![
                task("t1", &a, "cpus:2;mem:64"),
                task("t2", &a, "cpus:1;mem:32"),
            ],
        ));
        world.settle().await;
        let ran = agent.received().pop().unwrap();
        assert!(ran.starts_with("run t1=") && ran.contains(" t2="), "{ran}");
        // The rest is declined.
        world.facts_are("recovered 0000 cpus:5;mem:8096 for 5s");
        assert_eq!(
            world
                .state()
                .await
                .tasks
                .get(&f, &TaskId::new("t1").unwrap())
                .unwrap()
                .state,
            TaskState::Staging
        );

        scheduler.received();
        for task_state in [TaskState::Running, TaskState::Finished] {
            let update = update(&agent.node, &f, &a, "t1", task_state);
            world.tell(&agent, update.clone()).await;
            assert_eq!(scheduler.received(), [format!("t1 {task_state}")]);
            world.tell(&scheduler, acknowledgement(&f, &update)).await;
            agent.receives("acknowledge t1");
        }
        world.facts_are("recovered 0000 cpus:2;mem:64");
        let state = world.state().await;
        let of = state.tasks.of_framework(&f).unwrap();
        assert_eq!((of.active().count(), of.completed().count()), (1, 1));
        assert_eq!(
            state
                .tasks
                .on_agent(&a)
                .unwrap()
                .held()
                .of(&f)
                .unwrap()
                .unallocate(),
            resources("cpus:1;mem:32")
        );
    });
}

/// SPEC 5.3: the newest state frees resources before the older updates are acknowledged.
// Covers 3.13 Launch.
#[test]
fn resources_are_free_once_the_agent_reports_the_end() {
    simulate_pair(|world, (agent, a), (scheduler, f)| async move {
        world.launch(&scheduler, &f, task("t", &a, "cpus:1")).await;
        world.allocator();
        let mut starting = update(&agent.node, &f, &a, "t", TaskState::Starting);
        starting.update.latest_state = TaskState::Finished;
        world.tell(&agent, starting).await;
        world.facts_are("recovered 0000 cpus:1");
        assert_eq!(
            scheduler.received().last().unwrap(),
            "t TASK_STARTING",
            "the framework hears the states in order"
        );
        agent.tell(update(&agent.node, &f, &a, "t", TaskState::Finished));
        world.update(&agent, &f, &a, "t", TaskState::Running).await;
        // Nothing is freed twice.
        world.facts_are("");
        let state = world.state().await;
        let known = state.tasks.get(&f, &TaskId::new("t").unwrap()).unwrap();
        assert_eq!(
            (known.state, known.told),
            (TaskState::Finished, TaskState::Finished),
            "what has ended stays ended"
        );
    });
}

/// Otherwise a task's end would go out as an offer of its own, beside the rest of its agent.
#[test]
fn freed_resources_join_an_unanswered_offer() {
    simulate_pair(|world, (agent, a), (scheduler, f)| async move {
        let offer = world.offer(&scheduler, &f, &a, "cpus:1").await;
        scheduler.tell(accept(&f, &[&offer], vec![task("t", &a, "cpus:1")]));
        let rest = world.offer(&scheduler, &f, &a, "cpus:7").await;
        world.allocator();
        world.update(&agent, &f, &a, "t", TaskState::Finished).await;
        world.facts_are("recovered 0000 cpus:1 beside an offer");
        world.tell(&scheduler, decline(&f, &[&rest])).await;
        world.facts_are("recovered 0000 cpus:7 for 5s");
    });
}

/// SPEC 2.2, ACCEPT: several offers of one agent and role, also of regular and revocable resources.
// Covers 2.2 ACCEPT.
#[test]
fn several_offers_of_one_agent_are_taken_together() {
    simulate_pair(|world, (agent, a), (scheduler, f)| async move {
        world
            .grant(vec![
                grant(&f, &a, "cpus:1;mem:10"),
                grant(&f, &a, "cpus:2;mem:20"),
            ])
            .await;
        // The offers of one run come together.
        scheduler.receives("2 offers");
        let offers = scheduler.offers();
        scheduler.tell(accept(
            &f,
            &[&offers[0], &offers[1]],
            vec![task("t", &a, "cpus:3;mem:30")],
        ));
        world.settle().await;
        assert_eq!(agent.received().len(), 1);
        assert_eq!(world.state().await.offers.len(), 0);
        assert!(
            world
                .allocator()
                .iter()
                .all(|line| !line.starts_with("recovered")),
            "nothing was left over"
        );
    });
}

#[test]
fn five_thousand_tasks_of_one_accept_are_sent() {
    simulate_pair(|world, (agent, a), (scheduler, f)| async move {
        let offer = world.offer(&scheduler, &f, &a, "cpus:5000;mem:50000").await;
        let tasks = (0..5000).map(|n| {
            let mut task = task(&format!("t{n}"), &a, "cpus:1;mem:10");
            task.command
                .as_mut()
                .unwrap()
                .environment
                .insert("X".into(), "y".repeat(400));
            task
        });
        scheduler.tell(accept(&f, &[&offer], tasks.collect()));
        world.settle().await;
        let heard = agent.received();
        assert!(heard.len() > 1, "cut into several messages");
        let counts = heard
            .iter()
            .map(|line| line.split(' ').nth(1).unwrap().parse::<usize>().unwrap());
        assert_eq!(counts.sum::<usize>(), 5000);
        assert_eq!(
            world
                .state()
                .await
                .tasks
                .on_agent(&a)
                .unwrap()
                .tasks()
                .count(),
            5000
        );
    });
}

/// SPEC 2.2 KILL, 3.13.
// Covers 2.2 KILL; 3.13 Kill.
#[test]
fn kills_reach_the_agent_or_are_answered() {
    simulate_pair(|world, (agent, a), (scheduler, f)| async move {
        world.launch(&scheduler, &f, task("t", &a, "cpus:1")).await;
        agent.received();
        scheduler.received();
        for id in ["t", "nobody"] {
            scheduler.tell(kill_task(&f, id));
        }
        world.settle().await;
        agent.receives("kill t");
        scheduler.receives("nobody TASK_LOST REASON_RECONCILIATION");
    });
}

#[test]
fn operator_kills_a_task_by_unique_name() {
    use protocol::message::operator::{KillByOperator, OperatorError};
    simulate_world(|world| async move {
        let (agent, a) = world.agent("agent-1").await;
        let operator = world.member("operator", "operator", Role::Operator).await;
        let (one, f) = world.framework("one", |_| ()).await;
        let (two, g) = world.framework("two", |_| ()).await;
        for (scheduler, framework, ids) in [(&one, &f, vec!["x", "both"]), (&two, &g, vec!["both"])]
        {
            let offer = world.offer(scheduler, framework, &a, "cpus:2").await;
            let tasks = ids.into_iter().map(|id| task(id, &a, "cpus:1")).collect();
            scheduler.tell(accept(framework, &[&offer], tasks));
            world.settle().await;
        }
        agent.received();
        let kill = async |id: &str, framework: Option<&FrameworkId>| {
            let call = KillByOperator {
                task_id: TaskId::new(id).unwrap(),
                framework_id: framework.cloned(),
            };
            operator
                .node
                .ask(&operator.master, call, PATIENCE)
                .await
                .unwrap()
        };
        assert_eq!(kill("x", None).await, Ok(f.clone()));
        assert_matches!(
            kill("both", None).await,
            Err(OperatorError::Ambiguous { .. })
        );
        assert_eq!(kill("both", Some(&g)).await, Ok(g.clone()));
        assert_matches!(
            kill("none", None).await,
            Err(OperatorError::NotFound { .. })
        );
        agent.receives("kill x | kill both");
    });
}

/// S127, SPEC 4.6.
// Covers S127; 2.2 DECLINE; 2.2 Filters; 3.13 Launch.
#[test]
fn declined_resources_are_recovered_with_their_filter() {
    simulate_pair(|world, (_agent, a), (scheduler, f)| async move {
        world.allocator();
        for (seconds, expected) in [
            (5.0, " for 5s"),
            (-1.0, " for 5s"),
            // No filter, but the allocator must know that it was refused: else it offers again at
            // once, without end.
            (0.0, " for 0ns"),
            (60.0, " for 60s"),
        ] {
            let offer = world.offer(&scheduler, &f, &a, "cpus:1").await;
            let filters = protocol::Filters {
                refuse_seconds: seconds,
            };
            scheduler.tell(DeclineOffers {
                framework_id: f.clone(),
                offer_ids: vec![offer.id],
                filters,
            });
            world.settle().await;
            assert_eq!(
                world.allocator(),
                [format!("recovered 0000 cpus:1{expected}")]
            );
        }
    });
}

/// SPEC 3.3, `--offer_timeout`; S58, S129: a launch on an offer that was rescinded is lost.
// Covers S58; S129; 2.3 OFFERS, RESCIND.
#[test]
fn unanswered_offer_is_rescinded_after_the_timeout() {
    simulate_network(|network| async move {
        let offer_timeout = Some(Duration::from_secs(30));
        let world = World::new(
            network,
            Config {
                offer_timeout,
                ..Config::default()
            },
        )
        .await;
        let (_agent, a) = world.agent("agent-1").await;
        let (scheduler, f) = world.framework("web", |_| ()).await;
        let offer = world.offer(&scheduler, &f, &a, "cpus:1").await;
        world.allocator();
        scheduler.received();
        world.pass(29).await;
        scheduler.receives("");
        world.pass(1).await;
        scheduler.receives("rescind O0");
        world.facts_are("recovered 0000 cpus:1 for 30s");
        scheduler.tell(accept(&f, &[&offer], vec![task("t", &a, "cpus:1")]));
        world.settle().await;
        scheduler.receives("t TASK_LOST REASON_INVALID_OFFERS");
    });
}

/// SPEC 5.7, S55.
// Covers S11; S55 in part: for usage slack; S61 in part: regular apart from revocable.
// Covers 3.13 Oversubscribe in part: not with these amounts in one run.
#[test]
fn new_oversubscribed_total_rescinds_only_revocable_offers() {
    simulate_world(|world| async move {
        let (agent, a) = world.agent("agent-1").await;
        let (scheduler, f) = world
            .framework("web", |info| {
                info.capabilities.insert(Capability::RevocableResources);
            })
            .await;
        let (plain, g) = world.framework("plain", |_| ()).await;
        let lent = resources("cpus:4")
            .to_revocable(resources::Revocable::Throttleable)
            .unwrap();
        let mut revocable = grant(&f, &a, "cpus:1");
        revocable.resources = lent.allocate(&ResourceRole::new("*").unwrap());
        let unwanted = Grant {
            framework_id: g.clone(),
            ..revocable.clone()
        };
        world.allocator();
        world
            .grant(vec![grant(&f, &a, "cpus:1"), revocable, unwanted])
            .await;
        scheduler.receives("2 offers");
        // No capability, no revocable offer.
        plain.receives("");
        assert_eq!(world.allocator().len(), 1, "it went straight back");

        agent.tell(OversubscribedChanged {
            agent_id: a.clone(),
            total: lent.clone(),
        });
        world.settle().await;
        scheduler.receives("rescind O1");
        let heard = world.allocator();
        assert!(
            heard[0].starts_with("agent S0 lends") && heard[1].starts_with("recovered 0000"),
            "{heard:?}"
        );

        agent.tell(OversubscribedChanged {
            agent_id: a.clone(),
            total: resources("cpus:1"),
        });
        world.settle().await;
        // Only revocable resources can be lent.
        world.facts_are("");
    });
}

/// S56, S61: not throttleable first, regular last, and no more than needed.
// Covers S56 in part: for usage slack, and without lowering its books.
#[test]
fn withdrawal_rescinds_as_few_offers_as_possible() {
    simulate_pair(|world, (_agent, a), (scheduler, f)| async move {
        world
            .grant(vec![
                grant(&f, &a, "cpus:2"),
                grant(&f, &a, "mem:64"),
                grant(&f, &a, "cpus:2"),
            ])
            .await;
        scheduler.received();
        let withdrawn = Withdrawn {
            agent_id: a.clone(),
            resources: resources("cpus:1.5"),
        };
        world.node.tell(&world.master.pid(), withdrawn).unwrap();
        world.settle().await;
        scheduler.receives("rescind O0");
    });
}

// Covers S133; 2.2 MESSAGE; 2.3 MESSAGE, FAILURE.
#[test]
fn messages_and_executor_ends_are_forwarded() {
    simulate_pair(|world, (agent, a), (scheduler, f)| async move {
        let offer = world.offer(&scheduler, &f, &a, "cpus:2").await;
        let mut own = task("t", &a, "cpus:1");
        own.command = None;
        own.executor = Some(ExecutorInfo {
            name: "e".into(),
            ..ExecutorInfo::new(
                ExecutorId::new("e").unwrap(),
                CommandInfo::shell("./executor"),
                resources("cpus:0.5"),
            )
        });
        let mut other = own.clone();
        other.task_id = TaskId::new("other").unwrap();
        other.executor.as_mut().unwrap().name = "another".into();
        scheduler.tell(accept(&f, &[&offer], vec![own, other]));
        world.settle().await;
        assert_eq!(
            scheduler.received()[1..],
            ["other TASK_ERROR REASON_TASK_INVALID"]
        );
        let offer = world.offer(&scheduler, &f, &a, "cpus:1").await;
        assert_eq!(offer.executor_ids.len(), 1);
        world.allocator();
        agent.received();
        scheduler.received();

        let message = FrameworkMessage {
            framework_id: f.clone(),
            agent_id: a.clone(),
            executor_id: ExecutorId::new("e").unwrap(),
            data: b"hello".to_vec(),
        };
        scheduler.tell(message.clone());
        agent.tell(message);
        let termination = Some(Termination::Exited(1));
        let executor_id = ExecutorId::new("e").unwrap();
        agent.tell(ExecutorExited {
            agent_id: a.clone(),
            framework_id: f.clone(),
            executor_id,
            termination,
        });
        world.settle().await;
        agent.receives("message hello");
        scheduler.receives("message hello | lost e");
        world.facts_are("recovered 0000 cpus:0.5 beside an offer");
    });
}

/// SPEC 2.2, RECONCILE: an ended task has its last sent status.
// Covers 2.2 RECONCILE.
#[test]
fn refused_task_is_reconciled_as_refused() {
    simulate_world(|world| async move {
        let (_agent, a) = world.agent("agent-1").await;
        let (scheduler, f) = world.framework("web", aware).await;
        let mut gone = world.offer(&scheduler, &f, &a, "cpus:1").await;
        gone.id = OfferId::new("nobody-made-it").unwrap();
        scheduler.tell(accept(&f, &[&gone], vec![task("void", &a, "cpus:1")]));
        let offer = world.offer(&scheduler, &f, &a, "cpus:1").await;
        scheduler.tell(accept(&f, &[&offer], vec![task("big", &a, "cpus:2")]));
        world.settle().await;
        scheduler.received();
        let ask = ["void", "big"].map(|id| (TaskId::new(id).unwrap(), Some(a.clone())));
        scheduler.tell(reconcile(&f, ask.into_iter().collect()));
        world.settle().await;
        assert_eq!(
            scheduler.received(),
            [
                "void TASK_DROPPED REASON_RECONCILIATION",
                "big TASK_ERROR REASON_RECONCILIATION"
            ]
        );
        // It never held anything, and its id is free.
        world
            .launch(&scheduler, &f, task("void", &a, "cpus:1"))
            .await;
        let state = world.state().await;
        assert_eq!(state.tasks.of_framework(&f).unwrap().active().count(), 1);
    });
}
