//! Answers of the operator API from the state.
//!
//! Pure.

use resources::{Name, Resources};
use v1::convert::master_info;
use v1::describe::{Describe, Each, Fields, Output};
use v1::message::Enum;
use v1::schema::allocator::quota::{QuotaConfig, QuotaInfo, QuotaStatus};
use v1::schema::master::{
    CallType, Response, ResponseGetAgents, ResponseGetExecutors, ResponseGetFlags,
    ResponseGetFrameworks, ResponseGetMaster, ResponseGetOperations, ResponseGetQuota,
    ResponseGetRoles, ResponseGetState, ResponseGetTasks, ResponseGetWeights, ResponseType,
};
use v1::schema::{Flag, Resource, WeightInfo};

use super::super::PublishedFlags;
use super::objects::{self, DescribeAgent, DescribeAgentInfo, DescribeFramework, DescribeTask};
use crate::api::pages::visible::{VisibleState, VisibleTasks};

/// The answer to a question about the state.
pub(super) struct Answer<'a> {
    pub kind: CallType,
    pub visible: VisibleState<'a>,
    pub published: &'a PublishedFlags,
}

impl Describe<Response> for Answer<'_> {
    /// Writes nothing for other questions.
    fn describe<O: Output>(&self, fields: &mut Fields<'_, Response, O>) {
        let visible = self.visible;
        // The answer has the name of its question.
        fields.r#type(ResponseType::by_name(self.kind.name()));
        match self.kind {
            CallType::GetFlags => fields.get_flags(Some(flags(self.published))),
            CallType::GetMaster => fields.get_master(Some(master(visible))),
            CallType::GetState => fields.get_state(Some(State(visible))),
            CallType::GetAgents => fields.get_agents(Some(Agents(visible))),
            CallType::GetFrameworks => fields.get_frameworks(Some(Frameworks(visible))),
            CallType::GetExecutors => fields.get_executors(Some(Executors(visible))),
            CallType::GetTasks => fields.get_tasks(Some(Tasks(visible))),
            CallType::GetRoles => fields.get_roles(Some(roles(visible))),
            CallType::GetOperations => fields.get_operations(Some(operations(visible))),
            CallType::GetWeights => fields.get_weights(Some(weights(visible))),
            CallType::GetQuota => fields.get_quota(Some(ResponseGetQuota {
                status: quota(visible),
            })),
            _ => fields,
        };
    }
}

/// Tasks, executors, frameworks and agents.
pub(in crate::api) struct State<'a>(pub VisibleState<'a>);

impl Describe<ResponseGetState> for State<'_> {
    fn describe<O: Output>(&self, fields: &mut Fields<'_, ResponseGetState, O>) {
        fields
            .get_tasks(Some(Tasks(self.0)))
            .get_executors(Some(Executors(self.0)))
            .get_frameworks(Some(Frameworks(self.0)))
            .get_agents(Some(Agents(self.0)));
    }
}

struct Agents<'a>(VisibleState<'a>);

impl Describe<ResponseGetAgents> for Agents<'_> {
    fn describe<O: Output>(&self, fields: &mut Fields<'_, ResponseGetAgents, O>) {
        let visible = self.0;
        let agents = visible.agents().map(|agent| DescribeAgent(visible, agent));
        let awaited = visible.awaited();
        let awaited = awaited.map(|(id, info)| DescribeAgentInfo(visible, id, info));
        fields.agents(Each(agents)).recovered_agents(Each(awaited));
    }
}

struct Frameworks<'a>(VisibleState<'a>);

impl Describe<ResponseGetFrameworks> for Frameworks<'_> {
    fn describe<O: Output>(&self, fields: &mut Fields<'_, ResponseGetFrameworks, O>) {
        let visible = self.0;
        let mut held = visible.held();
        let frameworks = visible.frameworks().map(|framework| DescribeFramework {
            visible,
            framework,
            held: held.remove(&framework.id).unwrap_or_default(),
        });
        let completed = visible.completed().map(|one| DescribeFramework {
            visible,
            framework: &one.framework,
            held: Resources::default(),
        });
        fields
            .frameworks(Each(frameworks))
            .completed_frameworks(Each(completed));
    }
}

struct Executors<'a>(VisibleState<'a>);

impl Describe<ResponseGetExecutors> for Executors<'_> {
    fn describe<O: Output>(&self, fields: &mut Fields<'_, ResponseGetExecutors, O>) {
        fields.executors(Each(self.0.executors().map(objects::executor)));
    }
}

struct Tasks<'a>(VisibleState<'a>);

impl Describe<ResponseGetTasks> for Tasks<'_> {
    fn describe<O: Output>(&self, fields: &mut Fields<'_, ResponseGetTasks, O>) {
        let all = || self.0.all_tasks();
        fields
            .tasks(Each(
                all().flat_map(VisibleTasks::running).map(DescribeTask),
            ))
            .completed_tasks(Each(all().flat_map(VisibleTasks::ended).map(DescribeTask)))
            .unreachable_tasks(Each(
                all().flat_map(VisibleTasks::unreachable).map(DescribeTask),
            ));
    }
}

fn roles(visible: VisibleState<'_>) -> ResponseGetRoles {
    ResponseGetRoles {
        roles: visible.roles().iter().map(objects::role).collect(),
    }
}

fn operations(visible: VisibleState<'_>) -> ResponseGetOperations {
    let operations = visible.operations();
    ResponseGetOperations {
        operations: operations
            .map(|(framework, known)| objects::operation(framework, known))
            .collect(),
    }
}

fn flags(published: &PublishedFlags) -> ResponseGetFlags {
    let flag = |(name, value): (&String, &String)| Flag {
        name: name.clone(),
        value: Some(value.clone()),
    };
    ResponseGetFlags {
        flags: published.flags.iter().map(flag).collect(),
    }
}

fn master(visible: VisibleState<'_>) -> ResponseGetMaster {
    let state = visible.state;
    ResponseGetMaster {
        master_info: Some(Box::new(master_info(&state.master))),
        start_time: Some(state.started.as_secs_f64()),
        elected_time: Some(state.elected.as_secs_f64()),
    }
}

fn weights(visible: VisibleState<'_>) -> ResponseGetWeights {
    let weight = |(role, weight): (&String, &f64)| WeightInfo {
        weight: *weight,
        role: Some(role.clone()),
    };
    ResponseGetWeights {
        weight_infos: visible.state.weights.iter().map(weight).collect(),
    }
}

/// Quotas, in both forms of Mesos.
fn quota(visible: VisibleState<'_>) -> QuotaStatus {
    let quotas = &visible.state.quotas;
    let amount = |(name, amount): (&Name, resources::Scalar)| Resource {
        name: name.to_string(),
        scalar: Some(amount.into()),
        ..Resource::default()
    };
    let infos = quotas.iter().map(|(role, quota)| QuotaInfo {
        role: Some(role.clone()),
        guarantee: quota.guarantees.iter().map(amount).collect(),
        ..QuotaInfo::default()
    });
    let configs = quotas.iter();
    QuotaStatus {
        infos: infos.collect(),
        configs: configs
            .map(|(role, quota)| QuotaConfig::from((role.as_str(), quota)))
            .collect(),
    }
}
