//! The member under attack.

use rand::SeedableRng as _;
use rand::rngs::SmallRng;

use super::packets::{Draft, Event};
use crate::core::{Core, Settings, bootstrap};
use crate::log::{Entry, EntryKind, Identity, Loaded, Members};
use crate::wire::{Chunk, Message, MessageKind, Packet, Received, SnapshotHead};

pub(super) fn plain(kind: MessageKind, from: u64, term: u64) -> Message {
    Message::plain(kind, from, 1, term)
}

pub(super) struct Victim {
    pub(super) core: Core,
    /// The turn whose write is under way.
    writing: Option<u64>,
}

impl Victim {
    pub(super) fn new(voters: Vec<u64>, learners: Vec<u64>) -> Self {
        let members = Members {
            voters,
            learners,
            ..Members::default()
        };
        let write = bootstrap(members, b"state".to_vec().into());
        let loaded = Loaded {
            identity: None,
            hard: write.hard.unwrap(),
            snapshot: write.snapshot.unwrap(),
            entries: Vec::new(),
        };
        Self::loaded(loaded).unwrap()
    }

    pub(super) fn loaded(loaded: Loaded) -> Option<Self> {
        let identity = Identity { id: 1, group: 9 };
        let core = Core::new(
            Settings::default(),
            identity,
            loaded,
            SmallRng::seed_from_u64(4),
        )
        .ok()?;
        Some(Self {
            core,
            writing: None,
        })
    }

    pub(super) fn receive(&mut self, draft: Draft) {
        let status = self.core.status();
        let term = draft.term.to(status.now.term);
        let index = draft.index.to(status.last);
        let log_term = draft.log_term.to(status.now.term);
        let entries = draft
            .entries
            .into_iter()
            .enumerate()
            .map(|(nth, (kind, above, data))| Entry {
                term: log_term.max(1).saturating_add_signed(above),
                index: index
                    .saturating_add(1 + nth as u64)
                    .saturating_add_signed(draft.gap),
                kind: [
                    EntryKind::Membership,
                    EntryKind::JointMembership,
                    EntryKind::Operation,
                ][usize::from(kind.min(2))],
                data,
                context: Vec::new(),
            });
        let mut entries: Vec<Entry> = entries.collect();
        if !matches!(
            draft.kind,
            MessageKind::Append | MessageKind::ReadIndex | MessageKind::ReadIndexIs
        ) {
            entries.clear();
        }
        let message = Message {
            to: draft.to.to(1),
            log_term,
            index,
            entries,
            commit: draft.commit.to(status.committed),
            commit_term: draft.commit_term.to(status.now.term),
            reject: draft.reject,
            reject_hint: draft.hint.to(status.last),
            context: draft.context,
            ..plain(draft.kind, draft.from, term)
        };
        let _ = self.core.step(draft.from, Packet::Raft(message));
    }

    pub(super) fn happen(&mut self, event: Event) {
        let status = self.core.status();
        let term = status.now.term;
        match event {
            Event::Receive(draft) => self.receive(*draft),
            Event::Chunk(from, leader_term, index, snapshot_term, members, whole) => {
                let data = vec![5; 40];
                let head = SnapshotHead {
                    index: index.to(status.last),
                    term: snapshot_term.to(term),
                    members,
                    total: if whole { 40 } else { 90 },
                    crc: crc32c::crc32c(&data),
                };
                let chunk = Chunk {
                    leader_term: leader_term.to(term),
                    head,
                    offset: 0,
                    data,
                };
                let _ = self.core.step(from, Packet::Chunk(chunk));
            }
            Event::Received(from, index, snapshot_term, bytes, refused) => {
                let received = Received {
                    index: index.to(status.snapshot),
                    term: snapshot_term.to(term),
                    crc: 3,
                    bytes,
                    refused,
                };
                let _ = self.core.step(from, Packet::Received(received));
            }
            Event::Ticks(count) => (0..count).for_each(|_| self.core.tick()),
            Event::Propose => {
                let _ = self.core.propose(vec![1; 24], vec![2; 10]);
            }
            Event::Read => {
                let _ = self.core.read();
            }
            Event::Change(change) => {
                let _ = self.core.change(Vec::new(), &change);
            }
            Event::Transfer(to) => {
                let _ = self.core.transfer(to);
            }
            Event::Unreachable(peer) => self.core.unreachable(peer),
            Event::Turn => {
                self.turn();
            }
            Event::Persisted => self.persisted(),
            Event::Snapshot(keep) => {
                if let Some(snapshot) = self.core.snapshot(status.applied, vec![1, 2, 3].into()) {
                    self.core
                        .compacted(snapshot, status.applied.saturating_sub(keep));
                }
            }
            Event::Elect => {
                for kind in [MessageKind::PreVoted, MessageKind::Voted] {
                    for from in 2..6 {
                        let term =
                            self.core.status().now.term + u64::from(kind == MessageKind::PreVoted);
                        let _ = self.core.step(from, Packet::Raft(plain(kind, from, term)));
                    }
                    self.settle();
                }
            }
            Event::Follow(from, above, data) => {
                let last_term = self.core.last_term();
                let term = term.max(last_term).max(1) + above;
                let entry = Entry {
                    term,
                    index: status.last + 1,
                    kind: EntryKind::JointMembership,
                    data,
                    context: Vec::new(),
                };
                let append = Message {
                    log_term: last_term,
                    index: status.last,
                    entries: vec![entry],
                    commit: status.last + above,
                    ..plain(MessageKind::Append, from, term)
                };
                let _ = self.core.step(from, Packet::Raft(append));
            }
            Event::HandOver(from) => {
                let _ = self.core.step(
                    from,
                    Packet::Raft(plain(MessageKind::TimeoutNow, from, term)),
                );
            }
            Event::Accept(from) => {
                let accepted = Message {
                    index: status.last,
                    ..plain(MessageKind::Appended, from, term)
                };
                let _ = self.core.step(from, Packet::Raft(accepted));
            }
        }
    }

    /// Takes a turn. Returns whether there was any work.
    pub(super) fn turn(&mut self) -> bool {
        let Some(turn) = self.core.turn() else {
            return false;
        };
        if turn.write.is_some() {
            assert_eq!(self.writing, None, "one write at a time");
            self.writing = Some(turn.number);
        }
        true
    }

    pub(super) fn persisted(&mut self) {
        if let Some(number) = self.writing.take() {
            self.core.persisted(number);
        }
    }

    pub(super) fn settle(&mut self) {
        for _ in 0..20 {
            self.persisted();
            if !self.turn() && self.writing.is_none() {
                return;
            }
        }
    }
}
