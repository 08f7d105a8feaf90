//! Master: the actor that agents, schedulers and operators talk to. Receives messages, lets
//! [`MasterState`] decide, and carries out the effects.
//!
//! Handles registration and task messages from agents ([`agents`]), scheduler calls
//! ([`schedulers`]), operator requests ([`operators`], and for single agents and machines
//! [`agents`]) and grants from the allocator on its own node (`allocation`). Owns the
//! [`MasterState`], the ping timers and the pending registry requests. A message is valid only if
//! it comes from the node it speaks for, and for a scheduler from that very actor. The master never
//! blocks, and publishes nothing before the registry has recorded it.
//!
//! | module | contents |
//! |---|---|
//! | `agents` | messages from agents, pings, and operators' maintenance and drain requests |
//! | `allocation` | the master's side of the allocator |
//! | `commits` | sends an operation to its agent once the registry has recorded it |
//! | `registry_changes` | changes that the registry must record before they are published |
//! | `end_of_turn` | the work at the end of each turn |
//! | `error` | errors at the start of a master |
//! | `fencing` | the reaction to a peer that has seen a leader of a later term |
//! | `launching` | launches on their way to agents |
//! | `operators` | requests from operators |
//! | `perform` | carries out the effects of decisions, in order |
//! | `revocation` | messages from the allocator about revocation and long tasks |
//! | `schedulers` | messages from schedulers |
//! | `turns` | the rate limits of native drivers |
//! | `verbs` | operators' commands over a link, under the rate limits |

mod agents;
mod allocation;
mod commits;
mod end_of_turn;
mod error;
mod fencing;
mod launching;
mod operators;
mod perform;
mod registry_changes;
mod revocation;
mod schedulers;
mod turns;
mod verbs;

pub use error::StartError;
pub use operators::{EndFramework, NotEnded, ResetQuota, SetQuotas};
pub(crate) use operators::{ExplainTo, OperateAll};

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use module_api::AllocatorRef;
use module_api::allocator::{
    Granted, InverseGranted, LongTasksBounded, StillLacking, TasksWanted, VictimsNamed, Withdrawn,
};
use protocol::message::operation::{OperationUpdated, OperationsSettled, ResourcesReported};
use protocol::message::operator::{
    CancelDrain, DeactivateAgent, DrainAgent, ExplainOffers, KillByOperator, MarkAgentGone,
    Operate, ReactivateAgent, StartMaintenance, StopMaintenance, UpdateMaintenanceSchedule,
    UpdateQuotas, UpdateRefused, UpdateWeights, ViewCluster, ViewMaintenanceSchedule,
    ViewMaintenanceStatus, ViewRoles,
};
use protocol::message::oversubscription::OversubscribedChanged;
use protocol::message::registration::{
    AgentResumed, AgentSuspended, RegisterAgent, ReregisterAgent, TermSeen, UnregisterAgent,
};
use protocol::message::scheduler::{
    AcceptInverseOffers, AcceptOffers, AcknowledgeOperation, AcknowledgeStatus,
    DeclineInverseOffers, DeclineOffers, FrameworkMessage, KillTask, ReconcileOperations,
    ReconcileTasks, ReviveOffers, Subscribe, SuppressOffers, TearDown, UpdateFramework,
};
use protocol::message::standby::StandBy;
use protocol::message::state::{ChangeState, GetState};
use protocol::message::task::{ExecutorExited, TaskUpdated};
use protocol::{AgentId, FrameworkId, MasterId, MasterInfo, Uuid};
use runtime::delivery::{DedupReceiver, Sequenced};
use runtime::prelude::*;

use self::end_of_turn::EndOfTurn;
use crate::agents::whitelist::AdmitHosts;
use crate::api::RECOVERING;
use crate::config::Config;
use crate::registry::{Metered, Registry, RegistryError, RegistryMeter, RegistryState};
use crate::state::MasterState;
use crate::state::effects::{Effect, Effects};
use crate::tasks::TaskNote;

pub(crate) use schedulers::over_http::{
    HeartbeatWritten, HttpCall, HttpReconcile, HttpUpdate, NotUpdated,
};

/// Pause before a registry that answered "not now" is asked again.
const REGISTRY_RETRY: Duration = Duration::from_secs(1);

/// Requests a snapshot of the current state. Snapshots are cheap: the state is shared.
#[derive(Clone, Copy, Debug)]
pub struct TakeSnapshot;

impl Message for TakeSnapshot {
    type Result = Arc<MasterState>;
}

/// Returns the current snapshot, bypassing the mailbox: waits only for the message being handled.
/// Includes every effect visible before the request; may miss unacknowledged messages from the same
/// caller.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SnapshotNow;

impl Message for SnapshotNow {
    type Result = Arc<MasterState>;
}

/// Requests a snapshot and the task notes since the previous request. For one subscriber that
/// follows closely, until [`Unfollow`].
#[derive(Clone, Copy, Debug)]
pub struct Follow;

/// Answer to [`Follow`].
#[derive(Clone, Debug)]
pub struct Followed {
    /// Snapshot of the state.
    pub state: Arc<MasterState>,
    /// Task notes since the previous request, in order, including forgotten tasks. `None` if they
    /// are unknown: this was the first request, or the previous one is too old.
    pub noted: Option<Vec<TaskNote>>,
}

impl Message for Follow {
    type Result = Followed;
}

/// Answered when the state differs from the given snapshot. Of several callers only the last is
/// answered.
#[derive(Clone, Debug)]
pub struct Watch(pub Arc<MasterState>);

impl Message for Watch {
    type Result = ();
}

/// Stops the task notes that [`Follow`] started.
#[derive(Clone, Copy, Debug)]
pub struct Unfollow;

impl Message for Unfollow {
    type Result = ();
}

/// Whether the master may act.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Reading the registry. Registrations are refused for now.
    Recovering,
    Leading,
    /// No longer allowed to act.
    Deposed,
}

/// The master.
pub struct Master {
    state: Arc<MasterState>,
    config: Config,
    allocator: AllocatorRef,
    /// The allocator is about to be given its whole state again.
    allocator_restarting: bool,
    registry: Box<dyn Registry>,
    phase: Phase,
    /// Agents to ping, and their answers.
    pings: agents::pings::Pings,
    /// Work postponed to the end of the turn.
    end_of_turn: EndOfTurn,
    /// An empty vector that keeps the capacity of the last decision's effects.
    spare: Effects,
    /// Agents and schedulers, while the registry records their admission.
    admitting: BTreeSet<Pid>,
    /// Names and principals of frameworks that are being admitted with their first scheduler.
    admitting_names: BTreeSet<(String, Option<String>)>,
    /// Agents, while the registry records their loss or departure.
    leaving: BTreeSet<AgentId>,
    /// Frameworks, while the registry records their removal.
    removing: BTreeSet<FrameworkId>,
    /// Operators waiting for the end of a framework.
    ending: BTreeMap<FrameworkId, Vec<Promise<Result<(), NotEnded>>>>,
    /// Progress of each scheduler's numbered calls.
    incoming: DedupReceiver,
    /// Schedulers with calls that wait for their turn.
    waiting: BTreeSet<Pid>,
    /// The time of the turn of each waiting caller, on the node's clock.
    turn_times: BTreeMap<Pid, Duration>,
    /// The message being handled was numbered, and has already waited for its turn.
    has_had_turn: bool,
    /// Timers of frameworks without a scheduler, at most one each.
    failovers: BTreeMap<FrameworkId, TimerHandle>,
    /// A majority is being asked whether this master still leads, because a peer reported a later
    /// leader.
    verifying_leadership: bool,
    /// The caller that waits for a change.
    watch: Option<Promise<()>>,
    /// The registry is recording quotas; further changes are validated after that.
    updating_quotas: bool,
    /// The registry is recording a maintenance change; further ones are validated after that.
    updating_maintenance: bool,
    /// Operators waiting until an agent is gone for good.
    marking_gone: BTreeMap<AgentId, Vec<Promise<Result<(), UpdateRefused>>>>,
    /// Agents, while the registry records the end of their drain.
    drained: BTreeSet<AgentId>,
    /// The next check of the draining agents.
    drain_look: Option<TimerHandle>,
    /// The previous leader's state as far as it is mirrored here, until the registry has been read.
    before: Option<Arc<MasterState>>,
    /// Operations that wait for the registry, and the messages queued behind them.
    commits: commits::PendingCommits,
    /// Launches that their agents have not confirmed yet.
    unconfirmed: launching::Unconfirmed,
}

/// A running master.
#[derive(Clone)]
pub struct Started {
    /// Handle of the actor.
    pub master: Handle<Master>,
    /// Its address and id.
    pub info: MasterInfo,
    /// Metrics of its registry.
    pub meter: RegistryMeter,
}

/// Starts the actor `master` on `node` and returns at once. The master leads as soon as it has read
/// the registry. It ends when another master leads or the registry is no longer reliable; the
/// caller must then restart the process.
///
/// `term` is the term of its leadership; 0 in tests with a registry without terms.
pub fn start(
    node: &Node,
    config: Config,
    term: u64,
    allocator: AllocatorRef,
    registry: Box<dyn Registry>,
) -> Result<Started, StartError> {
    start_after(node, config, term, allocator, registry, None)
}

/// Like [`start`], for a master that followed another one. `before` is the mirror of the previous
/// leader's state: agents that match it register with a digest.
pub fn start_after(
    node: &Node,
    config: Config,
    term: u64,
    allocator: AllocatorRef,
    registry: Box<dyn Registry>,
    before: Option<Arc<MasterState>>,
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
    let state = MasterState::new(info.clone(), &config, node.clock().wall());
    let (registry, meter) = Metered::new(registry, node.clock().clone());
    let master = Master {
        state: Arc::new(state),
        config,
        allocator,
        allocator_restarting: false,
        registry: Box::new(registry),
        phase: Phase::Recovering,
        pings: Default::default(),
        end_of_turn: EndOfTurn::default(),
        spare: Effects::new(),
        admitting: BTreeSet::new(),
        admitting_names: BTreeSet::new(),
        leaving: BTreeSet::new(),
        removing: BTreeSet::new(),
        ending: BTreeMap::new(),
        incoming: DedupReceiver::default(),
        waiting: BTreeSet::new(),
        turn_times: BTreeMap::new(),
        has_had_turn: false,
        failovers: BTreeMap::new(),
        verifying_leadership: false,
        watch: None,
        updating_quotas: false,
        updating_maintenance: false,
        marking_gone: BTreeMap::new(),
        drained: BTreeSet::new(),
        drain_look: None,
        before,
        commits: Default::default(),
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
    // Five thousand tasks of one accept return as 15,000 updates and as many acknowledgements.
    const MAILBOX: u32 = 262_144;

    fn accepts(handlers: &mut RemoteHandlers<Self>) {
        handlers.accept::<RegisterAgent>(&[Role::Agent]);
        handlers.accept::<ReregisterAgent>(&[Role::Agent]);
        handlers.accept::<UnregisterAgent>(&[Role::Agent]);
        handlers.accept::<AgentSuspended>(&[Role::Agent]);
        handlers.accept::<AgentResumed>(&[Role::Agent]);
        handlers.accept::<TermSeen>(&[Role::Agent, Role::Framework]);
        handlers.accept::<TaskUpdated>(&[Role::Agent]);
        handlers.accept::<OperationUpdated>(&[Role::Agent]);
        handlers.accept::<OperationsSettled>(&[Role::Agent]);
        handlers.accept::<ResourcesReported>(&[Role::Agent]);
        handlers.accept::<ExecutorExited>(&[Role::Agent]);
        handlers.accept::<OversubscribedChanged>(&[Role::Agent]);
        handlers.accept::<FrameworkMessage>(&[Role::Agent, Role::Framework]);
        handlers.accept::<Subscribe>(&[Role::Framework]);
        handlers.accept::<UpdateFramework>(&[Role::Framework]);
        handlers.accept::<StandBy>(&[Role::Framework]);
        handlers.accept::<GetState>(&[Role::Framework]);
        handlers.accept::<ChangeState>(&[Role::Framework]);
        handlers.accept::<Sequenced>(&[Role::Framework]);
        handlers.accept::<TearDown>(&[Role::Framework]);
        handlers.accept::<AcceptOffers>(&[Role::Framework]);
        handlers.accept::<DeclineOffers>(&[Role::Framework]);
        handlers.accept::<AcceptInverseOffers>(&[Role::Framework]);
        handlers.accept::<DeclineInverseOffers>(&[Role::Framework]);
        handlers.accept::<ReviveOffers>(&[Role::Framework]);
        handlers.accept::<SuppressOffers>(&[Role::Framework]);
        handlers.accept::<AcknowledgeStatus>(&[Role::Framework]);
        handlers.accept::<ReconcileTasks>(&[Role::Framework]);
        handlers.accept::<KillTask>(&[Role::Framework]);
        handlers.accept::<AcknowledgeOperation>(&[Role::Framework]);
        handlers.accept::<ReconcileOperations>(&[Role::Framework]);
        handlers.accept::<Operate>(&[Role::Operator]);
        handlers.accept::<ViewCluster>(&[Role::Operator]);
        handlers.accept::<ViewRoles>(&[Role::Operator]);
        handlers.accept::<ExplainOffers>(&[Role::Operator]);
        handlers.accept::<UpdateQuotas>(&[Role::Operator]);
        handlers.accept::<UpdateWeights>(&[Role::Operator]);
        handlers.accept::<ViewMaintenanceSchedule>(&[Role::Operator]);
        handlers.accept::<ViewMaintenanceStatus>(&[Role::Operator]);
        handlers.accept::<UpdateMaintenanceSchedule>(&[Role::Operator]);
        handlers.accept::<StartMaintenance>(&[Role::Operator]);
        handlers.accept::<StopMaintenance>(&[Role::Operator]);
        handlers.accept::<DrainAgent>(&[Role::Operator]);
        handlers.accept::<DeactivateAgent>(&[Role::Operator]);
        handlers.accept::<ReactivateAgent>(&[Role::Operator]);
        handlers.accept::<CancelDrain>(&[Role::Operator]);
        handlers.accept::<MarkAgentGone>(&[Role::Operator]);
        handlers.accept::<KillByOperator>(&[Role::Operator]);
        handlers.accept_urgent::<SnapshotNow>();
        handlers.accept_urgent::<ExplainTo>();
        handlers.accept_local::<Granted>();
        handlers.accept_local::<Withdrawn>();
        handlers.accept_local::<InverseGranted>();
        handlers.accept_local::<TasksWanted>();
        handlers.accept_local::<VictimsNamed>();
        handlers.accept_local::<StillLacking>();
        handlers.accept_local::<LongTasksBounded>();
    }
}

impl Handler<TakeSnapshot> for Master {
    type Result = MessageResult<TakeSnapshot>;

    fn handle(&mut self, _: TakeSnapshot, _: &mut Context<Self>) -> Self::Result {
        MessageResult(self.state.clone())
    }
}

impl Handler<SnapshotNow> for Master {
    type Result = MessageResult<SnapshotNow>;

    fn handle(&mut self, _: SnapshotNow, _: &mut Context<Self>) -> Self::Result {
        MessageResult(self.state.clone())
    }
}

impl Handler<Follow> for Master {
    type Result = MessageResult<Follow>;

    fn handle(&mut self, _: Follow, _: &mut Context<Self>) -> Self::Result {
        let noted = match self.state.tasks.noted() {
            // Avoids copying a state that is unchanged.
            Some([]) => Some(Vec::new()),
            _ => Arc::make_mut(&mut self.state).tasks.take_noted(),
        };
        let state = self.state.clone();
        MessageResult(Followed { state, noted })
    }
}

impl Handler<Watch> for Master {
    type Result = Reply<()>;

    fn handle(&mut self, Watch(known): Watch, _: &mut Context<Self>) -> Self::Result {
        let (promise, reply) = promise();
        self.watch = Some(promise);
        if !Arc::ptr_eq(&known, &self.state) {
            self.changed();
        }
        reply
    }
}

impl Handler<Unfollow> for Master {
    type Result = ();

    fn handle(&mut self, _: Unfollow, _: &mut Context<Self>) {
        Arc::make_mut(&mut self.state).tasks.unfollow();
    }
}

impl Handler<Granted> for Master {
    type Result = ();

    fn handle(&mut self, granted: Granted, ctx: &mut Context<Self>) {
        self.change(ctx, |state, now, out| state.granted(granted, now, out));
    }
}

impl Handler<Withdrawn> for Master {
    type Result = ();

    fn handle(&mut self, withdrawn: Withdrawn, ctx: &mut Context<Self>) {
        self.change(ctx, |state, _, out| state.withdrawn(&withdrawn, out));
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
                return; // The whole node is stopping.
            }
            tracing::error!(allocator = %pid, reason = ?exited.reason, "allocator ended; sending it the whole state again");
            self.change(ctx, |state, _, out| state.rescind_all(out));
            self.begin_allocation_later(ctx);
            return;
        }
        tracing::info!(%pid, reason = ?exited.reason, "link ended");
        self.change(ctx, |state, _, out| {
            state.agent_disconnected(&pid, out);
            state.scheduler_gone(&pid, out);
        });
        self.end_launches(&pid, &exited.reason, ctx);
    }
}

impl Master {
    /// Runs a decision and carries out its effects.
    fn change<T>(
        &mut self,
        ctx: &mut Context<Self>,
        decide: impl FnOnce(&mut MasterState, runtime::Timestamp, &mut Effects) -> T,
    ) -> T {
        let mut effects = std::mem::take(&mut self.spare);
        let now = ctx.clock().wall();
        let state = Arc::make_mut(&mut self.state);
        state.offers.set_time(now);
        let decided = decide(state, now, &mut effects);
        state.renew_budgets(&mut effects);
        self.perform(effects, ctx);
        self.changed();
        decided
    }

    /// Answers the caller that waits for a change.
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
                tracing::warn!(%reason, "cannot read the registry yet");
                ctx.after(REGISTRY_RETRY, Self::read_registry);
            }
            Err(error) => master.step_down(&error, ctx),
        });
    }

    fn lead(&mut self, stored: RegistryState, ctx: &mut Context<Self>) {
        tracing::info!(
            agents = stored.agents.len(),
            frameworks = stored.frameworks.len(),
            "leading"
        );
        self.phase = Phase::Leading;
        let mut effects = Effects::new();
        let now = ctx.clock().wall();
        let state = Arc::make_mut(&mut self.state);
        state.recover(stored, now, &mut effects);
        if let Some(before) = self.before.take() {
            state.expect(&before);
        }
        // The allocator is sent the whole state below, with the quotas.
        effects.retain(|effect| !matches!(effect, Effect::ToAllocator(_)));
        self.begin_allocation(ctx);
        self.perform(effects, ctx);
        self.remove_agents_on_down_machines(ctx);
        self.check_draining(ctx);
        self.changed();
    }

    /// Ends this master. Linked peers see its end and look for the next master.
    fn step_down(&mut self, error: &RegistryError, ctx: &mut Context<Self>) {
        if self.phase != Phase::Deposed {
            tracing::error!(%error, term = self.state.master.term, "this master ends");
            self.phase = Phase::Deposed;
            // Messages in the mailbox were meant for a leader.
            ctx.node().stop_now(ctx.pid());
        }
    }

    /// Why registrations are refused at present, if they are.
    fn not_leading(&self) -> Option<String> {
        match self.phase {
            Phase::Leading => None,
            Phase::Recovering => Some(RECOVERING.to_owned()),
            Phase::Deposed => Some("this master does not lead any more".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests;
