//! Placement: which thread an actor runs on, decided by its name from one table.
//!
//! Actors that talk much belong on one thread: a hop to another costs as much as fifty local asks. Actors that may be busy for long
//! (an allocation run, a page of the whole state, a module by somebody else) belong on threads of their own, so that pings are answered
//! meanwhile. Unless the table says otherwise everything runs on the node's home thread, where the transport is; in rehearsals it
//! always does.

use std::io;
use std::sync::Arc;

use tokio::sync::mpsc::{self, error::TrySendError};
use tokio::sync::oneshot;

use crate::lock;
use crate::node::{Interrupted, Node, SpawnError};

/// The thread a node was built on.
const HOME: &str = "home";
/// Jobs that may wait for one thread: actors to be started, and what is run at a place. More than a node has actors; it is reached
/// only by who spawns without end at a thread that is blocked.
const JOBS_MAX: usize = 1 << 18;

/// Where an actor runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// On the thread the node was built on.
    Here,
    /// On a thread of its own, shared with others placed by the same rule.
    OwnThread,
}

/// Where the actors of masters and agents run. What is not named stays at home with the transport: an agent's own actors, whose
/// messages go from one to the next for each task.
const SERVICES: [(&str, Place); 8] = [
    // A master's one decider, and what it waits for.
    ("master", Place::OwnThread),
    ("consensus", Place::OwnThread),
    ("registrar", Place::OwnThread),
    // Modules, which anybody may have written.
    ("allocator", Place::OwnThread),
    ("sorter", Place::OwnThread),
    ("resource_estimator", Place::OwnThread),
    ("qos_controller", Place::OwnThread),
    // Pages: not an actor, but run in the same way.
    ("http", Place::OwnThread),
];

/// The table: name prefixes and the place of the actors whose names begin so. The longest match counts.
#[derive(Clone, Debug, Default)]
pub struct Placement {
    rules: Vec<(String, Place)>,
}

impl Placement {
    /// Everything on the home thread.
    pub fn here() -> Self {
        Self::default()
    }

    /// The table of masters and agents: the master, its registry (consensus), the allocator, the sorter, every other module and the
    /// HTTP server have a thread each; all else is at home.
    pub fn services() -> Self {
        let table = SERVICES.into_iter();
        table.fold(Self::here(), |table, (prefix, place)| {
            table.put(prefix, place)
        })
    }

    /// Actors whose name begins with this prefix go there.
    pub fn put(mut self, prefix: impl Into<String>, place: Place) -> Self {
        self.rules.push((prefix.into(), place));
        self
    }

    /// The prefix whose thread runs this actor; `None` is the home thread.
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

    /// Runs a future on the thread that the placement gives this name, for work that is no actor; gives its output. Dropping what is
    /// returned leaves it running. [`Interrupted`] if it panicked or the thread has ended.
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
        let (told, output) = oneshot::channel();
        let job = move || {
            // Whoever began it may no longer wait for its output.
            drop(tokio::task::spawn_local(
                async move { told.send(begin().await) },
            ));
        };
        self.arbiter(name)?
            .run(Box::new(job))
            .map_err(|unrun| unrun.of(name))?;
        Ok(async move {
            output.await.map_err(|_| Interrupted {
                reason: "it panicked, or its thread has ended".into(),
            })
        })
    }
}

/// Something to run once on an arbiter.
pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// Why a job is not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unrun {
    #[error("it has ended")]
    Ended,
    #[error("{JOBS_MAX} jobs wait for it already")]
    Full,
}

impl Unrun {
    /// As whoever wanted the actor of this name started is told it.
    pub(crate) fn of(self, name: &str) -> SpawnError {
        SpawnError::NoThread {
            name: name.to_owned(),
            reason: self.to_string(),
        }
    }
}

/// A thread's door: jobs run there in the order they were sent.
#[derive(Clone)]
pub(crate) struct Arbiter {
    jobs: mpsc::Sender<Job>,
    name: Arc<str>,
}

impl Arbiter {
    /// The current thread, which must run a `LocalSet` (an actix system or a rehearsal).
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

    /// What the table calls it.
    pub(crate) fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Runs the job there, once those before it were run.
    pub(crate) fn run(&self, job: Job) -> Result<(), Unrun> {
        self.jobs.try_send(job).map_err(|unsent| match unsent {
            TrySendError::Full(_) => Unrun::Full,
            TrySendError::Closed(_) => Unrun::Ended,
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

    #[test]
    fn services_have_threads_of_their_own_and_an_agents_actors_share_the_home_thread() {
        let table = Placement::services();
        let own = [
            "master",
            "registrar",
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
