//! Tests of mirrors.

pub(crate) mod properties;
mod stories;
