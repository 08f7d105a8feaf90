//! The stored log against a reference log in memory: the same writes and crashes give the same
//! content.

use proptest::prelude::*;
use testkit::disk::{Failure, SimulatedStore};

use super::crash::{Call, after, same};
use super::*;

/// The next step; its numbers are adapted to the log's bounds.
#[derive(Clone, Debug)]
enum Step {
    Append {
        back: u64,
        lengths: Vec<usize>,
        commit: bool,
    },
    Promise {
        term: u64,
        commit: u64,
    },
    Install {
        ahead: u64,
        length: usize,
        lengths: Vec<usize>,
    },
    Compact {
        back: u64,
        keep: u64,
        length: usize,
    },
    Claim,
    Open,
    Crash,
    /// The next write fails in this way, and this many unsynced writes survive.
    Fail(u8, usize),
}

fn lengths(most: usize) -> impl Strategy<Value = Vec<usize>> {
    let length = prop_oneof![8 => 0..50usize, 1 => LONG..2 * LONG];
    prop::collection::vec(length, 0..most)
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0..4u64, lengths(5), any::<bool>())
            .prop_map(|(back, lengths, commit)| Step::Append { back, lengths, commit }),
        2 => (0..3u64, 0..4u64).prop_map(|(term, commit)| Step::Promise { term, commit }),
        1 => (0..5u64, prop_oneof![0..100usize, 20_000..60_000usize], lengths(3))
            .prop_map(|(ahead, length, lengths)| Step::Install { ahead, length, lengths }),
        2 => (0..4u64, 0..6u64, prop_oneof![0..100usize, 20_000..60_000usize])
            .prop_map(|(back, keep, length)| Step::Compact { back, keep, length }),
        1 => Just(Step::Claim),
        2 => Just(Step::Open),
        2 => Just(Step::Crash),
        2 => (0..3u8, 0..6usize).prop_map(|(kind, kept)| Step::Fail(kind, kept)),
    ];
    prop::collection::vec(step, 1..40)
}

/// The call for this step, given the log's content.
fn call(step: &Step, now: &Loaded) -> Option<Call> {
    let last = now
        .entries
        .last()
        .map_or(now.snapshot.index, |entry| entry.index);
    let (hard, floor) = (now.hard, now.hard.commit.max(now.snapshot.index));
    let term = hard.term.max(1);
    Some(match step {
        Step::Append {
            back,
            lengths,
            commit,
        } => {
            let first = (last + 1).saturating_sub(*back).max(floor + 1);
            let mut write = append(first, term, lengths);
            let end = if lengths.is_empty() {
                last
            } else {
                first + lengths.len() as u64 - 1
            };
            if *commit {
                let commit = floor + (end - floor) / 2;
                write.hard = Some(HardState { commit, ..hard });
            }
            Call::Write(write)
        }
        Step::Promise { term, commit } => {
            let term = hard.term + term;
            let vote = if term > hard.term {
                term % 3
            } else {
                hard.vote
            };
            Call::Write(promise(term, vote, (floor + commit).min(last)))
        }
        Step::Install {
            ahead,
            length,
            lengths,
        } => {
            let index = floor + 1 + ahead;
            Call::Write(both(
                install(index, term, *length),
                append(index + 1, term, lengths),
            ))
        }
        Step::Compact { back, keep, length } => {
            let index = last.saturating_sub(*back).max(now.snapshot.index);
            if index == 0 {
                return None;
            }
            let kept = match index == now.snapshot.index {
                true => now.snapshot.clone(),
                false => snapshot(index, term, *length),
            };
            Call::Compact(kept, (index + 1).saturating_sub(*keep))
        }
        Step::Claim => Call::Claim(Identity { id: 1, group: 1 }),
        _ => return None,
    })
}

struct Run {
    disk: SimulatedDisk,
    log: StoredLog<SimulatedStore>,
    /// All acknowledged calls.
    calls: Vec<Call>,
    /// The failure of the next write, and the number of surviving writes.
    failure: Option<(u8, usize)>,
}

impl Run {
    fn step(&mut self, step: &Step) -> Result<(), TestCaseError> {
        match step {
            Step::Open => self.open(),
            Step::Crash => {
                self.disk.crash();
                self.open();
            }
            Step::Fail(kind, kept) if self.failure.is_none() => {
                self.failure = Some((*kind, *kept));
                self.disk.fail_next(match kind {
                    0 => Failure::Refuse("not now".to_owned()),
                    1 => Failure::Full,
                    _ => Failure::Sync("no answer".to_owned()),
                });
            }
            _ => {
                if let Some(call) = call(step, &after(&self.calls)) {
                    self.call(call)?;
                }
            }
        }
        let (found, expected) = (self.log.load().unwrap(), after(&self.calls));
        prop_assert!(
            same(&found, &expected),
            "{} for {}",
            summary(&found),
            summary(&expected)
        );
        Ok(())
    }

    fn call(&mut self, call: Call) -> Result<(), TestCaseError> {
        match (call.make(&mut self.log), self.failure) {
            (Ok(()), _) => self.calls.push(call),
            (Err(error), None) => return Err(TestCaseError::fail(error.to_string())),
            // Nothing was changed, except by a compaction whose sweep failed.
            (Err(_), Some((0, _))) => {
                self.failure = None;
                self.settle(call)?;
            }
            (Err(_), Some((_, kept))) => {
                self.failure = None;
                self.disk.crash_with(|_| kept);
                self.open();
                self.settle(call)?;
            }
        }
        Ok(())
    }

    /// The call was not acknowledged: it is found completely, or not at all.
    fn settle(&mut self, call: Call) -> Result<(), TestCaseError> {
        let found = self.log.load().unwrap();
        if same(&found, &after(&self.calls)) {
            return Ok(());
        }
        self.calls.push(call);
        prop_assert!(
            same(&found, &after(&self.calls)),
            "half of it: {}",
            summary(&found)
        );
        Ok(())
    }

    fn open(&mut self) {
        let closed = StoredLog::new(SimulatedStore::default());
        drop(std::mem::replace(&mut self.log, closed));
        self.log = opened(&self.disk);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn stored_log_matches_the_reference_log(steps in steps()) {
        let disk = SimulatedDisk::new();
        let log = opened(&disk);
        let mut run = Run { disk, log, calls: Vec::new(), failure: None };
        for step in &steps {
            run.step(step)?;
        }
    }
}
