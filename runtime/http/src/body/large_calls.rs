//! Limits how many large calls are decoded at the same time.
//!
//! A decoded call may take a hundred times its bytes: an empty operation has two bytes in protobuf.
//! So only a few large calls are decoded at a time, and each keeps its permit until the decoded
//! data is dropped. One address gets at most half of the permits. A queued call holds no slot in
//! the [`admission`](crate::admission), so small calls never wait for large ones.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use runtime::Node;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::admission::RequestSlot;
use crate::api::Refusal;
use crate::connections::Source;

/// Maximum large calls at the same time. Each may take the memory of [`v1::Limits`], and about as
/// much again for the data made of it.
const CONCURRENT_MAX: usize = 4;
/// Maximum large calls of one address.
const PER_ADDRESS_MAX: usize = CONCURRENT_MAX / 2;
/// Maximum time in the queue.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(30);

/// The permits of one listener. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct DecodePermits(Arc<PermitPools>);

/// The calls of one address queue for that address's permits first. A request without a connection,
/// as in tests, has no address.
#[derive(Debug)]
struct PermitPools {
    all: Arc<Semaphore>,
    of: Mutex<BTreeMap<Option<Source>, Weak<Semaphore>>>,
}

/// Permit of one large call, until this is dropped.
#[derive(Debug)]
pub(crate) struct DecodePermit {
    _of_all: Option<OwnedSemaphorePermit>,
    _of_one: Option<OwnedSemaphorePermit>,
}

impl DecodePermits {
    pub fn new() -> Self {
        Self(Arc::new(PermitPools {
            all: Arc::new(Semaphore::new(CONCURRENT_MAX)),
            of: Mutex::default(),
        }))
    }

    async fn next(&self, source: Option<Source>) -> DecodePermit {
        // The semaphores are never closed.
        let of_one = self.of(source).acquire_owned().await.ok();
        let of_all = self.0.all.clone().acquire_owned().await.ok();
        DecodePermit {
            _of_all: of_all,
            _of_one: of_one,
        }
    }

    /// The semaphore of an address, removed when unused.
    fn of(&self, source: Option<Source>) -> Arc<Semaphore> {
        let mut of = self.0.of.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(semaphore) = of.get(&source).and_then(Weak::upgrade) {
            return semaphore;
        }
        of.retain(|_, semaphore| semaphore.strong_count() > 0);
        let semaphore = Arc::new(Semaphore::new(PER_ADDRESS_MAX));
        of.insert(source, Arc::downgrade(&semaphore));
        semaphore
    }
}

/// Where a request queues if it turns out to be large. It is a request extension.
#[derive(Clone)]
pub(crate) struct DecodeQueue {
    pub permits: DecodePermits,
    pub slot: RequestSlot,
    pub source: Option<Source>,
}

impl DecodeQueue {
    /// Waits for a permit; after the maximum time the client is asked to retry.
    pub async fn permit(self, node: &Node) -> Result<DecodePermit, Refusal> {
        let _released = self.slot.release_while_queued();
        let permit = self.permits.next(self.source);
        let permit = node.clock().timeout(QUEUE_TIMEOUT, permit).await;
        permit.map_err(|_| {
            let seconds = QUEUE_TIMEOUT.as_secs();
            Refusal::not_now(format!(
                "no turn within {seconds} s for this large call ({PER_ADDRESS_MAX} per address and {CONCURRENT_MAX} in total are read at a time); retry later"
            ))
        })
    }
}
