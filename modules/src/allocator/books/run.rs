//! One run over the books: slates for the sorter (DESIGN 6, SPEC 4.5).
//!
//! Pure: the order of agents is shuffled by whoever begins the run. Stages: what is guaranteed and lacking, then fair sharing of what is
//! regular, then of what is revocable. What the sorter answers is booked beside this.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use module_api::sorter::{Change, Client, Pool, Room, Shape, Slate, Stage, is_allocatable};
use resources::{Quantities, Resource, Resources};
use runtime::Instant;

use super::book::Taker;
use super::exclusions::Exclusions;
use super::quota::{Parts, Quotas, is_uncut, room};
use super::{Agent, Books};
use crate::allocator::clients::{Clients, Stance, Stances, index};

/// A slate that the sorter has been asked about, as the allocator remembers it.
#[derive(Clone, Debug)]
pub struct Asked {
    epoch: u64,
    pub(super) stage: Stage,
    /// The agent behind each room, by slot and serial.
    pub(super) agents: Vec<(u32, u64)>,
    /// The rooms, chopped along with the advice, so that what the sorter presumes is known.
    pub(super) rooms: Vec<Room>,
    pub(super) sets_min: Vec<Quantities>,
}

impl Books {
    /// The agents of the run that begins now, to be shuffled. Filters that have ended are let go first.
    pub fn candidates(&mut self, now: Instant, batch: bool) -> Vec<u32> {
        self.expire(now);
        self.settle();
        self.take_marked(batch)
    }

    /// Puts agents back for the next batch, because their run came to nothing.
    pub fn postpone(&mut self, slots: &[u32]) {
        slots.iter().for_each(|slot| self.look_again(*slot));
    }

    /// Puts all agents back for the next batch: nobody knows which of them a sorter has passed over that then failed.
    pub fn postpone_everybody(&mut self) {
        let slots: Vec<u32> = self.by_id.values().copied().collect();
        self.postpone(&slots);
    }

    /// The sorter knows nothing any more: its next slate tells it all. Answers to earlier ones count no longer.
    pub fn begin_epoch(&mut self) {
        self.epoch += 1;
        self.slates = 0;
        self.clients.forget_told();
        self.quotas.forget_told();
        self.totals.iter_mut().for_each(|(_, known)| *known = false);
    }

    /// What to ask the sorter about these agents, or nothing if nobody takes part or nothing is worth an offer. `barred` are clients
    /// that are not to be given an agent for reasons that the books found out only when they were to be granted it.
    pub fn slate(
        &mut self,
        stage: Stage,
        slots: &[u32],
        barred: &BTreeSet<(u32, Client)>,
        now: Instant,
    ) -> Option<(Slate, Asked)> {
        let pool = stage.pool();
        if self.clients.active(pool) == 0 {
            return None;
        }
        self.settle();
        if stage == Stage::Guarantees && !self.quotas.lack() {
            return None;
        }
        let mut rooms = Vec::with_capacity(slots.len());
        let mut agents = Vec::with_capacity(slots.len());
        let mut kept = Vec::new();
        let choosers = self.choosers(pool);
        let sets_min = self.sets_min.clone();
        let loosest = self.loosest(pool);
        let stances = self.clients.stances(pool);
        let all_hold = self.all_filters_hold(now);
        let mut exclusions = Exclusions::of(stances.clients());
        for &slot in slots {
            let keeps = self.keeps(stage, slot);
            let (clients, quotas) = (&mut self.clients, &mut self.quotas);
            let Some(agent) = self.agents.get_mut(slot as usize).and_then(Option::as_mut) else {
                continue;
            };
            if !agent.is_offered() {
                continue;
            }
            let mut room = room(agent.sides[index(pool)].available());
            if keeps {
                kept.push(slot);
                room.free = Quantities::new();
            }
            if !may_be_allocatable(&room, &loosest) {
                continue;
            }
            let looks = Looks {
                stage,
                keeps,
                clients,
                stances: &stances,
                quotas,
                now,
                all_hold,
            };
            looks.exclude_filtered(&mut exclusions, agent);
            choosers.exclude(slot, agent, clients, |client| exclusions.add(client));
            for (_, client) in barred.range((slot, 0)..=(slot, Client::MAX)) {
                exclusions.add(*client);
            }
            exclusions.next_room();
            rooms.push(room);
            agents.push((slot, agent.serial));
        }
        self.postpone(&kept);
        if rooms.is_empty() {
            return None;
        }
        let (epoch, number) = (self.epoch, self.slates);
        self.slates += 1;
        let asked = Asked {
            epoch,
            stage,
            agents,
            rooms: rooms.clone(),
            sets_min: sets_min.clone(),
        };
        let slate = Slate {
            epoch,
            number,
            stage,
            changes: self.changes(number == 0),
            sets_min,
            rooms,
            exclusions: exclusions.end(),
        };
        Some((slate, asked))
    }

    /// What is worth an offer to anybody at all who takes part in this pool.
    pub(super) fn loosest(&self, pool: Pool) -> Vec<Quantities> {
        let members = self.clients.iter().map(|(_, member)| member);
        let active = members.filter(|member| member.is_active(pool));
        Shape::loosest(&self.sets_min, active.filter_map(|member| member.shape()))
    }

    /// Whether an answer to this slate still counts.
    pub fn is_current(&self, asked: &Asked) -> bool {
        asked.epoch == self.epoch
    }

    fn changes(&mut self, first: bool) -> Vec<Change> {
        let mut changes = Vec::new();
        let reweighed = std::mem::take(&mut self.reweighed);
        if first {
            let weighed = self.weights.iter().map(|(role, weight)| Change::Weighed {
                role: role.clone(),
                weight: *weight,
            });
            changes.extend(weighed);
        } else {
            let weighed = reweighed.into_iter().map(|role| {
                let weight = self.weights.get(&role).copied().unwrap_or(1.0);
                Change::Weighed { role, weight }
            });
            changes.extend(weighed);
        }
        for (pool, (total, known)) in Pool::ALL.into_iter().zip(&mut self.totals) {
            if !std::mem::replace(known, true) {
                let total = total.clone();
                changes.push(Change::Total { pool, total });
            }
        }
        self.quotas.tell(&mut changes);
        self.clients.tell(&mut changes);
        changes
    }
}

/// Whether anybody at all could be given something worth an offer.
fn may_be_allocatable(room: &Room, sets_min: &[Quantities]) -> bool {
    if room.reserved.is_empty() {
        return is_allocatable(&room.free, sets_min);
    }
    let mut all = room.free.clone();
    room.reserved.iter().for_each(|(_, amount)| all += amount);
    is_allocatable(&all, sets_min)
}

/// Whether what was refused covers all of an offer that quota never cuts: only then may it cover what quota leaves of the offer.
fn covers_uncut(refused: &Resources, offered: &Resources) -> bool {
    let mut uncut = offered.iter().filter(|own| is_uncut(own));
    uncut.all(|own| refused.contains_resource(own))
}

/// What filters are looked at with.
struct Looks<'a> {
    stage: Stage,
    /// Only what is reserved there is given in this stage.
    keeps: bool,
    clients: &'a Clients,
    stances: &'a Stances,
    quotas: &'a mut Quotas,
    now: Instant,
    /// No filter has ended that is still there.
    all_hold: bool,
}

impl Looks<'_> {
    /// Excludes the room for every client that refused such an offer.
    fn exclude_filtered(self, exclusions: &mut Exclusions, agent: &mut Agent) {
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
