//! A process: a node and its actors, which can end at any moment.
//!
//! Everything of a process is in one `LocalSet`. Dropping the set drops every actor and future in
//! it without any message; messages sent before are in the network. A paused process is not polled:
//! its timers expire meanwhile, and it notices when it continues.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Poll, Waker};

use tokio::sync::oneshot;
use tokio::task::{AbortHandle, LocalSet};

/// A running process. Clones share it. Dropping it does not end it; [`Process::kill`] does.
#[derive(Clone)]
pub struct Process {
    body: Rc<Body>,
    driver: AbortHandle,
}

struct Body {
    life: RefCell<Option<LocalSet>>,
    /// The number of active pauses.
    pauses: Cell<u32>,
    waker: RefCell<Option<Waker>>,
}

impl Process {
    /// Starts a process. `build` is called at once and returns a value for the caller and the main
    /// task; the receiver gets the task's result, or an error if the process is killed. Call it in
    /// a `LocalSet`.
    pub fn start<K, T: 'static, F: Future<Output = T> + 'static>(
        build: impl FnOnce() -> (K, F),
    ) -> (Self, K, oneshot::Receiver<T>) {
        let (tell, ended) = oneshot::channel();
        let set = LocalSet::new();
        let inside = set.enter();
        let (known, main) = build();
        tokio::task::spawn_local(async move {
            let _ = tell.send(main.await); // the starter may have dropped the receiver
        });
        drop(inside);
        let body = Rc::new(Body {
            life: RefCell::new(Some(set)),
            pauses: Cell::new(0),
            waker: RefCell::new(None),
        });
        let driver = tokio::task::spawn_local(drive(body.clone())).abort_handle();
        (Self { body, driver }, known, ended)
    }

    /// Stops its progress until [`Process::resume`] is called as often.
    pub fn pause(&self) {
        self.body.pauses.set(self.body.pauses.get() + 1);
    }

    /// Undoes one [`Process::pause`].
    pub fn resume(&self) {
        self.body
            .pauses
            .set(self.body.pauses.get().saturating_sub(1));
        if let Some(waker) = self.body.waker.take() {
            waker.wake();
        }
    }

    /// Ends the process at once. Not to be called from inside it.
    pub fn kill(&self) {
        let life = self.body.life.borrow_mut().take();
        drop(life);
        self.driver.abort();
    }
}

async fn drive(body: Rc<Body>) {
    poll_fn(|cx| {
        if body.pauses.get() > 0 {
            *body.waker.borrow_mut() = Some(cx.waker().clone());
            return Poll::Pending;
        }
        match body.life.borrow_mut().as_mut() {
            Some(set) => Pin::new(set).poll(cx),
            None => Poll::Ready(()),
        }
    })
    .await;
}

#[cfg(test)]
mod tests {
    use super::Process;
    use runtime::prelude::{Actor, Clock, Context};
    use runtime::testing;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    /// Counts its work, and its stop notifications.
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
    fn killed_process_stops_without_shutdown() {
        testing::run_simulated(async {
            let clock = Clock::paused();
            let (worked, farewells) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
            let worker = Worker {
                worked: worked.clone(),
                farewells: farewells.clone(),
            };
            let (process, (), ended) = Process::start(|| {
                let node = testing::node("node").build();
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

    #[test]
    fn paused_process_makes_no_progress() {
        testing::run_simulated(async {
            let clock = Clock::paused();
            let worked = Arc::new(AtomicU32::new(0));
            let worker = Worker {
                worked: worked.clone(),
                farewells: Arc::default(),
            };
            let (process, (), _ended) = Process::start(|| {
                let node = testing::node("node").build();
                let worker = node.spawn("worker", worker).unwrap();
                ((), async move { node.ended(&worker.pid()).await })
            });
            clock.advance(Duration::from_millis(2500)).await;
            process.pause();
            clock.advance(Duration::from_secs(10)).await;
            assert_eq!(worked.load(Ordering::Relaxed), 2);
            process.resume();
            clock.advance(Duration::from_millis(3500)).await;
            assert!(worked.load(Ordering::Relaxed) >= 5);
            process.kill();
        });
    }
}
