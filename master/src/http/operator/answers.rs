//! Answers to what operators ask of a master's books (SPEC 2.6).
//!
//! Pure.

use resources::{Name, Resources};
use v1::convert::master_info;
use v1::describe::{Describe, Each, Fields, Output};
use v1::message::Enum;
use v1::schema::master::{
    CallType, Response, ResponseGetAgents, ResponseGetExecutors, ResponseGetFlags,
    ResponseGetFrameworks, ResponseGetMaster, ResponseGetOperations, ResponseGetQuota,
    ResponseGetRoles, ResponseGetState, ResponseGetTasks, ResponseGetWeights, ResponseType,
};
use v1::schema::quota::{QuotaConfig, QuotaInfo, QuotaStatus};
use v1::schema::{Flag, Resource, WeightInfo};

use super::super::Chosen;
use super::super::shown::{Shown, TasksShown};
use super::words::{self, AgentInfoSeen, AgentSeen, FrameworkSeen, TaskSeen};

/// The answer to a question that the books answer.
pub(super) struct Answer<'a> {
    pub kind: CallType,
    pub shown: Shown<'a>,
    pub chosen: &'a Chosen,
}

impl Describe<Response> for Answer<'_> {
    /// Of a question that the books do not answer it says nothing.
    fn describe<O: Output>(&self, fields: &mut Fields<'_, Response, O>) {
        let shown = self.shown;
        // An answer bears the name of its question.
        fields.r#type(ResponseType::by_name(self.kind.name()));
        match self.kind {
            CallType::GetFlags => fields.get_flags(Some(flags(self.chosen))),
            CallType::GetMaster => fields.get_master(Some(master(shown))),
            CallType::GetState => fields.get_state(Some(State(shown))),
            CallType::GetAgents => fields.get_agents(Some(Agents(shown))),
            CallType::GetFrameworks => fields.get_frameworks(Some(Frameworks(shown))),
            CallType::GetExecutors => fields.get_executors(Some(Executors(shown))),
            CallType::GetTasks => fields.get_tasks(Some(Tasks(shown))),
            CallType::GetRoles => fields.get_roles(Some(roles(shown))),
            CallType::GetOperations => fields.get_operations(Some(operations(shown))),
            CallType::GetWeights => fields.get_weights(Some(weights(shown))),
            CallType::GetQuota => fields.get_quota(Some(ResponseGetQuota {
                status: quota(shown),
            })),
            _ => fields,
        };
    }
}

/// All that is known of tasks, executors, frameworks and agents.
pub(in crate::http) struct State<'a>(pub Shown<'a>);

impl Describe<ResponseGetState> for State<'_> {
    fn describe<O: Output>(&self, fields: &mut Fields<'_, ResponseGetState, O>) {
        fields
            .get_tasks(Some(Tasks(self.0)))
            .get_executors(Some(Executors(self.0)))
            .get_frameworks(Some(Frameworks(self.0)))
            .get_agents(Some(Agents(self.0)));
    }
}

struct Agents<'a>(Shown<'a>);

impl Describe<ResponseGetAgents> for Agents<'_> {
    fn describe<O: Output>(&self, fields: &mut Fields<'_, ResponseGetAgents, O>) {
        let shown = self.0;
        let agents = shown.agents().map(|agent| AgentSeen(shown, agent));
        let awaited = shown.awaited();
        let awaited = awaited.map(|(id, info)| AgentInfoSeen(shown, id, info));
        fields.agents(Each(agents)).recovered_agents(Each(awaited));
    }
}

struct Frameworks<'a>(Shown<'a>);

impl Describe<ResponseGetFrameworks> for Frameworks<'_> {
    fn describe<O: Output>(&self, fields: &mut Fields<'_, ResponseGetFrameworks, O>) {
        let shown = self.0;
        let mut held = shown.held();
        let frameworks = shown.frameworks().map(|framework| FrameworkSeen {
            shown,
            framework,
            held: held.remove(&framework.id).unwrap_or_default(),
        });
        let completed = shown.completed().map(|one| FrameworkSeen {
            shown,
            framework: &one.framework,
            held: Resources::default(),
        });
        fields
            .frameworks(Each(frameworks))
            .completed_frameworks(Each(completed));
    }
}

struct Executors<'a>(Shown<'a>);

impl Describe<ResponseGetExecutors> for Executors<'_> {
    fn describe<O: Output>(&self, fields: &mut Fields<'_, ResponseGetExecutors, O>) {
        fields.executors(Each(self.0.executors().map(words::executor)));
    }
}

struct Tasks<'a>(Shown<'a>);

impl Describe<ResponseGetTasks> for Tasks<'_> {
    fn describe<O: Output>(&self, fields: &mut Fields<'_, ResponseGetTasks, O>) {
        let all = || self.0.all_tasks();
        fields
            .tasks(Each(all().flat_map(TasksShown::running).map(TaskSeen)))
            .completed_tasks(Each(all().flat_map(TasksShown::ended).map(TaskSeen)))
            .unreachable_tasks(Each(all().flat_map(TasksShown::unreachable).map(TaskSeen)));
    }
}

fn roles(shown: Shown<'_>) -> ResponseGetRoles {
    ResponseGetRoles {
        roles: shown.roles().iter().map(words::role).collect(),
    }
}

fn operations(shown: Shown<'_>) -> ResponseGetOperations {
    let operations = shown.operations();
    ResponseGetOperations {
        operations: operations
            .map(|(framework, known)| words::operation(framework, known))
            .collect(),
    }
}

fn flags(chosen: &Chosen) -> ResponseGetFlags {
    let flag = |(name, value): (&String, &String)| Flag {
        name: name.clone(),
        value: Some(value.clone()),
    };
    ResponseGetFlags {
        flags: chosen.flags.iter().map(flag).collect(),
    }
}

fn master(shown: Shown<'_>) -> ResponseGetMaster {
    let books = shown.books;
    ResponseGetMaster {
        master_info: Some(Box::new(master_info(&books.master))),
        start_time: Some(books.started.as_secs_f64()),
        elected_time: Some(books.elected.as_secs_f64()),
    }
}

fn weights(shown: Shown<'_>) -> ResponseGetWeights {
    let weight = |(role, weight): (&String, &f64)| WeightInfo {
        weight: *weight,
        role: Some(role.clone()),
    };
    ResponseGetWeights {
        weight_infos: shown.books.weights.iter().map(weight).collect(),
    }
}

/// The quotas, in both forms that Mesos has for them.
fn quota(shown: Shown<'_>) -> QuotaStatus {
    let quotas = &shown.books.quotas;
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
