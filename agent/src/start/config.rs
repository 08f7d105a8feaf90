//! Configuration: the operator's settings, validated at start.
//!
//! [`Settings`] holds the flags, [`Config`] the validated configuration; [`Settings::check`]
//! converts one to the other.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use authority::{Acls, Reloadable, Throttle};
use protocol::agent::{AgentInfo, Domain};
use resources::{Attributes, Resources, Role};

use crate::host::detect::{self, Host};
use crate::ledger::reconfiguration::ReconfigurationPolicy;
use crate::oversubscription::maximum::LendingMax;

/// The settings as given by the operator.
#[derive(Clone, Debug)]
pub struct Settings {
    /// `--master`: addresses of the masters, `host:port`; tried in turn.
    pub masters: Vec<String>,
    /// `--work_dir`: the agent's data directory; created if missing.
    pub work_dir: PathBuf,
    /// `--hostname`; default: the host's own name.
    pub hostname: Option<String>,
    /// `--ip`, if it is one address: also that of containers. `None`: the host name, if it is an
    /// address.
    pub address: Option<IpAddr>,
    /// `--port`: for HTTP and QUIC, default 5051. Only announced by this crate, not opened.
    pub port: u16,
    /// `--resources`: text or JSON; missing ones are detected.
    pub resources: Option<String>,
    /// `--attributes`: text or JSON.
    pub attributes: Option<String>,
    /// `--domain`: fault domain of the machine, as `REGION/ZONE`.
    pub domain: Option<Domain>,
    /// `--default_role`: of resources that name none, default `*`.
    pub default_role: String,
    /// The executors' Unix socket, in a short path: the system allows 107 bytes.
    pub executor_socket: PathBuf,
    /// `--registration_backoff_factor`, default 1 s: doubles with each failed attempt, up to a
    /// minute.
    pub registration_backoff_factor: Duration,
    /// `--executor_registration_timeout`, default 1 min: an executor that does not subscribe in
    /// this time is killed.
    pub executor_registration_timeout: Duration,
    /// `--executor_shutdown_grace_period`, default 5 s: time for an executor to stop by itself.
    pub executor_shutdown_grace_period: Duration,
    /// `--recovery_timeout`, default 15 min: how long a checkpointed executor may run without its
    /// agent, or stay away after its HTTP stream has broken.
    pub recovery_timeout: Duration,
    /// `--executor_reregistration_timeout`, default 2 s, at most 15 s: an executor that does not
    /// subscribe in this time after an agent restart is killed.
    pub executor_reregistration_timeout: Duration,
    /// `--strict`, default true: refuse to start if a checkpoint cannot be read. Otherwise skip and
    /// count it.
    pub strict: bool,
    /// `--reconfiguration_policy`, default `any`: how the agent's description may differ from the
    /// one before a restart.
    pub reconfiguration_policy: ReconfigurationPolicy,
    /// Whether executors of frameworks with `checkpoint` outlive the agent; default true.
    pub checkpoint_executors: bool,
    /// `--authenticate_http_executors`, default false: require the token in each call of an HTTP
    /// executor. Otherwise an executor without one is identified by its ids, except one that has
    /// not subscribed since an agent restart. A token that is sent must always be valid.
    pub authenticate_http_executors: bool,
    /// `--oversubscribed_resources_interval`, default 15 s: how often the estimator is asked.
    pub oversubscribed_resources_interval: Duration,
    /// `--oversubscription_max`, default none: an upper bound of the lent resources.
    pub oversubscription_max: LendingMax,
    /// `--record_usage`, default none: the file of a usage trace.
    pub record_usage: Option<PathBuf>,
    /// `--qos_correction_interval_min`, default 0: the least time between two rounds of
    /// corrections.
    pub qos_correction_interval_min: Duration,
    /// `--switch_user`, default true: as root, run tasks as the requested user.
    pub switch_user: bool,
    /// `--executor_environment_variables`, default none: variables of executors and their tasks,
    /// beside those that the agent sets. The agent's own environment is not inherited.
    pub executor_environment_variables: BTreeMap<String, String>,
    /// `--max_completed_executors_per_framework`, default 150: completed executor runs shown.
    pub max_completed_executors_per_framework: usize,
    /// `--gc_delay`, default 1 week: maximum age of an ended executor's sandbox.
    pub gc_delay: Duration,
    /// `--gc_disk_headroom`, default 0.1: share of the disk to keep free. Sandboxes are kept for
    /// `gc_delay * max(0, 1 - gc_disk_headroom - usage)`.
    pub gc_disk_headroom: f64,
    /// `--disk_watch_interval`, default 1 min: interval of disk checks.
    pub disk_watch_interval: Duration,
    /// `--max_completed_sandboxes`, default 10,000: maximum number of ended executors' sandboxes.
    pub max_completed_sandboxes: usize,
    /// `--max_output_size`, default 100 MB: bytes of a task's `stdout`, and of its `stderr`, before
    /// the older part is moved to `stdout.1`; zero for no bound.
    pub max_output_size: u64,
    /// `--fetcher_stall_timeout`, default 1 min: a download fails if its server sends nothing
    /// for this time.
    pub fetcher_stall_timeout: Duration,
    /// `--fetcher_cache_size`, default 2 GB: the bytes of cached files; zero for no cache.
    pub fetcher_cache_size: u64,
    /// `--fetcher_cache_dir`, default `fetch` in the work directory. Emptied at the start.
    pub fetcher_cache_dir: PathBuf,
    /// `--fetcher_ca`, default the host's: the certificates of authorities for `https` URIs, a PEM
    /// file that the users of tasks can read.
    pub fetcher_ca: Option<PathBuf>,
    /// Whether HTTP is served over TLS only, default false. Passed on to HTTP executors.
    pub https_only: bool,
    /// `--acls`: authorization, default everything for everyone.
    pub acls: Reloadable<Acls>,
    /// `--rate_limits`: rate limits of operators, default none.
    pub throttle: Throttle,
    /// Further flags and their values, for pages.
    pub extra_flags: BTreeMap<String, String>,
}

impl Settings {
    /// The defaults, for these masters and this work directory.
    pub fn new(masters: Vec<String>, work_dir: impl Into<PathBuf>) -> Self {
        let work_dir = work_dir.into();
        Self {
            masters,
            hostname: None,
            address: None,
            port: 5051,
            resources: None,
            attributes: None,
            domain: None,
            default_role: "*".into(),
            executor_socket: work_dir.join("executors.sock"),
            fetcher_cache_dir: work_dir.join("fetch"),
            work_dir,
            registration_backoff_factor: Duration::from_secs(1),
            executor_registration_timeout: Duration::from_secs(60),
            executor_shutdown_grace_period: Duration::from_secs(5),
            recovery_timeout: Duration::from_secs(15 * 60),
            executor_reregistration_timeout: Duration::from_secs(2),
            strict: true,
            reconfiguration_policy: ReconfigurationPolicy::default(),
            checkpoint_executors: true,
            authenticate_http_executors: false,
            oversubscribed_resources_interval: Duration::from_secs(15),
            oversubscription_max: LendingMax::default(),
            record_usage: None,
            qos_correction_interval_min: Duration::ZERO,
            switch_user: true,
            executor_environment_variables: BTreeMap::new(),
            max_completed_executors_per_framework: 150,
            gc_delay: Duration::from_secs(7 * 24 * 3600),
            gc_disk_headroom: 0.1,
            disk_watch_interval: Duration::from_secs(60),
            max_completed_sandboxes: 10_000,
            max_output_size: 100 << 20,
            fetcher_stall_timeout: Duration::from_secs(60),
            fetcher_cache_size: 2 << 30,
            fetcher_ca: None,
            https_only: false,
            acls: Reloadable::default(),
            throttle: Throttle::default(),
            extra_flags: BTreeMap::new(),
        }
    }

    /// Validates the settings and detects missing resources.
    pub fn check(self) -> Result<Config, ConfigError> {
        let host = Host::of(&self.work_dir);
        self.check_on(&host)
    }

    /// Likewise, on a given host.
    pub fn check_on(self, host: &Host) -> Result<Config, ConfigError> {
        let wrong = |flag: &'static str, value: &str, problem: String| ConfigError::Invalid {
            flag,
            value: value.chars().take(200).collect(),
            problem,
        };
        if self.masters.is_empty() || self.masters.iter().any(String::is_empty) {
            return Err(wrong(
                "master",
                &self.masters.join(","),
                "expected one or more HOST:PORT".into(),
            ));
        }
        if !self.work_dir.is_absolute() || self.work_dir.to_str().is_none() {
            let given = self.work_dir.display().to_string();
            return Err(wrong(
                "work_dir",
                &given,
                "expected an absolute path in UTF-8".into(),
            ));
        }
        let socket = self.executor_socket.to_str().unwrap_or_default();
        if socket.is_empty() || socket.len() > SOCKET_PATH_MAX {
            let given = self.executor_socket.display().to_string();
            let problem = format!(
                "expected a path of at most {SOCKET_PATH_MAX} bytes for the executors' socket"
            );
            return Err(wrong("runtime_dir", &given, problem));
        }
        for (flag, value) in [
            (
                "registration_backoff_factor",
                self.registration_backoff_factor,
            ),
            (
                "executor_registration_timeout",
                self.executor_registration_timeout,
            ),
            (
                "oversubscribed_resources_interval",
                self.oversubscribed_resources_interval,
            ),
            ("disk_watch_interval", self.disk_watch_interval),
            ("fetcher_stall_timeout", self.fetcher_stall_timeout),
        ] {
            if value.is_zero() {
                return Err(wrong(
                    flag,
                    "0ns",
                    "expected more than zero, for example 1secs".into(),
                ));
            }
        }
        if !(self.gc_disk_headroom >= 0.0 && self.gc_disk_headroom.is_finite()) {
            let given = self.gc_disk_headroom.to_string();
            let problem = "expected a share of the disk of at least 0.0, for example 0.1";
            return Err(wrong("gc_disk_headroom", &given, problem.into()));
        }
        let patience = self.executor_reregistration_timeout;
        if patience.is_zero() || patience > EXECUTOR_REREGISTRATION_TIMEOUT_MAX {
            let given = protocol::text::duration::format(patience);
            let problem = "expected more than zero and at most 15secs: the agent does not register before that";
            let flag = "executor_reregistration_timeout";
            return Err(wrong(flag, &given, problem.into()));
        }
        let role = Role::new(&self.default_role)
            .map_err(|error| wrong("default_role", &self.default_role, error.to_string()))?;
        let given = self.resources.as_deref().unwrap_or_default();
        let parsed = Resources::parse_for(given, &role);
        let parsed = parsed.map_err(|error| wrong("resources", given, error.to_string()))?;
        if parsed
            .iter()
            .any(|resource| resource.is_revocable() || resource.allocation_role().is_some())
        {
            let problem = "expected neither revocable nor allocated resources";
            return Err(wrong("resources", given, problem.into()));
        }
        for (name, value) in &self.executor_environment_variables {
            if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
                let problem =
                    "expected names that are not empty and contain no `=`, and no zero bytes";
                return Err(wrong(
                    "executor_environment_variables",
                    name,
                    problem.into(),
                ));
            }
        }
        let resources = detect::complete(parsed, given, host, &role);
        let text = self.attributes.as_deref().unwrap_or_default();
        let attributes = Attributes::parse(text)
            .map_err(|error| wrong("attributes", text, error.to_string()))?;
        let hostname = self.hostname.clone().unwrap_or_else(|| host.name.clone());
        Ok(Config {
            info: AgentInfo {
                hostname,
                port: self.port,
                resources,
                attributes,
                domain: self.domain.clone(),
                id: None,
            },
            settings: self,
        })
    }
}

/// The longest `--executor_reregistration_timeout`.
const EXECUTOR_REREGISTRATION_TIMEOUT_MAX: Duration = Duration::from_secs(15);
/// Maximum length of a Unix socket path, in bytes.
const SOCKET_PATH_MAX: usize = 107;

/// The validated configuration.
#[derive(Clone, Debug)]
pub struct Config {
    pub(crate) settings: Settings,
    /// The agent's description.
    pub(crate) info: AgentInfo,
}

/// Mesos agent flags that do not exist here, with the value that matches the behaviour: tools
/// expect them on the page.
const MESOS_FLAGS: [(&str, &str); 14] = [
    ("authorizer", "local"),
    ("containerizers", "mesos"),
    ("enforce_container_disk_quota", "false"),
    ("frameworks_home", ""),
    ("help", "false"),
    ("http_command_executor", "false"),
    ("initialize_driver_logging", "true"),
    ("isolation", "posix/cpu,posix/mem"),
    ("launcher", "posix"),
    ("logbufsecs", "0"),
    ("logging_level", "INFO"),
    ("memory_profiling", "false"),
    ("quiet", "false"),
    ("version", "false"),
];

impl Config {
    /// The agent's description.
    pub fn info(&self) -> &AgentInfo {
        &self.info
    }

    /// The agent's data directory.
    pub fn work_dir(&self) -> &Path {
        &self.settings.work_dir
    }

    /// The address of containers: the agent's own, if configured.
    pub fn container_address(&self) -> Option<IpAddr> {
        let named = || self.info.hostname.parse().ok();
        self.settings.address.or_else(named)
    }

    /// The executors' socket.
    pub fn executor_socket(&self) -> &Path {
        &self.settings.executor_socket
    }

    /// All flags with their values, for pages.
    pub fn flags(&self) -> BTreeMap<String, String> {
        let settings = &self.settings;
        let duration = protocol::text::duration::format;
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        let own = [
            ("master", settings.masters.join(",")),
            ("work_dir", settings.work_dir.display().to_string()),
            ("hostname", self.info.hostname.clone()),
            ("port", settings.port.to_string()),
            ("resources", text(&settings.resources)),
            ("attributes", text(&settings.attributes)),
            ("default_role", settings.default_role.clone()),
            (
                "registration_backoff_factor",
                duration(settings.registration_backoff_factor),
            ),
            (
                "executor_registration_timeout",
                duration(settings.executor_registration_timeout),
            ),
            (
                "executor_shutdown_grace_period",
                duration(settings.executor_shutdown_grace_period),
            ),
            ("recovery_timeout", duration(settings.recovery_timeout)),
            (
                "executor_reregistration_timeout",
                duration(settings.executor_reregistration_timeout),
            ),
            // With `cleanup` the agent ends before it serves pages.
            ("recover", "reconnect".to_owned()),
            ("strict", settings.strict.to_string()),
            (
                "reconfiguration_policy",
                settings.reconfiguration_policy.name().to_owned(),
            ),
            (
                "authenticate_http_executors",
                settings.authenticate_http_executors.to_string(),
            ),
            (
                "oversubscribed_resources_interval",
                duration(settings.oversubscribed_resources_interval),
            ),
            (
                "qos_correction_interval_min",
                duration(settings.qos_correction_interval_min),
            ),
            ("switch_user", settings.switch_user.to_string()),
            (
                "max_completed_executors_per_framework",
                settings.max_completed_executors_per_framework.to_string(),
            ),
            ("gc_delay", duration(settings.gc_delay)),
            ("gc_disk_headroom", settings.gc_disk_headroom.to_string()),
            (
                "disk_watch_interval",
                duration(settings.disk_watch_interval),
            ),
            (
                "max_completed_sandboxes",
                settings.max_completed_sandboxes.to_string(),
            ),
            ("max_output_size", format!("{}B", settings.max_output_size)),
            (
                "fetcher_stall_timeout",
                duration(settings.fetcher_stall_timeout),
            ),
            (
                "fetcher_cache_size",
                format!("{}B", settings.fetcher_cache_size),
            ),
            (
                "fetcher_cache_dir",
                settings.fetcher_cache_dir.display().to_string(),
            ),
        ];
        let of_mesos = MESOS_FLAGS.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let mut all = BTreeMap::from(of_mesos);
        all.extend(settings.extra_flags.clone());
        if let Some(path) = &settings.fetcher_ca {
            all.insert("fetcher_ca".to_owned(), path.display().to_string());
        }
        if let Some(path) = &settings.record_usage {
            all.insert("record_usage".to_owned(), path.display().to_string());
        }
        if settings.oversubscription_max != LendingMax::default() {
            let shown = settings.oversubscription_max.to_string();
            all.insert("oversubscription_max".to_owned(), shown);
        }
        let variables = &settings.executor_environment_variables;
        if !variables.is_empty() {
            let shown = serde_json::json!(variables).to_string();
            all.insert("executor_environment_variables".to_owned(), shown);
        }
        all.extend(own.map(|(name, value)| (name.to_owned(), value)));
        all
    }

    /// The settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }
}

/// An invalid setting.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The operator must change it.
    #[error("--{flag} is `{value}`: {problem}")]
    Invalid {
        /// The flag.
        flag: &'static str,
        /// Its value.
        value: String,
        /// The expectation.
        problem: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Settings {
        Settings::new(vec!["localhost:5050".into()], "/w")
    }

    fn host() -> Host {
        Host {
            name: "h".into(),
            cores: 8,
            memory: 16 << 30,
            disk: 100 << 30,
        }
    }

    fn error(change: impl FnOnce(&mut Settings)) -> String {
        let mut settings = settings();
        change(&mut settings);
        settings.check_on(&host()).unwrap_err().to_string()
    }

    /// SPEC 5.1.
    // Covers S76 in part: the ranges and the default; S89.
    #[test]
    fn given_resources_are_kept_and_the_rest_is_detected() {
        let mut settings = settings();
        settings.resources = Some("cpus:2;cpus(ads):1".into());
        settings.attributes = Some("rack:abc;zone:west".into());
        let config = settings.check_on(&host()).unwrap();
        let expected =
            Resources::parse("cpus:2;cpus(ads):1;mem:15360;disk:97280;ports:[31000-32000]")
                .unwrap();
        assert_eq!(config.info().resources, expected);
        assert_eq!(config.info().attributes.len(), 2);
        assert_eq!(config.info().hostname, "h");
    }

    // Covers S32 in part: that none is refused.
    #[test]
    fn invalid_settings_name_flag_and_value() {
        assert!(error(|s| s.masters.clear()).starts_with("--master is ``"));
        assert!(error(|s| s.work_dir = "relative".into()).starts_with("--work_dir is `relative`"));
        assert!(
            error(|s| s.resources = Some("cpus:x:y".into()))
                .starts_with("--resources is `cpus:x:y`")
        );
        assert!(error(|s| s.default_role = "a b".into()).starts_with("--default_role is `a b`"));
        assert!(error(|s| s.executor_socket = "/x".repeat(80).into()).contains("107 bytes"));
        let long = error(|s| s.executor_reregistration_timeout = Duration::from_secs(16));
        assert!(
            long.starts_with("--executor_reregistration_timeout is `16secs`"),
            "{long}"
        );
        for name in ["", "A=B", "A\0"] {
            let variables = BTreeMap::from([(name.to_owned(), "x".to_owned())]);
            let unusable = error(|s| s.executor_environment_variables = variables);
            assert!(
                unusable.starts_with("--executor_environment_variables is"),
                "{unusable}"
            );
        }
        let less = error(|s| s.gc_disk_headroom = -0.1);
        assert!(less.starts_with("--gc_disk_headroom is `-0.1`"), "{less}");
        let zero = error(|s| s.oversubscribed_resources_interval = Duration::ZERO);
        assert!(
            zero.starts_with("--oversubscribed_resources_interval is `0ns`"),
            "{zero}"
        );
    }
}
