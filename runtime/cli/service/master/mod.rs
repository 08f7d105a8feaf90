//! The verb `meros master`: assembles a master from node, sockets, registry, allocator and pages.
//!
//! Opens these resources and passes them on. Makes none of the master's decisions. `group` has the
//! settings of a group, `master_role` runs the master on its node.

mod group;
mod master_role;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ::master::Config;
use ::master::offers::expiry::OfferBudget;
use clap::Args;
use module_api::{Manifest, Registry};
use protocol::agent::Domain;
use resources::Invalid;
use runtime::{Clock, Node, Role};
use transport::Identity;

use crate::certs::CertsFlag;
use crate::flags::access::{Access, AccessFlags, MasterAccessFlags};
use crate::flags::http::{HttpFlags, own_names};
use crate::flags::{
    KeepAliveFlag, Text, Threads, ThreadsFlag, TimeLimit, boolean, domain, duration, time_limit,
};
use crate::on_this_thread;
use crate::output::error::{CliError, Outcome};
use crate::service::expiry::{self, Expiry, Watched};
use crate::service::modules::ModulesFlags;
use crate::service::reload;
use crate::service::signals::Signals;
use crate::service::whitelist::{self, Whitelist};
use crate::service::{self, RunningService, Sockets};

pub use self::group::{ElectionFlags, GroupPlan};

/// The roles of nodes whose links a master accepts.
const ACCEPTS: [Role; 4] = [Role::Agent, Role::Framework, Role::Operator, Role::Master];

/// The directory of a master's log, in its work directory.
pub const LOG: &str = "log";

/// Run a master
#[derive(Args, Clone, Debug)]
#[command(rename_all = "snake_case", after_help = reload::HELP)]
pub struct MasterArgs {
    /// Directory of the registry; created if missing
    #[arg(long, env = "MESOS_WORK_DIR", value_name = "DIR")]
    work_dir: PathBuf,
    /// Address to listen on
    #[arg(long, env = "MESOS_IP", default_value_t = IpAddr::V4(Ipv4Addr::UNSPECIFIED))]
    ip: IpAddr,
    /// Port to listen on: HTTP over TCP, and QUIC over UDP
    #[arg(long, env = "MESOS_PORT", default_value_t = 5050)]
    port: u16,
    /// The host announced to others [default: the address, or this machine's name]
    #[arg(long, env = "MESOS_HOSTNAME", value_name = "HOST")]
    hostname: Option<String>,
    /// Name of this cluster, shown on pages
    #[arg(long, env = "MESOS_CLUSTER", value_name = "NAME")]
    cluster: Option<String>,
    /// Fault domain of the masters; only frameworks with REGION_AWARE are offered agents of other
    /// regions
    #[arg(long, env = "MESOS_DOMAIN", value_parser = domain, value_name = "REGION/ZONE|JSON")]
    domain: Option<Domain>,
    /// Offer only agents whose hosts are in this file, one per line; read again at SIGHUP. Tasks on
    /// a removed host continue
    #[arg(long, env = "MESOS_WHITELIST", value_name = "FILE")]
    whitelist: Option<String>,
    #[command(flatten)]
    modules: ModulesFlags,
    #[command(flatten)]
    flags: MasterFlags,
    /// Principals and secrets for HTTP Basic: a JSON file. Read again at SIGHUP
    #[arg(long, env = "MESOS_CREDENTIALS", value_name = "FILE")]
    credentials: Option<PathBuf>,
    #[command(flatten)]
    access: AccessFlags,
    #[command(flatten)]
    http_flags: HttpFlags,
    /// The masters that found a group, as `host:port`, including this one: the same list on each of
    /// them. For a master that was added to a group: the others. Ignored after the first start
    /// [default: this master alone; `meros masters add` adds others]
    #[arg(
        long,
        env = "MESOS_INITIAL_MASTERS",
        value_name = "HOST:PORT,...",
        value_delimiter = ','
    )]
    initial_masters: Vec<String>,
    #[command(flatten)]
    election: ElectionFlags,
    #[command(flatten)]
    threads: ThreadsFlag,
    #[command(flatten)]
    keep_alive: KeepAliveFlag,
    #[command(flatten)]
    certs: CertsFlag,
}

/// The flags that `meros master` and `meros local` share.
#[derive(Args, Clone, Debug, Default)]
#[command(rename_all = "snake_case")]
pub struct MasterFlags {
    /// Weights of roles, for example `dev=2,qa=1`; the default weight is 1
    #[arg(long, env = "MESOS_WEIGHTS", value_name = "ROLE=WEIGHT,...")]
    pub weights: Option<Text>,
    /// The roles that frameworks may use [default: any]
    #[arg(long, env = "MESOS_ROLES", value_name = "ROLE,...")]
    pub roles: Option<Text>,
    /// The allocator: `hierarchical`, or a module
    #[arg(
        long,
        env = "MESOS_ALLOCATOR",
        default_value = "hierarchical",
        value_name = "NAME"
    )]
    pub allocator: String,
    /// The sorter, which orders the clients: `drf` (weighted fair shares), `strict_priority`
    /// (higher weight first, fair among equals), `random` (weighted random), or a module
    #[arg(long, env = "MEROS_SORTER", default_value = "drf", value_name = "NAME")]
    pub sorter: String,
    /// Interval of periodic allocations [default: 1secs]
    #[arg(long, env = "MESOS_ALLOCATION_INTERVAL", value_parser = duration, value_name = "DURATION")]
    pub allocation_interval: Option<Duration>,
    /// Time after which an unanswered offer is rescinded; it is not repeated to the same framework
    /// for the same time, at most a minute; or `none` [default: 10mins]
    #[arg(long, env = "MESOS_OFFER_TIMEOUT", value_parser = time_limit, value_name = "DURATION")]
    pub offer_timeout: Option<TimeLimit>,
    /// Maximum of unanswered offers per framework: a number, or a percentage of the agents such as
    /// `25%` [default: no limit]
    #[arg(long, env = "MEROS_OFFER_BUDGET", value_parser = offer_budget, value_name = "COUNT|PERCENT")]
    pub offer_budget: Option<OfferBudget>,
    /// Interval of pings to an agent [default: 15secs]
    #[arg(long, env = "MESOS_AGENT_PING_TIMEOUT", value_parser = duration, value_name = "DURATION")]
    pub agent_ping_timeout: Option<Duration>,
    /// Number of consecutive unanswered pings after which an agent is unreachable [default: 5]
    #[arg(long, env = "MESOS_MAX_AGENT_PING_TIMEOUTS", value_name = "COUNT")]
    pub max_agent_ping_timeouts: Option<u32>,
    /// Time for known agents to reregister after the master's restart [default: 10mins]
    #[arg(long, env = "MESOS_AGENT_REREGISTER_TIMEOUT", value_parser = duration, value_name = "DURATION")]
    pub agent_reregister_timeout: Option<Duration>,
    /// Accept frameworks and tasks of user root; `--root_submissions=false` or
    /// `--no_root_submissions` refuses them [default: true]
    #[arg(long, env = "MESOS_ROOT_SUBMISSIONS", default_missing_value = "true", num_args = 0..=1, require_equals = true,
        value_parser = boolean, value_name = "BOOL")]
    pub root_submissions: Option<bool>,
    /// Number of ended frameworks to remember [default: 50]
    #[arg(long, env = "MESOS_MAX_COMPLETED_FRAMEWORKS", value_name = "COUNT")]
    pub max_completed_frameworks: Option<usize>,
    /// Number of ended tasks to remember per framework [default: 1000]
    #[arg(
        long,
        env = "MESOS_MAX_COMPLETED_TASKS_PER_FRAMEWORK",
        value_name = "COUNT"
    )]
    pub max_completed_tasks_per_framework: Option<usize>,
    /// Number of tasks on unreachable agents to remember per framework [default: 1000]
    #[arg(
        long,
        env = "MESOS_MAX_UNREACHABLE_TASKS_PER_FRAMEWORK",
        value_name = "COUNT"
    )]
    pub max_unreachable_tasks_per_framework: Option<usize>,
    /// Publish metrics per framework, about sixty each; disabled by
    /// `--publish_per_framework_metrics=false` or `--no_publish_per_framework_metrics` [default:
    /// true]
    #[arg(long, env = "MESOS_PUBLISH_PER_FRAMEWORK_METRICS", default_missing_value = "true", num_args = 0..=1, require_equals = true,
        value_parser = boolean, value_name = "BOOL")]
    pub publish_per_framework_metrics: Option<bool>,
    /// Maximum of subscribers to the operator API's events; above it the oldest one is closed
    /// [default: 1000]
    #[arg(
        long,
        env = "MESOS_MAX_OPERATOR_EVENT_STREAM_SUBSCRIBERS",
        value_name = "COUNT"
    )]
    pub max_operator_event_stream_subscribers: Option<usize>,
    /// The flags for access control.
    #[command(flatten)]
    pub access: MasterAccessFlags,
}

impl MasterFlags {
    /// The master's configuration, with defaults for missing flags.
    pub fn config(&self) -> Outcome<Config> {
        let wrong = |error: ::master::InvalidConfig| CliError::usage(format!("--{error}"));
        let mut config = Config {
            root_submissions: self.root_submissions.unwrap_or(true),
            authenticate_frameworks: self.access.authenticate_frameworks,
            publish_per_framework_metrics: self.publish_per_framework_metrics.unwrap_or(true),
            ..Config::default()
        };
        if let Some(Text(weights)) = &self.weights {
            config.weights = Config::parse_weights(weights).map_err(wrong)?;
        }
        if let Some(Text(roles)) = &self.roles {
            config.roles = Some(Config::parse_roles(roles).map_err(wrong)?);
        }
        if let Some(TimeLimit(timeout)) = self.offer_timeout {
            config.offer_timeout = timeout;
        }
        config.offer_budget = self.offer_budget;
        set(&mut config.allocation_interval, self.allocation_interval);
        set(&mut config.agent_ping_timeout, self.agent_ping_timeout);
        set(
            &mut config.max_agent_ping_timeouts,
            self.max_agent_ping_timeouts,
        );
        set(
            &mut config.agent_reregister_timeout,
            self.agent_reregister_timeout,
        );
        set(
            &mut config.max_completed_frameworks,
            self.max_completed_frameworks,
        );
        set(
            &mut config.max_completed_tasks_per_framework,
            self.max_completed_tasks_per_framework,
        );
        set(
            &mut config.max_unreachable_tasks_per_framework,
            self.max_unreachable_tasks_per_framework,
        );
        set(
            &mut config.max_operator_event_stream_subscribers,
            self.max_operator_event_stream_subscribers,
        );
        config.check().map_err(wrong)?;
        Ok(config)
    }
}

fn offer_budget(text: &str) -> Result<OfferBudget, String> {
    let read: Result<OfferBudget, Invalid> = text.parse();
    read.map_err(|invalid| format!("expected {}", invalid.expected))
}

fn set<T>(field: &mut T, given: Option<T>) {
    if let Some(value) = given {
        *field = value;
    }
}

/// The inputs of a master's start.
pub struct Plan {
    /// The operator's configuration.
    pub config: Config,
    /// The allocator's name.
    pub allocator: String,
    /// The sorter's name.
    pub sorter: String,
    /// The linked-in modules and their parameters.
    pub modules: (Registry, Manifest),
    /// The directory of the registry.
    pub work_dir: PathBuf,
    /// The thread placement of its actors.
    pub threads: Threads,
    /// The interval between two keep-alives of a link.
    pub keep_alive: Duration,
    /// Its certificate and key.
    pub identity: Identity,
    /// The address to listen on; port 0 means any free port.
    pub listen: SocketAddr,
    /// The host announced to others.
    pub hostname: Option<String>,
    /// Its group.
    pub group: GroupPlan,
    /// The file of the hosts in `config`, read again at SIGHUP.
    pub whitelist: Option<Whitelist>,
    /// The cluster's name.
    pub cluster: Option<String>,
    /// Authentication and authorization of HTTP clients.
    pub access: Access,
    /// The options of the HTTP server, and their values for `/flags`.
    pub http: (http::HttpOptions, BTreeMap<String, String>),
}

/// Starts a master on this thread. Returns its address.
pub async fn start(plan: Plan) -> Outcome<(SocketAddr, RunningService)> {
    let Plan {
        mut config,
        allocator,
        sorter,
        modules: (modules, manifest),
        work_dir,
        threads,
        keep_alive,
        identity,
        listen,
        hostname,
        group,
        whitelist,
        cluster,
        access,
        http: (mut http_options, http_flags),
    } = plan;
    let node = Node::builder(identity.subject().name.as_str())
        .role(Role::Master)
        .accepts(&ACCEPTS)
        .placement(threads.placement())
        .build();
    // Links are made before the master actor exists here.
    node.will_accept::<::master::Master>();
    let Sockets {
        endpoint,
        listener,
        address,
    } = service::open(&node, &identity, listen, keep_alive).await?;
    (config.hostname, config.port) = (
        service::hostname(hostname.as_deref(), address.ip()),
        address.port(),
    );
    http_options.hosts = http_options.hosts.with(own_names(&config.hostname));
    http_options.hosts = http_options.hosts.with(group.hosts());
    config.address = service::ipv4(&node, address.ip(), &config.hostname).await;
    config.version = env!("CARGO_PKG_VERSION").to_owned();
    (config.acls, config.throttle) = (access.acls.clone(), access.throttle);
    config.flags = flags(&config, &work_dir, (&allocator, &sorter));
    config
        .flags
        .insert("ip".to_owned(), address.ip().to_string());
    let shown = protocol::text::duration::format(keep_alive);
    config.flags.insert("link_keep_alive".to_owned(), shown);
    let domain = config.domain.as_ref();
    if let Some(domain) = domain.map(|domain| format!("{}/{}", domain.region, domain.zone)) {
        config.flags.insert("domain".to_owned(), domain);
    }
    config
        .flags
        .extend(cluster.map(|name| ("cluster".to_owned(), name)));
    config.flags.extend(access.shown);
    config.flags.extend(http_flags);
    if let Some(whitelist) = &whitelist {
        let path = whitelist.path().display().to_string();
        config.flags.insert("whitelist".to_owned(), path);
    }
    let sorter = modules
        .sorter(&node, &sorter, &modules.parameters(&manifest, &sorter))
        .map_err(|error| CliError::because("--sorter", &error))?;
    let given = modules.parameters(&manifest, &allocator);
    let allocator = modules
        .allocator(&node, &allocator, sorter, &given)
        .map_err(|error| CliError::because("--allocator", &error))?;
    let measured = allocator.clone();
    let master_role = master_role::start(&node, &config, allocator, &work_dir, &group)?;
    if let Some(whitelist) = whitelist {
        tokio::task::spawn_local(whitelist.follow(master_role.set_whitelist));
    }
    let streams = http::api::EventStreams::new(&node);
    let events = ::master::api::stream::open(&node, &master_role.leader, &config, &streams)
        .map_err(|error| CliError::because("cannot serve pages", &error))?;
    let own = ::master::api::counters(
        &master_role.leader,
        &node,
        &measured,
        &events,
        &config.throttle,
    );
    let counters = http_options.metrics.merged_with(own);
    let about = http::ServiceInfo {
        help: ::master::api::HELP,
        node: node.clone(),
        service: "master",
        version: env!("CARGO_PKG_VERSION"),
        counters: counters.clone(),
    };
    let routes = ::master::api::routes(
        &master_role.leader,
        &node,
        &config,
        counters,
        &events,
        &streams,
    )
    .merge(::master::api::marked(
        &master_role.leader,
        &node,
        http::common_routes(about),
    ));
    let guard = http::Guard::new("master", &node)
        .with_access(access.realms, access.acls)
        .with_throttle(config.throttle.clone())
        .with_stream_principals(streams.principals());
    let routes = guard.protect(routes);
    let pages = service::serve(&node, listener, routes, http_options, streams)?;
    tracing::info!(%address, version = env!("CARGO_PKG_VERSION"), "the master listens");
    let ended = {
        let (node, watched, end_reason) = (
            node.clone(),
            master_role.watched.clone(),
            master_role.end_reason,
        );
        async move {
            let end = node.ended(&watched).await;
            end_reason().unwrap_or_else(|| {
                format!("the master has ended: {end}; see its log, then restart it")
            })
        }
    };
    let renewal = endpoint.renewal();
    let stop = async move {
        // Before the allocator, whose end it would treat as a failure, and before the streams,
        // whose end it would treat as disconnections of frameworks.
        master_role.stop.await;
        pages.stop(node.clock()).await;
        node.shutdown().await;
        endpoint.close().await;
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

/// Flags of Mesos masters that Meros lacks, with the equivalent values. `/flags` shows them because
/// tools read them.
const MESOS_FLAGS: [(&str, &str); 15] = [
    ("authenticate_agents", "true"),
    ("authorizers", "local"),
    ("help", "false"),
    ("http_authenticators", "basic"),
    ("initialize_driver_logging", "true"),
    ("log_auto_initialize", "true"),
    ("logbufsecs", "0"),
    ("logging_level", "INFO"),
    ("memory_profiling", "false"),
    ("quiet", "false"),
    ("recovery_agent_removal_limit", "100%"),
    ("registry", "replicated_log"),
    ("registry_strict", "false"),
    ("require_agent_domain", "false"),
    ("version", "false"),
];

/// The master's flags, as shown by `/state`.
fn flags(
    config: &Config,
    work_dir: &Path,
    (allocator, sorter): (&str, &str),
) -> BTreeMap<String, String> {
    let weights: Vec<_> = config
        .weights
        .iter()
        .map(|(role, weight)| format!("{role}={weight}"))
        .collect();
    let duration = protocol::text::duration::format;
    let pairs = [
        ("work_dir", work_dir.display().to_string()),
        ("port", config.port.to_string()),
        ("hostname", config.hostname.clone()),
        ("allocator", allocator.to_owned()),
        ("sorter", sorter.to_owned()),
        ("role_sorter", sorter.to_owned()),
        ("framework_sorter", sorter.to_owned()),
        (
            "max_completed_frameworks",
            config.max_completed_frameworks.to_string(),
        ),
        (
            "max_completed_tasks_per_framework",
            config.max_completed_tasks_per_framework.to_string(),
        ),
        (
            "max_unreachable_tasks_per_framework",
            config.max_unreachable_tasks_per_framework.to_string(),
        ),
        ("weights", weights.join(",")),
        ("allocation_interval", duration(config.allocation_interval)),
        ("agent_ping_timeout", duration(config.agent_ping_timeout)),
        (
            "max_agent_ping_timeouts",
            config.max_agent_ping_timeouts.to_string(),
        ),
        (
            "agent_reregister_timeout",
            duration(config.agent_reregister_timeout),
        ),
        ("root_submissions", config.root_submissions.to_string()),
        (
            "publish_per_framework_metrics",
            config.publish_per_framework_metrics.to_string(),
        ),
        (
            "max_operator_event_stream_subscribers",
            config.max_operator_event_stream_subscribers.to_string(),
        ),
        (
            "authenticate_frameworks",
            config.authenticate_frameworks.to_string(),
        ),
    ];
    let mesos_flags = MESOS_FLAGS.map(|(name, value)| (name, value.to_owned()));
    let all = mesos_flags.into_iter().chain(pairs);
    all.map(|(name, value)| (name.to_owned(), value)).collect()
}

/// `meros master`: runs until a signal stops it.
pub fn run(args: MasterArgs, signals: Signals) -> Outcome {
    service::raise_open_files()?;
    let machine = service::machine_name();
    let name = service::node_name(&["master", &machine, &args.port.to_string()]);
    let whitelist = args.whitelist.as_deref().and_then(whitelist::path);
    let whitelist = whitelist.map(|path| Whitelist::open(path, signals.hangups()));
    let (whitelist, hosts) = whitelist.transpose()?.unzip();
    let credentials = ("credentials", args.credentials.as_deref());
    let certified = args.http_flags.certifies();
    let access = args
        .access
        .with(credentials, certified, &args.flags.access)?;
    let options = args.http_flags.options()?;
    let (frameworks, certificates) = (
        args.flags.access.authenticate_http_frameworks,
        args.http_flags.http_require_client_certificate,
    );
    let exposure = args
        .access
        .exposure(args.ip, credentials.0, Some(frameworks), certificates);
    if let Some(exposure) = exposure {
        tracing::warn!("{exposure}");
    }
    let mut reloads = args.access.reloads(credentials.0, credentials.1, &access);
    reloads.extend(args.http_flags.reloads(&options));
    let (certs, http_flags) = (args.certs, args.http_flags);
    let identity = http_flags.revoking(certs.identity(Role::Master, &name)?)?;
    let expiry = Expiry::new(identity.expires().into());
    let mut watched = vec![Watched::links(&expiry)];
    watched.extend(Watched::pages(&options));
    let plan = Plan {
        config: Config {
            domain: args.domain,
            whitelist: hosts.flatten(),
            ..args.flags.config()?
        },
        allocator: args.flags.allocator.clone(),
        sorter: args.flags.sorter.clone(),
        modules: args.modules.read(&crate::service::agent::own_program()?)?,
        work_dir: args.work_dir,
        threads: args.threads.threads,
        keep_alive: args.keep_alive.link_keep_alive,
        identity,
        listen: SocketAddr::new(args.ip, args.port),
        hostname: args.hostname,
        group: GroupPlan {
            initial: args.initial_masters,
            election: args.election,
        },
        whitelist,
        cluster: args.cluster,
        access,
        http: (options, http_flags.shown()),
    };
    on_this_thread(async move {
        let (_, mut running) = start(plan).await?;
        if let Some(renewal) = running.renewal.take() {
            let read = move || http_flags.revoking(certs.identity(Role::Master, &name)?);
            reloads.push(reload::identity(renewal, &expiry, read));
        }
        tokio::task::spawn_local(expiry::follow(Clock::real(), watched));
        tokio::task::spawn_local(reload::follow(signals.hangups(), reloads));
        running.until(signals.stop()).await
    })?
}
