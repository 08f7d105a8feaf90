//! Charging of idle reservations: if enabled, they count towards the share of their role as if they
//! were in use. Otherwise a role could reserve much without effect on its share.
//!
//! Recomputes an agent's idle reservations only after it has changed. Keeps nothing if disabled.
//! Within a slate, the sorter itself deducts reserved resources that it gives out.

use std::collections::{BTreeMap, BTreeSet};

use module_api::sorter::Pool;
use resources::{Quantities, Resource, Role};
use rustc_hash::FxHashMap;

use crate::allocator::state::{Agent, AllocatorState, pool_index};

/// The charged amounts of each agent.
#[derive(Clone, Debug, Default)]
pub(in crate::allocator::state) struct Charging {
    /// By slot.
    idle: FxHashMap<u32, Idle>,
    /// Slots to recompute.
    touched: BTreeSet<u32>,
}

/// By the role of the reservation.
type Idle = BTreeMap<Role, Quantities>;

impl AllocatorState {
    /// Enables the charging of idle reservations.
    pub fn charge_reservations(&mut self) {
        self.charging = Some(Charging::default());
    }

    /// Marks the sums of this agent for recomputation.
    pub(in crate::allocator::state) fn touch(&mut self, slot: u32) {
        self.quotas.touch(slot);
        if let Some(charging) = &mut self.charging {
            charging.touched.insert(slot);
        }
    }

    /// Updates the charged amounts.
    pub(in crate::allocator::state) fn charge(&mut self) {
        let Some(Charging { idle, touched }) = &mut self.charging else {
            return;
        };
        for slot in std::mem::take(touched) {
            let agent = self.agents.get(slot as usize).and_then(Option::as_ref);
            let now = agent.map_or_else(Idle::new, idle_on);
            let before = idle.remove(&slot).unwrap_or_default();
            if now != before {
                let nothing = Quantities::new();
                let clients = &mut self.clients;
                now.iter()
                    .for_each(|(role, more)| clients.charge(role, more, &nothing));
                before
                    .iter()
                    .for_each(|(role, less)| clients.charge(role, &nothing, less));
            }
            if !now.is_empty() {
                idle.insert(slot, now);
            }
        }
    }
}

/// Reserved resources of an agent that are not allocated.
fn idle_on(agent: &Agent) -> Idle {
    let mut idle = Idle::new();
    let balance = &agent.pools[pool_index(Pool::Regular)];
    let reserved = balance.total.filter(Resource::is_reserved);
    if reserved.is_empty() {
        return idle;
    }
    for resource in &reserved.saturating_sub(&balance.held()) {
        if let Some(amount) = resource.amount().filter(|amount| !amount.is_zero()) {
            let of_role = idle.entry(resource.role().clone()).or_default();
            of_role.add(resource.name(), amount);
        }
    }
    idle
}
