//! Crowd: for benchmarks, in real time: agents without anything behind them. Each registers, answers pings, and comes back when the leader
//! changes. What `meros bench` and `cargo bench` measure with it is the same.
//!
//! | file | what it is |
//! |---|---|
//! | `embedded` | a real master and a crowd in one process |
//! | `declining` | frameworks that decline what they are offered there, and how fast they are offered it |
//! | `reoffered` | how soon what one framework declines there, or what its task gave back, is offered again |
//! | `returning` | agents that come back to the next leader all at once, in one process |
//! | `tasks` | tasks that agents are told to run, which end when that is wanted |
//!
//! Hears its master. What it says it has are tasks that nobody runs (`master::measure`), told in the rounds of the real agent's
//! [`Telling`] and with the pauses of its [`Backoff`]. Remembers its master, and counts itself in the crowd's [`Tally`]. It launches
//! nothing, and obeys nothing else but that it says of the tasks that it was told to run that they have finished, once it is asked to.

pub mod declining;
pub mod embedded;
pub mod reoffered;
pub mod returning;
pub mod tasks;

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use ::agent::agent::joining::Telling;
use ::agent::registration::Backoff;
use ::master::registry::Registry;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use module_api::{AllocatorRef, Parameters};
use protocol::digest::Printer;
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

/// How long a master may take to be found and to answer: many come at once.
const PATIENCE: Duration = Duration::from_secs(60);
/// How many come at once for the first time, which nobody measures.
const FIRST_AT_ONCE: usize = 128;
/// As the real agent's default.
const BACKOFF_FACTOR: Duration = Duration::from_secs(1);

/// Why nothing was measured.
pub type Trouble = Box<dyn Error + Send + Sync>;

/// With whom the crowd is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    with: BTreeMap<NodeId, usize>,
    registrations: usize,
}

impl Tally {
    /// One of the crowd has been registered by this master; it was with that one before.
    fn registered(&mut self, by: &NodeId, before: Option<&NodeId>) {
        self.registrations += 1;
        if let Some(count) = before.and_then(|before| self.with.get_mut(before)) {
            *count -= 1;
        }
        *self.with.entry(by.clone()).or_default() += 1;
    }

    /// The master that most are with.
    pub fn master(&self) -> Option<&NodeId> {
        let most = self.with.iter().max_by_key(|(_, count)| **count);
        most.filter(|(_, count)| **count > 0).map(|(node, _)| node)
    }

    /// How many are with another master than this one.
    pub fn elsewhere_than(&self, master: Option<&NodeId>) -> usize {
        let others = self.with.iter().filter(|(node, _)| Some(*node) != master);
        others.map(|(_, count)| count).sum()
    }

    /// How many registrations there were, each agent's again and again.
    pub fn registrations(&self) -> usize {
        self.registrations
    }
}

/// Register with a master, at this address if it is given. Answered when one has this agent.
#[derive(Clone, Debug)]
pub struct Come(pub Option<String>);

impl Message for Come {
    type Result = ();
}

/// One of the crowd.
pub struct StandIn {
    report: Arc<RegisterAgent>,
    masters: Vec<String>,
    /// Which of the masters is tried next.
    turn: usize,
    /// Counts attempts, so that an answer to an old one is known.
    attempt: u64,
    backoff: Backoff,
    master: Option<Pid>,
    /// The master that had it last, for the tally.
    counted: Option<NodeId>,
    tally: watch::Sender<Tally>,
    waiting: Vec<Promise<()>>,
    /// The newest term whose leader was announced.
    announced: u64,
    neighbours: Vec<Handle<StandIn>>,
    /// What it was told to run and has not been asked to end.
    tasks: Vec<(FrameworkId, TaskInfo)>,
}

impl StandIn {
    /// An agent that has what `report` says, and has not registered. The report's pid is filled in when it begins.
    pub fn new(report: RegisterAgent, masters: Vec<String>, tally: watch::Sender<Tally>) -> Self {
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

    /// The same, which tells these who leads: a leader announces itself to the actor `agent` at each agent's address, and they share this one's.
    #[must_use]
    pub fn with_neighbours(mut self, neighbours: Vec<Handle<StandIn>>) -> Self {
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
        let telling = match self.counted {
            Some(_) => Telling::Summary { compared: 0 },
            None => Telling::All,
        };
        let joining = join(ctx.node().clone(), address, self.report.clone(), telling);
        ctx.then(joining, move |this, joined, ctx| {
            if this.attempt != attempt {
                return;
            }
            match joined {
                Ok(master) => this.registered(master, ctx),
                Err(problem) => {
                    tracing::debug!(%problem, "one of the crowd is not registered");
                    // Only the one that leads has a master; where the others are, there is nothing to wait for.
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

/// Finds the master there and comes to terms with it on what the agent has.
async fn join(
    node: Node,
    address: String,
    report: Arc<RegisterAgent>,
    mut telling: Telling,
) -> Result<Pid, String> {
    let words = |error: &dyn Error| error.to_string();
    let master = node.find(&address, "master", PATIENCE).await;
    let master = master.map_err(|error| words(&error))?;
    // Ends: after a few rounds it tells all, and then the master has it or refuses it.
    loop {
        let answer = match said(&report, &telling) {
            None => {
                let answer = node.ask(&master, (*report).clone(), PATIENCE).await;
                answer.map(|answer| answer.map(Reregistered::Registered))
            }
            Some(question) => node.ask(&master, question, PATIENCE).await,
        };
        let answer = answer.map_err(|error| words(&error))?;
        match telling.after(&answer.map_err(|refused| words(&refused))?) {
            None => return Ok(master),
            Some(next) => telling = next,
        }
    }
}

/// What an agent that has this tells; `None` is all.
fn said(report: &RegisterAgent, telling: &Telling) -> Option<ReregisterAgent> {
    let theirs = match telling {
        Telling::All => return None,
        Telling::Summary { .. } => None,
        Telling::Part { theirs, .. } => Some(theirs),
    };
    let mut printer = Printer::new(report.digest_key);
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

impl Actor for StandIn {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        Arc::make_mut(&mut self.report).pid = ctx.pid().clone();
    }
}

impl Process for StandIn {
    const MAILBOX: u32 = 64;

    fn hears(ears: &mut Ears<Self>) {
        ears.hear::<PingAgent>(&[Role::Master]);
        ears.hear::<LeaderAnnounced>(&[Role::Master]);
        ears.hear::<RunTasks>(&[Role::Master]);
        ears.hear::<AcknowledgeStatus>(&[Role::Master]);
    }
}

impl Handler<Come> for StandIn {
    type Result = Reply<()>;

    fn handle(&mut self, Come(to): Come, ctx: &mut Context<Self>) -> Reply<()> {
        let (promise, reply) = promise();
        self.waiting.push(promise);
        self.come(to, ctx);
        reply
    }
}

impl Handler<PingAgent> for StandIn {
    type Result = MessageResult<PingAgent>;

    fn handle(&mut self, ping: PingAgent, ctx: &mut Context<Self>) -> Self::Result {
        if !ping.connected {
            self.lose_master(ctx);
        }
        MessageResult(Pong)
    }
}

impl Handler<LeaderAnnounced> for StandIn {
    type Result = ();

    fn handle(&mut self, leader: LeaderAnnounced, ctx: &mut Context<Self>) {
        // It is announced to each of those who share this address.
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

impl Handler<Exited> for StandIn {
    type Result = ();

    fn handle(&mut self, exited: Exited, ctx: &mut Context<Self>) {
        if self.master.as_ref() == Some(&exited.pid) {
            self.lose_master(ctx);
        }
    }
}

/// Starts the master that a crowd within one process comes to: the real one with its default modules, over this registry.
pub fn lead(node: &Node, registry: Box<dyn Registry>) -> Result<::master::Started, Trouble> {
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
fn allocator(node: &Node) -> Result<AllocatorRef, Trouble> {
    let modules = ::modules::registry();
    let sorter = modules.sorter(node, "drf", &Parameters::none("drf"))?;
    let none = Parameters::none("hierarchical");
    Ok(modules.allocator(node, "hierarchical", sorter, &none)?)
}

/// Lets all of them register for the first time, some at once.
pub async fn register(all: &[Handle<StandIn>]) -> Result<(), Trouble> {
    let each = all.iter().map(|one| async move {
        let come = one.ask(Come(None), Patience::WhileLinked).await;
        come.map_err(Trouble::from)
    });
    let each = stream::iter(each).buffer_unordered(FIRST_AT_ONCE);
    each.try_collect().await
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use master::measure::Crowd;
    use protocol::AgentId;
    use protocol::message::registration::{AgentRegistered, RegistrationRefused};
    use runtime::rehearsal::rehearse_network;

    fn node(name: &str) -> NodeId {
        NodeId::new(name, 1)
    }

    #[test]
    fn the_tally_knows_who_has_left_a_master() {
        let (first, second) = (node("first"), node("second"));
        let mut tally = Tally::default();
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
    fn an_agent_tells_a_summary_and_then_only_what_differs() {
        let crowd = Crowd::of(7..8, 3).unwrap();
        let report = &crowd.reports[0];
        assert_eq!(said(report, &Telling::All), None);
        let summary = said(report, &Telling::Summary { compared: 0 }).unwrap();
        assert_eq!(summary.summary, crowd.summaries[0].summary);
        assert_eq!(summary.report, None);
        let buckets = vec![0; 1 << 4];
        let differs = Reregistered::Differs { buckets };
        let next = Telling::Summary { compared: 0 }.after(&differs).unwrap();
        let part = said(report, &next).unwrap().report.unwrap();
        assert_eq!(
            part.held.tasks.len(),
            3,
            "an empty master lacks all of them"
        );
    }

    /// Takes nobody in, and knows who has asked.
    struct Refusing(Arc<Mutex<Vec<AgentId>>>);

    impl Actor for Refusing {
        type Context = Context<Self>;
    }

    impl Process for Refusing {
        fn hears(ears: &mut Ears<Self>) {
            ears.hear::<RegisterAgent>(&[Role::Agent]);
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
    fn who_shares_an_address_hears_of_a_leader_that_is_announced_there_and_comes_once() {
        rehearse_network(|network| async move {
            let home = network.node("agents", Role::Agent, &[Role::Master]);
            let leads = network.node("leader", Role::Master, &[Role::Agent]);
            let asked = Arc::<Mutex<Vec<AgentId>>>::default();
            leads.spawn("master", Refusing(asked.clone())).unwrap();
            let crowd = Crowd::of(0..3, 1).unwrap();
            let ids: Vec<_> = crowd
                .reports
                .iter()
                .filter_map(|one| one.agent.id.clone())
                .collect();
            let mut some = crowd.reports.into_iter().map(|report| {
                let tally = watch::channel(Tally::default()).0;
                StandIn::new(report, vec!["nowhere".to_owned()], tally)
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
