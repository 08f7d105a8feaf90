//! The route: the link that a thread has spoken over last, kept so that most tells need neither a lock nor a look-up.
//!
//! Remembers one link for each thread, and the version of its node's links at which that was right. Never decides who
//! is linked: a route that is no longer right is found out by its version or by its link's end, and then not used.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::identity::NodeId;
use crate::link::Connection;

/// The newest version of any node's links, so that no two of them are ever the same.
static NEWEST: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static ROUTE: RefCell<Option<Route>> = const { RefCell::new(None) };
}

struct Route {
    version: u64,
    connection: Arc<Connection>,
}

/// Which links a node has, as a number that is another one after each change.
pub(crate) struct Version(AtomicU64);

impl Default for Version {
    fn default() -> Self {
        Self(AtomicU64::new(NEWEST.fetch_add(1, Ordering::Relaxed) + 1))
    }
}

impl Version {
    /// The links are about to change. Whoever calls this holds the lock on them.
    pub(crate) fn change(&self) {
        let newest = NEWEST.fetch_add(1, Ordering::Relaxed) + 1;
        self.0.store(newest, Ordering::Release);
    }

    /// Speaks over this thread's route if it leads to that node and is still right.
    #[inline]
    pub(crate) fn over<T>(&self, node: &NodeId, speak: impl FnOnce(&Connection) -> T) -> Option<T> {
        let version = self.0.load(Ordering::Acquire);
        let over = |route: &RefCell<Option<Route>>| {
            let route = route.try_borrow().ok()?;
            let route = route.as_ref()?;
            let right = route.version == version && route.connection.peer.node == *node;
            right.then(|| speak(&route.connection))
        };
        ROUTE.try_with(over).ok().flatten()
    }

    /// Keeps this as the thread's route. Whoever calls this holds the lock on the links, and has found it there.
    pub(crate) fn keep(&self, connection: &Arc<Connection>) {
        let (version, connection) = (self.0.load(Ordering::Relaxed), connection.clone());
        // A thread that is ending, or that is speaking over its route just now, keeps none.
        let _ = ROUTE.try_with(|route| {
            if let Ok(mut route) = route.try_borrow_mut() {
                *route = Some(Route {
                    version,
                    connection,
                });
            }
        });
    }
}
