//! Registry (invariant 1, its second half): an operation that was acknowledged is never lost, and every answer of the registry could be
//! that of one copy which takes one operation at a time, whichever master asked and whatever fell meanwhile.
//!
//! Judged at the end of the run by [`linear`](crate::linear), from what masters asked their registries and were answered, and what
//! the last look read through every member. A question without an answer may have been done, at any time, or never; one that was refused
//! for now was not. A history that leaves too many orders open to be judged is no good one.

use std::time::Duration;

use super::broken;
use crate::checker::{Checker, Violation};
use crate::event::{Event, What};
use crate::linear::{
    History, Misuse, RegistryAnswer, RegistryModel, RegistryRequest, Verdict, check_within,
};

const NAME: &str = "registry";

/// How many states the search looks at at most.
const STATES_MAX: usize = 200_000;

/// The checker.
pub struct Registry {
    states_max: usize,
    history: History<RegistryRequest, RegistryAnswer>,
    answers: u64,
    judgements: u64,
}

impl Default for Registry {
    fn default() -> Self {
        Self {
            states_max: STATES_MAX,
            history: History::new(),
            answers: 0,
            judgements: 0,
        }
    }
}

impl Registry {
    fn note(&mut self, event: &Event<'_>) -> Result<(), Misuse> {
        match event.what {
            What::RegistryAsked { call, request, .. } => {
                self.history.invoke(call, request.clone(), event.at)
            }
            What::RegistryAnswered { call, answer, .. } => match answer {
                Some(answer) => {
                    self.answers += 1;
                    self.history.returned(call, answer.clone(), event.at)
                }
                None => self.history.without_effect(call),
            },
            _ => Ok(()),
        }
    }
}

impl Checker for Registry {
    fn name(&self) -> &'static str {
        NAME
    }

    fn see(&mut self, event: &Event<'_>) -> Result<(), Violation> {
        self.note(event)
            .or_else(|misuse| broken(NAME, event.at, misuse.to_string()))
    }

    fn finish(&mut self, at: Duration) -> Result<(), Violation> {
        match check_within(&RegistryModel::default(), &self.history, self.states_max) {
            Verdict::Linearizable => {
                self.judgements = self.answers;
                Ok(())
            }
            Verdict::Violation(violation) => broken(NAME, at, violation.to_string()),
            Verdict::GaveUp { states } => {
                let answers = self.answers;
                let what = format!(
                    "the history of {answers} answers cannot be judged: too many orders are possible, of which {states} states were looked at"
                );
                broken(NAME, at, what)
            }
        }
    }

    fn judgements(&self) -> u64 {
        self.judgements
    }
}

#[cfg(test)]
mod tests {
    use super::super::stage::Stage;
    use super::*;
    use crate::event::Asker;
    use ::master::registry::{Applied, RegistryOperation};
    use protocol::AgentId;

    fn remove(id: &str) -> RegistryRequest {
        let agent_id = AgentId::new(id).unwrap();
        RegistryOperation::RemoveAgent { agent_id }.into()
    }

    fn asked(stage: &mut Stage<Registry>, call: u64, request: &RegistryRequest) {
        let (node, by) = ("master", Asker::Master);
        stage.fact(What::RegistryAsked {
            node,
            by,
            call,
            request,
        });
    }

    fn answered(stage: &mut Stage<Registry>, call: u64, version: Option<u64>) {
        let answer = version.map(|version| RegistryAnswer::Applied(Applied { version }));
        let (node, answer) = ("master", answer.as_ref());
        stage.fact(What::RegistryAnswered { node, call, answer });
    }

    #[test]
    fn versions_that_were_acknowledged_are_taken_once_and_unknown_ones_perhaps() {
        let mut stage = Stage::new(Registry::default(), "cpus:4");
        for call in 1..=4 {
            asked(&mut stage, call, &remove("a"));
        }
        answered(&mut stage, 1, Some(1));
        answered(&mut stage, 2, Some(3));
        answered(&mut stage, 3, None);
        asked(&mut stage, 5, &remove("b"));
        answered(&mut stage, 5, Some(4));
        stage.is_clean();
        asked(&mut stage, 6, &remove("b"));
        answered(&mut stage, 6, Some(4));
        stage.is_broken("not linearizable");
    }

    #[test]
    fn a_history_that_cannot_be_judged_is_not_passed() {
        let registry = Registry {
            states_max: 3,
            ..Registry::default()
        };
        let mut stage = Stage::new(registry, "cpus:4");
        for call in 1..=4 {
            asked(&mut stage, call, &remove("a"));
            answered(&mut stage, call, Some(call));
        }
        stage.is_broken("the history of 4 answers cannot be judged");
    }

    #[test]
    fn what_was_promised_to_have_no_effect_fills_no_gap() {
        let mut stage = Stage::new(Registry::default(), "cpus:4");
        asked(&mut stage, 1, &remove("a"));
        answered(&mut stage, 1, None);
        asked(&mut stage, 2, &remove("a"));
        answered(&mut stage, 2, Some(2));
        stage.is_broken("not linearizable");
    }
}
