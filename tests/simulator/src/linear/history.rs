//! History: the calls that clients made, when they began, and what came of them, in the order in which it was seen.
//!
//! Hears a client just before it asks and just after it was answered. The order of these reports is what counts: a call whose end was
//! reported before another began comes before it. The times are for people who read a violation. Never judges.

use std::collections::BTreeMap;
use std::time::Duration;

/// What came of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome<A> {
    /// It was answered.
    Answered {
        /// With what.
        answer: A,
        /// Which report of the history this was.
        report: usize,
        /// When, since the start.
        at: Duration,
    },
    /// Nobody knows: its client or its server fell, or the history ends before its answer.
    Unknown,
}

/// One operation, asked for once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call<O, A> {
    /// Who asked.
    pub process: u64,
    /// For what.
    pub operation: O,
    /// Which report of the history this was.
    pub report: usize,
    /// When, since the start.
    pub at: Duration,
    /// What came of it.
    pub outcome: Outcome<A>,
}

impl<O, A> Call<O, A> {
    /// Its answer, if it has one that was reported among the first `reports`.
    pub fn answer_within(&self, reports: usize) -> Option<&A> {
        match &self.outcome {
            Outcome::Answered { answer, report, .. } if *report < reports => Some(answer),
            _ => None,
        }
    }

    /// Its answer, if it has one.
    pub fn answer(&self) -> Option<&A> {
        self.answer_within(usize::MAX)
    }

    /// Which report its answer was.
    pub fn answered(&self) -> Option<usize> {
        match &self.outcome {
            Outcome::Answered { report, .. } => Some(*report),
            Outcome::Unknown => None,
        }
    }
}

/// A report that does not fit what was reported before. The history is as it was.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misuse {
    /// A process waits for one answer at a time; a client that has several calls under way is several processes.
    #[error("process {process} invoked a call while it still waits for an answer")]
    Busy {
        /// Which.
        process: u64,
    },
    /// There is no call that could end.
    #[error("process {process} reported the end of a call, but has none under way")]
    Idle {
        /// Which.
        process: u64,
    },
}

/// Calls in the order of their invocations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct History<O, A> {
    calls: Vec<Option<Call<O, A>>>,
    open: BTreeMap<u64, usize>,
    reports: usize,
}

impl<O, A> Default for History<O, A> {
    fn default() -> Self {
        Self {
            calls: Vec::new(),
            open: BTreeMap::new(),
            reports: 0,
        }
    }
}

impl<O, A> History<O, A> {
    /// One without calls.
    pub fn new() -> Self {
        Self::default()
    }

    /// `process` is about to ask for `operation`.
    pub fn invoke(&mut self, process: u64, operation: O, at: Duration) -> Result<(), Misuse> {
        if self.open.contains_key(&process) {
            return Err(Misuse::Busy { process });
        }
        self.open.insert(process, self.calls.len());
        let report = self.report();
        self.calls.push(Some(Call {
            process,
            operation,
            report,
            at,
            outcome: Outcome::Unknown,
        }));
        Ok(())
    }

    /// `process` has just been answered.
    pub fn returned(&mut self, process: u64, answer: A, at: Duration) -> Result<(), Misuse> {
        let call = self.end(process)?;
        let report = self.report();
        if let Some(call) = &mut self.calls[call] {
            call.outcome = Outcome::Answered { answer, report, at };
        }
        Ok(())
    }

    /// `process` will not learn what came of its call: it may take effect at any later time, or never. The process may go on.
    pub fn unknown(&mut self, process: u64) -> Result<(), Misuse> {
        self.end(process).map(drop)
    }

    /// The call of `process` has certainly had no effect and never will: it was refused before anyone took it up.
    pub fn without_effect(&mut self, process: u64) -> Result<(), Misuse> {
        let call = self.end(process)?;
        self.calls[call] = None;
        Ok(())
    }

    /// The calls in the order of their invocations. Those that still wait are unknown.
    pub fn calls(&self) -> impl Iterator<Item = &Call<O, A>> {
        self.calls.iter().flatten()
    }

    /// How many reports it has heard.
    pub fn reports(&self) -> usize {
        self.reports
    }

    fn end(&mut self, process: u64) -> Result<usize, Misuse> {
        self.open.remove(&process).ok_or(Misuse::Idle { process })
    }

    fn report(&mut self) -> usize {
        self.reports += 1;
        self.reports - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: Duration = Duration::ZERO;

    #[test]
    fn a_call_has_its_reports_and_its_answer_and_one_without_effect_is_none() {
        let mut history = History::new();
        history.invoke(1, "a", AT).unwrap();
        history.invoke(2, "b", AT).unwrap();
        history.returned(2, 20, AT).unwrap();
        history.without_effect(1).unwrap();
        history.invoke(2, "c", AT).unwrap();
        history.unknown(2).unwrap();
        history.invoke(2, "d", AT).unwrap();
        let calls: Vec<_> = history.calls().collect();
        let seen = calls
            .iter()
            .map(|call| (call.operation, call.report, call.answered()));
        assert_eq!(
            seen.collect::<Vec<_>>(),
            [("b", 1, Some(2)), ("c", 3, None), ("d", 4, None)]
        );
        assert_eq!(calls[0].answer_within(3), Some(&20));
        assert_eq!(calls[0].answer_within(2), None);
    }

    #[test]
    fn a_report_that_does_not_fit_is_refused_and_changes_nothing() {
        let mut history = History::<_, u8>::new();
        history.invoke(1, "a", AT).unwrap();
        let before = history.clone();
        assert_eq!(history.invoke(1, "b", AT), Err(Misuse::Busy { process: 1 }));
        for refused in [
            history.returned(2, 0, AT),
            history.unknown(2),
            history.without_effect(2),
        ] {
            assert_eq!(refused, Err(Misuse::Idle { process: 2 }));
        }
        assert_eq!(history, before);
    }
}
