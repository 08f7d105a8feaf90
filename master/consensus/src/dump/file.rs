//! The dump file: a header with type and lengths, then names, content, and a checksum over
//! everything.
//!
//! Written under a temporary name, synced, and renamed, so that a file with the final name is
//! complete. Reading checks the header before it uses a length, and the file's length before it
//! reads the rest.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;

use super::{Dump, DumpError, FileFault, disk};

/// The largest content of a dump: 4 GiB.
pub const CONTENT_BYTES_MAX: u64 = 4 << 30;
/// The largest names of a dump: 1 MiB.
pub const NAMES_BYTES_MAX: u64 = 1 << 20;

const MAGIC: [u8; 8] = *b"meros\x00rd";
/// The version that is written, and the newest one that is read.
const VERSION: u16 = 1;
/// Magic, version, group, index, term, length of the names, length of the content, and the checksum
/// of all these.
const HEADER_BYTES: usize = 8 + 2 + 3 * 8 + 4 + 8 + 4;
/// The checksum at the end.
const TRAILER_BYTES: u64 = 4;

/// Writes this dump into a new file, synced when it returns.
pub fn write_file(path: &Path, dump: &Dump) -> Result<(), DumpError> {
    check_sizes(dump)?;
    if fs::symlink_metadata(path).is_ok() {
        return Err(DumpError::Taken {
            path: path.to_owned(),
            found: "a file".to_owned(),
            expected: "no file of this name",
        });
    }
    replace_file(path, dump)
}

/// As [`write_file`], but replaces an existing file, atomically.
pub fn replace_file(path: &Path, dump: &Dump) -> Result<(), DumpError> {
    check_sizes(dump)?;
    let partial = partial(path)?;
    let written = write_synced(&partial, dump)
        .and_then(|()| fs::rename(&partial, path))
        .map_err(|error| disk(path, &error));
    if written.is_err() {
        // A leftover temporary file is harmless; report the first error.
        let _ = fs::remove_file(&partial);
    }
    written?;
    sync_parent(path)
}

/// Reads and validates a dump.
pub fn read_file(path: &Path) -> Result<Dump, DumpError> {
    let mut file = File::open(path).map_err(|error| disk(path, &error))?;
    let length = file.metadata().map_err(|error| disk(path, &error))?.len();
    match read(&mut file, length) {
        Ok(Ok(dump)) => Ok(dump),
        Ok(Err(fault)) => Err(DumpError::File {
            path: path.to_owned(),
            fault,
        }),
        Err(error) => Err(disk(path, &error)),
    }
}

/// Syncs the directory entry of this file or directory.
pub(super) fn sync_parent(path: &Path) -> Result<(), DumpError> {
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    File::open(parent)
        .and_then(|parent| parent.sync_all())
        .map_err(|error| disk(parent, &error))
}

pub(super) fn check_sizes(dump: &Dump) -> Result<(), DumpError> {
    let parts = [
        ("names", dump.names.len() as u64, NAMES_BYTES_MAX),
        ("content", dump.content.len() as u64, CONTENT_BYTES_MAX),
    ];
    for (what, bytes, limit) in parts {
        if bytes > limit {
            return Err(DumpError::TooLarge { what, bytes, limit });
        }
    }
    Ok(())
}

fn header(dump: &Dump) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER_BYTES);
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&VERSION.to_be_bytes());
    for field in [dump.group, dump.index, dump.term] {
        bytes.extend_from_slice(&field.to_be_bytes());
    }
    // Bounded by `check_sizes`, which every dump has passed.
    bytes.extend_from_slice(&(dump.names.len() as u32).to_be_bytes());
    bytes.extend_from_slice(&(dump.content.len() as u64).to_be_bytes());
    let sum = crc32c::crc32c(&bytes);
    bytes.extend_from_slice(&sum.to_be_bytes());
    bytes
}

fn write_synced(path: &Path, dump: &Dump) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)?;
    write(&mut file, dump)?;
    file.sync_all()
}

fn write(file: &mut impl Write, dump: &Dump) -> io::Result<()> {
    let mut sum = 0;
    for piece in [&header(dump)[..], &dump.names, &dump.content] {
        sum = crc32c::crc32c_append(sum, piece);
        file.write_all(piece)?;
    }
    file.write_all(&sum.to_be_bytes())
}

impl Dump {
    /// The bytes of its file.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let _ = write(&mut bytes, self); // writing to memory never fails
        bytes
    }

    /// Decodes the bytes of a file.
    pub fn decode(mut bytes: &[u8]) -> Result<Self, FileFault> {
        let length = bytes.len() as u64;
        // Reading from memory never fails.
        read(&mut bytes, length).unwrap_or(Err(FileFault::Foreign))
    }
}

/// Decodes and validates a dump of this length.
fn read(source: &mut impl Read, length: u64) -> io::Result<Result<Dump, FileFault>> {
    let mut head = Vec::with_capacity(HEADER_BYTES);
    source.take(HEADER_BYTES as u64).read_to_end(&mut head)?;
    let (mut dump, names, content) = match parse_header(&head) {
        Ok(parsed) => parsed,
        Err(fault) => return Ok(Err(fault)),
    };
    let expected = HEADER_BYTES as u64 + names + content + TRAILER_BYTES;
    if length != expected {
        let found = length;
        return Ok(Err(FileFault::Length { found, expected }));
    }
    let mut bytes = Vec::new();
    source.take(expected).read_to_end(&mut bytes)?;
    let found = (HEADER_BYTES + bytes.len()) as u64;
    let Some((body, trailer)) = bytes.split_last_chunk::<4>().filter(|_| found == expected) else {
        return Ok(Err(FileFault::Length { found, expected }));
    };
    let (stored, sum) = (
        u32::from_be_bytes(*trailer),
        crc32c::crc32c_append(crc32c::crc32c(&head), body),
    );
    if stored != sum {
        return Ok(Err(FileFault::Content { found: sum, stored }));
    }
    bytes.truncate(bytes.len() - TRAILER_BYTES as usize);
    let mut bytes = Bytes::from(bytes);
    // At most the body's length, which is in memory.
    dump.names = bytes.split_to(names as usize);
    dump.content = bytes;
    Ok(Ok(dump))
}

/// Decodes a header: a dump still without content, and the lengths of its names and its content.
fn parse_header(head: &[u8]) -> Result<(Dump, u64, u64), FileFault> {
    if !head.starts_with(&MAGIC) {
        return Err(FileFault::Foreign);
    }
    let short = FileFault::Length {
        found: head.len() as u64,
        expected: HEADER_BYTES as u64 + TRAILER_BYTES,
    };
    let Some((fields, sum)) = head
        .split_last_chunk::<4>()
        .filter(|_| head.len() == HEADER_BYTES)
    else {
        return Err(short);
    };
    let number = |from: usize, bytes: usize| {
        let field = &fields[from..from + bytes];
        field
            .iter()
            .fold(0u64, |sum, byte| sum << 8 | u64::from(*byte))
    };
    let (stored, found) = (u32::from_be_bytes(*sum), crc32c::crc32c(fields));
    let version = number(8, 2) as u16;
    if stored != found {
        return Err(FileFault::Header { found, stored });
    }
    if version != VERSION {
        return Err(FileFault::Version {
            found: version,
            known: VERSION,
        });
    }
    let (names, content) = (number(34, 4), number(38, 8));
    let lengths = [
        ("names", names, NAMES_BYTES_MAX),
        ("content", content, CONTENT_BYTES_MAX),
    ];
    for (what, bytes, limit) in lengths {
        if bytes > limit {
            return Err(FileFault::TooLarge { what, bytes, limit });
        }
    }
    let dump = Dump {
        group: number(10, 8),
        index: number(18, 8),
        term: number(26, 8),
        names: Bytes::new(),
        content: Bytes::new(),
    };
    Ok((dump, names, content))
}

/// The temporary name of the file.
fn partial(path: &Path) -> Result<PathBuf, DumpError> {
    match path.file_name() {
        Some(name) => {
            let mut partial = name.to_owned();
            partial.push(".partial");
            Ok(path.with_file_name(partial))
        }
        None => Err(disk(
            path,
            &io::Error::other("the name of a file was expected"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dump() -> Dump {
        Dump {
            group: 0x0102_0304_0506_0708,
            index: 300,
            term: 7,
            names: Bytes::from_static(b"1=a:5050"),
            content: Bytes::from(vec![0xab; 1000]),
        }
    }

    fn written(dump: &Dump) -> (tempfile::TempDir, PathBuf, Vec<u8>) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("registry.dump");
        write_file(&path, dump).unwrap();
        let bytes = fs::read(&path).unwrap();
        (dir, path, bytes)
    }

    fn fault_of(bytes: &[u8]) -> FileFault {
        read(&mut &bytes[..], bytes.len() as u64)
            .unwrap()
            .unwrap_err()
    }

    /// A released version never changes: these bytes must be readable for ever.
    #[test]
    fn the_golden_bytes_of_version_1() {
        let small = Dump {
            names: Bytes::from_static(b"n"),
            content: Bytes::from_static(b"cc"),
            ..dump()
        };
        let (_dir, path, bytes) = written(&small);
        let golden = "6d65726f73007264000101020304050607080000\
                      00000000012c0000000000000007000000010000\
                      000000000002";
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert!(hex.starts_with(golden), "{hex}");
        assert!(hex[golden.len() + 8..].starts_with("6e6363"), "{hex}");
        assert_eq!(read_file(&path).unwrap(), small);
    }

    #[test]
    fn written_dump_is_read_back() {
        let (dir, path, _) = written(&dump());
        assert_eq!(read_file(&path).unwrap(), dump());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        let empty = Dump {
            names: Bytes::new(),
            content: Bytes::new(),
            ..dump()
        };
        let (_dir, path, _) = written(&empty);
        assert_eq!(read_file(&path).unwrap(), empty);
    }

    #[test]
    fn existing_file_is_only_replaced_on_request() {
        let (_dir, path, bytes) = written(&dump());
        let error = write_file(&path, &dump()).unwrap_err().to_string();
        let expected = "already exists (a file): expected no file of this name";
        assert!(error.ends_with(expected), "{error}");
        assert_eq!(fs::read(&path).unwrap(), bytes);
        let other = Dump {
            index: 301,
            ..dump()
        };
        replace_file(&path, &other).unwrap();
        assert_eq!(read_file(&path).unwrap(), other);
    }

    #[test]
    fn leftover_temporary_file_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("registry.dump");
        fs::write(dir.path().join("registry.dump.partial"), vec![1; 5000]).unwrap();
        write_file(&path, &dump()).unwrap();
        assert_eq!(read_file(&path).unwrap(), dump());
    }

    #[test]
    fn every_flipped_byte_is_found_and_named() {
        let (_dir, _, bytes) = written(&dump());
        for at in 0..bytes.len() {
            let mut bytes = bytes.clone();
            bytes[at] ^= 0x10;
            let fault = fault_of(&bytes);
            let expected = match at {
                0..8 => matches!(fault, FileFault::Foreign),
                8..HEADER_BYTES => matches!(fault, FileFault::Header { .. }),
                _ => matches!(fault, FileFault::Content { .. }),
            };
            assert!(expected, "byte {at}: {fault}");
        }
    }

    #[test]
    fn file_of_wrong_length_is_refused() {
        let (_dir, _, mut bytes) = written(&dump());
        for length in 0..bytes.len() {
            let fault = fault_of(&bytes[..length]);
            let expected = match length {
                0..8 => matches!(fault, FileFault::Foreign),
                _ => matches!(fault, FileFault::Length { .. }),
            };
            assert!(expected, "{length} bytes: {fault}");
        }
        let expected = bytes.len() as u64;
        bytes.push(0);
        let found = expected + 1;
        assert_eq!(fault_of(&bytes), FileFault::Length { found, expected });
    }

    #[test]
    fn newer_version_or_oversized_length_is_refused() {
        let (_dir, _, bytes) = written(&dump());
        let sealed = |at: usize, value: &[u8]| {
            let mut bytes = bytes.clone();
            bytes[at..at + value.len()].copy_from_slice(value);
            let sum = crc32c::crc32c(&bytes[..HEADER_BYTES - 4]);
            bytes[HEADER_BYTES - 4..HEADER_BYTES].copy_from_slice(&sum.to_be_bytes());
            fault_of(&bytes).to_string()
        };
        assert_eq!(
            sealed(8, &[0, 2]),
            "it is of version 2, and this program knows only 1"
        );
        assert_eq!(
            sealed(38, &[0xff; 8]),
            format!(
                "its content would have {} bytes, and at most {CONTENT_BYTES_MAX} are read",
                u64::MAX
            )
        );
        assert!(sealed(34, &[0xff; 4]).starts_with("its names would have"));
    }
}
