//! Offers of a framework: `offer` has offers and filters, `wants` the suppressed roles and demands.

pub mod offer;
pub mod wants;
