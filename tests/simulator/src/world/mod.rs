//! The world: every node of a cluster on its machine, and the operations on them.
//!
//! | module | contents |
//! |---|---|
//! | `disk` | the disks of simulated machines |
//! | `executor` | the executor, which runs the tasks' commands in virtual time |
//! | `inject` | the application of faults |
//! | `isolator` | an agent's isolators, which report what they are asked to do |
//! | `machine` | an agent's launcher without real processes |
//! | `network` | the network between machines, and its faults |
//! | `observer` | wrappers around a master's registry and log that report to the watch |
//! | `operator` | an operator's requests to the masters |
//! | `probe` | additional requests to the group of masters |
//! | `process` | a node and its actors, which can end at any moment |
//! | `roles` | the nodes behind `leader`, `follower` and so on |
//! | `services` | the assembly of a master, an agent and a framework from the real parts |
//! | `sim_env` | the shared environment: clock, seed, network and watch |
//!
//! It knows the running life of each node, the machines' disks and the frameworks' records. A
//! service that ends by itself is restarted after [`RESTART_AFTER`], as by an operator's
//! supervisor.

pub mod command;
pub(crate) mod disk;
pub mod executor;
pub mod inject;
pub(crate) mod isolator;
pub(crate) mod machine;
pub(crate) mod network;
mod observer;
mod operator;
mod probe;
pub mod process;
pub mod roles;
pub mod services;
pub(crate) mod sim_env;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use runtime::{Clock, Node, NodeId, Role};
use tokio::sync::oneshot;

use self::process::Process;
use self::services::{AgentParts, FrameworkParts, MasterParts, Service};
use crate::event::EventKind;
use crate::load::scheduler::SharedRecord;
use crate::load::sorter::SorterFaults;
use crate::load::{self, Manner};
use crate::report::hash::derived;
use crate::scenario::Scenario;
use crate::world::disk::Disk;
use crate::world::machine::Machine;
use crate::world::sim_env::SimEnv;

/// A service that ended by itself is restarted after this time.
pub const RESTART_AFTER: Duration = Duration::from_secs(5);
/// Maximum time in which a node's last messages leave its machine.
const FAREWELL: Duration = Duration::from_secs(2);
/// Agents and frameworks start within this time after the master.
const ARRIVAL: Duration = Duration::from_secs(3);

/// Name of a framework's second scheduler, before the framework's number.
pub const STANDBY: &str = "standby";

/// The world. Clones share it.
#[derive(Clone)]
pub struct World(Rc<Shared>);

struct Shared {
    env: SimEnv,
    members: RefCell<BTreeMap<String, Member>>,
    rng: RefCell<SmallRng>,
    target: usize,
    /// Whether the masters answer reads from leases.
    leases: bool,
    /// The names of the masters.
    masters: Vec<String>,
    /// Until when faults may occur.
    duration: Duration,
}

/// A node of the cluster, running or not.
struct Member {
    kind: Kind,
    disk: Disk,
    /// Its running machine, if it is an agent.
    machine: Option<Machine>,
    /// The number of the machine's boots.
    boots: u64,
    /// The number of its starts.
    lives: u64,
    life: Option<Life>,
    /// Lost writes of its disk when this life began.
    lost_before: u64,
    /// The number of faults that keep it down.
    held_down: u32,
    /// The number of faults that wait for one of its steps.
    crash_points: u32,
    /// It was crashed at one of them.
    reached: bool,
    /// Offset of its wall time, in seconds.
    wall: i64,
    /// Drift of its clock, in millionths.
    drift: i32,
    /// The number of faults that keep its machine busy.
    busy: u32,
    /// The number of faults of the isolators on its machine.
    isolation_faults: i32,
    /// The number of executors on its machine that are to die right after their start.
    doomed: Rc<Cell<u32>>,
    /// The number of faults that make its sorter invalid.
    sorter_faults: SorterFaults,
    /// Duration of each of its writes.
    slow: Duration,
}

#[derive(Clone)]
enum Kind {
    Master,
    Agent {
        number: u32,
    },
    /// A scheduler of the framework with this name.
    Framework {
        of: String,
        manner: Manner,
        record: SharedRecord,
    },
}

impl Kind {
    fn role(&self) -> Role {
        match self {
            Self::Master => Role::Master,
            Self::Agent { .. } => Role::Agent,
            Self::Framework { .. } => Role::Framework,
        }
    }
}

/// A running node.
struct Life {
    process: Process,
    node: Node,
    clock: Clock,
    member: Option<services::Member>,
    stop: Option<oneshot::Sender<()>>,
}

impl World {
    /// The world of a scenario, with nothing started.
    pub fn new(env: SimEnv, scenario: &Scenario) -> Self {
        let mut members = BTreeMap::new();
        let mut add = |name: String, kind: Kind| {
            let member = Member {
                kind,
                disk: Disk::default(),
                machine: None,
                boots: 0,
                lives: 0,
                life: None,
                lost_before: 0,
                held_down: 0,
                crash_points: 0,
                reached: false,
                wall: 0,
                drift: 0,
                busy: 0,
                isolation_faults: 0,
                doomed: Rc::default(),
                sorter_faults: SorterFaults::default(),
                slow: Duration::ZERO,
            };
            members.insert(name, member);
        };
        let masters = roles::masters(scenario.masters);
        for name in &masters {
            add(name.clone(), Kind::Master);
        }
        for number in 1..=scenario.agents {
            add(format!("agent-{number}"), Kind::Agent { number });
        }
        for number in 1..=scenario.frameworks {
            let of = format!("framework-{number}");
            let (manner, record) = (Manner::of(number), SharedRecord::default());
            let scheduler = Kind::Framework {
                of: of.clone(),
                manner,
                record,
            };
            if manner.has_standby() {
                add(format!("{STANDBY}-{number}"), scheduler.clone());
            }
            add(of, scheduler);
        }
        let rng = SmallRng::seed_from_u64(derived(env.seed, "world", 0));
        Self(Rc::new(Shared {
            env,
            members: RefCell::new(members),
            rng: RefCell::new(rng),
            target: load::target(scenario),
            leases: load::reads_from_leases(scenario),
            masters,
            duration: scenario.duration,
        }))
    }

    /// Starts the masters, and all others soon after them.
    pub fn begin(&self) {
        let masters = &self.0.masters;
        masters.iter().for_each(|master| self.start(master));
        self.crash_doomed_nodes();
        let names: Vec<String> = self.0.members.borrow().keys().cloned().collect();
        for name in names.into_iter().filter(|name| !masters.contains(name)) {
            // A standby finds a leading scheduler.
            let late = if name.starts_with(STANDBY) { 1.0 } else { 0.0 };
            let after = ARRIVAL.mul_f64(late + self.0.rng.borrow_mut().random::<f64>());
            let world = self.clone();
            tokio::task::spawn_local(async move {
                world.0.env.clock.sleep(after).await;
                world.start(&name);
            });
        }
    }

    /// Starts a node, unless it runs or a fault keeps it down.
    pub fn start(&self, name: &str) {
        let shared = &self.0;
        let mut members = shared.members.borrow_mut();
        let Some(member) = members.get_mut(name) else {
            return;
        };
        if member.life.is_some() || member.held_down > 0 {
            return;
        }
        let life = member.lives;
        member.lives += 1;
        member.lost_before = member.disk.losses();
        let clock = shared.env.fresh_clock();
        shared.env.set_wall(&clock, member.wall);
        if member.drift != 0 {
            clock.set_drift(member.drift);
        }
        let role = member.kind.role();
        shared
            .env
            .watch
            .fact(EventKind::NodeStarted { node: name, role });
        let (stop, stopped) = oneshot::channel();
        if role == Role::Agent && member.machine.is_none() {
            let machine = Machine::start(&shared.env, name, &member.doomed);
            machine.set_busy(member.busy > 0);
            machine.isolation().set_faulty(member.isolation_faults > 0);
            member.machine = Some(machine);
            member.boots += 1;
        }
        let launcher = member.machine.as_ref().map(Machine::launcher);
        let (process, (node, of_group), ended) = Process::start(|| {
            let service = shared.service(name, member, life, &clock, launcher, stopped);
            ((service.node, service.member), service.main)
        });
        node.slow_blocking(member.slow);
        member.life = Some(Life {
            process,
            node,
            clock,
            member: of_group,
            stop: Some(stop),
        });
        let (world, name) = (self.clone(), name.to_owned());
        tokio::task::spawn_local(async move {
            // The end of a killed process is handled by its killer.
            if let Ok(words) = ended.await {
                world.ended(&name, life, &words).await;
            }
        });
    }

    /// Handles the end of a node's process, by itself or after a stop.
    async fn ended(&self, name: &str, life: u64, words: &str) {
        tracing::info!(node = name, words, "a process has ended");
        let over = {
            let mut members = self.0.members.borrow_mut();
            let member = members.get_mut(name);
            let member = member.filter(|member| member.lives == life + 1);
            member.and_then(|member| {
                let disk_failed = member.disk.losses() > member.lost_before;
                let life = member.life.take()?;
                Some((life, member.machine.clone(), disk_failed))
            })
        };
        let Some((over, machine, disk_failed)) = over else {
            return;
        };
        let asked = over.stop.is_none();
        let (node, env) = (over.node.id().clone(), &self.0.env);
        env.leave(&node);
        if !asked {
            env.watch.fact(EventKind::NodeExited {
                node: name,
                role: over.node.role(),
                words,
                disk_failed,
            });
        }
        env.watch.fact(EventKind::NodeEnded {
            node: name,
            crashed: false,
        });
        over.process.kill();
        if let Some(machine) = machine {
            machine.lose_agent();
        }
        // Its last messages are still in flight.
        env.clock.sleep(FAREWELL).await;
        env.forget(&node);
        if !asked {
            env.clock.sleep(RESTART_AFTER).await;
        }
        self.start(name);
    }

    /// Crashes a node and its machine; unsynced writes are lost.
    pub fn crash(&self, name: &str) {
        let machine = self.end_process(name);
        if let Some(machine) = machine {
            machine.halt();
            self.with_member(name, |member| member.machine = None);
        }
    }

    /// Crashes an agent's process; unsynced writes are lost, and its machine continues.
    fn crash_agent_process(&self, name: &str) {
        let runs = self.process(name).is_some();
        if runs {
            let fell = EventKind::AgentCrashed { agent: name };
            self.0.env.watch.fact(fell);
        }
        let machine = self.end_process(name);
        if let Some(machine) = machine.filter(|_| runs) {
            machine.lose_agent();
        }
    }

    /// Kills a node's process, if it runs. Returns the agent's machine.
    fn end_process(&self, name: &str) -> Option<Machine> {
        let (over, disk, machine) = {
            let mut members = self.0.members.borrow_mut();
            let member = members.get_mut(name)?;
            let machine = member.machine.clone();
            (member.life.take(), member.disk.clone(), machine)
        };
        self.0.env.watch.crashed(name);
        let Some(over) = over else { return machine };
        self.0.env.gone(&over.node);
        let mut rng = self.0.rng.borrow_mut();
        disk.crash_with(|unsynced| rng.random_range(0..=unsynced));
        drop(rng);
        self.0.env.watch.fact(EventKind::NodeEnded {
            node: name,
            crashed: true,
        });
        over.process.kill();
        machine
    }

    /// Crashes nodes as soon as they are doomed.
    fn crash_doomed_nodes(&self) {
        let world = self.clone();
        tokio::task::spawn_local(async move {
            loop {
                let name = world.0.env.watch.next_doomed().await;
                let mut held = false;
                world.with_member(&name, |member| {
                    held = member.crash_points > 0;
                    member.held_down += u32::from(held && !member.reached);
                    member.reached |= held;
                });
                world.crash(&name);
                if !held {
                    world.start(&name); // the fault has just ended
                }
            }
        });
    }

    /// Reads the registry through every running group member.
    pub async fn last_look(&self) {
        let looks: Vec<_> = {
            let members = self.0.members.borrow();
            let lives = members.iter();
            let lives = lives.filter_map(|(name, one)| Some((name, one.life.as_ref()?)));
            lives
                .filter_map(|(name, life)| Some((name.clone(), life.member.clone()?)))
                .collect()
        };
        let env = &self.0.env;
        for (name, member) in looks {
            observer::last_look(&member, &env.watch, &name, &env.clock).await;
        }
    }

    /// Stops a node in order.
    pub fn stop(&self, name: &str) {
        let mut members = self.0.members.borrow_mut();
        let life = members
            .get_mut(name)
            .and_then(|member| member.life.as_mut());
        if let Some(stop) = life.and_then(|life| life.stop.take()) {
            let _ = stop.send(()); // it may just have ended by itself
        }
    }

    /// A living node, by its id.
    pub fn node(&self, id: &NodeId) -> Option<Node> {
        let members = self.0.members.borrow();
        let life = members.get(id.name())?.life.as_ref()?;
        Some(life.node.clone()).filter(|node| node.id() == id)
    }

    /// The number of writes of all disks that failed or were lost.
    pub fn disk_losses(&self) -> u64 {
        let members = self.0.members.borrow();
        members.values().map(|member| member.disk.losses()).sum()
    }

    /// Ends everything at once, so that nothing outlives the run.
    pub fn end(&self) {
        let all: Vec<(Option<Life>, Option<Machine>)> = {
            let mut members = self.0.members.borrow_mut();
            let members = members.values_mut();
            members
                .map(|member| (member.life.take(), member.machine.take()))
                .collect()
        };
        for (life, machine) in all {
            if let Some(life) = life {
                self.0.env.gone(&life.node);
                life.process.kill();
            }
            if let Some(machine) = machine {
                machine.halt();
            }
        }
    }

    /// The process of a running node.
    fn process(&self, name: &str) -> Option<Process> {
        let members = self.0.members.borrow();
        Some(members.get(name)?.life.as_ref()?.process.clone())
    }

    fn with_member(&self, name: &str, change: impl FnOnce(&mut Member)) {
        if let Some(member) = self.0.members.borrow_mut().get_mut(name) {
            change(member);
        }
    }
}

impl Shared {
    fn service(
        &self,
        name: &str,
        member: &Member,
        life: u64,
        clock: &Clock,
        launcher: Option<Box<dyn ::agent::Launcher>>,
        stop: services::Stop,
    ) -> Service {
        match (&member.kind, &member.machine, launcher) {
            (Kind::Agent { number }, Some(machine), Some(launcher)) => {
                let parts = AgentParts {
                    name,
                    life,
                    clock,
                    disk: &member.disk,
                    equipment: &services::equipment_of(&self.env, *number),
                    masters: self.addresses(),
                    machine,
                    boot: &format!("{name}-{}", member.boots),
                    launcher,
                };
                services::agent(&self.env, parts, stop)
            }
            (Kind::Framework { of, manner, record }, ..) => {
                let parts = FrameworkParts {
                    name,
                    life,
                    clock,
                    of,
                    manner: *manner,
                    target: self.target,
                    record,
                    masters: self.addresses(),
                };
                services::framework(&self.env, parts, stop)
            }
            _ => {
                let parts = MasterParts {
                    name,
                    life,
                    clock,
                    disk: &member.disk,
                    sorter_faults: &member.sorter_faults,
                    masters: &self.masters,
                    leases: self.leases,
                    probed: self.duration,
                };
                services::master(&self.env, parts, stop)
            }
        }
    }

    /// The masters' addresses.
    fn addresses(&self) -> Vec<String> {
        let masters = self.masters.iter();
        masters.map(|name| self.env.address(name)).collect()
    }
}
