//! Raft, without I/O, clock or chance of its own: inputs go in, and a [`Turn`] says what is to be done.
//!
//! A driver feeds [`Core::tick`], [`Core::step`], [`Core::propose`] and the rest at any time, and then goes through turns: send what
//! may leave at once, write and sync, say [`Core::persisted`], send what had to wait, apply what is committed. All that was put in
//! between two turns is one write (group commit), and only one write is under way at a time. Remembers the log in memory.
//! Never waits, never reads a clock, and never lets raft see a message that it would fall over.

mod apply;
mod convert;
mod guard;
mod membership;
mod memory;
mod reads;
mod settings;
mod status;
mod transfer;
mod turn;

use std::collections::BTreeMap;

use bytes::Bytes;
use raft::eraftpb::{Entry as RaftEntry, Message as RaftMessage, MessageType};
use raft::{Config, RawNode, ReadOnlyOption, SnapshotStatus, StateRole};
use rand::Rng;
use rand::rngs::SmallRng;

use self::memory::Memory;
use self::reads::Reads;
use self::transfer::{Receiver, Sender, Standing};
use self::turn::Stash;
use crate::log::{HardState, Identity, Loaded, LogError, Members, Snapshot, Write};
use crate::wire::{Chunk, NUMBER_MAX, Packet, Received, Refused};

pub use self::membership::{GroupView, MembershipChange, PeerView, Unsafe};
pub use self::reads::ReadId;
pub use self::settings::{Harmful, Settings};
pub use self::status::{Peer, PeerState, Role, RoleNow, Status};
pub use self::turn::{Committed, Turn};

/// Why something was not taken in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejected {
    /// Another member leads, or none does.
    #[error("this master does not lead; the leader is {}", leader.map_or("unknown".into(), |id| id.to_string()))]
    NotLeader {
        /// Who does, as far as this member knows.
        leader: Option<u64>,
    },
    /// The leadership is being handed over.
    #[error("the leadership is being handed over to {to}")]
    Transferring {
        /// To whom.
        to: u64,
    },
    /// Too much is on its way already: try again later.
    #[error(
        "{entries} operations of {bytes} bytes wait for a majority, at most {entries_max} of {bytes_max} may"
    )]
    Uncommitted {
        /// Proposed and not committed.
        entries: usize,
        /// Their bytes.
        bytes: usize,
        /// The bound.
        entries_max: usize,
        /// The bound of bytes.
        bytes_max: usize,
    },
    /// The disk is slow: try again later.
    #[error("{entries} operations of {bytes} bytes wait for this master's disk")]
    DiskBehind {
        /// Waiting operations.
        entries: usize,
        /// Their bytes.
        bytes: usize,
    },
    /// It will never fit.
    #[error("an operation of {bytes} bytes is too large, at most {max} are allowed")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The bound.
        max: usize,
    },
    /// Too many reads wait.
    #[error("{0} reads wait already")]
    TooManyReads(usize),
    /// It waited longer than it may; there may be no leader.
    #[error("no answer in time: there may be no leader with a majority")]
    Late,
    /// It was taken in, and leadership was lost before it was in the log.
    #[error("leadership was lost before it was written")]
    Dropped,
    /// The group would not survive it.
    #[error(transparent)]
    Unsafe(#[from] Unsafe),
    /// The leadership cannot be handed to this one.
    #[error("the leadership cannot be handed to {to}: {reason}")]
    CannotLead {
        /// To whom it was to go.
        to: u64,
        /// Why not.
        reason: &'static str,
    },
}

/// One member's part in the group.
pub struct Core {
    me: u64,
    settings: Settings,
    raw: RawNode<Memory>,
    rng: SmallRng,
    now: u64,
    /// When each other member was heard last.
    heard: BTreeMap<u64, u64>,
    proposals: Vec<RaftEntry>,
    proposals_bytes: usize,
    reads: Reads,
    senders: BTreeMap<u64, Sender>,
    receiver: Receiver,
    /// Complete and stepped, not in a write yet.
    whole: Option<Snapshot>,
    members: Members,
    hard: HardState,
    hard_changed: bool,
    stash: Stash,
    told: Option<RoleNow>,
    refused: u64,
}

/// What every first member of a new group writes before it starts, so that all begin alike: the members, and the content that
/// the state machine begins with.
pub fn bootstrap(members: Members, data: Bytes) -> Write {
    Write {
        snapshot: Some(Snapshot {
            index: 1,
            term: 1,
            members,
            data,
        }),
        entries: Vec::new(),
        hard: Some(HardState {
            term: 1,
            vote: 0,
            commit: 1,
        }),
    }
}

impl Core {
    /// A member that goes on from what it had kept. What was loaded and contradicts itself is [`LogError::Damaged`]; settings
    /// are as [`Settings::check`] found them harmless.
    pub fn new(
        settings: Settings,
        identity: Identity,
        loaded: Loaded,
        mut rng: SmallRng,
    ) -> Result<Self, LogError> {
        let unfit = |reason: String| LogError::Damaged {
            place: "the start of raft".into(),
            reason,
        };
        settings.check().map_err(|error| unfit(error.to_string()))?;
        if identity.id == 0 || identity.id > NUMBER_MAX {
            return Err(unfit(format!(
                "a member's id is from 1 to 2^62, not {}",
                identity.id
            )));
        }
        if let Some(found) = loaded.identity.filter(|found| *found != identity) {
            return Err(LogError::Stranger { found });
        }
        let memory = Memory::new(loaded)?;
        let (members, applied) = (memory.latest().members.clone(), memory.latest().index);
        let stash = Stash::starting(memory.latest());
        let config = config(&settings, identity.id, applied);
        let logger = slog::Logger::root(slog::Discard, slog::o!());
        let raw =
            RawNode::new(&config, memory, &logger).map_err(|error| unfit(error.to_string()))?;
        let hard = convert::hard_from_raft(&raw.raft.hard_state());
        Ok(Self {
            me: identity.id,
            reads: Reads::new(identity.id, rng.random()),
            settings,
            raw,
            rng,
            now: 0,
            heard: BTreeMap::new(),
            proposals: Vec::new(),
            proposals_bytes: 0,
            senders: BTreeMap::new(),
            receiver: Receiver::default(),
            whole: None,
            members,
            hard,
            hard_changed: false,
            stash,
            told: None,
            refused: 0,
        })
    }

    /// One tick has passed.
    pub fn tick(&mut self) {
        self.now += 1;
        self.draw_timeout();
        let raft = &self.raw.raft;
        let due = raft.state != StateRole::Leader
            && raft.election_elapsed + 1 >= raft.randomized_election_timeout();
        // What is not on the disk must not win an election; the tick after the write will do.
        if !due || guard::settled(raft) {
            self.raw.tick();
        }
        let again = self.settings.election_ticks as u64;
        let given_up = self
            .reads
            .tick(self.now, again, self.settings.read_ticks_max);
        self.stash
            .reads
            .extend(given_up.into_iter().map(|id| (id, Err(Rejected::Late))));
        self.receiver.tick(self.now, &self.settings);
        let stalled = |sender: &Sender| sender.stalled(self.now, &self.settings);
        let failed: Vec<u64> = self
            .senders
            .iter()
            .filter(|(_, sender)| stalled(sender))
            .map(|(id, _)| *id)
            .collect();
        for peer in failed {
            self.end_transfer(peer, SnapshotStatus::Failure);
        }
        self.look();
    }

    /// raft draws election timeouts from the thread's own chance. They are drawn far above what is allowed here (see
    /// [`config`]), so one that raft has just drawn is known by its size, and gets a value from the seed before it is looked at.
    fn draw_timeout(&mut self) {
        let base = self.settings.election_ticks;
        if self.raw.raft.randomized_election_timeout() >= 2 * base {
            let drawn = self.rng.random_range(base..2 * base);
            self.raw.raft.set_randomized_election_timeout(drawn);
        }
    }

    /// A peer has said this. What is refused has changed nothing.
    pub fn step(&mut self, from: u64, packet: Packet) -> Result<(), Refused> {
        let result = self.take(from, packet);
        self.refused += u64::from(result.is_err());
        self.look();
        result
    }

    fn take(&mut self, from: u64, packet: Packet) -> Result<(), Refused> {
        packet.check(from, self.me)?;
        if self.raw.raft.prs().get(from).is_some() {
            self.heard.insert(from, self.now);
        }
        match packet {
            Packet::Raft(message) => {
                guard::judge(&self.raw.raft, &message, self.settings.reads_max)?;
                // What raft itself drops is of no use: an answer from somebody who is no member.
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
        let said = if term < raft.term || (term == raft.term && raft.state == StateRole::Leader) {
            transfer::answer(&chunk.head, 0, true)
        } else if raft.raft_log.committed >= chunk.head.index {
            transfer::answer(&chunk.head, chunk.head.total, false)
        } else {
            let (said, whole) = self.receiver.take(chunk, self.now, &self.settings);
            if let Some(snapshot) = whole {
                self.take_whole(from, term, snapshot);
            }
            said
        };
        self.stash.packets.push((from, Packet::Received(said)));
    }

    /// All of a snapshot is here: only now raft hears of it.
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
        match sender.heard(&received, self.now) {
            Standing::Underway => {}
            Standing::Done => self.end_transfer(from, SnapshotStatus::Finish),
            Standing::Failed => self.end_transfer(from, SnapshotStatus::Failure),
        }
    }

    fn end_transfer(&mut self, peer: u64, status: SnapshotStatus) {
        self.senders.remove(&peer);
        self.raw.report_snapshot(peer, status);
    }

    /// Puts an operation up for the log. `Ok` promises nothing but that it was taken in: it is committed when it comes back
    /// in a turn, known by its context.
    pub fn propose(&mut self, context: Vec<u8>, data: Vec<u8>) -> Result<(), Rejected> {
        self.may_propose()?;
        let bytes = data.len() + context.len();
        let max = self.settings.operation_bytes_max;
        if data.len() > max || context.len() > crate::wire::CONTEXT_BYTES_MAX {
            return Err(Rejected::TooLarge { bytes, max });
        }
        let (waiting, waiting_bytes) = (self.proposals.len(), self.proposals_bytes);
        if waiting >= self.settings.waiting_entries_max
            || waiting_bytes + bytes > self.settings.waiting_bytes_max
        {
            return Err(Rejected::DiskBehind {
                entries: waiting,
                bytes: waiting_bytes,
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

    fn may_propose(&self) -> Result<(), Rejected> {
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

    /// What was put up since the last turn becomes one proposal.
    fn feed(&mut self) {
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
        if let Err(rejected) = taken {
            let dropped = contexts
                .into_iter()
                .map(|context| (context.to_vec(), rejected.clone()));
            self.stash.dropped.extend(dropped);
        }
    }

    /// Asks from which index on this member sees all that was committed before now, wherever it leads or follows. The answer,
    /// an index or a refusal, comes in a turn.
    pub fn read(&mut self) -> Result<ReadId, Rejected> {
        if self.reads.count() >= self.settings.reads_max {
            return Err(Rejected::TooManyReads(self.reads.count()));
        }
        Ok(self.reads.add(self.now))
    }

    fn ask_reads(&mut self) {
        let raft = &self.raw.raft;
        let able = match raft.state {
            StateRole::Leader => raft.commit_to_current_term(),
            _ => raft.leader_id != 0,
        };
        if able && let Some(context) = self.reads.ask(self.now) {
            self.raw.read_index(context);
        }
    }

    /// Puts up a change of members, unless the group would not survive it. It is done when [`Committed::Members`] comes
    /// back with this context.
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

    /// Hands the leadership to this member, if it can be done; who leads then is told by a turn.
    pub fn transfer(&mut self, to: u64) -> Result<(), Rejected> {
        self.may_propose()?;
        let view = self.view();
        let cannot = |reason| Err(Rejected::CannotLead { to, reason });
        if to == self.me {
            return cannot("it leads already");
        }
        if !view.members.voters.contains(&to) {
            return cannot("it does not vote");
        }
        if !view.peers.get(&to).is_some_and(|peer| peer.alive) {
            return cannot("it has not been heard of lately");
        }
        self.feed();
        self.raw.transfer_leader(to);
        Ok(())
    }

    /// What was sent to this peer may be lost: its connection broke, or its queue is full.
    pub fn unreachable(&mut self, peer: u64) {
        self.raw.report_unreachable(peer);
        if let Some(sender) = self.senders.get_mut(&peer) {
            sender.rewind();
        }
    }

    /// After every input: what depends on who leads.
    fn look(&mut self) {
        let now = status::role_now(&self.raw.raft);
        if self.stash.seen == Some(now) {
            return;
        }
        self.stash.seen = Some(now);
        self.reads.ask_again();
        // They were put up in another term, or by a leader: whoever did so must be able to tell by the term what became of them.
        self.proposals_bytes = 0;
        let dropped = self
            .proposals
            .drain(..)
            .map(|entry| (entry.context.to_vec(), Rejected::Dropped));
        self.stash.dropped.extend(dropped);
        if now.role != Role::Leader {
            self.senders.clear();
        }
    }
}

fn config(settings: &Settings, id: u64, applied: u64) -> Config {
    Config {
        id,
        election_tick: settings.election_ticks,
        heartbeat_tick: settings.heartbeat_ticks,
        applied,
        max_size_per_msg: settings.message_bytes_max,
        max_inflight_msgs: settings.inflight_max,
        check_quorum: true,
        pre_vote: true,
        min_election_tick: settings.election_ticks,
        max_election_tick: usize::MAX / 2,
        read_only_option: match settings.lease_reads {
            true => ReadOnlyOption::LeaseBased,
            false => ReadOnlyOption::Safe,
        },
        skip_bcast_commit: false,
        batch_append: false,
        priority: 0,
        // Never reached: `propose` has its own, smaller bound. Without one raft would not count.
        max_uncommitted_size: (settings.uncommitted_bytes_max + settings.waiting_bytes_max) as u64
            + settings.message_bytes_max,
        max_committed_size_per_ready: settings.turn_bytes_max,
    }
}
