//! The guarantees of message delivery (SPEC 6.1: send, Delivery): in order per pair, at most once,
//! and no silent loss while a link stands.

use std::collections::VecDeque;

use futures_util::FutureExt;
use proptest::prelude::*;

use crate::observe::tap::{Probe, Seen};
use crate::testing::memory::Network;
use crate::testing::simulate_network;
use crate::tests::*;

/// A kind of message that must keep its place.
#[derive(Clone, Copy, Debug)]
enum Step {
    Tell,
    Ask,
    Load(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => Just(Step::Tell),
        4 => Just(Step::Ask),
        2 => (0..2_000_usize).prop_map(Step::Load),
        1 => (262_000..300_000_usize).prop_map(Step::Load),
    ];
    prop::collection::vec(step, 1..60)
}

#[derive(Clone, Copy, Debug)]
enum Route {
    Handle,
    Pid,
    Link,
}

/// Sends everything at once, optionally under taps; returns the handled and the expected messages.
fn say(steps: &[Step], route: Route, tapped: bool) -> (Vec<String>, Vec<String>) {
    simulate_network(|network| async move {
        let here = network.node("here", Role::Master, &Role::ALL);
        let there = network.node("there", Role::Agent, &Role::ALL);
        let diary = Diary::default();
        let handle = there.spawn("diarist", Diarist::new(&diary)).unwrap();
        let far = here.find("there", "diarist", SECOND).await.unwrap();
        let (pid, caller) = match route {
            Route::Link => (far, &here),
            _ => (handle.pid(), &there),
        };
        let seen = tapped.then(|| {
            let probe = Probe::on(&there);
            here.set_tap(probe.clone());
            [
                probe.observe::<Note>(|_| true),
                probe.observe::<Count>(|_| true),
            ]
        });
        let (mut expected, mut asked) = (Vec::new(), Vec::new());
        for (number, step) in (0..).zip(steps) {
            let by_handle = matches!(route, Route::Handle);
            match *step {
                Step::Tell if by_handle => handle.tell(Note(number)).unwrap(),
                Step::Tell => caller.tell(&pid, Note(number)).unwrap(),
                Step::Ask if by_handle => asked.push(handle.ask(Count(number), SECOND)),
                Step::Ask => asked.push(caller.ask(&pid, Count(number), SECOND)),
                Step::Load(bytes) if by_handle => handle.tell(Load(vec![1; bytes])).unwrap(),
                Step::Load(bytes) => caller.tell(&pid, Load(vec![1; bytes])).unwrap(),
            }
            expected.push(match step {
                Step::Load(bytes) => format!("load {bytes}"),
                _ => number.to_string(),
            });
        }
        let places = (0..)
            .zip(steps)
            .filter(|(_, step)| matches!(step, Step::Ask));
        for (asked, (place, _)) in asked.into_iter().zip(places) {
            assert_eq!(asked.await, Ok(place + 1));
        }
        there.clock().settle().await;
        if let Some(seen) = seen {
            let sides = if matches!(route, Route::Link) { 2 } else { 1 };
            let small = steps.iter().filter(|step| !matches!(step, Step::Load(_)));
            let seen: u64 = seen.iter().map(Seen::count).sum();
            assert_eq!(seen, sides * small.count() as u64);
        }
        (read(&diary), expected)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    // Covers 6.1 Delivery.
    #[test]
    fn one_senders_messages_arrive_once_in_order(
        steps in steps(),
        route in prop_oneof![Just(Route::Handle), Just(Route::Pid), Just(Route::Link)],
        tapped: bool,
    ) {
        let (heard, expected) = say(&steps, route, tapped);
        prop_assert_eq!(heard, expected);
    }
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Tell,
    Settle,
    Sever,
    /// The speaker or the other node dials, from its own address or a second one, so that dials
    /// cross.
    Connect {
        by_us: bool,
        again: bool,
    },
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        8 => Just(Event::Tell),
        2 => Just(Event::Settle),
        1 => Just(Event::Sever),
        3 => any::<(bool, bool)>().prop_map(|(by_us, again)| Event::Connect { by_us, again }),
    ];
    prop::collection::vec(event, 1..80)
}

/// Sends over a link that breaks and returns. Returns the handled messages, and the sent ones in
/// parts: a new part begins whenever the speaker is notified of a lost link. The end of a part may
/// be missing, but no message that had time to arrive.
async fn speak(network: &Network, events: &[Event]) -> (Vec<u32>, Vec<Vec<u32>>) {
    let here = network.node("here", Role::Master, &Role::ALL);
    let there = network.node("there", Role::Agent, &Role::ALL);
    let diary = Diary::default();
    there.spawn("diarist", Diarist::new(&diary)).unwrap();
    let pid = here.find("there", "diarist", SECOND).await.unwrap();
    network.join(&here, "here, again");
    network.join(&there, "there, again");
    let addresses =
        ["here", "here, again"].map(|one| ["there", "there, again"].map(|other| (one, other)));
    let mut lost = Box::pin(here.ended(&pid));
    let mut said: Vec<Vec<u32>> = vec![vec![]];
    let mut arrived = vec![0]; // The minimum number handled of each part.
    for (number, event) in (0..).zip(events) {
        match event {
            Event::Tell => {
                if here.tell(&pid, Note(number)).is_ok() {
                    said.last_mut().unwrap().push(number);
                }
            }
            Event::Settle => {
                here.clock().settle().await;
                *arrived.last_mut().unwrap() = said.last().map_or(0, Vec::len);
            }
            Event::Sever => {
                for (one, other) in addresses.into_iter().flatten() {
                    network.sever(one, other);
                    network.heal(one, other);
                }
            }
            Event::Connect { by_us, again } => {
                // Fails only if they are already linked over a connection that stays.
                let connected = match (by_us, again) {
                    (true, false) => here.connect("there").await,
                    (true, true) => here.connect("there, again").await,
                    (false, false) => there.connect("here").await,
                    (false, true) => there.connect("here, again").await,
                };
                assert!(connected.is_ok() || !here.peers().is_empty());
            }
        }
        if (&mut lost).now_or_never().is_some() {
            said.push(vec![]);
            arrived.push(0);
            lost = Box::pin(here.ended(&pid));
        }
    }
    here.clock().settle().await;
    *arrived.last_mut().unwrap() = said.last().map_or(0, Vec::len);
    let heard = read(&diary);
    let heard = heard.iter().map(|line| line.parse().unwrap());
    let heard = heard.collect::<Vec<u32>>();
    for (part, least) in said.iter().zip(arrived) {
        let missing: Vec<_> = part[..least]
            .iter()
            .filter(|number| !heard.contains(number))
            .collect();
        assert!(missing.is_empty(), "lost without a word: {missing:?}");
    }
    (heard, said)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    // Covers 6.1 Delivery.
    #[test]
    fn broken_links_deliver_at_most_once_and_report_losses(events in events()) {
        let (heard, said) = simulate_network(|network| async move { speak(&network, &events).await });
        let mut heard: VecDeque<u32> = heard.into();
        for part in said {
            // A prefix of each part was handled.
            for number in part {
                if heard.front() == Some(&number) {
                    heard.pop_front();
                } else {
                    break;
                }
            }
        }
        prop_assert!(heard.is_empty(), "out of order, twice or with a gap: {:?}", heard);
    }
}

/// The older version of the ask.
#[derive(Debug, Serialize, Deserialize)]
struct OldSum(u8, u8);

/// The current version.
#[derive(Debug, Serialize, Deserialize)]
struct Sum(Vec<u64>);

/// A version that no node accepts yet.
#[derive(Debug, Serialize, Deserialize)]
struct FutureSum;

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct OldTotal(u8);

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Total(u64);

remote! {
    OldSum = "test/sum" v1 -> OldTotal;
    Sum = "test/sum" v2 -> Total;
    FutureSum = "test/sum" v3 -> Total;
}

impl From<OldSum> for Sum {
    fn from(OldSum(one, other): OldSum) -> Self {
        Sum(vec![one.into(), other.into()])
    }
}

impl From<Total> for OldTotal {
    fn from(Total(total): Total) -> Self {
        OldTotal(u8::try_from(total).unwrap_or(u8::MAX))
    }
}

struct Adder;

impl Actor for Adder {
    type Context = Context<Self>;
}

impl Process for Adder {
    fn accepts(handlers: &mut RemoteHandlers<Self>) {
        handlers.accept::<Sum>(&Role::ALL);
        handlers.accept_legacy::<OldSum, Sum>(&Role::ALL);
    }
}

impl Handler<Sum> for Adder {
    type Result = MessageResult<Sum>;
    fn handle(&mut self, Sum(numbers): Sum, _: &mut Context<Self>) -> MessageResult<Sum> {
        MessageResult(Total(numbers.into_iter().sum()))
    }
}

// Covers 6.1 send, install, delegate.
#[test]
fn older_versions_are_accepted_and_newer_ones_refused() {
    simulate_network(|network| async move {
        let here = network.node("here", Role::Master, &Role::ALL);
        let there = network.node("there", Role::Agent, &Role::ALL);
        there.spawn("adder", Adder).unwrap();
        let adder = here.find("there", "adder", SECOND).await.unwrap();
        assert_eq!(
            here.ask(&adder, Sum(vec![1, 2, 3]), SECOND).await,
            Ok(Total(6))
        );
        assert_eq!(
            here.ask(&adder, OldSum(200, 100), SECOND).await,
            Ok(OldTotal(255))
        );
        let newer = here.ask(&adder, FutureSum, SECOND).await;
        assert!(matches!(newer, Err(AskError::Refused { .. })), "{newer:?}");
        here.tell(&adder, FutureSum).unwrap();
        here.clock().settle().await;
        assert_eq!(there.counters()["refused/unknown_message"], 2.0);
        assert_eq!(here.peer_accepts(there.id(), Sum::ID), Some(2));
    });
}

#[test]
fn message_to_an_ended_incarnation_is_not_delivered() {
    simulate_network(|network| async move {
        let here = network.node("here", Role::Master, &Role::ALL);
        let there = network.node("there", Role::Agent, &Role::ALL);
        let policy = Supervision::Restart {
            backoff: SECOND,
            backoff_max: SECOND,
            limit: 1,
        };
        let diary = Diary::default();
        let written = diary.clone();
        let make = move || Diarist::new(&written);
        let phoenix = there.supervise("phoenix", policy, make).unwrap();
        let first = here.find("there", "phoenix", SECOND).await.unwrap();
        here.tell(&first, Fall).unwrap();
        here.clock().advance(2 * SECOND).await;
        here.tell(&first, Note(1)).unwrap(); // The link stands, so the sender gets no error.
        assert_eq!(
            here.ask(&first, Count(2), SECOND).await,
            Err(AskError::Gone)
        );
        let second = here.find("there", "phoenix", SECOND).await.unwrap();
        assert_eq!(
            (&second, here.ask(&second, Count(3), SECOND).await),
            (&phoenix.pid(), Ok(1))
        );
        assert_eq!(read(&diary), ["3"]);
        assert_eq!(there.counters()["refused/unknown_process"], 2.0);
    });
}
