//! What the runtime adds to actix, and what a message costs on its way through a link.
//!
//! Each case runs in criterion, and once more in rounds of its own in which ours and the limit take
//! turns. Those figures are printed as one line of JSON each: `figure` is ours and `limit` what it is
//! held against, both in nanoseconds per message (the median round), and `ratio` the first by the second. Nanoseconds are processor time of the
//! one thread, save for `fan_in_threads`.
#![allow(missing_docs)]
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "it measures real time"
)]
#![allow(
    clippy::unwrap_used,
    reason = "a bench that cannot go on has nothing to measure"
)]

#[path = "local/layers.rs"]
mod layers;
#[path = "load.rs"]
mod load;

use std::cell::Cell;
use std::hint::black_box;
use std::rc::Rc;
use std::time::{Duration, Instant};

use actix::prelude::{Actor, Addr, Handler, Message};
use bytes::BytesMut;
use criterion::Criterion;
use futures_util::FutureExt;
use layers::{BOUND, ENVELOPE, Held, METRICS, NAME, RAW};
use runtime::prelude::{Handle, Node, Patience, Pid, Process, RemoteHandlers, Role, remote};
use runtime::{Dialled, Hello, Lane, Link, Outgoing, Peer};
use serde::{Deserialize, Serialize};
use tokio::task::LocalSet;

/// Messages told before the actor gets its turn.
const BURST: u64 = 1000;
const BURSTS: u64 = 30;
const ASKS: u64 = 10_000;
const ROUNDS: usize = 101;
/// What one side of a link may take for a message, in nanoseconds.
const LINK_LIMIT: f64 = 200.0;

#[derive(Message)]
#[rtype(result = "u64")]
struct Add(u64);

/// A hundred bytes for an actor elsewhere.
#[derive(Serialize, Deserialize)]
struct Parcel {
    number: u64,
    text: String,
}
remote! { Parcel = "bench/parcel" v1 -> u64 }

struct Raw(u64);
impl Actor for Raw {
    type Context = actix::Context<Self>;
}
impl Handler<Add> for Raw {
    type Result = u64;
    fn handle(&mut self, Add(more): Add, _: &mut Self::Context) -> u64 {
        self.0 = self.0.wrapping_add(more);
        self.0
    }
}

struct Ours(Rc<Cell<u64>>);
impl Actor for Ours {
    type Context = runtime::Context<Self>;
}
impl Process for Ours {
    fn accepts(handlers: &mut RemoteHandlers<Self>) {
        handlers.accept::<Parcel>(&[Role::Agent]);
    }
}
impl Handler<Add> for Ours {
    type Result = u64;
    fn handle(&mut self, Add(more): Add, _: &mut Self::Context) -> u64 {
        self.0.set(self.0.get().wrapping_add(more));
        self.0.get()
    }
}
impl Handler<Parcel> for Ours {
    type Result = u64;
    fn handle(&mut self, parcel: Parcel, _: &mut Self::Context) -> u64 {
        self.0
            .set(self.0.get() + black_box(parcel.text.len()) as u64 / 90);
        parcel.number
    }
}

fn node(name: &str, role: Role) -> Node {
    Node::builder(name)
        .role(role)
        .accepts(&Role::ALL)
        .seed(7)
        .build()
}

/// One of ours on a node of its own.
fn ours() -> (Node, Handle<Ours>) {
    let node = node("node", Role::Master);
    let handle = node.supervise("ours", runtime::Supervision::Stop, || Ours(Rc::default()));
    (node, handle.unwrap())
}

async fn tell_raw(actor: &Addr<Raw>, bursts: u64) {
    for _ in 0..bursts {
        (0..BURST).for_each(|number| actor.do_send(Add(number)));
        tokio::task::yield_now().await;
    }
    actor.send(Add(0)).await.unwrap();
}

async fn tell_ours(actor: &Handle<Ours>, bursts: u64) {
    for _ in 0..bursts {
        (0..BURST).for_each(|number| actor.tell(Add(number)).unwrap());
        tokio::task::yield_now().await;
    }
    actor.ask(Add(0), Patience::WhileLinked).await.unwrap();
}

async fn tell_layered<const LAYERS: u8>(actor: &Held<LAYERS>, bursts: u64) {
    for _ in 0..bursts {
        (0..BURST).for_each(|number| actor.tell(number));
        tokio::task::yield_now().await;
    }
    black_box(actor.caught_up().await);
}

async fn ask_raw(actor: &Addr<Raw>, asks: u64) {
    for number in 0..asks {
        black_box(actor.send(Add(number)).await.unwrap());
    }
}

async fn ask_ours(actor: &Handle<Ours>, asks: u64, patience: Patience) {
    for number in 0..asks {
        black_box(actor.ask(Add(number), patience).await.unwrap());
    }
}

/// Two nodes on this thread, and both ends of a link whose bytes the bench moves itself.
struct Across {
    sender: Node,
    ends: [Link; 2],
    actor: Pid,
    handle: Handle<Ours>,
    buffers: [BytesMut; 2],
}

impl Across {
    fn new() -> Self {
        let (sender, (receiver, handle)) = (node("sender", Role::Agent), ours());
        let attach = |here: &Node, there: &Node, dialled| {
            let (id, role) = (there.id().clone(), there.role());
            let peer = Peer {
                node: id,
                role,
                address: String::new(),
            };
            here.attach(peer, Hello::decode(&there.hello()).unwrap(), dialled)
                .unwrap()
        };
        let ends = [
            attach(&sender, &receiver, Dialled::ByUs),
            attach(&receiver, &sender, Dialled::ByThem),
        ];
        Self {
            actor: handle.pid(),
            sender,
            ends,
            handle,
            buffers: Default::default(),
        }
    }

    /// From `tell` into the sender's buffer, and from there into the actor's mailbox: nanoseconds per
    /// message for each of the two.
    async fn tell(&mut self, bursts: u64) -> [f64; 2] {
        let [from, to] = &self.ends;
        let [taken, arrived] = &mut self.buffers;
        let mut spent = [Duration::ZERO; 2];
        for _ in 0..bursts {
            let start = busy();
            for number in 0..BURST {
                let text = black_box("x").repeat(90);
                self.sender
                    .tell(&self.actor, Parcel { number, text })
                    .unwrap();
            }
            let mut pieces = Vec::new();
            while let Some(outgoing) = from.outgoing(Lane::Ordinary, taken, 1 << 20).now_or_never()
            {
                assert_eq!(outgoing, Outgoing::Batch);
                pieces.push(std::mem::take(taken)); // What a transport's writer and reader do is not ours.
            }
            let sent = busy();
            for piece in pieces {
                arrived.extend_from_slice(&piece);
                to.deliver(arrived).unwrap();
            }
            spent[0] += sent - start;
            spent[1] += busy() - sent;
            tokio::task::yield_now().await;
        }
        self.handle
            .ask(Add(0), Patience::WhileLinked)
            .await
            .unwrap();
        spent.map(|spent| spent.as_nanos() as f64 / (bursts * BURST) as f64)
    }
}

/// Processor time of this thread: other work on the machine does not count.
fn busy() -> Duration {
    let time = nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID.now().unwrap();
    Duration::from(time)
}

/// Nanoseconds of this thread per message.
async fn timed(messages: u64, work: impl Future<Output = ()>) -> f64 {
    let start = busy();
    work.await;
    (busy() - start).as_nanos() as f64 / messages as f64
}

/// Nanoseconds per message, whoever spends them.
async fn timed_on_all(messages: u64, work: impl Future<Output = ()>) -> f64 {
    let start = Instant::now();
    work.await;
    start.elapsed().as_nanos() as f64 / messages as f64
}

fn median(rounds: impl Iterator<Item = f64>) -> f64 {
    let mut rounds: Vec<f64> = rounds.collect();
    rounds.sort_by(f64::total_cmp);
    rounds[rounds.len() / 2]
}

/// Prints one case from its rounds, each of ours beside its limit. The ratio is the median of theirs, so
/// that a noisy stretch of the machine counts for both sides.
fn print(name: &str, rounds: &[[f64; 2]], parameters: &str) {
    print_in("ns/message", name, rounds, parameters);
}

/// The same in another unit.
fn print_in(unit: &str, name: &str, rounds: &[[f64; 2]], parameters: &str) {
    let [figure, limit] = [0, 1].map(|side| median(rounds.iter().map(|round| round[side])));
    let ratio = median(rounds.iter().map(|[ours, limit]| ours / limit));
    println!(
        r#"{{"bench":"runtime/{name}","figure":{figure:.1},"unit":{unit:?},"limit":{limit:.1},"ratio":{ratio:.3},"parameters":{parameters:?}}}"#
    );
}

async fn side_by_side() {
    let (raw, (_node, actor)) = (Raw(0).start(), ours());
    let (linked, second) = (Patience::WhileLinked, Patience::For(Duration::from_secs(1)));
    let mut across = Across::new();
    let mut rounds: [Vec<[f64; 2]>; 5] = Default::default();
    for _ in 0..ROUNDS {
        let raw_tell = timed(BURST * BURSTS, tell_raw(&raw, BURSTS)).await;
        let tell = timed(BURST * BURSTS, tell_ours(&actor, BURSTS)).await;
        let raw_ask = timed(ASKS, ask_raw(&raw, ASKS)).await;
        let ask = timed(ASKS, ask_ours(&actor, ASKS, linked)).await;
        let patient = timed(ASKS, ask_ours(&actor, ASKS, second)).await;
        let [sent, delivered] = across.tell(BURSTS).await;
        let round = [
            [tell, raw_tell],
            [ask, raw_ask],
            [patient, raw_ask],
            [sent, LINK_LIMIT],
            [delivered, LINK_LIMIT],
        ];
        rounds
            .iter_mut()
            .zip(round)
            .for_each(|(rounds, round)| rounds.push(round));
    }
    let [tells, asks, patient, sent, delivered] = rounds;
    print(
        "local_tell",
        &tells,
        "Handle::tell by actix do_send, one thread, bursts of 1000",
    );
    print(
        "local_ask",
        &asks,
        "Handle::ask while linked by actix send, one thread, one at a time",
    );
    print(
        "local_ask_patient",
        &patient,
        "Handle::ask with one second by actix send, which has no patience",
    );
    print(
        "link_send",
        &sent,
        "100 bytes: making it, Node::tell, encoding, taking the batch",
    );
    print(
        "link_deliver",
        &delivered,
        "100 bytes: reading the frame, decoding, into the mailbox",
    );
}

/// What the layers around a local tell cost, each on top of those before it, beside raw actix; all in every round.
async fn layer_by_layer() {
    let (raw, (_node, actor)) = (Raw(0).start(), ours());
    let bare = Held::<RAW>::start();
    let (named, bounded) = (Held::<NAME>::start(), Held::<BOUND>::start());
    let (enveloped, counted) = (Held::<ENVELOPE>::start(), Held::<METRICS>::start());
    let count = BURST * BURSTS;
    let mut rounds: [Vec<[f64; 2]>; 6] = Default::default();
    for _ in 0..ROUNDS {
        let limit = timed(count, tell_raw(&raw, BURSTS)).await;
        let round = [
            timed(count, tell_layered(&bare, BURSTS)).await,
            timed(count, tell_layered(&named, BURSTS)).await,
            timed(count, tell_layered(&bounded, BURSTS)).await,
            timed(count, tell_layered(&enveloped, BURSTS)).await,
            timed(count, tell_layered(&counted, BURSTS)).await,
            timed(count, tell_ours(&actor, BURSTS)).await,
        ];
        for (rounds, figure) in rounds.iter_mut().zip(round) {
            rounds.push([figure, limit]);
        }
    }
    let names = [
        (
            "layers/0_message",
            "actix do_send of the message with room for the layers",
        ),
        (
            "layers/1_name",
            "and through a handle with a name, which survives restarts",
        ),
        (
            "layers/2_bound",
            "and a place taken in a bounded mailbox, given back when handled",
        ),
        (
            "layers/3_envelope",
            "and an envelope that says where the message came from",
        ),
        (
            "layers/4_metrics",
            "and counted by type, one in 64 timed, the oldest's age known",
        ),
        (
            "layers/5_all",
            "Handle::tell: and turns, errands, watchdog, tap and panics",
        ),
    ];
    for ((name, parameters), rounds) in names.into_iter().zip(rounds) {
        print(name, &rounds, parameters);
    }
}

/// Loads of several actors, each beside raw actix: nanoseconds for an actor or a message.
async fn crowds() {
    const SENDERS: u64 = 8;
    const EACH: u64 = 20_000;
    let mut rounds: [Vec<[f64; 2]>; 4] = Default::default();
    for _ in 0..ROUNDS / 5 {
        let home = node("crowds", Role::Master);
        let told = SENDERS * EACH;
        let spawned = [
            timed(10_000, async {
                drop(load::ours::spawn(&home, 10_000).await)
            })
            .await,
            timed(10_000, async { drop(load::raw::spawn(&(), 10_000).await) }).await,
        ];
        let by_actors = [
            timed(told, load::ours::fan_in(&home, SENDERS, EACH)).await,
            timed(told, load::raw::fan_in(&(), SENDERS, EACH)).await,
        ];
        let by_threads = [
            timed_on_all(told, load::ours::fan_in_threads(&home, SENDERS, EACH)).await,
            timed_on_all(told, load::raw::fan_in_threads(&(), SENDERS, EACH)).await,
        ];
        let (ours, raw) = (
            load::ours::Ring::start(&home, 1000, 1),
            load::raw::Ring::start(&(), 1000, 1),
        );
        let ring = [
            timed(told, ours.turn(told)).await,
            timed(told, raw.turn(told)).await,
        ];
        home.shutdown().await;
        for (rounds, round) in rounds
            .iter_mut()
            .zip([spawned, by_actors, by_threads, ring])
        {
            rounds.push(round);
        }
    }
    let names = [
        (
            "spawn",
            "Node::spawn_unnamed of 10,000 by actix start, until all have begun",
        ),
        ("fan_in", "8 actors tell one, one thread"),
        ("fan_in_threads", "8 threads tell one actor"),
        ("ring", "one token passed on round 1,000 actors, one thread"),
    ];
    for ((name, parameters), rounds) in names.into_iter().zip(rounds) {
        let unit = if name == "spawn" {
            "ns/actor"
        } else {
            "ns/message"
        };
        print_in(unit, name, &rounds, parameters);
    }
}

/// Memory of an idle actor. First of all, while the process has let go of nothing.
async fn memory() {
    let home = node("memory", Role::Master);
    let figure = load::memory(&home, 100_000).await;
    let parameters = "resident memory for each of 100,000 idle actors";
    print_in("bytes/actor", "actor_memory", &[figure], parameters);
    home.shutdown().await;
}

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    LocalSet::new().block_on(&runtime, memory());
    LocalSet::new().block_on(&runtime, side_by_side());
    LocalSet::new().block_on(&runtime, layer_by_layer());
    LocalSet::new().block_on(&runtime, crowds());

    let mut criterion = Criterion::default()
        .sample_size(10)
        .measurement_time(Duration::from_secs(1))
        .warm_up_time(Duration::from_millis(200))
        .configure_from_args();
    let mut group = criterion.benchmark_group("local");
    let local = LocalSet::new();
    let (raw, (_node, actor)) = local.block_on(&runtime, async { (Raw(0).start(), ours()) });
    group.bench_function("tell 1000", |b| {
        b.iter(|| local.block_on(&runtime, tell_ours(&actor, 1)))
    });
    group.bench_function("actix do_send 1000", |b| {
        b.iter(|| local.block_on(&runtime, tell_raw(&raw, 1)))
    });
    let linked = Patience::WhileLinked;
    group.bench_function("ask", |b| {
        b.iter(|| local.block_on(&runtime, ask_ours(&actor, 1, linked)))
    });
    group.bench_function("actix send", |b| {
        b.iter(|| local.block_on(&runtime, ask_raw(&raw, 1)))
    });
    let home = local.block_on(&runtime, async { node("home", Role::Master) });
    group.bench_function("fan-in 8 x 1000", |b| {
        b.iter(|| local.block_on(&runtime, load::ours::fan_in(&home, 8, 1000)))
    });
    group.bench_function("actix fan-in 8 x 1000", |b| {
        b.iter(|| local.block_on(&runtime, load::raw::fan_in(&(), 8, 1000)))
    });
    group.finish();
    criterion.final_summary();
}
