//! On which disk a `disk` resource lies, and what is kept on it.
//!
//! Describes volumes and sources (SPEC 2.8, 3.5). Never touches a disk.

use serde::{Deserialize, Serialize};

use crate::annotation::{Labels, check_id};
use crate::error::Invalid;

/// What makes a `disk` resource more than space on the agent's root disk.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct DiskInfo {
    /// Set on a persistent volume.
    pub persistence: Option<Persistence>,
    /// Where the volume appears in a container.
    pub volume: Option<Volume>,
    /// The disk it comes from; none means the agent's root disk.
    pub source: Option<DiskSource>,
}

impl DiskInfo {
    /// A persistent volume of this id and of who made it, if that is known, on the agent's root disk. It appears at this path of a container, and may
    /// be written to.
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

/// What survives tasks and agent restarts.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Persistence {
    /// Unique per role and agent.
    pub id: String,
    /// Who created the volume, if that is known.
    pub principal: Option<String>,
}

/// Where a volume appears, and how.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Volume {
    /// The path in the container; for a persistent volume relative to the sandbox.
    pub container_path: String,
    /// The path on the host, if it is a given one.
    pub host_path: Option<String>,
    /// May it be written to?
    pub mode: VolumeMode,
}

/// May a volume be written to?
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum VolumeMode {
    /// Read and write.
    ReadWrite,
    /// Read only.
    ReadOnly,
}

/// Which kind of disk.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum SourceKind {
    /// A directory: can be split.
    Path,
    /// A file system of its own: goes to one user as a whole.
    Mount,
    /// A block device: goes to one user as a whole.
    Block,
    /// Not yet a disk: a pool, or with an id a volume that exists.
    Raw,
}

/// The disk that a resource comes from.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct DiskSource {
    /// Which kind of disk.
    pub kind: SourceKind,
    /// Where a PATH or MOUNT disk is in the host's file system.
    pub root: Option<String>,
    /// Who made the plug-in that serves it.
    pub vendor: Option<String>,
    /// The disk's id at its plug-in.
    pub id: Option<String>,
    /// What the plug-in says about it.
    pub metadata: Labels,
    /// The profile it was made with.
    pub profile: Option<String>,
}

impl DiskSource {
    /// A disk of this kind of which nothing more is said.
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

    /// Is this a persistent volume that a framework may create (SPEC 3.5): with an id, a relative
    /// path inside the sandbox, writable, and no host path?
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
