//! A turn: what a driver has to do, and in which order.

use bytes::Bytes;
use raft::eraftpb::{Entry as RaftEntry, Message as RaftMessage, MessageType};

use super::transfer::Sender;
use super::{Core, ReadId, Rejected, Role, RoleNow, status};
use super::{convert, convert::is_membership};
use crate::log::{Members, Snapshot, Write};
use crate::wire::Packet;

/// What is to be done, in the order of the fields.
#[derive(Debug, Default)]
pub struct Turn {
    /// Known by this when it is persisted.
    pub number: u64,
    /// For a peer each; may leave at once, in this order.
    pub now: Vec<(u64, Packet)>,
    /// To be written and synced, and then told to [`Core::persisted`]. Until then there is no other turn. If it fails, stop.
    pub write: Option<Write>,
    /// May leave only after that.
    pub after: Vec<(u64, Packet)>,
    /// The state machine begins again from this. It is on the disk.
    pub restore: Option<Snapshot>,
    /// To be applied in this order. They are on the disks of a majority, and on this one.
    pub committed: Vec<Committed>,
    /// Reads that were answered: to be carried out when the index is applied; or refused.
    pub reads: Vec<(ReadId, Result<u64, Rejected>)>,
    /// Operations, by their context, that had been taken in and never came into the log.
    pub dropped: Vec<(Vec<u8>, Rejected)>,
    /// Who leads has changed.
    pub role: Option<RoleNow>,
    /// A peer needs a snapshot that is newer than the one that is here: take one now, whatever the rule says.
    pub snapshot_wanted: bool,
}

/// An entry that is committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Committed {
    /// An operation for the state machine.
    Operation {
        /// Its place.
        index: u64,
        /// The leader's term.
        term: u64,
        /// What its proposer knows it by.
        context: Bytes,
        /// What was proposed.
        data: Bytes,
    },
    /// The members have changed.
    Members {
        /// Its place.
        index: u64,
        /// The leader's term.
        term: u64,
        /// What its proposer knows it by; empty when a joint change has ended by itself.
        context: Vec<u8>,
        /// The members from here on.
        members: Members,
    },
    /// Nothing: a new leader's first entry, or a change that was none.
    Nothing {
        /// Its place.
        index: u64,
        /// The leader's term.
        term: u64,
    },
}

impl Committed {
    /// Where it stands in the log, and in which term.
    pub fn place(&self) -> (u64, u64) {
        match self {
            Self::Operation { index, term, .. }
            | Self::Members { index, term, .. }
            | Self::Nothing { index, term } => (*index, *term),
        }
    }
}

/// What is kept between turns.
#[derive(Default)]
pub(crate) struct Stash {
    pub packets: Vec<(u64, Packet)>,
    pub reads: Vec<(ReadId, Result<u64, Rejected>)>,
    pub dropped: Vec<(Vec<u8>, Rejected)>,
    pub committed: Vec<Committed>,
    pub restore: Option<Snapshot>,
    pub seen: Option<RoleNow>,
    /// Index and term of what was handed out last, and the members there.
    pub handed: (u64, u64),
    pub handed_members: Members,
    number: u64,
    outstanding: Option<Outstanding>,
}

/// A write that is under way.
struct Outstanding {
    ready: u64,
    snapshot: Option<Snapshot>,
    /// Committed, and to be applied only when the disk knows that they are: a member that forgot a change of members could
    /// count votes by the old ones.
    deferred: Vec<RaftEntry>,
}

impl Stash {
    pub fn starting(snapshot: &Snapshot) -> Self {
        Self {
            handed: (snapshot.index, snapshot.term),
            handed_members: snapshot.members.clone(),
            ..Self::default()
        }
    }
}

impl Core {
    /// What is to be done now; `None` if nothing is, or while a write is under way.
    pub fn turn(&mut self) -> Option<Turn> {
        if self.stash.outstanding.is_some() {
            return None;
        }
        self.feed();
        self.ask_reads();
        let mut turn = Turn::default();
        if self.raw.has_ready() {
            self.take_ready(&mut turn);
            self.look();
        }
        for (peer, sender) in &mut self.senders {
            let chunks = sender.pump(self.now, &self.settings).into_iter();
            turn.now
                .extend(chunks.map(|chunk| (*peer, Packet::Chunk(chunk))));
        }
        self.unstash(&mut turn);
        let now = status::role_now(&self.raw.raft);
        if self.told != Some(now) {
            self.told = Some(now);
            turn.role = Some(now);
        }
        turn.snapshot_wanted = self.raw.store().take_wanted();
        if turn.is_empty() {
            return None;
        }
        self.stash.number += 1;
        turn.number = self.stash.number;
        Some(turn)
    }

    fn unstash(&mut self, turn: &mut Turn) {
        turn.now.append(&mut self.stash.packets);
        turn.reads.append(&mut self.stash.reads);
        turn.dropped.append(&mut self.stash.dropped);
        turn.restore = self.stash.restore.take();
        if let Some(snapshot) = &turn.restore {
            self.stash.handed = (snapshot.index, snapshot.term);
            self.stash.handed_members = snapshot.members.clone();
        }
        turn.committed = std::mem::take(&mut self.stash.committed);
        for committed in &turn.committed {
            self.stash.handed = committed.place();
            if let Committed::Members { members, .. } = committed {
                self.stash.handed_members = members.clone();
            }
        }
    }

    fn take_ready(&mut self, turn: &mut Turn) {
        let mut ready = self.raw.ready();
        let leads = self.raw.raft.state == raft::StateRole::Leader;
        let (now, after) = (ready.take_messages(), ready.take_persisted_messages());
        if let Some(hard) = ready.hs() {
            self.hard = convert::hard_from_raft(hard);
            self.hard_changed = true;
        }
        for state in ready.take_read_states() {
            let answered = self.reads.answered(&state.request_ctx).into_iter();
            self.stash
                .reads
                .extend(answered.map(|id| (id, Ok(state.index))));
        }
        let committed = ready.take_committed_entries();
        let members_change = committed.iter().any(is_membership);
        let snapshot = match ready.snapshot().is_empty() {
            true => None,
            false => self.whole.take(),
        };
        if let Some(snapshot) = &snapshot {
            self.raw.mut_store().restore(snapshot.clone());
        }
        let entries = ready.take_entries();
        self.raw.mut_store().append(&entries);
        let must = ready.must_sync() || (members_change && self.hard_changed);
        let number = ready.number();
        // Everything raft wants kept is in memory, so it may go on at once; only what it says had to be synced waits.
        self.raw.advance_append_async(ready);
        turn.now.extend(self.pack(now));
        let after = self.pack(after);
        if !must {
            turn.now.extend(after);
            self.raw.on_persist_ready(number);
            self.apply(committed);
            return;
        }
        turn.after = after;
        turn.write = Some(Write {
            snapshot: snapshot.clone(),
            entries: entries.iter().map(convert::entry_from_raft).collect(),
            hard: std::mem::take(&mut self.hard_changed).then_some(self.hard),
        });
        let deferred = match members_change {
            true => committed,
            false => {
                self.apply(committed);
                Vec::new()
            }
        };
        debug_assert!(!leads || snapshot.is_none(), "a leader takes no snapshot");
        self.stash.outstanding = Some(Outstanding {
            ready: number,
            snapshot,
            deferred,
        });
    }

    /// The write of this turn is on the disk.
    pub fn persisted(&mut self, turn: u64) {
        if turn != self.stash.number {
            return;
        }
        let Some(done) = self.stash.outstanding.take() else {
            return;
        };
        self.raw.on_persist_ready(done.ready);
        if let Some(snapshot) = done.snapshot {
            self.raw.advance_apply_to(snapshot.index);
            self.members = snapshot.members.clone();
            self.stash.committed.clear();
            self.stash.restore = Some(snapshot);
        }
        self.apply(done.deferred);
        self.look();
    }

    /// In our words, and for whom. Snapshots become transfers.
    fn pack(&mut self, messages: Vec<RaftMessage>) -> Vec<(u64, Packet)> {
        let mut packed = Vec::with_capacity(messages.len());
        for message in messages {
            if message.get_msg_type() == MessageType::MsgSnapshot {
                self.begin_transfer(message.to);
            } else if let Some(ours) = convert::message_from_raft(&message) {
                packed.push((message.to, Packet::Raft(ours)));
            }
        }
        packed
    }

    fn begin_transfer(&mut self, to: u64) {
        let now = status::role_now(&self.raw.raft);
        if now.role == Role::Leader {
            let sender = Sender::new(self.raw.store().latest(), now.term, self.now);
            self.senders.insert(to, sender);
        }
    }
}

impl Turn {
    fn is_empty(&self) -> bool {
        self.now.is_empty()
            && self.write.is_none()
            && self.after.is_empty()
            && self.restore.is_none()
            && self.committed.is_empty()
            && self.reads.is_empty()
            && self.dropped.is_empty()
            && self.role.is_none()
            && !self.snapshot_wanted
    }
}
