//! Runs the endpoint's own tasks on the node's home thread, independent of the caller.
//!
//! Keeps the handle of the first task, which drives the endpoint and owns its socket, so that a
//! close can wait until the port is free. Timers and clock are tokio's, which a simulation pauses.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use quinn::{AsyncTimer, AsyncUdpSocket, Runtime, TokioRuntime};
use tokio::task::JoinHandle;

#[derive(Debug)]
pub(super) struct Tasks {
    home: tokio::runtime::Handle,
    driver: Mutex<Option<JoinHandle<()>>>,
}

impl Tasks {
    pub(super) fn on(home: tokio::runtime::Handle) -> Self {
        Self {
            home,
            driver: Mutex::default(),
        }
    }

    /// The task that drives the endpoint; can be taken once.
    pub(super) fn driver(&self) -> Option<JoinHandle<()>> {
        self.driver
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }
}

impl Runtime for Tasks {
    #[allow(clippy::disallowed_types, reason = "quinn speaks of time in these")]
    fn new_timer(&self, at: std::time::Instant) -> Pin<Box<dyn AsyncTimer>> {
        TokioRuntime.new_timer(at)
    }

    fn spawn(&self, future: Pin<Box<dyn Future<Output = ()> + Send>>) {
        let task = self.home.spawn(future);
        let mut driver = self.driver.lock().unwrap_or_else(PoisonError::into_inner);
        if driver.is_none() {
            *driver = Some(task);
        }
    }

    fn wrap_udp_socket(
        &self,
        socket: std::net::UdpSocket,
    ) -> std::io::Result<Arc<dyn AsyncUdpSocket>> {
        TokioRuntime.wrap_udp_socket(socket)
    }

    #[allow(clippy::disallowed_types, reason = "quinn speaks of time in these")]
    fn now(&self) -> std::time::Instant {
        TokioRuntime.now() // stands still while time is paused
    }
}
