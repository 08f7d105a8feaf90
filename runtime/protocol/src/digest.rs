//! Digest: what an agent holds in a few numbers, so that it and its master can tell whether they agree, and where not.
//!
//! Pure. Each item (a task, an executor) has a [`Print`]: a place, which follows from what it is called, and a value, which
//! follows from all that a master remembers of it. A [`Digest`] adds up the values of the items of each bucket. Equal
//! [`Summary`]s are equal content; else the buckets that differ name the items to be told.
//!
//! Why sums of SipHash-2-4: it is fixed by its paper, so that it gives the same on every machine and in every version of
//! this software, which the hashers of std do not promise. The key is the agent's own and drawn by chance: a framework
//! chooses the names of its tasks, and without the key it cannot choose ones whose values collide or cancel each other. Sums
//! modulo 2^64 are updated with one addition, do not depend on the order, and see an item that is counted twice, which an
//! exclusive or does not. Two different contents look equal by a chance of 2^-64.
//!
//! The values are taken over an encoding of their own (`digest/encoding.rs`), not over the wire's. It never says which of the
//! two sides is right.

mod encoding;

use std::fmt;

use resources::Resources;
use serde::{Deserialize, Serialize};
use siphasher::sip::SipHasher24;

use crate::id::{ExecutorId, FrameworkId, TaskId};
use crate::message::registration::{Held, Report, RunningExecutor, RunningTask};
use crate::status::TaskState;
use crate::task::{ExecutorInfo, Labels, TaskInfo};
use encoding::Writer;

/// Which encoding and which hash; two sides that count differently do not compare.
pub const FORM: u8 = 1;
/// The most buckets that a digest has.
pub const BUCKETS_MAX: usize = 1024;
/// How many items a bucket has on average: so few that a bucket costs about as much to tell as the sums that name it.
const ITEMS_PER_BUCKET: usize = 4;

/// What makes an agent's digests its own. Only the agent and its master know it.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DigestKey([u8; 16]);

impl DigestKey {
    /// A key of these bytes, which should be drawn by chance.
    pub fn new(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }
}

impl fmt::Debug for DigestKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DigestKey(..)")
    }
}

/// One item in a digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Print {
    /// Follows from what it is called: its bucket is found by it.
    pub place: u64,
    /// Follows from that and from its content.
    pub value: u64,
}

/// What a master remembers of a task, beside what it is called. What cannot change (the command, the data) is left out: both
/// sides have it from the same launch.
#[derive(Clone, Copy, Debug)]
pub struct TaskSketch<'a> {
    /// Its name.
    pub name: &'a str,
    /// Who runs it.
    pub executor_id: &'a str,
    /// What it uses.
    pub resources: &'a Resources,
    /// Its notes.
    pub labels: &'a Labels,
    /// The user it runs as, where it says so.
    pub user: Option<&'a str>,
    /// The newest state that its agent knows. A task is held until its end has been acknowledged, so one that has ended is
    /// one whose end has not.
    pub state: TaskState,
}

impl<'a> TaskSketch<'a> {
    /// Of a task as it was launched.
    pub fn of(info: &'a TaskInfo, state: TaskState) -> Self {
        let own = info.executor.as_ref();
        let command = info.command.as_ref().or(own.map(|own| &own.command));
        Self {
            name: &info.name,
            executor_id: own.map_or(info.task_id.as_str(), |own| own.executor_id.as_str()),
            resources: &info.resources,
            labels: &info.labels,
            user: command.and_then(|command| command.user.as_deref()),
            state,
        }
    }
}

/// Makes prints. It keeps its room between them.
#[derive(Debug)]
pub struct Printer {
    key: DigestKey,
    writer: Writer,
}

impl Printer {
    /// With this key.
    pub fn new(key: DigestKey) -> Self {
        Self {
            key,
            writer: Writer::default(),
        }
    }

    /// Of a task.
    pub fn task(&mut self, framework: &FrameworkId, id: &TaskId, sketch: TaskSketch<'_>) -> Print {
        let place = self.task_place(framework, id);
        self.writer.task(sketch);
        let value = self.hash();
        Print { place, value }
    }

    /// Of a framework's own executor.
    pub fn executor(&mut self, framework: &FrameworkId, info: &ExecutorInfo) -> Print {
        let place = self.executor_place(framework, &info.executor_id);
        self.writer.executor(info);
        let value = self.hash();
        Print { place, value }
    }

    /// The place of a task.
    pub fn task_place(&mut self, framework: &FrameworkId, id: &TaskId) -> u64 {
        self.writer
            .begin(encoding::TASK, framework.as_str(), id.as_str());
        self.hash()
    }

    /// The place of a framework's own executor.
    pub fn executor_place(&mut self, framework: &FrameworkId, id: &ExecutorId) -> u64 {
        self.writer
            .begin(encoding::EXECUTOR, framework.as_str(), id.as_str());
        self.hash()
    }

    fn hash(&self) -> u64 {
        SipHasher24::new_with_key(&self.key.0).hash(self.writer.bytes())
    }

    fn running_task(&mut self, task: &RunningTask) -> Print {
        let sketch = TaskSketch::of(&task.info, task.state);
        self.task(&task.framework_id, &task.info.task_id, sketch)
    }

    fn running_executor(&mut self, executor: &RunningExecutor) -> Print {
        self.executor(&executor.framework_id, &executor.info)
    }

    /// Of all that is held, in no particular order.
    pub fn held(&mut self, held: &Held) -> Vec<Print> {
        let mut prints = Vec::with_capacity(held.tasks.len() + held.executors.len());
        prints.extend(held.tasks.iter().map(|task| self.running_task(task)));
        let executors = held.executors.iter();
        prints.extend(executors.map(|executor| self.running_executor(executor)));
        prints
    }

    /// All that is held, in short.
    pub fn summary(&mut self, held: &Held) -> Summary {
        Digest::of(self.held(held), 1).summary(self.key)
    }

    /// What is held in the buckets whose sums are others than `theirs`, of which there is a power of two.
    pub fn report(&mut self, mut held: Held, theirs: &[u64]) -> Report {
        let of = theirs.len();
        let differing = Digest::of(self.held(&held), of).differing(theirs);
        let differs = |print: Print| differing.binary_search(&bucket(print.place, of)).is_ok();
        held.tasks.retain(|task| differs(self.running_task(task)));
        held.executors
            .retain(|executor| differs(self.running_executor(executor)));
        held.drop_unused_frameworks();
        Report {
            buckets: of as u32,
            differing,
            held,
        }
    }
}

/// How many buckets suit so many items: a power of two.
pub fn buckets_for(items: usize) -> usize {
    let wanted = items.div_ceil(ITEMS_PER_BUCKET);
    wanted.clamp(1, BUCKETS_MAX).next_power_of_two()
}

/// Whether there can be so many buckets.
pub fn is_bucket_count(buckets: usize) -> bool {
    buckets.is_power_of_two() && buckets <= BUCKETS_MAX
}

/// Which of so many buckets, a power of two, has that place.
pub fn bucket(place: u64, of: usize) -> u32 {
    (place & (of as u64).wrapping_sub(1)) as u32
}

/// All that a digest says, if nothing differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// [`FORM`] of whoever made it.
    pub form: u8,
    /// The key it was made with.
    pub key: DigestKey,
    /// How many items.
    pub items: u32,
    /// The sum of their values.
    pub sum: u64,
}

/// The sums of the buckets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Digest {
    items: u32,
    sum: u64,
    buckets: Vec<u64>,
}

impl Default for Digest {
    fn default() -> Self {
        Self::of([], 1)
    }
}

impl Digest {
    /// Of these items, in so many buckets (see [`buckets_for`]).
    pub fn of(prints: impl IntoIterator<Item = Print>, buckets: usize) -> Self {
        let buckets = buckets.clamp(1, BUCKETS_MAX).next_power_of_two();
        let mut digest = Self {
            items: 0,
            sum: 0,
            buckets: vec![0; buckets],
        };
        prints.into_iter().for_each(|print| digest.add(print));
        digest
    }

    /// There is one item more.
    pub fn add(&mut self, print: Print) {
        self.items = self.items.wrapping_add(1);
        self.shift(print.place, print.value);
    }

    /// There is one item less, which was there.
    pub fn remove(&mut self, print: Print) {
        self.items = self.items.wrapping_sub(1);
        self.shift(print.place, print.value.wrapping_neg());
    }

    /// An item that was there has another content.
    pub fn change(&mut self, before: Print, after: Print) {
        self.remove(before);
        self.add(after);
    }

    fn shift(&mut self, place: u64, by: u64) {
        self.sum = self.sum.wrapping_add(by);
        let bucket = bucket(place, self.buckets.len()) as usize;
        if let Some(sum) = self.buckets.get_mut(bucket) {
            *sum = sum.wrapping_add(by);
        }
    }

    /// How many items there are.
    pub fn items(&self) -> u32 {
        self.items
    }

    /// The sums, in order.
    pub fn buckets(&self) -> &[u64] {
        &self.buckets
    }

    /// Whether it has so many items that it should be made anew with more buckets.
    pub fn is_outgrown(&self) -> bool {
        buckets_for(self.items as usize) >= 4 * self.buckets.len()
    }

    /// In short.
    pub fn summary(&self, key: DigestKey) -> Summary {
        Summary {
            form: FORM,
            key,
            items: self.items,
            sum: self.sum,
        }
    }

    /// Where it differs from another side's sums, of which there are as many.
    pub fn differing(&self, theirs: &[u64]) -> Vec<u32> {
        let pairs = self.buckets.iter().zip(theirs).zip(0..);
        pairs
            .filter(|((own, their), _)| own != their)
            .map(|(_, bucket)| bucket)
            .collect()
    }
}

#[cfg(test)]
mod tests;
