//! The mounts of a container: its root file system, `/proc`, `/dev` and its volumes.
//!
//! Runs in the container init, in a mount namespace of its own. All its mounts vanish with the
//! container's last process.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, chown};
use std::path::{Path, PathBuf};

use module_api::isolator::{LaunchPlan, Mount, MountSource, RootFilesystem};
use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::unistd::{UnlinkatFlags, unlinkat};
use protocol::task::container::SecretData;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, fsconfig_create,
    fsconfig_set_string, fsmount, fsopen, move_mount, open_tree,
};

use super::failed;
use crate::host::beneath::{Beneath, Kind, path_of};
use crate::host::{procfs, sys};

/// Device files of a root file system, those of the host.
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];
/// Links in its `/dev`.
const DEVICE_LINKS: [(&str, &str); 5] = [
    ("ptmx", "pts/ptmx"),
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
];
/// Files by which names are looked up: those of the container's network, else of the host.
const NETWORK_FILES: [&str; 3] = ["/etc/hosts", "/etc/resolv.conf", "/etc/hostname"];
/// Parts of `/proc` that no container may change (SPEC 5.5).
const READ_ONLY: [&str; 5] = [
    "/proc/bus",
    "/proc/fs",
    "/proc/irq",
    "/proc/sys",
    "/proc/sysrq-trigger",
];
/// Files and directories that say too much about the host.
const HIDDEN: [&str; 8] = [
    "/proc/acpi",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/sys/firmware",
];

/// Flags of file systems without programs and devices.
const PLAIN: MsFlags = MsFlags::MS_NOSUID.union(MsFlags::MS_NODEV);
const INERT: MsFlags = PLAIN.union(MsFlags::MS_NOEXEC);
const NONE: Option<&str> = None;

/// Makes the mounts of a plan. The working directory, which is the sandbox, becomes that of the
/// plan.
pub(super) fn enter(plan: &LaunchPlan, sandbox: &Path) -> Result<(), String> {
    // Mounts of the host appear in the container, those of the container not on the host.
    let slave = MsFlags::MS_SLAVE | MsFlags::MS_REC;
    let root = Path::new("/");
    mount(NONE, root, NONE, slave, NONE).map_err(failed("make private", root))?;
    let sources: Vec<Source> = plan
        .mounts
        .iter()
        .map(|volume| Source::open(volume, sandbox))
        .collect::<Result<_, _>>()?;
    match &plan.root {
        None => {
            let host = Beneath::open(root).map_err(failed("open", root))?;
            mount_kernel_files(plan, &host, false)?;
            for (path, own) in own_network_files(plan) {
                // One that the host lacks, the container lacks, too.
                if let Ok(here) = host.find(path) {
                    bind(own, &here, false).map_err(failed("mount", path))?;
                }
            }
            for (volume, source) in plan.mounts.iter().zip(&sources) {
                source.mount_in_host(volume, sandbox)?;
            }
            // The old directory may be covered by a volume now.
            std::env::set_current_dir(sandbox).map_err(failed("enter", sandbox))
        }
        Some(own) => {
            let root = mount_root(own)?;
            let inside = Beneath::open(&root).map_err(failed("open", &root))?;
            mount_kernel_files(plan, &inside, true)?;
            make_devices(&inside)?;
            mount_network_files(plan, &inside)?;
            match plan.is_privileged {
                true => add_host_devices(&inside)?,
                false => hide(&inside)?,
            }
            let here = inside.find_or_make(&own.sandbox, Kind::Directory);
            let here = here.map_err(failed("make", &own.sandbox))?;
            bind(sandbox, &here, false).map_err(failed("mount", &own.sandbox))?;
            let sandbox = inside.find(&own.sandbox);
            let sandbox = sandbox.map_err(failed("open", &own.sandbox))?;
            // What a volume shows is not the container's: nothing is made in it.
            let inside = inside.making_on_one_mount();
            let sandbox = Beneath::of(sandbox).making_on_one_mount();
            for (volume, source) in plan.mounts.iter().zip(&sources) {
                let base = match volume.target.is_absolute() {
                    true => &inside,
                    false => &sandbox,
                };
                source.mount_in(base, &volume.target, volume.is_read_only)?;
            }
            let start = plan.working_directory.as_ref().unwrap_or(&own.sandbox);
            let made = inside.find_or_make(start, Kind::Directory);
            made.map_err(failed("make the working directory", start))?;
            drop((sources, here, inside, sandbox));
            change_root(&root)?;
            std::env::set_current_dir(start).map_err(failed("enter", start))
        }
    }
}

/// Mounts the image with the scratch directory above it. Returns where.
fn mount_root(own: &RootFilesystem) -> Result<PathBuf, String> {
    let made = ["upper", "work", "root"].map(|name| own.scratch.join(name));
    for directory in &made {
        std::fs::create_dir_all(directory).map_err(failed("make", directory))?;
    }
    let [upper, work, root] = made;
    // The root directory has the mode and owner of `upper`.
    let like_image = |path: &Path| -> io::Result<()> {
        let image = std::fs::metadata(&own.image)?;
        chown(path, Some(image.uid()), Some(image.gid()))?;
        std::fs::set_permissions(path, image.permissions())
    };
    like_image(&upper).map_err(failed("set the mode of", &upper))?;
    let opened = [&own.image, &upper, &work].map(|path| {
        let opened = Beneath::open(path).map_err(failed("open", path))?;
        Ok::<_, String>(opened)
    });
    let [image, upper, work] = opened;
    let (image, upper, work) = (image?, upper?, work?);
    // By descriptor: a comma or colon in a path would end an option.
    let options = format!(
        "lowerdir={},upperdir={},workdir={}",
        path_of(&image).display(),
        path_of(&upper).display(),
        path_of(&work).display()
    );
    let options = Some(options.as_str());
    mount(
        Some("overlay"),
        &root,
        Some("overlay"),
        MsFlags::MS_NODEV,
        options,
    )
    .map_err(failed("mount the image at", &root))?;
    Ok(root)
}

/// `/proc`, and in a root file system of its own `/sys` and `/dev` too; `/dev/shm` of its own IPC
/// namespace. In an image these are no links.
fn mount_kernel_files(plan: &LaunchPlan, inside: &Beneath, has_root: bool) -> Result<(), String> {
    let place = |path: &Path| match has_root {
        true => inside.plain_directory(path),
        false => inside.find(path),
    };
    let proc = Path::new("/proc");
    if plan.namespaces.pid {
        let here = place(proc).map_err(failed("make", proc))?;
        mount(Some("proc"), &path_of(&here), Some("proc"), INERT, NONE)
            .map_err(failed("mount", proc))?;
    } else if has_root {
        let here = place(proc).map_err(failed("make", proc))?;
        bind(proc, &here, false).map_err(failed("mount", proc))?;
    }
    // A volume may cover it, and then tell of other processes.
    let own = inside.find(proc).map_err(failed("open", proc))?;
    procfs::keep(own);
    if has_root {
        let sys = Path::new("/sys");
        let here = place(sys).map_err(failed("make", sys))?;
        bind(sys, &here, !plan.is_privileged).map_err(failed("mount", sys))?;
        let dev = Path::new("/dev");
        let here = place(dev).map_err(failed("make", dev))?;
        let options = Some("mode=0755,size=64k");
        mount(
            Some("tmpfs"),
            &path_of(&here),
            Some("tmpfs"),
            PLAIN,
            options,
        )
        .map_err(failed("mount", dev))?;
    }
    let shm = Path::new("/dev/shm");
    if plan.namespaces.ipc {
        let size = plan.shm_bytes.map(|bytes| format!(",size={bytes}"));
        let options = format!("mode=1777{}", size.unwrap_or_default());
        let here = place(shm).map_err(failed("make", shm))?;
        mount(
            Some("shm"),
            &path_of(&here),
            Some("tmpfs"),
            PLAIN,
            Some(options.as_str()),
        )
        .map_err(failed("mount", shm))?;
    } else if has_root && shm.is_dir() {
        let here = place(shm).map_err(failed("make", shm))?;
        bind(shm, &here, false).map_err(failed("mount", shm))?;
    }
    Ok(())
}

fn make_devices(inside: &Beneath) -> Result<(), String> {
    for name in DEVICES {
        let path = Path::new("/dev").join(name);
        let is_device = std::fs::metadata(&path);
        if is_device.is_ok_and(|found| found.file_type().is_char_device()) {
            let here = inside.find_or_make(&path, Kind::File);
            let here = here.map_err(failed("make", &path))?;
            bind(&path, &here, false).map_err(failed("mount", &path))?;
        }
    }
    let pts = Path::new("/dev/pts");
    let here = inside.find_or_make(pts, Kind::Directory);
    let here = here.map_err(failed("make", pts))?;
    let (flags, options) = (
        MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC,
        Some("newinstance,ptmxmode=0666,mode=0620"),
    );
    mount(
        Some("devpts"),
        &path_of(&here),
        Some("devpts"),
        flags,
        options,
    )
    .map_err(failed("mount", pts))?;
    let dev = Path::new("/dev");
    let here = inside.find(dev).map_err(failed("open", dev))?;
    for (link, target) in DEVICE_LINKS {
        let path = dev.join(link);
        nix::unistd::symlinkat(target, &here, link).map_err(failed("make", &path))?;
    }
    Ok(())
}

/// All other devices of the host, and its directories of devices. What `/dev` has already stays.
fn add_host_devices(inside: &Beneath) -> Result<(), String> {
    let dev = Path::new("/dev");
    for entry in std::fs::read_dir(dev).map_err(failed("read", dev))? {
        let path = entry.map_err(failed("read", dev))?.path();
        let Ok(found) = std::fs::symlink_metadata(&path) else {
            // It has been unplugged.
            continue;
        };
        let kind = found.file_type();
        let kind = match kind.is_char_device() || kind.is_block_device() {
            true => Kind::File,
            false if kind.is_dir() => Kind::Directory,
            false => continue,
        };
        if inside.find(&path).is_err() {
            let here = inside.find_or_make(&path, kind);
            let here = here.map_err(failed("make", &path))?;
            bind(&path, &here, false).map_err(failed("mount", &path))?;
        }
    }
    Ok(())
}

/// The network files that the container has of its own.
fn own_network_files(plan: &LaunchPlan) -> impl Iterator<Item = (&'static Path, &Path)> {
    let files = plan.network.iter().flat_map(|network| &network.files);
    files.filter_map(|own| {
        let mut paths = NETWORK_FILES.iter().map(Path::new);
        let path = paths.find(|path| path.file_name() == own.file_name())?;
        Some((path, own.as_path()))
    })
}

fn mount_network_files(plan: &LaunchPlan, inside: &Beneath) -> Result<(), String> {
    for path in NETWORK_FILES.map(Path::new) {
        let own = own_network_files(plan).find(|(own, _)| *own == path);
        // Those of the host must not change.
        let (source, is_read_only) = own.map_or((path, true), |(_, own)| (own, false));
        if !source.is_file() {
            continue;
        }
        let here = inside.find_or_make(path, Kind::File);
        let here = here.or_else(|_| {
            // A link of the image that leads nowhere.
            let etc = inside.find(Path::new("/etc"))?;
            let name = path.file_name().unwrap_or_default();
            unlinkat(&etc, name, UnlinkatFlags::NoRemoveDir)?;
            inside.find_or_make(path, Kind::File)
        });
        let here = here.map_err(failed("make", path))?;
        bind(source, &here, is_read_only).map_err(failed("mount", path))?;
    }
    Ok(())
}

/// The source of a volume: a mount that is not attached yet, made before the root changes.
#[derive(Debug)]
struct Source {
    tree: OwnedFd,
    kind: Kind,
}

impl Source {
    fn open(volume: &Mount, sandbox: &Path) -> Result<Self, String> {
        let opened = match &volume.source {
            MountSource::Host(path) => {
                let root = Beneath::open(Path::new("/"));
                let found = root.and_then(|root| root.find(path));
                found.map_err(failed("open the volume's source", path))?
            }
            MountSource::Sandbox(path) => {
                let inside = Beneath::open(sandbox).map_err(failed("open", sandbox))?;
                let is_new = inside.find(path).is_err();
                let made = inside.find_or_make(path, Kind::Directory);
                let made = made.map_err(failed("make the volume's source", path))?;
                if is_new {
                    give_to_owner_of(sandbox, &made).map_err(failed("give away", path))?;
                }
                made
            }
            MountSource::Secret(SecretData(bytes)) => {
                return Self::secret(bytes, sandbox, &volume.target);
            }
            MountSource::Memory { bytes, mode } => {
                let tree = tmpfs(*bytes, *mode, sandbox);
                let tree = tree.map_err(failed("make memory for", &volume.target))?;
                let kind = Kind::Directory;
                return Ok(Self { tree, kind });
            }
        };
        Self::of(&opened, &volume.target)
    }

    fn of(opened: &OwnedFd, target: &Path) -> Result<Self, String> {
        let found = nix::sys::stat::fstat(opened).map_err(failed("look at", target))?;
        let is_directory = found.st_mode & nix::libc::S_IFMT == nix::libc::S_IFDIR;
        let kind = match is_directory {
            true => Kind::Directory,
            false => Kind::File,
        };
        let tree = clone_tree(opened).map_err(failed("mount", target))?;
        Ok(Self { tree, kind })
    }

    /// A file that only the sandbox's owner can read, on a file system in memory that nobody else
    /// sees.
    fn secret(bytes: &[u8], sandbox: &Path, target: &Path) -> Result<Self, String> {
        // Over the sandbox only as long as the file is made.
        let memory =
            |options: &str| mount(Some("secret"), sandbox, Some("tmpfs"), INERT, Some(options));
        // Kernels before 6.4 cannot keep it out of swap space.
        let mounted = match memory("mode=0755,noswap") {
            Err(Errno::EINVAL) => memory("mode=0755"),
            mounted => mounted,
        };
        mounted.map_err(failed("make memory for", target))?;
        let made = Self::write(bytes, sandbox, target);
        umount2(sandbox, MntFlags::MNT_DETACH).map_err(failed("make memory for", target))?;
        made
    }

    fn write(bytes: &[u8], memory: &Path, target: &Path) -> Result<Self, String> {
        let path = memory.join("secret");
        let open = OpenOptions::new()
            .create_new(true)
            .write(true)
            .mode(0o400)
            .open(&path);
        let mut file = open.map_err(failed("make", target))?;
        file.write_all(bytes).map_err(failed("write", target))?;
        // The working directory is the sandbox itself, which the memory hides from its path.
        give_to_owner_of(Path::new("."), &file).map_err(failed("give away", target))?;
        let inside = Beneath::open(memory).map_err(failed("open", memory))?;
        let opened = inside.find(Path::new("secret"));
        Self::of(&opened.map_err(failed("open", target))?, target)
    }

    /// At a path of the host's root file system: one outside of the sandbox must exist.
    fn mount_in_host(&self, volume: &Mount, sandbox: &Path) -> Result<(), String> {
        let target = &volume.target;
        if !target.is_absolute() {
            let inside = Beneath::open(sandbox).map_err(failed("open", sandbox))?;
            let inside = inside.making_on_one_mount();
            return self.mount_in(&inside, target, volume.is_read_only);
        }
        let found = Beneath::open(Path::new("/")).and_then(|root| root.find(target));
        let found = found.map_err(|_| {
            format!(
                "Mount point '{}' is an absolute path. It must exist if the container shares the host filesystem",
                target.display()
            )
        })?;
        attach(&self.tree, &found, volume.is_read_only).map_err(failed("mount", target))
    }

    fn mount_in(&self, inside: &Beneath, target: &Path, is_read_only: bool) -> Result<(), String> {
        let found = inside.find_or_make(target, self.kind);
        let found = found.map_err(failed("make the mount point", target))?;
        attach(&self.tree, &found, is_read_only).map_err(failed("mount", target))
    }
}

/// A new file system in memory, of the sandbox's owner. Its files count as memory of the processes
/// that write them.
fn tmpfs(bytes: Option<u64>, mode: u32, sandbox: &Path) -> io::Result<OwnedFd> {
    let owner = std::fs::metadata(sandbox)?;
    let options = [
        ("mode", Some(format!("{mode:o}"))),
        ("size", bytes.map(|bytes| bytes.to_string())),
        ("uid", Some(owner.uid().to_string())),
        ("gid", Some(owner.gid().to_string())),
    ];
    let made = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, value) in options {
        if let Some(value) = value {
            fsconfig_set_string(&made, key, value)?;
        }
    }
    fsconfig_create(&made)?;
    let inert = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    Ok(fsmount(&made, FsMountFlags::FSMOUNT_CLOEXEC, inert)?)
}

fn give_to_owner_of(sandbox: &Path, file: &impl AsFd) -> io::Result<()> {
    let owner = std::fs::metadata(sandbox)?;
    chown(path_of(file), Some(owner.uid()), Some(owner.gid()))
}

/// Mounts what is at `source` over an open file or directory, with the mounts below it.
fn bind(source: &Path, target: &OwnedFd, is_read_only: bool) -> io::Result<()> {
    let opened = Beneath::open(Path::new("/"))?.find(source)?;
    attach(&clone_tree(&opened)?, target, is_read_only)
}

/// The mounts at and below an open file or directory, again.
fn clone_tree(opened: &OwnedFd) -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE
        | OpenTreeFlags::AT_EMPTY_PATH;
    Ok(open_tree(opened, "", flags)?)
}

fn attach(tree: &OwnedFd, target: &OwnedFd, is_read_only: bool) -> io::Result<()> {
    if is_read_only {
        sys::make_read_only(tree)?;
    }
    let by_descriptor =
        MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    Ok(move_mount(tree, "", target, "", by_descriptor)?)
}

/// Makes `root` the root of this namespace, and leaves the old one.
fn change_root(root: &Path) -> Result<(), String> {
    std::env::set_current_dir(root).map_err(failed("enter", root))?;
    nix::unistd::pivot_root(".", ".").map_err(failed("change the root to", root))?;
    // The old root lies above the new one.
    umount2(".", MntFlags::MNT_DETACH).map_err(failed("leave the root before", root))?;
    std::env::set_current_dir("/").map_err(failed("enter", root))
}

/// Hides and protects parts of `/proc` and `/sys`. What the kernel does not have needs neither.
fn hide(inside: &Beneath) -> Result<(), String> {
    for path in READ_ONLY.map(Path::new) {
        if let Ok(here) = inside.find(path) {
            let again = clone_tree(&here).and_then(|tree| attach(&tree, &here, true));
            again.map_err(failed("protect", path))?;
        }
    }
    for path in HIDDEN.map(Path::new) {
        let Ok(here) = inside.find(path) else {
            continue;
        };
        let stat = nix::sys::stat::fstat(&here).map_err(failed("look at", path))?;
        let is_directory = stat.st_mode & nix::libc::S_IFMT == nix::libc::S_IFDIR;
        let hidden = match is_directory {
            true => mount(
                Some("tmpfs"),
                &path_of(&here),
                Some("tmpfs"),
                INERT | MsFlags::MS_RDONLY,
                Some("size=0"),
            )
            .map_err(io::Error::from),
            false => bind(Path::new("/dev/null"), &here, false),
        };
        hidden.map_err(failed("hide", path))?;
    }
    Ok(())
}
