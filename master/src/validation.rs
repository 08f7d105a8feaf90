//! Validation: whether a framework, an agent or a task may come in as it describes itself (SPEC 3.3).
//!
//! Pure. Each refusal names the field, what stood there and what was expected. It never mends what it is given, except that
//! resources without an allocation role get the one of the offers they are taken from.

mod conversion;
mod group;
mod told;

pub use conversion::{conversion, held};
pub use told::told;

use std::collections::BTreeSet;

use module_api::demand::{AgentTest, CONSTRAINTS_MAX, EXPRESSIONS_MAX, expressions};
use module_api::sorter::Shape;
use protocol::{
    AgentId, AgentInfo, Capability, CommandInfo, ExecutorId, ExecutorInfo, FrameworkInfo, TaskInfo,
    Wants, marks,
};
use resources::{Invalid, Resource, Resources, Role};

use crate::books::Policy;
use crate::frameworks::Framework;
use crate::permission::Asker;
use crate::tasks::{Tasks, UNACKNOWLEDGED_MAX};

/// Whether a framework may subscribe as it describes itself.
pub fn framework(info: &FrameworkInfo, wants: &Wants, policy: &Policy) -> Result<(), Invalid> {
    user("framework.user", &info.user, policy)?;
    // One with MULTI_ROLE may take its roles later.
    if info.roles.len() != 1 && !info.can(Capability::MultiRole) {
        let given = info.roles.iter().cloned().collect::<Vec<_>>().join(",");
        let expected = "exactly one role, or the capability MULTI_ROLE";
        return Err(Invalid::new("framework.roles", given, expected));
    }
    roles("framework.roles", &info.roles)?;
    for role in &info.roles {
        if let Some(allowed) = policy
            .roles
            .as_ref()
            .filter(|allowed| !allowed.contains(role))
        {
            let allowed = allowed.iter().cloned().collect::<Vec<_>>().join(",");
            let expected = format!("one of the roles this master serves: {}", brief(&allowed));
            return Err(Invalid::new("framework.roles", role, expected));
        }
    }
    let asker = Asker::framework(&policy.acls, info);
    asker.register(&info.roles)?;
    let expected = "roles of the framework only";
    if let Some(role) = wants.suppressed_roles.difference(&info.roles).next() {
        return Err(Invalid::new("suppressed_roles", role, expected));
    }
    // Before any is compiled: that is what costs.
    let count: usize = wants.demands.values().map(expressions).sum();
    if count > EXPRESSIONS_MAX {
        let expected = format!("at most {EXPRESSIONS_MAX} regular expressions in all roles");
        return Err(Invalid::new("demands", count, expected));
    }
    let mut size = 0;
    for (role, demand) in &wants.demands {
        if !info.roles.contains(role) {
            return Err(Invalid::new("demands", role, expected));
        }
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

/// Whether these can be roles.
fn roles(field: &str, roles: &BTreeSet<String>) -> Result<(), Invalid> {
    for role in roles {
        Role::new(role).map_err(|invalid| Invalid::new(field, role, invalid.expected))?;
    }
    Ok(())
}

/// Whether an agent may register as it describes itself.
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

/// What a task is held against.
pub struct TaskRules<'a> {
    /// Whose it is.
    pub framework: &'a Framework,
    /// The agent of the offers.
    pub agent_id: &'a AgentId,
    /// The role that the offers are allocated to.
    pub role: &'a Role,
    /// What is left of the offers.
    pub remaining: &'a Resources,
    /// What runs already.
    pub tasks: &'a Tasks,
    /// What the operator has chosen.
    pub policy: &'a Policy,
}

/// What a valid task takes from the offers.
#[derive(Clone, Debug, PartialEq)]
pub struct Needs {
    /// The task's own resources.
    pub task: Resources,
    /// Its executor's, and whether that executor is new on its agent and so takes them now.
    pub executor: Option<(Resources, bool)>,
    /// All that is taken from the offers.
    pub total: Resources,
}

impl TaskRules<'_> {
    /// Whether this task may be launched, in the order of SPEC 3.3, and what it takes.
    pub fn check(&self, task: &TaskInfo) -> Result<Needs, Invalid> {
        self.check_identity(task)?;
        marks::priority(&task.labels)?;
        marks::is_long(&task.labels)?;
        match (&task.command, &task.executor) {
            (Some(command), None) => self.check_command("task.command", command)?,
            (None, Some(executor)) => self.check_executor(executor)?,
            (Some(_), Some(_)) => {
                let expected = "exactly one of command and executor";
                return Err(Invalid::new(
                    "task.command",
                    "set beside executor",
                    expected,
                ));
            }
            (None, None) => {
                let expected = "exactly one of command and executor";
                return Err(Invalid::new("task.command", "not set", expected));
            }
        }
        self.check_resources(task)
    }

    fn check_identity(&self, task: &TaskInfo) -> Result<(), Invalid> {
        let framework = &self.framework.id;
        if task.agent_id != *self.agent_id {
            let expected = format!("the agent of the offers, `{}`", self.agent_id);
            return Err(Invalid::new("task.agent_id", &task.agent_id, expected));
        }
        if self.tasks.is_taken(framework, &task.task_id) {
            let expected =
                "an id that no other task of this framework has that runs or is unreachable";
            return Err(Invalid::new("task.task_id", &task.task_id, expected));
        }
        if self.tasks.unacknowledged(framework) >= UNACKNOWLEDGED_MAX {
            let expected = format!(
                "fewer than {UNACKNOWLEDGED_MAX} ended tasks whose last status is not acknowledged"
            );
            return Err(Invalid::new("task.task_id", &task.task_id, expected));
        }
        let own = ExecutorId::from(&task.task_id);
        if task.command.is_some()
            && self
                .tasks
                .executor(self.agent_id, framework, &own)
                .is_some()
        {
            let expected = "an id that no executor of this framework on this agent has";
            return Err(Invalid::new("task.task_id", &task.task_id, expected));
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
        match &command.user {
            None => Ok(()),
            Some(name) => user(&format!("{field}.user"), name, self.policy),
        }
    }

    fn check_executor(&self, executor: &ExecutorInfo) -> Result<(), Invalid> {
        self.check_command("task.executor.command", &executor.command)?;
        let (id, framework) = (&executor.executor_id, &self.framework.id);
        let field = "task.executor.executor_id";
        match self.tasks.executor(self.agent_id, framework, id) {
            Some(known) if !same_executor(known, executor, self.role) => {
                let expected = "an executor described as when it was first launched on this agent";
                Err(Invalid::new(field, id, expected))
            }
            Some(_) => Ok(()),
            None => {
                let taken = protocol::TaskId::new(id.as_str())
                    .ok()
                    .and_then(|task| self.tasks.get(framework, &task))
                    .is_some_and(|task| task.agent_id == *self.agent_id && task.executor_id == *id);
                if taken {
                    let expected = "an id that no command task of this framework there has";
                    return Err(Invalid::new(field, id, expected));
                }
                Ok(())
            }
        }
    }

    fn check_resources(&self, task: &TaskInfo) -> Result<Needs, Invalid> {
        if task.resources.is_empty() {
            return Err(Invalid::new("task.resources", "", "at least one resource"));
        }
        let own = allocated("task.resources", &task.resources, self.role)?;
        check_mix("task.resources", &own)?;
        let executor = match &task.executor {
            None => None,
            Some(executor) => {
                let field = "task.executor.resources";
                let resources = allocated(field, &executor.resources, self.role)?;
                check_mix(field, &resources)?;
                let known =
                    self.tasks
                        .executor(self.agent_id, &self.framework.id, &executor.executor_id);
                Some((resources, known.is_none()))
            }
        };
        let mut total = own.clone();
        if let Some((resources, true)) = &executor {
            total.checked_add(resources).map_err(|invalid| {
                Invalid::new("task.executor.resources", invalid.value, invalid.expected)
            })?;
            check_mix("task.resources", &total)?;
        }
        self.check_left("task.resources", &total)?;
        Ok(Needs {
            task: own,
            executor,
            total,
        })
    }

    /// Whether so much is left of the offers.
    fn check_left(&self, field: &str, total: &Resources) -> Result<(), Invalid> {
        let Some(lacking) = self.remaining.lacking(total) else {
            return Ok(());
        };
        let left = self
            .remaining
            .filter(|resource| resource.name_str() == lacking.name_str());
        let left = match plain(&left) {
            none if none.is_empty() => "nothing".to_owned(),
            left => brief(&left),
        };
        let lacking = plain(&Resources::from(lacking.clone()));
        let expected = format!("no more than what is left of the offers, which is {left}");
        Err(Invalid::new(field, lacking, expected))
    }
}

/// Whether it is the same executor, wherever its resources say their allocation role.
fn same_executor(known: &ExecutorInfo, other: &ExecutorInfo, role: &Role) -> bool {
    let mut other = other.clone();
    if let Ok(resources) = allocated("", &other.resources, role) {
        other.resources = resources;
    }
    *known == other
}

/// The resources, allocated to `role`; what is allocated to another role is refused.
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

/// No name both regular and revocable (SPEC 2.8), and each persistent volume once.
fn check_mix(field: &str, resources: &Resources) -> Result<(), Invalid> {
    for revocable in resources.iter().filter(|resource| resource.is_revocable()) {
        let name = revocable.name_str();
        let mixed = |resource: &Resource| !resource.is_revocable() && resource.name_str() == name;
        if resources.iter().any(mixed) {
            let expected = format!("`{name}` either revocable or not, but not both");
            return Err(Invalid::new(field, plain(resources), expected));
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
            return Err(Invalid::new(
                format!("{field}.disk.persistence.id"),
                id,
                "each persistent volume once",
            ));
        }
    }
    Ok(())
}

/// Whether a process may run as this user.
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

/// Resources as people write them: without the role that all of an offer is allocated to.
fn plain(resources: &Resources) -> String {
    resources.unallocate().brief().to_string()
}

/// At most 200 characters of a text.
fn brief(text: &str) -> String {
    match text.char_indices().nth(200) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}...", &text[..end]),
    }
}

#[cfg(test)]
mod tests;
