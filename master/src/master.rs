//! Master: the one actor that agents, schedulers and operators speak to. It hears, lets the books decide, and carries out.
//!
//! Hears registration and task messages from agents ([`agents`]), calls from schedulers ([`schedulers`], [`standbys`]), questions from
//! operators ([`operators`], [`maintenance`], [`draining`]) and grants from the allocator on its own node. Remembers the [`Books`], who is being pinged, and
//! what the registry has been asked. It believes a message only if it comes from the node, and of a scheduler from the very
//! actor, that it speaks for. It never decides itself, never waits for anybody, and tells nobody what the registry has not
//! taken.

mod agents;
mod allocation;
mod collected;
mod draining;
mod duties;
mod fencing;
mod gating;
mod launching;
mod maintenance;
mod operators;
mod over_http;
mod perform;
mod pings;
mod revocation;
mod schedulers;
mod standbys;
mod turns;
mod verbs;

pub use operators::{EndFramework, NotEnded, ResetQuota, SetQuotas};
pub(crate) use operators::{ExplainTo, OperateAll};

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use module_api::AllocatorRef;
use module_api::allocator::{
    Granted, InverseGranted, LongTasksBounded, StillLacking, TasksWanted, VictimsNamed, Withdrawn,
};
use protocol::message::operation::{
    OperationUpdated, OperationsSettled, ResourcesReported, ResourcesReportedV1,
};
use protocol::message::operator::{
    CancelDrain, DeactivateAgent, DrainAgent, ExplainOffers, KillByOperator, MarkAgentGone,
    Operate, ReactivateAgent, StartMaintenance, StopMaintenance, UpdateMaintenanceSchedule,
    UpdateQuotas, UpdateRefused, UpdateWeights, ViewCluster, ViewMaintenanceSchedule,
    ViewMaintenanceStatus, ViewRoles,
};
use protocol::message::oversubscription::OversubscribedChanged;
use protocol::message::registration::{
    AgentResumed, AgentSuspended, RegisterAgent, RegisterAgentV4, ReregisterAgent,
    ReregisterAgentV3, TermSeen, UnregisterAgent,
};
use protocol::message::scheduler::{
    AcceptInverseOffers, AcceptOffers, AcknowledgeOperation, AcknowledgeStatus,
    DeclineInverseOffers, DeclineOffers, FrameworkMessage, KillTask, KillTaskV1,
    ReconcileOperations, ReconcileTasks, ReviveOffers, Subscribe, SuppressOffers, TearDown,
    UpdateFramework,
};
use protocol::message::standby::StandBy;
use protocol::message::state::{ChangeState, GetState};
use protocol::message::task::{ExecutorExited, TaskUpdated};
use protocol::{AgentId, FrameworkId, MasterId, MasterInfo, Uuid};
use runtime::delivery::{Incoming, Numbered};
use runtime::prelude::*;

use self::collected::Collected;
use crate::books::Books;
use crate::config::Config;
use crate::effects::{Effect, Effects};
use crate::error::StartError;
use crate::registry::{Metered, Registry, RegistryError, RegistryMeter, RegistryState};
use crate::tasks::Noted;
use crate::whitelist::AdmitHosts;

pub(crate) use over_http::{HeartbeatWritten, HttpCall, HttpReconcile, HttpUpdate, NotUpdated};

/// How long the master waits before it asks again a registry that said not now.
const REGISTRY_RETRY: Duration = Duration::from_secs(1);

/// What is known now? Answered with a snapshot, which costs the mailbox next to nothing.
#[derive(Clone, Copy, Debug)]
pub struct TakeSnapshot;

impl Message for TakeSnapshot {
    type Result = Arc<Books>;
}

/// What is known now? The same, heard ahead of the mailbox: who asks waits for the message that is being handled, and for none of those
/// that wait. It knows all that the master had answered or told anybody when it was asked, but perhaps not what the same asker has told it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Glance;

impl Message for Glance {
    type Result = Arc<Books>;
}

/// What is known now, and what was noted of tasks since this was asked last? For one who follows closely, until [`Unfollow`].
#[derive(Clone, Copy, Debug)]
pub struct Follow;

/// What who follows is answered.
#[derive(Clone, Debug)]
pub struct Followed {
    /// What is known.
    pub books: Arc<Books>,
    /// What was noted since, in its order, also of tasks that are forgotten already; none if that is not known: it was not asked before,
    /// or too long ago.
    pub noted: Option<Vec<Noted>>,
}

impl Message for Follow {
    type Result = Followed;
}

/// Has anything changed since this was known? Answered when something has. Of several who ask the last is answered.
#[derive(Clone, Debug)]
pub struct Watch(pub Arc<Books>);

impl Message for Watch {
    type Result = ();
}

/// Nobody follows any more.
#[derive(Clone, Copy, Debug)]
pub struct Unfollow;

impl Message for Unfollow {
    type Result = ();
}

/// Whether the master may act.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// It is reading the registry: whoever comes is told to come again.
    Recovering,
    /// It acts.
    Leading,
    /// It may not act any more.
    Deposed,
}

/// The master.
pub struct Master {
    books: Arc<Books>,
    config: Config,
    allocator: AllocatorRef,
    /// The allocator's books are about to begin anew.
    begins_anew: bool,
    registry: Box<dyn Registry>,
    phase: Phase,
    /// Whom to ping, and how they have answered.
    pings: pings::Pings,
    /// What waits for the end of the turn.
    collected: Collected,
    /// Empty, with the room of the last decision's effects.
    spare: Effects,
    /// Agents and schedulers of which the registry is asked whether they may come.
    admitting: BTreeSet<Pid>,
    /// Names and principals of frameworks that are being admitted with their first scheduler.
    founding: BTreeSet<(String, Option<String>)>,
    /// Agents of which the registry is told that they are unreachable or have left.
    leaving: BTreeSet<AgentId>,
    /// Frameworks of which the registry is told that they are over.
    removing: BTreeSet<FrameworkId>,
    /// The operators who wait for a framework to be over.
    ending: BTreeMap<FrameworkId, Vec<Promise<Result<(), NotEnded>>>>,
    /// What of each scheduler's calls has been handled.
    incoming: Incoming,
    /// Schedulers whose calls wait for their turn.
    waiting: BTreeSet<Pid>,
    /// When the turn of those that were told to wait comes, counted from the clock's beginning.
    places: BTreeMap<Pid, Duration>,
    /// What is being handled was numbered, and has had its turn.
    has_had_turn: bool,
    /// The timers of frameworks without a scheduler, at most one each.
    failovers: BTreeMap<FrameworkId, Errand>,
    /// A majority is being asked whether this master still leads, since somebody knows of a later leader.
    in_doubt: bool,
    /// Who waits for a change.
    watch: Option<Promise<()>>,
    /// The registry is asked to record quotas: the next ones are judged when it has.
    updating_quotas: bool,
    /// The registry is asked to record a change of maintenance: the next one is judged when it has.
    updating_maintenance: bool,
    /// The operators who wait for an agent to be gone for good.
    going: BTreeMap<AgentId, Vec<Promise<Result<(), UpdateRefused>>>>,
    /// The agents of which the registry is told that they are drained.
    drained: BTreeSet<AgentId>,
    /// The next look at the agents that are being drained.
    drain_look: Option<Errand>,
    /// The books of the last leader, as far as they are known here, until the registry has been read.
    before: Option<Arc<Books>>,
    /// Operations, and what is to be told after them, that wait for the registry.
    gating: gating::Gating,
    /// Launches that their agents have not confirmed yet.
    unconfirmed: launching::Unconfirmed,
}

/// A master that runs.
#[derive(Clone)]
pub struct Started {
    /// The master.
    pub master: Handle<Master>,
    /// Who it says it is.
    pub info: MasterInfo,
    /// What is measured of its registry.
    pub meter: RegistryMeter,
}

/// Starts the actor `master` on `node`. It answers at once, and leads as soon as it has read the registry. It ends when the
/// registry says that another master leads, or can no longer be relied upon: then whoever started it starts the process anew.
///
/// `term` is the one under which it leads its group. A master that is alone has term 0: nobody can depose it, and a registry of its own
/// knows no other.
pub fn start(
    node: &Node,
    config: Config,
    term: u64,
    allocator: AllocatorRef,
    registry: Box<dyn Registry>,
) -> Result<Started, StartError> {
    start_after(node, config, term, allocator, registry, None)
}

/// The same, of a master that follows another. `before` is what its mirror knows of the last leader's books: agents that have what it says
/// come back with a digest of it.
pub fn start_after(
    node: &Node,
    config: Config,
    term: u64,
    allocator: AllocatorRef,
    registry: Box<dyn Registry>,
    before: Option<Arc<Books>>,
) -> Result<Started, StartError> {
    config.check()?;
    let info = MasterInfo {
        id: MasterId::new(Uuid(node.fresh_uuid()).to_string())?,
        hostname: config.hostname.clone(),
        port: config.port,
        version: config.version.clone(),
        term,
        address: config.address,
        domain: config.domain.clone().map(Box::new),
    };
    let books = Books::new(info.clone(), &config, node.clock().wall());
    let (registry, meter) = Metered::new(registry, node.clock().clone());
    let master = Master {
        books: Arc::new(books),
        config,
        allocator,
        begins_anew: false,
        registry: Box::new(registry),
        phase: Phase::Recovering,
        pings: Default::default(),
        collected: Collected::default(),
        spare: Effects::new(),
        admitting: BTreeSet::new(),
        founding: BTreeSet::new(),
        leaving: BTreeSet::new(),
        removing: BTreeSet::new(),
        ending: BTreeMap::new(),
        incoming: Incoming::default(),
        waiting: BTreeSet::new(),
        places: BTreeMap::new(),
        has_had_turn: false,
        failovers: BTreeMap::new(),
        in_doubt: false,
        watch: None,
        updating_quotas: false,
        updating_maintenance: false,
        going: BTreeMap::new(),
        drained: BTreeSet::new(),
        drain_look: None,
        before,
        gating: Default::default(),
        unconfirmed: Default::default(),
    };
    let master = node.spawn("master", master)?;
    Ok(Started {
        master,
        info,
        meter,
    })
}

impl Actor for Master {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        self.read_registry(ctx);
    }
}

impl Process for Master {
    // Five thousand tasks of one accept come back as fifteen thousand updates and as many acknowledgements.
    const MAILBOX: u32 = 262_144;

    fn hears(ears: &mut Ears<Self>) {
        ears.hear::<RegisterAgent>(&[Role::Agent]);
        ears.hear_older::<RegisterAgentV4, RegisterAgent>(&[Role::Agent]);
        ears.hear::<ReregisterAgent>(&[Role::Agent]);
        ears.hear_older::<ReregisterAgentV3, ReregisterAgent>(&[Role::Agent]);
        ears.hear::<UnregisterAgent>(&[Role::Agent]);
        ears.hear::<AgentSuspended>(&[Role::Agent]);
        ears.hear::<AgentResumed>(&[Role::Agent]);
        ears.hear::<TermSeen>(&[Role::Agent, Role::Framework]);
        ears.hear::<TaskUpdated>(&[Role::Agent]);
        ears.hear::<OperationUpdated>(&[Role::Agent]);
        ears.hear::<OperationsSettled>(&[Role::Agent]);
        ears.hear::<ResourcesReported>(&[Role::Agent]);
        ears.hear_older::<ResourcesReportedV1, ResourcesReported>(&[Role::Agent]);
        ears.hear::<ExecutorExited>(&[Role::Agent]);
        ears.hear::<OversubscribedChanged>(&[Role::Agent]);
        ears.hear::<FrameworkMessage>(&[Role::Agent, Role::Framework]);
        ears.hear::<Subscribe>(&[Role::Framework]);
        ears.hear::<UpdateFramework>(&[Role::Framework]);
        ears.hear::<StandBy>(&[Role::Framework]);
        ears.hear::<GetState>(&[Role::Framework]);
        ears.hear::<ChangeState>(&[Role::Framework]);
        ears.hear::<Numbered>(&[Role::Framework]);
        ears.hear::<TearDown>(&[Role::Framework]);
        ears.hear::<AcceptOffers>(&[Role::Framework]);
        ears.hear::<DeclineOffers>(&[Role::Framework]);
        ears.hear::<AcceptInverseOffers>(&[Role::Framework]);
        ears.hear::<DeclineInverseOffers>(&[Role::Framework]);
        ears.hear::<ReviveOffers>(&[Role::Framework]);
        ears.hear::<SuppressOffers>(&[Role::Framework]);
        ears.hear::<AcknowledgeStatus>(&[Role::Framework]);
        ears.hear::<ReconcileTasks>(&[Role::Framework]);
        ears.hear::<KillTask>(&[Role::Framework]);
        ears.hear_older::<KillTaskV1, KillTask>(&[Role::Framework]);
        ears.hear::<AcknowledgeOperation>(&[Role::Framework]);
        ears.hear::<ReconcileOperations>(&[Role::Framework]);
        ears.hear::<Operate>(&[Role::Operator]);
        ears.hear::<ViewCluster>(&[Role::Operator]);
        ears.hear::<ViewRoles>(&[Role::Operator]);
        ears.hear::<ExplainOffers>(&[Role::Operator]);
        ears.hear::<UpdateQuotas>(&[Role::Operator]);
        ears.hear::<UpdateWeights>(&[Role::Operator]);
        ears.hear::<ViewMaintenanceSchedule>(&[Role::Operator]);
        ears.hear::<ViewMaintenanceStatus>(&[Role::Operator]);
        ears.hear::<UpdateMaintenanceSchedule>(&[Role::Operator]);
        ears.hear::<StartMaintenance>(&[Role::Operator]);
        ears.hear::<StopMaintenance>(&[Role::Operator]);
        ears.hear::<DrainAgent>(&[Role::Operator]);
        ears.hear::<DeactivateAgent>(&[Role::Operator]);
        ears.hear::<ReactivateAgent>(&[Role::Operator]);
        ears.hear::<CancelDrain>(&[Role::Operator]);
        ears.hear::<MarkAgentGone>(&[Role::Operator]);
        ears.hear::<KillByOperator>(&[Role::Operator]);
        ears.hear_ahead::<Glance>();
        ears.hear_ahead::<ExplainTo>();
        ears.hear_local::<Granted>();
        ears.hear_local::<Withdrawn>();
        ears.hear_local::<InverseGranted>();
        ears.hear_local::<TasksWanted>();
        ears.hear_local::<VictimsNamed>();
        ears.hear_local::<StillLacking>();
        ears.hear_local::<LongTasksBounded>();
    }
}

impl Handler<TakeSnapshot> for Master {
    type Result = MessageResult<TakeSnapshot>;

    fn handle(&mut self, _: TakeSnapshot, _: &mut Context<Self>) -> Self::Result {
        MessageResult(self.books.clone())
    }
}

impl Handler<Glance> for Master {
    type Result = MessageResult<Glance>;

    fn handle(&mut self, _: Glance, _: &mut Context<Self>) -> Self::Result {
        MessageResult(self.books.clone())
    }
}

impl Handler<Follow> for Master {
    type Result = MessageResult<Follow>;

    fn handle(&mut self, _: Follow, _: &mut Context<Self>) -> Self::Result {
        let noted = match self.books.tasks.noted() {
            // Books that have not changed stay where they are.
            Some([]) => Some(Vec::new()),
            _ => Arc::make_mut(&mut self.books).tasks.take_noted(),
        };
        let books = self.books.clone();
        MessageResult(Followed { books, noted })
    }
}

impl Handler<Watch> for Master {
    type Result = Reply<()>;

    fn handle(&mut self, Watch(known): Watch, _: &mut Context<Self>) -> Self::Result {
        let (promise, reply) = promise();
        self.watch = Some(promise);
        if !Arc::ptr_eq(&known, &self.books) {
            self.changed();
        }
        reply
    }
}

impl Handler<Unfollow> for Master {
    type Result = ();

    fn handle(&mut self, _: Unfollow, _: &mut Context<Self>) {
        Arc::make_mut(&mut self.books).tasks.unfollow();
    }
}

impl Handler<Granted> for Master {
    type Result = ();

    fn handle(&mut self, granted: Granted, ctx: &mut Context<Self>) {
        self.change(ctx, |books, now, out| books.granted(granted, now, out));
    }
}

impl Handler<Withdrawn> for Master {
    type Result = ();

    fn handle(&mut self, withdrawn: Withdrawn, ctx: &mut Context<Self>) {
        self.change(ctx, |books, _, out| books.withdrawn(&withdrawn, out));
    }
}

impl Handler<AdmitHosts> for Master {
    type Result = ();

    fn handle(&mut self, AdmitHosts(hosts): AdmitHosts, ctx: &mut Context<Self>) {
        self.config.whitelist = hosts;
        if self.phase == Phase::Leading {
            self.tell_whitelist(ctx);
        }
    }
}

impl Handler<Exited> for Master {
    type Result = ();

    fn handle(&mut self, exited: Exited, ctx: &mut Context<Self>) {
        let pid = exited.pid;
        if self.is_allocator(&pid) {
            if ctx.node().is_shutting_down() {
                return; // All end, in whatever order.
            }
            tracing::error!(allocator = %pid, reason = ?exited.reason, "the allocator fell; it is told anew what there is");
            self.change(ctx, |books, _, out| books.rescind_all(out));
            self.begin_allocation_later(ctx);
            return;
        }
        tracing::info!(%pid, reason = ?exited.reason, "a link has ended");
        self.change(ctx, |books, _, out| {
            books.agent_disconnected(&pid, out);
            books.scheduler_gone(&pid, out);
        });
        self.end_launches(&pid, &exited.reason, ctx);
    }
}

impl Master {
    /// Lets the books decide, and carries out what they want done.
    fn change<T>(
        &mut self,
        ctx: &mut Context<Self>,
        decide: impl FnOnce(&mut Books, runtime::Timestamp, &mut Effects) -> T,
    ) -> T {
        let mut effects = std::mem::take(&mut self.spare);
        let now = ctx.clock().wall();
        let books = Arc::make_mut(&mut self.books);
        books.offers.hear_time(now);
        let decided = decide(books, now, &mut effects);
        books.renew_budgets(&mut effects);
        self.perform(effects, ctx);
        self.changed();
        decided
    }

    /// Whoever watches hears that something has changed.
    fn changed(&mut self) {
        if let Some(watch) = self.watch.take() {
            watch.answer(());
        }
    }

    fn read_registry(&mut self, ctx: &mut Context<Self>) {
        let read = self.registry.read();
        ctx.then(read, |master, read, ctx| match read {
            Ok(state) => master.lead(state, ctx),
            Err(RegistryError::NotNow { reason }) => {
                tracing::warn!(%reason, "the registry cannot be read yet");
                ctx.after(REGISTRY_RETRY, Self::read_registry);
            }
            Err(error) => master.step_down(&error, ctx),
        });
    }

    fn lead(&mut self, state: RegistryState, ctx: &mut Context<Self>) {
        tracing::info!(
            agents = state.agents.len(),
            frameworks = state.frameworks.len(),
            "leading"
        );
        self.phase = Phase::Leading;
        let mut effects = Effects::new();
        let now = ctx.clock().wall();
        let books = Arc::make_mut(&mut self.books);
        books.recover(state, now, &mut effects);
        if let Some(before) = self.before.take() {
            books.expect(&before);
        }
        // The allocator hears all that there is when it begins, which is now: before it nobody knew the quotas.
        effects.retain(|effect| !matches!(effect, Effect::ToAllocator(_)));
        self.begin_allocation(ctx);
        self.perform(effects, ctx);
        self.leave_down_machines(ctx);
        self.look_at_draining(ctx);
        self.changed();
    }

    /// The master may act no more: whoever is linked to it hears that it has ended and looks for the next one.
    fn step_down(&mut self, error: &RegistryError, ctx: &mut Context<Self>) {
        if self.phase != Phase::Deposed {
            tracing::error!(%error, term = self.books.master.term, "this master ends");
            self.phase = Phase::Deposed;
            // What waits in its mailbox was said to a leader.
            ctx.node().stop_now(ctx.pid());
        }
    }

    /// Why nobody can be let in just now.
    fn not_leading(&self) -> Option<String> {
        match self.phase {
            Phase::Leading => None,
            Phase::Recovering => Some("the master is reading its registry".to_owned()),
            Phase::Deposed => Some("this master does not lead any more".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests;
