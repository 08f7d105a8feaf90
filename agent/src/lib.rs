//! The agent: runs tasks on one machine, reports how they are, and says what the machine could lend (DESIGN 7).
//!
//! | file | what it is |
//! |---|---|
//! | `agent` | the actor that registers and hands on what the master wants |
//! | `container` | the containerizer actor and the pure life of one container |
//! | `launcher`, `zygote` | how executors are started: a small process that forks them |
//! | `ledger`, `recovery` | what is kept so that executors outlive the agent, and how it goes on with them |
//! | `command` | the command executor, which runs one task's command |
//! | `status` | updates on their way to frameworks, sent again until acknowledged |
//! | `disk` | leftovers and their removal, bounded output, a work directory that takes no writes |
//! | `monitor`, `oversubscription`, `qos` | usage, what may be lent, who must yield |
//! | `sandbox`, `sandboxes`, `accounts` | directories and their seam, and as which user a task runs |
//! | `procfs`, `detect`, `sys` | /proc, the host, and the only unsafe code |
//! | `config`, `start`, `metrics`, `http`, `sight` | what operators set and see, and who sees what |
//!
//! The roof calls [`Settings::check`], [`WorkDir::lock`], [`ZygoteLauncher::start`] and [`start()`]; the hidden verb
//! `executor-zygote` is [`zygote::main`]. Deliberately absent: any socket, and any concrete module.

mod accounts;
pub mod agent;
pub mod command;
pub mod config;
pub mod container;
pub mod detect;
pub mod disk;
pub mod http;
pub mod launcher;
pub mod ledger;
pub mod metrics;
pub mod monitor;
pub mod operations;
pub mod oversubscription;
pub mod procfs;
pub mod qos;
pub mod recovery;
pub mod registration;
pub mod sandbox;
pub mod sandboxes;
mod sight;
mod start;
pub mod status;
pub mod sys;
pub mod zygote;

pub use self::http::{HELP, counters, routes};
pub use agent::{Agent, AgentEnd};
pub use config::{Config, ConfigError, Settings};
pub use launcher::{Launcher, LauncherEvent, ZygoteError, ZygoteLauncher};
pub use operations::checkpoint::OpenStore;
pub use recovery::clean_up;

pub use sandboxes::Sandboxes;
pub use start::{Modules, StartError, Started, WorkDir, start, start_with};
