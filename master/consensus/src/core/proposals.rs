//! Local requests: operations, reads, changes of members.

use bytes::Bytes;
use raft::StateRole;
use raft::eraftpb::{Entry as RaftEntry, Message as RaftMessage, MessageType};

use super::membership::{self, MembershipChange};
use super::{Core, ReadId, Rejected};

/// The number of proposals from which on they no longer wait for the write in progress.
const BATCH: usize = 256;

impl Core {
    /// Proposes an operation. `Ok` only means accepted: it is committed once a turn returns it with
    /// its context.
    pub fn propose(&mut self, context: Vec<u8>, data: Vec<u8>) -> Result<(), Rejected> {
        self.may_propose()?;
        let bytes = data.len() + context.len();
        let max = self.settings.operation_bytes_max;
        if data.len() > max || context.len() > crate::wire::CONTEXT_BYTES_MAX {
            return Err(Rejected::TooLarge { bytes, max });
        }
        let (waiting, waiting_bytes) = (self.proposals.len(), self.proposals_bytes);
        let (gathered, gathered_bytes) = self.stash.waiting();
        let (behind, behind_bytes) = (waiting + gathered, waiting_bytes + gathered_bytes);
        if behind >= self.settings.waiting_entries_max
            || behind_bytes + bytes > self.settings.waiting_bytes_max
        {
            return Err(Rejected::DiskBehind {
                entries: behind,
                bytes: behind_bytes,
            });
        }
        let (raft, log) = (&self.raw.raft, &self.raw.raft.raft_log);
        let entries = log.last_index().saturating_sub(log.committed) as usize + waiting;
        let uncommitted = raft.uncommitted_size() + waiting_bytes;
        let (entries_max, bytes_max) = (
            self.settings.uncommitted_entries_max,
            self.settings.uncommitted_bytes_max,
        );
        if entries >= entries_max || uncommitted + bytes > bytes_max {
            return Err(Rejected::Uncommitted {
                entries,
                bytes: uncommitted,
                entries_max,
                bytes_max,
            });
        }
        self.proposals.push(RaftEntry {
            data: Bytes::from(data),
            context: Bytes::from(context),
            ..RaftEntry::default()
        });
        self.proposals_bytes += bytes;
        Ok(())
    }

    pub(super) fn may_propose(&self) -> Result<(), Rejected> {
        let raft = &self.raw.raft;
        if raft.state != StateRole::Leader {
            return Err(Rejected::NotLeader {
                leader: Some(raft.leader_id).filter(|id| *id != 0),
            });
        }
        match raft.lead_transferee {
            Some(to) => Err(Rejected::Transferring { to }),
            None => Ok(()),
        }
    }

    /// Whether the proposals enter the log now. Those that arrive during a write can only be
    /// answered after the next one, so they wait to become one proposal and one packet per
    /// follower; but at most a tick, and not if many are waiting.
    pub(super) fn may_feed(&mut self) -> bool {
        let due = std::mem::take(&mut self.proposals_due);
        due || !self.stash.is_writing() || self.proposals.len() >= BATCH
    }

    /// Makes one raft proposal of all waiting ones.
    pub(super) fn feed(&mut self) {
        if self.proposals.is_empty() {
            return;
        }
        let entries = std::mem::take(&mut self.proposals);
        self.proposals_bytes = 0;
        let contexts: Vec<Bytes> = entries.iter().map(|entry| entry.context.clone()).collect();
        let mut message = RaftMessage::default();
        message.set_msg_type(MessageType::MsgPropose);
        message.from = self.me;
        message.set_entries(entries.into());
        let taken = self
            .may_propose()
            .and_then(|()| self.raw.raft.step(message).map_err(|_| Rejected::Dropped));
        self.broadcast_commit_index = self.raw.raft.raft_log.committed;
        if let Err(rejected) = taken {
            let dropped = contexts
                .into_iter()
                .map(|context| (context.to_vec(), rejected.clone()));
            self.stash.dropped.extend(dropped);
        }
    }

    /// Requests the index from which this member sees everything committed before now, as leader or
    /// follower. A turn returns the index or a rejection.
    pub fn read(&mut self) -> Result<ReadId, Rejected> {
        if self.reads.count() >= self.settings.reads_max {
            return Err(Rejected::TooManyReads(self.reads.count()));
        }
        Ok(self.reads.add(self.now))
    }

    pub(super) fn ask_reads(&mut self) {
        let raft = &self.raw.raft;
        let able = match raft.state {
            StateRole::Leader => raft.commit_to_current_term(),
            _ => raft.leader_id != 0,
        };
        if able && raft.state == StateRole::Leader && self.lease.holds(self.now) {
            let committed = raft.raft_log.committed;
            let answered = self.reads.take_waiting().into_iter();
            let answered = answered.map(|id| (id, Ok(committed)));
            return self.stash.reads.extend(answered);
        }
        if able && let Some(context) = self.reads.ask(self.now) {
            self.raw.read_index(context);
        }
    }

    /// Proposes a change of members, if it is safe. It is done when a turn returns
    /// [`Committed::Members`](super::Committed::Members) with this context.
    pub fn change(&mut self, context: Vec<u8>, change: &MembershipChange) -> Result<(), Rejected> {
        self.may_propose()?;
        let change = membership::check(change, &self.view(), context)?;
        self.feed();
        let encoded = change.encode();
        let proposed = match change.to_simple() {
            Some(simple) => self.raw.propose_conf_change(encoded, simple),
            None => self.raw.propose_conf_change(encoded, change.to_raft()),
        };
        proposed.map_err(|_| Rejected::Dropped)
    }
}
