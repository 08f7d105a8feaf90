//! The books' part on shared volumes: what a client holds when it may hold several copies of one (SPEC 3.5, 4.8).
//!
//! Pure, like all of the books. A copy is one use of a volume, by a task or in an offer; its amount counts once for each client.

use resources::{Quantities, Resource, Resources};

/// Adds this of so much to what a client holds, and says by how much that has grown: a shared volume counts once, however many copies are held.
pub(super) fn add_held(holding: &mut Resources, part: Resources, amount: Quantities) -> Quantities {
    if !part.iter().any(Resource::is_shared) {
        *holding += part;
        return amount;
    }
    let before = holding.quantities();
    *holding += part;
    holding.quantities().saturating_sub(&before)
}

/// Takes from what a client holds, which must have it, and says by how much that is less.
pub(super) fn take_held(holding: &mut Resources, part: &Resources) -> Quantities {
    if *holding == *part {
        *holding = Resources::new();
        return part.quantities();
    }
    if !part.iter().any(Resource::is_shared) {
        holding.subtract_what_is_there(part);
        return part.quantities();
    }
    let before = holding.quantities();
    holding.subtract_what_is_there(part);
    before.saturating_sub(&holding.quantities())
}
