//! Endings: no node's process ends by itself, unless the faults have left it no other way.
//!
//! The world starts again what has ended, so a service that gives up for nothing would never be missed. It may give up when its disk has
//! failed it in this life, when its disk was put back to an old copy of it, and, an agent, when an operator has taken its machine down. One judgement for each node that starts: from then on it is looked at.

use std::collections::BTreeSet;

use runtime::Role;

use super::broken;
use crate::checker::{Checker, Violation};
use crate::event::{Event, What};
use crate::scenario::FaultKind;

const NAME: &str = "endings";

/// What a master says to an agent whose machine is down. The other reasons for which it may refuse one are not excused with it.
const TAKEN_DOWN: [&str; 2] = ["down for maintenance", "was taken down"];

/// The checker.
#[derive(Default)]
pub struct Endings {
    /// Nodes that have forgotten what they had promised.
    put_back: BTreeSet<String>,
    /// Nodes whose machines an operator has taken down, be it for a while.
    maintained: BTreeSet<String>,
    judgements: u64,
}

impl Endings {
    /// Whether it is an agent whose machine was taken down, as the master says.
    fn is_taken_down(&self, node: &str, role: Role, words: &str) -> bool {
        let says_so = TAKEN_DOWN.iter().any(|said| words.contains(said));
        role == Role::Agent && says_so && self.maintained.contains(node)
    }
}

impl Checker for Endings {
    fn name(&self) -> &'static str {
        NAME
    }

    fn see(&mut self, event: &Event<'_>) -> Result<(), Violation> {
        match event.what {
            What::NodeStarted { .. } => self.judgements += 1,
            What::DiskPutBack { node } => drop(self.put_back.insert(node.to_owned())),
            What::FaultBegan(fault) => {
                if let FaultKind::Maintain { node } = &fault.kind {
                    self.maintained.insert(node.clone());
                }
            }
            What::NodeGaveUp {
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

    use super::super::stage::Stage;
    use super::*;
    use crate::scenario::Fault;

    fn stage() -> Stage<Endings> {
        Stage::new(Endings::default(), "cpus:4")
    }

    fn gives_up(node: &'static str, role: Role, words: &'static str) -> What<'static> {
        What::NodeGaveUp {
            node,
            role,
            words,
            disk_failed: false,
        }
    }

    #[test]
    fn whoever_gives_up_for_nothing_is_found() {
        let found = "ends by itself, and no fault leaves it no other way: it has had enough";
        for (node, role) in [("master", Role::Master), ("agent-1", Role::Agent)] {
            let enough = gives_up(node, role, "it has had enough");
            stage().fact(enough).is_broken(found);
        }
        let down = gives_up("agent-1", Role::Agent, "its machine was taken down");
        stage().fact(down).is_broken("its machine was taken down");
    }

    #[test]
    fn a_failed_disk_one_that_was_put_back_and_a_machine_that_is_down_are_reasons_to_give_up() {
        stage()
            .fact(What::NodeGaveUp {
                node: "master",
                role: Role::Master,
                words: "its log cannot be written",
                disk_failed: true,
            })
            .is_clean();
        let put_back = What::DiskPutBack { node: "master-1" };
        let mut old = stage();
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
            let mut down = stage();
            down.fact(What::FaultBegan(&fault)).fact(then);
            down
        };
        let words = "its machine was taken down";
        down(gives_up("agent-1", Role::Agent, words)).is_clean();
        down(gives_up("agent-2", Role::Agent, words)).is_broken("agent-2 ends by itself");
        down(gives_up("agent-1", Role::Agent, "it has had enough")).is_broken("it has had enough");
    }
}
