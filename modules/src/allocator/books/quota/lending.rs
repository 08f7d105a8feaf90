//! The part of quotas on lending: which guarantees are wanted by anybody, and what stands between a role and what it lacks (S123).
//!
//! Pure. A guarantee that nobody wants counts as met, so that what it needs is not kept free; whether to have it back is decided elsewhere.

use std::collections::BTreeSet;

use module_api::sorter::{Place, Pool};
use resources::{Name, Quantities, Role};

use super::Quotas;
use crate::allocator::books::Books;
use crate::allocator::clients::Clients;

impl Books {
    /// What is guaranteed to roles of which no framework wants anything is not kept free for them from now on: it can be had back.
    pub fn lend_guarantees(&mut self) {
        self.quotas.lends = true;
    }
}

impl Quotas {
    /// Where guarantees are lent, notes of which roles somebody wants anything.
    pub(super) fn heed_wishes(&mut self, clients: &Clients) {
        let at = Some(clients.activity());
        if !self.lends || self.quotas.is_empty() || self.wanted_at == at {
            return;
        }
        let anew = self.wanted_at.is_none();
        self.wanted_at = at;
        let active = clients.iter().map(|(_, member)| member);
        let active = active.filter(|member| member.is_active(Pool::Regular));
        let places: BTreeSet<Option<Place>> = active.map(|one| self.place(&one.role)).collect();
        let chains = places.into_iter().flat_map(|at| self.budgets.chain(at));
        let wanted: BTreeSet<Place> = chains.map(|(place, _)| place).collect();
        let before = std::mem::replace(&mut self.wanted, wanted);
        for place in (0..).take(self.table.len()) {
            if anew || before.contains(&place) != self.wanted.contains(&place) {
                self.refresh(place);
                self.loosened = true;
            }
        }
    }

    /// All roles with a quota, by their places.
    pub(in crate::allocator::books) fn places(&self) -> impl Iterator<Item = (Place, &Role)> {
        (0..).zip(self.quotas.keys())
    }

    /// Whether a client of this role could ever be given any of these sets for what the needy role lacks, if others gave way as far as
    /// limits above that role stand against it.
    pub(in crate::allocator::books) fn could_have(
        &self,
        needy: Place,
        role: &Role,
        sets: &[Quantities],
    ) -> bool {
        let Some(of) = self.budgets.get(needy).map(|budget| &budget.role) else {
            return false;
        };
        let own = &self.consumed[needy as usize];
        let fits = |set: &Quantities| {
            let mut chain = self.budgets.chain(self.budgets.find(role));
            chain.all(|(place, budget)| {
                let limits = &self.table[place as usize].limits;
                let most = |name: &Name| match budget.role.is_within(of) {
                    true => budget.left.get(name),
                    false => limits.get(name).saturating_sub(own.get(name)),
                };
                let mut set = set.iter();
                set.all(|(name, amount)| !limits.names(name) || most(name) >= amount)
            })
        };
        sets.is_empty() || sets.iter().any(fits)
    }

    /// What a role lacks, parted: what limits above it leave, and the rest with the nearest role above it whose limit does not.
    pub(in crate::allocator::books) fn by_limit(
        &self,
        needy: Place,
        lacks: &Quantities,
    ) -> Vec<(Quantities, Option<Role>)> {
        let mut left = lacks.clone();
        let mut within = None;
        for (_, budget) in self.budgets.chain(Some(needy)).skip(1) {
            for (name, most) in budget.left.iter() {
                if left.get(name) > most {
                    left.set(name.clone(), most);
                    within.get_or_insert_with(|| budget.role.clone());
                }
            }
        }
        let rest = lacks.saturating_sub(&left);
        let parts = [(left, None), (rest, within)].into_iter();
        parts.filter(|(part, _)| !part.is_empty()).collect()
    }
}
