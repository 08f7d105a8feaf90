//! Views of the cluster, rendered from a snapshot for operators' commands and pages.
//!
//! Pure, and run outside the master's mailbox. Resources reserved for or allocated to invisible
//! roles are left out, as in pages.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use protocol::view::{AgentView, ClusterView, FrameworkView, RoleView, TaskView};
use protocol::{AgentInfo, FrameworkId, Offer};
use resources::{Resources, Role};

use crate::agents::Agent;
use crate::frameworks::Framework;
use crate::roles::{quota, weights};
use crate::state::{MasterState, sum};
use crate::tasks::{FrameworkTasks, Task};

/// The whole cluster.
pub fn cluster(state: &MasterState) -> ClusterView {
    ClusterView {
        master: state.master.clone(),
        elected: state.elected,
        started: state.started,
        agents: state.agents.iter().map(|one| agent(state, one)).collect(),
        frameworks: state
            .frameworks
            .iter()
            .map(|one| {
                let tasks = state.tasks.of_framework(&one.id);
                let offers = state.offers.of_framework(&one.id).map(Arc::as_ref).cloned();
                framework(one, tasks.map(Arc::as_ref), offers.collect())
            })
            .collect(),
        completed_frameworks: state
            .frameworks
            .completed()
            .map(|one| framework(&one.framework, Some(&one.tasks), Vec::new()))
            .collect(),
    }
}

/// Resources used by tasks and executors on an agent.
pub fn used(state: &MasterState, agent: &Agent) -> Resources {
    let on = state.tasks.on_agent(&agent.id);
    sum(on.into_iter().flat_map(|on| on.held().values()))
}

/// Offered resources of an agent.
pub fn offered(state: &MasterState, agent: &Agent) -> Resources {
    sum(state
        .offers
        .of_agent(&agent.id)
        .map(|offer| &offer.resources))
}

fn agent(state: &MasterState, agent: &Agent) -> AgentView {
    let seen = |all: &Resources| state.visible_part(all).into_owned();
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
        used: seen(&used(state, agent)),
        offered: seen(&offered(state, agent)),
    }
}

fn framework(
    framework: &Framework,
    tasks: Option<&FrameworkTasks>,
    offers: Vec<Offer>,
) -> FrameworkView {
    let active = || tasks.into_iter().flat_map(FrameworkTasks::active);
    let has_ended = |task: &&Arc<Task>| task.state.is_terminal();
    let completed = tasks.into_iter().flat_map(FrameworkTasks::completed);
    let completed = completed.chain(active().filter(has_ended));
    let unreachable = tasks.into_iter().flat_map(FrameworkTasks::unreachable);
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

/// Every role with a weight, a quota, a framework or a reservation, and their ancestors, by name.
/// As in Mesos a role's resources are those of its subtree, and its frameworks are its own.
pub fn roles(state: &MasterState) -> Vec<RoleView> {
    let on_agents = state.agents.iter();
    let on_agents = on_agents.filter_map(|agent| state.tasks.on_agent(&agent.id));
    let held = by_role(on_agents.flat_map(|on| on.held().iter()));
    let offers = state.offers.iter();
    let offered = by_role(offers.map(|offer| (&offer.framework_id, &offer.resources)));
    let reservations = state.agents.iter();
    let mut reserved = subtrees(reservations.flat_map(|agent| agent.info.resources.reservations()));
    let mut frameworks = members(state, held.iter().chain(&offered));
    let mut allocated = subtrees(held.into_iter().map(|(_, role, part)| (role, part)));
    let mut offered = subtrees(offered.into_iter().map(|(_, role, part)| (role, part)));
    let mut consumed = quota::consumed(state);
    let named = state.weights.keys().chain(state.quotas.keys());
    let named = named.chain(frameworks.keys()).chain(reserved.keys());
    let mut names: BTreeSet<&str> = named.flat_map(|name| quota::with_ancestors(name)).collect();
    names.insert("*");
    let seen = names.into_iter().filter(|name| state.shows_role(name));
    let names: Vec<String> = seen.map(str::to_owned).collect();
    let one = |name: String| RoleView {
        weight: state
            .weights
            .get(&name)
            .copied()
            .unwrap_or(weights::DEFAULT),
        quota: state.quotas.get(&name).cloned().unwrap_or_default(),
        consumed: consumed.remove(&name).unwrap_or_default(),
        frameworks: Vec::from_iter(frameworks.remove(&name).unwrap_or_default()),
        allocated: allocated.remove(&name).unwrap_or_default(),
        offered: offered.remove(&name).unwrap_or_default(),
        reserved: reserved.remove(&name).unwrap_or_default(),
        name,
    };
    names.into_iter().map(one).collect()
}

/// A framework's resources in one role.
type InRole<'a> = (&'a FrameworkId, Role, Resources);

/// Resources by allocation role.
fn by_role<'a>(parts: impl Iterator<Item = (&'a FrameworkId, &'a Resources)>) -> Vec<InRole<'a>> {
    let by_role = |(framework, part): (&'a FrameworkId, &Resources)| {
        let allocations = part.allocations().into_iter();
        allocations.map(move |(role, part)| (framework, role, part))
    };
    parts.flat_map(by_role).collect()
}

/// The frameworks of each role: subscribed to it, or with resources in it.
fn members<'a>(
    state: &MasterState,
    having: impl Iterator<Item = &'a InRole<'a>>,
) -> BTreeMap<String, BTreeSet<FrameworkId>> {
    let mut members: BTreeMap<String, BTreeSet<FrameworkId>> = BTreeMap::new();
    for framework in state.frameworks.iter() {
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

/// The sums by role, each with those of its descendants.
fn subtrees(parts: impl Iterator<Item = (Role, Resources)>) -> BTreeMap<String, Resources> {
    let mut sums: BTreeMap<String, Resources> = BTreeMap::new();
    for (role, part) in parts {
        for role in quota::with_ancestors(role.as_str()) {
            *sums.entry(role.to_owned()).or_default() += &part;
        }
    }
    sums
}
