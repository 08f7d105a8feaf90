//! Packing: sorts agents by their free resources, for
//! [`AgentOrder::TightestFirst`](crate::allocator::AgentOrder).

use module_api::sorter::Pool;

use super::{AllocatorState, pool_index};

impl AllocatorState {
    /// Sorts agents by free resources, the least first; equal ones keep their order. Amounts of
    /// different names are compared as fractions of the cluster.
    pub fn tightest_first(&mut self, pool: Pool, slots: &mut [u32]) {
        let (total, _) = &self.totals[pool_index(pool)];
        let agents = &mut self.agents;
        let mut part = |slot: &u32| -> f64 {
            let agent = agents.get_mut(*slot as usize).and_then(Option::as_mut);
            let free = agent.map(|agent| agent.pools[pool_index(pool)].available().quantities());
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
