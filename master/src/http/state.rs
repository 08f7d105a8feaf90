//! The pages themselves, each a plain function of the books (SPEC 3.12).
//!
//! Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use protocol::{FrameworkInfo, Offer, TaskState};
use resources::json::attributes_object;
use serde_json::{Value, json};

use super::{Chosen, pieces, words};
use crate::agents::Agent;
use crate::books::{Books, sum};
use crate::frameworks::Framework;
use crate::tasks::{OfFramework, Task};
use crate::view;

/// `/state`.
pub(super) fn whole(books: &Books, chosen: &Chosen) -> Value {
    let master = &books.master;
    let pid = format!("master@{}:{}", master.hostname, master.port);
    let active = books.agents.iter().filter(|agent| agent.connected).count();
    json!({
        "version": master.version,
        "start_time": books.started.as_secs_f64(),
        "elected_time": books.elected.as_secs_f64(),
        "id": master.id,
        "pid": pid,
        "hostname": master.hostname,
        "capabilities": ["AGENT_UPDATE"],
        "activated_slaves": active as f64,
        "deactivated_slaves": (books.agents.iter().count() - active) as f64,
        "unreachable_slaves": books.agents.unreachable().len() as f64,
        "leader": pid,
        "leader_info": { "id": master.id, "pid": pid, "port": master.port, "hostname": master.hostname },
        "flags": chosen.flags,
        "slaves": agents(books),
        "recovered_slaves": recovered(books),
        "frameworks": frameworks(books),
        "completed_frameworks": completed(books),
        "orphan_tasks": [],
        "unregistered_frameworks": [],
    })
}

/// The agents that are registered.
pub(super) fn agents(books: &Books) -> Value {
    books.agents.iter().map(|one| agent(books, one)).collect()
}

fn agent(books: &Books, agent: &Agent) -> Value {
    let total = &agent.info.resources + &agent.oversubscribed;
    let (used, offered) = (view::used(books, agent), view::offered(books, agent));
    json!({
        "id": agent.id,
        "hostname": agent.info.hostname,
        "port": agent.info.port,
        "attributes": attributes_object(&agent.info.attributes),
        "pid": format!("slave(1)@{}:{}", agent.info.hostname, agent.info.port),
        "registered_time": agent.registered.as_secs_f64(),
        "reregistered_time": agent.reregistered.map(|time| time.as_secs_f64()),
        "resources": pieces::resources(&total),
        "used_resources": pieces::resources(&used),
        "offered_resources": pieces::resources(&offered),
        "reserved_resources": pieces::reserved(&agent.info.resources),
        "unreserved_resources": pieces::resources(&agent.info.resources.unreserved()),
        "active": agent.connected,
        "deactivated": false,
        "version": agent.version,
        "capabilities": ["MULTI_ROLE", "HIERARCHICAL_ROLE", "RESERVATION_REFINEMENT"],
    })
}

/// The agents that have not come back since the master's restart.
pub(super) fn recovered(books: &Books) -> Value {
    let one = |(id, info): (&protocol::AgentId, &protocol::AgentInfo)| {
        json!({
            "id": id,
            "hostname": info.hostname,
            "port": info.port,
            "attributes": attributes_object(&info.attributes),
            "resources": pieces::resources(&info.resources),
        })
    };
    books.agents.recovered().map(one).collect()
}

/// The frameworks that have not ended.
pub(super) fn frameworks(books: &Books) -> Value {
    let one = |framework: &Arc<Framework>| {
        let tasks = books.tasks.of_framework(&framework.id);
        let offers: Vec<&Offer> = books
            .offers
            .of_framework(&framework.id)
            .map(Arc::as_ref)
            .collect();
        let mut json = self::framework(framework, tasks.map(Arc::as_ref), &offers);
        json["executors"] = books
            .agents
            .iter()
            .filter_map(|agent| Some((&agent.id, books.tasks.on_agent(&agent.id)?)))
            .flat_map(|(agent, on)| {
                on.executors()
                    .map(move |(owner, info)| (agent, owner, info))
            })
            .filter(|(_, owner, _)| **owner == framework.id)
            .map(|(agent, owner, info)| pieces::executor(owner, agent, info))
            .collect();
        json
    };
    books.frameworks.iter().map(one).collect()
}

/// The frameworks that have.
pub(super) fn completed(books: &Books) -> Value {
    let all = books.frameworks.completed();
    all.map(|one| framework(&one.framework, Some(&one.tasks), &[]))
        .collect()
}

fn framework(framework: &Framework, tasks: Option<&OfFramework>, offers: &[&Offer]) -> Value {
    let has_ended = |task: &Arc<Task>| task.state.is_terminal();
    let active = || tasks.into_iter().flat_map(OfFramework::active);
    let running = || active().filter(|task| !has_ended(task));
    let ended = tasks
        .into_iter()
        .flat_map(OfFramework::completed)
        .chain(active().filter(|task| has_ended(task)));
    let unreachable = tasks.into_iter().flat_map(OfFramework::unreachable);
    let used = sum(running().map(|task| &task.resources));
    let offered = sum(offers.iter().map(|offer| &offer.resources));
    let info = &framework.info;
    let mut json = json!({
        "id": framework.id,
        "name": info.name,
        "pid": framework.scheduler.as_ref().map(ToString::to_string),
        "used_resources": pieces::resources(&used),
        "offered_resources": pieces::resources(&offered),
        "resources": pieces::resources(&(&used + &offered)),
        "capabilities": info.capabilities.iter().map(|one| one.name()).collect::<Vec<_>>(),
        "hostname": info.hostname,
        "webui_url": info.webui_url.clone().unwrap_or_default(),
        "active": framework.is_connected(),
        "connected": framework.is_connected(),
        "recovered": framework.recovered,
        "user": info.user,
        "failover_timeout": info.failover_timeout.as_secs_f64(),
        "checkpoint": info.checkpoint,
        "registered_time": framework.registered.as_secs_f64(),
        "unregistered_time": framework.unregistered.map_or(0.0, |time| time.as_secs_f64()),
        "reregistered_time": framework.reregistered.map(|time| time.as_secs_f64()),
        "principal": info.principal,
        "roles": info.roles,
        "labels": pieces::labels(&info.labels),
        "tasks": running().map(|task| pieces::task(task)).collect::<Value>(),
        "completed_tasks": ended.map(|task| pieces::task(task)).collect::<Value>(),
        "unreachable_tasks": unreachable.map(|task| pieces::task(task)).collect::<Value>(),
        "offers": offers.iter().map(|offer| pieces::offer(offer)).collect::<Value>(),
        "executors": [],
    });
    if let Some(role) = only_role(info) {
        json["role"] = json!(role);
    }
    json
}

/// The role of a framework that has one.
fn only_role(info: &FrameworkInfo) -> Option<&String> {
    match info.roles.len() {
        1 => info.roles.first(),
        _ => None,
    }
}

/// All tasks that are remembered.
pub(super) fn all_tasks(books: &Books) -> impl Iterator<Item = &Task> {
    let known = books.tasks.frameworks().map(|(_, of)| of);
    let completed = books.frameworks.completed().map(|one| &one.tasks);
    known
        .chain(completed)
        .flat_map(|of| of.active().chain(of.unreachable()).chain(of.completed()))
        .map(Arc::as_ref)
}

/// `/state-summary`.
pub(super) fn summary(books: &Books) -> Value {
    let mut on_agent: BTreeMap<&str, Tally<'_>> = BTreeMap::new();
    let mut of_framework: BTreeMap<&str, Tally<'_>> = BTreeMap::new();
    for task in all_tasks(books) {
        let (agent, framework) = (task.agent_id.as_str(), task.framework_id.as_str());
        on_agent
            .entry(agent)
            .or_default()
            .add(task.state, framework);
        of_framework
            .entry(framework)
            .or_default()
            .add(task.state, agent);
    }
    let slaves: Value = books
        .agents
        .iter()
        .map(|one| {
            let tally = on_agent.remove(one.id.as_str()).unwrap_or_default();
            tally.onto(agent(books, one), "framework_ids")
        })
        .collect();
    let frameworks: Value = books
        .frameworks
        .iter()
        .map(|one| {
            let tally = of_framework.remove(one.id.as_str()).unwrap_or_default();
            let json = json!({
                "id": one.id,
                "name": one.info.name,
                "user": one.info.user,
                "hostname": one.info.hostname,
                "active": one.is_connected(),
                "connected": one.is_connected(),
                "capabilities": one.info.capabilities.iter().map(|one| one.name()).collect::<Vec<_>>(),
            });
            tally.onto(json, "slave_ids")
        })
        .collect();
    json!({ "hostname": books.master.hostname, "slaves": slaves, "frameworks": frameworks })
}

/// How many tasks are in each state, and where or whose they are.
#[derive(Default)]
struct Tally<'a> {
    states: BTreeMap<TaskState, u64>,
    ids: BTreeSet<&'a str>,
}

impl<'a> Tally<'a> {
    fn add(&mut self, state: TaskState, id: &'a str) {
        *self.states.entry(state).or_default() += 1;
        self.ids.insert(id);
    }

    fn onto(self, mut json: Value, ids: &str) -> Value {
        use TaskState::*;
        for state in [
            Staging,
            Starting,
            Running,
            Killing,
            Finished,
            Killed,
            Failed,
            Lost,
            Error,
            Unreachable,
        ] {
            json[state.name()] = json!(self.states.get(&state).copied().unwrap_or(0));
        }
        json[ids] = json!(self.ids);
        json
    }
}

/// `/roles`.
pub(super) fn roles(books: &Books) -> Value {
    view::roles(books).iter().map(words::role).collect()
}
