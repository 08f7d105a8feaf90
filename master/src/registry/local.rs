//! A registry on this machine's disk: an actor that writes what waits in one commit, and answers when it is synced.
//!
//! Hears [`Apply`], [`Read`] and [`Look`] from its own [`LocalRegistry`] only. Remembers the whole content, and the operations that
//! came while a commit was under way: they are the next commit. It never answers before the disk has: a commit that
//! failed breaks it for good, since nobody knows what of it will be found again.

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

/// How many operations may wait for the disk; one more is refused with `NotNow`.
const WAITING_MAX: usize = 65_536;
/// How many operations are in one commit at most.
const BATCH_MAX: usize = 512;
/// How many commits are between two looks at how much of the disk it takes: a look costs as much as a small commit.
const MEASURED_EVERY: u64 = 64;
/// How long the disk may take (SPEC 3.1, `--registry_store_timeout`).
const STORE_TIMEOUT: Duration = Duration::from_secs(20);

type Answer = Result<Applied, RegistryError>;
type SharedStore = Arc<Mutex<Box<dyn Store>>>;

/// Apply this, and answer when it is synced.
struct Apply(RegistryOperation);

impl Message for Apply {
    type Result = Answer;
}

/// What is the content?
struct Read;

impl Message for Read {
    type Result = Result<RegistryState, RegistryError>;
}

/// What does this framework keep under this key?
struct Look {
    framework_id: FrameworkId,
    key: String,
}

impl Message for Look {
    type Result = Found;
}

type Found = Result<Option<StateValue>, RegistryError>;

/// Owns the content and the store.
struct Registrar {
    store: SharedStore,
    state: RegistryState,
    waiting: VecDeque<(RegistryOperation, Promise<Answer>)>,
    readers: Vec<Promise<Result<RegistryState, RegistryError>>>,
    lookers: Vec<(Look, Promise<Found>)>,
    committing: bool,
    commits: u64,
    disk_bytes: Arc<AtomicU64>,
    broken: Option<String>,
}

/// How a commit went.
enum Committed {
    Synced,
    /// Nothing was changed; this is what the store still holds.
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
            let reason = format!("{WAITING_MAX} operations wait for the disk already");
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

impl Handler<Look> for Registrar {
    type Result = Reply<Found>;

    fn handle(&mut self, look: Look, ctx: &mut Context<Self>) -> Self::Result {
        let (promise, reply) = promise();
        if self.lookers.len() >= WAITING_MAX {
            let reason = format!("{WAITING_MAX} questions wait for the disk already");
            promise.answer(Err(RegistryError::NotNow { reason }));
        } else {
            self.lookers.push((look, promise));
            self.commit(ctx);
        }
        reply
    }
}

impl Registrar {
    /// Writes what waits, unless a commit is under way: then it is called again at its end.
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
        for (Look { framework_id, key }, promise) in self.lookers.drain(..) {
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
                tracing::error!(%reason, "the registry's store failed: this master must be started again");
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

/// A registry on this machine's disk.
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
    /// A record is not what this version writes.
    #[error("the registry's record {key:?} cannot be read: {reason}")]
    Record {
        /// Which record.
        key: String,
        /// What was found and what was expected.
        reason: String,
    },
    /// Its actor cannot run.
    #[error("the registrar cannot be started")]
    Spawn(#[from] SpawnError),
}

impl LocalRegistry {
    /// Reads the whole store, which blocks, and starts the actor `registrar` on `node`.
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

    /// What such a store holds, while no registry has it open.
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
    ) -> BoxFuture<'static, Found> {
        let look = Look {
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

/// No answer leaves it open whether the operation was applied, except when the mailbox did not take it.
fn unanswered(error: AskError) -> RegistryError {
    let reason = format!("the registrar: {error}");
    match error {
        AskError::Full => RegistryError::NotNow { reason },
        _ => RegistryError::Broken { reason },
    }
}

#[cfg(test)]
pub(super) mod tests;
