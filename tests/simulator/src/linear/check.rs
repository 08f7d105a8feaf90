//! Verdict on a history, part by part, and the shortest prefix that no order explains.
//!
//! A prefix of a linearizable history is linearizable, if later answers count as unknown. So the
//! first inexplicable answer is found by bisection. Every search is bounded, and the verdict says
//! so at the bound.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::search::{Found, Search};
use super::{Call, History, Model};

/// Maximum states that [`check`] visits.
pub const STATES_MAX: usize = 1_000_000;
/// Maximum calls before a violation in its report.
const SHOWN_MAX: usize = 10;

/// The result for a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// An order explains every answer.
    Linearizable,
    /// No order does.
    Violation(Violation),
    /// Undecided: the search reached its bound.
    GaveUp {
        /// The visited states.
        states: usize,
    },
}

/// One call of a history as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallText {
    /// Its index in [`History::calls`].
    pub call: usize,
    /// The caller, operation and time, and the answer.
    pub text: String,
}

/// The reason why a history is not linearizable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The part of the service whose calls have no order.
    pub part: String,
    /// Length of the shortest prefix known: its last report is an answer that no order explains.
    pub reports: usize,
    /// Whether it is certainly the shortest. Unknown where a search reached its bound.
    pub shortest: bool,
    /// The time of that answer.
    pub at: Duration,
    /// The calls that come first in the order that explains the most.
    pub ordered: Vec<CallText>,
    /// The calls after them, none of which can be next.
    pub blocked: Vec<CallText>,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { part, reports, .. } = self;
        let first = if self.shortest { "the first" } else { "an" };
        writeln!(
            f,
            "not linearizable in part {part}: the answer at {:?} (report {reports}) is {first} answer that no order explains",
            self.at
        )?;
        let hidden = self.ordered.len().saturating_sub(SHOWN_MAX);
        writeln!(f, "explained in this order:")?;
        if hidden > 0 {
            writeln!(f, "  ({hidden} calls before)")?;
        }
        for call in &self.ordered[hidden..] {
            writeln!(f, "  {}", call.text)?;
        }
        writeln!(f, "none of these can be next:")?;
        for call in &self.blocked {
            writeln!(f, "  {}", call.text)?;
        }
        Ok(())
    }
}

type Numbered<'a, M> = (
    usize,
    &'a Call<<M as Model>::Operation, <M as Model>::Answer>,
);

/// Judges a history with at most [`STATES_MAX`] states.
pub fn check<M: Model>(model: &M, history: &History<M::Operation, M::Answer>) -> Verdict {
    check_within(model, history, STATES_MAX)
}

/// Judges a history with at most `states_max` states, and again for each of the few prefixes in the
/// search for the shortest violation.
pub fn check_within<M: Model>(
    model: &M,
    history: &History<M::Operation, M::Answer>,
    states_max: usize,
) -> Verdict {
    let mut parts = BTreeMap::<M::Part, Vec<Numbered<'_, M>>>::new();
    for (number, call) in history.calls().enumerate() {
        let part = model.part(&call.operation);
        parts.entry(part).or_default().push((number, call));
    }
    let (mut states, mut gave_up) = (0, false);
    let mut violation: Option<Violation> = None;
    for (part, calls) in &parts {
        let part = Part::new(model, part, calls);
        let (found, looked_at) = part.search(usize::MAX, states_max - states);
        states += looked_at;
        match found {
            Found::Order => {}
            Found::GaveUp => gave_up = true,
            Found::None { ordered, blocked } => {
                let found = part.shortest(ordered, blocked, states_max);
                let earlier = violation
                    .as_ref()
                    .is_none_or(|other| found.reports < other.reports);
                if earlier {
                    violation = Some(found);
                }
            }
        }
    }
    match violation {
        Some(violation) => Verdict::Violation(violation),
        None if gave_up => Verdict::GaveUp { states },
        None => Verdict::Linearizable,
    }
}

/// The calls of one part.
struct Part<'a, M: Model> {
    model: &'a M,
    part: &'a M::Part,
    numbers: Vec<usize>,
    calls: Vec<&'a Call<M::Operation, M::Answer>>,
}

impl<'a, M: Model> Part<'a, M> {
    fn new(model: &'a M, part: &'a M::Part, calls: &[Numbered<'a, M>]) -> Self {
        let (numbers, calls) = calls.iter().copied().unzip();
        Self {
            model,
            part,
            numbers,
            calls,
        }
    }

    /// The result for the first `reports` of the history, and the number of visited states.
    fn search(&self, reports: usize, states_max: usize) -> (Found, usize) {
        let mut search = Search::new(self.model, &self.calls, reports);
        let found = search.run(self.model.initial(self.part), states_max);
        (found, search.states)
    }

    /// The shortest prefix without an order, given the result for the whole.
    fn shortest(&self, ordered: Vec<usize>, blocked: Vec<usize>, states_max: usize) -> Violation {
        let mut ends: Vec<usize> = self
            .calls
            .iter()
            .filter_map(|call| call.answered())
            .collect();
        ends.sort_unstable();
        let (mut low, mut high) = (0, ends.len().saturating_sub(1));
        let (mut ordered, mut blocked, mut shortest) = (ordered, blocked, true);
        while low < high {
            let middle = (low + high) / 2;
            match self.search(ends[middle] + 1, states_max).0 {
                Found::None {
                    ordered: before,
                    blocked: after,
                } => (high, ordered, blocked) = (middle, before, after),
                found => {
                    shortest &= found == Found::Order;
                    low = middle + 1;
                }
            }
        }
        let last = ends.get(high).copied().unwrap_or(0);
        Violation {
            part: format!("{:?}", self.part),
            reports: last + 1,
            shortest,
            at: self.time_of(last),
            ordered: self.texts(&ordered, last + 1),
            blocked: self.texts(&blocked, last + 1),
        }
    }

    fn time_of(&self, report: usize) -> Duration {
        let ends = self.calls.iter().find_map(|call| match &call.outcome {
            super::Outcome::Answered {
                report: end, at, ..
            } if *end == report => Some(*at),
            _ => None,
        });
        ends.unwrap_or_default()
    }

    fn texts(&self, calls: &[usize], reports: usize) -> Vec<CallText> {
        let tell = |number: &usize| {
            let call = self.calls[*number];
            let what = self
                .model
                .describe(&call.operation, call.answer_within(reports));
            let until = match &call.outcome {
                super::Outcome::Answered { report, at, .. } if *report < reports => {
                    format!(" to {at:?}")
                }
                _ => String::new(),
            };
            CallText {
                call: self.numbers[*number],
                text: format!(
                    "process {}: {what}, from {:?}{until}",
                    call.process, call.at
                ),
            }
        };
        calls.iter().map(tell).collect()
    }
}
