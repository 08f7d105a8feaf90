//! Blocking work away from the actors: what some actor waits for, and behind it what only readers wait for.
//!
//! The first goes to the threads that tokio has for it. The second goes to few threads of their own at a low priority, since a page of a large
//! cluster costs as much as thousands of decisions: where processors are scarce readers wait, and masters and agents do not (W15). In
//! rehearsals both are done inline. Remembers nothing.

use std::any::Any;
use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::task::{JoinHandle, spawn_blocking};

use crate::clock::Clock;
use crate::node::{Interrupted, Node};
use crate::supervise::words_of;

/// So much nicer are the threads behind: they have a tenth of a processor that others want as well, and all of one that nobody else does.
const NICER: i32 = 10;

impl Node {
    /// From now on each blocking work takes so much virtual time, half of it before the work is done and half before its
    /// result is known: a slow disk. Only in rehearsals.
    pub fn slow_blocking(&self, takes: Duration) {
        let nanos = u64::try_from(takes.as_nanos()).unwrap_or(u64::MAX);
        self.0.blocking_takes.store(nanos, Ordering::Relaxed);
    }

    /// Runs blocking work away from the actors, and inline in rehearsals.
    pub fn blocking<T, F>(
        &self,
        work: F,
    ) -> impl Future<Output = Result<T, Interrupted>> + Send + use<T, F>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        done(self.clock().clone(), self.takes(), work, spawn_blocking)
    }

    /// The same for work that nothing but a reader waits for: it has what actors leave of the processors, and no more than one thread for each.
    /// It may wait for long, so it holds no lock that an actor takes.
    pub fn blocking_behind<T, F>(
        &self,
        work: F,
    ) -> impl Future<Output = Result<T, Interrupted>> + Send + use<T, F>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        done(self.clock().clone(), self.takes(), work, spawn_behind)
    }

    fn takes(&self) -> Duration {
        Duration::from_nanos(self.0.blocking_takes.load(Ordering::Relaxed))
    }
}

/// The output of this work, which `run` does elsewhere where time is real.
async fn done<T, F>(
    clock: Clock,
    takes: Duration,
    work: F,
    run: fn(F) -> JoinHandle<T>,
) -> Result<T, Interrupted>
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    let interrupted = |panic: Box<dyn Any + Send>| Interrupted {
        reason: words_of(panic),
    };
    if clock.is_paused() {
        if !takes.is_zero() {
            clock.sleep(takes / 2).await;
        }
        crate::clock::moved();
        let worked = catch_unwind(AssertUnwindSafe(work)).map_err(interrupted);
        if !takes.is_zero() {
            clock.sleep(takes / 2).await;
        }
        return worked;
    }
    let worked = run(work).await;
    worked.map_err(|error| match error.try_into_panic() {
        Ok(panic) => interrupted(panic),
        Err(error) => Interrupted {
            reason: error.to_string(),
        },
    })
}

fn spawn_behind<T, F>(work: F) -> JoinHandle<T>
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    match behind() {
        Some(threads) => threads.spawn_blocking(work),
        None => spawn_blocking(work),
    }
}

/// The threads behind, which come when there is work and go when there is none. None if there can be none here.
fn behind() -> Option<&'static Runtime> {
    static BEHIND: OnceLock<Option<Runtime>> = OnceLock::new();
    let begun = BEHIND.get_or_init(|| match threads() {
        Ok(threads) => Some(threads),
        Err(error) => {
            tracing::warn!(%error, "what only readers wait for is done at the priority of all else");
            None
        }
    });
    begun.as_ref()
}

/// Nobody drives this runtime: only its threads for blocking work are used.
fn threads() -> io::Result<Runtime> {
    Builder::new_current_thread()
        .max_blocking_threads(std::thread::available_parallelism().map_or(1, usize::from))
        .thread_name("behind")
        .on_thread_start(|| {
            if let Err(error) = step_behind() {
                tracing::debug!(%error, "a thread for readers keeps its priority");
            }
        })
        .build()
}

/// Lowers the priority of this thread alone, as Linux does where no process is named.
fn step_behind() -> rustix::io::Result<()> {
    let now = rustix::process::getpriority_process(None)?;
    rustix::process::setpriority_process(None, now.saturating_add(NICER))
}

#[cfg(test)]
mod tests {
    use rustix::process::getpriority_process;

    use super::*;

    #[test]
    fn what_only_readers_wait_for_is_behind_all_else() {
        let runtime = Builder::new_current_thread().build().unwrap();
        runtime.block_on(tokio::task::LocalSet::new().run_until(async {
            let node = Node::builder("master").build();
            let own = getpriority_process(None).unwrap();
            let nice = || getpriority_process(None).unwrap();
            assert_eq!(node.blocking(nice).await, Ok(own));
            // 19 is the lowest there is.
            assert_eq!(node.blocking_behind(nice).await, Ok((own + NICER).min(19)));
            assert_eq!(nice(), own);
            let fallen: Result<(), _> = node.blocking_behind(|| panic!("page")).await;
            assert_eq!(fallen.unwrap_err().reason, "page");
        }));
    }
}
