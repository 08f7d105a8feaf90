//! Followers of a leader: the next batch of each, and its base.
//!
//! Plain data: each follower's address, its version, and whether a batch is under way, at most one.
//! A slow follower skips snapshots, and then gets the difference to the newest. Nothing is queued.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use runtime::Pid;

use super::UpdateReply;
use super::change::Change;
use crate::state::MasterState;

/// The pieces of a batch, made once when they are first needed.
pub type Pieces = Arc<OnceLock<Vec<Vec<Change>>>>;

/// All followers of one leader, in one term.
#[derive(Debug, Default)]
pub struct Followers {
    sequence: u64,
    by_address: BTreeMap<String, Follower>,
}

#[derive(Debug, Default)]
struct Follower {
    pid: Option<Pid>,
    has: Option<(u64, Arc<MasterState>)>,
    is_under_way: bool,
}

/// A batch to send to one follower.
#[derive(Clone, Debug)]
pub struct Order {
    /// Its address.
    pub address: String,
    /// Its mirror, if found before.
    pub pid: Option<Pid>,
    /// The batch's number.
    pub sequence: u64,
    /// The follower's version and its state; `None` if it has nothing of this leader.
    pub base: Option<(u64, Arc<MasterState>)>,
    /// Shared by all followers with the same version.
    pub pieces: Pieces,
}

impl Followers {
    /// Handles a new snapshot for the followers at these addresses: returns the batches to send
    /// now.
    pub fn next(&mut self, addresses: &BTreeSet<String>, state: &MasterState) -> Vec<Order> {
        self.sequence += 1;
        self.by_address
            .retain(|address, _| addresses.contains(address));
        let mut pieces: BTreeMap<Option<u64>, Pieces> = BTreeMap::new();
        let mut orders = Vec::new();
        for address in addresses {
            let follower = self.by_address.entry(address.clone()).or_default();
            if std::mem::replace(&mut follower.is_under_way, true) {
                continue;
            }
            // A master that was restarted within the term has another state.
            let same = |(_, had): &(u64, Arc<MasterState>)| {
                (&had.master, had.elected) == (&state.master, state.elected)
            };
            let base = follower.has.clone().filter(same);
            let number = base.as_ref().map(|(number, _)| *number);
            orders.push(Order {
                address: address.clone(),
                pid: follower.pid.clone(),
                sequence: self.sequence,
                base,
                pieces: pieces.entry(number).or_default().clone(),
            });
        }
        orders
    }

    /// Records the follower's answer to the last piece; `None` if it was not found or did not
    /// answer.
    pub fn answered(
        &mut self,
        order: &Order,
        state: Arc<MasterState>,
        pid: Option<Pid>,
        answer: Option<UpdateReply>,
    ) {
        let Some(follower) = self.by_address.get_mut(&order.address) else {
            return;
        };
        follower.is_under_way = false;
        follower.pid = pid;
        match answer {
            Some(UpdateReply::Taken) => follower.has = Some((order.sequence, state)),
            Some(UpdateReply::WantsWhole) => follower.has = None,
            // It was not found: its state need not be kept.
            None if order.pid.is_none() => follower.has = None,
            // It may still have its old version.
            Some(UpdateReply::Refused { .. }) | None => {}
        }
    }
}
