//! Why a proposal, a read or a change was not taken in: each is a fork in the caller's road.

use super::membership::Unsafe;

/// Why something was not taken in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejected {
    /// Another member leads, or none does.
    #[error("this master does not lead; the leader is {}", leader.map_or("unknown".into(), |id| id.to_string()))]
    NotLeader {
        /// Who does, as far as this member knows.
        leader: Option<u64>,
    },
    /// The leadership is being handed over.
    #[error("the leadership is being handed over to {to}")]
    Transferring {
        /// To whom.
        to: u64,
    },
    /// Too much is on its way already: try again later.
    #[error(
        "{entries} operations of {bytes} bytes wait for a majority, at most {entries_max} of {bytes_max} may"
    )]
    Uncommitted {
        /// Proposed and not committed.
        entries: usize,
        /// Their bytes.
        bytes: usize,
        /// The bound.
        entries_max: usize,
        /// The bound of bytes.
        bytes_max: usize,
    },
    /// The disk is slow: try again later.
    #[error("{entries} operations of {bytes} bytes wait for this master's disk")]
    DiskBehind {
        /// Waiting operations.
        entries: usize,
        /// Their bytes.
        bytes: usize,
    },
    /// It will never fit.
    #[error("an operation of {bytes} bytes is too large, at most {max} are allowed")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The bound.
        max: usize,
    },
    /// It cannot be written and read again.
    #[error("the operation cannot be kept: {reason}")]
    Garbled {
        /// Why not.
        reason: String,
    },
    /// Too many reads wait.
    #[error("{0} reads wait already")]
    TooManyReads(usize),
    /// It waited longer than it may; there may be no leader.
    #[error("no answer in time: there may be no leader with a majority")]
    Late,
    /// It waited longer than it may: what was written last has not come back.
    #[error("this master's disk has not answered for {ticks} ticks")]
    DiskHangs {
        /// For how long.
        ticks: u64,
    },
    /// It was taken in, and leadership was lost before it was in the log.
    #[error("leadership was lost before it was written")]
    Dropped,
    /// The group would not survive it.
    #[error(transparent)]
    Unsafe(#[from] Unsafe),
    /// The leadership cannot be handed to this one.
    #[error("the leadership cannot be handed to {to}: {reason}")]
    CannotLead {
        /// To whom it was to go.
        to: u64,
        /// Why not.
        reason: &'static str,
    },
}
