//! A registry in memory, for tests and simulations; lost when its master ends.
//!
//! Answers at once. Refuses only what [`RegistryState`] refuses.

use futures_util::FutureExt;
use futures_util::future::{self, BoxFuture};
use protocol::FrameworkId;
use protocol::message::state::StateValue;

use super::{Applied, Registry, RegistryError, RegistryOperation, RegistryState};

/// A registry in memory.
#[derive(Debug, Default)]
pub struct MemoryRegistry {
    state: RegistryState,
}

impl MemoryRegistry {
    /// An empty registry.
    pub fn new() -> Self {
        Self::default()
    }

    /// A registry with this content.
    pub fn holding(state: RegistryState) -> Self {
        Self { state }
    }
}

impl Registry for MemoryRegistry {
    fn apply(
        &mut self,
        operation: RegistryOperation,
    ) -> BoxFuture<'static, Result<Applied, RegistryError>> {
        future::ready(self.state.change(&operation)).boxed()
    }

    fn read(&mut self) -> BoxFuture<'static, Result<RegistryState, RegistryError>> {
        future::ready(Ok(self.state.clone())).boxed()
    }

    fn framework_state(
        &mut self,
        framework_id: &FrameworkId,
        key: &str,
    ) -> BoxFuture<'static, Result<Option<StateValue>, RegistryError>> {
        let found = self.state.framework_states.get(framework_id, key);
        future::ready(Ok(found.cloned())).boxed()
    }
}
