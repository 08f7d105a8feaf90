//! A standby driver and the framework's state, against a scripted master.

use std::collections::VecDeque;

use protocol::message::standby::*;
use protocol::message::state::*;
use scheduler_driver::{STATE_PATIENCE, StateCall, StateError, StateOutcome};

use super::*;

/// The master's answers and recorded requests.
#[derive(Clone, Default)]
struct Script {
    /// Whether each subscription leads, in order; later ones are standbys.
    leads: Arc<Mutex<VecDeque<bool>>>,
    requests: Log,
}

struct ScriptedMaster {
    script: Script,
    incoming: DedupReceiver,
    scheduler: Arc<Mutex<Option<Pid>>>,
}

impl Actor for ScriptedMaster {
    type Context = Context<Self>;
}

impl Process for ScriptedMaster {
    fn accepts(handlers: &mut RemoteHandlers<Self>) {
        let from = &[Role::Framework];
        handlers.accept::<StandBy>(from);
        handlers.accept::<GetState>(from);
        handlers.accept::<ChangeState>(from);
        handlers.accept::<Sequenced>(from);
        handlers.accept::<ReconcileTasks>(from);
        handlers.accept::<KillTask>(from);
        handlers.accept::<ReviveOffers>(from);
        handlers.accept::<SuppressOffers>(from);
    }
}

fn subscribed() -> Subscribed {
    let master = testkit::values::master();
    Subscribed {
        framework_id: master.id.framework(0),
        master,
    }
}

impl Handler<StandBy> for ScriptedMaster {
    type Result = MessageResult<StandBy>;
    fn handle(&mut self, message: StandBy, _: &mut Context<Self>) -> Self::Result {
        *self.scheduler.lock().unwrap() = Some(message.scheduler);
        let leads = self.script.leads.lock().unwrap().pop_front();
        let Subscribed {
            framework_id,
            master,
        } = subscribed();
        MessageResult(Ok(match leads {
            Some(true) => StandbyReply::Leads(subscribed()),
            _ => StandbyReply::StandsBy(StandingBy {
                framework_id,
                master,
            }),
        }))
    }
}

impl Handler<GetState> for ScriptedMaster {
    type Result = MessageResult<GetState>;
    fn handle(&mut self, question: GetState, _: &mut Context<Self>) -> Self::Result {
        let value = question.key.into_bytes();
        MessageResult(Ok(Some(StateValue { version: 7, value })))
    }
}

impl Handler<ChangeState> for ScriptedMaster {
    type Result = Reply<Result<u64, StateRefused>>;
    fn handle(&mut self, change: ChangeState, _: &mut Context<Self>) -> Self::Result {
        let (promise, reply) = runtime::promise();
        let (key, expected) = (&change.key, &change.expected);
        self.script
            .note(format!("change {key} expecting {expected:?}"));
        // One answer is lost, as with a master that dies.
        if change.key != "lost" {
            promise.answer(Ok(8));
        }
        reply
    }
}

impl Handler<Sequenced> for ScriptedMaster {
    type Result = MessageResult<Sequenced>;
    fn handle(&mut self, numbered: Sequenced, ctx: &mut Context<Self>) -> Self::Result {
        let incoming: fn(&mut Self) -> &mut DedupReceiver = |master| &mut master.incoming;
        MessageResult(take_numbered(self, incoming, numbered, ctx))
    }
}

impl Script {
    fn note(&self, line: impl Into<String>) {
        self.requests.lock().unwrap().push(line.into());
    }
}

impl Handler<ReconcileTasks> for ScriptedMaster {
    type Result = ();
    fn handle(&mut self, _: ReconcileTasks, _: &mut Context<Self>) {
        self.script.note("reconcile");
    }
}

impl Handler<KillTask> for ScriptedMaster {
    type Result = ();
    fn handle(&mut self, kill: KillTask, _: &mut Context<Self>) {
        self.script.note(format!("kill {}", kill.task_id));
    }
}

impl Handler<ReviveOffers> for ScriptedMaster {
    type Result = ();
    fn handle(&mut self, revive: ReviveOffers, _: &mut Context<Self>) {
        self.script.note(format!("revive {:?}", revive.roles));
    }
}

impl Handler<SuppressOffers> for ScriptedMaster {
    type Result = ();
    fn handle(&mut self, suppress: SuppressOffers, _: &mut Context<Self>) {
        self.script.note(format!("suppress {:?}", suppress.roles));
    }
}

/// A scheduler that records its callbacks, and reads a key when it is elected.
struct StandbyScheduler(Log);

impl StandbyScheduler {
    fn note(&self, line: impl Into<String>) {
        self.0.lock().unwrap().push(line.into());
    }
}

impl Scheduler for StandbyScheduler {
    fn elected(&mut self, driver: &mut Calls, _: &Subscribed) {
        self.note("elected");
        driver.get("key");
    }
    fn subscribed(&mut self, _: &mut Calls, _: &Subscribed) {
        self.note("subscribed");
    }
    fn standing_by(&mut self, _: &mut Calls, _: &StandingBy) {
        self.note("standing by");
    }
    fn state(&mut self, _: &mut Calls, call: &StateCall, outcome: &StateOutcome) {
        self.note(format!("{}: {}", call.key(), outcome.is_ok()));
    }
    fn disconnected(&mut self, _: &mut Calls, _: &str) {
        self.note("disconnected");
    }
    fn offers(&mut self, _: &mut Calls, _: Vec<Offer>) {
        self.note("offers");
    }
    fn status(&mut self, _: &mut Calls, status: &TaskStatus) {
        self.note(format!("{} {}", status.task_id, status.state));
    }
    fn undelivered(&mut self, _: &mut Calls, failed: &Undelivered) {
        self.note(format!("undelivered {}: {}", failed.call, failed.error));
    }
}

struct StandbyFixture {
    network: Network,
    framework: Node,
    master: Node,
    script: Script,
    scheduler: Arc<Mutex<Option<Pid>>>,
    callbacks: Log,
    driver: DriverRef,
}

impl StandbyFixture {
    fn begin(network: Network, leads: &[bool]) -> Self {
        let master = network.node("master", Role::Master, &[Role::Framework]);
        let framework = network.node("framework", Role::Framework, &[Role::Master]);
        let (script, callbacks) = (Script::default(), Log::default());
        script.leads.lock().unwrap().extend(leads);
        let scheduler = Arc::default();
        let driver = SchedulerDriver::new(["master"], FrameworkInfo::new("user", "test"))
            .standing_by()
            .start(&framework, StandbyScheduler(callbacks.clone()))
            .unwrap();
        let fixture = Self {
            network,
            framework,
            master,
            script,
            scheduler,
            callbacks,
            driver,
        };
        fixture.raise();
        fixture
    }

    fn raise(&self) {
        let actor = ScriptedMaster {
            script: self.script.clone(),
            incoming: DedupReceiver::default(),
            scheduler: self.scheduler.clone(),
        };
        self.master.spawn("master", actor).unwrap();
    }

    async fn pass(&self, seconds: u64) {
        let clock = self.framework.clock();
        clock.advance(Duration::from_secs(seconds)).await;
        clock.settle().await;
    }

    fn tell<M: Remote<Result = ()>>(&self, message: M) {
        let scheduler = self.scheduler.lock().unwrap().clone().unwrap();
        self.master.tell(&scheduler, message).unwrap();
    }
}

// Covers S134.
#[test]
fn standby_waits_until_elected() {
    simulate_network(|network| async move {
        let fixture = StandbyFixture::begin(network, &[false]);
        fixture.pass(1).await;
        receives(&fixture.callbacks, "standing by");
        let offer = OfferId::new("o").unwrap();
        fixture.driver.launch(vec![offer], vec![task()]).unwrap();
        fixture
            .driver
            .kill(TaskId::new("t").unwrap(), None)
            .unwrap();
        fixture.tell(OffersMade { offers: vec![] });
        let refused = fixture.driver.put("key", vec![1]).await;
        assert_matches!(refused, Err(StateError::NotLeading { .. }));
        let read = fixture.driver.get("key").await.unwrap().unwrap();
        assert_eq!((read.version, read.value), (7, b"key".to_vec()));
        fixture.pass(0).await;
        assert_eq!(
            take(&fixture.callbacks),
            [
                "t TASK_LOST",
                "undelivered kill: refused: this scheduler is a standby: only the leading one may do that"
            ]
        );
        receives(&fixture.script.requests, "");

        let subscribed = subscribed();
        fixture.tell(SchedulerElected {
            subscribed: subscribed.clone(),
        });
        fixture.tell(SchedulerElected { subscribed });
        fixture.pass(0).await;
        // Once.
        receives(&fixture.callbacks, "elected | subscribed | key: true");
        // It reconciles the tasks of the previous leader.
        receives(&fixture.script.requests, "reconcile");
        assert_eq!(fixture.driver.put("key", vec![1]).await, Ok(8));
    });
}

/// S134: calls of a previous leadership are dropped after a replacement.
// Covers S134.
#[test]
fn replaced_leader_starts_anew_as_standby() {
    simulate_network(|network| async move {
        let fixture = StandbyFixture::begin(network, &[true, true, false]);
        fixture.pass(1).await;
        receives(&fixture.callbacks, "elected | subscribed | key: true");
        fixture.network.sever("master", "framework");
        fixture.network.heal("master", "framework");
        fixture.pass(2).await;
        // It still leads.
        receives(&fixture.callbacks, "disconnected | subscribed");
        take(&fixture.script.requests);
        fixture.network.sever("master", "framework");
        fixture.network.heal("master", "framework");
        fixture
            .driver
            .kill(TaskId::new("t").unwrap(), None)
            .unwrap();
        fixture.pass(2).await;
        assert_eq!(
            take(&fixture.callbacks),
            [
                "disconnected",
                "standing by",
                "undelivered kill: the reliable sender has ended"
            ]
        );
        receives(&fixture.script.requests, "");
        fixture.tell(FrameworkFailed {
            message: "the framework is over".to_owned(),
        });
        let ended = fixture.driver.ended().await;
        assert_eq!(ended, Ended::TornDown { confirmed: true });
    });
}

/// S134: suppressions belong to the previous leadership. Otherwise a framework could stay without
/// offers for ever (seed 1 of 100 agents in 20 minutes, default faults): its elected scheduler did
/// not know that it had suppressed them long ago.
// Covers S134.
#[test]
fn reelected_scheduler_restores_initial_suppression() {
    simulate_network(|network| async move {
        let fixture = StandbyFixture::begin(network, &[true, true, false]);
        fixture.pass(1).await;
        fixture.driver.suppress(BTreeSet::new()).unwrap();
        fixture.pass(0).await;
        receives(&fixture.script.requests, "suppress {}");
        for is_replaced in [false, true] {
            fixture.network.sever("master", "framework");
            fixture.network.heal("master", "framework");
            fixture.pass(2).await;
            let stands_by = take(&fixture.callbacks).contains(&"standing by".to_owned());
            assert_eq!(stands_by, is_replaced);
            let requests = take(&fixture.script.requests);
            assert!(
                requests.iter().all(|line| line == "reconcile"),
                "it leads still, and wants none: {requests:?}"
            );
        }
        let subscribed = subscribed();
        fixture.tell(SchedulerElected { subscribed });
        fixture.pass(0).await;
        // Before all else.
        receives(&fixture.script.requests, "revive {\"*\"} | reconcile");
        fixture.driver.suppress(BTreeSet::new()).unwrap();
        fixture.pass(0).await;
        receives(&fixture.script.requests, "suppress {}");
    });
}

#[test]
fn state_reads_wait_for_a_master() {
    simulate_network(|network| async move {
        let fixture = StandbyFixture::begin(network, &[true, true]);
        fixture.pass(1).await;
        let lost = fixture.driver.compare_and_set("lost", 3, vec![1]).await;
        assert!(matches!(lost, Err(StateError::Unknown { .. })), "{lost:?}");
        // The call is not repeated.
        receives(&fixture.script.requests, "change lost expecting Some(3)");
        let long = fixture.driver.put("k".repeat(257), vec![]).await;
        assert_matches!(&long, Err(StateError::Refused { reason }) if reason.contains("key"));

        fixture.network.leave("master");
        fixture.pass(0).await;
        let started = fixture.framework.clock().now();
        let none = fixture.driver.put("key", vec![1]).await;
        assert_matches!(none, Err(StateError::Unavailable { .. }));
        assert_eq!(fixture.framework.clock().now() - started, STATE_PATIENCE);
        receives(&fixture.script.requests, "");
    });
}
