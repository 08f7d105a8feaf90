//! The readers of a Unix socket's stream and of addresses, for the fuzz test `tests/fuzz.rs` only.
//!
//! The forms are private to this crate, and the test is in another one. Pure functions.

use bytes::BytesMut;

use crate::quic::socket::address::Address;
use crate::unix::chunk::{Kind, take};
use crate::unix::session::Bulks;

/// The result of reading a stream.
#[derive(Debug, Default)]
pub struct Read {
    /// Complete chunks: kind and body.
    pub chunks: Vec<(u8, Vec<u8>)>,
    /// Complete bulks: token and length.
    pub bulks: Vec<(u64, usize)>,
    /// Unread bytes of an incomplete chunk.
    pub left: usize,
    /// The error that stopped the reader, if the bytes are invalid.
    pub garbled: Option<String>,
}

/// Reads all chunks of a Unix socket's stream and assembles its bulks.
pub fn read_stream(bytes: &[u8]) -> Read {
    let (mut buffer, mut bulks, mut read) =
        (BytesMut::from(bytes), Bulks::default(), Read::default());
    loop {
        let (kind, body) = match take(&mut buffer) {
            Ok(Some(chunk)) => chunk,
            Ok(None) => break,
            Err(reason) => {
                read.garbled = Some(reason);
                break;
            }
        };
        read.chunks.push((kind as u8, body.to_vec()));
        let taken = match kind {
            Kind::BulkBegin => bulks.begin(body).map(|()| None),
            Kind::BulkPiece => bulks.piece(body),
            _ => Ok(None),
        };
        match taken {
            Ok(whole) => read
                .bulks
                .extend(whole.map(|(token, body)| (token, body.len()))),
            Err(reason) => {
                read.garbled = Some(reason);
                break;
            }
        }
    }
    read.left = buffer.len();
    read
}

/// Parses an address and renders it with its role.
pub fn address(text: &str) -> Result<String, String> {
    let Address { role, host } = Address::parse(text)?;
    Ok(format!("{role}@{host}"))
}
