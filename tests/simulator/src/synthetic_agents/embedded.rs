//! A real master with its modules, each on its own thread, and synthetic agents in the same
//! process.
//!
//! No network is used, but every message is encoded, sent and decoded.

use ::master::Started;
use ::master::registry::MemoryRegistry;
use protocol::FrameworkInfo;
use protocol::message::registration::RegisterAgent;
use runtime::Placement;
use runtime::prelude::*;
use runtime::testing::memory::Network;
use testkit::agents::SyntheticAgents;
use tokio::sync::watch;

use super::{BenchError, MasterCounts, SyntheticAgent, lead, register};

/// All agents share one link.
const OUTGOING_MAX: usize = 1 << 30;

/// The cluster. Stop it in order: a master reports the end of its allocator as an error.
pub struct Embedded {
    network: Network,
    /// The master's node.
    pub node: Node,
    /// The agents' node.
    pub home: Node,
    /// The master.
    pub master: Started,
    /// The report of each agent.
    pub reports: Vec<RegisterAgent>,
    /// The agents, in the order of their reports.
    pub agents: Vec<Handle<SyntheticAgent>>,
}

impl Embedded {
    /// Starts `agents` with `tasks_each` running tasks, and waits until all are registered.
    pub async fn start(agents: u32, tasks_each: u32) -> Result<Self, BenchError> {
        let network = Network::new();
        let node = join(
            &network,
            "master",
            Role::Master,
            &[Role::Agent, Role::Framework],
        );
        let home = join(&network, "agents", Role::Agent, &[Role::Master]);
        let master = lead(&node, Box::new(MemoryRegistry::new()))?;
        let crowd = SyntheticAgents::new(agents, tasks_each)?;
        let (tally, _watched) = watch::channel(MasterCounts::default());
        let mut handles = Vec::new();
        for (number, report) in crowd.reports.iter().enumerate() {
            let masters = vec!["master".to_owned()];
            let stand_in = SyntheticAgent::new(report.clone(), masters, tally.clone());
            handles.push(home.spawn(&format!("agent-{number}"), stand_in)?);
        }
        register(&handles).await?;
        Ok(Self {
            network,
            node,
            home,
            master,
            reports: crowd.reports,
            agents: handles,
        })
    }

    /// A node for this framework's driver, which finds the master as `master`.
    pub fn framework(&self, info: &FrameworkInfo) -> Node {
        join(&self.network, &info.name, Role::Framework, &[Role::Master])
    }

    /// Stops the cluster.
    pub async fn stop(self) {
        // The master before its agents and its allocator, whose ends it would report.
        let pid = self.master.master.pid();
        self.node.stop_now(&pid);
        self.node.ended(&pid).await;
        self.home.shutdown().await;
        self.node.shutdown().await;
    }
}

fn join(network: &Network, name: &str, role: Role, accepts: &[Role]) -> Node {
    let builder = Node::builder(name).role(role).accepts(accepts);
    let builder = builder.placement(Placement::services());
    let node = builder.outgoing_max(OUTGOING_MAX).build();
    network.join(&node, name);
    node
}
