//! The allocator's state: allocations and free resources of each agent, and the agents that the
//! next run considers.
//!
//! No I/O and no clock: each fact comes with its time. Keeps totals, allocations and filters. A
//! fact about an unknown framework or agent is ignored, since either side may have removed it
//! first. This file handles agents; the other parts are in submodules.
//!
//! | module | contents |
//! |---|---|
//! | `booking` | applies the sorter's advice as far as the allocator's state allows |
//! | `choosing` | the agents that a client must never get, by capabilities and constraints |
//! | `departing` | agents with a planned downtime |
//! | `explain` | the reasons that keep one client from the resources of one agent |
//! | `filters` | refused resources, and the agents that the next run considers |
//! | `frameworks` | frameworks: active or not, their roles and suppressed roles |
//! | `listed` | the list of hosts of agents that are offered |
//! | `operations` | effects of operations on the state |
//! | `packing` | the order of agents by free resources, for `AgentOrder::TightestFirst` |
//! | `pool_balance` | the resources of one agent in one pool |
//! | `quota` | consumption of each role with a quota, and lending |
//! | `returning` | clients that become active again |
//! | `revoking` | unmet guarantees that a framework wants |
//! | `run` | slates of a run, for the sorter |
//! | `shared` | copies of shared volumes |

mod agent_constraints;
mod booking;
mod explain;
pub(in crate::allocator) mod filters;
mod frameworks;
mod inverse_offers;
mod operations;
mod packing;
mod pool_balance;
mod quota;
mod returning;
mod revoking;
mod run;
mod shared;
mod whitelist;

pub use booking::{BookingResult, Refusal};
pub use explain::Case;
pub use pool_balance::PoolBalance;
pub(super) use quota::chop;
pub use returning::AbsentClient;
pub use run::PendingSlate;

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

use super::clients::{Clients, pool_index};
use booking::charging::Charging;
use filters::Mark;
use filters::agent_filters::{AgentFilters, RefusalCache};
use inverse_offers::Departure;
use quota::Quotas;
use returning::{RescanBudget, ScanHistory};
use shared::take_held;

/// One agent.
#[derive(Clone, Debug)]
pub struct Agent {
    /// Its id.
    pub id: AgentId,
    /// Unique to this agent, so that late advice never applies to another agent in the same slot.
    pub serial: u64,
    /// The registration number from the master; grants carry it.
    pub session: u64,
    /// Whether the master allows offers of it.
    pub active: bool,
    /// Whether its host is on the whitelist, if there is one.
    listed: bool,
    /// Whether it has GPUs, so that only some frameworks may get it.
    pub gpus: bool,
    /// Whether it is in another region than the master, so that only some frameworks may get it.
    pub remote: bool,
    hostname: String,
    attributes: Attributes,
    domain: Option<Domain>,
    /// Regular and revocable resources.
    pub pools: [PoolBalance; 2],
    /// The filters on this agent by client.
    pub filters: AgentFilters,
    mark: Mark,
}

/// One framework.
#[derive(Clone, Debug, Default)]
struct Framework {
    active: bool,
    /// Its limit of unanswered offers, while it has reached it.
    budget_spent: Option<u64>,
    capabilities: BTreeSet<Capability>,
    rescans: RescanBudget,
}

/// The allocator's state.
#[derive(Clone, Debug)]
pub struct AllocatorState {
    /// Time between two batches; also the shortest duration of a filter.
    pub interval: Duration,
    /// The smallest amounts worth an offer.
    pub sets_min: Vec<Quantities>,
    /// The weights other than 1.
    pub weights: BTreeMap<Role, f64>,
    /// Roles with a weight that has changed since the last slate.
    reweighed: BTreeSet<Role>,
    /// All frameworks by role.
    pub clients: Clients,
    agents: Vec<Option<Agent>>,
    unused: Vec<u32>,
    by_id: FxHashMap<AgentId, u32>,
    frameworks: FxHashMap<FrameworkId, Framework>,
    /// Agents with a planned downtime.
    departing: BTreeMap<AgentId, Departure>,
    /// The sums over all agents by pool, and whether the sorter knows them.
    totals: [(Quantities, bool); 2],
    quotas: Quotas,
    /// Set if idle reservations count for shares.
    charging: Option<Charging>,
    /// Agents on which tasks are being revoked, by slot, with the role that needs the resources:
    /// unreserved resources there are not shared fairly.
    kept: BTreeMap<u32, Role>,
    /// Hosts of agents that may be offered, in lower case; `None` means all.
    whitelist: Option<BTreeSet<String>>,
    /// Number of agents to wait for before anything is granted.
    awaited: Option<usize>,
    dirty: [Vec<u32>; 2],
    /// When all agents are considered.
    all_agents: Mark,
    scans: ScanHistory,
    /// Recent refusals on any agent, for sharing.
    refusals: RefusalCache,
    /// Ends of filters: the first end for each client on each agent.
    ends: BTreeSet<(Instant, u32, u64, Client)>,
    /// Number of agents with GPUs, if those are restricted.
    with_gpus: usize,
    /// Agents with GPUs are offered to all frameworks.
    gpus_for_all: bool,
    /// The part of the expected agents that ends the pause after a `Begin`.
    recovery_factor: f64,
    /// The master's region.
    region: Option<String>,
    serials: u64,
    epoch: u64,
    slates: u64,
}

impl Default for AllocatorState {
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
            dirty: Default::default(),
            all_agents: Mark::Unmarked,
            scans: ScanHistory::default(),
            refusals: RefusalCache::default(),
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

impl AllocatorState {
    /// Resets the state for a new `Begin`. Serials and epochs continue, so that late replies are
    /// recognized.
    pub fn begin(&mut self, begin: &Begin) {
        *self = Self {
            interval: begin.allocation_interval.max(Duration::from_millis(1)),
            sets_min: std::mem::take(&mut self.sets_min),
            recovery_factor: self.recovery_factor,
            gpus_for_all: self.gpus_for_all,
            serials: self.serials,
            epoch: self.epoch + 1,
            region: begin.region.clone(),
            quotas: self.quotas.reset(),
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

    /// Offers agents with GPUs to all frameworks.
    pub fn offer_gpus_to_all(&mut self) {
        self.gpus_for_all = true;
    }

    /// Sets the part of the expected agents that ends the pause after a `Begin`.
    pub fn set_recovery_factor(&mut self, factor: f64) {
        self.recovery_factor = factor;
    }

    /// Whether grants are suspended until more agents have reregistered, for the sake of
    /// guarantees.
    pub fn is_paused(&self) -> bool {
        self.awaited.is_some()
    }

    /// Ends the pause, however many agents have reregistered.
    pub fn resume(&mut self) {
        self.awaited = None;
    }

    /// Sets the weights of some roles; 1 is the default. Marks all agents, since the order of
    /// clients changes everywhere; only operators change weights.
    pub fn weights_changed(&mut self, changed: &WeightsChanged) {
        self.weigh(&changed.weights);
        self.mark_all(Mark::Run);
    }

    fn weigh(&mut self, weights: &BTreeMap<String, f64>) {
        for (text, weight) in weights {
            let role = match Role::new(text) {
                Ok(role) => role,
                Err(error) => {
                    tracing::warn!(%error, "ignoring a weight for an invalid role");
                    continue;
                }
            };
            let sound = weight.is_finite() && *weight > 0.0;
            if !sound {
                let reason = "using weight 1: a weight must be above zero";
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

    /// Adds an agent. Replaces an earlier one of the same id, whose filters stay if its properties
    /// are the same.
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
            pools: [
                PoolBalance::of(regular.unallocate()),
                PoolBalance::of(oversubscribed.revocable().unallocate()),
            ],
            filters: AgentFilters::default(),
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

    /// Removes an agent with all allocations on it.
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
            if let Some(record) = self.clients.get_mut(client) {
                record.filtered.remove(&slot);
            }
        }
        for (pool, balance) in Pool::ALL.into_iter().zip(agent.pools) {
            for (client, held) in balance.holders {
                self.clients.free(pool, client, &held.quantities());
                self.clients.leave(client);
                self.clients.release(client);
            }
        }
    }

    /// Activates or deactivates an agent.
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

    /// Sets the oversubscribed resources of an agent. If more is allocated than that, returns the
    /// difference to be withdrawn from outstanding offers.
    pub fn agent_oversubscribed(&mut self, lent: AgentOversubscribed) -> Option<Withdrawn> {
        let (slot, _) = self.agent_by_id(&lent.agent_id)?;
        self.count_totals(slot, false);
        let agent = self.agents[slot as usize].as_mut()?;
        let balance = &mut agent.pools[pool_index(Pool::Revocable)];
        balance.set_total(lent.total.revocable().unallocate());
        let resources = balance.held().saturating_sub(&balance.total);
        self.count_totals(slot, true);
        self.mark(slot, Mark::Run);
        let agent_id = lent.agent_id;
        (!resources.is_empty()).then_some(Withdrawn {
            agent_id,
            resources,
        })
    }

    /// Frees allocated resources, with an optional filter.
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
        // A refusal without a duration must not start a run: a framework that declines everything
        // at once would get the same offers in an endless loop.
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

    /// Reverts a grant.
    pub fn take_back(&mut self, agent_id: &AgentId, client: Client, granted: &Resources) {
        if let Some((slot, _)) = self.agent_by_id(agent_id) {
            self.book_freed(slot, client, &granted.unallocate());
            self.clients.release(client);
            self.mark(slot, Mark::Batch);
        }
    }

    /// Records an allocation to `client`, whether or not the agent has the resources.
    fn book_held(&mut self, slot: u32, client: Client, held: &Resources) {
        self.touch(slot);
        let Some(agent) = self.agents[slot as usize].as_mut() else {
            return;
        };
        for pool in Pool::ALL {
            let part = of_pool(held, pool);
            if !part.is_empty() {
                let balance = &mut agent.pools[pool_index(pool)];
                let (more, first) = balance.hold(client, part.into_owned());
                self.clients.hold(pool, client, &more, first);
            }
        }
    }

    /// Records the end of an allocation of `client`. Resources that it did not hold are ignored.
    fn book_freed(&mut self, slot: u32, client: Client, freed: &Resources) {
        self.touch(slot);
        let Some(agent) = self.agents[slot as usize].as_mut() else {
            return;
        };
        for pool in Pool::ALL {
            let balance = &mut agent.pools[pool_index(pool)];
            let Some(held) = balance.holders.get_mut(client) else {
                continue;
            };
            let mut part = of_pool(freed, pool);
            if part.is_empty() {
                continue;
            }
            if *held != *part
                && let Some(lacking) = held.lacking(&part)
            {
                tracing::warn!(agent = %agent.id, %lacking, "ignoring recovered resources that are not allocated");
                let rest = held.saturating_sub(&part);
                part = Cow::Owned(held.saturating_sub(&rest));
            }
            let less = take_held(held, &part);
            let last = held.is_empty();
            balance.free(&part);
            self.clients.free(pool, client, &less);
            if last {
                balance.holders.remove(client);
                self.clients.leave(client);
            }
        }
    }

    /// Splits resources by their allocated role, without the allocation. Without one, the
    /// framework's only role applies.
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
            .map_or(Role::STAR, |record| record.role.clone())
    }

    /// Whether the domain is in another region than the master, as far as both are known.
    fn is_remote(&self, domain: Option<&Domain>) -> bool {
        let regions = self.region.as_ref().zip(domain);
        regions.is_some_and(|(own, domain)| *own != domain.region)
    }

    fn count_totals(&mut self, slot: u32, add: bool) {
        let Some(agent) = self.agents[slot as usize].as_ref() else {
            return;
        };
        for (balance, (sum, known)) in agent.pools.iter().zip(&mut self.totals) {
            let total = balance.total.quantities();
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

    /// The agent in this slot, if it still has this serial.
    fn agent_at(&mut self, slot: u32, serial: u64) -> Option<&mut Agent> {
        let agent = self.agents.get_mut(slot as usize)?.as_mut()?;
        (agent.serial == serial).then_some(agent)
    }

    /// The agent in this slot, and the clients.
    fn agent_in(&mut self, slot: u32) -> Option<(&mut Agent, &mut Clients)> {
        let agent = self.agents.get_mut(slot as usize)?.as_mut()?;
        Some((agent, &mut self.clients))
    }

    /// All agents.
    pub fn agents(&self) -> impl Iterator<Item = &Agent> {
        self.agents.iter().flatten()
    }
}

/// The part of the resources in that pool.
fn of_pool(all: &Resources, pool: Pool) -> Cow<'_, Resources> {
    let own = |resource: &Resource| resource.is_revocable() == (pool == Pool::Revocable);
    match all.iter().all(own) {
        true => Cow::Borrowed(all),
        false => Cow::Owned(all.filter(own)),
    }
}
