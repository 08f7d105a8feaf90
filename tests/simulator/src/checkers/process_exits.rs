//! Process exits: no node's process ends by itself without a cause among the faults.
//!
//! The simulation restarts ended nodes, so a service that exits without cause would never be
//! missed. It may exit after a failure of its disk, after its disk was reset to an old copy, and,
//! for an agent, when an operator has taken its machine down. One judgement for each started node.

use std::collections::BTreeSet;

use runtime::Role;

use super::broken;
use crate::checkers::checker::{Checker, Violation};
use crate::event::{Event, EventKind};
use crate::scenario::FaultKind;

const NAME: &str = "process_exits";

/// A master's messages to an agent whose machine is down. Other refusals are not excused.
const TAKEN_DOWN: [&str; 2] = ["down for maintenance", "was taken down"];

/// The checker.
#[derive(Default)]
pub struct ProcessExits {
    /// Nodes whose disk was reset.
    put_back: BTreeSet<String>,
    /// Nodes whose machines an operator has taken down.
    maintained: BTreeSet<String>,
    judgements: u64,
}

impl ProcessExits {
    /// Whether it is an agent whose machine was taken down, by the master's message.
    fn is_taken_down(&self, node: &str, role: Role, words: &str) -> bool {
        let says_so = TAKEN_DOWN.iter().any(|said| words.contains(said));
        role == Role::Agent && says_so && self.maintained.contains(node)
    }
}

impl Checker for ProcessExits {
    fn name(&self) -> &'static str {
        NAME
    }

    fn see(&mut self, event: &Event<'_>) -> Result<(), Violation> {
        match event.kind {
            EventKind::NodeStarted { .. } => self.judgements += 1,
            EventKind::DiskReset { node } => drop(self.put_back.insert(node.to_owned())),
            EventKind::FaultBegan(fault) => {
                if let FaultKind::Maintain { node } = &fault.kind {
                    self.maintained.insert(node.clone());
                }
            }
            EventKind::NodeExited {
                node,
                role,
                words,
                disk_failed: false,
            } if !self.put_back.contains(node) && !self.is_taken_down(node, role, words) => {
                let what =
                    format!("{node} ends by itself, and no fault leaves it no other way: {words}");
                return broken(NAME, event.at, what);
            }
            _ => {}
        }
        Ok(())
    }

    fn judgements(&self) -> u64 {
        self.judgements
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::fixture::Fixture;
    use super::*;
    use crate::scenario::Fault;

    fn fixture() -> Fixture<ProcessExits> {
        Fixture::new(ProcessExits::default(), "cpus:4")
    }

    fn gives_up(node: &'static str, role: Role, words: &'static str) -> EventKind<'static> {
        EventKind::NodeExited {
            node,
            role,
            words,
            disk_failed: false,
        }
    }

    #[test]
    fn exit_without_cause_is_found() {
        let found = "ends by itself, and no fault leaves it no other way: it has had enough";
        for (node, role) in [("master", Role::Master), ("agent-1", Role::Agent)] {
            let enough = gives_up(node, role, "it has had enough");
            fixture().fact(enough).is_broken(found);
        }
        let down = gives_up("agent-1", Role::Agent, "its machine was taken down");
        fixture().fact(down).is_broken("its machine was taken down");
    }

    #[test]
    fn disk_faults_and_maintenance_excuse_an_exit() {
        fixture()
            .fact(EventKind::NodeExited {
                node: "master",
                role: Role::Master,
                words: "its log cannot be written",
                disk_failed: true,
            })
            .is_clean();
        let put_back = EventKind::DiskReset { node: "master-1" };
        let mut old = fixture();
        old.fact(put_back)
            .fact(gives_up("master-1", Role::Master, "it has forgotten"))
            .is_clean();
        old.fact(gives_up("master-2", Role::Master, "it has forgotten"))
            .is_broken("master-2 ends by itself");
        let fault = Fault {
            at: Duration::ZERO,
            lasts: Duration::from_secs(9),
            kind: FaultKind::Maintain {
                node: "agent-1".to_owned(),
            },
        };
        let down = |then| {
            let mut down = fixture();
            down.fact(EventKind::FaultBegan(&fault)).fact(then);
            down
        };
        let words = "its machine was taken down";
        down(gives_up("agent-1", Role::Agent, words)).is_clean();
        down(gives_up("agent-2", Role::Agent, words)).is_broken("agent-2 ends by itself");
        down(gives_up("agent-1", Role::Agent, "it has had enough")).is_broken("it has had enough");
    }
}
