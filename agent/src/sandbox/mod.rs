//! Sandboxes: their paths, their creation, and reads of their files.
//!
//! Blocking. Files outside the sandbox are never read, whatever links a task creates. `kept` is the
//! interface through which actors use the disk, so that simulations need no files; `disk` removes
//! leftovers and bounds output.

pub mod disk;
pub mod kept;

use std::fs;
use std::fs::Permissions;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use http::files::{FileError, RootedPath};
use protocol::message::operator::FileChunk;
use protocol::{AgentId, ContainerId, ExecutorId, FrameworkId, TaskId};

use crate::host::beneath::Beneath;
use crate::host::output::FILE_MODE;

/// Maximum bytes of one read.
pub const PIECE_MAX: u32 = 1024 * 1024;

/// Mode of the directories above sandboxes and volumes: tasks reach their own by its path and
/// cannot list others.
pub const PARENT_MODE: u32 = 0o711;

/// Mode of a sandbox, as in Mesos: private to its user, readable by the group.
pub const SANDBOX_MODE: u32 = 0o750;

/// The link to the newest run of an executor.
pub const LATEST: &str = "latest";

/// The directory of all runs of an executor.
pub fn runs(
    work_dir: &Path,
    agent: &AgentId,
    framework: &FrameworkId,
    executor: &ExecutorId,
) -> PathBuf {
    let mut path = work_dir.join("slaves");
    for part in [
        agent.as_str(),
        "frameworks",
        framework.as_str(),
        "executors",
        executor.as_str(),
        "runs",
    ] {
        path.push(part);
    }
    path
}

/// The directory of nested containers' sandboxes in the sandbox of their parent.
const NESTED: &str = "containers";
/// The directory of links to them, named after their tasks.
const TASKS: &str = "tasks";

/// The sandbox of a container, which may be nested.
pub fn path(runs: &Path, container: &ContainerId) -> PathBuf {
    let mut names = container.as_str().split('.');
    let outermost = runs.join(names.next().unwrap_or_default());
    names.fold(outermost, |outer, name| outer.join(NESTED).join(name))
}

/// Creates a directory and its parents so that tasks of any user can traverse them.
pub fn create_with_parents(path: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true).mode(PARENT_MODE).create(path)
}

/// Creates a container's sandbox with empty `stdout` and `stderr`, and points `latest` to it.
pub fn create(
    runs: &Path,
    container: &ContainerId,
    owner: Option<(u32, u32)>,
) -> io::Result<PathBuf> {
    let sandbox = runs.join(container.as_str());
    create_with_parents(&sandbox)?;
    fill(&sandbox, owner)?;
    let latest = runs.join(LATEST);
    match std::os::unix::fs::symlink(container.as_str(), &latest) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            // Replaced atomically, so that the link always exists.
            let fresh = runs.join(format!(".latest-{container}"));
            std::os::unix::fs::symlink(container.as_str(), &fresh)?;
            fs::rename(&fresh, &latest)?;
        }
        made => made?,
    }
    Ok(sandbox)
}

/// Creates the sandbox of a nested container, and a link to it that is named after its task. The
/// outer sandbox may belong to the tasks already: their links are not followed.
pub fn create_nested(
    runs: &Path,
    container: &ContainerId,
    task: Option<&TaskId>,
    owner: Option<(u32, u32)>,
) -> io::Result<()> {
    let outermost = path(runs, &container.outermost());
    let sandbox = path(runs, container);
    let inner = sandbox.strip_prefix(&outermost).map_err(io::Error::other)?;
    let base = Beneath::open(&outermost)?;
    let directory = base.new_directory(inner)?;
    let opened = format!("/proc/self/fd/{}", directory.as_raw_fd());
    fill(Path::new(&opened), owner)?;
    let Some(task) = task else { return Ok(()) };
    let tasks = base.plain_directory(TASKS.as_ref())?;
    // Relative, so that it can be followed inside the sandbox.
    match nix::unistd::symlinkat(&Path::new("..").join(inner), &tasks, task.as_str()) {
        // Of an earlier task with this id: its sandbox is found among the others.
        Ok(()) | Err(nix::errno::Errno::EEXIST) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Turns a new directory into a sandbox with `stdout` and `stderr`.
fn fill(sandbox: &Path, owner: Option<(u32, u32)>) -> io::Result<()> {
    fs::set_permissions(sandbox, Permissions::from_mode(SANDBOX_MODE))?;
    // A full disk often has room for a directory, but not for its files.
    let disk = nix::sys::statvfs::statvfs(sandbox)?;
    if disk.blocks() > 0 && disk.blocks_free() == 0 {
        return Err(io::Error::from_raw_os_error(nix::libc::ENOSPC));
    }
    for name in ["stdout", "stderr"] {
        let path = sandbox.join(name);
        let file = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .mode(FILE_MODE)
            .open(&path)?;
        // Regardless of the umask.
        file.set_permissions(Permissions::from_mode(FILE_MODE))?;
        if let Some((uid, gid)) = owner {
            std::os::unix::fs::chown(&path, Some(uid), Some(gid))?;
        }
    }
    match owner {
        Some((uid, gid)) => std::os::unix::fs::chown(sandbox, Some(uid), Some(gid)),
        None => Ok(()),
    }
}

/// The newest run below `runs`, if any.
pub fn newest(runs: &Path) -> Option<ContainerId> {
    let run = fs::read_link(runs.join(LATEST)).ok()?;
    ContainerId::new(run.to_str()?).ok()
}

/// Why a file is not read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The path leaves the sandbox.
    #[error("path `{path}`: expected a path inside the sandbox, without `..`")]
    Outside {
        /// As requested.
        path: String,
    },
    /// There is no such file.
    #[error("no such file")]
    NotFound,
    /// A directory, pipe or device.
    #[error("not a regular file")]
    NotAFile,
    /// A system error.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Reads a piece of a file in the sandbox. The kernel rejects paths that leave it, through `..` or
/// links.
pub fn read(sandbox: &Path, path: &str, offset: u64, length: u32) -> Result<FileChunk, ReadError> {
    if path.is_empty() {
        let path = String::new();
        return Err(ReadError::Outside { path });
    }
    let place = RootedPath {
        root: sandbox.to_owned(),
        inside: path.into(),
    };
    let opened = http::files::open(&place)?;
    Ok(FileChunk {
        data: opened.read_at(offset, length.min(PIECE_MAX).into())?,
        size: opened.size,
    })
}

impl From<FileError> for ReadError {
    fn from(error: FileError) -> Self {
        match error {
            FileError::Outside { path } => Self::Outside { path },
            FileError::NotFound { .. } => Self::NotFound,
            FileError::System { source, .. } => Self::Io(source),
            FileError::Denied { .. } => Self::Io(io::ErrorKind::PermissionDenied.into()),
            FileError::Unnameable { .. } => Self::Io(io::ErrorKind::InvalidFilename.into()),
            _ => Self::NotAFile,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sandbox() -> (tempfile::TempDir, PathBuf) {
        let root = tempfile::tempdir().unwrap();
        let runs = runs(
            root.path(),
            &AgentId::new("s").unwrap(),
            &FrameworkId::new("f").unwrap(),
            &ExecutorId::new("e").unwrap(),
        );
        let sandbox = create(&runs, &ContainerId::new("c1").unwrap(), None).unwrap();
        (root, sandbox)
    }

    /// SPEC 5.1.
    #[test]
    fn layout_matches_mesos_and_latest_is_the_newest_run() {
        let (root, first) = sandbox();
        let runs = root.path().join("slaves/s/frameworks/f/executors/e/runs");
        assert_eq!(first, runs.join("c1"));
        let newest = || newest(&runs).map(|run| run.to_string());
        assert_eq!(newest().as_deref(), Some("c1"));
        assert_eq!(fs::read_link(runs.join("latest")).unwrap(), Path::new("c1"));
        create(&runs, &ContainerId::new("c2").unwrap(), None).unwrap();
        assert_eq!(fs::read_link(runs.join("latest")).unwrap(), Path::new("c2"));
        assert_eq!(newest().as_deref(), Some("c2"));
        assert_eq!(super::newest(root.path()), None);
        assert!(first.join("stdout").is_file() && first.join("stderr").is_file());
    }

    #[test]
    fn sandbox_of_a_nested_container_is_in_its_parents() {
        let (_root, outer) = sandbox();
        let runs = outer.parent().unwrap();
        let nested = ContainerId::new("c1.n").unwrap();
        let task = TaskId::new("t").unwrap();
        create_nested(runs, &nested, Some(&task), None).unwrap();
        let own = path(runs, &nested);
        assert_eq!(own, outer.join("containers/n"));
        assert_eq!(own.metadata().unwrap().permissions().mode() & 0o777, 0o750);
        assert!(own.join("stdout").is_file());
        let link = fs::read_link(outer.join("tasks/t")).unwrap();
        assert_eq!(link, Path::new("../containers/n"));
        let elsewhere = tempfile::tempdir().unwrap();
        // A task cannot prepare it.
        assert!(create_nested(runs, &nested, Some(&task), None).is_err());
        fs::remove_dir_all(outer.join("containers")).unwrap();
        std::os::unix::fs::symlink(elsewhere.path(), outer.join("containers")).unwrap();
        assert!(create_nested(runs, &nested, Some(&task), None).is_err());
        assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 0);
    }

    #[test]
    fn sandbox_is_private_but_its_parents_are_traversable() {
        let (root, sandbox) = sandbox();
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&sandbox), 0o750);
        assert_eq!(mode(&sandbox.join("stdout")), 0o640);
        assert_eq!(mode(&sandbox.join("stderr")), 0o640);
        let way = sandbox.ancestors().skip(1);
        for above in way.take_while(|above| *above != root.path()) {
            assert_eq!(mode(above), 0o711, "{}", above.display());
        }
    }

    #[test]
    fn read_returns_a_piece_from_its_offset() {
        let (_root, sandbox) = sandbox();
        fs::write(sandbox.join("stdout"), "hello world").unwrap();
        let piece = read(&sandbox, "stdout", 6, 3).unwrap();
        assert_eq!((piece.data.as_slice(), piece.size), (b"wor".as_slice(), 11));
        assert_eq!(read(&sandbox, "stdout", 11, 10).unwrap().data, b"");
        assert_eq!(read(&sandbox, "stdout", u64::MAX, 10).unwrap().data, b"");
    }

    #[test]
    fn nothing_outside_the_sandbox_is_read() {
        let (root, sandbox) = sandbox();
        fs::write(root.path().join("secret"), "s").unwrap();
        std::os::unix::fs::symlink("/etc/passwd", sandbox.join("absolute")).unwrap();
        std::os::unix::fs::symlink("../../../secret", sandbox.join("relative")).unwrap();
        std::os::unix::fs::symlink("stdout", sandbox.join("inside")).unwrap();
        for path in [
            "../c1/stdout",
            "/etc/passwd",
            "absolute",
            "relative",
            "",
            "a/../../stdout",
        ] {
            let refused = read(&sandbox, path, 0, 10);
            assert!(
                matches!(refused, Err(ReadError::Outside { .. })),
                "{path}: {refused:?}"
            );
        }
        assert!(read(&sandbox, "inside", 0, 10).is_ok());
        assert!(matches!(
            read(&sandbox, "missing", 0, 1),
            Err(ReadError::NotFound)
        ));
        assert!(matches!(
            read(&sandbox, ".", 0, 1),
            Err(ReadError::NotAFile)
        ));
        nix::unistd::mkfifo(&sandbox.join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(matches!(
            read(&sandbox, "pipe", 0, 1),
            Err(ReadError::NotAFile)
        ));
    }
}
