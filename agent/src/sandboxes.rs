//! Sandboxes: the seam between the agent's actors and the disk that its tasks' directories are on.
//!
//! [`Directories`] is the real one, over [`crate::sandbox`] and [`crate::disk`]. A rehearsal of thousands of agents puts its own here, which touches no
//! file. Every function may block, and is called beside the mailbox. Nothing is remembered.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};

use protocol::ContainerId;
use protocol::message::operator::FilePiece;
use runtime::Timestamp;

use crate::accounts::{Own, RunAs, run_as};
use crate::disk::{leftovers, output, space};
use crate::operations::volumes::{self, Mount};
use crate::sandbox::{self, ReadError};
use crate::sys;

/// Makes sandboxes and reads files in them.
pub trait Sandboxes: Send + Sync {
    /// Makes the sandbox of a container below `runs`, for `user` if it is to be somebody else's than ours. An error says what
    /// failed, for the task's framework.
    fn create(
        &self,
        runs: &Path,
        container: &ContainerId,
        user: Option<&str>,
    ) -> Result<(), String>;

    /// Lets the sandbox of a container below `runs` lead to these volumes, which are `user`'s from now on unless they are shared. An error
    /// says what failed, for the task's framework. Where there are no directories, there is nothing to do.
    fn link(
        &self,
        _runs: &Path,
        _container: &ContainerId,
        _mounts: &[Mount],
        _user: Option<&str>,
    ) -> Result<(), String> {
        Ok(())
    }

    /// The newest run below `runs`, if there has been one. Where there are no directories, there is none.
    fn newest(&self, _runs: &Path) -> Option<ContainerId> {
        None
    }

    /// Reads a piece of a file in this sandbox.
    fn read(
        &self,
        sandbox: &Path,
        path: &str,
        offset: u64,
        length: u32,
    ) -> Result<FilePiece, ReadError>;

    /// Removes these leftovers of a work directory; gives the outcome of each.
    fn remove(&self, _work_dir: &Path, paths: &[PathBuf]) -> Vec<Result<(), String>> {
        vec![Ok(()); paths.len()]
    }

    /// Notes on the disk that the age of this leftover counts from now on, also for the next process.
    fn touch(&self, _sandbox: &Path, _now: Timestamp) -> io::Result<()> {
        Ok(())
    }

    /// Keeps each output file of this sandbox within so many bytes.
    fn bound_output(&self, _sandbox: &Path, _max: u64) -> io::Result<()> {
        Ok(())
    }

    /// The share of the work directory's disk in use, 0 to 1.
    fn usage(&self, _work_dir: &Path) -> io::Result<f64> {
        Ok(0.0)
    }

    /// Writes to the work directory, to see whether it takes writes.
    fn test_write(&self, _work_dir: &Path) -> io::Result<()> {
        Ok(())
    }
}

/// Sandboxes that are directories.
#[derive(Debug, Default)]
pub struct Directories {
    /// Held for reading while a sandbox is made, and for writing while empty parents are removed.
    layout: RwLock<()>,
}

impl Sandboxes for Directories {
    fn create(
        &self,
        runs: &Path,
        container: &ContainerId,
        user: Option<&str>,
    ) -> Result<(), String> {
        let owner = owner(user)?;
        let _layout = self.layout.read().unwrap_or_else(PoisonError::into_inner);
        let made = sandbox::create(runs, container, owner);
        made.map(|_| ()).map_err(|error| {
            format!(
                "the sandbox cannot be made in `{}`: {error}",
                runs.display()
            )
        })
    }

    fn link(
        &self,
        runs: &Path,
        container: &ContainerId,
        mounts: &[Mount],
        user: Option<&str>,
    ) -> Result<(), String> {
        let (owner, sandbox) = (owner(user)?, runs.join(container.as_str()));
        for mount in mounts {
            volumes::link(&sandbox, mount, owner).map_err(|error| {
                format!(
                    "volume `{}` cannot be put at `{}` of the sandbox: {error}",
                    mount.volume.display(),
                    mount.container_path
                )
            })?;
        }
        Ok(())
    }

    fn newest(&self, runs: &Path) -> Option<ContainerId> {
        sandbox::newest(runs)
    }

    fn read(
        &self,
        sandbox: &Path,
        path: &str,
        offset: u64,
        length: u32,
    ) -> Result<FilePiece, ReadError> {
        sandbox::read(sandbox, path, offset, length)
    }

    fn remove(&self, work_dir: &Path, paths: &[PathBuf]) -> Vec<Result<(), String>> {
        leftovers::remove(work_dir, paths, &self.layout)
    }

    fn touch(&self, sandbox: &Path, now: Timestamp) -> io::Result<()> {
        leftovers::touch(sandbox, now)
    }

    fn bound_output(&self, sandbox: &Path, max: u64) -> io::Result<()> {
        output::bound(sandbox, max)
    }

    fn usage(&self, work_dir: &Path) -> io::Result<f64> {
        space::usage(work_dir)
    }

    fn test_write(&self, work_dir: &Path) -> io::Result<()> {
        space::test_write(work_dir)
    }
}

/// The user that the sandbox belongs to, if it is another than ours.
fn owner(user: Option<&str>) -> Result<Option<(u32, u32)>, String> {
    match run_as(user, &Own::unnamed(), sys::account)? {
        RunAs::Own => Ok(None),
        RunAs::Other(account) => {
            let credentials = account.credentials;
            Ok(Some((credentials.uid, credentials.gid)))
        }
    }
}
