//! No panics: no actor of any node panics, unless the simulation injected it.
//!
//! Judged by the nodes' events, also for actors that are restarted at once. An injected panic has
//! [`WANTED`] in its message: a fault's, and a sorter's. One judgement for each started node.

use super::broken;
use crate::checkers::checker::{Checker, Violation};
use crate::event::{Event, EventKind};

/// Part of the message of every injected panic.
pub const WANTED: &str = "as the rehearsal wants it";

const NAME: &str = "no_panics";

/// The checker.
#[derive(Default)]
pub struct NoPanics {
    judgements: u64,
}

impl Checker for NoPanics {
    fn name(&self) -> &'static str {
        NAME
    }

    fn see(&mut self, event: &Event<'_>) -> Result<(), Violation> {
        match event.kind {
            EventKind::NodeStarted { .. } => self.judgements += 1,
            EventKind::ActorPanicked { node, actor, words } if !words.contains(WANTED) => {
                let what = format!("the actor {actor} of {node} has panicked: {words}");
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
    use super::super::fixture::Fixture;
    use super::*;

    #[test]
    fn uninjected_panic_is_found() {
        let fell = |words| EventKind::ActorPanicked {
            node: "master",
            actor: "allocator",
            words,
        };
        let mut fixture = Fixture::new(NoPanics::default(), "cpus:4");
        let wanted = format!("it falls, {WANTED}");
        fixture.fact(fell(&wanted)).is_clean();
        fixture
            .fact(fell("index out of bounds"))
            .is_broken("the actor allocator of master has panicked: index out of bounds");
    }
}
