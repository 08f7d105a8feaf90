//! What operations do to the books: an agent has other resources of the same amount, and who held the ones holds the others.
//!
//! Pure. Whether an operation is allowed was the master's business; what the books do not know is passed over.

use module_api::allocator::Converted;
use module_api::sorter::Pool;
use resources::Resource;

use super::{Books, index};

impl Books {
    /// A framework holds something else than before, and the agent has it.
    pub fn converted(&mut self, fact: &Converted) {
        let Some((slot, _)) = self.agent_by_id(&fact.agent_id) else {
            return;
        };
        self.count_totals(slot, false);
        if let Some((agent, _)) = self.agent_in(slot) {
            let side = &mut agent.sides[index(Pool::Regular)];
            let mut total = side.total.clone();
            match total.subtract(&fact.consumed.unallocate()) {
                Ok(()) => {
                    // One more copy of a shared volume is held; there is one volume all the same.
                    let is_new = |own: &Resource| !own.is_shared() || !total.contains_resource(own);
                    let converted = fact.converted.unallocate().filter(is_new);
                    total += converted;
                    side.set_total(total);
                }
                Err(shortage) => {
                    tracing::warn!(agent = %fact.agent_id, %shortage, "an operation uses up more than there is");
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
