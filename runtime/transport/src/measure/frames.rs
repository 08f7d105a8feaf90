//! What frames of several sizes cost on a link, by themselves and with actors on both ends, beside a bare quinn stream.
//!
//! By themselves: bodies that are encoded already are written as actors' messages are, and counted where they come off the link; no
//! value is made of them, and no actor hears them. With actors: the same bytes as a message, encoded, decoded and handled. The
//! limit moves a length and the same bytes. All three take turns, on the same two threads.
//!
//! Hears nothing: it is called by `meros bench messages`. Remembers nothing between two calls.

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;
use runtime::frames::{Count, Counting, Pen};
use runtime::prelude::*;
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

/// Bytes written between two turns of everybody else on the thread.
const TURN: usize = 256 << 10;
/// Bytes that may wait in the link, as many as quinn may have on the way, or so many bodies if they are large.
const WAITING: usize = 1 << 20;
const WAITING_LARGE: usize = 8;
/// The largest body, in bytes.
const SIZE_MAX: usize = 1 << 20;
/// Until a full link is tried again.
const PAUSE: Duration = Duration::from_millis(1);

/// What is measured.
#[derive(Clone, Debug)]
pub struct FrameLoad {
    /// Bytes of the bodies, at most a mebibyte.
    pub sizes: Vec<usize>,
    /// Frames in a round, unless they are more than `bytes`.
    pub frames: u64,
    /// The most bytes in a round.
    pub bytes: u64,
    /// Rounds; of each thing the best one counts.
    pub rounds: u32,
}

/// Frames of one size.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sized {
    /// Bytes of a body.
    pub size: usize,
    /// How many were sent in each round.
    pub count: u64,
    /// Frames by themselves, a second.
    pub frames: Figure,
    /// What one costs.
    pub frame_cost: Cost,
    /// What one costs on the bare stream.
    pub limit_cost: Cost,
    /// Tells from an actor to an actor, a second, beside the same bare stream.
    pub tells: Figure,
    /// What one costs.
    pub tell_cost: Cost,
}

/// What bodies are made of.
static BYTES: [u8; SIZE_MAX] = [7; SIZE_MAX];

/// So many bytes, as they are: lent where they are sent, owned where they are received, as by a user who cares for the cost.
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

/// Where frames are counted before they become messages.
pub(super) struct Tray;

static COUNT: std::sync::LazyLock<Count> = std::sync::LazyLock::new(Count::default);

impl Actor for Tray {
    type Context = Context<Self>;
}

impl Counting for Tray {
    fn count() -> &'static Count {
        &COUNT
    }
}

impl Process for Tray {
    fn hears(ears: &mut Ears<Self>) {
        ears.count::<Body>(&[Role::Agent]);
        ears.hear::<Counted>(&[Role::Agent]);
    }
}

impl Handler<Body> for Tray {
    type Result = ();
    fn handle(&mut self, _: Body, _: &mut Context<Self>) {}
}

impl Handler<Counted> for Tray {
    type Result = MessageResult<Counted>;
    fn handle(&mut self, _: Counted, _: &mut Context<Self>) -> Self::Result {
        let spent = thread_time().unwrap_or_default();
        MessageResult((COUNT.now().0, spent.as_nanos() as u64))
    }
}

/// Tell the sink these bytes so many times, as fast as the link takes them.
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
            told => {
                if let Some(done) = self.done.take() {
                    done.answer(told.map_or(Ok(()), Err));
                }
            }
        }
    }
}

/// How many frames with such a body are written in one turn.
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
    let _ = end.send(()); // it may have failed already, and then says why
    server.join().map_err(|_| "the serving thread panicked")??;
    measured
}

struct Ends {
    node: Node,
    client: Client,
    tray: Pid,
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
        let (ends, endpoint) = Ends::connect(&identity, addresses, waiting).await?;
        measured.push(ends.measure(*size, load).await?);
        ends.node.shutdown().await;
        endpoint.close().await;
    }
    Ok(measured)
}

impl Ends {
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
        let ends = Self {
            tray: node.find(&ours.to_string(), "tray", PATIENCE).await?,
            teller: node.spawn("teller", teller)?,
            node,
            client,
            sink,
        };
        Ok((ends, endpoint))
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

    /// Messages a second, and what one costs each side, of work that gives what it has cost the server's thread.
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

    /// Returns when all frames have been counted.
    async fn write(&self, body: &Bytes, count: u64) -> Result<Duration, Failure> {
        let (counted, before) = self.node.ask(&self.tray, Counted, PATIENCE).await?;
        let mut pen = Pen::new::<Body>(&self.node, &self.tray)?;
        let mut left = count;
        while left > 0 {
            let turn = turn(body.len()).min(left);
            let refused = (0..turn).find_map(|_| {
                let refused = pen.write(body).err();
                left -= u64::from(refused.is_none());
                refused
            });
            pen.hand_in()?;
            match refused {
                None => tokio::task::yield_now().await,
                Some(TellError::Full) => self.node.clock().sleep(PAUSE).await,
                Some(error) => return Err(error.into()),
            }
        }
        let (after, spent) = self.counted(&self.tray).await?;
        came(count, after - counted)?;
        Ok(Duration::from_nanos(spent - before))
    }

    /// Asks as soon as there is room, behind all that was sent.
    async fn counted(&self, counter: &Pid) -> Result<(u64, u64), Failure> {
        loop {
            match self.node.ask(counter, Counted, PATIENCE).await {
                Err(AskError::Full) => self.node.clock().sleep(PAUSE).await,
                counted => return Ok(counted?),
            }
        }
    }

    /// Returns when the sink has had them all.
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
