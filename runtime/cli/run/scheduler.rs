//! The framework behind `meros run`: places the job's instances on offers and tells the command what happens.
//!
//! Hears the driver; remembers the [`Demand`]. Asks for no more offers while nothing waits for a place.

use std::collections::BTreeSet;

use protocol::message::scheduler::Subscribed;
use protocol::{AgentId, Filters, FrameworkId, Offer, TaskId, TaskStatus};
use scheduler_driver::{Scheduler, Verbs};
use tokio::sync::mpsc::UnboundedSender;

use super::demand::{Demand, Verdict};

/// What the command hears of its framework.
#[derive(Debug)]
pub enum Event {
    /// A master has it.
    Subscribed(FrameworkId),
    /// The master is lost.
    Disconnected(String),
    /// An offer was of no use: what it had, and where.
    TooSmall { agent: AgentId, text: String },
    /// Tasks were sent off; so many instances still wait.
    Launched {
        tasks: Vec<(TaskId, AgentId)>,
        waiting: usize,
    },
    /// A task of ours has changed.
    Changed {
        status: Box<TaskStatus>,
        verdict: Verdict,
    },
    /// The framework cannot go on.
    Failed(String),
}

/// The framework.
pub struct Runner {
    demand: Demand,
    /// Unbounded, but for each instance there are only a few events, and the command reads them as they come.
    events: UnboundedSender<Event>,
}

impl Runner {
    /// A framework for this demand.
    pub fn new(demand: Demand, events: UnboundedSender<Event>) -> Self {
        Self { demand, events }
    }

    fn tell(&self, event: Event) {
        let _ = self.events.send(event); // The command is on its way out if nobody listens.
    }
}

impl Scheduler for Runner {
    fn subscribed(&mut self, _: &mut Verbs, subscribed: &Subscribed) {
        self.tell(Event::Subscribed(subscribed.framework_id.clone()));
    }

    fn disconnected(&mut self, _: &mut Verbs, reason: &str) {
        self.tell(Event::Disconnected(reason.to_owned()));
    }

    fn offers(&mut self, driver: &mut Verbs, offers: Vec<Offer>) {
        for offer in offers {
            let wanted = self.demand.waiting() > 0;
            let tasks = self.demand.place(&offer);
            if tasks.is_empty() {
                // Nothing else is sure to come, so that what grows free may be offered again soon.
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
                waiting: self.demand.waiting(),
            });
        }
        if self.demand.waiting() == 0 {
            driver.suppress(BTreeSet::new());
        }
    }

    fn status(&mut self, driver: &mut Verbs, status: &TaskStatus) {
        let Some(verdict) = self.demand.judge(status) else {
            return;
        };
        if verdict == Verdict::Again {
            driver.revive(BTreeSet::new());
        }
        self.tell(Event::Changed {
            status: Box::new(status.clone()),
            verdict,
        });
    }

    fn failed(&mut self, _: &mut Verbs, reason: &str) {
        self.tell(Event::Failed(reason.to_owned()));
    }
}
