//! Checkers of masters: leadership, membership, registry and standbys.

pub(in crate::checkers) mod deposed;
pub(in crate::checkers) mod group;
pub(in crate::checkers) mod membership;
pub(in crate::checkers) mod per_term;
pub(in crate::checkers) mod records;
pub(in crate::checkers) mod registry;
pub(in crate::checkers) mod standbys;
