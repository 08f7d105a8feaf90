//! An answer as a sequence of parts, which other answers may share.
//!
//! A part that occurs in the next answer again is neither copied nor compressed again. Compressed,
//! an answer is one gzip member (RFC 1952) assembled from the separately deflated parts. Pure.

use std::io::Write;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use flate2::write::DeflateEncoder;
use flate2::{Compression, Crc};

/// Parts up to this size are stored uncompressed: a compressor costs more to set up than it
/// saves.
const STORED_MAX: usize = 1024;
/// The header of a member deflated at the fastest level, without name and time.
const HEAD: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 4, 0xff];
/// An empty last block (RFC 1951).
const LAST: [u8; 2] = [3, 0];

/// An answer in parts. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct BodyParts(Arc<[BodyPart]>);

/// Bytes of one or more answers.
#[derive(Clone, Debug, Default)]
pub struct BodyPart {
    bytes: Bytes,
    /// Compressed for the first reader that accepts it.
    deflated: Arc<OnceLock<Deflated>>,
}

/// A part as deflate blocks that end at a byte boundary and refer to nothing before them.
#[derive(Debug)]
struct Deflated {
    blocks: Bytes,
    /// Of the uncompressed part.
    checksum: Crc,
}

impl BodyParts {
    /// Total bytes.
    pub fn len(&self) -> usize {
        self.bytes().map(Bytes::len).sum()
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes of each part, in order.
    pub fn bytes(&self) -> impl Iterator<Item = &Bytes> {
        self.0.iter().map(|part| &part.bytes)
    }

    /// All bytes contiguously; copied if there are several parts.
    pub fn whole(&self) -> Bytes {
        match &*self.0 {
            [part] => part.bytes.clone(),
            parts => {
                let mut whole = Vec::with_capacity(self.len());
                parts
                    .iter()
                    .for_each(|part| whole.extend_from_slice(&part.bytes));
                whole.into()
            }
        }
    }

    /// The answer as gzip; none if compression fails. Parts that were compressed before are
    /// reused.
    pub fn gzip(&self) -> Option<Bytes> {
        let deflated: Option<Vec<&Deflated>> = self.0.iter().map(BodyPart::deflated).collect();
        let deflated = deflated?;
        let length: usize = deflated.iter().map(|part| part.blocks.len()).sum();
        let mut gzip = Vec::with_capacity(HEAD.len() + length + LAST.len() + 8);
        let mut checksum = Crc::new();
        gzip.extend(HEAD);
        for part in deflated {
            gzip.extend_from_slice(&part.blocks);
            checksum.combine(&part.checksum);
        }
        gzip.extend(LAST);
        gzip.extend(checksum.sum().to_le_bytes());
        // The length modulo 2^32.
        gzip.extend((self.len() as u32).to_le_bytes());
        Some(gzip.into())
    }
}

impl FromIterator<BodyPart> for BodyParts {
    fn from_iter<T: IntoIterator<Item = BodyPart>>(parts: T) -> Self {
        Self(parts.into_iter().collect())
    }
}

impl<T: Into<Bytes>> From<T> for BodyParts {
    fn from(bytes: T) -> Self {
        [BodyPart::new(bytes)].into_iter().collect()
    }
}

impl BodyPart {
    /// A part with these bytes.
    pub fn new(bytes: impl Into<Bytes>) -> Self {
        Self {
            bytes: bytes.into(),
            deflated: Arc::default(),
        }
    }

    /// Its bytes.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    fn deflated(&self) -> Option<&Deflated> {
        if let Some(deflated) = self.deflated.get() {
            return Some(deflated);
        }
        let deflated = Deflated::of(&self.bytes)?;
        // Another thread may have set it meanwhile.
        Some(self.deflated.get_or_init(|| deflated))
    }
}

impl Deflated {
    fn of(bytes: &Bytes) -> Option<Self> {
        let blocks = match u16::try_from(bytes.len()) {
            Ok(length) if bytes.len() <= STORED_MAX => stored(bytes, length),
            _ => compressed(bytes)?,
        };
        let mut checksum = Crc::new();
        checksum.update(bytes);
        Some(Self {
            blocks: blocks.into(),
            checksum,
        })
    }
}

/// A stored block of these bytes.
fn stored(bytes: &[u8], length: u16) -> Vec<u8> {
    let mut block = vec![0];
    block.extend(length.to_le_bytes());
    block.extend((!length).to_le_bytes());
    block.extend_from_slice(bytes);
    block
}

/// Deflates at the fastest level: pages shrink to a tenth, and a higher level would take longer
/// than it saves in transfer.
fn compressed(bytes: &[u8]) -> Option<Vec<u8>> {
    let room = Vec::with_capacity(bytes.len() / 8);
    let mut encoder = DeflateEncoder::new(room, Compression::fast());
    encoder.write_all(bytes).ok()?;
    // Ends the block at a byte boundary.
    encoder.flush().ok()?;
    let mut blocks = std::mem::take(encoder.get_mut());
    blocks.shrink_to_fit();
    Some(blocks)
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::read::GzDecoder;
    use proptest::prelude::*;

    use super::*;

    fn unzipped(gzip: &[u8]) -> Vec<u8> {
        let (mut bytes, mut decoder) = (Vec::new(), GzDecoder::new(gzip));
        decoder.read_to_end(&mut bytes).unwrap();
        let (mut more, rest) = (Vec::new(), decoder.into_inner());
        rest.take(1).read_to_end(&mut more).unwrap();
        assert!(more.is_empty(), "one member, and nothing behind it");
        bytes
    }

    /// Runs of one byte, or noise, around the size limit of stored parts and the buffer size of the
    /// compressor.
    fn part() -> impl Strategy<Value = Vec<u8>> {
        let run = (any::<u8>(), 0..5000_usize).prop_map(|(byte, length)| vec![byte; length]);
        let noise =
            |lengths: std::ops::Range<usize>| proptest::collection::vec(any::<u8>(), lengths);
        prop_oneof![
            4 => run,
            4 => noise(0..STORED_MAX + 500),
            1 => noise(32_000..33_500),
            1 => noise(64_000..200_000)
        ]
    }

    proptest! {
        /// SPEC 2.1.
        #[test]
        fn parts_form_one_answer(parts in proptest::collection::vec(part(), 0..8)) {
            let all = parts.concat();
            let parts: BodyParts = parts.into_iter().map(BodyPart::new).collect();
            prop_assert_eq!(parts.len(), all.len());
            prop_assert_eq!(&parts.whole()[..], &all);
            prop_assert_eq!(unzipped(&parts.gzip().unwrap()), all);
        }
    }

    #[test]
    fn a_part_of_two_answers_is_compressed_once() {
        let shared = BodyPart::new("x".repeat(100_000));
        let answer = |own: &'static str| -> BodyParts {
            [BodyPart::new(own), shared.clone()].into_iter().collect()
        };
        let (first, second) = (answer("first"), answer("and second"));
        let blocks = || {
            shared
                .deflated
                .get()
                .map(|deflated| deflated.blocks.as_ptr())
        };
        assert_eq!(blocks(), None);
        let short = first.gzip().unwrap();
        let made = blocks();
        assert!(made.is_some() && short.len() < 5000);
        assert!(unzipped(&second.gzip().unwrap()).starts_with(b"and secondxx"));
        assert_eq!(blocks(), made);
    }
}
