//! Bodies of requests and responses, and the bounds on their memory.
//!
//! `bounded` reads a request's body with a deadline and a bound, `bytes` bounds the bytes of all
//! bodies and of those of one address, `large_calls` limits the large calls that are decoded at a
//! time, and `shared` sends one response body to several readers.

pub(crate) mod bounded;
pub(crate) mod bytes;
pub(crate) mod large_calls;
pub(crate) mod shared;
