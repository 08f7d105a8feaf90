//! The encoded form of messages between nodes. Pure: no link and no actor.
//!
//! A message has a name, a version and a lane; its body is encoded by the codec, and a frame has a
//! header and a body.
//!
//! | module | contents |
//! |---|---|
//! | `codec` | the codec of message bodies |
//! | `elision` | tells without a header, when it equals that of the tell before |
//! | `frame` | the bytes of frames |
//! | `frame_buffer` | consecutive frames to be sent together |
//! | `message` | messages that may cross a link: name, version and lane |

pub mod codec;
pub mod frame;
pub(crate) mod frame_reader;
pub(crate) mod frame_writer;
#[doc(hidden)]
pub mod message;
