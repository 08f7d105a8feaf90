//! Sandboxes: the interface between the agent's actors and the disk of sandboxes.
//!
//! [`Directories`] implements it with [`crate::sandbox`] and [`crate::sandbox::disk`]. Simulations
//! substitute an implementation without files. All functions may block and run outside the actors.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};

use protocol::message::operator::FileChunk;
use protocol::{ContainerId, TaskId};
use runtime::Timestamp;

use crate::host::accounts::{OwnUser, RunAs, run_as};
use crate::host::sys;
use crate::operations::volumes::{self, Mount};
use crate::sandbox::disk::{leftovers, output, space};
use crate::sandbox::{self, ReadError};

/// Creates sandboxes and reads their files.
pub trait Sandboxes: Send + Sync {
    /// Creates a container's sandbox below `runs`, for `user` if given. The error text goes to the
    /// framework.
    fn create(
        &self,
        runs: &Path,
        container: &ContainerId,
        user: Option<&str>,
    ) -> Result<(), String>;

    /// Creates the sandbox of a nested container likewise, in that of its parent, for its task
    /// if it has one. No effect without directories.
    fn create_nested(
        &self,
        _runs: &Path,
        _container: &ContainerId,
        _task: Option<&TaskId>,
        _user: Option<&str>,
    ) -> Result<(), String> {
        Ok(())
    }

    /// Links volumes into a container's sandbox below `runs`. They become `user`'s unless shared.
    /// The error text goes to the framework. No effect without directories.
    fn link(
        &self,
        _runs: &Path,
        _container: &ContainerId,
        _mounts: &[Mount],
        _user: Option<&str>,
    ) -> Result<(), String> {
        Ok(())
    }

    /// The newest run below `runs`, if any. `None` without directories.
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
    ) -> Result<FileChunk, ReadError>;

    /// Removes leftovers of a work directory; returns the result of each.
    fn remove(&self, _work_dir: &Path, paths: &[PathBuf]) -> Vec<Result<(), String>> {
        vec![Ok(()); paths.len()]
    }

    /// Sets the modification time of a leftover, from which its age counts in later processes too.
    fn touch(&self, _sandbox: &Path, _now: Timestamp) -> io::Result<()> {
        Ok(())
    }

    /// Bounds each output file of this sandbox to `max` bytes.
    fn bound_output(&self, _sandbox: &Path, _max: u64) -> io::Result<()> {
        Ok(())
    }

    /// The used share of the work directory's disk, 0 to 1.
    fn usage(&self, _work_dir: &Path) -> io::Result<f64> {
        Ok(0.0)
    }

    /// Writes to the work directory, to detect a failing disk.
    fn test_write(&self, _work_dir: &Path) -> io::Result<()> {
        Ok(())
    }
}

/// Sandboxes that are directories.
#[derive(Debug, Default)]
pub struct Directories {
    /// Read-locked while a sandbox is created, write-locked while empty parents are removed.
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

    fn create_nested(
        &self,
        runs: &Path,
        container: &ContainerId,
        task: Option<&TaskId>,
        user: Option<&str>,
    ) -> Result<(), String> {
        let made = sandbox::create_nested(runs, container, task, owner(user)?);
        made.map_err(|error| {
            let sandbox = sandbox::path(runs, container);
            format!(
                "the sandbox `{}` cannot be made: {error}",
                sandbox.display()
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
    ) -> Result<FileChunk, ReadError> {
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

/// The owner of a sandbox, if not the agent's own user.
fn owner(user: Option<&str>) -> Result<Option<(u32, u32)>, String> {
    match run_as(user, &OwnUser::unnamed(), sys::account)? {
        RunAs::Own => Ok(None),
        RunAs::Other(account) => {
            let credentials = account.credentials;
            Ok(Some((credentials.uid, credentials.gid)))
        }
    }
}
