//! The agent: runs tasks on one machine, reports their status and the resources that it can lend.
//!
//! | file | contents |
//! |---|---|
//! | `agent` | the actor that registers with a master and forwards its messages |
//! | `container` | the containerizer actor and the pure state machine of a container |
//! | `launcher`, `zygote` | starts executors: a small process forks them |
//! | `ledger`, `recovery` | checkpoints of executors that outlive the agent, and recovery |
//! | `command` | the command executor, which runs the command of one task |
//! | `status` | delivers status updates to frameworks until acknowledged |
//! | `disk` | garbage collection, output limits, detection of a read-only work directory |
//! | `monitor`, `oversubscription`, `qos` | usage, resource estimation, QoS corrections |
//! | `sandbox`, `sandboxes`, `accounts` | sandbox directories, and the user that a task runs as |
//! | `procfs`, `detect`, `sys` | /proc, host detection, and the only unsafe code |
//! | `config`, `start`, `metrics` | configuration, start, metrics |
//! | `http`, `visibility` | the HTTP API and its authorization |
//!
//! The binary calls [`Settings::check`], [`WorkDir::lock`], [`ZygoteLauncher::start`] and
//! [`start()`]; the hidden subcommand `executor-zygote` calls [`zygote::main`]. The crate opens no
//! socket and contains no concrete module.

pub mod agent;
pub mod api;
pub mod config;
pub mod container;
pub mod host;
pub mod launcher;
pub mod ledger;
pub mod metrics;
pub mod operations;
pub mod oversubscription;
pub mod registration;
pub mod sandbox;
mod start;
pub mod status;
pub mod zygote;

pub use crate::api::{HELP, counters, routes};
pub use agent::{Agent, AgentEnd};
pub use config::{Config, ConfigError, Settings};
pub use launcher::{Launcher, LauncherEvent, ZygoteError, ZygoteLauncher};
pub use ledger::recovery::clean_up;
pub use operations::checkpoint::OpenStore;

pub use sandbox::kept::Sandboxes;
pub use start::{Modules, StartError, Started, WorkDir, start, start_with};
