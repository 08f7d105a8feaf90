//! Chunks: how lanes and bulks share the one stream of a Unix socket.
//!
//! A chunk is its kind (one byte), its length (u32, big endian) and that many bytes. They are short, so that a ping
//! waits for at most a few of them. Remembers only what was read and not yet taken.
//! Never looks into what a chunk carries, and never believes a length above its kind's bound.

use std::io;

use bytes::{Buf, BytesMut};
use runtime::Hello;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::Mutex;

/// The most bytes in a chunk that is written, and in one that is read, save a hello.
pub(super) const LENGTH_MAX: usize = 64 << 10;
/// Bytes of kind and length.
const HEADER: usize = 5;

/// What a chunk carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Who speaks. The first in each direction.
    Hello = 1,
    /// A piece of the ordered stream of frames.
    Ordinary = 2,
    /// A piece of the ping lane.
    Ping = 3,
    /// A bulk begins: its token and its length.
    BulkBegin = 4,
    /// A piece of a bulk: its token and some of its bytes.
    BulkPiece = 5,
    /// The last chunk: why the sender closes.
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

/// Why there is no next chunk.
#[derive(Debug)]
pub(super) enum Unread {
    Lost(io::Error),
    Garbled(String),
}

/// Both directions of a connection.
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

/// The chunks that come in.
pub(super) struct Chunks {
    read: OwnedReadHalf,
    buffer: BytesMut,
}

impl Chunks {
    /// The next chunk, or `None` if the peer closed after a whole one.
    pub(super) async fn next(&mut self) -> Result<Option<(Kind, BytesMut)>, Unread> {
        loop {
            if let Some(chunk) = take(&mut self.buffer).map_err(Unread::Garbled)? {
                return Ok(Some(chunk));
            }
            self.buffer.reserve(LENGTH_MAX / 4);
            match self.read.read_buf(&mut self.buffer).await {
                Ok(0) if self.buffer.is_empty() => return Ok(None),
                Ok(0) => {
                    let held = self.buffer.len();
                    return Err(Unread::Garbled(format!(
                        "the stream ended after {held} bytes of a chunk"
                    )));
                }
                Ok(_) => {}
                Err(error) => return Err(Unread::Lost(error)),
            }
        }
    }
}

/// Takes the first chunk off the buffer if it is there whole.
pub(crate) fn take(buffer: &mut BytesMut) -> Result<Option<(Kind, BytesMut)>, String> {
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

/// The one way out, shared by the tasks that write; each holds it for one chunk, in turn.
pub(super) struct Writer(Mutex<OwnedWriteHalf>);

impl Writer {
    /// Writes one chunk made of two parts. Longer ones than the reader takes are the caller's error.
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
        let _ = self.0.lock().await.shutdown().await; // it is closed one way or the other
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn whatever_the_bytes_a_chunk_is_whole_or_wanting_or_an_error(bytes: Vec<u8>) {
            let mut buffer = BytesMut::from(&bytes[..]);
            while let Ok(Some((kind, body))) = take(&mut buffer) {
                prop_assert!(body.len() <= kind.length_max());
            }
        }
    }

    #[test]
    fn a_length_above_the_bound_is_refused_before_the_bytes_come() {
        let error = take(&mut BytesMut::from(&[2, 0xff, 0xff, 0xff, 0xff][..])).unwrap_err();
        assert_eq!(
            error,
            "Ordinary chunk of 4294967295 bytes, expected at most 65536"
        );
    }
}
