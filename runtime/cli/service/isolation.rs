//! The flags of an agent's isolators, and what of them this host can do.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::{ArgAction, Args, ValueEnum};
use module_api::isolator::IsolatorRef;
use module_api::{Manifest, Parameters, Registry};
use modules::isolator::cgroups;
use modules::isolator::network::cni;
use modules::isolator::report::{HostFacts, host_report};
use resources::Ranges;
use runtime::Node;

use crate::flags::{boolean, bytes};
use crate::out;
use crate::output::error::{CliError, Outcome};

/// The flags of `meros agent`.
#[derive(Args, Clone, Debug, Default)]
#[command(rename_all = "snake_case")]
pub struct IsolationFlags {
    /// Isolators of containers, in the order of their preparation: `cgroups/cpu`, `cgroups/mem`,
    /// `namespaces/pid` and others; `meros agent --check` lists those that this host can run. What
    /// it cannot is left out with a warning
    #[arg(
        long,
        env = "MESOS_ISOLATION",
        default_value = "posix/cpu,posix/mem",
        value_name = "NAME,..."
    )]
    isolation: String,
    /// Whether containers get control groups and namespaces: `posix` leaves out the isolators that
    /// need them [default: linux for root, else posix]
    #[arg(long, env = "MESOS_LAUNCHER", value_enum, value_name = "NAME")]
    launcher: Option<LauncherName>,
    /// The folder below which control groups are mounted
    #[arg(
        long,
        env = "MESOS_CGROUPS_HIERARCHY",
        default_value = "/sys/fs/cgroup",
        value_name = "DIR"
    )]
    cgroups_hierarchy: String,
    /// The control group of this agent's containers. Two agents on one machine need two
    #[arg(
        long,
        env = "MESOS_CGROUPS_ROOT",
        default_value = "mesos",
        value_name = "PATH"
    )]
    cgroups_root: String,
    /// Make the request of a container the limit of its CPU time, too (CFS quota). Without it only
    /// tasks with a limit have one
    #[arg(long, env = "MESOS_CGROUPS_ENABLE_CFS", default_missing_value = "true", default_value = "false", num_args = 0..=1,
        require_equals = true, action = ArgAction::Set, value_parser = boolean, value_name = "BOOL", hide_default_value = true)]
    cgroups_enable_cfs: bool,
    /// Make the limit of memory hold for memory and swap together
    #[arg(long, env = "MESOS_CGROUPS_LIMIT_SWAP", default_missing_value = "true", default_value = "false", num_args = 0..=1,
        require_equals = true, action = ArgAction::Set, value_parser = boolean, value_name = "BOOL", hide_default_value = true)]
    cgroups_limit_swap: bool,
    /// Time for the removal of an ended container's control group. The end of the task does not
    /// wait for it
    #[arg(
        long,
        env = "MESOS_CGROUPS_DESTROY_TIMEOUT",
        default_value = "1mins",
        value_name = "DURATION"
    )]
    cgroups_destroy_timeout: String,
    /// How many processes and threads a container can have, with the isolator `cgroups/pids`; 0 for
    /// any number [default: 15 % of those that the host can have]
    #[arg(long, env = "MEROS_CGROUPS_PIDS_LIMIT", value_name = "COUNT")]
    cgroups_pids_limit: Option<u64>,
    /// Devices that containers can use beyond common ones, as JSON such as `{"allowed_devices":
    /// [{"device": {"path": "/dev/fuse"}, "access": {"read": true, "write": true}}]}`, with the
    /// isolator `cgroups/devices`
    #[arg(long, env = "MESOS_ALLOWED_DEVICES", value_name = "JSON")]
    allowed_devices: Option<String>,
    /// Give revocable CPUs a hundredth of the weight of others [default: true]
    #[arg(long, env = "MESOS_REVOCABLE_CPU_LOW_PRIORITY", default_missing_value = "true", num_args = 0..=1,
        require_equals = true, value_parser = boolean, value_name = "BOOL")]
    revocable_cpu_low_priority: Option<bool>,
    /// Make the resource `disk` a limit, with the isolators `disk/du`, which ends containers beyond
    /// it, and `disk/xfs`, which refuses writes beyond it. `disk/loop` needs no flag
    #[arg(long, env = "MESOS_ENFORCE_CONTAINER_DISK_QUOTA", default_missing_value = "true", default_value = "false", num_args = 0..=1,
        require_equals = true, action = ArgAction::Set, value_parser = boolean, value_name = "BOOL", hide_default_value = true)]
    enforce_container_disk_quota: bool,
    /// Pause between two measurements of sandboxes by `disk/du`, and by `disk/xfs` with
    /// --xfs_kill_containers
    #[arg(
        long,
        env = "MESOS_CONTAINER_DISK_WATCH_INTERVAL",
        default_value = "15secs",
        value_name = "DURATION"
    )]
    container_disk_watch_interval: String,
    /// The ids that `disk/xfs` may give to sandboxes and volumes. Nothing else may use them
    #[arg(
        long,
        env = "MESOS_XFS_PROJECT_RANGE",
        default_value = "[5000-10000]",
        value_name = "RANGES"
    )]
    xfs_project_range: String,
    /// Make `disk/xfs` end containers beyond their resource `disk`, with
    /// --enforce_container_disk_quota
    #[arg(long, env = "MESOS_XFS_KILL_CONTAINERS", default_missing_value = "true", default_value = "false", num_args = 0..=1,
        require_equals = true, action = ArgAction::Set, value_parser = boolean, value_name = "BOOL", hide_default_value = true)]
    xfs_kill_containers: bool,
    /// What containers can take beyond their resource `disk` before writes are refused, with
    /// --xfs_kill_containers [default: 10MB]
    #[arg(long, env = "MESOS_XFS_QUOTA_HEADROOM", value_parser = bytes, value_name = "SIZE")]
    xfs_quota_headroom: Option<u64>,
    /// Pause between two looks of `network/ports` at the ports on which containers listen
    #[arg(
        long,
        env = "MESOS_CONTAINER_PORTS_WATCH_INTERVAL",
        default_value = "30secs",
        value_name = "DURATION"
    )]
    container_ports_watch_interval: String,
    /// Let containers listen on ports that are none of the agent's resource `ports`, with the
    /// isolator `network/ports`
    #[arg(long, env = "MESOS_CHECK_AGENT_PORT_RANGE_ONLY", default_missing_value = "true", default_value = "false", num_args = 0..=1,
        require_equals = true, action = ArgAction::Set, value_parser = boolean, value_name = "BOOL", hide_default_value = true)]
    check_agent_port_range_only: bool,
    /// End containers that listen on ports which they do not have, with the isolator
    /// `network/ports`
    #[arg(long, env = "MESOS_ENFORCE_CONTAINER_PORTS", default_missing_value = "true", default_value = "false", num_args = 0..=1,
        require_equals = true, action = ArgAction::Set, value_parser = boolean, value_name = "BOOL", hide_default_value = true)]
    enforce_container_ports: bool,
    /// The only ports that `network/ports` looks at, such as `[0-35000]`
    #[arg(
        long,
        env = "MESOS_CONTAINER_PORTS_ISOLATED_RANGE",
        value_name = "RANGES"
    )]
    container_ports_isolated_range: Option<String>,
    /// The folders of CNI plugins, separated by `:`, for the isolator `network/cni`
    #[arg(long, env = "MESOS_NETWORK_CNI_PLUGINS_DIR", value_name = "DIR:...")]
    network_cni_plugins_dir: Option<String>,
    /// The folder of network configurations in the format of CNI
    #[arg(long, env = "MESOS_NETWORK_CNI_CONFIG_DIR", value_name = "DIR")]
    network_cni_config_dir: Option<String>,
    /// The network of containers of type DOCKER with network BRIDGE, by its name in
    /// `--network_cni_config_dir`
    #[arg(long, env = "MEROS_DOCKER_BRIDGE_NETWORK", value_name = "NAME")]
    docker_bridge_network: Option<String>,
    /// What each network interface of a container may send in a second, with the isolator
    /// `network/cni`; 0B for no limit. Containers in the network of this host have none
    #[arg(long, env = "MESOS_EGRESS_RATE_LIMIT_PER_CONTAINER", value_parser = bytes, value_name = "SIZE")]
    egress_rate_limit_per_container: Option<u64>,
    /// Let containers of type DOCKER be `privileged`: the rights and devices of root on this host.
    /// Any framework can then take over the host
    #[arg(long, env = "MEROS_ALLOW_PRIVILEGED", default_missing_value = "true", default_value = "false", num_args = 0..=1,
        require_equals = true, action = ArgAction::Set, value_parser = boolean, value_name = "BOOL", hide_default_value = true)]
    allow_privileged: bool,
    /// Capabilities of the processes of a container that names none, as JSON such as
    /// `{"capabilities": ["NET_RAW"]}`, with the isolator `linux/capabilities`
    #[arg(long, env = "MESOS_EFFECTIVE_CAPABILITIES", value_name = "JSON")]
    effective_capabilities: Option<String>,
    /// Capabilities that processes of containers can gain at most, as JSON, with the isolator
    /// `linux/capabilities`
    #[arg(long, env = "MESOS_BOUNDING_CAPABILITIES", value_name = "JSON")]
    bounding_capabilities: Option<String>,
    /// The folder of seccomp profiles in the format of Docker, for the isolator `linux/seccomp`
    #[arg(long, env = "MESOS_SECCOMP_CONFIG_DIR", value_name = "DIR")]
    seccomp_config_dir: Option<String>,
    /// The profile of a container that names none
    #[arg(long, env = "MESOS_SECCOMP_PROFILE_NAME", value_name = "FILE")]
    seccomp_profile_name: Option<String>,
    /// Print which isolators this host can run, and why not the others, and exit
    #[arg(long)]
    pub check: bool,
}

/// The values of `--launcher`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum LauncherName {
    /// Control groups and namespaces.
    Linux,
    /// Neither.
    Posix,
}

/// What isolators need to know of their agent.
#[derive(Clone, Debug)]
pub struct AgentFacts {
    /// Its resource `ports`.
    pub ports: Ranges,
    /// Its work directory.
    pub work_dir: PathBuf,
}

/// The isolators of an agent.
#[derive(Clone, Debug)]
pub struct Isolation {
    /// The chosen ones that this host can run.
    names: Vec<String>,
    given: Parameters,
    /// The flags and their values, for pages.
    pub shown: BTreeMap<String, String>,
}

impl Isolation {
    /// The isolators of an agent without flags for them: none.
    pub fn none() -> Self {
        Self::of(&[], "")
    }

    /// These isolators, with this control group as `--cgroups_root`.
    pub fn of(names: &[&str], cgroups_root: &str) -> Self {
        Self {
            names: names.iter().map(|&name| name.to_owned()).collect(),
            given: Parameters::none("isolation").with("cgroups_root", cgroups_root),
            shown: BTreeMap::new(),
        }
    }

    /// Blocking. Removes what isolators have made for containers and did not remove in time, after
    /// the last process of an agent that has left.
    pub fn remove_rest(&self, work_dir: &Path) {
        let names: Vec<&str> = self.names.iter().map(String::as_str).collect();
        let given = self.given.clone();
        let given = given.with("work_dir", work_dir.display().to_string());
        if names.iter().any(|name| cni::NAMES.contains(name)) {
            cni::remove_all(&given);
        }
        let of_groups = |name: &&&str| cgroups::NAMES.contains(*name);
        let names: Vec<&str> = names.iter().filter(of_groups).copied().collect();
        if !names.is_empty() {
            cgroups::remove_all(&names, &given);
        }
    }

    /// Starts the isolators of this agent.
    pub fn start(
        &self,
        node: &Node,
        registry: &Registry,
        manifest: &Manifest,
        agent: &AgentFacts,
    ) -> Outcome<Vec<IsolatorRef>> {
        let names: Vec<&str> = self.names.iter().map(String::as_str).collect();
        let flag = "egress_rate_limit_per_container";
        let limits_egress = self.given.get(flag).is_some_and(|rate| rate != "0B");
        if limits_egress && !names.iter().any(|name| cni::NAMES.contains(name)) {
            let problem = format!(
                "--{flag} limits containers with networks of their own only: it needs the isolator `network/cni`, which this agent does not have"
            );
            return Err(CliError::usage(problem));
        }
        if ["disk/loop", "disk/xfs"]
            .iter()
            .all(|name| names.contains(name))
        {
            let problem =
                "--isolation has `disk/loop` and `disk/xfs`: expected at most one of them";
            return Err(CliError::usage(problem));
        }
        let given = self.given.clone().with("isolation", names.join(","));
        let given = given.with("agent_ports", agent.ports.to_string());
        let mut given = given.with("work_dir", agent.work_dir.display().to_string());
        for name in &names {
            for (key, value) in registry.parameters(manifest, name).iter() {
                given = given.with(key, value);
            }
        }
        let started = registry.isolators(node, &names, &given);
        started.map_err(|error| CliError::because("--isolation", &error))
    }
}

impl IsolationFlags {
    /// The isolators that this host can run. Warns once of those that it cannot.
    pub fn isolation(&self, work_dir: &Path) -> Isolation {
        let facts = self.facts(work_dir);
        let report: BTreeMap<_, _> = host_report(&facts).into_iter().collect();
        let launcher = self.launcher.unwrap_or(match facts.is_root {
            true => LauncherName::Linux,
            false => LauncherName::Posix,
        });
        let named = self.isolation.split(',').map(str::trim);
        // As in Mesos, which always has it.
        let cni = "network/cni";
        let adds_cni =
            self.network_cni_config_dir.is_some() && !named.clone().any(|name| name == cni);
        let named = named.chain(adds_cni.then_some(cni));
        let (names, warning) = choose(named, launcher, &report);
        if let Some(warning) = warning {
            tracing::warn!("{warning}");
        }
        let launcher = match launcher {
            LauncherName::Linux => "linux",
            LauncherName::Posix => "posix",
        };
        let flags = [
            ("cgroups_hierarchy", self.cgroups_hierarchy.clone()),
            ("cgroups_root", self.cgroups_root.clone()),
            ("cgroups_enable_cfs", self.cgroups_enable_cfs.to_string()),
            ("cgroups_limit_swap", self.cgroups_limit_swap.to_string()),
            ("allow_privileged", self.allow_privileged.to_string()),
            (
                "cgroups_destroy_timeout",
                self.cgroups_destroy_timeout.clone(),
            ),
            (
                "revocable_cpu_low_priority",
                self.revocable_cpu_low_priority.unwrap_or(true).to_string(),
            ),
        ];
        let disk = [
            (
                "container_disk_watch_interval",
                self.container_disk_watch_interval.clone(),
            ),
            (
                "enforce_container_disk_quota",
                self.enforce_container_disk_quota.to_string(),
            ),
            ("xfs_project_range", self.xfs_project_range.clone()),
            ("xfs_kill_containers", self.xfs_kill_containers.to_string()),
            (
                "xfs_quota_headroom",
                format!("{}B", self.xfs_quota_headroom.unwrap_or(10 << 20)),
            ),
        ];
        let ports = [
            (
                "container_ports_watch_interval",
                self.container_ports_watch_interval.clone(),
            ),
            (
                "check_agent_port_range_only",
                self.check_agent_port_range_only.to_string(),
            ),
            (
                "enforce_container_ports",
                self.enforce_container_ports.to_string(),
            ),
        ];
        let pids_limit = self.cgroups_pids_limit.map(|limit| limit.to_string());
        let egress_rate = self.egress_rate_limit_per_container;
        let egress_rate = egress_rate.map(|rate| format!("{rate}B"));
        let optional = [
            ("cgroups_pids_limit", &pids_limit),
            ("allowed_devices", &self.allowed_devices),
            (
                "container_ports_isolated_range",
                &self.container_ports_isolated_range,
            ),
            ("network_cni_plugins_dir", &self.network_cni_plugins_dir),
            ("network_cni_config_dir", &self.network_cni_config_dir),
            ("docker_bridge_network", &self.docker_bridge_network),
            ("egress_rate_limit_per_container", &egress_rate),
            ("effective_capabilities", &self.effective_capabilities),
            ("bounding_capabilities", &self.bounding_capabilities),
            ("seccomp_config_dir", &self.seccomp_config_dir),
            ("seccomp_profile_name", &self.seccomp_profile_name),
        ];
        let optional = optional.into_iter();
        let optional = optional.filter_map(|(name, value)| Some((name, value.clone()?)));
        let flags = flags.into_iter().chain(disk).chain(ports).chain(optional);
        let flags: Vec<(&str, String)> = flags.collect();
        let mut given = Parameters::none("isolation");
        for (name, value) in &flags {
            given = given.with(*name, value);
        }
        given = given.with("work_dir", work_dir.display().to_string());
        let more = [
            ("isolation", self.isolation.clone()),
            ("launcher", launcher.to_owned()),
        ];
        let shown = flags.into_iter().chain(more);
        Isolation {
            names,
            given,
            shown: shown
                .map(|(name, value)| (name.to_owned(), value))
                .collect(),
        }
    }

    fn facts(&self, work_dir: &Path) -> HostFacts {
        HostFacts::read(Path::new(&self.cgroups_hierarchy), work_dir)
    }

    /// `meros agent --check`: a line for each isolator.
    pub fn print_report(&self, work_dir: &Path) {
        for (name, possible) in host_report(&self.facts(work_dir)) {
            match possible {
                Ok(()) => out!("{name:18} yes"),
                Err(reason) => out!("{name:18} no: {reason}"),
            }
        }
    }
}

/// The isolators that this host can run, and the warning that lists the others with reasons.
fn choose<'a>(
    named: impl Iterator<Item = &'a str>,
    launcher: LauncherName,
    report: &BTreeMap<&str, Result<(), String>>,
) -> (Vec<String>, Option<String>) {
    let is_plain = |name: &str| name.starts_with("posix/") || name == "filesystem/posix";
    let (mut names, mut left_out) = (Vec::new(), Vec::new());
    for name in named.filter(|name| !name.is_empty()) {
        let reason = match (launcher, report.get(name)) {
            // Unknown names are refused at the start.
            (_, None) | (LauncherName::Linux, Some(Ok(()))) => None,
            (LauncherName::Posix, _) if is_plain(name) => None,
            (LauncherName::Posix, Some(Ok(()))) => Some("--launcher=posix".to_owned()),
            (_, Some(Err(reason))) => Some(reason.clone()),
        };
        match reason {
            None => names.push(name.to_owned()),
            Some(reason) => left_out.push(format!("{name} ({reason})")),
        }
    }
    let warning = format!("containers are not isolated by {}", left_out.join(", "));
    (names, (!left_out.is_empty()).then_some(warning))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_of_egress_needs_networks_of_containers() {
        runtime::testing::simulate(|node| async move {
            let start = |rate: &str| {
                let mut isolation = Isolation::none();
                isolation.given = isolation
                    .given
                    .with("egress_rate_limit_per_container", rate);
                let agent = AgentFacts {
                    ports: Ranges::default(),
                    work_dir: "/w".into(),
                };
                isolation.start(&node, &modules::registry(), &Manifest::default(), &agent)
            };
            let refused = start("1024B").unwrap_err().to_string();
            assert!(
                refused.contains("needs the isolator `network/cni`"),
                "{refused}"
            );
            assert!(start("0B").unwrap().is_empty());
        });
    }

    #[test]
    fn sandboxes_have_one_hard_limit() {
        runtime::testing::simulate(|node| async move {
            let isolation = Isolation::of(&["disk/loop", "disk/xfs"], "");
            let agent = AgentFacts {
                ports: Ranges::default(),
                work_dir: "/w".into(),
            };
            let started =
                isolation.start(&node, &modules::registry(), &Manifest::default(), &agent);
            let refused = started.unwrap_err().to_string();
            assert!(refused.contains("at most one of them"), "{refused}");
        });
    }

    #[test]
    fn one_warning_lists_the_lost_isolators() {
        let report = BTreeMap::from([
            ("posix/cpu", Ok(())),
            ("cgroups/cpu", Err("it needs root".to_owned())),
            ("namespaces/pid", Ok(())),
        ]);
        let chosen = |launcher, names: &str| {
            let (names, warning) = choose(names.split(','), launcher, &report);
            (names.join(","), warning.unwrap_or_default())
        };
        let of = |names: &str, warning: &str| (names.to_owned(), warning.to_owned());
        let all = "posix/cpu,cgroups/cpu,namespaces/pid,other";
        assert_eq!(
            chosen(LauncherName::Linux, all),
            of(
                "posix/cpu,namespaces/pid,other",
                "containers are not isolated by cgroups/cpu (it needs root)"
            )
        );
        assert_eq!(
            chosen(LauncherName::Posix, all),
            of(
                "posix/cpu,other",
                "containers are not isolated by cgroups/cpu (it needs root), namespaces/pid (--launcher=posix)"
            )
        );
        assert_eq!(
            chosen(LauncherName::Posix, "posix/cpu"),
            of("posix/cpu", "")
        );
    }
}
