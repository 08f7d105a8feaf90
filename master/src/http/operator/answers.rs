//! Answers to what operators ask of a master's books (SPEC 2.6).
//!
//! Pure.

use resources::Name;
use v1::schema::master::{
    CallType, Response, ResponseGetAgents, ResponseGetExecutors, ResponseGetFlags,
    ResponseGetFrameworks, ResponseGetMaster, ResponseGetOperations, ResponseGetQuota,
    ResponseGetRoles, ResponseGetState, ResponseGetTasks, ResponseGetWeights, ResponseType,
};
use v1::schema::quota::{QuotaConfig, QuotaInfo, QuotaStatus};
use v1::schema::{Flag, Resource, WeightInfo};

use super::super::Chosen;
use super::super::shown::Shown;
use super::words;

/// The answer to this question; none if it is no question that the books answer.
pub(super) fn answer(kind: CallType, shown: Shown<'_>, chosen: &Chosen) -> Option<Response> {
    let mut answer = Response::default();
    answer.r#type = Some(match kind {
        CallType::GetFlags => {
            answer.get_flags = Some(flags(chosen));
            ResponseType::GetFlags
        }
        CallType::GetMaster => {
            answer.get_master = Some(master(shown));
            ResponseType::GetMaster
        }
        CallType::GetState => {
            answer.get_state = Some(Box::new(state(shown)));
            ResponseType::GetState
        }
        CallType::GetAgents => {
            answer.get_agents = Some(agents(shown));
            ResponseType::GetAgents
        }
        CallType::GetFrameworks => {
            answer.get_frameworks = Some(Box::new(frameworks(shown)));
            ResponseType::GetFrameworks
        }
        CallType::GetExecutors => {
            answer.get_executors = Some(executors(shown));
            ResponseType::GetExecutors
        }
        CallType::GetTasks => {
            answer.get_tasks = Some(Box::new(tasks(shown)));
            ResponseType::GetTasks
        }
        CallType::GetRoles => {
            let roles = shown.roles();
            answer.get_roles = Some(ResponseGetRoles {
                roles: roles
                    .into_iter()
                    .map(|one| words::role(shown, one))
                    .collect(),
            });
            ResponseType::GetRoles
        }
        CallType::GetOperations => {
            let operations = shown.operations();
            answer.get_operations = Some(ResponseGetOperations {
                operations: operations
                    .map(|(framework, agent, status)| words::operation(framework, agent, status))
                    .collect(),
            });
            ResponseType::GetOperations
        }
        CallType::GetWeights => {
            answer.get_weights = Some(weights(shown));
            ResponseType::GetWeights
        }
        CallType::GetQuota => {
            answer.get_quota = Some(ResponseGetQuota {
                status: quota(shown),
            });
            ResponseType::GetQuota
        }
        _ => return None,
    });
    Some(answer)
}

/// All that is known of tasks, executors, frameworks and agents.
pub(in crate::http) fn state(shown: Shown<'_>) -> ResponseGetState {
    ResponseGetState {
        get_tasks: Some(Box::new(tasks(shown))),
        get_executors: Some(executors(shown)),
        get_frameworks: Some(Box::new(frameworks(shown))),
        get_agents: Some(agents(shown)),
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
        master_info: Some(Box::new(words::master(&books.master))),
        start_time: Some(books.started.as_secs_f64()),
        elected_time: Some(books.elected.as_secs_f64()),
    }
}

fn agents(shown: Shown<'_>) -> ResponseGetAgents {
    let awaited = shown.awaited();
    ResponseGetAgents {
        agents: shown
            .agents()
            .map(|agent| words::agent(shown, agent))
            .collect(),
        recovered_agents: awaited
            .map(|(id, info)| words::agent_info(shown, id, info))
            .collect(),
    }
}

fn frameworks(shown: Shown<'_>) -> ResponseGetFrameworks {
    let mut held = shown.held();
    let frameworks = shown.frameworks().map(|framework| {
        let held = held.remove(&framework.id).unwrap_or_default();
        words::framework(shown, framework, &held)
    });
    let completed = shown.completed();
    ResponseGetFrameworks {
        frameworks: frameworks.collect(),
        completed_frameworks: completed
            .map(|one| words::framework(shown, &one.framework, &Default::default()))
            .collect(),
        ..ResponseGetFrameworks::default()
    }
}

fn executors(shown: Shown<'_>) -> ResponseGetExecutors {
    ResponseGetExecutors {
        executors: shown.executors().map(words::executor).collect(),
        ..ResponseGetExecutors::default()
    }
}

fn tasks(shown: Shown<'_>) -> ResponseGetTasks {
    let mut tasks = ResponseGetTasks::default();
    for of in shown.all_tasks() {
        tasks.tasks.extend(of.running().map(|one| words::task(one)));
        tasks
            .completed_tasks
            .extend(of.ended().map(|one| words::task(one)));
        tasks
            .unreachable_tasks
            .extend(of.unreachable().map(|one| words::task(one)));
    }
    tasks
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
