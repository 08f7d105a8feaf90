//! Isolators: limit the resources that containers use, and separate them from the host.
//!
//! Each decision is a plain function; the actors around them write files or send the plan.
//!
//! | module | names in `--isolation` | effect |
//! |---|---|---|
//! | `cgroups` | `cgroups/cpu` | shares by the request, CFS quota by the limit, CPU time |
//! | | `cgroups/mem` | soft limit by the request, hard limit, statistics, exceeded limits |
//! | | `cgroups/pids` | limits and counts processes and threads |
//! | | `cgroups/cpuset` | a group of its own, with the CPUs and memory nodes of the agent's |
//! | | `cgroups/blkio` | counts input and output on block devices |
//! | | `cgroups/devices` | only common devices can be used |
//! | | `cgroups/all` | all of these that the host has |
//! | `disk` | `disk/du` | measures sandboxes, and ends containers beyond their disk quota |
//! | `disk::image` | `disk/loop` | bounds sandboxes by file systems of their own |
//! | `disk::xfs` | `disk/xfs` | bounds sandboxes and volumes by project quotas |
//! | `network` | `network/cni` | networks of their own, by plugins |
//! | | `network/ports` | ends containers that listen on ports which they do not have |
//! | `planned` | `filesystem/linux` | a root file system from an image, volumes |
//! | | `volume/host_path`, `volume/sandbox_path`, `volume/secret` | sources of volumes |
//! | | `namespaces/pid`, `namespaces/ipc` | namespaces of its own |
//! | | `linux/capabilities`, `linux/nnp`, `linux/seccomp` | rights of its processes |
//! | | `posix/rlimits` | limits of each process |
//! | | `posix/cpu`, `posix/mem`, `filesystem/posix` | none |
//! | `report` | | which of them a host can have |

pub mod cgroups;
pub mod disk;
pub mod network;
mod planned;
pub mod report;

use module_api::Registry;

/// Adds all isolators.
pub fn register(registry: &mut Registry) {
    registry.add_isolator(&cgroups::NAMES, cgroups::start);
    registry.add_isolator(&disk::NAMES, disk::start);
    registry.add_isolator(&disk::image::NAMES, disk::image::start);
    registry.add_isolator(&disk::xfs::NAMES, disk::xfs::start);
    registry.add_isolator(&network::cni::NAMES, network::cni::start);
    registry.add_isolator(&network::ports::NAMES, network::ports::start);
    registry.add_isolator(&planned::NAMES, planned::start);
}
