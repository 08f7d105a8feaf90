//! A link and a bare stream beside it, kept open for measurements in small steps, as criterion
//! makes them.
//!
//! Each method blocks until its messages have arrived, and returns the time.

use std::thread::JoinHandle;
use std::time::Duration;

use runtime::Instant;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::task::LocalSet;

use super::{Carried, Echo, Failure, LinkPair, PATIENCE, identities, on_one_thread, serve};

/// Both ends of a link and of a bare stream.
pub struct LinkBenchmark {
    pair: Option<LinkPair>,
    local: LocalSet,
    runtime: Runtime,
    end: Option<oneshot::Sender<()>>,
    server: Option<JoinHandle<Result<(), Failure>>>,
}

impl LinkBenchmark {
    /// With one thread for each end: for tells.
    pub fn on_two_threads() -> Result<Self, Failure> {
        Self::open(true)
    }

    /// With both ends on the calling thread: for asks, which never give two threads work at once.
    pub fn on_one_thread() -> Result<Self, Failure> {
        Self::open(false)
    }

    fn open(apart: bool) -> Result<Self, Failure> {
        let (master, agent) = identities()?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let local = LocalSet::new();
        let ((serving, served), (end, ended)) = (oneshot::channel(), oneshot::channel());
        let server = match apart {
            true => {
                let name = "measure-server".to_owned();
                let thread = std::thread::Builder::new().name(name);
                Some(thread.spawn(move || on_one_thread(serve(master, serving, ended)))?)
            }
            false => {
                // it ends when this is dropped
                drop(local.spawn_local(serve(master, serving, ended)));
                None
            }
        };
        let pair = local.block_on(&runtime, async {
            let addresses = served.await.map_err(|_| "the serving end did not start")?;
            LinkPair::connect(agent, addresses).await
        })?;
        Ok(Self {
            pair: Some(pair),
            local,
            runtime,
            end: Some(end),
            server,
        })
    }

    /// Tells from actor to actor.
    pub fn tell(&self, count: u64) -> Result<Duration, Failure> {
        self.timed(async |pair| pair.tell_all(count).await.map(drop))
    }

    /// Frames of the same payload in the bare stream.
    pub fn tell_bare(&self, count: u64) -> Result<Duration, Failure> {
        self.timed(async |pair| pair.client.tell(&pair.frame, count).await.map(drop))
    }

    /// Consecutive asks to an actor.
    pub fn ask(&self, count: u64) -> Result<Duration, Failure> {
        self.timed(async |pair| {
            for number in 0..count {
                let echo = Echo(Carried::new(number));
                pair.node.ask(&pair.sink, echo, PATIENCE).await?;
            }
            Ok(())
        })
    }

    /// Consecutive round trips of a frame in the bare stream.
    pub fn ask_bare(&self, count: u64) -> Result<Duration, Failure> {
        self.timed(async |pair| pair.client.ask(&pair.frame, count).await)
    }

    fn timed(
        &self,
        work: impl AsyncFnOnce(&LinkPair) -> Result<(), Failure>,
    ) -> Result<Duration, Failure> {
        let pair = self.pair.as_ref().ok_or("the benchmark is closed")?;
        let now = || -> Instant { pair.node.clock().now() };
        let began = now();
        self.local.block_on(&self.runtime, work(pair))?;
        Ok(now() - began)
    }
}

impl Drop for LinkBenchmark {
    fn drop(&mut self) {
        if let Some(pair) = self.pair.take() {
            self.local.block_on(&self.runtime, pair.close());
        }
        drop(self.end.take());
        if let Some(server) = self.server.take() {
            let _ = server.join(); // errors were returned to the measurement
        }
    }
}
