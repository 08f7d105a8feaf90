//! The stories of seeking: what a master that does not lead may know, and what it may say.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::{Arc, Mutex};

use runtime::memory::Network;
use runtime::prelude::*;
use runtime::rehearsal::rehearse_network;
use runtime::{Promise, Reply, Role, promise};

use super::*;

const PATIENCE: Duration = Duration::from_secs(10);

struct Master;

impl Actor for Master {
    type Context = Context<Self>;
}

impl Process for Master {}

type Waiting = (u64, Promise<LeaderAnnounced>);

/// Says who leads when the story does, and what it was asked.
#[derive(Clone, Default)]
struct Knows(Arc<Mutex<(VecDeque<Waiting>, Vec<u64>)>>);

struct Office(Knows, Vec<LeaderAnnounced>);

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
        let mut knows = self.0.0.lock().unwrap();
        knows.1.push(term);
        match self.1.iter().find(|said| said.term > term) {
            Some(said) => promise.answer(said.clone()),
            None => knows.0.push_back((term, promise)),
        }
        reply
    }
}

impl Knows {
    /// Answers the oldest question that waits.
    fn say(&self, address: &str, term: u64) {
        let (_, promise) = self.0.lock().unwrap().0.pop_front().unwrap();
        promise.answer(leader(address, term));
    }

    /// The terms that it was asked with.
    fn asked(&self) -> Vec<u64> {
        self.0.lock().unwrap().1.clone()
    }
}

fn leader(address: &str, term: u64) -> LeaderAnnounced {
    let address = address.to_owned();
    LeaderAnnounced { address, term }
}

struct Stage {
    network: Network,
    seeker: Node,
}

impl Stage {
    fn clock(&self) -> &runtime::Clock {
        self.seeker.clock()
    }

    /// A master that does not lead, and says this of who does.
    fn follower(&self, address: &str, says: &[(&str, u64)]) -> Knows {
        let node = self
            .network
            .node(address, Role::Master, &[Role::Framework, Role::Master]);
        let knows = Knows::default();
        let says = says.iter().map(|(at, term)| leader(at, *term)).collect();
        node.spawn("office", Office(knows.clone(), says)).unwrap();
        knows
    }

    fn leader(&self, address: &str) -> Pid {
        let node = self.network.node(address, Role::Master, &[Role::Framework]);
        node.spawn("master", Master).unwrap().pid()
    }

    fn seek(
        &self,
        masters: &[&str],
    ) -> impl Future<Output = Result<Sought, AskError>> + Send + use<> {
        let masters = masters.iter().map(|&master| master.to_owned()).collect();
        find_leader(&self.seeker, masters, PATIENCE, 1.0)
    }
}

fn stage<T, F: Future<Output = T>>(story: impl FnOnce(Stage) -> F) -> T {
    rehearse_network(|network| {
        let seeker = network.node("seeker", Role::Framework, &[Role::Master]);
        story(Stage { network, seeker })
    })
}

/// Found at this address by the word of the one at this place.
fn at(place: usize, address: &str, pid: Pid) -> Result<Sought, AskError> {
    let address = address.to_owned();
    Ok(Sought {
        place,
        address,
        pid,
    })
}

#[test]
fn one_follower_leads_to_a_master_that_nobody_has_named() {
    stage(|stage| async move {
        let follower = stage.follower("b", &[("a", 5)]);
        let master = stage.leader("a");
        let begun = stage.clock().now();
        assert_eq!(stage.seek(&["b"]).await, at(0, "a", master));
        assert_eq!(stage.clock().now(), begun, "it costs no wait");
        assert_eq!(follower.asked(), [0]);
    });
}

#[test]
fn a_follower_that_knows_no_leader_says_so_when_it_does_and_no_later_than_the_patience() {
    stage(|stage| async move {
        let follower = stage.follower("b", &[]);
        let seeking = stage.seek(&["b"]);
        let elected = async {
            stage.clock().sleep(Duration::from_secs(3)).await;
            let master = stage.leader("a");
            follower.say("a", 6);
            master
        };
        let begun = stage.clock().now();
        let (found, master) = futures_util::future::join(seeking, elected).await;
        assert_eq!(found, at(0, "a", master));
        let took = stage.clock().now() - begun;
        assert_eq!(
            took,
            Duration::from_secs(3) + SPREAD_MAX,
            "with the chance of 1"
        );

        let _silent = stage.follower("c", &[]);
        let begun = stage.clock().now();
        let found = stage.seek(&["c"]).await;
        assert_eq!(found, Err(AskError::Late { after: PATIENCE }));
        assert_eq!(stage.clock().now() - begun, PATIENCE);
    });
}

#[test]
fn a_follower_without_a_leader_holds_up_nobody_who_is_given_another_master() {
    stage(|stage| async move {
        let _silent = stage.follower("b", &[]);
        let master = stage.leader("a");
        let begun = stage.clock().now();
        assert_eq!(stage.seek(&["b", "a"]).await, at(1, "a", master));
        assert_eq!(stage.clock().now(), begun);
    });
}

#[test]
fn who_is_said_to_lead_and_is_dead_is_followed_by_the_next_of_whom_the_same_follower_tells() {
    stage(|stage| async move {
        let follower = stage.follower("b", &[("a", 5)]);
        let seeking = stage.seek(&["b"]);
        let elected = async {
            stage.clock().sleep(Duration::from_secs(2)).await;
            let master = stage.leader("c");
            follower.say("c", 6);
            master
        };
        let begun = stage.clock().now();
        let (found, master) = futures_util::future::join(seeking, elected).await;
        assert_eq!(found, at(0, "c", master));
        assert_eq!(follower.asked(), [0, 5]);
        let took = stage.clock().now() - begun;
        assert!(took <= Duration::from_secs(2) + SPREAD_MAX, "{took:?}");
    });
}

#[test]
fn who_is_said_to_lead_and_has_not_begun_to_is_waited_for() {
    stage(|stage| async move {
        let _follower = stage.follower("b", &[("a", 5)]);
        let node = stage.network.node("a", Role::Master, &[Role::Framework]);
        let begins = async {
            stage.clock().sleep(Duration::from_millis(300)).await;
            node.spawn("master", Master).unwrap().pid()
        };
        let begun = stage.clock().now();
        let (found, master) = futures_util::future::join(stage.seek(&["b"]), begins).await;
        assert_eq!(found, at(0, "a", master));
        let took = stage.clock().now() - begun;
        assert!(took <= Duration::from_millis(500), "{took:?}");
    });
}

#[test]
fn two_followers_that_believe_in_each_other_keep_nobody_longer_than_the_patience() {
    stage(|stage| async move {
        let one = stage.follower("b", &[("c", 5)]);
        let other = stage.follower("c", &[("b", 4)]);
        let begun = stage.clock().now();
        let found = stage.seek(&["b", "c"]).await;
        assert_eq!(found, Err(AskError::Late { after: PATIENCE }));
        assert_eq!(stage.clock().now() - begun, PATIENCE);
        assert_eq!((one.asked(), other.asked()), (vec![0, 5], vec![0, 4]));
    });
}

#[test]
fn what_a_wrong_follower_says_leads_to_no_other_role_and_no_further_than_a_few_places() {
    stage(|stage| async move {
        let begun = stage.clock().now();
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
            let liar = stage.follower(&name, &[(wrong, 5)]);
            let found = stage.seek(&[&name]).await;
            assert_eq!(found, Err(AskError::Gone), "{wrong:?}");
            assert_eq!(liar.asked(), [0]);
        }
        assert_eq!(stage.clock().now(), begun, "at once");
        let many: Vec<_> = (1..100).map(|term| ("nobody", term)).collect();
        let liar = stage.follower("liar", &many);
        assert_eq!(stage.seek(&["liar"]).await, Err(AskError::Gone));
        assert_eq!(liar.asked().len(), 9);
        let agent = stage.network.node("x", Role::Agent, &[Role::Framework]);
        agent.spawn("other", Master).unwrap();
        let _liar = stage.follower("last", &[("x", 5)]);
        let found = stage.seek(&["last"]).await;
        assert!(found.is_err(), "{found:?}");
    });
}

#[test]
fn a_place_is_a_host_and_a_port_of_bounded_length() {
    for right in ["10.0.0.1:5050", "node-1.example:5050", "[::1]:5050", "a"] {
        assert!(leader(right, 1).names_a_place(), "{right}");
    }
    assert!(leader(&"a".repeat(PLACE_MAX), 1).names_a_place());
    assert!(!leader(&"a".repeat(PLACE_MAX + 1), 1).names_a_place());
}

#[test]
fn an_answer_at_once_is_followed_at_once_and_one_that_many_waited_for_is_spread() {
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
