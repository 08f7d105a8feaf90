//! What the core does with committed entries before it hands them out, and how snapshots of the result come back to it.

use bytes::Bytes;
use raft::StateRole;
use raft::eraftpb::Entry as RaftEntry;

use super::Core;
use super::convert::{Change, is_membership, members_from_raft};
use super::turn::Committed;
use crate::log::Snapshot;

impl Core {
    /// Changes of members take effect here; everything is handed out with the next turn.
    pub(super) fn apply(&mut self, entries: Vec<RaftEntry>) {
        // Superseded by a snapshot that came while they waited for the disk.
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
            // What raft refuses is refused alike by all members, since all apply it to the same ones.
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
            // raft would go on, and fall over its own missing progress.
            let term = raft.term;
            raft.become_follower(term, 0);
        }
        self.heard
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

    /// The state machine's content after everything handed out so far, at this index: as a snapshot, to be given to
    /// [`LogStore::compact`](crate::log::LogStore::compact) and then to [`Core::compacted`]. None if the index is another.
    pub fn snapshot(&self, index: u64, data: Bytes) -> Option<Snapshot> {
        let (handed, term) = self.stash.handed;
        // While a leader's snapshot is on its way to the disk, an older one of our own is of no use.
        let overtaken = self.raw.snap().is_some() || self.stash.coming_snapshot().is_some();
        let newer = handed == index && index > self.raw.store().latest().index && !overtaken;
        newer.then(|| Snapshot {
            index,
            term,
            members: self.stash.handed_members.clone(),
            data,
        })
    }

    /// This snapshot is on the disk, and entries before `keep_from` are not.
    pub fn compacted(&mut self, snapshot: Snapshot, keep_from: u64) {
        self.raw.mut_store().compact(snapshot, keep_from);
    }

    /// The newest snapshot, with its content.
    pub fn latest_snapshot(&self) -> &Snapshot {
        self.raw.store().latest()
    }

    /// Bytes of entries that are kept in memory, those not on the disk yet aside.
    pub fn log_bytes(&self) -> u64 {
        self.raw.store().bytes()
    }

    #[cfg(test)]
    pub(crate) fn last_term(&self) -> u64 {
        self.raw.raft.raft_log.last_term()
    }
}
