//! Lending of guarantees: which guarantees are wanted, and which limits block an unmet one.
//!
//! A guarantee that no framework wants counts as met, so that nothing is kept free for it.

use std::collections::BTreeSet;

use module_api::sorter::{BudgetIndex, Pool};
use resources::{Name, Quantities, Role};

use super::Quotas;
use crate::allocator::clients::Clients;
use crate::allocator::state::AllocatorState;

impl AllocatorState {
    /// Lends guarantees that no framework wants to other roles.
    pub fn lend_guarantees(&mut self) {
        self.quotas.lends = true;
    }
}

impl Quotas {
    /// If guarantees are lent, updates which of them are wanted.
    pub(super) fn update_wanted(&mut self, clients: &Clients) {
        let at = Some(clients.activity());
        if !self.lends || self.quotas.is_empty() || self.wanted_at == at {
            return;
        }
        let anew = self.wanted_at.is_none();
        self.wanted_at = at;
        let active = clients.iter().map(|(_, record)| record);
        let active = active.filter(|record| record.is_active(Pool::Regular));
        let indices: BTreeSet<Option<BudgetIndex>> =
            active.map(|one| self.budget_of(&one.role)).collect();
        let chains = indices.into_iter().flat_map(|at| self.budgets.chain(at));
        let wanted: BTreeSet<BudgetIndex> = chains.map(|(index, _)| index).collect();
        let before = std::mem::replace(&mut self.wanted, wanted);
        for index in (0..).take(self.table.len()) {
            if anew || before.contains(&index) != self.wanted.contains(&index) {
                self.refresh(index);
                self.loosened = true;
            }
        }
    }

    /// All roles with a quota, with their budget indices.
    pub(in crate::allocator::state) fn roles(&self) -> impl Iterator<Item = (BudgetIndex, &Role)> {
        (0..).zip(self.quotas.keys())
    }

    /// Whether a client of this role could ever get any of these sets for the needy role's
    /// guarantee, if other roles gave up resources as far as limits above that role require.
    pub(in crate::allocator::state) fn could_have(
        &self,
        needy: BudgetIndex,
        role: &Role,
        sets: &[Quantities],
    ) -> bool {
        let Some(of) = self.budgets.get(needy).map(|budget| &budget.role) else {
            return false;
        };
        let own = &self.consumed[needy as usize];
        let fits = |set: &Quantities| {
            let mut chain = self.budgets.chain(self.budgets.find(role));
            chain.all(|(index, budget)| {
                let limits = &self.table[index as usize].limits;
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

    /// Splits a role's unmet guarantee: the part within the limits above it, and the rest with the
    /// nearest role above whose limit blocks it.
    pub(in crate::allocator::state) fn by_limit(
        &self,
        needy: BudgetIndex,
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
