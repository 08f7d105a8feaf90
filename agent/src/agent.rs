//! The agent's own actor: it finds a master, registers, stays registered, and hands on what the master wants.
//!
//! Hears the master and operators from outside, and its own helpers. Remembers its id, its master and what it last said it
//! lends. How it joins a master is in `agent/joining.rs`, whom it hands on what that says to in `agent/orders.rs`, what operators
//! read of it in `agent/reading.rs`. It knows no container: tasks go to the containerizer, acknowledgements to the status updates,
//! operations to those who keep what they make.

mod ending;
pub mod joining;
mod orders;
mod reading;
mod standby_links;

use std::net::IpAddr;
use std::sync::Arc;

use protocol::digest::DigestKey;
use protocol::message::operation::{ApplyOperation, ApplyOperationV1};
use protocol::message::operator::ReadSandbox;
use protocol::message::oversubscription::OversubscribedChanged;
use protocol::message::registration::{
    AgentRegistered, AgentResumed, AgentSuspended, DisownTasks, LeaderAnnounced, PingAgent, Pong,
    ShutDownAgent,
};
use protocol::message::scheduler::{
    AcknowledgeOperation, AcknowledgeStatus, FrameworkMessage, KillTask, KillTaskV1,
};
use protocol::message::task::{
    DrainTasks, EndExecutor, FrameworkChanged, RunTasks, ShutDownFramework,
};
use protocol::{AgentInfo, Fence};
use rand::Rng;
use rand::rngs::SmallRng;
use resources::Resources;
use runtime::prelude::*;
use runtime::{Instant, Timestamp};

use crate::config::Config;
use crate::container::Containerizer;
use crate::container::events::{EndEverything, Registered};
use crate::container::keeping::WhenRecovered;
use crate::disk::{DiskFigures, DiskWatch, ReportWrites};
use crate::ledger::Ledger;
use crate::metrics::AgentFigures;
use crate::operations::Operations;
use crate::oversubscription::{EstimateRejected, Estimated};
use crate::registration::{Backoff, Vigil};
use crate::sandboxes::Sandboxes;
use crate::status::{MasterIs, StatusUpdates};

pub use ending::GoAway;

/// The version told to masters and pages.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Why the agent has ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AgentEnd {
    /// The master told it to.
    #[error("the master shut this agent down: {reason}")]
    ShutDown {
        /// The master's words.
        reason: String,
    },
    /// It will never be admitted as it is.
    #[error("the master will not admit this agent: {reason}")]
    Refused {
        /// The master's words: the field, the value and what was expected.
        reason: String,
    },
    /// Its operator told it to leave.
    #[error("unregistered")]
    Left,
    /// Its operator stopped it, and it will come back: executors wait for that, or what ended ones have said last and nobody has acknowledged.
    #[error("stopped; {waiting} executors wait for it to be started again")]
    Departed {
        /// How many executors.
        waiting: usize,
    },
    /// One of its own actors has fallen, and what that knew is gone.
    #[error("{name} has fallen: {reason}")]
    Broken {
        /// Which actor.
        name: String,
        /// How.
        reason: String,
    },
}

/// The agent should leave its master for good, and kill what it runs.
#[derive(Message, Clone, Copy, Debug)]
#[rtype(result = "()")]
pub struct Leave;

/// Why will the agent end? Answered when it does.
#[derive(Message, Clone, Copy, Debug)]
#[rtype(result = "AgentEnd")]
pub struct WhenEnded;

/// Whether the work directory takes writes, and if not, why.
#[derive(Message, Clone, Debug)]
#[rtype(result = "()")]
pub struct WorkDirWrites(pub Result<(), String>);

/// How is the agent?
#[derive(Message, Clone, Copy, Debug)]
#[rtype(result = "AgentState")]
pub struct DescribeAgent;

/// The agent at one moment.
#[derive(Clone, Debug)]
pub struct AgentState {
    /// Who it is.
    pub info: AgentInfo,
    /// Its own address, if it was told one.
    pub address: Option<IpAddr>,
    /// The address of its master, if it has one.
    pub master: Option<String>,
    /// Since when it runs.
    pub started: Timestamp,
    /// Figures for its metrics; updates waiting are not counted in.
    pub figures: AgentFigures,
}

struct Master {
    pid: Pid,
    address: String,
    vigil: Vigil,
    /// What it knows of what is lent here.
    told: Resources,
}

/// The actor.
pub struct Agent {
    config: Config,
    info: AgentInfo,
    containerizer: Handle<Containerizer>,
    status: Handle<StatusUpdates>,
    operations: Handle<Operations>,
    /// `None` if nothing outlives it.
    ledger: Option<Handle<Ledger>>,
    /// `None` if its sandboxes are on no disk.
    disk: Option<Handle<DiskWatch>>,
    /// Why it cannot run tasks at present, so that its master does not offer it.
    suspended: Option<String>,
    /// Its resources after all operations, as far as masters know of them.
    total: Resources,
    sandboxes: Arc<dyn Sandboxes>,
    rng: SmallRng,
    backoff: Backoff,
    /// Which of the masters is tried next.
    turn: usize,
    /// Where a new leader has said it is: tried before any other.
    announced: Option<String>,
    /// Where the master was that had us last, if it was not named by the user: others have led there. It is tried first, once.
    learned: Option<String>,
    /// How often the one that was announced is tried again, before any other, when it says not now: it may still be reading its registry.
    tries: u32,
    /// Counts attempts, so that an answer to an old one is known.
    attempt: u64,
    master: Option<Master>,
    /// The master that has been asked to have us and has not answered.
    courted: Option<Pid>,
    /// The terms of masters that were seen.
    fence: Fence,
    /// Whether it goes on for an earlier process, of which nobody knows what terms that had seen, and no master has taken it in since.
    forgot_terms: bool,
    /// The key of its digests, drawn when it starts.
    digest_key: Option<DigestKey>,
    oversubscribed: Resources,
    estimates_rejected: u64,
    /// When its actor began to run.
    started: (Instant, Timestamp),
    /// Whether executors of an earlier process of it may still come back. It registers after that.
    recovering: bool,
    end: Option<AgentEnd>,
    waiting: Vec<Promise<AgentEnd>>,
}

impl Agent {
    /// An agent that has not registered.
    pub fn new(
        config: Config,
        containerizer: Handle<Containerizer>,
        status: Handle<StatusUpdates>,
        operations: Handle<Operations>,
        sandboxes: Arc<dyn Sandboxes>,
        rng: SmallRng,
    ) -> Self {
        Self {
            forgot_terms: config.info.id.is_some(),
            info: config.info.clone(),
            total: config.info.resources.clone(),
            backoff: Backoff::new(config.settings.registration_backoff_factor),
            config,
            containerizer,
            status,
            operations,
            ledger: None,
            disk: None,
            suspended: None,
            sandboxes,
            rng,
            turn: 0,
            announced: None,
            learned: None,
            tries: 0,
            attempt: 0,
            master: None,
            courted: None,
            fence: Fence::default(),
            digest_key: None,
            oversubscribed: Resources::new(),
            estimates_rejected: 0,
            started: Default::default(),
            recovering: false,
            end: None,
            waiting: Vec::new(),
        }
    }

    fn on_registered(
        &mut self,
        master: Master,
        registered: AgentRegistered,
        ctx: &mut Context<Self>,
    ) {
        tracing::info!(agent = %registered.agent_id, master = master.address, "registered");
        self.backoff.registered();
        self.announced = None;
        self.tries = 0;
        // The next attempt, should this link break, begins here too.
        match self.place_of(&master.address) {
            Some(place) => self.turn = place,
            None => self.learned = Some(master.address.clone()),
        }
        self.info.id = Some(registered.agent_id);
        ctx.link(&master.pid);
        self.master = Some(master);
        self.tell_helpers();
        self.tell_oversubscribed(ctx);
        if self.suspended.is_some() {
            self.report_suspension(ctx);
        }
        self.keep_vigil(ctx);
    }

    /// The containerizer and the updates learn who we are and whom we have.
    fn tell_helpers(&self) {
        let pid = self.master.as_ref().map(|master| master.pid.clone());
        let registered = Registered {
            agent: self.info.clone(),
            master: pid.clone(),
        };
        self.containerizer.tell_always(registered);
        let master = self.info.id.clone().zip(pid);
        self.status.tell_always(MasterIs(master.clone()));
        self.operations.tell_always(MasterIs(master));
    }

    /// Tells the master what is lent, if it does not know (S7).
    fn tell_oversubscribed(&mut self, ctx: &Context<Self>) {
        let (Some(master), Some(agent_id)) = (&mut self.master, &self.info.id) else {
            return;
        };
        if master.told == self.oversubscribed {
            return;
        }
        let changed = OversubscribedChanged {
            agent_id: agent_id.clone(),
            total: self.oversubscribed.clone(),
        };
        log_told(&self.oversubscribed);
        if ctx.node().tell(&master.pid, changed).is_ok() {
            master.told = self.oversubscribed.clone();
        }
    }

    /// The same agent with this disk watch.
    #[must_use]
    pub fn watching(mut self, disk: Option<Handle<DiskWatch>>) -> Self {
        self.disk = disk;
        self
    }

    /// Reports to the master whether this agent can be offered.
    fn report_suspension(&self, ctx: &Context<Self>) {
        let (Some(master), Some(agent_id)) = (&self.master, self.info.id.clone()) else {
            return;
        };
        let reported = match self.suspended.clone() {
            Some(reason) => ctx
                .node()
                .tell(&master.pid, AgentSuspended { agent_id, reason }),
            None => ctx.node().tell(&master.pid, AgentResumed { agent_id }),
        };
        if let Err(error) = reported {
            // Its link is broken: the next registration reports it.
            tracing::debug!(%error, "suspension not reported");
        }
    }

    fn keep_vigil(&mut self, ctx: &mut Context<Self>) {
        let Some(master) = &self.master else { return };
        match master.vigil.left(ctx.clock().now()) {
            Some(left) => {
                let pid = master.pid.clone();
                ctx.after(left, move |this, ctx| {
                    if this.master.as_ref().is_some_and(|master| master.pid == pid) {
                        this.keep_vigil(ctx);
                    }
                });
            }
            None => self.lose_master("it has not pinged for too long", ctx),
        }
    }

    fn lose_master(&mut self, why: &str, ctx: &mut Context<Self>) {
        let Some(master) = self.master.take() else {
            return;
        };
        tracing::warn!(
            master = master.address,
            why,
            "the master is lost; looking for it again"
        );
        ctx.unlink(&master.pid);
        self.tell_helpers();
        let pause = self.backoff.lost(self.rng.random());
        self.register_after(pause, ctx);
    }

    /// Another master leads now: it is where to register, whatever becomes of ours.
    fn follow(&mut self, leader: LeaderAnnounced, ctx: &mut Context<Self>) {
        let by = ctx.sender().map(|sender| sender.peer.node.clone());
        let Some(by) = by.filter(|_| self.end.is_none()) else {
            return;
        };
        if !leader.names_a_place() || !self.fence.follows(leader.term, self.master.is_some()) {
            let ours = self.master.as_ref();
            if ours.is_none_or(|master| *master.pid.node() != by) {
                self.refuse(ctx);
            }
            return;
        }
        if self.courted.as_ref().is_some_and(|pid| *pid.node() == by) {
            // It is being asked; should that have been an earlier one there, it is asked again.
            self.announced = Some(leader.address);
            return;
        }
        tracing::info!(
            master = leader.address,
            term = leader.term,
            "another master leads"
        );
        if let Some(master) = self.master.take() {
            ctx.unlink(&master.pid);
            self.tell_helpers();
        }
        self.courted = None;
        self.announced = Some(leader.address);
        self.tries = joining::ANNOUNCED_TRIES;
        self.register(ctx);
    }

    fn finish(&mut self, end: AgentEnd, ctx: &mut Context<Self>) {
        if self.end.is_some() {
            return;
        }
        match &end {
            AgentEnd::Left | AgentEnd::Departed { .. } => tracing::info!("{end}"),
            _ => tracing::error!("{end}"),
        }
        match &end {
            // What outlives it may be gone on with by the next process; one that leaves has said so before.
            AgentEnd::Departed { .. } | AgentEnd::Broken { .. } | AgentEnd::Left => {}
            _ => self.containerizer.tell_always(EndEverything),
        }
        if let Some(master) = self.master.take() {
            ctx.unlink(&master.pid);
        }
        for waiting in self.waiting.drain(..) {
            waiting.answer(end.clone());
        }
        self.end = Some(end);
    }
}

fn log_told(total: &Resources) {
    tracing::info!(total = %total.brief(), "the master is told what may be lent");
}

impl Actor for Agent {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        self.started = (ctx.clock().now(), ctx.clock().wall());
        ctx.link(&self.containerizer.pid());
        ctx.link(&self.status.pid());
        ctx.link(&self.operations.pid());
        if let Some(ledger) = &self.ledger {
            ctx.link(&ledger.pid());
        }
        if let Some(disk) = &self.disk {
            ctx.link(&disk.pid());
            disk.tell_always(ReportWrites(ctx.handle()));
        }
        self.keep_links(ctx);
        if self.info.id.is_none() {
            return self.register(ctx);
        }
        // It goes on for an earlier process: what its master is told is what has come back.
        self.recovering = true;
        let recovered = self.containerizer.ask(WhenRecovered, Patience::WhileLinked);
        ctx.then(recovered, |this, recovered, ctx| {
            if let Err(error) = recovered {
                tracing::warn!(%error, "executors may still come back");
            }
            this.recovering = false;
            this.register(ctx);
        });
    }
}

impl Process for Agent {
    /// What a master says once, a launch above all, must not be lost between the two: without its link the agent registers again, and they
    /// compare what they have.
    const WHEN_FULL: WhenFull = WhenFull::CloseLink;

    fn hears(ears: &mut Ears<Self>) {
        ears.hear::<PingAgent>(&[Role::Master]);
        ears.hear::<LeaderAnnounced>(&[Role::Master]);
        ears.hear::<RunTasks>(&[Role::Master]);
        ears.hear::<KillTask>(&[Role::Master]);
        ears.hear_older::<KillTaskV1, KillTask>(&[Role::Master]);
        ears.hear::<AcknowledgeStatus>(&[Role::Master]);
        ears.hear::<ApplyOperation>(&[Role::Master]);
        ears.hear_older::<ApplyOperationV1, ApplyOperation>(&[Role::Master]);
        ears.hear::<AcknowledgeOperation>(&[Role::Master]);
        ears.hear::<FrameworkMessage>(&[Role::Master]);
        ears.hear::<EndExecutor>(&[Role::Master]);
        ears.hear::<DrainTasks>(&[Role::Master]);
        ears.hear::<ShutDownFramework>(&[Role::Master]);
        ears.hear::<FrameworkChanged>(&[Role::Master]);
        ears.hear::<DisownTasks>(&[Role::Master]);
        ears.hear::<ShutDownAgent>(&[Role::Master]);
        ears.hear::<ReadSandbox>(&[Role::Master, Role::Operator]);
    }
}

impl Handler<PingAgent> for Agent {
    type Result = MessageResult<PingAgent>;
    fn handle(
        &mut self,
        PingAgent { connected }: PingAgent,
        ctx: &mut Context<Self>,
    ) -> Self::Result {
        let obeyed = self.obeys(ctx);
        if let Some(master) = self.master.as_mut().filter(|_| obeyed) {
            master.vigil.heard(ctx.clock().now());
            if !connected {
                self.lose_master("it does not hold this agent for connected", ctx);
            }
        }
        MessageResult(Pong)
    }
}

impl Handler<LeaderAnnounced> for Agent {
    type Result = ();
    fn handle(&mut self, leader: LeaderAnnounced, ctx: &mut Context<Self>) {
        self.follow(leader, ctx);
    }
}

impl Handler<ShutDownAgent> for Agent {
    type Result = ();
    fn handle(&mut self, ShutDownAgent { reason }: ShutDownAgent, ctx: &mut Context<Self>) {
        if self.obeys(ctx) {
            self.finish(AgentEnd::ShutDown { reason }, ctx);
        }
    }
}

impl Handler<Exited> for Agent {
    type Result = ();
    fn handle(&mut self, exited: Exited, ctx: &mut Context<Self>) {
        if self
            .master
            .as_ref()
            .is_some_and(|master| master.pid == exited.pid)
        {
            return self.lose_master(&exited.reason.to_string(), ctx);
        }
        let mut own = vec![
            self.containerizer.pid(),
            self.status.pid(),
            self.operations.pid(),
        ];
        own.extend(self.ledger.as_ref().map(Handle::pid));
        own.extend(self.disk.as_ref().map(Handle::pid));
        if own.contains(&exited.pid) && !ctx.node().is_shutting_down() {
            let end = AgentEnd::Broken {
                name: exited.pid.name().to_owned(),
                reason: exited.reason.to_string(),
            };
            self.finish(end, ctx);
        }
    }
}

impl Handler<Estimated> for Agent {
    type Result = ();
    fn handle(&mut self, Estimated(total): Estimated, ctx: &mut Context<Self>) {
        self.oversubscribed = total;
        self.tell_oversubscribed(ctx);
    }
}

impl Handler<EstimateRejected> for Agent {
    type Result = ();
    fn handle(&mut self, _: EstimateRejected, _: &mut Context<Self>) {
        self.estimates_rejected += 1;
    }
}

impl Handler<WorkDirWrites> for Agent {
    type Result = ();
    fn handle(&mut self, WorkDirWrites(outcome): WorkDirWrites, ctx: &mut Context<Self>) {
        self.suspended = outcome.err();
        self.report_suspension(ctx);
    }
}

impl Handler<DescribeAgent> for Agent {
    type Result = MessageResult<DescribeAgent>;
    fn handle(&mut self, _: DescribeAgent, ctx: &mut Context<Self>) -> Self::Result {
        MessageResult(AgentState {
            info: AgentInfo {
                resources: self.total.clone(),
                ..self.info.clone()
            },
            address: self.config.container_address(),
            master: self.master.as_ref().map(|master| master.address.clone()),
            started: self.started.1,
            figures: AgentFigures {
                registered: self.master.is_some(),
                uptime_secs: (ctx.clock().now() - self.started.0).as_secs_f64(),
                total: self.total.clone(),
                oversubscribed: self.oversubscribed.clone(),
                estimates_rejected: self.estimates_rejected,
                messages_refused: self.fence.refused(),
                term: self.fence.seen(),
                updates_waiting: 0,
                disk: DiskFigures::default(),
            },
        })
    }
}
