//! Objects of the state as messages of the v1 operator API.
//!
//! Pure. Frequent objects are described, and so written directly into the answer; the others are
//! built first.

use std::borrow::Cow;
use std::sync::Arc;

use protocol::view::RoleView;
use protocol::{AgentId, AgentInfo, FrameworkId, Offer};
use resources::{Name, Resources};
use v1::answer_cache::Identity;
use v1::convert::{
    AGENT_CAPABILITIES, AgentDescription, constraints, describe_in_both_forms, describe_resources,
    discovery, known_operation, offer_filters, other_labels, write_container, write_limits,
};
use v1::describe::{Describe, Each, Fields, Output, build};
use v1::message::Enum;
use v1::schema::master::{
    ResponseGetAgentsAgent, ResponseGetExecutorsExecutor, ResponseGetFrameworksFramework,
};
use v1::schema::{
    AgentInfo as AgentInfoSaid, AgentInfoCapability, AgentInfoCapabilityType, DrainInfo,
    FrameworkInfo, HealthCheck, InverseOffer, KillPolicy, Operation, Role,
};

use crate::agents::Agent;
use crate::api::pages::visible::{VisibleExecutor, VisibleState, identity};
use crate::frameworks::Framework;
use crate::operations::TrackedOperation;
use crate::state::sum;
use crate::tasks::Task;

impl Describe<v1::schema::Task> for Task {
    fn describe<O: Output>(&self, fields: &mut Fields<'_, v1::schema::Task, O>) {
        let limits = write_limits(&self.limits);
        match limits.is_empty() {
            true => Unlimited(self).describe(fields),
            // A map cannot be described; few tasks have one.
            false => v1::schema::Task {
                limits,
                ..build(&Unlimited(self))
            }
            .describe(fields),
        }
    }
}

/// A task without its limits.
struct Unlimited<'a>(&'a Task);

impl Describe<v1::schema::Task> for Unlimited<'_> {
    fn describe<O: Output>(&self, fields: &mut Fields<'_, v1::schema::Task, O>) {
        let Self(task) = self;
        let newest = task.statuses.last();
        let uuid = newest.and_then(|status| status.uuid.as_ref());
        fields
            .name(task.name.as_str())
            .task_id(&task.id)
            .framework_id(&task.framework_id)
            .executor_id(task.own_executor_id())
            .agent_id(&task.agent_id)
            .state(task.state)
            .resources(describe_resources(&task.resources))
            .statuses(Each(&task.statuses))
            .status_update_state(Some(task.told))
            .status_update_uuid(uuid.map(|uuid| uuid.0.as_slice()))
            .labels(other_labels(&task.labels).message())
            .discovery(discovery(&task.labels))
            .container(write_container(task.container.as_deref()))
            .user(task.user.as_deref())
            .health_check(task.health_check.as_deref().map(HealthCheck::from))
            .kill_policy(task.kill_policy.as_ref().map(KillPolicy::from));
    }
}

/// A task, identified by its address in memory.
pub(in crate::api) struct DescribeTask<'a>(pub &'a Arc<Task>);

impl Describe<v1::schema::Task> for DescribeTask<'_> {
    fn describe<O: Output>(&self, fields: &mut Fields<'_, v1::schema::Task, O>) {
        self.0.as_ref().describe(fields);
    }

    fn identity(&self) -> Option<Identity> {
        identity(self.0)
    }
}

/// An offer, identified by its address in memory.
struct DescribeOffer<'a>(&'a Arc<Offer>);

impl Describe<v1::schema::Offer> for DescribeOffer<'_> {
    fn describe<O: Output>(&self, fields: &mut Fields<'_, v1::schema::Offer, O>) {
        self.0.as_ref().describe(fields);
    }

    fn identity(&self) -> Option<Identity> {
        identity(self.0)
    }
}

/// A registered agent.
pub(in crate::api) struct DescribeAgent<'a>(pub VisibleState<'a>, pub &'a Arc<Agent>);

impl Describe<ResponseGetAgentsAgent> for DescribeAgent<'_> {
    fn identity(&self) -> Option<Identity> {
        self.0.identity(self.1)
    }

    fn describe<O: Output>(&self, fields: &mut Fields<'_, ResponseGetAgentsAgent, O>) {
        let Self(visible, agent) = *self;
        let info = &agent.info;
        let (used, offered) = (visible.used_on(agent), visible.offered_of(agent));
        let all = match agent.oversubscribed.is_empty() {
            true => Cow::Borrowed(&info.resources),
            false => Cow::Owned(&info.resources + &agent.oversubscribed),
        };
        let capability = |name: &&str| AgentInfoCapability {
            r#type: AgentInfoCapabilityType::by_name(name),
        };
        fields
            .agent_info(DescribeAgentInfo(visible, &agent.id, info))
            .active(agent.is_active())
            .version(v1::MESOS_VERSION)
            .pid(Some(agent.mesos_pid()))
            .registered_time(Some(agent.registered))
            .reregistered_time(agent.reregistered)
            .total_resources(describe_in_both_forms(&visible.resources(&all)))
            .allocated_resources(describe_in_both_forms(&visible.resources(&used)))
            .offered_resources(describe_in_both_forms(&visible.resources(&offered)))
            .capabilities(Each(AGENT_CAPABILITIES.iter().map(capability)))
            .deactivated(Some(agent.orders.deactivated))
            .drain_info(agent.orders.drain.as_ref().map(DrainInfo::from))
            .estimated_drain_start_time(agent.orders.drain.map(|drain| drain.since));
    }
}

/// An agent's own description with its id.
pub(in crate::api) struct DescribeAgentInfo<'a>(
    pub VisibleState<'a>,
    pub &'a AgentId,
    pub &'a AgentInfo,
);

impl Describe<AgentInfoSaid> for DescribeAgentInfo<'_> {
    fn describe<O: Output>(&self, fields: &mut Fields<'_, AgentInfoSaid, O>) {
        let Self(visible, id, info) = *self;
        let description = AgentDescription {
            info,
            id: Some(id),
            resources: &visible.resources(&info.resources),
        };
        description.describe(fields);
    }
}

/// A framework that holds these resources.
pub(in crate::api) struct DescribeFramework<'a> {
    pub visible: VisibleState<'a>,
    pub framework: &'a Framework,
    pub held: Resources,
}

impl Describe<ResponseGetFrameworksFramework> for DescribeFramework<'_> {
    fn describe<O: Output>(&self, fields: &mut Fields<'_, ResponseGetFrameworksFramework, O>) {
        let framework = self.framework;
        let offers = || self.visible.offers(&framework.id);
        let offered = sum(offers().map(|offer| &offer.resources));
        let inverse = self.visible.inverse_offers(&framework.id);
        let constraints = constraints(&framework.wants.demands);
        fields
            .framework_info(framework_info(framework))
            .active(framework.is_connected())
            .connected(framework.is_connected())
            .registered_time(Some(framework.registered))
            // A framework that has never returned has its registration time here, as in Mesos.
            .reregistered_time(Some(framework.reregistered.unwrap_or(framework.registered)))
            .unregistered_time(framework.unregistered)
            .offers(Each(offers().map(DescribeOffer)))
            .inverse_offers(Each(inverse.map(InverseOffer::from)))
            .allocated_resources(describe_in_both_forms(&self.held))
            .offered_resources(describe_in_both_forms(&offered))
            .recovered(framework.recovered)
            .offer_constraints(Some(constraints));
    }
}

/// A framework's own description with its id.
pub(in crate::api) fn framework_info(framework: &Framework) -> FrameworkInfo {
    let mut info = FrameworkInfo::from(&framework.info);
    info.id = Some((&framework.id).into());
    info.offer_filters = offer_filters(&framework.wants.demands);
    info
}

/// A role with sums by resource name, without reservations and allocations, as in Mesos.
pub(in crate::api) fn role(role: &RoleView) -> Role {
    let amounts = (&role.allocated + &role.offered).quantities();
    let named = |name: Name| {
        let amount = amounts.get(&name);
        let resource = resources::Resource::new(name, amount).ok()?;
        (!amount.is_zero()).then(|| (&resource).into())
    };
    Role {
        name: role.name.clone(),
        weight: role.weight,
        frameworks: role.frameworks.iter().map(Into::into).collect(),
        resources: SCALARS.into_iter().filter_map(named).collect(),
    }
}

/// The resources in GET_ROLES, in its order.
const SCALARS: [Name; 4] = [Name::Cpus, Name::Disk, Name::Gpus, Name::Mem];

/// A framework's own executor.
pub(in crate::api) fn executor(executor: VisibleExecutor<'_>) -> ResponseGetExecutorsExecutor {
    let mut info = v1::schema::ExecutorInfo::from(&*executor.info.without_secrets());
    info.framework_id = Some(executor.framework.into());
    ResponseGetExecutorsExecutor {
        executor_info: info,
        agent_id: executor.agent.into(),
    }
}

/// An operation. The content of one that an earlier master accepted is unknown.
pub(in crate::api) fn operation(framework: &FrameworkId, known: &TrackedOperation) -> Operation {
    let conversion = known.conversion.as_deref();
    Operation {
        agent_id: Some((&known.agent).into()),
        ..known_operation(framework, conversion, &known.status)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::Quota;

    /// As in Mesos 1.11.
    #[test]
    fn a_role_shows_sums_of_the_four_scalars() {
        let allocated = |text: &str, role: &str| {
            let parsed: Resources = text.parse().unwrap();
            parsed.allocate(&role.parse().unwrap())
        };
        let view = RoleView {
            name: "eng".to_owned(),
            weight: 1.0,
            quota: Quota::default(),
            consumed: Default::default(),
            frameworks: Vec::new(),
            allocated: allocated("mem:64;cpus:1;cpus(eng):2;ports:[1-3]", "eng"),
            offered: allocated("cpus:0.5;bugs:1", "eng/web"),
            reserved: Resources::default(),
        };
        let visible = role(&view).resources;
        let told = |resource: &v1::schema::Resource| {
            assert!(resource.allocation_info.is_none() && resource.reservations.is_empty());
            let amount = resource.scalar.as_ref().unwrap().value;
            (resource.name.clone(), amount)
        };
        let told: Vec<_> = visible.iter().map(told).collect();
        assert_eq!(told, [("cpus".to_owned(), 3.5), ("mem".to_owned(), 64.0)]);
    }
}
