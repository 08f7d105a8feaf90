//! The reader of frames, for the fuzz test of the whole tree (`tests/fuzz.rs`) and for nobody else.
//!
//! Frames are this crate's own affair, and the test stands on another floor. Pure: bytes in, bytes out.

use bytes::BytesMut;

use crate::codec::Garbled;
use crate::frame::{self, Frame, Letter};

/// Reads a frame (without its length) and writes again what was read. Whatever is a frame comes back as the same bytes.
pub fn reread_frame(bytes: &[u8]) -> Result<Vec<u8>, Garbled> {
    let frame = Frame::read(bytes)?;
    let mut written = BytesMut::new();
    frame::write_plain(&frame, &mut written);
    match frame {
        Frame::Letter(Letter { body, .. })
        | Frame::Reply {
            outcome: Ok(body), ..
        } => written.extend_from_slice(body),
        _ => {}
    }
    Ok(written.into())
}
