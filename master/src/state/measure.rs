//! The decisions about synthetic agents that register, for tests of several modules.
//!
//! Pure: no mailbox, no registry and no wire; effects are counted and dropped.

use protocol::message::registration::Reregistered;
use protocol::{FrameworkId, MasterId, MasterInfo, Reason, Source, TaskId, TaskState, TaskStatus};
use runtime::Timestamp;
use testkit::agents::SyntheticAgents;

use crate::agents::comparison::Arrival;
use crate::config::Config;
use crate::registry::{FrameworkEntry, RegistryState};
use crate::state::MasterState;
use crate::state::effects::Effects;

/// The state of the next master, which has read a registry with these agents and has a mirror of
/// this previous state.
fn state_after(agents: &SyntheticAgents, last: &MasterState) -> MasterState {
    let mut stored = RegistryState::default();
    for report in &agents.reports {
        let info = report.agent.clone();
        stored.agents.extend(info.id.clone().map(|id| (id, info)));
        for info in &report.held.frameworks {
            let entry = FrameworkEntry {
                info: info.clone(),
                deadline: None,
            };
            stored
                .frameworks
                .extend(info.id.clone().map(|id| (id, entry)));
        }
    }
    let mut state = empty_state();
    state.recover(stored, Timestamp::default(), &mut Effects::new());
    state.expect(last);
    state
}

/// The state of a master that knows no agents.
pub fn empty_state() -> MasterState {
    let info = MasterInfo {
        id: MasterId::new("m").unwrap(),
        hostname: "master".to_owned(),
        port: 5050,
        version: "1".to_owned(),
        term: 0,
        address: None,
        domain: None,
    };
    MasterState::new(info, &Config::default(), Timestamp::default())
}

/// The results for a set of agents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Decisions {
    /// Agents registered.
    pub registered: usize,
    /// Agents asked for more.
    pub asked: usize,
    /// Agents refused.
    pub refused: usize,
    /// Effects: messages, links and timers.
    pub effects: usize,
}

/// Runs the decisions for each registering agent, as the master does between its mailbox and its
/// registry.
pub fn decide(state: &mut MasterState, arrivals: impl IntoIterator<Item = Arrival>) -> Decisions {
    let (mut decided, mut out) = (Decisions::default(), Effects::new());
    let (patience, now) = (std::time::Duration::from_secs(75), Timestamp::default());
    for arrival in arrivals.into_iter().map(Box::new) {
        match state.prepare_agent(&arrival) {
            Err(_) => decided.refused += 1,
            Ok(prepared) => match state.compare(&prepared.agent_id, &arrival, &mut out) {
                Err(Reregistered::Registered(_)) => {}
                Err(Reregistered::Differs { .. } | Reregistered::Unknown) => decided.asked += 1,
                Ok(agreed) => {
                    let id = prepared.agent_id;
                    state.admit_agent(arrival, id.clone(), agreed, patience, now, &mut out);
                    decided.registered += usize::from(state.earlier_lives(&id).is_empty());
                }
            },
        }
        decided.effects += out.len();
        out.clear();
    }
    decided
}

/// Reports all tasks as running, and ends `most` of them, equally many per framework, with
/// acknowledgement. Returns how many have ended.
pub fn end_some(state: &mut MasterState, most: usize) -> usize {
    let each = most / state.tasks.frameworks().count().max(1);
    let of = state.tasks.frameworks();
    let tasks: Vec<(FrameworkId, TaskId, bool)> = of
        .flat_map(|(_, of)| {
            let numbered = of.active().enumerate();
            numbered.map(|(n, task)| (task.framework_id.clone(), task.id.clone(), n < each))
        })
        .collect();
    for (framework, task, ends) in &tasks {
        let mut observe = |task_state| {
            let status = TaskStatus::new(
                task.clone(),
                task_state,
                Source::Executor,
                Timestamp::default(),
            );
            let status =
                status.with_reason(Reason::CommandExecutorFailed, "a word of its executor");
            state
                .tasks
                .update(framework, task, |task| task.observe(&status, task_state));
        };
        observe(TaskState::Running);
        if *ends {
            observe(TaskState::Finished);
            state.tasks.complete(framework, task);
        }
    }
    tasks.iter().filter(|(.., ends)| *ends).count()
}

#[test]
fn synthetic_agents_register_by_report_and_by_summary() {
    let synthetic = SyntheticAgents::new(20, 5).unwrap();
    let mut state = empty_state();
    let summaries = || synthetic.summaries.iter().cloned().map(Arrival::from);
    let reports = synthetic.reports.iter().cloned().map(Arrival::from);
    assert_eq!(decide(&mut state, summaries()).asked, 20);
    assert_eq!(decide(&mut state, reports).registered, 20);
    assert_eq!(decide(&mut state, summaries()).registered, 20);
    let mut next = state_after(&synthetic, &state);
    assert_eq!(decide(&mut next, summaries()).registered, 20);
    assert_eq!(
        next.tasks.frameworks().count(),
        testkit::agents::FRAMEWORKS as usize
    );
    let of = |number| {
        state
            .tasks
            .of_framework(&testkit::agents::owner_of(&state.master.id, number))
    };
    let tasks = (0..testkit::agents::FRAMEWORKS)
        .filter_map(of)
        .map(|of| of.active().count());
    assert_eq!(tasks.sum::<usize>(), 100);
}
