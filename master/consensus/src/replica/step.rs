//! The output of a replica for its driver: work, results of proposals, and fatal errors.

use runtime::wire::codec::Garbled;

use super::{Compaction, Ticket};
use crate::core::{ReadId, Rejected, RoleNow};
use crate::log::{LogError, Members, Write};
use crate::machine::CannotRestore;
use crate::wire::Packet;

/// When snapshots are taken, and time limits of proposals.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The number of entries between snapshots, on some members up to three eighths fewer. Default
    /// 20,000. Fewer: more writes. More: a longer start.
    pub snapshot_entries: u64,
    /// The bytes of operations between snapshots, with the same reduction. Default 64 MiB.
    pub snapshot_bytes: u64,
    /// The number of entries retained before the snapshot for followers that lag a little. Default
    /// 5,000; up to four times as many for a live follower that needs them.
    pub keep_entries: u64,
    /// The time limit of a proposal in ticks; afterwards it ends with [`Failed::Unknown`]. Default
    /// 200.
    pub answer_ticks_max: u64,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            snapshot_entries: 20_000,
            snapshot_bytes: 64 << 20,
            keep_entries: 5_000,
            answer_ticks_max: 200,
        }
    }
}

impl Policy {
    /// The policy of this member: members take snapshots at different times, so that not all disks
    /// are busy at once.
    pub(super) fn of_member(mut self, id: u64) -> Self {
        let earlier = |most: u64| most - most / 8 * (id % 4);
        self.snapshot_entries = earlier(self.snapshot_entries);
        self.snapshot_bytes = earlier(self.snapshot_bytes);
        self
    }
}

/// The result of a proposal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Done<A> {
    /// Applied now.
    Applied {
        /// Its index in the log.
        index: u64,
        /// The state machine's answer.
        answer: A,
    },
    /// Applied before; it was proposed more than once.
    Before {
        /// The index at which it was applied.
        index: u64,
    },
    /// The members changed.
    Members {
        /// Its index in the log.
        index: u64,
        /// The new members.
        members: Members,
    },
}

/// Why a proposal has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failed {
    /// Not applied, and never will be: it may be proposed again, here or elsewhere.
    #[error("it was lost when the leadership changed")]
    Lost,
    /// It may have been applied, or may be later: read the state, or propose it again under the
    /// same ticket.
    #[error("it is not known whether it was applied")]
    Unknown,
    /// It was not added to the log.
    #[error(transparent)]
    Rejected(#[from] Rejected),
}

/// A fatal error of this member.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Stop {
    /// The stored log is damaged or not readable.
    #[error(transparent)]
    Log(#[from] LogError),
    /// A snapshot has an unknown format.
    #[error(transparent)]
    Restore(#[from] CannotRestore),
    /// An operation has an unknown format, because members of a newer version lead. Skipping it
    /// would make this member's state diverge.
    #[error(
        "operation {index} of the log is not understood, is this master older than its peers? {reason}"
    )]
    Operation {
        /// Its index.
        index: u64,
        /// The cause.
        reason: String,
    },
}

/// The driver's next work: send `packets`, write and sync, then call
/// [`Replica::persisted`](super::Replica::persisted). The other parts may be handled at any time.
#[derive(Debug)]
pub struct Step<A> {
    /// The argument of `persisted`.
    pub number: u64,
    /// Packets by receiver; they may be sent at once.
    pub packets: Vec<(u64, Packet)>,
    /// The data to write and sync. No other step has a write before this one is synced. If it
    /// fails, stop.
    pub write: Option<Write>,
    /// The results of proposals.
    pub answers: Vec<(Ticket, Result<Done<A>, Failed>)>,
    /// Reads that may run on the machine now, or are rejected.
    pub reads: Vec<(ReadId, Result<u64, Rejected>)>,
    /// Whether the machine was replaced by a leader's snapshot.
    pub restored: bool,
    /// The members, if they changed.
    pub members: Option<Members>,
    /// The role and leader, if they changed.
    pub role: Option<RoleNow>,
    /// A snapshot to store before the write of any later step.
    pub compaction: Option<Compaction>,
    /// The error, if a snapshot was due and the machine could not be encoded. The log keeps
    /// growing.
    pub snapshot_error: Option<Garbled>,
}
