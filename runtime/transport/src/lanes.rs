//! Buffers and errors of a lane, common to all kinds of connection.

use bytes::BytesMut;

/// Maximum bytes taken from a link for one write.
pub(crate) const BATCH_MAX: usize = 256 << 10;

/// Buffer capacity that an idle lane may keep: most links are idle most of the time.
const IDLE_CAPACITY_MAX: usize = 64 << 10;

/// Frees an empty buffer that is much larger than its last use of `used` bytes.
pub(crate) fn shrink(buffer: &mut BytesMut, used: usize) {
    if buffer.is_empty() && buffer.capacity() > IDLE_CAPACITY_MAX && used < IDLE_CAPACITY_MAX {
        *buffer = BytesMut::new();
    }
}

/// The reason why a stream ends early.
#[derive(Debug)]
pub(crate) enum StreamError {
    /// The connection is lost; its own error has the reason.
    Lost,
    /// The link cannot decode the received bytes, and has logged it.
    Unread(String),
    /// The peer violated the protocol below the frames.
    Garbled(String),
}

impl From<runtime::Garbled> for StreamError {
    fn from(garbled: runtime::Garbled) -> Self {
        Self::Unread(garbled.reason)
    }
}
