//! Linearizable reads that wait for their read index.
//!
//! The raft crate silently drops read requests: without a leader, before the leader's first commit
//! in its term, after a change of leaders, and with lost packets. So they are kept here, repeated,
//! and finally rejected. All reads between two turns form one request. With a `lease` the leader
//! answers without a request.

pub(in crate::core) mod lease;

use std::collections::BTreeMap;

/// Identifies a read until it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReadId(pub u64);

struct Waiting {
    id: ReadId,
    since: u64,
}

struct Batch {
    reads: Vec<Waiting>,
    asked: u64,
}

/// The reads of this member.
pub(crate) struct Reads {
    me: u64,
    /// Random, so that an answer for an earlier run matches nothing.
    incarnation: u64,
    next_id: u64,
    next_batch: u64,
    waiting: Vec<Waiting>,
    asked: BTreeMap<u64, Batch>,
    count: usize,
}

impl Reads {
    pub fn new(me: u64, incarnation: u64) -> Self {
        Self {
            me,
            incarnation,
            next_id: 1,
            next_batch: 1,
            waiting: Vec::new(),
            asked: BTreeMap::new(),
            count: 0,
        }
    }

    pub fn count(&self) -> usize {
        self.count
    }

    pub fn add(&mut self, now: u64) -> ReadId {
        let id = ReadId(self.next_id);
        self.next_id += 1;
        self.count += 1;
        self.waiting.push(Waiting { id, since: now });
        id
    }

    /// Makes one request of all waiting reads. Returns its context.
    pub fn ask(&mut self, now: u64) -> Option<Vec<u8>> {
        if self.waiting.is_empty() {
            return None;
        }
        let batch = self.next_batch;
        self.next_batch += 1;
        self.asked.insert(
            batch,
            Batch {
                reads: std::mem::take(&mut self.waiting),
                asked: now,
            },
        );
        let parts = [self.me, self.incarnation, batch];
        Some(parts.iter().flat_map(|part| part.to_be_bytes()).collect())
    }

    /// The tick of a pending request of this member.
    pub fn asked_at(&self, context: &[u8]) -> Option<u64> {
        let [me, incarnation, batch] = parts(context)?;
        let batch = self.asked.get(&batch)?;
        (me == self.me && incarnation == self.incarnation).then_some(batch.asked)
    }

    /// Removes the reads that are in no request yet, to answer them from the lease.
    pub fn take_waiting(&mut self) -> Vec<ReadId> {
        let waiting = std::mem::take(&mut self.waiting);
        self.count -= waiting.len();
        waiting.into_iter().map(|read| read.id).collect()
    }

    /// The reads that this answer covers; it also answers all earlier requests.
    pub fn answered(&mut self, context: &[u8]) -> Vec<ReadId> {
        let Some([me, incarnation, batch]) = parts(context) else {
            return Vec::new();
        };
        if me != self.me || incarnation != self.incarnation {
            return Vec::new();
        }
        let later = self.asked.split_off(&batch.saturating_add(1));
        let asked = std::mem::replace(&mut self.asked, later);
        let ids: Vec<ReadId> = asked
            .into_values()
            .flat_map(|batch| batch.reads)
            .map(|read| read.id)
            .collect();
        self.count -= ids.len();
        ids
    }

    /// Repeats all pending requests, because the leader changed.
    pub fn ask_again(&mut self) {
        for batch in std::mem::take(&mut self.asked).into_values() {
            self.waiting.extend(batch.reads);
        }
        self.waiting.sort_by_key(|read| read.id);
    }

    /// Repeats requests that are unanswered for `again` ticks. Returns the reads that have waited
    /// for `max`.
    pub fn tick(&mut self, now: u64, again: u64, max: u64) -> Vec<ReadId> {
        if self
            .asked
            .values()
            .next()
            .is_some_and(|batch| now.saturating_sub(batch.asked) >= again)
        {
            self.ask_again();
        }
        let mut given_up = Vec::new();
        let asked = self.asked.values_mut().map(|batch| &mut batch.reads);
        for reads in asked.chain([&mut self.waiting]) {
            reads.retain(|read| {
                let keep = now.saturating_sub(read.since) < max;
                if !keep {
                    given_up.push(read.id);
                }
                keep
            });
        }
        self.asked.retain(|_, batch| !batch.reads.is_empty());
        self.count -= given_up.len();
        given_up
    }
}

/// The member, its run, and the request.
fn parts(context: &[u8]) -> Option<[u64; 3]> {
    let bytes = <[u8; 24]>::try_from(context).ok()?;
    let part = |nth: usize| {
        let bytes = bytes[8 * nth..8 * nth + 8].iter();
        bytes.fold(0, |sum, byte| (sum << 8) | u64::from(*byte))
    };
    Some([part(0), part(1), part(2)])
}
