//! Subscriptions: a master sends only to the newest scheduler of each framework, and does nothing
//! for a replaced one.
//!
//! Judged in the master's own order. After it has answered a subscription, offers, statuses and
//! losses go to that scheduler and to no earlier one of the framework, on another node or in an
//! earlier life of the same node; and no task is sent to an agent that only another node has
//! requested. That nothing is sent to a framework between two schedulers cannot be observed.

use std::collections::BTreeMap;
use std::time::Duration;

use protocol::message::scheduler::AcceptOffers;
use protocol::message::task::RunTasks;
use protocol::{FrameworkId, Operation, TaskId};

use super::broken;
use crate::checkers::checker::{Checker, Violation};
use crate::checkers::masters::membership::{Frameworks, is_for_scheduler};
use crate::event::{Event, EventKind, SeenMessage};

const NAME: &str = "subscriptions";

/// The checker.
#[derive(Default)]
pub struct Subscriptions {
    frameworks: Frameworks,
    /// Tasks that were last requested by this node.
    asked: BTreeMap<(FrameworkId, TaskId), String>,
    judgements: u64,
}

impl Subscriptions {
    fn on_sent(&mut self, observed: &SeenMessage<'_>, at: Duration) -> Result<(), Violation> {
        if let Some(run) = observed.is::<RunTasks>() {
            return self.run(run, at);
        }
        if !is_for_scheduler(observed) {
            return Ok(());
        }
        let Some(framework) = self.frameworks.of_node(observed.to) else {
            return Ok(());
        };
        let Some(newest) = self.frameworks.get(framework) else {
            return Ok(());
        };
        if self.frameworks.asking(observed.to).next().is_some() {
            return Ok(()); // it is about to be the newest, or already is
        }
        self.judgements += 1;
        let to_newest = observed
            .actor
            .is_none_or(|actor| *actor == newest.scheduler);
        if newest.node == observed.to && to_newest {
            return Ok(());
        }
        let to = observed
            .actor
            .map_or(observed.to.to_owned(), ToString::to_string);
        let what = format!(
            "{framework} has been subscribed by {} since {:?}, but {} is said to {to}",
            newest.scheduler, newest.since, observed.name
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
        match event.kind {
            EventKind::Sent(observed) => self.on_sent(&observed, event.at),
            EventKind::Received(observed) => {
                if let Some(call) = observed.is::<AcceptOffers>() {
                    for task in call.operations.iter().flat_map(Operation::tasks) {
                        let key = (call.framework_id.clone(), task.task_id.clone());
                        self.asked.insert(key, observed.from.to_owned());
                    }
                }
                Ok(())
            }
            EventKind::NodeEnded { .. } if self.frameworks.lost_master(event) => {
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
    use super::super::fixture::{Fixture, task};
    use super::*;
    use protocol::FrameworkInfo;

    fn replaced() -> Fixture<Subscriptions> {
        let mut fixture = Fixture::new(Subscriptions::default(), "cpus:4");
        fixture.offers_text("o1", "cpus:1");
        fixture.subscribe("framework-2", FrameworkInfo::new("user", "f"));
        fixture
    }

    #[test]
    fn who_was_replaced_hears_no_more() {
        replaced().is_clean();
        replaced()
            .offers_text("o2", "cpus:1")
            .is_broken("framework-2");
    }

    #[test]
    fn earlier_life_of_a_node_receives_nothing() {
        let fixture = || Fixture::new(Subscriptions::default(), "cpus:4");
        fixture().speaks_to("framework-1", 1).is_clean();
        fixture()
            .speaks_to("framework-1", 0)
            .is_broken("someone@framework-1");
    }

    #[test]
    fn replaced_scheduler_launches_nothing() {
        let tasks = [task("t", "cpus:1")];
        let mut fixture = replaced();
        fixture
            .accepts("framework-2", &["o1"], &tasks)
            .runs(&tasks)
            .is_clean();
        let mut fixture = replaced();
        fixture
            .accepts("framework-1", &["o1"], &tasks)
            .runs(&tasks)
            .is_broken("has replaced it");
    }
}
