//! Blocking work outside the actors' threads, in two classes: work that an actor waits for, and
//! work that only readers wait for.
//!
//! The first class uses tokio's blocking threads. The second uses a few threads of low priority,
//! since a page of a large cluster costs as much as thousands of decisions: where processors are
//! scarce readers wait, and masters and agents do not. In simulations both run inline.

use std::any::Any;
use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::task::{JoinHandle, spawn_blocking};

use crate::actor::supervise::panic_message;
use crate::clock::Clock;
use crate::node::{Interrupted, Node};

/// Niceness of the low-priority threads: a tenth of a contended processor, all of an idle one.
const NICER: i32 = 10;

impl Node {
    /// Makes each blocking call take this much virtual time, half of it before the work and half
    /// before its result: a slow disk. Only in simulations.
    pub fn slow_blocking(&self, takes: Duration) {
        let nanos = u64::try_from(takes.as_nanos()).unwrap_or(u64::MAX);
        self.0.blocking_takes.store(nanos, Ordering::Relaxed);
    }

    /// Runs blocking work on another thread, and inline in simulations.
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

    /// As [`blocking`](Self::blocking), at low priority, for work that only a reader waits for: it
    /// gets the processor time that actors leave, and at most one thread per processor. It may wait
    /// for long, so it must not hold a lock that an actor takes.
    pub fn blocking_low_priority<T, F>(
        &self,
        work: F,
    ) -> impl Future<Output = Result<T, Interrupted>> + Send + use<T, F>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        done(self.clock().clone(), self.takes(), work, spawn_low_priority)
    }

    fn takes(&self) -> Duration {
        Duration::from_nanos(self.0.blocking_takes.load(Ordering::Relaxed))
    }
}

/// The output of this work, which `run` starts on another thread where time is real.
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
        reason: panic_message(panic),
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

fn spawn_low_priority<T, F>(work: F) -> JoinHandle<T>
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    match low_priority_threads() {
        Some(threads) => threads.spawn_blocking(work),
        None => spawn_blocking(work),
    }
}

/// The low-priority threads, started on demand. `None` if they cannot be created.
fn low_priority_threads() -> Option<&'static Runtime> {
    static LOW_PRIORITY: OnceLock<Option<Runtime>> = OnceLock::new();
    let begun = LOW_PRIORITY.get_or_init(|| match threads() {
        Ok(threads) => Some(threads),
        Err(error) => {
            tracing::warn!(%error, "no low-priority threads: readers run at normal priority");
            None
        }
    });
    begun.as_ref()
}

/// This runtime is never driven: only its blocking threads are used.
fn threads() -> io::Result<Runtime> {
    Builder::new_current_thread()
        .max_blocking_threads(std::thread::available_parallelism().map_or(1, usize::from))
        .thread_name("low-priority")
        .on_thread_start(|| {
            if let Err(error) = lower_priority() {
                tracing::debug!(%error, "cannot lower a thread's priority");
            }
        })
        .build()
}

/// Lowers the priority of this thread alone: on Linux that is the meaning of no process id.
fn lower_priority() -> rustix::io::Result<()> {
    let now = rustix::process::getpriority_process(None)?;
    rustix::process::setpriority_process(None, now.saturating_add(NICER))
}

#[cfg(test)]
mod tests {
    use rustix::process::getpriority_process;

    use super::*;

    // Covers W15 in part: that no page waits behind the mailbox, the snapshots, the batches and
    // what is kept.
    #[test]
    fn low_priority_work_is_niced() {
        let runtime = Builder::new_current_thread().build().unwrap();
        runtime.block_on(tokio::task::LocalSet::new().run_until(async {
            let node = Node::builder("master").build();
            let own = getpriority_process(None).unwrap();
            let nice = || getpriority_process(None).unwrap();
            assert_eq!(node.blocking(nice).await, Ok(own));
            // 19 is the lowest priority.
            assert_eq!(
                node.blocking_low_priority(nice).await,
                Ok((own + NICER).min(19))
            );
            assert_eq!(nice(), own);
            let crashed: Result<(), _> = node.blocking_low_priority(|| panic!("page")).await;
            assert_eq!(crashed.unwrap_err().reason, "page");
        }));
    }
}
