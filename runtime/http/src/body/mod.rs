//! Bodies: bounded reading, shared bytes, and large calls in turn.

pub(crate) mod bounded;
pub(crate) mod bytes;
pub(crate) mod large_calls;
pub(crate) mod shared;
