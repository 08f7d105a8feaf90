//! Chunks: lanes and bulks multiplexed on one Unix socket.
//!
//! A chunk is its kind (one byte), its length (u32, big endian) and its content. Chunks are short,
//! so that a ping waits for few bytes. A length above the kind's bound is rejected.

use std::io;

use bytes::{Buf, BytesMut};
use runtime::Hello;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::Mutex;

/// Maximum bytes of a chunk, except a hello, in both directions.
pub(super) const LENGTH_MAX: usize = 64 << 10;
/// Bytes of kind and length.
const HEADER: usize = 5;

/// The content of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The sender's hello: the first chunk in each direction.
    Hello = 1,
    /// A piece of the ordinary stream of frames.
    Ordinary = 2,
    /// A piece of the ping lane.
    Ping = 3,
    /// The beginning of a bulk: its token and its length.
    BulkBegin = 4,
    /// A piece of a bulk: its token and some of its bytes.
    BulkPiece = 5,
    /// The last chunk: the reason of the close.
    Farewell = 6,
}

impl Kind {
    fn read(byte: u8) -> Option<Self> {
        const KINDS: [Kind; 6] = [
            Kind::Hello,
            Kind::Ordinary,
            Kind::Ping,
            Kind::BulkBegin,
            Kind::BulkPiece,
            Kind::Farewell,
        ];
        KINDS.into_iter().find(|kind| *kind as u8 == byte)
    }

    fn length_max(self) -> usize {
        match self {
            Kind::Hello => Hello::LENGTH_MAX,
            _ => LENGTH_MAX,
        }
    }
}

/// The reason why there is no next chunk.
#[derive(Debug)]
pub(super) enum ChunkError {
    Lost(io::Error),
    Garbled(String),
}

/// Splits a connection into its two directions.
pub(super) fn split(stream: UnixStream) -> (Chunks, Writer) {
    let (read, write) = stream.into_split();
    (
        Chunks {
            read,
            buffer: BytesMut::new(),
        },
        Writer(Mutex::new(write)),
    )
}

/// The incoming chunks.
pub(super) struct Chunks {
    read: OwnedReadHalf,
    buffer: BytesMut,
}

impl Chunks {
    /// The next chunk, or `None` if the peer closed after a complete one.
    pub(super) async fn next(&mut self) -> Result<Option<(Kind, BytesMut)>, ChunkError> {
        loop {
            if let Some(chunk) = take(&mut self.buffer).map_err(ChunkError::Garbled)? {
                return Ok(Some(chunk));
            }
            self.buffer.reserve(LENGTH_MAX / 4);
            match self.read.read_buf(&mut self.buffer).await {
                Ok(0) if self.buffer.is_empty() => return Ok(None),
                Ok(0) => {
                    let held = self.buffer.len();
                    return Err(ChunkError::Garbled(format!(
                        "the stream ended after {held} bytes of a chunk"
                    )));
                }
                Ok(_) => {}
                Err(error) => return Err(ChunkError::Lost(error)),
            }
        }
    }
}

/// Takes the first chunk off the buffer if it is complete.
pub fn take(buffer: &mut BytesMut) -> Result<Option<(Kind, BytesMut)>, String> {
    let Some((&kind, rest)) = buffer.split_first() else {
        return Ok(None);
    };
    let kind = Kind::read(kind).ok_or_else(|| format!("chunk of kind {kind}, expected 1 to 6"))?;
    let Some(length) = rest.first_chunk::<4>() else {
        return Ok(None);
    };
    let length = u32::from_be_bytes(*length) as usize;
    if length > kind.length_max() {
        return Err(format!(
            "{kind:?} chunk of {length} bytes, expected at most {}",
            kind.length_max()
        ));
    }
    if buffer.len() < HEADER + length {
        return Ok(None);
    }
    buffer.advance(HEADER);
    Ok(Some((kind, buffer.split_to(length))))
}

/// The outgoing direction, locked for one chunk at a time by the writing tasks.
pub(super) struct Writer(Mutex<OwnedWriteHalf>);

impl Writer {
    /// Writes one chunk made of two parts. The caller must keep to the reader's bound.
    pub(super) async fn write(&self, kind: Kind, first: &[u8], second: &[u8]) -> io::Result<()> {
        let length = first.len() + second.len();
        let prefix = u32::try_from(length).map_err(io::Error::other)?;
        let mut chunk = Vec::with_capacity(HEADER + length);
        chunk.push(kind as u8);
        chunk.extend_from_slice(&prefix.to_be_bytes());
        chunk.extend_from_slice(first);
        chunk.extend_from_slice(second);
        self.0.lock().await.write_all(&chunk).await
    }

    /// Ends this direction.
    pub(super) async fn end(&self) {
        let _ = self.0.lock().await.shutdown().await; // it is closed either way
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_are_chunks_or_an_error(bytes: Vec<u8>) {
            let mut buffer = BytesMut::from(&bytes[..]);
            while let Ok(Some((kind, body))) = take(&mut buffer) {
                prop_assert!(body.len() <= kind.length_max());
            }
        }
    }

    #[test]
    fn excessive_length_is_rejected_early() {
        let error = take(&mut BytesMut::from(&[2, 0xff, 0xff, 0xff, 0xff][..])).unwrap_err();
        assert_eq!(
            error,
            "Ordinary chunk of 4294967295 bytes, expected at most 65536"
        );
    }
}
