//! Settings of a container that its launch would not fulfil. Pure.

use module_api::isolator::LaunchPlan;
use protocol::task::container::{ContainerInfo, DockerNetwork, IpcMode, Seccomp, VolumeSource};

/// The first setting that the isolators of this agent have not planned, with what it needs.
pub(in crate::container) fn unmet(container: &ContainerInfo, plan: &LaunchPlan) -> Option<String> {
    let ContainerInfo {
        docker,
        image,
        volumes,
        hostname,
        linux,
        rlimits,
        networks: _,
        has_terminal: _,
    } = container;
    let needs = |setting: &str, isolator: &str| {
        Some(format!(
            "container.{setting} is set: expected an agent with `{isolator}` in --isolation"
        ))
    };
    if let Some(docker) = docker {
        if docker.is_privileged && !plan.is_privileged {
            let problem = "container.docker.privileged is set: expected false, or an agent with `filesystem/linux` in --isolation and --allow_privileged";
            return Some(problem.to_owned());
        }
        let is_mapped = matches!(docker.network, DockerNetwork::Bridge | DockerNetwork::User);
        if !docker.port_mappings.is_empty() && !is_mapped {
            let problem = "Port mappings are only supported for bridge and user-defined networks";
            return Some(problem.to_owned());
        }
    }
    if container.has_own_network() && plan.network.is_none() {
        return match docker {
            Some(_) => needs("docker.network", "network/cni"),
            None => needs("network_infos", "network/cni"),
        };
    }
    if image.is_some() && plan.root.is_none() {
        return needs("image", "filesystem/linux");
    }
    if volumes.len() != plan.mounts.len() {
        let is_secret = |source: &VolumeSource| matches!(source, VolumeSource::Secret(_));
        let has_secret = volumes.iter().any(|volume| is_secret(&volume.source));
        return match has_secret {
            true => needs("volumes", "filesystem/linux,volume/secret"),
            false => needs("volumes", "filesystem/linux"),
        };
    }
    if hostname.is_some() && plan.hostname.is_none() {
        return needs("hostname", "filesystem/linux");
    }
    if rlimits.len() != plan.rlimits.len() {
        return needs("rlimit_info", "posix/rlimits");
    }
    let has_capabilities = linux.effective.is_some() || linux.bounding.is_some();
    if has_capabilities && plan.capabilities.is_none() {
        return needs("linux_info.effective_capabilities", "linux/capabilities");
    }
    if linux.ipc_mode == Some(IpcMode::Private) && !plan.namespaces.ipc {
        return needs("linux_info.ipc_mode", "namespaces/ipc");
    }
    if linux.shm_size.is_some() && plan.shm_bytes.is_none() {
        return needs("linux_info.shm_size", "namespaces/ipc");
    }
    let has_profile = matches!(linux.seccomp, Some(Seccomp::Profile(_)));
    if has_profile && plan.seccomp.is_empty() {
        return needs("linux_info.seccomp", "linux/seccomp");
    }
    None
}

#[cfg(test)]
mod tests {
    use module_api::isolator::{Mount, MountSource};
    use protocol::task::container::{
        Image, LinuxCapabilities, LinuxInfo, RLimit, RLimitKind, SecretData, Volume,
    };

    use super::*;

    fn volume(source: VolumeSource) -> Vec<Volume> {
        vec![Volume {
            container_path: "data".into(),
            is_read_only: false,
            source,
        }]
    }

    #[test]
    fn each_setting_needs_its_isolator() {
        let linux = |linux: LinuxInfo| ContainerInfo {
            linux,
            ..ContainerInfo::default()
        };
        let default = ContainerInfo::default;
        for (container, isolator) in [
            (
                ContainerInfo {
                    image: Some(Image {
                        name: "busybox".into(),
                        is_cached: true,
                    }),
                    ..default()
                },
                "filesystem/linux",
            ),
            (
                ContainerInfo {
                    volumes: volume(VolumeSource::Path("/srv".into())),
                    ..default()
                },
                "filesystem/linux",
            ),
            (
                ContainerInfo {
                    volumes: volume(VolumeSource::Secret(SecretData::default())),
                    ..default()
                },
                "volume/secret",
            ),
            (
                ContainerInfo {
                    hostname: Some("box".into()),
                    ..default()
                },
                "filesystem/linux",
            ),
            (
                ContainerInfo {
                    rlimits: vec![RLimit {
                        kind: RLimitKind::Core,
                        limits: None,
                    }],
                    ..default()
                },
                "posix/rlimits",
            ),
            (
                linux(LinuxInfo {
                    effective: Some(LinuxCapabilities(1)),
                    ..LinuxInfo::default()
                }),
                "linux/capabilities",
            ),
            (
                linux(LinuxInfo {
                    ipc_mode: Some(IpcMode::Private),
                    ..LinuxInfo::default()
                }),
                "namespaces/ipc",
            ),
            (
                linux(LinuxInfo {
                    seccomp: Some(Seccomp::Profile("default.json".into())),
                    ..LinuxInfo::default()
                }),
                "linux/seccomp",
            ),
        ] {
            let unmet = unmet(&container, &LaunchPlan::default());
            let reason = unmet.unwrap_or_default();
            assert!(reason.contains(isolator), "{container:?}: {reason}");
        }
    }

    #[test]
    fn planned_settings_are_met() {
        let container = ContainerInfo {
            volumes: volume(VolumeSource::Path("/srv".into())),
            linux: LinuxInfo {
                seccomp: Some(Seccomp::Unconfined),
                ipc_mode: Some(IpcMode::ShareParent),
                ..LinuxInfo::default()
            },
            ..ContainerInfo::default()
        };
        let plan = LaunchPlan {
            mounts: vec![Mount {
                source: MountSource::Host("/srv".into()),
                target: "data".into(),
                is_read_only: false,
            }],
            ..LaunchPlan::default()
        };
        assert_eq!(unmet(&container, &plan), None);
        let none = ContainerInfo::default();
        assert_eq!(unmet(&none, &LaunchPlan::default()), None);
    }
}
