//! The operations that were accepted and are not over: what the registry has of them, and what their agents' books say.
//!
//! Plain data, by agent and in the order of their serials. An operation is here from the moment it is accepted, before the registry has it,
//! until the registry has forgotten it; while that is being asked it is over, and nobody sends it any more. Serials of an agent are given
//! once: they go on from the newest that the agent or the registry has named. Bounded by [`ACCEPTED_MAX`], of which an agent gets
//! [`ON_AGENT_MAX`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use protocol::{AgentId, FrameworkId, OperationId, Uuid};

use super::recording::Conclusion;
use crate::registry::{ACCEPTED_MAX, AcceptedOperation, AcceptedOperations};

/// How many operations may be under way on one agent: one that is stuck takes no place from all others.
pub(super) const ON_AGENT_MAX: usize = ACCEPTED_MAX / 10;

/// One operation.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// What is to be done, and for whom.
    pub operation: Arc<AcceptedOperation>,
    /// Whether the registry has it.
    pub recorded: bool,
    /// The version of its agent's resources upon which the books have it; `None` if they have it not.
    pub booked: Option<Uuid>,
    /// Whether the registry is being asked to forget it.
    pub over: bool,
    /// What its framework is to be told when the registry has forgotten it.
    pub conclusion: Option<Box<Conclusion>>,
}

impl Entry {
    /// Whether that framework has named it so.
    fn is(&self, framework: &FrameworkId, id: &OperationId) -> bool {
        let operation = &self.operation;
        operation.operation_id.as_ref() == Some(id)
            && operation.framework_id.as_ref() == Some(framework)
    }
}

/// Those of one agent.
#[derive(Clone, Debug, Default)]
struct OfAgent {
    /// Whether it knows serials.
    knows_serials: bool,
    /// The newest serial that was given, or named by the agent.
    newest: u64,
    entries: BTreeMap<u64, Entry>,
    /// Those that the registry has not yet, and that are not over.
    unrecorded: BTreeSet<u64>,
}

/// Those of all agents.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pending {
    agents: BTreeMap<AgentId, OfAgent>,
    count: usize,
}

impl Pending {
    /// What the registry has at the beginning of a leadership.
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

    /// Whether one more would be too many.
    pub fn is_full(&self) -> bool {
        self.count >= ACCEPTED_MAX
    }

    /// Whether one more would be too many for that agent.
    pub fn is_full_on(&self, agent: &AgentId) -> bool {
        let of = self.agents.get(agent);
        of.is_some_and(|of| of.entries.len() >= ON_AGENT_MAX)
    }

    /// The serial that the agent's next one will have.
    pub fn next_serial(&self, agent: &AgentId) -> u64 {
        self.agents.get(agent).map_or(0, |of| of.newest) + 1
    }

    /// This one is accepted, and in the books upon that version of its agent's resources; gives its serial.
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

    /// The one of that serial.
    pub fn get(&self, agent: &AgentId, serial: u64) -> Option<&Entry> {
        self.agents.get(agent)?.entries.get(&serial)
    }

    /// The one that a framework has named so, over or not.
    pub fn find(&self, agent: &AgentId, framework: &FrameworkId, id: &OperationId) -> Option<u64> {
        let mut entries = self.agents.get(agent)?.entries.iter();
        let found = entries.find(|(_, entry)| entry.is(framework, id));
        found.map(|(serial, _)| *serial)
    }

    /// Whether a framework has named one so, over or not.
    pub fn knows(&self, agent: &AgentId, framework: &FrameworkId, id: &OperationId) -> bool {
        self.find(agent, framework, id).is_some()
    }

    /// The serials of an agent's that are not over, in their order.
    pub fn of_agent(&self, agent: &AgentId) -> Vec<u64> {
        self.up_to(agent, u64::MAX)
    }

    /// The same, up to this one.
    pub fn up_to(&self, agent: &AgentId, serial: u64) -> Vec<u64> {
        let of = self.agents.get(agent);
        let entries = of.into_iter().flat_map(|of| of.entries.range(..=serial));
        let left = entries.filter(|(_, entry)| !entry.over);
        left.map(|(serial, _)| *serial).collect()
    }

    /// Whether the agent knows serials, and so says which of them are over.
    pub fn knows_serials(&self, agent: &AgentId) -> bool {
        self.agents.get(agent).is_some_and(|of| of.knows_serials)
    }

    /// The agent comes, and what the books had of what it is to do is void. Those up to `settled` are over there; `None` if it knows no
    /// serials.
    pub fn arrived(&mut self, agent: &AgentId, settled: Option<u64>) {
        let of = self.agents.entry(agent.clone()).or_default();
        of.knows_serials = settled.is_some();
        of.newest = of.newest.max(settled.unwrap_or(0));
        for entry in of.entries.values_mut() {
            entry.booked = None;
        }
    }

    /// The registry has these.
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

    /// Whether the registry has this one and all before it: nothing overtakes what is to be done before.
    pub fn is_ready(&self, agent: &AgentId, serial: u64) -> bool {
        let awaited = self.agents.get(agent).and_then(|of| of.unrecorded.first());
        awaited.is_none_or(|first| *first > serial)
    }

    /// The first that the books have not, if its turn has come: the registry has it, and all before it are in the books.
    pub fn next_unbooked(&self, agent: &AgentId) -> Option<u64> {
        let of = self.agents.get(agent)?;
        let mut left = of.entries.iter().filter(|(_, entry)| !entry.over);
        let (serial, entry) = left.find(|(_, entry)| entry.booked.is_none())?;
        (entry.recorded && self.is_ready(agent, *serial)).then_some(*serial)
    }

    /// The books have this one, upon that version of its agent's resources.
    pub fn booked(&mut self, agent: &AgentId, serial: u64, version: Uuid) {
        if let Some(entry) = self.entry(agent, serial) {
            entry.booked = Some(version);
        }
    }

    /// This one is over, and the registry is asked to forget it; whether it was not before.
    pub fn end(&mut self, agent: &AgentId, serial: u64) -> bool {
        let Some(of) = self.agents.get_mut(agent) else {
            return false;
        };
        of.unrecorded.remove(&serial);
        let entry = of.entries.get_mut(&serial);
        entry.is_some_and(|entry| !std::mem::replace(&mut entry.over, true))
    }

    /// This is how it ended, which is told when the registry has forgotten it, unless another end is to be told then.
    pub fn conclude(&mut self, agent: &AgentId, serial: u64, conclusion: Conclusion) {
        if let Some(entry) = self.entry(agent, serial) {
            entry.conclusion.get_or_insert_with(|| Box::new(conclusion));
        }
    }

    /// The registry has it not, or no more; gives it if it was here.
    pub fn remove(&mut self, agent: &AgentId, serial: u64) -> Option<Entry> {
        let of = self.agents.get_mut(agent);
        let removed = of.and_then(|of| {
            of.unrecorded.remove(&serial);
            of.entries.remove(&serial)
        });
        self.count -= usize::from(removed.is_some());
        removed
    }

    /// The agent is no more, nor what it was to do.
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
    fn serials_go_on_from_the_newest_that_anybody_has_named() {
        let (mut pending, agent) = story(Some(7), &["x", "y"]);
        assert_eq!(pending.of_agent(&agent), [8, 9]);
        assert!(pending.remove(&agent, 9).is_some());
        assert_eq!(pending.next_serial(&agent), 10, "9 was given");
        pending.arrived(&agent, Some(20));
        assert_eq!(pending.next_serial(&agent), 21);
    }

    #[test]
    fn nothing_overtakes_what_the_registry_has_not_yet() {
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
    fn what_is_over_is_over_once_and_counts_until_it_is_forgotten() {
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
