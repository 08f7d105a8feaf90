//! Pages: rendered answers, cached and shared between readers.

pub(crate) mod batches;
pub(crate) mod cache;
pub(crate) mod changes;
pub(crate) mod entries;
pub(crate) mod page;
pub(crate) mod pieces;
pub(crate) mod rendered;
pub mod source;
pub(crate) mod visible;
