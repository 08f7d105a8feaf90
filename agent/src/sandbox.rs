//! Sandboxes: where they are (SPEC 5.1), how they are made, and how an operator reads a file of one.
//!
//! Blocking functions: call them beside the mailbox. A file outside the sandbox is never read, whatever the task has put in it.

use std::fs;
use std::fs::Permissions;
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use http::files::{FileError, Place};
use protocol::message::operator::FilePiece;
use protocol::{AgentId, ContainerId, ExecutorId, FrameworkId};

/// The most that is read at once, in bytes.
pub const PIECE_MAX: u32 = 1024 * 1024;

/// The mode of the directories that lead to sandboxes and volumes: tasks of any user reach their own by its path, and list no others.
pub const WAY_MODE: u32 = 0o711;

/// The mode of a sandbox, as by Mesos: it is its user's alone, and its group can look.
pub const SANDBOX_MODE: u32 = 0o750;

/// The mode of `stdout` and `stderr`.
pub const FILE_MODE: u32 = 0o640;

/// What leads to the newest run of an executor.
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

/// Makes a directory and those above it that are missing, for tasks of any user to pass through.
pub fn make_way(path: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true).mode(WAY_MODE).create(path)
}

/// Makes the sandbox of a container, with empty `stdout` and `stderr`, and lets `latest` point to it.
pub fn create(
    runs: &Path,
    container: &ContainerId,
    owner: Option<(u32, u32)>,
) -> io::Result<PathBuf> {
    let sandbox = runs.join(container.as_str());
    make_way(&sandbox)?;
    fs::set_permissions(&sandbox, Permissions::from_mode(SANDBOX_MODE))?;
    // A full disk often still has room for a directory, but for nothing in it.
    let disk = nix::sys::statvfs::statvfs(&sandbox)?;
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
        // Whatever the umask.
        file.set_permissions(Permissions::from_mode(FILE_MODE))?;
        if let Some((uid, gid)) = owner {
            std::os::unix::fs::chown(&path, Some(uid), Some(gid))?;
        }
    }
    if let Some((uid, gid)) = owner {
        std::os::unix::fs::chown(&sandbox, Some(uid), Some(gid))?;
    }
    let latest = runs.join(LATEST);
    match std::os::unix::fs::symlink(container.as_str(), &latest) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            // Replaced in one step, so that there is always a newest run.
            let fresh = runs.join(format!(".latest-{container}"));
            std::os::unix::fs::symlink(container.as_str(), &fresh)?;
            fs::rename(&fresh, &latest)?;
        }
        made => made?,
    }
    Ok(sandbox)
}

/// The newest run below `runs`, if there has been one.
pub fn newest(runs: &Path) -> Option<ContainerId> {
    let run = fs::read_link(runs.join(LATEST)).ok()?;
    ContainerId::new(run.to_str()?).ok()
}

/// Why a file is not read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The path would leave the sandbox.
    #[error("path `{path}`: expected a path inside the sandbox, without `..`")]
    Outside {
        /// As given.
        path: String,
    },
    /// There is no such file.
    #[error("no such file")]
    NotFound,
    /// It is a directory, a pipe or a device.
    #[error("not a regular file")]
    NotAFile,
    /// The system refuses.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Reads a piece of a file in the sandbox. The kernel itself refuses any way out, be it `..` or a link that the task made.
pub fn read(sandbox: &Path, path: &str, offset: u64, length: u32) -> Result<FilePiece, ReadError> {
    if path.is_empty() {
        let path = String::new();
        return Err(ReadError::Outside { path });
    }
    let place = Place {
        root: sandbox.to_owned(),
        inside: path.into(),
    };
    let opened = http::files::open(&place)?;
    Ok(FilePiece {
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
    fn the_layout_is_the_one_mesos_users_know_and_latest_is_the_newest_run() {
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
    fn a_sandbox_is_closed_to_strangers_and_the_way_to_it_is_open() {
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
    fn a_piece_is_read_from_its_offset_and_the_end_is_empty() {
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
