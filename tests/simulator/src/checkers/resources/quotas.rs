//! Quotas: no offer takes a role beyond its limits or those of its ancestors (SPEC 3.4).
//!
//! Judged at each offer, in the master's own order: for each amount in the offer that is limited
//! for its role or an ancestor, the resources held in that role and below, with those on offer
//! there, are at most the limit. A role may hold more, since a limit may be set after tasks were
//! launched: then nothing of that amount is offered.
//!
//! Sound, because the count is never more than the master's. Ends count from their first sign,
//! beginnings from the next moment. Only offers to the receiving framework count, since other links
//! may have broken silently. Reserved resources do not count, though a master charges them. A limit
//! counts [`GRACE`] after the registry has recorded it, for a grant may be in flight. Revocable
//! resources do not count.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use master::registry::RegistryOperation;
use protocol::message::registration::{AgentInventory as Told, DisownTasks};
use protocol::message::scheduler::{
    AcceptOffers, DeclineOffers, OfferRescinded, OffersMade, StatusChanged, TearDown,
};
use protocol::message::task::{ExecutorExited, RunTasks, ShutDownFramework, TaskUpdated};
use protocol::{AgentId, FrameworkId, OfferId, Quota};
use resources::{Name, Quantities, Resources, Role, Scalar};

use super::allocations::Holder;
use crate::checkers::checker::{Checker, Violation};
use crate::checkers::masters::membership::{Frameworks, Registration, Registrations};
use crate::checkers::masters::records::{Learned, Records};
use crate::checkers::{broken, given_up};
use crate::event::{Event, EventKind, SeenMessage};

/// Maximum time of a grant from the allocator to its master.
const GRACE: Duration = Duration::from_secs(1);

const NAME: &str = "quotas";

/// Unreserved amounts by role, computed when a limit needs them, which is rare.
struct Amounts {
    of: Resources,
    by_role: OnceCell<Vec<(Role, Quantities)>>,
}

impl Amounts {
    fn new(of: &Resources) -> Self {
        Self {
            of: of.clone(),
            by_role: OnceCell::new(),
        }
    }

    fn by_role(&self) -> &[(Role, Quantities)] {
        self.by_role.get_or_init(|| {
            let allocated = self.of.open().allocations().into_iter();
            allocated
                .map(|(role, own)| (role, own.quantities()))
                .collect()
        })
    }

    /// The amount of that name within the role.
    fn within(&self, role: &Role, name: &Name) -> Scalar {
        let within = self.by_role().iter();
        let within = within.filter(|(own, _)| own.is_within(role));
        within.map(|(_, amounts)| amounts.get(name)).sum()
    }
}

struct Held {
    agent: AgentId,
    amounts: Amounts,
    since: Duration,
}

struct Offered {
    framework: FrameworkId,
    agent: AgentId,
    amounts: Amounts,
}

struct InForce {
    limits: Quantities,
    since: Duration,
}

/// The checker.
#[derive(Default)]
pub struct Quotas {
    registrations: Registrations,
    frameworks: Frameworks,
    records: Records,
    limits: BTreeMap<Role, InForce>,
    /// The agents' nodes.
    agents: BTreeMap<AgentId, String>,
    holders: BTreeMap<Holder, Held>,
    offers: BTreeMap<OfferId, Offered>,
    judgements: u64,
}

impl Quotas {
    fn registered(&mut self, registration: Registration, at: Duration) {
        let Registration {
            node,
            agent_id,
            arrival,
        } = registration;
        // Omitted tasks are as its master had them; tasks sent at this very moment follow.
        let unreported = |holder: &Holder| arrival.part.as_ref().is_some_and(|p| !holder.is_in(p));
        self.holders.retain(|holder, held| {
            held.agent != agent_id || held.since == at || unreported(holder)
        });
        self.offers.retain(|_, offered| offered.agent != agent_id);
        self.report(&agent_id, arrival.held, at);
        self.agents.insert(agent_id, node);
    }

    fn report(&mut self, agent: &AgentId, told: Told, at: Duration) {
        for running in told.executors {
            let holder = Holder::Executor(running.framework_id, running.info.executor_id);
            self.hold(agent, holder, &running.info.resources, at);
        }
        for running in told.tasks {
            if !running.state.is_terminal() {
                let holder = Holder::Task(running.framework_id, running.info.task_id);
                self.hold(agent, holder, &running.info.resources, at);
            }
        }
    }

    fn hold(&mut self, agent: &AgentId, holder: Holder, resources: &Resources, at: Duration) {
        self.holders.entry(holder).or_insert_with(|| Held {
            agent: agent.clone(),
            amounts: Amounts::new(resources),
            since: at,
        });
    }

    fn agent_gone(&mut self, agent: &AgentId) {
        self.agents.remove(agent);
        self.holders.retain(|_, held| held.agent != *agent);
        self.offers.retain(|_, offered| offered.agent != *agent);
    }

    fn framework_gone(&mut self, framework: &FrameworkId) {
        self.holders
            .retain(|holder, _| holder.framework() != framework);
        self.offers
            .retain(|_, offered| offered.framework != *framework);
    }

    fn learned(&mut self, learned: Learned<'_>, at: Duration) {
        match learned {
            Learned::Found(content) => self.set(&content.quotas, at),
            Learned::Changed(operation) => {
                if let RegistryOperation::UpdateQuotas { quotas } = &*operation {
                    self.set(quotas, at);
                }
            }
        }
    }

    fn set(&mut self, quotas: &BTreeMap<String, Quota>, at: Duration) {
        for (role, quota) in quotas {
            let Ok(role) = Role::new(role) else { continue };
            let limits = quota.limits.clone();
            let is_limited = limits.iter().len() > 0;
            match is_limited {
                true => drop(self.limits.insert(role, InForce { limits, since: at })),
                false => drop(self.limits.remove(&role)),
            }
        }
    }

    fn offered(&mut self, made: &OffersMade, at: Duration) -> Result<(), String> {
        let mut bears = BTreeSet::new();
        for offer in &made.offers {
            let amounts = Amounts::new(&offer.resources);
            if !self.limits.is_empty() {
                for (role, amounts) in amounts.by_role() {
                    let names = amounts.iter().filter(|(_, amount)| !amount.is_zero());
                    let names = names.map(|(name, _)| (role.clone(), name.clone()));
                    bears
                        .extend(names.map(|(role, name)| (offer.framework_id.clone(), role, name)));
                }
            }
            let offered = Offered {
                framework: offer.framework_id.clone(),
                agent: offer.agent_id.clone(),
                amounts,
            };
            self.offers.insert(offer.id.clone(), offered);
        }
        let known = self.limits.iter();
        let known = known.filter(|(_, one)| one.since + GRACE <= at);
        for (role, InForce { limits, .. }) in known {
            let of_role = bears.iter().filter(|(_, own, _)| own.is_within(role));
            for (framework, _, name) in of_role.filter(|(.., name)| limits.names(name)) {
                self.judgements += 1;
                let (held, offered) = self.count(role, framework, name, at);
                let limit = limits.get(name);
                if [held, offered].into_iter().sum::<Scalar>() > limit {
                    return Err(format!(
                        "role `{role}` is limited to {name}:{limit}, and {framework} is offered some while {offered} is on offer to it and {held} is held"
                    ));
                }
            }
        }
        Ok(())
    }

    /// The amount of that name held in the role and below, and on offer to that framework.
    fn count(
        &self,
        role: &Role,
        framework: &FrameworkId,
        name: &Name,
        at: Duration,
    ) -> (Scalar, Scalar) {
        let sure = |held: &&Held| {
            let node = self.agents.get(&held.agent);
            held.since < at && node.is_some_and(|node| !self.registrations.is_asking(node))
        };
        let held = self.holders.values().filter(sure);
        let held = held.map(|held| held.amounts.within(role, name)).sum();
        let offered = self.offers.values();
        let offered = offered.filter(|offered| offered.framework == *framework);
        let offered = offered.map(|offered| offered.amounts.within(role, name));
        (held, offered.sum())
    }

    fn on_sent(&mut self, observed: &SeenMessage<'_>, at: Duration) -> Result<(), String> {
        if let Some(made) = observed.is::<OffersMade>() {
            if self.frameworks.asking(observed.to).next().is_some() {
                // The first offers after a new subscription may be sent before its answer.
                let to: BTreeSet<_> = made.offers.iter().map(|o| &o.framework_id).collect();
                self.offers.retain(|_, one| !to.contains(&one.framework));
            }
            return self.offered(made, at);
        }
        if let Some(run) = observed.is::<RunTasks>() {
            let Some(framework) = &run.framework.id else {
                return Ok(());
            };
            for task in &run.tasks {
                let agent = &task.agent_id;
                if let Some(executor) = &task.executor {
                    let id = executor.executor_id.clone();
                    let holder = Holder::Executor(framework.clone(), id);
                    self.hold(agent, holder, &executor.resources, at);
                }
                let holder = Holder::Task(framework.clone(), task.task_id.clone());
                self.hold(agent, holder, &task.resources, at);
            }
        } else if let Some(rescinded) = observed.is::<OfferRescinded>() {
            self.offers.remove(&rescinded.offer_id);
        } else if let Some(gone) = observed.is::<ShutDownFramework>() {
            self.framework_gone(&gone.framework_id);
        } else if let Some(StatusChanged { status }) = observed.is::<StatusChanged>() {
            if status.state.is_terminal()
                && let Some(framework) = self.frameworks.of_node(observed.to)
            {
                let holder = Holder::Task(framework.clone(), status.task_id.clone());
                self.holders.remove(&holder);
            }
        } else if let Some(disowned) = observed.is::<DisownTasks>() {
            for (framework, task) in &disowned.tasks {
                let holder = Holder::Task(framework.clone(), task.clone());
                self.holders.remove(&holder);
            }
        }
        Ok(())
    }

    fn on_received(&mut self, observed: &SeenMessage<'_>) {
        let answered = match observed.is::<AcceptOffers>() {
            Some(accept) => &accept.offer_ids[..],
            None => observed
                .is::<DeclineOffers>()
                .map_or(&[][..], |decline| &decline.offer_ids),
        };
        for id in answered {
            self.offers.remove(id);
        }
        if let Some(updated) = observed.is::<TaskUpdated>() {
            let update = &updated.update;
            if update.latest_state.is_terminal() || update.status.state.is_terminal() {
                let task = update.status.task_id.clone();
                let holder = Holder::Task(update.framework_id.clone(), task);
                self.holders.remove(&holder);
            }
        } else if let Some(exited) = observed.is::<ExecutorExited>() {
            let id = exited.executor_id.clone();
            let holder = Holder::Executor(exited.framework_id.clone(), id);
            self.holders.remove(&holder);
        } else if let Some(over) = observed.is::<TearDown>() {
            self.framework_gone(&over.framework_id);
        }
    }
}

impl Checker for Quotas {
    fn name(&self) -> &'static str {
        NAME
    }

    fn see(&mut self, event: &Event<'_>) -> Result<(), Violation> {
        let at = event.at;
        if let Some(framework) = self.frameworks.see(event) {
            self.offers.retain(|_, one| one.framework != framework);
        }
        if let Some(registration) = self.registrations.see(event) {
            self.registered(registration, at);
            return Ok(());
        }
        if let Some(learned) = self.records.see(event) {
            self.learned(learned, at);
        }
        match event.kind {
            EventKind::Sent(observed) => {
                return self
                    .on_sent(&observed, at)
                    .or_else(|what| broken(NAME, at, what));
            }
            EventKind::Received(observed) => self.on_received(&observed),
            EventKind::RegistryRequested { request, .. } => {
                if let Some(agent) = given_up(request) {
                    self.agent_gone(agent);
                }
            }
            _ => {}
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
    use crate::checkers::fixture::{Fixture, agent, framework, offer, resources, seconds, task};
    use crate::event::RegistryCaller;
    use protocol::digest::{self, DigestKey};
    use protocol::message::registration::RunningTask;
    use protocol::{FrameworkInfo, TaskInfo, TaskState};
    use resources::Revocable;

    fn role(text: &str) -> Role {
        Role::new(text).unwrap()
    }

    /// An offer of `f` in that role.
    fn in_role(id: &str, name: &str, what: &str) -> protocol::Offer {
        let mut offer = offer(id, "f", &resources(what));
        offer.resources = resources(what).allocate(&role(name));
        offer
    }

    fn task_in(id: &str, name: &str, needs: &str) -> TaskInfo {
        let mut task = task(id, needs);
        task.resources = task.resources.allocate(&role(name));
        task
    }

    fn limits(fixture: &mut Fixture<Quotas>, role: &str, limits: &str) {
        let quota = Quota {
            limits: Quantities::parse(limits).unwrap(),
            ..Quota::default()
        };
        let quotas = BTreeMap::from([(role.to_owned(), quota)]);
        fixture.recorded(RegistryOperation::UpdateQuotas { quotas });
    }

    /// `eng` is limited to four cores, and has one task with three.
    fn fixture() -> Fixture<Quotas> {
        let mut fixture = Fixture::new(Quotas::default(), "cpus:16;mem:99");
        limits(&mut fixture, "eng", "cpus:4");
        fixture
            .runs(&[task_in("t", "eng", "cpus:3")])
            .wait(seconds(2));
        fixture
    }

    fn offers(fixture: &mut Fixture<Quotas>, role: &str, what: &[&str]) {
        for (number, what) in what.iter().enumerate() {
            let id = format!("o{number}-{}", role.replace('/', "-"));
            fixture.offers("framework-1", &[in_role(&id, role, what)]);
        }
    }

    #[test]
    fn use_and_offers_stay_within_limits() {
        for (within, clean) in [("eng", true), ("eng/dev", true), ("engine", false)] {
            let mut fixture = fixture();
            offers(&mut fixture, within, &["cpus:1;mem:9"]);
            offers(&mut fixture, within, &["mem:50"]);
            offers(&mut fixture, "other", &["cpus:9"]);
            match clean {
                true => fixture.is_clean(),
                false => assert_eq!(fixture.checker.judgements(), 0),
            }
            let mut fixture = self::fixture();
            offers(&mut fixture, within, &["cpus:0.5", "cpus:0.501"]);
            if clean {
                fixture.is_broken("role `eng` is limited to cpus:4");
            }
        }
    }

    #[test]
    fn role_above_its_limit_gets_no_offer() {
        let mut more = fixture();
        limits(&mut more, "eng", "cpus:2");
        more.wait(GRACE);
        offers(&mut more, "eng", &["cpus:0.1"]);
        more.is_broken("3 is held");
        let mut at_once = fixture();
        limits(&mut at_once, "eng", "cpus:2");
        offers(&mut at_once, "eng", &["cpus:0.1"]);
        assert_eq!(at_once.checker.judgements(), 0);
    }

    #[test]
    fn ended_revocable_and_reserved_do_not_count() {
        let mut ended = fixture();
        ended.task_ended("t");
        offers(&mut ended, "eng", &["cpus:4"]);
        ended.declines(&["o0-eng"]);
        offers(&mut ended, "eng", &["cpus:4"]);
        ended.is_clean();
        let mut lent = fixture();
        let mut offer = in_role("o", "eng", "cpus:9");
        offer.resources = offer
            .resources
            .to_revocable(Revocable::Throttleable)
            .unwrap();
        lent.offers("framework-1", &[offer]);
        offers(&mut lent, "eng", &["cpus(eng):9;cpus:1"]);
        lent.is_clean();
    }

    #[test]
    fn reregistered_agent_has_its_reported_tasks() {
        let running = RunningTask {
            framework_id: framework(),
            info: task_in("t", "eng", "cpus:3"),
            state: TaskState::Running,
        };
        for (held, clean) in [(vec![running], false), (Vec::new(), true)] {
            let mut fixture = fixture();
            fixture.register("cpus:16", "", held).wait(seconds(1));
            offers(&mut fixture, "eng", &["cpus:2"]);
            match clean {
                true => fixture.is_clean(),
                false => fixture.is_broken("is limited"),
            }
        }
    }

    #[test]
    fn removed_agent_does_not_count() {
        let agent_id = agent();
        let since = Default::default();
        let gone = RegistryOperation::MarkAgentGone { agent_id, since };
        let removed = RegistryOperation::RemoveAgent { agent_id: agent() };
        for given_up in [gone, removed] {
            let mut fixture = fixture();
            fixture.fact(EventKind::RegistryRequested {
                node: "master",
                by: RegistryCaller::Master,
                call: 2,
                request: &given_up.into(),
            });
            offers(&mut fixture, "eng", &["cpus:4"]);
            fixture.is_clean();
        }
    }

    /// It may report that its task has ended, and the master may have handled that already.
    #[test]
    fn unanswered_agent_does_not_count() {
        let nothing = digest::Digest::default().summary(DigestKey::new([0; 16]));
        let mut asking = fixture();
        asking.asks_to_return("cpus:16", nothing, None);
        offers(&mut asking, "eng", &["cpus:4"]);
        asking.is_clean();
        let mut answered = fixture();
        answered.comes_back("cpus:16", true).wait(seconds(1));
        offers(&mut answered, "eng", &["cpus:4"]);
        answered.is_broken("3 is held");
    }

    #[test]
    fn new_master_knows_existing_limits() {
        let quota = Quota {
            limits: Quantities::parse("cpus:1").unwrap(),
            ..Quota::default()
        };
        let mut content = master::registry::RegistryState::default();
        content.quotas.insert("eng".to_owned(), quota);
        let mut fixture = Fixture::new(Quotas::default(), "cpus:16");
        fixture.reads(content);
        fixture.subscribe("framework-1", FrameworkInfo::new("user", "f"));
        fixture.wait(GRACE);
        offers(&mut fixture, "eng", &["cpus:2"]);
        fixture.is_broken("is limited to cpus:1");
    }
}
