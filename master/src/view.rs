//! The view: how the cluster looks, made of a snapshot of the books for operators' commands and pages.
//!
//! Pure, and run outside the master's mailbox. It never changes anything. What of an agent is reserved for roles that are not seen, or is theirs
//! now, is left out, as it is of pages.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use protocol::view::{AgentView, ClusterView, FrameworkView, RoleView, TaskView};
use protocol::{AgentInfo, Offer};
use resources::Resources;

use crate::agents::Agent;
use crate::books::{Books, sum};
use crate::frameworks::Framework;
use crate::tasks::{OfFramework, Task};
use crate::{quota, weights};

/// The whole cluster.
pub fn cluster(books: &Books) -> ClusterView {
    ClusterView {
        master: books.master.clone(),
        elected: books.elected,
        started: books.started,
        agents: books.agents.iter().map(|one| agent(books, one)).collect(),
        frameworks: books
            .frameworks
            .iter()
            .map(|one| {
                let tasks = books.tasks.of_framework(&one.id);
                let offers = books.offers.of_framework(&one.id).map(Arc::as_ref).cloned();
                framework(one, tasks.map(Arc::as_ref), offers.collect())
            })
            .collect(),
        completed_frameworks: books
            .frameworks
            .completed()
            .map(|one| framework(&one.framework, Some(&one.tasks), Vec::new()))
            .collect(),
    }
}

/// What tasks and executors use on an agent.
pub fn used(books: &Books, agent: &Agent) -> Resources {
    let on = books.tasks.on_agent(&agent.id);
    sum(on.into_iter().flat_map(|on| on.held().values()))
}

/// What is offered of an agent.
pub fn offered(books: &Books, agent: &Agent) -> Resources {
    sum(books
        .offers
        .of_agent(&agent.id)
        .map(|offer| &offer.resources))
}

fn agent(books: &Books, agent: &Agent) -> AgentView {
    let seen = |all: &Resources| books.seen_of(all).into_owned();
    AgentView {
        id: agent.id.clone(),
        info: AgentInfo {
            resources: seen(&agent.info.resources),
            ..agent.info.clone()
        },
        address: format!("{}:{}", agent.info.hostname, agent.info.port),
        active: agent.is_active(),
        orders: agent.orders,
        registered: agent.registered,
        version: agent.version.clone(),
        oversubscribed: seen(&agent.oversubscribed),
        used: seen(&used(books, agent)),
        offered: seen(&offered(books, agent)),
    }
}

fn framework(
    framework: &Framework,
    tasks: Option<&OfFramework>,
    offers: Vec<Offer>,
) -> FrameworkView {
    let active = || tasks.into_iter().flat_map(OfFramework::active);
    let has_ended = |task: &&Arc<Task>| task.state.is_terminal();
    let completed = tasks.into_iter().flat_map(OfFramework::completed);
    let completed = completed.chain(active().filter(has_ended));
    let unreachable = tasks.into_iter().flat_map(OfFramework::unreachable);
    let running = || active().filter(|task| !has_ended(task));
    FrameworkView {
        id: framework.id.clone(),
        info: framework.info.clone(),
        connected: framework.is_connected(),
        active: framework.is_connected(),
        registered: framework.registered,
        unregistered: framework.unregistered,
        tasks: running().map(|one| task(one)).collect(),
        completed_tasks: completed.map(|one| task(one)).collect(),
        unreachable_tasks: unreachable.map(|one| task(one)).collect(),
        offers,
        used: sum(running().map(|task| &task.resources)),
    }
}

fn task(task: &Task) -> TaskView {
    TaskView {
        id: task.id.clone(),
        name: task.name.clone(),
        framework_id: task.framework_id.clone(),
        executor_id: task.executor_id.clone(),
        agent_id: task.agent_id.clone(),
        state: task.state,
        resources: task.resources.clone(),
        statuses: task.statuses.clone(),
        labels: task.labels.clone(),
    }
}

/// Every role that has a weight, a quota, a framework or a reservation, in the order of their names.
pub fn roles(books: &Books) -> Vec<RoleView> {
    let mut reserved: BTreeMap<String, Resources> = BTreeMap::new();
    for agent in books.agents.iter() {
        for (role, part) in agent.info.resources.reservations() {
            *reserved.entry(role.to_string()).or_default() += &part;
        }
    }
    let mut frameworks: BTreeMap<&str, Vec<_>> = BTreeMap::new();
    for framework in books.frameworks.iter() {
        for role in &framework.info.roles {
            let of_role = frameworks.entry(role).or_default();
            of_role.push(framework.id.clone());
        }
    }
    let on_agents = books.agents.iter();
    let on_agents = on_agents.filter_map(|agent| books.tasks.on_agent(&agent.id));
    let mut allocated = by_role(on_agents.flat_map(|on| on.held().values()));
    let mut offered = by_role(books.offers.iter().map(|offer| &offer.resources));
    let mut consumed = quota::consumed(books);
    let named = books.weights.keys().chain(books.quotas.keys());
    let mut names: BTreeSet<&str> = named.chain(reserved.keys()).map(String::as_str).collect();
    names.extend(frameworks.keys());
    names.insert("*");
    let seen = names.into_iter().filter(|name| books.shows_role(name));
    let names: Vec<String> = seen.map(str::to_owned).collect();
    let one = |name: String| RoleView {
        weight: books
            .weights
            .get(&name)
            .copied()
            .unwrap_or(weights::DEFAULT),
        quota: books.quotas.get(&name).cloned().unwrap_or_default(),
        consumed: consumed.remove(&name).unwrap_or_default(),
        frameworks: frameworks.remove(name.as_str()).unwrap_or_default(),
        allocated: allocated.remove(&name).unwrap_or_default(),
        offered: offered.remove(&name).unwrap_or_default(),
        reserved: reserved.remove(&name).unwrap_or_default(),
        name,
    };
    names.into_iter().map(one).collect()
}

/// The sums of what is allocated to each role.
fn by_role<'a>(parts: impl Iterator<Item = &'a Resources>) -> BTreeMap<String, Resources> {
    let mut sums: BTreeMap<String, Resources> = BTreeMap::new();
    for part in parts {
        for (role, allocated) in part.allocations() {
            *sums.entry(role.to_string()).or_default() += &allocated;
        }
    }
    sums
}
