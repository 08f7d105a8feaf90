//! Records: the masters' registry requests and answers, for checkers that need a master's
//! knowledge.
//!
//! Only requests of masters count. Those of other clients of the same member
//! ([`RegistryCaller::Client`]) may read a content that the master never saw. Keeps the open
//! requests, and whether a master has read its initial content.

use std::collections::BTreeMap;

use master::registry::{RegistryOperation, RegistryState};

use crate::event::{Event, EventKind, RegistryCaller};
use crate::linear::{RegistryAnswer, RegistryRequest};

/// A registry's answer to a master.
pub(in crate::checkers) struct Answered<'a> {
    /// The master's node.
    pub node: &'a str,
    /// Its request.
    pub request: RegistryRequest,
    /// The answer.
    pub answer: &'a RegistryAnswer,
}

/// Unanswered requests of masters, by number.
#[derive(Default)]
pub(in crate::checkers) struct Questions(BTreeMap<u64, RegistryRequest>);

impl Questions {
    /// Handles a request. Returns the one that this event answers, unless the answer is that
    /// nothing was done.
    pub fn see<'a>(&mut self, event: &Event<'a>) -> Option<Answered<'a>> {
        match event.kind {
            EventKind::RegistryRequested {
                by: RegistryCaller::Master,
                call,
                request,
                ..
            } => {
                self.0.insert(call, request.clone());
                None
            }
            EventKind::RegistryAnswered { node, call, answer } => Some(Answered {
                node,
                request: self.0.remove(&call)?,
                answer: answer?,
            }),
            _ => None,
        }
    }
}

/// A master's knowledge about its registry's content.
#[derive(Debug, PartialEq)]
pub(in crate::checkers) enum Learned<'a> {
    /// The initial content.
    Found(&'a RegistryState),
    /// A change by this master.
    Changed(Box<RegistryOperation>),
}

/// The records of a master that leads alone.
#[derive(Default)]
pub(in crate::checkers) struct Records {
    /// The master's node, since it began.
    node: Option<String>,
    questions: Questions,
    /// Whether it knows the initial content.
    has_read: bool,
}

impl Records {
    pub fn see<'a>(&mut self, event: &Event<'a>) -> Option<Learned<'a>> {
        match event.kind {
            EventKind::MasterBegan { node } => self.node = Some(node.to_owned()),
            EventKind::RegistryRequested { node, .. } if self.node.as_deref() != Some(node) => {
                return None;
            }
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

    use super::*;
    use crate::checkers::fixture::agent;
    use master::registry::Applied;

    /// A master, and the number of the last request.
    struct RecordsFixture(Records, u64);

    fn env() -> RecordsFixture {
        let mut env = RecordsFixture(Records::default(), 0);
        env.see(EventKind::MasterBegan { node: "master" });
        env
    }

    impl RecordsFixture {
        fn see<'a>(&mut self, what: EventKind<'a>) -> Option<Learned<'a>> {
            let at = Duration::ZERO;
            self.0.see(&Event { at, kind: what })
        }

        /// A request on that node, with its answer.
        fn asks<'a>(
            &mut self,
            (node, by): (&'a str, RegistryCaller),
            request: &'a RegistryRequest,
            answer: Option<&'a RegistryAnswer>,
        ) -> Option<Learned<'a>> {
            self.1 += 1;
            let call = self.1;
            let asked = EventKind::RegistryRequested {
                node,
                by,
                call,
                request,
            };
            assert_eq!(self.see(asked), None);
            self.see(EventKind::RegistryAnswered { node, call, answer })
        }
    }

    const MASTER: (&str, RegistryCaller) = ("master", RegistryCaller::Master);
    const OTHERS: [(&str, RegistryCaller); 2] = [
        ("master", RegistryCaller::Client),
        ("master-2", RegistryCaller::Master),
    ];

    fn removal() -> RegistryOperation {
        RegistryOperation::RemoveAgent { agent_id: agent() }
    }

    #[test]
    fn only_the_masters_own_first_read_counts() {
        let (old, new) = (RegistryState::default(), {
            let mut state = RegistryState::default();
            state.quotas.insert("eng".to_owned(), Default::default());
            state
        });
        let content = |state: &RegistryState| RegistryAnswer::Content(Arc::new(state.clone()));
        let (theirs, own) = (content(&old), content(&new));
        let mut env = env();
        for other in OTHERS {
            let read = env.asks(other, &RegistryRequest::Read, Some(&theirs));
            assert_eq!(read, None, "{other:?}");
        }
        let read = env.asks(MASTER, &RegistryRequest::Read, Some(&own));
        assert_eq!(read, Some(Learned::Found(&new)));
        let again = env.asks(MASTER, &RegistryRequest::Read, Some(&own));
        assert_eq!(again, None);
    }

    #[test]
    fn master_learns_its_recorded_changes() {
        let (request, applied) = (removal().into(), Applied { version: 1 });
        let applied = RegistryAnswer::Applied(applied);
        let mut env = env();
        for other in OTHERS {
            let taken = env.asks(other, &request, Some(&applied));
            assert_eq!(taken, None, "{other:?}");
        }
        for untaken in [None, Some(&RegistryAnswer::Refused)] {
            assert_eq!(env.asks(MASTER, &request, untaken), None);
        }
        let taken = env.asks(MASTER, &request, Some(&applied));
        assert_eq!(taken, Some(Learned::Changed(removal().into())));
    }
}
