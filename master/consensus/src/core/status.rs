//! A member's status, for operators.

use std::collections::BTreeMap;

use raft::{ProgressState, Raft, StateRole};

use super::Core;
use super::membership::{GroupView, PeerView};
use super::memory::Memory;
use crate::log::Members;

/// The role of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Role {
    /// It follows a leader. Includes learners.
    Follower,
    /// It requests votes or pre-votes.
    Candidate,
    /// It leads.
    Leader,
}

/// The leader and the term, as this member knows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoleNow {
    /// This member's role.
    pub role: Role,
    /// The leader, if known.
    pub leader: Option<u64>,
    /// The term.
    pub term: u64,
}

/// The leader's replication state for a follower.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum PeerState {
    /// The leader searches for the last matching entry.
    Probing,
    /// Entries are sent continuously.
    Replicating,
    /// A snapshot is being sent.
    Snapshot {
        /// Acknowledged bytes.
        sent: u64,
        /// Total bytes.
        total: u64,
    },
}

/// The leader's view of another member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Peer {
    /// The last entry that it is known to have.
    pub matched: u64,
    /// The number of entries that it lacks.
    pub lag: u64,
    /// Its commit index.
    pub committed: u64,
    /// The replication state.
    pub state: PeerState,
    /// Ticks since its last message; none if there was none.
    pub silent: Option<u64>,
}

/// The status of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Its number.
    pub id: u64,
    /// Its role, the leader and the term.
    pub now: RoleNow,
    /// The members, as applied.
    pub members: Members,
    /// The last index known to be committed.
    pub committed: u64,
    /// The last index handed out to be applied.
    pub applied: u64,
    /// The oldest entry in the log.
    pub first: u64,
    /// The newest entry.
    pub last: u64,
    /// The newest snapshot's index.
    pub snapshot: u64,
    /// Bytes of the entries in memory.
    pub log_bytes: u64,
    /// Packets rejected since the start.
    pub refused: u64,
    /// The duration of the write in progress in ticks; 0 without one.
    pub disk_silent: u64,
    /// The same, if the disk seems to hang.
    pub disk_hangs: Option<u64>,
    /// The target of a leadership transfer in progress.
    pub transferring: Option<u64>,
    /// The leader's view of the others; empty at other members.
    pub peers: BTreeMap<u64, Peer>,
}

pub(crate) fn role_now(raft: &Raft<Memory>) -> RoleNow {
    RoleNow {
        role: match raft.state {
            StateRole::Follower => Role::Follower,
            StateRole::PreCandidate | StateRole::Candidate => Role::Candidate,
            StateRole::Leader => Role::Leader,
        },
        leader: Some(raft.leader_id).filter(|id| *id != 0),
        term: raft.term,
    }
}

impl Core {
    /// The present status.
    pub fn status(&self) -> Status {
        let raft = &self.raw.raft;
        let now = role_now(raft);
        let last = raft.raft_log.last_index();
        let mut peers = BTreeMap::new();
        if now.role == Role::Leader {
            for (id, progress) in raft.prs().iter().filter(|(id, _)| **id != self.me) {
                let state = match progress.state {
                    ProgressState::Probe => PeerState::Probing,
                    ProgressState::Replicate => PeerState::Replicating,
                    ProgressState::Snapshot => {
                        let (sent, total) = self
                            .senders
                            .get(id)
                            .map_or((0, 0), |sender| sender.progress());
                        PeerState::Snapshot { sent, total }
                    }
                };
                let peer = Peer {
                    matched: progress.matched,
                    lag: last.saturating_sub(progress.matched),
                    committed: progress.committed_index,
                    state,
                    silent: self.last_received.get(id).map(|at| self.now - at),
                };
                peers.insert(*id, peer);
            }
        }
        Status {
            id: self.me,
            now,
            members: self.members.clone(),
            committed: raft.raft_log.committed,
            applied: self.stash.handed.0,
            first: raft.raft_log.first_index(),
            last,
            snapshot: raft.store().latest().index,
            log_bytes: raft.store().bytes(),
            refused: self.refused,
            disk_silent: self.disk_silent().unwrap_or(0),
            disk_hangs: self.disk_hangs(),
            transferring: raft.lead_transferee,
            peers,
        }
    }

    /// The members, as applied.
    pub fn members(&self) -> &Members {
        &self.members
    }

    /// This member's role, the leader and the term.
    pub fn status_now(&self) -> RoleNow {
        role_now(&self.raw.raft)
    }

    /// The input of the checks of a change of members.
    pub fn view(&self) -> GroupView {
        let raft = &self.raw.raft;
        let alive = |id: &u64| {
            self.last_received
                .get(id)
                .is_some_and(|at| self.now - at <= self.settings.alive_ticks)
        };
        let others = raft.prs().iter().filter(|(id, _)| **id != self.me);
        let view = |(id, progress): (&u64, &raft::Progress)| {
            let peer = PeerView {
                matched: progress.matched,
                alive: alive(id),
            };
            (*id, peer)
        };
        GroupView {
            me: self.me,
            members: self.members.clone(),
            peers: others.map(view).collect(),
            last: raft.raft_log.last_index(),
            pending: raft.has_pending_conf(),
            lag_max: self.settings.promote_lag_max,
        }
    }
}
