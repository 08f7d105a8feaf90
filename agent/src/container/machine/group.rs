//! A container that holds task groups. It has no program and no tasks: each task has a container
//! nested in it, which runs the task's command.
//!
//! Pure. States and messages are those of Mesos' default executor (SPEC 5.4).

use protocol::task::TaskLimits;
use protocol::{ContainerId, Reason, TaskId, TaskState};
use resources::Resources;

use super::{Container, Effect, Phase, Task};

/// The status of live tasks at the end of their container.
#[derive(Clone, Debug, PartialEq)]
pub struct EndStatus {
    status: (TaskState, Reason, String),
    exceeded: Option<Resources>,
}

impl Container {
    /// It runs, perhaps since an earlier agent process.
    pub(super) fn group_started(&mut self) -> Vec<Effect> {
        self.phase = Phase::Running;
        vec![Effect::StartNested]
    }

    /// What its live task may use within the limits of its parent; `None` if it has ended.
    pub fn shared_needs(&self) -> Option<(Resources, TaskLimits)> {
        let mut live = self.tasks().filter(|task| !task.state.is_terminal());
        let info = &live.next().filter(|_| self.shares_limits())?.info;
        Some((info.resources.clone(), info.limits))
    }

    /// Whether the limits of the container in which it is nested are its own.
    pub fn shares_limits(&self) -> bool {
        let mut tasks = self.tasks();
        let settings = tasks.next().and_then(|task| task.info.container.as_deref());
        let shares = settings.and_then(|settings| settings.linux.shares_cgroups);
        self.parent().is_some() && shares != Some(false)
    }

    /// What a container nested in it may use has changed.
    pub fn enclose(&mut self, nested: &ContainerId, needs: Option<(Resources, TaskLimits)>) {
        match needs {
            Some(needs) => self.inside.insert(nested.clone(), needs),
            None => self.inside.remove(nested),
        };
    }

    /// None nested in it lives any more: it ends.
    pub fn unused(&mut self) -> Vec<Effect> {
        match std::mem::replace(&mut self.is_unused, true) {
            true => Vec::new(),
            false => self.destroy(),
        }
    }

    /// The status that its end gives to live tasks, if it has been decided.
    pub fn end_status(&self) -> Option<EndStatus> {
        Some(EndStatus {
            status: self.end_status.clone()?,
            exceeded: self.exceeded.clone(),
        })
    }

    /// It ends with the container in which it is nested: the status of its tasks, unless there is
    /// one already.
    pub fn end_with(&mut self, end: EndStatus) {
        if self.end_status.is_none() {
            self.end_status = Some(end.status);
            self.exceeded = end.exceeded;
        }
    }

    /// Whether its task fails its group, which then is killed.
    pub fn fails_its_group(&self) -> bool {
        let mut tasks = self.tasks();
        tasks.any(|task| matches!(task.state, TaskState::Failed | TaskState::Killed))
    }

    /// The group of its task, while the task lives and is not being killed.
    pub fn killable_group(&self) -> Option<(&TaskId, &TaskId)> {
        let mut tasks = self.tasks().map(|task| (&task.info, task.state));
        let (info, state) = tasks.next()?;
        let group = info.group.as_ref()?;
        let is_ending = state.is_terminal() || self.command.killed;
        (!is_ending).then_some((group, &info.task_id))
    }

    /// Takes the acknowledged tasks of a container nested in it, for pages.
    pub fn take_completed(&mut self, completed: impl IntoIterator<Item = Box<Task>>) {
        completed
            .into_iter()
            .for_each(|task| self.push_completed(task));
    }

    /// Its acknowledged tasks, which it forgets.
    pub fn give_completed(&mut self) -> impl Iterator<Item = Box<Task>> + use<> {
        std::mem::take(&mut self.completed).into_iter()
    }

    /// The id of the container in which it is nested.
    pub fn parent(&self) -> Option<ContainerId> {
        self.id.parent()
    }
}
