//! The wire: message names and versions, the codec of bodies, frames and their buffers.

pub mod codec;
pub(crate) mod elision;
pub(crate) mod frame;
pub(crate) mod frame_buffer;
#[doc(hidden)]
pub mod fuzzing;
#[doc(hidden)]
pub mod message;
