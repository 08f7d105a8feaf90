//! Budgets: what each role with a quota may still be given, and what must stay free for guarantees (SPEC 4.5).
//!
//! Plain sums. The allocator keeps one [`Budgets`] by its books and one by what the sorter believes, the sorter keeps the latter too, and
//! all three give and charge by the same functions. A limit holds for its role and for all below it, so whoever is given something is
//! charged on every level above it. Knows no agent and no framework, and never reads a clock.

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
    /// What must stay free for this role and those below it: what its own guarantee lacks, or what theirs lack if that is more.
    required: Quantities,
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

    /// What guarantees still lack for clients right in this role: of each level above them what no role below that level requires for itself.
    pub fn needs(&self, place: Option<Place>) -> Quantities {
        let mut needs = Quantities::new();
        for (place, _) in self.chain(place) {
            let level = &self.levels[place as usize];
            needs += &level.required.saturating_sub(&level.below);
        }
        needs
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
    pub fn spare(&self, amount: &Quantities) -> Quantities {
        if self.required.is_empty() {
            return amount.clone();
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
        spared.collect()
    }

    /// What a client of this role, with the budget at `place`, is given of a room when it is next.
    pub fn portion(&self, stage: Stage, place: Option<Place>, role: &Role, room: &Room) -> Portion {
        let mut limits = Limits::of(self, place);
        let mut portion = Portion::default();
        let met = match stage {
            Stage::Guarantees => {
                let needs = self.needs(place);
                let met = room.free.iter();
                let met =
                    met.map(|(name, amount)| (name.clone(), cut(name, amount, needs.get(name))));
                let met = limits.take(None, met.collect());
                if met.is_empty() {
                    return portion;
                }
                met
            }
            Stage::Fair | Stage::Revocable => Quantities::new(),
        };
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
        let rest = self.spare(&room.free.saturating_sub(&met));
        portion.free = met + &limits.take(None, rest);
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
        if bind && stage == Stage::Guarantees && self.needs(place).lesser(&portion.free).is_empty()
        {
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
struct Limits<'a>(Vec<(&'a Role, Quantities)>);

impl<'a> Limits<'a> {
    fn of(budgets: &'a Budgets, place: Option<Place>) -> Self {
        let limited = budgets.chain(place).map(|(_, budget)| budget);
        let limited = limited.filter(|budget| budget.left.iter().len() > 0);
        Self(
            limited
                .map(|budget| (&budget.role, budget.left.clone()))
                .collect(),
        )
    }

    /// As much of an amount as all levels that it counts for leave; it is gone from them then.
    fn take(&mut self, owner: Option<&Role>, mut amount: Quantities) -> Quantities {
        if self.0.is_empty() {
            return amount;
        }
        let levels = || self.0.iter().filter(|(role, _)| counts_for(role, owner));
        let cut_all = |(name, amount): (&Name, Scalar)| {
            let lefts = levels().filter_map(|(_, left)| limit(left, name));
            (
                name.clone(),
                lefts.fold(amount, |amount, left| cut(name, amount, left)),
            )
        };
        amount = amount.iter().map(cut_all).collect();
        for (role, left) in &mut self.0 {
            if counts_for(role, owner) {
                amount
                    .iter()
                    .for_each(|(name, amount)| left.take(name, amount));
            }
        }
        amount
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quantities(text: &str) -> Quantities {
        Quantities::parse(text).unwrap()
    }

    fn role(text: &str) -> Role {
        Role::new(text).unwrap()
    }

    /// Budgets as `role limits unmet`, and what is free in the cluster.
    fn budgets(headroom: &str, table: &[(&str, &str, &str)]) -> Budgets {
        let table = table.iter().map(|(name, left, unmet)| Budget {
            role: role(name),
            left: quantities(left),
            unmet: quantities(unmet),
        });
        let mut budgets = Budgets::new(table.collect());
        budgets.set_headroom(quantities(headroom));
        budgets
    }

    fn free(text: &str) -> Room {
        Room {
            free: quantities(text),
            reserved: Vec::new(),
        }
    }

    fn given(budgets: &mut Budgets, stage: Stage, name: &str, room: &mut Room) -> String {
        let role = role(name);
        let place = budgets.find(&role);
        let amount = budgets.amount(stage, place, &role, None, room);
        let taken = budgets.take(stage, place, &role, None, room);
        assert_eq!(amount, taken);
        let some = taken.iter().filter(|(_, amount)| !amount.is_zero());
        let some = some.map(|(name, amount)| (name.clone(), amount));
        some.collect::<Quantities>().to_string()
    }

    /// SPEC 4.5, 4.10 (NestedRoleQuota).
    #[test]
    fn a_limit_holds_for_the_role_and_all_below_it() {
        let mut all = budgets(
            "cpus:9",
            &[("a", "cpus:4", ""), ("a/b", "cpus:3;mem:0", "")],
        );
        let mut room = free("cpus:9;mem:9;disk:9");
        assert_eq!(
            given(&mut all, Stage::Fair, "a/b/c", &mut room),
            "cpus:3;disk:9"
        );
        assert_eq!(
            given(&mut all, Stage::Fair, "a/x", &mut room),
            "cpus:1;mem:9"
        );
        assert_eq!(given(&mut all, Stage::Fair, "a", &mut room), "");
        assert_eq!(given(&mut all, Stage::Fair, "ab", &mut room), "cpus:5");
        let sets = [quantities("cpus:0.01")];
        assert!(!all.may_give(all.find(&role("a/y")), &sets));
        assert!(all.may_give(all.find(&role("b")), &sets));
    }

    /// SPEC 4.5: what is still required for guarantees stays free.
    #[test]
    fn a_guarantee_is_met_first_and_what_it_lacks_stays_free() {
        let mut all = budgets(
            "cpus:10;mem:10",
            &[("a", "", "cpus:4"), ("b", "cpus:3", "cpus:2")],
        );
        let mut room = free("cpus:3;mem:5");
        // Of ten cpus, six are required: others may have four, whatever room they come from.
        assert_eq!(given(&mut all, Stage::Guarantees, "c", &mut room), "");
        assert_eq!(
            given(&mut all, Stage::Guarantees, "b", &mut room),
            "cpus:3;mem:5"
        );
        assert_eq!(all.required(), &quantities("cpus:4"));
        let mut room = free("cpus:7");
        assert_eq!(given(&mut all, Stage::Fair, "c", &mut room), "cpus:3");
        assert_eq!(given(&mut all, Stage::Fair, "c", &mut room), "");
        assert_eq!(given(&mut all, Stage::Guarantees, "a", &mut room), "cpus:4");
        assert!(all.required().is_empty() && all.headroom().get(&Name::Cpus).is_zero());
    }

    #[test]
    fn a_guarantee_of_a_role_leaves_to_those_below_it_what_they_are_guaranteed() {
        let table = [
            ("a", "", "cpus:10"),
            ("a/b", "", "cpus:4"),
            ("a/c", "", "cpus:4"),
        ];
        let mut all = budgets("cpus:10", &table);
        assert_eq!(all.required(), &quantities("cpus:10"));
        assert_eq!(all.needs(all.find(&role("a/b"))), quantities("cpus:6"));
        assert_eq!(all.needs(all.find(&role("a/x"))), quantities("cpus:2"));
        let mut room = free("cpus:10");
        assert_eq!(
            given(&mut all, Stage::Guarantees, "a/b", &mut room),
            "cpus:6"
        );
        assert_eq!(all.required(), &quantities("cpus:4"));
        assert!(!all.is_needy(all.find(&role("a"))) && all.is_needy(all.find(&role("a/c"))));
        assert_eq!(
            given(&mut all, Stage::Guarantees, "a/c", &mut room),
            "cpus:4"
        );
    }

    /// What is reserved for a role is charged to it from the first; to a role below it when it is given there.
    #[test]
    fn a_reservation_is_charged_only_below_its_owner() {
        let mut all = budgets("", &[("a", "cpus:0", ""), ("a/b", "cpus:1", "cpus:1")]);
        let mut room = Room {
            free: quantities("cpus:1"),
            reserved: vec![
                (role("a"), quantities("cpus:8")),
                (role("a/b"), quantities("cpus:2")),
            ],
        };
        assert_eq!(given(&mut all, Stage::Guarantees, "a/b", &mut room), "");
        assert_eq!(given(&mut all, Stage::Fair, "a/b", &mut room), "cpus:3");
        assert!(all.required().is_empty());
        assert_eq!(given(&mut all, Stage::Fair, "a", &mut room), "cpus:7");
        assert_eq!(room, free("cpus:1"));
    }

    #[test]
    fn graphics_processors_are_cut_to_whole_ones() {
        let mut all = budgets("", &[("a", "gpus:2.5", "")]);
        let mut room = free("gpus:4");
        assert_eq!(given(&mut all, Stage::Fair, "a", &mut room), "gpus:2");
        assert_eq!(given(&mut all, Stage::Fair, "a", &mut room), "");
    }
}
