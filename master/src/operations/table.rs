//! Operations with an id, from the accept to the acknowledgement.
//!
//! Plain data. Operations without an id are not here. Bounded per framework, including operations
//! that are over and not acknowledged.

use std::collections::BTreeMap;
use std::sync::Arc;

use protocol::{AgentId, FrameworkId, OperationId, OperationState, OperationStatus};
use resources::Conversion;

use crate::state::size::wire_bytes;

/// Maximum operations of a framework that are under way or unacknowledged.
pub const OPERATIONS_MAX: usize = 10_000;

/// Maximum bytes of these operations. The framework chooses labels and ids, which are kept until it
/// acknowledges.
pub const OPERATIONS_BYTES_MAX: usize = 16 << 20;

/// An operation.
#[derive(Clone, Debug)]
pub struct TrackedOperation {
    /// Its agent.
    pub agent: AgentId,
    /// The newest status.
    pub status: OperationStatus,
    /// The conversion, without allocation; `None` if an earlier master accepted it.
    pub conversion: Option<Arc<Conversion>>,
    /// Bytes of the status and the conversion.
    bytes: usize,
}

impl TrackedOperation {
    fn kind(&self) -> Option<&'static str> {
        Some(self.conversion.as_ref()?.name())
    }
}

/// The operations of one framework.
#[derive(Clone, Debug, Default)]
struct FrameworkOperations {
    by_id: BTreeMap<OperationId, TrackedOperation>,
    bytes: usize,
}

/// All operations with an id, each with its newest status and its agent.
#[derive(Clone, Debug, Default)]
pub struct Operations {
    known: BTreeMap<FrameworkId, FrameworkOperations>,
}

impl Operations {
    /// The newest status of an operation.
    pub fn get(&self, framework: &FrameworkId, id: &OperationId) -> Option<&OperationStatus> {
        Some(&self.known.get(framework)?.by_id.get(id)?.status)
    }

    /// The kind of an operation, if known.
    pub fn kind(&self, framework: &FrameworkId, id: &OperationId) -> Option<&'static str> {
        self.known.get(framework)?.by_id.get(id)?.kind()
    }

    /// Bytes of the framework's operations.
    pub fn bytes(&self, framework: &FrameworkId) -> usize {
        self.known.get(framework).map_or(0, |of| of.bytes)
    }

    /// The statuses of the framework's operations.
    pub fn of(&self, framework: &FrameworkId) -> impl ExactSizeIterator<Item = &OperationStatus> {
        static NONE: BTreeMap<OperationId, TrackedOperation> = BTreeMap::new();
        let of = self.known.get(framework).map_or(&NONE, |of| &of.by_id);
        of.values().map(|known| &known.status)
    }

    /// All operations with their frameworks.
    pub fn iter(&self) -> impl Iterator<Item = (&FrameworkId, &TrackedOperation)> {
        let all = self.known.iter();
        all.flat_map(|(framework, of)| of.by_id.values().map(move |known| (framework, known)))
    }

    /// Numbers of operations by kind and state.
    pub fn tally(&self) -> BTreeMap<(Option<&'static str>, OperationState), usize> {
        let mut tally = BTreeMap::new();
        for known in self.known.values().flat_map(|of| of.by_id.values()) {
            *tally.entry((known.kind(), known.status.state)).or_default() += 1;
        }
        tally
    }

    /// Adds a new operation.
    pub fn begin(
        &mut self,
        framework: &FrameworkId,
        agent: &AgentId,
        conversion: &Conversion,
        status: OperationStatus,
    ) {
        let conversion = Arc::new(conversion.allocated(None));
        self.insert(framework, agent, Some(conversion), status);
    }

    /// Sets the newest status.
    pub fn put(&mut self, framework: &FrameworkId, agent: &AgentId, status: OperationStatus) {
        let of = self.known.get(framework);
        let known = of.and_then(|of| of.by_id.get(&status.operation_id));
        let conversion = known.and_then(|known| known.conversion.clone());
        self.insert(framework, agent, conversion, status);
    }

    fn insert(
        &mut self,
        framework: &FrameworkId,
        agent: &AgentId,
        conversion: Option<Arc<Conversion>>,
        status: OperationStatus,
    ) {
        let of = self.known.entry(framework.clone()).or_default();
        let bytes = wire_bytes(&status) + wire_bytes(&conversion.as_deref());
        let known = TrackedOperation {
            agent: agent.clone(),
            status,
            conversion,
            bytes,
        };
        let id = known.status.operation_id.clone();
        let before = of.by_id.insert(id, known);
        of.bytes = (of.bytes + bytes).saturating_sub(before.map_or(0, |known| known.bytes));
    }

    /// Removes an operation that is acknowledged or never existed.
    pub fn remove(&mut self, framework: &FrameworkId, id: &OperationId) {
        if let Some(of) = self.known.get_mut(framework) {
            let known = of.by_id.remove(id);
            of.bytes = of
                .bytes
                .saturating_sub(known.map_or(0, |known| known.bytes));
            if of.by_id.is_empty() {
                self.known.remove(framework);
            }
        }
    }

    /// Removes a framework's operations.
    pub fn remove_framework(&mut self, framework: &FrameworkId) {
        self.known.remove(framework);
    }

    /// Operations on an agent that are not over.
    pub fn under_way(&self, agent: &AgentId) -> Vec<(FrameworkId, OperationId)> {
        let mut found = Vec::new();
        for (framework, of) in &self.known {
            for (id, known) in &of.by_id {
                if known.agent == *agent && !known.status.state.is_terminal() {
                    found.push((framework.clone(), id.clone()));
                }
            }
        }
        found
    }
}
