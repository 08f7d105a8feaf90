//! Agents that come, fall silent, come back and leave.

use super::*;

/// A cluster with one agent and a framework that runs task `t` there.
async fn one_task(
    network: Network,
    change: impl FnOnce(&mut FrameworkInfo),
) -> (World, (Member, AgentId), (Member, FrameworkId)) {
    let world = World::new(network, Config::default()).await;
    let (agent, a) = world.agent("agent-1").await;
    let (scheduler, f) = world.framework("web", change).await;
    let offer = world.offer(&scheduler, &f, &a, "cpus:1").await;
    scheduler.tell(accept(&f, &[&offer], vec![task("t", &a, "cpus:1")]));
    world.settle().await;
    agent.tell(update(&agent.node, &f, &a, "t", TaskState::Running));
    world.settle().await;
    world.allocator();
    agent.heard();
    scheduler.heard();
    (world, (agent, a), (scheduler, f))
}

/// SPEC 3.2: 15 s x 5, and not a second sooner.
#[test]
fn an_agent_that_answers_no_ping_is_lost_after_exactly_seventy_five_seconds() {
    rehearse_network(|network| async move {
        let (world, (agent, a), (scheduler, f)) = one_task(network, |_| ()).await;
        agent.answers.store(false, Ordering::Relaxed);
        // The ping of the fifteenth second is the first that goes unanswered.
        world.pass(14).await;
        world.pass(75).await;
        assert_eq!(scheduler.heard(), Vec::<String>::new());
        world.pass(1).await;
        assert_eq!(
            scheduler.heard(),
            ["t TASK_LOST REASON_SLAVE_REMOVED", "lost S0"]
        );
        assert_eq!(world.allocator(), ["no agent S0"]);
        assert!(world.whims.state().unreachable.contains_key(&a));
        let books = world.books().await;
        assert_eq!(
            books.tasks.of_framework(&f).unwrap().unreachable().count(),
            1
        );

        agent.tell(update(&agent.node, &f, &a, "t", TaskState::Running));
        world.settle().await;
        assert_eq!(
            agent.heard(),
            ["register again"],
            "whoever still speaks is asked to come back"
        );
        assert_eq!(scheduler.heard(), Vec::<String>::new());
    });
}

/// SPEC 3.2: 15 s x 5, also for many agents whose pings are due at one instant.
#[test]
fn agents_that_came_at_once_are_all_pinged_at_their_times() {
    rehearse_network(|network| async move {
        let world = World::new(network, Config::default()).await;
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
        assert_eq!(world.whims.state().unreachable.len(), 0);
        world.pass(1).await;
        assert_eq!(world.whims.state().unreachable.len(), agents.len());
    });
}

#[test]
fn a_partition_aware_framework_hears_unreachable_and_then_running_again() {
    rehearse_network(|network| async move {
        let (world, (agent, a), (scheduler, f)) = one_task(network, aware).await;
        agent.answers.store(false, Ordering::Relaxed);
        world.pass(100).await;
        assert_eq!(
            scheduler.heard(),
            ["t TASK_UNREACHABLE REASON_SLAVE_REMOVED", "lost S0"]
        );
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
        assert_eq!(
            scheduler.heard(),
            ["t TASK_RUNNING REASON_SLAVE_REREGISTERED"]
        );
        let heard = world.allocator();
        assert_eq!(heard.last().unwrap(), "agent S0 used [0000=cpus:1]");
        assert!(world.whims.state().unreachable.is_empty());
        world.pass(300).await;
        assert_eq!(
            scheduler.heard(),
            Vec::<String>::new(),
            "it is pinged and answers"
        );
    });
}

#[test]
fn a_broken_link_takes_the_agents_offers_back_and_its_tasks_wait() {
    rehearse_network(|network| async move {
        let (world, (agent, a), (scheduler, f)) = one_task(network, |_| ()).await;
        world.offer(&scheduler, &f, &a, "cpus:2").await;
        scheduler.heard();
        world.network.sever("master", "agent-1");
        world.settle().await;
        assert_eq!(scheduler.heard(), ["rescind O1"]);
        assert_eq!(
            world.allocator(),
            ["agent S0 active false", "recovered 0000 cpus:2"]
        );
        world.grant(vec![grant(&f, &a, "cpus:2")]).await;
        assert_eq!(
            world.allocator(),
            ["recovered 0000 cpus:2"],
            "no offer while it is away"
        );
        let kill = KillTask {
            framework_id: f.clone(),
            task_id: TaskId::new("t").unwrap(),
            agent_id: None,
            kill_policy: None,
        };
        scheduler.tell(kill);
        world.settle().await;

        world.network.heal("master", "agent-1");
        agent.node.connect("master").await.unwrap();
        let tasks = vec![running(&f, task("t", &a, "cpus:1"), TaskState::Running)];
        register(&agent, Some(a.clone()), tasks).await.unwrap();
        world.settle().await;
        assert_eq!(world.allocator(), ["agent S0 used [0000=cpus:1]"]);
        assert_eq!(agent.heard(), ["kill t"], "the kill has waited for it");
        assert_eq!(
            scheduler.heard(),
            Vec::<String>::new(),
            "the task never stopped, so nobody is told anything"
        );
        world.pass(300).await;
        assert_eq!(scheduler.heard(), Vec::<String>::new());
    });
}

/// W17.
#[test]
fn a_kill_that_a_breaking_link_lost_is_said_again_when_the_agent_is_back_until_the_task_has_ended()
{
    rehearse_network(|network| async move {
        let (world, (agent, a), (scheduler, f)) = one_task(network, |_| ()).await;
        agent.heard();
        let kill = KillTask {
            framework_id: f.clone(),
            task_id: TaskId::new("t").unwrap(),
            agent_id: None,
            kill_policy: None,
        };
        scheduler.tell(kill);
        world.settle().await;
        let come_back = async |state| {
            world.network.sever("master", "agent-1");
            world.settle().await;
            world.network.heal("master", "agent-1");
            agent.node.connect("master").await.unwrap();
            let tasks = vec![running(&f, task("t", &a, "cpus:1"), state)];
            register(&agent, Some(a.clone()), tasks).await.unwrap();
            world.settle().await;
            agent.heard()
        };
        assert_eq!(agent.heard(), ["kill t"]);
        assert_eq!(come_back(TaskState::Running).await, ["kill t"]);
        assert_eq!(come_back(TaskState::Killed).await, Vec::<String>::new());
    });
}

/// A launch that no agent has heard of is answered when the agent's process has ended; of one that was heard, the agent tells when it is back.
#[test]
fn a_launch_that_an_ended_agent_has_not_heard_is_dropped_at_once() {
    for (ended, told) in [
        (true, vec!["late TASK_DROPPED REASON_SLAVE_DISCONNECTED"]),
        (false, vec![]),
    ] {
        rehearse_network(|network| async move {
            let (world, (agent, a), (scheduler, f)) = one_task(network, aware).await;
            let offer = world.offer(&scheduler, &f, &a, "cpus:1").await;
            world.allocator();
            agent.handle.tell(Hang).unwrap();
            scheduler.tell(accept(&f, &[&offer], vec![task("late", &a, "cpus:1")]));
            world.settle().await;
            scheduler.heard();
            match ended {
                true => world.network.end_process("agent-1"),
                false => world.network.leave("agent-1"),
            }
            world.settle().await;
            assert_eq!(scheduler.heard(), told);
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
fn a_killed_agent_is_unreachable_when_its_pings_have_gone_unanswered() {
    rehearse_network(|network| async move {
        let (world, (_agent, _), (scheduler, _)) = one_task(network, |_| ()).await;
        world.network.leave("agent-1");
        world.pass(60).await;
        assert_eq!(scheduler.heard(), Vec::<String>::new());
        world.pass(30).await;
        assert_eq!(
            scheduler.heard(),
            ["t TASK_LOST REASON_SLAVE_REMOVED", "lost S0"]
        );
    });
}

/// SPEC 3.2, Re-register.
#[test]
fn tasks_that_an_agent_comes_back_without_are_over_and_ones_that_are_over_are_disowned() {
    rehearse_network(|network| async move {
        let (world, (agent, a), (scheduler, f)) = one_task(network, aware).await;
        let offer = world.offer(&scheduler, &f, &a, "cpus:1").await;
        scheduler.tell(accept(&f, &[&offer], vec![task("young", &a, "cpus:1")]));
        world.settle().await;
        scheduler.heard();
        agent.heard();
        world.allocator();

        let gone = FrameworkId::new("never-heard-of").unwrap();
        let tasks = vec![running(&gone, task("x", &a, "cpus:1"), TaskState::Running)];
        register(&agent, Some(a.clone()), tasks).await.unwrap();
        world.settle().await;
        assert_eq!(
            scheduler.heard(),
            [
                "t TASK_DROPPED REASON_RECONCILIATION",
                "young TASK_DROPPED REASON_RECONCILIATION"
            ]
        );
        assert_eq!(agent.heard(), ["shut down of", "disown t young"]);
        assert_eq!(world.allocator(), ["agent S0 used []"]);

        let tasks = vec![running(&f, task("t", &a, "cpus:1"), TaskState::Running)];
        register(&agent, Some(a.clone()), tasks).await.unwrap();
        world.settle().await;
        assert_eq!(
            agent.heard(),
            ["disown t"],
            "what is over never lives again"
        );
        // Said before the agent heard that.
        agent.tell(update(&agent.node, &f, &a, "t", TaskState::Running));
        world.settle().await;
        assert_eq!(agent.heard(), ["acknowledge t"]);
        assert_eq!(scheduler.heard(), Vec::<String>::new());
    });
}

/// DESIGN 6: what the allocator granted before it heard of a registration, it holds for free after it.
#[test]
fn a_grant_made_before_the_agent_registered_anew_is_no_offer() {
    rehearse_network(|network| async move {
        let (world, (agent, a), (scheduler, f)) = one_task(network, |_| ()).await;
        let mut late = grant(&f, &a, "cpus:4");
        late.session = world.books().await.agents.get(&a).unwrap().session;
        let tasks = vec![running(&f, task("t", &a, "cpus:1"), TaskState::Running)];
        register(&agent, Some(a.clone()), tasks).await.unwrap();
        world.settle().await;
        assert_eq!(world.allocator(), ["agent S0 used [0000=cpus:1]"]);
        let granted = Granted { grants: vec![late] };
        world.node.tell(&world.master.pid(), granted).unwrap();
        world.settle().await;
        assert_eq!(scheduler.heard(), Vec::<String>::new(), "no offer");
        assert_eq!(world.allocator(), Vec::<String>::new(), "nor anything free");
        world.offer(&scheduler, &f, &a, "cpus:4").await;
    });
}

/// SPEC 3.2: an agent speaks for its own tasks only.
#[test]
fn an_agent_can_neither_bring_back_nor_end_a_task_of_another() {
    rehearse_network(|network| async move {
        let (world, (agent, a), (scheduler, f)) = one_task(network, aware).await;
        let (thief, b) = world.agent("agent-2").await;
        let stolen = update(&thief.node, &f, &b, "t", TaskState::Finished);
        thief.tell(stolen);
        world.settle().await;
        assert_eq!(scheduler.heard(), Vec::<String>::new());
        assert_eq!(
            thief.heard(),
            ["acknowledge t"],
            "so that it is not said again"
        );

        agent.answers.store(false, Ordering::Relaxed);
        world.pass(100).await;
        scheduler.heard();
        let tasks = vec![running(&f, task("t", &b, "cpus:1"), TaskState::Running)];
        register(&thief, Some(b.clone()), tasks).await.unwrap();
        world.settle().await;
        assert_eq!(thief.heard(), ["disown t"]);
        assert_eq!(scheduler.heard(), Vec::<String>::new());
        let books = world.books().await;
        let of = books.tasks.of_framework(&f).unwrap();
        let unreachable: Vec<_> = of.unreachable().map(|task| task.agent_id.clone()).collect();
        assert_eq!(unreachable, [a]);
    });
}

/// SPEC 5.3: the agent tells of the end itself, after what comes before it: no framework hears that an ended task runs.
#[test]
fn a_task_that_ended_while_its_agent_was_away_is_completed_by_its_acknowledgement() {
    rehearse_network(|network| async move {
        let (world, (agent, a), (scheduler, f)) = one_task(network, aware).await;
        agent.answers.store(false, Ordering::Relaxed);
        world.pass(100).await;
        scheduler.heard();
        let tasks = vec![running(&f, task("t", &a, "cpus:1"), TaskState::Finished)];
        register(&agent, Some(a.clone()), tasks).await.unwrap();
        world.settle().await;
        assert_eq!(scheduler.heard(), Vec::<String>::new());
        let last = world.allocator().pop();
        assert_eq!(
            last.unwrap(),
            "agent S0 used []",
            "it holds nothing any more"
        );
        let end = update(&agent.node, &f, &a, "t", TaskState::Finished);
        agent.tell(end.clone());
        world.settle().await;
        scheduler.tell(acknowledgement(&f, &end));
        world.settle().await;
        let books = world.books().await;
        let of = books.tasks.of_framework(&f).unwrap();
        assert_eq!((of.active().count(), of.completed().count()), (0, 1));
        assert_eq!(books.tasks.unacknowledged(&f), 0);
    });
}

/// SPEC 2.2 ACKNOWLEDGE: the agent that is named says the end again if it was meant for another.
#[test]
fn an_acknowledgement_that_names_another_agent_that_is_there_completes_no_task() {
    rehearse_network(|network| async move {
        let (world, (agent, a), (scheduler, f)) = one_task(network, aware).await;
        let (_other, b) = world.agent("agent-2").await;
        let end = update(&agent.node, &f, &a, "t", TaskState::Finished);
        agent.tell(end.clone());
        world.settle().await;
        let right = acknowledgement(&f, &end);
        let mut wrong = right.clone();
        wrong.agent_id = b;
        for (said, completed) in [(wrong, 0), (right, 1)] {
            scheduler.tell(said);
            world.settle().await;
            let books = world.books().await;
            let of = books.tasks.of_framework(&f).unwrap();
            let counts = (of.active().count(), of.completed().count());
            assert_eq!(counts, (1 - completed, completed));
        }
    });
}

/// SPEC 2.2: an answer is never ahead of what the agent has still to tell.
#[test]
fn an_ended_task_that_a_new_master_hears_of_from_its_agent_is_not_over_for_its_framework_yet() {
    rehearse_network(|network| async move {
        let world = World::new(network, Config::default()).await;
        let (scheduler, f) = world.framework("web", aware).await;
        let (agent, a) = world.agent("agent-1").await;
        let tasks = vec![running(&f, task("t", &a, "cpus:1"), TaskState::Finished)];
        register(&agent, Some(a.clone()), tasks).await.unwrap();
        let asked = |tasks| ReconcileTasks {
            framework_id: f.clone(),
            tasks,
        };
        let named = vec![(TaskId::new("t").unwrap(), Some(a.clone()))];
        scheduler.tell(asked(named.clone()));
        world.settle().await;
        assert!(scheduler.heard().is_empty(), "its agent will tell");
        let end = update(&agent.node, &f, &a, "t", TaskState::Finished);
        agent.tell(end.clone());
        scheduler.tell(acknowledgement(&f, &end));
        world.settle().await;
        assert_eq!(scheduler.heard(), ["t TASK_FINISHED"]);
        scheduler.tell(asked(named));
        world.settle().await;
        assert_eq!(scheduler.heard(), ["t TASK_FINISHED REASON_RECONCILIATION"]);
    });
}

#[test]
fn an_agent_that_asks_twice_gets_one_id_and_one_that_is_restarted_keeps_its_own() {
    rehearse_network(|network| async move {
        let world = World::new(network, Config::default()).await;
        let (agent, a) = world.agent("agent-1").await;
        assert_eq!(
            register(&agent, None, vec![]).await.unwrap().agent_id,
            a,
            "the answer was lost"
        );
        let restarted = runtime::rehearsal::node("agent-1").seed(8);
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
            world.books().await.agents.iter().count(),
            1,
            "the old process speaks for nobody"
        );
        world.network.sever("agent-1", "master");
        world.settle().await;
        let refused = register(&thief, Some(a), vec![]).await;
        assert!(refused.is_err(), "an absent agent's id is not free either");
    });
}

#[test]
fn an_agent_that_was_started_anew_ends_its_earlier_life_and_the_tasks_of_it() {
    rehearse_network(|network| async move {
        let (world, (agent, a), (scheduler, _)) = one_task(network, |_| ()).await;
        let name = agent.pid.node().name().to_owned();
        let anew = runtime::rehearsal::node(&name).seed(8);
        let anew = anew.role(Role::Agent).accepts(&[Role::Master]).build();
        world.network.join(&anew, &name);
        let anew = world.member_on(anew, "agent").await;
        let b = register(&anew, None, vec![]).await.unwrap().agent_id;
        assert_ne!(a, b, "it has forgotten its id");
        world.settle().await;
        assert_eq!(
            scheduler.heard(),
            ["t TASK_LOST REASON_SLAVE_REMOVED", "lost S0"]
        );
        let agents: Vec<_> = world.whims.state().agents.into_keys().collect();
        assert_eq!(agents, [b], "the registry has forgotten the earlier one");
        let removed = "master/slave_removals/reason_registered";
        assert_eq!(world.books().await.counters.get(removed), 1);
    });
}

#[test]
fn an_agent_that_leaves_takes_its_tasks_with_it() {
    rehearse_network(|network| async move {
        let (world, (agent, a), (scheduler, _)) = one_task(network, |_| ()).await;
        agent.tell(UnregisterAgent {
            agent_id: a.clone(),
        });
        world.settle().await;
        assert_eq!(
            scheduler.heard(),
            ["t TASK_LOST REASON_SLAVE_REMOVED", "lost S0"]
        );
        assert_eq!(world.allocator(), ["no agent S0"]);
        assert!(world.whims.state().agents.is_empty());
    });
}

/// An agent that may come back tells all in order itself; of one that has gone, its newest word is told.
#[test]
fn an_end_that_the_master_alone_has_heard_of_is_told_when_the_agent_leaves_and_not_when_it_is_silent()
 {
    for leaves in [true, false] {
        rehearse_network(|network| async move {
            let (world, (agent, a), (scheduler, f)) = one_task(network, aware).await;
            let mut late = update(&agent.node, &f, &a, "t", TaskState::Running);
            late.update.latest_state = TaskState::Finished;
            agent.tell(late);
            world.settle().await;
            assert_eq!(scheduler.heard(), ["t TASK_RUNNING"]);
            if leaves {
                let agent_id = a.clone();
                agent.tell(UnregisterAgent { agent_id });
                world.settle().await;
            } else {
                agent.answers.store(false, Ordering::Relaxed);
                world.pass(100).await;
            }
            let (state, over) = match leaves {
                true => ("t TASK_FINISHED REASON_SLAVE_REMOVED", (1, 0)),
                false => ("t TASK_UNREACHABLE REASON_SLAVE_REMOVED", (0, 1)),
            };
            assert_eq!(scheduler.heard(), [state, "lost S0"]);
            let books = world.books().await;
            let of = books.tasks.of_framework(&f).unwrap();
            assert_eq!((of.completed().count(), of.unreachable().count()), over);
        });
    }
}
