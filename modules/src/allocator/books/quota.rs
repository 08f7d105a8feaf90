//! The books' part on quota: what each role with one has consumed, what is free in the cluster, and what the sorter believes of both.
//!
//! Pure, like all of the books. Every agent has a share in the sums; a share is worked out anew when something about its agent has changed,
//! so the sums kept are always those that would be worked out from nothing. Without any quota it remembers nothing and costs nothing.
//! Consumed is what the role's frameworks hold and whatever is reserved for the role, used or not, the roles below it included (SPEC 3.4, 4.5).

mod cuts;
mod lending;

pub(super) use cuts::Cuts;

use std::collections::{BTreeMap, BTreeSet};

use module_api::allocator::QuotasChanged;
use module_api::sorter::{Budget, Budgets, Change, Place, Pool, Room, Shape, Stage, counts_for};
use protocol::Quota;
use resources::{Quantities, Resource, Resources, Role};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::filters::Mark;
use super::{Agent, Books};
use crate::allocator::clients::{Clients, index};

/// Roles of which the place is remembered.
const PLACES_MAX: usize = 1 << 16;

/// What one agent adds to the sums.
#[derive(Clone, Debug, Default, PartialEq)]
struct Share {
    /// Unreserved, free and offered.
    idle: Quantities,
    consumed: SmallVec<[(Place, Quantities); 2]>,
}

impl Share {
    fn add(&mut self, place: Place, resource: &Resource) {
        let Some(amount) = resource.amount() else {
            return;
        };
        let at = self.consumed.iter().position(|(known, _)| *known == place);
        let at = at.unwrap_or_else(|| {
            self.consumed.push((place, Quantities::new()));
            self.consumed.len() - 1
        });
        self.consumed[at].1.add(resource.name(), amount);
    }

    fn consumed(&self, place: Place) -> Option<&Quantities> {
        let own = self.consumed.iter().find(|(known, _)| *known == place);
        own.map(|(_, amount)| amount)
    }
}

/// Quotas, and what follows from the books for each.
#[derive(Clone, Debug, Default)]
pub struct Quotas {
    quotas: BTreeMap<Role, Quota>,
    /// The quotas have changed, and nothing below follows from them yet.
    stale: bool,
    /// What may still be given, by the books.
    budgets: Budgets,
    /// By place, as are the quotas in `table`.
    consumed: Vec<Quantities>,
    table: Vec<Quota>,
    /// The roles above those that have a limit.
    above_limits: BTreeSet<Role>,
    /// By slot; and the slots whose share is to be worked out anew.
    shares: Vec<Share>,
    touched: BTreeSet<u32>,
    places: FxHashMap<Role, Option<Place>>,
    /// What may still be given, as the sorter has it; and the places where the two may differ.
    believed: Budgets,
    changed: BTreeSet<Place>,
    /// The sorter has another table.
    retell: bool,
    /// Agents of which something was kept back for the sake of a quota.
    short: BTreeSet<u32>,
    /// More may be given than when they were looked at.
    loosened: bool,
    /// What is guaranteed and wanted by nobody is lent to others.
    lends: bool,
    /// Where there is somebody who wants what is guaranteed, as of that count of clients' activity.
    wanted: BTreeSet<Place>,
    wanted_at: Option<u64>,
}

impl Books {
    /// Some roles have other quotas now. All agents are looked at: what is kept free may be kept on any, and only operators change quotas.
    pub fn quotas_changed(&mut self, changed: &QuotasChanged) {
        self.quotas.change(&changed.quotas);
        self.mark_everybody(Mark::Run);
    }

    /// Brings the sums up to date.
    pub(super) fn settle(&mut self) {
        self.quotas.settle(&mut self.agents, &self.clients);
        self.charge();
    }

    /// What guarantees and limits leave, by the books.
    pub fn budgets(&mut self) -> &Budgets {
        self.settle();
        &self.quotas.budgets
    }

    /// The same as the sorter has it.
    pub fn budgets_believed(&self) -> &Budgets {
        &self.quotas.believed
    }
}

impl Quotas {
    /// No quotas, kept in the same way.
    pub(super) fn afresh(&self) -> Self {
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
                    tracing::warn!(%error, "a quota for no role is passed over");
                    continue;
                }
            }
            self.stale = true;
        }
    }

    /// What may still be given, by the books. Must be settled.
    pub(super) fn budgets(&self) -> &Budgets {
        &self.budgets
    }

    /// All quotas.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Role, &Quota)> {
        self.quotas.iter()
    }

    /// Whether there is no quota at all.
    pub(super) fn is_empty(&self) -> bool {
        self.quotas.is_empty()
    }

    /// What this agent adds to the sums may be something else now.
    pub(super) fn touch(&mut self, slot: u32) {
        if !self.quotas.is_empty() {
            self.touched.insert(slot);
        }
    }

    fn settle(&mut self, agents: &mut [Option<Agent>], clients: &Clients) {
        if std::mem::take(&mut self.stale) {
            self.begin_anew(agents.len());
        }
        self.heed_wishes(clients);
        if self.touched.is_empty() {
            return;
        }
        let before = self.surplus();
        for slot in std::mem::take(&mut self.touched) {
            let agent = agents.get_mut(slot as usize).and_then(Option::as_mut);
            let share = agent.map_or_else(Share::default, |agent| self.share(agent, clients));
            self.settle_one(slot, share);
        }
        // Where nothing is required any more, everything is surplus.
        if let Some(before) = before {
            let after = self.surplus();
            self.loosened |= after.is_none_or(|after| !before.contains(&after));
        }
    }

    fn begin_anew(&mut self, slots: usize) {
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
        self.places.clear();
        self.changed.clear();
        self.short.clear();
        self.wanted_at = None;
        self.retell = true;
        if !self.quotas.is_empty() {
            self.touched = (0..).take(slots).collect();
        }
    }

    /// What is free beyond what guarantees require, if they require anything.
    fn surplus(&self) -> Option<Quantities> {
        let required = self.budgets.required();
        (!required.is_empty()).then(|| self.budgets.headroom().saturating_sub(required))
    }

    fn share(&mut self, agent: &mut Agent, clients: &Clients) -> Share {
        let mut share = Share::default();
        let n = index(Pool::Regular);
        if agent.is_offered() {
            let unreserved = agent.sides[n].available().iter();
            for resource in unreserved.filter(|resource| !resource.is_reserved()) {
                if let Some(amount) = resource.amount() {
                    share.idle.add(resource.name(), amount);
                }
            }
        }
        for resource in &agent.sides[n].total {
            if resource.is_reserved() {
                let place = self.place(resource.role());
                for (place, _) in self.budgets.chain(place) {
                    share.add(place, resource);
                }
            }
        }
        // A shared volume counts once, whoever holds it.
        let mut shared: Vec<(Place, &Resource)> = Vec::new();
        for (client, held) in agent.sides[n].holders.iter() {
            let Some(member) = clients.get(client) else {
                continue;
            };
            let place = self.place(&member.role);
            for (place, budget) in self.budgets.chain(place) {
                for resource in held {
                    let first = !resource.is_shared() || {
                        let known = |(at, one): &(Place, &Resource)| {
                            *at == place && one.annotations() == resource.annotations()
                        };
                        let first = !shared.iter().any(known);
                        shared.push((place, resource));
                        first
                    };
                    if first && counts_for(&budget.role, owner(resource)) {
                        share.add(place, resource);
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
        let mut places: SmallVec<[Place; 8]> = both.map(|(place, _)| *place).collect();
        places.sort_unstable();
        places.dedup();
        places.retain(|place| share.consumed(*place) != before.consumed(*place));
        let nothing = Quantities::new();
        for place in &places {
            let now = share.consumed(*place).unwrap_or(&nothing);
            let before = before.consumed(*place).unwrap_or(&nothing);
            let consumed = &mut self.consumed[*place as usize];
            *consumed += now;
            *consumed -= before;
            self.loosened |= !now.contains(before);
        }
        let chains = places
            .iter()
            .flat_map(|place| self.budgets.chain(Some(*place)));
        let limited = chains.filter(|(_, budget)| budget.left.iter().len() > 0);
        let mut above: SmallVec<[Place; 8]> = limited.map(|(place, _)| place).collect();
        above.sort_unstable();
        above.dedup();
        let loose = |budgets: &Budgets| -> Vec<Quantities> {
            above.iter().map(|place| budgets.loose(*place)).collect()
        };
        let before = loose(&self.budgets);
        for place in places {
            self.refresh(place);
        }
        let after = loose(&self.budgets);
        let mut both = before.iter().zip(&after);
        self.loosened |= both.any(|(before, after)| !before.contains(after));
    }

    fn refresh(&mut self, place: Place) {
        let Some(quota) = self.table.get(place as usize) else {
            return;
        };
        let consumed = &self.consumed[place as usize];
        let mut left = quota.limits.clone();
        for (name, amount) in consumed.iter() {
            left.take(name, amount);
        }
        let unmet = match self.lends && !self.wanted.contains(&place) {
            true => Quantities::new(),
            false => quota.guarantees.saturating_sub(consumed),
        };
        self.budgets.set(place, left, unmet);
        self.changed.insert(place);
    }

    fn place(&mut self, role: &Role) -> Option<Place> {
        if let Some(place) = self.places.get(role) {
            return *place;
        }
        let place = self.budgets.find(role);
        if self.places.len() >= PLACES_MAX {
            self.places.clear(); // Frameworks come and go in ever new roles.
        }
        self.places.insert(role.clone(), place);
        place
    }

    /// Whether guarantees lack anything.
    pub(super) fn lack(&self) -> bool {
        !self.budgets.required().is_empty()
    }

    /// The sorter knows nothing any more.
    pub(super) fn forget_told(&mut self) {
        self.believed = Budgets::default();
        self.changed.clear();
        self.retell = !self.quotas.is_empty();
    }

    /// What the sorter must be told so that it believes what is true; from then on it does.
    pub(super) fn tell(&mut self, changes: &mut Vec<Change>) {
        if std::mem::take(&mut self.retell) {
            let table = self.budgets.table();
            self.believed = Budgets::new(table.clone());
            self.changed.clear();
            changes.push(Change::Budgets { table });
        }
        for place in std::mem::take(&mut self.changed) {
            let (Some(now), Some(before)) = (self.budgets.get(place), self.believed.get(place))
            else {
                continue;
            };
            let (left, unmet) = (now.left.clone(), now.unmet.clone());
            if left != before.left || unmet != before.unmet {
                self.believed.set(place, left.clone(), unmet.clone());
                changes.push(Change::Budget { place, left, unmet });
            }
        }
        let (now, before) = (self.budgets.headroom(), self.believed.headroom());
        if !(now.contains(before) && before.contains(now)) {
            let amount = now.clone();
            self.believed.set_headroom(amount.clone());
            changes.push(Change::Headroom { amount });
        }
    }

    /// The sorter has advised to give a room's portion to a client of this role, and believes that it was done. Says how much that was.
    pub(super) fn presume(
        &mut self,
        stage: Stage,
        role: &Role,
        shape: Option<&Shape>,
        room: &mut Room,
    ) -> Quantities {
        // What is told is the same table.
        let place = match self.retell {
            true => self.believed.find(role),
            false => self.place(role),
        };
        if !self.retell {
            let chain = self.believed.chain(place).map(|(place, _)| place);
            self.changed.extend(chain);
        }
        self.believed.take(stage, place, role, shape, room)
    }

    /// What of this a client of this role is given; all of it may be given to it for what it is. Must be settled.
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
        let place = self.place(role);
        self.parts_at(stage, place, role, pool)
    }

    /// The same for whoever has this place.
    fn parts_at(
        &self,
        stage: Stage,
        place: Option<Place>,
        role: &Role,
        pool: &Resources,
    ) -> Option<Parts> {
        let budgets = &self.budgets;
        if stage != Stage::Guarantees {
            return Some(parts(budgets, stage, place, role, pool));
        }
        if !budgets.is_needy(place) {
            return None;
        }
        let parts = parts(budgets, stage, place, role, pool);
        // Cut to what is indivisible, it may be that nothing is left that a guarantee lacks.
        let meets = |own: &Resource| {
            let amount = own.amount().filter(|amount| !amount.is_zero());
            !own.is_reserved() && amount.is_some() && budgets.lacks(place, &own.name())
        };
        parts.iter().any(meets).then_some(parts)
    }

    /// Notes the agents of which something that somebody might want was kept back, or was when they were walked.
    pub(super) fn note_short(&mut self, slot: u32, free: &Quantities, tightest: &Quantities) {
        let within_limits = tightest.iter().all(|(name, left)| free.get(name) <= left);
        if self.loosened || !within_limits || !self.budgets.spare(free).contains(free) {
            self.short.insert(slot);
        }
    }

    /// The same of what is reserved for a role with a limit somewhere below it: it counts for whoever has it there.
    pub(super) fn note_reserved(&mut self, slot: u32, room: &Room) {
        let mut owners = room.reserved.iter().map(|(owner, _)| owner);
        if owners.any(|owner| self.above_limits.contains(owner)) {
            self.short.insert(slot);
        }
    }

    /// Of each name that is limited, the least that any limit leaves to everybody.
    pub(super) fn tightest(&self) -> Quantities {
        let mut tightest = Quantities::new();
        for (place, _) in (0..).zip(&self.consumed) {
            for (name, left) in self.budgets.loose(place).iter() {
                if !tightest.names(name) || tightest.get(name) > left {
                    tightest.set(name.clone(), left);
                }
            }
        }
        tightest
    }

    /// The agents to be looked at again because more may be given than before.
    pub(super) fn take_short(&mut self) -> BTreeSet<u32> {
        match std::mem::take(&mut self.loosened) {
            true => std::mem::take(&mut self.short),
            false => BTreeSet::new(),
        }
    }

    /// Every agent is looked at again anyway.
    pub(super) fn forget_short(&mut self) {
        self.loosened = false;
        self.short.clear();
    }
}

/// Parts of a pool, of each entry at most one, in no order.
pub(super) type Parts = SmallVec<[Resource; 5]>;

/// Whether all of an entry is given to whoever is given anything: what is no amount is never cut.
pub(super) fn is_uncut(own: &Resource) -> bool {
    own.amount().is_none() && !own.is_reserved()
}

/// What of this these budgets give to a client of this role.
pub(super) fn given(
    budgets: &Budgets,
    stage: Stage,
    place: Option<Place>,
    role: &Role,
    pool: &Resources,
) -> Resources {
    let parts = parts(budgets, stage, place, role, pool);
    parts.into_iter().collect()
}

/// The same, entry by entry.
fn parts(
    budgets: &Budgets,
    stage: Stage,
    place: Option<Place>,
    role: &Role,
    pool: &Resources,
) -> Parts {
    let room = room(pool);
    let portion = budgets.portion(stage, place, role, &room);
    let mut free = portion.free;
    let mut reserved = vec![Quantities::new(); room.reserved.len()];
    for (n, amount) in portion.reserved {
        reserved[n] = amount;
    }
    // What cannot be cut first and the biggest of it before the rest, or what fits would depend on the order of names.
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

/// Whom a resource is reserved for.
fn owner(resource: &Resource) -> Option<&Role> {
    resource.is_reserved().then(|| resource.role())
}

/// As much of an amount as `most` has, which is less by that then; nothing of what cannot be cut and is more.
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

/// The amounts of what is available, by whom they are reserved for.
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
