//! Accepted operations that are not over: their representation in the registry, and their bound.
//!
//! Pure. Each is a record under its agent and serial; serials of an agent ascend in the order of
//! application. It is recorded before any message about it, until its agent has applied it or it
//! has failed; so a new leader sends the operations that a crashed one did not. The caller
//! validates operations, in [`crate::operations`].

use std::collections::BTreeMap;

use protocol::{AgentId, FrameworkId, OperationId};
use resources::Conversion;
use serde::{Deserialize, Serialize};

use super::RegistryError;

/// Maximum operations under way, over all agents.
pub const ACCEPTED_MAX: usize = 10_000;

/// An operation for an agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AcceptedOperation {
    /// The requesting framework; `None` for an operator.
    pub framework_id: Option<FrameworkId>,
    /// Its id, if the framework wants status updates.
    pub operation_id: Option<OperationId>,
    /// The conversion, without allocation.
    pub conversion: Conversion,
}

impl AcceptedOperation {
    /// The framework and the id for status updates, if any.
    pub fn feedback(&self) -> Option<(FrameworkId, OperationId)> {
        self.framework_id.clone().zip(self.operation_id.clone())
    }
}

/// An operation as stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AcceptedRecord {
    /// The agent.
    pub agent_id: AgentId,
    /// The serial.
    pub serial: u64,
    /// The operation.
    pub operation: AcceptedOperation,
}

/// All accepted operations.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AcceptedOperations {
    /// Agents without operations are removed.
    by_agent: BTreeMap<AgentId, BTreeMap<u64, AcceptedOperation>>,
    count: usize,
}

impl AcceptedOperations {
    /// The operation with that serial on that agent.
    pub fn get(&self, agent: &AgentId, serial: u64) -> Option<&AcceptedOperation> {
        self.by_agent.get(agent)?.get(&serial)
    }

    /// All operations, by agent and serial.
    pub fn iter(&self) -> impl Iterator<Item = (&AgentId, u64, &AcceptedOperation)> {
        let each = |(agent, of)| {
            let of: &BTreeMap<u64, AcceptedOperation> = of;
            of.iter()
                .map(move |(serial, operation)| (agent, *serial, operation))
        };
        self.by_agent.iter().flat_map(each)
    }

    /// Number of operations.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Adds these operations, all of them or none. Existing ones stay unchanged.
    pub(super) fn accept(
        &mut self,
        agent: &AgentId,
        operations: &[(u64, AcceptedOperation)],
    ) -> Result<(), RegistryError> {
        let after = self.count + operations.len();
        if after > ACCEPTED_MAX {
            let reason =
                format!("{after} operations would be under way: expected at most {ACCEPTED_MAX}");
            return Err(RegistryError::Refused { reason });
        }
        for (serial, operation) in operations {
            if self.get(agent, *serial).is_none() {
                self.put(agent.clone(), *serial, operation.clone());
            }
        }
        Ok(())
    }

    /// Restores a stored operation.
    pub(super) fn put(&mut self, agent: AgentId, serial: u64, operation: AcceptedOperation) {
        let of = self.by_agent.entry(agent).or_default();
        self.count += usize::from(of.insert(serial, operation).is_none());
    }

    /// Removes an operation.
    pub(super) fn forget(&mut self, agent: &AgentId, serial: u64) {
        let Some(of) = self.by_agent.get_mut(agent) else {
            return;
        };
        self.count -= usize::from(of.remove(&serial).is_some());
        if of.is_empty() {
            self.by_agent.remove(agent);
        }
    }

    /// Removes an agent's operations.
    pub(super) fn forget_agent(&mut self, agent: &AgentId) {
        let of = self.by_agent.remove(agent);
        self.count -= of.map_or(0, |of| of.len());
    }
}

#[cfg(test)]
mod tests {
    use resources::{Reservation, Resources};

    use super::*;

    fn agent(id: &str) -> AgentId {
        AgentId::new(id).unwrap()
    }

    fn operation() -> AcceptedOperation {
        let ads = Reservation::dynamic("ads".parse().unwrap(), None);
        let resources = Resources::parse("cpus:1").unwrap();
        let resources = resources.push_reservation(&ads).unwrap();
        AcceptedOperation {
            framework_id: None,
            operation_id: None,
            conversion: Conversion::Reserve { resources },
        }
    }

    #[test]
    fn operations_are_kept_in_order_until_forgotten() {
        let mut accepted = AcceptedOperations::default();
        let serials = |accepted: &AcceptedOperations| -> Vec<(String, u64)> {
            let all = accepted.iter();
            all.map(|(agent, serial, _)| (agent.to_string(), serial))
                .collect()
        };
        let some = [(7, operation()), (3, operation())];
        accepted.accept(&agent("a"), &some).unwrap();
        accepted.accept(&agent("a"), &some).unwrap();
        accepted.accept(&agent("b"), &some[..1]).unwrap();
        let named = |agent: &str, serial| (agent.to_owned(), serial);
        assert_eq!(
            serials(&accepted),
            [named("a", 3), named("a", 7), named("b", 7)]
        );
        for _ in 0..2 {
            accepted.forget(&agent("a"), 3);
            assert_eq!(accepted.len(), 2);
        }
        accepted.forget_agent(&agent("a"));
        assert_eq!(serials(&accepted), [named("b", 7)]);
        accepted.forget(&agent("b"), 7);
        assert!(accepted.is_empty());
        assert_eq!(accepted, AcceptedOperations::default());
    }

    #[test]
    fn too_many_operations_are_refused_as_a_whole() {
        let mut accepted = AcceptedOperations::default();
        let all: Vec<_> = (1..=ACCEPTED_MAX as u64)
            .map(|n| (n, operation()))
            .collect();
        accepted.accept(&agent("a"), &all[1..]).unwrap();
        let refused = accepted.accept(&agent("b"), &all[..2]).unwrap_err();
        let words = "10001 operations would be under way: expected at most 10000";
        assert!(refused.to_string().contains(words), "{refused}");
        assert_eq!(accepted.len(), ACCEPTED_MAX - 1);
        accepted.accept(&agent("b"), &all[..1]).unwrap();
    }
}
