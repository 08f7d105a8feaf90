//! Agents, frameworks, tasks, executors and operations of the books, in the words of the v1 operator API (SPEC 2.6, 2.8).
//!
//! Pure.

use std::borrow::Cow;
use std::net::Ipv4Addr;

use protocol::view::RoleView;
use protocol::{AgentId, AgentInfo, FrameworkId, MasterInfo, OperationStatus, Uuid};
use resources::Resources;
use v1::convert::write_resources;
use v1::convert::{constraints, master_info, offer_filters, uuid_bytes, write_labels};
use v1::message::Enum;
use v1::schema::master::{
    ResponseGetAgentsAgent, ResponseGetExecutorsExecutor, ResponseGetFrameworksFramework,
};
use v1::schema::{
    AgentInfo as AgentInfoSaid, AgentInfoCapability, AgentInfoCapabilityType, FrameworkInfo,
    MasterInfo as MasterInfoSaid, OfferOperation, Operation, Role, Task as TaskSaid, UUID,
};

use super::super::shown::{AGENT_CAPABILITIES, ExecutorShown, Shown};
use crate::agents::Agent;
use crate::frameworks::Framework;
use crate::tasks::Task;

/// The master itself. Its address is known where its host name is one.
pub(in crate::http) fn master(info: &MasterInfo) -> MasterInfoSaid {
    let address: Option<Ipv4Addr> = info.hostname.parse().ok();
    master_info(info, address)
}

/// A task.
pub(in crate::http) fn task(task: &Task) -> TaskSaid {
    TaskSaid {
        name: task.name.clone(),
        task_id: (&task.id).into(),
        framework_id: (&task.framework_id).into(),
        executor_id: Some((&task.executor_id).into()),
        agent_id: (&task.agent_id).into(),
        state: task.state.into(),
        resources: write_resources(&task.resources),
        statuses: task.statuses.iter().map(Into::into).collect(),
        status_update_state: Some(task.told.into()),
        status_update_uuid: task
            .statuses
            .last()
            .and_then(|status| status.uuid)
            .map(uuid_bytes),
        labels: write_labels(&task.labels),
        user: task.user.clone(),
        ..TaskSaid::default()
    }
}

/// An agent that is registered.
pub(in crate::http) fn agent(shown: Shown<'_>, agent: &Agent) -> ResponseGetAgentsAgent {
    let capability = |name: &&str| AgentInfoCapability {
        r#type: AgentInfoCapabilityType::by_name(name),
    };
    let info = &agent.info;
    let seen = |resources: &Resources| write_resources(&shown.resources(resources));
    ResponseGetAgentsAgent {
        agent_info: agent_info(shown, &agent.id, info),
        active: agent.connected,
        version: agent.version.clone(),
        pid: Some(format!("slave(1)@{}:{}", info.hostname, info.port)),
        registered_time: Some(agent.registered.into()),
        reregistered_time: agent.reregistered.map(Into::into),
        total_resources: seen(&(&info.resources + &agent.oversubscribed)),
        allocated_resources: seen(&shown.used_on(agent)),
        offered_resources: seen(&shown.offered_of(agent)),
        capabilities: AGENT_CAPABILITIES.iter().map(capability).collect(),
        deactivated: Some(false),
        ..ResponseGetAgentsAgent::default()
    }
}

/// What an agent says of itself, with the id that it has.
pub(in crate::http) fn agent_info(
    shown: Shown<'_>,
    id: &AgentId,
    info: &AgentInfo,
) -> AgentInfoSaid {
    let mut said = AgentInfoSaid::from(info);
    if let Cow::Owned(seen) = shown.resources(&info.resources) {
        said.resources = write_resources(&seen);
    }
    said.id = Some(id.into());
    said
}

/// A framework, of whose resources these are in use.
pub(in crate::http) fn framework(
    shown: Shown<'_>,
    framework: &Framework,
    held: &Resources,
) -> ResponseGetFrameworksFramework {
    let mut offered = Resources::default();
    let mut offers = Vec::new();
    for offer in shown.offers(&framework.id) {
        offered += &offer.resources;
        offers.push(offer.into());
    }
    let constraints = constraints(&framework.wants.demands);
    ResponseGetFrameworksFramework {
        framework_info: framework_info(framework),
        active: framework.is_connected(),
        connected: framework.is_connected(),
        registered_time: Some(framework.registered.into()),
        reregistered_time: framework.reregistered.map(Into::into),
        unregistered_time: framework.unregistered.map(Into::into),
        offers,
        allocated_resources: write_resources(held),
        offered_resources: write_resources(&offered),
        inverse_offers: shown
            .inverse_offers(&framework.id)
            .map(Into::into)
            .collect(),
        recovered: framework.recovered,
        offer_constraints: (!constraints.role_constraints.is_empty()).then_some(constraints),
    }
}

/// What a framework says of itself, with the id that it has.
pub(in crate::http) fn framework_info(framework: &Framework) -> FrameworkInfo {
    let mut said = FrameworkInfo::from(&framework.info);
    said.id = Some((&framework.id).into());
    said.offer_filters = offer_filters(&framework.wants.demands);
    said
}

/// A role that is seen, with what its frameworks hold and are offered.
pub(in crate::http) fn role(shown: Shown<'_>, role: RoleView) -> Role {
    let held = role.allocated + role.offered;
    Role {
        name: role.name,
        weight: role.weight,
        frameworks: role.frameworks.iter().map(Into::into).collect(),
        resources: write_resources(&shown.resources(&held)),
    }
}

/// A framework's own executor.
pub(in crate::http) fn executor(executor: ExecutorShown<'_>) -> ResponseGetExecutorsExecutor {
    let mut info = v1::schema::ExecutorInfo::from(executor.info);
    info.framework_id = Some(executor.framework.into());
    ResponseGetExecutorsExecutor {
        executor_info: info,
        agent_id: executor.agent.into(),
    }
}

/// An operation, of which a master knows how it is, and not any more what was to become of what.
pub(in crate::http) fn operation(
    framework: &FrameworkId,
    agent: &AgentId,
    status: &OperationStatus,
) -> Operation {
    Operation {
        framework_id: Some(framework.into()),
        agent_id: Some(agent.into()),
        info: OfferOperation {
            id: Some((&status.operation_id).into()),
            ..OfferOperation::default()
        },
        latest_status: status.into(),
        statuses: vec![status.into()],
        uuid: UUID {
            value: uuid_bytes(status.uuid.unwrap_or(Uuid([0; 16]))),
        },
    }
}
