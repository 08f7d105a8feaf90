//! Actions of agents and schedulers in a history of offers.

use std::time::Duration;

use protocol::message::registration::{AgentInventory, RegisterAgent, RunningTask};
use protocol::message::scheduler::{AcceptOffers, AcknowledgeStatus, Subscribe};
use protocol::message::task::TaskUpdated;
use protocol::{
    AgentId, AgentInfo, Capability, CommandInfo, Filters, FrameworkInfo, OfferId, Operation,
    Source, StatusUpdate, TaskId, TaskInfo, TaskState, TaskStatus, Uuid,
};
use resources::{Resources, Revocable};

use super::{End, TOTAL, World};
use crate::agents::comparison::Arrival;

impl World {
    pub fn register(&mut self, a: usize, with: usize) {
        let pid = self.pid("agent", a);
        let id = self.agents[a].clone();
        let tasks = self.tasks_of(id.as_ref());
        let kept = |n: &usize| [true, false, n.is_multiple_of(2)][with];
        let tasks = tasks.into_iter().enumerate().filter(|(n, _)| kept(n));
        let message = RegisterAgent {
            held: AgentInventory {
                tasks: tasks.map(|(_, task)| task).collect(),
                ..AgentInventory::default()
            },
            ..testkit::values::registration(
                AgentInfo {
                    id,
                    ..AgentInfo::new(format!("agent-{a}"), TOTAL.parse().unwrap())
                },
                pid,
            )
        };
        let mut agent = None;
        self.decide(End::Rescinded, |state, now, out| {
            let arrival = Box::new(Arrival::from(message));
            let id = state.prepare_agent(&arrival).unwrap().agent_id;
            let agreed = state.compare(&id, &arrival, out).unwrap();
            let patience = Duration::from_secs(75);
            state.admit_agent(arrival, id.clone(), agreed, patience, now, out);
            agent = Some(id);
        });
        self.agents[a] = agent;
    }

    /// The tasks that a returning agent reports: the ones it was sent, unchanged.
    fn tasks_of(&self, agent: Option<&AgentId>) -> Vec<RunningTask> {
        let on = agent.and_then(|agent| self.state.tasks.on_agent(agent));
        let keys = on.into_iter().flat_map(|on| on.tasks());
        let running = keys.filter_map(|(framework, id)| {
            let task = self.state.tasks.get(framework, id)?;
            let task_state = TaskState::Running;
            (!task.told.is_terminal()).then(|| RunningTask {
                framework_id: framework.clone(),
                info: task_info(&task.agent_id, id.clone(), task.resources.clone()),
                state: task_state,
            })
        });
        running.collect()
    }

    pub fn subscribe(&mut self, f: usize) {
        let scheduler = self.pid("scheduler", f);
        let mut framework = FrameworkInfo::new("nobody", format!("framework-{f}"));
        framework.id = self.frameworks[f].clone();
        framework.failover_timeout = Duration::from_secs(3600);
        framework
            .capabilities
            .insert(Capability::RevocableResources);
        let call = Subscribe {
            framework,
            scheduler,
            wants: Default::default(),
        };
        let mut id = None;
        self.decide(End::Rescinded, |state, now, out| {
            let prepared = state.prepare_framework(&call).unwrap();
            let subscribed = state.subscribe(prepared, call, now, out).unwrap();
            id = Some(subscribed.framework_id);
        });
        self.frameworks[f] = id;
    }

    pub fn accept(&mut self, a: usize, f: usize, tasks: usize, other: Option<usize>) {
        let (Some(agent), Some(framework_id)) = (self.agent(a), self.frameworks[f].clone()) else {
            return;
        };
        let own = self.state.offers.of_framework(&framework_id);
        let own = own.filter(|offer| offer.agent_id == agent);
        let mut offer_ids: Vec<OfferId> = own.map(|offer| offer.id.clone()).collect();
        offer_ids.extend(other.and_then(|n| self.nth(n)));
        let tasks = (0..tasks).map(|n| {
            self.tasks += 1;
            let id = TaskId::new(format!("t{}", self.tasks)).unwrap();
            let resources: Resources = format!("cpus:{};mem:50", n + 1).parse().unwrap();
            task_info(&agent, id, resources)
        });
        let operations = vec![Operation::Launch {
            tasks: tasks.collect(),
        }];
        let call = AcceptOffers {
            framework_id,
            offer_ids,
            operations,
            filters: Filters::default(),
        };
        self.decide(End::Accepted, |state, now, out| {
            state.accept(call, now, out)
        });
    }

    pub fn end(&mut self, n: usize, heard: bool) {
        let of = self.state.tasks.frameworks();
        let tasks = of.flat_map(|(_, of)| of.active());
        let tasks: Vec<_> = tasks.cloned().collect();
        let Some(task) = n.checked_rem(tasks.len()).map(|n| &tasks[n]) else {
            return;
        };
        let task_state = TaskState::Finished;
        let mut status = TaskStatus::new(task.id.clone(), task_state, Source::Executor, self.now());
        let uuid = Uuid([n as u8; 16]);
        status.uuid = Some(uuid);
        let framework_id = task.framework_id.clone();
        let update = StatusUpdate {
            framework_id: framework_id.clone(),
            status,
            latest_state: task_state,
        };
        let agent_id = task.agent_id.clone();
        let message = TaskUpdated {
            agent_id: agent_id.clone(),
            update,
        };
        self.decide(End::Rescinded, |state, _, out| {
            state.task_updated(message, out)
        });
        if heard {
            let task_id = task.id.clone();
            let call = AcknowledgeStatus {
                framework_id,
                agent_id,
                task_id,
                uuid,
            };
            self.decide(End::Rescinded, |state, _, out| state.acknowledge(call, out));
        }
    }
}

pub fn lent(cpus: u32) -> Resources {
    let plain: Resources = match cpus {
        0 => return Resources::new(),
        _ => format!("cpus:{cpus}").parse().unwrap(),
    };
    plain.to_revocable(Revocable::Throttleable).unwrap()
}

fn task_info(agent: &AgentId, task_id: TaskId, resources: Resources) -> TaskInfo {
    TaskInfo::new(task_id, agent.clone(), resources).with_command(CommandInfo::shell("true"))
}
