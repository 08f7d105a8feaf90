//! Blobs: the parts of an image, as files named by their digests while it is pulled.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};

use super::space::{self, SpaceChecks};
use crate::fetcher::digest::{Digest, Hasher};

/// Bytes copied at once.
const PIECE: usize = 128 << 10;

/// A directory of blobs.
#[derive(Debug)]
pub struct Blobs {
    directory: PathBuf,
}

/// A blob that is being written. Its name follows from its content.
pub struct BlobWriter {
    path: PathBuf,
    directory: PathBuf,
    file: File,
    hasher: Hasher,
    written: u64,
    size_max: u64,
    space: SpaceChecks,
}

impl Blobs {
    /// Blobs in this directory.
    pub fn new(directory: &Path) -> Self {
        Self {
            directory: directory.to_owned(),
        }
    }

    /// Begins a blob of at most this size. Only one blob is written under a name at a time.
    pub fn create(&self, name: &str, size_max: u64) -> io::Result<BlobWriter> {
        let path = self.directory.join(format!("{name}.part"));
        Ok(BlobWriter {
            file: File::create(&path)?,
            path,
            directory: self.directory.clone(),
            hasher: Hasher::default(),
            written: 0,
            size_max,
            space: SpaceChecks::default(),
        })
    }

    /// Fails if the disk has no space for blobs of this size.
    pub fn check_space(&self, size: u64) -> Result<(), String> {
        let space = File::open(&self.directory).and_then(space::space);
        space::check(space.map_err(|error| error.to_string())?, size)
    }

    /// Copies a blob. `expected` is its digest.
    pub fn copy(
        &self,
        mut source: impl Read,
        size_max: u64,
        expected: Option<&Digest>,
    ) -> Result<Digest, String> {
        let text = |error: io::Error| error.to_string();
        let mut writer = self.create("copy", size_max).map_err(text)?;
        let mut piece = vec![0; PIECE];
        // Terminates at the bound.
        loop {
            match source.read(&mut piece).map_err(text)? {
                0 => return writer.finish(expected),
                count => writer.write(&piece[..count]).map_err(text)?,
            }
        }
    }
}

impl BlobWriter {
    /// Adds content. Fails beyond the bound.
    pub fn write(&mut self, content: &[u8]) -> io::Result<()> {
        self.written += content.len() as u64;
        if self.written > self.size_max {
            let size_max = self.size_max;
            return Err(io::Error::other(format!(
                "it is larger than {size_max} bytes"
            )));
        }
        self.space.add(&self.file, content.len() as u64)?;
        self.hasher.update(content);
        self.file.write_all(content)
    }

    /// Begins from the start again.
    pub fn restart(&mut self) -> io::Result<()> {
        self.file.set_len(0)?;
        self.file.rewind()?;
        self.hasher = Hasher::default();
        self.written = 0;
        Ok(())
    }

    /// Gives the blob its name, if it is the expected one.
    pub fn finish(self, expected: Option<&Digest>) -> Result<Digest, String> {
        let digest = self.hasher.finish();
        if let Some(expected) = expected.filter(|expected| **expected != digest) {
            return Err(format!(
                "its content has the digest {digest}, not {expected}"
            ));
        }
        let path = self.directory.join(digest.file_name());
        std::fs::rename(&self.path, path).map_err(|error| error.to_string())?;
        Ok(digest)
    }
}
