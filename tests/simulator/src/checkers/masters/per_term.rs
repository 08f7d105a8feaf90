//! Runs a checker of one master's order separately for each leading master.
//!
//! A master leads from the begin of its role on a node to its end; two may overlap when one does
//! not know yet that it is deposed. Each has its own checker, which sees only that master's
//! messages and the machines' events, and ends with it.

use std::collections::BTreeMap;
use std::time::Duration;

use runtime::Role;

use crate::checkers::checker::{Checker, Violation};
use crate::event::{Event, EventKind};

/// The checker of each leading master.
pub struct PerTerm<C> {
    name: &'static str,
    /// By the master's node. There are one or two, and every event looks up both of its ends.
    of: Vec<(String, C)>,
    nodes: BTreeMap<String, Role>,
    faults_over: Option<Duration>,
    /// Judgements of ended checkers.
    judged: u64,
}

impl<C: Checker + Default> Default for PerTerm<C> {
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

impl<C: Checker + Default> PerTerm<C> {
    /// Brings a new checker up to date.
    fn began(&mut self, node: &str, at: Duration) -> Result<(), Violation> {
        let mut checker = C::default();
        for (node, role) in &self.nodes {
            let what = EventKind::NodeStarted { node, role: *role };
            checker.see(&Event { at, kind: what })?;
        }
        let what = EventKind::MasterBegan { node };
        checker.see(&Event { at, kind: what })?;
        if let Some(at) = self.faults_over {
            let what = EventKind::FaultsOver;
            checker.see(&Event { at, kind: what })?;
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

impl<C: Checker + Default> Checker for PerTerm<C> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn see(&mut self, event: &Event<'_>) -> Result<(), Violation> {
        match event.kind {
            EventKind::Sent(observed) | EventKind::Received(observed) => {
                for (master, checker) in &mut self.of {
                    for node in [observed.from, observed.to] {
                        if master == node {
                            checker.see(event)?;
                        }
                    }
                }
                return Ok(());
            }
            EventKind::MasterBegan { node } => return self.began(node, event.at),
            EventKind::MasterEnded { node } => {
                self.ended(node);
                return Ok(());
            }
            EventKind::NodeStarted { node, role } => {
                self.nodes.insert(node.to_owned(), role);
            }
            EventKind::NodeEnded { node, .. } if self.nodes.get(node) == Some(&Role::Master) => {
                self.ended(node);
                return Ok(()); // the others continue
            }
            EventKind::FaultsOver => self.faults_over = Some(event.at),
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
    use super::*;
    use crate::checkers::fixture::Fixture;
    use crate::checkers::resources::offers::Offers;

    #[test]
    fn masters_are_judged_separately() {
        let fixture = || Fixture::new(PerTerm::<Offers>::default(), "cpus:4");
        let mut twice = fixture();
        twice.offers_text("o1", "cpus:1");
        twice.offers_text("o1", "cpus:1").is_broken("made twice");
        let mut next = fixture();
        next.offers_text("o1", "cpus:1");
        next.fact(EventKind::MasterBegan { node: "master-2" });
        next.fact(EventKind::MasterEnded { node: "master" });
        next.fact(EventKind::MasterBegan { node: "master" });
        next.offers_text("o2", "cpus:1");
        next.fact(EventKind::NodeStarted {
            node: "master-2",
            role: Role::Master,
        });
        next.fact(EventKind::NodeEnded {
            node: "master-2",
            crashed: true,
        });
        next.rescinds("o2");
        next.offers_text("o1", "cpus:1").is_clean();
    }
}
