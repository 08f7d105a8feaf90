//! Records: what masters ask their registries and are answered, for the checkers that judge by what a master knows to be recorded.
//!
//! Hears the questions of masters and the answers to them. What anybody else asks of the same member ([`Asker::Client`]) is none of the
//! master's: it may read the content of a moment that the master never saw. Remembers the questions that are open, and whether a master
//! has read what there was before it. Judges nothing.

use std::collections::BTreeMap;

use master::registry::{RegistryOperation, RegistryState};

use crate::event::{Asker, Event, What};
use crate::linear::{RegistryAnswer, RegistryRequest};

/// A master's registry has answered.
pub(super) struct Answered<'a> {
    /// The master's node.
    pub node: &'a str,
    /// What it had asked.
    pub request: RegistryRequest,
    /// What it heard.
    pub answer: &'a RegistryAnswer,
}

/// What masters ask and are not answered yet, by the number of the question.
#[derive(Default)]
pub(super) struct Questions(BTreeMap<u64, RegistryRequest>);

impl Questions {
    /// Notes a question. Gives the one that is answered by this event, unless the answer is that nothing was done.
    pub fn see<'a>(&mut self, event: &Event<'a>) -> Option<Answered<'a>> {
        match event.what {
            What::RegistryAsked {
                by: Asker::Master,
                call,
                request,
                ..
            } => {
                self.0.insert(call, request.clone());
                None
            }
            What::RegistryAnswered { node, call, answer } => Some(Answered {
                node,
                request: self.0.remove(&call)?,
                answer: answer?,
            }),
            _ => None,
        }
    }
}

/// What a master has learned of its registry's content.
#[derive(Debug, PartialEq)]
pub(super) enum Learned<'a> {
    /// This was there when it began.
    Found(&'a RegistryState),
    /// It has changed this.
    Changed(Box<RegistryOperation>),
}

/// What the one master that is looked at learns.
#[derive(Default)]
pub(super) struct Records {
    /// The master's node, since it began.
    node: Option<String>,
    questions: Questions,
    /// Whether it knows what there was before it.
    has_read: bool,
}

impl Records {
    pub fn see<'a>(&mut self, event: &Event<'a>) -> Option<Learned<'a>> {
        match event.what {
            What::MasterBegan { node } => self.node = Some(node.to_owned()),
            What::RegistryAsked { node, .. } if self.node.as_deref() != Some(node) => return None,
            _ => {}
        }
        let Answered {
            request, answer, ..
        } = self.questions.see(event)?;
        match (request, answer) {
            (RegistryRequest::Read, RegistryAnswer::Content(content)) => {
                let is_first = !std::mem::replace(&mut self.has_read, true);
                is_first.then_some(Learned::Found(content))
            }
            (RegistryRequest::Apply(operation), RegistryAnswer::Applied(_)) => {
                Some(Learned::Changed(operation))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::super::stage::agent;
    use super::*;
    use master::registry::Applied;

    /// A master, and the number of the last question.
    struct Ground(Records, u64);

    fn ground() -> Ground {
        let mut ground = Ground(Records::default(), 0);
        ground.see(What::MasterBegan { node: "master" });
        ground
    }

    impl Ground {
        fn see<'a>(&mut self, what: What<'a>) -> Option<Learned<'a>> {
            let at = Duration::ZERO;
            self.0.see(&Event { at, what })
        }

        /// Somebody on that node asks, and is answered at once.
        fn asks<'a>(
            &mut self,
            (node, by): (&'a str, Asker),
            request: &'a RegistryRequest,
            answer: Option<&'a RegistryAnswer>,
        ) -> Option<Learned<'a>> {
            self.1 += 1;
            let call = self.1;
            let asked = What::RegistryAsked {
                node,
                by,
                call,
                request,
            };
            assert_eq!(self.see(asked), None);
            self.see(What::RegistryAnswered { node, call, answer })
        }
    }

    const MASTER: (&str, Asker) = ("master", Asker::Master);
    const OTHERS: [(&str, Asker); 2] = [("master", Asker::Client), ("master-2", Asker::Master)];

    fn removal() -> RegistryOperation {
        RegistryOperation::RemoveAgent { agent_id: agent() }
    }

    #[test]
    fn the_first_that_a_master_reads_is_what_was_there_and_what_others_read_is_nothing_to_it() {
        let (old, new) = (RegistryState::default(), {
            let mut state = RegistryState::default();
            state.quotas.insert("eng".to_owned(), Default::default());
            state
        });
        let content = |state: &RegistryState| RegistryAnswer::Content(Arc::new(state.clone()));
        let (theirs, own) = (content(&old), content(&new));
        let mut ground = ground();
        for other in OTHERS {
            let read = ground.asks(other, &RegistryRequest::Read, Some(&theirs));
            assert_eq!(read, None, "{other:?}");
        }
        let read = ground.asks(MASTER, &RegistryRequest::Read, Some(&own));
        assert_eq!(read, Some(Learned::Found(&new)));
        let again = ground.asks(MASTER, &RegistryRequest::Read, Some(&own));
        assert_eq!(again, None);
    }

    #[test]
    fn a_master_learns_what_was_taken_of_its_own_changes() {
        let (request, applied) = (removal().into(), Applied { version: 1 });
        let applied = RegistryAnswer::Applied(applied);
        let mut ground = ground();
        for other in OTHERS {
            let taken = ground.asks(other, &request, Some(&applied));
            assert_eq!(taken, None, "{other:?}");
        }
        for untaken in [None, Some(&RegistryAnswer::Refused)] {
            assert_eq!(ground.asks(MASTER, &request, untaken), None);
        }
        let taken = ground.asks(MASTER, &request, Some(&applied));
        assert_eq!(taken, Some(Learned::Changed(removal().into())));
    }
}
