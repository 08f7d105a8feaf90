//! A course: our link and a bare stream beside it, kept open for whoever measures a little at a time, as criterion does.
//!
//! Remembers its two nodes and the threads they are on. Each of its verbs blocks until so many messages are through, and gives how long
//! that took.

use std::thread::JoinHandle;
use std::time::Duration;

use runtime::Instant;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::task::LocalSet;

use super::{Carried, Echo, Ends, Failure, PATIENCE, identities, on_one_thread, serve};

/// Both ends of a link and of a bare stream.
pub struct Course {
    ends: Option<Ends>,
    local: LocalSet,
    runtime: Runtime,
    end: Option<oneshot::Sender<()>>,
    server: Option<JoinHandle<Result<(), Failure>>>,
}

impl Course {
    /// The two ends are on a thread each: for tells.
    pub fn on_two_threads() -> Result<Self, Failure> {
        Self::open(true)
    }

    /// Both ends are on the calling thread: for questions, which never give two threads something to do at once.
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
                drop(local.spawn_local(serve(master, serving, ended))); // it ends with the course
                None
            }
        };
        let ends = local.block_on(&runtime, async {
            let addresses = served.await.map_err(|_| "the serving end did not start")?;
            Ends::connect(agent, addresses).await
        })?;
        Ok(Self {
            ends: Some(ends),
            local,
            runtime,
            end: Some(end),
            server,
        })
    }

    /// From actor to actor.
    pub fn tell(&self, count: u64) -> Result<Duration, Failure> {
        self.timed(async |ends| ends.tell_all(count).await.map(drop))
    }

    /// Frames of the same payload in the bare stream.
    pub fn tell_bare(&self, count: u64) -> Result<Duration, Failure> {
        self.timed(async |ends| ends.client.tell(&ends.frame, count).await.map(drop))
    }

    /// Questions to an actor, each awaited before the next.
    pub fn ask(&self, count: u64) -> Result<Duration, Failure> {
        self.timed(async |ends| {
            for number in 0..count {
                let echo = Echo(Carried::new(number));
                ends.node.ask(&ends.sink, echo, PATIENCE).await?;
            }
            Ok(())
        })
    }

    /// A frame there and back in the bare stream, each awaited before the next.
    pub fn ask_bare(&self, count: u64) -> Result<Duration, Failure> {
        self.timed(async |ends| ends.client.ask(&ends.frame, count).await)
    }

    fn timed(
        &self,
        work: impl AsyncFnOnce(&Ends) -> Result<(), Failure>,
    ) -> Result<Duration, Failure> {
        let ends = self.ends.as_ref().ok_or("the course is closed")?;
        let now = || -> Instant { ends.node.clock().now() };
        let began = now();
        self.local.block_on(&self.runtime, work(ends))?;
        Ok(now() - began)
    }
}

impl Drop for Course {
    fn drop(&mut self) {
        if let Some(ends) = self.ends.take() {
            self.local.block_on(&self.runtime, ends.close());
        }
        drop(self.end.take());
        if let Some(server) = self.server.take() {
            let _ = server.join(); // whatever it had to say was said to whoever measured
        }
    }
}
