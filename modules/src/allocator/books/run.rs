//! One run over the books: slates for the sorter (DESIGN 6, SPEC 4.5).
//!
//! Pure: the order of agents is shuffled by whoever begins the run. Stages: what is guaranteed and lacking, then fair sharing of what is
//! regular, then of what is revocable. What the sorter answers is booked beside this.

use std::collections::BTreeSet;

use module_api::sorter::{Change, Client, Pool, Room, Shape, Slate, Stage, is_allocatable};
use resources::Quantities;
use runtime::Instant;

use super::Books;
use super::exclusions::Exclusions;
use super::looks::Looks;
use super::quota::room;
use crate::allocator::clients::index;

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
        let mut cuts = None;
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
            if quotas.keeps_back(stage, &room, &loosest) {
                // Nobody is given any of it, so it need not be known who refused it.
                exclusions.next_room();
                rooms.push(room);
                agents.push((slot, agent.serial));
                continue;
            }
            let looks = Looks {
                stage,
                keeps,
                clients,
                stances: &stances,
                quotas,
                cuts: &mut cuts,
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
