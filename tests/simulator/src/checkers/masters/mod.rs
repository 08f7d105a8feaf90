//! Checkers of masters, and the facts about masters that several checkers share.
//!
//! | module | contents |
//! |---|---|
//! | `deposed` | a deposed master changes nothing |
//! | `group` | one leader per term; committed entries stay; all members hold the same |
//! | `membership` | no checker: the registered agents and subscribed frameworks |
//! | `per_term` | no checker: runs another one separately for each leading master |
//! | `records` | no checker: the masters' requests to the registry, and its answers |
//! | `registry` | acknowledged operations are never lost; a single copy answers |
//! | `standbys` | only the appointed scheduler of a framework is elected |

pub(in crate::checkers) mod deposed;
pub(in crate::checkers) mod group;
pub(in crate::checkers) mod membership;
pub(in crate::checkers) mod per_term;
pub(in crate::checkers) mod records;
pub(in crate::checkers) mod registry;
pub(in crate::checkers) mod standbys;
