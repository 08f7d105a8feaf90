//! Placement: the thread of an actor, by its name, from one table.
//!
//! Actors that exchange many messages belong on one thread: a hop to another thread costs as much
//! as fifty local asks. Actors that may be busy for long (an allocation run, a page of the whole
//! state, a third-party module) belong on threads of their own, so that pings are answered
//! meanwhile. By default everything runs on the node's home thread, where the transport is; in
//! simulations it always does.

use std::io;
use std::sync::Arc;

use tokio::sync::mpsc::{self, error::TrySendError};
use tokio::sync::oneshot;

use crate::lock;
use crate::node::{Interrupted, Node, SpawnError};

/// The thread a node was built on.
const HOME: &str = "home";
/// Maximum number of jobs that wait for one thread: actors to start, and futures of `run_at`. A
/// node has fewer actors than this; only unbounded spawning at a blocked thread reaches it.
const JOBS_MAX: usize = 1 << 18;

/// Where an actor runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// On the thread the node was built on.
    Here,
    /// On a thread of its own, shared with others placed by the same rule.
    OwnThread,
}

/// The placement of the actors of masters and agents. All others stay at home with the transport:
/// an agent's own actors, which pass each task's messages from one to the next.
const SERVICES: [(&str, Place); 7] = [
    // A master's decision loop, and the actors that it waits for.
    ("master", Place::OwnThread),
    ("consensus", Place::OwnThread),
    // Modules, which may be third-party code.
    ("allocator", Place::OwnThread),
    ("sorter", Place::OwnThread),
    ("resource_estimator", Place::OwnThread),
    ("qos_controller", Place::OwnThread),
    // Pages: not an actor, but placed in the same way.
    ("http", Place::OwnThread),
];

/// A table of name prefixes and the place of actors whose names begin with them. The longest match
/// wins.
#[derive(Clone, Debug, Default)]
pub struct Placement {
    rules: Vec<(String, Place)>,
}

impl Placement {
    /// Everything on the home thread.
    pub fn here() -> Self {
        Self::default()
    }

    /// The table of masters and agents: the master, its registry (consensus), the allocator, the
    /// sorter, every other module and the HTTP server have a thread each; all else is at home.
    pub fn services() -> Self {
        let table = SERVICES.into_iter();
        table.fold(Self::here(), |table, (prefix, place)| {
            table.put(prefix, place)
        })
    }

    /// Places actors with this name prefix.
    pub fn put(mut self, prefix: impl Into<String>, place: Place) -> Self {
        self.rules.push((prefix.into(), place));
        self
    }

    /// The prefix of the thread that runs this actor; `None` is the home thread.
    pub(crate) fn thread_of(&self, name: &str) -> Option<&str> {
        let matching = self
            .rules
            .iter()
            .filter(|(prefix, _)| name.starts_with(prefix.as_str()));
        let (prefix, place) = matching.max_by_key(|(prefix, _)| prefix.len())?;
        (*place == Place::OwnThread).then_some(prefix.as_str())
    }
}

impl Node {
    /// The thread that runs the actor of this name.
    pub(crate) fn arbiter(&self, name: &str) -> Result<Arbiter, SpawnError> {
        let Some(prefix) = self.0.placement.thread_of(name) else {
            return Ok(self.0.home.clone());
        };
        let mut threads = lock(&self.0.threads);
        if let Some(arbiter) = threads.get(prefix) {
            return Ok(arbiter.clone());
        }
        let arbiter = Arbiter::thread(prefix).map_err(|error| SpawnError::NoThread {
            name: name.to_owned(),
            reason: error.to_string(),
        })?;
        threads.insert(prefix.to_owned(), arbiter.clone());
        Ok(arbiter)
    }

    /// Runs a future that is no actor on the thread of this name, and returns its output. It
    /// continues when the returned future is dropped. [`Interrupted`] if it panicked or the thread
    /// has ended.
    pub fn run_at<T, F, B>(
        &self,
        name: &str,
        begin: B,
    ) -> Result<impl Future<Output = Result<T, Interrupted>> + Send + use<T, F, B>, SpawnError>
    where
        T: Send + 'static,
        F: Future<Output = T> + 'static,
        B: FnOnce() -> F + Send + 'static,
    {
        let (sender, output) = oneshot::channel();
        let job = move || {
            // The caller may no longer wait for the output.
            drop(tokio::task::spawn_local(async move {
                sender.send(begin().await)
            }));
        };
        self.arbiter(name)?
            .run(Box::new(job))
            .map_err(|error| error.of(name))?;
        Ok(async move {
            output.await.map_err(|_| Interrupted {
                reason: "it panicked, or its thread has ended".into(),
            })
        })
    }
}

/// A closure to run once on an arbiter.
pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// Why a job is not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RunError {
    #[error("its thread has ended")]
    Ended,
    #[error("its queue of {JOBS_MAX} jobs is full")]
    Full,
}

impl RunError {
    /// The error for the caller that starts the actor of this name.
    pub(crate) fn of(self, name: &str) -> SpawnError {
        SpawnError::NoThread {
            name: name.to_owned(),
            reason: self.to_string(),
        }
    }
}

/// The queue of a thread: jobs run there in the order they were sent.
#[derive(Clone)]
pub(crate) struct Arbiter {
    jobs: mpsc::Sender<Job>,
    name: Arc<str>,
}

impl Arbiter {
    /// The current thread, which must run a `LocalSet` (an actix system or a simulation).
    pub(crate) fn here() -> Self {
        let (jobs, queue) = mpsc::channel(JOBS_MAX);
        tokio::task::spawn_local(run(queue));
        Self {
            jobs,
            name: HOME.into(),
        }
    }

    /// A new thread with this name.
    pub(crate) fn thread(name: &str) -> io::Result<Self> {
        let (jobs, queue) = mpsc::channel(JOBS_MAX);
        let runtime_made = std::sync::mpsc::sync_channel(1);
        std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                match actix_rt::Runtime::new() {
                    Ok(runtime) => {
                        let _ = runtime_made.0.send(Ok(()));
                        runtime.block_on(run(queue));
                    }
                    Err(error) => drop(runtime_made.0.send(Err(error))),
                };
            })?;
        runtime_made
            .1
            .recv()
            .map_err(|_| io::Error::other("the thread ended at its start"))??;
        Ok(Self {
            jobs,
            name: name.into(),
        })
    }

    /// Its name in the table.
    pub(crate) fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Runs the job there, after the earlier jobs.
    pub(crate) fn run(&self, job: Job) -> Result<(), RunError> {
        self.jobs.try_send(job).map_err(|unsent| match unsent {
            TrySendError::Full(_) => RunError::Full,
            TrySendError::Closed(_) => RunError::Ended,
        })
    }
}

async fn run(mut queue: mpsc::Receiver<Job>) {
    while let Some(job) = queue.recv().await {
        crate::clock::moved();
        job();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_prefix_decides_and_the_rest_stay_home() {
        let table = Placement::here()
            .put("http", Place::OwnThread)
            .put("http/admin", Place::Here);
        let threads = ["http/v1", "http/admin", "master"].map(|name| table.thread_of(name));
        assert_eq!(threads, [Some("http"), None, None]);
    }

    // Covers W5; 6.1 Scheduling.
    #[test]
    fn services_have_own_threads_and_agent_actors_share_home() {
        let table = Placement::services();
        let own = [
            "master",
            "consensus",
            "allocator",
            "sorter",
            "resource_estimator",
            "qos_controller",
            "http",
        ];
        assert_eq!(own.map(|name| table.thread_of(name)), own.map(Some));
        let home = ["agent", "containerizer", "status_updates", "monitor", "qos"];
        assert_eq!(home.map(|name| table.thread_of(name)), [None; 5]);
    }
}
