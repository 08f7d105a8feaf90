//! Tests of a master with recording agents and schedulers, and an allocator that the test controls.
//!
//! | module | contents |
//! |---|---|
//! | `agents` | agents that register, are lost, return and leave |
//! | `delivery` | calls to a failed master, as the next one handles them |
//! | `fencing` | a peer that has seen a leader of a later term |
//! | `frameworks` | frameworks that lose their schedulers, come back and end |
//! | `launch` | from an offer to a finished task |
//! | `long_tasks` | the bound on long tasks |
//! | `offer_expiry` | unanswered offers: hold times, budgets and expiry |
//! | `operations` | operations of frameworks and operators |
//! | `over` | ended frameworks whose scheduler keeps the id |
//! | `registry` | a registry that is slow, refuses, or reports another leader |
//! | `revocation` | tasks revoked for a role's guarantee |
//! | `roles` | quota and weights |
//! | `statuses` | statuses that the master makes: state, source, reason and message |
//! | `turns` | rate limits: calls, commands and subscriptions |
//! | `verbs` | the ACL that decides each operator's command over a link |

mod agents;

mod delivery;
mod fencing;
mod frameworks;
mod launch;
mod long_tasks;
mod offer_expiry;
mod operations;
mod over;
mod registry;
mod revocation;
mod roles;
mod statuses;
mod turns;
mod verbs;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use module_api::allocator::*;
use protocol::digest::DigestKey;
use protocol::message::operation::*;
use protocol::message::operator::{Operate, OperationRefused};
use protocol::message::oversubscription::OversubscribedChanged;
use protocol::message::registration::*;
use protocol::message::scheduler::*;
use protocol::message::standby::*;
use protocol::message::state::*;
use protocol::message::task::*;
use protocol::*;
use resources::{Resources, Role as ResourceRole};
use runtime::observe::tap::{Fate, Passing};
use runtime::prelude::*;
use runtime::testing::memory::Network;
use runtime::testing::simulate_network;
use testkit::{assert_contains, assert_matches, assert_starts};

use super::*;
use crate::registry::{FaultPlan, FaultyRegistry};

const PATIENCE: Duration = Duration::from_secs(5);

/// The messages that an actor has received, in order, as short texts.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    fn push(&self, line: String) {
        self.0.lock().unwrap().push(line);
    }

    /// The messages since the last call.
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

/// An agent, a scheduler or an allocator that records its messages.
struct Recorder {
    log: Log,
    offers: Arc<Mutex<Vec<Offer>>>,
    statuses: Arc<Mutex<Vec<TaskStatus>>>,
    answers: Arc<AtomicBool>,
}

impl Actor for Recorder {
    type Context = Context<Self>;
}

macro_rules! records {
    ($($message:ident($roles:expr) => $line:expr;)*) => {
        impl Process for Recorder {
            fn accepts(handlers: &mut RemoteHandlers<Self>) {
                $(handlers.accept::<$message>($roles);)*
                handlers.accept::<PingAgent>(&[Role::Master]);
                handlers.accept::<OffersMade>(&[Role::Master]);
                handlers.accept::<StatusChanged>(&[Role::Master]);
            }
        }
        $(impl Handler<$message> for Recorder {
            type Result = ();
            fn handle(&mut self, message: $message, _: &mut Context<Self>) {
                let line: fn(&$message) -> String = $line;
                self.log.push(line(&message));
            }
        })*
    };
}

records! {
    RunTasks(&[Role::Master]) => |m| {
        let of = |t: &TaskInfo| t.group.as_ref().map_or(String::new(), |group| format!(" of {group}"));
        let one = |t: &TaskInfo| format!("{}={}{}", t.task_id, t.resources, of(t));
        let ids: Vec<_> = m.tasks.iter().map(one).collect();
        if ids.len() > 9 { format!("run {} tasks", ids.len()) } else { format!("run {}", ids.join(" ")) }
    };
    KillTask(&[Role::Master]) => |m| format!("kill {}", m.task_id);
    AcknowledgeStatus(&[Role::Master]) => |m| format!("acknowledge {}", m.task_id);
    ApplyOperation(&[Role::Master]) => |m| format!("apply {} to {}", m.conversion.name(), m.version.0[0]);
    AcknowledgeOperation(&[Role::Master]) => |m| format!("acknowledge {}", m.operation_id);
    OperationChanged(&[Role::Master]) => |m| format!("{} {}", m.status.operation_id, m.status.state);
    Converted(&[]) => |m| format!(
        "converted {} {} to {}",
        short(&m.framework_id),
        m.consumed.unallocate().brief(),
        m.converted.unallocate().brief()
    );
    EndExecutor(&[Role::Master]) => |m| format!("end {}", m.executor_id);
    ShutDownFramework(&[Role::Master]) => |m| format!("shut down {}", short(&m.framework_id));
    FrameworkChanged(&[Role::Master]) => |m| format!("framework {}", m.framework.name);
    DisownTasks(&[Role::Master]) => |m| {
        let ids: Vec<_> = m.tasks.iter().map(|(_, t)| t.to_string()).collect();
        format!("disown {}", ids.join(" "))
    };
    FrameworkMessage(&[Role::Master]) => |m| format!("message {}", String::from_utf8_lossy(&m.data));
    InverseOffersMade(&[Role::Master]) => |m| {
        let made: Vec<_> = m.inverse_offers.iter().map(|one| format!("{} of {}", short(&one.id), short(&one.agent_id))).collect();
        format!("inverse {}", made.join(" "))
    };
    InverseOfferRescinded(&[Role::Master]) => |m| format!("rescind inverse {}", short(&m.inverse_offer_id));
    TasksRevoked(&[Role::Master]) => |m| {
        let ids: Vec<_> = m.tasks.iter().map(|status| status.task_id.to_string()).collect();
        format!("revoked {} for {} in {:?}", ids.join(" "), m.role.as_deref().unwrap_or("nobody"), m.grace)
    };
    TasksListed(&[]) => |m| {
        let task = |task: &ListedTask| {
            let leaves = if task.leaves { " leaves" } else { "" };
            format!(" {}*{}={}{leaves}", task.task_id, task.priority, task.resources.unallocate())
        };
        let tasks: String = m.tasks.iter().map(task).collect();
        format!("tasks {}:{tasks}; consumed {}", m.number, m.consumed.as_ref().map_or(0, |of| of.len()))
    };
    DrainTasks(&[Role::Master]) => |m| format!("drain within {:?}", m.max_grace_period);
    ShutDownAgent(&[Role::Master]) => |m| format!("shut down: {}", m.reason);
    UnavailabilityChanged(&[]) => |m| {
        let start = m.unavailability.map(|away| away.start.as_nanos());
        format!("agent {} away {start:?}", short(&m.agent_id))
    };
    InverseAnswered(&[]) => |m| {
        let refuse = m.refuse.map_or(String::new(), |d| format!(" for {d:?}"));
        format!("answered {} {}{refuse}", short(&m.framework_id), short(&m.agent_id))
    };
    OfferRescinded(&[Role::Master]) => |m| format!("rescind {}", short(&m.offer_id));
    Lost(&[Role::Master]) => |m| match &m.executor_id {
        Some(executor) => format!("lost {executor}"),
        None => format!("lost {}", short(&m.agent_id)),
    };
    FrameworkFailed(&[Role::Master]) => |m| format!("failed {}", m.message);
    SchedulerElected(&[Role::Master]) => |m| format!("you lead {}", short(&m.subscribed.framework_id));
    Begin(&[]) => |m| {
        let (quotas, weights) = (m.quotas.keys().collect::<Vec<_>>(), &m.weights);
        match quotas.is_empty() {
            true => "begin".to_owned(),
            false => format!("begin with quotas of {quotas:?}, weights {weights:?} and {} agents", m.agents_expected),
        }
    };
    QuotasChanged(&[]) => |m| format!("quotas of {:?}", m.quotas.keys().collect::<Vec<_>>());
    WeightsChanged(&[]) => |m| format!("weights {:?}", m.weights);
    WhitelistChanged(&[]) => |m| match &m.hosts {
        Some(hosts) => format!("hosts {}", hosts.iter().cloned().collect::<Vec<_>>().join(" ")),
        None => "all hosts".to_owned(),
    };
    AgentAdded(&[]) => |m| {
        let used: Vec<_> = m.used.iter().map(|(f, r)| format!("{}={}", short(f), r.unallocate())).collect();
        format!("agent {} used [{}]", short(&m.agent_id), used.join(" "))
    };
    AgentRemoved(&[]) => |m| format!("no agent {}", short(&m.agent_id));
    AgentActivity(&[]) => |m| format!("agent {} active {}", short(&m.agent_id), m.active);
    AgentOversubscribed(&[]) => |m| format!("agent {} lends {}", short(&m.agent_id), m.total);
    FrameworkAdded(&[]) => |m| format!("framework {} active {}", short(&m.framework_id), m.active);
    FrameworkRemoved(&[]) => |m| format!("no framework {}", short(&m.framework_id));
    OfferBudgetSpent(&[]) => |m| format!("budget {} {:?}", short(&m.framework_id), m.most);
    FrameworkActivity(&[]) => |m| format!("framework {} active {}", short(&m.framework_id), m.active);
    Recovered(&[]) => |m| {
        let refuse = m.refuse.map_or(String::new(), |d| format!(" for {d:?}"));
        let beside = if m.beside_offer { " beside an offer" } else { "" };
        format!("recovered {} {}{refuse}{beside}", short(&m.framework_id), m.resources.unallocate())
    };
    Suppressed(&[]) => |m| format!("suppressed {}", short(&m.framework_id));
    Revived(&[]) => |m| format!("revived {}", short(&m.framework_id));
}

impl Handler<PingAgent> for Recorder {
    type Result = Reply<Pong>;
    fn handle(&mut self, ping: PingAgent, _: &mut Context<Self>) -> Reply<Pong> {
        let (promise, reply) = promise();
        if !ping.connected {
            self.log.push("register again".to_owned());
        }
        if self.answers.load(Ordering::Relaxed) {
            promise.answer(Pong);
        }
        reply
    }
}

/// Makes an actor send to the master.
struct SendAs(Box<dyn FnOnce(&Node) + Send>);

impl Message for SendAs {
    type Result = ();
}

impl Handler<SendAs> for Recorder {
    type Result = ();
    fn handle(&mut self, SendAs(say): SendAs, ctx: &mut Context<Self>) {
        say(ctx.node());
    }
}

/// Makes an actor hang.
struct Hang;

impl Message for Hang {
    type Result = ();
}

impl Handler<Hang> for Recorder {
    type Result = ();
    fn handle(&mut self, _: Hang, ctx: &mut Context<Self>) {
        ctx.wait(std::future::pending::<()>().into_actor(self));
    }
}

impl Handler<OffersMade> for Recorder {
    type Result = ();
    fn handle(&mut self, message: OffersMade, _: &mut Context<Self>) {
        self.log.push(format!("{} offers", message.offers.len()));
        self.offers.lock().unwrap().extend(message.offers);
    }
}

impl Handler<StatusChanged> for Recorder {
    type Result = ();
    fn handle(&mut self, StatusChanged { status }: StatusChanged, _: &mut Context<Self>) {
        let reason = status.reason.map_or("", |reason| reason.name());
        let line = format!("{} {} {reason}", status.task_id, status.state);
        self.log.push(line.trim_end().to_owned());
        self.statuses.lock().unwrap().push(status);
    }
}

/// The end of an id, which is the same in every run.
fn short(id: &impl std::fmt::Display) -> String {
    let id = id.to_string();
    id.rsplit('-').next().unwrap().to_owned()
}

/// One actor on a node of its own.
struct Member {
    node: Node,
    handle: Handle<Recorder>,
    pid: Pid,
    master: Pid,
    log: Log,
    offers: Arc<Mutex<Vec<Offer>>>,
    statuses: Arc<Mutex<Vec<TaskStatus>>>,
    answers: Arc<AtomicBool>,
}

impl Member {
    fn received(&self) -> Vec<String> {
        self.log.take()
    }

    /// Checks the messages since the last call; ` | ` separates them.
    #[track_caller]
    fn receives(&self, expected: &str) {
        assert_eq!(self.received().join(" | "), expected);
    }

    fn tell<M: Remote>(&self, message: M) {
        self.node.tell(&self.master, message).unwrap();
    }

    /// As [`Member::tell`], but sent by the actor itself.
    fn say<M: Remote>(&self, message: M) {
        let master = self.master.clone();
        let say = SendAs(Box::new(move |node| node.tell(&master, message).unwrap()));
        self.handle.tell(say).unwrap();
    }

    fn offers(&self) -> Vec<Offer> {
        std::mem::take(&mut self.offers.lock().unwrap())
    }

    fn statuses(&self) -> Vec<TaskStatus> {
        std::mem::take(&mut self.statuses.lock().unwrap())
    }
}

/// A master and its surroundings.
struct World {
    network: Network,
    node: Node,
    master: Handle<Master>,
    allocator: Log,
    faults: FaultPlan,
}

fn recorder(node: &Node, name: &str) -> (Pid, Log, Member) {
    let (log, answers) = (Log::default(), Arc::new(AtomicBool::new(true)));
    let (offers, statuses) = (Arc::default(), Arc::default());
    let actor = Recorder {
        log: log.clone(),
        offers: Arc::clone(&offers),
        statuses: Arc::clone(&statuses),
        answers: answers.clone(),
    };
    let handle = node.spawn(name, actor).unwrap();
    let pid = handle.pid();
    let member = Member {
        handle,
        node: node.clone(),
        pid: pid.clone(),
        master: pid.clone(),
        log: log.clone(),
        offers,
        statuses,
        answers,
    };
    (pid, log, member)
}

/// Runs a test with a master without agents and frameworks.
fn simulate_world<F: Future>(test: impl FnOnce(World) -> F) {
    simulate_network(|network| async move {
        test(World::new(network, Config::default()).await).await;
    });
}

/// Runs a test with an agent and a framework.
fn simulate_pair<F: Future>(
    test: impl FnOnce(World, (Member, AgentId), (Member, FrameworkId)) -> F,
) {
    simulate_world(|world| async move {
        let agent = world.agent("agent-1").await;
        let framework = world.framework("web", |_| ()).await;
        test(world, agent, framework).await;
    });
}

/// Runs a test with an agent and a framework that runs task `t` there.
fn simulate_task<F: Future>(
    change: impl FnOnce(&mut FrameworkInfo),
    test: impl FnOnce(World, (Member, AgentId), (Member, FrameworkId)) -> F,
) {
    simulate_world(|world| async move {
        let (agent, a) = world.agent("agent-1").await;
        let (scheduler, f) = world.framework("web", change).await;
        world.launch(&scheduler, &f, task("t", &a, "cpus:1")).await;
        world.update(&agent, &f, &a, "t", TaskState::Running).await;
        world.allocator();
        agent.received();
        scheduler.received();
        test(world, (agent, a), (scheduler, f)).await;
    });
}

impl World {
    async fn new(network: Network, config: Config) -> World {
        let heard = [Role::Agent, Role::Framework, Role::Operator];
        let node = network.node("master", Role::Master, &heard);
        let faults = FaultPlan::none();
        Self::on(network, node, config, faults).await
    }

    /// A master that leads a group in that term.
    async fn of_term(network: Network, term: u64) -> World {
        let heard = [Role::Agent, Role::Framework, Role::Operator];
        let node = network.node("master", Role::Master, &heard);
        Self::under(network, node, Config::default(), term, FaultPlan::none()).await
    }

    async fn on(network: Network, node: Node, config: Config, faults: FaultPlan) -> World {
        Self::under(network, node, config, 0, faults).await
    }

    async fn under(
        network: Network,
        node: Node,
        config: Config,
        term: u64,
        faults: FaultPlan,
    ) -> World {
        Self::after(network, node, config, term, faults, None).await
    }

    async fn after(
        network: Network,
        node: Node,
        config: Config,
        term: u64,
        faults: FaultPlan,
        before: Option<Arc<MasterState>>,
    ) -> World {
        let (pid, allocator, _) = recorder(&node, "allocator");
        // Any incarnation, as the registry of modules names it.
        let pid = Pid::new(pid.name(), pid.node().clone(), 0);
        let registry = FaultyRegistry::new(faults.clone(), node.clock().clone());
        let allocator_ref = AllocatorRef::new(node.refer(pid));
        let registry = Box::new(registry);
        let started = start_after(&node, config, term, allocator_ref, registry, before).unwrap();
        node.clock().settle().await;
        World {
            network,
            node,
            master: started.master,
            allocator,
            faults,
        }
    }

    /// Lets all messages arrive.
    async fn settle(&self) {
        self.node.clock().settle().await;
    }

    async fn pass(&self, seconds: u64) {
        self.node
            .clock()
            .advance(Duration::from_secs(seconds))
            .await;
    }

    fn allocator(&self) -> Vec<String> {
        self.allocator.take()
    }

    async fn member(&self, name: &str, actor: &str, role: Role) -> Member {
        let node = self.network.node(name, role, &[Role::Master]);
        self.member_on(node, actor).await
    }

    async fn member_on(&self, node: Node, actor: &str) -> Member {
        let (_, _, mut member) = recorder(&node, actor);
        member.master = node.find("master", "master", PATIENCE).await.unwrap();
        member
    }

    /// A registered agent with 8 cpus and 8192 mem, and its id.
    async fn agent(&self, name: &str) -> (Member, AgentId) {
        let agent = self.member(name, "agent", Role::Agent).await;
        let id = register(&agent, None, vec![]).await.unwrap().agent_id;
        (agent, id)
    }

    /// A subscribed framework, and its id.
    async fn framework(
        &self,
        name: &str,
        change: impl FnOnce(&mut FrameworkInfo),
    ) -> (Member, FrameworkId) {
        let scheduler = self.member(name, "scheduler", Role::Framework).await;
        let mut info = FrameworkInfo::new("nobody", name);
        change(&mut info);
        let id = subscribe(&scheduler, info).await.unwrap().framework_id;
        (scheduler, id)
    }

    /// Grants these resources to the framework in role `*`, and returns the resulting offer.
    async fn offer(
        &self,
        scheduler: &Member,
        framework: &FrameworkId,
        agent: &AgentId,
        text: &str,
    ) -> Offer {
        self.grant(vec![grant(framework, agent, text)]).await;
        scheduler.offers().pop().expect("an offer")
    }

    /// Sends a message, and waits for all that follows from it.
    async fn tell<M: Remote>(&self, from: &Member, message: M) {
        from.tell(message);
        self.settle().await;
    }

    /// As [`World::tell`], but sent by the actor itself.
    async fn say<M: Remote>(&self, from: &Member, message: M) {
        from.say(message);
        self.settle().await;
    }

    /// The agent reports a state of a task.
    async fn update(
        &self,
        agent: &Member,
        framework: &FrameworkId,
        id: &AgentId,
        task: &str,
        state: TaskState,
    ) {
        let update = update(&agent.node, framework, id, task, state);
        self.tell(agent, update).await;
    }

    /// The framework launches a task with an offer of just its resources.
    async fn launch(&self, scheduler: &Member, framework: &FrameworkId, task: TaskInfo) {
        let text = task.resources.to_string();
        let offer = self
            .offer(scheduler, framework, &task.agent_id, &text)
            .await;
        let call = accept(framework, &[&offer], vec![task]);
        self.tell(scheduler, call).await;
    }

    /// Sends grants with the agents' current sessions.
    async fn grant(&self, mut grants: Vec<Grant>) {
        let state = self.state().await;
        for grant in &mut grants {
            let agent = state.agents.get(&grant.agent_id);
            grant.session = agent.map_or(0, |agent| state.agents.allocator_session(agent));
        }
        self.node
            .tell(&self.master.pid(), Granted { grants })
            .unwrap();
        self.settle().await;
    }

    /// Checks the facts that the allocator has received since the last call; ` | ` separates them.
    #[track_caller]
    fn facts_are(&self, expected: &str) {
        assert_eq!(self.allocator().join(" | "), expected);
    }

    async fn state(&self) -> Arc<MasterState> {
        self.master.ask(TakeSnapshot, PATIENCE).await.unwrap()
    }
}

/// Makes a framework partition-aware.
fn plain(_: &mut FrameworkInfo) {}

fn aware(info: &mut FrameworkInfo) {
    info.capabilities.insert(Capability::PartitionAware);
}

fn kill_task(framework: &FrameworkId, id: &str) -> KillTask {
    KillTask {
        framework_id: framework.clone(),
        task_id: TaskId::new(id).unwrap(),
        agent_id: None,
        kill_policy: None,
    }
}

fn reconcile(framework: &FrameworkId, tasks: Vec<(TaskId, Option<AgentId>)>) -> ReconcileTasks {
    ReconcileTasks {
        framework_id: framework.clone(),
        tasks,
    }
}

fn resources(text: &str) -> Resources {
    text.parse().unwrap()
}

fn grant(framework: &FrameworkId, agent: &AgentId, text: &str) -> Grant {
    let star = ResourceRole::new("*").unwrap();
    Grant {
        framework_id: framework.clone(),
        role: "*".to_owned(),
        agent_id: agent.clone(),
        session: 0,
        resources: resources(text).allocate(&star),
    }
}

fn registration(agent: &Member, id: Option<AgentId>, tasks: Vec<RunningTask>) -> RegisterAgent {
    RegisterAgent {
        held: AgentInventory {
            tasks,
            ..AgentInventory::default()
        },
        ..testkit::values::registration(
            AgentInfo {
                id,
                ..AgentInfo::new(
                    agent.node.id().name(),
                    resources("cpus:8;mem:8192;ports:[31000-32000]"),
                )
            },
            agent.pid.clone(),
        )
    }
}

async fn register(
    agent: &Member,
    id: Option<AgentId>,
    tasks: Vec<RunningTask>,
) -> Result<AgentRegistered, RegistrationRefused> {
    let message = registration(agent, id, tasks);
    agent
        .node
        .ask(&agent.master, message, PATIENCE)
        .await
        .unwrap()
}

async fn subscribe(
    scheduler: &Member,
    framework: FrameworkInfo,
) -> Result<Subscribed, SubscriptionRefused> {
    let message = Subscribe {
        framework,
        scheduler: scheduler.pid.clone(),
        wants: Default::default(),
    };
    scheduler
        .node
        .ask(&scheduler.master, message, PATIENCE)
        .await
        .unwrap()
}

fn task(id: &str, agent: &AgentId, text: &str) -> TaskInfo {
    TaskInfo::new(TaskId::new(id).unwrap(), agent.clone(), resources(text))
        .with_command(CommandInfo::shell("true"))
}

fn decline(framework: &FrameworkId, offers: &[&Offer]) -> DeclineOffers {
    DeclineOffers {
        framework_id: framework.clone(),
        offer_ids: offers.iter().map(|offer| offer.id.clone()).collect(),
        filters: Filters {
            refuse_seconds: 5.0,
        },
    }
}

fn accept(framework: &FrameworkId, offers: &[&Offer], tasks: Vec<TaskInfo>) -> AcceptOffers {
    AcceptOffers {
        framework_id: framework.clone(),
        offer_ids: offers.iter().map(|offer| offer.id.clone()).collect(),
        operations: vec![Operation::Launch { tasks }],
        filters: protocol::Filters::default(),
    }
}

/// An update of a task, with the newest state equal to it.
fn update(
    node: &Node,
    framework: &FrameworkId,
    agent: &AgentId,
    id: &str,
    state: TaskState,
) -> TaskUpdated {
    let task = TaskId::new(id).unwrap();
    let mut status = TaskStatus::new(task, state, Source::Executor, node.clock().wall());
    status.uuid = Some(Uuid(node.fresh_uuid()));
    let agent_id = agent.clone();
    let framework_id = framework.clone();
    TaskUpdated {
        agent_id,
        update: StatusUpdate {
            framework_id,
            status,
            latest_state: state,
        },
    }
}

fn acknowledgement(framework: &FrameworkId, of: &TaskUpdated) -> AcknowledgeStatus {
    AcknowledgeStatus {
        framework_id: framework.clone(),
        agent_id: of.agent_id.clone(),
        task_id: of.update.status.task_id.clone(),
        uuid: of.update.status.uuid.unwrap(),
    }
}

fn running(framework: &FrameworkId, info: TaskInfo, state: TaskState) -> RunningTask {
    RunningTask {
        framework_id: framework.clone(),
        info,
        state,
    }
}
