//! The actor contract, rule by rule.

pub(in crate::tests) mod delivery;
pub(in crate::tests) mod futures;
pub(in crate::tests) mod life;
pub(in crate::tests) mod link_laws;
pub(in crate::tests) mod links;
pub(in crate::tests) mod time;
