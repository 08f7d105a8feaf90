//! Controllers: the kernel's parts that limit and account for one kind of resource of a group.
//!
//! Each file turns resources into the contents of control files, and control files into
//! statistics, for cgroup v1 and v2. Nothing here touches a file.
//!
//! | module | contents |
//! |---|---|
//! | `blkio` | input and output on block devices, and a weight |
//! | `cpu` | shares or weight, CFS quota, CPU time |
//! | `devices` | the devices that a container may use |
//! | `mem` | soft and hard limit of memory, and the message of an exceeded one |
//! | `pids` | limit and number of processes and threads |
//! | `pressure` | waiting for CPUs, memory, input and output |

pub mod blkio;
pub mod cpu;
pub mod devices;
pub mod mem;
pub mod pids;
pub mod pressure;

use module_api::isolator::ContainerResources;

use super::options::Options;
use mem::MemoryNow;

/// The version of a hierarchy's interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// A hierarchy for each controller, or for some together.
    V1,
    /// The unified tree.
    V2,
}

/// A controller that isolators use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Controller {
    /// CPU shares and quota.
    Cpu,
    /// CPU time; a part of `Cpu` in v2.
    Cpuacct,
    /// Memory.
    Memory,
    /// Number of threads.
    Pids,
    /// Assignment of CPUs and memory nodes: every container has all of them.
    Cpuset,
    /// Access to devices; in v2 by a program of ours.
    Devices,
    /// Block devices: accounting by the kernel, and a weight for throttled containers.
    Blkio,
}

impl Controller {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Cpu,
        Self::Cpuacct,
        Self::Memory,
        Self::Pids,
        Self::Cpuset,
        Self::Devices,
        Self::Blkio,
    ];

    /// The kernel's name, except for `devices` in v2.
    pub fn name(self, version: Version) -> &'static str {
        match (self, version) {
            (Self::Cpu, _) | (Self::Cpuacct, Version::V2) => "cpu",
            (Self::Cpuacct, Version::V1) => "cpuacct",
            (Self::Memory, _) => "memory",
            (Self::Pids, _) => "pids",
            (Self::Cpuset, _) => "cpuset",
            (Self::Devices, _) => "devices",
            (Self::Blkio, Version::V1) => "blkio",
            (Self::Blkio, Version::V2) => "io",
        }
    }

    /// The controllers of one name of `--isolation`; empty for an unknown name and `cgroups/all`.
    pub fn of_isolation(name: &str) -> &'static [Self] {
        match name {
            "cgroups/cpu" => &[Self::Cpu, Self::Cpuacct],
            "cgroups/mem" => &[Self::Memory],
            "cgroups/pids" => &[Self::Pids],
            "cgroups/cpuset" => &[Self::Cpuset],
            "cgroups/devices" => &[Self::Devices],
            "cgroups/blkio" => &[Self::Blkio],
            _ => &[],
        }
    }
}

/// The new content of a control file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Name of the file in the group's directory.
    pub file: &'static str,
    /// Its content.
    pub value: String,
    /// Whether a missing file is fine: without it the kernel acts as with this content.
    pub is_optional: bool,
}

impl Setting {
    pub(super) fn new(file: &'static str, value: impl ToString) -> Self {
        let value = value.to_string();
        Self {
            file,
            value,
            is_optional: false,
        }
    }

    fn optional(self) -> Self {
        Self {
            is_optional: true,
            ..self
        }
    }
}

/// The files to write, in this order, so that a group has the limits of `resources`.
pub fn settings(
    controller: Controller,
    version: Version,
    resources: &ContainerResources,
    options: &Options,
    memory: impl FnOnce() -> MemoryNow,
) -> Vec<Setting> {
    match controller {
        Controller::Cpu => cpu::settings(version, resources, options),
        Controller::Memory => mem::settings(version, resources, options, memory()),
        Controller::Pids => pids::settings(options),
        Controller::Blkio => blkio::settings(version, resources),
        Controller::Cpuacct | Controller::Cpuset | Controller::Devices => Vec::new(),
    }
}

/// The number after `key` in a file of lines `key number`.
pub fn value_of(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let value = line.strip_prefix(key)?.strip_prefix(' ')?;
        value.trim().parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_of_needs_the_whole_key() {
        let text = "total_rss_huge 5\ntotal_rss 7\n";
        assert_eq!(value_of(text, "total_rss"), Some(7));
        assert_eq!(value_of(text, "rss"), None);
    }

    #[test]
    fn names_differ_by_version() {
        assert_eq!(Controller::Cpuacct.name(Version::V2), "cpu");
        assert_eq!(Controller::Blkio.name(Version::V2), "io");
        assert_eq!(
            Controller::of_isolation("cgroups/cpu"),
            [Controller::Cpu, Controller::Cpuacct]
        );
    }
}
