//! Tables of the flags of Mesos 1.11 that Meros lacks: names, older names, and accepted values.
//!
//! Data only. No row names a flag that `meros` has (checked by a test): remove the row when the
//! flag is added.

/// A verb that runs a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// `meros master`.
    Master,
    /// `meros agent`.
    Agent,
    /// `meros local`, which has most flags of both.
    Local,
}

impl Service {
    /// The service of this verb.
    pub fn named(verb: &str) -> Option<Self> {
        let all = [Self::Master, Self::Agent, Self::Local];
        all.into_iter().find(|service| service.verb() == verb)
    }

    /// Its verb.
    pub fn verb(self) -> &'static str {
        match self {
            Self::Master => "master",
            Self::Agent => "agent",
            Self::Local => "local",
        }
    }
}

/// The handling of a flag that Meros lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// It only tunes a mechanism that Meros lacks: a warning with this reason.
    Tunes(&'static str),
    /// These values match Meros; others are refused with this advice.
    Only(&'static [&'static str], &'static str),
    /// Refused with this advice.
    Refused(&'static str),
}

use Rule::{Only, Refused, Tunes};

/// The rule for a flag of this service.
pub fn rule(service: Service, name: &str) -> Option<Rule> {
    let tables: &[&[(&str, Rule)]] = match service {
        Service::Master => &[BOTH, MASTER],
        Service::Agent => &[BOTH, AGENT],
        Service::Local => &[LOCAL, BOTH, MASTER, AGENT],
    };
    let mut rows = tables.iter().flat_map(|table| table.iter());
    rows.find(|(own, _)| *own == name).map(|(_, rule)| *rule)
}

/// The names of all flags in these tables, and their older names.
pub fn names() -> impl Iterator<Item = &'static str> {
    let rows = [BOTH, MASTER, AGENT].into_iter().flatten();
    let older = ALIASES.iter().map(|(older, _)| *older);
    rows.map(|(name, _)| *name).chain(older)
}

/// Older names, which Mesos still accepts.
pub const ALIASES: &[(&str, &str)] = &[
    ("authenticate", "authenticate_frameworks"),
    ("authenticate_slaves", "authenticate_agents"),
    ("authenticate_http", "authenticate_http_readwrite"),
    ("slave_reregister_timeout", "agent_reregister_timeout"),
    ("slave_ping_timeout", "agent_ping_timeout"),
    ("max_slave_ping_timeouts", "max_agent_ping_timeouts"),
    (
        "recovery_slave_removal_limit",
        "recovery_agent_removal_limit",
    ),
    ("slave_removal_rate_limit", "agent_removal_rate_limit"),
    ("max_executors_per_slave", "max_executors_per_agent"),
    ("user_sorter", "role_sorter"),
    ("executor_secret_key", "jwt_secret_key"),
    ("slave_subsystems", "agent_subsystems"),
    ("allowed_capabilities", "effective_capabilities"),
    ("num_slaves", "agents"),
];

/// Variables with the prefix `MESOS_` that are not flags: of executors, tasks and installations.
pub const NOT_FLAGS: &[&str] = &[
    "agent_endpoint",
    "allocation_role",
    "build_dir",
    "checkpoint",
    "container_id",
    "container_ip",
    "container_name",
    "directory",
    "domain_socket",
    "executor_authentication_token",
    "executor_id",
    "framework_id",
    "home",
    "local",
    "native_java_library",
    "native_library",
    "sandbox",
    "slave_id",
    "slave_pid",
    "source_dir",
    "subscription_backoff_max",
    "task_id",
    "task_name",
    "verbose",
    "version",
];

/// Variables of Mesos' network library, and the flags that replace them. Those for TLS are refused
/// by the flags of HTTPS.
pub const LIBPROCESS: &[(&str, &str)] = &[
    ("LIBPROCESS_IP", "--ip"),
    ("LIBPROCESS_PORT", "--port"),
    ("LIBPROCESS_ADVERTISE_IP", "--hostname"),
    ("LIBPROCESS_ADVERTISE_PORT", "--port"),
];

const LOG: Rule = Tunes("logs go to standard error; --log says how much");
const ANNOUNCED: &str = "--hostname and --port are announced to others";
const ADDRESS: Rule = Refused("name the address with --ip");
const NO_LEADER: Rule = Refused("each master knows the leader: use --master HOST:PORT,...");
const ELECTED: Rule = Refused(
    "masters elect one of themselves: use --initial_masters, and --master HOST:PORT,... elsewhere",
);
const BASIC: Rule = Only(
    &["basic"],
    "HTTP Basic and --http_client_ca are the only ways",
);
const NOT_REMOVED: Rule = Tunes("agents are not removed: they become unreachable and come back");
const REGISTRY: Rule = Tunes("the registry needs no tuning");
const SORTER: Rule = Only(&["drf"], "use --sorter, for roles and frameworks alike");
const ALLOCATOR: &str = "a parameter of the allocator: name it in --modules";
const RE2: Rule = Tunes("expressions have fixed bounds and run in linear time");
const HOOKS: Rule = Refused("there are no hooks; remove it");
const FIREWALL: Rule = Refused("use --acls with `get_endpoints`");
const CERTIFICATES: &str = "services prove themselves by certificates (`meros certs`)";

const BOTH: &[(&str, Rule)] = &[
    ("quiet", LOG),
    ("logging_level", LOG),
    ("log_dir", LOG),
    ("logbufsecs", LOG),
    ("initialize_driver_logging", LOG),
    ("external_log_file", LOG),
    ("hostname_lookup", Only(&["true"], ANNOUNCED)),
    ("advertise_ip", Refused(ANNOUNCED)),
    ("advertise_port", Refused(ANNOUNCED)),
    ("ip_discovery_command", ADDRESS),
    (
        "memory_profiling",
        Only(&["false"], "there is no memory profiling"),
    ),
    ("firewall_rules", FIREWALL),
    ("hooks", HOOKS),
];

const MASTER: &[(&str, Rule)] = &[
    (
        "authenticate_agents",
        Tunes("agents always authenticate by certificate"),
    ),
    (
        "zk",
        Refused(
            "masters need no ZooKeeper: use --initial_masters, and --master HOST:PORT,... elsewhere",
        ),
    ),
    (
        "quorum",
        Refused("a majority of the group's members decides: use --initial_masters"),
    ),
    (
        "zk_session_timeout",
        Refused(
            "masters need no ZooKeeper: --election_tick and --election_ticks bound a silent leader",
        ),
    ),
    ("master_contender", ELECTED),
    ("master_detector", ELECTED),
    (
        "log_auto_initialize",
        Only(
            &["true"],
            "a master with an empty directory founds a group, alone or with --initial_masters; `meros masters add` adds one more",
        ),
    ),
    (
        "registry",
        Only(&["replicated_log"], "the registry is always in --work_dir"),
    ),
    ("registry_strict", REGISTRY),
    ("registry_fetch_timeout", REGISTRY),
    ("registry_store_timeout", REGISTRY),
    ("registry_gc_interval", REGISTRY),
    ("registry_max_agent_age", REGISTRY),
    ("registry_max_agent_count", REGISTRY),
    ("recovery_agent_removal_limit", NOT_REMOVED),
    ("agent_removal_rate_limit", NOT_REMOVED),
    ("webui_dir", Tunes("there is no web UI to install")),
    ("role_sorter", SORTER),
    ("framework_sorter", SORTER),
    ("authentication_v0_timeout", Tunes(CERTIFICATES)),
    ("authenticators", Only(&["crammd5"], CERTIFICATES)),
    ("http_framework_authenticators", BASIC),
    (
        "max_executors_per_agent",
        Tunes("it limits ports of a network isolator that does not exist"),
    ),
    ("allocator_agent_recovery_factor", Only(&["0.8"], ALLOCATOR)),
    ("allocator_recovery_timeout", Only(&["10mins"], ALLOCATOR)),
    (
        "fair_sharing_excluded_resource_names",
        Refused("a parameter of the sorter: name it in --modules"),
    ),
    ("filter_gpu_resources", Only(&["true"], ALLOCATOR)),
    (
        "min_allocatable_resources",
        Only(&["cpus:0.01|mem:32"], ALLOCATOR),
    ),
    (
        "require_agent_domain",
        Only(
            &["false"],
            "agents without a domain are in the master's region",
        ),
    ),
    ("offer_constraints_re2_max_mem", RE2),
    ("offer_constraints_re2_max_program_size", RE2),
];

const NO_PROVIDERS: Rule = Refused("there are no resource providers; remove it");
const NO_IMAGES: Rule = Tunes("images need none");
const NO_DOCKER: Rule = Tunes("no Docker daemon is used");
const NO_CGROUPS: Rule = Tunes("no isolator has it");
const NO_LIMITS: &str = "no isolator has it yet; remove it";
const NO_NETWORK: Rule = Tunes("networks of containers are those of CNI plugins");
const NO_SHAPING: &str = "bandwidth is limited by CNI's plugin `bandwidth`; remove it";

const AGENT: &[(&str, Rule)] = &[
    ("master_detector", NO_LEADER),
    ("zk_session_timeout", NO_LEADER),
    ("ip6", ADDRESS),
    ("ip6_discovery_command", ADDRESS),
    ("resource_provider_config_dir", NO_PROVIDERS),
    ("csi_plugin_config_dir", NO_PROVIDERS),
    ("disk_profile_adaptor", NO_PROVIDERS),
    (
        "launcher_dir",
        Tunes("executors are started by this program"),
    ),
    (
        "containerizers",
        Only(
            &["mesos", "docker,mesos", "mesos,docker"],
            "one containerizer runs both types",
        ),
    ),
    ("image_provisioner_backend", NO_IMAGES),
    ("appc_simple_discovery_uri_prefix", NO_IMAGES),
    ("appc_store_dir", NO_IMAGES),
    ("docker", NO_DOCKER),
    ("docker_ignore_runtime", NO_DOCKER),
    ("docker_kill_orphans", NO_DOCKER),
    ("docker_mesos_image", NO_DOCKER),
    ("docker_remove_delay", NO_DOCKER),
    ("docker_socket", NO_DOCKER),
    ("docker_stop_timeout", NO_DOCKER),
    ("docker_volume_checkpoint_dir", NO_DOCKER),
    ("docker_volume_chown", NO_DOCKER),
    (
        "default_container_dns",
        Refused("CNI plugins name the servers of a container; remove it"),
    ),
    (
        "default_container_info",
        Refused("a task names its own container; remove it"),
    ),
    ("default_container_shm_size", NO_IMAGES),
    (
        "hadoop_home",
        Tunes("only http, https and file URIs are fetched"),
    ),
    ("frameworks_home", Tunes("only absolute paths are fetched")),
    ("runtime_dir", Tunes("all state is in --work_dir")),
    (
        "volume_gid_range",
        Refused("volumes have no groups of their own; remove it"),
    ),
    ("host_path_volume_force_creation", NO_IMAGES),
    (
        "http_heartbeat_interval",
        Tunes("streams of containers have a heartbeat every 30 seconds"),
    ),
    ("authentication_backoff_factor", Tunes(CERTIFICATES)),
    ("authentication_timeout_min", Tunes(CERTIFICATES)),
    ("authentication_timeout_max", Tunes(CERTIFICATES)),
    ("authenticatee", Only(&["crammd5"], CERTIFICATES)),
    ("credential", Tunes(CERTIFICATES)),
    (
        "jwt_secret_key",
        Tunes("the agent makes its executors' tokens itself"),
    ),
    ("authorizer", Only(&["local"], "use --acls")),
    (
        "executor_reregistration_retry_interval",
        Tunes("executors come back by themselves"),
    ),
    (
        "http_command_executor",
        Only(
            &["false"],
            "the command executor is the agent's own; remove it",
        ),
    ),
    (
        "http_executor_domain_sockets",
        Only(&["false"], "HTTP is served over TCP alone; remove it"),
    ),
    (
        "domain_socket_location",
        Tunes("HTTP is served over TCP alone"),
    ),
    (
        "gc_non_executor_container_sandboxes",
        Tunes("sandboxes of nested containers are removed with that of their executor"),
    ),
    (
        "container_logger",
        Refused("`stdout` and `stderr` are files in the sandbox; remove it"),
    ),
    ("cgroups_cpu_enable_pids_and_tids_count", NO_CGROUPS),
    ("cgroups_net_cls_primary_handle", NO_CGROUPS),
    ("cgroups_net_cls_secondary_handles", NO_CGROUPS),
    ("agent_subsystems", NO_CGROUPS),
    (
        "nvidia_gpu_devices",
        Refused("GPUs are not detected; remove it"),
    ),
    ("perf_events", Tunes("there is no perf sampling")),
    ("perf_interval", Tunes("there is no perf sampling")),
    ("perf_duration", Tunes("there is no perf sampling")),
    (
        "systemd_enable_support",
        Tunes("a systemd unit needs KillMode=process"),
    ),
    (
        "systemd_runtime_directory",
        Tunes("a systemd unit needs KillMode=process"),
    ),
    (
        "disallow_sharing_agent_ipc_namespace",
        Only(&["false"], NO_LIMITS),
    ),
    (
        "disallow_sharing_agent_pid_namespace",
        Only(&["false"], NO_LIMITS),
    ),
    ("agent_features", Tunes("all agents have the same features")),
    ("ephemeral_ports_per_container", NO_NETWORK),
    ("eth0_name", NO_NETWORK),
    ("lo_name", NO_NETWORK),
    ("egress_rate_per_cpu", Refused(NO_SHAPING)),
    ("minimum_egress_rate_limit", NO_NETWORK),
    ("maximum_egress_rate_limit", NO_NETWORK),
    ("egress_ceil_limit", NO_NETWORK),
    ("egress_burst", NO_NETWORK),
    ("egress_unique_flow_per_container", NO_NETWORK),
    ("egress_flow_classifier_parent", NO_NETWORK),
    ("ingress_rate_limit_per_container", Refused(NO_SHAPING)),
    ("ingress_rate_per_cpu", Refused(NO_SHAPING)),
    ("minimum_ingress_rate_limit", NO_NETWORK),
    ("maximum_ingress_rate_limit", NO_NETWORK),
    ("ingress_ceil_limit", NO_NETWORK),
    ("ingress_burst", NO_NETWORK),
    ("ingress_isolate_existing_containers", NO_NETWORK),
    ("network_link_speed", NO_NETWORK),
    ("network_enable_socket_statistics_summary", NO_NETWORK),
    ("network_enable_socket_statistics_details", NO_NETWORK),
    ("network_enable_snmp_statistics", NO_NETWORK),
    ("network_enable_rate_statistics", NO_NETWORK),
    ("network_rate_statistics_window", NO_NETWORK),
    ("network_rate_statistics_interval", NO_NETWORK),
    (
        "network_cni_root_dir_persist",
        Tunes("what is known of networks is in --work_dir"),
    ),
    ("network_cni_metrics", NO_NETWORK),
    (
        "secret_resolver",
        Refused("secrets are given by value, not by reference; remove it"),
    ),
];

/// Differences between `meros local` and the services that it starts.
const LOCAL: &[(&str, Rule)] = &[
    ("master", Tunes("a local cluster has masters of its own")),
    (
        "ip",
        Only(&["127.0.0.1"], "a local cluster is for this machine alone"),
    ),
    (
        "http_credentials",
        Refused("use --credentials, for all members"),
    ),
    ("recover", Only(&["reconnect"], "a flag of `meros agent`")),
    ("strict", Only(&["true"], "a flag of `meros agent`")),
    (
        "reconfiguration_policy",
        Only(&["any", "equal"], "a flag of `meros agent`"),
    ),
];
