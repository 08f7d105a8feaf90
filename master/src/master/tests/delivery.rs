//! Calls to a failed master, as the next one handles them: the real driver and two successive
//! masters.

use protocol::message::operator::MarkAgentGone;
use scheduler_driver::{Calls, DriverRef, Scheduler, SchedulerDriver};

use super::*;

/// A scheduler that launches its tasks on each offer, and records their states.
struct Launcher {
    log: Log,
    tasks: Vec<TaskInfo>,
}

impl Scheduler for Launcher {
    fn offers(&mut self, driver: &mut Calls, offers: Vec<Offer>) {
        for offer in offers {
            self.log.push(format!("offer {}", short(&offer.id)));
            driver.launch(vec![offer.id], std::mem::take(&mut self.tasks));
        }
    }

    fn status(&mut self, _: &mut Calls, status: &TaskStatus) {
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
        let state = self.state().await;
        let only = state.frameworks.iter().next().expect("a framework");
        only.id.clone()
    }

    /// This master's machine dies, and another process takes its place.
    pub(super) async fn next(&self) -> World {
        self.next_after(None).await
    }

    /// The same with a mirror of the previous master's state.
    pub(super) async fn next_after(&self, before: Option<Arc<MasterState>>) -> World {
        self.network.leave("master");
        self.pass(1).await;
        let node = runtime::testing::node("master").seed(8);
        let node = node.role(Role::Master);
        let node = node.accepts(&[Role::Agent, Role::Framework]).build();
        self.network.join(&node, "master");
        let (network, faults) = (self.network.clone(), self.faults.clone());
        World::after(network, node, Config::default(), 0, faults, before).await
    }
}

/// The agent finds the next master and registers there with these tasks, all running.
async fn come_back(agent: &mut Member, id: &AgentId, tasks: Vec<RunningTask>) {
    agent.master = agent.node.find("master", "master", PATIENCE).await.unwrap();
    register(agent, Some(id.clone()), tasks).await.unwrap();
}

// Covers S132.
#[test]
fn kill_without_a_master_is_applied_once_by_the_next() {
    simulate_network(|network| async move {
        let first = World::new(network.clone(), Config::default()).await;
        let (mut agent, a) = first.agent("agent-1").await;
        let (driver, log) = drive(&network, vec![task("t", &a, "cpus:1")]);
        first.settle().await;
        let f = first.only_framework().await;
        first.grant(vec![grant(&f, &a, "cpus:1")]).await;
        agent.tell(update(&agent.node, &f, &a, "t", TaskState::Running));
        first.settle().await;
        assert_eq!(log.take(), ["offer O0", "t TASK_RUNNING"]);
        agent.received();

        first.network.leave("master");
        first.pass(1).await;
        let t = TaskId::new("t").unwrap();
        driver.kill(t.clone(), None).unwrap();
        let second = first.next().await;
        second.pass(20).await;
        let state = second.state().await;
        assert_eq!(state.counters.get("master/messages_kill_task"), 1);
        let tasks = vec![running(&f, task("t", &a, "cpus:1"), TaskState::Running)];
        come_back(&mut agent, &a, tasks).await;
        second.settle().await;
        agent.receives("kill t");
        second.pass(3600).await;
        let heard = agent.received();
        assert!(!heard.iter().any(|line| line == "kill t"), "{heard:?}");
    });
}

/// S132: a new master answers for unreported tasks once all agents have had their time.
#[test]
fn early_kill_of_an_unreported_task_is_answered() {
    simulate_network(|network| async move {
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
        scheduler.tell(kill_task(&f, "nobody"));
        come_back(&mut agent, &a, vec![]).await;
        second.settle().await;
        scheduler.receives("");
        second.pass(600).await;
        let heard = scheduler.received();
        let answer = "nobody TASK_LOST REASON_RECONCILIATION".to_owned();
        assert!(heard.contains(&answer), "{heard:?}");
    });
}

/// S132: an accept that was on its way to a master that died launches nothing at the next, and its
/// tasks are lost, once.
#[test]
fn unreceived_accept_is_lost_at_the_next_master() {
    simulate_network(|network| async move {
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
        agent.received();
        second.pass(60).await;
        assert_eq!(log.take(), ["t TASK_LOST REASON_INVALID_OFFERS"]);
        agent.receives("");
    });
}

/// S132: the failed master may have carried out an accept without an answer.
// Covers S132.
#[test]
fn old_offers_accept_is_rejected_but_running_task_kept() {
    simulate_network(|network| async move {
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
        scheduler.received();
        scheduler.tell(again.clone());
        second.settle().await;
        let nothing = Vec::<String>::new();
        assert_eq!(scheduler.received(), nothing, "the agent may bring them");

        let tasks = vec![running(&f, task("runs", &a, "cpus:1"), TaskState::Running)];
        come_back(&mut agent, &a, tasks).await;
        agent.received();
        scheduler.tell(again);
        second.settle().await;
        assert_eq!(
            scheduler.received(),
            [
                "runs TASK_RUNNING REASON_RECONCILIATION",
                "never TASK_LOST REASON_INVALID_OFFERS"
            ]
        );
        assert_eq!(agent.received(), nothing, "nothing is launched");

        // Tasks on a gone agent were reported as such, and get no other end.
        let gone = MarkAgentGone {
            agent_id: a.clone(),
        };
        second.master.ask(gone, PATIENCE).await.unwrap().unwrap();
        second.settle().await;
        scheduler.received();
        let again = accept(&f, &[&offer], vec![task("earlier", &a, "cpus:1")]);
        scheduler.tell(again);
        second.settle().await;
        scheduler.receives("earlier TASK_LOST REASON_RECONCILIATION");
    });
}

/// S132: a driver that is not subscribed must repeat its calls, so that they are not ignored.
#[test]
fn numbered_calls_wait_for_the_subscription() {
    use runtime::delivery::Bounds;
    simulate_world(|world| async move {
        let scheduler = world.member("web", "scheduler", Role::Framework).await;
        let courier = scheduler.node.reliable_sender(Bounds::default()).unwrap();
        courier.retarget(&scheduler.master);
        let revive = ReviveOffers {
            framework_id: FrameworkId::new("nobody").unwrap(),
            roles: BTreeSet::new(),
        };
        courier.send(revive).unwrap();
        world.pass(30).await;
        assert_eq!(courier.waiting(), 1);
        let counted = world.state().await.counters.get("master/dropped_messages");
        assert_eq!(counted, 0);
    });
}
