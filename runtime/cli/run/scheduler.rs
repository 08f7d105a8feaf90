//! The framework of `meros run`: places the job's instances on offers and sends events to the
//! command.
//!
//! Suppresses offers while no instance waits.

use std::collections::BTreeSet;

use protocol::message::scheduler::Subscribed;
use protocol::{AgentId, Filters, FrameworkId, Offer, TaskId, TaskStatus};
use scheduler_driver::{Calls, Scheduler};
use tokio::sync::mpsc::UnboundedSender;

use super::placement::{Placement, TaskOutcome};

/// An event of the framework for the command.
#[derive(Debug)]
pub enum Event {
    /// A master has accepted the subscription.
    Subscribed(FrameworkId),
    /// The connection to the master is lost.
    Disconnected(String),
    /// An insufficient offer: its resources and agent.
    TooSmall { agent: AgentId, text: String },
    /// Tasks were launched; this many instances still wait.
    Launched {
        tasks: Vec<(TaskId, AgentId)>,
        waiting: usize,
    },
    /// A task's state has changed.
    Changed {
        status: Box<TaskStatus>,
        outcome: TaskOutcome,
    },
    /// The framework has failed.
    Failed(String),
}

/// The framework.
pub struct Runner {
    placement: Placement,
    /// Unbounded, but there are only a few events per instance, and the command reads them at once.
    events: UnboundedSender<Event>,
}

impl Runner {
    /// A framework for this placement.
    pub fn new(placement: Placement, events: UnboundedSender<Event>) -> Self {
        Self { placement, events }
    }

    fn tell(&self, event: Event) {
        let _ = self.events.send(event); // the command is exiting if there is no receiver
    }
}

impl Scheduler for Runner {
    fn subscribed(&mut self, _: &mut Calls, subscribed: &Subscribed) {
        self.tell(Event::Subscribed(subscribed.framework_id.clone()));
    }

    fn disconnected(&mut self, _: &mut Calls, reason: &str) {
        self.tell(Event::Disconnected(reason.to_owned()));
    }

    fn offers(&mut self, driver: &mut Calls, offers: Vec<Offer>) {
        for offer in offers {
            let wanted = self.placement.waiting() > 0;
            let tasks = self.placement.place(&offer);
            if tasks.is_empty() {
                // A short filter, so that resources that become free are offered again soon.
                driver.decline(
                    vec![offer.id],
                    Filters {
                        refuse_seconds: 1.0,
                    },
                );
                if wanted {
                    let text = format!(
                        "{} on {}",
                        offer.resources.flatten().brief(),
                        offer.hostname
                    );
                    self.tell(Event::TooSmall {
                        agent: offer.agent_id,
                        text,
                    });
                }
                continue;
            }
            let names = tasks
                .iter()
                .map(|task| (task.task_id.clone(), task.agent_id.clone()))
                .collect();
            let operations = vec![protocol::Operation::Launch { tasks }];
            driver.accept(
                vec![offer.id],
                operations,
                Filters {
                    refuse_seconds: 0.0,
                },
            );
            self.tell(Event::Launched {
                tasks: names,
                waiting: self.placement.waiting(),
            });
        }
        if self.placement.waiting() == 0 {
            driver.suppress(BTreeSet::new());
        }
    }

    fn status(&mut self, driver: &mut Calls, status: &TaskStatus) {
        let Some(outcome) = self.placement.update(status) else {
            return;
        };
        if outcome == TaskOutcome::Relaunch {
            driver.revive(BTreeSet::new());
        }
        self.tell(Event::Changed {
            status: Box::new(status.clone()),
            outcome,
        });
    }

    fn failed(&mut self, _: &mut Calls, reason: &str) {
        self.tell(Event::Failed(reason.to_owned()));
    }
}
