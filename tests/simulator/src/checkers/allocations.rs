//! Allocations (invariant 2): what a master has offered and placed of an agent never exceeds what the agent has, nor, of revocable
//! resources, what it lends.
//!
//! Judged whenever a master makes an offer or sends tasks to an agent, by that master's own order: offers count from when it makes
//! them until it takes them back or handles the answer; tasks and executors from when it sends them (or welcomes an agent that
//! reports them) until it handles their end, disowns them, or their framework goes.
//!
//! Why that is sound: each end is counted at its first sign, so that what is counted is never more than what the master holds. One
//! end has no sign: offers of a framework whose link broke are taken back in silence. So an excess that needs another framework's
//! offers is only noted, and it is a violation once the master speaks to that framework again without a new subscription, which
//! shows that it never held the link for broken. What an agent lends may have changed while a grant was on its way from the
//! allocator: for [`GRACE`] the total before counts too.
//!
//! And what ended gives back what it had: see `returned`.
//!
//! Operations change who may have something and what it is called, never how much there is: everything is counted as it was before
//! them (what they make is `estates`' business). What is reserved for a role that wants nothing just now is neither held nor offered,
//! so that nobody asks whether an agent gives back all of it once something was reserved there.
//!
//! Not judged: what agents themselves run. A master may free what an agent is still killing (a removed framework, a lost agent).

mod holder;
mod returned;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use protocol::message::operation::ApplyOperation;
use protocol::message::oversubscription::OversubscribedChanged;
use protocol::message::registration::{DisownTasks, RegisterAgent, ReregisterAgent};
use protocol::message::scheduler::{
    AcceptOffers, DeclineOffers, OfferRescinded, OffersMade, StatusChanged, TearDown,
};
use protocol::message::task::{ExecutorExited, RunTasks, ShutDownFramework, TaskUpdated};
use protocol::{AgentId, FrameworkId, OfferId, TaskId};
use resources::Resources;
use rustc_hash::FxHashMap;

pub(super) use self::holder::Holder;
use self::returned::Returned;
use super::census::{Frameworks, Part, Registration, Registrations, is_for_scheduler};
use super::{broken, given_up};
use crate::checker::{Checker, Violation};
use crate::event::{Event, Spoken, What};

/// How long a grant may be on its way from the allocator to its master.
const GRACE: Duration = Duration::from_secs(1);

const NAME: &str = "allocations";

#[derive(Clone)]
struct Held {
    resources: Resources,
    /// When it was sent to the agent; `None` if the agent reported it.
    sent: Option<Duration>,
}

impl Held {
    fn reported(resources: Resources) -> Self {
        Self {
            resources,
            sent: None,
        }
    }
}

/// An offer, in the two parts that each other offer of the agent asks for.
struct Offered {
    framework: FrameworkId,
    regular: Resources,
    revocable: Resources,
    /// The node of the scheduler that it was made to.
    to: String,
    made: Duration,
}

/// An agent as its master must see it. Without a node its welcome has not been seen yet.
#[derive(Default)]
struct Agent {
    node: String,
    total: Resources,
    /// The total without what the holders have; nothing revocable.
    rest: Resources,
    holders: BTreeMap<Holder, Held>,
    offers: BTreeMap<OfferId, Offered>,
    lent: Resources,
    /// The total before, and until when it counts.
    lent_before: Option<(Resources, Duration)>,
}

/// An excess that is a violation if none of these frameworks' links was broken.
struct Charge {
    at: Duration,
    unproven: BTreeSet<FrameworkId>,
    what: String,
}

/// The checker.
#[derive(Default)]
pub struct Allocations {
    registrations: Registrations,
    frameworks: Frameworks,
    agents: BTreeMap<AgentId, Agent>,
    by_node: BTreeMap<String, AgentId>,
    offered: FxHashMap<OfferId, AgentId>,
    /// Executors whose end the master has just heard: what is sent at the same moment may have been decided before it.
    exited: (Duration, BTreeSet<Holder>),
    /// What the master does not want an agent to have, said before its registration was answered.
    unwanted: BTreeMap<String, Unwanted>,
    charges: Vec<Charge>,
    returned: Returned,
    judgements: u64,
}

#[derive(Default)]
struct Unwanted {
    tasks: BTreeSet<(FrameworkId, TaskId)>,
    frameworks: BTreeSet<FrameworkId>,
}

impl Unwanted {
    fn has(&self, holder: &Holder) -> bool {
        let task = match holder {
            Holder::Task(framework, task) => {
                self.tasks.contains(&(framework.clone(), task.clone()))
            }
            Holder::Executor(..) => false,
        };
        task || self.frameworks.contains(holder.framework())
    }
}

impl Agent {
    /// Tasks or an executor take their part. `false` if there is not so much.
    fn hold(&mut self, holder: Holder, resources: &Resources, sent: Option<Duration>) -> bool {
        let resources = bare(resources);
        let fits = self.rest.subtract(&resources.non_revocable()).is_ok();
        self.holders.insert(holder, Held { resources, sent });
        fits
    }

    fn free(&mut self, holder: &Holder) {
        if let Some(held) = self.holders.remove(holder) {
            self.rest += &held.resources.non_revocable();
        }
    }

    fn free_all(&mut self, framework: &FrameworkId) {
        let of = |holder: &&Holder| holder.framework() == framework;
        let holders: Vec<_> = self.holders.keys().filter(of).cloned().collect();
        holders.iter().for_each(|holder| self.free(holder));
        self.offers.retain(|_, offer| offer.framework != *framework);
    }

    /// What nobody holds and nobody was offered, or less if the offers exceed it; nothing revocable.
    fn left(&self) -> Resources {
        let mut left = self.rest.clone();
        for offer in self.offers.values() {
            left.subtract_what_is_there(&offer.regular);
        }
        left
    }

    /// Who has what, for people.
    fn what_is_there(&self) -> String {
        let held = self.holders.iter().map(|(holder, held)| {
            let whose = match holder {
                Holder::Task(_, task) => task.as_str(),
                Holder::Executor(_, executor) => executor.as_str(),
            };
            format!("{whose} holds {}", held.resources)
        });
        let offered = self.offers.iter();
        let offered = offered.map(|(id, offer)| {
            let all = offer.regular.clone() + &offer.revocable;
            format!("{id} offers {all}")
        });
        held.chain(offered).collect::<Vec<_>>().join(", ")
    }

    /// What nobody holds and none of the offers has that are counted, nothing revocable; or the first resource of which there is not
    /// enough for holders and offers.
    fn beside(
        &self,
        at: Duration,
        counted: impl Fn(&FrameworkId) -> bool,
    ) -> Result<Resources, String> {
        let counted = self
            .offers
            .values()
            .filter(|offer| counted(&offer.framework));
        let mut rest = self.rest.clone();
        let mut revocable = Resources::new();
        for offer in counted {
            if let Err(shortage) = rest.subtract(&offer.regular) {
                let has = self.what_is_there();
                return Err(format!("of its total {}: {shortage}; {has}", self.total));
            }
            revocable += &offer.revocable;
        }
        if revocable.is_empty() {
            return Ok(rest);
        }
        // It may lend less by now than is held: of what is short nothing is offered.
        let held = self.holders.values().map(|held| held.resources.revocable());
        let held: Resources = held.sum();
        let fits = |lent: &Resources| lent.saturating_sub(&held).contains(&revocable);
        let before = self.lent_before.as_ref().filter(|(_, until)| at <= *until);
        if fits(&self.lent) || before.is_some_and(|(lent, _)| fits(lent)) {
            return Ok(rest);
        }
        let has = self.what_is_there();
        Err(format!("of the {} it lends: {revocable}; {has}", self.lent))
    }
}

impl Allocations {
    fn registered(&mut self, registration: Registration, at: Duration) -> Result<(), String> {
        let Registration {
            node,
            agent_id,
            arrival,
        } = registration;
        let unwanted = self.unwanted.remove(&node).unwrap_or_default();
        if !arrival.made.is_empty() {
            self.returned.doubt(&agent_id);
        }
        let before = self.agents.remove(&agent_id);
        let knew = before.as_ref().is_some_and(|one| !one.node.is_empty());
        if !knew && arrival.part.as_ref().is_some_and(Part::leaves_out) {
            // The last master had it, and this one knows of that by the mirror.
            self.returned.doubt(&agent_id);
        }
        let mut agent = Agent {
            node: node.clone(),
            rest: arrival.agent.resources.clone(),
            total: arrival.agent.resources,
            lent: arrival.oversubscribed,
            ..Agent::default()
        };
        let mut short = None;
        let mut hold = |agent: &mut Agent, holder: Holder, held: &Held| {
            if !unwanted.has(&holder) && !agent.hold(holder.clone(), &held.resources, held.sent) {
                short.get_or_insert(holder);
            }
        };
        // What the agent did not tell is what its master had.
        let part = arrival.part;
        let untold = |holder: &Holder| part.as_ref().is_some_and(|part| !holder.is_in(part));
        for (holder, held) in before.iter().flat_map(|before| &before.holders) {
            if untold(holder) {
                hold(&mut agent, holder.clone(), held);
            }
        }
        for running in arrival.held.executors {
            let held = Held::reported(running.info.resources);
            let holder = Holder::Executor(running.framework_id, running.info.executor_id);
            hold(&mut agent, holder, &held);
        }
        for running in arrival.held.tasks {
            if !running.state.is_terminal() {
                let held = Held::reported(running.info.resources);
                let holder = Holder::Task(running.framework_id, running.info.task_id);
                hold(&mut agent, holder, &held);
            }
        }
        // What was said of it at this very moment followed: its welcome left a little later. All else was taken back.
        for (holder, held) in before.iter().flat_map(|before| &before.holders) {
            if held.sent == Some(at) && !agent.holders.contains_key(holder) {
                let fits = agent.hold(holder.clone(), &held.resources, held.sent);
                short = short.or((!fits).then(|| holder.clone()));
            }
        }
        for (id, offer) in before.into_iter().flat_map(|before| before.offers) {
            match offer.made == at {
                true => drop(agent.offers.insert(id, offer)),
                false => drop(self.offered.remove(&id)),
            }
        }
        let what = short.map(|short| {
            format!(
                "agent {agent_id} has more than its total {}: no room for {short:?}",
                agent.total
            )
        });
        self.by_node.insert(node, agent_id.clone());
        self.agents.insert(agent_id, agent);
        what.map_or(Ok(()), Err)
    }

    fn offers(&mut self, made: &OffersMade, to: &str, at: Duration) -> Result<(), String> {
        let mut touched = BTreeSet::new();
        for offer in &made.offers {
            let agent = self.agents.entry(offer.agent_id.clone()).or_default();
            let resources = bare(&offer.resources);
            let offered = Offered {
                framework: offer.framework_id.clone(),
                regular: resources.non_revocable(),
                revocable: resources.revocable(),
                to: to.to_owned(),
                made: at,
            };
            agent.offers.insert(offer.id.clone(), offered);
            self.offered
                .insert(offer.id.clone(), offer.agent_id.clone());
            touched.insert((&offer.agent_id, &offer.framework_id));
        }
        for (agent_id, framework) in touched {
            let agent = &self.agents[agent_id];
            if is_in_doubt(agent, &self.registrations) {
                continue;
            }
            self.judgements += 1;
            let excess = match agent.beside(at, |_| true) {
                // Where all offers fit, so do some of them: nearly always nothing else needs to be worked out.
                Ok(left) => {
                    self.returned.left(agent_id, &left, at);
                    continue;
                }
                Err(excess) => excess,
            };
            self.returned.left(agent_id, &agent.left(), at);
            // The master has just spoken to this one, so its link holds.
            if let Err(excess) = agent.beside(at, |owner| owner == framework) {
                return Err(format!(
                    "agent {agent_id} has been offered to {framework} beyond what is there, {excess}"
                ));
            }
            let others = agent.offers.values().map(|offer| offer.framework.clone());
            let unproven: BTreeSet<_> = others.filter(|owner| owner != framework).collect();
            let what = format!(
                "agent {agent_id} was offered to {framework} at {at:?} while others had the same, {excess}"
            );
            self.charges.push(Charge { at, unproven, what });
        }
        Ok(())
    }

    /// The master speaks to a framework's scheduler: in its books the link has held since the subscription.
    fn proven(&mut self, spoken: &Spoken<'_>) -> Result<(), (Duration, String)> {
        if self.charges.is_empty() || !is_for_scheduler(spoken) {
            return Ok(());
        }
        let Some(framework) = self.frameworks.of_node(spoken.to) else {
            return Ok(());
        };
        if self.frameworks.asking(spoken.to).next().is_some() {
            return Ok(()); // This may follow a new subscription.
        }
        for charge in &mut self.charges {
            charge.unproven.remove(framework);
            if charge.unproven.is_empty() {
                return Err((charge.at, std::mem::take(&mut charge.what)));
            }
        }
        Ok(())
    }

    fn run(&mut self, run: &RunTasks, at: Duration) -> Result<(), String> {
        let Some(framework) = &run.framework.id else {
            return Ok(());
        };
        for task in &run.tasks {
            let agent = self.agents.entry(task.agent_id.clone()).or_default();
            let in_doubt = is_in_doubt(agent, &self.registrations);
            self.judgements += u64::from(!in_doubt);
            let mut fits = true;
            if let Some(executor) = &task.executor {
                let holder = Holder::Executor(framework.clone(), executor.executor_id.clone());
                let exited = self.exited.0 == at && self.exited.1.contains(&holder);
                if exited {
                    self.returned.doubt(&task.agent_id);
                }
                if !agent.holders.contains_key(&holder) && !exited {
                    fits &= agent.hold(holder, &executor.resources, Some(at));
                }
            }
            let holder = Holder::Task(framework.clone(), task.task_id.clone());
            agent.free(&holder);
            fits &= agent.hold(holder, &task.resources, Some(at));
            if !fits && !in_doubt {
                return Err(format!(
                    "task {} of {framework} needs {}, but of {} only {} is left on agent {}",
                    task.task_id, task.resources, agent.total, agent.rest, task.agent_id
                ));
            }
        }
        Ok(())
    }

    fn no_longer_offered(&mut self, id: &OfferId) {
        let agent = self.offered.remove(id);
        if let Some(agent) = agent.and_then(|agent| self.agents.get_mut(&agent)) {
            agent.offers.remove(id);
        }
    }

    fn framework_gone(&mut self, framework: &FrameworkId) {
        for agent in self.agents.values_mut() {
            agent.free_all(framework);
        }
        self.charges
            .retain(|charge| !charge.unproven.contains(framework));
    }

    /// The framework has a new subscription: its earlier offers were taken back, and what was noted cannot be shown any more.
    fn subscribed(&mut self, framework: &FrameworkId, node: &str, at: Duration) {
        let is_new = |offer: &Offered| offer.made == at && offer.to == node;
        for agent in self.agents.values_mut() {
            let offers = &mut agent.offers;
            offers.retain(|_, offer| offer.framework != *framework || is_new(offer));
        }
        self.charges
            .retain(|charge| !charge.unproven.contains(framework));
    }

    fn said(&mut self, spoken: &Spoken<'_>, at: Duration) -> Result<(), (Duration, String)> {
        self.proven(spoken)?;
        let now = |what| (at, what);
        if let Some(made) = spoken.is::<OffersMade>() {
            if self.frameworks.asking(spoken.to).next().is_some() {
                // The first offers after a new subscription may leave before its answer does.
                let to: BTreeSet<_> = made.offers.iter().map(|o| &o.framework_id).collect();
                to.into_iter()
                    .for_each(|to| self.subscribed(to, spoken.to, at));
            }
            self.offers(made, spoken.to, at).map_err(now)?;
        } else if let Some(run) = spoken.is::<RunTasks>() {
            self.run(run, at).map_err(now)?;
        } else if let Some(rescinded) = spoken.is::<OfferRescinded>() {
            self.no_longer_offered(&rescinded.offer_id);
        } else if let Some(gone) = spoken.is::<ShutDownFramework>() {
            if let Some(agent) = self.at_node(spoken.to) {
                agent.free_all(&gone.framework_id);
            }
            let unwanted = self.unwanted.entry(spoken.to.to_owned()).or_default();
            unwanted.frameworks.insert(gone.framework_id.clone());
        } else if let Some(StatusChanged { status }) = spoken.is::<StatusChanged>() {
            // Among others: tasks that could not be sent after all.
            if status.state.is_terminal()
                && let Some(framework) = self.frameworks.of_node(spoken.to)
                && let Some(agent) = &status.agent_id
                && let Some(agent) = self.agents.get_mut(agent)
            {
                agent.free(&Holder::Task(framework.clone(), status.task_id.clone()));
            }
        } else if spoken.is::<ApplyOperation>().is_some() {
            if let Some(agent) = self.by_node.get(spoken.to) {
                self.returned.doubt(agent);
            }
        } else if let Some(disowned) = spoken.is::<DisownTasks>() {
            for (framework, task) in &disowned.tasks {
                if let Some(agent) = self.at_node(spoken.to) {
                    agent.free(&Holder::Task(framework.clone(), task.clone()));
                }
            }
            let unwanted = self.unwanted.entry(spoken.to.to_owned()).or_default();
            unwanted.tasks.extend(disowned.tasks.iter().cloned());
        }
        Ok(())
    }

    fn heard(&mut self, spoken: &Spoken<'_>, at: Duration) {
        if let Some(answer) = spoken.is::<AcceptOffers>() {
            answer
                .offer_ids
                .iter()
                .for_each(|id| self.no_longer_offered(id));
        } else if let Some(answer) = spoken.is::<DeclineOffers>() {
            answer
                .offer_ids
                .iter()
                .for_each(|id| self.no_longer_offered(id));
        } else if let Some(updated) = spoken.is::<TaskUpdated>() {
            let update = &updated.update;
            if update.latest_state.is_terminal() || update.status.state.is_terminal() {
                let task = update.status.task_id.clone();
                if let Some(agent) = self.agents.get_mut(&updated.agent_id) {
                    agent.free(&Holder::Task(update.framework_id.clone(), task));
                }
            }
        } else if let Some(exited) = spoken.is::<ExecutorExited>() {
            let executor = exited.executor_id.clone();
            let holder = Holder::Executor(exited.framework_id.clone(), executor);
            if let Some(agent) = self.agents.get_mut(&exited.agent_id) {
                agent.free(&holder);
            }
            if self.exited.0 != at {
                self.exited = (at, BTreeSet::new());
            }
            self.exited.1.insert(holder);
        } else if let Some(changed) = spoken.is::<OversubscribedChanged>() {
            if let Some(agent) = self.agents.get_mut(&changed.agent_id) {
                let before = std::mem::replace(&mut agent.lent, changed.total.clone());
                agent.lent_before = Some((before, at + GRACE));
            }
        } else if let Some(over) = spoken.is::<TearDown>() {
            self.framework_gone(&over.framework_id);
        } else if spoken.is::<RegisterAgent>().is_some() || spoken.is::<ReregisterAgent>().is_some()
        {
            self.unwanted.remove(spoken.from);
        }
    }

    fn at_node(&mut self, node: &str) -> Option<&mut Agent> {
        let agent = self.agents.get_mut(self.by_node.get(node)?)?;
        (agent.node == node).then_some(agent)
    }
}

/// As it was before operations, and allocated to nobody.
fn bare(resources: &Resources) -> Resources {
    resources.unallocate().before_operations()
}

/// Whether the books of this agent are about to be made anew, so that it cannot be judged just now.
fn is_in_doubt(agent: &Agent, registrations: &Registrations) -> bool {
    agent.node.is_empty() || registrations.is_asking(&agent.node)
}

impl Checker for Allocations {
    fn name(&self) -> &'static str {
        NAME
    }

    fn see(&mut self, event: &Event<'_>) -> Result<(), Violation> {
        if let Some(framework) = self.frameworks.see(event)
            && let Some(newest) = self.frameworks.get(&framework)
        {
            let node = newest.node.clone();
            self.subscribed(&framework, &node, event.at);
        }
        if let Some(registration) = self.registrations.see(event) {
            self.judgements += 1;
            return self
                .registered(registration, event.at)
                .or_else(|what| broken(NAME, event.at, what));
        }
        match event.what {
            What::Said(spoken) => self
                .said(&spoken, event.at)
                .or_else(|(at, what)| broken(NAME, at, what)),
            What::Heard(spoken) => {
                self.heard(&spoken, event.at);
                Ok(())
            }
            What::RegistryAsked { request, .. } => {
                if let Some(agent_id) = given_up(request) {
                    self.agents.remove(agent_id);
                }
                Ok(())
            }
            What::NodeEnded { .. } if self.frameworks.lost_master(event) => {
                *self = Self {
                    registrations: std::mem::take(&mut self.registrations),
                    frameworks: std::mem::take(&mut self.frameworks),
                    judgements: self.judgements,
                    ..Self::default()
                };
                Ok(())
            }
            What::FaultsOver => {
                self.returned.faults_over(event.at);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn is_waiting(&mut self, _: Duration) -> bool {
        self.returned.lost().is_err()
    }

    fn finish(&mut self, at: Duration) -> Result<(), Violation> {
        self.judgements += self.returned.judgements();
        self.returned.lost().or_else(|what| broken(NAME, at, what))
    }

    fn judgements(&self) -> u64 {
        self.judgements
    }
}

#[cfg(test)]
mod tests;
