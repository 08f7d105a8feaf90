//! Checkers of resources: totals, allocations, offers, quota and operations.

pub(in crate::checkers) mod agent_resources;
pub(in crate::checkers) mod allocations;
pub(in crate::checkers) mod entitlement;
pub(in crate::checkers) mod offers;
pub(in crate::checkers) mod operations;
pub(in crate::checkers) mod quotas;
