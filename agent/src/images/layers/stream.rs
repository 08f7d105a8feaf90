//! The uncompressed bytes of a layer: decompressed, counted and hashed.

use std::cell::Cell;
use std::io::{self, BufRead, Chain, Cursor, Read};
use std::rc::Rc;

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::StreamingDecoder;

use crate::fetcher::digest::{Digest, Hasher};

const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// The magic number of a skippable frame, without the lowest four bits.
const ZSTD_SKIPPABLE: u32 = 0x184d_2a50;

/// Bytes that may be read next, as all readers of a stream see them.
pub type Budget = Rc<Cell<u64>>;

/// A layer's bytes. Fails beyond its bounds, since a small layer may contain a huge one.
pub struct Stream<'a> {
    source: Box<dyn Read + 'a>,
    hasher: Hasher,
    /// Bytes that all layers may still have.
    pub left: u64,
    /// Bytes that the header of an entry may still have.
    header: Budget,
}

impl<'a> Stream<'a> {
    /// Decompresses gzip and zstd, which are known by their first bytes.
    pub fn new(mut compressed: impl BufRead + 'a, left: u64, header: Budget) -> io::Result<Self> {
        let start = compressed.fill_buf()?;
        let source: Box<dyn Read + 'a> = match start {
            _ if start.starts_with(&GZIP) => Box::new(MultiGzDecoder::new(compressed)),
            _ if is_zstd(start) => Box::new(ZstdFrames::new(compressed)),
            _ => Box::new(compressed),
        };
        Ok(Self {
            source,
            hasher: Hasher::default(),
            left,
            header,
        })
    }

    /// The digest of the bytes that were read.
    pub fn digest(self) -> Digest {
        self.hasher.finish()
    }
}

impl Read for Stream<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.source.read(buffer)?;
        let read = count as u64;
        self.hasher.update(&buffer[..count]);
        self.left = { self.left.checked_sub(read) }
            .ok_or_else(|| io::Error::other("the uncompressed layers exceed their bound"))?;
        let left = self.header.get().checked_sub(read);
        let left = left.ok_or_else(|| io::Error::other("the header of an entry is too long"))?;
        self.header.set(left);
        Ok(count)
    }
}

fn is_zstd(start: &[u8]) -> bool {
    let first = start.first_chunk();
    first.is_some_and(|first| *first == ZSTD || is_skippable(*first))
}

fn is_skippable(magic: [u8; 4]) -> bool {
    u32::from_le_bytes(magic) & !0xf == ZSTD_SKIPPABLE
}

type Frame<R> = StreamingDecoder<Chain<Cursor<[u8; 4]>, R>, ruzstd::decoding::FrameDecoder>;

/// All frames of a zstd file, of which the crate reads one.
enum ZstdFrames<R: BufRead> {
    Between(R),
    Inside(Box<Frame<R>>),
    Broken,
}

impl<R: BufRead> ZstdFrames<R> {
    fn new(source: R) -> Self {
        Self::Between(source)
    }

    /// Begins the next frame; `None` at the end of the file.
    fn begin(mut source: R) -> io::Result<Option<Frame<R>>> {
        // Terminates with the file.
        loop {
            if source.fill_buf()?.is_empty() {
                return Ok(None);
            }
            let mut magic = [0; 4];
            source.read_exact(&mut magic)?;
            if !is_skippable(magic) {
                let frame = StreamingDecoder::new(Cursor::new(magic).chain(source));
                return frame.map(Some).map_err(io::Error::other);
            }
            let mut length = [0; 4];
            source.read_exact(&mut length)?;
            let length = u64::from(u32::from_le_bytes(length));
            io::copy(&mut source.by_ref().take(length), &mut io::sink())?;
        }
    }
}

impl<R: BufRead> Read for ZstdFrames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        // Terminates with the file: each round ends a frame.
        loop {
            match std::mem::replace(self, Self::Broken) {
                Self::Between(source) => match Self::begin(source)? {
                    Some(frame) => *self = Self::Inside(Box::new(frame)),
                    None => return Ok(0),
                },
                Self::Inside(mut frame) => match frame.read(buffer)? {
                    0 => *self = Self::Between(frame.into_inner().into_inner().1),
                    count => {
                        *self = Self::Inside(frame);
                        return Ok(count);
                    }
                },
                // After the end, or after an error.
                Self::Broken => return Ok(0),
            }
        }
    }
}
