//! Quota: consumption of each role with a quota, free resources of the cluster, and the sorter's
//! view of both.
//!
//! Each agent contributes a share to the sums, which is recomputed after the agent changes; the
//! sums thus always equal those computed from scratch. Without quotas it keeps nothing and costs
//! nothing. The consumption of a role is its allocations plus all its reservations, used or not,
//! including the roles below it. `cuts` computes the part of an offer that quota leaves,
//! `lending` the guarantees that are lent.

mod cuts;
mod lending;

pub(super) use cuts::Cuts;

use std::collections::{BTreeMap, BTreeSet};

use module_api::allocator::QuotasChanged;
use module_api::sorter::{
    Budget, BudgetIndex, Budgets, Change, Pool, Room, Shape, Stage, counts_for,
};
use protocol::Quota;
use resources::{Quantities, Resource, Resources, Role};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::filters::Mark;
use super::{Agent, AllocatorState};
use crate::allocator::clients::{Clients, pool_index};

/// Entries of the cache from roles to budgets.
const BUDGET_CACHE_MAX: usize = 1 << 16;

/// One agent's contribution to the sums.
#[derive(Clone, Debug, Default, PartialEq)]
struct Share {
    /// Unreserved and free resources, if the agent may be offered.
    idle: Quantities,
    consumed: SmallVec<[(BudgetIndex, Quantities); 2]>,
}

impl Share {
    fn add(&mut self, index: BudgetIndex, resource: &Resource) {
        let Some(amount) = resource.amount() else {
            return;
        };
        let at = self.consumed.iter().position(|(known, _)| *known == index);
        let at = at.unwrap_or_else(|| {
            self.consumed.push((index, Quantities::new()));
            self.consumed.len() - 1
        });
        self.consumed[at].1.add(resource.name(), amount);
    }

    fn consumed(&self, index: BudgetIndex) -> Option<&Quantities> {
        let own = self.consumed.iter().find(|(known, _)| *known == index);
        own.map(|(_, amount)| amount)
    }
}

/// The quotas and the derived sums.
#[derive(Clone, Debug, Default)]
pub struct Quotas {
    quotas: BTreeMap<Role, Quota>,
    /// The quotas have changed, and the fields below are outdated.
    stale: bool,
    /// The actual budgets.
    budgets: Budgets,
    /// By budget index, like the quotas in `table`.
    consumed: Vec<Quantities>,
    table: Vec<Quota>,
    /// The parent roles of roles with a limit.
    above_limits: BTreeSet<Role>,
    /// By slot, and the slots to recompute.
    shares: Vec<Share>,
    touched: BTreeSet<u32>,
    index_cache: FxHashMap<Role, Option<BudgetIndex>>,
    /// The sorter's budgets, and the indices of outdated ones.
    assumed: Budgets,
    changed: BTreeSet<BudgetIndex>,
    /// The sorter needs the whole table.
    resend: bool,
    /// Agents with resources kept back for a quota.
    short: BTreeSet<u32>,
    /// More can be given than when those agents were considered.
    loosened: bool,
    /// Guarantees that no framework wants are lent to other roles.
    lends: bool,
    /// Budgets with a guarantee that an active framework wants, at the activity count `wanted_at`.
    wanted: BTreeSet<BudgetIndex>,
    wanted_at: Option<u64>,
}

impl AllocatorState {
    /// Sets the quotas of some roles. Marks all agents, since the kept resources may be on any of
    /// them; only operators change quotas.
    pub fn quotas_changed(&mut self, changed: &QuotasChanged) {
        self.quotas.change(&changed.quotas);
        self.mark_all(Mark::Run);
    }

    /// Updates the sums.
    pub(super) fn settle(&mut self) {
        self.quotas.settle(&mut self.agents, &self.clients);
        self.charge();
    }

    /// The actual budgets.
    pub fn budgets(&mut self) -> &Budgets {
        self.settle();
        &self.quotas.budgets
    }

    /// The sorter's budgets.
    pub fn assumed_budgets(&self) -> &Budgets {
        &self.quotas.assumed
    }
}

impl Quotas {
    /// An empty state with the same settings.
    pub(super) fn reset(&self) -> Self {
        Self {
            lends: self.lends,
            ..Self::default()
        }
    }

    pub(super) fn change(&mut self, quotas: &BTreeMap<String, Quota>) {
        for (text, quota) in quotas {
            match Role::new(text) {
                Ok(role) if quota.is_default() => drop(self.quotas.remove(&role)),
                Ok(role) => drop(self.quotas.insert(role, quota.clone())),
                Err(error) => {
                    tracing::warn!(%error, "ignoring a quota for an invalid role");
                    continue;
                }
            }
            self.stale = true;
        }
    }

    /// The actual budgets. Must be settled.
    pub(super) fn budgets(&self) -> &Budgets {
        &self.budgets
    }

    /// All quotas.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Role, &Quota)> {
        self.quotas.iter()
    }

    /// Whether there is no quota.
    pub(super) fn is_empty(&self) -> bool {
        self.quotas.is_empty()
    }

    /// Marks the share of this agent for recomputation.
    pub(super) fn touch(&mut self, slot: u32) {
        if !self.quotas.is_empty() {
            self.touched.insert(slot);
        }
    }

    fn settle(&mut self, agents: &mut [Option<Agent>], clients: &Clients) {
        if std::mem::take(&mut self.stale) {
            self.rebuild(agents.len());
        }
        self.update_wanted(clients);
        if self.touched.is_empty() {
            return;
        }
        let before = self.surplus();
        for slot in std::mem::take(&mut self.touched) {
            let agent = agents.get_mut(slot as usize).and_then(Option::as_mut);
            let share = agent.map_or_else(Share::default, |agent| self.share(agent, clients));
            self.settle_one(slot, share);
        }
        // If nothing is required any more, all free resources are surplus.
        if let Some(before) = before {
            let after = self.surplus();
            self.loosened |= after.is_none_or(|after| !before.contains(&after));
        }
    }

    fn rebuild(&mut self, slots: usize) {
        let budget = |(role, quota): (&Role, &Quota)| Budget {
            role: role.clone(),
            left: quota.limits.clone(),
            unmet: quota.guarantees.clone(),
        };
        self.budgets = Budgets::new(self.quotas.iter().map(budget).collect());
        self.consumed = vec![Quantities::new(); self.quotas.len()];
        self.table = self.quotas.values().cloned().collect();
        let limited = self
            .quotas
            .iter()
            .filter(|(_, quota)| quota.limits.iter().len() > 0);
        let above =
            limited.flat_map(|(role, _)| std::iter::successors(role.parent(), Role::parent));
        self.above_limits = above.collect();
        self.shares.clear();
        self.index_cache.clear();
        self.changed.clear();
        self.short.clear();
        self.wanted_at = None;
        self.resend = true;
        if !self.quotas.is_empty() {
            self.touched = (0..).take(slots).collect();
        }
    }

    /// Free resources beyond those required by guarantees; `None` if none are required.
    fn surplus(&self) -> Option<Quantities> {
        let required = self.budgets.required();
        (!required.is_empty()).then(|| self.budgets.headroom().saturating_sub(required))
    }

    fn share(&mut self, agent: &mut Agent, clients: &Clients) -> Share {
        let mut share = Share::default();
        let n = pool_index(Pool::Regular);
        if agent.is_offered() {
            let unreserved = agent.pools[n].available().iter();
            for resource in unreserved.filter(|resource| !resource.is_reserved()) {
                if let Some(amount) = resource.amount() {
                    share.idle.add(resource.name(), amount);
                }
            }
        }
        for resource in &agent.pools[n].total {
            if resource.is_reserved() {
                let index = self.budget_of(resource.role());
                for (index, _) in self.budgets.chain(index) {
                    share.add(index, resource);
                }
            }
        }
        // A shared volume counts once, however many clients hold it.
        let mut shared: Vec<(BudgetIndex, &Resource)> = Vec::new();
        for (client, held) in agent.pools[n].holders.iter() {
            let Some(record) = clients.get(client) else {
                continue;
            };
            let index = self.budget_of(&record.role);
            for (index, budget) in self.budgets.chain(index) {
                for resource in held {
                    let first = !resource.is_shared() || {
                        let known = |(at, one): &(BudgetIndex, &Resource)| {
                            *at == index && one.annotations() == resource.annotations()
                        };
                        let first = !shared.iter().any(known);
                        shared.push((index, resource));
                        first
                    };
                    if first && counts_for(&budget.role, owner(resource)) {
                        share.add(index, resource);
                    }
                }
            }
        }
        share
    }

    fn settle_one(&mut self, slot: u32, share: Share) {
        let slot = slot as usize;
        if self.shares.len() <= slot {
            self.shares.resize(slot + 1, Share::default());
        }
        let before = std::mem::replace(&mut self.shares[slot], share);
        let share = &self.shares[slot];
        if before == *share {
            return;
        }
        let mut headroom = self.budgets.headroom().clone();
        headroom += &share.idle;
        headroom -= &before.idle;
        self.budgets.set_headroom(headroom);
        let both = share.consumed.iter().chain(&before.consumed);
        let mut indices: SmallVec<[BudgetIndex; 8]> = both.map(|(index, _)| *index).collect();
        indices.sort_unstable();
        indices.dedup();
        indices.retain(|index| share.consumed(*index) != before.consumed(*index));
        let nothing = Quantities::new();
        for index in &indices {
            let now = share.consumed(*index).unwrap_or(&nothing);
            let before = before.consumed(*index).unwrap_or(&nothing);
            let consumed = &mut self.consumed[*index as usize];
            *consumed += now;
            *consumed -= before;
            self.loosened |= !now.contains(before);
        }
        let chains = indices
            .iter()
            .flat_map(|index| self.budgets.chain(Some(*index)));
        let limited = chains.filter(|(_, budget)| budget.left.iter().len() > 0);
        let mut above: SmallVec<[BudgetIndex; 8]> = limited.map(|(index, _)| index).collect();
        above.sort_unstable();
        above.dedup();
        let loose = |budgets: &Budgets| -> Vec<Quantities> {
            above.iter().map(|index| budgets.loose(*index)).collect()
        };
        let before = loose(&self.budgets);
        for index in indices {
            self.refresh(index);
        }
        let after = loose(&self.budgets);
        let mut both = before.iter().zip(&after);
        self.loosened |= both.any(|(before, after)| !before.contains(after));
    }

    fn refresh(&mut self, index: BudgetIndex) {
        let Some(quota) = self.table.get(index as usize) else {
            return;
        };
        let consumed = &self.consumed[index as usize];
        let mut left = quota.limits.clone();
        for (name, amount) in consumed.iter() {
            left.take(name, amount);
        }
        let unmet = match self.lends && !self.wanted.contains(&index) {
            true => Quantities::new(),
            false => quota.guarantees.saturating_sub(consumed),
        };
        self.budgets.set(index, left, unmet);
        self.changed.insert(index);
    }

    fn budget_of(&mut self, role: &Role) -> Option<BudgetIndex> {
        if let Some(index) = self.index_cache.get(role) {
            return *index;
        }
        let index = self.budgets.find(role);
        if self.index_cache.len() >= BUDGET_CACHE_MAX {
            self.index_cache.clear(); // Frameworks may use ever new roles.
        }
        self.index_cache.insert(role.clone(), index);
        index
    }

    /// Whether any guarantee is unmet.
    pub(super) fn lack(&self) -> bool {
        !self.budgets.required().is_empty()
    }

    /// The sorter has lost its state.
    pub(super) fn forget_sorter_view(&mut self) {
        self.assumed = Budgets::default();
        self.changed.clear();
        self.resend = !self.quotas.is_empty();
    }

    /// Appends the changes that the sorter needs, and records them as known.
    pub(super) fn push_changes(&mut self, changes: &mut Vec<Change>) {
        if std::mem::take(&mut self.resend) {
            let table = self.budgets.table();
            self.assumed = Budgets::new(table.clone());
            self.changed.clear();
            changes.push(Change::Budgets { table });
        }
        for index in std::mem::take(&mut self.changed) {
            let (Some(now), Some(before)) = (self.budgets.get(index), self.assumed.get(index))
            else {
                continue;
            };
            let (left, unmet) = (now.left.clone(), now.unmet.clone());
            if left != before.left || unmet != before.unmet {
                self.assumed.set(index, left.clone(), unmet.clone());
                changes.push(Change::Budget { index, left, unmet });
            }
        }
        let (now, before) = (self.budgets.headroom(), self.assumed.headroom());
        if !(now.contains(before) && before.contains(now)) {
            let amount = now.clone();
            self.assumed.set_headroom(amount.clone());
            changes.push(Change::Headroom { amount });
        }
    }

    /// Records that the sorter advised to give a room's portion to a client of this role. Returns
    /// the assumed amount.
    pub(super) fn assume(
        &mut self,
        stage: Stage,
        role: &Role,
        shape: Option<&Shape>,
        room: &mut Room,
    ) -> Quantities {
        // `resend` sends the same table.
        let index = match self.resend {
            true => self.assumed.find(role),
            false => self.budget_of(role),
        };
        if !self.resend {
            let chain = self.assumed.chain(index).map(|(index, _)| index);
            self.changed.extend(chain);
        }
        self.assumed.take(stage, index, role, shape, room)
    }

    /// The part of `pool` that a client of this role gets; the caller has checked its kind. Must be
    /// settled.
    pub(super) fn portion(
        &mut self,
        stage: Stage,
        role: &Role,
        pool: &Resources,
    ) -> Option<Resources> {
        let parts = self.parts(stage, role, pool)?;
        Some(parts.into_iter().collect())
    }

    /// The same, entry by entry.
    pub(super) fn parts(&mut self, stage: Stage, role: &Role, pool: &Resources) -> Option<Parts> {
        let index = self.budget_of(role);
        self.parts_at(stage, index, role, pool)
    }

    /// The same for a budget.
    fn parts_at(
        &self,
        stage: Stage,
        index: Option<BudgetIndex>,
        role: &Role,
        pool: &Resources,
    ) -> Option<Parts> {
        let budgets = &self.budgets;
        if stage != Stage::Guarantees {
            return Some(parts(budgets, stage, index, role, pool));
        }
        if !budgets.is_needy(index) {
            return None;
        }
        let parts = parts(budgets, stage, index, role, pool);
        // After the cut of indivisible resources, the portion may contain nothing that a guarantee
        // lacks.
        let meets = |own: &Resource| {
            let amount = own.amount().filter(|amount| !amount.is_zero());
            !own.is_reserved() && amount.is_some() && budgets.lacks(index, &own.name())
        };
        parts.iter().any(meets).then_some(parts)
    }

    /// Records an agent if resources worth an offer were kept back on it.
    pub(super) fn record_short(&mut self, slot: u32, free: &Quantities, tightest: &Quantities) {
        let within_limits = tightest.iter().all(|(name, left)| free.get(name) <= left);
        if self.loosened || !within_limits || !self.budgets.spare(free).contains(free) {
            self.short.insert(slot);
        }
    }

    /// Records an agent with reservations of a parent role of a limited role: they count for the
    /// role that uses them.
    pub(super) fn record_reserved(&mut self, slot: u32, room: &Room) {
        let mut owners = room.reserved.iter().map(|(owner, _)| owner);
        if owners.any(|owner| self.above_limits.contains(owner)) {
            self.short.insert(slot);
        }
    }

    /// For each limited name, the smallest remaining amount of any limit.
    pub(super) fn tightest(&self) -> Quantities {
        let mut tightest = Quantities::new();
        for (index, _) in (0..).zip(&self.consumed) {
            for (name, left) in self.budgets.loose(index).iter() {
                if !tightest.names(name) || tightest.get(name) > left {
                    tightest.set(name.clone(), left);
                }
            }
        }
        tightest
    }

    /// The agents to consider again because more can be given than before.
    pub(super) fn take_short(&mut self) -> BTreeSet<u32> {
        match std::mem::take(&mut self.loosened) {
            true => std::mem::take(&mut self.short),
            false => BTreeSet::new(),
        }
    }

    /// Forgets them, since every agent is considered anyway.
    pub(super) fn forget_short(&mut self) {
        self.loosened = false;
        self.short.clear();
    }
}

/// Parts of a pool, at most one for each entry, in no order.
pub(super) type Parts = SmallVec<[Resource; 5]>;

/// Whether an entry is always given whole: one without an amount is never cut.
pub(super) fn is_uncut(own: &Resource) -> bool {
    own.amount().is_none() && !own.is_reserved()
}

/// The part of `pool` that these budgets give to a client of this role.
pub(super) fn given(
    budgets: &Budgets,
    stage: Stage,
    index: Option<BudgetIndex>,
    role: &Role,
    pool: &Resources,
) -> Resources {
    let parts = parts(budgets, stage, index, role, pool);
    parts.into_iter().collect()
}

/// The same, entry by entry.
fn parts(
    budgets: &Budgets,
    stage: Stage,
    index: Option<BudgetIndex>,
    role: &Role,
    pool: &Resources,
) -> Parts {
    let room = room(pool);
    let portion = budgets.portion(stage, index, role, &room);
    let mut free = portion.free;
    let mut reserved = vec![Quantities::new(); room.reserved.len()];
    for (n, amount) in portion.reserved {
        reserved[n] = amount;
    }
    // Indivisible entries first, the largest before the others; otherwise the result would depend
    // on the order of names.
    let mut entries: SmallVec<[&Resource; 8]> = pool.iter().collect();
    entries.sort_by_key(|own| std::cmp::Reverse((own.is_indivisible(), own.amount())));
    let cut = entries.into_iter().filter_map(|own| {
        if own.amount().is_none() {
            let given = is_uncut(own) || stage == Stage::Fair || own.role() == role;
            return given.then(|| own.clone());
        }
        let most = match owner(own) {
            None => &mut free,
            Some(owner) => {
                let known = room.reserved.iter().position(|(known, _)| known == owner);
                reserved.get_mut(known?)?
            }
        };
        chop(own, most)
    });
    cut.collect()
}

/// The role of a reservation.
fn owner(resource: &Resource) -> Option<&Role> {
    resource.is_reserved().then(|| resource.role())
}

/// The part of a resource that fits `most`, from which it is deducted; `None` for an indivisible
/// resource that does not fit.
pub(in crate::allocator) fn chop(own: &Resource, most: &mut Quantities) -> Option<Resource> {
    let (name, amount) = (own.name(), own.amount()?);
    let room = most.get(&name);
    let mut own = own.clone();
    if amount > room && (own.copies() > 1 || !own.shrink(room)) {
        return None;
    }
    let amount = own.amount().filter(|amount| !amount.is_zero())?;
    most.take(&name, amount);
    Some(own)
}

/// The available amounts by reservation.
pub(super) fn room(available: &Resources) -> Room {
    let mut room = Room::default();
    for resource in available {
        let Some(amount) = resource.amount() else {
            continue;
        };
        let Some(owner) = owner(resource) else {
            room.free.add(resource.name(), amount);
            continue;
        };
        let at = room.reserved.iter().position(|(known, _)| known == owner);
        let at = at.unwrap_or_else(|| {
            room.reserved.push((owner.clone(), Quantities::new()));
            room.reserved.len() - 1
        });
        room.reserved[at].1.add(resource.name(), amount);
    }
    room
}
