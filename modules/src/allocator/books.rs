//! The books: who holds what on which agent, what is free there, and which agents a run need look at.
//!
//! Pure: hears the master's facts, each with the time at which it was heard. Remembers totals, holdings and filters. A fact about an unknown
//! framework or agent is passed over, as both may have removed it in either order. This file has the agents; all else is beside it.

mod book;
mod charging;
mod choosing;
mod departing;
mod exclusions;
mod explain;
mod filters;
mod frameworks;
mod listed;
mod looks;
mod operations;
mod packing;
mod quota;
mod returning;
mod revoking;
mod run;
mod shared;
mod side;

pub use book::{Booked, Refusal};
pub use explain::Case;
pub(super) use quota::chop;
pub use returning::Away;
pub use run::Asked;
pub use side::Side;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use module_api::allocator::{
    AgentActivity, AgentAdded, AgentOversubscribed, AgentRemoved, Begin, Recovered, RecoveryPause,
    WeightsChanged, Withdrawn,
};
use module_api::sorter::{Client, Pool};
use protocol::agent::Domain;
use protocol::{AgentId, Capability, FrameworkId};
use resources::{Attributes, Quantities, Resource, Resources, Role};
use runtime::Instant;
use rustc_hash::FxHashMap;
use smallvec::{SmallVec, smallvec};

use super::clients::{Clients, index};
use super::refused::{self, Refused};
use charging::Charging;
use departing::Departure;
use filters::Mark;
use quota::Quotas;
use returning::{Haste, Looked};
use shared::take_held;

/// One agent.
#[derive(Clone, Debug)]
pub struct Agent {
    /// Its id.
    pub id: AgentId,
    /// Never given to two agents, so that late advice finds no other in its place.
    pub serial: u64,
    /// The registration of it that the master told of; its grants bear it.
    pub session: u64,
    /// Whether the master has it offered.
    pub active: bool,
    /// Whether its host is on the whitelist, if there is one.
    listed: bool,
    /// Whether it has graphics processors, which only some frameworks want.
    pub gpus: bool,
    /// Whether it lies in another region than the master, which only some frameworks want.
    pub remote: bool,
    hostname: String,
    attributes: Attributes,
    domain: Option<Domain>,
    /// Regular and revocable, apart.
    pub sides: [Side; 2],
    /// Who refused what here.
    pub filters: Refused,
    mark: Mark,
}

/// One framework.
#[derive(Clone, Debug, Default)]
struct Framework {
    active: bool,
    /// How many unanswered offers it may hold, while it does (W8).
    budget_spent: Option<u64>,
    capabilities: BTreeSet<Capability>,
    haste: Haste,
}

/// Everything the allocator knows.
#[derive(Clone, Debug)]
pub struct Books {
    /// How long after one batch the next comes; also the shortest life of a filter.
    pub interval: Duration,
    /// What is worth an offer (SPEC 4.1).
    pub sets_min: Vec<Quantities>,
    /// The weights that are not 1.
    pub weights: BTreeMap<Role, f64>,
    /// The roles whose weight has changed since the sorter was last told.
    reweighed: BTreeSet<Role>,
    /// All frameworks by role.
    pub clients: Clients,
    agents: Vec<Option<Agent>>,
    unused: Vec<u32>,
    by_id: FxHashMap<AgentId, u32>,
    frameworks: FxHashMap<FrameworkId, Framework>,
    /// The agents that will be away.
    departing: BTreeMap<AgentId, Departure>,
    /// The sums over all agents, by pool, and whether the sorter knows them.
    totals: [(Quantities, bool); 2],
    quotas: Quotas,
    /// Where what is reserved is charged, used or not.
    charging: Option<Charging>,
    /// The agents on which tasks make room, by slot, each with the role that it is for: what nothing reserves there is kept together.
    kept: BTreeMap<u32, Role>,
    /// The hosts whose agents are offered, in small letters; `None` is all.
    whitelist: Option<BTreeSet<String>>,
    /// Until so many agents were added, nothing is granted.
    awaited: Option<usize>,
    marked: [Vec<u32>; 2],
    /// When all agents are looked at.
    everybody: Mark,
    looked: Looked,
    /// What was refused of late, on whatever agent.
    refusals: refused::Known,
    /// When filters end: of each client on each agent, the first.
    ends: BTreeSet<(Instant, u32, u64, Client)>,
    /// Agents that have graphics processors and are for those who take such.
    with_gpus: usize,
    /// Whether agents with graphics processors are like all others.
    gpus_for_all: bool,
    /// The part of the expected agents that ends the pause after a beginning.
    recovery_factor: f64,
    /// The master's region.
    region: Option<String>,
    serials: u64,
    epoch: u64,
    slates: u64,
}

impl Default for Books {
    fn default() -> Self {
        let set = |name, amount| Quantities::from_iter([(name, amount)]);
        let cpus = resources::Scalar::from_thousandths(10).unwrap_or_default();
        Self {
            interval: Duration::from_secs(1),
            sets_min: vec![
                set(resources::Name::Cpus, cpus),
                set(resources::Name::Mem, resources::Scalar::whole(32)),
            ],
            weights: BTreeMap::new(),
            reweighed: BTreeSet::new(),
            clients: Clients::default(),
            agents: Vec::new(),
            unused: Vec::new(),
            by_id: FxHashMap::default(),
            frameworks: FxHashMap::default(),
            departing: BTreeMap::new(),
            totals: Default::default(),
            quotas: Quotas::default(),
            charging: None,
            kept: BTreeMap::new(),
            whitelist: None,
            awaited: None,
            marked: Default::default(),
            everybody: Mark::Unmarked,
            looked: Looked::default(),
            refusals: refused::Known::default(),
            ends: BTreeSet::new(),
            with_gpus: 0,
            gpus_for_all: false,
            recovery_factor: RecoveryPause::default().factor,
            region: None,
            serials: 0,
            epoch: 0,
            slates: 0,
        }
    }
}

impl Books {
    /// Empty books, as `begin` wants them. Serials and epochs go on, so that answers to older questions are known as such.
    pub fn begin(&mut self, begin: &Begin) {
        *self = Self {
            interval: begin.allocation_interval.max(Duration::from_millis(1)),
            sets_min: std::mem::take(&mut self.sets_min),
            recovery_factor: self.recovery_factor,
            gpus_for_all: self.gpus_for_all,
            serials: self.serials,
            epoch: self.epoch + 1,
            region: begin.region.clone(),
            quotas: self.quotas.afresh(),
            charging: self.charging.take().map(|_| Charging::default()),
            ..Self::default()
        };
        self.weigh(&begin.weights);
        self.quotas.change(&begin.quotas);
        if !self.quotas.is_empty() {
            let awaited = begin.agents_expected as f64 * self.recovery_factor;
            self.awaited = Some(awaited as usize).filter(|awaited| *awaited > 0);
        }
    }

    /// Agents with graphics processors are offered to all, as those without.
    pub fn give_gpus_to_all(&mut self) {
        self.gpus_for_all = true;
    }

    /// This part of the expected agents ends the pause after a beginning.
    pub fn await_part(&mut self, factor: f64) {
        self.recovery_factor = factor;
    }

    /// Whether so few agents are back that nothing is granted, for the sake of guarantees (SPEC 4.4).
    pub fn is_paused(&self) -> bool {
        self.awaited.is_some()
    }

    /// The pause is over, however many agents are back.
    pub fn resume(&mut self) {
        self.awaited = None;
    }

    /// Some roles have other weights now, 1 being none. All agents are looked at: who goes first is another one everywhere, and only
    /// operators change weights.
    pub fn weights_changed(&mut self, changed: &WeightsChanged) {
        self.weigh(&changed.weights);
        self.mark_everybody(Mark::Run);
    }

    fn weigh(&mut self, weights: &BTreeMap<String, f64>) {
        for (text, weight) in weights {
            let role = match Role::new(text) {
                Ok(role) => role,
                Err(error) => {
                    tracing::warn!(%error, "a weight for no role is passed over");
                    continue;
                }
            };
            let sound = weight.is_finite() && *weight > 0.0;
            if !sound {
                let reason = "a weight must be above zero: it counts as 1";
                tracing::warn!(role = text, weight, reason);
            }
            if sound && *weight != 1.0 {
                self.weights.insert(role.clone(), *weight);
            } else {
                self.weights.remove(&role);
            }
            self.reweighed.insert(role);
        }
    }

    /// An agent may be offered; it replaces an earlier one of its id, of which refusals last if it looks as it did.
    pub fn agent_added(&mut self, added: AgentAdded) {
        let AgentAdded {
            agent_id,
            session,
            info,
            oversubscribed,
            used,
        } = added;
        let filters = self.filters_of(&agent_id, &info);
        let before = self.by_id.get(&agent_id);
        let kept = before.and_then(|slot| self.kept.get(slot).cloned());
        self.remove_agent(&agent_id);
        let slot = self.unused.pop().unwrap_or_else(|| {
            self.agents.push(None);
            u32::try_from(self.agents.len() - 1).unwrap_or(u32::MAX)
        });
        self.serials += 1;
        let regular = info.resources.non_revocable();
        let gpus = !regular.gpus().is_zero() && !self.gpus_for_all;
        self.agents[slot as usize] = Some(Agent {
            id: agent_id.clone(),
            serial: self.serials,
            session,
            active: true,
            listed: self.lists(&info.hostname),
            gpus,
            remote: self.is_remote(info.domain.as_ref()),
            hostname: info.hostname,
            attributes: info.attributes,
            domain: info.domain,
            sides: [
                Side::of(regular.unallocate()),
                Side::of(oversubscribed.revocable().unallocate()),
            ],
            filters: Refused::default(),
            mark: Mark::Unmarked,
        });
        self.by_id.insert(agent_id, slot);
        self.with_gpus += usize::from(gpus);
        self.count_totals(slot, true);
        self.touch(slot);
        for (framework, resources) in used {
            for (role, part) in self.by_role(&framework, &resources) {
                let client = self.clients.admit(&framework, &role);
                self.book_held(slot, client, &part);
            }
        }
        self.restore_filters(slot, filters);
        self.kept.extend(kept.map(|role| (slot, role)));
        self.mark(slot, Mark::Run);
        self.awaited = self.awaited.filter(|awaited| self.by_id.len() < *awaited);
    }

    /// An agent is no more; whatever was held there is free and gone.
    pub fn agent_removed(&mut self, removed: &AgentRemoved) {
        self.remove_agent(&removed.agent_id);
        self.departing.remove(&removed.agent_id);
    }

    fn remove_agent(&mut self, id: &AgentId) {
        let Some(slot) = self.by_id.remove(id) else {
            return;
        };
        self.count_totals(slot, false);
        let Some(agent) = self.agents[slot as usize].take() else {
            return;
        };
        self.unused.push(slot);
        self.kept.remove(&slot);
        self.clients.forget_verdicts(slot);
        self.touch(slot);
        self.with_gpus -= usize::from(agent.gpus);
        for (client, filters) in agent.filters {
            self.forget_end(slot, agent.serial, client, &filters);
            if let Some(member) = self.clients.get_mut(client) {
                member.filtered.remove(&slot);
            }
        }
        for (pool, side) in Pool::ALL.into_iter().zip(agent.sides) {
            for (client, held) in side.holders {
                self.clients.free(pool, client, &held.quantities());
                self.clients.leave(client);
                self.clients.release(client);
            }
        }
    }

    /// An agent is offered, or not for the present.
    pub fn agent_activity(&mut self, activity: &AgentActivity) {
        let Some((slot, agent)) = self.agent_by_id(&activity.agent_id) else {
            return;
        };
        agent.active = activity.active;
        self.touch(slot);
        if activity.active {
            self.mark(slot, Mark::Run);
        }
    }

    /// What an agent lends has changed. If more is held than it lends now, the difference is wanted back from what is only offered.
    pub fn agent_oversubscribed(&mut self, lent: AgentOversubscribed) -> Option<Withdrawn> {
        let (slot, _) = self.agent_by_id(&lent.agent_id)?;
        self.count_totals(slot, false);
        let agent = self.agents[slot as usize].as_mut()?;
        let side = &mut agent.sides[index(Pool::Revocable)];
        side.set_total(lent.total.revocable().unallocate());
        let resources = side.held().saturating_sub(&side.total);
        self.count_totals(slot, true);
        self.mark(slot, Mark::Run);
        let agent_id = lent.agent_id;
        (!resources.is_empty()).then_some(Withdrawn {
            agent_id,
            resources,
        })
    }

    /// What was held is free again, and perhaps refused for a while.
    pub fn recovered(&mut self, recovered: &Recovered, now: Instant) {
        let Recovered {
            framework_id,
            agent_id,
            resources,
            refuse,
            beside_offer,
        } = recovered;
        let Some((slot, _)) = self.agent_by_id(agent_id) else {
            return;
        };
        for (role, part) in self.by_role(framework_id, resources) {
            let Some(client) = self.clients.find(framework_id, &role) else {
                continue;
            };
            self.book_freed(slot, client, &part);
            if let Some(refuse) = refuse.filter(|refuse| !refuse.is_zero()) {
                self.add_filter(slot, client, part, now + refuse.max(self.interval));
            }
            self.clients.release(client);
        }
        // Refused for no time at all: if that began a run, who refuses everything at once would be asked without end.
        let refused_for_no_time = refuse.is_some_and(|refuse| refuse.is_zero());
        let waits_for_batch = refused_for_no_time || *beside_offer;
        self.mark(
            slot,
            match waits_for_batch {
                true => Mark::Batch,
                false => Mark::Run,
            },
        );
    }

    /// What a grant gave is taken back, as if it had never been.
    pub fn take_back(&mut self, agent_id: &AgentId, client: Client, granted: &Resources) {
        if let Some((slot, _)) = self.agent_by_id(agent_id) {
            self.book_freed(slot, client, &granted.unallocate());
            self.clients.release(client);
            self.mark(slot, Mark::Batch);
        }
    }

    /// Notes that `client` holds this on the agent, whether or not the agent has it.
    fn book_held(&mut self, slot: u32, client: Client, held: &Resources) {
        self.touch(slot);
        let Some(agent) = self.agents[slot as usize].as_mut() else {
            return;
        };
        for pool in Pool::ALL {
            let part = of_pool(held, pool);
            if !part.is_empty() {
                let side = &mut agent.sides[index(pool)];
                let (more, first) = side.hold(client, part.into_owned());
                self.clients.hold(pool, client, &more, first);
            }
        }
    }

    /// Notes that `client` holds this no more; what it did not hold is passed over.
    fn book_freed(&mut self, slot: u32, client: Client, freed: &Resources) {
        self.touch(slot);
        let Some(agent) = self.agents[slot as usize].as_mut() else {
            return;
        };
        for pool in Pool::ALL {
            let side = &mut agent.sides[index(pool)];
            let Some(held) = side.holders.get_mut(client) else {
                continue;
            };
            let mut part = of_pool(freed, pool);
            if part.is_empty() {
                continue;
            }
            if *held != *part
                && let Some(lacking) = held.lacking(&part)
            {
                tracing::warn!(agent = %agent.id, %lacking, "more was recovered than was held");
                let rest = held.saturating_sub(&part);
                part = Cow::Owned(held.saturating_sub(&rest));
            }
            let less = take_held(held, &part);
            let last = held.is_empty();
            side.free(&part);
            self.clients.free(pool, client, &less);
            if last {
                side.holders.remove(client);
                self.clients.leave(client);
            }
        }
    }

    /// The parts of what a framework holds, each with its role and without it: by their allocation, or else by the framework's only role.
    fn by_role(
        &self,
        framework: &FrameworkId,
        resources: &Resources,
    ) -> SmallVec<[(Role, Resources); 1]> {
        let mut parts: BTreeMap<Role, Resources> = BTreeMap::new();
        let first = resources
            .iter()
            .next()
            .and_then(|resource| resource.allocation_role());
        if let Some(role) = first
            && resources
                .iter()
                .all(|resource| resource.allocation_role() == Some(role))
        {
            return smallvec![(role.clone(), resources.unallocate())];
        }
        for resource in resources {
            let role = match resource.allocation_role() {
                Some(role) => role.clone(),
                None => self.only_role(framework),
            };
            *parts.entry(role).or_default() += resource.clone();
        }
        parts
            .into_iter()
            .map(|(role, part)| (role, part.unallocate()))
            .collect()
    }

    fn only_role(&self, framework: &FrameworkId) -> Role {
        let first = self.clients.of(framework).first().copied();
        first
            .and_then(|client| self.clients.get(client))
            .map_or(Role::STAR, |member| member.role.clone())
    }

    /// Whether that is in another region than the master's, as far as both are known.
    fn is_remote(&self, domain: Option<&Domain>) -> bool {
        let regions = self.region.as_ref().zip(domain);
        regions.is_some_and(|(own, domain)| *own != domain.region)
    }

    fn count_totals(&mut self, slot: u32, add: bool) {
        let Some(agent) = self.agents[slot as usize].as_ref() else {
            return;
        };
        for (side, (sum, known)) in agent.sides.iter().zip(&mut self.totals) {
            let total = side.total.quantities();
            if total.is_empty() {
                continue;
            }
            *known = false;
            if add {
                *sum += &total;
            } else {
                *sum -= &total;
            }
        }
    }

    /// The agent of this id.
    pub fn agent_by_id(&mut self, id: &AgentId) -> Option<(u32, &mut Agent)> {
        let slot = *self.by_id.get(id)?;
        let agent = self.agents[slot as usize].as_mut()?;
        Some((slot, agent))
    }

    /// The agent in this slot, if it is still the one with this serial.
    fn agent_at(&mut self, slot: u32, serial: u64) -> Option<&mut Agent> {
        let agent = self.agents.get_mut(slot as usize)?.as_mut()?;
        (agent.serial == serial).then_some(agent)
    }

    /// The agent in this slot together with the clients.
    fn agent_in(&mut self, slot: u32) -> Option<(&mut Agent, &mut Clients)> {
        let agent = self.agents.get_mut(slot as usize)?.as_mut()?;
        Some((agent, &mut self.clients))
    }

    /// All agents.
    pub fn agents(&self) -> impl Iterator<Item = &Agent> {
        self.agents.iter().flatten()
    }
}

/// What of this is in that pool.
fn of_pool(all: &Resources, pool: Pool) -> Cow<'_, Resources> {
    let own = |resource: &Resource| resource.is_revocable() == (pool == Pool::Revocable);
    match all.iter().all(own) {
        true => Cow::Borrowed(all),
        false => Cow::Owned(all.filter(own)),
    }
}
