//! The replicated log as plain data, and the trait of whatever keeps it on a disk.
//!
//! The types mirror raft's own, so that neither a wire nor a disk ever sees protobuf bytes. Nothing here does I/O:
//! a [`LogStore`] does, and it is called on a thread that may wait. Nothing here knows an operation's meaning.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// What an entry of the log is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EntryKind {
    /// An operation for the state machine, or nothing: a new leader's first entry is empty.
    Operation,
    /// A change of one member.
    Membership,
    /// A change of several members at once, or the end of one.
    JointMembership,
}

/// One entry of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The leader's term in which it was proposed.
    pub term: u64,
    /// Its place; the first of a group is 1.
    pub index: u64,
    /// What it is for.
    pub kind: EntryKind,
    /// What is to be applied.
    #[serde(with = "runtime::codec::octets")]
    pub data: Vec<u8>,
    /// What its proposer knows it by.
    #[serde(with = "runtime::codec::octets")]
    pub context: Vec<u8>,
}

/// What a member must remember of itself: losing it, it could vote twice in one term.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HardState {
    /// The highest term it has seen.
    pub term: u64,
    /// Whom it voted for in that term; 0 for nobody.
    pub vote: u64,
    /// The highest index it knows to be committed.
    pub commit: u64,
}

/// Who the members are, by raft id.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Members {
    /// Those who vote.
    pub voters: Vec<u64>,
    /// Those who only listen.
    pub learners: Vec<u64>,
    /// Who voted before the joint change that is under way; empty if none is.
    pub voters_outgoing: Vec<u64>,
    /// Who becomes a learner when that change ends.
    pub learners_next: Vec<u64>,
    /// Whether that change ends by itself.
    pub auto_leave: bool,
}

/// The state machine's whole content at one index, in place of the log up to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// The last index that is in it; 0 for none at all.
    pub index: u64,
    /// That entry's term.
    pub term: u64,
    /// Who the members were at that index.
    pub members: Members,
    /// The content, as the state machine wrote it.
    pub data: Bytes,
}

/// All that a [`LogStore`] holds, as read when a member starts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loaded {
    /// Who this member is: its raft id, and the group it belongs to. `None` in a directory that was never used.
    pub identity: Option<Identity>,
    /// What it had promised.
    pub hard: HardState,
    /// The newest snapshot; index 0 if there is none.
    pub snapshot: Snapshot,
    /// The entries after that snapshot, or from an earlier index on, without a gap.
    pub entries: Vec<Entry>,
}

/// Which member of which group a directory belongs to. It is written once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The member's raft id; never 0.
    pub id: u64,
    /// Drawn when the group is made, so that members of two groups never mix.
    pub group: u64,
}

/// One turn's changes: all of them, or none, are found after a crash.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Write {
    /// Replaces everything up to its index, and all entries: what a leader has sent.
    pub snapshot: Option<Snapshot>,
    /// Entries without a gap; whatever was kept from the first one's index on is replaced.
    pub entries: Vec<Entry>,
    /// The promises from now on.
    pub hard: Option<HardState>,
}

/// Why a log could not be read or written. Whoever gets one stops: it must not act on a guess.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    /// Something in the middle of the log is not as it was written.
    #[error(
        "the log is damaged at {place}: {reason}. Move this master's directory away, remove the member and add it \
         again: its peers send it everything (meros masters remove, meros masters add)"
    )]
    Damaged {
        /// Which record.
        place: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The disk is full, slow beyond its bound, or gone.
    #[error("the log cannot be written: {reason}")]
    Disk {
        /// What the disk said.
        reason: String,
    },
    /// This directory is another member's.
    #[error("the log belongs to member {} of group {:016x}", found.id, found.group)]
    Stranger {
        /// Whose it is.
        found: Identity,
    },
}

/// Keeps one member's log. When a call returns `Ok`, what it wrote survives a loss of power.
pub trait LogStore: Send {
    /// Everything, as it was found. A torn end is cut; a damaged middle is an error.
    fn load(&mut self) -> Result<Loaded, LogError>;

    /// Says whose directory this is; the same again changes nothing, another one is refused.
    fn claim(&mut self, identity: Identity) -> Result<(), LogError>;

    /// Writes one turn's changes, in one commit, and syncs them.
    fn write(&mut self, write: &Write) -> Result<(), LogError>;

    /// Keeps this snapshot, of an index already in the log, and forgets the entries before `keep_from`
    /// (at most the snapshot's index + 1), so that slow followers still find those after it.
    fn compact(&mut self, snapshot: &Snapshot, keep_from: u64) -> Result<(), LogError>;

    /// Bytes on the disk, as far as the store knows.
    fn disk_bytes(&self) -> u64;
}
