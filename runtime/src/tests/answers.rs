//! Replies to a peer's asks: each is sent when it is ready, independently of others on the link.

use serde::{Deserializer, Serializer};

use super::*;
use crate::testing::memory::Network;
use crate::testing::simulate_network;

/// Returns this number later.
#[derive(Debug, Serialize, Deserialize)]
struct Later(u32);

/// Answers the delayed asks: the newest first, except this many of the oldest.
#[derive(Debug, Serialize, Deserialize)]
struct Now(usize);

/// Returns a value that can be encoded, or one whose encoding panics.
#[derive(Debug, Serialize, Deserialize)]
struct Say(bool);

/// Can be encoded if it is true.
#[derive(Debug, PartialEq)]
struct Word(bool);

impl Serialize for Word {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        assert!(self.0, "cannot be written");
        serializer.serialize_bool(self.0)
    }
}

impl<'de> Deserialize<'de> for Word {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        bool::deserialize(deserializer).map(Word)
    }
}

remote! {
    Later = "test/later" v1 -> u32;
    Now = "test/now" v1;
    Say = "test/say" v1 -> Word;
}

#[derive(Default)]
struct Slow(Vec<(u32, Promise<u32>)>);

impl Actor for Slow {
    type Context = Context<Self>;
}

impl Process for Slow {
    fn accepts(handlers: &mut RemoteHandlers<Self>) {
        handlers.accept::<Later>(&Role::ALL);
        handlers.accept::<Now>(&Role::ALL);
        handlers.accept::<Say>(&Role::ALL);
    }
}

impl Handler<Later> for Slow {
    type Result = Reply<u32>;

    fn handle(&mut self, Later(number): Later, _: &mut Context<Self>) -> Reply<u32> {
        let (promise, reply) = promise();
        self.0.push((number, promise));
        reply
    }
}

impl Handler<Now> for Slow {
    type Result = ();

    fn handle(&mut self, Now(kept): Now, _: &mut Context<Self>) {
        for (number, promise) in self.0.drain(kept..).rev() {
            promise.answer(number);
        }
    }
}

impl Handler<Say> for Slow {
    type Result = MessageResult<Say>;

    fn handle(&mut self, Say(right): Say, _: &mut Context<Self>) -> Self::Result {
        MessageResult(Word(right))
    }
}

async fn slow(network: &Network) -> (Node, Node, Pid) {
    let caller = network.node("caller", Role::Agent, &[Role::Master]);
    let home = network.node("home", Role::Master, &[Role::Agent]);
    home.spawn("slow", Slow::default()).unwrap();
    let pid = caller.find("home", "slow", SECOND).await.unwrap();
    (caller, home, pid)
}

#[test]
fn unanswered_ask_delays_no_other_reply() {
    simulate_network(|network| async move {
        let (caller, _home, pid) = slow(&network).await;
        for round in 0..3 {
            let never = caller.ask(&pid, Later(0), SECOND);
            let asked: Vec<_> = (1..=300)
                .map(|number| caller.ask(&pid, Later(number), SECOND))
                .collect();
            caller.tell(&pid, Now(round + 1)).unwrap();
            for (asked, number) in asked.into_iter().zip(1..) {
                assert_eq!(asked.await, Ok(number));
            }
            assert_eq!(never.await, Err(AskError::Late { after: SECOND }));
        }
        // No reply is pending, and then one is again.
        caller.tell(&pid, Now(0)).unwrap();
        caller.clock().sleep(SECOND).await;
        let asked = caller.ask(&pid, Later(7), SECOND);
        caller.tell(&pid, Now(0)).unwrap();
        assert_eq!(asked.await, Ok(7));
    });
}

#[test]
fn unencodable_reply_delays_no_other() {
    simulate_network(|network| async move {
        let (caller, _home, pid) = slow(&network).await;
        let before = caller.ask(&pid, Later(1), SECOND);
        let wrong = caller.ask(&pid, Say(false), SECOND);
        let right = caller.ask(&pid, Say(true), SECOND);
        caller.tell(&pid, Now(0)).unwrap();
        assert_eq!((before.await, right.await), (Ok(1), Ok(Word(true))));
        assert!(wrong.await.is_err());
        assert_eq!(caller.ask(&pid, Say(true), SECOND).await, Ok(Word(true)));
    });
}
