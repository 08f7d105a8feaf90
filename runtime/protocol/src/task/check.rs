//! Checks and health checks of a task.
//!
//! A health check decides whether its task is killed; the result of a check only goes to the
//! framework. Both repeat: after `delay` and then `interval` after the end of the last one.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{CommandInfo, ENTRY_BYTES};

/// A health check. The default values are those of Mesos.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthCheck {
    /// What it does.
    pub kind: CheckKind,
    /// When it does it.
    pub timing: CheckTiming,
    /// For so long after the start of the task, failures before the first success do not count;
    /// 10 s by default.
    pub grace_period: Duration,
    /// The task is killed after so many failures in a row; 3 by default.
    pub consecutive_failures: u32,
}

/// A check whose result goes to the framework.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckInfo {
    /// What it does.
    pub kind: CheckKind,
    /// When it does it.
    pub timing: CheckTiming,
}

/// A check beside the single one of Mesos. Specific to Meros.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedCheck {
    /// Unique in its task.
    pub name: String,
    /// The check.
    pub check: CheckInfo,
}

/// The times of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckTiming {
    /// From the start of the task to the first one.
    pub delay: Duration,
    /// From the end of one to the start of the next.
    pub interval: Duration,
    /// How long one may take; zero means no bound.
    pub timeout: Duration,
}

impl Default for CheckTiming {
    fn default() -> Self {
        Self {
            delay: Duration::from_secs(15),
            interval: Duration::from_secs(10),
            timeout: Duration::from_secs(20),
        }
    }
}

/// What a check does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CheckKind {
    /// Runs a command in the task's container.
    Command(CommandInfo),
    /// Sends a GET to the task's loopback address.
    Http(HttpCheck),
    /// Connects to the task's loopback address.
    Tcp(TcpCheck),
}

/// A GET. A check without health has only `port` and `path`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HttpCheck {
    /// The port; those above 65535 do not answer.
    pub port: u32,
    /// The path, if not the root.
    pub path: Option<String>,
    /// `http` or `https`; `None` means `http`.
    pub scheme: Option<String>,
    /// Statuses of a healthy task, for the framework's own executors. Others treat 200 to 399 as
    /// healthy.
    pub statuses: Vec<u32>,
    /// The protocol.
    pub protocol: IpProtocol,
}

/// A connection. A check without health uses IPv4.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TcpCheck {
    /// The port; those above 65535 do not answer.
    pub port: u32,
    /// The protocol.
    pub protocol: IpProtocol,
}

/// A version of the internet protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum IpProtocol {
    /// Version 4.
    #[default]
    V4,
    /// Version 6.
    V6,
}

impl CheckKind {
    /// Size of all texts, in bytes.
    pub fn text_bytes(&self) -> usize {
        match self {
            Self::Command(command) => command.text_bytes(),
            Self::Http(http) => {
                let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
                text(&http.path) + text(&http.scheme) + http.statuses.len() * ENTRY_BYTES
            }
            Self::Tcp(_) => 0,
        }
    }
}
