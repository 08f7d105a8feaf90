//! The interface of each kind of module, and the --modules loader.

pub mod allocator;
