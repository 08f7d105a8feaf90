//! The verb `meros master`, and how a master is put together: node, sockets, registry, allocator, pages.
//!
//! Opens what the master needs and hands it over. Decides nothing that the master, its allocator or its registry decides.

mod acting;
mod group;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ::master::Config;
use ::master::hoarding::OfferBudget;
use clap::Args;
use module_api::{Manifest, Registry};
use protocol::agent::Domain;
use resources::Invalid;
use runtime::{Clock, Node, Role};
use transport::Identity;

use self::acting::{alone, grouped, membership};
use crate::access::{Access, AccessFlags, MasterAccessFlags};
use crate::certs::CertsFlag;
use crate::door::{DoorFlags, own_names};
use crate::expiry::{self, Expiry, Watched};
use crate::failure::{Failure, Outcome};
use crate::flags::{
    KeepAliveFlag, Patience, Text, Threads, ThreadsFlag, boolean, domain, duration, patience,
};
use crate::member::{self, Running, Sockets};
use crate::on_this_thread;
use crate::renewal;
use crate::signals::Signals;
use crate::whitelist::{self, Whitelist};

pub use self::acting::holds_anything;
pub use self::group::{ElectionFlags, GroupPlan};

/// Whom a master speaks with.
const ACCEPTS: [Role; 4] = [Role::Agent, Role::Framework, Role::Operator, Role::Master];

/// Where a member of a group keeps its log, in its work directory.
pub const LOG: &str = "log";
/// Where a master that is alone keeps its registry.
pub const ALONE: &str = "registry";

/// Run a master
#[derive(Args, Clone, Debug)]
#[command(rename_all = "snake_case", after_help = renewal::HELP)]
pub struct MasterArgs {
    /// Where the registry is kept; made if missing
    #[arg(long, env = "MESOS_WORK_DIR", value_name = "DIR")]
    work_dir: PathBuf,
    /// Address to listen on
    #[arg(long, env = "MESOS_IP", default_value_t = IpAddr::V4(Ipv4Addr::UNSPECIFIED))]
    ip: IpAddr,
    /// Port to listen on: HTTP over TCP, and QUIC over UDP
    #[arg(long, env = "MESOS_PORT", default_value_t = 5050)]
    port: u16,
    /// The host that others are told [default: the address, or this machine's name]
    #[arg(long, env = "MESOS_HOSTNAME", value_name = "HOST")]
    hostname: Option<String>,
    /// What people call this cluster; shown on pages
    #[arg(long, env = "MESOS_CLUSTER", value_name = "NAME")]
    cluster: Option<String>,
    /// Where the masters are; agents of another region are only for frameworks that are REGION_AWARE
    #[arg(long, env = "MESOS_DOMAIN", value_parser = domain, value_name = "REGION/ZONE|JSON")]
    domain: Option<Domain>,
    /// Offer only agents of the hosts in this file, one a line; read again at SIGHUP. A host that is struck off keeps what runs there
    #[arg(long, env = "MESOS_WHITELIST", value_name = "FILE")]
    whitelist: Option<String>,
    /// Modules and their parameters: JSON, or a file of it
    #[arg(long, env = "MESOS_MODULES", value_name = "JSON")]
    modules: Option<Text>,
    #[command(flatten)]
    flags: MasterFlags,
    /// Who may come over HTTP: a file of JSON with principals and their secrets. Read again at SIGHUP
    #[arg(long, env = "MESOS_CREDENTIALS", value_name = "FILE")]
    credentials: Option<PathBuf>,
    #[command(flatten)]
    access: AccessFlags,
    #[command(flatten)]
    door: DoorFlags,
    /// The masters that begin a group, `host:port` each, this one too: the same list on each of them. For a master that was added to a group:
    /// the others. Said again it changes nothing. Without it a master that never belonged to a group is alone
    #[arg(
        long,
        env = "MESOS_INITIAL_MASTERS",
        value_name = "HOST:PORT,...",
        value_delimiter = ','
    )]
    initial_masters: Vec<String>,
    #[command(flatten)]
    election: ElectionFlags,
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

/// The flags that `meros master` and `meros local` share.
#[derive(Args, Clone, Debug, Default)]
#[command(rename_all = "snake_case")]
pub struct MasterFlags {
    /// Weights of roles, as in `dev=2,qa=1`; others have 1
    #[arg(long, env = "MESOS_WEIGHTS", value_name = "ROLE=WEIGHT,...")]
    pub weights: Option<Text>,
    /// The roles that frameworks may have; any when not given
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
    /// The sorter, which says who is next: `drf` (weighted fair shares), `strict_priority` (a higher weight first, equals fairly), `random` (drawn
    /// by weight), or a module
    #[arg(long, env = "MEROS_SORTER", default_value = "drf", value_name = "NAME")]
    pub sorter: String,
    /// Time between two allocations that nothing else has caused [default: 1secs]
    #[arg(long, env = "MESOS_ALLOCATION_INTERVAL", value_parser = duration, value_name = "DURATION")]
    pub allocation_interval: Option<Duration>,
    /// An unanswered offer is taken back after so long, and not made to the same framework again for as long, at most a minute; or `none`
    /// [default: 10mins]
    #[arg(long, env = "MESOS_OFFER_TIMEOUT", value_parser = patience, value_name = "DURATION")]
    pub offer_timeout: Option<Patience>,
    /// How many unanswered offers each framework may hold at a time: a number, or a part of the number of agents as in `25%` [default: any]
    #[arg(long, env = "MEROS_OFFER_BUDGET", value_parser = offer_budget, value_name = "COUNT|PERCENT")]
    pub offer_budget: Option<OfferBudget>,
    /// Time between two pings of an agent [default: 15secs]
    #[arg(long, env = "MESOS_AGENT_PING_TIMEOUT", value_parser = duration, value_name = "DURATION")]
    pub agent_ping_timeout: Option<Duration>,
    /// Pings in a row that an agent may leave unanswered [default: 5]
    #[arg(long, env = "MESOS_MAX_AGENT_PING_TIMEOUTS", value_name = "COUNT")]
    pub max_agent_ping_timeouts: Option<u32>,
    /// How long known agents may take to come back after the master's restart [default: 10mins]
    #[arg(long, env = "MESOS_AGENT_REREGISTER_TIMEOUT", value_parser = duration, value_name = "DURATION")]
    pub agent_reregister_timeout: Option<Duration>,
    /// Accept frameworks and tasks of user root; `--root_submissions=false` or `--no_root_submissions` refuses them [default: true]
    #[arg(long, env = "MESOS_ROOT_SUBMISSIONS", default_missing_value = "true", num_args = 0..=1, require_equals = true,
        value_parser = boolean, value_name = "BOOL")]
    pub root_submissions: Option<bool>,
    /// Ended frameworks that are remembered [default: 50]
    #[arg(long, env = "MESOS_MAX_COMPLETED_FRAMEWORKS", value_name = "COUNT")]
    pub max_completed_frameworks: Option<usize>,
    /// Ended tasks of each framework that are remembered [default: 1000]
    #[arg(
        long,
        env = "MESOS_MAX_COMPLETED_TASKS_PER_FRAMEWORK",
        value_name = "COUNT"
    )]
    pub max_completed_tasks_per_framework: Option<usize>,
    /// Tasks on unreachable agents that are remembered of each framework [default: 1000]
    #[arg(
        long,
        env = "MESOS_MAX_UNREACHABLE_TASKS_PER_FRAMEWORK",
        value_name = "COUNT"
    )]
    pub max_unreachable_tasks_per_framework: Option<usize>,
    /// Metrics of single frameworks, some sixty of each; none with `--publish_per_framework_metrics=false` or
    /// `--no_publish_per_framework_metrics` [default: true]
    #[arg(long, env = "MESOS_PUBLISH_PER_FRAMEWORK_METRICS", default_missing_value = "true", num_args = 0..=1, require_equals = true,
        value_parser = boolean, value_name = "BOOL")]
    pub publish_per_framework_metrics: Option<bool>,
    /// Subscribers of the operator API's events; one more, and the oldest is closed [default: 1000]
    #[arg(
        long,
        env = "MESOS_MAX_OPERATOR_EVENT_STREAM_SUBSCRIBERS",
        value_name = "COUNT"
    )]
    pub max_operator_event_stream_subscribers: Option<usize>,
    /// Who may do what.
    #[command(flatten)]
    pub access: MasterAccessFlags,
}

impl MasterFlags {
    /// The master's configuration, with what is not given at its default.
    pub fn config(&self) -> Outcome<Config> {
        let wrong = |error: ::master::InvalidConfig| Failure::usage(format!("--{error}"));
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
        if let Some(Patience(timeout)) = self.offer_timeout {
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

/// The modules that are linked in, and what the operator said about them.
pub fn modules(given: Option<&Text>) -> Outcome<(Registry, Manifest)> {
    let registry = ::modules::registry();
    let manifest = given.map(|Text(text)| Manifest::parse(text)).transpose();
    let manifest = manifest
        .map_err(|error| Failure::usage(format!("--modules: {}", crate::failure::chain(&error))))?;
    let manifest = manifest.unwrap_or_default();
    manifest
        .check(&registry)
        .map_err(|error| Failure::usage(format!("--modules: {}", crate::failure::chain(&error))))?;
    Ok((registry, manifest))
}

/// All that a master is started with.
pub struct Plan {
    /// What the operator chose.
    pub config: Config,
    /// The allocator's name.
    pub allocator: String,
    /// The sorter's name.
    pub sorter: String,
    /// The linked-in modules and their parameters.
    pub modules: (Registry, Manifest),
    /// Where the registry is kept.
    pub work_dir: PathBuf,
    /// Where its actors run.
    pub threads: Threads,
    /// Between two keep-alives of a link.
    pub keep_alive: Duration,
    /// Who it shows itself as.
    pub identity: Identity,
    /// Where it listens; port 0 is any free one.
    pub listen: SocketAddr,
    /// The host that others are told.
    pub hostname: Option<String>,
    /// The group it belongs to; none if it is alone.
    pub group: Option<GroupPlan>,
    /// Whether it speaks as the version before it did.
    pub speak_previous: bool,
    /// The file of the hosts in `config`, to be read again.
    pub whitelist: Option<Whitelist>,
    /// What people call the cluster.
    pub cluster: Option<String>,
    /// What is asked of who comes over HTTP, and who may do what.
    pub access: Access,
    /// What pages are served with, and the flags that say so.
    pub door: (http::HttpOptions, BTreeMap<String, String>),
}

/// Starts a master on this thread, and says where it listens.
pub async fn start(plan: Plan) -> Outcome<(SocketAddr, Running)> {
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
        speak_previous,
        whitelist,
        cluster,
        access,
        door: (mut door, door_flags),
    } = plan;
    let node = Node::builder(identity.subject().name.as_str())
        .role(Role::Master)
        .accepts(&ACCEPTS)
        .placement(threads.placement())
        .speak_previous(speak_previous)
        .build();
    // Links are made before a master acts here.
    node.will_hear::<::master::Master>();
    let Sockets {
        endpoint,
        listener,
        address,
    } = member::open(&node, &identity, listen, keep_alive).await?;
    (config.hostname, config.port) = (
        member::hostname(hostname.as_deref(), address.ip()),
        address.port(),
    );
    door.hosts = door.hosts.with(own_names(&config.hostname));
    if let Some(group) = &group {
        door.hosts = door.hosts.with(group.hosts());
    }
    config.address = member::ipv4(&node, address.ip(), &config.hostname).await;
    config.version = env!("CARGO_PKG_VERSION").to_owned();
    (config.acls, config.throttle) = (access.acls.clone(), access.throttle);
    config.flags = flags(&config, &work_dir, (&allocator, &sorter));
    config
        .flags
        .insert("ip".to_owned(), address.ip().to_string());
    let shown = protocol::duration::format(keep_alive);
    config.flags.insert("link_keep_alive".to_owned(), shown);
    let domain = config.domain.as_ref();
    if let Some(domain) = domain.map(|domain| format!("{}/{}", domain.region, domain.zone)) {
        config.flags.insert("domain".to_owned(), domain);
    }
    config
        .flags
        .extend(cluster.map(|name| ("cluster".to_owned(), name)));
    config.flags.extend(access.shown);
    config.flags.extend(door_flags);
    if let Some(whitelist) = &whitelist {
        let path = whitelist.path().display().to_string();
        config.flags.insert("whitelist".to_owned(), path);
    }
    let sorter = modules
        .sorter(&node, &sorter, &modules.parameters(&manifest, &sorter))
        .map_err(|error| Failure::because("--sorter", &error))?;
    let given = modules.parameters(&manifest, &allocator);
    let allocator = modules
        .allocator(&node, &allocator, sorter, &given)
        .map_err(|error| Failure::because("--allocator", &error))?;
    let measured = allocator.clone();
    let acting = match membership(group, &work_dir)? {
        None => alone(&node, &config, allocator, &work_dir)?,
        Some(group) => grouped(&node, &config, allocator, &work_dir, &group)?,
    };
    if let Some(whitelist) = whitelist {
        tokio::task::spawn_local(whitelist.follow(acting.admit));
    }
    let streams = http::api::Streams::new(&node);
    let events = ::master::http::stream::open(&node, &acting.front, &config, &streams)
        .map_err(|error| Failure::because("cannot serve pages", &error))?;
    let own = ::master::http::counters(&acting.front, &node, &measured, &events, &config.throttle);
    let counters = door.figures.beside(own);
    let about = http::About {
        help: ::master::http::HELP,
        node: node.clone(),
        service: "master",
        version: env!("CARGO_PKG_VERSION"),
        counters: counters.clone(),
    };
    let routes =
        ::master::http::routes(&acting.front, &node, &config, counters, &events, &streams).merge(
            ::master::http::marked(&acting.front, &node, http::common_routes(about)),
        );
    let guard = http::Guard::new("master", &node)
        .asking(access.realms, access.acls)
        .throttling(config.throttle.clone())
        .knowing(streams.declared());
    let routes = guard.before(routes);
    let pages = member::serve(&node, listener, routes, door, streams)?;
    tracing::info!(%address, version = env!("CARGO_PKG_VERSION"), "the master listens");
    let ended = {
        let (node, ends, why) = (node.clone(), acting.ends.clone(), acting.why);
        async move {
            let end = node.ended(&ends).await;
            why().unwrap_or_else(|| {
                format!("the master has ended: {end}; its log says why, start it again")
            })
        }
    };
    let renewal = endpoint.renewal();
    let stop = async move {
        // Before its allocator, whose end would alarm it, and before its streams: their end would be that of frameworks.
        acting.leave.await;
        pages.stop(node.clock()).await;
        node.shutdown().await;
        endpoint.close().await;
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

/// Flags of Mesos' masters that Meros lacks, with the value that matches what Meros does: `/flags` shows them because tools read them.
const OF_MESOS: [(&str, &str); 15] = [
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

/// What `/state` shows as the master's flags.
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
    let duration = protocol::duration::format;
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
    let of_mesos = OF_MESOS.map(|(name, value)| (name, value.to_owned()));
    let all = of_mesos.into_iter().chain(pairs);
    all.map(|(name, value)| (name.to_owned(), value)).collect()
}

/// `meros master`: runs until a signal stops it.
pub fn run(args: MasterArgs, signals: Signals) -> Outcome {
    member::raise_open_files()?;
    let machine = member::machine_name();
    let name = member::node_name(&["master", &machine, &args.port.to_string()]);
    let is_member = holds_anything(&args.work_dir.join(LOG));
    let whitelist = args.whitelist.as_deref().and_then(whitelist::path);
    let whitelist = whitelist.map(|path| Whitelist::open(path, signals.hangups()));
    let (whitelist, hosts) = whitelist.transpose()?.unzip();
    let credentials = ("credentials", args.credentials.as_deref());
    let certified = args.door.certifies();
    let access = args
        .access
        .with(credentials, certified, &args.flags.access)?;
    let options = args.door.options()?;
    let (frameworks, certificates) = (
        args.flags.access.authenticate_http_frameworks,
        args.door.http_require_client_certificate,
    );
    let exposure = args
        .access
        .exposure(args.ip, credentials.0, Some(frameworks), certificates);
    if let Some(exposure) = exposure {
        tracing::warn!("{exposure}");
    }
    let mut again = args.access.again(credentials.0, credentials.1, &access);
    again.extend(args.door.again(&options));
    let (certs, door) = (args.certs, args.door);
    let identity = door.revoking(certs.identity(Role::Master, &name)?)?;
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
        modules: modules(args.modules.as_ref())?,
        work_dir: args.work_dir,
        threads: args.threads.threads,
        keep_alive: args.keep_alive.link_keep_alive,
        identity,
        listen: SocketAddr::new(args.ip, args.port),
        hostname: args.hostname,
        group: (!args.initial_masters.is_empty() || is_member).then_some(GroupPlan {
            address: None,
            initial: args.initial_masters,
            election: args.election,
        }),
        speak_previous: args.speak_previous,
        whitelist,
        cluster: args.cluster,
        access,
        door: (options, door.shown()),
    };
    on_this_thread(async move {
        let (_, mut running) = start(plan).await?;
        if let Some(renewal) = running.renewal.take() {
            let read = move || door.revoking(certs.identity(Role::Master, &name)?);
            again.push(renewal::identity(renewal, &expiry, read));
        }
        tokio::task::spawn_local(expiry::follow(Clock::real(), watched));
        tokio::task::spawn_local(renewal::follow(signals.hangups(), again));
        running.until(signals.stop()).await
    })?
}
