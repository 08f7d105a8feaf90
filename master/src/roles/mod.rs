//! Roles: quota and weights.

pub mod quota;
pub mod weights;
