//! Agents that return with a digest: the comparison, the report, and changes in between.

mod fit;
mod mirrored;

use protocol::digest::{self, Digest, DigestSummary, Fingerprinter};

use crate::master::tests::*;

fn key() -> DigestKey {
    DigestKey::new([7; 16])
}

/// The registration of an agent that returns with these.
fn back(
    agent: &Member,
    id: &AgentId,
    held: &AgentInventory,
    theirs: Option<&[u64]>,
) -> ReregisterAgent {
    let whole = RegisterAgent {
        held: held.clone(),
        ..registration(agent, Some(id.clone()), vec![])
    };
    ReregisterAgent {
        report: theirs.map(|theirs| Fingerprinter::new(key()).report(held.clone(), theirs)),
        ..testkit::values::summary_of(whole)
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
async fn come_back(agent: &Member, id: &AgentId, held: &AgentInventory) -> Reregistered {
    say(agent, back(agent, id, held, None)).await.unwrap()
}

/// Registers with a report where its sums differ from these.
async fn tell(agent: &Member, id: &AgentId, held: &AgentInventory, theirs: &[u64]) -> Reregistered {
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
        name: name.to_owned(),
        ..ExecutorInfo::new(
            ExecutorId::new(name).unwrap(),
            CommandInfo::shell("./executor"),
            resources("cpus:0.5").allocate(&star),
        )
    }
}

fn allocated(id: &str, agent: &AgentId, state: TaskState, framework: &FrameworkId) -> RunningTask {
    let star = ResourceRole::new("*").unwrap();
    let mut info = task(id, agent, "cpus:1");
    info.resources = info.resources.allocate(&star);
    running(framework, info, state)
}

/// A master, an agent with this many tasks, and their framework.
struct Scenario {
    world: World,
    agent: Member,
    a: AgentId,
    scheduler: Member,
    f: FrameworkId,
    held: AgentInventory,
}

impl Scenario {
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
        let held = AgentInventory {
            tasks: tasks.collect(),
            ..AgentInventory::default()
        };
        let message = RegisterAgent {
            held: held.clone(),
            ..registration(&agent, Some(a.clone()), vec![])
        };
        let asked = agent.node.ask(&agent.master, message, PATIENCE);
        asked.await.unwrap().unwrap();
        let scenario = Self {
            world,
            agent,
            a,
            scheduler,
            f,
            held,
        };
        scenario.quiet().await;
        scenario
    }

    /// Discards earlier messages.
    async fn quiet(&self) {
        self.world.settle().await;
        self.world.allocator();
        self.agent.received();
        self.scheduler.received();
    }
}

#[test]
fn agent_with_matching_summary_is_registered_at_once() {
    simulate_network(|network| async move {
        let scenario = Scenario::with_tasks(network, 7).await;
        let answer = come_back(&scenario.agent, &scenario.a, &scenario.held).await;
        assert!(is_registered(&answer), "{answer:?}");
        scenario.world.settle().await;
        scenario.world.facts_are("agent S0 used [0000=cpus:7]");
        scenario.agent.receives("");
        scenario.scheduler.receives("");
        let said = back(&scenario.agent, &scenario.a, &scenario.held, None);
        let bytes = runtime::wire::codec::encode(&said).unwrap().len();
        assert!(bytes < 200, "{bytes} bytes");
    });
}

/// The state's sums follow all changes of tasks.
#[test]
fn changes_on_both_sides_are_no_difference() {
    simulate_network(|network| async move {
        let mut scenario = Scenario::with_tasks(network, 3).await;
        let (world, agent, a, f) = (&scenario.world, &scenario.agent, &scenario.a, &scenario.f);
        let offer = world.offer(&scenario.scheduler, f, a, "cpus:1.5").await;
        let mut info = task("own", a, "cpus:1");
        info.command = None;
        info.executor = Some(own("e"));
        let launch = accept(f, &[&offer], vec![info.clone()]);
        scenario.scheduler.tell(launch);
        world.settle().await;
        let star = ResourceRole::new("*").unwrap();
        info.resources = info.resources.allocate(&star);
        scenario
            .held
            .tasks
            .push(running(f, info, TaskState::Staging));
        scenario.held.executors.push(RunningExecutor {
            framework_id: f.clone(),
            info: own("e"),
        });
        agent.tell(update(&agent.node, f, a, "own", TaskState::Running));
        scenario.held.tasks[3].state = TaskState::Running;
        let end = update(&agent.node, f, a, "t1", TaskState::Finished);
        agent.tell(end.clone());
        scenario.held.tasks[1].state = TaskState::Finished;
        world.settle().await;
        let answer = come_back(agent, a, &scenario.held).await;
        assert!(
            is_registered(&answer),
            "before the end is acknowledged: {answer:?}"
        );
        scenario.scheduler.tell(acknowledgement(f, &end));
        world.settle().await;
        scenario.held.tasks.remove(1);
        let answer = come_back(agent, a, &scenario.held).await;
        assert!(is_registered(&answer), "and after it: {answer:?}");
        world.settle().await;
        let last = world.allocator().pop();
        assert_eq!(last.unwrap(), "agent S0 used [0000=cpus:3.5]");
    });
}

/// DESIGN 5: an agent is offered only after the comparison.
#[test]
fn nothing_is_offered_or_launched_until_the_comparison_ends() {
    simulate_network(|network| async move {
        let mut scenario = Scenario::with_tasks(network, 40).await;
        let (world, agent, a, f) = (&scenario.world, &scenario.agent, &scenario.a, &scenario.f);
        let offer = world.offer(&scenario.scheduler, f, a, "cpus:1").await;
        scenario.scheduler.received();
        let lost = scenario.held.tasks.remove(17).info.task_id;
        let sums = sums(come_back(agent, a, &scenario.held).await);
        assert_eq!(sums.len(), 16);
        world.settle().await;
        world.facts_are("agent S0 active false | recovered 0000 cpus:1");
        world.grant(vec![grant(f, a, "cpus:1")]).await;
        world.facts_are("recovered 0000 cpus:1");
        scenario
            .scheduler
            .tell(accept(f, &[&offer], vec![task("late", a, "cpus:1")]));
        world.settle().await;
        scenario
            .scheduler
            .receives("rescind O0 | late TASK_DROPPED REASON_INVALID_OFFERS");

        let said = back(agent, a, &scenario.held, Some(&sums));
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
        assert_eq!(scenario.scheduler.received(), [gone]);
        assert_eq!(agent.received(), [format!("disown {lost}")]);
        world.facts_are("agent S0 used [0000=cpus:39]");
        assert!(is_registered(&come_back(agent, a, &scenario.held).await));
    });
}

#[test]
fn differing_report_is_merged_and_unknown_tasks_adopted() {
    simulate_network(|network| async move {
        let mut scenario = Scenario::with_tasks(network, 20).await;
        let (world, agent, a, f) = (&scenario.world, &scenario.agent, &scenario.a, &scenario.f);
        scenario.held.tasks[5].state = TaskState::Finished;
        let unknown = allocated("unknown", a, TaskState::Running, f);
        scenario.held.tasks.push(unknown);
        let gone = FrameworkId::new("never-heard-of").unwrap();
        let foreign = allocated("foreign", a, TaskState::Running, &gone);
        scenario.held.tasks.push(foreign);
        let sums = sums(come_back(agent, a, &scenario.held).await);
        let answer = tell(agent, a, &scenario.held, &sums).await;
        assert!(is_registered(&answer), "{answer:?}");
        world.settle().await;
        let last = world.allocator().pop();
        assert_eq!(last.unwrap(), "agent S0 used [0000=cpus:20]");
        agent.receives("shut down of");
        let state = world.state().await;
        let t5 = TaskId::new("t5").unwrap();
        assert_eq!(state.tasks.get(f, &t5).unwrap().state, TaskState::Finished);
        // The agent reports it.
        scenario.scheduler.receives("");
    });
}

#[test]
fn state_change_during_a_comparison_restarts_it() {
    simulate_network(|network| async move {
        let mut scenario = Scenario::with_tasks(network, 12).await;
        let (world, agent, a) = (&scenario.world, &scenario.agent, &scenario.a);
        let (other, g) = world.framework("short", |_| ()).await;
        scenario
            .held
            .tasks
            .push(allocated("g", a, TaskState::Running, &g));
        let first = sums(come_back(agent, a, &scenario.held).await);
        assert!(is_registered(&tell(agent, a, &scenario.held, &first).await));
        scenario.quiet().await;

        // One in another bucket than the other framework's.
        let bucket = |task: &RunningTask| {
            let place =
                Fingerprinter::new(key()).task_name_hash(&task.framework_id, &task.info.task_id);
            digest::bucket(place, 4)
        };
        let theirs = bucket(&scenario.held.tasks[12]);
        let mut others = scenario.held.tasks.iter_mut();
        let apart = others.find(|task| bucket(task) != theirs).unwrap();
        apart.state = TaskState::Killing;
        let before = sums(come_back(agent, a, &scenario.held).await);
        assert_eq!(before.len(), 4);
        other.say(TearDown { framework_id: g });
        world.settle().await;
        let again = tell(agent, a, &scenario.held, &before).await;
        let after = sums(again);
        assert_ne!(before, after);
        assert_eq!(
            world.state().await.agents.connected(a),
            None,
            "it is not admitted by what was true before"
        );
        assert!(is_registered(&tell(agent, a, &scenario.held, &after).await));
        world.settle().await;
        assert!(
            agent.received().contains(&"shut down 0001".to_owned()),
            "the task of the framework that ended meanwhile is killed"
        );
        let last = world.allocator().pop();
        assert_eq!(last.unwrap(), "agent S0 used [0000=cpus:12]");
    });
}

/// Each message has the sums at its time.
#[test]
fn task_changed_during_comparison_gets_its_newest_state() {
    simulate_network(|network| async move {
        let mut scenario = Scenario::with_tasks(network, 12).await;
        let (world, agent, a, f) = (&scenario.world, &scenario.agent, &scenario.a, &scenario.f);
        scenario.held.tasks[0].state = TaskState::Killing;
        let before = sums(come_back(agent, a, &scenario.held).await);
        let mut mixed = back(agent, a, &scenario.held, Some(&before));
        scenario.held.tasks[7].state = TaskState::Failed;
        mixed.summary = Fingerprinter::new(key()).summary(&scenario.held);
        let after = sums(say(agent, mixed).await.unwrap());
        assert_eq!(
            before, after,
            "a report and a summary of two moments are not taken"
        );
        assert!(is_registered(&tell(agent, a, &scenario.held, &after).await));
        world.settle().await;
        let state = world.state().await;
        let state_of = |id| state.tasks.get(f, &TaskId::new(id).unwrap()).unwrap().state;
        assert_eq!(
            (state_of("t0"), state_of("t7")),
            (TaskState::Killing, TaskState::Failed)
        );
    });
}

/// S132: a new master accounts for executors too.
#[test]
fn master_without_state_requests_full_reports() {
    simulate_network(|network| async move {
        let mut scenario = Scenario::with_tasks(network.clone(), 12).await;
        scenario.held.tasks[0].state = TaskState::Killing;
        let before = sums(come_back(&scenario.agent, &scenario.a, &scenario.held).await);
        let second = scenario.world.next().await;
        let agent = &mut scenario.agent;
        agent.master = agent.node.find("master", "master", PATIENCE).await.unwrap();
        let a = &scenario.a;
        scenario.held.executors.push(RunningExecutor {
            framework_id: scenario.f.clone(),
            info: own("e"),
        });
        let answer = tell(agent, a, &scenario.held, &before).await;
        assert_eq!(
            answer,
            Reregistered::Unknown,
            "what the first one said is worth nothing"
        );
        assert_eq!(
            come_back(agent, a, &scenario.held).await,
            Reregistered::Unknown
        );
        let mut held = scenario.held.clone();
        held.frameworks = vec![FrameworkInfo {
            id: Some(scenario.f.clone()),
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
        assert!(is_registered(&come_back(agent, a, &scenario.held).await));
    });
}

#[test]
fn executor_with_a_lost_end_frees_its_resources() {
    simulate_network(|network| async move {
        let mut scenario = Scenario::with_tasks(network, 2).await;
        let (world, agent, a, f) = (&scenario.world, &scenario.agent, &scenario.a, &scenario.f);
        scenario.held.executors.push(RunningExecutor {
            framework_id: f.clone(),
            info: own("e"),
        });
        let told = sums(come_back(agent, a, &scenario.held).await);
        assert!(is_registered(&tell(agent, a, &scenario.held, &told).await));
        world.settle().await;
        let last = world.allocator().pop();
        assert_eq!(last.unwrap(), "agent S0 used [0000=cpus:2.5]");
        scenario.held.executors.clear();
        let told = sums(come_back(agent, a, &scenario.held).await);
        assert!(is_registered(&tell(agent, a, &scenario.held, &told).await));
        world.settle().await;
        let last = world.allocator().pop();
        assert_eq!(last.unwrap(), "agent S0 used [0000=cpus:2]");
        scenario.scheduler.receives("lost e");
    });
}

#[test]
fn unreachable_agent_returns_with_its_tasks() {
    simulate_network(|network| async move {
        let scenario = Scenario::with_tasks(network, 1).await;
        let (world, agent, a) = (&scenario.world, &scenario.agent, &scenario.a);
        agent.answers.store(false, Ordering::Relaxed);
        world.pass(100).await;
        scenario.quiet().await;
        agent.answers.store(true, Ordering::Relaxed);
        assert_eq!(
            come_back(agent, a, &scenario.held).await,
            Reregistered::Unknown
        );
        let tasks = scenario.held.tasks.clone();
        register(agent, Some(a.clone()), tasks).await.unwrap();
        world.settle().await;
        scenario
            .scheduler
            .receives("t0 TASK_RUNNING REASON_SLAVE_REREGISTERED");
        assert!(is_registered(&come_back(agent, a, &scenario.held).await));
    });
}

#[test]
fn empty_unknown_agent_is_registered_at_once() {
    simulate_network(|network| async move {
        let scenario = Scenario::with_tasks(network, 0).await;
        assert!(is_registered(
            &come_back(&scenario.agent, &scenario.a, &scenario.held).await
        ));
        let second = scenario.world.next().await;
        let mut agent = scenario.agent;
        agent.master = agent.node.find("master", "master", PATIENCE).await.unwrap();
        assert!(is_registered(
            &come_back(&agent, &scenario.a, &scenario.held).await
        ));
        second.settle().await;
        assert_eq!(second.allocator().pop().unwrap(), "agent S0 used []");
    });
}

#[test]
fn other_bucket_counts_and_keys_are_understood() {
    simulate_network(|network| async move {
        let scenario = Scenario::with_tasks(network, 5).await;
        let (agent, a) = (&scenario.agent, &scenario.a);
        let mut other = back(agent, a, &scenario.held, None);
        other.summary.form += 1;
        assert_eq!(say(agent, other).await.unwrap(), Reregistered::Unknown);
        let mut other = back(agent, a, &scenario.held, None);
        let another = DigestKey::new([9; 16]);
        other.summary = Fingerprinter::new(another).summary(&scenario.held);
        assert!(is_registered(&say(agent, other).await.unwrap()));
    });
}

/// Issue: a change of 1 task of 1,000 costs bytes in proportion.
#[test]
fn small_change_costs_a_fraction_of_a_full_report() {
    simulate_network(|network| async move {
        let mut scenario = Scenario::with_tasks(network, 1000).await;
        let (agent, a) = (&scenario.agent, &scenario.a);
        let bytes =
            |message: &ReregisterAgent| runtime::wire::codec::encode(message).unwrap().len();
        let answered = |answer: &Reregistered| runtime::wire::codec::encode(answer).unwrap().len();
        let equal = bytes(&back(agent, a, &scenario.held, None));
        let all = runtime::wire::codec::encode(&scenario.held).unwrap().len();
        let mut cost = Vec::new();
        for changed in [1, 10, 100] {
            for task in scenario.held.tasks.iter_mut().step_by(1000 / changed) {
                task.state = match task.state {
                    TaskState::Running => TaskState::Killing,
                    _ => TaskState::Running,
                };
            }
            let first = back(agent, a, &scenario.held, None);
            let differs = say(agent, first.clone()).await.unwrap();
            let sent = bytes(&first) + answered(&differs);
            let second = back(agent, a, &scenario.held, Some(&sums(differs)));
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
fn state_and_agent_compute_equal_sums() {
    simulate_network(|network| async move {
        let scenario = Scenario::with_tasks(network, 100).await;
        let state = scenario.world.state().await;
        let on = state.tasks.on_agent(&scenario.a).unwrap();
        let own: DigestSummary = Fingerprinter::new(key()).summary(&scenario.held);
        assert_eq!(on.digest().summary(key()), own);
        let buckets = on.digest().buckets().len();
        assert!(buckets >= 16, "{buckets} buckets");
        assert_eq!(*on.digest(), Digest::of(on.prints(), buckets));
    });
}
