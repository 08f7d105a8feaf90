//! The parts of a request that are read before a page handles it.
//!
//! `path` normalizes the path, `query` parses queries and forms, `methods` writes the message of a
//! 405, and `browsers` refuses requests that other sites' pages cause in a user's browser.

pub(crate) mod browsers;
pub(crate) mod methods;
pub(crate) mod path;
pub(crate) mod query;
