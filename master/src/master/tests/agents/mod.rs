//! Agents that register, are lost, return and leave.

pub(in crate::master::tests) mod comparison;
pub(in crate::master::tests) mod draining;
pub(in crate::master::tests) mod maintenance;

use super::*;

/// SPEC 3.2: 15 s x 5, and not a second sooner.
// Covers S133; 3.13 Agent partition.
#[test]
fn agent_without_pongs_is_lost_after_seventy_five_seconds() {
    simulate_task(plain, |world, (agent, a), (scheduler, f)| async move {
        agent.answers.store(false, Ordering::Relaxed);
        // The ping of the fifteenth second is the first that goes unanswered.
        world.pass(14).await;
        world.pass(75).await;
        scheduler.receives("");
        world.pass(1).await;
        scheduler.receives("t TASK_LOST REASON_SLAVE_REMOVED | lost S0");
        world.facts_are("no agent S0");
        assert!(world.faults.state().unreachable.contains_key(&a));
        let state = world.state().await;
        assert_eq!(
            state.tasks.of_framework(&f).unwrap().unreachable().count(),
            1
        );

        world.update(&agent, &f, &a, "t", TaskState::Running).await;
        // A lost agent that still sends is asked to register again.
        agent.receives("register again");
        scheduler.receives("");
    });
}

/// SPEC 3.2: 15 s x 5, also for many agents whose pings are due at one instant.
#[test]
fn simultaneous_agents_are_pinged_on_time() {
    simulate_world(|world| async move {
        let mut agents = Vec::new();
        for number in 0..300 {
            let (agent, _) = world.agent(&format!("agent-{number}")).await;
            agents.push(agent);
        }
        world.settle().await;
        for agent in &agents {
            agent.answers.store(false, Ordering::Relaxed);
        }
        world.pass(14).await;
        world.pass(75).await;
        assert_eq!(world.faults.state().unreachable.len(), 0);
        world.pass(1).await;
        assert_eq!(world.faults.state().unreachable.len(), agents.len());
    });
}

// Covers 2.3 MESSAGE, FAILURE; 3.13 Agent partition.
#[test]
fn partition_aware_framework_gets_unreachable_then_running() {
    simulate_task(aware, |world, (agent, a), (scheduler, f)| async move {
        agent.answers.store(false, Ordering::Relaxed);
        world.pass(100).await;
        scheduler.receives("t TASK_UNREACHABLE REASON_SLAVE_REMOVED | lost S0");
        let told = scheduler.statuses().pop().unwrap();
        assert!(told.unreachable_since.is_some() && told.uuid.is_none());

        agent.answers.store(true, Ordering::Relaxed);
        let tasks = vec![running(&f, task("t", &a, "cpus:1"), TaskState::Running)];
        assert_eq!(
            register(&agent, Some(a.clone()), tasks)
                .await
                .unwrap()
                .agent_id,
            a
        );
        world.settle().await;
        scheduler.receives("t TASK_RUNNING REASON_SLAVE_REREGISTERED");
        let heard = world.allocator();
        assert_eq!(heard.last().unwrap(), "agent S0 used [0000=cpus:1]");
        assert!(world.faults.state().unreachable.is_empty());
        world.pass(300).await;
        // It is pinged and answers.
        scheduler.receives("");
    });
}

#[test]
fn broken_link_rescinds_offers_and_keeps_tasks() {
    simulate_task(plain, |world, (agent, a), (scheduler, f)| async move {
        world.offer(&scheduler, &f, &a, "cpus:2").await;
        scheduler.received();
        world.network.sever("master", "agent-1");
        world.settle().await;
        scheduler.receives("rescind O1");
        world.facts_are("agent S0 active false | recovered 0000 cpus:2");
        world.grant(vec![grant(&f, &a, "cpus:2")]).await;
        // No offer while it is away.
        world.facts_are("recovered 0000 cpus:2");
        world.tell(&scheduler, kill_task(&f, "t")).await;

        world.network.heal("master", "agent-1");
        agent.node.connect("master").await.unwrap();
        let tasks = vec![running(&f, task("t", &a, "cpus:1"), TaskState::Running)];
        register(&agent, Some(a.clone()), tasks).await.unwrap();
        world.settle().await;
        world.facts_are("agent S0 used [0000=cpus:1]");
        // The kill has waited for it.
        agent.receives("kill t");
        // The task never stopped, so there is no status.
        scheduler.receives("");
        world.pass(300).await;
        scheduler.receives("");
    });
}

// Covers W17; 3.13 Kill.
#[test]
fn kill_lost_with_its_link_is_repeated_until_it_works() {
    simulate_task(plain, |world, (agent, a), (scheduler, f)| async move {
        agent.received();
        world.tell(&scheduler, kill_task(&f, "t")).await;
        let come_back = async |state| {
            world.network.sever("master", "agent-1");
            world.settle().await;
            world.network.heal("master", "agent-1");
            agent.node.connect("master").await.unwrap();
            let tasks = vec![running(&f, task("t", &a, "cpus:1"), state)];
            register(&agent, Some(a.clone()), tasks).await.unwrap();
            world.settle().await;
            agent.received()
        };
        agent.receives("kill t");
        assert_eq!(come_back(TaskState::Running).await, ["kill t"]);
        assert_eq!(come_back(TaskState::Killed).await, [""; 0]);
    });
}

/// An unreceived launch is answered when the agent's process ends; a received one is reported by
/// the returning agent.
#[test]
fn unconfirmed_launch_of_an_ended_agent_is_dropped() {
    for (ended, told) in [
        (true, vec!["late TASK_DROPPED REASON_SLAVE_DISCONNECTED"]),
        (false, vec![]),
    ] {
        simulate_task(aware, |world, (agent, a), (scheduler, f)| async move {
            let offer = world.offer(&scheduler, &f, &a, "cpus:1").await;
            world.allocator();
            agent.handle.tell(Hang).unwrap();
            scheduler.tell(accept(&f, &[&offer], vec![task("late", &a, "cpus:1")]));
            world.settle().await;
            scheduler.received();
            match ended {
                true => world.network.end_process("agent-1"),
                false => world.network.leave("agent-1"),
            }
            world.settle().await;
            assert_eq!(scheduler.received(), told);
            let freed: &[&str] = if ended {
                &["recovered 0000 cpus:1"]
            } else {
                &[]
            };
            let heard = world.allocator();
            assert_eq!(heard[0], "agent S0 active false");
            assert_eq!(heard[1..], *freed);
        });
    }
}

#[test]
fn killed_agent_is_unreachable_after_missed_pings() {
    simulate_task(plain, |world, (_agent, _), (scheduler, _)| async move {
        world.network.leave("agent-1");
        world.pass(60).await;
        scheduler.receives("");
        world.pass(30).await;
        scheduler.receives("t TASK_LOST REASON_SLAVE_REMOVED | lost S0");
    });
}

/// SPEC 3.2, Re-register.
#[test]
fn missing_tasks_are_over_and_ended_ones_disowned() {
    simulate_task(aware, |world, (agent, a), (scheduler, f)| async move {
        world
            .launch(&scheduler, &f, task("young", &a, "cpus:1"))
            .await;
        scheduler.received();
        agent.received();
        world.allocator();

        let gone = FrameworkId::new("never-heard-of").unwrap();
        let tasks = vec![running(&gone, task("x", &a, "cpus:1"), TaskState::Running)];
        register(&agent, Some(a.clone()), tasks).await.unwrap();
        world.settle().await;
        assert_eq!(
            scheduler.received(),
            [
                "t TASK_DROPPED REASON_RECONCILIATION",
                "young TASK_DROPPED REASON_RECONCILIATION"
            ]
        );
        agent.receives("shut down of | disown t young");
        world.facts_are("agent S0 used []");

        let tasks = vec![running(&f, task("t", &a, "cpus:1"), TaskState::Running)];
        register(&agent, Some(a.clone()), tasks).await.unwrap();
        world.settle().await;
        // An ended task does not return.
        agent.receives("disown t");
        // Sent before the agent was notified.
        world.update(&agent, &f, &a, "t", TaskState::Running).await;
        agent.receives("acknowledge t");
        scheduler.receives("");
    });
}

/// DESIGN 6: a grant made before the allocator saw a registration is free after it.
#[test]
fn grant_before_reregistration_is_no_offer() {
    simulate_task(plain, |world, (agent, a), (scheduler, f)| async move {
        let mut late = grant(&f, &a, "cpus:4");
        late.session = world.state().await.agents.get(&a).unwrap().session;
        let tasks = vec![running(&f, task("t", &a, "cpus:1"), TaskState::Running)];
        register(&agent, Some(a.clone()), tasks).await.unwrap();
        world.settle().await;
        world.facts_are("agent S0 used [0000=cpus:1]");
        let granted = Granted { grants: vec![late] };
        world.node.tell(&world.master.pid(), granted).unwrap();
        world.settle().await;
        // No offer.
        scheduler.receives("");
        // Nor anything free.
        world.facts_are("");
        world.offer(&scheduler, &f, &a, "cpus:4").await;
    });
}

/// SPEC 3.2: an agent speaks for its own tasks only.
#[test]
fn agent_cannot_affect_another_agents_task() {
    simulate_task(aware, |world, (agent, a), (scheduler, f)| async move {
        let (thief, b) = world.agent("agent-2").await;
        let stolen = update(&thief.node, &f, &b, "t", TaskState::Finished);
        world.tell(&thief, stolen).await;
        scheduler.receives("");
        // So that it is not repeated.
        thief.receives("acknowledge t");

        agent.answers.store(false, Ordering::Relaxed);
        world.pass(100).await;
        scheduler.received();
        let tasks = vec![running(&f, task("t", &b, "cpus:1"), TaskState::Running)];
        register(&thief, Some(b.clone()), tasks).await.unwrap();
        world.settle().await;
        thief.receives("disown t");
        scheduler.receives("");
        let state = world.state().await;
        let of = state.tasks.of_framework(&f).unwrap();
        let unreachable: Vec<_> = of.unreachable().map(|task| task.agent_id.clone()).collect();
        assert_eq!(unreachable, [a]);
    });
}

/// SPEC 5.3: the agent reports the end itself, after earlier updates: no framework sees an ended
/// task as running.
#[test]
fn task_ended_while_disconnected_is_completed_by_acknowledgement() {
    simulate_task(aware, |world, (agent, a), (scheduler, f)| async move {
        agent.answers.store(false, Ordering::Relaxed);
        world.pass(100).await;
        scheduler.received();
        let tasks = vec![running(&f, task("t", &a, "cpus:1"), TaskState::Finished)];
        register(&agent, Some(a.clone()), tasks).await.unwrap();
        world.settle().await;
        scheduler.receives("");
        let last = world.allocator().pop();
        assert_eq!(
            last.unwrap(),
            "agent S0 used []",
            "it holds nothing any more"
        );
        let end = update(&agent.node, &f, &a, "t", TaskState::Finished);
        world.tell(&agent, end.clone()).await;
        world.tell(&scheduler, acknowledgement(&f, &end)).await;
        let state = world.state().await;
        let of = state.tasks.of_framework(&f).unwrap();
        assert_eq!((of.active().count(), of.completed().count()), (0, 1));
        assert_eq!(state.tasks.unacknowledged(&f), 0);
    });
}

/// SPEC 2.2 ACKNOWLEDGE: an agent with a wrong acknowledgement resends the end.
#[test]
fn acknowledgement_naming_another_agent_completes_nothing() {
    simulate_task(aware, |world, (agent, a), (scheduler, f)| async move {
        let (_other, b) = world.agent("agent-2").await;
        let end = update(&agent.node, &f, &a, "t", TaskState::Finished);
        world.tell(&agent, end.clone()).await;
        let right = acknowledgement(&f, &end);
        let mut wrong = right.clone();
        wrong.agent_id = b;
        for (said, completed) in [(wrong, 0), (right, 1)] {
            world.tell(&scheduler, said).await;
            let state = world.state().await;
            let of = state.tasks.of_framework(&f).unwrap();
            let counts = (of.active().count(), of.completed().count());
            assert_eq!(counts, (1 - completed, completed));
        }
    });
}

/// SPEC 2.2: a reconciliation never overtakes an agent's updates.
#[test]
fn reported_ended_task_stays_until_acknowledged() {
    simulate_world(|world| async move {
        let (scheduler, f) = world.framework("web", aware).await;
        let (agent, a) = world.agent("agent-1").await;
        let tasks = vec![running(&f, task("t", &a, "cpus:1"), TaskState::Finished)];
        register(&agent, Some(a.clone()), tasks).await.unwrap();
        let asked = |tasks| ReconcileTasks {
            framework_id: f.clone(),
            tasks,
        };
        let named = vec![(TaskId::new("t").unwrap(), Some(a.clone()))];
        world.tell(&scheduler, asked(named.clone())).await;
        assert!(scheduler.received().is_empty(), "its agent will tell");
        let end = update(&agent.node, &f, &a, "t", TaskState::Finished);
        agent.tell(end.clone());
        world.tell(&scheduler, acknowledgement(&f, &end)).await;
        scheduler.receives("t TASK_FINISHED");
        world.tell(&scheduler, asked(named)).await;
        scheduler.receives("t TASK_FINISHED REASON_RECONCILIATION");
    });
}

#[test]
fn repeated_registration_gets_one_id_and_restart_keeps_it() {
    simulate_world(|world| async move {
        let (agent, a) = world.agent("agent-1").await;
        assert_eq!(
            register(&agent, None, vec![]).await.unwrap().agent_id,
            a,
            "the answer was lost"
        );
        let restarted = runtime::testing::node("agent-1").seed(8);
        let restarted = restarted.role(Role::Agent).accepts(&[Role::Master]).build();
        world.network.join(&restarted, "agent-1");
        let again = world.member_on(restarted, "agent").await;
        assert_ne!(
            again.pid.node(),
            agent.pid.node(),
            "a restarted node is another node"
        );
        assert_eq!(
            register(&again, Some(a.clone()), vec![])
                .await
                .unwrap()
                .agent_id,
            a
        );
        let thief = world.member("thief", "agent", Role::Agent).await;
        let refused = register(&thief, Some(a.clone()), vec![]).await.unwrap_err();
        assert!(
            matches!(&refused, RegistrationRefused::NotNow { reason } if reason.contains("agent.id")),
            "{refused}"
        );
        agent.tell(UnregisterAgent {
            agent_id: a.clone(),
        });
        world.settle().await;
        assert_eq!(
            world.state().await.agents.iter().count(),
            1,
            "the old process speaks for nobody"
        );
        world.network.sever("agent-1", "master");
        world.settle().await;
        let refused = register(&thief, Some(a), vec![]).await;
        assert!(refused.is_err(), "an absent agent's id is not free either");
    });
}

/// SPEC W18: the tasks stay, and nothing is offered beyond the new resources.
#[test]
fn agent_returns_with_fewer_resources() {
    simulate_task(plain, |world, (agent, a), (scheduler, f)| async move {
        world.offer(&scheduler, &f, &a, "cpus:2").await;
        scheduler.received();
        let tasks = vec![running(&f, task("t", &a, "cpus:1"), TaskState::Running)];
        let mut message = registration(&agent, Some(a.clone()), tasks);
        let less = resources("cpus:0.5;mem:100");
        message.agent.resources = less.clone();
        if let Some(reported) = &mut message.resources {
            reported.total = less.clone();
        }
        let node = &agent.node;
        let registered = node.ask(&agent.master, message, PATIENCE).await.unwrap();
        assert_eq!(registered.unwrap().agent_id, a);
        world.settle().await;
        assert_eq!(scheduler.received(), ["rescind O1"]);
        let expected = ["recovered 0000 cpus:2", "agent S0 used [0000=cpus:1]"];
        assert_eq!(world.allocator(), expected);
        let state = world.state().await;
        assert_eq!(state.agents.get(&a).unwrap().info.resources, less);
        let recorded = world.faults.state().agents.remove(&a).unwrap();
        assert_eq!(recorded.resources, less);
    });
}

#[test]
fn restarted_agent_ends_its_earlier_incarnation() {
    simulate_task(plain, |world, (agent, a), (scheduler, _)| async move {
        let name = agent.pid.node().name().to_owned();
        let anew = runtime::testing::node(&name).seed(8);
        let anew = anew.role(Role::Agent).accepts(&[Role::Master]).build();
        world.network.join(&anew, &name);
        let anew = world.member_on(anew, "agent").await;
        let b = register(&anew, None, vec![]).await.unwrap().agent_id;
        assert_ne!(a, b, "it has forgotten its id");
        world.settle().await;
        scheduler.receives("t TASK_LOST REASON_SLAVE_REMOVED | lost S0");
        let agents: Vec<_> = world.faults.state().agents.into_keys().collect();
        assert_eq!(agents, [b], "the registry has forgotten the earlier one");
        let removed = "master/slave_removals/reason_registered";
        assert_eq!(world.state().await.counters.get(removed), 1);
    });
}

#[test]
fn leaving_agent_takes_its_tasks_with_it() {
    simulate_task(plain, |world, (agent, a), (scheduler, _)| async move {
        agent.tell(UnregisterAgent {
            agent_id: a.clone(),
        });
        world.settle().await;
        scheduler.receives("t TASK_LOST REASON_SLAVE_REMOVED | lost S0");
        world.facts_are("no agent S0");
        assert!(world.faults.state().agents.is_empty());
    });
}

/// An agent that may return reports everything in order; for one that has gone, its newest report
/// counts.
#[test]
fn end_known_only_to_the_master_is_sent_when_agent_leaves() {
    for leaves in [true, false] {
        simulate_task(aware, |world, (agent, a), (scheduler, f)| async move {
            let mut late = update(&agent.node, &f, &a, "t", TaskState::Running);
            late.update.latest_state = TaskState::Finished;
            world.tell(&agent, late).await;
            scheduler.receives("t TASK_RUNNING");
            if leaves {
                let agent_id = a.clone();
                agent.tell(UnregisterAgent { agent_id });
                world.settle().await;
            } else {
                agent.answers.store(false, Ordering::Relaxed);
                world.pass(100).await;
            }
            let (expected, over) = match leaves {
                true => ("t TASK_FINISHED REASON_SLAVE_REMOVED", (1, 0)),
                false => ("t TASK_UNREACHABLE REASON_SLAVE_REMOVED", (0, 1)),
            };
            assert_eq!(scheduler.received(), [expected, "lost S0"]);
            let state = world.state().await;
            let of = state.tasks.of_framework(&f).unwrap();
            assert_eq!((of.completed().count(), of.unreachable().count()), over);
        });
    }
}
