//! Several masters: which one the driver obeys, and how it learns of the next leader.

use std::collections::VecDeque;

use protocol::message::registration::{AwaitLeader, LeaderAnnounced};

use super::*;

/// The term known to a waiting client, and its reply.
type Waiting = (u64, Promise<LeaderAnnounced>);

/// Pending requests for the leader at a follower.
#[derive(Clone, Default)]
pub struct LeaderRequests(Arc<Mutex<VecDeque<Waiting>>>);

struct Office(LeaderRequests);

impl Actor for Office {
    type Context = Context<Self>;
}

impl Process for Office {
    fn accepts(handlers: &mut RemoteHandlers<Self>) {
        handlers.accept::<AwaitLeader>(&[Role::Framework]);
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

impl LeaderRequests {
    pub fn terms(&self) -> Vec<u64> {
        let waiting = self.0.lock().unwrap();
        waiting.iter().map(|(term, _)| *term).collect()
    }

    /// Answers the oldest request.
    pub fn answer(&self, address: &str, term: u64) {
        let (_, promise) = self.0.lock().unwrap().pop_front().unwrap();
        let address = address.to_owned();
        promise.answer(LeaderAnnounced { address, term });
    }
}

/// Another master, with its recorded requests and its office.
pub struct OtherMaster {
    pub node: Node,
    pub requests: Log,
    pub office: LeaderRequests,
}

impl OtherMaster {
    /// A group member with an office; leads under `term` if set.
    pub fn at(fixture: &Fixture, address: &str, term: Option<u64>) -> Self {
        let node = fixture
            .network
            .node(address, Role::Master, &[Role::Framework]);
        let other = Self {
            node,
            requests: Log::default(),
            office: LeaderRequests::default(),
        };
        let office = Office(other.office.clone());
        other.node.spawn("office", office).unwrap();
        if let Some(term) = term {
            other.act(fixture, term);
        }
        other
    }

    pub fn act(&self, fixture: &Fixture, term: u64) {
        let actor = Master {
            requests: self.requests.clone(),
            incoming: DedupReceiver::default(),
            refuse: None,
            asked_later: false,
            term,
            network: fixture.network.clone(),
            scheduler: fixture.scheduler.clone(),
        };
        self.node.spawn("master", actor).unwrap();
    }
}

pub fn drive(fixture: &Fixture, masters: &[&str]) -> DriverRef {
    SchedulerDriver::new(masters.iter().copied(), FrameworkInfo::new("user", "test"))
        .start(
            &fixture.framework,
            RecordingScheduler(fixture.callbacks.clone()),
        )
        .unwrap()
}

/// Number of recorded subscriptions.
pub fn subscriptions(log: &Log) -> usize {
    let lines = log.lock().unwrap();
    let asks = |line: &&String| line.starts_with("subscribe");
    lines.iter().filter(asks).count()
}

// Covers S131.
#[test]
fn deposed_master_is_ignored_and_informed() {
    simulate_driver(|fixture| async move {
        let old = OtherMaster::at(&fixture, "old", Some(5));
        let next = OtherMaster::at(&fixture, "next", Some(6));
        let driver = drive(&fixture, &["old", "next"]);
        fixture.settle().await;
        assert_eq!(next.office.terms(), [5]);
        next.office.answer("next", 6);
        fixture.pass(1).await;
        assert_eq!(subscriptions(&next.requests), 1);
        take(&fixture.callbacks);

        let scheduler = fixture.scheduler.lock().unwrap().clone().unwrap();
        let offers = || OffersMade { offers: Vec::new() };
        let failed = FrameworkFailed {
            message: "a rumour".to_owned(),
        };
        old.node.tell(&scheduler, offers()).unwrap();
        old.node.tell(&scheduler, failed).unwrap();
        fixture.settle().await;
        receives(&fixture.callbacks, "");
        let callbacks: Vec<_> = take(&old.requests)
            .into_iter()
            .filter(|line| line.starts_with("term"))
            .collect();
        assert_eq!(callbacks, ["term seen 6"], "once");

        next.node.tell(&scheduler, offers()).unwrap();
        driver.kill(TaskId::new("t").unwrap(), None).unwrap();
        fixture.settle().await;
        receives(&fixture.callbacks, "0 offers");
        assert!(take(&next.requests).contains(&"kill t".to_owned()));
        assert!(!take(&old.requests).contains(&"kill t".to_owned()));
    });
}

/// S132: the deposed master may not have passed on an acknowledged kill, so it is repeated to the
/// next.
// Covers S132.
#[test]
fn kill_taken_by_a_deposed_master_is_resent() {
    simulate_driver(|fixture| async move {
        let old = OtherMaster::at(&fixture, "old", Some(5));
        let next = OtherMaster::at(&fixture, "next", Some(6));
        let driver = drive(&fixture, &["old", "next"]);
        fixture.settle().await;
        driver
            .launch(vec![OfferId::new("o").unwrap()], vec![task()])
            .unwrap();
        driver.kill(TaskId::new("t").unwrap(), None).unwrap();
        fixture.settle().await;
        assert!(take(&old.requests).contains(&"kill t".to_owned()));
        next.office.answer("next", 6);
        fixture.pass(1).await;
        assert!(take(&next.requests).contains(&"kill t".to_owned()));
    });
}

#[test]
fn two_watchers_follow_only_later_terms() {
    simulate_driver(|fixture| async move {
        let first = OtherMaster::at(&fixture, "a", Some(5));
        let others = ["b", "c", "d"].map(|address| OtherMaster::at(&fixture, address, None));
        drive(&fixture, &["a", "b", "c", "d"]);
        fixture.settle().await;
        let requests = || Vec::from_iter(others.iter().map(|other| other.office.terms()));
        assert_eq!(requests(), [vec![5], vec![5], vec![]]);
        assert!(first.office.terms().is_empty());
        // A master that was suspended names an earlier leader.
        others[0].office.answer("c", 4);
        fixture.pass(1).await;
        assert_eq!(subscriptions(&first.requests), 1);
        assert_eq!(
            requests(),
            [vec![], vec![5], vec![5]],
            "it is the next one's turn"
        );
        others[2].act(&fixture, 6);
        others[1].office.answer("d", 6);
        fixture.pass(1).await;
        assert_eq!(subscriptions(&others[2].requests), 1);
    });
}

/// A master that was killed earlier may still be down.
#[test]
fn absent_master_does_not_hide_the_next_leader() {
    simulate_driver(|fixture| async move {
        let _first = OtherMaster::at(&fixture, "a", Some(5));
        let next = OtherMaster::at(&fixture, "c", Some(6));
        drive(&fixture, &["a", "b", "c"]);
        fixture.settle().await;
        assert_eq!(next.office.terms(), [5]);
        next.office.answer("c", 6);
        // At most half a second, the pause after every lost master.
        let half = Duration::from_millis(500);
        fixture.framework.clock().advance(half).await;
        assert_eq!(subscriptions(&next.requests), 1);
    });
}
