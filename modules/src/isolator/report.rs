//! Which isolators this host can run, and why not the others.

use std::path::{Path, PathBuf};

use super::cgroups::controllers::Version;
use super::cgroups::groups::hierarchies;
use super::cgroups::hierarchy::{Hierarchy, choose, wanted};
use super::{cgroups, constant};

/// Bit of the capability to make namespaces and mounts.
const CAP_SYS_ADMIN: u32 = 21;

/// What is known of a host.
#[derive(Clone, Debug, Default)]
pub struct HostFacts {
    /// Its hierarchies of control groups.
    pub hierarchies: Vec<Hierarchy>,
    /// Unified trees that are the root of a container, with processes in it: no controller can be
    /// enabled there.
    pub occupied: Vec<PathBuf>,
    /// Whether the agent runs as root.
    pub is_root: bool,
    /// The effective capabilities, as bits.
    pub capabilities: u64,
    /// The kinds of namespaces that the kernel has.
    pub namespaces: Vec<String>,
}

impl HostFacts {
    /// Reads the facts of this host, with control groups mounted at or below `hierarchy`. Those
    /// that cannot be read are missing.
    pub fn read(hierarchy: &Path) -> Self {
        let text = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
        let hierarchies = hierarchies(hierarchy).unwrap_or_default();
        // Only the root of the whole tree has no type.
        let is_occupied = |mount: &&PathBuf| {
            mount.join("cgroup.type").exists() && !text(&mount.join("cgroup.procs")).is_empty()
        };
        let v2 = hierarchies.iter().filter(|one| one.version == Version::V2);
        let occupied = v2.map(|one| &one.mount).filter(is_occupied).cloned();
        let kinds = std::fs::read_dir("/proc/self/ns").into_iter().flatten();
        let kinds = kinds.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        Self {
            occupied: occupied.collect(),
            is_root: nix::unistd::geteuid().is_root(),
            capabilities: effective_capabilities(&text(Path::new("/proc/self/status"))),
            namespaces: kinds.collect(),
            hierarchies,
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
    let names = cgroups::NAMES.into_iter().chain(constant::NAMES);
    names.map(|name| (name, is_possible(name, facts))).collect()
}

fn is_possible(name: &str, facts: &HostFacts) -> Result<(), String> {
    match name {
        "namespaces/pid" => has_namespaces(&["pid", "mnt"], facts),
        "namespaces/ipc" => has_namespaces(&["ipc"], facts),
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
        0 => Err("the agent has not the capability CAP_SYS_ADMIN: run it as root".to_owned()),
        _ => Ok(()),
    }
}

fn has_controllers(name: &str, facts: &HostFacts) -> Result<(), String> {
    let trees = choose(&wanted(&[name], &facts.hierarchies)?, &facts.hierarchies)?;
    if !facts.is_root {
        return Err("the agent does not run as root".to_owned());
    }
    let mut used = trees.iter().filter(|tree| !tree.controllers.is_empty());
    match used.find(|tree| facts.occupied.contains(&tree.mount)) {
        Some(tree) => Err(format!(
            "processes are in the group {}, where controllers must be enabled: move them, the \
             agent perhaps, into a child group",
            tree.mount.display()
        )),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> HostFacts {
        HostFacts {
            hierarchies: vec![Hierarchy {
                mount: "/sys/fs/cgroup".into(),
                version: Version::V2,
                controllers: ["cpu", "memory"].map(str::to_owned).to_vec(),
                read_only: false,
            }],
            occupied: Vec::new(),
            is_root: true,
            capabilities: u64::MAX,
            namespaces: ["pid", "mnt", "ipc"].map(str::to_owned).to_vec(),
        }
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
        assert_eq!(refused(&no_cgroups), cgroups::NAMES);
        let occupied = HostFacts {
            occupied: vec!["/sys/fs/cgroup".into()],
            ..facts()
        };
        assert_eq!(refused(&occupied), cgroups::NAMES);
        let plain = HostFacts {
            hierarchies: Vec::new(),
            capabilities: 0,
            ..facts()
        };
        let mut all = cgroups::NAMES.to_vec();
        all.extend(["namespaces/pid", "namespaces/ipc"]);
        assert_eq!(refused(&plain), all);
    }

    #[test]
    fn facts_of_this_host_are_read() {
        let facts = HostFacts::read(Path::new("/sys/fs/cgroup"));
        assert!(facts.namespaces.iter().any(|kind| kind == "pid"));
        assert_eq!(host_report(&facts).len(), 13);
        assert_eq!(
            effective_capabilities("Name:\tx\nCapEff:\t0000000000200000\n"),
            1 << CAP_SYS_ADMIN
        );
    }
}
