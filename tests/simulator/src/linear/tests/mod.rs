//! Tests of the checker: histories of registers from the literature, good and bad; the content of a
//! verdict; and its bound.

mod laws;
mod registry;
mod requests;

use std::cell::Cell;
use std::time::Duration;

use super::*;

/// An event of one process.
#[derive(Clone, Copy)]
enum Do {
    Read,
    Write(u64),
    Swap(u64, u64),
    Got(u64),
    Written,
    Differs,
    Lost,
}

use Do::{Differs, Got, Lost, Read, Swap, Write, Written};

type RegisterHistory = History<RegisterOperation, RegisterAnswer>;

/// A history of one register from these events, one millisecond apart.
fn history_of(events: &[(u64, Do)]) -> RegisterHistory {
    let mut history = History::new();
    for (number, (process, event)) in events.iter().enumerate() {
        tell(&mut history, 0, *process, *event, number as u64);
    }
    history
}

fn tell(history: &mut RegisterHistory, register: u64, process: u64, event: Do, millis: u64) {
    let at = Duration::from_millis(millis);
    let done = match event {
        Read => history.invoke(process, RegisterOperation::Read { register }, at),
        Write(value) => history.invoke(process, RegisterOperation::Write { register, value }, at),
        Swap(expected, new) => {
            let operation = RegisterOperation::CompareAndSet {
                register,
                expected,
                new,
            };
            history.invoke(process, operation, at)
        }
        Got(value) => history.returned(process, RegisterAnswer::Value(value), at),
        Written => history.returned(process, RegisterAnswer::Written, at),
        Differs => history.returned(process, RegisterAnswer::Differs, at),
        Lost => history.unknown(process),
    };
    done.unwrap();
}

fn verdict(events: &[(u64, Do)]) -> Verdict {
    check(&Registers::default(), &history_of(events))
}

#[track_caller]
fn accepted(events: &[(u64, Do)]) {
    assert_eq!(verdict(events), Verdict::Linearizable);
}

/// Not linearizable, and the last event is the first inexplicable answer.
#[track_caller]
fn refused(events: &[(u64, Do)]) {
    let Verdict::Violation(violation) = verdict(events) else {
        panic!("accepted");
    };
    let lost = events.iter().filter(|(_, event)| matches!(event, Lost));
    assert_eq!(
        violation.reports,
        events.len() - lost.count(),
        "{violation}"
    );
    assert!(violation.shortest && !violation.blocked.is_empty());
}

#[test]
fn sequential_calls_are_judged_as_one_copy() {
    accepted(&[]);
    accepted(&[(1, Write(1)), (1, Written), (2, Read), (2, Got(1))]);
    accepted(&[(1, Swap(0, 1)), (1, Written), (1, Swap(0, 2)), (1, Differs)]);
    refused(&[(1, Read), (1, Got(1))]);
    refused(&[(1, Swap(0, 1)), (1, Differs)]);
    refused(&[(1, Write(1)), (1, Got(1))]);
}

#[test]
fn concurrent_read_may_see_the_write() {
    accepted(&[(1, Write(1)), (2, Read), (2, Got(0)), (1, Written)]);
    accepted(&[(1, Write(1)), (2, Read), (2, Got(1)), (1, Written)]);
    // It was requested before, and yet sees the later one.
    accepted(&[(2, Read), (1, Write(1)), (1, Written), (2, Got(1))]);
}

#[test]
fn idle_write_may_matter_later() {
    accepted(&[
        (1, Write(0)),
        (2, Write(1)),
        (2, Written),
        (1, Written),
        (2, Read),
        (2, Got(0)),
    ]);
}

#[test]
fn a_stale_read_is_refused() {
    refused(&[(1, Write(1)), (1, Written), (2, Read), (2, Got(0))]);
    refused(&[
        (1, Write(1)),
        (1, Written),
        (1, Write(2)),
        (2, Read),
        (2, Got(0)),
    ]);
}

#[test]
fn a_read_from_the_future_is_refused() {
    refused(&[(2, Read), (2, Got(1))]);
    let mut later = history_of(&[(2, Read), (2, Got(1))]);
    tell(&mut later, 0, 1, Write(1), 9);
    tell(&mut later, 0, 1, Written, 9);
    assert!(matches!(
        check(&Registers::default(), &later),
        Verdict::Violation(_)
    ));
}

#[test]
fn observed_write_stays_observed() {
    // Regular registers allow it, atomic ones do not.
    refused(&[
        (1, Write(1)),
        (2, Read),
        (2, Got(1)),
        (3, Read),
        (3, Got(0)),
    ]);
    accepted(&[
        (1, Write(1)),
        (2, Read),
        (2, Got(0)),
        (3, Read),
        (3, Got(1)),
        (1, Written),
    ]);
}

#[test]
fn a_lost_update_is_refused() {
    // Both saw the same before they wrote.
    refused(&[(1, Swap(0, 1)), (2, Swap(0, 2)), (1, Written), (2, Written)]);
    // Acknowledged, and gone after a failover.
    refused(&[(1, Swap(0, 1)), (1, Written), (2, Swap(0, 2)), (2, Written)]);
    accepted(&[(1, Swap(0, 1)), (2, Swap(0, 2)), (1, Written), (2, Differs)]);
}

#[test]
fn split_brain_is_not_linearizable() {
    // Each side reads its own write repeatedly.
    refused(&[
        (1, Write(1)),
        (2, Write(2)),
        (1, Written),
        (2, Written),
        (1, Read),
        (1, Got(1)),
        (2, Read),
        (2, Got(2)),
    ]);
}

#[test]
fn readers_agree_on_the_order_of_writes() {
    let seen = |third: u64, fourth: u64| {
        [
            (1, Write(1)),
            (2, Write(2)),
            (3, Read),
            (3, Got(1)),
            (4, Read),
            (4, Got(third)),
            (3, Read),
            (3, Got(2)),
            (4, Read),
            (4, Got(fourth)),
        ]
    };
    accepted(&seen(1, 2));
    refused(&seen(1, 1));
    refused(&seen(2, 1));
}

#[test]
fn an_effect_that_comes_twice_is_refused() {
    let twice = [
        (1, Write(1)),
        (1, Written),
        (1, Write(2)),
        (1, Written),
        (2, Read),
        (2, Got(2)),
        (2, Read),
        (2, Got(1)),
    ];
    refused(&twice);
    // A second, unanswered call with the same request explains it.
    let mut retried = vec![(3, Write(1)), (3, Lost)];
    retried.extend(twice);
    accepted(&retried);
}

#[test]
fn unknown_call_takes_effect_late_or_never() {
    let lost = [(1, Swap(0, 1)), (1, Lost)];
    let then = |more: &[(u64, Do)]| [&lost[..], more].concat();
    let reads = |values: &[u64]| {
        let read = |value: &u64| [(2, Read), (2, Got(*value))];
        values.iter().flat_map(read).collect::<Vec<_>>()
    };
    accepted(&then(&reads(&[0, 0, 0])));
    accepted(&then(&reads(&[1, 1])));
    accepted(&then(&reads(&[0, 0, 1])));
    refused(&then(&reads(&[0, 1, 0])));
    // The process continues while its lost call may still take effect.
    accepted(&then(&[
        (1, Write(5)),
        (1, Written),
        (1, Write(0)),
        (1, Written),
        (2, Read),
        (2, Got(1)),
    ]));
    // Not before it was requested.
    let mut early = reads(&[1]);
    refused(&early);
    early.extend(lost);
    assert!(matches!(verdict(&early), Verdict::Violation(_)));
}

#[test]
fn equal_unknown_calls_take_effect_once_each() {
    let back_and_forth = [
        (1, Write(7)),
        (1, Lost),
        (2, Write(7)),
        (2, Lost),
        (3, Read),
        (3, Got(7)),
        (3, Write(0)),
        (3, Written),
        (3, Read),
        (3, Got(7)),
        (3, Write(0)),
        (3, Written),
    ];
    accepted(&back_and_forth);
    let third = [&back_and_forth[..], &[(3, Read), (3, Got(7))]].concat();
    refused(&third);
}

#[test]
fn call_without_effect_explains_nothing() {
    let mut history = history_of(&[(1, Write(1))]);
    history.without_effect(1).unwrap();
    tell(&mut history, 0, 2, Read, 5);
    tell(&mut history, 0, 2, Got(1), 6);
    assert!(matches!(
        check(&Registers::default(), &history),
        Verdict::Violation(_)
    ));
}

#[test]
fn parts_are_judged_separately() {
    let mut history = RegisterHistory::new();
    for millis in 0..200 {
        let (register, process) = (millis % 5, millis % 5);
        let value = if register == 3 && millis >= 100 { 9 } else { 0 };
        tell(&mut history, register, process, Read, 2 * millis);
        tell(&mut history, register, process, Got(value), 2 * millis + 1);
    }
    let Verdict::Violation(violation) = check(&Registers::default(), &history) else {
        panic!("accepted");
    };
    assert_eq!(violation.part, "3");
    assert_eq!(violation.at, Duration::from_millis(2 * 103 + 1));
    let blocked: Vec<usize> = violation.blocked.iter().map(|call| call.call).collect();
    assert_eq!(blocked, [103]);
    assert_eq!(violation.ordered.len(), 20);
    let text = violation.to_string();
    assert!(
        text.contains("(10 calls before)")
            && text.contains("process 3: Read { register: 3 } -> Value(9), from 206ms to 207ms"),
        "{text}"
    );
}

/// Concurrent writes, and then a read of a value that was never written.
fn hopeless(writes: u64) -> RegisterHistory {
    let mut history = RegisterHistory::new();
    for process in 1..=writes {
        tell(&mut history, 0, process, Write(process), process);
    }
    for process in 1..=writes {
        tell(&mut history, 0, process, Written, writes + process);
    }
    tell(&mut history, 0, 1, Read, 3 * writes);
    tell(&mut history, 0, 1, Got(99), 3 * writes + 1);
    history
}

#[test]
fn searched_states_are_not_repeated() {
    // Twelve writes have 479,001,600 orders; but the set of taken ones and the last one give only
    // 12 * 2^11 states with at most 11 continuations.
    let verdict = check_within(&Registers::default(), &hopeless(12), (12 << 11) * 11);
    assert!(matches!(verdict, Verdict::Violation(_)), "{verdict:?}");
}

#[test]
fn search_stops_at_its_bound() {
    let verdict = check_within(&Registers::default(), &hopeless(60), 10_000);
    assert_eq!(verdict, Verdict::GaveUp { states: 10_000 });
    // A violation in another part is reported all the same.
    let mut history = hopeless(60);
    tell(&mut history, 7, 1, Read, 999);
    tell(&mut history, 7, 1, Got(1), 999);
    let verdict = check_within(&Registers::default(), &history, 10_000);
    assert_eq!(verdict, Verdict::GaveUp { states: 10_000 });
    let verdict = check_within(&Registers::default(), &history, 0);
    assert_eq!(verdict, Verdict::GaveUp { states: 0 });
}

/// Numbers issued one after the other.
#[derive(Default)]
struct Tickets {
    /// How often a state was kept beside its successor.
    steps: Cell<usize>,
}

impl Model for Tickets {
    type Operation = ();
    type Answer = u64;
    type State = u64;
    type Part = ();

    fn part(&self, (): &()) {}

    fn initial(&self, (): &()) -> u64 {
        0
    }

    fn step(&self, handed_out: &u64, (): &(), answer: Option<&u64>) -> Option<u64> {
        self.steps.set(self.steps.get() + 1);
        let next = handed_out + 1;
        answer.is_none_or(|answer| *answer == next).then_some(next)
    }

    fn advance(&self, handed_out: u64, (): &(), answer: &u64) -> Option<u64> {
        (*answer == handed_out + 1).then_some(*answer)
    }

    fn place(&self, answer: &u64) -> Option<u64> {
        Some(*answer)
    }

    fn next_place(&self, handed_out: &u64) -> Option<u64> {
        Some(handed_out + 1)
    }
}

#[test]
fn positions_save_cloning_states() {
    let mut history = History::new();
    for process in 0..100 {
        history.invoke(process, (), Duration::ZERO).unwrap();
    }
    for process in 0..100 {
        let ticket = 37 * process % 100 + 1;
        history.returned(process, ticket, Duration::ZERO).unwrap();
    }
    let tickets = Tickets::default();
    assert_eq!(check(&tickets, &history), Verdict::Linearizable);
    assert_eq!(tickets.steps.get(), 0);
    // Two have the last one, which had been answered when the second was requested.
    history.invoke(0, (), Duration::ZERO).unwrap();
    history.returned(0, 100, Duration::ZERO).unwrap();
    let Verdict::Violation(violation) = check(&tickets, &history) else {
        panic!("accepted");
    };
    assert_eq!((violation.reports, violation.shortest), (202, true));
}
