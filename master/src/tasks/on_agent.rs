//! What one agent has as the master remembers it: tasks, frameworks' own executors, what they hold, and the digest of it all.
//!
//! Plain data. The digest follows each change at once, at the cost of one print; the tasks themselves are with their frameworks.

use std::collections::BTreeMap;
use std::sync::Arc;

use protocol::digest::{self, Digest, DigestKey, Print, Printer};
use protocol::{ExecutorId, ExecutorInfo, FrameworkId, TaskId};
use resources::Resources;

use super::{Holdings, Task};

/// What is held on one agent, and by whom.
#[derive(Clone, Debug, Default)]
pub struct OnAgent {
    /// The key of the agent's digests, once it has told it.
    key: Option<DigestKey>,
    digest: Digest,
    tasks: BTreeMap<(FrameworkId, TaskId), Print>,
    pub(super) executors: BTreeMap<(FrameworkId, ExecutorId), (Arc<ExecutorInfo>, Print)>,
    pub(super) held: Holdings,
}

impl OnAgent {
    /// The tasks there, ended ones that are not acknowledged included.
    pub fn tasks(&self) -> impl Iterator<Item = &(FrameworkId, TaskId)> {
        self.tasks.keys()
    }

    /// The tasks there, each with its place in the agent's digests.
    pub fn placed_tasks(&self) -> impl Iterator<Item = (&(FrameworkId, TaskId), u64)> {
        self.tasks.iter().map(|(key, print)| (key, print.place))
    }

    /// The frameworks' own executors there.
    pub fn executors(&self) -> impl Iterator<Item = (&FrameworkId, &Arc<ExecutorInfo>)> {
        self.executors
            .iter()
            .map(|((framework, _), (info, _))| (framework, info))
    }

    /// Whose they are, each as often as it has something there.
    pub fn frameworks(&self) -> impl Iterator<Item = &FrameworkId> {
        let tasks = self.tasks.keys().map(|(framework, _)| framework);
        tasks.chain(self.executors.keys().map(|(framework, _)| framework))
    }

    /// The frameworks' own executors there, each with its place in the agent's digests.
    pub fn placed_executors(&self) -> impl Iterator<Item = (&(FrameworkId, ExecutorId), u64)> {
        let placed = |(key, (_, print)): (_, &(_, Print))| (key, print.place);
        self.executors.iter().map(placed)
    }

    /// All of it in a few numbers, kept up to date with each change.
    pub fn digest(&self) -> &Digest {
        &self.digest
    }

    /// What the digest is of, in no particular order.
    pub fn prints(&self) -> impl Iterator<Item = Print> {
        let executors = self.executors.values().map(|(_, print)| *print);
        self.tasks.values().copied().chain(executors)
    }

    /// The key of the agent's digests, once it has told it.
    pub fn key(&self) -> Option<DigestKey> {
        self.key
    }

    /// The framework's own executor of that id.
    pub fn executor(&self, framework: &FrameworkId, id: &ExecutorId) -> Option<&ExecutorInfo> {
        let executors = self.executors.get(&(framework.clone(), id.clone()));
        executors.map(|(info, _)| info.as_ref())
    }

    fn printer(&self) -> Printer {
        Printer::new(self.key.unwrap_or(DigestKey::new([0; 16])))
    }

    /// All prints are made anew with this key.
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

    /// This task is there, with a print that the digest has not counted yet: see [`OnAgent::begin`].
    pub(super) fn put_print(&mut self, task: &Task, print: Print) {
        let key = (task.framework_id.clone(), task.id.clone());
        self.tasks.insert(key, print);
    }

    /// All prints are there, and made with this key.
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

    /// An executor is there from now on, in place of one of the same id.
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

    fn add_print(&mut self, print: Print) {
        self.digest.add(print);
        if self.digest.is_outgrown() {
            self.rebuild();
        }
    }

    fn rebuild(&mut self) {
        let buckets = digest::buckets_for(self.tasks.len() + self.executors.len());
        self.digest = Digest::of(self.prints(), buckets);
    }

    /// What tasks and executors hold there, by framework.
    pub fn held(&self) -> &Holdings {
        &self.held
    }

    pub(super) fn hold(&mut self, framework: &FrameworkId, resources: &Resources) {
        self.held.hold(framework, resources);
    }

    pub(super) fn free(&mut self, framework: &FrameworkId, resources: &Resources) {
        self.held.free(framework, resources);
    }

    /// Keeps the tasks and executors that are seen; what is held stays. Its digest is that of all.
    pub(super) fn keep_seen(
        &mut self,
        task: impl Fn(&FrameworkId, &TaskId) -> bool,
        executor: &impl Fn(&FrameworkId, &ExecutorInfo) -> bool,
    ) {
        self.tasks.retain(|(owner, id), _| task(owner, id));
        self.executors
            .retain(|(owner, _), (info, _)| executor(owner, info));
    }

    /// Whether it can be forgotten. One whose key is known is kept until its agent goes.
    pub(super) fn is_idle(&self) -> bool {
        self.key.is_none() && self.tasks.is_empty() && self.executors.is_empty()
    }
}
