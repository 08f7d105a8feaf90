//! The verb `meros agent`: assembles an agent from node, sockets, executor launcher, modules and
//! pages.
//!
//! Opens these resources and passes them on. Makes none of the agent's decisions.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ::agent::fetcher::Fetcher;
use ::agent::ledger::reconfiguration::ReconfigurationPolicy;
use ::agent::oversubscription::maximum::LendingMax;
use ::agent::{Modules, Settings, WorkDir, ZygoteLauncher};
use clap::{ArgAction, Args, ValueEnum};
use module_api::{Manifest, Registry};
use protocol::agent::Domain;
use runtime::{Clock, Node, Role};
use transport::{Identity, unix};

use crate::certs::CertsFlag;
use crate::flags::access::{Access, AccessFlags};
use crate::flags::http::{HttpFlags, own_names};
use crate::flags::{
    KeepAliveFlag, Text, Threads, ThreadsFlag, Variables, boolean, bytes, domain, duration,
    master_address, variables,
};
use crate::on_this_thread;
use crate::out;
use crate::output::error::{CliError, Outcome};
use crate::service::expiry::{self, Expiry, Watched};
use crate::service::images::{ImageFlags, ImagePlan};
use crate::service::isolation::{AgentFacts, Isolation, IsolationFlags};
use crate::service::modules::ModulesFlags;
use crate::service::reload;
use crate::service::signals::Signals;
use crate::service::{self, RunningService, Sockets};

/// The roles of nodes whose links an agent accepts from the network; its executors use a Unix
/// socket.
const ACCEPTS: [Role; 3] = [Role::Master, Role::Operator, Role::Executor];
/// The hidden verb that starts executors.
const ZYGOTE: &str = "executor-zygote";
/// The hidden verb that fetches the files of a container.
const FETCHER: &str = "fetcher";

/// Run an agent
#[derive(Args, Clone, Debug)]
#[command(rename_all = "snake_case", after_help = reload::HELP)]
pub struct AgentArgs {
    /// The masters, or some of them: each knows the leader
    #[arg(long, env = "MESOS_MASTER", value_name = "HOST:PORT,...", value_delimiter = ',', required_unless_present = "check", value_parser = master_address)]
    master: Vec<String>,
    /// Directory of tasks' sandboxes and the agent's state; created if missing
    #[arg(
        long,
        env = "MESOS_WORK_DIR",
        value_name = "DIR",
        required = false,
        required_unless_present = "check",
        default_value_if("check", "true", "/")
    )]
    work_dir: PathBuf,
    /// Address to listen on
    #[arg(long, env = "MESOS_IP", default_value_t = IpAddr::V4(Ipv4Addr::UNSPECIFIED))]
    ip: IpAddr,
    /// Port to listen on: HTTP over TCP, and QUIC over UDP
    #[arg(long, env = "MESOS_PORT", default_value_t = 5051)]
    port: u16,
    /// The host announced to others [default: the address, or this machine's name]
    #[arg(long, env = "MESOS_HOSTNAME", value_name = "HOST")]
    hostname: Option<String>,
    /// Fault domain of the machine; if it is in another region than the master, only frameworks
    /// with REGION_AWARE get its offers
    #[arg(long, env = "MESOS_DOMAIN", value_parser = domain, value_name = "REGION/ZONE|JSON")]
    domain: Option<Domain>,
    #[command(flatten)]
    modules: ModulesFlags,
    /// Action on executors of an earlier process of this agent: `reconnect` continues with them,
    /// `cleanup` ends them, moves their checkpoints aside, and exits
    #[arg(long, env = "MESOS_RECOVER", value_enum, default_value_t = Recover::Reconnect)]
    recover: Recover,
    /// Refuse to start if a checkpoint of an earlier process of this agent cannot be read;
    /// `--strict=false` skips it and counts it in `slave/recovery_errors`
    #[arg(long, env = "MESOS_STRICT", default_missing_value = "true", default_value = "true", num_args = 0..=1,
        require_equals = true, action = ArgAction::Set, value_parser = boolean, value_name = "BOOL")]
    strict: bool,
    /// Allowed differences to an earlier process of this agent whose executors still run: `any`
    /// means all, and tasks that no longer fit are logged and continue, `equal` means none,
    /// `additive` means additional resources and attributes
    #[arg(long, env = "MESOS_RECONFIGURATION_POLICY", value_enum, default_value_t = Policy::Any)]
    reconfiguration_policy: Policy,
    #[command(flatten)]
    flags: AgentFlags,
    #[command(flatten)]
    isolation: IsolationFlags,
    #[command(flatten)]
    images: ImageFlags,
    /// Principals and secrets for HTTP Basic: a JSON file. Read again at SIGHUP
    #[arg(long, env = "MESOS_HTTP_CREDENTIALS", value_name = "FILE")]
    http_credentials: Option<PathBuf>,
    #[command(flatten)]
    access: AccessFlags,
    #[command(flatten)]
    http_flags: HttpFlags,
    #[command(flatten)]
    threads: ThreadsFlag,
    #[command(flatten)]
    keep_alive: KeepAliveFlag,
    #[command(flatten)]
    certs: CertsFlag,
}

/// The values of `--recover`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Recover {
    /// Continue with the running executors.
    Reconnect,
    /// End the running executors, then this process.
    Cleanup,
}

/// The values of `--reconfiguration_policy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Policy {
    /// All differences.
    Any,
    /// No differences.
    Equal,
    /// Only additions.
    Additive,
}

impl From<Policy> for ReconfigurationPolicy {
    fn from(policy: Policy) -> Self {
        match policy {
            Policy::Any => Self::Any,
            Policy::Equal => Self::Equal,
            Policy::Additive => Self::Additive,
        }
    }
}

/// The flags that `meros agent` and `meros local` share.
#[derive(Args, Clone, Debug, Default)]
#[command(rename_all = "snake_case")]
pub struct AgentFlags {
    /// Resources of the agent, for example `cpus:4;mem:2048;ports:[31000-32000]`; others are
    /// detected
    #[arg(long, env = "MESOS_RESOURCES", value_name = "TEXT|JSON")]
    pub resources: Option<Text>,
    /// Attributes of the agent, for example `rack:abc;zone:west`
    #[arg(long, env = "MESOS_ATTRIBUTES", value_name = "TEXT")]
    pub attributes: Option<Text>,
    /// The role of resources without a role
    #[arg(
        long,
        env = "MESOS_DEFAULT_ROLE",
        default_value = "*",
        value_name = "ROLE"
    )]
    pub default_role: String,
    /// Resource estimator: `noop`, `fixed`, `usage_slack`, `allocation_slack`, `pressure_aware`, or
    /// a module
    #[arg(
        long,
        env = "MESOS_RESOURCE_ESTIMATOR",
        default_value = "noop",
        value_name = "NAME"
    )]
    pub resource_estimator: String,
    /// QoS controller: `noop`, `load`, `pressure`, or a module
    #[arg(
        long,
        env = "MESOS_QOS_CONTROLLER",
        default_value = "noop",
        value_name = "NAME"
    )]
    pub qos_controller: String,
    /// Interval of the resource estimator [default: 15secs]
    #[arg(long, env = "MESOS_OVERSUBSCRIBED_RESOURCES_INTERVAL", value_parser = duration, value_name = "DURATION")]
    pub oversubscribed_resources_interval: Option<Duration>,
    /// Upper bounds of the resources that the estimator may lend, each an amount or a percentage of
    /// the agent's, for example `cpus:50%;mem:1024`; others have none
    #[arg(long, env = "MEROS_OVERSUBSCRIPTION_MAX", value_parser = LendingMax::parse, value_name = "TEXT")]
    pub oversubscription_max: Option<LendingMax>,
    /// Record the usage of containers every 5secs, for `meros-lab replay`: at most 64 MB, and as
    /// much in FILE.1. `meros local` adds the name of the agent to that of the file
    #[arg(long, env = "MEROS_RECORD_USAGE", value_name = "FILE")]
    pub record_usage: Option<PathBuf>,
    /// Minimum interval between two rounds of corrections [default: 0ns]
    #[arg(long, env = "MESOS_QOS_CORRECTION_INTERVAL_MIN", value_parser = duration, value_name = "DURATION")]
    pub qos_correction_interval_min: Option<Duration>,
    /// Time for an executor to register before it is killed [default: 1mins]
    #[arg(long, env = "MESOS_EXECUTOR_REGISTRATION_TIMEOUT", value_parser = duration, value_name = "DURATION")]
    pub executor_registration_timeout: Option<Duration>,
    /// Time for an executor to shut down before it is killed [default: 5secs]
    #[arg(long, env = "MESOS_EXECUTOR_SHUTDOWN_GRACE_PERIOD", value_parser = duration, value_name = "DURATION")]
    pub executor_shutdown_grace_period: Option<Duration>,
    /// Time for which a checkpointed executor waits for its agent, and the agent for it [default:
    /// 15mins]
    #[arg(long, env = "MESOS_RECOVERY_TIMEOUT", value_parser = duration, value_name = "DURATION")]
    pub recovery_timeout: Option<Duration>,
    /// Require the token that each executor gets from executors that use HTTP. Without it an
    /// executor without a token is trusted, as in Mesos: a client that reaches this port and knows
    /// the ids of a framework and its custom executor can act as that executor, but never for a
    /// command. A wrong token is always refused
    #[arg(long, env = "MESOS_AUTHENTICATE_HTTP_EXECUTORS", default_missing_value = "true", default_value = "false", num_args = 0..=1,
        require_equals = true, action = ArgAction::Set, value_parser = boolean, value_name = "BOOL", hide_default_value = true)]
    pub authenticate_http_executors: bool,
    /// Time for a checkpointed executor to subscribe after the agent's restart before it is killed;
    /// at most 15secs [default: 2secs]
    #[arg(long, env = "MESOS_EXECUTOR_REREGISTRATION_TIMEOUT", value_parser = duration, value_name = "DURATION")]
    pub executor_reregistration_timeout: Option<Duration>,
    /// Delay after a failed registration, doubled after each further one [default: 1secs]
    #[arg(long, env = "MESOS_REGISTRATION_BACKOFF_FACTOR", value_parser = duration, value_name = "DURATION")]
    pub registration_backoff_factor: Option<Duration>,
    /// Number of ended executor runs to show per framework [default: 150]
    #[arg(
        long,
        env = "MESOS_MAX_COMPLETED_EXECUTORS_PER_FRAMEWORK",
        value_name = "COUNT"
    )]
    pub max_completed_executors_per_framework: Option<usize>,
    /// Environment variables of executors and their tasks: JSON such as `{"PATH":
    /// "/bin:/usr/bin"}`, or file:///path. They also get `MESOS_*` and `LIBPROCESS_*` variables,
    /// PATH, their user's HOME and USER, PWD, and those of their commands, but none of the agent's
    /// own environment
    #[arg(long, env = "MESOS_EXECUTOR_ENVIRONMENT_VARIABLES", value_parser = variables, value_name = "JSON")]
    pub executor_environment_variables: Option<Variables>,
    /// Run each task as its own user; `--switch_user=false` or `--no_switch_user`: as the agent's
    /// user. An agent that does not run as root refuses tasks of other users unless it is false
    /// [default: true]
    #[arg(long, env = "MESOS_SWITCH_USER", default_missing_value = "true", num_args = 0..=1, require_equals = true,
        value_parser = boolean, value_name = "BOOL")]
    pub switch_user: Option<bool>,
    /// Maximum time to keep the sandbox of an ended executor; shorter if the disk is full [default:
    /// 1weeks]
    #[arg(long, env = "MESOS_GC_DELAY", value_parser = duration, value_name = "DURATION")]
    pub gc_delay: Option<Duration>,
    /// Fraction of the disk to keep free: sandboxes of ended executors are kept for gc_delay *
    /// max(0, 1 - gc_disk_headroom - usage) [default: 0.1]
    #[arg(long, env = "MESOS_GC_DISK_HEADROOM", value_name = "SHARE")]
    pub gc_disk_headroom: Option<f64>,
    /// Interval of checks of the work directory's disk [default: 1mins]
    #[arg(long, env = "MESOS_DISK_WATCH_INTERVAL", value_parser = duration, value_name = "DURATION")]
    pub disk_watch_interval: Option<Duration>,
    /// Maximum of sandboxes of ended executors; the oldest are removed first [default: 10000]
    #[arg(long, env = "MEROS_MAX_COMPLETED_SANDBOXES", value_name = "COUNT")]
    pub max_completed_sandboxes: Option<usize>,
    /// Limit of a task's `stdout` and of its `stderr`, checked every 5secs. The last bytes of a
    /// larger file, up to the limit, are moved to `stdout.1`, which replaces the previous one, and
    /// earlier bytes are dropped; lines written meanwhile may be lost. 0B means no limit [default:
    /// 100MB]
    #[arg(long, env = "MEROS_MAX_OUTPUT_SIZE", value_parser = bytes, value_name = "BYTES")]
    pub max_output_size: Option<u64>,
    /// Time after which a download whose server sends nothing has failed [default: 1mins]
    #[arg(long, env = "MESOS_FETCHER_STALL_TIMEOUT", value_parser = duration, value_name = "DURATION")]
    pub fetcher_stall_timeout: Option<Duration>,
    /// Size of the cache of files that tasks fetch; 0B means no cache [default: 2GB]
    #[arg(long, env = "MESOS_FETCHER_CACHE_SIZE", value_parser = bytes, value_name = "BYTES")]
    pub fetcher_cache_size: Option<u64>,
    /// Directory of that cache, which no other agent may use; its directory `files` is emptied at
    /// each start [default: `fetch` in the work directory]
    #[arg(long, env = "MESOS_FETCHER_CACHE_DIR", value_name = "DIR")]
    pub fetcher_cache_dir: Option<PathBuf>,
    /// Certificates of authorities for `https` URIs of tasks, which the tasks' users can read: a
    /// PEM file [default: this machine's]
    #[arg(long, env = "MEROS_FETCHER_CA", value_name = "FILE")]
    pub fetcher_ca: Option<PathBuf>,
}

impl AgentFlags {
    /// The agent's settings, with defaults for missing flags.
    pub fn settings(&self, masters: Vec<String>, work_dir: &Path) -> Settings {
        let mut settings = Settings::new(masters, work_dir);
        settings.resources = self.resources.as_ref().map(|Text(text)| text.clone());
        settings.attributes = self.attributes.as_ref().map(|Text(text)| text.clone());
        settings.default_role.clone_from(&self.default_role);
        let chosen = [
            ("resource_estimator", &self.resource_estimator),
            ("qos_controller", &self.qos_controller),
        ];
        let chosen = chosen.map(|(name, value)| (name.to_owned(), value.clone()));
        settings.extra_flags = chosen.into();
        settings.switch_user = self.switch_user.unwrap_or(true);
        if let Some(Variables(variables)) = &self.executor_environment_variables {
            settings
                .executor_environment_variables
                .clone_from(variables);
        }
        if let Some(count) = self.max_completed_executors_per_framework {
            settings.max_completed_executors_per_framework = count;
        }
        settings.authenticate_http_executors = self.authenticate_http_executors;
        if let Some(share) = self.gc_disk_headroom {
            settings.gc_disk_headroom = share;
        }
        if let Some(count) = self.max_completed_sandboxes {
            settings.max_completed_sandboxes = count;
        }
        if let Some(size) = self.max_output_size {
            settings.max_output_size = size;
        }
        settings.fetcher_ca.clone_from(&self.fetcher_ca);
        if let Some(size) = self.fetcher_cache_size {
            settings.fetcher_cache_size = size;
        }
        settings.record_usage.clone_from(&self.record_usage);
        if let Some(max) = &self.oversubscription_max {
            settings.oversubscription_max = max.clone();
        }
        if let Some(directory) = &self.fetcher_cache_dir {
            settings.fetcher_cache_dir.clone_from(directory);
        }
        let durations = [
            (
                &mut settings.fetcher_stall_timeout,
                self.fetcher_stall_timeout,
            ),
            (
                &mut settings.oversubscribed_resources_interval,
                self.oversubscribed_resources_interval,
            ),
            (
                &mut settings.qos_correction_interval_min,
                self.qos_correction_interval_min,
            ),
            (
                &mut settings.executor_registration_timeout,
                self.executor_registration_timeout,
            ),
            (
                &mut settings.executor_shutdown_grace_period,
                self.executor_shutdown_grace_period,
            ),
            (&mut settings.recovery_timeout, self.recovery_timeout),
            (&mut settings.gc_delay, self.gc_delay),
            (&mut settings.disk_watch_interval, self.disk_watch_interval),
            (
                &mut settings.executor_reregistration_timeout,
                self.executor_reregistration_timeout,
            ),
            (
                &mut settings.registration_backoff_factor,
                self.registration_backoff_factor,
            ),
        ];
        for (field, given) in durations {
            if let Some(value) = given {
                *field = value;
            }
        }
        settings
    }
}

/// The inputs of an agent's start.
pub struct Plan {
    /// The agent's settings; hostname and port are filled in at the start.
    pub settings: Settings,
    /// The linked-in modules and their parameters.
    pub modules: (Registry, Manifest),
    /// The resource estimator's name.
    pub resource_estimator: String,
    /// The QoS controller's name.
    pub qos_controller: String,
    /// The isolators.
    pub isolation: Isolation,
    /// Its images.
    pub images: ImagePlan,
    /// The thread placement of its actors.
    pub threads: Threads,
    /// The interval between two keep-alives of a link.
    pub keep_alive: Duration,
    /// Its certificate and key.
    pub identity: Identity,
    /// The address to listen on; port 0 means any free port.
    pub listen: SocketAddr,
    /// The `meros` program, which starts executors.
    pub program: PathBuf,
    /// Authentication and authorization of HTTP clients.
    pub access: Access,
    /// The options of the HTTP server, and their values for `/flags`.
    pub http: (http::HttpOptions, BTreeMap<String, String>),
    /// When a stopped agent unregisters from its master.
    pub leave_policy: LeavePolicy,
}

/// When a stopped agent unregisters from its master.
#[derive(Clone, Debug)]
pub enum LeavePolicy {
    /// Always.
    Always,
    /// After SIGUSR1.
    OnRequest(Signals),
}

/// The running program, for starting executors.
pub fn own_program() -> Outcome<PathBuf> {
    std::env::current_exe()
        .map_err(|error| CliError::because("cannot find the own program", &error))
}

/// The work directory as an absolute path.
pub fn absolute(path: &Path) -> Outcome<PathBuf> {
    std::path::absolute(path)
        .map_err(|error| CliError::because(format!("{} cannot be used", path.display()), &error))
}

/// The time limit for a stopping agent to unregister, and then again for its tasks to end.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(15);
/// The interval of checks whether the tasks of a stopping agent have ended.
const LEAVE_POLL: Duration = Duration::from_millis(20);

/// Starts an agent on this thread. Returns its address.
pub async fn start(plan: Plan) -> Outcome<(SocketAddr, RunningService)> {
    let Plan {
        mut settings,
        modules: (registry, manifest),
        resource_estimator,
        qos_controller,
        isolation,
        images,
        threads,
        keep_alive,
        identity,
        listen,
        program,
        access,
        http: (mut http_options, http_flags),
        leave_policy,
    } = plan;
    let wrong = |error: ::agent::ConfigError| CliError::usage(error.to_string());
    let cannot = |error: &dyn std::error::Error| CliError::because("cannot start the agent", error);
    let node = Node::builder(identity.subject().name.as_str())
        .role(Role::Agent)
        .accepts(&ACCEPTS)
        .placement(threads.placement())
        .build();
    // A new leader may link to it before the agent actor exists.
    node.will_accept::<::agent::Agent>();
    let Sockets {
        endpoint,
        listener,
        address,
    } = service::open(&node, &identity, listen, keep_alive).await?;
    let hostname = service::hostname(settings.hostname.as_deref(), address.ip());
    http_options.hosts = http_options.hosts.with(own_names(&hostname));
    settings.hostname = Some(hostname);
    let ip = address.ip();
    settings.address = (!ip.is_unspecified()).then_some(ip);
    settings.port = address.port();
    settings.https_only = http_options.tls.is_some() && !http_options.plain;
    settings.acls = access.acls.clone();
    settings.throttle = access.throttle.clone();
    settings
        .extra_flags
        .insert("ip".to_owned(), address.ip().to_string());
    settings.extra_flags.extend(access.shown);
    settings.extra_flags.extend(http_flags);
    settings.extra_flags.extend(isolation.shown.clone());
    settings.extra_flags.extend(images.shown.clone());
    let shown = protocol::text::duration::format(keep_alive);
    settings
        .extra_flags
        .insert("link_keep_alive".to_owned(), shown);
    settings.checkpoint_executors = matches!(leave_policy, LeavePolicy::OnRequest(_));
    let timeout = settings.recovery_timeout;
    let config = settings.check().map_err(wrong)?;
    let work_dir = WorkDir::lock(config.work_dir()).map_err(|error| cannot(&error))?;
    let path = config.work_dir().to_owned();
    if config.settings().switch_user && !nix::unistd::geteuid().is_root() {
        tracing::info!(
            "not run by root: tasks of other users are refused; --switch_user=false runs all tasks as this user"
        );
    }
    let executors = unix::Listener::bind(node.clone(), config.executor_socket(), &[Role::Executor])
        .map_err(|error| cannot(&error))?;
    let (directory, size) = {
        let settings = config.settings();
        (
            absolute(&settings.fetcher_cache_dir)?,
            settings.fetcher_cache_size,
        )
    };
    let fetcher = Fetcher::new(&program, &[FETCHER]);
    let fetcher = fetcher.with_cache(&directory, size);
    let fetcher = fetcher.map_err(|error| CliError::because("--fetcher_cache_dir", &error))?;
    let launcher = ZygoteLauncher::start(&program, &[ZYGOTE], config.work_dir(), timeout)
        .map_err(|error| cannot(&error))?
        .with_fetcher(fetcher);
    let own = AgentFacts {
        ports: config.info().resources.ports(),
        work_dir: config.work_dir().to_owned(),
    };
    let advisers = Modules {
        resource_estimator: registry
            .resource_estimator(
                &node,
                &resource_estimator,
                &registry.parameters(&manifest, &resource_estimator),
            )
            .map_err(|error| CliError::because("--resource_estimator", &error))?,
        qos_controller: registry
            .qos_controller(
                &node,
                &qos_controller,
                &registry.parameters(&manifest, &qos_controller),
            )
            .map_err(|error| CliError::because("--qos_controller", &error))?,
        isolators: isolation.start(&node, &registry, &manifest, &own)?,
        provisioner: images.start(&node, &program, config.work_dir())?,
    };
    let started = ::agent::start(&node, config, work_dir, Box::new(launcher), advisers)
        .map_err(|error| cannot(&error))?;
    let own = ::agent::counters(&started);
    let of_modules = http::CountersSource::immediate(move || registry.counters());
    let own = http::system::metrics::with_traffic(own, &access.throttle).and(of_modules);
    let counters = http_options.metrics.merged_with(own);
    let about = http::ServiceInfo {
        help: ::agent::HELP,
        node: node.clone(),
        service: "agent",
        version: env!("CARGO_PKG_VERSION"),
        counters: counters.clone(),
    };
    let streams = http::api::EventStreams::new(&node);
    let routes = ::agent::routes(&started, &node, counters, &streams);
    let routes = routes.merge(http::common_routes(about));
    let guard = http::Guard::new("agent", &node)
        .with_access(access.realms, access.acls)
        .with_throttle(access.throttle);
    let routes = guard.protect(routes);
    let pages = service::serve(&node, listener, routes, http_options, streams)?;
    tracing::info!(%address, version = env!("CARGO_PKG_VERSION"), "the agent listens");
    let ended = {
        let started = started.clone();
        async move { format!("the agent has ended: {}", started.ended().await) }
    };
    let renewal = endpoint.renewal();
    let stop = async move {
        match leave_policy {
            LeavePolicy::OnRequest(signals) if !signals.should_unregister() => started.stop(),
            _ => started.leave(),
        }
        let clock = node.clock().clone();
        let end = clock.timeout(LEAVE_TIMEOUT, started.ended()).await;
        // Unless executors wait for the next process, this one ends after them.
        let stays = matches!(end, Ok(::agent::AgentEnd::Stopped { waiting: 1.. }));
        let until = clock.now() + LEAVE_TIMEOUT;
        while !stays && !started.has_nothing_left().await && clock.now() < until {
            clock.sleep(LEAVE_POLL).await;
        }
        pages.stop(node.clock()).await;
        node.shutdown().await;
        drop(executors);
        endpoint.close().await;
        // The launcher kills those that run too long.
        while !stays && !WorkDir::is_over(&path) && clock.now() < until {
            clock.sleep(LEAVE_POLL).await;
        }
        if !stays && WorkDir::is_over(&path) {
            let removed = tokio::task::spawn_blocking(move || isolation.remove_rest(&path)).await;
            if let Err(error) = removed {
                tracing::error!(%error, "removal of what containers had panicked");
            }
        }
    };
    Ok((
        address,
        RunningService {
            ended: Box::pin(ended),
            stop: Box::pin(stop),
            renewal: Some(renewal),
        },
    ))
}

/// `meros agent --recover=cleanup`.
fn clean_up(work_dir: &Path) -> Outcome {
    let cannot = |error: &dyn std::error::Error| {
        CliError::because("cannot clean up the work directory", error)
    };
    let lock = WorkDir::lock(work_dir).map_err(|error| cannot(&error))?;
    let done = ::agent::clean_up(&lock, &own_program()?, &[ZYGOTE]);
    out!("{}", done.map_err(|error| cannot(&error))?);
    Ok(())
}

/// `meros agent`: runs until a signal stops it.
pub fn run(args: AgentArgs, signals: Signals) -> Outcome {
    if args.isolation.check {
        args.isolation.print_report(&absolute(&args.work_dir)?);
        return Ok(());
    }
    if args.recover == Recover::Cleanup {
        return clean_up(&absolute(&args.work_dir)?);
    }
    crate::heap::return_free_memory_at_once();
    let name = service::node_name(&["agent", &service::machine_name(), &args.port.to_string()]);
    let credentials = ("http_credentials", args.http_credentials.as_deref());
    let access = args.access.read(credentials, args.http_flags.certifies())?;
    let options = args.http_flags.options()?;
    let certificates = args.http_flags.http_require_client_certificate;
    let exposure = args
        .access
        .exposure(args.ip, credentials.0, None, certificates);
    if let Some(exposure) = exposure {
        tracing::warn!("{exposure}");
    }
    let mut reloads = args.access.reloads(credentials.0, credentials.1, &access);
    reloads.extend(args.http_flags.reloads(&options));
    let (certs, http_flags) = (args.certs, args.http_flags);
    let identity = http_flags.revoking(certs.identity(Role::Agent, &name)?)?;
    let expiry = Expiry::new(identity.expires().into());
    let mut watched = vec![Watched::links(&expiry)];
    watched.extend(Watched::pages(&options));
    let mut settings = args.flags.settings(args.master, &absolute(&args.work_dir)?);
    settings.hostname = args.hostname;
    settings.domain = args.domain;
    settings.strict = args.strict;
    settings.reconfiguration_policy = args.reconfiguration_policy.into();
    let plan = Plan {
        settings,
        modules: args.modules.read(&own_program()?)?,
        resource_estimator: args.flags.resource_estimator.clone(),
        qos_controller: args.flags.qos_controller.clone(),
        isolation: args.isolation.isolation(&absolute(&args.work_dir)?),
        images: args.images.plan()?,
        threads: args.threads.threads,
        keep_alive: args.keep_alive.link_keep_alive,
        identity,
        listen: SocketAddr::new(args.ip, args.port),
        program: own_program()?,
        access,
        http: (options, http_flags.shown()),
        leave_policy: LeavePolicy::OnRequest(signals.clone()),
    };
    on_this_thread(async move {
        let (_, mut running) = start(plan).await?;
        if let Some(renewal) = running.renewal.take() {
            let read = move || http_flags.revoking(certs.identity(Role::Agent, &name)?);
            reloads.push(reload::identity(renewal, &expiry, read));
        }
        tokio::task::spawn_local(expiry::follow(Clock::real(), watched));
        tokio::task::spawn_local(reload::follow(signals.hangups(), reloads));
        running.until(signals.stop()).await
    })?
}
