//! The readers of a Unix socket's stream and of addresses, for the fuzz test of the whole tree (`tests/fuzz.rs`) and for nobody else.
//!
//! These forms are this crate's own affair, and the test stands on another floor. Pure: bytes in, words out.

use bytes::BytesMut;

use crate::quic::address::Address;
use crate::unix::chunk::{Kind, take};
use crate::unix::session::Bulks;

/// What was read off the front of a stream.
#[derive(Debug, Default)]
pub struct Read {
    /// Whole chunks: kind and body.
    pub chunks: Vec<(u8, Vec<u8>)>,
    /// Bulks that came whole: token and length.
    pub bulks: Vec<(u64, usize)>,
    /// Bytes that wait for more.
    pub left: usize,
    /// Why the reader stopped, if the bytes are wrong.
    pub garbled: Option<String>,
}

/// Reads all the chunks of a stream of a Unix socket, and puts its bulks together.
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

/// Reads an address to dial, and writes it again with its role.
pub fn address(text: &str) -> Result<String, String> {
    let Address { role, host } = Address::parse(text)?;
    Ok(format!("{role}@{host}"))
}
