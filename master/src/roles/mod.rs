//! Settings of roles: quota (guarantees and limits) and weights. Pure decisions on
//! [`MasterState`](crate::state::MasterState); the allocator enforces them.

pub mod quota;
pub mod weights;
