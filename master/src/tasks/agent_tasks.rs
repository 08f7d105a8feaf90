//! The tasks and executors on one agent, their resources, and their digest.
//!
//! Plain data. The digest follows each change at the cost of one print; the tasks themselves are
//! stored with their frameworks.

use std::collections::BTreeMap;
use std::sync::Arc;

use protocol::digest::{self, Digest, DigestKey, Fingerprint, Fingerprinter};
use protocol::{ExecutorId, ExecutorInfo, FrameworkId, TaskId};
use resources::Resources;

use super::{Holdings, Task};

/// The tasks, executors and held resources on one agent.
#[derive(Clone, Debug, Default)]
pub struct AgentTasks {
    /// The key of the agent's digests, once known.
    key: Option<DigestKey>,
    digest: Digest,
    tasks: BTreeMap<(FrameworkId, TaskId), Fingerprint>,
    pub(super) executors: BTreeMap<(FrameworkId, ExecutorId), (Arc<ExecutorInfo>, Fingerprint)>,
    pub(super) held: Holdings,
}

impl AgentTasks {
    /// The tasks there, including ended ones that are not acknowledged.
    pub fn tasks(&self) -> impl Iterator<Item = &(FrameworkId, TaskId)> {
        self.tasks.keys()
    }

    /// The tasks there with their places in the agent's digests.
    pub fn placed_tasks(&self) -> impl Iterator<Item = (&(FrameworkId, TaskId), u64)> {
        self.tasks.iter().map(|(key, print)| (key, print.name_hash))
    }

    /// The frameworks' own executors there.
    pub fn executors(&self) -> impl Iterator<Item = (&FrameworkId, &Arc<ExecutorInfo>)> {
        self.executors
            .iter()
            .map(|((framework, _), (info, _))| (framework, info))
    }

    /// The owners of tasks and executors, with repetitions.
    pub fn frameworks(&self) -> impl Iterator<Item = &FrameworkId> {
        let tasks = self.tasks.keys().map(|(framework, _)| framework);
        tasks.chain(self.executors.keys().map(|(framework, _)| framework))
    }

    /// The frameworks' own executors there with their places in the agent's digests.
    pub fn placed_executors(&self) -> impl Iterator<Item = (&(FrameworkId, ExecutorId), u64)> {
        let placed = |(key, (_, print)): (_, &(_, Fingerprint))| (key, print.name_hash);
        self.executors.iter().map(placed)
    }

    /// The digest of everything there, updated with each change.
    pub fn digest(&self) -> &Digest {
        &self.digest
    }

    /// The prints in the digest, in no particular order.
    pub fn prints(&self) -> impl Iterator<Item = Fingerprint> {
        let executors = self.executors.values().map(|(_, print)| *print);
        self.tasks.values().copied().chain(executors)
    }

    /// The key of the agent's digests, once known.
    pub fn key(&self) -> Option<DigestKey> {
        self.key
    }

    /// The framework's own executor with that id.
    pub fn executor(&self, framework: &FrameworkId, id: &ExecutorId) -> Option<&ExecutorInfo> {
        let executors = self.executors.get(&(framework.clone(), id.clone()));
        executors.map(|(info, _)| info.as_ref())
    }

    fn printer(&self) -> Fingerprinter {
        Fingerprinter::new(self.key.unwrap_or(DigestKey::new([0; 16])))
    }

    /// Makes all prints again with this key.
    pub(super) fn rekey<'a>(
        &mut self,
        key: DigestKey,
        task: impl Fn(&FrameworkId, &TaskId) -> Option<&'a Task>,
    ) {
        self.key = Some(key);
        let mut printer = self.printer();
        for ((framework, id), print) in &mut self.tasks {
            if let Some(task) = task(framework, id) {
                *print = printer.task(framework, id, task.sketch());
            }
        }
        for ((framework, _), (info, print)) in &mut self.executors {
            *print = printer.executor(framework, info);
        }
        self.rebuild();
    }

    /// Adds a task with a print that the digest does not contain yet, see [`AgentTasks::begin`].
    pub(super) fn put_print(&mut self, task: &Task, print: Fingerprint) {
        let key = (task.framework_id.clone(), task.id.clone());
        self.tasks.insert(key, print);
    }

    /// Builds the digest from all prints, which were made with this key.
    pub(super) fn begin(&mut self, key: DigestKey) {
        self.key = Some(key);
        self.rebuild();
    }

    pub(super) fn put_task(&mut self, task: &Task) {
        let print = self
            .printer()
            .task(&task.framework_id, &task.id, task.sketch());
        let key = (task.framework_id.clone(), task.id.clone());
        if let Some(before) = self.tasks.insert(key, print) {
            self.digest.remove(before);
        }
        self.add_print(print);
    }

    pub(super) fn take_task(&mut self, framework: &FrameworkId, task: &TaskId) {
        if let Some(print) = self.tasks.remove(&(framework.clone(), task.clone())) {
            self.digest.remove(print);
        }
    }

    /// Adds an executor, replacing one with the same id.
    pub(super) fn put_executor(&mut self, framework: &FrameworkId, info: &ExecutorInfo) {
        self.take_executor(framework, &info.executor_id);
        let print = self.printer().executor(framework, info);
        let key = (framework.clone(), info.executor_id.clone());
        self.executors.insert(key, (Arc::new(info.clone()), print));
        self.hold(framework, &info.resources);
        self.add_print(print);
    }

    pub(super) fn take_executor(
        &mut self,
        framework: &FrameworkId,
        executor: &ExecutorId,
    ) -> Option<Arc<ExecutorInfo>> {
        let key = (framework.clone(), executor.clone());
        let (info, print) = self.executors.remove(&key)?;
        self.digest.remove(print);
        self.free(framework, &info.resources);
        Some(info)
    }

    fn add_print(&mut self, print: Fingerprint) {
        self.digest.add(print);
        if self.digest.is_outgrown() {
            self.rebuild();
        }
    }

    fn rebuild(&mut self) {
        let buckets = digest::buckets_for(self.tasks.len() + self.executors.len());
        self.digest = Digest::of(self.prints(), buckets);
    }

    /// Resources held by tasks and executors there, by framework.
    pub fn held(&self) -> &Holdings {
        &self.held
    }

    pub(super) fn hold(&mut self, framework: &FrameworkId, resources: &Resources) {
        self.held.hold(framework, resources);
    }

    pub(super) fn free(&mut self, framework: &FrameworkId, resources: &Resources) {
        self.held.free(framework, resources);
    }

    /// Keeps the visible tasks and executors. Held resources and the digest stay complete.
    pub(super) fn keep_visible(
        &mut self,
        task: impl Fn(&FrameworkId, &TaskId) -> bool,
        executor: &impl Fn(&FrameworkId, &ExecutorInfo) -> bool,
    ) {
        self.tasks.retain(|(owner, id), _| task(owner, id));
        self.executors
            .retain(|(owner, _), (info, _)| executor(owner, info));
    }

    /// Whether it can be forgotten. An entry with a key stays until its agent is removed.
    pub(super) fn is_idle(&self) -> bool {
        self.key.is_none() && self.tasks.is_empty() && self.executors.is_empty()
    }
}
