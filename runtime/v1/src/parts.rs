//! Parts: an answer as bytes one after the other, of which others may have some too.
//!
//! What stands in the next answer as well is the same part there: it is neither copied nor compressed again.
//!
//! Compressed, an answer is one member of gzip (RFC 1952) that is put together of what each part alone is deflated to. Pure.

use std::io::Write;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use flate2::write::DeflateEncoder;
use flate2::{Compression, Crc};

/// A part that is not longer is stored as it is: what compresses costs more to set up than it would save.
const STORED_MAX: usize = 1024;
/// That of a member deflated at the cheapest level, with no name and no time.
const HEAD: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 4, 0xff];
/// A last block that is empty (RFC 1951).
const LAST: [u8; 2] = [3, 0];

/// An answer in parts, for as many as get it.
#[derive(Clone, Debug, Default)]
pub struct Parts(Arc<[Part]>);

/// Some bytes of one answer or of several.
#[derive(Clone, Debug, Default)]
pub struct Part {
    bytes: Bytes,
    /// Made for the first who reads it.
    deflated: Arc<OnceLock<Deflated>>,
}

/// What a part is as blocks that end at a whole byte and refer to nothing before them.
#[derive(Debug)]
struct Deflated {
    blocks: Bytes,
    /// Of the part itself.
    checksum: Crc,
}

impl Parts {
    /// How many bytes all have together.
    pub fn len(&self) -> usize {
        self.bytes().map(Bytes::len).sum()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Their bytes, in their order.
    pub fn bytes(&self) -> impl Iterator<Item = &Bytes> {
        self.0.iter().map(|part| &part.bytes)
    }

    /// All bytes in one piece: copied, if there are several parts.
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

    /// All compressed, as gzip; none if that cannot be. Of a part that has been compressed before, what it was compressed to.
    pub fn gzip(&self) -> Option<Bytes> {
        let deflated: Option<Vec<&Deflated>> = self.0.iter().map(Part::deflated).collect();
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
        // The length is told without what is beyond 32 bits.
        gzip.extend((self.len() as u32).to_le_bytes());
        Some(gzip.into())
    }
}

impl FromIterator<Part> for Parts {
    fn from_iter<T: IntoIterator<Item = Part>>(parts: T) -> Self {
        Self(parts.into_iter().collect())
    }
}

impl<T: Into<Bytes>> From<T> for Parts {
    fn from(bytes: T) -> Self {
        [Part::new(bytes)].into_iter().collect()
    }
}

impl Part {
    /// These bytes.
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
        // Somebody may have done the same meanwhile.
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

/// A block of these bytes, of so many, as they are.
fn stored(bytes: &[u8], length: u16) -> Vec<u8> {
    let mut block = vec![0];
    block.extend(length.to_le_bytes());
    block.extend((!length).to_le_bytes());
    block.extend_from_slice(bytes);
    block
}

/// At the cheapest level: pages shrink to a tenth, and a higher one would cost more time than it saves on the way.
fn compressed(bytes: &[u8]) -> Option<Vec<u8>> {
    let room = Vec::with_capacity(bytes.len() / 8);
    let mut encoder = DeflateEncoder::new(room, Compression::fast());
    encoder.write_all(bytes).ok()?;
    // Ends the block, and fills the last byte.
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

    /// A run of one byte, or noise, on both sides of what is stored and of what a compressor holds before it gives it away.
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
        fn whatever_the_parts_are_they_are_one_answer(parts in proptest::collection::vec(part(), 0..8)) {
            let all = parts.concat();
            let parts: Parts = parts.into_iter().map(Part::new).collect();
            prop_assert_eq!(parts.len(), all.len());
            prop_assert_eq!(&parts.whole()[..], &all);
            prop_assert_eq!(unzipped(&parts.gzip().unwrap()), all);
        }
    }

    #[test]
    fn a_part_of_two_answers_is_compressed_once() {
        let shared = Part::new("x".repeat(100_000));
        let answer =
            |own: &'static str| -> Parts { [Part::new(own), shared.clone()].into_iter().collect() };
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
