//! Agents that return to a new leader with the registry and a mirror of the last leader's state
//! (DESIGN 5).

use super::*;
use crate::leadership::mirror::difference;

/// A follower's copy of this state.
fn mirrored(state: &MasterState) -> MasterState {
    let mut mirror = MasterState::new(state.master.clone(), &Config::default(), state.started);
    for change in difference::changes(&mirror, state) {
        change.apply(&mut mirror);
    }
    mirror
}

impl Scenario {
    /// The master has died, and the next one leads; it had a mirror.
    async fn followed(self) -> Self {
        let mirror = mirrored(&*self.world.state().await);
        self.followed_with(mirror).await
    }

    async fn followed_with(mut self, mirror: MasterState) -> Self {
        self.world = self.world.next_after(Some(Arc::new(mirror))).await;
        let node = &self.agent.node;
        self.agent.master = node.find("master", "master", PATIENCE).await.unwrap();
        self.quiet().await;
        self
    }

    /// The ids of the tasks in the state.
    async fn known(&self) -> Vec<String> {
        let state = self.world.state().await;
        let of = state.tasks.of_framework(&self.f).into_iter();
        of.flat_map(|of| of.active().map(|task| task.id.to_string()))
            .collect()
    }

    /// The ids of the tasks that the agent has.
    fn has(&self) -> Vec<String> {
        let tasks = self.held.tasks.iter();
        let mut ids: Vec<_> = tasks.map(|task| task.info.task_id.to_string()).collect();
        ids.sort();
        ids
    }
}

/// Issue: equal digests cost one small message, also with a leader that was never asked before.
#[test]
fn agent_matching_the_mirror_registers_with_its_digest() {
    simulate_network(|network| async move {
        let mut scenario = Scenario::with_tasks(network, 7).await;
        scenario.held.executors.push(RunningExecutor {
            framework_id: scenario.f.clone(),
            info: own("e"),
        });
        let whole = RegisterAgent {
            held: scenario.held.clone(),
            ..registration(&scenario.agent, Some(scenario.a.clone()), vec![])
        };
        let asked = scenario
            .agent
            .node
            .ask(&scenario.agent.master, whole, PATIENCE);
        asked.await.unwrap().unwrap();
        let t3 = update(
            &scenario.agent.node,
            &scenario.f,
            &scenario.a,
            "t3",
            TaskState::Running,
        );
        scenario.agent.tell(t3);
        scenario.world.settle().await;
        let before = scenario.world.state().await;
        let scenario = scenario.followed().await;
        // Nothing is shown, sent or granted before the agent has confirmed it.
        assert_eq!(scenario.known().await, [""; 0]);
        let answer = come_back(&scenario.agent, &scenario.a, &scenario.held).await;
        assert!(is_registered(&answer), "{answer:?}");
        scenario.world.settle().await;
        scenario.world.facts_are("agent S0 used [0000=cpus:7.5]");
        scenario.agent.receives("");
        assert_eq!(scenario.known().await, scenario.has());
        let now = scenario.world.state().await;
        let id = TaskId::new("t3").unwrap();
        let task = |state: &MasterState| state.tasks.get(&scenario.f, &id).cloned().unwrap();
        assert_eq!(task(&now).statuses.len(), 1, "its history is known as well");
        assert_eq!(task(&now), task(&before));
        assert!(now.expected.is_none(), "nobody is awaited any more");
        // It is kept by the same sums from here on.
        assert!(is_registered(
            &come_back(&scenario.agent, &scenario.a, &scenario.held).await
        ));
    });
}

/// Unequal digests cost bytes in proportion to the difference. Unconfirmed tasks are dropped: they
/// may have ended and been acknowledged after the mirror's update.
#[test]
fn agent_differing_from_the_mirror_reports_the_difference() {
    simulate_network(|network| async move {
        let mut scenario = Scenario::with_tasks(network, 400).await.followed().await;
        let (a, f) = (scenario.a.clone(), scenario.f.clone());
        let lost = scenario.held.tasks.remove(17).info.task_id;
        scenario.held.tasks[40].state = TaskState::Finished;
        let late = allocated("late", &a, TaskState::Running, &f);
        scenario.held.tasks.push(late);
        let theirs = sums(come_back(&scenario.agent, &a, &scenario.held).await);
        assert_eq!(scenario.known().await, [""; 0]);
        let said = back(&scenario.agent, &a, &scenario.held, Some(&theirs));
        let told = said.report.as_ref().unwrap().held.tasks.len();
        assert!((2..40).contains(&told), "{told} tasks are told");
        assert!(is_registered(&say(&scenario.agent, said).await.unwrap()));
        scenario.world.settle().await;
        assert_eq!(scenario.known().await, scenario.has());
        assert!(!scenario.known().await.contains(&lost.to_string()));
        scenario.world.facts_are("agent S0 used [0000=cpus:399]");
        scenario.agent.receives("");
        assert!(is_registered(
            &come_back(&scenario.agent, &a, &scenario.held).await
        ));
    });
}

#[test]
fn empty_agent_drops_all_expectations() {
    simulate_network(|network| async move {
        let mut scenario = Scenario::with_tasks(network, 3).await.followed().await;
        scenario.held = AgentInventory::default();
        assert!(is_registered(
            &come_back(&scenario.agent, &scenario.a, &scenario.held).await
        ));
        scenario.world.settle().await;
        scenario.world.facts_are("agent S0 used []");
        assert_eq!(scenario.known().await, [""; 0]);
    });
}

/// W17: the last leader's handling of a kill is unknown; the driver repeats it, even before the
/// agent returns.
#[test]
fn only_recent_early_kills_are_passed_on() {
    simulate_network(|network| async move {
        let scenario = Scenario::with_tasks(network, 2).await;
        let kill = |id: &str| kill_task(&scenario.f, id);
        let (old, new) = (kill("t0"), kill("t1"));
        scenario.scheduler.tell(old);
        scenario.world.settle().await;
        let mut scenario = scenario.followed().await;
        let node = &scenario.scheduler.node;
        scenario.scheduler.master = node.find("master", "master", PATIENCE).await.unwrap();
        let mut info = FrameworkInfo::new("nobody", "web");
        info.id = Some(scenario.f.clone());
        aware(&mut info);
        info.failover_timeout = Duration::from_secs(3600);
        subscribe(&scenario.scheduler, info).await.unwrap();
        scenario.scheduler.tell(new);
        scenario.quiet().await;
        assert!(is_registered(
            &come_back(&scenario.agent, &scenario.a, &scenario.held).await
        ));
        scenario.world.settle().await;
        scenario.agent.receives("kill t1");
    });
}

/// An agent with unknown frameworks sends a full report, and is told to end them.
#[test]
fn mirrored_tasks_of_a_removed_framework_are_ignored() {
    simulate_network(|network| async move {
        let scenario = Scenario::with_tasks(network, 3).await;
        let mirror = mirrored(&*scenario.world.state().await);
        scenario.scheduler.tell(TearDown {
            framework_id: scenario.f.clone(),
        });
        scenario.world.settle().await;
        let scenario = scenario.followed_with(mirror).await;
        let (agent, a) = (&scenario.agent, &scenario.a);
        assert_eq!(
            come_back(agent, a, &scenario.held).await,
            Reregistered::Unknown
        );
        let tasks = scenario.held.tasks.clone();
        register(agent, Some(a.clone()), tasks).await.unwrap();
        scenario.world.settle().await;
        agent.receives("shut down 0000");
        assert_eq!(scenario.known().await, [""; 0]);
    });
}

/// A task is on one agent: if another agent has reported it before, the mirror is outdated.
#[test]
fn task_reported_elsewhere_is_not_taken_over() {
    simulate_network(|network| async move {
        let scenario = Scenario::with_tasks(network, 3).await;
        let (mut other, b) = scenario.world.agent("agent-2").await;
        let scenario = scenario.followed().await;
        let find = other.node.find("master", "master", PATIENCE);
        other.master = find.await.unwrap();
        let brought = allocated("t1", &b, TaskState::Running, &scenario.f);
        register(&other, Some(b), vec![brought]).await.unwrap();
        let answer = come_back(&scenario.agent, &scenario.a, &scenario.held).await;
        assert_eq!(answer, Reregistered::Unknown);
        assert_eq!(scenario.known().await, ["t1"]);
    });
}

/// An agent that was given up sends a full report, regardless of the mirror.
#[test]
fn given_up_agent_has_no_expectations() {
    simulate_network(|network| async move {
        let scenario = Scenario::with_tasks(network, 3).await.followed().await;
        scenario.world.pass(700).await;
        assert!(scenario.world.state().await.expected.is_none());
        let answer = come_back(&scenario.agent, &scenario.a, &scenario.held).await;
        assert_eq!(answer, Reregistered::Unknown);
    });
}
