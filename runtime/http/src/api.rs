//! What the endpoints of all v1 APIs share (SPEC 2.1): a call is read, an answer is written, events go out in a stream.
//!
//! [`Asked`] is a call as it came, [`Refusal`] what is wrong with a request in HTTP, [`Streams`] opens streams of events. Knows the words of no
//! API, and decides nothing of what is asked.

mod asking;
mod refusal;
mod stream;

pub use asking::{Asked, CALL_MAX, Heard, Whole, answer, declared_length};
pub use refusal::Refusal;
pub use stream::{Batch, Bounds, Closed, Events, Streams};
