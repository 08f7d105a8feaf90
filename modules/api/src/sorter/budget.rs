//! Budgets: what each role with a quota may still be given, and what must stay free for guarantees (SPEC 4.5).
//!
//! Plain sums. The allocator keeps one [`Budgets`] by its books and one by what the sorter believes, the sorter keeps the latter too, and
//! all three give and charge by the same functions. A limit holds for its role and for all below it, so whoever is given something is
//! charged on every level above it. Knows no agent and no framework, and never reads a clock.

use std::borrow::Cow;
use std::collections::BTreeMap;

use resources::{Name, Quantities, Role, Scalar};
use serde::{Deserialize, Serialize};

use super::{Room, Shape, Stage};

/// The number of a budget: its place in the table that the allocator made.
pub type Place = u32;

/// One role that has a quota.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    /// Which.
    pub role: Role,
    /// What it and the roles below it may still be given. A name that is not listed is not limited.
    pub left: Quantities,
    /// What is guaranteed to it and neither held nor reserved yet.
    pub unmet: Quantities,
}

#[derive(Clone, Debug)]
struct Level {
    budget: Budget,
    /// The nearest role above that has a budget.
    above: Option<Place>,
    /// What the budgets right below require together.
    below: Quantities,
    /// What must stay free for this role and those below it: what its own guarantee lacks, or what theirs lack if that is more; and no
    /// more than its limit leaves, since nothing beyond that can ever be given to them.
    required: Quantities,
}

impl Level {
    /// What of this name must stay free for clients right in its role.
    fn lacking(&self, name: &Name) -> Scalar {
        let below = self.below.get(name);
        self.required.get(name).saturating_sub(below)
    }

    /// As much of an amount as the limit leaves.
    fn within(&self, mut amount: Quantities) -> Quantities {
        for (name, left) in self.budget.left.iter() {
            if amount.get(name) > left {
                amount.set(name.clone(), left);
            }
        }
        amount
    }
}

/// What a client is given of a room, by whom it is reserved for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Portion {
    /// Of what is for whoever is next.
    pub free: Quantities,
    /// Of what is reserved, by its place in the room.
    pub reserved: Vec<(usize, Quantities)>,
}

impl Portion {
    /// All of a room that may be given to a client of this role.
    fn whole(role: &Role, room: &Room) -> Self {
        let own = (0..).zip(&room.reserved);
        let own = own.filter(|(_, (owner, _))| role.is_within(owner));
        Self {
            free: room.free.clone(),
            reserved: own.map(|(n, (_, amount))| (n, amount.clone())).collect(),
        }
    }

    /// All of it.
    pub fn sum(&self) -> Quantities {
        let reserved = self.reserved.iter();
        reserved.fold(self.free.clone(), |sum, (_, amount)| sum + amount)
    }
}

/// All budgets, and how much is free in the cluster.
#[derive(Clone, Debug, Default)]
pub struct Budgets {
    levels: Vec<Level>,
    by_role: BTreeMap<Role, Place>,
    headroom: Quantities,
    required: Quantities,
}

impl Budgets {
    /// These budgets, each at its place, with nothing free in the cluster. Of two for one role, the first counts.
    pub fn new(table: Vec<Budget>) -> Self {
        let mut budgets = Self::default();
        for (place, budget) in (0..).zip(&table) {
            budgets.by_role.entry(budget.role.clone()).or_insert(place);
        }
        for budget in table {
            let above = budget.role.parent().and_then(|role| budgets.find(&role));
            budgets.levels.push(Level {
                budget,
                above,
                below: Quantities::new(),
                required: Quantities::new(),
            });
        }
        (0..)
            .take(budgets.levels.len())
            .for_each(|place| budgets.require(place));
        budgets
    }

    /// All budgets in their places, as [`Change::Budgets`](super::Change) tells them.
    pub fn table(&self) -> Vec<Budget> {
        let budgets = self.levels.iter().map(|level| &level.budget);
        budgets.cloned().collect()
    }

    /// Whether no role has a budget.
    pub fn is_empty(&self) -> bool {
        self.levels.is_empty()
    }

    /// The budget that counts for a role: its own or the nearest above it.
    pub fn find(&self, role: &Role) -> Option<Place> {
        let mut at = Some(role.clone());
        while let Some(role) = at {
            if let Some(place) = self.by_role.get(&role) {
                return Some(*place);
            }
            at = role.parent();
        }
        None
    }

    /// One budget.
    pub fn get(&self, place: Place) -> Option<&Budget> {
        self.levels.get(place as usize).map(|level| &level.budget)
    }

    /// A budget and all above it, the nearest first.
    pub fn chain(&self, place: Option<Place>) -> impl Iterator<Item = (Place, &Budget)> {
        let mut at = place;
        std::iter::from_fn(move || {
            let place = at?;
            let level = self.levels.get(place as usize)?;
            at = level.above;
            Some((place, &level.budget))
        })
    }

    /// Of each name that a budget limits, what its limit leaves to whoever is not below it in a role that lacks what it is guaranteed.
    pub fn loose(&self, place: Place) -> Quantities {
        let Some(level) = self.levels.get(place as usize) else {
            return Quantities::new();
        };
        let loose = |(name, left): (&Name, Scalar)| {
            let kept = level.below.get(name);
            (name.clone(), left.saturating_sub(kept))
        };
        level.budget.left.iter().map(loose).collect()
    }

    /// One budget is this from now on.
    pub fn set(&mut self, place: Place, left: Quantities, unmet: Quantities) {
        if let Some(level) = self.levels.get_mut(place as usize) {
            level.budget.left = left;
            level.budget.unmet = unmet;
            self.require(place);
        }
    }

    /// So much is unreserved and free in the whole cluster.
    pub fn set_headroom(&mut self, headroom: Quantities) {
        self.headroom = headroom;
    }

    /// What is unreserved and free in the whole cluster.
    pub fn headroom(&self) -> &Quantities {
        &self.headroom
    }

    /// What of it must stay free for guarantees that are not met.
    pub fn required(&self) -> &Quantities {
        &self.required
    }

    /// What the guarantee of this role lacks, without what roles below it require for themselves.
    pub fn lacking(&self, place: Place) -> Quantities {
        let level = self.levels.get(place as usize);
        level.map_or_else(Quantities::new, |level| {
            level.required.saturating_sub(&level.below)
        })
    }

    /// Whether guarantees still lack anything of this name for clients right in this role: of each level above them what no role below that
    /// level requires for itself.
    pub fn lacks(&self, place: Option<Place>, name: &Name) -> bool {
        let mut levels = self.chain(place);
        levels.any(|(place, _)| !self.levels[place as usize].lacking(name).is_zero())
    }

    /// Whether guarantees lack anything for clients right in this role.
    pub fn is_needy(&self, place: Option<Place>) -> bool {
        self.chain(place).any(|(place, _)| {
            let level = &self.levels[place as usize];
            !level.below.contains(&level.required)
        })
    }

    /// Whether any limit holds for clients in this role.
    pub fn is_limited(&self, place: Option<Place>) -> bool {
        self.chain(place)
            .any(|(_, budget)| budget.left.iter().len() > 0)
    }

    /// Whether limits leave so much of what is unreserved that any of the sets could be given. Once they do not, they never do again
    /// in the same walk.
    pub fn may_give(&self, place: Option<Place>, sets_min: &[Quantities]) -> bool {
        let leaves = |set: &Quantities| {
            let within = |(_, budget): (Place, &Budget)| {
                set.iter().all(|(name, amount)| {
                    limit(&budget.left, name).is_none_or(|left| left >= amount)
                })
            };
            self.chain(place).all(within)
        };
        sets_min.is_empty() || sets_min.iter().any(leaves)
    }

    /// As much of this as need not stay free for guarantees.
    pub fn spare<'a>(&self, amount: &'a Quantities) -> Cow<'a, Quantities> {
        if self.required.is_empty() {
            return Cow::Borrowed(amount);
        }
        let spared = amount.iter().map(|(name, amount)| {
            let required = self.required.get(name);
            let most = self.headroom.get(name).saturating_sub(required);
            let bound = !required.is_zero();
            (
                name.clone(),
                if bound {
                    cut(name, amount, most)
                } else {
                    amount
                },
            )
        });
        Cow::Owned(spared.collect())
    }

    /// What a client of this role, with the budget at `place`, is given of a room when it is next.
    pub fn portion(&self, stage: Stage, place: Option<Place>, role: &Role, room: &Room) -> Portion {
        let mut limits = Limits::of(self, place);
        let mut portion = Portion::default();
        let (mut met, mut rest) = (Quantities::new(), Cow::Borrowed(&room.free));
        if stage == Stage::Guarantees {
            for (depth, (place, _)) in (0..).zip(self.chain(place)) {
                let level = &self.levels[place as usize];
                let part = rest.iter().filter_map(|(name, amount)| {
                    let lacking = level.lacking(name);
                    (!lacking.is_zero()).then(|| (name.clone(), cut(name, amount, lacking)))
                });
                let part = limits.take_lacking(depth, part.collect());
                if !part.is_empty() {
                    met += &part;
                    *rest.to_mut() -= &part;
                }
            }
            if met.is_empty() {
                return portion;
            }
        }
        for (n, (owner, amount)) in room.reserved.iter().enumerate() {
            let own = match stage {
                Stage::Guarantees => owner == role,
                Stage::Fair | Stage::Revocable => role.is_within(owner),
            };
            if own {
                let part = limits.take(Some(owner), amount.clone());
                portion.reserved.push((n, part));
            }
        }
        portion.free = limits.take(None, self.spare(&rest).into_owned()) + &met;
        portion
    }

    /// How much that is in all, cut to a client's shape if it has one.
    pub fn amount(
        &self,
        stage: Stage,
        place: Option<Place>,
        role: &Role,
        shape: Option<&Shape>,
        room: &Room,
    ) -> Quantities {
        if shape.is_none() && !self.bind(stage) {
            return room.portion(role);
        }
        self.cut_portion(stage, place, role, shape, room).sum()
    }

    /// Takes that portion out of the room and charges it.
    pub fn take(
        &mut self,
        stage: Stage,
        place: Option<Place>,
        role: &Role,
        shape: Option<&Shape>,
        room: &mut Room,
    ) -> Quantities {
        let bind = self.bind(stage);
        if shape.is_none() && !bind {
            return room.take(role);
        }
        let portion = self.cut_portion(stage, place, role, shape, room);
        room.free -= &portion.free;
        for (n, amount) in &portion.reserved {
            room.reserved[*n].1 -= amount;
        }
        if bind {
            self.headroom -= &portion.free;
            self.charge(place, None, &portion.free);
            for (n, amount) in &portion.reserved {
                self.charge(place, Some(&room.reserved[*n].0), amount);
            }
        }
        room.reserved.retain(|(_, left)| !left.is_empty());
        portion.sum()
    }

    /// Whether there is any budget to heed in this stage.
    fn bind(&self, stage: Stage) -> bool {
        !self.is_empty() && stage != Stage::Revocable
    }

    /// A portion within budgets, if they bind, and within the shape.
    fn cut_portion(
        &self,
        stage: Stage,
        place: Option<Place>,
        role: &Role,
        shape: Option<&Shape>,
        room: &Room,
    ) -> Portion {
        let bind = self.bind(stage);
        let mut portion = match bind {
            true => self.portion(stage, place, role, room),
            false => Portion::whole(role, room),
        };
        let Some(shape) = shape else {
            return portion;
        };
        shape.cut(&mut portion);
        // Cut to its shape, it may be that nothing is left that a guarantee lacks.
        let meets = |(name, amount): (&Name, Scalar)| !amount.is_zero() && self.lacks(place, name);
        if bind && stage == Stage::Guarantees && !portion.free.iter().any(meets) {
            return Portion::default();
        }
        portion
    }

    /// Charges what a client is given on every level that it counts for. What is reserved counts already for its owner and those above.
    fn charge(&mut self, place: Option<Place>, owner: Option<&Role>, amount: &Quantities) {
        let mut at = place;
        while let Some(place) = at {
            let Some(level) = self.levels.get_mut(place as usize) else {
                return;
            };
            at = level.above;
            if counts_for(&level.budget.role, owner) {
                amount
                    .iter()
                    .for_each(|(name, amount)| level.budget.left.take(name, amount));
                level.budget.unmet -= amount;
                self.require(place);
            }
        }
    }

    /// Works out anew what is required at this level, and what follows from that above.
    fn require(&mut self, place: Place) {
        let mut at = Some(place);
        while let Some(place) = at {
            let level = &mut self.levels[place as usize];
            let mut required = level.below.clone();
            for (name, unmet) in level.budget.unmet.iter() {
                if unmet > required.get(name) {
                    required.set(name.clone(), unmet);
                }
            }
            let required = level.within(required);
            if required == level.required {
                return;
            }
            let before = std::mem::replace(&mut level.required, required.clone());
            at = level.above;
            let sum = match at {
                Some(above) => &mut self.levels[above as usize].below,
                None => &mut self.required,
            };
            *sum += &required;
            *sum -= &before;
        }
    }
}

/// Whether what is reserved for `owner`, or for nobody, is charged to `role` when it or one below it is given that. A reservation counts
/// for its owner and those above whether it is used or not, so they are not charged again.
pub fn counts_for(role: &Role, owner: Option<&Role>) -> bool {
    owner.is_none_or(|owner| !owner.is_within(role))
}

/// Of an amount, at most so much; of graphics processors, whole ones.
pub(super) fn cut(name: &Name, amount: Scalar, most: Scalar) -> Scalar {
    if amount <= most {
        return amount;
    }
    let part = match name {
        Name::Gpus => most.thousandths() % 1000,
        _ => 0,
    };
    most.saturating_sub(Scalar::from_thousandths(part).unwrap_or_default())
}

/// How much a list of limits leaves of this name, if it limits it.
pub(super) fn limit(left: &Quantities, name: &Name) -> Option<Scalar> {
    left.names(name).then(|| left.get(name))
}

/// What the limits above one client leave, while a portion is put together.
struct Limits<'a>(Vec<Limit<'a>>);

struct Limit<'a> {
    role: &'a Role,
    /// How many levels it is above the nearest.
    depth: u32,
    left: Quantities,
    /// What of it is kept for guarantees of roles below that this client is not in.
    kept: Quantities,
}

impl Limit<'_> {
    fn loose(&self, name: &Name) -> Scalar {
        self.left.get(name).saturating_sub(self.kept.get(name))
    }
}

impl<'a> Limits<'a> {
    fn of(budgets: &'a Budgets, place: Option<Place>) -> Self {
        let mut limits = Vec::new();
        if !budgets.is_limited(place) {
            return Self(limits);
        }
        let mut kept = Quantities::new();
        let mut lower: Option<&Level> = None;
        for (depth, (place, budget)) in (0..).zip(budgets.chain(place)) {
            let level = &budgets.levels[place as usize];
            kept = match lower {
                None => level.below.clone(),
                Some(lower) => lower.within(kept) + &level.below.saturating_sub(&lower.required),
            };
            lower = Some(level);
            if budget.left.iter().len() > 0 {
                limits.push(Limit {
                    role: &budget.role,
                    depth,
                    left: budget.left.clone(),
                    kept: kept.clone(),
                });
            }
        }
        Self(limits)
    }

    /// As much of what the guarantee of that level lacks as all levels leave, those below it beside what they keep; it is gone from them
    /// then.
    fn take_lacking(&mut self, depth: u32, amount: Quantities) -> Quantities {
        self.cut(None, amount, |limit, name| match limit.depth < depth {
            true => limit.loose(name),
            false => limit.left.get(name),
        })
    }

    /// As much of an amount as all levels that it counts for leave beside what they keep; it is gone from them then.
    fn take(&mut self, owner: Option<&Role>, amount: Quantities) -> Quantities {
        self.cut(owner, amount, |limit, name| limit.loose(name))
    }

    fn cut(
        &mut self,
        owner: Option<&Role>,
        amount: Quantities,
        most: impl Fn(&Limit<'_>, &Name) -> Scalar,
    ) -> Quantities {
        if self.0.is_empty() {
            return amount;
        }
        let counts = |limit: &Limit<'_>| counts_for(limit.role, owner);
        let cut_one = |(name, amount): (&Name, Scalar)| {
            let limited = |limit: &&Limit<'_>| counts(limit) && limit.left.names(name);
            let mosts = self.0.iter().filter(limited).map(|one| most(one, name));
            let amount = mosts.fold(amount, |amount, most| cut(name, amount, most));
            (name.clone(), amount)
        };
        let amount: Quantities = amount.iter().map(cut_one).collect();
        for limit in self.0.iter_mut().filter(|limit| counts(limit)) {
            let given = amount.iter();
            given.for_each(|(name, amount)| limit.left.take(name, amount));
        }
        amount
    }
}

#[cfg(test)]
mod tests;
