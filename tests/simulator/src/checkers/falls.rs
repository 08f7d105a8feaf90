//! Falls: no actor of any node panics, unless the rehearsal wanted it to.
//!
//! Judged by what the nodes show of their own actors, also of those that are made anew at once and would never be missed. A fall that was
//! wanted has [`WANTED`] in its words: a fault's, and a sorter's that lies. One judgement for each node that starts: from then on it is looked at.

use super::broken;
use crate::checker::{Checker, Violation};
use crate::event::{Event, What};

/// In the words of every panic that is part of a rehearsal.
pub const WANTED: &str = "as the rehearsal wants it";

const NAME: &str = "falls";

/// The checker.
#[derive(Default)]
pub struct Falls {
    judgements: u64,
}

impl Checker for Falls {
    fn name(&self) -> &'static str {
        NAME
    }

    fn see(&mut self, event: &Event<'_>) -> Result<(), Violation> {
        match event.what {
            What::NodeStarted { .. } => self.judgements += 1,
            What::ActorFell { node, actor, words } if !words.contains(WANTED) => {
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
    use super::super::stage::Stage;
    use super::*;

    #[test]
    fn whoever_panics_without_being_told_to_is_found() {
        let fell = |words| What::ActorFell {
            node: "master",
            actor: "allocator",
            words,
        };
        let mut stage = Stage::new(Falls::default(), "cpus:4");
        let wanted = format!("it falls, {WANTED}");
        stage.fact(fell(&wanted)).is_clean();
        stage
            .fact(fell("index out of bounds"))
            .is_broken("the actor allocator of master has panicked: index out of bounds");
    }
}
