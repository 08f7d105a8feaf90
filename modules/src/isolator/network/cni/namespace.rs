//! Network namespaces without processes: each is mounted on a file, which keeps it.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, setns, unshare};
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};

use super::netlink;

const NONE: Option<&str> = None;

/// Blocking. Makes a namespace with a loopback that is up, mounted on this file, which is made.
pub(super) fn make(path: &Path) -> io::Result<()> {
    File::create(path)?;
    let path = path.to_owned();
    // A thread of its own, since it stays in the namespace.
    let making = std::thread::Builder::new().name("network".to_owned());
    let making = making.spawn(move || {
        unshare(CloneFlags::CLONE_NEWNET)?;
        netlink::loopback_up()?;
        let own = Some("/proc/thread-self/ns/net");
        mount(own, &path, NONE, MsFlags::MS_BIND, NONE)?;
        Ok(())
    });
    let made = making?.join();
    made.unwrap_or_else(|_| Err(io::Error::other("its thread panicked")))
}

/// Blocking. Limits what this interface sends to so many bytes in a second, in the namespace that
/// is mounted on this file. The limit ends with the namespace.
pub(super) fn limit_egress(path: &Path, interface: &str, rate: u64) -> io::Result<()> {
    let interface = interface.to_owned();
    within(path, move || netlink::limit_egress(&interface, rate))
}

/// Blocking. Does this in the namespace that is mounted on this file.
pub(super) fn within<T: Send + 'static>(
    path: &Path,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let namespace = File::open(path)?;
    // A thread of its own, since it stays in the namespace.
    let working = std::thread::Builder::new().name("network".to_owned());
    let working = working.spawn(move || {
        setns(namespace, CloneFlags::CLONE_NEWNET)?;
        work()
    });
    let done = working?.join();
    done.unwrap_or_else(|_| Err(io::Error::other("its thread panicked")))
}

/// Whether a namespace is mounted on this file. Not after a reboot.
pub(super) fn is_mounted(path: &Path) -> bool {
    let device = |path: &Path| fs::metadata(path).map(|file| file.dev()).ok();
    let own = device(Path::new("/proc/self/ns/net"));
    own.is_some() && device(path) == own
}

/// Unmounts this; fine if nothing is mounted there.
pub(super) fn unmount(path: &Path) -> io::Result<()> {
    match umount2(path, MntFlags::MNT_DETACH) {
        Ok(()) | Err(Errno::EINVAL | Errno::ENOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Mounts a directory on itself, unless it is mounted. Mounts below it are shared with containers
/// that have mounts of their own: else these would keep a namespace that is unmounted.
pub(super) fn share_mounts(directory: &Path) -> io::Result<()> {
    let mount_of = |path: &Path| {
        let found = statx(CWD, path, AtFlags::empty(), StatxFlags::MNT_ID);
        found.map(|found| found.stx_mnt_id)
    };
    let parent = directory.parent().unwrap_or(directory);
    if mount_of(directory)? == mount_of(parent)? {
        mount(Some(directory), directory, NONE, MsFlags::MS_BIND, NONE)?;
        // First private: a group of its own, apart from that of its parent. Only once, since it
        // would cut off the containers that have it.
        for flags in [MsFlags::MS_PRIVATE, MsFlags::MS_SHARED] {
            mount(NONE, directory, NONE, flags, NONE)?;
        }
    }
    Ok(())
}
