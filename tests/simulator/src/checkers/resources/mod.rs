//! Checkers of resources: offered, used, reserved and limited amounts.
//!
//! | module | contents |
//! |---|---|
//! | `agent_resources` | an agent's resources follow from its operations, also across crashes |
//! | `allocations` | offered and used resources never exceed an agent's total |
//! | `entitlement` | revocable and reserved resources only for entitled frameworks |
//! | `lending` | only revocable resources are lent, and they are never reserved |
//! | `offers` | every offer ends in exactly one way, and is used at most once |
//! | `operations` | an accepted operation is done or reported as failed, never both |
//! | `quotas` | no offer takes a role, or an ancestor, beyond its limits |

pub(in crate::checkers) mod agent_resources;
pub(in crate::checkers) mod allocations;
pub(in crate::checkers) mod entitlement;
pub(in crate::checkers) mod lending;
pub(in crate::checkers) mod offers;
pub(in crate::checkers) mod operations;
pub(in crate::checkers) mod quotas;
