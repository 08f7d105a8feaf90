//! Offers (invariant 6): every offer is made once, used at most once, and ends in exactly one of accepted, declined and rescinded.
//!
//! Judged by the master's own order. An offer is open from when the master makes it. It ends when the master handles an answer of
//! the scheduler that it was made to, takes the offer back, subscribes its framework anew, or dies. So it is a violation when
//!
//! - an id is made twice,
//! - the master takes back what was not open,
//! - the master sends tasks to an agent that no accept of open offers of one framework has asked for,
//! - an offer that was made during the recovery and [`ANSWER_PATIENCE`] before the run's end is still open, though its framework has
//!   heard it and needed no new subscription since: every framework of the load answers each offer.
//!
//! An answer to an offer that has ended is no violation: it may have been under way. A broken link ends a framework's offers in
//! silence; the new subscription that follows shows it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use protocol::message::scheduler::{AcceptOffers, DeclineOffers, OfferRescinded, OffersMade};
use protocol::message::task::RunTasks;
use protocol::{FrameworkId, OfferId, Operation, TaskId};

use super::broken;
use super::census::Frameworks;
use crate::checker::{Checker, Violation};
use crate::event::{Event, Spoken, What};

/// How long an offer may be without an answer, once no fault comes any more and its framework has heard it.
pub const ANSWER_PATIENCE: Duration = Duration::from_secs(120);

const NAME: &str = "offers";

struct Open {
    framework: FrameworkId,
    made: Duration,
    heard: bool,
}

/// The checker.
#[derive(Default)]
pub struct Offers {
    frameworks: Frameworks,
    open: BTreeMap<OfferId, Open>,
    /// All ids that this master has made.
    ended: BTreeSet<OfferId>,
    /// Tasks of accepts, each with whether all their offers were open.
    asked: BTreeMap<(FrameworkId, TaskId), bool>,
    recovery: Option<Duration>,
    judgements: u64,
}

impl Offers {
    fn made(&mut self, message: &OffersMade, at: Duration) -> Result<(), String> {
        for offer in &message.offers {
            self.judgements += 1;
            let open = Open {
                framework: offer.framework_id.clone(),
                made: at,
                heard: false,
            };
            if self.ended.contains(&offer.id) || self.open.insert(offer.id.clone(), open).is_some()
            {
                return Err(format!("offer {} is made twice", offer.id));
            }
        }
        Ok(())
    }

    fn rescinded(&mut self, message: &OfferRescinded) -> Result<(), String> {
        self.judgements += 1;
        let id = &message.offer_id;
        match self.open.remove(id) {
            Some(_) => {
                self.ended.insert(id.clone());
                Ok(())
            }
            None if self.ended.contains(id) => {
                Err(format!("offer {id} is rescinded, but it had ended already"))
            }
            None => Err(format!("offer {id} is rescinded, but it was never made")),
        }
    }

    /// Whether the one who answers is the scheduler that this framework has now.
    fn speaks_for(&self, node: &str, framework: &FrameworkId) -> bool {
        let newest = self.frameworks.get(framework);
        newest.is_some_and(|newest| newest.node == node)
    }

    fn answered(&mut self, framework: &FrameworkId, ids: &[OfferId]) -> bool {
        let mut all = true;
        for id in ids {
            self.judgements += 1;
            if self
                .open
                .get(id)
                .is_some_and(|open| open.framework == *framework)
            {
                self.open.remove(id);
                self.ended.insert(id.clone());
            } else {
                all = false;
            }
        }
        all
    }

    fn accepted(&mut self, call: &AcceptOffers, from: &str) {
        let framework = &call.framework_id;
        let valid =
            self.speaks_for(from, framework) && self.answered(framework, &call.offer_ids);
        for Operation::Launch { tasks } in &call.operations {
            for task in tasks {
                let key = (framework.clone(), task.task_id.clone());
                self.asked.insert(key, valid);
            }
        }
    }

    fn run(&mut self, run: &RunTasks) -> Result<(), String> {
        let Some(framework) = &run.framework.id else {
            return Ok(());
        };
        for task in &run.tasks {
            self.judgements += 1;
            let key = (framework.clone(), task.task_id.clone());
            let problem = match self.asked.remove(&key) {
                Some(true) => continue,
                Some(false) => "its accept names an offer that was not open",
                None => "no accept has asked for it",
            };
            return Err(format!(
                "task {} of {framework} is sent to agent {}: {problem}",
                task.task_id, task.agent_id
            ));
        }
        Ok(())
    }

    fn said(&mut self, spoken: &Spoken<'_>, at: Duration) -> Result<(), String> {
        if let Some(made) = spoken.is::<OffersMade>() {
            self.made(made, at)
        } else if let Some(rescinded) = spoken.is::<OfferRescinded>() {
            self.rescinded(rescinded)
        } else if let Some(run) = spoken.is::<RunTasks>() {
            self.run(run)
        } else {
            Ok(())
        }
    }

    fn heard(&mut self, spoken: &Spoken<'_>) {
        if let Some(made) = spoken.is::<OffersMade>() {
            for offer in &made.offers {
                if let Some(open) = self.open.get_mut(&offer.id) {
                    open.heard = true;
                }
            }
        } else if let Some(call) = spoken.is::<AcceptOffers>() {
            self.accepted(call, spoken.from);
        } else if let Some(call) = spoken.is::<DeclineOffers>()
            && self.speaks_for(spoken.from, &call.framework_id)
        {
            self.answered(&call.framework_id, &call.offer_ids);
        }
    }
}

impl Checker for Offers {
    fn name(&self) -> &'static str {
        NAME
    }

    fn see(&mut self, event: &Event<'_>) -> Result<(), Violation> {
        if let Some(framework) = self.frameworks.see(event) {
            let over = self.open.iter().filter(|(_, o)| o.framework == framework);
            let over: Vec<OfferId> = over.map(|(id, _)| id.clone()).collect();
            for id in over {
                self.open.remove(&id);
                self.ended.insert(id);
            }
        }
        match event.what {
            What::Said(spoken) => {
                return self
                    .said(&spoken, event.at)
                    .or_else(|what| broken(NAME, event.at, what));
            }
            What::Heard(spoken) => self.heard(&spoken),
            What::FaultsOver => self.recovery = Some(event.at),
            What::NodeEnded { .. } if self.frameworks.lost_master(event) => {
                self.open.clear();
                self.ended.clear();
                self.asked.clear();
            }
            _ => {}
        }
        Ok(())
    }

    fn finish(&mut self, at: Duration) -> Result<(), Violation> {
        let Some(recovery) = self.recovery else {
            return Ok(());
        };
        for (id, open) in &self.open {
            self.judgements += 1;
            if open.heard && open.made >= recovery && open.made + ANSWER_PATIENCE <= at {
                let what = format!(
                    "offer {id} to {}, made at {:?}, was never accepted, declined or rescinded",
                    open.framework, open.made
                );
                return broken(NAME, at, what);
            }
        }
        Ok(())
    }

    fn judgements(&self) -> u64 {
        self.judgements
    }
}
