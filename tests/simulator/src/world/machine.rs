//! A simulated machine: an agent's launcher without real processes. Each container is a simulated
//! process with an executor in it, or a command.
//!
//! It receives orders from the agent's containerizer through its [`Launcher`], and can end all of
//! its processes or a single one. When its agent ends, it behaves like the real zygote:
//! containers that outlive the agent continue, others end, and the next agent gets a list of both.
//! It waits for that agent for as long as the machine runs. Its load is set from outside. Nothing
//! starts on the real machine.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use agent::host::procfs;
use agent::launcher::{
    ContainerEnd, ContainerProgram, Events, LaunchError, LaunchRequest, LeftContainer,
};
use agent::oversubscription::monitor::Sampler;
use agent::{Launcher, LauncherEvent};
use executor_driver::{Environment, environment};
use futures_util::future::{Either, select};
use modules::qos_controller::{Load, LoadSource};
use protocol::{CommandInfo, ContainerId, FrameworkId, TaskId, Termination};
use runtime::{Clock, Instant, NodeId, Role};
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;

use crate::bug::ContainerBug;
use crate::event::{CommandTask, EventKind};
use crate::load::command::Command;
use crate::report::hash::derived;
use crate::world::command::{self, KILLED};
use crate::world::executor;
use crate::world::isolator::{self, MachineIsolation};
use crate::world::process::Process;
use crate::world::sim_env::SimEnv;

/// Maximum queued orders; one more fails its launch.
const ORDERS_MAX: usize = 65_536;
/// Duration of the start of a process.
const FORK: Duration = Duration::from_millis(3);
/// Maximum further delay before a command starts.
const START_MAX: Duration = Duration::from_millis(20);
/// A doomed executor dies within this time after its start: during its registration or its first
/// task.
const DOOMED_LIFE_MAX: Duration = Duration::from_millis(60);
/// Added to the load averages of a busy machine.
const LOAD_BUSY: f64 = 1000.0;
/// The first process id.
const PIDS_FROM: i32 = 1000;

/// An agent's order to its machine.
enum Order {
    Launch(Box<LaunchRequest>),
    Terminate(ContainerId, Duration),
    Kill(ContainerId),
    Forget(ContainerId),
    KeepNothing,
}

/// The start times of processes, by their ids.
type Births = Arc<Mutex<BTreeMap<i32, Instant>>>;

/// One agent's machine, from one boot to its end. Clones share it.
#[derive(Clone)]
pub struct Machine(Rc<Shared>);

struct Shared {
    env: SimEnv,
    agent: Rc<str>,
    births: Births,
    isolation: MachineIsolation,
    running: RefCell<BTreeMap<ContainerId, Running>>,
    /// Containers that outlive their agent, and whose end no agent has stored.
    outliving: RefCell<BTreeSet<ContainerId>>,
    /// The ends of those that have ended.
    ends: RefCell<BTreeMap<ContainerId, ContainerEnd>>,
    /// The agent's event receiver, if there is an agent.
    events: RefCell<Option<Events>>,
    /// The task that receives the agent's orders.
    serving: RefCell<Option<AbortHandle>>,
    pids: Cell<i32>,
    /// The number of executors that are to die right after their start.
    doomed: Rc<Cell<u32>>,
    /// Whether it is busy with other work.
    busy: Arc<AtomicBool>,
    tasks: RefCell<Vec<AbortHandle>>,
}

struct Running {
    body: Body,
    /// Whether the kill was ordered.
    kill: Option<oneshot::Sender<bool>>,
    life: Option<AbortHandle>,
    pid: i32,
}

/// What runs in a container.
enum Body {
    Executor {
        process: Process,
        node: NodeId,
    },
    /// Receives grace periods.
    Command(mpsc::UnboundedSender<Duration>),
    /// The containers of a task group.
    Group,
}

/// The agent's launcher on its machine.
struct SimulatedLauncher {
    orders: mpsc::Sender<Order>,
    left: Vec<LeftContainer>,
    attached: Option<oneshot::Sender<Events>>,
}

impl Machine {
    /// A machine without containers. `doomed` is the number of executors that are to die right
    /// after their start, shared with the faults.
    pub fn start(env: &SimEnv, agent: &str, doomed: &Rc<Cell<u32>>) -> Self {
        Self(Rc::new(Shared {
            env: env.clone(),
            agent: agent.into(),
            births: Births::default(),
            isolation: MachineIsolation::new(&env.watch, agent),
            running: RefCell::default(),
            outliving: RefCell::default(),
            events: RefCell::default(),
            ends: RefCell::default(),
            serving: RefCell::default(),
            pids: Cell::new(PIDS_FROM),
            doomed: doomed.clone(),
            busy: Arc::default(),
            tasks: RefCell::default(),
        }))
    }

    /// The launcher for the agent that starts now. Call it in the simulation's `LocalSet`, after
    /// the previous agent's end.
    pub fn launcher(&self) -> Box<dyn Launcher> {
        let (orders, queue) = mpsc::channel(ORDERS_MAX);
        let (attached, events) = oneshot::channel();
        let shared = &self.0;
        let serving = tokio::task::spawn_local(serve(shared.clone(), queue, events));
        *shared.serving.borrow_mut() = Some(serving.abort_handle());
        let running = shared.running.borrow();
        let outliving = shared.outliving.borrow();
        for container in outliving.iter() {
            let body = running.get(container).map(|running| &running.body);
            if matches!(body, Some(Body::Command(_))) {
                shared.env.watch.fact(EventKind::CommandOutlived {
                    agent: &shared.agent,
                    container,
                });
            }
        }
        let left = outliving.iter().map(|container_id| LeftContainer {
            container_id: container_id.clone(),
            pid: running.get(container_id).map(|running| running.pid),
            age: Duration::ZERO,
        });
        Box::new(SimulatedLauncher {
            orders,
            left: left.collect(),
            attached: Some(attached),
        })
    }

    /// Handles the end of the agent's process: containers that do not outlive it end without a
    /// report.
    pub fn lose_agent(&self) {
        let shared = &self.0;
        if let Some(serving) = shared.serving.take() {
            serving.abort();
        }
        shared.events.take();
        let ending: Vec<ContainerId> = {
            let outliving = shared.outliving.borrow();
            let running = shared.running.borrow();
            let ending = running.keys().filter(|id| !outliving.contains(*id));
            // A nested container ends before its parent.
            ending.rev().cloned().collect()
        };
        for container in ending {
            shared.remove(&container);
        }
    }

    /// The processes as the agent's monitor sees them: each uses half of a core and grows slowly.
    pub fn sampler(&self, clock: &Clock) -> Sampler {
        let (births, clock) = (self.0.births.clone(), clock.clone());
        Arc::new(move |leaders| {
            let births = births.lock().unwrap_or_else(PoisonError::into_inner);
            let sample = |leader: &i32| {
                let lived = clock.now() - *births.get(leader)?;
                Some((*leader, vec![process(*leader, lived)]))
            };
            Ok(leaders.iter().filter_map(sample).collect())
        })
    }

    /// The load averages: half a core for each process, and much more while it is busy.
    pub fn load(&self) -> impl Fn() -> LoadSource + Clone + Send + Sync + 'static {
        let (births, busy) = (self.0.births.clone(), self.0.busy.clone());
        move || {
            let (births, busy) = (births.clone(), busy.clone());
            Box::new(move || {
                let births = births.lock().unwrap_or_else(PoisonError::into_inner);
                let other = match busy.load(Ordering::Relaxed) {
                    true => LOAD_BUSY,
                    false => 0.0,
                };
                let average = other + births.len() as f64 / 2.0;
                Some(Load {
                    five: average,
                    fifteen: average,
                })
            })
        }
    }

    /// What isolators have prepared on it.
    pub fn isolation(&self) -> &MachineIsolation {
        &self.0.isolation
    }

    /// Sets whether it is busy with other work.
    pub fn set_busy(&self, busy: bool) {
        self.0.busy.store(busy, Ordering::Relaxed);
    }

    /// Kills one of the running executors by a signal, chosen by `chance`. `false` if none runs.
    pub fn kill_one(&self, chance: u64) -> bool {
        let candidates: Vec<ContainerId> = {
            let running = self.0.running.borrow();
            let candidates = running.iter().filter(|(_, one)| one.kill.is_some());
            candidates.map(|(container, _)| container.clone()).collect()
        };
        let place = chance.checked_rem(candidates.len() as u64);
        let victim = place.and_then(|place| candidates.get(usize::try_from(place).ok()?));
        if let Some(victim) = victim {
            self.0.kill(victim, false);
        }
        victim.is_some()
    }

    /// Ends everything at once, without a report to the agent.
    pub fn halt(&self) {
        for task in self.0.tasks.take() {
            task.abort();
        }
        self.0.keep_nothing();
        self.lose_agent();
    }
}

/// A process of this age.
fn process(pid: i32, lived: Duration) -> procfs::Process {
    let ticks = u64::try_from(lived.as_millis() / 10).unwrap_or(u64::MAX);
    procfs::Process {
        pid,
        parent: 1,
        group: pid,
        session: pid,
        zombie: false,
        user_ticks: ticks * 2 / 5,
        system_ticks: ticks / 10,
        threads: 2,
        resident_pages: 2000 + lived.as_secs().min(3600),
    }
}

impl Launcher for SimulatedLauncher {
    fn left(&mut self) -> Vec<LeftContainer> {
        std::mem::take(&mut self.left)
    }

    fn discard_checkpoints(&mut self) {
        let _ = self.orders.try_send(Order::KeepNothing); // the machine may be gone
    }

    fn attach(&mut self, events: Events) {
        if let Some(attached) = self.attached.take() {
            let _ = attached.send(events); // the machine may be gone
        }
    }

    fn launch(&mut self, request: LaunchRequest) -> Result<(), LaunchError> {
        let order = Order::Launch(Box::new(request));
        self.orders.try_send(order).map_err(|error| LaunchError {
            reason: format!("the machine takes no order: {error}"),
        })
    }

    fn terminate(&mut self, container: &ContainerId, grace: Duration) {
        let order = Order::Terminate(container.clone(), grace);
        let _ = self.orders.try_send(order); // as for a kill
    }

    fn forget(&mut self, container: &ContainerId) {
        let _ = self.orders.try_send(Order::Forget(container.clone())); // as for a kill
    }

    fn kill(&mut self, container: &ContainerId) {
        // Without a machine there is nothing left to kill.
        let _ = self.orders.try_send(Order::Kill(container.clone()));
    }
}

async fn serve(
    shared: Rc<Shared>,
    mut orders: mpsc::Receiver<Order>,
    events: oneshot::Receiver<Events>,
) {
    let Ok(events) = events.await else { return };
    *shared.events.borrow_mut() = Some(events);
    let ends = shared.ends.borrow().clone();
    for (container_id, end) in ends {
        shared.tell(LauncherEvent::Exited { container_id, end });
    }
    while let Some(order) = orders.recv().await {
        match order {
            Order::Launch(request) => shared.launch(*request),
            Order::KeepNothing => shared.keep_nothing(),
            Order::Forget(container) => {
                shared.outliving.borrow_mut().remove(&container);
                shared.ends.borrow_mut().remove(&container);
            }
            Order::Terminate(container, grace) => {
                let running = shared.running.borrow();
                if let Some(Body::Command(stops)) = running.get(&container).map(|one| &one.body) {
                    let _ = stops.send(grace); // it may have ended by itself
                }
            }
            Order::Kill(container) => shared.kill(&container, true),
        }
    }
}

impl Shared {
    fn keep_nothing(&self) {
        self.outliving.borrow_mut().clear();
        self.ends.borrow_mut().clear();
    }

    /// Kills a container's processes.
    fn kill(&self, container: &ContainerId, is_ordered: bool) {
        let kill = {
            let mut running = self.running.borrow_mut();
            running.get_mut(container).and_then(|one| one.kill.take())
        };
        let Some(kill) = kill else { return };
        if !is_ordered {
            self.env.watch.fact(EventKind::ExecutorKilled {
                agent: &self.agent,
                container,
            });
        }
        let _ = kill.send(is_ordered); // it may have ended by itself
    }

    /// Kills the executor that has just started, if a fault wants it.
    fn kill_if_doomed(self: &Rc<Self>, container: &ContainerId) {
        if self.doomed.get() == 0 {
            return;
        }
        self.doomed.set(self.doomed.get() - 1);
        let chance =
            derived(self.env.seed, container.as_str(), 0) % DOOMED_LIFE_MAX.as_millis() as u64;
        let (shared, container) = (self.clone(), container.clone());
        let kill = tokio::task::spawn_local(async move {
            shared.env.clock.sleep(Duration::from_millis(chance)).await;
            shared.kill(&container, false);
        });
        self.tasks.borrow_mut().push(kill.abort_handle());
    }

    /// Reports to the agent, if there is one. Ends of outliving containers are kept.
    fn tell(&self, event: LauncherEvent) {
        if let LauncherEvent::Exited { container_id, end } = &event
            && self.outliving.borrow().contains(container_id)
        {
            let mut ends = self.ends.borrow_mut();
            ends.insert(container_id.clone(), end.clone());
        }
        let events = self.events.borrow().clone();
        if let Some(events) = events {
            events(event);
        }
    }

    fn launch(self: &Rc<Self>, request: LaunchRequest) {
        let container = request.container_id.clone();
        if request.outlives {
            self.outliving.borrow_mut().insert(container.clone());
        }
        let started = match &request.program {
            _ if isolator::is_impossible(&request.plan) => Err("it cannot be isolated".to_owned()),
            ContainerProgram::Executor(_) => self.launch_executor(&request),
            ContainerProgram::Command(command) => self.launch_command(&request, command),
            ContainerProgram::Group => {
                self.launch_group(&container);
                Ok(())
            }
        };
        if let Err(reason) = started {
            self.outliving.borrow_mut().remove(&container);
            return self.tell(LauncherEvent::Failed {
                container_id: container,
                reason,
            });
        }
        self.kill_if_doomed(&container);
    }

    fn launch_group(self: &Rc<Self>, container: &ContainerId) {
        let (pid, killed) = self.run(container, Body::Group);
        self.tell(LauncherEvent::Started {
            container_id: container.clone(),
            pid,
        });
        let (shared, id) = (self.clone(), container.clone());
        let end = async move {
            let is_ordered = killed.await.unwrap_or(false);
            for nested in shared.inside(&id) {
                if shared.remove(&nested) {
                    shared.tell(LauncherEvent::Exited {
                        container_id: nested,
                        end: ContainerEnd::Leader(Termination::Signaled(KILLED)),
                    });
                }
            }
            ContainerEnd::Leader(match is_ordered {
                true => Termination::Exited(0),
                false => Termination::Signaled(KILLED),
            })
        };
        self.oversee(container.clone(), end);
    }

    fn launch_executor(self: &Rc<Self>, request: &LaunchRequest) -> Result<(), String> {
        let container = request.container_id.clone();
        let environment = Environment::from(|name| request.environment.get(name).cloned());
        let environment = environment.map_err(|error| error.to_string())?;
        let (process, node, ended) = Process::start(|| {
            let env = &self.env;
            let name = executor::node_of(&container);
            let clock = env.fresh_clock();
            let node = env.node(&name, 0, Role::Executor, &[Role::Agent], &clock);
            let local = format!("executor:{container}");
            node.set_dialer(env.local.place(&node, &self.agent, &local));
            let id = node.id().clone();
            let main = async move {
                clock.sleep(FORK).await;
                executor::live(node, environment).await
            };
            (id, main)
        });
        let (pid, killed) = self.run(&container, Body::Executor { process, node });
        self.tell(LauncherEvent::Started {
            container_id: container.clone(),
            pid,
        });
        let end = async move {
            let killed = async { killed.await.map(drop) };
            match select(ended, std::pin::pin!(killed)).await {
                Either::Left((Ok(termination), _)) => ContainerEnd::Leader(termination),
                _ => ContainerEnd::Leader(Termination::Signaled(KILLED)),
            }
        };
        self.oversee(container, end);
        Ok(())
    }

    fn launch_command(
        self: &Rc<Self>,
        request: &LaunchRequest,
        command: &CommandInfo,
    ) -> Result<(), String> {
        let container = request.container_id.clone();
        let parent = container.parent();
        if parent.is_some_and(|parent| !self.running.borrow().contains_key(&parent)) {
            return Err("its parent has ended".to_owned());
        }
        // The load names the task of a nested container in its command.
        let variable = |name| {
            let own = request.environment.get(name);
            let given = own.or_else(|| command.environment.get(name));
            given.cloned().unwrap_or_default()
        };
        let framework = FrameworkId::new(variable(environment::FRAMEWORK_ID));
        let task = TaskId::new(variable(environment::TASK_ID));
        let (Ok(framework), Ok(task)) = (framework, task) else {
            return Err("a command without the ids of its framework and task".to_owned());
        };
        let command = match Command::parse(&command.value) {
            Ok(command) => command,
            Err(error) => {
                self.tell(LauncherEvent::Exited {
                    container_id: container,
                    end: ContainerEnd::CommandNotStarted(error.to_string()),
                });
                return Ok(());
            }
        };
        let (sender, mut stops) = mpsc::unbounded_channel();
        let (pid, killed) = self.run(&container, Body::Command(sender));
        let chance = derived(self.env.seed, container.as_str(), 1) % 1000;
        let delay = FORK + START_MAX.mul_f64(chance as f64 / 1000.0);
        let (shared, id) = (self.clone(), container.clone());
        let life = async move {
            let clock = &shared.env.clock;
            clock.sleep(delay).await;
            let owner = CommandTask {
                agent: &shared.agent,
                container: &id,
                framework: &framework,
                task: &task,
            };
            shared.env.watch.fact(EventKind::CommandStarted(owner));
            shared.tell(LauncherEvent::Started {
                container_id: id.clone(),
                pid,
            });
            let end = command::run(command, clock, &mut stops).await;
            if matches!(end, ContainerEnd::Command { .. }) {
                shared.env.watch.fact(EventKind::CommandEnded(owner));
            }
            end
        };
        let end = async move {
            match select(std::pin::pin!(life), killed).await {
                Either::Left((end, _)) => end,
                Either::Right((Ok(true), _)) => ContainerEnd::Command {
                    termination: Termination::Signaled(KILLED),
                    kill_wanted: true,
                },
                Either::Right(_) => ContainerEnd::Leader(Termination::Signaled(KILLED)),
            }
        };
        self.oversee(container, end);
        Ok(())
    }

    /// The containers that end with this one.
    fn inside(&self, container: &ContainerId) -> Vec<ContainerId> {
        if self.env.watch.has_bug(ContainerBug::SurvivingNested) {
            return Vec::new();
        }
        let running = self.running.borrow();
        let inside = running.keys().filter(|one| one.is_inside(container));
        inside.cloned().collect()
    }

    /// Adds a container. Returns its process id, and the receiver of a kill.
    fn run(&self, container: &ContainerId, body: Body) -> (i32, oneshot::Receiver<bool>) {
        let (kill, killed) = oneshot::channel();
        let pid = self.pids.replace(self.pids.get() + 1);
        self.births
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(pid, self.env.clock.now());
        let running = Running {
            body,
            kill: Some(kill),
            life: None,
            pid,
        };
        self.running.borrow_mut().insert(container.clone(), running);
        self.env.watch.fact(EventKind::ProcessStarted {
            agent: &self.agent,
            container,
        });
        (pid, killed)
    }

    /// Waits for the end of a container and reports it to the agent.
    fn oversee(
        self: &Rc<Self>,
        container: ContainerId,
        end: impl Future<Output = ContainerEnd> + 'static,
    ) {
        let (shared, container_id) = (self.clone(), container.clone());
        let life = tokio::task::spawn_local(async move {
            let end = end.await;
            if let Some(running) = shared.running.borrow_mut().get_mut(&container_id) {
                running.life = None; // this is it
            }
            if shared.remove(&container_id) {
                shared.tell(LauncherEvent::Exited { container_id, end });
            }
        });
        if let Some(running) = self.running.borrow_mut().get_mut(&container) {
            running.life = Some(life.abort_handle());
        }
    }

    /// Removes the container's process. `false` if there was none.
    fn remove(&self, container: &ContainerId) -> bool {
        let Some(running) = self.running.borrow_mut().remove(container) else {
            return false;
        };
        if let Some(life) = &running.life {
            life.abort();
        }
        self.end(container, &running);
        true
    }

    fn end(&self, container: &ContainerId, running: &Running) {
        self.births
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&running.pid);
        if let Body::Executor { process, node } = &running.body {
            self.env.local.gone(node);
            process.kill();
        }
        self.env.watch.fact(EventKind::ProcessEnded {
            agent: &self.agent,
            container,
        });
    }
}
