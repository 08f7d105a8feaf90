//! A registry for rehearsals: it delays and refuses as its [`Whims`] say, and forgets nothing in between.
//!
//! What it applies, it applies in memory and in order. It never decides by chance: the rehearsal holds the whims.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use protocol::FrameworkId;
use protocol::message::state::StateValue;
use runtime::Clock;

use super::{Applied, Registry, RegistryError, RegistryOperation, RegistryState};

/// What a [`FickleRegistry`] shall do next. Clones hold the same whims.
#[derive(Clone, Debug, Default)]
pub struct Whims(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    delay: Duration,
    refusals: VecDeque<RegistryError>,
    state: RegistryState,
    asked: Vec<RegistryOperation>,
}

impl Whims {
    /// Answers at once and refuses nothing.
    pub fn none() -> Self {
        Self::default()
    }

    fn with<T>(&self, act: impl FnOnce(&mut Inner) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// From now on each answer takes so long.
    pub fn delay(&self, delay: Duration) {
        self.with(|inner| inner.delay = delay);
    }

    /// The next operation, or question who leads, that is not refused yet meets this error instead.
    pub fn refuse(&self, error: RegistryError) {
        self.with(|inner| inner.refusals.push_back(error));
    }

    /// What the registry holds, for a look from outside.
    pub fn state(&self) -> RegistryState {
        self.with(|inner| inner.state.clone())
    }

    /// Every operation asked for so far, refused ones included.
    pub fn asked(&self) -> Vec<RegistryOperation> {
        self.with(|inner| inner.asked.clone())
    }
}

/// A registry that delays and refuses.
#[derive(Debug)]
pub struct FickleRegistry {
    whims: Whims,
    clock: Clock,
}

impl FickleRegistry {
    /// One that has these whims, and delays by this clock.
    pub fn new(whims: Whims, clock: Clock) -> Self {
        Self { whims, clock }
    }
}

impl Registry for FickleRegistry {
    fn apply(
        &mut self,
        operation: RegistryOperation,
    ) -> BoxFuture<'static, Result<Applied, RegistryError>> {
        let (delay, refusal) = self.whims.with(|inner| {
            inner.asked.push(operation.clone());
            (inner.delay, inner.refusals.pop_front())
        });
        let (whims, clock) = (self.whims.clone(), self.clock.clone());
        async move {
            clock.sleep(delay).await;
            match refusal {
                Some(error) => Err(error),
                None => whims.with(|inner| inner.state.change(&operation)),
            }
        }
        .boxed()
    }

    fn read(&mut self) -> BoxFuture<'static, Result<RegistryState, RegistryError>> {
        let (delay, whims) = (self.whims.with(|inner| inner.delay), self.whims.clone());
        let clock = self.clock.clone();
        async move {
            clock.sleep(delay).await;
            Ok(whims.state())
        }
        .boxed()
    }

    fn still_leads(&mut self) -> BoxFuture<'static, Result<(), RegistryError>> {
        let (delay, refusal) = self
            .whims
            .with(|inner| (inner.delay, inner.refusals.pop_front()));
        let clock = self.clock.clone();
        async move {
            clock.sleep(delay).await;
            refusal.map_or(Ok(()), Err)
        }
        .boxed()
    }

    fn framework_state(
        &mut self,
        framework_id: &FrameworkId,
        key: &str,
    ) -> BoxFuture<'static, Result<Option<StateValue>, RegistryError>> {
        let (read, id, key) = (self.read(), framework_id.clone(), key.to_owned());
        async move { Ok(read.await?.framework_states.get(&id, &key).cloned()) }.boxed()
    }
}
