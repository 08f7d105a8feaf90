//! Validation of frameworks, agents and tasks.
//!
//! Pure. Each error has the field, its value and the expected value. Nothing is corrected, except
//! that resources without an allocation role get the role of the offers.
//!
//! | module | contents |
//! |---|---|
//! | `checks` | checks and health checks of a task |
//! | `conversion` | validation of a framework's conversion |
//! | `group` | LAUNCH_GROUP: all of its tasks, and their default executor |
//! | `operations` | the rules of Mesos 1.11 for operations, with its messages |
//! | `report` | consistency of an agent's report |
//! | `size` | bounds on the texts that a framework chooses and the master remembers |

mod checks;
mod conversion;
mod group;
mod operations;
mod report;
pub(crate) mod size;

pub use conversion::{conversion, held};
pub use operations::{OperationRules, lacking, texts};
pub use report::check_report;

use std::collections::BTreeSet;

use authority::Forbidden;
use module_api::demand::{AgentTest, CONSTRAINTS_MAX, EXPRESSIONS_MAX, expressions};
use module_api::sorter::Shape;
use protocol::text::reserved_labels;
use protocol::{
    AgentId, AgentInfo, Capability, CommandInfo, ExecutorId, ExecutorInfo, ExecutorKind,
    FrameworkInfo, TaskInfo, Wants,
};
use resources::{Invalid, Resource, Resources, Role, excerpt};
use v1::convert::scheduler::listed;

use crate::frameworks::Framework;
use crate::permission::Caller;
use crate::state::Policy;
use crate::tasks::{Tasks, UNACKNOWLEDGED_MAX};

/// Why a framework is invalid. Where Mesos has the rule, the message is Mesos', which clients
/// compare.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameworkInvalid {
    /// Its description is invalid.
    #[error("{0}")]
    Info(String),
    /// Its wishes for offers are invalid.
    #[error("{0}")]
    Options(String),
    /// Its roles are not authorized.
    #[error("{0}")]
    Unauthorized(String),
}

/// Checks a framework's description.
pub fn framework(
    info: &FrameworkInfo,
    wants: &Wants,
    policy: &Policy,
) -> Result<(), FrameworkInvalid> {
    framework_info(info, policy).map_err(FrameworkInvalid::Info)?;
    if let Some(role) = wants.suppressed_roles.difference(&info.roles).next() {
        let role = excerpt(role);
        let problem = format!("Suppressed role '{role}' is not contained in the list of roles");
        return Err(FrameworkInvalid::Info(problem));
    }
    framework_wants(info, wants).map_err(|bad| FrameworkInvalid::Options(bad.to_string()))?;
    let caller = Caller::framework(&policy.acls, info);
    let registered = caller.register(&info.roles);
    registered.map_err(|forbidden| FrameworkInvalid::Unauthorized(unauthorized(info, &forbidden)))
}

/// The refusal of a framework that is not authorized for its roles. The log has the reason.
pub(crate) fn unauthorized(info: &FrameworkInfo, forbidden: &Forbidden) -> String {
    let id = info.id.as_ref().map_or("", |id| id.as_str());
    tracing::info!(framework = id, name = %info.name, %forbidden, "refusing a framework");
    let roles = listed(&info.roles);
    format!("Not authorized to register framework {id} with roles {roles}")
}

/// The refusal of a task that its framework is not authorized to run. The log has the reason.
pub(crate) fn unauthorized_task(
    task: &TaskInfo,
    framework: &Framework,
    forbidden: &Forbidden,
) -> TaskInvalid {
    let Framework { id, info, .. } = framework;
    let principal = info.principal.as_deref().unwrap_or("");
    let (principal, user) = (excerpt(principal), excerpt(task.user_in(info)));
    tracing::info!(framework = %id, task = %task.task_id, %forbidden, "refusing a task");
    let problem = format!(
        "Principal '{principal}' no authorized to launch task {} of framework {id} under user '{user}'",
        task.task_id
    );
    TaskInvalid::new("task.command.user", problem)
}

fn framework_info(info: &FrameworkInfo, policy: &Policy) -> Result<(), String> {
    let is_multi_role = info.can(Capability::MultiRole);
    // With MULTI_ROLE it may add roles later.
    if info.roles.len() != 1 && !is_multi_role {
        let given = info.roles.iter().cloned().collect::<Vec<_>>().join(",");
        let expected = "exactly one role, or the capability MULTI_ROLE";
        return Err(Invalid::new("framework.roles", given, expected).to_string());
    }
    if let Some(problem) = info.roles.iter().find_map(|role| Role::problem(role)) {
        return Err(match is_multi_role {
            true => format!("'FrameworkInfo.roles' contains invalid role: {problem}"),
            false => format!("'FrameworkInfo.role' is not a valid role: {problem}"),
        });
    }
    if let Some(allowed) = &policy.roles {
        let mut foreign = info.roles.difference(allowed).peekable();
        if foreign.peek().is_some() {
            let foreign = listed(foreign);
            return Err(format!(
                "Roles {foreign} are not present in the master's --roles"
            ));
        }
    }
    if info.user == "root" && !policy.root_submissions {
        let problem = "User 'root' is not allowed to run frameworks without --root_submissions set";
        return Err(problem.to_owned());
    }
    // Mesos accepts an empty user: it matters only for tasks without their own.
    if !info.user.is_empty() {
        user("framework.user", &info.user, policy).map_err(|bad| bad.to_string())?;
    }
    size::framework(info).map_err(|bad| bad.to_string())
}

fn framework_wants(info: &FrameworkInfo, wants: &Wants) -> Result<(), Invalid> {
    let mut demanded = wants.demands.keys();
    if let Some(role) = demanded.find(|role| !info.roles.contains(*role)) {
        return Err(Invalid::new(
            "demands",
            role,
            "one of the framework's roles",
        ));
    }
    demands(wants)
}

fn demands(wants: &Wants) -> Result<(), Invalid> {
    // Checked before any expression is compiled, which is the expensive part.
    let count: usize = wants.demands.values().map(expressions).sum();
    if count > EXPRESSIONS_MAX {
        let expected = format!("at most {EXPRESSIONS_MAX} regular expressions in all roles");
        return Err(Invalid::new("demands", count, expected));
    }
    let mut size = 0;
    for (role, demand) in &wants.demands {
        size += demand.agents.iter().map(Vec::len).sum::<usize>();
        size += demand.least.as_ref().map_or(0, Vec::len);
        AgentTest::new(role, demand)?;
        Shape::new(role, demand)?;
    }
    match size > CONSTRAINTS_MAX {
        false => Ok(()),
        true => {
            let expected = format!("at most {CONSTRAINTS_MAX} constraints in all roles");
            Err(Invalid::new("demands", size, expected))
        }
    }
}

/// Checks role names.
fn roles(field: &str, roles: &BTreeSet<String>) -> Result<(), Invalid> {
    for role in roles {
        Role::new(role).map_err(|invalid| Invalid::new(field, role, invalid.expected))?;
    }
    Ok(())
}

/// Checks an agent's description.
pub fn agent(info: &AgentInfo, oversubscribed: &Resources) -> Result<(), Invalid> {
    if info.hostname.is_empty() || info.hostname.chars().any(char::is_whitespace) {
        let expected = "a host name or address without blanks";
        return Err(Invalid::new("agent.hostname", &info.hostname, expected));
    }
    let wrong =
        |resource: &&Resource| resource.is_revocable() || resource.allocation_role().is_some();
    if let Some(resource) = info.resources.iter().find(wrong) {
        let expected = "resources that are neither revocable nor allocated";
        return Err(Invalid::new("agent.resources", resource, expected));
    }
    match oversubscribed
        .iter()
        .find(|resource| !resource.is_revocable())
    {
        None => Ok(()),
        Some(resource) => Err(Invalid::new(
            "oversubscribed",
            resource,
            "revocable resources",
        )),
    }
}

/// Why a task is invalid. Where Mesos has the rule, the message is Mesos', which clients compare.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct TaskInvalid {
    /// The invalid field.
    pub field: String,
    /// The message of the task's status.
    pub message: String,
}

impl TaskInvalid {
    fn new(field: &str, message: impl Into<String>) -> Self {
        Self {
            field: field.to_owned(),
            message: message.into(),
        }
    }
}

impl From<Invalid> for TaskInvalid {
    fn from(invalid: Invalid) -> Self {
        let message = invalid.to_string();
        let field = invalid.field;
        Self { field, message }
    }
}

/// Prefixes the message with the broken rule of Mesos.
fn by_rule(rule: &str) -> impl Fn(Invalid) -> TaskInvalid {
    move |invalid| {
        let message = format!("{rule}: {invalid}");
        TaskInvalid::new(&invalid.field, message)
    }
}

/// Checks the limits of a task, with Mesos' messages.
fn check_limits(task: &TaskInfo) -> Result<(), TaskInvalid> {
    let (cpus, mem) = (task.resources.cpus(), task.resources.mem());
    let all = [
        ("cpus", task.limits.cpus, cpus, "CPU", "cpu"),
        ("mem", task.limits.mem, mem, "memory", "memory"),
    ];
    for (name, limit, request, title, word) in all {
        let Some(limit) = limit else { continue };
        let field = format!("task.limits.{name}");
        if request.is_zero() {
            let problem = format!(
                "When a {title} limit is specified, a {title} request must also be specified"
            );
            return Err(TaskInvalid::new(&field, problem));
        }
        if limit.value() < request.as_f64() {
            let problem =
                format!("The {word} limit must be greater than or equal to the {word} request");
            return Err(TaskInvalid::new(&field, problem));
        }
    }
    Ok(())
}

/// The context of a task's validation.
pub struct TaskRules<'a> {
    /// Its framework.
    pub framework: &'a Framework,
    /// The agent of the offers.
    pub agent_id: &'a AgentId,
    /// The role that the offers are allocated to.
    pub role: &'a Role,
    /// Remaining offered resources.
    pub remaining: &'a Resources,
    /// Known tasks.
    pub tasks: &'a Tasks,
    /// The operator's policy.
    pub policy: &'a Policy,
}

/// The resources that a valid task takes from the offers.
#[derive(Clone, Debug, PartialEq)]
pub struct Needs {
    /// The task's own resources.
    pub task: Resources,
    /// Its executor's resources, and whether the executor is new on its agent and takes them now.
    pub executor: Option<(Resources, bool)>,
    /// The total taken from the offers.
    pub total: Resources,
}

impl TaskRules<'_> {
    /// Validates a task; returns the resources it takes.
    pub fn check(&self, task: &TaskInfo) -> Result<Needs, TaskInvalid> {
        size::task(task)?;
        self.check_identity(task)?;
        reserved_labels::priority(&task.labels)?;
        reserved_labels::is_long(&task.labels)?;
        reserved_labels::objective(&task.labels)?;
        match (&task.command, &task.executor) {
            (Some(command), None) => self
                .check_command("task.command", command)
                .map_err(by_rule("Task's `CommandInfo` is invalid"))?,
            (None, Some(executor)) => {
                self.check_executor(executor)?;
                if executor.kind == ExecutorKind::Default {
                    let problem = "'ExecutorInfo.type' must be 'CUSTOM'";
                    return Err(TaskInvalid::new("task.executor.type", problem));
                }
            }
            (Some(_), Some(_)) | (None, None) => {
                let problem = "Task should have at least one (but not both) of CommandInfo or ExecutorInfo present";
                return Err(TaskInvalid::new("task.command", problem));
            }
        }
        self.check_user(task)?;
        self.check_checks(task)?;
        size::active(
            task,
            self.is_new(task),
            self.tasks.active_bytes(&self.framework.id),
        )?;
        check_limits(task)?;
        let container = task.container.as_ref();
        if container.is_some_and(|container| container.linux.shares_cgroups == Some(false)) {
            let field = "task.container.linux_info.share_cgroups";
            let problem = "Only tasks in a task group may have 'share_cgroups' set to 'false'";
            return Err(TaskInvalid::new(field, problem));
        }
        self.check_resources(task)
    }

    fn check_user(&self, task: &TaskInfo) -> Result<(), Invalid> {
        let user = task.user_in(&self.framework.info);
        if user.is_empty() && !self.policy.root_submissions {
            // It would run as the agent's own user, which may be root.
            let expected = "the name of a user: this master was started with --no-root_submissions";
            return Err(Invalid::new("framework.user", user, expected));
        }
        Ok(())
    }

    fn check_identity(&self, task: &TaskInfo) -> Result<(), TaskInvalid> {
        let framework = &self.framework.id;
        if task.agent_id != *self.agent_id {
            let (given, expected) = (&task.agent_id, self.agent_id);
            let problem =
                format!("Task uses invalid agent {given} while agent {expected} is expected");
            return Err(TaskInvalid::new("task.agent_id", problem));
        }
        if self.tasks.is_taken(framework, &task.task_id) {
            let id = &task.task_id;
            let problem = match self.tasks.get(framework, id) {
                Some(_) => format!("Task has duplicate ID: {id}"),
                None => format!("Task reuses the ID of an unreachable task: {id}"),
            };
            return Err(TaskInvalid::new("task.task_id", problem));
        }
        if self.tasks.unacknowledged(framework) >= UNACKNOWLEDGED_MAX {
            let expected = format!(
                "fewer than {UNACKNOWLEDGED_MAX} ended tasks whose last status is not acknowledged"
            );
            return Err(Invalid::new("task.task_id", &task.task_id, expected).into());
        }
        let own = ExecutorId::from(&task.task_id);
        if task.executor.is_none()
            && self
                .tasks
                .executor(self.agent_id, framework, &own)
                .is_some()
        {
            let expected = "an id that no executor of this framework on this agent has";
            return Err(Invalid::new("task.task_id", &task.task_id, expected).into());
        }
        Ok(())
    }

    fn check_command(&self, field: &str, command: &CommandInfo) -> Result<(), Invalid> {
        if command.value.is_empty() {
            let expected = if command.shell {
                "a line for /bin/sh -c"
            } else {
                "the file to execute"
            };
            return Err(Invalid::new(format!("{field}.value"), "", expected));
        }
        let no_zero = "no zero byte";
        if command.value.contains('\0') {
            return Err(Invalid::new(
                format!("{field}.value"),
                &command.value,
                no_zero,
            ));
        }
        if let Some(argument) = command.arguments.iter().find(|text| text.contains('\0')) {
            return Err(Invalid::new(
                format!("{field}.arguments"),
                argument,
                no_zero,
            ));
        }
        for (name, value) in &command.environment {
            let field = || format!("{field}.environment");
            if name.is_empty() || name.contains(['=', '\0']) {
                let expected = "names of at least one character, without `=` and zero bytes";
                return Err(Invalid::new(field(), name, expected));
            }
            if value.contains('\0') {
                let given = format!("{name}={value}");
                return Err(Invalid::new(field(), given, no_zero));
            }
        }
        for (index, uri) in command.uris.iter().enumerate() {
            uri.check().map_err(|invalid| Invalid {
                field: format!("{field}.uris[{index}].{}", invalid.field),
                ..invalid
            })?;
        }
        match &command.user {
            None => Ok(()),
            Some(name) => user(&format!("{field}.user"), name, self.policy),
        }
    }

    fn check_executor(&self, executor: &ExecutorInfo) -> Result<(), TaskInvalid> {
        match executor.kind {
            ExecutorKind::Custom => self
                .check_command("task.executor.command", &executor.command)
                .map_err(by_rule("Executor's `CommandInfo` is invalid"))?,
            ExecutorKind::Default => check_default(executor)?,
        }
        let (id, framework) = (&executor.executor_id, &self.framework.id);
        let field = "task.executor.executor_id";
        match self.tasks.executor(self.agent_id, framework, id) {
            Some(known) if !same_executor(known, executor, self.role) => {
                let problem = format!(
                    "ExecutorInfo is not compatible with existing ExecutorInfo with same ExecutorID: `{id}`"
                );
                Err(TaskInvalid::new(field, problem))
            }
            Some(_) => Ok(()),
            None => {
                let taken = protocol::TaskId::new(id.as_str())
                    .ok()
                    .and_then(|task| self.tasks.get(framework, &task))
                    .is_some_and(|task| task.agent_id == *self.agent_id && task.executor_id == *id);
                if taken {
                    let expected = "an id that no command task of this framework there has";
                    return Err(Invalid::new(field, id, expected).into());
                }
                Ok(())
            }
        }
    }

    /// Whether its executor is new on the agent.
    fn is_new(&self, task: &TaskInfo) -> bool {
        let known = task.executor.as_ref().and_then(|executor| {
            let id = &executor.executor_id;
            self.tasks.executor(self.agent_id, &self.framework.id, id)
        });
        known.is_none()
    }

    /// The task's own resources.
    fn own_resources(&self, task: &TaskInfo) -> Result<Resources, TaskInvalid> {
        if task.resources.is_empty() {
            return Err(TaskInvalid::new("task.resources", "Task uses no resources"));
        }
        let own = allocated("task.resources", &task.resources, self.role)
            .map_err(by_rule("Invalid task resources"))?;
        check_mix("task.resources", "Task", &own)?;
        Ok(own)
    }

    /// The executor's own resources.
    fn executor_resources(&self, executor: &ExecutorInfo) -> Result<Resources, TaskInvalid> {
        let field = "task.executor.resources";
        let resources = allocated(field, &executor.resources, self.role)
            .map_err(by_rule("Invalid executor resources"))?;
        check_mix(field, "Executor", &resources)?;
        Ok(resources)
    }

    fn check_resources(&self, task: &TaskInfo) -> Result<Needs, TaskInvalid> {
        let own = self.own_resources(task)?;
        let executor = match &task.executor {
            None => None,
            Some(executor) => Some((self.executor_resources(executor)?, self.is_new(task))),
        };
        let mut total = own.clone();
        if let Some((resources, true)) = &executor {
            total.checked_add(resources).map_err(|invalid| {
                Invalid::new("task.executor.resources", invalid.value, invalid.expected)
            })?;
            check_mix("task.resources", "Task and its executor", &total)?;
        }
        self.check_left("task.resources", "task and its executor is", &total)?;
        Ok(Needs {
            task: own,
            executor,
            total,
        })
    }

    /// Checks that the offers have enough left.
    fn check_left(&self, field: &str, user: &str, total: &Resources) -> Result<(), TaskInvalid> {
        if self.remaining.lacking(total).is_none() {
            return Ok(());
        }
        let (total, left) = (plain(total), plain(self.remaining));
        let left = if left.is_empty() { "{}" } else { &left };
        let problem = format!(
            "Total resources {} required by {user} more than available {}",
            brief(&total),
            brief(left)
        );
        Err(TaskInvalid::new(field, problem))
    }
}

/// What a default executor cannot have.
fn check_default(executor: &ExecutorInfo) -> Result<(), TaskInvalid> {
    let container = executor.container.as_ref();
    let (field, problem) = if container.is_some_and(|container| container.docker.is_some()) {
        let problem = "'ExecutorInfo.container.type' must be 'MESOS' for 'DEFAULT' executor";
        ("executor.container.type", problem)
    } else if container.is_some_and(|container| container.image.is_some()) {
        let problem = "'ExecutorInfo.container.mesos.image' must not be set for 'DEFAULT' executor";
        ("executor.container.mesos.image", problem)
    } else {
        return Ok(());
    };
    Err(TaskInvalid::new(field, problem))
}

/// Whether both describe the same executor, ignoring missing allocation roles, and secrets, which
/// an agent forgets when it restarts.
fn same_executor(known: &ExecutorInfo, other: &ExecutorInfo, role: &Role) -> bool {
    let mut other = other.without_secrets().into_owned();
    if let Ok(resources) = allocated("", &other.resources, role) {
        other.resources = resources;
    }
    *known.without_secrets() == other
}

/// The resources allocated to `role`; fails if they are allocated to another role.
fn allocated(field: &str, resources: &Resources, role: &Role) -> Result<Resources, Invalid> {
    let other = |resource: &&Resource| {
        resource
            .allocation_role()
            .is_some_and(|allocated| allocated != role)
    };
    match resources.iter().find(other) {
        None => Ok(resources.allocate(role)),
        Some(wrong) => {
            let given = wrong.allocation_role().map_or("", Role::as_str);
            let expected = format!("the role of the offers, `{role}`");
            Err(Invalid::new(
                format!("{field}.allocation_info.role"),
                given,
                expected,
            ))
        }
    }
}

/// Checks that no name is both regular and revocable, and that no persistent volume appears twice.
fn check_mix(field: &str, user: &str, resources: &Resources) -> Result<(), TaskInvalid> {
    for revocable in resources.iter().filter(|resource| resource.is_revocable()) {
        let name = revocable.name_str();
        let mixed = |resource: &Resource| !resource.is_revocable() && resource.name_str() == name;
        if resources.iter().any(mixed) {
            let (verb, resources) = (
                if user.contains(' ') { "mix" } else { "mixes" },
                plain(resources),
            );
            let problem = format!(
                "{user} {verb} revocable and non-revocable resources: `{name}` in {resources}"
            );
            return Err(TaskInvalid::new(field, problem));
        }
    }
    let mut volumes = BTreeSet::new();
    for resource in resources.iter().filter(|r| r.is_persistent_volume()) {
        let disk = resource.annotations().disk.as_ref();
        let id = disk
            .and_then(|disk| disk.persistence.as_ref())
            .map(|persistence| persistence.id.to_string());
        if let Some(id) = id
            && !volumes.insert((resource.role().clone(), id.clone()))
        {
            let verb = if user.contains(' ') { "use" } else { "uses" };
            let problem = format!("{user} {verb} duplicate persistence ID: {id}");
            let field = format!("{field}.disk.persistence.id");
            return Err(TaskInvalid::new(&field, problem));
        }
    }
    Ok(())
}

/// Checks whether a process may run as this user.
fn user(field: &str, name: &str, policy: &Policy) -> Result<(), Invalid> {
    if name.is_empty() || name.contains(|c: char| c.is_control() || c.is_whitespace() || c == ':') {
        let expected = "the name of a user, without blanks, colons and control characters";
        return Err(Invalid::new(field, name, expected));
    }
    if name == "root" && !policy.root_submissions {
        let expected = "another user: this master was started with --no-root_submissions";
        return Err(Invalid::new(field, name, expected));
    }
    Ok(())
}

/// Resources without the allocation role that all of an offer has.
fn plain(resources: &Resources) -> String {
    resources.unallocate().brief().to_string()
}

/// The refusal of a task of a group, as in Mesos to the letter.
pub(crate) fn unauthorized_member(
    task: &TaskInfo,
    framework: &Framework,
    forbidden: &Forbidden,
) -> TaskInvalid {
    let (id, Framework { id: of, info, .. }) = (&task.task_id, framework);
    tracing::info!(framework = %of, task = %id, %forbidden, "refusing a task group");
    let user = excerpt(task.user_in(info));
    let problem = format!(
        "Task '{id}' is not authorized tolaunch task {id} of framework {of} under user '{user}'"
    );
    TaskInvalid::new("task.command.user", problem)
}

/// The first 200 characters of a text.
fn brief(text: &str) -> String {
    match text.char_indices().nth(200) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}...", &text[..end]),
    }
}

#[cfg(test)]
mod tests;
