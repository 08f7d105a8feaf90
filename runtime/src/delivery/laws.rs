//! Properties of the sender's and the receiver's state under loss, duplication, delay, reordering
//! and restarts.
//!
//! A sender and successive receivers exchange a bag of envelopes and a bag of answers, from which a
//! random schedule takes, copies and drops. No actor and no clock is involved.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;

use super::dedup_receiver::Classified;
use super::send_window::{Ends, Envelope, Mark, RESEND_FIRST, RESEND_MAX, Repeat, SendWindow};
use super::{Body, Bounds, DedupReceiver, DeliveryError, EncodedMessage, SequenceAck};
use crate::clock::Instant;
use crate::identity::{NodeId, Pid};

const BOUNDS: Bounds = Bounds {
    messages: 20,
    bytes: 600,
    age: Duration::from_secs(30),
};

/// One step of the schedule. Numbers select among the existing items.
#[derive(Clone, Copy, Debug)]
enum Fate {
    /// A message of this many bytes is given to the reliable sender.
    Send(usize),
    /// An envelope is sent, if one may be.
    Leave,
    /// An envelope arrives; a copy of it may stay in transit.
    Arrive(usize, bool),
    /// An envelope is lost; the sender may detect it.
    Lose(usize, bool),
    /// An answer arrives; a copy of it may stay in transit.
    Answer(usize, bool),
    /// An answer is lost.
    LoseAnswer(usize),
    /// Time passes, in milliseconds.
    Pass(u64),
    /// The receiver dies, and the sender switches to the next.
    Failover,
    /// The receiver dies and another has its name.
    Restart,
    /// The link broke and is back.
    Reconnect,
    /// The link broke.
    Break,
}

fn fates() -> impl Strategy<Value = Vec<Fate>> {
    let copied = || (any::<usize>(), any::<bool>());
    let fate = prop_oneof![
        6 => (0_usize..100).prop_map(Fate::Send),
        6 => Just(Fate::Leave),
        6 => copied().prop_map(|(at, copy)| Fate::Arrive(at, copy)),
        2 => copied().prop_map(|(at, seen)| Fate::Lose(at, seen)),
        5 => copied().prop_map(|(at, copy)| Fate::Answer(at, copy)),
        1 => any::<usize>().prop_map(Fate::LoseAnswer),
        2 => (0_u64..4_000).prop_map(Fate::Pass),
        1 => Just(Fate::Failover),
        1 => Just(Fate::Restart),
        1 => Just(Fate::Reconnect),
        1 => Just(Fate::Break),
    ];
    prop::collection::vec(fate, 0..300)
}

/// One in seven messages is of a kind that the receiver does not accept.
fn is_unheard(message: u32) -> bool {
    message % 7 == 3
}

/// One in five is sent once.
fn is_once(message: u32) -> bool {
    message % 5 == 4
}

struct World {
    now: Instant,
    outgoing: SendWindow<u32>,
    incoming: DedupReceiver,
    envelopes: Vec<Envelope>,
    answers: Vec<(Mark, SequenceAck)>,
    accepted: u32,
    /// Messages that the current receiver has handled, in order.
    handled: Vec<u32>,
    /// Messages handled since the sender last switched to another receiver.
    reached: BTreeSet<u32>,
    ends: BTreeMap<u32, Result<(), DeliveryError>>,
    /// The envelope of each message that is sent once.
    once: BTreeMap<u32, Mark>,
}

fn from() -> Pid {
    Pid::new("sender", NodeId::new("framework", 1), 1)
}

fn take_from<T: Clone>(bag: &mut Vec<T>, at: usize, copy: bool) -> Option<T> {
    let at = at.checked_rem(bag.len())?;
    Some(match copy {
        true => bag[at].clone(),
        false => bag.swap_remove(at),
    })
}

impl World {
    fn new() -> Self {
        Self {
            now: Instant::default(),
            outgoing: SendWindow::new(BOUNDS),
            incoming: DedupReceiver::default(),
            envelopes: Vec::new(),
            answers: Vec::new(),
            accepted: 0,
            handled: Vec::new(),
            reached: BTreeSet::new(),
            ends: BTreeMap::new(),
            once: BTreeMap::new(),
        }
    }

    fn send(&mut self, bytes: usize) {
        let mut body = self.accepted.to_be_bytes().to_vec();
        body.resize(4 + bytes, 0);
        let message = EncodedMessage {
            id: 1,
            version: 1,
            body: Body(Bytes::from(body)),
            older: Vec::new(),
        };
        let full = self.outgoing.len() == BOUNDS.messages
            || self.outgoing.bytes() + 4 + bytes > BOUNDS.bytes;
        let repeat = match is_once(self.accepted) {
            true => Repeat::Never,
            false => Repeat::Always,
        };
        let taken = (self.outgoing).accept(message, repeat, self.accepted, self.now);
        assert_eq!(taken.is_err(), full, "the bound is hit, or it is not");
        self.accepted += u32::from(taken.is_ok());
    }

    fn leave(&mut self) -> bool {
        let envelope = self.outgoing.envelope(self.now);
        let left = envelope.is_some();
        self.envelopes.extend(envelope);
        left
    }

    fn arrive(&mut self, envelope: &Envelope) {
        let floor = envelope.floor;
        let mut stream = self.incoming.take_out(&from(), 1, floor, self.now).unwrap();
        let parts = stream.classify(envelope.mark.first, envelope.messages.len());
        for message in &envelope.messages[parts.fresh] {
            if !stream.may_continue() {
                break;
            }
            let Some(message) = message else {
                stream.handled();
                continue;
            };
            let number = u32::from_be_bytes(message.body.0[..4].try_into().unwrap());
            if is_unheard(number) {
                stream.refuse(format!("{number} is not accepted"));
                continue;
            }
            stream.handled();
            assert!(
                self.handled.last().is_none_or(|last| *last < number),
                "{number} after {:?}: once in a life, and in order",
                self.handled
            );
            for earlier in self.handled.last().map_or(0, |last| last + 1)..number {
                let over =
                    self.ends.contains_key(&earlier) || is_unheard(earlier) || is_once(earlier);
                assert!(over, "{number} overtakes {earlier}");
            }
            if is_once(number) {
                // A copy made in transit is no second send, but it may reach another incarnation.
                let first = *self.once.entry(number).or_insert(envelope.mark);
                assert_eq!(first, envelope.mark, "{number} was sent twice");
            }
            self.handled.push(number);
            self.reached.insert(number);
        }
        let taken = stream.taken();
        self.incoming.put_back(from(), 1, stream);
        self.answers.push((envelope.mark, taken));
    }

    fn note(&mut self, ends: Ends<u32>) {
        for (message, end) in ends {
            match &end {
                Ok(()) => assert!(
                    self.reached.contains(&message),
                    "{message} reached the receiver"
                ),
                Err(DeliveryError::Refused { reason }) => {
                    assert_eq!(*reason, format!("{message} is not accepted"));
                }
                Err(DeliveryError::Lost) => assert!(is_once(message)),
                Err(error) => assert!(matches!(error, DeliveryError::Expired { .. })),
            }
            assert_eq!(self.ends.insert(message, end), None, "one end each");
        }
    }

    fn another_receiver(&mut self) {
        self.incoming = DedupReceiver::default();
        self.handled.clear();
    }

    fn turn(&mut self, fate: Fate) {
        match fate {
            Fate::Send(bytes) => self.send(bytes),
            Fate::Leave => drop(self.leave()),
            Fate::Arrive(at, copy) => {
                if let Some(envelope) = take_from(&mut self.envelopes, at, copy) {
                    self.arrive(&envelope);
                }
            }
            Fate::Lose(at, noticed) => {
                if let Some(envelope) = take_from(&mut self.envelopes, at, false)
                    && noticed
                {
                    self.outgoing.failed(envelope.mark, self.now, 0.5);
                }
            }
            Fate::Answer(at, copy) => {
                if let Some((mark, taken)) = take_from(&mut self.answers, at, copy) {
                    let ends = self.outgoing.answered(mark, &taken, self.now, 0.5);
                    self.note(ends);
                }
            }
            Fate::LoseAnswer(at) => drop(take_from(&mut self.answers, at, false)),
            Fate::Pass(millis) => {
                self.now = self.now + Duration::from_millis(millis);
                let ends = self.outgoing.expire(self.now);
                self.note(ends);
            }
            Fate::Failover => {
                self.another_receiver();
                self.reached.clear();
                self.outgoing.retarget(true);
            }
            Fate::Restart => self.another_receiver(),
            Fate::Reconnect => self.outgoing.retarget(false),
            Fate::Break => self.outgoing.close(),
        }
        assert!(self.outgoing.len() <= BOUNDS.messages);
        assert!(self.outgoing.bytes() <= BOUNDS.bytes);
    }

    /// The faults are over: every sent envelope arrives and is answered.
    fn recover(&mut self) {
        self.envelopes.clear();
        self.answers.clear();
        self.outgoing.retarget(false);
        for _ in 0..1000 {
            while self.leave() {}
            if self.outgoing.len() == 0 {
                return;
            }
            for envelope in std::mem::take(&mut self.envelopes) {
                self.arrive(&envelope);
            }
            for (mark, taken) in std::mem::take(&mut self.answers) {
                let ends = self.outgoing.answered(mark, &taken, self.now, 0.5);
                self.note(ends);
            }
        }
        panic!("{} messages are never delivered", self.outgoing.len());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    // Covers S132; 6.1 Delivery.
    #[test]
    fn messages_are_handled_once_in_order_or_reported(fates in fates()) {
        let mut world = World::new();
        world.outgoing.retarget(true);
        for fate in fates {
            world.turn(fate);
        }
        world.recover();
        prop_assert_eq!(world.ends.len(), world.accepted as usize, "each has ended");
        for (message, end) in &world.ends {
            let refused = matches!(end, Err(DeliveryError::Refused { .. }));
            prop_assert!(end.is_err() || !is_unheard(*message));
            prop_assert!(!refused || is_unheard(*message));
        }
    }
}

fn at(millis: u64) -> Instant {
    Instant::default() + Duration::from_millis(millis)
}

/// S132.
#[test]
fn new_receiver_starts_at_the_unacknowledged_floor() {
    let mut incoming = DedupReceiver::default();
    let stream = incoming.take_out(&from(), 1, 41, at(0)).unwrap();
    let early = Classified {
        duplicates: 0,
        early: 2,
        fresh: 2..2,
    };
    assert_eq!(stream.classify(43, 2), early, "41 and 42 are missing");
    let (duplicates, fresh) = (2, 2..5);
    let known = Classified {
        duplicates,
        early: 0,
        fresh,
    };
    assert_eq!(stream.classify(39, 5), known, "39 and 40 are over");
}

/// S132.
#[test]
fn stream_is_forgotten_only_after_its_last_resend() {
    let mut incoming = DedupReceiver::default();
    let other = Pid::new("other", NodeId::new("framework", 1), 2);
    let mut meet = |who: &Pid, now| {
        let mut stream = incoming.take_out(who, 1, 1, now).unwrap();
        let fresh = stream.classify(1, 1).fresh.len();
        (0..fresh).for_each(|_| stream.handled());
        incoming.put_back(who.clone(), 1, stream);
        (fresh, incoming.len())
    };
    let hour = 3_600_000;
    assert_eq!(meet(&from(), at(0)), (1, 1));
    assert_eq!(
        meet(&from(), at(hour)),
        (0, 1),
        "a courier may still hold it"
    );
    assert_eq!(meet(&other, at(2 * hour)), (1, 2));
    assert_eq!(meet(&other, at(3 * hour)), (0, 2), "nobody new has come");
    let third = Pid::new("third", NodeId::new("framework", 1), 3);
    assert_eq!(meet(&third, at(3 * hour)), (1, 2), "the first is forgotten");
}

#[test]
fn resend_delay_doubles_up_to_a_bound() {
    let mut outgoing = SendWindow::new(Bounds::default());
    let message = EncodedMessage {
        id: 1,
        version: 1,
        body: Body(Bytes::new()),
        older: Vec::new(),
    };
    outgoing.accept(message, Repeat::Always, (), at(0)).unwrap();
    outgoing.retarget(true);
    let mut now = at(0);
    let mut waits = Vec::new();
    for _ in 0..9 {
        let envelope = outgoing.envelope(now).unwrap();
        outgoing.failed(envelope.mark, now, 1.0);
        let wake = outgoing.wake().unwrap();
        assert_eq!(outgoing.envelope(now), None, "not before its time");
        waits.push(wake - now);
        now = wake;
    }
    let doubling = (0..9).map(|power| (RESEND_FIRST * (1 << power)).min(RESEND_MAX));
    assert_eq!(waits, doubling.collect::<Vec<_>>());
}

/// Adds the first stream of this many nodes, or this many streams of one; returns how many were
/// accepted.
fn crowd(
    incoming: &mut DedupReceiver,
    nodes: Range<u64>,
    of_each: Range<u64>,
    now: Instant,
) -> usize {
    let mut taken = 0;
    for node in nodes {
        let who = Pid::new("sender", NodeId::new("node", node), 1);
        for number in of_each.clone() {
            if let Ok(stream) = incoming.take_out(&who, number, 1, now) {
                incoming.put_back(who.clone(), number, stream);
                taken += 1;
            }
        }
    }
    taken
}

// Covers 6.1 Delivery.
#[test]
fn a_nodes_new_streams_replace_only_its_own() {
    let mut incoming = DedupReceiver::default();
    assert_eq!(crowd(&mut incoming, 0..1, 0..70_000, at(0)), 70_000);
    assert_eq!(incoming.len(), 1_024);
    assert_eq!(crowd(&mut incoming, 1..2, 0..1, at(1)), 1);
    // The least recently active one is replaced.
    assert_eq!(crowd(&mut incoming, 0..1, 69_000..69_001, at(2)), 1);
    assert_eq!(crowd(&mut incoming, 0..1, 70_000..70_001, at(3)), 1);
    let who = Pid::new("sender", NodeId::new("node", 0), 1);
    let mut place = |number| incoming.take_out(&who, number, 1, at(4)).is_ok();
    assert!(place(69_000));
    assert_eq!(incoming.len(), 1_024, "1,023 of that node, and one");
}

/// S132. Many schedulers come and go: those that say nothing any more give way to new ones long
/// before they would be forgotten.
// Covers 6.1 Delivery.
#[test]
fn idle_streams_are_replaced_after_ten_minutes() {
    let mut incoming = DedupReceiver::default();
    assert_eq!(crowd(&mut incoming, 0..65_536, 0..1, at(0)), 65_536);
    let minute = 60_000;
    assert_eq!(
        crowd(&mut incoming, 70_000..70_001, 0..1, at(9 * minute)),
        0
    );
    assert_eq!(crowd(&mut incoming, 0..10, 0..1, at(9 * minute)), 10);
    assert_eq!(
        crowd(&mut incoming, 70_000..70_001, 0..1, at(11 * minute)),
        1
    );
    assert_eq!(incoming.len(), 11);
}
