//! The driver against a master that only writes down what it hears, in virtual time.

#![allow(
    clippy::unwrap_used,
    reason = "all of it is tests, and a panic is how a test reports"
)]

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use protocol::message::registration::TermSeen;
use protocol::message::scheduler::*;
use protocol::*;
use resources::Resources;
use runtime::delivery::{Incoming, Numbered, take as take_numbered};
use runtime::memory::Network;
use runtime::prelude::*;
use runtime::rehearsal::rehearse_network;
use runtime::{Instant, Timestamp};
use scheduler_driver::{
    Acknowledgement, DriverRef, Ended, Scheduler, SchedulerDriver, Undelivered, Verbs,
};

#[path = "driver/delivery.rs"]
mod delivery;
#[path = "driver/fencing.rs"]
mod fencing;
#[path = "driver/over.rs"]
mod over;
#[path = "driver/seeking.rs"]
mod seeking;
#[path = "driver/standing.rs"]
mod standing;
#[path = "driver/updating.rs"]
mod updating;

type Log = Arc<Mutex<Vec<String>>>;

fn take(log: &Log) -> Vec<String> {
    std::mem::take(&mut log.lock().unwrap())
}

/// A master that says yes to everybody, or what it was told to say.
struct Master {
    heard: Log,
    incoming: Incoming,
    refuse: Option<SubscriptionRefused>,
    asked_later: bool,
    /// The term that it names.
    term: u64,
    /// The network it loses its framework on when it is told to kill `cut`, before it can say that it heard.
    network: Network,
    /// The driver's pid, for the test to speak to it through the master's node.
    scheduler: Arc<Mutex<Option<Pid>>>,
}

impl Master {
    fn note(&self, line: String) {
        self.heard.lock().unwrap().push(line);
    }
}

impl Actor for Master {
    type Context = Context<Self>;
}

impl Process for Master {
    fn hears(ears: &mut Ears<Self>) {
        let from = &[Role::Framework];
        ears.hear::<Subscribe>(from);
        ears.hear::<UpdateFramework>(from);
        ears.hear::<Numbered>(from);
        ears.hear::<AcceptOffers>(from);
        ears.hear::<DeclineOffers>(from);
        ears.hear::<KillTask>(from);
        ears.hear::<ReconcileTasks>(from);
        ears.hear::<AcknowledgeStatus>(from);
        ears.hear::<SuppressOffers>(from);
        ears.hear::<TearDown>(from);
        ears.hear::<TermSeen>(from);
    }
}

impl Handler<Subscribe> for Master {
    type Result = MessageResult<Subscribe>;
    fn handle(&mut self, message: Subscribe, ctx: &mut Context<Self>) -> Self::Result {
        let id = message
            .framework
            .id
            .as_ref()
            .map(ToString::to_string)
            .unwrap_or_default();
        let suppressed = Vec::from_iter(message.wants.suppressed_roles);
        self.note(format!(
            "subscribe {id:?} suppressed {suppressed:?} at {}",
            ctx.clock().now_secs()
        ));
        let over = SubscriptionRefused::Never {
            reason: format!("framework.id is `{id}`: it is over"),
        };
        if let Some(refused) = self.refuse.clone().or((id == "over").then_some(over)) {
            return MessageResult(Err(refused));
        }
        *self.scheduler.lock().unwrap() = Some(message.scheduler.clone());
        // On its way before the answer to the subscription is: the driver must not deliver it before.
        ctx.node()
            .tell(
                &message.scheduler,
                OfferRescinded {
                    offer_id: OfferId::new("early").unwrap(),
                },
            )
            .unwrap();
        let master = MasterInfo {
            id: MasterId::new("m").unwrap(),
            hostname: "host".to_owned(),
            port: 5050,
            version: "test".to_owned(),
            term: self.term,
            address: None,
            domain: None,
        };
        MessageResult(Ok(Subscribed {
            framework_id: master.id.framework(0),
            master,
        }))
    }
}

impl Handler<Numbered> for Master {
    type Result = MessageResult<Numbered>;
    fn handle(&mut self, numbered: Numbered, ctx: &mut Context<Self>) -> Self::Result {
        let incoming: fn(&mut Self) -> &mut Incoming = |master| &mut master.incoming;
        MessageResult(take_numbered(self, incoming, numbered, ctx))
    }
}

trait Seconds {
    fn now_secs(&self) -> f64;
}

impl Seconds for Clock {
    fn now_secs(&self) -> f64 {
        (self.now() - Instant::default()).as_secs_f64()
    }
}

macro_rules! notes {
    ($($message:ty, $pattern:pat => $line:expr;)*) => {$(
        impl Handler<$message> for Master {
            type Result = ();
            fn handle(&mut self, $pattern: $message, _: &mut Context<Self>) {
                self.note($line);
            }
        }
    )*};
}
notes! {
    AcceptOffers, AcceptOffers { offer_ids, .. } => format!("accept {offer_ids:?}");
    DeclineOffers, DeclineOffers { offer_ids, .. } => format!("decline {offer_ids:?}");
    ReconcileTasks, ReconcileTasks { tasks, .. } => format!("reconcile {}", tasks.iter().map(|(task, _)| task.to_string()).collect::<Vec<_>>().join(","));
    AcknowledgeStatus, AcknowledgeStatus { task_id, uuid, .. } => format!("acknowledge {task_id} {}", uuid.0[0]);
    SuppressOffers, SuppressOffers { roles, .. } => format!("suppress {roles:?}");
    TearDown, TearDown { .. } => "tear down".to_owned();
    TermSeen, TermSeen { term } => format!("term seen {term}");
}

impl Handler<KillTask> for Master {
    type Result = ();
    fn handle(&mut self, KillTask { task_id, .. }: KillTask, _: &mut Context<Self>) {
        self.note(format!("kill {task_id}"));
        if task_id.as_str() == "cut" {
            self.network.sever("master", "framework");
        }
    }
}

/// A scheduler that only writes down what it hears.
struct Notes(Log);

impl Scheduler for Notes {
    fn subscribed(&mut self, _: &mut Verbs, subscribed: &Subscribed) {
        self.0
            .lock()
            .unwrap()
            .push(format!("subscribed {}", subscribed.framework_id));
    }
    fn disconnected(&mut self, _: &mut Verbs, reason: &str) {
        self.0
            .lock()
            .unwrap()
            .push(format!("disconnected: {reason}"));
    }
    fn offers(&mut self, driver: &mut Verbs, offers: Vec<Offer>) {
        self.0
            .lock()
            .unwrap()
            .push(format!("{} offers", offers.len()));
        driver.decline(
            offers.into_iter().map(|offer| offer.id).collect(),
            Filters::default(),
        );
    }
    fn rescinded(&mut self, _: &mut Verbs, offer: &OfferId) {
        self.0.lock().unwrap().push(format!("rescinded {offer}"));
    }
    fn status(&mut self, _: &mut Verbs, status: &TaskStatus) {
        let reason = status
            .reason
            .map(|reason| format!(" {reason}"))
            .unwrap_or_default();
        self.0
            .lock()
            .unwrap()
            .push(format!("{} {}{reason}", status.task_id, status.state));
    }
    fn updated(&mut self, _: &mut Verbs, outcome: Result<(), &str>) {
        self.0.lock().unwrap().push(format!("updated {outcome:?}"));
    }
    fn undelivered(&mut self, _: &mut Verbs, failed: &Undelivered) {
        let tasks: Vec<_> = failed.tasks.iter().map(ToString::to_string).collect();
        let line = format!(
            "undelivered {} {}: {}",
            failed.call,
            tasks.join(","),
            failed.error
        );
        self.0.lock().unwrap().push(line);
    }
    fn failed(&mut self, _: &mut Verbs, reason: &str) {
        self.0.lock().unwrap().push(format!("failed: {reason}"));
    }
}

/// A master at address `master`, a framework's node, and what both hear.
struct Stage {
    network: Network,
    master: Node,
    framework: Node,
    asked: Log,
    told: Log,
    scheduler: Arc<Mutex<Option<Pid>>>,
}

impl Stage {
    fn new(network: Network) -> Self {
        Self::refusing(network, None)
    }

    fn refusing(network: Network, refuse: Option<SubscriptionRefused>) -> Self {
        let master = network.node("master", Role::Master, &[Role::Framework]);
        let framework = network.node("framework", Role::Framework, &[Role::Master]);
        let stage = Self {
            network,
            master,
            framework,
            asked: Log::default(),
            told: Log::default(),
            scheduler: Arc::default(),
        };
        stage.raise(refuse);
        stage
    }

    fn raise(&self, refuse: Option<SubscriptionRefused>) {
        let actor = Master {
            heard: self.asked.clone(),
            incoming: Incoming::default(),
            refuse,
            asked_later: false,
            term: 0,
            network: self.network.clone(),
            scheduler: self.scheduler.clone(),
        };
        self.master.spawn("master", actor).unwrap();
    }

    fn drive(&self) -> DriverRef {
        self.drive_with(Acknowledgement::Implicit)
    }

    fn drive_with(&self, acknowledgement: Acknowledgement) -> DriverRef {
        SchedulerDriver::new(["master"], FrameworkInfo::new("user", "test"))
            .acknowledgement(acknowledgement)
            .start(&self.framework, Notes(self.told.clone()))
            .unwrap()
    }

    async fn settle(&self) {
        self.framework.clock().settle().await;
    }

    async fn pass(&self, seconds: u64) {
        self.framework
            .clock()
            .advance(Duration::from_secs(seconds))
            .await;
        self.settle().await;
    }

    async fn tell<M: Remote<Result = ()>>(&self, message: M) {
        let scheduler = self.scheduler.lock().unwrap().clone().unwrap();
        self.master.tell(&scheduler, message).unwrap();
        self.settle().await;
    }

    /// The master says that task `t` is in `state`; with a uuid made of `uuid`, if there is one.
    async fn update(&self, state: TaskState, uuid: Option<u8>) {
        let task = TaskId::new("t").unwrap();
        let mut status = TaskStatus::new(task, state, Source::Executor, Timestamp::default());
        status = status.on(&AgentId::new("a").unwrap());
        status.uuid = uuid.map(|byte| Uuid([byte; 16]));
        self.tell(StatusChanged { status }).await;
    }
}

fn task() -> TaskInfo {
    TaskInfo {
        name: "t".to_owned(),
        task_id: TaskId::new("t").unwrap(),
        agent_id: AgentId::new("a").unwrap(),
        resources: Resources::default(),
        command: Some(CommandInfo::shell("true")),
        executor: None,
        data: Vec::new(),
        kill_policy: None,
        labels: Labels::default(),
    }
}

/// SPEC 2.2: the subscription's answer is the first event.
#[test]
fn what_overtakes_the_answer_to_the_subscription_is_delivered_after_it() {
    rehearse_network(|network| async move {
        let stage = Stage::new(network);
        stage.drive();
        stage.settle().await;
        assert_eq!(take(&stage.told), ["subscribed m-0000", "rescinded early"]);
    });
}

/// SPEC 2.2, A7, W17.
#[test]
fn after_a_lost_link_it_subscribes_again_with_its_id_and_says_again_what_is_owed() {
    rehearse_network(|network| async move {
        let stage = Stage::new(network);
        let driver = stage.drive();
        stage.settle().await;
        driver.suppress(BTreeSet::new()).unwrap();
        driver
            .launch(vec![OfferId::new("o").unwrap()], vec![task()])
            .unwrap();
        driver.kill(TaskId::new("t").unwrap(), None).unwrap();
        stage.settle().await;
        take(&stage.told);
        let asked = take(&stage.asked);
        assert!(
            asked[0].starts_with(r#"subscribe "" suppressed []"#),
            "{asked:?}"
        );
        assert_eq!(asked[1..], ["suppress {}", "accept [OfferId(o)]", "kill t"]);

        stage.network.sever("master", "framework");
        stage.pass(20).await;
        assert_eq!(take(&stage.told), ["disconnected: node lost: severed"]);
        assert!(take(&stage.asked).is_empty());
        stage.network.heal("master", "framework");
        stage.pass(15).await;
        let asked = take(&stage.asked);
        assert!(
            asked[0].starts_with(r#"subscribe "m-0000" suppressed ["*"]"#),
            "{asked:?}"
        );
        assert_eq!(asked[1..4], ["kill t", "reconcile t", "reconcile "]);
        assert_eq!(take(&stage.told), ["subscribed m-0000", "rescinded early"]);
    });
}

/// SPEC 2.2 (retry discipline), W17.
#[test]
fn a_task_nobody_answers_for_is_asked_about_ever_less_often_and_all_are_every_15_minutes() {
    rehearse_network(|network| async move {
        let stage = Stage::new(network);
        let driver = stage.drive();
        stage.settle().await;
        driver
            .launch(vec![OfferId::new("o").unwrap()], vec![task()])
            .unwrap();
        stage.settle().await;
        take(&stage.asked);
        stage.pass(14 * 60 + 59).await;
        assert!(take(&stage.asked).is_empty());
        stage.pass(2).await;
        assert_eq!(take(&stage.asked), ["reconcile t", "reconcile "]);
        stage.pass(75).await; // after 10, 30 and 70 s
        assert_eq!(take(&stage.asked), ["reconcile t"; 3]);
        stage.update(TaskState::Running, None).await;
        stage.pass(10 * 60).await;
        assert!(take(&stage.asked).is_empty(), "it was answered");
    });
}

/// SPEC 2.2, A7.
#[test]
fn an_update_that_comes_twice_is_delivered_once_and_acknowledged_twice() {
    rehearse_network(|network| async move {
        let stage = Stage::new(network);
        stage.drive();
        stage.settle().await;
        take(&stage.told);
        take(&stage.asked);
        stage.update(TaskState::Running, Some(1)).await;
        stage.update(TaskState::Running, Some(1)).await;
        stage.update(TaskState::Finished, Some(2)).await;
        assert_eq!(take(&stage.told), ["t TASK_RUNNING", "t TASK_FINISHED"]);
        assert_eq!(
            take(&stage.asked),
            ["acknowledge t 1", "acknowledge t 1", "acknowledge t 2"]
        );
    });
}

/// SPEC 2.2 (`acknowledgeStatusUpdate`).
#[test]
fn with_explicit_acknowledgement_nothing_is_acknowledged_before_the_scheduler_says_so() {
    rehearse_network(|network| async move {
        let stage = Stage::new(network);
        let driver = stage.drive_with(Acknowledgement::Explicit);
        stage.settle().await;
        take(&stage.told);
        take(&stage.asked);
        stage.update(TaskState::Running, Some(1)).await;
        stage.update(TaskState::Running, Some(1)).await;
        assert_eq!(
            (take(&stage.told), take(&stage.asked)),
            (vec!["t TASK_RUNNING".to_owned()], vec![])
        );
        let mut status = TaskStatus::new(
            task().task_id,
            TaskState::Running,
            Source::Executor,
            Timestamp::default(),
        );
        (status.uuid, status.agent_id) = (Some(Uuid([1; 16])), Some(task().agent_id));
        driver.acknowledge(&status).unwrap();
        stage.settle().await;
        stage.update(TaskState::Running, Some(1)).await;
        assert_eq!(take(&stage.asked), ["acknowledge t 1", "acknowledge t 1"]);
        assert!(take(&stage.told).is_empty());
    });
}

#[test]
fn refused_for_good_it_stops_with_the_masters_reason() {
    rehearse_network(|network| async move {
        let reason = "roles: `a b` has a space".to_owned();
        let stage = Stage::refusing(
            network,
            Some(SubscriptionRefused::Never {
                reason: reason.clone(),
            }),
        );
        let driver = stage.drive();
        assert_eq!(driver.ended().await, Ended::Failed { reason });
        assert_eq!(take(&stage.told), ["failed: roles: `a b` has a space"]);
        stage.settle().await;
        assert!(driver.revive(BTreeSet::new()).is_err(), "it has stopped");
    });
}

/// SPEC 2.2 (retry discipline).
#[test]
fn refused_for_now_it_comes_back_after_waits_that_double_to_at_most_15_seconds() {
    rehearse_network(|network| async move {
        let reason = "recovering".to_owned();
        let stage = Stage::refusing(network, Some(SubscriptionRefused::NotNow { reason }));
        stage.drive();
        stage.pass(300).await;
        let asked = take(&stage.asked);
        let times: Vec<f64> = asked
            .iter()
            .map(|line| line.rsplit(' ').next().unwrap().parse().unwrap())
            .collect();
        for (round, pair) in times.windows(2).enumerate() {
            let step = (0.25 * f64::from(1 << round.min(10))).min(15.0);
            let wait = pair[1] - pair[0];
            assert!(
                wait >= step / 2.0 - 0.01 && wait <= step + 0.01,
                "round {round}: waited {wait}, step {step}"
            );
        }
        assert!(times.len() > 20, "{times:?}");
        assert!(take(&stage.told).is_empty());
    });
}

#[test]
fn the_second_master_is_tried_at_once_when_the_first_is_not_there() {
    rehearse_network(|network| async move {
        let stage = Stage::new(network);
        SchedulerDriver::new(["nowhere", "master"], FrameworkInfo::new("user", "test"))
            .start(&stage.framework, Notes(stage.told.clone()))
            .unwrap();
        stage.settle().await;
        assert_eq!(take(&stage.told)[0], "subscribed m-0000");
    });
}

/// SPEC 2.8: reason `MASTER_DISCONNECTED`.
#[test]
fn a_launch_without_a_master_comes_back_as_lost() {
    rehearse_network(|network| async move {
        let stage = Stage::new(network);
        stage.network.sever("master", "framework");
        let driver = stage.drive();
        driver
            .launch(vec![OfferId::new("o").unwrap()], vec![task()])
            .unwrap();
        stage.settle().await;
        assert_eq!(
            take(&stage.told),
            ["t TASK_LOST REASON_MASTER_DISCONNECTED"]
        );
    });
}

#[test]
fn tear_down_ends_the_driver_once_the_master_has_heard() {
    rehearse_network(|network| async move {
        let stage = Stage::new(network);
        let driver = stage.drive();
        stage.settle().await;
        take(&stage.asked);
        driver.stop(false).unwrap();
        assert_eq!(driver.ended().await, Ended::TornDown { confirmed: true });
        assert_eq!(take(&stage.asked), ["tear down"]);
    });
}

#[test]
fn stopped_for_failover_it_leaves_its_framework_alone() {
    rehearse_network(|network| async move {
        let stage = Stage::new(network);
        let driver = stage.drive();
        stage.settle().await;
        take(&stage.asked);
        driver.stop(true).unwrap();
        assert_eq!(driver.ended().await, Ended::LeftForFailover);
        assert!(take(&stage.asked).is_empty());
    });
}

#[test]
fn replaced_by_a_newer_scheduler_it_stops() {
    rehearse_network(|network| async move {
        let stage = Stage::new(network);
        let driver = stage.drive();
        stage.settle().await;
        stage
            .tell(FrameworkFailed {
                message: "failed over".to_owned(),
            })
            .await;
        assert_eq!(
            driver.ended().await,
            Ended::Failed {
                reason: "failed over".to_owned()
            }
        );
        assert_eq!(take(&stage.told).last().unwrap(), "failed: failed over");
    });
}
