//! Followers: who gets the next batch, and made from what.
//!
//! Plain data. Remembers of each follower where it is, what it has, and whether a batch is on its way to it. There is never more than one:
//! whoever is slow misses the snapshots in between, and gets the difference to the newest then. Nothing waits in a queue.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use runtime::Pid;

use super::Heard;
use super::change::Change;
use crate::books::Books;

/// A batch's pieces, made once by whoever needs them first.
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
    has: Option<(u64, Arc<Books>)>,
    is_under_way: bool,
}

/// One follower is to be told this.
#[derive(Clone, Debug)]
pub struct Order {
    /// Where it is reached.
    pub address: String,
    /// Its mirror, if it was found before.
    pub pid: Option<Pid>,
    /// The batch's number.
    pub sequence: u64,
    /// The number of what it has, and the books as they were then; nothing of this leader's if none.
    pub base: Option<(u64, Arc<Books>)>,
    /// Shared by all who have the same.
    pub pieces: Pieces,
}

impl Followers {
    /// There is a new snapshot for the followers at these addresses: what is to be told now, and to whom.
    pub fn next(&mut self, addresses: &BTreeSet<String>, books: &Books) -> Vec<Order> {
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
            // A master that was started anew within the term is not the one whose books these are.
            let same = |(_, had): &(u64, Arc<Books>)| {
                (&had.master, had.elected) == (&books.master, books.elected)
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

    /// The follower was told, and gave this answer to the last piece; none if it did not answer, or was not found.
    pub fn told(
        &mut self,
        order: &Order,
        books: Arc<Books>,
        pid: Option<Pid>,
        answer: Option<Heard>,
    ) {
        let Some(follower) = self.by_address.get_mut(&order.address) else {
            return;
        };
        follower.is_under_way = false;
        follower.pid = pid;
        match answer {
            Some(Heard::Taken) => follower.has = Some((order.sequence, books)),
            Some(Heard::WantsWhole) => follower.has = None,
            // It was looked for and not found: what it had need not be kept for it.
            None if order.pid.is_none() => follower.has = None,
            // What it has may still be what it had.
            Some(Heard::Refused { .. }) | None => {}
        }
    }
}
