//! The world: every node of a cluster on its machine, and what can happen to them.
//!
//! | file | what it is |
//! |---|---|
//! | `process` | a node and all that lives on it, which can be gone from one moment to the next |
//! | `witness` | what stands around a master and tells what passes |
//! | `probe` | asks the group of masters for more than they do |
//! | `roles` | who is meant by `leader`, `follower` and so on |
//! | `services` | how a master, an agent and a framework are put together from the real parts |
//! | `inject` | faults, done to the world and undone |
//! | `operator` | what an operator asks of the masters |
//!
//! Remembers which node runs in which life, the machines' disks and the frameworks' books. A service that ends by itself is
//! started again after [`RESTART_AFTER`], as an operator's supervisor would.

pub mod inject;
mod operator;
mod probe;
pub mod process;
pub mod roles;
pub mod services;
mod witness;

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
use crate::disk::Disk;
use crate::event::What;
use crate::ground::Ground;
use crate::hash::derived;
use crate::load::scheduler::SharedBook;
use crate::load::{self, Manner};
use crate::machine::Machine;
use crate::scenario::Scenario;
use crate::sorter::Lies;

/// A service that ended by itself is started again after so long.
pub const RESTART_AFTER: Duration = Duration::from_secs(5);
/// What a node has said last may take so long to leave its machine.
const FAREWELL: Duration = Duration::from_secs(2);
/// Agents and frameworks start within so long after the master.
const ARRIVAL: Duration = Duration::from_secs(3);

/// What a framework's second scheduler is called, before the framework's number.
pub const STANDBY: &str = "standby";

/// The world. Clones are the same world.
#[derive(Clone)]
pub struct World(Rc<Shared>);

struct Shared {
    ground: Ground,
    members: RefCell<BTreeMap<String, Member>>,
    rng: RefCell<SmallRng>,
    target: usize,
    /// Whether the masters answer reads from leases.
    leases: bool,
    /// The names of the masters.
    masters: Vec<String>,
    /// Until when faults may come.
    duration: Duration,
}

/// A node of the cluster, whether it runs or not.
struct Member {
    kind: Kind,
    disk: Disk,
    /// The machine it runs on, if it is an agent and that is up.
    machine: Option<Machine>,
    /// How often the machine was started.
    boots: u64,
    /// How often it was started.
    lives: u64,
    life: Option<Life>,
    /// How many writes its disk had lost when this life began.
    lost_before: u64,
    /// How many faults want it to be down.
    held_down: u32,
    /// How many faults wait for one of its steps.
    snares: u32,
    /// It was crashed at one of them.
    sprung: bool,
    /// How far its wall time is off, in seconds.
    wall: i64,
    /// By how many millionths its clock is too fast.
    drift: i32,
    /// How many faults keep its machine busy.
    busy: u32,
    /// How many executors on its machine are to die as soon as they have started.
    doomed: Rc<Cell<u32>>,
    /// How many faults want its sorter to lie.
    lies: Lies,
    /// How long each of its writes takes.
    slow: Duration,
}

#[derive(Clone)]
enum Kind {
    Master,
    Agent {
        number: u32,
    },
    /// A scheduler of the framework of this name.
    Framework {
        of: String,
        manner: Manner,
        book: SharedBook,
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

/// A node that runs.
struct Life {
    process: Process,
    node: Node,
    clock: Clock,
    member: Option<services::Member>,
    stop: Option<oneshot::Sender<()>>,
}

impl World {
    /// The world of a scenario, before anything in it has started.
    pub fn new(ground: Ground, scenario: &Scenario) -> Self {
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
                snares: 0,
                sprung: false,
                wall: 0,
                drift: 0,
                busy: 0,
                doomed: Rc::default(),
                lies: Lies::default(),
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
            let (manner, book) = (Manner::of(number), SharedBook::default());
            let scheduler = Kind::Framework {
                of: of.clone(),
                manner,
                book,
            };
            if manner.has_standby() {
                add(format!("{STANDBY}-{number}"), scheduler.clone());
            }
            add(of, scheduler);
        }
        let rng = SmallRng::seed_from_u64(derived(ground.seed, "world", 0));
        Self(Rc::new(Shared {
            ground,
            members: RefCell::new(members),
            rng: RefCell::new(rng),
            target: load::target(scenario),
            leases: load::reads_from_leases(scenario),
            masters,
            duration: scenario.duration,
        }))
    }

    /// Starts the masters, and everybody else soon after them.
    pub fn begin(&self) {
        let masters = &self.0.masters;
        masters.iter().for_each(|master| self.start(master));
        self.crash_the_doomed();
        let names: Vec<String> = self.0.members.borrow().keys().cloned().collect();
        for name in names.into_iter().filter(|name| !masters.contains(name)) {
            // A standby finds somebody who leads.
            let late = if name.starts_with(STANDBY) { 1.0 } else { 0.0 };
            let after = ARRIVAL.mul_f64(late + self.0.rng.borrow_mut().random::<f64>());
            let world = self.clone();
            tokio::task::spawn_local(async move {
                world.0.ground.clock.sleep(after).await;
                world.start(&name);
            });
        }
    }

    /// Starts a node, unless it runs or a fault holds it down.
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
        let clock = shared.ground.fresh_clock();
        shared.ground.set_wall(&clock, member.wall);
        if member.drift != 0 {
            clock.set_drift(member.drift);
        }
        let role = member.kind.role();
        shared
            .ground
            .watch
            .fact(What::NodeStarted { node: name, role });
        let (stop, stopped) = oneshot::channel();
        if role == Role::Agent && member.machine.is_none() {
            let machine = Machine::start(&shared.ground, name, &member.doomed);
            machine.set_busy(member.busy > 0);
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
            // A process that was killed is seen to by who killed it.
            if let Ok(words) = ended.await {
                world.ended(&name, life, &words).await;
            }
        });
    }

    /// A node's process has ended by itself, or after it was told to stop.
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
        let (node, ground) = (over.node.id().clone(), &self.0.ground);
        ground.leave(&node);
        if !asked {
            ground.watch.fact(What::NodeGaveUp {
                node: name,
                role: over.node.role(),
                words,
                disk_failed,
            });
        }
        ground.watch.fact(What::NodeEnded {
            node: name,
            crashed: false,
        });
        over.process.kill();
        if let Some(machine) = machine {
            machine.lose_agent();
        }
        // What it said last is still on its way.
        ground.clock.sleep(FAREWELL).await;
        ground.forget(&node);
        if !asked {
            ground.clock.sleep(RESTART_AFTER).await;
        }
        self.start(name);
    }

    /// A node and its machine are gone at once, with what its disk had not synced.
    pub fn crash(&self, name: &str) {
        let machine = self.end_process(name);
        if let Some(machine) = machine {
            machine.halt();
            self.with_member(name, |member| member.machine = None);
        }
    }

    /// An agent's process is gone at once, with what its disk had not synced, and its machine goes on.
    fn fall(&self, name: &str) {
        let runs = self.process(name).is_some();
        if runs {
            let fell = What::AgentFell { agent: name };
            self.0.ground.watch.fact(fell);
        }
        let machine = self.end_process(name);
        if let Some(machine) = machine.filter(|_| runs) {
            machine.lose_agent();
        }
    }

    /// A node's process is gone at once, if it runs. Gives the agent's machine.
    fn end_process(&self, name: &str) -> Option<Machine> {
        let (over, disk, machine) = {
            let mut members = self.0.members.borrow_mut();
            let member = members.get_mut(name)?;
            let machine = member.machine.clone();
            (member.life.take(), member.disk.clone(), machine)
        };
        self.0.ground.watch.crashed(name);
        let Some(over) = over else { return machine };
        self.0.ground.gone(&over.node);
        let mut rng = self.0.rng.borrow_mut();
        disk.crash(|unsynced| rng.random_range(0..=unsynced));
        drop(rng);
        self.0.ground.watch.fact(What::NodeEnded {
            node: name,
            crashed: true,
        });
        over.process.kill();
        machine
    }

    /// Crashes nodes as soon as they are doomed.
    fn crash_the_doomed(&self) {
        let world = self.clone();
        tokio::task::spawn_local(async move {
            loop {
                let name = world.0.ground.watch.next_doomed().await;
                let mut held = false;
                world.with_member(&name, |member| {
                    held = member.snares > 0;
                    member.held_down += u32::from(held && !member.sprung);
                    member.sprung |= held;
                });
                world.crash(&name);
                if !held {
                    world.start(&name); // The fault has just ended.
                }
            }
        });
    }

    /// Reads the registry through every member of the group of masters that runs.
    pub async fn last_look(&self) {
        let looks: Vec<_> = {
            let members = self.0.members.borrow();
            let lives = members.iter();
            let lives = lives.filter_map(|(name, one)| Some((name, one.life.as_ref()?)));
            lives
                .filter_map(|(name, life)| Some((name.clone(), life.member.clone()?)))
                .collect()
        };
        let ground = &self.0.ground;
        for (name, member) in looks {
            witness::last_look(&member, &ground.watch, &name, &ground.clock).await;
        }
    }

    /// Tells a node to stop in good order.
    pub fn stop(&self, name: &str) {
        let mut members = self.0.members.borrow_mut();
        let life = members
            .get_mut(name)
            .and_then(|member| member.life.as_mut());
        if let Some(stop) = life.and_then(|life| life.stop.take()) {
            let _ = stop.send(()); // It may just have ended by itself.
        }
    }

    /// A living node, by its id.
    pub fn node(&self, id: &NodeId) -> Option<Node> {
        let members = self.0.members.borrow();
        let life = members.get(id.name())?.life.as_ref()?;
        Some(life.node.clone()).filter(|node| node.id() == id)
    }

    /// How many writes of all disks failed or were forgotten.
    pub fn disk_losses(&self) -> u64 {
        let members = self.0.members.borrow();
        members.values().map(|member| member.disk.losses()).sum()
    }

    /// Ends everything at once, so that nothing of it outlives the run.
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
                self.0.ground.gone(&life.node);
                life.process.kill();
            }
            if let Some(machine) = machine {
                machine.halt();
            }
        }
    }

    /// The process of a node that runs.
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
                    equipment: &services::equipment_of(&self.ground, *number),
                    masters: self.addresses(),
                    machine,
                    boot: &format!("{name}-{}", member.boots),
                    launcher,
                };
                services::agent(&self.ground, parts, stop)
            }
            (Kind::Framework { of, manner, book }, ..) => {
                let parts = FrameworkParts {
                    name,
                    life,
                    clock,
                    of,
                    manner: *manner,
                    target: self.target,
                    book,
                    masters: self.addresses(),
                };
                services::framework(&self.ground, parts, stop)
            }
            _ => {
                let parts = MasterParts {
                    name,
                    life,
                    clock,
                    disk: &member.disk,
                    lies: &member.lies,
                    masters: &self.masters,
                    leases: self.leases,
                    probed: self.duration,
                };
                services::master(&self.ground, parts, stop)
            }
        }
    }

    /// Where the masters are.
    fn addresses(&self) -> Vec<String> {
        let masters = self.masters.iter();
        masters.map(|name| self.ground.address(name)).collect()
    }
}
