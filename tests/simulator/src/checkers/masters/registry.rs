//! Registry: an acknowledged operation is never lost, and the registry's answers are those of a
//! single copy with one operation at a time, for any masters and crashes.
//!
//! Judged at the end of the run by [`linear`](crate::linear), from the masters' requests and
//! answers, and from the last read of every member. An unanswered request may have been done at any
//! time, or never; a refused one was not. A history with too many possible orders is a failure.

use std::time::Duration;

use crate::checkers::broken;
use crate::checkers::checker::{Checker, Violation};
use crate::event::{Event, EventKind};
use crate::linear::{
    History, Misuse, RegistryAnswer, RegistryModel, RegistryRequest, Verdict, check_within,
};

const NAME: &str = "registry";

/// Maximum states of the search.
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
        match event.kind {
            EventKind::RegistryRequested { call, request, .. } => {
                self.history.invoke(call, request.clone(), event.at)
            }
            EventKind::RegistryAnswered { call, answer, .. } => match answer {
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
    use super::*;
    use crate::checkers::fixture::Fixture;
    use crate::event::RegistryCaller;
    use ::master::registry::{Applied, RegistryOperation};
    use protocol::AgentId;

    fn remove(id: &str) -> RegistryRequest {
        let agent_id = AgentId::new(id).unwrap();
        RegistryOperation::RemoveAgent { agent_id }.into()
    }

    fn asked(fixture: &mut Fixture<Registry>, call: u64, request: &RegistryRequest) {
        let (node, by) = ("master", RegistryCaller::Master);
        fixture.fact(EventKind::RegistryRequested {
            node,
            by,
            call,
            request,
        });
    }

    fn answered(fixture: &mut Fixture<Registry>, call: u64, version: Option<u64>) {
        let answer = version.map(|version| RegistryAnswer::Applied(Applied { version }));
        let (node, answer) = ("master", answer.as_ref());
        fixture.fact(EventKind::RegistryAnswered { node, call, answer });
    }

    #[test]
    fn acknowledged_versions_are_unique() {
        let mut fixture = Fixture::new(Registry::default(), "cpus:4");
        for call in 1..=4 {
            asked(&mut fixture, call, &remove("a"));
        }
        answered(&mut fixture, 1, Some(1));
        answered(&mut fixture, 2, Some(3));
        answered(&mut fixture, 3, None);
        asked(&mut fixture, 5, &remove("b"));
        answered(&mut fixture, 5, Some(4));
        fixture.is_clean();
        asked(&mut fixture, 6, &remove("b"));
        answered(&mut fixture, 6, Some(4));
        fixture.is_broken("not linearizable");
    }

    #[test]
    fn undecidable_history_is_a_failure() {
        let registry = Registry {
            states_max: 3,
            ..Registry::default()
        };
        let mut fixture = Fixture::new(registry, "cpus:4");
        for call in 1..=4 {
            asked(&mut fixture, call, &remove("a"));
            answered(&mut fixture, call, Some(call));
        }
        fixture.is_broken("the history of 4 answers cannot be judged");
    }

    #[test]
    fn call_without_effect_fills_no_gap() {
        let mut fixture = Fixture::new(Registry::default(), "cpus:4");
        asked(&mut fixture, 1, &remove("a"));
        answered(&mut fixture, 1, None);
        asked(&mut fixture, 2, &remove("a"));
        answered(&mut fixture, 2, Some(2));
        fixture.is_broken("not linearizable");
    }
}
