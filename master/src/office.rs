//! Office: a master acts on this node exactly while this node's member leads the group.
//!
//! Hears from its member who leads, from the runtime that a master has ended, and from drivers, agents and verbs that want to know who leads.
//! Remembers the master it has appointed, if one acts, and who waits for an answer (`waiting`).
//! There are never two at a time: the next one is appointed when the last has ended. Other masters' nodes have no actor `master`, so
//! whoever seeks it there asks the office instead (`protocol::seek`). It decides nothing of what a master does, and
//! never asks another node.

mod waiting;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use consensus::member::{Leadership, MemberHandle};
use futures_util::StreamExt;
use futures_util::stream;
use module_api::AllocatorRef;
use protocol::message::registration::{AwaitLeader, LeaderAnnounced};
use runtime::prelude::*;
use runtime::{Reply, Role, SpawnError, promise};

use crate::config::Config;
use crate::error::StartError;
use crate::http::Hits;
use crate::master::{self, Master};
use crate::mirror::{self, Mirrored, STALENESS_MAX};
use crate::registry::{Registry, RegistryMachine, RegistryMeter, ReplicatedRegistry};
use crate::whitelist::AdmitHosts;

use self::waiting::Waiting;

/// The pause before a master that ended while its member leads is followed by the next.
const AGAIN: Duration = Duration::from_millis(200);

/// How many agents are told at once where their new master is: as many as it may be shaking hands with. Where an answer takes 100 ms, 64
/// were seen to be 640 a second.
const ANNOUNCED_AT_ONCE: usize = 256;
/// How long one of them may take to be found.
const ANNOUNCE_PATIENCE: Duration = Duration::from_secs(5);
/// Those who were not are told again, after these pauses: what else they have is the end of their link to the master that is gone, half a minute.
const ANNOUNCED_AGAIN: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(4)];

/// What pages need to know: who acts here, who leads, and what is known here of the leader's books.
#[derive(Clone, Default)]
pub struct Front(Arc<Mutex<Seen>>);

#[derive(Default)]
struct Seen {
    master: Option<Handle<Master>>,
    leader: Option<String>,
    term: u64,
    deposed: u64,
    mirrored: Option<Arc<Mirrored>>,
    meter: RegistryMeter,
    hits: Hits,
    member: Option<MemberHandle<RegistryMachine>>,
}

impl Front {
    /// Of a master that is alone.
    pub fn of(master: &Handle<Master>) -> Self {
        let front = Self::default();
        front.change(|seen| seen.master = Some(master.clone()));
        front
    }

    /// Of a node on which none acts, since that one leads; or nobody that is known.
    #[cfg(test)]
    pub(crate) fn elsewhere(leader: Option<&str>) -> Self {
        let front = Self::default();
        front.change(|seen| seen.leader = leader.map(str::to_owned));
        front
    }

    /// The same, with what is measured of that master's registry.
    pub fn measured(self, meter: &RegistryMeter) -> Self {
        self.change(|seen| seen.meter = meter.clone());
        self
    }

    /// What is measured of the registry of the master that acts here, or acted last.
    pub(crate) fn meter(&self) -> RegistryMeter {
        self.look(|seen| seen.meter.clone())
    }

    /// How many of those who asked for a page here were given one that was made for somebody else.
    pub(crate) fn hits(&self) -> Hits {
        self.look(|seen| seen.hits.clone())
    }

    /// This node's member of the group; none of a master that is alone.
    pub(crate) fn member(&self) -> Option<MemberHandle<RegistryMachine>> {
        self.look(|seen| seen.member.clone())
    }

    /// The master that acts here.
    pub fn master(&self) -> Option<Handle<Master>> {
        self.look(|seen| seen.master.clone())
    }

    /// Where the master is that leads, as `host:port`, if it is known.
    pub fn leader(&self) -> Option<String> {
        self.look(|seen| seen.leader.clone())
    }

    /// The newest term that this master's member knows; 0 before the first, and of a master that is alone.
    pub fn term(&self) -> u64 {
        self.look(|seen| seen.term)
    }

    /// How often a master that acted here had to end, since another one leads or may.
    pub fn deposed(&self) -> u64 {
        self.look(|seen| seen.deposed)
    }

    /// Who leads under which term, if somebody does.
    fn announcement(&self) -> Option<LeaderAnnounced> {
        self.look(|seen| {
            let address = seen.leader.clone()?;
            let term = seen.term;
            Some(LeaderAnnounced { address, term })
        })
    }

    /// The leader's books, as they were some time ago.
    pub fn mirrored(&self) -> Option<Arc<Mirrored>> {
        self.look(|seen| seen.mirrored.clone())
    }

    /// There is a newer mirror.
    pub(crate) fn show(&self, mirrored: Arc<Mirrored>) {
        // Large books are not dropped under the lock.
        let mut mirrored = Some(mirrored);
        self.change(|seen| std::mem::swap(&mut seen.mirrored, &mut mirrored));
    }

    fn look<T>(&self, look: impl FnOnce(&Seen) -> T) -> T {
        look(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn change(&self, change: impl FnOnce(&mut Seen)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// The member says who leads now.
struct Elected(Leadership);

impl Message for Elected {
    type Result = ();
}

/// How a master's registry is made over this node's member.
pub type OverMember = Box<dyn Fn(MemberHandle<RegistryMachine>) -> Box<dyn Registry> + Send>;

/// Who acts here.
enum Chair {
    Empty,
    Taken(Handle<Master>),
    /// Told to stop; its end is awaited.
    Leaving,
}

/// The actor.
pub struct Office {
    member: MemberHandle<RegistryMachine>,
    registry: OverMember,
    config: Config,
    allocator: AllocatorRef,
    front: Front,
    chair: Chair,
    leads: bool,
    term: u64,
    /// Who wants to know who leads after the term that they know.
    waiting: Waiting,
}

/// Starts the actors `office` and `mirror` on `node`. The office ends when its member has: then whoever started it starts the process anew.
pub fn open(
    node: &Node,
    config: Config,
    allocator: AllocatorRef,
    member: MemberHandle<RegistryMachine>,
) -> Result<(Handle<Office>, Front), StartError> {
    let registry = |member| Box::new(ReplicatedRegistry::over(member)) as Box<dyn Registry>;
    open_with(node, config, allocator, member, Box::new(registry))
}

/// The same, with what each master has for a registry: rehearsals look at what it is asked and answers.
pub fn open_with(
    node: &Node,
    config: Config,
    allocator: AllocatorRef,
    member: MemberHandle<RegistryMachine>,
    registry: OverMember,
) -> Result<(Handle<Office>, Front), StartError> {
    config.check()?;
    let front = Front::default();
    front.change(|seen| seen.member = Some(member.clone()));
    mirror::open(node, &config, &member, &front)?;
    let office = Office {
        member,
        registry,
        config,
        allocator,
        front: front.clone(),
        chair: Chair::Empty,
        leads: false,
        term: 0,
        waiting: Waiting::default(),
    };
    let office = node.spawn("office", office)?;
    Ok((office, front))
}

impl Actor for Office {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        let office = ctx.handle();
        self.member
            .watch(move |leadership| office.tell(Elected(leadership.clone())).is_ok());
    }
}

impl Process for Office {
    fn hears(ears: &mut Ears<Self>) {
        ears.hear::<AwaitLeader>(&[Role::Framework, Role::Agent, Role::Operator]);
    }
}

impl Handler<AwaitLeader> for Office {
    type Result = Reply<LeaderAnnounced>;

    fn handle(
        &mut self,
        AwaitLeader { term }: AwaitLeader,
        ctx: &mut Context<Self>,
    ) -> Self::Result {
        let (promise, reply) = promise();
        match self.front.announcement().filter(|now| now.term > term) {
            Some(now) => promise.answer(now),
            None => {
                let asker = ctx.sender().map(|sender| sender.peer.node.clone());
                self.waiting.add(asker, term, promise);
            }
        }
        reply
    }
}

impl Handler<Elected> for Office {
    type Result = ();

    fn handle(&mut self, Elected(now): Elected, ctx: &mut Context<Self>) {
        let anew = now.leads() && now.term != self.term;
        (self.leads, self.term) = (now.leads(), now.term);
        let leader = now.leader.and_then(|leader| leader.address);
        tracing::info!(term = now.term, role = ?now.role, leader = leader.as_deref().unwrap_or("nobody"), "who leads");
        self.front.change(|seen| {
            seen.leader = leader;
            seen.term = seen.term.max(now.term);
        });
        if let Some(now) = self.front.announcement() {
            self.waiting.tell(&now);
        }
        // A leader of a later term is another one, even here: what the last did not hear may have happened in between.
        if (anew || !self.leads) && matches!(self.chair, Chair::Taken(_)) {
            tracing::warn!(term = now.term, "the master that acted here is deposed");
            self.dismiss(ctx);
        }
        if let Some(reason) = now.ended {
            tracing::info!(%reason, "this master's log is closed");
            ctx.stop();
            return;
        }
        self.appoint(ctx);
    }
}

impl Handler<AdmitHosts> for Office {
    type Result = ();

    fn handle(&mut self, AdmitHosts(hosts): AdmitHosts, _: &mut Context<Self>) {
        self.config.whitelist = hosts.clone();
        if let Chair::Taken(master) = &self.chair
            && let Err(error) = master.tell(AdmitHosts(hosts))
        {
            tracing::warn!(%error, "the master cannot be told the whitelist");
        }
    }
}

impl Handler<Exited> for Office {
    type Result = ();

    fn handle(&mut self, exited: Exited, ctx: &mut Context<Self>) {
        let left = matches!(self.chair, Chair::Leaving);
        let resigned = !left && exited.reason == Exit::Stopped;
        self.front.change(|seen| {
            seen.master = None;
            seen.deposed += u64::from(resigned);
        });
        self.chair = Chair::Empty;
        match left {
            true => self.appoint(ctx),
            false => drop(ctx.after(AGAIN, Self::appoint)),
        }
    }
}

impl Office {
    /// A master begins, if this node's member leads and nobody acts here.
    fn appoint(&mut self, ctx: &mut Context<Self>) {
        if !self.leads || !matches!(self.chair, Chair::Empty) {
            return;
        }
        let registry = (self.registry)(self.member.clone());
        let (config, allocator) = (self.config.clone(), self.allocator.clone());
        let now = ctx.clock().now();
        let mirrored = self.front.mirrored();
        let fresh = mirrored.filter(|mirrored| mirrored.staleness(now) <= STALENESS_MAX);
        let before = fresh.map(|mirrored| mirrored.books.clone());
        match master::start_after(ctx.node(), config, self.term, allocator, registry, before) {
            Ok(started) => {
                ctx.link(&started.master.pid());
                self.front.change(|seen| {
                    seen.master = Some(started.master.clone());
                    seen.meter = started.meter.clone();
                });
                self.chair = Chair::Taken(started.master);
                self.announce(ctx);
            }
            Err(StartError::Spawn(SpawnError::NameTaken { .. })) => {
                ctx.after(AGAIN, Self::appoint);
            }
            Err(error) => {
                tracing::error!(%error, "no master can be started");
                ctx.stop();
            }
        }
    }

    /// Tells every agent of the registry where the master is now, as soon as that has read the registry too.
    fn announce(&mut self, ctx: &mut Context<Self>) {
        let agents = self.member.read(|registry| {
            let agents = registry.state().agents.values();
            agents
                .map(|agent| format!("{}@{}:{}", Role::Agent, agent.hostname, agent.port))
                .collect::<Vec<_>>()
        });
        let (node, front) = (ctx.node().clone(), self.front.clone());
        let leader = LeaderAnnounced {
            address: format!("{}:{}", self.config.hostname, self.config.port),
            term: self.term,
        };
        let telling = async move {
            let Ok(agents) = agents.await else {
                return; // The next leader tells them.
            };
            let mut untold = announce_to(&node, agents, &leader).await;
            for pause in ANNOUNCED_AGAIN {
                if untold.is_empty() {
                    return;
                }
                node.clock().sleep(pause).await;
                if front.term() != leader.term {
                    return; // Whoever leads now tells them.
                }
                untold = announce_to(&node, untold, &leader).await;
            }
            for agent in untold {
                tracing::debug!(%agent, "not told who leads; it looks for its master itself");
            }
        };
        ctx.then(telling, |_, (), _| ());
    }

    /// The master that acts here must not act any more: whoever is linked to it looks for the next one.
    fn dismiss(&mut self, ctx: &mut Context<Self>) {
        self.front.change(|seen| {
            seen.master = None;
            seen.deposed += 1;
        });
        if let Chair::Taken(master) = std::mem::replace(&mut self.chair, Chair::Leaving) {
            ctx.node().stop_now(&master.pid());
        }
    }
}

/// Tells these agents who leads, some at once; gives those that could not be told.
async fn announce_to(node: &Node, agents: Vec<String>, leader: &LeaderAnnounced) -> Vec<String> {
    let each = stream::iter(agents).map(|agent| async move {
        let found = node.find(&agent, "agent", ANNOUNCE_PATIENCE).await;
        let told = found.is_ok_and(|pid| node.tell(&pid, leader.clone()).is_ok());
        (!told).then_some(agent)
    });
    let each = each.buffer_unordered(ANNOUNCED_AT_ONCE);
    each.filter_map(std::future::ready).collect().await
}

#[cfg(test)]
mod tests;
