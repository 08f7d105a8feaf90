//! Reigns: a checker that judges one master's own order, for each master that acts, alone.
//!
//! A master's reign is from when it begins to act on its node until it ends; several may overlap, when one does not know yet that another
//! leads. Each reign has a checker of its own, which is shown what its master says and hears, and what happens to machines, as if there
//! were no other. It ends with the reign. Judges nothing itself.

use std::collections::BTreeMap;
use std::time::Duration;

use runtime::Role;

use crate::checker::{Checker, Violation};
use crate::event::{Event, What};

/// The checker of each reign.
pub struct Reigns<C> {
    name: &'static str,
    /// By the master's node. There are one or two, and every event asks for both of its ends.
    of: Vec<(String, C)>,
    nodes: BTreeMap<String, Role>,
    faults_over: Option<Duration>,
    /// Judgements of reigns that are over.
    judged: u64,
}

impl<C: Checker + Default> Default for Reigns<C> {
    fn default() -> Self {
        Self {
            name: C::default().name(),
            of: Vec::new(),
            nodes: BTreeMap::new(),
            faults_over: None,
            judged: 0,
        }
    }
}

impl<C: Checker + Default> Reigns<C> {
    /// What a checker that begins now must know.
    fn began(&mut self, node: &str, at: Duration) -> Result<(), Violation> {
        let mut checker = C::default();
        for (node, role) in &self.nodes {
            let what = What::NodeStarted { node, role: *role };
            checker.see(&Event { at, what })?;
        }
        let what = What::MasterBegan { node };
        checker.see(&Event { at, what })?;
        if let Some(at) = self.faults_over {
            let what = What::FaultsOver;
            checker.see(&Event { at, what })?;
        }
        self.ended(node);
        self.of.push((node.to_owned(), checker));
        Ok(())
    }

    fn ended(&mut self, node: &str) {
        let judged = &mut self.judged;
        self.of.retain(|(master, checker)| {
            let stays = master != node;
            if !stays {
                *judged += checker.judgements();
            }
            stays
        });
    }

    fn checkers(&mut self) -> impl Iterator<Item = &mut C> {
        self.of.iter_mut().map(|(_, checker)| checker)
    }
}

impl<C: Checker + Default> Checker for Reigns<C> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn see(&mut self, event: &Event<'_>) -> Result<(), Violation> {
        match event.what {
            What::Said(spoken) | What::Heard(spoken) => {
                for (master, checker) in &mut self.of {
                    for node in [spoken.from, spoken.to] {
                        if master == node {
                            checker.see(event)?;
                        }
                    }
                }
                return Ok(());
            }
            What::MasterBegan { node } => return self.began(node, event.at),
            What::MasterEnded { node } => {
                self.ended(node);
                return Ok(());
            }
            What::NodeStarted { node, role } => {
                self.nodes.insert(node.to_owned(), role);
            }
            What::NodeEnded { node, .. } if self.nodes.get(node) == Some(&Role::Master) => {
                self.ended(node);
                return Ok(()); // The others go on.
            }
            What::FaultsOver => self.faults_over = Some(event.at),
            _ => {}
        }
        self.checkers().try_for_each(|checker| checker.see(event))
    }

    fn is_waiting(&mut self, at: Duration) -> bool {
        self.checkers().any(|checker| checker.is_waiting(at))
    }

    fn finish(&mut self, at: Duration) -> Result<(), Violation> {
        self.checkers().try_for_each(|checker| checker.finish(at))
    }

    fn judgements(&self) -> u64 {
        let judgements = |(_, checker): &(_, C)| checker.judgements();
        let now: u64 = self.of.iter().map(judgements).sum();
        self.judged + now
    }
}

#[cfg(test)]
mod tests {
    use super::super::offers::Offers;
    use super::super::stage::Stage;
    use super::*;

    #[test]
    fn each_master_is_judged_by_its_own_order_alone() {
        let stage = || Stage::new(Reigns::<Offers>::default(), "cpus:4");
        let mut twice = stage();
        twice.offers_text("o1", "cpus:1");
        twice.offers_text("o1", "cpus:1").is_broken("made twice");
        let mut next = stage();
        next.offers_text("o1", "cpus:1");
        next.fact(What::MasterBegan { node: "master-2" });
        next.fact(What::MasterEnded { node: "master" });
        next.fact(What::MasterBegan { node: "master" });
        next.offers_text("o2", "cpus:1");
        next.fact(What::NodeStarted {
            node: "master-2",
            role: Role::Master,
        });
        next.fact(What::NodeEnded {
            node: "master-2",
            crashed: true,
        });
        next.rescinds("o2");
        next.offers_text("o1", "cpus:1").is_clean();
    }
}
