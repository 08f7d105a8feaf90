//! The cluster as operators see it: answers of the master's operator API.
//!
//! A framework that has ended is among the completed ones with its tasks; executors are not part of the view.

use protocol::view::{AgentView, ClusterView, FrameworkView, RoleView, TaskView};

use super::resource::write_resources;
use super::{write, write_labels};
use crate::schema::master::{
    ResponseGetAgents, ResponseGetAgentsAgent, ResponseGetExecutors, ResponseGetFrameworks,
    ResponseGetFrameworksFramework, ResponseGetState, ResponseGetTasks,
};
use crate::schema::{Role, Task};

impl From<&TaskView> for Task {
    fn from(task: &TaskView) -> Self {
        let newest = task.statuses.last();
        Self {
            name: task.name.clone(),
            task_id: (&task.id).into(),
            framework_id: (&task.framework_id).into(),
            executor_id: Some((&task.executor_id).into()),
            agent_id: (&task.agent_id).into(),
            state: task.state.into(),
            resources: write_resources(&task.resources),
            statuses: write(&task.statuses),
            status_update_state: newest.map(|status| status.state.into()),
            status_update_uuid: newest.and_then(|status| status.uuid).map(super::uuid_bytes),
            labels: write_labels(&task.labels),
            ..Self::default()
        }
    }
}

impl From<&AgentView> for ResponseGetAgentsAgent {
    fn from(agent: &AgentView) -> Self {
        let mut info = crate::schema::AgentInfo::from(&agent.info);
        info.id = Some((&agent.id).into());
        Self {
            agent_info: info,
            active: agent.active,
            version: agent.version.clone(),
            pid: Some(format!("slave(1)@{}", agent.address)),
            registered_time: Some(agent.registered.into()),
            total_resources: write_resources(
                &(agent.info.resources.clone() + agent.oversubscribed.clone()),
            ),
            allocated_resources: write_resources(&agent.used),
            offered_resources: write_resources(&agent.offered),
            ..Self::default()
        }
    }
}

impl From<&FrameworkView> for ResponseGetFrameworksFramework {
    fn from(framework: &FrameworkView) -> Self {
        let mut offered = resources::Resources::default();
        for offer in &framework.offers {
            offered += &offer.resources;
        }
        let mut info = crate::schema::FrameworkInfo::from(&framework.info);
        info.id = Some((&framework.id).into());
        Self {
            framework_info: info,
            active: framework.active,
            connected: framework.connected,
            registered_time: Some(framework.registered.into()),
            unregistered_time: framework.unregistered.map(Into::into),
            offers: write(&framework.offers),
            allocated_resources: write_resources(&framework.used),
            offered_resources: write_resources(&offered),
            ..Self::default()
        }
    }
}

impl From<&RoleView> for Role {
    fn from(role: &RoleView) -> Self {
        let held = role.allocated.clone() + role.offered.clone();
        Self {
            name: role.name.clone(),
            weight: role.weight,
            frameworks: write(&role.frameworks),
            resources: write_resources(&held),
        }
    }
}

impl From<&ClusterView> for ResponseGetAgents {
    fn from(cluster: &ClusterView) -> Self {
        Self {
            agents: write(&cluster.agents),
            ..Self::default()
        }
    }
}

impl From<&ClusterView> for ResponseGetFrameworks {
    fn from(cluster: &ClusterView) -> Self {
        Self {
            frameworks: write(&cluster.frameworks),
            completed_frameworks: write(&cluster.completed_frameworks),
            ..Self::default()
        }
    }
}

impl From<&ClusterView> for ResponseGetTasks {
    fn from(cluster: &ClusterView) -> Self {
        let all = || {
            cluster
                .frameworks
                .iter()
                .chain(&cluster.completed_frameworks)
        };
        Self {
            tasks: write(all().flat_map(|framework| &framework.tasks)),
            completed_tasks: write(all().flat_map(|framework| &framework.completed_tasks)),
            unreachable_tasks: write(all().flat_map(|framework| &framework.unreachable_tasks)),
            ..Self::default()
        }
    }
}

impl From<&ClusterView> for ResponseGetState {
    fn from(cluster: &ClusterView) -> Self {
        Self {
            get_tasks: Some(Box::new(cluster.into())),
            get_executors: Some(ResponseGetExecutors::default()),
            get_frameworks: Some(Box::new(cluster.into())),
            get_agents: Some(cluster.into()),
        }
    }
}
