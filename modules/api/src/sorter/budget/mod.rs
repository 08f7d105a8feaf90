//! Budgets: the amounts that each role with a quota may still get, and the amounts that must stay
//! free for guarantees.
//!
//! The allocator keeps one [`Budgets`] for its own state and one for the sorter's assumed state;
//! the sorter keeps the latter too. All three compute portions and charges with the same functions.
//! A limit applies to its role and to all roles below it, so each allocation is charged to every
//! level above the client. Knows no agents or frameworks.

use std::borrow::Cow;
use std::collections::BTreeMap;

use resources::{Name, Quantities, Role, Scalar};
use serde::{Deserialize, Serialize};

use super::{Room, Shape, Stage};

/// Index of a budget in the table that the allocator made.
pub type BudgetIndex = u32;

/// One role with a quota.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    /// The role.
    pub role: Role,
    /// Amounts that the role and the roles below it may still get. A name that is not listed is
    /// unlimited.
    pub left: Quantities,
    /// The guaranteed amounts that are neither allocated nor reserved yet.
    pub unmet: Quantities,
}

#[derive(Clone, Debug)]
struct Level {
    budget: Budget,
    /// The nearest role above that has a budget.
    above: Option<BudgetIndex>,
    /// Sum of `required` of the budgets directly below.
    below: Quantities,
    /// Amounts that must stay free for this role and the roles below it: the larger of its own
    /// unmet guarantee and theirs, capped by its remaining limit, since the role can never get more
    /// than that.
    required: Quantities,
}

impl Level {
    /// The amount of this name that must stay free for clients directly in its role.
    fn lacking(&self, name: &Name) -> Scalar {
        let below = self.below.get(name);
        self.required.get(name).saturating_sub(below)
    }

    /// An amount, capped by the remaining limit.
    fn within(&self, mut amount: Quantities) -> Quantities {
        for (name, left) in self.budget.left.iter() {
            if amount.get(name) > left {
                amount.set(name.clone(), left);
            }
        }
        amount
    }
}

/// Resources of one room for one client, by reservation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Portion {
    /// Part of the unreserved resources.
    pub free: Quantities,
    /// Parts of the reserved resources, with their index in the room.
    pub reserved: Vec<(usize, Quantities)>,
}

impl Portion {
    /// All resources of a room that a client of this role may get.
    fn whole(role: &Role, room: &Room) -> Self {
        let own = (0..).zip(&room.reserved);
        let own = own.filter(|(_, (owner, _))| role.is_within(owner));
        Self {
            free: room.free.clone(),
            reserved: own.map(|(n, (_, amount))| (n, amount.clone())).collect(),
        }
    }

    /// The sum of all parts.
    pub fn sum(&self) -> Quantities {
        let reserved = self.reserved.iter();
        reserved.fold(self.free.clone(), |sum, (_, amount)| sum + amount)
    }
}

/// All budgets, and the free resources of the cluster.
#[derive(Clone, Debug, Default)]
pub struct Budgets {
    levels: Vec<Level>,
    by_role: BTreeMap<Role, BudgetIndex>,
    headroom: Quantities,
    required: Quantities,
}

impl Budgets {
    /// Budgets in the order of their indices, with nothing free in the cluster. Of two budgets for
    /// one role, the first counts.
    pub fn new(table: Vec<Budget>) -> Self {
        let mut budgets = Self::default();
        for (index, budget) in (0..).zip(&table) {
            budgets.by_role.entry(budget.role.clone()).or_insert(index);
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
            .for_each(|index| budgets.require(index));
        budgets
    }

    /// All budgets in order, as [`Change::Budgets`](super::Change) carries them.
    pub fn table(&self) -> Vec<Budget> {
        let budgets = self.levels.iter().map(|level| &level.budget);
        budgets.cloned().collect()
    }

    /// Whether no role has a budget.
    pub fn is_empty(&self) -> bool {
        self.levels.is_empty()
    }

    /// The budget that applies to a role: its own or the nearest above it.
    pub fn find(&self, role: &Role) -> Option<BudgetIndex> {
        let mut at = Some(role.clone());
        while let Some(role) = at {
            if let Some(index) = self.by_role.get(&role) {
                return Some(*index);
            }
            at = role.parent();
        }
        None
    }

    /// One budget.
    pub fn get(&self, index: BudgetIndex) -> Option<&Budget> {
        self.levels.get(index as usize).map(|level| &level.budget)
    }

    /// A budget and all above it, nearest first.
    pub fn chain(
        &self,
        index: Option<BudgetIndex>,
    ) -> impl Iterator<Item = (BudgetIndex, &Budget)> {
        let mut at = index;
        std::iter::from_fn(move || {
            let index = at?;
            let level = self.levels.get(index as usize)?;
            at = level.above;
            Some((index, &level.budget))
        })
    }

    /// For each limited name, the remaining limit without the amounts required by the budgets
    /// below.
    pub fn loose(&self, index: BudgetIndex) -> Quantities {
        let Some(level) = self.levels.get(index as usize) else {
            return Quantities::new();
        };
        let loose = |(name, left): (&Name, Scalar)| {
            let kept = level.below.get(name);
            (name.clone(), left.saturating_sub(kept))
        };
        level.budget.left.iter().map(loose).collect()
    }

    /// Replaces the amounts of one budget.
    pub fn set(&mut self, index: BudgetIndex, left: Quantities, unmet: Quantities) {
        if let Some(level) = self.levels.get_mut(index as usize) {
            level.budget.left = left;
            level.budget.unmet = unmet;
            self.require(index);
        }
    }

    /// Sets the unreserved free resources of the whole cluster.
    pub fn set_headroom(&mut self, headroom: Quantities) {
        self.headroom = headroom;
    }

    /// The unreserved free resources of the whole cluster.
    pub fn headroom(&self) -> &Quantities {
        &self.headroom
    }

    /// The part of the headroom that must stay free for unmet guarantees.
    pub fn required(&self) -> &Quantities {
        &self.required
    }

    /// The unmet guarantee of this role, without the amounts that roles below it require for
    /// themselves.
    pub fn lacking(&self, index: BudgetIndex) -> Quantities {
        let level = self.levels.get(index as usize);
        level.map_or_else(Quantities::new, |level| {
            level.required.saturating_sub(&level.below)
        })
    }

    /// Whether guarantees lack any of this name for clients directly in this role. Counts each
    /// level above them, without the amounts that roles below that level require for themselves.
    pub fn lacks(&self, index: Option<BudgetIndex>, name: &Name) -> bool {
        let mut levels = self.chain(index);
        levels.any(|(index, _)| !self.levels[index as usize].lacking(name).is_zero())
    }

    /// Whether guarantees lack any resource for clients directly in this role.
    pub fn is_needy(&self, index: Option<BudgetIndex>) -> bool {
        self.chain(index).any(|(index, _)| {
            let level = &self.levels[index as usize];
            !level.below.contains(&level.required)
        })
    }

    /// Whether any limit applies to clients in this role.
    pub fn is_limited(&self, index: Option<BudgetIndex>) -> bool {
        self.chain(index)
            .any(|(_, budget)| budget.left.iter().len() > 0)
    }

    /// Whether the remaining limits admit any of the sets from unreserved resources. Once false, it
    /// stays false for the rest of the walk.
    pub fn may_give(&self, index: Option<BudgetIndex>, sets_min: &[Quantities]) -> bool {
        let leaves = |set: &Quantities| {
            let within = |(_, budget): (BudgetIndex, &Budget)| {
                set.iter().all(|(name, amount)| {
                    limit(&budget.left, name).is_none_or(|left| left >= amount)
                })
            };
            self.chain(index).all(within)
        };
        sets_min.is_empty() || sets_min.iter().any(leaves)
    }

    /// The part of an amount that need not stay free for guarantees.
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

    /// The portion of a room for the next client, which has this role and the budget at `index`.
    pub fn portion(
        &self,
        stage: Stage,
        index: Option<BudgetIndex>,
        role: &Role,
        room: &Room,
    ) -> Portion {
        let mut limits = Limits::of(self, index);
        let mut portion = Portion::default();
        let (mut met, mut rest) = (Quantities::new(), Cow::Borrowed(&room.free));
        if stage == Stage::Guarantees {
            for (depth, (index, _)) in (0..).zip(self.chain(index)) {
                let level = &self.levels[index as usize];
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

    /// The sum of that portion, cut to the client's shape if it has one.
    pub fn amount(
        &self,
        stage: Stage,
        index: Option<BudgetIndex>,
        role: &Role,
        shape: Option<&Shape>,
        room: &Room,
    ) -> Quantities {
        if shape.is_none() && !self.bind(stage) {
            return room.portion(role);
        }
        self.cut_portion(stage, index, role, shape, room).sum()
    }

    /// Takes that portion out of the room and charges it.
    pub fn take(
        &mut self,
        stage: Stage,
        index: Option<BudgetIndex>,
        role: &Role,
        shape: Option<&Shape>,
        room: &mut Room,
    ) -> Quantities {
        let bind = self.bind(stage);
        if shape.is_none() && !bind {
            return room.take(role);
        }
        let portion = self.cut_portion(stage, index, role, shape, room);
        room.free -= &portion.free;
        for (n, amount) in &portion.reserved {
            room.reserved[*n].1 -= amount;
        }
        if bind {
            self.headroom -= &portion.free;
            self.charge(index, None, &portion.free);
            for (n, amount) in &portion.reserved {
                self.charge(index, Some(&room.reserved[*n].0), amount);
            }
        }
        room.reserved.retain(|(_, left)| !left.is_empty());
        portion.sum()
    }

    /// Whether any budget applies in this stage.
    fn bind(&self, stage: Stage) -> bool {
        !self.is_empty() && stage != Stage::Revocable
    }

    /// The portion within the budgets, if they apply, and within the shape.
    fn cut_portion(
        &self,
        stage: Stage,
        index: Option<BudgetIndex>,
        role: &Role,
        shape: Option<&Shape>,
        room: &Room,
    ) -> Portion {
        let bind = self.bind(stage);
        let mut portion = match bind {
            true => self.portion(stage, index, role, room),
            false => Portion::whole(role, room),
        };
        let Some(shape) = shape else {
            return portion;
        };
        shape.cut(&mut portion);
        // After the cut, the portion may contain nothing that a guarantee lacks.
        let meets = |(name, amount): (&Name, Scalar)| !amount.is_zero() && self.lacks(index, name);
        if bind && stage == Stage::Guarantees && !portion.free.iter().any(meets) {
            return Portion::default();
        }
        portion
    }

    /// Charges an allocation on every level that it counts for. Reserved resources already count
    /// for their owner and the roles above it.
    fn charge(&mut self, index: Option<BudgetIndex>, owner: Option<&Role>, amount: &Quantities) {
        let mut at = index;
        while let Some(index) = at {
            let Some(level) = self.levels.get_mut(index as usize) else {
                return;
            };
            at = level.above;
            if counts_for(&level.budget.role, owner) {
                amount
                    .iter()
                    .for_each(|(name, amount)| level.budget.left.take(name, amount));
                level.budget.unmet -= amount;
                self.require(index);
            }
        }
    }

    /// Recomputes the required amounts of this level and of those above it.
    fn require(&mut self, index: BudgetIndex) {
        let mut at = Some(index);
        while let Some(index) = at {
            let level = &mut self.levels[index as usize];
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

/// Whether an allocation in `role` or below it is charged to `role`, if the resources are reserved
/// for `owner` (`None`: unreserved). A reservation counts for its owner and the roles above it,
/// used or not, so they are not charged again.
pub fn counts_for(role: &Role, owner: Option<&Role>) -> bool {
    owner.is_none_or(|owner| !owner.is_within(role))
}

/// The smaller of an amount and `most`; of GPUs, only whole ones.
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

/// The remaining limit of this name, if it is limited.
pub(super) fn limit(left: &Quantities, name: &Name) -> Option<Scalar> {
    left.names(name).then(|| left.get(name))
}

/// The remaining limits of one client and of the levels above it, while a portion is computed.
struct Limits<'a>(Vec<Limit<'a>>);

struct Limit<'a> {
    role: &'a Role,
    /// Number of levels above the nearest budget.
    depth: u32,
    left: Quantities,
    /// The part that is kept for guarantees of roles below to which this client does not belong.
    kept: Quantities,
}

impl Limit<'_> {
    fn loose(&self, name: &Name) -> Scalar {
        self.left.get(name).saturating_sub(self.kept.get(name))
    }
}

impl<'a> Limits<'a> {
    fn of(budgets: &'a Budgets, index: Option<BudgetIndex>) -> Self {
        let mut limits = Vec::new();
        if !budgets.is_limited(index) {
            return Self(limits);
        }
        let mut kept = Quantities::new();
        let mut lower: Option<&Level> = None;
        for (depth, (index, budget)) in (0..).zip(budgets.chain(index)) {
            let level = &budgets.levels[index as usize];
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

    /// Takes an amount for the unmet guarantee of the level at `depth`. Lower levels give only the
    /// part that they do not keep for others.
    fn take_lacking(&mut self, depth: u32, amount: Quantities) -> Quantities {
        self.cut(None, amount, |limit, name| match limit.depth < depth {
            true => limit.loose(name),
            false => limit.left.get(name),
        })
    }

    /// Takes as much of an amount as all charged levels have, without the parts they keep.
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
