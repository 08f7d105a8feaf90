//! Filters in a slate: excludes clients from the rooms that their filters hide.
//!
//! Each of thousands of agents may have hundreds of filters, so results are shared: among clients
//! with equal refusals, and among clients to whom quota leaves equal parts.

use std::borrow::Cow;
use std::sync::Arc;

use module_api::sorter::Stage;
use resources::{Resource, Resources};
use runtime::Instant;

use super::exclusions::Exclusions;
use crate::allocator::clients::{ClientFlags, Clients, OfferMode, pool_index};
use crate::allocator::state::Agent;
use crate::allocator::state::booking::Recipient;
use crate::allocator::state::quota::{Cuts, Parts, Quotas, is_uncut};

/// Whether the refusal covers all entries that quota never cuts. Only then can it cover the part
/// that quota leaves.
fn covers_uncut(refused: &Resources, offered: &Resources) -> bool {
    let mut uncut = offered.iter().filter(|own| is_uncut(own));
    uncut.all(|own| refused.contains_resource(own))
}

/// The context of the filter check for one room.
pub(in crate::allocator::state) struct FilterCheck<'a> {
    pub(in crate::allocator::state) stage: Stage,
    /// Only reserved resources are given in this stage.
    pub(in crate::allocator::state) keeps: bool,
    pub(in crate::allocator::state) clients: &'a Clients,
    pub(in crate::allocator::state) flags: &'a ClientFlags,
    pub(in crate::allocator::state) quotas: &'a mut Quotas,
    /// Shared results about quota, created on first use.
    pub(in crate::allocator::state) cuts: &'a mut Option<Cuts>,
    pub(in crate::allocator::state) now: Instant,
    /// All present filters are still in force.
    pub(in crate::allocator::state) all_hold: bool,
}

impl FilterCheck<'_> {
    /// Excludes the room for every client with filters that hide it.
    pub(in crate::allocator::state) fn exclude_filtered(
        self,
        exclusions: &mut Exclusions,
        agent: &mut Agent,
    ) {
        if agent.filters.is_empty() {
            return;
        }
        let (now, pool) = (self.now, self.stage.pool());
        let available = agent.pools[pool_index(pool)].available();
        let reserved = self.keeps.then(|| available.filter(Resource::is_reserved));
        let available = reserved.as_ref().unwrap_or(available);
        let plain = available
            .iter()
            .all(|resource| !resource.is_reserved() && !resource.is_shared());
        // If all resources are unreserved, a refusal shared by many clients is compared only once.
        let mut seen: Option<(*const Resources, bool)> = None;
        let mut covers_all = |refused: &Arc<Resources>| match seen {
            Some((last, covers)) if std::ptr::eq(last, Arc::as_ptr(refused)) => covers,
            _ => {
                let covers = refused.contains(available);
                seen = Some((Arc::as_ptr(refused), covers));
                covers
            }
        };
        let cuts = self.stage != Stage::Revocable && !self.quotas.is_empty();
        let mut alike = (plain && cuts).then(|| {
            let clients = self.flags.clients();
            let alike = self
                .cuts
                .get_or_insert_with(|| Cuts::of(self.stage, clients));
            alike.offer(available);
            alike
        });
        // Hundreds of clients may share it: they are excluded together.
        let shared = agent.filters.shared_refusal();
        let shared = shared
            .filter(|shared| plain && !cuts && self.all_hold && shared.refused.contains(available));
        if let Some(shared) = shared {
            exclusions.add_all(shared.same.common(&self.flags.open));
            if shared.others == 0 && !shared.same.meets(&self.flags.shaped) {
                return;
            }
        }
        for (client, filters) in agent.filters.iter() {
            // The mode suffices for most clients.
            match self.flags.of(client) {
                OfferMode::AnyShape if shared.is_some_and(|shared| shared.same.has(client)) => {
                    continue;
                }
                OfferMode::AnyShape if plain && !cuts => {
                    if filters.hide(now, &mut covers_all) {
                        exclusions.add(client);
                    }
                    continue;
                }
                OfferMode::AnyShape if plain => {
                    let Some(alike) = &mut alike else { continue };
                    let role = || self.clients.get(client).map(|record| record.role.clone());
                    let class = alike.class_of(self.quotas, client, role);
                    let covers = |refused: &Arc<Resources>| {
                        class.is_some_and(|class| alike.covers(self.quotas, class, refused))
                    };
                    if filters.hide(now, covers) {
                        exclusions.add(client);
                    }
                    continue;
                }
                OfferMode::AnyShape | OfferMode::Shaped => {}
                OfferMode::Inactive => continue,
            }
            let Some(record) = self.clients.get(client) else {
                continue;
            };
            // The resources of a grant, before quota.
            let offered = match plain && record.shape().is_none() {
                true => Cow::Borrowed(available),
                false => {
                    let recipient = Recipient::of(client, record, self.stage);
                    Cow::Owned(recipient.shaped(recipient.portion(available)))
                }
            };
            let mut hidden = match &offered {
                Cow::Borrowed(_) => filters.hide(now, &mut covers_all),
                Cow::Owned(offered) => filters.hide(now, |refused| refused.contains(offered)),
            };
            // If only quota makes the offer small enough for the filter, the client must still be
            // excluded: otherwise the sorter would charge the quota for it, and other rooms would
            // get too little.
            if cuts && !hidden && filters.hide(now, |refused| covers_uncut(refused, &offered)) {
                let parts = self.quotas.parts(self.stage, &record.role, &offered);
                let covers = |parts: Parts| {
                    let within = |refused: &Arc<Resources>| {
                        parts.iter().all(|own| refused.contains_resource(own))
                    };
                    filters.hide(now, within)
                };
                hidden = parts.is_some_and(covers);
            }
            if hidden {
                exclusions.add(client);
            }
        }
    }
}
