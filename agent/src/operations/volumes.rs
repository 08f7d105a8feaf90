//! Directories of persistent volumes, and their links in sandboxes.
//!
//! Blocking. A sandbox gets a symbolic link to its volume, as from Mesos' `filesystem/posix`. Links
//! that a task put into its sandbox are not followed.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

use module_api::isolator::volume_path;
use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::stat::Mode;
use nix::unistd::symlinkat;
use resources::{Resource, Resources, SourceKind};

use crate::host::removal::remove_tree;
use crate::sandbox;

/// A volume that a container uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Its path on the host.
    pub volume: PathBuf,
    /// Its path relative to the sandbox.
    pub container_path: String,
    /// Whether it is shared, so that it gets no owner.
    pub shared: bool,
}

/// The volumes among these resources.
pub fn mounts(work_dir: &Path, resources: &Resources) -> Vec<Mount> {
    let mount = |volume: &Resource| {
        let disk = volume.annotations().disk.as_ref()?;
        Some(Mount {
            volume: volume_path(work_dir, volume)?,
            container_path: disk.volume.as_ref()?.container_path.clone(),
            shared: volume.is_shared(),
        })
    };
    resources.iter().filter_map(mount).collect()
}

/// The root of a MOUNT disk, which is used as a whole.
pub fn mounted_disk(resource: &Resource) -> Option<&str> {
    let disk = resource.annotations().disk.as_ref();
    let source = disk.and_then(|disk| disk.source.as_ref());
    source
        .filter(|source| source.kind == SourceKind::Mount)?
        .root
        .as_deref()
}

fn is_mounted(volume: &Resource) -> bool {
    mounted_disk(volume).is_some()
}

/// Creates a volume's empty directory. A mounted disk stays as it is.
pub fn make(work_dir: &Path, volume: &Resource) -> Result<(), String> {
    let Some(path) = volume_path(work_dir, volume) else {
        return Err(format!("{volume} cannot be a directory"));
    };
    let failed = |error: io::Error| format!("volume `{}` cannot be made: {error}", path.display());
    if is_mounted(volume) {
        return match path.is_dir() {
            true => Ok(()),
            false => Err(failed(io::Error::from(io::ErrorKind::NotADirectory))),
        };
    }
    discard(work_dir, &path).map_err(failed)?;
    sandbox::create_with_parents(&path).map_err(failed)?;
    // A shared volume has no owner, so all users may read it.
    let mode = if volume.is_shared() {
        0o755
    } else {
        sandbox::SANDBOX_MODE
    };
    fs::set_permissions(&path, Permissions::from_mode(mode)).map_err(failed)
}

/// Deletes a volume's directory; of a mounted disk only the content.
pub fn remove(work_dir: &Path, volume: &Resource) -> Result<(), String> {
    let Some(path) = volume_path(work_dir, volume) else {
        return Ok(());
    };
    let removed = match is_mounted(volume) {
        true => empty(&path),
        false => discard(work_dir, &path),
    };
    removed.map_err(|error| format!("volume `{}` cannot be removed: {error}", path.display()))
}

/// Renames a directory, then deletes it, so that a partly deleted one is never seen.
fn discard(work_dir: &Path, path: &Path) -> io::Result<()> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Ok(());
    };
    let aside = parent.join(format!(".{}.removed", name.to_string_lossy()));
    debug_assert!(aside != work_dir);
    remove_if_there(&aside)?;
    match fs::rename(path, &aside) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        renamed => renamed?,
    }
    remove_if_there(&aside)
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => remove_tree(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

fn empty(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        remove_if_there(&entry?.path())?;
    }
    Ok(())
}

/// Links a volume into a sandbox. The volume becomes `owner`'s unless it is shared.
pub fn link(sandbox: &Path, mount: &Mount, owner: Option<(u32, u32)>) -> io::Result<()> {
    if let Some((uid, gid)) = owner.filter(|_| !mount.shared) {
        std::os::unix::fs::lchown(&mount.volume, Some(uid), Some(gid))?;
    }
    let volume = fs::canonicalize(&mount.volume)?;
    let parts: Vec<&std::ffi::OsStr> = Path::new(&mount.container_path)
        .components()
        .filter_map(|part| match part {
            Component::Normal(name) => Some(Ok(name)),
            Component::CurDir => None,
            _ => Some(Err(io::Error::from(io::ErrorKind::InvalidInput))),
        })
        .collect::<io::Result<_>>()?;
    let Some((name, directories)) = parts.split_last() else {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    };
    let mut at = File::open(sandbox)?;
    for part in directories {
        let mode = Mode::from_bits_truncate(0o755);
        let made = match nix::sys::stat::mkdirat(at.as_fd(), *part, mode) {
            Ok(()) => true,
            Err(Errno::EEXIST) => false,
            Err(error) => return Err(error.into()),
        };
        let how = OpenHow::new()
            .flags(OFlag::O_DIRECTORY | OFlag::O_RDONLY | OFlag::O_CLOEXEC)
            .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS);
        at = File::from(openat2(at.as_fd(), *part, how)?);
        if made {
            // Regardless of the umask: the sandbox's user may read it.
            at.set_permissions(Permissions::from_mode(0o755))?;
        }
    }
    match symlinkat(&volume, at.as_fd(), *name) {
        // Linked already for another task of the same executor.
        Err(Errno::EEXIST) => match nix::fcntl::readlinkat(at.as_fd(), *name) {
            Ok(there) if Path::new(&there) == volume => Ok(()),
            _ => Err(io::Error::from(io::ErrorKind::AlreadyExists)),
        },
        linked => Ok(linked?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use resources::{Annotations, DiskInfo, DiskSource, Name, Reservation, Scalar};

    fn volume(role: &str, source: Option<DiskSource>) -> Resource {
        let annotations = Annotations {
            reservations: vec![Reservation::fixed(role.parse().unwrap())],
            disk: Some(Box::new(DiskInfo {
                source,
                ..DiskInfo::persistent("v1", None, "a/data")
            })),
            ..Annotations::default()
        };
        Resource::annotated(Name::Disk, Scalar::whole(10), annotations).unwrap()
    }

    fn disk(kind: SourceKind, root: &Path) -> Option<DiskSource> {
        Some(DiskSource {
            root: Some(root.display().to_string()),
            ..DiskSource::new(kind)
        })
    }

    /// SPEC 5.1.
    #[test]
    fn a_volume_is_where_mesos_users_expect_it() {
        let work_dir = Path::new("/w");
        let on_root = volume_path(work_dir, &volume("eng/web", None)).unwrap();
        assert_eq!(on_root, Path::new("/w/volumes/roles/eng web/v1"));
        let on_path = volume("eng", disk(SourceKind::Path, Path::new("/mnt/a")));
        let on_path = volume_path(work_dir, &on_path).unwrap();
        assert_eq!(on_path, Path::new("/mnt/a/volumes/roles/eng/v1"));
        let mounted = volume("eng", disk(SourceKind::Mount, Path::new("/mnt/b")));
        assert_eq!(
            volume_path(work_dir, &mounted).unwrap(),
            Path::new("/mnt/b")
        );
    }

    #[test]
    fn volume_starts_empty_and_is_deleted_with_its_files() {
        let work_dir = tempfile::tempdir().unwrap();
        let volume = volume("eng", None);
        let path = volume_path(work_dir.path(), &volume).unwrap();
        sandbox::create_with_parents(&path).unwrap();
        fs::write(path.join("left"), "by a volume that ended").unwrap();
        make(work_dir.path(), &volume).unwrap();
        assert_eq!(fs::read_dir(&path).unwrap().count(), 0);
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o750, 0o711));
        fs::write(path.join("file"), "content").unwrap();
        remove(work_dir.path(), &volume).unwrap();
        assert!(!path.exists());
        remove(work_dir.path(), &volume).unwrap();
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 0);
    }

    /// A task chooses the depth.
    #[test]
    fn volume_of_any_depth_is_removed() {
        let work_dir = tempfile::tempdir().unwrap();
        let volume = volume("eng", None);
        make(work_dir.path(), &volume).unwrap();
        let path = volume_path(work_dir.path(), &volume).unwrap();
        let mut directory = File::open(&path).unwrap();
        for _ in 0..5_000 {
            nix::sys::stat::mkdirat(directory.as_fd(), "d", Mode::S_IRWXU).unwrap();
            let flags = OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
            let below = nix::fcntl::openat(&directory, "d", flags, Mode::empty()).unwrap();
            directory = File::from(below);
        }
        remove(work_dir.path(), &volume).unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn a_mounted_disk_is_emptied_and_stays() {
        let (work_dir, disk_dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let volume = volume("eng", disk(SourceKind::Mount, disk_dir.path()));
        make(work_dir.path(), &volume).unwrap();
        fs::create_dir(disk_dir.path().join("sub")).unwrap();
        fs::write(disk_dir.path().join("sub/file"), "content").unwrap();
        remove(work_dir.path(), &volume).unwrap();
        assert_eq!(fs::read_dir(disk_dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn sandbox_links_to_its_volume_ignoring_task_links() {
        let (work_dir, sandbox) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let volume = volume("eng", None);
        make(work_dir.path(), &volume).unwrap();
        let mounts = mounts(work_dir.path(), &volume.into());
        link(sandbox.path(), &mounts[0], None).unwrap();
        fs::write(sandbox.path().join("a/data/file"), "content").unwrap();
        assert_eq!(
            fs::read_to_string(mounts[0].volume.join("file")).unwrap(),
            "content"
        );
        link(sandbox.path(), &mounts[0], None).unwrap();

        let (hostile, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::os::unix::fs::symlink(outside.path(), hostile.path().join("a")).unwrap();
        assert!(link(hostile.path(), &mounts[0], None).is_err());
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
    }
}
