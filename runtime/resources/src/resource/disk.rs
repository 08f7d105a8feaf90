//! The disk of a `disk` resource, and the volume on it (SPEC 2.8, 3.5). No file system is accessed
//! here.

use serde::{Deserialize, Serialize};

use crate::error::Invalid;
use crate::resource::annotation::{Labels, check_id};

/// Properties of a `disk` resource that is more than space on the agent's root disk.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct DiskInfo {
    /// Set for a persistent volume.
    pub persistence: Option<Persistence>,
    /// The mount point in a container.
    pub volume: Option<Volume>,
    /// The source; none is the agent's root disk.
    pub source: Option<DiskSource>,
}

impl DiskInfo {
    /// A persistent volume on the agent's root disk with this id and principal, if known, writable
    /// at this path of a container.
    pub fn persistent(
        id: impl Into<String>,
        principal: Option<&str>,
        container_path: impl Into<String>,
    ) -> Self {
        Self {
            persistence: Some(Persistence {
                id: id.into(),
                principal: principal.map(str::to_owned),
            }),
            volume: Some(Volume {
                container_path: container_path.into(),
                host_path: None,
                mode: VolumeMode::ReadWrite,
            }),
            source: None,
        }
    }
}

/// Data that outlives tasks and agent restarts.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Persistence {
    /// Unique per role and agent.
    pub id: String,
    /// The principal that created the volume, if known.
    pub principal: Option<String>,
}

/// The mount point and mode of a volume.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Volume {
    /// The path in the container; relative to the sandbox for a persistent volume.
    pub container_path: String,
    /// The path on the host, if it is given.
    pub host_path: Option<String>,
    /// The access mode.
    pub mode: VolumeMode,
}

/// The access mode of a volume.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum VolumeMode {
    /// Read and write.
    ReadWrite,
    /// Read only.
    ReadOnly,
}

/// The kind of a disk.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum SourceKind {
    /// A directory, which can be split.
    Path,
    /// A separate file system, used as a whole.
    Mount,
    /// A block device, used as a whole.
    Block,
    /// A storage pool, or with an id an existing volume.
    Raw,
}

/// The disk that a resource comes from.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct DiskSource {
    /// The kind of disk.
    pub kind: SourceKind,
    /// The path of a PATH or MOUNT disk on the host.
    pub root: Option<String>,
    /// The vendor of the plug-in that serves it.
    pub vendor: Option<String>,
    /// The disk's id at its plug-in.
    pub id: Option<String>,
    /// Metadata of the plug-in.
    pub metadata: Labels,
    /// The profile that it was created with.
    pub profile: Option<String>,
}

impl DiskSource {
    /// A disk of this kind without other properties.
    pub fn new(kind: SourceKind) -> Self {
        Self {
            kind,
            root: None,
            vendor: None,
            id: None,
            metadata: Labels::none(),
            profile: None,
        }
    }
}

impl DiskInfo {
    pub(crate) fn check(&self) -> Result<(), Invalid> {
        if let Some(persistence) = &self.persistence {
            check_id("persistence.id", &persistence.id)?;
        }
        if let Some(volume) = &self.volume {
            let path = &volume.container_path;
            if path.is_empty() || path.contains('\0') {
                return Err(Invalid::new("volume.container_path", path, "a path"));
            }
        }
        let Some(source) = &self.source else {
            return Ok(());
        };
        let rooted = matches!(source.kind, SourceKind::Path | SourceKind::Mount);
        match &source.root {
            Some(root) if !rooted => Err(Invalid::new(
                "source.root",
                root,
                "a root on PATH and MOUNT disks only",
            )),
            Some(root) if root.is_empty() || root.contains('\0') => {
                Err(Invalid::new("source.root", root, "a path"))
            }
            _ => Ok(()),
        }
    }

    /// Checks that a framework may create this persistent volume (SPEC 3.5): it has an id and a
    /// relative path inside the sandbox, is writable, and has no host path.
    pub fn check_creatable(&self) -> Result<(), Invalid> {
        let missing =
            |field: &str| Invalid::new(field, "not set", "a persistent volume's id and path");
        if self.persistence.is_none() {
            return Err(missing("disk.persistence"));
        }
        let Some(volume) = &self.volume else {
            return Err(missing("disk.volume"));
        };
        let path = &volume.container_path;
        if path.starts_with('/') || path.split('/').any(|part| part == "..") {
            let expected = "a relative path that stays inside the sandbox";
            return Err(Invalid::new("disk.volume.container_path", path, expected));
        }
        if let Some(host) = &volume.host_path {
            return Err(Invalid::new("disk.volume.host_path", host, "no host path"));
        }
        if volume.mode == VolumeMode::ReadOnly {
            return Err(Invalid::new("disk.volume.mode", "RO", "RW"));
        }
        self.check().map_err(|bad| bad.within("disk"))
    }
}
