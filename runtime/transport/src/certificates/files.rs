//! Files of keys and certificates, created or replaced atomically.
//!
//! A final name never has partial content, and a replaced file's mode is never widened.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::CertificateError;

/// Mode of a key: readable by its owner only.
pub(super) const PRIVATE: u32 = 0o600;
/// Mode of a certificate: readable by all.
pub(super) const PUBLIC: u32 = 0o644;

/// Maximum bytes of a PEM file; ours are much shorter.
const LENGTH_MAX: u64 = 64 * 1024;

/// The whole text of `file`.
pub(super) fn read(file: &Path) -> Result<String, CertificateError> {
    let mut text = String::new();
    let taken =
        File::open(file).and_then(|opened| opened.take(LENGTH_MAX + 1).read_to_string(&mut text));
    match taken {
        Ok(length) if length as u64 > LENGTH_MAX => Err(CertificateError::Unusable {
            file: file.to_owned(),
            reason: format!("is longer than {LENGTH_MAX} bytes: not a certificate or key"),
        }),
        Ok(_) => Ok(text),
        Err(error) if error.kind() == ErrorKind::NotFound => Err(CertificateError::Missing {
            file: file.to_owned(),
        }),
        Err(source) => Err(CertificateError::Io {
            action: "read",
            file: file.to_owned(),
            source,
        }),
    }
}

/// Creates `directory` and its missing parents. Only its owner can open it; the parents have the
/// default mode, since sandboxes of other users' tasks may be beside it.
pub(super) fn make_directory(directory: &Path) -> Result<(), CertificateError> {
    let made = match directory.parent() {
        Some(above) => fs::create_dir_all(above),
        None => Ok(()),
    };
    let mut own = DirBuilder::new();
    made.and_then(|()| own.recursive(true).mode(0o700).create(directory))
        .map_err(|source| CertificateError::Io {
            action: "make",
            file: directory.to_owned(),
            source,
        })
}

/// Writes `file`, which must not exist yet: of two concurrent writers exactly one succeeds.
pub(super) fn write_new(file: &Path, text: &str, mode: u32) -> Result<(), CertificateError> {
    // A hard link fails if its target exists; a rename would overwrite it.
    write(file, text, mode, |draft| {
        let linked = fs::hard_link(draft, file);
        fs::remove_file(draft).and(linked)
    })
}

/// Creates or replaces `file`.
pub(super) fn replace(file: &Path, text: &str, mode: u32) -> Result<(), CertificateError> {
    write(file, text, mode, |draft| fs::rename(draft, file))
}

fn write(
    file: &Path,
    text: &str,
    mode: u32,
    publish: impl FnOnce(&Path) -> io::Result<()>,
) -> Result<(), CertificateError> {
    let draft = draft_of(file);
    let written = write_draft(&draft, text, mode)
        .and_then(|()| publish(&draft))
        .and_then(|()| sync_directory(file));
    written.map_err(|source| {
        let _ = fs::remove_file(&draft); // best effort: the error of the write is returned
        match source.kind() {
            ErrorKind::AlreadyExists => CertificateError::Exists {
                file: file.to_owned(),
            },
            _ => CertificateError::Io {
                action: "write",
                file: file.to_owned(),
                source,
            },
        }
    })
}

fn write_draft(draft: &Path, text: &str, mode: u32) -> io::Result<()> {
    match fs::remove_file(draft) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {} // nothing was there, or the draft of a dead process with the same pid
    }
    let mut opened = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(draft)?;
    opened.write_all(text.as_bytes())?;
    opened.sync_all()
}

fn sync_directory(file: &Path) -> io::Result<()> {
    match file.parent() {
        Some(directory) if !directory.as_os_str().is_empty() => File::open(directory)?.sync_all(),
        _ => Ok(()),
    }
}

fn draft_of(file: &Path) -> PathBuf {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    file.with_file_name(format!(".{name}.{}.draft", std::process::id()))
}
