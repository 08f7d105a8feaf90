//! A small cluster: the real master, allocator, sorter and scheduler drivers in virtual time, with
//! fake agents.

use std::collections::BTreeMap;
use std::time::Duration;

use master::{Config, MemoryRegistry};
use module_api::Parameters;
use protocol::message::operator::{UpdateQuotas, UpdateRefused, ViewRoles};
use protocol::message::registration::{PingAgent, Pong};
use protocol::message::scheduler::{AcknowledgeStatus, KillTask};
use protocol::message::task::{EndExecutor, RunTasks, TaskUpdated};
use protocol::view::RoleView;
use protocol::{
    AgentId, AgentInfo, CommandInfo, Demand, ExecutorId, FrameworkId, FrameworkInfo, Offer, Quota,
    Source, StatusUpdate, TaskId, TaskInfo, TaskState, TaskStatus, Uuid,
};
use resources::{Quantities, Resources};
use runtime::prelude::*;
use runtime::testing::memory::Network;
use scheduler_driver::{DriverRef, Scheduler, SchedulerDriver};

const PATIENCE: Duration = Duration::from_secs(5);

/// The command of a task that ignores kills and ends only with its executor.
pub const STUBBORN: &str = "stubborn";

/// An agent: each task runs at once and ends after the seconds in its command, or when it is
/// killed.
struct Hands {
    id: Option<AgentId>,
    master: Pid,
    running: BTreeMap<(FrameworkId, TaskId), (ExecutorId, CommandInfo)>,
}

impl Actor for Hands {
    type Context = Context<Self>;
}

impl Process for Hands {
    fn accepts(handlers: &mut RemoteHandlers<Self>) {
        let master = &[Role::Master];
        handlers.accept::<PingAgent>(master);
        handlers.accept::<RunTasks>(master);
        handlers.accept::<KillTask>(master);
        handlers.accept::<EndExecutor>(master);
        handlers.accept::<AcknowledgeStatus>(master);
    }
}

impl Hands {
    fn say(&self, framework: &FrameworkId, task: &TaskId, state: TaskState, ctx: &Context<Self>) {
        let Some(id) = &self.id else { return };
        let now = ctx.clock().wall();
        let mut status = TaskStatus::new(task.clone(), state, Source::Executor, now);
        status.uuid = Some(Uuid(ctx.node().fresh_uuid()));
        let update = TaskUpdated {
            agent_id: id.clone(),
            update: StatusUpdate {
                framework_id: framework.clone(),
                status,
                latest_state: state,
            },
        };
        ctx.node().tell(&self.master, update).unwrap();
    }

    fn end(&mut self, key: &(FrameworkId, TaskId), state: TaskState, ctx: &Context<Self>) {
        if self.running.remove(key).is_some() {
            self.say(&key.0, &key.1, state, ctx);
        }
    }
}

/// Sets the agent's id.
#[derive(Message)]
#[rtype(result = "()")]
struct Be(AgentId);

impl Handler<Be> for Hands {
    type Result = ();
    fn handle(&mut self, Be(id): Be, _: &mut Context<Self>) {
        self.id = Some(id);
    }
}

impl Handler<PingAgent> for Hands {
    type Result = Reply<Pong>;
    fn handle(&mut self, _: PingAgent, _: &mut Context<Self>) -> Reply<Pong> {
        let (promise, reply) = promise();
        promise.answer(Pong);
        reply
    }
}

impl Handler<RunTasks> for Hands {
    type Result = ();
    fn handle(&mut self, run: RunTasks, ctx: &mut Context<Self>) {
        let framework = run.framework.id.unwrap();
        for task in run.tasks {
            let key = (framework.clone(), task.task_id.clone());
            let command = task.command.unwrap();
            if let Ok(seconds) = command.value.parse() {
                let key = key.clone();
                ctx.after(Duration::from_secs(seconds), move |hands, ctx| {
                    hands.end(&key, TaskState::Finished, ctx);
                });
            }
            let executor = ExecutorId::from(&task.task_id);
            self.running.insert(key, (executor, command));
            self.say(&framework, &task.task_id, TaskState::Running, ctx);
        }
    }
}

impl Handler<KillTask> for Hands {
    type Result = ();
    fn handle(&mut self, kill: KillTask, ctx: &mut Context<Self>) {
        let key = (kill.framework_id, kill.task_id);
        let stubborn = |(_, command): &(_, CommandInfo)| command.value == STUBBORN;
        if !self.running.get(&key).is_some_and(stubborn) {
            self.end(&key, TaskState::Killed, ctx);
        }
    }
}

impl Handler<EndExecutor> for Hands {
    type Result = ();
    fn handle(&mut self, end: EndExecutor, ctx: &mut Context<Self>) {
        let all = self.running.iter();
        let its = all.filter(|((framework, _), (executor, _))| {
            *framework == end.framework_id && *executor == end.executor_id
        });
        let its: Vec<_> = its.map(|(key, _)| key.clone()).collect();
        for key in its {
            self.end(&key, TaskState::Failed, ctx);
        }
    }
}

impl Handler<AcknowledgeStatus> for Hands {
    type Result = ();
    fn handle(&mut self, _: AcknowledgeStatus, _: &mut Context<Self>) {}
}

/// See the head of this file.
pub struct MiniCluster {
    network: Network,
    pub node: Node,
    operator: Node,
    master: Pid,
}

impl MiniCluster {
    /// A cluster without agents and frameworks, with these allocator parameters.
    pub async fn new(network: Network, allocator: &[(&str, &str)]) -> Self {
        Self::with(network, allocator, Config::default()).await
    }

    /// The same, with this master configuration.
    pub async fn with(network: Network, allocator: &[(&str, &str)], config: Config) -> Self {
        let heard = [Role::Agent, Role::Framework, Role::Operator];
        let node = network.node("master", Role::Master, &heard);
        let modules = modules::registry();
        let sorter = modules.sorter(&node, "drf", &Parameters::none("drf"));
        let given = Parameters::none("hierarchical");
        let given = allocator
            .iter()
            .fold(given, |given, (key, value)| given.with(*key, *value));
        let allocator = modules.allocator(&node, "hierarchical", sorter.unwrap(), &given);
        let registry = Box::new(MemoryRegistry::new());
        let started = master::start(&node, config, 0, allocator.unwrap(), registry).unwrap();
        node.clock().settle().await;
        let operator = network.node("operator", Role::Operator, &[Role::Master]);
        let master = operator.find("master", "master", PATIENCE).await.unwrap();
        drop(started);
        Self {
            network,
            node,
            operator,
            master,
        }
    }

    /// An agent on that host.
    pub async fn agent(&self, host: &str, total: &str) -> AgentId {
        let node = self.network.node(host, Role::Agent, &[Role::Master]);
        let master = node.find("master", "master", PATIENCE).await.unwrap();
        let hands = Hands {
            id: None,
            master: master.clone(),
            running: BTreeMap::new(),
        };
        let hands = node.spawn("agent", hands).unwrap();
        let register = testkit::values::registration(
            AgentInfo::new(host, total.parse().unwrap()),
            hands.pid(),
        );
        let registered = node.ask(&master, register, PATIENCE).await;
        let id = registered.unwrap().unwrap().agent_id;
        hands.tell(Be(id.clone())).unwrap();
        self.settle().await;
        id
    }

    /// A framework with that name and role.
    pub async fn framework(&self, name: &str, role: &str, scheduler: impl Scheduler) -> DriverRef {
        self.framework_at(name, name, role, scheduler).await
    }

    /// The same, with its scheduler on that node.
    pub async fn framework_at(
        &self,
        node: &str,
        name: &str,
        role: &str,
        scheduler: impl Scheduler,
    ) -> DriverRef {
        let demand = Demand::default();
        self.framework_demanding(node, name, role, demand, scheduler)
            .await
    }

    /// The same, with this demand.
    pub async fn framework_demanding(
        &self,
        node: &str,
        name: &str,
        role: &str,
        demand: Demand,
        scheduler: impl Scheduler,
    ) -> DriverRef {
        let node = self.network.node(node, Role::Framework, &[Role::Master]);
        let mut info = FrameworkInfo::new("nobody", name);
        info.roles = [role.to_owned()].into();
        let demands = match demand == Demand::default() {
            true => BTreeMap::new(),
            false => BTreeMap::from([(role.to_owned(), demand)]),
        };
        let driver = SchedulerDriver::new(["master"], info).demands(demands);
        let driver = driver.start(&node, scheduler).unwrap();
        self.settle().await;
        driver
    }

    /// Sets a role's guarantee.
    pub async fn guarantee(&self, role: &str, amounts: &str) -> Result<(), UpdateRefused> {
        self.quota(role, amounts, "").await
    }

    /// The same, with a limit.
    pub async fn quota(
        &self,
        role: &str,
        guarantees: &str,
        limits: &str,
    ) -> Result<(), UpdateRefused> {
        let quota = Quota {
            guarantees: Quantities::parse(guarantees).unwrap(),
            limits: Quantities::parse(limits).unwrap(),
        };
        let update = UpdateQuotas {
            quotas: BTreeMap::from([(role.to_owned(), quota)]),
            force: false,
        };
        let answer = self.operator.ask(&self.master, update, PATIENCE).await;
        self.settle().await;
        answer.unwrap()
    }

    /// An operator's view of that role.
    pub async fn role(&self, role: &str) -> RoleView {
        let asked = self.operator.ask(&self.master, ViewRoles, PATIENCE).await;
        let mut all = asked.unwrap().unwrap().into_iter();
        all.find(|one| one.name == role).unwrap()
    }

    pub async fn settle(&self) {
        self.node.clock().settle().await;
    }

    pub async fn pass(&self, seconds: u64) {
        self.node
            .clock()
            .advance(Duration::from_secs(seconds))
            .await;
    }
}

/// A command task with these resources of an offer, which is reduced by them; none if they are not
/// there.
pub fn task(name: &str, command: &str, needs: &str, offer: &mut Offer) -> Option<TaskInfo> {
    let needs: Resources = needs.parse().unwrap();
    let resources = offer.resources.find(&needs)?;
    offer.resources.subtract(&resources).ok()?;
    Some(
        TaskInfo::new(
            TaskId::new(name).unwrap(),
            offer.agent_id.clone(),
            resources,
        )
        .with_command(CommandInfo::shell(command)),
    )
}
