//! Model: what one copy of a service would do with one operation after another.
//!
//! Pure: no clock, no chance. An implementation holds no history; the state is given to it and comes back changed.

use std::fmt::Debug;
use std::hash::Hash;

/// The sequential meaning of a service.
pub trait Model {
    /// What is asked for.
    type Operation: PartialEq + Debug;
    /// What is answered.
    type Answer: Debug;
    /// All that one part of the service remembers. Cloned at every step that changes it, unless [`Model::advance`] spares it that.
    type State: Clone + Eq + Hash;
    /// Names one part. A service whose operations all touch one state has only one: `()`.
    type Part: Clone + Ord + Debug;

    /// Which part an operation belongs to. Parts are judged each alone, so an operation may neither read nor change another part than its own.
    fn part(&self, operation: &Self::Operation) -> Self::Part;

    /// The state of a part before the first operation.
    fn initial(&self, part: &Self::Part) -> Self::State;

    /// The state after `operation`, if one copy in `state` could have answered `answer`. Without an answer: the state after the operation
    /// as it would be carried out, whatever the answer.
    fn step(
        &self,
        state: &Self::State,
        operation: &Self::Operation,
        answer: Option<&Self::Answer>,
    ) -> Option<Self::State>;

    /// The same of a state that nobody needs any more, so that it may be changed where it is. Asked where only one call can be the next.
    fn advance(
        &self,
        state: Self::State,
        operation: &Self::Operation,
        answer: &Self::Answer,
    ) -> Option<Self::State> {
        self.step(&state, operation, Some(answer))
    }

    /// The place in the one order of all changes that this answer says its operation has taken. A hint that saves most of the search where
    /// answers carry versions. A model that gives places promises that every operation that changes the state takes exactly one place,
    /// that [`Model::next_place`] of the state before it, and that no two take the same.
    fn place(&self, _answer: &Self::Answer) -> Option<u64> {
        None
    }

    /// The place that the next change of `state` takes, in a model that has places.
    fn next_place(&self, _state: &Self::State) -> Option<u64> {
        None
    }

    /// Whether an operation that was answered so leaves every state as it was. Such a call is taken as soon as it fits. Always allowed to
    /// say no; it is not enough that it happens to change nothing in one state.
    fn only_looks(&self, _operation: &Self::Operation, _answer: &Self::Answer) -> bool {
        false
    }

    /// Whether no state that can follow `state` gives this answer any more. Always allowed to say no; a yes saves a search that leads nowhere.
    fn too_late(&self, _state: &Self::State, _answer: &Self::Answer) -> bool {
        false
    }

    /// One call in a few words, for whoever reads a violation.
    fn describe(&self, operation: &Self::Operation, answer: Option<&Self::Answer>) -> String {
        match answer {
            Some(answer) => format!("{operation:?} -> {answer:?}"),
            None => format!("{operation:?} -> unknown"),
        }
    }
}
