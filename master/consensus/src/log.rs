//! The replicated log as plain data, and the trait of its storage.
//!
//! The types mirror those of the raft crate, so that neither the wire nor the disk contains
//! protobuf bytes. Only a [`LogStore`] does I/O; it is called on a thread that may block. Nothing
//! here interprets operations.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// The kind of a log entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EntryKind {
    /// An operation for the state machine. Empty in a new leader's first entry.
    Operation,
    /// A change of one member.
    Membership,
    /// A change of several members, or the end of one.
    JointMembership,
}

/// One entry of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The leader's term in which it was proposed.
    pub term: u64,
    /// Its index; the first of a group is 1.
    pub index: u64,
    /// Its kind.
    pub kind: EntryKind,
    /// The encoded operation.
    #[serde(with = "runtime::wire::codec::octets")]
    pub data: Vec<u8>,
    /// The proposer's context, by which it recognizes the entry.
    #[serde(with = "runtime::wire::codec::octets")]
    pub context: Vec<u8>,
}

/// The state that a member must not forget: otherwise it could vote twice in one term.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HardState {
    /// The highest term seen.
    pub term: u64,
    /// The vote in that term; 0 for none.
    pub vote: u64,
    /// The highest index known to be committed.
    pub commit: u64,
}

/// The members by raft id.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Members {
    /// The voters.
    pub voters: Vec<u64>,
    /// The members without a vote.
    pub learners: Vec<u64>,
    /// The voters before the joint change in progress; empty if there is none.
    pub voters_outgoing: Vec<u64>,
    /// The voters that become learners at the end of that change.
    pub learners_next: Vec<u64>,
    /// Whether that change ends by itself.
    pub auto_leave: bool,
}

impl Members {
    /// Only these voters.
    pub(crate) fn of(voters: impl IntoIterator<Item = u64>) -> Self {
        Self {
            voters: voters.into_iter().collect(),
            ..Self::default()
        }
    }
}

/// The state machine's whole content at one index. Replaces the log up to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// The last index that it contains; 0 for no snapshot.
    pub index: u64,
    /// The term of that entry.
    pub term: u64,
    /// The members at that index.
    pub members: Members,
    /// The content, as the state machine wrote it.
    pub data: Bytes,
}

/// The content of a [`LogStore`], as read at the start of a member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loaded {
    /// The member's identity. `None` in a directory that was never used.
    pub identity: Option<Identity>,
    /// The term, vote and commit index.
    pub hard: HardState,
    /// The newest snapshot; index 0 if there is none.
    pub snapshot: Snapshot,
    /// The entries after that snapshot, or from an earlier index on, without gaps.
    pub entries: Vec<Entry>,
}

/// The member and the group of a directory. Written once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The member's raft id; never 0.
    pub id: u64,
    /// The group's id, so that members of two groups never mix.
    pub group: u64,
}

/// The changes of one turn. After a crash all of them are found, or none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Write {
    /// A snapshot from a leader. Replaces all entries.
    pub snapshot: Option<Snapshot>,
    /// Entries without gaps. They replace all stored entries from the first one's index on.
    pub entries: Vec<Entry>,
    /// The new term, vote and commit index.
    pub hard: Option<HardState>,
}

/// Why a log could not be read or written. The member stops.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    /// A record in the middle of the log differs from the written one.
    #[error(
        "the log is damaged at {place}: {reason}. Move this master's directory away, remove the member and add it \
         again: its peers send it everything (meros masters remove, meros masters add). If it has no peers, restore a \
         dump (meros registry restore)"
    )]
    Damaged {
        /// The record.
        place: String,
        /// The cause.
        reason: String,
    },
    /// The disk is full, slow beyond its bound, or gone.
    #[error("the log cannot be written: {reason}")]
    Disk {
        /// The operating system's error.
        reason: String,
    },
    /// The directory belongs to another member.
    #[error("the log belongs to member {} of group {:016x}", found.id, found.group)]
    NotOwner {
        /// The owner.
        found: Identity,
    },
}

/// Stores one member's log. Once a call has returned `Ok`, its data survives a power failure.
pub trait LogStore: Send {
    /// Loads everything. A torn end is truncated; damage in the middle is an error.
    fn load(&mut self) -> Result<Loaded, LogError>;

    /// Records the owner of the directory. Idempotent; another owner is an error.
    fn claim(&mut self, identity: Identity) -> Result<(), LogError>;

    /// Writes the first state of a member and its ownership of the directory. A first snapshot
    /// comes with the ownership in one commit, so that a member of another group never reads it.
    fn begin(&mut self, identity: Identity, write: &Write) -> Result<(), LogError> {
        self.write(write)?;
        self.claim(identity)
    }

    /// Writes the changes of one turn in one commit, and syncs them.
    fn write(&mut self, write: &Write) -> Result<(), LogError>;

    /// Stores this snapshot, of an index already in the log, and deletes the entries before
    /// `keep_from` (at most the snapshot's index + 1), so that slow followers still find the later
    /// ones.
    fn compact(&mut self, snapshot: &Snapshot, keep_from: u64) -> Result<(), LogError>;

    /// The bytes on the disk, as far as the store knows.
    fn disk_bytes(&self) -> u64;
}
