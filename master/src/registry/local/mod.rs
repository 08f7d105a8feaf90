//! A registry on the local disk: an actor that writes waiting operations in one commit, and answers
//! when it is synced.
//!
//! Handles [`Apply`], [`Read`] and [`ReadFrameworkState`] from its own [`LocalRegistry`]. Owns the
//! whole content, and the operations that arrived during a commit, which form the next one. Answers
//! only after the disk. A failed commit breaks it for good, since its outcome on the disk is
//! unknown.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use protocol::FrameworkId;
use protocol::message::state::StateValue;
use runtime::prelude::*;
use runtime::{Promise, Reply, SpawnError, promise};
use storage::{Changes, Store, StoreError};

use super::record;
use super::state::RegistryState;
use super::{Applied, Registry, RegistryError, RegistryOperation};

/// Maximum operations waiting for the disk; further ones are refused with `NotNow`.
const WAITING_MAX: usize = 65_536;
/// Maximum operations per commit.
const BATCH_MAX: usize = 512;
/// Commits between two measurements of disk usage: one costs as much as a small commit.
const MEASURED_EVERY: u64 = 64;
/// Time limit of the disk (`--registry_store_timeout`).
const STORE_TIMEOUT: Duration = Duration::from_secs(20);

type Answer = Result<Applied, RegistryError>;
type SharedStore = Arc<Mutex<Box<dyn Store>>>;

/// Applies an operation; answered when it is synced.
struct Apply(RegistryOperation);

impl Message for Apply {
    type Result = Answer;
}

/// Reads the content.
struct Read;

impl Message for Read {
    type Result = Result<RegistryState, RegistryError>;
}

/// Reads a key of a framework's state.
struct ReadFrameworkState {
    framework_id: FrameworkId,
    key: String,
}

impl Message for ReadFrameworkState {
    type Result = StateAnswer;
}

type StateAnswer = Result<Option<StateValue>, RegistryError>;

/// Owns the content and the store.
struct Registrar {
    store: SharedStore,
    state: RegistryState,
    waiting: VecDeque<(RegistryOperation, Promise<Answer>)>,
    readers: Vec<Promise<Result<RegistryState, RegistryError>>>,
    lookers: Vec<(ReadFrameworkState, Promise<StateAnswer>)>,
    committing: bool,
    commits: u64,
    disk_bytes: Arc<AtomicU64>,
    broken: Option<String>,
}

/// Outcome of a commit.
enum Committed {
    Synced,
    /// Nothing was changed; this is the store's content.
    Refused(String, Box<RegistryState>),
    Broken(String),
}

impl Actor for Registrar {
    type Context = Context<Self>;
}

impl Process for Registrar {}

impl Handler<Apply> for Registrar {
    type Result = Reply<Answer>;

    fn handle(&mut self, Apply(operation): Apply, ctx: &mut Context<Self>) -> Reply<Answer> {
        let (promise, reply) = promise();
        if self.waiting.len() >= WAITING_MAX {
            let reason = format!("{WAITING_MAX} operations already wait for the disk");
            promise.answer(Err(RegistryError::NotNow { reason }));
        } else {
            self.waiting.push_back((operation, promise));
            self.commit(ctx);
        }
        reply
    }
}

impl Handler<Read> for Registrar {
    type Result = Reply<Result<RegistryState, RegistryError>>;

    fn handle(&mut self, _: Read, ctx: &mut Context<Self>) -> Self::Result {
        let (promise, reply) = promise();
        self.readers.push(promise);
        self.commit(ctx);
        reply
    }
}

impl Handler<ReadFrameworkState> for Registrar {
    type Result = Reply<StateAnswer>;

    fn handle(&mut self, look: ReadFrameworkState, ctx: &mut Context<Self>) -> Self::Result {
        let (promise, reply) = promise();
        if self.lookers.len() >= WAITING_MAX {
            let reason = format!("{WAITING_MAX} reads already wait for the disk");
            promise.answer(Err(RegistryError::NotNow { reason }));
        } else {
            self.lookers.push((look, promise));
            self.commit(ctx);
        }
        reply
    }
}

impl Registrar {
    /// Commits the waiting operations, unless a commit is under way, which calls this again at its
    /// end.
    fn commit(&mut self, ctx: &mut Context<Self>) {
        if self.committing {
            return;
        }
        if let Some(reason) = &self.broken {
            for (_, promise) in self.waiting.drain(..) {
                let reason = reason.clone();
                promise.answer(Err(RegistryError::Broken { reason }));
            }
            for promise in self.readers.drain(..) {
                let reason = reason.clone();
                promise.answer(Err(RegistryError::Broken { reason }));
            }
            for (_, promise) in self.lookers.drain(..) {
                let reason = reason.clone();
                promise.answer(Err(RegistryError::Broken { reason }));
            }
            return;
        }
        for promise in self.readers.drain(..) {
            promise.answer(Ok(self.state.clone()));
        }
        for (ReadFrameworkState { framework_id, key }, promise) in self.lookers.drain(..) {
            let found = self.state.framework_states.get(&framework_id, &key);
            promise.answer(Ok(found.cloned()));
        }
        let mut changes = Changes::new();
        let mut answers = Vec::new();
        while answers.len() < BATCH_MAX {
            let Some((operation, promise)) = self.waiting.pop_front() else {
                break;
            };
            let applied = record::check(&operation).and_then(|()| self.state.apply(&operation));
            match applied.and_then(|touched| record::write(&self.state, &touched, &mut changes)) {
                Ok(()) => answers.push((promise, self.state.version)),
                Err(error) => promise.answer(Err(error)),
            }
        }
        if answers.is_empty() {
            return;
        }
        self.committing = true;
        let store = self.store.clone();
        let measured = self.commits.is_multiple_of(MEASURED_EVERY);
        self.commits += 1;
        let measured = measured.then(|| self.disk_bytes.clone());
        let written = ctx.node().blocking(move || {
            let written = commit(&store, changes);
            if let Some(disk_bytes) = measured {
                let store = store.lock().unwrap_or_else(PoisonError::into_inner);
                disk_bytes.store(store.disk_bytes(), Ordering::Relaxed);
            }
            written
        });
        ctx.then(written, move |registrar, written, ctx| {
            let outcome = written
                .unwrap_or_else(|_| Committed::Broken("the commit was interrupted".to_owned()));
            registrar.committing = false;
            registrar.answer(outcome, answers);
            registrar.commit(ctx);
        });
    }

    fn answer(&mut self, outcome: Committed, answers: Vec<(Promise<Answer>, u64)>) {
        let error = match outcome {
            Committed::Synced => {
                for (promise, version) in answers {
                    promise.answer(Ok(Applied { version }));
                }
                return;
            }
            Committed::Refused(reason, state) => {
                self.state = *state;
                RegistryError::NotNow { reason }
            }
            Committed::Broken(reason) => {
                tracing::error!(%reason, "the registry's store failed; this master must be restarted");
                self.broken = Some(reason.clone());
                RegistryError::Broken { reason }
            }
        };
        for (promise, _) in answers {
            promise.answer(Err(error.clone()));
        }
    }
}

/// Blocks until the disk has it.
fn commit(store: &SharedStore, changes: Changes) -> Committed {
    let mut store = store.lock().unwrap_or_else(PoisonError::into_inner);
    match store.commit(changes) {
        Ok(()) => Committed::Synced,
        Err(
            refusal @ (StoreError::Refused { .. }
            | StoreError::TooLarge { .. }
            | StoreError::BadKey),
        ) => match record::load(store.as_ref()) {
            Ok(state) => Committed::Refused(refusal.to_string(), Box::new(state)),
            Err(error) => Committed::Broken(error.to_string()),
        },
        Err(error) => Committed::Broken(error.to_string()),
    }
}

/// A registry on the local disk.
pub struct LocalRegistry {
    registrar: Handle<Registrar>,
    disk_bytes: Arc<AtomicU64>,
}

/// Why a registry on disk could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The store, or a record in it, cannot be read.
    #[error("the registry cannot be read")]
    Store(#[from] StoreError),
    /// A record has an unknown form.
    #[error("the registry's record {key:?} cannot be read: {reason}")]
    Record {
        /// The record's key.
        key: String,
        /// The found and the expected form.
        reason: String,
    },
    /// Its actor cannot be started.
    #[error("the registrar cannot be started")]
    Spawn(#[from] SpawnError),
}

impl LocalRegistry {
    /// Reads the whole store, blocking, and starts the actor `registrar` on `node`.
    pub fn open(node: &Node, store: Box<dyn Store>) -> Result<Self, OpenError> {
        let state = record::load(store.as_ref())?;
        let disk_bytes = Arc::new(AtomicU64::new(store.disk_bytes()));
        let registrar = Registrar {
            store: Arc::new(Mutex::new(store)),
            state,
            waiting: VecDeque::new(),
            readers: Vec::new(),
            lookers: Vec::new(),
            committing: false,
            commits: 0,
            disk_bytes: disk_bytes.clone(),
            broken: None,
        };
        let registrar = node.spawn("registrar", registrar)?;
        Ok(Self {
            registrar,
            disk_bytes,
        })
    }

    /// The content of a store that no registry has open.
    pub fn content(store: &dyn Store) -> Result<RegistryState, OpenError> {
        record::load(store)
    }
}

impl Registry for LocalRegistry {
    fn apply(&mut self, operation: RegistryOperation) -> BoxFuture<'static, Answer> {
        let asked = self.registrar.ask(Apply(operation), STORE_TIMEOUT);
        async move { asked.await.unwrap_or_else(|error| Err(unanswered(error))) }.boxed()
    }

    fn read(&mut self) -> BoxFuture<'static, Result<RegistryState, RegistryError>> {
        let asked = self.registrar.ask(Read, STORE_TIMEOUT);
        async move { asked.await.unwrap_or_else(|error| Err(unanswered(error))) }.boxed()
    }

    fn framework_state(
        &mut self,
        framework_id: &FrameworkId,
        key: &str,
    ) -> BoxFuture<'static, StateAnswer> {
        let look = ReadFrameworkState {
            framework_id: framework_id.clone(),
            key: key.to_owned(),
        };
        let asked = self.registrar.ask(look, STORE_TIMEOUT);
        async move { asked.await.unwrap_or_else(|error| Err(unanswered(error))) }.boxed()
    }

    fn disk_bytes(&self) -> Option<u64> {
        Some(self.disk_bytes.load(Ordering::Relaxed))
    }
}

/// Without an answer it is unknown whether the operation was applied, unless the mailbox was full.
fn unanswered(error: AskError) -> RegistryError {
    let reason = format!("the registrar: {error}");
    match error {
        AskError::Full => RegistryError::NotNow { reason },
        _ => RegistryError::Broken { reason },
    }
}

#[cfg(test)]
pub(super) mod tests;
