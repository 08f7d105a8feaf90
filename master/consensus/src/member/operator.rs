//! What an operator asks a member, and has it change: `meros masters list | add | remove | promote | transfer`.
//!
//! Heard from operators only. Each master tells how it stands itself, and the leader what it knows of the others; whoever lists a group asks
//! every address of [`MasterStatus::seats`]. Changes go to the leader: another member says who that is. What the group would not survive
//! is refused in the words of [`Unsafe`](crate::core::Unsafe), and what this operator may not do in those of the service's
//! [`Permits`](super::Permits). The answer to a change comes when it is committed.

use runtime::prelude::*;
use runtime::remote;
use serde::{Deserialize, Serialize};

use super::handle::{MemberHandle, MemberStatus, ProposeError};
use super::settings::{Settings, Wish};
use super::{Member, Replicated};
use crate::core::{self, MembershipChange};

/// How do you stand?
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ViewMaster;

/// How one master stands, in its own words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MasterStatus {
    /// Where it is reached.
    pub address: String,
    /// Its number and its group; none while it has no seat.
    pub identity: Option<(u64, u64)>,
    /// What it waits for: while it has no seat for one, and with a seat for its disk, if that hangs.
    pub waiting: Option<String>,
    /// How its log stands; none while it has no seat.
    pub log: Option<LogStatus>,
    /// Everybody's seat, as applied here, by number.
    pub seats: Vec<MasterSeat>,
    /// Bytes on its disk.
    pub disk_bytes: u64,
}

/// Who asks may not know how the master stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{reason}")]
pub struct NotShown {
    /// Why not.
    pub reason: String,
}

/// How a master's log stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogStatus {
    /// What it is.
    pub role: core::Role,
    /// The term.
    pub term: u64,
    /// Who leads, by number.
    pub leader: Option<u64>,
    /// The last index known to be committed.
    pub committed: u64,
    /// The last index applied.
    pub applied: u64,
    /// The oldest entry that is kept.
    pub first: u64,
    /// The newest entry.
    pub last: u64,
    /// The newest snapshot's index.
    pub snapshot: u64,
    /// To whom the leadership is being handed.
    pub transferring: Option<u64>,
}

/// One master's place in the group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MasterSeat {
    /// Its number.
    pub id: u64,
    /// Where it is reached.
    pub address: Option<String>,
    /// Its voice.
    pub voice: Voice,
    /// What the leader knows of it; told by the leader alone, of the others.
    pub peer: Option<core::Peer>,
}

/// What a member's word counts for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Voice {
    /// It votes.
    Voter,
    /// It listens, and may be promoted.
    Learner,
    /// It votes until a change that is under way ends.
    Outgoing,
    /// The seat is reserved, and nobody is a member there.
    None,
}

/// Change the group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ChangeMasters {
    /// A master that starts at this address becomes one that listens.
    Add {
        /// Where it will be.
        address: String,
    },
    /// A master belongs to the group no more.
    Remove {
        /// Its number.
        id: u64,
    },
    /// A master that listens and has caught up votes from now on.
    Promote {
        /// Its number.
        id: u64,
    },
    /// This master shall lead.
    Transfer {
        /// Its number.
        id: u64,
    },
    /// A master that listens and has caught up votes from now on in the place of one that is a member no more: one joint change, for which
    /// a majority of those who voted and of those who will must be alive, and no fewer have to be lost before the group stops.
    Replace {
        /// The number of the one that leaves.
        old: u64,
        /// The number of the one that votes.
        new: u64,
    },
}

/// It is committed; of a transfer: it has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MastersChanged {
    /// Which master it was about.
    pub id: u64,
}

/// Why the group was not changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum ChangeRefused {
    /// Ask the leader.
    #[error("this master does not lead; {}", leader.as_ref().map_or("no leader is known".to_owned(), |at| format!("the leader is at {at}")))]
    NotLeader {
        /// Where it is.
        leader: Option<String>,
    },
    /// Try again after a while.
    #[error("not now: {reason}")]
    NotNow {
        /// What it waits for.
        reason: String,
    },
    /// It will not be done.
    #[error("{reason}")]
    Refused {
        /// Why not.
        reason: String,
    },
    /// List the masters to see whether it was done.
    #[error("it is not known whether it was done: leadership changed meanwhile")]
    Unknown,
}

remote! {
    ViewMaster = "consensus/status" v2 -> Result<MasterStatus, NotShown>;
    ChangeMasters = "consensus/change" v1 -> Result<MastersChanged, ChangeRefused>
}

/// The same for a wire.
fn status(settings: &Settings, status: MemberStatus) -> MasterStatus {
    let log = status.seat.as_ref().map(|raft| LogStatus {
        role: raft.now.role,
        term: raft.now.term,
        leader: raft.now.leader,
        committed: raft.committed,
        applied: raft.applied,
        first: raft.first,
        last: raft.last,
        snapshot: raft.snapshot,
        transferring: raft.transferring,
    });
    MasterStatus {
        address: settings.address.clone(),
        identity: status.identity.map(|own| (own.id, own.group)),
        seats: seats(&status),
        waiting: status.waiting,
        log,
        disk_bytes: status.disk_bytes,
    }
}

fn seats(status: &MemberStatus) -> Vec<MasterSeat> {
    let (members, peers) = match &status.seat {
        Some(raft) => (raft.members.clone(), raft.peers.clone()),
        None => Default::default(),
    };
    let voice = |id: &u64| match id {
        id if members.voters.contains(id) => Voice::Voter,
        id if members.voters_outgoing.contains(id) => Voice::Outgoing,
        id if members.learners.contains(id) => Voice::Learner,
        _ => Voice::None,
    };
    let seated = status.roster.seats.keys();
    let mut ids: Vec<u64> = seated
        .chain(&members.voters)
        .chain(&members.learners)
        .chain(&members.voters_outgoing)
        .copied()
        .collect();
    ids.sort_unstable();
    ids.dedup();
    let seat = |id: u64| MasterSeat {
        id,
        address: status.roster.address(id).map(str::to_owned),
        voice: voice(&id),
        peer: peers.get(&id).copied(),
    };
    ids.into_iter().map(seat).collect()
}

fn refused(error: ProposeError) -> ChangeRefused {
    let reason = error.to_string();
    match error {
        ProposeError::NotLeader { leader } => ChangeRefused::NotLeader {
            leader: leader.and_then(|leader| leader.address),
        },
        ProposeError::Busy { .. } | ProposeError::Lost | ProposeError::Broken { .. } => {
            ChangeRefused::NotNow { reason }
        }
        ProposeError::Refused { .. } => ChangeRefused::Refused { reason },
        ProposeError::Unknown => ChangeRefused::Unknown,
    }
}

async fn change<M: Replicated>(
    member: MemberHandle<M>,
    change: ChangeMasters,
) -> Result<MastersChanged, ProposeError> {
    let id = match change {
        ChangeMasters::Add { address } => member.add(&address).await?,
        ChangeMasters::Remove { id } => {
            member.remove(id).await?;
            id
        }
        ChangeMasters::Promote { id } => {
            member.change(MembershipChange::Promote(id)).await?;
            id
        }
        ChangeMasters::Transfer { id } => {
            member.transfer(id).await?;
            id
        }
        ChangeMasters::Replace { old, new } => {
            member.replace(old, new).await?;
            new
        }
    };
    Ok(MastersChanged { id })
}

impl<M: Replicated> Handler<ViewMaster> for Member<M> {
    type Result = Result<MasterStatus, NotShown>;

    fn handle(&mut self, _: ViewMaster, ctx: &mut Context<Self>) -> Self::Result {
        let may = self.may(Wish::Look, ctx);
        may.map_err(|reason| NotShown { reason })?;
        Ok(status(&self.settings, self.status()))
    }
}

impl<M: Replicated> Handler<ChangeMasters> for Member<M> {
    type Result = Reply<Result<MastersChanged, ChangeRefused>>;

    fn handle(&mut self, wanted: ChangeMasters, ctx: &mut Context<Self>) -> Self::Result {
        let (promise, reply) = promise();
        if let Err(reason) = self.may(Wish::Change, ctx) {
            promise.answer(Err(ChangeRefused::Refused { reason }));
            return reply;
        }
        let member = MemberHandle {
            member: ctx.handle(),
            ended: self.ended.clone(),
        };
        tracing::info!(?wanted, "an operator changes the group");
        ctx.then(change(member, wanted), |_, changed, _| {
            promise.answer(changed.map_err(refused));
        });
        reply
    }
}

impl<M: Replicated> Member<M> {
    /// Whether who asks, if from another node, may have this wish.
    pub(super) fn may(&self, wish: Wish, ctx: &Context<Self>) -> Result<(), String> {
        let sender = ctx.sender().map(|sender| sender.peer.node.name());
        sender.map_or(Ok(()), |name| self.settings.permits.may(name, wish))
    }
}
