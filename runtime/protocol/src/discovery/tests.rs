//! Tests of leader discovery.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::{Arc, Mutex};

use runtime::prelude::*;
use runtime::testing::memory::Network;
use runtime::testing::simulate_network;
use runtime::{Promise, Reply, Role, promise};

use super::*;

const PATIENCE: Duration = Duration::from_secs(10);

struct Master;

impl Actor for Master {
    type Context = Context<Self>;
}

impl Process for Master {}

type Waiting = (u64, Promise<LeaderAnnounced>);

/// An `office` that names leaders on the test's command and records its requests.
#[derive(Clone, Default)]
struct LeaderRequests(Arc<Mutex<(VecDeque<Waiting>, Vec<u64>)>>);

struct Office(LeaderRequests, Vec<LeaderAnnounced>);

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
        let mut requests = self.0.0.lock().unwrap();
        requests.1.push(term);
        match self.1.iter().find(|announced| announced.term > term) {
            Some(announced) => promise.answer(announced.clone()),
            None => requests.0.push_back((term, promise)),
        }
        reply
    }
}

impl LeaderRequests {
    /// Answers the oldest waiting request.
    fn answer(&self, address: &str, term: u64) {
        let (_, promise) = self.0.lock().unwrap().0.pop_front().unwrap();
        promise.answer(leader(address, term));
    }

    /// The terms of all requests.
    fn terms(&self) -> Vec<u64> {
        self.0.lock().unwrap().1.clone()
    }
}

fn leader(address: &str, term: u64) -> LeaderAnnounced {
    let address = address.to_owned();
    LeaderAnnounced { address, term }
}

struct Fixture {
    network: Network,
    client: Node,
}

impl Fixture {
    fn clock(&self) -> &runtime::Clock {
        self.client.clock()
    }

    /// A master that does not lead and names these leaders.
    fn follower(&self, address: &str, leaders: &[(&str, u64)]) -> LeaderRequests {
        let node = self
            .network
            .node(address, Role::Master, &[Role::Framework, Role::Master]);
        let requests = LeaderRequests::default();
        let leaders = leaders.iter().map(|(at, term)| leader(at, *term)).collect();
        node.spawn("office", Office(requests.clone(), leaders))
            .unwrap();
        requests
    }

    fn leader(&self, address: &str) -> Pid {
        let node = self.network.node(address, Role::Master, &[Role::Framework]);
        node.spawn("master", Master).unwrap().pid()
    }

    fn search(
        &self,
        masters: &[&str],
    ) -> impl Future<Output = Result<Discovered, AskError>> + Send + use<> {
        let masters = masters.iter().map(|&master| master.to_owned()).collect();
        find_leader(&self.client, masters, PATIENCE, 1.0)
    }
}

fn fixture<T, F: Future<Output = T>>(story: impl FnOnce(Fixture) -> F) -> T {
    simulate_network(|network| {
        let client = network.node("client", Role::Framework, &[Role::Master]);
        story(Fixture { network, client })
    })
}

/// Found at this address through the master with this index.
fn at(place: usize, address: &str, pid: Pid) -> Result<Discovered, AskError> {
    let address = address.to_owned();
    Ok(Discovered {
        place,
        address,
        pid,
    })
}

#[test]
fn follower_names_an_unlisted_leader() {
    fixture(|fixture| async move {
        let follower = fixture.follower("b", &[("a", 5)]);
        let master = fixture.leader("a");
        let begun = fixture.clock().now();
        assert_eq!(fixture.search(&["b"]).await, at(0, "a", master));
        assert_eq!(fixture.clock().now(), begun, "it costs no wait");
        assert_eq!(follower.terms(), [0]);
    });
}

#[test]
fn follower_without_leader_answers_late_or_times_out() {
    fixture(|fixture| async move {
        let follower = fixture.follower("b", &[]);
        let seeking = fixture.search(&["b"]);
        let elected = async {
            fixture.clock().sleep(Duration::from_secs(3)).await;
            let master = fixture.leader("a");
            follower.answer("a", 6);
            master
        };
        let begun = fixture.clock().now();
        let (found, master) = futures_util::future::join(seeking, elected).await;
        assert_eq!(found, at(0, "a", master));
        let took = fixture.clock().now() - begun;
        assert_eq!(
            took,
            Duration::from_secs(3) + SPREAD_MAX,
            "with the chance of 1"
        );

        let _silent = fixture.follower("c", &[]);
        let begun = fixture.clock().now();
        let found = fixture.search(&["c"]).await;
        assert_eq!(found, Err(AskError::Late { after: PATIENCE }));
        assert_eq!(fixture.clock().now() - begun, PATIENCE);
    });
}

#[test]
fn waiting_follower_does_not_delay_other_addresses() {
    fixture(|fixture| async move {
        let _silent = fixture.follower("b", &[]);
        let master = fixture.leader("a");
        let begun = fixture.clock().now();
        assert_eq!(fixture.search(&["b", "a"]).await, at(1, "a", master));
        assert_eq!(fixture.clock().now(), begun);
    });
}

#[test]
fn dead_leader_is_replaced_by_the_next_referral() {
    fixture(|fixture| async move {
        let follower = fixture.follower("b", &[("a", 5)]);
        let seeking = fixture.search(&["b"]);
        let elected = async {
            fixture.clock().sleep(Duration::from_secs(2)).await;
            let master = fixture.leader("c");
            follower.answer("c", 6);
            master
        };
        let begun = fixture.clock().now();
        let (found, master) = futures_util::future::join(seeking, elected).await;
        assert_eq!(found, at(0, "c", master));
        assert_eq!(follower.terms(), [0, 5]);
        let took = fixture.clock().now() - begun;
        assert!(took <= Duration::from_secs(2) + SPREAD_MAX, "{took:?}");
    });
}

#[test]
fn named_leader_may_start_later() {
    fixture(|fixture| async move {
        let _follower = fixture.follower("b", &[("a", 5)]);
        let node = fixture.network.node("a", Role::Master, &[Role::Framework]);
        let begins = async {
            fixture.clock().sleep(Duration::from_millis(300)).await;
            node.spawn("master", Master).unwrap().pid()
        };
        let begun = fixture.clock().now();
        let (found, master) = futures_util::future::join(fixture.search(&["b"]), begins).await;
        assert_eq!(found, at(0, "a", master));
        let took = fixture.clock().now() - begun;
        assert!(took <= Duration::from_millis(500), "{took:?}");
    });
}

// Covers W6.
#[test]
fn mutual_referrals_end_by_timeout() {
    fixture(|fixture| async move {
        let one = fixture.follower("b", &[("c", 5)]);
        let other = fixture.follower("c", &[("b", 4)]);
        let begun = fixture.clock().now();
        let found = fixture.search(&["b", "c"]).await;
        assert_eq!(found, Err(AskError::Late { after: PATIENCE }));
        assert_eq!(fixture.clock().now() - begun, PATIENCE);
        assert_eq!((one.terms(), other.terms()), (vec![0, 5], vec![0, 4]));
    });
}

// Covers W6.
#[test]
fn false_referrals_are_bounded_and_reach_only_masters() {
    fixture(|fixture| async move {
        let begun = fixture.clock().now();
        let wrong = [
            "agent@a",
            "unix:/run/x",
            "unix:5050",
            "",
            "a b",
            "a,b",
            "a\n",
        ];
        for (nth, wrong) in wrong.into_iter().enumerate() {
            let name = format!("liar-{nth}");
            let liar = fixture.follower(&name, &[(wrong, 5)]);
            let found = fixture.search(&[&name]).await;
            assert_eq!(found, Err(AskError::Gone), "{wrong:?}");
            assert_eq!(liar.terms(), [0]);
        }
        assert_eq!(fixture.clock().now(), begun, "at once");
        let many: Vec<_> = (1..100).map(|term| ("nobody", term)).collect();
        let liar = fixture.follower("liar", &many);
        assert_eq!(fixture.search(&["liar"]).await, Err(AskError::Gone));
        assert_eq!(liar.terms().len(), 9);
        let agent = fixture.network.node("x", Role::Agent, &[Role::Framework]);
        agent.spawn("other", Master).unwrap();
        let _liar = fixture.follower("last", &[("x", 5)]);
        let found = fixture.search(&["last"]).await;
        assert!(found.is_err(), "{found:?}");
    });
}

#[test]
fn dialable_addresses_are_host_and_port() {
    for right in ["10.0.0.1:5050", "node-1.example:5050", "[::1]:5050", "a"] {
        assert!(leader(right, 1).has_dialable_address(), "{right}");
    }
    assert!(leader(&"a".repeat(ADDRESS_BYTES_MAX), 1).has_dialable_address());
    assert!(!leader(&"a".repeat(ADDRESS_BYTES_MAX + 1), 1).has_dialable_address());
}

#[test]
fn only_late_answers_get_jitter() {
    let seconds = Duration::from_secs;
    assert_eq!(spread(Duration::ZERO, 1.0), Duration::ZERO);
    assert_eq!(
        spread(Duration::from_millis(10), 0.5),
        Duration::from_millis(5)
    );
    assert_eq!(spread(seconds(100), 0.0), Duration::ZERO);
    assert_eq!(spread(seconds(100), 0.25), SPREAD_MAX / 4);
    assert_eq!(spread(seconds(100), 7.0), SPREAD_MAX);
}
