//! Isolators that only plan: what they do happens at the launch of a container, and ends with it.

mod capabilities;
mod seccomp;
mod volumes;

use module_api::isolator::{
    CapabilitySets, CleanUpContainer, ContainerConfig, ContainerResources, LaunchPlan, Limitation,
    MeasureContainers, Measured, Namespaces, PrepareContainer, RecoverContainers, UpdateContainer,
};
use module_api::{Fault, IsolatorRef, ModuleError, ModuleKind, Parameters};
use protocol::task::container::{ContainerInfo, IpcMode};
use runtime::prelude::*;

use capabilities::AllowedCapabilities;
use seccomp::Profiles;
use volumes::Kinds;

/// Their names in `--isolation`.
pub const NAMES: [&str; 13] = [
    "filesystem/linux",
    "filesystem/posix",
    "linux/capabilities",
    "linux/nnp",
    "linux/seccomp",
    "namespaces/ipc",
    "namespaces/pid",
    "posix/cpu",
    "posix/mem",
    "posix/rlimits",
    "volume/host_path",
    "volume/sandbox_path",
    "volume/secret",
];

/// The variable that names the sandbox as the container sees it.
const SANDBOX: &str = "MESOS_SANDBOX";
/// Bytes of a mebibyte, the unit of `shm_size`.
const MEBIBYTE: u64 = 1 << 20;

/// The chosen isolators, with their options.
#[derive(Clone, Debug, Default)]
struct Chosen {
    names: Vec<String>,
    capabilities: AllowedCapabilities,
    profiles: Profiles,
    /// Whether containers of type `DOCKER` may be privileged.
    allows_privileges: bool,
}

impl Chosen {
    fn new(names: &[&str], given: &Parameters) -> Result<Self, ModuleError> {
        let chosen = Self {
            names: names.iter().map(|&name| name.to_owned()).collect(),
            capabilities: AllowedCapabilities::from_parameters(given)?,
            profiles: Profiles::from_parameters(given)?,
            allows_privileges: given
                .optional("allow_privileged", "true or false", |text| {
                    text.parse().ok()
                })?
                .unwrap_or(false),
        };
        let volume = names.iter().find(|name| name.starts_with("volume/"));
        match volume.filter(|_| !chosen.has("filesystem/linux")) {
            None => Ok(chosen),
            Some(name) => {
                let problem = format!("`{name}` needs `filesystem/linux` beside it");
                Err(ModuleError::Fault {
                    kind: ModuleKind::Isolator,
                    fault: Fault::failed(problem),
                })
            }
        }
    }

    fn has(&self, name: &str) -> bool {
        self.names.iter().any(|own| own == name)
    }

    /// The plan of a container. `posix/cpu` and `posix/mem` add nothing: the agent measures every
    /// container by `/proc`. Nor does `filesystem/posix`, which is how containers are without a
    /// mount namespace.
    fn plan(&self, config: &ContainerConfig) -> Result<LaunchPlan, Fault> {
        let default = ContainerInfo::default();
        let container = config.container.as_deref().unwrap_or(&default);
        let linux = &container.linux;
        let mut plan = LaunchPlan::default();
        if self.has("filesystem/linux") {
            plan.namespaces.mount = true;
            plan.root = config.root.clone();
            plan.is_privileged = self.allows_privileges && config.wants_privileges();
            if let Some(root) = &config.root {
                let sandbox = root.sandbox.display().to_string();
                plan.environment.insert(SANDBOX.to_owned(), sandbox);
            }
            let kinds = Kinds {
                // Mesos adds these two to `filesystem/linux` by itself.
                host_path: true,
                sandbox_path: true,
                secret: self.has("volume/secret"),
            };
            let memory = memory_bytes(&config.resources);
            plan.mounts = volumes::mounts(&container.volumes, kinds, memory)?;
            plan.hostname = container.hostname.clone();
            plan.namespaces.uts = plan.hostname.is_some();
        }
        // As Docker: its root is not that of the host.
        let is_docker = plan.root.is_some() && container.docker.is_some();
        let has_own_pids = self.has("namespaces/pid") && !linux.shares_pid_namespace;
        let is_shared = linux.ipc_mode == Some(IpcMode::ShareParent);
        let has_own_ipc = self.has("namespaces/ipc") && !is_shared;
        if is_docker || has_own_pids {
            plan.namespaces = Namespaces {
                pid: true,
                mount: true,
                ..plan.namespaces
            };
        }
        if is_docker || has_own_ipc {
            plan.namespaces.ipc = true;
            plan.shm_bytes = linux.shm_size.map(|size| u64::from(size) * MEBIBYTE);
        } else if linux.shm_size.is_some() {
            let problem = "`linux_info.shm_size` needs a private IPC namespace: `namespaces/ipc` in --isolation, and no `ipc_mode` SHARE_PARENT";
            return Err(Fault::failed(problem));
        }
        if self.has("linux/capabilities") {
            plan.capabilities = self.capabilities.of(linux, plan.is_privileged)?;
        }
        let names_none = linux.effective.is_none() && linux.bounding.is_none();
        let is_bounded = names_none && plan.root.is_some() && !plan.is_privileged;
        if plan.capabilities.is_none() && is_bounded {
            let bounding = capabilities::of_images();
            plan.capabilities = Some(CapabilitySets {
                effective: None,
                bounding,
            });
        }
        // As with Docker, unless the container names a profile.
        if self.has("linux/seccomp") && !(plan.is_privileged && linux.seccomp.is_none()) {
            let sets = plan.capabilities;
            let may_have = sets.map(|sets| sets.effective.unwrap_or(sets.bounding));
            plan.seccomp = self.profiles.of(linux, may_have)?;
        }
        if self.has("posix/rlimits") {
            plan.rlimits = container.rlimits.clone();
        }
        plan.no_new_privileges = self.has("linux/nnp");
        Ok(plan)
    }
}

/// The memory that a container may use; `None` without a bound.
fn memory_bytes(resources: &ContainerResources) -> Option<u64> {
    let megabytes = match resources.mem_limit {
        Some(limit) => limit.value(),
        None => resources.requests.mem().as_f64(),
    };
    let is_bound = megabytes.is_finite() && megabytes > 0.0;
    is_bound.then_some((megabytes * MEBIBYTE as f64) as u64)
}

/// Starts one isolator for all of these names.
pub fn start(node: &Node, names: &[&str], given: &Parameters) -> Result<IsolatorRef, ModuleError> {
    let chosen = Chosen::new(names, given)?;
    let make = move || Planned(chosen.clone());
    let actor = crate::supervise(node, ModuleKind::Isolator, "planned_isolator", make)?;
    Ok(IsolatorRef::new(actor))
}

/// The actor.
struct Planned(Chosen);

impl Actor for Planned {
    type Context = Context<Self>;
}

impl Process for Planned {
    fn accepts(handlers: &mut RemoteHandlers<Self>) {
        handlers.accept::<RecoverContainers>(&[Role::Agent]);
        handlers.accept::<PrepareContainer>(&[Role::Agent]);
        handlers.accept::<UpdateContainer>(&[Role::Agent]);
        handlers.accept::<MeasureContainers>(&[Role::Agent]);
        handlers.accept::<CleanUpContainer>(&[Role::Agent]);
    }
}

impl Handler<RecoverContainers> for Planned {
    type Result = Result<(), Fault>;
    fn handle(&mut self, _: RecoverContainers, _: &mut Context<Self>) -> Self::Result {
        Ok(())
    }
}

impl Handler<PrepareContainer> for Planned {
    type Result = Result<LaunchPlan, Fault>;
    fn handle(&mut self, prepare: PrepareContainer, _: &mut Context<Self>) -> Self::Result {
        self.0.plan(&prepare.config)
    }
}

impl Handler<UpdateContainer> for Planned {
    type Result = Result<(), Fault>;
    fn handle(&mut self, _: UpdateContainer, _: &mut Context<Self>) -> Self::Result {
        Ok(())
    }
}

impl Handler<MeasureContainers> for Planned {
    type Result = Result<Measured, Fault>;
    fn handle(&mut self, _: MeasureContainers, _: &mut Context<Self>) -> Self::Result {
        Ok(Measured::new())
    }
}

impl Handler<CleanUpContainer> for Planned {
    type Result = Result<Option<Limitation>, Fault>;
    fn handle(&mut self, _: CleanUpContainer, _: &mut Context<Self>) -> Self::Result {
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use module_api::isolator::{MountSource, RootFilesystem};
    use protocol::ContainerId;
    use protocol::task::container::{
        DockerOptions, LinuxCapabilities, LinuxInfo, RLimit, RLimitKind, Volume, VolumeSource,
    };
    use runtime::testing::simulate;

    use super::*;

    fn config(container: Option<ContainerInfo>) -> ContainerConfig {
        ContainerConfig {
            container_id: ContainerId::new("c").unwrap(),
            sandbox: "/s".into(),
            user: None,
            shares_limits: false,
            is_command: true,
            resources: ContainerResources::default(),
            container: container.map(Box::new),
            root: None,
        }
    }

    fn plan(names: &[&str], container: ContainerInfo) -> Result<LaunchPlan, String> {
        let chosen = Chosen::new(names, &Parameters::none("isolators")).unwrap();
        let plan = chosen.plan(&config(Some(container)));
        plan.map_err(|fault| fault.to_string())
    }

    #[test]
    fn plans_of_several_names_are_one() {
        simulate(|node| async move {
            let names = ["namespaces/pid", "linux/nnp", "posix/cpu"];
            let registry = crate::registry();
            let none = Parameters::none("isolators");
            let started = registry.isolators(&node, &names, &none).unwrap();
            assert_eq!(started.len(), 1, "one actor");
            let plan = started[0].prepare(config(None)).await.unwrap();
            assert!(plan.namespaces.pid && !plan.namespaces.ipc && plan.no_new_privileges);
            let id = ContainerId::new("c").unwrap();
            assert_eq!(started[0].clean_up(id).await, Ok(None));
            let error = registry.isolators(&node, &["network/host"], &none);
            let error = error.unwrap_err().to_string();
            assert!(error.contains("there is no isolator called"), "{error}");
            let error = registry.isolators(&node, &["volume/secret"], &none);
            let error = error.unwrap_err().to_string();
            assert!(error.contains("needs `filesystem/linux`"), "{error}");
        });
    }

    #[test]
    fn container_chooses_its_namespaces() {
        let both = ["namespaces/pid", "namespaces/ipc"];
        let shared = ContainerInfo {
            linux: LinuxInfo {
                shares_pid_namespace: true,
                ipc_mode: Some(IpcMode::ShareParent),
                ..LinuxInfo::default()
            },
            ..ContainerInfo::default()
        };
        let planned = plan(&both, shared).unwrap();
        assert_eq!(planned.namespaces, Namespaces::default());
        let sized = ContainerInfo {
            linux: LinuxInfo {
                shm_size: Some(64),
                ..LinuxInfo::default()
            },
            ..ContainerInfo::default()
        };
        let planned = plan(&both, sized.clone()).unwrap();
        assert_eq!(planned.shm_bytes, Some(64 << 20));
        let refused = plan(&["namespaces/pid"], sized).unwrap_err();
        assert!(refused.contains("linux_info.shm_size"), "{refused}");
    }

    #[test]
    fn docker_container_is_apart_from_the_hosts_processes() {
        let names = ["filesystem/linux"];
        let chosen = Chosen::new(&names, &Parameters::none("isolators")).unwrap();
        let container = |docker| ContainerInfo {
            docker,
            linux: LinuxInfo {
                shm_size: Some(8),
                ..LinuxInfo::default()
            },
            ..ContainerInfo::default()
        };
        let of = |docker| {
            let root = RootFilesystem {
                image: "/images/1".into(),
                scratch: "/scratch/c".into(),
                sandbox: "/mnt/mesos/sandbox".into(),
            };
            chosen.plan(&ContainerConfig {
                root: Some(root),
                ..config(Some(container(docker)))
            })
        };
        let plan = of(Some(DockerOptions::default())).unwrap();
        assert!(plan.namespaces.pid && plan.namespaces.ipc && plan.namespaces.mount);
        assert_eq!(plan.shm_bytes, Some(8 << 20));
        let bounding = plan.capabilities.unwrap().bounding;
        let devices = LinuxCapabilities::from_names(["MKNOD"]).unwrap();
        assert!(!devices.is_subset(bounding));
        assert!(
            of(None).is_err(),
            "no isolator gives it shared memory of its own"
        );
    }

    #[test]
    fn privileges_need_the_operators_consent() {
        let names = ["filesystem/linux", "linux/capabilities"];
        let docker = DockerOptions {
            is_privileged: true,
            ..DockerOptions::default()
        };
        let config = ContainerConfig {
            root: Some(RootFilesystem {
                image: "/images/1".into(),
                scratch: "/scratch/c".into(),
                sandbox: "/mnt/mesos/sandbox".into(),
            }),
            ..config(Some(ContainerInfo {
                docker: Some(docker),
                ..ContainerInfo::default()
            }))
        };
        let few = r#"{"capabilities": ["NET_RAW"]}"#;
        let plan = |flags: &[(&str, &str)]| {
            let mut given = Parameters::none("isolators");
            for (flag, value) in flags {
                given = given.with(*flag, *value);
            }
            let chosen = Chosen::new(&names, &given).unwrap();
            chosen.plan(&config).unwrap()
        };
        let refused = plan(&[]);
        assert!(!refused.is_privileged && refused.capabilities.is_some());
        let consent = ("allow_privileged", "true");
        let allowed = plan(&[consent, ("effective_capabilities", few)]);
        assert!(allowed.is_privileged && allowed.capabilities.is_none());
        let bounded = plan(&[consent, ("bounding_capabilities", few)]);
        let bounding = LinuxCapabilities::from_names(["NET_RAW"]).unwrap();
        let sets = CapabilitySets {
            effective: None,
            bounding,
        };
        assert_eq!(bounded.capabilities, Some(sets));
    }

    #[test]
    fn mounts_limits_and_root_come_from_the_container() {
        let limit = RLimit {
            kind: RLimitKind::Nofile,
            limits: None,
        };
        let container = ContainerInfo {
            volumes: vec![Volume {
                container_path: "data".into(),
                is_read_only: true,
                source: VolumeSource::HostPath("/srv".into()),
            }],
            hostname: Some("box".into()),
            rlimits: vec![limit],
            ..ContainerInfo::default()
        };
        let names = ["filesystem/linux", "posix/rlimits"];
        let chosen = Chosen::new(&names, &Parameters::none("isolators")).unwrap();
        let root = RootFilesystem {
            image: "/images/1".into(),
            scratch: "/scratch/c".into(),
            sandbox: "/mnt/mesos/sandbox".into(),
        };
        let plan = chosen.plan(&ContainerConfig {
            root: Some(root.clone()),
            ..config(Some(container.clone()))
        });
        let plan = plan.unwrap();
        assert_eq!(plan.root, Some(root));
        assert_eq!(plan.environment["MESOS_SANDBOX"], "/mnt/mesos/sandbox");
        assert!(plan.namespaces.mount && plan.namespaces.uts && !plan.namespaces.pid);
        assert_eq!(plan.mounts[0].source, MountSource::Host("/srv".into()));
        assert_eq!(plan.mounts[0].target, Path::new("data"));
        assert!(plan.mounts[0].is_read_only);
        assert_eq!(plan.rlimits, [limit]);
        let plain = Chosen::default().plan(&config(Some(container))).unwrap();
        assert_eq!(plain, LaunchPlan::default());
    }

    #[test]
    fn capabilities_are_the_containers_within_the_operators() {
        let given = Parameters::none("isolators").with(
            "bounding_capabilities",
            r#"{"capabilities": ["NET_RAW", "CHOWN"]}"#,
        );
        let chosen = Chosen::new(&["linux/capabilities"], &given).unwrap();
        let of = |effective: Option<u64>| {
            let container = ContainerInfo {
                linux: LinuxInfo {
                    effective: effective.map(LinuxCapabilities),
                    ..LinuxInfo::default()
                },
                ..ContainerInfo::default()
            };
            let plan = chosen.plan(&config(Some(container)));
            plan.map(|plan| plan.capabilities)
                .map_err(|fault| fault.to_string())
        };
        let bounding = LinuxCapabilities(1 << 13 | 1);
        let sets = |effective| {
            Some(CapabilitySets {
                effective,
                bounding,
            })
        };
        assert_eq!(of(None), Ok(sets(None)));
        let chown = LinuxCapabilities(1);
        assert_eq!(of(Some(1)), Ok(sets(Some(chown))));
        let refused = of(Some(1 << 21)).unwrap_err();
        let expected =
            "Requested capabilities '{ SYS_ADMIN }', but only '{ CHOWN, NET_RAW }' are allowed";
        assert!(refused.contains(expected), "{refused}");
    }
}
