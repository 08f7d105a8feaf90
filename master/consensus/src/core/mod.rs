//! Raft without I/O, clock or randomness of its own: inputs go in, and a [`Turn`] lists the work
//! for the driver.
//!
//! A driver calls [`Core::tick`], [`Core::step`], [`Core::propose`] and the others at any time,
//! then takes turns: it sends the packets, applies the committed entries, starts the write if there
//! is one, and calls [`Core::persisted`] once it is synced. Only one write is in progress at a
//! time. Later inputs enter the log in memory, are sent to the followers, and form the next write
//! (group commit); acknowledgements wait for that write. Holds the whole log in memory. Never
//! passes the raft crate a message on which it would panic.
//!
//! | module | contents |
//! |---|---|
//! | `apply` | committed entries before they are handed out, and snapshots of the result |
//! | `convert` | conversions between our plain types and those of the raft crate |
//! | `guard` | filters messages on which the raft crate would panic |
//! | `leadership` | elections, and handover of the leadership |
//! | `membership` | the safety checks of membership changes |
//! | `memory` | the log in memory, as the raft crate reads it |
//! | `packets` | packets from peers, and the snapshot transfers that they drive |
//! | `proposals` | local requests: operations, reads, changes of members |
//! | `reads` | linearizable reads, by a read index or by the leader's lease |
//! | `rejected` | reasons of rejection, one variant per reaction of the caller |
//! | `settings` | settings of the core, read and checked once |
//! | `status` | a member's status, for operators |
//! | `transfer` | the transfer of a snapshot to a follower, in chunks |
//! | `turn` | the work for the driver, in order |
//! | `unsynced` | unsynced output of raft: several of its readies become one write |

mod apply;
mod convert;
mod guard;
mod leadership;
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

use self::memory::Memory;
use self::reads::Reads;
use self::transfer::{Receiver, Sender};
use self::turn::Stash;
use crate::core::reads::lease::Lease;
use crate::log::{HardState, Identity, Loaded, LogError, Members, Snapshot, Write};
use crate::wire::NUMBER_MAX;

pub use self::membership::{GroupView, MembershipChange, PeerView, Unsafe};
pub use self::reads::ReadId;
pub use self::rejected::Rejected;
pub use self::settings::{InvalidSetting, Settings};
pub use self::status::{Peer, PeerState, Role, RoleNow, Status};
pub use self::turn::{Committed, Turn};

/// One member's Raft state.
pub struct Core {
    me: u64,
    settings: Settings,
    raw: RawNode<Memory>,
    rng: SmallRng,
    now: u64,
    /// The tick of the last message of each other member.
    last_received: BTreeMap<u64, u64>,
    proposals: Vec<RaftEntry>,
    proposals_bytes: usize,
    /// Whether they have waited long enough for the write in progress.
    proposals_due: bool,
    /// The commit index of the leader's last broadcast.
    broadcast_commit_index: u64,
    reads: Reads,
    lease: Lease,
    senders: BTreeMap<u64, Sender>,
    receiver: Receiver,
    /// A received snapshot that is complete and stepped, but in no write yet.
    whole: Option<Snapshot>,
    members: Members,
    hard: HardState,
    hard_changed: bool,
    stash: Stash,
    reported_role: Option<RoleNow>,
    refused: u64,
    /// The number of handovers that this leader tried because its disk hangs.
    handover_attempts: usize,
}

/// The initial write of every founder of a group, the same on all: the members, and the state
/// machine's initial content.
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
    /// Continues from the loaded log. Inconsistent data is [`LogError::Damaged`]. The settings must
    /// satisfy [`Settings::check`].
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
            return Err(LogError::NotOwner { found });
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
        let mut core = Self {
            me: identity.id,
            reads: Reads::new(identity.id, rng.random()),
            lease: Lease::new(&settings),
            settings,
            raw,
            rng,
            now: 0,
            last_received: BTreeMap::new(),
            proposals: Vec::new(),
            proposals_bytes: 0,
            proposals_due: false,
            broadcast_commit_index: 0,
            senders: BTreeMap::new(),
            receiver: Receiver::default(),
            whole: None,
            members,
            hard,
            hard_changed: false,
            stash,
            reported_role: None,
            refused: 0,
            handover_attempts: 0,
        };
        core.lead_alone();
        Ok(core)
    }

    /// Elects the only voter at once: there is no other leader to wait for.
    fn lead_alone(&mut self) {
        let Members {
            voters,
            voters_outgoing,
            ..
        } = &self.members;
        if *voters == [self.me] && voters_outgoing.is_empty() {
            // It is refused while a change of members waits to be applied; then a tick elects it.
            let _ = self.raw.campaign();
            self.follow_role();
        }
    }

    /// Whether the term is on the disk: a crash cannot repeat it.
    pub fn term_is_synced(&self) -> bool {
        self.stash.durable_term() == self.raw.raft.term
    }

    /// Advances the clock by one tick.
    pub fn tick(&mut self) {
        self.now += 1;
        self.draw_timeout();
        if self.may_campaign() {
            self.raw.tick();
        }
        self.proposals_due = true;
        self.broadcast_commit();
        let again = self.settings.election_ticks as u64;
        let given_up = self
            .reads
            .tick(self.now, again, self.settings.read_ticks_max);
        let late = self.late();
        let given_up = given_up.into_iter().map(|id| (id, Err(late.clone())));
        self.stash.reads.extend(given_up);
        self.hand_over_from_hung_disk();
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
        self.follow_role();
    }

    /// Followers learn the commit index with the next entries. If there were none since the last
    /// tick, broadcasts it.
    fn broadcast_commit(&mut self) {
        let raft = &mut self.raw.raft;
        let committed = raft.raft_log.committed;
        if raft.state == StateRole::Leader && committed != self.broadcast_commit_index {
            raft.bcast_append();
            self.broadcast_commit_index = committed;
        }
    }

    /// Updates state that depends on role and leader. Runs after every input.
    fn follow_role(&mut self) {
        let now = status::role_now(&self.raw.raft);
        if self.stash.seen == Some(now) {
            return;
        }
        self.stash.seen = Some(now);
        self.reads.ask_again();
        self.lease.begin();
        // These were proposed in another term or by a leader; the proposer must be able to decide
        // their result by the term.
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
        // The raft crate's lease lasts too long: see `lease`.
        read_only_option: ReadOnlyOption::Safe,
        // See `broadcast_commit`.
        skip_bcast_commit: true,
        batch_append: false,
        priority: 0,
        // Never reached: `propose` has its own, smaller bound. Without a bound raft would not
        // count.
        max_uncommitted_size: (settings.uncommitted_bytes_max + settings.waiting_bytes_max) as u64
            + settings.message_bytes_max,
        max_committed_size_per_ready: settings.turn_bytes_max,
    }
}
