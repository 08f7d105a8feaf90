//! Which isolators this host can run, and why not the others.

use std::path::Path;

use super::cgroups::groups::hierarchies;
use super::cgroups::hierarchy::{Hierarchy, trees};
use super::{cgroups, disk, network, planned};

/// Bit of the capability to make namespaces and mounts.
const CAP_SYS_ADMIN: u32 = 21;

/// What is known of a host.
#[derive(Clone, Debug, Default)]
pub struct HostFacts {
    /// Its hierarchies of control groups.
    pub hierarchies: Vec<Hierarchy>,
    /// Whether the agent runs as root.
    pub is_root: bool,
    /// The effective capabilities, as bits.
    pub capabilities: u64,
    /// The kinds of namespaces that the kernel has.
    pub namespaces: Vec<String>,
    /// Why the work directory has no project quotas, if so.
    pub no_project_quotas: Option<String>,
    /// Why sandboxes cannot have file systems of their own, if so.
    pub no_disk_images: Option<String>,
}

impl HostFacts {
    /// Reads the facts of this host, with control groups mounted at or below `hierarchy`, and of an
    /// agent's work directory. Those that cannot be read are missing.
    pub fn read(hierarchy: &Path, work_dir: &Path) -> Self {
        let text = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
        let kinds = std::fs::read_dir("/proc/self/ns").into_iter().flatten();
        let kinds = kinds.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        Self {
            hierarchies: hierarchies(hierarchy).unwrap_or_default(),
            is_root: nix::unistd::geteuid().is_root(),
            capabilities: effective_capabilities(&text(Path::new("/proc/self/status"))),
            namespaces: kinds.collect(),
            no_project_quotas: disk::xfs::has_quotas(work_dir).err(),
            no_disk_images: disk::image::mkfs().err(),
        }
    }
}

/// The effective capabilities in the text of `/proc/self/status`.
fn effective_capabilities(status: &str) -> u64 {
    let mut lines = status.lines();
    let value = lines.find_map(|line| line.strip_prefix("CapEff:"));
    value
        .and_then(|value| u64::from_str_radix(value.trim(), 16).ok())
        .unwrap_or(0)
}

/// Each known name of `--isolation`, with the reason why this host cannot have it.
pub fn host_report(facts: &HostFacts) -> Vec<(&'static str, Result<(), String>)> {
    let names = cgroups::NAMES
        .into_iter()
        .chain(disk::NAMES)
        .chain(disk::image::NAMES)
        .chain(disk::xfs::NAMES)
        .chain(network::cni::NAMES)
        .chain(network::ports::NAMES)
        .chain(planned::NAMES);
    names.map(|name| (name, is_possible(name, facts))).collect()
}

fn is_possible(name: &str, facts: &HostFacts) -> Result<(), String> {
    match name {
        "namespaces/pid" => has_namespaces(&["pid", "mnt"], facts),
        "namespaces/ipc" => has_namespaces(&["ipc"], facts),
        "filesystem/linux" => has_namespaces(&["mnt", "uts"], facts),
        "linux/capabilities" | "linux/seccomp" => has_namespaces(&[], facts),
        "disk/loop" => {
            has_namespaces(&["mnt"], facts)?;
            facts.no_disk_images.clone().map_or(Ok(()), Err)
        }
        "disk/xfs" => facts.no_project_quotas.clone().map_or(Ok(()), Err),
        "network/cni" => has_namespaces(&["net", "mnt", "uts"], facts),
        "network/ports" if facts.hierarchies.is_empty() => {
            Err("no control groups are mounted".to_owned())
        }
        "network/ports" => is_root(facts),
        _ if name.starts_with("volume/") => has_namespaces(&["mnt"], facts),
        _ if cgroups::NAMES.contains(&name) => has_controllers(name, facts),
        _ => Ok(()),
    }
}

fn has_namespaces(kinds: &[&str], facts: &HostFacts) -> Result<(), String> {
    let is_missing = |kind: &&&str| !facts.namespaces.iter().any(|own| own == **kind);
    if let Some(kind) = kinds.iter().find(is_missing) {
        return Err(format!("the kernel has no {kind} namespaces"));
    }
    match facts.capabilities & (1 << CAP_SYS_ADMIN) {
        0 => Err("needs CAP_SYS_ADMIN: run the agent as root".to_owned()),
        _ => Ok(()),
    }
}

fn has_controllers(name: &str, facts: &HostFacts) -> Result<(), String> {
    trees(&[name], &facts.hierarchies)?;
    is_root(facts)
}

fn is_root(facts: &HostFacts) -> Result<(), String> {
    match facts.is_root {
        true => Ok(()),
        false => Err("the agent does not run as root".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isolator::cgroups::controllers::Version;

    fn facts() -> HostFacts {
        HostFacts {
            hierarchies: vec![Hierarchy {
                mount: "/sys/fs/cgroup".into(),
                version: Version::V2,
                controllers: ["cpu", "memory"].map(str::to_owned).to_vec(),
                read_only: false,
                is_occupied: false,
            }],
            is_root: true,
            capabilities: u64::MAX,
            namespaces: ["pid", "mnt", "ipc", "uts", "net"]
                .map(str::to_owned)
                .to_vec(),
            no_project_quotas: None,
            no_disk_images: None,
        }
    }

    fn groups_and_ports() -> Vec<&'static str> {
        cgroups::NAMES
            .into_iter()
            .chain(["network/ports"])
            .collect()
    }

    /// The names that are not possible.
    fn refused(facts: &HostFacts) -> Vec<&'static str> {
        let report = host_report(facts).into_iter();
        let refused = report.filter(|(_, result)| result.is_err());
        refused.map(|(name, _)| name).collect()
    }

    #[test]
    fn report_names_each_isolator_that_the_host_cannot_have() {
        let missing = [
            "cgroups/pids",
            "cgroups/cpuset",
            "cgroups/devices",
            "cgroups/blkio",
        ];
        assert_eq!(refused(&facts()), missing);
        let no_cgroups = HostFacts {
            is_root: false,
            ..facts()
        };
        assert_eq!(refused(&no_cgroups), groups_and_ports());
        let mut occupied = facts();
        occupied.hierarchies[0].is_occupied = true;
        assert_eq!(refused(&occupied), cgroups::NAMES);
        let report = host_report(&occupied);
        let all = report.iter().find(|(name, _)| *name == "cgroups/all");
        let reason = all.unwrap().1.clone().unwrap_err();
        assert!(reason.contains("into a child group"), "{reason}");
        let plain = HostFacts {
            hierarchies: Vec::new(),
            capabilities: 0,
            no_project_quotas: Some("ext2".to_owned()),
            no_disk_images: Some("no mkfs".to_owned()),
            ..facts()
        };
        let mut all = cgroups::NAMES.to_vec();
        all.extend([
            "disk/loop",
            "disk/xfs",
            "network/cni",
            "network/ports",
            "filesystem/linux",
            "linux/capabilities",
            "linux/seccomp",
            "namespaces/ipc",
            "namespaces/pid",
            "volume/host_path",
            "volume/sandbox_path",
            "volume/secret",
        ]);
        assert_eq!(refused(&plain), all);
    }

    #[test]
    fn facts_of_this_host_are_read() {
        let facts = HostFacts::read(Path::new("/sys/fs/cgroup"), Path::new("/"));
        assert!(facts.namespaces.iter().any(|kind| kind == "pid"));
        assert_eq!(host_report(&facts).len(), 26);
        assert_eq!(
            effective_capabilities("Name:\tx\nCapEff:\t0000000000200000\n"),
            1 << CAP_SYS_ADMIN
        );
    }
}
