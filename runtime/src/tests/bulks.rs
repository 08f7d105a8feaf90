//! Bulks while they are being decoded: what waits for them, what does not, and what becomes of them when something ends meanwhile.
//!
//! In virtual time their decoding is made to take four seconds; in real time it is held back by the test.

use std::sync::{Condvar, Mutex};

use bytes::Bytes;
use futures_util::FutureExt;
use serde::Deserializer;
use serde::de::Error;

use super::hostile::{hello, note, peer, plain, reason, victim};
use super::*;
use crate::Dialled;
use crate::codec::BODY_MAX;
use crate::frame::{Frame, From, Letter, Target, write_letter};
use crate::memory::Network;
use crate::rehearsal::rehearse_network;
use crate::rehearsal::stage;

/// How long a node takes to decode a bulk.
const DECODING: Duration = Duration::from_secs(4);
const MINUTE: Duration = Duration::from_secs(60);
/// Enough for a bulk.
const LARGE: usize = 1 << 20;

/// Two nodes; the first takes its time to decode, and has a diarist whose pid the second knows.
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

/// A diarist on the second node, watched by the first one's, to which it has told a note, a bulk and another note.
async fn speaker(near: &Node, far: &Node, to: &Pid) -> Handle<Diarist> {
    let (speaker, _) = spawn(far, "speaker");
    near.tell(to, Watch(speaker.pid())).unwrap();
    near.clock().settle().await;
    speaker.tell(LoadThem(to.clone(), LARGE)).unwrap();
    near.clock().settle().await;
    speaker
}

#[test]
fn what_one_sends_after_a_bulk_waits_until_it_is_decoded_and_nothing_else_does() {
    rehearse_network(|network| async move {
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
fn an_end_is_told_when_all_that_was_said_before_it_is_decoded() {
    rehearse_network(|network| async move {
        let (near, far, diary, pid) = slow(&network).await;
        let (witness, seen) = spawn(&near, "witness");
        let speaker = speaker(&near, &far, &pid).await;
        witness.tell(Watch(speaker.pid())).unwrap();
        near.clock().settle().await;
        speaker.tell(Fall).unwrap();
        near.clock().advance(DECODING - SECOND).await;
        assert_eq!((read(&diary), read(&seen)), (lines("1"), vec![]));
        near.clock().advance(SECOND).await;
        let fallen = "speaker panicked: told to fall";
        assert_eq!(read(&diary), lines(&format!("1|load {LARGE}|2|{fallen}")));
        assert_eq!(read(&seen), [fallen]);
    });
}

#[test]
fn a_bulk_that_is_being_decoded_when_its_link_is_lost_is_never_heard() {
    rehearse_network(|network| async move {
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
fn what_a_node_has_sent_before_it_shut_down_is_decoded_and_heard_before_its_end() {
    rehearse_network(|network| async move {
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
fn a_shutdown_does_not_wait_for_what_is_being_decoded() {
    rehearse_network(|network| async move {
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
fn an_actor_that_ends_meanwhile_takes_nothing_and_its_askers_are_told() {
    rehearse_network(|network| async move {
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
fn a_reply_that_is_being_decoded_comes_before_its_actors_end_or_not_at_all() {
    rehearse_network(|network| async move {
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

/// Announces a bulk for the diarist of the victim.
fn announce(id: u32, token: u64, length: usize) -> bytes::BytesMut {
    let mut header = bytes::BytesMut::new();
    let letter = Letter {
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
    write_letter(&letter, &mut header);
    plain(&Frame::BulkAnnounce {
        token,
        length: length as u64,
        header: &header,
    })
}

#[test]
fn what_is_being_decoded_and_what_waits_for_it_is_bounded() {
    stage(async {
        let (node, _, link) = victim();
        node.slow_blocking(DECODING);
        let body = Bytes::from(vec![0; BODY_MAX - 1000]);
        let send = |token| {
            link.deliver(&mut announce(Load::ID, token, body.len()))
                .and_then(|()| link.deliver_bulk(token, body.clone()))
        };
        // One is being decoded, and as many wait as might wait for one that has not arrived.
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
fn a_bulk_that_cannot_be_decoded_ends_the_link_and_names_the_message() {
    stage(async {
        for slowly in [false, true] {
            let (node, diary, link) = victim();
            if slowly {
                node.slow_blocking(DECODING);
            }
            link.deliver(&mut announce(Load::ID, 1, 2)).unwrap();
            link.deliver(&mut note(None, &[7])).unwrap();
            let reason = match link.deliver_bulk(1, Bytes::from_static(&[2, 0])) {
                Ok(()) => link.closed().await,
                Err(garbled) => garbled.reason, // and whoever delivers ends it
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
fn nothing_of_a_peer_is_heard_after_its_end_also_if_the_link_ends_while_it_delivers() {
    /// Has room for one message.
    struct Narrow;
    impl Actor for Narrow {
        type Context = Context<Self>;
    }
    impl Process for Narrow {
        const MAILBOX: u32 = 1;
        const WHEN_FULL: WhenFull = WhenFull::CloseLink;
        fn hears(ears: &mut Ears<Self>) {
            ears.hear::<Note>(&Role::ALL);
        }
    }
    impl Handler<Note> for Narrow {
        type Result = ();
        fn handle(&mut self, _: Note, _: &mut Context<Self>) {}
    }
    stage(async {
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
            Some(From { epoch: 5, actor })
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
fn whichever_thread_ends_a_link_its_end_is_told_once_and_last() {
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
            // It may have been told more than it has room for.
            while diarist.ask(Count(2), MINUTE).await.is_err() {
                tokio::task::yield_now().await;
            }
            let heard = read(&diary).into_iter();
            let end: Vec<_> = heard.skip_while(|line| !line.starts_with("them")).collect();
            assert_eq!(end, ["them node lost: enough", "2"], "round {round}");
        }
    });
}

/// Whether somebody has come to the gate, and whether it is open.
static GATE: (Mutex<[bool; 2]>, Condvar) = (Mutex::new([false; 2]), Condvar::new());

/// Cannot be decoded before the gate is opened.
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
        // Should the test fail, it fails after a minute.
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

/// Hears what is hard to decode.
struct Taster;

impl Actor for Taster {
    type Context = Context<Self>;
}

impl Process for Taster {
    fn hears(ears: &mut Ears<Self>) {
        ears.hear::<Held>(&Role::ALL);
        ears.hear::<Poison>(&Role::ALL);
        ears.hear::<Ping>(&Role::ALL);
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
fn in_real_time_pings_and_all_else_go_by_while_a_bulk_is_being_decoded() {
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
        // One that panics ends its link, and nothing else.
        let poisoned = far.ask(&pid, Poison(vec![0; LARGE]), MINUTE);
        assert_eq!(poisoned.await, Err(AskError::Gone));
        let again = far.find("near", "taster", MINUTE).await.unwrap();
        assert_eq!(far.ask(&again, Ping, MINUTE).await, Ok(2));
        near.shutdown().await;
        far.shutdown().await;
    });
}
