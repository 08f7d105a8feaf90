//! A checker counts only if a planted bug makes it fire: for each, a bug of the software in an otherwise real cluster, and the same
//! scenario without it, which is clean.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test may end by a panic"
)]

mod group;
mod operators;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use protocol::message::executor::UpdateStored;
use protocol::message::operation::{ApplyOperation, OperationUpdated};
use protocol::message::registration::{RegisterAgent, ReregisterAgent};
use protocol::message::scheduler::{
    AcceptOffers, DeclineOffers, OfferRescinded, OffersMade, OperationChanged, StatusChanged,
};
use protocol::message::task::{RunTasks, TaskUpdated};
use protocol::{Filters, OfferId, Operation, OperationState, Reason, TaskId, TaskState};
use resources::{Resources, Revocable};
use runtime::rehearsal::let_fall;
use simulator::checkers::{
    Allocations, Corrections, Endings, Entitlement, Estates, Executors, Falls, Launches, Offers,
    Operations, Recovery, States, Subscriptions, Updates, all,
};
use simulator::{
    Bug, Checker, Fault, Forged, Meddling, Profile, Run, Scenario, Spoken, Wiring, run,
};

fn calm() -> Scenario {
    Scenario {
        seed: 5,
        masters: 1,
        agents: 3,
        frameworks: 5,
        duration: Duration::from_secs(120),
        profile: Profile::None,
        wiring: Wiring::Memory,
        faults: None,
    }
}

/// Without faults and with one framework, long enough for it to keep some resources.
fn keeping() -> Scenario {
    Scenario {
        frameworks: 1,
        duration: Duration::from_secs(250),
        ..calm()
    }
}

/// With faults, after which the whole recovery is given: three executors die while their agent lives, the machine of the agent that lends is
/// busy for a while, and an agent falls alone.
fn with_faults() -> Scenario {
    let faults = [
        "30secs+80secs busy agent-3",
        "40secs+9secs kill_executor agent-1",
        "60secs+9secs kill_executor agent-1",
        "70secs+3secs fall agent-2",
        "80secs+9secs kill_executor agent-1",
    ];
    Scenario {
        frameworks: 3,
        faults: Some(faults.map(|fault| fault.parse().unwrap()).to_vec()),
        ..calm()
    }
}

/// How much each checker judges where there is no bug; none of them fires. Several tests share a scenario, which is run once for all.
fn judgements_without_a_bug(scenario: &Scenario) -> BTreeMap<&'static str, u64> {
    type Clean = Arc<OnceLock<BTreeMap<&'static str, u64>>>;
    static CLEAN: Mutex<BTreeMap<String, Clean>> = Mutex::new(BTreeMap::new());
    let clean: Clean = {
        let mut all = CLEAN.lock().unwrap_or_else(PoisonError::into_inner);
        all.entry(format!("{scenario:?}")).or_default().clone()
    };
    let judgements = clean.get_or_init(|| {
        let clean = run(scenario, all(), None);
        assert_eq!(clean.violation, None, "without a bug");
        clean.tally.judgements
    });
    judgements.clone()
}

/// With the bug this checker fires with these words; without it no checker does.
fn check(
    scenario: &Scenario,
    checker: impl Checker + 'static,
    words: &str,
    bug: impl FnMut(&Spoken<'_>) -> Meddling + Send + 'static,
) {
    let name = checker.name();
    let judged = judgements_without_a_bug(scenario);
    let judged = judged.get(name).copied().unwrap_or(0);
    assert!(judged > 0, "{name} has judged nothing");
    let broken = run(scenario, vec![Box::new(checker)], Some(Bug::new(name, bug)));
    let recent = broken.recent.join("\n");
    let violation = broken.violation;
    let violation = violation.unwrap_or_else(|| panic!("the bug is not found:\n{recent}"));
    assert!(violation.what.contains(words), "{violation}");
}

/// An agent says that it has not done what it has done, as its next life shows.
#[test]
fn an_agent_that_has_what_it_should_not_is_found() {
    let fault: Fault = "4mins+5secs restart agent-2".parse().unwrap();
    let scenario = Scenario {
        faults: Some(vec![fault]),
        ..keeping()
    };
    check(&scenario, Estates::default(), "it must have", |spoken| {
        let Some(updated) = spoken.is::<OperationUpdated>() else {
            return Meddling::Pass;
        };
        let mut updated = updated.clone();
        updated.update.status.state = OperationState::Failed;
        Meddling::Instead(Forged::new(updated))
    });
}

/// Agents never hear of operations that the registry has.
#[test]
fn an_operation_that_was_accepted_and_forgotten_about_is_found() {
    let words = "neither done nor given up";
    check(
        &keeping(),
        Operations::default(),
        words,
        |spoken| match spoken.is::<ApplyOperation>() {
            Some(_) => Meddling::Drop,
            None => Meddling::Pass,
        },
    );
}

/// A framework hears of what is done that it has failed as well.
#[test]
fn an_operation_that_ends_in_two_ways_is_found() {
    let words = "was OPERATION_FINISHED and then OPERATION_DROPPED";
    check(&keeping(), Operations::default(), words, |spoken| {
        let Some(changed) = spoken.is::<OperationChanged>() else {
            return Meddling::Pass;
        };
        let mut again = changed.clone();
        again.status.state = OperationState::Dropped;
        match changed.status.state == OperationState::Finished {
            true => Meddling::Also(Forged::new(again)),
            false => Meddling::Pass,
        }
    });
}

/// The first leader's network loses what it says to agents about operations, and then it falls; and whatever is said of them is said twice.
#[test]
fn operations_that_the_first_leader_did_not_get_out_the_next_one_does_once() {
    let scenario = Scenario {
        masters: 3,
        duration: Duration::from_secs(420),
        // Late enough for operations before it.
        faults: Some(vec!["300secs+20secs crash leader".parse().unwrap()]),
        ..calm()
    };
    let lost = Arc::new(Mutex::new((None, 0, 0)));
    let counted = lost.clone();
    let bug = Bug::new("lost", move |spoken: &Spoken<'_>| {
        if spoken.is::<ApplyOperation>().is_none() {
            return Meddling::Pass;
        }
        let mut seen = counted.lock().unwrap();
        let first = seen.0.get_or_insert_with(|| spoken.from.to_owned());
        match *first == spoken.from && seen.2 == 0 {
            true => {
                seen.1 += 1;
                Meddling::Drop
            }
            false => {
                seen.2 += 1;
                Meddling::Twice
            }
        }
    });
    let run = run(&scenario, all(), Some(bug));
    assert_eq!(run.violation, None, "{}", run.recent.join("\n"));
    let (_, lost, sent) = lost.lock().unwrap().clone();
    assert!(lost > 0 && sent > 0, "{lost} lost, {sent} sent");
    assert!(run.tally.judgements["operations"] > 0);
}

/// What is offered is offered a second time under another id.
#[test]
fn an_over_commitment_is_found() {
    check(&calm(), Allocations::default(), "beyond", |spoken| {
        let Some(made) = spoken.is::<OffersMade>() else {
            return Meddling::Pass;
        };
        let mut again = made.clone();
        for offer in &mut again.offers {
            offer.id = OfferId::new(format!("{}-again", offer.id)).unwrap();
        }
        Meddling::Also(Forged::new(again))
    });
}

/// The master says of tasks that they are lost, and keeps what they had as long as they live.
#[test]
fn what_a_lost_task_had_and_nobody_gets_back_is_found() {
    let words = "neither held nor offered";
    let late = Scenario {
        seed: 8, // With all of its recovery: it is late when masters know all again.
        ..with_faults()
    };
    check(&late, Allocations::default(), words, |spoken| {
        let told = spoken
            .is::<StatusChanged>()
            .filter(|told| told.status.state == TaskState::Running)
            .filter(|_| spoken.to == "framework-1");
        let Some(StatusChanged { status }) = told else {
            return Meddling::Pass;
        };
        let mut status = status.clone();
        status.state = TaskState::Lost;
        Meddling::Also(Forged::new(StatusChanged { status }))
    });
}

/// A framework that never asked for them is offered revocable resources.
#[test]
fn an_offer_that_is_not_for_its_framework_is_found() {
    check(&calm(), Entitlement::default(), "has not asked", |spoken| {
        let made = spoken.is::<OffersMade>();
        let Some(made) = made.filter(|_| spoken.to == "framework-1") else {
            return Meddling::Pass;
        };
        let mut lent = made.clone();
        for offer in &mut lent.offers {
            let regular = offer.resources.unreserved();
            offer.resources = regular.to_revocable(Revocable::Throttleable).unwrap();
        }
        Meddling::Instead(Forged::new(lent))
    });
}

/// No update that says that a task runs ever leaves the agent.
#[test]
fn an_update_that_never_arrives_is_found() {
    let words = "has not reached its scheduler";
    check(&with_faults(), Updates::default(), words, |spoken| {
        let updated = spoken.is::<TaskUpdated>();
        match updated.map(|updated| updated.update.status.state) {
            Some(TaskState::Running) => Meddling::Drop,
            _ => Meddling::Pass,
        }
    });
}

/// Agents confirm nothing to their executors.
#[test]
fn an_update_that_no_agent_takes_is_found() {
    let words = "was never confirmed by its agent";
    check(
        &with_faults(),
        Updates::default(),
        words,
        |spoken| match spoken.is::<UpdateStored>() {
            Some(_) => Meddling::Drop,
            None => Meddling::Pass,
        },
    );
}

/// After its end a task is said to run.
#[test]
fn a_task_that_lives_again_is_found() {
    check(&calm(), States::default(), "had ended as", |spoken| {
        let Some(StatusChanged { status }) = spoken.is::<StatusChanged>() else {
            return Meddling::Pass;
        };
        if !status.state.is_terminal() {
            return Meddling::Pass;
        }
        let mut status = status.clone();
        status.state = TaskState::Running;
        Meddling::Also(Forged::new(StatusChanged { status }))
    });
}

/// The master is never told that a task has ended.
#[test]
fn a_task_that_is_said_to_run_and_does_not_is_found() {
    check(&with_faults(), States::default(), "no process", |spoken| {
        let updated = spoken.is::<TaskUpdated>();
        let states =
            updated.map(|updated| (updated.update.status.state, updated.update.latest_state));
        match states {
            Some((state, latest)) if state.is_terminal() || latest.is_terminal() => Meddling::Drop,
            _ => Meddling::Pass,
        }
    });
}

/// An agent takes the death of an executor for a good end.
#[test]
fn a_dead_executor_whose_tasks_are_said_to_have_finished_is_found() {
    check(
        &with_faults(),
        Executors::default(),
        "TASK_FINISHED",
        |spoken| {
            let Some(updated) = spoken.is::<TaskUpdated>() else {
                return Meddling::Pass;
            };
            let mut updated = updated.clone();
            let status = &mut updated.update.status;
            if status.reason != Some(Reason::ExecutorTerminated) {
                return Meddling::Pass;
            }
            status.state = TaskState::Finished;
            Meddling::Instead(Forged::new(updated))
        },
    );
}

/// An agent forgets the tasks of executors that died.
#[test]
fn a_dead_executor_whose_tasks_are_forgotten_is_found() {
    let words = "has told nobody";
    check(&with_faults(), Executors::default(), words, |spoken| {
        let updated = spoken.is::<TaskUpdated>();
        let reason = updated.and_then(|updated| updated.update.status.reason);
        match reason {
            Some(Reason::ExecutorTerminated) => Meddling::Drop,
            _ => Meddling::Pass,
        }
    });
}

/// An agent has regular tasks yield as well.
#[test]
fn a_regular_task_that_has_to_yield_is_found() {
    let words = "nothing revocable";
    check(&with_faults(), Corrections::default(), words, |spoken| {
        let updated = spoken
            .is::<TaskUpdated>()
            .filter(|updated| updated.update.status.state == TaskState::Killed);
        let Some(updated) = updated else {
            return Meddling::Pass;
        };
        let mut updated = updated.clone();
        updated.update.status.state = TaskState::Gone;
        updated.update.status.reason = Some(Reason::ContainerPreempted);
        Meddling::Instead(Forged::new(updated))
    });
}

/// The master tells agents of regular resources where it had lent revocable ones.
#[test]
fn a_revocable_task_that_does_not_yield_is_found() {
    let words = "has not yielded";
    check(&with_faults(), Corrections::default(), words, |spoken| {
        let run = spoken
            .is::<RunTasks>()
            .filter(|run| run.framework.name == "framework-3");
        let Some(run) = run else {
            return Meddling::Pass;
        };
        let mut run = run.clone();
        for task in &mut run.tasks {
            task.resources = Resources::parse("cpus:0.1;mem:32").unwrap();
        }
        Meddling::Instead(Forged::new(run))
    });
}

/// An offer is taken back twice.
#[test]
fn an_offer_that_ends_twice_is_found() {
    check(
        &calm(),
        Offers::default(),
        "had ended already",
        |spoken| match spoken.is::<OfferRescinded>() {
            Some(rescinded) => Meddling::Also(Forged::new(rescinded.clone())),
            None => Meddling::Pass,
        },
    );
}

/// The master has a task run that no accept has asked for.
#[test]
fn a_launch_on_no_offer_is_found() {
    check(&calm(), Offers::default(), "no accept", |spoken| {
        let Some(run) = spoken.is::<RunTasks>() else {
            return Meddling::Pass;
        };
        let mut more = run.clone();
        for task in &mut more.tasks {
            task.task_id = TaskId::new(format!("{}-more", task.task_id)).unwrap();
        }
        Meddling::Also(Forged::new(more))
    });
}

/// One agent's registrations are lost, all of them.
#[test]
fn an_agent_that_never_comes_is_found() {
    check(
        &calm(),
        Recovery::default(),
        "agent-2 is not registered",
        |spoken| match spoken
            .is::<RegisterAgent>()
            .filter(|_| spoken.from == "agent-2")
        {
            Some(_) => Meddling::Drop,
            None => Meddling::Pass,
        },
    );
}

/// One framework's tasks never begin to run, as far as it hears, and those that run now end some time.
#[test]
fn a_framework_whose_work_does_not_go_on_is_found() {
    let scenario = Scenario {
        frameworks: 2,
        ..with_faults()
    };
    let words = "does no work";
    check(&scenario, Recovery::default(), words, |spoken| {
        let told = spoken.is::<StatusChanged>();
        let told = told.filter(|_| spoken.to == "framework-2");
        match told.map(|told| told.status.state) {
            Some(TaskState::Running) => Meddling::Drop,
            _ => Meddling::Pass,
        }
    });
}

/// Tasks are sent to their agent a second time.
#[test]
fn a_second_launch_is_found() {
    check(
        &calm(),
        Launches::default(),
        "again",
        |spoken| match spoken.is::<RunTasks>() {
            Some(run) => Meddling::Also(Forged::new(run.clone())),
            None => Meddling::Pass,
        },
    );
}

/// A scheduler asks for a task in another's name, and the master does as it says.
#[test]
fn a_launch_for_who_does_not_speak_for_the_framework_is_found() {
    let mut theirs: Option<RunTasks> = None;
    let mut asked = false;
    let words = "is launched for framework-2";
    check(&calm(), Subscriptions::default(), words, move |spoken| {
        if let Some(run) = spoken
            .is::<RunTasks>()
            .filter(|run| run.framework.name == "framework-1")
        {
            let mut stolen = run.clone();
            stolen.tasks.truncate(1);
            stolen.tasks[0].task_id = TaskId::new("stolen").unwrap();
            theirs = Some(stolen.clone());
            if asked {
                return Meddling::Also(Forged::new(stolen));
            }
        }
        let answer = spoken
            .is::<DeclineOffers>()
            .filter(|_| spoken.from == "framework-2");
        match (answer, &theirs) {
            (Some(answer), Some(theirs)) if !asked => {
                asked = true;
                Meddling::Also(Forged::new(AcceptOffers {
                    framework_id: theirs.framework.id.clone().unwrap(),
                    offer_ids: answer.offer_ids.clone(),
                    operations: vec![Operation::Launch {
                        tasks: theirs.tasks.clone(),
                    }],
                    filters: Filters::default(),
                }))
            }
            _ => Meddling::Pass,
        }
    });
}

/// An allocator panics, and is made anew as if nothing had been.
#[test]
fn an_actor_that_panics_is_found_though_it_is_made_anew() {
    check(
        &calm(),
        Falls::default(),
        "the actor allocator of master has panicked: overflow",
        |spoken| match spoken.is::<RunTasks>() {
            Some(_) => Meddling::Also(Forged::act(|node| {
                assert!(let_fall(node, "allocator", "overflow"));
            })),
            None => Meddling::Pass,
        },
    );
}

/// A master ends for nothing in the middle of its work, and is started again as if nothing had been.
#[test]
fn a_process_that_ends_by_itself_is_found_though_it_is_started_again() {
    check(
        &calm(),
        Endings::default(),
        "master ends by itself, and no fault leaves it no other way: the master has ended: stopped",
        |spoken| match spoken.is::<RunTasks>() {
            Some(_) => Meddling::Also(Forged::act(|node| {
                node.stop(&node.whereis("master").unwrap());
            })),
            None => Meddling::Pass,
        },
    );
}

/// A bug that shows only once an agent was gone: the shrunk history has that crash alone, in a small cluster, and fails again.
#[test]
fn the_shortest_history_of_a_failure_has_only_the_fault_that_it_needs() {
    // An agent that was admitted before is never admitted again.
    let broken = |scenario: &Scenario| -> Run {
        let mut seen = 0;
        let bug = Bug::new("no way back", move |spoken| {
            let registers = spoken.is::<RegisterAgent>().is_some();
            let returns = spoken.is::<ReregisterAgent>().is_some();
            let comes = (registers || returns) && spoken.from == "agent-2";
            seen += u32::from(comes);
            match comes && seen > 1 {
                true => Meddling::Drop,
                false => Meddling::Pass,
            }
        });
        run(scenario, vec![Box::new(Recovery::default())], Some(bug))
    };
    let faults = [
        "20secs+5secs wall_jump agent-1 100",
        "30secs+10secs weather agent-3 50 50 20ms",
        "40secs+9secs crash agent-2",
        "50secs+5secs restart framework-1",
        "60secs+5secs slow_disk master 5ms",
        "70secs+10secs weather framework-4 50 50 20ms",
        "80secs+5secs wall_jump master -100",
    ];
    let faults: Vec<Fault> = faults.iter().map(|fault| fault.parse().unwrap()).collect();
    let scenario = Scenario {
        faults: Some(faults.clone()),
        ..calm()
    };
    let failed = broken(&scenario);
    assert!(failed.violation.is_some(), "the bug is not found");
    let mut again = broken;
    let shrunk = simulator::shrink::shrink(&scenario, failed, 60, &mut again).unwrap();
    assert_eq!(shrunk.scenario.faults, Some(vec![faults[2].clone()]));
    assert_eq!((shrunk.scenario.agents, shrunk.scenario.frameworks), (2, 1));
    assert!(!shrunk.exhausted);
    assert_eq!(broken(&shrunk.scenario), shrunk.run, "it can be replayed");
}
