//! Settings of the core, read and checked once.

use crate::wire::{CHUNK_BYTES_MAX, ENTRY_BYTES_MAX};

/// Settings with their costs. All times are in ticks; the driver defines the length of a tick.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// A follower without a leader's message for this time, up to twice as long, starts an
    /// election. Default 10. Fewer: a busy machine causes elections; a slow disk does not. More: a
    /// longer gap when the leader dies. A leader whose disk hangs hands over after ten times this.
    pub election_ticks: usize,
    /// The interval of the leader's heartbeats. Default 2.
    pub heartbeat_ticks: usize,
    /// The largest total of entries in a message, in bytes. Default 1 MiB.
    pub message_bytes_max: u64,
    /// The most unacknowledged messages with entries to one follower. Default 256.
    pub inflight_max: usize,
    /// The largest operation, in bytes. Default 1 MiB.
    pub operation_bytes_max: usize,
    /// The most uncommitted entries. Default 65,536.
    pub uncommitted_entries_max: usize,
    /// The most uncommitted bytes. Default 64 MiB.
    pub uncommitted_bytes_max: usize,
    /// The most entries that wait for the write in progress. Default 16,384: with a slow disk
    /// proposals are rejected.
    pub waiting_entries_max: usize,
    /// The most bytes that wait for it. Default 16 MiB.
    pub waiting_bytes_max: usize,
    /// The largest total of committed entries in one turn, in bytes. Default 8 MiB.
    pub turn_bytes_max: u64,
    /// The most waiting reads. Default 65,536.
    pub reads_max: usize,
    /// The time limit of a read. Default 100.
    pub read_ticks_max: u64,
    /// Whether reads are answered from the leader's lease without asking the others, for about half
    /// an election timeout after a majority has answered a read. Default false; must be equal on
    /// all members. Correct only while no member's clock runs 1.5 times as fast as another's, and
    /// the leader's ticks do not continue through a pause of its process or machine: a leader that
    /// was paused (SIGSTOP, live migration) may answer from outdated state. Another cost: a member
    /// that has just started votes for none for an election timeout.
    pub lease_reads: bool,
    /// The most missing entries of a learner that may be promoted. Default 1,000.
    pub promote_lag_max: u64,
    /// The time since its last message within which a member counts as alive. Default 20.
    pub alive_ticks: u64,
    /// The largest snapshot accepted from a leader, in bytes. Default 1 GiB.
    pub snapshot_bytes_max: u64,
    /// Bytes per chunk of a snapshot. Default 256 KiB.
    pub chunk_bytes: usize,
    /// Unacknowledged chunks at once. Default 8.
    pub chunk_window: usize,
    /// The time without an acknowledgement after which chunks are sent again. Default 4.
    pub chunk_resend_ticks: u64,
    /// The time without progress after which a transfer has failed. Default 60.
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

/// An invalid setting.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} is {found}, expected {expected}")]
pub struct InvalidSetting {
    /// The setting.
    pub field: &'static str,
    /// Its value.
    pub found: u64,
    /// The accepted values.
    pub expected: &'static str,
}

impl Settings {
    /// Checks all settings.
    pub fn check(&self) -> Result<(), InvalidSetting> {
        let sound = |field, found: u64, fine: bool, expected| match fine {
            true => Ok(()),
            false => Err(InvalidSetting {
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
