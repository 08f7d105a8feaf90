//! Quota: guarantees and limits of roles, as the master stores and validates them.
//!
//! Pure decisions on [`MasterState`]: validates an update ([`check`]), and applies it once the
//! registry has it. The allocator, which gets every change, enforces quotas. `raised` chooses the
//! offers that are rescinded for raised guarantees.

pub mod check;
mod raised;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use module_api::allocator::QuotasChanged;
use protocol::message::operator::{UpdateQuotas, UpdateRefused};
use protocol::{Offer, OfferId, Quota};
use resources::{Quantities, Resources, Role};

use crate::registry::RegistryOperation;
use crate::state::MasterState;
use crate::state::effects::{Effects, SendEffects, ToAllocator};
use check::QuotaContext;
use raised::OfferedAmounts;

/// Amounts by role.
pub type ByRole = BTreeMap<String, Quantities>;

/// Consumption of each role: unreserved resources held by its frameworks, and all its reservations,
/// used or not. It counts for all ancestors too. Offers and revocable resources do not count.
pub fn consumed(state: &MasterState) -> ByRole {
    let mut sums = ByRole::new();
    for agent in state.agents.iter() {
        for (role, reserved) in agent.info.resources.reservations() {
            charge(&mut sums, role.as_str(), &reserved.quantities());
        }
        let on_agent = state.tasks.on_agent(&agent.id).into_iter();
        for (role, held) in on_agent.flat_map(|on| on.held().values().flat_map(unreserved)) {
            charge(&mut sums, role.as_str(), &held);
        }
    }
    sums
}

/// The unreserved part of these resources, by allocation role.
fn unreserved(resources: &Resources) -> impl Iterator<Item = (Role, Quantities)> + use<> {
    let by_role = resources.open().allocations().into_iter();
    by_role.map(|(role, held)| (role, held.quantities()))
}

fn charge(sums: &mut ByRole, role: &str, amounts: &Quantities) {
    for role in with_ancestors(role) {
        *sums.entry(role.to_owned()).or_default() += amounts;
    }
}

/// A role and its ancestors.
pub(crate) fn with_ancestors(role: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(role), |role| Some(role.rsplit_once('/')?.0))
}

/// The resources of all agents in the registry, without revocable ones.
fn capacity(state: &MasterState) -> Quantities {
    let registered = state.agents.iter().map(|agent| &agent.info);
    let awaited = state.agents.recovered().map(|(_, info)| info);
    let mut sum = Quantities::new();
    for info in registered.chain(awaited) {
        sum += &info.resources.non_revocable().quantities();
    }
    sum
}

impl MasterState {
    /// Validates quotas; returns the operation to record.
    pub fn prepare_quotas(
        &self,
        update: &UpdateQuotas,
    ) -> Result<RegistryOperation, UpdateRefused> {
        check::check(update, &self.quota_context())?;
        let quotas = update.quotas.clone();
        Ok(RegistryOperation::UpdateQuotas { quotas })
    }

    fn quota_context(&self) -> QuotaContext<'_> {
        QuotaContext {
            quotas: &self.quotas,
            capacity: capacity(self),
            consumed: consumed(self),
        }
    }

    /// The same for roles that have no quota yet.
    pub fn prepare_new_quotas(
        &self,
        update: &UpdateQuotas,
    ) -> Result<RegistryOperation, UpdateRefused> {
        check::check_new(update, &self.quota_context())?;
        let quotas = update.quotas.clone();
        Ok(RegistryOperation::UpdateQuotas { quotas })
    }

    /// The same for roles that have a quota.
    pub fn prepare_reset_quotas(
        &self,
        update: &UpdateQuotas,
    ) -> Result<RegistryOperation, UpdateRefused> {
        check::set_already(update, &self.quotas)?;
        self.prepare_quotas(update)
    }

    /// The registry has recorded these quotas: notifies the allocator, and rescinds offers that
    /// would exceed a limit, or that take from a new guarantee.
    pub fn quotas_updated(&mut self, quotas: BTreeMap<String, Quota>, out: &mut Effects) {
        let before = Arc::clone(&self.quotas);
        let held = Arc::make_mut(&mut self.quotas);
        for (role, quota) in &quotas {
            match quota.is_default() {
                true => held.remove(role),
                false => held.insert(role.clone(), quota.clone()),
            };
        }
        let mut rescinded = self.beyond(&quotas);
        let raised = raised::raised(&quotas, &before);
        if !raised.is_empty() {
            let offers_to_rescind = self.offers_against(&raised, &rescinded);
            rescinded.extend(offers_to_rescind);
        }
        out.allocator(ToAllocator::QuotasChanged(QuotasChanged { quotas }));
        self.rescind(rescinded, out);
    }

    /// Other roles' offers that leave too little for these guarantees, besides those that are
    /// rescinded anyway.
    fn offers_against(&self, roles: &BTreeSet<&str>, rescinded: &[OfferId]) -> BTreeSet<OfferId> {
        let amounts = |offer: &Offer| {
            let mut free = Quantities::new();
            unreserved(&offer.resources).for_each(|(_, amounts)| free += &amounts);
            free
        };
        let rescinded: BTreeSet<&OfferId> = rescinded.iter().collect();
        let out = self.offers.iter();
        let out = out.filter(|offer| !rescinded.contains(&offer.id));
        let offers: Vec<OfferedAmounts<'_>> = out
            .map(|offer| OfferedAmounts {
                id: &offer.id,
                role: &offer.role,
                amounts: amounts(offer),
            })
            .collect();
        let mut free = Quantities::new();
        for agent in self.agents.iter() {
            free += &self.unused(agent).open().quantities();
        }
        for offer in &offers {
            free = free.saturating_sub(&offer.amounts);
        }
        let known = raised::OfferContext {
            quotas: &self.quotas,
            consumed: consumed(self),
            free,
            offers,
        };
        raised::offers_to_rescind(roles, &known)
    }

    /// The offers that exceed these limits.
    fn beyond(&self, quotas: &BTreeMap<String, Quota>) -> Vec<OfferId> {
        let mut beyond = BTreeSet::new();
        let consumed = consumed(self);
        for (role, quota) in quotas
            .iter()
            .filter(|(_, quota)| quota.limits.iter().len() > 0)
        {
            let nothing = Quantities::new();
            let consumed = consumed.get(role).unwrap_or(&nothing);
            let mut room = quota.limits.clone();
            for (name, amount) in consumed.iter() {
                room.take(name, amount);
            }
            let is_within =
                |offer: &&Arc<Offer>| with_ancestors(&offer.role).any(|one| one == role);
            for offer in self.offers.iter().filter(is_within) {
                if beyond.contains(&offer.id) {
                    continue;
                }
                let mut free = Quantities::new();
                unreserved(&offer.resources).for_each(|(_, amounts)| free += &amounts);
                let too_much = free.iter().any(|(name, amount)| {
                    !amount.is_zero() && quota.limits.names(name) && amount > room.get(name)
                });
                match too_much {
                    true => drop(beyond.insert(offer.id.clone())),
                    false => free
                        .iter()
                        .for_each(|(name, amount)| room.take(name, amount)),
                }
            }
        }
        beyond.into_iter().collect()
    }
}
