//! The hidden verb `meros-lab bench crowd-part`: synthetic agents in a process of their own.
//!
//! Each agent has its own node, socket and certificate, as on a separate machine, or shares them
//! with some others: the master then sees as many agents but fewer connections. Like real agents,
//! each node keeps a link to each master, including followers. Follows the protocol of parts (see
//! `process`): ready once all agents are registered and linked; answers each line once all are
//! registered with another master than before.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use clap::Args;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use meros::certs::CertsFlag;
use meros::flags::master_address;
use meros::out;
use meros::output::print::error_line;
use meros::service::raise_open_files;
use protocol::message::registration::RegisterAgent;
use runtime::prelude::*;
use runtime::{Clock, NodeId};
use serde_json::json;
use simulator::synthetic_agents::{MasterCounts, SyntheticAgent, register};
use testkit::agents::SyntheticAgents;
use tokio::sync::watch;
use transport::{Authority, Endpoint, Identity, Options};

use super::Result;
use super::process::input;

/// Interval of progress messages.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(5);
/// Concurrent link attempts to followers, before anything is measured.
const LINKED_AT_ONCE: usize = 128;
/// Attempts for each link, and the timeout of each.
const LINK_TRIES: u32 = 20;
const LINK_PATIENCE: Duration = Duration::from_secs(10);
/// Without progress for this long, the wait fails. The longest pause of an agent is one minute.
const STALLED: Duration = Duration::from_secs(90);

/// Synthetic agents
#[derive(Args, Debug)]
#[command(rename_all = "snake_case")]
pub struct CrowdArgs {
    #[arg(long, value_delimiter = ',', required = true, value_parser = master_address)]
    master: Vec<String>,
    /// Number of the first agent
    #[arg(long, default_value_t = 0)]
    first: u32,
    #[arg(long)]
    agents: u32,
    /// Agents that share a node, a socket and a certificate
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    each_socket: u32,
    /// Tasks that each agent reports
    #[arg(long, default_value_t = 0)]
    tasks_each: u32,
    #[command(flatten)]
    certs: CertsFlag,
}

/// Serves until its input ends.
pub async fn serve(args: &CrowdArgs) -> Result {
    raise_open_files()?;
    let mut lines = input();
    let authority = Authority::load(&args.certs.directory())?;
    let numbers = args.first..args.first.saturating_add(args.agents);
    let crowd = SyntheticAgents::of(numbers.clone(), args.tasks_each)?;
    let (tally, mut watched) = watch::channel(MasterCounts::default());
    let (mut nodes, mut endpoints, mut agents) = (Vec::new(), Vec::new(), Vec::new());
    let numbered: Vec<_> = numbers.zip(crowd.reports).collect();
    for some in numbered.chunks(args.each_socket as usize) {
        let (node, endpoint) = share(&authority, some, &args.master, &tally, &mut agents)?;
        nodes.push(node);
        endpoints.push(endpoint);
    }
    let (clock, wanted) = (Clock::real(), agents.len());
    let begun = clock.now();
    let registered = all_come(&clock, &mut watched, wanted, MasterCounts::registrations);
    futures_util::try_join!(register(&agents), registered)?;
    let seconds = (clock.now() - begun).as_secs_f64();
    let linked = link_all(&clock, &nodes, &args.master).await?;
    let carried = |master: &NodeId| Carried::of(&endpoints, master);
    out!("{}", json!({ "agents": args.agents, "seconds": seconds }));
    let mut former = watched.borrow().master().cloned();
    while lines.recv().await.is_some() {
        let before: BTreeMap<_, _> = linked.iter().map(|one| (one, carried(one))).collect();
        let elsewhere = |tally: &MasterCounts| tally.elsewhere_than(former.as_ref());
        all_come(&clock, &mut watched, wanted, elsewhere).await?;
        let now = watched.borrow().master().cloned();
        let after = now.as_ref().map(carried).unwrap_or_default();
        let idle = now.as_ref().and_then(|now| before.get(now).copied());
        let idle = idle.unwrap_or_default();
        let (sent, received) = after.since(idle);
        let before = idle.sent + idle.received;
        let answer = json!({ "sent": sent, "received": received, "before": before });
        out!("{answer}");
        former = now;
    }
    Ok(())
}

/// Waits until `count` reaches `wanted`, with progress messages. Fails if there is no progress for
/// too long.
async fn all_come(
    clock: &Clock,
    watched: &mut watch::Receiver<MasterCounts>,
    wanted: usize,
    count: impl Fn(&MasterCounts) -> usize,
) -> Result {
    let (mut came, mut since) = (0, clock.now());
    loop {
        let all = watched.wait_for(|tally| count(tally) >= wanted);
        if let Ok(all) = clock.timeout(PROGRESS_INTERVAL, all).await {
            return Ok(all.map(drop)?);
        }
        let now = count(&watched.borrow());
        if now > came {
            (came, since) = (now, clock.now());
        }
        if clock.now() - since >= STALLED {
            return Err(format!("stalled: {came} of {wanted} agents have registered").into());
        }
        error_line(format_args!("{now} of {wanted} agents have registered"));
    }
}

/// Links each node to each master, as a real agent does to find the leader. Returns the masters'
/// nodes.
async fn link_all(clock: &Clock, nodes: &[Node], masters: &[String]) -> Result<BTreeSet<NodeId>> {
    let each = masters
        .iter()
        .flat_map(|master| nodes.iter().map(move |node| link(clock, node, master)));
    let linking = stream::iter(each).buffer_unordered(LINKED_AT_ONCE);
    linking.try_collect().await
}

async fn link(clock: &Clock, node: &Node, master: &str) -> Result<NodeId> {
    for _ in 0..LINK_TRIES {
        let linked = clock.timeout(LINK_PATIENCE, node.connect(master)).await;
        if let Ok(Ok(peer)) = linked {
            return Ok(peer.node);
        }
    }
    Err(format!("no link to {master} after {LINK_TRIES} tries").into())
}

/// Creates a node for some of the agents, which are given with their numbers.
pub fn share(
    authority: &Authority,
    some: &[(u32, RegisterAgent)],
    masters: &[String],
    tally: &watch::Sender<MasterCounts>,
    agents: &mut Vec<Handle<SyntheticAgent>>,
) -> Result<(Node, Endpoint)> {
    let first = some.first().map_or(0, |(number, _)| *number);
    let identity = authority.issue(Role::Agent, &format!("crowd-{first}"))?;
    let node = agent_node(&identity);
    let endpoint = agent_socket(&node, &identity)?;
    let address = endpoint.address()?;
    let before = agents.len();
    // The first agent is spawned last: it passes the leader on to the others.
    for (number, report) in some.iter().rev() {
        let mut report = report.clone();
        report.agent.hostname = address.ip().to_string();
        report.agent.port = address.port();
        let mut agent = SyntheticAgent::new(report, masters.to_vec(), tally.clone());
        let mut name = format!("agent-{number}");
        if *number == first {
            agent = agent.with_neighbours(agents[before..].to_vec());
            name = "agent".to_owned();
        }
        agents.push(node.spawn(&name, agent)?);
    }
    Ok((node, endpoint))
}

/// A node of this agent.
pub fn agent_node(identity: &Identity) -> Node {
    Node::builder(identity.subject().name.as_str())
        .role(Role::Agent)
        .accepts(&[Role::Master, Role::Executor])
        .build()
}

/// Its socket on any free port. The buffers are small, because a machine has no memory for
/// thousands of large ones.
pub fn agent_socket(node: &Node, identity: &Identity) -> Result<Endpoint> {
    let bound = Endpoint::bind(node.clone(), identity, any_port(), small_buffers());
    Ok(bound?)
}

/// Any free port of this machine.
pub fn any_port() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, 0))
}

/// The default options with small socket buffers.
pub fn small_buffers() -> Options {
    Options {
        socket_buffer: 64 << 10,
        ..Options::default()
    }
}

/// Bytes carried by the links to a master, in both directions.
#[derive(Clone, Copy, Debug, Default)]
struct Carried {
    sent: u64,
    received: u64,
}

impl Carried {
    fn of(endpoints: &[Endpoint], master: &NodeId) -> Self {
        let traffic = endpoints.iter().filter_map(|one| one.traffic(master));
        traffic.fold(Self::default(), |sum, traffic| Self {
            sent: sum.sent + traffic.sent,
            received: sum.received + traffic.received,
        })
    }

    /// The difference to `then`. A link that was replaced since then has carried less, and counts
    /// in full.
    fn since(self, then: Self) -> (u64, u64) {
        match self.sent.checked_sub(then.sent) {
            Some(sent) => (sent, self.received.saturating_sub(then.received)),
            None => (self.sent, self.received),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn younger_link_counts_in_full() {
        let carried = |sent, received| Carried { sent, received };
        assert_eq!(carried(50, 40).since(carried(30, 35)), (20, 5));
        assert_eq!(carried(50, 40).since(Carried::default()), (50, 40));
        assert_eq!(carried(20, 40).since(carried(30, 35)), (20, 40));
    }
}
