//! Model: the sequential behaviour of a service.
//!
//! Pure: no clock, no randomness. An implementation keeps no history; it gets the state and returns
//! the next one.

use std::fmt::Debug;
use std::hash::Hash;

/// The sequential meaning of a service.
pub trait Model {
    /// A request.
    type Operation: PartialEq + Debug;
    /// A reply.
    type Answer: Debug;
    /// The state of one part. Cloned at every step that changes it, unless [`Model::advance`]
    /// avoids that.
    type State: Clone + Eq + Hash;
    /// The key of a part. A service whose operations share one state has only one: `()`.
    type Part: Clone + Ord + Debug;

    /// The part of an operation. Parts are judged separately, so an operation must not read or
    /// change another part.
    fn part(&self, operation: &Self::Operation) -> Self::Part;

    /// The state of a part before the first operation.
    fn initial(&self, part: &Self::Part) -> Self::State;

    /// The state after `operation`, if a single copy in `state` could have given this `answer`.
    /// Without an answer: the state after the operation, whatever the answer.
    fn step(
        &self,
        state: &Self::State,
        operation: &Self::Operation,
        answer: Option<&Self::Answer>,
    ) -> Option<Self::State>;

    /// Like [`Model::step`], for a state that is not needed again and may be changed in place. Used
    /// where only one call can be next.
    fn advance(
        &self,
        state: Self::State,
        operation: &Self::Operation,
        answer: &Self::Answer,
    ) -> Option<Self::State> {
        self.step(&state, operation, Some(answer))
    }

    /// The position of the operation in the total order of changes, as this answer shows it. A hint
    /// that saves most of the search where answers contain versions. A model with positions
    /// guarantees that every changing operation takes exactly one position, [`Model::next_place`]
    /// of the state before it, and that no two take the same.
    fn place(&self, _answer: &Self::Answer) -> Option<u64> {
        None
    }

    /// The position of the next change of `state`, in a model with positions.
    fn next_place(&self, _state: &Self::State) -> Option<u64> {
        None
    }

    /// Whether an operation with this answer never changes any state. Such a call is taken as soon
    /// as it fits. `false` is always allowed; no change in one state alone is not enough.
    fn only_looks(&self, _operation: &Self::Operation, _answer: &Self::Answer) -> bool {
        false
    }

    /// Whether no state after `state` can give this answer. `false` is always allowed; `true` saves
    /// a useless search.
    fn too_late(&self, _state: &Self::State, _answer: &Self::Answer) -> bool {
        false
    }

    /// One call in a few words, for a violation's report.
    fn describe(&self, operation: &Self::Operation, answer: Option<&Self::Answer>) -> String {
        match answer {
            Some(answer) => format!("{operation:?} -> {answer:?}"),
            None => format!("{operation:?} -> unknown"),
        }
    }
}
