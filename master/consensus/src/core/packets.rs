//! Packets from peers, and the snapshot transfers that they drive.

use raft::SnapshotStatus;
use raft::StateRole;
use raft::eraftpb::{Message as RaftMessage, MessageType};

use super::transfer::TransferState;
use super::{Core, convert, guard, transfer};
use crate::log::Snapshot;
use crate::wire::{Chunk, MessageKind, Packet, Received, Refused};

impl Core {
    /// Handles a packet from a peer. A rejected packet has changed nothing.
    pub fn step(&mut self, from: u64, packet: Packet) -> Result<(), Refused> {
        let result = self.take(from, packet);
        self.refused += u64::from(result.is_err());
        self.follow_role();
        result
    }

    fn take(&mut self, from: u64, packet: Packet) -> Result<(), Refused> {
        packet.check(from, self.me)?;
        if self.raw.raft.prs().get(from).is_some() {
            self.last_received.insert(from, self.now);
        }
        match packet {
            Packet::Raft(message) => {
                let asks = matches!(message.kind, MessageKind::Vote | MessageKind::PreVote);
                if asks && self.lease.forbids_votes(self.now) {
                    return Err(Refused::Useless {
                        kind: message.kind,
                        from,
                        reason: "this member has just started, and may still be bound by a lease",
                    });
                }
                let (settled, reads_max) = (self.settled(), self.settings.reads_max);
                guard::check(&self.raw.raft, &message, settled, reads_max)?;
                // The raft crate ignores useless messages, such as answers from removed members.
                let _ = self.raw.step(convert::message_to_raft(message));
                Ok(())
            }
            Packet::Chunk(chunk) => {
                self.take_chunk(from, chunk);
                Ok(())
            }
            Packet::Received(received) => {
                self.take_received(from, received);
                Ok(())
            }
        }
    }

    fn take_chunk(&mut self, from: u64, chunk: Chunk) {
        let raft = &self.raw.raft;
        let term = chunk.leader_term;
        let received = if term < raft.term || (term == raft.term && raft.state == StateRole::Leader)
        {
            transfer::answer(&chunk.head, 0, true)
        } else if raft.raft_log.committed >= chunk.head.index {
            transfer::answer(&chunk.head, chunk.head.total, false)
        } else {
            let (received, whole) = self.receiver.take(chunk, self.now, &self.settings);
            if let Some(snapshot) = whole {
                self.take_whole(from, term, snapshot);
            }
            received
        };
        self.stash.packets.push((from, Packet::Received(received)));
    }

    /// A snapshot has arrived completely; only now it is passed to raft.
    fn take_whole(&mut self, from: u64, term: u64, snapshot: Snapshot) {
        let mut message = RaftMessage::default();
        message.set_msg_type(MessageType::MsgSnapshot);
        (message.from, message.to, message.term) = (from, self.me, term);
        let metadata = message.mut_snapshot().mut_metadata();
        (metadata.index, metadata.term) = (snapshot.index, snapshot.term);
        metadata.set_conf_state(convert::members_to_raft(&snapshot.members));
        let _ = self.raw.step(message);
        let pending = self.raw.snap().map(|pending| pending.get_metadata().index);
        if pending == Some(snapshot.index) {
            self.whole = Some(snapshot);
        }
    }

    fn take_received(&mut self, from: u64, received: Received) {
        let Some(sender) = self.senders.get_mut(&from) else {
            return;
        };
        match sender.handle(&received, self.now) {
            TransferState::Underway => {}
            TransferState::Done => self.end_transfer(from, SnapshotStatus::Finish),
            TransferState::Failed => self.end_transfer(from, SnapshotStatus::Failure),
        }
    }

    pub(super) fn end_transfer(&mut self, peer: u64, status: SnapshotStatus) {
        self.senders.remove(&peer);
        self.raw.report_snapshot(peer, status);
    }

    /// Packets to this peer may be lost: its connection broke, or its queue is full.
    pub fn unreachable(&mut self, peer: u64) {
        self.raw.report_unreachable(peer);
        if let Some(sender) = self.senders.get_mut(&peer) {
            sender.unsent(self.now);
        }
    }
}
