//! Slates of a run, for the sorter.
//!
//! The caller shuffles the agents. The stages are unmet guarantees, then fair sharing of regular
//! resources, then of revocable ones. The advice is applied in `book`.

use std::collections::BTreeSet;

use module_api::sorter::{Change, Client, Pool, Room, Shape, Slate, Stage, is_allocatable};
use resources::Quantities;
use runtime::Instant;

use super::AllocatorState;
use super::quota::room;
use crate::allocator::clients::pool_index;
use crate::allocator::state::filters::check::FilterCheck;
use crate::allocator::state::filters::exclusions::Exclusions;

/// A slate that was sent to the sorter, as the allocator remembers it.
#[derive(Clone, Debug)]
pub struct PendingSlate {
    epoch: u64,
    pub(super) stage: Stage,
    /// The agent of each room, by slot and serial.
    pub(super) agents: Vec<(u32, u64)>,
    /// The rooms, updated along with the advice, so that the sorter's assumptions are known.
    pub(super) rooms: Vec<Room>,
    pub(super) sets_min: Vec<Quantities>,
}

impl AllocatorState {
    /// The agents of a new run, to be shuffled. Drops expired filters first.
    pub fn candidates(&mut self, now: Instant, batch: bool) -> Vec<u32> {
        self.expire(now);
        self.settle();
        self.take_dirty(batch)
    }

    /// Postpones agents to the next batch.
    pub fn postpone(&mut self, slots: &[u32]) {
        slots.iter().for_each(|slot| self.mark_for_batch(*slot));
    }

    /// Postpones all agents to the next batch: after a failure of the sorter, the agents that it
    /// skipped are unknown.
    pub fn postpone_all(&mut self) {
        let slots: Vec<u32> = self.by_id.values().copied().collect();
        self.postpone(&slots);
    }

    /// Begins a new epoch after the sorter has lost its state: the next slate carries the full
    /// state, and replies to earlier slates are ignored.
    pub fn begin_epoch(&mut self) {
        self.epoch += 1;
        self.slates = 0;
        self.clients.forget_sorter_view();
        self.quotas.forget_sorter_view();
        self.totals.iter_mut().for_each(|(_, known)| *known = false);
    }

    /// The next slate about these agents; `None` if no client is active or nothing is worth an
    /// offer. `barred` lists pairs of agent and client that were rejected earlier in this run.
    pub fn slate(
        &mut self,
        stage: Stage,
        slots: &[u32],
        barred: &BTreeSet<(u32, Client)>,
        now: Instant,
    ) -> Option<(Slate, PendingSlate)> {
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
        let selective = self.selective(pool);
        let sets_min = self.sets_min.clone();
        let loosest = self.loosest(pool);
        let flags = self.clients.flags(pool);
        let all_hold = self.all_filters_hold(now);
        let mut exclusions = Exclusions::of(flags.clients());
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
            let mut room = room(agent.pools[pool_index(pool)].available());
            if keeps {
                kept.push(slot);
                room.free = Quantities::new();
            }
            if !may_be_allocatable(&room, &loosest) {
                continue;
            }
            if quotas.keeps_back(stage, &room, &loosest) {
                // No client gets any of it, so filters are irrelevant.
                exclusions.next_room();
                rooms.push(room);
                agents.push((slot, agent.serial));
                continue;
            }
            let check = FilterCheck {
                stage,
                keeps,
                clients,
                flags: &flags,
                quotas,
                cuts: &mut cuts,
                now,
                all_hold,
            };
            check.exclude_filtered(&mut exclusions, agent);
            selective.exclude(slot, agent, clients, |client| exclusions.add(client));
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
        let pending = PendingSlate {
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
        Some((slate, pending))
    }

    /// The smallest amounts worth an offer to any active client in this pool.
    pub(super) fn loosest(&self, pool: Pool) -> Vec<Quantities> {
        let records = self.clients.iter().map(|(_, record)| record);
        let active = records.filter(|record| record.is_active(pool));
        Shape::loosest(&self.sets_min, active.filter_map(|record| record.shape()))
    }

    /// Whether replies to this slate still count.
    pub fn is_current(&self, pending: &PendingSlate) -> bool {
        pending.epoch == self.epoch
    }

    fn changes(&mut self, first: bool) -> Vec<Change> {
        let mut changes = Vec::new();
        let reweighed = std::mem::take(&mut self.reweighed);
        if first {
            let weighed = self
                .weights
                .iter()
                .map(|(role, weight)| Change::WeightChanged {
                    role: role.clone(),
                    weight: *weight,
                });
            changes.extend(weighed);
        } else {
            let weighed = reweighed.into_iter().map(|role| {
                let weight = self.weights.get(&role).copied().unwrap_or(1.0);
                Change::WeightChanged { role, weight }
            });
            changes.extend(weighed);
        }
        for (pool, (total, known)) in Pool::ALL.into_iter().zip(&mut self.totals) {
            if !std::mem::replace(known, true) {
                let total = total.clone();
                changes.push(Change::Total { pool, total });
            }
        }
        self.quotas.push_changes(&mut changes);
        self.clients.push_changes(&mut changes);
        changes
    }
}

/// Whether any client could get an amount worth an offer.
fn may_be_allocatable(room: &Room, sets_min: &[Quantities]) -> bool {
    if room.reserved.is_empty() {
        return is_allocatable(&room.free, sets_min);
    }
    let mut all = room.free.clone();
    room.reserved.iter().for_each(|(_, amount)| all += amount);
    is_allocatable(&all, sets_min)
}
