//! Agents that come back with a digest: what is compared, what is told, and what happens in between.

mod fit;
mod mirrored;

use protocol::digest::{self, Digest, Printer, Summary};

use super::*;

fn key() -> DigestKey {
    DigestKey::new([7; 16])
}

/// What an agent says that comes back with these.
fn back(agent: &Member, id: &AgentId, held: &Held, theirs: Option<&[u64]>) -> ReregisterAgent {
    let whole = registration(agent, Some(id.clone()), vec![]);
    ReregisterAgent {
        agent: whole.agent,
        pid: whole.pid,
        version: whole.version,
        summary: Printer::new(key()).summary(held),
        report: theirs.map(|theirs| Printer::new(key()).report(held.clone(), theirs)),
        oversubscribed: Resources::default(),
        resources: None,
        term_seen: 0,
    }
}

async fn say(
    agent: &Member,
    message: ReregisterAgent,
) -> Result<Reregistered, RegistrationRefused> {
    let asked = agent.node.ask(&agent.master, message, PATIENCE);
    asked.await.unwrap()
}

/// Comes back with a summary.
async fn come_back(agent: &Member, id: &AgentId, held: &Held) -> Reregistered {
    say(agent, back(agent, id, held, None)).await.unwrap()
}

/// Comes back with what it has where its sums are not these.
async fn tell(agent: &Member, id: &AgentId, held: &Held, theirs: &[u64]) -> Reregistered {
    say(agent, back(agent, id, held, Some(theirs)))
        .await
        .unwrap()
}

fn sums(answer: Reregistered) -> Vec<u64> {
    match answer {
        Reregistered::Differs { buckets } => buckets,
        other => panic!("{other:?}"),
    }
}

fn is_registered(answer: &Reregistered) -> bool {
    matches!(answer, Reregistered::Registered(_))
}

fn own(name: &str) -> ExecutorInfo {
    let star = ResourceRole::new("*").unwrap();
    ExecutorInfo {
        executor_id: ExecutorId::new(name).unwrap(),
        name: name.to_owned(),
        command: CommandInfo::shell("./executor"),
        resources: resources("cpus:0.5").allocate(&star),
        data: vec![],
        shutdown_grace_period: None,
        labels: Default::default(),
    }
}

fn allocated(id: &str, agent: &AgentId, state: TaskState, framework: &FrameworkId) -> RunningTask {
    let star = ResourceRole::new("*").unwrap();
    let mut info = task(id, agent, "cpus:1");
    info.resources = info.resources.allocate(&star);
    running(framework, info, state)
}

/// A master, an agent that runs so many tasks there, and their framework.
struct Story {
    world: World,
    agent: Member,
    a: AgentId,
    scheduler: Member,
    f: FrameworkId,
    held: Held,
}

impl Story {
    async fn with_tasks(network: Network, tasks: u32) -> Self {
        let world = World::new(network, Config::default()).await;
        let (agent, a) = world.agent("agent-1").await;
        let lasting = |info: &mut FrameworkInfo| {
            aware(info);
            info.failover_timeout = Duration::from_secs(3600);
        };
        let (scheduler, f) = world.framework("web", lasting).await;
        let tasks =
            (0..tasks).map(|number| allocated(&format!("t{number}"), &a, TaskState::Running, &f));
        let held = Held {
            tasks: tasks.collect(),
            ..Held::default()
        };
        let message = RegisterAgent {
            held: held.clone(),
            ..registration(&agent, Some(a.clone()), vec![])
        };
        let asked = agent.node.ask(&agent.master, message, PATIENCE);
        asked.await.unwrap().unwrap();
        let story = Self {
            world,
            agent,
            a,
            scheduler,
            f,
            held,
        };
        story.quiet().await;
        story
    }

    /// Forgets what was heard so far.
    async fn quiet(&self) {
        self.world.settle().await;
        self.world.allocator();
        self.agent.heard();
        self.scheduler.heard();
    }
}

#[test]
fn an_agent_that_has_what_is_known_of_it_is_registered_by_its_first_words() {
    rehearse_network(|network| async move {
        let story = Story::with_tasks(network, 7).await;
        let answer = come_back(&story.agent, &story.a, &story.held).await;
        assert!(is_registered(&answer), "{answer:?}");
        story.world.settle().await;
        assert_eq!(story.world.allocator(), ["agent S0 used [0000=cpus:7]"]);
        assert_eq!(story.agent.heard(), Vec::<String>::new());
        assert_eq!(story.scheduler.heard(), Vec::<String>::new());
        let said = back(&story.agent, &story.a, &story.held, None);
        let bytes = runtime::codec::encode(&said).unwrap().len();
        assert!(bytes < 200, "{bytes} bytes");
    });
}

/// The books are kept by the same sums through all that happens to tasks.
#[test]
fn what_has_happened_on_both_sides_is_no_difference() {
    rehearse_network(|network| async move {
        let mut story = Story::with_tasks(network, 3).await;
        let (world, agent, a, f) = (&story.world, &story.agent, &story.a, &story.f);
        let offer = world.offer(&story.scheduler, f, a, "cpus:1.5").await;
        let mut info = task("own", a, "cpus:1");
        info.command = None;
        info.executor = Some(own("e"));
        let launch = accept(f, &[&offer], vec![info.clone()]);
        story.scheduler.tell(launch);
        world.settle().await;
        let star = ResourceRole::new("*").unwrap();
        info.resources = info.resources.allocate(&star);
        story.held.tasks.push(running(f, info, TaskState::Staging));
        story.held.executors.push(RunningExecutor {
            framework_id: f.clone(),
            info: own("e"),
        });
        agent.tell(update(&agent.node, f, a, "own", TaskState::Running));
        story.held.tasks[3].state = TaskState::Running;
        let end = update(&agent.node, f, a, "t1", TaskState::Finished);
        agent.tell(end.clone());
        story.held.tasks[1].state = TaskState::Finished;
        world.settle().await;
        let answer = come_back(agent, a, &story.held).await;
        assert!(
            is_registered(&answer),
            "before the end is acknowledged: {answer:?}"
        );
        story.scheduler.tell(acknowledgement(f, &end));
        world.settle().await;
        story.held.tasks.remove(1);
        let answer = come_back(agent, a, &story.held).await;
        assert!(is_registered(&answer), "and after it: {answer:?}");
        world.settle().await;
        let last = world.allocator().pop();
        assert_eq!(last.unwrap(), "agent S0 used [0000=cpus:3.5]");
    });
}

/// DESIGN 5: what an agent has is offered only after it was compared.
#[test]
fn nothing_is_offered_or_launched_until_the_two_agree() {
    rehearse_network(|network| async move {
        let mut story = Story::with_tasks(network, 40).await;
        let (world, agent, a, f) = (&story.world, &story.agent, &story.a, &story.f);
        let offer = world.offer(&story.scheduler, f, a, "cpus:1").await;
        story.scheduler.heard();
        let lost = story.held.tasks.remove(17).info.task_id;
        let sums = sums(come_back(agent, a, &story.held).await);
        assert_eq!(sums.len(), 16);
        world.settle().await;
        assert_eq!(
            world.allocator(),
            ["agent S0 active false", "recovered 0000 cpus:1"]
        );
        world.grant(vec![grant(f, a, "cpus:1")]).await;
        assert_eq!(world.allocator(), ["recovered 0000 cpus:1"]);
        story
            .scheduler
            .tell(accept(f, &[&offer], vec![task("late", a, "cpus:1")]));
        world.settle().await;
        assert_eq!(
            story.scheduler.heard(),
            ["rescind O0", "late TASK_DROPPED REASON_INVALID_OFFERS"]
        );

        let said = back(agent, a, &story.held, Some(&sums));
        let report = said.report.as_ref().unwrap();
        assert_eq!(report.differing.len(), 1);
        assert!(
            report.held.tasks.len() < 15,
            "{} tasks",
            report.held.tasks.len()
        );
        assert!(is_registered(&say(agent, said).await.unwrap()));
        world.settle().await;
        let gone = format!("{lost} TASK_DROPPED REASON_RECONCILIATION");
        assert_eq!(story.scheduler.heard(), [gone]);
        assert_eq!(agent.heard(), [format!("disown {lost}")]);
        assert_eq!(world.allocator(), ["agent S0 used [0000=cpus:39]"]);
        assert!(is_registered(&come_back(agent, a, &story.held).await));
    });
}

#[test]
fn a_state_that_differs_is_taken_over_and_a_task_nobody_knew_is_adopted() {
    rehearse_network(|network| async move {
        let mut story = Story::with_tasks(network, 20).await;
        let (world, agent, a, f) = (&story.world, &story.agent, &story.a, &story.f);
        story.held.tasks[5].state = TaskState::Finished;
        let unknown = allocated("unknown", a, TaskState::Running, f);
        story.held.tasks.push(unknown);
        let gone = FrameworkId::new("never-heard-of").unwrap();
        let foreign = allocated("foreign", a, TaskState::Running, &gone);
        story.held.tasks.push(foreign);
        let sums = sums(come_back(agent, a, &story.held).await);
        let answer = tell(agent, a, &story.held, &sums).await;
        assert!(is_registered(&answer), "{answer:?}");
        world.settle().await;
        let last = world.allocator().pop();
        assert_eq!(last.unwrap(), "agent S0 used [0000=cpus:20]");
        assert_eq!(agent.heard(), ["shut down of"]);
        let books = world.books().await;
        let t5 = TaskId::new("t5").unwrap();
        assert_eq!(books.tasks.get(f, &t5).unwrap().state, TaskState::Finished);
        assert_eq!(
            story.scheduler.heard(),
            Vec::<String>::new(),
            "its agent tells of it"
        );
    });
}

#[test]
fn what_changes_in_the_books_during_a_comparison_makes_it_begin_anew() {
    rehearse_network(|network| async move {
        let mut story = Story::with_tasks(network, 12).await;
        let (world, agent, a) = (&story.world, &story.agent, &story.a);
        let (other, g) = world.framework("short", |_| ()).await;
        story
            .held
            .tasks
            .push(allocated("g", a, TaskState::Running, &g));
        let first = sums(come_back(agent, a, &story.held).await);
        assert!(is_registered(&tell(agent, a, &story.held, &first).await));
        story.quiet().await;

        // One that is not told in the same breath as the other framework's.
        let bucket = |task: &RunningTask| {
            let place = Printer::new(key()).task_place(&task.framework_id, &task.info.task_id);
            digest::bucket(place, 4)
        };
        let theirs = bucket(&story.held.tasks[12]);
        let mut others = story.held.tasks.iter_mut();
        let apart = others.find(|task| bucket(task) != theirs).unwrap();
        apart.state = TaskState::Killing;
        let before = sums(come_back(agent, a, &story.held).await);
        assert_eq!(before.len(), 4);
        other.say(TearDown { framework_id: g });
        world.settle().await;
        let again = tell(agent, a, &story.held, &before).await;
        let after = sums(again);
        assert_ne!(before, after);
        assert_eq!(
            world.books().await.agents.connected(a),
            None,
            "it is not admitted by what was true before"
        );
        assert!(is_registered(&tell(agent, a, &story.held, &after).await));
        world.settle().await;
        assert!(
            agent.heard().contains(&"shut down 0001".to_owned()),
            "the task of the framework that ended meanwhile is killed"
        );
        let last = world.allocator().pop();
        assert_eq!(last.unwrap(), "agent S0 used [0000=cpus:12]");
    });
}

/// An agent counts anew for each message: what it says it has is what it has then.
#[test]
fn a_task_that_changes_in_the_agent_during_a_comparison_is_told_as_it_is_then() {
    rehearse_network(|network| async move {
        let mut story = Story::with_tasks(network, 12).await;
        let (world, agent, a, f) = (&story.world, &story.agent, &story.a, &story.f);
        story.held.tasks[0].state = TaskState::Killing;
        let before = sums(come_back(agent, a, &story.held).await);
        let mut mixed = back(agent, a, &story.held, Some(&before));
        story.held.tasks[7].state = TaskState::Failed;
        mixed.summary = Printer::new(key()).summary(&story.held);
        let after = sums(say(agent, mixed).await.unwrap());
        assert_eq!(
            before, after,
            "a report and a summary of two moments are not taken"
        );
        assert!(is_registered(&tell(agent, a, &story.held, &after).await));
        world.settle().await;
        let books = world.books().await;
        let state = |id| books.tasks.get(f, &TaskId::new(id).unwrap()).unwrap().state;
        assert_eq!(
            (state("t0"), state("t7")),
            (TaskState::Killing, TaskState::Failed)
        );
    });
}

/// S132: a new master accounts for what executors have, too.
#[test]
fn a_master_that_knows_nothing_asks_for_all_and_accounts_for_executors() {
    rehearse_network(|network| async move {
        let mut story = Story::with_tasks(network.clone(), 12).await;
        story.held.tasks[0].state = TaskState::Killing;
        let before = sums(come_back(&story.agent, &story.a, &story.held).await);
        let second = story.world.next().await;
        let agent = &mut story.agent;
        agent.master = agent.node.find("master", "master", PATIENCE).await.unwrap();
        let a = &story.a;
        story.held.executors.push(RunningExecutor {
            framework_id: story.f.clone(),
            info: own("e"),
        });
        let answer = tell(agent, a, &story.held, &before).await;
        assert_eq!(
            answer,
            Reregistered::Unknown,
            "what the first one said is worth nothing"
        );
        assert_eq!(
            come_back(agent, a, &story.held).await,
            Reregistered::Unknown
        );
        let mut held = story.held.clone();
        held.frameworks = vec![FrameworkInfo {
            id: Some(story.f.clone()),
            ..FrameworkInfo::new("nobody", "web")
        }];
        let all = RegisterAgent {
            held,
            ..registration(agent, Some(a.clone()), vec![])
        };
        agent
            .node
            .ask(&agent.master, all, PATIENCE)
            .await
            .unwrap()
            .unwrap();
        second.settle().await;
        let last = second.allocator().pop();
        assert_eq!(last.unwrap(), "agent S0 used [0000=cpus:12.5]");
        assert!(is_registered(&come_back(agent, a, &story.held).await));
    });
}

#[test]
fn an_executor_whose_end_was_lost_on_the_way_holds_nothing_any_more() {
    rehearse_network(|network| async move {
        let mut story = Story::with_tasks(network, 2).await;
        let (world, agent, a, f) = (&story.world, &story.agent, &story.a, &story.f);
        story.held.executors.push(RunningExecutor {
            framework_id: f.clone(),
            info: own("e"),
        });
        let told = sums(come_back(agent, a, &story.held).await);
        assert!(is_registered(&tell(agent, a, &story.held, &told).await));
        world.settle().await;
        let last = world.allocator().pop();
        assert_eq!(last.unwrap(), "agent S0 used [0000=cpus:2.5]");
        story.held.executors.clear();
        let told = sums(come_back(agent, a, &story.held).await);
        assert!(is_registered(&tell(agent, a, &story.held, &told).await));
        world.settle().await;
        let last = world.allocator().pop();
        assert_eq!(last.unwrap(), "agent S0 used [0000=cpus:2]");
        assert_eq!(story.scheduler.heard(), ["lost e"]);
    });
}

#[test]
fn an_agent_that_was_out_of_reach_tells_all_and_its_tasks_are_back() {
    rehearse_network(|network| async move {
        let story = Story::with_tasks(network, 1).await;
        let (world, agent, a) = (&story.world, &story.agent, &story.a);
        agent.answers.store(false, Ordering::Relaxed);
        world.pass(100).await;
        story.quiet().await;
        agent.answers.store(true, Ordering::Relaxed);
        assert_eq!(
            come_back(agent, a, &story.held).await,
            Reregistered::Unknown
        );
        let tasks = story.held.tasks.clone();
        register(agent, Some(a.clone()), tasks).await.unwrap();
        world.settle().await;
        assert_eq!(
            story.scheduler.heard(),
            ["t0 TASK_RUNNING REASON_SLAVE_REREGISTERED"]
        );
        assert!(is_registered(&come_back(agent, a, &story.held).await));
    });
}

#[test]
fn an_agent_that_has_nothing_and_of_which_nothing_is_known_is_registered_at_once() {
    rehearse_network(|network| async move {
        let story = Story::with_tasks(network, 0).await;
        assert!(is_registered(
            &come_back(&story.agent, &story.a, &story.held).await
        ));
        let second = story.world.next().await;
        let mut agent = story.agent;
        agent.master = agent.node.find("master", "master", PATIENCE).await.unwrap();
        assert!(is_registered(
            &come_back(&agent, &story.a, &story.held).await
        ));
        second.settle().await;
        assert_eq!(second.allocator().pop().unwrap(), "agent S0 used []");
    });
}

#[test]
fn whoever_counts_differently_or_by_another_key_is_understood_all_the_same() {
    rehearse_network(|network| async move {
        let story = Story::with_tasks(network, 5).await;
        let (agent, a) = (&story.agent, &story.a);
        let mut other = back(agent, a, &story.held, None);
        other.summary.form += 1;
        assert_eq!(say(agent, other).await.unwrap(), Reregistered::Unknown);
        let mut other = back(agent, a, &story.held, None);
        let another = DigestKey::new([9; 16]);
        other.summary = Printer::new(another).summary(&story.held);
        assert!(is_registered(&say(agent, other).await.unwrap()));
    });
}

/// Issue: a change of 1 task of 1,000 costs bytes in proportion.
#[test]
fn one_changed_task_of_a_thousand_costs_a_fraction_of_all_on_the_wire() {
    rehearse_network(|network| async move {
        let mut story = Story::with_tasks(network, 1000).await;
        let (agent, a) = (&story.agent, &story.a);
        let bytes = |message: &ReregisterAgent| runtime::codec::encode(message).unwrap().len();
        let answered = |answer: &Reregistered| runtime::codec::encode(answer).unwrap().len();
        let equal = bytes(&back(agent, a, &story.held, None));
        let all = runtime::codec::encode(&story.held).unwrap().len();
        let mut cost = Vec::new();
        for changed in [1, 10, 100] {
            for task in story.held.tasks.iter_mut().step_by(1000 / changed) {
                task.state = match task.state {
                    TaskState::Running => TaskState::Killing,
                    _ => TaskState::Running,
                };
            }
            let first = back(agent, a, &story.held, None);
            let differs = say(agent, first.clone()).await.unwrap();
            let sent = bytes(&first) + answered(&differs);
            let second = back(agent, a, &story.held, Some(&sums(differs)));
            let sent = sent + bytes(&second);
            let registered = say(agent, second).await.unwrap();
            assert!(is_registered(&registered));
            cost.push(sent + answered(&registered));
        }
        println!("equal {equal} bytes; 1, 10, 100 changed {cost:?} bytes; all {all} bytes");
        assert!(equal < 200);
        assert!(
            cost[0] < all / 20 && cost[1] < all / 8 && cost[2] < all / 2,
            "{cost:?} of {all}"
        );
        assert!(cost.is_sorted());
    });
}

/// A summary is the same small thing for any agent.
#[test]
fn the_books_sum_up_what_their_agent_does() {
    rehearse_network(|network| async move {
        let story = Story::with_tasks(network, 100).await;
        let books = story.world.books().await;
        let on = books.tasks.on_agent(&story.a).unwrap();
        let own: Summary = Printer::new(key()).summary(&story.held);
        assert_eq!(on.digest().summary(key()), own);
        let buckets = on.digest().buckets().len();
        assert!(buckets >= 16, "{buckets} buckets");
        assert_eq!(*on.digest(), Digest::of(on.prints(), buckets));
    });
}
