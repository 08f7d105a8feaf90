//! History: the calls of clients with their outcomes, in the observed order.
//!
//! A client reports just before its request and just after its answer. The order of reports counts:
//! a call whose end was reported before another began precedes it. Times are for readers of a
//! violation.

use std::collections::BTreeMap;
use std::time::Duration;

/// The outcome of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome<A> {
    /// It was answered.
    Answered {
        /// The answer.
        answer: A,
        /// The index of the report.
        report: usize,
        /// The time since the start.
        at: Duration,
    },
    /// Unknown: its client or server crashed, or the history ends before.
    Unknown,
}

/// One operation, requested once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call<O, A> {
    /// The caller.
    pub process: u64,
    /// The operation.
    pub operation: O,
    /// The index of the report.
    pub report: usize,
    /// The time since the start.
    pub at: Duration,
    /// Its outcome.
    pub outcome: Outcome<A>,
}

impl<O, A> Call<O, A> {
    /// Its answer, if it was among the first `reports`.
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

    /// The index of its answer's report.
    pub fn answered(&self) -> Option<usize> {
        match &self.outcome {
            Outcome::Answered { report, .. } => Some(*report),
            Outcome::Unknown => None,
        }
    }
}

/// A report that contradicts earlier ones. The history is unchanged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misuse {
    /// A process has one call at a time; a client with several concurrent calls counts as several
    /// processes.
    #[error("process {process} invoked a call while it still waits for an answer")]
    Busy {
        /// The process.
        process: u64,
    },
    /// There is no open call.
    #[error("process {process} reported the end of a call, but has none under way")]
    Idle {
        /// The process.
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
    /// An empty history.
    pub fn new() -> Self {
        Self::default()
    }

    /// `process` is about to request `operation`.
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

    /// `process` has received an answer.
    pub fn returned(&mut self, process: u64, answer: A, at: Duration) -> Result<(), Misuse> {
        let call = self.end(process)?;
        let report = self.report();
        if let Some(call) = &mut self.calls[call] {
            call.outcome = Outcome::Answered { answer, report, at };
        }
        Ok(())
    }

    /// `process` will not learn the outcome of its call, which may take effect at any later time,
    /// or never. The process may continue.
    pub fn unknown(&mut self, process: u64) -> Result<(), Misuse> {
        self.end(process).map(drop)
    }

    /// The call of `process` certainly had no effect and never will: it was refused before
    /// execution.
    pub fn without_effect(&mut self, process: u64) -> Result<(), Misuse> {
        let call = self.end(process)?;
        self.calls[call] = None;
        Ok(())
    }

    /// The calls in the order of their invocations. Open ones are unknown.
    pub fn calls(&self) -> impl Iterator<Item = &Call<O, A>> {
        self.calls.iter().flatten()
    }

    /// The number of reports.
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
    fn history_keeps_calls_with_effect() {
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
    fn contradicting_report_is_refused() {
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
