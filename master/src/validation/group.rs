//! Task groups: tasks that run together in the default executor, all or none (LAUNCH_GROUP).
//!
//! Pure. The messages are those of Mesos, except for rules that Mesos does not have.

use std::collections::BTreeSet;

use protocol::ExecutorKind;
use protocol::task::ContainerInfo;
use resources::shortened;

use super::*;
use crate::state::size::wire_bytes;

/// Minimum cores of a default executor.
const CPUS_MIN: f64 = 0.01;
/// Minimum memory of a default executor, in MiB.
const MEM_MIN: f64 = 32.0;
/// Maximum bytes of a group on the wire, each task with its copy of the executor: a group is sent
/// in one message.
const GROUP_BYTES_MAX: usize = 8 << 20;

/// The longest id of a task that is valid.
const ID_MAX: usize = 255;

impl TaskRules<'_> {
    /// Validates a group, whose tasks all have their executor; returns the resources that each task
    /// takes, in order. The first one also takes the executor's, if that is new on its agent.
    /// `remaining` must have a copy of each shared volume.
    pub fn check_group(
        &self,
        executor: &ExecutorInfo,
        tasks: &[TaskInfo],
    ) -> Result<Vec<Needs>, TaskInvalid> {
        let mut seen = BTreeSet::new();
        let mut wanted = Vec::with_capacity(tasks.len());
        for task in tasks {
            let id = &task.task_id;
            let checked = match seen.insert(id) {
                true => self.check_member(task),
                false => Err(TaskInvalid::new(
                    "task.task_id",
                    format!("Task has duplicate ID: {id}"),
                )),
            };
            wanted.push(checked.map_err(|bad| {
                let id = shortened(id.as_str(), ID_MAX);
                TaskInvalid::new(&bad.field, format!("Task '{id}' is invalid: {bad}"))
            })?);
        }
        let resources = self.check_default_executor(executor)?;
        let expected = ExecutorInfo {
            resources: resources.clone(),
            ..executor.clone()
        };
        for task in tasks {
            let own = task.executor.as_ref();
            if !own.is_some_and(|own| same_executor(&expected, own, self.role)) {
                let (task, executor) = (&task.task_id, &executor.executor_id);
                let problem = format!(
                    "The `ExecutorInfo` of task '{task}' is different from executor '{executor}'"
                );
                return Err(TaskInvalid::new("task.executor", problem));
            }
        }
        check_minimum(executor, &resources)?;
        let needs = self.group_needs(executor, resources, wanted)?;
        self.check_cgroups(executor, tasks)?;
        self.check_group_bytes(tasks)?;
        Ok(needs)
    }

    /// Validates a task of a group; returns its resources.
    fn check_member(&self, task: &TaskInfo) -> Result<Resources, TaskInvalid> {
        size::task(task)?;
        self.check_identity(task)?;
        reserved_labels::priority(&task.labels)?;
        reserved_labels::is_long(&task.labels)?;
        reserved_labels::objective(&task.labels)?;
        let own = self.own_resources(task)?;
        let Some(command) = &task.command else {
            let expected = "the command that the default executor runs";
            return Err(Invalid::new("task.command", "not set", expected).into());
        };
        self.check_command("task.command", command)
            .map_err(by_rule("Task's `CommandInfo` is invalid"))?;
        self.check_user(task)?;
        self.check_checks(task)?;
        check_limits(task)?;
        let container = task.container.as_deref();
        if container.is_some_and(|container| container.docker.is_some()) {
            let problem = "Docker ContainerInfo is not supported on the task";
            return Err(TaskInvalid::new("task.container.docker", problem));
        }
        if task.limits.iter().next().is_some() && shares_cgroups(container) {
            let problem = "Resource limits may only be set for tasks within a task group when the 'share_cgroups' field is set to 'false'.";
            return Err(TaskInvalid::new("task.limits", problem));
        }
        Ok(own)
    }

    /// Validates the executor of a group; returns its resources.
    fn check_default_executor(&self, executor: &ExecutorInfo) -> Result<Resources, TaskInvalid> {
        if executor.kind != ExecutorKind::Default {
            let expected = "DEFAULT: only the default executor runs task groups";
            return Err(Invalid::new("executor.type", "CUSTOM", expected).into());
        }
        self.check_executor(executor)?;
        self.executor_resources(executor)
    }

    /// The resources that each task of a group takes from the offers.
    fn group_needs(
        &self,
        executor: &ExecutorInfo,
        resources: Resources,
        wanted: Vec<Resources>,
    ) -> Result<Vec<Needs>, TaskInvalid> {
        let id = &executor.executor_id;
        let known = self
            .tasks
            .executor(self.agent_id, &self.framework.id, id)
            .is_some();
        let field = "task_group.resources";
        let overlap = |_| {
            let tasks: Vec<String> = wanted.iter().map(plain).collect();
            let problem = format!(
                "There are overlapping resources in the task group's task resources {} and/or executor resources {}",
                brief(&tasks.join("; ")),
                brief(&plain(&resources))
            );
            TaskInvalid::new(field, problem)
        };
        let mut needs: Vec<Needs> = Vec::with_capacity(wanted.len());
        let (mut sum, mut shared) = (Resources::new(), Resources::new());
        for own in &wanted {
            let takes = !known && needs.is_empty();
            let mut total = own.clone();
            if takes {
                total.checked_add(&resources).map_err(overlap)?;
            }
            sum.checked_add(&total.non_shared()).map_err(overlap)?;
            let is_new = |volume: &Resource| !shared.contains_resource(volume);
            let volumes = total.shared().filter(is_new);
            shared += &volumes;
            needs.push(Needs {
                task: own.clone(),
                executor: Some((resources.clone(), takes)),
                total,
            });
        }
        sum += &shared;
        check_mix(field, "Task group and executor", &sum)?;
        self.check_left(field, "task group and its executor are", &sum)?;
        Ok(needs)
    }

    /// All tasks of an executor are in its cgroups, or none.
    fn check_cgroups(
        &self,
        executor: &ExecutorInfo,
        tasks: &[TaskInfo],
    ) -> Result<(), TaskInvalid> {
        let field = "task.container.linux_info.share_cgroups";
        let container = executor.container.as_deref();
        if container.and_then(|container| container.linux.shares_cgroups) == Some(true) {
            let problem =
                "The 'share_cgroups' field cannot be set to 'true' on executor containers";
            return Err(TaskInvalid::new(field, problem));
        }
        let id = &executor.executor_id;
        let framework = &self.framework.id;
        let others = self.tasks.on_agent(self.agent_id).into_iter();
        let others = others.flat_map(|on| on.tasks());
        let others = others.filter(|(owner, _)| owner == framework);
        let others = others.filter_map(|(owner, task)| self.tasks.get(owner, task));
        let others = others.filter(|task| task.executor_id == *id);
        let others = others.map(|task| task.container.as_deref());
        let own = tasks.iter().map(|task| task.container.as_deref());
        let all: BTreeSet<bool> = own.chain(others).map(shares_cgroups).collect();
        if all.len() > 1 {
            let problem = "If set, the value of 'share_cgroups' must be the same for all tasks in each task group and under a single executor";
            return Err(TaskInvalid::new(field, problem));
        }
        Ok(())
    }

    /// Mesos has no such bounds.
    fn check_group_bytes(&self, tasks: &[TaskInfo]) -> Result<(), Invalid> {
        let mut others = self.tasks.active_bytes(&self.framework.id);
        for (position, task) in tasks.iter().enumerate() {
            others += size::active(task, position == 0 && self.is_new(task), others)?;
        }
        let bytes: usize = tasks.iter().map(wire_bytes).sum();
        if bytes > GROUP_BYTES_MAX {
            let expected = format!(
                "at most {GROUP_BYTES_MAX} bytes in all tasks of a group, each with its executor"
            );
            return Err(Invalid::new(
                "task_group",
                format!("{bytes} bytes"),
                expected,
            ));
        }
        Ok(())
    }
}

/// Whether a nested container is in its parent's cgroups.
fn shares_cgroups(container: Option<&ContainerInfo>) -> bool {
    let set = container.and_then(|container| container.linux.shares_cgroups);
    set.unwrap_or(true)
}

/// A default executor needs some resources of its own.
fn check_minimum(executor: &ExecutorInfo, resources: &Resources) -> Result<(), TaskInvalid> {
    let id = &executor.executor_id;
    let amount = |of: resources::Scalar| (!of.is_zero()).then(|| of.as_f64());
    let text = |amount: Option<f64>| amount.map_or_else(|| "None".to_owned(), |n| n.to_string());
    let (cpus, mem) = (amount(resources.cpus()), amount(resources.mem()));
    let lacks = if cpus.unwrap_or_default() < CPUS_MIN {
        let cpus = text(cpus);
        format!("uses less CPUs ({cpus}) than the minimum required ({CPUS_MIN})")
    } else if mem.unwrap_or_default() < MEM_MIN {
        let mem = text(mem);
        format!("uses less memory ({mem}) than the minimum required ({MEM_MIN}MB)")
    } else if resources.disk().is_zero() {
        "uses no disk".to_owned()
    } else {
        return Ok(());
    };
    let problem = format!("Executor '{id}' {lacks}");
    Err(TaskInvalid::new("executor.resources", problem))
}
