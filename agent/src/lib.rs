//! The agent: runs tasks on one machine, reports their status and the resources that it can lend.
//!
//! | module | contents |
//! |---|---|
//! | `agent` | the actor that registers with a master and forwards its messages |
//! | `api` | the v1 APIs for executors and tools, the pages, and their authorization |
//! | `config` | the operator's settings, validated at start |
//! | `container` | the containerizer actor and the pure state machine of a container |
//! | `fetcher` | files fetched into a sandbox before its command runs |
//! | `host` | /proc, detection of resources, accounts, and the only unsafe code |
//! | `images` | root file systems of containers: pulled, checked, unpacked and kept |
//! | `launcher` | starts containers and reports their ends |
//! | `ledger` | checkpoints of containers that outlive the agent, and recovery |
//! | `metrics` | the agent's metrics, with the names of Mesos |
//! | `operations` | reservations and volumes, applied to the agent's resources |
//! | `oversubscription` | usage, estimates of resources to lend, QoS corrections |
//! | `sandbox` | sandbox directories, reads of their files, garbage collection |
//! | `start` | locks the work directory and spawns the actors |
//! | `status` | delivers status updates to frameworks until acknowledged |
//! | `zygote` | the small process that starts containers, and the init of each |
//!
//! The binary calls [`Settings::check`], [`WorkDir::lock`], [`ZygoteLauncher::start`] and
//! [`start()`]. Its hidden subcommands call [`zygote::main`], [`fetcher::main`],
//! [`images::puller::main`] and [`images::unpacker::main`]. The crate contains no concrete module,
//! and only the fetcher, the puller and the checks open sockets.

pub mod agent;
pub mod api;
pub mod container;
pub mod fetcher;
pub mod host;
pub mod images;
pub mod launcher;
pub mod ledger;
pub mod metrics;
pub mod operations;
pub mod oversubscription;
pub mod sandbox;
mod start;
pub mod status;
pub mod zygote;

pub use crate::api::{HELP, counters, routes};
pub use agent::{Agent, AgentEnd};
pub use launcher::{Launcher, LauncherEvent, ZygoteError, ZygoteLauncher};
pub use ledger::recovery::clean_up;
pub use operations::checkpoint::OpenStore;
pub use start::config;
pub use start::config::{Config, ConfigError, Settings};

pub use sandbox::kept::Sandboxes;
pub use start::{Modules, StartError, Started, WorkDir, start, start_with};
