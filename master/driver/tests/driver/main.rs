//! The driver against a recording master, in virtual time.

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
use runtime::delivery::{DedupReceiver, Sequenced, take as take_numbered};
use runtime::prelude::*;
use runtime::testing::memory::Network;
use runtime::testing::simulate_network;
use runtime::{Instant, Timestamp};
use scheduler_driver::{
    Acknowledgement, Calls, DriverRef, Ended, Scheduler, SchedulerDriver, Undelivered,
};
use testkit::{assert_contains, assert_matches, assert_starts};

mod delivery;
mod discovery;
mod expired;
mod fencing;
mod standby;
mod updating;

type Log = Arc<Mutex<Vec<String>>>;

fn take(log: &Log) -> Vec<String> {
    std::mem::take(&mut log.lock().unwrap())
}

/// Checks the records since the last call; ` | ` separates them.
#[track_caller]
fn receives(log: &Log, expected: &str) {
    assert_eq!(take(log).join(" | "), expected);
}

/// A master that records requests and accepts subscriptions, or refuses them as configured.
struct Master {
    requests: Log,
    incoming: DedupReceiver,
    refuse: Option<SubscriptionRefused>,
    asked_later: bool,
    /// Term of its leadership.
    term: u64,
    /// The network, which it severs on a kill of `cut`, before the acknowledgement.
    network: Network,
    /// The driver's pid, for messages of the test through the master's node.
    scheduler: Arc<Mutex<Option<Pid>>>,
}

impl Master {
    fn note(&self, line: String) {
        self.requests.lock().unwrap().push(line);
    }
}

impl Actor for Master {
    type Context = Context<Self>;
}

impl Process for Master {
    fn accepts(handlers: &mut RemoteHandlers<Self>) {
        let from = &[Role::Framework];
        handlers.accept::<Subscribe>(from);
        handlers.accept::<UpdateFramework>(from);
        handlers.accept::<Sequenced>(from);
        handlers.accept::<AcceptOffers>(from);
        handlers.accept::<DeclineOffers>(from);
        handlers.accept::<KillTask>(from);
        handlers.accept::<ReconcileTasks>(from);
        handlers.accept::<AcknowledgeStatus>(from);
        handlers.accept::<SuppressOffers>(from);
        handlers.accept::<TearDown>(from);
        handlers.accept::<TermSeen>(from);
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
        // Sent before the answer to the subscription; the driver must deliver it later.
        ctx.node()
            .tell(
                &message.scheduler,
                OfferRescinded {
                    offer_id: OfferId::new("early").unwrap(),
                },
            )
            .unwrap();
        let master = MasterInfo {
            term: self.term,
            ..testkit::values::master()
        };
        MessageResult(Ok(Subscribed {
            framework_id: master.id.framework(0),
            master,
        }))
    }
}

impl Handler<Sequenced> for Master {
    type Result = MessageResult<Sequenced>;
    fn handle(&mut self, numbered: Sequenced, ctx: &mut Context<Self>) -> Self::Result {
        let incoming: fn(&mut Self) -> &mut DedupReceiver = |master| &mut master.incoming;
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

macro_rules! recorded {
    ($($message:ty, $pattern:pat => $line:expr;)*) => {$(
        impl Handler<$message> for Master {
            type Result = ();
            fn handle(&mut self, $pattern: $message, _: &mut Context<Self>) {
                self.note($line);
            }
        }
    )*};
}
recorded! {
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

/// A scheduler that records its callbacks.
struct RecordingScheduler(Log);

impl RecordingScheduler {
    fn note(&self, line: String) {
        self.0.lock().unwrap().push(line);
    }
}

impl Scheduler for RecordingScheduler {
    fn subscribed(&mut self, _: &mut Calls, subscribed: &Subscribed) {
        self.note(format!("subscribed {}", subscribed.framework_id));
    }
    fn disconnected(&mut self, _: &mut Calls, reason: &str) {
        self.note(format!("disconnected: {reason}"));
    }
    fn offers(&mut self, driver: &mut Calls, offers: Vec<Offer>) {
        self.note(format!("{} offers", offers.len()));
        driver.decline(
            offers.into_iter().map(|offer| offer.id).collect(),
            Filters::default(),
        );
    }
    fn rescinded(&mut self, _: &mut Calls, offer: &OfferId) {
        self.note(format!("rescinded {offer}"));
    }
    fn status(&mut self, _: &mut Calls, status: &TaskStatus) {
        let reason = status
            .reason
            .map(|reason| format!(" {reason}"))
            .unwrap_or_default();
        self.note(format!("{} {}{reason}", status.task_id, status.state));
    }
    fn updated(&mut self, _: &mut Calls, outcome: Result<(), &str>) {
        self.note(format!("updated {outcome:?}"));
    }
    fn undelivered(&mut self, _: &mut Calls, failed: &Undelivered) {
        let tasks: Vec<_> = failed.tasks.iter().map(ToString::to_string).collect();
        let line = format!(
            "undelivered {} {}: {}",
            failed.call,
            tasks.join(","),
            failed.error
        );
        self.note(line);
    }
    fn failed(&mut self, _: &mut Calls, reason: &str) {
        self.note(format!("failed: {reason}"));
    }
}

/// A master at address `master`, a framework's node, and the records of both.
struct Fixture {
    network: Network,
    master: Node,
    framework: Node,
    requests: Log,
    callbacks: Log,
    scheduler: Arc<Mutex<Option<Pid>>>,
}

/// Runs a test with one master and its network.
fn simulate_driver<F: Future>(test: impl FnOnce(Fixture) -> F) {
    simulate_network(|network| async move {
        test(Fixture::new(network)).await;
    });
}

impl Fixture {
    fn new(network: Network) -> Self {
        Self::refusing(network, None)
    }

    fn refusing(network: Network, refuse: Option<SubscriptionRefused>) -> Self {
        let master = network.node("master", Role::Master, &[Role::Framework]);
        let framework = network.node("framework", Role::Framework, &[Role::Master]);
        let fixture = Self {
            network,
            master,
            framework,
            requests: Log::default(),
            callbacks: Log::default(),
            scheduler: Arc::default(),
        };
        fixture.raise(refuse);
        fixture
    }

    fn raise(&self, refuse: Option<SubscriptionRefused>) {
        let actor = Master {
            requests: self.requests.clone(),
            incoming: DedupReceiver::default(),
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
            .start(&self.framework, RecordingScheduler(self.callbacks.clone()))
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

    /// Sends a status of task `t` from the master, optionally with a uuid made of `uuid`.
    async fn update(&self, state: TaskState, uuid: Option<u8>) {
        let task = TaskId::new("t").unwrap();
        let mut status = TaskStatus::new(task, state, Source::Executor, Timestamp::default());
        status = status.on(&AgentId::new("a").unwrap());
        status.uuid = uuid.map(|byte| Uuid([byte; 16]));
        self.tell(StatusChanged { status }).await;
    }
}

fn task() -> TaskInfo {
    TaskInfo::new(
        TaskId::new("t").unwrap(),
        AgentId::new("a").unwrap(),
        Resources::default(),
    )
    .with_command(CommandInfo::shell("true"))
}

/// SPEC 2.2: the subscription's answer is the first event.
#[test]
fn early_events_follow_the_subscription() {
    simulate_driver(|fixture| async move {
        fixture.drive();
        fixture.settle().await;
        receives(&fixture.callbacks, "subscribed m-0000 | rescinded early");
    });
}

/// SPEC 2.2, A7, W17.
// Covers S131; W17.
#[test]
fn lost_link_leads_to_resubscription_and_resends() {
    simulate_driver(|fixture| async move {
        let driver = fixture.drive();
        fixture.settle().await;
        driver.suppress(BTreeSet::new()).unwrap();
        driver
            .launch(vec![OfferId::new("o").unwrap()], vec![task()])
            .unwrap();
        driver.kill(TaskId::new("t").unwrap(), None).unwrap();
        fixture.settle().await;
        take(&fixture.callbacks);
        let requests = take(&fixture.requests);
        assert_starts!(requests[0], r#"subscribe "" suppressed []"#);
        assert_eq!(
            requests[1..],
            ["suppress {}", "accept [OfferId(o)]", "kill t"]
        );

        fixture.network.sever("master", "framework");
        fixture.pass(20).await;
        receives(&fixture.callbacks, "disconnected: node lost: severed");
        assert!(take(&fixture.requests).is_empty());
        fixture.network.heal("master", "framework");
        fixture.pass(15).await;
        let requests = take(&fixture.requests);
        assert_starts!(requests[0], r#"subscribe "m-0000" suppressed ["*"]"#);
        assert_eq!(requests[1..4], ["kill t", "reconcile t", "reconcile "]);
        receives(&fixture.callbacks, "subscribed m-0000 | rescinded early");
    });
}

/// SPEC 2.2 (retry discipline), W17.
// Covers W17; 2.2 Retry discipline.
#[test]
fn reconciliation_backs_off_and_repeats_every_15_minutes() {
    simulate_driver(|fixture| async move {
        let driver = fixture.drive();
        fixture.settle().await;
        driver
            .launch(vec![OfferId::new("o").unwrap()], vec![task()])
            .unwrap();
        fixture.settle().await;
        take(&fixture.requests);
        fixture.pass(14 * 60 + 59).await;
        assert!(take(&fixture.requests).is_empty());
        fixture.pass(2).await;
        receives(&fixture.requests, "reconcile t | reconcile ");
        fixture.pass(75).await; // after 10, 30 and 70 s
        assert_eq!(take(&fixture.requests), ["reconcile t"; 3]);
        fixture.update(TaskState::Running, None).await;
        fixture.pass(10 * 60).await;
        assert!(take(&fixture.requests).is_empty(), "it was answered");
    });
}

/// SPEC 2.2, A7.
// Covers W17.
#[test]
fn duplicate_update_is_delivered_once_acknowledged_twice() {
    simulate_driver(|fixture| async move {
        fixture.drive();
        fixture.settle().await;
        take(&fixture.callbacks);
        take(&fixture.requests);
        fixture.update(TaskState::Running, Some(1)).await;
        fixture.update(TaskState::Running, Some(1)).await;
        fixture.update(TaskState::Finished, Some(2)).await;
        receives(&fixture.callbacks, "t TASK_RUNNING | t TASK_FINISHED");
        receives(
            &fixture.requests,
            "acknowledge t 1 | acknowledge t 1 | acknowledge t 2",
        );
    });
}

/// SPEC 2.2 (`acknowledgeStatusUpdate`).
#[test]
fn explicit_acknowledgement_waits_for_the_scheduler() {
    simulate_driver(|fixture| async move {
        let driver = fixture.drive_with(Acknowledgement::Explicit);
        fixture.settle().await;
        take(&fixture.callbacks);
        take(&fixture.requests);
        fixture.update(TaskState::Running, Some(1)).await;
        fixture.update(TaskState::Running, Some(1)).await;
        assert_eq!(
            (take(&fixture.callbacks), take(&fixture.requests)),
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
        fixture.settle().await;
        fixture.update(TaskState::Running, Some(1)).await;
        receives(&fixture.requests, "acknowledge t 1 | acknowledge t 1");
        assert!(take(&fixture.callbacks).is_empty());
    });
}

#[test]
fn permanent_refusal_ends_the_driver() {
    simulate_network(|network| async move {
        let reason = "roles: `a b` has a space".to_owned();
        let fixture = Fixture::refusing(
            network,
            Some(SubscriptionRefused::Never {
                reason: reason.clone(),
            }),
        );
        let driver = fixture.drive();
        assert_eq!(driver.ended().await, Ended::Failed { reason });
        receives(&fixture.callbacks, "failed: roles: `a b` has a space");
        fixture.settle().await;
        assert!(driver.revive(BTreeSet::new()).is_err(), "it has stopped");
    });
}

/// SPEC 2.2 (retry discipline).
// Covers 2.2 Retry discipline.
#[test]
fn temporary_refusal_is_retried_with_backoff() {
    simulate_network(|network| async move {
        let reason = "recovering".to_owned();
        let fixture = Fixture::refusing(network, Some(SubscriptionRefused::NotNow { reason }));
        fixture.drive();
        fixture.pass(300).await;
        let requests = take(&fixture.requests);
        let times: Vec<f64> = requests
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
        assert!(take(&fixture.callbacks).is_empty());
    });
}

// Covers W6.
#[test]
fn absent_master_is_skipped_at_once() {
    simulate_driver(|fixture| async move {
        SchedulerDriver::new(["nowhere", "master"], FrameworkInfo::new("user", "test"))
            .start(
                &fixture.framework,
                RecordingScheduler(fixture.callbacks.clone()),
            )
            .unwrap();
        fixture.settle().await;
        assert_eq!(take(&fixture.callbacks)[0], "subscribed m-0000");
    });
}

/// SPEC 2.8: reason `MASTER_DISCONNECTED`.
#[test]
fn launch_without_master_is_lost() {
    simulate_driver(|fixture| async move {
        fixture.network.sever("master", "framework");
        let driver = fixture.drive();
        driver
            .launch(vec![OfferId::new("o").unwrap()], vec![task()])
            .unwrap();
        fixture.settle().await;
        receives(&fixture.callbacks, "t TASK_LOST REASON_MASTER_DISCONNECTED");
    });
}

#[test]
fn confirmed_tear_down_ends_the_driver() {
    simulate_driver(|fixture| async move {
        let driver = fixture.drive();
        fixture.settle().await;
        take(&fixture.requests);
        driver.stop(false).unwrap();
        assert_eq!(driver.ended().await, Ended::TornDown { confirmed: true });
        receives(&fixture.requests, "tear down");
    });
}

#[test]
fn stop_for_failover_keeps_the_framework() {
    simulate_driver(|fixture| async move {
        let driver = fixture.drive();
        fixture.settle().await;
        take(&fixture.requests);
        driver.stop(true).unwrap();
        assert_eq!(driver.ended().await, Ended::LeftForFailover);
        assert!(take(&fixture.requests).is_empty());
    });
}

#[test]
fn replaced_scheduler_stops() {
    simulate_driver(|fixture| async move {
        let driver = fixture.drive();
        fixture.settle().await;
        fixture
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
        assert_eq!(
            take(&fixture.callbacks).last().unwrap(),
            "failed: failed over"
        );
    });
}
