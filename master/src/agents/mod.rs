//! The agents that the master knows: registered, awaited after its restart, or unreachable.
//!
//! Plain data with pure transitions. Tasks on an agent are in [`crate::tasks`], offers in
//! [`crate::offers`], pings in [`crate::agents::health`].
//!
//! | module | contents |
//! |---|---|
//! | `admission` | registration, loss, return and departure of agents |
//! | `by_agent` | a map from agent ids to values |
//! | `comparison` | comparison of a registering agent's report with the state |
//! | `expected` | the previous leader's knowledge of each agent, from the mirror |
//! | `health` | whether an agent still answers pings (every 15 s, five misses) |
//! | `whitelist` | the hosts of agents that are offered, from the file of `--whitelist` |

pub mod admission;
pub(crate) mod by_agent;
pub mod comparison;
pub mod expected;
pub mod health;
pub mod whitelist;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use protocol::agent::HttpEndpoint;
use protocol::{AgentId, AgentInfo, AgentOrders, Unavailability, Uuid};
use resources::Resources;
use runtime::{NodeId, Pid, Timestamp};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use v1::convert::pid;

use crate::agents::by_agent::ByAgent;
use crate::registry::RegistryState;

/// A registered agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Agent {
    /// Its id.
    pub id: AgentId,
    /// Its own description; the id is set, and the resources include all operations.
    pub info: AgentInfo,
    /// Its resources before all operations, as the registry has them.
    pub described: Resources,
    /// The version of its resources; `None` if it keeps no operations.
    pub resources_version: Option<Uuid>,
    /// Its address.
    pub pid: Pid,
    /// Its version.
    pub version: String,
    /// Whether it is connected and may get work.
    pub connected: bool,
    /// Counts its registrations, so that a timer of an earlier one has no effect.
    pub session: u64,
    /// When it registered.
    pub registered: Timestamp,
    /// When it last registered again.
    pub reregistered: Option<Timestamp>,
    /// Its current revocable resources, allocated and available together.
    pub oversubscribed: Resources,
    /// Its address, if it connected over a network.
    pub ip: Option<String>,
    /// The planned maintenance of its machine.
    pub unavailability: Option<Unavailability>,
    /// Operators' orders; also deactivated while the agent has suspended itself.
    pub orders: AgentOrders,
}

impl Agent {
    /// The address that it connected from, which its containers share.
    pub fn address(&self) -> Option<IpAddr> {
        self.ip.as_deref()?.parse().ok()
    }

    /// Its pid in the form of Mesos, with the address that it connected from.
    pub fn mesos_pid(&self) -> String {
        pid(
            "slave(1)",
            self.address(),
            &self.info.hostname,
            self.info.port,
        )
    }

    /// Its name in messages, as in Mesos.
    pub fn display_name(&self) -> String {
        let (id, hostname) = (&self.id, &self.info.hostname);
        format!("{id} at {} ({hostname})", self.mesos_pid())
    }

    /// The address of its pages.
    pub fn endpoint(&self) -> HttpEndpoint {
        HttpEndpoint {
            address: self.address(),
            port: self.info.port,
        }
    }

    /// Whether it is connected and activated.
    pub fn is_active(&self) -> bool {
        self.connected && !self.orders.deactivated
    }

    /// Its own description before all operations.
    pub fn described(&self) -> AgentInfo {
        AgentInfo {
            resources: self.described.clone(),
            ..self.info.clone()
        }
    }

    /// Whether its own description, before all operations, is this one.
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
    /// The same agents for lookup by hash, where the tree compares a dozen texts. Never iterated,
    /// nor are the maps below.
    by_id: FxHashMap<AgentId, Arc<Agent>>,
    by_pid: FxHashMap<Pid, AgentId>,
    /// By node name, which outlives restarts, and by incarnation.
    by_node: BTreeMap<String, BTreeMap<NodeId, BTreeSet<AgentId>>>,
    recovered: ByAgent<Arc<AgentInfo>>,
    unreachable: BTreeMap<AgentId, Timestamp>,
    gone: BTreeMap<AgentId, Timestamp>,
    orders: BTreeMap<AgentId, AgentOrders>,
    /// Agents that suspended themselves, until they resume or register again.
    suspended: BTreeSet<AgentId>,
    sessions: u64,
    /// Number of sessions before the allocator's state was last reset.
    past_sessions: u64,
}

/// What is known of an agent id.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Standing<'a> {
    /// Registered.
    Registered(&'a Agent),
    /// In the registry at this master's start, and not back yet.
    Recovered,
    /// Unresponsive since this time.
    Unreachable(Timestamp),
    /// Gone for good: declared so by an operator, or its machine was taken down.
    Gone,
    /// Unknown or forgotten.
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

    /// The registered agent with that id.
    pub fn get(&self, id: &AgentId) -> Option<&Agent> {
        self.by_id.get(id).map(Arc::as_ref)
    }

    /// The same, shared.
    pub fn shared(&self, id: &AgentId) -> Option<Arc<Agent>> {
        self.by_id.get(id).cloned()
    }

    /// The registered and connected agent with that id.
    pub fn connected(&self, id: &AgentId) -> Option<&Agent> {
        self.get(id).filter(|agent| agent.connected)
    }

    /// The registered agent with that pid.
    pub fn at(&self, pid: &Pid) -> Option<&Agent> {
        self.get(self.by_pid.get(pid)?)
    }

    /// Registered agents of this node in other incarnations.
    pub fn other_incarnations<'a>(&'a self, node: &'a NodeId) -> impl Iterator<Item = &'a Agent> {
        let lives = self.by_node.get(node.name()).into_iter().flatten();
        let ids = lives.filter(move |(life, _)| *life != node);
        ids.flat_map(|(_, ids)| ids).filter_map(|id| self.get(id))
    }

    /// The session number that the allocator sees and its grants carry. Never repeated across
    /// resets of the allocator.
    pub fn allocator_session(&self, agent: &Agent) -> u64 {
        self.past_sessions + agent.session
    }

    /// The allocator starts with a new state: grants of the old one become invalid.
    pub fn begin_epoch(&mut self) {
        self.past_sessions += self.sessions;
    }

    /// All registered agents.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Agent>> {
        self.registered.values()
    }

    /// Agents of the registry that have not returned yet, in the order of their numbers.
    pub fn recovered(&self) -> impl Iterator<Item = (&AgentId, &AgentInfo)> {
        self.recovered.iter().map(|(id, info)| (id, info.as_ref()))
    }

    /// Number of agents in the registry, without the unreachable ones.
    pub fn known(&self) -> usize {
        self.registered.len() + self.recovered.len()
    }

    /// The registry's description of an awaited agent.
    pub fn awaited(&self, id: &AgentId) -> Option<&AgentInfo> {
        self.recovered.get(id).map(Arc::as_ref)
    }

    /// Unreachable agents, and since when.
    pub fn unreachable(&self) -> &BTreeMap<AgentId, Timestamp> {
        &self.unreachable
    }

    /// Sets the agents that the registry knew at this master's start.
    pub fn recover(
        &mut self,
        agents: BTreeMap<AgentId, AgentInfo>,
        unreachable: BTreeMap<AgentId, Timestamp>,
    ) {
        let agents = agents.into_iter();
        self.recovered = agents.map(|(id, info)| (id, Arc::new(info))).collect();
        self.unreachable = unreachable;
    }

    /// Sets the gone agents and the orders that the registry knew at this master's start.
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

    /// Since when it is gone for good, as recorded in the registry.
    pub fn gone_since(&self, id: &AgentId) -> Option<Timestamp> {
        self.gone.get(id).copied()
    }

    /// Marks an agent as gone for good. The caller must forget it otherwise. The registry's rule
    /// decides which gone agent is forgotten above the bound.
    pub fn mark_gone(&mut self, id: &AgentId, since: Timestamp) {
        RegistryState::remember_gone(&mut self.gone, id, since);
    }

    /// Operators' orders for this agent, if any.
    pub fn orders(&self, id: &AgentId) -> Option<AgentOrders> {
        self.orders.get(id).copied()
    }

    /// Sets operators' orders for this agent.
    pub fn order(&mut self, id: &AgentId, orders: Option<AgentOrders>) {
        keep(&mut self.orders, id.clone(), orders);
        self.show_orders(id);
    }

    /// Sets whether the agent has suspended itself.
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

    /// Agents with work left: they are draining, or are to be marked gone once drained.
    pub fn draining(&self) -> impl Iterator<Item = &AgentId> {
        let left = |orders: &AgentOrders| {
            let drain = orders.drain;
            drain.is_some_and(|drain| !drain.drained || drain.mark_gone)
        };
        let all = self.orders.iter();
        all.filter(move |(_, orders)| left(orders))
            .map(|(id, _)| id)
    }

    /// Whether it is being drained and still has tasks.
    pub fn is_draining(&self, id: &AgentId) -> bool {
        let drain = self.orders(id).and_then(|orders| orders.drain);
        drain.is_some_and(|drain| !drain.drained)
    }

    /// Registers and connects an agent in a new session; returns it.
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

    /// Changes a registered agent. Its id and pid stay.
    pub fn update(&mut self, id: &AgentId, change: impl FnOnce(&mut Agent)) {
        if let Some(shared) = self.registered.get_mut(id) {
            self.by_id.remove(id); // Else the `Arc` would have to be cloned.
            let agent = Arc::make_mut(shared);
            let (id, pid) = (agent.id.clone(), agent.pid.clone());
            change(agent);
            (agent.id, agent.pid) = (id.clone(), pid);
            self.by_id.insert(id, shared.clone());
        }
    }

    /// Forgets an agent in every condition but gone.
    pub fn forget(&mut self, id: &AgentId) -> Option<Arc<Agent>> {
        self.recovered.remove(id);
        self.unreachable.remove(id);
        self.orders.remove(id);
        self.suspended.remove(id);
        self.remove(id)
    }

    /// Marks it unreachable. Returns it, and the unreachable agent that is forgotten to keep the
    /// bound.
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

    /// Sets a registered agent in a mirror, or removes it.
    pub(crate) fn mirror(&mut self, id: AgentId, agent: Option<Arc<Agent>>) {
        self.keep_registered(id, agent);
    }

    /// Sets an awaited agent in a mirror, or removes it.
    pub(crate) fn mirror_awaited(&mut self, id: AgentId, info: Option<AgentInfo>) {
        self.recovered.keep(&id, info.map(Arc::new));
    }

    /// Sets an unreachable agent in a mirror, or removes it.
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

    /// Removes it from the indexes by pid and node.
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

/// Inserts the value, or removes the entry for `None`.
pub(crate) fn keep<K: Ord, V>(table: &mut BTreeMap<K, V>, key: K, value: Option<V>) {
    match value {
        Some(value) => drop(table.insert(key, value)),
        None => drop(table.remove(&key)),
    }
}
