//! Simulation of a cluster in virtual time: the real actors on simulated links, disks, machines and
//! processes, from one seed.
//!
//! | module | contents |
//! |---|---|
//! | `bug` | a planted software fault, for tests of the checkers |
//! | `checkers` | the invariants, judged from the events |
//! | `event` | observable events, in order; a run's hash covers them |
//! | `linear` | linearizability of a history of operations |
//! | `load` | the behaviour of frameworks, the resources of agents, the tasks |
//! | `report` | the texts for users, the tally and the hash of a run |
//! | `run` | one run, from its first moment to its end |
//! | `scenario` | the input of a run: size, duration, faults and their profile, seed |
//! | `synthetic_agents` | for benchmarks in real time: agents without containers |
//! | `watch` | the path of all events to the checkers and to the report |
//! | `world` | nodes on their machines, disks, executors, network and faults |
//!
//! One seed gives one run. The simulator knows nothing of an actor's inside: a checker sees only
//! the network and the machines.

pub mod bug;
pub mod checkers;
pub mod event;
pub mod linear;
pub mod load;
pub mod report;
mod run;
pub mod scenario;
pub mod synthetic_agents;
mod watch;
pub mod world;

pub use bug::{Bug, ContainerBug, Forged, Tampering};
pub use checkers::checker::{Checker, Violation};
pub use event::{Event, EventKind, SeenMessage};
pub use report::tally::Tally;
pub use run::{RECOVERY, RECOVERY_CALM, RECOVERY_LEAST, Run, run};
pub use scenario::{Fault, FaultKind, Profile, Scenario, Wiring};
