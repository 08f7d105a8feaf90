//! The program, user and environment of a container. Pure.
//!
//! Sets the variables that Mesos executors expect, and that their commands see.
//! `MESOS_CONTAINER_IP` and `LIBPROCESS_IP` are the agent's address, since containers share the
//! host's network; they are unset if no address is configured. `MESOS_DOMAIN_SOCKET` is never set:
//! HTTP is served over TCP only.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use executor_driver::environment as variable;
use protocol::text::duration;
use protocol::{AgentId, AgentInfo, ContainerId};

use super::executor_spec::ExecutorSpec;
use super::machine::Container;
use super::machine::command::kill_grace;
use super::{Containerizer, http_executors};
use crate::config::Config;
use crate::launcher::{ContainerProgram, LaunchRequest};

/// Upper bound of an HTTP executor's subscription backoff; half of
/// `executor_reregistration_timeout` if that is shorter.
const SUBSCRIPTION_BACKOFF_MAX: Duration = Duration::from_secs(2);

impl Containerizer {
    /// How to start this container's executor.
    pub(super) fn launch_request(&self, id: &ContainerId) -> Option<LaunchRequest> {
        let (framework_id, container) = self.containers.entry(id)?;
        let executor = &container.executor;
        let sandbox = self.sandbox(framework_id, container);
        let grace = grace(&self.config, container);
        let first = container.tasks().next().map(|task| &task.info);
        if first.is_none() && !container.is_group() {
            return None;
        }
        let spec = first.map(|task| ExecutorSpec::of(task, &container.framework));
        let user = match spec.transpose().ok()? {
            Some(spec) => spec.user,
            None => Some(container.framework.user.clone()).filter(|user| !user.is_empty()),
        };
        let provisioned = self.provisioning.of(id);
        let command = provisioned.map_or(&executor.command, |one| &one.command);
        let (program, grace) = match first {
            Some(task) if container.is_command => (
                ContainerProgram::Command(command.clone()),
                kill_grace(task).min(grace),
            ),
            Some(_) => (ContainerProgram::Executor(command.clone()), grace),
            None => (ContainerProgram::Group, grace),
        };
        let mut plan = self.isolation.plan(id);
        let agent_id = self.agent.id.as_ref()?;
        let own = variables(&self.config, &self.agent, agent_id, container, &sandbox);
        let mut environment = BTreeMap::new();
        if let Some(provisioned) = provisioned {
            environment.extend(provisioned.image.environment.iter().cloned());
            plan.mounts.extend(self.volume_mounts(container));
        }
        if container.parent().is_some() {
            plan.mounts.extend(self.volumes_in_sandbox(container));
        }
        environment.extend(own);
        environment.extend(plan.environment.clone());
        if let Some(directory) = provisioned.and_then(|one| one.image.working_dir.clone()) {
            environment.insert("PWD".to_owned(), directory.clone());
            plan.working_directory = Some(directory.into());
        }
        Some(LaunchRequest {
            container_id: id.clone(),
            program,
            environment,
            sandbox,
            user: user.filter(|_| self.config.settings.switch_user),
            account: provisioned.and_then(|one| one.user.clone()),
            outlives: container.is_checkpointed(),
            grace,
            plan,
            session: None,
            has_terminal: executor.has_terminal(),
        })
    }

    /// How long a disconnected executor may take to subscribe again. One without a checkpoint is
    /// expected to exit within its grace period.
    pub(super) fn return_patience(&self, id: &ContainerId) -> Duration {
        let settings = &self.config.settings;
        match self.containers.get(id) {
            Some(container) if container.framework.checkpoint => settings.recovery_timeout,
            Some(container) => grace(&self.config, container),
            None => Duration::ZERO,
        }
    }
}

/// The executor's shutdown grace period.
fn grace(config: &Config, container: &Container) -> Duration {
    let own = container.executor.shutdown_grace_period;
    own.unwrap_or(config.settings.executor_shutdown_grace_period)
}

/// The address at which executors reach the agent: an IP address as in Mesos, or the host name if
/// no address is known or a certificate has to match it.
fn endpoint(config: &Config, agent: &AgentInfo) -> String {
    let address = match config.settings.https_only {
        true => agent.hostname.parse().ok(),
        false => config.container_address(),
    };
    match address {
        Some(address) => SocketAddr::new(address, agent.port).to_string(),
        None => format!("{}:{}", agent.hostname, agent.port),
    }
}

fn variables(
    config: &Config,
    agent: &AgentInfo,
    agent_id: &AgentId,
    container: &Container,
    sandbox: &Path,
) -> BTreeMap<String, String> {
    let text = |path: &Path| path.to_string_lossy().into_owned();
    if container.parent().is_some() {
        // As in Mesos, tasks of a group know neither their ids nor their agent.
        let address = config.container_address();
        let all = [
            (variable::SANDBOX, Some(text(sandbox))),
            // By it the zygote finds what an earlier one has left.
            (variable::CONTAINER_ID, Some(container.id.to_string())),
            (variable::CONTAINER_IP, address.map(|ip| ip.to_string())),
            (variable::ALLOCATION_ROLE, allocation_role(container)),
        ];
        let known = all.into_iter();
        let known = known.filter_map(|(name, value)| Some((name.to_owned(), value?)));
        return known.collect();
    }
    let framework_id = container.framework.id.as_ref();
    let endpoint = endpoint(config, agent);
    let checkpoint = container.framework.checkpoint;
    let mut all = vec![
        (
            variable::FRAMEWORK_ID,
            framework_id.map(ToString::to_string).unwrap_or_default(),
        ),
        (
            variable::EXECUTOR_ID,
            container.executor.executor_id.to_string(),
        ),
        (variable::AGENT_ID, agent_id.to_string()),
        (variable::AGENT_PID, format!("slave(1)@{endpoint}")),
        (variable::AGENT_ENDPOINT, endpoint),
        (variable::DIRECTORY, text(sandbox)),
        (variable::SANDBOX, text(sandbox)),
        (variable::CHECKPOINT, u8::from(checkpoint).to_string()),
        (
            variable::SHUTDOWN_GRACE_PERIOD,
            duration::format(grace(config, container)),
        ),
        (variable::HTTP_COMMAND_EXECUTOR, "0".to_owned()),
        (variable::LIBPROCESS_PORT, "0".to_owned()),
        (variable::CONTAINER_ID, container.id.to_string()),
    ];
    if checkpoint {
        let timeout = duration::format(config.settings.recovery_timeout);
        all.push((variable::RECOVERY_TIMEOUT, timeout));
        let backoff =
            SUBSCRIPTION_BACKOFF_MAX.min(config.settings.executor_reregistration_timeout / 2);
        let backoff = duration::format(backoff);
        all.push((variable::SUBSCRIPTION_BACKOFF_MAX, backoff));
    }
    let operator_variables = &config.settings.executor_environment_variables;
    if let Some(address) = config.container_address() {
        all.push((variable::CONTAINER_IP, address.to_string()));
        // The only variable set by the agent that the operator may override, as in Mesos.
        if !operator_variables.contains_key(variable::LIBPROCESS_IP) {
            all.push((variable::LIBPROCESS_IP, address.to_string()));
        }
    }
    if let Some(role) = allocation_role(container) {
        all.push((variable::ALLOCATION_ROLE, role));
    }
    if container.is_command {
        let task = container.tasks().next().map(|task| &task.info.task_id);
        all.extend(task.map(|task| (variable::TASK_ID, task.to_string())));
    } else {
        all.push((variable::SOCKET, text(config.executor_socket())));
        all.push((variable::TOKEN, container.token.clone()));
        all.push((
            variable::AUTHENTICATION_TOKEN,
            http_executors::token(container),
        ));
        let https_only = config.settings.https_only;
        let scheme = if https_only { "https" } else { "http" };
        all.push((variable::AGENT_SCHEME, scheme.to_owned()));
        if https_only {
            all.push((variable::LIBPROCESS_SSL_ENABLED, "true".to_owned()));
        }
    }
    let owned = |(name, value): (&str, String)| (name.to_owned(), value);
    let mut variables = operator_variables.clone();
    variables.extend(all.into_iter().map(owned));
    variables
}

/// The role of the executor's resources, or of its first task if it has none.
fn allocation_role(container: &Container) -> Option<String> {
    let tasks = container.tasks().map(|task| &task.info.resources);
    let mut all = std::iter::once(&container.executor.resources).chain(tasks);
    all.find_map(|resources| {
        let mut roles = resources.iter().filter_map(|one| one.allocation_role());
        roles.next().map(ToString::to_string)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Settings;
    use crate::host::detect::Host;
    use protocol::{CommandInfo, ExecutorId, ExecutorInfo, FrameworkId, FrameworkInfo};
    use resources::{Resources, Role};

    fn environment(checkpoint: bool, is_command: bool) -> BTreeMap<String, String> {
        environment_of(checkpoint, is_command, |_| ())
    }

    fn environment_of(
        checkpoint: bool,
        is_command: bool,
        choose: impl FnOnce(&mut Settings),
    ) -> BTreeMap<String, String> {
        let host = Host {
            name: "h".into(),
            cores: 8,
            memory: 16 << 30,
            disk: 100 << 30,
        };
        let mut settings = Settings::new(vec!["m:5050".into()], "/w");
        choose(&mut settings);
        let config = settings.check_on(&host).unwrap();
        let agent_id = AgentId::new("s").unwrap();
        let resources: Resources = "cpus:1".parse().unwrap();
        let executor = ExecutorInfo {
            executor_id: ExecutorId::new("e").unwrap(),
            kind: protocol::ExecutorKind::Custom,
            name: String::new(),
            command: CommandInfo::shell("executor"),
            resources: resources.allocate(&Role::new("ads").unwrap()),
            data: Vec::new(),
            shutdown_grace_period: None,
            labels: Default::default(),
            container: None,
        };
        let framework = FrameworkInfo {
            id: Some(FrameworkId::new("f").unwrap()),
            checkpoint,
            ..FrameworkInfo::new("", "f")
        };
        let id = ContainerId::new("c").unwrap();
        let container = Container::new(id, framework, executor, is_command, "secret".into());
        let sandbox = Path::new("/w/sandbox");
        variables(&config, config.info(), &agent_id, &container, sandbox)
    }

    /// SPEC 2.5, 5.3.
    // Covers 2.5 Environment.
    #[test]
    fn executor_gets_the_variables_of_mesos() {
        let of_two = environment(true, false);
        for (name, value) in [
            ("MESOS_FRAMEWORK_ID", "f"),
            ("MESOS_EXECUTOR_ID", "e"),
            ("MESOS_SLAVE_ID", "s"),
            ("MESOS_SLAVE_PID", "slave(1)@h:5051"),
            ("MESOS_AGENT_ENDPOINT", "h:5051"),
            ("MESOS_DIRECTORY", "/w/sandbox"),
            ("MESOS_SANDBOX", "/w/sandbox"),
            ("MESOS_CHECKPOINT", "1"),
            ("MESOS_RECOVERY_TIMEOUT", "15mins"),
            ("MESOS_SUBSCRIPTION_BACKOFF_MAX", "1secs"),
            ("MESOS_EXECUTOR_SHUTDOWN_GRACE_PERIOD", "5secs"),
            ("MESOS_EXECUTOR_AUTHENTICATION_TOKEN", "c.secret"),
            ("MESOS_ALLOCATION_ROLE", "ads"),
            ("MESOS_HTTP_COMMAND_EXECUTOR", "0"),
            ("LIBPROCESS_PORT", "0"),
            ("MEROS_AGENT_SCHEME", "http"),
        ] {
            assert_eq!(of_two.get(name).map(String::as_str), Some(value), "{name}");
        }
        let of_one = environment(false, true);
        assert_eq!(of_one["MESOS_CHECKPOINT"], "0");
        for absent in [
            "MESOS_RECOVERY_TIMEOUT",
            "MESOS_SUBSCRIPTION_BACKOFF_MAX",
            "MESOS_EXECUTOR_AUTHENTICATION_TOKEN",
        ] {
            assert!(!of_one.contains_key(absent), "{absent}");
        }
    }

    /// SPEC 2.5: containers share the host's network.
    #[test]
    fn executor_gets_the_configured_address() {
        let of = |hostname: Option<&str>, address: Option<[u8; 4]>| {
            let environment = environment_of(false, true, |chosen| {
                chosen.hostname = hostname.map(str::to_owned);
                chosen.address = address.map(Into::into);
            });
            let found = ["MESOS_CONTAINER_IP", "LIBPROCESS_IP"].map(|name| environment.get(name));
            assert_eq!(found[0], found[1]);
            found[0].cloned().unwrap_or_default()
        };
        assert_eq!(of(None, None), "");
        assert_eq!(of(Some("a.example"), Some([10, 0, 0, 7])), "10.0.0.7");
        assert_eq!(of(Some("10.0.0.8"), None), "10.0.0.8");
    }

    #[test]
    fn operator_variables_apply_unless_set_by_the_agent() {
        let chosen = [
            ("LD_LIBRARY_PATH", "/opt/lib"),
            ("PATH", "/opt/bin"),
            ("MESOS_SANDBOX", "/elsewhere"),
            ("LIBPROCESS_IP", "10.0.0.9"),
        ];
        let chosen = chosen.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let environment = environment_of(false, true, |settings| {
            settings.address = Some([10, 0, 0, 7].into());
            settings.executor_environment_variables = chosen.into();
        });
        for (name, value) in [
            ("LD_LIBRARY_PATH", "/opt/lib"),
            ("PATH", "/opt/bin"),
            ("MESOS_SANDBOX", "/w/sandbox"),
            ("LIBPROCESS_IP", "10.0.0.9"),
            ("MESOS_CONTAINER_IP", "10.0.0.7"),
        ] {
            assert_eq!(environment[name], value, "{name}");
        }
    }

    /// SPEC 2.5: the host name may resolve to another machine, or not at all.
    // Covers 2.5 Environment.
    #[test]
    fn executor_endpoint_is_an_address_unless_https_only() {
        let of = |hostname: &str, address: Option<&str>, https_only| {
            let environment = environment_of(false, false, |chosen| {
                chosen.hostname = Some(hostname.to_owned());
                chosen.address = address.map(|address| address.parse().unwrap());
                chosen.https_only = https_only;
            });
            let endpoint = environment["MESOS_AGENT_ENDPOINT"].clone();
            let pid = format!("slave(1)@{endpoint}");
            assert_eq!(environment["MESOS_SLAVE_PID"], pid);
            endpoint
        };
        let name = "a.example";
        assert_eq!(of(name, Some("10.0.0.7"), false), "10.0.0.7:5051");
        assert_eq!(of(name, Some("::1"), false), "[::1]:5051");
        assert_eq!(of(name, None, false), "a.example:5051");
        assert_eq!(of("::1", None, false), "[::1]:5051");
        assert_eq!(of(name, Some("10.0.0.7"), true), "a.example:5051");
        assert_eq!(of("::1", Some("10.0.0.7"), true), "[::1]:5051");
    }

    // Covers 2.5 Environment.
    #[test]
    fn http_executor_is_told_the_scheme() {
        let scheme = |environment: BTreeMap<String, String>| {
            let of = |name: &str| environment.get(name).cloned().unwrap_or_default();
            (of("MEROS_AGENT_SCHEME"), of("LIBPROCESS_SSL_ENABLED"))
        };
        let told = |scheme: &str, ssl: &str| (scheme.to_owned(), ssl.to_owned());
        assert_eq!(scheme(environment(true, false)), told("http", ""));
        let https =
            |is_command| environment_of(true, is_command, |chosen| chosen.https_only = true);
        assert_eq!(scheme(https(false)), told("https", "true"));
        assert_eq!(
            scheme(https(true)),
            told("", ""),
            "a command speaks to no agent"
        );
    }
}
