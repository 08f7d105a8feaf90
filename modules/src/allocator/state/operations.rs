//! Effects of operations on the state: some of an agent's resources are replaced by others, as are
//! those allocated to the framework.
//!
//! The master has already validated the operation; unknown resources are ignored.

use module_api::allocator::Converted;
use module_api::sorter::Pool;
use resources::Resource;

use super::{AllocatorState, pool_index};

impl AllocatorState {
    /// Replaces resources of an agent and of a framework's allocation.
    pub fn converted(&mut self, fact: &Converted) {
        let Some((slot, _)) = self.agent_by_id(&fact.agent_id) else {
            return;
        };
        self.count_totals(slot, false);
        if let Some((agent, _)) = self.agent_in(slot) {
            let balance = &mut agent.pools[pool_index(Pool::Regular)];
            let mut total = balance.total.clone();
            match total.subtract(&fact.consumed.unallocate()) {
                Ok(()) => {
                    // Another copy of a shared volume may be allocated, but the agent's total
                    // contains the volume once.
                    let is_new = |own: &Resource| !own.is_shared() || !total.contains_resource(own);
                    let converted = fact.converted.unallocate().filter(is_new);
                    total += converted;
                    balance.set_total(total);
                }
                Err(shortage) => {
                    tracing::warn!(agent = %fact.agent_id, %shortage, "operation consumes missing resources");
                }
            }
        }
        self.count_totals(slot, true);
        self.touch(slot);
        for (role, part) in self.by_role(&fact.framework_id, &fact.consumed) {
            if let Some(client) = self.clients.find(&fact.framework_id, &role) {
                self.book_freed(slot, client, &part);
            }
        }
        for (role, part) in self.by_role(&fact.framework_id, &fact.converted) {
            if let Some(client) = self.clients.find(&fact.framework_id, &role) {
                self.book_held(slot, client, &part);
            }
        }
    }
}
