//! The stories and laws of mirrors.

pub(crate) mod laws;
mod stories;
