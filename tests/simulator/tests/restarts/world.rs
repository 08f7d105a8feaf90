//! The real master, allocator and sorter, with scripted agents and schedulers.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use master::state::MasterState;
use master::tasks::Holdings;
use master::{Config, Master, MemoryRegistry, TakeSnapshot};
use module_api::{AllocatorRef, SorterRef};
use modules::allocator::Allocator;
use modules::sorter::Sorter;
use protocol::message::operation::ApplyOperation;
use protocol::message::registration::{
    PingAgent, Pong, RegisterAgent, ShutDownAgent, UnregisterAgent,
};
use protocol::message::scheduler::{
    DeclineOffers, FrameworkFailed, Lost, OfferRescinded, OffersMade, ReviveOffers, StatusChanged,
    Subscribe, TearDown,
};
use protocol::message::task::{FrameworkChanged, RunTasks, ShutDownFramework};
use protocol::{
    AgentId, AgentInfo, AgentResources, Capability, Demand, Filters, FrameworkId, FrameworkInfo,
    Offer, Quota, Uuid,
};
use resources::{Quantities, Resources};
use runtime::prelude::*;
use runtime::testing::memory::Network;

use crate::crash_schedule::{Counts, CrashSchedule, CrashingPolicy, schedule_crashes};

pub const PATIENCE: Duration = Duration::from_secs(5);
/// Maximum time of a step: longer than a restart of the allocator.
pub const STEP: Duration = Duration::from_secs(2);
/// Each framework has its own role; two of them are below one that may have a quota too.
pub const ROLES: [&str; 3] = ["a/b", "a/c", "d"];
pub const TOTAL: &str = "cpus:100;mem:10000;disk:1000";

/// A scripted agent or scheduler.
pub struct Party;

impl Actor for Party {
    type Context = Context<Self>;
}

macro_rules! hears_and_does_nothing {
    ($($message:ty),*) => {
        impl Process for Party {
            fn accepts(handlers: &mut RemoteHandlers<Self>) {
                handlers.accept::<PingAgent>(&[Role::Master]);
                $(handlers.accept::<$message>(&[Role::Master]);)*
            }
        }
        $(impl Handler<$message> for Party {
            type Result = ();
            fn handle(&mut self, _: $message, _: &mut Context<Self>) {}
        })*
    };
}

hears_and_does_nothing!(
    RunTasks,
    ApplyOperation,
    ShutDownAgent,
    ShutDownFramework,
    FrameworkChanged,
    FrameworkFailed,
    Lost,
    OffersMade,
    OfferRescinded,
    StatusChanged
);

impl Handler<PingAgent> for Party {
    type Result = Reply<Pong>;
    fn handle(&mut self, _: PingAgent, _: &mut Context<Self>) -> Reply<Pong> {
        let (promise, reply) = promise();
        promise.answer(Pong);
        reply
    }
}

/// Sends this to the master, as this actor.
pub struct Say(Box<dyn FnOnce(&Node) + Send>);

impl Message for Say {
    type Result = ();
}

impl Handler<Say> for Party {
    type Result = ();
    fn handle(&mut self, Say(say): Say, ctx: &mut Context<Self>) {
        say(ctx.node());
    }
}

/// Makes the actor panic.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Fall;

impl Handler<Fall> for Allocator {
    type Result = ();
    fn handle(&mut self, _: Fall, _: &mut Context<Self>) {
        panic!("the allocator falls, as this test wants it");
    }
}

impl Handler<Fall> for Sorter<CrashingPolicy> {
    type Result = ();
    fn handle(&mut self, _: Fall, _: &mut Context<Self>) {
        panic!("the sorter falls, as this test wants it");
    }
}

/// The observable state at the end.
#[derive(Debug, PartialEq)]
pub struct Outcome {
    /// For each agent: its total, its lent resources, and those of its tasks.
    pub agents: Vec<(String, Resources, Resources, Holdings)>,
    /// The reserved or lent resources offered to each framework.
    pub own: Vec<(Resources, Resources)>,
    /// All other offered resources.
    pub rest: Quantities,
    pub quotas: BTreeMap<String, Quota>,
    pub weights: BTreeMap<String, f64>,
    /// The allocator's own metrics: its totals, the offered or used resources, and the number of
    /// filters.
    pub measured: BTreeMap<String, f64>,
}

pub struct Tenant {
    pub party: Handle<Party>,
    pub id: FrameworkId,
    pub role: resources::Role,
    pub agent: AgentId,
    pub agent_node: Node,
}

pub struct World {
    network: Network,
    /// The number of agents' and frameworks' nodes.
    nodes: Cell<u32>,
    pub node: Node,
    pub master: Handle<Master>,
    pub allocator: Handle<Allocator>,
    pub sorter: Handle<Sorter<CrashingPolicy>>,
    /// The messages of allocator and sorter.
    pub counts: Counts,
    pub operator: Node,
    pub tenants: Vec<Tenant>,
    pub tasks: u32,
}

pub fn again() -> Supervision {
    Supervision::Restart {
        backoff: Duration::from_millis(100),
        backoff_max: Duration::from_millis(400),
        limit: u32::MAX,
    }
}

impl World {
    pub async fn new(network: &Network, crashes: &CrashSchedule) -> Self {
        let heard = [Role::Agent, Role::Framework, Role::Operator];
        let node = network.node("master", Role::Master, &heard);
        let counts = Counts::default();
        let doomed = (crashes.clone(), counts.clone());
        let sorter = node.supervise("sorter", again(), move || {
            let (crashes, counts) = doomed.clone();
            Sorter::new(CrashingPolicy::new(crashes, counts))
        });
        let whoever = |name: &str| node.refer(Pid::new(name, node.id().clone(), 0));
        let (asked, home) = (SorterRef::new(whoever("sorter")), node.clone());
        let allocator = node.supervise("allocator", again(), move || {
            Allocator::new(asked.clone(), None, home.rng())
        });
        let allocator = allocator.unwrap();
        schedule_crashes(&node, allocator.clone(), crashes.clone(), counts.clone());
        let told = AllocatorRef::new(whoever("allocator"));
        let registry = Box::new(MemoryRegistry::new());
        let master = master::start(&node, Config::default(), 0, told, registry).unwrap();
        node.clock().settle().await;
        let operator = network.node("operator", Role::Operator, &[Role::Master]);
        operator.find("master", "master", PATIENCE).await.unwrap();
        let mut world = Self {
            network: network.clone(),
            nodes: Cell::new(0),
            node: node.clone(),
            master: master.master,
            allocator,
            sorter: sorter.unwrap(),
            counts,
            operator,
            tenants: Vec::new(),
            tasks: 0,
        };
        for (number, role) in ROLES.iter().enumerate() {
            let tenant = world.tenant(number, role).await;
            world.tenants.push(tenant);
        }
        world.pass(STEP).await;
        world
    }

    /// An agent and the framework that is offered it.
    pub async fn tenant(&self, number: usize, role: &str) -> Tenant {
        let (agent_node, agent) = self.agent(number).await;
        let (party, id) = self.framework(number, role).await;
        Tenant {
            party,
            id,
            role: role.parse().unwrap(),
            agent,
            agent_node,
        }
    }

    /// A new agent: the next one on the host with that number.
    async fn agent(&self, number: usize) -> (Node, AgentId) {
        let host = format!("agent-{number}");
        let heard = [Role::Master];
        let node = self.network.node(&self.fresh(&host), Role::Agent, &heard);
        let agent = node.spawn("agent", Party).unwrap();
        let master = node.find("master", "master", PATIENCE).await.unwrap();
        let total: Resources = TOTAL.parse().unwrap();
        let register = RegisterAgent {
            resources: Some(AgentResources {
                version: Uuid([1; 16]),
                total: total.clone(),
                operations: Vec::new(),
                settled: None,
            }),
            ..testkit::values::registration(AgentInfo::new(host, total), agent.pid())
        };
        let registered = node.ask(&master, register, PATIENCE).await;
        (node, registered.unwrap().unwrap().agent_id)
    }

    /// A new framework for the agent with that number.
    async fn framework(&self, number: usize, role: &str) -> (Handle<Party>, FrameworkId) {
        let name = format!("framework-{number}");
        let heard = [Role::Master];
        let node = self
            .network
            .node(&self.fresh(&name), Role::Framework, &heard);
        let party = node.spawn("scheduler", Party).unwrap();
        let master = node.find("master", "master", PATIENCE).await.unwrap();
        let mut info = FrameworkInfo::new("nobody", name);
        info.roles = [role.to_owned()].into();
        info.principal = Some("ops".to_owned());
        info.capabilities.insert(Capability::RevocableResources);
        let mut subscribe = Subscribe {
            framework: info,
            scheduler: party.pid(),
            wants: Default::default(),
        };
        let demands = &mut subscribe.wants.demands;
        let host = format!("agent-{number}");
        demands.insert(role.to_owned(), Demand::on_hosts([host]));
        let subscribed = node.ask(&master, subscribe, PATIENCE).await;
        (party, subscribed.unwrap().unwrap().framework_id)
    }

    /// A name that no node had before.
    fn fresh(&self, name: &str) -> String {
        let number = self.nodes.get();
        self.nodes.set(number + 1);
        format!("{name}-{number}")
    }

    /// The agent leaves for good, and its successor on the same host starts after `meanwhile`.
    pub async fn replace_agent(&mut self, f: usize, meanwhile: impl AsyncFnOnce(&mut Self)) {
        let tenant = &self.tenants[f];
        let agent_id = tenant.agent.clone();
        let left = UnregisterAgent { agent_id };
        tenant.agent_node.tell(&self.master.pid(), left).unwrap();
        meanwhile(self).await;
        self.pass(STEP).await;
        let (node, agent) = self.agent(f).await;
        let before = std::mem::replace(&mut self.tenants[f].agent_node, node);
        self.tenants[f].agent = agent;
        before.shutdown().await;
    }

    /// The framework ends for good, and its successor starts after `meanwhile`.
    pub async fn replace_framework(&mut self, f: usize, meanwhile: impl AsyncFnOnce(&mut Self)) {
        let framework_id = self.tenants[f].id.clone();
        self.say(f, TearDown { framework_id });
        meanwhile(self).await;
        self.pass(STEP).await;
        (self.tenants[f].party, self.tenants[f].id) = self.framework(f, ROLES[f]).await;
    }

    pub async fn pass(&self, time: Duration) {
        self.node.clock().advance(time).await;
    }

    pub async fn books(&self) -> Arc<MasterState> {
        self.master.ask(TakeSnapshot, PATIENCE).await.unwrap()
    }

    pub fn say<M: Remote>(&self, f: usize, message: M) {
        let master = self.master.pid();
        let say = Say(Box::new(move |node| node.tell(&master, message).unwrap()));
        self.tenants[f].party.tell(say).unwrap();
    }

    pub async fn offers(&self, f: usize) -> Vec<Arc<Offer>> {
        let books = self.books().await;
        books
            .offers
            .of_framework(&self.tenants[f].id)
            .cloned()
            .collect()
    }

    pub fn revive(&self, f: usize) {
        let framework_id = self.tenants[f].id.clone();
        let roles = Default::default();
        self.say(
            f,
            ReviveOffers {
                framework_id,
                roles,
            },
        );
    }

    pub async fn decline(&self, f: usize, refuse_seconds: f64) {
        let offers = self.offers(f).await;
        let offer_ids = offers.iter().map(|offer| offer.id.clone()).collect();
        let framework_id = self.tenants[f].id.clone();
        let filters = Filters { refuse_seconds };
        self.say(
            f,
            DeclineOffers {
                framework_id,
                offer_ids,
                filters,
            },
        );
    }

    /// No resources are offered that are in use or offered already.
    pub async fn check(&self) {
        let books = self.books().await;
        for agent in books.agents.iter() {
            let mut all = Resources::new();
            for offer in books.offers.of_agent(&agent.id) {
                all += &offer.resources.unallocate();
            }
            let on = books.tasks.on_agent(&agent.id);
            for held in on.iter().flat_map(|on| on.held().values()) {
                all += &held.unallocate();
            }
            let total = &agent.info.resources;
            assert!(
                total.contains(&all.non_revocable()),
                "of {total} are out {all}"
            );
            assert!(
                agent.oversubscribed.contains(&all.revocable()),
                "lent are out {all}"
            );
        }
    }

    pub async fn outcome(&self) -> Outcome {
        for f in 0..ROLES.len() {
            self.revive(f);
        }
        self.pass(20 * STEP).await;
        self.check().await;
        let books = self.books().await;
        let agents = books.agents.iter().map(|agent| {
            let on = books.tasks.on_agent(&agent.id);
            let held = on.map(|on| on.held().clone()).unwrap_or_default();
            let (total, lent) = (agent.info.resources.clone(), agent.oversubscribed.clone());
            (agent.info.hostname.clone(), total, lent, held)
        });
        let (mut own, mut rest) = (Vec::new(), Quantities::new());
        for tenant in &self.tenants {
            let mut all = Resources::new();
            for offer in books.offers.of_framework(&tenant.id) {
                all += &offer.resources.unallocate();
            }
            rest += &all.unreserved().non_revocable().quantities();
            own.push((all.all_reserved(), all.revocable()));
        }
        self.node.clear_tap();
        let whoever = Pid::new("allocator", self.node.id().clone(), 0);
        let measured = AllocatorRef::new(self.node.refer(whoever)).measure();
        let mut measured = measured.await.unwrap();
        let of_books =
            |name: &str| name.contains("/resources/") || name.contains("/offer_filters/");
        measured.retain(|name, _| of_books(name) && !name.contains("/quota/"));
        Outcome {
            measured,
            agents: agents.collect(),
            own,
            rest,
            quotas: BTreeMap::clone(&books.quotas),
            weights: BTreeMap::clone(&books.weights),
        }
    }
}
