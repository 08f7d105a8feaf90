//! The laws of the event stream: whoever hears a snapshot and all that follows knows what the master knows; and nobody costs it much.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::StreamExt;
use http::api::Bounds;
use proptest::prelude::*;
use runtime::rehearsal::{rehearse, stage};
use v1::recordio::Decoder;
use v1::schema::TaskState;
use v1::schema::master::{Event, EventType};
use v1::{Form, Limits};

use super::super::operator::state;
use super::super::shown::Shown;
use super::super::tests;
use super::*;
use crate::mirror::tests::laws::{books, events, happen};

/// What somebody knows who hears a stream.
#[derive(Clone, Debug, Default, PartialEq)]
struct Known {
    agents: BTreeSet<String>,
    /// With whether each is connected, and its name.
    frameworks: BTreeMap<String, (bool, String)>,
    /// By framework and id.
    tasks: BTreeMap<(String, String), TaskState>,
}

fn is_over(state: TaskState) -> bool {
    protocol::TaskState::from(state).is_terminal()
}

impl Known {
    /// All that these books have. Of several tasks with one id the one counts that is still there.
    fn of(books: &Books) -> Self {
        let state = state(Shown::of(books));
        let mut known = Self::default();
        for agent in &state.get_agents.as_ref().unwrap().agents {
            known
                .agents
                .insert(agent.agent_info.id.as_ref().unwrap().value.clone());
        }
        for one in &state.get_frameworks.as_ref().unwrap().frameworks {
            let info = &one.framework_info;
            let id = info.id.as_ref().unwrap().value.clone();
            known
                .frameworks
                .insert(id, (one.connected, info.name.clone()));
        }
        let tasks = state.get_tasks.as_ref().unwrap();
        let over = tasks.completed_tasks.iter();
        for task in over.chain(&tasks.unreachable_tasks).chain(&tasks.tasks) {
            let id = (task.framework_id.value.clone(), task.task_id.value.clone());
            known.tasks.insert(id, task.state);
        }
        known
    }

    /// One more event; what is told twice, or of something that was never told, is a fault.
    fn hear(&mut self, event: &Event) -> Result<(), String> {
        let fault = |words: &str| Err(format!("{words}: {event:?}"));
        match event.r#type.unwrap() {
            EventType::AgentAdded => {
                let agent = &event.agent_added.as_ref().unwrap().agent;
                let id = agent.agent_info.id.as_ref().unwrap().value.clone();
                if !self.agents.insert(id) {
                    return fault("an agent is told twice");
                }
            }
            EventType::AgentRemoved => {
                let id = &event.agent_removed.as_ref().unwrap().agent_id.value;
                if !self.agents.remove(id) {
                    return fault("an agent that nobody was told of");
                }
            }
            EventType::FrameworkAdded => {
                let framework = &event.framework_added.as_ref().unwrap().framework;
                let info = &framework.framework_info;
                let id = info.id.as_ref().unwrap().value.clone();
                let told = self
                    .frameworks
                    .insert(id, (framework.connected, info.name.clone()));
                if told.is_some() {
                    return fault("a framework is told twice");
                }
            }
            EventType::FrameworkUpdated => {
                let framework = &event.framework_updated.as_ref().unwrap().framework;
                let info = &framework.framework_info;
                let id = &info.id.as_ref().unwrap().value;
                let Some(known) = self.frameworks.get_mut(id) else {
                    return fault("a framework that nobody was told of");
                };
                *known = (framework.connected, info.name.clone());
            }
            EventType::FrameworkRemoved => {
                let info = &event.framework_removed.as_ref().unwrap().framework_info;
                if self
                    .frameworks
                    .remove(&info.id.as_ref().unwrap().value)
                    .is_none()
                {
                    return fault("a framework that nobody was told of");
                }
            }
            EventType::TaskAdded => {
                let task = &event.task_added.as_ref().unwrap().task;
                let id = (task.framework_id.value.clone(), task.task_id.value.clone());
                self.tasks.insert(id, task.state);
            }
            EventType::TaskUpdated => {
                let updated = event.task_updated.as_ref().unwrap();
                let id = (
                    updated.framework_id.value.clone(),
                    updated.status.task_id.value.clone(),
                );
                let Some(known) = self.tasks.get_mut(&id) else {
                    return fault("a task that nobody was told of");
                };
                *known = updated.state;
            }
            other => return fault(other.name()),
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Whatever happens between two looks at the books.
    #[test]
    fn a_snapshot_and_all_that_is_told_after_it_is_what_the_master_knows(rounds in events()) {
        let mut now = books();
        now.tasks.take_over();
        let (mut known, mut time) = (Known::of(&now), 10);
        for round in rounds {
            let before = now.clone();
            for event in round {
                time += 1;
                happen(&mut now, event, time);
            }
            let over = now.tasks.take_over().unwrap();
            let at = Timestamp::from_nanos(time);
            for event in changes::changes(&before, &now, &over, at) {
                if let Err(fault) = known.hear(&event) {
                    prop_assert!(false, "{}", fault);
                }
            }
            let truth = Known::of(&now);
            prop_assert_eq!(&known.agents, &truth.agents);
            prop_assert_eq!(&known.frameworks, &truth.frameworks);
            for (id, state) in &truth.tasks {
                prop_assert_eq!(known.tasks.get(id), Some(state), "{:?}", id);
            }
            // What a master forgets had ended before it was forgotten, or could not be reached.
            known.tasks.retain(|id, state| truth.tasks.contains_key(id) || is_over(*state));
        }
    }
}
