//! A simulated machine: an agent's launcher without real processes. Each container is a simulated
//! process with an executor in it.
//!
//! It receives orders from the agent's containerizer through its [`Launcher`], and can end all of
//! its processes or a single executor. When its agent ends, it behaves like the real zygote:
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
use agent::launcher::{Events, ExecutorProgram, LaunchError, LaunchRequest, LeftContainer};
use agent::oversubscription::monitor::Sampler;
use agent::{Launcher, LauncherEvent};
use executor_driver::Environment;
use modules::qos_controller::{Load, LoadSource};
use protocol::{ContainerId, Termination};
use runtime::{Clock, Instant, NodeId, Role};
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;

use crate::event::EventKind;
use crate::report::hash::derived;
use crate::world::executor;
use crate::world::process::Process;
use crate::world::sim_env::SimEnv;

/// Maximum queued orders; one more fails its launch.
const ORDERS_MAX: usize = 65_536;
/// Duration of the start of a process.
const FORK: Duration = Duration::from_millis(3);
/// The signal of a kill.
const KILLED: i32 = 9;
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
    Kill(ContainerId),
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
    running: RefCell<BTreeMap<ContainerId, Running>>,
    /// Containers that outlive their agent, and whose end was reported to no agent.
    outliving: RefCell<BTreeSet<ContainerId>>,
    /// The agent's event receiver, if there is an agent.
    events: RefCell<Option<Events>>,
    /// Events for the next agent.
    unreported: RefCell<Vec<LauncherEvent>>,
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
    process: Process,
    node: NodeId,
    kill: Option<oneshot::Sender<()>>,
    life: Option<AbortHandle>,
    pid: i32,
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
            running: RefCell::default(),
            outliving: RefCell::default(),
            events: RefCell::default(),
            unreported: RefCell::default(),
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
        let left = outliving.iter().map(|container_id| LeftContainer {
            container_id: container_id.clone(),
            pid: running.get(container_id).map(|running| running.pid),
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
            let mut unreported = shared.unreported.borrow_mut();
            unreported.retain(|event| container_of(event).is_some_and(|id| outliving.contains(id)));
            let running = shared.running.borrow();
            let ending = running.keys().filter(|id| !outliving.contains(*id));
            ending.cloned().collect()
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
            self.0.kill_unordered(victim);
        }
        victim.is_some()
    }

    /// Ends everything at once, without a report to the agent.
    pub fn halt(&self) {
        for task in self.0.tasks.take() {
            task.abort();
        }
        self.0.outliving.borrow_mut().clear();
        self.lose_agent();
    }
}

/// The container of an event.
fn container_of(event: &LauncherEvent) -> Option<&ContainerId> {
    match event {
        LauncherEvent::Started { container_id, .. }
        | LauncherEvent::Failed { container_id, .. }
        | LauncherEvent::Exited { container_id, .. } => Some(container_id),
        LauncherEvent::Lost { .. } => None,
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
    for event in shared.unreported.take() {
        shared.tell(event);
    }
    while let Some(order) = orders.recv().await {
        match order {
            Order::Launch(request) => shared.launch(*request),
            Order::KeepNothing => shared.outliving.borrow_mut().clear(),
            Order::Kill(container) => {
                let mut running = shared.running.borrow_mut();
                let kill = running.get_mut(&container).and_then(|one| one.kill.take());
                if let Some(kill) = kill {
                    let _ = kill.send(()); // it may have ended by itself
                }
            }
        }
    }
}

impl Shared {
    /// Kills an executor without an order.
    fn kill_unordered(&self, container: &ContainerId) {
        let kill = {
            let mut running = self.running.borrow_mut();
            running.get_mut(container).and_then(|one| one.kill.take())
        };
        if let Some(kill) = kill {
            self.env.watch.fact(EventKind::ExecutorKilled {
                agent: &self.agent,
                container,
            });
            let _ = kill.send(()); // it may have ended by itself
        }
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
        let kill_unordered = tokio::task::spawn_local(async move {
            shared.env.clock.sleep(Duration::from_millis(chance)).await;
            shared.kill_unordered(&container);
        });
        self.tasks.borrow_mut().push(kill_unordered.abort_handle());
    }

    /// Reports to the agent, or to the next one.
    fn tell(&self, event: LauncherEvent) {
        let events = self.events.borrow().clone();
        let Some(events) = events else {
            return self.unreported.borrow_mut().push(event);
        };
        if let LauncherEvent::Exited { container_id, .. } = &event {
            self.outliving.borrow_mut().remove(container_id);
        }
        events(event);
    }

    fn launch(self: &Rc<Self>, request: LaunchRequest) {
        let container = request.container_id.clone();
        let failed = |reason: String| LauncherEvent::Failed {
            container_id: container.clone(),
            reason,
        };
        let environment = Environment::from(|name| request.environment.get(name).cloned());
        let environment = match environment {
            Ok(environment) => environment,
            Err(error) => return self.tell(failed(error.to_string())),
        };
        if request.outlives {
            self.outliving.borrow_mut().insert(container.clone());
        }
        let own = matches!(request.program, ExecutorProgram::Custom(_));
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
                executor::live(node, environment, own).await
            };
            (id, main)
        });
        let (kill, killed) = oneshot::channel();
        let pid = self.pids.replace(self.pids.get() + 1);
        self.births
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(pid, self.env.clock.now());
        let running = Running {
            process,
            node,
            kill: Some(kill),
            life: None,
            pid,
        };
        self.running.borrow_mut().insert(container.clone(), running);
        self.env.watch.fact(EventKind::ProcessStarted {
            agent: &self.agent,
            container: &container,
        });
        self.tell(LauncherEvent::Started {
            container_id: container.clone(),
            pid,
        });
        let life = self.clone().oversee(container.clone(), ended, killed);
        let life = tokio::task::spawn_local(life).abort_handle();
        if let Some(running) = self.running.borrow_mut().get_mut(&container) {
            running.life = Some(life);
        }
        self.kill_if_doomed(&container);
    }

    /// Waits for the end of a container's process and reports it to the agent.
    async fn oversee(
        self: Rc<Self>,
        container: ContainerId,
        ended: oneshot::Receiver<Termination>,
        killed: oneshot::Receiver<()>,
    ) {
        let termination = match futures_util::future::select(ended, killed).await {
            futures_util::future::Either::Left((Ok(termination), _)) => termination,
            _ => Termination::Signaled(KILLED),
        };
        if let Some(running) = self.running.borrow_mut().get_mut(&container) {
            running.life = None; // this is it
        }
        if self.remove(&container) {
            self.tell(LauncherEvent::Exited {
                container_id: container,
                termination,
            });
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
        self.env.local.gone(&running.node);
        running.process.kill();
        self.env.watch.fact(EventKind::ProcessEnded {
            agent: &self.agent,
            container,
        });
    }
}
