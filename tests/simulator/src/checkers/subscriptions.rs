//! Subscriptions: a master speaks to the newest scheduler of each framework only, and does nothing for one that was replaced.
//!
//! Judged by the master's own order: once it has answered a subscription, offers, statuses and losses go to that scheduler and to no
//! earlier one of the same framework, be it on another node or an earlier life of the same node; and no task is sent to an agent
//! that only another node has asked for. A framework that lost its scheduler and has no new one yet is spoken to by nobody, but that
//! cannot be seen from outside.

use std::collections::BTreeMap;
use std::time::Duration;

use protocol::message::scheduler::AcceptOffers;
use protocol::message::task::RunTasks;
use protocol::{FrameworkId, Operation, TaskId};

use super::broken;
use super::census::{Frameworks, is_for_scheduler};
use crate::checker::{Checker, Violation};
use crate::event::{Event, Spoken, What};

const NAME: &str = "subscriptions";

/// The checker.
#[derive(Default)]
pub struct Subscriptions {
    frameworks: Frameworks,
    /// Tasks that were last asked for by this node.
    asked: BTreeMap<(FrameworkId, TaskId), String>,
    judgements: u64,
}

impl Subscriptions {
    fn said(&mut self, spoken: &Spoken<'_>, at: Duration) -> Result<(), Violation> {
        if let Some(run) = spoken.is::<RunTasks>() {
            return self.run(run, at);
        }
        if !is_for_scheduler(spoken) {
            return Ok(());
        }
        let Some(framework) = self.frameworks.of_node(spoken.to) else {
            return Ok(());
        };
        let Some(newest) = self.frameworks.get(framework) else {
            return Ok(());
        };
        if self.frameworks.asking(spoken.to).next().is_some() {
            return Ok(()); // It is about to be the newest, or is already.
        }
        self.judgements += 1;
        let to_newest = spoken.actor.is_none_or(|actor| *actor == newest.scheduler);
        if newest.node == spoken.to && to_newest {
            return Ok(());
        }
        let to = spoken
            .actor
            .map_or(spoken.to.to_owned(), ToString::to_string);
        let what = format!(
            "{framework} has been subscribed by {} since {:?}, but {} is said to {to}",
            newest.scheduler, newest.since, spoken.name
        );
        broken(NAME, at, what)
    }

    fn run(&mut self, run: &RunTasks, at: Duration) -> Result<(), Violation> {
        let Some(framework) = &run.framework.id else {
            return Ok(());
        };
        for task in &run.tasks {
            let key = (framework.clone(), task.task_id.clone());
            let (Some(asked), Some(newest)) =
                (self.asked.remove(&key), self.frameworks.get(framework))
            else {
                continue;
            };
            self.judgements += 1;
            if asked != newest.node {
                let what = format!(
                    "task {} of {framework} is launched for {asked}, but {} has replaced it since {:?}",
                    task.task_id, newest.node, newest.since
                );
                return broken(NAME, at, what);
            }
        }
        Ok(())
    }
}

impl Checker for Subscriptions {
    fn name(&self) -> &'static str {
        NAME
    }

    fn see(&mut self, event: &Event<'_>) -> Result<(), Violation> {
        self.frameworks.see(event);
        match event.what {
            What::Said(spoken) => self.said(&spoken, event.at),
            What::Heard(spoken) => {
                if let Some(call) = spoken.is::<AcceptOffers>() {
                    for task in call.operations.iter().flat_map(Operation::tasks) {
                        let key = (call.framework_id.clone(), task.task_id.clone());
                        self.asked.insert(key, spoken.from.to_owned());
                    }
                }
                Ok(())
            }
            What::NodeEnded { .. } if self.frameworks.lost_master(event) => {
                self.asked.clear();
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn judgements(&self) -> u64 {
        self.judgements
    }
}

#[cfg(test)]
mod tests {
    use super::super::stage::{Stage, task};
    use super::*;
    use protocol::FrameworkInfo;

    fn replaced() -> Stage<Subscriptions> {
        let mut stage = Stage::new(Subscriptions::default(), "cpus:4");
        stage.offers_text("o1", "cpus:1");
        stage.subscribe("framework-2", FrameworkInfo::new("user", "f"));
        stage
    }

    #[test]
    fn who_was_replaced_hears_no_more() {
        replaced().is_clean();
        replaced()
            .offers_text("o2", "cpus:1")
            .is_broken("framework-2");
    }

    #[test]
    fn an_earlier_life_of_the_same_node_hears_no_more() {
        let stage = || Stage::new(Subscriptions::default(), "cpus:4");
        stage().speaks_to("framework-1", 1).is_clean();
        stage()
            .speaks_to("framework-1", 0)
            .is_broken("someone@framework-1");
    }

    #[test]
    fn nothing_is_launched_for_who_was_replaced() {
        let tasks = [task("t", "cpus:1")];
        let mut stage = replaced();
        stage
            .accepts("framework-2", &["o1"], &tasks)
            .runs(&tasks)
            .is_clean();
        let mut stage = replaced();
        stage
            .accepts("framework-1", &["o1"], &tasks)
            .runs(&tasks)
            .is_broken("has replaced it");
    }
}
