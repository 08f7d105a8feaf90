//! Accepted operations that are not over: their records in the registry and in the agents' states.
//!
//! Plain data, by agent and serial. An operation is here from its acceptance, before the registry
//! has it, until the registry has forgotten it; while it is being forgotten it is over and is not
//! sent. Serials of an agent are used once: they continue from the newest that the agent or the
//! registry has named. Bounded by [`ACCEPTED_MAX`] in all and [`ON_AGENT_MAX`] per agent.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use protocol::{AgentId, FrameworkId, OperationId, Uuid};

use super::recording::Conclusion;
use crate::registry::{ACCEPTED_MAX, AcceptedOperation, AcceptedOperations};

/// Maximum operations under way per agent: one stuck agent must not take the capacity of all
/// others.
pub(super) const ON_AGENT_MAX: usize = ACCEPTED_MAX / 10;

/// An accepted operation.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// The operation and its requester.
    pub operation: Arc<AcceptedOperation>,
    /// Whether the registry has it.
    pub recorded: bool,
    /// The version of the agent's resources to which the state has applied it; `None` if not
    /// applied.
    pub booked: Option<Uuid>,
    /// Whether the registry is being asked to forget it.
    pub over: bool,
    /// The final status for its framework, sent when the registry has forgotten it.
    pub conclusion: Option<Box<Conclusion>>,
}

impl Entry {
    /// Whether it is the framework's operation with that id.
    fn is(&self, framework: &FrameworkId, id: &OperationId) -> bool {
        let operation = &self.operation;
        operation.operation_id.as_ref() == Some(id)
            && operation.framework_id.as_ref() == Some(framework)
    }
}

/// The operations of one agent.
#[derive(Clone, Debug, Default)]
struct OfAgent {
    /// Whether the agent supports serials.
    knows_serials: bool,
    /// The newest serial that was assigned or named by the agent.
    newest: u64,
    entries: BTreeMap<u64, Entry>,
    /// Operations that the registry does not have yet and that are not over.
    unrecorded: BTreeSet<u64>,
}

/// The operations of all agents.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pending {
    agents: BTreeMap<AgentId, OfAgent>,
    count: usize,
}

impl Pending {
    /// Takes over the registry's operations at the start of a leadership.
    pub fn recover(&mut self, accepted: &AcceptedOperations) {
        for (agent, serial, operation) in accepted.iter() {
            let entry = Entry {
                operation: Arc::new(operation.clone()),
                recorded: true,
                booked: None,
                over: false,
                conclusion: None,
            };
            self.insert(agent, serial, entry);
        }
    }

    /// Whether the cluster is at its bound.
    pub fn is_full(&self) -> bool {
        self.count >= ACCEPTED_MAX
    }

    /// Whether that agent is at its bound.
    pub fn is_full_on(&self, agent: &AgentId) -> bool {
        let of = self.agents.get(agent);
        of.is_some_and(|of| of.entries.len() >= ON_AGENT_MAX)
    }

    /// The serial of the agent's next operation.
    pub fn next_serial(&self, agent: &AgentId) -> u64 {
        self.agents.get(agent).map_or(0, |of| of.newest) + 1
    }

    /// Adds an accepted operation, applied to that version of its agent's resources; returns its
    /// serial.
    pub fn begin(&mut self, agent: &AgentId, operation: AcceptedOperation, booked: Uuid) -> u64 {
        let serial = self.next_serial(agent);
        let entry = Entry {
            operation: Arc::new(operation),
            recorded: false,
            booked: Some(booked),
            over: false,
            conclusion: None,
        };
        self.insert(agent, serial, entry);
        serial
    }

    fn insert(&mut self, agent: &AgentId, serial: u64, entry: Entry) {
        let of = self.agents.entry(agent.clone()).or_default();
        of.newest = of.newest.max(serial);
        if !entry.recorded {
            of.unrecorded.insert(serial);
        }
        self.count += usize::from(of.entries.insert(serial, entry).is_none());
    }

    /// The operation with that serial.
    pub fn get(&self, agent: &AgentId, serial: u64) -> Option<&Entry> {
        self.agents.get(agent)?.entries.get(&serial)
    }

    /// The serial of the framework's operation with that id, over or not.
    pub fn find(&self, agent: &AgentId, framework: &FrameworkId, id: &OperationId) -> Option<u64> {
        let mut entries = self.agents.get(agent)?.entries.iter();
        let found = entries.find(|(_, entry)| entry.is(framework, id));
        found.map(|(serial, _)| *serial)
    }

    /// Whether the framework has an operation with that id, over or not.
    pub fn knows(&self, agent: &AgentId, framework: &FrameworkId, id: &OperationId) -> bool {
        self.find(agent, framework, id).is_some()
    }

    /// The serials of an agent's operations that are not over, in order.
    pub fn of_agent(&self, agent: &AgentId) -> Vec<u64> {
        self.up_to(agent, u64::MAX)
    }

    /// The same up to and including this serial.
    pub fn up_to(&self, agent: &AgentId, serial: u64) -> Vec<u64> {
        let of = self.agents.get(agent);
        let entries = of.into_iter().flat_map(|of| of.entries.range(..=serial));
        let left = entries.filter(|(_, entry)| !entry.over);
        left.map(|(serial, _)| *serial).collect()
    }

    /// Whether the agent supports serials, and so reports which operations are over.
    pub fn knows_serials(&self, agent: &AgentId) -> bool {
        self.agents.get(agent).is_some_and(|of| of.knows_serials)
    }

    /// An agent registers: the state's version of its operations is void. The agent has finished
    /// all serials up to `settled`; `None` if it does not support serials.
    pub fn arrived(&mut self, agent: &AgentId, settled: Option<u64>) {
        let of = self.agents.entry(agent.clone()).or_default();
        of.knows_serials = settled.is_some();
        of.newest = of.newest.max(settled.unwrap_or(0));
        for entry in of.entries.values_mut() {
            entry.booked = None;
        }
    }

    /// The registry has recorded these.
    pub fn recorded(&mut self, agent: &AgentId, serials: &[u64]) {
        let Some(of) = self.agents.get_mut(agent) else {
            return;
        };
        for serial in serials {
            of.unrecorded.remove(serial);
            if let Some(entry) = of.entries.get_mut(serial) {
                entry.recorded = true;
            }
        }
    }

    /// Whether the registry has this operation and all before it. Operations of an agent keep their
    /// order.
    pub fn is_ready(&self, agent: &AgentId, serial: u64) -> bool {
        let awaited = self.agents.get(agent).and_then(|of| of.unrecorded.first());
        awaited.is_none_or(|first| *first > serial)
    }

    /// The first operation not applied to the state, if it is ready: recorded, with all before it
    /// applied.
    pub fn next_unbooked(&self, agent: &AgentId) -> Option<u64> {
        let of = self.agents.get(agent)?;
        let mut left = of.entries.iter().filter(|(_, entry)| !entry.over);
        let (serial, entry) = left.find(|(_, entry)| entry.booked.is_none())?;
        (entry.recorded && self.is_ready(agent, *serial)).then_some(*serial)
    }

    /// The state has applied the operation to that version of its agent's resources.
    pub fn booked(&mut self, agent: &AgentId, serial: u64, version: Uuid) {
        if let Some(entry) = self.entry(agent, serial) {
            entry.booked = Some(version);
        }
    }

    /// Marks an operation as over, to be forgotten by the registry; returns whether it was not
    /// before.
    pub fn end(&mut self, agent: &AgentId, serial: u64) -> bool {
        let Some(of) = self.agents.get_mut(agent) else {
            return false;
        };
        of.unrecorded.remove(&serial);
        let entry = of.entries.get_mut(&serial);
        entry.is_some_and(|entry| !std::mem::replace(&mut entry.over, true))
    }

    /// Sets the final status that is sent when the registry has forgotten the operation, unless one
    /// is set.
    pub fn conclude(&mut self, agent: &AgentId, serial: u64, conclusion: Conclusion) {
        if let Some(entry) = self.entry(agent, serial) {
            entry.conclusion.get_or_insert_with(|| Box::new(conclusion));
        }
    }

    /// Removes an operation that the registry does not have, or no longer has; returns it if it was
    /// here.
    pub fn remove(&mut self, agent: &AgentId, serial: u64) -> Option<Entry> {
        let of = self.agents.get_mut(agent);
        let removed = of.and_then(|of| {
            of.unrecorded.remove(&serial);
            of.entries.remove(&serial)
        });
        self.count -= usize::from(removed.is_some());
        removed
    }

    /// Removes an agent and its operations.
    pub fn remove_agent(&mut self, agent: &AgentId) {
        if let Some(of) = self.agents.remove(agent) {
            self.count -= of.entries.len();
        }
    }

    fn entry(&mut self, agent: &AgentId, serial: u64) -> Option<&mut Entry> {
        self.agents.get_mut(agent)?.entries.get_mut(&serial)
    }
}

#[cfg(test)]
mod tests {
    use resources::{Conversion, Resources};

    use super::*;

    fn operation(id: &str) -> AcceptedOperation {
        AcceptedOperation {
            framework_id: FrameworkId::new("f").ok(),
            operation_id: OperationId::new(id).ok(),
            conversion: Conversion::Reserve {
                resources: Resources::new(),
            },
        }
    }

    fn version(number: u8) -> Uuid {
        Uuid([number; 16])
    }

    fn story(settled: Option<u64>, ids: &[&str]) -> (Pending, AgentId) {
        let (mut pending, agent) = (Pending::default(), AgentId::new("a").unwrap());
        pending.arrived(&agent, settled);
        for id in ids {
            pending.begin(&agent, operation(id), version(1));
        }
        (pending, agent)
    }

    #[test]
    fn serials_continue_from_the_newest_named() {
        let (mut pending, agent) = story(Some(7), &["x", "y"]);
        assert_eq!(pending.of_agent(&agent), [8, 9]);
        assert!(pending.remove(&agent, 9).is_some());
        assert_eq!(pending.next_serial(&agent), 10, "9 was given");
        pending.arrived(&agent, Some(20));
        assert_eq!(pending.next_serial(&agent), 21);
    }

    #[test]
    fn nothing_overtakes_an_unrecorded_operation() {
        let (mut pending, agent) = story(Some(0), &["x", "y", "z"]);
        pending.recorded(&agent, &[2]);
        assert!(!pending.is_ready(&agent, 2));
        pending.recorded(&agent, &[1]);
        assert!(pending.is_ready(&agent, 2) && !pending.is_ready(&agent, 3));
        pending.arrived(&agent, Some(0));
        assert_eq!(pending.next_unbooked(&agent), Some(1));
        pending.booked(&agent, 1, version(2));
        pending.booked(&agent, 2, version(2));
        assert_eq!(
            pending.next_unbooked(&agent),
            None,
            "the registry has it not"
        );
        pending.recorded(&agent, &[3]);
        assert_eq!(pending.next_unbooked(&agent), Some(3));
    }

    #[test]
    fn operation_ends_once_and_counts_until_forgotten() {
        let (mut pending, agent) = story(Some(0), &["x", "y"]);
        let (framework, id) = (
            FrameworkId::new("f").unwrap(),
            OperationId::new("x").unwrap(),
        );
        assert_eq!(pending.find(&agent, &framework, &id), Some(1));
        assert!(pending.end(&agent, 1) && !pending.end(&agent, 1));
        assert_eq!(pending.find(&agent, &framework, &id), Some(1));
        assert_eq!((pending.of_agent(&agent), pending.count), (vec![2], 2));
        assert!(pending.remove(&agent, 1).is_some() && pending.remove(&agent, 1).is_none());
        assert!(!pending.knows(&agent, &framework, &id));
        pending.remove_agent(&agent);
        assert_eq!(pending.count, 0);
    }
}
