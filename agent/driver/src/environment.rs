//! What an agent tells an executor at its start, through environment variables (SPEC 2.5).
//!
//! Reads once, checks every value, and remembers nothing.

use std::path::PathBuf;
use std::time::Duration;

use protocol::{AgentId, ContainerId, ExecutorId, FrameworkId};

/// The framework's id.
pub const FRAMEWORK_ID: &str = "MESOS_FRAMEWORK_ID";
/// The executor's id.
pub const EXECUTOR_ID: &str = "MESOS_EXECUTOR_ID";
/// The agent's id.
pub const AGENT_ID: &str = "MESOS_SLAVE_ID";
/// The sandbox, as the host sees it.
pub const DIRECTORY: &str = "MESOS_DIRECTORY";
/// The sandbox, as the executor sees it.
pub const SANDBOX: &str = "MESOS_SANDBOX";
/// Where the agent serves HTTP: `ADDRESS:PORT`, or with its host's name where that is all it knows or its certificate is looked at.
pub const AGENT_ENDPOINT: &str = "MESOS_AGENT_ENDPOINT";
/// How long the executor may take to stop.
pub const SHUTDOWN_GRACE_PERIOD: &str = "MESOS_EXECUTOR_SHUTDOWN_GRACE_PERIOD";
/// The agent as libprocess would name it: `slave(1)@HOST:PORT`.
pub const AGENT_PID: &str = "MESOS_SLAVE_PID";
/// Whether executors of this framework outlive a restart of their agent: `0` or `1`.
pub const CHECKPOINT: &str = "MESOS_CHECKPOINT";
/// How long an executor may be without its agent. Only where they outlive a restart of it.
pub const RECOVERY_TIMEOUT: &str = "MESOS_RECOVERY_TIMEOUT";
/// The longest wait between two attempts to subscribe over HTTP. Only where executors outlive a restart of their agent.
pub const SUBSCRIPTION_BACKOFF_MAX: &str = "MESOS_SUBSCRIPTION_BACKOFF_MAX";
/// What an executor that speaks HTTP shows with each call: `Authorization: Bearer TOKEN`. Nobody else should see it.
pub const AUTHENTICATION_TOKEN: &str = "MESOS_EXECUTOR_AUTHENTICATION_TOKEN";
/// The role that the executor's resources are allocated to.
pub const ALLOCATION_ROLE: &str = "MESOS_ALLOCATION_ROLE";
/// Whether command executors speak HTTP: always `0`.
pub const HTTP_COMMAND_EXECUTOR: &str = "MESOS_HTTP_COMMAND_EXECUTOR";
/// How the agent serves HTTP: `http` or `https`. Mesos has no name for it.
pub const AGENT_SCHEME: &str = "MEROS_AGENT_SCHEME";
/// `true` where the agent serves HTTPS alone: executors on Mesos' own library look there.
pub const LIBPROCESS_SSL_ENABLED: &str = "LIBPROCESS_SSL_ENABLED";
/// The port of an executor that is linked to libprocess: `0`, that is any.
pub const LIBPROCESS_PORT: &str = "LIBPROCESS_PORT";
/// The address of the executor's network, which is its agent's.
pub const CONTAINER_IP: &str = "MESOS_CONTAINER_IP";
/// The same, to which an executor that is linked to libprocess binds.
pub const LIBPROCESS_IP: &str = "LIBPROCESS_IP";
/// The Unix socket on which the agent hears its executors.
pub const SOCKET: &str = "MEROS_EXECUTOR_SOCKET";
/// What proves to the agent that this is the executor it started. Nobody else should see it.
pub const TOKEN: &str = "MEROS_EXECUTOR_TOKEN";
/// The container the executor runs in.
pub const CONTAINER_ID: &str = "MEROS_CONTAINER_ID";

const RECOVERY_TIMEOUT_DEFAULT: Duration = Duration::from_secs(15 * 60);

/// Who this executor is and where its agent hears it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Environment {
    /// Whose executor.
    pub framework_id: FrameworkId,
    /// Which executor.
    pub executor_id: ExecutorId,
    /// Which run of it.
    pub container_id: ContainerId,
    /// On which agent.
    pub agent_id: AgentId,
    /// Its sandbox.
    pub sandbox: PathBuf,
    /// Where the agent hears: the path of a Unix socket.
    pub socket: String,
    /// The proof of who it is.
    pub token: String,
    /// How long it may take to stop; 5 s unless said otherwise.
    pub shutdown_grace_period: Duration,
    /// How long it may be without its agent; zero unless it outlives a restart of that, then 15 min unless said otherwise.
    pub recovery_timeout: Duration,
}

/// The environment is not one that an agent makes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EnvironmentError {
    /// A variable is not there: this program was not started by an agent.
    #[error(
        "environment variable {name} is not set: an executor is started by an agent, which sets it"
    )]
    Missing {
        /// Which.
        name: &'static str,
    },
    /// A variable has a value that cannot be right.
    #[error("environment variable {name}: {problem}")]
    Invalid {
        /// Which.
        name: &'static str,
        /// The value and what was expected.
        problem: String,
    },
}

impl Environment {
    /// The agent's address, as a node dials it.
    pub fn address(&self) -> String {
        format!("{}{}", transport::unix::SCHEME, self.socket)
    }

    /// Reads it from this process's environment.
    pub fn read() -> Result<Self, EnvironmentError> {
        Self::from(|name| std::env::var(name).ok())
    }

    /// Reads it from wherever `value` looks.
    pub fn from(value: impl Fn(&str) -> Option<String>) -> Result<Self, EnvironmentError> {
        let text = |name: &'static str| value(name).ok_or(EnvironmentError::Missing { name });
        fn id<T: std::str::FromStr<Err = protocol::InvalidId>>(
            name: &'static str,
            text: String,
        ) -> Result<T, EnvironmentError> {
            text.parse()
                .map_err(|error: protocol::InvalidId| EnvironmentError::Invalid {
                    name,
                    problem: error.to_string(),
                })
        }
        let duration = |name: &'static str, default| match value(name) {
            None => Ok(default),
            Some(text) => {
                protocol::duration::parse(&text).map_err(|error| EnvironmentError::Invalid {
                    name,
                    problem: error.to_string(),
                })
            }
        };
        let outlives = value(CHECKPOINT).is_some_and(|value| value == "1");
        let recovery = duration(RECOVERY_TIMEOUT, RECOVERY_TIMEOUT_DEFAULT)?;
        Ok(Self {
            framework_id: id(FRAMEWORK_ID, text(FRAMEWORK_ID)?)?,
            executor_id: id(EXECUTOR_ID, text(EXECUTOR_ID)?)?,
            container_id: id(CONTAINER_ID, text(CONTAINER_ID)?)?,
            agent_id: id(AGENT_ID, text(AGENT_ID)?)?,
            sandbox: PathBuf::from(text(SANDBOX)?),
            socket: text(SOCKET)?,
            token: text(TOKEN)?,
            shutdown_grace_period: duration(SHUTDOWN_GRACE_PERIOD, Duration::from_secs(5))?,
            recovery_timeout: if outlives { recovery } else { Duration::ZERO },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(name: &str) -> Option<String> {
        let value = match name {
            FRAMEWORK_ID => "f",
            EXECUTOR_ID => "e",
            AGENT_ID => "s",
            CONTAINER_ID => "c",
            SANDBOX => "/sandbox",
            SOCKET => "/run/x",
            TOKEN => "secret",
            SHUTDOWN_GRACE_PERIOD => "7secs",
            _ => return None,
        };
        Some(value.to_owned())
    }

    /// SPEC 2.5.
    #[test]
    fn what_an_agent_sets_is_read() {
        let environment = Environment::from(value).unwrap();
        assert_eq!(environment.executor_id.as_str(), "e");
        assert_eq!(environment.shutdown_grace_period, Duration::from_secs(7));
        assert_eq!(environment.recovery_timeout, Duration::ZERO);
    }

    /// SPEC 5.3.
    #[test]
    fn an_executor_that_outlives_its_agent_is_told_for_how_long() {
        let with = |checkpoint: &'static str, timeout: Option<&'static str>| {
            let value = move |name: &str| match name {
                CHECKPOINT => Some(checkpoint.to_owned()),
                RECOVERY_TIMEOUT => timeout.map(str::to_owned),
                _ => value(name),
            };
            Environment::from(value).unwrap().recovery_timeout.as_secs()
        };
        assert_eq!(with("0", Some("10mins")), 0);
        assert_eq!(with("1", None), 900);
        assert_eq!(with("1", Some("10mins")), 600);
    }

    #[test]
    fn what_is_missing_or_wrong_is_named() {
        let without = Environment::from(|name| value(name).filter(|_| name != TOKEN)).unwrap_err();
        assert!(
            without
                .to_string()
                .contains("MEROS_EXECUTOR_TOKEN is not set"),
            "{without}"
        );
        let wrong = |name: &str| {
            if name == AGENT_ID {
                Some("a/b".to_owned())
            } else {
                value(name)
            }
        };
        let wrong = Environment::from(wrong).unwrap_err();
        assert!(
            wrong
                .to_string()
                .starts_with("environment variable MESOS_SLAVE_ID: agent_id `a/b`"),
            "{wrong}"
        );
    }
}
