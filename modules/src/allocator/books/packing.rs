//! The books' part on packing: which agents have the least left (W9).
//!
//! Pure, like all of the books. How full an agent is matters only to who asks for this order; else runs walk agents as they were shuffled.

use module_api::sorter::Pool;

use super::{Books, index};

impl Books {
    /// Puts agents into the order of what is free on them, the least first; those with as much stay as they were. Amounts of different
    /// names are compared by the part of the cluster that they are.
    pub fn tightest_first(&mut self, pool: Pool, slots: &mut [u32]) {
        let (total, _) = &self.totals[index(pool)];
        let agents = &mut self.agents;
        let mut part = |slot: &u32| -> f64 {
            let agent = agents.get_mut(*slot as usize).and_then(Option::as_mut);
            let free = agent.map(|agent| agent.sides[index(pool)].available().quantities());
            let free = free.unwrap_or_default();
            let parts = total.iter().filter(|(_, all)| !all.is_zero());
            let parts = parts.map(|(name, all)| free.get(name).as_f64() / all.as_f64());
            parts.sum()
        };
        let mut parts: Vec<(f64, u32)> = slots.iter().map(|slot| (part(slot), *slot)).collect();
        parts.sort_by(|(one, _), (other, _)| one.total_cmp(other));
        let sorted = slots.iter_mut().zip(parts);
        sorted.for_each(|(slot, (_, next))| *slot = next);
    }
}
