//! The frame reader, exported only for the workspace's fuzz test (`tests/fuzz.rs`). Pure: bytes in,
//! bytes out.

use bytes::BytesMut;

use crate::wire::codec::Garbled;
use crate::wire::frame::{self, Frame, MessageFrame};

/// Reads a frame (without its length) and writes it again. A valid frame comes back as the same
/// bytes.
pub fn reread_frame(bytes: &[u8]) -> Result<Vec<u8>, Garbled> {
    let frame = Frame::read(bytes)?;
    let mut written = BytesMut::new();
    frame::write_plain(&frame, &mut written);
    match frame {
        Frame::Message(MessageFrame { body, .. })
        | Frame::Reply {
            outcome: Ok(body), ..
        } => written.extend_from_slice(body),
        _ => {}
    }
    Ok(written.into())
}
