//! Images of file systems beside sandboxes, and their mounts.
//!
//! Blocking. The image of the sandbox `runs/ID` is `runs/.ID.disk`, in a directory of the agent's
//! user, and lives as long as the sandbox: the agent's garbage collection removes both. A sandbox
//! with an image is a mount point. An image that is not filled yet has another name.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{
    DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, lchown, symlink,
};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use module_api::isolator::disk_image;
use nix::libc;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use rustix::fs::{Mode, OFlags, openat};

use super::device;

/// The program that makes the file systems.
const MKFS: &str = "mkfs.ext4";
/// Folders in which it is looked for, after those of the variable `PATH`.
const FOLDERS: [&str; 3] = ["/usr/sbin", "/sbin", "/usr/local/sbin"];
/// Size of a block. File systems have a whole number of them.
const BLOCK: u64 = 4096;
/// Minimum size of a file system.
const BYTES_MIN: u64 = 1 << 20;
/// No journal: it would take a part of a small limit, and every write twice; after a crash of the
/// host its files are only read.
const OPTIONS: [&str; 9] = [
    "-q",
    "-F",
    "-b",
    "4096",
    "-m",
    "0",
    "-O",
    "^has_journal",
    "-Elazy_itable_init=1,nodiscard",
];
/// A removed file frees space of the host. The kernel writes no empty tables in the background.
const MOUNT_OPTIONS: &str = "errors=remount-ro,discard,noinit_itable";

/// The program that makes file systems, or why there can be none.
pub fn mkfs() -> Result<PathBuf, String> {
    if !Path::new(device::CONTROL).exists() {
        return Err(format!("`{}` does not exist", device::CONTROL));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(FOLDERS.map(PathBuf::from));
    let mut programs = folders.map(|folder| folder.join(MKFS));
    programs
        .find(|program| program.is_file())
        .ok_or_else(|| format!("there is no program `{MKFS}`: install e2fsprogs"))
}

/// Gives a new sandbox a file system of this size. Its empty files, links and directories are there
/// again.
pub(super) fn make(mkfs: &Path, sandbox: &Path, bytes: u64) -> Result<u64, String> {
    let bytes = bytes.next_multiple_of(BLOCK).max(BYTES_MIN);
    let image = disk_image(sandbox);
    let unfinished = unfinished(&image);
    let made = make_image(mkfs, &unfinished, bytes)
        .and_then(|()| mount_new(sandbox, &unfinished))
        .and_then(|()| fs::rename(&unfinished, &image));
    made.map_err(|error| {
        remove_unfinished(sandbox, &unfinished);
        format!("cannot make the file system of its sandbox: {error}")
    })?;
    Ok(bytes)
}

/// Both may be found again at the next start, so nothing is reported.
fn remove_unfinished(sandbox: &Path, unfinished: &Path) {
    if is_mounted(sandbox).is_ok_and(|is_mounted| is_mounted) {
        let _ = umount2(sandbox, MntFlags::MNT_DETACH);
    }
    let _ = fs::remove_file(unfinished);
}

fn is_mounted(sandbox: &Path) -> io::Result<bool> {
    let above = sandbox.parent().ok_or(io::ErrorKind::NotFound)?;
    Ok(sandbox.metadata()?.dev() != above.metadata()?.dev())
}

fn unfinished(image: &Path) -> PathBuf {
    image.with_extension("unfinished")
}

fn make_image(mkfs: &Path, image: &Path, bytes: u64) -> io::Result<()> {
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(image)?;
    file.set_len(bytes)?;
    let run = Command::new(mkfs)
        .args(OPTIONS)
        .arg(image)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output()?;
    match run.status.success() {
        true => Ok(()),
        false => {
            let errors = String::from_utf8_lossy(&run.stderr);
            let problem = format!("`{MKFS}`: {}: {}", run.status, errors.trim());
            Err(io::Error::other(problem))
        }
    }
}

fn open(image: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NOFOLLOW)
        .open(image)
}

/// Mounts an image over a sandbox. A mount elsewhere, such as one that a container keeps, gets the
/// same file system.
fn mount_on(sandbox: &Path, image: &Path) -> io::Result<()> {
    let file = open(image)?;
    let device = match device::attached(&file)? {
        Some(device) => device,
        None => device::attach(&file)?,
    };
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    let (source, options) = (Some(&device.path), Some(MOUNT_OPTIONS));
    Ok(mount(source, sandbox, Some("ext4"), flags, options)?)
}

/// Mounts a new image over a sandbox, and fills it with the entries below.
fn mount_new(sandbox: &Path, image: &Path) -> io::Result<()> {
    let below = File::open(sandbox)?;
    mount_on(sandbox, image)?;
    fs::remove_dir(sandbox.join("lost+found"))?;
    copy(&below, &File::open(sandbox)?)
}

/// Copies a directory without the content of its files, then its owner and mode: until then no
/// other process can change the copy. The original may belong to a task's user: its links are not
/// followed.
fn copy(from: &File, to: &File) -> io::Result<()> {
    let (from_path, to_path) = (path_of(from), path_of(to));
    for entry in fs::read_dir(&from_path)? {
        let entry = entry?;
        let (name, metadata) = (entry.file_name(), entry.metadata()?);
        let copied = to_path.join(&name);
        let kind = metadata.file_type();
        if kind.is_symlink() {
            symlink(fs::read_link(from_path.join(&name))?, &copied)?;
        } else if kind.is_dir() {
            DirBuilder::new().mode(0o700).create(&copied)?;
            let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let below = openat(from.as_fd(), name.as_os_str(), flags, Mode::empty())?;
            copy(&File::from(below), &File::open(&copied)?)?;
            continue;
        } else if kind.is_file() {
            let file = File::create_new(&copied)?;
            file.set_permissions(permissions(&metadata))?;
        } else {
            continue;
        }
        lchown(&copied, Some(metadata.uid()), Some(metadata.gid()))?;
    }
    let metadata = from.metadata()?;
    std::os::unix::fs::fchown(to, Some(metadata.uid()), Some(metadata.gid()))?;
    to.set_permissions(permissions(&metadata))
}

fn permissions(metadata: &fs::Metadata) -> Permissions {
    Permissions::from_mode(metadata.mode() & 0o777)
}

/// A path to an open directory.
fn path_of(directory: &File) -> PathBuf {
    format!("/proc/self/fd/{}", directory.as_raw_fd()).into()
}

/// Grows the mounted file system of a sandbox to at least this size. Returns its size.
pub(super) fn grow(sandbox: &Path, bytes: u64) -> Result<u64, String> {
    let bytes = bytes.next_multiple_of(BLOCK).max(BYTES_MIN);
    let grown = (|| {
        let (image, inside) = (open(&disk_image(sandbox))?, File::open(sandbox)?);
        let device = device::mounted(&inside, &image)?;
        let present = device.blocks()? * BLOCK;
        if present >= bytes {
            return Ok(present);
        }
        // An earlier growth may have failed after this step. A shorter file would lose blocks.
        if image.metadata()?.len() < bytes {
            image.set_len(bytes)?;
        }
        device.take_size()?;
        device::grow(&inside, bytes / BLOCK)?;
        Ok(bytes)
    })();
    grown.map_err(|error: io::Error| format!("cannot grow the file system of its sandbox: {error}"))
}

/// The used bytes of the file system of a sandbox.
pub(super) fn used(sandbox: &Path) -> io::Result<u64> {
    let state = rustix::fs::statvfs(sandbox)?;
    Ok((state.f_blocks - state.f_bfree).saturating_mul(state.f_frsize))
}

/// The size of the mounted file system of a sandbox, if it has one. The image may be longer, if its
/// growth failed.
pub(super) fn size(sandbox: &Path) -> Option<u64> {
    let image = open(&disk_image(sandbox)).ok()?;
    let device = device::mounted(&File::open(sandbox).ok()?, &image).ok()?;
    Some(device.blocks().ok()? * BLOCK)
}

/// Mounts the images of all sandboxes whose mounts are gone, such as after a reboot. Removes
/// unfinished images, and those without a sandbox.
pub(super) fn mount_all(work_dir: &Path) {
    for path in images(work_dir) {
        if let Some(sandbox) = sandbox_of(&path, ".unfinished") {
            remove_unfinished(&sandbox, &path);
            continue;
        }
        let Some(sandbox) = sandbox_of(&path, ".disk") else {
            let _ = fs::remove_file(&path); // Found again at the next start.
            continue;
        };
        let mounted = match is_mounted(&sandbox) {
            Ok(true) => Ok(()),
            Ok(false) => mount_on(&sandbox, &path),
            Err(error) => Err(error),
        };
        if let Err(error) = mounted {
            let sandbox = sandbox.display();
            tracing::warn!(%sandbox, %error, "cannot mount the file system of a kept sandbox");
        }
    }
}

/// The sandbox of an image with this ending, if it exists.
fn sandbox_of(image: &Path, ending: &str) -> Option<PathBuf> {
    let name = image.file_name()?.to_str()?;
    let sandbox = image.with_file_name(name.strip_prefix('.')?.strip_suffix(ending)?);
    sandbox.is_dir().then_some(sandbox)
}

/// The images in the `runs` directories of all executors, those that are not finished too.
fn images(work_dir: &Path) -> Vec<PathBuf> {
    let mut level = vec![work_dir.join("slaves")];
    for below in ["frameworks", "executors", "runs"] {
        let entries = level.iter().flat_map(|path| entries(path));
        level = entries.map(|path| path.join(below)).collect();
    }
    let is_image = |path: &PathBuf| {
        let extension = path.extension().and_then(|extension| extension.to_str());
        let is_hidden = path.file_name().is_some_and(|name| {
            let name = name.as_encoded_bytes();
            name.starts_with(b".")
        });
        is_hidden && matches!(extension, Some("disk" | "unfinished"))
    };
    let entries = level.iter().flat_map(|path| entries(path));
    entries.filter(is_image).collect()
}

fn entries(path: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}
