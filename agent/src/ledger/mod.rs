//! The ledger: writes the checkpoints by which the next agent process recovers.
//!
//! Receives containers and tasks from the containerizer before they start, and updates from the
//! status updates before they are sent. Confirms each write in the order of requests. All pending
//! requests form one write, so a slow disk costs each caller one write. Entries that failed are
//! retried before later ones, so a recovering process sees a consistent prefix. Never reads:
//! recovery is done before the agent starts ([`plan`]).
//!
//! | module | contents |
//! |---|---|
//! | `misfits` | recovered tasks that exceed the agent's changed resources |
//! | `plan` | the recovery plan: which containers continue, and which are over |
//! | `reconfiguration` | whether a changed agent is compatible (`--reconfiguration_policy`) |
//! | `record` | the keys and the encoding of checkpoint records |
//! | `recovery` | reads the checkpoints of an earlier agent process |
//! | `store` | the store of the records in the work directory |

pub mod misfits;
pub mod plan;
pub mod reconfiguration;
pub mod record;
pub mod recovery;
pub mod store;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::time::Duration;

use runtime::prelude::*;

use self::record::Entry;
use self::store::CheckpointStore;

/// Maximum pending requests; further ones are refused.
const WAITING_MAX: usize = 65_536;
/// Maximum failed entries kept for retry; above it, new requests are refused.
const FAILED_MAX: usize = 65_536;
/// Delay before a failed write is retried, unless another request comes first.
pub(crate) const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Approximate bytes per write.
const WRITE_BYTES: usize = 4 * 1024 * 1024;

/// A completion callback. Called with an error if the ledger ends or refuses the request.
pub struct OnWritten(Option<Continuation>);

type Continuation = Box<dyn FnOnce(Result<(), LedgerError>) + Send>;

/// Why an entry is not on disk.
#[derive(Clone, Debug, thiserror::Error)]
pub enum LedgerError {
    /// The write failed and will be retried before later ones.
    #[error("{0}")]
    WriteFailed(String),
    /// Refused; it will not be written.
    #[error("{0}")]
    NotAccepted(String),
}

impl OnWritten {
    /// A callback.
    pub fn new(on_written: impl FnOnce(Result<(), LedgerError>) + Send + 'static) -> Self {
        Self(Some(Box::new(on_written)))
    }

    fn tell(mut self, outcome: Result<(), LedgerError>) {
        if let Some(on_written) = self.0.take() {
            on_written(outcome);
        }
    }
}

impl Drop for OnWritten {
    fn drop(&mut self) {
        if let Some(on_written) = self.0.take() {
            let problem = "the ledger has failed".to_owned();
            on_written(Err(LedgerError::NotAccepted(problem)));
        }
    }
}

/// Writes these entries in order. Without entries, waits for earlier writes.
#[derive(Message)]
#[rtype(result = "()")]
pub struct WriteEntries {
    /// The entries.
    pub entries: Vec<Entry>,
    /// Called when they are on disk.
    pub on_written: Option<OnWritten>,
}

/// Deletes all checkpoints and the agent's id: the agent will not return under it. Later requests
/// are not written; they complete once everything is deleted. Answered with the result: until it is
/// `Ok`, a next process may find the checkpoints.
#[derive(Message, Clone, Copy, Debug)]
#[rtype(result = "Result<(), LedgerError>")]
pub struct DeleteCheckpoints;

/// Waits until all pending writes are done.
#[derive(Message, Clone, Copy, Debug)]
#[rtype(result = "()")]
pub struct FlushLedger;

/// The ledger actor.
pub struct Ledger {
    /// Taken while a write is running.
    store: Option<CheckpointStore>,
    waiting: VecDeque<WriteEntries>,
    /// Entries of failed or uncertain writes. Written first next time.
    failed: Vec<Entry>,
    /// Whether to write them even without new requests.
    retry: bool,
    /// Whether a retry is scheduled.
    retry_scheduled: bool,
    /// Whether to delete all checkpoints before the next write.
    delete_pending: bool,
    deleting: bool,
    /// Waiting for the deletion.
    delete_waiters: Vec<Promise<Result<(), LedgerError>>>,
    /// Callbacks of requests since. They wait for the deletion: until then, a next process could
    /// find the older checkpoints without these.
    waiting_for_delete: Vec<OnWritten>,
    flush_waiters: Vec<Promise<()>>,
}

impl Ledger {
    /// A ledger that writes to this store.
    pub fn new(store: CheckpointStore) -> Self {
        Self {
            store: Some(store),
            waiting: VecDeque::new(),
            failed: Vec::new(),
            retry: false,
            retry_scheduled: false,
            delete_pending: false,
            deleting: false,
            delete_waiters: Vec::new(),
            waiting_for_delete: Vec::new(),
            flush_waiters: Vec::new(),
        }
    }

    /// Writes the pending requests, unless a write is running.
    fn write(&mut self, ctx: &mut Context<Self>) {
        let Some(mut store) = self.store.take() else {
            return;
        };
        let retry = std::mem::take(&mut self.retry);
        let delete = self.delete_pending && (retry || !self.waiting.is_empty());
        let (mut fresh, mut callbacks, mut bytes) = (Vec::new(), Vec::new(), 0);
        while bytes < WRITE_BYTES
            && let Some(request) = self.waiting.pop_front()
        {
            let size = |entry: &Entry| match entry {
                Entry::Put(_, value) => value.len(),
                Entry::Remove(_) => 0,
            };
            bytes += request.entries.iter().map(size).sum::<usize>() + 1;
            fresh.extend(request.entries);
            callbacks.extend(request.on_written);
        }
        let retry_failed = retry && !self.failed.is_empty();
        if bytes == 0 && !delete && !retry_failed {
            self.store = Some(store);
            for waiter in self.flush_waiters.drain(..) {
                waiter.answer(());
            }
            return;
        }
        let delete_waiters = match delete {
            true => std::mem::take(&mut self.delete_waiters),
            false => Vec::new(),
        };
        let mut entries = std::mem::take(&mut self.failed);
        entries.append(&mut fresh);
        let written = ctx.node().blocking(move || {
            let written = match delete {
                true => store.clear(),
                false => Ok(()),
            };
            let written = written.and_then(|()| store.write(&entries));
            let failed = |error: storage::StoreError| LedgerError::WriteFailed(error.to_string());
            (store, entries, written.map_err(failed))
        });
        ctx.then(written, move |this, written, ctx| {
            let outcome = match written {
                Ok((store, entries, outcome)) => {
                    this.store = Some(store);
                    match &outcome {
                        Ok(()) => this.delete_pending &= !delete,
                        Err(_) => this.keep_failed(entries, ctx),
                    }
                    outcome
                }
                Err(interrupted) => Err(LedgerError::NotAccepted(interrupted.to_string())),
            };
            if let Err(problem) = &outcome {
                tracing::error!(
                    %problem,
                    "cannot write checkpoints"
                );
            }
            if delete {
                callbacks.append(&mut this.waiting_for_delete);
            }
            for on_written in callbacks {
                on_written.tell(outcome.clone());
            }
            for waiter in delete_waiters {
                waiter.answer(outcome.clone());
            }
            match this.store {
                Some(_) => this.write(ctx),
                // The store is lost with its interrupted job. The ledger ends, and its agent with
                // it.
                None => ctx.stop(),
            }
        });
    }

    /// Keeps failed entries for the next write and schedules it.
    fn keep_failed(&mut self, entries: Vec<Entry>, ctx: &mut Context<Self>) {
        // After `DeleteCheckpoints` nothing needs to be written.
        if !self.deleting {
            self.failed = entries;
        }
        if !std::mem::replace(&mut self.retry_scheduled, true) {
            ctx.after(RETRY_AFTER, |this, ctx| {
                (this.retry_scheduled, this.retry) = (false, true);
                this.write(ctx);
            });
        }
    }
}

impl Actor for Ledger {
    type Context = Context<Self>;
}

impl Process for Ledger {}

impl Handler<WriteEntries> for Ledger {
    type Result = ();
    fn handle(&mut self, request: WriteEntries, ctx: &mut Context<Self>) {
        if self.deleting && !self.delete_pending {
            return request
                .on_written
                .into_iter()
                .for_each(|on_written| on_written.tell(Ok(())));
        }
        let waiting = self.waiting.len() + self.waiting_for_delete.len();
        if waiting >= WAITING_MAX || self.failed.len() >= FAILED_MAX {
            let problem = LedgerError::NotAccepted("too many pending checkpoint writes".to_owned());
            let callbacks = request.on_written.into_iter();
            return callbacks.for_each(|on_written| on_written.tell(Err(problem.clone())));
        }
        if self.deleting {
            return self.waiting_for_delete.extend(request.on_written);
        }
        self.waiting.push_back(request);
        self.write(ctx);
    }
}

impl Handler<DeleteCheckpoints> for Ledger {
    type Result = Reply<Result<(), LedgerError>>;
    fn handle(&mut self, _: DeleteCheckpoints, ctx: &mut Context<Self>) -> Self::Result {
        let (promise, reply) = promise();
        self.delete_waiters.push(promise);
        self.deleting = true;
        self.delete_pending = true;
        self.retry = true;
        self.failed.clear();
        let waiting = self.waiting.drain(..);
        self.waiting_for_delete
            .extend(waiting.filter_map(|request| request.on_written));
        self.write(ctx);
        reply
    }
}

impl Handler<FlushLedger> for Ledger {
    type Result = Reply<()>;
    fn handle(&mut self, _: FlushLedger, ctx: &mut Context<Self>) -> Reply<()> {
        let (promise, reply) = promise();
        self.flush_waiters.push(promise);
        // One more attempt for failed entries; then the result stands.
        self.retry = true;
        self.write(ctx);
        reply
    }
}
