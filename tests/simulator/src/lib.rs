//! A cluster rehearsed in virtual time: the real actors, simulated links, disks, machines and processes, one seed.
//!
//! | file | what it is |
//! |---|---|
//! | `scenario` | what is rehearsed: how large, how long, under which faults, from which seed |
//! | `event` | what is seen from outside, in order; a run's hash is taken over it |
//! | `checker`, `checkers` | who watches the events and judges the invariants |
//! | `bug` | a planted fault of the software, for tests of checkers |
//! | `run`, `tally` | a run, and what is known of it afterwards |
//!
//! One seed gives one run. Deliberately absent: any knowledge of an actor's inside; a checker sees what the network and the
//! machines see.

pub mod bug;
pub mod checker;
pub mod checkers;
pub mod event;
mod run;
pub mod scenario;
pub mod tally;

pub use bug::{Bug, Forged, Meddling};
pub use checker::{Checker, Violation};
pub use event::{Event, Spoken, What};
pub use run::{Run, run};
pub use scenario::{Fault, FaultKind, Profile, Scenario, Wiring};
pub use tally::Tally;
