//! A whole link: bytes from a peer pass through [`Link::deliver`] to an actor, and its replies
//! return.
//!
//! An input is a script of steps: bytes of the ordinary lane, a bulk, or a pause in which the actor
//! runs. Each script runs twice, with whole chunks and byte by byte: received messages and replies
//! must be equal. (Consecutive tells of one chunk are gathered, so the two runs use different
//! code.)

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::{Bytes, BytesMut};
use futures_util::FutureExt;
use runtime::prelude::*;
use runtime::testing::{node, run_simulated};
use runtime::{Dialled, Hello, Link, NodeId, Outgoing};
use serde::{Deserialize, Serialize};

use crate::rng::Rng;
use crate::target::{HeapLimit, Target, Verdict, rejected};

/// A short frame may become an envelope in a mailbox, a watch, or a reply that names it.
const STEP: HeapLimit = HeapLimit {
    per_byte: 400,
    fixed: 64 << 10,
};
/// The peer's incarnation, required in every frame from an actor.
const EPOCH: u64 = 5;
/// The listener's incarnation: it is the first actor of its node.
const LISTENER: u64 = 1;

/// A tell.
#[derive(Debug, Serialize, Deserialize)]
struct Note(u32);

/// An ask; the answer is the number of messages so far.
#[derive(Debug, Serialize, Deserialize)]
struct Count(String);

/// An ask on the ping lane.
#[derive(Debug, Serialize, Deserialize)]
struct Ping;

/// A tell that only masters may send.
#[derive(Debug, Serialize, Deserialize)]
struct Order;

remote! {
    Note = "fuzz/note" v1;
    Count = "fuzz/count" v1 -> usize;
    Ping = "fuzz/ping" v1 lane Ping -> u32;
    Order = "fuzz/order" v1
}

/// Records all messages and their senders.
struct Listener(Arc<Mutex<Vec<String>>>);

impl Listener {
    fn write(&self, line: String, ctx: &Context<Self>) -> usize {
        let from = ctx.sender().and_then(|sender| sender.pid.clone());
        let mut heard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        heard.push(format!("{line} from {from:?}"));
        heard.len()
    }
}

impl Actor for Listener {
    type Context = Context<Self>;
}

impl Process for Listener {
    fn accepts(handlers: &mut RemoteHandlers<Self>) {
        handlers.accept::<Note>(&Role::ALL);
        handlers.accept::<Count>(&Role::ALL);
        handlers.accept::<Ping>(&Role::ALL);
        handlers.accept::<Order>(&[Role::Master]);
    }
}

impl Handler<Note> for Listener {
    type Result = ();
    fn handle(&mut self, note: Note, ctx: &mut Context<Self>) {
        self.write(format!("{note:?}"), ctx);
    }
}

impl Handler<Count> for Listener {
    type Result = usize;
    fn handle(&mut self, count: Count, ctx: &mut Context<Self>) -> usize {
        self.write(format!("{count:?}"), ctx)
    }
}

impl Handler<Ping> for Listener {
    type Result = u32;
    fn handle(&mut self, ping: Ping, ctx: &mut Context<Self>) -> u32 {
        self.write(format!("{ping:?}"), ctx) as u32
    }
}

impl Handler<Order> for Listener {
    type Result = ();
    fn handle(&mut self, order: Order, ctx: &mut Context<Self>) {
        self.write(format!("{order:?}"), ctx);
    }
}

/// A step of a script.
#[derive(Debug)]
enum Step<'a> {
    Bytes(&'a [u8]),
    Bulk(u64, &'a [u8]),
    Pause,
}

/// Parses a script; any bytes are valid. A step has a kind, a length (u16, big endian) and its
/// bytes.
fn script(mut bytes: &[u8]) -> Vec<Step<'_>> {
    let mut steps = Vec::new();
    while let Some((&[kind, high, low], rest)) = bytes.split_first_chunk::<3>() {
        let length = usize::from(u16::from_be_bytes([high, low])).min(rest.len());
        let (body, rest) = rest.split_at(length);
        steps.push(match kind % 4 {
            0 | 1 => Step::Bytes(body),
            2 => Step::Bulk(
                u64::from(body.first().copied().unwrap_or(0)),
                body.get(1..).unwrap_or_default(),
            ),
            _ => Step::Pause,
        });
        bytes = rest;
    }
    steps
}

/// The visible results of a script.
#[derive(Debug, PartialEq)]
struct Seen {
    heard: Vec<String>,
    answered: Vec<Vec<u8>>,
    garbled: Option<String>,
    counted: BTreeMap<String, f64>,
}

async fn play(steps: &[Step<'_>], bytewise: bool) -> Result<Seen, String> {
    let node = node("victim")
        .role(Role::Master)
        .accepts(&Role::ALL)
        .build();
    let heard = Arc::default();
    let listener = node
        .spawn("listener", Listener(Arc::clone(&heard)))
        .map_err(|error| error.to_string())?;
    let peer = Peer {
        node: NodeId::new("peer", EPOCH),
        role: Role::Agent,
        address: String::new(),
    };
    let hello = Hello {
        frames: Hello::FRAMES,
        node: peer.node.clone(),
        role: peer.role,
        accepts: BTreeMap::new(),
    };
    let link = node
        .attach(peer, hello, Dialled::ByThem)
        .map_err(|error| error.to_string())?;
    let (mut arrived, mut garbled) = (BytesMut::new(), None);
    for step in steps {
        let delivered = match step {
            Step::Bytes(bytes) if bytewise => bytes.iter().try_for_each(|byte| {
                arrived.extend_from_slice(&[*byte]);
                link.deliver(&mut arrived)
            }),
            Step::Bytes(bytes) => {
                arrived.extend_from_slice(bytes);
                STEP.enforce(arrived.len(), || link.deliver(&mut arrived))?
            }
            Step::Bulk(token, body) => {
                let body = Bytes::copy_from_slice(body);
                STEP.enforce(body.len() + arrived.len(), || {
                    link.deliver_bulk(*token, body)
                })?
            }
            Step::Pause => {
                node.clock().settle().await;
                Ok(())
            }
        };
        if let Err(error) = delivered {
            garbled = Some(error.reason);
            break;
        }
    }
    node.clock().settle().await;
    let answered = answers(&link);
    let counted = node.counters();
    let counted = counted
        .into_iter()
        .filter(|(name, _)| name.starts_with("links/"))
        .collect();
    link.close(garbled.as_deref().unwrap_or("the script is over"));
    node.clock().settle().await;
    if node.whereis("listener") != Some(listener.pid()) {
        return Err("the listener is gone".to_owned());
    }
    node.shutdown().await;
    let heard = std::mem::take(&mut *heard.lock().unwrap_or_else(PoisonError::into_inner));
    Ok(Seen {
        heard,
        answered,
        garbled,
        counted,
    })
}

/// The outgoing frames, sorted by bytes: the order of replies depends on the pauses.
fn answers(link: &Link) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for lane in [Lane::Ordinary, Lane::Ping] {
        let mut taken = BytesMut::new();
        while let Some(Outgoing::Batch) = link.outgoing(lane, &mut taken, 1 << 20).now_or_never() {}
        let mut rest = &taken[..];
        while let Some((length, after)) = rest.split_first_chunk::<4>() {
            let length = u32::from_be_bytes(*length) as usize;
            let Some((frame, after)) = after.split_at_checked(length) else {
                all.push(rest.to_vec());
                break;
            };
            all.push(frame.to_vec());
            rest = after;
        }
    }
    all.sort();
    all
}

fn check(bytes: &[u8]) -> Verdict {
    let steps = script(bytes);
    let whole = run_simulated(play(&steps, false))?;
    let bytewise = run_simulated(play(&steps, true))?;
    if whole != bytewise {
        return Err(format!(
            "as they came {whole:?}, but byte by byte {bytewise:?}"
        ));
    }
    whole.garbled.as_ref().map_or(Ok(()), rejected)
}

/// The target.
pub fn target() -> Target {
    Target::new("link", check, |rng| Some(random_script(rng)))
}

fn random_script(rng: &mut Rng) -> Vec<u8> {
    let mut script = Vec::new();
    for _ in 0..1 + rng.below(6) {
        let kind = rng.below(4) as u8;
        let mut body = Vec::new();
        match kind {
            2 => body.extend([rng.below(3) as u8, rng.below(100) as u8]),
            3 => {}
            _ => {
                for _ in 0..1 + rng.below(4) {
                    let inner = frame(rng);
                    // Equal frames in sequence are gathered.
                    for _ in 0..1 + rng.below(3) {
                        body.extend((inner.len() as u32).to_be_bytes());
                        body.extend(&inner);
                    }
                    // Tells with an elided header, in both forms, also where they are invalid.
                    for _ in 0..rng.below(3) {
                        let said = rng.below(250) as u8;
                        match rng.below(9) {
                            0..=4 => body.extend([0x80, 1, said]),
                            5..=6 => body.extend([0, 0, 0, 2, 11, said]),
                            7 => body.extend([0x80, 0]),
                            _ => body.extend([0x90, 0]),
                        }
                    }
                }
            }
        }
        script.push(kind);
        script.extend((body.len() as u16).to_be_bytes());
        script.extend(body);
    }
    script
}

/// A frame as a peer might send it, without its length. Written by hand from the description in
/// `runtime/src/wire/frame.rs`.
pub fn frame(rng: &mut Rng) -> Vec<u8> {
    let text = |text: &str| [&(text.len() as u16).to_be_bytes()[..], text.as_bytes()].concat();
    let target = |rng: &mut Rng| {
        let incarnation = *rng.pick(&[LISTENER, LISTENER, 0, 9]);
        let name = *rng.pick(&["listener", "nobody", ""]);
        [&incarnation.to_be_bytes()[..], &text(name)].concat()
    };
    let correlation = (rng.below(4) as u64).to_be_bytes();
    match rng.below(14) {
        0..=7 => envelope(rng),
        8 => {
            let outcome = match rng.below(6) as u8 {
                status @ 3..=4 => [&[status][..], &text("because")].concat(),
                0 => vec![0, 7],
                status => vec![status],
            };
            [&[3][..], &correlation, &outcome].concat()
        }
        9 => [&[4][..], &target(rng)].concat(),
        10 => [&[5][..], &target(rng)].concat(),
        11 => {
            let reason = match rng.below(4) as u8 {
                reason @ 1..=2 => [&[reason][..], &text("because")].concat(),
                reason => vec![reason],
            };
            [&[6][..], &target(rng), &reason].concat()
        }
        12 => match rng.one_in(2) {
            true => [&[7][..], &correlation, &text("listener")].concat(),
            false => [&[8][..], &correlation, &[0, 0, 0, 0, 0, 0, 0, 1]].concat(),
        },
        _ if rng.one_in(4) => vec![10],
        _ => {
            let token = (rng.below(3) as u64).to_be_bytes();
            let header = match rng.one_in(4) {
                true => [&[3][..], &correlation, &[0]].concat(),
                false => {
                    let mut whole = envelope(rng);
                    whole.truncate(23);
                    whole
                }
            };
            [&[9][..], &token, &1_u64.to_be_bytes(), &header].concat()
        }
    }
}

fn envelope(rng: &mut Rng) -> Vec<u8> {
    let (id, body) = match rng.below(5) {
        0..=1 => (Note::ID, vec![rng.below(250) as u8]),
        2 => (Count::ID, vec![2, b'a', b'b']),
        3 => (Ping::ID, Vec::new()),
        _ => (Order::ID, Vec::new()),
    };
    let asks = rng.one_in(3);
    let lane = if id == Ping::ID { 0x80 } else { 0 };
    let mut bytes = vec![lane | if asks { 2 } else { 1 }];
    bytes.extend(id.to_be_bytes());
    bytes.extend(1_u16.to_be_bytes());
    if rng.one_in(4) {
        bytes.extend(0_u64.to_be_bytes());
        bytes.extend([0, 8]);
        bytes.extend(b"listener");
    } else {
        bytes.extend(LISTENER.to_be_bytes());
    }
    if rng.one_in(2) {
        bytes.extend(3_u64.to_be_bytes());
        bytes.extend(EPOCH.to_be_bytes());
        bytes.extend([0, 4]);
        bytes.extend(b"them");
    } else {
        bytes.extend(0_u64.to_be_bytes());
    }
    if asks {
        bytes.extend((rng.below(4) as u64).to_be_bytes());
    }
    bytes.extend(body);
    bytes
}
