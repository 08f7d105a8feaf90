//! A cluster rehearsed in virtual time: the real actors, simulated links, disks, machines and processes, one seed.
//!
//! | file | what it is |
//! |---|---|
//! | `scenario` | what is rehearsed: how large, how long, under which faults, from which seed |
//! | `event` | what is seen from outside, in order; a run's hash is taken over it |
//! | `checker`, `checkers` | who watches the events and judges the invariants |
//! | `bug` | a planted fault of the software, for tests of checkers |
//! | `run`, `tally` | a run, and what is known of it afterwards |
//! | `shrink`, `history` | the smallest scenario that still fails, and its faults as text |
//! | `linear` | whether a history of operations could have come from one copy that takes them one at a time |
//! | `report` | what a user is told of runs, and which of them prove too little |
//! | `faults` | which faults happen when, by profile and seed |
//! | `load`, `command` | what frameworks want and agents have, and what a simulated task does |
//! | `crowd` | for benchmarks, and in real time: agents without anything behind them |
//! | `sorter` | the sorter of a master, which may lie |
//! | `world` | every node on its machine: started, crashed, stopped, started again |
//! | `machine`, `executor`, `disk` | an agent's machine, the processes of tasks, and disks, all without the real ones |
//! | `network` | what lies between machines, and its weather |
//! | `watch`, `describe`, `hash` | everything that is seen, on its way to the checkers, the hash and whoever reads a failure |
//!
//! One seed gives one run. Deliberately absent: any knowledge of an actor's inside; a checker sees what the network and the
//! machines see.

pub mod bug;
pub mod checker;
pub mod checkers;
pub mod command;
pub mod crowd;
mod describe;
mod disk;
pub mod event;
pub mod executor;
pub mod faults;
mod ground;
mod hash;
pub mod history;
pub mod linear;
pub mod load;
mod machine;
mod network;
pub mod report;
mod run;
pub mod scenario;
pub mod shrink;
mod sorter;
pub mod tally;
mod watch;
mod world;

pub use bug::{Bug, Forged, Meddling};
pub use checker::{Checker, Violation};
pub use event::{Event, Spoken, What};
pub use run::{RECOVERY, RECOVERY_CALM, RECOVERY_LEAST, Run, run};
pub use scenario::{Fault, FaultKind, Profile, Scenario, Wiring};
pub use tally::Tally;
