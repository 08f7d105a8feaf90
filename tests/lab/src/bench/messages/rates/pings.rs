//! Delay of pings: alone, and while large transfers and a flood of messages share the connection.
//!
//! Used by `meros-lab bench messages` and by this crate's benchmark. Large messages are made and
//! received, and all load is sent, on separate threads: the subject is the connection and the
//! threads that serve it. A lost ping is an error.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use runtime::prelude::*;
use runtime::{Place, Placement};
use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tokio::sync::oneshot;

use super::{Addresses, Carried, Counted, Failure, LOCALHOST, PATIENCE, Sink};
use transport::Identity;
use transport::{Endpoint, Options};

/// Bytes of a large transfer: nearly the maximum of a message.
pub const TRANSFER: usize = 63 << 20;
/// Pause between two pings.
const PAUSE: Duration = Duration::from_millis(2);
/// Large transfers in progress at once.
const TRANSFERS: usize = 2;
/// Small messages before one ask, which bounds the queue to somewhat more than a megabyte.
const WAVE: usize = 16_000;

/// Round trips of pings, in milliseconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Delay {
    /// Median.
    pub p50: f64,
    /// 99th percentile.
    pub p99: f64,
}

impl Delay {
    fn of(mut trips: Vec<Duration>) -> Self {
        trips.sort_unstable();
        let at = |percent: usize| {
            let place = trips.len().saturating_sub(1) * percent / 100;
            trips
                .get(place)
                .map_or(0.0, |trip| trip.as_secs_f64() * 1e3)
        };
        Self {
            p50: at(50),
            p99: at(99),
        }
    }
}

/// Delays for each load on the connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct Delays {
    /// No other load.
    pub alone: Delay,
    /// Large transfers without a pause.
    pub transfers: Delay,
    /// Completed transfers.
    pub transferred: u64,
    /// Waves of small messages, each of more than a megabyte.
    pub flood: Delay,
    /// Transfers and flood together.
    pub both: Delay,
}

/// A ping.
#[derive(Serialize, Deserialize)]
pub(super) struct Probe;

/// A large state, as plain bytes.
pub(super) struct Large(Vec<u8>);

runtime::remote! {
    Probe = "measure/probe" v1 lane Ping -> ();
    Large = "measure/large" v1 -> u64
}

impl Serialize for Large {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for Large {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Bytes;
        impl Visitor<'_> for Bytes {
            type Value = Large;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("bytes")
            }
            fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Large, E> {
                Ok(Large(bytes.to_vec()))
            }
        }
        deserializer.deserialize_bytes(Bytes)
    }
}

impl Handler<Probe> for Sink {
    type Result = ();
    fn handle(&mut self, _: Probe, _: &mut Context<Self>) {}
}

/// The receiver of large messages. It has its own thread, because freeing one takes long.
pub(super) struct Store;

/// Its name, and its thread's name.
pub(super) const STORE: &str = "store";

impl Actor for Store {
    type Context = Context<Self>;
}

impl Process for Store {
    fn accepts(handlers: &mut RemoteHandlers<Self>) {
        handlers.accept::<Large>(&[Role::Agent]);
    }
}

impl Handler<Large> for Store {
    type Result = u64;
    fn handle(&mut self, Large(bytes): Large, _: &mut Context<Self>) -> u64 {
        bytes.len() as u64
    }
}

/// Loads the connection until it is stopped.
struct LoadGenerator {
    sink: Pid,
    store: Pid,
    stop: Arc<AtomicBool>,
    done: u64,
    left: usize,
    finished: Option<Promise<Result<u64, String>>>,
    failed: Option<String>,
}

/// Sends large messages of this length, some at once; returns how many arrived.
struct Transfer(usize);
/// Sends waves of small messages, each after the previous one has arrived.
struct Flood;

impl Message for Transfer {
    type Result = Result<u64, String>;
}
impl Message for Flood {
    type Result = Result<u64, String>;
}

impl Actor for LoadGenerator {
    type Context = Context<Self>;
}
impl Process for LoadGenerator {}

impl Handler<Transfer> for LoadGenerator {
    type Result = Reply<Result<u64, String>>;
    fn handle(&mut self, Transfer(bytes): Transfer, ctx: &mut Context<Self>) -> Self::Result {
        let (promise, reply) = promise();
        (self.finished, self.left) = (Some(promise), TRANSFERS);
        (0..TRANSFERS).for_each(|_| self.transfer(bytes, ctx));
        reply
    }
}

impl Handler<Flood> for LoadGenerator {
    type Result = Reply<Result<u64, String>>;
    fn handle(&mut self, _: Flood, ctx: &mut Context<Self>) -> Self::Result {
        let (promise, reply) = promise();
        (self.finished, self.left) = (Some(promise), 1);
        self.flood(ctx);
        reply
    }
}

impl LoadGenerator {
    fn transfer(&mut self, bytes: usize, ctx: &mut Context<Self>) {
        if self.stop.load(Ordering::Relaxed) || self.failed.is_some() {
            return self.finish();
        }
        let asked = ctx.node().ask(&self.store, Large(vec![7; bytes]), PATIENCE);
        ctx.then(asked, move |this, came, ctx| {
            match came {
                Ok(length) if length == bytes as u64 => this.done += 1,
                Ok(length) => this.failed = Some(format!("{length} of {bytes} bytes came")),
                Err(error) => this.failed = Some(error.to_string()),
            }
            this.transfer(bytes, ctx);
        });
    }

    fn flood(&mut self, ctx: &mut Context<Self>) {
        if self.stop.load(Ordering::Relaxed) {
            return self.finish();
        }
        for _ in 0..WAVE {
            if let Err(error) = ctx.node().tell(&self.sink, Carried::new(self.done)) {
                self.failed = Some(error.to_string());
                return self.finish();
            }
            self.done += 1;
        }
        let asked = ctx.node().ask(&self.sink, Counted, PATIENCE);
        ctx.then(asked, |this, came, ctx| {
            this.failed = came.err().map(|error| error.to_string());
            match this.failed {
                None => this.flood(ctx),
                Some(_) => this.finish(),
            }
        });
    }

    fn finish(&mut self) {
        self.left = self.left.saturating_sub(1);
        if self.left == 0
            && let Some(finished) = self.finished.take()
        {
            let done = std::mem::take(&mut self.done);
            finished.answer(self.failed.take().map_or(Ok(done), Err));
        }
    }
}

/// The measuring side, which pings from the thread that serves the connection.
pub(super) async fn measure(
    identity: Identity,
    (address, _): Addresses,
    pings: u32,
    bytes: usize,
) -> Result<Delays, Failure> {
    let node = Node::builder("agent-1")
        .role(Role::Agent)
        .accepts(&[Role::Master])
        .placement(
            Placement::here()
                .put("transfers", Place::OwnThread)
                .put("flood", Place::OwnThread),
        )
        .outgoing_max(3 * bytes)
        .build();
    let endpoint = Endpoint::bind(node.clone(), &identity, LOCALHOST, Options::default())?;
    let address = address.to_string();
    let sink = node.find(&address, "sink", PATIENCE).await?;
    let store = node.find(&address, STORE, PATIENCE).await?;
    let generator = |name: &str, stop: &Arc<AtomicBool>| {
        let (sink, store, stop) = (sink.clone(), store.clone(), stop.clone());
        let generator = LoadGenerator {
            sink,
            store,
            stop,
            done: 0,
            left: 0,
            finished: None,
            failed: None,
        };
        node.spawn(name, generator)
    };
    let ping = || async {
        let mut trips = Vec::with_capacity(pings as usize);
        for _ in 0..pings {
            let asked = node.clock().now();
            node.ask(&sink, Probe, PATIENCE).await?;
            trips.push(node.clock().now() - asked);
            node.clock().sleep(PAUSE).await;
        }
        Ok::<_, AskError>(Delay::of(trips))
    };
    let mut delays = Delays {
        alone: ping().await?,
        ..Delays::default()
    };
    for (transfers, flood) in [(true, false), (false, true), (true, true)] {
        let stop = Arc::new(AtomicBool::new(false));
        let (one, other) = (generator("transfers", &stop)?, generator("flood", &stop)?);
        let sending = transfers.then(|| one.ask(Transfer(bytes), Patience::WhileLinked));
        let telling = flood.then(|| other.ask(Flood, Patience::WhileLinked));
        let delay = ping().await?;
        stop.store(true, Ordering::Relaxed);
        if let Some(sending) = sending {
            delays.transferred += sending.await??;
        }
        if let Some(telling) = telling {
            telling.await??;
        }
        match (transfers, flood) {
            (true, true) => delays.both = delay,
            (true, false) => delays.transfers = delay,
            _ => delays.flood = delay,
        }
        for actor in [one, other] {
            actor.stop();
            node.ended(&actor.pid()).await;
        }
    }
    node.shutdown().await;
    endpoint.close().await;
    Ok(delays)
}

/// Measures pings beside large transfers of `bytes` and beside a flood; blocks until it is done.
pub fn pings(pings: u32, bytes: usize) -> Result<Delays, Failure> {
    let (master, agent) = super::identities()?;
    let (serving, served) = oneshot::channel();
    let (end, ended) = oneshot::channel();
    let server = std::thread::Builder::new()
        .name("measure-server".into())
        .spawn(move || super::on_one_thread(super::serve(master, serving, ended)))?;
    let measured = match served.blocking_recv() {
        Ok(addresses) => super::on_one_thread(measure(agent, addresses, pings, bytes)),
        Err(_) => Err("the serving thread did not start".into()),
    };
    let _ = end.send(()); // the server may have failed, and then returns the error
    server.join().map_err(|_| "the serving thread panicked")??;
    measured
}
