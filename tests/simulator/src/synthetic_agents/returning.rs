//! Reregistration of agents with tasks at a new leader, all at once in one process.
//!
//! The master, its allocator, its registry and its links are real, each on its own thread. No
//! network is used, but every message is encoded, sent and decoded, and each agent is an actor with
//! a mailbox that answers pings. As in Mesos' benchmark an agent has built its report before, and
//! knows the master's pid. The result is the time from the first request to the last registration.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use master::registry::{MemoryRegistry, Registry, RegistryOperation};
use master::state::MasterState;
use master::{Started, TakeSnapshot};
use module_api::AllocatorRef;
use protocol::message::registration::{
    PingAgent, Pong, RegisterAgent, RegistrationRefused, ReregisterAgent, Reregistered,
};
use runtime::Placement;
use runtime::prelude::*;
use runtime::testing::memory::Network;
use testkit::agents::SyntheticAgents;
use tokio::sync::watch;

use super::{BenchError, allocator};

/// Mesos' time for 20,000 agents with 100,000 tasks and in-process messages, recorded on a similar
/// machine.
pub const MESOS_SECONDS: f64 = 3.9;
/// Maximum time of a master to read a registry in memory.
const LEADING_MAX: Duration = Duration::from_secs(60);
/// All agents share one link.
const OUTGOING_MAX: usize = 1 << 30;
/// Agents started before the others get a turn.
const AT_ONCE: usize = 128;

/// The times in seconds.
#[derive(Clone, Copy, Debug)]
pub struct Round {
    /// With a master that knew no tasks and requested all of them.
    pub full: f64,
    /// With the next master, which knew all tasks from its mirror: digests were equal.
    pub digest: f64,
}

/// Progress of the round.
#[derive(Clone, Debug, Default)]
struct Returning {
    away: usize,
    /// The number of agents that were asked for all of their tasks.
    in_full: usize,
    /// An agent's error.
    trouble: Option<String>,
}

/// Reregisters with this master.
#[derive(Clone, Debug)]
struct Come(Pid);

impl Message for Come {
    type Result = ();
}

/// The registry's content for these agents and their frameworks.
fn recorded(crowd: &SyntheticAgents) -> Vec<RegistryOperation> {
    let agents = crowd.reports.iter().map(|report| {
        let info = report.agent.clone();
        RegistryOperation::AdmitAgent { info }
    });
    let frameworks = crowd.reports.iter();
    let frameworks = frameworks.flat_map(|report| &report.held.frameworks);
    let by_id: BTreeMap<_, _> = frameworks.map(|info| (info.id.clone(), info)).collect();
    let frameworks = by_id.into_values().cloned().map(|info| {
        let deadline = None;
        RegistryOperation::AdmitFramework { info, deadline }
    });
    agents.chain(frameworks).collect()
}

/// An agent without containers.
struct Returner {
    /// Its report for each master.
    report: Option<RegisterAgent>,
    summaries: Vec<ReregisterAgent>,
    returning: watch::Sender<Returning>,
}

impl Actor for Returner {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        let pids = self.summaries.iter_mut().map(|summary| &mut summary.pid);
        for pid in pids.chain(self.report.as_mut().map(|report| &mut report.pid)) {
            *pid = ctx.pid().clone();
        }
    }
}

impl Process for Returner {
    const MAILBOX: u32 = 64;

    fn accepts(handlers: &mut RemoteHandlers<Self>) {
        handlers.accept::<PingAgent>(&[Role::Master]);
    }
}

impl Handler<PingAgent> for Returner {
    type Result = MessageResult<PingAgent>;

    fn handle(&mut self, _: PingAgent, _: &mut Context<Self>) -> Self::Result {
        MessageResult(Pong)
    }
}

impl Handler<Come> for Returner {
    type Result = ();

    fn handle(&mut self, Come(master): Come, ctx: &mut Context<Self>) {
        let Some(summary) = self.summaries.pop() else {
            return self.cannot("it has come too often".to_owned());
        };
        let asking = ctx.node().ask(&master, summary, Patience::WhileLinked);
        ctx.then(asking, move |this, answer, ctx| match answer {
            Ok(Ok(Reregistered::Registered(_))) => this.is_back(),
            Ok(Ok(Reregistered::Differs { .. } | Reregistered::Unknown)) => {
                this.tell_all(&master, ctx);
            }
            Ok(Err(refused)) => this.cannot(refused.to_string()),
            Err(error) => this.cannot(error.to_string()),
        });
    }
}

impl Returner {
    fn tell_all(&mut self, master: &Pid, ctx: &mut Context<Self>) {
        self.returning.send_if_modified(|returning| {
            returning.in_full += 1;
            false
        });
        let Some(report) = self.report.take() else {
            return self.cannot("it has told all that it has before".to_owned());
        };
        let asking = ctx.node().ask(master, report, Patience::WhileLinked);
        ctx.then(asking, |this, answer, _| {
            let answer = answer.map_err(|error| error.to_string());
            let words = |refused: RegistrationRefused| refused.to_string();
            match answer.and_then(|answer| answer.map_err(words)) {
                Ok(_) => this.is_back(),
                Err(words) => this.cannot(words),
            }
        });
    }

    /// Only the last one is awaited.
    fn is_back(&self) {
        self.returning.send_if_modified(|returning| {
            returning.away = returning.away.saturating_sub(1);
            returning.away == 0
        });
    }

    fn cannot(&self, words: String) {
        self.returning
            .send_modify(|returning| returning.trouble = Some(words));
    }
}

/// All agents reregister with a master that knows no tasks, and then with the next one, which knows
/// all.
pub async fn round(agents: u32, tasks_each: u32) -> Result<Round, BenchError> {
    let network = Network::new();
    let node = |name: &str, role, hears: &[Role]| {
        let builder = Node::builder(name).role(role).accepts(hears);
        let builder = builder.placement(Placement::services());
        let node = builder.outgoing_max(OUTGOING_MAX).build();
        network.join(&node, name);
        node
    };
    let lives = node("master", Role::Master, &[Role::Agent]);
    let home = node("agents", Role::Agent, &[Role::Master]);
    let crowd = SyntheticAgents::of(0..agents, tasks_each)?;
    let recorded = recorded(&crowd);
    let allocator = allocator(&lives)?;

    let (returning, mut watched) = watch::channel(Returning::default());
    let mut all = Vec::new();
    for (report, summary) in crowd.reports.into_iter().zip(crowd.summaries) {
        let name = format!("agent-{}", all.len());
        let returner = Returner {
            report: Some(report),
            summaries: vec![summary.clone(), summary],
            returning: returning.clone(),
        };
        all.push(home.spawn(&name, returner)?);
    }

    let first = lead(&lives, &allocator, &recorded, None).await?;
    let (full, asked) = come(&home, &all, &mut watched, &returning).await?;
    if asked != all.len() {
        return Err(format!("{asked} of {agents} were asked for all that they have").into());
    }
    // The next master, with this one's state as its mirror has it.
    let books = first
        .master
        .ask(TakeSnapshot, Patience::WhileLinked)
        .await?;
    stop(&lives, &first).await;
    let next = lead(&lives, &allocator, &recorded, Some(books)).await?;
    let (digest, asked) = come(&home, &all, &mut watched, &returning).await?;
    if asked != 0 {
        return Err(format!("{asked} of {agents} had other digests than were expected").into());
    }
    // The master before its agents and its allocator, whose ends it would report.
    stop(&lives, &next).await;
    home.shutdown().await;
    lives.shutdown().await;
    Ok(Round { full, digest })
}

/// A master that has read this record, and knows this state of the previous one.
async fn lead(
    node: &Node,
    allocator: &AllocatorRef,
    recorded: &[RegistryOperation],
    before: Option<Arc<MasterState>>,
) -> Result<Started, BenchError> {
    let mut registry = Box::new(MemoryRegistry::new());
    for operation in recorded {
        registry.apply(operation.clone()).await?;
    }
    let config = master::Config::default();
    let started = master::start_after(node, config, 0, allocator.clone(), registry, before)?;
    let begun = node.clock().now();
    while node.clock().now() - begun < LEADING_MAX {
        let books = started.master.ask(TakeSnapshot, Patience::WhileLinked);
        if books.await?.has_begun() {
            return Ok(started);
        }
        node.clock().sleep(Duration::from_millis(1)).await;
    }
    Err(format!("the master does not lead within {LEADING_MAX:?}").into())
}

async fn stop(node: &Node, started: &Started) {
    let pid = started.master.pid();
    node.stop_now(&pid);
    node.ended(&pid).await;
}

/// Seconds until all agents, which start at once, are registered; and the number of those that were
/// asked for all of their tasks.
async fn come(
    home: &Node,
    all: &[Handle<Returner>],
    watched: &mut watch::Receiver<Returning>,
    returning: &watch::Sender<Returning>,
) -> Result<(f64, usize), BenchError> {
    let master = home.find("master", "master", Patience::WhileLinked).await?;
    returning.send_replace(Returning {
        away: all.len(),
        ..Returning::default()
    });
    let begun = home.clock().now();
    for some in all.chunks(AT_ONCE) {
        for one in some {
            one.tell(Come(master.clone()))?;
        }
        tokio::task::yield_now().await;
    }
    let over = watched.wait_for(|now| now.away == 0 || now.trouble.is_some());
    let over = over.await?.clone();
    let took = home.clock().now() - begun;
    match over.trouble {
        None => Ok((took.as_secs_f64(), over.in_full)),
        Some(words) => Err(words.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Everything except the network is real, the clock too. A round fails unless all agents
    /// register as expected.
    #[test]
    fn agents_return_in_full_and_then_by_digest() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let done = tokio::task::LocalSet::new().block_on(&runtime, round(50, 3));
        let Round { full, digest } = done.unwrap();
        assert!(full > 0.0 && digest > 0.0);
    }
}
