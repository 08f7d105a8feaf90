//! Check: the verdict on a history, part by part, and the shortest prefix of it that no order explains.
//!
//! A prefix of a history that has an order has one too, once answers that come later count as unknown. So the first answer that
//! cannot be explained is found by halving. Every search is bounded, and a verdict says so when the bound was met. Remembers nothing.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::search::{Found, Search};
use super::{Call, History, Model};

/// How many states [`check`] looks at.
pub const STATES_MAX: usize = 1_000_000;
/// How many of the calls before a violation are told.
const TOLD_MAX: usize = 10;

/// What is known of a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// There is an order that explains every answer.
    Linearizable,
    /// There is none.
    Violation(Violation),
    /// Nothing was decided: the search ended at its bound.
    GaveUp {
        /// After so many states.
        states: usize,
    },
}

/// One call of a history in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Witness {
    /// Its number among [`History::calls`].
    pub call: usize,
    /// Who asked for what and when, and what was answered.
    pub text: String,
}

/// Why a history is not linearizable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The part of the service whose calls have no order.
    pub part: String,
    /// So many reports of the history suffice: the last of them is an answer that no order explains.
    pub reports: usize,
    /// Whether fewer reports would not suffice. Unknown where a search among them met its bound.
    pub shortest: bool,
    /// When that answer came.
    pub at: Duration,
    /// The calls that come before the others in the order that explains the most.
    pub ordered: Vec<Witness>,
    /// The calls after them, none of which can be the next.
    pub blocked: Vec<Witness>,
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
        let hidden = self.ordered.len().saturating_sub(TOLD_MAX);
        writeln!(f, "explained in this order:")?;
        if hidden > 0 {
            writeln!(f, "  ({hidden} calls before)")?;
        }
        for witness in &self.ordered[hidden..] {
            writeln!(f, "  {}", witness.text)?;
        }
        writeln!(f, "none of these can be next:")?;
        for witness in &self.blocked {
            writeln!(f, "  {}", witness.text)?;
        }
        Ok(())
    }
}

type Numbered<'a, M> = (
    usize,
    &'a Call<<M as Model>::Operation, <M as Model>::Answer>,
);

/// Judges a history, looking at [`STATES_MAX`] states at most.
pub fn check<M: Model>(model: &M, history: &History<M::Operation, M::Answer>) -> Verdict {
    check_within(model, history, STATES_MAX)
}

/// Judges a history, looking at `states_max` states at most; and at so many again for each of the few prefixes among which the shortest
/// violation is searched.
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

    /// What is found in the first `reports` of the history, and how many states were looked at.
    fn search(&self, reports: usize, states_max: usize) -> (Found, usize) {
        let mut search = Search::new(self.model, &self.calls, reports);
        let found = search.run(self.model.initial(self.part), states_max);
        (found, search.states)
    }

    /// The shortest prefix without an order, given what was found in the whole.
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
            ordered: self.told(&ordered, last + 1),
            blocked: self.told(&blocked, last + 1),
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

    fn told(&self, calls: &[usize], reports: usize) -> Vec<Witness> {
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
            Witness {
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
