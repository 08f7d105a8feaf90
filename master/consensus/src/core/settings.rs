//! How a member behaves: read and checked once.

use crate::wire::{CHUNK_BYTES_MAX, ENTRY_BYTES_MAX};

/// The price of each choice is beside it. All times are in ticks; whoever drives the core decides how long one is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// A follower that heard nothing for so long, and up to twice as long, asks for votes. Default 10. Fewer: a busy
    /// machine causes elections; a slow disk does not. More: a longer gap when the leader dies. A leader whose disk hangs hands over after ten times as long.
    pub election_ticks: usize,
    /// The leader says so often that it is alive. Default 2.
    pub heartbeat_ticks: usize,
    /// Bytes of entries per message. Default 1 MiB.
    pub message_bytes_max: u64,
    /// Messages with entries on their way to one follower. Default 256.
    pub inflight_max: usize,
    /// The largest operation, in bytes. Default 1 MiB.
    pub operation_bytes_max: usize,
    /// Entries proposed and not yet committed. Default 65,536.
    pub uncommitted_entries_max: usize,
    /// Bytes proposed and not yet committed. Default 64 MiB.
    pub uncommitted_bytes_max: usize,
    /// Entries that wait while a write is on its way to the disk. Default 16,384: with a slow disk proposals are rejected.
    pub waiting_entries_max: usize,
    /// Bytes that wait for it. Default 16 MiB.
    pub waiting_bytes_max: usize,
    /// Bytes of committed entries handed out in one turn. Default 8 MiB.
    pub turn_bytes_max: u64,
    /// Reads that wait for an answer. Default 65,536.
    pub reads_max: usize,
    /// A read that has no answer is refused after so long. Default 100.
    pub read_ticks_max: u64,
    /// Answer reads from the leader's lease, without asking the others: for half an election timeout or so after a majority
    /// has answered one. Default no; all members must be told the same. It is right only while no clock that drives the ticks of a
    /// member runs half as fast again as another's, and the leader's process or machine does not stand still
    /// without its ticks standing still too: a leader that was paused (SIGSTOP, a migrated machine) may answer
    /// from a state that a newer leader has already changed. The price beside that: a member that has just started votes for nobody for an
    /// election timeout.
    pub lease_reads: bool,
    /// A learner is promoted only if it lacks at most so many entries. Default 1,000.
    pub promote_lag_max: u64,
    /// A member that was heard within so long counts as alive. Default 20.
    pub alive_ticks: u64,
    /// The largest snapshot taken from a leader, in bytes. Default 1 GiB.
    pub snapshot_bytes_max: u64,
    /// Bytes per piece of a snapshot. Default 256 KiB.
    pub chunk_bytes: usize,
    /// Pieces on their way at once. Default 8.
    pub chunk_window: usize,
    /// Pieces are sent again when nothing was acknowledged for so long. Default 4.
    pub chunk_resend_ticks: u64,
    /// A transfer without any progress for so long has failed. Default 60.
    pub transfer_ticks_max: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            election_ticks: 10,
            heartbeat_ticks: 2,
            message_bytes_max: 1 << 20,
            inflight_max: 256,
            operation_bytes_max: 1 << 20,
            uncommitted_entries_max: 1 << 16,
            uncommitted_bytes_max: 64 << 20,
            waiting_entries_max: 1 << 14,
            waiting_bytes_max: 16 << 20,
            turn_bytes_max: 8 << 20,
            reads_max: 1 << 16,
            read_ticks_max: 100,
            lease_reads: false,
            promote_lag_max: 1_000,
            alive_ticks: 20,
            snapshot_bytes_max: 1 << 30,
            chunk_bytes: 256 << 10,
            chunk_window: 8,
            chunk_resend_ticks: 4,
            transfer_ticks_max: 60,
        }
    }
}

/// A setting that would do harm.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} is {found}, expected {expected}")]
pub struct Harmful {
    /// Which one.
    pub field: &'static str,
    /// What it was set to.
    pub found: u64,
    /// What is harmless.
    pub expected: &'static str,
}

impl Settings {
    /// Whether a group can live with them.
    pub fn check(&self) -> Result<(), Harmful> {
        let sound = |field, found: u64, fine: bool, expected| match fine {
            true => Ok(()),
            false => Err(Harmful {
                field,
                found,
                expected,
            }),
        };
        let above_zero = |field, found: u64| sound(field, found, found > 0, "more than 0");
        above_zero("heartbeat_ticks", self.heartbeat_ticks as u64)?;
        let election = self.election_ticks;
        let fine = election > self.heartbeat_ticks && election <= 10_000;
        sound(
            "election_ticks",
            election as u64,
            fine,
            "more than heartbeat_ticks, at most 10,000",
        )?;
        let bytes = self.message_bytes_max;
        sound(
            "message_bytes_max",
            bytes,
            (1..=4 << 20).contains(&bytes),
            "from 1 to 4 MiB",
        )?;
        sound(
            "inflight_max",
            self.inflight_max as u64,
            (1..=1 << 16).contains(&self.inflight_max),
            "from 1 to 65,536",
        )?;
        let largest = self.operation_bytes_max;
        let fine = (1..=ENTRY_BYTES_MAX - 1024).contains(&largest)
            && largest <= self.uncommitted_bytes_max
            && largest <= self.waiting_bytes_max;
        sound(
            "operation_bytes_max",
            largest as u64,
            fine,
            "from 1 to just below 4 MiB, and no more than what may wait or be uncommitted",
        )?;
        let fine = self.uncommitted_bytes_max as u64 >= bytes;
        sound(
            "uncommitted_bytes_max",
            self.uncommitted_bytes_max as u64,
            fine,
            "at least message_bytes_max",
        )?;
        above_zero(
            "uncommitted_entries_max",
            self.uncommitted_entries_max as u64,
        )?;
        above_zero("waiting_entries_max", self.waiting_entries_max as u64)?;
        above_zero("turn_bytes_max", self.turn_bytes_max)?;
        above_zero("reads_max", self.reads_max as u64)?;
        above_zero("read_ticks_max", self.read_ticks_max)?;
        above_zero("alive_ticks", self.alive_ticks)?;
        let chunk = self.chunk_bytes;
        sound(
            "chunk_bytes",
            chunk as u64,
            (1..=CHUNK_BYTES_MAX).contains(&chunk),
            "from 1 to 1 MiB",
        )?;
        above_zero("chunk_window", self.chunk_window as u64)?;
        above_zero("chunk_resend_ticks", self.chunk_resend_ticks)?;
        let resend = self.chunk_resend_ticks;
        let stalled = self.transfer_ticks_max;
        sound(
            "transfer_ticks_max",
            stalled,
            stalled > resend,
            "more than chunk_resend_ticks",
        )
    }
}
