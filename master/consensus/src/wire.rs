//! What one member says to another: our own mirror of raft's messages, and the pieces of a snapshot.
//!
//! Nothing of raft's own encoding ever crosses a wire. What came from a peer is believed only after [`Packet::check`];
//! what it may then still do to this member's state is judged by the core, which knows that state.

use serde::{Deserialize, Serialize};

use crate::log::{Entry, EntryKind, Members};

/// No term, index or count that a peer names may be above this: so that adding to it never overflows.
pub const NUMBER_MAX: u64 = 1 << 62;
/// The most entries of one message.
pub const ENTRIES_MAX: usize = 1 << 20;
/// The most bytes of one entry's data.
pub const ENTRY_BYTES_MAX: usize = 4 << 20;
/// The most bytes of all entries of one message, as [`entry_size`] counts them: more than any setting lets a leader send.
pub const MESSAGE_BYTES_MAX: usize = 32 << 20;
/// The most bytes of a context.
pub const CONTEXT_BYTES_MAX: usize = 256;
/// The most bytes of one piece of a snapshot.
pub const CHUNK_BYTES_MAX: usize = 1 << 20;
/// The most members of a group, learners included.
pub const MEMBERS_MAX: usize = 64;

/// Something for one peer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Packet {
    /// A message of raft.
    Raft(Message),
    /// A piece of a snapshot.
    Chunk(Chunk),
    /// How much of a snapshot has arrived.
    Received(Received),
}

/// What a message of raft is about. What a member only says to itself has no kind, and neither has a forwarded proposal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MessageKind {
    /// Entries from the leader.
    Append,
    /// Whether they fitted.
    Appended,
    /// A candidate asks for a vote.
    Vote,
    /// Whether it gets it.
    Voted,
    /// The leader is alive.
    Heartbeat,
    /// A follower is, too.
    HeartbeatHeard,
    /// Be a candidate at once: the leader hands over.
    TimeoutNow,
    /// A follower asks from which index on it may read.
    ReadIndex,
    /// From this one on.
    ReadIndexIs,
    /// Would you vote for me, if I were a candidate?
    PreVote,
    /// Whether it would.
    PreVoted,
}

/// A message of raft, field by field. What a field means depends on the kind, as in raft's own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// What it is about.
    pub kind: MessageKind,
    /// For whom it is.
    pub to: u64,
    /// Who says it.
    pub from: u64,
    /// The sender's term; 0 only in a `ReadIndex`.
    pub term: u64,
    /// The term of the entry at `index`.
    pub log_term: u64,
    /// The entry before `entries`, or the last one that is meant.
    pub index: u64,
    /// Entries, without a gap.
    pub entries: Vec<Entry>,
    /// What the sender knows to be committed.
    pub commit: u64,
    /// The term of that entry; 0 where it is not told.
    pub commit_term: u64,
    /// Whether the answer is no.
    pub reject: bool,
    /// Where the leader should look for agreement instead.
    pub reject_hint: u64,
    /// What an answer is matched by.
    #[serde(with = "runtime::codec::octets")]
    pub context: Vec<u8>,
}

/// Which snapshot is meant. Equal heads are equal content, whoever sends it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotHead {
    /// The last index that is in it.
    pub index: u64,
    /// That entry's term.
    pub term: u64,
    /// The members at that index.
    pub members: Members,
    /// Bytes of content.
    pub total: u64,
    /// crc32c of the content.
    pub crc: u32,
}

/// A piece of a snapshot's content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chunk {
    /// The leader's term.
    pub leader_term: u64,
    /// Of which snapshot.
    pub head: SnapshotHead,
    /// Where it belongs.
    pub offset: u64,
    /// The bytes; none only in a snapshot without content.
    #[serde(with = "runtime::codec::octets")]
    pub data: Vec<u8>,
}

/// So many bytes of this snapshot are here, from the first one on without a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Received {
    /// Which snapshot: its last index.
    pub index: u64,
    /// That entry's term.
    pub term: u64,
    /// Its content's crc32c.
    pub crc: u32,
    /// Bytes that are here.
    pub bytes: u64,
    /// The receiver does not want it, or it arrived damaged: give up.
    pub refused: bool,
}

/// Why a packet was not believed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// A field holds what it never may.
    #[error("{field} is {found}, expected {expected}")]
    Field {
        /// Which field.
        field: &'static str,
        /// What it holds.
        found: u64,
        /// What it may hold.
        expected: &'static str,
    },
    /// It contradicts what this member knows to be so.
    #[error("{kind:?} from {from} contradicts the log here: {reason}")]
    Contradiction {
        /// What was said.
        kind: MessageKind,
        /// By whom.
        from: u64,
        /// What is contradicted.
        reason: &'static str,
    },
    /// It proves that this member has forgotten what it had promised: its leader commits for it what it has acknowledged in that
    /// leader's own term, and it does not have that.
    #[error(
        "the log here ends at entry {last}, but its leader, member {leader}, knows that it had acknowledged entry {acknowledged}: this \
         directory is older than what was promised from it, as after an old copy was put back. Move it away, remove this member and add it \
         again: its peers send it everything (meros masters remove, meros masters add)"
    )]
    Forgotten {
        /// Who knows it.
        leader: u64,
        /// What had been acknowledged.
        acknowledged: u64,
        /// What there is.
        last: u64,
    },
    /// It makes no sense at this time; a correct peer may say so after a change it has not heard of.
    #[error("{kind:?} from {from} is of no use: {reason}")]
    Useless {
        /// What was said.
        kind: MessageKind,
        /// By whom.
        from: u64,
        /// Why not.
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

fn below(field: &'static str, found: u64, max: usize) -> Result<(), Refused> {
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
    /// Whether a packet from this peer to this member says only what can be.
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

    /// About how many bytes it takes on the wire.
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

/// What an entry counts for, wherever bytes of entries are bounded.
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
        below("context", self.context.len() as u64, CONTEXT_BYTES_MAX)?;
        self.check_entries()
    }

    fn check_entries(&self) -> Result<(), Refused> {
        below("entries", self.entries.len() as u64, ENTRIES_MAX)?;
        let bytes = self.entries.iter().map(entry_size).sum::<usize>();
        below("bytes of entries", bytes as u64, MESSAGE_BYTES_MAX)?;
        for entry in &self.entries {
            below("entry data", entry.data.len() as u64, ENTRY_BYTES_MAX)?;
            below(
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

    /// Entries follow `index` without a gap, and no term is lower than the one before it or above the sender's.
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
        below("chunk", self.data.len() as u64, CHUNK_BYTES_MAX)?;
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

/// Whether these could be a group's members: raft falls over what could not.
pub fn check_members(members: &Members) -> Result<(), Refused> {
    let Members {
        voters,
        learners,
        voters_outgoing,
        learners_next,
        auto_leave,
    } = members;
    let all = [voters, learners, voters_outgoing, learners_next];
    below(
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
