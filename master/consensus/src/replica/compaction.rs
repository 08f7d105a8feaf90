//! Compaction of the log: when a snapshot is taken, and which entries are retained beside it.

use super::{Policy, Replica, Step, seen};
use crate::core::Status;
use crate::log::Snapshot;
use crate::machine::StateMachine;

/// A snapshot to store. Pass both to [`LogStore::compact`](crate::log::LogStore::compact), then to
/// [`Replica::compacted`](super::Replica::compacted).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compaction {
    /// The state.
    pub snapshot: Snapshot,
    /// The oldest entry to retain.
    pub keep_from: u64,
}

impl<M: StateMachine> Replica<M> {
    /// A compaction is synced.
    pub fn compacted(&mut self, done: Compaction) {
        self.compacting = false;
        self.core.compacted(done.snapshot, done.keep_from);
    }

    pub(super) fn compaction(&mut self, step: &mut Step<M::Answer>) -> Option<Compaction> {
        let index = self.applied.0;
        let newest = self.core.latest_snapshot().index.max(self.tried);
        let since = index.saturating_sub(newest);
        let due =
            since >= self.policy.snapshot_entries || self.bytes_since >= self.policy.snapshot_bytes;
        if self.compacting || since == 0 || !(due || self.wanted) {
            return None;
        }
        let data = match seen::pack(&self.seen, |into| self.machine.snapshot_into(into)) {
            Ok(data) => data,
            Err(garbled) => {
                // No data is lost, because the log holds it all. The next attempt is after the same
                // amount of new entries.
                (self.tried, self.wanted, self.bytes_since) = (index, false, 0);
                step.snapshot_error = Some(garbled);
                return None;
            }
        };
        let snapshot = self.core.snapshot(index, data)?;
        (self.compacting, self.wanted, self.bytes_since) = (true, false, 0);
        Some(Compaction {
            keep_from: keep_from(&self.policy, &self.core.status(), index),
            snapshot,
        })
    }
}

/// The maximum silence of a follower, in ticks, for which entries are retained.
const SILENCE_MAX_TICKS: u64 = 20;

/// The oldest entry to retain beside a snapshot at this index.
fn keep_from(policy: &Policy, status: &Status, index: u64) -> u64 {
    let usual = (index + 1).saturating_sub(policy.keep_entries);
    let most = (index + 1).saturating_sub(policy.keep_entries.saturating_mul(4));
    let alive = status
        .peers
        .values()
        .filter(|peer| peer.silent.is_some_and(|ticks| ticks < SILENCE_MAX_TICKS));
    let needed = alive
        .map(|peer| peer.matched + 1)
        .filter(|needed| *needed >= most)
        .min();
    needed.unwrap_or(usual).min(usual).max(1)
}
