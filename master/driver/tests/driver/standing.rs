//! A driver that stands by, and the framework's state as it asks for it (S134), against a master that answers as the test says.

use std::collections::VecDeque;

use protocol::message::standby::*;
use protocol::message::state::*;
use scheduler_driver::{STATE_PATIENCE, StateCall, StateError, StateOutcome};

use super::*;

/// What the master is to answer, and what it hears.
#[derive(Clone, Default)]
struct Script {
    /// Who leads, in the order of the questions; afterwards another always does.
    leads: Arc<Mutex<VecDeque<bool>>>,
    heard: Log,
}

struct Stand {
    script: Script,
    incoming: Incoming,
    scheduler: Arc<Mutex<Option<Pid>>>,
}

impl Actor for Stand {
    type Context = Context<Self>;
}

impl Process for Stand {
    fn hears(ears: &mut Ears<Self>) {
        let from = &[Role::Framework];
        ears.hear::<StandBy>(from);
        ears.hear::<GetState>(from);
        ears.hear::<ChangeState>(from);
        ears.hear::<Numbered>(from);
        ears.hear::<ReconcileTasks>(from);
        ears.hear::<KillTask>(from);
        ears.hear::<ReviveOffers>(from);
        ears.hear::<SuppressOffers>(from);
    }
}

fn subscribed() -> Subscribed {
    let master = MasterInfo {
        id: MasterId::new("m").unwrap(),
        hostname: "host".to_owned(),
        port: 5050,
        version: "test".to_owned(),
        term: 0,
        address: None,
        domain: None,
    };
    Subscribed {
        framework_id: master.id.framework(0),
        master,
    }
}

impl Handler<StandBy> for Stand {
    type Result = MessageResult<StandBy>;
    fn handle(&mut self, message: StandBy, _: &mut Context<Self>) -> Self::Result {
        *self.scheduler.lock().unwrap() = Some(message.scheduler);
        let leads = self.script.leads.lock().unwrap().pop_front();
        let Subscribed {
            framework_id,
            master,
        } = subscribed();
        MessageResult(Ok(match leads {
            Some(true) => Standing::Leads(subscribed()),
            _ => Standing::StandsBy(StandingBy {
                framework_id,
                master,
            }),
        }))
    }
}

impl Handler<GetState> for Stand {
    type Result = MessageResult<GetState>;
    fn handle(&mut self, question: GetState, _: &mut Context<Self>) -> Self::Result {
        let value = question.key.into_bytes();
        MessageResult(Ok(Some(StateValue { version: 7, value })))
    }
}

impl Handler<ChangeState> for Stand {
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

impl Handler<Numbered> for Stand {
    type Result = MessageResult<Numbered>;
    fn handle(&mut self, numbered: Numbered, ctx: &mut Context<Self>) -> Self::Result {
        let incoming: fn(&mut Self) -> &mut Incoming = |master| &mut master.incoming;
        MessageResult(take_numbered(self, incoming, numbered, ctx))
    }
}

impl Script {
    fn note(&self, line: impl Into<String>) {
        self.heard.lock().unwrap().push(line.into());
    }
}

impl Handler<ReconcileTasks> for Stand {
    type Result = ();
    fn handle(&mut self, _: ReconcileTasks, _: &mut Context<Self>) {
        self.script.note("reconcile");
    }
}

impl Handler<KillTask> for Stand {
    type Result = ();
    fn handle(&mut self, kill: KillTask, _: &mut Context<Self>) {
        self.script.note(format!("kill {}", kill.task_id));
    }
}

impl Handler<ReviveOffers> for Stand {
    type Result = ();
    fn handle(&mut self, revive: ReviveOffers, _: &mut Context<Self>) {
        self.script.note(format!("revive {:?}", revive.roles));
    }
}

impl Handler<SuppressOffers> for Stand {
    type Result = ();
    fn handle(&mut self, suppress: SuppressOffers, _: &mut Context<Self>) {
        self.script.note(format!("suppress {:?}", suppress.roles));
    }
}

/// Writes down what it hears, and reads a key when it leads.
struct Turns(Log);

impl Turns {
    fn note(&self, line: impl Into<String>) {
        self.0.lock().unwrap().push(line.into());
    }
}

impl Scheduler for Turns {
    fn you_lead(&mut self, driver: &mut Verbs, _: &Subscribed) {
        self.note("you lead");
        driver.get("key");
    }
    fn subscribed(&mut self, _: &mut Verbs, _: &Subscribed) {
        self.note("subscribed");
    }
    fn standing_by(&mut self, _: &mut Verbs, _: &StandingBy) {
        self.note("standing by");
    }
    fn state(&mut self, _: &mut Verbs, call: &StateCall, outcome: &StateOutcome) {
        self.note(format!("{}: {}", call.key(), outcome.is_ok()));
    }
    fn disconnected(&mut self, _: &mut Verbs, _: &str) {
        self.note("disconnected");
    }
    fn offers(&mut self, _: &mut Verbs, _: Vec<Offer>) {
        self.note("offers");
    }
    fn status(&mut self, _: &mut Verbs, status: &TaskStatus) {
        self.note(format!("{} {}", status.task_id, status.state));
    }
    fn undelivered(&mut self, _: &mut Verbs, failed: &Undelivered) {
        self.note(format!("undelivered {}: {}", failed.call, failed.error));
    }
}

struct Scene {
    network: Network,
    framework: Node,
    master: Node,
    script: Script,
    scheduler: Arc<Mutex<Option<Pid>>>,
    told: Log,
    driver: DriverRef,
}

impl Scene {
    fn begin(network: Network, leads: &[bool]) -> Self {
        let master = network.node("master", Role::Master, &[Role::Framework]);
        let framework = network.node("framework", Role::Framework, &[Role::Master]);
        let (script, told) = (Script::default(), Log::default());
        script.leads.lock().unwrap().extend(leads);
        let scheduler = Arc::default();
        let driver = SchedulerDriver::new(["master"], FrameworkInfo::new("user", "test"))
            .standing_by()
            .start(&framework, Turns(told.clone()))
            .unwrap();
        let scene = Self {
            network,
            framework,
            master,
            script,
            scheduler,
            told,
            driver,
        };
        scene.raise();
        scene
    }

    fn raise(&self) {
        let actor = Stand {
            script: self.script.clone(),
            incoming: Incoming::default(),
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

/// S134.
#[test]
fn one_that_stands_by_does_nothing_until_it_is_told_to_lead() {
    rehearse_network(|network| async move {
        let scene = Scene::begin(network, &[false]);
        scene.pass(1).await;
        assert_eq!(take(&scene.told), ["standing by"]);
        let offer = OfferId::new("o").unwrap();
        scene.driver.launch(vec![offer], vec![task()]).unwrap();
        scene.driver.kill(TaskId::new("t").unwrap(), None).unwrap();
        scene.tell(OffersMade { offers: vec![] });
        let refused = scene.driver.put("key", vec![1]).await;
        assert!(
            matches!(refused, Err(StateError::NotLeading { .. })),
            "{refused:?}"
        );
        let read = scene.driver.get("key").await.unwrap().unwrap();
        assert_eq!((read.version, read.value), (7, b"key".to_vec()));
        scene.pass(0).await;
        assert_eq!(
            take(&scene.told),
            [
                "t TASK_LOST",
                "undelivered kill: refused: this scheduler stands by: only the one that leads may do that"
            ]
        );
        assert_eq!(take(&scene.script.heard), Vec::<String>::new());

        let subscribed = subscribed();
        scene.tell(YouLead {
            subscribed: subscribed.clone(),
        });
        scene.tell(YouLead { subscribed });
        scene.pass(0).await;
        assert_eq!(
            take(&scene.told),
            ["you lead", "subscribed", "key: true"],
            "once"
        );
        assert_eq!(
            take(&scene.script.heard),
            ["reconcile"],
            "it asks what was left behind"
        );
        assert_eq!(scene.driver.put("key", vec![1]).await, Ok(8));
    });
}

/// S134: one that was replaced while it was away has nothing more to say of its former leadership.
#[test]
fn one_that_led_and_is_replaced_begins_anew() {
    rehearse_network(|network| async move {
        let scene = Scene::begin(network, &[true, true, false]);
        scene.pass(1).await;
        assert_eq!(take(&scene.told), ["you lead", "subscribed", "key: true"]);
        scene.network.sever("master", "framework");
        scene.network.heal("master", "framework");
        scene.pass(2).await;
        assert_eq!(
            take(&scene.told),
            ["disconnected", "subscribed"],
            "it leads still"
        );
        take(&scene.script.heard);
        scene.network.sever("master", "framework");
        scene.network.heal("master", "framework");
        scene.driver.kill(TaskId::new("t").unwrap(), None).unwrap();
        scene.pass(2).await;
        assert_eq!(
            take(&scene.told),
            [
                "disconnected",
                "standing by",
                "undelivered kill: the courier has ended"
            ]
        );
        assert_eq!(take(&scene.script.heard), Vec::<String>::new());
        scene.tell(FrameworkFailed {
            message: "the framework is over".to_owned(),
        });
        let ended = scene.driver.ended().await;
        assert_eq!(ended, Ended::TornDown { confirmed: true });
    });
}

/// S134: its suppressions were its former leadership's. A framework was left without offers for ever (seed 1 of 100 agents in 20
/// minutes, default faults): its scheduler, told to lead again, did not know that it had said so long ago.
#[test]
fn one_that_leads_again_wants_offers_as_it_did_when_it_began() {
    rehearse_network(|network| async move {
        let scene = Scene::begin(network, &[true, true, false]);
        scene.pass(1).await;
        scene.driver.suppress(BTreeSet::new()).unwrap();
        scene.pass(0).await;
        assert_eq!(take(&scene.script.heard), ["suppress {}"]);
        for is_replaced in [false, true] {
            scene.network.sever("master", "framework");
            scene.network.heal("master", "framework");
            scene.pass(2).await;
            let stands_by = take(&scene.told).contains(&"standing by".to_owned());
            assert_eq!(stands_by, is_replaced);
            let heard = take(&scene.script.heard);
            assert!(
                heard.iter().all(|line| line == "reconcile"),
                "it leads still, and wants none: {heard:?}"
            );
        }
        let subscribed = subscribed();
        scene.tell(YouLead { subscribed });
        scene.pass(0).await;
        assert_eq!(
            take(&scene.script.heard),
            ["revive {\"*\"}", "reconcile"],
            "before all else"
        );
        scene.driver.suppress(BTreeSet::new()).unwrap();
        scene.pass(0).await;
        assert_eq!(take(&scene.script.heard), ["suppress {}"]);
    });
}

#[test]
fn while_there_is_no_master_a_question_waits_and_a_change_whose_answer_is_lost_is_unknown() {
    rehearse_network(|network| async move {
        let scene = Scene::begin(network, &[true, true]);
        scene.pass(1).await;
        let lost = scene.driver.compare_and_set("lost", 3, vec![1]).await;
        assert!(matches!(lost, Err(StateError::Unknown { .. })), "{lost:?}");
        assert_eq!(
            take(&scene.script.heard),
            ["change lost expecting Some(3)"],
            "it is not said twice"
        );
        let long = scene.driver.put("k".repeat(257), vec![]).await;
        assert!(
            matches!(&long, Err(StateError::Refused { reason }) if reason.contains("key")),
            "{long:?}"
        );

        scene.network.leave("master");
        scene.pass(0).await;
        let asked = scene.framework.clock().now();
        let none = scene.driver.put("key", vec![1]).await;
        assert!(
            matches!(none, Err(StateError::Unavailable { .. })),
            "{none:?}"
        );
        assert_eq!(scene.framework.clock().now() - asked, STATE_PATIENCE);
        assert_eq!(take(&scene.script.heard), Vec::<String>::new());
    });
}
