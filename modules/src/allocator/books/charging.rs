//! The books' part on charging: where reservations are charged, what is reserved and idle counts towards its role's share as if it were used, or
//! whoever reserves much and uses little would have it free of charge (SPEC 4.8, W24).
//!
//! Pure, like all of the books. Every agent has its idle reservations in the sums, looked at anew when something about it has changed. Where
//! nothing is charged it remembers nothing. What the sorter gives of a reservation it counts as idle no more, in the same slate.

use std::collections::{BTreeMap, BTreeSet};

use module_api::sorter::Pool;
use resources::{Quantities, Resource, Role};
use rustc_hash::FxHashMap;

use super::{Agent, Books, index};

/// What is charged for each agent.
#[derive(Clone, Debug, Default)]
pub(super) struct Charging {
    /// By slot.
    idle: FxHashMap<u32, Idle>,
    /// The slots that are to be looked at anew.
    touched: BTreeSet<u32>,
}

/// By the role that it is reserved for.
type Idle = BTreeMap<Role, Quantities>;

impl Books {
    /// What is reserved counts towards the share of its role whether it is used or not.
    pub fn charge_reservations(&mut self) {
        self.charging = Some(Charging::default());
    }

    /// What this agent adds to any sum that is kept may be something else now.
    pub(super) fn touch(&mut self, slot: u32) {
        self.quotas.touch(slot);
        if let Some(charging) = &mut self.charging {
            charging.touched.insert(slot);
        }
    }

    /// Brings what is charged up to date.
    pub(super) fn charge(&mut self) {
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

/// What is reserved on an agent and held by nobody.
fn idle_on(agent: &Agent) -> Idle {
    let mut idle = Idle::new();
    let side = &agent.sides[index(Pool::Regular)];
    let reserved = side.total.filter(Resource::is_reserved);
    if reserved.is_empty() {
        return idle;
    }
    for resource in &reserved.saturating_sub(&side.held()) {
        if let Some(amount) = resource.amount().filter(|amount| !amount.is_zero()) {
            let of_role = idle.entry(resource.role().clone()).or_default();
            of_role.add(resource.name(), amount);
        }
    }
    idle
}
