//! Network namespaces without processes: each is mounted on a file, which keeps it.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recv, sendto, socket,
};
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};

const NONE: Option<&str> = None;

/// Blocking. Makes a namespace with a loopback that is up, mounted on this file, which is made.
pub(super) fn make(path: &Path) -> io::Result<()> {
    File::create(path)?;
    let path = path.to_owned();
    // A thread of its own, since it stays in the namespace.
    let making = std::thread::Builder::new().name("network".to_owned());
    let making = making.spawn(move || {
        unshare(CloneFlags::CLONE_NEWNET)?;
        loopback_up()?;
        let own = Some("/proc/thread-self/ns/net");
        mount(own, &path, NONE, MsFlags::MS_BIND, NONE)?;
        Ok(())
    });
    let made = making?.join();
    made.unwrap_or_else(|_| Err(io::Error::other("its thread panicked")))
}

/// `RTM_NEWLINK`, `NLMSG_ERROR`, `NLM_F_REQUEST | NLM_F_ACK` and `IFF_UP`.
const NEW_LINK: u16 = 16;
const ERROR: u16 = 2;
const REQUEST_WITH_ANSWER: u16 = 5;
const UP: u32 = 1;
/// Length of a message's header, and of a link request.
const HEADER: usize = 16;
const LINK_REQUEST: usize = 32;

/// Sets the loopback of this thread's namespace up; it is always the first interface.
fn loopback_up() -> io::Result<()> {
    let flags = SockFlag::SOCK_CLOEXEC;
    let route = SockProtocol::NetlinkRoute;
    let socket = socket(AddressFamily::Netlink, SockType::Raw, flags, route)?;
    let mut request = Vec::with_capacity(LINK_REQUEST);
    request.extend((LINK_REQUEST as u32).to_ne_bytes());
    request.extend(NEW_LINK.to_ne_bytes());
    request.extend(REQUEST_WITH_ANSWER.to_ne_bytes());
    request.extend([0; 8]); // sequence number and sender
    request.extend([0; 4]); // family and type
    request.extend(1_i32.to_ne_bytes()); // the interface
    request.extend(UP.to_ne_bytes());
    request.extend(UP.to_ne_bytes()); // the flags that change
    let kernel = NetlinkAddr::new(0, 0);
    sendto(socket.as_raw_fd(), &request, &kernel, MsgFlags::empty())?;
    let mut answer = [0; 1024];
    let length = recv(socket.as_raw_fd(), &mut answer, MsgFlags::empty())?;
    match answer_code(&answer[..length]) {
        Some(0) => Ok(()),
        Some(code) => Err(io::Error::from_raw_os_error(-code)),
        None => Err(io::Error::other("unexpected answer of the kernel")),
    }
}

/// The error code of an answer, 0 for success.
fn answer_code(answer: &[u8]) -> Option<i32> {
    let kind = answer.get(4..6)?.try_into().ok()?;
    let code = answer.get(HEADER..HEADER + 4)?.try_into().ok()?;
    (u16::from_ne_bytes(kind) == ERROR).then(|| i32::from_ne_bytes(code))
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
