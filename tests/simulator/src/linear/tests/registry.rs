//! The registry under test: a real one with random overlapping calls of several clients, and the
//! same with a planted bug.

use std::sync::Arc;
use std::time::Duration;

use master::registry::{Applied, RegistryError, RegistryOperation, RegistryState};
use protocol::FrameworkId;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::requests::{admit, any_request, framework};
use super::*;

pub type RegistryHistory = History<RegistryRequest, RegistryAnswer>;

/// A single error of the copy under test.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Planted {
    /// An acknowledged operation is lost, with its version.
    Dropped,
    /// An acknowledged operation is lost, but its version counts.
    Emptied,
    /// One call takes effect twice.
    Twice,
    /// A read returns the content before an operation that was acknowledged when it began.
    Old,
}

pub struct Plan {
    pub seed: u64,
    pub calls: usize,
    pub clients: usize,
    /// Lost calls per hundred, half of them after they took effect.
    pub lost: u32,
    /// The index of the call, and the error.
    pub bug: Option<(usize, Planted)>,
}

#[derive(Clone)]
enum Doing {
    Nothing,
    Asked(RegistryRequest, usize, u64),
    Answered(RegistryAnswer),
}

/// Clients of one registry, each at its own pace.
pub struct Service {
    pub state: RegistryState,
    pub history: RegistryHistory,
    before: Vec<RegistryState>,
    acknowledged: u64,
    events: u64,
}

impl Service {
    fn now(&mut self) -> Duration {
        self.events += 1;
        Duration::from_millis(self.events)
    }

    fn answer(&mut self, request: &RegistryRequest) -> RegistryAnswer {
        match request {
            RegistryRequest::Read => RegistryAnswer::Content(Arc::new(self.state.clone())),
            RegistryRequest::Apply(operation) => {
                self.before.push(self.state.clone());
                match self.state.change(operation) {
                    Ok(applied) => RegistryAnswer::Applied(applied),
                    Err(RegistryError::Conflict { found }) => RegistryAnswer::Conflict(found),
                    Err(_) => RegistryAnswer::Refused,
                }
            }
        }
    }

    fn wrongly(
        &mut self,
        planted: Planted,
        request: &RegistryRequest,
        acknowledged: u64,
    ) -> RegistryAnswer {
        let version = self.state.version + 1;
        match (planted, request) {
            (Planted::Dropped, _) => RegistryAnswer::Applied(Applied { version }),
            (Planted::Emptied, _) => {
                self.state.version = version;
                RegistryAnswer::Applied(Applied { version })
            }
            (Planted::Twice, _) => {
                self.answer(request);
                self.answer(request)
            }
            (Planted::Old, _) => {
                let is_old = |state: &&RegistryState| state.version < acknowledged;
                let old = self.before.iter().rev().find(is_old).unwrap();
                RegistryAnswer::Content(Arc::new(old.clone()))
            }
        }
    }

    /// A single call at the end.
    pub fn alone(&mut self, request: RegistryRequest) {
        let at = self.now();
        self.history.invoke(999, request.clone(), at).unwrap();
        let answer = self.answer(&request);
        let at = self.now();
        self.history.returned(999, answer, at).unwrap();
    }
}

/// Executes a plan. Its last calls are single: an operation and a read.
pub fn run(plan: &Plan) -> Service {
    let mut rng = SmallRng::seed_from_u64(plan.seed);
    let mut service = Service {
        state: RegistryState::default(),
        history: History::new(),
        before: Vec::new(),
        acknowledged: 0,
        events: 0,
    };
    let mut clients = vec![Doing::Nothing; plan.clients];
    let mut begun = 0;
    while begun < plan.calls || clients.iter().any(|doing| !matches!(doing, Doing::Nothing)) {
        let process = rng.random_range(0..plan.clients);
        let doing = std::mem::replace(&mut clients[process], Doing::Nothing);
        let process_id = process as u64;
        clients[process] = match doing {
            Doing::Nothing if begun == plan.calls => Doing::Nothing,
            Doing::Nothing => {
                let request = match plan.bug {
                    Some((at, Planted::Old)) if at == begun => RegistryRequest::Read,
                    Some((at, _)) if at == begun => admit("planted", 1),
                    _ => any_request(&mut rng, &service.state),
                };
                let at = service.now();
                service
                    .history
                    .invoke(process_id, request.clone(), at)
                    .unwrap();
                begun += 1;
                Doing::Asked(request, begun - 1, service.acknowledged)
            }
            Doing::Asked(request, number, acknowledged) => {
                let fate = rng.random_range(0..200);
                match plan.bug {
                    Some((at, planted)) if at == number => {
                        Doing::Answered(service.wrongly(planted, &request, acknowledged))
                    }
                    _ if fate < plan.lost => {
                        service.history.unknown(process_id).unwrap();
                        Doing::Nothing
                    }
                    _ => {
                        let answer = service.answer(&request);
                        if fate < 2 * plan.lost {
                            service.history.unknown(process_id).unwrap();
                            Doing::Nothing
                        } else {
                            Doing::Answered(answer)
                        }
                    }
                }
            }
            Doing::Answered(answer) => {
                if let RegistryAnswer::Applied(Applied { version }) = &answer {
                    service.acknowledged = service.acknowledged.max(*version);
                }
                let at = service.now();
                service.history.returned(process_id, answer, at).unwrap();
                Doing::Nothing
            }
        };
    }
    service.alone(admit("last", 1));
    service.alone(RegistryRequest::Read);
    service
}

/// The same history with other answers.
pub fn with_answers(
    history: &RegistryHistory,
    answer: impl Fn(usize, &RegistryAnswer) -> RegistryAnswer,
) -> RegistryHistory {
    enum Report<'a> {
        Begun(&'a RegistryRequest),
        Ended(RegistryAnswer),
    }
    let mut reports = Vec::new();
    for (number, call) in history.calls().enumerate() {
        let lost = call.answer().is_none();
        let begun = Report::Begun(&call.operation);
        reports.push((call.report, call.process, begun, lost));
        if let Some((end, told)) = call.answered().zip(call.answer()) {
            let ended = Report::Ended(answer(number, told));
            reports.push((end, call.process, ended, false));
        }
    }
    reports.sort_by_key(|(report, ..)| *report);
    let mut changed = RegistryHistory::new();
    for (at, process, report, lost) in reports {
        let at = Duration::from_millis(at as u64);
        match report {
            Report::Begun(request) => changed.invoke(process, request.clone(), at).unwrap(),
            Report::Ended(answer) => changed.returned(process, answer, at).unwrap(),
        }
        if lost {
            changed.unknown(process).unwrap();
        }
    }
    changed
}

#[track_caller]
pub fn refused(history: &RegistryHistory) -> Violation {
    match check(&RegistryModel::default(), history) {
        Verdict::Violation(violation) => violation,
        verdict => panic!("{verdict:?}"),
    }
}

pub fn plan(seed: u64, lost: u32, bug: Option<(usize, Planted)>) -> Plan {
    Plan {
        seed,
        calls: 200,
        clients: 8,
        lost,
        bug,
    }
}

#[test]
fn overlapping_clients_of_a_real_registry_are_accepted() {
    for (seed, lost) in [(1, 0), (2, 5), (3, 20), (4, 40)] {
        let service = run(&plan(seed, lost, None));
        let verdict = check(&RegistryModel::default(), &service.history);
        assert_eq!(verdict, Verdict::Linearizable, "seed {seed}");
    }
}

#[test]
fn every_planted_bug_is_found() {
    for (planted, lost) in [
        (Planted::Dropped, 20),
        (Planted::Emptied, 20),
        (Planted::Twice, 0),
        (Planted::Old, 20),
    ] {
        for seed in 0..3 {
            let service = run(&plan(seed, lost, Some((100, planted))));
            let violation = refused(&service.history);
            assert!(violation.shortest, "{planted:?}, seed {seed}: {violation}");
        }
    }
}

#[test]
fn lost_operation_is_reported_with_its_read() {
    let mut service = run(&Plan {
        calls: 0,
        ..plan(1, 0, None)
    });
    service.alone(admit("a", 1));
    service.state.agents.clear();
    service.alone(admit("b", 1));
    service.alone(RegistryRequest::Read);
    service.alone(admit("c", 1));
    let violation = refused(&service.history);
    let text = violation.to_string();
    assert_eq!(violation.blocked.len(), 1, "{text}");
    let read = "read -> version 3: 1 agents, 0 unreachable, 0 frameworks, 0 removed";
    assert!(violation.blocked[0].text.contains(read), "{text}");
    assert!(text.contains("admit agent b -> version 3"), "{text}");
}

#[test]
fn swapped_operations_are_found() {
    let service = run(&plan(1, 10, None));
    let calls: Vec<_> = service.history.calls().collect();
    let applied =
        |number: &usize| matches!(calls[*number].answer(), Some(RegistryAnswer::Applied(_)));
    let first = (0..calls.len()).find(applied).unwrap();
    let end = calls[first].answered().unwrap();
    let after = |number: &usize| calls[*number].report > end && applied(number);
    let second = (0..calls.len()).find(after).unwrap();
    let swapped = with_answers(&service.history, |number, answer| {
        let other = match number {
            number if number == first => second,
            number if number == second => first,
            _ => return answer.clone(),
        };
        calls[other].answer().unwrap().clone()
    });
    refused(&swapped);
    // Unchanged answers are in order.
    let same = with_answers(&service.history, |_, answer| answer.clone());
    assert_eq!(
        check(&RegistryModel::default(), &same),
        Verdict::Linearizable
    );
}

#[test]
fn refusal_must_be_justified() {
    let id = FrameworkId::new("f").unwrap();
    let (info, deadline) = (framework(&id), None);
    let again = RegistryRequest::from(RegistryOperation::AdmitFramework { info, deadline });
    let remove = RegistryRequest::from(RegistryOperation::RemoveFramework { framework_id: id });
    let mut service = run(&Plan {
        calls: 0,
        ..plan(1, 0, None)
    });
    service.alone(remove);
    service.alone(again.clone());
    let last = service.history.calls().last().unwrap();
    assert_eq!(last.answer(), Some(&RegistryAnswer::Refused));
    let verdict = check(&RegistryModel::default(), &service.history);
    assert_eq!(verdict, Verdict::Linearizable);
    let mut undeserved = RegistryHistory::new();
    undeserved.invoke(1, again, Duration::ZERO).unwrap();
    let answer = RegistryAnswer::Refused;
    undeserved.returned(1, answer, Duration::ZERO).unwrap();
    refused(&undeserved);
}

#[test]
fn compare_and_set_follows_versions() {
    let framework_id = FrameworkId::new("f").unwrap();
    let change = |expected| {
        RegistryRequest::from(RegistryOperation::ChangeFrameworkState {
            framework_id: framework_id.clone(),
            key: "leader".to_owned(),
            expected: Some(expected),
            value: Some(b"me".to_vec()),
        })
    };
    let judged = |asked: u64, answer: RegistryAnswer| {
        let mut history = RegistryHistory::new();
        let admit = RegistryOperation::AdmitFramework {
            info: framework(&framework_id),
            deadline: None,
        };
        let applied = |version| RegistryAnswer::Applied(Applied { version });
        for (request, answer) in [
            (admit.into(), applied(1)),
            (change(0), applied(2)),
            (change(asked), answer),
        ] {
            history.invoke(1, request, Duration::ZERO).unwrap();
            history.returned(1, answer, Duration::ZERO).unwrap();
        }
        check(&RegistryModel::default(), &history) == Verdict::Linearizable
    };
    assert!(judged(0, RegistryAnswer::Conflict(2)));
    assert!(judged(2, RegistryAnswer::Applied(Applied { version: 3 })));
    // Of two with the same expectation only one succeeds, and the refused one gets the true
    // version.
    assert!(!judged(0, RegistryAnswer::Applied(Applied { version: 3 })));
    assert!(!judged(0, RegistryAnswer::Conflict(1)));
    assert!(!judged(0, RegistryAnswer::Refused));
    assert!(!judged(2, RegistryAnswer::Conflict(2)));
}

#[test]
fn versions_keep_the_search_linear() {
    for (lost, states_max) in [(0, 1_010), (5, 1_200), (20, 20_000)] {
        let service = run(&Plan {
            calls: 1000,
            ..plan(7, lost, None)
        });
        let verdict = check_within(&RegistryModel::default(), &service.history, states_max);
        assert_eq!(verdict, Verdict::Linearizable, "{lost}");
    }
}
