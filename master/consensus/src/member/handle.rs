//! What a member's own node says to it: propose, read, change the group, watch who leads.
//!
//! A [`Member`](super::Member) is only ever reached through its [`MemberHandle`], which any number of actors may hold. Every question
//! gets an end: the replica gives one to each proposal and read that it took in, and one that fell with the actor ends with it.

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::{Arc, OnceLock};

use runtime::NodeId;
use runtime::prelude::*;

use super::roster::{Roster, RosterChange, is_member};
use super::{Member, Replicated};
use crate::core::{self, MembershipChange, RoleNow};
use crate::log::{Identity, Members};

/// Who leads, as far as it is known here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leader {
    /// Its raft id.
    pub id: u64,
    /// Where it is reached.
    pub address: Option<String>,
    /// The node it lives on, once this one is linked to it.
    pub node: Option<NodeId>,
}

/// Who leads in which term, and what this member is. Whoever is told that this member leads must [`read`](MemberHandle::read) before it
/// acts: the read waits until everything of earlier terms is applied here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leadership {
    /// What this member is.
    pub role: core::Role,
    /// The term.
    pub term: u64,
    /// Who leads.
    pub leader: Option<Leader>,
    /// Set once this member has ended: why. Nothing follows after that.
    pub ended: Option<String>,
}

impl Leadership {
    /// Whether this member leads.
    pub fn leads(&self) -> bool {
        self.role == core::Role::Leader && self.ended.is_none()
    }
}

/// Why there is no answer. Each is another thing to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProposeError {
    /// Another member leads, or none does: ask there, or later. Nothing was done.
    #[error("this master does not lead; {}", match leader {
        Some(leader) => format!("master {} does{}", leader.id, leader.address.as_ref().map_or(String::new(), |at| format!(", at {at}"))),
        None => "no leader is known".to_owned(),
    })]
    NotLeader {
        /// Who does.
        leader: Option<Leader>,
    },
    /// Not just now: try again after a while. Nothing was done.
    #[error("{reason}")]
    Busy {
        /// What it waits for.
        reason: String,
    },
    /// It will never be done as it is. Nothing was done.
    #[error("{reason}")]
    Refused {
        /// Why not.
        reason: String,
    },
    /// Leadership was lost before it was committed, and it never will be. Nothing was done.
    #[error("leadership was lost, and the proposal with it")]
    Lost,
    /// Leadership was lost or the disk failed, and it may have been done or may still be: read the state where the next leader is.
    #[error("it is not known whether it was done")]
    Unknown,
    /// This member has ended. Nothing was done.
    #[error("this master's log is closed: {reason}")]
    Broken {
        /// Why it ended.
        reason: String,
    },
}

/// What a member has done since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Proposals that were taken in.
    pub proposals: u64,
    /// Proposals that were not, for whatever reason.
    pub refused: u64,
    /// Synced writes of the log: proposals that share one are a group commit.
    pub writes: u64,
    /// Snapshots of its own that were kept.
    pub snapshots: u64,
    /// Packets sent to peers.
    pub sent: u64,
    /// Packets that were dropped since the peer is not linked or its link is full.
    pub dropped: u64,
    /// Packets heard that were not believed.
    pub unbelieved: u64,
}

/// How a member stands, for whoever operates the group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemberStatus {
    /// Whose directory it is; none while it has no seat.
    pub identity: Option<Identity>,
    /// What it waits for: while it has no seat for one, and with a seat for its disk, if that hangs.
    pub waiting: Option<String>,
    /// Raft's view; none while it has no seat.
    pub seat: Option<core::Status>,
    /// Who sits where.
    pub roster: Roster,
    /// The form in which operations are proposed; 0 while it has no seat.
    pub form: u16,
    /// Bytes on the disk.
    pub disk_bytes: u64,
    /// What it has done.
    pub counts: Counts,
}

impl MemberStatus {
    /// Its role, the leader and the term; none while it has no seat.
    pub fn now(&self) -> Option<RoleNow> {
        self.seat.as_ref().map(|raft| raft.now)
    }

    /// Where the other members are reached, also those that only listen.
    pub fn others(&self) -> BTreeSet<String> {
        let Some(raft) = &self.seat else {
            return BTreeSet::new();
        };
        let all = raft.members.voters.iter().chain(&raft.members.learners);
        let others = all.filter(|id| **id != raft.id);
        let addresses = others.filter_map(|id| self.roster.address(*id));
        addresses.map(str::to_owned).collect()
    }
}

/// Apply this once a majority has it.
pub(super) struct Propose<M: Replicated>(pub M::Operation);

impl<M: Replicated> Message for Propose<M> {
    type Result = Result<M::Answer, ProposeError>;
}

pub(super) type Look<M, R> = Box<dyn FnOnce(&M) -> R + Send>;

/// Look at the machine once it is as new as this question.
pub(super) struct Read<M, R>(pub Look<M, R>);

impl<M: 'static, R: 'static> Message for Read<M, R> {
    type Result = Result<R, ProposeError>;
}

/// Look at the machine as it is.
pub(super) struct Peek<M, R>(pub Look<M, R>);

impl<M: 'static, R: 'static> Message for Peek<M, R> {
    type Result = Result<(u64, R), ProposeError>;
}

/// Change the members.
pub(super) struct Change(pub MembershipChange);

impl Message for Change {
    type Result = Result<Members, ProposeError>;
}

/// Change the seats.
pub(super) struct Reseat(pub RosterChange);

impl Message for Reseat {
    type Result = Result<u64, ProposeError>;
}

/// Let this one lead.
pub(super) struct Transfer(pub u64);

impl Message for Transfer {
    type Result = Result<(), ProposeError>;
}

/// How do you stand?
pub(super) struct Standing;

impl Message for Standing {
    type Result = MemberStatus;
}

pub(super) type Watcher = Box<dyn FnMut(&Leadership) -> bool + Send>;

/// Tell of every change of leadership.
pub(super) struct Watch(pub Watcher);

impl Message for Watch {
    type Result = ();
}

/// Hand over the leadership and end.
pub(super) struct Retire;

impl Message for Retire {
    type Result = ();
}

/// Reaches a member from its own node. Clones reach the same one.
pub struct MemberHandle<M: Replicated> {
    pub(super) member: Handle<Member<M>>,
    pub(super) ended: Arc<OnceLock<String>>,
}

impl<M: Replicated> Clone for MemberHandle<M> {
    fn clone(&self) -> Self {
        Self {
            member: self.member.clone(),
            ended: self.ended.clone(),
        }
    }
}

impl<M: Replicated> MemberHandle<M> {
    /// Proposes an operation, and answers what the machine said once it is on the disks of a majority and applied here. Proposals take
    /// effect in the order of these calls. Dropping the future does not take it back.
    pub fn propose(
        &self,
        operation: M::Operation,
    ) -> impl Future<Output = Result<M::Answer, ProposeError>> + Send + use<M> {
        self.ask(Propose(operation))
    }

    /// Looks at the machine once everything is applied that anybody was told of before now: a linearizable read, also at a follower.
    pub fn read<R, L>(
        &self,
        look: L,
    ) -> impl Future<Output = Result<R, ProposeError>> + Send + use<M, R, L>
    where
        R: Send + 'static,
        L: FnOnce(&M) -> R + Send + 'static,
    {
        self.ask(Read(Box::new(look)))
    }

    /// Looks at the machine as it is here, which may be old, and says which index was applied last.
    pub fn peek<R, L>(
        &self,
        look: L,
    ) -> impl Future<Output = Result<(u64, R), ProposeError>> + Send + use<M, R, L>
    where
        R: Send + 'static,
        L: FnOnce(&M) -> R + Send + 'static,
    {
        self.ask(Peek(Box::new(look)))
    }

    /// Makes one change of the members, by their numbers.
    pub fn change(
        &self,
        change: MembershipChange,
    ) -> impl Future<Output = Result<Members, ProposeError>> + Send + use<M> {
        self.ask(Change(change))
    }

    /// Gives a number to whoever starts at this address with an empty directory, as a member that listens. It may be said again. The
    /// directory takes its seat when it asks; promote it when it has caught up.
    pub fn add(
        &self,
        address: &str,
    ) -> impl Future<Output = Result<u64, ProposeError>> + Send + use<M> {
        let (address, handle) = (address.to_owned(), self.clone());
        let seat = self.ask(Reseat(RosterChange::Reserve { address }));
        async move {
            let id = seat.await?;
            let members = handle.status().await?.seat.map(|raft| raft.members);
            if members.is_some_and(|members| members.learners.contains(&id)) {
                return Ok(id);
            }
            handle.change(MembershipChange::AddLearner(id)).await?;
            Ok(id)
        }
    }

    /// A member belongs to the group no more, and neither does its seat. Its number is never given again. A seat that was only reserved
    /// is given up.
    pub fn remove(
        &self,
        id: u64,
    ) -> impl Future<Output = Result<(), ProposeError>> + Send + use<M> {
        let handle = self.clone();
        async move {
            let status = handle.status().await?;
            let members = status.seat.map(|raft| raft.members).unwrap_or_default();
            let reserved = status.roster.seats.contains_key(&id) && !is_member(&members, id);
            if !reserved {
                handle.change(MembershipChange::Remove(id)).await?;
            }
            // The leader clears what a member leaves behind in any case; this is only sooner.
            let cleared = handle.ask(Reseat(RosterChange::Clear { id })).await;
            match reserved {
                true => cleared.map(drop),
                false => Ok(()),
            }
        }
    }

    /// Lets a learner vote in the place of a voter, who is a member no more: both or neither.
    ///
    /// # Errors
    /// As [`change`](Self::change).
    pub fn replace(
        &self,
        old: u64,
        new: u64,
    ) -> impl Future<Output = Result<(), ProposeError>> + Send + use<M> {
        let handle = self.clone();
        async move {
            let (promote, remove) = (vec![new], vec![old]);
            let swap = MembershipChange::Swap { promote, remove };
            handle.change(swap).await?;
            // As after a removal; while the change still goes on it is refused, and the leader does it.
            let _ = handle.ask(Reseat(RosterChange::Clear { id: old })).await;
            Ok(())
        }
    }

    /// Hands the leadership to this member. `Ok` says that it has begun; [`watch`](Self::watch) tells how it went.
    pub fn transfer(
        &self,
        to: u64,
    ) -> impl Future<Output = Result<(), ProposeError>> + Send + use<M> {
        self.ask(Transfer(to))
    }

    /// How this member stands.
    pub fn status(
        &self,
    ) -> impl Future<Output = Result<MemberStatus, ProposeError>> + Send + use<M> {
        let (asked, ended) = (self.start(Standing), self.ended.clone());
        async move { asked?.await.map_err(|_| gone(&ended)) }
    }

    /// Tells who leads now, and again whenever that changes, until it answers no. It runs inside the member: it should only pass it on.
    pub fn watch(&self, watcher: impl FnMut(&Leadership) -> bool + Send + 'static) {
        // Whoever comes too late is told of the end.
        let mut watcher = Box::new(watcher);
        if let Some(reason) = self.ended.get() {
            watcher(&over(reason.clone()));
        } else if let Err(error) = self.member.tell(Watch(watcher)) {
            tracing::warn!(%error, "nobody is told who leads");
        }
    }

    /// Hands the leadership over if it is here, waits for what is under way, and ends. Ready when it has.
    pub fn retire(&self) -> impl Future<Output = ()> + Send + use<M> {
        let retired = self.member.ask(Retire, Patience::WhileLinked);
        async move { drop(retired.await) }
    }

    /// Why it has ended; none while it lives.
    pub fn ended(&self) -> Option<String> {
        self.ended.get().cloned()
    }

    /// The pid of the member's actor.
    pub fn pid(&self) -> Pid {
        self.member.pid()
    }

    fn start<Q, T>(&self, question: Q) -> Result<runtime::Asking<T>, ProposeError>
    where
        Q: Message<Result = T> + Send + 'static,
        T: Send + 'static,
        Member<M>: Handler<Q> + Actor<Context = Context<Member<M>>>,
    {
        match self.ended.get() {
            Some(reason) => Err(ProposeError::Broken {
                reason: reason.clone(),
            }),
            None => Ok(self.member.ask(question, Patience::WhileLinked)),
        }
    }

    pub(super) fn ask<Q, T>(
        &self,
        question: Q,
    ) -> impl Future<Output = Result<T, ProposeError>> + Send + use<M, Q, T>
    where
        Q: Message<Result = Result<T, ProposeError>> + Send + 'static,
        T: Send + 'static,
        Member<M>: Handler<Q> + Actor<Context = Context<Member<M>>>,
    {
        let asked = self.start(question);
        async move {
            match asked?.await {
                Ok(answer) => answer,
                Err(AskError::Full) => Err(ProposeError::Busy {
                    reason: "too many questions wait for this master's log".to_owned(),
                }),
                // It fell, or was stopped, with the question in its hands.
                Err(_) => Err(ProposeError::Unknown),
            }
        }
    }
}

fn gone(ended: &OnceLock<String>) -> ProposeError {
    let reason = ended.get().cloned();
    ProposeError::Broken {
        reason: reason.unwrap_or_else(|| "its actor is gone".to_owned()),
    }
}

/// What watchers are told last.
pub(super) fn over(reason: String) -> Leadership {
    Leadership {
        role: core::Role::Follower,
        term: 0,
        leader: None,
        ended: Some(reason),
    }
}
