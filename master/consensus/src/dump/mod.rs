//! A group's whole content in one file, and a new group of one member made from it: for the loss of
//! a majority.
//!
//! Called offline, by an operator's command. [`take`] reads a survivor's log without changing it;
//! no other process may have it open. The state machine's own code, an argument, produces the
//! content. [`write_file`] and [`read_file`] store it in a file, and [`restore`] makes the
//! directory of a new group's first member.
//!
//! Never interprets the content, never overwrites a file or a directory with content, and never
//! reuses an identity: members of the old group could not distinguish the restored member from the
//! old one.

mod file;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;

use crate::log::{Entry, HardState, Identity, LogError, LogStore, Members, Snapshot, Write};
use crate::store::StoredLog;

pub use file::{CONTENT_BYTES_MAX, NAMES_BYTES_MAX, read_file, replace_file, write_file};

/// A group's content at one index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dump {
    /// The group that it was taken from.
    pub group: u64,
    /// The last index that it contains.
    pub index: u64,
    /// The term of that entry.
    pub term: u64,
    /// The members in readable form, in a format of the caller. At most [`NAMES_BYTES_MAX`].
    pub names: Bytes,
    /// The state machine's content, as in its snapshots. At most [`CONTENT_BYTES_MAX`].
    pub content: Bytes,
}

/// How much of a survivor's log a dump contains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reach {
    /// Up to the last entry that this member knew to be committed. Later commits of the others are
    /// missing.
    #[default]
    Committed,
    /// All entries. Contains everything that it acknowledged, and perhaps operations whose
    /// proposers were never informed of success.
    Whole,
}

/// The replayed log of a survivor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// The machine's content after the last entry, as in its snapshots.
    pub content: Bytes,
    /// The members in readable form.
    pub names: Bytes,
}

/// A dump and the number of uncertain entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    /// The dump.
    pub dump: Dump,
    /// The entries after the last one that the survivor knew to be committed: excluded by
    /// [`Reach::Committed`], included by [`Reach::Whole`].
    pub uncertain: u64,
}

/// Why a dump could not be taken, written, read or restored.
#[derive(Debug, thiserror::Error)]
pub enum DumpError {
    /// The survivor's log cannot be read, or the new one cannot be written.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The directory has no member's log.
    #[error("there is no log of a member in this directory")]
    NoLog,
    /// The state machine cannot decode its own snapshot or apply an entry.
    #[error("the log cannot be replayed: {reason}")]
    Replay {
        /// The cause.
        reason: String,
    },
    /// The content is too large for a dump.
    #[error("{what} of {bytes} bytes: a dump holds at most {limit}")]
    TooLarge {
        /// `content` or `names`.
        what: &'static str,
        /// Its size.
        bytes: u64,
        /// The bound.
        limit: u64,
    },
    /// The target already exists: choose another path, or move it away.
    #[error("{} already exists ({found}): expected {expected}", path.display())]
    Taken {
        /// The path.
        path: PathBuf,
        /// The content found.
        found: String,
        /// The expected content.
        expected: &'static str,
    },
    /// The new member's identity is invalid.
    #[error("the new member cannot have {field} {value:#x}: {reason}")]
    Identity {
        /// `raft id` or `group`.
        field: &'static str,
        /// The requested value.
        value: u64,
        /// The cause.
        reason: &'static str,
    },
    /// The file is not a dump that this program can read.
    #[error("{} is not a dump that can be used: {fault}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        fault: FileFault,
    },
    /// The disk or the path failed.
    #[error("{}: {reason}", path.display())]
    Disk {
        /// The file or directory.
        path: PathBuf,
        /// The operating system's error.
        reason: String,
    },
}

/// Why a file is not a valid dump.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FileFault {
    /// It is another kind of file.
    #[error("it does not begin as a dump of a registry does")]
    Foreign,
    /// A newer program wrote it.
    #[error("it is of version {found}, and this program knows only {known}")]
    Version {
        /// Its version.
        found: u16,
        /// The newest readable version.
        known: u16,
    },
    /// Its header is damaged.
    #[error("its header is damaged: its checksum is {found:08x} and {stored:08x} was stored")]
    Header {
        /// The computed checksum.
        found: u32,
        /// The checksum in the file.
        stored: u32,
    },
    /// It is truncated, or has additional bytes.
    #[error("it has {found} bytes and should have {expected}")]
    Length {
        /// Its length.
        found: u64,
        /// The length according to its header.
        expected: u64,
    },
    /// A length in its header exceeds the bound.
    #[error("its {what} would have {bytes} bytes, and at most {limit} are read")]
    TooLarge {
        /// `content` or `names`.
        what: &'static str,
        /// The length in the header.
        bytes: u64,
        /// The bound.
        limit: u64,
    },
    /// Its content is damaged.
    #[error("its content is damaged: its checksum is {found:08x} and {stored:08x} was stored")]
    Content {
        /// The computed checksum.
        found: u32,
        /// The checksum in the file.
        stored: u32,
    },
}

/// Takes a dump of a member's log without changing it. `replay` gets the newest snapshot (index 0
/// and no content if there is none) and the entries after it, in order.
pub fn take(
    log: &mut impl LogStore,
    reach: Reach,
    replay: impl FnOnce(&Snapshot, &[Entry]) -> Result<Replayed, String>,
) -> Result<Taken, DumpError> {
    let loaded = log.load()?;
    let identity = loaded.identity.ok_or(DumpError::NoLog)?;
    let after = |index: u64| loaded.entries.partition_point(|entry| entry.index <= index);
    let from = after(loaded.snapshot.index);
    let committed = after(loaded.hard.commit).max(from);
    let to = match reach {
        Reach::Committed => committed,
        Reach::Whole => loaded.entries.len(),
    };
    let entries = &loaded.entries[from..to];
    let (index, term) = entries
        .last()
        .map_or((loaded.snapshot.index, loaded.snapshot.term), |last| {
            (last.index, last.term)
        });
    let replayed =
        replay(&loaded.snapshot, entries).map_err(|reason| DumpError::Replay { reason })?;
    let dump = Dump {
        group: identity.group,
        index,
        term,
        names: replayed.names,
        content: replayed.content,
    };
    file::check_sizes(&dump)?;
    let uncertain = (loaded.entries.len() - committed) as u64;
    Ok(Taken { dump, uncertain })
}

/// Creates a directory with the log of a new group's first and only member. The directory must be
/// empty or not exist. It has a temporary name until everything is synced, so a crash leaves either
/// the whole log or none.
pub fn restore(dir: &Path, dump: &Dump, identity: Identity) -> Result<(), DumpError> {
    check_free(dir)?;
    let making = temporary_path(dir)?;
    if storage::in_use(&making) {
        return Err(DumpError::Taken {
            path: making,
            found: "another process is restoring there".to_owned(),
            expected: "nothing",
        });
    }
    match fs::remove_dir_all(&making) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(disk(&making, &error)),
        _ => {}
    }
    let mut log = StoredLog::open(&making)?;
    fill(&mut log, dump, identity)?;
    drop(log);
    fs::rename(&making, dir).map_err(|error| disk(dir, &error))?;
    file::sync_parent(dir)
}

/// Writes the log of a new group's first and only member into an empty log.
pub fn fill(log: &mut impl LogStore, dump: &Dump, identity: Identity) -> Result<(), DumpError> {
    check_identity(dump, identity)?;
    let found = log.load()?;
    if found.identity.is_some() || found.snapshot.index > 0 || !found.entries.is_empty() {
        return Err(DumpError::Taken {
            path: PathBuf::from("the log"),
            found: "a member's log".to_owned(),
            expected: "an empty one",
        });
    }
    // A group that never applied anything gets index 1, because 0 means no snapshot.
    let index = dump.index.max(1);
    let term = dump.term.max(1);
    let snapshot = Snapshot {
        index,
        term,
        members: Members::of([identity.id]),
        data: dump.content.clone(),
    };
    let hard = HardState {
        term,
        vote: 0,
        commit: index,
    };
    log.claim(identity)?;
    log.write(&Write {
        snapshot: Some(snapshot),
        entries: Vec::new(),
        hard: Some(hard),
    })?;
    Ok(())
}

fn check_identity(dump: &Dump, identity: Identity) -> Result<(), DumpError> {
    let refused = |field, value, reason| {
        Err(DumpError::Identity {
            field,
            value,
            reason,
        })
    };
    if identity.id == 0 {
        return refused("raft id", 0, "it is at least 1");
    }
    if identity.group == dump.group {
        let reason = "it is the old group's, whose members may still come back";
        return refused("group", identity.group, reason);
    }
    Ok(())
}

/// Checks that the directory is empty or does not exist.
fn check_free(dir: &Path) -> Result<(), DumpError> {
    let expected = "an empty directory, or none";
    let taken = |found: String| DumpError::Taken {
        path: dir.to_owned(),
        found,
        expected,
    };
    let mut entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            return Err(taken("it is a file".to_owned()));
        }
        Err(error) => return Err(disk(dir, &error)),
    };
    match entries.next() {
        None => Ok(()),
        Some(Err(error)) => Err(disk(dir, &error)),
        Some(Ok(entry)) if storage::in_use(dir) => Err(taken(format!(
            "it is in use by another process, with {}",
            entry.file_name().display()
        ))),
        Some(Ok(entry)) => Err(taken(entry.file_name().display().to_string())),
    }
}

/// The temporary name of the directory.
fn temporary_path(dir: &Path) -> Result<PathBuf, DumpError> {
    match dir.file_name() {
        Some(name) => {
            let mut making = name.to_owned();
            making.push(".restoring");
            Ok(dir.with_file_name(making))
        }
        None => Err(disk(
            dir,
            &io::Error::other("a directory with a name of its own was expected"),
        )),
    }
}

fn disk(path: &Path, error: &io::Error) -> DumpError {
    DumpError::Disk {
        path: path.to_owned(),
        reason: error.to_string(),
    }
}

#[cfg(test)]
mod tests;
