//! Handling of committed entries before they are handed out, and of the snapshots that result.

use bytes::Bytes;
use raft::StateRole;
use raft::eraftpb::Entry as RaftEntry;

use super::Core;
use super::convert::{Change, is_membership, members_from_raft};
use super::turn::Committed;
use crate::log::Snapshot;

impl Core {
    /// Applies changes of members; the next turn hands out all entries.
    pub(super) fn apply(&mut self, entries: Vec<RaftEntry>) {
        // A snapshot that arrived while they waited for the disk supersedes earlier ones.
        let done = self.raw.raft.raft_log.applied;
        let unstable = self.raw.snap();
        let unstable = unstable.map(|snapshot| snapshot.get_metadata().index);
        let pending = unstable.max(self.stash.coming_snapshot()).unwrap_or(0);
        let mut last = None;
        for entry in entries
            .into_iter()
            .filter(|entry| entry.index > done.max(pending))
        {
            let (index, term) = (entry.index, entry.term);
            let committed = if is_membership(&entry) {
                self.apply_change(&entry)
            } else if entry.data.is_empty() && entry.context.is_empty() {
                Committed::Nothing { index, term }
            } else {
                Committed::Operation {
                    index,
                    term,
                    context: entry.context,
                    data: entry.data,
                }
            };
            self.stash.committed.push(committed);
            last = Some(index);
        }
        if let Some(index) = last {
            self.raw.advance_apply_to(index);
        }
    }

    fn apply_change(&mut self, entry: &RaftEntry) -> Committed {
        let (index, term) = (entry.index, entry.term);
        let applied = Change::decode(&entry.context).and_then(|change| {
            // All members reject the same changes, because all apply them to the same members.
            let state = self.raw.apply_conf_change(&change.to_raft()).ok()?;
            Some((change.context, members_from_raft(&state)))
        });
        let Some((context, members)) = applied else {
            return Committed::Nothing { index, term };
        };
        self.members = members.clone();
        self.lease.end();
        let raft = &mut self.raw.raft;
        if !raft.promotable() && raft.state != StateRole::Follower {
            // The raft crate would continue, and panic on its own missing progress.
            let term = raft.term;
            raft.become_follower(term, 0);
        }
        self.last_received
            .retain(|id, _| self.raw.raft.prs().get(*id).is_some());
        self.senders
            .retain(|id, _| self.raw.raft.prs().get(*id).is_some());
        Committed::Members {
            index,
            term,
            context,
            members,
        }
    }

    /// A snapshot of the state machine after all entries handed out so far, for
    /// [`LogStore::compact`](crate::log::LogStore::compact) and then [`Core::compacted`]. None if
    /// `index` is not the last one.
    pub fn snapshot(&self, index: u64, data: Bytes) -> Option<Snapshot> {
        let (handed, term) = self.stash.handed;
        // While a leader's snapshot is being written, an older one of our own is useless.
        let overtaken = self.raw.snap().is_some() || self.stash.coming_snapshot().is_some();
        let newer = handed == index && index > self.raw.store().latest().index && !overtaken;
        newer.then(|| Snapshot {
            index,
            term,
            members: self.stash.handed_members.clone(),
            data,
        })
    }

    /// This snapshot is synced, and the entries before `keep_from` are deleted from the disk.
    pub fn compacted(&mut self, snapshot: Snapshot, keep_from: u64) {
        self.raw.mut_store().compact(snapshot, keep_from);
    }

    /// The newest snapshot, with its content.
    pub fn latest_snapshot(&self) -> &Snapshot {
        self.raw.store().latest()
    }

    /// The bytes of the log in memory, without unsynced entries.
    pub fn log_bytes(&self) -> u64 {
        self.raw.store().bytes()
    }

    #[cfg(test)]
    pub(crate) fn last_term(&self) -> u64 {
        self.raw.raft.raft_log.last_term()
    }
}
