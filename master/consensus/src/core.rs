//! Raft, without I/O, clock or chance of its own: inputs go in, and a [`Turn`] says what is to be done.
//!
//! A driver feeds [`Core::tick`], [`Core::step`], [`Core::propose`] and the rest at any time, and goes through turns whenever it did: send
//! what may leave, apply what is committed, begin the write if there is one, and say [`Core::persisted`] when it is synced. Only one write is
//! under way at a time. What is put in meanwhile is in the log in memory and on its way to the followers, and is the next write (group commit);
//! what would promise it waits for that. Remembers the log in memory.
//! Never waits, never reads a clock, and never lets raft see a message that it would fall over.

mod apply;
mod convert;
mod guard;
mod handover;
mod lease;
mod membership;
mod memory;
mod packets;
mod proposals;
mod reads;
mod rejected;
mod settings;
mod status;
mod transfer;
mod turn;
mod unsynced;

use std::collections::BTreeMap;

use bytes::Bytes;
use raft::eraftpb::Entry as RaftEntry;
use raft::{Config, RawNode, ReadOnlyOption, SnapshotStatus, StateRole};
use rand::Rng;
use rand::rngs::SmallRng;

use self::lease::Lease;
use self::memory::Memory;
use self::reads::Reads;
use self::transfer::{Receiver, Sender};
use self::turn::Stash;
use crate::log::{HardState, Identity, Loaded, LogError, Members, Snapshot, Write};
use crate::wire::NUMBER_MAX;

pub use self::membership::{GroupView, MembershipChange, PeerView, Unsafe};
pub use self::reads::ReadId;
pub use self::rejected::Rejected;
pub use self::settings::{Harmful, Settings};
pub use self::status::{Peer, PeerState, Role, RoleNow, Status};
pub use self::turn::{Committed, Turn};

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
    /// They have waited long enough for the write under way.
    proposals_due: bool,
    /// What this leader last told all others to be committed.
    told_commit: u64,
    reads: Reads,
    lease: Lease,
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
    /// How often a leader has tried to hand over since its disk hangs.
    fled: usize,
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
        let latest = memory.latest().clone();
        let config = config(&settings, identity.id, applied);
        let logger = slog::Logger::root(slog::Discard, slog::o!());
        let raw =
            RawNode::new(&config, memory, &logger).map_err(|error| unfit(error.to_string()))?;
        let hard = convert::hard_from_raft(&raw.raft.hard_state());
        let stash = Stash::starting(&latest, hard);
        Ok(Self {
            me: identity.id,
            reads: Reads::new(identity.id, rng.random()),
            lease: Lease::new(&settings),
            settings,
            raw,
            rng,
            now: 0,
            heard: BTreeMap::new(),
            proposals: Vec::new(),
            proposals_bytes: 0,
            proposals_due: false,
            told_commit: 0,
            senders: BTreeMap::new(),
            receiver: Receiver::default(),
            whole: None,
            members,
            hard,
            hard_changed: false,
            stash,
            told: None,
            refused: 0,
            fled: 0,
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
        if !due || self.settled() {
            self.raw.tick();
        }
        self.proposals_due = true;
        self.tell_commit();
        let again = self.settings.election_ticks as u64;
        let given_up = self
            .reads
            .tick(self.now, again, self.settings.read_ticks_max);
        let late = self.late();
        let given_up = given_up.into_iter().map(|id| (id, Err(late.clone())));
        self.stash.reads.extend(given_up);
        self.flee_from_disk();
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

    /// Followers hear what is committed with the next entries. Where none have followed, they hear it now.
    fn tell_commit(&mut self) {
        let raft = &mut self.raw.raft;
        let committed = raft.raft_log.committed;
        if raft.state == StateRole::Leader && committed != self.told_commit {
            raft.bcast_append();
            self.told_commit = committed;
        }
    }

    /// Whether all of the log is on the disk. It must be, before this member may ask for votes: raft takes it for granted.
    fn settled(&self) -> bool {
        let log = &self.raw.raft.raft_log;
        log.persisted == log.last_index() && self.stash.log_is_on_disk()
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

    /// After every input: what depends on who leads.
    fn look(&mut self) {
        let now = status::role_now(&self.raw.raft);
        if self.stash.seen == Some(now) {
            return;
        }
        self.stash.seen = Some(now);
        self.reads.ask_again();
        self.lease.begin();
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
        // Its own lease lasts too long: see `lease`.
        read_only_option: ReadOnlyOption::Safe,
        // See `tell_commit`.
        skip_bcast_commit: true,
        batch_append: false,
        priority: 0,
        // Never reached: `propose` has its own, smaller bound. Without one raft would not count.
        max_uncommitted_size: (settings.uncommitted_bytes_max + settings.waiting_bytes_max) as u64
            + settings.message_bytes_max,
        max_committed_size_per_ready: settings.turn_bytes_max,
    }
}
