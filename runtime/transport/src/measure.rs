//! How fast messages cross: tells and asks over QUIC on the loopback, beside a bare quinn stream that moves the very
//! same frames, between the same two threads, in the same run.
//!
//! Hears nothing: it is called by `meros bench messages` and by this crate's benchmark. Remembers nothing.
//! Never runs inside a node that does other work: it makes two of its own, and two threads for them.

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use runtime::prelude::*;
use runtime::{Dialled, Hello, Outgoing};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;
use tokio::task::LocalSet;

use crate::bare::{Client, Server};
use crate::certificates::{Authority, Identity};
use crate::quic::{Endpoint, Options};

const LOCALHOST: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
const PATIENCE: Duration = Duration::from_secs(60);

/// Why there is no figure.
pub type Failure = Box<dyn Error + Send + Sync>;

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Bytes of a tell's whole frame, its four bytes of length included. Raised to the least a frame can have.
    pub frame: usize,
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
            frame: 104,
            tells: 1_000_000,
            asks: 20_000,
            rounds: 3,
        }
    }
}

/// What was measured: messages per second.
#[derive(Clone, Copy, Debug, Default)]
pub struct Figures {
    /// Bytes of a frame as it was sent.
    pub frame: usize,
    /// Tells from an actor's node to an actor on another node.
    pub remote_tell: f64,
    /// The same frames, moved by a bare quinn stream.
    pub remote_tell_limit: f64,
    /// Asks from one node to an actor on another, each awaited before the next.
    pub remote_ask: f64,
    /// The same frames, there and back over a bare quinn stream.
    pub remote_ask_limit: f64,
}

/// A message of any size.
#[derive(Clone, Serialize, Deserialize)]
struct Carried {
    number: u64,
    text: String,
}

/// How many have you had since the last time?
#[derive(Serialize, Deserialize)]
struct Counted;

/// Give it back.
#[derive(Clone, Serialize, Deserialize)]
struct Echo {
    number: u64,
    text: String,
}

runtime::remote! {
    Carried = "measure/carried" v1;
    Counted = "measure/counted" v1 -> u64;
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
    }
}

impl Handler<Carried> for Sink {
    type Result = ();
    fn handle(&mut self, _: Carried, _: &mut Context<Self>) {
        self.count += 1;
    }
}

impl Handler<Counted> for Sink {
    type Result = u64;
    fn handle(&mut self, _: Counted, _: &mut Context<Self>) -> u64 {
        std::mem::take(&mut self.count)
    }
}

impl Handler<Echo> for Sink {
    type Result = u64;
    fn handle(&mut self, echo: Echo, _: &mut Context<Self>) -> u64 {
        echo.number
    }
}

/// Measures on two threads of its own; blocks until it is done.
pub fn messages(load: Load) -> Result<Figures, Failure> {
    let authority = Authority::create()?;
    let (master, agent) = (
        authority.issue(Role::Master, "master-1")?,
        authority.issue(Role::Agent, "agent-1")?,
    );
    let (serving, served) = std::sync::mpsc::channel();
    let (end, ended) = oneshot::channel();
    let server = std::thread::Builder::new()
        .name("measure-server".into())
        .spawn(move || on_one_thread(serve(master, serving, ended)))?;
    let result = match served.recv() {
        Ok(addresses) => on_one_thread(ask_and_tell(agent, addresses, load)),
        Err(_) => Err("the serving thread did not start".into()),
    };
    let _ = end.send(()); // it may have failed already, and then says why
    server.join().map_err(|_| "the serving thread panicked")??;
    result
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
    serving: std::sync::mpsc::Sender<Addresses>,
    ended: oneshot::Receiver<()>,
) -> Result<(), Failure> {
    let node = Node::builder("master-1")
        .role(Role::Master)
        .accepts(&[Role::Agent])
        .build();
    node.spawn("sink", Sink::default())?;
    let endpoint = Endpoint::bind(node.clone(), &identity, LOCALHOST, Options::default())?;
    let bare = Server::bind(&identity, LOCALHOST, node.clock())?;
    serving.send((endpoint.address()?, bare.address()?))?;
    let _ = ended.await; // dropped or sent, it is over
    node.shutdown().await;
    endpoint.close().await;
    Ok(())
}

async fn ask_and_tell(
    identity: Identity,
    (ours, bare): Addresses,
    load: Load,
) -> Result<Figures, Failure> {
    let node = Node::builder("agent-1")
        .role(Role::Agent)
        .accepts(&[Role::Master])
        .outgoing_max(1 << 20)
        .build();
    let endpoint = Endpoint::bind(node.clone(), &identity, LOCALHOST, Options::default())?;
    let client = Client::connect(&identity, bare, Role::Master, node.clock()).await?;
    let sink = node.find(&ours.to_string(), "sink", PATIENCE).await?;
    let (carried, frame) = sized(&node, load.frame).await?;
    let mut best = Figures {
        frame: frame.len(),
        ..Figures::default()
    };
    for _ in 0..load.rounds {
        let clock = node.clock().clone();
        let rate = |count: u64, since: runtime::Instant| {
            count as f64 / (clock.now() - since).as_secs_f64()
        };
        let began = clock.now();
        client.tell(&frame, load.tells).await?;
        best.remote_tell_limit = best.remote_tell_limit.max(rate(load.tells, began));
        let began = clock.now();
        tell_all(&node, &sink, &carried, load.tells).await?;
        best.remote_tell = best.remote_tell.max(rate(load.tells, began));
        let began = clock.now();
        client.ask(&frame, load.asks).await?;
        best.remote_ask_limit = best.remote_ask_limit.max(rate(load.asks, began));
        let began = clock.now();
        for number in 0..load.asks {
            node.ask(
                &sink,
                Echo {
                    number,
                    text: carried.text.clone(),
                },
                PATIENCE,
            )
            .await?;
        }
        best.remote_ask = best.remote_ask.max(rate(load.asks, began));
    }
    node.shutdown().await;
    endpoint.close().await;
    Ok(best)
}

/// Tells as fast as the link takes, and returns when the actor has had them all.
async fn tell_all(node: &Node, sink: &Pid, carried: &Carried, count: u64) -> Result<(), Failure> {
    let mut told = 0;
    while told < count {
        // As an actor would: a turn's worth at a time, then others have theirs.
        for _ in 0..TURN.min(count - told) {
            match node.tell(
                sink,
                Carried {
                    number: told,
                    text: carried.text.clone(),
                },
            ) {
                Ok(()) => told += 1,
                Err(TellError::Full) => break,
                Err(error) => return Err(error.into()),
            }
        }
        tokio::task::yield_now().await;
    }
    match node.ask(sink, Counted, PATIENCE).await? {
        counted if counted == count => Ok(()),
        counted => Err(format!("{counted} of {count} tells came through").into()),
    }
}

/// Tells between two turns of everybody else on the thread.
const TURN: u64 = 1000;

/// A message whose frame has this many bytes, and that frame.
async fn sized(node: &Node, wanted: usize) -> Result<(Carried, Bytes), Failure> {
    let with = |length: usize| Carried {
        number: 1 << 30,
        text: "x".repeat(length),
    };
    let overhead = frame_of(node, with(0)).await?.len();
    let carried = with(wanted.saturating_sub(overhead));
    let frame = frame_of(node, carried.clone()).await?;
    Ok((carried, frame))
}

/// The frame that a node puts on a link for this message: taken from a link that leads nowhere.
async fn frame_of(node: &Node, carried: Carried) -> Result<Bytes, Failure> {
    let nowhere = Node::builder("nowhere").role(Role::Master).build();
    let hello = Hello::decode(&nowhere.hello())?;
    let peer = Peer {
        node: nowhere.id().clone(),
        role: Role::Master,
        address: String::new(),
    };
    let link = node.attach(peer, hello, Dialled::ByUs)?;
    node.tell(&Pid::new("sink", nowhere.id().clone(), 1), carried)?;
    let mut frame = BytesMut::new();
    match link.outgoing(Lane::Ordinary, &mut frame, usize::MAX).await {
        Outgoing::Batch => Ok(frame.freeze()),
        other => Err(format!("no frame to measure with: {other:?}").into()),
    }
}
