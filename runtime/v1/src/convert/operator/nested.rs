//! Calls about nested containers and containers without a framework, in the agent's operator API.
//!
//! LAUNCH_NESTED_CONTAINER and LAUNCH_CONTAINER, for example, become the same
//! [`NestedCall`]: the older calls only demand a parent. All errors are bodies of answers with
//! status 400, in Mesos' words.

use protocol::task::{ContainerInfo, TaskLimits};
use protocol::{CommandInfo, ContainerId};
use resources::{Invalid, Resources, excerpt};

use super::super::resource::read_resources;
use super::super::task::read_limits;
use super::super::{absent, part};
use crate::convert::ids::id_problem;
use crate::schema::agent::{
    Call, CallAttachContainerInput, CallAttachContainerInputType, CallLaunchContainer, CallType,
};
use crate::schema::{self, ContainerID};

/// The signal of a kill without one: SIGKILL.
const SIGKILL: i32 = 9;
/// Mesos' maximum length of one container's own id.
const CONTAINER_ID_MAX: usize = 242;

/// A decoded call about a container.
#[derive(Clone, Debug, PartialEq)]
pub enum NestedCall {
    /// Starts a container.
    Launch(Box<NestedLaunch>),
    /// Waits for its end.
    Wait(ContainerId),
    /// Sends a signal to its first process.
    Kill(ContainerId, i32),
    /// Removes it after its end.
    Remove(ContainerId),
    /// Attaches to its input. The call is the first of a stream: [`super::process_io`].
    AttachInput(ContainerId),
    /// Attaches to its output.
    AttachOutput(ContainerId),
}

/// A container to start.
#[derive(Clone, Debug, PartialEq)]
pub struct NestedLaunch {
    /// Its id; without a parent it belongs to no framework.
    pub container_id: ContainerId,
    /// Its command; `None` leaves it to the image.
    pub command: Option<CommandInfo>,
    /// Its settings.
    pub container: Option<ContainerInfo>,
    /// Its resources; without any it uses those of its parent.
    pub resources: Resources,
    /// How much more than its resources it may use.
    pub limits: TaskLimits,
    /// Whether it ends with the connection, which has its output.
    pub is_session: bool,
}

/// The call about a container; `None` for all other calls.
pub fn nested_call(call: &Call) -> Option<Result<NestedCall, Invalid>> {
    let kind = call.r#type.unwrap_or_default();
    if kind == CallType::AttachContainerInput {
        let first = attach_input(call).map_err(invalid);
        return Some(first.and_then(|(kind, id)| match (kind, id) {
            (CallAttachContainerInputType::ContainerId, Some(id)) => {
                Ok(NestedCall::AttachInput(id))
            }
            _ => Err(Invalid::message(
                "Expecting 'attach_container_input.type' to be CONTAINER_ID",
            )),
        }));
    }
    Some(decode(call, kind)?.map_err(invalid))
}

fn invalid(bad: Invalid) -> Invalid {
    Invalid::message(format!("Failed to validate agent::Call: {bad}"))
}

fn decode(call: &Call, kind: CallType) -> Option<Result<NestedCall, Invalid>> {
    let name = kind.to_string().to_lowercase();
    // The deprecated calls are only about nested containers.
    let demands_parent = match kind {
        CallType::LaunchNestedContainer
        | CallType::LaunchNestedContainerSession
        | CallType::WaitNestedContainer
        | CallType::KillNestedContainer
        | CallType::RemoveNestedContainer
        // Mesos' agent crashes.
        | CallType::RemoveContainer => true,
        _ => false,
    };
    let id = |id: Option<&ContainerID>| {
        let id = part(&name, id)?;
        let read = container_id(&format!("{name}.container_id"), id)?;
        match demands_parent && id.parent.is_none() {
            true => Err(absent(&format!("{name}.container_id.parent"))),
            false => Ok(read),
        }
    };
    macro_rules! id {
        ($field:ident) => {
            id(call.$field.as_ref().map(|call| &call.container_id))
        };
    }
    macro_rules! kill {
        ($field:ident) => {{
            let signal = call.$field.as_ref().and_then(|call| call.signal);
            id!($field).map(|id| NestedCall::Kill(id, signal.unwrap_or(SIGKILL)))
        }};
    }
    macro_rules! launch {
        ($field:ident, $is_session:literal) => {
            id!($field).and_then(|id| {
                let call = part(&name, call.$field.as_ref())?;
                let (command, container) = (call.command.as_deref(), call.container.as_deref());
                launch(&name, id, command, container, $is_session)
            })
        };
    }
    Some(match kind {
        CallType::LaunchNestedContainer => launch!(launch_nested_container, false),
        CallType::LaunchNestedContainerSession => launch!(launch_nested_container_session, true),
        CallType::LaunchContainer => id!(launch_container).and_then(|id| {
            let call = part(&name, call.launch_container.as_deref())?;
            launch_container(&name, id, call)
        }),
        CallType::WaitNestedContainer => id!(wait_nested_container).map(NestedCall::Wait),
        CallType::WaitContainer => id!(wait_container).map(NestedCall::Wait),
        CallType::KillNestedContainer => kill!(kill_nested_container),
        CallType::KillContainer => kill!(kill_container),
        CallType::RemoveNestedContainer => id!(remove_nested_container).map(NestedCall::Remove),
        CallType::RemoveContainer => id!(remove_container).map(NestedCall::Remove),
        CallType::AttachContainerOutput => {
            id!(attach_container_output).map(NestedCall::AttachOutput)
        }
        _ => return None,
    })
}

/// The id of a container and its parents.
fn container_id(field: &str, id: &ContainerID) -> Result<ContainerId, Invalid> {
    read_id(id).map_err(|bad| Invalid::message(format!("'{field}' is invalid: {bad}")))
}

fn read_id(id: &ContainerID) -> Result<ContainerId, String> {
    let value = &id.value;
    if let Some(problem) = id_problem(value) {
        return Err(problem);
    }
    if value.len() > CONTAINER_ID_MAX {
        return Err(format!(
            "'ContainerID.value' '{value}' exceeds the maximum length ({CONTAINER_ID_MAX})"
        ));
    }
    if value.contains(|c: char| c == '.' || c.is_ascii_whitespace()) {
        let value = excerpt(value);
        return Err(format!(
            "'ContainerID.value' '{value}' contains invalid characters"
        ));
    }
    let whole = match &id.parent {
        None => ContainerId::new(value),
        Some(parent) => {
            let parent = read_id(parent);
            parent
                .map_err(|bad| format!("'ContainerID.parent' is invalid: {bad}"))?
                .nested(value)
        }
    };
    whole.map_err(|bad| bad.to_string())
}

fn of_part(name: &str, part: &str) -> impl Fn(Invalid) -> Invalid {
    move |bad| Invalid::message(format!("'{name}.{part}' is invalid: {bad}"))
}

fn launch(
    name: &str,
    container_id: ContainerId,
    command: Option<&schema::CommandInfo>,
    container: Option<&schema::ContainerInfo>,
    is_session: bool,
) -> Result<NestedCall, Invalid> {
    let command = command.map(CommandInfo::try_from).transpose();
    let command = command.map_err(of_part(name, "command"))?;
    let container = container.map(ContainerInfo::try_from).transpose();
    let container = container.map_err(of_part(name, "container"))?;
    if shares_cgroups(container.as_ref()) == Some(false) {
        if is_session {
            return Err(Invalid::message(format!(
                "'{name}.container.linux_info' is invalid: 'share_cgroups' cannot be set to 'false' for nested container sessions"
            )));
        }
        if is_deep(&container_id) {
            return Err(too_deep(name, "set 'share_cgroups' to 'false'"));
        }
    }
    Ok(NestedCall::Launch(Box::new(NestedLaunch {
        container_id,
        command,
        container,
        resources: Resources::new(),
        limits: TaskLimits::default(),
        is_session,
    })))
}

fn launch_container(
    name: &str,
    id: ContainerId,
    call: &CallLaunchContainer,
) -> Result<NestedCall, Invalid> {
    let amount = |one: &schema::Resource| one.scalar.as_ref().map_or(0.0, |scalar| scalar.value);
    let is_partial = |one: &schema::Resource| one.name == "gpus" && amount(one).fract() != 0.0;
    if call.resources.iter().any(is_partial) {
        let problem = "Invalid GPU resources: The 'gpus' resource must be an unsigned integer";
        return Err(Invalid::message(problem));
    }
    let resources = read_resources("resources", &call.resources);
    let resources =
        resources.map_err(|bad| Invalid::message(format!("Invalid resources: {bad}")))?;
    let is_nested = id.parent().is_some();
    if !is_nested {
        check_standalone(name, &resources)?;
    }
    let (command, container) = (call.command.as_deref(), call.container.as_deref());
    let (no_resources, no_limits) = (call.resources.is_empty(), call.limits.is_empty());
    let deep = is_deep(&id).then_some(name);
    let launched = launch(name, id, command, container, false);
    if let Some(name) = deep {
        if !no_resources {
            return Err(too_deep(name, "specify resources"));
        }
        if !no_limits {
            return Err(too_deep(name, "specify resource limits"));
        }
    }
    let NestedCall::Launch(mut launch) = launched? else {
        unreachable!("a launch")
    };
    if !is_nested && shares_cgroups(launch.container.as_ref()) == Some(true) {
        let problem = "containers without a parent cannot set 'share_cgroups' to 'true'";
        return Err(Invalid::message(format!("'{name}' is invalid: {problem}")));
    }
    launch.resources = resources;
    launch.limits = read_limits(&call.limits)?;
    Ok(NestedCall::Launch(launch))
}

fn check_standalone(name: &str, resources: &Resources) -> Result<(), Invalid> {
    use resources::Resource as One;
    let has = |test: fn(&One) -> bool| resources.iter().any(test);
    let problem = if has(One::is_reserved) {
        "must be unreserved"
    } else if has(One::is_persistent_volume) {
        "may not use persistent volumes"
    } else if has(One::is_revocable) {
        "must be non-revocable"
    } else {
        return Ok(());
    };
    Err(Invalid::message(format!("'{name}.resources' {problem}")))
}

fn shares_cgroups(container: Option<&ContainerInfo>) -> Option<bool> {
    container?.linux.shares_cgroups
}

/// Whether it is nested in a nested container.
fn is_deep(id: &ContainerId) -> bool {
    id.parent().is_some_and(|parent| parent.parent().is_some())
}

fn too_deep(name: &str, what: &str) -> Invalid {
    Invalid::message(format!(
        "'{name}' is invalid: containers nested at the second level or greater cannot {what}"
    ))
}

/// The first call of an input stream.
fn attach_input(
    call: &Call,
) -> Result<(CallAttachContainerInputType, Option<ContainerId>), Invalid> {
    let name = "attach_container_input";
    let attach: &CallAttachContainerInput = part(name, call.attach_container_input.as_ref())?;
    let kind = *part(&format!("{name}.type"), attach.r#type.as_ref())?;
    if kind == CallAttachContainerInputType::Unknown {
        return Err(Invalid::message(format!("'{name}.type' is unknown")));
    }
    let id = match (kind, &attach.container_id) {
        (CallAttachContainerInputType::ContainerId, None) => {
            return Err(absent(&format!("{name}.container_id")));
        }
        (_, id) => id.as_ref(),
    };
    let id = id.map(|id| container_id(&format!("{name}.container_id"), id));
    Ok((kind, id.transpose()?))
}
