//! Containers nested in others: each task of a group has one, in the container of its executor.
//!
//! A nested container is started when its parent runs, and ends with it. The parent ends when no
//! nested one is left. The agent does what Mesos' default executor does (SPEC 5.4): a task that
//! fails or is killed takes its group along.

pub(crate) mod attached;
pub(crate) mod requested;

use std::collections::BTreeMap;

use protocol::{
    Capability, ContainerId, ExecutorInfo, ExecutorKind, FrameworkId, FrameworkInfo, KillPolicy,
    Reason, TaskId, TaskInfo, TaskState, Termination, Uuid,
};
use runtime::prelude::*;

use super::Containerizer;
use super::executor_spec::ExecutorSpec;
use super::machine::command::GRACE_DEFAULT;
use super::machine::{Container, Phase};
use super::table::ContainerTable;
use crate::launcher::ContainerEnd;

/// Nested containers that wait until their parent runs, by parent.
pub(super) type Waiting = BTreeMap<ContainerId, Vec<(ContainerId, ExecutorSpec)>>;

/// The executor of a task's group, if it is in one.
pub(super) fn executor_of_group(task: &TaskInfo) -> Option<&ExecutorInfo> {
    let executor = task.executor.as_ref();
    executor.filter(|one| one.kind == ExecutorKind::Default && task.command.is_some())
}

impl Containerizer {
    /// Puts a task of a group into a container nested in that of its executor. Returns the
    /// containers made for it; none if it was refused.
    pub(super) fn nest(
        &mut self,
        framework: &FrameworkInfo,
        framework_id: &FrameworkId,
        task: TaskInfo,
        ctx: &mut Context<Self>,
    ) -> Vec<(ContainerId, ExecutorSpec)> {
        let (Some(executor), Ok(own)) = (
            executor_of_group(&task).cloned(),
            ExecutorSpec::of(&task, framework),
        ) else {
            return Vec::new();
        };
        let mut made = Vec::new();
        let current = self.containers.current(framework_id, &executor.executor_id);
        let parent = match current {
            Some(id) if self.containers.get(&id).is_some_and(Container::takes_tasks) => id,
            Some(_) => {
                let aware = framework.can(Capability::PartitionAware);
                let state = TaskState::Dropped.for_framework(aware);
                let (reason, problem) = (Reason::ExecutorTerminated, "Executor terminating");
                self.report_unplaced(framework_id, task, state, reason, problem.into(), ctx);
                return made;
            }
            None => {
                let id = ContainerId::from(Uuid(ctx.node().fresh_uuid()));
                let spec = ExecutorSpec {
                    executor,
                    is_command: false,
                    user: Some(framework.user.clone()).filter(|user| !user.is_empty()),
                };
                self.add_container(&id, framework, framework_id, &spec, ctx);
                made.push((id.clone(), spec));
                id
            }
        };
        // Their lengths have room for one another.
        let Ok(id) = parent.nested(Uuid(ctx.node().fresh_uuid())) else {
            return made;
        };
        self.add_container(&id, framework, framework_id, &own, ctx);
        self.containers.assign(framework_id, &task.task_id, &id);
        let throttle = self.containers.get(&parent).and_then(Container::throttle);
        if let Some(container) = self.containers.get_mut(&id) {
            container.add(task);
            if let Some(degree) = throttle.filter(|_| !container.shares_limits()) {
                container.set_throttle(degree);
            }
        }
        self.enclose(&id);
        made.push((id, own));
        made
    }

    fn add_container(
        &mut self,
        id: &ContainerId,
        framework: &FrameworkInfo,
        framework_id: &FrameworkId,
        spec: &ExecutorSpec,
        ctx: &Context<Self>,
    ) {
        let token = Uuid(ctx.node().secret()).to_string();
        let (info, executor) = (framework.clone(), spec.executor.clone());
        let mut container = Container::new(id.clone(), info, executor, spec.is_command, token);
        if self.checkpoints(framework) {
            container = container.with_checkpoint();
        }
        self.launch_times.begin(id, ctx.clock().now());
        self.containers.insert(framework_id, container);
    }

    /// Counts what a nested container may use among the needs of its parent.
    pub(super) fn enclose(&mut self, id: &ContainerId) {
        let needs = self.containers.get(id).and_then(Container::shared_needs);
        let parent = id.parent();
        if let Some(parent) = parent.and_then(|parent| self.containers.get_mut(&parent)) {
            parent.enclose(id, needs);
        }
    }

    /// Whether this end may be the kernel's, because its parent has exceeded a limit of both.
    pub(super) fn may_be_limited(&self, id: &ContainerId, end: &ContainerEnd) -> bool {
        let is_killed =
            |termination: &Termination| *termination == Termination::Signaled(nix::libc::SIGKILL);
        let is_killed = match end {
            ContainerEnd::Command {
                termination,
                kill_wanted,
            } => is_killed(termination) && !kill_wanted,
            ContainerEnd::Leader(termination) => is_killed(termination),
            ContainerEnd::CommandNotStarted(_) => false,
        };
        let parent = id.parent().and_then(|id| self.containers.get(&id));
        let is_whole = parent.is_some_and(|one| one.takes_tasks() && self.is_isolated(&one.id));
        is_killed
            && is_whole
            && self
                .containers
                .get(id)
                .is_some_and(Container::shares_limits)
    }

    /// Those of these containers that can be started now. Nested ones wait for their parent, and
    /// end if it has ended.
    pub(super) fn startable(
        &mut self,
        fresh: Vec<(ContainerId, ExecutorSpec)>,
        ctx: &mut Context<Self>,
    ) -> Vec<(ContainerId, ExecutorSpec)> {
        let mut startable = Vec::new();
        for (id, spec) in fresh {
            let Some(parent) = id.parent() else {
                startable.push((id, spec));
                continue;
            };
            match self.containers.get(&parent).map(|parent| parent.phase) {
                Some(Phase::Running) => startable.push((id, spec)),
                Some(Phase::Preparing | Phase::Launching) => {
                    self.waiting.entry(parent).or_default().push((id, spec));
                }
                _ => self.with(&id, ctx, |container| {
                    container.prepared(Err("its executor has ended".to_owned()))
                }),
            }
        }
        startable
    }

    /// Starts the containers that waited for this one.
    pub(super) fn start_nested(&mut self, id: &ContainerId, ctx: &mut Context<Self>) {
        let waiting = self.waiting.remove(id).unwrap_or_default();
        if let Some((framework_id, _)) = self.containers.entry(id) {
            let framework_id = framework_id.clone();
            self.make_sandboxes(&framework_id, waiting, ctx);
        }
    }

    /// A container has changed: its parent and its group, or those nested in it, follow.
    pub(super) fn follow_nesting(&mut self, id: &ContainerId, ctx: &mut Context<Self>) {
        let Some(container) = self.containers.get(id) else {
            return;
        };
        match container.parent() {
            Some(parent) => self.follow_nested(id, &parent, ctx),
            None if container.is_group() => self.follow_parent(id, ctx),
            None => {}
        }
    }

    fn follow_nested(&mut self, id: &ContainerId, parent: &ContainerId, ctx: &mut Context<Self>) {
        self.enclose(id);
        self.lower_limits(parent, ctx);
        let phase = self.containers.get(id).map(|container| container.phase);
        if phase == Some(Phase::Terminating) && self.withdraw(id, parent) {
            self.with(id, ctx, |container| container.prepared(Ok(())));
        }
        for (nested, task) in to_kill(&self.containers, id) {
            let policy = KillPolicy {
                grace_period: GRACE_DEFAULT,
            };
            self.with(&nested, ctx, |container| {
                container.kill(&task, Some(policy))
            });
        }
        if is_unused(&self.containers, parent) {
            self.with(parent, ctx, Container::unused);
        }
    }

    /// Removes a container from those that wait for their parent. Whether it was one.
    fn withdraw(&mut self, id: &ContainerId, parent: &ContainerId) -> bool {
        let waiting = self.waiting.get_mut(parent);
        waiting.is_some_and(|waiting| {
            let before = waiting.len();
            waiting.retain(|(one, _)| one != id);
            waiting.len() < before
        })
    }

    fn follow_parent(&mut self, id: &ContainerId, ctx: &mut Context<Self>) {
        let Some(container) = self.containers.get(id) else {
            return;
        };
        let (phase, end) = (container.phase, container.end_status());
        if let Some(end) = end {
            let inside = self.containers.inside(id);
            let inside: Vec<ContainerId> = inside.map(|nested| nested.id.clone()).collect();
            for nested in inside {
                if let Some(nested) = self.containers.get_mut(&nested) {
                    nested.end_with(end.clone());
                }
            }
        }
        if phase == Phase::Terminated {
            for (nested, _) in self.waiting.remove(id).unwrap_or_default() {
                self.with(&nested, ctx, |container| {
                    container.prepared(Err("its executor has ended".to_owned()))
                });
            }
        }
    }
}

/// The live tasks that end because the task of this container has failed or was killed: those of
/// its group. None while the parent is shut down, which ends all.
fn to_kill(containers: &ContainerTable, id: &ContainerId) -> Vec<(ContainerId, TaskId)> {
    let Some(failed) = containers.get(id).filter(|one| one.fails_its_group()) else {
        return Vec::new();
    };
    let Some(parent) = failed.parent() else {
        return Vec::new();
    };
    let is_ending = |parent: &Container| !parent.takes_tasks();
    if containers.get(&parent).is_none_or(is_ending) {
        return Vec::new();
    }
    let group = failed.tasks().find_map(|task| task.info.group.as_ref());
    let nested = containers.inside(&parent).filter(|one| one.id != *id);
    let alive = nested.filter_map(|one| Some((one, one.killable_group()?)));
    let of_group = alive.filter(|(_, (own, _))| Some(*own) == group);
    of_group
        .map(|(one, (_, task))| (one.id.clone(), task.clone()))
        .collect()
}

/// Whether a container that holds task groups lives, but none nested in it does.
fn is_unused(containers: &ContainerTable, id: &ContainerId) -> bool {
    let lives = |one: &Container| one.phase != Phase::Terminated && !one.is_gone();
    let is_over = |one: &Container| one.phase == Phase::Terminated;
    containers.get(id).is_some_and(lives) && containers.inside(id).all(is_over)
}
