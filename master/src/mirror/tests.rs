//! The stories and laws of mirrors.

mod laws;
mod stories;
