//! Synthetic agents with running tasks that no process runs: their reports, and their summaries.

use std::error::Error;
use std::ops::Range;

use protocol::digest::{DigestKey, Fingerprinter};
use protocol::message::registration::{
    AgentInventory, RegisterAgent, ReregisterAgent, RunningTask,
};
use protocol::{
    AgentInfo, CommandInfo, FrameworkId, FrameworkInfo, MasterId, TaskId, TaskInfo, TaskState,
};
use resources::{Resources, Role};
use runtime::{NodeId, Pid};

/// The number of frameworks that own the tasks.
pub const FRAMEWORKS: u32 = 10;

/// Agents with running tasks, each with its reports.
#[derive(Clone, Debug)]
pub struct SyntheticAgents {
    /// Full reports.
    pub reports: Vec<RegisterAgent>,
    /// Summaries.
    pub summaries: Vec<ReregisterAgent>,
}

impl SyntheticAgents {
    /// This many agents with this many tasks each.
    pub fn new(agents: u32, tasks_each: u32) -> Result<Self, Box<dyn Error + Send + Sync>> {
        Self::of(0..agents, tasks_each)
    }

    /// The agents with these numbers.
    pub fn of(numbers: Range<u32>, tasks_each: u32) -> Result<Self, Box<dyn Error + Send + Sync>> {
        let master = MasterId::new("m")?;
        let resources: Resources = "cpus:32;mem:65536;disk:500000;ports:[31000-32000]".parse()?;
        let task_resources: Resources = "cpus:0.5;mem:64".parse()?;
        let task_resources = task_resources.allocate(&Role::new("*")?);
        let key = DigestKey::new(*b"a crowd of tasks");
        let mut printer = Fingerprinter::new(key);
        let mut synthetic = Self {
            reports: Vec::new(),
            summaries: Vec::new(),
        };
        for number in numbers {
            let agent = AgentInfo {
                id: Some(master.agent(number.into())),
                ..AgentInfo::new(format!("agent-{number}"), resources.clone())
            };
            let info = |task: u32| -> Result<RunningTask, Box<dyn Error + Send + Sync>> {
                let name = format!("{number}-{task}");
                Ok(RunningTask {
                    framework_id: owner_of(&master, number + task),
                    info: TaskInfo::new(
                        TaskId::new(&name)?,
                        master.agent(number.into()),
                        task_resources.clone(),
                    )
                    .with_command(CommandInfo::shell("sleep 1000")),
                    state: TaskState::Running,
                })
            };
            let mut held = AgentInventory {
                tasks: (0..tasks_each).map(info).collect::<Result<_, _>>()?,
                executors: Vec::new(),
                frameworks: (0..FRAMEWORKS).map(|f| framework(&master, f)).collect(),
            };
            held.drop_unused_frameworks();
            let pid = Pid::new("agent", NodeId::new(agent.hostname.as_str(), 1), 1);
            synthetic.summaries.push(ReregisterAgent {
                agent: agent.clone(),
                pid: pid.clone(),
                version: "1".to_owned(),
                summary: printer.summary(&held),
                report: None,
                oversubscribed: Resources::default(),
                resources: None,
                term_seen: 0,
            });
            synthetic.reports.push(RegisterAgent {
                agent,
                pid,
                version: "1".to_owned(),
                held,
                digest_key: key,
                oversubscribed: Resources::default(),
                resources: None,
                term_seen: 0,
            });
        }
        Ok(synthetic)
    }
}

/// The framework that owns the tasks of this number.
pub fn owner_of(master: &MasterId, number: u32) -> FrameworkId {
    master.framework((number % FRAMEWORKS).into())
}

fn framework(master: &MasterId, number: u32) -> FrameworkInfo {
    FrameworkInfo {
        id: Some(owner_of(master, number)),
        ..FrameworkInfo::new("nobody", "framework")
    }
}
