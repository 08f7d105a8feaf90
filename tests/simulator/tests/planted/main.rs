//! A checker counts only if a planted bug makes it fire: for each checker a bug in an otherwise
//! real cluster, and the same scenario without it, which is clean.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test may end by a panic"
)]

mod containers;
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
use resources::{Conversion, Resources, Revocable};
use runtime::testing::inject_panic;
use simulator::checkers::{
    AgentResourcesChecker, Allocations, Corrections, Entitlement, Executors, Launches, Lending,
    NoPanics, Offers, Operations, ProcessExits, Recovery, States, Subscriptions, Updates, all,
};
use simulator::{
    Bug, Checker, Fault, Forged, Profile, Run, Scenario, SeenMessage, Tampering, Wiring, run,
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

/// Without faults and with one framework, long enough for it to reserve resources.
fn keeping() -> Scenario {
    Scenario {
        frameworks: 1,
        duration: Duration::from_secs(250),
        ..calm()
    }
}

/// With faults and the whole recovery: three executors die while their agent lives, the lending
/// agent's machine is busy for a while, and an agent crashes alone.
fn with_faults() -> Scenario {
    let faults = [
        "30secs+80secs busy agent-3",
        "40secs+9secs kill_executor agent-1",
        "60secs+9secs kill_executor agent-1",
        "70secs+3secs crash_process agent-2",
        "80secs+9secs kill_executor agent-1",
    ];
    Scenario {
        frameworks: 3,
        faults: Some(faults.map(|fault| fault.parse().unwrap()).to_vec()),
        ..calm()
    }
}

/// The number of judgements of each checker without a bug; none fires. Several tests share a
/// scenario, which runs once.
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

/// With the bug this checker fires with this text; without it none does.
fn check(
    scenario: &Scenario,
    checker: impl Checker + 'static,
    words: &str,
    bug: impl FnMut(&SeenMessage<'_>) -> Tampering + Send + 'static,
) {
    let bug = Bug::new(checker.name(), bug);
    check_bug(scenario, checker, words, bug);
}

/// The same for any bug.
fn check_bug(scenario: &Scenario, checker: impl Checker + 'static, words: &str, bug: Bug) {
    let name = checker.name();
    let judged = judgements_without_a_bug(scenario);
    let judged = judged.get(name).copied().unwrap_or(0);
    assert!(judged > 0, "{name} has judged nothing");
    let broken = run(scenario, vec![Box::new(checker)], Some(bug));
    let recent = broken.recent.join("\n");
    let violation = broken.violation;
    let violation = violation.unwrap_or_else(|| panic!("the bug is not found:\n{recent}"));
    assert!(violation.what.contains(words), "{violation}");
}

/// An agent reports an operation as failed that it has done, as its next life shows.
#[test]
fn unexpected_agent_resources_are_found() {
    let fault: Fault = "4mins+5secs restart agent-2".parse().unwrap();
    let scenario = Scenario {
        faults: Some(vec![fault]),
        ..keeping()
    };
    check(
        &scenario,
        AgentResourcesChecker::default(),
        "it must have",
        |observed| {
            let Some(updated) = observed.is::<OperationUpdated>() else {
                return Tampering::Pass;
            };
            let mut updated = updated.clone();
            updated.update.status.state = OperationState::Failed;
            Tampering::Instead(Forged::new(updated))
        },
    );
}

/// Agents never receive recorded operations.
#[test]
fn forgotten_operation_is_found() {
    let words = "neither done nor given up";
    check(
        &keeping(),
        Operations::default(),
        words,
        |observed| match observed.is::<ApplyOperation>() {
            Some(_) => Tampering::Drop,
            None => Tampering::Pass,
        },
    );
}

/// A framework also receives a failure of a finished operation.
#[test]
fn operation_with_two_results_is_found() {
    let words = "was OPERATION_FINISHED and then OPERATION_DROPPED";
    check(&keeping(), Operations::default(), words, |observed| {
        let Some(changed) = observed.is::<OperationChanged>() else {
            return Tampering::Pass;
        };
        let mut again = changed.clone();
        again.status.state = OperationState::Dropped;
        match changed.status.state == OperationState::Finished {
            true => Tampering::Also(Forged::new(again)),
            false => Tampering::Pass,
        }
    });
}

/// The first leader's operations to agents are lost before it crashes, and all later ones are sent
/// twice.
// Covers S132.
#[test]
fn next_leader_executes_pending_operations_once() {
    let scenario = Scenario {
        masters: 3,
        duration: Duration::from_secs(420),
        // Late enough for operations before it.
        faults: Some(vec!["300secs+20secs crash leader".parse().unwrap()]),
        ..calm()
    };
    let lost = Arc::new(Mutex::new((None, 0, 0)));
    let counted = lost.clone();
    let bug = Bug::new("lost", move |observed: &SeenMessage<'_>| {
        if observed.is::<ApplyOperation>().is_none() {
            return Tampering::Pass;
        }
        let mut seen = counted.lock().unwrap();
        let first = seen.0.get_or_insert_with(|| observed.from.to_owned());
        match *first == observed.from && seen.2 == 0 {
            true => {
                seen.1 += 1;
                Tampering::Drop
            }
            false => {
                seen.2 += 1;
                Tampering::Twice
            }
        }
    });
    let run = run(&scenario, all(), Some(bug));
    assert_eq!(run.violation, None, "{}", run.recent.join("\n"));
    let (_, lost, sent) = lost.lock().unwrap().clone();
    assert!(lost > 0 && sent > 0, "{lost} lost, {sent} sent");
    assert!(run.tally.judgements["operations"] > 0);
}

/// Offered resources are offered again with another id.
#[test]
fn overcommitment_is_found() {
    check(&calm(), Allocations::default(), "beyond", |observed| {
        let Some(made) = observed.is::<OffersMade>() else {
            return Tampering::Pass;
        };
        let mut again = made.clone();
        for offer in &mut again.offers {
            offer.id = OfferId::new(format!("{}-again", offer.id)).unwrap();
        }
        Tampering::Also(Forged::new(again))
    });
}

/// The master reports tasks as lost, and keeps their resources while they live.
#[test]
fn unreturned_resources_are_found() {
    let words = "neither held nor offered";
    let late = Scenario {
        seed: 8, // with the whole recovery: masters know all tasks late
        ..with_faults()
    };
    check(&late, Allocations::default(), words, |observed| {
        let told = observed
            .is::<StatusChanged>()
            .filter(|told| told.status.state == TaskState::Running)
            .filter(|_| observed.to == "framework-1");
        let Some(StatusChanged { status }) = told else {
            return Tampering::Pass;
        };
        let mut status = status.clone();
        status.state = TaskState::Lost;
        Tampering::Also(Forged::new(StatusChanged { status }))
    });
}

/// A framework without the capability is offered revocable resources.
#[test]
fn unentitled_offer_is_found() {
    check(
        &calm(),
        Entitlement::default(),
        "has not asked",
        |observed| {
            let made = observed.is::<OffersMade>();
            let Some(made) = made.filter(|_| observed.to == "framework-1") else {
                return Tampering::Pass;
            };
            let mut lent = made.clone();
            for offer in &mut lent.offers {
                let regular = offer.resources.unreserved();
                offer.resources = regular.to_revocable(Revocable::Throttleable).unwrap();
            }
            Tampering::Instead(Forged::new(lent))
        },
    );
}

/// An agent reports an estimate that is not revocable.
#[test]
fn regular_estimate_is_found() {
    let words = "which is not revocable";
    check(&calm(), Lending::default(), words, |observed| {
        let Some(register) = observed.is::<RegisterAgent>() else {
            return Tampering::Pass;
        };
        let mut register = register.clone();
        register.oversubscribed += &Resources::parse("cpus:1").unwrap();
        Tampering::Instead(Forged::new(register))
    });
}

/// A master has an agent reserve revocable resources.
#[test]
fn reserved_revocable_resources_are_found() {
    let words = "convert revocable";
    check(&keeping(), Lending::default(), words, |observed| {
        let Some(apply) = observed.is::<ApplyOperation>() else {
            return Tampering::Pass;
        };
        let mut apply = apply.clone();
        let lent = Resources::parse("cpus:1").unwrap();
        let resources = lent.to_revocable(Revocable::Throttleable).unwrap();
        apply.conversion = Conversion::Reserve { resources };
        Tampering::Instead(Forged::new(apply))
    });
}

/// Updates of running tasks never leave the agent.
#[test]
fn lost_update_is_found() {
    let words = "was never sent by its agent";
    check(&with_faults(), Updates::default(), words, |observed| {
        let updated = observed.is::<TaskUpdated>();
        match updated.map(|updated| updated.update.status.state) {
            Some(TaskState::Running) => Tampering::Drop,
            _ => Tampering::Pass,
        }
    });
}

/// Agents confirm nothing to their executors.
#[test]
fn unconfirmed_update_is_found() {
    let words = "was never confirmed by its agent";
    // With a framework that has executors of its own.
    let scenario = Scenario {
        frameworks: 5,
        ..with_faults()
    };
    check(
        &scenario,
        Updates::default(),
        words,
        |observed| match observed.is::<UpdateStored>() {
            Some(_) => Tampering::Drop,
            None => Tampering::Pass,
        },
    );
}

/// A task is reported as running after its end.
#[test]
fn resurrected_task_is_found() {
    check(&calm(), States::default(), "had ended as", |observed| {
        let Some(StatusChanged { status }) = observed.is::<StatusChanged>() else {
            return Tampering::Pass;
        };
        if !status.state.is_terminal() {
            return Tampering::Pass;
        }
        let mut status = status.clone();
        status.state = TaskState::Running;
        Tampering::Also(Forged::new(StatusChanged { status }))
    });
}

/// The end of a task never reaches the master.
#[test]
fn running_task_without_process_is_found() {
    check(
        &with_faults(),
        States::default(),
        "no process",
        |observed| {
            let updated = observed.is::<TaskUpdated>();
            let states =
                updated.map(|updated| (updated.update.status.state, updated.update.latest_state));
            match states {
                Some((state, latest)) if state.is_terminal() || latest.is_terminal() => {
                    Tampering::Drop
                }
                _ => Tampering::Pass,
            }
        },
    );
}

/// An agent reports the death of an executor as success.
#[test]
fn dead_executors_finished_task_is_found() {
    check(
        &with_faults(),
        Executors::default(),
        "TASK_FINISHED",
        |observed| {
            let Some(updated) = observed.is::<TaskUpdated>() else {
                return Tampering::Pass;
            };
            let mut updated = updated.clone();
            let status = &mut updated.update.status;
            if status.reason != Some(Reason::ExecutorTerminated) {
                return Tampering::Pass;
            }
            status.state = TaskState::Finished;
            Tampering::Instead(Forged::new(updated))
        },
    );
}

/// An agent forgets the tasks of dead executors.
#[test]
fn dead_executors_forgotten_task_is_found() {
    let words = "has told nobody";
    check(&with_faults(), Executors::default(), words, |observed| {
        let updated = observed.is::<TaskUpdated>();
        let reason = updated.and_then(|updated| updated.update.status.reason);
        match reason {
            Some(Reason::ExecutorTerminated) => Tampering::Drop,
            _ => Tampering::Pass,
        }
    });
}

/// An agent makes regular tasks yield as well.
#[test]
fn yielding_regular_task_is_found() {
    let words = "nothing revocable";
    check(&with_faults(), Corrections::default(), words, |observed| {
        let updated = observed
            .is::<TaskUpdated>()
            .filter(|updated| updated.update.status.state == TaskState::Killed);
        let Some(updated) = updated else {
            return Tampering::Pass;
        };
        let mut updated = updated.clone();
        updated.update.status.state = TaskState::Gone;
        updated.update.status.reason = Some(Reason::ContainerPreempted);
        Tampering::Instead(Forged::new(updated))
    });
}

/// The master sends regular resources to agents in place of lent ones.
#[test]
fn unyielding_revocable_task_is_found() {
    let words = "has not yielded";
    check(&with_faults(), Corrections::default(), words, |observed| {
        let run = observed
            .is::<RunTasks>()
            .filter(|run| run.framework.name == "framework-3");
        let Some(run) = run else {
            return Tampering::Pass;
        };
        let mut run = run.clone();
        for task in &mut run.tasks {
            task.resources = Resources::parse("cpus:0.1;mem:32").unwrap();
        }
        Tampering::Instead(Forged::new(run))
    });
}

/// An offer is rescinded twice.
#[test]
fn offer_with_two_ends_is_found() {
    check(
        &calm(),
        Offers::default(),
        "had ended already",
        |observed| match observed.is::<OfferRescinded>() {
            Some(rescinded) => Tampering::Also(Forged::new(rescinded.clone())),
            None => Tampering::Pass,
        },
    );
}

/// The master launches a task without an accept.
#[test]
fn launch_without_offer_is_found() {
    check(&calm(), Offers::default(), "no accept", |observed| {
        let Some(run) = observed.is::<RunTasks>() else {
            return Tampering::Pass;
        };
        let mut more = run.clone();
        for task in &mut more.tasks {
            task.task_id = TaskId::new(format!("{}-more", task.task_id)).unwrap();
        }
        Tampering::Also(Forged::new(more))
    });
}

/// All registrations of one agent are lost.
#[test]
fn missing_agent_is_found() {
    check(
        &calm(),
        Recovery::default(),
        "agent-2 is not registered",
        |observed| match observed
            .is::<RegisterAgent>()
            .filter(|_| observed.from == "agent-2")
        {
            Some(_) => Tampering::Drop,
            None => Tampering::Pass,
        },
    );
}

/// One framework's tasks never start, as far as it knows, and its running ones end in time.
#[test]
fn idle_framework_is_found() {
    let scenario = Scenario {
        frameworks: 2,
        ..with_faults()
    };
    let words = "does no work";
    check(&scenario, Recovery::default(), words, |observed| {
        let told = observed.is::<StatusChanged>();
        let told = told.filter(|_| observed.to == "framework-2");
        match told.map(|told| told.status.state) {
            Some(TaskState::Running) => Tampering::Drop,
            _ => Tampering::Pass,
        }
    });
}

/// Tasks are sent to their agent twice.
#[test]
fn second_launch_is_found() {
    check(
        &calm(),
        Launches::default(),
        "again",
        |observed| match observed.is::<RunTasks>() {
            Some(run) => Tampering::Also(Forged::new(run.clone())),
            None => Tampering::Pass,
        },
    );
}

/// A scheduler launches a task in another's name, and the master accepts it.
#[test]
fn launch_for_a_replaced_scheduler_is_found() {
    let mut theirs: Option<RunTasks> = None;
    let mut asked = false;
    let words = "is launched for framework-2";
    check(&calm(), Subscriptions::default(), words, move |observed| {
        if let Some(run) = observed
            .is::<RunTasks>()
            .filter(|run| run.framework.name == "framework-1")
        {
            let mut stolen = run.clone();
            stolen.tasks.truncate(1);
            stolen.tasks[0].task_id = TaskId::new("stolen").unwrap();
            theirs = Some(stolen.clone());
            if asked {
                return Tampering::Also(Forged::new(stolen));
            }
        }
        let answer = observed
            .is::<DeclineOffers>()
            .filter(|_| observed.from == "framework-2");
        match (answer, &theirs) {
            (Some(answer), Some(theirs)) if !asked => {
                asked = true;
                Tampering::Also(Forged::new(AcceptOffers {
                    framework_id: theirs.framework.id.clone().unwrap(),
                    offer_ids: answer.offer_ids.clone(),
                    operations: vec![Operation::Launch {
                        tasks: theirs.tasks.clone(),
                    }],
                    filters: Filters::default(),
                }))
            }
            _ => Tampering::Pass,
        }
    });
}

/// An allocator panics, and is restarted.
#[test]
fn restarted_actors_panic_is_found() {
    check(
        &calm(),
        NoPanics::default(),
        "the actor allocator of master has panicked: overflow",
        |observed| match observed.is::<RunTasks>() {
            Some(_) => Tampering::Also(Forged::act(|node| {
                assert!(inject_panic(node, "allocator", "overflow"));
            })),
            None => Tampering::Pass,
        },
    );
}

/// A master exits without cause, and is restarted.
#[test]
fn restarted_process_exit_is_found() {
    check(
        &calm(),
        ProcessExits::default(),
        "master ends by itself, and no fault leaves it no other way: the master has ended: stopped",
        |observed| match observed.is::<RunTasks>() {
            Some(_) => Tampering::Also(Forged::act(|node| {
                node.stop(&node.whereis("office").unwrap());
            })),
            None => Tampering::Pass,
        },
    );
}

/// A bug that needs an agent's crash: the shrunk history has only that crash, in a small cluster,
/// and fails again.
#[test]
fn shrunk_history_has_only_the_needed_fault() {
    // An agent that was admitted before is never admitted again.
    let broken = |scenario: &Scenario| -> Run {
        let mut seen = 0;
        let bug = Bug::new("no way back", move |observed| {
            let registers = observed.is::<RegisterAgent>().is_some();
            let returns = observed.is::<ReregisterAgent>().is_some();
            let comes = (registers || returns) && observed.from == "agent-2";
            seen += u32::from(comes);
            match comes && seen > 1 {
                true => Tampering::Drop,
                false => Tampering::Pass,
            }
        });
        run(scenario, vec![Box::new(Recovery::default())], Some(bug))
    };
    let faults = [
        "20secs+5secs wall_jump agent-1 100",
        "30secs+10secs packet_faults agent-3 50 50 20ms",
        "40secs+9secs crash agent-2",
        "50secs+5secs restart framework-1",
        "60secs+5secs slow_disk master 5ms",
        "70secs+10secs packet_faults framework-4 50 50 20ms",
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
    let shrunk = simulator::scenario::shrink::shrink(&scenario, failed, 60, &mut again).unwrap();
    assert_eq!(shrunk.scenario.faults, Some(vec![faults[2].clone()]));
    assert_eq!((shrunk.scenario.agents, shrunk.scenario.frameworks), (2, 1));
    assert!(!shrunk.exhausted);
    assert_eq!(broken(&shrunk.scenario), shrunk.run, "it can be replayed");
}
