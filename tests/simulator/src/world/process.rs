//! A process: a node and all that lives on it, which can be gone from one moment to the next.
//!
//! Everything of a process is in one `LocalSet`. Dropping that set drops every actor and future in it, without a word to
//! anybody; what the process said before is with the network. It knows nothing of what runs inside.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;

use tokio::sync::oneshot;
use tokio::task::{JoinHandle, LocalSet};

/// A running process. Dropping it lets it run on; [`Process::kill`] ends it.
pub struct Process {
    life: Rc<RefCell<Option<LocalSet>>>,
    driver: JoinHandle<()>,
}

impl Process {
    /// Begins a process. `build` is called at once and gives what its starter needs to know of it, and its main task; the
    /// receiver gives what that gives, or an error if the process is killed first. To be called in a `LocalSet`.
    pub fn start<K, T: 'static, F: Future<Output = T> + 'static>(
        build: impl FnOnce() -> (K, F),
    ) -> (Self, K, oneshot::Receiver<T>) {
        let (tell, ended) = oneshot::channel();
        let set = LocalSet::new();
        let inside = set.enter();
        let (known, main) = build();
        tokio::task::spawn_local(async move {
            let _ = tell.send(main.await); // Whoever started it may not want to know.
        });
        drop(inside);
        let life = Rc::new(RefCell::new(Some(set)));
        let driver = tokio::task::spawn_local(drive(life.clone()));
        (Self { life, driver }, known, ended)
    }

    /// The process is gone. Not to be called from inside it.
    pub fn kill(&self) {
        let life = self.life.borrow_mut().take();
        drop(life);
        self.driver.abort();
    }
}

async fn drive(life: Rc<RefCell<Option<LocalSet>>>) {
    poll_fn(|cx| match life.borrow_mut().as_mut() {
        Some(set) => Pin::new(set).poll(cx),
        None => Poll::Ready(()),
    })
    .await;
}

#[cfg(test)]
mod tests {
    use super::Process;
    use runtime::prelude::{Actor, Clock, Context};
    use runtime::rehearsal;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    /// Counts what it does, and how often it was told that it stops.
    struct Worker {
        worked: Arc<AtomicU32>,
        farewells: Arc<AtomicU32>,
    }

    impl Actor for Worker {
        type Context = Context<Self>;

        fn started(&mut self, ctx: &mut Context<Self>) {
            ctx.every(Duration::from_secs(1), |this, _| {
                this.worked.fetch_add(1, Ordering::Relaxed);
            });
        }

        fn stopped(&mut self, _: &mut Context<Self>) {
            self.farewells.fetch_add(1, Ordering::Relaxed);
        }
    }

    impl runtime::Process for Worker {}

    #[test]
    fn a_process_that_is_killed_does_nothing_more_and_says_no_farewell() {
        rehearsal::stage(async {
            let clock = Clock::paused();
            let (worked, farewells) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
            let worker = Worker {
                worked: worked.clone(),
                farewells: farewells.clone(),
            };
            let (process, (), ended) = Process::start(|| {
                let node = rehearsal::node("node").build();
                let worker = node.spawn("worker", worker).unwrap();
                let main = async move { node.ended(&worker.pid()).await };
                ((), main)
            });
            clock.advance(Duration::from_millis(3500)).await;
            process.kill();
            clock.advance(Duration::from_secs(10)).await;
            assert_eq!(worked.load(Ordering::Relaxed), 3);
            assert_eq!(farewells.load(Ordering::Relaxed), 0);
            assert!(ended.await.is_err(), "it had no time to end");
        });
    }
}
