//! Quota: what roles are sure of and may not go beyond, as the master keeps and judges it (SPEC 3.4).
//!
//! Pure decisions on [`Books`]: whether an update may be made ([`check`]), and what follows when the registry has it. It never keeps
//! anything free and stops nobody: that is for the allocator, which hears every change.

pub mod check;
mod raised;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use module_api::allocator::QuotasChanged;
use protocol::message::operator::{UpdateQuotas, UpdateRefused};
use protocol::{Offer, OfferId, Quota};
use resources::{Quantities, Resources, Role};

use crate::books::Books;
use crate::effects::{Effects, Tell, ToAllocator};
use crate::registry::RegistryOperation;
use check::Known;
use raised::Offered;

/// Amounts by role.
pub type ByRole = BTreeMap<String, Quantities>;

/// What counts against the limits of each role: what its frameworks hold of what is not reserved, and all that is reserved for it, be it
/// in use or not. What counts for a role counts for those above it too. Offers count for nobody, and neither does what is revocable.
pub fn consumed(books: &Books) -> ByRole {
    let mut sums = ByRole::new();
    for agent in books.agents.iter() {
        for (role, reserved) in agent.info.resources.reservations() {
            charge(&mut sums, role.as_str(), &reserved.quantities());
        }
        let on_agent = books.tasks.on_agent(&agent.id).into_iter();
        for (role, held) in on_agent.flat_map(|on| on.held().values().flat_map(unreserved)) {
            charge(&mut sums, role.as_str(), &held);
        }
    }
    sums
}

/// What of these is not reserved, by the role it is allocated to.
fn unreserved(resources: &Resources) -> impl Iterator<Item = (Role, Quantities)> + use<> {
    let by_role = resources.open().allocations().into_iter();
    by_role.map(|(role, held)| (role, held.quantities()))
}

fn charge(sums: &mut ByRole, role: &str, amounts: &Quantities) {
    for role in with_ancestors(role) {
        *sums.entry(role.to_owned()).or_default() += amounts;
    }
}

/// A role and those above it.
pub(crate) fn with_ancestors(role: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(role), |role| Some(role.rsplit_once('/')?.0))
}

/// What all agents have that the registry knows, revocable resources aside.
fn capacity(books: &Books) -> Quantities {
    let registered = books.agents.iter().map(|agent| &agent.info);
    let awaited = books.agents.recovered().map(|(_, info)| info);
    let mut sum = Quantities::new();
    for info in registered.chain(awaited) {
        sum += &info.resources.non_revocable().quantities();
    }
    sum
}

impl Books {
    /// Whether these quotas may be set; gives what the registry is to record.
    pub fn prepare_quotas(
        &self,
        update: &UpdateQuotas,
    ) -> Result<RegistryOperation, UpdateRefused> {
        let known = Known {
            quotas: &self.quotas,
            capacity: capacity(self),
            consumed: consumed(self),
        };
        check::check(update, &known)?;
        let quotas = update.quotas.clone();
        Ok(RegistryOperation::UpdateQuotas { quotas })
    }

    /// The same, of roles that have none yet.
    pub fn prepare_new_quotas(
        &self,
        update: &UpdateQuotas,
    ) -> Result<RegistryOperation, UpdateRefused> {
        check::none_yet(update, &self.quotas)?;
        self.prepare_quotas(update)
    }

    /// The same, of roles that have one.
    pub fn prepare_reset_quotas(
        &self,
        update: &UpdateQuotas,
    ) -> Result<RegistryOperation, UpdateRefused> {
        check::set_already(update, &self.quotas)?;
        self.prepare_quotas(update)
    }

    /// The registry has these quotas: the allocator is told, and offers are rescinded that would take a role beyond its limits, or that others
    /// have of what a role is sure of from now on.
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
            let in_the_way = self.in_the_way_of(&raised, &rescinded);
            rescinded.extend(in_the_way);
        }
        out.allocator(ToAllocator::QuotasChanged(QuotasChanged { quotas }));
        self.rescind(rescinded, out);
    }

    /// The offers of others that leave too little for what these roles are sure of, beside those that are taken back anyhow.
    fn in_the_way_of(&self, roles: &BTreeSet<&str>, rescinded: &[OfferId]) -> BTreeSet<OfferId> {
        let amounts = |offer: &Offer| {
            let mut free = Quantities::new();
            unreserved(&offer.resources).for_each(|(_, amounts)| free += &amounts);
            free
        };
        let rescinded: BTreeSet<&OfferId> = rescinded.iter().collect();
        let out = self.offers.iter();
        let out = out.filter(|offer| !rescinded.contains(&offer.id));
        let offers: Vec<Offered<'_>> = out
            .map(|offer| Offered {
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
        let known = raised::Known {
            quotas: &self.quotas,
            consumed: consumed(self),
            free,
            offers,
        };
        raised::in_the_way(roles, &known)
    }

    /// The offers that are more than these limits leave room for.
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
