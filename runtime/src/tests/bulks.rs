//! Bulks while they are being decoded: which messages wait for them, and the effects of an end
//! meanwhile.
//!
//! In virtual time their decoding takes four seconds; in real time the test delays it.

use std::sync::{Condvar, Mutex};

use bytes::Bytes;
use futures_util::FutureExt;
use serde::Deserializer;
use serde::de::Error;

use super::hostile::{hello, note, peer, plain, reason, victim};
use super::*;
use crate::Dialled;
use crate::testing::memory::Network;
use crate::testing::run_simulated;
use crate::testing::simulate_network;
use crate::wire::codec::BODY_MAX;
use crate::wire::frame::{Frame, MessageFrame, Origin, Target, write_message};

/// How long a node takes to decode a bulk.
const DECODING: Duration = Duration::from_secs(4);
const MINUTE: Duration = Duration::from_secs(60);
/// Enough for a bulk.
const LARGE: usize = 1 << 20;

/// Two nodes; the first decodes slowly, and has a diarist whose pid the second knows.
async fn slow(network: &Network) -> (Node, Node, Diary, Pid) {
    let near = network.node("near", Role::Master, &[Role::Agent]);
    let far = network.node("far", Role::Agent, &[Role::Master]);
    let diary = Diary::default();
    near.spawn("diarist", Diarist::new(&diary)).unwrap();
    let pid = far.find("near", "diarist", SECOND).await.unwrap();
    near.slow_blocking(DECODING);
    (near, far, diary, pid)
}

fn spawn(node: &Node, name: &str) -> (Handle<Diarist>, Diary) {
    let diary = Diary::default();
    (node.spawn(name, Diarist::new(&diary)).unwrap(), diary)
}

/// A diarist on the second node, watched by the first one's, to which it has sent a note, a bulk
/// and another note.
async fn speaker(near: &Node, far: &Node, to: &Pid) -> Handle<Diarist> {
    let (speaker, _) = spawn(far, "speaker");
    near.tell(to, Watch(speaker.pid())).unwrap();
    near.clock().settle().await;
    speaker.tell(LoadThem(to.clone(), LARGE)).unwrap();
    near.clock().settle().await;
    speaker
}

#[test]
fn only_later_messages_of_the_receiver_wait_for_a_bulk() {
    simulate_network(|network| async move {
        let (near, far, diary, pid) = slow(&network).await;
        let (_, others) = spawn(&near, "other");
        let other = far.find("near", "other", SECOND).await.unwrap();
        let (began, now) = (near.clock().now(), || near.clock().now());
        far.tell(&pid, Note(1)).unwrap();
        let one = far.ask(&pid, Load(vec![0; LARGE]), MINUTE);
        far.tell(&pid, Note(2)).unwrap();
        far.tell(&pid, Load(vec![0; 2 * LARGE])).unwrap();
        let last = far.ask(&pid, Count(3), MINUTE);
        far.tell(&other, Note(4)).unwrap();
        assert_eq!(far.ask(&pid, Ping, SECOND).await, Ok(1));
        assert_eq!(now(), began, "a ping waits for no bulk");
        near.clock().settle().await;
        assert_eq!((read(&diary), read(&others)), (lines("1"), lines("4")));
        assert_eq!(one.await, Ok(LARGE));
        assert_eq!(
            (now() - began, read(&diary)),
            (DECODING, lines("1|load 1048576|2"))
        );
        assert_eq!(last.await, Ok(5), "the second was decoded after the first");
        assert_eq!((now() - began, read(&diary).len()), (2 * DECODING, 5));
        near.clock().advance(MINUTE).await;
        assert_eq!(read(&diary), lines("1|load 1048576|2|load 2097152|3"));
    });
}

fn lines(text: &str) -> Vec<String> {
    text.split('|').map(str::to_owned).collect()
}

#[test]
fn exit_comes_after_earlier_bulks_are_decoded() {
    simulate_network(|network| async move {
        let (near, far, diary, pid) = slow(&network).await;
        let (witness, seen) = spawn(&near, "witness");
        let speaker = speaker(&near, &far, &pid).await;
        witness.tell(Watch(speaker.pid())).unwrap();
        near.clock().settle().await;
        speaker.tell(Fall).unwrap();
        near.clock().advance(DECODING - SECOND).await;
        assert_eq!((read(&diary), read(&seen)), (lines("1"), vec![]));
        near.clock().advance(SECOND).await;
        let crashed = "speaker panicked: told to fall";
        assert_eq!(read(&diary), lines(&format!("1|load {LARGE}|2|{crashed}")));
        assert_eq!(read(&seen), [crashed]);
    });
}

#[test]
fn bulk_is_dropped_if_its_link_is_lost_while_decoding() {
    simulate_network(|network| async move {
        let (near, far, diary, pid) = slow(&network).await;
        speaker(&near, &far, &pid).await;
        let asked = far.ask(&pid, Load(vec![0; LARGE]), MINUTE);
        near.clock().advance(SECOND).await;
        network.sever("near", "far");
        assert_eq!(asked.await, Err(AskError::Gone));
        near.clock().settle().await;
        let lost = lines("1|speaker node lost: severed");
        assert_eq!(read(&diary), lost, "at once");
        network.heal("near", "far");
        near.clock().advance(MINUTE).await;
        assert_eq!(read(&diary), lost);
        near.slow_blocking(Duration::ZERO);
        let again = far.find("near", "diarist", SECOND).await.unwrap();
        assert_eq!(far.ask(&again, Count(3), SECOND).await, Ok(3));
    });
}

#[test]
fn bulks_sent_before_a_shutdown_are_delivered_first() {
    simulate_network(|network| async move {
        let (near, far, diary, pid) = slow(&network).await;
        speaker(&near, &far, &pid).await;
        far.shutdown().await;
        near.clock().advance(MINUTE).await;
        let heard = format!("1|load {LARGE}|2|speaker stopped");
        assert_eq!(read(&diary), lines(&heard));
        assert_eq!(near.peers(), []);
    });
}

#[test]
fn shutdown_does_not_wait_for_decoding() {
    simulate_network(|network| async move {
        let (near, far, diary, pid) = slow(&network).await;
        far.tell(&pid, Load(vec![0; LARGE])).unwrap();
        near.clock().settle().await;
        let began = near.clock().now();
        near.shutdown().await;
        assert_eq!(near.clock().now(), began);
        near.clock().advance(MINUTE).await;
        assert_eq!(read(&diary).len(), 0);
    });
}

#[test]
fn actor_ending_while_decoding_fails_its_asks() {
    simulate_network(|network| async move {
        let (near, far, diary, pid) = slow(&network).await;
        let asked = far.ask(&pid, Load(vec![0; LARGE]), MINUTE);
        let behind = far.ask(&pid, Count(1), MINUTE);
        near.clock().advance(SECOND).await;
        near.stop(&pid);
        assert_eq!(
            (asked.await, behind.await),
            (Err(AskError::Gone), Err(AskError::Gone))
        );
        assert_eq!(read(&diary).len(), 0);
        let (other, _) = spawn(&near, "other");
        assert_eq!(
            far.ask(&other.pid(), Count(1), SECOND).await,
            Ok(1),
            "the link goes on"
        );
    });
}

#[test]
fn decoding_reply_precedes_the_exit_or_is_dropped() {
    simulate_network(|network| async move {
        let (near, far, diary, pid) = slow(&network).await;
        let (speaker, _) = spawn(&far, "speaker");
        near.tell(&pid, Watch(speaker.pid())).unwrap();
        let began = near.clock().now();
        let now = || near.clock().now() - began;
        let asked = near.ask(&speaker.pid(), Echo(LARGE), MINUTE);
        let impatient = near.ask(&speaker.pid(), Echo(LARGE), SECOND);
        near.clock().settle().await;
        speaker.stop();
        assert_eq!(impatient.await, Err(AskError::Late { after: SECOND }));
        assert_eq!((now(), read(&diary).len()), (SECOND, 0));
        assert_eq!(asked.await.map(|reply| reply.len()), Ok(LARGE));
        assert_eq!((now(), read(&diary).len()), (DECODING, 0));
        near.clock().settle().await;
        assert_eq!(read(&diary), ["speaker stopped"]);

        let (speaker, _) = spawn(&far, "speaker");
        let asked = near.ask(&speaker.pid(), Echo(LARGE), MINUTE);
        near.clock().settle().await;
        network.sever("near", "far");
        assert_eq!(
            (asked.await, now()),
            (Err(AskError::Gone), DECODING),
            "at once"
        );
    });
}

/// Announces a bulk for the victim's diarist.
fn announce(id: u32, token: u64, length: usize) -> bytes::BytesMut {
    let mut header = bytes::BytesMut::new();
    let message = MessageFrame {
        lane: Lane::Ordinary,
        id,
        version: 1,
        to: Target {
            incarnation: 1,
            name: "",
        },
        from: None,
        correlation: None,
        body: &[],
    };
    write_message(&message, &mut header);
    plain(&Frame::BulkAnnounce {
        token,
        length: length as u64,
        header: &header,
    })
}

#[test]
fn decoding_and_waiting_messages_are_bounded() {
    run_simulated(async {
        let (node, _, link) = victim();
        node.slow_blocking(DECODING);
        let body = Bytes::from(vec![0; BODY_MAX - 1000]);
        let send = |token| {
            link.deliver(&mut announce(Load::ID, token, body.len()))
                .and_then(|()| link.deliver_bulk(token, body.clone()))
        };
        // One is being decoded, and the maximum number waits.
        for token in 1..=3 {
            send(token).unwrap();
        }
        assert!(reason(send(4)).contains("wait for a bulk"));

        let (node, _, link) = victim();
        node.slow_blocking(DECODING);
        let unheard = (1..).find(|token| {
            let announced = link.deliver(&mut announce(Load::ID, *token, 1));
            let delivered =
                announced.and_then(|()| link.deliver_bulk(*token, Bytes::from_static(&[0])));
            delivered.is_err()
        });
        assert_eq!(unheard, Some(2049));
    });
}

#[test]
fn undecodable_bulk_closes_the_link_by_name() {
    run_simulated(async {
        for slowly in [false, true] {
            let (node, diary, link) = victim();
            if slowly {
                node.slow_blocking(DECODING);
            }
            link.deliver(&mut announce(Load::ID, 1, 2)).unwrap();
            link.deliver(&mut note(None, &[7])).unwrap();
            let reason = match link.deliver_bulk(1, Bytes::from_static(&[2, 0])) {
                Ok(()) => link.closed().await,
                Err(garbled) => garbled.reason, // its deliverer closes it
            };
            assert!(
                reason.starts_with("test/load v1 cannot be decoded"),
                "{reason}"
            );
            node.clock().advance(MINUTE).await;
            assert_eq!(read(&diary).len(), 0);
            assert_eq!(node.counters()["links/garbled"], 1.0);
        }
    });
}

#[test]
fn no_message_is_delivered_after_the_links_end() {
    /// Has room for one message.
    struct Narrow;
    impl Actor for Narrow {
        type Context = Context<Self>;
    }
    impl Process for Narrow {
        const MAILBOX: u32 = 1;
        const WHEN_FULL: WhenFull = WhenFull::CloseLink;
        fn accepts(handlers: &mut RemoteHandlers<Self>) {
            handlers.accept::<Note>(&Role::ALL);
        }
    }
    impl Handler<Note> for Narrow {
        type Result = ();
        fn handle(&mut self, _: Note, _: &mut Context<Self>) {}
    }
    run_simulated(async {
        let (node, diary, link) = victim();
        node.spawn("narrow", Narrow).unwrap();
        let theirs = Pid::new("them", link.peer().node.clone(), 3);
        let diarist = node.whereis("diarist").unwrap();
        node.tell(&diarist, Watch(theirs)).unwrap();
        node.clock().settle().await;
        let from = |number: u64| {
            let actor = Target {
                incarnation: number,
                name: "them",
            };
            Some(Origin { epoch: 5, actor })
        };
        let mut batch = bytes::BytesMut::new();
        for (incarnation, number) in [(1, 1), (2, 0), (2, 0), (1, 2)] {
            let mut note = note(from(3), &[number]);
            // The target's incarnation, behind the length, the kind, the id and the version.
            let at = note
                .windows(8)
                .position(|it| it == 1_u64.to_be_bytes())
                .unwrap();
            note[at..at + 8].copy_from_slice(&u64::to_be_bytes(incarnation));
            batch.extend_from_slice(&note);
        }
        link.deliver(&mut batch).unwrap();
        node.clock().settle().await;
        let end = "them node lost: the mailbox of narrow is full";
        assert_eq!(read(&diary), ["1", "2", end]);
        link.deliver(&mut note(from(3), &[3])).unwrap();
        node.clock().settle().await;
        assert_eq!(read(&diary).len(), 3);
    });
}

#[test]
fn link_end_is_notified_once_and_last() {
    let runtime = actix_rt::Runtime::new().unwrap();
    runtime.block_on(async {
        for round in 0..200 {
            let node = Node::builder("victim").accepts(&[Role::Agent]).build();
            let diary = Diary::default();
            let diarist = node.spawn("diarist", Diarist::new(&diary)).unwrap();
            let peer = peer("enemy", 5);
            let link = node.attach(peer.clone(), hello(&peer), Dialled::ByThem);
            let link = link.unwrap();
            let theirs = Pid::new("them", peer.node, 3);
            diarist.tell(Watch(theirs)).unwrap();
            diarist.ask(Count(0), MINUTE).await.unwrap();
            let speaking = std::thread::spawn({
                let link = link.clone();
                let tasks = tokio::runtime::Handle::current();
                move || {
                    let _entered = tasks.enter();
                    while link.closed().now_or_never().is_none() {
                        if link.room(Lane::Ordinary).now_or_never().is_some() {
                            link.deliver(&mut note(None, &[1])).unwrap();
                        }
                    }
                }
            });
            for _ in 0..round % 20 {
                tokio::task::yield_now().await;
            }
            link.close("enough");
            speaking.join().unwrap();
            // Its mailbox may be full at first.
            while diarist.ask(Count(2), MINUTE).await.is_err() {
                tokio::task::yield_now().await;
            }
            let heard = read(&diary).into_iter();
            let end: Vec<_> = heard.skip_while(|line| !line.starts_with("them")).collect();
            assert_eq!(end, ["them node lost: enough", "2"], "round {round}");
        }
    });
}

/// Whether a decoder has reached the gate, and whether the gate is open.
static GATE: (Mutex<[bool; 2]>, Condvar) = (Mutex::new([false; 2]), Condvar::new());

/// Can be decoded only after the gate is opened.
#[derive(Serialize)]
struct Held(Vec<u8>);

/// Panics when it is decoded.
#[derive(Serialize)]
struct Poison(Vec<u8>);

impl<'de> Deserialize<'de> for Held {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let bytes = Vec::deserialize(deserializer)?;
        let (state, changed) = &GATE;
        let mut state = state.lock().unwrap();
        state[0] = true;
        // A failing test ends after a minute.
        let wait = |state, open: fn(&mut [bool; 2]) -> bool| {
            changed.wait_timeout_while(state, MINUTE, open)
        };
        state = wait(state, |state| !state[1]).unwrap().0;
        match state[1] {
            true => Ok(Self(bytes)),
            false => Err(D::Error::custom("the gate was never opened")),
        }
    }
}

impl<'de> Deserialize<'de> for Poison {
    fn deserialize<D: Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
        panic!("poisoned")
    }
}

remote! {
    Held = "test/held" v1 -> usize;
    Poison = "test/poison" v1 -> usize
}

/// Accepts messages that are slow or impossible to decode.
struct Taster;

impl Actor for Taster {
    type Context = Context<Self>;
}

impl Process for Taster {
    fn accepts(handlers: &mut RemoteHandlers<Self>) {
        handlers.accept::<Held>(&Role::ALL);
        handlers.accept::<Poison>(&Role::ALL);
        handlers.accept::<Ping>(&Role::ALL);
    }
}

impl Handler<Held> for Taster {
    type Result = usize;
    fn handle(&mut self, Held(bytes): Held, _: &mut Context<Self>) -> usize {
        bytes.len()
    }
}

impl Handler<Poison> for Taster {
    type Result = usize;
    fn handle(&mut self, Poison(bytes): Poison, _: &mut Context<Self>) -> usize {
        bytes.len()
    }
}

impl Handler<Ping> for Taster {
    type Result = u32;
    fn handle(&mut self, _: Ping, _: &mut Context<Self>) -> u32 {
        2
    }
}

#[test]
fn other_messages_pass_while_a_bulk_is_decoded() {
    let runtime = actix_rt::Runtime::new().unwrap();
    runtime.block_on(async {
        let (network, clock) = (Network::new(), Clock::real());
        let node = |name: &str| {
            let node = Node::builder(name)
                .role(Role::Agent)
                .accepts(&[Role::Agent]);
            let node = node.build();
            network.join(&node, name);
            node
        };
        let (near, far) = (node("near"), node("far"));
        near.spawn("taster", Taster).unwrap();
        spawn(&near, "other");
        let pid = far.find("near", "taster", MINUTE).await.unwrap();
        let other = far.find("near", "other", MINUTE).await.unwrap();
        let held = far.ask(&pid, Held(vec![0; LARGE]), 3 * MINUTE);
        while !GATE.0.lock().unwrap()[0] {
            clock.sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(far.ask(&pid, Ping, MINUTE).await, Ok(2));
        assert_eq!(far.ask(&other, Count(1), MINUTE).await, Ok(1));
        assert!(!GATE.0.lock().unwrap()[1]);
        GATE.0.lock().unwrap()[1] = true;
        GATE.1.notify_all();
        assert_eq!(held.await, Ok(LARGE));
        // A panic in decoding closes its link, and has no other effect.
        let poisoned = far.ask(&pid, Poison(vec![0; LARGE]), MINUTE);
        assert_eq!(poisoned.await, Err(AskError::Gone));
        let again = far.find("near", "taster", MINUTE).await.unwrap();
        assert_eq!(far.ask(&again, Ping, MINUTE).await, Ok(2));
        near.shutdown().await;
        far.shutdown().await;
    });
}
