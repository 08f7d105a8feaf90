//! A turn: the driver's next work, in order.
//!
//! Turns continue while a write is in progress: output that does not depend on unsynced data leaves
//! at once. So a slow disk delays no heartbeat, and a leader's entries reach the followers while
//! its own disk writes them.

use bytes::Bytes;
use raft::eraftpb::{Entry as RaftEntry, Message as RaftMessage, MessageType};

use super::transfer::Sender;
use super::unsynced::Unsynced;
use super::{Core, ReadId, Rejected, Role, RoleNow, status};
use super::{convert, convert::is_membership};
use crate::log::{HardState, Members, Snapshot, Write};
use crate::wire::{MessageKind, Packet};

/// The work of one turn, in the order of the fields.
#[derive(Debug, Default)]
pub struct Turn {
    /// The argument of [`Core::persisted`].
    pub number: u64,
    /// Packets by receiver; they may be sent at once, in this order. Packets that wait for a write
    /// come in a turn after it.
    pub packets: Vec<(u64, Packet)>,
    /// The data to write and sync; then call [`Core::persisted`]. No other turn has a write before
    /// that. If it fails, stop.
    pub write: Option<Write>,
    /// The state machine must be replaced by this snapshot, which is synced.
    pub restore: Option<Snapshot>,
    /// Entries to apply in this order. Synced by a majority and by this member.
    pub committed: Vec<Committed>,
    /// Reads to run once the index is applied, or rejections.
    pub reads: Vec<(ReadId, Result<u64, Rejected>)>,
    /// Accepted operations that never reached the log, by their contexts.
    pub dropped: Vec<(Vec<u8>, Rejected)>,
    /// The role and leader, if they changed.
    pub role: Option<RoleNow>,
    /// A peer needs a snapshot newer than the present one: take one now, whatever the policy.
    pub snapshot_wanted: bool,
}

/// A committed entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Committed {
    /// An operation for the state machine.
    Operation {
        /// Its index.
        index: u64,
        /// The leader's term.
        term: u64,
        /// The proposer's context.
        context: Bytes,
        /// The proposed data.
        data: Bytes,
    },
    /// The members have changed.
    Members {
        /// Its index.
        index: u64,
        /// The leader's term.
        term: u64,
        /// The proposer's context; empty when a joint change has ended by itself.
        context: Vec<u8>,
        /// The new members.
        members: Members,
    },
    /// No effect: a new leader's first entry, or an invalid change of members.
    Nothing {
        /// Its index.
        index: u64,
        /// The leader's term.
        term: u64,
    },
}

impl Committed {
    /// Its index and term.
    pub fn position(&self) -> (u64, u64) {
        match self {
            Self::Operation { index, term, .. }
            | Self::Members { index, term, .. }
            | Self::Nothing { index, term } => (*index, *term),
        }
    }
}

/// State kept between turns.
#[derive(Default)]
pub(crate) struct Stash {
    pub packets: Vec<(u64, Packet)>,
    pub reads: Vec<(ReadId, Result<u64, Rejected>)>,
    pub dropped: Vec<(Vec<u8>, Rejected)>,
    pub committed: Vec<Committed>,
    pub restore: Option<Snapshot>,
    pub seen: Option<RoleNow>,
    /// Index and term of the last entry that was handed out, and the members there.
    pub handed: (u64, u64),
    pub handed_members: Members,
    number: u64,
    /// The write in progress and the number of its turn.
    outstanding: Option<(u64, Unsynced)>,
    /// The tick at which it began.
    written_at: u64,
    /// The next write.
    gathered: Option<Unsynced>,
    /// The synced term, vote and commit index.
    durable: HardState,
}

impl Stash {
    pub fn starting(snapshot: &Snapshot, durable: HardState) -> Self {
        Self {
            handed: (snapshot.index, snapshot.term),
            handed_members: snapshot.members.clone(),
            durable,
            ..Self::default()
        }
    }

    fn unsynced(&self) -> impl Iterator<Item = &Unsynced> {
        let outstanding = self.outstanding.iter().map(|(_, write)| write);
        outstanding.chain(&self.gathered)
    }

    /// The index of an unsynced snapshot that will replace the log.
    pub fn coming_snapshot(&self) -> Option<u64> {
        let snapshots = self.unsynced().filter_map(|write| write.snapshot.as_ref());
        snapshots.map(|snapshot| snapshot.index).max()
    }

    /// Whether no unsynced write changes the log.
    pub fn log_is_on_disk(&self) -> bool {
        self.unsynced().all(|write| !write.changes_log)
    }

    /// Whether a write is in progress.
    pub fn is_writing(&self) -> bool {
        self.outstanding.is_some()
    }

    /// The tick at which the write in progress began.
    pub fn written_at(&self) -> Option<u64> {
        self.is_writing().then_some(self.written_at)
    }

    /// The synced term.
    pub fn durable_term(&self) -> u64 {
        self.durable.term
    }

    /// The number and bytes of the entries that wait for the write in progress.
    pub fn waiting(&self) -> (usize, usize) {
        self.gathered.as_ref().map_or((0, 0), Unsynced::waiting)
    }

    /// The newest unsynced write. Output that depends on it depends on all of them.
    fn last_write(&mut self) -> Option<&mut Unsynced> {
        let outstanding = self.outstanding.as_mut().map(|(_, write)| write);
        self.gathered.as_mut().or(outstanding)
    }

    /// The committed entries that wait for a write: later ones must queue behind them.
    fn deferred(&mut self) -> Option<&mut Vec<RaftEntry>> {
        let outstanding = self.outstanding.as_mut().map(|(_, write)| write);
        let last_first = [self.gathered.as_mut(), outstanding];
        let mut deferred = last_first
            .into_iter()
            .flatten()
            .map(|write| &mut write.deferred);
        deferred.find(|deferred| !deferred.is_empty())
    }
}

impl Core {
    /// The next work, if any.
    pub fn turn(&mut self) -> Option<Turn> {
        if self.may_feed() {
            self.feed();
        }
        self.ask_reads();
        let mut turn = Turn::default();
        turn.packets.append(&mut self.stash.packets);
        if self.raw.has_ready() {
            self.take_ready(&mut turn);
            self.follow_role();
        }
        for (peer, sender) in &mut self.senders {
            let chunks = sender.pump(self.now, &self.settings).into_iter();
            turn.packets
                .extend(chunks.map(|chunk| (*peer, Packet::Chunk(chunk))));
        }
        self.unstash(&mut turn);
        let now = status::role_now(&self.raw.raft);
        if self.reported_role != Some(now) {
            self.reported_role = Some(now);
            turn.role = Some(now);
        }
        turn.snapshot_wanted = self.raw.store().take_wanted();
        let next = match self.stash.outstanding {
            Some(_) => None,
            None => self.stash.gathered.take(),
        };
        if turn.is_empty() && next.is_none() {
            return None;
        }
        self.stash.number += 1;
        turn.number = self.stash.number;
        if let Some(mut next) = next {
            turn.write = Some(next.write(self.hard, std::mem::take(&mut self.hard_changed)));
            self.stash.outstanding = Some((turn.number, next));
            self.stash.written_at = self.now;
        }
        Some(turn)
    }

    fn unstash(&mut self, turn: &mut Turn) {
        turn.reads.append(&mut self.stash.reads);
        turn.dropped.append(&mut self.stash.dropped);
        turn.restore = self.stash.restore.take();
        if let Some(snapshot) = &turn.restore {
            self.stash.handed = (snapshot.index, snapshot.term);
            self.stash.handed_members = snapshot.members.clone();
        }
        turn.committed = std::mem::take(&mut self.stash.committed);
        for committed in &turn.committed {
            self.stash.handed = committed.position();
            if let Committed::Members { members, .. } = committed {
                self.stash.handed_members = members.clone();
            }
        }
    }

    fn take_ready(&mut self, turn: &mut Turn) {
        let mut ready = self.raw.ready();
        let leads = self.raw.raft.state == raft::StateRole::Leader;
        let mut messages = ready.take_messages();
        messages.extend(ready.take_persisted_messages());
        if let Some(hard) = ready.hs() {
            self.hard = convert::hard_from_raft(hard);
            self.hard_changed = true;
        }
        for state in ready.take_read_states() {
            let asked = self.reads.asked_at(&state.request_ctx);
            asked
                .filter(|_| leads)
                .into_iter()
                .for_each(|asked| self.lease.confirm(asked));
            let answered = self.reads.answered(&state.request_ctx).into_iter();
            self.stash
                .reads
                .extend(answered.map(|id| (id, Ok(state.index))));
        }
        let committed = ready.take_committed_entries();
        let snapshot = match ready.snapshot().is_empty() {
            true => None,
            false => self.whole.take(),
        };
        if let Some(snapshot) = &snapshot {
            self.raw.mut_store().restore(snapshot.clone());
        }
        let entries = ready.take_entries();
        self.raw.mut_store().append(&entries);
        let (must, number) = (ready.must_sync(), ready.number());
        // All data of the ready is in memory, so raft may continue; only output that depends on
        // `must_sync` waits.
        self.raw.advance_append_async(ready);
        debug_assert!(!leads || snapshot.is_none(), "a leader takes no snapshot");
        let unknown =
            |entry: &RaftEntry| is_membership(entry) && entry.index > self.stash.durable.commit;
        let defer = committed.iter().any(unknown);
        if must || defer {
            let gathered = self.stash.gathered.get_or_insert_default();
            gathered.add(number, snapshot, entries);
            if defer {
                // Queue behind the entries that wait for the write in progress, which is synced
                // earlier.
                gathered.deferred.extend(committed);
            } else {
                self.apply_in_order(committed);
            }
        } else {
            self.apply_in_order(committed);
        }
        let packets = self.pack(messages);
        let (hard, durable) = (self.hard, self.stash.durable);
        let Some(write) = self.stash.last_write() else {
            self.raw.on_persist_ready(number);
            turn.packets.extend(packets);
            return;
        };
        // A leader's packets need no sync except that of its own vote. A follower may send
        // heartbeat answers and requests.
        let known = (hard.term, hard.vote) == (durable.term, durable.vote);
        for (to, packet) in packets {
            match known && (leads || promises_nothing(&packet)) {
                true => turn.packets.push((to, packet)),
                false => write.packets.push((to, packet)),
            }
        }
    }

    fn apply_in_order(&mut self, committed: Vec<RaftEntry>) {
        match self.stash.deferred() {
            Some(deferred) => deferred.extend(committed),
            None => self.apply(committed),
        }
    }

    /// The write of this turn is synced.
    pub fn persisted(&mut self, turn: u64) {
        let Some((_, done)) = self
            .stash
            .outstanding
            .take_if(|(number, _)| *number == turn)
        else {
            return;
        };
        self.raw.on_persist_ready(done.ready);
        self.stash.durable = done.hard;
        self.stash.packets.extend(done.packets);
        if let Some(snapshot) = done.snapshot {
            self.raw.advance_apply_to(snapshot.index);
            self.members = snapshot.members.clone();
            self.stash.committed.clear();
            self.stash.restore = Some(snapshot);
        }
        self.apply(done.deferred);
        self.follow_role();
    }

    /// Converts messages and groups them by receiver. Snapshots become transfers.
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

/// Whether a follower may send this before its disk is synced: apart from the term it contains no
/// state that could be lost.
fn promises_nothing(packet: &Packet) -> bool {
    let Packet::Raft(message) = packet else {
        return true;
    };
    matches!(
        message.kind,
        MessageKind::HeartbeatHeard | MessageKind::ReadIndex
    )
}

impl Turn {
    fn is_empty(&self) -> bool {
        self.packets.is_empty()
            && self.write.is_none()
            && self.restore.is_none()
            && self.committed.is_empty()
            && self.reads.is_empty()
            && self.dropped.is_empty()
            && self.role.is_none()
            && !self.snapshot_wanted
    }
}
