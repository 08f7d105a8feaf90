//! Leadership supervisor: runs a master on this node exactly while this node's member leads the
//! group.
//!
//! Handles leadership changes of its member, the end of the master, and requests of drivers, agents
//! and commands for the leader's address. Owns the running master and the waiting requests
//! (`waiters`). At most one master runs: the next one starts after the last has ended. On the other
//! nodes there is no actor `master`; `protocol::discovery` asks this actor instead. It makes none
//! of the master's decisions and sends nothing to other supervisors. [`mirror`] copies the leader's
//! state to the followers.

pub mod mirror;
mod waiters;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use consensus::member::{Leadership, MemberHandle};
use futures_util::StreamExt;
use futures_util::stream;
use module_api::AllocatorRef;
use protocol::message::registration::{AwaitLeader, LeaderAnnounced};
use runtime::prelude::*;
use runtime::{Reply, Role, SpawnError, promise};

use crate::agents::whitelist::AdmitHosts;
use crate::api::Hits;
use crate::config::Config;
use crate::leadership::mirror::{Mirrored, STALENESS_MAX};
use crate::master::StartError;
use crate::master::{self, Master};
use crate::registry::{Registry, RegistryMachine, RegistryMeter, ReplicatedRegistry};

use self::waiters::LeaderWaiters;

/// Pause before a master that ended while its member leads is replaced.
const RESTART_PAUSE: Duration = Duration::from_millis(200);

/// Agents that are notified of a new leader at the same time: as many as it can shake hands with.
/// With answers after 100 ms, 64 at a time gave 640 a second.
const ANNOUNCED_AT_ONCE: usize = 256;
/// Time limit to find one of them.
const ANNOUNCE_PATIENCE: Duration = Duration::from_secs(5);
/// Pauses before the agents that were not found are notified again. Without that they wait for the
/// end of their link to the old master, half a minute.
const ANNOUNCE_PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(4)];

/// The leadership as pages see it: the local master, the leader, and the mirror of the leader's
/// state.
#[derive(Clone, Default)]
pub struct LocalLeader(Arc<Mutex<LocalLeaderState>>);

#[derive(Default)]
struct LocalLeaderState {
    master: Option<Handle<Master>>,
    leader: Option<String>,
    term: u64,
    deposed: u64,
    mirrored: Option<Arc<Mirrored>>,
    meter: RegistryMeter,
    hits: Hits,
    member: Option<MemberHandle<RegistryMachine>>,
}

impl LocalLeader {
    /// For a master that was started without a member, as in tests and measurements.
    pub fn of(master: &Handle<Master>) -> Self {
        let local = Self::default();
        local.change(|inner| inner.master = Some(master.clone()));
        local
    }

    /// For a node without a master; another node leads, if any.
    #[cfg(test)]
    pub(crate) fn elsewhere(leader: Option<&str>) -> Self {
        let local = Self::default();
        local.change(|inner| inner.leader = leader.map(str::to_owned));
        local
    }

    /// Metrics of the registry of the current or last local master.
    pub(crate) fn meter(&self) -> RegistryMeter {
        self.look(|inner| inner.meter.clone())
    }

    /// Number of requests that were served a page rendered for another request.
    pub(crate) fn hits(&self) -> Hits {
        self.look(|inner| inner.hits.clone())
    }

    /// This node's member of the group; `None` for a master that was started without one.
    pub(crate) fn member(&self) -> Option<MemberHandle<RegistryMachine>> {
        self.look(|inner| inner.member.clone())
    }

    /// The local master.
    pub fn master(&self) -> Option<Handle<Master>> {
        self.look(|inner| inner.master.clone())
    }

    /// The leader's `host:port`, if known.
    pub fn leader(&self) -> Option<String> {
        self.look(|inner| inner.leader.clone())
    }

    /// The newest term that this node's member knows; 0 before the first.
    pub fn term(&self) -> u64 {
        self.look(|inner| inner.term)
    }

    /// How often a local master was deposed.
    pub fn deposed(&self) -> u64 {
        self.look(|inner| inner.deposed)
    }

    /// The current leader and its term, if there is one.
    fn announcement(&self) -> Option<LeaderAnnounced> {
        self.look(|inner| {
            let address = inner.leader.clone()?;
            let term = inner.term;
            Some(LeaderAnnounced { address, term })
        })
    }

    /// The mirror of the leader's state.
    pub fn mirrored(&self) -> Option<Arc<Mirrored>> {
        self.look(|inner| inner.mirrored.clone())
    }

    /// Publishes a newer mirror.
    pub(crate) fn show(&self, mirrored: Arc<Mirrored>) {
        // Drops a large state outside the lock.
        let mut mirrored = Some(mirrored);
        self.change(|inner| std::mem::swap(&mut inner.mirrored, &mut mirrored));
    }

    fn look<T>(&self, look: impl FnOnce(&LocalLeaderState) -> T) -> T {
        look(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn change(&self, change: impl FnOnce(&mut LocalLeaderState)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// A leadership change of the member.
struct LeadershipChanged(Leadership);

impl Message for LeadershipChanged {
    type Result = ();
}

/// Makes a master's registry on this node's member.
pub type OverMember = Box<dyn Fn(MemberHandle<RegistryMachine>) -> Box<dyn Registry> + Send>;

/// The state of the local master.
enum MasterSlot {
    Empty,
    Taken(Handle<Master>),
    /// Stopping; its end is awaited.
    Leaving,
}

/// The actor.
pub struct LeadershipSupervisor {
    member: MemberHandle<RegistryMachine>,
    registry: OverMember,
    config: Config,
    allocator: AllocatorRef,
    local: LocalLeader,
    slot: MasterSlot,
    leads: bool,
    term: u64,
    /// Requests for a leader of a later term than the caller knows.
    waiting: LeaderWaiters,
}

/// Starts the actors `office` and `mirror` on `node`. The supervisor ends with its member; the
/// caller must then restart the process.
pub fn open(
    node: &Node,
    config: Config,
    allocator: AllocatorRef,
    member: MemberHandle<RegistryMachine>,
) -> Result<(Handle<LeadershipSupervisor>, LocalLeader), StartError> {
    let registry = |member| Box::new(ReplicatedRegistry::over(member)) as Box<dyn Registry>;
    open_with(node, config, allocator, member, Box::new(registry))
}

/// The same with a factory for the registry, by which simulations observe it.
pub fn open_with(
    node: &Node,
    config: Config,
    allocator: AllocatorRef,
    member: MemberHandle<RegistryMachine>,
    registry: OverMember,
) -> Result<(Handle<LeadershipSupervisor>, LocalLeader), StartError> {
    config.check()?;
    let local = LocalLeader::default();
    local.change(|inner| inner.member = Some(member.clone()));
    mirror::open(node, &config, &member, &local)?;
    let office = LeadershipSupervisor {
        member,
        registry,
        config,
        allocator,
        local: local.clone(),
        slot: MasterSlot::Empty,
        leads: false,
        term: 0,
        waiting: LeaderWaiters::default(),
    };
    let office = node.spawn("office", office)?;
    Ok((office, local))
}

impl Actor for LeadershipSupervisor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        let office = ctx.handle();
        self.member
            .watch(move |leadership| office.tell(LeadershipChanged(leadership.clone())).is_ok());
    }
}

impl Process for LeadershipSupervisor {
    fn accepts(handlers: &mut RemoteHandlers<Self>) {
        handlers.accept::<AwaitLeader>(&[Role::Framework, Role::Agent, Role::Operator]);
    }
}

impl Handler<AwaitLeader> for LeadershipSupervisor {
    type Result = Reply<LeaderAnnounced>;

    fn handle(
        &mut self,
        AwaitLeader { term }: AwaitLeader,
        ctx: &mut Context<Self>,
    ) -> Self::Result {
        let (promise, reply) = promise();
        match self.local.announcement().filter(|now| now.term > term) {
            Some(now) => promise.answer(now),
            None => {
                let caller = ctx.sender().map(|sender| sender.peer.node.clone());
                self.waiting.add(caller, term, promise);
            }
        }
        reply
    }
}

impl Handler<LeadershipChanged> for LeadershipSupervisor {
    type Result = ();

    fn handle(&mut self, LeadershipChanged(now): LeadershipChanged, ctx: &mut Context<Self>) {
        let anew = now.leads() && now.term != self.term;
        (self.leads, self.term) = (now.leads(), now.term);
        let leader = now.leader.and_then(|leader| leader.address);
        tracing::info!(term = now.term, role = ?now.role, leader = leader.as_deref().unwrap_or("nobody"), "leadership changed");
        self.local.change(|inner| {
            inner.leader = leader;
            inner.term = inner.term.max(now.term);
        });
        if let Some(now) = self.local.announcement() {
            self.waiting.tell(&now);
        }
        // A later term is another leadership, even on this node: the last one may have missed
        // changes in between.
        if (anew || !self.leads) && matches!(self.slot, MasterSlot::Taken(_)) {
            tracing::warn!(term = now.term, "local master is deposed");
            self.dismiss(ctx);
        }
        if let Some(reason) = now.ended {
            tracing::info!(%reason, "the log of this member is closed");
            ctx.stop();
            return;
        }
        self.appoint(ctx);
    }
}

impl Handler<AdmitHosts> for LeadershipSupervisor {
    type Result = ();

    fn handle(&mut self, AdmitHosts(hosts): AdmitHosts, _: &mut Context<Self>) {
        self.config.whitelist = hosts.clone();
        if let MasterSlot::Taken(master) = &self.slot
            && let Err(error) = master.tell(AdmitHosts(hosts))
        {
            tracing::warn!(%error, "cannot send the whitelist to the master");
        }
    }
}

impl Handler<Exited> for LeadershipSupervisor {
    type Result = ();

    fn handle(&mut self, exited: Exited, ctx: &mut Context<Self>) {
        let left = matches!(self.slot, MasterSlot::Leaving);
        let resigned = !left && exited.reason == Exit::Stopped;
        self.local.change(|inner| {
            inner.master = None;
            inner.deposed += u64::from(resigned);
        });
        self.slot = MasterSlot::Empty;
        match left {
            true => self.appoint(ctx),
            false => drop(ctx.after(RESTART_PAUSE, Self::appoint)),
        }
    }
}

impl LeadershipSupervisor {
    /// Starts a master, if this node's member leads and none runs.
    fn appoint(&mut self, ctx: &mut Context<Self>) {
        if !self.leads || !matches!(self.slot, MasterSlot::Empty) {
            return;
        }
        let registry = (self.registry)(self.member.clone());
        let (config, allocator) = (self.config.clone(), self.allocator.clone());
        let now = ctx.clock().now();
        let mirrored = self.local.mirrored();
        let fresh = mirrored.filter(|mirrored| mirrored.staleness(now) <= STALENESS_MAX);
        let before = fresh.map(|mirrored| mirrored.state.clone());
        match master::start_after(ctx.node(), config, self.term, allocator, registry, before) {
            Ok(started) => {
                ctx.link(&started.master.pid());
                self.local.change(|inner| {
                    inner.master = Some(started.master.clone());
                    inner.meter = started.meter.clone();
                });
                self.slot = MasterSlot::Taken(started.master);
                self.announce(ctx);
            }
            Err(StartError::Spawn(SpawnError::NameTaken { .. })) => {
                ctx.after(RESTART_PAUSE, Self::appoint);
            }
            Err(error) => {
                tracing::error!(%error, "cannot start a master");
                ctx.stop();
            }
        }
    }

    /// Announces the master to every agent of the registry, once the master has read it.
    fn announce(&mut self, ctx: &mut Context<Self>) {
        let agents = self.member.read(|registry| {
            let agents = registry.state().agents.values();
            agents
                .map(|agent| format!("{}@{}:{}", Role::Agent, agent.hostname, agent.port))
                .collect::<Vec<_>>()
        });
        let (node, local) = (ctx.node().clone(), self.local.clone());
        let leader = LeaderAnnounced {
            address: format!("{}:{}", self.config.hostname, self.config.port),
            term: self.term,
        };
        let telling = async move {
            let Ok(agents) = agents.await else {
                return; // The next leader announces itself.
            };
            let mut unreached = announce_to(&node, agents, &leader).await;
            for pause in ANNOUNCE_PAUSES {
                if unreached.is_empty() {
                    return;
                }
                node.clock().sleep(pause).await;
                if local.term() != leader.term {
                    return; // The next leader announces itself.
                }
                unreached = announce_to(&node, unreached, &leader).await;
            }
            for agent in unreached {
                tracing::debug!(%agent, "agent not reached with the leader announcement; it looks for the leader itself");
            }
        };
        ctx.then(telling, |_, (), _| ());
    }

    /// Stops the local master: linked peers look for the next one.
    fn dismiss(&mut self, ctx: &mut Context<Self>) {
        self.local.change(|inner| {
            inner.master = None;
            inner.deposed += 1;
        });
        if let MasterSlot::Taken(master) = std::mem::replace(&mut self.slot, MasterSlot::Leaving) {
            ctx.node().stop_now(&master.pid());
        }
    }
}

/// Sends the announcement to these agents, several at a time; returns the ones that were not
/// reached.
async fn announce_to(node: &Node, agents: Vec<String>, leader: &LeaderAnnounced) -> Vec<String> {
    let each = stream::iter(agents).map(|agent| async move {
        let found = node.find(&agent, "agent", ANNOUNCE_PATIENCE).await;
        let sent = found.is_ok_and(|pid| node.tell(&pid, leader.clone()).is_ok());
        (!sent).then_some(agent)
    });
    let each = each.buffer_unordered(ANNOUNCED_AT_ONCE);
    each.filter_map(std::future::ready).collect().await
}

#[cfg(test)]
mod tests;
