//! Packets between members: a mirror of the raft crate's messages, and chunks of snapshots.
//!
//! The raft crate's own encoding never crosses a wire. A packet is used only after
//! [`Packet::check`]; the core then checks it against its own state.

use serde::{Deserialize, Serialize};

use crate::log::{Entry, EntryKind, Members};

/// The largest valid term, index or count from a peer, so that additions never overflow.
pub const NUMBER_MAX: u64 = 1 << 62;
/// The largest number of entries in a message.
pub const ENTRIES_MAX: usize = 1 << 20;
/// The largest data of one entry, in bytes.
pub const ENTRY_BYTES_MAX: usize = 4 << 20;
/// The largest total of entries in a message, in bytes as counted by [`entry_size`]: above any
/// leader's setting.
pub const MESSAGE_BYTES_MAX: usize = 32 << 20;
/// The largest context, in bytes.
pub const CONTEXT_BYTES_MAX: usize = 256;
/// The largest chunk of a snapshot, in bytes.
pub const CHUNK_BYTES_MAX: usize = 1 << 20;
/// The largest number of members, learners included.
pub const MEMBERS_MAX: usize = 64;

/// The content of a [`PacketSent`](crate::member::PacketSent).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Packet {
    /// A Raft message.
    Raft(Message),
    /// A chunk of a snapshot.
    Chunk(Chunk),
    /// The progress of a snapshot at its receiver.
    Received(Received),
}

/// The kind of a Raft message. Local messages and forwarded proposals have none, because they are
/// never sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MessageKind {
    /// Entries from the leader.
    Append,
    /// The answer to `Append`.
    Appended,
    /// A candidate requests a vote.
    Vote,
    /// The answer to `Vote`.
    Voted,
    /// The leader is alive.
    Heartbeat,
    /// The answer to `Heartbeat`.
    HeartbeatHeard,
    /// The leader hands over: start an election at once.
    TimeoutNow,
    /// A follower requests the index from which it may read.
    ReadIndex,
    /// The answer to `ReadIndex`.
    ReadIndexIs,
    /// A candidate asks whether it would get the vote, before it starts an election.
    PreVote,
    /// The answer to `PreVote`.
    PreVoted,
}

/// A Raft message. The meaning of a field depends on the kind, as in the raft crate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// Its kind.
    pub kind: MessageKind,
    /// The receiver.
    pub to: u64,
    /// The sender.
    pub from: u64,
    /// The sender's term; 0 only in a `ReadIndex`.
    pub term: u64,
    /// The term of the entry at `index`.
    pub log_term: u64,
    /// The entry before `entries`, or the last entry concerned.
    pub index: u64,
    /// Entries, without gaps.
    pub entries: Vec<Entry>,
    /// The sender's commit index.
    pub commit: u64,
    /// The term of that entry; 0 if not given.
    pub commit_term: u64,
    /// Whether the answer is negative.
    pub reject: bool,
    /// An index at which the logs may agree.
    pub reject_hint: u64,
    /// Matches an answer to its request.
    #[serde(with = "runtime::wire::codec::octets")]
    pub context: Vec<u8>,
}

#[cfg(test)]
impl Message {
    /// A message without entries, whose other fields are zero.
    pub(crate) fn plain(kind: MessageKind, from: u64, to: u64, term: u64) -> Self {
        Self {
            kind,
            to,
            from,
            term,
            log_term: 0,
            index: 0,
            entries: Vec::new(),
            commit: 0,
            commit_term: 0,
            reject: false,
            reject_hint: 0,
            context: Vec::new(),
        }
    }
}

/// Identifies a snapshot. Equal heads mean equal content from any sender.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotHead {
    /// The last index that it contains.
    pub index: u64,
    /// The term of that entry.
    pub term: u64,
    /// The members at that index.
    pub members: Members,
    /// The length of the content in bytes.
    pub total: u64,
    /// The crc32c of the content.
    pub crc: u32,
}

/// A chunk of a snapshot's content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chunk {
    /// The leader's term.
    pub leader_term: u64,
    /// The snapshot.
    pub head: SnapshotHead,
    /// The offset of `data` in the content.
    pub offset: u64,
    /// The bytes; empty only for a snapshot without content.
    #[serde(with = "runtime::wire::codec::octets")]
    pub data: Vec<u8>,
}

/// The number of contiguous bytes received of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Received {
    /// The snapshot's last index.
    pub index: u64,
    /// The term of that entry.
    pub term: u64,
    /// The crc32c of its content.
    pub crc: u32,
    /// Bytes received.
    pub bytes: u64,
    /// Whether the receiver rejects the snapshot, or received it damaged: the sender stops.
    pub refused: bool,
}

/// Why a packet was rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// A field has an invalid value.
    #[error("{field} is {found}, expected {expected}")]
    Field {
        /// The field.
        field: &'static str,
        /// Its value.
        found: u64,
        /// The valid values.
        expected: &'static str,
    },
    /// The message contradicts this member's state.
    #[error("{kind:?} from {from} contradicts the log here: {reason}")]
    Contradiction {
        /// The kind of the message.
        kind: MessageKind,
        /// The sender.
        from: u64,
        /// The contradiction.
        reason: &'static str,
    },
    /// The message proves that this member has lost acknowledged entries: its leader commits an
    /// entry for it that it acknowledged in this leader's term and does not have.
    #[error(
        "the log here ends at entry {last}, but this member acknowledged entry {acknowledged} to its leader, member {leader}: this \
         directory is out of date, for example because an old copy was put back. Move it away, remove this member and add it \
         again: its peers send it everything (meros masters remove, meros masters add)"
    )]
    Forgotten {
        /// The leader that sent the message.
        leader: u64,
        /// The index that this member had acknowledged.
        acknowledged: u64,
        /// The last index of its log.
        last: u64,
    },
    /// The message is not applicable now. A correct peer may send it after a change that it has not
    /// yet received.
    #[error("{kind:?} from {from} is not applicable: {reason}")]
    Useless {
        /// The kind of the message.
        kind: MessageKind,
        /// The sender.
        from: u64,
        /// The reason.
        reason: &'static str,
    },
}

impl Refused {
    fn field(field: &'static str, found: u64, expected: &'static str) -> Self {
        Self::Field {
            field,
            found,
            expected,
        }
    }
}

fn check_max(field: &'static str, found: u64, max: usize) -> Result<(), Refused> {
    if found > max as u64 {
        return Err(Refused::field(field, found, "no more than its bound"));
    }
    Ok(())
}

fn number(field: &'static str, found: u64) -> Result<(), Refused> {
    if found > NUMBER_MAX {
        return Err(Refused::field(field, found, "at most 2^62"));
    }
    Ok(())
}

fn above_zero(field: &'static str, found: u64) -> Result<(), Refused> {
    if found == 0 {
        return Err(Refused::field(field, found, "a number above 0"));
    }
    number(field, found)
}

impl Packet {
    /// Checks all fields of a packet from this peer to this member.
    pub fn check(&self, from: u64, me: u64) -> Result<(), Refused> {
        above_zero("peer", from)?;
        if from == me {
            return Err(Refused::field("peer", from, "another member than this one"));
        }
        match self {
            Self::Raft(message) => message.check(from, me),
            Self::Chunk(chunk) => chunk.check(),
            Self::Received(received) => received.check(),
        }
    }

    /// The approximate size on the wire, in bytes.
    pub fn size(&self) -> usize {
        match self {
            Self::Raft(message) => {
                message.entries.iter().map(entry_size).sum::<usize>() + message.context.len() + 48
            }
            Self::Chunk(chunk) => chunk.data.len() + 64,
            Self::Received(_) => 32,
        }
    }
}

/// The size of an entry, wherever entries are bounded by bytes.
pub fn entry_size(entry: &Entry) -> usize {
    entry.data.len() + entry.context.len() + 24
}

impl Message {
    fn check(&self, from: u64, me: u64) -> Result<(), Refused> {
        if self.from != from {
            return Err(Refused::field("from", self.from, "the peer who sent it"));
        }
        if self.to != me {
            return Err(Refused::field("to", self.to, "this member"));
        }
        if self.kind == MessageKind::ReadIndex {
            if self.term != 0 {
                return Err(Refused::field("term", self.term, "0 in a ReadIndex"));
            }
        } else {
            above_zero("term", self.term)?;
        }
        number("log_term", self.log_term)?;
        number("index", self.index)?;
        number("commit", self.commit)?;
        number("commit_term", self.commit_term)?;
        number("reject_hint", self.reject_hint)?;
        check_max("context", self.context.len() as u64, CONTEXT_BYTES_MAX)?;
        self.check_entries()
    }

    fn check_entries(&self) -> Result<(), Refused> {
        check_max("entries", self.entries.len() as u64, ENTRIES_MAX)?;
        let bytes = self.entries.iter().map(entry_size).sum::<usize>();
        check_max("bytes of entries", bytes as u64, MESSAGE_BYTES_MAX)?;
        for entry in &self.entries {
            check_max("entry data", entry.data.len() as u64, ENTRY_BYTES_MAX)?;
            check_max(
                "entry context",
                entry.context.len() as u64,
                CONTEXT_BYTES_MAX,
            )?;
        }
        match self.kind {
            MessageKind::Append => self.check_appended(),
            MessageKind::ReadIndex | MessageKind::ReadIndexIs => match &self.entries[..] {
                [only] if only.kind == EntryKind::Operation => Ok(()),
                other => Err(Refused::field(
                    "entries",
                    other.len() as u64,
                    "the one that names the read",
                )),
            },
            _ if self.entries.is_empty() => Ok(()),
            _ => Err(Refused::field(
                "entries",
                self.entries.len() as u64,
                "none in a message of this kind",
            )),
        }
    }

    /// Checks that entries follow `index` without gaps, and that terms never decrease or exceed the
    /// sender's.
    fn check_appended(&self) -> Result<(), Refused> {
        if (self.index == 0) != (self.log_term == 0) {
            return Err(Refused::field(
                "log_term",
                self.log_term,
                "0 exactly at index 0",
            ));
        }
        if self.log_term > self.term {
            return Err(Refused::field(
                "log_term",
                self.log_term,
                "at most the sender's term",
            ));
        }
        let (mut index, mut term) = (self.index, self.log_term);
        for entry in &self.entries {
            if entry.index != index + 1 {
                return Err(Refused::field(
                    "entry index",
                    entry.index,
                    "the one after the entry before it",
                ));
            }
            if entry.term < term || entry.term == 0 || entry.term > self.term {
                return Err(Refused::field(
                    "entry term",
                    entry.term,
                    "from the term before it to the sender's",
                ));
            }
            (index, term) = (entry.index, entry.term);
        }
        Ok(())
    }
}

impl Chunk {
    fn check(&self) -> Result<(), Refused> {
        above_zero("leader_term", self.leader_term)?;
        above_zero("snapshot index", self.head.index)?;
        above_zero("snapshot term", self.head.term)?;
        if self.head.term > self.leader_term {
            return Err(Refused::field(
                "snapshot term",
                self.head.term,
                "at most the leader's term",
            ));
        }
        number("total", self.head.total)?;
        number("offset", self.offset)?;
        check_max("chunk", self.data.len() as u64, CHUNK_BYTES_MAX)?;
        if self.offset + self.data.len() as u64 > self.head.total {
            return Err(Refused::field(
                "offset",
                self.offset,
                "a piece that ends within the total",
            ));
        }
        check_members(&self.head.members)
    }
}

impl Received {
    fn check(&self) -> Result<(), Refused> {
        above_zero("snapshot index", self.index)?;
        above_zero("snapshot term", self.term)?;
        number("bytes", self.bytes)
    }
}

/// Checks that this member list is valid: the raft crate panics on an invalid one.
pub fn check_members(members: &Members) -> Result<(), Refused> {
    let Members {
        voters,
        learners,
        voters_outgoing,
        learners_next,
        auto_leave,
    } = members;
    let all = [voters, learners, voters_outgoing, learners_next];
    check_max(
        "members",
        all.iter().map(|ids| ids.len() as u64).sum(),
        2 * MEMBERS_MAX,
    )?;
    if voters.is_empty() {
        return Err(Refused::field("voters", 0, "at least one"));
    }
    for ids in all {
        let mut seen = std::collections::BTreeSet::new();
        for id in ids {
            above_zero("member", *id)?;
            if !seen.insert(id) {
                return Err(Refused::field("member", *id, "each named once"));
            }
        }
    }
    for id in learners {
        if voters.contains(id) || voters_outgoing.contains(id) {
            return Err(Refused::field("learner", *id, "one who does not vote"));
        }
    }
    for id in learners_next {
        if !voters_outgoing.contains(id) || voters.contains(id) || learners.contains(id) {
            return Err(Refused::field(
                "next learner",
                *id,
                "one who votes until the change ends",
            ));
        }
    }
    if voters_outgoing.is_empty() && *auto_leave {
        return Err(Refused::field(
            "auto_leave",
            1,
            "0 while no change is under way",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
