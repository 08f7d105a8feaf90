//! Why a proposal, a read or a change was rejected, one variant per reaction of the caller.

use super::membership::Unsafe;

/// Why a request was rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejected {
    /// Another member leads, or none.
    #[error("this master does not lead; the leader is {}", leader.map_or("unknown".into(), |id| id.to_string()))]
    NotLeader {
        /// The leader, if known.
        leader: Option<u64>,
    },
    /// The leadership is being transferred.
    #[error("the leadership is being handed over to {to}")]
    Transferring {
        /// The new leader.
        to: u64,
    },
    /// Too many operations are pending: retry later.
    #[error(
        "{entries} operations of {bytes} bytes wait for a majority, at most {entries_max} of {bytes_max} may"
    )]
    Uncommitted {
        /// The uncommitted operations.
        entries: usize,
        /// Their bytes.
        bytes: usize,
        /// The bound on operations.
        entries_max: usize,
        /// The bound on bytes.
        bytes_max: usize,
    },
    /// The disk is slow: retry later.
    #[error("{entries} operations of {bytes} bytes wait for this master's disk")]
    DiskBehind {
        /// Waiting operations.
        entries: usize,
        /// Their bytes.
        bytes: usize,
    },
    /// The operation is too large.
    #[error("an operation of {bytes} bytes is too large, at most {max} are allowed")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The bound.
        max: usize,
    },
    /// The operation does not survive encoding and decoding.
    #[error("the operation cannot be kept: {reason}")]
    Garbled {
        /// The cause.
        reason: String,
    },
    /// Too many reads wait.
    #[error("{0} reads wait already")]
    TooManyReads(usize),
    /// The time limit has passed; there may be no leader.
    #[error("no answer in time: there may be no leader with a majority")]
    Late,
    /// The time limit has passed, because the write in progress does not end.
    #[error("this master's disk has not answered for {ticks} ticks")]
    DiskHangs {
        /// The duration in ticks.
        ticks: u64,
    },
    /// It was accepted, but leadership was lost before it reached the log.
    #[error("leadership was lost before it was written")]
    Dropped,
    /// The change of members is unsafe.
    #[error(transparent)]
    Unsafe(#[from] Unsafe),
    /// The leadership cannot be transferred to this member.
    #[error("the leadership cannot be handed to {to}: {reason}")]
    CannotLead {
        /// The member.
        to: u64,
        /// The cause.
        reason: &'static str,
    },
}
