//! A group's whole content in one file, and a new group of one member made from it: for the day on which the majority is lost.
//!
//! Called offline, by an operator's command. [`take`] reads one survivor's log, which nobody else has open, and changes
//! nothing in it; the state machine's own code, handed in, makes the content. [`write_file`] and [`read_file`] keep it in
//! a file that says what it is, and [`restore`] makes a directory of it for the first member of a new group.
//!
//! It never knows what the content means, never overwrites a file or a directory that holds anything, and never gives a
//! restored member its old identity: the old group's members could not tell it from the one they knew.

mod file;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;

use crate::log::{Entry, HardState, Identity, LogError, LogStore, Members, Snapshot, Write};
use crate::store::StoredLog;

pub use file::{CONTENT_BYTES_MAX, NAMES_BYTES_MAX, read_file, replace_file, write_file};
pub(crate) use file::{mend, read_bytes, write_bytes};

/// What a group held at one index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dump {
    /// The group that it was taken from.
    pub group: u64,
    /// The last index that is in it.
    pub index: u64,
    /// That entry's term.
    pub term: u64,
    /// The members' names, in whatever form the caller gives them: for people to read. At most [`NAMES_BYTES_MAX`].
    pub names: Bytes,
    /// The state machine's content, as it writes its snapshots. At most [`CONTENT_BYTES_MAX`].
    pub content: Bytes,
}

/// How far into a survivor's log a dump reaches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reach {
    /// Up to the last entry that this member knew to be committed. What the others had committed since is missing.
    #[default]
    Committed,
    /// Everything that it holds: nothing that it acknowledged is missing, and operations may be in it whose proposers were
    /// never told that they succeeded.
    Whole,
}

/// What the state machine makes of a survivor's log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Its content after the last entry, in the form of its snapshots.
    pub content: Bytes,
    /// The members' names.
    pub names: Bytes,
}

/// A dump, and what is not in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    /// What was taken.
    pub dump: Dump,
    /// Entries of the survivor's log that stand after the last one it knew to be committed: left out by
    /// [`Reach::Committed`], in the dump by [`Reach::Whole`].
    pub uncertain: u64,
}

/// Why a dump could not be taken, written, read or restored.
#[derive(Debug, thiserror::Error)]
pub enum DumpError {
    /// The survivor's log cannot be read, or the new one not be written.
    #[error(transparent)]
    Log(#[from] LogError),
    /// There is nothing in this directory that a dump could be taken of.
    #[error("there is no member's log here to take a dump of: it was never claimed by a member")]
    Nobody,
    /// The state machine cannot read its own snapshot or apply an entry.
    #[error("the log cannot be replayed: {reason}")]
    Replay {
        /// What it said.
        reason: String,
    },
    /// Too much for a dump.
    #[error("{what} of {bytes} bytes: a dump holds at most {limit}")]
    TooLarge {
        /// `content` or `names`.
        what: &'static str,
        /// What there is.
        bytes: u64,
        /// What is taken.
        limit: u64,
    },
    /// A file or a directory stands where a new one should be made: choose another place, or move it away.
    #[error("{} holds something already ({found}): expected {expected}", path.display())]
    Taken {
        /// Where.
        path: PathBuf,
        /// What was found there.
        found: String,
        /// What was expected there.
        expected: &'static str,
    },
    /// The identity for the new member cannot be used.
    #[error("the new member cannot have {field} {value:#x}: {reason}")]
    Identity {
        /// `raft id` or `group`.
        field: &'static str,
        /// What was asked for.
        value: u64,
        /// Why not.
        reason: &'static str,
    },
    /// The file is not a dump that this program can read.
    #[error("{} is not a dump that can be used: {fault}", path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        fault: FileFault,
    },
    /// The disk or the path failed.
    #[error("{}: {reason}", path.display())]
    Disk {
        /// Which file or directory.
        path: PathBuf,
        /// What the system said.
        reason: String,
    },
}

/// What is wrong with a file that should be a dump.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FileFault {
    /// It is something else.
    #[error("it does not begin as a dump of a registry does")]
    Foreign,
    /// A newer program wrote it.
    #[error("it is of version {found}, and this program knows only {known}")]
    Version {
        /// Its version.
        found: u16,
        /// The newest version that is read.
        known: u16,
    },
    /// Its first bytes are not as they were written.
    #[error("its header is damaged: its checksum is {found:08x} and {stored:08x} was stored")]
    Header {
        /// The checksum of what is there.
        found: u32,
        /// The checksum in the file.
        stored: u32,
    },
    /// Its end is missing, or something follows it.
    #[error("it has {found} bytes and should have {expected}")]
    Length {
        /// Its length.
        found: u64,
        /// The length that its header tells.
        expected: u64,
    },
    /// A length in its header is beyond what a dump may hold.
    #[error("its {what} would have {bytes} bytes, and at most {limit} are read")]
    TooLarge {
        /// `content` or `names`.
        what: &'static str,
        /// What the header tells.
        bytes: u64,
        /// What is read.
        limit: u64,
    },
    /// Its content is not as it was written.
    #[error("its content is damaged: its checksum is {found:08x} and {stored:08x} was stored")]
    Content {
        /// The checksum of what is there.
        found: u32,
        /// The checksum in the file.
        stored: u32,
    },
}

/// Takes a dump of a member's log, which is read and not changed. `replay` is given the newest snapshot (index 0 and no
/// content if there is none) and the entries after it, in order.
pub fn take(
    log: &mut impl LogStore,
    reach: Reach,
    replay: impl FnOnce(&Snapshot, &[Entry]) -> Result<Replayed, String>,
) -> Result<Taken, DumpError> {
    let loaded = log.load()?;
    let identity = loaded.identity.ok_or(DumpError::Nobody)?;
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

/// Makes a directory with the log of a new group's first and only member. The directory must not exist, or be empty; until
/// all is synced it stands under another name beside it, so that a crash leaves either the whole log or none.
pub fn restore(dir: &Path, dump: &Dump, identity: Identity) -> Result<(), DumpError> {
    check_free(dir)?;
    let making = beside(dir)?;
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

/// Writes a new group's first and only member into an empty log.
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
    // A group that never applied anything has its content at index 1: 0 stands for no snapshot at all.
    let index = dump.index.max(1);
    let term = dump.term.max(1);
    let snapshot = Snapshot {
        index,
        term,
        members: Members {
            voters: vec![identity.id],
            ..Members::default()
        },
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

/// Is there nothing in this directory yet?
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

/// Where the directory is made before it gets its name.
fn beside(dir: &Path) -> Result<PathBuf, DumpError> {
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
