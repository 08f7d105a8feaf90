//! A machine: an agent's launcher without real processes. Each container is a process of the rehearsal with an executor in it.
//!
//! Hears orders from the agent's containerizer through its [`Launcher`]. Remembers what runs, so that all of it can be gone at once, or one
//! executor alone. When its agent goes, it does what the real zygote does: what outlives the agent runs on, all else ends, and the next agent
//! is told what there is and what has ended meanwhile. It waits for that one as long as the machine is there. It is as loaded as it is told
//! to be. It starts nothing on the real machine.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use agent::launcher::{Events, ExecutorProgram, LaunchError, LaunchRequest, Left};
use agent::monitor::Sampler;
use agent::procfs;
use agent::{Launcher, LauncherEvent};
use executor_driver::Environment;
use modules::qos_controller::{Load, LoadSource};
use protocol::{ContainerId, Termination};
use runtime::{Clock, Instant, NodeId, Role};
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;

use crate::event::What;
use crate::executor;
use crate::ground::Ground;
use crate::hash::derived;
use crate::world::process::Process;

/// Orders that may wait; one more fails its launch.
const ORDERS_MAX: usize = 65_536;
/// How long the start of a process takes.
const FORK: Duration = Duration::from_millis(3);
/// The signal of a kill.
const KILLED: i32 = 9;
/// An executor that is to die as soon as it has started does so within this time: in the midst of its registration, or in its first task.
const STRIKE_MAX: Duration = Duration::from_millis(60);
/// What other work adds to the load averages of a busy machine.
const LOAD_BUSY: f64 = 1000.0;
/// Numbers of processes begin here.
const PIDS_FROM: i32 = 1000;

/// What an agent wants of its machine.
enum Order {
    Launch(Box<LaunchRequest>),
    Kill(ContainerId),
    KeepNothing,
}

/// When each process began, by its number.
type Births = Arc<Mutex<BTreeMap<i32, Instant>>>;

/// One agent's machine, from one start of it to its end. Clones are the same machine.
#[derive(Clone)]
pub struct Machine(Rc<Shared>);

struct Shared {
    ground: Ground,
    agent: Rc<str>,
    births: Births,
    running: RefCell<BTreeMap<ContainerId, Running>>,
    /// Containers that outlive their agent, and whose end no agent has been told.
    outliving: RefCell<BTreeSet<ContainerId>>,
    /// Where its agent hears, if there is one.
    events: RefCell<Option<Events>>,
    /// What the next agent is told first.
    untold: RefCell<Vec<LauncherEvent>>,
    /// What hears the agent's orders.
    serving: RefCell<Option<AbortHandle>>,
    pids: Cell<i32>,
    /// How many executors are to die as soon as they have started.
    doomed: Rc<Cell<u32>>,
    /// Whether it is busy with work that is not the cluster's.
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

/// The agent's hold on its machine.
struct SimulatedLauncher {
    orders: mpsc::Sender<Order>,
    left: Vec<Left>,
    attached: Option<oneshot::Sender<Events>>,
}

impl Machine {
    /// A machine where nothing runs. `doomed` says how many executors are to die as soon as they have started, whoever changes it.
    pub fn start(ground: &Ground, agent: &str, doomed: &Rc<Cell<u32>>) -> Self {
        Self(Rc::new(Shared {
            ground: ground.clone(),
            agent: agent.into(),
            births: Births::default(),
            running: RefCell::default(),
            outliving: RefCell::default(),
            events: RefCell::default(),
            untold: RefCell::default(),
            serving: RefCell::default(),
            pids: Cell::new(PIDS_FROM),
            doomed: doomed.clone(),
            busy: Arc::default(),
            tasks: RefCell::default(),
        }))
    }

    /// The launcher for the agent that starts now. To be called in the world's own `LocalSet`, once the agent before it is gone.
    pub fn launcher(&self) -> Box<dyn Launcher> {
        let (orders, queue) = mpsc::channel(ORDERS_MAX);
        let (attached, events) = oneshot::channel();
        let shared = &self.0;
        let serving = tokio::task::spawn_local(serve(shared.clone(), queue, events));
        *shared.serving.borrow_mut() = Some(serving.abort_handle());
        let running = shared.running.borrow();
        let outliving = shared.outliving.borrow();
        let left = outliving.iter().map(|container_id| Left {
            container_id: container_id.clone(),
            pid: running.get(container_id).map(|running| running.pid),
        });
        Box::new(SimulatedLauncher {
            orders,
            left: left.collect(),
            attached: Some(attached),
        })
    }

    /// The agent's process is gone: what does not outlive it ends, and nobody is told.
    pub fn lose_agent(&self) {
        let shared = &self.0;
        if let Some(serving) = shared.serving.take() {
            serving.abort();
        }
        shared.events.take();
        let ending: Vec<ContainerId> = {
            let outliving = shared.outliving.borrow();
            let mut untold = shared.untold.borrow_mut();
            untold.retain(|event| container_of(event).is_some_and(|id| outliving.contains(id)));
            let running = shared.running.borrow();
            let ending = running.keys().filter(|id| !outliving.contains(*id));
            ending.cloned().collect()
        };
        for container in ending {
            shared.remove(&container);
        }
    }

    /// What the agent's monitor sees of the processes: each uses half of a core and grows a little with time.
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

    /// The machine's load averages: half a core for each process, and much more while it is busy.
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

    /// Whether it is busy with other work from now on.
    pub fn set_busy(&self, busy: bool) {
        self.0.busy.store(busy, Ordering::Relaxed);
    }

    /// One of the executors that run dies of a signal, as `chance` wants. `false` if none runs.
    pub fn kill_one(&self, chance: u64) -> bool {
        let candidates: Vec<ContainerId> = {
            let running = self.0.running.borrow();
            let candidates = running.iter().filter(|(_, one)| one.kill.is_some());
            candidates.map(|(container, _)| container.clone()).collect()
        };
        let place = chance.checked_rem(candidates.len() as u64);
        let victim = place.and_then(|place| candidates.get(usize::try_from(place).ok()?));
        if let Some(victim) = victim {
            self.0.strike(victim);
        }
        victim.is_some()
    }

    /// Everything that runs is gone at once, and the agent is not told.
    pub fn halt(&self) {
        for task in self.0.tasks.take() {
            task.abort();
        }
        self.0.outliving.borrow_mut().clear();
        self.lose_agent();
    }
}

/// Whose event it is.
fn container_of(event: &LauncherEvent) -> Option<&ContainerId> {
    match event {
        LauncherEvent::Started { container_id, .. }
        | LauncherEvent::Failed { container_id, .. }
        | LauncherEvent::Exited { container_id, .. } => Some(container_id),
        LauncherEvent::Lost { .. } => None,
    }
}

/// A process that has lived so long.
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
    fn left(&mut self) -> Vec<Left> {
        std::mem::take(&mut self.left)
    }

    fn keep_nothing(&mut self) {
        let _ = self.orders.try_send(Order::KeepNothing); // The machine may be gone.
    }

    fn attach(&mut self, events: Events) {
        if let Some(attached) = self.attached.take() {
            let _ = attached.send(events); // The machine may be gone.
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
    for event in shared.untold.take() {
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
                    let _ = kill.send(()); // It may have ended by itself.
                }
            }
        }
    }
}

impl Shared {
    /// An executor dies, and nobody has asked for it.
    fn strike(&self, container: &ContainerId) {
        let kill = {
            let mut running = self.running.borrow_mut();
            running.get_mut(container).and_then(|one| one.kill.take())
        };
        if let Some(kill) = kill {
            self.ground.watch.fact(What::ExecutorKilled {
                agent: &self.agent,
                container,
            });
            let _ = kill.send(()); // It may have ended by itself.
        }
    }

    /// The executor that has just started dies before long, if a fault wants that.
    fn strike_if_doomed(self: &Rc<Self>, container: &ContainerId) {
        if self.doomed.get() == 0 {
            return;
        }
        self.doomed.set(self.doomed.get() - 1);
        let chance =
            derived(self.ground.seed, container.as_str(), 0) % STRIKE_MAX.as_millis() as u64;
        let (shared, container) = (self.clone(), container.clone());
        let strike = tokio::task::spawn_local(async move {
            shared
                .ground
                .clock
                .sleep(Duration::from_millis(chance))
                .await;
            shared.strike(&container);
        });
        self.tasks.borrow_mut().push(strike.abort_handle());
    }

    /// Tells the agent, or else the next one.
    fn tell(&self, event: LauncherEvent) {
        let events = self.events.borrow().clone();
        let Some(events) = events else {
            return self.untold.borrow_mut().push(event);
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
            let ground = &self.ground;
            let name = executor::node_of(&container);
            let clock = ground.fresh_clock();
            let node = ground.node(&name, 0, Role::Executor, &[Role::Agent], &clock);
            let local = format!("executor:{container}");
            node.set_dialer(ground.local.place(&node, &self.agent, &local));
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
            .insert(pid, self.ground.clock.now());
        let running = Running {
            process,
            node,
            kill: Some(kill),
            life: None,
            pid,
        };
        self.running.borrow_mut().insert(container.clone(), running);
        self.ground.watch.fact(What::ProcessStarted {
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
        self.strike_if_doomed(&container);
    }

    /// Waits for the end of a container's process, whoever ends it, and tells the agent.
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
            running.life = None; // This is it.
        }
        if self.remove(&container) {
            self.tell(LauncherEvent::Exited {
                container_id: container,
                termination,
            });
        }
    }

    /// The container's process is gone. `false` if there was none.
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
        self.ground.local.gone(&running.node);
        running.process.kill();
        self.ground.watch.fact(What::ProcessEnded {
            agent: &self.agent,
            container,
        });
    }
}
