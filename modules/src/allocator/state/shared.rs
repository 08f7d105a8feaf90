//! Shared volumes: allocations of a client that contains several copies of one volume.
//!
//! A copy is one use of a volume, by a task or in an offer. The volume's size counts once for each
//! client.

use resources::{Quantities, Resource, Resources};

/// Adds a part of this amount to a client's allocation and returns its growth. A shared volume
/// counts once for any number of copies.
pub(super) fn add_held(holding: &mut Resources, part: Resources, amount: Quantities) -> Quantities {
    if !part.iter().any(Resource::is_shared) {
        *holding += part;
        return amount;
    }
    let before = holding.quantities();
    *holding += part;
    holding.quantities().saturating_sub(&before)
}

/// ClientCapabilities a part from a client's allocation, which must contain it, and returns the
/// decrease.
pub(super) fn take_held(holding: &mut Resources, part: &Resources) -> Quantities {
    if *holding == *part {
        *holding = Resources::new();
        return part.quantities();
    }
    if !part.iter().any(Resource::is_shared) {
        holding.saturating_sub_assign(part);
        return part.quantities();
    }
    let before = holding.quantities();
    holding.saturating_sub_assign(part);
    before.saturating_sub(&holding.quantities())
}
