//! Laws of the checker: it agrees with an exhaustive search, hints change no verdict, and a
//! violation is the first one of its history.

use std::time::Duration;

use proptest::prelude::*;

use super::registry::{Plan, Planted, RegistryHistory, refused, run, with_answers};
use super::*;

/// Whether any order of any of the unknown and all other calls explains everything, by exhaustive
/// search.
fn by_trying_all(calls: &[&Call<RegisterOperation, RegisterAnswer>]) -> bool {
    fn orders(calls: &[&Call<RegisterOperation, RegisterAnswer>], order: &mut Vec<usize>) -> bool {
        let missing = |call: &usize| !order.contains(call);
        let whole = (0..calls.len())
            .filter(missing)
            .all(|call| calls[call].answer().is_none());
        if whole && explains(calls, order) {
            return true;
        }
        let left: Vec<usize> = (0..calls.len()).filter(missing).collect();
        left.into_iter().any(|call| {
            order.push(call);
            let found = orders(calls, order);
            order.pop();
            found
        })
    }
    fn explains(calls: &[&Call<RegisterOperation, RegisterAnswer>], order: &[usize]) -> bool {
        let in_time = order.iter().enumerate().all(|(place, later)| {
            let ends_before = |earlier: &usize| {
                calls[*earlier]
                    .answered()
                    .is_some_and(|end| end < calls[*later].report)
            };
            !order[place + 1..].iter().any(ends_before)
        });
        let model = Registers::default();
        let all = order.iter().try_fold(0, |state, call| {
            model.step(&state, &calls[*call].operation, calls[*call].answer())
        });
        in_time && all.is_some()
    }
    orders(calls, &mut Vec::new())
}

/// A few calls of one register with any answers, right or wrong.
fn small() -> impl Strategy<Value = RegisterHistory> {
    let event = (0..3_u64, 0..3_u64, 0..3_u64, 0..9_u32);
    prop::collection::vec(event, 0..12).prop_map(|events| {
        let mut history = RegisterHistory::new();
        let mut under_way = [None; 3];
        for (process, one, other, kind) in events {
            let event = match under_way[process as usize] {
                None => match kind % 3 {
                    0 => Read,
                    1 => Write(one),
                    _ => Swap(one, other),
                },
                Some(_) if kind == 8 => Lost,
                Some(Read) => Got(one),
                Some(Swap(..)) if kind % 2 == 0 => Differs,
                Some(_) => Written,
            };
            tell(&mut history, 0, process, event, 0);
            let begins = matches!(event, Read | Write(_) | Swap(..));
            under_way[process as usize] = begins.then_some(event);
        }
        history
    })
}

/// The registry without its hints.
struct Unhinted(RegistryModel);

impl Model for Unhinted {
    type Operation = RegistryRequest;
    type Answer = RegistryAnswer;
    type State = Content;
    type Part = ();

    fn part(&self, _: &RegistryRequest) {}

    fn initial(&self, (): &()) -> Content {
        self.0.initial(&())
    }

    fn step(
        &self,
        state: &Content,
        request: &RegistryRequest,
        answer: Option<&RegistryAnswer>,
    ) -> Option<Content> {
        self.0.step(state, request, answer)
    }
}

fn planted() -> impl Strategy<Value = Option<Planted>> {
    prop::option::of(prop::sample::select(vec![
        Planted::Dropped,
        Planted::Emptied,
        Planted::Twice,
        Planted::Old,
    ]))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn verdict_equals_exhaustive_search(history in small()) {
        let calls: Vec<_> = history.calls().collect();
        let expected = by_trying_all(&calls);
        let verdict = check(&Registers::default(), &history);
        prop_assert_eq!(verdict == Verdict::Linearizable, expected);
        if let Verdict::Violation(violation) = verdict {
            // The prefix has no order, and the prefix without its last answer has one.
            let prefix = |reports: usize| -> Vec<Call<RegisterOperation, RegisterAnswer>> {
                let begun = history.calls().filter(|call| call.report < reports);
                let cut = |call: &Call<RegisterOperation, RegisterAnswer>| match call.answer_within(reports) {
                    Some(_) => call.clone(),
                    None => Call { outcome: Outcome::Unknown, ..call.clone() },
                };
                begun.map(cut).collect()
            };
            let (whole, shorter) = (prefix(violation.reports), prefix(violation.reports - 1));
            prop_assert!(violation.shortest);
            prop_assert!(!by_trying_all(&whole.iter().collect::<Vec<_>>()));
            prop_assert!(by_trying_all(&shorter.iter().collect::<Vec<_>>()));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn hints_change_no_verdict(seed in any::<u64>(), calls in 2..14_usize, clients in 1..4_usize, lost in 0..50_u32, bug in planted()) {
        // `Old` needs an acknowledged operation before it.
        let bug = bug.filter(|bug| *bug != Planted::Old).map(|bug| (calls / 2, bug));
        let history = run(&Plan { seed, calls, clients, lost, bug }).history;
        let hinted = check(&RegistryModel::default(), &history) == Verdict::Linearizable;
        let unhinted = check(&Unhinted(RegistryModel::default()), &history);
        prop_assert_eq!(unhinted == Verdict::Linearizable, hinted, "{:?}", unhinted);
    }

    #[test]
    fn planted_registry_bug_is_found(seed in any::<u64>(), at in 40..100_usize, clients in 1..9_usize, lost in 0..20_u32, bug in planted()) {
        let Some(bug) = bug else { return Ok(()) };
        // An unknown operation may fill the gap of the second effect.
        let lost = if bug == Planted::Twice { 0 } else { lost };
        let history = run(&Plan { seed, calls: 120, clients, lost, bug: Some((at, bug)) }).history;
        refused(&history);
    }

    #[test]
    fn shifted_version_is_found(seed in any::<u64>(), which in any::<prop::sample::Index>(), up in any::<bool>()) {
        let history = run(&Plan { seed, calls: 60, clients: 4, lost: 0, bug: None }).history;
        let calls: Vec<_> = history.calls().collect();
        let applied = |number: &usize| matches!(calls[*number].answer(), Some(RegistryAnswer::Applied(_)));
        let applied: Vec<usize> = (0..calls.len()).filter(applied).collect();
        let target = applied[which.index(applied.len())];
        let moved: RegistryHistory = with_answers(&history, |number, answer| match answer {
            RegistryAnswer::Applied(applied) if number == target => {
                let mut applied = *applied;
                applied.version = if up { applied.version + 1 } else { applied.version - 1 };
                RegistryAnswer::Applied(applied)
            }
            answer => answer.clone(),
        });
        refused(&moved);
    }
}

proptest! {
    // Each case is expensive, and every simulation with several masters is one more.
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn real_registry_is_accepted(seed in any::<u64>(), calls in 0..150_usize, clients in 1..9_usize, lost in 0..40_u32) {
        let history = run(&Plan { seed, calls, clients, lost, bug: None }).history;
        prop_assert_eq!(check(&RegistryModel::default(), &history), Verdict::Linearizable);
    }
}

#[test]
fn concurrent_call_may_explain_an_answer() {
    // The write began after the read and before its answer: a millisecond decides.
    let mut history = RegisterHistory::new();
    tell(&mut history, 0, 1, Read, 0);
    tell(&mut history, 0, 2, Write(1), 1);
    tell(&mut history, 0, 1, Got(1), 1);
    assert_eq!(history.reports(), 3);
    let call = history.calls().next().map(|call| call.at);
    assert_eq!(call, Some(Duration::ZERO));
    assert_eq!(
        check(&Registers::default(), &history),
        Verdict::Linearizable
    );
}
