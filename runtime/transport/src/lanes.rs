//! What every kind of connection does with the bytes of a lane.
//!
//! Hears nothing and remembers nothing.

use bytes::BytesMut;

/// The most bytes taken from a link for one write.
pub(crate) const BATCH_MAX: usize = 256 << 10;

/// Room that an idle lane may keep: most links are idle most of the time.
const KEPT: usize = 64 << 10;

/// Lets go of an empty buffer that is much larger than what it was last `used` for.
pub(crate) fn shrink(buffer: &mut BytesMut, used: usize) {
    if buffer.is_empty() && buffer.capacity() > KEPT && used < KEPT {
        *buffer = BytesMut::new();
    }
}

/// Why a stream can no longer be served.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// The connection is gone; its own end says why.
    Lost,
    /// The link cannot read what came, and has logged it.
    Unread(String),
    /// The peer has broken the rules below the frames.
    Garbled(String),
}

impl From<runtime::Garbled> for Trouble {
    fn from(garbled: runtime::Garbled) -> Self {
        Self::Unread(garbled.reason)
    }
}
