//! The handle by which a member's own node uses it: propose, read, change the group, watch the
//! leadership.
//!
//! Any number of actors may hold a [`MemberHandle`]. Every request ends: the replica ends each
//! accepted proposal and read, and the end of the actor ends the rest.

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::{Arc, OnceLock};

use runtime::NodeId;
use runtime::prelude::*;

use super::address_book::{AddressBook, AddressChange, is_member};
use super::{Member, Replicated};
use crate::core::{self, MembershipChange, RoleNow};
use crate::log::{Identity, Members};

/// The leader, as far as this member knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leader {
    /// Its raft id.
    pub id: u64,
    /// Its address.
    pub address: Option<String>,
    /// Its node, once this one is linked to it.
    pub node: Option<NodeId>,
}

/// The leader, the term, and this member's role. A member that becomes leader must
/// [`read`](MemberHandle::read) before it acts: the read waits until all entries of earlier terms
/// are applied here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leadership {
    /// This member's role.
    pub role: core::Role,
    /// The term.
    pub term: u64,
    /// The leader.
    pub leader: Option<Leader>,
    /// Why this member has ended, if it has. It is the last notification.
    pub ended: Option<String>,
}

impl Leadership {
    /// Whether this member is the leader.
    pub fn leads(&self) -> bool {
        self.role == core::Role::Leader && self.ended.is_none()
    }
}

/// Why a request failed. Each variant asks for another reaction of the caller.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProposeError {
    /// Another member leads, or none: ask that one, or retry later. Nothing was done.
    #[error("this master does not lead; {}", match leader {
        Some(leader) => format!("master {} does{}", leader.id, leader.address.as_ref().map_or(String::new(), |at| format!(", at {at}"))),
        None => "no leader is known".to_owned(),
    })]
    NotLeader {
        /// The leader, if known.
        leader: Option<Leader>,
    },
    /// Temporarily impossible: retry later. Nothing was done.
    #[error("{reason}")]
    Busy {
        /// The cause.
        reason: String,
    },
    /// Rejected permanently. Nothing was done.
    #[error("{reason}")]
    Refused {
        /// The cause.
        reason: String,
    },
    /// Leadership was lost before the commit, and the entry will never be committed. Nothing was
    /// done.
    #[error("leadership was lost, and the proposal with it")]
    Lost,
    /// Leadership was lost or the disk failed, and the operation may still be committed: read the
    /// state at the next leader.
    #[error("it is not known whether it was done")]
    Unknown,
    /// This member has ended. Nothing was done.
    #[error("this master's log is closed: {reason}")]
    Broken {
        /// Why it ended.
        reason: String,
    },
}

/// Counters of a member since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Accepted proposals.
    pub proposals: u64,
    /// Rejected proposals.
    pub refused: u64,
    /// Synced writes of the log. Several proposals in one write are a group commit.
    pub writes: u64,
    /// Own snapshots that were stored.
    pub snapshots: u64,
    /// Packets sent to peers.
    pub sent: u64,
    /// Packets that were dropped because the peer was not linked or its link was full.
    pub dropped: u64,
    /// Received packets that failed validation.
    pub rejected_packets: u64,
}

/// A member's status, for operators.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemberStatus {
    /// The identity of its directory; none before its admission.
    pub identity: Option<Identity>,
    /// The reason why it waits: before its admission, or while its disk hangs.
    pub waiting: Option<String>,
    /// Raft's status; none before its admission.
    pub log: Option<core::Status>,
    /// The members' addresses.
    pub address_book: AddressBook,
    /// The format in which operations are proposed; 0 before its admission.
    pub format: u16,
    /// Bytes on the disk.
    pub disk_bytes: u64,
    /// Its counters.
    pub counts: Counts,
}

impl MemberStatus {
    /// Its role, the leader and the term; none before its admission.
    pub fn role_now(&self) -> Option<RoleNow> {
        self.log.as_ref().map(|log| log.now)
    }

    /// The addresses of the other members, learners included.
    pub fn others(&self) -> BTreeSet<String> {
        let Some(raft) = &self.log else {
            return BTreeSet::new();
        };
        let all = raft.members.voters.iter().chain(&raft.members.learners);
        let others = all.filter(|id| **id != raft.id);
        let addresses = others.filter_map(|id| self.address_book.address(*id));
        addresses.map(str::to_owned).collect()
    }
}

/// Proposes an operation.
pub(super) struct Propose<M: Replicated>(pub M::Operation);

impl<M: Replicated> Message for Propose<M> {
    type Result = Result<M::Answer, ProposeError>;
}

pub(super) type ReadFn<M, R> = Box<dyn FnOnce(&M) -> R + Send>;

/// Reads the machine once it contains everything committed before this request.
pub(super) struct Read<M, R>(pub ReadFn<M, R>);

impl<M: 'static, R: 'static> Message for Read<M, R> {
    type Result = Result<R, ProposeError>;
}

/// Reads the machine in its present state.
pub(super) struct ReadLocal<M, R>(pub ReadFn<M, R>);

impl<M: 'static, R: 'static> Message for ReadLocal<M, R> {
    type Result = Result<(u64, R), ProposeError>;
}

/// Changes the members.
pub(super) struct Change(pub MembershipChange);

impl Message for Change {
    type Result = Result<Members, ProposeError>;
}

/// Changes the address book.
pub(super) struct ChangeAddress(pub AddressChange);

impl Message for ChangeAddress {
    type Result = Result<u64, ProposeError>;
}

/// Transfers the leadership to this member.
pub(super) struct Transfer(pub u64);

impl Message for Transfer {
    type Result = Result<(), ProposeError>;
}

/// Requests the status.
pub(super) struct GetStatus;

impl Message for GetStatus {
    type Result = MemberStatus;
}

pub(super) type Watcher = Box<dyn FnMut(&Leadership) -> bool + Send>;

/// Subscribes to changes of leadership.
pub(super) struct Watch(pub Watcher);

impl Message for Watch {
    type Result = ();
}

/// Hands over the leadership and ends.
pub(super) struct Retire;

impl Message for Retire {
    type Result = ();
}

/// Reaches a member from its own node. Clones reach the same member.
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
    /// Proposes an operation. Returns the machine's answer once the operation is synced by a
    /// majority and applied here. Operations take effect in the order of these calls. Dropping the
    /// future does not cancel the proposal.
    pub fn propose(
        &self,
        operation: M::Operation,
    ) -> impl Future<Output = Result<M::Answer, ProposeError>> + Send + use<M> {
        self.ask(Propose(operation))
    }

    /// Reads the machine once everything is applied that was acknowledged to any client before this
    /// call: a linearizable read, also at a follower.
    pub fn read<R, L>(
        &self,
        read: L,
    ) -> impl Future<Output = Result<R, ProposeError>> + Send + use<M, R, L>
    where
        R: Send + 'static,
        L: FnOnce(&M) -> R + Send + 'static,
    {
        self.ask(Read(Box::new(read)))
    }

    /// Reads the machine's present local state, which may be old. Returns the last applied index
    /// with it.
    pub fn read_local<R, L>(
        &self,
        read: L,
    ) -> impl Future<Output = Result<(u64, R), ProposeError>> + Send + use<M, R, L>
    where
        R: Send + 'static,
        L: FnOnce(&M) -> R + Send + 'static,
    {
        self.ask(ReadLocal(Box::new(read)))
    }

    /// Makes one change of the members, by their numbers.
    pub fn change(
        &self,
        change: MembershipChange,
    ) -> impl Future<Output = Result<Members, ProposeError>> + Send + use<M> {
        self.ask(Change(change))
    }

    /// Adds a learner: reserves a number for the master that starts at this address with an empty
    /// directory. Idempotent. The directory takes the number when it asks for admission; promote it
    /// once it has caught up.
    pub fn add(
        &self,
        address: &str,
    ) -> impl Future<Output = Result<u64, ProposeError>> + Send + use<M> {
        let (address, handle) = (address.to_owned(), self.clone());
        let reserved = self.ask(ChangeAddress(AddressChange::Reserve { address }));
        async move {
            let id = reserved.await?;
            let members = handle.status().await?.log.map(|log| log.members);
            if members.is_some_and(|members| members.learners.contains(&id)) {
                return Ok(id);
            }
            handle.change(MembershipChange::AddLearner(id)).await?;
            Ok(id)
        }
    }

    /// Removes a member and its address. Its number is never reused. A reservation that no
    /// directory has taken is cancelled.
    pub fn remove(
        &self,
        id: u64,
    ) -> impl Future<Output = Result<(), ProposeError>> + Send + use<M> {
        let handle = self.clone();
        async move {
            let status = handle.status().await?;
            let members = status.log.map(|log| log.members).unwrap_or_default();
            let reserved =
                status.address_book.entries.contains_key(&id) && !is_member(&members, id);
            if !reserved {
                handle.change(MembershipChange::Remove(id)).await?;
            }
            // The leader clears addresses of removed members anyway; this is only sooner.
            let cleared = handle.ask(ChangeAddress(AddressChange::Clear { id })).await;
            match reserved {
                true => cleared.map(drop),
                false => Ok(()),
            }
        }
    }

    /// Makes a learner a voter and removes a voter, in one atomic change.
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
            // As after a removal. It is refused while the change is in progress; the leader does it
            // later.
            let _ = handle
                .ask(ChangeAddress(AddressChange::Clear { id: old }))
                .await;
            Ok(())
        }
    }

    /// Starts to hand the leadership to this member. `Ok` means started; [`watch`](Self::watch)
    /// reports the result.
    pub fn transfer(
        &self,
        to: u64,
    ) -> impl Future<Output = Result<(), ProposeError>> + Send + use<M> {
        self.ask(Transfer(to))
    }

    /// The status of this member.
    pub fn status(
        &self,
    ) -> impl Future<Output = Result<MemberStatus, ProposeError>> + Send + use<M> {
        let (asked, ended) = (self.start(GetStatus), self.ended.clone());
        async move { asked?.await.map_err(|_| ended_error(&ended)) }
    }

    /// Calls the watcher with the present leadership and after every change, until it returns
    /// false. It runs inside the member's actor and should only forward the value.
    pub fn watch(&self, watcher: impl FnMut(&Leadership) -> bool + Send + 'static) {
        // A member that has ended calls the watcher at once, with the reason.
        let mut watcher = Box::new(watcher);
        if let Some(reason) = self.ended.get() {
            watcher(&end_of_leadership(reason.clone()));
        } else if let Err(error) = self.member.tell(Watch(watcher)) {
            tracing::warn!(%error, "watching the leadership failed");
        }
    }

    /// Hands over the leadership if this member has it, waits for pending requests, and ends. Ready
    /// once it has ended.
    pub fn retire(&self) -> impl Future<Output = ()> + Send + use<M> {
        let retired = self.member.ask(Retire, Patience::WhileLinked);
        async move { drop(retired.await) }
    }

    /// Why the member has ended; none while it runs.
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
                    reason: "too many requests wait for this master's log".to_owned(),
                }),
                // The actor panicked or was stopped with the request in its mailbox.
                Err(_) => Err(ProposeError::Unknown),
            }
        }
    }
}

fn ended_error(ended: &OnceLock<String>) -> ProposeError {
    let reason = ended.get().cloned();
    ProposeError::Broken {
        reason: reason.unwrap_or_else(|| "its actor has ended".to_owned()),
    }
}

/// The last notification of the watchers.
pub(super) fn end_of_leadership(reason: String) -> Leadership {
    Leadership {
        role: core::Role::Follower,
        term: 0,
        leader: None,
        ended: Some(reason),
    }
}
