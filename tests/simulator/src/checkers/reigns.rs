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
    of: BTreeMap<String, C>,
    nodes: BTreeMap<String, Role>,
    faults_over: Option<Duration>,
    /// Judgements of reigns that are over.
    judged: u64,
}

impl<C: Checker + Default> Default for Reigns<C> {
    fn default() -> Self {
        Self {
            name: C::default().name(),
            of: BTreeMap::new(),
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
        self.of.insert(node.to_owned(), checker);
        Ok(())
    }

    fn ended(&mut self, node: &str) {
        if let Some(checker) = self.of.remove(node) {
            self.judged += checker.judgements();
        }
    }
}

impl<C: Checker + Default> Checker for Reigns<C> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn see(&mut self, event: &Event<'_>) -> Result<(), Violation> {
        match event.what {
            What::Said(spoken) | What::Heard(spoken) => {
                for node in [spoken.from, spoken.to] {
                    if let Some(checker) = self.of.get_mut(node) {
                        checker.see(event)?;
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
        self.of
            .values_mut()
            .try_for_each(|checker| checker.see(event))
    }

    fn is_waiting(&mut self, at: Duration) -> bool {
        self.of.values_mut().any(|checker| checker.is_waiting(at))
    }

    fn finish(&mut self, at: Duration) -> Result<(), Violation> {
        self.of
            .values_mut()
            .try_for_each(|checker| checker.finish(at))
    }

    fn judgements(&self) -> u64 {
        let now: u64 = self.of.values().map(Checker::judgements).sum();
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
