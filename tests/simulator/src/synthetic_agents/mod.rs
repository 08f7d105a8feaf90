//! Synthetic agents for benchmarks, in real time and without containers. Each registers, answers
//! pings, and reregisters after a change of the leader. `meros-lab bench` measures
//! the same with them.
//!
//! | file | content |
//! |---|---|
//! | `embedded` | a real master and synthetic agents in one process |
//! | `declining` | frameworks that decline their offers, and the rate of offers |
//! | `reoffered` | the time until a declined or freed agent is offered again |
//! | `returning` | agents that all reregister with the next leader at once, in one process |
//! | `tasks` | tasks that agents accept, and finish on request |
//!
//! An agent reports tasks that no process runs ([`testkit::agents`]), in the real agent's
//! report rounds ([`ReportScope`]) and with its [`Backoff`]. It counts its registrations in the
//! shared counters. It launches nothing; the tasks that it was given finish on request.

pub mod declining;
pub mod embedded;
pub mod reoffered;
pub mod returning;
pub mod tasks;

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use ::agent::agent::registering::ReportScope;
use ::agent::agent::registration_timing::Backoff;
use ::master::registry::Registry;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use module_api::{AllocatorRef, Parameters};
use protocol::digest::Fingerprinter;
use protocol::message::registration::{
    LeaderAnnounced, PingAgent, Pong, RegisterAgent, ReregisterAgent, Reregistered,
};
use protocol::message::scheduler::AcknowledgeStatus;
use protocol::message::task::RunTasks;
use protocol::{FrameworkId, TaskInfo};
use rand::Rng;
use runtime::NodeId;
use runtime::prelude::*;
use tokio::sync::watch;

/// Maximum time until a master is found and has answered: many agents register at once.
const PATIENCE: Duration = Duration::from_secs(60);
/// Agents that register at once at the start, which is not measured.
const FIRST_AT_ONCE: usize = 128;
/// The real agent's default.
const BACKOFF_FACTOR: Duration = Duration::from_secs(1);

/// An error that prevents a measurement.
pub type BenchError = Box<dyn Error + Send + Sync>;

/// The number of agents per master.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MasterCounts {
    with: BTreeMap<NodeId, usize>,
    registrations: usize,
}

impl MasterCounts {
    /// Counts a registration with this master, after the previous one.
    fn registered(&mut self, by: &NodeId, before: Option<&NodeId>) {
        self.registrations += 1;
        if let Some(count) = before.and_then(|before| self.with.get_mut(before)) {
            *count -= 1;
        }
        *self.with.entry(by.clone()).or_default() += 1;
    }

    /// The master with the most agents.
    pub fn master(&self) -> Option<&NodeId> {
        let most = self.with.iter().max_by_key(|(_, count)| **count);
        most.filter(|(_, count)| **count > 0).map(|(node, _)| node)
    }

    /// The number of agents with another master than this one.
    pub fn elsewhere_than(&self, master: Option<&NodeId>) -> usize {
        let others = self.with.iter().filter(|(node, _)| Some(*node) != master);
        others.map(|(_, count)| count).sum()
    }

    /// The number of registrations, repeated ones included.
    pub fn registrations(&self) -> usize {
        self.registrations
    }
}

/// Registers with a master, at this address if given. Answered after the registration.
#[derive(Clone, Debug)]
pub struct Register(pub Option<String>);

impl Message for Register {
    type Result = ();
}

/// One synthetic agent.
pub struct SyntheticAgent {
    report: Arc<RegisterAgent>,
    masters: Vec<String>,
    /// Index of the next master to try.
    turn: usize,
    /// Number of the attempt, by which answers to earlier ones are ignored.
    attempt: u64,
    backoff: Backoff,
    master: Option<Pid>,
    /// The master of its last registration, for the counters.
    counted: Option<NodeId>,
    tally: watch::Sender<MasterCounts>,
    waiting: Vec<Promise<()>>,
    /// The highest term of an announced leader.
    announced: u64,
    neighbours: Vec<Handle<SyntheticAgent>>,
    /// Tasks that it was given and that have not finished.
    tasks: Vec<(FrameworkId, TaskInfo)>,
}

impl SyntheticAgent {
    /// An unregistered agent with the content of `report`. The report's pid is set at the start.
    pub fn new(
        report: RegisterAgent,
        masters: Vec<String>,
        tally: watch::Sender<MasterCounts>,
    ) -> Self {
        Self {
            report: Arc::new(report),
            masters,
            turn: 0,
            attempt: 0,
            backoff: Backoff::new(BACKOFF_FACTOR),
            master: None,
            counted: None,
            tally,
            waiting: Vec::new(),
            announced: 0,
            neighbours: Vec::new(),
            tasks: Vec::new(),
        }
    }

    /// Forwards leader announcements to these agents: a leader announces itself to the actor
    /// `agent` at each agent's address, which they share.
    #[must_use]
    pub fn with_neighbours(mut self, neighbours: Vec<Handle<SyntheticAgent>>) -> Self {
        self.neighbours = neighbours;
        self
    }

    fn come(&mut self, to: Option<String>, ctx: &mut Context<Self>) {
        self.attempt += 1;
        let attempt = self.attempt;
        let address = to.unwrap_or_else(|| {
            let next = self.masters[self.turn % self.masters.len()].clone();
            self.turn = self.turn.wrapping_add(1);
            next
        });
        let scope = match self.counted {
            Some(_) => ReportScope::DigestSummary { compared: 0 },
            None => ReportScope::Full,
        };
        let joining = join(ctx.node().clone(), address, self.report.clone(), scope);
        ctx.then(joining, move |this, joined, ctx| {
            if this.attempt != attempt {
                return;
            }
            match joined {
                Ok(master) => this.registered(master, ctx),
                Err(problem) => {
                    tracing::debug!(%problem, "one of the crowd is not registered");
                    // A follower has no master to wait for.
                    let pause = match this.turn % this.masters.len() {
                        0 => this.backoff.failed(ctx.node().rng().random()),
                        _ => Duration::ZERO,
                    };
                    this.come_after(pause, ctx);
                }
            }
        });
    }

    fn come_after(&mut self, pause: Duration, ctx: &mut Context<Self>) {
        let attempt = self.attempt;
        ctx.after(pause, move |this, ctx| {
            if this.attempt == attempt {
                this.come(None, ctx);
            }
        });
    }

    fn registered(&mut self, master: Pid, ctx: &mut Context<Self>) {
        self.backoff.registered();
        ctx.link(&master);
        let before = self.counted.replace(master.node().clone());
        self.tally
            .send_modify(|tally| tally.registered(master.node(), before.as_ref()));
        self.master = Some(master);
        for waiting in self.waiting.drain(..) {
            waiting.answer(());
        }
    }

    fn lose_master(&mut self, ctx: &mut Context<Self>) {
        if let Some(master) = self.master.take() {
            ctx.unlink(&master);
            let pause = self.backoff.lost(ctx.node().rng().random());
            self.come_after(pause, ctx);
        }
    }
}

/// Finds the master there and registers with it.
async fn join(
    node: Node,
    address: String,
    report: Arc<RegisterAgent>,
    mut scope: ReportScope,
) -> Result<Pid, String> {
    let words = |error: &dyn Error| error.to_string();
    let master = node.find(&address, "master", PATIENCE).await;
    let master = master.map_err(|error| words(&error))?;
    // Ends: after a few rounds it reports everything, and the master accepts or refuses it.
    loop {
        let answer = match report_for(&report, &scope) {
            None => {
                let answer = node.ask(&master, (*report).clone(), PATIENCE).await;
                answer.map(|answer| answer.map(Reregistered::Registered))
            }
            Some(question) => node.ask(&master, question, PATIENCE).await,
        };
        let answer = answer.map_err(|error| words(&error))?;
        match scope.after(&answer.map_err(|refused| words(&refused))?) {
            None => return Ok(master),
            Some(next) => scope = next,
        }
    }
}

/// The report of an agent for this scope; `None` is all.
fn report_for(report: &RegisterAgent, scope: &ReportScope) -> Option<ReregisterAgent> {
    let theirs = match scope {
        ReportScope::Full => return None,
        ReportScope::DigestSummary { .. } => None,
        ReportScope::Differing { theirs, .. } => Some(theirs),
    };
    let mut printer = Fingerprinter::new(report.digest_key);
    Some(ReregisterAgent {
        agent: report.agent.clone(),
        pid: report.pid.clone(),
        version: report.version.clone(),
        summary: printer.summary(&report.held),
        report: theirs.map(|theirs| printer.report(report.held.clone(), theirs)),
        oversubscribed: report.oversubscribed.clone(),
        resources: None,
        term_seen: report.term_seen,
    })
}

impl Actor for SyntheticAgent {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        Arc::make_mut(&mut self.report).pid = ctx.pid().clone();
    }
}

impl Process for SyntheticAgent {
    const MAILBOX: u32 = 64;

    fn accepts(handlers: &mut RemoteHandlers<Self>) {
        handlers.accept::<PingAgent>(&[Role::Master]);
        handlers.accept::<LeaderAnnounced>(&[Role::Master]);
        handlers.accept::<RunTasks>(&[Role::Master]);
        handlers.accept::<AcknowledgeStatus>(&[Role::Master]);
    }
}

impl Handler<Register> for SyntheticAgent {
    type Result = Reply<()>;

    fn handle(&mut self, Register(to): Register, ctx: &mut Context<Self>) -> Reply<()> {
        let (promise, reply) = promise();
        self.waiting.push(promise);
        self.come(to, ctx);
        reply
    }
}

impl Handler<PingAgent> for SyntheticAgent {
    type Result = MessageResult<PingAgent>;

    fn handle(&mut self, ping: PingAgent, ctx: &mut Context<Self>) -> Self::Result {
        if !ping.connected {
            self.lose_master(ctx);
        }
        MessageResult(Pong)
    }
}

impl Handler<LeaderAnnounced> for SyntheticAgent {
    type Result = ();

    fn handle(&mut self, leader: LeaderAnnounced, ctx: &mut Context<Self>) {
        // Each agent that shares this address gets the announcement.
        if leader.term <= self.announced {
            return;
        }
        self.announced = leader.term;
        for neighbour in &self.neighbours {
            if let Err(error) = neighbour.tell(leader.clone()) {
                tracing::warn!(%error, "one of the crowd is not told who leads");
            }
        }
        if let Some(master) = self.master.take() {
            ctx.unlink(&master);
        }
        self.come(Some(leader.address), ctx);
    }
}

impl Handler<Exited> for SyntheticAgent {
    type Result = ();

    fn handle(&mut self, exited: Exited, ctx: &mut Context<Self>) {
        if self.master.as_ref() == Some(&exited.pid) {
            self.lose_master(ctx);
        }
    }
}

/// Starts the real master with its default modules and this registry, for synthetic agents in this
/// process.
pub fn lead(node: &Node, registry: Box<dyn Registry>) -> Result<::master::Started, BenchError> {
    let config = ::master::Config::default();
    Ok(::master::start(
        node,
        config,
        0,
        allocator(node)?,
        registry,
    )?)
}

/// The default allocator with the default sorter.
fn allocator(node: &Node) -> Result<AllocatorRef, BenchError> {
    let modules = ::modules::registry();
    let sorter = modules.sorter(node, "drf", &Parameters::none("drf"))?;
    let none = Parameters::none("hierarchical");
    Ok(modules.allocator(node, "hierarchical", sorter, &none)?)
}

/// Registers all agents for the first time, some at once.
pub async fn register(all: &[Handle<SyntheticAgent>]) -> Result<(), BenchError> {
    let each = all.iter().map(|one| async move {
        let come = one.ask(Register(None), Patience::WhileLinked).await;
        come.map_err(BenchError::from)
    });
    let each = stream::iter(each).buffer_unordered(FIRST_AT_ONCE);
    each.try_collect().await
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use protocol::AgentId;
    use protocol::message::registration::{AgentRegistered, RegistrationRefused};
    use runtime::testing::simulate_network;
    use testkit::agents::SyntheticAgents;

    fn node(name: &str) -> NodeId {
        NodeId::new(name, 1)
    }

    #[test]
    fn the_tally_knows_who_has_left_a_master() {
        let (first, second) = (node("first"), node("second"));
        let mut tally = MasterCounts::default();
        assert_eq!((tally.master(), tally.elsewhere_than(None)), (None, 0));
        for _ in 0..3 {
            tally.registered(&first, None);
        }
        assert_eq!(tally.master(), Some(&first));
        assert_eq!(tally.elsewhere_than(Some(&first)), 0);
        tally.registered(&second, Some(&first));
        tally.registered(&second, Some(&first));
        assert_eq!(tally.elsewhere_than(Some(&first)), 2);
        assert_eq!((tally.master(), tally.registrations()), (Some(&second), 5));
    }

    #[test]
    fn agent_reports_a_summary_and_then_differences() {
        let crowd = SyntheticAgents::of(7..8, 3).unwrap();
        let report = &crowd.reports[0];
        assert_eq!(report_for(report, &ReportScope::Full), None);
        let summary = report_for(report, &ReportScope::DigestSummary { compared: 0 }).unwrap();
        assert_eq!(summary.summary, crowd.summaries[0].summary);
        assert_eq!(summary.report, None);
        let buckets = vec![0; 1 << 4];
        let differs = Reregistered::Differs { buckets };
        let next = ReportScope::DigestSummary { compared: 0 }
            .after(&differs)
            .unwrap();
        let part = report_for(report, &next).unwrap().report.unwrap();
        assert_eq!(
            part.held.tasks.len(),
            3,
            "an empty master lacks all of them"
        );
    }

    /// Refuses everybody, and records the agents.
    struct Refusing(Arc<Mutex<Vec<AgentId>>>);

    impl Actor for Refusing {
        type Context = Context<Self>;
    }

    impl Process for Refusing {
        fn accepts(handlers: &mut RemoteHandlers<Self>) {
            handlers.accept::<RegisterAgent>(&[Role::Agent]);
        }
    }

    impl Handler<RegisterAgent> for Refusing {
        type Result = Result<AgentRegistered, RegistrationRefused>;

        fn handle(&mut self, asks: RegisterAgent, _: &mut Context<Self>) -> Self::Result {
            self.0.lock().unwrap().extend(asks.agent.id);
            let reason = "it takes nobody in".to_owned();
            Err(RegistrationRefused::Never { reason })
        }
    }

    #[test]
    fn agents_at_one_address_share_announcements() {
        simulate_network(|network| async move {
            let home = network.node("agents", Role::Agent, &[Role::Master]);
            let leads = network.node("leader", Role::Master, &[Role::Agent]);
            let asked = Arc::<Mutex<Vec<AgentId>>>::default();
            leads.spawn("master", Refusing(asked.clone())).unwrap();
            let crowd = SyntheticAgents::of(0..3, 1).unwrap();
            let ids: Vec<_> = crowd
                .reports
                .iter()
                .filter_map(|one| one.agent.id.clone())
                .collect();
            let mut some = crowd.reports.into_iter().map(|report| {
                let tally = watch::channel(MasterCounts::default()).0;
                SyntheticAgent::new(report, vec!["nowhere".to_owned()], tally)
            });
            let first = some.next().unwrap();
            let neighbours = some.zip(["one", "other"]);
            let neighbours = neighbours.map(|(one, name)| home.spawn(name, one).unwrap());
            let first = first.with_neighbours(neighbours.collect());
            home.spawn("agent", first).unwrap();

            let agent = leads.find("agents", "agent", PATIENCE).await.unwrap();
            for (term, comings) in [(2, 1), (1, 1), (3, 2)] {
                let address = "leader".to_owned();
                let announced = LeaderAnnounced { address, term };
                for _ in &ids {
                    leads.tell(&agent, announced.clone()).unwrap();
                }
                leads.clock().settle().await;
                let asked = asked.lock().unwrap();
                for id in &ids {
                    let came = asked.iter().filter(|one| *one == id).count();
                    assert_eq!(came, comings, "{id}, term {term}");
                }
            }
        });
    }
}
