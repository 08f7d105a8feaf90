//! Settings of containers.

use protocol::task::container as to;
use resources::Invalid;

use crate::convert::task::network::{read_docker_port, read_network, write_docker_port};
use crate::convert::{At, each, need, refuse, write};
use crate::message::Enum;
use crate::schema::{
    CapabilityInfo, CapabilityInfoCapability, ContainerInfo, ContainerInfoDockerInfo,
    ContainerInfoDockerInfoNetwork, ContainerInfoMesosInfo, ContainerInfoType, Image, ImageDocker,
    ImageType, LinuxInfo, LinuxInfoIpcMode, Parameter, RLimitInfo, RLimitInfoRLimit,
    RLimitInfoRLimitType, SeccompInfo, Secret, SecretType, SecretValue, TTYInfo, Volume,
    VolumeMode, VolumeSource, VolumeSourceHostPath, VolumeSourceSandboxPath,
    VolumeSourceSandboxPathType, VolumeSourceTmpfs, VolumeSourceType,
};

impl TryFrom<&ContainerInfo> for to::ContainerInfo {
    type Error = Invalid;

    fn try_from(container: &ContainerInfo) -> Result<Self, Invalid> {
        let mut volumes = each("volumes", &container.volumes, read_volume)?;
        let (docker, image) = match container.r#type {
            ContainerInfoType::Docker => {
                let docker = container.docker.as_deref().ok_or_else(|| {
                    let missing = "DockerInfo 'docker' is not set for DOCKER typed ContainerInfo";
                    Invalid::message(missing)
                })?;
                let (options, image) = read_docker(docker).at("docker")?;
                volumes.extend(each("parameters", &docker.parameters, read_tmpfs).at("docker")?);
                (Some(options), Some(image))
            }
            ContainerInfoType::Mesos => {
                let image = container.mesos.as_ref().and_then(|one| one.image.as_ref());
                (None, image.map(read_image).transpose().at("mesos.image")?)
            }
        };
        let joins = docker
            .as_ref()
            .is_none_or(|docker| matches!(docker.network, to::DockerNetwork::User));
        let networks = each("network_infos", &container.network_infos, |network| {
            let name = network.name.as_deref().filter(|_| !joins);
            let expected = "none, since `docker.network` is not USER";
            refuse("name", name.is_some(), name.unwrap_or_default(), expected)?;
            read_network(network)
        })?;
        let rlimits = container.rlimit_info.as_ref();
        let rlimits = rlimits.map_or(&[][..], |info| &info.rlimits);
        let linux = container.linux_info.as_deref().map(read_linux);
        Ok(Self {
            docker,
            image,
            volumes,
            hostname: container.hostname.clone(),
            linux: linux.transpose().at("linux_info")?.unwrap_or_default(),
            rlimits: each("rlimits", rlimits, read_rlimit).at("rlimit_info")?,
            networks: networks.into_iter().flatten().collect(),
            // As in Mesos, the size of its window is set by those that attach.
            has_terminal: container.tty_info.is_some(),
        })
    }
}

impl From<&to::ContainerInfo> for ContainerInfo {
    fn from(container: &to::ContainerInfo) -> Self {
        let image = container.image.as_ref();
        // Clients of Docker's containers know memory volumes as parameters only.
        let is_docker = container.docker.is_some();
        let tmpfs = |volume: &&to::Volume| is_docker && write_tmpfs(volume).is_some();
        let volumes = container.volumes.iter();
        let docker = container.docker.as_ref().map(|options| {
            Box::new(ContainerInfoDockerInfo {
                image: image.map(|image| image.name.clone()).unwrap_or_default(),
                network: Some(match options.network {
                    to::DockerNetwork::Host => ContainerInfoDockerInfoNetwork::Host,
                    to::DockerNetwork::None => ContainerInfoDockerInfoNetwork::None,
                    to::DockerNetwork::Bridge => ContainerInfoDockerInfoNetwork::Bridge,
                    to::DockerNetwork::User => ContainerInfoDockerInfoNetwork::User,
                }),
                port_mappings: options
                    .port_mappings
                    .iter()
                    .map(write_docker_port)
                    .collect(),
                privileged: Some(options.is_privileged),
                parameters: volumes.clone().filter_map(write_tmpfs).collect(),
                force_pull_image: image.map(|image| !image.is_cached),
                ..ContainerInfoDockerInfo::default()
            })
        });
        let mesos = image.filter(|_| !is_docker);
        Self {
            r#type: match is_docker {
                true => ContainerInfoType::Docker,
                false => ContainerInfoType::Mesos,
            },
            volumes: volumes
                .filter(|volume| !tmpfs(volume))
                .map(write_volume)
                .collect(),
            docker,
            hostname: container.hostname.clone(),
            mesos: mesos.map(|image| ContainerInfoMesosInfo {
                image: Some(write_image(image)),
            }),
            tty_info: container.has_terminal.then(TTYInfo::default),
            network_infos: write(&container.networks),
            linux_info: write_linux(&container.linux).map(Box::new),
            rlimit_info: (!container.rlimits.is_empty()).then(|| RLimitInfo {
                rlimits: container.rlimits.iter().map(write_rlimit).collect(),
            }),
        }
    }
}

fn read_docker(
    docker: &ContainerInfoDockerInfo,
) -> Result<(to::DockerOptions, to::Image), Invalid> {
    if docker.parameters.iter().any(|one| one.key == "name") {
        return Err(Invalid::message(
            "Parameter in DockerInfo must not be 'name'",
        ));
    }
    let network = match docker
        .network
        .unwrap_or(ContainerInfoDockerInfoNetwork::Host)
    {
        ContainerInfoDockerInfoNetwork::Host => to::DockerNetwork::Host,
        ContainerInfoDockerInfoNetwork::None => to::DockerNetwork::None,
        ContainerInfoDockerInfoNetwork::Bridge => to::DockerNetwork::Bridge,
        ContainerInfoDockerInfoNetwork::User => to::DockerNetwork::User,
    };
    let options = to::DockerOptions {
        network,
        port_mappings: each("port_mappings", &docker.port_mappings, read_docker_port)?,
        is_privileged: docker.privileged.unwrap_or(false),
    };
    let image = to::Image {
        name: docker.image.clone(),
        is_cached: !docker.force_pull_image.unwrap_or(false),
    };
    Ok((options, image))
}

/// The only parameter of Docker: `tmpfs` with a path and options, such as `/run:size=64m,mode=755`.
fn read_tmpfs(parameter: &Parameter) -> Result<to::Volume, Invalid> {
    let no_docker = "tmpfs, since no Docker command is run";
    refuse("key", parameter.key != "tmpfs", &parameter.key, no_docker)?;
    let (path, options) = match parameter.value.split_once(':') {
        Some((path, options)) => (path, options),
        None => (parameter.value.as_str(), ""),
    };
    let mut volume = to::MemoryVolume {
        bytes: None,
        mode: to::MemoryVolume::MODE,
    };
    let mut is_read_only = false;
    let expected = "an absolute path, and after `:` options of `size=64m`, `mode=1777`, `rw`, `ro`, `noexec`, `nosuid`, `nodev`";
    let wrong = || Invalid::new("value", &parameter.value, expected);
    refuse("value", !path.starts_with('/'), &parameter.value, expected)?;
    for option in options.split(',').filter(|option| !option.is_empty()) {
        match option.split_once('=') {
            Some(("size", size)) => volume.bytes = Some(read_size(size).ok_or_else(wrong)?),
            Some(("mode", mode)) => volume.mode = read_mode(mode).ok_or_else(wrong)?,
            None if option == "ro" => is_read_only = true,
            // It always is.
            None if ["rw", "noexec", "nosuid", "nodev"].contains(&option) => {}
            _ => return Err(wrong()),
        }
    }
    Ok(to::Volume {
        container_path: path.to_owned(),
        is_read_only,
        source: to::VolumeSource::Memory(volume),
    })
}

/// The parameter from which [`read_tmpfs`] reads this volume; `None` if there is none.
fn write_tmpfs(volume: &to::Volume) -> Option<Parameter> {
    let path = &volume.container_path;
    let to::VolumeSource::Memory(memory) = &volume.source else {
        return None;
    };
    if !path.starts_with('/') || path.contains(':') {
        return None;
    }
    let access = if volume.is_read_only { "ro" } else { "rw" };
    let size = memory.bytes.map(|bytes| format!(",size={bytes}"));
    let size = size.unwrap_or_default();
    Some(Parameter {
        key: "tmpfs".into(),
        value: format!("{path}:{access}{size},mode={:o}", memory.mode),
    })
}

/// Bytes, with a unit of 1024, as the kernel reads them.
fn read_size(text: &str) -> Option<u64> {
    let lower = text.to_ascii_lowercase();
    let mut units = [('k', 10), ('m', 20), ('g', 30)].into_iter();
    let found = units.find_map(|(unit, shift)| Some((lower.strip_suffix(unit)?, shift)));
    let (digits, shift) = found.unwrap_or((&lower, 0));
    let size = digits.parse::<u64>().ok()?.checked_mul(1 << shift);
    size.filter(|&bytes| bytes > 0)
}

/// Permissions in octal digits.
fn read_mode(text: &str) -> Option<u32> {
    let mode = u32::from_str_radix(text, 8).ok();
    mode.filter(|&mode| mode <= to::MemoryVolume::MODE)
}

fn read_image(image: &Image) -> Result<to::Image, Invalid> {
    let docker = match (image.r#type, &image.docker) {
        (ImageType::Docker, Some(docker)) => docker,
        (ImageType::Docker, None) => {
            return Err(Invalid::new("docker", "not set", "the image's name"));
        }
        (other, _) => return Err(Invalid::new("type", other, "DOCKER")),
    };
    let has_config = docker.config.is_some() || docker.credential.is_some();
    let expected = "nothing, since only the agent's --docker_config has credentials";
    refuse("docker.config", has_config, "set", expected)?;
    Ok(to::Image {
        name: docker.name.clone(),
        is_cached: image.cached.unwrap_or(true),
    })
}

fn write_image(image: &to::Image) -> Image {
    Image {
        r#type: ImageType::Docker,
        docker: Some(Box::new(ImageDocker {
            name: image.name.clone(),
            ..ImageDocker::default()
        })),
        cached: Some(image.is_cached),
        ..Image::default()
    }
}

/// With the messages of Mesos for what no agent could mount.
fn read_volume(volume: &Volume) -> Result<to::Volume, Invalid> {
    let sources = [
        volume.host_path.is_some(),
        volume.image.is_some(),
        volume.source.is_some(),
    ];
    let invalid = |problem: &str| Err(Invalid::message(format!("Invalid volume: {problem}")));
    if sources.into_iter().filter(|&is_set| is_set).count() != 1 {
        return invalid("Only one of them should be set: 'host_path', 'image' and 'source'");
    }
    let source = match (&volume.host_path, &volume.source) {
        (Some(path), _) => to::VolumeSource::Path(path.clone()),
        (None, Some(source)) => match source.r#type {
            Some(VolumeSourceType::HostPath) => match &source.host_path {
                Some(host) => {
                    let given = host.mount_propagation.is_some();
                    let expected = "none, since mounts of a container stay in it";
                    refuse("source.host_path.mount_propagation", given, "set", expected)?;
                    to::VolumeSource::HostPath(host.path.clone())
                }
                None => return invalid("'source.host_path' is not set for HOST_PATH volume"),
            },
            Some(VolumeSourceType::SandboxPath) => match &source.sandbox_path {
                Some(sandbox) => match sandbox.r#type {
                    Some(VolumeSourceSandboxPathType::Itself) => {
                        to::VolumeSource::SandboxPath(sandbox.path.clone())
                    }
                    other => {
                        let other = other.map_or_else(|| "not set".into(), |one| one.to_string());
                        let field = "source.sandbox_path.type";
                        return Err(Invalid::new(field, other, "SELF"));
                    }
                },
                None => return invalid("'source.sandbox_path' is not set for SANDBOX_PATH volume"),
            },
            Some(VolumeSourceType::Secret) => match &source.secret {
                Some(secret) => to::VolumeSource::Secret(to::SecretData(read_secret(secret)?)),
                None => return invalid("'source.secret' is not set for SECRET volume"),
            },
            Some(VolumeSourceType::Tmpfs) => {
                let tmpfs = source.tmpfs.clone().unwrap_or_default();
                let mode = match &tmpfs.mode {
                    None => to::MemoryVolume::MODE,
                    Some(text) => read_mode(text).ok_or_else(|| {
                        let expected = "octal digits, at most 1777";
                        Invalid::new("source.tmpfs.mode", text, expected)
                    })?,
                };
                let is_none = tmpfs.size == Some(0);
                refuse("source.tmpfs.size", is_none, 0, "at least one byte")?;
                to::VolumeSource::Memory(to::MemoryVolume {
                    bytes: tmpfs.size,
                    mode,
                })
            }
            Some(VolumeSourceType::DockerVolume) if source.docker_volume.is_none() => {
                return invalid("'source.docker_volume' is not set for DOCKER_VOLUME volume");
            }
            Some(VolumeSourceType::CsiVolume) if source.csi_volume.is_none() => {
                return invalid("'source.csi_volume' is not set for CSI volume");
            }
            Some(other @ (VolumeSourceType::DockerVolume | VolumeSourceType::CsiVolume)) => {
                let expected = "HOST_PATH, SANDBOX_PATH, SECRET or TMPFS";
                return Err(Invalid::new("source.type", other, expected));
            }
            _ => return invalid("'source.type' is unknown"),
        },
        (None, None) => {
            let expected = "`host_path` or `source`, since images are no volumes yet";
            return Err(Invalid::new("image", "set", expected));
        }
    };
    Ok(to::Volume {
        container_path: volume.container_path.clone(),
        is_read_only: volume.mode == VolumeMode::Ro,
        source,
    })
}

fn read_secret(secret: &Secret) -> Result<Vec<u8>, Invalid> {
    let value = secret.value.as_ref().map(|value| value.data.to_vec());
    need(
        "source.secret.value",
        value.as_ref(),
        "the secret itself, since none is looked up",
    )
    .cloned()
}

fn write_volume(volume: &to::Volume) -> Volume {
    let mut written = Volume {
        container_path: volume.container_path.clone(),
        mode: match volume.is_read_only {
            true => VolumeMode::Ro,
            false => VolumeMode::Rw,
        },
        ..Volume::default()
    };
    let mut source = VolumeSource::default();
    match &volume.source {
        to::VolumeSource::Path(path) => {
            written.host_path = Some(path.clone());
            return written;
        }
        to::VolumeSource::HostPath(path) => {
            source.r#type = Some(VolumeSourceType::HostPath);
            source.host_path = Some(VolumeSourceHostPath {
                path: path.clone(),
                ..VolumeSourceHostPath::default()
            });
        }
        to::VolumeSource::SandboxPath(path) => {
            source.r#type = Some(VolumeSourceType::SandboxPath);
            source.sandbox_path = Some(VolumeSourceSandboxPath {
                r#type: Some(VolumeSourceSandboxPathType::Itself),
                path: path.clone(),
            });
        }
        to::VolumeSource::Secret(data) => {
            source.r#type = Some(VolumeSourceType::Secret);
            source.secret = Some(Box::new(Secret {
                r#type: Some(SecretType::Value),
                value: Some(SecretValue {
                    data: data.0.clone().into(),
                }),
                ..Secret::default()
            }));
        }
        to::VolumeSource::Memory(volume) => {
            source.r#type = Some(VolumeSourceType::Tmpfs);
            source.tmpfs = Some(VolumeSourceTmpfs {
                size: volume.bytes,
                mode: Some(format!("{:o}", volume.mode)),
            });
        }
    }
    written.source = Some(Box::new(source));
    written
}

fn read_linux(linux: &LinuxInfo) -> Result<to::LinuxInfo, Invalid> {
    if linux.capability_info.is_some() && linux.effective_capabilities.is_some() {
        let both = "Only one of 'capability_info' or 'effective_capabilities' is allowed";
        return Err(Invalid::message(both));
    }
    let effective = linux.capability_info.as_ref();
    let effective = effective.or(linux.effective_capabilities.as_ref());
    let seccomp = match &linux.seccomp {
        None => None,
        Some(seccomp) => match (&seccomp.profile_name, seccomp.unconfined.unwrap_or(false)) {
            (Some(name), false) => Some(to::Seccomp::Profile(name.clone())),
            (None, true) => Some(to::Seccomp::Unconfined),
            _ => {
                let expected = "either `profile_name` or `unconfined` as true";
                return Err(Invalid::new("seccomp", "both or neither", expected));
            }
        },
    };
    let ipc_mode = match linux.ipc_mode {
        None => None,
        Some(LinuxInfoIpcMode::Private) => Some(to::IpcMode::Private),
        Some(LinuxInfoIpcMode::ShareParent) => Some(to::IpcMode::ShareParent),
        Some(other) => return Err(Invalid::new("ipc_mode", other, "PRIVATE or SHARE_PARENT")),
    };
    let capabilities = |info: Option<&CapabilityInfo>, field: &str| {
        info.map(|info| each(field, &info.capabilities, read_capability))
            .transpose()
            .map(|all| all.map(|all| to::LinuxCapabilities(all.into_iter().fold(0, |a, b| a | b))))
    };
    Ok(to::LinuxInfo {
        effective: capabilities(effective, "effective_capabilities")?,
        bounding: capabilities(
            linux.bounding_capabilities.as_ref(),
            "bounding_capabilities",
        )?,
        shares_pid_namespace: linux.share_pid_namespace.unwrap_or(false),
        seccomp,
        ipc_mode,
        shm_size: linux.shm_size,
        shares_cgroups: linux.share_cgroups,
    })
}

/// The number of the first capability in Mesos; the kernel's is 0.
const FIRST_CAPABILITY: i32 = 1000;

fn read_capability(capability: &CapabilityInfoCapability) -> Result<u64, Invalid> {
    let number = *capability as i32 - FIRST_CAPABILITY;
    let bit = u32::try_from(number)
        .ok()
        .and_then(|number| 1_u64.checked_shl(number));
    bit.ok_or_else(|| Invalid::new("capabilities", capability, "the name of a capability"))
}

fn write_capabilities(capabilities: to::LinuxCapabilities) -> CapabilityInfo {
    let is_in = |one: &CapabilityInfoCapability| {
        read_capability(one).is_ok_and(|bit| capabilities.0 & bit != 0)
    };
    let all = CapabilityInfoCapability::VALUES.iter();
    CapabilityInfo {
        capabilities: all.map(|(one, ..)| *one).filter(is_in).collect(),
    }
}

/// `None` if nothing is set.
fn write_linux(linux: &to::LinuxInfo) -> Option<LinuxInfo> {
    let written = LinuxInfo {
        bounding_capabilities: linux.bounding.map(write_capabilities),
        effective_capabilities: linux.effective.map(write_capabilities),
        share_pid_namespace: linux.shares_pid_namespace.then_some(true),
        seccomp: linux.seccomp.as_ref().map(|seccomp| match seccomp {
            to::Seccomp::Profile(name) => SeccompInfo {
                profile_name: Some(name.clone()),
                ..SeccompInfo::default()
            },
            to::Seccomp::Unconfined => SeccompInfo {
                unconfined: Some(true),
                ..SeccompInfo::default()
            },
        }),
        ipc_mode: linux.ipc_mode.map(|mode| match mode {
            to::IpcMode::Private => LinuxInfoIpcMode::Private,
            to::IpcMode::ShareParent => LinuxInfoIpcMode::ShareParent,
        }),
        shm_size: linux.shm_size,
        share_cgroups: linux.shares_cgroups,
        ..LinuxInfo::default()
    };
    (written != LinuxInfo::default()).then_some(written)
}

/// The limits of processes with their names.
const RLIMITS: [(to::RLimitKind, RLimitInfoRLimitType); 16] = {
    use RLimitInfoRLimitType as V1;
    use to::RLimitKind as Kind;
    [
        (Kind::As, V1::RlmtAs),
        (Kind::Core, V1::RlmtCore),
        (Kind::Cpu, V1::RlmtCpu),
        (Kind::Data, V1::RlmtData),
        (Kind::Fsize, V1::RlmtFsize),
        (Kind::Locks, V1::RlmtLocks),
        (Kind::Memlock, V1::RlmtMemlock),
        (Kind::Msgqueue, V1::RlmtMsgqueue),
        (Kind::Nice, V1::RlmtNice),
        (Kind::Nofile, V1::RlmtNofile),
        (Kind::Nproc, V1::RlmtNproc),
        (Kind::Rss, V1::RlmtRss),
        (Kind::Rtprio, V1::RlmtRtprio),
        (Kind::Rttime, V1::RlmtRttime),
        (Kind::Sigpending, V1::RlmtSigpending),
        (Kind::Stack, V1::RlmtStack),
    ]
};

fn read_rlimit(limit: &RLimitInfoRLimit) -> Result<to::RLimit, Invalid> {
    let known = RLIMITS.iter().find(|(_, v1)| Some(*v1) == limit.r#type);
    let Some((kind, _)) = known else {
        let given = limit
            .r#type
            .map_or_else(|| "not set".to_owned(), |one| one.to_string());
        return Err(Invalid::new("type", given, "RLMT_NOFILE or another limit"));
    };
    let limits = match (limit.soft, limit.hard) {
        (Some(soft), Some(hard)) if soft <= hard => Some(to::SoftHard { soft, hard }),
        (Some(soft), Some(hard)) => {
            return Err(Invalid::new(
                "soft",
                soft,
                format!("at most {hard}, as `hard`"),
            ));
        }
        (None, None) => None,
        _ => {
            let expected = "both or neither of `soft` and `hard`";
            return Err(Invalid::new("hard", "only one of two", expected));
        }
    };
    Ok(to::RLimit {
        kind: *kind,
        limits,
    })
}

fn write_rlimit(limit: &to::RLimit) -> RLimitInfoRLimit {
    let known = RLIMITS.iter().find(|(kind, _)| *kind == limit.kind);
    RLimitInfoRLimit {
        r#type: known.map(|(_, v1)| *v1),
        hard: limit.limits.map(|limits| limits.hard),
        soft: limit.limits.map(|limits| limits.soft),
    }
}
