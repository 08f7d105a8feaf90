//! The agent's main actor: finds a master, registers, and forwards the master's messages.
//!
//! Handles messages from the master, from operators and from its own helpers. Owns the agent's id,
//! the current master and the last oversubscribed resources sent to it. Registration is in
//! `agent/registering.rs`, forwarding in `agent/orders.rs`, sandbox reads in `agent/reading.rs`, the
//! snapshot of the oversubscription in `agent/oversubscribed.rs`. Knows
//! no containers: tasks go to the containerizer, acknowledgements to the status updates, operations
//! to the operations actor.

mod ending;
mod orders;
mod oversubscribed;
mod reading;
pub mod registering;
pub mod registration_timing;
mod standby_links;

use std::net::IpAddr;
use std::sync::Arc;

use protocol::digest::DigestKey;
use protocol::message::operation::ApplyOperation;
use protocol::message::operator::{ReadSandbox, ViewOversubscription};
use protocol::message::oversubscription::OversubscribedChanged;
use protocol::message::registration::{
    AgentRegistered, AgentResumed, AgentSuspended, DisownTasks, LeaderAnnounced, PingAgent, Pong,
    ShutDownAgent,
};
use protocol::message::scheduler::{
    AcknowledgeOperation, AcknowledgeStatus, FrameworkMessage, KillTask,
};
use protocol::message::task::{
    DrainTasks, EndExecutor, FrameworkChanged, RunTasks, ShutDownFramework,
};
use protocol::view::oversubscription::EstimateView;
use protocol::{AgentInfo, Fence};
use rand::Rng;
use rand::rngs::SmallRng;
use resources::Resources;
use runtime::prelude::*;
use runtime::{Instant, Timestamp};

use crate::agent::registration_timing::{Backoff, HeartbeatTimeout};
use crate::config::Config;
use crate::container::Containerizer;
use crate::container::checkpointing::WhenRecovered;
use crate::container::events::{Registered, ShutDownAll};
use crate::ledger::Ledger;
use crate::metrics::AgentMetrics;
use crate::operations::Operations;
use crate::oversubscription::monitor::Monitor;
use crate::oversubscription::{EstimateRejected, Estimated};
use crate::sandbox::disk::{DiskMetrics, DiskWatch, ReportWrites};
use crate::sandbox::kept::Sandboxes;
use crate::status::{MasterChanged, StatusUpdates};

pub use ending::StopAgent;
pub use oversubscribed::DescribeOversubscription;

/// The version reported to masters and shown on pages.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Why the agent ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AgentEnd {
    /// The master ordered it.
    #[error("the master shut this agent down: {reason}")]
    ShutDown {
        /// The master's text.
        reason: String,
    },
    /// The master will never admit this agent as it is configured.
    #[error("the master will not admit this agent: {reason}")]
    Refused {
        /// The master's text: field, value and expectation.
        reason: String,
    },
    /// The operator ordered it to leave.
    #[error("unregistered")]
    Unregistered,
    /// Stopped for restart (SIGTERM). The next agent process continues under the same id.
    #[error("stopped; {waiting} executors wait for a restart")]
    Stopped {
        /// Number of checkpointed executors that wait for it, alive or with unacknowledged terminal
        /// updates.
        waiting: usize,
    },
    /// One of the agent's actors failed, and its state is lost.
    #[error("actor {name} failed: {reason}")]
    ActorFailed {
        /// The actor's name.
        name: String,
        /// The exit reason.
        reason: String,
    },
}

/// Orders the agent to unregister for good and kill its executors.
#[derive(Message, Clone, Copy, Debug)]
#[rtype(result = "()")]
pub struct Leave;

/// Waits for the agent's end and returns its cause.
#[derive(Message, Clone, Copy, Debug)]
#[rtype(result = "AgentEnd")]
pub struct WhenEnded;

/// Reports whether the work directory is writable, and the error if not.
#[derive(Message, Clone, Debug)]
#[rtype(result = "()")]
pub struct WorkDirWrites(pub Result<(), String>);

/// Requests the agent's state.
#[derive(Message, Clone, Copy, Debug)]
#[rtype(result = "AgentState")]
pub struct DescribeAgent;

/// The agent's state at one moment.
#[derive(Clone, Debug)]
pub struct AgentState {
    /// Its description, with current resources.
    pub info: AgentInfo,
    /// Its address, if configured.
    pub address: Option<IpAddr>,
    /// The address of its master, if registered.
    pub master: Option<String>,
    /// Start time.
    pub started: Timestamp,
    /// Metrics; those of other actors are not filled in.
    pub metrics: AgentMetrics,
}

struct Master {
    pid: Pid,
    address: String,
    heartbeat: HeartbeatTimeout,
    /// Oversubscribed resources last sent to this master.
    oversubscribed_sent: Resources,
}

/// The agent actor.
pub struct Agent {
    config: Config,
    info: AgentInfo,
    containerizer: Handle<Containerizer>,
    status: Handle<StatusUpdates>,
    operations: Handle<Operations>,
    /// `None` if checkpointing is off.
    ledger: Option<Handle<Ledger>>,
    /// `None` if sandboxes are not on a disk.
    disk: Option<Handle<DiskWatch>>,
    /// Why the agent cannot run tasks now. The master makes no offers of it meanwhile.
    suspended: Option<String>,
    /// Resources after all operations, as last reported to a master.
    total: Resources,
    sandboxes: Arc<dyn Sandboxes>,
    rng: SmallRng,
    backoff: Backoff,
    /// Index of the configured master to try next.
    next_master: usize,
    /// Address announced by a new leader; tried before any other.
    announced: Option<String>,
    /// Address of the last master that admitted this agent, if it is not configured. Tried first,
    /// once.
    learned: Option<String>,
    /// Remaining retries at the announced leader when it answers "not now": it may still be reading
    /// its registry.
    announced_retries: u32,
    /// Counts attempts, to discard answers to earlier ones.
    attempt: u64,
    master: Option<Master>,
    /// The master that a registration was sent to and that has not answered yet.
    registering_with: Option<Pid>,
    /// Highest term seen.
    fence: Fence,
    /// Set while this process continues an earlier one with unknown terms, and no master has
    /// admitted it yet.
    terms_unknown: bool,
    /// Key of the inventory digests, drawn once per process.
    digest_key: Option<DigestKey>,
    oversubscribed: Resources,
    /// The newest estimate.
    estimate: Option<EstimateView>,
    /// Set before its start.
    monitor: Option<Handle<Monitor>>,
    estimates_rejected: u64,
    /// When the actor started.
    started: (Instant, Timestamp),
    /// Set while executors of an earlier process may still reregister. Registration waits for it.
    recovering: bool,
    /// Whether it has isolators, which are recovered before a container is prepared.
    has_isolators: bool,
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
            terms_unknown: config.info.id.is_some(),
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
            next_master: 0,
            announced: None,
            learned: None,
            announced_retries: 0,
            attempt: 0,
            master: None,
            registering_with: None,
            fence: Fence::default(),
            digest_key: None,
            oversubscribed: Resources::new(),
            estimate: None,
            monitor: None,
            estimates_rejected: 0,
            started: Default::default(),
            recovering: false,
            has_isolators: false,
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
        self.announced_retries = 0;
        // If this link breaks, the next attempt starts with this master.
        match self.index_of(&master.address) {
            Some(place) => self.next_master = place,
            None => self.learned = Some(master.address.clone()),
        }
        self.info.id = Some(registered.agent_id);
        ctx.link(&master.pid);
        self.master = Some(master);
        self.update_helpers();
        self.send_oversubscribed(ctx);
        if self.suspended.is_some() {
            self.report_suspension(ctx);
        }
        self.watch_heartbeat(ctx);
    }

    /// Sends the agent's id and master to the containerizer, the status updates and the operations.
    fn update_helpers(&self) {
        let pid = self.master.as_ref().map(|master| master.pid.clone());
        let registered = Registered {
            agent: self.info.clone(),
            master: pid.clone(),
        };
        self.containerizer.tell_always(registered);
        let master = self.info.id.clone().zip(pid);
        self.status.tell_always(MasterChanged(master.clone()));
        self.operations.tell_always(MasterChanged(master));
    }

    /// Sends the oversubscribed resources to the master unless it has them.
    fn send_oversubscribed(&mut self, ctx: &Context<Self>) {
        let (Some(master), Some(agent_id)) = (&mut self.master, &self.info.id) else {
            return;
        };
        if master.oversubscribed_sent == self.oversubscribed {
            return;
        }
        let changed = OversubscribedChanged {
            agent_id: agent_id.clone(),
            total: self.oversubscribed.clone(),
        };
        log_oversubscribed(&self.oversubscribed);
        if ctx.node().tell(&master.pid, changed).is_ok() {
            master.oversubscribed_sent = self.oversubscribed.clone();
        }
    }

    /// Sets whether it has isolators.
    #[must_use]
    pub fn with_isolators(mut self, has_isolators: bool) -> Self {
        self.has_isolators = has_isolators;
        self
    }

    /// Sets the monitor of usage.
    #[must_use]
    pub fn with_monitor(mut self, monitor: Handle<Monitor>) -> Self {
        self.monitor = Some(monitor);
        self
    }

    /// Sets the disk watch.
    #[must_use]
    pub fn with_disk_watch(mut self, disk: Option<Handle<DiskWatch>>) -> Self {
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
            // The link is broken: the next registration reports it.
            tracing::debug!(%error, "suspension not reported");
        }
    }

    fn watch_heartbeat(&mut self, ctx: &mut Context<Self>) {
        let Some(master) = &self.master else { return };
        match master.heartbeat.remaining(ctx.clock().now()) {
            Some(left) => {
                let pid = master.pid.clone();
                ctx.after(left, move |this, ctx| {
                    if this.master.as_ref().is_some_and(|master| master.pid == pid) {
                        this.watch_heartbeat(ctx);
                    }
                });
            }
            None => self.lose_master("no ping within the timeout", ctx),
        }
    }

    fn lose_master(&mut self, why: &str, ctx: &mut Context<Self>) {
        let Some(master) = self.master.take() else {
            return;
        };
        tracing::warn!(
            master = master.address,
            why,
            "master lost; looking for a leader"
        );
        ctx.unlink(&master.pid);
        self.update_helpers();
        let pause = self.backoff.lost(self.rng.random());
        self.register_after(pause, ctx);
    }

    /// Registers with a newly announced leader, whether or not the current master still lives.
    fn follow_leader(&mut self, leader: LeaderAnnounced, ctx: &mut Context<Self>) {
        let by = ctx.sender().map(|sender| sender.peer.node.clone());
        let Some(by) = by.filter(|_| self.end.is_none()) else {
            return;
        };
        if !leader.has_dialable_address()
            || !self.fence.try_follow(leader.term, self.master.is_some())
        {
            let ours = self.master.as_ref();
            if ours.is_none_or(|master| *master.pid.node() != by) {
                self.refuse(ctx);
            }
            return;
        }
        if self
            .registering_with
            .as_ref()
            .is_some_and(|pid| *pid.node() == by)
        {
            // A registration is in progress there; if it went to an earlier process, it is
            // repeated.
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
            self.update_helpers();
        }
        self.registering_with = None;
        self.announced = Some(leader.address);
        self.announced_retries = registering::ANNOUNCED_RETRIES;
        self.register(ctx);
    }

    fn finish(&mut self, end: AgentEnd, ctx: &mut Context<Self>) {
        if self.end.is_some() {
            return;
        }
        match &end {
            AgentEnd::Unregistered | AgentEnd::Stopped { .. } => tracing::info!("{end}"),
            _ => tracing::error!("{end}"),
        }
        match &end {
            // Checkpointed containers wait for the next process; `leave` has already ended its own.
            AgentEnd::Stopped { .. } | AgentEnd::ActorFailed { .. } | AgentEnd::Unregistered => {}
            _ => self.containerizer.tell_always(ShutDownAll),
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

fn log_oversubscribed(total: &Resources) {
    tracing::info!(total = %total.brief(), "oversubscribed resources sent to the master");
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
        if self.info.id.is_none() && !self.has_isolators {
            return self.register(ctx);
        }
        // Waits for the executors of an earlier process, so that the master gets a complete
        // inventory, and for the isolators: their recovery cleans up after all containers that it
        // does not list, new ones too.
        self.recovering = true;
        let recovered = self.containerizer.ask(WhenRecovered, Patience::WhileLinked);
        ctx.then(recovered, |this, recovered, ctx| {
            if let Err(error) = recovered {
                tracing::warn!(%error, "recovery of executors is incomplete");
            }
            this.recovering = false;
            this.register(ctx);
        });
    }
}

impl Process for Agent {
    /// A launch must not be lost between master and agent. When the mailbox is full the link is
    /// closed; the agent then reregisters, and both compare their state.
    const WHEN_FULL: WhenFull = WhenFull::CloseLink;

    fn accepts(handlers: &mut RemoteHandlers<Self>) {
        handlers.accept::<PingAgent>(&[Role::Master]);
        handlers.accept::<LeaderAnnounced>(&[Role::Master]);
        handlers.accept::<RunTasks>(&[Role::Master]);
        handlers.accept::<KillTask>(&[Role::Master]);
        handlers.accept::<AcknowledgeStatus>(&[Role::Master]);
        handlers.accept::<ApplyOperation>(&[Role::Master]);
        handlers.accept::<AcknowledgeOperation>(&[Role::Master]);
        handlers.accept::<FrameworkMessage>(&[Role::Master]);
        handlers.accept::<EndExecutor>(&[Role::Master]);
        handlers.accept::<DrainTasks>(&[Role::Master]);
        handlers.accept::<ShutDownFramework>(&[Role::Master]);
        handlers.accept::<FrameworkChanged>(&[Role::Master]);
        handlers.accept::<DisownTasks>(&[Role::Master]);
        handlers.accept::<ShutDownAgent>(&[Role::Master]);
        handlers.accept::<ReadSandbox>(&[Role::Master, Role::Operator]);
        handlers.accept::<ViewOversubscription>(&[Role::Operator]);
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
            master.heartbeat.pinged(ctx.clock().now());
            if !connected {
                self.lose_master("it regards this agent as disconnected", ctx);
            }
        }
        MessageResult(Pong)
    }
}

impl Handler<LeaderAnnounced> for Agent {
    type Result = ();
    fn handle(&mut self, leader: LeaderAnnounced, ctx: &mut Context<Self>) {
        self.follow_leader(leader, ctx);
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
            let end = AgentEnd::ActorFailed {
                name: exited.pid.name().to_owned(),
                reason: exited.reason.to_string(),
            };
            self.finish(end, ctx);
        }
    }
}

impl Handler<Estimated> for Agent {
    type Result = ();
    fn handle(&mut self, estimated: Estimated, ctx: &mut Context<Self>) {
        self.estimate = Some(EstimateView {
            at: ctx.clock().wall(),
            available: estimated.available.quantities(),
            total: estimated.total.quantities(),
        });
        self.oversubscribed = estimated.total;
        self.send_oversubscribed(ctx);
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
            metrics: AgentMetrics {
                registered: self.master.is_some(),
                uptime_secs: (ctx.clock().now() - self.started.0).as_secs_f64(),
                total: self.total.clone(),
                oversubscribed: self.oversubscribed.clone(),
                estimates_rejected: self.estimates_rejected,
                messages_refused: self.fence.rejected_count(),
                term: self.fence.newest_term(),
                updates_waiting: 0,
                disk: DiskMetrics::default(),
                measured: None,
            },
        })
    }
}
