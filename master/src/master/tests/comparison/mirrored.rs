//! Agents that come back to a new leader, which has read the registry and knows the last leader's books by its mirror (DESIGN 5).

use super::*;
use crate::mirror::difference;

/// What a follower has of these books.
fn mirrored(books: &Books) -> Books {
    let mut mirror = Books::new(books.master.clone(), &Config::default(), books.started);
    for change in difference::changes(&mirror, books) {
        change.apply(&mut mirror);
    }
    mirror
}

impl Story {
    /// The master has died, and the next one leads; it had a mirror.
    async fn followed(self) -> Self {
        let mirror = mirrored(&*self.world.books().await);
        self.followed_with(mirror).await
    }

    async fn followed_with(mut self, mirror: Books) -> Self {
        self.world = self.world.next_after(Some(Arc::new(mirror))).await;
        let node = &self.agent.node;
        self.agent.master = node.find("master", "master", PATIENCE).await.unwrap();
        self.quiet().await;
        self
    }

    /// The ids of the tasks in the books.
    async fn known(&self) -> Vec<String> {
        let books = self.world.books().await;
        let of = books.tasks.of_framework(&self.f).into_iter();
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
fn a_new_leader_takes_an_agent_by_its_first_words_if_it_has_what_the_last_one_knew() {
    rehearse_network(|network| async move {
        let mut story = Story::with_tasks(network, 7).await;
        story.held.executors.push(RunningExecutor {
            framework_id: story.f.clone(),
            info: own("e"),
        });
        let whole = RegisterAgent {
            held: story.held.clone(),
            ..registration(&story.agent, Some(story.a.clone()), vec![])
        };
        let asked = story.agent.node.ask(&story.agent.master, whole, PATIENCE);
        asked.await.unwrap().unwrap();
        let t3 = update(
            &story.agent.node,
            &story.f,
            &story.a,
            "t3",
            TaskState::Running,
        );
        story.agent.tell(t3);
        story.world.settle().await;
        let before = story.world.books().await;
        let story = story.followed().await;
        // Nobody is shown, told or granted anything that the agent has not confirmed.
        assert_eq!(story.known().await, [""; 0]);
        let answer = come_back(&story.agent, &story.a, &story.held).await;
        assert!(is_registered(&answer), "{answer:?}");
        story.world.settle().await;
        assert_eq!(story.world.allocator(), ["agent S0 used [0000=cpus:7.5]"]);
        assert_eq!(story.agent.heard(), [""; 0]);
        assert_eq!(story.known().await, story.has());
        let now = story.world.books().await;
        let id = TaskId::new("t3").unwrap();
        let task = |books: &Books| books.tasks.get(&story.f, &id).cloned().unwrap();
        assert_eq!(task(&now).statuses.len(), 1, "its history is known as well");
        assert_eq!(task(&now), task(&before));
        assert!(now.expected.is_none(), "nobody is awaited any more");
        // It is kept by the same sums from here on.
        assert!(is_registered(
            &come_back(&story.agent, &story.a, &story.held).await
        ));
    });
}

/// Issue: unequal digests cost bytes in proportion to the difference. What an agent does not confirm is nobody's: it may have ended,
/// and been acknowledged, after the mirror was told.
#[test]
fn where_an_agent_differs_from_the_mirror_it_tells_that_part_and_is_believed() {
    rehearse_network(|network| async move {
        let mut story = Story::with_tasks(network, 400).await.followed().await;
        let (a, f) = (story.a.clone(), story.f.clone());
        let lost = story.held.tasks.remove(17).info.task_id;
        story.held.tasks[40].state = TaskState::Finished;
        let late = allocated("late", &a, TaskState::Running, &f);
        story.held.tasks.push(late);
        let theirs = sums(come_back(&story.agent, &a, &story.held).await);
        assert_eq!(story.known().await, [""; 0]);
        let said = back(&story.agent, &a, &story.held, Some(&theirs));
        let told = said.report.as_ref().unwrap().held.tasks.len();
        assert!((2..40).contains(&told), "{told} tasks are told");
        assert!(is_registered(&say(&story.agent, said).await.unwrap()));
        story.world.settle().await;
        assert_eq!(story.known().await, story.has());
        assert!(!story.known().await.contains(&lost.to_string()));
        assert_eq!(story.world.allocator(), ["agent S0 used [0000=cpus:399]"]);
        assert_eq!(story.agent.heard(), [""; 0]);
        assert!(is_registered(
            &come_back(&story.agent, &a, &story.held).await
        ));
    });
}

#[test]
fn an_agent_that_has_nothing_of_what_was_expected_has_nothing() {
    rehearse_network(|network| async move {
        let mut story = Story::with_tasks(network, 3).await.followed().await;
        story.held = Held::default();
        assert!(is_registered(
            &come_back(&story.agent, &story.a, &story.held).await
        ));
        story.world.settle().await;
        assert_eq!(story.world.allocator(), ["agent S0 used []"]);
        assert_eq!(story.known().await, [""; 0]);
    });
}

/// W17: what the last leader did about a kill nobody knows; the driver says it again, also before the agent is back.
#[test]
fn a_kill_that_came_before_its_agent_is_passed_on_and_an_old_one_is_not() {
    rehearse_network(|network| async move {
        let story = Story::with_tasks(network, 2).await;
        let kill = |id: &str| KillTask {
            framework_id: story.f.clone(),
            task_id: TaskId::new(id).unwrap(),
            agent_id: None,
            kill_policy: None,
        };
        let (old, new) = (kill("t0"), kill("t1"));
        story.scheduler.tell(old);
        story.world.settle().await;
        let mut story = story.followed().await;
        let node = &story.scheduler.node;
        story.scheduler.master = node.find("master", "master", PATIENCE).await.unwrap();
        let mut info = FrameworkInfo::new("nobody", "web");
        info.id = Some(story.f.clone());
        aware(&mut info);
        info.failover_timeout = Duration::from_secs(3600);
        subscribe(&story.scheduler, info).await.unwrap();
        story.scheduler.tell(new);
        story.quiet().await;
        assert!(is_registered(
            &come_back(&story.agent, &story.a, &story.held).await
        ));
        story.world.settle().await;
        assert_eq!(story.agent.heard(), ["kill t1"]);
    });
}

/// An agent whose frameworks are not known tells all, and is told to end what is theirs.
#[test]
fn a_mirror_of_a_framework_that_is_over_helps_nobody() {
    rehearse_network(|network| async move {
        let story = Story::with_tasks(network, 3).await;
        let mirror = mirrored(&*story.world.books().await);
        story.scheduler.tell(TearDown {
            framework_id: story.f.clone(),
        });
        story.world.settle().await;
        let story = story.followed_with(mirror).await;
        let (agent, a) = (&story.agent, &story.a);
        assert_eq!(
            come_back(agent, a, &story.held).await,
            Reregistered::Unknown
        );
        let tasks = story.held.tasks.clone();
        register(agent, Some(a.clone()), tasks).await.unwrap();
        story.world.settle().await;
        assert_eq!(agent.heard(), ["shut down 0000"]);
        assert_eq!(story.known().await, [""; 0]);
    });
}

/// A task is on one agent: where another one has brought it before, what the mirror says is no longer so.
#[test]
fn what_another_agent_has_brought_meanwhile_is_not_taken_over_as_well() {
    rehearse_network(|network| async move {
        let story = Story::with_tasks(network, 3).await;
        let (mut other, b) = story.world.agent("agent-2").await;
        let story = story.followed().await;
        let find = other.node.find("master", "master", PATIENCE);
        other.master = find.await.unwrap();
        let brought = allocated("t1", &b, TaskState::Running, &story.f);
        register(&other, Some(b), vec![brought]).await.unwrap();
        let answer = come_back(&story.agent, &story.a, &story.held).await;
        assert_eq!(answer, Reregistered::Unknown);
        assert_eq!(story.known().await, ["t1"]);
    });
}

/// Who was given up tells all when it is back, whatever the mirror said.
#[test]
fn of_an_agent_that_was_given_up_nothing_is_expected() {
    rehearse_network(|network| async move {
        let story = Story::with_tasks(network, 3).await.followed().await;
        story.world.pass(700).await;
        assert!(story.world.books().await.expected.is_none());
        let answer = come_back(&story.agent, &story.a, &story.held).await;
        assert_eq!(answer, Reregistered::Unknown);
    });
}
