//! Answers to questions of a peer: each goes when it is there, whatever becomes of the others on its link.

use serde::{Deserializer, Serializer};

use super::*;
use crate::memory::Network;
use crate::rehearsal::rehearse_network;

/// Say this number, later.
#[derive(Debug, Serialize, Deserialize)]
struct Later(u32);

/// Say now what was to be said later: the newest first, and all but so many of the oldest.
#[derive(Debug, Serialize, Deserialize)]
struct Now(usize);

/// Say something that can be written, or something that panics when it is.
#[derive(Debug, Serialize, Deserialize)]
struct Say(bool);

/// What can be written if it is true.
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
    fn hears(ears: &mut Ears<Self>) {
        ears.hear::<Later>(&Role::ALL);
        ears.hear::<Now>(&Role::ALL);
        ears.hear::<Say>(&Role::ALL);
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
    let asker = network.node("asker", Role::Agent, &[Role::Master]);
    let home = network.node("home", Role::Master, &[Role::Agent]);
    home.spawn("slow", Slow::default()).unwrap();
    let pid = asker.find("home", "slow", SECOND).await.unwrap();
    (asker, home, pid)
}

#[test]
fn what_is_never_answered_holds_up_no_other_answer_of_its_link() {
    rehearse_network(|network| async move {
        let (asker, _home, pid) = slow(&network).await;
        for round in 0..3 {
            let never = asker.ask(&pid, Later(0), SECOND);
            let asked: Vec<_> = (1..=300)
                .map(|number| asker.ask(&pid, Later(number), SECOND))
                .collect();
            asker.tell(&pid, Now(round + 1)).unwrap();
            for (asked, number) in asked.into_iter().zip(1..) {
                assert_eq!(asked.await, Ok(number));
            }
            assert_eq!(never.await, Err(AskError::Late { after: SECOND }));
        }
        // Nothing is waited for, and then something is again.
        asker.tell(&pid, Now(0)).unwrap();
        asker.clock().sleep(SECOND).await;
        let asked = asker.ask(&pid, Later(7), SECOND);
        asker.tell(&pid, Now(0)).unwrap();
        assert_eq!(asked.await, Ok(7));
    });
}

#[test]
fn an_answer_that_cannot_be_written_holds_up_no_other() {
    rehearse_network(|network| async move {
        let (asker, _home, pid) = slow(&network).await;
        let before = asker.ask(&pid, Later(1), SECOND);
        let wrong = asker.ask(&pid, Say(false), SECOND);
        let right = asker.ask(&pid, Say(true), SECOND);
        asker.tell(&pid, Now(0)).unwrap();
        assert_eq!((before.await, right.await), (Ok(1), Ok(Word(true))));
        assert!(wrong.await.is_err());
        assert_eq!(asker.ask(&pid, Say(true), SECOND).await, Ok(Word(true)));
    });
}
