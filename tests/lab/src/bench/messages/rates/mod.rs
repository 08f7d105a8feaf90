//! Message throughput: tells and asks over QUIC on the loopback, beside a bare quinn stream that
//! moves the same payloads on the same threads in the same run.
//!
//! A frame of the bare stream is a length and an id of four bytes each, and the payload. It has no
//! names, senders, codec or actors, and is built before the measurement. The bytes per message on
//! the wire are measured for both sides.
//!
//! It makes two nodes and their threads.

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::FutureExt;
use runtime::prelude::*;
use runtime::wire::codec;
use runtime::{Dialled, Hello, Outgoing, Place, Placement};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;
use tokio::task::LocalSet;

use self::bare::{Client, Server, thread_time};
use transport::{Authority, Identity};
use transport::{Endpoint, Options};

mod bare;
mod pings;

pub use pings::{Delay, TRANSFER, pings};

const LOCALHOST: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
const PATIENCE: Duration = Duration::from_secs(60);

/// An error that prevents a measurement.
pub type Failure = Box<dyn Error + Send + Sync>;

/// The extent of a measurement.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Tells in one direction, in each round.
    pub tells: u64,
    /// Consecutive asks, in each round.
    pub asks: u64,
    /// Rounds. The best one counts, since other work on the machine only slows.
    pub rounds: u32,
}

impl Default for Load {
    fn default() -> Self {
        Self {
            tells: 1_000_000,
            asks: 20_000,
            rounds: 5,
        }
    }
}

/// A rate beside its baseline.
#[derive(Clone, Copy, Debug, Default)]
pub struct Figure {
    /// Messages per second between two actors.
    pub ours: f64,
    /// Messages per second on a bare quinn stream.
    pub limit: f64,
}

/// CPU time of a message on the two threads that it crosses, in nanoseconds. Other work on the
/// machine disturbs it less than the rate.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// The sending thread.
    pub sender: f64,
    /// The receiving thread.
    pub receiver: f64,
}

impl Default for Cost {
    /// The maximum, as the start of a minimum.
    fn default() -> Self {
        Self {
            sender: f64::MAX,
            receiver: f64::MAX,
        }
    }
}

impl Cost {
    fn of(messages: u64, sender: Duration, receiver: Duration) -> Self {
        let each = |spent: Duration| spent.as_nanos() as f64 / messages as f64;
        Self {
            sender: each(sender),
            receiver: each(receiver),
        }
    }

    fn or_less(&mut self, other: Self) {
        self.sender = self.sender.min(other.sender);
        self.receiver = self.receiver.min(other.receiver);
    }
}

/// The results.
#[derive(Clone, Copy, Debug, Default)]
pub struct Figures {
    /// Bytes of a tell's encoded message.
    pub payload: usize,
    /// Bytes of a tell in the stream, header included, in a long sequence.
    pub frame: f64,
    /// Bytes of a frame in the bare stream.
    pub frame_limit: usize,
    /// Tells from an actor to an actor of another node.
    pub remote_tell: Figure,
    /// Cost of a tell.
    pub tell_cost: Cost,
    /// Cost of a frame in the bare stream.
    pub tell_cost_limit: Cost,
    /// Consecutive asks from one node to an actor of another.
    pub remote_ask: Figure,
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

runtime::remote! {
    Carried = "measure/carried" v1;
    Counted = "measure/counted" v1 -> (u64, u64);
    Echo = "measure/echo" v1 -> u64
}

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
        handlers.accept::<pings::Probe>(&[Role::Agent]);
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

/// Measures tells between two threads and asks on one; blocks until it is done.
///
/// A single ask never gives two threads work at once. Between two threads the result would be the
/// time in which an idle core wakes, a property of the machine.
pub fn messages(load: Load) -> Result<Figures, Failure> {
    let (master, agent) = identities()?;
    let asked = on_one_thread({
        let (master, agent) = (master.clone(), agent.clone());
        async move {
            let (serving, served) = oneshot::channel();
            let (end, ended) = oneshot::channel();
            let server = tokio::task::spawn_local(serve(master, serving, ended));
            let pair = LinkPair::connect(agent, served.await?).await?;
            let figures = pair.asks(load).await;
            pair.close().await;
            let _ = end.send(()); // the server may have failed, and then returns the error
            server.await??;
            figures
        }
    })?;
    let (serving, served) = oneshot::channel();
    let (end, ended) = oneshot::channel();
    let server = std::thread::Builder::new()
        .name("measure-server".into())
        .spawn(move || on_one_thread(serve(master, serving, ended)))?;
    let result = match served.blocking_recv() {
        Ok(addresses) => on_one_thread(async move {
            let pair = LinkPair::connect(agent, addresses).await?;
            let figures = pair.tells(load).await;
            pair.close().await;
            figures
        }),
        Err(_) => Err("the serving thread did not start".into()),
    };
    let _ = end.send(()); // the server may have failed, and then returns the error
    server.join().map_err(|_| "the serving thread panicked")??;
    result.map(|result| Figures {
        remote_ask: asked.remote_ask,
        ..result
    })
}

fn identities() -> Result<(Identity, Identity), Failure> {
    let authority = Authority::create()?;
    Ok((
        authority.issue(Role::Master, "master-1")?,
        authority.issue(Role::Agent, "agent-1")?,
    ))
}

fn on_one_thread<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    LocalSet::new().block_on(&runtime, work)
}

/// The addresses of the two servers: the node's, and the bare one.
type Addresses = (SocketAddr, SocketAddr);

async fn serve(
    identity: Identity,
    serving: oneshot::Sender<Addresses>,
    ended: oneshot::Receiver<()>,
) -> Result<(), Failure> {
    let node = Node::builder("master-1")
        .role(Role::Master)
        .accepts(&[Role::Agent])
        .placement(Placement::here().put(pings::STORE, Place::OwnThread))
        .build();
    node.spawn("sink", Sink::default())?;
    node.spawn(pings::STORE, pings::Store)?;
    let endpoint = Endpoint::bind(node.clone(), &identity, LOCALHOST, Options::default())?;
    let bare = Server::bind(&identity, LOCALHOST, node.clock())?;
    let addresses = (endpoint.address()?, bare.address()?);
    serving.send(addresses).map_err(|_| "nobody measures")?;
    let _ = ended.await; // dropped or sent, it is over
    node.shutdown().await;
    endpoint.close().await;
    Ok(())
}

/// The measuring side: a node with its link, and a bare client.
struct LinkPair {
    node: Node,
    endpoint: Endpoint,
    client: Client,
    sink: Pid,
    teller: Handle<Teller>,
    /// A frame of the bare stream.
    frame: Bytes,
}

impl LinkPair {
    async fn connect(identity: Identity, (ours, bare): Addresses) -> Result<Self, Failure> {
        let node = Node::builder("agent-1")
            .role(Role::Agent)
            .accepts(&[Role::Master])
            .outgoing_max(1 << 20)
            .build();
        let endpoint = Endpoint::bind(node.clone(), &identity, LOCALHOST, Options::default())?;
        let client = Client::connect(&identity, bare, Role::Master, node.clock()).await?;
        let sink = node.find(&ours.to_string(), "sink", PATIENCE).await?;
        let teller = node.spawn(
            "teller",
            Teller {
                sink: sink.clone(),
                left: 0,
                done: None,
            },
        )?;
        let frame = bare::frame(&codec::encode(&Carried::new(0))?);
        Ok(Self {
            node,
            endpoint,
            client,
            sink,
            teller,
            frame,
        })
    }

    /// Messages per second since `since`.
    fn rate(&self, count: u64, since: runtime::Instant) -> f64 {
        count as f64 / (self.node.clock().now() - since).as_secs_f64()
    }

    async fn tells(&self, load: Load) -> Result<Figures, Failure> {
        let (clock, mut best) = (self.node.clock(), Figures::default());
        best.payload = codec::encode(&Carried::new(0))?.len();
        best.frame = frame_of(&self.node)?;
        best.frame_limit = self.frame.len();
        for _ in 0..load.rounds {
            let (began, spent) = (clock.now(), thread_time()?);
            let there = self.client.tell(&self.frame, load.tells).await?;
            best.remote_tell.limit = best.remote_tell.limit.max(self.rate(load.tells, began));
            let here = thread_time()? - spent;
            best.tell_cost_limit
                .or_less(Cost::of(load.tells, here, there));

            let (_, before) = self.node.ask(&self.sink, Counted, PATIENCE).await?;
            let (began, spent) = (clock.now(), thread_time()?);
            let after = self.tell_all(load.tells).await?;
            best.remote_tell.ours = best.remote_tell.ours.max(self.rate(load.tells, began));
            let (here, there) = (thread_time()? - spent, Duration::from_nanos(after - before));
            best.tell_cost.or_less(Cost::of(load.tells, here, there));
        }
        Ok(best)
    }

    async fn asks(&self, load: Load) -> Result<Figures, Failure> {
        let (clock, mut best) = (self.node.clock(), Figures::default());
        for _ in 0..load.rounds {
            let began = clock.now();
            self.client.ask(&self.frame, load.asks).await?;
            best.remote_ask.limit = best.remote_ask.limit.max(self.rate(load.asks, began));
            let began = clock.now();
            for number in 0..load.asks {
                let echo = Echo(Carried::new(number));
                self.node.ask(&self.sink, echo, PATIENCE).await?;
            }
            best.remote_ask.ours = best.remote_ask.ours.max(self.rate(load.asks, began));
        }
        Ok(best)
    }

    /// Waits until the sink has handled all; returns the CPU time of its thread.
    async fn tell_all(&self, count: u64) -> Result<u64, Failure> {
        self.teller
            .ask(TellAll(count), Patience::WhileLinked)
            .await??;
        match self.node.ask(&self.sink, Counted, PATIENCE).await? {
            (counted, spent) if counted == count => Ok(spent),
            (counted, _) => Err(format!("{counted} of {count} tells came through").into()),
        }
    }

    async fn close(self) {
        self.node.shutdown().await;
        self.endpoint.close().await;
    }
}

/// Tells before the thread's other tasks get a turn.
const TURN: u64 = 1000;

/// Sends this number of tells to the sink, as fast as the link accepts them.
struct TellAll(u64);

impl Message for TellAll {
    type Result = Result<(), TellError>;
}

struct Teller {
    sink: Pid,
    left: u64,
    done: Option<Promise<Result<(), TellError>>>,
}

impl Actor for Teller {
    type Context = Context<Self>;
}

impl Process for Teller {}

impl Handler<TellAll> for Teller {
    type Result = Reply<Result<(), TellError>>;
    fn handle(&mut self, TellAll(count): TellAll, ctx: &mut Context<Self>) -> Self::Result {
        let (done, reply) = promise();
        (self.left, self.done) = (count, Some(done));
        self.tell(ctx);
        reply
    }
}

impl Teller {
    fn tell(&mut self, ctx: &mut Context<Self>) {
        let turn = TURN.min(self.left);
        let refused = (0..turn).find_map(|_| {
            let refused = ctx.node().tell(&self.sink, Carried::new(self.left)).err();
            self.left -= u64::from(refused.is_none());
            refused
        });
        match refused {
            None if self.left > 0 => {
                ctx.then(tokio::task::yield_now(), |this, (), ctx| this.tell(ctx));
            }
            Some(TellError::Full) => {
                ctx.after(Duration::from_millis(1), Self::tell);
            }
            result => {
                if let Some(done) = self.done.take() {
                    done.answer(result.map_or(Ok(()), Err));
                }
            }
        }
    }
}

/// Bytes of one tell on a link, in a sequence of `TURN`, taken from a link without a peer.
fn frame_of(node: &Node) -> Result<f64, Failure> {
    let nowhere = Node::builder("nowhere").role(Role::Master).build();
    let hello = Hello::decode(&nowhere.hello())?;
    let (id, role) = (nowhere.id().clone(), Role::Master);
    let peer = Peer {
        node: id.clone(),
        role,
        address: String::new(),
    };
    let link = node.attach(peer, hello, Dialled::ByUs)?;
    let sink = Pid::new("sink", id, 1);
    for number in 0..TURN {
        node.tell(&sink, Carried::new(number))?;
    }
    let (mut frames, mut piece) = (BytesMut::new(), BytesMut::new());
    loop {
        let outgoing = link.outgoing(Lane::Ordinary, &mut piece, usize::MAX);
        match outgoing.now_or_never() {
            Some(Outgoing::Batch) => frames.unsplit(std::mem::take(&mut piece)),
            None => return Ok(frames.len() as f64 / TURN as f64),
            Some(other) => return Err(format!("no frame to measure with: {other:?}").into()),
        }
    }
}
