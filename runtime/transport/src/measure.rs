//! How fast messages cross: tells and asks over QUIC on the loopback, beside a bare quinn stream that moves the same
//! payloads, on the same threads, in the same run.
//!
//! The limit moves what somebody would send who has nothing but the stream: four bytes of length, four that say what the
//! message is, and the payload. It has no names, no senders, no codec and no actors, and its frames are made before the
//! clock runs. What both sides put on the wire for each message is measured too.
//!
//! Hears nothing: it is called by `meros bench messages` and by this crate's benchmark. Remembers nothing.
//! Never runs inside a node that does other work: it makes two of its own, and threads for them.

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::FutureExt;
use runtime::prelude::*;
use runtime::{Dialled, Hello, Outgoing, Place, Placement, codec};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;
use tokio::task::LocalSet;

use crate::bare::{self, Client, Server, thread_time};
use crate::certificates::{Authority, Identity};
use crate::quic::{Endpoint, Options};

mod course;
mod frames;
mod pings;

pub use course::Course;
pub use frames::{FrameLoad, Sized, frames};
pub use pings::{Delay, Delays, TRANSFER, pings};

const LOCALHOST: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
const PATIENCE: Duration = Duration::from_secs(60);

/// Why there is no figure.
pub type Failure = Box<dyn Error + Send + Sync>;

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Tells sent one way, in each round.
    pub tells: u64,
    /// Asks made one after the other, in each round.
    pub asks: u64,
    /// Rounds: of each thing the best one counts, since other work on the machine only ever slows.
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

/// One thing measured, beside its limit.
#[derive(Clone, Copy, Debug, Default)]
pub struct Figure {
    /// Messages a second between two actors.
    pub ours: f64,
    /// Messages a second on a bare quinn stream.
    pub limit: f64,
}

/// What a message costs the two threads that it crosses, in nanoseconds of a processor. Other work on the machine
/// disturbs this less than it does the messages per second.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// The thread that tells and sends.
    pub sender: f64,
    /// The thread that receives and handles.
    pub receiver: f64,
}

impl Default for Cost {
    /// More than anything costs.
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

    /// Of two threads that have a core each, the busier one decides how fast messages cross.
    #[must_use]
    pub fn busier(&self) -> f64 {
        self.sender.max(self.receiver)
    }
}

/// What was measured.
#[derive(Clone, Copy, Debug, Default)]
pub struct Figures {
    /// Bytes of a tell's payload: what the codec makes of the message.
    pub payload: usize,
    /// Bytes that a tell takes in the stream, header and all, when many follow each other.
    pub frame: f64,
    /// Bytes that it takes in the bare stream.
    pub frame_limit: usize,
    /// Tells from an actor to an actor on another node.
    pub remote_tell: Figure,
    /// What a tell costs.
    pub tell_cost: Cost,
    /// What a frame of the bare stream costs.
    pub tell_cost_limit: Cost,
    /// Asks from one node to an actor on another, each awaited before the next.
    pub remote_ask: Figure,
}

/// A hundred bytes on the wire, header and all: numbers that take all their room.
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

/// How many have you had since the last time, and what has your thread spent since it began, in nanoseconds?
#[derive(Serialize, Deserialize)]
struct Counted;

/// Give the first of them back.
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
    fn hears(ears: &mut Ears<Self>) {
        ears.hear::<Carried>(&[Role::Agent]);
        ears.hear::<Counted>(&[Role::Agent]);
        ears.hear::<Echo>(&[Role::Agent]);
        ears.hear::<pings::Probe>(&[Role::Agent]);
        ears.hear::<frames::Body>(&[Role::Agent]);
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
/// A lone ask never gives two threads something to do at once: between two, the time that an idle core takes to wake would be all that is
/// measured, and it is the machine's, not ours.
pub fn messages(load: Load) -> Result<Figures, Failure> {
    let (master, agent) = identities()?;
    let asked = on_one_thread({
        let (master, agent) = (master.clone(), agent.clone());
        async move {
            let (serving, served) = oneshot::channel();
            let (end, ended) = oneshot::channel();
            let server = tokio::task::spawn_local(serve(master, serving, ended));
            let ends = Ends::connect(agent, served.await?).await?;
            let figures = ends.asks(load).await;
            ends.close().await;
            let _ = end.send(()); // it may have failed already, and then says why
            server.await??;
            figures
        }
    })?;
    let (serving, served) = oneshot::channel();
    let (end, ended) = oneshot::channel();
    let server = std::thread::Builder::new()
        .name("measure-server".into())
        .spawn(move || on_one_thread(serve(master, serving, ended)))?;
    let told = match served.blocking_recv() {
        Ok(addresses) => on_one_thread(async move {
            let ends = Ends::connect(agent, addresses).await?;
            let figures = ends.tells(load).await;
            ends.close().await;
            figures
        }),
        Err(_) => Err("the serving thread did not start".into()),
    };
    let _ = end.send(()); // it may have failed already, and then says why
    server.join().map_err(|_| "the serving thread panicked")??;
    told.map(|told| Figures {
        remote_ask: asked.remote_ask,
        ..told
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

/// Where the two servers are: the node's, and the bare one.
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
    node.spawn("tray", frames::Tray)?;
    let endpoint = Endpoint::bind(node.clone(), &identity, LOCALHOST, Options::default())?;
    let bare = Server::bind(&identity, LOCALHOST, node.clock())?;
    let addresses = (endpoint.address()?, bare.address()?);
    serving.send(addresses).map_err(|_| "nobody measures")?;
    let _ = ended.await; // dropped or sent, it is over
    node.shutdown().await;
    endpoint.close().await;
    Ok(())
}

/// The measuring side: our node and its link, and the bare one beside it.
struct Ends {
    node: Node,
    endpoint: Endpoint,
    client: Client,
    sink: Pid,
    teller: Handle<Teller>,
    /// Of the bare stream.
    frame: Bytes,
}

impl Ends {
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

    /// Messages a second since then.
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

    /// Returns when the sink has had them all: what its thread has spent by then.
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

/// Tells between two turns of everybody else on the thread: what an actor might say when it has much to say.
const TURN: u64 = 1000;

/// Tell the sink so many things, as fast as the link takes them.
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
            told => {
                if let Some(done) = self.done.take() {
                    done.answer(told.map_or(Ok(()), Err));
                }
            }
        }
    }
}

/// The bytes that the node puts on a link for each of a turn's tells: taken from a link that leads nowhere.
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
