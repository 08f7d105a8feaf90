//! Reads that wait to know from which index on they see every earlier write.
//!
//! raft drops such questions without a word: when there is no leader, when the leader has committed nothing in its term yet, when
//! leadership changes, when a packet is lost. So they are remembered here, asked again, and refused in the end. All that
//! come between two turns are one question.

use std::collections::BTreeMap;

/// What a read is known by until it is answered.
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
    /// Drawn at the start, so that an answer for an earlier life matches nothing.
    life: u64,
    next_id: u64,
    next_batch: u64,
    waiting: Vec<Waiting>,
    asked: BTreeMap<u64, Batch>,
    count: usize,
}

impl Reads {
    pub fn new(me: u64, life: u64) -> Self {
        Self {
            me,
            life,
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

    /// All that wait become one question, known by these bytes.
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
        let parts = [self.me, self.life, batch];
        Some(parts.iter().flat_map(|part| part.to_be_bytes()).collect())
    }

    /// When this was asked, if it is a question of this member that still waits.
    pub fn asked_at(&self, context: &[u8]) -> Option<u64> {
        let [me, life, batch] = parts(context)?;
        let batch = self.asked.get(&batch)?;
        (me == self.me && life == self.life).then_some(batch.asked)
    }

    /// The reads that wait and were not asked of anybody yet: they are answered without.
    pub fn take_waiting(&mut self) -> Vec<ReadId> {
        let waiting = std::mem::take(&mut self.waiting);
        self.count -= waiting.len();
        waiting.into_iter().map(|read| read.id).collect()
    }

    /// The reads that this answer is for; it also answers those that were asked before.
    pub fn answered(&mut self, context: &[u8]) -> Vec<ReadId> {
        let Some([me, life, batch]) = parts(context) else {
            return Vec::new();
        };
        if me != self.me || life != self.life {
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

    /// Whatever was asked is asked again: the leader it was asked of is none any more.
    pub fn ask_again(&mut self) {
        for batch in std::mem::take(&mut self.asked).into_values() {
            self.waiting.extend(batch.reads);
        }
        self.waiting.sort_by_key(|read| read.id);
    }

    /// Asks again what got no answer for `again` ticks, and gives up what has waited for `max`.
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

/// Who asked, in which life, and which question.
fn parts(context: &[u8]) -> Option<[u64; 3]> {
    let bytes = <[u8; 24]>::try_from(context).ok()?;
    let part = |nth: usize| {
        let bytes = bytes[8 * nth..8 * nth + 8].iter();
        bytes.fold(0, |sum, byte| (sum << 8) | u64::from(*byte))
    };
    Some([part(0), part(1), part(2)])
}
