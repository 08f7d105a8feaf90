//! Allocations: offers and tasks of an agent never exceed its total, nor, for revocable resources,
//! the lent ones.
//!
//! Judged at each offer and each launch, in the master's own order. Offers count from their making
//! until the master rescinds them or handles the answer. Tasks and executors count from their
//! sending (or from the registration of an agent that reports them) until the master handles their
//! end, disowns them, or their framework goes.
//!
//! Sound, because each end counts from its first sign, so that the count is never more than the
//! master holds. One end has no sign: offers of a framework whose link broke are rescinded
//! silently. So an excess that depends on another framework's offers is only recorded. It becomes a
//! violation when the master sends to that framework again without a new subscription, which proves
//! that it never took the link for broken. The lent resources may change while a grant is on its
//! way from the allocator: for [`GRACE`] the previous ones count too.
//!
//! That ended tasks return their resources is checked by `returned`.
//!
//! Operations change the owner and name of resources, never the amount: everything is counted as
//! before operations (`agent_resources` checks their results). Resources reserved for a role that
//! wants nothing are neither used nor offered, so that they are exempt from `returned`.
//!
//! Not judged: what agents actually run. A master may free resources whose tasks an agent is still
//! killing (a removed framework, a lost agent).

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

pub(in crate::checkers) use self::holder::Holder;
use self::returned::Returned;
use crate::checkers::checker::{Checker, Violation};
use crate::checkers::masters::membership::{
    Frameworks, Part, Registration, Registrations, is_for_scheduler,
};
use crate::checkers::{broken, given_up};
use crate::event::{Event, EventKind, SeenMessage};

/// Maximum time of a grant from the allocator to its master.
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

/// An offer, in the two parts in which it is compared.
struct Offered {
    framework: FrameworkId,
    regular: Resources,
    revocable: Resources,
    /// The node of the scheduler that received it.
    to: String,
    made: Duration,
}

/// An agent in its master's view. Without a node its registration is not answered yet.
#[derive(Default)]
struct Agent {
    node: String,
    total: Resources,
    /// The regular resources that no task or executor holds.
    rest: Resources,
    holders: BTreeMap<Holder, Held>,
    offers: BTreeMap<OfferId, Offered>,
    lent: Resources,
    /// The previous lent total, and until when it counts.
    lent_before: Option<(Resources, Duration)>,
}

/// An excess that is a violation unless the link of one of these frameworks was broken.
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
    /// Executors whose end the master has just received: a launch at the same moment may have been
    /// decided before.
    exited: (Duration, BTreeSet<Holder>),
    /// Tasks disowned before the registration was answered.
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
    /// Takes resources for a task or an executor. `false` if there are not enough.
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

    /// The regular resources neither held nor offered; less if the offers exceed them.
    fn left(&self) -> Resources {
        let mut left = self.rest.clone();
        for offer in self.offers.values() {
            left.saturating_sub_assign(&offer.regular);
        }
        left
    }

    /// The holders and their resources, as text.
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

    /// The regular resources neither held nor in counted offers; or the first resource that is
    /// short.
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
        // The agent may lend less than is held by now: of a resource that is short nothing is
        // offered.
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
            // The previous master had it, and this one knows it from the mirror.
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
        // Tasks omitted in the report are as its master had them.
        let part = arrival.part;
        let unreported = |holder: &Holder| part.as_ref().is_some_and(|part| !holder.is_in(part));
        for (holder, held) in before.iter().flat_map(|before| &before.holders) {
            if unreported(holder) {
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
        // Tasks sent at this very moment follow the registration, whose answer leaves a little
        // later. All others were removed.
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
                // If all offers fit, so does every subset: nearly always this suffices.
                Ok(left) => {
                    self.returned.left(agent_id, &left, at);
                    continue;
                }
                Err(excess) => excess,
            };
            self.returned.left(agent_id, &agent.left(), at);
            // The master has just sent to this one, so its link holds.
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

    /// The master sends to a framework's scheduler: in its view the link has held since the
    /// subscription.
    fn proven(&mut self, observed: &SeenMessage<'_>) -> Result<(), (Duration, String)> {
        if self.charges.is_empty() || !is_for_scheduler(observed) {
            return Ok(());
        }
        let Some(framework) = self.frameworks.of_node(observed.to) else {
            return Ok(());
        };
        if self.frameworks.asking(observed.to).next().is_some() {
            return Ok(()); // this may follow a new subscription
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

    /// The framework has a new subscription: its earlier offers were rescinded, and recorded
    /// excesses can no longer be proved.
    fn subscribed(&mut self, framework: &FrameworkId, node: &str, at: Duration) {
        let is_new = |offer: &Offered| offer.made == at && offer.to == node;
        for agent in self.agents.values_mut() {
            let offers = &mut agent.offers;
            offers.retain(|_, offer| offer.framework != *framework || is_new(offer));
        }
        self.charges
            .retain(|charge| !charge.unproven.contains(framework));
    }

    fn on_sent(
        &mut self,
        observed: &SeenMessage<'_>,
        at: Duration,
    ) -> Result<(), (Duration, String)> {
        self.proven(observed)?;
        let now = |what| (at, what);
        if let Some(made) = observed.is::<OffersMade>() {
            if self.frameworks.asking(observed.to).next().is_some() {
                // The first offers after a new subscription may be sent before its answer.
                let to: BTreeSet<_> = made.offers.iter().map(|o| &o.framework_id).collect();
                to.into_iter()
                    .for_each(|to| self.subscribed(to, observed.to, at));
            }
            self.offers(made, observed.to, at).map_err(now)?;
        } else if let Some(run) = observed.is::<RunTasks>() {
            self.run(run, at).map_err(now)?;
        } else if let Some(rescinded) = observed.is::<OfferRescinded>() {
            self.no_longer_offered(&rescinded.offer_id);
        } else if let Some(gone) = observed.is::<ShutDownFramework>() {
            if let Some(agent) = self.at_node(observed.to) {
                agent.free_all(&gone.framework_id);
            }
            let unwanted = self.unwanted.entry(observed.to.to_owned()).or_default();
            unwanted.frameworks.insert(gone.framework_id.clone());
        } else if let Some(StatusChanged { status }) = observed.is::<StatusChanged>() {
            // Among others: tasks that could not be sent.
            if status.state.is_terminal()
                && let Some(framework) = self.frameworks.of_node(observed.to)
                && let Some(agent) = &status.agent_id
                && let Some(agent) = self.agents.get_mut(agent)
            {
                agent.free(&Holder::Task(framework.clone(), status.task_id.clone()));
            }
        } else if observed.is::<ApplyOperation>().is_some() {
            if let Some(agent) = self.by_node.get(observed.to) {
                self.returned.doubt(agent);
            }
        } else if let Some(disowned) = observed.is::<DisownTasks>() {
            for (framework, task) in &disowned.tasks {
                if let Some(agent) = self.at_node(observed.to) {
                    agent.free(&Holder::Task(framework.clone(), task.clone()));
                }
            }
            let unwanted = self.unwanted.entry(observed.to.to_owned()).or_default();
            unwanted.tasks.extend(disowned.tasks.iter().cloned());
        }
        Ok(())
    }

    fn on_received(&mut self, observed: &SeenMessage<'_>, at: Duration) {
        if let Some(answer) = observed.is::<AcceptOffers>() {
            answer
                .offer_ids
                .iter()
                .for_each(|id| self.no_longer_offered(id));
        } else if let Some(answer) = observed.is::<DeclineOffers>() {
            answer
                .offer_ids
                .iter()
                .for_each(|id| self.no_longer_offered(id));
        } else if let Some(updated) = observed.is::<TaskUpdated>() {
            let update = &updated.update;
            if update.latest_state.is_terminal() || update.status.state.is_terminal() {
                let task = update.status.task_id.clone();
                if let Some(agent) = self.agents.get_mut(&updated.agent_id) {
                    agent.free(&Holder::Task(update.framework_id.clone(), task));
                }
            }
        } else if let Some(exited) = observed.is::<ExecutorExited>() {
            let executor = exited.executor_id.clone();
            let holder = Holder::Executor(exited.framework_id.clone(), executor);
            if let Some(agent) = self.agents.get_mut(&exited.agent_id) {
                agent.free(&holder);
            }
            if self.exited.0 != at {
                self.exited = (at, BTreeSet::new());
            }
            self.exited.1.insert(holder);
        } else if let Some(changed) = observed.is::<OversubscribedChanged>() {
            if let Some(agent) = self.agents.get_mut(&changed.agent_id) {
                let before = std::mem::replace(&mut agent.lent, changed.total.clone());
                agent.lent_before = Some((before, at + GRACE));
            }
        } else if let Some(over) = observed.is::<TearDown>() {
            self.framework_gone(&over.framework_id);
        } else if observed.is::<RegisterAgent>().is_some()
            || observed.is::<ReregisterAgent>().is_some()
        {
            self.unwanted.remove(observed.from);
        }
    }

    fn at_node(&mut self, node: &str) -> Option<&mut Agent> {
        let agent = self.agents.get_mut(self.by_node.get(node)?)?;
        (agent.node == node).then_some(agent)
    }
}

/// The resources without operations and allocation.
fn bare(resources: &Resources) -> Resources {
    resources.unallocate().without_operations()
}

/// Whether this agent's state is about to be replaced, so that it cannot be judged now.
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
        match event.kind {
            EventKind::Sent(observed) => self
                .on_sent(&observed, event.at)
                .or_else(|(at, what)| broken(NAME, at, what)),
            EventKind::Received(observed) => {
                self.on_received(&observed, event.at);
                Ok(())
            }
            EventKind::RegistryRequested { request, .. } => {
                if let Some(agent_id) = given_up(request) {
                    self.agents.remove(agent_id);
                }
                Ok(())
            }
            EventKind::NodeEnded { .. } if self.frameworks.lost_master(event) => {
                *self = Self {
                    registrations: std::mem::take(&mut self.registrations),
                    frameworks: std::mem::take(&mut self.frameworks),
                    judgements: self.judgements,
                    ..Self::default()
                };
                Ok(())
            }
            EventKind::FaultsOver => {
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
