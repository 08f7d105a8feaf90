//! Operators' requests to a member: `meros masters list | add | remove | promote | transfer`.
//!
//! Accepted from operators only. Each master reports its own status, and the leader also its view
//! of the others; a client that lists a group asks every address of [`MasterStatus::members`].
//! Changes go to the leader; another member answers with the leader's address. Unsafe changes are
//! refused with the text of [`Unsafe`](crate::core::Unsafe), unauthorized ones with that of the
//! service's [`Permits`](super::Permits). A change is answered once it is committed.

use runtime::prelude::*;
use runtime::remote;
use serde::{Deserialize, Serialize};

use super::handle::{MemberHandle, MemberStatus, ProposeError};
use super::settings::{AdminRequest, Settings};
use super::{Member, Replicated};
use crate::core::{self, MembershipChange};

/// Requests the status of a master.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ViewMaster;

/// The status of one master, as it reports it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MasterStatus {
    /// Its address.
    pub address: String,
    /// Its number and its group; none before its admission.
    pub identity: Option<(u64, u64)>,
    /// The reason why it waits: before its admission, or while its disk hangs.
    pub waiting: Option<String>,
    /// The status of its log; none before its admission.
    pub log: Option<LogStatus>,
    /// All members, as applied here, by number.
    pub members: Vec<MasterEntry>,
    /// Bytes on its disk.
    pub disk_bytes: u64,
}

/// The operator may not see the status.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{reason}")]
pub struct NotShown {
    /// The reason.
    pub reason: String,
}

/// The status of a master's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogStatus {
    /// Its Raft role.
    pub role: core::Role,
    /// The term.
    pub term: u64,
    /// The leader's number.
    pub leader: Option<u64>,
    /// The last index known to be committed.
    pub committed: u64,
    /// The last index applied.
    pub applied: u64,
    /// The oldest entry in the log.
    pub first: u64,
    /// The newest entry.
    pub last: u64,
    /// The newest snapshot's index.
    pub snapshot: u64,
    /// The target of a leadership transfer in progress.
    pub transferring: Option<u64>,
}

/// One member of the group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MasterEntry {
    /// Its number.
    pub id: u64,
    /// Its address.
    pub address: Option<String>,
    /// Its vote.
    pub vote: VoteRole,
    /// The leader's view of it; only reported by the leader, for the other members.
    pub peer: Option<core::Peer>,
}

/// Whether a member votes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum VoteRole {
    /// It votes.
    Voter,
    /// It does not vote, and may be promoted.
    Learner,
    /// It votes until the change in progress ends.
    Outgoing,
    /// The number is reserved, and not yet a member.
    None,
}

/// Requests a change of the group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ChangeMasters {
    /// Adds the master that starts at this address, as a learner.
    Add {
        /// Its address.
        address: String,
    },
    /// Removes a member.
    Remove {
        /// Its number.
        id: u64,
    },
    /// Makes a learner that has caught up a voter.
    Promote {
        /// Its number.
        id: u64,
    },
    /// Transfers the leadership to this master.
    Transfer {
        /// Its number.
        id: u64,
    },
    /// Makes a learner that has caught up a voter in place of a voter, which is removed. A joint
    /// change: needs majorities of the old and of the new voters, and the fault tolerance never
    /// drops.
    Replace {
        /// The number of the removed voter.
        old: u64,
        /// The number of the new voter.
        new: u64,
    },
}

/// The change is committed; a transfer has started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MastersChanged {
    /// The number of the master concerned.
    pub id: u64,
}

/// Why the group was not changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum ChangeRefused {
    /// Ask the leader instead.
    #[error("this master does not lead; {}", leader.as_ref().map_or("no leader is known".to_owned(), |at| format!("the leader is at {at}")))]
    NotLeader {
        /// Its address, if known.
        leader: Option<String>,
    },
    /// Temporarily impossible: retry later.
    #[error("not now: {reason}")]
    NotNow {
        /// The cause.
        reason: String,
    },
    /// Rejected permanently.
    #[error("{reason}")]
    Refused {
        /// The cause.
        reason: String,
    },
    /// The result is unknown. List the masters to find out.
    #[error("it is not known whether it was done: leadership changed meanwhile")]
    Unknown,
}

remote! {
    ViewMaster = "consensus/status" v1 -> Result<MasterStatus, NotShown>;
    ChangeMasters = "consensus/change" v1 -> Result<MastersChanged, ChangeRefused>
}

/// Converts the status to its wire format.
fn status(settings: &Settings, status: MemberStatus) -> MasterStatus {
    let log = status.log.as_ref().map(|raft| LogStatus {
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
        members: members(&status),
        waiting: status.waiting,
        log,
        disk_bytes: status.disk_bytes,
    }
}

fn members(status: &MemberStatus) -> Vec<MasterEntry> {
    let (members, peers) = match &status.log {
        Some(raft) => (raft.members.clone(), raft.peers.clone()),
        None => Default::default(),
    };
    let vote = |id: &u64| match id {
        id if members.voters.contains(id) => VoteRole::Voter,
        id if members.voters_outgoing.contains(id) => VoteRole::Outgoing,
        id if members.learners.contains(id) => VoteRole::Learner,
        _ => VoteRole::None,
    };
    let listed = status.address_book.entries.keys();
    let mut ids: Vec<u64> = listed
        .chain(&members.voters)
        .chain(&members.learners)
        .chain(&members.voters_outgoing)
        .copied()
        .collect();
    ids.sort_unstable();
    ids.dedup();
    let member = |id: u64| MasterEntry {
        id,
        address: status.address_book.address(id).map(str::to_owned),
        vote: vote(&id),
        peer: peers.get(&id).copied(),
    };
    ids.into_iter().map(member).collect()
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
        let authorized = self.authorize(AdminRequest::ViewStatus, ctx);
        authorized.map_err(|reason| NotShown { reason })?;
        Ok(status(&self.settings, self.status()))
    }
}

impl<M: Replicated> Handler<ChangeMasters> for Member<M> {
    type Result = Reply<Result<MastersChanged, ChangeRefused>>;

    fn handle(&mut self, wanted: ChangeMasters, ctx: &mut Context<Self>) -> Self::Result {
        let (promise, reply) = promise();
        if let Err(reason) = self.authorize(AdminRequest::ChangeMembers, ctx) {
            promise.answer(Err(ChangeRefused::Refused { reason }));
            return reply;
        }
        let member = MemberHandle {
            member: ctx.handle(),
            ended: self.ended.clone(),
        };
        tracing::info!(?wanted, "changing the group for an operator");
        ctx.then(change(member, wanted), |_, changed, _| {
            promise.answer(changed.map_err(refused));
        });
        reply
    }
}

impl<M: Replicated> Member<M> {
    /// Whether the sender may make this request. Requests of this node's own actors are always
    /// allowed.
    pub(super) fn authorize(
        &self,
        request: AdminRequest,
        ctx: &Context<Self>,
    ) -> Result<(), String> {
        let sender = ctx.sender().map(|sender| sender.peer.node.name());
        sender.map_or(Ok(()), |name| {
            self.settings.permits.authorize(name, request)
        })
    }
}
