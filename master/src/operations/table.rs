//! The operations about which frameworks want to hear, from the accept to the acknowledgement.
//!
//! Plain data. An operation without a name is not here: nobody asks about it. Bounded by framework: what is over and not acknowledged
//! counts as well.

use std::collections::BTreeMap;
use std::sync::Arc;

use protocol::{AgentId, FrameworkId, OperationId, OperationState, OperationStatus};
use resources::Conversion;

use crate::size::wire_bytes;

/// How many operations of one framework may be under way or unacknowledged.
pub const OPERATIONS_MAX: usize = 10_000;

/// How many bytes these may have together. Labels and ids are the framework's to choose, and remembered until it acknowledges.
pub const OPERATIONS_BYTES_MAX: usize = 16 << 20;

/// One operation.
#[derive(Clone, Debug)]
pub struct Known {
    /// The agent that it is for.
    pub agent: AgentId,
    /// The newest.
    pub status: OperationStatus,
    /// What is to become of what, allocated to nobody; `None` if it was said to an earlier master.
    pub conversion: Option<Arc<Conversion>>,
    /// Bytes of the status and the conversion.
    bytes: usize,
}

impl Known {
    fn kind(&self) -> Option<&'static str> {
        Some(self.conversion.as_ref()?.name())
    }
}

/// Those of one framework.
#[derive(Clone, Debug, Default)]
struct FrameworkOperations {
    by_id: BTreeMap<OperationId, Known>,
    bytes: usize,
}

/// All operations that somebody wants to hear about, each with its newest status and the agent that it is for.
#[derive(Clone, Debug, Default)]
pub struct Operations {
    known: BTreeMap<FrameworkId, FrameworkOperations>,
}

impl Operations {
    /// The newest status of this one.
    pub fn get(&self, framework: &FrameworkId, id: &OperationId) -> Option<&OperationStatus> {
        Some(&self.known.get(framework)?.by_id.get(id)?.status)
    }

    /// What kind this one is of, if it is known.
    pub fn kind(&self, framework: &FrameworkId, id: &OperationId) -> Option<&'static str> {
        self.known.get(framework)?.by_id.get(id)?.kind()
    }

    /// The bytes of the framework's.
    pub fn bytes(&self, framework: &FrameworkId) -> usize {
        self.known.get(framework).map_or(0, |of| of.bytes)
    }

    /// The framework's.
    pub fn of(&self, framework: &FrameworkId) -> impl ExactSizeIterator<Item = &OperationStatus> {
        static NONE: BTreeMap<OperationId, Known> = BTreeMap::new();
        let of = self.known.get(framework).map_or(&NONE, |of| &of.by_id);
        of.values().map(|known| &known.status)
    }

    /// All of them, each with whose it is.
    pub fn iter(&self) -> impl Iterator<Item = (&FrameworkId, &Known)> {
        let all = self.known.iter();
        all.flat_map(|(framework, of)| of.by_id.values().map(move |known| (framework, known)))
    }

    /// How many there are of each kind in each state.
    pub fn tally(&self) -> BTreeMap<(Option<&'static str>, OperationState), usize> {
        let mut tally = BTreeMap::new();
        for known in self.known.values().flat_map(|of| of.by_id.values()) {
            *tally.entry((known.kind(), known.status.state)).or_default() += 1;
        }
        tally
    }

    /// This conversion begins.
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

    /// This one is so now.
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
        let known = Known {
            agent: agent.clone(),
            status,
            conversion,
            bytes,
        };
        let id = known.status.operation_id.clone();
        let before = of.by_id.insert(id, known);
        of.bytes = (of.bytes + bytes).saturating_sub(before.map_or(0, |known| known.bytes));
    }

    /// This one is over and acknowledged, or never was.
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

    /// The framework is no more.
    pub fn remove_framework(&mut self, framework: &FrameworkId) {
        self.known.remove(framework);
    }

    /// Those for one agent that are not over.
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
