//! Operators' changes of a master, and their calls about containers of an agent.
//!
//! Queries (`GET_STATE` and others) are not converted: their handlers need only the type.
//!
//! | module | contents |
//! |---|---|
//! | `nested` | calls about containers |
//! | `process_io` | streams of a container's input and output |

pub mod nested;
pub mod process_io;

use std::collections::BTreeMap;

use protocol::Quota;
use protocol::message::operator::{
    DeactivateAgent, DrainAgent, MarkAgentGone, Operate, ReactivateAgent, StartMaintenance,
    StopMaintenance, UpdateMaintenanceSchedule, UpdateQuotas, UpdateWeights,
};
use protocol::message::scheduler::TearDown;
use resources::{Conversion, Invalid};

use super::maintenance::{machines, windows};
use super::resource::read_resources;
use super::{At, absent, need, part};
use crate::convert::operation::reserving;
use crate::schema::allocator::quota::QuotaRequest;
use crate::schema::master::{
    Call, CallDrainAgent, CallReserveResources, CallType, CallUpdateQuota, CallUpdateWeights,
    EventLast, EventType,
};
use crate::schema::scheduler::EventError;
use crate::schema::{AgentID, Duration, Resource};

/// A decoded call of an operator.
#[derive(Clone, Debug, PartialEq)]
pub enum OperatorCall {
    /// Reserve, unreserve, create, destroy, grow or shrink on an agent.
    Operate(Operate),
    /// Several of these on one agent, in this order, all or none.
    OperateAll(protocol::AgentId, Vec<Conversion>),
    /// Sets quotas of roles.
    UpdateQuotas(UpdateQuotas),
    /// Sets the quota of one role, with equal guarantee and limit, if it has none yet. Deprecated.
    SetQuota(UpdateQuotas),
    /// Removes the quota of this role. Deprecated.
    RemoveQuota(String),
    /// Sets weights of roles.
    UpdateWeights(UpdateWeights),
    /// Ends a framework.
    TearDown(TearDown),
    /// Drains an agent.
    Drain(DrainAgent),
    /// Stops offering an agent.
    Deactivate(DeactivateAgent),
    /// Offers an agent again.
    Reactivate(ReactivateAgent),
    /// Marks an agent as gone for good.
    Gone(MarkAgentGone),
    /// Replaces the maintenance schedule.
    Schedule(UpdateMaintenanceSchedule),
    /// Marks machines as down.
    StartMaintenance(StartMaintenance),
    /// Marks machines as up again.
    StopMaintenance(StopMaintenance),
    /// A query or an unsupported call, by its type.
    Other(CallType),
}

/// Decodes a call. The message of a refusal begins as that of Mesos, which clients compare.
pub fn to_protocol(call: &Call) -> Result<OperatorCall, Invalid> {
    decode(call).map_err(|bad| Invalid::message(format!("Failed to validate master::Call: {bad}")))
}

fn decode(call: &Call) -> Result<OperatorCall, Invalid> {
    Ok(match call.r#type.unwrap_or_default() {
        CallType::Unknown => return Err(absent("type")),
        CallType::UpdateQuota => {
            let update = part("update_quota", call.update_quota.as_ref())?;
            OperatorCall::UpdateQuotas(quotas(update).at("update_quota")?)
        }
        CallType::SetQuota => {
            let set = part("set_quota", call.set_quota.as_deref())?;
            let quota = oldest_quota(&set.quota_request).at("quota_request");
            OperatorCall::SetQuota(quota.at("set_quota")?)
        }
        CallType::RemoveQuota => {
            let remove = part("remove_quota", call.remove_quota.as_ref())?;
            OperatorCall::RemoveQuota(remove.role.clone())
        }
        CallType::UpdateWeights => {
            let update = part("update_weights", call.update_weights.as_ref())?;
            OperatorCall::UpdateWeights(weights(update).at("update_weights")?)
        }
        CallType::Teardown => {
            let teardown = part("teardown", call.teardown.as_ref())?;
            let framework_id = (&teardown.framework_id).try_into();
            OperatorCall::TearDown(TearDown {
                framework_id: framework_id.at("teardown.framework_id")?,
            })
        }
        CallType::DrainAgent => {
            let drain = part("drain_agent", call.drain_agent.as_deref())?;
            OperatorCall::Drain(drained(drain).at("drain_agent")?)
        }
        CallType::DeactivateAgent => {
            let name = "deactivate_agent";
            let call = part(name, call.deactivate_agent.as_ref())?;
            let agent_id = (&call.agent_id).try_into().at("agent_id").at(name)?;
            OperatorCall::Deactivate(DeactivateAgent { agent_id })
        }
        CallType::ReactivateAgent => {
            let name = "reactivate_agent";
            let call = part(name, call.reactivate_agent.as_ref())?;
            let agent_id = (&call.agent_id).try_into().at("agent_id").at(name)?;
            OperatorCall::Reactivate(ReactivateAgent { agent_id })
        }
        CallType::MarkAgentGone => {
            let name = "mark_agent_gone";
            let call = part(name, call.mark_agent_gone.as_ref())?;
            let agent_id = (&call.agent_id).try_into().at("agent_id").at(name)?;
            OperatorCall::Gone(MarkAgentGone { agent_id })
        }
        CallType::UpdateMaintenanceSchedule => {
            let name = "update_maintenance_schedule";
            let update = part(name, call.update_maintenance_schedule.as_ref())?;
            let windows = windows(&update.schedule).at("schedule").at(name)?;
            OperatorCall::Schedule(UpdateMaintenanceSchedule { windows })
        }
        CallType::StartMaintenance => {
            let start = part("start_maintenance", call.start_maintenance.as_ref())?;
            let machines = machines(&start.machines).at("start_maintenance")?;
            OperatorCall::StartMaintenance(StartMaintenance { machines })
        }
        CallType::StopMaintenance => {
            let stop = part("stop_maintenance", call.stop_maintenance.as_ref())?;
            let machines = machines(&stop.machines).at("stop_maintenance")?;
            OperatorCall::StopMaintenance(StopMaintenance { machines })
        }
        CallType::ReserveResources => {
            let reserve = part("reserve_resources", call.reserve_resources.as_deref())?;
            reserved(reserve).at("reserve_resources")?
        }
        CallType::UnreserveResources => {
            let name = "unreserve_resources";
            let unreserve = part(name, call.unreserve_resources.as_ref())?;
            let resources = read_resources("resources", &unreserve.resources).at(name)?;
            operate(
                name,
                Some(&unreserve.agent_id),
                Conversion::Unreserve { resources },
            )?
        }
        CallType::CreateVolumes => {
            let create = part("create_volumes", call.create_volumes.as_ref())?;
            let volumes = read_resources("volumes", &create.volumes).at("create_volumes")?;
            operate(
                "create_volumes",
                Some(&create.agent_id),
                Conversion::Create { volumes },
            )?
        }
        CallType::DestroyVolumes => {
            let destroy = part("destroy_volumes", call.destroy_volumes.as_ref())?;
            let volumes = read_resources("volumes", &destroy.volumes).at("destroy_volumes")?;
            operate(
                "destroy_volumes",
                Some(&destroy.agent_id),
                Conversion::Destroy { volumes },
            )?
        }
        CallType::GrowVolume => {
            let grow = part("grow_volume", call.grow_volume.as_deref())?;
            let conversion = Conversion::GrowVolume {
                volume: one(&grow.volume).at("grow_volume.volume")?,
                addition: one(&grow.addition).at("grow_volume.addition")?,
            };
            operate("grow_volume", grow.agent_id.as_ref(), conversion)?
        }
        CallType::ShrinkVolume => {
            let shrink = part("shrink_volume", call.shrink_volume.as_deref())?;
            let conversion = Conversion::ShrinkVolume {
                volume: one(&shrink.volume).at("shrink_volume.volume")?,
                subtract: (&shrink.subtract).try_into().at("shrink_volume.subtract")?,
            };
            operate("shrink_volume", shrink.agent_id.as_ref(), conversion)?
        }
        other => OperatorCall::Other(other),
    })
}

fn drained(call: &CallDrainAgent) -> Result<DrainAgent, Invalid> {
    let max = call.max_grace_period.as_ref();
    Ok(DrainAgent {
        agent_id: (&call.agent_id).try_into().at("agent_id")?,
        max_grace_period: max.map(read_duration).transpose().at("max_grace_period")?,
        mark_gone: call.mark_gone.unwrap_or(false),
    })
}

/// A duration in seconds and nanoseconds, neither of them negative.
fn read_duration(duration: &Duration) -> Result<std::time::Duration, Invalid> {
    let seconds = duration.seconds.unwrap_or(0);
    let nanos = duration.nanos.unwrap_or(0);
    let seconds = u64::try_from(seconds)
        .map_err(|_| Invalid::new("seconds", seconds, "a number of at least 0"))?;
    let nanos = u32::try_from(nanos)
        .ok()
        .filter(|nanos| *nanos < 1_000_000_000);
    let expected = "a number from 0 to 999999999";
    let nanos =
        nanos.ok_or_else(|| Invalid::new("nanos", duration.nanos.unwrap_or(0), expected))?;
    Ok(std::time::Duration::new(seconds, nanos))
}

fn one(resource: &Resource) -> Result<resources::Resource, Invalid> {
    resource.try_into()
}

fn operate(
    name: &str,
    agent: Option<&AgentID>,
    conversion: Conversion,
) -> Result<OperatorCall, Invalid> {
    let problem =
        "Expecting 'agent_id' to be present; only agent default resources are supported right now";
    let agent = agent.ok_or_else(|| Invalid::message(problem))?;
    Ok(OperatorCall::Operate(Operate {
        agent_id: agent.try_into().at("agent_id").at(name)?,
        conversion,
    }))
}

/// A reservation; `source` has the resources before it.
fn reserved(reserve: &CallReserveResources) -> Result<OperatorCall, Invalid> {
    let agent_id: protocol::AgentId = (&reserve.agent_id).try_into().at("agent_id")?;
    let resources = read_resources("resources", &reserve.resources)?;
    let source = read_resources("source", &reserve.source)?;
    let mut steps = reserving::steps(&source, &resources)?;
    Ok(match (steps.len(), steps.pop()) {
        (1, Some(conversion)) => OperatorCall::Operate(Operate {
            agent_id,
            conversion,
        }),
        (_, last) => {
            steps.extend(last);
            OperatorCall::OperateAll(agent_id, steps)
        }
    })
}

fn quotas(update: &CallUpdateQuota) -> Result<UpdateQuotas, Invalid> {
    let mut quotas = BTreeMap::new();
    for (index, config) in update.quota_configs.iter().enumerate() {
        let index = format!("quota_configs[{index}]");
        let quota = config.try_into().at(&index)?;
        if quotas.insert(config.role.clone(), quota).is_some() {
            let twice = Invalid::new("role", &config.role, "each role once");
            return Err(twice).at(&index);
        }
    }
    Ok(UpdateQuotas {
        quotas,
        force: update.force.unwrap_or(false),
    })
}

/// A quota of before limits existed: the guarantee is the limit, too.
fn oldest_quota(request: &QuotaRequest) -> Result<UpdateQuotas, Invalid> {
    let role = need("role", request.role.as_ref(), "the role of the quota")?;
    let guarantee = read_resources("guarantee", &request.guarantee)?;
    let is_plain =
        |one: &&resources::Resource| one.amount().is_some() && one.is_open() && !one.is_shared();
    if let Some(other) = guarantee.iter().find(|one| !is_plain(one)) {
        let expected = "amounts that are reserved for nobody, as cpus:2";
        return Err(Invalid::new("guarantee", other, expected));
    }
    let amounts = guarantee.quantities();
    let quota = Quota {
        guarantees: amounts.clone(),
        limits: amounts,
    };
    Ok(UpdateQuotas {
        quotas: BTreeMap::from([(role.clone(), quota)]),
        force: request.force.unwrap_or(false),
    })
}

fn weights(update: &CallUpdateWeights) -> Result<UpdateWeights, Invalid> {
    let mut weights = BTreeMap::new();
    for (index, info) in update.weight_infos.iter().enumerate() {
        let index = format!("weight_infos[{index}]");
        let expected = "the role of the weight";
        let role = need("role", info.role.as_ref(), expected).at(&index)?;
        if weights.insert(role.clone(), info.weight).is_some() {
            return Err(Invalid::new("role", role, "each role once")).at(&index);
        }
    }
    Ok(UpdateWeights { weights })
}

impl EventLast {
    /// The last event of a stream, with the reason.
    pub fn because(message: impl Into<String>) -> Self {
        let message = message.into();
        Self {
            r#type: Some(EventType::Unknown),
            error: Some(EventError { message }),
        }
    }
}
