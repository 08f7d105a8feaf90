//! Simulation of a cluster in virtual time: the real actors on simulated links, disks, machines and
//! processes, from one seed.
//!
//! | file | content |
//! |---|---|
//! | `scenario` | the input of a run: size, duration, faults, seed |
//! | `event` | observable events, in order; a run's hash covers them |
//! | `checker`, `checkers` | the invariants, judged from the events |
//! | `bug` | a planted software fault, for tests of the checkers |
//! | `run`, `tally` | one run, and its results |
//! | `shrink`, `history` | reduces a failing scenario; its faults as text |
//! | `linear` | linearizability of a history of operations |
//! | `report` | the texts for users, and the runs that prove too little |
//! | `faults` | the times of faults, by profile and seed |
//! | `load`, `command` | the behaviour of frameworks, the resources of agents, and the simulated tasks |
//! | `synthetic_agents` | for benchmarks in real time: agents without containers |
//! | `sorter` | a master's sorter, which may give invalid answers |
//! | `world` | every node on its machine: started, crashed, stopped, restarted |
//! | `machine`, `executor`, `disk` | simulated machines, task processes and disks |
//! | `network` | the network between machines, and its faults |
//! | `watch`, `describe`, `hash` | the path of all events to the checkers, the hash and the failure report |
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

pub use bug::{Bug, Forged, Tampering};
pub use checkers::checker::{Checker, Violation};
pub use event::{Event, EventKind, SeenMessage};
pub use report::tally::Tally;
pub use run::{RECOVERY, RECOVERY_CALM, RECOVERY_LEAST, Run, run};
pub use scenario::{Fault, FaultKind, Profile, Scenario, Wiring};
