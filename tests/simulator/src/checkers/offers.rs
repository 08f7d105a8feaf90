//! Offers (invariant 6): every offer is made once, used at most once, and ends in exactly one of accepted, declined and rescinded.
//!
//! Judged by the master's own order. An offer is open from when the master makes it. It ends when the master handles an answer of
//! the scheduler that it was made to, takes the offer back, subscribes its framework anew, or dies. So it is a violation when
//!
//! - an id is made twice,
//! - the master takes back what is not open, be it that it never was, was taken back before, or has been answered (an answer that
//!   came at the same moment may still wait in the mailbox; then it must have no effect),
//! - the master sends tasks to an agent that no accept of open offers of one framework has asked for,
//! - an offer that was made during the recovery and [`ANSWER_PATIENCE`] before the run's end is still open, though its framework has
//!   heard it and needed no new subscription since: the load's frameworks answer all offers but a few, and the master takes back
//!   those after half a minute.
//!
//! An answer to an offer that has ended is no violation: it may have been under way. A broken link ends a framework's offers in
//! silence; the new subscription that follows shows it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use protocol::message::scheduler::{AcceptOffers, DeclineOffers, OfferRescinded, OffersMade};
use protocol::message::task::RunTasks;
use protocol::{FrameworkId, OfferId, Operation, TaskId};
use runtime::Pid;
use rustc_hash::FxHashMap;

use super::broken;
use super::census::Frameworks;
use crate::checker::{Checker, Violation};
use crate::event::{Event, Spoken, What};

/// How long an offer may be without an answer, once no fault comes any more and its framework has heard it.
pub const ANSWER_PATIENCE: Duration = Duration::from_secs(120);

const NAME: &str = "offers";

struct Open {
    framework: FrameworkId,
    /// To this scheduler.
    to: Option<Pid>,
    made: Duration,
    heard: bool,
}

/// How an offer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// Its scheduler's answer went into the master's mailbox at that time.
    Answered(Duration),
    /// Tasks that its accept asked for have been sent.
    Used,
    /// The master took it back.
    Rescinded,
    /// Its framework was subscribed anew.
    Void,
}

/// An accept that has asked for a task.
struct Accept {
    offers: Vec<OfferId>,
    /// All of them were open and its scheduler's.
    valid: bool,
}

/// The checker.
#[derive(Default)]
pub struct Offers {
    frameworks: Frameworks,
    open: BTreeMap<OfferId, Open>,
    /// All others that this master has made: many, and nobody asks for their order.
    ended: FxHashMap<OfferId, End>,
    asked: BTreeMap<(FrameworkId, TaskId), Arc<Accept>>,
    recovery: Option<Duration>,
    judgements: u64,
}

impl Offers {
    fn made(&mut self, message: &OffersMade, to: Option<&Pid>, at: Duration) -> Result<(), String> {
        for offer in &message.offers {
            self.judgements += 1;
            let open = Open {
                framework: offer.framework_id.clone(),
                to: to.cloned(),
                made: at,
                heard: false,
            };
            let known = self.ended.contains_key(&offer.id);
            if self.open.insert(offer.id.clone(), open).is_some() || known {
                return Err(format!("offer {} is made twice", offer.id));
            }
        }
        Ok(())
    }

    fn rescinded(&mut self, message: &OfferRescinded, at: Duration) -> Result<(), String> {
        self.judgements += 1;
        let id = &message.offer_id;
        let before = self.ended.insert(id.clone(), End::Rescinded);
        match (self.open.remove(id), before) {
            (Some(_), None) => Ok(()),
            (None, Some(End::Answered(heard))) if heard == at => Ok(()),
            (_, Some(end)) => Err(format!(
                "offer {id} is rescinded, but it had ended already: {end:?}"
            )),
            (None, None) => Err(format!("offer {id} is rescinded, but it was never made")),
        }
    }

    /// Whether the one who answers is the scheduler that this framework has now.
    fn speaks_for(&self, node: &str, framework: &FrameworkId) -> bool {
        let newest = self.frameworks.get(framework);
        newest.is_some_and(|newest| newest.node == node)
    }

    /// Ends those of these offers that are the framework's and open; whether all were.
    fn answered(&mut self, framework: &FrameworkId, ids: &[OfferId], at: Duration) -> bool {
        let mut all = true;
        for id in ids {
            self.judgements += 1;
            let open = self.open.get(id);
            if open.is_some_and(|open| open.framework == *framework) {
                self.open.remove(id);
                self.ended.insert(id.clone(), End::Answered(at));
            } else {
                all = false;
            }
        }
        all
    }

    fn accepted(&mut self, call: &AcceptOffers, from: &str, at: Duration) {
        let framework = &call.framework_id;
        let valid =
            self.speaks_for(from, framework) && self.answered(framework, &call.offer_ids, at);
        let accept = Arc::new(Accept {
            offers: call.offer_ids.clone(),
            valid,
        });
        for task in call.operations.iter().flat_map(Operation::tasks) {
            let key = (framework.clone(), task.task_id.clone());
            self.asked.insert(key, accept.clone());
        }
    }

    fn run(&mut self, run: &RunTasks) -> Result<(), String> {
        let Some(framework) = &run.framework.id else {
            return Ok(());
        };
        for task in &run.tasks {
            self.judgements += 1;
            let key = (framework.clone(), task.task_id.clone());
            let accept = self.asked.remove(&key);
            let problem = match &accept {
                None => "no accept has asked for it".to_owned(),
                Some(accept) => {
                    let usable = |id: &&OfferId| {
                        let end = self.ended.get(*id);
                        accept.valid && matches!(end, Some(End::Answered(_) | End::Used))
                    };
                    match accept.offers.iter().find(|id| !usable(id)) {
                        Some(id) => format!("its accept names offer {id}, which was not open"),
                        None => {
                            let used = accept.offers.iter();
                            let used = used.map(|id| (id.clone(), End::Used));
                            self.ended.extend(used);
                            continue;
                        }
                    }
                }
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
            self.made(made, spoken.actor, at)
        } else if let Some(rescinded) = spoken.is::<OfferRescinded>() {
            self.rescinded(rescinded, at)
        } else if let Some(run) = spoken.is::<RunTasks>() {
            self.run(run)
        } else {
            Ok(())
        }
    }

    fn heard(&mut self, spoken: &Spoken<'_>, at: Duration) {
        if let Some(made) = spoken.is::<OffersMade>() {
            for offer in &made.offers {
                if let Some(open) = self.open.get_mut(&offer.id) {
                    open.heard = true;
                }
            }
        } else if let Some(call) = spoken.is::<AcceptOffers>() {
            self.accepted(call, spoken.from, at);
        } else if let Some(call) = spoken.is::<DeclineOffers>()
            && self.speaks_for(spoken.from, &call.framework_id)
        {
            self.answered(&call.framework_id, &call.offer_ids, at);
        }
    }
}

impl Checker for Offers {
    fn name(&self) -> &'static str {
        NAME
    }

    fn see(&mut self, event: &Event<'_>) -> Result<(), Violation> {
        if let Some(framework) = self.frameworks.see(event) {
            // What was made at this moment, or to a scheduler that is welcomed for the first time, follows the subscription: its answer leaves a
            // little later.
            let newest = self.frameworks.get(&framework);
            let is_older = |open: &Open| {
                newest.is_none_or(|newest| {
                    let is_its = newest.is_first && open.to.as_ref() == Some(&newest.scheduler);
                    open.made < newest.begun && !is_its
                })
            };
            let over = |open: &Open| open.framework == framework && is_older(open);
            let over = self.open.iter().filter(|(_, open)| over(open));
            let over: Vec<OfferId> = over.map(|(id, _)| id.clone()).collect();
            for id in over {
                self.open.remove(&id);
                self.ended.insert(id, End::Void);
            }
        }
        match event.what {
            What::Said(spoken) => {
                return self
                    .said(&spoken, event.at)
                    .or_else(|what| broken(NAME, event.at, what));
            }
            What::Heard(spoken) => self.heard(&spoken, event.at),
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

    fn is_waiting(&mut self, at: Duration) -> bool {
        let mut open = self.open.values();
        open.any(|open| open.heard && open.made + ANSWER_PATIENCE / 2 < at)
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

#[cfg(test)]
mod tests {
    use super::super::stage::{Stage, framework, master, pid, seconds, task};
    use super::*;
    use protocol::FrameworkInfo;
    use protocol::message::scheduler::{Subscribe, Subscribed};
    use runtime::NodeId;

    fn stage() -> Stage<Offers> {
        let mut stage = Stage::new(Offers::default(), "cpus:4");
        stage.offers_text("o1", "cpus:1").wait(seconds(1));
        stage
    }

    #[test]
    fn an_offer_may_be_used_declined_or_taken_back() {
        let tasks = [task("t", "cpus:1")];
        let mut stage = stage();
        stage.accepts("framework-1", &["o1"], &tasks).runs(&tasks);
        stage.offers_text("o2", "cpus:1").declines(&["o2"]);
        stage.offers_text("o3", "cpus:1").rescinds("o3").is_clean();
    }

    #[test]
    fn an_id_is_made_once_and_taken_back_once() {
        stage().offers_text("o1", "cpus:1").is_broken("made twice");
        stage()
            .rescinds("o1")
            .rescinds("o1")
            .is_broken("ended already");
        stage().rescinds("o9").is_broken("never made");
    }

    #[test]
    fn an_answered_offer_is_not_taken_back_unless_the_answer_came_at_that_moment() {
        stage().declines(&["o1"]).rescinds("o1").is_clean();
        stage()
            .declines(&["o1"])
            .wait(seconds(1))
            .rescinds("o1")
            .is_broken("Answered");
        let tasks = [task("t", "cpus:1")];
        let mut used = stage();
        used.accepts("framework-1", &["o1"], &tasks).runs(&tasks);
        used.rescinds("o1").is_broken("Used");
    }

    #[test]
    fn an_offer_that_has_ended_starts_no_task() {
        let tasks = [task("t", "cpus:1")];
        let mut twice = stage();
        twice
            .accepts("framework-1", &["o1"], &[])
            .accepts("framework-1", &["o1"], &tasks);
        twice.runs(&tasks).is_broken("offer o1, which was not open");
        let mut rescinded = stage();
        rescinded
            .accepts("framework-1", &["o1"], &tasks)
            .rescinds("o1");
        rescinded
            .runs(&tasks)
            .is_broken("offer o1, which was not open");
        stage().runs(&tasks).is_broken("no accept");
    }

    /// Seed 18510 of a group's: the master's answer that it stands by was slower than its registry.
    #[test]
    fn what_is_offered_to_who_was_told_to_lead_is_open_when_the_answer_comes_that_it_stands_by() {
        let tasks = [task("t", "cpus:1")];
        for is_told in [true, false] {
            let mut stage = stage();
            stage.asks_to_stand_by("framework-1");
            if is_told {
                stage.told_to_lead("framework-1");
            }
            stage.offers_text("o2", "cpus:1").wait(seconds(2));
            stage.answered_that_it_stands_by("framework-1");
            if !is_told {
                stage.told_to_lead("framework-1");
            }
            stage.accepts("framework-1", &["o2"], &tasks).runs(&tasks);
            match is_told {
                true => stage.is_clean(),
                false => stage.is_broken("offer o2, which was not open"),
            }
        }
    }

    /// Seed 22712 of a group's: offers left before the answer to a framework's next process, which an earlier one's held up.
    #[test]
    fn what_is_offered_to_a_scheduler_before_it_is_welcomed_is_open_and_what_was_offered_to_the_one_before_is_not()
     {
        let tasks = [task("t", "cpus:1")];
        for is_its_own in [true, false] {
            let mut stage = stage();
            let next = Pid::new("scheduler", NodeId::new("framework-1", 7), 0);
            let ask = Subscribe {
                framework: FrameworkInfo::new("user", "f"),
                scheduler: next.clone(),
                wants: Default::default(),
            };
            let before = pid("framework-1");
            let to = if is_its_own { &next } else { &before };
            stage.told("framework-1", "master", &ask);
            stage.offers_to(to, "o2", "cpus:1").wait(seconds(2));
            let welcome = Ok(Subscribed {
                framework_id: framework(),
                master: master(),
            });
            stage.replied::<Subscribe>("master", "framework-1", &welcome);
            stage.accepts("framework-1", &["o2"], &tasks).runs(&tasks);
            match is_its_own {
                true => stage.is_clean(),
                false => stage.is_broken("offer o2, which was not open"),
            }
        }
    }

    #[test]
    fn in_the_recovery_an_offer_may_not_be_left_lying_but_for_a_new_subscription() {
        let mut left = stage();
        left.fact(What::FaultsOver)
            .offers_text("o2", "cpus:1")
            .declines(&["o1"]);
        left.wait(ANSWER_PATIENCE).is_broken("offer o2");
        let mut void = stage();
        void.fact(What::FaultsOver)
            .offers_text("o2", "cpus:1")
            .declines(&["o1"]);
        void.wait(seconds(1))
            .subscribe("framework-1", FrameworkInfo::new("user", "f"));
        void.wait(ANSWER_PATIENCE).is_clean();
    }
}
