//! Which changes of members a group survives. Pure: it is told what the leader knows.

use std::collections::BTreeMap;

use super::convert::{Change, Step};
use crate::log::Members;
use crate::wire::{MEMBERS_MAX, NUMBER_MAX};

/// A change of members, one at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MembershipChange {
    /// It listens and does not vote yet.
    AddLearner(u64),
    /// A learner votes from now on.
    Promote(u64),
    /// It belongs to the group no more.
    Remove(u64),
    /// Learners take the place of voters in one change, with a majority of both sides.
    Swap {
        /// Learners that vote afterwards.
        promote: Vec<u64>,
        /// Voters that are members no more afterwards.
        remove: Vec<u64>,
    },
}

/// What the leader knows of one other member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerView {
    /// The last entry it is known to have.
    pub matched: u64,
    /// Whether it was heard lately.
    pub alive: bool,
}

/// What the leader knows of the group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupView {
    /// The leader.
    pub me: u64,
    /// The members as applied.
    pub members: Members,
    /// The others.
    pub peers: BTreeMap<u64, PeerView>,
    /// The leader's last entry.
    pub last: u64,
    /// Whether an earlier change, or the first entry of the leader's term, is not applied yet.
    pub pending: bool,
    /// A learner may lack so many entries to be promoted.
    pub lag_max: u64,
}

/// Why a change was not made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unsafe {
    /// One change at a time.
    #[error(
        "an earlier change of members is not finished, or this leader is too new to know: try again"
    )]
    Pending,
    /// It is a member already.
    #[error("{0} is a member already")]
    Member(u64),
    /// It is none.
    #[error("{0} is no member")]
    Stranger(u64),
    /// It votes already, or was named twice.
    #[error("{0} is no learner")]
    NoLearner(u64),
    /// It cannot be one.
    #[error("{0} cannot be a member's id: ids are from 1 to 2^62")]
    Id(u64),
    /// There would be too many.
    #[error("a group has at most {MEMBERS_MAX} members")]
    TooMany,
    /// A learner first has to have the log.
    #[error("{id} lacks {lag} entries, at most {max} may be missing: wait until it has caught up")]
    Lags {
        /// The learner.
        id: u64,
        /// Entries it lacks.
        lag: u64,
        /// Entries it may lack.
        max: u64,
    },
    /// It would decide, and nobody has heard of it.
    #[error("{0} has not been heard of lately")]
    Silent(u64),
    /// Nobody would vote.
    #[error("no voter would be left")]
    NoVoter,
    /// The leader does not remove itself.
    #[error("{0} leads: transfer the leadership first")]
    Leads(u64),
    /// Too few of those who would vote are alive.
    #[error("of {voters} voters only {alive} would be alive, and {needed} are needed")]
    NoQuorum {
        /// Who would vote.
        voters: usize,
        /// Who of them was heard lately.
        alive: usize,
        /// A majority.
        needed: usize,
    },
    /// Nothing would change.
    #[error("nothing would change")]
    Nothing,
}

/// The change as it goes into the log, or why the group must not make it.
pub(crate) fn check(
    change: &MembershipChange,
    view: &GroupView,
    context: Vec<u8>,
) -> Result<Change, Unsafe> {
    if view.pending || !view.members.voters_outgoing.is_empty() {
        return Err(Unsafe::Pending);
    }
    let steps = match change {
        MembershipChange::AddLearner(id) => view.add(*id)?,
        MembershipChange::Promote(id) => view.swap(&[*id], &[])?,
        MembershipChange::Remove(id) if view.members.learners.contains(id) => {
            vec![Step::Remove(*id)]
        }
        MembershipChange::Remove(id) => view.swap(&[], &[*id])?,
        MembershipChange::Swap { promote, remove } => view.swap(promote, remove)?,
    };
    Ok(Change { steps, context })
}

impl GroupView {
    fn add(&self, id: u64) -> Result<Vec<Step>, Unsafe> {
        let Members {
            voters, learners, ..
        } = &self.members;
        if id == 0 || id > NUMBER_MAX {
            return Err(Unsafe::Id(id));
        }
        if voters.contains(&id) || learners.contains(&id) {
            return Err(Unsafe::Member(id));
        }
        if voters.len() + learners.len() >= MEMBERS_MAX {
            return Err(Unsafe::TooMany);
        }
        Ok(vec![Step::Learner(id)])
    }

    fn swap(&self, promote: &[u64], remove: &[u64]) -> Result<Vec<Step>, Unsafe> {
        let mut voters = self.members.voters.clone();
        for id in promote {
            if voters.contains(id) || !self.members.learners.contains(id) {
                return Err(Unsafe::NoLearner(*id));
            }
            let Some(peer) = self.peers.get(id).filter(|peer| peer.alive) else {
                return Err(Unsafe::Silent(*id));
            };
            let (lag, max) = (self.last.saturating_sub(peer.matched), self.lag_max);
            if lag > max || peer.matched == 0 {
                return Err(Unsafe::Lags { id: *id, lag, max });
            }
            voters.push(*id);
        }
        for id in remove {
            if *id == self.me {
                return Err(Unsafe::Leads(*id));
            }
            let Some(at) = voters.iter().position(|voter| voter == id) else {
                return Err(Unsafe::Stranger(*id));
            };
            if promote.contains(id) {
                return Err(Unsafe::NoLearner(*id));
            }
            voters.swap_remove(at);
        }
        if promote.is_empty() && remove.is_empty() {
            return Err(Unsafe::Nothing);
        }
        self.quorum(&voters)?;
        let steps = promote.iter().map(|id| Step::Voter(*id));
        Ok(steps
            .chain(remove.iter().map(|id| Step::Remove(*id)))
            .collect())
    }

    fn quorum(&self, voters: &[u64]) -> Result<(), Unsafe> {
        if voters.is_empty() {
            return Err(Unsafe::NoVoter);
        }
        let alive =
            |id: &&u64| **id == self.me || self.peers.get(id).is_some_and(|peer| peer.alive);
        let (alive, needed) = (voters.iter().filter(alive).count(), voters.len() / 2 + 1);
        if alive < needed {
            return Err(Unsafe::NoQuorum {
                voters: voters.len(),
                alive,
                needed,
            });
        }
        Ok(())
    }
}
