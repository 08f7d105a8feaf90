//! The agents that the master knows of: registered, awaited after its restart, or out of reach.
//!
//! Plain data with pure transitions. What tasks hold on an agent is in [`crate::tasks`], what is offered in
//! [`crate::offers`]. It never pings: see [`crate::health`].

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use protocol::agent::Served;
use protocol::{AgentId, AgentInfo, AgentOrders, Unavailability, Uuid};
use resources::Resources;
use runtime::{NodeId, Pid, Timestamp};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use v1::convert::pid;

use crate::by_agent::ByAgent;
use crate::registry::RegistryState;

/// An agent that is registered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Agent {
    /// Its id.
    pub id: AgentId,
    /// What it says of itself; its id is set, and its resources are what operations have made of them.
    pub info: AgentInfo,
    /// Its resources as it describes itself, before all operations: what the registry knows.
    pub described: Resources,
    /// The version of its resources; `None` if it keeps no operations.
    pub resources_version: Option<Uuid>,
    /// Where it hears.
    pub pid: Pid,
    /// Its version.
    pub version: String,
    /// Whether it is connected, and so gets work.
    pub connected: bool,
    /// Counts its registrations, so that a timer of an earlier one does nothing.
    pub session: u64,
    /// Since when it is registered.
    pub registered: Timestamp,
    /// When it last came back.
    pub reregistered: Option<Timestamp>,
    /// What it lends at present, allocated and available together.
    pub oversubscribed: Resources,
    /// The address that it came from, if it came over a network.
    pub ip: Option<String>,
    /// When its machine will be away, if that is planned.
    pub unavailability: Option<Unavailability>,
    /// What operators have ordered about it; deactivated also while it has suspended itself.
    pub orders: AgentOrders,
}

impl Agent {
    /// The address that it came from, which its containers have too.
    pub fn address(&self) -> Option<IpAddr> {
        self.ip.as_deref()?.parse().ok()
    }

    /// Where it is, as Mesos names it: at the address that it came from.
    pub fn located(&self) -> String {
        pid(
            "slave(1)",
            self.address(),
            &self.info.hostname,
            self.info.port,
        )
    }

    /// How messages name it, as by Mesos.
    pub fn display_name(&self) -> String {
        let (id, hostname) = (&self.id, &self.info.hostname);
        format!("{id} at {} ({hostname})", self.located())
    }

    /// Where its pages are.
    pub fn served(&self) -> Served {
        Served {
            address: self.address(),
            port: self.info.port,
        }
    }

    /// Whether it is connected and offered.
    pub fn is_active(&self) -> bool {
        self.connected && !self.orders.deactivated
    }

    /// What it says of itself, before all operations.
    pub fn described(&self) -> AgentInfo {
        AgentInfo {
            resources: self.described.clone(),
            ..self.info.clone()
        }
    }

    /// Whether that is what it says of itself, before all operations.
    pub fn is_described(&self, info: &AgentInfo) -> bool {
        let AgentInfo {
            hostname,
            port,
            resources,
            attributes,
            domain,
            id,
        } = info;
        (hostname, port, id) == (&self.info.hostname, &self.info.port, &self.info.id)
            && (attributes, domain) == (&self.info.attributes, &self.info.domain)
            && *resources == self.described
    }
}

/// All agents.
#[derive(Clone, Debug, Default)]
pub struct Agents {
    registered: BTreeMap<AgentId, Arc<Agent>>,
    /// The same once more and, as those after it, never gone through: to find one by its id's hash is one look where a tree compares a dozen texts.
    by_id: FxHashMap<AgentId, Arc<Agent>>,
    by_pid: FxHashMap<Pid, AgentId>,
    /// By the name of the node, which outlives its restarts, and by its life.
    by_node: BTreeMap<String, BTreeMap<NodeId, BTreeSet<AgentId>>>,
    recovered: ByAgent<Arc<AgentInfo>>,
    unreachable: BTreeMap<AgentId, Timestamp>,
    gone: BTreeMap<AgentId, Timestamp>,
    orders: BTreeMap<AgentId, AgentOrders>,
    /// Those that have suspended themselves, until they resume or register again.
    suspended: BTreeSet<AgentId>,
    sessions: u64,
    /// Sessions that there were before the allocator's books began last.
    sessions_void: u64,
}

/// What is known of an agent id.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Standing<'a> {
    /// It is registered.
    Registered(&'a Agent),
    /// The registry knew it when this master started, and it has not come back yet.
    Recovered,
    /// It has not answered for too long, since then.
    Unreachable(Timestamp),
    /// It is gone for good: an operator has said so, or its machine was taken down.
    Gone,
    /// Never heard of, or forgotten.
    Unknown,
}

impl Agents {
    /// What is known of this id.
    pub fn standing(&self, id: &AgentId) -> Standing<'_> {
        if let Some(agent) = self.by_id.get(id) {
            Standing::Registered(agent)
        } else if self.recovered.get(id).is_some() {
            Standing::Recovered
        } else if let Some(since) = self.unreachable.get(id) {
            Standing::Unreachable(*since)
        } else if self.gone.contains_key(id) {
            Standing::Gone
        } else {
            Standing::Unknown
        }
    }

    /// The registered agent of that id.
    pub fn get(&self, id: &AgentId) -> Option<&Agent> {
        self.by_id.get(id).map(Arc::as_ref)
    }

    /// The same, as it is now.
    pub fn shared(&self, id: &AgentId) -> Option<Arc<Agent>> {
        self.by_id.get(id).cloned()
    }

    /// The registered and connected agent of that id.
    pub fn connected(&self, id: &AgentId) -> Option<&Agent> {
        self.get(id).filter(|agent| agent.connected)
    }

    /// The registered agent that hears there.
    pub fn at(&self, pid: &Pid) -> Option<&Agent> {
        self.get(self.by_pid.get(pid)?)
    }

    /// The registered ones of this node in other lives of it.
    pub fn of_other_lives<'a>(&'a self, node: &'a NodeId) -> impl Iterator<Item = &'a Agent> {
        let lives = self.by_node.get(node.name()).into_iter().flatten();
        let ids = lives.filter(move |(life, _)| *life != node);
        ids.flat_map(|(_, ids)| ids).filter_map(|id| self.get(id))
    }

    /// The session of an agent as the allocator is told it and its grants bear it: in each life of its books another one, and never one of
    /// an earlier life.
    pub fn session_told(&self, agent: &Agent) -> u64 {
        self.sessions_void + agent.session
    }

    /// The allocator's books begin anew: grants of the old ones are void (DESIGN 6).
    pub fn begin_epoch(&mut self) {
        self.sessions_void += self.sessions;
    }

    /// All registered ones.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Agent>> {
        self.registered.values()
    }

    /// Those that the registry knew and that have not come back yet, in the order of their numbers.
    pub fn recovered(&self) -> impl Iterator<Item = (&AgentId, &AgentInfo)> {
        self.recovered.iter().map(|(id, info)| (id, info.as_ref()))
    }

    /// How many the registry knows, those aside that are out of reach.
    pub fn known(&self) -> usize {
        self.registered.len() + self.recovered.len()
    }

    /// What the registry knew of one of those.
    pub fn awaited(&self, id: &AgentId) -> Option<&AgentInfo> {
        self.recovered.get(id).map(Arc::as_ref)
    }

    /// Those out of reach, and since when.
    pub fn unreachable(&self) -> &BTreeMap<AgentId, Timestamp> {
        &self.unreachable
    }

    /// The registry knew these when this master started.
    pub fn recover(
        &mut self,
        agents: BTreeMap<AgentId, AgentInfo>,
        unreachable: BTreeMap<AgentId, Timestamp>,
    ) {
        let agents = agents.into_iter();
        self.recovered = agents.map(|(id, info)| (id, Arc::new(info))).collect();
        self.unreachable = unreachable;
    }

    /// The registry knew these to be gone for good, and this to be ordered, when this master started.
    pub fn recover_orders(
        &mut self,
        gone: BTreeMap<AgentId, Timestamp>,
        orders: BTreeMap<AgentId, AgentOrders>,
    ) {
        self.gone = gone;
        self.orders = orders;
    }

    /// Whether it is gone for good.
    pub fn is_gone(&self, id: &AgentId) -> bool {
        self.gone_since(id).is_some()
    }

    /// Since when it is gone for good, as the registry has it.
    pub fn gone_since(&self, id: &AgentId) -> Option<Timestamp> {
        self.gone.get(id).copied()
    }

    /// It is gone for good; it must be forgotten otherwise. Of too many the registry's rule says which one is forgotten.
    pub fn mark_gone(&mut self, id: &AgentId, since: Timestamp) {
        RegistryState::remember_gone(&mut self.gone, id, since);
    }

    /// What operators have ordered about it, if anything.
    pub fn orders(&self, id: &AgentId) -> Option<AgentOrders> {
        self.orders.get(id).copied()
    }

    /// This is ordered about it from now on.
    pub fn order(&mut self, id: &AgentId, orders: Option<AgentOrders>) {
        keep(&mut self.orders, id.clone(), orders);
        self.show_orders(id);
    }

    /// It has suspended itself, or resumes.
    pub fn suspend(&mut self, id: &AgentId, suspended: bool) {
        match suspended {
            true => self.suspended.insert(id.clone()),
            false => self.suspended.remove(id),
        };
        self.show_orders(id);
    }

    fn show_orders(&mut self, id: &AgentId) {
        let mut orders = self.orders(id).unwrap_or_default();
        orders.deactivated |= self.suspended.contains(id);
        self.update(id, |agent| agent.orders = orders);
    }

    /// Those about which something is left to do: they are being drained, or are to be declared gone when they are.
    pub fn draining(&self) -> impl Iterator<Item = &AgentId> {
        let left = |orders: &AgentOrders| {
            let drain = orders.drain;
            drain.is_some_and(|drain| !drain.drained || drain.mark_gone)
        };
        let all = self.orders.iter();
        all.filter(move |(_, orders)| left(orders))
            .map(|(id, _)| id)
    }

    /// Whether its tasks are to end and have not all.
    pub fn is_draining(&self, id: &AgentId) -> bool {
        let drain = self.orders(id).and_then(|orders| orders.drain);
        drain.is_some_and(|drain| !drain.drained)
    }

    /// It is registered and connected from now on; gives it, in its new session.
    pub fn register(&mut self, mut agent: Agent) -> Arc<Agent> {
        self.recovered.remove(&agent.id);
        self.unreachable.remove(&agent.id);
        self.suspended.remove(&agent.id);
        self.sessions += 1;
        agent.session = self.sessions;
        agent.connected = true;
        agent.orders = self.orders(&agent.id).unwrap_or_default();
        let agent = Arc::new(agent);
        if let Some(before) = self.registered.insert(agent.id.clone(), agent.clone()) {
            self.unlist(&before);
        }
        self.by_pid.insert(agent.pid.clone(), agent.id.clone());
        let node = agent.pid.node();
        let lives = match self.by_node.get_mut(node.name()) {
            Some(lives) => lives,
            None => self.by_node.entry(node.name().to_owned()).or_default(),
        };
        let of_life = lives.entry(node.clone()).or_default();
        of_life.insert(agent.id.clone());
        self.by_id.insert(agent.id.clone(), agent.clone());
        agent
    }

    /// Changes a registered one. Its id and pid stay as they are.
    pub fn update(&mut self, id: &AgentId, change: impl FnOnce(&mut Agent)) {
        if let Some(shared) = self.registered.get_mut(id) {
            self.by_id.remove(id); // Or it would have to be copied.
            let agent = Arc::make_mut(shared);
            let (id, pid) = (agent.id.clone(), agent.pid.clone());
            change(agent);
            (agent.id, agent.pid) = (id.clone(), pid);
            self.by_id.insert(id, shared.clone());
        }
    }

    /// It is no longer registered, nor awaited, nor remembered as unreachable.
    pub fn forget(&mut self, id: &AgentId) -> Option<Arc<Agent>> {
        self.recovered.remove(id);
        self.unreachable.remove(id);
        self.orders.remove(id);
        self.suspended.remove(id);
        self.remove(id)
    }

    /// It has not answered for too long. Gives it, and the one that is forgotten for it.
    pub fn mark_unreachable(
        &mut self,
        id: &AgentId,
        since: Timestamp,
    ) -> (Option<Arc<Agent>>, Option<AgentId>) {
        let orders = self.orders(id);
        let agent = self.forget(id);
        keep(&mut self.orders, id.clone(), orders);
        self.unreachable.insert(id.clone(), since);
        let oldest = RegistryState::one_too_many(&self.unreachable);
        if let Some(oldest) = &oldest {
            self.unreachable.remove(oldest);
            self.orders.remove(oldest);
        }
        (agent, oldest)
    }

    /// A mirror is told of a registered one, or that there is none of that id.
    pub(crate) fn mirror(&mut self, id: AgentId, agent: Option<Arc<Agent>>) {
        self.keep_registered(id, agent);
    }

    /// A mirror is told of one that is awaited, or that it is no longer.
    pub(crate) fn mirror_awaited(&mut self, id: AgentId, info: Option<AgentInfo>) {
        self.recovered.keep(&id, info.map(Arc::new));
    }

    /// A mirror is told since when one is out of reach, or that it is no longer.
    pub(crate) fn mirror_unreachable(&mut self, id: AgentId, since: Option<Timestamp>) {
        keep(&mut self.unreachable, id, since);
    }

    fn keep_registered(&mut self, id: AgentId, agent: Option<Arc<Agent>>) {
        match &agent {
            Some(agent) => drop(self.by_id.insert(id.clone(), agent.clone())),
            None => drop(self.by_id.remove(&id)),
        }
        keep(&mut self.registered, id, agent);
    }

    fn remove(&mut self, id: &AgentId) -> Option<Arc<Agent>> {
        self.by_id.remove(id);
        let agent = self.registered.remove(id)?;
        self.unlist(&agent);
        Some(agent)
    }

    /// It is not found by its pid and its node any more.
    fn unlist(&mut self, agent: &Agent) {
        self.by_pid.remove(&agent.pid);
        let node = agent.pid.node();
        if let Some(lives) = self.by_node.get_mut(node.name()) {
            if let Some(of_life) = lives.get_mut(node) {
                of_life.remove(&agent.id);
            }
            lives.retain(|_, of_life| !of_life.is_empty());
            if lives.is_empty() {
                self.by_node.remove(node.name());
            }
        }
    }
}

/// Puts the value in place of whatever there was.
pub(crate) fn keep<K: Ord, V>(table: &mut BTreeMap<K, V>, key: K, value: Option<V>) {
    match value {
        Some(value) => drop(table.insert(key, value)),
        None => drop(table.remove(&key)),
    }
}
