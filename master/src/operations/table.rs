//! The operations about which frameworks want to hear, from the accept to the acknowledgement.
//!
//! Plain data. An operation without a name is not here: nobody asks about it. Bounded by framework: what is over and not acknowledged
//! counts as well.

use std::collections::BTreeMap;

use protocol::{AgentId, FrameworkId, OperationId, OperationStatus};

/// How many operations of one framework may be under way or unacknowledged.
pub const OPERATIONS_MAX: usize = 10_000;

/// All operations that somebody wants to hear about, each with its newest status and the agent that it is for.
#[derive(Clone, Debug, Default)]
pub struct Operations {
    known: BTreeMap<FrameworkId, BTreeMap<OperationId, (AgentId, OperationStatus)>>,
}

impl Operations {
    /// The newest status of this one.
    pub fn get(&self, framework: &FrameworkId, id: &OperationId) -> Option<&OperationStatus> {
        let (_, status) = self.known.get(framework)?.get(id)?;
        Some(status)
    }

    /// The framework's.
    pub fn of(&self, framework: &FrameworkId) -> impl ExactSizeIterator<Item = &OperationStatus> {
        static NONE: BTreeMap<OperationId, (AgentId, OperationStatus)> = BTreeMap::new();
        let of = self.known.get(framework).unwrap_or(&NONE);
        of.values().map(|(_, status)| status)
    }

    /// All of them, each with whose it is and the agent that it is for.
    pub fn iter(&self) -> impl Iterator<Item = (&FrameworkId, &AgentId, &OperationStatus)> {
        let of = |(framework, of)| {
            let each = BTreeMap::values(of);
            each.map(move |(agent, status)| (framework, agent, status))
        };
        self.known.iter().flat_map(of)
    }

    /// This one is so now.
    pub fn put(&mut self, framework: &FrameworkId, agent: &AgentId, status: OperationStatus) {
        let of = self.known.entry(framework.clone()).or_default();
        of.insert(status.operation_id.clone(), (agent.clone(), status));
    }

    /// This one is over and acknowledged, or never was.
    pub fn remove(&mut self, framework: &FrameworkId, id: &OperationId) {
        if let Some(of) = self.known.get_mut(framework) {
            of.remove(id);
            if of.is_empty() {
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
            for (id, (on, status)) in of {
                if on == agent && !status.state.is_terminal() {
                    found.push((framework.clone(), id.clone()));
                }
            }
        }
        found
    }
}
