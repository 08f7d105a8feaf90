//! The verb `meros agent`, and how an agent is put together: node, sockets, executors' launcher, modules, pages.
//!
//! Opens what the agent needs and hands it over. Decides nothing that the agent decides.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ::agent::ledger::reconfiguration::ReconfigurationPolicy;
use ::agent::{Modules, Settings, WorkDir, ZygoteLauncher};
use clap::{ArgAction, Args, ValueEnum};
use module_api::{Manifest, Registry};
use protocol::agent::Domain;
use runtime::{Clock, Node, Role};
use transport::{Identity, unix};

use crate::access::{Access, AccessFlags};
use crate::certs::CertsFlag;
use crate::door::{DoorFlags, own_names};
use crate::expiry::{self, Expiry, Watched};
use crate::failure::{Failure, Outcome};
use crate::flags::{
    KeepAliveFlag, Text, Threads, ThreadsFlag, Variables, boolean, bytes, domain, duration,
    master_address, variables,
};
use crate::master::modules;
use crate::member::{self, Running, Sockets};
use crate::on_this_thread;
use crate::out;
use crate::renewal;
use crate::signals::Signals;

/// Whom an agent speaks with over the network; its executors come over a Unix socket.
const ACCEPTS: [Role; 3] = [Role::Master, Role::Operator, Role::Executor];
/// The hidden verb that starts executors.
const ZYGOTE: &str = "executor-zygote";

/// Run an agent
#[derive(Args, Clone, Debug)]
#[command(rename_all = "snake_case", after_help = renewal::HELP)]
pub struct AgentArgs {
    /// The masters, or some of them: each knows which one leads
    #[arg(long, env = "MESOS_MASTER", value_name = "HOST:PORT,...", value_delimiter = ',', required = true, value_parser = master_address)]
    master: Vec<String>,
    /// Where tasks' sandboxes and the agent's state are kept; made if missing
    #[arg(long, env = "MESOS_WORK_DIR", value_name = "DIR")]
    work_dir: PathBuf,
    /// Address to listen on
    #[arg(long, env = "MESOS_IP", default_value_t = IpAddr::V4(Ipv4Addr::UNSPECIFIED))]
    ip: IpAddr,
    /// Port to listen on: HTTP over TCP, and QUIC over UDP
    #[arg(long, env = "MESOS_PORT", default_value_t = 5051)]
    port: u16,
    /// The host that others are told [default: the address, or this machine's name]
    #[arg(long, env = "MESOS_HOSTNAME", value_name = "HOST")]
    hostname: Option<String>,
    /// Where the machine lies; agents of another region than the master's are only for frameworks that are REGION_AWARE
    #[arg(long, env = "MESOS_DOMAIN", value_parser = domain, value_name = "REGION/ZONE|JSON")]
    domain: Option<Domain>,
    /// Modules and their parameters: JSON, or a file of it
    #[arg(long, env = "MESOS_MODULES", value_name = "JSON")]
    modules: Option<Text>,
    /// What to do with executors that an earlier process of this agent has left: `reconnect` goes on with them, `cleanup` ends them all, sets
    /// aside what was kept of them, and ends
    #[arg(long, env = "MESOS_RECOVER", value_enum, default_value_t = Recover::Reconnect)]
    recover: Recover,
    /// Do not start when something that an earlier process of this agent has kept cannot be read; `--strict=false` goes on without it and counts
    /// it in `slave/recovery_errors`
    #[arg(long, env = "MESOS_STRICT", default_missing_value = "true", default_value = "true", num_args = 0..=1,
        require_equals = true, action = ArgAction::Set, value_parser = boolean, value_name = "BOOL")]
    strict: bool,
    /// How this agent may differ from the earlier process of it whose executors still run, to go on with them: `equal` is not at all, `additive`
    /// is that it may have more resources and attributes. Where none runs any more, an agent that may not go on begins anew
    #[arg(long, env = "MESOS_RECONFIGURATION_POLICY", value_enum, default_value_t = Policy::Equal)]
    reconfiguration_policy: Policy,
    #[command(flatten)]
    flags: AgentFlags,
    /// Who may come over HTTP: a file of JSON with principals and their secrets. Read again at SIGHUP
    #[arg(long, env = "MESOS_HTTP_CREDENTIALS", value_name = "FILE")]
    http_credentials: Option<PathBuf>,
    #[command(flatten)]
    access: AccessFlags,
    #[command(flatten)]
    door: DoorFlags,
    /// Speak, of each message that has changed, the version before the newest: to rehearse an upgrade
    #[arg(long, env = "MEROS_SPEAK_PREVIOUS", hide = true)]
    speak_previous: bool,
    #[command(flatten)]
    threads: ThreadsFlag,
    #[command(flatten)]
    keep_alive: KeepAliveFlag,
    #[command(flatten)]
    certs: CertsFlag,
}

/// What `--recover` may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Recover {
    /// Go on with what runs.
    Reconnect,
    /// End what runs, and then this process.
    Cleanup,
}

/// What `--reconfiguration_policy` may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Policy {
    /// As it was.
    Equal,
    /// As it was, or with more.
    Additive,
}

impl From<Policy> for ReconfigurationPolicy {
    fn from(policy: Policy) -> Self {
        match policy {
            Policy::Equal => Self::Equal,
            Policy::Additive => Self::Additive,
        }
    }
}

/// The flags that `meros agent` and `meros local` share.
#[derive(Args, Clone, Debug, Default)]
#[command(rename_all = "snake_case")]
pub struct AgentFlags {
    /// Resources of the agent, as in `cpus:4;mem:2048;ports:[31000-32000]`; what is not named is detected
    #[arg(long, env = "MESOS_RESOURCES", value_name = "TEXT|JSON")]
    pub resources: Option<Text>,
    /// Attributes of the agent, as in `rack:abc;zone:west`
    #[arg(long, env = "MESOS_ATTRIBUTES", value_name = "TEXT")]
    pub attributes: Option<Text>,
    /// The role of resources that name none
    #[arg(
        long,
        env = "MESOS_DEFAULT_ROLE",
        default_value = "*",
        value_name = "ROLE"
    )]
    pub default_role: String,
    /// Who estimates what can be lent: `noop`, `fixed`, or a module
    #[arg(
        long,
        env = "MESOS_RESOURCE_ESTIMATOR",
        default_value = "noop",
        value_name = "NAME"
    )]
    pub resource_estimator: String,
    /// Who says which executors must yield: `noop`, `load`, or a module
    #[arg(
        long,
        env = "MESOS_QOS_CONTROLLER",
        default_value = "noop",
        value_name = "NAME"
    )]
    pub qos_controller: String,
    /// How often the estimator is asked [default: 15secs]
    #[arg(long, env = "MESOS_OVERSUBSCRIBED_RESOURCES_INTERVAL", value_parser = duration, value_name = "DURATION")]
    pub oversubscribed_resources_interval: Option<Duration>,
    /// The least time between two rounds of corrections [default: 0ns]
    #[arg(long, env = "MESOS_QOS_CORRECTION_INTERVAL_MIN", value_parser = duration, value_name = "DURATION")]
    pub qos_correction_interval_min: Option<Duration>,
    /// An executor that does not register within so long is killed [default: 1mins]
    #[arg(long, env = "MESOS_EXECUTOR_REGISTRATION_TIMEOUT", value_parser = duration, value_name = "DURATION")]
    pub executor_registration_timeout: Option<Duration>,
    /// What an executor gets to stop by itself [default: 5secs]
    #[arg(long, env = "MESOS_EXECUTOR_SHUTDOWN_GRACE_PERIOD", value_parser = duration, value_name = "DURATION")]
    pub executor_shutdown_grace_period: Option<Duration>,
    /// How long an executor that outlives its agent (`checkpoint`) and the agent may be without each other [default: 15mins]
    #[arg(long, env = "MESOS_RECOVERY_TIMEOUT", value_parser = duration, value_name = "DURATION")]
    pub recovery_timeout: Option<Duration>,
    /// Executors that speak HTTP must show the token that each is given. Without that, one that shows none is believed who it says it is, as
    /// in Mesos: whoever reaches this port and knows the ids of a framework and its own executor can speak for that, though never for those that
    /// run commands. A wrong token is refused anyway
    #[arg(long, env = "MESOS_AUTHENTICATE_HTTP_EXECUTORS", default_missing_value = "true", default_value = "false", num_args = 0..=1,
        require_equals = true, action = ArgAction::Set, value_parser = boolean, value_name = "BOOL", hide_default_value = true)]
    pub authenticate_http_executors: bool,
    /// An executor that outlives its agent and does not subscribe within so long after that was started again is killed; at most 15secs
    /// [default: 2secs]
    #[arg(long, env = "MESOS_EXECUTOR_REREGISTRATION_TIMEOUT", value_parser = duration, value_name = "DURATION")]
    pub executor_reregistration_timeout: Option<Duration>,
    /// The wait after a failed registration, doubled each time [default: 1secs]
    #[arg(long, env = "MESOS_REGISTRATION_BACKOFF_FACTOR", value_parser = duration, value_name = "DURATION")]
    pub registration_backoff_factor: Option<Duration>,
    /// Runs of each framework's executors that are over and still shown [default: 150]
    #[arg(
        long,
        env = "MESOS_MAX_COMPLETED_EXECUTORS_PER_FRAMEWORK",
        value_name = "COUNT"
    )]
    pub max_completed_executors_per_framework: Option<usize>,
    /// Variables for the environment of executors and their tasks: JSON, as in `{"PATH": "/bin:/usr/bin"}`, or file:///path. Beside it they
    /// have `MESOS_*` and `LIBPROCESS_*` variables, PATH, their user's HOME and USER, PWD, and those of their commands; nothing of the
    /// agent's own environment
    #[arg(long, env = "MESOS_EXECUTOR_ENVIRONMENT_VARIABLES", value_parser = variables, value_name = "JSON")]
    pub executor_environment_variables: Option<Variables>,
    /// Run each task as its own user; `--switch_user=false` or `--no_switch_user`: as the agent's. An agent that is not root's refuses tasks
    /// of other users unless it is false [default: true]
    #[arg(long, env = "MESOS_SWITCH_USER", default_missing_value = "true", num_args = 0..=1, require_equals = true,
        value_parser = boolean, value_name = "BOOL")]
    pub switch_user: Option<bool>,
    /// How long the sandbox of an ended executor is kept at most; less where the disk is full [default: 1weeks]
    #[arg(long, env = "MESOS_GC_DELAY", value_parser = duration, value_name = "DURATION")]
    pub gc_delay: Option<Duration>,
    /// The share of the disk that is to stay free: sandboxes of ended executors are kept for gc_delay * max(0, 1 - gc_disk_headroom - usage)
    /// [default: 0.1]
    #[arg(long, env = "MESOS_GC_DISK_HEADROOM", value_name = "SHARE")]
    pub gc_disk_headroom: Option<f64>,
    /// How often the disk of the work directory is looked at [default: 1mins]
    #[arg(long, env = "MESOS_DISK_WATCH_INTERVAL", value_parser = duration, value_name = "DURATION")]
    pub disk_watch_interval: Option<Duration>,
    /// Sandboxes of ended executors that are kept at most; the oldest are removed first [default: 10000]
    #[arg(long, env = "MEROS_MAX_COMPLETED_SANDBOXES", value_name = "COUNT")]
    pub max_completed_sandboxes: Option<usize>,
    /// Bound of a task's `stdout`, and of its `stderr`; each is looked at every 5secs. The last so many bytes of a larger one are moved to
    /// `stdout.1`, which replaces the one before, and the earlier bytes are cut; lines written in between may be lost. 0B is no bound
    /// [default: 100MB]
    #[arg(long, env = "MEROS_MAX_OUTPUT_SIZE", value_parser = bytes, value_name = "BYTES")]
    pub max_output_size: Option<u64>,
}

impl AgentFlags {
    /// What is asked of the agent, with what is not given at its default.
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
        settings.chosen = chosen.into();
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
        let durations = [
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

/// All that an agent is started with.
pub struct Plan {
    /// What is asked of it; hostname and port are filled in.
    pub settings: Settings,
    /// The linked-in modules and their parameters.
    pub modules: (Registry, Manifest),
    /// The resource estimator's name.
    pub resource_estimator: String,
    /// The QoS controller's name.
    pub qos_controller: String,
    /// Where its actors run.
    pub threads: Threads,
    /// Between two keep-alives of a link.
    pub keep_alive: Duration,
    /// Who it shows itself as.
    pub identity: Identity,
    /// Where it listens; port 0 is any free one.
    pub listen: SocketAddr,
    /// The `meros` program, which starts executors.
    pub program: PathBuf,
    /// Whether it speaks as the version before it did.
    pub speak_previous: bool,
    /// What is asked of who comes over HTTP, and who may do what.
    pub access: Access,
    /// What pages are served with, and the flags that say so.
    pub door: (http::HttpOptions, BTreeMap<String, String>),
    /// Whether it leaves for good when it is stopped, even if executors would wait for it.
    pub leaves: Leaves,
}

/// When an agent that is stopped leaves its master for good.
#[derive(Clone, Debug)]
pub enum Leaves {
    /// Always.
    Always,
    /// When nothing waits for it to come back; or when it is told to by SIGUSR1.
    WhenTold(Signals),
}

/// The program that is running, to start executors with.
pub fn own_program() -> Outcome<PathBuf> {
    std::env::current_exe().map_err(|error| Failure::because("cannot find the own program", &error))
}

/// The work directory as an absolute path.
pub fn absolute(path: &Path) -> Outcome<PathBuf> {
    std::path::absolute(path)
        .map_err(|error| Failure::because(format!("{} cannot be used", path.display()), &error))
}

/// How long an agent may take to end its tasks and say farewell when it is stopped.
const LEAVE_PATIENCE: Duration = Duration::from_secs(15);
/// How often an agent that leaves looks whether its tasks have ended.
const LEAVE_LOOK: Duration = Duration::from_millis(20);

/// Starts an agent on this thread, and says where it listens.
pub async fn start(plan: Plan) -> Outcome<(SocketAddr, Running)> {
    let Plan {
        mut settings,
        modules: (registry, manifest),
        resource_estimator,
        qos_controller,
        threads,
        keep_alive,
        identity,
        listen,
        program,
        speak_previous,
        access,
        door: (mut door, door_flags),
        leaves,
    } = plan;
    let wrong = |error: ::agent::ConfigError| Failure::usage(error.to_string());
    let cannot = |error: &dyn std::error::Error| Failure::because("cannot start the agent", error);
    let node = Node::builder(identity.subject().name.as_str())
        .role(Role::Agent)
        .accepts(&ACCEPTS)
        .placement(threads.placement())
        .speak_previous(speak_previous)
        .build();
    // The next leader may link to it before it has begun.
    node.will_hear::<::agent::Agent>();
    let Sockets {
        endpoint,
        listener,
        address,
    } = member::open(&node, &identity, listen, keep_alive).await?;
    let hostname = member::hostname(settings.hostname.as_deref(), address.ip());
    door.hosts = door.hosts.with(own_names(&hostname));
    settings.hostname = Some(hostname);
    let ip = address.ip();
    settings.address = (!ip.is_unspecified()).then_some(ip);
    settings.port = address.port();
    settings.https_only = door.tls.is_some() && !door.plain;
    settings.acls = access.acls.clone();
    settings.throttle = access.throttle.clone();
    settings
        .chosen
        .insert("ip".to_owned(), address.ip().to_string());
    settings.chosen.extend(access.shown);
    settings.chosen.extend(door_flags);
    let shown = protocol::duration::format(keep_alive);
    settings.chosen.insert("link_keep_alive".to_owned(), shown);
    settings.executors_outlive = matches!(leaves, Leaves::WhenTold(_));
    let patience = settings.recovery_timeout;
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
    let launcher = ZygoteLauncher::start(&program, &[ZYGOTE], config.work_dir(), patience)
        .map_err(|error| cannot(&error))?;
    let advisers = Modules {
        resource_estimator: registry
            .resource_estimator(
                &node,
                &resource_estimator,
                &registry.parameters(&manifest, &resource_estimator),
            )
            .map_err(|error| Failure::because("--resource_estimator", &error))?,
        qos_controller: registry
            .qos_controller(
                &node,
                &qos_controller,
                &registry.parameters(&manifest, &qos_controller),
            )
            .map_err(|error| Failure::because("--qos_controller", &error))?,
    };
    let started = ::agent::start(&node, config, work_dir, Box::new(launcher), advisers)
        .map_err(|error| cannot(&error))?;
    let own = ::agent::counters(&started);
    let counters = door
        .figures
        .beside(http::metrics::with_traffic(own, &access.throttle));
    let about = http::About {
        help: ::agent::HELP,
        node: node.clone(),
        service: "agent",
        version: env!("CARGO_PKG_VERSION"),
        counters: counters.clone(),
    };
    let streams = http::api::Streams::new(&node);
    let routes = ::agent::routes(&started, &node, counters, &streams);
    let routes = routes.merge(http::common_routes(about));
    let guard = http::Guard::new("agent", &node)
        .asking(access.realms, access.acls)
        .throttling(access.throttle);
    let routes = guard.before(routes);
    let pages = member::serve(&node, listener, routes, door, streams)?;
    tracing::info!(%address, version = env!("CARGO_PKG_VERSION"), "the agent listens");
    let ended = {
        let started = started.clone();
        async move { format!("the agent has ended: {}", started.ended().await) }
    };
    let renewal = endpoint.renewal();
    let stop = async move {
        match leaves {
            Leaves::WhenTold(signals) if !signals.is_told_to_leave() => started.go_away(),
            _ => started.leave(),
        }
        let clock = node.clock().clone();
        let end = clock.timeout(LEAVE_PATIENCE, started.ended()).await;
        pages.stop(node.clock()).await;
        node.shutdown().await;
        drop(executors);
        endpoint.close().await;
        // Unless executors wait for the next process, this one ends after them. The launcher kills those that run too long.
        let stays = matches!(end, Ok(::agent::AgentEnd::Departed { .. }));
        let until = clock.now() + LEAVE_PATIENCE;
        while !stays && !WorkDir::is_over(&path) && clock.now() < until {
            clock.sleep(LEAVE_LOOK).await;
        }
    };
    Ok((
        address,
        Running {
            ended: Box::pin(ended),
            stop: Box::pin(stop),
            renewal: Some(renewal),
        },
    ))
}

/// `meros agent --recover=cleanup`.
fn clean_up(work_dir: &Path) -> Outcome {
    let cannot = |error: &dyn std::error::Error| {
        Failure::because("cannot clean up the work directory", error)
    };
    let lock = WorkDir::lock(work_dir).map_err(|error| cannot(&error))?;
    let done = ::agent::clean_up(&lock, &own_program()?, &[ZYGOTE]);
    out!("{}", done.map_err(|error| cannot(&error))?);
    Ok(())
}

/// `meros agent`: runs until a signal stops it.
pub fn run(args: AgentArgs, signals: Signals) -> Outcome {
    if args.recover == Recover::Cleanup {
        return clean_up(&absolute(&args.work_dir)?);
    }
    let name = member::node_name(&["agent", &member::machine_name(), &args.port.to_string()]);
    let credentials = ("http_credentials", args.http_credentials.as_deref());
    let access = args.access.read(credentials, args.door.certifies())?;
    let options = args.door.options()?;
    let certificates = args.door.http_require_client_certificate;
    let exposure = args
        .access
        .exposure(args.ip, credentials.0, None, certificates);
    if let Some(exposure) = exposure {
        tracing::warn!("{exposure}");
    }
    let mut again = args.access.again(credentials.0, credentials.1, &access);
    again.extend(args.door.again(&options));
    let (certs, door) = (args.certs, args.door);
    let identity = door.revoking(certs.identity(Role::Agent, &name)?)?;
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
        modules: modules(args.modules.as_ref())?,
        resource_estimator: args.flags.resource_estimator.clone(),
        qos_controller: args.flags.qos_controller.clone(),
        threads: args.threads.threads,
        keep_alive: args.keep_alive.link_keep_alive,
        identity,
        listen: SocketAddr::new(args.ip, args.port),
        program: own_program()?,
        speak_previous: args.speak_previous,
        access,
        door: (options, door.shown()),
        leaves: Leaves::WhenTold(signals.clone()),
    };
    on_this_thread(async move {
        let (_, mut running) = start(plan).await?;
        if let Some(renewal) = running.renewal.take() {
            let read = move || door.revoking(certs.identity(Role::Agent, &name)?);
            again.push(renewal::identity(renewal, &expiry, read));
        }
        tokio::task::spawn_local(expiry::follow(Clock::real(), watched));
        tokio::task::spawn_local(renewal::follow(signals.hangups(), again));
        running.until(signals.stop()).await
    })?
}
