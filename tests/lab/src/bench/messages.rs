//! `meros-lab bench messages`: messages between actors, on one thread and over QUIC on the
//! loopback.
//!
//! - Local: the same actor on the runtime and on raw actix, on one thread.
//! - Remote: tells between two threads, and asks on one, beside a bare quinn stream that moves the
//!   same payloads on the same threads. A frame of the bare stream is a length, an id of four bytes
//!   and the payload, built before the measurement; it has the certificates, limits and batching of
//!   a link, but no lanes, codec or actors. Parameters have the CPU time of a tell on each thread
//!   and the bytes of a frame. A single ask never gives two threads work at once: between two
//!   threads the result would be the time in which an idle core wakes.
//! - Pings: alone, and while large transfers or a flood of messages share the connection. Large
//!   messages are made and received, and all load is sent, on separate threads. A lost ping is an
//!   error.

use std::hint::black_box;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use actix::prelude::{Actor, Handler};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use clap::Args;
use futures_util::FutureExt;
use meros::on_this_thread;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;
use quinn::{Connection, RecvStream, SendStream, TokioRuntime, VarInt};
use runtime::prelude::*;
use runtime::wire::codec;
use runtime::{Clock, Dialled, Hello, Instant, Outgoing, Place, Placement};
use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::json;
use tokio::sync::oneshot;
use transport::{Authority, Endpoint, Identity, Options, config, server_name};

use super::agents::any_port;
use super::{Figure, OutputFlags, Result, Times, cores, rounded};

/// Messages sent before other tasks of the thread get a turn.
const BURST: u64 = 1000;
const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes that the link of tells holds.
const OUTGOING_MAX: usize = 1 << 20;

/// Rate of messages between actors
#[derive(Args, Clone, Copy, Debug)]
#[command(rename_all = "snake_case")]
pub struct MessagesArgs {
    /// Messages in each round
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1000..=100_000_000))]
    tells: u64,
    /// Requests in each round
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    asks: u64,
    /// Rounds; the best one counts, since other work on the machine can only slow them
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Pings alone, as many during large transfers, and as many during a flood
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(10..=100_000))]
    pings: u32,
    #[command(flatten)]
    output: OutputFlags,
}

/// `meros-lab bench messages`, on this thread and others.
pub fn run(args: &MessagesArgs) -> Result {
    let args = *args;
    let (tells, tell_costs) =
        beside_server(OUTGOING_MAX, async move |servers| servers.tells(args).await)?;
    let asks = on_this_thread(async {
        let (master, agent) = identities()?;
        let (servers, end, serving) = serve(master);
        tokio::task::spawn_local(serving);
        let measured = Servers::connect(&agent, servers.await?, OUTGOING_MAX)
            .await?
            .asks(args)
            .await;
        drop(end);
        measured
    })??;
    let [alone, transfers, flood] = beside_server(3 * TRANSFER, async move |servers| {
        servers.pings(args.pings).await
    })?;
    let [local_tells, local_asks] = on_this_thread(local(args))??;

    let parameters = |messages: u64, threads: u32| json!({ "messages": messages, "rounds": args.rounds, "threads": threads, "cores": cores() });
    let mut told = parameters(args.tells, 2);
    for (name, value) in tell_costs {
        told[name] = rounded(value).into();
    }
    let rate = |bench, best: Best, limit_is, parameters| {
        let figure = Figure::new(bench, best.ours, "messages/s");
        figure.beside(best.limit, limit_is).with(parameters)
    };
    let ping = |bench, (times, transferred): &(Times, u64)| {
        Figure::new(bench, times.ms(0.99), "ms, p99")
            .beside(alone.0.ms(0.99), "the same ping, alone")
            .with(json!({
                "pings": args.pings, "p50": rounded(times.ms(0.5)),
                "p50_limit": rounded(alone.0.ms(0.5)),
                "transfer": TRANSFER, "transferred": transferred,
            }))
    };
    let bare = "a bare quinn stream, same payloads";
    let there_and_back = "the same there and back, one at a time";
    let (one_tell, one_ask) = (parameters(args.tells, 1), parameters(args.asks, 1));
    args.output.report(&[
        rate("remote_tell", tells, bare, told),
        rate("remote_ask", asks, there_and_back, one_ask.clone()),
        rate(
            "local_tell",
            local_tells,
            "raw actix do_send, same actor",
            one_tell,
        ),
        rate(
            "local_ask",
            local_asks,
            "raw actix send, same actor",
            one_ask,
        ),
        ping("ping_beside_transfers", &transfers),
        ping("ping_beside_flood", &flood),
    ]);
    Ok(())
}

/// The best rates, in messages per second.
#[derive(Clone, Copy, Default)]
struct Best {
    ours: f64,
    limit: f64,
}

fn keep_best(best: &mut f64, count: u64, clock: &Clock, since: Instant) {
    let seconds = (clock.now() - since).as_secs_f64().max(f64::EPSILON);
    *best = best.max(count as f64 / seconds);
}

/// Added by the local actor, which is the same for raw actix and for the runtime.
#[derive(actix::Message)]
#[rtype(result = "u64")]
struct Add(u64);

struct Raw(u64);
struct Ours(u64);

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

impl Actor for Ours {
    type Context = Context<Self>;
}

impl Process for Ours {}

impl Handler<Add> for Ours {
    type Result = u64;
    fn handle(&mut self, Add(more): Add, _: &mut Self::Context) -> u64 {
        self.0 = self.0.wrapping_add(more);
        self.0
    }
}

/// Tells and asks on one thread.
async fn local(args: MessagesArgs) -> Result<[Best; 2]> {
    let node = Node::builder("bench").build();
    let (ours, raw, clock) = (node.spawn("ours", Ours(0))?, Raw(0).start(), Clock::real());
    let (bursts, count) = (args.tells / BURST, args.tells / BURST * BURST);
    let [mut tell, mut ask] = [Best::default(); 2];
    for _ in 0..args.rounds {
        let since = clock.now();
        for _ in 0..bursts {
            (0..BURST).for_each(|number| raw.do_send(Add(number)));
            tokio::task::yield_now().await;
        }
        raw.send(Add(0)).await?;
        keep_best(&mut tell.limit, count, &clock, since);

        let since = clock.now();
        for _ in 0..bursts {
            (0..BURST).try_for_each(|number| ours.tell(Add(number)))?;
            tokio::task::yield_now().await;
        }
        ours.ask(Add(0), Patience::WhileLinked).await?;
        keep_best(&mut tell.ours, count, &clock, since);

        let since = clock.now();
        for number in 0..args.asks {
            black_box(raw.send(Add(number)).await?);
        }
        keep_best(&mut ask.limit, args.asks, &clock, since);

        let since = clock.now();
        for number in 0..args.asks {
            black_box(ours.ask(Add(number), Patience::WhileLinked).await?);
        }
        keep_best(&mut ask.ours, args.asks, &clock, since);
    }
    node.shutdown().await;
    Ok([tell, ask])
}

/// A message of a hundred bytes on the wire, header included: numbers that cannot be encoded
/// shorter.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct Carried {
    numbers: [u64; 8],
}

impl Carried {
    fn new(number: u64) -> Self {
        Self {
            numbers: [u64::MAX - number; 8],
        }
    }
}

/// Returns the tells since the last call, and the CPU time of the actor's thread in nanoseconds.
#[derive(Serialize, Deserialize)]
struct Counted;

/// Returns the first number.
#[derive(Serialize, Deserialize)]
struct Echo(Carried);

/// A ping.
#[derive(Serialize, Deserialize)]
struct Probe;

/// A large state, as plain bytes.
struct Large(Vec<u8>);

runtime::remote! {
    Carried = "measure/carried" v1;
    Counted = "measure/counted" v1 -> (u64, u64);
    Echo = "measure/echo" v1 -> u64;
    Probe = "measure/probe" v1 lane Ping -> ();
    Large = "measure/large" v1 -> u64
}

impl Serialize for Large {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for Large {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct Bytes;
        impl Visitor<'_> for Bytes {
            type Value = Large;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("bytes")
            }
            fn visit_bytes<E>(self, bytes: &[u8]) -> std::result::Result<Large, E> {
                Ok(Large(bytes.to_vec()))
            }
        }
        deserializer.deserialize_bytes(Bytes)
    }
}

/// Receives and counts.
#[derive(Default)]
struct Sink {
    count: u64,
}

impl Actor for Sink {
    type Context = Context<Self>;
}

impl Process for Sink {
    fn accepts(handlers: &mut RemoteHandlers<Self>) {
        handlers.accept::<Carried>(&[Role::Agent]);
        handlers.accept::<Counted>(&[Role::Agent]);
        handlers.accept::<Echo>(&[Role::Agent]);
        handlers.accept::<Probe>(&[Role::Agent]);
        handlers.accept::<Large>(&[Role::Agent]);
    }
}

impl Handler<Carried> for Sink {
    type Result = ();
    fn handle(&mut self, _: Carried, _: &mut Context<Self>) {
        self.count += 1;
    }
}

impl Handler<Counted> for Sink {
    type Result = MessageResult<Counted>;
    fn handle(&mut self, _: Counted, _: &mut Context<Self>) -> Self::Result {
        let spent = thread_time().unwrap_or_default();
        MessageResult((std::mem::take(&mut self.count), spent.as_nanos() as u64))
    }
}

impl Handler<Echo> for Sink {
    type Result = u64;
    fn handle(&mut self, Echo(carried): Echo, _: &mut Context<Self>) -> u64 {
        carried.numbers[0]
    }
}

impl Handler<Probe> for Sink {
    type Result = ();
    fn handle(&mut self, _: Probe, _: &mut Context<Self>) {}
}

impl Handler<Large> for Sink {
    type Result = u64;
    fn handle(&mut self, Large(bytes): Large, _: &mut Context<Self>) -> u64 {
        bytes.len() as u64
    }
}

/// The CPU time of the calling thread since it began.
fn thread_time() -> Result<Duration> {
    let usage = getrusage(UsageWho::RUSAGE_THREAD)?;
    let spent = |time: TimeVal| {
        Duration::from_secs(time.tv_sec() as u64) + Duration::from_micros(time.tv_usec() as u64)
    };
    Ok(spent(usage.user_time()) + spent(usage.system_time()))
}

fn identities() -> Result<(Identity, Identity)> {
    let authority = Authority::create()?;
    let agent = authority.issue(Role::Agent, "agent-1")?;
    Ok((authority.issue(Role::Master, "master-1")?, agent))
}

/// The receiver of large messages. It has its own thread, because freeing one takes long.
const STORE: &str = "store";

/// The addresses of the two servers: the node's, and the bare one.
type Addresses = (SocketAddr, SocketAddr);

/// The two servers, which run in the returned future until the sender is dropped.
fn serve(
    identity: Identity,
) -> (
    oneshot::Receiver<Addresses>,
    oneshot::Sender<()>,
    impl Future<Output = Result>,
) {
    let (serving, served) = oneshot::channel();
    let (end, ended) = oneshot::channel();
    let run = async move {
        let node = Node::builder("master-1")
            .role(Role::Master)
            .accepts(&[Role::Agent])
            .placement(Placement::here().put(STORE, Place::OwnThread))
            .build();
        node.spawn("sink", Sink::default())?;
        node.spawn(STORE, Sink::default())?;
        let endpoint = Endpoint::bind(node.clone(), &identity, any_port(), Options::default())?;
        let bare = bare_server(&identity)?;
        let addresses = (endpoint.address()?, bare.local_addr()?);
        serving.send(addresses).map_err(|_| "no client")?;
        let _ = ended.await; // It is dropped at the end.
        bare.close(VarInt::from_u32(0), b"measured");
        node.shutdown().await;
        endpoint.close().await;
        Ok(())
    };
    (served, end, run)
}

/// Measures on this thread, beside one with the servers.
fn beside_server<T>(
    outgoing_max: usize,
    measure: impl AsyncFnOnce(Servers) -> Result<T>,
) -> Result<T> {
    let (master, agent) = identities()?;
    let (servers, end, run) = serve(master);
    let server = std::thread::spawn(move || on_this_thread(run));
    let measured = on_this_thread(async move {
        let servers = Servers::connect(&agent, servers.await?, outgoing_max).await?;
        let measured = measure(servers).await;
        drop(end);
        measured
    });
    server.join().map_err(|_| "the server panicked")???;
    measured?
}

/// The measuring side: a node with its link, and a bare connection.
struct Servers {
    node: Node,
    _endpoint: Endpoint,
    bare: Connection,
    _bare_endpoint: quinn::Endpoint,
    sink: Pid,
    store: Pid,
    /// A frame of the bare stream.
    frame: Bytes,
}

impl Servers {
    /// The node's link holds this number of bytes.
    async fn connect(
        identity: &Identity,
        (ours, bare): Addresses,
        outgoing_max: usize,
    ) -> Result<Self> {
        let transfers = Placement::here().put("transfers", Place::OwnThread);
        let node = Node::builder("agent-1")
            .role(Role::Agent)
            .accepts(&[Role::Master])
            .placement(transfers.put("flood", Place::OwnThread))
            .outgoing_max(outgoing_max)
            .build();
        let endpoint = Endpoint::bind(node.clone(), identity, any_port(), Options::default())?;
        let options = Options::default();
        let client = config::client(identity, &options, node.clock(), &config::provider())?;
        let socket = config::socket(any_port(), options.socket_buffer)?;
        let setup = config::endpoint(identity, [1; 32])?;
        let bare_endpoint = quinn::Endpoint::new(setup, None, socket, Arc::new(TokioRuntime))?;
        let name = server_name(Role::Master);
        let ours = ours.to_string();
        let payload = codec::encode(&Carried::new(0))?;
        let mut frame = BytesMut::new();
        frame.put_u32(4 + payload.len() as u32);
        frame.put_u32(0x5a5a_5a5a);
        frame.extend_from_slice(&payload);
        Ok(Self {
            sink: node.find(&ours, "sink", PATIENCE).await?,
            store: node.find(&ours, STORE, PATIENCE).await?,
            node,
            _endpoint: endpoint,
            bare: bare_endpoint.connect_with(client, bare, &name)?.await?,
            _bare_endpoint: bare_endpoint,
            frame: frame.freeze(),
        })
    }

    /// The best rates of tells, and parameters with costs: the CPU time of a message on both
    /// threads, which other work on the machine disturbs less than the rate.
    async fn tells(&self, args: MessagesArgs) -> Result<(Best, Vec<(&'static str, f64)>)> {
        let (clock, mut best) = (self.node.clock(), Best::default());
        let (mut costs, mut bare_costs) = ([f64::MAX; 2], [f64::MAX; 2]);
        let keep = |costs: &mut [f64; 2], spent: [Duration; 2]| {
            for (cost, spent) in costs.iter_mut().zip(spent) {
                *cost = cost.min(spent.as_nanos() as f64 / args.tells as f64);
            }
        };
        let (sink, count) = (self.sink.clone(), args.tells);
        let teller = Generator::spawn(&self.node, "teller", sink, self.store.clone())?;
        for _ in 0..args.rounds {
            let (began, spent) = (clock.now(), thread_time()?);
            let there = tell_bare(&self.bare, &self.frame, count).await?;
            keep_best(&mut best.limit, count, clock, began);
            keep(&mut bare_costs, [thread_time()? - spent, there]);

            let (_, before) = self.node.ask(&self.sink, Counted, PATIENCE).await?;
            let (began, spent) = (clock.now(), thread_time()?);
            let work = Work::Tell(count);
            teller.ask(work, Patience::WhileLinked).await??;
            let (counted, after) = self.node.ask(&self.sink, Counted, PATIENCE).await?;
            if counted != count {
                return Err(format!("{counted} of {count} tells came through").into());
            }
            keep_best(&mut best.ours, count, clock, began);
            let there = Duration::from_nanos(after - before);
            keep(&mut costs, [thread_time()? - spent, there]);
        }
        let parameters = vec![
            ("payload", codec::encode(&Carried::new(0))?.len() as f64),
            ("frame", frame_of(&self.node)?),
            ("frame_limit", self.frame.len() as f64),
            ("sender_ns", costs[0]),
            ("receiver_ns", costs[1]),
            ("sender_ns_limit", bare_costs[0]),
            ("receiver_ns_limit", bare_costs[1]),
        ];
        Ok((best, parameters))
    }

    async fn asks(&self, args: MessagesArgs) -> Result<Best> {
        let (clock, mut best) = (self.node.clock(), Best::default());
        for _ in 0..args.rounds {
            let began = clock.now();
            let (mut send, mut receive) = self.bare.open_bi().await?;
            send.write_all(&[ASKING]).await?;
            let mut echo = vec![0; self.frame.len()];
            for _ in 0..args.asks {
                send.write_all(&self.frame).await?;
                receive.read_exact(&mut echo).await?;
            }
            send.finish()?;
            keep_best(&mut best.limit, args.asks, clock, began);
            let began = clock.now();
            for number in 0..args.asks {
                let echo = Echo(Carried::new(number));
                self.node.ask(&self.sink, echo, PATIENCE).await?;
            }
            keep_best(&mut best.ours, args.asks, clock, began);
        }
        Ok(best)
    }

    /// Pings alone, beside transfers, and beside a flood, each with the completed transfers.
    async fn pings(&self, pings: u32) -> Result<[(Times, u64); 3]> {
        let ping = async || {
            let (mut times, clock) = (Times::new()?, self.node.clock());
            for _ in 0..pings {
                let begun = clock.now();
                self.node.ask(&self.sink, Probe, PATIENCE).await?;
                times.record(clock.now() - begun)?;
                clock.sleep(Duration::from_millis(2)).await;
            }
            Result::Ok(times)
        };
        let beside = async |name, work: fn(Arc<AtomicBool>) -> Work| {
            let stop = Arc::new(AtomicBool::new(false));
            let (sink, store) = (self.sink.clone(), self.store.clone());
            let generator = Generator::spawn(&self.node, name, sink, store)?;
            let done = generator.ask(work(stop.clone()), Patience::WhileLinked);
            let times = ping().await?;
            stop.store(true, Ordering::Relaxed);
            let done = done.await??;
            generator.stop();
            self.node.ended(&generator.pid()).await;
            Result::Ok((times, done))
        };
        let alone = (ping().await?, 0);
        let transfers = beside("transfers", Work::Transfer).await?;
        let flood = beside("flood", Work::Flood).await?;
        Ok([alone, (transfers.0, transfers.1), (flood.0, transfers.1)])
    }
}

/// Bytes of a large transfer: nearly the maximum of a message.
const TRANSFER: usize = 63 << 20;
/// Large transfers in progress at once.
const TRANSFERS: usize = 2;
/// Small messages before one ask, which bounds the queue to somewhat more than a megabyte.
const WAVE: u64 = 16_000;

/// Sends messages from an actor.
struct Generator {
    sink: Pid,
    store: Pid,
    done: u64,
    /// Transfers under way.
    left: usize,
    finished: Option<Promise<std::result::Result<u64, String>>>,
    failed: Option<String>,
}

/// Answered with the number of messages.
#[derive(Clone)]
enum Work {
    /// This number of tells, as fast as the link accepts them.
    Tell(u64),
    /// Large messages, some at once, until the flag is set.
    Transfer(Arc<AtomicBool>),
    /// Waves of small messages, each after the previous one has arrived, until the flag is set.
    Flood(Arc<AtomicBool>),
}

impl Message for Work {
    type Result = std::result::Result<u64, String>;
}

impl Actor for Generator {
    type Context = Context<Self>;
}

impl Process for Generator {}

impl Handler<Work> for Generator {
    type Result = Reply<std::result::Result<u64, String>>;
    fn handle(&mut self, work: Work, ctx: &mut Context<Self>) -> Self::Result {
        let (promise, reply) = promise();
        (self.finished, self.left, self.done) = (Some(promise), 1, 0);
        match work {
            Work::Tell(count) => self.tell(count, ctx),
            Work::Flood(stop) => self.flood(&stop, ctx),
            Work::Transfer(stop) => {
                self.left = TRANSFERS;
                (0..TRANSFERS).for_each(|_| self.transfer(&stop, ctx));
            }
        }
        reply
    }
}

impl Generator {
    fn spawn(node: &Node, name: &str, sink: Pid, store: Pid) -> Result<Handle<Self>> {
        let generator = Self {
            sink,
            store,
            done: 0,
            left: 0,
            finished: None,
            failed: None,
        };
        Ok(node.spawn(name, generator)?)
    }

    fn tell(&mut self, count: u64, ctx: &mut Context<Self>) {
        for _ in 0..BURST.min(count - self.done) {
            match ctx.node().tell(&self.sink, Carried::new(self.done)) {
                Ok(()) => self.done += 1,
                Err(TellError::Full) => {
                    ctx.after(Duration::from_millis(1), move |this, ctx| {
                        this.tell(count, ctx);
                    });
                    return;
                }
                Err(error) => {
                    self.failed = Some(error.to_string());
                    return self.finish();
                }
            }
        }
        match self.done == count {
            true => self.finish(),
            false => {
                let turn = tokio::task::yield_now();
                ctx.then(turn, move |this, (), ctx| this.tell(count, ctx));
            }
        }
    }

    fn transfer(&mut self, stop: &Arc<AtomicBool>, ctx: &mut Context<Self>) {
        if stop.load(Ordering::Relaxed) || self.failed.is_some() {
            return self.finish();
        }
        let (large, stop) = (Large(vec![7; TRANSFER]), stop.clone());
        let asked = ctx.node().ask(&self.store, large, PATIENCE);
        ctx.then(asked, move |this, came, ctx| {
            match came {
                Ok(length) if length == TRANSFER as u64 => this.done += 1,
                other => this.failed = Some(format!("not all came: {other:?}")),
            }
            this.transfer(&stop, ctx);
        });
    }

    fn flood(&mut self, stop: &Arc<AtomicBool>, ctx: &mut Context<Self>) {
        if stop.load(Ordering::Relaxed) || self.failed.is_some() {
            return self.finish();
        }
        let mut told = (0..WAVE).map(|number| ctx.node().tell(&self.sink, Carried::new(number)));
        self.failed = told.find_map(|told| Some(told.err()?.to_string()));
        self.done += WAVE;
        let (asked, stop) = (ctx.node().ask(&self.sink, Counted, PATIENCE), stop.clone());
        ctx.then(asked, move |this, came, ctx| {
            let failed = came.err().map(|error| error.to_string());
            this.failed = this.failed.take().or(failed);
            this.flood(&stop, ctx);
        });
    }

    fn finish(&mut self) {
        self.left = self.left.saturating_sub(1);
        if self.left == 0
            && let Some(finished) = self.finished.take()
        {
            finished.answer(self.failed.take().map_or(Ok(self.done), Err));
        }
    }
}

/// Bytes of one tell on a link, in a sequence of [`BURST`], taken from a link without a peer.
fn frame_of(node: &Node) -> Result<f64> {
    let nowhere = Node::builder("nowhere").role(Role::Master).build();
    let hello = Hello::decode(&nowhere.hello())?;
    let peer = Peer {
        node: nowhere.id().clone(),
        role: Role::Master,
        address: String::new(),
    };
    let sink = Pid::new("sink", peer.node.clone(), 1);
    let link = node.attach(peer, hello, Dialled::ByUs)?;
    (0..BURST).try_for_each(|number| node.tell(&sink, Carried::new(number)))?;
    let (mut bytes, mut piece) = (0, BytesMut::new());
    loop {
        let outgoing = link.outgoing(Lane::Ordinary, &mut piece, usize::MAX);
        match outgoing.now_or_never() {
            Some(Outgoing::Batch) => bytes += std::mem::take(&mut piece).len(),
            None => return Ok(bytes as f64 / BURST as f64),
            Some(other) => return Err(format!("no frame to measure with: {other:?}").into()),
        }
    }
}

/// Maximum bytes of one write to the bare stream: the same as a link's.
const BATCH_MAX: usize = 256 << 10;
/// The first byte of a bare stream says how it is used.
const TELLING: u8 = 0;
const ASKING: u8 = 1;

/// The receiving side of bare streams: it counts frames, echoes each one of an asking stream, and
/// at the end of a telling stream sends the count and the CPU time of its thread.
fn bare_server(identity: &Identity) -> Result<quinn::Endpoint> {
    let options = Options::default();
    let mut server = config::server(identity, &options, &Clock::real(), &config::provider())?;
    if let Some(transport) = Arc::get_mut(&mut server.transport) {
        transport.max_concurrent_bidi_streams(VarInt::from_u32(16));
    }
    let socket = config::socket(any_port(), options.socket_buffer)?;
    let setup = config::endpoint(identity, [0; 32])?;
    let endpoint = quinn::Endpoint::new(setup, Some(server), socket, Arc::new(TokioRuntime))?;
    let accepting = endpoint.clone();
    tokio::spawn(async move {
        while let Some(incoming) = accepting.accept().await {
            let Ok(connection) = incoming.await else {
                continue;
            };
            tokio::spawn(async move {
                while let Ok((send, receive)) = connection.accept_bi().await {
                    tokio::spawn(serve_bare(send, receive));
                }
            });
        }
    });
    Ok(endpoint)
}

async fn serve_bare(mut send: SendStream, mut receive: RecvStream) -> Result {
    let mut usage = [0];
    receive.read_exact(&mut usage).await?;
    let began = thread_time()?;
    let (mut buffer, mut count) = (BytesMut::new(), 0_u64);
    while let Some(chunk) = receive.read_chunk(BATCH_MAX, true).await? {
        buffer.extend_from_slice(&chunk.bytes);
        while let Some(mut head) = buffer.get(..4) {
            let length = 4 + head.get_u32() as usize;
            if buffer.len() < length {
                break;
            }
            let frame = buffer.split_to(length);
            count += 1;
            if usage[0] == ASKING {
                send.write_all(&frame).await?;
            }
        }
    }
    if usage[0] == TELLING {
        let spent = (thread_time()? - began).as_nanos() as u64;
        send.write_all(&count.to_le_bytes()).await?;
        send.write_all(&spent.to_le_bytes()).await?;
    }
    Ok(send.finish()?)
}

/// Sends `frame` `count` times in writes of up to [`BATCH_MAX`] bytes and waits until the server
/// has counted all. Returns the CPU time of the server's thread.
async fn tell_bare(connection: &Connection, frame: &[u8], count: u64) -> Result<Duration> {
    let (mut send, mut receive) = connection.open_bi().await?;
    send.write_all(&[TELLING]).await?;
    let (mut buffer, mut left) = (BytesMut::new(), count);
    while left > 0 {
        buffer.reserve(BATCH_MAX);
        while left > 0 && buffer.len() + frame.len() <= BATCH_MAX {
            buffer.extend_from_slice(frame);
            left -= 1;
        }
        send.write_chunk(buffer.split().freeze()).await?;
    }
    send.finish()?;
    let (mut seen, mut spent) = ([0; 8], [0; 8]);
    receive.read_exact(&mut seen).await?;
    receive.read_exact(&mut spent).await?;
    match u64::from_le_bytes(seen) {
        seen if seen == count => Ok(Duration::from_nanos(u64::from_le_bytes(spent))),
        seen => Err(format!("the server saw {seen} frames, expected {count}").into()),
    }
}
