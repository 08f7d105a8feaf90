//! The environment variables that an agent sets for an executor. Read once and validated.

use std::path::PathBuf;
use std::time::Duration;

use protocol::{AgentId, ContainerId, ExecutorId, FrameworkId};

/// Framework id.
pub const FRAMEWORK_ID: &str = "MESOS_FRAMEWORK_ID";
/// Executor id.
pub const EXECUTOR_ID: &str = "MESOS_EXECUTOR_ID";
/// Agent id.
pub const AGENT_ID: &str = "MESOS_SLAVE_ID";
/// Sandbox, as seen from the host.
pub const DIRECTORY: &str = "MESOS_DIRECTORY";
/// Sandbox, as seen from the executor.
pub const SANDBOX: &str = "MESOS_SANDBOX";
/// The agent's HTTP address as `ADDRESS:PORT`, or with its host name if the address is unknown or
/// certificates are verified.
pub const AGENT_ENDPOINT: &str = "MESOS_AGENT_ENDPOINT";
/// Time for the executor to stop.
pub const SHUTDOWN_GRACE_PERIOD: &str = "MESOS_EXECUTOR_SHUTDOWN_GRACE_PERIOD";
/// The agent's libprocess pid: `slave(1)@HOST:PORT`.
pub const AGENT_PID: &str = "MESOS_SLAVE_PID";
/// Whether executors survive a restart of their agent: `0` or `1`.
pub const CHECKPOINT: &str = "MESOS_CHECKPOINT";
/// How long an executor may be without its agent. Only with checkpointing.
pub const RECOVERY_TIMEOUT: &str = "MESOS_RECOVERY_TIMEOUT";
/// Longest wait between two subscriptions over HTTP. Only with checkpointing.
pub const SUBSCRIPTION_BACKOFF_MAX: &str = "MESOS_SUBSCRIPTION_BACKOFF_MAX";
/// Secret token of an HTTP executor, sent with each call as `Authorization: Bearer TOKEN`.
pub const AUTHENTICATION_TOKEN: &str = "MESOS_EXECUTOR_AUTHENTICATION_TOKEN";
/// Role to which the executor's resources are allocated.
pub const ALLOCATION_ROLE: &str = "MESOS_ALLOCATION_ROLE";
/// Set for Mesos' executors: always `0`.
pub const HTTP_COMMAND_EXECUTOR: &str = "MESOS_HTTP_COMMAND_EXECUTOR";
/// Scheme of the agent's HTTP endpoint: `http` or `https`. Not in Mesos.
pub const AGENT_SCHEME: &str = "MEROS_AGENT_SCHEME";
/// `true` if the agent serves HTTPS only; read by executors on libprocess.
pub const LIBPROCESS_SSL_ENABLED: &str = "LIBPROCESS_SSL_ENABLED";
/// Port of an executor on libprocess: `0` for any.
pub const LIBPROCESS_PORT: &str = "LIBPROCESS_PORT";
/// Address of the executor's network, which is the agent's.
pub const CONTAINER_IP: &str = "MESOS_CONTAINER_IP";
/// The same, as the address that an executor on libprocess binds.
pub const LIBPROCESS_IP: &str = "LIBPROCESS_IP";
/// The agent's Unix socket for executors.
pub const SOCKET: &str = "MEROS_EXECUTOR_SOCKET";
/// Secret token that proves the executor's identity to the agent.
pub const TOKEN: &str = "MEROS_EXECUTOR_TOKEN";
/// The executor's container.
pub const CONTAINER_ID: &str = "MEROS_CONTAINER_ID";
/// The id of a command's task.
pub const TASK_ID: &str = "MESOS_TASK_ID";

const RECOVERY_TIMEOUT_DEFAULT: Duration = Duration::from_secs(15 * 60);

/// Identity of this executor and address of its agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Environment {
    /// Framework of the executor.
    pub framework_id: FrameworkId,
    /// The executor.
    pub executor_id: ExecutorId,
    /// Its container.
    pub container_id: ContainerId,
    /// Its agent.
    pub agent_id: AgentId,
    /// Its sandbox.
    pub sandbox: PathBuf,
    /// Path of the agent's Unix socket.
    pub socket: String,
    /// Secret token that proves its identity.
    pub token: String,
    /// Time to stop; 5 s by default.
    pub shutdown_grace_period: Duration,
    /// How long it may be without its agent: zero without checkpointing, otherwise 15 min by
    /// default.
    pub recovery_timeout: Duration,
}

/// The environment was not made by an agent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EnvironmentError {
    /// A variable is missing: an agent did not start this program.
    #[error(
        "environment variable {name} is not set: an executor is started by an agent, which sets it"
    )]
    Missing {
        /// The variable.
        name: &'static str,
    },
    /// A variable has an invalid value.
    #[error("environment variable {name}: {problem}")]
    Invalid {
        /// The variable.
        name: &'static str,
        /// The value and the expectation.
        problem: String,
    },
}

impl Environment {
    /// The agent's address for the node.
    pub fn address(&self) -> String {
        format!("{}{}", transport::unix::SCHEME, self.socket)
    }

    /// Reads the environment of this process.
    pub fn read() -> Result<Self, EnvironmentError> {
        Self::from(|name| std::env::var(name).ok())
    }

    /// Reads the variables that `value` returns.
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
                protocol::text::duration::parse(&text).map_err(|error| EnvironmentError::Invalid {
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
    // Covers 2.5 Environment.
    #[test]
    fn environment_of_an_agent_is_read() {
        let environment = Environment::from(value).unwrap();
        assert_eq!(environment.executor_id.as_str(), "e");
        assert_eq!(environment.shutdown_grace_period, Duration::from_secs(7));
        assert_eq!(environment.recovery_timeout, Duration::ZERO);
    }

    /// SPEC 5.3.
    #[test]
    fn recovery_timeout_is_read_with_checkpointing() {
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
    fn errors_name_the_variable() {
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
