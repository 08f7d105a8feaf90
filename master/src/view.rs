//! The view: how the cluster looks, made of a snapshot of the books for operators' commands and pages.
//!
//! Pure, and run outside the master's mailbox. It never changes anything. What of an agent is reserved for roles that are not seen, or is theirs
//! now, is left out, as it is of pages.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use protocol::view::{AgentView, ClusterView, FrameworkView, RoleView, TaskView};
use protocol::{AgentInfo, FrameworkId, Offer};
use resources::{Resources, Role};

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

/// Every role that has a weight, a quota, a framework or a reservation, and those above it, in the order of their names. As in
/// Mesos the resources of a role are those of its subtree, and its frameworks are its own.
pub fn roles(books: &Books) -> Vec<RoleView> {
    let on_agents = books.agents.iter();
    let on_agents = on_agents.filter_map(|agent| books.tasks.on_agent(&agent.id));
    let held = by_role(on_agents.flat_map(|on| on.held().iter()));
    let offers = books.offers.iter();
    let offered = by_role(offers.map(|offer| (&offer.framework_id, &offer.resources)));
    let reservations = books.agents.iter();
    let mut reserved = subtrees(reservations.flat_map(|agent| agent.info.resources.reservations()));
    let mut frameworks = members(books, held.iter().chain(&offered));
    let mut allocated = subtrees(held.into_iter().map(|(_, role, part)| (role, part)));
    let mut offered = subtrees(offered.into_iter().map(|(_, role, part)| (role, part)));
    let mut consumed = quota::consumed(books);
    let named = books.weights.keys().chain(books.quotas.keys());
    let named = named.chain(frameworks.keys()).chain(reserved.keys());
    let mut names: BTreeSet<&str> = named.flat_map(|name| quota::with_ancestors(name)).collect();
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
        frameworks: Vec::from_iter(frameworks.remove(&name).unwrap_or_default()),
        allocated: allocated.remove(&name).unwrap_or_default(),
        offered: offered.remove(&name).unwrap_or_default(),
        reserved: reserved.remove(&name).unwrap_or_default(),
        name,
    };
    names.into_iter().map(one).collect()
}

/// What a framework has in one role.
type InRole<'a> = (&'a FrameworkId, Role, Resources);

/// These resources by the role that they are allocated to.
fn by_role<'a>(parts: impl Iterator<Item = (&'a FrameworkId, &'a Resources)>) -> Vec<InRole<'a>> {
    let by_role = |(framework, part): (&'a FrameworkId, &Resources)| {
        let allocations = part.allocations().into_iter();
        allocations.map(move |(role, part)| (framework, role, part))
    };
    parts.flat_map(by_role).collect()
}

/// The frameworks of each role: those subscribed to it, and those that have something in it.
fn members<'a>(
    books: &Books,
    having: impl Iterator<Item = &'a InRole<'a>>,
) -> BTreeMap<String, BTreeSet<FrameworkId>> {
    let mut members: BTreeMap<String, BTreeSet<FrameworkId>> = BTreeMap::new();
    for framework in books.frameworks.iter() {
        for role in &framework.info.roles {
            let of_role = members.entry(role.clone()).or_default();
            of_role.insert(framework.id.clone());
        }
    }
    for (framework, role, _) in having {
        let of_role = members.entry(role.to_string()).or_default();
        of_role.insert((*framework).clone());
    }
    members
}

/// The sums by role, each with those of the roles below it.
fn subtrees(parts: impl Iterator<Item = (Role, Resources)>) -> BTreeMap<String, Resources> {
    let mut sums: BTreeMap<String, Resources> = BTreeMap::new();
    for (role, part) in parts {
        for role in quota::with_ancestors(role.as_str()) {
            *sums.entry(role.to_owned()).or_default() += &part;
        }
    }
    sums
}
