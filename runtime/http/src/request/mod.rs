//! Requests: paths, queries, methods and the checks against other sites' pages.

pub(crate) mod browsers;
pub(crate) mod methods;
pub(crate) mod path;
pub(crate) mod query;
