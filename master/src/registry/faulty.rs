//! A registry with injected faults for simulations: delays and refuses as its [`FaultPlan`] says,
//! and never loses anything.
//!
//! Applies operations in memory and in order. Contains no randomness: the simulation controls the
//! plan.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use protocol::FrameworkId;
use protocol::message::state::StateValue;
use runtime::Clock;

use super::{Applied, Registry, RegistryError, RegistryOperation, RegistryState};

/// The faults of a [`FaultyRegistry`]. Clones share the plan.
#[derive(Clone, Debug, Default)]
pub struct FaultPlan(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    delay: Duration,
    refusals: VecDeque<RegistryError>,
    state: RegistryState,
    asked: Vec<RegistryOperation>,
}

impl FaultPlan {
    /// A plan without faults.
    pub fn none() -> Self {
        Self::default()
    }

    fn with<T>(&self, act: impl FnOnce(&mut Inner) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Delays each answer by this time from now on.
    pub fn delay(&self, delay: Duration) {
        self.with(|inner| inner.delay = delay);
    }

    /// The next operation, or leadership check, that is not refused yet fails with this error.
    pub fn refuse(&self, error: RegistryError) {
        self.with(|inner| inner.refusals.push_back(error));
    }

    /// The registry's content.
    pub fn state(&self) -> RegistryState {
        self.with(|inner| inner.state.clone())
    }

    /// All requested operations, refused ones included.
    pub fn asked(&self) -> Vec<RegistryOperation> {
        self.with(|inner| inner.asked.clone())
    }
}

/// A registry that delays and refuses.
#[derive(Debug)]
pub struct FaultyRegistry {
    faults: FaultPlan,
    clock: Clock,
}

impl FaultyRegistry {
    /// A registry with this plan, using this clock for delays.
    pub fn new(faults: FaultPlan, clock: Clock) -> Self {
        Self { faults, clock }
    }
}

impl Registry for FaultyRegistry {
    fn apply(
        &mut self,
        operation: RegistryOperation,
    ) -> BoxFuture<'static, Result<Applied, RegistryError>> {
        let (delay, refusal) = self.faults.with(|inner| {
            inner.asked.push(operation.clone());
            (inner.delay, inner.refusals.pop_front())
        });
        let (faults, clock) = (self.faults.clone(), self.clock.clone());
        async move {
            clock.sleep(delay).await;
            match refusal {
                Some(error) => Err(error),
                None => faults.with(|inner| inner.state.change(&operation)),
            }
        }
        .boxed()
    }

    fn read(&mut self) -> BoxFuture<'static, Result<RegistryState, RegistryError>> {
        let (delay, faults) = (self.faults.with(|inner| inner.delay), self.faults.clone());
        let clock = self.clock.clone();
        async move {
            clock.sleep(delay).await;
            Ok(faults.state())
        }
        .boxed()
    }

    fn still_leads(&mut self) -> BoxFuture<'static, Result<(), RegistryError>> {
        let (delay, refusal) = self
            .faults
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
