//! Placement: which thread an actor runs on, decided by its name from one table.
//!
//! Actors that talk much belong on one thread: a hop to another costs as much as fifty local asks. Unless
//! the table says otherwise everything runs on the node's home thread; in rehearsals it always does.

use std::io;
use std::sync::Arc;

use tokio::sync::mpsc;

/// The thread a node was built on.
const HOME: &str = "home";

/// Where an actor runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// On the thread the node was built on.
    Here,
    /// On a thread of its own, shared with others placed by the same rule.
    OwnThread,
}

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

/// Something to run once on an arbiter.
pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// A thread's door: jobs run there in the order they were sent.
#[derive(Clone)]
pub(crate) struct Arbiter {
    jobs: mpsc::UnboundedSender<Job>,
    name: Arc<str>,
}

impl Arbiter {
    /// The current thread, which must run a `LocalSet` (an actix system or a rehearsal).
    pub(crate) fn here() -> Self {
        let (jobs, queue) = mpsc::unbounded_channel();
        tokio::task::spawn_local(run(queue));
        Self {
            jobs,
            name: HOME.into(),
        }
    }

    /// A new thread with this name.
    pub(crate) fn thread(name: &str) -> io::Result<Self> {
        let (jobs, queue) = mpsc::unbounded_channel();
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

    /// Runs the job there; false if the thread has ended.
    pub(crate) fn run(&self, job: Job) -> bool {
        self.jobs.send(job).is_ok()
    }
}

async fn run(mut queue: mpsc::UnboundedReceiver<Job>) {
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
}
