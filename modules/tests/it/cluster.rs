//! A cluster from the allocator's view: the real allocator and sorter, and a master that records
//! the allocator's messages.

use std::collections::BTreeMap;
use std::time::Duration;

use module_api::allocator::{
    AgentAdded, Begin, FrameworkAdded, Grant, Granted, InverseGrant, InverseGranted,
    LongTasksBounded, Recovered, StillLacking, TasksWanted, VictimsNamed, Withdrawn,
};
use module_api::{AllocatorRef, Parameters};
use protocol::{AgentId, AgentInfo, Capability, Demand, FrameworkId, FrameworkInfo};
use resources::{Resources, Revocable};
use runtime::prelude::*;
use runtime::testing::simulate;

/// Time to wait for the immediate effects of a fact; far below the allocation interval.
pub const MOMENT: Duration = Duration::from_millis(10);

/// Records grants with their time, and withdrawals.
#[derive(Default)]
struct Scribe {
    grants: Vec<Grant>,
    withdrawn: Vec<Withdrawn>,
    inverse: Vec<InverseGrant>,
    revocation: AboutRevocation,
    lacking: Vec<StillLacking>,
}

/// Requests for tasks, tasks to revoke, and bounds on long tasks.
pub type AboutRevocation = (Vec<TasksWanted>, Vec<VictimsNamed>, Vec<LongTasksBounded>);

#[derive(Message)]
#[rtype(result = "(Vec<Grant>, Vec<Withdrawn>)")]
struct Read;

#[derive(Message)]
#[rtype(result = "Vec<InverseGrant>")]
struct ReadInverse;

#[derive(Message)]
#[rtype(result = "Vec<StillLacking>")]
struct ReadLacking;

#[derive(Message)]
#[rtype(result = "AboutRevocation")]
struct ReadRevocation;

impl Actor for Scribe {
    type Context = Context<Self>;
}

impl Process for Scribe {
    fn accepts(handlers: &mut RemoteHandlers<Self>) {
        handlers.accept_local::<Granted>();
        handlers.accept_local::<Withdrawn>();
        handlers.accept_local::<InverseGranted>();
        handlers.accept_local::<TasksWanted>();
        handlers.accept_local::<VictimsNamed>();
        handlers.accept_local::<StillLacking>();
        handlers.accept_local::<LongTasksBounded>();
    }
}

impl Handler<Granted> for Scribe {
    type Result = ();

    fn handle(&mut self, granted: Granted, _: &mut Context<Self>) {
        self.grants.extend(granted.grants);
    }
}

impl Handler<Withdrawn> for Scribe {
    type Result = ();

    fn handle(&mut self, withdrawn: Withdrawn, _: &mut Context<Self>) {
        self.withdrawn.push(withdrawn);
    }
}

impl Handler<InverseGranted> for Scribe {
    type Result = ();

    fn handle(&mut self, granted: InverseGranted, _: &mut Context<Self>) {
        self.inverse.extend(granted.grants);
    }
}

impl Handler<TasksWanted> for Scribe {
    type Result = ();

    fn handle(&mut self, wanted: TasksWanted, _: &mut Context<Self>) {
        self.revocation.0.push(wanted);
    }
}

impl Handler<VictimsNamed> for Scribe {
    type Result = ();

    fn handle(&mut self, named: VictimsNamed, _: &mut Context<Self>) {
        self.revocation.1.push(named);
    }
}

impl Handler<StillLacking> for Scribe {
    type Result = ();

    fn handle(&mut self, lacking: StillLacking, _: &mut Context<Self>) {
        self.lacking.push(lacking);
    }
}

impl Handler<ReadLacking> for Scribe {
    type Result = MessageResult<ReadLacking>;

    fn handle(&mut self, _: ReadLacking, _: &mut Context<Self>) -> Self::Result {
        MessageResult(std::mem::take(&mut self.lacking))
    }
}

impl Handler<LongTasksBounded> for Scribe {
    type Result = ();

    fn handle(&mut self, bounded: LongTasksBounded, _: &mut Context<Self>) {
        self.revocation.2.push(bounded);
    }
}

impl Handler<ReadRevocation> for Scribe {
    type Result = MessageResult<ReadRevocation>;

    fn handle(&mut self, _: ReadRevocation, _: &mut Context<Self>) -> Self::Result {
        MessageResult(std::mem::take(&mut self.revocation))
    }
}

impl Handler<ReadInverse> for Scribe {
    type Result = MessageResult<ReadInverse>;

    fn handle(&mut self, _: ReadInverse, _: &mut Context<Self>) -> Self::Result {
        MessageResult(std::mem::take(&mut self.inverse))
    }
}

impl Handler<Read> for Scribe {
    type Result = MessageResult<Read>;

    fn handle(&mut self, _: Read, _: &mut Context<Self>) -> Self::Result {
        MessageResult((
            std::mem::take(&mut self.grants),
            std::mem::take(&mut self.withdrawn),
        ))
    }
}

pub struct Cluster {
    pub node: Node,
    pub allocator: AllocatorRef,
    scribe: Handle<Scribe>,
}

/// Runs a test with a cluster without agents and frameworks.
pub fn simulate_cluster<F: Future>(test: impl FnOnce(Cluster) -> F) -> F::Output {
    simulate(|node| async move { test(Cluster::new(&node, &[])).await })
}

impl Cluster {
    /// A cluster without agents or frameworks.
    pub fn new(node: &Node, weights: &[(&str, f64)]) -> Self {
        Self::sorted_by(node, &Parameters::none("drf"), weights)
    }

    /// The same with the sorter that these parameters name.
    pub fn sorted_by(node: &Node, sorter: &Parameters, weights: &[(&str, f64)]) -> Self {
        Self::of(node, sorter, &Parameters::none("hierarchical"), weights)
    }

    /// The same with the modules that these parameters name.
    pub fn of(
        node: &Node,
        sorter: &Parameters,
        allocator: &Parameters,
        weights: &[(&str, f64)],
    ) -> Self {
        let modules = modules::registry();
        let sorter = modules.sorter(node, sorter.module(), sorter).unwrap();
        let allocator = modules.allocator(node, allocator.module(), sorter, allocator);
        Self::around(node, allocator.unwrap(), weights)
    }

    /// The same with a running allocator.
    pub fn around(node: &Node, allocator: AllocatorRef, weights: &[(&str, f64)]) -> Self {
        let scribe = node.spawn("master", Scribe::default()).unwrap();
        let cluster = Self {
            node: node.clone(),
            allocator,
            scribe,
        };
        cluster.begin(weights);
        cluster
    }

    pub fn begin(&self, weights: &[(&str, f64)]) {
        let weights = weights
            .iter()
            .map(|(role, weight)| ((*role).to_owned(), *weight));
        let begin = Begin {
            master: self.scribe.pid(),
            allocation_interval: Duration::from_secs(1),
            weights: weights.collect(),
            quotas: BTreeMap::new(),
            region: Some("home".to_owned()),
            agents_expected: 0,
        };
        self.allocator.tell(begin).unwrap();
    }

    /// Sends `Begin` with these quotas and this number of expected agents.
    pub fn begin_with(&self, quotas: BTreeMap<String, protocol::Quota>, agents_expected: u64) {
        let begin = Begin {
            master: self.scribe.pid(),
            allocation_interval: Duration::from_secs(1),
            weights: BTreeMap::new(),
            quotas,
            region: Some("home".to_owned()),
            agents_expected,
        };
        self.allocator.tell(begin).unwrap();
    }

    pub fn agent(&self, name: &str, total: &str) {
        self.agent_with(name, total, vec![]);
    }

    pub fn agent_with(&self, name: &str, total: &str, used: Vec<(FrameworkId, Resources)>) {
        self.allocator.tell(added(name, total, used)).unwrap();
    }

    pub fn framework(&self, name: &str, roles: &str, capabilities: &[Capability]) {
        self.allocator
            .tell(subscribed(name, roles, capabilities))
            .unwrap();
    }

    /// A framework in one role with this demand.
    pub fn demanding(&self, name: &str, role: &str, demand: Demand) {
        let mut added = subscribed(name, role, &[]);
        added.wants.demands.insert(role.to_owned(), demand);
        self.allocator.tell(added).unwrap();
    }

    /// Grants since the last call, after all immediate effects.
    pub async fn granted(&self) -> Vec<Grant> {
        self.told().await.0
    }

    /// Grants since the last call, after this time.
    pub async fn granted_within(&self, time: Duration) -> Vec<Grant> {
        self.wait(time).await;
        let read = self.scribe.ask(Read, Duration::from_secs(1));
        read.await.unwrap().0
    }

    /// Grants and withdrawals since the last call, after all immediate effects.
    pub async fn told(&self) -> (Vec<Grant>, Vec<Withdrawn>) {
        self.node.clock().advance(MOMENT).await;
        self.scribe.ask(Read, Duration::from_secs(1)).await.unwrap()
    }

    /// Requests for inverse offers since the last call, as `framework agent`, after all immediate
    /// effects.
    pub async fn asked_to_leave(&self) -> Vec<String> {
        self.node.clock().advance(MOMENT).await;
        let read = self.scribe.ask(ReadInverse, Duration::from_secs(1));
        let line = |grant: InverseGrant| format!("{} {}", grant.framework_id, grant.agent_id);
        read.await.unwrap().into_iter().map(line).collect()
    }

    /// Messages about revocation since the last call, after all immediate effects.
    pub async fn about_revocation(&self) -> AboutRevocation {
        self.node.clock().advance(MOMENT).await;
        let read = self.scribe.ask(ReadRevocation, Duration::from_secs(1));
        read.await.unwrap()
    }

    /// The last reported roles with unmet guarantees, since the last call.
    pub async fn lacking(&self) -> Vec<String> {
        self.node.clock().advance(MOMENT).await;
        let read = self.scribe.ask(ReadLacking, Duration::from_secs(1));
        let said = read.await.unwrap().into_iter();
        let line = |said: StillLacking| match said.roles.is_empty() {
            true => "none".to_owned(),
            false => said.roles.into_iter().collect::<Vec<_>>().join(" "),
        };
        said.map(line).collect()
    }

    pub async fn wait(&self, time: Duration) {
        self.node.clock().advance(time).await;
    }

    /// Recovers a grant.
    pub fn give_back(&self, grant: &Grant, refuse: Option<Duration>) {
        self.give_back_part(grant, grant.resources.clone(), refuse);
    }

    pub fn give_back_part(&self, grant: &Grant, resources: Resources, refuse: Option<Duration>) {
        let recovered = Recovered {
            framework_id: grant.framework_id.clone(),
            agent_id: grant.agent_id.clone(),
            resources,
            refuse,
            beside_offer: false,
        };
        self.allocator.tell(recovered).unwrap();
    }

    /// Frees resources while another offer of their agent is unanswered.
    pub fn free_beside_offer(&self, grant: &Grant, resources: Resources) {
        let recovered = Recovered {
            framework_id: grant.framework_id.clone(),
            agent_id: grant.agent_id.clone(),
            resources,
            refuse: None,
            beside_offer: true,
        };
        self.allocator.tell(recovered).unwrap();
    }
}

pub fn added(name: &str, total: &str, used: Vec<(FrameworkId, Resources)>) -> AgentAdded {
    let info = AgentInfo::new(format!("{name}.example"), Resources::parse(total).unwrap());
    AgentAdded {
        agent_id: agent(name),
        session: 1,
        info,
        oversubscribed: Resources::new(),
        used,
    }
}

pub fn subscribed(name: &str, roles: &str, capabilities: &[Capability]) -> FrameworkAdded {
    let mut info = FrameworkInfo::new("nobody", name);
    info.roles = roles.split(',').map(str::to_owned).collect();
    info.capabilities = capabilities.iter().copied().collect();
    FrameworkAdded {
        framework_id: framework(name),
        info,
        wants: Default::default(),
        active: true,
    }
}

pub fn agent(name: &str) -> AgentId {
    AgentId::new(name).unwrap()
}

pub fn framework(name: &str) -> FrameworkId {
    FrameworkId::new(name).unwrap()
}

/// Oversubscribed resources.
pub fn lent(text: &str) -> Resources {
    Resources::parse(text)
        .unwrap()
        .to_revocable(Revocable::Throttleable)
        .unwrap()
}

/// Grants as `framework agent resources`, in order.
pub fn lines(grants: &[Grant]) -> Vec<String> {
    let line = |grant: &Grant| {
        let amount = grant.resources.quantities();
        format!("{} {} {amount}", grant.framework_id, grant.agent_id)
    };
    grants.iter().map(line).collect()
}

/// Number of grants of each framework.
pub fn counts(grants: &[Grant]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for grant in grants {
        *counts.entry(grant.framework_id.to_string()).or_default() += 1;
    }
    counts
}
