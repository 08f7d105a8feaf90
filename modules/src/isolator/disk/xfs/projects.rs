//! Projects of sandboxes and volumes.
//!
//! Blocking. A project in the operator's range that a directory has already is kept, so that every
//! step can be repeated after a crash.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use module_api::isolator::{Limitation, volume_path};
use protocol::Reason;
use protocol::text::bytes;
use resources::{Name, Ranges, Resource, Resources, Scalar, SourceKind};
use rustix::fs::{FileType, Mode, OFlags, openat};

use super::super::MEGABYTE;
use super::super::scan::{self, Found};
use super::kernel;

/// What happens beyond a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Policy {
    /// Nothing: the space is only counted.
    Count,
    /// Writes are refused.
    Refuse,
    /// The container ends. Writes are refused beyond so many bytes more.
    End {
        /// In bytes.
        headroom: u64,
    },
}

impl Policy {
    /// The soft and the hard limit for this quota; zero for none.
    fn limits(self, quota: Option<u64>) -> (u64, u64) {
        match (self, quota) {
            (Self::Count, _) | (_, None) => (0, 0),
            (Self::Refuse, Some(quota)) => (quota, quota),
            (Self::End { headroom }, Some(quota)) => (quota, quota.saturating_add(headroom)),
        }
    }
}

/// A directory that is a project.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Place {
    /// The directory.
    pub directory: PathBuf,
    /// Its project.
    pub project: u32,
    /// Its quota in bytes, if any.
    pub quota: Option<u64>,
    /// The volume; `None` for a sandbox.
    pub volume: Option<Resource>,
}

/// The projects of an agent.
#[derive(Debug)]
pub(super) struct Projects {
    work_dir: PathBuf,
    range: Ranges,
    policy: Policy,
    /// Where the search for a free project begins. Locked until a directory has it.
    next: Mutex<u64>,
}

/// The ids of an operator's range.
pub(super) fn range(text: &str) -> Option<Ranges> {
    let parsed = Resources::parse(&format!("projects:{text}")).ok()?;
    let range = parsed.iter().next()?.value().as_ranges()?.clone();
    let has_none = range.contains_number(0);
    let is_small = { range.iter() }.all(|part| u32::try_from(part.end()).is_ok());
    (is_small && !has_none).then_some(range)
}

/// Fails unless the file system of this directory, which may not exist yet, counts projects.
pub fn has_quotas(directory: &Path) -> Result<(), String> {
    let existing = directory.ancestors().find(|parent| parent.is_dir());
    let existing = existing.unwrap_or(Path::new("/"));
    let counted = scan::open(existing).and_then(|open| kernel::are_counted(open.as_fd()));
    counted.map_err(|error| {
        let path = directory.display();
        format!(
            "the file system of `{path}` has no project quotas ({error}): use XFS mounted with the option `pquota`"
        )
    })
}

impl Projects {
    pub(super) fn new(work_dir: PathBuf, range: Ranges, policy: Policy) -> Self {
        Self {
            work_dir,
            range,
            policy,
            next: Mutex::default(),
        }
    }

    /// Whether containers beyond their quota end.
    pub(super) fn ends_containers(&self) -> bool {
        matches!(self.policy, Policy::End { .. })
    }

    /// Makes these directories, the first of which is a sandbox, one project with the quota of the
    /// resources, and each volume among the resources another.
    pub(super) fn place(
        &self,
        directories: &[PathBuf],
        resources: &Resources,
    ) -> Result<Vec<Place>, String> {
        let mut places = Vec::new();
        if let Some(sandbox) = directories.first() {
            places.push(self.bound(sandbox, sandbox_quota(resources), None)?);
        }
        for (more, sandbox) in directories.iter().skip(1).zip(&places.clone()) {
            label(more, sandbox.project).map_err(|error| cannot_assign(more, &error))?;
        }
        for volume in resources.iter().filter(|one| one.is_persistent_volume()) {
            let path = volume_path(&self.work_dir, volume).filter(|_| !is_mount(volume));
            if let Some(path) = path {
                let quota = volume.value().as_scalar().map(in_bytes);
                places.push(self.bound(&path, quota, Some(volume.clone()))?);
            }
        }
        Ok(places)
    }

    /// Makes a directory a project with this quota.
    fn bound(
        &self,
        directory: &Path,
        quota: Option<u64>,
        volume: Option<Resource>,
    ) -> Result<Place, String> {
        let failed = |error: io::Error| cannot_assign(directory, &error);
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let open = scan::open(directory).map_err(failed)?;
        let own = kernel::project_of(&open).map_err(failed)?;
        let (soft, hard) = self.policy.limits(quota);
        let is_ours = self.range.contains_number(u64::from(own));
        let project = match is_ours {
            true => own,
            false => self.free(&open, &mut next)?,
        };
        kernel::limit(open.as_fd(), project, soft, hard).map_err(failed)?;
        if !is_ours {
            label(directory, project).map_err(failed)?;
        }
        Ok(Place {
            directory: directory.to_owned(),
            project,
            quota,
            volume,
        })
    }

    /// A project that no file on the file system of this directory has.
    fn free(&self, directory: &OwnedFd, next: &mut u64) -> Result<u32, String> {
        let all = || self.range.iter().flat_map(|part| part.begin()..=part.end());
        let begin = *next;
        let later = all().skip_while(|number| *number < begin);
        let earlier = all().take_while(|number| *number < begin);
        for number in later.chain(earlier) {
            // The ids are in range.
            let id = number as u32;
            let project = kernel::project(directory.as_fd(), id)
                .map_err(|error| format!("Failed to get quota for project ID {id}: {error}"))?;
            if project.files == 0 {
                *next = number + 1;
                return Ok(id);
            }
        }
        Err("Failed to assign project ID, range exhausted".to_owned())
    }

    /// The space that a place takes, in bytes.
    pub(super) fn used(&self, place: &Place) -> io::Result<u64> {
        let open = scan::open(&place.directory)?;
        Ok(kernel::project(open.as_fd(), place.project)?.used)
    }

    /// The first of these places that is beyond its quota, with the words of Mesos.
    pub(super) fn exceeded(&self, places: &[Place]) -> Option<Limitation> {
        places.iter().find_map(|place| {
            let used = self.used(place).ok()?;
            limitation(place, used)
        })
    }

    /// Lifts the limit of an ended container's sandbox. Its project is free once it is removed.
    pub(super) fn release(&self, sandbox: &Place) {
        let open = scan::open(&sandbox.directory);
        let lifted = open.and_then(|open| kernel::limit(open.as_fd(), sandbox.project, 0, 0));
        match lifted {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                let path = sandbox.directory.display();
                tracing::warn!(%path, %error, "cannot lift its disk quota");
            }
            _ => {}
        }
    }
}

fn cannot_assign(directory: &Path, error: &io::Error) -> String {
    let path = directory.display();
    format!("Failed to assign project to '{path}': {error}")
}

fn limitation(place: &Place, used: u64) -> Option<Limitation> {
    let quota = place.quota.filter(|quota| used > *quota)?;
    let annotations = place.volume.as_ref().map(|volume| volume.annotations());
    let megabytes = Scalar::new((used >> 20) as f64).ok()?;
    let annotations = annotations.cloned().unwrap_or_default();
    let resource = Resource::annotated(Name::Disk, megabytes, annotations);
    let persistence = place.volume.as_ref().and_then(|volume| {
        let disk = volume.annotations().disk.as_ref()?;
        disk.persistence.as_ref()
    });
    let volume = persistence.map(|one| format!(" for volume '{}'", one.id));
    let (used, quota) = (bytes::format(used), bytes::format(quota));
    let volume = volume.unwrap_or_default();
    Some(Limitation {
        resources: resource.into_iter().collect(),
        reason: Reason::ContainerLimitationDisk,
        message: format!("Disk usage ({used}) exceeded quota ({quota}){volume}"),
    })
}

/// The quota of a sandbox in bytes, if it has one: that of the root disk outside of volumes.
fn sandbox_quota(resources: &Resources) -> Option<u64> {
    let is_root = |one: &&Resource| one.is(&Name::Disk) && one.annotations().disk.is_none();
    let disks = resources.iter().filter(is_root);
    let amounts = disks.filter_map(Resource::amount).map(in_bytes);
    amounts.reduce(u64::saturating_add)
}

fn in_bytes(megabytes: Scalar) -> u64 {
    (megabytes.as_f64() * MEGABYTE) as u64
}

fn is_mount(volume: &Resource) -> bool {
    let disk = volume.annotations().disk.as_ref();
    let source = disk.and_then(|disk| disk.source.as_ref());
    source.is_some_and(|source| source.kind == SourceKind::Mount)
}

/// Gives a directory and all below it to a project.
fn label(directory: &Path, project: u32) -> io::Result<()> {
    // A pipe would wait for a writer.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    scan::walk(scan::open(directory)?, |stat, found| match found {
        Found::Directory(open) => kernel::assign(open, project, true),
        Found::Other(parent, name) => {
            if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
                return Ok(());
            }
            match openat(parent, name, flags | OFlags::NOCTTY, Mode::empty()) {
                Err(error) if scan::is_gone(error) => Ok(()),
                open => kernel::assign(open?, project, false),
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use resources::{Annotations, DiskInfo, Reservation};

    use super::*;

    #[test]
    fn policy_decides_the_limits() {
        let quota = Some(100);
        assert_eq!(Policy::Count.limits(quota), (0, 0));
        assert_eq!(Policy::Refuse.limits(quota), (100, 100));
        assert_eq!(Policy::End { headroom: 7 }.limits(quota), (100, 107));
        assert_eq!(Policy::Refuse.limits(None), (0, 0));
    }

    #[test]
    fn volume_has_a_quota_of_its_own() {
        let volume = Resource::annotated(
            Name::Disk,
            Scalar::whole(8),
            Annotations {
                reservations: vec![Reservation::fixed("r".parse().unwrap())],
                disk: Some(Box::new(DiskInfo::persistent("v", None, "data"))),
                ..Annotations::default()
            },
        )
        .unwrap();
        let mut resources = Resources::parse("cpus:1;disk:2;disk(r):3").unwrap();
        resources.push(volume.clone());
        assert_eq!(sandbox_quota(&resources), Some(5 << 20));
        assert_eq!(sandbox_quota(&Resources::parse("cpus:1").unwrap()), None);
        let place = |volume| Place {
            directory: "/v".into(),
            project: 1,
            quota: Some(8 << 20),
            volume,
        };
        assert_eq!(limitation(&place(None), 8 << 20), None);
        let exceeded = limitation(&place(None), 9 << 20).unwrap();
        assert_eq!(exceeded.resources.to_string(), "disk:9");
        assert_eq!(exceeded.message, "Disk usage (9MB) exceeded quota (8MB)");
        let exceeded = limitation(&place(Some(volume)), 9 << 20).unwrap();
        let expected = "Disk usage (9MB) exceeded quota (8MB) for volume 'v'";
        assert_eq!(exceeded.message, expected);
        assert!(!exceeded.resources.persistent_volumes().is_empty());
    }
}
