//! What a replica tells its driver: what is to be done, what became of proposals, and why it cannot go on.

use runtime::codec::Garbled;

use super::Ticket;
use crate::core::{ReadId, Rejected, RoleNow};
use crate::log::{LogError, Members, Snapshot, Write};
use crate::machine::CannotRestore;
use crate::wire::Packet;

/// When snapshots are taken, and how patient proposers are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// A snapshot is taken after so many entries, on some members up to three eighths earlier. Default 20,000. Fewer: more writing. More: a
    /// longer start.
    pub snapshot_entries: u64,
    /// Or after so many bytes of operations, and as much earlier. Default 64 MiB.
    pub snapshot_bytes: u64,
    /// So many entries before the snapshot are kept for followers that are a little behind. Default 5,000; up to four times
    /// as many for one that is alive and needs them.
    pub keep_entries: u64,
    /// A proposal that was neither applied nor lost after so many ticks is answered with [`Failed::Unknown`]. Default 200.
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
    /// The same for this member: neighbours take their snapshots at different times, so that not all disks are busy with one at once.
    pub(super) fn of_member(mut self, id: u64) -> Self {
        let earlier = |most: u64| most - most / 8 * (id % 4);
        self.snapshot_entries = earlier(self.snapshot_entries);
        self.snapshot_bytes = earlier(self.snapshot_bytes);
        self
    }
}

/// What became of a proposal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Done<A> {
    /// It was applied now.
    Applied {
        /// Its place in the log.
        index: u64,
        /// What the state machine said.
        answer: A,
    },
    /// It had been applied before; it was proposed more than once.
    Before {
        /// Where it was applied.
        index: u64,
    },
    /// The members are these now.
    Members {
        /// Its place in the log.
        index: u64,
        /// All of them.
        members: Members,
    },
}

/// Why a proposal has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failed {
    /// It was not applied and never will be: it may be proposed again, here or elsewhere.
    #[error("it was lost when the leadership changed")]
    Lost,
    /// It may have been applied, or may still be: ask the state, or propose it again under the same ticket.
    #[error("it is not known whether it was applied")]
    Unknown,
    /// It never came into the log.
    #[error(transparent)]
    Rejected(#[from] Rejected),
}

/// This member cannot go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Stop {
    /// What was kept is not as it was written.
    #[error(transparent)]
    Log(#[from] LogError),
    /// A snapshot is of a kind this version does not know.
    #[error(transparent)]
    Restore(#[from] CannotRestore),
    /// An operation is of a kind this version does not know: members of a newer version lead. To go on without it would be to
    /// differ from them.
    #[error(
        "operation {index} of the log is not understood, is this master older than its peers? {reason}"
    )]
    Operation {
        /// Its place.
        index: u64,
        /// What is wrong with it.
        reason: String,
    },
}

/// A snapshot to be kept: give both to [`LogStore::compact`](crate::log::LogStore::compact), and then to [`Replica::compacted`](super::Replica::compacted).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compaction {
    /// The state.
    pub snapshot: Snapshot,
    /// The oldest entry to be kept.
    pub keep_from: u64,
}

/// What is to be done: send `packets`, then write and sync, and tell [`Replica::persisted`](super::Replica::persisted). The rest may be told at any time.
#[derive(Debug)]
pub struct Step<A> {
    /// Known by this when it is persisted.
    pub number: u64,
    /// For a peer each; may leave at once.
    pub packets: Vec<(u64, Packet)>,
    /// To be written and synced; no other step has one until it is. If it fails, stop.
    pub write: Option<Write>,
    /// What became of proposals.
    pub answers: Vec<(Ticket, Result<Done<A>, Failed>)>,
    /// Reads that may be carried out on the machine now, or are refused.
    pub reads: Vec<(ReadId, Result<u64, Rejected>)>,
    /// The machine has begun again from a leader's snapshot.
    pub restored: bool,
    /// The members have changed.
    pub members: Option<Members>,
    /// Who leads has changed.
    pub role: Option<RoleNow>,
    /// A snapshot to be kept, before the write of any later step.
    pub compaction: Option<Compaction>,
    /// A snapshot was due, and the machine could not be written. The log goes on growing.
    pub not_kept: Option<Garbled>,
}
