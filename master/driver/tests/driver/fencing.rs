//! Several masters: whose word counts, and how the driver hears of the next one.

use std::collections::VecDeque;

use protocol::message::registration::{AwaitLeader, LeaderAnnounced};

use super::*;

/// The term that somebody knows who waits for a later one.
type Waiting = (u64, Promise<LeaderAnnounced>);

/// Who tells, at a master that does not lead, who does.
#[derive(Clone, Default)]
pub struct Asked(Arc<Mutex<VecDeque<Waiting>>>);

struct Office(Asked);

impl Actor for Office {
    type Context = Context<Self>;
}

impl Process for Office {
    fn hears(ears: &mut Ears<Self>) {
        ears.hear::<AwaitLeader>(&[Role::Framework]);
    }
}

impl Handler<AwaitLeader> for Office {
    type Result = Reply<LeaderAnnounced>;
    fn handle(&mut self, AwaitLeader { term }: AwaitLeader, _: &mut Context<Self>) -> Self::Result {
        let (promise, reply) = promise();
        self.0.0.lock().unwrap().push_back((term, promise));
        reply
    }
}

impl Asked {
    pub fn terms(&self) -> Vec<u64> {
        let waiting = self.0.lock().unwrap();
        waiting.iter().map(|(term, _)| *term).collect()
    }

    /// Answers the oldest question.
    pub fn answer(&self, address: &str, term: u64) {
        let (_, promise) = self.0.lock().unwrap().pop_front().unwrap();
        let address = address.to_owned();
        promise.answer(LeaderAnnounced { address, term });
    }
}

/// A master besides the first: what it has heard, and what its office is asked.
pub struct Other {
    pub node: Node,
    pub asked: Log,
    pub office: Asked,
}

impl Other {
    /// It has an office, as every master of a group; it acts under `term`, if it does.
    pub fn at(stage: &Stage, address: &str, term: Option<u64>) -> Self {
        let node = stage
            .network
            .node(address, Role::Master, &[Role::Framework]);
        let other = Self {
            node,
            asked: Log::default(),
            office: Asked::default(),
        };
        let office = Office(other.office.clone());
        other.node.spawn("office", office).unwrap();
        if let Some(term) = term {
            other.act(stage, term);
        }
        other
    }

    pub fn act(&self, stage: &Stage, term: u64) {
        let actor = Master {
            heard: self.asked.clone(),
            incoming: Incoming::default(),
            refuse: None,
            asked_later: false,
            term,
            network: stage.network.clone(),
            scheduler: stage.scheduler.clone(),
        };
        self.node.spawn("master", actor).unwrap();
    }
}

pub fn drive(stage: &Stage, masters: &[&str]) -> DriverRef {
    SchedulerDriver::new(masters.iter().copied(), FrameworkInfo::new("user", "test"))
        .start(&stage.framework, Notes(stage.told.clone()))
        .unwrap()
}

/// How often it was subscribed at.
pub fn subscriptions(log: &Log) -> usize {
    let lines = log.lock().unwrap();
    let asks = |line: &&String| line.starts_with("subscribe");
    lines.iter().filter(asks).count()
}

/// S131.
#[test]
fn what_a_deposed_master_says_reaches_no_scheduler_and_it_is_told() {
    rehearse_network(|network| async move {
        let stage = Stage::new(network);
        let old = Other::at(&stage, "old", Some(5));
        let next = Other::at(&stage, "next", Some(6));
        let driver = drive(&stage, &["old", "next"]);
        stage.settle().await;
        assert_eq!(next.office.terms(), [5]);
        next.office.answer("next", 6);
        stage.pass(1).await;
        assert_eq!(subscriptions(&next.asked), 1);
        take(&stage.told);

        let scheduler = stage.scheduler.lock().unwrap().clone().unwrap();
        let offers = || OffersMade { offers: Vec::new() };
        let failed = FrameworkFailed {
            message: "a rumour".to_owned(),
        };
        old.node.tell(&scheduler, offers()).unwrap();
        old.node.tell(&scheduler, failed).unwrap();
        stage.settle().await;
        assert_eq!(take(&stage.told), Vec::<String>::new());
        let told: Vec<_> = take(&old.asked)
            .into_iter()
            .filter(|line| line.starts_with("term"))
            .collect();
        assert_eq!(told, ["term seen 6"], "once");

        next.node.tell(&scheduler, offers()).unwrap();
        driver.kill(TaskId::new("t").unwrap(), None).unwrap();
        stage.settle().await;
        assert_eq!(take(&stage.told), ["0 offers"]);
        assert!(take(&next.asked).contains(&"kill t".to_owned()));
        assert!(!take(&old.asked).contains(&"kill t".to_owned()));
    });
}

/// S132: what the deposed one has heard, and perhaps never passed on, is said to the next one as well.
#[test]
fn a_kill_that_a_deposed_master_took_is_said_again_to_the_next_one() {
    rehearse_network(|network| async move {
        let stage = Stage::new(network);
        let old = Other::at(&stage, "old", Some(5));
        let next = Other::at(&stage, "next", Some(6));
        let driver = drive(&stage, &["old", "next"]);
        stage.settle().await;
        driver
            .launch(vec![OfferId::new("o").unwrap()], vec![task()])
            .unwrap();
        driver.kill(TaskId::new("t").unwrap(), None).unwrap();
        stage.settle().await;
        assert!(take(&old.asked).contains(&"kill t".to_owned()));
        next.office.answer("next", 6);
        stage.pass(1).await;
        assert!(take(&next.asked).contains(&"kill t".to_owned()));
    });
}

#[test]
fn two_others_are_asked_at_a_time_and_only_a_later_term_is_followed() {
    rehearse_network(|network| async move {
        let stage = Stage::new(network);
        let first = Other::at(&stage, "a", Some(5));
        let others = ["b", "c", "d"].map(|address| Other::at(&stage, address, None));
        drive(&stage, &["a", "b", "c", "d"]);
        stage.settle().await;
        let asked = || Vec::from_iter(others.iter().map(|other| other.office.terms()));
        assert_eq!(asked(), [vec![5], vec![5], vec![]]);
        assert!(first.office.terms().is_empty());
        // One that has slept believes in an earlier leader.
        others[0].office.answer("c", 4);
        stage.pass(1).await;
        assert_eq!(subscriptions(&first.asked), 1);
        assert_eq!(
            asked(),
            [vec![], vec![5], vec![5]],
            "it is the next one's turn"
        );
        others[2].act(&stage, 6);
        others[1].office.answer("d", 6);
        stage.pass(1).await;
        assert_eq!(subscriptions(&others[2].asked), 1);
    });
}

/// The master that was killed before this one may be away still.
#[test]
fn a_master_that_is_away_does_not_keep_the_driver_from_hearing_of_the_next_leader() {
    rehearse_network(|network| async move {
        let stage = Stage::new(network);
        let _first = Other::at(&stage, "a", Some(5));
        let next = Other::at(&stage, "c", Some(6));
        drive(&stage, &["a", "b", "c"]);
        stage.settle().await;
        assert_eq!(next.office.terms(), [5]);
        next.office.answer("c", 6);
        // A pause as when any master is lost, and no more: below half a second.
        let half = Duration::from_millis(500);
        stage.framework.clock().advance(half).await;
        assert_eq!(subscriptions(&next.asked), 1);
    });
}
