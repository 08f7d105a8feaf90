//! Cost of frames of several sizes on a link, without and with actors, beside a bare quinn stream.
//!
//! Without actors: encoded bodies are written like messages of actors, and counted where they leave
//! the link; they are neither decoded nor handled. With actors: the same bytes as a message,
//! encoded, decoded and handled. The baseline moves a length and the same bytes. All three take
//! turns on the same two threads.
//!
//! Used by `meros-lab bench messages`.

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;
use runtime::prelude::*;
use runtime::testing::frames::{Count, Counting, Pen};
use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tokio::sync::oneshot;

use super::{
    Addresses, Cost, Counted, Failure, Figure, LOCALHOST, PATIENCE, Sink, identities,
    on_one_thread, serve,
};
use crate::bare::{Client, thread_time};
use crate::certificates::Identity;
use crate::quic::{Endpoint, Options};

/// Bytes written before the thread's other tasks get a turn.
const TURN: usize = 256 << 10;
/// Bytes that may wait in the link, as many as quinn may have in flight; or this number of bodies,
/// if they are large.
const WAITING: usize = 1 << 20;
const WAITING_LARGE: usize = 8;
/// Maximum bytes of a body.
const SIZE_MAX: usize = 1 << 20;
/// Pause before a full link is tried again.
const PAUSE: Duration = Duration::from_millis(1);

/// The extent of a measurement.
#[derive(Clone, Debug)]
pub struct FrameLoad {
    /// Bytes of the bodies, at most a mebibyte.
    pub sizes: Vec<usize>,
    /// Frames in a round, unless they exceed `bytes`.
    pub frames: u64,
    /// Maximum bytes in a round.
    pub bytes: u64,
    /// Rounds. The best one counts.
    pub rounds: u32,
}

/// Results for one size.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sized {
    /// Bytes of a body.
    pub size: usize,
    /// Frames in each round.
    pub count: u64,
    /// Frames per second without actors.
    pub frames: Figure,
    /// Cost of a frame without actors.
    pub frame_cost: Cost,
    /// Cost of a frame in the bare stream.
    pub limit_cost: Cost,
    /// Tells per second from actor to actor, beside the same bare stream.
    pub tells: Figure,
    /// Cost of a tell.
    pub tell_cost: Cost,
}

/// The content of bodies.
static BYTES: [u8; SIZE_MAX] = [7; SIZE_MAX];

/// Plain bytes, borrowed by the sender and owned by the receiver, as an efficient user would have
/// them.
pub(super) struct Body(Cow<'static, [u8]>);

runtime::remote! {
    Body = "measure/body" v1
}

impl Serialize for Body {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for Body {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Plain;
        impl Visitor<'_> for Plain {
            type Value = Body;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("bytes")
            }
            fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Body, E> {
                Ok(Body(Cow::Owned(bytes.to_vec())))
            }
        }
        deserializer.deserialize_bytes(Plain)
    }
}

impl Handler<Body> for Sink {
    type Result = ();
    fn handle(&mut self, Body(bytes): Body, _: &mut Context<Self>) {
        self.count += u64::from(!bytes.is_empty());
    }
}

/// Counts frames before they become messages.
pub(super) struct FrameCounter;

static COUNT: std::sync::LazyLock<Count> = std::sync::LazyLock::new(Count::default);

impl Actor for FrameCounter {
    type Context = Context<Self>;
}

impl Counting for FrameCounter {
    fn count() -> &'static Count {
        &COUNT
    }
}

impl Process for FrameCounter {
    fn accepts(handlers: &mut RemoteHandlers<Self>) {
        handlers.count::<Body>(&[Role::Agent]);
        handlers.accept::<Counted>(&[Role::Agent]);
    }
}

impl Handler<Body> for FrameCounter {
    type Result = ();
    fn handle(&mut self, _: Body, _: &mut Context<Self>) {}
}

impl Handler<Counted> for FrameCounter {
    type Result = MessageResult<Counted>;
    fn handle(&mut self, _: Counted, _: &mut Context<Self>) -> Self::Result {
        let spent = thread_time().unwrap_or_default();
        MessageResult((COUNT.now().0, spent.as_nanos() as u64))
    }
}

/// Sends these bytes to the sink this number of times, as fast as the link accepts them.
struct TellAll(&'static [u8], u64);

impl Message for TellAll {
    type Result = Result<(), TellError>;
}

struct Teller {
    sink: Pid,
    body: &'static [u8],
    left: u64,
    done: Option<Promise<Result<(), TellError>>>,
}

impl Actor for Teller {
    type Context = Context<Self>;
}

impl Process for Teller {}

impl Handler<TellAll> for Teller {
    type Result = Reply<Result<(), TellError>>;
    fn handle(&mut self, TellAll(body, count): TellAll, ctx: &mut Context<Self>) -> Self::Result {
        let (done, reply) = promise();
        (self.body, self.left, self.done) = (body, count, Some(done));
        self.tell(ctx);
        reply
    }
}

impl Teller {
    fn tell(&mut self, ctx: &mut Context<Self>) {
        let turn = turn(self.body.len()).min(self.left);
        let refused = (0..turn).find_map(|_| {
            let body = Body(Cow::Borrowed(self.body));
            let refused = ctx.node().tell(&self.sink, body).err();
            self.left -= u64::from(refused.is_none());
            refused
        });
        match refused {
            None if self.left > 0 => {
                ctx.then(tokio::task::yield_now(), |this, (), ctx| this.tell(ctx));
            }
            Some(TellError::Full) => {
                ctx.after(PAUSE, Self::tell);
            }
            result => {
                if let Some(done) = self.done.take() {
                    done.answer(result.map_or(Ok(()), Err));
                }
            }
        }
    }
}

/// Number of frames of this size written in one turn.
fn turn(size: usize) -> u64 {
    (TURN / size.max(1)).max(1) as u64
}

/// Measures frames of each size; blocks until it is done.
pub fn frames(load: &FrameLoad) -> Result<Vec<Sized>, Failure> {
    let (master, agent) = identities()?;
    let (serving, served) = oneshot::channel();
    let (end, ended) = oneshot::channel();
    let server = std::thread::Builder::new()
        .name("measure-server".into())
        .spawn(move || on_one_thread(serve(master, serving, ended)))?;
    let measured = match served.blocking_recv() {
        Ok(addresses) => on_one_thread(measure(agent, addresses, load)),
        Err(_) => Err("the serving thread did not start".into()),
    };
    let _ = end.send(()); // the server may have failed, and then returns the error
    server.join().map_err(|_| "the serving thread panicked")??;
    measured
}

struct LinkPair {
    node: Node,
    client: Client,
    counter: Pid,
    sink: Pid,
    teller: Handle<Teller>,
}

async fn measure(
    identity: Identity,
    addresses: Addresses,
    load: &FrameLoad,
) -> Result<Vec<Sized>, Failure> {
    let mut measured = Vec::with_capacity(load.sizes.len());
    for size in &load.sizes {
        let waiting = WAITING.max(WAITING_LARGE * size);
        let (pair, endpoint) = LinkPair::connect(&identity, addresses, waiting).await?;
        measured.push(pair.measure(*size, load).await?);
        pair.node.shutdown().await;
        endpoint.close().await;
    }
    Ok(measured)
}

impl LinkPair {
    async fn connect(
        identity: &Identity,
        (ours, bare): Addresses,
        waiting: usize,
    ) -> Result<(Self, Endpoint), Failure> {
        let node = Node::builder("agent-1")
            .role(Role::Agent)
            .accepts(&[Role::Master])
            .outgoing_max(waiting)
            .build();
        let endpoint = Endpoint::bind(node.clone(), identity, LOCALHOST, Options::default())?;
        let client = Client::connect(identity, bare, Role::Master, node.clock()).await?;
        let sink = node.find(&ours.to_string(), "sink", PATIENCE).await?;
        let teller = Teller {
            sink: sink.clone(),
            body: &[],
            left: 0,
            done: None,
        };
        let pair = Self {
            counter: node
                .find(&ours.to_string(), "frame-counter", PATIENCE)
                .await?,
            teller: node.spawn("teller", teller)?,
            node,
            client,
            sink,
        };
        Ok((pair, endpoint))
    }

    async fn measure(&self, size: usize, load: &FrameLoad) -> Result<Sized, Failure> {
        let size = size.min(SIZE_MAX);
        let body = Bytes::from_static(&BYTES[..size]);
        let count = load.frames.min(load.bytes / size.max(1) as u64).max(1);
        let mut best = Sized {
            size,
            count,
            ..Sized::default()
        };
        for _ in 0..load.rounds {
            let (rate, cost) = self
                .timed(count, async { self.client.frames(&body, count).await })
                .await?;
            best.frames.limit = best.frames.limit.max(rate);
            best.limit_cost.or_less(cost);

            let (rate, cost) = self.timed(count, self.write(&body, count)).await?;
            best.frames.ours = best.frames.ours.max(rate);
            best.frame_cost.or_less(cost);

            let (rate, cost) = self.timed(count, self.tell(&BYTES[..size], count)).await?;
            best.tells.ours = best.tells.ours.max(rate);
            best.tell_cost.or_less(cost);
        }
        best.tells.limit = best.frames.limit;
        Ok(best)
    }

    /// Runs `work`, which returns the CPU time of the server's thread. Gives messages per second
    /// and the cost of one on each side.
    async fn timed(
        &self,
        count: u64,
        work: impl Future<Output = Result<Duration, Failure>>,
    ) -> Result<(f64, Cost), Failure> {
        let clock = self.node.clock();
        let (began, spent) = (clock.now(), thread_time()?);
        let there = work.await?;
        let rate = count as f64 / (clock.now() - began).as_secs_f64();
        Ok((rate, Cost::of(count, thread_time()? - spent, there)))
    }

    /// Waits until all frames are counted.
    async fn write(&self, body: &Bytes, count: u64) -> Result<Duration, Failure> {
        let (counted, before) = self.node.ask(&self.counter, Counted, PATIENCE).await?;
        let mut pen = Pen::new::<Body>(&self.node, &self.counter)?;
        let mut left = count;
        while left > 0 {
            let turn = turn(body.len()).min(left);
            let refused = (0..turn).find_map(|_| {
                let refused = pen.write(body).err();
                left -= u64::from(refused.is_none());
                refused
            });
            pen.flush()?;
            match refused {
                None => tokio::task::yield_now().await,
                Some(TellError::Full) => self.node.clock().sleep(PAUSE).await,
                Some(error) => return Err(error.into()),
            }
        }
        let (after, spent) = self.counted(&self.counter).await?;
        came(count, after - counted)?;
        Ok(Duration::from_nanos(spent - before))
    }

    /// Asks for the count behind all sent messages, as soon as there is room.
    async fn counted(&self, counter: &Pid) -> Result<(u64, u64), Failure> {
        loop {
            match self.node.ask(counter, Counted, PATIENCE).await {
                Err(AskError::Full) => self.node.clock().sleep(PAUSE).await,
                counted => return Ok(counted?),
            }
        }
    }

    /// Waits until the sink has handled all.
    async fn tell(&self, body: &'static [u8], count: u64) -> Result<Duration, Failure> {
        let (_, before) = self.node.ask(&self.sink, Counted, PATIENCE).await?;
        self.teller
            .ask(TellAll(body, count), Patience::WhileLinked)
            .await??;
        let (counted, spent) = self.counted(&self.sink).await?;
        came(count, counted)?;
        Ok(Duration::from_nanos(spent - before))
    }
}

fn came(sent: u64, came: u64) -> Result<(), Failure> {
    if sent == came {
        return Ok(());
    }
    Err(format!("{came} of {sent} came through").into())
}
