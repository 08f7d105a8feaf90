//! Looks: whom a slate excludes from a room, because it refused such an offer a while ago (SPEC 4.6).
//!
//! Pure, like all of the books. There may be hundreds of refusals on each of thousands of agents, so what can be known of many at once is
//! worked out once: what many refused alike, and what quota leaves to many alike.

use std::borrow::Cow;
use std::sync::Arc;

use module_api::sorter::Stage;
use resources::{Resource, Resources};
use runtime::Instant;

use super::Agent;
use super::book::Taker;
use super::exclusions::Exclusions;
use super::quota::{Cuts, Parts, Quotas, is_uncut};
use crate::allocator::clients::{Clients, Stance, Stances, index};

/// Whether what was refused covers all of an offer that quota never cuts: only then may it cover what quota leaves of the offer.
fn covers_uncut(refused: &Resources, offered: &Resources) -> bool {
    let mut uncut = offered.iter().filter(|own| is_uncut(own));
    uncut.all(|own| refused.contains_resource(own))
}

/// What filters are looked at with.
pub(super) struct Looks<'a> {
    pub(super) stage: Stage,
    /// Only what is reserved there is given in this stage.
    pub(super) keeps: bool,
    pub(super) clients: &'a Clients,
    pub(super) stances: &'a Stances,
    pub(super) quotas: &'a mut Quotas,
    /// What is known of what quota leaves; made when it is first needed.
    pub(super) cuts: &'a mut Option<Cuts>,
    pub(super) now: Instant,
    /// No filter has ended that is still there.
    pub(super) all_hold: bool,
}

impl Looks<'_> {
    /// Excludes the room for every client that refused such an offer.
    pub(super) fn exclude_filtered(self, exclusions: &mut Exclusions, agent: &mut Agent) {
        if agent.filters.is_empty() {
            return;
        }
        let (now, pool) = (self.now, self.stage.pool());
        let available = agent.sides[index(pool)].available();
        let reserved = self.keeps.then(|| available.filter(Resource::is_reserved));
        let available = reserved.as_ref().unwrap_or(available);
        let plain = available
            .iter()
            .all(|resource| !resource.is_reserved() && !resource.is_shared());
        // Where all is for everybody, a refusal that many share is looked at once for all of them.
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
            let clients = self.stances.clients();
            let alike = self
                .cuts
                .get_or_insert_with(|| Cuts::of(self.stage, clients));
            alike.offer(available);
            alike
        });
        // And there may be hundreds of them: they are excluded together.
        let glance = agent.filters.glance();
        let glance = glance
            .filter(|glance| plain && !cuts && self.all_hold && glance.refused.contains(available));
        if let Some(glance) = glance {
            exclusions.add_all(glance.same.common(&self.stances.open));
            if glance.others == 0 && !glance.same.meets(&self.stances.shaped) {
                return;
            }
        }
        for (client, filters) in agent.filters.iter() {
            // Mostly no more need be known of a client.
            match self.stances.of(client) {
                Stance::Open if glance.is_some_and(|glance| glance.same.has(client)) => continue,
                Stance::Open if plain && !cuts => {
                    if filters.hide(now, &mut covers_all) {
                        exclusions.add(client);
                    }
                    continue;
                }
                Stance::Open if plain => {
                    let Some(alike) = &mut alike else { continue };
                    let role = || self.clients.get(client).map(|member| member.role.clone());
                    let class = alike.class_of(self.quotas, client, role);
                    let covers = |refused: &Arc<Resources>| {
                        class.is_some_and(|class| alike.covers(self.quotas, class, refused))
                    };
                    if filters.hide(now, covers) {
                        exclusions.add(client);
                    }
                    continue;
                }
                Stance::Open | Stance::Shaped => {}
                Stance::Out => continue,
            }
            let Some(member) = self.clients.get(client) else {
                continue;
            };
            // What a grant would have, as far as it goes without quota.
            let offered = match plain && member.shape().is_none() {
                true => Cow::Borrowed(available),
                false => {
                    let taker = Taker::of(client, member, self.stage);
                    Cow::Owned(taker.shaped(taker.portion(available)))
                }
            };
            let mut hidden = match &offered {
                Cow::Borrowed(_) => filters.hide(now, &mut covers_all),
                Cow::Owned(offered) => filters.hide(now, |refused| refused.contains(offered)),
            };
            // The sorter would spend on it what quota leaves to the client, and other rooms would go without.
            if cuts && !hidden && filters.hide(now, |refused| covers_uncut(refused, &offered)) {
                let parts = self.quotas.parts(self.stage, &member.role, &offered);
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
