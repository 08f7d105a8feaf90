//! `volume/*`: files and directories that a container sees. Errors have the words of Mesos.

use std::path::Path;

use module_api::Fault;
use module_api::isolator::{Mount, MountSource};
use protocol::task::container::{Volume, VolumeSource};

/// The kinds of volumes that the operator allows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kinds {
    pub(super) host_path: bool,
    pub(super) sandbox_path: bool,
    pub(super) secret: bool,
}

/// The mounts of these volumes, without those of other kinds. `memory` is the container's, in
/// bytes.
pub(super) fn mounts(
    volumes: &[Volume],
    kinds: Kinds,
    memory: Option<u64>,
) -> Result<Vec<Mount>, Fault> {
    let mut mounts = Vec::new();
    for volume in volumes {
        let source = match &volume.source {
            VolumeSource::Path(path) if Path::new(path).is_absolute() => {
                kinds.host_path.then(|| MountSource::Host(path.into()))
            }
            VolumeSource::HostPath(path) if Path::new(path).is_absolute() => {
                kinds.host_path.then(|| MountSource::Host(path.into()))
            }
            VolumeSource::HostPath(path) => {
                let problem = format!("Path '{path}' in HOST_PATH volume is not absolute");
                return Err(Fault::failed(problem));
            }
            VolumeSource::SandboxPath(path) if Path::new(path).is_absolute() => {
                let problem = format!("Path '{path}' in SANDBOX_PATH volume is absolute");
                return Err(Fault::failed(problem));
            }
            VolumeSource::Path(_) | VolumeSource::SandboxPath(_)
                if !Path::new(&volume.container_path).is_absolute() =>
            {
                let problem = "'container_path' is relative for SANDBOX_PATH volume SELF type";
                return Err(Fault::failed(problem));
            }
            VolumeSource::Path(path) | VolumeSource::SandboxPath(path) => kinds
                .sandbox_path
                .then(|| MountSource::Sandbox(path.into())),
            VolumeSource::Secret(data) => kinds.secret.then(|| MountSource::Secret(data.clone())),
            // What its files take counts as memory of the container.
            VolumeSource::Memory(volume) => Some(MountSource::Memory {
                bytes: volume.bytes.or(memory),
                mode: volume.mode,
            }),
        };
        mounts.extend(source.map(|source| Mount {
            source,
            target: (&volume.container_path).into(),
            is_read_only: volume.is_read_only,
        }));
    }
    Ok(mounts)
}

#[cfg(test)]
mod tests {
    use protocol::task::container::{MemoryVolume, SecretData};

    use super::*;

    #[test]
    fn each_source_has_its_rules() {
        let all = Kinds {
            host_path: true,
            sandbox_path: true,
            secret: true,
        };
        let planned = |source: VolumeSource, container_path: &str, kinds: Kinds| {
            let volume = Volume {
                container_path: container_path.into(),
                is_read_only: false,
                source,
            };
            let mounts = mounts(&[volume], kinds, Some(64 << 20));
            mounts
                .map(|mounts| {
                    mounts
                        .into_iter()
                        .map(|mount| mount.source)
                        .collect::<Vec<_>>()
                })
                .map_err(|fault| fault.to_string())
        };
        let path = |text: &str| VolumeSource::Path(text.into());
        let host = [MountSource::Host("/srv".into())];
        let own = [MountSource::Sandbox("own".into())];
        assert_eq!(planned(path("/srv"), "data", all).unwrap(), host);
        assert_eq!(planned(path("own"), "/data", all).unwrap(), own);
        let memory = |bytes| VolumeSource::Memory(MemoryVolume { bytes, mode: 0o700 });
        for (size, bytes) in [(Some(4096), 4096), (None, 64 << 20)] {
            let expected = [MountSource::Memory {
                bytes: Some(bytes),
                mode: 0o700,
            }];
            assert_eq!(planned(memory(size), "/data", all).unwrap(), expected);
        }
        for (source, problem) in [
            (path("own"), "is relative for SANDBOX_PATH"),
            (VolumeSource::HostPath("srv".into()), "is not absolute"),
            (VolumeSource::SandboxPath("/own".into()), "is absolute"),
        ] {
            let refused = planned(source, "data", all).unwrap_err();
            assert!(refused.contains(problem), "{refused}");
        }
        let none = Kinds {
            host_path: false,
            sandbox_path: false,
            secret: false,
        };
        let secret = VolumeSource::Secret(SecretData(vec![1]));
        for source in [path("/srv"), path("own"), secret] {
            assert_eq!(planned(source, "/data", none).unwrap(), []);
        }
    }
}
