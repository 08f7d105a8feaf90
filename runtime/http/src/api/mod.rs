//! Shared parts of all v1 API endpoints: decoding a call, encoding an answer, and event streams.
//!
//! [`ReceivedCall`] is a received call, [`Refusal`] an HTTP error, [`EventStreams`] opens event
//! streams. Knows no API, and makes no decisions about calls.

mod call;
mod refusal;
mod stream;

pub use call::{CALL_MAX, CallPermit, PageBody, ReceivedCall, Records, answer, declared_length};
pub use refusal::Refusal;
pub use stream::{Batch, Bounds, Closed, EventStreams, EventWriter};
