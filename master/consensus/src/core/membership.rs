//! The safety checks of membership changes. Pure: the leader's view is an argument.

use std::collections::BTreeMap;

use super::convert::{Change, Step};
use crate::log::Members;
use crate::wire::{MEMBERS_MAX, NUMBER_MAX};

/// A change of members. Only one at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MembershipChange {
    /// Adds a member without a vote.
    AddLearner(u64),
    /// Makes a learner a voter.
    Promote(u64),
    /// Removes a member.
    Remove(u64),
    /// Replaces voters by learners in one joint change, which needs majorities of the old and the
    /// new voters.
    Swap {
        /// The learners that become voters.
        promote: Vec<u64>,
        /// The voters to remove.
        remove: Vec<u64>,
    },
}

/// The leader's view of another member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerView {
    /// The last entry that it is known to have.
    pub matched: u64,
    /// Whether a message from it arrived recently.
    pub alive: bool,
}

/// The leader's view of the group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupView {
    /// The leader.
    pub me: u64,
    /// The members as applied.
    pub members: Members,
    /// The other members.
    pub peers: BTreeMap<u64, PeerView>,
    /// The leader's last entry.
    pub last: u64,
    /// Whether an earlier change, or the first entry of the leader's term, is not applied yet.
    pub pending: bool,
    /// The most missing entries of a learner that may be promoted.
    pub lag_max: u64,
}

/// Why a change is unsafe.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unsafe {
    /// An earlier change is not finished.
    #[error(
        "an earlier change of members is not finished, or this leader is too new to know: try again"
    )]
    Pending,
    /// It is a member already.
    #[error("{0} is a member already")]
    Member(u64),
    /// It is not a member.
    #[error("{0} is not a member")]
    NotMember(u64),
    /// It is a voter already, or named twice.
    #[error("{0} is not a learner")]
    NotLearner(u64),
    /// The number is invalid.
    #[error("{0} cannot be a member's id: ids are from 1 to 2^62")]
    Id(u64),
    /// The group is full.
    #[error("a group has at most {MEMBERS_MAX} members")]
    TooMany,
    /// The learner must catch up first.
    #[error("{id} lacks {lag} entries, at most {max} may be missing: wait until it has caught up")]
    Lags {
        /// The learner's number.
        id: u64,
        /// The entries that it lacks.
        lag: u64,
        /// The bound.
        max: u64,
    },
    /// It would vote, and no message from it arrived recently.
    #[error("no recent message from {0}")]
    Silent(u64),
    /// No voter would remain.
    #[error("no voter would be left")]
    NoVoter,
    /// A leader cannot remove itself.
    #[error("{0} leads: transfer the leadership first")]
    Leads(u64),
    /// Too few of the new voters are alive.
    #[error("of {voters} voters only {alive} would be alive, and {needed} are needed")]
    NoQuorum {
        /// The new voters.
        voters: usize,
        /// Those with recent messages.
        alive: usize,
        /// A majority.
        needed: usize,
    },
    /// The change is empty.
    #[error("nothing would change")]
    Nothing,
}

/// Checks a change. Returns the form for the log.
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
                return Err(Unsafe::NotLearner(*id));
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
                return Err(Unsafe::NotMember(*id));
            };
            if promote.contains(id) {
                return Err(Unsafe::NotLearner(*id));
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn view() -> impl Strategy<Value = GroupView> {
        let peer = (0..40u64, any::<bool>());
        let roles = prop::collection::vec((0..3u8, peer), 5);
        roles.prop_map(|roles| {
            let mut members = Members::of([1]);
            let mut peers = BTreeMap::new();
            for (id, (role, (matched, alive))) in (2..).zip(roles) {
                match role {
                    0 => continue,
                    1 => members.voters.push(id),
                    _ => members.learners.push(id),
                }
                let peer = PeerView { matched, alive };
                peers.insert(id, peer);
            }
            GroupView {
                me: 1,
                members,
                peers,
                last: 40,
                pending: false,
                lag_max: 10,
            }
        })
    }

    fn change() -> impl Strategy<Value = MembershipChange> {
        let ids = || prop::collection::vec(0..7u64, 0..3);
        prop_oneof![
            (0..7u64).prop_map(MembershipChange::AddLearner),
            (0..7u64).prop_map(MembershipChange::Promote),
            (0..7u64).prop_map(MembershipChange::Remove),
            (ids(), ids()).prop_map(|(promote, remove)| MembershipChange::Swap { promote, remove }),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn allowed_changes_keep_a_live_majority(view in view(), change in change()) {
            let Ok(allowed) = check(&change, &view, Vec::new()) else {
                return Ok(());
            };
            let mut voters = view.members.voters.clone();
            for step in &allowed.steps {
                match step {
                    Step::Voter(id) => {
                        let peer = view.peers[id];
                        prop_assert!(peer.alive && peer.matched >= 30 && !voters.contains(id));
                        voters.push(*id);
                    }
                    Step::Remove(id) => voters.retain(|voter| voter != id),
                    Step::Learner(id) => prop_assert!(!view.peers.contains_key(id) && *id != 1),
                }
            }
            prop_assert!(voters.contains(&1), "the leader stays");
            let alive = voters.iter().filter(|id| **id == 1 || view.peers[id].alive).count();
            prop_assert!(voters == view.members.voters || alive > voters.len() / 2);
            prop_assert!(!allowed.steps.is_empty());
        }

        #[test]
        fn no_change_while_another_is_pending(mut view in view(), change in change()) {
            view.pending = true;
            prop_assert_eq!(check(&change, &view, Vec::new()), Err(Unsafe::Pending));
        }
    }
}
