//! What a framework said to a master that failed, as the next one takes it: the real driver and two masters, one after the other.

use protocol::message::operator::MarkAgentGone;
use scheduler_driver::{DriverRef, Scheduler, SchedulerDriver, Verbs};

use super::*;

/// A scheduler that launches on each offer what it was given, and writes down what becomes of it.
struct Launcher {
    log: Log,
    tasks: Vec<TaskInfo>,
}

impl Scheduler for Launcher {
    fn offers(&mut self, driver: &mut Verbs, offers: Vec<Offer>) {
        for offer in offers {
            self.log.push(format!("offer {}", short(&offer.id)));
            driver.launch(vec![offer.id], std::mem::take(&mut self.tasks));
        }
    }

    fn status(&mut self, _: &mut Verbs, status: &TaskStatus) {
        let reason = status.reason.map_or("", |reason| reason.name());
        let line = format!("{} {} {reason}", status.task_id, status.state);
        self.log.push(line.trim_end().to_owned());
    }
}

/// A framework with a failover timeout of an hour, driven on the node `web`.
fn drive(network: &Network, tasks: Vec<TaskInfo>) -> (DriverRef, Log) {
    let node = network.node("web", Role::Framework, &[Role::Master]);
    let (log, mut info) = (Log::default(), FrameworkInfo::new("nobody", "web"));
    info.failover_timeout = Duration::from_secs(3600);
    let scheduler = Launcher {
        log: log.clone(),
        tasks,
    };
    let driver = SchedulerDriver::new(["master"], info);
    (driver.start(&node, scheduler).unwrap(), log)
}

impl World {
    /// The only framework there is.
    async fn only_framework(&self) -> FrameworkId {
        let books = self.books().await;
        let only = books.frameworks.iter().next().expect("a framework");
        only.id.clone()
    }

    /// This master's machine dies, and another process takes its place.
    pub(super) async fn next(&self) -> World {
        self.next_after(None).await
    }

    /// The same, which knows these books of the one before by its mirror.
    pub(super) async fn next_after(&self, before: Option<Arc<Books>>) -> World {
        self.network.leave("master");
        self.pass(1).await;
        let node = runtime::rehearsal::node("master").seed(8);
        let node = node.role(Role::Master);
        let node = node.accepts(&[Role::Agent, Role::Framework]).build();
        self.network.join(&node, "master");
        let (network, whims) = (self.network.clone(), self.whims.clone());
        World::after(network, node, Config::default(), 0, whims, before).await
    }
}

/// The agent finds the next master and registers there with these tasks, all running.
async fn come_back(agent: &mut Member, id: &AgentId, tasks: Vec<RunningTask>) {
    agent.master = agent.node.find("master", "master", PATIENCE).await.unwrap();
    register(agent, Some(id.clone()), tasks).await.unwrap();
}

/// S132, W17.
#[test]
fn a_kill_said_without_a_master_reaches_the_next_one_and_kills_once_though_the_agent_comes_last() {
    rehearse_network(|network| async move {
        let first = World::new(network.clone(), Config::default()).await;
        let (mut agent, a) = first.agent("agent-1").await;
        let (driver, log) = drive(&network, vec![task("t", &a, "cpus:1")]);
        first.settle().await;
        let f = first.only_framework().await;
        first.grant(vec![grant(&f, &a, "cpus:1")]).await;
        agent.tell(update(&agent.node, &f, &a, "t", TaskState::Running));
        first.settle().await;
        assert_eq!(log.take(), ["offer O0", "t TASK_RUNNING"]);
        agent.heard();

        first.network.leave("master");
        first.pass(1).await;
        let t = TaskId::new("t").unwrap();
        driver.kill(t.clone(), None).unwrap();
        let second = first.next().await;
        second.pass(20).await;
        let books = second.books().await;
        assert_eq!(books.counters.get("master/messages_kill_task"), 1);
        let tasks = vec![running(&f, task("t", &a, "cpus:1"), TaskState::Running)];
        come_back(&mut agent, &a, tasks).await;
        second.settle().await;
        assert_eq!(agent.heard(), ["kill t"]);
        second.pass(3600).await;
        let heard = agent.heard();
        assert!(!heard.iter().any(|line| line == "kill t"), "{heard:?}");
    });
}

/// S132: a new master answers for whom nobody brings, once all agents have had their time.
#[test]
fn an_early_kill_of_a_task_that_no_agent_brings_is_answered_when_none_is_awaited_any_more() {
    rehearse_network(|network| async move {
        let first = World::new(network.clone(), Config::default()).await;
        let (mut agent, a) = first.agent("agent-1").await;
        let (mut silent, _) = first.agent("agent-2").await;
        let (scheduler, f) = first
            .framework("web", |info| {
                info.failover_timeout = Duration::from_secs(3600);
            })
            .await;
        let second = first.next().await;
        let mut info = FrameworkInfo::new("nobody", "web");
        info.id = Some(f.clone());
        let mut scheduler = scheduler;
        scheduler.master = silent
            .node
            .find("master", "master", PATIENCE)
            .await
            .unwrap();
        silent.master = scheduler.master.clone();
        scheduler.node.connect("master").await.unwrap();
        subscribe(&scheduler, info).await.unwrap();
        scheduler.tell(KillTask {
            framework_id: f.clone(),
            task_id: TaskId::new("nobody").unwrap(),
            agent_id: None,
            kill_policy: None,
        });
        come_back(&mut agent, &a, vec![]).await;
        second.settle().await;
        assert_eq!(scheduler.heard(), Vec::<String>::new());
        second.pass(600).await;
        let heard = scheduler.heard();
        let answer = "nobody TASK_LOST REASON_RECONCILIATION".to_owned();
        assert!(heard.contains(&answer), "{heard:?}");
    });
}

/// S132: an accept that was on its way to a master that died launches nothing at the next, and its tasks are lost, once.
#[test]
fn an_accept_that_the_first_master_never_heard_is_lost_at_the_second() {
    rehearse_network(|network| async move {
        let first = World::new(network.clone(), Config::default()).await;
        let (mut agent, a) = first.agent("agent-1").await;
        let (driver, log) = drive(&network, vec![]);
        first.settle().await;
        let f = first.only_framework().await;
        let offer = OfferId::new(format!("{}-O0", f.as_str().rsplit_once('-').unwrap().0)).unwrap();
        driver
            .launch(vec![offer], vec![task("t", &a, "cpus:1")])
            .unwrap();
        let second = first.next().await;
        come_back(&mut agent, &a, vec![]).await;
        agent.heard();
        second.pass(60).await;
        assert_eq!(log.take(), ["t TASK_LOST REASON_INVALID_OFFERS"]);
        assert_eq!(agent.heard(), Vec::<String>::new());
    });
}

/// S132: an accept may have been carried out by the master that died before it could say so.
#[test]
fn an_accept_of_an_earlier_masters_offer_is_not_carried_out_and_a_task_that_runs_is_not_called_lost()
 {
    rehearse_network(|network| async move {
        let first = World::new(network.clone(), Config::default()).await;
        let (mut agent, a) = first.agent("agent-1").await;
        let hour = |info: &mut FrameworkInfo| info.failover_timeout = Duration::from_secs(3600);
        let (mut scheduler, f) = first.framework("web", hour).await;
        let offer = first.offer(&scheduler, &f, &a, "cpus:2").await;
        let tasks = vec![task("runs", &a, "cpus:1"), task("never", &a, "cpus:1")];
        let again = accept(&f, &[&offer], tasks);

        let second = first.next().await;
        let mut info = FrameworkInfo::new("nobody", "web");
        (info.id, info.failover_timeout) = (Some(f.clone()), Duration::from_secs(3600));
        scheduler.master = scheduler
            .node
            .find("master", "master", PATIENCE)
            .await
            .unwrap();
        subscribe(&scheduler, info).await.unwrap();
        scheduler.heard();
        scheduler.tell(again.clone());
        second.settle().await;
        let nothing = Vec::<String>::new();
        assert_eq!(scheduler.heard(), nothing, "the agent may bring them");

        let tasks = vec![running(&f, task("runs", &a, "cpus:1"), TaskState::Running)];
        come_back(&mut agent, &a, tasks).await;
        agent.heard();
        scheduler.tell(again);
        second.settle().await;
        assert_eq!(
            scheduler.heard(),
            [
                "runs TASK_RUNNING REASON_RECONCILIATION",
                "never TASK_LOST REASON_INVALID_OFFERS"
            ]
        );
        assert_eq!(agent.heard(), nothing, "nothing is launched");

        // What was on an agent that is gone for good was told so, and is told no other end.
        let gone = MarkAgentGone {
            agent_id: a.clone(),
        };
        second.master.ask(gone, PATIENCE).await.unwrap().unwrap();
        second.settle().await;
        scheduler.heard();
        let again = accept(&f, &[&offer], vec![task("earlier", &a, "cpus:1")]);
        scheduler.tell(again);
        second.settle().await;
        assert_eq!(
            scheduler.heard(),
            ["earlier TASK_LOST REASON_RECONCILIATION"]
        );
    });
}

/// S132: whoever is not subscribed is told to come again, so that its calls wait instead of being ignored.
#[test]
fn numbered_calls_of_who_speaks_for_no_framework_wait_until_it_does() {
    use runtime::delivery::Bounds;
    rehearse_network(|network| async move {
        let world = World::new(network, Config::default()).await;
        let scheduler = world.member("web", "scheduler", Role::Framework).await;
        let courier = scheduler.node.courier(Bounds::default()).unwrap();
        courier.retarget(&scheduler.master);
        let revive = ReviveOffers {
            framework_id: FrameworkId::new("nobody").unwrap(),
            roles: BTreeSet::new(),
        };
        courier.send(revive).unwrap();
        world.pass(30).await;
        assert_eq!(courier.waiting(), 1);
        let counted = world.books().await.counters.get("master/dropped_messages");
        assert_eq!(counted, 0);
    });
}
