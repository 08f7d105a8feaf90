//! Digest: a short summary of an agent's tasks and executors. It shows whether an agent and its
//! master agree, and where they differ.
//!
//! Each item (a task or an executor) has a [`Fingerprint`]: a hash of its name, and a hash of
//! everything that a master stores about it. The name hash selects a bucket; a [`Digest`] has the
//! sum of the content hashes of each bucket. Equal [`DigestSummary`] values mean equal contents.
//! Otherwise the differing buckets determine the items to send.
//!
//! The hash is SipHash-2-4: its definition is fixed, so it is the same on every machine and in
//! every version, which the hashers of `std` do not guarantee. Its key is random for each agent: a
//! framework chooses its task names, and without the key it cannot choose names that collide or
//! cancel out. Sums modulo 2^64 need one addition per update, do not depend on the order, and
//! detect a duplicate item, unlike XOR. Two different contents look equal with probability 2^-64.
//!
//! Hashes are computed over a separate encoding (`digest/encoding.rs`), not the wire form. A digest
//! does not decide which side is right.

mod encoding;

use std::fmt;

use resources::Resources;
use serde::{Deserialize, Serialize};
use siphasher::sip::SipHasher24;

use crate::id::{ExecutorId, FrameworkId, TaskId};
use crate::message::registration::{AgentInventory, InventoryReport, RunningExecutor, RunningTask};
use crate::task::status::TaskState;
use crate::task::{ExecutorInfo, Labels, TaskInfo};
use encoding::Writer;

/// Version of encoding and hash. Digests of different versions are not comparable.
pub const FORM: u8 = 2;
/// Maximum number of buckets.
pub const BUCKETS_MAX: usize = 1024;
/// Average number of items in a bucket. At 4, the items of a bucket are about as large as the list
/// of sums that identifies it.
const ITEMS_PER_BUCKET: usize = 4;

/// The key of an agent's digests, known only to the agent and its master.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DigestKey([u8; 16]);

impl DigestKey {
    /// A key of these bytes, which must be random.
    pub fn new(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }
}

impl fmt::Debug for DigestKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DigestKey(..)")
    }
}

/// The hashes of one item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint {
    /// Hash of kind, framework and id. Selects the bucket.
    pub name_hash: u64,
    /// Hash of the name and the content.
    pub value: u64,
}

/// The part of a task that a master stores, without the names. Immutable parts (command, data) are
/// absent: both sides have them from the launch.
#[derive(Clone, Copy, Debug)]
pub struct TaskContent<'a> {
    /// Name.
    pub name: &'a str,
    /// Executor that runs it.
    pub executor_id: &'a str,
    /// Resources in use.
    pub resources: &'a Resources,
    /// Labels.
    pub labels: &'a Labels,
    /// User from its command, if any.
    pub user: Option<&'a str>,
    /// Newest state known to the agent. A terminal task stays until its terminal update is
    /// acknowledged.
    pub state: TaskState,
}

impl<'a> TaskContent<'a> {
    /// The content of a launched task.
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

/// Computes fingerprints, with a reused buffer.
#[derive(Debug)]
pub struct Fingerprinter {
    key: DigestKey,
    writer: Writer,
}

impl Fingerprinter {
    /// Uses this key.
    pub fn new(key: DigestKey) -> Self {
        Self {
            key,
            writer: Writer::default(),
        }
    }

    /// Fingerprint of a task.
    pub fn task(
        &mut self,
        framework: &FrameworkId,
        id: &TaskId,
        sketch: TaskContent<'_>,
    ) -> Fingerprint {
        let name_hash = self.task_name_hash(framework, id);
        self.writer.task(sketch);
        let value = self.hash();
        Fingerprint { name_hash, value }
    }

    /// Fingerprint of a framework's own executor.
    pub fn executor(&mut self, framework: &FrameworkId, info: &ExecutorInfo) -> Fingerprint {
        let name_hash = self.executor_name_hash(framework, &info.executor_id);
        self.writer.executor(info);
        let value = self.hash();
        Fingerprint { name_hash, value }
    }

    /// Name hash of a task.
    pub fn task_name_hash(&mut self, framework: &FrameworkId, id: &TaskId) -> u64 {
        self.writer
            .begin(encoding::TASK, framework.as_str(), id.as_str());
        self.hash()
    }

    /// Name hash of a framework's own executor.
    pub fn executor_name_hash(&mut self, framework: &FrameworkId, id: &ExecutorId) -> u64 {
        self.writer
            .begin(encoding::EXECUTOR, framework.as_str(), id.as_str());
        self.hash()
    }

    fn hash(&self) -> u64 {
        SipHasher24::new_with_key(&self.key.0).hash(self.writer.bytes())
    }

    fn running_task(&mut self, task: &RunningTask) -> Fingerprint {
        let sketch = TaskContent::of(&task.info, task.state);
        self.task(&task.framework_id, &task.info.task_id, sketch)
    }

    fn running_executor(&mut self, executor: &RunningExecutor) -> Fingerprint {
        self.executor(&executor.framework_id, &executor.info)
    }

    /// Fingerprints of all items, in no particular order.
    pub fn fingerprints(&mut self, held: &AgentInventory) -> Vec<Fingerprint> {
        let mut prints = Vec::with_capacity(held.tasks.len() + held.executors.len());
        prints.extend(held.tasks.iter().map(|task| self.running_task(task)));
        let executors = held.executors.iter();
        prints.extend(executors.map(|executor| self.running_executor(executor)));
        prints
    }

    /// Summary of all items.
    pub fn summary(&mut self, held: &AgentInventory) -> DigestSummary {
        Digest::of(self.fingerprints(held), 1).summary(self.key)
    }

    /// The items of all buckets whose sums differ from `theirs`. The length of `theirs` is a power
    /// of two.
    pub fn report(&mut self, mut held: AgentInventory, theirs: &[u64]) -> InventoryReport {
        let of = theirs.len();
        let differing = Digest::of(self.fingerprints(&held), of).differing(theirs);
        let differs = |print: Fingerprint| {
            differing
                .binary_search(&bucket(print.name_hash, of))
                .is_ok()
        };
        held.tasks.retain(|task| differs(self.running_task(task)));
        held.executors
            .retain(|executor| differs(self.running_executor(executor)));
        held.drop_unused_frameworks();
        InventoryReport {
            buckets: of as u32,
            differing,
            held,
        }
    }
}

/// Number of buckets for this number of items, a power of two.
pub fn buckets_for(items: usize) -> usize {
    let wanted = items.div_ceil(ITEMS_PER_BUCKET);
    wanted.clamp(1, BUCKETS_MAX).next_power_of_two()
}

/// Whether this is a valid number of buckets.
pub fn is_bucket_count(buckets: usize) -> bool {
    buckets.is_power_of_two() && buckets <= BUCKETS_MAX
}

/// The bucket of `name_hash` among `of` buckets, a power of two.
pub fn bucket(name_hash: u64, of: usize) -> u32 {
    (name_hash & (of as u64).wrapping_sub(1)) as u32
}

/// The short form of a digest, sufficient when nothing differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DigestSummary {
    /// [`FORM`] of its sender.
    pub form: u8,
    /// Key of the digest.
    pub key: DigestKey,
    /// Number of items.
    pub items: u32,
    /// Sum of all values.
    pub sum: u64,
}

/// The sums of all buckets.
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
    /// A digest of these items, with this number of buckets (see [`buckets_for`]).
    pub fn of(prints: impl IntoIterator<Item = Fingerprint>, buckets: usize) -> Self {
        let buckets = buckets.clamp(1, BUCKETS_MAX).next_power_of_two();
        let mut digest = Self {
            items: 0,
            sum: 0,
            buckets: vec![0; buckets],
        };
        prints.into_iter().for_each(|print| digest.add(print));
        digest
    }

    /// Adds an item.
    pub fn add(&mut self, print: Fingerprint) {
        self.items = self.items.wrapping_add(1);
        self.shift(print.name_hash, print.value);
    }

    /// Removes an item that was added before.
    pub fn remove(&mut self, print: Fingerprint) {
        self.items = self.items.wrapping_sub(1);
        self.shift(print.name_hash, print.value.wrapping_neg());
    }

    /// Replaces the content of an item.
    pub fn change(&mut self, before: Fingerprint, after: Fingerprint) {
        self.remove(before);
        self.add(after);
    }

    fn shift(&mut self, name_hash: u64, by: u64) {
        self.sum = self.sum.wrapping_add(by);
        let bucket = bucket(name_hash, self.buckets.len()) as usize;
        if let Some(sum) = self.buckets.get_mut(bucket) {
            *sum = sum.wrapping_add(by);
        }
    }

    /// Number of items.
    pub fn items(&self) -> u32 {
        self.items
    }

    /// The sums, by bucket.
    pub fn buckets(&self) -> &[u64] {
        &self.buckets
    }

    /// Whether the items have become so many that the digest should be rebuilt with more buckets.
    pub fn is_outgrown(&self) -> bool {
        buckets_for(self.items as usize) >= 4 * self.buckets.len()
    }

    /// The short form.
    pub fn summary(&self, key: DigestKey) -> DigestSummary {
        DigestSummary {
            form: FORM,
            key,
            items: self.items,
            sum: self.sum,
        }
    }

    /// The buckets whose sums differ from `theirs`, which has the same length.
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
