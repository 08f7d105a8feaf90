//! Offers: every offer is made once, used at most once, and ends in exactly one of accepted,
//! declined and rescinded.
//!
//! Judged in the master's own order. An offer is open from its making. It ends when the master
//! handles an answer of its scheduler, rescinds it, subscribes its framework anew, or ends.
//! Violations:
//!
//! - an id is used twice;
//! - the master rescinds an offer that is not open: unknown, rescinded before, or answered (an
//!   answer of the same moment may still be in the mailbox, and then must have no effect);
//! - the master sends tasks to an agent without an accept of open offers of one framework for it;
//! - an offer made during the recovery and [`ANSWER_PATIENCE`] before the run's end is still open,
//!   though its framework has received it and has the same subscription: the load's frameworks
//!   answer nearly all offers, and the master rescinds the others after half a minute.
//!
//! An answer to an ended offer is no violation: it may have been in flight. A broken link ends a
//! framework's offers silently; the new subscription shows it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use protocol::message::scheduler::{AcceptOffers, DeclineOffers, OfferRescinded, OffersMade};
use protocol::message::task::RunTasks;
use protocol::{FrameworkId, OfferId, Operation, TaskId};
use runtime::Pid;
use rustc_hash::FxHashMap;

use crate::checkers::broken;
use crate::checkers::checker::{Checker, Violation};
use crate::checkers::masters::membership::Frameworks;
use crate::event::{Event, EventKind, SeenMessage};

/// Maximum time of an offer without an answer, after the faults and once its framework has received
/// it.
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
    /// Its scheduler's answer entered the master's mailbox at that time.
    Answered(Duration),
    /// The tasks of its accept have been sent.
    Used,
    /// The master rescinded it.
    Rescinded,
    /// Its framework was subscribed anew.
    Void,
}

/// An accept with a task.
struct Accept {
    offers: Vec<OfferId>,
    /// All of its offers were open and its scheduler's.
    valid: bool,
}

/// The checker.
#[derive(Default)]
pub struct Offers {
    frameworks: Frameworks,
    open: BTreeMap<OfferId, Open>,
    /// All ended offers of this master: many, and never iterated in order.
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

    /// Whether the answering node has the framework's present scheduler.
    fn speaks_for(&self, node: &str, framework: &FrameworkId) -> bool {
        let newest = self.frameworks.get(framework);
        newest.is_some_and(|newest| newest.node == node)
    }

    /// Ends those of these offers that are open and the framework's; returns whether all were.
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

    fn on_sent(&mut self, observed: &SeenMessage<'_>, at: Duration) -> Result<(), String> {
        if let Some(made) = observed.is::<OffersMade>() {
            self.made(made, observed.actor, at)
        } else if let Some(rescinded) = observed.is::<OfferRescinded>() {
            self.rescinded(rescinded, at)
        } else if let Some(run) = observed.is::<RunTasks>() {
            self.run(run)
        } else {
            Ok(())
        }
    }

    fn on_received(&mut self, observed: &SeenMessage<'_>, at: Duration) {
        if let Some(made) = observed.is::<OffersMade>() {
            for offer in &made.offers {
                if let Some(open) = self.open.get_mut(&offer.id) {
                    open.heard = true;
                }
            }
        } else if let Some(call) = observed.is::<AcceptOffers>() {
            self.accepted(call, observed.from, at);
        } else if let Some(call) = observed.is::<DeclineOffers>()
            && self.speaks_for(observed.from, &call.framework_id)
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
            // Offers of this moment, or to a scheduler that is subscribed for the first time,
            // follow the subscription, whose answer leaves a little later.
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
        match event.kind {
            EventKind::Sent(observed) => {
                return self
                    .on_sent(&observed, event.at)
                    .or_else(|what| broken(NAME, event.at, what));
            }
            EventKind::Received(observed) => self.on_received(&observed, event.at),
            EventKind::FaultsOver => self.recovery = Some(event.at),
            EventKind::NodeEnded { .. } if self.frameworks.lost_master(event) => {
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
    use super::*;
    use crate::checkers::fixture::{Fixture, framework, master, pid, seconds, task};
    use protocol::FrameworkInfo;
    use protocol::message::scheduler::{Subscribe, Subscribed};
    use runtime::NodeId;

    fn fixture() -> Fixture<Offers> {
        let mut fixture = Fixture::new(Offers::default(), "cpus:4");
        fixture.offers_text("o1", "cpus:1").wait(seconds(1));
        fixture
    }

    #[test]
    fn offer_may_be_used_declined_or_rescinded() {
        let tasks = [task("t", "cpus:1")];
        let mut fixture = fixture();
        fixture.accepts("framework-1", &["o1"], &tasks).runs(&tasks);
        fixture.offers_text("o2", "cpus:1").declines(&["o2"]);
        fixture
            .offers_text("o3", "cpus:1")
            .rescinds("o3")
            .is_clean();
    }

    #[test]
    fn offer_id_is_made_and_rescinded_once() {
        fixture()
            .offers_text("o1", "cpus:1")
            .is_broken("made twice");
        fixture()
            .rescinds("o1")
            .rescinds("o1")
            .is_broken("ended already");
        fixture().rescinds("o9").is_broken("never made");
    }

    #[test]
    fn answered_offer_is_not_rescinded_later() {
        fixture().declines(&["o1"]).rescinds("o1").is_clean();
        fixture()
            .declines(&["o1"])
            .wait(seconds(1))
            .rescinds("o1")
            .is_broken("Answered");
        let tasks = [task("t", "cpus:1")];
        let mut used = fixture();
        used.accepts("framework-1", &["o1"], &tasks).runs(&tasks);
        used.rescinds("o1").is_broken("Used");
    }

    #[test]
    fn ended_offer_starts_no_task() {
        let tasks = [task("t", "cpus:1")];
        let mut twice = fixture();
        twice
            .accepts("framework-1", &["o1"], &[])
            .accepts("framework-1", &["o1"], &tasks);
        twice.runs(&tasks).is_broken("offer o1, which was not open");
        let mut rescinded = fixture();
        rescinded
            .accepts("framework-1", &["o1"], &tasks)
            .rescinds("o1");
        rescinded
            .runs(&tasks)
            .is_broken("offer o1, which was not open");
        fixture().runs(&tasks).is_broken("no accept");
    }

    /// Seed 18510 of a group: the master's answer to stand by was slower than its registry.
    #[test]
    fn offer_before_the_late_standby_answer_stays_open() {
        let tasks = [task("t", "cpus:1")];
        for is_told in [true, false] {
            let mut fixture = fixture();
            fixture.asks_to_stand_by("framework-1");
            if is_told {
                fixture.is_told_to_lead("framework-1");
            }
            fixture.offers_text("o2", "cpus:1").wait(seconds(2));
            fixture.answered_that_it_stands_by("framework-1");
            if !is_told {
                fixture.is_told_to_lead("framework-1");
            }
            fixture.accepts("framework-1", &["o2"], &tasks).runs(&tasks);
            match is_told {
                true => fixture.is_clean(),
                false => fixture.is_broken("offer o2, which was not open"),
            }
        }
    }

    /// Seed 22712 of a group: offers were sent before the answer to a framework's next process,
    /// which an earlier one delayed.
    #[test]
    fn offer_before_the_subscription_answer_stays_open() {
        let tasks = [task("t", "cpus:1")];
        for is_its_own in [true, false] {
            let mut fixture = fixture();
            let next = Pid::new("scheduler", NodeId::new("framework-1", 7), 0);
            let ask = Subscribe {
                framework: FrameworkInfo::new("user", "f"),
                scheduler: next.clone(),
                wants: Default::default(),
            };
            let before = pid("framework-1");
            let to = if is_its_own { &next } else { &before };
            fixture.delivered("framework-1", "master", &ask);
            fixture.offers_to(to, "o2", "cpus:1").wait(seconds(2));
            let welcome = Ok(Subscribed {
                framework_id: framework(),
                master: master(),
            });
            fixture.replied::<Subscribe>("master", "framework-1", &welcome);
            fixture.accepts("framework-1", &["o2"], &tasks).runs(&tasks);
            match is_its_own {
                true => fixture.is_clean(),
                false => fixture.is_broken("offer o2, which was not open"),
            }
        }
    }

    #[test]
    fn recovery_leaves_no_open_offer() {
        let mut left = fixture();
        left.fact(EventKind::FaultsOver)
            .offers_text("o2", "cpus:1")
            .declines(&["o1"]);
        left.wait(ANSWER_PATIENCE).is_broken("offer o2");
        let mut void = fixture();
        void.fact(EventKind::FaultsOver)
            .offers_text("o2", "cpus:1")
            .declines(&["o1"]);
        void.wait(seconds(1))
            .subscribe("framework-1", FrameworkInfo::new("user", "f"));
        void.wait(ANSWER_PATIENCE).is_clean();
    }
}
